"""Compare Fourier transforms with those of CuPy and NumPy.

python benchmarks/fft.py [--device cuda:0] [--rounds N]

The works are: a transform of 2^24 complex64, on the device, and from and to NumPy; 1,000 transforms of 1,024; and the
convolution of two pictures of 4096 x 4096 float32, from and to NumPy. Each time includes a wait for the device.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from timing import cupy_for, median

from offload_args import Device, In, InOut, Out, fft, kernels, offload, offload_args


def row(name: str, ours: float, others: float | None) -> None:
    beside = "" if others is None else f"{others:.3f} ms | {ours / others:.3f}"
    print(f"| {name} | {ours:.3f} ms | {beside} |", flush=True)


def resident(name: str, x: Any, device: Device, cupy: Any, rounds: int) -> None:
    """Print the time of transforms of an array that is on the device."""
    with offload_args(In(x), device=device) as (dx,):
        ours = median(lambda: fft.fft(dx), device.synchronize, rounds)
    others = None
    if cupy:
        there = cupy.asarray(x)
        others = median(lambda: cupy.fft.fft(there), cupy.cuda.Device().synchronize, rounds)
    row(name, ours, others)


def convolution(device: Device, cupy: Any, rounds: int) -> None:
    """Print the time of a convolution of two pictures, and the largest difference from NumPy's."""
    random = np.random.default_rng(1)
    shape = (4096, 4096)
    picture, weights = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    result = np.empty_like(picture)
    multiply = kernels.elementwise("a = a * b", a=InOut[np.complex64], b=In[np.complex64])

    def ours() -> None:
        with offload_args(In(picture), In(weights), Out(result), device=device) as (dp, dw, dr):
            a, b = fft.rfft2(dp), fft.rfft2(dw)
            offload(multiply, a, b)
            dr.copy_from(fft.irfft2(a, shape))

    def others() -> Any:
        a, b = (cupy.fft.rfft2(cupy.asarray(array)) for array in (picture, weights))
        return cupy.asnumpy(cupy.fft.irfft2(a * b, shape))

    taken = median(ours, device.synchronize, rounds)
    other = median(others, cupy.cuda.Device().synchronize, rounds) if cupy else None
    row("convolution of 4096 x 4096, from and to NumPy", taken, other)
    expected = np.fft.irfft2(np.fft.rfft2(picture) * np.fft.rfft2(weights), shape)
    difference = np.abs(result - expected).max() / np.abs(expected).max()
    print(f"largest difference from NumPy: {difference:.1e} of the largest element")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    device = Device(options.device or Device.default().name)
    cupy = cupy_for(device)
    random = np.random.default_rng(0)
    x = (random.standard_normal(1 << 24) + 1j * random.standard_normal(1 << 24)).astype(np.complex64)
    print(f"{device}: offload_args, CuPy, their ratio")
    resident("2^24 complex64, on the device", x, device, cupy, options.rounds)
    ours = median(lambda: fft.fft(x, device=device), device.synchronize, options.rounds // 2)
    others = None
    if cupy:
        wait = cupy.cuda.Device().synchronize
        others = median(lambda: cupy.asnumpy(cupy.fft.fft(cupy.asarray(x))), wait, options.rounds // 2)
    row("2^24 complex64, from and to NumPy", ours, others)
    resident("1,000 x 1,024 complex64, on the device", x[: 1000 * 1024].reshape(1000, 1024), device, cupy, 50)
    convolution(device, cupy, options.rounds // 2)


if __name__ == "__main__":
    main()
