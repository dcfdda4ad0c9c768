"""General square systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from .._operands import INT32, letter_of, matrix, need_option, need_uncaptured, square, vector
from ..arguments import Scratch
from ..devices import Device
from ..dtypes import ordered
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import (
    columns,
    factored,
    first_zero,
    follow,
    has_pivots,
    need_info,
    need_pivots,
    need_solvable,
    refuse,
)
from ._copies import fitting
from ._stacks import Infos, stacked, turned
from ._vendors import vendor_of

if TYPE_CHECKING:
    from .._operands import Matrix
    from ._checks import Columns

__all__ = ["gesv", "getrf", "getri", "getrs"]


_SINGULARS: Final = ("raise", "keep")
_PIVOTS: Final = "the pivots, which libraries do not check"
_SINGULAR: Final = "A is singular: pivot {info} of its factor U is zero; gelsd and linalg.lstsq take singular matrices"


def _getrf_stack(
    A: DevicePtr, ipiv: DevicePtr, singular: str = "raise", info: DevicePtr | None = None
) -> tuple[Infos, str] | None:
    name = "lapack.getrf"
    need_option(name, "singular", singular, _SINGULARS)
    t, a = letter_of(name, "A", A), matrix(name, "A", A[0])
    vector(name, "ipiv", ipiv[0], min(a.rows, a.columns), INT32, "for A of that shape")
    done = _factor_stack(name, t, A, a, ipiv, info) if a.rows == a.columns else None
    return done if done is None or singular == "raise" else (np.zeros_like(done[0]), "")


def _factor_stack(
    name: str, t: str, A: DevicePtr, a: Matrix, ipiv: DevicePtr, place: DevicePtr | None = None
) -> tuple[Infos, str] | None:
    """Factor a stack of square matrices.

    `a` is the geometry of one matrix, and `place` is the place for info, or None.
    """
    if not a.rows or not follow(ipiv):
        return None
    infos = vendor_of(name, A).getrf_batched(t, a.rows, A, a.ld_f or a.ld_c, ipiv, place)
    return None if infos is None else (infos, _SINGULAR)


@stacked("ipiv", writes=("ipiv",), whole=_getrf_stack)
def getrf(
    A: DevicePtr | NDArray[Any],
    ipiv: DevicePtr | NDArray[Any],
    *,
    singular: str = "raise",
    info: DevicePtr | None = None,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Factor A with row interchanges: A = P L U.

    A: matrix of shape (m, n); becomes U and, below the diagonal, L, whose diagonal is ones.
    ipiv: vector of shape (min(m, n),) and dtype int32, written: row i was exchanged with row ipiv[i] - 1.
    singular: the action if U has a zero on its diagonal: "raise" LinAlgError, or "keep" the factors, for example for a
    determinant.
    info: DevicePtr of one int32, or of one for each matrix of a stack, written: 0, or k if U[k - 1, k - 1] is 0.
    With `info`, the call does not wait, raises no error if A is singular, and can be captured by a chain.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays. A may be larger than the memory of these
    devices, which factor panel after panel of columns, or of rows in C order. If A is singular, A and ipiv have the
    factors. If the call fails otherwise, they are undefined.

    If A is in C order, A^T is factored, because the library reads A's memory by columns. A then becomes the transposes
    of U and L, and ipiv counts columns of A. getrs takes the factors of either order.

        A, ipiv = np.array([[2.0, 4.0], [4.0, 2.0]], order="F"), np.empty(2, np.int32)
        with offload_args(A, ipiv) as (dA, dp):
            lapack.getrf(dA, dp)
        print(A.round(6).tolist(), ipiv)  # [[4.0, 2.0], [0.5, 3.0]] [2 2]

    Raises numpy.linalg.LinAlgError, naming the pivot, if U has a zero on its diagonal, unless singular is "keep".
    Source: LAPACK, xGETRF.

    See also: lapack.getrs, lapack.getri, lapack.gesv, lapack.potrf, lapack.geqrf; lapacke.dgetrf, cusolver.dgetrf,
    rocsolver.dgetrf; docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import factor_general  # it imports threads, which few programs need

        factor_general("lapack.getrf", getrf, A, ipiv, None, singular, info, devices)
        return
    A, ipiv = cast("DevicePtr", A), cast("DevicePtr", ipiv)
    need_option("lapack.getrf", "singular", singular, _SINGULARS)
    t = letter_of("lapack.getrf", "A", A)
    a = matrix("lapack.getrf", "A", A)
    vector("lapack.getrf", "ipiv", ipiv, min(a.rows, a.columns), INT32, "for A of that shape")
    need_info("lapack.getrf", info, A, ipiv)
    _factor("lapack.getrf", t, A, a, ipiv, singular == "keep", info)


def _factor(
    name: str, t: str, A: DevicePtr, a: Matrix, ipiv: DevicePtr, keep: bool = False, place: DevicePtr | None = None
) -> None:
    vendor = vendor_of(name, A)
    if not a.rows or not a.columns:
        if place is not None:
            place.fill(0)
        return
    if a.ld_f:
        info = vendor.getrf(t, a.rows, a.columns, A, a.ld_f, ipiv, place)
    else:
        info = vendor.getrf(t, a.columns, a.rows, A, a.ld_c, ipiv, place)
    if info and not keep:
        refuse(name, _SINGULAR.format(info=info), info, A=A, ipiv=ipiv)


def _system(name: str, A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, trans: str = "N") -> tuple[str, Matrix, Columns]:
    """Return the letter of a system's dtype, and the geometries of A and B."""
    t = letter_of(name, "A", A)
    need_option(name, "trans", trans, ("N", "T", "C"))
    a = square(name, "A", A)
    vector(name, "ipiv", ipiv, a.rows, INT32, "for A of that order")
    b = columns(name, "B", B, a.rows, "for A of that order", A)
    if trans == "C" and t in "cz" and not a.ld_f:
        raise ArgumentError(
            f'{name}: a complex A with trans="C" needs Fortran order, got shape {A._shape} and strides '
            f"{A._strides}; factor A in that order: {ordered('A', A, 'asfortranarray')}"
        )
    return t, a, b


