"""Eigenvalues of pencils and of general matrices, and some of the eigenvalues of a matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._operands import (
    COMPLEX_OF,
    REAL_OF,
    letter_of,
    matrix,
    need_fortran,
    need_option,
    need_shape,
    need_uncaptured,
    square,
    vector,
)
from .._signatures import telling
from ..arguments import Scratch
from ..display import shown
from ..dtypes import dtype_of
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import OTHER_TRIANGLE, is_finite, need_finite, refuse
from ._stacks import Infos, stacked, turned
from ._vendors import vendor_of
from .spectral import UNFOUND, symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._operands import Matrix
    from ._vendors import Vendor

__all__ = ["geev", "heevdx", "hegvd", "syevdx", "sygvd"]


@stacked("B", "w", writes=("w",))
def sygvd(A: DevicePtr, B: DevicePtr, w: DevicePtr, *, itype: int = 1, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of A x = w B x for real symmetric A and B, in ascending order, and the eigenvectors.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    B: positive definite matrix of shape (n, n), in A's order; one triangle is read, and becomes its Cholesky factor.
    w: vector of shape (n,) and A's dtype, set to the eigenvalues.
    itype: the problem: 1 for A x = w B x, 2 for A B x = w x, 3 for B A x = w x.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i]. With "N", no vectors are found, and A is destroyed.
    uplo: the triangle of A and of B that is read: "U", the upper one, or "L", the lower one.

    The vectors are scaled so that X^T B X, or X^T B^-1 X for itype 3, is the identity.

        A, B = np.array([[2.0, 1.0], [1.0, 2.0]], order="F"), np.array([[1.0, 0.0], [0.0, 4.0]], order="F")
        w = np.empty(2)
        with offload_args(A, B, w) as (dA, dB, dw):
            lapack.sygvd(dA, dB, dw)
        print(w.round(6))  # [0.348612 2.151388]

    Raises numpy.linalg.LinAlgError if B is not positive definite (the error names the pivot), if a matrix has NaN or
    infinity, or if the algorithm does not converge. Source: LAPACK, xSYGVD.

    See also: lapack.hegvd, lapack.syevd; lapacke.dsygvd, cusolver.dsygvd, rocsolver.dsygvd; docs/guide/lapack.md.
    """
    t = letter_of("lapack.sygvd", "A", A, "sd", "; hegvd takes complex ones")
    _pencil("lapack.sygvd", t, A, B, w, itype, jobz, uplo)


