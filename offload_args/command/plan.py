"""`python -m offload_args plan`: estimates the time of a product of matrices on each device, and with NumPy.

If the argument is a script, the command lists the script's BLAS calls that a GPU would make faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import Device, In, Out, Scratch, __version__, offload_args
from ..display import size_text, text_table, time_text
from ..errors import OffloadError
from .arguments import device
from .script import add_own_arguments, script_of

HELP = "estimate a product of matrices on each device, or the seconds that a GPU would save in a script"
DESCRIPTION = """With a script: run it as it is, count its calls of BLAS and LAPACK, and say on stderr which ones a GPU
would make faster, on which lines, and how much that would save. Nothing is offloaded and no GPU is needed: rates of a
GPU of today are assumed. The script gets all options after its name. With M, N and K: estimate how long C = A B takes
here, where A is M x K and B is K x N: on each device, with and without the copies of A, B and C, and with NumPy. It
measures for a few seconds. A product that would take longer is extrapolated from a smaller one, and marked with ~."""

DTYPES = ("f4", "f8", "c8", "c16")
MOST = 2**31 - 1
# The measured products grow until one takes more seconds than this, so that the measurement of one device takes about a
# second.
LONG = 0.05
LEAST_WORK = 1 << 20  # multiplications of the smallest measured product, unless the requested product is smaller
MOST_BYTES = 512 << 20  # the most bytes of all operands of a measured product
PAYS = 0.9  # a device pays if it takes less than this share of NumPy's time
MOST_COPIED = 64 << 20  # the most bytes of a measured copy

Shape = tuple[int, int, int]  # m, n, k
Array = NDArray[Any]


def _extent(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 10 or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"needs 1 to {MOST}, got {text}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"%(prog)s [-h] [-m] [--dtype {{{','.join(DTYPES)}}}] [--device D]\n"
        "           [--json] M N K\n"
        "       %(prog)s [-h] [-m] [--json] SCRIPT ..."
    )
    numbers = argparse.ArgumentParser(parser.prog, parser.usage, parser.description)
    numbers.add_argument("operands", nargs="+")
    for each in (parser, numbers):
        _add_options(each)
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module's name")
    parser.add_argument(
        "script",
        metavar="M N K | SCRIPT",
        help="rows of A and C, columns of B and C, columns of A and rows of B; or a script, or with -m a module",
    )
    add_own_arguments(parser)
    parser.set_defaults(numbers=numbers)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that may also follow M, N and K. Options after a script are the script's own."""
    parser.add_argument("--dtype", choices=DTYPES, help="of all three (f4)")
    parser.add_argument(
        "--device", type=device, action="append", metavar="D", help="only this one; may be given several times"
    )
    parser.add_argument(
        "--json", action="store_true", help="print it as JSON, times in seconds; for a script on stderr"
    )


@dataclass
class Estimate:
    """Estimate the product on one device, or with NumPy. Times are seconds, sizes bytes."""

    name: str
    model: str
    needs: int  #: bytes of its memory that the product needs
    free: int
    product: float = 0.0  #: the time if the arrays are on the device already
    up: float = 0.0
    down: float = 0.0
    region: float = 0.0  #: the time of a region and a call, for any size
    measured: Shape = (0, 0, 0)  #: m, n, k of the product that was measured
    extrapolated: bool = False
    copied: int = 0  #: bytes of a measured copy; 0: no copy was measured
    up_rate: float = 0.0  #: bytes per second
    down_rate: float = 0.0
    error: str = ""

    @property
    def total(self) -> float:
        """The time with the copies."""
        return self.region + self.up + self.product + self.down

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as plain data, without times if the estimate failed."""
        fits = self.needs <= self.free
        if self.error:
            return {"name": self.name, "model": self.model, "needs": self.needs, "free": self.free, "error": self.error}
        return {**asdict(self), "total": self.total, "fits": fits}


# -- measurements ------------------------------------------------------------------------------------------------------


def _operands(shape: Shape) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    m, n, k = shape
    return (m, k), (k, n), (m, n)


def _size(shape: Shape) -> int:
    """Return the elements of all three operands."""
    return sum(rows * columns for rows, columns in _operands(shape))


def _work(shape: Shape) -> int:
    m, n, k = shape
    return m * n * k


def smaller_products(shape: Shape, itemsize: int) -> Iterator[Shape]:
    """Yield products, each with eight times the work of the previous product, up to the requested shape.

    The largest extents are halved first, because the smallest extent affects the speed most. Products whose operands
    take much memory are left out.
    """
    shapes = [shape]
    while _work(shapes[-1]) > LEAST_WORK:
        now = list(shapes[-1])
        for _ in range(3):
            largest = now.index(max(now))
            now[largest] = (now[largest] + 1) // 2
        shapes.append((now[0], now[1], now[2]))
    for smaller in reversed(shapes):
        if _size(smaller) * itemsize <= MOST_BYTES:
            yield smaller


def _least_time(work: Callable[[], object], times: int = 3) -> float:
    """Return the least time of several runs after a warm-up; long runs are repeated fewer times."""
    work()
    taken: list[float] = []
    while len(taken) < times and sum(taken) < 4 * LONG:
        begun = perf_counter()
        work()
        taken.append(perf_counter() - begun)
    return min(taken)


def _numbers(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return numbers that look random: products of zeros take less time on a GPU."""
    pattern = np.random.default_rng(0).standard_normal(65521).astype(dtype)
    return np.resize(pattern, shape)


