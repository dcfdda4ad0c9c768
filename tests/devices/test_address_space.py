"""Limits of the address space, such as `ulimit -v` and the limits of batch systems."""

from __future__ import annotations

import pytest

from helpers.processes import printed, python

LIMITED = """
import resource
limit = {limit} << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
import numpy as np
from offload_args import blas, offload_args

def taken():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

x = np.arange(8.0)
before = taken()
with offload_args(x, device="{device}") as (dx,):
    assert taken() - before <= limit // 8 + (300 << 20), taken() - before  # the rest: stacks and heaps of threads
    blas.scal(2.0, dx)
    slices = [dx[i:] for i in range(8)] * 100
    assert blas.asum(slices[-1]) == 14.0
    np.empty((limit * 3 // 4 - before) // 8)  # there is room for all else
{more}
print(x.sum())
"""


@pytest.mark.later(but="8-sim:0")
@pytest.mark.promise("T72")
@pytest.mark.parametrize("device", ["host", "sim:0"])
@pytest.mark.parametrize("limit", [4, 8, 17])
def test_regions_open_where_address_space_is_limited(limit: int, device: str) -> None:
    code = LIMITED.format(limit=limit, device=device, more="")
    assert printed(code, OPENBLAS_NUM_THREADS="1") == "56.0\n"


@pytest.mark.later
@pytest.mark.promise("T72")
@pytest.mark.parametrize("limit", [4, 17])
def test_a_handle_traps_where_address_space_is_limited(limit: int) -> None:
    more = """
import ctypes
ctypes.string_at(int(ffi.cast("uintptr_t", handle)), 1)
"""
    code = LIMITED.format(limit=limit, device="host", more=more)
    code = code.replace(
        "    slices",
        "    import cffi; ffi = cffi.FFI(); ffi.cdef('typedef struct oa_f64 oa_f64;')\n"
        "    handle = dx.cdata(ffi, 'oa_f64 *')\n    slices",
    )
    ran = python(code, OPENBLAS_NUM_THREADS="1")
    assert ran.returncode in (-11, -7), ran
