"""Least squares of any rank, by singular values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._operands import REAL_OF, letter_of, matrix, need_uncaptured, vector
from .._signatures import telling
from ..arguments import Scratch
from ..blas.extensions import dgmm, geam
from ..blas.gemm import gemm
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import as_columns, columns, need_finite, need_solvable
from ._copies import Order, need_apart, rearranged
from ._stacks import for_each
from ._vendors import vendor_of
from .spectral import gesvd

__all__ = ["add_solution", "gelsd"]


@telling
def gelsd(A: DevicePtr, B: DevicePtr, s: DevicePtr, *, rcond: float = -1.0) -> Any:
    """Find the least-squares solution X of A X = B with the least norm, set B to X, and return the rank of A.

    A: matrix of shape (m, n), of any rank, in any order; it is unchanged.
    B: matrix of shape (max(m, n), nrhs), or vector (max(m, n),); B[:m] is read, and B[:n] becomes X.
    s: vector of shape (k,) and the real dtype of A's precision, set to the singular values of A; k = min(m, n).
    rcond: singular values of at most rcond times the largest count as zero; a negative rcond stands for eps / 2.

    A may be a stack (..., m, n). Then B and s have the stack's dimensions before their own, and the ranks are returned
    as an array.

    If A has the rank n, and more rows than columns, the squares of the elements of a column below B[:n] add up to the
    square of |B - A X|; otherwise these elements are zeros.

        A, b, s = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), np.array([2.0, 4.0, 6.0]), np.empty(2)
        with offload_args(A, b, s) as (dA, db, ds):
            rank = lapack.gelsd(dA, db, ds, rcond=1e-9)
        print(rank, b[:2].round(6))  # 1 [2. 2.]

    Raises numpy.linalg.LinAlgError if A has NaN or infinity, or if the singular values do not converge. Source: LAPACK,
    xGELSD; this function calls gesvd.

    See also: lapack.gels, lapack.gesvd, linalg.lstsq; lapacke.dgesvd, cusolver.dgesvd, rocsolver.dgesvd;
    docs/guide/lapack.md.
    """
    name = "lapack.gelsd"
    if isinstance(A, DevicePtr) and len(A._shape) > 2:
        ranks: list[int] = []

        def solve(A: DevicePtr, B: DevicePtr, s: DevicePtr) -> None:
            ranks.append(0)
            ranks[-1] = gelsd(A, B, s, rcond=rcond)

        for_each(name, solve, A, {"B": B, "s": s}, ("s",), {})
        return np.array(ranks, np.int32).reshape(A._shape[:-2])
    t, a = letter_of(name, "A", A), matrix(name, "A", A)
    m, n, k = a.rows, a.columns, min(a.rows, a.columns)
    columns(name, "B", B, max(m, n), "for A of that shape", A)
    vector(name, "s", s, k, REAL_OF[t], "for A of that shape", "for A of that dtype")
    limit = float(rcond)
    if np.isnan(limit):
        raise ArgumentError(f"{name}: rcond needs to be a number, got nan; leave it out for the dtype's own precision")
    vendor_of(name, A)
    need_uncaptured(name, A, B, s)
    need_solvable(name, A, B)
    if not k:
        B.fill(0)
        return 0
    need_finite(name, A)
    if 0 not in B._shape:
        need_apart(name, "B", A, B)
    return _solve(A, as_columns(B), s, float(np.finfo(A.dtype).eps) / 2 if limit < 0 else limit)


def _solve(A: DevicePtr, B: DevicePtr, s: DevicePtr, limit: float) -> int:
    """Solve for operands that were checked."""
    (m, n), nrhs, k = A._shape, B._shape[1], min(A._shape)
    order: Order = "F" if m >= n else "C"  # the order that gesvd needs on NVIDIA GPUs
    factors = Scratch((m, k), A.dtype, order=order), Scratch((k, n), A.dtype, order=order)
    with offload_args(*factors, device=A.device) as (U, VT):
        with rearranged(A, order) as copy:
            gesvd(copy, s, U, VT)
        values = s.to_host()
        rank = int(np.count_nonzero(values > limit * values[0]))
        if not nrhs:
            return rank
        if not rank:
            B.fill(0)
            return rank
        with (
            offload_args(Scratch((n, nrhs), A.dtype, order=order), device=A.device) as (X,),
            rearranged(B[:m], order) as left,
        ):
            X.fill(0)
            add_solution(A, X, left, (U, values[:rank], VT), lambda: geam(1.0, B[:m], 0.0, B[:m], left))
            norms = np.linalg.norm(left.to_host(), axis=0) if rank == n < m else None
            geam(1.0, X, 0.0, X, B[:n])
            if n < m:
                B[n:].fill(0)
            if norms is not None:
                B[n].assign(norms.astype(A.dtype))
    return rank


def add_solution(
    A: DevicePtr,
    X: DevicePtr,
    left: DevicePtr,
    factors: tuple[DevicePtr, NDArray[Any], DevicePtr],
    restore: Callable[[], object],
) -> None:
    """Add the solution of least norm of A X = `left` to X, and set `left` to B - A X.

    factors: U of A, the singular values that do not count as zero, and VT of A. restore: sets `left` to B; before the
    call, `left` is B, too.
    """
    (U, values, VT), rank = factors, len(factors[1])
    order: Order = "F" if A._shape[0] >= A._shape[1] else "C"
    scratches = Scratch((rank, X._shape[1]), A.dtype, order=order), Scratch((rank,), A.dtype)
    with offload_args(*scratches, device=A.device) as (c, inverses):
        inverses.assign((1 / values).astype(A.dtype))
        for _ in range(2):  # the second iteration corrects rounding errors
            gemm(1.0, U[:, :rank], left, 0.0, c, trans_a="C")
            dgmm(c, inverses, c)
            gemm(1.0, VT[:rank], c, 1.0, X, trans_a="C")
            restore()
            gemm(-1.0, A, X, 1.0, left)
