"""Tests of each routine of level 3."""

from __future__ import annotations

import numpy as np

from helpers import reference as ref
from helpers.vendor import (
    CANARY,
    Array,
    Cases,
    Operand,
    Routine,
    batch,
    close_batch,
    close_gemm,
    close_symm,
    ld,
    matrix,
    number,
    vector,
)

CASES = Cases()

SHAPES = [(4, 3, 5), (3, 6, 2), (1, 5, 3), (5, 1, 1), (19, 23, 17), (0, 3, 4), (3, 0, 4), (3, 4, 0)]
SHAPES_2 = [(4, 3), (3, 6), (1, 5), (5, 1), (21, 18), (0, 3), (3, 0)]


@CASES.of("{t}gemm", letters="sdczh")
@CASES.of("{t}gemm3m", letters="cz")
def gemm(r: Routine) -> None:
    for (order, first), trans_a, trans_b, (m, n, k) in r.each(r.vendor.orders, "NTC", "NTC", SHAPES):
        for t in r.turns(2):
            case = f"{order} {trans_a=} {trans_b=} {m=} {n=} {k=} {t}"
            A = matrix(r.values(*((m, k) if trans_a == "N" else (k, m))), order, t.layout)
            B = matrix(r.values(*((k, n) if trans_b == "N" else (n, k))), order, (t.layout + 1) % 3)
            C = matrix(r.output(t.beta, m, n), order, (t.layout + t.incx) % 3)
            options = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k)
            r(*first, *options, t.given_alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C))
            # The errors of gemm3m are bounded by the sizes of real and imaginary parts together.
            close_gemm(r, t, A, B, C, trans_a, trans_b, case, factor=4 if r.name.endswith("3m") else 1)


@CASES.of("{t}gemmt", "{t}gemmtr")
def gemmt(r: Routine) -> None:
    for (order, first), uplo, trans_a, trans_b, (n, k, _) in r.each(r.vendor.orders, "UL", "NTC", "NTC", SHAPES):
        for t in r.turns(1):
            case = f"{order} {uplo=} {trans_a=} {trans_b=} {n=} {k=} {t}"
            A = matrix(r.values(*((n, k) if trans_a == "N" else (k, n))), order, t.layout)
            B = matrix(r.values(*((k, n) if trans_b == "N" else (n, k))), order, (t.layout + 1) % 3)
            C = matrix(r.one_triangle(t.beta, n, uplo, False), order, (t.layout + t.incx) % 3)
            options = (r.vendor.uplo[uplo], r.vendor.op[trans_a], r.vendor.op[trans_b], n, k)
            r(*first, *options, t.given_alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C))
            expected = ref.gemm(t.alpha, A.wide, B.wide, t.beta, C.wide, trans_a, trans_b)
            wides = abs(A.wide), abs(B.wide), abs(t.beta), abs(C.wide)
            magnitude = ref.gemm(abs(t.alpha), *wides, trans_a, trans_b)
            r.close(C, expected, k, magnitude, case, ref.in_triangle(n, uplo))
            A.check(case)
            B.check(case)


@CASES.of("{t}omatcopy")
def omatcopy(r: Routine) -> None:
    for (order, first), trans, (m, n) in r.each(r.vendor.orders, "NTCR", SHAPES_2):
        for t in r.turns(3):
            case = f"{order} {trans=} {m=} {n=} {t}"
            A = matrix(r.values(m, n), order, t.layout)
            B = matrix(r.nan(*((m, n) if trans in "NR" else (n, m))), order, (t.layout + 1) % 3)
            r(*first, r.vendor.op[trans], m, n, t.given_alpha, A, ld(A), B, ld(B))
            r.close(B, t.alpha * ref.op(A.wide, trans), 1, abs(t.alpha) * abs(ref.op(A.wide, trans)), case)
            A.check(case)


@CASES.of("{t}geadd")
def geadd(r: Routine) -> None:
    ops = "NT" if r.complex else "NTC"
    for (order, first), trans_a, trans_c, (m, n) in r.each(r.vendor.orders, ops, ops, SHAPES_2):
        for t in r.turns(2):
            case = f"{order} {trans_a=} {trans_c=} {m=} {n=} {t}"
            A = matrix(r.values(*((m, n) if trans_a == "N" else (n, m))), order, t.layout)
            C = matrix(r.values(*((m, n) if trans_c == "N" else (n, m))), order, (t.layout + 1) % 3)
            op = (r.vendor.op[trans_a], r.vendor.op[trans_c])
            r(*first, *op, m, n, t.given_alpha, A, ld(A), t.given_beta, C, ld(C))
            a, c = ref.op(A.wide, trans_a), ref.op(C.wide, trans_c)
            expected = ref.op(t.alpha * a + t.beta * c, trans_c)
            magnitude = ref.op(abs(t.alpha) * abs(a) + abs(t.beta) * abs(c), trans_c)
            r.close(C, expected, 2, magnitude, case)
            A.check(case)


