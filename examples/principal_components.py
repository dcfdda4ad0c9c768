"""Principal components (PCA)
==========================

Principal component analysis of 1,797 digits: eight components, and each digit's place by the first two. A covariance
matrix, its eigenvectors and a product with them are one region. The digits come with the package: E. Alpaydin and
C. Kaynak, Optical Recognition of Handwritten Digits, 1998, doi.org/10.24432/C50P49, CC BY 4.0.
"""

import argparse

import numpy as np

from offload_args import In, Out, blas, demo, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the components and the digits (needs matplotlib)")
options = parser.parse_args()

# %%
# Each row is a digit of 8 x 8 pixels. The labels are for the picture only: the components don't use them.

data, labels = demo.load_digits(), np.load(demo.DIGITS)["labels"]
n, d = data.shape
values, vectors, places = np.empty(d), np.empty((d, d), order="F"), np.empty((n, 2))

# %%
# V is lent once and is two things in turn: ``gemm`` writes the covariance into it, and ``syevd`` overwrites it with its
# eigenvectors. The places are a product with two columns of V, which are a view on the device.

with offload_args(In(data), Out(values), Out(vectors), Out(places), device=options.device) as (X, w, V, P):
    blas.gemm(1.0 / (n - 1), X.T, X, 0.0, V)  # V is the covariance matrix
    lapack.syevd(V, w)  # now its eigenvectors, in the order of their eigenvalues
    blas.gemm(1.0, X, V[:, -2:], 0.0, P)
print(f"8 of {d} components have {values[-8:].sum() / values.sum():.1%} of the variance")

# %%
# NumPy's SVD of the data has the same components, up to their signs.

singular, expected = np.linalg.svd(data, full_matrices=False)[1:]
np.testing.assert_allclose(values[:-9:-1], singular[:8] ** 2 / (n - 1), rtol=1e-10)
np.testing.assert_allclose(abs((vectors[:, :-9:-1].T * expected[:8]).sum(1)), 1.0, rtol=1e-9)
np.testing.assert_allclose(places, data @ vectors[:, -2:], rtol=1e-9, atol=1e-9)

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplot_mosaic("01234567" + ";pppppppp" * 4, figsize=(8, 7.5), layout="constrained")
    for k in range(8):
        axes[str(k)].imshow(vectors[:, -1 - k].reshape(8, 8), cmap="RdBu", vmin=-0.4, vmax=0.4)
        axes[str(k)].set_title(f"{values[-1 - k] / values.sum():.0%}")
        axes[str(k)].set_axis_off()
    drawn = axes["p"].scatter(places[:, 1], places[:, 0], 8, labels, cmap="tab10")
    axes["p"].set(xlabel="first component", ylabel="second component")
    axes["p"].legend(*drawn.legend_elements(), title="digit", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(options.plot)
