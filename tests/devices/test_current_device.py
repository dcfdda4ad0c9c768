"""The caller's current device stays current, and the region's own device does the work."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.current import Cuda, Hip
from helpers.devices import open_or_skip
from helpers.threads import on_a_new_thread
from offload_args import Device, In, blas, empty, offload_args, testing

PAIRS = (("cuda:0", "cuda:1"), ("hip:0", "hip:1"))
STAGES = ("enter", "body", "exit", "gc")


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two GPUs of this machine."""
    first, second = request.param
    return open_or_skip(first), open_or_skip(second)


@pytest.mark.promise("T19")
@pytest.mark.parametrize("own", [0, 1])
def test_the_current_device_stays_current_from_entering_to_garbage_collection(pair: tuple[str, str], own: int) -> None:
    vendor = Cuda() if pair[0].startswith("cuda") else Hip()
    name, other = pair[own], pair[1 - own]
    other_before = Device(other).counters

    def lend(current: dict[str, int | None]) -> None:
        x, y = np.arange(1 << 17, dtype=np.float64), np.zeros(1 << 17)
        with vendor.making_current(current["enter"]):
            before = vendor.now()
            region = offload_args(In(x), y, device=name, resident=True)
            dx, dy = region.__enter__()
            pinned = empty(1 << 17, device=name)
            assert vendor.now() == before
        with vendor.making_current(current["body"]):
            before = vendor.now()
            blas.copy(dx, dy)
            blas.scal(2.0, dy)
            assert blas.asum(dx[:3]) == 3.0
            piece = dy[1:]
            assert vendor.now() == before
        with vendor.making_current(current["exit"]):
            before = vendor.now()
            region.__exit__(None, None, None)
            assert vendor.now() == before
        np.testing.assert_array_equal(y, 2.0 * x)
        cycle = [region, piece, pinned, x, y]  # collected with the region's memory, which is resident
        cycle.append(cycle)
        del cycle, region, dx, dy, piece, pinned, x, y
        with vendor.making_current(current["gc"]):
            before = vendor.now()
            gc.collect()
            Device(name).trim()
            assert vendor.now() == before

    def run() -> None:
        with testing.counting(Device(name)) as moved:
            for wanted in itertools.product((None, 1 - own), repeat=len(STAGES)):
                lend(dict(zip(STAGES, wanted, strict=True)))
        assert (moved.copies_up, moved.copies_down) == (16, 16)

    on_a_new_thread(run)
    now = Device(other).counters
    assert (now.calls, now.bytes_up, now.allocations) == (
        other_before.calls,
        other_before.bytes_up,
        other_before.allocations,
    )


@pytest.mark.promise("T19")
@pytest.mark.parametrize("current", [None, 0, 1])
def test_the_current_device_stays_current_while_devices_copy_from_each_other(
    pair: tuple[str, str], current: int | None
) -> None:
    vendor = Cuda() if pair[0].startswith("cuda") else Hip()
    x = np.arange(1 << 18, dtype=np.float64)

    def run() -> None:
        with vendor.making_current(current):
            before = vendor.now()
            with offload_args(In(x), device=pair[0]) as (first,):
                assert blas.asum(first) == x.sum()
                with testing.counting(Device(pair[1])) as moved, offload_args(In(x), device=pair[1]) as (second,):
                    assert blas.asum(second) == x.sum()
            assert moved.copies_peer == 1
            assert vendor.now() == before

    on_a_new_thread(run)
