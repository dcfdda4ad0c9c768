"""Eigenvalues and singular values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from .._operands import REAL_OF, Matrix, letter_of, matrix, need_fortran, need_option, need_uncaptured, square, vector
from ..arguments import Scratch
from ..blas.extensions import geam
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import by_columns, follow, is_finite, need_finite, refuse
from ._copies import Order, rearranged
from ._stacks import Infos, stacked, turned
from ._vendors import Vendor, vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNFOUND", "gesvd", "heevd", "syevd", "symmetric"]


def _syevd_stack(A: DevicePtr, w: DevicePtr, jobz: str = "V", uplo: str = "U") -> tuple[Infos, str] | None:
    letter_of("lapack.syevd", "A", A, "sd", "; heevd takes complex ones")
    return _eigenvalues_of_stack("lapack.syevd", A, w, jobz, uplo)


def _heevd_stack(A: DevicePtr, w: DevicePtr, jobz: str = "V", uplo: str = "U") -> tuple[Infos, str] | None:
    return _eigenvalues_of_stack("lapack.heevd", A, w, jobz, uplo)


@stacked("w", writes=("w",), whole=_syevd_stack)
def syevd(A: DevicePtr, w: DevicePtr, *, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of a real symmetric A, in ascending order, and its eigenvectors.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    w: vector of shape (n,) and A's dtype, set to the eigenvalues.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i]. With "N", no vectors are found, and A is destroyed.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

        A, w = np.array([[2.0, 1.0], [1.0, 2.0]], order="F"), np.empty(2)
        with offload_args(A, w) as (dA, dw):
            lapack.syevd(dA, dw)
        print(w.round(6), abs(A[:, 1]).round(6))  # [1. 3.] [0.707107 0.707107]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge. Source: LAPACK,
    xSYEVD.

    See also: lapack.heevd, lapack.gesvd; lapacke.dsyevd, cusolver.dsyevd, rocsolver.dsyevd; docs/guide/lapack.md.
    """
    _eigenvalues(
        "lapack.syevd", letter_of("lapack.syevd", "A", A, "sd", "; heevd takes complex ones"), A, w, jobz, uplo
    )


@stacked("w", writes=("w",), whole=_heevd_stack)
def heevd(A: DevicePtr, w: DevicePtr, *, jobz: str = "V", uplo: str = "U") -> None:
    """Find the eigenvalues of a Hermitian A, in ascending order, and its eigenvectors.

    A: matrix of shape (n, n), in Fortran order for jobz "V", in any order for "N"; one triangle is read.
    w: vector of shape (n,) and the real dtype of A's precision, set to the eigenvalues.
    jobz: with "V", A[:, i] becomes the eigenvector of w[i]. With "N", no vectors are found, and A is destroyed.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

    The function is syevd for real dtypes.

        A, w = np.array([[2, 1j], [-1j, 2]], order="F"), np.empty(2)
        with offload_args(A, w) as (dA, dw):
            lapack.heevd(dA, dw)
        print(w.round(6))  # [1. 3.]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge. Source: LAPACK,
    xHEEVD.

    See also: lapack.syevd, lapack.gesvd; lapacke.zheevd, cusolver.zheevd, rocsolver.zheevd; docs/guide/lapack.md.
    """
    _eigenvalues("lapack.heevd", letter_of("lapack.heevd", "A", A), A, w, jobz, uplo)


UNFOUND: Final = "the eigenvalues did not converge (info {info})"


def symmetric(name: str, t: str, A: DevicePtr, w: DevicePtr, jobz: str, uplo: str) -> tuple[Matrix, str]:
    """Return the geometry of a matrix whose eigenvalues are to be found, and its triangle by columns."""
    need_option(name, "jobz", jobz, ("N", "V"))
    need_option(name, "uplo", uplo, ("U", "L"))
    a = square(name, "A", A)
    vector(name, "w", w, a.rows, REAL_OF[t], "for A of that order", "for A of that dtype")
    if jobz == "V":
        need_fortran(name, "A", A, a, ' for jobz="V", whose vectors are columns')
    # In C order, the library reads conj(A), which has the same eigenvalues.
    return a, by_columns(uplo, a)


def _eigenvalues(name: str, t: str, A: DevicePtr, w: DevicePtr, jobz: str, uplo: str) -> None:
    a, stored = symmetric(name, t, A, w, jobz, uplo)
    vendor = vendor_of(name, A)
    need_uncaptured(name, A, w)
    if not a.rows:
        return
    need_finite(name, A, uplo)
    info = vendor.syevd(t, jobz, stored, a.rows, A, a.ld_f or a.ld_c, w)
    if info:
        refuse(name, UNFOUND.format(info=info), info, A=A, w=w)


