"""Refusals and failures of a GPU's driver."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from helpers.arrays import ramp
from kernels.programs import PTX
from offload_args import Device, InOut, Module, errors, offload


@pytest.mark.promise("T41")
@pytest.mark.parametrize(("old", "new"), [("sm_50", "sm_120"), ("sm_50", "sm_999"), (".version 6.4", ".version 99.0")])
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


SIZES = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry sizes(.param .u64 y)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [y];
  cvta.to.global.u64 %d1, %d1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_nctaid.x;
  mov.u32 %r3, %cluster_ctarank;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %d2, %r1, 12;
  add.s64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r2;
  st.global.u32 [%d1+4], %r3;
  st.global.u32 [%d1+8], %r4;
  ret;
}
"""


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize(("cluster", "size"), [(None, 1), (2, 2), ((4, 1), 4), (8, 8)])
def test_blocks_are_launched_in_clusters_and_cooperatively(
    cuda: str, cluster: int | tuple[int, int] | None, size: int, cooperative: bool
) -> None:
    """Each block notes the number of blocks of its cluster, its number in the cluster, and the blocks of the grid."""
    relu = Module.load(PTX.encode()).kernel("relu", InOut[np.float32], np.int32)
    if Device(cuda).model.startswith("double of a GPU") or not relu.info(cuda).clusters:
        pytest.skip("device unavailable: no GPU with clusters")
    sizes = Module.load(SIZES.encode()).kernel("sizes", InOut[np.int32])
    y = np.zeros((8, 3), np.int32)
    offload(sizes, y, grid=8, block=32, cluster=cluster, cooperative=cooperative, device=cuda)
    np.testing.assert_array_equal(y, [(size, i % size, 8) for i in range(8)])
    with pytest.raises(errors.ArgumentError, match="cluster needs to divide the grid along x, 8 blocks; got 3"):
        offload(sizes, y, grid=8, block=32, cluster=3, cooperative=cooperative, device=cuda)


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
    done = subprocess.run([sys.executable, "-c", STRAY, cuda], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
