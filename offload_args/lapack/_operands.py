"""Operands of LAPACK: what they are, in which order they lie, and the errors of those that do not fit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np

from .._core import invalidate, layout, query
from .._portable import contiguous, need_option, need_pointer
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError, DirectionError, DTypeError, OffloadError, WrongDeviceError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Iterator

    Pointer: TypeAlias = DevicePtr[Any]

__all__ = [
    "DTYPES",
    "INT32",
    "Columns",
    "Matrix",
    "columns",
    "factored",
    "matrix",
    "need_pivots",
    "need_solvable",
    "option",
    "refuse",
    "square",
    "vector",
]

#: The letters of LAPACK's dtypes, by oa_dtype, and the dtypes of their absolute values.
DTYPES: Final = {
    DTYPE_NAMES.index(name): letter
    for name, letter in (("float32", "s"), ("float64", "d"), ("complex64", "c"), ("complex128", "z"))
}
REAL: Final = {"s": DTYPE_NAMES.index("float32"), "d": DTYPE_NAMES.index("float64")}
REAL_OF: Final = {"s": REAL["s"], "d": REAL["d"], "c": REAL["s"], "z": REAL["d"]}
INT32: Final = DTYPE_NAMES.index("int32")


class _Any:
    """A routine that takes every pointer, for layout()."""

    def entry(self, kind: dict[Any, Any]) -> bool:
        kind[self] = True
        return True


_ANY: Final = _Any()


class Matrix(NamedTuple):
    """A matrix: its shape, and its leading dimension in Fortran order and in C order, 0 where it has another order."""

    rows: int
    columns: int
    ld_f: int
    ld_c: int


#: The same of right sides: a vector is one column.
Columns: TypeAlias = Matrix


def letter_of(name: str, operand: str, pointer: Pointer, takes: str = "sdcz") -> str:
    """Return the letter of a pointer's dtype; raise HostPointerError or DTypeError if it has none of `takes`."""
    need_pointer(f"lapack.{name}", operand, pointer)
    letter = DTYPES.get(pointer._dtype_code, "")
    if not letter or letter not in takes:
        allowed = " or ".join(DTYPE_NAMES[code] for code, one in DTYPES.items() if one in takes)
        other = "; heevd takes complex ones" if name == "syevd" and letter else ""
        raise DTypeError(f"lapack.{name}: {operand} needs {allowed}, got {pointer.dtype}{other}")
    return letter


def _need_dtype(name: str, operand: str, pointer: Pointer, code: int, reason: str) -> None:
    need_pointer(f"lapack.{name}", operand, pointer)
    if pointer._dtype_code != code:
        raise DTypeError(f"lapack.{name}: {operand} needs {DTYPE_NAMES[code]} {reason}, got {pointer.dtype}")


def _need_dimensions(name: str, operand: str, pointer: Pointer, ndim: int, remedy: str) -> None:
    if len(pointer._shape) != ndim:
        dimensions = f"{ndim} dimension{'s' * (ndim > 1)}"
        raise ArgumentError(f"lapack.{name}: {operand} has shape {pointer._shape}, needs {dimensions}; {remedy}")


def matrix(name: str, operand: str, pointer: Pointer, like: Pointer | None = None) -> Matrix:
    """Return the geometry of a matrix in C or Fortran order; like: the operand A, whose dtype it needs."""
    if like is not None:
        _need_dtype(name, operand, pointer, like._dtype_code, "as A has")
    need_pointer(f"lapack.{name}", operand, pointer)
    _need_dimensions(name, operand, pointer, 2, "pass one matrix at a time")
    found = Matrix(*layout("2", _ANY, pointer)[1])
    if not (found.ld_f or found.ld_c):
        raise ArgumentError(
            f"lapack.{name}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs unit stride in "
            f"one dimension and rows or columns that do not overlap; copy it on the host: "
            f"numpy.asfortranarray({operand})"
        )
    return found


def square(name: str, operand: str, pointer: Pointer) -> Matrix:
    """Return the geometry of a square matrix."""
    found = matrix(name, operand, pointer)
    if found.rows != found.columns:
        raise ArgumentError(f"lapack.{name}: {operand} has shape {pointer._shape}, needs as many rows as columns")
    return found


