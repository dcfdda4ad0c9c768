"""Checks of the operands of the portable modules, such as blas and lapack, and errors for operands that do not fit.

The argument `function` is a name as in messages, such as "blas.gemv".
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ._core import Checking, geometry, query
from .display import described, shown, text_of
from .dtypes import DTYPE_NAMES, converted, ordered
from .errors import ArgumentError, ArgumentTypeError, CaptureError, DTypeError, HostPointerError
from .pointers import DevicePtr, lent_first, listed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "COMPLEX_OF",
    "INT32",
    "LETTERS",
    "REAL_OF",
    "Matrix",
    "checking",
    "contiguous",
    "is_complex",
    "is_no_array",
    "letter_of",
    "matrix",
    "misfit",
    "need_bool",
    "need_dense",
    "need_dimensions",
    "need_dtype",
    "need_fortran",
    "need_function",
    "need_option",
    "need_path",
    "need_pointer",
    "need_shape",
    "need_uncaptured",
    "need_whole",
    "of_sparse",
    "square",
    "unordered",
    "vector",
]

#: The letters of BLAS's and LAPACK's dtypes, by oa_dtype.
LETTERS: Final = {
    DTYPE_NAMES.index(name): letter
    for name, letter in (("float32", "s"), ("float64", "d"), ("complex64", "c"), ("complex128", "z"))
}
_CODES: Final = {letter: code for code, letter in LETTERS.items()}
#: The dtypes of absolute values, by letter.
REAL_OF: Final = {"s": _CODES["s"], "d": _CODES["d"], "c": _CODES["s"], "z": _CODES["d"]}
#: The complex dtypes of the same precision, by letter.
COMPLEX_OF: Final = {"s": _CODES["c"], "d": _CODES["z"], "c": _CODES["c"], "z": _CODES["z"]}
#: The options that SciPy's numbers 0, 1 and 2 stand for; `lower` is the name of uplo there, `compute_v` of jobz.
_NUMBERS: Final = {"trans": "NTC", "side": "LR", "uplo": "UL", "diag": "NU", "jobz": "NV"}
INT32: Final = DTYPE_NAMES.index("int32")


class Matrix(NamedTuple):
    """The shape of a matrix, and its leading dimensions in Fortran order and in C order; 0 for a missing order."""

    rows: int
    columns: int
    ld_f: int
    ld_c: int


def is_complex(code: int) -> bool:
    """Return whether a dtype is complex."""
    return LETTERS.get(code, "s") in "cz"


def need_option(function: str, subject: str, value: object, known: Sequence[str]) -> None:
    """Raise ArgumentError for an unknown option."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        allowed = " or ".join(f'"{choice}"' for choice in known)
        text = text_of(value)
        meant = text if text in known else text.upper()
        numbers = _NUMBERS.get(subject.partition("_")[0], "")
        if numbers and isinstance(value, int):  # as in SciPy
            meant = numbers[value] if 0 <= value < len(numbers) else ""
        elif meant in ("LOWER", "UPPER", "LEFT", "RIGHT", "TRANSPOSE", "NONE", "CONJUGATE"):
            meant = meant[0]
        elif text.lower() in known:
            meant = text.lower()
        remedy = f'; write {subject}="{meant}"' if meant in known else ""
        raise ArgumentError(f"{function}: {subject} must be {allowed}, got {shown(value)}{remedy}") from None


def need_pointer(function: str, operand: str, pointer: object) -> None:
    """Raise HostPointerError for an operand that is not a DevicePtr."""
    if not isinstance(pointer, DevicePtr):
        got = f"{type(pointer).__module__}.{type(pointer).__qualname__}".removeprefix("builtins.")
        got = "None" if pointer is None else got
        remedy = unpacked(operand, pointer) or listed(operand, pointer) or of_sparse(pointer)
        remedy = remedy or lent_first(operand, pointer)
        if isinstance(pointer, np.ndarray) and "[" not in operand and function.startswith(("blas.", "lapack.")):
            remedy += f", or write call({function}, ...)"
        raise HostPointerError(f"{function}: {operand} needs a DevicePtr, got {got}; {remedy}") from None


