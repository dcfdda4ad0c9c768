"""The routines that take arrays of pointers: how each is tested."""

from __future__ import annotations

import numpy as np

from helpers import reference as ref
from helpers.vendor import FORMS, Cases, Routine, close_batch, ld, many, many_vectors

CASES = Cases()

SHAPES = [(3, 4, 3, 5), (2, 3, 6, 2), (4, 1, 5, 3), (3, 5, 1, 1), (2, 19, 23, 17), (2, 0, 3, 4), (2, 3, 0, 4)]
# Without the sum of no products cuBLAS may leave the result as it is, whatever beta is.
EMPTY_SUM = (2, 3, 4, 0)
SHAPES_2 = [(3, 4, 3), (2, 3, 6), (4, 1, 5), (3, 5, 1), (2, 21, 18), (40, 3, 2)]


@CASES.of("{t}gemm_batched", letters="sdczh")
@CASES.of("{t}gemm3m_batched", letters="c")
def gemm(r: Routine) -> None:
    for trans_a, trans_b, form, (count, m, n, k) in r.each("NTC", "NTC", FORMS, [*SHAPES, EMPTY_SUM]):
        shape_a, shape_b = ((m, k) if trans_a == "N" else (k, m)), ((k, n) if trans_b == "N" else (n, k))
        for t in r.turns(1):
            what = f"{trans_a=} {trans_b=} {form=} {count=} {m=} {n=} {k=} {t}"
            A = many(r.values(count, *shape_a), form, t.layout)
            B = many(r.values(count, *shape_b), FORMS[t.incx % 3], (t.layout + 1) % 3)
            C = many(r.output(t.beta, count, m, n), FORMS[t.incy % 3], (t.layout + t.incx) % 3)
            options = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k)
            r(*options, t.given_alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C), count)
            if k:
                close_batch(r, t, A, B, C, trans_a, trans_b, what, factor=4 if "3m" in r.name else 1)
            else:
                C.check(what, True)


@CASES.of("{t}gemv_batched")
def gemv(r: Routine) -> None:
    for trans, form, (count, m, n) in r.each("NTC", FORMS, SHAPES_2):
        read, written = (n, m) if trans == "N" else (m, n)
        for t in r.turns(2):
            what = f"{trans=} {form=} {count=} {m=} {n=} {t}"
            A = many(r.values(count, m, n), form, t.layout)
            x = many_vectors(r.values(count, read), FORMS[t.incx % 3], t.incx)
            y = many_vectors(r.output(t.beta, count, written), FORMS[t.incy % 3], t.incy)
            given = (t.given_alpha, A, ld(A), x, t.incx, t.given_beta, y, t.incy, count)
            r(r.vendor.op[trans], m, n, *given)
            expected, magnitude = y.wide, abs(y.wide)
            for i, (a, b, c) in enumerate(zip(A.wide, x.wide, y.wide, strict=True)):
                expected[i] = ref.gemv(t.alpha, a, b, t.beta, c, trans)
                magnitude[i] = ref.gemv(abs(t.alpha), abs(a), abs(b), abs(t.beta), abs(c), trans)
            r.close(y, expected, read, magnitude, what)
            A.check(what)
            x.check(what)


@CASES.of("{t}trsm_batched")
def trsm(r: Routine) -> None:
    for side, uplo, trans, diag, (count, m, n) in r.each("LR", "UL", "NTC", "NU", SHAPES_2):
        for t in r.turns(1):
            form = FORMS[t.layout]
            what = f"{side=} {uplo=} {trans=} {diag=} {form=} {count=} {m=} {n=} {t}"
            size = m if side == "L" else n
            halves = np.stack([r.triangular(size, uplo, diag) for _ in range(count)])
            A, B = many(halves, form, t.layout), many(r.values(count, m, n), FORMS[t.incx % 3], t.incy % 3)
            options = [r.vendor.side[side], r.vendor.uplo[uplo], r.vendor.op[trans], r.vendor.diag[diag]]
            r(*options, m, n, t.given_alpha, A, ld(A), B, ld(B), count)
            for i, (a, b, now) in enumerate(zip(A.wide, B.wide, ref.wide(B.now()), strict=True)):
                T = ref.triangle(a, uplo, diag)
                expected, got = t.alpha * b, ref.trmm(1, T, now, side, trans)
                magnitude = ref.trmm(1, abs(T), abs(now), side, trans) + abs(expected)
                ref.assert_close(got, expected, size, magnitude, r.dtype, f"{what} [{i}]")
            B.check(what, True)
            A.check(what)
