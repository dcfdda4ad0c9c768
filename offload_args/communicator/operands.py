"""Checks of the arguments of a communicator's methods."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from .. import _core
from .._operands import need_option, need_pointer, need_whole
from ..devices import by_number
from ..display import plural, shown
from ..dtypes import DTYPE_NAMES, c_strides, ordered
from ..errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DirectionError,
    DTypeError,
    WrongDeviceError,
)

if TYPE_CHECKING:
    from ..pointers import DevicePtr

__all__ = [
    "OPERATIONS",
    "REDUCED",
    "check_aliases",
    "check_dtype",
    "check_exchanged",
    "check_operation",
    "check_order",
    "check_rank",
    "check_shape",
    "check_size",
    "check_whole",
    "flat",
]

OPERATIONS: Final = ("sum", "prod", "min", "max")
#: The dtypes that reductions take; both NumPy and NCCL have these dtypes.
REDUCED: Final = ("float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64")
_REDUCED_CODES: Final = {DTYPE_NAMES.index(name) for name in REDUCED}


def flat(function: str, name: str, pointer: DevicePtr[Any], device: int, *, writes: bool) -> DevicePtr[Any]:
    """Return an operand as a vector of its elements in the order of its memory."""
    need_pointer(function, name, pointer)
    if pointer._device != device:
        raise WrongDeviceError(
            f"{function}: {name} is on {pointer.device}, and the communicator is of {by_number(device)}; "
            f'lend it there: with offload_args(x, device="{by_number(device)}") as (dx,)'
        )
    info = _core.query(pointer)  # raises StalePointerError
    if info.captured:
        raise CaptureError(
            f"{function}: the region of {name} is being captured, and the method waits for the other ranks; call it "
            f"outside of the capture, or capture calls of nccl or rccl"
        )
    if writes and not info.writable:
        raise DirectionError(f"{function}: {name} is written, and was lent as In or is read-only; lend it as Out")
    shape, strides = pointer._shape, pointer._strides
    itemsize = pointer.dtype.itemsize
    if len(shape) == 1 and (strides[0] == itemsize or shape[0] < 2):
        return pointer
    if not pointer.size:
        return pointer.reshape(-1)
    if strides == c_strides(shape, itemsize):
        return pointer.reshape(-1)
    if strides[::-1] == c_strides(shape[::-1], itemsize):
        return pointer.T.reshape(-1)
    raise ArgumentError(
        f"{function}: {name} has shape {shape} with strides {strides}, and needs its elements one after the other, in "
        f"C or Fortran order; {ordered(name, pointer)}"
    )


def check_aliases(function: str, send: DevicePtr[Any], recv: DevicePtr[Any], part: int | None) -> None:
    """Raise AliasError if vectors overlap.

    The shorter vector may be the part with the number `part` of the longer vector. With None, no overlap is allowed.
    """
    (root, low), (other_root, other_low) = _core.origin(send), _core.origin(recv)
    if root != other_root or not send.nbytes or not recv.nbytes:
        return
    if low >= other_low + recv.nbytes or other_low >= low + send.nbytes:
        return
    small = min(send.nbytes, recv.nbytes)
    start = low - other_low if send.nbytes <= recv.nbytes else other_low - low
    if part is None:
        remedy = "use another array for the result"
    elif start == (0 if send.nbytes == recv.nbytes else part * small):
        return
    elif send.nbytes == recv.nbytes:
        remedy = "in place they are the same elements: leave out recv"
    else:
        remedy = f"in place the smaller is part {part} of the other, the rank's own: [{part} * n : {part + 1} * n]"
    raise AliasError(f"{function}: send and recv overlap; {remedy}")


def check_dtype(function: str, send: DevicePtr[Any], recv: DevicePtr[Any]) -> None:
    """Raise DTypeError unless both have the same dtype."""
    if send._dtype_code != recv._dtype_code:
        raise DTypeError(f"{function}: recv has dtype {recv.dtype}, needs send's dtype, {send.dtype}")


def check_size(function: str, recv: DevicePtr[Any], needed: int, reason: str) -> None:
    """Raise ArgumentError unless `recv` has the needed number of elements."""
    if recv.size != needed:
        raise ArgumentError(f"{function}: recv has {recv.size} elements, needs {needed}: {reason}")


def check_shape(function: str, send: DevicePtr[Any], recv: DevicePtr[Any]) -> None:
    """Raise ArgumentError unless both have the same shape and order."""
    if send._shape != recv._shape:
        raise ArgumentError(f"{function}: recv has shape {recv._shape}, needs send's shape, {send._shape}")
    check_order(function, send, recv)


def check_order(function: str, send: DevicePtr[Any], recv: DevicePtr[Any]) -> None:
    """Raise ArgumentError for two matrices of different orders. A vector has both orders."""
    if not _orders(send) & _orders(recv):
        raise ArgumentError(
            f"{function}: send and recv are stored in different orders, C and Fortran, and elements are combined in "
            "the order of memory; use one order for both"
        )


def _orders(pointer: DevicePtr[Any]) -> set[str]:
    shape = tuple(extent for extent in pointer._shape if extent != 1)
    if len(shape) < 2 or not pointer.size:
        return {"C", "F"}
    return {"C" if pointer._strides == c_strides(pointer._shape, pointer.dtype.itemsize) else "F"}


def check_operation(function: str, op: object, pointer: DevicePtr[Any]) -> None:
    """Raise an error for an unknown operation, and for a dtype that reductions do not take."""
    need_option(function, "op", op, OPERATIONS)
    if pointer._dtype_code not in _REDUCED_CODES:
        raise DTypeError(f"{function}: send needs {', '.join(REDUCED[:-1])} or {REDUCED[-1]}, got {pointer.dtype}")


def check_whole(function: str, name: str, value: object, least: int, most: int) -> int:
    """Return a number as an int; raise an error if it is no whole number, or outside of a range."""
    number = need_whole(function, name, value)
    if not least <= number <= most:
        raise ArgumentError(f"{function}: {name} needs a number from {least} to {most}, got {shown(value)}")
    return number


def check_exchanged(function: str, texts: object, own: bytes, rank: int, size: int) -> list[bytes]:
    """Return the texts that a program's function exchanged; raise an error if they are not the texts of all ranks."""
    needed = f"{function}: exchange needs to return a list of the {size} ranks' bytes, in rank order"
    if not isinstance(texts, (list, tuple)) or not all(
        isinstance(text, (bytes, bytearray, memoryview)) for text in texts
    ):
        raise ArgumentTypeError(f"{needed}, got {shown(texts)}")
    if len(texts) != size:
        raise ArgumentError(f"{needed}, got the bytes of {len(texts)} {plural('rank', len(texts))}")
    if bytes(texts[rank]) != own:
        raise ArgumentError(f"{needed}, and item {rank} differs from the bytes that rank {rank} passed to it")
    return [bytes(text) for text in texts]


def check_rank(function: str, name: str, rank: object, size: int) -> int:
    """Return a rank as an int; raise an error if the communicator does not have this rank."""
    try:
        number = operator.index(rank)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"{function}: {name} needs a rank, a whole number, got {shown(rank)}") from None
    if not 0 <= number < size:
        raise ArgumentError(f"{function}: {name} needs a rank from 0 to {size - 1}, got {shown(rank)}")
    return number