def of_sparse(value: object) -> str:
    """Return the remedy for a sparse matrix in place of a dense operand; "" for any other value."""
    if not type(value).__module__.startswith(("scipy.sparse", f"{__package__}.sparse")):
        return ""
    return "sparse.matmul multiplies by a sparse matrix, sparse.spsolve solves with one, and A.toarray() is dense"


def need_dense(function: str, operand: str, value: object) -> None:
    """Raise ArgumentTypeError for objects of which NumPy would make arrays of objects, such as None."""
    if isinstance(value, (np.ndarray, np.generic)):
        return
    remedy = unpacked(operand, value) or of_sparse(value)
    if remedy or is_no_array(value):
        remedy = remedy or "pass an array, or a list of numbers"
        raise ArgumentTypeError(f"{function}: {operand} needs an array, got {described(value)}; {remedy}")


def is_no_array(value: object) -> bool:
    """Return whether NumPy would make an array of objects or of a text of a value."""
    return value is None or isinstance(value, (str, bytes, dict, set))


def need_whole(function: str, argument: str, value: object) -> int:
    """Return a number as an int; raise ArgumentTypeError if it is no whole number."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"{function}: {argument} needs a whole number, got {shown(value)}") from None


def need_bool(function: str, argument: str, value: object) -> None:
    """Raise ArgumentTypeError for an object that is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{function}: {argument} needs True or False, got {shown(value)}")


def need_path(function: str, argument: str, path: object) -> str:
    """Return a path as text; raise ArgumentTypeError for other objects, such as the number of an open file."""
    try:
        return os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f'{function}: {argument} needs a path, such as "name" or a pathlib.Path, got {shown(path)}'
        ) from None


def need_function(function: str, argument: str, value: object) -> None:
    """Raise ArgumentTypeError for an object that can't be called."""
    if not callable(value):
        raise ArgumentTypeError(f"{function}: {argument} needs a function, got {shown(value)}")


def need_uncaptured(
    function: str, *operands: DevicePtr[Any], instead: str = "", reads: str = "what the device computes"
) -> None:
    """Raise CaptureError if a chain captures the calls of an operand's region.

    `instead` describes the call to make in a chain. `reads` is the value that the host would read; this read is the
    reason for the refusal.
    """
    if any(query(operand).captured for operand in operands):
        raise CaptureError(
            f"{function}: the region is being captured, and the host reads {reads}: "
            f"{f'{instead}, or ' if instead else ''}make the call outside of the capture"
        )


def contiguous(function: str, operand: str, pointer: DevicePtr[Any], size: int, reason: str) -> None:
    """Raise ArgumentError for a vector of another size, or with gaps; the function takes no increment."""
    need_shape(function, operand, pointer, (size,), reason)
    if size > 1 and pointer._strides[0] != pointer.dtype.itemsize:
        raise ArgumentError(
            f"{function}: {operand} has strides {pointer._strides}, needs ({pointer.dtype.itemsize},), its elements "
            f"one after the other; {ordered(operand, pointer)}"
        )


def need_dtype(
    function: str, operand: str, pointer: DevicePtr[Any], codes: Iterable[int], reason: str = "", remedy: str = ""
) -> None:
    """Raise DTypeError for a pointer with another dtype; `reason` tells why one of the dtypes is needed."""
    if pointer._dtype_code not in codes:
        names = [DTYPE_NAMES[code] for code in codes]
        allowed = " or ".join(names)
        wanted = "float64" if "float64" in names else names[0]
        if not remedy and (not is_complex(pointer._dtype_code) or wanted.startswith("complex")):
            remedy = f"; {converted(operand, wanted, pointer)}"
        if wanted == "int32" and pointer.dtype.kind in "fc":  # such an operand often stands in the place of another
            remedy = f"; make it by np.empty({pointer._shape}, np.int32), or write the arguments in their order"
        raise DTypeError(f"{function}: {operand} needs {allowed}{reason}, got {pointer.dtype}{remedy}") from None


