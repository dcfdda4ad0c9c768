"""Linear systems, inverses and determinants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._operands import INT32
from .._signatures import telling
from ..display import shown
from ..dtypes import dtype_of
from ..errors import ArgumentError, ArgumentTypeError
from ..lapack._checks import by_columns
from ..lapack._stacks import diagonal, flat
from ..lapack._vendors import vendor_of
from ..lapack.least_squares import add_solution
from ._call import Call, Operand, Result, Spec, new
from ._stacks import (
    arrange,
    clear_triangles,
    factor,
    invert_factored,
    letter,
    matrices,
    refuse_first,
    set_identity,
    solve_factored,
    spread,
    stored,
)
from .spectral import singular_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..devices import Device
    from ..pointers import DevicePtr

__all__ = ["SlogdetResult", "cholesky", "det", "inv", "inverse", "lstsq", "slogdet", "solve"]

_PSEUDO = "; linalg.lstsq(a, np.eye(len(a)))[0] is its pseudoinverse"
_LSTSQ = "; linalg.lstsq solves singular systems"
_SINGULAR = "is singular: pivot {info} of its factor U is zero"


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value.

        result = linalg.slogdet(np.diag([1.0, -1.0]))
        print(result.sign, result.logabsdet)  # -1.0 0.0

    See also: linalg.slogdet; docs/guide/linalg.md.
    """

    sign: Any
    logabsdet: Any


@telling
def solve(a: Operand, b: Operand, *, device: Device | str | None = None) -> Result:
    """Return the solution x of a x = b, as numpy.linalg.solve does.

    a: matrix of shape (n, n), or a stack (..., n, n).
    b: vector of shape (n,), or right sides of shape (n, k), or a stack (..., n, k).
    device: the device that computes with arrays; None stands for the first GPU, or for the host without a GPU. Pointers
    are used on their device.

    A vector b is used for all matrices of a stack. The matrices of the result are in Fortran order.

        A, b = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([6.0, 8.0])
        print(linalg.solve(A, b).round(6))  # [1. 2.]

    Raises numpy.linalg.LinAlgError if a matrix is singular. Source: numpy.linalg.solve.

    See also: linalg.inv, linalg.lstsq, lapack.gesv; docs/guide/linalg.md.
    """
    call = Call("linalg.solve", device, "lapack.gesv with info=", a=a, b=b)
    *outer, n, _ = call.need_square("a")
    shape = call.shapes["b"]
    is_vector = len(shape) == 1
    if not shape or shape[0 if is_vector else -2] != n:
        remedy = "; b[..., None] has a column for each matrix" if shape == (*outer, n) else ""
        raise ArgumentError(
            f"linalg.solve: b has shape {shape}, needs {n} rows, as a of shape {call.shapes['a']} has{remedy}"
        )
    batch = call.broadcast(tuple(outer), () if is_vector else shape[:-2])
    # The result of a stack of systems with one vector is a stack of vectors.
    inner = (n,) if is_vector else shape[-2:]
    (x,), _ = call.run(_solve, Spec((*batch, *inner), call.dtype, "C" if is_vector else "F"))
    return call.wrapped("b", x)


def _solve(a: DevicePtr, b: DevicePtr, x: DevicePtr) -> None:
    name, is_vector = "linalg.solve", len(b._shape) == 1
    facts = stored(name, "a", a)
    factors = new(a, a._shape, a.dtype, "F" if facts.ld_f else "C")
    arrange(factors, a)
    batch = a._shape[:-2]
    # The infos of a stack stay on the device while its systems are solved, so that the host waits once.
    place = new(a, (math.prod(batch),), dtype_of(INT32)) if batch and 0 not in x._shape else None
    pivots, infos = factor(name, factors, place)
    if place is None:
        refuse_first(name, "a", batch, infos, _SINGULAR, _LSTSQ)
    if 0 in x._shape:
        return
    if is_vector:
        spread(x, b)
    elif b._shape == x._shape:
        arrange(x, b)
    else:
        for to, source in zip(matrices(x), matrices(b, x._shape[:-2]), strict=True):
            arrange(to, source)
    solve_factored(name, "N" if facts.ld_f else "T", factors, pivots, x[..., None] if is_vector else x)
    if place is not None:
        refuse_first(name, "a", batch, infos + place.to_host(), _SINGULAR, _LSTSQ)


