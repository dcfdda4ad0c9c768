"""Other code resets the context of a GPU."""

from __future__ import annotations

import pytest

from helpers.processes import python

PROGRAM = """
import ctypes
import numpy as np
from offload_args import blas, offload_args
from offload_args.errors import DeviceLostError

x = np.ones(4)
with offload_args(x, device="cuda:0") as (dx,):
    blas.scal(2.0, dx)
try:
    with offload_args(x, device="cuda:0") as (dx,):
        if {inside}:
            blas.scal(2.0, dx)
        assert ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0) == 0
        blas.scal(2.0, dx)
except DeviceLostError as error:
    print(error)
print(x)
"""


@pytest.mark.promise("T20")
@pytest.mark.parametrize("inside", [False, True])
def test_a_reset_context_is_a_lost_device_and_the_program_ends_quietly(cuda: str, inside: bool) -> None:
    ran = python(PROGRAM.format(inside=inside))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "other code reset the device" in ran.stdout and ran.stdout.endswith("[2. 2. 2. 2.]\n")
