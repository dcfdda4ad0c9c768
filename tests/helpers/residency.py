"""Arrays that are large enough to be resident, and the number of their bytes that are sent."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from helpers.arrays import Array
from offload_args import Device, In, Out, blas, offload_args, testing

PAGE = mmap.PAGESIZE
N = 1 << 18  # float32: 256 pages


def ramp(n: int = N) -> Array:
    """Return 1, 2, 3, ... on separate pages, because writes to other data on a shared page would count, too."""
    nbytes = (4 * n + PAGE - 1) // PAGE * PAGE
    owner = np.empty(nbytes + PAGE, np.uint8)
    x = owner[-owner.ctypes.data % PAGE :][: 4 * n].view(np.float32)
    x[:] = np.arange(n)
    return x


def there(array: Array, device: str, **options: Any) -> tuple[Array, int]:
    """Return the elements of an array on the device, and the number of bytes that had to be sent."""
    result = np.empty(array.size, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(In(array), device=device, **options) as (d,):
            with offload_args(Out(result), device=device) as (dresult,):
                blas.copy(d, dresult)
    return result, moved.bytes_up


def sent(array: Array, device: str, **options: Any) -> int:
    """Return the bytes that are sent when the array is lent and read; check that the device has the host's bytes."""
    result, nbytes = there(array, device, **options)
    np.testing.assert_array_equal(result, array.ravel())
    return nbytes
