"""The roles of functions that work on no array: objects, integers, texts, streams, outputs.

A *service* is a function that has no array and no number of BLAS: it makes, sets, asks, names or destroys. Its
parameters are of the classes here, enums and sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from .parameters import Enum, Parameter

# Integers by their C types, as dtypes; a number of a service has the bits of its type.
INTEGERS = {
    "int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "long long": "i64",
    "size_t": "u64",
}
C_INTEGER = {"i32": "int", "u32": "unsigned", "i64": "int64_t", "u64": "uint64_t"}


@dataclass(frozen=True)
class ObjectKind:
    """A kind of object that a library makes: the table [object.<key>] of its roles file."""

    key: str
    type: str  # in C
    name: str  # of its class in Python
    destroy: str  # the function that destroys one
    is_handle: bool  # it is the library's handle, of one device and with a stream


@dataclass(frozen=True, kw_only=True)
class ServiceParameter(Parameter):
    """A parameter that only services have."""

    passed: ClassVar[bool] = True  # to the vendor's function
    in_python: ClassVar[bool] = True  # the Python function takes it

    def vendor(self, at: int) -> tuple[str, str]:
        """Returns the C type and the expression that the vendor's function takes; at: the place of the value."""
        raise NotImplementedError

    def described(self) -> str:
        """Returns its line of the docstring, or ""."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Object(ServiceParameter):
    """An object that the library made."""

    role: ClassVar[str] = "object"
    object_kind: ObjectKind

    @property
    def token(self) -> str:
        return f"{self.kind}:{self.name}:{self.object_kind.name}"

    def declaration(self, device: bool) -> str:
        return f"const oa_object *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return self.object_kind.name

    def described(self) -> str:
        return f"{self.name}: a {self.object_kind.name}."


@dataclass(frozen=True, kw_only=True)
class Ended(Object):
    """An object that the function destroys."""

    role: ClassVar[str] = "ended"

    def declaration(self, device: bool) -> str:
        return f"oa_object *{self.name}"


@dataclass(frozen=True, kw_only=True)
class DeviceNumber(ServiceParameter):
    """The device of a new object, which the vendor's function learns from what is current."""

    role: ClassVar[str] = "device"
    passed: ClassVar[bool] = False

    def declaration(self, device: bool) -> str:
        return f"int {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = {self.name}}}"

    def shown(self) -> str:
        return f"{self.name}=None"

    def annotation(self, on_device: bool | None = None) -> str:
        return "Device | str | None = None"

    def described(self) -> str:
        return f"{self.name}: a Device or its name; None: the default device."


@dataclass(frozen=True, kw_only=True)
class Integer(ServiceParameter):
    """An integer of which the function says what it means."""

    role: ClassVar[str] = "integer"

    def declaration(self, device: bool) -> str:
        return f"{C_INTEGER[self.dtype]} {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = (int64_t){self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        c_type = C_INTEGER[self.dtype]
        return c_type, f"({c_type})values[{at}].integer"

    def described(self) -> str:
        return f"{self.name}: an integer."


@dataclass(frozen=True, kw_only=True)
class Text(ServiceParameter):
    """A text, or none."""

    role: ClassVar[str] = "text"
    may_be_none: bool = False

    @property
    def token(self) -> str:
        return f"{self.kind}:{self.name}" + (":none" if self.may_be_none else "")

    def declaration(self, device: bool) -> str:
        return f"const char *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const char *", f"values[{at}].pointer"

    def is_host_address(self, device: bool) -> bool:
        return not self.may_be_none

    def annotation(self, on_device: bool | None = None) -> str:
        return "str | None" if self.may_be_none else "str"

    def described(self) -> str:
        return f"{self.name}: a string{' or None' if self.may_be_none else ''}."


@dataclass(frozen=True, kw_only=True)
class SetStream(ServiceParameter):
    """A stream of the caller's own, for an object."""

    role: ClassVar[str] = "native_stream"

    def declaration(self, device: bool) -> str:
        return f"void *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return "SupportsStream"

    def described(self) -> str:
        return f"{self.name}: an object with __cuda_stream__; it lives as long as the handle that has it."