def columns(name: str, operand: str, pointer: Pointer, rows: int, reason: str, like: Pointer) -> Columns:
    """Return the geometry of right sides: a matrix, or a vector that is one column."""
    _need_dtype(name, operand, pointer, like._dtype_code, "as A has")
    if len(pointer._shape) not in (1, 2):
        _need_dimensions(name, operand, pointer, 2, "or one")
    if pointer._shape[0] != rows:
        needed = f"({rows},{' n)' if len(pointer._shape) == 2 else ')'}"
        raise ArgumentError(f"lapack.{name}: {operand} has shape {pointer._shape}, needs {needed} {reason}")
    return matrix(name, operand, as_columns(pointer))


def as_columns(pointer: Pointer) -> Pointer:
    """Return a pointer to right sides as a matrix."""
    return pointer[:, None] if len(pointer._shape) == 1 else pointer


def need_fortran(name: str, operand: str, pointer: Pointer, found: Matrix, reason: str = "") -> int:
    """Return the leading dimension of a matrix in Fortran order; raise ArgumentError, naming the copy, for another."""
    if not found.ld_f:
        copy = "numpy.asfortranarray" if len(pointer._shape) == 2 else "numpy.ascontiguousarray"
        raise ArgumentError(
            f"lapack.{name}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs Fortran order"
            f"{reason}; lend a copy in it: {copy}({operand})"
        )
    return found.ld_f


def vector(name: str, operand: str, pointer: Pointer, size: int, code: int, reason: str) -> None:
    """Check a vector of LAPACK's own: its dtype and size, and that its elements lie one behind the other."""
    _need_dtype(name, operand, pointer, code, reason)
    contiguous(f"lapack.{name}", operand, pointer, size, reason)


def need_pivots(name: str, ipiv: Pointer) -> None:
    """Raise ArgumentError for pivots that getrf can't have left: libraries do not check them, and write there."""
    pivots = ipiv.to_host()
    n = len(pivots)
    wrong = np.flatnonzero((pivots < np.arange(1, n + 1)) | (pivots > n))
    if len(wrong):
        i = int(wrong[0])
        raise ArgumentError(
            f"lapack.{name}: ipiv[{i}] is {pivots[i]}, needs to be from {i + 1} to {n}: pivots count from 1, as getrf "
            f"returns them; SciPy's lu_factor counts from 0: pass piv + 1"
        )


def need_solvable(name: str, A: Pointer, B: Pointer) -> None:
    """Raise what the solution would raise for its right sides, as far as it is known before A is factored."""
    if B._device != A._device:
        raise WrongDeviceError(
            f"lapack.{name}: B is on {B.device}, and A is on {A.device}; all pointers of a call must be on one device"
        )
    if not query(B).writable:
        raise DirectionError(
            f"lapack.{name}: B needs to be writable, but was lent as In or is read-only; lend it as InOut"
        )


def option(name: str, what: str, value: object, known: tuple[str, ...]) -> None:
    need_option(f"lapack.{name}", what, value, known)


def _undefine(written: dict[str, Pointer]) -> str:
    """Mark a call's outputs as undefined, so that none of them comes down. Return the end of its error's message."""
    for pointer in written.values():
        try:
            invalidate(pointer)
        except OffloadError:  # it has no element, or the device is lost: then nothing comes down
            pass
    listed = " and ".join(written)
    return f"; {listed} {'are' if len(written) > 1 else 'is'} undefined on the device now" if written else ""


def refuse(name: str, text: str, **written: Pointer) -> NoReturn:
    """Raise LinAlgError, after the call's outputs were marked as undefined."""
    raise np.linalg.LinAlgError(f"lapack.{name}: {text}{_undefine(written)}")


@contextmanager
def factored(name: str, **written: Pointer) -> Iterator[None]:
    """Mark a call's outputs as undefined if a step after the factoring of A fails, and say so in its error."""
    try:
        yield
    except OffloadError as error:
        error.args = (f"lapack.{name}: {error}{_undefine(written)}",)
        raise
