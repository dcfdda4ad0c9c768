"""Positive definite systems, and triangular systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from .._operands import letter_of, need_option, need_uncaptured, square
from ..blas.level3 import trsm, trsm_stack
from ..devices import Device
from ..pointers import DevicePtr
from ._checks import (
    as_columns,
    by_columns,
    columns,
    factored,
    first_zero,
    need_info,
    need_solvable,
    refuse,
)
from ._copies import Order, fitting
from ._stacks import Infos, diagonal, stacked
from ._vendors import vendor_of

if TYPE_CHECKING:
    from .._operands import Matrix
    from ._checks import Columns

__all__ = ["posv", "potrf", "potri", "potrs", "solve_triangular", "trtrs"]


def _definite(name: str, A: DevicePtr, uplo: str) -> tuple[str, Matrix]:
    """Return the letter and the geometry of a matrix that is to be factored."""
    t = letter_of(name, "A", A)
    need_option(name, "uplo", uplo, ("U", "L"))
    return t, square(name, "A", A)


def _right_sides(name: str, A: DevicePtr, a: Matrix, B: DevicePtr) -> Columns:
    return columns(name, "B", B, a.rows, "for A of that order", A)


def _potrf_stack(A: DevicePtr, uplo: str = "U", info: DevicePtr | None = None) -> tuple[Infos, str] | None:
    return _factor_stack("lapack.potrf", *_definite("lapack.potrf", A[0], uplo), A, uplo, info)


@stacked(whole=_potrf_stack)
def potrf(
    A: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    info: DevicePtr | None = None,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Factor a Hermitian positive definite A by Cholesky: A = U^H U for uplo "U", L L^H for "L".

    A: matrix of shape (n, n), in any order. One triangle of it is read, and becomes U or L; the other one is unchanged.
    uplo: the triangle that is read and written: "U", the upper one, or "L", the lower one.
    info: DevicePtr of one int32, or of one for each matrix of a stack, written: 0, or k if the leading minor of
    order k is not positive definite. With `info`, the call does not wait, raises no error if A is not positive
    definite, and can be captured by a chain.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, which may be larger than the memory of
    these devices, and tiles go up and come down while other tiles are computed. If the call fails, a
    note on the error names the tiles of the factor that are done; all others are as they were.

        A = np.array([[4.0, 2.0], [2.0, 5.0]])
        with offload_args(A) as (dA,):
            lapack.potrf(dA)
        print(np.triu(A).round(6).tolist())  # [[2.0, 1.0], [0.0, 2.0]]

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is not positive definite. Source: LAPACK, xPOTRF.

    See also: lapack.potrs, lapack.potri, lapack.posv, lapack.getrf; lapacke.dpotrf, cusolver.dpotrf, rocsolver.dpotrf;
    docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import factor_definite  # it imports threads, which few programs need

        factor_definite("lapack.potrf", potrf, A, None, uplo, info, devices)
        return
    A = cast("DevicePtr", A)
    t, a = _definite("lapack.potrf", A, uplo)
    need_info("lapack.potrf", info, A)
    _factor("lapack.potrf", t, a, A, uplo, info)


_INDEFINITE: Final = "A is not positive definite: its leading minor of order {info} (pivot {info}) is not"


def _factor(name: str, t: str, a: Matrix, A: DevicePtr, uplo: str, place: DevicePtr | None) -> None:
    vendor = vendor_of(name, A)
    if not a.rows:
        if place is not None:
            place.fill(0)
        return
    # In C order, the library reads A^T, which is conj(A), and writes U^T or L^T.
    info = vendor.potrf(t, by_columns(uplo, a), a.rows, A, a.ld_f or a.ld_c, place)
    if info:
        refuse(name, _INDEFINITE.format(info=info), info, A=A)


def _factor_stack(
    name: str, t: str, a: Matrix, A: DevicePtr, uplo: str, place: DevicePtr | None = None
) -> tuple[Infos, str] | None:
    """Factor a stack. `a` is the geometry of one matrix, and `place` is the place for info, or None."""
    vendor = vendor_of(name, A)
    infos = vendor.potrf_batched(t, by_columns(uplo, a), a.rows, A, a.ld_f or a.ld_c, place) if a.rows else None
    return None if infos is None else (infos, _INDEFINITE)


def _needed_order(t: str, a: Matrix, b: Columns) -> Order | None:
    """Return the order into which a complex B has to be copied; None if it has A's order.

    No call solves with conj(A).
    """
    if t in "sd" or (a.ld_f and b.ld_f) or (a.ld_c and b.ld_c):
        return None
    return "F" if a.ld_f else "C"


def _potrs_stack(A: DevicePtr, B: DevicePtr, uplo: str = "U") -> tuple[Infos, str] | None:
    t, a = _definite("lapack.potrs", A[0], uplo)
    b = _right_sides("lapack.potrs", A[0], a, B[0])
    if _needed_order(t, a, b) or not vendor_of("lapack.potrs", A).solves_stacks(a.rows):
        return None
    _solve(A, B, uplo)
    return np.zeros(A._shape[0], np.int32), ""


@stacked("B", whole=_potrs_stack)
def potrs(
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Solve A X = B with the factor of A from potrf, and set B to X.

    A: matrix of shape (n, n), as potrf left it.
    B: matrix of shape (n, nrhs), or vector (n,); becomes X.
    uplo: the triangle that potrf factored.
    devices: as in potrf, for A and B.

    A and B have any order. A complex B in another order than A is copied, with a PerformanceWarning.

        A, b = np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([8.0, 12.0])
        with offload_args(A, b) as (dA, db):
            lapack.potrf(dA)
            lapack.potrs(dA, db)
        print(b.round(6))  # [1. 2.]

    Source: LAPACK, xPOTRS; like LAPACK, the function calls trsm twice.

    See also: lapack.potrf, lapack.posv, lapack.trtrs; lapacke.dpotrs, cusolver.dpotrs, rocsolver.dpotrs;
    docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import solve_definite  # it imports threads, which few programs need

        solve_definite("lapack.potrs", A, B, uplo, devices)
        return
    A, B = cast("DevicePtr", A), cast("DevicePtr", B)
    t, a = _definite("lapack.potrs", A, uplo)
    b = _right_sides("lapack.potrs", A, a, B)
    vendor_of("lapack.potrs", A)
    with fitting("lapack.potrs", "B", A, B, _needed_order(t, a, b)) as fit:
        _solve(A, fit, uplo)


def _solve(A: DevicePtr, B: DevicePtr, uplo: str) -> None:
    """Solve with the factor of a matrix, or with the factors of a stack of three dimensions."""
    is_stack = len(A._shape) == 3
    B = as_columns(B, stack=is_stack)
    if 0 in B._shape:
        return
    for trans in ("C", "N") if uplo == "U" else ("N", "C"):
        if is_stack:
            trsm_stack(1.0, A, B, "L", uplo, trans, "N")
        else:
            trsm(1.0, A, B, uplo=uplo, trans=trans)


def _potri_stack(A: DevicePtr, uplo: str = "U", info: DevicePtr | None = None) -> tuple[Infos, str] | None:
    t, a = _definite("lapack.potri", A[0], uplo)
    vendor = vendor_of("lapack.potri", A)
    infos = vendor.potri_batched(t, by_columns(uplo, a), a.rows, A, a.ld_f or a.ld_c, info) if a.rows else None
    return None if infos is None else (infos, _ZERO)


@stacked(whole=_potri_stack)
def potri(A: DevicePtr, *, uplo: str = "U", info: DevicePtr | None = None) -> None:
    """Invert the matrix that potrf factored: a triangle of A becomes the same triangle of the inverse.

    A: matrix of shape (n, n), as potrf left it, in any order. One triangle of it is read and written; the other one is
    unchanged.
    uplo: the triangle that potrf factored.
    info: as in potrf; it becomes k if element k of the factor's diagonal is 0. Unless info becomes 0, A is undefined.

        A = np.array([[4.0, 2.0], [2.0, 5.0]])
        with offload_args(A) as (dA,):
            lapack.potrf(dA)
            lapack.potri(dA)
        print(np.triu(A).round(6).tolist())  # [[0.3125, -0.125], [0.0, 0.25]]

    Raises numpy.linalg.LinAlgError, naming the pivot, if the factor has a zero on its diagonal. Source: LAPACK, xPOTRI.

    See also: lapack.potrf, lapack.potrs, lapack.getri; lapacke.dpotri, cusolver.dpotri, rocsolver.dpotri;
    docs/guide/lapack.md.
    """
    t, a = _definite("lapack.potri", A, uplo)
    vendor = vendor_of("lapack.potri", A)
    need_info("lapack.potri", info, A)
    if not a.rows:
        if info is not None:
            info.fill(0)
        return
    zero = first_zero(A) if info is None else 0
    if zero:
        refuse("lapack.potri", _ZERO.format(info=zero), zero)
    vendor.potri(t, by_columns(uplo, a), a.rows, A, a.ld_f or a.ld_c, info)


def _posv_stack(A: DevicePtr, B: DevicePtr, uplo: str = "U", info: DevicePtr | None = None) -> tuple[Infos, str] | None:
    t, a = _definite("lapack.posv", A[0], uplo)
    b = _right_sides("lapack.posv", A[0], a, B[0])
    if _needed_order(t, a, b) or not vendor_of("lapack.posv", A).solves_stacks(a.rows):
        return None
    need_solvable("lapack.posv", A, B)
    done = _factor_stack("lapack.posv", t, a, A, uplo, info)
    if done is not None:
        with factored("lapack.posv", A=A, B=B):
            _solve(A, B, uplo)
    return done


@stacked("B", whole=_posv_stack)
def posv(
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    info: DevicePtr | None = None,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Solve A X = B for a Hermitian positive definite A, set B to X, and A to its Cholesky factor.

    A: matrix of shape (n, n); one triangle is read, and becomes the factor.
    B: matrix of shape (n, nrhs), or vector (n,); becomes X.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    info: as in potrf. Unless info becomes 0, B is undefined.
    devices: as in potrf, for A and B.

    A and B have any order. A complex B in another order than A is copied, with a PerformanceWarning.

        A, b = np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([8.0, 12.0])
        with offload_args(A, b) as (dA, db):
            lapack.posv(dA, db)
        print(b.round(6))  # [1. 2.]

    Raises numpy.linalg.LinAlgError, naming the pivot, if A is not positive definite; B is unchanged then. Source:
    LAPACK, xPOSV.

    See also: lapack.potrf, lapack.potrs, lapack.gesv; lapacke.dpotrf, cusolver.dpotrf, lapacke.dposv, rocsolver.dpotrf,
    rocsolver.dposv; docs/guide/lapack.md.
    """
    if devices is not None:
        from .streamed import factor_definite  # it imports threads, which few programs need

        factor_definite("lapack.posv", potrf, A, B, uplo, info, devices)
        return
    A, B = cast("DevicePtr", A), cast("DevicePtr", B)
    t, a = _definite("lapack.posv", A, uplo)
    b = _right_sides("lapack.posv", A, a, B)
    need_solvable("lapack.posv", A, B)
    need_info("lapack.posv", info, A, B)
    with fitting("lapack.posv", "B", A, B, _needed_order(t, a, b)) as fit:
        _factor("lapack.posv", t, a, A, uplo, info)
        with factored("lapack.posv", A=A, B=B):
            _solve(A, fit, uplo)


