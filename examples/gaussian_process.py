"""Gaussian process regression
===========================

A curve through 60 noisy measurements, with its uncertainty: Cholesky factors by ``lapack``.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

from offload_args import In, InOut, Out, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the curve and its band (needs matplotlib)")
options = parser.parse_args()


def covariance(s: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the curve's covariance at two points: 1 at distance 0, and nearly 0 at distances above 3 x 0.8."""
    return np.asarray(np.exp(-0.5 * ((s[:, None] - t) / 0.8) ** 2), order="F")


# %%
# The points are dense on the left and on the right, and no point is between 4 and 6.

random, noise = np.random.default_rng(4), 0.15
t = np.concatenate([random.uniform(0, 4, 40), random.uniform(6, 10, 20)])  # none between 4 and 6
measured = np.sin(t) + noise * random.standard_normal(60)
wanted = np.linspace(0, 10, 300)

# %%
# The Cholesky factor of K gives the mean's weights and the variance. The factor stays on the device between the calls.

K, cross = covariance(t, t) + noise**2 * np.eye(60), covariance(t, wanted)
weights, mean, spread, L = measured.copy(), np.empty(300), cross.copy(order="F"), K.copy(order="F")
arrays = InOut(L), InOut(weights), In(cross), Out(mean), InOut(spread)
with offload_args(*arrays, device=options.device) as (dL, dweights, dcross, dmean, dspread):
    lapack.potrf(dL, uplo="L")
    lapack.potrs(dL, dweights, uplo="L")
    blas.gemv(1.0, dcross.T, dweights, 0.0, dmean)
    lapack.trtrs(dL, dspread, uplo="L")
deviation = np.sqrt(1 - (spread**2).sum(axis=0))
print(f"standard deviation {deviation[60]:.3f} among the measurements, {deviation[150]:.3f} in the gap")

# %%
# NumPy solves with K itself. The band of the picture is widest in the gap.

solved = np.linalg.solve(K, np.column_stack([measured, cross]))
np.testing.assert_allclose(mean, cross.T @ solved[:, 0], rtol=1e-9, atol=1e-9)
np.testing.assert_allclose(deviation**2, 1 - (cross * solved[:, 1:]).sum(axis=0), rtol=1e-7, atol=1e-9)

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    axes.fill_between(wanted, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25, label="two standard deviations")
    axes.plot(wanted, mean, label="regression")
    axes.plot(wanted, np.sin(wanted), "k:", label="truth")
    axes.plot(t, measured, "k.", label="measurements")
    axes.legend(loc="lower left")
    figure.savefig(options.plot)
