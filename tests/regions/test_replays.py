"""Calls of a region that are captured once and replayed with new data: `region.capture()` and `Graph`."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from offload_args import Graph, In, Out, blas, empty, offload_args, testing, trace, update
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DirectionError,
    DTypeError,
    OffloadError,
    RegionError,
    StaleGraphError,
)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Return small whole numbers, of which each order of sums gives the same bits."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


@pytest.mark.parametrize("order", ["C", "F"])
def test_captured_calls_run_at_each_replay_with_new_contents(device: str, order: Any) -> None:
    a, x, y = np.asarray(numbers(5, 7), order=order), numbers(7), numbers(5, seed=1)
    expected = y.copy()
    region = offload_args(a, x, y, device=device)
    with region as (da, dx, dy):
        with region.capture(x=dx) as g:
            blas.gemv(2.0, da, dx, 1.0, dy)
            blas.scal(0.5, dy)
        assert np.array_equal(dy.to_host(), expected)  # nothing has run yet
        for seed in range(3):
            new = numbers(7, seed=seed)
            g.replay(x=new)
            expected = 0.5 * (2 * a @ new + expected)
            assert np.array_equal(dy.to_host(), expected)
        g.replay()
        expected = 0.5 * (2 * a @ new + expected)
        assert (g.calls, g.arrays, g.replays) == (2, 3, 4)
    assert np.array_equal(y, expected) and np.array_equal(x, new)


def test_an_out_that_a_graph_writes_first_comes_down(device: str) -> None:
    x, y, z = numbers(9), np.full(9, np.nan), np.full(9, np.nan)
    region = offload_args(In(x), Out(y), Out(z), device=device)
    with region as (dx, dy, dz):
        with region.capture() as g:
            dy.fill(3.0)
            blas.axpy(2.0, dx, dy)  # it may read the Out, which a captured call has written
            dz.copy_from(dy)
        g.replay()
        g.replay()
    assert np.array_equal(y, 3 + 2 * x) and np.array_equal(z, y)


def test_a_graph_that_never_ran_writes_nothing(device: str) -> None:
    x, y = numbers(9), numbers(9, seed=1)
    before = y.copy()
    region = offload_args(x, y, device=device)
    with region as (dx, dy), region.capture():
        blas.copy(dx, dy)
        blas.scal(3.0, dx)
    assert np.array_equal(y, before) and np.array_equal(x, numbers(9))


def test_replays_come_in_order_with_calls_and_with_what_the_host_writes(device: str) -> None:
    x, y = numbers(3, 6), numbers(3, 6, seed=1)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        with region.capture() as g:
            blas.axpy(1.0, dx.reshape(-1), dy.reshape(-1))
        expected = y.copy()
        for turn in range(4):
            blas.scal(2.0, dy.reshape(-1))
            g.replay()
            expected = 2 * expected + x
            if turn == 1:
                with update(x):
                    x[1] = 7
            if turn == 2:
                dx.fill(1.0)
                assert np.array_equal(dy.to_host(), expected)
                update(x)
    assert np.array_equal(y, expected) and (x == 1).all()


def test_views_scratch_and_arrays_that_overlap(device: str) -> None:
    a, out = numbers(6, 8), np.zeros(6)
    whole = a.copy()
    region = offload_args(a, a[:, 2:5], Out(out), empty(6), device=device)
    with region as (da, part, dout, scratch):
        with region.capture() as g:
            scratch.copy_from(da[:, 1])
            blas.axpy(1.0, part[:, 0], scratch)
            part[:, 2].fill(9.0)
            dout.copy_from(scratch)
        g.replay()
        assert g.arrays == 3
    whole[:, 4] = 9
    assert np.array_equal(a, whole) and np.array_equal(out, whole[:, 1] + whole[:, 2])


def test_arrays_of_an_outer_region(device: str) -> None:
    a, x, y = numbers(4, 3), numbers(3), np.zeros(4)
    with offload_args(a, device=device) as (da,):
        inner = offload_args(x, y, device=device)
        with inner as (dx, dy):
            with inner.capture(a=da) as g:
                blas.gemv(1.0, da, dx, 0.0, dy)
            g.replay(a=2 * a)
        assert np.array_equal(y, 2 * a @ x)
    assert np.array_equal(a, 2 * numbers(4, 3))


REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "a result on the host": lambda region, dx: blas.dot(dx, dx),
    "to_host": lambda region, dx: dx.to_host(),
    "another capture": lambda region, dx: region.capture().__enter__(),
    "leaving": lambda region, dx: region.close(),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_graph_can_not_have_is_refused_at_its_line_and_the_capture_goes_on(device: str, refused: str) -> None:
    x = numbers(8)
    region = offload_args(x, device=device)
    (dx,) = region.open()
    with region.capture() as g:
        blas.scal(2.0, dx)
        with pytest.raises(CaptureError):
            REFUSED[refused](region, dx)
        with pytest.raises(ArgumentError):
            blas.axpy(1.0, dx[:3], dx[4:])
        blas.scal(3.0, dx)
    g.replay()
    region.close()
    assert np.array_equal(x, 6 * numbers(8))


def test_the_host_writes_an_array_after_the_capture(device: str) -> None:
    x = numbers(8)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture() as g:
            blas.scal(2.0, dx)
            with pytest.raises(CaptureError, match="captured"):
                update(x)
        g.replay()
        with update(x):
            x[:] = 1
        g.replay()
    assert (x == 2).all()


def test_a_block_that_raises_leaves_no_graph_and_the_region_goes_on(device: str) -> None:
    x = numbers(8)
    region = offload_args(x, device=device)
    with region as (dx,):
        with pytest.raises(KeyError), region.capture() as g:
            blas.scal(2.0, dx)
            raise KeyError
        with pytest.raises(StaleGraphError, match="no calls"):
            g.replay()
        blas.scal(5.0, dx)
    assert np.array_equal(x, 5 * numbers(8))


def test_update_captures_other_calls_in_place_of_these(device: str) -> None:
    x, y = numbers(8), numbers(5)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        with region.capture(v=dx) as g:
            blas.scal(2.0, dx)
        g.replay()
        with pytest.raises(ArgumentError, match=r"needs shape \(8,\), got \(5,\); g.update"):
            g.replay(v=np.ones(5))
        with g.update(v=dy):
            blas.scal(3.0, dy)
        g.replay(v=np.ones(5))
        g.replay()
        assert g.replays == 2
    assert np.array_equal(x, 2 * numbers(8)) and (y == 9).all()


def test_a_graph_whose_region_has_ended_is_stale(device: str) -> None:
    x, y = numbers(8), numbers(8)
    outer, region = offload_args(y, device=device), offload_args(x, device=device)
    (dy,) = outer.open()
    with region as (dx,):
        with region.capture() as own:
            blas.scal(2.0, dx)
        with region.capture(y=dy) as both:
            blas.axpy(1.0, dy, dx)
        outer.close()
        own.replay()
        with pytest.raises(StaleGraphError, match="the region of y has ended"):
            both.replay(y=y)
        with pytest.raises(StaleGraphError, match="an array that the captured calls use has ended"):
            both.replay()
    with pytest.raises(StaleGraphError, match="region has ended"):
        own.replay()
    with region as (dx,):  # another one, of the same object
        with pytest.raises(StaleGraphError):
            own.replay()
    assert np.array_equal(x, 2 * numbers(8))


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        ({"y": np.ones(8)}, ArgumentError),
        ({"x": np.ones(7)}, ArgumentError),
        ({"x": np.ones(8, np.float32)}, DTypeError),
        ({"x": [1.0] * 8}, ArgumentTypeError),
        ({"x": np.ones(8), "w": np.ones(3)}, ArgumentError),
    ],
)
def test_wrong_contents_are_refused_before_anything_is_written(
    device: str, contents: dict[str, Any], error: type[Exception]
) -> None:
    x, w = numbers(8), numbers(4)
    region = offload_args(x, w, device=device)
    with region as (dx, dw):
        with region.capture(x=dx, w=dw) as g:
            blas.scal(2.0, dx)
        with pytest.raises(error, match="Graph.replay"):
            g.replay(**contents)
        assert np.array_equal(dx.to_host(), numbers(8))
    with pytest.raises(ArgumentTypeError, match="capture: x needs a DevicePtr"):
        region.capture(x=x)
    with pytest.raises(RegionError, match="not open"), region.capture():
        pass


def test_a_graph_keeps_the_values_that_a_captured_assign_had(device: str) -> None:
    a, y = numbers(6, 5), numbers(5)
    region = offload_args(a, y, device=device)
    with region as (da, dy):
        values = np.arange(12.0).reshape(4, 3)
        with region.capture() as g:
            da[1:5, 1:4].assign(values)
            dy.assign(values[0, 1])
            blas.axpy(1.0, da[1, 1:4], dy[:3])
        values[:] = np.nan
        del values
        gc.collect()
        for _ in range(2):
            da.fill(0.0)
            g.replay()
    expected = np.zeros((6, 5))
    expected[1:5, 1:4] = np.arange(12.0).reshape(4, 3)
    assert np.array_equal(a, expected) and np.array_equal(y, [1, 2, 3, 1, 1])


def test_contents_from_the_device(device: str) -> None:
    x, y, z = numbers(6), numbers(6, seed=1), np.zeros(6)
    region = offload_args(x, In(y), z, device=device)
    with region as (dx, dy, dz):
        with region.capture(x=dx) as g:
            blas.axpy(1.0, dx, dz)
        g.replay(x=dy)
        g.replay(x=dx)
    assert np.array_equal(z, 2 * numbers(6, seed=1))


def test_threads_replay_one_graph(device: str) -> None:
    x = np.ones(1000)
    y = np.zeros(1000)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        with region.capture() as g:
            blas.axpy(1.0, dx, dy)
        order = threading.Lock() if device == "host" else contextlib.nullcontext()  # the host has no streams

        def replay() -> None:
            for _ in range(20):
                with order:
                    g.replay()

        threads = [threading.Thread(target=replay) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (y == 80).all()


def test_an_out_that_is_a_part_of_another_array(device: str) -> None:
    b = numbers(6)
    region = offload_args(b, Out(b[:3]), device=device)
    with region as (_db, dp):
        with region.capture() as g:
            dp.fill(9.0)
        g.replay()
    assert np.array_equal(b, [9, 9, 9, *numbers(6)[3:]])


def test_contents_of_an_array_lent_as_in_are_refused_before_any_is_written(device: str) -> None:
    a, b = numbers(4), numbers(4, seed=1)
    region = offload_args(a, In(b), device=device)
    with region as (da, db):
        with region.capture(a=da, b=db) as g:
            blas.scal(2.0, da)
        with pytest.raises(DirectionError, match="b was lent as In"):
            g.replay(a=np.ones(4), b=np.ones(4))
    assert np.array_equal(a, numbers(4))


def test_a_capture_that_is_dropped_ends(device: str) -> None:
    a = numbers(4)
    region = offload_args(a, device=device)
    with region as (da,):
        capture = region.capture()
        capture.__enter__()
        blas.scal(2.0, da)
        del capture
        gc.collect()
        blas.scal(3.0, da)
    assert np.array_equal(a, 3 * numbers(4))


def test_a_capture_ends_after_the_calls_of_other_threads(device: str) -> None:
    a = numbers(4)
    region = offload_args(a, device=device)
    with region as (da,):
        stop = threading.Event()

        def call() -> None:
            while not stop.is_set():
                blas.scal(1.0, da)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            with region.capture() as g:
                blas.scal(1.0, da)
            assert g.calls >= 1
        stop.set()
        for thread in threads:
            thread.join()
    assert np.array_equal(a, numbers(4))


def test_graphs_that_are_dropped_leave_nothing(device: str) -> None:
    x = numbers(64)
    region = offload_args(x, device=device)
    with region as (dx,):
        for _ in range(20):
            with region.capture() as g:
                blas.scal(-1.0, dx)
            g.replay()
            del g
        kept: list[Graph] = []
        for _ in range(3):
            with region.capture() as g:
                blas.scal(-1.0, dx)
            kept.append(g)
    del kept, g
    gc.collect()
    assert np.array_equal(x, numbers(64))


def test_the_trace_shows_replays(device: str) -> None:
    x = numbers(8)
    region = offload_args(x, device=device)
    with trace() as t, region as (dx,):
        with region.capture() as g:
            blas.scal(2.0, dx)
        g.replay()
        g.replay()
    assert [event.name for event in t.events if event.kind == "access"] == ["oa_chain_replay"] * 2


@pytest.mark.promise("T01")
def test_every_failing_call_of_the_backend_is_an_error_and_results_stay_right() -> None:
    sim = testing.sim_device()
    for k in range(1, 60):
        a, x, y = numbers(5, 4), numbers(4), numbers(5, seed=1)
        expected = y.copy()
        testing.fail_call(sim, k)
        region = offload_args(In(a), x, y, device=sim)
        done = False
        try:
            with region as (da, dx, dy):
                with region.capture(x=dx) as g:
                    blas.gemv(1.0, da, dx, 0.0, dy)
                    blas.scal(2.0, dy)
                g.replay()
                g.replay(x=2 * x)
            done = True
        except OffloadError:
            pass
        testing.fail_call(sim, 0)
        if done:
            assert np.array_equal(y, 2 * a @ x) and np.array_equal(x, 2 * numbers(4)), k
        else:
            assert np.array_equal(y, expected) and np.array_equal(x, numbers(4)), k
        del region
        gc.collect()
        testing.no_mappings_left()
    assert done
