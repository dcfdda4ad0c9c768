"""Compares kernels of kernel.h on the CPU with plain loops, with the same source, compiler and flags, in one run.

    python benchmarks/host_kernels.py

On one core, the kernel's function is called in a loop of C, without a launch. On all cores, both run through launches.
A figure is the ratio of the kernel's time to the plain loop's time; each is the best time of alternating rounds.

On some CPUs of Intel, a short loop takes up to 1.6 times as long if its last branch happens to cross a boundary of 32
bytes of code. With --placed, the assembler of x86-64 places the branches of both to prevent this.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from offload_args import Device, In, InOut, Kernel, Out, offload_args

SOURCE = """\
#include <offload_args/kernel.h>
#include <time.h>

OA_KERNEL(add, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
}
OA_KERNEL(add_strided, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::GridStride1D(n), here)) *element = a[element.index()] + b[element.index()];
}
OA_KERNEL(axpy, oa::In<float> x, oa::In<float>, oa::InOut<float> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element += 3 * x[element.index()];
}
OA_HOST_KERNEL(plain_add, OA_POINTER, OA_POINTER, OA_POINTER, OA_VALUE(int)) {
  const float *a = OA_ARGUMENT(call, 0, const float *), *b = OA_ARGUMENT(call, 1, const float *);
  float *c = OA_ARGUMENT(call, 2, float *);
  const int n = OA_ARGUMENT(call, 3, int), last = static_cast<int>(call->last * call->block[0]);
  const int end = last < n ? last : n;
  for (int i = static_cast<int>(call->first * call->block[0]); i < end; i++) c[i] = a[i] + b[i];
}
/* The same in as many parts as there are blocks. */
OA_HOST_KERNEL(plain_parts, OA_POINTER, OA_POINTER, OA_POINTER, OA_VALUE(int)) {
  const float *a = OA_ARGUMENT(call, 0, const float *), *b = OA_ARGUMENT(call, 1, const float *);
  float *c = OA_ARGUMENT(call, 2, float *);
  const long long n = OA_ARGUMENT(call, 3, int), first = n * call->first / call->grid[0];
  const long long end = n * call->last / call->grid[0];
  for (long long i = first; i < end; i++) c[i] = a[i] + b[i];
}
OA_HOST_KERNEL(plain_axpy, OA_POINTER, OA_POINTER, OA_POINTER, OA_VALUE(int)) {
  const float *x = OA_ARGUMENT(call, 0, const float *);
  float *y = OA_ARGUMENT(call, 2, float *);
  const int n = OA_ARGUMENT(call, 3, int), last = static_cast<int>(call->last * call->block[0]);
  const int end = last < n ? last : n;
  for (int i = static_cast<int>(call->first * call->block[0]); i < end; i++) y[i] += 3 * x[i];
}

