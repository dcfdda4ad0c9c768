"""Tests of each routine of CBLAS with bfloat16 or half precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from helpers import reference as ref
from helpers.vendor import Array, Cases, Operand, Routine, Several, batch, ld, many, matrix, vector
from vendor.level1 import PAIRS, SINGLES
from vendor.level3 import SHAPES

CASES = Cases()
BF16, HALF = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
NUMBERS = [(1.5, -0.75), (1.5, 0.0), (-0.5, 1.0), (0.0, 0.75)]  # alpha and beta, exact in bfloat16


def operands(r: Routine) -> tuple[Any, Any]:
    """Return the dtypes of a routine's inputs and of its output."""
    return HALF if r.name.startswith("sh") else BF16, BF16 if r.name[0] == "b" else np.dtype(np.float32)


def low(r: Routine, dtype: Any, *shape: int) -> Array:
    return r.values(*shape).astype(dtype)


def output(r: Routine, dtype: Any, beta: float, *shape: int) -> Array:
    """Return values for an output, which are NaN if the routine does not read them."""
    return np.full(shape, np.nan, dtype) if beta == 0 else low(r, dtype, *shape)


def close(operand: Operand, expected: Any, terms: int, magnitude: Any, case: str, mask: Any = True) -> None:
    """Fail unless the written elements are the rounded expected values, and no other elements are written."""
    mask = np.broadcast_to(mask, operand.values.shape)
    got, wanted = operand.now()[mask].astype(np.float64), np.asarray(expected, np.float64)[mask]
    step = 2.0**-8 if operand.values.dtype == BF16 else 2.0**-22
    allowed = step * (terms + 2 if step < 2.0**-20 else 1) * np.asarray(magnitude, np.float64)[mask]
    assert (abs(got - wanted) <= allowed + 1e-30).all(), case
    operand.check(case, mask)


@CASES.of("sbgemm", "shgemm", "bgemm", letters="s")
def gemm(r: Routine) -> None:
    dtype, out = operands(r)
    for (order, first), a, b, (m, n, k) in r.each(r.vendor.orders, "NTC", "NTC", SHAPES):
        for turn, (alpha, beta) in enumerate(NUMBERS):
            A = matrix(low(r, dtype, *((m, k) if a == "N" else (k, m))), order, turn % 3)
            B = matrix(low(r, dtype, *((k, n) if b == "N" else (n, k))), order, (turn + 1) % 3)
            C = matrix(output(r, out, beta, m, n), order, (turn + 2) % 3)
            r(*first, r.vendor.op[a], r.vendor.op[b], m, n, k, alpha, A, ld(A), B, ld(B), beta, C, ld(C))
            wides = A.wide, B.wide, beta, C.wide
            magnitude = ref.gemm(abs(alpha), *(abs(wide) for wide in wides), a, b)
            close(C, ref.gemm(alpha, *wides, a, b), k, magnitude, f"{order} {a} {b} {m=} {n=} {k=} {alpha=} {beta=}")
            A.check(r.name)
            B.check(r.name)


@CASES.of("sbgemm_batch_strided", letters="s")
def gemm_batch_strided(r: Routine) -> None:
    for (order, first), a, b, (m, n, k) in r.each(r.vendor.orders, "NT", "NT", SHAPES):
        for turn, (alpha, beta) in enumerate(NUMBERS):
            A, lda, stride_a = batch(low(r, BF16, 3, *((m, k) if a == "N" else (k, m))), order, turn % 3)
            B, ldb, stride_b = batch(low(r, BF16, 3, *((k, n) if b == "N" else (n, k))), order, (turn + 1) % 3)
            C, ldc, stride_c = batch(output(r, np.float32, beta, 3, m, n), order, (turn + 2) % 3)
            arguments = (r.vendor.op[a], r.vendor.op[b], m, n, k, alpha, A, lda, stride_a, B, ldb, stride_b)
            r(*first, *arguments, beta, C, ldc, stride_c, 3)
            each = list(zip(A.wide, B.wide, C.wide, strict=True))
            expected = np.array([ref.gemm(alpha, x, y, beta, z, a, b) for x, y, z in each])
            size = np.array([ref.gemm(abs(alpha), abs(x), abs(y), abs(beta), abs(z), a, b) for x, y, z in each])
            close(C, expected, k, size, f"{order} {a} {b} {m=} {n=} {k=} {alpha=} {beta=}")