@stacked("B", "w", writes=("w",))
def hegvd(A: DevicePtr, B: DevicePtr, w: DevicePtr, *, itype: int = 1, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of A x = w B x for Hermitian A and B, in ascending order, and the eigenvectors.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    B: positive definite matrix of shape (n, n), in A's order; one triangle is read, and becomes its Cholesky factor.
    w: vector of shape (n,) and the real dtype of A's precision, set to the eigenvalues.
    itype: the problem: 1 for A x = w B x, 2 for A B x = w x, 3 for B A x = w x.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i]. With "N", no vectors are found, and A is destroyed.
    uplo: the triangle of A and of B that is read: "U", the upper one, or "L", the lower one.

    The function is sygvd for real dtypes.

        A, B, w = np.array([[2, 1j], [-1j, 2]], order="F"), np.eye(2, dtype=complex, order="F"), np.empty(2)
        with offload_args(A, B, w) as (dA, dB, dw):
            lapack.hegvd(dA, dB, dw)
        print(w.round(6))  # [1. 3.]

    Raises numpy.linalg.LinAlgError as sygvd does. Source: LAPACK, xHEGVD.

    See also: lapack.sygvd, lapack.heevd; lapacke.zhegvd, cusolver.zhegvd, rocsolver.zhegvd; docs/guide/lapack.md.
    """
    _pencil("lapack.hegvd", letter_of("lapack.hegvd", "A", A), A, B, w, itype, jobz, uplo)


def _pencil(name: str, t: str, A: DevicePtr, B: DevicePtr, w: DevicePtr, itype: int, jobz: str, uplo: str) -> None:
    need_option(name, "jobz", jobz, ("N", "V"))
    need_option(name, "uplo", uplo, ("U", "L"))
    if not isinstance(itype, (int, np.integer)) or isinstance(itype, bool) or itype not in (1, 2, 3):
        raise ArgumentError(f"{name}: itype must be 1, 2 or 3, got {shown(itype)}")
    a, b = square(name, "A", A), matrix(name, "B", B, like=A)
    need_shape(name, "B", B, A._shape, "as A has")
    vector(name, "w", w, a.rows, REAL_OF[t], "for A of that order", "for A of that dtype")
    if jobz == "V":
        need_fortran(name, "A", A, a, ' for jobz="V", whose vectors are columns')
    lda, ldb = (a.ld_f, b.ld_f) if a.ld_f and b.ld_f else (a.ld_c, b.ld_c)
    if not lda or not ldb or (jobz == "V" and not b.ld_f):
        order, copy = ("Fortran", "asfortranarray") if a.ld_f else ("C", "ascontiguousarray")
        raise ArgumentError(
            f"{name}: B has shape {B._shape} and strides {B._strides}, needs {order} order, as A has; copy it first: "
            f"B = np.{copy}(B)"
        )
    vendor = vendor_of(name, A)
    need_uncaptured(name, A, B, w)
    n = a.rows
    if not n:
        return
    need_finite(name, A, uplo)
    need_finite(name, B, uplo, "B")
    # In C order, the library reads conj(A) and conj(B), which have the same eigenvalues.
    stored = uplo if a.ld_f and b.ld_f else OTHER_TRIANGLE[uplo]
    info = vendor.sygvd(t, int(itype), jobz, stored, n, A, lda, B, ldb, w)
    if info > n:
        minor = info - n
        reason = f"B is not positive definite: its leading minor of order {minor} (pivot {minor}) is not"
        refuse(name, reason, info, A=A, B=B, w=w)
    if info:
        refuse(name, UNFOUND.format(info=info), info, A=A, B=B, w=w)


@telling
def syevdx(
    A: DevicePtr,
    w: DevicePtr,
    *,
    il: int | None = None,
    iu: int | None = None,
    vl: float | None = None,
    vu: float | None = None,
    jobz: str = "V",
    uplo: str = "U",
) -> int:
    """Find some eigenvalues of a real symmetric A, in ascending order, and their vectors; return their number.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    w: vector of shape (n,) and A's dtype; w[:count] is set to the eigenvalues, and the others are undefined.
    il, iu: the places of the least and of the greatest eigenvalue to find, from 1 to n, or None.
    vl, vu: the interval of the eigenvalues to find: above vl, and at most vu; or None.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i], for i < count, and the rest of A is undefined. With "N", no
    vectors are found, and A is destroyed.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

    Without places and without an interval, the function finds all eigenvalues.

        A, w = np.diag([3.0, 1.0, 2.0]), np.empty(3)
        with offload_args(A.T, w) as (dA, dw):
            count = lapack.syevdx(dA, dw, il=1, iu=2)
        print(count, w[:count].round(6))  # 2 [1. 2.]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge. Source: LAPACK,
    xSYEVR; cuSOLVER, syevdx.

    See also: lapack.heevdx, lapack.syevd; lapacke.dsyevr, cusolver.dsyevdx, rocsolver.dsyevx; docs/guide/lapack.md.
    """
    t = letter_of("lapack.syevdx", "A", A, "sd", "; heevdx takes complex ones")
    return _some("lapack.syevdx", t, A, w, (il, iu), (vl, vu), jobz, uplo)


@telling
def heevdx(
    A: DevicePtr,
    w: DevicePtr,
    *,
    il: int | None = None,
    iu: int | None = None,
    vl: float | None = None,
    vu: float | None = None,
    jobz: str = "V",
    uplo: str = "U",
) -> int:
    """Find some eigenvalues of a Hermitian A, in ascending order, and their vectors; return their number.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    w: vector of shape (n,) and the real dtype of A's precision; w[:count] is set, and the others are undefined.
    il, iu: the places of the least and of the greatest eigenvalue to find, from 1 to n, or None.
    vl, vu: the interval of the eigenvalues to find: above vl, and at most vu; or None.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i], for i < count, and the rest of A is undefined. With "N", no
    vectors are found, and A is destroyed.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

    The function is syevdx for real dtypes.

        A, w = np.array([[2, 1j], [-1j, 2]], order="F"), np.empty(2)
        with offload_args(A, w) as (dA, dw):
            count = lapack.heevdx(dA, dw, vl=2.0, vu=9.0)
        print(count, w[:count].round(6))  # 1 [3.]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge. Source: LAPACK,
    xHEEVR; cuSOLVER, heevdx.

    See also: lapack.syevdx, lapack.heevd; lapacke.zheevr, cusolver.zheevdx, rocsolver.zheevx; docs/guide/lapack.md.
    """
    return _some("lapack.heevdx", letter_of("lapack.heevdx", "A", A), A, w, (il, iu), (vl, vu), jobz, uplo)


def _chosen(name: str, n: int, places: tuple[Any, Any], bounds: tuple[Any, Any]) -> tuple[str, float, float, int, int]:
    """Return LAPACK's range, bounds and places."""
    for (first, last), names in ((places, "il and iu"), (bounds, "vl and vu")):
        if (first is None) != (last is None):
            raise ArgumentError(f"{name}: {names} are given together, got {shown(first)} and {shown(last)}")
    if places[0] is not None and bounds[0] is not None:
        raise ArgumentError(f"{name}: il and iu name places, vl and vu an interval; pass one pair of them")
    if places[0] is not None:
        il, iu = int(places[0]), int(places[1])
        if n and not 1 <= il <= iu <= n:
            raise ArgumentError(f"{name}: il and iu need 1 <= il <= iu <= {n} for A of that order, got {il} and {iu}")
        return "I", 0.0, 0.0, il, iu
    if bounds[0] is not None:
        vl, vu = float(bounds[0]), float(bounds[1])
        if not vl < vu or math.isinf(vl) or math.isinf(vu):
            raise ArgumentError(f"{name}: vl and vu need to be finite, and vl < vu, got {vl} and {vu}")
        return "V", vl, vu, 0, 0
    return "A", 0.0, 0.0, 0, 0


