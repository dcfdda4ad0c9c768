"""Calls of a region that are captured once and replayed with new data: `region.capture()` and `Graph`."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from helpers.arrays import Array
from kernels.images import module_for
from offload_args import (
    Device,
    Graph,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    blas,
    empty,
    launch,
    offload_args,
    testing,
    trace,
    update,
)
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DirectionError,
    DTypeError,
    InvalidDataError,
    OffloadError,
    RegionError,
    StaleGraphError,
    StalePointerError,
    UnwrittenWarning,
)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Return small integers, whose sums have the same bits in every order."""
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
        assert np.array_equal(dy.to_host(), expected)  # the calls have not run yet
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
            blas.axpy(2.0, dx, dy)  # this may read the Out because a captured call writes it first
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


@pytest.mark.copies
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


def test_an_array_is_not_read_on_the_host_while_calls_are_captured(device: str) -> None:
    x, y = numbers(8), numbers(8)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        with region.capture() as g:
            dx.fill(3.0)  # needs no bytes of the host
            for pointer in (dx, dy):
                with pytest.raises(CaptureError):
                    pointer.to_host()
        g.replay()
        assert (dx.to_host() == 3).all() and np.array_equal(dy.to_host(), y)


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
        with g.update():
            blas.scal(2.0, dx)
        g.replay()
    assert np.array_equal(x, 10 * numbers(8))


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


@pytest.mark.promise("T77")
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
    with region as (dx,):  # the same object makes another region
        with pytest.raises(StaleGraphError):
            own.replay()
    assert np.array_equal(x, 2 * numbers(8))


@pytest.mark.promise("T77")
def test_each_region_of_an_array_that_two_lend_has_to_be_open(device: str) -> None:
    x = numbers(8)
    outer, region = offload_args(x, device=device), offload_args(x[4:], device=device)
    (dx,) = outer.open()
    with region as (last,):
        with region.capture() as g:
            blas.axpy(1.0, dx[:4], last)
        g.replay()
        outer.close()
        with pytest.raises(StaleGraphError, match="the region of an array that the captured calls use has ended"):
            g.replay()
    assert np.array_equal(x[4:], numbers(8)[:4] + numbers(8)[4:])


def test_a_region_that_raises_discards_what_a_replay_wrote_by_its_pointer(device: str) -> None:
    x = numbers(8)
    outer, region = offload_args(x, device=device), offload_args(x[:6], device=device)
    (dx,) = outer.open()
    with pytest.raises(KeyError), region as (first,):
        with region.capture() as g:
            blas.swap(dx[:2], first[2:4])
        g.replay()
        raise KeyError
    with pytest.raises(InvalidDataError):  # as after calls without a graph
        outer.close()
    assert np.array_equal(x, numbers(8))


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


@pytest.mark.copies
def test_contents_that_are_also_written(device: str) -> None:
    x, y, z = numbers(6), numbers(6, seed=1), numbers(6, seed=2)
    region = offload_args(x, y, z, device=device)
    with region as (dx, dy, dz):
        with region.capture(a=dx, b=dy, c=dz) as g:
            blas.scal(1.0, dx)
        g.replay(a=dy, b=dx)  # a and b swap
        assert np.array_equal(dx.to_host(), y) and np.array_equal(dy.to_host(), x)
        g.replay(a=dy, b=dz, c=dx)  # a, b and c rotate
        assert np.array_equal(dx.to_host(), x) and np.array_equal(dy.to_host(), z) and np.array_equal(dz.to_host(), y)
        g.replay(b=numbers(6, seed=3), a=dy)  # a gets the old contents of b
    assert np.array_equal(x, numbers(6, seed=2)) and np.array_equal(y, numbers(6, seed=3))


