"""Products of half precision, bfloat16 and int8 matrices.

GPUs make them, also with wider results; other devices refuse them.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from offload_args import blas, offload_args
from offload_args.errors import ArgumentError, DTypeError

PAIRS: list[tuple[Any, Any]] = [
    (np.float16, np.float16),
    (np.float16, np.float32),
    (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    (ml_dtypes.bfloat16, np.float32),
    (np.int8, np.int32),
]


def small(random: Any, dtype: Any, *shape: int) -> Any:
    """Return whole numbers, whose products are exact in all of these dtypes."""
    return random.integers(-2, 3, shape).astype(dtype)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{np.dtype(pair[0]).name}-{np.dtype(pair[1]).name}")
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
def test_narrow_products_agree_with_whole_numbers(device: str, pair: Any, batch: Any) -> None:
    narrow, wide = pair
    random = np.random.default_rng(1)
    for a, b, c, trans_a, trans_b in product("CF", "CF", "CF", "NT", "NT"):
        m, n, k = 8, 4, 12  # int8 needs leading dimensions that are multiples of 4 bytes
        A = small(random, narrow, *batch, *((m, k) if trans_a == "N" else (k, m)))
        B = small(random, narrow, *((k, n) if trans_b == "N" else (n, k)))
        C = small(random, wide, *batch, m, n)
        op_a = A.astype(np.int64) if trans_a == "N" else np.swapaxes(A.astype(np.int64), -1, -2)
        op_b = B.astype(np.int64) if trans_b == "N" else B.astype(np.int64).T
        expected = op_a @ op_b * 2 + C.astype(np.int64)
        A, B, C = (X if order == "C" else np.swapaxes(np.swapaxes(X, -1, -2).copy(), -1, -2)
                   for X, order in ((A, a), (B, b), (C, c)))  # fmt: skip
        with offload_args(A, B, C, device=device) as (dA, dB, dC):
            if device.startswith("cuda"):
                blas.gemm(2, dA, dB, 1, dC, trans_a=trans_a, trans_b=trans_b)
            else:
                name = np.dtype(narrow).name
                with pytest.raises(DTypeError, match=rf"BLAS.* has no product of {name} matrices; .*astype"):
                    blas.gemm(2, dA, dB, 1, dC)
                return
        np.testing.assert_array_equal(C.astype(np.int64), expected)


@pytest.mark.parametrize(
    ("dtypes", "remedy"),
    [
        ("float16 float64 float64", "float64, .*; convert it first: A = A.astype(np.float64)"),
        ("float16 float32 float64", "A = A.astype(np.float64); B = B.astype(np.float64)"),
        ("float16 float16 float32", "A = A.astype(np.float32); B = B.astype(np.float32)"),
        (
            "float16 float16 float16",
            "A = A.astype(np.float32); B = B.astype(np.float32); C = C.astype(np.float32)",
        ),
        ("int8 int8 int8", "A = A.astype(np.float64); B = B.astype(np.float64); C = C.astype(np.float64)"),
        ("int8 int8 int32", "A = A.astype(np.float64); B = B.astype(np.float64); C = C.astype(np.float64)"),
    ],
)
@pytest.mark.parametrize("function", [blas.gemm, blas.gemm_strided_batched], ids=lambda function: function.__name__)
def test_the_remedy_of_a_library_without_narrow_products_works_at_once(
    device: str, function: Any, dtypes: str, remedy: str
) -> None:
    if device.startswith("cuda"):
        return  # its library makes these products
    operands = dict(zip("ABC", (np.ones((2, 4, 4), dtype) for dtype in dtypes.split()), strict=True))
    with offload_args(*operands.values(), device=device) as (dA, dB, dC):
        words = re.escape(remedy).replace(r"\.\*", ".*")
        with pytest.raises(DTypeError, match=rf"^blas\.{function.__name__}: A needs .*{words}$") as raised:
            function(1.0, dA, dB, 0.0, dC)
    exec(str(raised.value).rpartition("first: ")[2], {"np": np}, operands)
    with offload_args(*operands.values(), device=device) as (dA, dB, dC):
        function(1.0, dA, dB, 0.0, dC)
    np.testing.assert_array_equal(operands["C"], 4)


@pytest.mark.parametrize(
    ("dtypes", "remedy"),
    [
        ("float16 float64 float64", "A needs float64, as the others, got float16; convert it first: A = A.astype("),
        ("float16 float32 float64", "A needs float64, .*; convert them first: A = A.astype(.*; B = B.astype("),
        ("int8 float32 float32", "A needs float32, as the others, got int8; convert it first: A = A.astype("),
        ("float16 float32 float32", "A needs float32, as the others, got float16; convert it first: A = A.astype("),
        ("int8 float16 float16", "A needs float16, as B has, got int8; convert it first: A = A.astype("),
        ("float16 float16 float64", "C needs float16 or float32, got float64; convert it first: C = C.astype("),
        ("float64 float16 float16", "B needs float32 .*; convert them first: B = B.astype(.*; C = C.astype("),
    ],
)
def test_the_remedy_for_a_narrow_operand_works_at_once(device: str, dtypes: str, remedy: str) -> None:
    if not device.startswith("cuda"):
        return  # the libraries of the others are tested above
    operands = dict(zip("ABC", (np.ones((4, 4), dtype) for dtype in dtypes.split()), strict=True))
    with offload_args(*operands.values(), device=device) as (dA, dB, dC):
        words = re.escape(remedy).replace(r"\.\*", ".*")
        with pytest.raises(DTypeError, match=rf"^blas\.gemm: {words}") as raised:
            blas.gemm(1.0, dA, dB, 0.0, dC)
    exec(str(raised.value).rpartition("first: ")[2], {"np": np}, operands)
    with offload_args(*operands.values(), device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
    np.testing.assert_array_equal(operands["C"], 4)


def test_narrow_operands_that_do_not_fit_are_named(device: str) -> None:
    if not device.startswith("cuda"):
        return  # the whole product was refused above
    half, single = np.ones((4, 4), np.float16), np.ones((4, 4), np.float32)
    with offload_args(half, single, np.ones((4, 4)), half + 1, device=device) as (h, s, d, h2):
        with pytest.raises(DTypeError, match=r"^blas\.gemm: C needs float16 or float32, got float64"):
            blas.gemm(1, h, h, 0, d)
        with pytest.raises(DTypeError, match=r"^blas\.gemm: B needs float16, got float32"):
            blas.gemm(1, h, s, 0, h2)
        with pytest.raises(DTypeError, match=r"^blas\.gemm: A needs float32 or .*, got|^blas\.gemm: B"):
            blas.gemm(1, s, h, 0, s)
        with pytest.raises(ArgumentError, match=r"^blas\.gemm: C has shape \(4, 4\), needs \(3, 4\)"):
            blas.gemm(1, h[:3], h, 0, h2)
        with pytest.raises(ArgumentError, match=r'^blas\.gemm: trans_a must be "N"'):
            blas.gemm(1, h, h, 0, h2, trans_a="X")
