"""Level 3: matrices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ._names import named
from ._refusals import check_shape, inexpressible
from ._routine import Routine, level3

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._routine import Pointer, Scalar
    from ._vendors import Entry

__all__ = ["HEMM", "HER2K", "HERK", "SYMM", "SYR2K", "SYRK", "TRMM", "TRSM"]
__all__ += ["hemm", "her2k", "herk", "symm", "syr2k", "syrk", "triangular", "trmm", "trsm"]

SYMM = Routine("symm", "ssymm dsymm csymm zsymm", "A2 B2 C2", "side uplo")
HEMM = Routine("hemm", "ssymm dsymm chemm zhemm", "A2 B2 C2", "side uplo")
SYRK = Routine("syrk", "ssyrk dsyrk csyrk zsyrk", "A2 C2", "uplo trans")
HERK = Routine("herk", "ssyrk dsyrk cherk zherk", "A2 C2", "uplo trans")
SYR2K = Routine("syr2k", "ssyr2k dsyr2k csyr2k zsyr2k", "A2 B2 C2", "uplo trans")
HER2K = Routine("her2k", "ssyr2k dsyr2k cher2k zher2k", "A2 B2 C2", "uplo trans")
TRMM = Routine("trmm", "strmm dtrmm ctrmm ztrmm", "A2 B2", "side uplo trans diag")
TRSM = Routine("trsm", "strsm dtrsm ctrsm ztrsm", "A2 B2", "side uplo trans diag")


def _symmetric_matrix(
    routine: Routine, alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, side: str, uplo: str
) -> None:
    entry, (rows, columns, *a), (rows_b, columns_b, *b), (m, n, *c) = routine.read((A, B, C), side, uplo)
    call, _, enums = entry
    order = m if side == "L" else n
    if not (rows == columns == order and rows_b == m and columns_b == n):
        check_shape(routine.name, "A", A, (order, order), f'for C of shape ({m}, {n}) and side="{side}"')
        check_shape(routine.name, "B", B, (m, n), "as C has")
    conjugates = routine is HEMM and enums.conjugates  # then A in another order than C's is conj(A), not A
    for t in (0, 1):
        at, ldb, ldc = t if a[t] else 1 - t, b[t], c[t]
        if a[at] and ldb and ldc and not (conjugates and at != t):
            if t:
                m, n = n, m
            call(enums.side[t][side], enums.uplo[at][uplo], m, n, alpha, A, a[at], B, ldb, beta, C, ldc)
            return
    rule = "A and B and C need the same order" if conjugates else "B and C need the same order"
    raise inexpressible(routine.name, rule, A=A, B=B, C=C)


@level3
def symm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a symmetric A.

    B and C have shape (m, n) and one order; A has shape (m, m) for "L" or (n, n) for "R", in any order, and its upper
    ("U") or lower ("L") triangle is read.
    """
    _symmetric_matrix(SYMM, alpha, A, B, beta, C, side, uplo)


