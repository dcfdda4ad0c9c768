"""Eigenvalues, singular values and QR."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from .._signatures import telling
from ..display import shown, text_of
from ..errors import ArgumentError
from ..lapack._checks import OTHER_TRIANGLE, by_columns, is_finite, need_finite
from ..lapack._stacks import flat, turned
from ..lapack._vendors import vendor_of
from ..lapack.spectral import UNFOUND
from ._call import Call, Operand, Result, Spec, new
from ._stacks import arrange, clear_triangles, letter, matrices, refuse_first, set_identity, stored, vectors

if TYPE_CHECKING:
    from ..devices import Device
    from ..pointers import DevicePtr

__all__ = ["EighResult", "QRResult", "SVDResult", "eigh", "eigvalsh", "qr", "singular_vectors", "svd"]


_UNFOUND = "has eigenvalues that did not converge (info {info})"


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns.

        result = linalg.eigh(np.diag([1.0, 3.0]))
        print(result.eigenvalues)  # [1. 3.]

    See also: linalg.eigh; docs/guide/linalg.md.
    """

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The factors of a QR decomposition.

        A = np.array([[3.0, 0.0], [4.0, 5.0]])
        Q, R = linalg.qr(A)
        print(np.allclose(Q @ R, A))  # True

    See also: linalg.qr; docs/guide/linalg.md.
    """

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The factors of a singular value decomposition: U diag(S) Vh.

        U, S, Vh = linalg.svd(np.diag([1.0, 3.0]))
        print(S)  # [3. 1.]

    See also: linalg.svd; docs/guide/linalg.md.
    """

    U: Any
    S: Any
    Vh: Any


@telling
def eigh(a: Operand, UPLO: str = "L", *, device: Device | str | None = None) -> EighResult:
    """Return the ascending eigenvalues, and the eigenvectors, of a Hermitian matrix or of each matrix of a stack.

    a: matrix of shape (n, n), or a stack (..., n, n); one triangle is read.
    UPLO: the triangle that is read: "L", the lower one, or "U", the upper one.
    device: as for solve.

        w, v = linalg.eigh([[2.0, 1.0], [1.0, 2.0]])
        print(w.round(6), abs(v[:, 1]).round(6))  # [1. 3.] [0.707107 0.707107]

    Raises numpy.linalg.LinAlgError if a has NaN or infinity, or if the algorithm does not converge. Source:
    numpy.linalg.eigh.

    See also: linalg.eigvalsh, linalg.svd, lapack.heevd; docs/guide/linalg.md.
    """
    return _eigh("linalg.eigh", a, UPLO, device)


def _eigh(name: str, a: Operand, UPLO: str, device: Device | str | None) -> EighResult:
    """Do the work of eigh for the function `name`."""
    call, uplo = Call(name, device, a=a), _triangle(name, UPLO)
    shape = call.need_square()

    def work(a: DevicePtr, w: DevicePtr, v: DevicePtr) -> None:
        _eigenvalues(name, a, w, v, uplo, "V")

    (w, v), _ = call.run(work, Spec(shape[:-1], call.real), Spec(shape, call.dtype, "F"))
    return EighResult(w, call.wrapped("a", v))


@telling
def eigvalsh(a: Operand, UPLO: str = "L", *, device: Device | str | None = None) -> Result:
    """Return the eigenvalues, in ascending order, of a Hermitian matrix, or of each matrix of a stack.

    a: matrix of shape (n, n), or a stack (..., n, n); one triangle is read.
    UPLO: the triangle that is read: "L", the lower one, or "U", the upper one.
    device: as for solve.

        print(linalg.eigvalsh([[2.0, 1.0], [1.0, 2.0]]).round(6))  # [1. 3.]

    Raises numpy.linalg.LinAlgError if a has NaN or infinity, or if the algorithm does not converge. Source:
    numpy.linalg.eigvalsh.

    See also: linalg.eigh, linalg.svd, lapack.heevd; docs/guide/linalg.md.
    """
    return _eigvalsh("linalg.eigvalsh", a, UPLO, device)


