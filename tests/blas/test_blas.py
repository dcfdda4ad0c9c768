"""The portable BLAS on every device: every function in every order and stride, for s, d, c and z."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from helpers import reference as ref
from helpers.vendor import CANARY, SHARES, Array, Cases, Operand, Routine, Turn, close_gemm, close_symm, number
from offload_args import Device, In, Out, Scratch, blas, offload_args, testing
from offload_args.errors import (
    ArgumentError,
    DirectionError,
    DTypeError,
)

CASES = Cases()

SHAPES = [(5, 3), (3, 6), (1, 4), (4, 1), (19, 17), (0, 3), (3, 0)]
SIZES = [0, 1, 4, 19]
VECTORS = ["plain", "step", "reversed", "row", "column", "backwards column"]
MATRICES = ["C", "F", "C part", "F part", "C view", "F view"]


class Portable:
    """The module of the functions under test, in the form for Routine."""

    module = blas

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_cublas = device.startswith("cuda")


def vector(values: Array, kind: str) -> Operand:
    """Make a vector from a pointer: all of an array, every second element, all backwards, a row, or a column."""
    n = len(values)
    part: Any = {
        "plain": (slice(0, n),),
        "step": (slice(1, 1 + 2 * n, 2),),
        "reversed": (slice(n, 0, -1) if n else slice(0, 0),),
        "row": (1, slice(2, 2 + n)),
        "column": (slice(1, 1 + n), 2),
        "backwards column": (slice(n, 0, -1) if n else slice(0, 0), 2),
    }[kind]
    shape = {"row": (3, n + 4), "column": (n + 2, 4), "backwards column": (n + 2, 4)}.get(kind, (2 * n + 3,))
    base = np.full(n or 1 if kind == "plain" else shape, CANARY, values.dtype)
    return Operand(values, base, part, base, part)


def matrix(values: Array, kind: str) -> Operand:
    """Make a matrix: all of an array, a part of a pointer to a larger array, or a part of an array."""
    m, n = values.shape
    slot = (slice(0, m), slice(0, n)) if len(kind) == 1 or not values.size else (slice(1, m + 1), slice(2, n + 2))
    grown = values.size and len(kind) > 1
    shape = (m + 3, n + 4) if grown else (max(m, 1), max(n, 1))
    base = np.full(shape, CANARY, values.dtype, order=kind[0])  # type: ignore[call-overload]
    if kind.endswith("view"):
        return Operand(values, base, slot, base[slot])
    return Operand(values, base, slot, base, slot)


def kinds(r: Routine, count: int) -> Iterator[tuple[str, str, Turn]]:
    """Yield the next `count` combinations of kinds of x and y with scalars."""
    for t in r.turns(count):
        yield VECTORS[r.turn % 6], VECTORS[r.turn // 6 % 6], t


def backwards(*vectors: Operand) -> bool:
    return any(len(v.values) > 1 and v.base[v.slot].strides[0] < 0 for v in vectors)


def attempt(r: Routine, case: str, refused: bool, *arguments: Any, **options: Any) -> bool:
    """Make the call, and return whether it was made.

    It may only be refused if `refused` is set, with a remedy, and without writing.
    """
    try:
        assert r(*arguments, **options) is None
    except ArgumentError as error:
        assert refused, f"{case}: {error}"
        assert f"blas.{r.name}: " in str(error)
        for operand in arguments:
            if isinstance(operand, Operand):
                operand.check(case)
        return False
    return True


def real_only(r: Routine, *arguments: Any, **options: Any) -> bool:
    """Return whether the dtype is complex; if it is, check that the call is refused."""
    if r.complex:
        forms = {"sbmv": "; hbmv takes", "spmv": "; hpmv takes", "spr": "; hpr takes", "spr2": "; hpr2 takes"}
        hint = forms.get(r.name, "$")
        with pytest.raises(DTypeError, match=rf"blas\.{r.name}: \w+ needs float32 or float64, got complex\d+{hint}"):
            r(*arguments, **options)
    return r.complex


# -- level 1 ----------------------------------------------------------------------------------------------------------
@CASES.of("axpy", letters="-")
def axpy(r: Routine) -> None:
    for n, (kind_x, kind_y, t) in r.each(SIZES, list(kinds(r, 36))):
        case = f"{n=} {kind_x=} {kind_y=} {t.alpha=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(t.given_alpha, x, y)
        r.close(y, ref.axpy(t.alpha, x.wide, y.wide), 2, ref.axpy(abs(t.alpha), abs(x.wide), abs(y.wide)), case)
        x.check(case)


@CASES.of("scal", letters="-")
def scal(r: Routine) -> None:
    for n, (kind, _, t) in r.each(SIZES, list(kinds(r, 18))):
        x = vector(r.values(n), kind)
        r(t.given_alpha, x)
        r.close(x, t.alpha * x.wide, 1, abs(t.alpha) * abs(x.wide), f"{n=} {kind=} {t.alpha=}")


@CASES.of("copy", "swap", letters="-")
def copy(r: Routine) -> None:
    for n, kind_x, kind_y in r.each(SIZES, VECTORS, VECTORS):
        case = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(x, y)
        assert np.array_equal(y.now(), x.values), case
        y.check(case, True)
        if r.name == "swap":
            assert np.array_equal(x.now(), y.values), case
        x.check(case, r.name == "swap")


@CASES.of("dot", "dotu", "dotc", letters="-")
def dot(r: Routine) -> None:
    if r.name == "dot" and r.complex:
        with pytest.raises(DTypeError, match=r"blas\.dot: x needs float32 or float64, got complex.*dotu and dotc"):
            r(vector(r.values(3), "plain"), vector(r.values(3), "plain"))
        return
    for n, kind_x, kind_y in r.each(SIZES, VECTORS, VECTORS):
        case = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        expected = ref.dot(x.wide, y.wide, r.name == "dotc")
        magnitude = ref.dot(abs(x.wide), abs(y.wide))
        got = r(x, y)
        assert isinstance(got, complex if r.complex else float)
        ref.assert_close(got, expected, n, magnitude, r.dtype, case)
        result = number(np.nan, r.dtype)
        assert r(x, y, result=result) is None
        ref.assert_close(result.now(), expected, n, magnitude, r.dtype, case)
        x.check(case)
        y.check(case)


@CASES.of("nrm2", "asum", letters="-")
def norms(r: Routine) -> None:
    function = ref.nrm2 if r.name == "nrm2" else ref.asum
    for n, kind in r.each(SIZES, VECTORS):
        x = vector(r.values(n), kind)
        expected = function(x.wide)
        ref.assert_close(r(x), expected, n, expected, r.real, f"{n=} {kind=}")
        result = number(np.nan, r.real)
        assert r(x, result=result) is None
        ref.assert_close(result.now(), expected, n, expected, r.real, f"{n=} {kind=}")


@CASES.of("iamax", "iamin", letters="-")
def extreme(r: Routine) -> None:
    for n, kind in r.each(SIZES, VECTORS):
        values = r.values(n)
        size = 4 if r.name == "iamax" else 0.0625
        if r.name == "iamin":
            values += 2
        if n > 1:
            values[[n // 2, n - 1]] = size, -size  # the first of these two has to be found
        x = vector(values, kind)
        if n == 0:
            with pytest.raises(ArgumentError, match=rf"blas\.{r.name}: x has shape \(0,\), needs at least one element"):
                r(x)
        elif backwards(x):
            with pytest.raises(
                ArgumentError, match=rf"blas\.{r.name}: x has a stride of -\d+ elements.*pass x\[::-1\]"
            ):
                r(x)
        else:
            find = np.argmax if r.name == "iamax" else np.argmin
            assert r(x) == find(ref.size1(values)) == n // 2, f"{n=} {kind=}"


@CASES.of("rot", letters="-")
def rot(r: Routine) -> None:
    for n, kind_x, kind_y in r.each(SIZES, VECTORS, VECTORS):
        case = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(x, y, 0.5, number(-0.75, r.real) if kind_x == "row" else -0.75)
        new_x, new_y = ref.rot(x.wide, y.wide, 0.5, -0.75)
        magnitude_x, magnitude_y = ref.rot(abs(x.wide), abs(y.wide), 0.5, 0.75, minus=1)
        r.close(x, new_x, 2, magnitude_x, case)
        r.close(y, new_y, 2, magnitude_y, case)


@CASES.of("rotg", letters="-")
def rotg(r: Routine) -> None:
    phase = np.exp(0.7j) if r.complex else 1
    for a, b in [(3, 4), (4, 3), (-1.5, 0.25), (0.25, -1.5), (2, 0), (0, 2), (0, 0)]:
        case = f"{a=} {b=}"
        a, b = r.dtype(a * phase), r.dtype(b)
        arguments = [number(a, r.dtype), number(b, r.dtype), number(np.nan, r.real), number(np.nan, r.dtype)]
        assert r(*arguments) is None
        new_a, new_b, c, s = (ref.wide(array.now()) for array in arguments)
        wide_a, wide_b, size = ref.wide(a), ref.wide(b), abs(a) + abs(b)
        ref.assert_close(c * wide_a + s * wide_b, new_a, 8, size, r.dtype, case)
        ref.assert_close(c * wide_b - np.conj(s) * wide_a, 0, 8, size, r.dtype, case)
        ref.assert_close(c * c + abs(s) ** 2, 1, 8, 1, r.dtype, case)
        if not r.complex:
            z = s if abs(a) > abs(b) or size == 0 else 1 / c if c else 1
            ref.assert_close(new_b, z, 8, abs(z), r.dtype, case)


@CASES.of("rotm", letters="-")
def rotm(r: Routine) -> None:
    if real_only(r, vector(r.values(3), "plain"), vector(r.values(3), "plain"), [0, 1, 1, 1, 1]):
        return
    for flag, n, kind_x, kind_y in r.each((-2, -1, 0, 1), SIZES, VECTORS, VECTORS):
        case = f"{flag=} {n=} {kind_x=} {kind_y=}"
        param = np.array([flag, 0.5, -0.75, 0.25, 1.5], r.dtype)
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(x, y, vector(param, "row") if kind_x == "row" else param.tolist())
        H = ref.rotm_matrix(ref.wide(param))
        new, magnitude = H @ [x.wide, y.wide], abs(H) @ [abs(x.wide), abs(y.wide)]
        r.close(x, new[0], 2, magnitude[0], case)
        r.close(y, new[1], 2, magnitude[1], case)


@CASES.of("rotmg", letters="-")
def rotmg(r: Routine) -> None:
    if real_only(r, *(number(1, r.dtype) for _ in range(4)), vector(r.nan(5), "plain")):
        return
    # d1, d2, x1, y1 with either weight greater, with nothing to zero, and with sizes that need scaling
    for numbers in [(2, 3, 1.5, 0.5), (1, 3, 0.5, 1.5), (2, 3, 1.5, 0), (1e-9, 3e-9, 0.5, 1.5)]:
        arguments, param = [number(raw_number, r.dtype) for raw_number in numbers], vector(r.nan(5), "row")
        assert r(*arguments, param) is None
        param.check(f"{numbers}", True)
        d1, d2, x1, y1 = (array.wide for array in arguments)
        new_d1, new_d2, new_x1, new_y1 = (ref.wide(array.now()) for array in arguments)
        assert new_y1 == y1
        H, before = ref.rotm_matrix(ref.wide(param.now())), np.array([x1, y1])
        ref.assert_close(H @ before, [new_x1, 0], 12, abs(H) @ abs(before), r.dtype, f"{numbers}")
        energy, weights = d1 * x1**2 + d2 * y1**2, np.array([[new_d1, 0], [0, new_d2]])
        ref.assert_close(new_d1 * new_x1**2, energy, 24, energy, r.dtype, f"{numbers}")
        ref.assert_close((H.T @ weights @ H)[0, 0], d1, 24, d1 + d2, r.dtype, f"{numbers}")


# -- level 2 ----------------------------------------------------------------------------------------------------------
@CASES.of("gemv", letters="-")
def gemv(r: Routine) -> None:
    for kind, trans, (m, n) in r.each(MATRICES, "NTC", SHAPES):
        for kind_x, kind_y, t in kinds(r, 3):
            case = f"{kind} {trans=} {m=} {n=} {kind_x=} {kind_y=} {t}"
            inner, outer = (n, m) if trans == "N" else (m, n)
            A, x = matrix(r.values(m, n), kind), vector(r.values(inner), kind_x)
            y = vector(r.values(outer) if inner == 0 else r.output(t.beta, outer), kind_y)
            refused = r.complex and trans == "C" and kind[0] == "C" and backwards(x, y)
            if not attempt(r, case, refused, t.given_alpha, A, x, t.given_beta, y, trans=trans):
                continue
            A.check(case)
            x.check(case)
            if inner == 0:
                continue
            expected = ref.gemv(t.alpha, A.wide, x.wide, t.beta, y.wide, trans)
            magnitude = ref.gemv(abs(t.alpha), abs(A.wide), abs(x.wide), abs(t.beta), abs(y.wide), trans)
            r.close(y, expected, inner, magnitude, case)


@CASES.of("ger", "gerc", letters="-")
def ger(r: Routine) -> None:
    for kind, (m, n) in r.each(MATRICES, SHAPES):
        for kind_x, kind_y, t in kinds(r, 6):
            case = f"{kind} {m=} {n=} {kind_x=} {kind_y=} {t}"
            A, x, y = matrix(r.values(m, n), kind), vector(r.values(m), kind_x), vector(r.values(n), kind_y)
            refused = r.complex and r.name == "gerc" and kind[0] == "C" and backwards(x, y)
            if not attempt(r, case, refused, t.given_alpha, x, y, A):
                continue
            expected = ref.ger(t.alpha, x.wide, y.wide, A.wide, r.name == "gerc")
            r.close(A, expected, 2, ref.ger(abs(t.alpha), abs(x.wide), abs(y.wide), abs(A.wide)), case)
            x.check(case)
            y.check(case)


@CASES.of("symv", "hemv", letters="-")
def symv(r: Routine) -> None:
    hermitian = r.name == "hemv"
    for kind, uplo, n in r.each(MATRICES, "UL", SIZES):
        for kind_x, kind_y, t in kinds(r, 6):
            case = f"{kind} {uplo=} {n=} {kind_x=} {kind_y=} {t}"
            A = matrix(r.half(n, uplo, hermitian), kind)
            x, y = vector(r.values(n), kind_x), vector(r.output(t.beta, n), kind_y)
            by_matrix = kind[0] == "C" if hermitian else not r.vendor.is_cublas
            refused = r.complex and by_matrix and backwards(x, y)
            if not attempt(r, case, refused, t.given_alpha, A, x, t.given_beta, y, uplo=uplo):
                continue
            S = ref.symmetric(A.wide, uplo, hermitian)
            expected = ref.gemv(t.alpha, S, x.wide, t.beta, y.wide)
            r.close(y, expected, n, ref.gemv(abs(t.alpha), abs(S), abs(x.wide), abs(t.beta), abs(y.wide)), case)
            A.check(case)
            x.check(case)


@CASES.of("trmv", "trsv", letters="-")
def triangular_vector(r: Routine) -> None:
    for kind, uplo, trans, diag, n in r.each(MATRICES, "UL", "NTC", "NU", SIZES):
        for kind_x, _, _ in kinds(r, 1):
            case = f"{kind} {uplo=} {trans=} {diag=} {n=} {kind_x=}"
            A, x = matrix(r.triangular(n, uplo, diag), kind), vector(r.values(n), kind_x)
            refused = r.complex and trans == "C" and kind[0] == "C" and backwards(x)
            if not attempt(r, case, refused, A, x, uplo=uplo, trans=trans, diag=diag):
                continue
            T, now = ref.op(ref.triangle(A.wide, uplo, diag), trans), ref.wide(x.now())
            if r.name == "trmv":
                ref.assert_close(now, T @ x.wide, n, abs(T) @ abs(x.wide), r.dtype, case)
            else:
                ref.assert_close(T @ now, x.wide, n, abs(T) @ abs(now), r.dtype, case)
            x.check(case, True)
            A.check(case)


@CASES.of("syr", "her", "syr2", "her2", letters="-")
def syr(r: Routine) -> None:
    hermitian, two = r.name.startswith("her"), r.name.endswith("2")
    for kind, uplo, n in r.each(MATRICES, "UL", SIZES):
        for kind_x, kind_y, t in kinds(r, 6):
            case = f"{kind} {uplo=} {n=} {kind_x=} {kind_y=} {t}"
            alpha, arguments = (t.alpha, t.given_alpha) if two or not hermitian else real_alpha(r, t)
            A = matrix(r.half(n, uplo, hermitian), kind)
            x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
            vectors = (x, y) if two else (x,)
            by_matrix = kind[0] == "C" if hermitian else not r.vendor.is_cublas
            refused = r.complex and by_matrix and backwards(*vectors)
            if not attempt(r, case, refused, arguments, *vectors, A, uplo=uplo):
                continue
            expected, magnitude = updated(alpha, A.wide, x, y, two, hermitian)
            r.close(A, expected, 3, magnitude, case, ref.in_triangle(n, uplo))
            for v in vectors:
                v.check(case)


def real_alpha(r: Routine, t: Turn) -> tuple[Any, Any]:
    """Return the real part of a turn's alpha, as a number and in the form for the call."""
    alpha = np.real(t.alpha)
    return alpha, number(alpha, r.real) if isinstance(t.given_alpha, Operand) else float(alpha)


