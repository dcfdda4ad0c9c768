"""Regions: what moves, when, and what must survive. Ids such as T02 are those of the project's list of test cases."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import resource
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import offload_args as package
from helpers.driver import OwnStream
from helpers.interrupts import at_every_place, ctrl_c
from offload_args import (
    Device,
    DevicePtr,
    In,
    InOut,
    Out,
    Scratch,
    blas,
    call,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    AliasError,
    ArgumentError,
    BackendError,
    DeviceUnavailableError,
    DirectionError,
    ForkedError,
    InvalidDataError,
    OffloadError,
    PerformanceWarning,
    PresentError,
    RegionError,
    StalePointerError,
    UnwrittenWarning,
)

Array = NDArray[Any]


def ramp(*shape: int, dtype: Any = np.float32, order: Any = "C") -> Array:
    size = int(np.prod(shape))
    return np.asarray(np.arange(1, size + 1).reshape(shape), dtype=dtype, order=order)


# -- directions ----------------------------------------------------------------------------------------------


def test_a_gemv_with_beta_zero_brings_a_and_x_up_and_only_y_down(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), np.full(3, np.nan, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(A, x, y, device=device) as (dA, dx, dy):
            assert moved.copies_up == 0
            blas.gemv(1.0, dA, dx, 0.0, dy)
            assert moved.copies_down == 0
    assert (moved.copies_up, moved.bytes_up) == (2, A.nbytes + x.nbytes)
    assert (moved.copies_down, moved.bytes_down) == (1, y.nbytes)
    np.testing.assert_array_equal(y, A @ x)


def test_a_chain_of_calls_makes_no_round_trip(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, y, device=device) as (dx, dy):
        for _ in range(5):
            blas.axpy(1.0, dx, dy)
            blas.scal(0.5, dy)
    assert (moved.copies_up, moved.copies_down) == (2, 1)


def test_an_array_that_no_call_uses_does_not_move(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, InOut(x), device=device):
        pass
    assert (moved.copies_up, moved.copies_down) == (0, 0)


def test_inout_goes_up_and_comes_down(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(InOut(x), device=device) as (dx,):
        blas.scal(2.0, dx)
    assert (moved.copies_up, moved.copies_down) == (1, 1)
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_writing_an_in_is_refused_before_the_call(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(In(x), device=device) as (dx,):
        with pytest.raises(DirectionError, match=r"scal: x.*In"):
            blas.scal(2.0, dx)
    assert (moved.calls, moved.copies_up) == (0, 0)
    np.testing.assert_array_equal(x, ramp(8))


def test_reading_an_out_before_it_was_written_is_refused(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with offload_args(Out(x), y, device=device) as (dx, dy):
        with pytest.raises(DirectionError, match=r"axpy: x.*InOut"):
            blas.axpy(1.0, dx, dy)
        blas.copy(dy, dx)
        blas.axpy(1.0, dx, dy)
    np.testing.assert_array_equal(y, 2 * ramp(8))


def test_t33_an_out_that_nothing_wrote_warns_and_stays_as_it_was(device: str) -> None:
    x = ramp(8)
    with pytest.warns(UnwrittenWarning, match="argument 1") as caught:
        with offload_args(Out(x), device=device):
            pass
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(x, ramp(8))


def test_t33_outs_that_nothing_wrote_are_named_in_their_order(device: str) -> None:
    with pytest.warns(UnwrittenWarning, match="nothing wrote it: argument 1, argument 3;"):
        with offload_args(Out(ramp(8)), ramp(5), Out(ramp(3)), device=device) as (_, dx, _):
            blas.scal(2.0, dx[1:])
    with pytest.warns(UnwrittenWarning, match=r": argument 1, argument 2, .*, argument \d+, \.\.\.;"):
        with offload_args(*(Out(ramp(3)) for _ in range(100)), device=device):
            pass


def test_t33_an_out_of_some_elements_leaves_the_others_as_they_were(device: str) -> None:
    source = np.arange(4.0)
    x = np.arange(10.0, 18.0)
    with offload_args(x, source, device=device) as (_, dsource):
        with offload_args(Out(x[2:6]), device=device) as (dpart,):
            blas.copy(dsource, dpart)
    assert x.tolist() == [10, 11, 0, 1, 2, 3, 16, 17]
    with offload_args(Out(x[:4]), x, source, device=device) as (dpart, _, dsource):
        blas.copy(dsource, dpart)
    assert x.tolist() == [0, 1, 2, 3, 2, 3, 16, 17]


def test_t33_outs_that_overlap_are_written_whole_or_not_at_all(device: str) -> None:
    source = np.arange(6.0)
    for part in (slice(0, 6), slice(2, 8)):
        x = np.arange(10.0, 18.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnwrittenWarning)
            with offload_args(Out(x[:6]), Out(x[part]), Out(x), source, device=device) as (*_, dx, dsource):
                with pytest.raises(DirectionError, match="does not write every element"):
                    blas.copy(dsource, dx[part])
                with pytest.raises(DirectionError, match="does not write every element"):
                    blas.copy(dsource, _[1])
        assert x.tolist() == np.arange(10.0, 18.0).tolist()


@pytest.mark.parametrize("n", [8, 1 << 16])
def test_t33_an_out_never_shows_what_another_array_left_on_the_device(device: str, n: int) -> None:
    secret = np.full(n, 12345, np.float32)
    for _ in range(10):
        with offload_args(secret, device=device) as (ds,):
            blas.scal(1.0, ds)
        x, y, z = ramp(n), ramp(n), ramp(n)
        with pytest.warns(UnwrittenWarning, match="nothing wrote it"):
            with offload_args(Out(x), Out(y), Out(z), In(np.ones(n, np.float32)), device=device) as (dx, dy, dz, done):
                with pytest.raises(DirectionError, match=r"copy: y.*InOut"):
                    blas.copy(done[: n // 2], dx[: n // 2])
                update(y)
                blas.copy(done, dz)
        np.testing.assert_array_equal(x, ramp(n))
        np.testing.assert_array_equal(y, ramp(n))
        np.testing.assert_array_equal(z, np.ones(n, np.float32))
        with offload_args(Out(x), device=device) as (dx,):
            assert dx.address  # given away: whoever has it may have written, so it comes down, but as zeros
        np.testing.assert_array_equal(x, np.zeros(n, np.float32))


def test_scratch_lives_on_the_device_only(device: str) -> None:
    x, y = ramp(8), np.zeros(8, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(x, Scratch(8, np.float32), y, device=device) as (dx, ds, dy):
            assert ds.shape == (8,)
            blas.copy(dx, ds)
            blas.scal(3.0, ds)
            blas.copy(ds, dy)
    assert (moved.copies_up, moved.copies_down) == (1, 1)
    np.testing.assert_array_equal(y, 3 * ramp(8))


def test_as_always_binds_a_tuple() -> None:
    with offload_args() as none, offload_args(ramp(2)) as one:
        assert none == ()
        assert isinstance(one, tuple)
        assert len(one) == 1


def test_rights_only_narrow_inwards(device: str) -> None:
    x = ramp(8)
    with offload_args(In(x), device=device) as (dx,):
        with pytest.raises(DirectionError, match="argument 1"):
            with offload_args(InOut(x), device=device):
                pass
    with offload_args(InOut(x), device=device) as (dx,):
        with offload_args(In(x), device=device) as (inner,):
            with pytest.raises(DirectionError):
                blas.scal(2.0, inner)
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(8))


# -- what must survive ---------------------------------------------------------------------------------------


def test_t02_a_body_that_raises_leaves_the_arrays_as_they_were(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError, match="the body's") as raised:
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            raise KeyError("the body's")
    assert [note.split(";")[0] for note in raised.value.__notes__] == [
        "offload_args: argument 1 was written on the device and discarded"
    ]
    np.testing.assert_array_equal(x, ramp(8))
    assert x.flags.writeable


def test_t02_keep_copies_down_what_is_valid_when_the_body_raises(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError):
        with offload_args(x, device=device, on_error="keep") as (dx,):
            blas.scal(2.0, dx)
            raise KeyError
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_t02_what_an_inner_region_wrote_before_it_raised_is_invalid_outside(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with pytest.raises(InvalidDataError):
        with offload_args(x, y, device=device) as (dx, dy):
            with pytest.raises(KeyError):
                with offload_args(x, device=device) as (inner,):
                    blas.scal(2.0, inner)
                    raise KeyError
            blas.axpy(1.0, dx, dy)
    np.testing.assert_array_equal(x, ramp(8))
    np.testing.assert_array_equal(y, ramp(8))


def test_t03_when_leaving_fails_too_the_bodys_exception_comes_first() -> None:
    sim = testing.sim_device()
    x = ramp(8)
    for k in range(1, 9):  # some failures have a way around them
        with pytest.raises(KeyError, match="the body's") as raised:
            with offload_args(x, device=sim, on_error="keep") as (dx,):
                blas.scal(2.0, dx)
                sim.synchronize()
                testing.fail_call(sim, k)
                raise KeyError("the body's")
        testing.fail_call(sim, 0)
        if hasattr(raised.value, "__notes__"):
            break
    (note,) = raised.value.__notes__
    assert note.startswith("leaving the region failed too: ")
    assert "sim:0" in note
    assert x.flags.writeable


def multiply_in_a_region(A: Array, x: Array, y: Array, device: Device | str) -> None:
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)


def multiply_by_call(A: Array, x: Array, y: Array, device: Device | str) -> None:
    call(blas.gemv, 1.0, A, x, 0.0, y, device=device)


@pytest.mark.parametrize("multiply", [multiply_in_a_region, multiply_by_call])
@pytest.mark.parametrize("k", range(1, 30))
def test_the_kth_backend_call_fails_and_nothing_stays(k: int, multiply: Any) -> None:
    sim = testing.sim_device()
    A, x, y = ramp(3, 4), ramp(4), np.zeros(3, np.float32)
    before = testing.backend_calls(sim)
    multiply(A, x, y, sim)
    needed = testing.backend_calls(sim) - before
    y[:] = 0
    testing.fail_call(sim, k)
    failed = False
    try:
        multiply(A, x, y, sim)
    except BackendError as error:
        failed = True
        assert "sim:0" in str(error)
        assert (y == 0).all() or (y == A @ x).all()
    finally:
        testing.fail_call(sim, 0)
    assert k <= needed or not failed
    assert failed or k > 2, "neither has a way around a failure of its first two calls"
    testing.no_mappings_left()
    assert A.flags.writeable
    multiply(A, x, y, sim)
    np.testing.assert_array_equal(y, A @ x)


def test_t10_an_array_deleted_in_the_body_is_held(device: str) -> None:
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


@pytest.mark.parametrize("part", [slice(None), slice(2, 6)])
def test_t11_resizing_an_array_in_the_body_is_refused(device: str, part: slice) -> None:
    x = ramp(8)
    lent = x[part] if part != slice(None) else x
    with offload_args(lent, device=device) as (dx,):
        with pytest.raises(ValueError, match="resize"):
            x.resize(1000, refcheck=False)
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x[part], 2 * ramp(8)[part])


def test_t12_a_new_array_at_a_freed_ones_address_is_a_new_one(device: str) -> None:
    for value in range(1, 20):
        x = np.full(64, value, np.float32)
        with offload_args(x, device=device) as (dx,):
            assert blas.asum(dx) == 64 * value
        del x


def test_t13_the_same_array_twice_is_one_buffer(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, x, device=device) as (a, b):
        assert moved.mappings == 1
        blas.scal(2.0, a)
        assert blas.asum(b) == 2 * ramp(8).sum()
    assert (moved.copies_up, moved.copies_down) == (1, 1)
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert x.flags.writeable


def test_t13_the_same_array_in_and_out_has_both_directions(device: str) -> None:
    x, y = ramp(8), 3 * ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(In(x), Out(x), y, device=device) as (a, b, dy):
        assert moved.mappings == 2
        assert blas.asum(a) == ramp(8).sum()
        blas.copy(dy, b)
        assert blas.asum(a) == 3 * ramp(8).sum()
    assert (moved.copies_up, moved.copies_down) == (2, 1)
    np.testing.assert_array_equal(x, 3 * ramp(8))


def test_t14_overlapping_views_share_memory_as_on_the_host(device: str) -> None:
    a, expected = ramp(10), ramp(10)
    with testing.counting(Device(device)) as moved, offload_args(a[:6], a[4:], device=device) as (left, right):
        assert moved.mappings == 1
        blas.scal(2.0, left)
        blas.scal(10.0, right)
    expected[:6] *= 2
    expected[4:] *= 10
    np.testing.assert_array_equal(a, expected)


def test_t14_disjoint_panels_of_a_matrix_keep_apart(device: str) -> None:
    A = ramp(4, 6)
    expected = A.copy()
    with offload_args(A[:, :2], A[:, 2:], device=device) as (left, right):
        for i in range(4):
            blas.scal(2.0, left[i])
            blas.scal(3.0, right[i])
    expected[:, :2] *= 2
    expected[:, 2:] *= 3
    np.testing.assert_array_equal(A, expected)


def test_t14_a_written_operand_that_overlaps_another_is_refused(device: str) -> None:
    a = ramp(10)
    with offload_args(a[:6], a[4:], device=device) as (left, right):
        with pytest.raises(AliasError, match=r"axpy: y.*x"):
            blas.axpy(1.0, left, right)
    A, B = ramp(3, 3), ramp(3, 3)
    with offload_args(A, B, device=device) as (dA, dB):
        with pytest.raises(AliasError, match=r"gemm: .*C"):
            blas.gemm(1.0, dA, dB, 0.0, dA)
    np.testing.assert_array_equal(A, ramp(3, 3))


def test_t15_a_nested_region_may_use_a_part_of_what_is_present(device: str) -> None:
    x = ramp(10)
    with testing.counting(Device(device)) as moved, offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        with offload_args(x[2:5], device=device) as (part,):
            assert blas.asum(part) == 2 * ramp(10)[2:5].sum()
            blas.scal(10.0, part)
        assert moved.copies_down == 0
        blas.scal(0.5, dx)
    expected = ramp(10)
    expected[2:5] *= 10
    np.testing.assert_array_equal(x, expected)
    assert (moved.copies_up, moved.copies_down) == (1, 1)


def test_t15_reaching_beyond_what_is_present_names_the_remedy(device: str) -> None:
    x = ramp(10)
    with offload_args(x[2:5], device=device):
        with pytest.raises(PresentError) as raised:
            with offload_args(x, device=device):
                pass
    assert "argument 1" in str(raised.value)
    assert "outside" in str(raised.value) or "outer" in str(raised.value)
    assert x.flags.writeable


def test_t15_a_strided_view_of_what_is_present_is_shared_or_refused(device: str) -> None:
    A = ramp(6, 6)
    expected = A.copy()
    with offload_args(A, device=device) as (dA,):
        try:
            with offload_args(A[::2, ::2], device=device) as (part,):
                blas.scal(10.0, part[1])
        except PresentError as error:
            assert "argument 1" in str(error)
            with pytest.raises(OffloadError):
                raise
        else:
            expected[2, ::2] *= 10
        blas.scal(1.0, dA[0])
    np.testing.assert_array_equal(A, expected)


def test_t16_nested_regions_may_be_left_in_the_wrong_order(device: str) -> None:
    x = ramp(8)
    outer, inner = offload_args(x, device=device), offload_args(x[:4], device=device)
    (dx,) = outer.__enter__()
    (part,) = inner.__enter__()
    blas.scal(2.0, dx)
    outer.__exit__(None, None, None)
    assert not dx.live
    assert part.live
    blas.scal(10.0, part)
    inner.__exit__(None, None, None)
    expected = 2 * ramp(8)
    expected[:4] *= 10
    np.testing.assert_array_equal(x, expected)
    assert x.flags.writeable


def test_t16_leaving_twice_does_nothing(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    with region as (dx,):
        blas.scal(2.0, dx)
    assert region.__exit__(None, None, None) is False
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_t16_a_region_may_be_left_on_another_thread(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.__enter__()
    blas.scal(2.0, dx)
    thread = threading.Thread(target=region.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert x.flags.writeable


@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("body", ["ends", "raises"])
def test_t08_memory_freed_behind_a_busy_stream_is_whole_for_who_takes_it(device: str, body: str, rounds: int) -> None:
    error = KeyError("the body's")
    how = (KeyError, error, None) if body == "raises" else (None, None, None)
    twice = 2 * np.eye(256, dtype=np.float32)
    for i in range(rounds):
        a, b, c = (np.full(shape, 3 * i + j, np.float32) for j, shape in enumerate(((256, 256), 256**2, 256**2), 1))
        region = offload_args(twice, a, device=device)
        dtwice, da = region.__enter__()
        for _ in range(20):  # on a GPU they are asked for long before they are done
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


# -- a region over several cells of a notebook ---------------------------------------------------------------


def test_open_and_close_are_the_two_ends_of_a_with_block(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), np.zeros(3, np.float32)
    region = offload_args(A, x, Out(y), device=device)
    dA, dx, dy = region.open()
    assert not A.flags.writeable
    blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, 0)
    region.close()
    np.testing.assert_array_equal(y, A @ x)
    assert A.flags.writeable and not dA.live


def test_discard_leaves_the_arrays_as_they_were(device: str) -> None:
    x, y = ramp(8), ramp(8)
    region = offload_args(x, y, device=device, on_error="keep")
    dx, dy = region.open()
    blas.scal(2.0, dx)
    blas.scal(2.0, dy)
    update(y)
    region.discard()
    np.testing.assert_array_equal(x, ramp(8))
    np.testing.assert_array_equal(y, 2 * ramp(8))
    assert not dx.live and x.flags.writeable


def test_a_region_may_be_opened_once_more_after_its_end(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    for end in (region.close, region.discard, lambda: region.__exit__(None, None, None), region.close):
        (dx,) = region.open()
        blas.scal(2.0, dx)
        end()
    with region as (dx,):
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2**4 * ramp(8))


def test_t16_closing_what_is_not_open_does_nothing(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    for end in (region.close, region.discard):
        assert end() is None  # it was never open
    with region as (dx,):
        blas.scal(2.0, dx)
        region.close()
        np.testing.assert_array_equal(x, 2 * ramp(8))
    region.discard()
    region.close()
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_opening_what_is_open_is_refused_and_changes_nothing(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.open()
    with pytest.raises(RegionError, match=r"open already: .*close\(\)"):
        region.open()
    with pytest.raises(RegionError, match="open already"), region:
        pass
    blas.scal(2.0, dx)
    region.close()
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_close_warns_and_raises_what_leaving_does(device: str) -> None:
    x, y = ramp(8), ramp(8)
    region = offload_args(Out(x), device=device)
    region.open()
    with pytest.warns(UnwrittenWarning, match="argument 1") as caught:
        region.close()
    assert caught[0].filename == __file__
    region = offload_args(y, device=device)
    region.open()
    with pytest.raises(ZeroDivisionError), offload_args(y, device=device) as (dy,):
        blas.scal(2.0, dy)
        raise ZeroDivisionError
    with pytest.raises(InvalidDataError, match="argument 1"):
        region.close()
    np.testing.assert_array_equal(y, ramp(8))


def test_an_open_region_that_is_collected_is_discarded_with_a_warning(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.open()
    blas.scal(2.0, dx)
    with pytest.warns(ResourceWarning, match=r"never left; .* close\(\)"):
        del region
        gc.collect()
    assert not dx.live and x.flags.writeable
    np.testing.assert_array_equal(x, ramp(8))


def test_a_region_closed_while_the_k_th_backend_call_fails_is_closed() -> None:
    sim = testing.sim_device()
    for k in range(1, 6):
        x = ramp(8)
        region = offload_args(x, device=sim)
        (dx,) = region.open()
        blas.scal(2.0, dx)
        testing.fail_call(sim, k)
        with contextlib.suppress(BackendError):
            region.close()
        testing.fail_call(sim, 0)
        assert not dx.live and "not open" in repr(region)
        assert x.flags.writeable


# -- what a region shows -------------------------------------------------------------------------------------


def test_a_region_shows_what_is_lent_where_how_big_and_what_became_of_it(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    region = offload_args(In(A), x, Out(y), Scratch((1000, 1000)), device=device)
    closed = repr(region)
    assert closed.splitlines() == [
        f"offload_args on {device}, not open",
        "  1  float32  (3, 4)        48 bytes  In",
        "  2  float32  (4,)          16 bytes  by use",
        "  3  float32  (3,)          12 bytes  Out",
        "  4  float64  (1000, 1000)  7.63 MiB  Scratch",
    ]
    with region as (dA, dx, dy, dw):
        blas.gemv(1.0, dA, dx, 0.0, dy)
        assert repr(region).splitlines() == [
            f"offload_args on {device}, open",
            "  1  float32  (3, 4)        48 bytes  In       read-only, sent",
            "  2  float32  (4,)          16 bytes  by use   sent",
            "  3  float32  (3,)          12 bytes  Out      written",
            "  4  float64  (1000, 1000)  7.63 MiB  Scratch  untouched",
        ]
        html = region._repr_html_()
        assert html is not None and html.count("<tr>") == 5 and "<td>read-only, sent</td>" in html
    assert repr(region) == closed
    assert repr(offload_args()) == "offload_args, not open"


def test_showing_a_region_never_raises_and_escapes_what_it_shows() -> None:
    class Awkward:
        @property
        def shape(self) -> Any:
            raise ZeroDivisionError

        dtype = np.dtype(np.float32)

    strange = np.zeros(3, dtype=[("<script>", "i4")])
    html = offload_args(strange, [1, 2], None)._repr_html_()
    assert html is not None and "&lt;script&gt;" in html and "<script>" not in html
    assert "list" in repr(offload_args([1, 2]))
    assert repr(offload_args(Awkward())).startswith("<offload_args.regions.offload_args object at 0x")
    assert offload_args(Awkward())._repr_html_() is None
    bare = offload_args.__new__(offload_args)
    assert repr(bare).startswith("<offload_args.regions.offload_args object at 0x")


def test_showing_moves_nothing_and_asks_no_device() -> None:
    sim = testing.sim_device()
    with offload_args(ramp(8), device=sim) as (dx,):
        region = offload_args(ramp(3), device=sim)
        before = testing.backend_calls(sim)
        for one in (dx, sim, region):
            assert repr(one) and one._repr_html_()
        assert testing.backend_calls(sim) == before


SHOWN_LATE = """
import atexit, os
import numpy as np
from offload_args import Device, blas, offload_args

