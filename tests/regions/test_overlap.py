"""Arrays of one region that share memory on the host share it on the device.

Overlap that would change a result is refused.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import copied
from offload_args import (
    Device,
    In,
    Out,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    AliasError,
    PresentError,
)

# Two parts of an 8 x 8 matrix whose elements interleave in memory.
INTERLEAVED: Final = {
    "columns": (np.s_[:, :3], np.s_[:, 3:]),
    "columns-within": (np.s_[:, 3:5], np.s_[:, 5:7]),
    "elements-of-a-row": (np.s_[2, ::2], np.s_[2, 1::2]),
    "one-column-reversed": (np.s_[::-1, 1], np.s_[:, 2:]),
}


@pytest.mark.promise("T13")
def test_the_same_array_twice_is_one_buffer(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, x, device=device) as (a, b):
        assert moved.mappings == 1
        blas.scal(2.0, a)
        assert blas.asum(b) == 2 * ramp(8).sum()
    assert (moved.copies_up, moved.copies_down) == copied(device, 1, 1)
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
    assert (moved.copies_up, moved.copies_down) == copied(device, 2, 1)
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


@pytest.mark.promise("T14")
def test_threads_lend_chunks_of_columns_of_one_array_at_once(device: str) -> None:
    A, all_are_present = ramp(6, 8), threading.Barrier(4)

    def work(chunk: int) -> None:
        columns = A[:, 2 * chunk : 2 * chunk + 2]
        with offload_args(columns, device=device) as (d,):
            all_are_present.wait()
            for row in range(len(A)):
                blas.scal(chunk + 1.0, d[row])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    np.testing.assert_array_equal(A, ramp(6, 8) * np.repeat([1.0, 2.0, 3.0, 4.0], 2))


@pytest.mark.copies
@pytest.mark.promise("T14")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first-outside", "second-outside"])
@pytest.mark.parametrize("parts", INTERLEAVED)
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_parts_that_interleave_are_lent_apart_in_any_order(device: str, parts: str, order: tuple[int, int]) -> None:
    A, expected = ramp(8, 8), ramp(8, 8)
    first, other = (INTERLEAVED[parts][i] for i in order)
    with offload_args(A[first], device=device) as (outer,):
        outer.fill(2.0)
        with offload_args(A[other], device=device) as (inner,):
            inner.fill(3.0)
            update(A[other])
            expected[other] = 3.0
            np.testing.assert_array_equal(A, expected)
        np.testing.assert_array_equal(outer.to_host(), np.full(A[first].shape, 2.0))
    expected[first] = 2.0
    np.testing.assert_array_equal(A, expected)


@pytest.mark.promise("T14")
def test_columns_of_which_some_are_present_are_lent_together(device: str) -> None:
    A, expected = ramp(4, 6), ramp(4, 6)
    with offload_args(A[:, 2:4], device=device) as (middle,):
        with offload_args(A[:, :2], A[:, 2:4], A[:, 4:], device=device) as (left, same, right):
            left.fill(1.0)
            right.fill(3.0)
            same.fill(2.0)
        np.testing.assert_array_equal(middle.to_host(), np.full((4, 2), 2.0))
    expected[:] = np.repeat([1.0, 2.0, 3.0], 2)
    np.testing.assert_array_equal(A, expected)


@pytest.mark.promise("T15")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["left-outside", "right-outside"])
def test_columns_that_share_one_are_refused_in_any_order(device: str, order: tuple[int, int]) -> None:
    A = ramp(4, 6)
    first, other = ((A[:, :3], A[:, 2:])[i] for i in order)
    with offload_args(first, device=device):
        region = offload_args(other, device=device)
        with pytest.raises(PresentError, match="reaches beyond argument 1 of another region, which holds"):
            region.open()
        both = offload_args(A, device=device)
        with pytest.raises(PresentError, match="reaches beyond argument 1 of another region, which holds"):
            both.open()
