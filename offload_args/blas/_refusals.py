"""Refuses orders that do not fit: each error names the operand, the needed order, and a copy that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._names import note_names
from .._operands import unordered
from ..display import shown
from ..dtypes import ordered
from ..errors import ArgumentError, ArgumentTypeError, OffloadError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from ._vendors import Enums

__all__ = ["conjugated_operands", "inexpressible", "need_panels", "note_exchange"]


# The functions whose operands are lists of matrices.
_OF_LISTS: Final = ("gemm_batched", "trsm_batched")


def _orders(A: DevicePtr) -> str:
    """Return the orders of a matrix, or of each matrix of a batch: "F", "C", "FC" or "" for neither."""
    (m, n), (down, across), itemsize = A._shape[-2:], A._strides[-2:], A.dtype.itemsize
    fortran = (m <= 1 or down == itemsize) and (n <= 1 or (across >= m * itemsize and across % itemsize == 0))
    by_rows = (n <= 1 or across == itemsize) and (m <= 1 or (down >= n * itemsize and down % itemsize == 0))
    return "F" * fortran + "C" * by_rows


def _copied(name: str, operand: str, pointer: DevicePtr, order: str) -> str:
    """Return the remedy for an operand, or a list of operands, of the other order."""
    copy = "asfortranarray" if order == "F" else "ascontiguousarray"
    remedy = ordered(operand, pointer, copy)
    if name in _OF_LISTS:
        return remedy.replace(f"np.{copy}({operand})", f"[np.{copy}(part) for part in {operand}]")
    if len(pointer._shape) == 3 and order == "F":
        turned = f"np.ascontiguousarray({operand}.swapaxes(1, 2)).swapaxes(1, 2)"
        return remedy.replace(f"np.{copy}({operand})", turned)
    return remedy


def need_panels(name: str, panels: object, devices: object) -> None:
    """Raise an error for a keyword `panels` that is no bool, as C reads it, or that forbids parts with `devices`."""
    if not isinstance(panels, bool):
        raise ArgumentTypeError(f"blas.{name}: panels needs True or False, got {shown(panels)}")
    if devices is not None and not panels:
        raise ArgumentError(f"blas.{name}: panels=False needs pointers, got devices; leave one of them out")


def conjugated_operands(enums: Enums, **options: str) -> str:
    """Return the letters of the operands whose operation no library has for the other order."""
    return "".join(operand for operand, trans in options.items() if enums.op[1][trans] is None)


def inexpressible(name: str, rule: str, together: str = "", **operands: DevicePtr) -> ArgumentError:
    """Return the error for an operand without an order, or for orders that break `rule` together.

    together: the letters of the operands that need one order; the remedy gives the others the order of the last.
    """
    for operand, pointer in operands.items():
        if not _orders(pointer):
            return unordered(f"blas.{name}", operand, pointer, "ascontiguousarray")
    orders = ", ".join(f"{operand} {_orders(pointer)[0]}" for operand, pointer in operands.items())
    order = _orders(operands[together[-1]])[0]
    differing = [operand for operand in together[:-1] if order not in _orders(operands[operand])]
    remedies = [_copied(name, operand, operands[operand], order) for operand in differing]
    if len(remedies) > 1 and all(remedy.startswith("copy it first: ") for remedy in remedies):
        remedies = ["copy them first: " + "; ".join(remedy.partition(": ")[2] for remedy in remedies)]
    return ArgumentError(f"blas.{name}: {rule}, got {orders}; {' and '.join(remedies)}")


def note_exchange(error: BaseException, C: DevicePtr) -> None:
    """Add to an error of a product in C order that the library's function got A and B exchanged."""
    if isinstance(error, OffloadError) and not str(error).startswith("blas.") and _orders(C) == "C":
        note_names(error, {"A": "B", "B": "A"})
