#!/usr/bin/env python
# PYTHON_ARGCOMPLETE_OK
"""`python -m offload_args`: the command line, in the folder command."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
