"""A 5-point Poisson problem by conjugate gradients: one region, no array moves between its first call and its end."""

import argparse

import numpy as np

from offload_args import blas, offload_args

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = parser.parse_args().device

n = 48  # interior points a side; the operator on a grid U is T U + U T
T = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
right = np.random.default_rng(3).standard_normal((n, n))
u, r, w = np.zeros(n * n), right.ravel().copy(), np.empty(n * n)
p = r.copy()

# p and w are lent twice, as vectors and as grids: two views of one buffer, on the device too.
with offload_args(T, u, r, p, p.reshape(n, n), w, w.reshape(n, n), device=device) as (dT, du, dr, dp, P, dw, W):
    rho = first = blas.dot(dr, dr)
    steps = 0
    while rho > 1e-24 * first:
        blas.gemm(1.0, dT, P, 0.0, W)
        blas.gemm(1.0, P, dT, 1.0, W)
        alpha = rho / blas.dot(dp, dw)
        blas.axpy(alpha, dp, du)
        blas.axpy(-alpha, dw, dr)
        rho, before = blas.dot(dr, dr), rho
        blas.scal(rho / before, dp)
        blas.axpy(1.0, dr, dp)
        steps += 1
print(f"{n} x {n} grid, {steps} steps")

values, Q = np.linalg.eigh(T)
solution = Q @ ((Q.T @ right @ Q) / (values[:, None] + values)) @ Q.T
np.testing.assert_allclose(u.reshape(n, n), solution, rtol=1e-8, atol=1e-8)