@dataclass(frozen=True, kw_only=True)
class Given(ServiceParameter):
    """An output, through a pointer or returned: an integer, an enum, a text, a stream, an object."""

    what: str  # integer, enum, text, stream or new
    in_python: ClassVar[bool] = False
    enum: Enum | None = None
    object_kind: ObjectKind | None = None
    returned: bool = False  # as the function's return value; then it is the last one of the record

    @property
    def role(self) -> str:  # type: ignore[override]
        return "returned" if self.returned else "gives"

    @property
    def last(self) -> bool:  # type: ignore[override]
        return self.returned

    @property
    def token(self) -> str:
        if self.object_kind:
            return f"new:{self.name}:{self.object_kind.name}"
        return f"gives:{self.name}:{self.dtype or self.what}"

    @property
    def c_value(self) -> str:
        """Returns the type of the output in the typed C function."""
        if self.object_kind:
            return "oa_object *"
        if self.what == "text":
            return "const char *"
        return "void *" if self.what == "stream" else f"{C_INTEGER[self.dtype]} "

    def declaration(self, device: bool) -> str:
        return f"{self.c_value}*{self.name}"

    def initializer(self, device: bool) -> str:
        return "{0}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def vendor(self, at: int) -> tuple[str, str]:
        return "void *", f"&values[{at}]"

    def annotation(self, on_device: bool | None = None) -> str:
        if self.object_kind:
            return self.object_kind.name
        return {"text": "str", "stream": "SupportsStream"}.get(self.what, "int")

    def in_words(self) -> str:
        """Returns what it is, for the docstring."""
        if self.object_kind:
            return f"a new {self.object_kind.name}"
        if self.enum:
            return f"{self.name}: {self.enum.names}"
        what = {"text": "a string", "stream": "an object with __cuda_stream__"}.get(self.what, "an integer")
        return what if self.returned else f"{self.name}: {what}"


def _integer(c_type: str, named: dict[str, str]) -> str:
    """Returns the dtype of an integer's C type, which [raw] may define; "" of other types."""
    plain = c_type.removeprefix("enum ")
    return INTEGERS.get(named.get(plain, plain), "")


def read(
    name: str, c_type: str, label: str, *, kinds: dict[str, ObjectKind], enums: dict[str, Enum], named: dict[str, str]
) -> Parameter | str | None:
    """Returns the parameter of a label that only services have, a fault of it, or None for another label.

    kinds: the [object] tables by key. enums: the enums of the file by key. named: the C definitions of types, as [raw]
    has them; the header's enums are "int" there.
    """
    wrong = f"labelled {label}, but its type is {c_type}"
    found = re.fullmatch(r"(object|ended|new) (\w+)", label)
    if found:
        word, kind = found[1], kinds.get(found[2])
        if kind is None:
            return f"labelled {label}, and there is no [object.{found[2]}]"
        if c_type.replace(" *", "*") != kind.type + ("*" if word == "new" else ""):
            return wrong
        if word == "new":
            return Given(name=name, c_type=c_type, what="new", object_kind=kind)
        return (Object if word == "object" else Ended)(name=name, c_type=c_type, object_kind=kind)
    if label == "integer":
        dtype = _integer(c_type, named)
        return Integer(name=name, c_type=c_type, dtype=dtype) if dtype else wrong
    if label in ("text", "text or none"):
        return Text(name=name, c_type=c_type, may_be_none=label != "text") if c_type == "const char *" else wrong
    if label == "sets stream":
        return SetStream(name=name, c_type=c_type)
    found = re.fullmatch(r"(gives|returned) (\w+)", label)
    if not found:
        return None
    returned, what = found[1] == "returned", found[2]
    pointee = c_type if returned else c_type.removesuffix("*").strip()
    if not returned and not c_type.endswith("*"):
        return wrong
    if what == "text":
        return Given(name=name, c_type=c_type, what=what, returned=returned) if pointee == "const char *" else wrong
    if what == "stream":
        return Given(name=name, c_type=c_type, what=what, returned=returned)
    if what != "integer" and what not in enums:
        return f"labelled {label}, and there is no such thing to give"
    enum = enums.get(what)
    dtype = _integer(pointee, named)
    if not dtype or (enum and pointee != enum.type):
        return wrong
    return Given(name=name, c_type=c_type, what="integer", enum=enum, dtype=dtype, returned=returned)
