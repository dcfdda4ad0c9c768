"""Refuses what a function of BLAS can't take: each refusal names the argument, what it needs and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import ArgumentError, DTypeError, HostPointerError
from ..pointers import DevicePtr
from ._routine import DTYPES, is_complex

if TYPE_CHECKING:
    from ._routine import Pointer, Routine

__all__ = ["OPTIONS", "WRONG", "explain", "fits", "forward", "inexpressible", "misfit", "stored", "unaligned"]

# name: (operand, its number of dimensions, 0 for one element)
Operands: TypeAlias = "dict[str, tuple[Pointer, int]]"

# The exceptions of wrong operands and options, which explain replaces: no DevicePtr, a dtype, an option, dimensions.
WRONG: Final = (AttributeError, KeyError, TypeError, ValueError)

OPTIONS: Final = {
    "trans": ("N", "T", "C"),
    "trans_a": ("N", "T", "C"),
    "trans_b": ("N", "T", "C"),
    "uplo": ("U", "L"),
    "side": ("L", "R"),
    "diag": ("N", "U"),
}

# The routines that take the complex dtypes instead of one that takes real ones.
COMPLEX_FORMS: Final = {
    "dot": "dotu and dotc take",
    "sbmv": "hbmv takes",
    "spmv": "hpmv takes",
    "spr": "hpr takes",
    "spr2": "hpr2 takes",
}


def fits(pointer: Pointer, ndim: int) -> bool:
    """Return whether a pointer has so many dimensions, or for 0 of them one element."""
    return len(pointer._shape) == ndim or (not ndim and set(pointer._shape) == {1})


def explain(routine: Routine, operands: Operands, **options: str) -> None:
    """Raise the error of the first argument that the routine can't take; return if there is none."""
    name = f"blas.{routine.name}"
    for option, value in options.items():
        if value not in OPTIONS[option]:
            allowed = " or ".join(f'"{known}"' for known in OPTIONS[option])
            raise ArgumentError(f"{name}: {option} must be {allowed}, got {value!r}") from None
    takes = [DTYPES[code] for code, function in routine.functions.items() if function != "-"]
    first = ""
    for operand, (pointer, ndim) in operands.items():
        if not isinstance(pointer, DevicePtr):
            got = f"{type(pointer).__module__}.{type(pointer).__qualname__}".removeprefix("builtins.")
            raise HostPointerError(
                f"{name}: {operand} needs a DevicePtr, got {got}; "
                f"lend it first: with offload_args({operand}) as (d{operand},)"
            ) from None
        if routine.functions.get(pointer._dtype_code, "-") == "-":
            other = COMPLEX_FORMS.get(routine.name) if is_complex(pointer._dtype_code) else None
            hint = f"; {other} complex operands" if other else ""
            raise DTypeError(f"{name}: {operand} needs {' or '.join(takes)}, got {pointer.dtype}{hint}") from None
        first = first or operand
        if pointer._dtype_code != operands[first][0]._dtype_code:
            raise DTypeError(
                f"{name}: {operand} is {pointer.dtype}, needs {first}'s {operands[first][0].dtype}; "
                f"cast one of them on the host"
            ) from None
        if not fits(pointer, ndim):
            if not ndim:
                raise ArgumentError(
                    f"{name}: {operand} has shape {pointer._shape}, needs one element; pass a part, such as "
                    f"{operand}[{', '.join(['0:1'] * len(pointer._shape))}]"
                ) from None
            remedy = f"; pass a row or column, such as {operand}[0]" if ndim == 1 else f"; pass {operand}[:, None]"
            if len(pointer._shape) > 2:
                remedy = f"; pass a part of it, such as {operand}[{'0, ' * (len(pointer._shape) - ndim - 1)}0]"
            raise ArgumentError(
                f"{name}: {operand} has shape {pointer._shape}, needs {ndim} dimension{'s' * (ndim > 1)}{remedy}"
            ) from None


def misfit(name: str, operand: str, pointer: Pointer, needed: tuple[int, ...], reason: str) -> ArgumentError:
    return ArgumentError(f"blas.{name}: {operand} has shape {pointer._shape}, needs {needed} {reason}")


def unaligned(name: str, **operands: Pointer) -> ArgumentError:
    odd = {operand: p for operand, p in operands.items() if any(s % p.dtype.itemsize for s in p._strides)}
    operand, pointer = next(iter(odd.items()))
    return ArgumentError(
        f"blas.{name}: {operand} has strides {pointer._strides}, needs multiples of {pointer.dtype.itemsize} bytes; "
        f"copy it on the host: numpy.ascontiguousarray({operand})"
    )


def inexpressible(name: str, rule: str, **operands: Pointer) -> ArgumentError:
    """The error for operands of which one has no order, or else whose orders do not fit together: `rule` says how."""
    for operand, pointer in operands.items():
        if not any(stored(pointer)):
            return ArgumentError(
                f"blas.{name}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs unit stride "
                f"in one dimension and rows or columns that do not overlap; copy it on the host: "
                f"numpy.ascontiguousarray({operand})"
            )
    orders = ", ".join(f"{operand} {'F' if stored(pointer)[0] else 'C'}" for operand, pointer in operands.items())
    return ArgumentError(f'blas.{name}: {rule}, got {orders}; lend one in the other order: order="F" or order="C"')


def forward(name: str, operand: str, inc: int) -> int:
    """Return a vector's increment as the leading dimension of a matrix of one row."""
    if inc < 1:
        if name in ("symv", "syr", "syr2"):
            reason = f"for a complex A on this device; copy it on the host: numpy.ascontiguousarray({operand})"
        else:
            reason = 'for a complex A in C order; lend A in Fortran order: numpy.asfortranarray(A), order="F"'
        raise ArgumentError(f"blas.{name}: {operand} has a stride of {inc} elements, needs a positive one {reason}")
    return inc


def stored(A: Pointer) -> tuple[int, int]:
    """Return the leading dimensions of A stored by columns and by rows; 0 where it is not. A vector can be both."""
    _, _, _, by_columns, by_rows = A._geometry
    return by_columns, by_rows
