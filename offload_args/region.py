"""Regions: arrays lent to a device for the duration of a block or of one call."""

from __future__ import annotations

import atexit
import gc
import os
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _array
from .arguments import In, InOut, Out, Scratch, dtype_code, is_array, refuse, resolve
from .device import Device, as_device, default_number, empty
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    PerformanceWarning,
    RegionError,
    UnwrittenWarning,
    raise_status,
)
from .library import pointer_types
from .pointer import DevicePtr
from .residency import watch_owner

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from .tracing import Trace

__all__ = ["call", "offload_args", "trace", "update"]


def trace(*, checksums: bool = True, limit: int = 1_000_000) -> Trace:
    """Record every region, copy, call and wait of a block: `with trace() as t: ...; print(t.summary)`.

    The result has `events`, `summary` (with `advice`) and `save("file.json")`, a timeline that Perfetto opens.
    checksums: also find what went up unchanged, which reads what is copied once more. limit: events kept at most.
    """
    from .tracing import Trace

    return Trace(checksums=checksums, limit=limit)


def update(array: NDArray[Any], *, device: Device | str | None = None) -> Update:
    """Bring what the device wrote of an array to the host now, as OpenMP's `target update from` does.

    array: the array that was lent, or a part of it. device: where it is present, if that is not the only place. What
    was brought stays, whatever the region does later. The result can be entered to write the array:
    `with update(x): x[0] = 1` sends it to the device at the end of the block, unless that raises.

    Raises PresentError if the array is not lent, InvalidDataError if a failed call left it undefined.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(f"update: array needs the NumPy array that was lent, got {type(array).__name__}")
    number = -1 if device is None else as_device(device).number
    _array.update_from(array, number)
    return Update(array, number)


class Update:
    """An array brought to the host; as a context manager it may be written there, and is sent at the end."""

    __slots__ = ("_array", "_device", "_opened")

    def __init__(self, array: NDArray[Any], device: int) -> None:
        self._array = array
        self._device = device
        self._opened: list[NDArray[Any]] = []

    def __enter__(self) -> NDArray[Any]:
        chain: list[NDArray[Any]] = []
        array: object = self._array
        while isinstance(array, np.ndarray):
            chain.append(array)
            array = array.base
        if _array.is_lent(self._array):
            # A view can only follow what it is a view of.
            for one in reversed(chain):
                if not one.flags.writeable:
                    one.setflags(write=True)
                    self._opened.append(one)
        return self._array

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                _array.update_to(self._array, self._device)
        finally:
            while self._opened:
                self._opened.pop().setflags(write=False)


def call(
    function: Any,
    /,
    *arguments: Any,
    device: Device | str | None = None,
    stream: object = None,
    on_error: Literal["discard", "keep"] = "discard",
    **keywords: Any,
) -> Any:
    """Lend every array among the arguments, call function with pointers in their place, copy back, return its value.

    Arrays may be in In, Out, InOut or Scratch; what is no array is handed on as it is. device, stream and on_error
    are the region's. Small arrays, 64 KiB in all, are used in pinned memory of the host where the device can, which is
    faster for a function that uses each once, and slower for one that does so again and again: open a region for that.
    Raises what the region and the function raise.
    """
    region = offload_args(device=device, stream=stream, on_error=on_error)
    return region._call(function, arguments, keywords)


class offload_args(_array.Region):
    """Lend arrays to a device for the duration of a block.

        with offload_args(A, x, Out(y)) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)

    arrays: NumPy arrays, objects that share host memory through DLPack or GPU memory through
    `__cuda_array_interface__`, or In, Out, InOut, Scratch of them; a plain array goes up when it is first read, and
    comes down if it was written. `as` binds a tuple of one DevicePtr an argument, also for a single one. The arrays
    are read-only on the host meanwhile.
    device: a Device or its name; None: where the first borrowed argument is, else the first GPU, else the host.
    stream: an object with `__cuda_stream__` to which the calls go; None: one of the package's own.
    on_error: if the block raises, "discard" leaves the host arrays as they were, "keep" copies down what is valid.
    resident: the device memory of these arrays stays when the block ends, as with Device.keep: when one is lent again,
    only what was written to it on the host since then is sent.

    Entering raises ArgumentTypeError, DTypeError, DirectionError, PresentError, DeviceMemoryError and others of
    `errors`; nothing is lent then.
    """

    __slots__ = ()

    call = staticmethod(call)
    trace = staticmethod(trace)
    empty = staticmethod(empty)
    update = staticmethod(update)

    def __init__(
        self,
        *arrays: Any,
        device: Device | str | None = None,
        stream: object = None,
        on_error: Literal["discard", "keep"] = "discard",
        resident: bool = False,
    ) -> None:
        self._arguments = arrays
        if device is not None:
            self._device = as_device(device).number
        if stream is not None:
            self._stream = _stream_handle(stream)
        if on_error != "discard":
            if on_error != "keep":
                raise ArgumentError(f'offload_args: on_error needs "discard" or "keep", got {on_error!r}')
            self._keep_on_error = 1
        if resident:
            self._resident = 1


def _stream_handle(stream: object) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise ArgumentTypeError(
            f"offload_args: stream needs an object with __cuda_stream__, got {type(stream).__name__}"
        )
    version, handle = protocol() if callable(protocol) else protocol
    if version != 0:
        raise ArgumentError(f"offload_args: stream speaks version {version} of __cuda_stream__, 0 is known")
    return int(handle)


_array.setup(
    ndarray=np.ndarray,
    pointer=DevicePtr,
    declared=(In, Out, InOut, Scratch),
    ctypes=pointer_types(),
    resolve=resolve,
    refuse=refuse,
    dtype_code=dtype_code,
    raise_status=raise_status,
    default_device=default_number,
    packed_warning=PerformanceWarning,
    unwritten_warning=UnwrittenWarning,
    entered_error=RegionError,
    watch_owner=watch_owner,
    collect=gc.collect,
    is_array=is_array,
)
os.register_at_fork(after_in_child=_array.after_fork)
atexit.register(_array.at_exit)