def places(m: int, n: int, order: str, lead: int) -> Array:
    """Return the places of the elements of a matrix, counted from its first element."""
    i, j = np.indices((m, n))
    return 2 + (j * lead + i if order == "F" else i * lead + j)


@CASES.of("{t}imatcopy")
def imatcopy(r: Routine) -> None:
    shapes = [*SHAPES_2, (4, 4), (7, 7)]
    for (order, first), trans, (m, n), (pad, new_pad) in r.each(
        r.vendor.orders, "NTCR", shapes, [(0, 0), (2, 2), (0, 3), (4, 1)]
    ):
        for t in r.turns(2):
            case = f"{order} {trans=} {m=} {n=} {pad=} {new_pad=} {t}"
            rows, columns = (m, n) if trans in "NR" else (n, m)
            lead, new_lead = (m, rows) if order == "F" else (n, columns)
            before = places(m, n, order, max(lead, 1) + pad)
            after = places(rows, columns, order, max(new_lead, 1) + new_pad)
            needed = max(before.max(initial=2), after.max(initial=2)) - 1
            base = np.full(needed + 4, CANARY, r.dtype)
            A = Operand(r.values(m, n), base, before, base[2 : 2 + needed])
            r(*first, r.vendor.op[trans], m, n, t.given_alpha, A, max(lead, 1) + pad, max(new_lead, 1) + new_pad)
            expected = t.alpha * ref.op(A.wide, trans)
            ref.assert_close(base[after], expected, 1, abs(expected), r.dtype, case)
            others = np.setdiff1d(np.arange(base.size), [*before.flat, *after.flat])
            assert (base[others] == CANARY).all(), case


@CASES.of("{t}geam")
def geam(r: Routine) -> None:
    for (order, first), trans_a, trans_b, (m, n) in r.each(r.vendor.orders, "NTC", "NTC", SHAPES_2):
        for t in r.turns(2):
            case = f"{order} {trans_a=} {trans_b=} {m=} {n=} {t}"
            A = matrix(r.values(*((m, n) if trans_a == "N" else (n, m))), order, t.layout)
            B = matrix(r.values(*((m, n) if trans_b == "N" else (n, m))), order, (t.layout + 1) % 3)
            C = matrix(r.nan(m, n), order, (t.layout + t.incx) % 3)
            options = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n)
            r(*first, *options, t.given_alpha, A, ld(A), t.given_beta, B, ld(B), C, ld(C))
            a, b = ref.op(A.wide, trans_a), ref.op(B.wide, trans_b)
            r.close(C, t.alpha * a + t.beta * b, 3, abs(t.alpha) * abs(a) + abs(t.beta) * abs(b), case)
            A.check(case)
            B.check(case)


@CASES.of("{t}dgmm")
def dgmm(r: Routine) -> None:
    for (order, first), side, (m, n) in r.each(r.vendor.orders, "LR", SHAPES_2):
        for t in r.turns(4):
            case = f"{order} {side=} {m=} {n=} {t}"
            A, x = matrix(r.values(m, n), order, t.layout), vector(r.values(m if side == "L" else n), t.incx)
            C = matrix(r.nan(m, n), order, (t.layout + 1) % 3)
            r(*first, r.vendor.side[side], m, n, A, ld(A), x, t.incx, C, ld(C))
            expected = x.wide[:, None] * A.wide if side == "L" else A.wide * x.wide
            r.close(C, expected, 2, abs(expected), case)
            A.check(case)
            x.check(case)


