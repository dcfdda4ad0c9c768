"""Measure the additional cost of a call over the bare call: python benchmarks/call_cost.py [--json FILE] [--rounds N].

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from timeit import Timer
from typing import Any, NamedTuple

import cffi
import numpy as np
from blas_calls import CALLS, Operands

from offload_args import Device, blas, cblas, cublas, libraries, offload_args
from offload_args.errors import DeviceUnavailableError

SOURCE = Path(__file__).with_suffix(".c")
IMPORTS = """
import time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
import offload_args
print(time.perf_counter() - middle)
"""


class Row(NamedTuple):
    name: str
    value: float  # a median
    best: float  # the value without disturbances
    unit: str
    limit: float | None = None

    @property
    def verdict(self) -> str:
        return "" if self.limit is None else "met" if self.value <= self.limit else "missed"


def compile_bare(folder: Path) -> Any:
    """Compile call_cost.c into a cffi module in API mode."""
    text = SOURCE.read_text()
    ffi = cffi.FFI()
    ffi.cdef(text.split("/* [cffi begin] */")[1].split("/* [cffi end] */")[0])
    ffi.set_source("bare", text)
    with contextlib.redirect_stdout(io.StringIO()):
        ffi.emit_c_code(str(folder / "bare.c"))
    built = folder / ("bare" + str(sysconfig.get_config_var("EXT_SUFFIX")))
    include = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", *include, folder / "bare.c", "-o", built, "-ldl"], check=True, cwd=folder
    )
    spec = spec_from_loader("bare", ExtensionFileLoader("bare", str(built)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(rounds: int, *runs: Callable[[], float]) -> list[list[float]]:
    """Make each run in turn, `rounds` times; the first round, in which caches are filled, does not count."""
    times = [[run() for run in runs] for _ in range(rounds + 1)][1:]
    return [list(row) for row in zip(*times, strict=True)]


def row(case: str, times: list[float], unit: str, limit: float | None = None, scale: float = 1e6) -> Row:
    return Row(case, scale * statistics.median(times), scale * min(times), unit, limit)


def over(case: str, times: list[float], bare: list[float], limit: float) -> Row:
    """Return the median of the differences, in us, of runs that were made next to each other."""
    differences = [time - other for time, other in zip(times, bare, strict=True)]
    return Row(case, 1e6 * statistics.median(differences), 1e6 * (min(times) - min(bare)), "us", limit)


def timer(statement: str, count: int, **names: Any) -> Callable[[], float]:
    """Make a run that returns the seconds per call of `count` calls."""
    timer = Timer(statement, globals=names)
    return lambda: timer.timeit(count) / count


def waiting(device: Device, run: Callable[[], float]) -> Callable[[], float]:
    """Make a run after which the device has done all work; the time of the run does not include the wait."""

    def run_and_wait() -> float:
        took = run()
        device.synchronize()
        return took

    return run_and_wait


def square(n: int) -> tuple[Any, Any, Any]:
    """Make a matrix in Fortran order and two vectors."""
    return np.ones((n, n), np.float32, order="F"), np.ones(n, np.float32), np.zeros(n, np.float32)


def on_the_cpu(bare: Any, rounds: int) -> list[Row]:
    actual = libraries.load("cblas")
    symbols = [f"{prefix}cblas_sgemv{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_")]
    if all(bare.lib.bare_open_cblas(actual.path.encode(), symbol.encode()) for symbol in symbols):
        raise SystemExit(f"{actual.path} has none of {', '.join(symbols)}")
    n, count = 8, 200  # short, so that most runs are not interrupted
    arrays = square(n)
    A, x, y = (bare.ffi.cast("bare_f32 *", array.ctypes.data) for array in square(n))
    matrices = [np.ones((n, n), np.float32) for _ in range(3)]
    kilobytes = [np.ones(256, np.float32) for _ in range(3)]
    with offload_args(*arrays, device="host") as (dA, dx, dy):
        names = {"n": n, "dA": dA, "dx": dx, "dy": dy, "A": A, "x": x, "y": y}
        names |= {"column": cblas.ColMajor, "op": cblas.NoTrans}
        in_c, raw, vendor, portable, by_rows = measure(
            rounds,
            lambda: bare.lib.bare_cblas_loop(count, n, A, x, y) / count,
            timer("f(column, op, n, n, 1.0, A, n, x, 1, 0.0, y, 1)", count, f=bare.lib.bare_cblas_sgemv, **names),
            timer("f(column, op, n, n, 1.0, dA, n, dx, 1, 0.0, dy, 1)", count, f=cblas.sgemv, **names),
            timer("f(1.0, dA, dx, 0.0, dy)", count, f=blas.gemv, **names),
            timer("f(1.0, dA, dx, 0.0, dy)", count, f=blas.gemv, **(names | {"dA": dA.T})),
        )
    with offload_args(*matrices, device="host") as (dA, dB, dC):
        names = {"n": n, "dA": dA, "dB": dB, "dC": dC, "order": cblas.RowMajor, "op": cblas.NoTrans}
        product, portable_product = measure(
            rounds,
            timer("f(order, op, op, n, n, n, 1.0, dA, n, dB, n, 0.0, dC, n)", count, f=cblas.sgemm, **names),
            timer("f(1.0, dA, dB, 0.0, dC)", count, f=blas.gemm, **names),
        )
    statement = "with lend(a, b, c, device='host') as (da, db, dc): pass"
    a, b, c = kilobytes
    (entering,) = measure(rounds, timer(statement, 50, lend=offload_args, a=a, b=b, c=c))
    return [
        row(f"host: sgemv, n = {n}, in C", in_c, "us"),
        row("host: the same through bare cffi", raw, "us"),
        over("host: cblas.sgemv over bare cffi", vendor, raw, 0.1),
        over("host: blas.gemv, Fortran order, over bare cffi", portable, raw, 0.4),
        over("host: blas.gemv, C order, over bare cffi", by_rows, raw, 0.4),
        over("host: blas.gemm over cblas.sgemm", portable_product, product, 0.1),
        row("host: enter and exit, three arrays of 1 KiB", entering, "us", 6),
    ]


def on_the_gpu(bare: Any, rounds: int) -> list[Row]:
    device = Device("cuda:0")
    if bare.lib.bare_open_cublas(libraries.load("cublas").path.encode()):
        raise SystemExit("the bare calls can't open cuBLAS")
    bare.lib.bare_current(0)

    def with_context(run: Callable[[], float]) -> float:
        """Make the context current for bare calls; the package's calls make it current themselves."""
        bare.lib.bare_current(1)
        took = run()
        bare.lib.bare_synchronize()
        bare.lib.bare_current(0)
        return took

    rows = []
    for n, count in [(64, 400), (256, 400), (1024, 400), (4096, 200)]:
        # The bare calls have separate arrays, because taking an address changes the treatment of a mapping.
        with (
            offload_args(*square(n), device=device) as (dA, dx, dy),
            offload_args(*square(n), device=device) as pointers,
        ):
            A, x, y = (bare.ffi.cast("bare_f32 *", pointer.address) for pointer in pointers)
            names = {"n": n, "dA": dA, "dx": dx, "dy": dy, "A": A, "x": x, "y": y, "op": cublas.OP_N}
            raw_call = "f(op, n, n, 1.0, A, n, x, 1, 0.0, y, 1)"
            call = "f(op, n, n, 1.0, dA, n, dx, 1, 0.0, dy, 1)"

            issue = 100  # the calls that the GPU's queue takes without waiting
            raw_issue = timer(raw_call, issue, f=bare.lib.bare_cublas_sgemv, **names)
            issued = timer(call, issue, f=cublas.sgemv, **names)
            portable = timer("f(1.0, dA, dx, 0.0, dy)", issue, f=blas.gemv, **names)
            loop = f"for _ in range({count}): {call}\nwait()"
            finished = timer(loop, 1, f=cublas.sgemv, wait=device.synchronize, **names)

            def in_c(A: Any = A, x: Any = x, y: Any = y, n: int = n, count: int = count) -> float:
                return float(bare.lib.bare_cublas_loop(count, n, A, x, y))

            runs: list[Callable[[], float]] = [
                lambda in_c=in_c: with_context(in_c),
                waiting(device, finished),
                lambda raw_issue=raw_issue: with_context(raw_issue),
                waiting(device, issued),
                waiting(device, portable),
            ]
            loop_c, loop_ours, raw, vendor, portably = measure(rounds, *runs)
        title = f"cuda:0: sgemv, n = {n}"
        ratio = statistics.median(ours / c for ours, c in zip(loop_ours, loop_c, strict=True))
        rows += [
            row(f"{title}, loop in C, a call", loop_c, "us", scale=1e6 / count),
            row(f"{title}, the loop here, a call", loop_ours, "us", scale=1e6 / count),
            Row(f"{title}, the loop here over that in C", ratio, min(loop_ours) / min(loop_c), "x", 1.10),
            row(f"{title}, issued through bare cffi", raw, "us"),
            over(f"{title}, cublas.sgemv over bare cffi", vendor, raw, 0.1),
            over(f"{title}, blas.gemv over bare cffi", portably, raw, 0.4),
        ]
    return [*rows, of_batches(device, rounds)]


