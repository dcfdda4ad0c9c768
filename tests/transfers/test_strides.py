"""Arrays with strides and matrices in both orders: which are packed, and which are copied unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import (
    Device,
    InOut,
    Out,
    blas,
    offload_args,
    testing,
)
from offload_args.errors import (
    PerformanceWarning,
)


@pytest.mark.promise("T25")
@pytest.mark.parametrize(
    "part", [np.s_[::-1], np.s_[::3], np.s_[1::2], np.s_[-2::-3]], ids=["reversed", "every 3rd", "odd", "back"]
)
def test_strided_vectors_are_read_and_written_right(device: str, part: slice) -> None:
    base = ramp(12)
    expected = base.copy()
    expected[part] *= 2
    with pytest.warns(PerformanceWarning, match="argument 1") as caught:
        with offload_args(base[part], device=device) as (dx,):
            assert blas.asum(dx) == base[part].sum()
            blas.scal(2.0, dx)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(base, expected)  # the gaps must be unchanged


def test_the_warning_of_a_packed_array_names_a_way_without_packing(device: str) -> None:
    base, y = ramp(12), np.zeros(6, np.float32)
    with pytest.warns(PerformanceWarning, match=r"the whole array and slice its pointer, such as dx\[::2\]$"):
        with offload_args(base[::2], device=device):
            pass
    with offload_args(base, y, device=device) as (dx, dy):  # the warning's advice, without a second warning
        blas.copy(dx[::2], dy)
    np.testing.assert_array_equal(y, base[::2])
    for array in (
        ramp(4, 4)[::2, ::2],
        ramp(6, 2, 2)[::2, ::-1],
    ):  # functions take no such slices of a matrix or a batch
        with pytest.warns(PerformanceWarning, match="to avoid that, lend a contiguous array$"):
            with offload_args(array, device=device):
                pass


@pytest.mark.promise("T25")
@pytest.mark.parametrize("part", [np.s_[::2, ::2], np.s_[::-1, :], np.s_[:, ::-1], np.s_[::2, 1::3]])
def test_strided_matrices_are_read_and_written_right(device: str, part: Any) -> None:
    base = ramp(6, 6)
    x = np.ones(base[part].shape[1], np.float32)
    y = np.zeros(base[part].shape[0], np.float32)
    expected = base.copy()
    expected[part] = np.outer(base[part] @ x, x) + base[part]
    product = base[part] @ x
    with pytest.warns(PerformanceWarning):
        with offload_args(base[part], x, y, device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            blas.ger(1.0, dy, dx, dA)
    np.testing.assert_array_equal(y, product)
    np.testing.assert_array_equal(base, expected)


@pytest.mark.promise("T25")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_a_broadcast_view_can_be_read_but_not_written(device: str) -> None:
    row = np.broadcast_to(np.float32(3), (4,))
    y = np.zeros(4, np.float32)
    with offload_args(row, y, device=device) as (dx, dy):
        blas.copy(dx, dy)
        with pytest.raises(ValueError, match="scal"):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(y, np.full(4, 3))
    writable = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (4,), (0,))
    for declared in (Out, InOut):
        with pytest.raises(ValueError, match="argument 1"):
            with offload_args(declared(writable), device=device):
                pass


@pytest.mark.promise("T25")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_an_output_that_overlaps_itself_is_refused(device: str) -> None:
    windows = np.lib.stride_tricks.as_strided(ramp(8), (4, 3), (4, 4))
    with pytest.raises(ValueError, match="argument 1"):
        with offload_args(Out(windows), device=device):
            pass
    y = np.zeros(4, np.float32)
    with offload_args(windows, np.ones(3, np.float32), y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, windows.sum(axis=1))


@pytest.mark.promise("T26")
@pytest.mark.parametrize(
    ("make", "ld"),
    [
        (lambda: ramp(3, 5), 5),
        (lambda: ramp(3, 5, order="F"), 3),
        (lambda: ramp(3, 5).T, 5),
        (lambda: ramp(3, 8)[:, 2:7], 8),
        (lambda: ramp(8, 5, order="F")[2:5], 8),
        (lambda: ramp(9, 5)[3:6], 5),
        (lambda: ramp(9, 5)[::3], 15),
        (lambda: ramp(1, 5), 1),
        (lambda: ramp(5, 1), 1),
        (lambda: ramp(5, 1, order="F"), 1),
        (lambda: ramp(1, 5, order="F"), 1),
    ],
)
def test_matrices_in_either_order_are_lent_without_repacking(device: str, make: Any, ld: int) -> None:
    A = make()
    x, y = ramp(A.shape[1]), np.zeros(A.shape[0], np.float32)
    with testing.counting(Device(device)) as moved, offload_args(A, x, y, device=device) as (dA, dx, dy):
        assert dA.ld == ld
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, A @ x)
    assert moved.copies_up == 2
