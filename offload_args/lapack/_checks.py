"""Checks for LAPACK: right sides, the elements of a matrix, and the errors of calls that failed."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from math import isfinite
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import numpy as np

from .._core import invalidate, query
from .._operands import INT32, Matrix, matrix, misfit, need_dimensions, need_dtype, need_pointer, need_uncaptured
from ..blas.level1 import asum
from ..errors import ArgumentError, CaptureError, DirectionError, ExtentError, OffloadError, WrongDeviceError
from ..pointers import DevicePtr
from ._stacks import diagonal, in_a_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "OTHER_TRIANGLE",
    "Columns",
    "as_columns",
    "by_columns",
    "columns",
    "factored",
    "first_zero",
    "follow",
    "has_pivots",
    "is_finite",
    "need_finite",
    "need_info",
    "need_pivots",
    "need_solvable",
    "refuse",
]

OTHER_TRIANGLE: Final = {"U": "L", "L": "U"}

#: The geometry of right sides; a vector is one column.
Columns: TypeAlias = Matrix


def columns(name: str, operand: str, pointer: DevicePtr, rows: int, reason: str, like: DevicePtr) -> Columns:
    """Return the geometry of right sides: a matrix, or a vector that is one column."""
    need_pointer(name, operand, pointer)
    need_dtype(name, operand, pointer, (like._dtype_code,), " as A has")
    if len(pointer._shape) not in (1, 2):
        need_dimensions(name, operand, pointer, 2, "or one")
    if pointer._shape[0] != rows:
        needed = f"({rows},{' n)' if len(pointer._shape) == 2 else ')'}"
        reason = re.sub("A of that (order|shape)", f"A of shape {like._shape}", reason)
        if name in ("lapack.gels", "lapack.gelsd"):
            reason += (
                f": its first rows are the right side, and become the solution; make {operand} = np.zeros({needed}), "
            )
            reason += "and copy the right side into it; linalg.lstsq needs no such array"
        raise misfit(name, operand, pointer, needed, reason)
    return matrix(name, operand, as_columns(pointer))


def as_columns(pointer: DevicePtr, stack: bool = False) -> DevicePtr:
    """Return a pointer to right sides as a matrix, or to a stack of them as a stack of matrices."""
    return pointer[..., None] if len(pointer._shape) == 1 + stack else pointer


def by_columns(uplo: str, facts: Matrix) -> str:
    """Return the triangle that libraries, which read by columns, read; for C order, it is the other triangle."""
    return uplo if facts.ld_f else OTHER_TRIANGLE[uplo]


def _impossible(pivots: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask of the pivots that are out of range: getrf writes a pivot from i to n at position i, from 1."""
    n = pivots.shape[-1]
    impossible: NDArray[np.bool_] = (pivots < np.arange(1, n + 1)) | (pivots > n)
    return impossible


def need_info(name: str, info: DevicePtr | None, *operands: DevicePtr) -> None:
    """Check `info`, the place for LAPACK's info. Raise CaptureError if it is None and the calls are captured.

    operands: the function's operands, of which the last one is written.
    """
    if info is None:
        need_uncaptured(name, *operands, instead="pass info=, a DevicePtr of one int32")
        return
    need_pointer(name, "info", info)
    need_dtype(name, "info", info, (INT32,), ", as LAPACK's info is")
    if info.size != 1:
        raise ExtentError(f"{name}: info needs one element, got shape {info._shape}; pass a part of it: info[:1]")
    if query(info).captured != query(operands[-1]).captured:
        raise CaptureError(
            f"{name}: the region of its arrays or that of info is being captured, and the other one is not; lend all "
            "in one region"
        )


def need_pivots(name: str, ipiv: DevicePtr) -> None:
    """Raise ArgumentError for pivots out of range, with which libraries would write outside of their operands."""
    pivots = ipiv.to_host()
    wrong = np.flatnonzero(_impossible(pivots))
    if len(wrong):
        i = int(wrong[0])
        raise ArgumentError(
            f"{name}: ipiv[{i}] is {pivots[i]}, needs to be from {i + 1} to {len(pivots)}: pivots count from 1, as "
            f"getrf returns them; SciPy's lu_factor counts from 0: pass piv + 1"
        )


