"""The roles of functions that take no device array: objects, integers, texts, streams, outputs.

A *helper function* has no array and no number of BLAS. It makes, sets, queries, names or destroys an object. Its
parameters are enums, sizes, and instances of the classes of this module.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import ClassVar

from .labelled import EXTENTS, Enum, Extent, Label, Labelled, ObjectKind
from .parameters import Parameter

C_INTEGER = {"u8": "unsigned char", "i32": "int", "u32": "unsigned", "i64": "int64_t", "u64": "uint64_t"}


@dataclass(frozen=True, kw_only=True)
class HelperParameter(Parameter):
    """A parameter that only helper functions have."""

    passed: ClassVar[bool] = True  # whether it is passed to the vendor's function
    in_python: ClassVar[bool] = True  # whether the Python function takes it

    def vendor(self, at: int) -> tuple[str, str]:
        """Return the C type and the expression that the vendor's function takes; `at` is the place of the value."""
        raise NotImplementedError

    def described(self) -> str:
        """Return the parameter's line of the docstring, or "", if it shares a line with others."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Object(HelperParameter):
    """An object that the library made."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(r"object (?P<key>\w+)", "object tensor", "an object that the library made: `[object.tensor]`"),
    )
    role: ClassVar[str] = "object"
    object_kind: ObjectKind

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        kind = labelled.kind(match["key"])
        return cls(name=labelled.name, c_type=labelled.c_type, object_kind=kind) if kind else None

    @property
    def more(self) -> str:
        return self.object_kind.name

    def declaration(self, device: bool) -> str:
        return f"const oa_object *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return self.object_kind.name

    def described(self) -> str:
        return f"{self.name}: {self.object_kind.with_article}."


@dataclass(frozen=True, kw_only=True)
class Ended(Object):
    """An object that the function destroys."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(r"ended (?P<key>\w+)", "ended tensor", "the object that the function destroys, as its only parameter"),
    )
    role: ClassVar[str] = "ended"

    def declaration(self, device: bool) -> str:
        return f"oa_object *{self.name}"


@dataclass(frozen=True, kw_only=True)
class DeviceNumber(HelperParameter):
    """The device of a new object, which the vendor's function takes from the current context."""

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
class Integer(HelperParameter):
    """A plain integer, which the vendor's manual defines."""

    labels: ClassVar[tuple[Label, ...]] = (Label("integer", "integer", "an integer whose meaning is in the manual"),)
    role: ClassVar[str] = "integer"

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        dtype = labelled.integer_dtype(labelled.c_type)
        if not dtype:
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=dtype)

    def declaration(self, device: bool) -> str:
        return f"{C_INTEGER[self.dtype]} {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = (int64_t){self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        c_type = C_INTEGER[self.dtype]
        return c_type, f"({c_type})values[{at}].integer"


@dataclass(frozen=True, kw_only=True)
class SetStream(HelperParameter):
    """The caller's own stream, for an object."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label("sets stream", "sets stream", "a stream of the caller, for the object in the parameter before"),
    )
    role: ClassVar[str] = "native_stream"

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        return cls(name=labelled.name, c_type=labelled.c_type)

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


def struct_format(definition: str) -> str:
    """Return the format of the fields of a definition such as "struct { int x, y; }"; "" for another definition."""
    types = [c_type for _, c_type in struct_fields(definition)]
    return "".join(FIELDS[type_] for type_ in types) if FIELDS.keys() >= set(types) else ""


def struct_fields(definition: str) -> list[tuple[str, str]]:
    """Return the name and C type of each field of a type such as "struct { const void *a, *b; int c; }", or []."""
    match = re.fullmatch(r"struct \{(.*)\}", definition, re.DOTALL)
    fields = []
    for field in filter(str.strip, match[1].split(";") if match else []):
        declared = re.fullmatch(r"\s*(\w+(?: \w+)*)\s+(\*?\w+(?:\s*,\s*\*?\w+)*)\s*", field)
        if not declared:
            return []
        for name in re.findall(r"\*?\w+", declared[2]):
            fields.append((name.lstrip("*"), f"{declared[1]} *" if name.startswith("*") else declared[1]))
    return fields


def struct_bytes(definition: str) -> int:
    """Return the size of a definition such as "struct { char data[128]; }"; 0 for another definition."""
    match = re.fullmatch(r"struct \{ (?:unsigned )?char \w+\[(\d+)\]; \}", definition)
    return int(match[1]) if match else 0


@dataclass(frozen=True, kw_only=True)
class ByValue(HelperParameter):
    """A struct of bytes that is passed by value."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label("bytes", "bytes", "a struct by value, which `[raw]` defines as an array of char; bytes in Python"),
    )
    role: ClassVar[str] = "bytes"

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        size = struct_bytes(labelled.scope.named.get(labelled.c_type, ""))
        if not size:
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type, dtype="u8", count=size)

    def declaration(self, device: bool) -> str:
        return f"const void *{self.name}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def vendor(self, at: int) -> tuple[str, str]:
        return f"oa_bytes_{self.count}", f"*(const oa_bytes_{self.count} *)values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return "bytes"

    def described(self) -> str:
        return f"{self.name}: {self.count} bytes."


