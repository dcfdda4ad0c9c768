"""The vendors' LAPACKs: one adapter a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._adapters import adapter_of
from ..devices import by_number
from ..errors import LibraryError
from ._cusolver import CuSOLVER
from ._lapacke import LAPACKE
from ._rocsolver import RocSOLVER
from ._vendor import Vendor

if TYPE_CHECKING:
    from ..pointers import DevicePtr

__all__ = ["VENDORS", "Vendor", "vendor_of"]

VENDORS: Final[tuple[type[Vendor], ...]] = (CuSOLVER, RocSOLVER, LAPACKE)


def vendor_of(name: str, pointer: DevicePtr) -> Vendor:
    """Return the adapter of the library that runs on the pointer's device.

    Raises LibraryError if no adapter calls a library of the device.
    """
    adapter = adapter_of(name, VENDORS, pointer._device)
    if adapter is not None:
        return adapter
    info = by_number(pointer._device)._info
    raise LibraryError(
        f"{name}: there is no LAPACK on {info.name}: no library of this build has it; open the region with "
        'device="host"'
    )
