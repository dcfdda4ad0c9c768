"""Loops of captured calls, which run until a number on the device is set: `region.loop`."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from regions.test_replays import numbers

from offload_args import (
    Device,
    Out,
    blas,
    graphs,
    offload_args,
)
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DirectionError,
    RegionError,
    StalePointerError,
)


def has_loops(device: str) -> bool:
    """Return whether the driver has graphs that repeat another graph."""
    if not device.startswith("cuda") or os.environ.get("CUDA_DOUBLE_LOOPS") == "0":
        return False
    return hasattr(ctypes.CDLL("libcuda.so.1"), "cuGraphConditionalHandleCreate")


def test_a_loop_ends_after_the_step_that_set_the_number(device: str) -> None:
    """Each step adds 1 to x, and shifts a row, whose last element is the number that ends the loop."""
    x = np.zeros(3)
    row = np.array([5.0, 0, 0, 0, 0])
    spare = np.zeros(5)
    region = offload_args(x, np.ones(3), row, spare, device=device)
    with region as (dx, dones, drow, dspare):

        def body() -> None:
            blas.axpy(1.0, dones, dx)
            dspare.copy_from(drow)
            drow[1:].copy_from(dspare[:4])

        assert region.loop(body, until=drow[4:], at_most=3) == 3
        assert region.loop(body, until=drow[4:], at_most=100) == 1
        assert region.loop(body, until=drow[4:], at_most=100) == 1  # there is at least one step
        assert region.loop(body, until=drow[4:], at_most=0) == 0
    assert (x == 5).all() and (row == 5).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128", "bool", "int8", "int64"])
def test_a_loop_looks_at_numbers_of_each_dtype(device: str, dtype: str) -> None:
    """-0.0 counts as zero, too. If the driver has loops, the number is not copied down."""
    for at, at_most in (6, 100), (7, 100), (7, 3):
        row, spare = np.zeros(9, dtype), np.zeros(9, dtype)
        if row.dtype.kind in "fc":
            row[1:] = -0.0
        row[0] = 1j if row.dtype.kind == "c" else 1
        first = row[0]
        region = offload_args(row, spare, device=device)
        with region as (drow, dspare):

            def body(drow: Any = drow, dspare: Any = dspare) -> None:
                dspare.copy_from(drow)
                drow[1:].copy_from(dspare[:8])

            before = Device(device).counters.copies_down
            steps = region.loop(body, until=drow[at : at + 1], at_most=at_most)
            looks = Device(device).counters.copies_down - before
            assert steps == min(at, at_most)
            assert looks == 0 or not has_loops(device)
        assert row.tolist() == [first] * (steps + 1) + [0] * (8 - steps)


def test_a_loop_of_products_needs_no_look(device: str) -> None:
    """The driver's loops can't contain calls that allocate, so the graph owns the memory that a library uses inside."""
    shift, x, y = np.eye(4, k=-1), np.array([1.0, 0, 0, 0]), np.zeros(4)
    region = offload_args(shift, x, y, device=device)
    with region as (dshift, dx, dy):

        def body() -> None:
            blas.gemv(1.0, dshift, dx, 0.0, dy)
            dx.copy_from(dy)

        before = Device(device).counters.copies_down
        assert region.loop(body, until=dx[3:], at_most=100) == 3
        assert Device(device).counters.copies_down - before == 0 or not has_loops(device)
    assert x.tolist() == [0, 0, 0, 1]


def test_a_loop_of_many_steps_at_a_number_that_stays(device: str) -> None:
    x, flags = np.zeros(2), np.array([0.0, 3.0])
    region = offload_args(x, np.ones(2), flags, device=device)
    with region as (dx, dones, dflags):

        def body() -> None:
            blas.axpy(1.0, dones, dx)

        assert region.loop(body, until=dflags[:1], at_most=1203) == 1203
        assert region.loop(body, until=dflags[1:], at_most=1203) == 1
    region = offload_args(x, np.ones(2), flags, device=device)
    with region as (dx, dones, dflags):

        def count() -> None:
            blas.axpy(1.0, dones, dx)
            blas.scal(0.5, dflags[:1])

        assert region.loop(count, until=dflags[:1], at_most=2001) == 2001
    assert x.tolist() == [3205.0, 3205.0]


def test_many_loops_leave_memory_as_it_was(device: str) -> None:
    x, flag = np.zeros(3), np.zeros(2)
    region = offload_args(x, np.ones(3), flag, device=device)
    with region as (dx, dones, dflag):

        def body() -> None:
            blas.axpy(1.0, dones, dx)
            dflag[:1].copy_from(dflag[1:])

        assert region.loop(body, until=dflag[:1], at_most=3) == 3
        used = Device(device).counters.memory_used
        for _ in range(70):
            assert region.loop(body, until=dflag[:1], at_most=3) == 3
        assert Device(device).counters.memory_used == used
    assert (x == 213).all()


def test_what_a_loop_refuses(device: str) -> None:
    x = numbers(4)
    region = offload_args(x, device=device)
    with region as (dx,):
        for until, at_most, error, text in [
            (dx, 5, ArgumentTypeError, r"until needs a DevicePtr to one element, got shape \(4,\)"),
            (0.0, 5, ArgumentTypeError, "got float"),
            (dx[:1], -1, ArgumentError, "at_most needs"),
            (dx[:1], 1.5, ArgumentError, "at_most needs"),
        ]:
            with pytest.raises(error, match=text):
                region.loop(lambda: blas.scal(2.0, dx), until=until, at_most=at_most)  # type: ignore[arg-type]
        with pytest.raises(CaptureError):
            region.loop(lambda: blas.dot(dx, dx), until=dx[:1], at_most=5)
        with pytest.raises(ZeroDivisionError):
            region.loop(lambda: 1 // 0, until=dx[:1], at_most=5)

        def generator() -> Any:
            yield blas.scal(2.0, dx)

        with pytest.raises(ArgumentTypeError, match="body needs a function .*, got one that returns a generator"):
            region.loop(generator, until=dx[:1], at_most=5)
        blas.scal(2.0, dx)
        first = dx[:1]
    assert np.array_equal(x, 2 * numbers(4))
    with pytest.raises(RegionError, match="not open"):
        region.loop(lambda: None, until=first, at_most=5)


@pytest.mark.parametrize("kept", [False, True])
def test_a_loop_that_would_look_at_what_nothing_wrote_runs_no_step(device: str, kept: bool) -> None:
    x, y, flag = numbers(4), np.zeros(4), np.zeros(1)
    region = offload_args(x, Out(y), Out(flag), device=device)
    with region as (dx, dy, dflag):

        def double() -> None:
            blas.scal(2.0, dx)

        if kept:
            assert region.loop(double, until=dx[:1], at_most=1) == 1
        for until in (dflag, dy[3:]):
            with pytest.raises(DirectionError, match="^offload_args.loop: until was lent as Out and would be read"):
                region.loop(double, until=until, at_most=3)

        def finish() -> None:
            double()
            dflag.fill(1.0)

        assert region.loop(finish, until=dflag, at_most=3) == 1  # the calls write the Out before the look
        dy.fill(0.0)
        assert region.loop(double, until=dy[3:], at_most=2) == 2
    assert np.array_equal(x, 2 ** (3 + kept) * numbers(4))


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets one element at each capture."""
    begun: list[int] = []

    class Counting(graphs.Capture):
        def __enter__(self) -> graphs.Graph:
            begun.append(1)
            return super().__enter__()

    monkeypatch.setattr(graphs, "Capture", Counting)
    return begun


