"""Least squares
=============

Fits a polynomial to noisy measurements: by QR factors, and by the normal equations. Both need columns that do not
depend on each other; ``lapack.gelsd`` and ``linalg.lstsq`` take any columns.
"""

import argparse

import numpy as np

from offload_args import Scratch, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the fit (needs matplotlib)")
options = parser.parse_args()

# %%
# The measurements are values of a polynomial of degree 3, with noise. Column j of A is the j-th power of the time.

random = np.random.default_rng(1)
truth = np.array([0.5, -2.0, 0.0, 3.0])
t = np.linspace(-1.0, 1.0, 2000)
A = np.asfortranarray(np.vander(t, 4, increasing=True))  # A[i, j] is t[i] ** j
measured = A @ truth + 0.3 * random.standard_normal(2000)

# %%
# ``gels`` factors A in place and overwrites the measurements, so the program lends copies of A and of the measurements.
# The first four numbers become the solution, and the length of the others is the length of the residual.

x = measured.copy()
with offload_args(A.copy(order="F"), x, device=options.device) as (dA, dx):
    lapack.gels(dA, dx)  # x[:4] becomes the solution, the rest has the residual's length
print("coefficients:", x[:4].round(3), f"residual: {np.linalg.norm(x[4:]):.4f}")

# %%
# The normal equations, A^T A y = A^T b, need one copy of A, and nothing goes to the host between the calls. They are
# faster, but less accurate, because the condition number of A is squared.

y = np.empty(4)
with offload_args(A, measured, Scratch((4, 4), A.dtype), y, device=options.device) as (dA, db, dN, dy):
    blas.syrk(1.0, dA, 0.0, dN, trans="T")
    blas.gemv(1.0, dA, db, 0.0, dy, trans="T")
    lapack.posv(dN, dy)

# %%
# Both solutions agree with NumPy's. The second solution agrees in fewer digits.

np.testing.assert_allclose(x[:4], np.linalg.lstsq(A, measured, rcond=None)[0], rtol=1e-9, atol=1e-9)
np.testing.assert_allclose(y, x[:4], rtol=1e-7, atol=1e-7)

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    axes.plot(t, measured, ".", markersize=2, alpha=0.5, label="measurements")
    axes.plot(t, A @ truth, "k:", label="truth")
    axes.plot(t, A @ x[:4], label="fit")
    axes.legend()
    figure.savefig(options.plot)
