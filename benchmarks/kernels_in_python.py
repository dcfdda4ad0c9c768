"""Measure kernels in Python beside numba-cuda: to compile, to launch, to run. README.md beside it says more.

    python benchmarks/kernels_in_python.py [--device cuda:0] [--size N] [--rounds N]

All results are compared with NumPy's. On a device that is no NVIDIA GPU this package is alone in the table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

os.environ["OFFLOAD_ARGS_CACHE"] = "off"

import numpy as np

from offload_args import Device, In, InOut, Out, kernel, offload_args
from offload_args.kernels import Linear1D, Linear2D

# mypy: disable-error-code="misc, valid-type, no-untyped-def"

OWN, NUMBA = "offload_args", "numba-cuda" if find_spec("numba_cuda") else "numba.cuda"
LAUNCHES = 1000
BLOCK = 256
SIDE, STEPS = 1024, 200  # of the Mandelbrot set
Ways = dict[str, Callable[[], object]]


@kernel(debug=False)
def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] += a * x[i]


@kernel(debug=False)
def mandelbrot(steps: Out[np.int32].by(Linear2D()), most: np.int32):
    for i, j in steps.mine():
        cx = -2 + np.float32(j) * np.float32(2.5 / SIDE)
        cy = -1.25 + np.float32(i) * np.float32(2.5 / SIDE)
        x, y, n = np.float32(0), np.float32(0), 0
        while n < most and x * x + y * y <= 4:
            x, y, n = x * x - y * y + cx, 2 * x * y + cy, n + 1
        steps[i, j] = n


def expected_steps() -> np.ndarray:
    """Return the Mandelbrot set as NumPy computes it."""
    step = np.float32(2.5 / SIDE)
    numbers = np.arange(SIDE, dtype=np.float32)
    cx, cy = np.broadcast_arrays(np.float32(-2) + numbers * step, (np.float32(-1.25) + numbers * step)[:, None])
    x, y, steps = np.zeros_like(cx), np.zeros_like(cx), np.zeros(cx.shape, np.int32)
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            inside = x * x + y * y <= 4
            steps += inside
            x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, np.float32(2) * x * y + cy, y)
    return steps


def of_numba() -> tuple[Any, Any, Any]:
    """Return numba's module for CUDA, and the two kernels. Raises ImportError."""
    from numba import cuda

    if not cuda.is_available():
        raise ImportError("numba finds no GPU")

    @cuda.jit(fastmath=False)
    def own_axpy(a, x, y):
        i = cuda.grid(1)
        if i < y.size:
            y[i] += a * x[i]

    @cuda.jit(fastmath=False)
    def own_mandelbrot(steps, most):
        j, i = cuda.grid(2)
        if i < steps.shape[0] and j < steps.shape[1]:
            step = np.float32(2.5 / SIDE)
            cx = np.float32(-2) + np.float32(j) * step
            cy = np.float32(-1.25) + np.float32(i) * step
            x, y, n = np.float32(0), np.float32(0), 0
            while n < most and x * x + y * y <= np.float32(4):
                x, y, n = x * x - y * y + cx, np.float32(2) * x * y + cy, n + 1
            steps[i, j] = n

    return cuda, own_axpy, own_mandelbrot


def compiled(way: str, device: str) -> None:
    """Print the seconds that a first launch takes, after another kernel's."""
    x, y = np.ones(BLOCK, np.float32), np.ones(BLOCK, np.float32)
    steps = np.zeros((32, 32), np.int32)
    if way == OWN:
        with offload_args(In(x), y, steps, device=device) as (dx, dy, dsteps):
            mandelbrot(dsteps, 1)  # imports numba, and makes its contexts
            Device(device).synchronize()
            begun = time.perf_counter()
            axpy(2.0, dx, dy)
            Device(device).synchronize()
            print(time.perf_counter() - begun)
        return
    cuda, own_axpy, own_mandelbrot = of_numba()
    dx, dy, dsteps = map(cuda.to_device, (x, y, steps))
    own_mandelbrot[(1, 1), (32, 8)](dsteps, 1)
    cuda.synchronize()
    begun = time.perf_counter()
    own_axpy[1, BLOCK](np.float32(2), dx, dy)
    cuda.synchronize()
    print(time.perf_counter() - begun)