@telling
def inv(a: Operand, *, device: Device | str | None = None) -> Result:
    """Return the inverse of a matrix, or of each matrix of a stack. To solve systems, `solve` is faster and more exact.

    a: matrix of shape (n, n), or a stack (..., n, n).
    device: as for solve.

        print(linalg.inv([[4.0, 1.0], [2.0, 3.0]]).round(6).tolist())  # [[0.3, -0.1], [-0.2, 0.4]]

    Raises numpy.linalg.LinAlgError if a matrix is singular. Source: numpy.linalg.inv.

    See also: linalg.solve, lapack.getrs; docs/guide/linalg.md.
    """
    call = Call("linalg.inv", device, "lapack.gesv with info=", a=a)
    shape = call.need_square()

    def work(a: DevicePtr, x: DevicePtr) -> None:
        inverse("linalg.inv", a, x)

    (x,), _ = call.run(work, Spec(shape, call.dtype, call.order_of("a")))
    return call.wrapped("a", x)


def inverse(name: str, a: DevicePtr, x: DevicePtr) -> None:
    """Set a stack x to the inverses of a's matrices."""
    stored(name, "a", a)
    factors = new(a, a._shape, a.dtype, "F" if stored(name, "a", x).ld_f else "C")
    arrange(factors, a)
    pivots, infos = factor(name, factors)
    refuse_first(name, "a", a._shape[:-2], infos, _SINGULAR, _PSEUDO)
    if invert_factored(name, factors, pivots, x):
        return
    set_identity(x)
    # Both stacks have the same order. In C order, the library reads the transposes, and (A^T)^-1 is (A^-1)^T.
    solve_factored(name, "N", factors, pivots, x)


@telling
def cholesky(a: Operand, /, *, upper: bool = False, device: Device | str | None = None) -> Result:
    """Return the Cholesky factor of a Hermitian positive definite matrix, or of each matrix of a stack.

    a: matrix of shape (n, n), or a stack (..., n, n); one triangle is read.
    upper: whether the upper triangle is read and returned, with a = U^H U, instead of the lower one, with a = L L^H.
    device: as for solve.

        print(linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]).round(6).tolist())  # [[2.0, 0.0], [1.0, 2.0]]

    Raises numpy.linalg.LinAlgError if a matrix is not positive definite. Source: numpy.linalg.cholesky.

    See also: linalg.solve, lapack.potrf; docs/guide/linalg.md.
    """
    call = Call("linalg.cholesky", device, "lapack.potrf with info=", a=a)
    shape = call.need_square()

    def work(a: DevicePtr, x: DevicePtr) -> None:
        _cholesky(a, x, "U" if upper else "L")

    (x,), _ = call.run(work, Spec(shape, call.dtype, call.order_of("a")))
    return call.wrapped("a", x)


def _cholesky(a: DevicePtr, x: DevicePtr, uplo: str) -> None:
    name = "linalg.cholesky"
    vendor, t = vendor_of(name, a), letter(a)
    stored(name, "a", a)
    arrange(x, a)
    if 0 in x._shape:
        return
    facts, whole = stored(name, "a", x), flat(x) if len(x._shape) > 2 else None
    # In C order, the library reads the transpose, conj(A), whose factor L^T or U^T is in the other triangle.
    order = by_columns(uplo, facts), facts.rows
    ld = facts.ld_f or facts.ld_c
    done = None if whole is None else vendor.potrf_batched(t, *order, whole, ld)
    infos = done
    if infos is None:
        infos = np.array([vendor.potrf(t, *order, part, ld) for part in matrices(x)], np.int32)
    why = "is not positive definite: its leading minor of order {info} is not"
    refuse_first(name, "a", a._shape[:-2], infos, why)
    clear_triangles(x, uplo)