def updated(alpha: Any, A: Array, x: Operand, y: Operand, two: bool, hermitian: bool) -> tuple[Array, Array]:
    """Return A after an update of rank one or two, and the magnitude to which errors are compared."""
    function: Any = ref.syr2 if two else ref.ger
    expected = function(alpha, x.wide, (y if two else x).wide, A, hermitian)
    return expected, function(abs(alpha), abs(x.wide), abs((y if two else x).wide), abs(A))


# -- level 2, bands and packed triangles ------------------------------------------------------------------------------
BANDS = ["F", "F part", "F view", "C"]


def refuses_band(kind: str, A: Operand) -> bool:
    """Return whether a band is refused because of C order; a single column, or a contiguous row, is accepted."""
    return kind == "C" and A.values.shape[0] > 1 and A.values.shape[1] > 1


@CASES.of("gbmv", letters="-")
def gbmv(r: Routine) -> None:
    shapes = [(5, 3), (3, 6), (1, 4), (4, 1), (9, 4), (4, 11), (19, 17), (0, 3), (3, 0)]
    for kind, trans, (m, n), (kl, ku) in r.each(BANDS, "NTC", shapes, [(1, 2), (2, 0), (0, 0), (0, 1), (5, 4)]):
        for kind_x, kind_y, t in kinds(r, 2):
            case = f"{kind} {trans=} {m=} {n=} {kl=} {ku=} {kind_x=} {kind_y=} {t}"
            inner, outer = (n, m) if trans == "N" else (m, n)
            dense = ref.band_of(r.values(m, n), kl, ku)
            ab = matrix(ref.banded(dense, kl, ku, "F", np.nan), kind)
            x, y = vector(r.values(inner), kind_x), vector(r.output(t.beta, outer), kind_y)
            arguments = (t.given_alpha, ab, x, t.given_beta, y)
            if not attempt(r, case, refuses_band(kind, ab), *arguments, kl=kl, ku=ku, trans=trans):
                continue
            ab.check(case)
            x.check(case)
            if inner == 0:
                continue
            wide = ref.wide(dense)
            expected = ref.gemv(t.alpha, wide, x.wide, t.beta, y.wide, trans)
            magnitude = ref.gemv(abs(t.alpha), abs(wide), abs(x.wide), abs(t.beta), abs(y.wide), trans)
            r.close(y, expected, inner, magnitude, case)