x, device = np.ones(3), Device({device!r})
region = offload_args(x, device=device)
(dx,) = region.open()
blas.scal(2.0, dx)

def show():
    for one in (region, dx, device):
        one._repr_html_()
        assert device.name in repr(one) or "dead" in repr(one)
    print(repr(dx).rpartition(" ")[2])

atexit.register(show)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_t21_regions_and_pointers_show_themselves_in_a_forked_child_and_at_exit(device: str) -> None:
    # Python 3.12 warns of every fork of a process with threads.
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SHOWN_LATE.format(device=device)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "dead)\nwritten)\n")


def test_the_stream_of_a_region_is_for_gpus_and_while_it_is_open(device: str) -> None:
    region = offload_args(ramp(3), device=device)
    with pytest.raises(RegionError, match="not open"):
        _ = region.stream
    with region:
        if not device.startswith("cuda"):
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


def test_an_open_region_can_not_be_entered_again() -> None:
    region = offload_args(ramp(8))
    with region:
        with pytest.raises(RegionError, match="open already"):
            region.__enter__()
    with region as (dx,):
        assert dx.live


def test_t23_a_region_in_a_reference_cycle_is_ended_once_on_whatever_thread_collects_it(device: str) -> None:
    x = ramp(8)

    def leave_a_cycle() -> None:
        region = offload_args(x, device=device)
        cycle: list[Any] = [region, *region.__enter__()]
        blas.scal(2.0, cycle[1][2:])
        cycle.append(cycle)

    leave_a_cycle()
    with pytest.warns(ResourceWarning, match="never left"):
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(x, ramp(8))
    assert x.flags.writeable


