#!/usr/bin/env python
# PYTHON_ARGCOMPLETE_OK
"""The command line `python -m offload_args`; the package offload_args.command has its code."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
