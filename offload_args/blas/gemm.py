"""Products of general matrices: one pair, or a batch."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core import layout
from ..errors import ArgumentError
from ._refusals import inexpressible, misfit
from ._routine import WRONG, Routine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._routine import Pointer, Scalar
    from ._vendors import Enums

__all__ = ["GEMM", "gemm", "gemm_strided_batched"]

GEMM = Routine("gemm", "sgemm dgemm cgemm zgemm", "A2 B2 C2", "trans_a trans_b")
_FUNCTIONS = " ".join(f"{t}gemm_strided_batched" for t in "sdcz")
# By name, and the numbers of dimensions of A and B: one of 2 dimensions serves for all of a batch.
_STRIDED = {
    (name, a, b): Routine(name, _FUNCTIONS, f"A{a} B{b} C3", "trans_a trans_b")
    for name, a, b in product(("gemm", "gemm_strided_batched"), (2, 3), (2, 3))
}

# The leading dimensions of a matrix by columns and by rows, 0 where it does not lie so; more may follow.
_Leads: TypeAlias = "Sequence[int]"
_Plan: TypeAlias = "tuple[int, Any, int, Any, int, int]"


def _plan(enums: Enums, trans_a: str, a: _Leads, trans_b: str, b: _Leads, c: _Leads) -> _Plan:
    """Return (transposed, op of A, ld of A, op of B, ld of B, ld of C) in column-major order, ld 0 if there is no way.

    The product is computed as it is written, or transposed as a whole for a C in C order: then, for the library, what
    lies in C order is the transpose that is wanted. An operand in the other order than C has its operation flipped.
    """
    for t in (0, 1):
        op_a, lda = (enums.op[0][trans_a], a[t]) if a[t] else (enums.op[1][trans_a], a[1 - t])
        op_b, ldb = (enums.op[0][trans_b], b[t]) if b[t] else (enums.op[1][trans_b], b[1 - t])
        if c[t] and lda and ldb and op_a is not None and op_b is not None:
            return t, op_a, lda, op_b, ldb, c[t]
    return 0, None, 0, None, 0, 0


def _misfits(name: str, A: Pointer, B: Pointer, C: Pointer, trans_a: str, trans_b: str) -> ArgumentError:
    """The error for matrices whose sizes do not fit together."""
    (m, n), k = C._shape[-2:], A._shape[-1 if trans_a == "N" else -2]
    needed = (m, k) if trans_a == "N" else (k, m)
    if A._shape[-2:] != needed:
        return misfit(name, "A", A, (*A._shape[:-2], *needed), f'for C of shape {C._shape} and trans_a="{trans_a}"')
    needed = (k, n) if trans_b == "N" else (n, k)
    reason = f'for C of shape {C._shape}, A of shape {A._shape}, trans_a="{trans_a}" and trans_b="{trans_b}"'
    return misfit(name, "B", B, (*B._shape[:-2], *needed), reason)


_RULE = "a conjugate transposed operand needs the order of C"


def gemm(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) op(B) + beta C; op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and so for B.

    C has shape (m, n), op(A) (m, k) and op(B) (k, n). Orders may be mixed, except that a complex matrix with "C" needs
    the order of C. With a C of three dimensions it is gemm_strided_batched.
    """
    try:
        entry, (rows_a, columns_a, *a), (rows_b, columns_b, *b), (m, n, *c) = layout("222", GEMM, A, B, C)
        call, _, enums = entry
        transposed, op_a, lda, op_b, ldb, ldc = _plan(enums, trans_a, a, trans_b, b, c)
    except WRONG:
        if any(len(getattr(operand, "_shape", ())) == 3 for operand in (A, B, C)):
            return _batch("gemm", alpha, A, B, beta, C, trans_a, trans_b)
        GEMM.explain((A, B, C), trans_a, trans_b)
        raise
    m_a, k = (rows_a, columns_a) if trans_a == "N" else (columns_a, rows_a)
    k_b, n_b = (rows_b, columns_b) if trans_b == "N" else (columns_b, rows_b)
    if m_a != m or k_b != k or n_b != n:
        raise _misfits("gemm", A, B, C, trans_a, trans_b)
    if not ldc:
        raise inexpressible("gemm", _RULE, A=A, B=B, C=C)
    if transposed:
        call(op_b, op_a, n, m, k, alpha, B, ldb, A, lda, beta, C, ldc)
    else:
        call(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)


def gemm_strided_batched(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C[i] to alpha op(A[i]) op(B[i]) + beta C[i] for every i; op(A) is A, A^T or A^H for "N", "T" or "C".

    C has shape (batch, m, n), op(A) (batch, m, k) and op(B) (batch, k, n); as in numpy.matmul an A or B of shape
    (1, ...), or of two dimensions, serves for all. Each matrix of an operand has the same order; orders may be mixed,
    except that a complex operand with "C" needs the order of C. It is one call of the library.
    """
    _batch("gemm_strided_batched", alpha, A, B, beta, C, trans_a, trans_b)


def _batch(
    name: str, alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, trans_a: str, trans_b: str
) -> None:
    of_a, of_b = (3 if len(getattr(operand, "_shape", ())) == 3 else 2 for operand in (A, B))
    (call, _, enums), *geometries = _STRIDED[name, of_a, of_b].read((A, B, C), trans_a, trans_b)
    (rows_a, columns_a, *a), (rows_b, columns_b, *b), (m, n, *c, batch, stride_c) = geometries
    stride_a, stride_b = _stride(name, "A", A, batch, *a[2:]), _stride(name, "B", B, batch, *b[2:])
    _stride(name, "C", C, batch, batch, stride_c)
    m_a, k = (rows_a, columns_a) if trans_a == "N" else (columns_a, rows_a)
    k_b, n_b = (rows_b, columns_b) if trans_b == "N" else (columns_b, rows_b)
    if m_a != m or k_b != k or n_b != n:
        raise _misfits(name, A, B, C, trans_a, trans_b)
    transposed, op_a, lda, op_b, ldb, ldc = _plan(enums, trans_a, a, trans_b, b, c)
    if not ldc:
        raise inexpressible(name, _RULE, A=A, B=B, C=C)
    first, second = (op_a, A, lda, stride_a), (op_b, B, ldb, stride_b)
    if transposed:
        m, n, first, second = n, m, second, first
    call(first[0], second[0], m, n, k, alpha, *first[1:], *second[1:], beta, C, ldc, stride_c, batch)


def _stride(name: str, operand: str, pointer: Pointer, batch: int, count: int = 1, stride: int = 0) -> int:
    """Return how far the matrices of an operand are apart; 0 of one for all."""
    if count not in (1, batch):
        raise misfit(
            name, operand, pointer, (batch, *pointer._shape[1:]), f"for a C of {batch} matrices, or one for all"
        )
    if stride < 0:
        raise ArgumentError(
            f"blas.{name}: {operand} has strides {pointer._strides}, needs its matrices one behind the other; copy it "
            f"on the host: numpy.ascontiguousarray({operand})"
        )
    return stride
