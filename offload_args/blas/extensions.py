"""BLAS-like extensions: sums of matrices, and products with diagonal ones."""

from __future__ import annotations

from .._operands import need_shape
from ..pointers import DevicePtr
from ._forward import GEAM
from ._plans import planned
from ._refusals import conjugated_operands, inexpressible
from ._routine import Routine, Scalar

__all__ = ["dgmm", "geam"]

_DGMM = Routine("dgmm", "sdgmm ddgmm cdgmm zdgmm", "A2 x1 C2", "side")


@planned(GEAM, "alpha ~A:mn/nm@trans_a beta ~B:mn/nm@trans_b C:mn", "m n/n m", "trans_a!A trans_b!B")
def geam(
    alpha: Scalar, A: DevicePtr, beta: Scalar, B: DevicePtr, C: DevicePtr, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) + beta op(B); op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and op(B) likewise.

    alpha, beta: numbers, or 0-d DevicePtrs of the operands' dtype.
    A: matrix; op(A) has shape (m, n).
    B: matrix; op(B) has shape (m, n).
    C: matrix of shape (m, n), written. C may be A or B if the option of that operand is "N".
    trans_a, trans_b: the choices of op(A) and op(B): "N" for the matrix itself, "T" for its transpose, "C" for its
    conjugate transpose.

    Orders may be mixed, except that a complex matrix with "C" needs the order of C.

        A, B, C = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.ones((2, 3)), np.empty((2, 3))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.geam(1.0, dA, 1.0, dB, dC, trans_a="T")
        print(C.tolist())  # [[2.0, 4.0, 6.0], [3.0, 5.0, 7.0]]

    See also: blas.axpy, blas.dgmm; cublas.dgeam, rocblas.dgeam; docs/guide/blas.md.
    """
    entry, (*_, a, a_rows), (*_, b, b_rows), (m, n, *c) = GEAM.read((A, B, C), trans_a, trans_b)
    call, _, enums = entry
    for operand, pointer, trans in (("A", A, trans_a), ("B", B, trans_b)):
        needed = (m, n) if trans == "N" else (n, m)
        if pointer._shape != needed:
            reason = f'for C of shape ({m}, {n}) and trans_{operand.lower()}="{trans}"'
            need_shape("blas.geam", operand, pointer, needed, reason)
    for t, lda, other_a, ldb, other_b in ((0, a, a_rows, b, b_rows), (1, a_rows, a, b_rows, b)):
        op_a, lda = enums.op[not lda][trans_a], lda or other_a
        op_b, ldb = enums.op[not ldb][trans_b], ldb or other_b
        if c[t] and lda and ldb and op_a is not None and op_b is not None:
            if t:
                m, n = n, m
            call(op_a, op_b, m, n, alpha, A, lda, beta, B, ldb, C, c[t])
            return
    conjugated = conjugated_operands(enums, A=trans_a, B=trans_b)
    raise inexpressible("geam", "a conjugate transposed operand needs the order of C", f"{conjugated}C", A=A, B=B, C=C)


@planned(_DGMM, "A:mn x:m/n@side C:mn", "m n/n m", "side^")
def dgmm(A: DevicePtr, x: DevicePtr, C: DevicePtr, *, side: str = "L") -> None:
    """Set C to diag(x) A (side "L": row i times x[i]) or A diag(x) ("R": column j times x[j]).

    A: matrix of shape (m, n).
    x: vector of shape (m,) for side "L", (n,) for "R".
    C: matrix of shape (m, n), written, in A's order. It may be A.
    side: the place of diag(x): "L" left of A, "R" right of it.

        A, x, C = np.ones((2, 3)), np.array([1.0, 2.0]), np.empty((2, 3))
        with offload_args(A, x, C) as (dA, dx, dC):
            blas.dgmm(dA, dx, dC)
        print(C.tolist())  # [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]

    See also: blas.scal, blas.geam; cublas.ddgmm, rocblas.ddgmm; docs/guide/blas.md.
    """
    entry, (*_, a, a_rows), (_, incx), (m, n, *c) = _DGMM.read((A, x, C), side)
    call, _, enums = entry
    need_shape("blas.dgmm", "A", A, (m, n), "as C has")
    if x._shape != (m if side == "L" else n,):
        need_shape("blas.dgmm", "x", x, (m if side == "L" else n,), f'for C of shape ({m}, {n}) and side="{side}"')
    for t, lda in ((0, a), (1, a_rows)):
        if lda and c[t]:
            if t:
                m, n = n, m
            call(enums.side[t][side], m, n, A, lda, x, incx, C, c[t])
            return
    raise inexpressible("dgmm", "A and C need the same order", "AC", A=A, C=C)