def _grow(
    estimate: Estimate, shape: Shape, dtype: np.dtype[Any], measure: Callable[[Shape, np.dtype[Any]], float]
) -> None:
    """Measure growing products until one takes long, and extrapolate from the product with the highest speed.

    On a busy machine the largest measured product may be slower than a smaller product.
    """
    seconds, last, fastest = 0.0, shape, math.inf
    for last in smaller_products(shape, dtype.itemsize):
        seconds = measure(last, dtype)
        fastest = min(fastest, seconds / _work(last))
        if seconds > LONG:
            break
    estimate.measured, estimate.extrapolated = last, last != shape
    estimate.product = fastest * _work(shape) if estimate.extrapolated else seconds


def _product_on(device: Device) -> Callable[[Shape, np.dtype[Any]], float]:
    from .. import blas

    def measure(shape: Shape, dtype: np.dtype[Any]) -> float:
        a, b, c = _operands(shape)
        arrays = In(_numbers(a, dtype)), In(_numbers(b, dtype)), Scratch(c, dtype)
        with offload_args(*arrays, device=device) as (A, B, C):

            def work() -> None:
                blas.gemm(1.0, A, B, 0.0, C)
                device.synchronize()

            return _least_time(work)

    return measure


def _product_by_numpy(shape: Shape, dtype: np.dtype[Any]) -> float:
    a, b, c = _operands(shape)
    A, B, C = _numbers(a, dtype), _numbers(b, dtype), _numbers(c, dtype)
    return _least_time(lambda: np.matmul(A, B, out=C))


def _measure_region(device: Device, dtype: np.dtype[Any]) -> float:
    """Return the time of a region with a call, whose arrays are so small that their copies take no time."""
    from .. import blas

    A, B, C = (np.ones((8, 8), dtype) for _ in range(3))

    def region() -> None:
        with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
            blas.gemm(1.0, dA, dB, 0.0, dC)

    return _least_time(region, 20)


def _measure_copies(device: Device, nbytes: int) -> tuple[float, float]:
    """Return the bytes per second of copies of a size, up and down."""
    array: Array = np.ones(nbytes, np.uint8)

    def up() -> float:
        with offload_args(In(array), device=device) as (pointer,):
            begun = perf_counter()
            _ = pointer.address  # brings the array up
            device.synchronize()
            return perf_counter() - begun

    def down() -> float:
        with offload_args(Out(array), device=device) as (pointer,):
            pointer.fill(1)
            device.synchronize()
            begun = perf_counter()
        return perf_counter() - begun

    return nbytes / min(up() for _ in range(4)), nbytes / min(down() for _ in range(4))


# -- the estimates -----------------------------------------------------------------------------------------------------