def _eigenvalues_of_stack(name: str, A: DevicePtr, w: DevicePtr, jobz: str, uplo: str) -> tuple[Infos, str] | None:
    t = letter_of(name, "A", A)
    a, stored = symmetric(name, t, A[0], w[0], jobz, uplo)
    vendor = vendor_of(name, A)
    if not a.rows or not vendor.diagonalizes_stacks(a.rows, a.rows) or not follow(w) or not is_finite(A):
        return None
    infos = vendor.syevd_batched(t, jobz, stored, a.rows, A, a.ld_f or a.ld_c, w)
    return None if infos is None else (infos, UNFOUND)


class _Job(NamedTuple):
    """One decomposition by gesvd: its results, and the order of all of its matrices."""

    t: str
    a: Matrix
    jobu: str
    u: Matrix | None
    jobvt: str
    vt: Matrix | None
    fits: list[str]


_UNFOUND_VALUES: Final = "{info} of the singular values did not converge"


def _gesvd_stack(
    A: DevicePtr,
    s: DevicePtr,
    U: DevicePtr | None = None,
    VT: DevicePtr | None = None,
    jobu: str | None = None,
    jobvt: str | None = None,
) -> tuple[Infos, str] | None:
    name = "lapack.gesvd"
    job = _job(A[0], s[0], None if U is None else U[0], None if VT is None else VT[0], jobu, jobvt)
    t, a, vendor = job.t, job.a, vendor_of(name, A)
    if 0 in A._shape or not vendor.diagonalizes_stacks(a.rows, a.columns) or not follow(s) or not is_finite(A):
        return None
    if job.fits[0] == "F":
        infos = vendor.gesvd_batched(t, A, a.ld_f, s, U, VT)
    else:  # A^T = VT^T diag(s) U^T
        left, right = (None if V is None else turned(V) for V in (VT, U))
        infos = vendor.gesvd_batched(t, turned(A), a.ld_c, s, left, right)
    return None if infos is None else (infos, _UNFOUND_VALUES)


@stacked("s", "U", "VT", writes=("s", "U", "VT"), whole=_gesvd_stack)
def gesvd(
    A: DevicePtr,
    s: DevicePtr,
    U: DevicePtr | None = None,
    VT: DevicePtr | None = None,
    *,
    jobu: str | None = None,
    jobvt: str | None = None,
) -> None:
    """Find the singular values of A, in descending order, and its singular vectors: A = U diag(s) VT.

    A: matrix of shape (m, n), which is destroyed.
    s: vector of shape (k,) and the real dtype of A's precision, written; k = min(m, n).
    U: matrix, written, of shape (m, m) for jobu "A", or (m, k) for "S"; None for "N".
    VT: matrix, written, of shape (n, n) for jobvt "A", or (k, n) for "S"; None for "N".
    jobu: the left vectors to find: "A" for all m, "S" for the first k, "N" for none; None stands for the job that fits
    U's shape.
    jobvt: the right vectors to find: "A" for all n, "S" for the first k, "N" for none; None stands for the job that
    fits VT's shape.

    All matrices have the same order. On NVIDIA GPUs, cuSOLVER's function takes m >= n in Fortran order, and m <= n in C
    order; otherwise the matrices are copied to the other order. If k is 0, nothing is written. LAPACK's job "O", which
    puts vectors into A, is not supported; lend an array for the vectors.

        A = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], order="F")
        s, U, VT = np.empty(2), np.empty((3, 2), order="F"), np.empty((2, 2), order="F")
        with offload_args(A, s, U, VT) as (dA, ds, dU, dVT):
            lapack.gesvd(dA, ds, dU, dVT)  # jobu="S", jobvt="A", as U and VT have these shapes
        print(s.round(6), ((U * s) @ VT).round(6)[:, 0])  # [4. 3.] [3. 0. 0.]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the algorithm does not converge. Source: LAPACK,
    xGESVD.

    See also: lapack.syevd, lapack.gels; lapacke.dgesvd, cusolver.dgesvd, rocsolver.dgesvd; docs/guide/lapack.md.
    """
    job = _job(A, s, U, VT, jobu, jobvt)
    need_uncaptured("lapack.gesvd", A, s, *(V for V in (U, VT) if V is not None))
    if 0 in A._shape:
        return
    need_finite("lapack.gesvd", A)
    vendor, (m, n) = vendor_of("lapack.gesvd", A), A._shape
    tall = [fit for fit in job.fits if not vendor.needs_tall or (m >= n if fit == "F" else n >= m)]
    if tall:
        _decompose(vendor, job._replace(fits=tall), A, s, U, VT)
        return
    # The library takes this shape only in the other order.
    order: Order = "C" if job.fits == ["F"] else "F"
    with rearranged(A, order) as copy, _beside(U, order) as u, _beside(VT, order) as vt:
        _decompose(vendor, _job(copy, s, u, vt, job.jobu, job.jobvt)._replace(fits=[order]), copy, s, u, vt)


