"""A kernel of your own
====================

c = a + b: one source for NVIDIA GPUs and for the CPU.
"""

# sphinx_gallery_thumbnail_path = "_static/card-vector_add.svg"

import argparse

import numpy as np

from offload_args import Device, In, Kernel, Out, offload

# %%
# The kernel is C++ code for compilers of GPUs and of CPUs. ``c.mine`` gives each thread its own elements of the output,
# so that no two threads write the same element.

SOURCE = """
#include <offload_args/kernel.h>

OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here))
    *element = a[element.index()] + b[element.index()];
}
"""

# %%
# The signature declares how the kernel uses each argument. ``compile`` builds the kernel for the device.

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = parser.parse_args().device or Device.default()

signature = [In[np.float32], In[np.float32], Out[np.float32], np.int32]
vadd = Kernel.compile(SOURCE, "vadd", signature, device=device)

# %%
# ``offload`` is a region and a launch in one. It takes the grid from the size of the output.

n = 100_000
a, b, c = np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.empty(n, np.float32)
offload(vadd, a, b, c, n, device=device)  # a and b go up, c comes down
print(f"c[:4] = {c[:4]}")

# %%
# Whole numbers below 2 to the 24th are exact in single precision, so the results are equal to the last bit.

np.testing.assert_array_equal(c, a + b)