def best(run: Callable[[], object], wait: Callable[[], object], most: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of a launch alone, and of one with all that it does; the best of the rounds."""
    wait()
    begun = time.perf_counter()
    run()
    wait()
    times = max(1, min(most, round(0.02 / (time.perf_counter() - begun))))
    launch, whole = [], []
    for _ in range(rounds + 1):
        wait()
        begun = time.perf_counter()
        for _ in range(times):
            run()
        launch.append((time.perf_counter() - begun) / times)
        wait()
        whole.append((time.perf_counter() - begun) / times)
    return min(launch[1:]), min(whole[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default=str(Device.default()))
    parser.add_argument("--size", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", choices=(OWN, NUMBA), help="print the seconds of a first launch, and no more")
    options = parser.parse_args()
    if options.compile:
        compiled(options.compile, options.device)
        return
    device, n = Device(options.device), options.size
    x, y, small = np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.ones(BLOCK, np.float32)
    steps, expected = np.zeros((SIDE, SIDE), np.int32), expected_steps()
    tiles = (SIDE // 32, SIDE // 8)
    print(f"{device.model}; axpy of {n} float32, Mandelbrot set of {SIDE} x {SIDE} in {STEPS} steps\n")
    print("| | compile, s | launch, µs | axpy, µs | Mandelbrot set, µs |\n|---|---:|---:|---:|---:|")

    def row(way: str, wait: Callable[[], object], ways: Ways, results: Callable[[], tuple[Any, Any]]) -> None:
        ways["axpy"]()
        ways["set"]()
        got_y, got_steps = results()
        np.testing.assert_array_equal(got_y, 1 + 2 * x)
        np.testing.assert_array_equal(got_steps, expected)
        child = [sys.executable, __file__, "--device", options.device, "--compile", way]
        seconds = float(subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()[-1])
        launch, _ = best(ways["small"], wait, LAUNCHES, options.rounds)
        (_, long), (_, pictures) = (best(ways[name], wait, 20, options.rounds) for name in ("axpy", "set"))
        print(f"| {way} | {seconds:.2f} | {launch * 1e6:.2f} | {long * 1e6:.1f} | {pictures * 1e6:.1f} |", flush=True)

    with offload_args(In(x), y, small, InOut(steps), device=device) as (dx, dy, dsmall, dsteps):
        on_small, on_all, on_set = axpy[1, BLOCK], axpy[-(-n // BLOCK), BLOCK], mandelbrot[tiles, (32, 8)]
        ways: Ways = {
            "small": lambda: on_small(2.0, dsmall_in, dsmall),
            "axpy": lambda: on_all(2.0, dx, dy),
            "set": lambda: on_set(dsteps, STEPS),
        }
        with offload_args(In(np.ones(BLOCK, np.float32)), device=device) as (dsmall_in,):
            row(OWN, device.synchronize, ways, lambda: (dy.to_host(), dsteps.to_host()))
    try:
        if not options.device.startswith("cuda"):
            raise ImportError("the device is no NVIDIA GPU")
        cuda, own_axpy, own_mandelbrot = of_numba()
    except ImportError as error:
        print(f"\n{NUMBA} is left out: {error}")
        return
    two = np.float32(2)
    ex, ey, esmall, other = map(cuda.to_device, (x, np.ones(n, np.float32), small, np.ones(BLOCK, np.float32)))
    esteps = cuda.to_device(np.zeros((SIDE, SIDE), np.int32))
    of_all, of_small, of_set = own_axpy[-(-n // BLOCK), BLOCK], own_axpy[1, BLOCK], own_mandelbrot[tiles, (32, 8)]
    row(NUMBA, cuda.synchronize, {
        "small": lambda: of_small(two, other, esmall),
        "axpy": lambda: of_all(two, ex, ey),
        "set": lambda: of_set(esteps, STEPS),
    }, lambda: (ey.copy_to_host(), esteps.copy_to_host()))  # fmt: skip


if __name__ == "__main__":
    main()
