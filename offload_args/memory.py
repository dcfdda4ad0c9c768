"""Pinned host memory; a device can copy directly from it and to it."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _core
from ._signatures import telling
from .devices import Device, as_device, check_shape, default_number
from .display import shown
from .dtypes import as_dtype
from .errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["empty"]


@telling
def empty(
    shape: int | Sequence[int],
    dtype: DTypeLike = np.float64,
    *,
    order: Literal["C", "F"] = "C",
    device: Device | str | None = None,
) -> NDArray[Any]:
    """Make an uninitialised NumPy array in pinned memory; copies to and from the device run at full speed.

    shape, dtype, order: as numpy.empty takes them, except dtypes of Python objects. device: the device of the copies;
    None is the default device. For the host and sim, the memory is not pinned. Pinned memory is slow to allocate, and
    other programs can't use it, so allocate an array once and use it again. OFFLOAD_ARGS_PINNED_LIMIT limits the amount
    of pinned memory. A pinned array is always sent, also if it is resident, because Linux does not report writes to it.

    Raises DeviceMemoryError if the memory runs out, ArgumentError for a shape or dtype that no such array can have, and
    the errors of numpy.dtype.

        x = empty((1000, 3), np.float32)
        x[:] = 1
        with offload_args(x) as (dx,):
            blas.scal(2.0, dx.reshape(-1))
        print(x[0])  # [2. 2. 2.]

    See also: Scratch, Device.keep; docs/guide/memory.md.
    """
    extents: tuple[int, ...]
    try:
        extents = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        try:
            extents = tuple(map(operator.index, shape))  # type: ignore[arg-type]
        except TypeError:
            raise ArgumentError(f"empty: shape needs whole numbers, got {shown(shape)}") from None
    kind = as_dtype("empty", dtype, shape)
    if kind.hasobject:
        raise ArgumentError(f"empty: dtype needs elements that a device can hold, and not Python objects, got {kind}")
    check_shape("empty", extents, kind)
    if order not in ("C", "F"):
        raise ArgumentError(f'empty: order needs "C" or "F", got {shown(order)}')
    nbytes = kind.itemsize * math.prod(extents)
    if nbytes == 0:
        return np.empty(extents, kind, order)
    memory = _core.pinned(default_number() if device is None else as_device(device).number, nbytes)
    return np.frombuffer(memory, kind).reshape(extents, order=order)
