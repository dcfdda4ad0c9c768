"""How operands lie in memory: as the increments and leading dimensions of BLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ._refusals import OPTIONS, WRONG, explain, fits, misfit, unaligned

if TYPE_CHECKING:
    from ._refusals import Operands
    from ._routine import Pointer, Routine
    from ._vendors import Enums

__all__ = ["contiguous", "entry", "increments"]


def entry(routine: Routine, operands: Operands, **options: str) -> tuple[Any, Enums]:
    """Return the vendor's function and its enums for operands of one dtype and the right dimensions, and options."""
    try:
        first = next(iter(operands.values()))[0]
        code = first._dtype_code
        _, call, enums = routine[first._device, code]
        if any(pointer._dtype_code != code or not fits(pointer, ndim) for pointer, ndim in operands.values()):
            raise KeyError
        if any(value not in OPTIONS[option] for option, value in options.items()):
            raise KeyError
    except WRONG:
        explain(routine, operands, **options)
        raise
    return call, enums


def increments(name: str, reason: str, **vectors: tuple[Pointer, int]) -> list[int]:
    """Return the increments of vectors; each must have the size beside it, for that reason."""
    for operand, (pointer, size) in vectors.items():
        if pointer._shape != (size,):
            raise misfit(name, operand, pointer, (size,), reason)
    found = [pointer._geometry[2] for pointer, _ in vectors.values()]
    if None in found:
        raise unaligned(name, **{operand: pointer for operand, (pointer, _) in vectors.items()})
    return found


def contiguous(name: str, operand: str, pointer: Pointer, size: int, reason: str) -> None:
    """Raise ArgumentError for a vector of another size, or with gaps, for which no function has an increment."""
    if pointer._shape != (size,):
        raise misfit(name, operand, pointer, (size,), reason)
    if size > 1 and pointer._strides[0] != pointer.dtype.itemsize:
        raise ArgumentError(
            f"blas.{name}: {operand} has strides {pointer._strides}, needs ({pointer.dtype.itemsize},), its elements "
            f"one behind the other; copy it on the host: numpy.ascontiguousarray({operand})"
        )