def _some(
    name: str,
    t: str,
    A: DevicePtr,
    w: DevicePtr,
    places: tuple[Any, Any],
    bounds: tuple[Any, Any],
    jobz: str,
    uplo: str,
) -> int:
    a, stored = symmetric(name, t, A, w, jobz, uplo)
    chosen = _chosen(name, a.rows, places, bounds)
    vendor = vendor_of(name, A)
    need_uncaptured(name, A, w)
    if not a.rows:
        return 0
    need_finite(name, A, uplo)
    w.fill(0)  # the library writes only a part of w
    info, count = vendor.syevdx(t, jobz, stored, a.rows, A, a.ld_f or a.ld_c, chosen, w)
    if info:
        refuse(name, UNFOUND.format(info=info), info, A=A, w=w)
    return count


def _general(A: DevicePtr, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None) -> tuple[str, Matrix, Vendor]:
    """Return the letter and the geometry of a matrix, and the adapter that finds its eigenvalues, after checks."""
    name = "lapack.geev"
    t = letter_of(name, "A", A)
    a = square(name, "A", A)
    vector(name, "w", w, a.rows, COMPLEX_OF[t], "for A of that order", "for A of that dtype")
    for operand, V in (("VL", VL), ("VR", VR)):
        if V is not None:
            facts = matrix(name, operand, V, like=w)
            need_shape(name, operand, V, (a.rows, a.rows), "for A of that shape")
            need_fortran(name, operand, V, facts, ", whose vectors are columns")
            need_fortran(name, "A", A, a, " for vectors")
    vendor = vendor_of(name, A)
    vendor.need_geev(name, VL is not None)
    return t, a, vendor


def _geev_stack(
    A: DevicePtr, w: DevicePtr, VL: DevicePtr | None = None, VR: DevicePtr | None = None
) -> tuple[Infos, str] | None:
    t, a, vendor = _general(A[0], w[0], None if VL is None else VL[0], None if VR is None else VR[0])
    n, ld = a.rows, a.ld_f or a.ld_c
    if not n or not vendor.loops_over(n, n) or not is_finite(A):
        return None
    infos = vendor.geev_batched(t, n, A, ld, w, VL, VR) if t in "cz" else _real_stack(vendor, t, n, A, ld, w, VL, VR)
    return None if infos is None else (infos, UNFOUND)


