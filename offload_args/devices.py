"""The devices to which arrays can be lent.

The device `host` always exists; an array that is lent to it is copied, as on other devices. `cuda:0` and `cuda:1` are
NVIDIA GPUs. `sim:0` to `sim:7` are simulated devices for strict tests.
"""

from __future__ import annotations

import math
import operator
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, final

import numpy as np

from . import _core
from ._signatures import telling
from .display import answering, html_table, plural, shown, size_text
from .errors import ArgumentError, ArgumentTypeError, OffloadError, SizeOverflowError, remedies

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Counters", "Device", "Memory", "Residency"]

_INSTEAD: Final = {
    **dict.fromkeys(("free_memory", "memory_free", "mem_info", "memory_info"), "memory, which has free and total"),
    **dict.fromkeys(("used_memory", "memory_used", "memory_allocated"), "counters.memory_used"),
    **dict.fromkeys(("sync", "wait"), "synchronize()"),
    **dict.fromkeys(("id", "ordinal", "device_id"), "index"),
    **dict.fromkeys(("type", "kind"), "backend"),
    **dict.fromkeys(("empty_cache", "free", "gc"), "trim()"),
    **dict.fromkeys(("use", "set", "activate", "make_context"), "offload_args(x, device=...), for one region"),
    **dict.fromkeys(("stream", "streams", "null_stream"), "region.stream, of a region on this device"),
    **dict.fromkeys(("total_memory", "mem_total", "memory_total", "mem_get_info"), "memory, which has free and total"),
    **dict.fromkeys(("memory_stats", "stats", "statistics"), "counters"),
    **dict.fromkeys(("device_kind", "product_name", "device_name"), "model"),
    **dict.fromkeys(("platform", "vendor"), "backend"),
    **dict.fromkeys(("attributes", "properties", "get_attribute"), "model, compute_capability and memory"),
    **dict.fromkeys(
        ("multiprocessor_count", "multi_processor_count", "max_threads_per_block", "warp_size"),
        "kernel.info(device), the limits of a kernel on the device",
    ),
    **dict.fromkeys(("reset", "close"), "trim(), which returns free memory to the driver"),
    **dict.fromkeys(("cuda", "is_cuda"), "is_gpu, or backend"),
}
_MAX_SIZE = 2**63 - 1
_MAX_DIMENSIONS = 64
_BACKENDS: Final = _core.backends()
_HOST: Final = next(
    backend.name for backend in _BACKENDS if not backend.flags & (_core.OA_DEVICE_GPU | _core.OA_DEVICE_SIMULATED)
)


@answering(
    {
        **dict.fromkeys(("used", "used_bytes", "allocated"), "total - free, or Device.counters.memory_used"),
        "available": "free",
        **dict.fromkeys(("capacity", "size", "limit"), "total"),
    }
)
class Memory(NamedTuple):
    """Give a device's memory in bytes, or zeros if the driver does not report it.

    HIP does not report it on some Linux kernels.

    """

    free: int  #: the bytes that can be allocated now, within OFFLOAD_ARGS_MEMORY_LIMIT
    total: int  #: the bytes of the whole device


Counters = _core.Counters


class Residency(_core.ResidencyFields):
    """Describe the resident memory of a device, with its savings and costs so far in this process."""

    __slots__ = ()

    @property
    def estimated_cost(self) -> float:
        """The seconds that writes to armed pages have cost the program, at 1.3 microseconds each."""
        return self.pages_written * 1.3e-6


