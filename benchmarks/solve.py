"""Compare lapack.gesv from and to NumPy with CuPy's solve and its transfers: python benchmarks/solve.py [--n N].

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from offload_args import In, Scratch, lapack, offload_args

ROUNDS = 9


def solve(A: Any, b: Any) -> None:
    """Set b to the solution; A comes down as its factors."""
    with offload_args(A, Scratch(b.shape, np.int32), b, device="cuda:0") as (dA, dp, db):
        lapack.gesv(dA, dp, db)


def solve_and_keep(A: Any, b: Any) -> None:
    """Set b to the solution; the device factors a copy of A, and only the solution comes down."""
    with offload_args(In(A), Scratch(A.shape, A.dtype), Scratch(b.shape, np.int32), b, device="cuda:0") as pointers:
        dA, copy, dp, db = pointers
        copy.copy_from(dA)
        lapack.gesv(copy, dp, db)


def solve_by_cupy(A: Any, b: Any) -> None:
    b[:] = cupy.linalg.solve(cupy.asarray(A), cupy.asarray(b)).get()


def milliseconds(function: Callable[[Any, Any], None], A: Any, b: Any) -> float:
    """Return the median time of a call; its arrays are made before, and its solution is checked after.

    NumPy's threads spin for a while after a product, and copies would have to share the cores with them. So the next
    call waits until these threads rest.
    """
    times = []
    for _ in range(ROUNDS):
        arguments, x = A.copy(), b.copy()
        time.sleep(0.3)
        start = time.perf_counter()
        function(arguments, x)
        times.append(time.perf_counter() - start)
        assert np.linalg.norm(A @ x - b) <= 1e-2 * np.linalg.norm(b)
    return 1e3 * statistics.median(times[2:])


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--n", type=int, default=4096)
n = parser.parse_args().n
random = np.random.default_rng(0)
for dtype in (np.float64, np.float32):
    A, b = random.standard_normal((n, n)).astype(dtype), random.standard_normal(n).astype(dtype)
    theirs, ours, kept = (milliseconds(solver, A, b) for solver in (solve_by_cupy, solve, solve_and_keep))
    print(f"{np.dtype(dtype)}, n = {n}: CuPy {theirs:.1f} ms, gesv {ours:.1f} ms ({ours / theirs:.2f}), ", end="")
    print(f"gesv of a copy {kept:.1f} ms ({kept / theirs:.2f})")
