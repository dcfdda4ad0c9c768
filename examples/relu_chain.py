"""A kernel between two calls
==========================

y = B max(A x, 0): two calls of BLAS and a kernel of your own between them, with no round trip.
"""

# sphinx_gallery_thumbnail_path = "_static/card-relu_chain.svg"

import argparse

import numpy as np

from offload_args import Device, InOut, Kernel, Scratch, blas, launch, offload_args

# %%
# The kernel changes its array in place, so the array is an ``oa::InOut``. Each thread needs only the elements that it
# owns.

SOURCE = """
#include <offload_args/kernel.h>

OA_KERNEL(relu, oa::InOut<float> x, int n) {
  for (auto element : x.mine(oa::GridStride1D(n), here))
    if (*element < 0) *element = 0;
}
"""

# %%
# The kernel is compiled once, before the region.

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
relu = Kernel.compile(SOURCE, "relu", [InOut[np.float32], np.int32], device=device)

# %%
# A and B stand for two layers of a net, without their biases.

random = np.random.default_rng(1)
A = random.standard_normal((300, 200), dtype=np.float32)
B = random.standard_normal((100, 300), dtype=np.float32)
x, y = random.standard_normal(200, dtype=np.float32), np.empty(100, np.float32)

# %%
# The array between the layers is a ``Scratch``: memory on the device, which never moves. The counters show that three
# arrays went up, A, B and ``x``, and one came down.

before = device.counters
with offload_args(A, B, x, Scratch(300, np.float32), y, device=device) as (dA, dB, dx, dh, dy):
    blas.gemv(1.0, dA, dx, 0.0, dh)
    launch(relu, dh, dh.size)
    blas.gemv(1.0, dB, dh, 0.0, dy)
moved = device.counters
print(f"{moved.copies_up - before.copies_up} arrays up, {moved.copies_down - before.copies_down} down")

# %%
# NumPy computes the same chain.

np.testing.assert_allclose(y, B @ np.maximum(A @ x, 0), rtol=1e-3, atol=1e-3)