def _eigvalsh(name: str, a: Operand, UPLO: str, device: Device | str | None) -> Result:
    """Do the work of eigvalsh for the function `name`."""
    call, uplo = Call(name, device, a=a), _triangle(name, UPLO)
    shape = call.need_square()

    def work(a: DevicePtr, w: DevicePtr) -> None:
        copied = new(a, a._shape, a.dtype, "F" if stored(name, "a", a).ld_f else "C")
        _eigenvalues(name, a, w, copied, uplo, "N")

    (w,), _ = call.run(work, Spec(shape[:-1], call.real))
    return w


def _triangle(name: str, UPLO: str) -> str:
    upper = UPLO.upper() if isinstance(UPLO, str) else ""
    if upper not in ("L", "U"):
        remedy = f'; write UPLO="{text_of(UPLO)}"' if text_of(UPLO).upper() in ("L", "U") else ""
        raise ArgumentError(f'{name}: UPLO argument must be "L" or "U", got {shown(UPLO)}{remedy}')
    return upper


def _eigenvalues(name: str, a: DevicePtr, w: DevicePtr, v: DevicePtr, uplo: str, jobz: str) -> None:
    """Set w to the eigenvalues of a. If jobz is "V", set v, which is a copy of a before, to the eigenvectors."""
    vendor, t, facts_a = vendor_of(name, a), letter(a), stored(name, "a", a)
    if 0 in a._shape:
        return
    source = a
    if t in "sd" and not facts_a.ld_f and jobz == "V":  # A equals its transpose, so the copy need not exchange elements
        source, uplo = turned(a), OTHER_TRIANGLE[uplo]
    arrange(v, source)
    facts = stored(name, "a", v)
    triangle = by_columns(uplo, facts)  # in C order, conj(A)'s triangle: conj(A) has the same eigenvalues
    whole = flat(v) if len(v._shape) > 2 else None
    if whole is not None and vendor.diagonalizes_stacks(facts.rows, facts.rows) and is_finite(whole):
        ld, values = facts.ld_f or facts.ld_c, flat(w, 1)
        infos = None if values is None else vendor.syevd_batched(t, jobz, triangle, facts.rows, whole, ld, values)
        if infos is not None:
            refuse_first(name, "a", a._shape[:-2], infos, _UNFOUND)
            return
    for part, values in zip(matrices(v), vectors(w), strict=True):
        need_finite(name, part, uplo)
        info = vendor.syevd(t, jobz, triangle, facts.rows, part, facts.ld_f or facts.ld_c, values)
        if info:
            raise np.linalg.LinAlgError(f"{name}: {UNFOUND.format(info=info)}")


@telling
def svd(
    a: Operand,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    device: Device | str | None = None,
) -> SVDResult | Result:
    """Return the singular value decomposition a = U diag(S) Vh of a matrix, or of each matrix of a stack.

    a: matrix of shape (m, n), or a stack (..., m, n).
    full_matrices: with True, U has shape (m, m) and Vh (n, n); with False, U has shape (m, k) and Vh (k, n); k = min(m,
    n).
    compute_uv: with False, only the singular values are returned.
    hermitian: with True, a is Hermitian, and its eigenvalues are used; only for arrays.
    device: as for solve.

        U, S, Vh = linalg.svd(np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]), full_matrices=False)
        print(S.round(6), ((U * S) @ Vh).round(6)[:, 0])  # [4. 3.] [3. 0. 0.]

    Raises numpy.linalg.LinAlgError if a has NaN or infinity, or if the algorithm does not converge. Source:
    numpy.linalg.svd.

    See also: linalg.eigh, linalg.lstsq, lapack.gesvd; docs/guide/linalg.md.
    """
    name = "linalg.svd"
    call = Call(name, device, a=a)
    *batch, m, n = call.need_stack()
    if hermitian:
        return _of_hermitian(call, a, compute_uv, device)
    k, order = min(m, n), "F" if m > n else "C" if m < n else call.order_of("a")
    values = Spec((*batch, k), call.real)
    if not compute_uv:
        (s,), _ = call.run(lambda a, s: singular_vectors(name, a, s=s), values)
        return s
    left, right = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    specs = Spec((*batch, *left), call.dtype, order), values, Spec((*batch, *right), call.dtype, order)
    (U, s, VT), _ = call.run(lambda a, U, s, VT: singular_vectors(name, a, U, s, VT), *specs)
    return SVDResult(call.wrapped("a", U), s, call.wrapped("a", VT))


