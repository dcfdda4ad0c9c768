"""Measure sgemv from C: with transfers relative to Python's time, and on present arrays relative to the bare call.

    python benchmarks/c_call.py [--rounds N]

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from offload_args import Device, In, Out, cblas, cublas, libraries, offload_args
from offload_args.embedding import cflags, libs
from offload_args.errors import DeviceUnavailableError, OffloadError

SIZES = (64, 256, 1024, 4096)
LIMITS = {"transfers": 1.0, "resident": 1.03}


def compiled(folder: Path) -> Any:
    path = folder / "c_call.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", path, source, *cflags(), *libs(), "-ldl"], check=True)
    code = ctypes.CDLL(str(path))
    for name in ("c_transfers", "c_resident", "bare_resident"):
        getattr(code, name).restype = ctypes.c_double
    return code


def compared(rounds: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float, float]:
    """Return the medians of both functions, which take turns, and the median of the ratios of neighbouring runs."""
    first(), second()
    pairs = [(first(), second()) if i % 2 else (second(), first())[::-1] for i in range(rounds)]
    ratios = [seconds / other for seconds, other in pairs]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), statistics.median(ratios)


def by_python(device: Device, count: int, n: int, arrays: tuple[Any, Any, Any]) -> float:
    A, x, y = arrays
    start = time.perf_counter()
    for _ in range(count):
        with offload_args(In(A), In(x), Out(y), device=device) as (dA, dx, dy):
            if device.is_gpu:
                cublas.sgemv(cublas.OP_N, n, n, 1.0, dA, n, dx, 1, 0.0, dy, 1)
            else:
                cblas.sgemv(cblas.ColMajor, cblas.NoTrans, n, n, 1.0, dA, n, dx, 1, 0.0, dy, 1)
    return time.perf_counter() - start


def measure(code: Any, device: Device, n: int, rounds: int) -> None:
    on_gpu = int(device.is_gpu)
    arrays = tuple(np.ones(shape, np.float32, order="F") for shape in ((n, n), n, n))
    count = max(1, min(100, 2**21 // (n * n)))
    arguments = [ctypes.c_void_p(array.ctypes.data) for array in arrays]

    def c(name: str, *options: int) -> Callable[[], float]:
        def seconds() -> float:
            actual = getattr(code, name)(device.number, on_gpu, *options, ctypes.c_long(count), n, *arguments)
            if actual < 0:
                raise OffloadError(f"{name} failed for n = {n}")
            return float(actual) / count

        return seconds

    rows = [
        ("transfers", "Python", c("c_transfers"), lambda: by_python(device, count, n, arrays) / count),
        ("resident", "the bare call", c("c_resident", 0), c("bare_resident")),
        ("portable", "the bare call", c("c_resident", 1), c("bare_resident")),
    ]
    for case, other, ours, theirs in rows:
        seconds, other_seconds, ratio = compared(rounds, ours, theirs)
        limit = LIMITS.get(case) if on_gpu or case == "transfers" else None
        verdict = "" if limit is None else f", at most {limit}: {'met' if ratio <= limit else 'missed'}"
        print(
            f"{device} n = {n:4} {case:9} {seconds * 1e6:9.2f} us, {other} {other_seconds * 1e6:9.2f} us: "
            f"{ratio:.3f}{verdict}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        code = compiled(Path(folder))
        actual = libraries.load("cblas")
        names = [f"{prefix}cblas_sgemv{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_")]
        if all(code.bare_open_cblas(actual.path.encode(), name.encode()) for name in names):
            raise SystemExit(f"{actual.path} has none of {', '.join(names)}")
        for n in SIZES:
            measure(code, Device.host(), n, options.rounds)
        try:
            device = Device("cuda:0")
        except DeviceUnavailableError as error:
            print(error)
            return 0
        code.bare_open_cublas(libraries.load("cublas").path.encode())
        for n in SIZES:
            measure(code, device, n, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
