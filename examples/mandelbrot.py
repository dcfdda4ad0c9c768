"""The Mandelbrot set
==================

A kernel and NumPy compute the same image, pixel for pixel.
"""

import argparse

import numpy as np

from offload_args import Device, Kernel, Out, offload

# %%
# Each thread has its pixels and counts the steps until a point leaves the circle of radius 2.

SOURCE = """
#include <offload_args/kernel.h>
OA_KERNEL(mandelbrot, oa::Out<unsigned char> image, int rows, int columns, double step) {
  for (auto pixel : image.mine(oa::Linear2D(rows, columns), here)) {
    const double cx = here.index(0) * step - 2, cy = here.index(1) * step - 1.2;
    double x = 0, y = 0, next;
    int n = 0;
    for (; n < 60 && x * x + y * y <= 4; n++, x = next) next = x * x - y * y + cx, y = 2 * x * y + cy;
    *pixel = 4 * n;
  }
}"""

# %%
# A compiler may compute a product and a sum with a single rounding. The options forbid this, so that each step rounds
# as NumPy's steps do.

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the set (needs matplotlib)")
options = parser.parse_args()
device = Device(options.device or Device.default().name)
compiler = {"cuda": ["--fmad=false"], "hip": ["-ffp-contract=off"]}.get(device.backend, [])  # to round as NumPy does
signature = [Out[np.uint8], np.int32, np.int32, np.float64]
kernel = Kernel.compile(SOURCE, "mandelbrot", signature, options=compiler, device=device)
image, step = np.empty((480, 640), np.uint8), 0.005
offload(kernel, image, *image.shape, step, grid=(40, 60), block=(16, 8), device=device)

# %%
# NumPy advances all points together, and never stops a single point. ``where`` keeps the counts of the points that have
# left the circle.

cy, cx = np.mgrid[:480, :640] * step - np.array([1.2, 2])[:, None, None]
x, y, n = np.zeros((3, 480, 640))
for _ in range(60):
    x, y, n = np.where(x * x + y * y <= 4, (x * x - y * y + cx, 2 * x * y + cy, n + 1), (x, y, n))
assert np.array_equal(image, 4 * n)
print(f"{np.count_nonzero(image == 240) / image.size:.1%} of the points are in the set")

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
    axes.imshow(image, cmap="magma", extent=(-2, 1.2, 1.2, -1.2))
    figure.savefig(options.plot)
