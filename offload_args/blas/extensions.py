"""BLAS-like extensions: sums of matrices, and products with diagonal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._refusals import check_shape, inexpressible
from ._routine import Routine

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

__all__ = ["dgmm", "geam"]

_GEAM = Routine("geam", "sgeam dgeam cgeam zgeam", "A2 B2 C2", "trans_a trans_b")
_DGMM = Routine("dgmm", "sdgmm ddgmm cdgmm zdgmm", "A2 x1 C2", "side")


def geam(
    alpha: Scalar, A: Pointer, beta: Scalar, B: Pointer, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) + beta op(B); op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and so for B.

    C has shape (m, n), as op(A) and op(B) have, and memory of its own. Orders may be mixed, except that a complex
    matrix with "C" needs the order of C.
    """
    entry, (*_, a, a_rows), (*_, b, b_rows), (m, n, *c) = _GEAM.read((A, B, C), trans_a, trans_b)
    call, _, enums = entry
    for operand, pointer, trans in (("A", A, trans_a), ("B", B, trans_b)):
        needed = (m, n) if trans == "N" else (n, m)
        if pointer._shape != needed:
            reason = f'for C of shape ({m}, {n}) and trans_{operand.lower()}="{trans}"'
            check_shape("geam", operand, pointer, needed, reason)
    for t, lda, other_a, ldb, other_b in ((0, a, a_rows, b, b_rows), (1, a_rows, a, b_rows, b)):
        op_a, lda = enums.op[not lda][trans_a], lda or other_a
        op_b, ldb = enums.op[not ldb][trans_b], ldb or other_b
        if c[t] and lda and ldb and op_a is not None and op_b is not None:
            if t:
                m, n = n, m
            call(op_a, op_b, m, n, alpha, A, lda, beta, B, ldb, C, c[t])
            return
    raise inexpressible("geam", "a conjugate transposed operand needs the order of C", A=A, B=B, C=C)


def dgmm(A: Pointer, x: Pointer, C: Pointer, *, side: str = "L") -> None:
    """Set C to diag(x) A (side "L": row i times x[i]) or A diag(x) ("R": column j times x[j]).

    A and C have shape (m, n) and one order, and C has memory of its own; x has shape (m,) for "L" or (n,) for "R".
    """
    entry, (*_, a, a_rows), (_, incx), (m, n, *c) = _DGMM.read((A, x, C), side)
    call, _, enums = entry
    check_shape("dgmm", "A", A, (m, n), "as C has")
    if x._shape != (m if side == "L" else n,):
        check_shape("dgmm", "x", x, (m if side == "L" else n,), f'for C of shape ({m}, {n}) and side="{side}"')
    for t, lda in ((0, a), (1, a_rows)):
        if lda and c[t]:
            if t:
                m, n = n, m
            call(enums.side[t][side], m, n, A, lda, x, incx, C, c[t])
            return
    raise inexpressible("dgmm", "A and C need the same order", A=A, C=C)
