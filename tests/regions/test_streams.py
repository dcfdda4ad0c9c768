"""Streams of the region and of the caller, and memory that is freed after the work of a busy stream."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.driver import OwnStream
from offload_args import (
    Device,
    Out,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    OffloadError,
    RegionError,
)


@pytest.mark.promise("T08")
@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("body", ["ends", "raises"])
def test_memory_freed_behind_a_busy_stream_reaches_the_next_array_whole(device: str, body: str, rounds: int) -> None:
    error = KeyError("the body's")
    how = (KeyError, error, None) if body == "raises" else (None, None, None)
    twice = 2 * np.eye(256, dtype=np.float32)
    for i in range(rounds):
        a, b, c = (np.full(shape, 3 * i + j, np.float32) for j, shape in enumerate(((256, 256), 256**2, 256**2), 1))
        region = offload_args(twice, a, device=device)
        dtwice, da = region.__enter__()
        for _ in range(20):  # on a GPU, the calls are issued long before they are done
            blas.trsm(1.0, dtwice, da)
        leaving = threading.Thread(target=region.__exit__, args=how)
        leaving.start()
        with offload_args(b, device=device) as (db,), offload_args(Out(c), b, device=device) as (dc, again):
            blas.scal(2.0, db)
            blas.copy(again, dc)
            blas.scal(3.0, again)
        leaving.join()
        np.testing.assert_array_equal(a, np.full_like(a, (3 * i + 1) * (1 if body == "raises" else 0.5**20)))
        np.testing.assert_array_equal(b, np.full_like(b, 6 * (3 * i + 2)))
        np.testing.assert_array_equal(c, np.full_like(c, 2 * (3 * i + 2)))
    assert not any("leaving the region failed" in note for note in getattr(error, "__notes__", []))


def test_the_stream_of_a_region_is_for_gpus_and_while_it_is_open(device: str) -> None:
    region = offload_args(ramp(3), device=device)
    with pytest.raises(RegionError, match="not open"):
        _ = region.stream
    with region:
        if not device.startswith(("cuda", "hip")):
            assert not hasattr(region, "stream")
            with pytest.raises(AttributeError, match=f"on {device}; only GPUs"):
                _ = region.stream
            return
        stream = region.stream
        assert stream.__cuda_stream__() == (0, stream.handle)
        assert stream.handle != 0 and repr(stream) == f"Stream({device})"
    with pytest.raises(RegionError, match="not open"):
        stream.__cuda_stream__()
    assert repr(stream) == "Stream(ended)"


def test_the_stream_of_a_region_is_the_callers_if_that_gave_one(cuda: str) -> None:
    own, x = OwnStream(), ramp(3)
    region = offload_args(ramp(3), device=cuda, stream=own)
    with region:
        assert region.stream.__cuda_stream__() == own.__cuda_stream__()
        with offload_args(x, device=cuda, stream=region.stream) as (dx,):
            blas.scal(2.0, dx)
    own.destroy()
    np.testing.assert_array_equal(x, 2 * ramp(3))


def test_calls_go_to_the_callers_stream_and_their_results_come_down(cuda: str) -> None:
    stream = OwnStream()
    x, y = ramp(1000), ramp(1000)
    with offload_args(x, y, device=cuda, stream=stream) as (dx, dy):
        blas.axpy(1.0, dx, dy)
        assert blas.asum(dy) == 2 * ramp(1000).sum()
        blas.scal(2.0, dy)
    stream.destroy()
    np.testing.assert_array_equal(y, 4 * ramp(1000))


@pytest.mark.promise("T09")
@pytest.mark.parametrize("body", ["ends", "raises"])
def test_the_callers_stream_is_destroyed_before_the_region_is_left(cuda: str, body: str) -> None:
    twice = 2 * np.eye(256, dtype=np.float32)
    for i in range(1, 20):  # new streams get the addresses of old ones
        stream = OwnStream()
        a = np.full((256, 256), i, np.float32)
        with contextlib.suppress(KeyError), offload_args(twice, a, device=cuda, stream=stream) as (dtwice, da):
            for _ in range(20):
                blas.trsm(1.0, dtwice, da)
            stream.destroy()
            if body == "raises":
                raise KeyError
        np.testing.assert_array_equal(a, np.full_like(a, i * (1 if body == "raises" else 0.5**20)))
        with offload_args(twice, a, device=cuda) as (dtwice, da):  # uses the library's handle that had the stream
            blas.trmm(1.0, dtwice, da)
        np.testing.assert_array_equal(a, np.full_like(a, i * (2 if body == "raises" else 0.5**19)))
    Device(cuda).synchronize()


@pytest.mark.promise("T09")
def test_results_of_a_destroyed_stream_are_used_by_the_region_around(cuda: str) -> None:
    twice = 2 * np.eye(256, dtype=np.float32)
    for i in range(1, 20):
        stream = OwnStream()
        a, b = np.full((256, 256), i, np.float32), np.zeros((256, 256), np.float32)
        with offload_args(twice, a, b, device=cuda) as (dtwice, da, db):
            with offload_args(twice, a, device=cuda, stream=stream) as inner:
                for _ in range(20):
                    blas.trsm(1.0, *inner)
                stream.destroy()
                update(a)
                np.testing.assert_array_equal(a, np.full_like(a, i * 0.5**20))
            blas.gemm(1.0, dtwice, da, 0.0, db)
        np.testing.assert_array_equal(b, 2 * a)


def test_a_region_ends_where_the_driver_can_not_tell_whether_its_stream_is_captured() -> None:
    sim, x = testing.sim_device(), np.ones(4)
    first = offload_args(x, device=sim)
    with first:
        assert not hasattr(first, "stream")  # from here on the stream may be captured
    second = offload_args(x, device=sim)
    second.__enter__()
    testing.fail_call(sim, 1)
    with pytest.raises(OffloadError, match="stream_capturing"):
        second.__exit__(None, None, None)
    testing.no_mappings_left()
