"""Measure the cost of a recording: a power iteration of one matrix, small calls and regions, with and without it.

    python benchmarks/recording.py [--device cuda:0] [-n 4096]

Each row has the time without a recording, and the additional time with each kind of contents. The first region of a
recording is not counted, because it writes the facts of the device and of the library.
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
ROUNDS = 7


def iterate(device: Device, n: int) -> Callable[[int], None]:
    """Return a function that makes steps of the power iteration in one region."""
    A, x, y = np.ones((n, n), np.float32), np.ones(n, np.float32), np.ones(n, np.float32)

    def work(turns: int) -> None:
        with offload_args(A, x, y, device=device) as (dA, dx, dy):
            for _ in range(turns):
                blas.gemv(1.0, dA, dx, 0.0, dy)
                blas.scal(1.0 / float(blas.nrm2(dy)), dy)
                blas.swap(dx, dy)

    return work


def small_calls(device: Device) -> Callable[[int], None]:
    x = np.ones(8)

    def work(turns: int) -> None:
        with offload_args(x, device=device) as (dx,):
            for _ in range(turns):
                blas.scal(1.0, dx)

    return work


def small_regions(device: Device) -> Callable[[int], None]:
    x = np.ones(8)

    def work(turns: int) -> None:
        for _ in range(turns):
            with offload_args(x, device=device):
                pass

    return work


def seconds(work: Callable[[int], None], turns: int, file: Path) -> dict[str, float]:
    """Return the shortest of several times without a recording, and with a recording of each kind; these take turns."""
    times: dict[str, list[float]] = {kind: [] for kind in ("plain", *KINDS)}
    for _ in range(ROUNDS):
        for kind in times:
            with nullcontext() if kind == "plain" else record(file, contents=kind):
                work(1)  # the first region of a recording writes the facts of the device and of the library
                begun = time.perf_counter()
                work(turns)
                times[kind].append(time.perf_counter() - begun)
    return {kind: min(several) for kind, several in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("-n", type=int, default=4096)
    options = parser.parse_args()
    device = Device(options.device) if options.device else Device.default()
    rows: dict[str, tuple[int, Callable[[int], None]]] = {
        f"a step of the power iteration, n = {options.n}": (100, iterate(device, options.n)),
        "a call of blas.scal, n = 8": (20_000, small_calls(device)),
        "a region with one array": (5_000, small_regions(device)),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r"
        for name, (turns, work) in rows.items():
            work(turns // 10)
            times = seconds(work, turns, file)
            plain = times["plain"]
            print(f"{name} on {device}: {plain / turns * 1e6:.2f} us", end="")
            for contents in KINDS:
                more = times[contents] - plain
                print(f"; {contents}: {more / turns * 1e6:+.2f} us, {more / plain:+.1%}", end="")
            print(f"; {file.stat().st_size / turns:.1f} bytes each")


if __name__ == "__main__":
    main()
