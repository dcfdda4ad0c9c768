"""Spectral clustering
===================

Two rings, one inside the other, which no straight line divides: an eigenvector of their affinities divides them.
"""

import argparse

import numpy as np

from offload_args import In, Out, Scratch, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the points and the eigenvector (needs matplotlib)")
options = parser.parse_args()

# %%
# Neighbours on a ring have an affinity close to 1. Points of different rings have an affinity of nearly 0.

random = np.random.default_rng(5)
ring = np.repeat([0, 1], 120)
angle, radius = random.uniform(0, 2 * np.pi, 240), np.where(ring, 3.0, 1.0) + 0.1 * random.standard_normal(240)
points = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
distances = ((points[:, None] - points) ** 2).sum(axis=2)
affinity = np.exp(-distances / (2 * 0.5**2))
scale = 1 / np.sqrt(affinity.sum(axis=0))

# %%
# D A D, with D the diagonal of ``scale``, has the eigenvalue 1. A second eigenvalue near 1 means a second cluster. Two
# calls of ``dgmm`` make the matrix in place, and ``syevd`` replaces it by its eigenvectors. One of these columns comes
# down.

n = len(points)
values, vector = np.empty(n), np.empty(n)
arrays = In(affinity), In(scale), Scratch((n, n), np.float64), Out(values), Out(vector)
with offload_args(*arrays, device=options.device) as (dA, dscale, S, dvalues, dvector):
    V = S.T  # in Fortran order, as syevd needs it; A is symmetric
    S.copy_from(dA)
    blas.dgmm(V, dscale, V, side="L")
    blas.dgmm(V, dscale, V, side="R")
    lapack.syevd(V, dvalues)
    blas.copy(V[:, -2], dvector)
level = vector * scale  # nearly constant on each ring
actual = (level > (level.min() + level.max()) / 2).astype(int)
print(f"the largest eigenvalues are {values[-1]:.4f}, {values[-2]:.4f} and {values[-3]:.4f}")

# %%
# The sign of an eigenvector is arbitrary, so each cluster may have either number.

assert (actual == ring).all() or (actual != ring).all()
np.testing.assert_allclose(values, np.linalg.eigvalsh(scale[:, None] * affinity * scale), rtol=1e-9, atol=1e-9)

if options.plot:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 4), layout="constrained")
    left.scatter(*points.T, 10, actual, cmap="coolwarm")
    left.set_aspect("equal")
    right.scatter(range(n), level, 10, ring, cmap="coolwarm")
    right.set(xlabel="point", ylabel="second eigenvector, scaled")
    figure.savefig(options.plot)
