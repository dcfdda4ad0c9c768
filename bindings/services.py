"""The roles of functions that work on no array: objects, integers, texts, streams, outputs.

A *service* is a function that has no array and no number of BLAS: it makes, sets, asks, names or destroys. Its
parameters are of the classes here, enums and sizes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import ClassVar

from .parameters import EXTENTS, NUMPY, Enum, Extent, Parameter

# Integers by their C types, as dtypes; a number of a service has the bits of its type.
INTEGERS = {
    "_Bool": "u8",
    "int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "long long": "i64",
    "unsigned long long": "u64",
    "size_t": "u64",
}
C_INTEGER = {"u8": "unsigned char", "i32": "int", "u32": "unsigned", "i64": "int64_t", "u64": "uint64_t"}


@dataclass(frozen=True)
class ObjectKind:
    """A kind of object that a library makes: the table [object.<key>] of its roles file."""

    key: str
    type: str  # in C
    name: str  # of its class in Python
    destroy: str  # the function that destroys one
    is_handle: bool  # it is the library's handle, of one device and with a stream
    describes: tuple[str, str, str] = ("", "", "")  # memory: the functions that say how, and how many bytes; "": none
    attributes: tuple[str, str] = ("", "")  # the enum of dtypes, and the beginning of the functions' names in Python


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


# The characters of Python's struct module for the fields of a struct.
FIELDS = {"char": "b", "int": "i", "unsigned": "I", "float": "f", "double": "d", "size_t": "N", "int64_t": "q"}
FIELDS |= {"int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H", "int32_t": "i", "uint32_t": "I"}
FIELDS |= {"uint64_t": "Q", "long long": "q"}


@dataclass(frozen=True, kw_only=True)
class Struct(ServiceParameter):
    """A struct by value, whose definition is under [raw]."""

    role: ClassVar[str] = "struct"
    format: str  # of its fields
    definition: str
    typedef: str  # its name in the C of this package

    @property
    def token(self) -> str:
        return f"{self.kind}:{self.name}:{self.format}"

    def declaration(self, device: bool) -> str:
        return f"{self.typedef} {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = &{self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return self.typedef, f"*(const {self.typedef} *)values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"tuple[{', '.join('float' if one in 'fd' else 'int' for one in self.format)}] | np.void"

    def described(self) -> str:
        return f"{self.name}: a tuple of {len(self.format)} numbers, or an element of a structured array."


def struct_format(definition: str) -> str:
    """Returns the format of the fields of "struct { int x, y; }"; "" if it is another definition."""
    types = [c_type for _, c_type in struct_fields(definition)]
    return "".join(FIELDS[one] for one in types) if FIELDS.keys() >= set(types) else ""


def struct_fields(definition: str) -> list[tuple[str, str]]:
    """Returns name and C type of each field of "struct { const void *a, *b; int c; }"; [] of another definition."""
    found = re.fullmatch(r"struct \{(.*)\}", definition, re.DOTALL)
    fields = []
    for field in filter(str.strip, found[1].split(";") if found else []):
        declared = re.fullmatch(r"\s*(\w+(?: \w+)*)\s+(\*?\w+(?:\s*,\s*\*?\w+)*)\s*", field)
        if not declared:
            return []
        for name in re.findall(r"\*?\w+", declared[2]):
            fields.append((name.lstrip("*"), f"{declared[1]} *" if name.startswith("*") else declared[1]))
    return fields


@dataclass(frozen=True, kw_only=True)
class Kept(ServiceParameter):
    """Device memory that the library may use from now on: it lives as long as the object that has it."""

    role: ClassVar[str] = "keeps"
    size: ast.expr  # how many elements; of any dtype, how many bytes

    def declaration(self, device: bool) -> str:
        return f"oa_{self.dtype} *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        pointer = "DevicePtr[Any]" if self.dtype == "any" else f"DevicePtr[np.{NUMPY[self.dtype]}]"
        return f"{pointer} | None"

    def described(self) -> str:
        size = f"{ast.unparse(self.size)} {'bytes' if self.dtype == 'any' else 'elements'}"
        return f"{self.name}: a DevicePtr of {size}, whose memory lives as long as the object has it, or None."


@dataclass(frozen=True, kw_only=True)
class HostArray(ServiceParameter):
    """An array of the host."""

    role: ClassVar[str] = "host"
    extent: Extent
    writes: bool

    @property
    def kind(self) -> str:
        return "host_out" if self.writes else "host_in"

    @property
    def expressions(self) -> list[ast.expr]:
        """Returns the expressions of its extent."""
        return self.extent.expressions

    def declaration(self, device: bool) -> str:
        return f"{'' if self.writes else 'const '}void *{self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.host = {{{self.name}, NULL}}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].host.address"

    def annotation(self, on_device: bool | None = None) -> str:
        return "npt.NDArray[Any]"

    def described(self) -> str:
        words = ", ".join(ast.unparse(one) for one in self.extent.arguments)
        does = "written" if self.writes else "read"
        return f"{self.name}: a NumPy array, of which {self.extent.kind}({words}) is {does}."


@dataclass(frozen=True, kw_only=True)
class Given(ServiceParameter):
    """An output, through a pointer or returned: an integer, an enum, a text, a stream, an object."""

    what: str  # integer, enum, text, stream, kept or new
    in_python: ClassVar[bool] = False
    last: ClassVar[bool] = True
    enum: Enum | None = None
    object_kind: ObjectKind | None = None
    returned: bool = False  # as the function's return value; then it is the last one of the record

    @property
    def role(self) -> str:  # type: ignore[override]
        return "returned" if self.returned else "gives"

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
        if self.what == "kept":
            return "const oa_any *"
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
        return {"text": "str", "stream": "SupportsStream", "kept": "DevicePtr[Any] | None"}.get(self.what, "int")

    def in_words(self) -> str:
        """Returns what it is, for the docstring."""
        if self.object_kind:
            return f"a new {self.object_kind.name}"
        if self.enum:
            return f"{self.name}: {self.enum.names}"
        words = {"text": "a string", "stream": "an object with __cuda_stream__", "kept": "the DevicePtr that was set"}
        what = words.get(self.what, "an integer")
        return what if self.returned else f"{self.name}: {what}"


@dataclass(frozen=True)
class Labels:
    """Reads the labels of services, for one library."""

    library: str  # its name
    kinds: dict[str, ObjectKind]  # the [object] tables by key
    enums: dict[str, Enum]  # by key
    named: dict[str, str]  # the C definitions of types, as [raw] has them; the header's enums are "int"

    def read(self, name: str, c_type: str, label: str) -> Parameter | str | None:
        """Returns the parameter of a label that only services have, a fault of it, or None for another label."""
        for pattern, of in (
            (r"(object|ended|new) (\w+)", self._object),
            (r"(integer)", self._integer),
            (r"(text)( or none)?", self._text),
            (r"(struct)", self._struct),
            (r"keeps (elements|bytes)\((.+)\)", self._kept),
            (r"host (in|out) (.+)", self._host_array),
            (r"(sets) stream", self._stream),
            (r"(gives|returned) (\w+)", self._given),
        ):
            found = re.fullmatch(pattern, label)
            if found:
                word, more = found[1], found[found.re.groups] or ""
                return of(name, c_type, word, more) or f"labelled {label}, but its type is {c_type}"
        return None

    def dtype(self, c_type: str) -> str:
        """Returns the dtype of an integer's C type, which [raw] may define; "" of other types."""
        plain = c_type.removeprefix("enum ")
        return INTEGERS.get(self.named.get(plain, plain), "")

    # Each returns the parameter, a fault, or None for a type that the label does not fit.

    def _object(self, name: str, c_type: str, word: str, key: str) -> Parameter | str | None:
        kind = self.kinds.get(key)
        if kind is None:
            return f"labelled {word} {key}, and there is no [object.{key}]"
        if c_type.replace(" *", "*") != kind.type + ("*" if word == "new" else ""):
            return None
        if word == "new":
            return Given(name=name, c_type=c_type, what="new", object_kind=kind)
        return (Object if word == "object" else Ended)(name=name, c_type=c_type, object_kind=kind)

    def _integer(self, name: str, c_type: str, *_: str) -> Parameter | None:
        dtype = self.dtype(c_type)
        return Integer(name=name, c_type=c_type, dtype=dtype) if dtype else None

    def _text(self, name: str, c_type: str, _: str, or_none: str) -> Parameter | None:
        return Text(name=name, c_type=c_type, may_be_none=bool(or_none)) if c_type == "const char *" else None

    def _struct(self, name: str, c_type: str, *_: str) -> Parameter | str:
        definition = self.named.get(c_type, "")
        fields = struct_format(definition)
        if not fields:
            return f"labelled struct, but its type is {c_type}, which [raw] has to define: struct {{ int x, y; }}"
        typedef = f"oa_{self.library}_{c_type}"
        return Struct(name=name, c_type=c_type, format=fields, definition=definition, typedef=typedef)

    def _kept(self, name: str, c_type: str, unit: str, size: str) -> Parameter | None:
        pointee = c_type.removesuffix("*").strip()
        dtype = INTEGERS.get(pointee, "") if unit == "elements" else "any" if pointee == "void" else ""
        if not dtype or not c_type.endswith("*"):
            return None
        return Kept(name=name, c_type=c_type, dtype=dtype, size=ast.parse(size, mode="eval").body)

    def _host_array(self, name: str, c_type: str, direction: str, text: str) -> Parameter | str | None:
        call = ast.parse(text, mode="eval").body
        kind = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if not isinstance(call, ast.Call) or kind not in EXTENTS or len(call.args) not in EXTENTS[kind][0]:
            return f"{text!r} is not an extent; there are {', '.join(EXTENTS)}"
        if c_type != ("const void *" if direction == "in" else "void *"):
            return None
        extent = Extent(kind, tuple(call.args))
        return HostArray(name=name, c_type=c_type, extent=extent, writes=direction == "out")

    def _stream(self, name: str, c_type: str, *_: str) -> Parameter:
        return SetStream(name=name, c_type=c_type)

    def _given(self, name: str, c_type: str, word: str, what: str) -> Parameter | str | None:
        returned = word == "returned"
        pointee = c_type if returned else c_type.removesuffix("*").strip()
        if not returned and not c_type.endswith("*"):
            return None
        if what in ("text", "stream", "kept"):
            right = what != "text" or pointee == "const char *"
            return Given(name=name, c_type=c_type, what=what, returned=returned) if right else None
        if what != "integer" and what not in self.enums:
            return f"labelled {word} {what}, and there is no such thing to give"
        enum, dtype = self.enums.get(what), self.dtype(pointee)
        if not dtype or (enum and pointee != enum.type):
            return None
        return Given(name=name, c_type=c_type, what="integer", enum=enum, dtype=dtype, returned=returned)
