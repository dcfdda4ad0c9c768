"""Condition numbers, estimated from factors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from .._operands import letter_of, need_option, need_uncaptured, square
from .._signatures import telling
from ..arguments import Scratch
from ..dtypes import newest
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import OTHER_TRIANGLE, first_zero
from ._vendors import vendor_of
from .cholesky import solve_triangular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["gecon", "pocon"]

_STEPS: Final = 5  # the most steps of the estimate, as in LAPACK

#: One solution with a triangle, as its uplo, trans and diag.
_Step = tuple[str, str, str]


@overload
def gecon(A: DevicePtr, anorm: float, *, norm: str = "1") -> float: ...
@overload
def gecon(A: DevicePtr, anorm: NDArray[Any], *, norm: str = "1") -> NDArray[np.float64]: ...
@telling
def gecon(A: DevicePtr, anorm: float | NDArray[Any], *, norm: str = "1") -> float | NDArray[np.float64]:
    """Estimate 1 / (|A| |A^-1|), the reciprocal of the condition number, from the factors of getrf.

    A: matrix of shape (n, n), as getrf left it, in any order.
    anorm: the norm of the matrix itself, before it was factored: numpy.linalg.norm(A, 1), or numpy.inf for "I".
    norm: "1" for the largest sum of absolute values of a column, "I" for the largest such sum of a row.

    A may be a stack (..., n, n). Then anorm and the returned array have the shape (...).

    The nearer the result is to 0, the more digits a solution loses. For a singular matrix, the result is 0. The
    estimate of |A^-1| is at most the true norm, and seldom less than a third of it.

        A, ipiv = np.array([[4.0, 1.0], [2.0, 3.0]]), np.empty(2, np.int32)
        size = np.linalg.norm(A, 1)
        with offload_args(A, ipiv) as (dA, dp):
            lapack.getrf(dA, dp)
            print(round(lapack.gecon(dA, size), 6))  # 0.333333

    Source: LAPACK, xGECON; this function computes the same estimate by triangular solves on the device.

    See also: lapack.getrf, lapack.pocon; lapacke.dtrtrs, cublas.dtrsm; docs/guide/lapack.md.
    """
    if isinstance(A, DevicePtr) and len(A._shape) > 2:
        return _of_stack("lapack.gecon", A, anorm, lambda A, anorm: gecon(A, anorm, norm=norm))
    t = letter_of("lapack.gecon", "A", A)
    need_option("lapack.gecon", "norm", norm, ("1", "I"))
    a = square("lapack.gecon", "A", A)
    if not a.ld_f:  # A^T was factored; its columns are the rows of A
        A, norm = A.T, "I" if norm == "1" else "1"
    forward: list[_Step] = [("L", "N", "U"), ("U", "N", "N")]
    backward: list[_Step] = [("U", "C", "N"), ("L", "C", "U")]
    return _reciprocal("lapack.gecon", t, A, anorm, *((forward, backward) if norm == "1" else (backward, forward)))


@overload
def pocon(A: DevicePtr, anorm: float, *, uplo: str = "U") -> float: ...
@overload
def pocon(A: DevicePtr, anorm: NDArray[Any], *, uplo: str = "U") -> NDArray[np.float64]: ...
@telling
def pocon(A: DevicePtr, anorm: float | NDArray[Any], *, uplo: str = "U") -> float | NDArray[np.float64]:
    """Estimate 1 / (|A| |A^-1|), the reciprocal of the condition number, from the factor of potrf.

    A: matrix of shape (n, n), as potrf left it, in any order.
    anorm: the norm of the matrix itself, before it was factored: numpy.linalg.norm(A, 1), which reads both triangles.
    uplo: the triangle that potrf factored.

    The estimate and stacks are as in gecon.

        A = np.array([[4.0, 2.0], [2.0, 5.0]])
        size = np.linalg.norm(A, 1)
        with offload_args(A) as (dA,):
            lapack.potrf(dA)
            print(round(lapack.pocon(dA, size), 6))  # 0.326531

    Source: LAPACK, xPOCON; this function computes the same estimate by triangular solves on the device.

    See also: lapack.potrf, lapack.gecon; lapacke.dtrtrs, cublas.dtrsm; docs/guide/lapack.md.
    """
    if isinstance(A, DevicePtr) and len(A._shape) > 2:
        return _of_stack("lapack.pocon", A, anorm, lambda A, anorm: pocon(A, anorm, uplo=uplo))
    t = letter_of("lapack.pocon", "A", A)
    need_option("lapack.pocon", "uplo", uplo, ("U", "L"))
    a = square("lapack.pocon", "A", A)
    if not a.ld_f:  # conj(A) was factored, which has A's norms
        A, uplo = A.T, OTHER_TRIANGLE[uplo]
    steps: list[_Step] = [(uplo, trans, "N") for trans in ("CN" if uplo == "U" else "NC")]
    return _reciprocal("lapack.pocon", t, A, anorm, steps, steps)


def _of_stack(
    name: str, A: DevicePtr, anorm: float | NDArray[Any], estimate: Callable[[DevicePtr, float], float]
) -> NDArray[np.float64]:
    """Return the estimate of each matrix of a stack; a single norm is used for all matrices."""
    newest(anorm, name)
    batch, sizes = A._shape[:-2], np.asarray(anorm, np.float64)
    if sizes.shape not in (batch, ()):
        raise ArgumentError(f"{name}: anorm has shape {sizes.shape}, needs {batch}, as the stack A of shape {A._shape}")
    estimates, sizes = np.empty(batch), np.broadcast_to(sizes, batch)
    for index in np.ndindex(*batch):
        estimates[index] = estimate(A[index], float(sizes[index]))
    return estimates


def _reciprocal(
    name: str, t: str, A: DevicePtr, anorm: float | NDArray[Any], forward: Sequence[_Step], backward: Sequence[_Step]
) -> float:
    """Return 1 / (anorm |M|_1) for the inverse M.

    The steps of `forward` multiply by M, and the steps of `backward` by M^H.
    """
    newest(anorm, name)
    size = float(anorm)
    if size < 0:
        raise ArgumentError(f"{name}: anorm needs to be a norm, at least 0, got {size}")
    vendor_of(name, A)
    need_uncaptured(name, A)
    n = A._shape[0]
    if not n:
        return 1.0
    if math.isnan(size):
        return math.nan
    if size == 0 or first_zero(A):
        return 0.0
    with offload_args(Scratch((n,), A.dtype), device=A.device) as (x,):

        def by(steps: Sequence[_Step]) -> Callable[[NDArray[Any]], NDArray[Any]]:
            def multiply(values: NDArray[Any]) -> NDArray[Any]:
                x.assign(values.astype(x.dtype))
                for uplo, trans, diag in steps:
                    solve_triangular(A, x, uplo, trans, diag)
                return x.to_host()

            return multiply

        with np.errstate(all="ignore"):
            estimate = _estimate(n, A.dtype, by(forward), by(backward))
            return float(1 / estimate / size) if not math.isnan(estimate) else math.nan


def _signs(values: NDArray[Any]) -> NDArray[Any]:
    """Return each element divided by its absolute value, and 1 for zeros."""
    sizes = np.abs(values)
    return np.where(sizes == 0, 1, values / np.where(sizes == 0, 1, sizes))


def _estimate(
    n: int,
    dtype: np.dtype[Any],
    multiply: Callable[[NDArray[Any]], NDArray[Any]],
    multiply_transposed: Callable[[NDArray[Any]], NDArray[Any]],
) -> float:
    """Return an estimate of |M|_1 from products with M and M^H, by Higham's algorithm, as LAPACK's xLACN2 does."""
    x = multiply(np.full(n, 1 / n, dtype))
    estimate = float(np.sum(np.abs(x)))
    if n == 1 or not math.isfinite(estimate):
        return estimate
    signs = _signs(x)
    sums = np.abs(multiply_transposed(signs))
    place = int(np.argmax(sums))
    for _ in range(_STEPS - 1):
        x = multiply((np.arange(n) == place).astype(dtype))
        before, estimate = estimate, float(np.sum(np.abs(x)))
        if estimate <= before or (dtype.kind == "f" and np.array_equal(_signs(x), signs)):
            estimate = max(estimate, before)
            break
        signs = _signs(x)
        sums = np.abs(multiply_transposed(signs))
        last, place = place, int(np.argmax(sums))
        if sums[last] == sums[place]:
            break
    alternating = (1 + np.arange(n) / (n - 1)) * np.where(np.arange(n) % 2, -1, 1)
    other = 2 * float(np.sum(np.abs(multiply(alternating.astype(dtype))))) / (3 * n)
    return max(estimate, other)
