"""Tests of each routine of level 2."""

from __future__ import annotations

from itertools import product

import numpy as np

from helpers import reference as ref
from helpers.vendor import Array, Cases, Operand, Routine, ld, matrix, vector

CASES = Cases()

SHAPES = [(5, 3), (3, 5), (1, 4), (4, 1), (17, 13)]
SIZES = [0, 1, 4, 19]


def untouched_or_scaled(r: Routine, y: Operand, beta: complex, case: str) -> None:
    """Check that y is unchanged, as reference BLAS leaves it without terms, or multiplied by beta."""
    if y.now().tobytes() != y.values.tobytes():
        expected = ref.plus(np.zeros_like(y.wide), beta, y.wide)
        ref.assert_close(y.now(), expected, 1, abs(expected), r.dtype, case)
    y.check(case, True)


@CASES.of("{t}gemv")
def gemv(r: Routine) -> None:
    for (order, first), trans, (m, n) in r.each(r.vendor.orders, "NTC", [*SHAPES, (0, 3), (3, 0)]):
        for t in r.turns(4):
            case = f"{order} {trans=} {m=} {n=} {t}"
            inner, outer = (n, m) if trans == "N" else (m, n)
            A, x = matrix(r.values(m, n), order, t.layout), vector(r.values(inner), t.incx)
            y = vector(r.output(t.beta, outer), t.incy)
            r(*first, r.vendor.op[trans], m, n, t.given_alpha, A, ld(A), x, t.incx, t.given_beta, y, t.incy)
            if inner == 0:
                untouched_or_scaled(r, y, t.beta, case)
                continue
            expected = ref.gemv(t.alpha, A.wide, x.wide, t.beta, y.wide, trans)
            magnitude = ref.gemv(abs(t.alpha), abs(A.wide), abs(x.wide), abs(t.beta), abs(y.wide), trans)
            r.close(y, expected, inner, magnitude, case)
            A.check(case)
            x.check(case)


@CASES.of("{t}gbmv")
def gbmv(r: Routine) -> None:
    bands = [(1, 2), (2, 0), (0, 0), (0, 1)]
    for (order, first), trans, (m, n), (kl, ku) in r.each(r.vendor.orders, "NTC", [*SHAPES, (9, 4)], bands):
        if kl >= m or ku >= n:
            continue
        for t in r.turns(2):
            case = f"{order} {trans=} {m=} {n=} {kl=} {ku=} {t}"
            inner, outer = (n, m) if trans == "N" else (m, n)
            dense = ref.band_of(r.values(m, n), kl, ku)
            A = matrix(ref.banded(dense, kl, ku, order, np.nan), order, t.layout)
            x, y = vector(r.values(inner), t.incx), vector(r.output(t.beta, outer), t.incy)
            sizes = (m, n, kl, ku)
            r(*first, r.vendor.op[trans], *sizes, t.given_alpha, A, ld(A), x, t.incx, t.given_beta, y, t.incy)
            wide = ref.wide(dense)
            expected = ref.gemv(t.alpha, wide, x.wide, t.beta, y.wide, trans)
            magnitude = ref.gemv(abs(t.alpha), abs(wide), abs(x.wide), abs(t.beta), abs(y.wide), trans)
            r.close(y, expected, inner, magnitude, case)
            A.check(case)
            x.check(case)


@CASES.of("{t}ger", letters="sd")
@CASES.of("{t}geru", "{t}gerc", letters="cz")
def ger(r: Routine) -> None:
    for (order, first), (m, n) in r.each(r.vendor.orders, [*SHAPES, (0, 3), (3, 0)]):
        for t in r.turns(10):
            case = f"{order} {m=} {n=} {t}"
            A, x, y = matrix(r.values(m, n), order, t.layout), vector(r.values(m), t.incx), vector(r.values(n), t.incy)
            r(*first, m, n, t.given_alpha, x, t.incx, y, t.incy, A, ld(A))
            expected = ref.ger(t.alpha, x.wide, y.wide, A.wide, r.name.endswith("c"))
            r.close(A, expected, 2, ref.ger(abs(t.alpha), abs(x.wide), abs(y.wide), abs(A.wide)), case)
            x.check(case)
            y.check(case)


def stored(
    r: Routine, half: Array, uplo: str, order: str, k: int | None, layout: int
) -> tuple[Operand, tuple[int, ...]]:
    """Return a triangle in the routine's format (packed, a band of k diagonals, or plain), and its ld."""
    kind = r.name[1:]
    if kind.startswith(("sp", "hp", "tp")):
        return vector(ref.packed(half, uplo, order)), ()
    if k is not None:
        below, above = (0, k) if uplo == "U" else (k, 0)
        A = matrix(ref.banded(ref.band_of(half, below, above), below, above, order, np.nan), order, layout)
    else:
        A = matrix(half, order, layout)
    return A, (ld(A),)


def bands(r: Routine, n: int) -> list[int | None]:
    """Return the numbers of additional diagonals to test, which is [None] for a routine that takes no band."""
    return [k for k in (0, 1, 3) if k < max(n, 1)] if r.name[2] == "b" else [None]