def test_a_second_loop_of_the_same_calls_captures_nothing(device: str, captures: list[int]) -> None:
    x, ones, flag = np.zeros(3), np.ones(3), np.zeros(2)
    region = offload_args(x, ones, flag, device=device)
    for entered in (1, 2):
        with region as (dx, dones, dflag):

            def body() -> None:
                add(dx, dones)
                for at in range(1):
                    dflag[at : at + 1].copy_from(dflag[1:])

            for _ in range(3):
                assert region.loop(body, until=dflag[:1], at_most=2) == 2
                assert len(captures) == entered
            assert region.loop(body, until=dones[:1], at_most=5) == 1  # another element ends the loop
            assert len(captures) == entered
    assert (x == 14).all()


def add(dx: Any, dones: Any) -> None:
    blas.axpy(1.0, dones, dx)


def test_a_loop_captures_anew_what_may_have_changed(device: str, captures: list[int]) -> None:
    x, ones, factors, array = np.zeros(3), np.ones(3), [1.0], np.ones(1)
    region = offload_args(x, ones, device=device)
    with region as (dx, dones):
        factor = 1.0
        bodies: dict[str, Callable[[], object]] = {
            "a variable": lambda: blas.axpy(factor, dones, dx),
            "a list": lambda: blas.axpy(factors[0], dones, dx),
            "a list's method": partial(lambda: blas.axpy(factors[-1], dones, dx)),
            "an array": lambda: blas.axpy(array[0], dones, dx),
        }
        for name, body in bodies.items():
            del captures[:]
            dx.fill(0)
            factor = factors[0] = array[0] = 1.0
            region.loop(body, until=dones[:1], at_most=1)
            factor = factors[0] = array[0] = 5.0
            region.loop(body, until=dones[:1], at_most=1)
            assert len(captures) == 2, name
            assert dx.to_host()[1] == 6.0, name


def test_a_loop_knows_that_the_region_of_an_array_has_ended(device: str, captures: list[int]) -> None:
    x, ones = np.zeros(3), np.ones(3)
    other, region = offload_args(ones, device=device), offload_args(x, device=device)
    (dones,) = other.open()
    with region as (dx,):

        def body() -> None:
            blas.axpy(1.0, dones, dx)

        region.loop(body, until=dones[:1], at_most=1)
        other.close()
        with pytest.raises(StalePointerError, match=r"axpy: x is a pointer whose region has ended"):
            region.loop(body, until=dx[:1], at_most=1)
        assert len(captures) == 2
    assert (x == 1).all()


def test_graphs_of_loops_end_with_their_region(device: str) -> None:
    x, flag = np.zeros(3), np.zeros(2)
    lent = offload_args(x, np.ones(3), flag, device=device)
    with lent as (dx, dones, dflag):
        for factor in range(6):  # more loops than are kept

            def body(factor: float = factor) -> None:
                blas.axpy(factor, dones, dx)

            assert lent.loop(body, until=dflag[:1], at_most=1) == 1
    gone = weakref.ref(graphs._kept[lent][0].graph)
    assert len(graphs._kept[lent]) == 4
    del lent
    assert gone() is None
    assert (x == 15).all()
