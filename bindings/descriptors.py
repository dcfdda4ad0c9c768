"""The roles of libraries with descriptors: extents from descriptors, workspaces, lists, and real numbers.

words.md describes the words. emit/descriptors.py writes the bodies of functions that have these roles.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from .helper_functions import C_INTEGER, FIELDS, Given, HelperParameter, HostArray, Object, struct_format
from .labelled import Extent, Label, Labelled, pointee
from .parameters import Array, Number, Parameter, Scalar, device_pointer

REALS = {"float": "f32", "double": "f64"}
# `describes` of [object.<key>] has the name of the queried function, and one of these words for each parameter of it.
WORDS = ("dtype", "rank", "shape", "strides", "lengths", "unused", "none")
MOST_DIMENSIONS = 8  # OA_MOST_DIMENSIONS of csrc/body/descriptor.h


@dataclass(frozen=True)
class Query:
    """A function of the library that returns the bytes that a call needs: its symbol, arguments and output."""

    symbol: str
    arguments: tuple[ast.expr, ...]
    output: str  # the name of the parameter for the output; "" for the only output
    beside: tuple[tuple[str, str], ...] = ()  # (output, the array without which NULL is passed for it)

    @property
    def text(self) -> str:
        """Return the query as text for messages."""
        return f"{self.symbol}({', '.join(map(ast.unparse, self.arguments))})"


def query_from(text: str) -> Query | None:
    """Return the query of "cudnnGetX(a, b)", "cudnnGetX(a, b).c" or "cudnnGetX(a, d=array).c"; None for other text."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    output = ""
    if isinstance(tree, ast.Attribute):
        output, tree = tree.attr, tree.value
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return None
    beside = tuple((keyword.arg or "", ast.unparse(keyword.value)) for keyword in tree.keywords)
    return Query(tree.func.id, tuple(tree.args), output, beside)


@dataclass(frozen=True, kw_only=True)
class Room(Array):
    """Device memory whose size in bytes a query returns: a workspace, or data that a call leaves for a later call."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"(?P<direction>in|out|inout) (?P<rest>bytes\(.+)",
            "inout bytes(size)",
            "`size` bytes of any dtype; `; at least xGetReserveSize(xDesc)`: at least as many bytes as that "
            "function returns",
        ),
        Label(
            r"workspace\((?P<size>\w+)\) by (?P<query>.+)",
            "workspace(size) by xGetWorkspaceSize(xDesc)",
            "device memory of as many bytes as that function returns; the function takes the handle, the "
            "arguments and an output. If the caller passes no workspace, it comes from the device's pool. "
            "`xGetSizes(xDesc, nbytes=reserve).size`: the output `size`; `nbytes` is NULL in calls without "
            "an array `reserve`",
        ),
    )
    query: Query | None = None
    is_workspace: bool = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if "direction" in match.groupdict():
            said = cls.fields(labelled, match)
            return cls(**said) if said else None
        if labelled.c_type != "void *":
            labelled.wrong_type()
            return None
        query = query_from(match["query"])
        if query is None or query.symbol not in labelled.scope.functions:
            labelled.fault(f"{match['query']!r} is not a function of the header, with its arguments")
            return None
        return cls(
            name=labelled.name,
            c_type=labelled.c_type,
            dtype="any",
            direction="out",
            extent=Extent("bytes", (ast.Name(match["size"]),)),
            optional=True,
            query=query,
            is_workspace=True,
        )

    @classmethod
    def clause(cls, labelled: Labelled, text: str, direction: str, extent: Extent) -> dict[str, Any] | None:
        query = query_from(text.removeprefix("at least ")) if text.startswith("at least ") else None
        if query:
            return {"query": query}
        said = super().clause(labelled, text, direction, extent)
        return said if said and said.keys() <= {"despite_const", "optional"} else None

    def declaration(self, device: bool) -> str:
        return f"{'const ' if self.is_read_only else ''}oa_any *{self.name}"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{device_pointer(self)} | None" if self.is_workspace or self.optional else device_pointer(self)


@dataclass(frozen=True, kw_only=True)
class Factor(Scalar):
    """A number on the host: a double if a descriptor's elements are doubles, else a float."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"factor of (?P<by>\w+)",
            "factor of yDesc",
            "a number of the host: a double if `yDesc` describes doubles, and a float otherwise",
        ),
    )
    by: str  # the name of the descriptor of the elements

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.c_type not in ("const void *", "void *"):
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type, dtype="f64", by=match["by"])

    def initializer(self, device: bool) -> str:
        return f"{{.real = {self.name}}}"

    def declaration(self, device: bool) -> str:
        return f"double {self.name}"