def _of_hermitian(call: Call, a: Operand, compute_uv: bool, device: Device | str | None) -> SVDResult | Result:
    if call.on_device:
        raise ArgumentError(
            "linalg.svd: hermitian=True needs an array, got a DevicePtr; use linalg.eigh, or leave it out"
        )
    call.need_square()
    if not compute_uv:
        return np.sort(np.abs(_eigvalsh(call.name, a, "L", device)), axis=-1)[..., ::-1]
    values, vectors = _eigh(call.name, np.asarray(a), "L", device)
    order = np.argsort(np.abs(values), axis=-1)[..., ::-1]
    values = np.take_along_axis(values, order, axis=-1)
    U = np.take_along_axis(vectors, order[..., None, :], axis=-1)
    signs = np.copysign(np.ones_like(values), values)
    Vh = (U * signs[..., None, :]).swapaxes(-1, -2).conj()
    return SVDResult(call.wrapped("a", U), np.abs(values), call.wrapped("a", Vh))


def singular_vectors(
    name: str,
    a: DevicePtr,
    U: DevicePtr | None = None,
    s: DevicePtr | None = None,
    VT: DevicePtr | None = None,
) -> None:
    """Set s to the singular values of a stack, and U and VT to the singular vectors.

    U and VT have the same order: "F" if a is tall, "C" if a is wide.
    """
    vendor, t = vendor_of(name, a), letter(a)
    stored(name, "a", a)
    m, n = a._shape[-2:]
    assert s is not None
    if 0 in a._shape:
        for vectors_of in (U, VT):
            if vectors_of is not None:
                set_identity(vectors_of)
        return
    tall = m > n or (m == n and bool(stored(name, "a", a if VT is None else VT).ld_f))
    copied = new(a, a._shape, a.dtype, "F" if tall else "C")
    arrange(copied, a)
    if len(a._shape) > 2 and _decompose_stack(name, copied, U, s, VT):
        return
    none = [None] * math.prod(copied._shape[:-2])
    jobs = ["N" if V is None else "A" if V._shape[-2] == V._shape[-1] else "S" for V in (U, VT)]
    of_U, of_VT = (none if V is None else matrices(V) for V in (U, VT))
    for A, left, values, right in zip(matrices(copied), of_U, vectors(s), of_VT, strict=True):
        need_finite(name, A)
        first, second = (A if left is None else left), (A if right is None else right)
        ld_u, ld_vt = (max(m, n) if V is None else max(V._shape[-2 if tall else -1], 1) for V in (left, right))
        if tall:
            info = vendor.gesvd(t, (jobs[0], jobs[1]), m, n, A, m, values, first, ld_u, second, ld_vt)
        else:  # A^T = VT^T diag(s) U^T
            info = vendor.gesvd(t, (jobs[1], jobs[0]), n, m, A, n, values, second, ld_vt, first, ld_u)
        if info:
            raise np.linalg.LinAlgError(f"{name}: {info} of the singular values did not converge")


def _decompose_stack(name: str, A: DevicePtr, U: DevicePtr | None, s: DevicePtr, VT: DevicePtr | None) -> bool:
    """Set s, U and VT for a stack A, which is destroyed, by one call of the library.

    Return whether the library has such a call.
    """
    vendor, whole, values = vendor_of(name, A), flat(A), flat(s, 1)
    if whole is None or values is None or not vendor.diagonalizes_stacks(*A._shape[-2:]) or not is_finite(whole):
        return False
    left, right = (None if V is None else flat(V) for V in (U, VT))
    if (left is None) != (U is None) or (right is None) != (VT is None):
        return False
    ld = stored(name, "a", A)
    if not ld.ld_f:  # A^T = VT^T diag(s) U^T
        whole = turned(whole)
        left, right = (None if V is None else turned(V) for V in (right, left))
    infos = vendor.gesvd_batched(letter(A), whole, ld.ld_f or ld.ld_c, values, left, right)
    if infos is None:
        return False
    refuse_first(name, "a", A._shape[:-2], infos, "has {info} singular values that did not converge")
    return True


