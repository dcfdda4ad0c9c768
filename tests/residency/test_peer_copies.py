"""Bytes that are on one device are copied from it to another device, and not from the host."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.devices import open_or_skip
from helpers.residency import ramp
from offload_args import Device, In, Out, blas, offload_args, testing, trace, update
from offload_args.errors import DirectionError

PAIRS = (("sim:0", "sim:1"), ("cuda:0", "cuda:1"), ("hip:0", "hip:1"))
LARGE = 1 << 18  # elements of float32: 1 MiB


@pytest.fixture(params=PAIRS, ids="-".join)
def peers(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two available devices of the same kind."""
    first, second = request.param
    return open_or_skip(first), open_or_skip(second)


def read(x: Array, device: str) -> tuple[testing.Moved, Array]:
    """Copy an array on a device; return the counts of transfers, and the copy."""
    result = np.empty_like(x)
    with testing.counting(Device(device)) as moved, offload_args(In(x), Out(result), device=device) as (dx, dresult):
        dresult.copy_from(dx)
    return moved, result


def test_an_array_that_one_device_has_goes_to_the_other_from_there(peers: tuple[str, str]) -> None:
    first, second = peers
    x = ramp(LARGE)
    with offload_args(x, device=first) as (dx,):
        expected = blas.asum(dx)
        with (
            testing.counting(Device(second)) as moved,
            trace() as recording,
            offload_args(x, device=second) as (there,),
        ):
            assert blas.asum(there) == expected
    assert (moved.copies_peer, moved.bytes_peer, moved.copies_up) == (1, x.nbytes, 0)
    (copy,) = [event for event in recording.events if event.kind == "peer"]
    assert (copy.name, copy.nbytes, copy.device) == ("x", x.nbytes, second)
    assert copy.why.startswith(f"from {first}, first read by ")
    assert (recording.summary.copies_peer, recording.summary.bytes_peer, recording.summary.copies_up) == (
        1,
        x.nbytes,
        0,
    )
    assert "peer  1 copy, 1 MiB" in str(recording.summary)
    assert "copied from peers" in Device(second)._repr_html_()


def test_parts_rows_and_columns_of_what_one_device_has(peers: tuple[str, str]) -> None:
    first, second = peers
    A = ramp(1 << 20).reshape(1024, 1024)
    with offload_args(In(A), device=first) as (dA,):
        blas.asum(dA.reshape(-1))
        for part in (A[100:900], A[:, 100:900], A[3:900, 7:901], A.T[5:, :900]):
            moved, result = read(part, second)
            np.testing.assert_array_equal(result, part)
            goes = not first.startswith("hip") or part.flags.c_contiguous  # HIP does not copy short lines
            assert (moved.copies_peer, moved.copies_up) == ((1, 0) if goes else (0, 1))
            assert moved.bytes_peer == goes * part.nbytes


def test_what_a_device_wrote_goes_on_once_it_was_updated(peers: tuple[str, str]) -> None:
    first, second = peers
    x = ramp(LARGE)
    with offload_args(x, device=first) as (dx,):
        blas.scal(2.0, dx)
        with pytest.raises(DirectionError, match="present on another device too"), offload_args(x, device=second):
            pass
        update(x)
        moved, result = read(x, second)
        np.testing.assert_array_equal(result, 2 * ramp(LARGE))
        assert (moved.copies_peer, moved.copies_up) == (1, 0)
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 4 * ramp(LARGE))


def test_what_the_host_writes_within_an_update_reaches_the_other_device(peers: tuple[str, str]) -> None:
    first, second = peers
    x = ramp(LARGE)
    with offload_args(x, device=first) as (dx,):
        blas.asum(dx)
        with update(x):
            x[:] = 1
            np.testing.assert_array_equal(read(x, second)[1], x)
        with pytest.raises(ZeroDivisionError), update(x[3:]) as part:
            part[:] = 2
            np.testing.assert_array_equal(read(x, second)[1], x)
            raise ZeroDivisionError
        with update(x):
            pass
        moved, result = read(x, second)
        np.testing.assert_array_equal(result, x)
        assert (moved.copies_peer, moved.copies_up) == (1, 0)


def test_resident_results_go_on_until_the_host_writes_them(peers: tuple[str, str], tracked: None) -> None:
    first, second = peers
    x = ramp(LARGE)
    with offload_args(x, device=first, resident=True) as (dx,):
        blas.scal(2.0, dx)
    moved, result = read(x, second)
    np.testing.assert_array_equal(result, 2 * ramp(LARGE))
    assert (moved.copies_peer, moved.copies_up) == (1, 0)
    x[1000] = 7.0
    moved, result = read(x, second)
    np.testing.assert_array_equal(result, x)
    assert (moved.copies_peer, moved.copies_up) == (0, 1)
    Device(first).release(x)


def test_small_arrays_go_up_from_the_host_of_real_devices(peers: tuple[str, str]) -> None:
    first, second = peers
    x = ramp(64)
    with offload_args(x, device=first) as (dx,):
        blas.asum(dx)
        moved, result = read(x, second)
    np.testing.assert_array_equal(result, ramp(64))
    assert moved.copies_peer == first.startswith("sim")
    assert moved.copies_peer + moved.copies_up == 1


@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_threads_on_both_devices_read_what_either_wrote(peers: tuple[str, str], rounds: int) -> None:
    x = ramp(LARGE)
    for name in peers:
        if name.startswith("sim"):
            testing.sim_device(index=int(name[-1]), delay_us=100)
    faults: list[str] = []

    def run(device: str) -> None:
        written = 0
        while written < rounds:
            try:
                with offload_args(x, device=device, resident=True) as (dx,):
                    before = blas.asum(dx[:2]), blas.asum(dx[-2:])
                    if before[1] - before[0] != 2 * (LARGE - 2):  # each round adds the same number to each element
                        faults.append(f"{device}: {before}")
                    with offload_args(np.ones(LARGE, np.float32), device=device) as (ones,):
                        blas.axpy(1.0, ones, dx)
                    written += 1
            except DirectionError:  # the other device has x
                time.sleep(0.0005)
                continue

    threads = [threading.Thread(target=run, args=(device,)) for device in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    np.testing.assert_array_equal(x, ramp(LARGE) + 2 * rounds)
    for name in peers:
        Device(name).release(x)
