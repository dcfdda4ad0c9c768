"""The library that computes with the sparse matrices of a device."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import _core
from .._adapters import Adapter, adapter_of
from .._names import rename
from ..devices import by_number
from ..errors import LibraryError, OffloadError
from ..linalg._call import new
from ._results import Arrays
from ._vendors import CuSparse, HipSparse, OnGPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..pointers import DevicePtr
    from .matrix import LentMatrix

__all__ = ["Kernels", "kernels_of"]


class Kernels(Adapter):
    """The kernels of scipy.sparse, on the CPU.

    They take no pointers, so each call copies values, operands and results.
    """

    backend: ClassVar[str | None] = None

    def __init__(self) -> None:
        try:
            self._sparse: Any = importlib.import_module("scipy.sparse")
        except ImportError:
            raise LibraryError(
                "sparse: the devices host and sim compute by SciPy, which is not installed: pip install scipy"
            ) from None

    def multiply(
        self, function: str, A: LentMatrix, x: DevicePtr, y: DevicePtr, alpha: complex, beta: complex, trans: str
    ) -> None:
        """Set y to alpha op(A) x + beta y."""
        product = _op(self._of(function, A), trans) @ _read(function, "x", x)
        if alpha != 1:
            product = product * y.dtype.type(alpha)
        if beta != 0:
            before = _read(function, "out", y)
            product = product + (before if beta == 1 else before * y.dtype.type(beta))
        _write(function, y, product)

    def solve_triangular(
        self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, lower: bool, unit_diagonal: bool, trans: str
    ) -> None:
        """Solve op(A) x = b for one triangle of A. Raises LinAlgError if the triangle is singular."""
        triangle = (self._sparse.tril if lower else self._sparse.triu)(self._of(function, A), format="csr")
        zeros = np.flatnonzero(triangle.diagonal() == 0)
        if len(zeros) and not unit_diagonal:
            raise np.linalg.LinAlgError(f"{function}: A is singular: A[{zeros[0]}, {zeros[0]}] is 0, or not stored")
        if trans != "N":
            triangle, lower = _op(triangle, trans).tocsr(), not lower
        solve = importlib.import_module("scipy.sparse.linalg").spsolve_triangular
        _write(function, x, solve(triangle, _read(function, "b", b), lower=lower, unit_diagonal=unit_diagonal))

    def solve(self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, trans: str) -> None:
        """Solve op(A) x = b by SuperLU. Raises LinAlgError if A is singular."""
        try:  # splu sorts the indices of its operand in place, and the structure is used again
            factors = importlib.import_module("scipy.sparse.linalg").splu(self._of(function, A).tocsc(copy=True))
        except RuntimeError as error:  # with the text "Factor is exactly singular"
            raise np.linalg.LinAlgError(f"{function}: A is singular; SuperLU: {error}") from None
        _write(function, x, factors.solve(_read(function, "b", b), "H" if trans == "C" else trans))

    def multiply_sparse(self, function: str, A: LentMatrix, B: LentMatrix, alpha: complex) -> Arrays:
        """Return alpha A B, which is csc if A is csc, and otherwise csr."""
        product = self._of(function, A) @ self._of(function, B)
        if alpha != 1:
            product = product * A.dtype.type(alpha)
        form = "csc" if A.format == "csc" else "csr"
        return _lay(function, A.data, product.asformat(form), A.index_dtype)

    def index_of_products(self, index: np.dtype[Any], largest: int) -> np.dtype[Any]:
        """Return the dtype of indices for products of arrays whose widest indices have this dtype."""
        return index

    def convert(self, function: str, A: LentMatrix, form: str) -> Arrays | DevicePtr:
        """Return A in another format, or a pointer to a dense matrix."""
        if form == A.format:
            return Arrays(A.format, A.shape, A.arrays)
        matrix = self._of(function, A)
        if form != "dense":
            return _lay(function, A.data, matrix.asformat(form), A.index_dtype)
        result = new(A.data, A.shape, A.dtype)
        if result.size:
            result.assign(matrix.toarray())
        return result

    def from_dense(self, function: str, x: DevicePtr) -> Arrays:
        """Return a dense matrix as a csr matrix."""
        return _lay(function, x, self._sparse.csr_array(_read(function, "A", x)), np.dtype(np.int32))

    def _of(self, function: str, A: LentMatrix) -> Any:
        """Return a copy of the matrix's present contents.

        The copy of the structure is reused if no call has written the structure.
        """
        data, first, second = A.arrays
        is_written = _core.query(first).written or _core.query(second).written
        structure = None if is_written else A._kept.get("structure")
        if structure is None:
            structure = _read(function, "A", first), _read(function, "A", second)
            if not is_written:
                A._kept["structure"] = structure
        values = _read(function, "A.data", data)
        if A.format == "coo":
            return self._sparse.coo_array((values, structure), shape=A.shape)
        return getattr(self._sparse, f"{A.format}_array")((values, *structure), shape=A.shape)


def _lay(function: str, like: DevicePtr, matrix: Any, index: np.dtype[Any]) -> Arrays:
    """Return a matrix of SciPy on the device of a pointer `like`."""
    form = matrix.format
    matrix = matrix.tocsr() if form == "coo" else matrix
    matrix.sum_duplicates()  # sorts the indices, for coo by columns in some versions
    matrix = matrix.asformat(form)
    if matrix.nnz > np.iinfo(index).max:
        raise LibraryError(f"{function}: the result has {matrix.nnz} elements, too many for indices of {index}")
    names = ("data", "row", "col") if matrix.format == "coo" else ("data", "indices", "indptr")
    pointers = []
    for name in names:
        values = np.ascontiguousarray(getattr(matrix, name), like.dtype if name == "data" else index)
        pointer = new(like, values.shape, values.dtype)
        if values.size:
            pointer.assign(values)
        pointers.append(pointer)
    data, first, second = pointers
    return Arrays(matrix.format, matrix.shape, (data, first, second))


def _op(A: Any, trans: str) -> Any:
    return A if trans == "N" else A.T if trans == "T" else A.T.conj()


def _read(function: str, operand: str, pointer: DevicePtr) -> Any:
    with _named(function, operand):
        return pointer.to_host()


def _write(function: str, pointer: DevicePtr, values: Any) -> None:
    with _named(function, "out"):
        pointer.assign(np.ascontiguousarray(values, pointer.dtype))


@contextmanager
def _named(function: str, operand: str) -> Iterator[None]:
    """Add the names of the function and the operand to errors of a copy."""
    try:
        yield
    except OffloadError as error:
        rename(error, r"^DevicePtr\.(to_host|assign): (pointer|values)\b", f"{function}: {operand}")
        rename(error, r"^DevicePtr\.(to_host|assign): ", f"{function}: ")
        raise


def kernels_of(function: str, device: int) -> Kernels | OnGPU:
    """Return the kernels of the device with this number; raise LibraryError if it has none."""
    adapters: tuple[type[Adapter], ...] = (Kernels, CuSparse, HipSparse)
    library = adapter_of(function, adapters, device)
    if library is None:
        raise LibraryError(
            f"{function}: {by_number(device)} has no sparse matrices in offload_args; lend them to the host, or pass "
            f"arrays with device='host'"
        )
    return library  # type: ignore[return-value]
