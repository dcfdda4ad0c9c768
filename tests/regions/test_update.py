"""update and assign copy exact bytes to and from the host while a region is open."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import (
    In,
    InOut,
    Out,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    DirectionError,
    DTypeError,
    PresentError,
    RegionError,
)


def test_update_brings_the_bytes_that_the_device_wrote(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        update(x)
        np.testing.assert_array_equal(x, 2 * ramp(8))
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 4 * ramp(8))


def test_update_commits_even_if_the_body_then_raises(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError):
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            update(x)
            blas.scal(2.0, dx)
            raise KeyError
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_with_update_the_host_writes_on_purpose(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        with update(x) as host:
            assert host is x
            x[0] = 100
        assert not x.flags.writeable
        with update(x[2:4]) as part:
            part[:] = 7
        assert not x.flags.writeable
        total = blas.asum(dx)
    expected = 2 * ramp(8)
    expected[0], expected[2:4] = 100, 7
    np.testing.assert_array_equal(x, expected)
    assert total == expected.sum()
    assert x.flags.writeable


def test_update_of_an_array_that_is_not_lent_names_the_remedy(device: str) -> None:
    with pytest.raises(PresentError, match=r"update.*not present"):
        update(ramp(8))
    with offload_args(ramp(8), device=device) as (dx,):
        with pytest.raises(TypeError, match="NumPy array"):
            update(dx)  # type: ignore[arg-type]


def test_assign_writes_host_values(device: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, device=device) as (dA,):
        dA[1].assign(np.array([9, 8, 7, 6], np.float32))
        dA[:, 3].assign(0)
        dA[2:, :2].assign(0.5)
    expected = ramp(3, 4)
    expected[1], expected[:, 3], expected[2:, :2] = [9, 8, 7, 6], 0, 0.5
    np.testing.assert_array_equal(A, expected)


def test_assign_converts_nothing_but_python_numbers(device: str) -> None:
    x, n = ramp(4), ramp(4, dtype=np.int32)
    with offload_args(x, n, In(ramp(4)), device=device) as (dx, dn, fixed):
        with pytest.raises(TypeError, match="needs float32, got float64"):
            dx.assign(np.zeros(4))
        with pytest.raises(TypeError, match="needs float32, got complex"):
            dx.assign(1j)
        with pytest.raises(TypeError, match="needs int32, got float"):
            dn.assign(0.5)
        with pytest.raises(ValueError, match="broadcast"):
            dx.assign(np.zeros(3, np.float32))
        with pytest.raises(DirectionError):
            fixed.assign(1)
        with pytest.raises(TypeError, match="use copy_from"):
            dx.assign(fixed)
    np.testing.assert_array_equal(x, ramp(4))


@pytest.mark.copies
def test_an_irregular_part_of_a_lent_array_is_updated_exactly(device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx[0])
        with update(x[::2, ::2]) as part:
            np.testing.assert_array_equal(part[0], [0, 4, 8])
            assert x[0, 1] == 1.0  # this element is not in the part
            part[:] = 7.0
    expected = np.arange(24.0).reshape(4, 6)
    expected[0] *= 2
    expected[::2, ::2] = 7.0
    np.testing.assert_array_equal(x, expected)


def test_a_part_with_no_elements_may_be_written_as_any_other(device: str) -> None:
    A = np.zeros((4, 6))[:, :5]  # a matrix with gaps
    with offload_args(A, device=device):
        for part in (A, A[:, 3:3], A[4:], A[2:2, 1:3]):
            with update(part):
                part[...] = 1.0
    np.testing.assert_array_equal(A, np.ones((4, 5)))


@pytest.mark.promise("T55")
def test_irregular_slices_of_a_matrix_with_gaps_are_assigned(device: str) -> None:
    base = np.arange(54.0).reshape(6, 9)
    A = base[:, :7]
    expected = base.copy()
    with offload_args(A, device=device) as (dA,):
        dA[::2, ::2].assign(np.arange(12.0).reshape(3, 4))
        dA[5:0:-2, ::-3].assign(-1.0)
    expected[::2, :7:2] = np.arange(12.0).reshape(3, 4)
    expected[5:0:-2, 6::-3] = -1.0
    np.testing.assert_array_equal(base, expected)


@pytest.mark.promise("T55")
def test_threads_assign_to_disjoint_slices(device: str) -> None:
    if device.startswith("sim"):
        testing.sim_device(index=int(device[-1]), delay_us=50)
    A = np.zeros((6, 6))
    with offload_args(A, device=device) as (dA,):

        def assign(row: int, column: int) -> None:
            for value in range(30):
                dA[row::2, column::2].assign(float(4 * value + 2 * row + column))

        threads = [threading.Thread(target=assign, args=(i // 2, i % 2)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = np.zeros((6, 6))
    for i in range(4):
        expected[i // 2 :: 2, i % 2 :: 2] = 4 * 29 + i
    np.testing.assert_array_equal(A, expected)


@pytest.mark.promise("T61")
def test_the_address_of_one_panel_says_nothing_of_another(device: str) -> None:
    A = np.arange(32.0).reshape(4, 8)
    left, right = A[:, :4], A[:, 4:]
    with offload_args(left, right, device=device) as (dl, _):
        assert dl.address
        update(right)
        np.testing.assert_array_equal(A, np.arange(32.0).reshape(4, 8))
    np.testing.assert_array_equal(A, np.arange(32.0).reshape(4, 8))


@pytest.mark.promise("T61")
def test_the_address_of_an_out_beside_an_overlapping_array_takes_nothing_from_it(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[:4]), x, device=device) as (out, dx):
        assert out.address
        assert blas.asum(dx) == 28.0
    np.testing.assert_array_equal(x, np.arange(8.0))


@pytest.mark.promise("T61")
def test_the_address_of_an_out_leaves_its_neighbours_alone(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[0::2]), InOut(x[1::2]), device=device) as (da, db):
        blas.scal(2.0, db)
        assert da.address
    np.testing.assert_array_equal(x[1::2], [2, 6, 10, 14])


def test_a_part_of_a_lent_reshaped_array_may_be_updated(device: str) -> None:
    A = np.arange(12.0).reshape(3, 4)
    with offload_args(A, device=device) as (dA,):
        blas.scal(2.0, dA[0])
        with update(A[1]) as row:
            row[:] = 5
        blas.scal(2.0, dA[1])
    np.testing.assert_array_equal(A[1], [10, 10, 10, 10])


def test_arrays_that_no_device_holds_are_refused_as_in_lending(device: str) -> None:
    for wrong in (np.array([None]), np.array(["text"])):
        with pytest.raises(DTypeError, match="update: array has dtype .*, which devices can't hold: lend an array of"):
            update(wrong, device=device)


def test_a_block_that_is_left_twice_is_refused(device: str) -> None:
    x = np.arange(4.0)
    with offload_args(x, device=device) as (dx,):
        block = update(x)
        for _ in range(2):
            with block:
                x[:] = 1
            with pytest.raises(RegionError, match="update: this block is not entered"):
                block.__exit__(None, None, None)
        assert blas.asum(dx) == 4.0
    assert x.flags.writeable
