"""Objects that vendors' libraries make: handles and descriptors, which are created, passed and destroyed."""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, final

from . import _core
from ._table import LIBRARIES
from .devices import Device, as_device, by_number, default_number
from .display import with_article
from .errors import ArgumentTypeError, OffloadError, WrongDeviceError
from .streams import SupportsStream
from .streams import stream_handle as _handle_of_stream

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LibraryObject", "Stream", "SupportsStream", "class_of", "device_number", "stream_handle", "stream_of"]


class LibraryObject(_core.Object):
    """An object that a vendor's library made, such as a cublas.Handle.

    The object is destroyed by the library's own function, at the end of a `with` block, or when nothing refers to it
    any more. Functions refuse a destroyed object.

        with cublas.create("cuda:0") as handle:
            cublas.set_math_mode(handle, cublas.TF32_TENSOR_OP_MATH)

    See also: libraries.load; docs/guide/cublas.md.
    """

    __slots__ = ()

    def __new__(cls, *_: object, **__: object) -> Self:
        raise TypeError(f"{_name(cls)}: objects of this class are made by functions of its library, such as create()")

    def __enter__(self) -> Self:
        _core.object_device(self)  # raises an error if the object is destroyed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _core.object_destroy(self)

    @property
    def address(self) -> int:
        """The vendor's own object as an address, for code outside this package.

        Raises StalePointerError once the object is destroyed.
        """
        return _core.object_address(self)

    @property
    def device(self) -> Device | None:
        """The device to which the object belongs; None if it belongs to no device.

        Raises StalePointerError once the object is destroyed.
        """
        number = _core.object_device(self)
        return by_number(number) if number >= 0 else None

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{_name(type(self))}: objects of a library can't be copied or pickled: make another by the function that "
            "made this one"
        )

    def __repr__(self) -> str:
        try:
            device = self.device
        except OffloadError:
            return f"<{_name(type(self))}, destroyed>"
        return f"<{_name(type(self))}{f' of {device}' if device else ''}>"


def _name(cls: type) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"


@cache
def class_of(library: str, name: str) -> type[LibraryObject]:
    """Return the class of a library's objects of one kind, such as ("cublas", "Handle")."""
    module = f"{__package__}.{library}"
    doc = f"A{with_article(name)[1:]} of {library}. {LibraryObject.__doc__}"
    tables = getattr(import_module(module), "_ATTRIBUTES", {})
    if name not in tables:
        return type(name, (LibraryObject,), {"__slots__": (), "__module__": module, "__doc__": doc})
    from ._attributes import attributes_of

    attributes = attributes_of(library, name, tables)
    return type(name, (LibraryObject,), {"__slots__": ("_kept",), "__module__": module, "__doc__": doc, **attributes})


@final
class Stream:
    """The stream of a library's object, which other packages take by its method `__cuda_stream__`."""

    __slots__ = ("_owner", "handle")

    handle: Final[int]  #: the stream itself, a cudaStream_t

    def __init__(self, owner: LibraryObject, handle: int) -> None:
        self._owner = owner  # keeps the stream alive
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the pair of 0, which is the protocol's version, and the stream.

        Raises StalePointerError once the object is destroyed.
        """
        _core.object_device(self._owner)
        return 0, self.handle

    def __repr__(self) -> str:
        return f"Stream(of {self._owner!r})"


# -- called by the extension --


def device_number(function: str, name: str, device: Any) -> int:
    """Return the number of the device on which a function makes an object."""
    number = default_number() if device is None else as_device(device).number
    library = function.partition(".")[0]
    backend = LIBRARIES.get(library, {}).get("backend")
    if backend and by_number(number).backend != backend and not _core.library_loaded(library)[0]:
        remedy = "; lend an array of NumPy's generator instead" * (library == "curand")
        raise WrongDeviceError(f"{function}: {name} needs to be a {backend} device, got {by_number(number)}{remedy}")
    return number


def stream_handle(function: str, name: str, stream: object) -> int:
    """Return the handle of the caller's stream."""
    return _handle_of_stream(f"{function}: {name}", stream)


def stream_of(owner: LibraryObject, handle: int) -> SupportsStream:
    """Return the stream of an object: the stream that the caller set, or else the object's own."""
    own = _core.object_stream(owner)
    if isinstance(own, SupportsStream) and _handle_of_stream("get_stream: the stream", own) == handle:
        return own
    return Stream(owner, handle)


def made_of_bytes(library: str, name: str, data: bytes) -> Any:
    """Return an object of a class of a library's module, made from bytes."""
    return getattr(import_module(f"{__package__}.{library}"), name)(data)


def unpacked(fields: str, memory: bytes, count: int) -> list[tuple[Any, ...]]:
    """Return structs that a function returned; `fields` is their format in the struct module."""
    layout = struct.Struct(f"@{fields}0{max(fields, key=struct.calcsize)}")
    return [layout.unpack_from(memory, layout.size * at) for at in range(count)]
