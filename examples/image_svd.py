"""A picture in fewer numbers
==========================

The singular values of a picture, by a randomised method: products with the picture, and factors of small matrices. The
picture is Commodore Grace Hopper's official portrait, US Navy 1984, public domain (``examples/data/SOURCE.md``).
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from offload_args import In, InOut, Out, Scratch, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the picture of several ranks (needs matplotlib)")
options = parser.parse_args()

picture = np.load(Path(sys.argv[0]).parent / "data" / "grace_hopper.npz")["grey"].astype(np.float64)
(m, n), k = picture.shape, 50
start = np.random.default_rng(6).standard_normal((n, k))
Y, Q = np.empty((m, k), order="F"), np.eye(m, k)
U, s, VT = np.empty((m, k)), np.empty(k), np.empty((k, n))

# %%
# Products with the picture and its transpose give a basis of 50 columns, and in this basis the SVD is cheap.

arrays = In(picture), In(start), Out(Y), InOut(Q), Out(U), Out(s), Out(VT)
rooms = Scratch((n, k), Y.dtype), Scratch(k, Y.dtype), Scratch((k, n), Y.dtype), Scratch((k, k), Y.dtype)
with offload_args(*arrays, *rooms, device=options.device) as (A, dstart, dY, dQ, dU, ds, dVT, Z, tau, B, W):
    blas.gemm(1.0, A, dstart, 0.0, dY)  # random combinations of the columns,
    for _ in range(2):  # in which each step makes the large singular values outweigh the small ones
        blas.gemm(1e-9, A.T, dY, 0.0, Z)
        blas.gemm(1.0, A, Z, 0.0, dY)
    lapack.geqrf(dY, tau)
    lapack.ormqr(dY, tau, dQ)  # Q is an orthonormal basis of these columns
    blas.gemm(1.0, dQ.T, A, 0.0, B)
    lapack.gesvd(B, ds, W, dVT, jobvt="S")  # B is only k x n
    blas.gemm(1.0, dQ, W, 0.0, dU)

# %%
# No matrix of the same rank is nearer than the truncated SVD. The randomised SVD comes within 5 % of it.

exact = np.linalg.svd(picture, compute_uv=False)
np.testing.assert_allclose(s[:20], exact[:20], rtol=1e-3)
for rank in 5, 15, 40:
    error = np.linalg.norm((U[:, :rank] * s[:rank]) @ VT[:rank] - picture)
    best = np.linalg.norm(exact[rank:])  # no matrix of this rank is nearer
    numbers = rank * (m + n + 1) / picture.size
    print(f"rank {rank}: {numbers:.0%} of the numbers, off by {error / np.linalg.norm(picture):.1%}")
    assert error < 1.05 * best

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(10, 3.4), layout="constrained")
    for axis, rank in zip(axes, (5, 15, 40, n), strict=True):
        axis.imshow((U[:, :rank] * s[:rank]) @ VT[:rank] if rank < n else picture, cmap="gray", vmin=0, vmax=255)
        axis.set_title(f"rank {rank}" if rank < n else "the picture")
        axis.set_axis_off()
    figure.savefig(options.plot)