@answering(_INSTEAD)
@telling
@final
class Device:
    """Name one device: "host", "cuda:0" or "sim:0".

    Two Devices with the same name are equal.

    Raises DeviceUnavailableError if this machine does not have the device, and ArgumentError for a name of another
    form, such as "sim:01".

        device, x = Device("host"), np.ones(1000)
        before = device.counters
        with offload_args(In(x), device=device) as (dx,):
            print(blas.asum(dx))  # 1000.0
        print(device.counters.bytes_up - before.bytes_up)  # 8000
        print(device.backend, device.index, device.is_gpu)  # host 0 False

    See also: offload_args, empty; docs/guide/devices.md.
    """

    __slots__ = ("_info", "name", "number")

    name: str  #: such as "cuda:0"
    number: int  #: the core's number for it; valid in this process
    _info: _core.DeviceInfo  # read when the device was opened; only the values of its memory change later

    _opened: ClassVar[dict[int, Device]] = {}

    def __new__(cls, name: str) -> Device:
        if not isinstance(name, str):
            raise ArgumentError(
                f'Device: name needs a string such as "cuda:0" or "host", got {shown(name)}{_instead(name)}'
            )
        number = _core.device_open(name)
        known = cls._opened.get(number)
        if known is not None:
            return known
        device = object.__new__(cls)
        info = _core.device_info(number)
        object.__setattr__(device, "name", info.name)
        object.__setattr__(device, "_info", info)
        object.__setattr__(device, "number", number)
        return cls._opened.setdefault(number, device)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Device: {name} can't be set")

    @classmethod
    def all(cls) -> tuple[Device, ...]:
        """List the devices of this machine, GPUs first, the host last. Simulated devices are left out.

            print(Device.all()[-1])  # host

        See also: Device.default, Device.from_index; docs/guide/devices.md.
        """
        gpus = [f"{backend}:{i}" for backend in _gpu_backends() for i in range(_core.device_count(backend))]
        return (*map(cls, gpus), cls(_HOST))

    @classmethod
    def default(cls) -> Device:
        """Return the device that OFFLOAD_ARGS_DEVICE names; otherwise the first GPU, or the host if there is none.

        Raises DeviceUnavailableError if this machine does not have the named device.

            print(Device.default() == Device.all()[0])  # True

        See also: Device.all, Device.host; docs/guide/devices.md.
        """
        if name := chosen_default():
            try:
                return cls(name)
            except OffloadError as error:
                text = str(error).removeprefix("Device: ").replace('device="host"', "OFFLOAD_ARGS_DEVICE=host")
                text = text.replace("without device=", "without the variable")
                raise type(error)(f"OFFLOAD_ARGS_DEVICE={name}: {text}") from None
        return cls(next((f"{backend}:0" for backend in _gpu_backends() if _core.device_count(backend)), _HOST))

    @classmethod
    def host(cls) -> Device:
        """Return the host as a device. An array that is lent to it is copied, as on other devices.

            print(Device.host() == Device("host"))  # True

        See also: Device.default; docs/guide/devices.md.
        """
        return cls(_HOST)

    @classmethod
    def from_index(cls, index: int) -> Device:
        """Return the GPU with this index.

        Raises DeviceUnavailableError if there is no such GPU.

            try:
                device = Device.from_index(63)
            except DeviceUnavailableError:
                device = Device.host()  # there are fewer GPUs
            print(device)  # host

        See also: Device.all, Device.default; docs/guide/devices.md.
        """
        try:
            number = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(f"Device.from_index: index needs a whole number, got {shown(index)}") from None
        return cls(f"{gpu_backend()}:{shown(number)}")

    @property
    def backend(self) -> str:
        """The part of the name before the colon."""
        return self._info.backend

    @property
    def model(self) -> str:
        """The maker's name for the device, such as "NVIDIA H200"."""
        return self._info.model

    @property
    def index(self) -> int:
        """The device's number within its backend."""
        return self._info.index

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU. Devices that are not GPUs run the libraries of the CPU."""
        return bool(self._info.flags & _core.OA_DEVICE_GPU)

    @property
    def coherent(self) -> bool:
        """Whether regions lend arrays to it without copies: it uses the host's memory (docs/guide/coherent.md)."""
        return _core.device_info(self.number).coherent

    @property
    def memory(self) -> Memory:
        """The free and total memory now, in bytes; zeros if the driver does not report it."""
        info = _core.device_info(self.number)
        return Memory(info.memory_free, info.memory_total)

    @property
    def driver_version(self) -> int:
        """The version of the device's driver, in the driver's own form (13000 is CUDA 13.0); 0 without a driver."""
        return self._info.driver_version

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The major and minor version of a GPU's instruction set; (0, 0) for other devices."""
        return self._info.compute_major, self._info.compute_minor

    @property
    def counters(self) -> Counters:
        """The counts of the device's operations so far."""
        return _core.device_counters(self.number)

    @property
    def residency(self) -> Residency:
        """The state of the device's resident memory, which outlives regions.

        Raises ArgumentError if OFFLOAD_ARGS_RESIDENCY is not "auto", "explicit" or "off".
        """
        return Residency(*_core.device_residency(self.number))

    def keep(self, array: NDArray[Any]) -> None:
        """Make an array resident: its device memory outlives its regions, until release() or the end of its owner.

        array: exactly the array that will be lent. This call moves no bytes. When the array is lent and read again
        later, only the pages that the host wrote in between are sent. If these pages are not known, the whole array is
        sent (docs/guide/residency.md). Under memory pressure its device memory is evicted, and the array becomes
        resident again when it is next lent. As usual, pointers become stale at the end of their regions.

        Raises DTypeError for an array that can't be lent, ArgumentTypeError for an object that is not an array.

            device, A, x, y = Device("host"), np.eye(300), np.ones(300), np.empty(300)
            device.keep(A)
            before = device.counters.bytes_up
            for _ in range(3):
                with offload_args(A, x, y, device=device) as (dA, dx, dy):
                    blas.gemv(1.0, dA, dx, 0.0, dy)
            print(device.counters.bytes_up - before < 2 * A.nbytes)  # True
            device.release(A)

        See also: Device.release, offload_args, empty; docs/guide/residency.md.
        """
        _core.keep(_checked("keep", array), self.number)

    def release(self, array: NDArray[Any]) -> None:
        """Undo keep() or resident=True. The memory is freed now, or at the end of the last region that uses it.

        Does nothing for an array that is not resident. Raises ArgumentTypeError for an object that is not an array.

            device, x = Device("host"), np.ones(100_000)
            with offload_args(x, device=device, resident=True) as (dx,):
                blas.scal(2.0, dx)
            print(device.residency.kept_bytes > 0)  # True
            device.release(x)

        See also: Device.keep, Device.trim; docs/guide/residency.md.
        """
        _core.release(_checked("release", array), self.number)

    def synchronize(self) -> None:
        """Wait for all work on the device, including the work of other code in this process.

            device, x = Device("host"), np.ones(3)
            with offload_args(x, device=device) as (dx,):
                blas.scal(2.0, dx)
                device.synchronize()  # the call has ended; x changes when the region is left
            print(x)  # [2. 2. 2.]

        See also: DevicePtr.to_host, update; docs/guide/streams.md.
        """
        _core.device_synchronize(self.number)

    def trim(self) -> None:
        """Wait for all work on the device, then free idle memory of the device, and pinned memory of past copies.

        A program rarely needs this call, because the package frees idle memory under pressure. The call makes room for
        other programs on the same machine. Resident memory is not freed; see `keep`.

            device, x = Device("host"), np.ones(1000)
            with offload_args(x, device=device) as (dx,):
                blas.scal(2.0, dx)
            device.trim()
            print(device.counters.memory_used)  # 0

        See also: Device.release, Device.synchronize; docs/guide/memory.md.
        """
        _core.device_trim(self.number)

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (self.name,)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        """Describe the device and the arrays that are lent to it."""
        try:
            now = self.counters
        except OffloadError:  # in a forked child
            return f'Device("{self.name}")'
        arrays = f"{now.mappings} {plural('array', now.mappings)} in {now.regions} {plural('region', now.regions)}"
        return f'Device("{self.name}", {self.model}, {arrays}, {size_text(now.memory_used)} in use)'

    def _repr_html_(self) -> str | None:
        try:
            now = self.counters
        except OffloadError:
            return None
        rows = [
            ("model", self.model),
            ("regions", f"{now.regions}"),
            ("arrays in them", f"{now.mappings}"),
            ("memory in use", f"{size_text(now.memory_used)}, at most {size_text(now.memory_peak)} so far"),
            ("copied up", f"{now.copies_up} {plural('copy', now.copies_up)}, {size_text(now.bytes_up)}"),
            ("copied down", f"{now.copies_down} {plural('copy', now.copies_down)}, {size_text(now.bytes_down)}"),
            ("copied from peers", f"{now.copies_peer} {plural('copy', now.copies_peer)}, {size_text(now.bytes_peer)}"),
            ("calls", f"{now.calls}"),
        ]
        return html_table(f'Device("{self.name}")', (), rows)


