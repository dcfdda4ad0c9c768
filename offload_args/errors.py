"""Exceptions: one class for each kind of failure, which is also derived from the usual built-in class for this failure.

The core writes most texts. A text names the call, the argument, the needed value, the passed value, and a remedy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

from . import _core
from .display import listing, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

__all__ = [
    "AliasError",
    "ArgumentError",
    "ArgumentTypeError",
    "BackendError",
    "CaptureError",
    "CommunicatorError",
    "CoverageError",
    "DTypeError",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceUnavailableError",
    "DirectionError",
    "DiscardedWarning",
    "ExtentError",
    "ForkedError",
    "GuardError",
    "HostAccessError",
    "HostAttributeError",
    "HostPointerError",
    "InvalidDataError",
    "KernelError",
    "LibraryError",
    "LibraryVersionError",
    "ModuleError",
    "NestedRegionWarning",
    "OffloadError",
    "OffloadWarning",
    "PerformanceWarning",
    "PresentError",
    "RegionError",
    "SignatureError",
    "SizeOverflowError",
    "StaleGraphError",
    "StalePointerError",
    "TornArrayError",
    "UnwrittenWarning",
    "WrongDeviceError",
]


class OffloadError(Exception):
    """The base of every exception of this package."""

    def __init__(self, *arguments: object) -> None:  # gives the classes a signature, which Python's own lack
        super().__init__(*arguments)


class ArgumentError(OffloadError, ValueError):
    """A value that no call can take, such as a negative size, an unknown constant, or too many dimensions."""


class ArgumentTypeError(OffloadError, TypeError):
    """An argument of a kind that can't be lent or passed, such as a list, a scalar or None."""


class DTypeError(OffloadError, TypeError):
    """A dtype that the call does not take or that devices can't hold."""


class HostAccessError(OffloadError, TypeError):
    """An operation on a device pointer that would need the array's values on the host."""


class HostAttributeError(HostAccessError, AttributeError):
    """An attribute that only pointers and regions of GPUs have, or only host arrays; hasattr() returns False."""


class HostPointerError(OffloadError, TypeError):
    """A host array, a host address or None in place of a device pointer, or a pointer in place of an array."""


class StalePointerError(OffloadError, RuntimeError):
    """A device pointer that is used after the end of its region."""


class ExtentError(OffloadError, ValueError):
    """A call that would touch more elements than a pointer has."""


class SizeOverflowError(OffloadError, OverflowError):
    """A size that does not fit into the integer type of a call."""


class WrongDeviceError(OffloadError, ValueError):
    """A pointer on another device than the device of the call."""


class DirectionError(OffloadError, ValueError):
    """A write of an In or a read-only array, a read of an Out before it was written, or a widening of rights."""


class AliasError(OffloadError, ValueError):
    """A written operand of a call that overlaps another operand."""


class PresentError(OffloadError, ValueError):
    """An array that is not present, or that overlaps a present one only in part."""


class RegionError(OffloadError, RuntimeError):
    """A region that is entered while it is open, or an operation on a region that is not open."""


class InvalidDataError(OffloadError, RuntimeError):
    """Data that a failed call or region left undefined."""


class DeviceMemoryError(OffloadError, MemoryError):
    """Not enough device memory."""

    def __new__(cls, *arguments: object) -> Self:
        """Make an error. MemoryError.__new__ refuses this class; Dask calls it for an exception of another process."""
        return Exception.__new__(cls, *arguments)


class BackendError(OffloadError, RuntimeError):
    """A failure that the driver reported."""


class LibraryError(OffloadError, RuntimeError):
    """A vendor library that is missing, lacks a function, or failed."""


class LibraryVersionError(LibraryError, NotImplementedError):
    """A function that the loaded version of a vendor library does not have."""


class DeviceUnavailableError(OffloadError, RuntimeError):
    """A device that this machine does not have."""


class DeviceLostError(OffloadError, RuntimeError):
    """A device that failed earlier; this process can't use the device any more."""


class CaptureError(OffloadError, RuntimeError):
    """A call during a capture that a graph can't contain; it is refused before it has any effect."""


