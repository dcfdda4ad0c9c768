"""Arrays that share memory in one region share it on the device; overlap that would change a result is refused."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import (
    Device,
    In,
    Out,
    blas,
    offload_args,
    testing,
)
from offload_args.errors import (
    AliasError,
)


@pytest.mark.promise("T13")
def test_the_same_array_twice_is_one_buffer(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, x, device=device) as (a, b):
        assert moved.mappings == 1
        blas.scal(2.0, a)
        assert blas.asum(b) == 2 * ramp(8).sum()
    assert (moved.copies_up, moved.copies_down) == (1, 1)
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert x.flags.writeable


@pytest.mark.promise("T13")
def test_the_same_array_in_and_out_has_both_directions(device: str) -> None:
    x, y = ramp(8), 3 * ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(In(x), Out(x), y, device=device) as (a, b, dy):
        assert moved.mappings == 2
        assert blas.asum(a) == ramp(8).sum()
        blas.copy(dy, b)
        assert blas.asum(a) == 3 * ramp(8).sum()
    assert (moved.copies_up, moved.copies_down) == (2, 1)
    np.testing.assert_array_equal(x, 3 * ramp(8))


@pytest.mark.promise("T14")
def test_overlapping_views_share_memory_as_on_the_host(device: str) -> None:
    a, expected = ramp(10), ramp(10)
    with testing.counting(Device(device)) as moved, offload_args(a[:6], a[4:], device=device) as (left, right):
        assert moved.mappings == 1
        blas.scal(2.0, left)
        blas.scal(10.0, right)
    expected[:6] *= 2
    expected[4:] *= 10
    np.testing.assert_array_equal(a, expected)


@pytest.mark.promise("T14")
def test_disjoint_panels_of_a_matrix_keep_apart(device: str) -> None:
    A = ramp(4, 6)
    expected = A.copy()
    with offload_args(A[:, :2], A[:, 2:], device=device) as (left, right):
        for i in range(4):
            blas.scal(2.0, left[i])
            blas.scal(3.0, right[i])
    expected[:, :2] *= 2
    expected[:, 2:] *= 3
    np.testing.assert_array_equal(A, expected)


@pytest.mark.promise("T14")
def test_a_written_operand_that_overlaps_another_is_refused(device: str) -> None:
    a = ramp(10)
    with offload_args(a[:6], a[4:], device=device) as (left, right):
        with pytest.raises(AliasError, match=r"axpy: y.*x"):
            blas.axpy(1.0, left, right)
    A, B = ramp(3, 3), ramp(3, 3)
    with offload_args(A, B, device=device) as (dA, dB):
        with pytest.raises(AliasError, match=r"gemm: .*C"):
            blas.gemm(1.0, dA, dB, 0.0, dA)
    np.testing.assert_array_equal(A, ramp(3, 3))
