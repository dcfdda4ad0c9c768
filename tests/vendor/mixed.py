"""The routines whose dtypes are chosen by arguments: how each is tested.

A combination is named by the letters of its dtypes, such as "hhs": half, half, single.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from helpers import reference as ref
from helpers.vendor import FORMS, Array, Cases, Many, Operand, Routine, batch, ld, many, matrix, number
from offload_args import cublas

CASES = Cases()
Batch = Operand | Many

# By letter: the dtype, and cuBLAS's constant for it.
TYPES: dict[str, tuple[Any, str]] = {
    "s": (np.float32, "CUDA_R_32F"),
    "d": (np.float64, "CUDA_R_64F"),
    "c": (np.complex64, "CUDA_C_32F"),
    "z": (np.complex128, "CUDA_C_64F"),
    "h": (np.float16, "CUDA_R_16F"),
    "t": (ml_dtypes.bfloat16, "CUDA_R_16BF"),
    "b": (np.int8, "CUDA_R_8I"),
    "i": (np.int32, "CUDA_R_32I"),
}


def dtype(letter: str) -> Any:
    return TYPES[letter][0]


def code(letter: str) -> int:
    return int(getattr(cublas, TYPES[letter][1]))


def values(r: Routine, letter: str, *shape: int) -> Array:
    if letter in "bi":
        return r.random.integers(-8, 9, shape).astype(dtype(letter))
    made = r.random.uniform(-1, 1, shape)
    if letter in "cz":
        made = made + 1j * r.random.uniform(-1, 1, shape)
    return made.astype(dtype(letter))


def output(r: Routine, letter: str, beta: Any, *shape: int) -> Array:
    """Values for an output: NaN if beta says that they are not read."""
    if beta != 0 or letter in "bi":
        return values(r, letter, *shape)
    return np.full(shape, np.nan, dtype(letter))


def scalars(letter: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Pairs of alpha and beta as numbers, then as they are passed: on the host, on the device, and one each."""
    alpha, beta = (-3, 2) if letter in "bi" else (-1.5, 0.75)
    if letter in "cz":
        alpha, beta = 0.5 - 1.25j, -0.75 + 0.25j
    zero = type(beta)(0)
    yield alpha, beta, alpha, beta
    yield alpha, zero, alpha, zero
    yield zero, beta, zero, beta
    yield alpha, beta, number(alpha, dtype(letter)), number(beta, dtype(letter))
    yield alpha, zero, number(alpha, dtype(letter)), zero
    yield alpha, zero, alpha, number(zero, dtype(letter))


