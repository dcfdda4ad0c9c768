"""Compare kernels in Python with kernels of other packages: compilation, launch and run. README.md has details.

    python benchmarks/kernels_in_python.py [--device cuda:0] [--size N] [--rounds N]

The other packages are numba-cuda (or numba's own module), numba-cuda-mlir and Warp, if they are installed and find the
GPU. Warp is also compared with `host`, on the CPU. All results are compared with NumPy's. A few pixels of the other
packages' Mandelbrot sets may differ; their number is printed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

os.environ["OFFLOAD_ARGS_CACHE"] = "off"

import numpy as np

from offload_args import Device, In, InOut, Out, kernel, offload_args
from offload_args.kernels import Linear1D, Linear2D

# mypy: disable-error-code="misc, valid-type, no-untyped-def"

OWN, FUSED = "offload_args", "offload_args, fma=True"
NUMBA = "numba-cuda" if find_spec("numba_cuda") else "numba.cuda"
MLIR, WARP = "numba-cuda-mlir", "Warp"
OTHERS = (NUMBA, MLIR, WARP)
LAUNCHES = 1000
BLOCK = 256
SIDE, STEPS = 1024, 200  # the pixels along a side of the Mandelbrot set, and its steps
Ways = dict[str, Callable[[], object]]


def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] += a * x[i]


def mandelbrot(steps: Out[np.int32].by(Linear2D()), most: np.int32):
    for i, j in steps.mine():
        cx = -2 + np.float32(j) * np.float32(2.5 / SIDE)
        cy = -1.25 + np.float32(i) * np.float32(2.5 / SIDE)
        x, y, n = np.float32(0), np.float32(0), 0
        while n < most and x * x + y * y <= 4:
            x, y, n = x * x - y * y + cx, 2 * x * y + cy, n + 1
        steps[i, j] = n


KERNELS = {way: [kernel(each, debug=False, fma=way == FUSED) for each in (axpy, mandelbrot)] for way in (OWN, FUSED)}


def expected_steps() -> np.ndarray:
    """Return the Mandelbrot set, computed by NumPy."""
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


class Other(NamedTuple):
    """Another package: the way to lend an array, to read it, to wait, and to make launchers of the two kernels."""

    lend: Callable[[Any], Any]
    read: Callable[[Any], Any]
    wait: Callable[[], object]
    axpy: Callable[[int], Callable[..., object]]  # makes a launcher for a number of elements
    mandelbrot: Callable[[int], Callable[..., object]]  # makes a launcher for a number of pixels along a side


def of_numba(package: str) -> Other:
    """Return the kernels of numba for CUDA, or of a package like it. Raises ImportError."""
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 reads it; NumPy 2.5 does not have it
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    cuda = importlib.import_module(package)
    if not cuda.is_available():
        raise ImportError("it finds no GPU")

    @cuda.jit(fastmath=False)
    def other_axpy(a, x, y):
        i = cuda.grid(1)
        if i < y.size:
            y[i] += a * x[i]

    @cuda.jit(fastmath=False)
    def other_mandelbrot(steps, most):
        j, i = cuda.grid(2)
        if i < steps.shape[0] and j < steps.shape[1]:
            step = np.float32(2.5 / SIDE)
            cx = np.float32(-2) + np.float32(j) * step
            cy = np.float32(-1.25) + np.float32(i) * step
            x, y, n = np.float32(0), np.float32(0), 0
            while n < most and x * x + y * y <= np.float32(4):
                x, y, n = x * x - y * y + cx, np.float32(2) * x * y + cy, n + 1
            steps[i, j] = n

    return Other(
        cuda.to_device, lambda array: array.copy_to_host(), cuda.synchronize,
        lambda n: other_axpy[-(-n // BLOCK), BLOCK], lambda side: other_mandelbrot[(side // 32, side // 8), (32, 8)],
    )  # fmt: skip


def of_warp(device: str) -> Other:
    """Return the kernels of Warp. Raises ImportError."""
    wp: Any = importlib.import_module("warp")
    wp.config.quiet, wp.config.kernel_cache_dir = True, tempfile.mkdtemp()
    on = device if device.startswith("cuda") else "cpu"
    if on != "cpu" and not wp.is_cuda_available():
        raise ImportError("it finds no GPU")
    numbers, step = wp.array(dtype=wp.float32), wp.float32(2.5 / SIDE)
    options = {"module": "unique", "enable_backward": False, "module_options": {"fuse_fp": False}}

    def other_axpy(a, x, y):
        i = wp.tid()
        y[i] = y[i] + a * x[i]

    def other_mandelbrot(steps, most):
        i, j = wp.tid()
        cx = wp.float32(-2.0) + wp.float32(j) * step
        cy = wp.float32(-1.25) + wp.float32(i) * step
        x = wp.float32(0.0)
        y = wp.float32(0.0)
        n = wp.int32(0)
        while n < most and x * x + y * y <= wp.float32(4.0):
            before = x
            x = x * x - y * y + cx
            y = wp.float32(2.0) * before * y + cy
            n += 1
        steps[i, j] = n

    other_axpy.__annotations__ = {"a": wp.float32, "x": numbers, "y": numbers}
    other_mandelbrot.__annotations__ = {"steps": wp.array2d(dtype=wp.int32), "most": wp.int32}
    first, second = (wp.kernel(function, **options) for function in (other_axpy, other_mandelbrot))

    def launcher(function: Any, size: Any) -> Callable[..., object]:
        return lambda *arguments: wp.launch(function, size, inputs=arguments, device=on, block_dim=BLOCK)

    return Other(
        lambda array: wp.array(array, device=on), lambda array: array.numpy(), lambda: wp.synchronize_device(on),
        lambda n: launcher(first, n), lambda side: launcher(second, (side, side)),
    )  # fmt: skip


def other_of(way: str, device: str) -> Other:
    if way == WARP:
        return of_warp(device)
    if not device.startswith("cuda"):
        raise ImportError("it is for NVIDIA GPUs")
    return of_numba("numba.cuda" if way == NUMBA else "numba_cuda_mlir.cuda")


def compiled(way: str, device: str) -> None:
    """Print the seconds of a kernel's first launch, after the first launch of another kernel."""
    x, y = np.ones(BLOCK, np.float32), np.ones(BLOCK, np.float32)
    steps = np.zeros((32, 32), np.int32)
    if way in KERNELS:
        axpy, mandelbrot = KERNELS[way]
        with offload_args(In(x), y, steps, device=device) as (dx, dy, dsteps):
            mandelbrot(dsteps, 1)  # this launch imports numba, and makes its contexts
            Device(device).synchronize()
            begun = time.perf_counter()
            axpy(2.0, dx, dy)
            Device(device).synchronize()
            print(time.perf_counter() - begun)
        return
    other = other_of(way, device)
    ex, ey, esteps = map(other.lend, (x, y, steps))
    other.mandelbrot(32)(esteps, 1)
    other.wait()
    begun = time.perf_counter()
    other.axpy(BLOCK)(np.float32(2), ex, ey)
    other.wait()
    print(time.perf_counter() - begun)


