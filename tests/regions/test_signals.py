"""Ctrl-C at any place of a region leaves no memory or lent array behind, and is not lost."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
from types import FrameType

import numpy as np
import pytest

import offload_args as package
from helpers.arrays import Array, ramp
from helpers.interrupts import at_every_place, ctrl_c
from helpers.processes import python
from offload_args import (
    Device,
    Scratch,
    blas,
    offload_args,
    open_regions,
    testing,
)
from offload_args.errors import CaptureError, OffloadError, StaleGraphError

DROPPED = """
import signal, sys
import numpy as np
from offload_args import offload_args, trace

def interrupt(frame, event, argument):
    if event == "c_return" and frame.f_code.co_name == "_left":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

with trace():
    region = offload_args(np.ones(3), device="host")
    region.__enter__()
    try:
        sys.setprofile(interrupt)
        del region
        for _ in range(10_000):
            pass
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
"""


@pytest.mark.promise("T24")
def test_ctrl_c_in_a_region_that_is_dropped_comes_later() -> None:
    ran = python(DROPPED, "-W", "default")
    assert ran.stdout == "KeyboardInterrupt\n"
    assert "DiscardedWarning: offload_args: the region that " in ran.stderr and "ignored" not in ran.stderr


@pytest.mark.promise("T24")
def test_ctrl_c_is_not_lost_where_it_can_not_be_raised() -> None:
    sim, x = testing.sim_device(), np.ones(1 << 18)
    with pytest.raises(KeyboardInterrupt):
        with ctrl_c(function="raise_status") as sent:
            with contextlib.suppress(ValueError):
                with offload_args(x, device=sim, resident=True) as (dx,):
                    blas.scal(2.0, dx)
                    testing.fail_call(sim, 1)
                    raise ValueError("the body's")
            for _ in range(10_000):
                pass
    assert sent
    testing.fail_call(sim, 0)
    sim.release(x)


@pytest.mark.later("host")
@pytest.mark.promise("T58")
def test_ctrl_c_while_a_traced_region_is_entered_and_left_leaves_nothing_behind(device: str) -> None:
    x, y = ramp(4), ramp(4)

    def use() -> None:
        with offload_args(x, y, device=device) as (dx, dy):
            blas.axpy(1.0, dx, dy)

    with package.trace() as recording:
        use()
        regions = Device(device).counters.regions
        for _ in at_every_place(use):
            assert x.flags.writeable and y.flags.writeable
            assert Device(device).counters.regions == regions
            testing.no_mappings_left()
        before = recording.summary.regions
        use()
    assert recording.summary.regions == before + 1


def test_ctrl_c_at_any_place_of_a_capture_ends_it_and_the_region(device: str) -> None:
    x = np.ones(3)
    region = offload_args(x, device=device)

    def use() -> None:
        with region as (dx,):
            with region.capture(x=dx) as graph:
                blas.scal(2.0, dx)
            graph.replay()

    for at in at_every_place(use):
        assert not open_regions(), at
        assert x.flags.writeable, at
        assert np.all(x == 1) or np.all(x == 2), at
        testing.no_mappings_left()
        x[:] = 1


def test_a_block_that_raises_ends_the_captures_of_its_region(device: str) -> None:
    x = np.ones(3)
    region = offload_args(x, device=device)
    with pytest.raises(KeyError), region as (dx,):
        capture = region.capture()
        graph = capture.__enter__()
        blas.scal(2.0, dx)
        raise KeyError
    assert not open_regions()
    with pytest.raises(OffloadError):
        capture.__exit__(None, None, None)
    with pytest.raises(StaleGraphError):
        graph.replay()
    (dx,) = region.open()
    blas.scal(3.0, dx)
    capture = region.capture()
    capture.__enter__()
    blas.scal(2.0, dx)
    with pytest.raises(CaptureError, match="leaving the region"):
        region.close()
    region.discard()
    assert not open_regions()
    np.testing.assert_array_equal(x, np.ones(3))


def test_ctrl_c_at_the_end_of_a_capture_whose_call_had_failed_ends_the_region() -> None:
    sim, x = testing.sim_device(), np.ones(3)
    region = offload_args(x, device=sim)

    def use() -> None:
        with region as (dx,):
            blas.scal(2.0, dx)
            with region.capture():
                with pytest.raises(OffloadError, match="submit failed"):
                    for k in range(8, 0, -1):  # the last call of the device adds the work to the graph
                        testing.fail_call(sim, k)
                        blas.scal(2.0, dx)

    for at in itertools.count():
        with pytest.raises((KeyboardInterrupt, CaptureError)) as raised, ctrl_c(at, "__exit__") as sent:
            use()
        assert not open_regions()
        assert x.flags.writeable and (x == 1).all()
        assert (raised.type is KeyboardInterrupt) == sent.sent
        if not sent:
            break
    assert at > 2


@pytest.mark.promise("T24")
@pytest.mark.parametrize("again", [0, 50e-6], ids=["once", "storm"])
@pytest.mark.parametrize("n", [64, 1 << 19])
@pytest.mark.parametrize("later", [1.3, pytest.param(1.1, marks=pytest.mark.slow)])  # growth of the delay
def test_ctrl_c_leaves_no_memory_and_each_array_old_or_new(device: str, n: int, again: float, later: float) -> None:
    def use(x: Array, y: Array, interrupted_after: float = 0) -> None:
        signal.setitimer(signal.ITIMER_REAL, interrupted_after)
        with offload_args(x, y, device=device) as (dx, dy):
            blas.axpy(1.0, dy, dx)
            with offload_args(x, Scratch(n, np.float32), device=device) as (inner, ds):
                blas.copy(dy, ds)
                blas.axpy(1.0, ds, inner)
            blas.scal(2.0, dy)

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not use.__code__:
            frame = frame.f_back
        if frame is not None:
            signal.setitimer(signal.ITIMER_REAL, again)
            raise KeyboardInterrupt

    def arrays() -> tuple[Array, Array]:
        return np.full(n, 1, np.float32), np.full(n, 10, np.float32)

    use(*arrays())
    before = Device(device).counters
    late = interrupted = 0
    gc.collect()
    gc.disable()  # an exception in a finalizer would be lost
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        while late < 8:  # at the end, signals come too late
            x, y = arrays()
            try:
                use(x, y, 1e-6 * later ** (late + interrupted))
                late += 1
            except KeyboardInterrupt:
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            expected = (21, 20) if x[0] == 21 else (1, 10)
            for array, value in zip((x, y), expected, strict=True):
                np.testing.assert_array_equal(array, np.full_like(array, value))
                assert array.flags.writeable
            now = Device(device).counters
            assert (now.mappings, now.regions, now.memory_used) == (before.mappings, before.regions, before.memory_used)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        gc.enable()
    assert interrupted
