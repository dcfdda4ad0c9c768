"""Positive definite systems, and triangular ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..blas.level3 import trsm
from ..errors import ArgumentError
from ._operands import as_columns, columns, factored, letter_of, need_solvable, option, refuse, square
from ._vendors import vendor_of

if TYPE_CHECKING:
    from ._operands import Columns, Matrix, Pointer

__all__ = ["check_orders", "posv", "potrf", "potrs", "solve_triangular", "trtrs"]


def potrf(A: Pointer, *, uplo: str = "U") -> None:
    """Factor a Hermitian positive definite A by Cholesky: A = U^H U for uplo "U", L L^H for "L".

    A has shape (n, n), in any order. One triangle of it is read, and becomes U or L; the other one is left alone.

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is not positive definite.
    Source: LAPACK, xPOTRF.
    """
    t = letter_of("potrf", "A", A)
    option("potrf", "uplo", uplo, ("U", "L"))
    _factor("potrf", t, A, square("potrf", "A", A), uplo)


def _factor(name: str, t: str, A: Pointer, a: Matrix, uplo: str) -> None:
    vendor = vendor_of(name, A)
    if not a.rows:
        return
    # In C order the library sees conj(A), and in its other triangle conj(U) or conj(L), transposed.
    stored = uplo if a.ld_f else {"U": "L", "L": "U"}[uplo]
    info = vendor.potrf(t, stored, a.rows, A, a.ld_f or a.ld_c)
    if info:
        refuse(name, f"A is not positive definite: its leading minor of order {info} (pivot {info}) is not", A=A)


def check_orders(name: str, t: str, a: Matrix, B: Pointer, b: Columns, conjugates: bool) -> None:
    """Raise ArgumentError for a complex B in another order than A's, if the solution needs conj(A)."""
    if t in "cz" and conjugates and not (a.ld_f and b.ld_f) and not (a.ld_c and b.ld_c):
        order, copy = ("Fortran", "asfortranarray") if a.ld_f else ("C", "ascontiguousarray")
        raise ArgumentError(
            f"lapack.{name}: a complex B needs the order of A, {order}, got shape {B._shape} and strides {B._strides}; "
            f"lend a copy in it: numpy.{copy}(B)"
        )


def potrs(A: Pointer, B: Pointer, *, uplo: str = "U") -> None:
    """Solve A X = B with the factor of A that potrf left, and set B to X.

    A has shape (n, n); its triangle is that of potrf. B has shape (n, nrhs) or (n,). Both have any order, but a complex
    B has that of A.

    Source: LAPACK, xPOTRS; here by two calls of trsm, as there.
    """
    t = letter_of("potrs", "A", A)
    option("potrs", "uplo", uplo, ("U", "L"))
    a = square("potrs", "A", A)
    b = columns("potrs", "B", B, a.rows, "for A of that order", A)
    check_orders("potrs", t, a, B, b, conjugates=True)
    vendor_of("potrs", A)
    _solve(A, B, uplo)


def _solve(A: Pointer, B: Pointer, uplo: str) -> None:
    B = as_columns(B)
    if 0 not in B._shape:
        for trans in ("C", "N") if uplo == "U" else ("N", "C"):
            trsm(1.0, A, B, uplo=uplo, trans=trans)


def posv(A: Pointer, B: Pointer, *, uplo: str = "U") -> None:
    """Solve A X = B for a Hermitian positive definite A, set B to X, and A to its Cholesky factor.

    A has shape (n, n) and B (n, nrhs) or (n,). Both have any order, but a complex B has that of A.

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is not positive definite; B is as it was then.
    Source: LAPACK, xPOSV.
    """
    t = letter_of("posv", "A", A)
    option("posv", "uplo", uplo, ("U", "L"))
    a = square("posv", "A", A)
    b = columns("posv", "B", B, a.rows, "for A of that order", A)
    check_orders("posv", t, a, B, b, conjugates=True)
    need_solvable("posv", A, B)
    _factor("posv", t, A, a, uplo)
    with factored("posv", A=A, B=B):
        _solve(A, B, uplo)


def trtrs(A: Pointer, B: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) X = B for a triangular A, and set B to X; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones,
    if diag is "U". B has shape (n, nrhs) or (n,). Both have any order, but a complex B has that of A if trans is "C".

    Raises numpy.linalg.LinAlgError, naming the pivot, if the diagonal has a zero; B is as it was then.
    Source: LAPACK, xTRTRS.
    """
    t = letter_of("trtrs", "A", A)
    for what, value, known in (("uplo", uplo, "UL"), ("trans", trans, "NTC"), ("diag", diag, "NU")):
        option("trtrs", what, value, tuple(known))
    a = square("trtrs", "A", A)
    b = columns("trtrs", "B", B, a.rows, "for A of that order", A)
    check_orders("trtrs", t, a, B, b, conjugates=trans == "C")
    vendor_of("trtrs", A)
    if diag == "N":
        zero = first_zero(A)
        if zero:
            refuse("trtrs", f"A is singular: pivot {zero}, on its diagonal, is zero")
    solve_triangular(A, B, uplo, trans, diag)


def first_zero(A: Pointer) -> int:
    """Return which element of a square matrix's diagonal is the first zero, counted from 1; 0 if none is."""
    if not A._shape[0]:
        return 0
    diagonal = A._view(0, A._shape[:1], (sum(A._strides),)).to_host()
    zeros = np.flatnonzero(diagonal == 0)
    return int(zeros[0]) + 1 if len(zeros) else 0


def solve_triangular(A: Pointer, B: Pointer, uplo: str, trans: str, diag: str = "N") -> None:
    """Solve op(A) X = B for operands that were checked."""
    B = as_columns(B)
    if 0 not in B._shape:
        trsm(1.0, A, B, uplo=uplo, trans=trans, diag=diag)
