"""Products of a sparse matrix and a dense operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._operands import need_option
from ..errors import ArgumentError
from ._call import factor, need_number, need_operand, run

if TYPE_CHECKING:
    from ..devices import Device
    from ..linalg._call import Operand, Result
    from ..pointers import DevicePtr
    from ._cusparse import CuSparse
    from ._library import Kernels
    from .matrix import LentMatrix

__all__ = ["matmul"]


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
    """Return alpha op(A) x + beta out, the product of a sparse matrix and a dense vector or matrix.

    A: a Matrix of `lend`, or a sparse matrix of SciPy, which is lent for this call.
    x: vector of as many elements as op(A) has columns, or matrix of as many rows. If A is a Matrix, x is a pointer to
    elements of A's dtype.
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
    factors = {"alpha": need_number(function, "alpha", alpha), "beta": need_number(function, "beta", beta)}
    if factors["beta"] != 0 and out is None:
        raise ArgumentError(f"{function}: beta needs out, the array that it multiplies, got None")

    def shape_of(shape: tuple[int, int], of_x: tuple[int, ...]) -> tuple[int, ...]:
        m, n = shape if trans == "N" else shape[::-1]
        need_operand(function, "x", of_x, n, (m, n))
        return (m, *of_x[1:])

    def work(kernels: Kernels | CuSparse, matrix: LentMatrix, dx: DevicePtr[Any], dy: DevicePtr[Any]) -> None:
        scale, keep = (factor(function, name, value, dy.dtype) for name, value in factors.items())
        kernels.multiply(function, matrix, dx, dy, scale, keep, trans)

    return run(function, A, ("x", x), shape_of, work, out, check, device)
