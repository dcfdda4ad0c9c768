"""Slices of pointers are like slices of NumPy's arrays, and each slice has its own bounds."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.arrays import PARTS, ramp
from offload_args import Scratch, blas, offload_args
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExtentError,
    HostAccessError,
)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_part_is_the_part_that_numpy_makes(device: str, name: str, order: str) -> None:
    A, expected = ramp(4, 5, order=order), ramp(4, 5, order=order)
    part = PARTS[name](expected)
    part[...] = 77
    with offload_args(A, device=device) as (dA,):
        pointer = PARTS[name](dA)
        assert pointer.shape == part.shape
        if part.shape != (1, 2):  # the stride of a new axis has no meaning
            assert pointer.strides == part.strides
        pointer.assign(77)
    np.testing.assert_array_equal(A, expected)


def test_a_part_of_a_packed_array_is_right(device: str) -> None:
    base = ramp(4, 6)
    with pytest.warns(UserWarning, match="packed"):
        with offload_args(base[:, ::2], device=device) as (dA,):
            assert dA.strides == (12, 4)
            dA[1:3, 1].assign(77)
    expected = ramp(4, 6)
    expected[:, ::2][1:3, 1] = 77
    np.testing.assert_array_equal(base, expected)


RESHAPES: dict[str, Callable[[Any], Any]] = {
    "flat": lambda a: a.reshape(-1),
    "numbers": lambda a: a.reshape(6, 4),
    "a tuple": lambda a: a.reshape((2, -1, 3)),
    "a list": lambda a: a.reshape([3, 8]),
    "new axes": lambda a: a.reshape(1, 4, 1, 6, 1),
    "of rows": lambda a: a[1:3].reshape(-1),
    "of a block": lambda a: a[:, :4].reshape(4, 2, 2),
    "of a transpose": lambda a: a.T.reshape(3, 2, 4),
    "of a column": lambda a: a[:, 1].reshape(2, 2),
    "of a backward row": lambda a: a[0, ::-1].reshape(2, 3),
    "of one element": lambda a: a[1:2, 1:2].reshape(()),
    "of nothing": lambda a: a[:0].reshape(3, 0, 5),
}


@pytest.mark.parametrize("name", RESHAPES)
def test_reshape_agrees_with_numpy(device: str, name: str) -> None:
    A, expected = ramp(4, 6), ramp(4, 6)
    target = RESHAPES[name](expected)
    assert target.size == 0 or np.shares_memory(target, expected)
    with offload_args(A, device=device) as (dA,):
        part = RESHAPES[name](dA)
        assert part.shape == target.shape
        np.testing.assert_array_equal(part.to_host(), target)
        part.fill(7)
    target[...] = 7
    np.testing.assert_array_equal(A, expected)


def test_a_reshape_that_needs_a_copy_says_how_to_make_one(device: str) -> None:
    A = ramp(4, 6)
    with offload_args(A, device=device) as (dA,):
        with pytest.raises(
            ArgumentError, match=r"\(6, 4\) with strides .* no copy: .*Scratch\(\(6, 4\), np\.float32\)"
        ):
            dA.T.reshape(-1)
        for wrong in ((5,), (-1, 5), (-1, -1), (-2, -12), (-1, 0)):
            with pytest.raises(ArgumentError, match=r"shape \(4, 6\) has 24 elements"):
                dA.reshape(*wrong)
        with pytest.raises(ArgumentTypeError, match="whole numbers"):
            dA.reshape(2.0, 12)
        with offload_args(Scratch((6, 4), np.float32), device=device) as (dw,):
            dw.copy_from(dA.T)
            np.testing.assert_array_equal(dw.reshape(-1).to_host(), A.T.reshape(-1))


def test_an_empty_part_is_fine(device: str) -> None:
    x = ramp(4)
    with offload_args(x, device=device) as (dx,):
        for empty in (dx[4:], dx[2:2], dx[100:], dx[:0]):
            assert empty.shape == (0,)
            blas.scal(2.0, empty)
    np.testing.assert_array_equal(x, ramp(4))


def test_too_many_indices_and_an_index_too_far_are_refused() -> None:
    with offload_args(ramp(4, 5)) as (dA,):
        with pytest.raises(IndexError, match=r"only one `\.\.\.`"):
            _ = dA[..., 0, ...]
        with pytest.raises(IndexError, match="3 indices for 2 dimensions"):
            dA[1:, 1:, 1:]
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0"):
            dA[4]
        with pytest.raises(HostAccessError, match=r"dx\[i:i\+1\]"):
            dA[1, 1]
        with pytest.raises(HostAccessError, match="float"):
            dA[1.0]


@pytest.mark.promise("T31")
def test_a_part_has_its_own_bounds(library: ModuleType, device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(ExtentError, match="x needs 4"):
            library.sscal(4, 2.0, dx[2:5], 1)
        library.sscal(3, 2.0, dx[2:5], 1)
    expected = ramp(8)
    expected[2:5] *= 2
    np.testing.assert_array_equal(x, expected)


def test_offset_counts_elements_to_the_end_of_the_memory(device: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, device=device) as (dA,):
        rest = dA.offset(5)
        assert rest.shape == (7,)
        assert dA.offset(12).shape == (0,)
        blas.scal(10.0, rest)
        with pytest.raises(ExtentError, match=r"DevicePtr\.offset: n needs 0 to 12, .* got 13"):
            dA.offset(13)
        with pytest.raises(ExtentError, match=r"DevicePtr\.offset: n needs 0 to 12, .* got -1"):
            dA.offset(-1)
        with pytest.raises(ArgumentTypeError, match=r"DevicePtr\.offset: n needs a whole number .* got 1\.5"):
            dA.offset(1.5)  # type: ignore[arg-type]
    expected = ramp(12)
    expected[5:] *= 10
    np.testing.assert_array_equal(A.reshape(-1), expected)


def test_parts_of_reversed_pointers_are_those_of_reversed_arrays(device: str) -> None:
    x = np.arange(24.0)
    A = np.arange(24.0).reshape(4, 6)
    B = np.arange(24.0).reshape(2, 3, 4)
    out = np.zeros(2)
    with offload_args(x, A, B, out, device=device) as (dx, dA, dB, dout):
        for pointer, array in (
            (dx[::-1][2:9:3], x[::-1][2:9:3]),
            (dx[::-1][::-1], x),
            (dA[::-1][:, 2], A[::-1][:, 2]),
            (dA[::-1].T[1], A[::-1].T[1]),
            (dA[:, ::-1][1:3, 4], A[:, ::-1][1:3, 4]),
            (dB[:, ::-1, ::-2][1, 1], B[:, ::-1, ::-2][1, 1]),
        ):
            assert pointer.shape == array.shape
            assert blas.asum(pointer) == array.sum()
        blas.copy(dA[::-1, ::-1][1, 2:4], dout)
    np.testing.assert_array_equal(out, A[::-1, ::-1][1, 2:4])


def test_assigning_to_a_part_of_a_reversed_pointer_writes_that_part(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(x, device=device) as (dx,):
        dx[::-1][1:3].assign(np.array([70.0, 60.0]))
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 4, 60, 70, 7])