def test_t23_slices_in_reference_cycles_are_released_once(device: str) -> None:
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


# -- streams of the caller's own -----------------------------------------------------------------------------


def test_calls_go_to_the_callers_stream_and_what_they_wrote_comes_down(cuda: str) -> None:
    stream = OwnStream()
    x, y = ramp(1000), ramp(1000)
    with offload_args(x, y, device=cuda, stream=stream) as (dx, dy):
        blas.axpy(1.0, dx, dy)
        assert blas.asum(dy) == 2 * ramp(1000).sum()
        blas.scal(2.0, dy)
    stream.destroy()
    np.testing.assert_array_equal(y, 4 * ramp(1000))


@pytest.mark.parametrize("body", ["ends", "raises"])
def test_t09_the_callers_stream_is_destroyed_before_the_region_is_left(cuda: str, body: str) -> None:
    twice = 2 * np.eye(256, dtype=np.float32)
    for i in range(1, 20):  # new streams are where old ones were
        stream = OwnStream()
        a = np.full((256, 256), i, np.float32)
        with contextlib.suppress(KeyError), offload_args(twice, a, device=cuda, stream=stream) as (dtwice, da):
            for _ in range(20):
                blas.trsm(1.0, dtwice, da)
            stream.destroy()
            if body == "raises":
                raise KeyError
        np.testing.assert_array_equal(a, np.full_like(a, i * (1 if body == "raises" else 0.5**20)))
        with offload_args(twice, a, device=cuda) as (dtwice, da):  # the library's handle that had the stream
            blas.trmm(1.0, dtwice, da)
        np.testing.assert_array_equal(a, np.full_like(a, i * (2 if body == "raises" else 0.5**19)))
    Device(cuda).synchronize()


