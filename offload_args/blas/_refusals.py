"""Refuses shapes and layouts that do not fit: each error names the operand, its need and the copy that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError, OffloadError
from ._names import note_names

if TYPE_CHECKING:
    from ._routine import Pointer

__all__ = ["check_shape", "forward", "inexpressible", "misfit", "note_exchange"]


def misfit(name: str, operand: str, pointer: Pointer, needed: tuple[int, ...], reason: str) -> ArgumentError:
    return ArgumentError(f"blas.{name}: {operand} has shape {pointer._shape}, needs {needed} {reason}")


def check_shape(name: str, operand: str, pointer: Pointer, needed: tuple[int, ...], reason: str) -> None:
    if pointer._shape != needed:
        raise misfit(name, operand, pointer, needed, reason)


def _order(A: Pointer) -> str:
    """Return the order of a matrix, or of each of a batch: "F", "C" or "" for neither."""
    (m, n), (down, across), itemsize = A._shape[-2:], A._strides[-2:], A.dtype.itemsize
    if (m <= 1 or down == itemsize) and (n <= 1 or (across >= m * itemsize and across % itemsize == 0)):
        return "F"
    return "C" if across == itemsize and down >= n * itemsize and down % itemsize == 0 else ""


def inexpressible(name: str, rule: str, **operands: Pointer) -> ArgumentError:
    """The error for operands of which one has no order, or else whose orders do not fit together: `rule` says how."""
    for operand, pointer in operands.items():
        if not _order(pointer):
            return ArgumentError(
                f"blas.{name}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs unit stride "
                f"in one dimension and rows or columns that do not overlap; copy it on the host: "
                f"numpy.ascontiguousarray({operand})"
            )
    orders = ", ".join(f"{operand} {_order(pointer)}" for operand, pointer in operands.items())
    return ArgumentError(
        f"blas.{name}: {rule}, got {orders}; lend a copy in the other order: numpy.asfortranarray or "
        f'numpy.ascontiguousarray, order="F" or order="C"'
    )


def forward(name: str, operand: str, inc: int) -> int:
    """Return a vector's increment as the leading dimension of a matrix of one row."""
    if inc < 1:
        if name in ("symv", "syr", "syr2"):
            reason = f"for a complex A on this device; copy it on the host: numpy.ascontiguousarray({operand})"
        else:
            reason = 'for a complex A in C order; lend A in Fortran order: numpy.asfortranarray(A), order="F"'
        raise ArgumentError(f"blas.{name}: {operand} has a stride of {inc} elements, needs a positive one {reason}")
    return inc


def note_exchange(error: BaseException, C: Pointer) -> None:
    """Note on an error of the library's function for a product in C order that it got A and B exchanged."""
    if isinstance(error, OffloadError) and not str(error).startswith("blas.") and _order(C) == "C":
        note_names(error, {"A": "B", "B": "A"})
