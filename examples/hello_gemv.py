"""A product: y = A x
==================

What is read goes up, what is written comes down, on whatever device is there.
"""

import argparse

import numpy as np

from offload_args import blas, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = parser.parse_args().device

random = np.random.default_rng(1)
A = random.standard_normal((300, 200), dtype=np.float32)
x = random.standard_normal(200, dtype=np.float32)
y = np.empty(300, dtype=np.float32)

with offload_args(A, x, y, device=device) as (dA, dx, dy):  # nothing has moved yet
    blas.gemv(1.0, dA, dx, 0.0, dy)  # A and x went up; y did not: beta is 0
print(f"|y| = {np.linalg.norm(y):.4f}")  # y came down; dA, dx and dy are dead

np.testing.assert_allclose(y, A @ x, rtol=1e-3, atol=1e-3)