def test_t09_what_a_destroyed_stream_wrote_is_used_by_the_region_around(cuda: str) -> None:
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


# -- T25, T26: strides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part", [np.s_[::-1], np.s_[::3], np.s_[1::2], np.s_[-2::-3]], ids=["reversed", "every 3rd", "odd", "back"]
)
def test_t25_strided_vectors_are_read_and_written_right(device: str, part: slice) -> None:
    base = ramp(12)
    expected = base.copy()
    expected[part] *= 2
    with pytest.warns(PerformanceWarning, match="argument 1") as caught:
        with offload_args(base[part], device=device) as (dx,):
            assert blas.asum(dx) == base[part].sum()
            blas.scal(2.0, dx)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(base, expected)  # the gaps are canaries


@pytest.mark.parametrize("part", [np.s_[::2, ::2], np.s_[::-1, :], np.s_[:, ::-1], np.s_[::2, 1::3]])
def test_t25_strided_matrices_are_read_and_written_right(device: str, part: Any) -> None:
    base = ramp(6, 6)
    x = np.ones(base[part].shape[1], np.float32)
    y = np.zeros(base[part].shape[0], np.float32)
    expected = base.copy()
    expected[part] = np.outer(base[part] @ x, x) + base[part]
    product = base[part] @ x
    with pytest.warns(PerformanceWarning):
        with offload_args(base[part], x, y, device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            blas.ger(1.0, dy, dx, dA)
    np.testing.assert_array_equal(y, product)
    np.testing.assert_array_equal(base, expected)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_t25_a_broadcast_view_can_be_read_but_not_written(device: str) -> None:
    row = np.broadcast_to(np.float32(3), (4,))
    y = np.zeros(4, np.float32)
    with offload_args(row, y, device=device) as (dx, dy):
        blas.copy(dx, dy)
        with pytest.raises(ValueError, match="scal"):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(y, np.full(4, 3))
    writable = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (4,), (0,))
    for declared in (Out, InOut):
        with pytest.raises(ValueError, match="argument 1"):
            with offload_args(declared(writable), device=device):
                pass


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_t25_an_output_that_overlaps_itself_is_refused(device: str) -> None:
    windows = np.lib.stride_tricks.as_strided(ramp(8), (4, 3), (4, 4))
    with pytest.raises(ValueError, match="argument 1"):
        with offload_args(Out(windows), device=device):
            pass
    y = np.zeros(4, np.float32)
    with offload_args(windows, np.ones(3, np.float32), y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, windows.sum(axis=1))


