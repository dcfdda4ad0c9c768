"""Heat in a plate by a five-point stencil, in tiles of 16 x 16 points that a block of threads shares."""

import argparse

import numpy as np

from offload_args import Device, In, Kernel, Out, Scratch, offload_args

SOURCE = """
#include <offload_args/kernel.h>

OA_BLOCK_KERNEL(heat, oa::In<float> from, oa::Out<float> to, int rows, int columns) {
  OA_SHARED float tile[18][18];  // 16 x 16 points, and a border
  const long long row = 16LL * here.block_index(1), column = 16LL * here.block_index(0);
  here.phase([&](const oa::Here &here) {
    for (int i = here.thread(); i < 18 * 18; i += 256) {
      const long long r = row + i / 18 - 1, c = column + i % 18 - 1;
      tile[i / 18][i % 18] = r >= 0 && r < rows && c >= 0 && c < columns ? from[r * columns + c] : 0;
    }
  });
  here.phase([&](const oa::Here &here) {
    const int r = here.thread_index(1) + 1, c = here.thread_index(0) + 1;
    for (auto point : to.mine(oa::Linear2D(rows, columns), here))
      *point = 0.6f * tile[r][c] + 0.1f * (tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1]);
  });
}"""
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
kernel = Kernel.compile(SOURCE, "heat", [In[np.float32], Out[np.float32], np.int32, np.int32], device=device)


plate = np.random.default_rng(5).random((300, 500), np.float32)
expected = np.pad(plate, 1)  # it is cold outside
with offload_args(plate, Scratch(plate.shape, np.float32), device=device) as (dx, dy):
    for _ in range(50):
        kernel[(32, 19), (16, 16)](dx, dy, *dx.shape)
        kernel[(32, 19), (16, 16)](dy, dx, *dx.shape)

for _ in range(100):
    beside = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
    expected[1:-1, 1:-1] = 0.6 * expected[1:-1, 1:-1] + 0.1 * beside
np.testing.assert_allclose(plate, expected[1:-1, 1:-1], rtol=1e-4)
print(f"after 100 steps the mean is {plate.mean():.4f}")