@dataclass(frozen=True, kw_only=True)
class OptionalObject(Object):
    """An object, which the caller may leave out."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(r"object (?P<key>\w+) or none", "object tensor or none", "an object, or NULL"),
    )

    @property
    def kind(self) -> str:
        return "object?"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{self.object_kind.name} | None"

    def described(self) -> str:
        return f"{self.name}: {self.object_kind.with_article}, or None."


@dataclass(frozen=True, kw_only=True)
class HeldObject(OptionalObject):
    """An object, or none, that the call's first object uses from now on."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(r"keeps (?P<key>\w+)", "keeps tensor", "an object, or NULL, that the first object uses from now on"),
    )

    @property
    def kind(self) -> str:
        return "holds"


@dataclass(frozen=True, kw_only=True)
class Real(HelperParameter):
    """A real number by value."""

    labels: ClassVar[tuple[Label, ...]] = (Label("real", "real", "a real number by value"),)
    role: ClassVar[str] = "scalar"

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.c_type not in REALS:
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=REALS[labelled.c_type])

    @property
    def c_number(self) -> str:
        """Return the number's type in C."""
        return "float" if self.dtype == "f32" else "double"

    def declaration(self, device: bool) -> str:
        return f"{self.c_number} {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.{'single' if self.dtype == 'f32' else 'real'} = {self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return self.c_number, f"values[{at}].{'single' if self.dtype == 'f32' else 'real'}"

    def annotation(self, on_device: bool | None = None) -> str:
        return "float"

    def described(self) -> str:
        return f"{self.name}: a number."


