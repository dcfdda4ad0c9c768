"""General square systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ._operands import (
    INT32,
    columns,
    factored,
    letter_of,
    matrix,
    need_fortran,
    need_pivots,
    need_solvable,
    option,
    refuse,
    square,
    vector,
)
from ._vendors import vendor_of

if TYPE_CHECKING:
    from ._operands import Columns, Matrix, Pointer

__all__ = ["gesv", "getrf", "getrs"]


def getrf(A: Pointer, ipiv: Pointer) -> None:
    """Factor A with row interchanges: A = P L U. A becomes U and, below the diagonal, L, whose diagonal is ones.

    A has shape (m, n), ipiv (min(m, n),) and dtype int32: row i was exchanged with row ipiv[i] - 1. Of an A in C order
    the factors are those of A^T, which is what lies there by columns: U and L of A^T are stored transposed, and ipiv
    counts columns of A. getrs takes either.

    Raises numpy.linalg.LinAlgError, naming the pivot, if U has a zero on its diagonal.
    Source: LAPACK, xGETRF.
    """
    t = letter_of("getrf", "A", A)
    a = matrix("getrf", "A", A)
    vector("getrf", "ipiv", ipiv, min(a.rows, a.columns), INT32, "for A of that shape")
    _factor("getrf", t, A, a, ipiv)


def _factor(name: str, t: str, A: Pointer, a: Matrix, ipiv: Pointer) -> None:
    vendor = vendor_of(name, A)
    if not a.rows or not a.columns:
        return
    if a.ld_f:
        info = vendor.getrf(t, a.rows, a.columns, A, a.ld_f, ipiv)
    else:
        info = vendor.getrf(t, a.columns, a.rows, A, a.ld_c, ipiv)
    if info:
        refuse(name, f"A is singular: pivot {info} of its factor U is zero", A=A, ipiv=ipiv)


def getrs(A: Pointer, ipiv: Pointer, B: Pointer, *, trans: str = "N") -> None:
    """Solve op(A) X = B with what getrf left, and set B to X; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), ipiv (n,) and dtype int32, B (n, nrhs), in Fortran order, or (n,). A lies as it did for getrf,
    in any order, but a complex one with "C" lies in Fortran order.

    The pivots are read, and ArgumentError is raised for some that getrf can't have left, because libraries write
    outside of B then. SciPy's lu_factor counts pivots from 0: pass piv + 1.

    Source: LAPACK, xGETRS.
    """
    t = letter_of("getrs", "A", A)
    option("getrs", "trans", trans, ("N", "T", "C"))
    a = square("getrs", "A", A)
    vector("getrs", "ipiv", ipiv, a.rows, INT32, "for A of that order")
    b = columns("getrs", "B", B, a.rows, "for A of that order", A)
    if trans == "C" and t in "cz" and not a.ld_f:
        raise ArgumentError(
            f'lapack.getrs: a complex A with trans="C" needs Fortran order, got shape {A._shape} and strides '
            f"{A._strides}; factor a copy in it: numpy.asfortranarray(A)"
        )
    need_fortran("getrs", "B", B, b)
    need_pivots("getrs", ipiv)
    _solve("getrs", t, trans, A, a, ipiv, B, b)


def _solve(name: str, t: str, trans: str, A: Pointer, a: Matrix, ipiv: Pointer, B: Pointer, b: Columns) -> None:
    vendor = vendor_of(name, A)
    if not b.rows or not b.columns:
        return
    stored = trans if a.ld_f else {"N": "T", "T": "N", "C": "N"}[trans]  # of A^T
    vendor.getrs(t, stored, b.rows, b.columns, A, a.ld_f or a.ld_c, ipiv, B, b.ld_f)


def gesv(A: Pointer, ipiv: Pointer, B: Pointer) -> None:
    """Solve A X = B, set B to X, and A and ipiv to what getrf leaves there.

    A has shape (n, n), in any order, ipiv (n,) and dtype int32, B (n, nrhs), in Fortran order, or (n,).

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is singular; B is as it was then.
    Source: LAPACK, xGESV.
    """
    t = letter_of("gesv", "A", A)
    a = square("gesv", "A", A)
    vector("gesv", "ipiv", ipiv, a.rows, INT32, "for A of that order")
    b = columns("gesv", "B", B, a.rows, "for A of that order", A)
    need_fortran("gesv", "B", B, b)
    need_solvable("gesv", A, B)
    _factor("gesv", t, A, a, ipiv)
    with factored("gesv", A=A, ipiv=ipiv, B=B):
        _solve("gesv", t, "N", A, a, ipiv, B, b)