@pytest.mark.parametrize(
    ("make", "ld"),
    [
        (lambda: ramp(3, 5), 5),
        (lambda: ramp(3, 5, order="F"), 3),
        (lambda: ramp(3, 5).T, 5),
        (lambda: ramp(3, 8)[:, 2:7], 8),
        (lambda: ramp(8, 5, order="F")[2:5], 8),
        (lambda: ramp(9, 5)[3:6], 5),
        (lambda: ramp(9, 5)[::3], 15),
        (lambda: ramp(1, 5), 1),
        (lambda: ramp(5, 1), 1),
        (lambda: ramp(5, 1, order="F"), 1),
        (lambda: ramp(1, 5, order="F"), 1),
    ],
)
def test_t26_matrices_in_either_order_map_without_repacking(device: str, make: Any, ld: int) -> None:
    A = make()
    x, y = ramp(A.shape[1]), np.zeros(A.shape[0], np.float32)
    with testing.counting(Device(device)) as moved, offload_args(A, x, y, device=device) as (dA, dx, dy):
        assert dA.ld == ld
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, A @ x)
    assert moved.copies_up == 2


# -- T27: read-only arrays -----------------------------------------------------------------------------------


def read_only(tmp_path: Any, kind: str) -> Array:
    if kind == "frombuffer":
        return np.frombuffer(ramp(8).tobytes(), np.float32)
    if kind == "memmap":
        ramp(8).tofile(tmp_path / "file")
        return np.memmap(tmp_path / "file", np.float32, mode="r")
    x = ramp(8)
    x.setflags(write=False)
    return x


@pytest.mark.parametrize("kind", ["flag", "frombuffer", "memmap"])
def test_t27_a_read_only_output_is_refused_before_any_copy(device: str, tmp_path: Any, kind: str) -> None:
    x = read_only(tmp_path, kind)
    with testing.counting(Device(device)) as moved:
        for declared in (Out, InOut):
            with pytest.raises(ValueError, match="argument 1"):
                with offload_args(declared(x), device=device):
                    pass
        with offload_args(x, device=device) as (dx,):
            with pytest.raises(ValueError, match=r"scal: x"):
                blas.scal(2.0, dx)
            assert moved.copies_up == 0
            assert blas.asum(dx) == ramp(8).sum()
    assert moved.copies_down == 0
    assert not x.flags.writeable


@pytest.mark.parametrize("part", [slice(None), slice(0, 2), slice(1, 3)], ids=str)
@pytest.mark.parametrize("backwards", [False, True])
def test_t27_a_view_made_read_only_is_never_written_through_beside_its_array(
    device: str, backwards: bool, part: slice
) -> None:
    A = ramp(3, 5)
    view = A[part]
    view.flags.writeable = False

    def beside(view: Any) -> list[Any]:
        return [view, A] if backwards else [A, view]

    for declared in (Out, InOut):
        with pytest.raises(DirectionError, match="is read-only and lent as"):
            with offload_args(*beside(declared(view)), device=device):
                pass
        assert A.flags.writeable and not view.flags.writeable
    with offload_args(*beside(view), device=device) as pointers:
        dA, dv = pointers[::-1] if backwards else pointers
        with pytest.raises(DirectionError):
            dv.assign(9)
        dA.assign(2 * ramp(3, 5))
        with pytest.raises(DirectionError, match="is read-only and lent as"):  # it is known as such further in
            with offload_args(InOut(view), device=device):
                pass
        with offload_args(A, view, device=device) as (inner, dv):
            with pytest.raises(DirectionError):
                dv.assign(9)
            inner[0].assign(1)
    expected = 2 * ramp(3, 5)
    expected[0] = 1
    np.testing.assert_array_equal(A, expected)
    assert A.flags.writeable and not view.flags.writeable


def test_t27_a_view_taken_of_a_lent_array_is_as_writable_as_that(device: str) -> None:
    A = ramp(3, 5)
    before = A[1:]
    with offload_args(A, device=device):
        taken = A[1:]
        assert not taken.flags.writeable and before.flags.writeable
        for view in (taken, before):
            with offload_args(A, InOut(view), device=device) as (_, dv):
                dv[0].assign(9)
    expected = ramp(3, 5)
    expected[1] = 9
    np.testing.assert_array_equal(A, expected)
    assert A.flags.writeable and before.flags.writeable


# -- read-only while lent ------------------------------------------------------------------------------------


