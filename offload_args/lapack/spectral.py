"""Eigenvalues and singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ._operands import REAL_OF, letter_of, matrix, need_fortran, option, refuse, square, vector
from ._vendors import vendor_of

if TYPE_CHECKING:
    from ._operands import Matrix, Pointer

__all__ = ["gesvd", "heevd", "syevd"]


def syevd(A: Pointer, w: Pointer, *, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of a real symmetric A, in ascending order, and its eigenvectors.

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read. w has shape (n,) and A's dtype, and is set
    to the eigenvalues. With jobz "V" A is in Fortran order, and A[:, i] becomes the eigenvector of w[i]; with "N" it
    has any order, and is destroyed.

    Raises numpy.linalg.LinAlgError if the algorithm does not converge.
    Source: LAPACK, xSYEVD.
    """
    _eigenvalues("syevd", letter_of("syevd", "A", A, "sd"), A, w, jobz, uplo)


def heevd(A: Pointer, w: Pointer, *, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of a Hermitian A, in ascending order, and its eigenvectors.

    w has the real dtype of A's; all else is as in syevd, which it is for real dtypes.

    Raises numpy.linalg.LinAlgError if the algorithm does not converge.
    Source: LAPACK, xHEEVD.
    """
    _eigenvalues("heevd", letter_of("heevd", "A", A), A, w, jobz, uplo)


def _eigenvalues(name: str, t: str, A: Pointer, w: Pointer, jobz: str, uplo: str) -> None:
    option(name, "jobz", jobz, ("N", "V"))
    option(name, "uplo", uplo, ("U", "L"))
    a = square(name, "A", A)
    vector(name, "w", w, a.rows, REAL_OF[t], "for A of that order and dtype")
    if jobz == "V":
        need_fortran(name, "A", A, a, ' for jobz="V", whose vectors are columns')
    vendor = vendor_of(name, A)
    if not a.rows:
        return
    stored = uplo if a.ld_f else {"U": "L", "L": "U"}[uplo]  # of conj(A), which has the same eigenvalues
    info = vendor.syevd(t, jobz, stored, a.rows, A, a.ld_f or a.ld_c, w)
    if info:
        refuse(name, f"the eigenvalues did not converge (info {info})", A=A, w=w)


def gesvd(
    A: Pointer,
    s: Pointer,
    U: Pointer | None = None,
    VT: Pointer | None = None,
    *,
    jobu: str = "A",
    jobvt: str = "A",
) -> None:
    """Find the singular values of A, in descending order, and its singular vectors: A = U diag(s) VT.

    A has shape (m, n) and is destroyed; s has shape (k,), k = min(m, n), and the real dtype of A's. U has shape (m, m)
    for jobu "A", (m, k) for "S", and is None for "N"; VT has shape (n, n) for jobvt "A", (k, n) for "S", and is None
    for "N". All matrices have one order. On NVIDIA GPUs they lie in Fortran order if m > n, in C order if m < n. With
    k = 0 nothing is written.

    Raises numpy.linalg.LinAlgError if the algorithm does not converge.
    Source: LAPACK, xGESVD.
    """
    t = letter_of("gesvd", "A", A)
    option("gesvd", "jobu", jobu, ("A", "S", "N"))
    option("gesvd", "jobvt", jobvt, ("A", "S", "N"))
    a = matrix("gesvd", "A", A)
    m, n, k = a.rows, a.columns, min(a.rows, a.columns)
    vector("gesvd", "s", s, k, REAL_OF[t], "for A of that shape and dtype")
    u = _vectors("U", U, "jobu", jobu, (m, m if jobu == "A" else k), A)
    vt = _vectors("VT", VT, "jobvt", jobvt, (n if jobvt == "A" else k, n), A)
    vendor = vendor_of("gesvd", A)
    fits = [one for one in ("F", "C") if all(g is None or g[2 + (one == "C")] for g in (a, u, vt))]
    if not fits:
        raise ArgumentError(
            'lapack.gesvd: A, U and VT need one order; lend copies in it: numpy.asfortranarray, or order="F"'
        )
    if not k:
        return
    if vendor.needs_tall:
        tall = [one for one in fits if (m >= n if one == "F" else n >= m)]
        if not tall:
            other = "C" if fits == ["F"] else "F"
            copy = "ascontiguousarray" if other == "C" else "asfortranarray"
            raise ArgumentError(
                f"lapack.gesvd: A has shape {A._shape}, and the library of {A.device} needs it in the other order; "
                f'lend numpy.{copy}(A), and U and VT with order="{other}"'
            )
        fits = tall
    written = {name: one for name, one in (("s", s), ("U", U), ("VT", VT)) if one is not None}
    if fits[0] == "F":
        info = vendor.gesvd(t, (jobu, jobvt), m, n, A, a.ld_f, s, *_given(U, u, 2, A), *_given(VT, vt, 2, A))
    else:  # A^T = VT^T diag(s) U^T
        info = vendor.gesvd(t, (jobvt, jobu), n, m, A, a.ld_c, s, *_given(VT, vt, 3, A), *_given(U, u, 3, A))
    if info:
        refuse("gesvd", f"{info} of the singular values did not converge", A=A, **written)


def _vectors(
    operand: str, pointer: Pointer | None, what: str, job: str, needed: tuple[int, int], A: Pointer
) -> Matrix | None:
    """Return the geometry of U or VT; None if the job says that there is none."""
    if job == "N":
        if pointer is not None:
            raise ArgumentError(f'lapack.gesvd: {operand} needs to be None for {what}="N", which makes no vectors')
        return None
    if pointer is None:
        remedy = f'or say {what}="N"'
        raise ArgumentError(f'lapack.gesvd: {operand} needs a DevicePtr for {what}="{job}", got None; {remedy}')
    found = matrix("gesvd", operand, pointer, like=A)
    if (found.rows, found.columns) != needed:
        reason = f'for A of shape {A._shape} and {what}="{job}"'
        raise ArgumentError(f"lapack.gesvd: {operand} has shape {pointer._shape}, needs {needed} {reason}")
    return found


def _given(pointer: Pointer | None, found: Matrix | None, ld: int, A: Pointer) -> tuple[Pointer, int]:
    """Return the arguments of U or VT; of none, which the library does not touch, those of A."""
    return (A, max(A._shape)) if pointer is None or found is None else (pointer, found[ld])
