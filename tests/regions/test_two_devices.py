"""One array on several devices: results are never lost, and reach every device that has the array."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.devices import copied, open_or_skip
from offload_args import Device, In, Out, blas, offload_args, testing, update
from offload_args.errors import DirectionError, DTypeError, PresentError, WrongDeviceError

PAIRS = (("sim:0", "sim:1"), ("host", "sim:1"), ("sim:0", "host"), ("cuda:0", "sim:1"), ("cuda:0", "cuda:1"))


@pytest.fixture(params=PAIRS, ids="-".join)
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The names of two available devices."""
    first, second = request.param
    return open_or_skip(first), open_or_skip(second)


@pytest.mark.promise("T50")
def test_a_result_is_never_lost_between_two_devices(devices: tuple[str, str]) -> None:
    x, rounds = np.zeros(64), 40
    for name in devices:
        if name.startswith("sim"):
            testing.sim_device(index=int(name[-1]), delay_us=200)

    def add(device: str) -> None:
        ones, done = np.ones(64), 0
        while done < rounds:
            try:
                with offload_args(x, ones, device=device) as (dx, dones):
                    blas.axpy(1.0, dones, dx)
            except DirectionError:  # the other device may write x
                time.sleep(0.0005)
                continue
            done += 1

    threads = [threading.Thread(target=add, args=(device,)) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(x, 2.0 * rounds)


@pytest.mark.promise("T53")
def test_bytes_the_host_writes_reach_every_device_that_has_some(devices: tuple[str, str]) -> None:
    x = np.arange(24.0).reshape(4, 6)
    first, second = devices
    with offload_args(x, device=first) as (whole,), offload_args(x[1:3], device=second) as (rows,):
        assert blas.asum(whole[0]) == 15.0 and blas.asum(rows[0]) == 51.0
        with update(x):
            x[:] = 1.0
        assert blas.asum(whole[3]) == 6.0
        assert blas.asum(rows[0]) == 6.0 and blas.asum(rows[1]) == 6.0
    np.testing.assert_array_equal(x, 1.0)


@pytest.mark.promise("T53")
@pytest.mark.parametrize("named", [None, 0, 1])
def test_an_update_that_names_one_device_reaches_every_other_one(devices: tuple[str, str], named: int | None) -> None:
    x = np.ones(1 << 15)  # large enough for copies between GPUs
    device = None if named is None else devices[named]
    with offload_args(x, device=devices[0]) as (first,):
        assert blas.asum(first) == x.size
        with offload_args(x, device=devices[1]) as (second,):
            with update(x, device=device):  # the second device has not read x yet
                x[:] = 5.0
            assert blas.asum(second) == blas.asum(first) == 5.0 * x.size
        with offload_args(x, device=devices[1]) as (later,), offload_args(x[100:200], device=devices[0]) as (part,):
            assert blas.asum(later) == 5.0 * x.size
            with update(x[:50], device=device if named == 0 else None):
                x[:50] = 7.0
            assert blas.asum(later) == blas.asum(first) == x.sum() and blas.asum(part) == 500.0


@pytest.mark.promise("T53")
def test_after_an_update_that_raises_every_device_has_what_the_host_has(devices: tuple[str, str]) -> None:
    x, out = np.ones(1 << 15), np.zeros(6)
    with offload_args(x, Out(out), device=devices[0]) as (first, dout):
        assert blas.asum(first) == x.size
        dout.fill(2.0)
        with pytest.raises(KeyError):
            with update(x):
                x[:8] = 5.0
                raise KeyError
        with pytest.raises(KeyError):
            with update(out):
                out[:] = 3.0
                raise KeyError
        with offload_args(x, out, device=devices[1]) as (second, dout2):
            assert blas.asum(second) == blas.asum(first) == x.sum() == x.size + 32
            assert blas.asum(dout2) == blas.asum(dout) == 18.0
        dout.fill(1.0)
        blas.scal(2.0, first[8:])
        with pytest.raises(KeyError):
            with update(x[:4]):
                x[:4] = 9.0
                raise KeyError
    assert x[:10].tolist() == [9.0] * 4 + [5.0] * 4 + [2.0] * 2 and out.tolist() == [1.0] * 6


@pytest.mark.copies
@pytest.mark.promise("T53")
def test_calls_within_an_update_read_what_the_host_wrote_so_far(devices: tuple[str, str]) -> None:
    x, out = np.ones(1 << 15), np.zeros(6)
    with offload_args(x, Out(out), device=devices[0]) as (first, dout), offload_args(x, device=devices[1]) as (second,):
        assert blas.asum(first) == x.size
        dout.fill(2.0)
        with update(x, device=devices[1]), update(out):
            for value in (2.0, 3.0):
                x[5], out[1] = value, value
                assert blas.asum(first) == blas.asum(second) == x.sum()
                assert blas.asum(dout) == out.sum() == 10.0 + value
        assert blas.asum(first) == blas.asum(second) == x.sum()
        np.testing.assert_array_equal(dout.to_host(), out)


@pytest.mark.copies
@pytest.mark.promise("T53")
def test_updates_that_overlap_reach_every_device_in_any_order_of_their_ends(devices: tuple[str, str]) -> None:
    x = np.ones(64)
    with offload_args(x, device=devices[0]) as (first,), offload_args(x, device=devices[1]) as (second,):
        assert blas.asum(first) == blas.asum(second) == 64.0
        outer, inner = update(x[:8]), update(x[4:12])
        left, other = outer.__enter__(), inner.__enter__()
        left[:], other[:] = 2.0, 4.0
        outer.__exit__(None, None, None)
        assert blas.asum(first) == x.sum()
        other[:] = 3.0
        inner.__exit__(None, None, None)
        assert blas.asum(first) == blas.asum(second) == x.sum()


@pytest.mark.promise("T53")
def test_a_part_that_the_host_writes_is_all_that_goes_up(devices: tuple[str, str]) -> None:
    x = np.ones(1000)
    with offload_args(x, device=devices[0]) as (first,), offload_args(x, device=devices[1]) as (second,):
        assert blas.asum(first) == blas.asum(second) == 1000.0
        left, other = (testing.counting(Device(name)) for name in devices)
        with left as first_moved, other as second_moved:
            with update(x[10:20]) as part:
                part[:] = 2.0
            assert blas.asum(first) == blas.asum(second) == 1010.0
        assert (first_moved.bytes_up, second_moved.bytes_up) == (copied(devices[0], 80), copied(devices[1], 80))


@pytest.mark.promise("T53")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_bytes_the_host_writes_reach_packed_arrays_or_are_refused(device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    with offload_args(In(x), device="sim:2"), offload_args(x[::2, ::-2], device=device) as (packed,):
        assert blas.asum(packed[0]) == 9.0
        with update(x):
            x[:] = 1.0
        assert blas.asum(packed[1]) == 3.0
        with update(x[0, ::2]) as part:  # the whole packed array goes up again
            part[:] = 2.0
        np.testing.assert_array_equal(packed.to_host(), x[::2, ::-2])
        assert blas.asum(packed[0]) == np.abs(x[0, ::-2]).sum()
    with offload_args(x[::2, ::-2], device=device) as (packed,):
        packed.fill(4.0)
        with pytest.raises(PresentError, match=r"update: .* shares bytes with .*, which is present, and no copy"):
            with update(x[0, 1:4:2]):
                raise AssertionError("nothing may be written")
        with pytest.raises(PresentError, match="is not present on the device"):
            update(x[1, ::2])  # between the lines of the packed array
        update(x[::2, ::-2])
        assert x[::2, ::-2].tolist() == [[4.0] * 3] * 2


@pytest.mark.promise("T50")
def test_an_array_on_two_devices_can_be_read_but_not_written_on_both() -> None:
    x = np.arange(4.0)
    with offload_args(x, device="sim:1") as (first,), offload_args(x, device="sim:2") as (second,):
        assert blas.asum(first) == blas.asum(second) == 6
        with pytest.raises(ValueError, match="dscal: x is present on sim:2 too"):
            blas.scal(2.0, first)
        with pytest.raises(ValueError, match="dscal: x is present on sim:1 too"):
            blas.scal(2.0, second)
    with offload_args(x, device="sim:1") as (first,):
        blas.scal(2.0, first)
    np.testing.assert_array_equal(x, 2 * np.arange(4.0))


def test_no_elements_are_copied_between_devices_or_dtypes_either(devices: tuple[str, str]) -> None:
    x, y, other = np.ones(8), np.ones(8), np.ones(8, np.int64)
    with offload_args(x, other, device=devices[0]) as (dx, dother), offload_args(y, device=devices[1]) as (dy,):
        for count in (0, 3):
            with pytest.raises(WrongDeviceError, match="all pointers of a call must be on one device"):
                dx[:count].copy_from(dy[:count])
            with pytest.raises(DTypeError, match="source needs float64, got a pointer to int64"):
                dx[:count].copy_from(dother[:count])
            dx[:count].copy_from(dx[4 : 4 + count])


@pytest.mark.promise("T50")
def test_two_devices_write_different_columns_of_one_array(devices: tuple[str, str]) -> None:
    A = np.zeros((4, 6))
    with offload_args(A[:, :2], device=devices[0]) as (left,), offload_args(A[:, 2:], device=devices[1]) as (right,):
        left.fill(1.0)
        right.fill(2.0)
        blas.scal(3.0, left[1])
        with pytest.raises(DirectionError, match="another device"):
            offload_args(A[:, 1:3], device=devices[0]).open()
    assert A.tolist() == [[1.0] * 2 + [2.0] * 4, [3.0] * 2 + [2.0] * 4, *[[1.0] * 2 + [2.0] * 4] * 2]


@pytest.mark.promise("T50")
def test_columns_that_another_device_once_read_are_written_beside_others_there(
    devices: tuple[str, str],
) -> None:
    A = np.zeros((4, 6))
    with offload_args(A[:, :2], device=devices[0]) as (left,):
        with offload_args(In(A[:, 1:3]), device=devices[1]) as (middle,):
            assert blas.asum(middle[0]) == blas.asum(left[0]) == 0
        with offload_args(A[:, 2:], device=devices[1]) as (right,):
            right.fill(2.0)
            assert blas.asum(left[0]) == 0
            np.testing.assert_array_equal(left.to_host(), 0)
            left.fill(1.0)
    assert A.tolist() == [[1.0] * 2 + [2.0] * 4] * 4