def triangles(r: Routine) -> list[tuple[str, str, int, int | None]]:
    """Return the tuples to try with a routine: kind, triangle, size, and number of further diagonals (None: packed)."""
    is_band = r.name[1] == "b"
    return r.each(BANDS if is_band else VECTORS, "UL", SIZES, (0, 1, 5) if is_band else (None,))


def stored(half: Array, uplo: str, k: int | None, kind: str) -> tuple[Operand, bool]:
    """Return a triangle, as a band or packed, and whether its layout is refused."""
    if k is None:
        ap = vector(ref.packed(half, uplo), kind)
        return ap, len(ap.values) > 1 and kind not in ("plain", "row")
    below, above = (0, k) if uplo == "U" else (k, 0)
    ab = matrix(ref.banded(ref.band_of(half, below, above), below, above, "F", np.nan), kind)
    return ab, refuses_band(kind, ab)


@CASES.of("sbmv", "hbmv", "spmv", "hpmv", letters="-")
def stored_symmetric(r: Routine) -> None:
    hermitian = r.name.startswith("h")
    for kind, uplo, n, k in triangles(r):
        for kind_x, kind_y, t in kinds(r, 3):
            case = f"{kind} {uplo=} {n=} {k=} {kind_x=} {kind_y=} {t}"
            half = r.half(n, uplo, hermitian)
            A, refused = stored(half, uplo, k, kind)
            x, y = vector(r.values(n), kind_x), vector(r.output(t.beta, n), kind_y)
            arguments = (t.given_alpha, A, x, t.given_beta, y)
            if (not hermitian and real_only(r, *arguments)) or not attempt(r, case, refused, *arguments, uplo=uplo):
                continue
            S = ref.symmetric(ref.wide(half), uplo, hermitian)
            S = S if k is None else ref.band_of(S, k, k)
            expected = ref.gemv(t.alpha, S, x.wide, t.beta, y.wide)
            r.close(y, expected, n, ref.gemv(abs(t.alpha), abs(S), abs(x.wide), abs(t.beta), abs(y.wide)), case)
            A.check(case)
            x.check(case)


