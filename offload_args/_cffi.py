"""Converts DevicePtrs to cffi pointers, and calls cffi functions with DevicePtrs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import _cffi_backend

from . import _core
from .dtypes import DTYPE_NAMES
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    HostPointerError,
    LibraryError,
    SizeOverflowError,
    raise_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["CDATA", "FFI", "adapted", "cdata", "converted", "declare_status"]

FFI: Final = _cffi_backend.FFI()
CDATA: Final = FFI.CData
# The C types of each dtype's elements. By default, cdata() casts to the first of them.
_C_TYPES: Final = {
    "bool": ("_Bool",),
    "int8": ("int8_t", "signed char", "char"),
    "int16": ("int16_t", "short"),
    "int32": ("int32_t", "int"),
    "int64": ("int64_t", "long", "long long", "ptrdiff_t", "ssize_t", "intptr_t"),
    "uint8": ("uint8_t", "unsigned char"),
    "uint16": ("uint16_t", "unsigned short"),
    "uint32": ("uint32_t", "unsigned int"),
    "uint64": ("uint64_t", "unsigned long", "unsigned long long", "size_t", "uintptr_t"),
    "float16": ("uint16_t",),
    "bfloat16": ("uint16_t",),
    "float8_e4m3fn": ("uint8_t",),
    "float8_e5m2": ("uint8_t",),
    "float32": ("float",),
    "float64": ("double",),
    "complex64": ("float _Complex", "_cffi_float_complex_t"),
    "complex128": ("double _Complex", "_cffi_double_complex_t"),
}


def _takes(element: Any, dtype: str) -> bool:
    """Return whether a pointer to a C type may point to elements of a dtype."""
    if element.kind == "void":
        return True
    if element.kind == "struct" and element.fields and dtype.startswith("complex"):  # such as cuComplex
        part = _C_TYPES["float32" if dtype == "complex64" else "float64"]
        return [field.type.cname in part for _, field in element.fields] == [True, True]
    return element.cname in _C_TYPES[dtype]


def _check(subject: str, pointer: _core.Pointer, c_type: Any) -> None:
    """Raise an error if a DevicePtr can't be an argument of the type `c_type`."""
    dtype = DTYPE_NAMES[pointer._dtype_code]
    needed = f"{subject} needs {c_type.cname}, got a DevicePtr[{dtype}]"
    if c_type.kind != "pointer":
        raise HostPointerError(f"{needed}; it is on the device")
    own = _own_type(c_type.item)
    fits = own in ("any", _core.DTYPES[pointer._dtype_code][1]) if own else _takes(c_type.item, dtype)
    if not fits:
        raise DTypeError(f"{needed}; lend an array of its dtype")


def _own_type(element: Any) -> str:
    """Return the dtype in the name of a type of the core, such as "f32" for oa_f32; "" for other types."""
    name = str(element.cname).removeprefix("struct ")
    return name.removeprefix("oa_") if element.kind == "struct" and name.startswith("oa_") else ""


def _converted(pointer: _core.Pointer, c_type: Any) -> Any:
    return FFI.cast(c_type, _core.handle(pointer) if _own_type(c_type.item) else pointer.address)


