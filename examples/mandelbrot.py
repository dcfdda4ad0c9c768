"""The Mandelbrot set as a PNG file, by a kernel and by NumPy: the same image, pixel for pixel."""

import argparse
import struct
import zlib

import numpy as np

from offload_args import Device, Kernel, Out, offload

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
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
device = Device(parser.parse_args().device or Device.default().name)
options = {"cuda": ["--fmad=false"], "hip": ["-ffp-contract=off"]}.get(device.backend, [])  # to round as NumPy does
signature = [Out[np.uint8], np.int32, np.int32, np.float64]
kernel = Kernel.compile(SOURCE, "mandelbrot", signature, options=options, device=device)
image, step = np.empty((480, 640), np.uint8), 0.005
offload(kernel, image, *image.shape, step, grid=(40, 60), block=(16, 8), device=device)

cy, cx = np.mgrid[:480, :640] * step - np.array([1.2, 2])[:, None, None]
x, y, n = np.zeros((3, 480, 640))
for _ in range(60):
    x, y, n = np.where(x * x + y * y <= 4, (x * x - y * y + cx, 2 * x * y + cy, n + 1), (x, y, n))
assert np.array_equal(image, 4 * n)

with open("mandelbrot.png", "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n")
    header, rows = struct.pack(">2I5B", 640, 480, 8, 0, 0, 0, 0), np.pad(image, ((0, 0), (1, 0)))  # 8 bits of grey
    for kind, data in (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""):
        file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
print("mandelbrot.png has the image")