def _triangle(name: str, A: DevicePtr, B: DevicePtr, uplo: str, trans: str, diag: str) -> tuple[Matrix, Order | None]:
    """Return the geometry of a triangular matrix, and the order that B needs, after the checks of trtrs."""
    t = letter_of(name, "A", A)
    for option, value, known in (("uplo", uplo, "UL"), ("trans", trans, "NTC"), ("diag", diag, "NU")):
        need_option(name, option, value, tuple(known))
    a = square(name, "A", A)
    b = columns(name, "B", B, a.rows, "for A of that order", A)
    return a, _needed_order(t, a, b) if trans == "C" else None


_ZERO: Final = "A is singular: pivot {info}, on its diagonal, is zero"


def _trtrs_stack(
    A: DevicePtr, B: DevicePtr, uplo: str = "U", trans: str = "N", diag: str = "N"
) -> tuple[Infos, str] | None:
    a, needed = _triangle("lapack.trtrs", A[0], B[0], uplo, trans, diag)
    if needed or not a.rows or not vendor_of("lapack.trtrs", A).solves_stacks(a.rows):
        return None
    zeros = np.zeros((A._shape[0], 1), bool)
    if diag == "N":
        zeros = diagonal(A).to_host() == 0
    if 0 not in B._shape:
        trsm_stack(1.0, A, as_columns(B, stack=True), "L", uplo, trans, diag)
    return np.where(zeros.any(axis=1), zeros.argmax(axis=1) + 1, 0).astype(np.int32), _ZERO