@CASES.of("sbgemm_batch", letters="s")
def gemm_batch(r: Routine) -> None:
    for order, first in r.vendor.orders:
        groups = [(2, *SHAPES[1], "N", "T", *NUMBERS[0]), (3, *SHAPES[2], "T", "N", *NUMBERS[1])]
        A, B, C = [], [], []
        for count, m, n, k, a, b, _, beta in groups:
            A.append(many(low(r, BF16, count, *((m, k) if a == "N" else (k, m))), "arrays", 1, order))
            B.append(many(low(r, BF16, count, *((k, n) if b == "N" else (n, k))), "slices", 0, order))
            C.append(many(output(r, np.dtype(np.float32), beta, count, m, n), "arrays", 2, order))
        _, m, n, k, a, b, alphas, betas = ([*column] for column in zip(*groups, strict=True))
        products = Several(A), [ld(array) for array in A], Several(B), [ld(array) for array in B]
        options = [r.vendor.op[letter] for letter in a], [r.vendor.op[letter] for letter in b]
        rest = betas, Several(C), [ld(array) for array in C], len(groups), [group[0] for group in groups]
        r(*first, *options, m, n, k, alphas, *products, *rest)
        for g, (_, _, _, depth, trans_a, trans_b, alpha, beta) in enumerate(groups):
            for x, y, z in zip(A[g].operands, B[g].operands, C[g].operands, strict=True):
                wides = x.wide, y.wide, beta, z.wide
                magnitude = ref.gemm(abs(alpha), *(abs(wide) for wide in wides), trans_a, trans_b)
                close(z, ref.gemm(alpha, *wides, trans_a, trans_b), depth, magnitude, f"{order} group {g}")


@CASES.of("sbgemmt", "sbgemmtr", letters="s")
def gemmt(r: Routine) -> None:
    for (order, first), uplo, a, b, (m, k) in r.each(r.vendor.orders, "UL", "NT", "NT", [(4, 3), (7, 9), (1, 5)]):
        for turn, (alpha, beta) in enumerate(NUMBERS):
            A = matrix(low(r, BF16, *((m, k) if a == "N" else (k, m))), order, turn % 3)
            B = matrix(low(r, BF16, *((k, m) if b == "N" else (m, k))), order, (turn + 1) % 3)
            C = matrix(output(r, np.float32, beta, m, m), order, (turn + 2) % 3)
            options = (r.vendor.uplo[uplo], r.vendor.op[a], r.vendor.op[b], m, k)
            r(*first, *options, alpha, A, ld(A), B, ld(B), beta, C, ld(C))
            wides = A.wide, B.wide, beta, C.wide
            magnitude = ref.gemm(abs(alpha), *(abs(wide) for wide in wides), a, b)
            case = f"{order} {uplo} {a} {b} {m=} {k=} {alpha=} {beta=}"
            close(C, ref.gemm(alpha, *wides, a, b), k, magnitude, case, ref.in_triangle(m, uplo))


@CASES.of("sbgemv", "bgemv", letters="s")
def gemv(r: Routine) -> None:
    dtype, out = operands(r)
    for (order, first), trans, (m, n) in r.each(r.vendor.orders, "NTC", [(4, 3), (3, 6), (1, 5), (17, 12)]):
        inner, outer = (n, m) if trans == "N" else (m, n)
        for (alpha, beta), incx, incy in zip(NUMBERS, (1, 2, -1, 3), (-2, 1, 3, 1), strict=True):
            A, x = matrix(low(r, dtype, m, n), order, abs(incx) % 3), vector(low(r, dtype, inner), incx)
            y = vector(output(r, out, beta, outer), incy)
            r(*first, r.vendor.op[trans], m, n, alpha, A, ld(A), x, incx, beta, y, incy)
            wides = A.wide, x.wide, beta, y.wide
            magnitude = ref.gemv(abs(alpha), *(abs(wide) for wide in wides), trans)
            close(y, ref.gemv(alpha, *wides, trans), inner, magnitude, f"{order} {trans} {m=} {n=} {alpha=} {beta=}")


@CASES.of("sbdot", letters="s")
def dot(r: Routine) -> None:
    for n, incx, incy in PAIRS:
        x, y = vector(low(r, BF16, n), incx), vector(low(r, BF16, n), incy)
        expected, magnitude = ref.dot(x.wide, y.wide), ref.dot(abs(x.wide), abs(y.wide))
        ref.assert_close(r(n, x, incx, y, incy), expected, n, magnitude, np.float32, f"{n=} {incx=} {incy=}")


@CASES.of("bscal", letters="s")
def scal(r: Routine) -> None:
    for n, inc in SINGLES:
        x = vector(low(r, BF16, n), inc)
        r(n, -1.5, x, inc)
        close(x, -1.5 * x.wide, 1, 1.5 * abs(x.wide), f"{n=} {inc=}")


@CASES.of("sbstobf16", "sbdtobf16", "sbf16tos", "dbf16tod", letters="s")
def convert(r: Routine) -> None:
    to = {"sbstobf16": BF16, "sbdtobf16": BF16, "sbf16tos": np.float32, "dbf16tod": np.float64}[r.name]
    source = {"sbstobf16": np.float32, "sbdtobf16": np.float64}.get(r.name, BF16)
    for n, incx, incy in PAIRS:
        x, y = vector(low(r, source, n), incx), vector(np.full(n, np.nan, to), incy)
        r(n, x, incx, y, incy)
        assert np.array_equal(y.now(), x.values.astype(to)), f"{n=} {incx=} {incy=}"
        y.check(r.name, True)
        x.check(r.name)
