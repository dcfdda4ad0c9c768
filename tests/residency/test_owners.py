"""Resident memory is freed with the owner of the array."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest

from helpers.interrupts import at_every_place
from helpers.residency import N, ramp, sent
from offload_args import Device, In, blas, empty, offload_args


def test_resident_memory_goes_with_its_owner(device: str) -> None:
    d = Device(device)
    x = ramp()
    view = x[10:]
    sent(view, device, resident=True)
    del x
    gc.collect()
    assert d.residency.kept == 1  # the view keeps its base alive
    del view
    gc.collect()
    assert (d.residency.kept, d.residency.kept_bytes, d.residency.pages_armed) == (0, 0, 0)


def test_an_owner_that_dies_with_its_region(device: str) -> None:
    with offload_args(In(ramp()), device=device, resident=True) as (dx,):
        blas.asum(dx)
    gc.collect()
    assert Device(device).residency.kept == 0


def test_new_arrays_at_the_same_address(device: str) -> None:
    addresses = set()
    for i in range(20):
        x = np.full(N, i, np.float32)
        addresses.add(x.ctypes.data)
        assert sent(x, device, resident=True) == x.nbytes
        del x
    assert len(addresses) < 20


def test_small_arrays_freed_and_taken_again(device: str) -> None:
    for i in range(200):
        x = np.full(100 + i % 3, i, np.float32)
        sent(x, device, resident=True)
        del x
    assert Device(device).residency.kept == 0


def test_resize_is_refused_while_an_array_is_resident(device: str) -> None:
    x = np.ones(N, np.float32)
    sent(x, device, resident=True)
    with pytest.raises(ValueError, match="reference"):
        x.resize(2 * N, refcheck=False)
    Device(device).release(x)


def test_fork_counts_for_the_parent_only(device: str) -> None:
    x = ramp()
    sent(x, device, resident=True)
    child = os.fork()
    if child == 0:
        x[:] = 0  # the child's own copy
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sent(x, device)
    x[99] = -1  # the parent's page, which was shared with the child until now
    assert sent(x, device) > 0


@pytest.mark.promise("T58")
def test_ctrl_c_while_an_owner_dies_is_raised_and_its_memory_goes(device: str) -> None:
    held = {"x": np.ones(N, np.float32)}

    def drop() -> None:
        held.clear()

    sent(held["x"], device, resident=True)
    for _ in at_every_place(drop):
        assert Device(device).residency.kept == 0
        held["x"] = np.ones(N, np.float32)
        sent(held["x"], device, resident=True)
        assert Device(device).residency.kept == 1
    drop()
    assert Device(device).residency.kept == 0


@pytest.mark.promise("T58")
def test_ctrl_c_while_pinned_memory_goes_is_raised_and_it_is_freed(device: str) -> None:
    held = {"x": empty(1000, device=device)}
    del held["x"]
    before = Device(device).counters.pinned_bytes

    def drop() -> None:
        held.clear()

    held["x"] = empty(1000, device=device)
    for _ in at_every_place(drop):
        assert Device(device).counters.pinned_bytes == before
        held["x"] = empty(1000, device=device)
    drop()
    assert Device(device).counters.pinned_bytes == before


@pytest.mark.promise("T58")
def test_an_owner_lent_on_several_devices_is_watched_once_and_forgotten() -> None:
    for _ in range(3):  # the arrays may have the same address
        x = np.ones(N, np.float32)
        for name in ("host", "sim:0"):
            sent(x, name, resident=True)
            assert Device(name).residency.kept == 1
        with pytest.raises(ValueError, match="referenced|resize"):
            x.resize(3)
        assert weakref.getweakrefcount(x) == 1
        del x
        assert [Device(name).residency.kept for name in ("host", "sim:0")] == [0, 0]
