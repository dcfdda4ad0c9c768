"""Systems of linear equations with a sparse matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._operands import need_bool, need_option
from .._signatures import telling
from ..errors import ArgumentError
from ._call import need_operand, run

if TYPE_CHECKING:
    from ..devices import Device
    from ..linalg._call import Operand, Result
    from ..pointers import DevicePtr
    from ._library import Kernels
    from ._vendors import OnGPU
    from .matrix import LentMatrix

__all__ = ["spsolve", "spsolve_triangular"]


@telling
def spsolve(
    A: Any,
    b: Operand,
    out: DevicePtr[Any] | None = None,
    *,
    trans: str = "N",
    check: bool = True,
    device: Device | str | None = None,
) -> Result:
    """Return the solution x of op(A) x = b, by a sparse LU factorization.

    A: a square Matrix of `lend`, or a sparse matrix of SciPy, which is lent for this call.
    b: vector of as many elements as A has rows, or matrix of as many rows. If A is a Matrix, b is a
    pointer to elements of A's dtype.
    out: a pointer to which the solution is written; None stands for new memory of the region. It must not overlap an
    operand.
    trans: op(A): "N" for A, "T" for A^T, "C" for A^H.
    check: as for lend, if A is a matrix of SciPy.
    device: the device that solves with a matrix of SciPy; None stands for the host.

        A = scipy.sparse.csr_array([[2.0, 1.0], [1.0, 3.0]])
        print(sparse.spsolve(A, np.array([3.0, 4.0])))  # [1. 1.]

    On NVIDIA GPUs, cuDSS factors the matrix, which is csr, csc or coo. A Matrix of `lend` in csr or csc keeps the
    analysis of its structure, so later calls of its block factor only the new values. On AMD GPUs, no library factors
    sparse matrices.

    Raises numpy.linalg.LinAlgError if A is singular, and LibraryError on a GPU without cuDSS. Other errors are as for
    sparse.matmul. Source: scipy.sparse.linalg.spsolve; cuDSS manual.

    See also: sparse.spsolve_triangular, linalg.solve; docs/guide/sparse.md.
    """
    function = "sparse.spsolve"
    need_option(function, "trans", trans, "NTC")

    def work(kernels: Kernels | OnGPU, matrix: LentMatrix, db: DevicePtr[Any], dx: DevicePtr[Any]) -> None:
        if dx.size:
            kernels.solve(function, matrix, db, dx, trans)

    return _solution(function, A, b, work, out, check, device, on_host=True)


@telling
def spsolve_triangular(
    A: Any,
    b: Operand,
    lower: bool = True,
    *,
    unit_diagonal: bool = False,
    out: DevicePtr[Any] | None = None,
    trans: str = "N",
    check: bool = True,
    device: Device | str | None = None,
) -> Result:
    """Return the solution x of op(A) x = b for a triangular A; the other triangle is not read.

    A: a square Matrix of `lend`, or a sparse matrix of SciPy, which is lent for this call.
    b: vector of as many elements as A has rows, or matrix of as many rows. If A is a Matrix, b is a
    pointer to elements of A's dtype.
    lower: whether the lower triangle is read, instead of the upper one.
    unit_diagonal: whether the diagonal is not read, and its elements count as 1.
    out: a pointer to which the solution is written; None stands for new memory of the region. It must not overlap an
    operand.
    trans: op(A): "N" for A, "T" for A^T, "C" for A^H.
    check: as for lend, if A is a matrix of SciPy.
    device: the device that solves with a matrix of SciPy; None stands for the first GPU, or for the host without a GPU.

        A = scipy.sparse.csr_array([[2.0, 0.0], [1.0, 3.0]])
        print(sparse.spsolve_triangular(A, np.array([2.0, 4.0])))  # [1. 1.]

    Raises numpy.linalg.LinAlgError if an element of the diagonal is 0, or not stored. On GPUs, the diagonal is not
    checked, and the solution has infinities. Other errors are as for sparse.matmul. Source:
    scipy.sparse.linalg.spsolve_triangular.

    See also: sparse.spsolve, blas.trsv; docs/guide/sparse.md.
    """
    function = "sparse.spsolve_triangular"
    need_option(function, "trans", trans, "NTC")
    need_bool(function, "lower", lower)
    need_bool(function, "unit_diagonal", unit_diagonal)

    def work(kernels: Kernels | OnGPU, matrix: LentMatrix, db: DevicePtr[Any], dx: DevicePtr[Any]) -> None:
        if dx.size:
            kernels.solve_triangular(function, matrix, db, dx, bool(lower), bool(unit_diagonal), trans)

    return _solution(function, A, b, work, out, check, device)


def _solution(
    function: str,
    A: Any,
    b: Operand,
    work: Any,
    out: DevicePtr[Any] | None,
    check: bool,
    device: Device | str | None,
    on_host: bool = False,
) -> Result:
    need_bool(function, "check", check)

    def shape_of(shape: tuple[int, int], of_b: tuple[int, ...]) -> tuple[int, ...]:
        if shape[0] != shape[1]:
            raise ArgumentError(f"{function}: A has shape {shape}, and needs as many rows as columns")
        need_operand(function, "b", of_b, shape[0], shape)
        return of_b

    return run(function, A, ("b", b), shape_of, work, out, check, device, on_host)
