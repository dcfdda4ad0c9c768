"""A module on the devices that have loaded it."""

from __future__ import annotations

import contextlib
import threading

from .. import _core
from ..devices import Device, by_number
from ..errors import WrongDeviceError
from .binary import Image

__all__ = ["Loaded"]


class Loaded:
    """The handles of a module, one for each device on which one of its kernels was launched."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}

    def suits(self, device: Device) -> bool:
        """Tell whether a device can load the module."""
        if self.image.backend == "host":
            return bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)
        return device._info.backend == self.image.backend

    def default_device(self) -> Device:
        """Return the default device if it can load the module, else the first one that can."""
        default = Device.default()
        if self.suits(default):
            return default
        return Device.host() if self.image.backend == "host" else Device(f"{self.image.backend}:0")

    def handle(self, number: int) -> int:
        """Return the module's handle on a device; load it there if needed."""
        with self._lock:
            handle = self._handles.get(number)
            if handle is None:
                device = by_number(number)
                if not self.suits(device):
                    raise WrongDeviceError(
                        f"{self.image.name}: the arrays are on {device}, and a {self.image.format} module runs on "
                        f"{self.image.backend} devices; lend them there, or load a module for {device}"
                    )
                handle = self._handles[number] = _core.module_load(number, self.image.name, self.image.data)
        return handle

    def unload(self) -> None:
        """Unload the module everywhere; it waits for those devices."""
        with self._lock:
            while self._handles:
                _core.module_unload(self._handles.popitem()[1])

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            while self._handles:
                _core.module_unload(self._handles.popitem()[1])