def test_an_array_is_read_only_while_it_is_lent(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device):
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        with offload_args(x, x, device=device):
            pass
        assert not x.flags.writeable
    assert x.flags.writeable


def test_the_flag_comes_back_whatever_the_order_of_leaving() -> None:
    x = ramp(8)
    view = x[2:]
    for first, second in [(0, 1), (1, 0)]:
        regions = [offload_args(x), offload_args(view)]
        for region in regions:
            region.__enter__()
        assert not view.flags.writeable
        regions[first].__exit__(None, None, None)
        regions[second].__exit__(None, None, None)
        assert x.flags.writeable
        assert view.flags.writeable
    with offload_args(view, x):
        pass
    assert view.flags.writeable


def test_a_view_taken_while_its_base_is_lent_may_be_written_by_the_device(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device):
        with offload_args(InOut(x[4:]), device=device) as (part,):
            blas.scal(2.0, part)
    np.testing.assert_array_equal(x[4:], 2 * ramp(8)[4:])


def test_an_array_that_was_read_only_stays_so(device: str) -> None:
    x = ramp(8)
    x.setflags(write=False)
    with offload_args(In(x), device=device):
        pass
    assert not x.flags.writeable


def test_a_failed_entry_gives_the_flags_back(device: str) -> None:
    x = ramp(8)
    with pytest.raises(TypeError):
        offload_args(x, np.array(["text"]), device=device).__enter__()
    assert x.flags.writeable


# -- update, assign, call ------------------------------------------------------------------------------------


def test_update_brings_what_the_device_wrote(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        update(x)
        np.testing.assert_array_equal(x, 2 * ramp(8))
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 4 * ramp(8))


def test_update_commits_even_if_the_body_then_raises(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError):
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            update(x)
            blas.scal(2.0, dx)
            raise KeyError
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_with_update_the_host_writes_on_purpose(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        with update(x) as host:
            assert host is x
            x[0] = 100
        assert not x.flags.writeable
        with update(x[2:4]) as part:
            part[:] = 7
        assert not x.flags.writeable
        total = blas.asum(dx)
    expected = 2 * ramp(8)
    expected[0], expected[2:4] = 100, 7
    np.testing.assert_array_equal(x, expected)
    assert total == expected.sum()
    assert x.flags.writeable


def test_update_of_an_array_that_is_not_lent_names_the_remedy(device: str) -> None:
    with pytest.raises(PresentError, match=r"update.*not present"):
        update(ramp(8))
    with offload_args(ramp(8), device=device) as (dx,):
        with pytest.raises(TypeError, match="NumPy array"):
            update(dx)  # type: ignore[arg-type]


def test_assign_writes_host_values(device: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, device=device) as (dA,):
        dA[1].assign(np.array([9, 8, 7, 6], np.float32))
        dA[:, 3].assign(0)
        dA[2:, :2].assign(0.5)
    expected = ramp(3, 4)
    expected[1], expected[:, 3], expected[2:, :2] = [9, 8, 7, 6], 0, 0.5
    np.testing.assert_array_equal(A, expected)


def test_assign_converts_nothing_but_python_numbers(device: str) -> None:
    x, n = ramp(4), ramp(4, dtype=np.int32)
    with offload_args(x, n, In(ramp(4)), device=device) as (dx, dn, fixed):
        with pytest.raises(TypeError, match="needs float32, got float64"):
            dx.assign(np.zeros(4))
        with pytest.raises(TypeError, match="needs float32, got complex"):
            dx.assign(1j)
        with pytest.raises(TypeError, match="needs int32, got float"):
            dn.assign(0.5)
        with pytest.raises(ValueError, match="broadcast"):
            dx.assign(np.zeros(3, np.float32))
        with pytest.raises(DirectionError):
            fixed.assign(1)
        with pytest.raises(TypeError, match="use copy_from"):
            dx.assign(fixed)
    np.testing.assert_array_equal(x, ramp(4))


def test_call_maps_calls_copies_back_and_returns_the_value(device: str) -> None:
    def dot_and_scale(factor: float, x: Any, *, y: Any, label: str) -> tuple[str, float]:
        assert isinstance(x, DevicePtr)
        value = blas.dot(x, y)
        blas.scal(factor, y)
        return label, value

    x, y = ramp(8), ramp(8)
    for function in (call, package.call, offload_args.call):
        y[:] = ramp(8)
        result = function(dot_and_scale, 2.0, In(x), y=y, label="name", device=device)
        assert result == ("name", float(ramp(8) @ ramp(8)))
        np.testing.assert_array_equal(y, 2 * ramp(8))


def test_small_arguments_of_a_call_need_no_device_memory(device: str) -> None:
    B, c = ramp(7, 6), np.full((5, 2), np.nan, np.float32)
    A, x, y = B[1:6, 1:4], ramp(3), c[:, 1]  # rows with gaps; elements with gaps
    before = Device(device).counters
    with pytest.warns(PerformanceWarning, match="packed"):
        call(blas.gemv, 2.0, A, x[::-1], 0.0, Out(y), device=device)
    after = Device(device).counters
    np.testing.assert_array_equal(y, 2 * A @ x[::-1])  # small whole numbers
    assert np.isnan(c[:, 0]).all()
    np.testing.assert_array_equal(B, ramp(7, 6))
    assert after.allocations - before.allocations == (1 if device == "host" else 0)
    assert after.bytes_up - before.bytes_up >= 4 * (A.size + x.size)
    call(blas.gemm, 1.0, ramp(3, 5, order="F"), ramp(5, 2), 0.0, c[:3], device=device)
    np.testing.assert_array_equal(c[:3], ramp(3, 5) @ ramp(5, 2))


def test_a_function_that_is_called_may_do_with_its_pointers_what_a_region_may(device: str) -> None:
    x, y = ramp(8), ramp(8)

    def play(dx: Any, dy: Any) -> None:
        blas.axpy(1.0, dx, dy)  # y: 2 r
        with update(y) as again:
            np.testing.assert_array_equal(again, 2 * ramp(8))
            again[:] = 3
        dx.assign(4)
        with offload_args(x[:4], device=device) as (part,):
            blas.scal(2.0, part)
        assert dy[2:].address == dy.address + 8
        blas.axpy(10.0, dx, dy)

    call(play, x, y, device=device)
    np.testing.assert_array_equal(x, [8, 8, 8, 8, 4, 4, 4, 4])
    np.testing.assert_array_equal(y, 3 + 10 * x)
    out = ramp(8)
    call(lambda d: d.address, Out(out), device=device)  # nobody wrote there, as far as is known


def test_call_and_regions_stand_code_that_holds_every_object(device: str) -> None:
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
        # Both are packed, and warned of: they are views of two arrays.
        with offload_args(In(x[::-2]), In(ramp(8)[6::-2]), device=device) as (even, odd):
            assert blas.asum(even) + blas.asum(odd) == x.sum()
    assert len(held) >= 3  # once for the attribute, twice for the warnings
    held.clear()


def test_a_view_whose_base_became_read_only_meanwhile_is_let_go(device: str) -> None:
    x = ramp(8)
    gone = weakref.ref(x)
    with offload_args(x[2:], device=device):
        x.flags.writeable = False
    del x
    gc.collect()
    assert gone() is None


LENT_ELSEWHERE = """
import os, threading, warnings
import numpy as np
from offload_args import offload_args
from offload_args.errors import ForkedError
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
a, inside, go = np.zeros(10), threading.Event(), threading.Event()
def other():
    with offload_args(a, device="{device}"):
        inside.set()
        go.wait()
thread = threading.Thread(target=other)
thread.start()
inside.wait()
again = offload_args(a, device="{device}")
child = os.fork()
if child == 0:
    try:
        again.__enter__()
    except ForkedError:
        os._exit(7 if a.flags.writeable else 8)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
thread.join()
print(status, a.flags.writeable)
"""


def test_t21_a_region_refused_in_a_child_leaves_the_array_writable(device: str) -> None:
    code = LENT_ELSEWHERE.format(device=device)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("7 True\n", "")


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


def test_t24_ctrl_c_in_a_region_that_is_dropped_comes_later() -> None:
    ran = subprocess.run([sys.executable, "-W", "default", "-c", DROPPED], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "KeyboardInterrupt\n"
    assert "ResourceWarning: offload_args: a region was never left" in ran.stderr and "ignored" not in ran.stderr


def test_t24_ctrl_c_is_not_lost_where_it_can_not_be_raised() -> None:
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


def test_call_points_its_warnings_at_the_caller(device: str) -> None:
    with pytest.warns(UnwrittenWarning) as caught:
        call(lambda dx: None, Out(ramp(8)), device=device)
    assert caught[0].filename == __file__


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match="on_error"):
        offload_args(ramp(2), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="__cuda_stream__"):
        offload_args(ramp(2), stream=17)
    with pytest.raises(DeviceUnavailableError, match="nonsense"):
        offload_args(ramp(2), device="nonsense")


def test_options_of_a_region_and_of_a_call_are_named(device: str) -> None:
    x = ramp(4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'devise'"):
        offload_args(x, devise=device)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="keywords must be strings"):
        offload_args(x, **{1: device})  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'function'"):
        call(device=device)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="on_error needs .*, got None"):
        call(blas.asum, x, device=device, on_error=None)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        offload_args(x, device=device, resident=Undecided())  # type: ignore[arg-type]
    assert x.flags.writeable
    names = "device=None, stream=None, on_error='discard'"
    assert str(inspect.signature(offload_args)) == f"(*arrays, {names}, resident=False)"
    assert str(inspect.signature(call)) == f"(function, /, *arguments, {names}, **keywords)"