@CASES.of("tbmv", "tbsv", "tpmv", "tpsv", letters="-")
def stored_triangular(r: Routine) -> None:
    for (kind, uplo, n, k), trans, diag in product(triangles(r), "NTC", "NU"):
        for kind_x, _, _ in kinds(r, 1):
            case = f"{kind} {uplo=} {trans=} {diag=} {n=} {k=} {kind_x=}"
            half = r.triangular(n, uplo, diag)
            A, refused = stored(half, uplo, k, kind)
            x = vector(r.values(n), kind_x)
            if not attempt(r, case, refused, A, x, uplo=uplo, trans=trans, diag=diag):
                continue
            T = ref.triangle(ref.wide(half), uplo, diag)
            T, now = ref.op(T if k is None else ref.band_of(T, k, k), trans), ref.wide(x.now())
            if r.name.endswith("mv"):
                ref.assert_close(now, T @ x.wide, n, abs(T) @ abs(x.wide), r.dtype, case)
            else:
                ref.assert_close(T @ now, x.wide, n, abs(T) @ abs(now), r.dtype, case)
            x.check(case, True)
            A.check(case)


@CASES.of("spr", "hpr", "spr2", "hpr2", letters="-")
def packed_update(r: Routine) -> None:
    hermitian, two = r.name.startswith("h"), r.name.endswith("2")
    for kind, uplo, n, k in triangles(r):
        for kind_x, kind_y, t in kinds(r, 6):
            case = f"{kind} {uplo=} {n=} {kind_x=} {kind_y=} {t}"
            alpha, arguments = (t.alpha, t.given_alpha) if two or not hermitian else real_alpha(r, t)
            half = r.half(n, uplo, hermitian)
            ap, refused = stored(half, uplo, k, kind)
            x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
            vectors = (x, y) if two else (x,)
            if not hermitian and real_only(r, arguments, *vectors, ap):
                continue
            if not attempt(r, case, refused, arguments, *vectors, ap, uplo=uplo):
                continue
            expected, magnitude = updated(alpha, ref.wide(half), x, y, two, hermitian)
            r.close(ap, ref.packed(expected, uplo), 3, ref.packed(magnitude, uplo), case)
            for v in vectors:
                v.check(case)


