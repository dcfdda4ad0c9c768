"""The choice of the library that computes transforms on a device."""

from __future__ import annotations

from .._adapters import adapter_of
from ..devices import by_number
from ..errors import LibraryError
from ._library import Transforms

__all__ = ["transforms_of"]


def transforms_of(function: str, device: int) -> Transforms:
    """Return the transforms of the device with this number; raise LibraryError if it has none."""
    library = adapter_of(function, (Transforms,), device)
    if library is None:
        from ._vendors import CuFFT, HipFFT

        library = adapter_of(function, (CuFFT, HipFFT), device)
    if library is None:
        raise LibraryError(
            f"{function}: {by_number(device)} has no transforms in offload_args; open the region on the host, or pass "
            f"the array with device='host'"
        )
    return library
