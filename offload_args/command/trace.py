"""`python -m offload_args trace`: runs a script, and says what it copied, called and waited for."""

from __future__ import annotations

import argparse
import os
import sys

HELP = "run a script, and say what it copied and what to do about it"
DESCRIPTION = """Run a script, then say on stderr what it copied, called and waited for, and what to do about it. The
script keeps its own output and exit status."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save", metavar="FILE", help="write a timeline for ui.perfetto.dev, such as trace.json")
    parser.add_argument("--json", metavar="FILE", help="write the summary as JSON, too")
    parser.add_argument("--progress", action="store_true", help="show copies and waits that take above a second")
    parser.add_argument("-m", dest="module", action="store_true", help="script is a module's name")
    parser.add_argument("script", help="the script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")


def run(options: argparse.Namespace) -> int:
    import runpy

    from ..tracing import process

    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path.insert(0, os.getcwd())
    elif os.path.exists(options.script):
        sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    else:
        print(f"trace: no file {options.script}", file=sys.stderr)
        return 2

    def run_script() -> object:
        if options.module:
            return runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        return runpy.run_path(options.script, run_name="__main__")

    return process.run(run_script, save=options.save, json=options.json, progress=options.progress)
