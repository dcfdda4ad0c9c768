"""Transforms on the CPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .._adapters import Adapter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ..pointers import DevicePtr

__all__ = ["FROM_REAL", "TO_REAL", "Transforms"]

FROM_REAL: Final = ("ihfft", "rfft", "rfft2", "rfftn")  # results have half of the last axis, which determines the other
TO_REAL: Final = ("hfft", "irfft", "irfft2", "irfftn")  # these functions read only the first half of the last axis


class Transforms(Adapter):
    """Transforms on the CPU by scipy.fft, or by numpy.fft if SciPy is not installed. SciPy keeps a plan for each
    shape."""

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
        function = getattr(self._library, name)
        values = x.to_host()
        result: NDArray[Any]
        if name.endswith(("n", "2")):
            result = function(values, lengths, axes, norm)
        else:
            result = function(values, lengths[0], axes[0], norm)
        result = result.astype(y.dtype, copy=False)  # NumPy 1 only computes in double precision
        y.assign(result.reshape(y.shape))  # a 0-D array was lent with one dimension

    def again(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> Callable[[DevicePtr], DevicePtr] | None:
        """Return a function that repeats this transform faster for another x of the same layout; None if there is
        no such function."""
        return None