class Undecided:
    def __bool__(self) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize("on_error", ["discard", "keep"])
def test_call_replaces_arrays_wherever_they_stand_and_hands_on_the_rest(device: str, on_error: Any) -> None:
    arrays = [ramp(i) for i in range(1, 41)]

    def shapes(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        given = {str(i): value for i, value in enumerate(arguments)} | keywords
        return {name: value.shape if isinstance(value, DevicePtr) else value for name, value in given.items()}

    known = {str(i): array.shape for i, array in enumerate(arrays)}
    assert call(shapes, *arrays, device=device, on_error=on_error) == known
    x = arrays[2]
    mixed = call(shapes, 1.5, x, "x", resident=True, y=x, device=Device(device), z=In(arrays[0]), on_error=on_error)
    assert mixed == {"0": 1.5, "1": (3,), "2": "x", "resident": True, "y": (3,), "z": (1,)}
    assert call(shapes, device=device) == {}


# -- T56: an argument's export is the user's code, and runs while the region is entered -----------------------


class Exporting:
    """An array of another package whose export does something else first."""

    def __init__(self, memory: Array, first: Callable[[], object], protocol: str) -> None:
        self._memory = memory
        self._first = first
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        if name != self._protocol:
            raise AttributeError(name)
        self._first()
        return getattr(self._memory, name)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


PROTOCOLS = ("__array_interface__", "__array_struct__", "__dlpack__", "__cuda_array_interface__")
USES: dict[str, Callable[[Any, Array], object]] = {
    "enters it": lambda region, x: region.__enter__(),
    "leaves it": lambda region, x: region.__exit__(None, None, None),
    "initialises it": lambda region, x: region.__init__(*[x] * 20, device="sim:1"),
    "initialises it with nothing": lambda region, x: region.__init__(),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("use", USES)
def test_t56_an_argument_that_uses_the_region_while_it_is_entered_is_refused(
    device: str, use: str, protocol: str
) -> None:
    x, memory = ramp(4), ramp(4)
    made: list[Any] = []
    made.append(offload_args(x, Exporting(memory, lambda: USES[use](made[0], x), protocol), x[1:], device=device))
    before = Device(device).counters
    with pytest.raises(RegionError, match="being entered or left"):
        made[0].__enter__()
    now = Device(device).counters
    assert (now.mappings, now.regions, now.allocations) == (before.mappings, before.regions, before.allocations)
    assert x.flags.writeable and memory.flags.writeable
    made[0].__init__(x, device=device)  # and can be used again
    with made[0] as (dx,):
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(4))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_t56_an_export_that_raises_leaves_nothing_behind(device: str, protocol: str) -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        raise Mine("the export's")

    x, before = ramp(4), Device(device).counters
    for _ in range(2):
        with pytest.raises(Mine, match="the export's"):
            with offload_args(x, Exporting(x, fail, protocol), device=device):
                pass
    assert x.flags.writeable
    assert Device(device).counters.allocations == before.allocations


@pytest.mark.parametrize("protocol", ["__array_interface__", "__array_struct__"])
def test_t56_an_export_may_lend_other_arrays_and_collect_garbage(device: str, protocol: str) -> None:
    x, memory, other = ramp(4), ramp(4), ramp(4)

    def use() -> None:
        call(blas.scal, 2.0, other, device=device)
        call(blas.scal, 2.0, x, device=device)
        gc.collect()

    with offload_args(x, Exporting(memory, use, protocol), device=device) as (dx, dm):
        blas.axpy(1.0, dm, dx)
    factor = x[0] - 1  # how often it was asked
    assert factor >= 2 and other[0] == factor
    np.testing.assert_array_equal(x, (factor + 1) * ramp(4))
    assert x.flags.writeable and memory.flags.writeable


def test_t56_an_open_region_is_not_initialised_again(device: str) -> None:
    x = ramp(4)
    region = offload_args(x, device=device)
    with region as (dx,):
        with pytest.raises(RegionError, match="open already"):
            region.__init__(ramp(400), device="sim:1")  # type: ignore[misc]
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(4))
    assert x.flags.writeable


