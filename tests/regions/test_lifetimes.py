"""Arrays, regions and pointers that are deleted, resized, garbage-collected or made again."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.memory import check_no_leak
from offload_args import (
    In,
    blas,
    call,
    offload_args,
)
from offload_args.errors import DiscardedWarning


@pytest.mark.promise("T10")
def test_an_array_deleted_in_the_body_is_held(device: str) -> None:
    x, y = ramp(8), ramp(8)
    gone = weakref.ref(x)
    with offload_args(x, y, device=device) as (dx, dy):
        del x
        gc.collect()
        assert gone() is not None
        blas.axpy(1.0, dx, dy)
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(y, 2 * ramp(8))


@pytest.mark.promise("T11")
@pytest.mark.parametrize("part", [slice(None), slice(2, 6)])
def test_resizing_an_array_in_the_body_is_refused(device: str, part: slice) -> None:
    x = ramp(8)
    lent = x[part] if part != slice(None) else x
    with offload_args(lent, device=device) as (dx,):
        with pytest.raises(ValueError, match="resize"):
            x.resize(1000, refcheck=False)
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x[part], 2 * ramp(8)[part])


@pytest.mark.promise("T12")
def test_a_new_array_at_a_freed_ones_address_is_a_new_one(device: str) -> None:
    for value in range(1, 20):
        x = np.full(64, value, np.float32)
        with offload_args(x, device=device) as (dx,):
            assert blas.asum(dx) == 64 * value
        del x


@pytest.mark.promise("T23")
def test_a_region_in_a_reference_cycle_is_ended_once_on_whatever_thread_collects_it(device: str) -> None:
    x = ramp(8)

    def leave_a_cycle() -> None:
        region = offload_args(x, device=device)
        cycle: list[Any] = [region, *region.__enter__()]
        blas.scal(2.0, cycle[1][2:])
        cycle.append(cycle)

    with pytest.warns(DiscardedWarning, match="never left"):  # also if Python collects it before the thread does
        leave_a_cycle()
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(x, ramp(8))
    assert x.flags.writeable


@pytest.mark.promise("T23")
def test_slices_in_reference_cycles_are_released_once(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        for _ in range(100):
            cycle: list[Any] = [dx[2:], dx[:3]]
            cycle.append(cycle)
            del cycle
            thread = threading.Thread(target=gc.collect)
            thread.start()
            thread.join()
        kept = dx[1:]
        blas.scal(2.0, kept)
    del kept
    np.testing.assert_array_equal(x[1:], 2 * ramp(8)[1:])


def test_regions_and_call_work_beside_code_that_holds_every_object(device: str) -> None:
    held: list[Any] = []

    class Curious:
        @property
        def __dlpack__(self) -> Any:
            held.append(gc.get_objects())
            raise AttributeError

    curious, x = Curious(), ramp(8)
    assert call(lambda *arguments: arguments[0], curious, x, device=device) is curious
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: held.append(gc.get_objects())  # type: ignore[assignment]
        # Both arguments are views of different arrays, so both are packed with a warning.
        with offload_args(In(x[::-2]), In(ramp(8)[6::-2]), device=device) as (even, odd):
            assert blas.asum(even) + blas.asum(odd) == x.sum()
    assert len(held) >= 3  # once for the attribute, twice for the warnings
    held.clear()


def test_a_view_whose_base_became_read_only_meanwhile_is_released(device: str) -> None:
    x = ramp(8)
    gone = weakref.ref(x)
    with offload_args(x[2:], device=device):
        x.flags.writeable = False
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.later("sim:0")
@pytest.mark.promise("T45")
@pytest.mark.parametrize("many", [10_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_many_regions_leave_memory_as_it_was(device: str, many: int) -> None:
    a, b, c = np.ones(256, np.float32), np.ones(256, np.float32), np.zeros(256, np.float32)

    def regions() -> None:
        for _ in range(many):
            with offload_args(a, b, c, device=device) as (da, db, dc):
                blas.axpy(1.0, da, dc)

    check_no_leak(regions, 1 << 19)
    assert c[0] in (2 * many, 3 * many, 4 * many)