def converted(title: str, arguments: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Return the arguments of a C function, with each DevicePtr converted to the pointer type that the function takes.

    A DevicePtr becomes its handle if the parameter has a type of the core, such as oa_f32 *, and its address otherwise.
    All DevicePtrs are checked before any bytes move.
    """
    c_types: list[Any] = []
    for index, value in enumerate(arguments):
        c_type = None
        if isinstance(value, _core.Pointer):  # variadic and surplus arguments have no type
            c_type = types[index] if index < len(types) else FFI.typeof(_pointer_type(value))
            _check(f"{title}: argument {index + 1}", value, c_type)
        c_types.append(c_type)
    return [
        value if c_type is None else _converted(value, c_type) for value, c_type in zip(arguments, c_types, strict=True)
    ]


def _pointer_type(pointer: _core.Pointer) -> str:
    return f"{_C_TYPES[DTYPE_NAMES[pointer._dtype_code]][0]} *"


def cdata(pointer: _core.Pointer, ffi: Any, c_type: str | None) -> Any:
    """Return a DevicePtr as a cffi pointer; DevicePtr.cdata has the details."""
    try:
        target = ffi.typeof(c_type or _pointer_type(pointer))
    except AttributeError:
        raise ArgumentTypeError(
            f"DevicePtr.cdata: ffi needs an object of cffi's, such as cffi.FFI(), got {type(ffi).__name__}"
        ) from None
    _check("DevicePtr.cdata: c_type", pointer, target)
    return _converted(pointer, target)


class _Status:
    """The results of a function that count as success, and the exception for other results."""

    def __init__(self, success: Collection[int], error: Callable[[int], object] | None) -> None:
        self._success = success
        self._error = error

    def check(self, title: str, result: Any, c_type: Any) -> None:
        if result in self._success:
            return
        if self._error is not None:
            self._error(result)
        names = c_type.elements if c_type.kind == "enum" else {}
        raise LibraryError(
            f"{title} returned {names.get(result, result)}, which is not success; the contents of its arrays are "
            "undefined"
        )


_CORE_STATUS: Final = _Status((_core.OA_OK,), raise_status)
_statuses: Final[dict[Any, _Status]] = {}  # by function or by type


def declare_status(subject: Any, success: int | Collection[int], error: Callable[[int], object] | None) -> None:
    """Note which results count as success; embedding.declare_status has the details."""
    c_type = subject if isinstance(subject, FFI.CType) else _function_type(subject)
    if c_type is None or c_type.kind not in ("enum", "function"):
        raise ArgumentTypeError(
            f"declare_status: function needs a function of a cffi library or an enum of its types, got {subject!r}"
        )
    if c_type.kind == "function" and c_type.result.kind not in ("enum", "primitive"):
        raise ArgumentTypeError(
            f"declare_status: function needs to return a number, got a function of type {c_type.cname}"
        )
    values = (success,) if isinstance(success, int) else tuple(success)
    if not values or not all(isinstance(value, int) for value in values):
        raise ArgumentError(f"declare_status: success needs an integer or some of them, got {success!r}")
    if error is not None and not callable(error):
        raise ArgumentTypeError(f"declare_status: error needs a function, got {error!r}")
    _statuses[subject] = _Status(values, error)


def _status_of(function: Any, result: Any) -> _Status | None:
    """Return the rule for the result of a function; None if the result is not a status."""
    declared = _statuses.get(function) or _statuses.get(result)
    return _CORE_STATUS if declared is None and result.cname == "enum oa_status" else declared


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _name_of(function: Any) -> str:
    """Return the name by which a loaded library exports a function, from its address; "" if no library exports it."""
    address, symbol = int(FFI.cast("uintptr_t", function)), _Symbol()
    dladdr = getattr(ctypes.CDLL(None), "dladdr", None)
    if dladdr is None or not dladdr(ctypes.c_void_p(address), ctypes.byref(symbol)) or symbol.address != address:
        return ""
    return symbol.name.decode(errors="replace") if symbol.name else ""


class _Adapted:
    """A cffi function that takes DevicePtrs as well."""

    def __init__(self, function: Any, c_type: Any) -> None:
        self._function = function
        self._types = c_type.args
        self._title = _name_of(function) or c_type.cname if isinstance(function, CDATA) else function.__name__
        self._result = c_type.result
        self._status = _status_of(function, c_type.result)

    def __call__(self, *arguments: Any) -> Any:
        values = converted(self._title, arguments, self._types)
        try:
            result = self._function(*values)
        except TypeError as error:  # cffi's error does not name the function
            raise ArgumentTypeError(f"{self._title}: {error}") from None
        except OverflowError as error:
            raise SizeOverflowError(f"{self._title}: {error}") from None
        if self._status is not None:
            self._status.check(self._title, result, self._result)
        return result


def _function_type(function: Any) -> Any:
    """Return the type of a function of a cffi library; None for other objects."""
    if not isinstance(function, CDATA) and type(getattr(function, "__self__", None)).__module__ != "_cffi_backend":
        return None
    try:
        c_type = FFI.typeof(function)
    except TypeError:  # the object is a method of cffi
        return None
    return c_type if c_type.kind == "function" else None


def adapted(function: Any) -> Any:
    """Return a function of a cffi library wrapped to take DevicePtrs; return other objects unchanged."""
    c_type = _function_type(function)
    return function if c_type is None else _Adapted(function, c_type)
