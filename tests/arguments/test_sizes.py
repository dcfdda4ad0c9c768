"""Sizes, shapes and counts at their limits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from helpers.arrays import lend, ramp
from offload_args import Scratch, blas, empty, offload_args
from offload_args.errors import (
    ArgumentError,
    DTypeError,
    ExtentError,
    SizeOverflowError,
)


@pytest.mark.promise("T06")
def test_sizes_that_overflow_are_refused() -> None:
    with pytest.raises(OverflowError, match="bytes"):
        Scratch((2**40, 2**40), np.float64)
    with pytest.raises(SizeOverflowError):
        Scratch(2**61)
    with pytest.raises(ValueError, match="0 or more"):
        Scratch((3, -1))
    with pytest.raises(DTypeError, match=r"Scratch: dtype needs a dtype of numbers, such as np\.float64, .*; got <U4"):
        Scratch(3, "U4")
    with pytest.raises(TypeError, match=r"Scratch: shape needs whole numbers, got 2\.5"):
        Scratch(2.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"Scratch: order needs \"C\" or \"F\", got 'A'"):
        Scratch(3, order="A")  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 5), (1, 4), (4, 1), (0, 3), (2, 3, 4)], ids=str)
def test_scratch_has_the_strides_of_an_array_in_its_order(
    shape: tuple[int, ...], order: Literal["C", "F"], device: str
) -> None:
    like = np.empty(shape, np.float32, order)
    asked = Scratch(shape, np.float32, order=order)
    named = ', order="F"' if order == "F" and len(shape) > 1 else ""
    assert repr(asked) == f"Scratch({shape}, float32{named})"
    with offload_args(asked, device=device) as (ds,):
        assert ds.shape == shape
        if like.size:
            assert ds.strides == like.strides
        ds.fill(2)
        assert ds.to_host().tolist() == np.full(shape, 2.0).tolist()


def test_a_library_by_columns_computes_into_scratch_in_fortran_order(device: str) -> None:
    A, B, D = ramp(3, 4), ramp(4, 5), np.empty((3, 5), np.float32)
    with offload_args(A, B, Scratch((3, 5), np.float32, order="F"), D, device=device) as (dA, dB, ds, dD):
        blas.gemm(1.0, dA, dB, 0.0, ds)
        assert ds.ld == 3
        blas.geam(1.0, ds, 0.0, ds, dD)
    np.testing.assert_allclose(D, A @ B)


@pytest.mark.promise("T06")
def test_more_memory_than_any_device_has_is_a_memory_error(device: str) -> None:
    x = ramp(3)
    with pytest.raises(MemoryError, match=device):
        lend(x, Scratch(2**55), device=device)
    assert x.flags.writeable


def test_forty_arguments_and_thirty_one_dimensions_are_lent(device: str) -> None:
    arrays = [ramp(3) for _ in range(40)]
    with offload_args(*arrays, device=device) as pointers:
        for pointer in pointers:
            blas.scal(2.0, pointer)
    for array in arrays:
        np.testing.assert_array_equal(array, 2 * ramp(3))
    deep = np.zeros((1,) * 30 + (2,), np.float32)
    with offload_args(deep, device=device) as (dx,):
        assert dx.ndim == 31
        dx.assign(5)
    assert (deep == 5).all()


TOO_LARGE = [(2**70,), (0, 2**70), (2**70, 0), (0, 2**62, 2**62), (2**62, 4), (2**32, 2**32), 2**63, (1, 2**63, 0)]


@pytest.mark.promise("T60")
@pytest.mark.parametrize("shape", TOO_LARGE, ids=str)
def test_a_shape_that_does_not_fit_is_refused_by_name(shape: Any) -> None:
    value = max(shape) if isinstance(shape, tuple) else shape
    for make in (Scratch, empty):
        with pytest.raises(SizeOverflowError, match=f"{make.__name__}: shape .*{value}"):
            make(shape, np.float32)


@pytest.mark.promise("T60")
@pytest.mark.parametrize("shape", [-1, (3, -1), (0, -(2**70))], ids=str)
def test_a_negative_extent_is_refused_by_name(shape: Any) -> None:
    value = min(shape) if isinstance(shape, tuple) else shape
    for make in (Scratch, empty):
        with pytest.raises(ArgumentError, match=f"{make.__name__}: shape .*{value}"):
            make(shape, np.float32)


@pytest.mark.promise("T60")
def test_more_dimensions_than_arrays_have_are_refused(device: str) -> None:
    for make in (Scratch, empty):
        with pytest.raises(ArgumentError, match="at most 64 extents, got 65"):
            make((1,) * 65, np.float32)
    with offload_args(ramp(3), device=device) as (dx,):
        with pytest.raises(ArgumentError, match="at most 64 dimensions"):
            dx[(None,) * 64]


@pytest.mark.promise("T60")
def test_slices_with_huge_numbers_are_those_of_numpy(device: str) -> None:
    x = ramp(6)
    huge = (2**70, -(2**70), 2**63, 2**63 - 1, -(2**63), None)
    with offload_args(x, device=device) as (dx,):
        for start in huge:
            for stop in huge:
                for step in (2**70, -(2**70), 2**62, 2**63 - 1, -(2**63), 1, -1, None):
                    part = slice(start, stop, step)
                    assert dx[part].shape == x[part].shape
        with pytest.raises(IndexError, match=str(2**70)):
            dx[2**70]
        with pytest.raises(ExtentError, match=str(2**70)):
            dx.offset(2**70)
        dx[2 :: 2**70].assign(7)
        with pytest.raises(OverflowError, match=f"int8 holds, got {2**40}|DevicePtr.assign.*int8"):
            with offload_args(Scratch(2, np.int8), device=device) as (ds,):
                ds.assign(2**40)
    np.testing.assert_array_equal(x, [1, 2, 7, 4, 5, 6])