@dataclass(frozen=True, kw_only=True)
class Integers(HelperParameter):
    """A list of integers on the host."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"integers(?:\((?P<length>[^)]+)\)(?P<optional> or none)?)?",
            "integers(n)",
            "a list of at least n integers; `integers`: a list of any length; `integers(n) or none`: such a "
            "list, or NULL",
        ),
    )
    role: ClassVar[str] = "integers"
    length: ast.expr | None  # the least number of integers; None for any number
    optional: bool = False  # whether the caller may pass no list

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        dtype = labelled.integer_dtype(pointee(labelled.c_type)[0])
        if dtype not in ("i32", "u32", "i64"):
            labelled.wrong_type()
            return None
        length = ast.parse(match["length"], mode="eval").body if match["length"] else None
        optional = match["optional"] is not None
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=dtype, length=length, optional=optional)

    @property
    def more(self) -> str:
        return "none" if self.optional else ""

    def preparation(self) -> str:
        return f"const oa_number_list {self.name}_list = {{{self.name}, -1, sizeof *{self.name}}};"

    def declaration(self, device: bool) -> str:
        return f"const {C_INTEGER[self.dtype]} *{self.name}"

    def initializer(self, device: bool) -> str:
        there = f"{self.name} ? &{self.name}_list : NULL" if self.optional else f"&{self.name}_list"
        return f"{{.pointer = {there}}}"

    def is_host_address(self, device: bool) -> bool:
        return not self.optional

    def vendor(self, at: int) -> tuple[str, str]:
        there = f"((const oa_number_list *)values[{at}].pointer)->at"
        return "const void *", f"values[{at}].pointer ? {there} : NULL" if self.optional else there

    def annotation(self, on_device: bool | None = None) -> str:
        return f"Sequence[int]{' | None' * self.optional}"

    def described(self) -> str:
        many = f"{ast.unparse(self.length)} integers" if self.length else "integers"
        return f"{self.name}: a sequence of {many}{', or None' * self.optional}."


@dataclass(frozen=True, kw_only=True)
class GivenReal(Given):
    """An output that is a real number."""

    labels: ClassVar[tuple[Label, ...]] = (Label("gives real", "gives real", "an output that is a real number"),)

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        c_type = labelled.c_type
        dtype = REALS.get(c_type.removesuffix("*").strip(), "") if c_type.endswith("*") else ""
        if not dtype:
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=c_type, value_kind="real", dtype=dtype)

    @property
    def c_value(self) -> str:
        return "float " if self.dtype == "f32" else "double "

    def annotation(self, on_device: bool | None = None) -> str:
        return "float"

    def in_words(self) -> str:
        return f"{self.name}: a number"


@dataclass(frozen=True, kw_only=True)
class GivenList(Given):
    """An output of several integers or structs; an argument is their number."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"gives (?P<kind>integers|structs)\((?P<length>\w+)\)",
            "gives integers(n)",
            "an output of n integers; `gives structs(n)`: an output of n structs, which `[raw]` defines",
        ),
    )
    length: str  # the name of this argument
    at: int  # the place of this argument in the record
    format: str = ""  # the format of a struct's fields

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        name, c_type, length = labelled.name, labelled.c_type, match["length"]
        dtype, form = "", ""
        if match["kind"] == "integers":
            dtype = _pointed_to(labelled)
        else:
            form = struct_format(labelled.scope.named.get(c_type.removesuffix("*").strip(), ""))
        if not dtype and not form:
            labelled.wrong_type()
            return None
        if length not in labelled.scope.order:
            labelled.fault(f"{length} is not a parameter that comes before it")
            return None
        at = labelled.scope.order.index(length)
        return cls(name=name, c_type=c_type, value_kind="list", dtype=dtype, length=length, at=at, format=form)

    @property
    def kind(self) -> str:
        return "gives_list"

    @property
    def more(self) -> str:
        return self.format

    @property
    def c_value(self) -> str:
        if self.format:
            return "void "
        return {"i32": "int ", "u32": "unsigned "}[self.dtype]

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = {self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "void *", f"(void *)values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        if self.format:
            return "list[tuple[Any, ...]]"
        return "tuple[int, ...]"

    def in_words(self) -> str:
        return f"{self.name}: {self.length} {'tuples' if self.format else 'integers'}"


@dataclass(frozen=True, kw_only=True)
class GivenPlace(Given):
    """An output that is an address inside an array. Python gets its offset in bytes from the array's start, or None."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"gives address in (?P<inside>\w+)",
            "gives address in weights",
            "an address inside the array `weights`; in Python it is the number of bytes from the array's start",
        ),
    )
    inside: str

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.c_type != "void **":
            labelled.wrong_type()
            return None
        return cls(
            name=labelled.name, c_type=labelled.c_type, value_kind="integer", dtype="i64", inside=match["inside"]
        )

    @property
    def c_value(self) -> str:
        return "int64_t "

    def in_words(self) -> str:
        return f"{self.name}: how many bytes after the start of {self.inside} it is"


@dataclass(frozen=True, kw_only=True)
class Nothing(HelperParameter):
    """A pointer that is always NULL."""

    labels: ClassVar[tuple[Label, ...]] = (Label("nothing", "nothing", "a pointer that is always NULL"),)
    role: ClassVar[str] = "nothing"
    in_record: ClassVar[bool] = False
    in_python: ClassVar[bool] = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if not labelled.c_type.endswith("*"):
            labelled.wrong_type()
            return None
        return cls(name=labelled.name, c_type=labelled.c_type)

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", "NULL"


@dataclass(frozen=True, kw_only=True)
class Elements(HostArray):
    """A host array of the dtype that an enum determines."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"host (?P<direction>in|out) elements\((?P<count>.+)\) of (?P<type_of>\w+)",
            "host in elements(n) of dtype",
            "a NumPy array of the dtype that the enum `dtype` gives; `host out ...`: such an array that is written",
        ),
    )
    type_of: str

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        writes = match["direction"] == "out"
        if labelled.c_type not in ("void *", "void *" if writes else "const void *"):
            labelled.wrong_type()
            return None
        extent = Extent("elements", (ast.parse(match["count"], mode="eval").body,))
        return cls(name=labelled.name, c_type=labelled.c_type, extent=extent, writes=writes, type_of=match["type_of"])

    def described(self) -> str:
        does = "written" if self.writes else "read"
        count = ast.unparse(self.extent.arguments[0])
        elements = "1 element" if count == "1" else f"{count} elements"
        return f"{self.name}: a NumPy array of {elements} of {self.type_of}, {does}."