@stacked("w", "VL", "VR", writes=("w", "VL", "VR"), whole=_geev_stack)
def geev(A: DevicePtr, w: DevicePtr, VL: DevicePtr | None = None, VR: DevicePtr | None = None) -> None:
    """Find the eigenvalues of a general A, in no particular order, and its left and right eigenvectors.

    A: matrix of shape (n, n), which is destroyed. It is in Fortran order if vectors are found, otherwise in any order.
    w: vector of shape (n,) and the complex dtype of A's precision, written.
    VL: matrix of shape (n, n) and w's dtype, in Fortran order, written: VL[:, i]^H A is w[i] VL[:, i]^H; or None.
    VR: matrix of shape (n, n) and w's dtype, in Fortran order, written: A VR[:, i] is w[i] VR[:, i]; or None.

    The vectors are complex even if A is real, as in scipy.linalg.eig. On NVIDIA GPUs, cuSOLVER 11.7.1 and later
    versions find right vectors, but no left ones. The left vectors of A are the right vectors of A^H.

        A, w = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.empty(2, complex)
        with offload_args(A, w) as (dA, dw):
            lapack.geev(dA, dw)
        print(abs(w.imag).round(6), w.imag.sum().round(6))  # [1. 1.] 0.0

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge, and LibraryError if
    the library of the device has no such function. Source: LAPACK, xGEEV.

    See also: lapack.heevd, lapack.gesvd; lapacke.dgeev, cusolver.xgeev; docs/guide/lapack.md.
    """
    name = "lapack.geev"
    t, a, vendor = _general(A, w, VL, VR)
    n = a.rows
    need_uncaptured(name, A, w, *(V for V in (VL, VR) if V is not None))
    if not n:
        return
    need_finite(name, A)
    written = {key: pointer for key, pointer in (("w", w), ("VL", VL), ("VR", VR)) if pointer is not None}
    ld = a.ld_f or a.ld_c
    info = vendor.geev(t, n, A, ld, w, VL, VR) if t in "cz" else _real(vendor, t, n, A, ld, w, VL, VR)
    if info:
        refuse(name, UNFOUND.format(info=info), info, A=A, **written)


def _real(
    vendor: Vendor, t: str, n: int, A: DevicePtr, ld: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
) -> int:
    """Do the work of geev for a real A.

    The library returns real and imaginary parts of eigenvalues and of pairs of vectors.
    """
    real = dtype_of(A._dtype_code)
    wanted = [V for V in (VL, VR) if V is not None]
    packed = [Scratch((n, n), real, order="F") for _ in wanted]
    with offload_args(Scratch((2 * n,), real), *packed, device=A.device) as (parts, *lent):
        of_left, of_right = (lent.pop(0) if V is not None else None for V in (VL, VR))
        info = vendor.geev(t, n, A, ld, parts, of_left, of_right)
        if info:
            return info
        values = parts.to_host()
        w.assign((values[:n] + 1j * values[n:]).astype(w.dtype))
        for V, pairs in ((VL, of_left), (VR, of_right)):
            if V is not None and pairs is not None:
                V.assign(_unpacked(pairs.to_host(), values[n:]).astype(V.dtype))
    return 0


def _real_stack(
    vendor: Vendor, t: str, n: int, A: DevicePtr, ld: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
) -> Infos | None:
    """Do the work of _real for a stack."""
    count, real = A._shape[0], dtype_of(A._dtype_code)
    packed = [Scratch((count, n, n), real) for V in (VL, VR) if V is not None]
    with offload_args(Scratch((count, 2 * n), real), *packed, device=A.device) as (parts, *lent):
        of_left, of_right = (turned(lent.pop(0)) if V is not None else None for V in (VL, VR))
        infos = vendor.geev_batched(t, n, A, ld, parts, of_left, of_right)
        values = parts.to_host()
        w.assign((values[:, :n] + 1j * values[:, n:]).astype(w.dtype))
        for V, pairs in ((VL, of_left), (VR, of_right)):
            if V is not None and pairs is not None:
                V.assign(_unpacked(pairs.to_host(), values[:, n:]).astype(V.dtype))
    return infos


def _unpacked(vectors: NDArray[Any], imaginary: NDArray[Any]) -> NDArray[Any]:
    """Return the complex vectors of a matrix or of a stack.

    vectors: columns i and i + 1 are the real and the imaginary part of a pair.
    """
    unpacked = vectors.astype(np.complex128)
    *stack, firsts = np.nonzero(imaginary > 0)
    first: Any = (*stack, slice(None), firsts)
    second: Any = (*stack, slice(None), firsts + 1)
    pairs = vectors[first] + 1j * vectors[second]
    unpacked[first] = pairs
    unpacked[second] = pairs.conj()
    return unpacked