def test_contents_of_threads_do_not_mix(device: str) -> None:
    """A replay with new contents is one step: no other thread's contents replace them before the calls run."""
    x, y, total = np.zeros(500), np.zeros(500), np.zeros(500)
    region = offload_args(x, y, total, device=device)
    with region as (dx, dy, dtotal):
        with region.capture(x=dx, y=dy) as g:
            blas.axpy(1.0, dx, dtotal)
            blas.axpy(-1.0, dy, dtotal)

        def replay(value: float) -> None:
            for _ in range(20):
                g.replay(x=np.full(500, value), y=np.full(500, value - 1))

        threads = [threading.Thread(target=replay, args=(10.0 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (total == 80).all()


def test_threads_replay_one_graph(device: str) -> None:
    x = np.ones(1000)
    y = np.zeros(1000)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        with region.capture() as g:
            blas.axpy(1.0, dx, dy)
        order = threading.Lock() if device == "host" else contextlib.nullcontext()  # no streams on the host

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


def test_a_replay_that_is_refused_writes_no_contents(device: str) -> None:
    x, y, z, new = numbers(4), numbers(4, seed=1), numbers(4, seed=2), np.full(4, 7.0)
    outer, region = offload_args(y, device=device), offload_args(x, z, device=device)
    (dy,) = outer.open()
    with region as (dx, dz):
        with region.capture(x=dx) as both:
            blas.axpy(1.0, dy, dx)
        with region.capture(x=dx, z=dz) as g:
            blas.axpy(1.0, dz, dx)
        outer.close()
        with pytest.raises(StaleGraphError):
            both.replay(x=new)
        assert np.array_equal(dx.to_host(), numbers(4))
        with offload_args(In(z), device="sim:1"), pytest.raises(DirectionError, match="sim:1"):
            g.replay(x=new, z=new)
        assert np.array_equal(dx.to_host(), numbers(4))
        g.replay(x=new)
    assert np.array_equal(x, 7 + z)


def test_contents_that_overlap_are_those_from_before_the_replay(device: str) -> None:
    x, z = numbers(4), numbers(8, seed=2)
    region = offload_args(x, z, device=device)
    with region as (dx, dz):
        with region.capture(x=dx, a=dz[:4], b=dz[4:]) as g:
            blas.scal(1.0, dx)
        g.replay(b=dz[:4], a=dz[2:6])
        assert np.array_equal(dz.to_host(), numbers(8, seed=2)[[2, 3, 4, 5, 0, 1, 2, 3]])
        g.replay(a=dx, x=dx[::-1])
    assert np.array_equal(z[:4], numbers(4)) and np.array_equal(x, numbers(4)[::-1])


def test_no_content_is_written_when_a_later_one_is_refused(device: str) -> None:
    x, y, z = numbers(3), np.zeros((4, 3)), numbers(3, seed=2)
    shared = np.zeros(8)
    region = offload_args(x, Out(shared[:6]), Out(shared[2:]), device=device)
    with pytest.warns(UnwrittenWarning), region as (dx, dfirst, _):
        with region.capture(x=dx, y=dfirst) as g:
            blas.scal(2.0, dx)
        with pytest.raises(DirectionError, match="does not write every element"):
            g.replay(x=z, y=np.ones(6))
        assert np.array_equal(dx.to_host(), numbers(3))
    region = offload_args(x, Out(y), device=device)
    with region as (dx, dy):
        with region.capture(whole=dy, part=dy[0]) as g:
            blas.scal(2.0, dx)
        g.replay(whole=np.ones((4, 3)), part=z)  # `whole` contains the array of `part`
    assert np.array_equal(y, [z, *np.ones((3, 3))])


def test_a_content_whose_region_has_ended_is_a_stale_pointer_and_no_stale_graph(device: str) -> None:
    x, y = numbers(4), numbers(4, seed=1)
    with offload_args(y, device=device) as (dead,):
        pass
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture(x=dx) as g:
            blas.scal(2.0, dx)
        with pytest.raises(StalePointerError) as caught:
            g.replay(x=dead)
        assert caught.type is StalePointerError
        g.replay()
    assert np.array_equal(x, 2 * numbers(4))


def test_a_replay_overwrites_contents_that_a_failure_left_undefined() -> None:
    sim, x, y = testing.sim_device(), numbers(4), numbers(4)
    region = offload_args(x, y, device=sim)
    with region as (dx, dy):
        with region.capture(x=dx, y=dy) as g:
            blas.axpy(1.0, dx, dy)
        blas.scal(2.0, dx)
        testing.fail_call(sim, 1)
        with pytest.raises(OffloadError):
            blas.scal(2.0, dx)
        testing.fail_call(sim, 0)
        with pytest.raises(InvalidDataError):
            g.replay()
        with pytest.raises(InvalidDataError):
            g.replay(y=2 * y)
        assert np.array_equal(dy.to_host(), y)
        g.replay(x=y)
    assert np.array_equal(y, 2 * numbers(4))


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


def test_a_pointer_may_be_new_contents_of_memory_that_it_shares(device: str) -> None:
    x = numbers(4, 4)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture(x=dx) as g:
            blas.scal(2.0, dx.reshape(-1))
        g.replay(x=dx.T)
        assert np.array_equal(dx.to_host(), 2 * numbers(4, 4).T)
        g.replay(x=dx[::-1])
    assert np.array_equal(x, 4 * numbers(4, 4).T[::-1])


def test_a_name_is_of_a_live_pointer_and_any_word(device: str) -> None:
    x, y = numbers(4), numbers(4, seed=1)
    with offload_args(y, device=device) as (dead,):
        pass
    region = offload_args(x, device=device)
    with region as (dx,):
        with pytest.raises(StalePointerError, match="^offload_args.capture: y is "), region.capture(y=dead):
            pass
        with region.capture(self=dx, name=2.0) as g:
            blas.scal(g["name"], dx)
        with pytest.raises(StalePointerError, match="y is a pointer"), g.update(y=dead):
            pass
        g.replay(self=numbers(4, seed=2), name=3.0)  # the old calls are still in the graph
        with g.update(self=dx):
            pass
    assert np.array_equal(x, 3 * numbers(4, seed=2))


def test_a_capture_shows_its_names_and_the_block_that_begins_it(device: str) -> None:
    region = offload_args(numbers(4), device=device)
    with region as (dx,):
        assert repr(region.capture(x=dx, alpha=2.0)).startswith("<capture of x, alpha: a block `with region.capture(")


def test_work_outside_of_the_graph_is_refused_with_the_time_to_do_it(device: str) -> None:
    x = numbers(4)
    region = offload_args(x, device=device)
    with region as (dx,), region.capture() as g:
        blas.scal(2.0, dx)
        with pytest.raises(
            CaptureError, match=r"^DevicePtr\.to_host: .* no values before a replay; read the values bef"
        ):
            dx.to_host()
        with pytest.raises(
            CaptureError, match=r"^update: .* would run now, outside of the graph; do it before the cap"
        ):
            update(x)
    assert len(g.nodes) == 1


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_region_is_neither_copied_nor_pickled(make: Callable[[object], object]) -> None:
    with pytest.raises(ArgumentTypeError, match="^offload_args: a region can't be copied or pickled; pass its arrays"):
        make(offload_args(numbers(4)))


def test_a_graph_is_neither_copied_nor_pickled(device: str) -> None:
    """A deleted copy would end the calls of the original."""
    x = numbers(4)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture() as g:
            blas.scal(2.0, dx)
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ArgumentTypeError, match="Graph: can't be copied or pickled"):
                make(g)
        gc.collect()
        g.replay()
    assert np.array_equal(x, 2 * numbers(4))


# -- kernels --


def test_a_graph_keeps_a_kernel_whose_module_was_unloaded(device: str) -> None:
    x = np.array([-1.0, 2.0, -3.0], np.float32)
    module = Module.load(module_for(device), name="kernels")
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture(x=dx) as g:
            launch(relu, dx, np.int32(3))
        module.unload()
        g.replay()
        assert np.array_equal(dx.to_host(), [0, 2, 0])
        g.replay(x=np.array([5, -6, -7], np.float32))
        assert g.nodes[0].function == "relu"
    assert np.array_equal(x, [5, 0, 0])


@pytest.mark.later
@pytest.mark.parametrize("device", ["host", "sim:0"], indirect=True)
def test_a_kernel_that_is_checked_is_refused_and_says_how_to_capture_it(device: str) -> None:
    source = """
    #include <offload_args/kernel.h>
    OA_KERNEL(twice, oa::InOut<double> x, int n) {
      for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
    }"""
    signature = [InOut[np.float64], np.int32]
    x = numbers(5)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture() as g:
            with pytest.raises(CaptureError, match="make it with debug=False to capture it"):
                launch(Kernel.compile(source, "twice", signature, device=device), dx, 5)
            launch(Kernel.compile(source, "twice", signature, device=device, debug=False), dx, 5)
        g.replay()
        g.replay()
    assert np.array_equal(x, 4 * numbers(5))


# -- scalars --


def test_numbers_by_name(device: str) -> None:
    a, x, y = numbers(5, 7), numbers(7), numbers(5, seed=1)
    region = offload_args(a, x, y, device=device)
    with region as (da, dx, dy):
        with region.capture(x=dx, alpha=2.0, beta=0.0) as g:
            blas.gemv(g["alpha"], da, dx, g["beta"], dy)
        assert g["x"] is dx and g["alpha"].shape == () and g["alpha"].dtype == np.float64
        g.replay()
        assert np.array_equal(dy.to_host(), 2 * a @ x)
        g.replay(beta=1.0)  # a zero at the capture does not become a constant
        assert np.array_equal(dy.to_host(), 4 * a @ x)
        g.replay(alpha=-3, beta=np.float64(0.5))
        assert np.array_equal(dy.to_host(), -a @ x)
        g.replay(alpha=g["beta"], beta=g["alpha"])  # alpha and beta swap
        assert np.array_equal(dy.to_host(), 3.5 * a @ x)
        for wrong, error in [
            ({"alpha": "2"}, ArgumentTypeError),
            ({"alpha": 1j}, DTypeError),
            ({"gamma": 1.0}, ArgumentError),
        ]:
            with pytest.raises(error, match="Graph.replay: "):
                g.replay(x=np.ones(7), **wrong)
        assert np.array_equal(dx.to_host(), x)
        with pytest.raises(ArgumentError, match="nothing was captured as 'gamma'; known names: x, alpha, beta"):
            g["gamma"]
        with pytest.raises(ArgumentTypeError, match=r"alpha needs a DevicePtr .*, got int; .*np.int32\(1\)"):
            region.capture(alpha=1)
        with pytest.raises(CaptureError), g.update(alpha=np.float32(1)) as g:
            dx.to_host()
    with pytest.raises(RegionError, match="not open"), region.capture(alpha=1.0):
        pass


def test_a_graph_writes_its_own_number(device: str) -> None:
    x = numbers(6)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture(square=0.0) as g:
            blas.dot(dx, dx, result=g["square"])
            blas.scal(g["square"], dx)
        g.replay()
        assert g["square"].to_host() == numbers(6) @ numbers(6)
    assert np.array_equal(x, (numbers(6) @ numbers(6)) * numbers(6))


def test_a_number_of_another_graph_ends_with_its_region(device: str) -> None:
    x, y = numbers(6), numbers(6, seed=1)
    outer, region = offload_args(y, device=device), offload_args(x, device=device)
    (_dy,) = outer.open()
    with outer.capture(factor=3.0) as g:
        pass
    with region as (dx,):
        with region.capture() as other:
            blas.scal(g["factor"], dx)
        factor = g["factor"]
        g.update()
        del g
        other.replay()
        factor.assign(2.0)
        other.replay()
        outer.close()
        with pytest.raises(StaleGraphError):
            other.replay()
    assert np.array_equal(x, 6 * numbers(6))


# -- descriptions --


def test_nodes_and_drawings(device: str, tmp_path: Any) -> None:
    a, x, y, z = numbers(5, 7), numbers(7), numbers(5, seed=1), numbers(5)
    region = offload_args(a, x, y, z, device=device)
    with region as (da, dx, dy, dz):
        with region.capture(x=dx, y=dy, alpha=1.0) as g:
            blas.gemv(g["alpha"], da, dx, 0.0, dy)
            dz.fill(1.0)
            blas.axpy(1.0, dy, dz)
            dx.assign(np.ones(7))
        gemv, fill, axpy, assign = g.nodes
        assert "gemv" in gemv.function and gemv.writes == ("y",) and {"x", "argument 1"} <= {*gemv.reads}
        assert fill.reads == () and fill.writes == ("argument 4",)
        assert axpy.reads == ("y", "argument 4") and axpy.writes == ("argument 4",)
        assert assign.writes == ("x",) and g.nbytes == 56
        text = str(g)
        assert text.startswith("<Graph of 4 calls on 6 arrays, names: x, y, alpha; replayed 0 times>\n   1 ")
        assert text.endswith("\neach replay sends 56 bytes") and "reads y, argument 4; writes argument 4" in text
        drawing = g.draw(tmp_path / "graph.svg")
        assert (tmp_path / "graph.svg").read_text() == drawing == g._repr_svg_()
    root = ElementTree.fromstring(drawing)
    kinds = [element.tag.partition("}")[2] for element in root]
    arrows = sum(len(node.reads) for node in (gemv, fill, axpy)) + 2  # 2 arrows of results: argument 4 and x
    assert kinds.count("rect") == 4 and kinds.count("path") == arrows
    assert [element.text for element in root if element.get("class") == "r"] == ["argument 4", "x"]
    assert g.nodes[2].reads == ("an array",)  # the names of arrays ended with the region
    assert str(Graph()) == "<Graph without calls>" and Graph()._repr_svg_() is None


# -- memory --


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_graphs_leave_the_memory_as_it_was(device: str, count: int) -> None:
    x, y = numbers(64), numbers(64)
    region = offload_args(x, y, device=device)
    opened = Device(device)
    with region as (dx, dy):

        def capture() -> None:
            with region.capture(alpha=2.0) as g:
                blas.gemv(g["alpha"], dy.reshape(8, 8), dx[:8], 0.0, dx[8:16])  # 0.0 is staged with alpha
                dy.assign(1.0)
            g.replay(alpha=3.0)

        for _ in range(5):
            capture()
        opened.trim()  # the number of blocks that copies pin depends on the device's speed
        before = opened.counters
        for _ in range(count):
            capture()
        opened.trim()
        after = opened.counters
        assert after.memory_used == before.memory_used and after.mappings == before.mappings
        assert after.pinned_bytes == before.pinned_bytes


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


def test_a_graph_that_is_dropped_while_the_driver_fails_says_nothing() -> None:
    """No data are lost, and Python would print the failure in the middle of other work."""
    sim = testing.sim_device()
    x = numbers(64)
    region = offload_args(x, device=sim)
    with region as (dx,):
        for k in range(1, 5):
            with region.capture() as g:
                blas.scal(-1.0, dx)
            g.replay()
            testing.fail_call(sim, k)
            del g
            testing.fail_call(sim, 0)
            block = region.capture()
            block.__enter__()
            testing.fail_call(sim, k)
            del block  # the block is never left
            testing.fail_call(sim, 0)
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


@pytest.mark.later
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
