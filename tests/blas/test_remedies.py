"""The remedy of a refusal of orders names the operand that differs: a call that follows the remedy is accepted."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from offload_args import blas, offload_args
from offload_args.errors import ArgumentError

# {function: its operands in order, and its options}.
FORMS = {
    "gemm": ("1 A B 0 C", {"trans_a": "NC", "trans_b": "NC"}),
    "gemm_strided_batched": ("1 A B 0 C", {"trans_a": "NC", "trans_b": "NC"}),
    "gemm_batched": ("1 A B 0 C", {"trans_a": "NC", "trans_b": "NC"}),
    "geam": ("1 A 1 B C", {"trans_a": "NC", "trans_b": "NC"}),
    "symm": ("1 A B 0 C", {"side": "LR"}),
    "hemm": ("1 A B 0 C", {"side": "LR"}),
    "syrk": ("1 A 0 C", {"trans": "NT"}),
    "herk": ("1 A 0 C", {"trans": "NC"}),
    "syr2k": ("1 A B 0 C", {"trans": "NT"}),
    "her2k": ("1 A B 0 C", {"trans": "NC"}),
    "trmm": ("1 A B", {"side": "LR", "trans": "NC"}),
    "trsm": ("1 A B", {"side": "LR", "trans": "NC"}),
    "trsm_batched": ("1 A B", {"side": "LR", "trans": "NC"}),
}


def turned(name: str, matrix: Any, order: str) -> Any:
    """Return a matrix in an order, or a batch of two such matrices as the function takes it."""
    matrix = np.array(matrix, order=order)  # type: ignore[call-overload]
    if name == "gemm_strided_batched":
        stack = np.stack([matrix.T if order == "F" else matrix] * 2)
        return stack.transpose(0, 2, 1) if order == "F" else stack
    return [matrix, matrix.copy("K")] if name.endswith("_batched") else matrix


def made(device: str, name: str, arrays: dict[str, Any], options: dict[str, str]) -> Any:
    """Make the call on arrays of these names; return the last array, which is written."""
    lists = {letter: value if isinstance(value, list) else [value] for letter, value in arrays.items()}
    with offload_args(*(array for parts in lists.values() for array in parts), device=device) as pointers:
        left = iter(pointers)
        lent: dict[str, Any] = {letter: [next(left) for _ in parts] for letter, parts in lists.items()}
        if not isinstance(arrays["A"], list):
            lent = {letter: parts[0] for letter, parts in lent.items()}
        getattr(blas, name)(
            *(lent[letter] if letter in lent else float(letter) for letter in FORMS[name][0].split()), **options
        )
    return np.array(list(arrays.values())[-1])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", FORMS)
def test_following_the_remedy_is_accepted(device: str, name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    values = {letter: rng.standard_normal((3, 3)) for letter in FORMS[name][0].split() if letter.isalpha()}
    if dtype == "complex128":
        values = {letter: value + 1j * rng.standard_normal((3, 3)) for letter, value in values.items()}
    for option in product(*FORMS[name][1].values()):
        options = dict(zip(FORMS[name][1], option, strict=True))
        by_columns = {letter: turned(name, value, "F") for letter, value in values.items()}
        expected = made(device, name, by_columns, options)
        for orders in product("CF", repeat=len(values)):
            case = (options, orders)
            arrays = {letter: turned(name, values[letter], order) for letter, order in zip(values, orders, strict=True)}
            try:
                result = made(device, name, arrays, options)
            except ArgumentError as error:
                text = str(error)
                remedies = re.findall(r"[:;] ([A-C]) = (.*?)(?=; [A-C] = |$)", text)
                assert remedies, (case, text)
                for letter, remedy in remedies:
                    arrays[letter] = eval(remedy, {"np": np, **arrays})
                result = made(device, name, arrays, options)
            np.testing.assert_allclose(result, expected, err_msg=str(case))


def test_a_stack_of_more_dimensions_is_reshaped_to_a_batch(device: str) -> None:
    A, B, C = np.ones((2, 5, 4, 3)), np.ones((2, 5, 3, 2)), np.empty((2, 5, 4, 2))
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        with pytest.raises(
            ArgumentError, match=r"A has shape .*; pass A\.reshape\(10, 4, 3\), a batch of .*linalg\.mat"
        ):
            blas.gemm(1.0, dA, dB, 0.0, dC)
        blas.gemm(1.0, dA.reshape(10, 4, 3), dB.reshape(10, 3, 2), 0.0, dC.reshape(10, 4, 2))
    np.testing.assert_array_equal(C, A @ B)