/* A matrix within one of ld columns: each point becomes the mean of its neighbours. */
#define MEAN(from, i) (0.25f * (from[(i) - ld] + from[(i) + ld] + from[(i) - 1] + from[(i) + 1]))
OA_KERNEL(mean, oa::In<float> from, oa::Out<float> to, int rows, int columns, int ld) {
  for (auto element : to.mine(oa::Linear2D(rows, columns, ld), here)) *element = MEAN(from, element.index() + ld + 1);
}
OA_KERNEL(mean_rows, oa::In<float> from, oa::Out<float> to, int rows, int columns, int ld) {
  for (auto row : to.slices(oa::RowBlocks<8>(rows, columns, ld), here))
    for (auto element : row) *element = MEAN(from, element.index() + ld + 1);
}
OA_KERNEL(mean_tiles, oa::In<float> from, oa::Out<float> to, int rows, int columns, int ld) {
  for (auto row : to.slices(oa::Tiles<32, 256>(rows, columns, ld), here))
    for (auto element : row) *element = MEAN(from, element.index() + ld + 1);
}
OA_HOST_KERNEL(plain_mean, OA_POINTER, OA_POINTER, OA_VALUE(int), OA_VALUE(int), OA_VALUE(int)) {
  const float *from = OA_ARGUMENT(call, 0, const float *);
  float *to = OA_ARGUMENT(call, 1, float *);
  const int rows = OA_ARGUMENT(call, 2, int), columns = OA_ARGUMENT(call, 3, int), ld = OA_ARGUMENT(call, 4, int);
  for (long long row = 8 * call->first; row < 8 * call->last && row < rows; row++)
    for (int column = 0; column < columns; column++) {
      const long long i = row * ld + column;
      to[i] = MEAN(from, i + ld + 1);
    }
}
/* The same in tiles of 32 rows and 256 columns. */
OA_HOST_KERNEL(plain_tiles, OA_POINTER, OA_POINTER, OA_VALUE(int), OA_VALUE(int), OA_VALUE(int)) {
  const float *from = OA_ARGUMENT(call, 0, const float *);
  float *to = OA_ARGUMENT(call, 1, float *);
  const int rows = OA_ARGUMENT(call, 2, int), columns = OA_ARGUMENT(call, 3, int), ld = OA_ARGUMENT(call, 4, int);
  for (long long tile = call->first; tile < call->last; tile++) {
    const long long top = 32 * (tile / call->grid[0]), left = 256 * (tile % call->grid[0]);
    const long long bottom = top + 32 < rows ? top + 32 : rows, right = left + 256 < columns ? left + 256 : columns;
    for (long long row = top; row < bottom; row++)
      for (long long column = left; column < right; column++) {
        const long long i = row * ld + column;
        to[i] = MEAN(from, i + ld + 1);
      }
  }
}