@contextmanager
def _beside(V: DevicePtr | None, order: Order) -> Iterator[DevicePtr | None]:
    """Lend memory for vectors in another order.

    At the end of the block, the vectors are copied to V, unless the block fails.
    """
    if V is None:
        yield None
        return
    with offload_args(Scratch(V._shape, V.dtype, order=order), device=V.device) as (vectors,):
        yield vectors
        geam(1.0, vectors, 0.0, vectors, V)


def _decompose(
    vendor: Vendor, job: _Job, A: DevicePtr, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
) -> None:
    """Call the library for operands that were checked."""
    t, a, jobu, u, jobvt, vt, fits = job
    m, n = a.rows, a.columns
    written = {name: pointer_ for name, pointer_ in (("s", s), ("U", U), ("VT", VT)) if pointer_ is not None}
    if fits[0] == "F":
        info = vendor.gesvd(t, (jobu, jobvt), m, n, A, a.ld_f, s, *_given(U, u, 2, A), *_given(VT, vt, 2, A))
    else:  # A^T = VT^T diag(s) U^T
        info = vendor.gesvd(t, (jobvt, jobu), n, m, A, a.ld_c, s, *_given(VT, vt, 3, A), *_given(U, u, 3, A))
    if info:
        refuse("lapack.gesvd", _UNFOUND_VALUES.format(info=info), info, A=A, **written)


def _job(
    A: DevicePtr, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None, jobu: str | None, jobvt: str | None
) -> _Job:
    t = letter_of("lapack.gesvd", "A", A)
    a = matrix("lapack.gesvd", "A", A)
    m, n, k = a.rows, a.columns, min(a.rows, a.columns)
    vector("lapack.gesvd", "s", s, k, REAL_OF[t], "for A of that shape", "for A of that dtype")
    jobu, u = _vectors("U", U, "jobu", jobu, {"A": (m, m), "S": (m, k)}, A)
    jobvt, vt = _vectors("VT", VT, "jobvt", jobvt, {"A": (n, n), "S": (k, n)}, A)
    vendor_of("lapack.gesvd", A)
    fits = [order for order in ("F", "C") if all(g is None or g[2 + (order == "C")] for g in (a, u, vt))]
    if not fits:
        raise ArgumentError(
            'lapack.gesvd: A, U and VT need one order; make them with order="F", or A = np.asfortranarray(A)'
        )
    return _Job(t, a, jobu, u, jobvt, vt, fits)


def _vectors(
    operand: str,
    pointer: DevicePtr | None,
    option: str,
    job: str | None,
    shapes: dict[str, tuple[int, int]],
    A: DevicePtr,
) -> tuple[str, Matrix | None]:
    """Return the job and the geometry of U or VT.

    job: None stands for the job that fits the shape. shapes: {job: its shape}.
    """
    if job is not None:
        need_option("lapack.gesvd", option, job, (*shapes, "N"))
    if pointer is None:
        if job in shapes:
            remedy = f'or say {option}="N"'
            raise ArgumentError(f'lapack.gesvd: {operand} needs a DevicePtr for {option}="{job}", got None; {remedy}')
        return "N", None
    if job == "N":
        raise ArgumentError(f'lapack.gesvd: {operand} needs to be None for {option}="N", which makes no vectors')
    layout = matrix("lapack.gesvd", operand, pointer, like=A)
    fitting = [choice for choice, shape in shapes.items() if shape == (layout.rows, layout.columns)]
    if job in fitting or (job is None and fitting):
        return job or fitting[0], layout
    needed = " or ".join(f'{shape} for {option}="{choice}"' for choice, shape in shapes.items())
    raise ArgumentError(
        f"lapack.gesvd: {operand} has shape {pointer._shape}, needs {needed}, with A of shape {A._shape}"
        + (f'; got {option}="{job}"' if job else "")
    )


def _given(pointer: DevicePtr | None, matrix: Matrix | None, ld: int, A: DevicePtr) -> tuple[DevicePtr, int]:
    """Return the arguments of U or VT; without a matrix, the arguments of A, which the library then does not touch."""
    return (A, max(A._shape)) if pointer is None or matrix is None else (pointer, matrix[ld])
