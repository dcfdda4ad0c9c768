"""Pinned memory: arrays in pinned memory, copies that use it, and copies without it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from helpers.driver import registered
from helpers.processes import python
from offload_args import Device, blas, empty, offload_args, testing
from offload_args.errors import BackendError


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


@pytest.mark.later
def test_pinned_blocks_of_past_copies_make_room_for_a_pinned_array(device: str) -> None:
    code = f"""
import numpy as np
from offload_args import blas, empty, offload_args
x = np.ones(1 << 20)
with offload_args(x, device={device!r}) as (dx,):
    blas.scal(2.0, dx)
print(empty(1 << 20, device={device!r}).nbytes, x.sum())
"""
    use = python(code, OFFLOAD_ARGS_PINNED_LIMIT=str(9 << 20))
    assert use.stdout.split() == ["8388608", "2097152.0"], use


def test_idle_blocks_of_another_device_make_room_for_a_pinned_array() -> None:
    code = """
import numpy as np
from offload_args import Device, blas, empty, offload_args
with offload_args(np.ones(1 << 20), device="sim:0") as (dx,):
    blas.scal(2.0, dx)
assert Device("sim:0").counters.pinned_bytes
print(empty(1 << 20, device="sim:1").nbytes)
"""
    use = python(code, OFFLOAD_ARGS_PINNED_LIMIT="9MiB")
    assert use.stdout == "8388608\n", use


# Copies of the device "host" need no pinned memory.
with_pinned_copies = pytest.mark.parametrize("device", ["sim:0", "cuda:0"], indirect=True)


@pytest.mark.later("host")
@pytest.mark.promise("T34")
@with_pinned_copies
def test_without_pinned_memory_the_copies_go_another_way_with_one_warning(device: str) -> None:
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
    print(len(told), *(str(warning.message) for warning in told))
print(*(float(value) for array in (x, y, z) for value in (array.min(), array.max())))
"""
    use = python(code.replace("{device}", device), OFFLOAD_ARGS_PINNED_LIMIT="1")
    first, *others, values = use.stdout.splitlines()
    assert first.startswith("1 ") and "pinned" in first, use
    assert others == ["0", "0", "0"]
    assert values == "8.0 8.0 4.0 4.0 4.0 4.0"


@pytest.mark.promise("T35")
def test_pinned_arrays_may_share_pages_with_each_other(device: str) -> None:
    n = 1 << 19
    base, small, other = empty(3 * n, np.float32, device=device), empty(10, device=device), np.full(n, 4.0)
    base[:], small[:] = 1, 3
    left, right = base[: n + 1], base[n + 1 : 2 * n + 5]  # the two arrays meet within a page
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


@pytest.mark.promise("T35")
def test_a_pinned_array_that_can_not_be_copied_as_it_lies_goes_in_pieces() -> None:
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


@pytest.mark.promise("T35")
def test_an_array_with_parts_pinned_one_by_one_is_lent(cuda: str) -> None:
    n = 1 << 20
    base = np.ones(3 * n + 1024, np.float32)
    base = base[-(base.ctypes.data // 4) % 1024 :][: 3 * n]
    with registered(base[:n]), registered(base[2 * n :]):
        with offload_args(base, device=cuda) as (d,):
            blas.scal(2.0, d)
        with registered(base[n : 2 * n]), offload_args(base, device=cuda) as (d,):
            blas.scal(3.0, d)
    np.testing.assert_array_equal(base, np.full_like(base, 6))


@pytest.mark.promise("T35")
@pytest.mark.parametrize("n", [5000, 2_000_500])
def test_memory_that_the_program_pinned_itself_is_left_as_it_is(cuda: str, n: int) -> None:
    base = np.ones(3 * n + 1024, np.float32)
    base = base[-(base.ctypes.data // 4) % 1024 :][: 3 * n]  # starts at a page; `own` ends within a page
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
