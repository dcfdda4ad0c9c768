"""An argument's export is the user's code, which runs while the region is entered."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from offload_args import (
    Device,
    blas,
    call,
    offload_args,
)
from offload_args.errors import (
    RegionError,
)


class Exporting:
    """An array of another package, whose export first runs a function."""

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


@pytest.mark.promise("T56")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("use", USES)
def test_an_argument_that_uses_the_region_while_it_is_entered_is_refused(device: str, use: str, protocol: str) -> None:
    x, memory = ramp(4), ramp(4)
    built: list[Any] = []
    built.append(offload_args(x, Exporting(memory, lambda: USES[use](built[0], x), protocol), x[1:], device=device))
    before = Device(device).counters
    with pytest.raises(RegionError, match="being entered or left"):
        built[0].__enter__()
    now = Device(device).counters
    assert (now.mappings, now.regions, now.allocations) == (before.mappings, before.regions, before.allocations)
    assert x.flags.writeable and memory.flags.writeable
    built[0].__init__(x, device=device)  # the region can be used again
    with built[0] as (dx,):
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(4))


@pytest.mark.promise("T56")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_export_that_raises_leaves_nothing_behind(device: str, protocol: str) -> None:
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


@pytest.mark.promise("T56")
@pytest.mark.parametrize("protocol", ["__array_interface__", "__array_struct__"])
def test_an_export_may_lend_other_arrays_and_collect_garbage(device: str, protocol: str) -> None:
    x, memory, other = ramp(4), ramp(4), ramp(4)

    def use() -> None:
        call(blas.scal, 2.0, other, device=device)
        call(blas.scal, 2.0, x, device=device)
        gc.collect()

    with offload_args(x, Exporting(memory, use, protocol), device=device) as (dx, dm):
        blas.axpy(1.0, dm, dx)
    factor = x[0] - 1  # the number of exports
    assert factor >= 2 and other[0] == factor
    np.testing.assert_array_equal(x, (factor + 1) * ramp(4))
    assert x.flags.writeable and memory.flags.writeable


@pytest.mark.promise("T56")
def test_an_open_region_is_not_initialised_again(device: str) -> None:
    x = ramp(4)
    region = offload_args(x, device=device)
    with region as (dx,):
        with pytest.raises(RegionError, match="open already"):
            region.__init__(ramp(400), device="sim:1")  # type: ignore[misc]
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(4))
    assert x.flags.writeable


@pytest.mark.promise("T56")
def test_the_fields_of_a_region_can_not_be_set(device: str) -> None:
    region = offload_args(ramp(4), device=device)
    for name in ("_arguments", "_device", "_stream", "_resident", "_keep_on_error"):
        with pytest.raises(AttributeError):
            setattr(region, name, 17)
    with pytest.raises(RegionError, match="never initialised"):
        offload_args.__new__(offload_args).__enter__()


@pytest.mark.promise("T56")
def test_a_filter_of_warnings_may_not_leave_the_region_that_warns(device: str) -> None:
    x, built = ramp(8), []
    built.append(offload_args(x[::2], device=device))

    def show(*_: object, **__: object) -> None:
        built[0].__exit__(None, None, None)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        with pytest.raises(RegionError, match="being entered or left"):
            built[0].__enter__()
    assert x[::2].flags.writeable


@pytest.mark.promise("T56")
def test_attributes_that_a_subclass_hides_are_not_asked(device: str) -> None:
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
