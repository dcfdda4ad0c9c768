"""Symmetric and Hermitian systems that need not be positive definite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .._operands import INT32, letter_of, need_fortran, need_option, need_uncaptured, square, vector
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ._checks import by_columns, columns, follow, refuse
from ._copies import fitting
from ._stacks import Infos, stacked
from ._vendors import vendor_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._operands import Matrix
    from ._checks import Columns

__all__ = ["hetrf", "hetrs", "sytrf", "sytrs"]

_SINGULARS: Final = ("raise", "keep")
_SINGULAR: Final = "A is singular: pivot {info} of its factor D is zero"


def _sytrf_stack(A: DevicePtr, ipiv: DevicePtr, uplo: str = "U", singular: str = "raise") -> tuple[Infos, str] | None:
    return _factor_stack("lapack.sytrf", A, ipiv, uplo, singular, hermitian=False)


def _hetrf_stack(A: DevicePtr, ipiv: DevicePtr, uplo: str = "U", singular: str = "raise") -> tuple[Infos, str] | None:
    return _factor_stack("lapack.hetrf", A, ipiv, uplo, singular, hermitian=True)


@stacked("ipiv", writes=("ipiv",), whole=_sytrf_stack)
def sytrf(A: DevicePtr, ipiv: DevicePtr, *, uplo: str = "U", singular: str = "raise") -> None:
    """Factor a symmetric A by the Bunch-Kaufman method: A = U D U^T for uplo "U", L D L^T for "L".

    A: matrix of shape (n, n), in any order; a complex A is symmetric, not Hermitian. One triangle of A is read, and
    becomes the factors; the other one is unchanged.
    ipiv: vector of shape (n,) and dtype int32, written; two equal negative pivots mark a block of order 2 in D.
    uplo: the triangle that is read and written: "U", the upper one, or "L", the lower one.
    singular: the action if D has a zero block: "raise" LinAlgError, or "keep" the factors.

    If A is in C order, the library reads A^T, and factors the other triangle of A^T, which has the same elements. sytrs
    takes the factors of either order.

        A, ipiv, b = np.array([[0.0, 2.0], [2.0, 1.0]]), np.empty(2, np.int32), np.array([4.0, 4.0])
        with offload_args(A, ipiv, b) as (dA, dp, db):
            lapack.sytrf(dA, dp)
            lapack.sytrs(dA, dp, db)
        print(b.round(6))  # [1. 2.]

    Raises numpy.linalg.LinAlgError, naming the pivot, if D has a zero block, unless singular is "keep". Source: LAPACK,
    xSYTRF.

    See also: lapack.sytrs, lapack.hetrf, lapack.potrf, lapack.getrf; lapacke.dsytrf, cusolver.dsytrf, rocsolver.dsytrf;
    docs/guide/lapack.md.
    """
    _factor("lapack.sytrf", A, ipiv, uplo, singular, hermitian=False)


@stacked("ipiv", writes=("ipiv",), whole=_hetrf_stack)
def hetrf(A: DevicePtr, ipiv: DevicePtr, *, uplo: str = "U", singular: str = "raise") -> None:
    """Factor a Hermitian A by the Bunch-Kaufman method: A = U D U^H for uplo "U", L D L^H for "L".

    A: matrix of shape (n, n); a complex A is in Fortran order. One triangle of A is read, and becomes the factors; the
    other one is unchanged.
    ipiv: vector of shape (n,) and dtype int32, written; two equal negative pivots mark a block of order 2 in D.
    uplo: the triangle that is read and written: "U", the upper one, or "L", the lower one.
    singular: the action if D has a zero block: "raise" LinAlgError, or "keep" the factors.

    The function is sytrf for real dtypes.

        A, ipiv, b = np.array([[0, 2j], [-2j, 1]], order="F"), np.empty(2, np.int32), np.array([4j, 4])
        with offload_args(A, ipiv, b) as (dA, dp, db):
            lapack.hetrf(dA, dp)
            lapack.hetrs(dA, dp, db)
        print((abs(b - [1j, 2]) < 1e-12).all())  # True

    Raises numpy.linalg.LinAlgError, naming the pivot, if D has a zero block, unless singular is "keep". Source: LAPACK,
    xHETRF.

    See also: lapack.hetrs, lapack.sytrf, lapack.potrf; lapacke.zhetrf, cusolver.xhetrf; docs/guide/lapack.md.
    """
    _factor("lapack.hetrf", A, ipiv, uplo, singular, hermitian=True)


def _sytrs_stack(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, uplo: str = "U") -> tuple[Infos, str] | None:
    return _solve_stack("lapack.sytrs", A, ipiv, B, uplo, hermitian=False)


def _hetrs_stack(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, uplo: str = "U") -> tuple[Infos, str] | None:
    return _solve_stack("lapack.hetrs", A, ipiv, B, uplo, hermitian=True)


@stacked("ipiv", "B", whole=_sytrs_stack)
def sytrs(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, *, uplo: str = "U") -> None:
    """Solve A X = B with the factors of sytrf, and set B to X.

    A: matrix of shape (n, n), as sytrf left it, in any order.
    ipiv: vector of shape (n,) and dtype int32, as sytrf left it.
    B: matrix of shape (n, nrhs), or vector (n,); becomes X.
    uplo: the triangle that sytrf factored.

    B is in Fortran order, or a vector without gaps; any other B is copied for the call, with a PerformanceWarning.
    ArgumentError is raised for pivots that sytrf can't have written.

        A, ipiv, b = np.array([[0.0, 2.0], [2.0, 1.0]]), np.empty(2, np.int32), np.array([4.0, 4.0])
        with offload_args(A, ipiv, b) as (dA, dp, db):
            lapack.sytrf(dA, dp)
            lapack.sytrs(dA, dp, db)
        print(b.round(6))  # [1. 2.]

    Source: LAPACK, xSYTRS.

    See also: lapack.sytrf, lapack.hetrs, lapack.getrs; lapacke.dsytrs, cusolver.xsytrs; docs/guide/lapack.md.
    """
    _solve("lapack.sytrs", A, ipiv, B, uplo, hermitian=False)


@stacked("ipiv", "B", whole=_hetrs_stack)
def hetrs(A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, *, uplo: str = "U") -> None:
    """Solve A X = B with the factors of hetrf, and set B to X.

    A: matrix of shape (n, n), as hetrf left it; a complex A is in Fortran order.
    ipiv: vector of shape (n,) and dtype int32, as hetrf left it.
    B: matrix of shape (n, nrhs), or vector (n,), as for sytrs; becomes X.
    uplo: the triangle that hetrf factored.

        A, ipiv, b = np.array([[0, 2j], [-2j, 1]], order="F"), np.empty(2, np.int32), np.array([4j, 4])
        with offload_args(A, ipiv, b) as (dA, dp, db):
            lapack.hetrf(dA, dp)
            lapack.hetrs(dA, dp, db)
        print((abs(b - [1j, 2]) < 1e-12).all())  # True

    Source: LAPACK, xHETRS.

    See also: lapack.hetrf, lapack.sytrs; lapacke.zhetrs, cusolver.xhetrs; docs/guide/lapack.md.
    """
    _solve("lapack.hetrs", A, ipiv, B, uplo, hermitian=True)


def _operands(name: str, A: DevicePtr, ipiv: DevicePtr, uplo: str, hermitian: bool) -> tuple[str, Matrix, bool, str]:
    """Return the letter, the geometry, whether the matrix differs from its transpose, and its triangle by columns."""
    t = letter_of(name, "A", A)
    need_option(name, "uplo", uplo, ("U", "L"))
    a = square(name, "A", A)
    hermitian = hermitian and t in "cz"
    if hermitian:
        need_fortran(name, "A", A, a, " for a complex Hermitian matrix, as the factors of conj(A) are others")
    vector(name, "ipiv", ipiv, a.rows, INT32, "for A of that order")
    return t, a, hermitian, by_columns(uplo, a)


def _factor(name: str, A: DevicePtr, ipiv: DevicePtr, uplo: str, singular: str, hermitian: bool) -> None:
    need_option(name, "singular", singular, _SINGULARS)
    t, a, hermitian, stored = _operands(name, A, ipiv, uplo, hermitian)
    vendor = vendor_of(name, A)
    vendor.need_indefinite(name, hermitian, solves=False)
    need_uncaptured(name, A, ipiv)
    if not a.rows:
        return
    info = vendor.sytrf(t, hermitian, stored, a.rows, A, a.ld_f or a.ld_c, ipiv)
    if info and singular == "raise":
        refuse(name, _SINGULAR.format(info=info), info, A=A, ipiv=ipiv)


def _factor_stack(
    name: str, A: DevicePtr, ipiv: DevicePtr, uplo: str, singular: str, hermitian: bool
) -> tuple[Infos, str] | None:
    need_option(name, "singular", singular, _SINGULARS)
    t, a, hermitian, stored = _operands(name, A[0], ipiv[0], uplo, hermitian)
    vendor = vendor_of(name, A)
    vendor.need_indefinite(name, hermitian, solves=False)
    if not a.rows or not follow(ipiv):
        return None
    infos = vendor.sytrf_batched(t, hermitian, stored, a.rows, A, a.ld_f or a.ld_c, ipiv)
    if infos is None or singular == "raise":
        return None if infos is None else (infos, _SINGULAR)
    return np.zeros_like(infos), ""


def _solve_stack(
    name: str, A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, uplo: str, hermitian: bool
) -> tuple[Infos, str] | None:
    t, a, hermitian, stored = _operands(name, A[0], ipiv[0], uplo, hermitian)
    b: Columns = columns(name, "B", B[0], a.rows, "for A of that order", A)
    vendor = vendor_of(name, A)
    vendor.need_indefinite(name, hermitian, solves=True)
    if not b.rows or not b.columns or not b.ld_f or not follow(ipiv) or _impossible(ipiv.to_host()).any():
        return None
    infos = vendor.sytrs_batched(t, hermitian, stored, b.rows, b.columns, A, a.ld_f or a.ld_c, ipiv, B, b.ld_f)
    return None if infos is None else (infos, "")


def _solve(name: str, A: DevicePtr, ipiv: DevicePtr, B: DevicePtr, uplo: str, hermitian: bool) -> None:
    t, a, hermitian, stored = _operands(name, A, ipiv, uplo, hermitian)
    b: Columns = columns(name, "B", B, a.rows, "for A of that order", A)
    vendor = vendor_of(name, A)
    vendor.need_indefinite(name, hermitian, solves=True)
    need_uncaptured(name, A, ipiv, B)
    _need_pivots(name, ipiv)
    if not b.rows or not b.columns:
        return
    with fitting(name, "B", A, B, None if b.ld_f else "F") as fit:
        ld = a.ld_f or a.ld_c
        vendor.sytrs(t, hermitian, stored, b.rows, b.columns, A, ld, ipiv, fit, b.ld_f or b.rows)


def _impossible(pivots: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask of the pivots that sytrf and hetrf never write."""
    n = pivots.shape[-1]
    impossible: NDArray[np.bool_] = (pivots == 0) | (pivots > n) | (pivots < -n)
    return impossible


def _need_pivots(name: str, ipiv: DevicePtr) -> None:
    """Raise ArgumentError for pivots that sytrf and hetrf never write; libraries would write outside of operands."""
    pivots = ipiv.to_host()
    n = len(pivots)
    wrong = np.flatnonzero(_impossible(pivots))
    if len(wrong):
        i = int(wrong[0])
        raise ArgumentError(
            f"{name}: ipiv[{i}] is {pivots[i]}, needs to be from 1 to {n}, or from -{n} to -1 for a block of order 2, "
            f"as {name.replace('trs', 'trf')} leaves it"
        )
