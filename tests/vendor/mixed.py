"""Tests of each routine whose arguments choose the dtypes.

A combination is named by the letters of its dtypes, such as "hhs": half, half, single.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from helpers import reference as ref
from helpers.vendor import (
    FORMS,
    INCREMENTS,
    Array,
    Case,
    Cases,
    Many,
    Operand,
    Routine,
    batch,
    ld,
    many,
    many_vectors,
    matrix,
    number,
)
from offload_args import cublas
from vendor import level1, level3

CASES = Cases()
Batch = Operand | Many

# {letter: (dtype, cuBLAS's constant for it)}.
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
    built = r.random.uniform(-1, 1, shape)
    if letter in "cz":
        built = built + 1j * r.random.uniform(-1, 1, shape)
    return built.astype(dtype(letter))


def output(r: Routine, letter: str, beta: Any, *shape: int) -> Array:
    """Return values for an output, which are NaN if they are not read because of beta."""
    if beta != 0 or letter in "bi":
        return values(r, letter, *shape)
    return np.full(shape, np.nan, dtype(letter))


def scalars(letter: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield alpha and beta as numbers and as they are passed: on the host, on the device, or one on each."""
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


def lead(operand: Operand, arguments: int = 0) -> int:
    """Return the leading dimension. For int8 it is a multiple of 4, even for an empty matrix."""
    arguments = arguments or ld(operand)
    return arguments if operand.values.dtype != np.int8 else -(-arguments // 4) * 4


def close(operand: Batch, expected: Any, terms: int, magnitude: Any, computed: str, case: str) -> None:
    """Check an output that was summed in the dtype of the letter `computed` and rounded to the output's dtype."""
    operand.check(case, True)
    if operand.values.dtype.kind in "iu":
        assert (operand.now() == expected).all(), case
        return
    allowed = ref.tolerance(operand.values.dtype, 0, magnitude)
    if computed not in "bi":
        allowed = allowed + ref.tolerance(dtype(computed), terms, magnitude)
    ref.assert_within(operand.now(), expected, allowed, case)


# Letters of A and B, of C, and compute types with the letters of their scalars, as in cuBLAS's manual.
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


def sizes_of_bytes(*sizes: int) -> tuple[int, ...]:
    """Return sizes that cuBLAS accepts for int8: multiples of 4, or of 16 for large sizes; an H200 refused others."""
    return tuple(4 * size if size < 16 else size // 16 * 16 for size in sizes)


@CASES.of("gemm_ex", letters="s")
def gemm_ex(r: Routine) -> None:
    for (a, c, compute, scale), trans_a, trans_b, (m, n, k) in r.each(PRODUCTS, "NTC", "NTC", SHAPES):
        if a == "b":
            m, n, k = sizes_of_bytes(m, n, k)
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            case = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A = matrix(values(r, a, *((m, k) if trans_a == "N" else (k, m))), "F", layout)
            B = matrix(values(r, a, *((k, n) if trans_b == "N" else (n, k))), "F", layout)
            C = matrix(output(r, c, beta, m, n), "F", layout if a == "b" else (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            given_type: Any = code(a) if turn % 2 else dtype(a)  # a NumPy dtype is also accepted
            last = (getattr(cublas, compute), cublas.GEMM_DEFAULT)
            r(*first, A, given_type, lead(A), B, code(a), lead(B), given_beta, C, code(c), ld(C), *last)
            expected = ref.gemm(alpha, A.wide, B.wide, beta, C.wide, trans_a, trans_b)
            wides = abs(A.wide), abs(B.wide), abs(beta), abs(C.wide)
            close(C, expected, k, ref.gemm(abs(alpha), *wides, trans_a, trans_b), scale, case)
            A.check(case)
            B.check(case)


@CASES.of("uint8gemm_bias", letters="s")
def uint8gemm_bias(r: Routine) -> None:
    zeros = [(0, 0, 0, 1, 0), (1, 0, 0, 1, 0), (0, -2, 0, 1, 0), (0, 0, 5, 1, 0), (2, 1, 7, 3, 3), (0, 0, -9, 1, 2)]
    for ops, (m, n, k), (a, b, c, by, shift) in r.each(
        ["NNN", "TNN", "NTN", "TTT"], [(8, 12, 16), (64, 32, 16)], zeros
    ):
        case = f"{ops} {m=} {n=} {k=} {a=} {b=} {c=} {by=} {shift=}"
        shapes = [shape if op == "N" else shape[::-1] for op, shape in zip(ops, ((m, k), (k, n), (m, n)), strict=True)]
        A, B, C = (matrix(r.random.integers(0, 4, shape).astype(np.uint8), "F", 2) for shape in shapes)
        r(*(r.vendor.op[op] for op in ops), m, n, k, A, a, ld(A), B, b, ld(B), C, c, ld(C), by, shift)
        sums = (ref.op(A.values, ops[0]).astype(int) - a) @ (ref.op(B.values, ops[1]).astype(int) - b) + c
        expected = np.clip((sums * by + (1 << shift >> 1)) >> shift, 0, 255)
        np.testing.assert_array_equal(ref.op(C.now(), ops[2]), expected, case)
        C.check(case, True)
        A.check(case)
        B.check(case)


def close_each(
    A: Batch, B: Batch, C: Batch, alpha: Any, beta: Any, trans: Sequence[str], computed: str, case: str
) -> None:
    """Check each C of a batch of products."""
    expected, magnitude = C.wide, abs(C.wide)
    for i, (a, b, c) in enumerate(zip(A.wide, B.wide, C.wide, strict=True)):
        expected[i] = ref.gemm(alpha, a, b, beta, c, *trans)
        magnitude[i] = ref.gemm(abs(alpha), abs(a), abs(b), abs(beta), abs(c), *trans)
    close(C, expected, A.wide.shape[2 if trans[0] == "N" else 1], magnitude, computed, case)
    A.check(case)
    B.check(case)


@CASES.of("gemm_strided_batched_ex", letters="s")
def gemm_strided_ex(r: Routine) -> None:
    shapes = [(3, *shape) for shape in SHAPES] + [(1, 4, 3, 5), (0, 4, 3, 5)]
    for (a, c, compute, scale), trans_a, trans_b, (count, m, n, k) in r.each(PRODUCTS, "NTC", "NTC", shapes):
        if a == "b":
            m, n, k = sizes_of_bytes(m, n, k)
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            case = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {count=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A, lda, stride_a = batch(values(r, a, count, *((m, k) if trans_a == "N" else (k, m))), "F", layout)
            B, ldb, stride_b = batch(values(r, a, count, *((k, n) if trans_b == "N" else (n, k))), "F", layout)
            C, ldc, stride_c = batch(output(r, c, beta, count, m, n), "F", layout if a == "b" else (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            arguments = (*first, A, code(a), lead(A, lda), stride_a, B, code(a), lead(B, ldb), stride_b, given_beta)
            r(*arguments, C, code(c), ldc, stride_c, count, getattr(cublas, compute), cublas.GEMM_DEFAULT)
            close_each(A, B, C, alpha, beta, (trans_a, trans_b), scale, case)


@CASES.of("gemm_batched_ex", letters="s")
def gemm_batched_ex(r: Routine) -> None:
    shapes = [(3, *shape) for shape in SHAPES if all(shape)]
    for (a, c, compute, scale), trans_a, trans_b, form, (count, m, n, k) in r.each(
        PRODUCTS, "NTC", "NTC", FORMS, shapes
    ):
        if a == "b":
            m, n, k = sizes_of_bytes(m, n, k)
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars(scale)):
            case = f"{a=} {c=} {compute=} {trans_a=} {trans_b=} {form=} {count=} {m=} {n=} {k=} {alpha=} {beta=}"
            layout = 2 if a == "b" else turn % 3
            A = many(values(r, a, count, *((m, k) if trans_a == "N" else (k, m))), form, layout)
            B = many(values(r, a, count, *((k, n) if trans_b == "N" else (n, k))), FORMS[turn % 3], layout)
            C = many(output(r, c, beta, count, m, n), FORMS[(turn + 1) % 3], layout if a == "b" else (turn + 1) % 3)
            first = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k, given_alpha)
            arguments = (*first, A, code(a), ld(A), B, code(a), ld(B), given_beta, C, code(c), ld(C), count)
            r(*arguments, getattr(cublas, compute), cublas.GEMM_DEFAULT)
            close_each(A, B, C, alpha, beta, (trans_a, trans_b), scale, case)


# -- functions that do with one dtype what another one does: they have its case ----------------------------------------
class Typed(Routine):
    """A routine that is called with the arguments of another routine, plus dtypes."""

    def __init__(self, r: Routine, letter: str, plain: str, insert: Insert) -> None:
        super().__init__(r.vendor, r.name, letter, r.share)
        self.name, self.insert = plain, insert
        self.lacks_no_terms = "rk3m" in r.name  # cuBLAS does not support k = 0 in csyrk3m_ex and cherk3m_ex

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.lacks_no_terms and arguments[3] == 0:
            return Routine(self.vendor, self.name, self.letter, self.share)(*arguments, **keywords)
        real = {"c": "s", "z": "d"}.get(self.letter, self.letter)
        sums = "s" if self.letter in "ht" else self.letter
        return super().__call__(*self.insert(list(arguments), code(self.letter), code(real), code(sums)), **keywords)


# The arguments, with inserted constants for the dtype, the real dtype and the dtype of sums.
Insert = Callable[[list[Any], int, int, int], list[Any]]


def single(number_at: Any) -> Any:
    """Return a scalar on the device in single precision, which cuBLAS requires with half-precision arrays."""
    if isinstance(number_at, Operand) and number_at.values.dtype.itemsize == 2:
        return number(number_at.values, np.float32)
    return number_at


def vectors(a: list[Any], t: int) -> list[Any]:
    n, x, incx, y, incy, *rest = a
    return [n, x, t, incx, y, t, incy, *rest]


def product_of(a: list[Any], t: int) -> list[Any]:
    *first, A, lda, B, ldb, beta, C, ldc = a
    return [*first, A, t, lda, B, t, ldb, beta, C, t, ldc]


def update_of(a: list[Any], t: int) -> list[Any]:
    *first, A, lda, beta, C, ldc = a
    return [*first, A, t, lda, beta, C, t, ldc]


def axpy_of(a: list[Any], t: int, sums: int) -> list[Any]:
    n, alpha, *rest = a
    return [n, single(alpha), sums, *vectors([n, *rest], t)[1:], sums]


# {name: (the case, the names for one dtype, a function that inserts dtypes)}.
LIKE: dict[str, tuple[Case, list[str], Insert]] = {
    "iamax_ex": (level1.iamax, ["isamax", "idamax", "icamax", "izamax"], lambda a, t, r, s: [*a[:2], t, *a[2:]]),
    "iamin_ex": (level1.iamax, ["isamin", "idamin", "icamin", "izamin"], lambda a, t, r, s: [*a[:2], t, *a[2:]]),
    "asum_ex": (level1.norms, ["sasum", "dasum", "scasum", "dzasum"], lambda a, t, r, s: [*a[:2], t, a[2], r, s]),
    "nrm2_ex": (level1.norms, ["snrm2", "dnrm2", "scnrm2", "dznrm2"], lambda a, t, r, s: [*a[:2], t, a[2], r, r]),
    "dot_ex": (
        level1.dot,
        ["sdot", "ddot", "cdotu", "zdotu", "hdot", "tdot"],
        lambda a, t, r, s: [*vectors(a, t), t, s],
    ),
    "dotc_ex": (level1.dot, ["sdot", "ddot", "cdotc", "zdotc"], lambda a, t, r, s: [*vectors(a, t), t, s]),
    "axpy_ex": (
        level1.axpy,
        ["saxpy", "daxpy", "caxpy", "zaxpy", "haxpy", "taxpy"],
        lambda a, t, r, s: axpy_of(a, t, s),
    ),
    "scal_ex": (
        level1.scal,
        ["sscal", "dscal", "cscal", "zscal", "hscal", "tscal"],
        lambda a, t, r, s: [a[0], single(a[1]), s, a[2], t, a[3], s],
    ),
    "copy_ex": (level1.copy, ["scopy", "dcopy", "ccopy", "zcopy"], lambda a, t, r, s: vectors(a, t)),
    "swap_ex": (level1.swap, ["sswap", "dswap", "cswap", "zswap"], lambda a, t, r, s: vectors(a, t)),
    "rot_ex": (level1.rot, ["srot", "drot", "csrot", "zdrot"], lambda a, t, r, s: [*vectors(a, t), r, s]),
    "rotm_ex": (level1.rotm, ["srotm", "drotm"], lambda a, t, r, s: [*vectors(a, t), t, s]),
    "rotg_ex": (level1.rotg, ["srotg", "drotg"], lambda a, t, r, s: [*a[:2], t, *a[2:], t, s]),
    "rotmg_ex": (
        level1.rotmg,
        ["srotmg", "drotmg"],
        lambda a, t, r, s: [a[0], t, a[1], t, a[2], t, a[3], t, a[4], t, s],
    ),
    "sgemm_ex": (level3.gemm, ["sgemm"], lambda a, t, r, s: product_of(a, t)),
    "cgemm_ex": (level3.gemm, ["cgemm"], lambda a, t, r, s: product_of(a, t)),
    "cgemm3m_ex": (level3.gemm, ["cgemm3m"], lambda a, t, r, s: product_of(a, t)),
    "csyrk_ex": (level3.syrk, ["csyrk"], lambda a, t, r, s: update_of(a, t)),
    "csyrk3m_ex": (level3.syrk, ["csyrk"], lambda a, t, r, s: update_of(a, t)),
    "cherk_ex": (level3.syrk, ["cherk"], lambda a, t, r, s: update_of(a, t)),
    "cherk3m_ex": (level3.syrk, ["cherk"], lambda a, t, r, s: update_of(a, t)),
}


def letter_of(plain: str) -> str:
    """Return the letter of the dtype in a name such as idamax, dzasum or haxpy."""
    name = plain.removeprefix("i")
    return name[1] if name[:2] in ("sc", "dz") and name[2:] in ("asum", "nrm2") else name[0]


@CASES.of(*LIKE, letters="s")
def like_another(r: Routine) -> None:
    case, plain_names, insert = LIKE[r.name]
    for plain in plain_names:
        case(Typed(r, letter_of(plain), plain, insert))


SHORT = ("hshgemv", "hssgemv", "tstgemv", "tssgemv")


@CASES.of(*(f"{name}_batched" for name in SHORT), *(f"{name}_strided_batched" for name in SHORT), letters="s")
def short_gemv(r: Routine) -> None:
    a, c, strided = r.name[0], r.name[2], r.name.endswith("_strided_batched")
    for trans, (count, m, n) in r.each("NTC", [(3, 4, 3), (2, 3, 6), (4, 1, 5), (3, 5, 1), (2, 21, 18)]):
        read, written = (n, m) if trans == "N" else (m, n)
        for turn, (alpha, beta, given_alpha, given_beta) in enumerate(scalars("s")):
            case = f"{trans=} {count=} {m=} {n=} {alpha=} {beta=}"
            incx, incy = INCREMENTS[turn % 5]
            built = [values(r, a, count, m, n), values(r, a, count, read), output(r, c, beta, count, written)]
            first = (r.vendor.op[trans], m, n, given_alpha)
            A: Batch
            x: Batch
            y: Batch
            if strided:
                A, lda, stride_a = batch(built[0], "F", turn % 3)
                x, _, stride_x = batch(built[1][..., None], "F", 0, incx)
                y, _, stride_y = batch(built[2][..., None], "F", 1, incy)
                r(*first, A, lda, stride_a, x, incx, stride_x, given_beta, y, incy, stride_y, count)
            else:
                A, x = many(built[0], FORMS[turn % 3], turn % 3), many_vectors(built[1], FORMS[turn % 3], incx)
                y = many_vectors(built[2], FORMS[(turn + 1) % 3], incy)
                r(*first, A, ld(A), x, incx, given_beta, y, incy, count)
            expected, magnitude = y.wide, abs(y.wide)
            for i in range(count):
                b, d = x.wide[i].ravel(), y.wide[i].ravel()
                expected[i] = ref.gemv(alpha, A.wide[i], b, beta, d, trans).reshape(expected[i].shape)
                sizes = abs(A.wide[i]), abs(b), abs(beta), abs(d)
                magnitude[i] = ref.gemv(abs(alpha), *sizes, trans).reshape(expected[i].shape)
            close(y, expected, read, magnitude, "s", case)
            A.check(case)
            x.check(case)
