"""Refuses orders that do not fit: each error names the operand, the needed order, and a copy that helps."""

from __future__ import annotations

from .._names import note_names
from .._operands import unordered
from ..dtypes import ordered
from ..errors import ArgumentError, OffloadError
from ..pointers import DevicePtr

__all__ = ["inexpressible", "note_exchange"]


def _order(A: DevicePtr) -> str:
    """Return the order of a matrix, or of each matrix of a batch: "F", "C" or "" for neither."""
    (m, n), (down, across), itemsize = A._shape[-2:], A._strides[-2:], A.dtype.itemsize
    if (m <= 1 or down == itemsize) and (n <= 1 or (across >= m * itemsize and across % itemsize == 0)):
        return "F"
    return "C" if across == itemsize and down >= n * itemsize and down % itemsize == 0 else ""


def inexpressible(name: str, rule: str, **operands: DevicePtr) -> ArgumentError:
    """Return the error for an operand without an order, or for orders that break `rule` together."""
    for operand, pointer in operands.items():
        if not _order(pointer):
            return unordered(f"blas.{name}", operand, pointer, "ascontiguousarray")
    orders = ", ".join(f"{operand} {_order(pointer)}" for operand, pointer in operands.items())
    first, pointer = next(iter(operands.items()))
    copy = "asfortranarray" if _order(pointer) == "C" else "ascontiguousarray"
    return ArgumentError(
        f"blas.{name}: {rule}, got {orders}; copy one of them into the other order, such as {first}: "
        f"{ordered(first, pointer, copy)}"
    )


def note_exchange(error: BaseException, C: DevicePtr) -> None:
    """Add to an error of a product in C order that the library's function got A and B exchanged."""
    if isinstance(error, OffloadError) and not str(error).startswith("blas.") and _order(C) == "C":
        note_names(error, {"A": "B", "B": "A"})
