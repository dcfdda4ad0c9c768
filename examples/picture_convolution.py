"""Filters of a picture
=====================

A blur and its edges, as convolutions: a transform, a product and an inverse transform, all on the device. The picture
is Commodore Grace Hopper's official portrait, US Navy 1984, public domain (``examples/data/SOURCE.md``).
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from offload_args import In, Out, blas, fft, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the picture and both results (needs matplotlib)")
options = parser.parse_args()

# %%
# A blur is a convolution with a bell curve. The other filter, a difference of two bell curves, shows edges.

picture = np.load(Path(sys.argv[0]).parent / "data" / "grace_hopper.npz")["grey"].astype(np.float64)
places = np.arange(-12.0, 13.0)
lines = [np.exp(-((places / width) ** 2) / 2) for width in (4.0, 1.0, 2.0)]
blur, narrow, wide = (np.outer(line, line) / line.sum() ** 2 for line in lines)
filters = {"blurred": blur, "edges": narrow - wide}

# %%
# The transform of a convolution is the product of the transforms, which ``dgmm`` multiplies element by element. The
# transform of the picture is computed once, and only the results come down.

size = tuple(length + len(places) - 1 for length in picture.shape)
results = {name: np.empty(size) for name in filters}
arrays = In(picture), *map(In, filters.values()), *map(Out, results.values())
with offload_args(*arrays, device=options.device) as (dpicture, *others):
    spectrum = fft.rfft2(dpicture, size)
    for dfilter, dresult in zip(others[:2], others[2:], strict=True):
        product = fft.rfft2(dfilter, size)
        column = product.reshape(1, -1).T
        blas.dgmm(column, spectrum.reshape(-1), column, side="L")
        dresult.copy_from(fft.irfft2(product, size))

# %%
# Sums over the filter give the same numbers.

for name, weights in filters.items():
    for i, j in (100, 80), (200, 150), (30, 200):
        window = picture[i - 24 : i + 1, j - 24 : j + 1][::-1, ::-1]
        np.testing.assert_allclose(results[name][i, j], (window * weights).sum(), atol=1e-9)
    print(f"{name}: {size[0]} x {size[1]} numbers, the largest {results[name].max():.1f}")
if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3.6), layout="constrained")
    for axis, (title, values) in zip(axes, {"the picture": picture, **results}.items(), strict=True):
        axis.imshow(values, cmap="gray")
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(options.plot)