@telling
def qr(
    a: Operand,
    mode: Literal["reduced", "complete", "r", "raw"] = "reduced",
    *,
    device: Device | str | None = None,
) -> QRResult | Result:
    """Return the QR decomposition a = Q R of a matrix, or of each matrix of a stack.

    a: matrix of shape (m, n), or a stack (..., m, n).
    mode: with "reduced", Q has shape (m, k) and R (k, n); k = min(m, n). With "complete", the shapes are (m, m) and (m,
    n). With "r", only R is returned. With "raw", the transposed reflectors of geqrf and tau are returned.
    device: as for solve.

        Q, R = linalg.qr(np.array([[3.0, 1.0], [0.0, 2.0], [4.0, 1.0]]))
        print(abs(R[0, 0]).round(6), (Q @ R).round(6)[2])  # 5.0 [4. 1.]

    Source: numpy.linalg.qr.

    See also: linalg.lstsq, lapack.geqrf, lapack.ormqr; docs/guide/linalg.md.
    """
    modes = "reduced", "complete", "r", "raw"
    if mode not in modes:
        text = text_of(mode)
        meant = {"economic": "reduced", "full": "complete", "R": "r"}.get(text, text if text in modes else "")
        remedy = f'; write mode="{meant}"' if meant else ""
        raise ArgumentError(f'linalg.qr: mode must be "reduced", "complete", "r" or "raw", got {shown(mode)}{remedy}')
    call = Call("linalg.qr", device, "lapack.geqrf and orgqr", a=a)
    *batch, m, n = call.need_stack()
    k = min(m, n)
    if mode == "raw":
        (h, tau), _ = call.run(_raw, Spec((*batch, n, m), call.dtype), Spec((*batch, k), call.dtype))
        return h, tau
    rows = m if mode == "complete" else k
    of_R = Spec((*batch, rows, n), call.dtype, "F")
    if mode == "r":
        (R,), _ = call.run(_only_r, of_R)
        return call.wrapped("a", R)
    (Q, R), _ = call.run(_q_and_r, Spec((*batch, m, rows), call.dtype, "F"), of_R)
    return QRResult(call.wrapped("a", Q), call.wrapped("a", R))


def _reflectors(a: DevicePtr, h: DevicePtr, tau: DevicePtr) -> None:
    """Set h, a stack in Fortran order, and tau to the factors of a."""
    vendor, t = vendor_of("linalg.qr", a), letter(a)
    stored("linalg.qr", "a", a)
    arrange(h, a)
    m, n = a._shape[-2:]
    if 0 in a._shape:
        return
    if len(a._shape) > 2 and (whole := flat(h)) is not None and (of_whole := flat(tau, 1)) is not None:
        done = vendor.geqrf_batched(t, m, n, whole, m, of_whole)
        if done is not None:
            return
    for part, of_part in zip(matrices(h), vectors(tau), strict=True):
        vendor.geqrf(t, m, n, part, m, of_part)


def _raw(a: DevicePtr, h: DevicePtr, tau: DevicePtr) -> None:
    _reflectors(a, turned(h), tau)


def _set_r(h: DevicePtr, R: DevicePtr) -> None:
    """Set R to the upper triangles of factors."""
    if 0 in R._shape:
        return
    R.copy_from(h[..., : R._shape[-2], :])
    clear_triangles(R, "U")


def _only_r(a: DevicePtr, R: DevicePtr) -> None:
    h = new(a, a._shape, a.dtype, "F")
    _reflectors(a, h, new(a, (*a._shape[:-2], min(a._shape[-2:])), a.dtype))
    _set_r(h, R)


def _q_and_r(a: DevicePtr, Q: DevicePtr, R: DevicePtr) -> None:
    m, n = a._shape[-2:]
    k = min(m, n)
    if not k:
        set_identity(Q)
        return
    h, tau = new(a, a._shape, a.dtype, "F"), new(a, (*a._shape[:-2], k), a.dtype)
    _reflectors(a, h, tau)
    _set_r(h, R)
    if 0 in Q._shape:
        return
    vendor, t = vendor_of("linalg.qr", a), letter(a)
    for part, of_part, of_tau in zip(matrices(Q), matrices(h), vectors(tau), strict=True):
        part[:, :k].copy_from(of_part[:, :k])
        if part._shape[1] > k:
            part[:, k:].fill(0)
        vendor.orgqr(t, m, part._shape[1], k, part, m, of_tau)
