"""Conjugate gradients
===================

A 5-point Poisson problem by a Krylov solver in one region: no array moves between its first call and its end.
"""

import argparse

import numpy as np

from offload_args import blas, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the residual (needs matplotlib)")
options = parser.parse_args()

# %%
# The grid is a matrix U, so that the operator is two products with the tridiagonal T, and the operator's matrix of 2304
# x 2304 numbers is not needed.

n = 48  # interior points a side; the operator on a grid U is T U + U T
T = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
right = np.random.default_rng(3).standard_normal((n, n))
u, r, w = np.zeros(n * n), right.ravel().copy(), np.empty(n * n)
p = r.copy()

# %%
# p and w are lent twice, as vectors and as grids: two views of one buffer, on the device too. Each step brings down two
# numbers, the results of ``dot``, and no array.

arrays = T, u, r, p, p.reshape(n, n), w, w.reshape(n, n)
with offload_args(*arrays, device=options.device) as (dT, du, dr, dp, P, dw, W):
    rho = [blas.dot(dr, dr)]  # the squared length of the residual, after each step
    while rho[-1] > 1e-24 * rho[0]:
        blas.gemm(1.0, dT, P, 0.0, W)
        blas.gemm(1.0, P, dT, 1.0, W)
        alpha = rho[-1] / blas.dot(dp, dw)
        blas.axpy(alpha, dp, du)
        blas.axpy(-alpha, dw, dr)
        rho.append(blas.dot(dr, dr))
        blas.scal(rho[-1] / rho[-2], dp)
        blas.axpy(1.0, dr, dp)
print(f"{n} x {n} grid, {len(rho) - 1} steps")

# %%
# The eigenvectors of T solve the same problem directly.

values, Q = np.linalg.eigh(T)
solution = Q @ ((Q.T @ right @ Q) / (values[:, None] + values)) @ Q.T
np.testing.assert_allclose(u.reshape(n, n), solution, rtol=1e-8, atol=1e-8)

if options.plot:
    from matplotlib import pyplot

    figure, (left, axes) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    figure.colorbar(left.imshow(u.reshape(n, n)), ax=left, label="solution")
    axes.semilogy(np.sqrt(np.array(rho) / rho[0]))
    axes.set(xlabel="step", ylabel="relative residual")
    figure.savefig(options.plot)