def lead(operand: Operand, given: int = 0) -> int:
    """The leading dimension; of int8 a multiple of 4, also where there is nothing."""
    given = given or ld(operand)
    return given if operand.values.dtype != np.int8 else -(-given // 4) * 4


def close(operand: Batch, expected: Any, terms: int, magnitude: Any, computed: str, what: str) -> None:
    """Check an output that was summed in the dtype of the letter `computed`, and rounded to its own."""
    operand.check(what, True)
    if operand.values.dtype.kind in "iu":
        assert (operand.now() == expected).all(), what
        return
    allowed = ref.tolerance(operand.values.dtype, 0, magnitude)
    if computed not in "bi":
        allowed = allowed + ref.tolerance(dtype(computed), terms, magnitude)
    ref.assert_within(operand.now(), expected, allowed, what)


# A and B, C, and the compute types with the letter of their scalars, as cuBLAS's manual has them.
PRODUCTS = [
    ("h", "h", "COMPUTE_16F", "h"),
    ("h", "h", "COMPUTE_32F", "s"),
    ("t", "t", "COMPUTE_32F", "s"),
    ("h", "s", "COMPUTE_32F", "s"),
    ("t", "s", "COMPUTE_32F", "s"),
    ("b", "s", "COMPUTE_32F", "s"),
    ("s", "s", "COMPUTE_32F", "s"),
    ("c", "c", "COMPUTE_32F", "c"),
    ("s", "s", "COMPUTE_32F_PEDANTIC", "s"),
    ("d", "d", "COMPUTE_64F", "d"),
    ("z", "z", "COMPUTE_64F", "z"),
    ("b", "i", "COMPUTE_32I", "i"),
]
SHAPES = [(4, 3, 5), (3, 6, 2), (19, 23, 17), (0, 3, 4), (3, 0, 4), (3, 4, 0)]


@CASES.of("gemm_ex", letters="s")
def gemm_ex(r: Routine) -> None:
    for (a, c, compute, scale), trans_a, trans_b, (m, n, k) in r.each(PRODUCTS, "NTC", "NTC", SHAPES):
        if a == "b":  # cuBLAS takes leading dimensions of multiples of 4 only
            m, n, k = 4 * m, 4 * n, 4 * k
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            what = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A = matrix(values(r, a, *((m, k) if trans_a == "N" else (k, m))), "F", layout)
            B = matrix(values(r, a, *((k, n) if trans_b == "N" else (n, k))), "F", layout)
            C = matrix(output(r, c, beta, m, n), "F", (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            given_type: Any = code(a) if turn % 2 else dtype(a)  # a dtype of NumPy's does, too
            last = (getattr(cublas, compute), cublas.GEMM_DEFAULT)
            r(*first, A, given_type, lead(A), B, code(a), lead(B), given_beta, C, code(c), ld(C), *last)
            expected = ref.gemm(alpha, A.wide, B.wide, beta, C.wide, trans_a, trans_b)
            wides = abs(A.wide), abs(B.wide), abs(beta), abs(C.wide)
            close(C, expected, k, ref.gemm(abs(alpha), *wides, trans_a, trans_b), scale, what)
            A.check(what)
            B.check(what)


def close_each(
    A: Batch, B: Batch, C: Batch, alpha: Any, beta: Any, trans: tuple[str, str], computed: str, what: str
) -> None:
    """Check each C of a batch of products."""
    expected, magnitude = C.wide, abs(C.wide)
    for i, (a, b, c) in enumerate(zip(A.wide, B.wide, C.wide, strict=True)):
        expected[i] = ref.gemm(alpha, a, b, beta, c, *trans)
        magnitude[i] = ref.gemm(abs(alpha), abs(a), abs(b), abs(beta), abs(c), *trans)
    close(C, expected, A.wide.shape[2 if trans[0] == "N" else 1], magnitude, computed, what)
    A.check(what)
    B.check(what)


@CASES.of("gemm_strided_batched_ex", letters="s")
def gemm_strided_ex(r: Routine) -> None:
    shapes = [(3, *shape) for shape in SHAPES] + [(1, 4, 3, 5), (0, 4, 3, 5)]
    for (a, c, compute, scale), trans_a, trans_b, (count, m, n, k) in r.each(PRODUCTS, "NTC", "NTC", shapes):
        if a == "b":
            m, n, k = 4 * m, 4 * n, 4 * k
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            what = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {count=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A, lda, stride_a = batch(values(r, a, count, *((m, k) if trans_a == "N" else (k, m))), "F", layout)
            B, ldb, stride_b = batch(values(r, a, count, *((k, n) if trans_b == "N" else (n, k))), "F", layout)
            C, ldc, stride_c = batch(output(r, c, beta, count, m, n), "F", (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            given = (*first, A, code(a), lead(A, lda), stride_a, B, code(a), lead(B, ldb), stride_b, given_beta)
            r(*given, C, code(c), ldc, stride_c, count, getattr(cublas, compute), cublas.GEMM_DEFAULT)
            close_each(A, B, C, alpha, beta, (trans_a, trans_b), scale, what)


@CASES.of("gemm_batched_ex", letters="s")
def gemm_batched_ex(r: Routine) -> None:
    shapes = [(3, *shape) for shape in SHAPES if all(shape)]
    for (a, c, compute, scale), trans_a, trans_b, form, (count, m, n, k) in r.each(
        PRODUCTS, "NTC", "NTC", FORMS, shapes
    ):
        if a == "b":
            m, n, k = 4 * m, 4 * n, 4 * k
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            what = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {form=} {count=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A = many(values(r, a, count, *((m, k) if trans_a == "N" else (k, m))), form, layout)
            B = many(values(r, a, count, *((k, n) if trans_b == "N" else (n, k))), FORMS[turn % 3], layout)
            C = many(output(r, c, beta, count, m, n), FORMS[(turn + 1) % 3], (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            given = (*first, A, code(a), ld(A), B, code(a), ld(B), given_beta, C, code(c), ld(C), count)
            r(*given, getattr(cublas, compute), cublas.GEMM_DEFAULT)
            close_each(A, B, C, alpha, beta, (trans_a, trans_b), scale, what)
