"""`python -m offload_args demo`: principal components of real data, on any device."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from time import perf_counter

import numpy as np

from .. import Device
from .arguments import device

HELP = "find the principal components of a real data set on a device"
DESCRIPTION = """Find the principal components of 1,797 hand-written digits on a device, and compare them with NumPy's.
The exit status is 1 if an eigenvalue differs by more than 1e-6 of itself."""

TOLERANCE = 1e-6


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 32:
        raise argparse.ArgumentTypeError(f"needs 1 to 32, got {text}")
    return int(text)


def _picture(text: str) -> str:
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            "needs matplotlib: pip install 'offload-args[demo]' or, in a checkout, '.[demo]'"
        )
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        type=device,
        metavar="D",
        help="such as host, sim:0 or cuda:0; unless given, OFFLOAD_ARGS_DEVICE, the first GPU, or host",
    )
    parser.add_argument("--components", type=_count, default=6, help="how many (1 to 32; %(default)s)")
    parser.add_argument(
        "--plot", type=_picture, metavar="FILE", help="draw the components, such as components.png (needs matplotlib)"
    )


def run(options: argparse.Namespace) -> int:
    from ..demo import draw, load_digits, principal_components

    device = options.device or Device.default()
    data = load_digits()
    before = device.counters
    start = perf_counter()
    eigenvalues, components, steps = principal_components(data, options.components, device)
    seconds = perf_counter() - start
    after = device.counters
    calls = after.calls - before.calls
    copies_up, bytes_up = after.copies_up - before.copies_up, after.bytes_up - before.bytes_up
    copies_down, bytes_down = after.copies_down - before.copies_down, after.bytes_down - before.bytes_down

    singular = np.linalg.svd(data, compute_uv=False)
    variances = singular**2 / (len(data) - 1)
    expected = variances[: options.components]
    errors = np.abs(eigenvalues - expected) / expected

    print(f"device      {device.name} ({device.model})")
    print(f"data        {data.shape[0]:,} digits of 8 x 8 pixels, float64, {data.nbytes:,} bytes")
    print(f"iterations  {steps}, {calls:,} BLAS calls in one region, {seconds:.3f} s")
    print()
    print("component  eigenvalue  NumPy's SVD  relative error  of the variance")
    for k, (value, reference, error) in enumerate(zip(eigenvalues, expected, errors, strict=True), 1):
        print(f"{k:9}  {value:10.4f}  {reference:11.4f}  {error:14.1e}  {value / variances.sum():15.1%}")
    print()
    print(f"up          {copies_up} copy, {bytes_up:,} bytes: the data")
    print(f"down        {copies_down} copy, {bytes_down:,} bytes: the components")
    if options.plot:
        try:
            draw(components, eigenvalues, options.plot)
        except (OSError, ValueError) as error:  # an unknown format raises ValueError
            print(f"demo: {options.plot} can't be written: {error}", file=sys.stderr)
            return 2
        print(f"drawn       {options.plot}")
    if errors.max() > TOLERANCE:
        print(f"FAILED: the largest relative error is {errors.max():.1e}, above {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    return 0