def best(run: Callable[[], object], wait: Callable[[], object], most: int, rounds: int) -> tuple[float, float]:
    """Return the best seconds for issuing a launch, and for a launch with its work."""
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
    parser.add_argument(
        "--compile", choices=(*KERNELS, *OTHERS), help="print the seconds of a first launch, and no more"
    )
    options = parser.parse_args()
    if options.compile:
        compiled(options.compile, options.device)
        return
    device, n = Device(options.device), options.size
    x, y, small = np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.ones(BLOCK, np.float32)
    steps, expected = np.zeros((SIDE, SIDE), np.int32), expected_steps()
    notes: list[str] = []
    tiles = (SIDE // 32, SIDE // 8)
    print(f"{device.model}; axpy of {n} float32, Mandelbrot set of {SIDE} x {SIDE} in {STEPS} steps\n")
    print("| | compile, s | launch, µs | axpy, µs | Mandelbrot set, µs |\n|---|---:|---:|---:|---:|")

    def row(way: str, wait: Callable[[], object], ways: Ways, results: Callable[[], tuple[Any, Any]]) -> None:
        ways["axpy"]()
        ways["set"]()
        got_y, got_steps = results()
        np.testing.assert_array_equal(got_y, 1 + 2 * x)
        differ = int(np.count_nonzero(got_steps != expected))
        if differ > (0 if way == OWN else SIDE * SIDE // 100):
            raise SystemExit(f"{way}: {differ} pixels of the Mandelbrot set are not NumPy's")
        if differ:
            notes.append(f"{way}: {differ} pixels of the Mandelbrot set are not NumPy's")
        child = [sys.executable, __file__, "--device", options.device, "--compile", way]
        seconds = float(subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()[-1])
        launch, _ = best(ways["small"], wait, LAUNCHES, options.rounds)
        (_, long), (_, pictures) = (best(ways[name], wait, 20, options.rounds) for name in ("axpy", "set"))
        print(f"| {way} | {seconds:.2f} | {launch * 1e6:.2f} | {long * 1e6:.1f} | {pictures * 1e6:.1f} |", flush=True)

    with offload_args(In(x), y, small, InOut(steps), device=device) as (dx, dy, dsmall, dsteps):
        with offload_args(In(np.ones(BLOCK, np.float32)), device=device) as (dsmall_in,):
            for way, (add, escape) in KERNELS.items():
                dy.fill(1)
                on_small, on_all, on_set = add[1, BLOCK], add[-(-n // BLOCK), BLOCK], escape[tiles, (32, 8)]
                ways: Ways = {
                    "small": partial(on_small, 2.0, dsmall_in, dsmall),
                    "axpy": partial(on_all, 2.0, dx, dy),
                    "set": partial(on_set, dsteps, STEPS),
                }
                row(way, device.synchronize, ways, lambda: (dy.to_host(), dsteps.to_host()))
    for way in OTHERS:
        try:
            other = other_of(way, options.device)
            arrays = x, np.ones(n, np.float32), small, np.ones(BLOCK, np.float32)
            ex, ey, esmall, eother = map(other.lend, arrays)
            esteps = other.lend(np.zeros((SIDE, SIDE), np.int32))
            of_all, of_small, of_set = other.axpy(n), other.axpy(BLOCK), other.mandelbrot(SIDE)
            two = np.float32(2)
            row(way, other.wait, {
                "small": partial(of_small, two, eother, esmall),
                "axpy": partial(of_all, two, ex, ey),
                "set": partial(of_set, esteps, STEPS),
            }, partial(lambda read, *arrays: tuple(map(read, arrays)), other.read, ey, esteps))  # fmt: skip
        except Exception as error:  # other packages' versions may not suit the system
            notes.append(f"{way} is left out: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
