"""keep and release, and resident arrays of many threads on full and failing devices."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from helpers.memory import check_no_leak
from helpers.residency import N, ramp, sent
from offload_args import Device, blas, offload_args, testing
from offload_args.errors import (
    ArgumentTypeError,
    DeviceMemoryError,
)


def test_keep_keeps_until_release(device: str, tracked: None) -> None:
    d, x = Device(device), ramp()
    with testing.counting(d) as moved:
        d.keep(x)
        d.keep(x)
    assert moved.bytes_up == 0
    assert [sent(x, device) for _ in range(2)] == [x.nbytes, 0]
    with offload_args(x, device=device) as (dx,):
        d.release(x)  # x is lent, so the memory is freed with the region
        blas.scal(2.0, dx)
    assert x[1] == 2 and d.residency.kept == 0
    assert [sent(x, device) for _ in range(2)] == [x.nbytes, x.nbytes]
    d.release(x)
    for function in (d.keep, d.release):
        with pytest.raises(ArgumentTypeError, match=f"Device.{function.__name__}"):
            function([1, 2])  # type: ignore[arg-type]


def test_memory_is_given_up_when_it_is_wanted() -> None:
    d = testing.sim_device(capacity=10 * 4 * N)
    arrays = [np.full(N, i, np.float32) for i in range(30)]
    for x in arrays:
        sent(x, "sim:0", resident=True)
    assert 0 < d.residency.kept < 10 and d.residency.dropped >= 20
    for x in arrays:
        sent(x, "sim:0")
    large = np.zeros(11 * N, np.float32)
    with pytest.raises(DeviceMemoryError), offload_args(large, device=d):
        pass
    assert d.residency.kept == 0
    sent(arrays[0], "sim:0")
    testing.sim_device()


def test_many_arrays_are_resident_and_memory_is_flat(device: str) -> None:
    arrays = [np.full(40_000 if i % 2 else 100, i, np.float32) for i in range(300)]

    def lend() -> None:
        for _ in range(30):
            with offload_args(*arrays, device=device, resident=True) as pointers:
                for d in pointers[::50]:
                    blas.scal(1.0, d)
            Device(device).keep(np.zeros(50_000))

    check_no_leak(lend, 8 << 20)
    assert Device(device).residency.kept == len(arrays) // 2
    arrays.clear()
    gc.collect()
    assert Device(device).residency.kept == 0


@pytest.mark.later("host")
@pytest.mark.promise("T17")
def test_threads_lend_write_and_release(device: str) -> None:
    shared, errors = ramp(), []

    def work(seed: int) -> None:
        try:
            own = ramp()
            for i in range(15):
                own[seed * 100 + i] = -i
                sent(own, device, resident=True)
                sent(shared, device, resident=True)
                if i % 5 == seed % 5:
                    Device(device).release(shared)
                if i % 7 == 6:
                    own = ramp()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("k", range(1, 30))
def test_a_failing_backend_never_leaves_old_bytes(k: int) -> None:
    device, x = testing.sim_device(), ramp()
    sent(x, "sim:0", resident=True)
    x[500] = -1
    testing.fail_call(device, k)
    try:
        with offload_args(x, device=device) as (dx,):
            blas.scal(3.0, dx)
    except Exception:
        pass
    testing.fail_call(device, 0)
    sent(x, "sim:0")
