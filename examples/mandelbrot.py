"""The Mandelbrot set, 640 x 480, on any device and in NumPy: the same image, pixel for pixel."""

import argparse

import numpy as np

from offload_args import Device, Kernel, Out, offload

SOURCE = """
#include <offload_args/kernel.h>
OA_KERNEL(mandelbrot, oa::Out<unsigned char> image, int rows, int columns, double step) {
  for (auto pixel : image.mine(oa::Linear2D(rows, columns), here)) {
    const double cx = here.index(0) * step - 2, cy = here.index(1) * step - 1.2;
    int n = 0;
    for (double x = 0, y = 0; n < 60 && x * x + y * y <= 4; n++) {
      const double next = x * x - y * y + cx;
      y = 2 * x * y + cy;
      x = next;
    }
    *pixel = n;
  }
}"""
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
options = ["--fmad=false"] if device.is_gpu else []  # so that it rounds as NumPy does
signature = [Out[np.uint8], np.int32, np.int32, np.float64]
kernel = Kernel.compile(SOURCE, "mandelbrot", signature, options=options, device=device)
image, step = np.empty((480, 640), np.uint8), 0.005
offload(kernel, image, *image.shape, step, grid=(40, 60), block=(16, 8), device=device)

cy, cx = np.mgrid[:480, :640] * step - np.array([1.2, 2])[:, None, None]
x, y, expected = np.zeros_like(cx), np.zeros_like(cx), np.zeros_like(image)
for _ in range(60):
    inside = x * x + y * y <= 4
    expected += inside
    x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, 2 * x * y + cy, y)
print(f"{np.count_nonzero(image == 60)} of {image.size} pixels are in the set, as far as 60 steps tell")
assert np.array_equal(image, expected)
