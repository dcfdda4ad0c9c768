"""Conjugate gradients, with no look at the host
=============================================

The calls of a Poisson solver are captured once, and a loop runs them until a call has set a number on the device.
"""

# sphinx_gallery_thumbnail_path = "_static/card-cg_on_device.svg"
import argparse

import numpy as np

from offload_args import Device, In, Kernel, Out, blas, launch, offload_args

# %%
# The divisions are kernels of two threads. Sum 0 is r r, sum 1 is p w, and sum 2 is the new r r. On the CPU, a launch
# of a checked kernel in C++ waits for its end, but a captured call must not wait, so ``debug=False`` turns the checks
# off. Kernels of one line, by ``elementwise``, need no such option.

SOURCE = """
#include <offload_args/kernel.h>
OA_KERNEL(divide, oa::In<double> sums, oa::Out<double> factors, int n) {
  for (auto f : factors.mine(oa::Linear1D(n), here)) *f = (f.index() ? -1 : 1) * sums[0] / sums[1];
}
OA_KERNEL(compare, oa::In<double> sums, oa::Out<double> factors, double small, int n) {
  for (auto f : factors.mine(oa::Linear1D(n), here)) *f = f.index() ? sums[2] <= small : sums[2] / sums[0];
}
"""
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
pair = [In[np.float64], Out[np.float64]]
divide = Kernel.compile(SOURCE, "divide", [*pair, np.int32], device=device, debug=False)
compare = Kernel.compile(SOURCE, "compare", [*pair, np.float64, np.int32], device=device, debug=False)

# %%
# The operator on a grid U is T U + U T. A 0-d pointer is a number on the device, for a result or a factor of a call.

n = 48  # interior points along a side
T = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
right = np.random.default_rng(3).standard_normal((n, n))
u, r, p, w = np.zeros(n * n), right.ravel().copy(), right.ravel().copy(), np.empty(n * n)
arrays = T, u, r, p, p.reshape(n, n), w, w.reshape(n, n), np.zeros(3), np.zeros(2), np.zeros(2)
region = offload_args(*arrays, device=device)
with region as (dT, du, dr, dp, P, dw, W, dsums, dsteps, dturns):
    old, product, new = (dsums[i : i + 1].reshape(()) for i in range(3))

    def step() -> None:
        blas.gemm(1.0, dT, P, 0.0, W)
        blas.gemm(1.0, P, dT, 1.0, W)
        blas.dot(dp, dw, result=product)
        launch(divide, dsums, dsteps, 2)
        blas.axpy(dsteps[:1].reshape(()), dp, du)
        blas.axpy(dsteps[1:].reshape(()), dw, dr)
        blas.dot(dr, dr, result=new)
        launch(compare, dsums, dturns, 1e-24 * float(right.ravel() @ right.ravel()), 2)
        old.copy_from(new)
        blas.scal(dturns[:1].reshape(()), dp)
        blas.axpy(1.0, dr, dp)

    blas.dot(dr, dr, result=old)
    print(f"{n} x {n} grid, {region.loop(step, until=dturns[1:], at_most=500)} steps")
U = u.reshape(n, n)
np.testing.assert_allclose(T @ U + U @ T, right, atol=1e-9)