@telling
def det(a: Operand, *, device: Device | str | None = None) -> Result:
    """Return the determinant of a matrix, or of each matrix of a stack, as numpy.linalg.det does.

    a: matrix of shape (n, n), or a stack (..., n, n).
    device: as for solve.

        print(round(float(linalg.det([[4.0, 1.0], [2.0, 3.0]])), 6))  # 10.0

    Source: numpy.linalg.det.

    See also: linalg.slogdet, linalg.inv; docs/guide/linalg.md.
    """
    call = Call("linalg.det", device, "lapack.getrf with info=", a=a)
    shape = call.need_square()

    def work(a: DevicePtr, x: DevicePtr) -> None:
        sign, log = _sign_and_log("linalg.det", a)
        with np.errstate(all="ignore"):
            x.assign((sign * np.exp(log)).astype(x.dtype))

    (x,), _ = call.run(work, Spec(shape[:-2], call.dtype))
    return call.scalar(x)


@telling
def slogdet(a: Operand, *, device: Device | str | None = None) -> SlogdetResult:
    """Return the sign and the logarithm of the absolute value of a determinant, as numpy.linalg.slogdet does.

    a: matrix of shape (n, n), or a stack (..., n, n).
    device: as for solve.

    A singular matrix has the sign 0 and the logarithm -inf.

        sign, log = linalg.slogdet(np.eye(3) * -10)
        print(sign, round(float(log), 6))  # -1.0 6.907755

    Source: numpy.linalg.slogdet.

    See also: linalg.det; docs/guide/linalg.md.
    """
    call = Call("linalg.slogdet", device, "lapack.getrf with info=", a=a)
    shape = call.need_square()

    def work(a: DevicePtr, sign: DevicePtr, log: DevicePtr) -> None:
        sign_value, log_value = _sign_and_log("linalg.slogdet", a)
        sign.assign(sign_value.astype(sign.dtype))
        log.assign(log_value.astype(log.dtype))

    (sign, log), _ = call.run(work, Spec(shape[:-2], call.dtype), Spec(shape[:-2], call.real))
    return SlogdetResult(call.scalar(sign), call.scalar(log))


def _sign_and_log(name: str, a: DevicePtr) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the signs and logarithms of a stack's determinants, from the diagonals of its factors."""
    batch, n = a._shape[:-2], a._shape[-1]
    facts = stored(name, "a", a)
    vendor_of(name, a)
    if 0 in a._shape:
        return np.ones(batch, a.dtype), np.zeros(batch)
    factors = new(a, a._shape, a.dtype, "F" if facts.ld_f else "C")
    arrange(factors, a)
    pivots, infos = factor(name, factors)
    # All factors of a stack come down by one copy.
    values = factors.to_host().diagonal(axis1=-2, axis2=-1) if batch else diagonal(factors).to_host()
    values = values.astype("D" if values.dtype.kind == "c" else "d")
    swaps = np.count_nonzero(pivots.to_host() != np.arange(1, n + 1), axis=-1)
    sizes = np.abs(values)
    with np.errstate(all="ignore"):
        each = values / sizes if values.dtype.kind == "c" else np.where(values < 0, -1, 1)
        signs = np.prod(np.where(sizes == 0, 1, each), axis=-1) * np.where(swaps % 2, -1, 1)
        logs = np.sum(np.log(sizes), axis=-1)
    singular = np.reshape(np.asarray(infos) > 0, batch)
    return np.where(singular, 0, signs), np.where(singular, -np.inf, logs)


