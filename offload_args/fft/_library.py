"""Transforms on the CPU."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .. import _core
from .._adapters import Adapter
from ..dtypes import c_strides
from ..linalg import _call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..pointers import DevicePtr

__all__ = ["FROM_REAL", "TO_REAL", "Transforms", "is_contiguous", "new", "scale_of"]

#: Results have half of the last axis, which determines the other.
FROM_REAL: Final = ("ihfft", "ihfft2", "ihfftn", "rfft", "rfft2", "rfftn")
#: These functions read only the first half of the last axis.
TO_REAL: Final = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
_OPPOSITE: Final = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


class Transforms(Adapter):
    """Transforms on the CPU by scipy.fft, or by numpy.fft if SciPy is not installed.

    SciPy keeps a plan for each shape.

    A graph can't call Python, so the package computes captured transforms itself.
    """

    backend: ClassVar[str | None] = None

    def __init__(self) -> None:
        try:
            self._library: Any = importlib.import_module("scipy.fft")
        except ImportError:
            self._library = importlib.import_module("numpy.fft")

    def run(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> None:
        """Write the transform of x to y. For a function of one axis, `lengths` and `axes` have one element."""
        if _core.query(x).captured:
            _capture(name, x, y, lengths, axes, norm)
            return
        function = getattr(self._library, name, None)
        values = x.to_host()
        result: NDArray[Any]
        if function is None:  # NumPy lacks hfftn and similar functions, which are conjugates of others
            if name in FROM_REAL:
                result = self._library.rfftn(values, lengths, axes, _OPPOSITE[norm]).conj()
            else:
                result = self._library.irfftn(values.conj(), lengths, axes, _OPPOSITE[norm])
        elif name.endswith(("n", "2")):
            result = function(values, lengths, axes, norm)
        else:
            result = function(values, lengths[0], axes[0], norm)
        y.assign(result.astype(y.dtype, copy=False))  # NumPy 1 only computes in double precision

    def again(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> Callable[[DevicePtr], DevicePtr] | None:
        """Return a function that repeats this transform faster for another x of the same layout; None if there is
        no such function."""
        return None


def _capture(name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str) -> None:
    """Have a graph of the CPU write the transform of x to y, one axis after the other."""
    if y.size == 0:
        return
    to_real = name in TO_REAL
    inverse = name.startswith("i")
    direction = 1 if name.startswith("ihfft") or (inverse and name not in FROM_REAL) else -1
    # The axis whose lines are halves comes first if the elements are real, and last if the results are real.
    steps = list(zip(axes, lengths, strict=True))[:: 1 if to_real else -1]
    source = x
    if not is_contiguous(x):
        source = new(x, x._shape, x.dtype)
        source.copy_from(x)
    if not steps:  # each element is a line of length one
        _core.transform(f"fft.{name}", source, y, (x.size, 1, 1, 1), 1, direction, 1.0)
    for number, (axis, n) in enumerate(steps, 1):
        ends = number == len(steps)
        shape = list(source._shape)
        shape[axis] = n // 2 + 1 if name in FROM_REAL and number == 1 else n
        target = y if ends else new(y, tuple(shape), np.result_type(y.dtype, np.complex64))
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        factor = scale_of(inverse, math.prod(lengths), norm) if ends else 1.0
        sizes = (outer, source._shape[axis], shape[axis], inner)
        _core.transform(f"fft.{name}", source, target, sizes, n, direction, factor)
        source = target


def new(like: DevicePtr, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DevicePtr:
    """Take memory in the region of a pointer, or of the graph that captures the region's calls."""
    return _call.new(like, shape, dtype, of_graph=True)


def scale_of(inverse: bool, count: int, norm: str) -> float:
    """Return the factor of a result of `count` elements."""
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm == "backward") else 1.0


def is_contiguous(pointer: DevicePtr) -> bool:
    return pointer._strides == c_strides(pointer._shape, pointer.dtype.itemsize)