@level3
def hemm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a Hermitian A.

    B and C have shape (m, n); A has shape (m, m) for "L" or (n, n) for "R", and its upper ("U") or lower ("L")
    triangle is read. All have one order. For real dtypes it is symm.
    """
    _symmetric_matrix(HEMM, alpha, A, B, beta, C, side, uplo)


def _rank_k(
    routine: Routine, alpha: Scalar, operands: tuple[Pointer, ...], beta: Scalar, C: Pointer, uplo: str, trans: str
) -> None:
    """Update a triangle of C by A, or by A and B."""
    entry, *sizes, (n, columns, *c) = routine.read((*operands, C), uplo, trans)
    call, _, enums = entry
    hermitian = enums.conjugates and (routine is HERK or routine is HER2K)
    if enums.conjugates and trans == ("T" if hermitian else "C"):
        meant, other = ("C", "syrk and syr2k have") if hermitian else ("T", "herk and her2k have")
        raise ArgumentError(
            f'blas.{routine.name}: trans must be "N" or "{meant}" for {C.dtype}, got "{trans}"; {other} "{trans}"'
        )
    n_a, k = sizes[0][:2] if trans == "N" else sizes[0][1::-1]
    if columns != n or n_a != n or sizes[-1][:2] != sizes[0][:2]:
        check_shape(routine.name, "C", C, (n, n), "as a square matrix")
        needed = (n, k) if trans == "N" else (k, n)
        check_shape(routine.name, "A", operands[0], needed, f'for C of shape ({n}, {n}) and trans="{trans}"')
        check_shape(routine.name, "B", operands[-1], needed, "as A has")
    for t in (0, 1):
        leads, at = [one[2 + t] for one in sizes], t if c[t] else 1 - t
        if not (all(leads) and c[at]) or (hermitian and at != t):
            continue
        given = list(zip(operands, leads, strict=True))
        op = enums.op[t][trans]
        if hermitian and t:  # of what is computed, conj(C), the operands are A^T and B^T
            op, given = enums.op[0]["C" if trans == "N" else "N"], given[::-1]
            call = call if len(given) == 1 else partial(named, call, {"A": "B", "B": "A"})
        call(enums.uplo[at][uplo], op, n, k, alpha, *(part for pair in given for part in pair), beta, C, c[at])
        return
    read = dict(zip("AB", operands, strict=False))
    rule = f"{' and '.join([*read, 'C'] if hermitian else 'AB')} need the same order"
    raise inexpressible(routine.name, rule, **read, C=C)


@level3
def syrk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^T + beta C (trans "N") or alpha A^T A + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "T", in any order. For real dtypes "C" is "T".
    """
    _rank_k(SYRK, alpha, (A,), beta, C, uplo, trans)


@level3
def herk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^H + beta C (trans "N") or alpha A^H A + beta C ("C"), alpha and beta real.

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "C", and C's order. For real dtypes it is syrk.
    """
    _rank_k(HERK, alpha, (A,), beta, C, uplo, trans)


@level3
def syr2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha (A B^T + B A^T) + beta C (trans "N") or alpha (A^T B + B^T A) + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A and B have shape (n, k), or
    (k, n) for "T", and one order. For real dtypes "C" is "T".
    """
    _rank_k(SYR2K, alpha, (A, B), beta, C, uplo, trans)


@level3
def her2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha A B^H + conj(alpha) B A^H + beta C, or alpha A^H B + conj(alpha) B^H A + beta C.

    The first is trans "N", the second "C". C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and
    written; A and B have shape (n, k), or (k, n) for "C"; all have one order. beta is real. For real dtypes it is
    syr2k.
    """
    _rank_k(HER2K, alpha, (A, B), beta, C, uplo, trans)


def triangular(
    entry: Entry, routine: Routine, A: Pointer, a: Sequence[int], B: Pointer, b: Sequence[int], *options: str
) -> tuple[list[Any], int, int, int, int]:
    """Return the arguments of trmm and trsm: side, triangle, operation and diagonal; m, n, ld of A, ld of B."""
    side, uplo, trans, diag = options
    (rows, columns, *leads_a), (m, n, *leads_b), enums = a, b, entry.enums
    order = m if side == "L" else n
    if not rows == columns == order:
        check_shape(routine.name, "A", A, (order, order), f'for B of shape ({m}, {n}) and side="{side}"')
    for t in (0, 1):
        at, ldb = t if leads_a[t] else 1 - t, leads_b[t]
        op = enums.op[at != t][trans]
        if leads_a[at] and ldb and op is not None:
            if t:
                m, n = n, m
            return [enums.side[t][side], enums.uplo[at][uplo], op, enums.diag[diag]], m, n, leads_a[at], ldb
    raise inexpressible(routine.name, 'a complex A with trans="C" needs the order of B', A=A, B=B)


def _triangular_matrix(routine: Routine, alpha: Scalar, A: Pointer, B: Pointer, *options: str) -> None:
    entry, a, b = routine.read((A, B), *options)
    chosen, m, n, lda, ldb = triangular(entry, routine, A, a, B, b, *options)
    entry.call(*chosen, m, n, alpha, A, lda, B, ldb)


@level3
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


@level3
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
