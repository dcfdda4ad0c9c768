"""Memory of a device: limits, and what happens when it is full."""

from __future__ import annotations

import contextlib
import gc
import re

import numpy as np
import pytest

from helpers.processes import python
from offload_args import Device, Scratch, blas, empty, offload_args, testing
from offload_args.errors import ArgumentError, BackendError, DeviceMemoryError, SizeOverflowError


@pytest.mark.promise("T06")
def test_shapes_and_dtypes_that_no_array_has_are_refused() -> None:
    with pytest.raises(ArgumentError, match="empty: shape needs whole numbers"):
        empty((2, 1.5), device="host")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="0 or more"):
        empty(-1, device="host")
    with pytest.raises(ArgumentError, match="Python objects"):
        empty(3, object, device="host")
    with pytest.raises(SizeOverflowError, match="64 bits"):
        empty((2**40, 2**40), device="host")
    assert empty((0, 4), device="host").shape == (0, 4)
    assert empty(np.int64(4), device="host").shape == (4,)  # type: ignore[arg-type]
    assert empty(np.array([2, 3]), device="host").shape == (2, 3)  # type: ignore[arg-type]


@pytest.mark.promise("T05")
def test_too_little_memory_gives_an_error_with_numbers_and_harms_nothing() -> None:
    sim = testing.sim_device(capacity=3000)
    a, b, c = np.ones(100), np.ones(200_000), np.ones(50)
    with pytest.raises(
        DeviceMemoryError, match=r"argument 2 .*1\.53 MiB requested, \d+ bytes free of 3000 bytes, .* leave regions"
    ):
        offload_args(a, b, c, device=sim).__enter__()
    testing.no_mappings_left()
    assert a.flags.writeable and b.flags.writeable
    with offload_args(a, device=sim) as (da,):
        blas.scal(2.0, da)
    assert a[0] == 2


@pytest.mark.promise("T05")
def test_small_arrays_that_share_an_allocation_are_named_by_their_numbers() -> None:
    sim, large = testing.sim_device(capacity=20_000), np.ones(100_000)
    few, many = [np.ones(1000) for _ in range(3)], [np.ones(1000) for _ in range(20)]
    with pytest.raises(DeviceMemoryError, match=r"^offload_args: 3 small arguments \(1, 2, 3; 24576 bytes\): sim:0"):
        offload_args(*few, device=sim).open()
    with pytest.raises(DeviceMemoryError, match=r": 20 small arguments \(1, 2, 3, 4, 5, 6, 7, 8, \.\.\.; 163840 bytes"):
        offload_args(*many, device=sim).open()
    testing.sim_device(capacity=900_000)
    with (
        offload_args(large, device=sim),
        pytest.raises(DeviceMemoryError, match=r": 2 small arguments \(2, 4; 128000 bytes\): "),
    ):
        offload_args(large, np.ones(8000), large, np.ones(8000), device=sim).open()
    testing.sim_device()


@pytest.mark.promise("T05")
def test_a_capacity_holds_for_memory_that_an_earlier_region_left_idle() -> None:
    sim, x = testing.sim_device(), np.ones(1000)
    with offload_args(x, device=sim) as (dx,):
        blas.scal(2.0, dx)
    testing.sim_device(capacity=1000)
    with pytest.raises(DeviceMemoryError, match="8000 bytes"), offload_args(x, device=sim):
        pass
    testing.sim_device()


@pytest.mark.promise("T05")
def test_two_arrays_that_do_not_fit_together_are_told_what_their_region_needs() -> None:
    d, x, y = testing.sim_device(capacity=10_000_000), np.ones(750_000), np.ones(750_000)
    words = (
        r"argument [12] \(6000000 bytes; the region needs 12000000 bytes for 2 arrays at once, from its entry on\): "
    )
    with pytest.raises(DeviceMemoryError, match=words), offload_args(x, y, device=d):
        pass
    for array in (x, y):
        with offload_args(array, device=d) as (d1,):
            blas.scal(2.0, d1)
    assert (x == 2).all() and (y == 2).all()