def _getrs_stack(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, trans: str = "N") -> tuple[Infos, str] | None:
    t, a, b = _system("lapack.getrs", A[0], ipiv[0], B[0], trans)
    if not vendor_of("lapack.getrs", A).solves_stacks(a.rows) or not has_pivots(ipiv):
        return None
    return _solve_stack("lapack.getrs", t, trans, A, a, ipiv, B, b)


def _solve_stack(
    name: str, t: str, trans: str, A: DevicePtr, a: Matrix, ipiv: DevicePtr, B: DevicePtr, b: Columns
) -> tuple[Infos, str] | None:
    if not b.rows or not b.columns or not b.ld_f or not follow(ipiv):
        return None
    stored = _stored(trans, a)
    infos = vendor_of(name, A).getrs_batched(t, stored, b.rows, b.columns, A, a.ld_f or a.ld_c, ipiv, B, b.ld_f)
    return None if infos is None else (infos, "")


def _stored(trans: str, a: Matrix) -> str:
    """Return the operation on A that the library needs for A's memory."""
    return trans if a.ld_f else {"N": "T", "T": "N", "C": "N"}[trans]


@stacked("ipiv", "B", whole=_getrs_stack)
def getrs(
    A: DevicePtr | NDArray[Any],
    ipiv: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    trans: str = "N",
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Solve op(A) X = B with the factors of getrf, and set B to X; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A: matrix of shape (n, n), as getrf left it, in any order; for trans "C", a complex A is in Fortran order.
    ipiv: vector of shape (n,) and dtype int32, as getrf left it.
    B: matrix of shape (n, nrhs), or vector (n,); becomes X.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    devices: as in getrf, for A, ipiv and B. If the call fails, B is unchanged.

    B is in Fortran order, or a vector without gaps; any other B is copied for the call, with a PerformanceWarning.

    The pivots are checked, and ArgumentError is raised for pivots that getrf can't have written; with these, libraries
    would write outside of B. SciPy's lu_factor counts pivots from 0, so pass its piv + 1.

        A, ipiv, b = np.array([[4.0, 1.0], [2.0, 3.0]]), np.empty(2, np.int32), np.array([6.0, 8.0])
        with offload_args(A, ipiv, b) as (dA, dp, db):
            lapack.getrf(dA, dp)
            lapack.getrs(dA, dp, db)
        print(b.round(6))  # [1. 2.]

    Source: LAPACK, xGETRS.

    See also: lapack.getrf, lapack.getri, lapack.gesv; lapacke.dgetrs, cusolver.dgetrs, rocsolver.dgetrs;
    docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import solve_general  # it imports threads, which few programs need

        solve_general("lapack.getrs", A, ipiv, B, trans, devices)
        return
    A, ipiv, B = cast("DevicePtr", A), cast("DevicePtr", ipiv), cast("DevicePtr", B)
    t, a, b = _system("lapack.getrs", A, ipiv, B, trans)
    need_uncaptured("lapack.getrs", A, ipiv, B, instead="solve by gesv", reads=_PIVOTS)
    need_pivots("lapack.getrs", ipiv)
    with fitting("lapack.getrs", "B", A, B, None if b.ld_f else "F") as fit:
        _solve("lapack.getrs", t, trans, A, a, ipiv, fit, b)


def _solve(name: str, t: str, trans: str, A: DevicePtr, a: Matrix, ipiv: DevicePtr, B: DevicePtr, b: Columns) -> None:
    vendor = vendor_of(name, A)
    if not b.rows or not b.columns:
        return
    # A copy has no gaps between its columns.
    vendor.getrs(t, _stored(trans, a), b.rows, b.columns, A, a.ld_f or a.ld_c, ipiv, B, b.ld_f or b.rows)


def _inverse(A: DevicePtr, ipiv: DevicePtr) -> tuple[str, Matrix]:
    """Return the letter and the geometry of factors that are to be inverted."""
    t = letter_of("lapack.getri", "A", A)
    a = square("lapack.getri", "A", A)
    vector("lapack.getri", "ipiv", ipiv, a.rows, INT32, "for A of that order")
    return t, a


def _getri_stack(A: DevicePtr, ipiv: DevicePtr) -> tuple[Infos, str] | None:
    t, a = _inverse(A[0], ipiv[0])
    vendor, ld = vendor_of("lapack.getri", A), a.ld_f or a.ld_c
    if not a.rows or not vendor.solves_stacks(a.rows) or not follow(ipiv) or not has_pivots(ipiv):
        return None
    with offload_args(Scratch(A._shape, A.dtype), device=A.device) as (inverses,):
        whole = inverses if a.ld_c else turned(inverses)
        infos = vendor.getri_batched(t, a.rows, A, ld, ipiv, whole, a.rows)
        if infos is None:
            return None
        A.copy_from(whole)
    return infos, _SINGULAR


@stacked("ipiv", whole=_getri_stack)
def getri(A: DevicePtr, ipiv: DevicePtr) -> None:
    """Set A to the inverse of the matrix that getrf factored. To solve systems, getrs is faster and more exact.

    A: matrix of shape (n, n), as getrf left it, in any order; becomes the inverse.
    ipiv: vector of shape (n,) and dtype int32, as getrf left it.

        A = np.array([[4.0, 1.0], [2.0, 3.0]])
        with offload_args(A, Scratch(2, np.int32)) as (dA, dp):
            lapack.getrf(dA, dp)
            lapack.getri(dA, dp)
        print(A.round(6).tolist())  # [[0.3, -0.1], [-0.2, 0.4]]

    The pivots are checked as in getrs. Raises numpy.linalg.LinAlgError, naming the pivot, if the factor U has a zero on
    its diagonal. Source: LAPACK, xGETRI; cuSOLVER does not have this function, so getrs is called for it.

    See also: lapack.getrf, lapack.getrs, lapack.potri, linalg.inv; lapacke.dgetri, cublas.dgetri_batched,
    rocsolver.dgetri; docs/guide/lapack.md.
    """
    t, a = _inverse(A, ipiv)
    need_uncaptured("lapack.getri", A, ipiv, instead="solve by gesv", reads=_PIVOTS)
    need_pivots("lapack.getri", ipiv)
    vendor = vendor_of("lapack.getri", A)
    if not a.rows:
        return
    zero = first_zero(A)
    if zero:
        refuse("lapack.getri", _SINGULAR.format(info=zero), zero)
    # In C order, the library reads A^T, whose inverse is the transpose of A's inverse.
    vendor.getri(t, a.rows, A, a.ld_f or a.ld_c, ipiv)


def _gesv_stack(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, info: DevicePtr | None = None) -> tuple[Infos, str] | None:
    name = "lapack.gesv"
    t, a, b = _system(name, A[0], ipiv[0], B[0])
    if not b.rows or not b.columns or not b.ld_f or not vendor_of(name, A).solves_stacks(a.rows):
        return None
    need_solvable(name, A, B)
    done = _factor_stack(name, t, A, a, ipiv, info)
    if done is not None:
        with factored(name, A=A, ipiv=ipiv, B=B):
            _solve_stack(name, t, "N", A, a, ipiv, B, b)
    return done


@stacked("ipiv", "B", writes=("ipiv",), whole=_gesv_stack)
def gesv(
    A: DevicePtr | NDArray[Any],
    ipiv: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    info: DevicePtr | None = None,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Solve A X = B, set B to X, and A and ipiv to the factors and pivots of getrf.

    A: matrix of shape (n, n), in any order; becomes its factors.
    ipiv: vector of shape (n,) and dtype int32, written.
    B: matrix of shape (n, nrhs), or vector (n,), as in getrs; becomes X.
    info: as in getrf. Unless info becomes 0, B is undefined.
    devices: as in getrf, for A, ipiv and B. If the call fails, B is unchanged.

        A, b = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([6.0, 8.0])
        with offload_args(A, Scratch(2, np.int32), b) as (dA, dp, db):
            lapack.gesv(dA, dp, db)
        print(b.round(6))  # [1. 2.]

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is singular; B is unchanged then. Source: LAPACK, xGESV.

    See also: lapack.getrf, lapack.getrs, lapack.posv, lapack.gels; lapacke.dgetrf, cusolver.dgetrf, lapacke.dgetrs,
    cusolver.dgetrs, lapacke.dgesv, rocsolver.dgetrf, rocsolver.dgetrs, rocsolver.dgesv; docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import factor_general  # it imports threads, which few programs need

        factor_general("lapack.gesv", getrf, A, ipiv, B, "raise", info, devices)
        return
    A, ipiv, B = cast("DevicePtr", A), cast("DevicePtr", ipiv), cast("DevicePtr", B)
    t, a, b = _system("lapack.gesv", A, ipiv, B)
    need_solvable("lapack.gesv", A, B)
    need_info("lapack.gesv", info, A, ipiv, B)
    with fitting("lapack.gesv", "B", A, B, None if b.ld_f else "F") as fit:
        _factor("lapack.gesv", t, A, a, ipiv, place=info)
        with factored("lapack.gesv", A=A, ipiv=ipiv, B=B):
            _solve("lapack.gesv", t, "N", A, a, ipiv, fit, b)
