"""The dtype of an array in a recording, and the places of its elements in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DTYPE_NAMES, dtype_of
from ..errors import ArgumentError

__all__ = ["dtype_named", "flat", "span", "zeros_of_layout"]


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype with this name in a recording."""
    dtype = dtype_of(DTYPE_NAMES.index(name)) if name in DTYPE_NAMES else np.dtype(name)
    if dtype.hasobject:  # otherwise, bytes of an untrusted file would be used as addresses
        raise ArgumentError(f"the recording has elements of {dtype}, which devices can't hold")
    return dtype


def span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the offsets of an array's lowest byte and of its highest byte plus one, from its first element."""
    if 0 in shape:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


def zeros_of_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array of zeros. If it has elements, it has these strides."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    low, high = span(shape, strides, dtype.itemsize)
    array: NDArray[Any] = np.ndarray(shape, dtype, np.zeros(high - low, np.uint8), -low, strides)
    return array


def flat(values: Any) -> Iterator[Any]:
    """Yield the values of nested lists and tuples."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield value
