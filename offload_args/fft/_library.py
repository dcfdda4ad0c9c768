"""Transforms on the CPU."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
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

__all__ = ["FROM_REAL", "TO_REAL", "Transforms", "Work", "is_contiguous", "new", "scale_of"]

#: Results have half of the last axis, which determines the other.
FROM_REAL: Final = ("ihfft", "ihfft2", "ihfftn", "rfft", "rfft2", "rfftn")
#: These functions read only the first half of the last axis.
TO_REAL: Final = ("hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
_OPPOSITE: Final = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@dataclass(frozen=True, slots=True)
class Work:
    """A transform on the CPU, which a graph keeps, and calls at each replay."""

    transforms: Transforms
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lengths: tuple[int, ...]
    axes: tuple[int, ...]
    norm: str
    result_dtype: np.dtype[Any]

    def __call__(self, elements: bytes) -> NDArray[Any]:
        """Return the transform of elements in C order."""
        values = np.frombuffer(elements, self.dtype).reshape(self.shape)
        return self.transforms.compute(self.name, values, self.lengths, self.axes, self.norm, self.result_dtype)


class Transforms(Adapter):
    """Transforms on the CPU by scipy.fft, or by numpy.fft if SciPy is not installed.

    SciPy keeps a plan for each shape.
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
        if y.size == 0:
            return
        source = x
        if not is_contiguous(x):
            source = new(x, x._shape, x.dtype)
            source.copy_from(x)
        work = Work(self, name, x._shape, x.dtype, tuple(lengths), tuple(axes), norm, y.dtype)
        _core.compute(f"fft.{name}", work, source, y)

    def compute(
        self,
        name: str,
        values: NDArray[Any],
        lengths: Sequence[int],
        axes: Sequence[int],
        norm: str,
        dtype: np.dtype[Any],
    ) -> NDArray[Any]:
        """Return the transform of an array, in C order."""
        function = getattr(self._library, name, None)
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
        return np.asarray(result, dtype, order="C")  # NumPy 1 only computes in double precision

    def again(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> Callable[[DevicePtr], DevicePtr] | None:
        """Return a function that repeats this transform faster for another x of the same layout; None if there is
        no such function."""
        return None


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
