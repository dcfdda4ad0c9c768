"""A kernel between two calls
==========================

y = B max(A x, 0): two calls of BLAS and a kernel of your own between them, with no round trip.
"""

import argparse

import numpy as np

from offload_args import Device, InOut, Kernel, Scratch, blas, launch, offload_args

SOURCE = """
#include <offload_args/kernel.h>

OA_KERNEL(relu, oa::InOut<float> x, int n) {
  for (auto one : x.mine(oa::GridStride1D(n), here))
    if (*one < 0) *one = 0;
}
"""
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
relu = Kernel.compile(SOURCE, "relu", [InOut[np.float32], np.int32], device=device)

random = np.random.default_rng(1)
A = random.standard_normal((300, 200), dtype=np.float32)
B = random.standard_normal((100, 300), dtype=np.float32)
x, y = random.standard_normal(200, dtype=np.float32), np.empty(100, np.float32)

before = device.counters
with offload_args(A, B, x, Scratch(300, np.float32), y, device=device) as (dA, dB, dx, dh, dy):
    blas.gemv(1.0, dA, dx, 0.0, dh)
    launch(relu, dh, dh.size)
    blas.gemv(1.0, dB, dh, 0.0, dy)
moved = device.counters
print(f"{moved.copies_up - before.copies_up} arrays up, {moved.copies_down - before.copies_down} down")

np.testing.assert_allclose(y, B @ np.maximum(A @ x, 0), rtol=1e-3, atol=1e-3)
