"""Measure functions of level 3 and of LAPACK from and to NumPy: by tiles, and in one region.

python benchmarks/out_of_core.py [--device cuda:0] [--rounds N] [--size N] [--system N]

--size: the order of the matrices of syrk, trsm and symm. --system: the order of the matrices of posv and gesv. Set
OFFLOAD_ARGS_MEMORY_LIMIT for arrays that are larger than the memory: they fit into no region then, and only tiles are
measured. Times are medians of the rounds after a first one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from offload_args import Device, In, InOut, Out, Scratch, blas, lapack, offload_args
from offload_args.errors import DeviceMemoryError

Work = Callable[[], Any]


def timed(work: Work, restore: Work, rounds: int) -> str:
    """Return the median time of the work in ms."""
    times = []
    for _ in range(rounds + 1):
        restore()
        begun = time.perf_counter()
        try:
            work()
        except DeviceMemoryError:
            return "too large"
        times.append(time.perf_counter() - begun)
    return f"{1e3 * sorted(times[1:])[rounds // 2]:.0f} ms"


def compare(name: str, by_tiles: Work, in_region: Work, restore: Work, result: Any, rounds: int) -> None:
    """Print the times of one function, and how far the two results differ."""
    region = timed(in_region, restore, rounds)
    expected = None if region == "too large" else result.copy()
    tiles = timed(by_tiles, restore, rounds)
    difference = "" if expected is None else f"{np.abs(result - expected).max() / np.abs(expected).max():.0e}"
    print(f"| {name} | {tiles} | {region} | {difference} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--system", type=int, default=32768)
    options = parser.parse_args()
    device = Device(options.device or Device.default().name)
    limit = os.environ.get("OFFLOAD_ARGS_MEMORY_LIMIT", "none")
    print(f"{device}, memory limit: {limit}\n| function | by tiles | in one region | difference |", flush=True)
    random = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        n = options.size
        A, B, C = (random.random((n, n), np.dtype(dtype)) for _ in range(3))
        A[np.diag_indices(n)] = n
        original = B.copy()

        def syrk_in_region(A: Any = A, C: Any = C) -> None:
            with offload_args(In(A), C, device=device) as (dA, dC):
                blas.syrk(1.0, dA, 0.0, dC)

        def symm_in_region(A: Any = A, B: Any = B, C: Any = C) -> None:
            with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
                blas.symm(1.0, dA, dB, 0.0, dC)

        def trsm_in_region(A: Any = A, B: Any = B) -> None:
            with offload_args(In(A), InOut(B), device=device) as (dA, dB):
                blas.trsm(1.0, dA, dB)

        def restore_b(B: Any = B, original: Any = original) -> None:
            B[...] = original

        def syrk(A: Any = A, C: Any = C) -> None:
            blas.syrk(1.0, A, 0.0, C, devices=[device])

        def symm(A: Any = A, B: Any = B, C: Any = C) -> None:
            blas.symm(1.0, A, B, 0.0, C, devices=[device])

        def trsm(A: Any = A, B: Any = B) -> None:
            blas.trsm(1.0, A, B, devices=[device])

        compare(f"syrk {dtype} {n}", syrk, syrk_in_region, lambda: None, C, options.rounds)
        compare(f"symm {dtype} {n}", symm, symm_in_region, lambda: None, C, options.rounds)
        compare(f"trsm {dtype} {n}", trsm, trsm_in_region, restore_b, B, options.rounds)
    n = options.system
    S, b, ipiv = random.random((n, n)), random.random(n), np.empty(n, np.int32)
    S[np.diag_indices(n)] = n
    before, right = S.copy(), b.copy()

    def posv_in_region() -> None:
        with offload_args(S, b, device=device) as (dS, db):
            lapack.posv(dS, db)

    def gesv_in_region() -> None:
        with offload_args(S, Scratch(n, np.int32), b, device=device) as (dS, dp, db):
            lapack.gesv(dS, dp, db)

    def restore() -> None:
        S[...], b[...] = before, right

    def posv() -> None:
        lapack.posv(S, b, devices=[device])

    def gesv() -> None:
        lapack.gesv(S, ipiv, b, devices=[device])

    for name, by_tiles, in_region in (("posv", posv, posv_in_region), ("gesv", gesv, gesv_in_region)):
        compare(f"{name} float64 {n}", by_tiles, in_region, restore, b, options.rounds)
        rows = random.integers(0, n, 3)
        matrix = before[rows]
        if name == "posv":  # one triangle of the matrix was read
            matrix = np.array([np.concatenate([before[:i, i], before[i, i:]]) for i in rows])
        print(f"residual {np.abs(matrix @ b - right[rows]).max():.1e}", flush=True)


if __name__ == "__main__":
    main()
