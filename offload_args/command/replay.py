"""`python -m offload_args replay`: runs the calls of a recording again, on any device."""

from __future__ import annotations

import argparse
import sys

from .arguments import count, device

HELP = "run the calls of a recording again, on any device"
DESCRIPTION = """Run the regions, copies and calls of a recording again. Arrays whose contents it does not have get made
ones, the same each time. The exit status is 1 if a call fails that did not fail when it was recorded, or the reverse,
or if --compare finds a difference."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what record wrote")
    parser.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="such as host, sim:0, cuda:0 or hip:0; by default those of the recording, or the host for one not here",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare each call with the same on the host, and with the results of the recording if it has them",
    )
    parser.add_argument(
        "--images",
        action="store_true",
        help="run the machine code of kernels that record --images wrote: only of a file that you trust",
    )
    parser.add_argument("--from", dest="first", type=count, default=1, metavar="N", help="run no call before the N-th")
    parser.add_argument("--to", dest="last", type=count, metavar="N", help="run no call after the N-th")
    parser.add_argument(
        "--shrink",
        metavar="PREDICATE",
        help="find the fewest calls and least sizes with which a fault shows, and write them as a script that stands "
        "alone. differs: a call's results are not those of the host; fails: a call raises an error; or an expression "
        "of arrays (by name) and results, or a file of Python that defines shows(arrays, results)",
    )
    parser.add_argument("--confirm", type=device, metavar="D", help="with --shrink: run the script on this device, too")
    parser.add_argument("-o", "--output", metavar="SCRIPT", default="shrunk.py", help="for --shrink (%(default)s)")


def run(options: argparse.Namespace) -> int:
    from ..recording.replay import replay

    try:
        if options.shrink:
            return _shrink(options)
        report = replay(
            options.file,
            device=options.device,
            compare=options.compare,
            first=options.first,
            last=options.last,
            images=options.images,
        )
    except OSError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    lines = report.lines()
    if options.compare and not (report.compared or report.compared_recorded):
        lines.append("no call compared: the host's calls are compared with those of another device, --device D")
    print("\n".join(lines))
    return 0 if report.is_good else 1


def _shrink(options: argparse.Namespace) -> int:
    from ..recording.shrink import outcome, shrink

    shrunk = shrink(options.file, options.shrink, options.device)
    with open(options.output, "w", encoding="utf-8", errors="backslashreplace") as output:
        output.write(shrunk.script)
    noun = "call or copy" if shrunk.before == 1 else "calls and copies"
    print(f"{shrunk.fault}\nshrunk from {shrunk.before} {noun} to {shrunk.after}, in {shrunk.trials} replays")
    print(f"{options.output}: {len(shrunk.script.splitlines())} lines that show it")
    print(outcome(shrunk))
    if options.confirm is not None:
        print(outcome(shrunk, options.confirm))
    return 1
