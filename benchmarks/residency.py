"""Measure the gains and costs of residency: python benchmarks/residency.py [--device NAME] [--size N] [--steps N].

Each line is one pattern of use: the same work with OFFLOAD_ARGS_RESIDENCY=off, =explicit (with resident=True) and
=auto. The columns are the milliseconds per step, including the host's own writes; the MiB sent per step; and the armed
pages written per step, at a cost of about 1.3 microseconds each. The program `hoisted` has a region around the loop.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import numpy as np

from offload_args import Device, In, blas, offload_args, testing

MODES = ("off", "explicit", "auto")


def measure(
    n: int, steps: int, device: str, mode: str, change: Callable[[np.ndarray, int], None], hoisted: bool
) -> str:
    """Run steps of y = A x with a region in the loop; `change` writes to A before each step.

    Return a cell of the table.
    """
    with testing.residency("off" if mode == "off" else "auto" if mode == "auto" else "explicit"):
        A, x, y = (np.ones(shape, np.float32) for shape in ((n, n), n, n))
        d = Device(device)
        before = d.residency
        options = {"device": device, "resident": mode == "explicit"}

        def step(i: int) -> None:
            change(A, i)
            with offload_args(In(A), In(x), y, **options) as (dA, dx, dy):
                blas.gemv(1.0, dA, dx, 0.0, dy)

        def loop() -> float:
            step(0)
            start = time.perf_counter()
            for i in range(1, steps + 1):
                step(i)
            return (time.perf_counter() - start) / steps * 1e3

        with testing.counting(d) as moved, offload_args(*([In(A)] if hoisted else []), device=device):
            took = loop()
        np.testing.assert_allclose(y, A @ x, rtol=1e-3)
        written = d.residency.pages_written - before.pages_written
        sent = moved.bytes_up / 2**20
    return f"{took:.3f}, {sent / steps:.2f}, {written / steps:.1f}"


def never(A: np.ndarray, i: int) -> None:
    pass


def one_row(A: np.ndarray, i: int) -> None:
    A[i % len(A)] = 1


def every(k: int) -> Callable[[np.ndarray, int], None]:
    def change(A: np.ndarray, i: int) -> None:
        if i % k == 0:
            A.fill(1)

    return change


PATTERNS: tuple[tuple[str, Callable[[np.ndarray, int], None]], ...] = (
    ("never written", never),
    ("one row a step", one_row),
    ("rewritten each step", every(1)),
    ("rewritten every 4th", every(4)),
    ("rewritten every 6th", every(6)),
    ("rewritten every 20th", every(20)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=str(Device.default()))
    parser.add_argument("--size", type=int, default=2048, help="of the square float32 matrix")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    d = Device(options.device)
    print(f"{d} ({d.model}), Linux {platform.release().partition('-')[0]}, tracking {d.residency.tracking}")
    print(f"y = A x, n = {options.size} ({options.size**2 * 4 >> 20} MiB), {options.steps} steps: ms, MiB, faults\n")
    print("| A is | " + " | ".join(MODES) + " | hoisted |\n|---|" + "---|" * (len(MODES) + 1))
    for name, change in PATTERNS:
        cells = [measure(options.size, options.steps, options.device, mode, change, False) for mode in MODES]
        cells.append(
            measure(options.size, options.steps, options.device, "off", never, True) if change is never else ""
        )
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