@telling
def lstsq(
    a: Operand, b: Operand, rcond: float | None = None, *, device: Device | str | None = None
) -> tuple[Result, Result, np.int32, Result]:
    """Return the shortest x that minimizes |b - a x|, the sums of squared residuals, the rank and the singular values.

    a: matrix of shape (m, n), of any rank.
    b: vector of shape (m,), or right sides of shape (m, k).
    rcond: singular values of at most rcond times the largest count as zero; None stands for eps * max(m, n), and -1 for
    eps / 2.
    device: as for solve.

    The four results are x, the residuals, the rank of a, and the singular values of a. The residuals are empty unless a
    has full rank and more rows than columns. lstsq uses the singular values of a, as LAPACK's gelsd does.

        t = np.array([0.0, 1.0, 2.0, 3.0])
        x, residuals, rank, s = linalg.lstsq(np.vander(t, 2), np.array([1.0, 3.0, 5.0, 7.0]))
        print(x.round(6), rank)  # [2. 1.] 2

    Raises numpy.linalg.LinAlgError if a has NaN or infinity, or if the algorithm does not converge. Source:
    numpy.linalg.lstsq.

    See also: linalg.solve, linalg.svd, lapack.gels; docs/guide/linalg.md.
    """
    call = Call("linalg.lstsq", device, "lapack.geqrf, ormqr and blas.trsm", a=a, b=b)
    m, n = call.need_matrix("a")
    shape = call.shapes["b"]
    if len(shape) not in (1, 2):
        raise np.linalg.LinAlgError(f"linalg.lstsq: b has shape {shape}, and needs one or two dimensions")
    if shape[0] != m:
        raise np.linalg.LinAlgError(f"linalg.lstsq: Incompatible dimensions: b has {shape[0]} rows, a has {m}")
    eps = float(np.finfo(call.dtype).eps)
    if rcond is not None and not isinstance(rcond, (int, float, np.number)):
        raise ArgumentTypeError(f"linalg.lstsq: rcond needs a number or None, got {shown(rcond)}")
    limit = eps * max(m, n) if rcond is None else eps / 2 if rcond < 0 else float(rcond)
    order = "F" if m >= n else "C"

    def work(a: DevicePtr, b: DevicePtr, x: DevicePtr, s: DevicePtr) -> tuple[int, NDArray[Any] | None]:
        if len(b._shape) == 1:
            b, x = b[:, None], x[:, None]
        return _least_squares(a, b, x, s, limit)

    specs = Spec((n, *shape[1:]), call.dtype, order), Spec((min(m, n),), call.real)
    (x, s), (rank, left) = call.run(work, *specs)
    squares = np.empty(0, call.real) if left is None else left
    if call.on_device:
        with call.named():
            residuals = new(x, squares.shape, call.real)
        if left is not None and squares.size:
            residuals.assign(squares)
        return x, residuals, np.int32(rank), s
    return call.wrapped("b", x), call.wrapped("b", squares), np.int32(rank), s


def _least_squares(
    a: DevicePtr, b: DevicePtr, x: DevicePtr, s: DevicePtr, limit: float
) -> tuple[int, NDArray[Any] | None]:
    """Set x to the solution and s to the singular values.

    Return the rank, and the sums of squared residuals or None.
    """
    (m, n), nrhs, k = a._shape, b._shape[1], min(a._shape)
    name, order, rank = "linalg.lstsq", "F" if m >= n else "C", 0
    stored(name, "a", a)
    vendor_of(name, a)
    if 0 not in x._shape:
        x.fill(0)
    left = new(a, (m, nrhs), a.dtype, order)
    arrange(left, b)
    if k:
        U, VT = new(a, (m, k), a.dtype, order), new(a, (k, n), a.dtype, order)
        singular_vectors(name, a, U, s, VT)
        values = s.to_host()
        rank = int(np.count_nonzero(values > limit * values[0]))
    if rank and nrhs:
        add_solution(a, x, left, (U, values[:rank], VT), lambda: arrange(left, b))
    if rank < n or m <= n:
        return rank, None
    return rank, np.sum(np.abs(left.to_host()) ** 2, axis=0)
