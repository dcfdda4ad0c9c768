"""Attributes and the text form of a device pointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import Device, DevicePtr, In, Out, Scratch, blas, offload_args
from offload_args.errors import (
    ArgumentError,
    HostAccessError,
)


def test_a_pointer_has_the_attributes_of_its_array(device: str) -> None:
    A = ramp(3, 4, order="F")
    with offload_args(A, device=device) as (dA,):
        assert dA.dtype == np.float32
        assert dA.shape == (3, 4)
        assert dA.strides == (4, 12)
        assert (dA.ndim, dA.size, dA.nbytes, dA.ld) == (2, 12, 48, 3)
        assert dA.device == Device(device)
        assert dA.live
        assert repr(dA) == f"DevicePtr(float32, shape=(3, 4), ld=3, 48 bytes, {device}, untouched)"
    assert not dA.live
    assert repr(dA) == "DevicePtr(float32, shape=(3, 4), ld=3, 48 bytes, dead)"
    assert dA.shape == (3, 4)
    assert dA.dtype == np.float32


def test_a_pointer_shows_its_state(device: str) -> None:
    x, y = ramp(3), ramp(3)
    with offload_args(In(x), Out(y), Scratch((2, 2, 2)), device=device) as (dx, dy, dw):
        states = [repr(pointer).removesuffix(")").partition(f"{device}, ")[2] for pointer in (dx, dy, dw)]
        assert states == ["read-only, untouched", "untouched", "untouched"]
        blas.copy(dx, dy)
        states = [repr(pointer).removesuffix(")").partition(f"{device}, ")[2] for pointer in (dx, dy, dw)]
        assert states == ["read-only, sent", "written", "untouched"]
        assert ">read-only, sent</td>" in dx._repr_html_()
        assert ">(2, 2, 2)</td>" in dw._repr_html_()
    assert all(">dead</td>" in pointer._repr_html_() for pointer in (dx, dy, dw))


def test_a_pointer_can_not_be_changed_or_made_by_hand() -> None:
    with offload_args(ramp(3)) as (dx,):
        for name in ("shape", "dtype", "ld", "_dtype_code", "_device", "other"):
            with pytest.raises(AttributeError):
                setattr(dx, name, 1)
    with pytest.raises(HostAccessError, match="made by regions"):
        DevicePtr(12345)


def test_pointers_are_equal_by_identity() -> None:
    x = ramp(3)
    with offload_args(x, x) as (a, b):
        assert a == a
        with pytest.raises(HostAccessError, match="use `is`"):
            assert a != b
        assert len({a, b, a}) == 2


def test_a_pointer_has_a_type_for_static_checkers() -> None:
    def norm(x: DevicePtr[np.float32]) -> float:
        return blas.nrm2(x)

    with offload_args(ramp(3)) as (dx,):
        assert isinstance(dx, DevicePtr)
        assert norm(dx) > 0
    assert DevicePtr[np.float32] != DevicePtr[np.float64]


def test_ld_is_for_matrices_and_names_the_remedy() -> None:
    with offload_args(ramp(3), Scratch((2, 3, 4)), Scratch((4, 6))) as (dx, cube, matrix):
        with pytest.raises(ValueError, match="2 dimensions, has 1"):
            _ = dx.ld
        with pytest.raises(ValueError, match="2 dimensions, has 3"):
            _ = cube.ld
        with pytest.raises(ArgumentError, match=r"; copy it to a pointer d of Scratch\(\(4, 3\), dtype\)"):
            _ = matrix[:, ::2].ld
        assert (matrix[:0].ld, matrix[:, :0].ld) == (6, 6)
    with (
        offload_args(np.zeros((4, 6))) as (matrix,),
        pytest.raises(ArgumentError, match=r"; copy it first: A = np\.ascontiguousarray\(A\)$"),
    ):
        _ = matrix[:, ::2].ld


@pytest.mark.parametrize(
    ("make", "ld"),
    [
        (lambda m: m[:1], 1),
        (lambda m: m[:, :1], 6),
        (lambda m: m[:1].T, 1),
        (lambda m: m[:, :1].T, 6),
        (lambda m: m[:1, :1], 1),
        (lambda m: m[0][None, :], 1),
        (lambda m: m[0][:, None], 1),
        (lambda m: m[:, 0][None, :], 6),
        (lambda m: m[:, 0][:, None], 6),
        (lambda m: m[::2], 12),
    ],
)
def test_ld_of_a_single_row_or_column_is_the_distance_between_its_elements(make: Callable[[Any], Any], ld: int) -> None:
    with offload_args(Scratch((4, 6))) as (matrix,):
        assert make(matrix).ld == ld


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_matrix_has_a_leading_dimension(device: str, shape: tuple[int, int]) -> None:
    with offload_args(np.zeros(shape), device=device) as (dA,):
        assert dA.ld == max(*shape, 1)
