"""A module on the devices that have loaded it."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _core
from ..arguments import DeviceMemory, InOut
from ..devices import Device, by_number
from ..display import with_article
from ..errors import SignatureError, WrongDeviceError
from ..pointers import DevicePtr
from ..regions import offload_args
from .binary import Image
from .compilers import VENDORS, Program, Target, compiled, target_of

__all__ = ["Loaded", "Source"]


class Loaded:
    """The handles of a module, one for each device that launched one of its kernels."""

    def __init__(self, image: Image | None) -> None:
        self._image = image
        self._lock = threading.Lock()
        self._handles: dict[int, object] = {}
        self.variables: dict[str, DevicePtr[Any]] = {}  #: {name of a variable: its pointer by the last declaration}

    @property
    def image(self) -> Image:
        """The bytes of the module."""
        assert self._image is not None
        return self._image

    @property
    def name(self) -> str:
        """The module's name, for messages."""
        return self.image.name

    def image_for(self, device: Device) -> Image:
        """Return the bytes that a device loads. Raises WrongDeviceError if the module has no bytes for the device."""
        if self.suits(device):
            return self.image
        raise WrongDeviceError(
            f"{self.image.name}: the arrays are on {device}, and {with_article(self.image.format)} module runs on "
            f"{self.image.backend} devices; lend them there, or load a module for {device}"
        )

    def suits(self, device: Device) -> bool:
        """Return whether a device can load the module."""
        if self.image.backend == "host":
            return bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)
        return device._info.backend == self.image.backend

    def default_device(self) -> Device:
        """Return the default device if it can load the module, else the first device that can load it."""
        default = Device.default()
        if self.suits(default):
            return default
        return Device.host() if self.image.backend == "host" else Device(f"{self.image.backend}:0")

    def handle(self, number: int) -> object:
        """Return the module's handle on a device; load the module if needed. The handle's end unloads the module."""
        with self._lock:
            handle = self._handles.get(number)
            if handle is None:
                image = self.image_for(by_number(number))
                handle = self._handles[number] = _core.module_load(number, image.name, image.data)
        return handle

    def symbol(self, number: int, name: str) -> str:
        """Return the name that a kernel has in the module for a device."""
        return self.image_for(by_number(number)).symbols.get(name, name)

    def variable(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], device: Device) -> DevicePtr[Any]:
        """Return the pointer to a variable on a device.

        The pointer is live as long as the device has the module loaded.
        """
        handle = self.handle(device.number)
        address, nbytes = _core.module_variable(handle, self.symbol(device.number, name))
        declared = math.prod(shape) * dtype.itemsize
        if declared != nbytes:
            raise SignatureError(
                f"{name}: {dtype} of shape {shape} has {declared} bytes; the module's variable has {nbytes}"
            )
        region = offload_args(InOut(DeviceMemory(dtype, shape, address, device.number)), device=device)
        (pointer,) = region.open()
        _core.module_use(handle, _core.handle(pointer), region)
        self.variables[name] = pointer
        return pointer

    def unload(self) -> None:
        """Unload the module on every device, and wait for these devices."""
        with self._lock:
            while self._handles:
                _core.module_unload(self._handles.popitem()[1])


class Source(Loaded):
    """A module whose source is compiled for each kind of device that uses the module."""

    def __init__(self, program: Program, target: Target, *, for_gpus: str = "") -> None:
        """Take a program and its target. `for_gpus` is text that is added to the source for compilers of GPUs only."""
        self._program, self._target, self._for_gpus = program, target, for_gpus
        self._images: dict[Target, Image] = {}
        self.checked: Source | None = None  #: the same source with a check of each access; launches on the CPU use it
        self.always_checked = False  #: whether launches on GPUs use `checked`, too
        super().__init__(None)

    @property
    def image(self) -> Image:
        """The module for the requested target, which is compiled if needed."""
        return self._compiled(self._target)

    @property
    def name(self) -> str:
        return self._program.name

    @property
    def text(self) -> str:
        return self._program.source

    def suits(self, device: Device) -> bool:
        return device._info.backend in VENDORS or bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)

    def default_device(self) -> Device:
        return Device.default()

    def variable(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], device: Device) -> DevicePtr[Any]:
        if self.checked is None or (device.is_gpu and not self.always_checked):
            return super().variable(name, dtype, shape, device)
        self.variables[name] = pointer = self.checked.variable(name, dtype, shape, device)
        return pointer

    def unload(self) -> None:
        if self.checked is not None:
            self.checked.unload()
        super().unload()

    def image_for(self, device: Device) -> Image:
        if not self.suits(device):
            raise WrongDeviceError(
                f"{self._program.name}: Kernel.compile has no compiler for {device}; compile it elsewhere, and use "
                "Module.load"
            )
        return self._compiled(target_of(device))

    def _compiled(self, target: Target) -> Image:
        image = self._images.get(target)
        if image is None:
            text = self._program.source + (self._for_gpus if target.backend in VENDORS else "")
            image = self._images[target] = compiled(replace(self._program, source=text), target)
        return image
