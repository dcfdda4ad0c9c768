"""Products of a sparse matrix and a dense operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._names import rename
from .._operands import need_bool, need_option
from .._signatures import telling
from ..devices import Device, as_device
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, HostPointerError, OffloadError
from ..linalg._call import Call
from ._call import factor, need_number, need_operand, run
from ._checks import arrays_of, cast, check_indices, is_sparse
from ._library import kernels_of
from .matrix import LentMatrix, lent

if TYPE_CHECKING:
    from ..linalg._call import Operand, Result
    from ..pointers import DevicePtr
    from ._library import Kernels
    from ._vendors import OnGPU

__all__ = ["matmul"]


@telling
def matmul(
    A: Any,
    x: Operand,
    out: DevicePtr[Any] | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    trans: str = "N",
    check: bool = True,
    device: Device | str | None = None,
) -> Result:
    """Return alpha op(A) x + beta out, the product of a sparse matrix and a vector or matrix.

    A: a Matrix of `lend`, or a sparse matrix of SciPy, which is lent for this call.
    x: vector of as many elements as op(A) has columns, or matrix of as many rows. If A is a Matrix, x is a pointer to
    elements of A's dtype. If x is a sparse matrix, too, the product is a new sparse matrix: a Matrix in memory of the
    region for two Matrices, and an array of SciPy for matrices of SciPy. It is csc if A is csc, and otherwise csr, and
    its indices rise. The indices of two Matrices need one dtype. Then out, beta and trans are refused; A.T is the
    transpose.
    out: a pointer to which the result is written; None stands for new memory of the region. It must not overlap an
    operand.
    alpha: a number.
    beta: a number; with 0, out is not read.
    trans: op(A): "N" for A, "T" for A^T, "C" for A^H.
    check: as for lend, if A is a matrix of SciPy.
    device: the device that multiplies a matrix of SciPy; None stands for the first GPU, or for the host without a GPU.

        A = scipy.sparse.csr_array([[2.0, 0.0], [1.0, 3.0]])
        print(sparse.matmul(A, np.array([1.0, 10.0])))  # [ 2. 31.]

    Raises ArgumentError, a ValueError, for shapes that do not fit; DTypeError, a TypeError, for integers in A and for
    pointers of another dtype; and AliasError if out overlaps an operand.

    See also: sparse.lend, sparse.spsolve, blas.gemv, blas.gemm; docs/guide/sparse.md.
    """
    function = "sparse.matmul"
    need_option(function, "trans", trans, "NTC")
    need_bool(function, "check", check)
    if not (is_sparse(A) or isinstance(A, LentMatrix)) and (is_sparse(x) or isinstance(x, LentMatrix)):
        raise ArgumentTypeError(
            f"{function}: A needs a sparse matrix, got {type(A).__name__}, and x is a sparse matrix: write "
            f'{function}(x, A) for x @ A, or {function}(x, A.T, trans="T").T for A @ x'
        )
    factors = {"alpha": need_number(function, "alpha", alpha), "beta": need_number(function, "beta", beta)}
    if factors["beta"] != 0 and out is None:
        raise ArgumentError(f"{function}: beta needs out, the array that it multiplies, got None")

    if is_sparse(x) or isinstance(x, LentMatrix):
        if out is not None or trans != "N":
            wrong = "out" if out is not None else "trans"
            raise ArgumentError(
                f"{function}: {wrong} needs a dense x; the product of two sparse matrices is a new matrix"
            )
        if isinstance(A, LentMatrix):
            return _of_lent(function, A, x, factors["alpha"], device)
        return _of_scipy(function, A, x, factors["alpha"], check, device)

    def shape_of(shape: tuple[int, int], of_x: tuple[int, ...]) -> tuple[int, ...]:
        m, n = shape if trans == "N" else shape[::-1]
        need_operand(function, "x", of_x, n, (m, n))
        return (m, *of_x[1:])

    def work(kernels: Kernels | OnGPU, matrix: LentMatrix, dx: DevicePtr[Any], dy: DevicePtr[Any]) -> None:
        scale, keep = (factor(function, name, value, dy.dtype) for name, value in factors.items())
        kernels.multiply(function, matrix, dx, dy, scale, keep, trans)

    return run(function, A, ("x", x), shape_of, work, out, check, device)


def _of_lent(function: str, A: LentMatrix, x: Any, alpha: complex, device: Device | str | None) -> LentMatrix:
    """Return the product of two lent matrices."""
    if not isinstance(x, LentMatrix):
        raise HostPointerError(
            f"{function}: x needs a sparse.Matrix as A is one, got {type(x).__name__}; lend it first: "
            f"with sparse.lend(x) as dx"
        )
    call = Call(function, device, None, A=A.data, x=x.data)
    call.need_uncaptured("")
    _need_rows(function, A.shape, x.shape)
    if x.index_dtype != A.index_dtype:
        raise DTypeError(f"{function}: x needs indices of {A.index_dtype} as A has, got {x.index_dtype}")
    kernels = kernels_of(function, A.data._device)
    scale = factor(function, "alpha", alpha, A.dtype)
    with call.named():
        return type(A)(*kernels.multiply_sparse(function, A, x, scale))


def _of_scipy(function: str, A: Any, x: Any, alpha: complex, check: bool, device: Device | str | None) -> Any:
    """Return the product of two matrices of SciPy as an array of SciPy."""
    if isinstance(x, LentMatrix):
        raise HostPointerError(
            f"{function}: A needs a sparse.Matrix as x is one, got {type(A).__name__}; lend it first: "
            f"with sparse.lend(A) as dA"
        )
    arrays = arrays_of(function, A)
    if check:
        check_indices(function, A, arrays)
    try:
        of_x = arrays_of(function, x)
        if check:
            check_indices(function, x, of_x)
    except OffloadError as error:
        rename(error, r"\bA\b", "x")
        raise
    _need_rows(function, A.shape, x.shape)
    (data, indices, _), (data_x, indices_x, _) = arrays.values(), of_x.values()
    dtype = np.result_type(data.dtype, data_x.dtype)
    wide = np.result_type(indices.dtype, indices_x.dtype)
    chosen = Device.default() if device is None else as_device(device)
    index = kernels_of(function, chosen.number).index_of_products(
        wide, max(*A.shape, *x.shape, len(indices), len(indices_x))
    )
    left, right = cast(function, A, dtype), cast(function, x, dtype)
    with lent(function, left, False, LentMatrix, index, device=chosen) as dA:
        with lent(function, right, False, LentMatrix, index, device=chosen) as dx:
            result = _of_lent(function, dA, dx, alpha, None).to_host()
    result.indices, result.indptr = (array.astype(wide, copy=False) for array in (result.indices, result.indptr))
    return result


def _need_rows(function: str, A: tuple[int, ...], x: tuple[int, ...]) -> None:
    if A[1] != x[0]:
        raise ArgumentError(f"{function}: x has shape {x}, needs ({A[1]}, any) for A of shape {A}")