@CASES.of("{t}tpttr", "{t}trttp")
def packing(r: Routine) -> None:
    for (order, first), uplo, n, layout in r.each(r.vendor.orders, "UL", [1, 2, 5, 19], [0, 1, 2]):
        case = f"{order} {uplo=} {n=} {layout=}"
        half = r.half(n, uplo)
        if r.name.endswith("tpttr"):
            packed, A = vector(ref.packed(half, uplo, order)), matrix(r.nan(n, n), order, layout)
            r(*first, r.vendor.uplo[uplo], n, packed, A, ld(A))
            inside = ref.in_triangle(n, uplo)
            assert (A.now()[inside] == half[inside]).all(), case
            A.check(case, inside)
            packed.check(case)
        else:
            packed, A = vector(r.nan(n * (n + 1) // 2)), matrix(half, order, layout)
            r(*first, r.vendor.uplo[uplo], n, A, ld(A), packed)
            assert (packed.now() == ref.packed(half, uplo, order)).all(), case
            packed.check(case, True)
            A.check(case)


@CASES.of("{t}gemm_strided_batched", letters="sdczh")
@CASES.of("{t}gemm3m_strided_batched", letters="c")
@CASES.of("{t}gemm_batch_strided")
def gemm_strided(r: Routine) -> None:
    shapes = [(3, *shape) for shape in SHAPES] + [(1, 4, 3, 5), (0, 4, 3, 5), (7, 2, 2, 2)]
    for (order, first), trans_a, trans_b, (count, m, n, k) in r.each(r.vendor.orders, "NTC", "NTC", shapes):
        shape_a, shape_b = ((m, k) if trans_a == "N" else (k, m)), ((k, n) if trans_b == "N" else (n, k))
        for t in r.turns(2):
            case = f"{order} {trans_a=} {trans_b=} {count=} {m=} {n=} {k=} {t}"
            A, lda, stride_a = batch(r.values(count, *shape_a), order, t.layout)
            B, ldb, stride_b = batch(r.values(count, *shape_b), order, (t.layout + 1) % 3)
            C, ldc, stride_c = batch(r.output(t.beta, count, m, n), order, (t.layout + t.incx) % 3)
            options = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, t.given_alpha, A, lda, stride_a)
            r(*first, *options, B, ldb, stride_b, t.given_beta, C, ldc, stride_c, count)
            close_batch(r, t, A, B, C, trans_a, trans_b, case, factor=4 if "3m" in r.name else 1)


@CASES.of("{t}gemv_strided_batched")
def gemv_strided(r: Routine) -> None:
    shapes = [(3, 4, 3), (3, 3, 6), (2, 1, 5), (2, 5, 1), (0, 4, 3), (4, 0, 3), (4, 3, 0)]
    for (order, first), trans, (count, m, n) in r.each(r.vendor.orders, "NTC", shapes):
        read, written = (n, m) if trans == "N" else (m, n)
        for t in r.turns(2):
            case = f"{order} {trans=} {count=} {m=} {n=} {t}"
            A, lda, stride_a = batch(r.values(count, m, n), order, t.layout)
            x, _, stride_x = batch(r.values(count, read, 1), "F", (t.layout + 1) % 3, t.incx)
            y, _, stride_y = batch(r.output(t.beta, count, written, 1), "F", (t.layout + 2) % 3, t.incy)
            arguments = (t.given_alpha, A, lda, stride_a, x, t.incx, stride_x, t.given_beta, y, t.incy, stride_y, count)
            r(*first, r.vendor.op[trans], m, n, *arguments)
            if m and n:
                close_batch(r, t, A, x, y, trans, "N", case)
            else:  # cuBLAS does not multiply y by beta
                y.check(case)


@CASES.of("{t}symm")
@CASES.of("{t}hemm", letters="cz")
def symm(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    for (order, first), side, uplo, (m, n) in r.each(r.vendor.orders, "LR", "UL", SHAPES_2):
        for t in r.turns(4):
            case = f"{order} {side=} {uplo=} {m=} {n=} {t}"
            size = m if side == "L" else n
            A = matrix(r.half(size, uplo, hermitian), order, t.layout)
            B = matrix(r.values(m, n), order, (t.layout + 1) % 3)
            C = matrix(r.output(t.beta, m, n), order, (t.layout + t.incx) % 3)
            options = (r.vendor.side[side], r.vendor.uplo[uplo], m, n)
            r(*first, *options, t.given_alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C))
            close_symm(r, t, A, B, C, side, uplo, hermitian, case)


@CASES.of("{t}syrk")
@CASES.of("{t}herk", letters="cz")
def syrk(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    options = "NC" if hermitian else "NT" if r.complex else "NTC"
    for (order, first), uplo, trans, (n, k, _) in r.each(r.vendor.orders, "UL", options, SHAPES):
        for t in r.turns(4, alpha_real=hermitian, beta_real=hermitian):
            case = f"{order} {uplo=} {trans=} {n=} {k=} {t}"
            A = matrix(r.values(*((n, k) if trans == "N" else (k, n))), order, t.layout)
            C = matrix(r.one_triangle(t.beta, n, uplo, hermitian), order, (t.layout + t.incx) % 3)
            arguments = (t.given_alpha, A, ld(A), t.given_beta, C, ld(C))
            r(*first, r.vendor.uplo[uplo], r.vendor.op[trans], n, k, *arguments)
            expected = ref.syrk(t.alpha, A.wide, t.beta, C.wide, trans, hermitian)
            magnitude = ref.syrk(abs(t.alpha), abs(A.wide), abs(t.beta), abs(C.wide), trans)
            r.close(C, expected, k, magnitude, case, ref.in_triangle(n, uplo))
            A.check(case)


@CASES.of("{t}syr2k", "{t}syrkx")
@CASES.of("{t}her2k", "{t}herkx", letters="cz")
def syr2k(r: Routine) -> None:
    hermitian = r.name[1] == "h"
    one_product = r.name.endswith("kx")
    options = "NC" if hermitian else "NT" if r.complex else "NTC"
    for (order, first), uplo, trans, (n, k, _) in r.each(r.vendor.orders, "UL", options, SHAPES):
        for t in r.turns(4, alpha_real=hermitian and one_product, beta_real=hermitian):
            case = f"{order} {uplo=} {trans=} {n=} {k=} {t}"
            A = matrix(r.values(*((n, k) if trans == "N" else (k, n))), order, t.layout)
            values = r.values(*A.values.shape)
            if one_product:  # the product must be symmetric, so B is A scaled by a real diagonal
                scale = r.random.integers(-4, 5, k).astype(r.real)
                values = A.values * (scale if trans == "N" else scale[:, None])
            B = matrix(values, order, (t.layout + 1) % 3)
            alpha = t.given_alpha
            if hermitian and one_product and isinstance(alpha, Operand):
                alpha = number(t.alpha, r.dtype)  # real, because C must be Hermitian, but of the complex type
            C = matrix(r.one_triangle(t.beta, n, uplo, hermitian), order, (t.layout + t.incx) % 3)
            arguments = (alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C))
            r(*first, r.vendor.uplo[uplo], r.vendor.op[trans], n, k, *arguments)
            function = ref.syrkx if one_product else ref.syr2k
            expected = function(t.alpha, A.wide, B.wide, t.beta, C.wide, trans, hermitian)
            magnitude = function(abs(t.alpha), abs(A.wide), abs(B.wide), abs(t.beta), abs(C.wide), trans)
            r.close(C, expected, 2 * k, magnitude, case, ref.in_triangle(n, uplo))
            A.check(case)
            B.check(case)


@CASES.of("{t}trmm", "{t}trsm")
def triangular(r: Routine) -> None:
    axes = (r.vendor.orders, "LR", "UL", "NTC", "NU", SHAPES_2)
    for (order, first), side, uplo, trans, diag, (m, n) in r.each(*axes):
        for t in r.turns(1):
            case = f"{order} {side=} {uplo=} {trans=} {diag=} {m=} {n=} {t}"
            size = m if side == "L" else n
            A = matrix(r.triangular(size, uplo, diag), order, t.layout)
            B = matrix(r.values(m, n), order, (t.layout + 1) % 3)
            output = B
            into: tuple[Operand | int, ...] = ()
            if r.name.endswith("trmm") and r.vendor.is_cublas:  # in place, or with a separate result
                output = B if r.turn % 2 else matrix(r.nan(m, n), order, t.layout)
                into = (output, ld(output))
            options = [r.vendor.side[side], r.vendor.uplo[uplo], r.vendor.op[trans], r.vendor.diag[diag]]
            r(*first, *options, m, n, t.given_alpha, A, ld(A), B, ld(B), *into)
            T = ref.triangle(A.wide, uplo, diag)
            now = ref.wide(output.now())
            if r.name.endswith("trmm"):
                expected, got = ref.trmm(t.alpha, T, B.wide, side, trans), now
                magnitude = ref.trmm(abs(t.alpha), abs(T), abs(B.wide), side, trans)
            else:  # the solution of a nearby system (Higham, section 8.1)
                expected, got = t.alpha * B.wide, ref.trmm(1, T, now, side, trans)
                magnitude = ref.trmm(1, abs(T), abs(now), side, trans) + abs(expected)
            ref.assert_close(got, expected, size, magnitude, r.dtype, case)
            output.check(case, True)
            A.check(case)
            if output is not B:
                B.check(case)
