"""Nested regions: present arrays are shared, inner regions have fewer rights, and regions may be left in any order."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from helpers.devices import copied
from offload_args import (
    Device,
    In,
    InOut,
    Out,
    blas,
    call,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    DirectionError,
    OffloadError,
    PerformanceWarning,
    PresentError,
    UnwrittenWarning,
)


@pytest.mark.parametrize("lend", [lambda bytes_: bytes_[8:].view(np.float32)[::-2], lambda b: b[1:-7].view(np.float32)])
def test_only_the_region_that_packs_an_array_warns_of_it(
    devices: tuple[str, str], lend: Callable[[Array], Array]
) -> None:
    x = lend(np.zeros(72, np.uint8))
    for device in devices:
        with pytest.warns(PerformanceWarning, match="packed"), offload_args(In(x), device=device) as (dx,):
            with warnings.catch_warnings(action="error"), offload_args(x, device=device) as (inner,):
                assert blas.asum(inner) == call(blas.asum, x, device=device) == 0
            with pytest.warns(PerformanceWarning, match="packed"):
                with offload_args(In(x), device=devices[device == devices[0]]) as (other,):
                    assert blas.asum(other) == blas.asum(dx) == 0


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


@pytest.mark.promise("T15")
def test_a_nested_region_may_use_a_part_of_an_array_that_is_present(device: str) -> None:
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
    assert (moved.copies_up, moved.copies_down) == copied(device, 1, 1)


@pytest.mark.promise("T15")
def test_reaching_beyond_an_array_that_is_present_names_the_remedy(device: str) -> None:
    x = ramp(10)
    with offload_args(x[2:5], device=device):
        with pytest.raises(PresentError) as raised:
            with offload_args(x, device=device):
                pass
    assert "argument 1" in str(raised.value)
    assert "lend the larger array in that region, and slice its pointer" in str(raised.value)
    assert x.flags.writeable


@pytest.mark.promise("T15")
def test_a_strided_view_of_an_array_that_is_present_is_shared_or_refused(device: str) -> None:
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


@pytest.mark.promise("T16")
def test_nested_regions_may_be_left_in_the_wrong_order(device: str) -> None:
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


# The ways in which the inner region lends an array that the outer region lends as Out.
INNER: dict[str, Callable[[Array], Any]] = {
    "by use": lambda x: x,
    "In": In,
    "a part": lambda x: x[2:6],
}


@pytest.mark.filterwarnings("ignore::offload_args.NestedRegionWarning")
@pytest.mark.promise("T16")
@pytest.mark.parametrize("how", ["read", "address", "slice", "to_host", "update"])
@pytest.mark.parametrize("lent", INNER)
def test_an_array_is_read_once_the_region_that_lent_it_as_out_is_left(device: str, lent: str, how: str) -> None:
    x, expected = ramp(8), ramp(8)
    outer, inner = offload_args(Out(x), device=device), offload_args(INNER[lent](x), device=device)
    outer.open()
    (dx,) = inner.open()
    part = dx[1:3]
    with pytest.raises(DirectionError, match="lent as Out and would be read before it is written"):
        blas.asum(dx)
    with pytest.warns(UnwrittenWarning, match="lent as Out, and nothing wrote it: "):
        outer.close()
    seen = slice(2, 6) if lent == "a part" else slice(8)
    if how == "address":
        assert dx.address
    elif how == "slice":
        assert blas.asum(part) == expected[seen][1:3].sum()
    elif how == "to_host":
        np.testing.assert_array_equal(dx.to_host(), expected[seen])
    elif how == "update":
        with update(x):
            x[3] = expected[3] = 70.0
    assert blas.asum(dx) == expected[seen].sum()
    inner.close()
    np.testing.assert_array_equal(x, expected)
    assert x.flags.writeable


@pytest.mark.filterwarnings("ignore::offload_args.NestedRegionWarning")
def test_an_out_further_in_keeps_no_bytes_from_a_region_whose_outer_one_is_left(device: str) -> None:
    x = ramp(8)
    outer, middle, inner = (offload_args(value, device=device) for value in (Out(x), x, Out(x)))
    outer.open()
    (dx,) = middle.open()
    (out,) = inner.open()
    with pytest.warns(UnwrittenWarning):
        outer.close()
    with pytest.raises(DirectionError, match="lent as Out"):
        blas.asum(out)
    assert dx.address
    assert blas.asum(dx) == ramp(8).sum()
    inner.close()
    middle.close()
    np.testing.assert_array_equal(x, ramp(8))


@pytest.mark.filterwarnings("ignore::offload_args.NestedRegionWarning")
@pytest.mark.promise("T16")
def test_an_array_counts_as_out_until_the_last_region_that_says_so_is_left(device: str) -> None:
    x = ramp(8)
    first, second = offload_args(Out(x), device=device), offload_args(Out(x), device=device)
    inner = offload_args(x, device=device)
    first.open()
    (out,) = second.open()
    (dx,) = inner.open()
    first.discard()
    with pytest.raises(DirectionError, match="lent as Out"):
        blas.asum(dx)
    out.fill(3.0)
    second.close()
    assert blas.asum(dx) == 24.0
    inner.close()
    np.testing.assert_array_equal(x, np.full(8, 3.0))


@pytest.mark.promise("T16")
def test_leaving_twice_does_nothing(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    with region as (dx,):
        blas.scal(2.0, dx)
    assert region.__exit__(None, None, None) is False
    np.testing.assert_array_equal(x, 2 * ramp(8))


@pytest.mark.promise("T16", "T18")
def test_a_region_may_be_left_on_another_thread(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.__enter__()
    blas.scal(2.0, dx)
    thread = threading.Thread(target=region.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert x.flags.writeable


def test_an_inner_region_has_the_rights_of_whichever_part_grants_them(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(In(x), InOut(x[2:6]), device=device):
        with offload_args(InOut(x[3:5]), device=device) as (dx,):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, [0, 1, 2, 6, 8, 5, 6, 7])


def test_a_part_of_a_lent_reshaped_array_may_be_written_inside(device: str) -> None:
    A = np.arange(12.0).reshape(3, 4)  # a view: A[1].base is not A
    with offload_args(A, device=device):
        with offload_args(A[1], device=device) as (dx,):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(A[1], [8, 10, 12, 14])
