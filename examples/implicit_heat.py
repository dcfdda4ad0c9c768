"""Implicit heat equation
======================

Heat spreads in a plate with a cold rim. The matrix of a step is factored once, and each step solves with the factor.
"""

import argparse

import numpy as np

from offload_args import In, InOut, Scratch, lapack, offload_args, update

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the plate before and after (needs matplotlib)")
options = parser.parse_args()

# %%
# A step of backward Euler solves (I + s L) u' = u, where L is the 5-point Laplacian. The matrix is symmetric and
# positive definite, so it has a Cholesky factor, and steps of any length are stable.

n, s, steps = 20, 0.5, 60
T = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
M = np.eye(n * n) + s * (np.kron(T, np.eye(n)) + np.kron(np.eye(n), T))
start = np.zeros((n, n))
start[4:8, 4:8] = start[12:17, 10:17] = 1.0
u, heat = start.ravel().copy(), [start.sum()]

# %%
# M goes up once. The factor is made in a copy on the device, where it stays for all steps; ``update`` brings the plate
# down between the steps, to record the remaining heat.

with offload_args(In(M), Scratch(M.shape, M.dtype), InOut(u), device=options.device) as (dM, factor, du):
    factor.copy_from(dM)
    lapack.potrf(factor)
    for step in range(1, steps + 1):
        lapack.potrs(factor, du)
        if step % 10 == 0:
            update(u)
            heat.append(u.sum())
print(f"{steps} steps leave {heat[-1] / heat[0]:.1%} of the heat")

# %%
# The eigenvectors of L are known, so NumPy can compute the state after all steps directly.

values, Q = np.linalg.eigh(T)
expected = Q @ ((Q.T @ start @ Q) / (1 + s * (values[:, None] + values)) ** steps) @ Q.T
np.testing.assert_allclose(u.reshape(n, n), expected, rtol=1e-9, atol=1e-12)

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for place, plate, title in zip(axes, (start, u.reshape(n, n)), ("start", f"after {steps} steps"), strict=True):
        figure.colorbar(place.imshow(plate, cmap="inferno"), ax=place)
        place.set_title(title)
    figure.savefig(options.plot)
