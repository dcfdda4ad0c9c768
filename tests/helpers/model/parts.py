"""Parts of base arrays: their elements, their layout, and where they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.model.outcomes import Unspecified


@dataclass(frozen=True)
class Lines:
    """`count` runs of `width` elements, `pitch` apart: an array that a device holds in the layout of the host."""

    width: int
    pitch: int
    count: int


@dataclass(frozen=True, eq=False)
class Part:
    """Some elements of a base array, in the shape of a view of it."""

    base: str
    index: NDArray[np.intp]
    elements: int
    low: int  # the first element
    high: int  # the element after the last one
    lines: Lines | None  # None if the part is irregular
    packed: bool  # whether it is packed when it is lent alone
    dtype: str = "float64"
    read_only: bool = False  # whether the program can't write it, even while nothing is lent

    def meets(self, other: Part) -> bool:
        """Return whether the hulls of both parts overlap."""
        return self.base == other.base and self.low < other.high and other.low < self.high


@cache
def whole(
    base: str,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
    dtype: str = "float64",
    read_only: bool = False,
) -> Part:
    """Return the part that is a whole base array."""
    return _part(base, np.arange(np.prod(shape)).reshape(shape, order=order), dtype, read_only)


@cache
def number(base: str, dtype: str) -> Part:
    """Return the part for a graph's number of this name, which has one element."""
    return _part(base, np.zeros((), np.intp), dtype, False)


@cache
def view(part: Part, key: str) -> Part:
    """Return a view of a part, from a text such as "[1:, ::2].T"; the same text gives the same object.

    Raises Unspecified if it has no elements, or is not a view.
    """
    if not key:
        return part
    try:
        return _part(part.base, eval(f"index{key}", {"index": part.index}), part.dtype, part.read_only)
    except IndexError:
        raise Unspecified from None


@cache
def triangle(square: Part, uplo: str) -> Part:
    """Return one triangle of a square matrix, as a vector: "U" or "L". Its lines are the lines of the matrix."""
    rows, columns = np.indices(square.index.shape)
    part = _new_part(
        square.base, square.index[rows <= columns if uplo == "U" else rows >= columns], square.dtype, False
    )
    return replace(part, lines=square.lines, packed=square.packed, read_only=square.read_only)


_parts: dict[tuple[object, ...], Part] = {}  # so that equal views are one Part


def _part(base: str, index: NDArray[np.intp], dtype: str, read_only: bool) -> Part:
    if not index.size:
        raise Unspecified
    key = base, index.shape, index.tobytes() if index.size < 100 else (index.flat[0], index.strides)
    if key not in _parts:
        _parts[key] = _new_part(base, index, dtype, read_only)
    return _parts[key]


def _new_part(base: str, index: NDArray[np.intp], dtype: str, read_only: bool) -> Part:
    low, high = int(index.min()), int(index.max()) + 1
    bits = np.zeros(high, bool)
    bits[index] = True
    elements = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
    steps = [int(index.take(1, axis).flat[0] - index.flat[0]) if n > 1 else 1 for axis, n in enumerate(index.shape)]
    lines = _lines(index.shape, steps)
    named = lines is not None and (lines.count == 1 or (index.ndim > 1 and 1 in steps))
    return Part(base, index, elements, low, high, lines, not named or min(steps, default=1) < 0, dtype, read_only)


def _lines(shape: Sequence[int], steps: Sequence[int]) -> Lines | None:
    width, pitch, count = 1, 1, 1
    for step, extent in sorted((abs(step), extent) for step, extent in zip(steps, shape, strict=True) if extent > 1):
        if count == 1 and step == width:
            width *= extent
        elif count == 1:
            pitch, count = step, extent
        elif step == pitch * count:
            count *= extent
        else:
            return None
    return Lines(width, pitch, count)


def overlap(part: Part, other: Part) -> bool:
    """Return whether two parts share an element.

    Raises Unspecified for interleaved parts of different pitch, which the core may treat as overlapping.
    """
    if not part.meets(other):
        return False
    if part.elements & other.elements:
        return True
    if part.lines is None or other.lines is None:
        raise Unspecified
    if part.lines.count > 1 and other.lines.count > 1 and part.lines.pitch != other.lines.pitch:
        raise Unspecified
    return False


def contains(outer: Part, inner: Part) -> bool:
    return outer.base == inner.base and not inner.elements & ~outer.elements
