"""Products of host arrays by parts, with overlapped transfers; they may use several devices, and exceed a device's
memory."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product as pairs
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._names import rename
from .._operands import LETTERS, need_option
from ..arguments import In, InOut, Out, Scratch
from ..devices import as_device
from ..display import shown
from ..dtypes import code_of, refuse_masked, spelled
from ..errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    HostAccessError,
    OffloadError,
)
from ..pointers import DevicePtr
from ..regions import offload_args

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..devices import Device

__all__ = ["multiply"]

# The number of threads per device. While one waits for its results, the others bring up and compute their parts.
_THREADS: Final = 3
# A part has this many elements of C, which is enough work for all processors of a GPU. Parts of fewer than _LEAST rows
# make a product slower.
_PART: Final = 1 << 22
_LEAST: Final = 512
_UNIT: Final = 128
_SMALLEST: Final = 16  # the side of a tile
# Parts may take this share of the free memory.
_SHARE: Final = 0.8

# The name of an argument of a region of this module in messages.
_OWN_ARGUMENT: Final = re.compile(r"^offload_args: argument (\d)")

Part = tuple[slice, slice]  # of C


class _Product(NamedTuple):
    """The product C = alpha op(A) op(B) + beta C of arrays."""

    gemm: Callable[..., None]
    alpha: complex
    A: NDArray[Any]
    B: NDArray[Any]
    beta: complex
    C: NDArray[Any]
    trans_a: str
    trans_b: str

    @property
    def depth(self) -> int:
        """The number of terms of each sum."""
        depth: int = self.A.shape[self.trans_a == "N"]
        return depth

    def of_a(self, rows: slice, terms: slice = slice(None)) -> NDArray[Any]:
        """Return the part of A for some rows of C."""
        return self.A[rows, terms] if self.trans_a == "N" else self.A[terms, rows]

    def of_b(self, columns: slice, terms: slice = slice(None)) -> NDArray[Any]:
        """Return the part of B for some columns of C."""
        return self.B[terms, columns] if self.trans_b == "N" else self.B[columns, terms]

    def compute(self, A: DevicePtr, B: DevicePtr, beta: complex, C: DevicePtr) -> None:
        self.gemm(self.alpha, A, B, beta, C, trans_a=self.trans_a, trans_b=self.trans_b)


def multiply(
    gemm: Callable[..., None],
    alpha: Any,
    A: Any,
    B: Any,
    beta: Any,
    C: Any,
    trans_a: str,
    trans_b: str,
    devices: Sequence[Device | str],
) -> None:
    """Check the arguments, and do the work of blas.gemm with `devices`. `gemm` is blas.gemm for pointers."""
    used = _devices(devices)
    _check(alpha, A, B, beta, C, trans_a, trans_b)
    if not C.size:
        return
    if np.may_share_memory(A, B) and not _are_in_one_place(A, B):
        B = B.copy()  # otherwise, parts of A and B might overlap partly
    work = _Product(gemm, alpha, A, B, beta, C, trans_a, trans_b)
    spaces = [device.memory.free * _SHARE if device.memory.total else math.inf for device in used]
    if all(space >= _in_panels(work, _LEAST) for space in spaces):
        _by_panels(work, used, min(spaces))
    else:
        _by_tiles(work, used, min(spaces))


# -- arguments ---------------------------------------------------------------------------------------------------------


def _devices(devices: Sequence[Device | str]) -> list[Device]:
    if isinstance(devices, str) or not np.iterable(devices):
        raise ArgumentTypeError(
            f"blas.gemm: devices needs a list of devices, got {shown(devices)}; write [{devices!r}]"
        )
    used = [as_device(device) for device in devices]
    if not used:
        raise ArgumentError("blas.gemm: devices needs one device at least, got none; leave it out for pointers")
    if len(set(used)) < len(used):
        raise ArgumentError(f"blas.gemm: devices needs each device once, got {shown([str(device) for device in used])}")
    return used


def _check(alpha: Any, A: Any, B: Any, beta: Any, C: Any, trans_a: str, trans_b: str) -> None:
    """Raise the error of the first wrong argument, before anything is computed."""
    for name, array in (("A", A), ("B", B), ("C", C)):
        if isinstance(array, DevicePtr):
            raise HostAccessError(
                f"blas.gemm: with devices, {name} needs a NumPy array, got a DevicePtr; leave devices out"
            )
        refuse_masked(f"blas.gemm: {name}", array)
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(f"blas.gemm: {name} needs a NumPy array, got {type(array).__name__}")
        if array.ndim != 2:
            raise ArgumentError(f"blas.gemm: {name} has shape {array.shape}, needs 2 dimensions")
    code = code_of(A.dtype)
    if code not in LETTERS:
        raise DTypeError(
            f"blas.gemm: A needs float32, float64, complex64 or complex128, got {A.dtype}; convert it first: "
            f"A.astype(np.float64)"
        )
    for name, array in (("B", B), ("C", C)):
        if array.dtype != A.dtype:
            raise DTypeError(f"blas.gemm: {name} needs {spelled(A.dtype.name)} as A has, got {array.dtype}")
    for name, number in (("alpha", alpha), ("beta", beta)):
        if isinstance(number, DevicePtr) or not isinstance(number, (int, float, complex, np.number)):
            raise ArgumentTypeError(f"blas.gemm: with devices, {name} needs a number, got {shown(number)}")
        if isinstance(number, (complex, np.complexfloating)) and A.dtype.kind == "f":
            raise DTypeError(f"blas.gemm: {name} needs a real number for {A.dtype}, got {shown(number)}")
    need_option("blas.gemm", "trans_a", trans_a, ("N", "T", "C"))
    need_option("blas.gemm", "trans_b", trans_b, ("N", "T", "C"))
    m, k = A.shape if trans_a == "N" else A.shape[::-1]
    k_b, n = B.shape if trans_b == "N" else B.shape[::-1]
    if k != k_b or C.shape != (m, n):
        raise ArgumentError(
            f"blas.gemm: A of shape {A.shape}, B of shape {B.shape} and C of shape {C.shape} do not fit with "
            f'trans_a="{trans_a}" and trans_b="{trans_b}"'
        )
    for name, array in (("A", A), ("B", B)):
        if np.may_share_memory(array, C) and np.shares_memory(array, C):
            raise AliasError(
                f"blas.gemm: C shares memory with {name}, which later parts read; pass another array for C"
            )


# -- parts -------------------------------------------------------------------------------------------------------------


def _by_rows(work: _Product) -> bool:
    """Return whether parts of C are rows, because C is stored by rows; otherwise parts are columns."""
    return work.C.strides[0] >= work.C.strides[1]


def _panels(work: _Product, part: slice) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of op(A) and the same rows of C as a pair, or the columns of op(B) and the same columns of C."""
    return (work.of_a(part), work.C[part]) if _by_rows(work) else (work.of_b(part), work.C[:, part])


