"""Pinned arrays and limits of memory."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from helpers.driver import registered
from offload_args import Device, Scratch, blas, empty, offload_args, testing
from offload_args.errors import ArgumentError, BackendError, DeviceMemoryError, SizeOverflowError


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_pinned_array_is_an_ordinary_array_that_can_be_lent(device: str, order: str) -> None:
    A = empty((5, 3), np.float32, order=order, device=device)  # type: ignore[arg-type]
    assert A.flags.writeable and A.flags[f"{order}_CONTIGUOUS"] and A.shape == (5, 3)
    A[...] = np.arange(15, dtype=np.float32).reshape(5, 3)
    x, y = np.ones(3, np.float32), empty(5, "f4", device=device)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(y, A.sum(axis=1))


def test_a_pinned_array_is_freed_with_its_last_view(device: str) -> None:
    gc.collect()
    before = Device(device).counters.pinned_bytes
    view = empty(1000, device=device)[3:]
    assert Device(device).counters.pinned_bytes >= before + 8000
    del view
    gc.collect()
    assert Device(device).counters.pinned_bytes == before


def test_trim_gives_back_what_past_copies_had_pinned(device: str) -> None:
    gc.collect()
    x = np.ones(1 << 20)
    for n in (8, 1 << 20):
        with offload_args(x[:n], device=device) as (dx,):
            blas.scal(2.0, dx)
    used = Device(device).counters.pinned_bytes
    assert used > 0 or device == "host"
    Device(device).trim()
    assert Device(device).counters.pinned_bytes == 0
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
    assert (x[0], x[-1]) == (8, 4)


def test_pinned_blocks_of_past_copies_make_room_for_a_pinned_array(device: str) -> None:
    code = f"""
import numpy as np
from offload_args import blas, empty, offload_args
x = np.ones(1 << 20)
with offload_args(x, device={device!r}) as (dx,):
    blas.scal(2.0, dx)
print(empty(1 << 20, device={device!r}).nbytes, x.sum())
"""
    use = run(code, OFFLOAD_ARGS_PINNED_LIMIT=str(9 << 20))
    assert use.stdout.split() == ["8388608", "2097152.0"], use


def test_t06_shapes_and_dtypes_that_no_array_has_are_refused() -> None:
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


def test_t05_too_little_memory_is_told_in_numbers_and_harms_nothing() -> None:
    sim = testing.sim_device(capacity=3000)
    a, b, c = np.ones(100), np.ones(200_000), np.ones(50)
    with pytest.raises(DeviceMemoryError, match=r"argument 2 .*1600000 bytes requested, \d+ free of 3000"):
        offload_args(a, b, c, device=sim).__enter__()
    testing.no_mappings_left()
    assert a.flags.writeable and b.flags.writeable
    with offload_args(a, device=sim) as (da,):
        blas.scal(2.0, da)
    assert a[0] == 2


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )


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


def test_t05_too_little_memory_is_told_on_every_device(device: str) -> None:
    use = run(FULL.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT="1000000")
    message, left, values = use.stdout.splitlines()
    assert re.search(r"argument 2 .*1048576 bytes requested, \d+ free of \d+, \d+ used, limit 1000000", message), use
    assert (left, values) == ("0 0 0 True True", "200.0 50.0")


def test_memory_that_was_refused_is_not_in_the_peak(device: str) -> None:
    """A request that no limit forbids, but no device has room for."""
    with pytest.raises(DeviceMemoryError, match="out of device memory"):
        offload_args(Scratch((1 << 57,), np.uint8), device=device).__enter__()
    with offload_args(np.ones(8), device=device):
        assert 64 <= Device(device).counters.memory_peak < 1 << 57


# Automatic collections are off: what is given back was collected for want of memory.
CYCLE = """
import gc
import numpy as np
from offload_args import Device, Scratch, blas, empty, offload_args
from offload_args.errors import DeviceMemoryError
gc.disable()
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
    """What a script prints that leaves something in a reference cycle, then needs what that holds."""
    use = run(CYCLE.format(device=device) + code, **limits)
    assert (use.returncode, use.stderr) == (0, ""), use
    return use.stdout.splitlines()


