"""Compare `linalg`, and `lapack.gesv` in place, with CuPy.

    python benchmarks/linalg.py [--device cuda:0] [--n N] [--only REGEX]

Each time is from and to NumPy; CuPy's has its transfers in it. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from timing import cupy_for

from offload_args import Device, Scratch, lapack, linalg, offload_args

ROUNDS = 7


class Work(NamedTuple):
    """A function, and the functions of `linalg` and of CuPy with the same results."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[Any], Any]  #: of CuPy
    error: Callable[[Any], float]  #: the relative residual of the result
    limit: float  #: the residual's


def works(n: int, device: Device) -> Iterator[Work]:
    random = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        limit = 2e4 * float(np.finfo(dtype).eps)
        letters = np.dtype(dtype).name
        A = random.standard_normal((n, n)).astype(dtype)
        b = random.standard_normal(n).astype(dtype)
        S = (A[:, : n // 4] @ A[:, : n // 4].T + n * np.eye(n)).astype(dtype)
        H = ((A + A.T) / 2).astype(dtype)
        M = A[: n // 2, : n // 2].copy()

        def residual(x: Any, A: Any = A, b: Any = b) -> float:
            return float(np.linalg.norm(A @ x - b) / np.linalg.norm(b))

        def in_place(A: Any = A, b: Any = b) -> Any:
            factors, x = A.copy(), b.copy()
            with offload_args(factors, Scratch(b.shape, np.int32), x, device=device) as (dA, pivots, dx):
                lapack.gesv(dA, pivots, dx)
            return x

        yield Work(
            f"solve, n = {n}, {letters}",
            lambda A=A, b=b: linalg.solve(A, b, device=device),
            lambda cupy, A=A, b=b: cupy.linalg.solve(cupy.asarray(A), cupy.asarray(b)).get(),
            residual,
            limit * n,
        )
        yield Work(
            f"lapack.gesv in place, with a copy of A, n = {n}, {letters}",
            in_place,
            lambda cupy, A=A, b=b: cupy.linalg.solve(cupy.asarray(A), cupy.asarray(b)).get(),
            residual,
            limit * n,
        )
        yield Work(
            f"inv, n = {n}, {letters}",
            lambda A=A: linalg.inv(A, device=device),
            lambda cupy, A=A: cupy.linalg.inv(cupy.asarray(A)).get(),
            lambda X, A=A: float(np.linalg.norm(A[:64] @ X - np.eye(64, n))),
            limit * n,
        )
        yield Work(
            f"cholesky, n = {n}, {letters}",
            lambda S=S: linalg.cholesky(S, device=device),
            lambda cupy, S=S: cupy.linalg.cholesky(cupy.asarray(S)).get(),
            lambda L, S=S: float(np.linalg.norm(L[:64] @ L.T - S[:64]) / np.linalg.norm(S[:64])),
            limit,
        )
        yield Work(
            f"eigh, n = {n}, {letters}",
            lambda H=H: linalg.eigh(H, device=device),
            lambda cupy, H=H: [each.get() for each in cupy.linalg.eigh(cupy.asarray(H))],
            lambda wv, H=H: float(np.linalg.norm(H[:64] @ wv[1] - wv[1][:64] * wv[0]) / np.linalg.norm(H[:64])),
            limit,
        )
        yield Work(
            f"svd, n = {n // 2}, {letters}",
            lambda M=M: linalg.svd(M, device=device),
            lambda cupy, M=M: [each.get() for each in cupy.linalg.svd(cupy.asarray(M))],
            lambda usv, M=M: float(np.linalg.norm((usv[0][:64] * usv[1]) @ usv[2] - M[:64]) / np.linalg.norm(M[:64])),
            limit,
        )
        stack = random.standard_normal((1_000, 32, 32)).astype(dtype)
        sides = random.standard_normal((1_000, 32, 1)).astype(dtype)
        yield Work(
            f"solve, 1,000 of 32 x 32, {letters}",
            lambda stack=stack, sides=sides: linalg.solve(stack, sides, device=device),
            lambda cupy, stack=stack, sides=sides: cupy.linalg.solve(cupy.asarray(stack), cupy.asarray(sides)).get(),
            lambda x, stack=stack, sides=sides: float(np.median(np.abs(stack @ x - sides))),
            limit,
        )
        spd = stack[:, :16, :16] @ stack[:, :16, :16].transpose(0, 2, 1) + 16 * np.eye(16, dtype=dtype)
        many = np.tile(spd, (10, 1, 1))
        yield Work(
            f"cholesky, 10,000 of 16 x 16, {letters}",
            lambda many=many: linalg.cholesky(many, device=device),
            lambda cupy, many=many: cupy.linalg.cholesky(cupy.asarray(many)).get(),
            lambda L, many=many: float(np.abs(L @ L.transpose(0, 2, 1) - many).max() / np.abs(many).max()),
            limit,
        )


def measure(work: Work, cupy: Any) -> str:
    """Return a row of a table: the medians of both times, in turns, and their ratio.

    NumPy's threads spin for a while after a product, and copies would have to share the cores with them. So each call
    waits until these threads rest.
    """
    runs: list[Callable[[], Any]] = [work.ours]
    if cupy:
        runs.append(lambda: work.theirs(cupy))
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(ROUNDS + 1):
        for run, taken in zip(runs, times, strict=True):
            time.sleep(0.2)
            start = time.perf_counter()
            result = run()
            taken.append(time.perf_counter() - start)
            if turn == 0:
                error = work.error(result)
                assert error <= work.limit, f"{work.name}: the residual is {error}"
    ours, *theirs = (1e3 * statistics.median(taken[1:]) for taken in times)
    beside = f"{theirs[0]:.2f} | {ours / theirs[0]:.3f}" if theirs else "|"
    return f"| {work.name} | {ours:.2f} | {beside} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--only", default="", help="a regular expression of the works' names")
    options = parser.parse_args()
    device = Device(options.device)
    cupy = cupy_for(device)
    print("| from and to NumPy | ms | CuPy | ratio |\n|---|---:|---:|---:|")
    for work in works(options.n, device):
        if re.search(options.only, work.name):
            print(measure(work, cupy), flush=True)


if __name__ == "__main__":
    main()