@pytest.mark.promise("T05")
def test_a_part_that_does_not_fit_is_told_what_its_gaps_take() -> None:
    d, A = testing.sim_device(capacity=1_000_000), np.ones((1000, 1000))
    part = A[:, :10]
    words = r"argument 1 \(7992080 bytes: with the gaps between its 80000 bytes, which a copy of it does not have\)"
    with pytest.raises(DeviceMemoryError, match=words), offload_args(part, device=d):
        pass
    with offload_args(part.copy(), device=d):
        pass


FULL = """
import numpy as np
from offload_args import Device, blas, offload_args
from offload_args.errors import DeviceMemoryError
a, b, c = np.ones(100), np.ones(1 << 17), np.ones(50)
try:
    offload_args(a, b, c, device="{device}").__enter__()
except DeviceMemoryError as error:
    print(error)
now = Device("{device}").counters
print(now.memory_used, now.mappings, now.regions, a.flags.writeable, b.flags.writeable)
with offload_args(a, c, device="{device}") as (da, dc):
    blas.scal(2.0, da)
print(a.sum(), c.sum())
"""


@pytest.mark.later("host")
@pytest.mark.promise("T05")
def test_every_device_gives_the_numbers_when_memory_runs_out(device: str) -> None:
    use = python(FULL.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT="1000000")
    message, left, values = use.stdout.splitlines()
    assert re.search(r"argument 2 .*1\.00 MiB requested, .* free of .* used .*, limit 1000000 bytes", message), use
    assert (left, values) == ("0 0 0 True True", "200.0 50.0")


def test_memory_that_was_refused_is_not_in_the_peak(device: str) -> None:
    """No limit forbids the request, but no device has room for it."""
    with pytest.raises(DeviceMemoryError, match="out of device memory"):
        offload_args(Scratch((1 << 57,), np.uint8), device=device).__enter__()
    with offload_args(np.ones(8), device=device):
        assert 64 <= Device(device).counters.memory_peak < 1 << 57


# Automatic collections are off: garbage is collected only because memory ran out.
CYCLE = """
import gc
import sys
import warnings
import numpy as np
from offload_args import Device, Scratch, blas, empty, offload_args
from offload_args.errors import DeviceMemoryError
gc.disable()
warnings.showwarning = lambda message, category, *place: print(category.__name__, file=sys.stderr)
device = Device("{device}")

def abandon(*arrays):
    region = offload_args(*arrays, device=device)
    cycle = [region, *region.__enter__()]
    cycle.append(cycle)

def abandon_what(make):
    cycle = [make()]
    cycle.append(cycle)

"""


def used_in_a_cycle(device: str, code: str, **limits: str) -> list[str]:
    """Return the output of a script that leaves memory in a reference cycle, and then needs that memory.

    Each collected region gives one warning, and stderr has no other text.
    """
    use = python(CYCLE.format(device=device) + code, **limits)
    assert (use.returncode, use.stderr) == (0, "DiscardedWarning\n" * code.count("abandon(")), use
    return use.stdout.splitlines()


@pytest.mark.later("host")
@pytest.mark.promise("T05")
def test_garbage_that_is_a_region_makes_room_for_another(device: str) -> None:
    code = """
old, x = np.ones(1 << 16), np.ones(1 << 16)
abandon(old)
with offload_args(x, device=device) as (dx,):
    blas.scal(2.0, dx)
print(x.sum(), old.flags.writeable, device.counters.regions, device.counters.memory_used)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="1000000") == ["131072.0 True 0 0"]


@pytest.mark.later
@pytest.mark.promise("T05")
def test_the_numbers_of_the_error_do_not_count_garbage(device: str) -> None:
    code = """
abandon(np.ones(1 << 16))
try:
    offload_args(np.ones(1 << 17), device=device).__enter__()
except DeviceMemoryError as error:
    print(error)
"""
    (message,) = used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="1000000")
    assert re.search(r"1.00 MiB requested, .* 0 bytes used .*, limit 1000000 bytes", message)


@pytest.mark.later
@pytest.mark.promise("T05")
def test_garbage_makes_room_for_a_scalar_on_its_way_to_the_device(device: str) -> None:
    code = """
alpha, A, x, y = np.array([2.0]), np.ones((3, 3)), np.ones(3), np.ones(3)
with offload_args(alpha, A, x, y, device=device) as (dalpha, dA, dx, dy):
    abandon(Scratch(100_000 - device.counters.memory_used, np.uint8))
    blas.gemv(dalpha, dA, dx, 0.5, dy)