class CommunicatorError(OffloadError, RuntimeError):
    """A failed call of a communicator: the ranks in `ranks` left, failed, were late, or called another function."""

    def __init__(self, text: str = "", ranks: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[type, tuple[str, tuple[int, ...]], dict[str, object]]:
        return type(self), (str(self), self.ranks), self.__dict__  # which has the notes


class StaleGraphError(OffloadError, RuntimeError):
    """A captured graph that can't run any more: its region, or one of its arrays' regions, has ended."""


class ForkedError(OffloadError, RuntimeError):
    """A use of devices in a process that was forked after the devices were first used."""


class GuardError(OffloadError, RuntimeError):
    """A write of a guarded array by the host while the device has its bytes, or a read while the device is newer."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(arguments or (_core.take_touch(),)))  # Python passes no arguments


class TornArrayError(OffloadError, RuntimeError):
    """A device that was lost while host arrays were being written; the text lists new, old and torn arrays."""


class ModuleError(OffloadError, ValueError):
    """A module of kernels that can't be read, that the driver refuses, or that lacks a kernel."""


class CoverageError(OffloadError, ValueError):
    """A grid of a kernel that would leave elements of an array without a thread that owns them."""


class KernelError(OffloadError, TypeError):
    """A kernel in Python that can't be compiled: the text has the file, the line and the remedy."""


class SignatureError(OffloadError, TypeError):
    """A kernel's signature that its module contradicts, or that no kernel can have."""


class OffloadWarning(UserWarning):
    """The base of every warning of this package."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)


class NestedRegionWarning(OffloadWarning):
    """A region that open() entered while another region of open() was still open."""


class PerformanceWarning(OffloadWarning):
    """A use of the package that is slower than necessary."""


class DiscardedWarning(OffloadWarning):
    """Results that were lost without an exception, because a task was cancelled or a region was never left."""


class UnwrittenWarning(OffloadWarning):
    """An Out that no call wrote; its host array is unchanged."""


_BY_STATUS: Final[dict[int, type[OffloadError]]] = {
    _core.OA_ERROR_ARGUMENT: ArgumentError,
    _core.OA_ERROR_TYPE: DTypeError,
    _core.OA_ERROR_NOT_HANDLE: HostPointerError,
    _core.OA_ERROR_STALE: StalePointerError,
    _core.OA_ERROR_EXTENT: ExtentError,
    _core.OA_ERROR_OVERFLOW: SizeOverflowError,
    _core.OA_ERROR_DEVICE: WrongDeviceError,
    _core.OA_ERROR_DIRECTION: DirectionError,
    _core.OA_ERROR_ALIAS: AliasError,
    _core.OA_ERROR_PRESENT: PresentError,
    _core.OA_ERROR_INVALID: InvalidDataError,
    _core.OA_ERROR_MEMORY: DeviceMemoryError,
    _core.OA_ERROR_BACKEND: BackendError,
    _core.OA_ERROR_LIBRARY: LibraryError,
    _core.OA_ERROR_UNAVAILABLE: DeviceUnavailableError,
    _core.OA_ERROR_LOST: DeviceLostError,
    _core.OA_ERROR_CAPTURE: CaptureError,
    _core.OA_ERROR_FORKED: ForkedError,
    _core.OA_ERROR_TORN: TornArrayError,
    _core.OA_ERROR_MODULE: ModuleError,
    _core.OA_ERROR_SIGNATURE: SignatureError,
    _core.OA_ERROR_VERSION: LibraryVersionError,
}


# {the core's name of a function: the function's name in Python, for messages}.
_CALLERS: Final = {
    "oa_address": "DevicePtr.address",
    "oa_chain_begin": "offload_args.capture",
    "oa_chain_end": "offload_args.capture",
    "oa_chain_loop": "offload_args.loop",
    "oa_chain_release": "Graph",
    "oa_chain_replay": "Graph.replay",
    "oa_device_count": "Device",
    "oa_device_get_counters": "Device.counters",
    "oa_device_get_info": "Device",
    "oa_device_open": "Device",
    "oa_device_synchronize": "Device.synchronize",
    "oa_device_trim": "Device.trim",
    "oa_keep": "Device.keep",
    "oa_kernel_get": "Module.kernel",
    "oa_kernel_launch": "launch",
    "oa_library_double": "testing",
    "oa_module_load": "Module.load",
    "oa_module_unload": "Module.unload",
    "oa_export": "DevicePtr",
    "oa_pinned_allocate": "empty",
    "oa_pointer_assign": "DevicePtr.assign",
    "oa_pointer_copy": "DevicePtr.copy_from",
    "oa_pointer_fill": "DevicePtr.fill",
    "oa_pointer_query": "DevicePtr",
    "oa_pointer_read": "DevicePtr.to_host",
    "oa_pointer_view": "DevicePtr",
    "oa_region_enter": "offload_args",
    "oa_region_finish": "offload_args",
    "oa_region_wait": "offload_args",
    "oa_release": "Device.release",
    "oa_residency_configure": "testing",
    "oa_residency_query": "Device.residency",
    "oa_coherent_configure": "testing",
    "oa_part_cost_configure": "testing",
    "oa_scratch": "DevicePtr",
    "oa_sim_configure": "testing",
    "oa_stage": "DevicePtr",
    "oa_trace_read": "trace",
    "oa_trace_set": "trace",
    "oa_update_from": "update",
    "oa_update_to": "update",
}


def caller_name(function: str) -> str:
    """Return Python's name for a function of the core; return another name unchanged."""
    return _CALLERS.get(function, function)


#: Failures whose cause may be outside the program; a note on such an error advises the user to make a recording.
_RECORDED: Final = (BackendError, DeviceLostError, TornArrayError)
_RECORD_IT: Final = (
    "To report it, record it: `python -m offload_args record script.py` writes a file that others can run again, "
    "without your data."
)


def _noted(error: OffloadError) -> OffloadError:
    if isinstance(error, _RECORDED):
        error.add_note(_RECORD_IT)
    return error


#: {status: a function that takes the text of a message and returns it with its remedy}. Other modules add functions.
remedies: Final[dict[int, Callable[[str], str]]] = {}


def raise_status(status: int, text: str | None = None) -> NoReturn:
    """Raise the exception of a failed call of the core, on the thread that made the call.

    status: the call's oa_status, other than OA_OK. text: the failure's text. None stands for the text of this thread's
    last failure, so it is wrong if another thread made the call, or if this thread had another failure since. If Ctrl-C
    came during a callback of the core, KeyboardInterrupt is raised instead.
    """
    if (interrupt := _core.take_postponed()) is not None:
        raise interrupt
    if text is None:
        text = _core.last_error()
    text = re.sub(r"^\w+", lambda caller: caller_name(caller[0]), text)
    if (add := remedies.get(status)) is not None:
        text = add(text)
    if (kind := _BY_STATUS.get(status)) is None:
        raise OffloadError(f"{text} (status {status})")
    raise _noted(kind(text))  # without a local variable, because the frame and its exception would form a cycle


if not TYPE_CHECKING:  # static checkers report an unknown name
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing([*__all__, "raise_status"])
