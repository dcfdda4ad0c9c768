"""The functions of fft, which take SciPy's arguments, and the shapes of their results."""

from __future__ import annotations

import math
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core
from .._names import rename
from .._operands import need_option, need_whole
from .._signatures import telling
from ..devices import as_device, by_number, default_number
from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError, DTypeError, OffloadError
from ..linalg._call import Call, Operand, Result, Spec
from ..pointers import DevicePtr
from ._choice import transforms_of
from ._library import FROM_REAL, TO_REAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..devices import Device

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

# The names that x has in errors of the calls that read it.
_OF_X: Final = re.compile(r"^(DevicePtr\.to_host: pointer|DevicePtr\.copy_from: source|\w+\.exec_\w+: idata)")

_NORMS: Final = ("backward", "ortho", "forward")

# Functions that repeat earlier transforms. A key consists of all values on which a transform depends.
_again: Final[dict[Any, Callable[[DevicePtr], DevicePtr]]] = {}
_MOST_AGAIN: Final = 64


@telling
def fft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the discrete Fourier transform along one axis, as scipy.fft.fft does.

    x: an array of any dimensions, real or complex.
    n: the length along the axis, to which x is cut or filled with zeros; None: x's length.
    axis: the axis to transform.
    norm: "backward", or None: the inverse is divided by the number of elements. "forward": the transform is divided by
    it. "ortho": both are divided by the square root of this number.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: the device that transforms an array; None: the default device. A pointer is transformed on its device.

        print(abs(fft.fft(np.array([1.0, 2.0, 3.0, 4.0]))).round(3))  # [10.     2.828  2.     2.828]

    Raises ArgumentError, a ValueError, for an axis that x lacks, or a length below 1. Source: scipy.fft.fft.

    See also: fft.ifft, fft.rfft, fft.fftn; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("fft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def ifft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of fft along one axis, as scipy.fft.ifft does.

    x: an array of any dimensions, real or complex.
    n: the length along the axis, to which x is cut or filled with zeros; None: x's length.
    axis: the axis to transform.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ifft(np.array([10, -2 + 2j, -2, -2 - 2j])).real.round(6))  # [1. 2. 3. 4.]

    Raises as fft does. Source: scipy.fft.ifft.

    See also: fft.fft, fft.irfft, fft.ifftn; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("ifft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def rfft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the first half of the transform of real numbers along one axis, as scipy.fft.rfft does.

    x: a real array of any dimensions.
    n: the length along the axis, as for fft. The result has n // 2 + 1 elements; the others are conjugates.
    axis: the axis to transform.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(abs(fft.rfft(np.array([1.0, 2.0, 3.0, 4.0]))).round(3))  # [10.     2.828  2.   ]

    Raises DTypeError, a TypeError, for complex numbers, otherwise as fft does. Source: scipy.fft.rfft.

    See also: fft.irfft, fft.rfftn, fft.fft; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("rfft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def irfft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of rfft along one axis, as scipy.fft.irfft does.

    x: an array of any dimensions, of which the first n // 2 + 1 elements along the axis are read.
    n: the length of the result along the axis; None: 2 (m - 1) for m elements, which is even.
    axis: the axis to transform.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.irfft(np.array([10, -2 + 2j, -2])).round(6))  # [1. 2. 3. 4.]

    Raises as fft does. Source: scipy.fft.irfft.

    See also: fft.rfft, fft.irfftn, fft.hfft; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("irfft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def hfft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the real transform of half of a Hermitian signal along one axis, as scipy.fft.hfft does.

    x: an array of any dimensions, of which the first n // 2 + 1 elements along the axis are read.
    n: the length of the result along the axis, as for irfft.
    axis: the axis to transform.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.hfft(np.array([1.0, 2.0, 4.0])).round(6))  # [ 9. -3.  1. -3.]

    Raises as fft does. Source: scipy.fft.hfft.

    See also: fft.ihfft, fft.irfft, fft.fft; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("hfft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def ihfft(
    x: Operand,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of hfft along one axis, as scipy.fft.ihfft does: the conjugates of rfft.

    x: a real array of any dimensions.
    n: the length along the axis, as for fft. The result has n // 2 + 1 elements along it.
    axis: the axis to transform.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ihfft(np.array([9.0, -3.0, 1.0, -3.0])).real.round(6))  # [1. 2. 4.]

    Raises DTypeError, a TypeError, for complex numbers, otherwise as fft does. Source: scipy.fft.ihfft.

    See also: fft.hfft, fft.rfft; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("ihfft", x, None if n is None else (n,), (axis,), norm, workers, device)


@telling
def fft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the discrete Fourier transform along two axes, as scipy.fft.fft2 does.

    x: an array of any dimensions, real or complex.
    s: the lengths along the axes, -1 for x's length; x is cut, or filled with zeros. None: x's lengths.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.fft2(np.array([[1.0, 2.0], [3.0, 5.0]])).real.round(6).tolist())  # [[11.0, -3.0], [-5.0, 1.0]]

    Raises as fftn does. Source: scipy.fft.fft2.

    See also: fft.ifft2, fft.fftn; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("fft2", x, s, axes, norm, workers, device)