# -- level 3 ----------------------------------------------------------------------------------------------------------
def mixed(*kinds_of: str) -> bool:
    return len({kind[0] for kind in kinds_of}) > 1


@CASES.of("gemm", letters="-")
def gemm(r: Routine) -> None:
    shapes = [(4, 3, 5), (1, 5, 3), (5, 1, 1), (19, 23, 17), (0, 3, 4), (3, 4, 0)]
    axes = ("NTC", "NTC", shapes, MATRICES, MATRICES, MATRICES)
    for (trans_a, trans_b, (m, n, k), a, b, c), t in zip(r.some(250, *axes), r.turns(250), strict=False):
        case = f"{a=} {b=} {c=} {trans_a=} {trans_b=} {m=} {n=} {k=} {t}"
        A = matrix(r.values(*((m, k) if trans_a == "N" else (k, m))), a)
        B = matrix(r.values(*((k, n) if trans_b == "N" else (n, k))), b)
        C = matrix(r.output(t.beta, m, n), c)
        refused = r.complex and ((trans_a == "C" and mixed(a, c)) or (trans_b == "C" and mixed(b, c)))
        arguments = (t.given_alpha, A, B, t.given_beta, C)
        if not attempt(r, case, refused, *arguments, trans_a=trans_a, trans_b=trans_b):
            continue
        close_gemm(r, t, A, B, C, trans_a, trans_b, case)


def batch(values: Array, kind: str) -> Operand:
    """Make matrices in one array, without gaps, or as parts of a larger array in each dimension."""
    count, m, n = values.shape
    grown = values.size and len(kind) > 1
    shape = (count + 1, m + 3, n + 4) if grown else (max(count, 1), max(m, 1), max(n, 1))
    slot = (slice(0, count), slice(1, m + 1), slice(2, n + 2)) if grown else tuple(map(slice, values.shape))
    if kind[0] == "F":
        base = np.full((shape[0], *shape[:0:-1]), CANARY, values.dtype).transpose(0, 2, 1)
    else:
        base = np.full(shape, CANARY, values.dtype)
    return Operand(values, base, slot, base, slot)


@CASES.of("gemm_strided_batched", letters="-")
def gemm_strided_batched(r: Routine) -> None:
    shapes = [(3, 4, 3, 5), (2, 1, 5, 3), (4, 5, 1, 1), (1, 9, 7, 8), (0, 4, 3, 5), (3, 0, 3, 4), (3, 3, 4, 0)]
    axes = ("NTC", "NTC", shapes, "1n2", "1n2", ["C", "F", "C part", "F part"], ["C", "F", "C part", "F part"])
    for (trans_a, trans_b, (count, m, n, k), of_a, of_b, ab, c), t in zip(
        r.some(250, *axes), r.turns(250), strict=False
    ):
        case = f"{ab=} {c=} {of_a=} {of_b=} {trans_a=} {trans_b=} {count=} {m=} {n=} {k=} {t}"
        operands, wide = [], []
        for of, trans, shape in ((of_a, trans_a, (m, k)), (of_b, trans_b, (k, n))):
            shape = shape if trans == "N" else shape[::-1]
            values = r.values(count if of == "n" else 1, *shape)
            operands.append(matrix(values[0], ab) if of == "2" else batch(values, ab))
            wide.append(np.broadcast_to(ref.wide(values), (count, *shape)))
        C = batch(r.output(t.beta, count, m, n), c)
        refused = r.complex and "C" in trans_a + trans_b and mixed(ab, c)
        arguments = (t.given_alpha, *operands, t.given_beta, C)
        if not attempt(r, case, refused, *arguments, trans_a=trans_a, trans_b=trans_b):
            continue
        pairs = list(zip(*wide, C.wide, strict=True))
        expected = [ref.gemm(t.alpha, A, B, t.beta, c, trans_a, trans_b) for A, B, c in pairs]
        sizes = [ref.gemm(abs(t.alpha), abs(A), abs(B), abs(t.beta), abs(c), trans_a, trans_b) for A, B, c in pairs]
        r.close(C, np.reshape(expected, C.values.shape), k, np.reshape(sizes, C.values.shape), case)
        for operand in operands:
            operand.check(case)


def listed(r: Routine, operands: list[list[Operand]], call: Callable[..., None]) -> None:
    """Lend operands, and make a call with lists of pointers to them."""
    flat = [operand for operand_ in operands for operand in operand_]
    with offload_args(*[operand.lent for operand in flat], device=r.vendor.device) as pointers:
        passed = iter([operand.of(p) for operand, p in zip(flat, pointers, strict=True)])
        call(*[[next(passed) for _ in operand] for operand in operands])


@CASES.of("gemm_batched", letters="-")
def gemm_batched(r: Routine) -> None:
    shapes = [(3, 4, 3, 5), (2, 1, 5, 3), (1, 9, 7, 8), (3, 0, 3, 4), (3, 3, 4, 0)]
    axes = ("NTC", "NTC", shapes, (True, False), MATRICES, MATRICES, MATRICES)
    for (trans_a, trans_b, (count, m, n, k), alone, a, b, c), t in zip(r.some(200, *axes), r.turns(200), strict=False):
        case = f"{a=} {b=} {c=} {alone=} {trans_a=} {trans_b=} {count=} {m=} {n=} {k=} {t}"
        A = [matrix(r.values(*((m, k) if trans_a == "N" else (k, m))), a) for _ in range(1 if alone else count)]
        B = [matrix(r.values(*((k, n) if trans_b == "N" else (n, k))), b) for _ in range(count)]
        C = [matrix(r.output(t.beta, m, n), c) for _ in range(count)]

        def call(A: Any, B: Any, C: Any, t: Turn = t, options: Any = (trans_a, trans_b)) -> None:
            r.function(t.alpha, A, B, t.beta, C, trans_a=options[0], trans_b=options[1])

        try:
            listed(r, [A, B, C], call)
        except ArgumentError as error:
            conjugates = (trans_a == "C" and mixed(a, c)) or (trans_b == "C" and mixed(b, c))
            assert r.complex and conjugates, f"{case}: {error}"
            continue
        for i, product_of in enumerate(zip(A * count if alone else A, B, C, strict=True)):
            close_gemm(r, t, *product_of, trans_a, trans_b, f"{case} {i=}")


