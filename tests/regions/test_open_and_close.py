"""Regions that span several cells of a notebook: open, close and discard."""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import (
    Out,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    BackendError,
    DiscardedWarning,
    InvalidDataError,
    RegionError,
    UnwrittenWarning,
)


@pytest.mark.copies
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


@pytest.mark.promise("T16")
def test_closing_a_region_that_is_not_open_does_nothing(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    for end in (region.close, region.discard):
        assert end() is None  # the region was never open
    with region as (dx,):
        blas.scal(2.0, dx)
        region.close()
        np.testing.assert_array_equal(x, 2 * ramp(8))
    region.discard()
    region.close()
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_opening_an_open_region_is_refused_and_changes_nothing(device: str) -> None:
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


def test_close_warns_and_raises_as_leaving_does(device: str) -> None:
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


@pytest.mark.promise("T23")
def test_an_open_region_that_is_collected_is_discarded_with_a_warning(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.open()
    blas.scal(2.0, dx)
    with pytest.warns(DiscardedWarning, match=r"never left; .* close\(\)"):
        del region
        gc.collect()
    assert not dx.live and x.flags.writeable
    np.testing.assert_array_equal(x, ramp(8))


@pytest.mark.promise("T01")
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


def test_an_open_region_can_not_be_entered_again() -> None:
    region = offload_args(ramp(8))
    with region:
        with pytest.raises(RegionError, match="open already"):
            region.__enter__()
    with region as (dx,):
        assert dx.live
