"""Fourier transforms with SciPy's arguments, for arrays and for pointers, on any device.

    X = fft.rfft(signal)                                     # one call from and to NumPy

    with offload_args(signal) as (dx,):
        dX = fft.rfft(dx)                                    # a pointer to new memory of the region
        dy = fft.irfft(dX, n=dx.shape[-1])

The functions have the names, arguments and results of scipy.fft, to within rounding, and change none of their
arguments. Arrays may be of any class and layout that NumPy takes. For a DevicePtr of an open region, a function returns
a DevicePtr to new memory of this region, which is freed with the last pointer to it. A pointer may have any strides;
results are in C order.

Dtypes are float32, float64, complex64 and complex128, and a result has the precision of its operand. Arrays of float16
are converted to float32, and arrays of integers to float64, as in SciPy. `overwrite_x` and `workers` have no effect.

cuFFT computes on `cuda`, and hipFFT computes on `hip`; the package keeps a plan for each layout. On `host` and `sim`,
scipy.fft computes, or numpy.fft if SciPy is not installed. On these devices, each call copies its operand to a new
array, and its result to the device's memory. Arrays are transformed on the default device unless `device` names another
device.

A wrong argument raises an ArgumentError, which is a ValueError, or a DTypeError, which is a TypeError.

Source: scipy.fft, https://docs.scipy.org/doc/scipy/reference/fft.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import reused
from ..display import listing, missing
from .transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

__all__ = [
    "fft",
    "fft2",
    "fftn",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftn",
]

reused.update(dict.fromkeys(map(globals().__getitem__, __all__), -1))

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(
        __name__,
        __all__,
        {
            **{name: f"np.fft.{name}" for name in ("fftfreq", "fftshift", "ifftshift", "rfftfreq")},
            **{name: f"scipy.fft.{name}" for name in ("dct", "dst", "idct", "idst", "dctn", "next_fast_len")},
        },
    )
    __dir__ = listing(__all__)
