"""One array on several devices: results are never lost, and reach every holder."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.devices import open_or_skip
from offload_args import In, blas, offload_args, testing, update
from offload_args.errors import DirectionError, PresentError

PAIRS = (("sim:0", "sim:1"), ("host", "sim:1"), ("sim:0", "host"), ("cuda:0", "sim:1"), ("cuda:0", "cuda:1"))


@pytest.fixture(params=PAIRS, ids="-".join)
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two devices that are here."""
    first, second = request.param
    yield open_or_skip(first), open_or_skip(second)


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
            except DirectionError:  # the other device has it
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
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_bytes_the_host_writes_reach_packed_arrays_or_are_refused(device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    with offload_args(In(x), device="sim:2"), offload_args(x[::2, ::-2], device=device) as (packed,):
        assert blas.asum(packed[0]) == 9.0
        with update(x):
            x[:] = 1.0
        assert blas.asum(packed[1]) == 3.0
        with pytest.raises(PresentError, match=r"update: .* can't be named in what is present"):
            with update(x[0, ::2]):
                raise AssertionError("nothing may be written")
    np.testing.assert_array_equal(x, 1.0)


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
