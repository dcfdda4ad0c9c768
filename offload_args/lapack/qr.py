"""QR factors and least squares."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import numpy as np

from .._operands import letter_of, matrix, need_fortran, need_option, need_uncaptured, vector
from ..arguments import Scratch
from ..blas.level3 import trsm_stack
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import as_columns, columns, factored, first_zero, follow, need_solvable, refuse
from ._copies import Order, conjugated, fitting, need_apart, rearranged
from ._stacks import Infos, diagonal, make_identity, stacked, turned
from ._vendors import vendor_of
from .cholesky import solve_triangular

if TYPE_CHECKING:
    from .._operands import Matrix
    from ._checks import Columns

__all__ = ["gels", "geqrf", "orgqr", "ormqr", "ungqr"]


def _qr_operands(A: DevicePtr, tau: DevicePtr) -> tuple[str, Matrix]:
    """Return the letter and the geometry of a matrix that geqrf factors."""
    t = letter_of("lapack.geqrf", "A", A)
    a = matrix("lapack.geqrf", "A", A)
    need_fortran("lapack.geqrf", "A", A, a, ", as the factors of its transpose are others")
    vector("lapack.geqrf", "tau", tau, min(a.rows, a.columns), A._dtype_code, "for A of that shape")
    return t, a


def _geqrf_stack(A: DevicePtr, tau: DevicePtr) -> tuple[Infos, str] | None:
    t, a = _qr_operands(A[0], tau[0])
    if not a.rows or not a.columns:
        return None
    infos = vendor_of("lapack.geqrf", A).geqrf_batched(t, a.rows, a.columns, A, a.ld_f, tau)
    return None if infos is None else (infos, "")


@stacked("tau", writes=("tau",), whole=_geqrf_stack, captured=True)
def geqrf(A: DevicePtr, tau: DevicePtr) -> None:
    """Factor A = Q R: A becomes R and, below the diagonal, the vectors of k reflectors whose product is Q.

    A: matrix of shape (m, n), in Fortran order.
    tau: vector of shape (k,) and A's dtype, written; k = min(m, n).

    orgqr makes Q from A and tau, and ormqr multiplies by Q.

        A, tau = np.array([[3.0, 1.0], [0.0, 2.0], [4.0, 1.0]], order="F"), np.empty(2)
        with offload_args(A, tau) as (dA, dtau):
            lapack.geqrf(dA, dtau)
        print(abs(np.triu(A[:2])).round(6).tolist())  # [[5.0, 1.4], [0.0, 2.009975]]

    Source: LAPACK, xGEQRF.

    See also: lapack.orgqr, lapack.ormqr, lapack.gels; lapacke.dgeqrf, cusolver.dgeqrf, rocsolver.dgeqrf;
    docs/guide/lapack.md.
    """
    t, a = _qr_operands(A, tau)
    vendor = vendor_of("lapack.geqrf", A)
    if a.rows and a.columns:
        vendor.geqrf(t, a.rows, a.columns, A, a.ld_f, tau)


def _orgqr_stack(A: DevicePtr, tau: DevicePtr) -> tuple[Infos, str] | None:
    return _make_q_stack("lapack.orgqr", A, tau)


@stacked("tau", whole=_orgqr_stack)
def orgqr(A: DevicePtr, tau: DevicePtr) -> None:
    """Set A to the first n columns of the Q of geqrf.

    A: matrix of shape (m, n), m >= n, in Fortran order; its first k columns are as geqrf left them.
    tau: vector of shape (k,) that geqrf left; k is at most n.

    The columns after the first k are not read. LAPACK calls the function ungqr for complex dtypes.

        A, tau = np.array([[3.0, 1.0], [0.0, 2.0], [4.0, 1.0]], order="F"), np.empty(2)
        with offload_args(A, tau) as (dA, dtau):
            lapack.geqrf(dA, dtau)
            lapack.orgqr(dA, dtau)
        print(abs(A[:, 0]).round(6), (A.T @ A).round(6)[1])  # [0.6 0.  0.8] [0. 1.]

    Source: LAPACK, xORGQR and xUNGQR.

    See also: lapack.geqrf, lapack.ormqr, lapack.ungqr; lapacke.dorgqr, cusolver.dorgqr, rocsolver.dorgqr;
    docs/guide/lapack.md.
    """
    _make_q("lapack.orgqr", A, tau)


def _ungqr_stack(A: DevicePtr, tau: DevicePtr) -> tuple[Infos, str] | None:
    return _make_q_stack("lapack.ungqr", A, tau)


@stacked("tau", whole=_ungqr_stack)
def ungqr(A: DevicePtr, tau: DevicePtr) -> None:
    """Set A to the first n columns of the Q of geqrf, as orgqr does; this is LAPACK's name for complex dtypes.

    A: matrix of shape (m, n), m >= n, in Fortran order; its first k columns are as geqrf left them.
    tau: vector of shape (k,) that geqrf left; k is at most n.

        A, tau = np.array([[3.0], [4.0j]], order="F"), np.empty(1, complex)
        with offload_args(A, tau) as (dA, dtau):
            lapack.geqrf(dA, dtau)
            lapack.ungqr(dA, dtau)
        print(abs(A[:, 0]).round(6))  # [0.6 0.8]

    Source: LAPACK, xUNGQR and xORGQR.

    See also: lapack.orgqr, lapack.geqrf, lapack.ormqr; lapacke.zungqr, cusolver.zungqr, rocsolver.zungqr;
    docs/guide/lapack.md.
    """
    _make_q("lapack.ungqr", A, tau)


def _q_operands(name: str, A: DevicePtr, tau: DevicePtr) -> tuple[str, Matrix, int]:
    """Return the letter and the geometry of a matrix that becomes Q, and the number of its reflectors."""
    t = letter_of(name, "A", A)
    a = matrix(name, "A", A)
    need_fortran(name, "A", A, a, ", as geqrf leaves it")
    if a.rows < a.columns:
        raise ArgumentError(
            f"{name}: A has shape {A._shape}, needs at most as many columns as rows; pass the first {a.rows} columns"
        )
    k = min(getattr(tau, "size", 0), a.columns)
    vector(name, "tau", tau, k, A._dtype_code, "for A of that shape")
    return t, a, k


def _make_q(name: str, A: DevicePtr, tau: DevicePtr) -> None:
    t, a, k = _q_operands(name, A, tau)
    vendor = vendor_of(name, A)
    if not a.columns:
        return
    if k:
        vendor.orgqr(t, a.rows, a.columns, k, A, a.ld_f, tau)
    else:  # with 0 reflectors, which not every library takes, Q is the identity
        make_identity(A)


def _make_q_stack(name: str, A: DevicePtr, tau: DevicePtr) -> tuple[Infos, str] | None:
    t, a, k = _q_operands(name, A[0], tau[0])
    infos = vendor_of(name, A).orgqr_batched(t, a.rows, a.columns, k, A, a.ld_f, tau) if k and follow(tau) else None
    return None if infos is None else (infos, "")


def _product(A: DevicePtr, tau: DevicePtr, C: DevicePtr, side: str, trans: str) -> tuple[str, Matrix, Columns]:
    """Return the letter and the geometry of the factors, and the geometry of C, after the checks of ormqr."""
    t = letter_of("lapack.ormqr", "A", A)
    need_option("lapack.ormqr", "side", side, ("L", "R"))
    need_option("lapack.ormqr", "trans", trans, ("N", "T", "C") if t in "sd" else ("N", "C"))
    a = matrix("lapack.ormqr", "A", A)
    need_fortran("lapack.ormqr", "A", A, a, ", as geqrf leaves it")
    k = min(getattr(tau, "size", 0), a.columns)
    vector("lapack.ormqr", "tau", tau, k, A._dtype_code, "for A of that shape")
    rows = C._shape[0] if side == "R" and len(getattr(C, "_shape", ())) == 2 else a.rows
    c = columns("lapack.ormqr", "C", C, rows, "for A of that shape", A)
    needed = c.rows if side == "L" else c.columns
    if needed != a.rows or tau.size > a.rows:
        raise ArgumentError(
            f"lapack.ormqr: A has shape {A._shape}, needs ({needed}, k) for C of shape {C._shape} and "
            f'side="{side}", and tau of at most as many elements'
        )
    return t, a, c


def _ormqr_stack(
    A: DevicePtr, tau: DevicePtr, C: DevicePtr, side: str = "L", trans: str = "N"
) -> tuple[Infos, str] | None:
    t, a, c = _product(A[0], tau[0], C[0], side, trans)
    if (t in "cz" and not c.ld_f) or not follow(tau):
        return None
    infos = _multiply_stack("lapack.ormqr", t, A, a, tau, as_columns(C, stack=True), c, side, trans)
    return None if infos is None else (infos, "")


@stacked("tau", "C", whole=_ormqr_stack)
def ormqr(A: DevicePtr, tau: DevicePtr, C: DevicePtr, *, side: str = "L", trans: str = "N") -> None:
    """Set C to op(Q) C (side "L") or C op(Q) ("R") for the Q of geqrf; op(Q) is Q, Q^T or Q^H for "N", "T" or "C".

    A: matrix that geqrf left, in Fortran order, with at least k columns. Its number of rows is the number of C's rows
    for side "L", or of C's columns for "R".
    tau: vector of shape (k,) that geqrf left.
    C: matrix of shape (m, n), or vector (m,) for side "L"; read and written. A complex C in C order is copied, with a
    PerformanceWarning.
    side: the place of op(Q): "L" left of C, "R" right of it.
    trans: the choice of op(Q). "T" is only for real dtypes, for which "C" means the same.

    LAPACK calls the function unmqr for complex dtypes.

        A, tau = np.array([[3.0, 1.0], [0.0, 2.0], [4.0, 1.0]], order="F"), np.empty(2)
        c = A[:, 0].copy()
        with offload_args(A, tau, c) as (dA, dtau, dc):
            lapack.geqrf(dA, dtau)
            lapack.ormqr(dA, dtau, dc, trans="T")
        print(abs(c).round(6))  # [5. 0. 0.]

    Source: LAPACK, xORMQR and xUNMQR.

    See also: lapack.geqrf, lapack.orgqr, lapack.gels; lapacke.dormqr, cusolver.dormqr, rocsolver.dormqr;
    docs/guide/lapack.md.
    """
    t, a, c = _product(A, tau, C, side, trans)
    vendor_of("lapack.ormqr", A)
    order: Order | None = "F" if t in "cz" and not c.ld_f and tau.size else None
    with fitting("lapack.ormqr", "C", A[:, : tau.size], C, order) as fit:
        _multiply("lapack.ormqr", t, A, a, tau, fit, matrix("lapack.ormqr", "C", as_columns(fit)), side, trans)


def _multiply(
    name: str, t: str, A: DevicePtr, a: Matrix, tau: DevicePtr, C: DevicePtr, c: Columns, side: str, trans: str
) -> None:
    if c.rows and c.columns and tau.size:
        arguments = _of_ormqr(t, tau.size, c, side, trans)
        vendor_of(name, A).ormqr(*arguments, A, a.ld_f, tau, C, c.ld_f or c.ld_c)


def _of_ormqr(t: str, k: int, c: Columns, side: str, trans: str) -> tuple[str, str, str, int, int, int]:
    """Return the arguments of ormqr before A."""
    if c.ld_f:
        return t, side, "N" if trans == "N" else "T" if t in "sd" else "C", c.rows, c.columns, k
    # (op(Q) C)^T is C^T op(Q)^T
    return t, "R" if side == "L" else "L", "T" if trans == "N" else "N", c.columns, c.rows, k


def _multiply_stack(
    name: str, t: str, A: DevicePtr, a: Matrix, tau: DevicePtr, C: DevicePtr, c: Columns, side: str, trans: str
) -> Infos | None:
    """Do the work of _multiply for stacks, if the library has a function for stacks."""
    k = tau._shape[1]
    if not c.rows or not c.columns or not k:
        return None
    arguments = _of_ormqr(t, k, c, side, trans)
    return vendor_of(name, A).ormqr_batched(*arguments, A, a.ld_f, tau, C, c.ld_f or c.ld_c)


def _overdetermined(A: DevicePtr, B: DevicePtr, trans: str) -> tuple[str, Matrix, Columns]:
    """Return the letter and the geometries of the operands of gels, after its checks."""
    t = letter_of("lapack.gels", "A", A)
    need_option("lapack.gels", "trans", trans, ("N", "T", "C"))
    a = matrix("lapack.gels", "A", A)
    b = columns("lapack.gels", "B", B, max(a.rows, a.columns), "for A of that shape", A)
    vendor_of("lapack.gels", A)
    return t, a, b


_NOT_FULL: Final = "A has not full rank: pivot {info} of its factor R is zero; gelsd and linalg.lstsq take any rank"


def _gels_stack(A: DevicePtr, B: DevicePtr, trans: str = "N") -> tuple[Infos, str] | None:
    t, a, b = _overdetermined(A[0], B[0], trans)
    is_tall = a.rows >= a.columns
    in_place = (a.ld_f if is_tall else a.ld_c) and not (t in "cz" and (trans == "T") == is_tall)
    S, n = A if is_tall else turned(A), min(a.rows, a.columns)
    if not in_place or not n or not b.columns or (t in "cz" and not b.ld_f):
        return None  # a copy is made for each matrix instead
    s, vendor = matrix("lapack.gels", "A", S[0]), vendor_of("lapack.gels", A)
    if not vendor.loops_over(s.rows, max(n, b.columns)):
        return None
    need_solvable("lapack.gels", A, B)
    with offload_args(Scratch((A._shape[0], n), A.dtype), device=A.device) as (tau,):
        if vendor.geqrf_batched(t, s.rows, n, S, s.ld_f, tau) is None:
            return None
        with factored("lapack.gels", A=A, B=B):
            zeros = diagonal(S[:, :n]).to_host() == 0
            right, R = as_columns(B, stack=True), S[:, :n]
            if (trans == "N") == is_tall:
                _multiply_stack("lapack.gels", t, S, s, tau, right, b, "L", "C")
                trsm_stack(1.0, R, right[:, :n], "L", "U", "N", "N")
            else:
                trsm_stack(1.0, R, right[:, :n], "L", "U", "C", "N")
                if s.rows > n:
                    B[:, n:].fill(0)
                _multiply_stack("lapack.gels", t, S, s, tau, right, b, "L", "N")
    return np.where(zeros.any(axis=1), zeros.argmax(axis=1) + 1, 0).astype(np.int32), _NOT_FULL


@stacked("B", whole=_gels_stack)
def gels(A: DevicePtr, B: DevicePtr, *, trans: str = "N") -> None:
    """Set B to the X for which |B - op(A) X| is least, or to the solution of op(A) X = B with the least norm.

    A: matrix of shape (m, n) and full rank.
    B: matrix of shape (max(m, n), nrhs), or vector (max(m, n),).
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.

    If op(A) has more rows than columns, B[:columns] is set to the X that makes |B - op(A) X| least, and the squares of
    a column's other elements add up to the square of this minimum. If op(A) has fewer rows, B[:rows] is read, and B is
    set to the solution of least norm.

    A is factored in place if it has m >= n and Fortran order, or m < n and C order: A then becomes its own QR factors,
    or the QR factors of its transpose. In the other order, or if conj(A) is needed for a complex A, a copy is factored
    on the device, and A is unchanged. A real B has any order; a complex B in C order is copied, with a
    PerformanceWarning. Unlike LAPACK's xGELS, the function does not scale numbers that are close to overflow.

        t = np.array([0.0, 1.0, 2.0, 3.0])
        line, heights = np.asfortranarray(np.vander(t, 2)), np.array([1.0, 3.0, 5.0, 7.0])
        with offload_args(line, heights) as (dA, db):
            lapack.gels(dA, db)
        print(heights[:2].round(6))  # [2. 1.]

    Raises numpy.linalg.LinAlgError, naming the pivot, if R has an exact zero on its diagonal. Rounding usually hides
    that A does not have full rank: X then has very large numbers. Use linalg.lstsq or lapack.gelsd for such an A.
    Source: LAPACK, xGELS.

    See also: lapack.geqrf, lapack.gesv, lapack.gesvd; lapacke.dgels, lapacke.dgeqrf, cusolver.dgeqrf, rocsolver.dgeqrf;
    docs/guide/lapack.md.
    """
    t, a, b = _overdetermined(A, B, trans)
    need_uncaptured("lapack.gels", A, B, instead="call geqrf, ormqr and blas.trsm")
    need_solvable("lapack.gels", A, B)
    if not b.columns or not b.rows:
        return
    with fitting("lapack.gels", "B", A, B, "F" if t in "cz" and not b.ld_f else None) as fit, ExitStack() as copies:
        stored, is_copy = _to_factor(t, A, a, trans, copies)
        if is_copy:
            need_apart("lapack.gels", "B", A, B)
        least_norm = (trans == "N") != (a.rows >= a.columns)
        _least_squares(t, stored, fit, least_norm, {} if is_copy else {"A": A})


def _to_factor(t: str, A: DevicePtr, a: Matrix, trans: str, copies: ExitStack) -> tuple[DevicePtr, bool]:
    """Return S, a tall matrix in Fortran order, with which S X = B is solved, or S^H X = B for the least norm.

    Return also whether S is a copy, which exists until `copies` ends.
    """
    tall = a.rows >= a.columns
    source, is_fortran, is_copy = (A, a.ld_f, False) if tall else (A.T, a.ld_c, False)
    if t in "cz" and (trans == "T") == tall:
        conjugate = copies.enter_context(conjugated(A, "F" if a.ld_f else "C"))
        source, is_fortran, is_copy = (conjugate.T, not a.ld_f, True) if tall else (conjugate, a.ld_f, True)
    if is_fortran:
        return source, is_copy
    return copies.enter_context(rearranged(source, "F")), True


def _least_squares(t: str, S: DevicePtr, B: DevicePtr, least_norm: bool, written: dict[str, DevicePtr]) -> None:
    """Solve S X = B, or S^H X = B for the least norm, for a tall S in Fortran order. `written` has A if A is S."""
    rows, n = S._shape
    s = matrix("lapack.gels", "A", S)
    if not n:
        if least_norm:
            B.fill(0)
        return
    with offload_args(Scratch((n,), S.dtype), device=S.device) as (tau,):
        vendor_of("lapack.gels", S).geqrf(t, rows, n, S, s.ld_f, tau)
        with factored("lapack.gels", **written, B=B):
            _solve_factored(t, S, s, tau, B, least_norm, written)


def _solve_factored(
    t: str, S: DevicePtr, s: Matrix, tau: DevicePtr, B: DevicePtr, least_norm: bool, written: dict[str, DevicePtr]
) -> None:
    """Solve with the QR factors of S."""
    rows, n = S._shape
    b = matrix("lapack.gels", "B", as_columns(B))
    R = S[:n]
    zero = first_zero(R)
    if zero:
        refuse("lapack.gels", _NOT_FULL.format(info=zero), zero, **written)
    top = as_columns(B)[:n]
    if least_norm:
        solve_triangular(R, top, "U", "C")
        if rows > n:
            B[n:].fill(0)
        _multiply("lapack.gels", t, S, s, tau, as_columns(B), b, "L", "N")
    else:
        _multiply("lapack.gels", t, S, s, tau, as_columns(B), b, "L", "C")
        solve_triangular(R, top, "U", "N")
