"""Conversions of lent matrices."""

from __future__ import annotations

from typing import Any, Final

from .._operands import need_option
from .._signatures import telling
from ..errors import ArgumentError, HostPointerError
from ..linalg._call import Call
from ..pointers import DevicePtr
from ._library import kernels_of
from .lending import Matrix
from .matrix import LentMatrix

__all__ = ["convert"]

_FORMATS: Final = ("csr", "csc", "coo", "dense")


@telling
def convert(A: Any, format: str) -> Any:
    """Return a matrix on a device in another format, in new memory of the region.

    A: a Matrix, or a pointer to a dense matrix, whose elements other than 0 are stored.
    format: "csr", "csc" or "coo" for a Matrix, or "dense" for a pointer to all elements, by rows.

    Arrays that both formats have in common are shared: a coo matrix has the values and the columns of its csr matrix.
    If A has this format already, the result has its arrays. The indices of each row or column of the result rise.

        A = scipy.sparse.csr_array([[2.0, 0.0], [1.0, 3.0]])
        with sparse.lend(A) as dA:
            dD = sparse.convert(dA, "dense")
            print(dD.to_host().tolist())  # [[2.0, 0.0], [1.0, 3.0]]
            print(sparse.convert(dD, "csc").to_host().indices.tolist())  # [0, 1, 1]

    Raises HostPointerError for arrays, which SciPy converts; ArgumentError for another format; CaptureError in a
    capture. On GPUs, LibraryError for bsr, and for indices of 64 bits unless the result is dense.

    See also: sparse.lend, sparse.matmul; docs/guide/sparse.md.
    """
    function = "sparse.convert"
    need_option(function, "format", format, _FORMATS)
    if isinstance(A, LentMatrix):
        Call(function, None, None, A=A.data).need_uncaptured("")
        result: Any = kernels_of(function, A.data._device).convert(function, A, format)
        return result if isinstance(result, DevicePtr) else Matrix(*result)
    if not isinstance(A, DevicePtr):
        raise HostPointerError(
            f"{function}: A needs a sparse.Matrix or a pointer, got {type(A).__name__}; SciPy converts arrays: "
            f"scipy.sparse.csr_array(A), A.tocsc(), A.toarray()"
        )
    Call(function, None, None, A=A).need_uncaptured("")
    if len(A._shape) != 2:
        raise ArgumentError(f"{function}: A has shape {A._shape}, and needs two dimensions; reshape it")
    if format == "dense":
        raise ArgumentError(f"{function}: A is dense already; pass format='csr', 'csc' or 'coo'")
    kernels = kernels_of(function, A._device)
    matrix = Matrix(*kernels.from_dense(function, A))
    if format != "csr":
        result = kernels.convert(function, matrix, format)
        matrix = Matrix(*result)
    return matrix