OA_KERNEL_EXPORT double seconds(oa_kernel_function *kernel, const oa_kernel_call *call, int repeats) {
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (int i = 0; i < repeats; i++) kernel(call);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return static_cast<double>(ended.tv_sec - begun.tv_sec) + 1e-9 * static_cast<double>(ended.tv_nsec - begun.tv_nsec);
}
"""
F, N = np.float32, np.int32
VECTOR, MATRIX = (In[F], In[F], InOut[F], N), (In[F], Out[F], N, N, N)
Three = tuple[int, int, int]
Shape = tuple[Three, Three]  # grid and block
SIZES = {"16 KiB": 1 << 12, "128 KiB": 1 << 15, "1 MiB": 1 << 18, "64 MiB": 1 << 24}  # {size of an array: its elements}


class Call(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("first", ctypes.c_longlong),
        ("last", ctypes.c_longlong), ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_longlong),
    ]  # fmt: skip


def shapes(size: int, cores: int) -> dict[str, tuple[str, Shape, Shape]]:
    """Return {kernel: (its plain loop, the grid and block for one core, the grid and block for all cores)}."""
    columns = min(size, 1024) - 2
    rows = size // (columns + 2) - 2
    blocks, eights = (-(-size // 256), 1, 1), (-(-rows // 8), 1, 1)
    strided = ((max(1, min(4 * cores, size // 4096)), 1, 1), (1, 1, 1))
    tiles = ((-(-columns // 256), -(-rows // 32), 1), (1, 1, 1))
    lines = (blocks, (256, 1, 1))
    plain = (eights, (1, 1, 1))
    return {
        "add": ("plain_add", lines, lines),
        "add_strided": ("plain_parts", strided, strided),
        "axpy": ("plain_axpy", lines, lines),
        "mean": ("plain_mean", ((-(-columns // 256), rows, 1), (256, 1, 1)), plain),
        "mean_rows": ("plain_mean", (eights, (1, 1, 1)), plain),
        "mean_tiles": ("plain_tiles", tiles, tiles),
        "plain_tiles": ("plain_mean", tiles, plain),
    }


def ratio(ours: Callable[[int], float], plain: Callable[[int], float], rounds: int, wanted: float) -> float:
    """Return the ratio of both best times. Each function takes the number of repetitions, and returns seconds."""
    repeats = max(1, int(wanted / max(min(plain(1) for _ in range(3)), 1e-9)))
    pairs, until = [], time.perf_counter() + 2
    while len(pairs) < 5 or (len(pairs) < rounds and time.perf_counter() < until):
        pairs.append((ours(repeats), plain(repeats)))
    return min(seconds for seconds, _ in pairs) / min(other for _, other in pairs)


def on_matrix(name: str) -> bool:
    return "mean" in name or "tiles" in name


def sizes_of(name: str, size: int) -> tuple[int, ...]:
    if not on_matrix(name):
        return (size,)
    ld = min(size, 1024)
    return size // ld - 2, ld - 2, ld


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument(
        "--seconds", type=float, default=0.0002, help="of a round: short, so that some are not disturbed"
    )
    parser.add_argument("--placed", action="store_true", help="no branch across 32 bytes of code")
    args = parser.parse_args()
    options = ["-Wa,-mbranches-within-32B-boundaries"] if args.placed else []
    cores = (
        Kernel.compile(SOURCE, "add", VECTOR, options=options, device="host", debug=False).info("host").multiprocessors
    )
    names = list(shapes(1 << 20, cores))
    kernels = {
        name: Kernel.compile(
            SOURCE, name, MATRIX if on_matrix(name) else VECTOR, options=options, device="host", debug=False
        )
        for name in (*names, "plain_add", "plain_parts", "plain_axpy", "plain_mean")
    }
    heads = [*SIZES, *(f"{size}, launched on {cores}" for size in SIZES)]
    print(f"| kernel | {' | '.join(heads)} |")
    print("|---" * (1 + 2 * len(SIZES)) + "|")
    image = kernels["add"]._loaded.image.data
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(image)
        file.flush()
        library = ctypes.CDLL(file.name)
    library.seconds.restype = ctypes.c_double
    for name in names:
        cells = [direct(library, name, size, cores, args) for size in SIZES.values()]
        cells += [launched(kernels, name, size, cores, args) for size in SIZES.values()]
        print(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)


def arrays_for(name: str, size: int) -> list[Any]:
    return [np.random.default_rng(i).random(size, F) for i in range(2 if on_matrix(name) else 3)]


def direct(library: ctypes.CDLL, name: str, size: int, cores: int, namespace: argparse.Namespace) -> float:
    arrays, sizes = arrays_for(name, size), sizes_of(name, size)
    other, own, plain = shapes(size, cores)[name]
    values = [ctypes.c_void_p(array.ctypes.data) for array in arrays] + [ctypes.c_int(size) for size in sizes]
    places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))

    def timed(which: str, shape: Shape) -> Callable[[int], float]:
        (grid, block) = shape
        call = Call(grid, block, 0, grid[0] * grid[1], places, None, 0)
        function = ctypes.cast(getattr(library, f"oa_kernel_{which}"), ctypes.c_void_p)
        return lambda repeats: float(library.seconds(function, ctypes.byref(call), repeats))

    return ratio(timed(name, own), timed(other, plain), namespace.rounds, namespace.seconds)


def launched(kernels: dict[str, Kernel], name: str, size: int, cores: int, namespace: argparse.Namespace) -> float:
    arrays, sizes = arrays_for(name, size), sizes_of(name, size)
    other, own, plain = shapes(size, cores)[name]
    with offload_args(*arrays, device=Device.host()) as pointers:

        def timed(which: str, shape: Shape) -> Callable[[int], float]:
            launcher, arguments = kernels[which][shape], (*pointers, *sizes)

            def run(repeats: int) -> float:
                begun = time.perf_counter()
                for _ in range(repeats):
                    launcher(*arguments)
                return time.perf_counter() - begun

            return run

        return ratio(timed(name, own), timed(other, plain), namespace.rounds, namespace.seconds)


if __name__ == "__main__":
    main()
