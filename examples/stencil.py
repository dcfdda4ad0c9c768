"""Tiles: heat in a plate
======================

A five-point stencil, in tiles of 16 x 16 points that a block of threads shares.
"""

import argparse

import numpy as np

from offload_args import Device, In, Kernel, Out, Scratch, kernels, launch, offload_args

# %%
# The threads of a block copy its tile and a border into shared memory. Then each thread computes its points from these.

SOURCE = """
#include <offload_args/kernel.h>
OA_BLOCK_KERNEL(heat, oa::In<float> from, oa::Out<float> to, int rows, int columns) {
  OA_SHARED float points[18][18];  // the tile's points, and a border
  const oa::Tiles<16, 16> tiles(rows, columns);
  const oa::Box box = tiles.box(here);
  here.phase([&](const oa::Here &here) {
    for (int i = here.thread(); i < 18 * 18; i += here.threads(0) * here.threads(1)) {
      const long long r = box.row + i / 18 - 1, c = box.column + i % 18 - 1;
      points[i / 18][i % 18] = r >= 0 && r < rows && c >= 0 && c < columns ? from[r * columns + c] : 0;
    }
  });
  here.phase([&](const oa::Here &here) {
    for (auto point : to.mine(tiles, here)) {
      const long long r = point.row() - box.row + 1, c = point.column() - box.column + 1;
      *point = 0.6f * points[r][c] + 0.1f * (points[r - 1][c] + points[r + 1][c] + points[r][c - 1] + points[r][c + 1]);
    }
  });
}"""
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the plate before and after (needs matplotlib)")
options = parser.parse_args()

# %%
# The signature names the partition, from which ``launch`` takes the grid. Plate and ``Scratch`` take turns as source.

device = Device(options.device or Device.default().name)
signature = [In[np.float32], Out[np.float32].by(kernels.Tiles(16, 16)), np.int32, np.int32]
kernel = Kernel.compile(SOURCE, "heat", signature, device=device)
before = np.random.default_rng(5).random((300, 500), np.float32)
before[100:200, 200:300] += 2  # a hot square
plate, expected = before.copy(), np.pad(before, 1)  # outside of the plate it is cold
with offload_args(plate, Scratch(plate.shape, np.float32), device=device) as (dx, dy):
    for source, target in 50 * [(dx, dy), (dy, dx)]:
        launch(kernel, source, target, *plate.shape)
for _ in range(100):  # the same steps by NumPy
    beside = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
    expected[1:-1, 1:-1] = 0.6 * expected[1:-1, 1:-1] + 0.1 * beside
np.testing.assert_allclose(plate, expected[1:-1, 1:-1], rtol=1e-4)
print(f"after 100 steps the mean is {plate.mean():.4f}")

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3), layout="constrained", subplot_kw={"title": "before, and after"})
    figure.colorbar(axes.imshow(np.hstack([before, plate]), cmap="inferno", vmin=0, vmax=3))
    figure.savefig(options.plot)
