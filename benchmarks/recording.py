"""The cost of a recording: a power iteration of one matrix, and small calls and regions, with and without one.

    python benchmarks/recording.py [--device cuda:0] [-n 4096]

Each row: the time without a recording, and how much more it is with each kind of contents.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import numpy as np

from offload_args import Device, blas, offload_args, record

Contents = Literal["none", "hash"]
KINDS: tuple[Contents, ...] = ("none", "hash")


def iterate(device: Device, n: int, turns: int) -> None:
    """Make steps of the power iteration in one region."""
    A, x, y = np.ones((n, n), np.float32), np.ones(n, np.float32), np.empty(n, np.float32)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        for _ in range(turns):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            blas.scal(1.0 / float(blas.nrm2(dy)), dy)
            blas.swap(dx, dy)


def small_calls(device: Device, turns: int) -> None:
    x = np.ones(8)
    with offload_args(x, device=device) as (dx,):
        for _ in range(turns):
            blas.scal(1.0, dx)


def small_regions(device: Device, turns: int) -> None:
    x = np.ones(8)
    for _ in range(turns):
        with offload_args(x, device=device):
            pass


def seconds(work: Callable[[int], None], turns: int, file: Path, contents: Contents | None = None) -> float:
    """Return the shortest of three times; contents: of a recording, None: without one."""
    times = []
    for _ in range(3):
        with record(file, contents=contents) if contents else nullcontext():
            begun = time.perf_counter()
            work(turns)
            times.append(time.perf_counter() - begun)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("-n", type=int, default=4096)
    options = parser.parse_args()
    device = Device(options.device) if options.device else Device.default()
    rows: dict[str, tuple[int, Callable[[int], None]]] = {
        f"a step of the power iteration, n = {options.n}": (100, lambda turns: iterate(device, options.n, turns)),
        "a call of blas.scal, n = 8": (20_000, lambda turns: small_calls(device, turns)),
        "a region with one array": (5_000, lambda turns: small_regions(device, turns)),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r"
        for name, (turns, work) in rows.items():
            work(turns // 10)
            plain = seconds(work, turns, file)
            print(f"{name} on {device}: {plain / turns * 1e6:.2f} us", end="")
            for contents in KINDS:
                with_it = seconds(work, turns, file, contents)
                more = (with_it - plain) / turns
                print(f"; {contents}: {more * 1e6:+.2f} us, {more * turns / plain:+.1%}", end="")
            print(f"; {file.stat().st_size / turns:.1f} bytes each")


if __name__ == "__main__":
    main()
