"""The portable BLAS: every function in every order and stride, of s, d, c and z, on every device; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import reference as ref
from vendor import CANARY, DTYPES, Array, Cases, Operand, Routine, Turn, number, run

import offload_args as package
from offload_args import Device, In, blas, offload_args
from offload_args.errors import (
    AliasError,
    ArgumentError,
    DirectionError,
    DTypeError,
    HostPointerError,
    StalePointerError,
    WrongDeviceError,
)

CASES = Cases()

SHAPES = [(5, 3), (3, 6), (1, 4), (4, 1), (19, 17), (0, 3), (3, 0)]
SIZES = [0, 1, 4, 19]
VECTORS = ["plain", "step", "reversed", "row", "column", "backwards column"]
MATRICES = ["C", "F", "C part", "F part", "C view", "F view"]


class Portable:
    """Where the functions under test are, as Routine wants it."""

    module = blas

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_cublas = device.startswith("cuda")


def vector(values: Array, kind: str) -> Operand:
    """A vector: all of an array, or every second element, all backwards, a row or a column, taken from a pointer."""
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
    """A matrix: all of an array, a part of a pointer to more, or a part of an array."""
    m, n = values.shape
    slot = (slice(0, m), slice(0, n)) if len(kind) == 1 or not values.size else (slice(1, m + 1), slice(2, n + 2))
    grown = values.size and len(kind) > 1
    shape = (m + 3, n + 4) if grown else (max(m, 1), max(n, 1))
    base = np.full(shape, CANARY, values.dtype, order=kind[0])  # type: ignore[call-overload]
    if kind.endswith("view"):
        return Operand(values, base, slot, base[slot])
    return Operand(values, base, slot, base, slot)


def kinds(r: Routine, count: int) -> Iterator[tuple[str, str, Turn]]:
    """The next `count` combinations of kinds of x and y with scalars."""
    for t in r.turns(count):
        yield VECTORS[r.turn % 6], VECTORS[r.turn // 6 % 6], t


def backwards(*vectors: Operand) -> bool:
    return any(len(v.values) > 1 and v.base[v.slot].strides[0] < 0 for v in vectors)


def attempt(r: Routine, what: str, refused: bool, *arguments: Any, **options: str) -> bool:
    """Make the call; True if it was made. It may be refused only if `refused`, with a remedy, and writes nothing then."""
    try:
        assert r(*arguments, **options) is None
    except ArgumentError as error:
        assert refused, f"{what}: {error}"
        assert f"blas.{r.name}: " in str(error)
        for operand in arguments:
            if isinstance(operand, Operand):
                operand.check(what)
        return False
    return True


# -- level 1 ----------------------------------------------------------------------------------------------------------
@CASES.of("axpy", letters="-")
def axpy(r: Routine) -> None:
    for n, (kind_x, kind_y, t) in product(SIZES, list(kinds(r, 36))):
        what = f"{n=} {kind_x=} {kind_y=} {t.alpha=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(t.given_alpha, x, y)
        r.close(y, ref.axpy(t.alpha, x.wide, y.wide), 2, ref.axpy(abs(t.alpha), abs(x.wide), abs(y.wide)), what)
        x.check(what)


@CASES.of("scal", letters="-")
def scal(r: Routine) -> None:
    for n, (kind, _, t) in product(SIZES, list(kinds(r, 18))):
        x = vector(r.values(n), kind)
        r(t.given_alpha, x)
        r.close(x, t.alpha * x.wide, 1, abs(t.alpha) * abs(x.wide), f"{n=} {kind=} {t.alpha=}")


@CASES.of("copy", "swap", letters="-")
def copy(r: Routine) -> None:
    for n, kind_x, kind_y in product(SIZES, VECTORS, VECTORS):
        what = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(x, y)
        assert np.array_equal(y.now(), x.values), what
        y.check(what, True)
        if r.name == "swap":
            assert np.array_equal(x.now(), y.values), what
        x.check(what, r.name == "swap")


@CASES.of("dot", "dotu", "dotc", letters="-")
def dot(r: Routine) -> None:
    if r.name == "dot" and r.complex:
        with pytest.raises(DTypeError, match=r"blas\.dot: x needs float32 or float64, got complex.*dotu and dotc"):
            r(vector(r.values(3), "plain"), vector(r.values(3), "plain"))
        return
    for n, kind_x, kind_y in product(SIZES, VECTORS, VECTORS):
        what = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        expected = ref.dot(x.wide, y.wide, r.name == "dotc")
        magnitude = ref.dot(abs(x.wide), abs(y.wide))
        got = r(x, y)
        assert isinstance(got, complex if r.complex else float)
        ref.assert_close(got, expected, n, magnitude, r.dtype, what)
        result = number(np.nan, r.dtype)
        assert r(x, y, result=result) is None
        ref.assert_close(result.now(), expected, n, magnitude, r.dtype, what)
        x.check(what)
        y.check(what)


@CASES.of("nrm2", "asum", letters="-")
def norms(r: Routine) -> None:
    function = ref.nrm2 if r.name == "nrm2" else ref.asum
    for n, kind in product(SIZES, VECTORS):
        x = vector(r.values(n), kind)
        expected = function(x.wide)
        ref.assert_close(r(x), expected, n, expected, r.real, f"{n=} {kind=}")
        result = number(np.nan, r.real)
        assert r(x, result=result) is None
        ref.assert_close(result.now(), expected, n, expected, r.real, f"{n=} {kind=}")


@CASES.of("iamax", letters="-")
def iamax(r: Routine) -> None:
    for n, kind in product(SIZES, VECTORS):
        values = r.values(n)
        if n > 1:
            values[[n // 2, n - 1]] = 4, -4  # the first is wanted
        x = vector(values, kind)
        if n == 0:
            with pytest.raises(ArgumentError, match=r"blas\.iamax: x has shape \(0,\), needs at least one element"):
                r(x)
        elif backwards(x):
            with pytest.raises(ArgumentError, match=r"blas\.iamax: x has a stride of -\d+ elements.*pass x\[::-1\]"):
                r(x)
        else:
            assert r(x) == np.argmax(ref.size1(values)) == n // 2, f"{n=} {kind=}"


@CASES.of("rot", letters="-")
def rot(r: Routine) -> None:
    for n, kind_x, kind_y in product(SIZES, VECTORS, VECTORS):
        what = f"{n=} {kind_x=} {kind_y=}"
        x, y = vector(r.values(n), kind_x), vector(r.values(n), kind_y)
        r(x, y, 0.5, number(-0.75, r.real) if kind_x == "row" else -0.75)
        new_x, new_y = ref.rot(x.wide, y.wide, 0.5, -0.75)
        magnitude_x, magnitude_y = ref.rot(abs(x.wide), abs(y.wide), 0.5, 0.75, minus=1)
        r.close(x, new_x, 2, magnitude_x, what)
        r.close(y, new_y, 2, magnitude_y, what)


# -- level 2 ----------------------------------------------------------------------------------------------------------
@CASES.of("gemv", letters="-")
def gemv(r: Routine) -> None:
    for kind, trans, (m, n) in product(MATRICES, "NTC", SHAPES):
        for kind_x, kind_y, t in kinds(r, 3):
            what = f"{kind} {trans=} {m=} {n=} {kind_x=} {kind_y=} {t}"
            inner, outer = (n, m) if trans == "N" else (m, n)
            A, x = matrix(r.values(m, n), kind), vector(r.values(inner), kind_x)
            y = vector(r.values(outer) if inner == 0 else r.output(t.beta, outer), kind_y)
            refused = r.complex and trans == "C" and kind[0] == "C" and backwards(x, y)
            if not attempt(r, what, refused, t.given_alpha, A, x, t.given_beta, y, trans=trans):
                continue
            A.check(what)
            x.check(what)
            if inner == 0:
                continue
            expected = ref.gemv(t.alpha, A.wide, x.wide, t.beta, y.wide, trans)
            magnitude = ref.gemv(abs(t.alpha), abs(A.wide), abs(x.wide), abs(t.beta), abs(y.wide), trans)
            r.close(y, expected, inner, magnitude, what)


@CASES.of("ger", "gerc", letters="-")
def ger(r: Routine) -> None:
    for kind, (m, n) in product(MATRICES, SHAPES):
        for kind_x, kind_y, t in kinds(r, 6):
            what = f"{kind} {m=} {n=} {kind_x=} {kind_y=} {t}"
            A, x, y = matrix(r.values(m, n), kind), vector(r.values(m), kind_x), vector(r.values(n), kind_y)
            refused = r.complex and r.name == "gerc" and kind[0] == "C" and backwards(x, y)
            if not attempt(r, what, refused, t.given_alpha, x, y, A):
                continue
            expected = ref.ger(t.alpha, x.wide, y.wide, A.wide, r.name == "gerc")
            r.close(A, expected, 2, ref.ger(abs(t.alpha), abs(x.wide), abs(y.wide), abs(A.wide)), what)
            x.check(what)
            y.check(what)


@CASES.of("symv", "hemv", letters="-")
def symv(r: Routine) -> None:
    hermitian = r.name == "hemv"
    for kind, uplo, n in product(MATRICES, "UL", SIZES):
        for kind_x, kind_y, t in kinds(r, 6):
            what = f"{kind} {uplo=} {n=} {kind_x=} {kind_y=} {t}"
            A = matrix(r.half(n, uplo, hermitian), kind)
            x, y = vector(r.values(n), kind_x), vector(r.output(t.beta, n), kind_y)
            by_matrix = kind[0] == "C" if hermitian else not r.vendor.is_cublas
            refused = r.complex and by_matrix and backwards(x, y)
            if not attempt(r, what, refused, t.given_alpha, A, x, t.given_beta, y, uplo=uplo):
                continue
            S = ref.symmetric(A.wide, uplo, hermitian)
            expected = ref.gemv(t.alpha, S, x.wide, t.beta, y.wide)
            r.close(y, expected, n, ref.gemv(abs(t.alpha), abs(S), abs(x.wide), abs(t.beta), abs(y.wide)), what)
            A.check(what)
            x.check(what)


@CASES.of("trmv", "trsv", letters="-")
def triangular_vector(r: Routine) -> None:
    for kind, uplo, trans, diag, n in product(MATRICES, "UL", "NTC", "NU", SIZES):
        for kind_x, _, _ in kinds(r, 1):
            what = f"{kind} {uplo=} {trans=} {diag=} {n=} {kind_x=}"
            A, x = matrix(r.triangular(n, uplo, diag), kind), vector(r.values(n), kind_x)
            refused = r.complex and trans == "C" and kind[0] == "C" and backwards(x)
            if not attempt(r, what, refused, A, x, uplo=uplo, trans=trans, diag=diag):
                continue
            T, now = ref.op(ref.triangle(A.wide, uplo, diag), trans), ref.wide(x.now())
            if r.name == "trmv":
                ref.assert_close(now, T @ x.wide, n, abs(T) @ abs(x.wide), r.dtype, what)
            else:
                ref.assert_close(T @ now, x.wide, n, abs(T) @ abs(now), r.dtype, what)
            x.check(what, True)
            A.check(what)


# -- level 3 ----------------------------------------------------------------------------------------------------------
def mixed(*kinds_of: str) -> bool:
    return len({kind[0] for kind in kinds_of}) > 1


@CASES.of("gemm", letters="-")
def gemm(r: Routine) -> None:
    shapes = [(4, 3, 5), (1, 5, 3), (5, 1, 1), (19, 23, 17), (0, 3, 4), (3, 4, 0)]
    axes = ("NTC", "NTC", shapes, MATRICES, MATRICES, MATRICES)
    for trans_a, trans_b, (m, n, k), a, b, c in r.some(400, *axes):
        for t in r.turns(1):
            what = f"{a=} {b=} {c=} {trans_a=} {trans_b=} {m=} {n=} {k=} {t}"
            A = matrix(r.values(*((m, k) if trans_a == "N" else (k, m))), a)
            B = matrix(r.values(*((k, n) if trans_b == "N" else (n, k))), b)
            C = matrix(r.output(t.beta, m, n), c)
            refused = r.complex and ((trans_a == "C" and mixed(a, c)) or (trans_b == "C" and mixed(b, c)))
            given = (t.given_alpha, A, B, t.given_beta, C)
            if not attempt(r, what, refused, *given, trans_a=trans_a, trans_b=trans_b):
                continue
            expected = ref.gemm(t.alpha, A.wide, B.wide, t.beta, C.wide, trans_a, trans_b)
            wides = abs(A.wide), abs(B.wide), abs(t.beta), abs(C.wide)
            r.close(C, expected, k, ref.gemm(abs(t.alpha), *wides, trans_a, trans_b), what)
            A.check(what)
            B.check(what)


@CASES.of("symm", "hemm", letters="-")
def symm(r: Routine) -> None:
    hermitian = r.name == "hemm"
    shapes = [(4, 3), (1, 5), (5, 1), (19, 17), (0, 3)]
    for side, uplo, (m, n), a, b, c in r.some(400, "LR", "UL", shapes, MATRICES, MATRICES, MATRICES):
        for t in r.turns(1):
            what = f"{a=} {b=} {c=} {side=} {uplo=} {m=} {n=} {t}"
            size = m if side == "L" else n
            A, B = matrix(r.half(size, uplo, hermitian), a), matrix(r.values(m, n), b)
            C = matrix(r.output(t.beta, m, n), c)
            refused = mixed(b, c) or (hermitian and r.complex and mixed(a, c))
            if not attempt(r, what, refused, t.given_alpha, A, B, t.given_beta, C, side=side, uplo=uplo):
                continue
            S = ref.symmetric(A.wide, uplo, hermitian)
            expected = ref.symm(t.alpha, S, B.wide, t.beta, C.wide, side)
            magnitude = ref.symm(abs(t.alpha), abs(S), abs(B.wide), abs(t.beta), abs(C.wide), side)
            r.close(C, expected, size, magnitude, what)
            A.check(what)
            B.check(what)


@CASES.of("syrk", "herk", "syr2k", "her2k", letters="-")
def rank_k(r: Routine) -> None:
    hermitian, two = r.name.startswith("he"), r.name.endswith("2k")
    options = "NTC" if not r.complex else "NC" if hermitian else "NT"
    shapes = [(4, 5), (1, 3), (5, 1), (19, 17), (0, 4), (4, 0)]
    for uplo, trans, (n, k), a, b, c in r.some(300, "UL", options, shapes, MATRICES, MATRICES, MATRICES):
        for t in r.turns(1, alpha_real=hermitian and not two, beta_real=hermitian):
            what = f"{a=} {b=} {c=} {uplo=} {trans=} {n=} {k=} {t}"
            A, B = (matrix(r.values(*((n, k) if trans == "N" else (k, n))), kind) for kind in (a, b))
            half = r.nan(n, n) if t.beta == 0 else r.half(n, uplo, hermitian)
            C = matrix(half, c)
            refused = (two and mixed(a, b)) or (hermitian and r.complex and mixed(a, c))
            operands = (A, B) if two else (A,)
            if not attempt(r, what, refused, t.given_alpha, *operands, t.given_beta, C, uplo=uplo, trans=trans):
                continue
            function: Any = ref.syr2k if two else ref.syrk
            expected = function(t.alpha, *(o.wide for o in operands), t.beta, C.wide, trans, hermitian)
            sizes = [abs(o.wide) for o in operands]
            magnitude = function(abs(t.alpha), *sizes, abs(t.beta), abs(C.wide), trans)
            r.close(C, expected, 2 * k, magnitude, what, ref.in_triangle(n, uplo))
            for operand in operands:
                operand.check(what)


@CASES.of("trmm", "trsm", letters="-")
def triangular_matrix(r: Routine) -> None:
    shapes = [(4, 3), (1, 5), (5, 1), (13, 11), (0, 3)]
    for side, uplo, trans, diag, (m, n), a, b in r.some(400, "LR", "UL", "NTC", "NU", shapes, MATRICES, MATRICES):
        for t in r.turns(1):
            what = f"{a=} {b=} {side=} {uplo=} {trans=} {diag=} {m=} {n=} {t}"
            size = m if side == "L" else n
            A, B = matrix(r.triangular(size, uplo, diag), a), matrix(r.values(m, n), b)
            refused = r.complex and trans == "C" and mixed(a, b)
            chosen = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
            if not attempt(r, what, refused, t.given_alpha, A, B, **chosen):
                continue
            T, now = ref.triangle(A.wide, uplo, diag), ref.wide(B.now())
            if r.name == "trmm":
                expected, got = ref.trmm(t.alpha, T, B.wide, side, trans), now
                magnitude = ref.trmm(abs(t.alpha), abs(T), abs(B.wide), side, trans)
            else:
                expected, got = t.alpha * B.wide, ref.trmm(1, T, now, side, trans)
                magnitude = ref.trmm(1, abs(T), abs(now), side, trans) + abs(expected)
            ref.assert_close(got, expected, size, magnitude, r.dtype, what)
            B.check(what, True)
            A.check(what)


@pytest.mark.parametrize("letter", "sdcz")
@pytest.mark.parametrize("name", blas.__all__)
def test_function(device: str, name: str, letter: str) -> None:
    _, case = CASES[name]
    case(Routine(Portable(device), name, letter))
