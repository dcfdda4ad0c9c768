"""Checks of a sparse matrix on the host: its format, its dtypes, and each of its indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..display import shown
from ..dtypes import newest
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, ExtentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["arrays_of", "cast", "check_indices", "is_sparse"]

_FORMATS: Final = ("csr", "csc", "coo", "bsr")
_VALUES: Final = tuple(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
_INDICES: Final = (np.dtype(np.int32), np.dtype(np.int64))
_CHUNK: Final = 1 << 22  # the indices that one step checks; more would make NumPy's temporary arrays large


def is_sparse(value: object) -> bool:
    """Return whether an object is a sparse matrix of SciPy, or has the attributes of one."""
    return hasattr(type(value), "tocsr") and isinstance(getattr(value, "format", None), str)


def arrays_of(function: str, A: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a sparse matrix by their names, the values first; no array is copied."""
    if not is_sparse(A):
        remedy = "pass scipy.sparse.csr_array(A)" if np.ndim(A) == 2 else "pass one, such as scipy.sparse.csr_array(B)"
        if hasattr(A, "_entered"):  # sparse/lending.py makes it
            remedy = "enter it: with sparse.lend(A) as dA"
        raise ArgumentTypeError(f"{function}: A needs a sparse matrix of SciPy, got {type(A).__name__}; {remedy}")
    if A.format not in _FORMATS:
        raise ArgumentTypeError(f"{function}: A has the format {A.format!r}, which is not lent; pass A.tocsr()")
    if len(A.shape) != 2:
        raise ArgumentError(f"{function}: A needs two dimensions, has shape {A.shape}; pass A.reshape(1, -1).tocsr()")
    names = ("row", "col") if A.format == "coo" else ("indices", "indptr")
    arrays = {name: np.asarray(getattr(A, name)) for name in ("data", *names)}
    for name in names:
        newest(arrays[name], function)
    if arrays["data"].dtype not in _VALUES:
        raise DTypeError(
            f"{function}: A.data needs float32, float64, complex64 or complex128, got {arrays['data'].dtype}; pass "
            f"A.astype(np.float64)"
        )
    first, second = (arrays[name].dtype for name in names)
    if first not in _INDICES or second != first:
        raise DTypeError(
            f"{function}: A.{names[0]} and A.{names[1]} need int32 or int64, both the same, got {first} and {second}"
        )
    _check_sizes(function, A, arrays)
    if A.format in ("csr", "csc", "bsr"):  # SciPy allows arrays that are longer than the matrix needs
        count = int(arrays["indptr"][-1])
        for name in ("data", "indices"):
            if len(arrays[name]) > count >= 0:
                arrays[name] = arrays[name][:count]
    return arrays


def cast(function: str, A: Any, dtype: np.dtype[Any]) -> Any:
    """Return a sparse matrix with values of a dtype: A itself, or a new matrix of A's newest values."""
    if A.data.dtype != dtype:
        newest(A.data, function)
    return A.astype(dtype, copy=False)


