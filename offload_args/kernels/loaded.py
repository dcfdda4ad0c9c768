"""A module on the devices that have loaded it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from .. import _core
from ..devices import Device, by_number
from ..errors import WrongDeviceError
from .binary import Image
from .compilers import VENDORS, compiled, processor_of

__all__ = ["Loaded", "Source"]


class Loaded:
    """The handles of a module, one for each device on which one of its kernels was launched."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}

    def image_for(self, device: Device) -> Image:
        """Return the bytes that a device loads. Raises WrongDeviceError if there are none for it."""
        if self.suits(device):
            return self.image
        raise WrongDeviceError(
            f"{self.image.name}: the arrays are on {device}, and a {self.image.format} module runs on "
            f"{self.image.backend} devices; lend them there, or load a module for {device}"
        )

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
                image = self.image_for(by_number(number))
                handle = self._handles[number] = _core.module_load(number, image.name, image.data)
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


class Source(Loaded):
    """A module as source, which is compiled for each kind of device on which it is used."""

    def __init__(self, name: str, source: str, options: Sequence[str], device: Device) -> None:
        self._name, self._source, self._options = name, source, tuple(options)
        self._images: dict[str, Image] = {}  # by processor
        super().__init__(self.image_for(device))

    def suits(self, device: Device) -> bool:
        return device._info.backend in VENDORS or bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)

    def default_device(self) -> Device:
        return Device.default()

    def image_for(self, device: Device) -> Image:
        if not self.suits(device):
            raise WrongDeviceError(
                f"{self._name}: Kernel.compile has no compiler for {device}; compile it elsewhere, and use Module.load"
            )
        kind = processor_of(device)
        image = self._images.get(kind)
        if image is None:
            image = self._images[kind] = compiled(self._name, self._source, self._options, device)
        return image