def has_pivots(ipiv: DevicePtr) -> bool:
    """Return whether all pivots of a stack are in the range of getrf's pivots."""
    return not _impossible(ipiv.to_host()).any()


def need_finite(name: str, A: DevicePtr, uplo: str = "", operand: str = "A") -> None:
    """Raise LinAlgError for NaN or infinity in A, or in the triangle `uplo` of A.

    LAPACK's iterations do not check for such elements, and may not end if the matrix has one.
    """
    try:
        if _has_finite_sum(A):
            return
        values = A.to_host()
    except OffloadError:  # the library's function will report that A is undefined
        return
    if uplo:
        values = np.triu(values) if uplo == "U" else np.tril(values)
        np.fill_diagonal(values, values.diagonal().real)  # LAPACK reads only the real parts of the diagonal
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        i, j = map(int, wrong[0])
        fault = f"{operand}[{i}, {j}] is {values[i, j]}, needs to be finite, or the algorithm may never end"
        raise np.linalg.LinAlgError(
            f"{name}: {fault}; nothing was changed; look for such elements by numpy.isfinite({operand})"
        )


def first_zero(A: DevicePtr) -> int:
    """Return the place of the first zero on a square matrix's diagonal, counted from 1; 0 if there is no zero."""
    if not A._shape[0]:
        return 0
    zeros = np.flatnonzero(diagonal(A).to_host() == 0)
    return int(zeros[0]) + 1 if len(zeros) else 0


def follow(vectors: DevicePtr) -> bool:
    """Return whether the vectors of a stack are in memory one after the other without gaps."""
    return vectors._strides[0] == vectors._shape[1] * vectors.dtype.itemsize


def is_finite(A: DevicePtr) -> bool:
    """Return whether one sum on the device shows that all elements of a stack are finite; False with gaps."""
    (count, m, n), (step, *inner) = A._shape, A._strides
    itemsize = A.dtype.itemsize
    if step != m * n * itemsize or (tuple(inner) not in ((itemsize, m * itemsize), (n * itemsize, itemsize))):
        return False
    return isfinite(asum(A._view(0, (count * m * n,), (itemsize,))))


def _has_finite_sum(A: DevicePtr) -> bool:
    """Return whether one sum on the device shows that all elements are finite; False if the matrix has gaps."""
    (m, n), step = A._shape, min(A._strides)
    return step * m * n == max(A._strides[0] * m, A._strides[1] * n) and isfinite(asum(A._view(0, (m * n,), (step,))))


def need_solvable(name: str, A: DevicePtr, B: DevicePtr) -> None:
    """Raise errors of the right sides before A is factored; otherwise the solution would raise them later."""
    if B._device != A._device:
        raise WrongDeviceError(
            f"{name}: B is on {B.device}, and A is on {A.device}; all pointers of a call must be on one device: "
            f"lend its arrays in one region"
        )
    if not query(B).writable:
        raise DirectionError(
            f"{name}: B needs to be writable, but was lent as In or is read-only; lend it as InOut, or a copy of it, "
            f"B = B.copy()"
        )


def _undefine(written: dict[str, DevicePtr]) -> str:
    """Mark a call's outputs as undefined, so that none of them comes down. Return the end of the error's message."""
    for pointer in written.values():
        with suppress(OffloadError):  # if it has no element, or if the device is lost, nothing comes down anyway
            invalidate(pointer)
    listed = " and ".join(written)
    return f"; {listed} {'are' if len(written) > 1 else 'is'} undefined on the device now" if written else ""


def refuse(name: str, text: str, info: int, /, **written: DevicePtr) -> NoReturn:
    """Mark the call's outputs as undefined, and raise LinAlgError.

    `info` is LAPACK's info, which functions of stacks need.
    """
    error = np.linalg.LinAlgError(f"{name}: {text}{'' if in_a_stack() else _undefine(written)}")
    error.info = info  # type: ignore[attr-defined]
    raise error


@contextmanager
def factored(name: str, **written: DevicePtr) -> Iterator[None]:
    """Mark a call's outputs as undefined if a step after the factoring of A fails, and say so in the error."""
    try:
        yield
    except OffloadError as error:
        error.args = (f"{name}: {error}{_undefine(written)}",)
        raise
