"""Errors of a vendor's function that `blas` calls name the operands as the caller does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from offload_args import blas, offload_args
from offload_args.errors import StalePointerError

# {function: its operands}. An operand is a matrix by rows, a band, a packed triangle, a vector or a number, by its
# name.
FORMS = {
    "gemv": "1 A x 0 y",
    "ger": "1 x y A",
    "gerc": "1 x y A",
    "symv": "1 A x 0 y",
    "hemv": "1 A x 0 y",
    "trmv": "A x",
    "trsv": "A x",
    "syr": "1 x A",
    "her": "1 x A",
    "syr2": "1 x y A",
    "her2": "1 x y A",
    "gbmv": "1 ab x 0 y",
    "sbmv": "1 ab x 0 y",
    "hbmv": "1 ab x 0 y",
    "tbmv": "ab x",
    "tbsv": "ab x",
    "spmv": "1 ap x 0 y",
    "hpmv": "1 ap x 0 y",
    "spr": "1 x ap",
    "hpr": "1 x ap",
    "spr2": "1 x y ap",
    "hpr2": "1 x y ap",
    "tpmv": "ap x",
    "tpsv": "ap x",
    "gemm": "1 A B 0 C",
    "symm": "1 A B 0 C",
    "hemm": "1 A B 0 C",
    "syrk": "1 A 0 C",
    "herk": "1 A 0 C",
    "syr2k": "1 A B 0 C",
    "her2k": "1 A B 0 C",
    "trmm": "1 A B",
    "trsm": "1 A B",
    "geam": "1 A 1 B C",
    "dgmm": "A x C",
    "axpy": "1 x y",
    "copy": "x y",
    "swap": "x y",
}
REAL_ONLY = ("sbmv", "spmv", "spr", "spr2")


def operands(names: list[str], dtype: type, order: str) -> dict[str, Any]:
    operands: dict[str, Any] = {}
    for name in names:
        if name == "ab":
            operands[name] = np.ones((3 if "U" in order else 2, 3), dtype, order="F")
        elif name == "ap":
            operands[name] = np.ones(6, dtype)
        elif name.islower():
            operands[name] = np.ones(3, dtype)
        else:
            operands[name] = np.eye(3, dtype=dtype, order=order)  # type: ignore[call-overload]
    return operands


def named_by(error: BaseException) -> str:
    """Return the caller's name of the operand that a library's error names, from the error's note."""
    text = str(error).partition(": ")[2].partition(" ")[0]
    callers = re.findall(rf"its {text} is (\w+)", " ".join(getattr(error, "__notes__", [])))
    return callers[0] if callers else text


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("name", FORMS)
def test_a_stale_operand_is_named_as_the_caller_names_it(device: str, name: str, dtype: type) -> None:
    if name in REAL_ONLY and dtype is np.complex128:
        dtype = np.float64
    form = FORMS[name].split()
    names = [letter for letter in form if letter.isalpha()]
    options: dict[str, Any] = {"kl": 1, "ku": 0} if name == "gbmv" else {}
    asked = [options]
    if name in ("gemv", "trmv", "trsv") and dtype is np.complex128:
        asked.append({"trans": "C"})
    for order in "CF":
        arrays = operands(names, dtype, order)
        with offload_args(*arrays.values(), device=device) as pointers:
            dead = dict(zip(names, pointers, strict=True))
        with offload_args(*arrays.values(), device=device) as pointers:
            live = dict(zip(names, pointers, strict=True))
            for stale in names:
                passed = live | {stale: dead[stale]}
                arguments = [passed.get(name_, name_) for name_ in form]
                arguments = [int(argument) if isinstance(argument, str) else argument for argument in arguments]
                for chosen in asked:
                    with pytest.raises(StalePointerError) as raised:
                        getattr(blas, name)(*arguments, **chosen)
                    assert named_by(raised.value) == stale, raised.value