@telling
def ifft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of fft2 along two axes, as scipy.fft.ifft2 does.

    x: an array of any dimensions, real or complex.
    s: the lengths along the axes, -1 for x's length; x is cut, or filled with zeros. None: x's lengths.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ifft2(np.array([[11.0, -3.0], [-5.0, 1.0]])).real.round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as fftn does. Source: scipy.fft.ifft2.

    See also: fft.fft2, fft.ifftn; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("ifft2", x, s, axes, norm, workers, device)


@telling
def rfft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the transform of real numbers along two axes, as scipy.fft.rfft2 does.

    x: a real array of any dimensions.
    s: the lengths along the axes, as for fft2. The result has s[-1] // 2 + 1 elements along the last one.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.rfft2(np.array([[1.0, 2.0], [3.0, 5.0]])).real.round(6).tolist())  # [[11.0, -3.0], [-5.0, 1.0]]

    Raises as rfftn does. Source: scipy.fft.rfft2.

    See also: fft.irfft2, fft.rfftn; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("rfft2", x, s, axes, norm, workers, device)


@telling
def irfft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of rfft2 along two axes, as scipy.fft.irfft2 does.

    x: an array of any dimensions, of which the first s[-1] // 2 + 1 elements along the last axis are read.
    s: the lengths of the result along the axes, as for irfftn.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.irfft2(np.array([[11.0, -3.0], [-5.0, 1.0]])).round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as irfftn does. Source: scipy.fft.irfft2.

    See also: fft.rfft2, fft.irfftn; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("irfft2", x, s, axes, norm, workers, device)


@telling
def hfft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the real transform of half of a Hermitian signal along two axes, as scipy.fft.hfft2 does.

    x: an array of any dimensions, of which the first s[-1] // 2 + 1 elements along the last axis are read.
    s: the lengths of the result along the axes, as for irfftn.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.hfft2(np.array([[11.0, -3.0], [-5.0, 1.0]]) / 4).round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as hfftn does. Source: scipy.fft.hfft2.

    See also: fft.ihfft2, fft.hfftn; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("hfft2", x, s, axes, norm, workers, device)


@telling
def ihfft2(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of hfft2 along two axes, as scipy.fft.ihfft2 does.

    x: a real array of any dimensions.
    s: the lengths along the axes, as for fftn. The result has s[-1] // 2 + 1 elements along the last one.
    axes: the axes to transform; None: as for fftn.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ihfft2(np.array([[1.0, 2.0], [3.0, 5.0]])).real.round(6).tolist())  # [[2.75, -0.75], [-1.25, 0.25]]

    Raises as ihfftn does. Source: scipy.fft.ihfft2.

    See also: fft.hfft2, fft.ihfftn; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("ihfft2", x, s, axes, norm, workers, device)


@telling
def fftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the discrete Fourier transform along several axes, as scipy.fft.fftn does.

    x: an array of any dimensions, real or complex.
    s: the lengths along the axes, -1 for x's length; x is cut, or filled with zeros. None: x's lengths.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.fftn(np.ones((2, 2, 2))).real.round(6).sum())  # 8.0

    Raises ArgumentError, a ValueError, for axes that x lacks or that repeat, or a length below 1. Source:
    scipy.fft.fftn.

    See also: fft.ifftn, fft.rfftn, fft.fft2; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("fftn", x, s, axes, norm, workers, device)