@CASES.of("{t}symv")
@CASES.of("{t}hemv", "{t}hbmv", "{t}hpmv", letters="cz")
@CASES.of("{t}sbmv", "{t}spmv", letters="sd")
def symv(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    for (order, first), uplo, n in r.each(r.vendor.orders, "UL", SIZES):
        for k, t in product(bands(r, n), r.turns(4)):
            case = f"{order} {uplo=} {n=} {k=} {t}"
            half = r.half(n, uplo, hermitian)
            A, lda = stored(r, half, uplo, order, k, t.layout)
            x, y = vector(r.values(n), t.incx), vector(r.output(t.beta, n), t.incy)
            diagonals = () if k is None else (k,)
            arguments = (t.given_alpha, A, *lda, x, t.incx, t.given_beta, y, t.incy)
            r(*first, r.vendor.uplo[uplo], n, *diagonals, *arguments)
            S = ref.symmetric(ref.wide(half), uplo, hermitian)
            if k is not None:
                S = ref.band_of(S, k, k)
            expected = ref.gemv(t.alpha, S, x.wide, t.beta, y.wide)
            r.close(y, expected, n, ref.gemv(abs(t.alpha), abs(S), abs(x.wide), abs(t.beta), abs(y.wide)), case)
            A.check(case)
            x.check(case)


@CASES.of("{t}syr")
@CASES.of("{t}spr", letters="sd")
@CASES.of("{t}her", "{t}hpr", letters="cz")
def syr(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    for (order, first), uplo, n in r.each(r.vendor.orders, "UL", SIZES):
        for t in r.turns(8, alpha_real=hermitian):
            case = f"{order} {uplo=} {n=} {t}"
            half = r.half(n, uplo, hermitian)
            A, lda = stored(r, half, uplo, order, None, t.layout)
            x = vector(r.values(n), t.incx)
            r(*first, r.vendor.uplo[uplo], n, t.given_alpha, x, t.incx, A, *lda)
            expected = ref.ger(t.alpha, x.wide, x.wide, ref.wide(half), hermitian)
            magnitude = ref.ger(abs(t.alpha), abs(x.wide), abs(x.wide), abs(ref.wide(half)))
            compare_triangle(r, A, uplo, order, expected, magnitude, case)
            x.check(case)


@CASES.of("{t}syr2")
@CASES.of("{t}spr2", letters="sd")
@CASES.of("{t}her2", "{t}hpr2", letters="cz")
def syr2(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    for (order, first), uplo, n in r.each(r.vendor.orders, "UL", SIZES):
        for t in r.turns(8):
            case = f"{order} {uplo=} {n=} {t}"
            half = r.half(n, uplo, hermitian)
            A, lda = stored(r, half, uplo, order, None, t.layout)
            x, y = vector(r.values(n), t.incx), vector(r.values(n), t.incy)
            r(*first, r.vendor.uplo[uplo], n, t.given_alpha, x, t.incx, y, t.incy, A, *lda)
            expected = ref.syr2(t.alpha, x.wide, y.wide, ref.wide(half), hermitian)
            magnitude = ref.syr2(abs(t.alpha), abs(x.wide), abs(y.wide), abs(ref.wide(half)))
            compare_triangle(r, A, uplo, order, expected, magnitude, case)
            x.check(case)
            y.check(case)


def compare_triangle(
    r: Routine, A: Operand, uplo: str, order: str, expected: Array, magnitude: Array, case: str
) -> None:
    if A.values.ndim == 1:
        r.close(A, ref.packed(expected, uplo, order), 3, ref.packed(magnitude, uplo, order), case)
    else:
        r.close(A, expected, 3, magnitude, case, ref.in_triangle(len(expected), uplo))


@CASES.of("{t}trmv", "{t}trsv", "{t}tbmv", "{t}tbsv", "{t}tpmv", "{t}tpsv")
def triangular(r: Routine) -> None:
    for (order, first), uplo, trans, diag, n in r.each(r.vendor.orders, "UL", "NTC", "NU", SIZES):
        for k, t in product(bands(r, n), r.turns(1)):
            case = f"{order} {uplo=} {trans=} {diag=} {n=} {k=} {t.incx=}"
            half = r.triangular(n, uplo, diag)
            A, lda = stored(r, half, uplo, order, k, t.layout)
            x = vector(r.values(n), t.incx)
            diagonals = () if k is None else (k,)
            options = (r.vendor.uplo[uplo], r.vendor.op[trans], r.vendor.diag[diag])
            r(*first, *options, n, *diagonals, A, *lda, x, t.incx)
            T = ref.triangle(ref.wide(half), uplo, diag)
            if k is not None:
                T = ref.band_of(T, k, k)
            T = ref.op(T, trans)
            now = ref.wide(x.now())
            if r.name.endswith("mv"):
                ref.assert_close(now, T @ x.wide, n, abs(T) @ abs(x.wide), r.dtype, case)
            else:  # the solution of a nearby system (Higham, section 8.1)
                ref.assert_close(T @ now, x.wide, n, abs(T) @ abs(now), r.dtype, case)
            x.check(case, True)
            A.check(case)