@CASES.of("trsm_batched", letters="-")
def trsm_batched(r: Routine) -> None:
    shapes = [(3, 4, 3), (2, 1, 5), (4, 5, 1), (1, 13, 11), (3, 0, 3)]
    axes = ("LR", "UL", "NTC", "NU", shapes, (True, False), MATRICES, MATRICES)
    for (side, uplo, trans, diag, (count, m, n), alone, a, b), t in zip(r.some(200, *axes), r.turns(200), strict=False):
        case = f"{a=} {b=} {alone=} {side=} {uplo=} {trans=} {diag=} {count=} {m=} {n=} {t}"
        A = [matrix(r.triangular(m if side == "L" else n, uplo, diag), a) for _ in range(1 if alone else count)]
        B = [matrix(r.values(m, n), b) for _ in range(count)]
        chosen = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}

        def call(A: Any, B: Any, t: Turn = t, chosen: Any = chosen) -> None:
            r.function(t.alpha, A, B, **chosen)

        try:
            listed(r, [A, B], call)
        except ArgumentError as error:
            assert r.complex and trans == "C" and mixed(a, b), f"{case}: {error}"
            continue
        for unsolved, solved in zip(A * count if alone else A, B, strict=True):
            T, X = ref.triangle(unsolved.wide, uplo, diag), ref.wide(solved.now())
            expected = t.alpha * solved.wide
            magnitude = ref.trmm(1, abs(T), abs(X), side, trans) + abs(expected)
            ref.assert_close(ref.trmm(1, T, X, side, trans), expected, len(T), magnitude, r.dtype, case)
            solved.check(case, True)
            unsolved.check(case)


@CASES.of("geam", letters="-")
def geam(r: Routine) -> None:
    shapes = [(4, 3), (1, 5), (5, 1), (19, 17), (0, 3), (3, 0)]
    axes = ("NTC", "NTC", shapes, MATRICES, MATRICES, MATRICES)
    for (trans_a, trans_b, shape, a, b, c), t in zip(r.some(250, *axes), r.turns(250), strict=False):
        case = f"{a=} {b=} {c=} {trans_a=} {trans_b=} {shape=} {t}"
        A = matrix(r.values(*(shape if trans_a == "N" else shape[::-1])), a)
        B = matrix(r.values(*(shape if trans_b == "N" else shape[::-1])), b)
        C = matrix(r.nan(*shape), c)
        refused = r.complex and ((trans_a == "C" and mixed(a, c)) or (trans_b == "C" and mixed(b, c)))
        arguments = (t.given_alpha, A, t.given_beta, B, C)
        if not attempt(r, case, refused, *arguments, trans_a=trans_a, trans_b=trans_b):
            continue
        terms = (t.alpha, ref.op(A.wide, trans_a)), (t.beta, ref.op(B.wide, trans_b))
        magnitude = sum(abs(factor) * abs(operand) for factor, operand in terms)
        r.close(C, sum(factor * operand for factor, operand in terms), 2, np.asarray(magnitude), case)
        A.check(case)
        B.check(case)


@CASES.of("dgmm", letters="-")
def dgmm(r: Routine) -> None:
    shapes = [(4, 3), (1, 5), (5, 1), (19, 17), (0, 3), (3, 0)]
    for side, (m, n), a, c, kind in r.some(250, "LR", shapes, MATRICES, MATRICES, VECTORS):
        case = f"{a=} {c=} {side=} {m=} {n=} {kind=}"
        A, x, C = matrix(r.values(m, n), a), vector(r.values(m if side == "L" else n), kind), matrix(r.nan(m, n), c)
        if not attempt(r, case, mixed(a, c), A, x, C, side=side):
            continue
        scales = x.wide[:, None] if side == "L" else x.wide
        r.close(C, scales * A.wide, 1, abs(scales * A.wide), case)
        A.check(case)
        x.check(case)


@CASES.of("symm", "hemm", letters="-")
def symm(r: Routine) -> None:
    hermitian = r.name == "hemm"
    shapes = [(4, 3), (1, 5), (5, 1), (19, 17), (0, 3)]
    for (side, uplo, (m, n), a, b, c), t in zip(
        r.some(250, "LR", "UL", shapes, MATRICES, MATRICES, MATRICES), r.turns(250), strict=False
    ):
        case = f"{a=} {b=} {c=} {side=} {uplo=} {m=} {n=} {t}"
        size = m if side == "L" else n
        A, B = matrix(r.half(size, uplo, hermitian), a), matrix(r.values(m, n), b)
        C = matrix(r.output(t.beta, m, n), c)
        refused = mixed(b, c) or (hermitian and r.complex and mixed(a, c))
        if not attempt(r, case, refused, t.given_alpha, A, B, t.given_beta, C, side=side, uplo=uplo):
            continue
        close_symm(r, t, A, B, C, side, uplo, hermitian, case)


@CASES.of("syrk", "herk", "syr2k", "her2k", letters="-")
def rank_k(r: Routine) -> None:
    hermitian, two = r.name.startswith("he"), r.name.endswith("2k")
    options = "NTC" if not r.complex else "NC" if hermitian else "NT"
    shapes = [(4, 5), (1, 3), (5, 1), (19, 17), (0, 4), (4, 0)]
    for (uplo, trans, (n, k), a, b, c), t in zip(
        r.some(250, "UL", options, shapes, MATRICES, MATRICES, MATRICES),
        r.turns(250, alpha_real=hermitian and not two, beta_real=hermitian),
        strict=False,
    ):
        case = f"{a=} {b=} {c=} {uplo=} {trans=} {n=} {k=} {t}"
        A, B = (matrix(r.values(*((n, k) if trans == "N" else (k, n))), kind) for kind in (a, b))
        C = matrix(r.one_triangle(t.beta, n, uplo, hermitian), c)
        refused = (two and mixed(a, b)) or (hermitian and r.complex and mixed(a, c))
        operands = (A, B) if two else (A,)
        if not attempt(r, case, refused, t.given_alpha, *operands, t.given_beta, C, uplo=uplo, trans=trans):
            continue
        function: Any = ref.syr2k if two else ref.syrk
        expected = function(t.alpha, *(o.wide for o in operands), t.beta, C.wide, trans, hermitian)
        sizes = [abs(o.wide) for o in operands]
        magnitude = function(abs(t.alpha), *sizes, abs(t.beta), abs(C.wide), trans)
        r.close(C, expected, 2 * k, magnitude, case, ref.in_triangle(n, uplo))
        for operand in operands:
            operand.check(case)


