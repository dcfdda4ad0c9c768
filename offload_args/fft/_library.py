"""The library that transforms the elements of a device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from .._adapters import Adapter, adapter_of
from ..devices import by_number
from ..errors import LibraryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..pointers import DevicePtr

__all__ = ["Transforms", "transforms_of"]


class Transforms(Adapter):
    """Transforms on the CPU, by scipy.fft, or by numpy.fft without SciPy. SciPy keeps its plans by shape."""

    backend: ClassVar[str | None] = None

    def __init__(self) -> None:
        try:
            self._library: Any = importlib.import_module("scipy.fft")
        except ImportError:
            self._library = importlib.import_module("numpy.fft")

    def run(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> None:
        """Write the transform of x to y. Functions of one axis take its length and its number, others all of them."""
        function = getattr(self._library, name)
        values = x.to_host()
        result: NDArray[Any]
        if name.endswith(("n", "2")):
            result = function(values, lengths, axes, norm)
        else:
            result = function(values, lengths[0], axes[0], norm)
        y.assign(result.astype(y.dtype, copy=False))  # NumPy 1 computes in double precision only


def transforms_of(function: str, device: int) -> Transforms:
    """Return the transforms of a device, by its number; raise LibraryError if it has none."""
    library = adapter_of((Transforms,), device)
    if library is None:
        raise LibraryError(
            f"{function}: {by_number(device)} has no transforms in offload_args yet; open the region on the host, or "
            f"pass the array with device='host'"
        )
    return library
