"""Refuses orders that do not fit: each error names the operand, the needed order, and a copy that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .._names import note_names
from .._operands import LETTERS, unordered
from ..display import shown
from ..dtypes import converted, ordered
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, OffloadError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from ._vendors import Enums

__all__ = ["conjugated_operands", "for_stacks", "inexpressible", "joined", "need_panels", "no_narrow", "note_exchange"]


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
    remedies = joined("copy", [_copied(name, operand, operands[operand], order) for operand in differing])
    return ArgumentError(f"blas.{name}: {rule}, got {orders}; {remedies}")


def joined(verb: str, remedies: list[str]) -> str:
    """Return several remedies as a phrase; `verb` begins each of them that assigns an operand."""
    if len(remedies) > 1 and all(remedy.startswith(f"{verb} it first: ") for remedy in remedies):
        return f"{verb} them first: " + "; ".join(remedy.partition(": ")[2] for remedy in remedies)
    return " and ".join(remedies)


def no_narrow(name: str, library: str, **operands: DevicePtr) -> DTypeError:
    """Return the error for a narrow A; the remedy is a dtype for all operands.

    library: the name in messages of a library that has no narrow products, or "" if B and C do not fit to A.
    """
    wide = [pointer.dtype for pointer in operands.values() if pointer._dtype_code in LETTERS]
    narrow = operands["A"].dtype.name
    dtype = np.result_type(*wide).name if wide else "float64" if narrow == "int8" else "float32"
    differing = {operand: pointer for operand, pointer in operands.items() if pointer.dtype.name != dtype}
    remedies = [converted(operand, dtype, pointer) for operand, pointer in differing.items()]
    needed = f"needs {dtype}, as the others" if wide else f"needs {dtype} or a wider dtype"
    why = f", for {library} has no product of {narrow} matrices" if library else f", got {narrow}"
    return DTypeError(f"blas.{name}: A {needed}{why}; {joined('convert', remedies)}")


def for_stacks(A: DevicePtr, B: DevicePtr, C: DevicePtr, trans_a: str, trans_b: str) -> str:
    """Return the remedy for a stack whose T, which reverses all dimensions, was passed; "" if there is none."""
    if len(C._shape) != 3:
        return ""
    remedies = [
        f'{trans}="T" and not {operand}.T'
        for operand, pointer, trans, value in (("A", A, "trans_a", trans_a), ("B", B, "trans_b", trans_b))
        if value == "N" and len(pointer._shape) == 3 and pointer._shape[0] != C._shape[0] == pointer._shape[2]
    ]
    return f"; for stacks, write {' and '.join(remedies)}" if remedies else ""


def note_exchange(error: BaseException, C: DevicePtr) -> None:
    """Add to an error of a product in C order that the library's function got A and B exchanged."""
    if isinstance(error, OffloadError) and not str(error).startswith("blas.") and _orders(C) == "C":
        note_names(error, {"A": "B", "B": "A"})
