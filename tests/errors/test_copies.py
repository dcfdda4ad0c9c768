"""Remedies that copy or convert a lent array, run as they stand: the copy has the elements that calls wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import DevicePtr, Scratch, blas, lapack, offload_args, update
from offload_args.errors import OffloadError

Array = NDArray[Any]


class Case(NamedTuple):
    arrays: dict[str, Array]
    name: str  # the array that is copied
    part: Any  # the key of its part that a call refuses
    call: Callable[..., object]


CASES = {
    "columns of a matrix": Case(
        {"A": np.ones((4, 6)), "x": np.ones(3), "y": np.zeros(4)},
        "A",
        np.s_[:, ::2],
        lambda A, x, y: blas.gemv(1.0, A, x, 0.0, y),
    ),
    "columns of a factored matrix": Case({"A": np.repeat(np.eye(4), 2, axis=1)}, "A", np.s_[:, ::2], lapack.potrf),
    "a dtype": Case(
        {"A": np.ones((4, 3)), "x": np.ones(3, np.float32), "y": np.zeros(4)},
        "x",
        np.s_[:],
        lambda A, x, y: blas.gemv(1.0, A, x, 0.0, y),
    ),
    "the dtype of a solution": Case({"A": np.eye(3, dtype=np.float16)}, "A", np.s_[:], lapack.potrf),
    "a reversed stack": Case(
        {"A": np.ones((2, 3, 3)), "B": np.ones((2, 3, 3)), "C": np.zeros((2, 3, 3))},
        "A",
        np.s_[::-1],
        lambda A, B, C: blas.gemm(1.0, A, B, 0.0, C),
    ),
    "a packed triangle with gaps": Case(
        {"ap": np.ones(12), "x": np.ones(3), "y": np.zeros(3)},
        "ap",
        np.s_[::2],
        lambda ap, x, y: blas.spmv(1.0, ap, x, 0.0, y),
    ),
    "columns of a band": Case(
        {"ab": np.ones((2, 6)), "x": np.ones(3), "y": np.zeros(3)},
        "ab",
        np.s_[:, ::2],
        lambda ab, x, y: blas.sbmv(1.0, ab, x, 0.0, y),
    ),
    "a leading dimension": Case({"A": np.ones((4, 6))}, "A", np.s_[:, ::2], lambda A: A.ld),
}


@pytest.mark.parametrize("is_written", [False, True], ids=["as lent", "written"])
@pytest.mark.parametrize("case", CASES)
def test_a_copy_has_the_elements_that_calls_wrote(device: str, case: str, is_written: bool) -> None:
    arrays, name, part, function = CASES[case]
    arrays = {key: array.copy() for key, array in arrays.items()}
    expected = (2 if is_written else 1) * arrays[name][part]
    with offload_args(*arrays.values(), device=device) as pointers:
        if is_written:
            whole = pointers[list(arrays).index(name)]
            whole.assign(2 * arrays[name])
        with pytest.raises(OffloadError) as raised:
            function(*(p[part] if key == name else p for key, p in zip(arrays, pointers, strict=True)))
        code = re.search(r"copy it first: (.*\))|convert it first: (.*\))", str(raised.value))
        assert code is not None, str(raised.value)
        remedy = code[1] or code[2]
        assert remedy.startswith(f"update({name}); ") == is_written
        names: dict[str, Any] = {**arrays, name: arrays[name][part]}
        exec(remedy, {"np": np, "update": update}, names)
    np.testing.assert_array_equal(names[name], expected)
    with offload_args(*names.values(), device=device) as pointers:
        function(*pointers)


def test_a_part_of_a_scratch_is_copied_to_another_one(device: str) -> None:
    x, y = np.ones(3), np.zeros(4)
    with offload_args(x, y, Scratch((4, 6)), device=device) as (dx, dy, dw):
        dw.fill(1.0)
        with pytest.raises(
            OffloadError, match=r"; copy it to a pointer d of Scratch\(\(4, 3\), dtype\), .* and pass d$"
        ):
            blas.gemv(1.0, dw[:, ::2], dx, 0.0, dy)
        with offload_args(Scratch((4, 3), np.float64), device=device) as (d,):
            d.copy_from(dw[:, ::2])
            blas.gemv(1.0, d, dx, 0.0, dy)
    assert y.tolist() == [3, 3, 3, 3]


def test_a_scratch_of_another_dtype_is_requested_in_the_right_one(device: str) -> None:
    x = np.ones(3)
    with offload_args(x, Scratch(3, np.float32), device=device) as (dx, dw):
        assert isinstance(dw, DevicePtr)
        with pytest.raises(OffloadError, match=r"; request Scratch\(\(3,\), np\.float64\)$"):
            blas.copy(dx, dw)
