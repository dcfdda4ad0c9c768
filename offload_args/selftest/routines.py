"""Checks of portable BLAS: every routine in four dtypes and both orders of memory, against NumPy in wider precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import Device, blas, offload_args

__all__ = ["checks"]

Array: TypeAlias = NDArray[Any]

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
M, N, K = 29, 37, 23  # sizes that are not multiples of the size of a tile
UPLOS, SIDES, DIAGS = "UL", "LR", "NU"


class Case(NamedTuple):
    """One call: its operands on the host, the call with pointers to them, and each operand after it.

    An operand that is None in `after` must not change. `returned` is the value that the call returns, if any.
    """

    name: str
    operands: list[Array]
    call: Callable[..., Any]
    after: list[Any]
    returned: Any = None


def wide(a: Any) -> Array:
    """Return a copy in the widest dtype."""
    return np.asarray(a).astype(np.clongdouble if np.iscomplexobj(a) else np.longdouble)


def op(A: Array, trans: str) -> Array:
    return {"N": A, "T": A.T, "C": A.conj().T}[trans]


def kept(n: int, uplo: str) -> NDArray[np.bool_]:
    """Return a mask of the elements of a matrix that are in a triangle."""
    rows, columns = np.indices((n, n))
    inside: NDArray[np.bool_] = columns >= rows if uplo == "U" else columns <= rows
    return inside


def whole(A: Array, uplo: str, hermitian: bool) -> Array:
    """Return the symmetric or Hermitian matrix that one triangle of A holds."""
    T = np.where(kept(len(A), uplo), A, 0)
    diagonal = np.diag(np.diag(T).real if hermitian else np.diag(T))
    off = T - np.diag(np.diag(T))
    array: Array = diagonal + off + (off.conj().T if hermitian else off.T)
    return array


def triangle(A: Array, uplo: str, diag: str) -> Array:
    """Return the triangular matrix that one triangle of A holds."""
    T = np.where(kept(len(A), uplo), A, 0)
    if diag == "U":
        np.fill_diagonal(T, 1)
    return T


def packed(A: Array, uplo: str) -> Array:
    """Return one triangle as a vector of its columns."""
    n = len(A)
    return np.concatenate([A[: j + 1, j] if uplo == "U" else A[j:, j] for j in range(n)])


def banded(A: Array, kl: int, ku: int) -> Array:
    """Return the band of A, with one diagonal in each row, in Fortran order."""
    B = np.zeros((kl + ku + 1, A.shape[1]), A.dtype, order="F")
    for j in range(A.shape[1]):
        for i in range(max(0, j - ku), min(len(A), j + kl + 1)):
            B[ku + i - j, j] = A[i, j]
    return B


def within(A: Array, kl: int, ku: int) -> Array:
    """Return A with zeros outside of its band."""
    rows, columns = np.indices(A.shape)
    return np.where((columns - rows <= ku) & (rows - columns <= kl), A, 0)


class Numbers:
    """Random operands of one dtype; all matrices have one order."""

    def __init__(self, dtype: Any, order: str) -> None:
        self.dtype, self.order = np.dtype(dtype), order
        self.complex = self.dtype.kind == "c"
        self.random = np.random.default_rng(20)
        self.alpha = 0.5 - 1.25j if self.complex else -1.5
        self.beta = -0.75 + 0.25j if self.complex else 0.75
        self.ops = "NTC"

    def __call__(self, *shape: int) -> Array:
        values = self.random.uniform(-1, 1, shape)
        if self.complex:
            values = values + 1j * self.random.uniform(-1, 1, shape)
        return self.stored(values) if len(shape) == 2 else values.astype(self.dtype)

    def stored(self, values: Any) -> Array:
        """Return a matrix of the dtype and in the order."""
        order: Any = self.order
        array: Array = np.array(values, self.dtype, order=order)
        return array

    def solvable(self, n: int) -> Array:
        """Return a matrix with well-conditioned triangles."""
        A = self(n, n) / n
        A[np.diag_indices(n)] += 2
        return self.stored(A)


def level_1(r: Numbers) -> Iterator[Case]:
    x, y = r(N), r(N)
    wx, wy = wide(x), wide(y)
    yield Case("axpy", [x, y], partial(blas.axpy, r.alpha), [None, r.alpha * wx + wy])
    yield Case("scal", [x], partial(blas.scal, r.alpha), [r.alpha * wx])
    yield Case("copy", [x, y], blas.copy, [None, wx])
    yield Case("swap", [x, y], blas.swap, [wy, wx])
    yield Case("nrm2", [x], blas.nrm2, [None], np.sqrt((abs(wx) ** 2).sum()))
    sizes = abs(wx.real) + abs(wx.imag)
    yield Case("asum", [x], blas.asum, [None], sizes.sum())
    yield Case("iamax", [x], blas.iamax, [None], int(np.argmax(sizes)))
    yield Case("iamin", [x], blas.iamin, [None], int(np.argmin(sizes)))
    if r.complex:
        yield Case("dotu", [x, y], blas.dotu, [None, None], (wx * wy).sum())
        yield Case("dotc", [x, y], blas.dotc, [None, None], (wx.conj() * wy).sum())
    else:
        yield Case("dot", [x, y], blas.dot, [None, None], (wx * wy).sum())
        param = [-1.0, 0.5, -0.75, 0.25, 1.5]
        yield Case("rotm", [x, y], lambda x, y: blas.rotm(x, y, param), [0.5 * wx + 0.25 * wy, -0.75 * wx + 1.5 * wy])
    yield Case("rot", [x, y], lambda x, y: blas.rot(x, y, 0.6, 0.8), [0.6 * wx + 0.8 * wy, 0.6 * wy - 0.8 * wx])


def general(r: Numbers) -> Iterator[Case]:
    A = r(M, N)
    wA = wide(A)
    for trans in r.ops:
        x, y = (r(N), r(M)) if trans == "N" else (r(M), r(N))
        after = r.alpha * (op(wA, trans) @ wide(x)) + r.beta * wide(y)
        call = partial(blas.gemv, r.alpha, trans=trans)
        yield Case(f"gemv {trans}", [A, x, y], lambda A, x, y, call=call: call(A, x, r.beta, y), [None, None, after])
        band = banded(A, 3, 5)
        after = r.alpha * (op(within(wA, 3, 5), trans) @ wide(x)) + r.beta * wide(y)
        call = partial(blas.gbmv, r.alpha, kl=3, ku=5, trans=trans)
        yield Case(f"gbmv {trans}", [band, x, y], lambda A, x, y, call=call: call(A, x, r.beta, y), [None, None, after])
    x, y = r(M), r(N)
    for name, other in (("ger", wide(y)), ("gerc", wide(y).conj())):
        call = partial(getattr(blas, name), r.alpha)
        yield Case(name, [x, y, A], call, [None, None, wA + r.alpha * np.outer(wide(x), other)])


def symmetric_2(r: Numbers) -> Iterator[Case]:
    """Yield the calls of level 2 with symmetric matrices for real dtypes, or Hermitian matrices for complex dtypes."""
    h = r.complex
    names = ("hemv", "hbmv", "hpmv", "her", "her2", "hpr", "hpr2") if h else (
        "symv", "sbmv", "spmv", "syr", "syr2", "spr", "spr2")  # fmt: skip
    mv, bmv, pmv, update, two, p1, p2 = (getattr(blas, name) for name in names)
    A, x, y = r(N, N), r(N), r(N)
    A[np.diag_indices(N)] = A.diagonal().real
    wx, wy = wide(x), wide(y)
    for uplo in UPLOS:
        S = whole(wide(A), uplo, h)
        narrow = within(S, 4, 4)
        band = banded(within(A, 0, 4) if uplo == "U" else within(A, 4, 0), *((0, 4) if uplo == "U" else (4, 0)))
        ap = packed(A, uplo)
        for name, routine, operand, matrix in (
            (names[0], mv, A, S),
            (names[1], bmv, band, narrow),
            (names[2], pmv, ap, S),
        ):
            call = partial(routine, r.alpha, uplo=uplo)
            after = [None, None, r.alpha * (matrix @ wx) + r.beta * wy]
            yield Case(f"{name} {uplo}", [operand, x, y], lambda A, x, y, call=call: call(A, x, r.beta, y), after)
        ranks = {1: 0.5 * np.outer(wx, wx.conj()), 2: r.alpha * np.outer(wx, wy.conj())}
        ranks[2] = ranks[2] + ranks[2].conj().T if h else ranks[2] + ranks[2].T
        for name, routine, vectors, rank in ((names[3], update, [x], 1), (names[4], two, [x, y], 2)):
            new = np.where(kept(N, uplo), wide(A) + ranks[rank], wide(A))
            alpha = 0.5 if rank == 1 else r.alpha
            yield Case(f"{name} {uplo}", [*vectors, A], partial(routine, alpha, uplo=uplo), [None] * rank + [new])
        for name, routine, vectors, rank in ((names[5], p1, [x], 1), (names[6], p2, [x, y], 2)):
            alpha = 0.5 if rank == 1 else r.alpha
            new = packed(S + ranks[rank], uplo)
            yield Case(f"{name} {uplo}", [*vectors, ap], partial(routine, alpha, uplo=uplo), [None] * rank + [new])


def triangular_2(r: Numbers) -> Iterator[Case]:
    A, x = r.solvable(N), r(N)
    for uplo, trans, diag in product(UPLOS, r.ops, DIAGS):
        options: Any = {"uplo": uplo, "trans": trans, "diag": diag}
        options_text = f"{uplo}{trans}{diag}"
        T = triangle(wide(A), uplo, diag)
        below, above = (0, 4) if uplo == "U" else (4, 0)
        forms = (("tr", A, T), ("tb", banded(A, below, above), within(T, below, above)), ("tp", packed(A, uplo), T))
        for name, operand, matrix in forms:
            after = op(matrix, trans) @ wide(x)
            yield Case(
                f"{name}mv {options_text}", [operand, x], partial(getattr(blas, f"{name}mv"), **options), [None, after]
            )
            b = np.array(after, r.dtype)  # the solution is x
            yield Case(
                f"{name}sv {options_text}",
                [operand, b],
                partial(getattr(blas, f"{name}sv"), **options),
                [None, wide(x)],
            )


def products(r: Numbers) -> Iterator[Case]:
    """Yield the calls of level 3 without triangular matrices."""
    C = r(M, N)
    for trans_a, trans_b in product(r.ops, repeat=2):
        A = r(M, K) if trans_a == "N" else r(K, M)
        B = r(K, N) if trans_b == "N" else r(N, K)
        after = r.alpha * (op(wide(A), trans_a) @ op(wide(B), trans_b)) + r.beta * wide(C)
        call = partial(blas.gemm, r.alpha, trans_a=trans_a, trans_b=trans_b)
        case = [A, B, C], lambda A, B, C, call=call: call(A, B, r.beta, C), [None, None, after]
        yield Case(f"gemm {trans_a}{trans_b}", *case)
    B = r(M, N)
    for (name, h), side, uplo in product((("symm", False), ("hemm", True)), SIDES, UPLOS):
        A = r(M, M) if side == "L" else r(N, N)
        A[np.diag_indices(len(A))] = A.diagonal().real
        S = whole(wide(A), uplo, h)
        after = r.alpha * (S @ wide(B) if side == "L" else wide(B) @ S) + r.beta * wide(C)
        call = partial(getattr(blas, name), r.alpha, side=side, uplo=uplo)
        case = [A, B, C], lambda A, B, C, call=call: call(A, B, r.beta, C), [None, None, after]
        yield Case(f"{name} {side}{uplo}", *case)


def rank_k(r: Numbers) -> Iterator[Case]:
    C = r(N, N)
    C[np.diag_indices(N)] = C.diagonal().real
    for h, uplo, is_flipped in product((False, True), UPLOS, (False, True)):
        other = "C" if h else "T"
        trans = other if is_flipped else "N"
        A, B = (r(K, N), r(K, N)) if is_flipped else (r(N, K), r(N, K))
        left, right = (op(wide(operand), other) if is_flipped else wide(operand) for operand in (A, B))
        alpha, beta = (0.5, 0.75) if h else (r.alpha, r.beta)
        new = np.where(kept(N, uplo), alpha * (left @ op(left, other)) + beta * wide(C), wide(C))
        name = "herk" if h else "syrk"
        call = partial(getattr(blas, name), alpha, uplo=uplo, trans=trans)
        yield Case(f"{name} {uplo}{trans}", [A, C], lambda A, C, call=call, b=beta: call(A, b, C), [None, new])
        both = r.alpha * (left @ op(right, other))
        both = both + op(both, other)
        new = np.where(kept(N, uplo), both + beta * wide(C), wide(C))
        name = "her2k" if h else "syr2k"
        call = partial(getattr(blas, name), r.alpha, uplo=uplo, trans=trans)
        case = [A, B, C], lambda A, B, C, call=call, b=beta: call(A, B, b, C), [None, None, new]
        yield Case(f"{name} {uplo}{trans}", *case)


def triangular_3(r: Numbers) -> Iterator[Case]:
    B = r(M, N)
    for side, uplo, trans, diag in product(SIDES, UPLOS, r.ops, DIAGS):
        A = r.solvable(M if side == "L" else N)
        T = op(triangle(wide(A), uplo, diag), trans)
        options: Any = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
        options_text = f"{side}{uplo}{trans}{diag}"
        after = r.alpha * (T @ wide(B) if side == "L" else wide(B) @ T)
        yield Case(f"trmm {options_text}", [A, B], partial(blas.trmm, r.alpha, **options), [None, after])
        operand = r.stored(after)
        yield Case(f"trsm {options_text}", [A, operand], partial(blas.trsm, 1 / r.alpha, **options), [None, wide(B)])


def run(case: Case, device: Device, dtype: Any) -> None:
    """Make the call on copies of the operands. Raises AssertionError if an operand or the result is wrong."""
    operands = [operand.copy(order="K") for operand in case.operands]
    with offload_args(*operands, device=device) as pointers:
        returned = case.call(*pointers)
    most = 64 * (M + N) * float(np.finfo(dtype).eps)
    for i, (now, after, before) in enumerate(zip(operands, case.after, case.operands, strict=True), 1):
        if after is None:
            assert now.tobytes() == before.tobytes(), f"operand {i} has changed"
        else:
            _close(f"operand {i}", now, after, most)
    if case.returned is not None:
        _close("the result", returned, case.returned, most)


def _close(subject: str, now: Any, after: Any, most: float) -> None:
    off = float(np.max(np.abs(wide(now) - after))) / max(1.0, float(np.max(np.abs(after))))
    assert off <= most, f"{subject} is off by {off:.3g}, at most {most:.3g} is due to rounding"


GROUPS = (level_1, general, symmetric_2, triangular_2, products, rank_k, triangular_3)


def checks(device: Device) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the name of each check, and the check."""
    for dtype, order in product(DTYPES, "CF"):
        for group in GROUPS:
            for case in group(Numbers(dtype, order)):
                name = f"{case.name} {np.dtype(dtype).name} {order} order"
                yield name, partial(run, case, device, dtype)