print(*y)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="100000") == ["6.5 6.5 6.5"]


@pytest.mark.later
@pytest.mark.promise("T05")
def test_garbage_that_is_a_pinned_array_makes_room_for_another(device: str) -> None:
    code = """
abandon_what(lambda: empty(1 << 16, device=device))
x = empty(1 << 16, device=device)
print(x.nbytes, device.counters.pinned_bytes)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_PINNED_LIMIT="1000000") == ["524288 524288"]


@pytest.mark.promise("T05")
def test_garbage_that_is_an_export_makes_room(cuda: str) -> None:
    code = """
with offload_args(np.ones(1 << 16), device=device) as (dx,):
    abandon_what(dx.__dlpack__)
    del dx
x = np.ones(1 << 16)
with offload_args(x, device=device) as (dx,):
    blas.scal(2.0, dx)
print(x.sum())
"""
    assert used_in_a_cycle(cuda, code, OFFLOAD_ARGS_MEMORY_LIMIT="1000000") == ["131072.0"]


@pytest.mark.promise("T05")
def test_garbage_is_collected_only_when_memory_runs_out() -> None:
    sim = testing.sim_device(capacity=3000)
    collections = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    gc.disable()
    gc.callbacks.append(note)
    try:
        for k in (0, 1, 3, 5):
            testing.fail_call(sim, k)
            with contextlib.suppress(BackendError), offload_args(np.ones(100), device=sim) as (dx,):
                blas.scal(2.0, dx)
        testing.fail_call(sim, 0)
        assert not collections
        with pytest.raises(DeviceMemoryError), offload_args(np.ones(1000), device=sim):
            pass
        assert collections == ["start", "stop"]
    finally:
        gc.callbacks.remove(note)
        gc.enable()
        testing.sim_device()


USE = """
import numpy as np
from offload_args import blas, offload_args
from offload_args.errors import OffloadError
try:
    with offload_args(np.ones(1 << 18), device="{device}") as (dx,):
        print(blas.asum(dx))
except OffloadError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.later(but="sim:0-1MiB")
@pytest.mark.promise("T07")
@pytest.mark.parametrize("limit", ["1MiB", "1048576", "0.01%"])
def test_a_memory_limit_is_obeyed(device: str, limit: str) -> None:
    use = python(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT=limit)
    if limit == "0.01%" and not use.stdout.startswith("DeviceMemoryError"):
        assert Device(device).memory.total // 10_000 >= 2 << 20  # this much may be missing
    else:
        assert use.stdout.startswith("DeviceMemoryError") and "OFFLOAD_ARGS_MEMORY_LIMIT" in use.stdout, use


@pytest.mark.later(but="sim:0-much")
@pytest.mark.promise("T07")
@pytest.mark.parametrize(
    "limit", ["much", "-1", *(pytest.param(choice, marks=pytest.mark.slow) for choice in ("200%", "1 parsec", "nan"))]
)
def test_a_limit_that_can_not_be_read_is_refused_not_ignored(device: str, limit: str) -> None:
    use = python(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT=limit)
    assert use.stdout.startswith(f'ArgumentError Device("{device}"): OFFLOAD_ARGS_MEMORY_LIMIT={limit}'), use


@pytest.mark.later
@pytest.mark.promise("T07")
def test_all_of_the_memory_is_a_limit(device: str) -> None:
    use = python(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT="100%")
    assert (use.returncode, use.stderr) == (0, "") and "Error" not in use.stdout, use


@pytest.mark.promise("T07")
def test_a_limit_in_percent_is_of_the_capacity_of_a_simulated_gpu() -> None:
    code = """
from offload_args import Scratch, offload_args, testing
sim = testing.sim_device(capacity=16000)
with offload_args(Scratch((1000,)), device=sim):
    print("8000 of 16000")
offload_args(Scratch((1001,)), device=sim).__enter__()
"""
    use = python(code, OFFLOAD_ARGS_MEMORY_LIMIT="50%")
    assert use.stdout == "8000 of 16000\n" and "limit 8000 " in use.stderr, use
