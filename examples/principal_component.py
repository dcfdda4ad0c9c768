"""The first principal component of 1,797 digits, by power iteration that never leaves the device."""

import argparse

import numpy as np

from offload_args import Out, Scratch, blas, offload_args
from offload_args.demo import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = parser.parse_args().device

data = load_digits()
n, d = data.shape
component = np.empty(d)

with offload_args(data, Out(component), Scratch((n,), data.dtype), device=device) as (X, v, y):
    blas.gemv(1.0, X.T, X[:, 28], 0.0, v)  # the start: one pixel's covariance with all
    for _ in range(200):
        blas.scal(1.0 / blas.nrm2(v), v)
        blas.gemv(1.0, X, v, 0.0, y)
        blas.gemv(1.0, X.T, y, 0.0, v)
    length = blas.nrm2(v)
    blas.scal(1.0 / length, v)
print(f"largest eigenvalue {length / (n - 1):.6f}")

singular, vectors = np.linalg.svd(data, full_matrices=False)[1:]
np.testing.assert_allclose(length, singular[0] ** 2, rtol=1e-10)
np.testing.assert_allclose(abs(component @ vectors[0]), 1.0, rtol=1e-6)
