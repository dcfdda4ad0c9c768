"""`python -m offload_args trace`: runs a script, and reports its copies, calls and waits."""

from __future__ import annotations

import argparse
import sys

from .script import add_script, script_of

HELP = "run a script, and list its copies, with advice"
DESCRIPTION = """Run a script, then list on stderr its copies, calls and waits, with advice. The
script keeps its own output and exit status."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save", metavar="FILE", help="write a timeline for ui.perfetto.dev, such as trace.json")
    parser.add_argument("--json", metavar="FILE", help="write the summary as JSON, too")
    parser.add_argument("--progress", action="store_true", help="show copies and waits that take above a second")
    add_script(parser)


def run(options: argparse.Namespace) -> int:
    from ..tracing import process

    run_script = script_of(options.script, options.arguments, options.module)
    if run_script is None:
        print(f"trace: no file {options.script}", file=sys.stderr)
        return 2
    return process.run(run_script, save=options.save, json=options.json, progress=options.progress)
