"""Compare products on the host device with NumPy's: python benchmarks/host_blas.py. See README.md in this folder."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

from offload_args import In, blas, libraries, offload_args

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
RATIO, MORE = 1.2, 1.0  # the package may take RATIO times NumPy's time, and MORE microseconds more
RUN = 50e-6  # the least seconds of a run, which has as many calls as it needs
PAUSE = 0.3  # seconds, after which no BLAS thread spins


class Row(NamedTuple):
    routine: str
    dtype: str
    n: int
    alone: float  # microseconds: NumPy in turn with NumPy
    beside: float  # NumPy in turn with the package
    ours: float  # the package in turn with NumPy

    @property
    def met(self) -> bool:
        return self.ours <= RATIO * self.alone + MORE


def seconds(function: Callable[[], object], count: int) -> float:
    """Return the seconds of `count` calls."""
    start = perf_counter()
    for _ in range(count):
        function()
    return perf_counter() - start


def in_turn(first: Callable[[], object], other: Callable[[], object], count: int, limit: float) -> list[list[float]]:
    """Return the microseconds per call of both functions, in alternating runs of `count` calls.

    The measurement takes `limit` seconds, or one run of each function.
    """
    sleep(PAUSE)
    first(), other()
    runs: list[list[float]] = [[], []]
    start = perf_counter()
    while not runs[0] or perf_counter() - start < limit:
        for taken, function in zip(runs, (first, other), strict=True):
            taken.append(seconds(function, count) / count * 1e6)
    return runs


def measure(routine: str, dtype: str, n: int, rounds: int, limit: float) -> Row:
    """Return the medians of the best round for a product of order n.

    Raise AssertionError if the result is not NumPy's.
    """
    random = np.random.default_rng(n)
    A = random.random((n, n)).astype(dtype)
    x = random.random((n, n) if routine == "gemm" else n).astype(dtype)
    A2, x2, y, y2, expected = A.copy(), x.copy(), *(np.empty_like(x) for _ in range(3))
    product: Any = getattr(blas, routine)
    alone: list[float] = []
    beside: list[float] = []
    ours: list[float] = []

    def first() -> None:
        np.matmul(A, x, out=expected)

    def second() -> None:
        np.matmul(A2, x2, out=y2)

    with offload_args(In(A), In(x), y, device="host") as (dA, dx, dy):

        def lent() -> None:
            product(1.0, dA, dx, 0.0, dy)

        first(), second(), lent()
        sleep(PAUSE)
        count = max(1, round(RUN / min(seconds(first, 1) for _ in range(5))))
        for _ in range(rounds):
            alone.append(median(in_turn(first, second, count, limit)[1]))
            for gathered, runs in zip((beside, ours), in_turn(first, lent, count, limit), strict=True):
                gathered.append(median(runs))
    np.testing.assert_allclose(y, expected, rtol=1e-3)
    return Row(routine, dtype, n, min(alone), min(beside), min(ours))


def main() -> None:
    """Print the table, and the number of rows that meet the goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of NumPy alone and both in turn")
    parser.add_argument("--limit", type=float, default=0.2, help="seconds for each half of a round")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON, too")
    options = parser.parse_args()
    actual = libraries.load("cblas")
    print(f"{len(os.sched_getaffinity(0))} CPUs, {platform.machine()}, Python {platform.python_version()}, ", end="")
    print(f"NumPy {np.__version__}\n\ncblas: {actual.path}, {actual.version}, found by {actual.found}\n")
    print("| routine | dtype | n | NumPy alone, µs | NumPy beside ours | ours beside NumPy | ours / alone | goal |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for routine in ("gemv", "gemm"):
        for dtype in ("float64", "float32"):
            for n in options.sizes:
                row = measure(routine, dtype, n, options.rounds, options.limit)
                rows.append(row)
                figures = f"{row.alone:.2f} | {row.beside:.2f} | {row.ours:.2f} | {row.ours / row.alone:.2f}"
                verdict = "met" if row.met else "missed"
                print(f"| {routine} | {dtype} | {n} | {figures} | {verdict} |", flush=True)
    met = sum(row.met for row in rows)
    print(f"\nAt most {RATIO} of NumPy alone and {MORE} µs: {met} of {len(rows)} rows.")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"library": actual._asdict(), "rows": [row._asdict() for row in rows]}, file, indent=1)


if __name__ == "__main__":
    main()