@CASES.of("trmm", "trsm", letters="-")
def triangular_matrix(r: Routine) -> None:
    shapes = [(4, 3), (1, 5), (5, 1), (13, 11), (0, 3)]
    for (side, uplo, trans, diag, (m, n), a, b), t in zip(
        r.some(250, "LR", "UL", "NTC", "NU", shapes, MATRICES, MATRICES), r.turns(250), strict=False
    ):
        case = f"{a=} {b=} {side=} {uplo=} {trans=} {diag=} {m=} {n=} {t}"
        size = m if side == "L" else n
        A, B = matrix(r.triangular(size, uplo, diag), a), matrix(r.values(m, n), b)
        refused = r.complex and trans == "C" and mixed(a, b)
        chosen = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
        if not attempt(r, case, refused, t.given_alpha, A, B, **chosen):
            continue
        T, now = ref.triangle(A.wide, uplo, diag), ref.wide(B.now())
        if r.name == "trmm":
            expected, got = ref.trmm(t.alpha, T, B.wide, side, trans), now
            magnitude = ref.trmm(abs(t.alpha), abs(T), abs(B.wide), side, trans)
        else:
            expected, got = t.alpha * B.wide, ref.trmm(1, T, now, side, trans)
            magnitude = ref.trmm(1, abs(T), abs(now), side, trans) + abs(expected)
        ref.assert_close(got, expected, size, magnitude, r.dtype, case)
        B.check(case, True)
        A.check(case)


@pytest.mark.later("host", "s", "z")
@SHARES
@pytest.mark.parametrize("letter", "sdcz")
@pytest.mark.parametrize("name", blas.__all__)
def test_every_function_agrees_with_higher_precision(device: str, name: str, letter: str, share: float) -> None:
    _, case = CASES[name]
    case(Routine(Portable(device), name, letter, share))


# -- bytes moved ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", "CF")
def test_gemv_with_beta_zero_moves_each_array_once(device: str, order: str) -> None:
    A = np.asarray(np.arange(15.0).reshape(3, 5), order=order)  # type: ignore[call-overload]
    x, y = np.ones(5), np.full(3, np.nan)
    before = Device(device).counters
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
    after = Device(device).counters
    assert np.array_equal(y, A.sum(axis=1))
    assert (after.copies_up - before.copies_up, after.bytes_up - before.bytes_up) == (2, A.nbytes + x.nbytes)
    assert (after.copies_down - before.copies_down, after.bytes_down - before.bytes_down) == (1, y.nbytes)
    assert after.calls - before.calls == 1


def test_chained_calls_make_no_round_trip(device: str) -> None:
    A, x = np.eye(4) * 2, np.arange(4.0)
    before = Device(device).counters
    with offload_args(In(A), x, Scratch(4), device=device) as (dA, dx, d_next):
        for _ in range(3):
            blas.gemv(1.0, dA, dx, 0.0, d_next)
            blas.copy(d_next, dx)
    after = Device(device).counters
    assert np.array_equal(x, 8 * np.arange(4.0))
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (2, 1)


def test_gemm_with_nothing_to_sum_over_scales(device: str) -> None:
    A, C = np.ones((3, 0)), np.arange(6.0).reshape(3, 2)
    with offload_args(A, np.ones((0, 2)), C, device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 2.0, dC)
        blas.gemm(1.0, dA[:1], dB, 0.0, dC[:1])
    assert np.array_equal(C, [[0, 0], [4, 6], [8, 10]])


@pytest.mark.promise("T26")
def test_rows_of_a_matrix_in_either_order_go_as_they_are(device: str) -> None:
    for order in ("C", "F"):
        A = np.asarray(np.arange(35.0).reshape(5, 7), order=order)  # type: ignore[call-overload]
        part, x, y = A[1:4, 2:], np.arange(5.0), np.zeros(3)
        before = Device(device).counters
        with offload_args(In(part), In(x), y, device=device) as (dA, dx, dy):
            assert (dA.shape, dA.strides, dA.ld) == ((3, 5), part.strides, 7 if order == "C" else 5)
            blas.gemv(1.0, dA, dx, 0.0, dy)
        assert Device(device).counters.bytes_up - before.bytes_up == part.nbytes + x.nbytes
        assert np.array_equal(y, part @ x)


@pytest.mark.promise("T32")
def test_nan_in_an_output_that_is_not_read_never_comes_out(device: str) -> None:
    A, x = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    y, strided, C = np.full(2, np.nan), np.full(5, np.nan), np.full((4, 4), np.nan)
    with offload_args(A, x, y, strided, C, device=device) as (dA, dx, dy, d_strided, dC):
        blas.gemv(1.0, dA, dx, 0.0, dy)
        blas.gemv(1.0, dA, dx, 0.0, d_strided[1:4:2])
        blas.gemm(1.0, dA, dA, 0.0, dC[:2, 1:3], trans_b="T")
        blas.syrk(1.0, dA, 0.0, dC[2:, :2], uplo="L")
    assert np.array_equal(y, [5, 14])
    assert np.array_equal(strided, [np.nan, 5, np.nan, 14, np.nan], equal_nan=True)
    expected = np.full((4, 4), np.nan)
    expected[:2, 1:3] = A @ A.T
    expected[2, 0], expected[3, :2] = 5, (14, 50)
    assert np.array_equal(C, expected, equal_nan=True)


