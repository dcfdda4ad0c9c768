"""Where the elements of an array are in its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["flat", "span", "zeros_of_layout"]


def span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the offsets, from an array's first element, of its lowest byte and of the byte after its highest."""
    if 0 in shape:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


def zeros_of_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a new array of zeros with these strides, if it has elements."""
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
