"""Gaussian process regression
===========================

Two missing years of carbon dioxide in the air, with their uncertainty, from the years around them, by ``lapack``.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offload_args import In, InOut, Out, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the curve and its band (needs matplotlib)")
options = parser.parse_args()

# %%
# NOAA measured the monthly means at Mauna Loa (``examples/data/SOURCE.md``). The regression gets neither 2018 nor 2019.

year, ppm = 2014 + (np.arange(120) + 0.5) / 12, np.loadtxt(Path(sys.argv[0]).parent / "data" / "mauna_loa.txt").ravel()
known = (year < 2018) | (year > 2020)
t, offset, noise = year[known], ppm[known].mean(), 0.3


def covariance(s: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance of a trend, of a season that changes slowly, and of deviations that last months."""
    d = s[:, None] - t
    season = 3**2 * np.exp(-1.5 * np.sin(np.pi * d) ** 2 - 0.5 * (d / 30) ** 2)
    return np.asarray(40**2 * np.exp(-0.5 * (d / 20) ** 2) + season + 0.6**2 * np.exp(-2 * d**2), order="F")


# %%
# The Cholesky factor of K gives the mean's weights and the variance. The factor stays on the device between the calls.

K, cross, prior = covariance(t, t) + noise**2 * np.eye(len(t)), covariance(t, year), covariance(year, year).diagonal()
weights, mean, spread, L = ppm[known] - offset, np.empty(120), cross.copy(order="F"), K.copy(order="F")
arrays = InOut(L), InOut(weights), In(cross), Out(mean), InOut(spread)
with offload_args(*arrays, device=options.device) as (dL, dweights, dcross, dmean, dspread):
    lapack.potrf(dL, uplo="L")
    lapack.potrs(dL, dweights, uplo="L")
    blas.gemv(1.0, dcross.T, dweights, 0.0, dmean)
    lapack.trtrs(dL, dspread, uplo="L")
deviation, error = np.sqrt(prior - (spread**2).sum(axis=0) + noise**2), mean + offset - ppm
within = (abs(error) < 2 * deviation)[~known].sum()
print(f"error in the missing months {abs(error[~known]).mean():.2f} ppm; {within} of 24 within two standard deviations")

solved = np.linalg.solve(K, np.column_stack([ppm[known] - offset, cross]))  # NumPy solves with K itself
np.testing.assert_allclose(mean, cross.T @ solved[:, 0], rtol=1e-7, atol=1e-8)
np.testing.assert_allclose((spread**2).sum(axis=0), (cross * solved[:, 1:]).sum(axis=0), rtol=1e-9)

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    low, high = mean + offset - 2 * deviation, mean + offset + 2 * deviation
    axes.fill_between(year, low, high, alpha=0.25)
    axes.plot(year, mean + offset, t, ppm[known], "k.", year[~known], ppm[~known], "rx", markersize=4)
    axes.legend(["two standard deviations", "regression"], title="Carbon dioxide in ppm; crosses: months left out")
    figure.savefig(options.plot)