def test_t05_garbage_that_is_a_region_makes_room_for_another(device: str) -> None:
    code = """
old, x = np.ones(1 << 16), np.ones(1 << 16)
abandon(old)
with offload_args(x, device=device) as (dx,):
    blas.scal(2.0, dx)
print(x.sum(), old.flags.writeable, device.counters.regions, device.counters.memory_used)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="1000000") == ["131072.0 True 0 0"]


def test_t05_what_is_told_is_so_without_the_garbage(device: str) -> None:
    code = """
abandon(np.ones(1 << 16))
try:
    offload_args(np.ones(1 << 17), device=device).__enter__()
except DeviceMemoryError as error:
    print(error)
"""
    (message,) = used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="1000000")
    assert re.search(r"1048576 bytes requested, .* 0 used, limit 1000000", message)


def test_t05_garbage_makes_room_for_a_scalar_on_its_way_to_the_device(device: str) -> None:
    code = """
alpha, A, x, y = np.array([2.0]), np.ones((3, 3)), np.ones(3), np.ones(3)
with offload_args(alpha, A, x, y, device=device) as (dalpha, dA, dx, dy):
    abandon(Scratch(100_000 - device.counters.memory_used, np.uint8))
    blas.gemv(dalpha, dA, dx, 0.5, dy)
print(*y)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_MEMORY_LIMIT="100000") == ["6.5 6.5 6.5"]


def test_t05_garbage_that_is_a_pinned_array_makes_room_for_another(device: str) -> None:
    code = """
abandon_what(lambda: empty(1 << 16, device=device))
x = empty(1 << 16, device=device)
print(x.nbytes, device.counters.pinned_bytes)
"""
    assert used_in_a_cycle(device, code, OFFLOAD_ARGS_PINNED_LIMIT="1000000") == ["524288 524288"]


def test_t05_garbage_that_is_an_export_makes_room(cuda: str) -> None:
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


def test_t05_garbage_is_collected_for_want_of_memory_only() -> None:
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


@pytest.mark.parametrize("limit", ["1MiB", "1048576", "0.01%"])
def test_t07_a_memory_limit_is_obeyed(device: str, limit: str) -> None:
    use = run(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT=limit)
    if limit == "0.01%" and not use.stdout.startswith("DeviceMemoryError"):
        assert Device(device).memory.total // 10_000 >= 2 << 20  # that much is allowed here
    else:
        assert use.stdout.startswith("DeviceMemoryError") and "OFFLOAD_ARGS_MEMORY_LIMIT" in use.stdout, use


@pytest.mark.parametrize(
    "limit", ["much", "-1", *(pytest.param(one, marks=pytest.mark.slow) for one in ("200%", "1 parsec", "nan"))]
)
def test_t07_a_limit_that_is_none_is_refused_not_ignored(device: str, limit: str) -> None:
    use = run(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT=limit)
    assert use.stdout.startswith(f'ArgumentError Device("{device}"): OFFLOAD_ARGS_MEMORY_LIMIT={limit}'), use


def test_t07_all_of_the_memory_is_a_limit(device: str) -> None:
    use = run(USE.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT="100%")
    assert (use.returncode, use.stderr) == (0, "") and "Error" not in use.stdout, use


def test_t07_percent_are_of_the_capacity_that_a_simulated_gpu_has() -> None:
    code = """
from offload_args import Scratch, offload_args, testing
sim = testing.sim_device(capacity=16000)
with offload_args(Scratch((1000,)), device=sim):
    print("8000 of 16000")
offload_args(Scratch((1001,)), device=sim).__enter__()
"""
    use = run(code, OFFLOAD_ARGS_MEMORY_LIMIT="50%")
    assert use.stdout == "8000 of 16000\n" and "limit 8000 " in use.stderr, use


def test_idle_blocks_of_another_device_make_room_for_a_pinned_array() -> None:
    code = """
import numpy as np
from offload_args import Device, blas, empty, offload_args
with offload_args(np.ones(1 << 20), device="sim:0") as (dx,):
    blas.scal(2.0, dx)
assert Device("sim:0").counters.pinned_bytes
print(empty(1 << 20, device="sim:1").nbytes)
"""
    use = run(code, OFFLOAD_ARGS_PINNED_LIMIT="9MiB")
    assert use.stdout == "8388608\n", use


# The host needs no pinned memory for its copies.
with_pinned_copies = pytest.mark.parametrize("device", ["sim:0", "cuda:0"], indirect=True)


