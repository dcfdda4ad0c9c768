"""Level 3: matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ._refusals import WRONG, explain, inexpressible, misfit, stored
from ._routine import Routine

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

GEMM = Routine("gemm", "sgemm dgemm cgemm zgemm")
SYMM = Routine("symm", "ssymm dsymm csymm zsymm")
HEMM = Routine("hemm", "ssymm dsymm chemm zhemm")
SYRK = Routine("syrk", "ssyrk dsyrk csyrk zsyrk")
HERK = Routine("herk", "ssyrk dsyrk cherk zherk")
SYR2K = Routine("syr2k", "ssyr2k dsyr2k csyr2k zsyr2k")
HER2K = Routine("her2k", "ssyr2k dsyr2k cher2k zher2k")
TRMM = Routine("trmm", "strmm dtrmm ctrmm ztrmm")
TRSM = Routine("trsm", "strsm dtrsm ctrsm ztrsm")


# Each is computed as it is written, or transposed as a whole (t = 1) for an output in C order: what lies in C order is
# then, for the library, the transpose that is wanted.
def gemm(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) op(B) + beta C; op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and so for B.

    C has shape (m, n), op(A) (m, k) and op(B) (k, n). Orders may be mixed, except that a complex matrix with "C" needs
    the order of C.
    """
    try:
        _, call, enums = GEMM[C._device, C._dtype_code]
        m, n = C._shape
        rows_a, k = A._shape if trans_a == "N" else A._shape[::-1]
        rows_b, columns_b = B._shape if trans_b == "N" else B._shape[::-1]
        if C._dtype_code != A._dtype_code or C._dtype_code != B._dtype_code:
            raise KeyError
        ops_a = enums.op[0][trans_a], enums.op[1][trans_a]
        ops_b = enums.op[0][trans_b], enums.op[1][trans_b]
        stored_a, stored_b, stored_c = stored(A), stored(B), stored(C)
    except WRONG:
        explain(GEMM, {"A": (A, 2), "B": (B, 2), "C": (C, 2)}, trans_a=trans_a, trans_b=trans_b)
        raise
    if rows_a != m:
        needed = (m, k) if trans_a == "N" else (k, m)
        raise misfit("gemm", "A", A, needed, f'for C of shape ({m}, {n}) and trans_a="{trans_a}"')
    if rows_b != k or columns_b != n:
        needed = (k, n) if trans_b == "N" else (n, k)
        reason = f'for C of shape ({m}, {n}), A of shape {A._shape}, trans_a="{trans_a}" and trans_b="{trans_b}"'
        raise misfit("gemm", "B", B, needed, reason)
    for t in (0, 1):
        ldc = stored_c[t]
        # in the order of the output if it is stored so, with its operation as it is; else in the other, flipped
        op_a, lda = (ops_a[0], stored_a[t]) if stored_a[t] else (ops_a[1], stored_a[1 - t])
        op_b, ldb = (ops_b[0], stored_b[t]) if stored_b[t] else (ops_b[1], stored_b[1 - t])
        if ldc and lda and ldb and op_a is not None and op_b is not None:
            if t:
                call(op_b, op_a, n, m, k, alpha, B, ldb, A, lda, beta, C, ldc)
            else:
                call(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
            return
    raise inexpressible("gemm", "a conjugate transposed operand needs the order of C", A=A, B=B, C=C)


def _symmetric_matrix(
    routine: Routine, alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, side: str, uplo: str
) -> None:
    try:
        _, call, enums = routine[C._device, C._dtype_code]
        m, n = C._shape
        rows, columns = A._shape
        if C._dtype_code != A._dtype_code or C._dtype_code != B._dtype_code:
            raise KeyError
        sides = enums.side[0][side], enums.side[1][side]
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        stored_a, stored_b, stored_c = stored(A), stored(B), stored(C)
    except WRONG:
        explain(routine, {"A": (A, 2), "B": (B, 2), "C": (C, 2)}, side=side, uplo=uplo)
        raise
    order = m if side == "L" else n
    if rows != order or columns != order:
        raise misfit(routine.name, "A", A, (order, order), f'for C of shape ({m}, {n}) and side="{side}"')
    if B._shape != C._shape:
        raise misfit(routine.name, "B", B, (m, n), "as C has")
    conjugates = routine is HEMM and enums.conjugates  # then A in another order than C's is conj(A), not A
    for t in (0, 1):
        ldb, ldc = stored_b[t], stored_c[t]
        a = t if stored_a[t] else 1 - t
        lda = stored_a[a]
        if lda and ldb and ldc and not (conjugates and a != t):
            if t:
                m, n = n, m
            call(sides[t], fills[a], m, n, alpha, A, lda, B, ldb, beta, C, ldc)
            return
    rule = "A and B and C need the same order" if conjugates else "B and C need the same order"
    raise inexpressible(routine.name, rule, A=A, B=B, C=C)


def symm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a symmetric A.

    B and C have shape (m, n) and one order; A has shape (m, m) for "L" or (n, n) for "R", in any order, and its upper
    ("U") or lower ("L") triangle is read.
    """
    _symmetric_matrix(SYMM, alpha, A, B, beta, C, side, uplo)


def hemm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a Hermitian A.

    B and C have shape (m, n); A has shape (m, m) for "L" or (n, n) for "R", and its upper ("U") or lower ("L")
    triangle is read. All have one order. For real dtypes it is symm.
    """
    _symmetric_matrix(HEMM, alpha, A, B, beta, C, side, uplo)


def _rank_k(
    routine: Routine, alpha: Scalar, A: Pointer, B: Pointer | None, beta: Scalar, C: Pointer, uplo: str, trans: str
) -> None:
    operands = {"A": A, "C": C} if B is None else {"A": A, "B": B, "C": C}
    try:
        _, call, enums = routine[C._device, C._dtype_code]
        n, columns = C._shape
        rows_a, k = A._shape if trans == "N" else A._shape[::-1]
        if any(operand._dtype_code != C._dtype_code for operand in operands.values()):
            raise KeyError
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        ops = enums.op[0][trans], enums.op[1][trans]
        stored_a, stored_c = stored(A), stored(C)
        stored_b = stored_a if B is None else stored(B)
    except WRONG:
        explain(routine, {name: (operand, 2) for name, operand in operands.items()}, uplo=uplo, trans=trans)
        raise
    hermitian = enums.conjugates and (routine is HERK or routine is HER2K)
    if enums.conjugates and trans == ("T" if hermitian else "C"):
        meant, other = ("C", "syrk and syr2k have") if hermitian else ("T", "herk and her2k have")
        raise ArgumentError(
            f'blas.{routine.name}: trans must be "N" or "{meant}" for {C.dtype}, got "{trans}"; {other} "{trans}"'
        )
    if columns != n:
        raise misfit(routine.name, "C", C, (n, n), "as a square matrix")
    if rows_a != n:
        needed = (n, k) if trans == "N" else (k, n)
        raise misfit(routine.name, "A", A, needed, f'for C of shape ({n}, {n}) and trans="{trans}"')
    if B is not None and B._shape != A._shape:
        raise misfit(routine.name, "B", B, A._shape, "as A has")
    for t in (0, 1):
        lda, ldb = stored_a[t], stored_b[t]
        c = t if stored_c[t] else 1 - t
        ldc = stored_c[c]
        if not (lda and ldb and ldc) or (hermitian and c != t):
            continue
        op = ops[t]
        if hermitian and t:  # of what is computed, conj(C), the operands are A^T and B^T
            op = enums.op[0]["C" if trans == "N" else "N"]
            A, lda, B, ldb = (A, lda, B, ldb) if B is None else (B, ldb, A, lda)
        if B is None:
            call(fills[c], op, n, k, alpha, A, lda, beta, C, ldc)
        else:
            call(fills[c], op, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
        return
    rule = f"{' and '.join(operands if hermitian else 'AB')} need the same order"
    raise inexpressible(routine.name, rule, **operands)


def syrk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^T + beta C (trans "N") or alpha A^T A + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "T", in any order. For real dtypes "C" is "T".
    """
    _rank_k(SYRK, alpha, A, None, beta, C, uplo, trans)


def herk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^H + beta C (trans "N") or alpha A^H A + beta C ("C"), alpha and beta real.

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "C", and C's order. For real dtypes it is syrk.
    """
    _rank_k(HERK, alpha, A, None, beta, C, uplo, trans)


def syr2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha (A B^T + B A^T) + beta C (trans "N") or alpha (A^T B + B^T A) + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A and B have shape (n, k), or
    (k, n) for "T", and one order. For real dtypes "C" is "T".
    """
    _rank_k(SYR2K, alpha, A, B, beta, C, uplo, trans)


def her2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha A B^H + conj(alpha) B A^H + beta C, or alpha A^H B + conj(alpha) B^H A + beta C.

    The first is trans "N", the second "C". C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and
    written; A and B have shape (n, k), or (k, n) for "C"; all have one order. beta is real. For real dtypes it is
    syr2k.
    """
    _rank_k(HER2K, alpha, A, B, beta, C, uplo, trans)


def _triangular_matrix(
    routine: Routine, alpha: Scalar, A: Pointer, B: Pointer, side: str, uplo: str, trans: str, diag: str
) -> None:
    try:
        _, call, enums = routine[B._device, B._dtype_code]
        m, n = B._shape
        rows, columns = A._shape
        if A._dtype_code != B._dtype_code:
            raise KeyError
        sides = enums.side[0][side], enums.side[1][side]
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        ops = enums.op[0][trans], enums.op[1][trans]
        unit = enums.diag[diag]
        stored_a, stored_b = stored(A), stored(B)
    except WRONG:
        explain(routine, {"A": (A, 2), "B": (B, 2)}, side=side, uplo=uplo, trans=trans, diag=diag)
        raise
    order = m if side == "L" else n
    if rows != order or columns != order:
        raise misfit(routine.name, "A", A, (order, order), f'for B of shape ({m}, {n}) and side="{side}"')
    for t in (0, 1):
        ldb = stored_b[t]
        a = t if stored_a[t] else 1 - t
        lda, op = stored_a[a], ops[a != t]
        if lda and ldb and op is not None:
            if t:
                m, n = n, m
            call(sides[t], fills[a], op, unit, m, n, alpha, A, lda, B, ldb)
            return
    raise inexpressible(routine.name, 'a complex A with trans="C" needs the order of B', A=A, B=B)


def trmm(
    alpha: Scalar,
    A: Pointer,
    B: Pointer,
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
) -> None:
    """Set B to alpha op(A) B (side "L") or alpha B op(A) ("R") for a triangular A.

    op(A) is A, A^T or A^H for trans "N", "T" or "C". B has shape (m, n); A has shape (m, m) for "L" or (n, n) for "R",
    and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones, if diag is "U".
    Orders may be mixed, except that a complex A with "C" needs the order of B.
    """
    _triangular_matrix(TRMM, alpha, A, B, side, uplo, trans, diag)


def trsm(
    alpha: Scalar,
    A: Pointer,
    B: Pointer,
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
) -> None:
    """Solve op(A) X = alpha B (side "L") or X op(A) = alpha B ("R") for a triangular A and set B to X.

    op(A) is A, A^T or A^H for trans "N", "T" or "C". B has shape (m, n); A has shape (m, m) for "L" or (n, n) for "R",
    and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones, if diag is "U".
    Orders may be mixed, except that a complex A with "C" needs the order of B. Nothing checks that A can be inverted.
    """
    _triangular_matrix(TRSM, alpha, A, B, side, uplo, trans, diag)