def letter_of(function: str, operand: str, pointer: DevicePtr[Any], takes: str = "sdcz", remedy: str = "") -> str:
    """Return the letter of a pointer's dtype.

    Raises HostPointerError for another object, and DTypeError if the letter is not in `takes`.

    `remedy` is the advice for a dtype that another function takes.
    """
    need_pointer(function, operand, pointer)
    letter = LETTERS.get(pointer._dtype_code, "")
    need_dtype(function, operand, pointer, [_CODES[letter_] for letter_ in takes], remedy=remedy if letter else "")
    return letter


def misfit(function: str, operand: str, pointer: DevicePtr[Any], needed: object, reason: str) -> ArgumentError:
    """Return the error for an operand of another shape; `needed` is the right shape, or words for it."""
    return ArgumentError(f"{function}: {operand} has shape {pointer._shape}, needs {needed} {reason}")


def need_shape(function: str, operand: str, pointer: DevicePtr[Any], needed: tuple[int, ...], reason: str) -> None:
    """Raise ArgumentError for an operand of another shape."""
    if pointer._shape != needed:
        raise misfit(function, operand, pointer, needed, reason)


def need_dimensions(function: str, operand: str, pointer: DevicePtr[Any], ndim: int, remedy: str) -> None:
    """Raise ArgumentError for an operand that does not have `ndim` dimensions."""
    if len(pointer._shape) != ndim:
        needed = f"{ndim} dimension{'s' * (ndim > 1)}"
        raise ArgumentError(f"{function}: {operand} has shape {pointer._shape}, needs {needed}; {remedy}") from None


def unordered(function: str, operand: str, pointer: DevicePtr[Any], copy: str) -> ArgumentError:
    """Return the error for a matrix in neither order; `copy` is the NumPy function that makes an ordered copy."""
    return ArgumentError(
        f"{function}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs unit stride in one "
        f"dimension and rows or columns that do not overlap; {ordered(operand, pointer, copy)}"
    )


def matrix(function: str, operand: str, pointer: DevicePtr[Any], like: DevicePtr[Any] | None = None) -> Matrix:
    """Return the geometry of a matrix in C or Fortran order; `like` is the operand A, which has the needed dtype."""
    need_pointer(function, operand, pointer)
    if like is not None:
        need_dtype(function, operand, pointer, (like._dtype_code,), " as A has")
    need_dimensions(function, operand, pointer, 2, "pass one matrix at a time")
    facts = Matrix(*geometry(pointer))
    if not (facts.ld_f or facts.ld_c):
        raise unordered(function, operand, pointer, "asfortranarray")
    return facts


def square(function: str, operand: str, pointer: DevicePtr[Any]) -> Matrix:
    """Return the geometry of a square matrix."""
    facts = matrix(function, operand, pointer)
    if facts.rows != facts.columns:
        raise ArgumentError(f"{function}: {operand} has shape {pointer._shape}, needs as many rows as columns")
    return facts


def need_fortran(function: str, operand: str, pointer: DevicePtr[Any], facts: Matrix, reason: str = "") -> int:
    """Return the leading dimension of a matrix in Fortran order; raise ArgumentError for another order."""
    if not facts.ld_f:
        copy = "asfortranarray" if len(pointer._shape) == 2 else "ascontiguousarray"
        raise ArgumentError(
            f"{function}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs Fortran order"
            f"{reason}; {ordered(operand, pointer, copy)}"
        )
    return facts.ld_f


def vector(
    function: str, operand: str, pointer: DevicePtr[Any], size: int, code: int, reason: str, dtype_reason: str = ""
) -> None:
    """Check a vector without an increment: its dtype and size, and that its elements are contiguous.

    reason, dtype_reason: why it needs this size, and this dtype.
    """
    need_pointer(function, operand, pointer)
    need_dtype(function, operand, pointer, (code,), f" {dtype_reason}" if dtype_reason else "")
    contiguous(function, operand, pointer, size, reason)


def checking() -> Checking:
    """Check the first call in a block without making it; only the errors of its checks are raised."""
    return Checking()