@stacked("B", whole=_trtrs_stack)
def trtrs(A: DevicePtr, B: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) X = B for a triangular A, and set B to X; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A: triangular matrix of shape (n, n); its other triangle is not read.
    B: matrix of shape (n, nrhs), or vector (n,); becomes X.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.

    A and B have any order. For trans "C", a complex B in another order than A is copied, with a PerformanceWarning.

        A, b = np.array([[2.0, 1.0], [9.0, 4.0]]), np.array([4.0, 8.0])
        with offload_args(A, b) as (dA, db):
            lapack.trtrs(dA, db)  # the 9 is not read
        print(b.round(6))  # [1. 2.]

    Raises numpy.linalg.LinAlgError, naming the pivot, if the diagonal has a zero; B is unchanged then. Source: LAPACK,
    xTRTRS.

    See also: blas.trsm, lapack.potrs, lapack.getrs; lapacke.dtrtrs, cublas.dtrsm; docs/guide/lapack.md.
    """
    _, needed = _triangle("lapack.trtrs", A, B, uplo, trans, diag)
    vendor_of("lapack.trtrs", A)
    if diag == "N":
        need_uncaptured("lapack.trtrs", A, B, instead="solve by blas.trsm")
        zero = first_zero(A)
        if zero:
            refuse("lapack.trtrs", _ZERO.format(info=zero), zero)
    with fitting("lapack.trtrs", "B", A, B, needed) as fit:
        solve_triangular(A, fit, uplo, trans, diag)


def solve_triangular(A: DevicePtr, B: DevicePtr, uplo: str, trans: str, diag: str = "N") -> None:
    """Solve op(A) X = B for operands that were checked."""
    B = as_columns(B)
    if 0 not in B._shape:
        trsm(1.0, A, B, uplo=uplo, trans=trans, diag=diag)