def _check_sizes(function: str, A: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise ArgumentError for arrays whose dimensions do not fit the format."""
    ndim = 3 if A.format == "bsr" else 1
    if arrays["data"].ndim != ndim or any(array.ndim != 1 for name, array in arrays.items() if name != "data"):
        shapes = ", ".join(f"A.{name} of shape {array.shape}" for name, array in arrays.items())
        raise ArgumentError(f"{function}: {A.format} needs values of {ndim} and indices of 1 dimension, got {shapes}")
    if A.format == "bsr":
        block = arrays["data"].shape[1:]
        if 0 in block or A.shape[0] % block[0] or A.shape[1] % block[1]:
            raise ArgumentError(f"{function}: A of shape {A.shape} is not divided by its blocks of {block}")
    if A.format != "coo":
        needed = _lines(A, arrays)[0] + 1
        if len(arrays["indptr"]) != needed:
            raise ArgumentError(
                f"{function}: A.indptr needs {needed} elements for A of shape {A.shape}, has {len(arrays['indptr'])}"
            )
        count = int(arrays["indptr"][-1])
        if count > min(len(arrays["data"]), len(arrays["indices"])):
            raise ExtentError(
                f"{function}: A.indptr[-1] is {count}, A.indices has {len(arrays['indices'])} elements and A.data "
                f"{len(arrays['data'])}"
            )
    elif not len(arrays["data"]) == len(arrays["row"]) == len(arrays["col"]):
        lengths = ", ".join(f"A.{name} {len(array)}" for name, array in arrays.items())
        raise ArgumentError(f"{function}: the arrays of A need one length, have {lengths}")


def _lines(A: Any, arrays: dict[str, NDArray[Any]]) -> tuple[int, int]:
    """Return the number of lines that indptr separates, and the number of places in each line."""
    m, n = A.shape
    if A.format == "csc":
        return n, m
    if A.format == "bsr":
        rows, columns = arrays["data"].shape[1:]
        return m // rows, n // columns
    return m, n


def check_indices(function: str, A: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise ExtentError for an index out of bounds, and ArgumentError for indices that are out of order or repeated.

    A call with such indices would read beyond its arrays, or return wrong results without an error.
    """
    m, n = A.shape
    if A.format == "coo":
        _check_bounds(function, "row", arrays["row"], m)
        _check_bounds(function, "col", arrays["col"], n)
        _check_coordinates(function, arrays["row"], arrays["col"])
        return
    lines, places = _lines(A, arrays)
    indptr, indices = arrays["indptr"], arrays["indices"]
    if indptr[0] != 0:
        raise ArgumentError(f"{function}: A.indptr[0] needs to be 0, is {indptr[0]}")
    for start in range(0, lines, _CHUNK):
        falls = indptr[start : start + _CHUNK + 1]
        wrong = falls[1:] < falls[:-1]
        if wrong.any():
            at = start + int(wrong.argmax()) + 1
            raise ArgumentError(f"{function}: A.indptr[{at}] is {indptr[at]}, less than {indptr[at - 1]} before it")
    _check_bounds(function, "indices", indices, places)
    for start in range(0, len(indices) - 1, _CHUNK):
        part = indices[start : start + _CHUNK + 1]
        fall = np.flatnonzero(part[1:] <= part[:-1]) + (start + 1)
        if not len(fall):
            continue
        begins = indptr[np.searchsorted(indptr, fall)] == fall  # a line may begin with any index
        if not begins.all():
            at = int(fall[begins.argmin()])
            line = int(np.searchsorted(indptr, at, side="right")) - 1
            kind = "column" if A.format == "csc" else "block row" if A.format == "bsr" else "row"
            _refuse_order(function, f"A.indices[{at}]", indices[at], indices[at - 1], f" in {kind} {line}")


def _check_bounds(function: str, name: str, indices: NDArray[Any], extent: int) -> None:
    for start in range(0, len(indices), _CHUNK):
        part = indices[start : start + _CHUNK]
        lowest, highest = int(part.min()), int(part.max())
        if lowest < 0 or highest >= extent:
            at = start + int(part.argmin() if lowest < 0 else part.argmax())
            allowed = f"0 to {extent - 1}" if extent else "no element, as A has none in that dimension"
            raise ExtentError(f"{function}: A.{name}[{at}] is {indices[at]}, needs {allowed}")


def _check_coordinates(function: str, row: NDArray[Any], col: NDArray[Any]) -> None:
    for start in range(0, len(row) - 1, _CHUNK):
        rows, columns = row[start : start + _CHUNK + 1], col[start : start + _CHUNK + 1]
        wrong = (rows[1:] < rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] <= columns[:-1]))
        if wrong.any():
            at = start + int(wrong.argmax()) + 1
            if row[at] < row[at - 1]:
                _refuse_order(function, f"A.row[{at}]", row[at], row[at - 1], "")
            _refuse_order(function, f"A.col[{at}]", col[at], col[at - 1], f" in row {row[at]}")


def _refuse_order(function: str, index: str, value: Any, before: Any, place: str) -> None:
    fault = "the same as" if value == before else "less than"
    raise ArgumentError(
        f"{function}: {index} is {shown(int(value))}{place}, {fault} {shown(int(before))} before it; call "
        f"A.sum_duplicates(), which sorts the indices and adds the values of equal ones"
    )
