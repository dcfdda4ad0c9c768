"""Adapters of the portable modules, blas and lapack: each adapter calls one library of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from . import _core
from ._names import rename
from .devices import by_number
from .errors import ForkedError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Adapter", "adapter_of"]


class Adapter:
    """Call one library for a portable module."""

    backend: ClassVar[str | None]  # the backend of the library's devices; None for a library of the CPU


A = TypeVar("A", bound=Adapter)
_made: dict[type[Adapter], Adapter] = {}


def adapter_of(function: str, adapters: Sequence[type[A]], device: int) -> A | None:
    """Return the adapter for the device with this number; None if no adapter calls a library of the device.

    Raises ForkedError, which names the function, in a forked child.
    """
    try:
        _core.device_counters(device)  # fails in a forked child, in which an import might deadlock
    except ForkedError as error:
        rename(error, r"^Device\.counters", function)
        raise
    info = by_number(device)._info  # does not call the driver: the thread may be capturing a stream
    for adapter in adapters:
        if adapter.backend == info.backend or (adapter.backend is None and info.flags & _core.OA_DEVICE_HOST_CALLS):
            known = _made.get(adapter)
            return known if known is not None else _made.setdefault(adapter, adapter())  # type: ignore[return-value]
    return None
