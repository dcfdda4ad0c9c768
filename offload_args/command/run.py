"""`python -m offload_args run`: runs an unmodified NumPy or SciPy program with its large products on the GPU."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

from .script import add_script, script_of

if TYPE_CHECKING:
    from ..children import Children
    from ..scripts import Accelerated

HELP = "run a NumPy or SciPy program as it is, its large products on the GPU"
DESCRIPTION = """Run a program unchanged. Calls of BLAS and LAPACK that a GPU makes faster, copies included, go there;
all others stay where they are. Without a GPU the program runs as it is, and a line on stderr says so. The program keeps
its own output and exit status."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", metavar="D", help='such as "cuda:0"; by default OFFLOAD_ARGS_DEVICE, or the first GPU'
    )
    parser.add_argument("--report", action="store_true", help="say on stderr what went, from which lines, and why not")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--margin", type=float, default=1.25, help="how many times as fast the GPU has to be; 0: all goes (%(default)s)"
    )
    parser.add_argument(
        "--plan", metavar="FILE", help="decide as the file says, by line, routine and sizes; what is new is added to it"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="the plan alone decides: the same bits from run to run"
    )
    parser.add_argument(
        "--children",
        action="store_true",
        help="also the calls of Python's child processes: joblib's, multiprocessing's spawn's and subprocess's",
    )
    add_script(parser)


def _tell(options: argparse.Namespace, on: Accelerated, children: Children | None, stderr: TextIO | None) -> int:
    """Write the report, and the files of the options. Return 2 if a file can't be written, else 0."""
    from ..running import say

    status = 0
    if options.report:
        say(f"\n-- offload_args run\n{on.report}", stderr)
        if children is not None:
            say(str(children), stderr)
    if options.json is not None:
        report = on.report.as_dict() | ({} if children is None else {"children": children.reports})
        try:
            with open(options.json, "w") as file:
                file.write(json.dumps(report, indent=2) + "\n")
        except OSError as error:
            say(f"run: {error}", stderr)
            status = 2
    return status


def run(options: argparse.Namespace) -> int:
    from ..children import Children
    from ..running import run_to_end, say
    from ..scripts import accelerate

    run_script = script_of(options.script, options.arguments, options.module)
    if run_script is None:
        print(f"run: no file {options.script}", file=sys.stderr)
        return 2
    process, stderr = os.getpid(), sys.stderr
    lines = options.report or options.json is not None
    on = accelerate(
        options.device, margin=options.margin, lines=lines, plan=options.plan, deterministic=options.deterministic
    )
    if on.report.note:
        say(f"offload_args run: {on.report.note}", stderr)
    children = None
    if options.children and not on.report.note:
        children = Children(options.device, options.margin, lines, options.plan, options.deterministic)
    unwritten: list[OSError] = []

    def stop() -> None:
        try:
            on.stop()
        except OSError as error:
            unwritten.append(error)

    def end(children: Children) -> None:
        """Collect the children's reports at exit. The children of joblib have ended by then, because the callback that
        ends them is registered later, and runs earlier."""
        if os.getpid() != process:
            return
        children.collect()
        try:
            on.add_decisions(children.decisions)
        except OSError as error:
            say(f"run: the plan can't be written: {error}", stderr)
        _tell(options, on, children, stderr)

    if children is not None:
        atexit.register(end, children)
    status = run_to_end(run_script, stop)
    if os.getpid() != process:  # this process is a child that the program forked; its parent writes the report
        return status
    for error in unwritten:
        say(f"run: the plan can't be written: {error}", stderr)
        status = status or 2
    if children is None:
        fault = _tell(options, on, None, stderr)
        status = status or fault
    return status