def of_batches(device: Device, rounds: int) -> Row:
    """Measure the additional cost of blas.gemm of a batch over the vendor's function."""
    n, batch, count = 8, 4, 100
    matrices = [np.ones((batch, n, n), np.float32) for _ in range(3)]
    with offload_args(*matrices, device=device) as (dA, dB, dC):
        names = {"n": n, "s": n * n, "batch": batch, "dA": dA, "dB": dB, "dC": dC, "op": cublas.OP_N}
        call = "f(op, op, n, n, n, 1.0, dB, n, s, dA, n, s, 0.0, dC, n, s, batch)"
        vendor = timer(call, count, f=cublas.sgemm_strided_batched, **names)
        portable = timer("f(1.0, dA, dB, 0.0, dC)", count, f=blas.gemm, **names)
        times = measure(rounds, waiting(device, vendor), waiting(device, portable))
    return over("cuda:0: blas.gemm of a batch over cublas.sgemm_strided_batched", times[1], times[0], 0.1)


def of_blas(device: Device, rounds: int) -> list[Row]:
    """Measure the additional cost of each function of `blas` over the vendor's function; some need a GPU."""
    assert set(CALLS) == set(blas.__all__)
    rows, count = [], 100
    operands = Operands(device)
    with operands as names:
        for name in CALLS:
            pair = operands.statements(name)
            if pair is None:
                continue
            vendor, portable = (
                timer(statement, count, **names, f=function) for statement, function in (pair.vendor, pair.portable)
            )
            of_vendor, of_blas = measure(rounds, waiting(device, vendor), waiting(device, portable))
            rows.append(over(f"{device.name}: blas.{name} over {CALLS[name].vendor}", of_blas, of_vendor, 0.1))
    return rows