def _whole(work: _Product) -> NDArray[Any]:
    """Return the operand that all parts need."""
    return work.B if _by_rows(work) else work.A


def _in_panels(work: _Product, rows: int) -> float:
    """Return the bytes that each device needs while it computes parts of `rows` rows or columns."""
    whole, panels = _span(_whole(work)), _panels(work, slice(rows))
    return whole + _THREADS * sum(map(_span, panels))


def _are_in_one_place(A: NDArray[Any], B: NDArray[Any]) -> bool:
    """Return whether two arrays without gaps have the same memory, as an array and its transpose do."""
    flags = [array.flags.c_contiguous or array.flags.f_contiguous for array in (A, B)]
    return all(flags) and A.ctypes.data == B.ctypes.data and A.nbytes == B.nbytes


def _span(array: NDArray[Any]) -> int:
    """Return the bytes that an array takes on a device: from its first element to its last."""
    steps = (abs(stride) * (extent - 1) for extent, stride in zip(array.shape, array.strides, strict=True))
    return sum(steps) + array.itemsize if array.size else 0


def _by_panels(work: _Product, devices: Sequence[Device], space: float) -> None:
    """Compute panels of C: rows from rows of op(A) and all of op(B), or columns from all of op(A) and columns of
    op(B)."""
    along, across = work.C.shape if _by_rows(work) else work.C.shape[::-1]
    rows = max(_LEAST, -(-_PART // across // _UNIT) * _UNIT)
    while rows > _LEAST and _in_panels(work, rows) > space:
        rows //= 2
    by_rows = _by_rows(work)
    if [device.backend for device in devices] == ["host"]:
        rows = along
    starts = range(0, along, min(rows, -(-along // len(devices))))
    parts = [slice(start, min(start + starts.step, along)) for start in starts]
    result: type[Out | InOut] = Out if work.beta == 0 and work.depth else InOut

    def panels(device: Device, following: Callable[[], slice | None]) -> None:
        with offload_args(In(_whole(work)), device=device) as (whole,):
            while (part := following()) is not None:
                panel, c = _panels(work, part)
                with offload_args(In(panel), result(c), device=device) as (some, dc):
                    a, b = (some, whole) if by_rows else (whole, some)
                    work.compute(a, b, work.beta, dc)

    everything = slice(None)
    _share_out(work, devices, parts, panels, lambda part: (part, everything) if by_rows else (everything, part))


def _by_tiles(work: _Product, devices: Sequence[Device], space: float) -> None:
    """Compute square tiles of C. Each is a sum of products of tiles of A and B, which are brought up one after the
    other."""
    if not work.C.flags.writeable:
        raise DirectionError("blas.gemm: C is read-only, or lent; pass a writable array, outside of its region")
    (m, n), k = work.C.shape, work.depth
    # Each thread has a square tile of C, and tiles of A and B whose depth is a quarter of the side of C's tile.
    of_side = 1.5 * _THREADS * work.C.itemsize
    side = int(math.sqrt(space / of_side))
    if side < _SMALLEST:
        raise DeviceMemoryError(
            f"blas.gemm: the smallest tiles need {int(of_side * _SMALLEST**2)} bytes on each of "
            f"{', '.join(device.name for device in devices)}, and one has {int(space)}"
        )
    if side > _UNIT:
        side = side // _UNIT * _UNIT
    high, wide = (-(-size // -(-size // side)) for size in (m, n))  # tiles of about one size
    deep = max(side // 4, 1)
    parts = [
        (slice(i, min(i + high, m)), slice(j, min(j + wide, n))) for i, j in pairs(range(0, m, high), range(0, n, wide))
    ]
    dtype = work.C.dtype

    def tiles(device: Device, following: Callable[[], Part | None]) -> None:
        shapes = [(high, deep), (deep, wide), (high, wide)]
        memory = [Scratch(math.prod(shape), dtype) for shape in shapes]
        with offload_args(*memory, device=device) as places:
            while (part := following()) is not None:
                rows, columns = part
                height, width = rows.stop - rows.start, columns.stop - columns.start
                c = places[2][: height * width].reshape(height, width)
                if work.beta != 0:
                    c.assign(work.C[part])
                for start in range(0, max(k, 1), deep):  # if k is 0, C is only scaled
                    terms = slice(start, min(start + deep, k))
                    tile_a, tile_b = work.of_a(rows, terms), work.of_b(columns, terms)
                    a, b = (p[: t.size].reshape(t.shape) for p, t in zip(places, (tile_a, tile_b), strict=False))
                    a.assign(tile_a)
                    b.assign(tile_b)
                    work.compute(a, b, work.beta if start == 0 else 1, c)
                work.C[part] = c.to_host()

    _share_out(work, devices, parts, tiles, lambda part: part)


def _share_out(
    work: _Product,
    devices: Sequence[Device],
    parts: Sequence[Any],
    compute: Callable[[Device, Callable[[], Any]], None],
    of_c: Callable[[Any], Part],
) -> None:
    """Compute each part once, on the next free thread of a device.

    compute: the function that each thread runs. It requests one part after the other; a part is done when the function
    requests the next one. If a part fails, a note on the error names the parts that are done.
    """
    queue: SimpleQueue[Any] = SimpleQueue()
    for part in parts:
        queue.put(part)
    done: list[Any] = []
    stopped = Event()

    def of_thread(device: Device) -> None:
        current: list[Any] = []

        def following() -> Any:
            done.extend(current)
            current.clear()
            if stopped.is_set():
                return None
            try:
                current.append(queue.get_nowait())
            except Empty:
                return None
            return current[0]

        try:
            compute(device, following)
        except BaseException:
            stopped.set()
            raise

    # The host gets one thread, because its library uses several threads.
    threads = [device for i in range(_THREADS) for device in devices if i == 0 or device.backend != "host"]
    try:
        with ThreadPoolExecutor(len(threads), thread_name_prefix="offload_args product") as pool:
            try:
                for future in [pool.submit(of_thread, device) for device in threads[: len(parts)]]:
                    future.result()
            except BaseException:
                stopped.set()  # the pool waits for the parts that are under way
                raise
    except BaseException as error:
        if isinstance(error, OffloadError):
            rename(error, _OWN_ARGUMENT, _name_of_argument)
        error.add_note(_note(work, [of_c(part) for part in done]))
        raise


def _name_of_argument(match: re.Match[str]) -> str:
    return "blas.gemm: C" if match[1] == "2" else "blas.gemm: an operand"


def _note(work: _Product, done: list[Part]) -> str:
    """Return a note that names the finished elements of C."""
    names = []
    for rows, columns in sorted(done, key=lambda part: (part[0].start or 0, part[1].start or 0)):
        names.append(
            "C[" + ", ".join(f"{s.start}:{s.stop}" if s.start is not None else ":" for s in (rows, columns)) + "]"
        )
    return f"blas.gemm: done: {', '.join(names) or 'nothing'}; all other elements of C are as they were"
