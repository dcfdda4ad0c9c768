"""Shared memory
=============

The sum of an array: each block of threads adds its part in shared memory, and one block adds the blocks' sums.
"""

# sphinx_gallery_thumbnail_path = "_static/card-block_sum.svg"

import argparse

import numpy as np

from offload_args import Device, In, Kernel, Out, Scratch, offload_args

# %%
# The threads of a block share ``part``. Half of the threads add the numbers of the other half to their own. Then a
# quarter of the threads do the same, and so on, until one sum is left. A phase ends when all threads have reached its
# end.

SOURCE = """
#include <offload_args/kernel.h>

OA_BLOCK_KERNEL(sum, oa::In<float> x, oa::Out<float> y, int n) {
  OA_SHARED float part[256];
  here.phase([&](const oa::Here &here) {  // the block's threads meet at the end of each phase
    float mine = 0;
    for (long long i = here.index(); i < n; i += here.size()) mine += x[i];
    part[here.thread()] = mine;
  });
  for (int half = 128; half > 0; half /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < half) part[here.thread()] += part[here.thread() + half];
    });
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) *element = part[0];
  });
}"""

# %%
# The second launch is the same kernel, on the sums of the 100 blocks of the first launch. These sums stay on the
# device.

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
kernel = Kernel.compile(SOURCE, "sum", [In[np.float32], Out[np.float32], np.int32], device=device)

x, total = np.random.default_rng(4).random(1_000_000, np.float32), np.empty(1, np.float32)
with offload_args(x, Scratch(100, np.float32), total, device=device) as (dx, dsums, dtotal):
    kernel[100, 256](dx, dsums, dx.size)
    kernel[1, 256](dsums, dtotal, dsums.size)
print(f"the sum is {total[0]}")

# %%
# NumPy adds in double precision. A sum by halves in single precision is nearly as accurate.

np.testing.assert_allclose(total[0], x.sum(dtype=np.float64), rtol=1e-6)