def importing() -> Row:
    def run() -> float:
        return float(subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True).stdout)

    (times,) = measure(11, run)
    return row("import offload_args, NumPy imported", times, "ms", 40, scale=1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--rounds", type=int, default=301, help="of which medians are taken (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare = compile_bare(Path(folder))
        rows = on_the_cpu(bare, options.rounds)
        rows += of_blas(Device.host(), options.rounds)
        rows.append(importing())
        try:
            model = Device("cuda:0").model
        except DeviceUnavailableError:
            model = ""
        if model:
            rows += on_the_gpu(bare, options.rounds)
            rows += of_blas(Device("cuda:0"), options.rounds)
    place = f"Python {platform.python_version()}, cffi {cffi.__version__}" + (f", {model}" if model else ", no GPU")
    print(place)
    print(f"{f'median of {options.rounds} rounds':62} {'median':>9} {'best':>9}")
    for row in rows:
        limit = "" if row.limit is None else f"at most {row.limit:g}: {row.verdict}"
        print(f"{row.name:62} {row.value:9.3f} {row.best:9.3f} {row.unit:2}  {limit}".rstrip())
    if options.json:
        built = [row._asdict() | {"verdict": row.verdict} for row in rows]
        options.json.write_text(json.dumps({"where": place, "rounds": options.rounds, "rows": built}, indent=2) + "\n")


if __name__ == "__main__":
    main()
