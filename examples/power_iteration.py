"""Power iteration
===============

The first principal component of 1,797 digits by the power method, whose steps never leave the device. The digits come
with the package: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, 1998, doi.org/10.24432/C50P49,
CC BY 4.0.
"""

import argparse

import numpy as np

from offload_args import Out, Scratch, blas, offload_args
from offload_args.demo import load_digits

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw how it converges (needs matplotlib)")
options = parser.parse_args()

# %%
# Each row is a digit of 8 x 8 pixels, from which the mean digit is subtracted already.

data = load_digits()
n, d = data.shape
component = np.empty(d)
lengths = []

# %%
# A step multiplies by X^T X, as two products with the data, and scales the result to length 1. The digits go up once,
# and only the lengths come down.

with offload_args(data, Out(component), Scratch((n,), data.dtype), device=options.device) as (X, v, y):
    blas.gemv(1.0, X.T, X[:, 28], 0.0, v)  # the start: one pixel's covariance with all
    for _ in range(200):
        blas.scal(1.0 / blas.nrm2(v), v)
        blas.gemv(1.0, X, v, 0.0, y)
        blas.gemv(1.0, X.T, y, 0.0, v)
        lengths.append(blas.nrm2(v))  # a number comes down, no array
    blas.scal(1.0 / lengths[-1], v)
print(f"largest eigenvalue {lengths[-1] / (n - 1):.6f}")

# %%
# The last length is the square of NumPy's largest singular value.

singular, vectors = np.linalg.svd(data, full_matrices=False)[1:]
np.testing.assert_allclose(lengths[-1], singular[0] ** 2, rtol=1e-10)
np.testing.assert_allclose(abs(component @ vectors[0]), 1.0, rtol=1e-6)

if options.plot:
    from matplotlib import pyplot

    steps = np.arange(1, 201)
    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    axes.semilogy(steps, abs(np.array(lengths) / singular[0] ** 2 - 1) + 1e-17, label="the iteration")
    axes.semilogy(steps, (singular[1] / singular[0]) ** (4 * steps), "--", label="as the eigenvalues predict")
    axes.set(xlabel="step", ylabel="relative error of the eigenvalue", ylim=(1e-17, 1))
    axes.legend()
    figure.savefig(options.plot)
