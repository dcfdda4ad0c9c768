"""A product: y = A x
==================

The bytes that a call reads go up, and the bytes that it writes come down, on any device.
"""

# sphinx_gallery_thumbnail_path = "_static/card-hello_gemv.svg"

import argparse

import numpy as np

from offload_args import blas, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = parser.parse_args().device

# %%
# The product reads a matrix of 300 x 200 numbers and a vector, and overwrites ``y``, which is still empty.

random = np.random.default_rng(1)
A = random.standard_normal((300, 200), dtype=np.float32)
x = random.standard_normal(200, dtype=np.float32)
y = np.empty(300, dtype=np.float32)

# %%
# Inside the region, the three names are device pointers. The call reads ``dA`` and ``dx``, so ``A`` and ``x`` go up;
# ``y`` comes down when the region ends.

with offload_args(A, x, y, device=device) as (dA, dx, dy):  # nothing has moved yet
    blas.gemv(1.0, dA, dx, 0.0, dy)  # A and x went up; y did not: beta is 0
print(f"|y| = {np.linalg.norm(y):.4f}")  # y came down; dA, dx and dy are dead

# %%
# NumPy's product is the same up to rounding in single precision.

np.testing.assert_allclose(y, A @ x, rtol=1e-3, atol=1e-3)
