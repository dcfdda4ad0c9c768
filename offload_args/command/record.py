"""`python -m offload_args record`: runs a script, and records its regions, copies and calls in a file."""

from __future__ import annotations

import argparse
import os
import sys

from .arguments import count
from .script import add_script, script_of

HELP = "run a script, and record its calls in a file that runs again anywhere"
DESCRIPTION = """Run a script, and record its regions, copies and calls in a file, which replay runs again on any
device. The file has no values of arrays unless --contents=inputs asks for them; it has the numbers that are passed to
calls, and the names of arrays and source files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", default="recording.jsonl.gz", help="the file (%(default)s)")
    parser.add_argument(
        "--contents",
        choices=("none", "hash", "inputs"),
        default="hash",
        help="what the file has of the contents of arrays: nothing, checksums, or the values (%(default)s)",
    )
    parser.add_argument("--calls", type=count, metavar="N", help="end the recording after N calls")
    parser.add_argument(
        "--sync", action="store_true", help="write each call before it is made, too: for a call that ends the process"
    )
    parser.add_argument("--images", action="store_true", help="write the machine code of kernels, for replay --images")
    add_script(parser)


def run(options: argparse.Namespace) -> int:
    from ..recording import process

    file = os.path.abspath(options.output)  # the script may change the working directory
    run_script = script_of(options.script, options.arguments, options.module)
    if run_script is None:
        print(f"record: no file {options.script}", file=sys.stderr)
        return 2
    return process.run(run_script, file, options.contents, options.calls, options.sync, options.images)
