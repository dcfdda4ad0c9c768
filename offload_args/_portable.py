"""Parts of the portable modules, blas and lapack: what they refuse in one way, and the library of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from . import _core
from .devices import by_number
from .display import nearest, shown
from .errors import ArgumentError, HostPointerError
from .pointers import DevicePtr, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Adapter", "adapter_of", "contiguous", "missing", "need_option", "need_pointer"]


class Adapter:
    """How a portable module calls one library."""

    backend: ClassVar[str | None]  # of the devices it works on; None: those whose libraries run on the CPU


A = TypeVar("A", bound=Adapter)
_made: dict[type[Adapter], Adapter] = {}


def adapter_of(adapters: Sequence[type[A]], device: int) -> A | None:
    """Return the adapter of the library that runs on a device, by its number; None if there is none."""
    _core.device_counters(device)  # fails in a forked child, where another thread may have had the lock of an import
    info = by_number(device)._info  # the driver is asked nothing: this thread may be capturing a stream
    for one in adapters:
        if one.backend == info.backend or (one.backend is None and info.flags & _core.OA_DEVICE_HOST_CALLS):
            known = _made.get(one)
            return known if known is not None else _made.setdefault(one, one())  # type: ignore[return-value]
    return None


def missing(module: str, names: Sequence[str]) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a portable module: it names the functions that are most like a missing one."""

    def refuse(name: str) -> NoReturn:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{nearest(name, names)}", name=name)

    return refuse


def need_option(function: str, what: str, value: object, known: Sequence[str]) -> None:
    """Raise ArgumentError for an option that is none of those that are known."""
    if not isinstance(value, str) or value not in known:
        allowed = " or ".join(f'"{one}"' for one in known)
        raise ArgumentError(f"{function}: {what} must be {allowed}, got {shown(value)}") from None


def need_pointer(function: str, operand: str, pointer: object) -> None:
    """Raise HostPointerError for an operand that is not a DevicePtr."""
    if not isinstance(pointer, DevicePtr):
        got = f"{type(pointer).__module__}.{type(pointer).__qualname__}".removeprefix("builtins.")
        remedy = unpacked(operand, pointer) or f"lend it first: with offload_args({operand}) as (d{operand},)"
        raise HostPointerError(f"{function}: {operand} needs a DevicePtr, got {got}; {remedy}") from None


def contiguous(function: str, operand: str, pointer: DevicePtr[Any], size: int, reason: str) -> None:
    """Raise ArgumentError for a vector of another size, or with gaps, for which no function has an increment."""
    if pointer._shape != (size,):
        raise ArgumentError(f"{function}: {operand} has shape {pointer._shape}, needs ({size},) {reason}")
    if size > 1 and pointer._strides[0] != pointer.dtype.itemsize:
        raise ArgumentError(
            f"{function}: {operand} has strides {pointer._strides}, needs ({pointer.dtype.itemsize},), its elements "
            f"one behind the other; copy it on the host: numpy.ascontiguousarray({operand})"
        )