@dataclass(frozen=True, kw_only=True)
class Bytes(HostArray):
    """A host array with a number of bytes. `type_of` is the enum that determines its dtype."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"host (?P<direction>in|out) bytes\((?P<size>.+)\)(?: of (?P<type_of>\w+))?",
            "host in bytes(n) of attribute",
            "bytes of a NumPy array with the dtype of an attribute, or None; without `of`, the array has any "
            "dtype; `host out ...`: such an array that is written",
        ),
    )
    type_of: str = ""

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        to, const = pointee(labelled.c_type)
        writes = match["direction"] == "out"
        known = to in ("void", "char") or labelled.scope.named.get(to, "").startswith("struct {")
        if not known or const == writes:
            labelled.wrong_type()
            return None
        extent = Extent("bytes", (ast.parse(match["size"], mode="eval").body,))
        of = match["type_of"] or ""
        return cls(name=labelled.name, c_type=labelled.c_type, extent=extent, writes=writes, type_of=of)

    @property
    def more(self) -> str:
        return "none"

    def annotation(self, on_device: bool | None = None) -> str:
        return "npt.NDArray[Any] | None"

    def described(self) -> str:
        does = "written" if self.writes else "read"
        count = ast.unparse(self.extent.arguments[0])
        dtype = f" of {self.type_of}'s dtype" if self.type_of else ""
        return f"{self.name}: a NumPy array{dtype}, of which {count} bytes are {does}."


def _pointed_to(labelled: Labelled) -> str:
    """Return the dtype of a pointer or array of 32-bit integers; "" for other parameters."""
    dtype = labelled.integer_dtype(pointee(labelled.c_type)[0])
    return dtype if dtype in ("i32", "u32") else ""


def unnoticed_change(symbol: str, parameters: list[Parameter]) -> str:
    """Return the reason why a function may change an object unnoticed, with the role that causes it; or "".

    The core remembers the settings of an object until the object is passed to a helper function, or to a function with
    an output `gives`. No other function may change an object. A function changes an object if it writes nothing else,
    or if the function's name contains the name of the object's type, as cudnnSetDropoutDescriptor does.
    """
    kinds = [
        parameter.object_kind
        for parameter in parameters
        if isinstance(parameter, Object) and not parameter.object_kind.is_handle and not parameter.object_kind.tells
    ]
    # A function without arrays and numbers is a helper function, whose changes are noticed.
    works = [parameter for parameter in parameters if isinstance(parameter, (Array, Number))]
    if not kinds or not works or any(isinstance(parameter, Given) for parameter in parameters):
        return ""
    written = [work for work in works if not isinstance(work, Scalar) and getattr(work, "direction", "out") != "in"]
    why = ""
    if all(isinstance(array, Room) and array.is_workspace for array in written):
        why = "the function writes no array and no number"
    for kind in kinds:
        named = kind.type.removesuffix("_t")
        if named.removeprefix(os.path.commonprefix([symbol, named])) in symbol:  # noqa: RUF071
            why = f"the function is named after {kind.type}"
    if not why:
        return ""
    return (
        f"{(written or works)[0].name}: {why}, so it changes a {kinds[0].name}, whose extents the core remembers; "
        f"make it a helper function, with `real` numbers and arrays of the host or that the object `keeps`, or label "
        f"an output `gives`"
    )


@dataclass(frozen=True, kw_only=True)
class Address(HelperParameter):
    """The address of an object of another library."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label("(?P<gives>gives )?address", "address", "an object of another library; `gives address`"),
    )
    role: ClassVar[str] = "integer"

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if not match["gives"]:
            return cls(name=labelled.name, c_type=labelled.c_type, dtype="u64")
        if not labelled.c_type.endswith("*"):
            labelled.wrong_type()
            return None
        return Given(name=labelled.name, c_type=labelled.c_type, value_kind="integer", dtype="u64")

    def declaration(self, device: bool) -> str:
        return f"const void *{self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = (int64_t)(intptr_t){self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"(const void *)(intptr_t)values[{at}].integer"

    def described(self) -> str:
        return f"{self.name}: an address, as an integer."


__all__ = ["FIELDS", "MOST_DIMENSIONS", "WORDS", "Address", "Bytes", "Elements", "Factor", "GivenList", "GivenPlace"]
__all__ += [
    "GivenReal",
    "Integers",
    "Nothing",
    "OptionalObject",
    "Query",
    "Real",
    "Room",
    "unnoticed_change",
]
