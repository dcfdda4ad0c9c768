"""Refusals and failures of a GPU's driver."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from helpers.arrays import ramp
from kernels.programs import PTX
from offload_args import InOut, Module, errors, offload


@pytest.mark.promise("T41")
@pytest.mark.parametrize("old, new", [("sm_50", "sm_120"), ("sm_50", "sm_999"), (".version 6.4", ".version 99.0")])
def test_ptx_for_a_newer_gpu_or_driver_gives_the_drivers_log(cuda: str, old: str, new: str) -> None:
    module = Module.load(PTX.replace(old, new).encode(), name="new.ptx")
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    with pytest.raises(errors.ModuleError, match=f"new.ptx: the driver of {cuda} refuses it: .*its log: .*ptxas"):
        offload(relu, ramp(4), 4, device=cuda)


def test_a_kernel_can_be_used_after_another_module_was_refused(cuda: str) -> None:
    x = -ramp(4)
    with pytest.raises(errors.ModuleError):
        wrong = Module.load(PTX.replace("sm_50", "sm_999").encode()).kernel("relu", InOut[np.float32], np.int32)
        offload(wrong, x, 4, device=cuda)
    np.testing.assert_array_equal(x, -ramp(4))
    offload(Module.load(PTX.encode()).kernel("relu", InOut[np.float32], np.int32), x, 4, device=cuda)
    np.testing.assert_array_equal(x, 0)


STRAY = """\
import sys
import numpy as np
from offload_args import Device, In, InOut, Module, errors, offload, offload_args

PTX = '''.version 6.4
.target sm_50
.address_size 64
.visible .entry stray(.param .u64 x)
{
  .reg .b32 %r<2>;
  .reg .b64 %d<2>;
  mov.u64 %d1, 0;
  mov.u32 %r1, 1;
  st.global.u32 [%d1], %r1;
  ret;
}
'''
stray = Module.load(PTX.encode(), name="stray.ptx").kernel("stray", InOut[np.float32])
x, y = np.ones(5, np.float32), np.ones(5, np.float32)
try:
    offload(stray, x, grid=1, block=1, device=sys.argv[1])
except errors.DeviceLostError as error:
    assert "may stem from earlier" in str(error), error
else:
    raise SystemExit("nothing was raised")
assert (x == 1).all() and x.flags.writeable
try:
    offload(stray, y, grid=1, block=1, device=sys.argv[1])
except errors.DeviceLostError as error:
    assert "700" in str(error), error
else:
    raise SystemExit("a lost device was used")
with offload_args(x, device="host") as (dx,):
    dx.fill(3)
assert (x == 3).all()
"""


@pytest.mark.promise("T04")
def test_a_stray_write_loses_the_device_and_nothing_else(cuda: str) -> None:
    done = subprocess.run([sys.executable, "-c", STRAY, cuda], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