def test_t56_the_fields_of_a_region_can_not_be_set(device: str) -> None:
    region = offload_args(ramp(4), device=device)
    for name in ("_arguments", "_device", "_stream", "_resident", "_keep_on_error"):
        with pytest.raises(AttributeError):
            setattr(region, name, 17)
    with pytest.raises(RegionError, match="never initialised"):
        offload_args.__new__(offload_args).__enter__()


def test_t56_a_filter_of_warnings_may_not_leave_the_region_that_warns(device: str) -> None:
    x, made = ramp(8), []
    made.append(offload_args(x[::2], device=device))

    def show(*_: object, **__: object) -> None:
        made[0].__exit__(None, None, None)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        with pytest.raises(RegionError, match="being entered or left"):
            made[0].__enter__()
    assert x[::2].flags.writeable


def test_t56_attributes_that_a_subclass_hides_are_not_asked(device: str) -> None:
    class Odd(np.ndarray[Any, Any]):
        @property
        def base(self) -> Any:  # type: ignore[override]
            return self

        @property
        def __array_struct__(self) -> Any:
            return 17

        def setflags(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise ValueError("no")

    odd = ramp(4).view(Odd)
    with offload_args(odd, device=device, resident=True) as (dx,):
        assert not odd.flags.writeable
        blas.scal(2.0, dx)
    assert odd.flags.writeable
    np.testing.assert_array_equal(np.asarray(odd), 2 * ramp(4))
    Device(device).release(odd)


# -- signals and forks ---------------------------------------------------------------------------------------


def test_t58_ctrl_c_while_a_traced_region_is_entered_and_left_leaves_nothing_behind(device: str) -> None:
    x, y = ramp(4), ramp(4)

    def use() -> None:
        with offload_args(x, y, device=device) as (dx, dy):
            blas.axpy(1.0, dx, dy)

    with package.trace() as made:
        use()
        regions = Device(device).counters.regions
        for _ in at_every_place(use):
            assert x.flags.writeable and y.flags.writeable
            assert Device(device).counters.regions == regions
            testing.no_mappings_left()
        before = made.summary.regions
        use()
    assert made.summary.regions == before + 1


@pytest.mark.parametrize("again", [0, 50e-6], ids=["once", "storm"])
@pytest.mark.parametrize("n", [64, 1 << 19])
@pytest.mark.parametrize("later", [1.3, pytest.param(1.1, marks=pytest.mark.slow)])  # each time, by this factor
def test_t24_ctrl_c_leaves_nothing_behind(device: str, n: int, again: float, later: float) -> None:
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
    gc.disable()  # what a finalizer raises would be lost
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        while late < 8:  # at last it comes too late
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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of a process with threads, which a driver has
def test_t21_a_forked_child_has_its_arrays_back_and_a_clear_error(device: str) -> None:
    x = ramp(8)
    view = x[2:]
    with offload_args(x, view, device=device) as (dx, _):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                x[0] = 5
                view[0] = 6
                try:
                    blas.scal(2.0, dx)
                except ForkedError:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(8))


FORKS = """
import gc, os, signal, sys, threading, warnings
import numpy as np
from offload_args import Device, blas, empty, offload_args
from offload_args.errors import ForkedError

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
device = Device("{device}")
stop = threading.Event()
right = []

def work(value):
    x = np.full(1 << 16, value, np.float32)
    while not stop.is_set():
        with offload_args(x, device=device, resident=value % 2 == 1) as (dx,):
            blas.scal(-1.0, dx)
            blas.scal(-1.0, dx)
    right.append(bool((x == value).all()))

def child(region, x, dx):
    signal.alarm(60)  # what hangs ends
    x[0] = 5
    for use in (
        lambda: blas.scal(2.0, dx),
        lambda: dx[1:],
        lambda: offload_args(x, device=device).__enter__(),
        lambda: empty(3, device=device),
        lambda: device.keep(x),
        lambda: region.__exit__(None, None, None),
        device.synchronize,
    ):
        try:
            use()
        except ForkedError:
            continue
        os._exit(1)

threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
for i in range({children}):
    kept, pinned, x, abandoned = np.ones(1 << 16), empty(100, device=device), np.ones(8), np.ones(8)
    device.keep(kept)
    cycle = [offload_args(abandoned, device=device)]
    cycle.append(cycle)
    cycle[0].__enter__()
    with offload_args(pinned, x, device=device) as (dpinned, dx):
        piece = dx[2:]
        inner = offload_args(x, device=device)
        inner.__enter__()
        child_id = os.fork()
        if child_id == 0:
            child(inner, x, dx)
            del cycle, kept, pinned, piece, inner
            gc.collect()
            sys.exit(7)
        # This child: the other threads' first calls may be looking for their library, by a process, too.
        status = os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1])
        blas.scal(2.0, piece)
        inner.__exit__(None, None, None)
        cycle[0].__exit__(None, None, None)
    if status != 7 or x.tolist() != [1, 1] + [2] * 6:
        print(i, status, x)
stop.set()
for thread in threads:
    thread.join()
print(right, device.counters.regions, device.counters.mappings)
"""


@pytest.mark.parametrize("children", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_t21_children_forked_while_threads_are_busy_say_so_and_leave_quietly(device: str, children: int) -> None:
    code = FORKS.format(device=device, children=children)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "[True, True] 0 0\n")


@pytest.mark.parametrize("many", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_t45_many_regions_leave_memory_as_it_was(device: str, many: int) -> None:
    a, b, c = np.ones(256, np.float32), np.ones(256, np.float32), np.zeros(256, np.float32)

    def regions(count: int) -> int:
        for _ in range(count):
            with offload_args(a, b, c, device=device) as (da, db, dc):
                blas.axpy(1.0, da, dc)
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = regions(2_000)
    assert regions(many) - before <= 1 << 19
    assert c[0] == 2_000 + many


def test_a_pointer_outlives_its_region_as_a_dead_one(device: str) -> None:
    with offload_args(ramp(8), device=device) as (dx,):
        pass
    with pytest.raises(StalePointerError):
        blas.scal(2.0, dx)
