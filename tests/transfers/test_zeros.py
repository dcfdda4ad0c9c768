"""The memory at the address of an unwritten Out has zeros, and many regions, one after the other, share this memory."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from offload_args import Device, In, Out, offload_args

# The host can read and write sim's memory directly.
DEVICE = "sim:0"


def fill_by_address(value: int, size: int, beside: bool) -> bool:
    """Fill an Out as other code would; return whether the Out had zeros and the host gets the value."""
    x, y = np.empty(size, np.uint8), np.full(40, 7, np.uint8)
    with offload_args(Out(x), *([In(y)] if beside else []), device=DEVICE) as (out, *others):
        there = np.frombuffer((ctypes.c_ubyte * size).from_address(out.address), np.uint8)
        right = not there.any() and all(ctypes.c_ubyte.from_address(other.address).value == 7 for other in others)
        there[:] = value
    return right and bool((x == value).all())


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("size", [40, 5000, 40_000, 70_000, 300_000])
def test_each_of_many_regions_has_zeros(size: int, beside: bool) -> None:
    assert all(fill_by_address(1 + i % 250, size, beside) for i in range(100))


def test_threads_have_zeros_of_their_own_while_memory_is_trimmed() -> None:
    device = Device(DEVICE)
    free = device.memory.free

    def work(number: int) -> bool:
        sizes = [1000 * (1 + (number + i) % 4) for i in range(150)]
        return all(fill_by_address(1 + number, size, bool(size % 3)) for size in sizes)

    with ThreadPoolExecutor(5) as pool:
        done = [pool.submit(work, number) for number in range(4)]
        while not all(future.done() for future in done):
            device.trim()
        assert all(future.result() for future in done)
    device.trim()
    assert device.memory.free >= free
