"""Compare the same work by offload_args and by other packages, in one run: python benchmarks/compare.py [--out DIR].

See README.md in this folder. Packages that can't be imported are left out; failures are reported in the table.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import gc
import importlib
import importlib.metadata
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from comparison_rows import CALL, OURS, Array, Goal, Loop, Row, calls, contenders, measure, right_once, said
from comparison_tables import header, line, plot, table

from offload_args import Device, DevicePtr, In, Out, Scratch, blas, libraries, offload_args, testing

SOURCE = Path(__file__).with_suffix(".cu")
MODULES = {"CuPy": "cupy", "PyTorch": "torch", "nvmath-python": "nvmath", "PyCUDA": "pycuda"}
TOLERANCE = 1e-3  # for float32, relative to the largest element; tensor cores are off
GIB = 1 << 30

PYCUDA_SGEMV = """
__global__ void sgemv(const float *A, const float *x, float *y, int n) {  // a warp a row
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  float sum = 0;
  if (row < n)
    for (int i = threadIdx.x; i < n; i += 32) sum += A[(size_t)row * n + i] * x[i];
  for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
  if (row < n && threadIdx.x == 0) y[row] = sum;
}
"""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Plain:
    """The functions of compare.cu, which is built and loaded."""

    def __init__(self, folder: Path) -> None:
        nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if nvcc is None:
            raise FileNotFoundError("no nvcc")
        said_by_it = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.split("release ")
        self.compiler = "nvcc " + said_by_it[-1].split(",")[0].strip()
        # At run time, it uses the cuBLAS that the package has already loaded, if the soname is the same.
        built = folder / "compare.so"
        command = [nvcc, "-O2", "-shared", "-Xcompiler", "-fPIC", str(SOURCE), "-o", str(built)]
        done = subprocess.run([*command, "-lcublas", "-lcusolver"], capture_output=True, text=True)
        if done.returncode:
            loaded = [f"-Xlinker={libraries.load(name).path}" for name in ("cublas", "cusolver")]
            done = subprocess.run([*command, *loaded], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvcc: {done.stderr[-300:]}")
        self.library = ctypes.CDLL(str(built))
        self.library.plain_error.restype = ctypes.c_char_p
        self.library.plain_pinned.restype = ctypes.c_void_p
        self("open")

    def __call__(self, name: str, *arguments: Any) -> float:
        """Call the function plain_<name>, with arrays as pointers, and with numbers in their C types."""
        function = getattr(self.library, f"plain_{name}")
        function.restype = ctypes.c_double
        took = float(function(*(ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments)))
        if took < 0:
            raise RuntimeError(self.library.plain_error().decode())
        return took

    def pinned(self, nbytes: int) -> Array:
        address = self.library.plain_pinned(ctypes.c_size_t(nbytes))
        if not address:
            raise MemoryError(f"no {nbytes} bytes of pinned memory")
        array: Array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        array[:] = 1
        return array


class Comparison:
    def __init__(self, device: Device, quick: bool, folder: Path, only: str = "", beside: str = "") -> None:
        self.device = device
        self.quick = quick
        self.only = re.compile(only)
        self.on_gpu = device.backend == "cuda"
        self.seconds = 0.05 if quick else 0.7
        self.rows: list[Row] = []
        self.sweep: dict[str, dict[str, list[tuple[int, float]]]] = {"up": {}, "down": {}}
        self.missing: dict[str, str] = {}
        self.versions = {OURS: importlib.metadata.version("offload-args"), "NumPy": np.__version__}
        self.modules: dict[str, Any] = {}
        self.plain: Plain | None = None
        self._pycuda_sgemv: Any = None
        self._pinned: Array | None = None
        self._bus: list[float] = []  # seconds per byte, up and down
        self._random = np.random.default_rng(1)
        if not self.on_gpu:
            self.missing = dict.fromkeys((*MODULES, "plain C"), f"not for {device}")
            return
        with offload_args(np.ones(4, np.float32), device=device) as (d,):  # opens the GPU before other packages
            blas.nrm2(d)
        try:
            self.plain = Plain(folder)
            self.versions["plain C"] = self.plain.compiler
        except Exception as error:
            self.missing["plain C"] = said(error)
        for name, module in MODULES.items():
            if not re.search(beside, name):
                self.missing[name] = "not asked for"
                continue
            try:
                self.modules[name] = self._imported(module)
                version = getattr(self.modules[name], "__version__", None)
                self.versions[name] = version or importlib.metadata.version(module)
            except Exception as error:
                self.missing[name] = said(error)

    def _imported(self, module: str) -> Any:
        package = importlib.import_module(module)
        if module == "torch":
            if not package.cuda.is_available():
                raise RuntimeError("no GPU for PyTorch")
            package.backends.cuda.matmul.allow_tf32 = False
        if module == "nvmath":
            importlib.import_module("nvmath.linalg.advanced")
        if module == "pycuda":
            driver = importlib.import_module("pycuda.driver")
            driver.init()
            context = driver.Device(self.device.index).retain_primary_context()
            context.push()  # the other packages use the primary context, too
            atexit.register(context.pop)
            source = importlib.import_module("pycuda.compiler").SourceModule(PYCUDA_SGEMV)
            self._pycuda_sgemv = source.get_function("sgemv")
        return package

    def filled(self, *shape: int) -> Array:
        """Make an array of float32, and write all of its pages."""
        return self._random.random(shape, dtype=np.float32)

    def run(self) -> None:
        quick, gpu = self.quick, self.on_gpu
        for n in (2, 64, 256) if quick else (2, 64, 256, 1024, 4096, 16384):
            self.attempt(f"sgemv with transfers, n = {n}", self.sgemv, n)
        for n in (64, 256) if quick else (64, 1024, 4096, 8192) if gpu else (64, 1024):
            self.attempt(f"sgemm with transfers, n = {n}", self.sgemm, n)
        pairs = 50 if quick else 1000
        self.attempt(f"sgemm of {pairs:,} pairs, n = 32, with transfers", self.batch, pairs, 32)
        self.attempt(f"sgemm of {pairs:,} pairs, n = 32, resident", self.resident_batch, pairs, 32)
        if gpu:
            n = 512 if quick else 8192
            self.attempt(f"gemm in half precision, n = {n}, resident", self.resident_half, n)
        nbytes = GIB >> 5 if quick else GIB
        size = f"{nbytes >> 20} MiB"
        for way in ("up", "down"):
            self.attempt(f"copies alone, {size}, {way}", self.copies, nbytes, way == "down")
        n = 256 if quick else 4096 if gpu else 1024
        self.attempt(f"100 power-iteration steps, n = {n}, one region", self.power, n)
        steps = 50 if quick else 1000
        self.attempt(f"{steps:,} steps with a region inside the loop, n = {n}", self.residency, n, steps)
        for nbytes, count in ((1 << 20, 1), (1 << 26, 1), (1 << 20, 4), (1 << 24, 4)):
            self.attempt(f"coming back, arrays of {nbytes >> 20} MiB: {count}", self.coming_back, nbytes, count)
        regions = 500 if quick else 100_000
        self.attempt(f"{regions:,} regions of three 1 KiB arrays", self.regions, regions)
        self.attempt("a region of three 1 KiB arrays, not used", self.idle)
        try:
            self.sweep_sizes(1 << (20 if quick else 30))
        except Exception as error:
            print(f"The sweep failed: {said(error)}", flush=True)

    def bus(self, up: int, down: int) -> float:
        """Return the µs that so many bytes take from and to pinned memory; NaN if plain C can't measure it."""
        if not self._bus and self.plain:
            host = self.plain.pinned(1 << 26)
            size = ctypes.c_size_t(host.nbytes)
            self._bus = [
                min(self.plain("copy", host, size, ctypes.c_int(way), ctypes.c_int(1)) for _ in range(9)) / host.nbytes
                for way in (0, 1)
            ]
        return 1e6 * (self._bus[0] * up + self._bus[1] * down) if self._bus else np.nan

    def attempt(self, work: str, make: Callable[..., None], *arguments: Any) -> None:
        if not self.only.search(work):
            return
        row = Row(work)
        self.rows.append(row)
        start = time.perf_counter()
        try:
            make(row, *arguments)
        except Exception as error:
            row.failed.setdefault(OURS, said(error))
        if not self.on_gpu:
            row.goals = []
        print(f"{line(row)}  <!-- {time.perf_counter() - start:.1f} s -->", flush=True)

    def checked(self, row: Row, loops: dict[str, tuple[Loop, Array]], expected: Array) -> dict[str, Loop]:
        """Run each loop once, and compare its result with NumPy's.

        A loop whose result differs, or that raises, has failed.
        """
        right = {}
        scale = float(np.abs(expected).max())
        for name, (loop, result) in loops.items():
            try:
                result.fill(np.nan)
                loop(1)
                error = float(np.abs(result - expected).max()) / scale
                if not error <= TOLERANCE:
                    raise ArithmeticError(f"wrong by {error:.1e} of the largest element")
                right[name] = loop
            except Exception as error:
                row.failed[name] = said(error)
        return right

    # -- the work ---------------------------------------------------------------------------------------------------

    def sgemv(self, row: Row, n: int) -> None:
        A, x = self.filled(n, n), self.filled(n)
        loops, add = contenders(row, n)
        device = self.device

        def ours(y: Array) -> Loop:
            def once() -> None:
                with offload_args(A, x, y, device=device) as (dA, dx, dy):
                    blas.gemv(1.0, dA, dx, 0.0, dy)

            return calls(once)

        add(OURS, ours)
        add(CALL, lambda y: calls(lambda: offload_args.call(blas.gemv, 1.0, A, x, 0.0, y, device=device)))
        if plain := self.plain:
            add("plain C", lambda y: lambda count: plain("sgemv", A, x, y, ctypes.c_long(n), ctypes.c_int(count)))
        if cupy := self.modules.get("CuPy"):
            add("CuPy", lambda y: calls(lambda: (cupy.asarray(A) @ cupy.asarray(x)).get(out=y)))
        if torch := self.modules.get("PyTorch"):
            cpu = torch.from_numpy

            def by_torch(y: Array) -> Loop:
                return calls(lambda: cpu(y).copy_(torch.mv(cpu(A).to("cuda"), cpu(x).to("cuda"))))

            add("PyTorch", by_torch)
        if nvmath := self.modules.get("nvmath-python"):
            add("nvmath-python", lambda y: calls(lambda: np.copyto(y, nvmath.linalg.advanced.matmul(A, x))))
        if "PyCUDA" in self.modules:
            driver = importlib.import_module("pycuda.driver")

            def by_pycuda(y: Array) -> Loop:
                size, block, grid = np.int32(n), (32, 8, 1), ((n + 7) // 8, 1)
                kernel = self._pycuda_sgemv
                return calls(lambda: kernel(driver.In(A), driver.In(x), driver.Out(y), size, block=block, grid=grid))

            add("PyCUDA", by_pycuda)
        add("NumPy", lambda y: calls(lambda: np.matmul(A, x, out=y)))
        measure(row, self.checked(row, loops, A @ x), self.seconds)
        most = {2: 0.75, 64: 0.75, 256: 0.9, 1024: 0.5, 4096: 0.3, 16384: 0.2}.get(n)
        if most is not None:
            row.goals = [
                Goal(f"{by}at most {most} of plain C", row.over("plain C", form), most)
                for form, by in ((OURS, ""), (CALL, "call "))
            ]
        if n <= 64:
            row.goals.append(Goal("0.35 of CuPy", row.over("CuPy", CALL), 0.35))
        if n == 4096:
            bus = row.median.get(OURS, np.nan) / self.bus(A.nbytes, 0)
            row.goals.append(Goal("at most 1.3 of the bus alone", bus, 1.3))
        rate = A.nbytes * 1e-3 / row.median.get(OURS, np.nan)
        if n == 16384:
            row.goals.append(Goal("at least 45 GB/s", rate, 45, at_most=False))
        if n >= 1024:
            row.note = f"{rate:.1f} GB/s"
            if self.on_gpu:
                row.note += f"; the bus alone takes {self.bus(A.nbytes, 0):,.0f} us"

    def sgemm(self, row: Row, n: int) -> None:
        A, B = self.filled(n, n), self.filled(n, n)
        loops, add = contenders(row, n, n)
        device = self.device

        def ours(C: Array) -> Loop:
            def once() -> None:
                with offload_args(A, B, C, device=device) as (dA, dB, dC):
                    blas.gemm(1.0, dA, dB, 0.0, dC)

            return calls(once)

        add(OURS, ours)
        add(CALL, lambda C: calls(lambda: offload_args.call(blas.gemm, 1.0, A, B, 0.0, C, device=device)))
        if plain := self.plain:
            add("plain C", lambda C: lambda count: plain("sgemm", A, B, C, ctypes.c_long(n), ctypes.c_int(count)))
        if cupy := self.modules.get("CuPy"):
            add("CuPy", lambda C: calls(lambda: (cupy.asarray(A) @ cupy.asarray(B)).get(out=C)))
        if torch := self.modules.get("PyTorch"):
            cpu = torch.from_numpy
            add("PyTorch", lambda C: calls(lambda: cpu(C).copy_(cpu(A).to("cuda") @ cpu(B).to("cuda"))))
        if nvmath := self.modules.get("nvmath-python"):
            add("nvmath-python", lambda C: calls(lambda: np.copyto(C, nvmath.linalg.advanced.matmul(A, B))))
        expected = A @ B
        right = self.checked(row, loops, expected)
        right["NumPy"] = calls(lambda: np.matmul(A, B, out=expected))
        if n >= 8192:  # one run is enough for its seconds
            del right["NumPy"]
            row.median["NumPy"] = row.best["NumPy"] = right_once(lambda: np.matmul(A, B, out=expected))
            row.rounds["NumPy"] = 1
        measure(row, right, self.seconds)
        most = {64: 0.35, 1024: 0.5, 4096: 0.25, 8192: 0.45}.get(n)
        if most is not None:
            form, by = (CALL, "call ") if n == 64 else (OURS, "")
            row.goals = [Goal(f"{by}at most {most} of CuPy", row.over("CuPy", form), most)]
        if n >= 1024 and self.on_gpu:
            with offload_args(A, B, expected, device=device) as (dA, dB, dC):

                def product() -> None:
                    blas.gemm(1.0, dA, dB, 0.0, dC)
                    device.synchronize()

                product()
                alone = min(calls(product)(1) for _ in range(9)) * 1e6
            bus = self.bus(2 * A.nbytes, A.nbytes)
            row.note = f"the bus alone takes {bus:,.0f} us, the product {alone:,.0f}"

    def batch(self, row: Row, pairs: int, n: int) -> None:
        A, B = self.filled(pairs, n, n), self.filled(pairs, n, n)
        loops, add = contenders(row, pairs, n, n)
        device, sizes = self.device, (ctypes.c_long(n), ctypes.c_int(pairs))

        def ours(C: Array) -> Loop:
            def once() -> None:
                with offload_args(A, B, C, device=device) as (dA, dB, dC):
                    blas.gemm(1.0, dA, dB, 0.0, dC)

            return calls(once)

        add(OURS, ours)
        add(CALL, lambda C: calls(lambda: offload_args.call(blas.gemm, 1.0, A, B, 0.0, C, device=device)))
        if plain := self.plain:
            add("plain C", lambda C: lambda count: plain("batch", A, B, C, *sizes, ctypes.c_int(count)))
        if cupy := self.modules.get("CuPy"):
            add("CuPy", lambda C: calls(lambda: cupy.matmul(cupy.asarray(A), cupy.asarray(B)).get(out=C)))
        if torch := self.modules.get("PyTorch"):
            cpu = torch.from_numpy
            add("PyTorch", lambda C: calls(lambda: cpu(C).copy_(torch.bmm(cpu(A).to("cuda"), cpu(B).to("cuda")))))
        add("NumPy", lambda C: calls(lambda: np.matmul(A, B, out=C)))
        measure(row, self.checked(row, loops, A @ B), self.seconds)
        row.goals = [Goal(f"at most 0.35 of {other}", row.over(other), 0.35) for other in ("CuPy", "PyTorch")]

    def resident(self, A: Array, B: Array, C: Array) -> Loop:
        """Make a loop of products of arrays that stay on the device; the copies are not timed."""

        def loop(count: int) -> float:
            with offload_args(In(A), In(B), Out(C), device=self.device) as (dA, dB, dC):
                blas.gemm(1.0, dA, dB, 0.0, dC)
                self.device.synchronize()
                start = time.perf_counter()
                for _ in range(count):
                    blas.gemm(1.0, dA, dB, 0.0, dC)
                self.device.synchronize()
                return time.perf_counter() - start

        return loop

    def resident_batch(self, row: Row, pairs: int, n: int) -> None:
        A, B = self.filled(pairs, n, n), self.filled(pairs, n, n)
        loops, add = contenders(row, pairs, n, n)
        sizes = ctypes.c_long(n), ctypes.c_int(pairs)
        add(OURS, lambda C: self.resident(A, B, C))
        if plain := self.plain:
            add("plain C", lambda C: lambda count: plain("resident_batch", A, B, C, *sizes, ctypes.c_int(count)))
        add("NumPy", lambda C: calls(lambda: np.matmul(A, B, out=C)))
        measure(row, self.checked(row, loops, A @ B), self.seconds)
        row.goals = [Goal("at most 1.05 of plain C", row.over("plain C"), 1.05)]

    def resident_half(self, row: Row, n: int) -> None:
        A, B = (self.filled(n, n).astype(np.float16) for _ in range(2))
        ours, by_hand = np.zeros((n, n), np.float16), np.zeros((n, n), np.float16)
        loops = {OURS: (self.resident(A, B, ours), ours)}
        if plain := self.plain:
            size = ctypes.c_long(n)
            loops["plain C"] = lambda count: plain("resident_half", A, B, by_hand, size, ctypes.c_int(count)), by_hand
        expected = A.astype(np.float32) @ B.astype(np.float32)
        measure(row, self.checked(row, loops, expected), self.seconds)
        row.goals = [Goal("at most 1.01 of plain C", row.over("plain C"), 1.01)]
        row.note = f"{2e-6 * n**3 / row.median.get(OURS, np.nan):,.0f} TFLOP/s"

    def copiers(self, a: Array, down: bool, pinned: Array | None) -> dict[str, Loop]:
        """Make loops that copy an array of bytes up or down; the copy is complete at the end of each loop."""
        device, nbytes = self.device, a.nbytes
        lent = Out(a) if down else In(a)

        def use(d: DevicePtr) -> None:
            d.address  # noqa: B018 - asking for it brings the data up, and has it come down

        def ours() -> None:
            with offload_args(lent, device=device) as (d,):
                d.address  # noqa: B018

        loops = {OURS: calls(ours), CALL: calls(lambda: offload_args.call(use, lent, device=device))}
        if plain := self.plain:

            def by_hand(way: str, host: Array) -> Loop:
                return lambda count: plain(way, host, ctypes.c_size_t(nbytes), ctypes.c_int(down), ctypes.c_int(count))

            loops["plain C"] = by_hand("lent", a)
            loops["memory there"] = by_hand("copy", a)
            loops["cudaMemcpy"] = by_hand("memcpy", a)
            if pinned is not None:
                loops["pinned"] = by_hand("copy", pinned)
        if not self.on_gpu:
            other = np.ones_like(a)
            to, source = (a, other) if down else (other, a)
            loops["memcpy"] = calls(lambda: ctypes.memmove(to.ctypes.data, source.ctypes.data, nbytes))
        return loops

    def copies(self, row: Row, nbytes: int, down: bool) -> None:
        a = np.ones(nbytes, np.uint8)
        pinned = self.pinned(nbytes)
        loops = self.copiers(a, down, pinned)
        if cupy := self.modules.get("CuPy"):
            there = cupy.ones(nbytes, np.uint8)

            def by_cupy() -> None:
                if down:
                    there.get(out=a)
                else:
                    there.set(a)
                    cupy.cuda.get_current_stream().synchronize()

            loops["CuPy"] = calls(by_cupy)
        if torch := self.modules.get("PyTorch"):
            on_gpu = torch.ones(nbytes, dtype=torch.uint8, device="cuda")
            on_cpu = torch.from_numpy(a)

            def by_torch() -> None:
                if down:
                    on_cpu.copy_(on_gpu)
                else:
                    on_gpu.copy_(on_cpu)
                    torch.cuda.synchronize()

            loops["PyTorch"] = calls(by_torch)
        if "PyCUDA" in self.modules:
            driver = importlib.import_module("pycuda.driver")
            memory = driver.mem_alloc(nbytes)
            driver.memcpy_htod(memory, a)
            copy = (lambda: driver.memcpy_dtoh(a, memory)) if down else (lambda: driver.memcpy_htod(memory, a))
            loops["PyCUDA"] = calls(copy)
        self.check_copies(a)
        measure(row, loops, self.seconds)
        rates = {name: nbytes * 1e-3 / us for name, us in row.median.items()}
        row.note = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()) + " GB/s"
        share = rates.get(OURS, np.nan) / rates.get("pinned", np.nan)
        row.goals = [Goal("at least 0.85 of pinned memory", share, 0.85, at_most=False)]

    def pinned(self, nbytes: int) -> Array | None:
        """Return the pinned memory of plain C, which is always the same."""
        if self.plain and (self._pinned is None or self._pinned.nbytes < nbytes):
            self._pinned = self.plain.pinned(nbytes)
        return None if self._pinned is None else self._pinned[:nbytes]

    def check_copies(self, like: Array) -> None:
        """Check that random bytes come down unchanged after a copy up."""
        sent = self._random.integers(0, 255, like.nbytes, np.uint8).view(np.float32)
        back = np.zeros_like(sent)
        with offload_args(In(sent), Out(back), device=self.device) as (d, e):
            blas.copy(d, e)
        if not np.array_equal(sent.view(np.uint8), back.view(np.uint8)):
            raise ArithmeticError("what came down is not what went up")

    def power(self, row: Row, n: int, steps: int = 100) -> None:
        A, start = self.filled(n, n), self.filled(n)
        loops: dict[str, tuple[Loop, Array]] = {}

        def add(name: str, once: Callable[[Array], None]) -> None:
            y = np.zeros(n, np.float32)
            loops[name] = calls(lambda: once(y)), y

        def ours(y: Array) -> None:
            y[:] = start
            x, norm = Scratch((n,), np.float32), Scratch((), np.float32)
            with offload_args(A, y, x, norm, device=self.device) as (dA, dx, dy, length):
                divisor, column, other = length[None, None], dy[:, None], dx[:, None]
                for _ in range(steps):  # the number is even, so that the last result is in y
                    blas.gemv(1.0, dA, dx, 0.0, dy)
                    blas.nrm2(dy, result=length)  # the length stays on the device, and no thread waits for it
                    blas.trsm(1.0, divisor, column, side="R")  # dy /= length
                    dx, dy, column, other = dy, dx, other, column

        add(OURS, ours)
        if plain := self.plain:
            y = np.zeros(n, np.float32)
            size, times = ctypes.c_long(n), ctypes.c_int(steps)
            loops["plain C"] = (lambda count: plain("power", A, start, y, size, times, ctypes.c_int(count))), y
        if cupy := self.modules.get("CuPy"):

            def by_cupy(y: Array) -> None:
                there, x = cupy.asarray(A), cupy.asarray(start)
                for _ in range(steps):
                    x = there @ x
                    x /= cupy.linalg.norm(x)
                x.get(out=y)

            add("CuPy", by_cupy)
        if torch := self.modules.get("PyTorch"):

            def by_torch(y: Array) -> None:
                there, x = torch.from_numpy(A).to("cuda"), torch.from_numpy(start).to("cuda")
                for _ in range(steps):
                    x = torch.mv(there, x)
                    x /= torch.linalg.vector_norm(x)
                torch.from_numpy(y).copy_(x)

            add("PyTorch", by_torch)

        def by_numpy(y: Array) -> None:
            y[:] = start
            for _ in range(steps):
                x = A @ y
                np.divide(x, np.linalg.norm(x), out=y)

        add("NumPy", by_numpy)
        expected = np.zeros(n, np.float32)
        by_numpy(expected)
        measure(row, self.checked(row, loops, expected), self.seconds)
        row.goals = [
            Goal("at most 0.4 of CuPy", row.over("CuPy"), 0.4),
            Goal("0.6 of PyTorch", row.over("PyTorch"), 0.6),
        ]

    def residency(self, row: Row, n: int, steps: int) -> None:
        """Measure y = A x with a region in the loop; the contenders are the modes. The first steps are included."""
        A, x = self.filled(n, n), self.filled(n)
        expected = A @ x
        device = self.device

        def by_mode(mode: Any, hoisted: bool) -> tuple[Loop, Array]:
            y = np.zeros(n, np.float32)

            def once() -> float:
                with testing.residency(mode):
                    start = time.perf_counter()
                    with offload_args(*([In(A)] if hoisted else []), device=device):
                        for _ in range(steps):
                            with offload_args(A, x, y, device=device) as (dA, dx, dy):
                                blas.gemv(1.0, dA, dx, 0.0, dy)
                    return time.perf_counter() - start

            return (lambda count: sum(once() for _ in range(count))), y

        loops = {OURS: by_mode("auto", False), "off": by_mode("off", False), "hoisted": by_mode("off", True)}
        before = device.residency
        right = self.checked(row, loops, expected)
        after = device.residency
        measure(row, right, self.seconds, per=steps, most=5)
        row.unit = "us a step"
        row.goals = [
            Goal("auto at most 1.3 of hoisted by hand", row.over("hoisted"), 1.3),
            Goal("0.1 of off", row.over("off"), 0.1),
        ]
        shown = ", ".join(f"{name} {row.median[name]:,.0f}" for name in ("off", "hoisted") if name in row.median)
        spared = (after.bytes_spared - before.bytes_spared) / max(A.nbytes, 1)
        row.note = f"auto here; {shown} us; tracking {after.tracking}; A was spared {spared:.0f} times of {steps:,}"

    def regions(self, row: Row, count: int) -> None:
        """Measure c += a + b of 256 elements; all three arrays go up, and c comes down."""
        a, b, zero = self.filled(256), self.filled(256), np.zeros(256, np.float32)
        device = self.device
        results: dict[str, Array] = {}
        loops: dict[str, Loop] = {}

        c = results[OURS] = zero.copy()

        def ours() -> None:
            with offload_args(a, b, c, device=device) as (da, db, dc):
                blas.axpy(1.0, da, dc)
                blas.axpy(1.0, db, dc)

        loops[OURS] = calls(ours)
        if plain := self.plain:
            e = results["plain C"] = zero.copy()
            loops["plain C"] = lambda times: plain("region", a, b, e, ctypes.c_long(256), ctypes.c_int(times))
        for name, loop in list(loops.items()):
            try:
                loop(1)
                np.testing.assert_allclose(results[name], a + b, rtol=TOLERANCE)
            except Exception as error:
                row.failed[name] = said(error)
                del loops[name]
        if OURS in loops:
            loops[OURS](count // 5)
            gc.collect()
            before = resident_bytes()
            loops[OURS](count)
            gc.collect()
            grown = (resident_bytes() - before) / 1024
            row.note = f"{grown:,.0f} KiB more memory after them"
            row.goals = [Goal("flat memory (KiB more, at most 1,024)", grown, 1024)]
        measure(row, loops, self.seconds)
        row.unit = "us a region"

    def idle(self, row: Row) -> None:
        a, b, c = (self.filled(256) for _ in range(3))

        def once() -> None:
            with offload_args(a, b, c, device=self.device):
                pass

        measure(row, {OURS: calls(once)}, self.seconds)
        row.goals = [Goal("at most 8 us", row.median.get(OURS, np.nan), 8)]

    def coming_back(self, row: Row, nbytes: int, count: int) -> None:
        """Measure norms of `count` unchanged resident arrays, compared with arrays lent around the loop."""
        arrays = [self.filled(nbytes // 4) for _ in range(count)]
        device = self.device

        def norms(resident: bool) -> None:
            norm = Scratch((), np.float32)
            with offload_args(*map(In, arrays), norm, device=device, resident=resident) as (*lent, length):
                for d in lent:
                    blas.nrm2(d, result=length)

        def hoisted(times: int) -> float:
            with offload_args(*map(In, arrays), device=device) as _:
                return calls(lambda: norms(False))(times)

        def staying(times: int) -> float:
            with testing.residency("explicit"):
                norms(True)
                return calls(lambda: norms(True))(times)

        measure(row, {OURS: staying, "hoisted": hoisted}, self.seconds)
        more = row.median.get(OURS, np.nan) - row.median.get("hoisted", np.nan)
        row.goals = [Goal("at most 20 us more than nested in a hoisted region", more, 20)]
        row.note = f"nested in a hoisted region {row.median.get('hoisted', np.nan):,.1f} us"

    def sweep_sizes(self, largest: int) -> None:
        """Measure µs against bytes for each way, for the table and the plot, and then one row of the goals."""
        if not self.only.search("one array, all sizes"):
            return
        pinned = self.pinned(largest)
        whole = np.ones(largest, np.uint8)
        size = 8
        while size <= largest:
            for way, seen in self.sweep.items():
                row = Row("")
                part = None if pinned is None else pinned[:size]
                measure(row, self.copiers(whole[:size], way == "down", part), self.seconds / 25)
                for name, us in row.median.items():
                    seen.setdefault(name, []).append((size, us))
                shown = ", ".join(f"{name} {us:,.1f}" for name, us in row.median.items())
                print(f"{size:,} B {way}: {shown}", flush=True)
            size *= 2
        for way, seen in self.sweep.items():
            self.attempt(f"one array, all sizes, {way}: the worst", self.worst, way, seen)

    def worst(self, row: Row, way: str, seen: dict[str, list[tuple[int, float]]]) -> None:
        """Add the worst ratios of offload_args to plain C that allocates, and to a copy into existing memory."""
        points = {name: dict(at) for name, at in seen.items()}
        there = {
            size: min(us, points["cudaMemcpy"].get(size, np.inf))
            for size, us in points.get("memory there", {}).items()
            if size >= 64 << 10
        }
        for form, by in ((OURS, ""), (CALL, "call ")):
            for other, text, limit in (
                (points.get("plain C", {}), "plain C", 1.0),
                (there, "a bare copy from 64 KiB on", 1.2),
            ):
                ratios = {size: us / other[size] for size, us in points.get(form, {}).items() if size in other}
                if not ratios:
                    continue
                at = max(ratios, key=ratios.__getitem__)
                row.goals.append(Goal(f"{by}at most {limit} of {text}, {at:,} B", ratios[at], limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=str(Device.default()))
    parser.add_argument("--out", type=Path, metavar="DIR", help="write results.json, table.md and plots there")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it works")
    parser.add_argument("--only", default="", metavar="REGEX", help="only what is named so")
    parser.add_argument("--beside", default="", metavar="REGEX", help="only the packages that are named so")
    options = parser.parse_args()
    command = " ".join(["python benchmarks/compare.py", *sys.argv[1:]])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(Device(options.device), options.quick, Path(folder), options.only, options.beside)
        top = header(comparison, command)
        print(top, flush=True)
        comparison.run()
    text = top + table(comparison)
    print(f"\n{text}\n({time.perf_counter() - start:.0f} s)", flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.md").write_text(text)
        rows = [asdict(row) | {"goals": list(map(str, row.goals))} for row in comparison.rows]
        results = {"where": top.strip(), "missing": comparison.missing, "rows": rows, "sweep": comparison.sweep}
        (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
        plot(comparison, options.out)


if __name__ == "__main__":
    main()
