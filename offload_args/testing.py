"""Tools for tests of code that uses devices: simulated devices, failing calls, checks for leaks, counts of copies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from . import _core, libraries
from ._operands import need_whole
from ._signatures import telling
from .devices import Counters, Device, as_device, opened
from .display import listing, missing, nearest
from .errors import ArgumentError

__all__ = [
    "Moved",
    "backend_calls",
    "coherent",
    "counting",
    "fail_call",
    "library",
    "no_mappings_left",
    "part_cost",
    "residency",
    "sim_device",
]

# {device number: (capacity, delay_us) of sim_device()}. fail_call() passes them again, because the core sets all
# properties in one call.
_settings: dict[int, tuple[int, int]] = {}


@telling
def sim_device(capacity: int = 0, delay_us: int = 0, index: int = 0, *, ordered: bool = True) -> Device:
    """Return the simulated device with this index, 0 to 7.

    capacity: the device's memory in bytes, 0 for no limit. delay_us: the additional microseconds that each operation of
    the device takes. ordered: with False, the device's streams ignore their waits for each other, as if an order was
    forgotten. The device's streams work on separate threads, and its fresh and freed memory is poisoned. The
    package's idle memory on the device is freed, so that the capacity also holds for the next allocation.

        device = testing.sim_device(capacity=2**20)
        try:
            with offload_args(np.ones(2**18), device=device):
                pass
        except DeviceMemoryError:
            print("2 MiB do not fit")  # 2 MiB do not fit
        device = testing.sim_device()  # without a limit

    See also: testing.fail_call, Device; docs/guide/testing.md.
    """
    device = Device(f"sim:{index}")
    for name, value in (("capacity", capacity), ("delay_us", delay_us)):
        if not 0 <= need_whole("sim_device", name, value) < 2**63:
            raise ArgumentError(f"sim_device: {name} needs 0 to {2**63 - 1}, got {value!r}")
    _core.sim_configure(device.number, capacity, 0, delay_us)
    _core.sim_order(device.number, ordered)
    if capacity:
        device.trim()
    _settings[device.number] = (capacity, delay_us)
    return device


@telling
def fail_call(device: Device | str, k: int) -> None:
    """Make the k-th next backend call of a simulated device fail; k counts from 1, and with 0 no call fails.

        device, x = testing.sim_device(), np.ones(3)
        testing.fail_call(device, 1)
        try:
            with offload_args(x, device=device) as (dx,):
                blas.scal(2.0, dx)
        except OffloadError:
            print(x)  # [1. 1. 1.]
        testing.fail_call(device, 0)

    See also: testing.backend_calls, testing.sim_device; docs/guide/testing.md.
    """
    number = as_device(device).number
    if not 0 <= need_whole("fail_call", "k", k) < 2**63:
        raise ArgumentError(f"fail_call: k needs 0 to {2**63 - 1}, got {k!r}")
    capacity, delay_us = _settings.get(number, (0, 0))
    _core.sim_configure(number, capacity, k, delay_us)


@telling
def backend_calls(device: Device | str) -> int:
    """Return the number of backend calls that a simulated device has received.

        device, x = testing.sim_device(), np.ones(3)
        before = testing.backend_calls(device)
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
        for k in range(1, testing.backend_calls(device) - before + 1):
            pass  # testing.fail_call(device, k), and the block again
        print(k > 2)  # True

    See also: testing.fail_call, testing.sim_device; docs/guide/testing.md.
    """
    return _core.sim_backend_calls(as_device(device).number)


@telling
def library(name: str, path: str, backend: str = "sim") -> libraries.Library:
    """Load a double of a vendor library, instead of the real library, for the devices of a backend.

    name: the library's name, such as "cublas". path: the double's file. Call this function once per process, before the
    library's first call. On devices that are not GPUs, the package waits for each call of the double, so that the
    double may read and write the devices' memory.

        testing.library("cublas", "build/libmy_double.so")  # sim:0 calls it
        print(libraries.load("cublas").path)

    See also: testing.sim_device, libraries.load; docs/guide/testing.md.
    """
    _core.library_double(name, os.fsencode(os.path.abspath(path)), backend)
    return libraries.load(name)


@contextmanager
@telling
def residency(mode: Literal["off", "explicit", "auto"] | None = None, tracking: bool = True) -> Iterator[None]:
    """Run a block with another value of OFFLOAD_ARGS_RESIDENCY, or as if the system could not watch pages.

    mode: None for the environment's value. tracking: whether pages are watched; False for the behaviour of a system
    that can't watch them. Resident memory of all devices is evicted before and after the block.

        device, x = Device("host"), np.ones(1000)
        with testing.residency("explicit"):
            device.keep(x)
            print(device.residency.mode)  # explicit
        device.release(x)

    See also: Device.keep, testing.counting; docs/guide/residency.md.
    """
    modes = _core.RESIDENCY_MODES
    if mode is not None and mode not in modes:
        raise ArgumentError(f'residency: mode needs "off", "explicit", "auto" or None, got {mode!r}')
    _core.residency_configure(-1 if mode is None else modes.index(mode), tracking)
    try:
        yield
    finally:
        _core.residency_configure(-1, True)


@contextmanager
@telling
def coherent(mode: Literal["never", "auto", "always"] = "always") -> Iterator[None]:
    """Run a block with another OFFLOAD_ARGS_COHERENT.

    mode: "always" lets host and sim use the arrays in the host's memory, as a device with the host's page tables does.
    Regions that are entered in the block obey it until they are left.

        device, x = testing.sim_device(), np.ones(3)
        with testing.coherent(), testing.counting(device) as moved, offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
        print(x, moved.bytes_up + moved.bytes_down)  # [2. 2. 2.] 0

    See also: Device.coherent, testing.counting; docs/guide/coherent.md.
    """
    modes = ("never", "auto", "always")  # by oa_coherence
    if mode not in modes:
        raise ArgumentError(f'coherent: mode needs "never", "auto" or "always", got {mode!r}')
    _core.coherent_configure(modes.index(mode))
    try:
        yield
    finally:
        _core.coherent_configure(-1)


@contextmanager
@telling
def part_cost(nbytes: int = 0) -> Iterator[None]:
    """Run a block in which each copy up of a part of an array counts for this number of bytes.

    nbytes: in addition to the copied bytes. Usually the number is 256 KiB, so that small arrays go up whole. In the
    block, parts go up alone also while the program has a stream of the device.

        A = np.ones((8, 5))
        with testing.part_cost(), testing.counting("host") as moved, offload_args(In(A), device="host") as (dA,):
            blas.asum(dA[2])
            print(moved.bytes_up)  # 40

    See also: testing.counting; docs/guide/transfers.md.
    """
    if not 0 <= need_whole("part_cost", "nbytes", nbytes) < 2**63:
        raise ArgumentError(f"part_cost: nbytes needs 0 to {2**63 - 1}, got {nbytes!r}")
    _core.part_cost_configure(nbytes)
    try:
        yield
    finally:
        _core.part_cost_configure(-1)


@telling
def no_mappings_left() -> None:
    """Raise AssertionError if a device still has a live mapping or region.

        (dx,) = (region := offload_args(np.ones(3))).open()
        try:
            testing.no_mappings_left()
        except AssertionError:
            print("a region is open")  # a region is open
        region.close()
        testing.no_mappings_left()

    See also: open_regions, testing.counting; docs/guide/testing.md.
    """
    left = []
    for device in opened():
        now = device.counters
        if now.mappings or now.regions:
            left.append(f"{device}: {now.mappings} mappings, {now.regions} regions")
    if left:
        raise AssertionError("still present: " + "; ".join(left))


@telling
class Moved:
    """Give the increase of each counter of a device since the block began; the values are fixed when the block ends.

        x = np.ones(1000)
        with testing.counting("host") as moved, offload_args(In(x), device="host") as (dx,):
            blas.asum(dx)
            print(moved.calls, moved.bytes_up, moved.bytes_down)  # 1 8000 0

    See also: testing.counting, Device; docs/guide/testing.md.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = device.counters
        self._after: Counters | None = None

    def __getattr__(self, name: str) -> int:
        if name not in Counters._fields:
            raise AttributeError(f"testing.Moved has no attribute {name!r}{nearest(name, Counters._fields)}", name=name)
        now = self._after if self._after is not None else self._device.counters
        rise: int = getattr(now, name) - getattr(self._before, name)
        return rise

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *Counters._fields]

    def __repr__(self) -> str:
        return f"Moved({', '.join(f'{name}={getattr(self, name)}' for name in Counters._fields)})"


@contextmanager
@telling
def counting(device: Device | str | None = None) -> Iterator[Moved]:
    """Count a device's operations in a block, as in `with counting(device) as moved: ...; assert moved.copies_up == 2`.

    device: a Device or its name. None: the default device, on which regions are that name none.

        x = np.ones(1000)
        with testing.counting("host") as moved:
            with offload_args(x, device="host") as (dx,):
                blas.scal(2.0, dx)
        print(moved.copies_up, moved.copies_down, moved.bytes_down)  # 1 1 8000

    See also: testing.Moved, trace; docs/guide/testing.md.
    """
    counted = Device.default() if device is None else as_device(device)
    moved = Moved(counted)
    try:
        yield moved
    finally:
        moved._after = counted.counters


if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