@telling
def ifftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of fftn along several axes, as scipy.fft.ifftn does.

    x: an array of any dimensions, real or complex.
    s: the lengths along the axes, -1 for x's length; x is cut, or filled with zeros. None: x's lengths.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ifftn(np.array([[11.0, -3.0], [-5.0, 1.0]])).real.round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as fftn does. Source: scipy.fft.ifftn.

    See also: fft.fftn, fft.irfftn; cufft.exec_c2c, hipfft.exec_c2c; docs/guide/fft.md.
    """
    return _transform("ifftn", x, s, axes, norm, workers, device)


@telling
def rfftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the transform of real numbers along several axes, as scipy.fft.rfftn does.

    x: a real array of any dimensions.
    s: the lengths along the axes, as for fftn. The result has s[-1] // 2 + 1 elements along the last one.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.rfftn(np.array([[1.0, 2.0], [3.0, 5.0]])).real.round(6).tolist())  # [[11.0, -3.0], [-5.0, 1.0]]

    Raises DTypeError, a TypeError, for complex numbers, otherwise as fftn does. Source: scipy.fft.rfftn.

    See also: fft.irfftn, fft.rfft; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("rfftn", x, s, axes, norm, workers, device)


@telling
def irfftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of rfftn along several axes, as scipy.fft.irfftn does.

    x: an array of any dimensions, of which the first s[-1] // 2 + 1 elements along the last axis are read.
    s: the lengths of the result along the axes, -1 for x's length; None: x's lengths, and 2 (m - 1) for m elements of
    the last axis.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.irfftn(np.array([[11.0, -3.0], [-5.0, 1.0]])).round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as fftn does. Source: scipy.fft.irfftn.

    See also: fft.rfftn, fft.irfft; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("irfftn", x, s, axes, norm, workers, device)


@telling
def hfftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the real transform of half of a Hermitian signal along several axes, as scipy.fft.hfftn does.

    x: an array of any dimensions, of which the first s[-1] // 2 + 1 elements along the last axis are read.
    s: the lengths of the result along the axes, as for irfftn.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.hfftn(np.array([[11.0, -3.0], [-5.0, 1.0]]) / 4).round(6).tolist())  # [[1.0, 2.0], [3.0, 5.0]]

    Raises as fftn does. Source: scipy.fft.hfftn.

    See also: fft.ihfftn, fft.hfft, fft.irfftn; cufft.exec_c2r, hipfft.exec_c2r; docs/guide/fft.md.
    """
    return _transform("hfftn", x, s, axes, norm, workers, device)


@telling
def ihfftn(
    x: Operand,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    device: Device | str | None = None,
) -> Result:
    """Return the inverse of hfftn along several axes, as scipy.fft.ihfftn does: the conjugates of rfftn.

    x: a real array of any dimensions.
    s: the lengths along the axes, as for fftn. The result has s[-1] // 2 + 1 elements along the last one.
    axes: the axes to transform; None: the last len(s) axes, or all axes without s.
    norm: as for fft.
    overwrite_x, workers: for programs of SciPy; no effect.
    device: as for fft.

        print(fft.ihfftn(np.array([[1.0, 2.0], [3.0, 5.0]])).real.round(6).tolist())  # [[2.75, -0.75], [-1.25, 0.25]]

    Raises DTypeError, a TypeError, for complex numbers, otherwise as fftn does. Source: scipy.fft.ihfftn.

    See also: fft.hfftn, fft.ihfft, fft.rfftn; cufft.exec_r2c, hipfft.exec_r2c; docs/guide/fft.md.
    """
    return _transform("ihfftn", x, s, axes, norm, workers, device)


class _Call(Call):
    """One call of a transform."""

    takes_float16 = True


def _transform(
    name: str,
    x: Operand,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    workers: int | None,
    device: Device | str | None,
) -> Result:
    """Return the transform of the function `name`. For a function of one axis, s and axes have one element."""
    function = f"fft.{name}"
    if workers is not None:
        _need_workers(function, workers)
    kind: Any = None
    if isinstance(x, DevicePtr) and device is None and x.live and _are_plain(s) and _are_plain(axes):
        address = _core.origin(x)[1] % 16  # cuFFT takes real numbers only at some addresses
        kind = (name, x._device, x._dtype_code, address, x._shape, x._strides, s, axes, norm)
        if again := _again.get(kind) if norm is None or type(norm) is str else None:
            try:
                return again(x)
            except OffloadError as error:
                _name(function, error)
                with Call(function, None, x=x).named():
                    raise
    if isinstance(x, DevicePtr):
        call = _Call(function, device, None, x=x)
        library = transforms_of(function, x._device)
    else:
        number = default_number() if device is None else as_device(device).number
        call = _Call(function, by_number(number), x=x)
        library = transforms_of(function, number)
    if norm is not None:
        need_option(function, "norm", norm, _NORMS)
    dtype = call.dtype
    if name in FROM_REAL and dtype.kind == "c":
        other = name.replace("ih", "i").removeprefix("r")
        raise DTypeError(f"{function}: x needs real numbers, got {dtype}; call fft.{other}")
    lengths, axes = _lengths(function, call.shapes["x"], s, axes, name in TO_REAL)
    shape = list(call.shapes["x"])
    for axis, length in zip(axes, lengths, strict=True):
        shape[axis] = length
    if name in FROM_REAL:
        shape[axes[-1]] = lengths[-1] // 2 + 1
    dtype = call.real if name in TO_REAL else np.result_type(dtype, np.complex64)
    if math.prod(max(length, 1) for length in shape) > sys.maxsize // dtype.itemsize:
        argument = "n" if not name.endswith(("n", "2")) else "s"
        raise ArgumentError(
            f"{function}: {argument} needs a result of {sys.maxsize} bytes at most, got {shown(tuple(lengths))} for x "
            f"of shape {call.shapes['x']}; pass smaller lengths"
        )

    def work(dx: DevicePtr, dy: DevicePtr) -> None:
        try:
            library.run(name, dx, dy, lengths, axes, norm or "backward")
        except OffloadError as error:
            _name(function, error)
            raise

    (y,), _ = call.run(work, Spec(tuple(shape), dtype), whole=True)
    if kind and (again := library.again(name, x, y, lengths, axes, norm or "backward")):
        if len(_again) >= _MOST_AGAIN:
            _again.clear()
        _again[kind] = again
    return y


