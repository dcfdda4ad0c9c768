"""Measure products of arrays from and to NumPy, by parts, in one region, and by CuPy.

python benchmarks/products.py [--device cuda:0] [--rounds N] [--sizes 4096 8192 16384] [--larger N]

Each product is made by blas.gemm with devices (by parts, which are copied while other parts are computed), by the same
function in one region, and by cupy.matmul with the copies up and down. With --larger N, one float32 product of this
size is computed by parts. It is compared with the time that its 2 N^3 operations take at the speed of the largest
product on the device. Set OFFLOAD_ARGS_MEMORY_LIMIT for operands that are larger than the memory.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from timing import cupy_for, median

from offload_args import Device, In, Out, blas, offload_args


def arrays(n: int, dtype: str) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    A, B = (random.random((n, n), np.dtype(dtype)) for _ in range(2))
    return A, B, np.zeros((n, n), dtype)


def compare(device: Device, cupy: Any, dtype: str, n: int, rounds: int) -> float:
    """Print the times of one size, and return the seconds of the product on the device."""
    A, B, C = arrays(n, dtype)

    def in_one_region() -> None:
        with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
            blas.gemm(1.0, dA, dB, 0.0, dC)

    def by_cupy() -> Any:
        return cupy.asnumpy(cupy.matmul(cupy.asarray(A), cupy.asarray(B)))

    def nothing() -> None:
        pass

    region = median(in_one_region, nothing, rounds)
    first = C.copy()
    parts = median(lambda: blas.gemm(1.0, A, B, 0.0, C, devices=[device]), nothing, rounds)
    difference = np.abs(C - first).max() / np.abs(first).max()
    other = f"{median(by_cupy, nothing, max(rounds // 3, 1)):.2f} ms" if cupy else ""
    with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
        alone = median(lambda: blas.gemm(1.0, dA, dB, 0.0, dC), device.synchronize, rounds)
    print(
        f"| {dtype} | {n} | {parts:.2f} ms | {region:.2f} ms | {other} | {alone:.2f} ms | {difference:.1e} |",
        flush=True,
    )
    return alone / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4096, 8192, 16384])
    parser.add_argument("--larger", type=int, default=0)
    options = parser.parse_args()
    device = Device(options.device or Device.default().name)
    cupy = cupy_for(device)
    print(f"{device}\n| dtype | n | by parts | one region | CuPy | on the device alone | difference |", flush=True)
    speed = 0.0
    for n in options.sizes:
        for dtype in ("float32", "float64"):
            seconds = compare(device, cupy, dtype, n, options.rounds)
            if dtype == "float32":
                speed = max(speed, 2 * n**3 / seconds)
    if options.larger:
        n = options.larger
        A, B, C = arrays(n, "float32")
        begun = time.perf_counter()
        blas.gemm(1.0, A, B, 0.0, C, devices=[device])
        taken = time.perf_counter() - begun
        rows = np.random.default_rng(1).integers(0, n, 3)
        expected = A[rows].astype(np.float64) @ B.astype(np.float64)
        difference = np.abs(C[rows] - expected).max() / np.abs(expected).max()
        ratio = f"{taken / (2 * n**3 / speed):.2f} of its operations' time" if speed else ""
        print(f"float32, n = {n}, {3 * A.nbytes / 2**30:.1f} GiB: {taken:.2f} s, {ratio}, difference {difference:.1e}")


if __name__ == "__main__":
    main()
