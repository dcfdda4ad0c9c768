"""Larger than the device
======================

Multiply matrices of files, by parts that go up and come down meanwhile. The output below is of a device with 24 MiB::

    OFFLOAD_ARGS_MEMORY_LIMIT=24MiB python examples/out_of_core.py --plot speed.png
"""

import argparse
import os
import tempfile
import time

import numpy as np

from offload_args import Device, In, Out, blas, offload_args
from offload_args.errors import DeviceMemoryError

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the speed against the size (needs matplotlib)")
options = parser.parse_args()

# %%
# The system reads a file's pages when a part goes up, and writes the product's pages after a part came down. A region
# needs all three matrices on the device together. If they do not fit, only a product with ``devices`` works.


def speed(way: str, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> float:
    """Multiply, and return the GFLOP/s; not a number if there is not enough memory."""
    device, begun = Device(options.device or Device.default().name), time.perf_counter()
    try:
        if way == "by parts":
            blas.gemm(1.0, A, B, 0.0, C, devices=[device])
        else:
            with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
                blas.gemm(1.0, dA, dB, 0.0, dC)
    except DeviceMemoryError:
        return np.nan
    taken = time.perf_counter() - begun
    np.testing.assert_allclose(C[::100], A[::100].astype(np.float64) @ B, rtol=1e-4)
    return 2e-9 * len(A) ** 3 / taken


sizes = 512, 1024, 1280, 1536, 2048
speeds: dict[str, list[float]] = {"in a region": [], "by parts": []}
for n in sizes:
    with tempfile.TemporaryDirectory() as folder:
        A, B, C = (np.memmap(os.path.join(folder, name), np.float32, "w+", shape=(n, n)) for name in "ABC")
        A[...], B[...] = np.random.default_rng(n).random((2, n, n), np.float32)
        for way, rates in speeds.items():
            rates.append(speed(way, A, B, C))
            print(f"{3 * A.nbytes >> 20:3} MiB {way}:", "too large" if np.isnan(rates[-1]) else "right")

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for way, rates in speeds.items():
        axes.plot([12 * n**2 / 2**20 for n in sizes], rates, "o-", label=way)
    axes.set(xlabel="all three matrices, MiB", ylabel="GFLOP/s", ylim=0)
    axes.legend()
    figure.savefig(options.plot)