@dataclass(frozen=True, kw_only=True)
class Kept(HelperParameter):
    """Device memory that the library may use from now on; it lives as long as the object that uses it."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"keeps bytes\((?P<size>.+)\)",
            "keeps bytes(n)",
            "device memory that the object in the parameter before keeps alive",
        ),
    )
    role: ClassVar[str] = "keeps"
    size: ast.expr  # the number of bytes

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.c_type != "void *":
            labelled.wrong_type()
            return None
        size = ast.parse(match["size"], mode="eval").body
        return cls(name=labelled.name, c_type=labelled.c_type, dtype="any", size=size)

    def declaration(self, device: bool) -> str:
        return f"oa_{self.dtype} *{self.name}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return "DevicePtr[Any] | None"

    def described(self) -> str:
        size = f"{ast.unparse(self.size)} bytes"
        return f"{self.name}: a DevicePtr of {size}, whose memory lives as long as the object has it, or None."


@dataclass(frozen=True, kw_only=True)
class HostArray(HelperParameter):
    """An array of the host."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            "host (?P<direction>in|out) (?P<extent>.+)",
            "host in vector(n, incx)",
            "an array of the host that is read; `host out ...`: an array of the host that is written",
        ),
    )
    role: ClassVar[str] = "host"
    extent: Extent
    writes: bool

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        call = ast.parse(match["extent"], mode="eval").body
        kind = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if not isinstance(call, ast.Call) or kind not in EXTENTS or len(call.args) not in EXTENTS[kind][0]:
            labelled.fault(f"{match['extent']!r} is not an extent; there are {', '.join(EXTENTS)}")
            return None
        writes = match["direction"] == "out"
        if labelled.c_type != ("void *" if writes else "const void *"):
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type, extent=Extent(kind, tuple(call.args)), writes=writes)

    @property
    def kind(self) -> str:
        return "host_out" if self.writes else "host_in"

    @property
    def expressions(self) -> list[ast.expr]:
        """Return the expressions of the array's extent."""
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
        words = ", ".join(ast.unparse(argument) for argument in self.extent.arguments)
        does = "written" if self.writes else "read"
        return f"{self.name}: a NumPy array, of which {self.extent.kind}({words}) is {does}."


@dataclass(frozen=True, kw_only=True)
class Given(HelperParameter):
    """An output, which is written through a pointer or returned: an integer, an enum, a text, a stream, an object."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(r"new (?P<key>\w+)", "new tensor", "an object that the function makes; Python returns it"),
        Label(
            r"(?P<way>gives|returned) (?P<kind>\w+)",
            "gives math_mode",
            "an output, which Python returns: a constant of an enum, an `integer`, a `text` or a `stream`. "
            "`returned integer`: C's return value",
        ),
    )
    value_kind: str  # "integer", "enum", "text", "stream" or "new"
    in_python: ClassVar[bool] = False
    last: ClassVar[bool] = True
    enum: Enum | None = None
    object_kind: ObjectKind | None = None
    returned: bool = False  # whether it is the function's return value, and the last value of the record

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        name, c_type = labelled.name, labelled.c_type
        if labelled.label.startswith("new "):
            object_kind = labelled.kind(match["key"])
            return cls(name=name, c_type=c_type, value_kind="new", object_kind=object_kind) if object_kind else None
        kind, returned = match["kind"], match["way"] == "returned"
        to = c_type if returned else c_type.removesuffix("*").strip()
        if not returned and not c_type.endswith("*"):
            labelled.wrong_type()
            return None
        if kind in ("text", "stream"):
            if kind == "text" and to != "const char *":
                labelled.wrong_type()
                return None
            return cls(name=name, c_type=c_type, value_kind=kind, returned=returned)
        if kind != "integer" and kind not in labelled.scope.enums:
            labelled.fault(f"labelled {labelled.label}, and there is no such thing to give")
            return None
        enum, dtype = labelled.scope.enums.get(kind), labelled.integer_dtype(to)
        if not dtype or (enum and to != enum.type):
            labelled.wrong_type()
            return None
        return cls(name=name, c_type=c_type, value_kind="integer", enum=enum, dtype=dtype, returned=returned)

    @property
    def role(self) -> str:  # type: ignore[override]
        return "returned" if self.returned else "gives"

    @property
    def kind(self) -> str:
        return "new" if self.object_kind else "gives"

    @property
    def more(self) -> str:
        return self.object_kind.name if self.object_kind else "" if self.dtype else self.value_kind

    @property
    def c_value(self) -> str:
        """Return the type of the output in the typed C function."""
        if self.object_kind:
            return "oa_object *"
        if self.value_kind == "text":
            return "const char *"
        return "void *" if self.value_kind == "stream" else f"{C_INTEGER[self.dtype]} "

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
        return {"text": "str", "stream": "SupportsStream"}.get(self.value_kind, "int")

    def in_words(self) -> str:
        """Return the description of the output, for the docstring."""
        if self.object_kind:
            return f"a new {self.object_kind.name}"
        if self.enum:
            return f"{self.name}: {self.enum.names}"
        words = {"text": "a string", "stream": "an object with __cuda_stream__"}
        word = words.get(self.value_kind, "an integer")
        return word if self.returned else f"{self.name}: {word}"


@dataclass(frozen=True, kw_only=True)
class GivenBytes(Given):
    """An output that is a struct of bytes."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"gives bytes of (?P<shown>\w+)",
            "gives bytes of UniqueId",
            "a struct, which `[raw]` defines as an array of char; in Python it is an object of this class, "
            "which is made from bytes",
        ),
    )
    shown_as: str  # the name of its class, which [library] adds

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        c_type = labelled.c_type
        size = struct_bytes(labelled.scope.named.get(c_type.removesuffix("*").strip(), ""))
        if not size or not c_type.endswith("*"):
            labelled.wrong_type()
            return None
        name, shown = labelled.name, match["shown"]
        return cls(name=name, c_type=c_type, value_kind="bytes", dtype="u8", count=size, shown_as=shown)

    @property
    def kind(self) -> str:
        return "gives_bytes"

    @property
    def more(self) -> str:
        return self.shown_as

    @property
    def c_value(self) -> str:
        return "void "

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = {self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "void *", f"(void *)values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        return self.shown_as

    def in_words(self) -> str:
        return f"a {self.shown_as} of {self.count} bytes"
