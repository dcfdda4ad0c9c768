"""Arrays of which calls read some parts: these parts go up, and the rest only if a call needs it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.arrays import ramp
from helpers.reference import in_triangle
from offload_args import Device, DevicePtr, In, InOut, Out, blas, offload_args, testing, tracing, update
from offload_args.errors import DirectionError, OffloadError


@pytest.fixture(autouse=True)
def any_size() -> Iterator[None]:
    """Let parts of small arrays go up alone, too."""
    with testing.part_cost():
        yield


PARTS = {
    "row": np.s_[3, :],
    "rows": np.s_[2:4, :],
    "column": np.s_[:, 1],
    "columns": np.s_[:, 2:4],
    "block": np.s_[1:5, 2:4],
    "every third row": np.s_[::3, :],
}
USUAL = 256 << 10  # the bytes that a copy of a part counts for
DIRECTIONS: list[Callable[[Any], Any]] = [In, InOut, lambda array: array]


def numbers(*shape: int) -> NDArray[Any]:
    return ramp(*shape, dtype=np.float64)


def total(pointer: DevicePtr) -> float:
    """Return the sum of absolute values of a vector or a matrix."""
    if pointer.ndim == 1:
        return float(blas.asum(pointer))
    return float(sum(blas.asum(pointer[i]) for i in range(pointer.shape[0])))


@pytest.mark.promise("T81")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("part", list(PARTS))
@pytest.mark.parametrize("direction", DIRECTIONS, ids=["In", "InOut", "by use"])
def test_a_call_brings_up_only_what_it_reads(device: str, part: str, order: str, direction: Any) -> None:
    A = np.asarray(numbers(9, 7), order=order)  # type: ignore[call-overload]
    before, x = A.copy(), A[PARTS[part]]
    with testing.counting(Device(device)) as moved, offload_args(direction(A), device=device) as (dA,):
        for _ in range(2):
            assert total(dA[PARTS[part]]) == np.abs(x).sum()
            assert moved.bytes_up == x.nbytes
        y = np.ones(7)
        with offload_args(In(np.ones(9)), y, device=device) as (ones, dy):
            blas.gemv(1.0, dA, ones, 0.0, dy, trans="T")
        assert moved.bytes_up == A.nbytes + 72
        np.testing.assert_allclose(y, A.sum(0))
    assert moved.bytes_down == y.nbytes
    assert np.array_equal(A, before)


def test_more_than_half_brings_all_up(device: str) -> None:
    A = numbers(8, 5)
    with testing.counting(Device(device)) as moved, offload_args(In(A), device=device) as (dA,):
        assert blas.asum(dA[:4].reshape(-1)) == np.abs(A[:4]).sum()
        assert moved.bytes_up == A.nbytes


def test_small_arrays_and_many_parts_go_up_whole(device: str) -> None:
    A, x = np.ones((4096, 512)), np.ones((64, 64))  # 16 MiB, 32 KiB
    with testing.part_cost(USUAL), testing.counting(Device(device)) as moved:
        with offload_args(In(x), device=device) as (dx,):
            blas.asum(dx[3])
            assert moved.bytes_up == x.nbytes
        before = moved.bytes_up
        with offload_args(In(A), device=device) as (dA,):
            blas.asum(dA[0])
            assert moved.bytes_up - before == A[0].nbytes
            for row in range(1, 100):
                blas.asum(dA[row])
            assert moved.bytes_up - before == A.nbytes


def test_many_short_parts_are_not_left_out_of_the_copy_of_the_rest(device: str) -> None:
    A = np.ones((2000, 400))
    with (
        testing.part_cost(USUAL),
        testing.counting(Device(device)) as moved,
        offload_args(In(A), device=device) as (dA,),
    ):
        for column in range(0, 400, 2):
            assert blas.asum(dA[:, column]) == 2000
    assert moved.copies_up < 20
    assert moved.bytes_up < A.nbytes + 20 * 2000 * 8


def test_a_loop_over_blocks_sends_each_byte_once(device: str) -> None:
    A = numbers(64, 6)
    with testing.counting(Device(device)) as moved, offload_args(In(A), device=device) as (dA,):
        for first in range(0, 64, 4):
            assert blas.asum(dA[first : first + 4].reshape(-1)) == np.abs(A[first : first + 4]).sum()
        assert moved.bytes_up == A.nbytes


@pytest.mark.parametrize("order", ["C", "F"])
def test_parts_that_are_read_and_written_come_down_alone(device: str, order: str) -> None:
    C = np.asarray(numbers(12, 5), order=order)  # type: ignore[call-overload]
    expected, is_async = C.copy(), device != "host"
    expected[2:4] *= 3
    expected[7] = 1
    with testing.counting(Device(device)) as moved, offload_args(C, device=device) as (dC,):
        for row in (2, 3):
            blas.scal(3.0, dC[row])
        dC[7].fill(1)
        assert blas.asum(dC[2]) == np.abs(expected[2]).sum()
    assert np.array_equal(C, expected)
    if is_async:
        assert (moved.bytes_up, moved.bytes_down) == (2 * 5 * 8, 3 * 5 * 8)


def test_a_slice_takes_nothing_from_between_the_rows_of_its_array(device: str) -> None:
    whole = numbers(2000, 6, 8)
    A, between, copy = whole[:, :, :3], whole[:, :, 3:], np.zeros((2, 2, 3))
    expected = whole.copy()
    expected[:, :, 3:] = 5
    expected[7:9, 1:3, :3] = 2
    with offload_args(A, between, copy, device=device) as (dA, other, dcopy):
        other.fill(5)
        dcopy.copy_from(dA[1:3, 1:3])  # other bytes are between the bytes of this slice
        dA[7:9, 1:3].fill(2)
    assert np.array_equal(whole, expected)
    assert np.array_equal(copy, expected[1:3, 1:3, :3])


def test_elements_that_are_not_lent_stay_as_the_host_writes_them(device: str) -> None:
    whole = numbers(20, 6, 8)
    with offload_args(whole[:, :, :3], device=device) as (dA,):
        dA[1:3, 1:3].fill(7)
        whole[:, :, 3:] = -1
    assert np.array_equal(whole[:, :, 3:], np.full((20, 6, 5), -1.0))
    assert np.array_equal(whole[1:3, 1:3, :3], np.full((2, 2, 3), 7.0))


@pytest.mark.parametrize("uplo", ["U", "L"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_triangle_of_a_block_is_read_and_written(device: str, uplo: str, order: str) -> None:
    A, C = numbers(3, 2), np.asarray(numbers(11, 9), order=order)  # type: ignore[call-overload]
    expected = C.copy()
    block = expected[4:7, 3:6]
    block[in_triangle(3, uplo)] += (A @ A.T)[in_triangle(3, uplo)]
    with offload_args(In(A), C, device=device) as (dA, dC):
        blas.syrk(1.0, dA, 1.0, dC[4:7, 3:6], uplo=uplo)
        assert blas.asum(dC[10]) == np.abs(C[10]).sum()
        blas.scal(1.0, dC[0])
    assert np.array_equal(C, expected)


def test_operands_of_one_array_go_up_together(device: str) -> None:
    A = numbers(20, 4)
    with testing.counting(Device(device)) as moved, offload_args(A, device=device) as (dA,):
        assert blas.dot(dA[2], dA[9]) == A[2] @ A[9]
        assert moved.bytes_up == 2 * A[0].nbytes


def test_an_update_of_the_host_is_seen(device: str) -> None:
    A = numbers(16, 4)
    with offload_args(A, device=device) as (dA,):
        for value in (5.0, 7.0):
            assert blas.asum(dA[3]) == np.abs(A[3]).sum()
            with update(A):
                A[3] = value
                A[9] = -value
            assert blas.asum(dA[3]) == 4 * value
            blas.scal(2.0, dA[9])
            assert blas.asum(dA[9]) == 8 * value
            update(A)
            assert A[9, 0] == -2 * value
            with update(A[2:4]):
                A[3] = value + 1
            assert blas.asum(dA[3]) == 4 * (value + 1)


def test_an_update_waits_for_calls_that_read_the_old_elements() -> None:
    device = testing.sim_device(delay_us=2000)
    try:
        A, y = numbers(400, 6), np.empty(6)
        with offload_args(A, y, device=device) as (dA, dy):
            expected = A[3].copy()
            blas.asum(dA[3])
            blas.copy(dA[3], dy)
            with update(A):
                A[3] = -1
            blas.asum(dA[3])
        assert np.array_equal(y, expected)
    finally:
        testing.sim_device()


def test_an_out_of_an_inner_region_shows_nothing_that_is_there(device: str) -> None:
    A = numbers(16, 4)
    with offload_args(A, device=device) as (dA,):
        blas.asum(dA[3])
        with offload_args(Out(A[3:5]), device=device) as (part,):
            with pytest.raises(DirectionError, match="would be read before it is written"):
                blas.asum(part[0])
            part.fill(2)
    assert np.array_equal(A[3:5], np.full((2, 4), 2.0))


def test_a_graph_brings_the_rest_up(device: str) -> None:
    A, y = numbers(12, 4), np.zeros(4)
    with (region := offload_args(A, y, device=device)) as (dA, dy):
        blas.asum(dA[2])
        with region.capture() as graph:
            blas.axpy(1.0, dA[2], dy)
        graph.replay()
        with update(A):
            A[2] = 1
        graph.replay()
    assert np.array_equal(y, numbers(12, 4)[2] + 1)


@pytest.mark.parametrize("writes", [False, True])
def test_no_backend_call_that_fails_spoils_an_array_that_is_read_by_parts(writes: bool) -> None:
    device = testing.sim_device()
    for k in range(1, 60):
        A = numbers(16, 4)
        before, sums = A.copy(), []
        testing.fail_call(device, k)
        try:
            with offload_args(A, device=device) as (dA,):
                for row in (3, 7, 3):
                    try:
                        sums.append((row, blas.asum(dA[row])))
                        if writes:
                            blas.scal(2.0, dA[row + 1])
                    except OffloadError:
                        sums.append((row, blas.asum(dA[row])))
                raise ZeroDivisionError
        except (OffloadError, ZeroDivisionError):
            pass
        finally:
            testing.fail_call(device, 0)
        assert np.array_equal(A, before)
        assert all(value == np.abs(before[row]).sum() for row, value in sums)


def test_threads_read_and_write_parts_of_one_array(device: str) -> None:
    A = numbers(64, 8)
    expected = A.copy()
    expected[32:] *= 2

    def read(seed: int) -> None:
        rows = random.Random(seed)
        for _ in range(20):
            row = rows.randrange(32)
            assert blas.asum(dA[row]) == np.abs(expected[row]).sum()

    def write(half: int) -> None:
        for row in range(32 + half, 64, 2):
            blas.scal(2.0, dA[row])

    with offload_args(A, device=device) as (dA,), ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, i) for work in (read, write) for i in range(2)]:
            done.result()
    assert np.array_equal(A, expected)


def test_two_devices_read_parts_of_one_array() -> None:
    A = numbers(16, 4)
    with offload_args(In(A), device="sim:0") as (first,), offload_args(In(A), device="sim:1") as (second,):
        assert blas.asum(first[2]) == blas.asum(second[2]) == np.abs(A[2]).sum()
        assert blas.asum(second.reshape(-1)) == blas.asum(first.reshape(-1)) == np.abs(A).sum()


@pytest.mark.promise("T81")
def test_the_trace_says_how_much_was_spared(device: str) -> None:
    A: NDArray[Any] = numbers(64, 32)
    with tracing.trace() as trace, offload_args(In(A), device=device) as (dA,):
        blas.asum(dA[5])
    assert trace.summary.bytes_spared == 63 * 256
    assert "15.8 KiB spared: calls read other parts of the arrays" in str(trace.summary)
