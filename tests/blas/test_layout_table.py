"""Each cell of the table of layouts in docs/guide/blas.md is true: its calls are made, or refused with a remedy."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offload_args import blas, offload_args
from offload_args.errors import ArgumentError

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "blas.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("| functions |")[2].partition("\n\n")[0].splitlines()[2:]
]
CELLS = [
    pytest.param(name, row[0], column, cell, id=f"{name}-{column}{'-conjugated' if 'with' in row[0] else ''}")
    for row in ROWS
    for column, cell in zip(("C", "F", "mixed", "backwards"), row[1:], strict=True)
    for name in re.findall(r"`([a-z]\w*)`", row[0])
    if cell
]

# {function: its operands in order}: M for a matrix, v for a vector, p for a packed triangle, numbers.
FORMS = {
    **dict.fromkeys("copy swap dotu dotc dot".split(), "v v"),
    **dict.fromkeys("scal".split(), "1 v"),
    **dict.fromkeys("asum nrm2 iamax iamin".split(), "v"),
    **dict.fromkeys("gemv symv hemv gbmv hbmv sbmv".split(), "1 M v 0 v"),
    **dict.fromkeys("hpmv spmv".split(), "1 p v 0 v"),
    **dict.fromkeys("trmv trsv tbmv tbsv".split(), "M v"),
    **dict.fromkeys("tpmv tpsv".split(), "p v"),
    **dict.fromkeys("ger gerc syr2 her2".split(), "1 v v M"),
    **dict.fromkeys("syr her".split(), "1 v M"),
    **dict.fromkeys("hpr spr".split(), "1 v p"),
    **dict.fromkeys("hpr2 spr2".split(), "1 v v p"),
    **dict.fromkeys("gemm symm hemm syr2k her2k".split(), "1 M M 0 M"),
    **dict.fromkeys("trmm trsm".split(), "1 M M"),
    **dict.fromkeys("syrk herk".split(), "1 M 0 M"),
    "gemm_strided_batched": "1 B B 0 B",
    "gemm_batched": "1 L L 0 L",
    "trsm_batched": "1 L L",
    "geam": "1 M 1 M M",
    "dgmm": "M v M",
    "axpy": "1 v v",
    "rot": "v v 1 0",
    "rotm": "v v H",
}
CONJUGATED = {"gemm": ("trans_a", "trans_b"), "geam": ("trans_a", "trans_b")}


def taken(device: str, name: str, dtype: Any, orders: tuple[str, ...], step: int, conjugated: bool) -> bool:
    """Make a call with matrices in these orders and vectors of this step; return False if refused with a remedy."""
    form, arrays, arguments = FORMS[name].split(), [], []
    left = iter(orders)
    for letter in form:
        if letter in "MBL":
            square = np.array(np.eye(3) * 2, dtype, order=next(left))  # type: ignore[call-overload]
            arrays.append(
                np.stack([square.T, square.T]).transpose(0, 2, 1)
                if letter == "B" and not square.flags.c_contiguous
                else np.stack([square] * 2)
                if letter == "B"
                else square
            )
        elif letter in "vp":
            arrays.append(np.ones(6 if letter == "p" else 3, dtype))
    with offload_args(*arrays, device=device) as pointers:
        passed = iter(pointers)
        for letter in form:
            if letter in "MB":
                arguments.append(next(passed))
            elif letter == "L":
                arguments.append([next(passed)])
            elif letter in "vp":
                arguments.append(next(passed)[:: step if letter == "v" else 1])
            else:
                arguments.append([-2, 0, 0, 0, 0] if letter == "H" else int(letter))
        options: dict[str, Any] = {"kl": 1, "ku": 1} if name == "gbmv" else {}
        if conjugated:
            options = dict.fromkeys(CONJUGATED.get(name.partition("_")[0], ("trans",)), "C")
        try:
            getattr(blas, name)(*arguments, **options)
        except ArgumentError as error:
            assert re.search(r"\bnp\.as\w+array\(|numpy\.|; pass ", str(error)), error
            return False
    return True


@pytest.mark.later("host")
@pytest.mark.parametrize(("name", "named", "column", "cell"), CELLS)
def test_a_cell_of_the_table_of_layouts_holds(device: str, name: str, named: str, column: str, cell: str) -> None:
    words = cell.split(", ")
    word = words[-1] if device.startswith(("cuda", "hip")) else words[0]
    dtype = np.float64 if "real only" in named else np.complex128
    matrices = sum(letter in "MBL" for letter in FORMS[name].split())
    choices = {
        "C": [("C",) * matrices],
        "F": [("F",) * matrices],
        "mixed": list(product("CF", repeat=matrices)),
        "backwards": [("C",) * matrices, ("F",) * matrices],
    }[column]
    step = -1 if column == "backwards" else 1
    built = [taken(device, name, dtype, orders, step, "with" in named) for orders in choices]
    if column == "backwards" and "M" in FORMS[name] and name in ("gbmv", "hbmv", "sbmv", "tbmv", "tbsv"):
        built = built[1:]  # a band in C order is refused unchanged
    if word == "C: copy":
        assert built == [False, True]
    elif word == "copy":
        assert not all(built) and (column == "mixed" or not any(built))
    else:
        assert word in ("direct", "swap") and all(built)


def test_every_function_with_a_layout_is_in_the_table() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([a-z]\w*)`", row[0])}
    assert named == set(blas.__all__) - {"rotg", "rotmg"}


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_one_column_is_a_matrix(device: str, order: Any) -> None:
    """As in NumPy, `b[:, 1:2]` is a matrix, whatever its strides are, and `b[:, 1]` is a vector."""
    A, b = np.asarray(np.tril(np.arange(16.0).reshape(4, 4) + 1), order=order), np.arange(12.0).reshape(4, 3)
    C, c, solved, y = np.zeros((4, 1), order=order), np.zeros((4, 3)), b.copy(), np.zeros(4)
    with offload_args(A, b, C, c, solved, y, device=device) as (dA, db, dC, dc, d_solved, dy):
        blas.gemm(1.0, dA, db[:, 1:2], 0.0, dC)
        blas.gemm(1.0, dA, db[:, 1:2], 0.0, dc[:, 2:])
        blas.trsm(1.0, dA, d_solved[:, 1:2], uplo="L")
        blas.gemv(1.0, dA, db[:, 1], 0.0, dy)
    np.testing.assert_allclose(C, A @ b[:, 1:2])
    np.testing.assert_allclose(c, np.hstack([np.zeros((4, 2)), A @ b[:, 1:2]]))
    np.testing.assert_allclose(A @ solved[:, 1:2], b[:, 1:2])
    np.testing.assert_array_equal(solved[:, ::2], b[:, ::2])
    np.testing.assert_allclose(y, A @ b[:, 1])