def _host_memory() -> int:
    """Return the bytes of memory that a program could still take."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def _on(device: Device, shape: Shape, dtype: np.dtype[Any]) -> Estimate:
    nbytes = _size(shape) * dtype.itemsize
    memory = device.memory
    free = _host_memory() - nbytes  # the arrays on the host take nbytes of it
    if device.is_gpu:
        free = memory.free if memory.total else nbytes  # the driver may not report its memory
    estimate = Estimate(device.name, device.model, nbytes, max(free, 0))
    try:
        estimate.region = _measure_region(device, dtype)
        _grow(estimate, shape, dtype, _product_on(device))
        a, b, c = (rows * columns * dtype.itemsize for rows, columns in _operands(shape))
        estimate.copied = min(max(a + b, c), MOST_COPIED)
        estimate.up_rate, estimate.down_rate = _measure_copies(device, estimate.copied)
        estimate.up, estimate.down = (a + b) / estimate.up_rate, c / estimate.down_rate
        estimate.extrapolated |= max(a + b, c) > estimate.copied
    except OffloadError as error:
        estimate.error = str(error)
    return estimate


def _with_numpy(shape: Shape, dtype: np.dtype[Any]) -> Estimate:
    estimate = Estimate("NumPy", f"{np.__version__}, without a region", _size(shape) * dtype.itemsize, _host_memory())
    _grow(estimate, shape, dtype, _product_by_numpy)
    return estimate


def _too_large(estimate: Estimate) -> list[str]:
    if estimate.needs <= estimate.free:
        return []
    return [
        f"{estimate.name}: the arrays do not fit: they need {size_text(estimate.needs)}, and "
        f"{size_text(estimate.free)} is free; "
        "multiply blocks of rows one after the other"
    ]


def advice(numpy: Estimate, estimate: Estimate) -> str:
    """Return a sentence about whether a device pays, compared with NumPy."""
    if estimate.error:
        return f"{estimate.name}: {estimate.error}"
    if too_large := _too_large(estimate):
        return too_large[0]
    if estimate.name == "host":
        return "host: does not pay: it computes on the CPU, as NumPy does, and copies besides"
    if estimate.total < PAYS * numpy.product:
        times = _times(numpy.product / estimate.total)
        return f"{estimate.name}: a single product pays, {times} as fast as NumPy with its copies"
    if estimate.product < PAYS * numpy.product:
        least = int((estimate.total - estimate.product) / (numpy.product - estimate.product)) + 1
        return (
            f"{estimate.name}: pays from {least:,} products on whose arrays stay on the device: "
            "in one region, or resident"
        )
    return f"{estimate.name}: does not pay: NumPy takes as long or less, without copies"


def _times(factor: float) -> str:
    return f"{factor:.2g} times"


def estimate(shape: Shape, dtype: np.dtype[Any], devices: Sequence[Device]) -> dict[str, Any]:
    """Return the estimates of the product as plain data."""
    numpy = _with_numpy(shape, dtype)
    estimates = [_on(device, shape, dtype) for device in devices]
    m, n, k = shape
    return {
        "offload_args": __version__,
        "product": {"m": m, "n": n, "k": k, "dtype": dtype.name, "nbytes": numpy.needs},
        "numpy": numpy.as_dict(),
        "devices": [estimate.as_dict() for estimate in estimates],
        "advice": [*_too_large(numpy), *(advice(numpy, estimate) for estimate in estimates)],
    }


def _row(entry: dict[str, Any], work: int) -> tuple[str, ...]:
    if entry["error"]:
        return (entry["name"], entry["model"], "", "", "", "", "not measured")
    about = "~" if entry["extrapolated"] else ""
    product = "~" * (_work(tuple(entry["measured"])) < work) + time_text(entry["product"])
    m, n, k = entry["measured"]
    copies, measured = ("", ""), f"{m} x {n} x {k}"
    if entry["copied"]:
        copies = about + time_text(entry["up"]), about + time_text(entry["down"])
        measured += f", copies of {size_text(entry['copied'])}"
    return entry["name"], entry["model"], product, *copies, about + time_text(entry["total"]), measured


def _plan_script(options: argparse.Namespace) -> int:
    from ..running import run_to_end, say
    from ..scripts import accelerate

    ignored = "--device" if options.device else "--dtype" if options.dtype else ""
    if ignored:
        print(
            f"plan: {ignored} is for M N K: the plan of a script assumes the rates of a GPU of today; "
            f"`python -m offload_args run --device D --report` runs a script on a device",
            file=sys.stderr,
        )
        return 2
    run_script = script_of(options.script, options.arguments, options.module)
    if run_script is None:
        print(f"plan: no file {options.script}", file=sys.stderr)
        return 2
    process, stderr = os.getpid(), sys.stderr
    on = accelerate(only_count=True)
    status = run_to_end(run_script, on.stop)
    if os.getpid() == process:  # not in a child that the script forked
        text = on.report.as_json() if options.json else f"\n-- offload_args plan\n{on.report}"
        say(text, stderr)
    return status


def _shape_of(sizes: Sequence[str]) -> Shape:
    """Read M, N and K. If they are not numbers, exit as argparse does."""
    try:
        m, n, k = (_extent(size) for size in sizes)
    except (argparse.ArgumentTypeError, ValueError) as error:
        text = str(error) if isinstance(error, argparse.ArgumentTypeError) else f"needs M, N and K, got {len(sizes)}"
        print(f"plan: {text}; or a script", file=sys.stderr)
        raise SystemExit(2) from None
    return m, n, k


def run(options: argparse.Namespace) -> int:
    if options.module or not options.script.lstrip("-").isdigit():
        return _plan_script(options)
    options = options.numbers.parse_args([options.script, *options.arguments], options)
    shape, dtype = _shape_of(options.operands), np.dtype(options.dtype or DTYPES[0])
    report = estimate(shape, dtype, options.device or Device.all())
    if options.json:
        print(json.dumps(report, indent=2))
        return 0
    product = report["product"]
    print(f"C = A B: {product['m']} x {product['n']} x {product['k']}, {dtype.name}, {size_text(product['nbytes'])}\n")
    header = ("", "", "product", "A, B up", "C down", "all", "measured")
    rows = [_row(entry, _work(shape)) for entry in (report["numpy"], *report["devices"])]
    print(*text_table([header, *rows]), sep="\n")
    print("", *report["advice"], sep="\n")
    if any("~" in cell for row in rows for cell in row):
        print("\n~: extrapolated from measured sizes")
    return 0