@pytest.mark.promise("T32")
def test_a_call_that_writes_nothing_leaves_the_hosts_bytes(device: str) -> None:
    y, C = np.array([1.0, np.nan, 3.0]), np.full((3, 3), np.nan)
    before = C.tobytes(), y.tobytes()
    nothing = np.zeros((0, 3))
    with offload_args(nothing, np.zeros(0), y, C, device=device) as (d_nothing, dx, dy, dC):
        blas.gemv(1.0, d_nothing, dy, 0.0, dx)
        blas.axpy(1.0, dx, dy[:0])
        blas.gemm(1.0, d_nothing, dC, 0.0, dC[:0])
        blas.scal(2.0, dy[:0])
    assert (C.tobytes(), y.tobytes()) == before


# -- stored forms, orders and scalars ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_band_by_rows_is_passed_as_the_transpose(device: str, dtype: Any) -> None:
    m, n, kl, ku = 5, 4, 2, 1
    A = ref.band_of(np.arange(1, 1 + m * n).reshape(m, n).astype(dtype), kl, ku)
    rows, x, y = ref.banded(A, kl, ku, "C", np.nan), np.arange(1, n + 1).astype(dtype), np.zeros(m, dtype)
    assert rows.shape == (m, kl + ku + 1)
    with offload_args(In(np.ascontiguousarray(rows)), x, y, device=device) as (d_rows, dx, dy):
        blas.gbmv(1, d_rows.T, dx, 0, dy, kl=ku, ku=kl, trans="T")
    np.testing.assert_array_equal(y, A @ x)


def test_a_triangle_packed_by_rows_is_the_other_packed_by_columns(device: str) -> None:
    A = np.array([[2.0, 1, 3], [1, 5, 4], [3, 4, 7]])
    x, y, z = np.array([1.0, 2, 3]), np.zeros(3), np.array([1.0, 2, 3])
    with offload_args(A[np.triu_indices(3)], x, y, z, device=device) as (d_ap, dx, dy, dz):
        blas.spmv(1, d_ap, dx, 0, dy, uplo="L")
        blas.tpmv(d_ap, dz, uplo="L", trans="T")
    np.testing.assert_array_equal(y, A @ x)
    np.testing.assert_array_equal(z, np.triu(A) @ x)


def test_a_rotation_is_made_and_applied_on_the_device(device: str) -> None:
    rows, cs = np.array([[3.0, 1, 2], [4.0, 5, 6]]), np.zeros(2)
    expected = np.array([[0.6, 0.8], [-0.8, 0.6]]) @ rows
    ab = rows[:, 0].copy()
    with offload_args(rows, ab, cs, device=device) as (d_rows, d_ab, d_cs):
        blas.rotg(d_ab[:1], d_ab[1:], d_cs[:1], d_cs[1:])
        blas.rot(d_rows[0], d_rows[1], d_cs[:1], d_cs[1:])
    np.testing.assert_allclose(rows, expected, rtol=1e-15, atol=1e-14)
    np.testing.assert_allclose(ab[0], 5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_complex_vector_is_scaled_by_a_real_number_on_the_device(device: str, dtype: Any) -> None:
    x = np.array([1 + 2j, -3j, 4], dtype)
    real = np.array(-1.5, x.real.dtype)
    other = np.array(2.0, np.float64 if dtype == np.complex64 else np.float32)
    expected = x * real * np.array(0.5j, dtype)
    with offload_args(x, real, np.array(0.5j, dtype), other, device=device) as (dx, d_real, d_complex, d_other):
        blas.scal(d_real, dx[::-1])
        blas.scal(d_complex, dx)
        with pytest.raises(DTypeError, match=f"alpha needs a DevicePtr.{real.dtype.name}., got"):
            blas.scal(d_other, dx)
    np.testing.assert_allclose(x, expected)


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (1, 1)])
@pytest.mark.parametrize("order", "CF")
def test_a_single_row_or_column_is_taken_in_the_order_that_can_be_expressed(
    device: str, shape: tuple[int, int], order: Any
) -> None:
    m, n = shape
    A = np.array(np.arange(1, m * n + 1).reshape(shape) * (1 + 2j), order=order)
    for trans in "NTC":
        op = {"N": A, "T": A.T, "C": A.conj().T}[trans]
        x, y = np.arange(1, op.shape[1] + 1) * (2 - 1j), np.zeros(op.shape[0], complex)
        expected = op @ x
        with offload_args(A, x[::-1].copy(), y, device=device) as (dA, dx, dy):
            blas.gemv(1, dA, dx[::-1], 0, dy[::-1], trans=trans)
        np.testing.assert_allclose(y[::-1], expected)
    x, y = np.arange(1, m + 1) * (2 - 1j), np.arange(1, n + 1) * (1 + 1j)
    expected = A + np.outer(x, y.conj())
    with offload_args(A, x[::-1].copy(), y[::-1].copy(), device=device) as (dA, dx, dy):
        blas.gerc(1, dx[::-1], dy[::-1], dA)
    np.testing.assert_allclose(A, expected)


@pytest.mark.promise("T32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_a_host_zero_beside_a_scalar_on_the_device_is_a_zero(device: str, dtype: Any) -> None:
    A, x, alpha = np.ones((2, 3), dtype), np.ones(3, dtype), np.array(2, dtype)
    for zero in (0, 0.0, -0.0, np.float32(0)):
        y, C = np.full(2, np.nan, dtype), np.full((2, 2), np.nan, dtype)
        with (
            testing.counting(Device(device)) as moved,
            offload_args(A, x, alpha, Out(y), C, device=device) as (dA, dx, d_alpha, dy, dC),
        ):
            blas.gemv(d_alpha, dA, dx, zero, dy)
            blas.gemm(d_alpha, dA, dA, zero, dC, trans_b="T")
        assert (y == 6).all() and (C == 6).all()
        staged = 2
        assert moved.bytes_up == A.nbytes + x.nbytes + alpha.nbytes * (1 + staged)
    y = np.full(2, np.nan, dtype)
    zero_there = np.zeros((), dtype)
    with offload_args(A, x, alpha, Out(y), zero_there, device=device) as (dA, dx, d_alpha, dy, d_zero):
        for beta in (1, d_zero):
            with pytest.raises(DirectionError, match="y was lent as Out"):
                blas.gemv(d_alpha, dA, dx, beta, dy)
        blas.gemv(d_alpha, dA, dx, 0, dy)
