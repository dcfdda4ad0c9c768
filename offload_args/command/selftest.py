"""`python -m offload_args selftest`: some hundreds of checks of one device, and a report to paste."""

from __future__ import annotations

import argparse
import json

from .. import Device
from .arguments import count, device

HELP = "check a device, and print a report to paste into an issue"
DESCRIPTION = """Check a device in under a minute: copies, BLAS against NumPy, streams, errors, a kernel. The exit
status is 1 if a check failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="such as host, sim:0, cuda:0 or hip:0; unless given, OFFLOAD_ARGS_DEVICE, the first GPU, or host",
    )
    parser.add_argument(
        "--every",
        type=count,
        default=1,
        metavar="N",
        help="make the first check of each kind, and each N-th after it: for slow devices, such as emulated ones",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and nothing else")


def run(options: argparse.Namespace) -> int:
    from .. import selftest

    report = selftest.run(
        options.device or Device.default(),
        lambda text: None if options.json else print(text, flush=True),
        options.every,
    )
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print("", "--- the report ---", *selftest.lines(report), sep="\n")
    return 1 if report["failures"] else 0
