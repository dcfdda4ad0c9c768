"""Measure products and rank updates in one region, from and to NumPy, in panels and by one call of the library.

python benchmarks/panels.py [--device cuda:0] [--rounds N] [--sizes 4096 8192] [--widths 512 1024 2048]

Matrices are in C order. By the side or the transposition, panels are rows, strips of columns, or terms of sums. Without
--widths, panels are as wide as the package makes them. A time is the median of the rounds after a first one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from offload_args import Device, In, _core, blas, offload_args

Call = Callable[..., object]


def calls(is_complex: bool) -> dict[str, tuple[int, Call]]:
    """Return for each name the count of matrices that are read, and the call, which writes one more."""
    functions: dict[str, tuple[int, Call]] = {}
    functions["gemm"] = 2, lambda dA, dB, dC, **how: blas.gemm(1.0, dA, dB, 0.0, dC, **how)
    for side in ("L", "R"):
        chosen: Any = {"side": side}
        functions[f"symm {side}"] = (
            2,
            partial(lambda dA, dB, dC, **how: blas.symm(1.0, dA, dB, 0.0, dC, **how), **chosen),
        )
    for trans in ("N", "T"):
        chosen = {"trans": trans}
        functions[f"syrk {trans}"] = 1, partial(lambda dA, dC, **how: blas.syrk(1.0, dA, 0.0, dC, **how), **chosen)
        functions[f"syr2k {trans}"] = (
            2,
            partial(lambda dA, dB, dC, **how: blas.syr2k(1.0, dA, dB, 0.0, dC, **how), **chosen),
        )
    if is_complex:
        functions["hemm L"] = 2, lambda dA, dB, dC, **how: blas.hemm(1.0, dA, dB, 0.0, dC, **how)
        functions["herk N"] = 1, lambda dA, dC, **how: blas.herk(1.0, dA, 0.0, dC, **how)
    return functions


def compare(device: Device, dtype: str, n: int, rounds: int, widths: list[int]) -> None:
    """Print the times of all functions, and the largest difference from one call."""
    random = np.random.default_rng(0)
    A, B = (random.random((n, n)).astype(dtype) for _ in range(2))
    C = np.zeros((n, n), dtype)
    for name, (count, call) in calls(A.dtype.kind == "c").items():
        lent = [*map(In, (A, B)[:count]), C]
        times, expected, difference = [], C, 0.0
        for width in (None, *widths):
            _core.panels_configure(width or 0)
            taken = []
            for _ in range(rounds + 1):
                begun = perf_counter()
                with offload_args(*lent, device=device) as pointers:
                    call(*pointers, panels=width is not None)
                taken.append(perf_counter() - begun)
            times.append(f"{median(taken[1:]) * 1e3:.2f}")
            if width is None:
                expected = C.copy()
            difference = max(difference, float(np.abs(C - expected).max() / np.abs(expected).max()))
        _core.panels_configure(0)
        print(f"| {name} | {dtype} | {n} | {' | '.join(times)} | {difference:.0e} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4096, 8192])
    parser.add_argument("--widths", type=int, nargs="*", default=[0])
    options = parser.parse_args()
    device = Device(options.device or Device.default().name)
    widths = " | ".join(str(width or "in panels") for width in options.widths)
    print(f"{device}, milliseconds\n| function | dtype | n | one call | {widths} | difference |", flush=True)
    for n in options.sizes:
        for dtype in ("float32", "float64", "complex64"):
            compare(device, dtype, n, options.rounds, options.widths)


if __name__ == "__main__":
    main()