def _need_workers(function: str, workers: Any) -> None:
    """Raise an error for a number of workers that SciPy refuses."""
    (number,) = _whole(function, "workers", (workers,))
    lowest = -(os.cpu_count() or 1)
    if number == 0 or number < lowest:
        raise ArgumentError(
            f"{function}: workers needs 1 at least, or {lowest} to -1, got {shown(number)}; leave it out, as it has "
            f"no effect"
        )


def _are_plain(values: Any) -> bool:
    """Return whether lengths or axes can be part of a key.

    Only plain integers are allowed in a key, because 1.0 and True equal 1.
    """
    return values is None or (type(values) is tuple and all(type(value) is int or value is None for value in values))


def _name(function: str, error: OffloadError) -> None:
    """Add the name x to the error of a call that reads x."""
    rename(error, _OF_X, f"{function}: x")


def _lengths(
    function: str, shape: tuple[int, ...], s: Sequence[int] | None, axes: Sequence[int] | None, halved: bool
) -> tuple[list[int], list[int]]:
    """Return the lengths and the axes of a transform. With `halved`, x has only one half of the last axis."""
    in_one = not function.endswith(("n", "2"))
    if in_one and axes is not None and isinstance(axes[0], (tuple, list)):
        raise ArgumentTypeError(
            f"{function}: axis needs a whole number, got {shown(axes[0])}; {function}n transforms several axes: write "
            f"{function}n(x, axes={shown(axes[0])})"
        )
    of_axes, of_lengths = ("axis", "n") if in_one else ("axes", "s")
    ndim = len(shape)
    wanted = None if s is None else _whole(function, of_lengths, s)
    if axes is None:
        count = ndim if wanted is None else len(wanted)
        if count > ndim:
            raise ArgumentError(f"{function}: s has {count} lengths, and x of shape {shape} has {ndim} axes")
        places = list(range(ndim - count, ndim))
    else:
        places = _whole(function, of_axes, axes)
        for place in places:
            if not -ndim <= place < ndim:
                remedy = f"; {function[:-1]} transforms one axis" if ndim == 1 and not in_one else ""
                raise ArgumentError(
                    f"{function}: {of_axes} needs axes of x, which has shape {shape}, got {place}{remedy}"
                )
        places = [place % ndim for place in places]
        if len(set(places)) < len(places):
            raise ArgumentError(f"{function}: axes needs each axis once, got {shown(axes)}")
        if wanted is not None and len(wanted) != len(places):
            raise ArgumentError(f"{function}: s needs a length for each of {len(places)} axes, got {len(wanted)}")
    if not places and function.removeprefix("fft.") in FROM_REAL + TO_REAL:
        raise ArgumentError(f"{function}: axes needs one axis at least, got none")
    lengths = [shape[place] for place in places]
    if halved:
        lengths[-1] = 2 * (lengths[-1] - 1)
    for i, length in enumerate(wanted or ()):
        lengths[i] = length if in_one or length != -1 else shape[places[i]]
    for place, length in zip(places, lengths, strict=True):
        if length < 1:
            reason = f"; pass {of_lengths} for x of shape {shape}" if wanted is None else ""
            raise ArgumentError(f"{function}: {of_lengths} needs 1 at least along axis {place}, got {length}{reason}")
    return lengths, places


def _whole(function: str, argument: str, values: Any) -> list[int]:
    """Return whole numbers; raise ArgumentTypeError for other values. A single number becomes a list, as in SciPy."""
    if not np.iterable(values):
        return [need_whole(function, argument, values)]
    is_single = argument in ("n", "axis", "workers")
    return [
        need_whole(function, argument if is_single else f"{argument}[{i}]", value) for i, value in enumerate(values)
    ]