@with_pinned_copies
def test_t34_without_pinned_memory_the_copies_go_another_way_with_one_warning(device: str) -> None:
    code = """
import warnings
import numpy as np
from offload_args import blas, offload_args
x, y, z = np.ones(1 << 20), np.ones(100), np.ones(100)
for lent in ((x,), (x,), (y, z), (x, y, z)):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with offload_args(*lent, device="{device}") as pointers:
            for pointer in pointers:
                blas.scal(2.0, pointer)
    print(len(told), *(str(one.message) for one in told))
print(*(float(value) for array in (x, y, z) for value in (array.min(), array.max())))
"""
    use = run(code.replace("{device}", device), OFFLOAD_ARGS_PINNED_LIMIT="1")
    first, *others, values = use.stdout.splitlines()
    assert first.startswith("1 ") and "pinned" in first, use
    assert others == ["0", "0", "0"]
    assert values == "8.0 8.0 4.0 4.0 4.0 4.0"


def test_t35_pinned_arrays_may_share_pages_with_each_other(device: str) -> None:
    n = 1 << 19
    base, small, other = empty(3 * n, np.float32, device=device), empty(10, device=device), np.full(n, 4.0)
    base[:], small[:] = 1, 3
    left, right = base[: n + 1], base[n + 1 : 2 * n + 5]  # they meet within a page
    for i in range(1, 4):
        with offload_args(left, right, small, other, device=device) as pointers:
            for pointer in pointers:
                blas.scal(2.0, pointer)
        with offload_args(base, device=device) as (dbase,):
            blas.scal(2.0, dbase[2 * n :])
        for array, expected in ((left, 2**i), (right[:-5], 2**i), (right[-5:], 4**i), (small, 3 * 2**i)):
            np.testing.assert_array_equal(array, np.full_like(array, expected))
        np.testing.assert_array_equal(base[2 * n + 5 :], np.full(n - 5, 2**i))
        np.testing.assert_array_equal(other, np.full(n, 4.0 * 2**i))
    pinned, mine = Device(device).counters.pinned_bytes, base.nbytes + small.nbytes
    del base, small, left, right, array
    assert Device(device).counters.pinned_bytes == pinned - mine


def test_t35_a_pinned_array_that_can_not_be_copied_as_it_lies_goes_in_pieces() -> None:
    sim = testing.sim_device()
    x = empty(1 << 18, device=sim)
    refused = 0
    for k in range(1, 30):
        x[:] = 3
        testing.fail_call(sim, k)
        try:
            with offload_args(x, device=sim) as (dx,):
                blas.scal(2.0, dx)
            np.testing.assert_array_equal(x, 6)
        except BackendError as error:
            assert "copy_" not in str(error)
            refused += 1
        testing.fail_call(sim, 0)
    assert 0 < refused < 29


def test_t35_an_array_of_which_parts_were_pinned_one_by_one(cuda: str) -> None:
    n = 1 << 20
    base = np.ones(3 * n + 1024, np.float32)
    base = base[-(base.ctypes.data // 4) % 1024 :][: 3 * n]
    with registered(base[:n]), registered(base[2 * n :]):
        with offload_args(base, device=cuda) as (d,):
            blas.scal(2.0, d)
        with registered(base[n : 2 * n]), offload_args(base, device=cuda) as (d,):
            blas.scal(3.0, d)
    np.testing.assert_array_equal(base, np.full_like(base, 6))


@pytest.mark.parametrize("n", [5000, 2_000_500])
def test_t35_memory_that_the_program_pinned_itself_is_left_as_it_is(cuda: str, n: int) -> None:
    base = np.ones(3 * n + 1024, np.float32)
    base = base[-(base.ctypes.data // 4) % 1024 :][: 3 * n]  # a page's begin, and `own` ends within one
    own, across, beside = base[:n], base[n // 2 : 2 * n], base[n : 2 * n]
    for i in range(1, 4):
        with registered(own):
            for lent in (own, across, beside, base):
                with offload_args(lent, device=cuda) as (d,):
                    blas.scal(2.0, d)
            with offload_args(own, beside, device=cuda) as pointers:
                for d in pointers:
                    blas.scal(0.5, d)
        for part, expected in ((own[: n // 2], 2**i), (own[n // 2 :], 4**i), (beside, 4**i), (base[2 * n :], 2**i)):
            np.testing.assert_array_equal(part, np.full_like(part, expected))