def _instead(name: object) -> str:
    """Return the remedy for a device of another form or package."""
    if isinstance(name, int) and not isinstance(name, bool):
        return f"; Device.from_index({shown(name)}) is the GPU with this number"
    if isinstance(name, (list, tuple)) and len(name) == 1:
        return f"; name it without a list: {shown(name[0])}"
    return ""


def _of_unavailable(text: str) -> str:
    """Return a message about a device that does not exist, with the remedy."""
    if 'device "cpu' in text:
        return f'{text}; device="host" is the CPU'
    if 'device "gpu' in text:
        return f"{text}; without device=, the first GPU is used, and the host if there is none"
    unknown = re.search(r'unknown device "((\w+)(?::\d+)?)"', text)
    if unknown and unknown[2].lower() in (backend.name for backend in _BACKENDS):  # in capitals
        return f'{text}; write "{unknown[1].lower()}"'
    return f'{text}; device="host" computes on the CPU'


remedies[_core.OA_ERROR_UNAVAILABLE] = _of_unavailable


def _checked(function: str, array: NDArray[Any]) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(f"Device.{function}: array needs a NumPy array, got {type(array).__name__}")
    return array


def check_shape(function: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ArgumentError or SizeOverflowError for a shape that no array can have; an extent of 0 is checked as 1."""
    if any(extent < 0 for extent in shape):
        raise ArgumentError(f"{function}: shape needs extents of 0 or more, got {shown(shape)}")
    if len(shape) > _MAX_DIMENSIONS:
        raise ArgumentError(f"{function}: shape needs at most {_MAX_DIMENSIONS} extents, got {len(shape)}")
    nbytes = dtype.itemsize * math.prod(max(extent, 1) for extent in shape)
    if nbytes > _MAX_SIZE or max(shape, default=0) > _MAX_SIZE:
        raise SizeOverflowError(
            f"{function}: shape {shown(shape)} of {dtype} needs {shown(nbytes)} bytes, which do not fit 64 bits; "
            "use less"
        )


def is_name(name: str) -> bool:
    """Return whether a name has the form of a device's name: a backend of this build, optionally with an index."""
    backend, colon, index = name.partition(":")
    return any(backend == known.name for known in _BACKENDS) and (not colon or bool(re.fullmatch("[0-9]{1,6}", index)))


def _gpu_backends(dlpack_type: int | None = None) -> list[str]:
    """List the backends of GPUs in the order of preference; with `dlpack_type`, only those with this memory."""
    return [
        backend.name
        for backend in _BACKENDS
        if backend.flags & _core.OA_DEVICE_GPU and dlpack_type in (None, backend.dlpack_type)
    ]


def gpu_backend(dlpack_type: int | None = None) -> str | None:
    """Return the backend of this machine's GPUs: the first backend that has a GPU, or else the first backend.

    dlpack_type: DLPack's type of the memory, if it is known. The result is None if no backend has this type.
    """
    backends = _gpu_backends(dlpack_type)
    return next(
        (backend for backend in backends if len(backends) == 1 or _core.device_count(backend)),
        next(iter(backends), None),
    )


def opened() -> tuple[Device, ...]:
    """List the devices that this process has used."""
    return tuple(Device._opened.copy().values())


def by_number(number: int) -> Device:
    """Return the open device with this number."""
    known = Device._opened.get(number)
    return known if known is not None else Device(_core.device_info(number).name)


def as_device(device: Device | str) -> Device:
    """Return the Device for an argument `device=`, which is a Device or a name.

    Raises DeviceUnavailableError if this machine does not have the device, and ArgumentError for any other argument.
    """
    if isinstance(device, Device):
        return device
    return Device(device)


@cache
def chosen_default() -> str:
    """Return the value of OFFLOAD_ARGS_DEVICE, which is read once; "" without the variable."""
    return os.environ.get("OFFLOAD_ARGS_DEVICE", "")


def default_number() -> int:
    """Return the number of the default device. The core calls this function once per process."""
    return Device.default().number
