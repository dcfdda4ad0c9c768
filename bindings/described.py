"""The roles of libraries with descriptors: extents that a descriptor says, workspaces, lists, and real numbers.

roles.py explains the words. emit/described.py writes the bodies of functions that have them.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from typing import ClassVar

from .parameters import Array, Extent, Number, Parameter, Scalar, device_pointer
from .services import FIELDS, Given, HostArray, Labels, Object, ServiceParameter, struct_format

REALS = {"float": "f32", "double": "f64"}
# The words of [object.<key>] describes, after the function that is asked: what each of its parameters is.
WORDS = ("dtype", "rank", "shape", "strides", "lengths", "unused", "none")
MOST_DIMENSIONS = 8  # OA_MOST_DIMENSIONS of csrc/call/described.h


@dataclass(frozen=True)
class Query:
    """A function of the library that says how many bytes a call needs: its symbol, arguments and output."""

    symbol: str
    arguments: tuple[ast.expr, ...]
    output: str  # the name of that parameter; "" of its only one
    beside: tuple[tuple[str, str], ...] = ()  # an output, and the array of the call without which it is NULL

    @property
    def text(self) -> str:
        """Returns it as messages name it."""
        return f"{self.symbol}({', '.join(map(ast.unparse, self.arguments))})"


def query_from(text: str) -> Query | None:
    """Returns the query of "cudnnGetX(a, b)", "cudnnGetX(a, b).c" or "cudnnGetX(a, d=array).c"; None of other text."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    output = ""
    if isinstance(found, ast.Attribute):
        output, found = found.attr, found.value
    if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Name):
        return None
    beside = tuple((one.arg or "", ast.unparse(one.value)) for one in found.keywords)
    return Query(found.func.id, tuple(found.args), output, beside)


@dataclass(frozen=True, kw_only=True)
class Room(Array):
    """Device memory of so many bytes that a query says: a workspace, or what a call leaves for a later one."""

    query: Query | None = None
    is_workspace: bool = False

    def declaration(self, device: bool) -> str:
        return f"{'const ' if self.is_read_only else ''}oa_any *{self.name}"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{device_pointer(self)} | None" if self.is_workspace or self.optional else device_pointer(self)


@dataclass(frozen=True, kw_only=True)
class Factor(Scalar):
    """A number on the host: a double if the elements that a descriptor describes are doubles, else a float."""

    by: str  # the descriptor
    is_element: bool  # it becomes an element, whose dtype has to hold it

    def initializer(self, device: bool) -> str:
        return f"{{.real = {self.name}}}"

    def declaration(self, device: bool) -> str:
        return f"double {self.name}"


@dataclass(frozen=True, kw_only=True)
class Weight(Scalar):
    """A number on the host, real or complex, whose dtype a descriptor says."""


@dataclass(frozen=True, kw_only=True)
class OptionalObject(Object):
    """An object, or none."""

    @property
    def kind(self) -> str:
        return "object?"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{self.object_kind.name} | None"

    def described(self) -> str:
        return f"{self.name}: a {self.object_kind.name}, or None."


@dataclass(frozen=True, kw_only=True)
class HeldObject(OptionalObject):
    """An object that the first one uses from now on, or none."""

    @property
    def kind(self) -> str:
        return "holds"


@dataclass(frozen=True, kw_only=True)
class Real(ServiceParameter):
    """A real number by value."""

    role: ClassVar[str] = "scalar"

    @property
    def c_number(self) -> str:
        """Returns its type in C."""
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
class NumberOf(Real):
    """A real number that the vendor reads behind a pointer, in the dtype that an enum says."""

    type_of: str

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"&{self.name}_number"

    def described(self) -> str:
        return f"{self.name}: a number, which becomes one of {self.type_of}."


@dataclass(frozen=True, kw_only=True)
class Integers(ServiceParameter):
    """A list of integers on the host."""

    role: ClassVar[str] = "integers"
    length: ast.expr | None  # how many there are at least; None: as many as the caller passes

    def preparation(self) -> str:
        return f"const oa_number_list {self.name}_list = {{{self.name}, -1, sizeof *{self.name}}};"

    def declaration(self, device: bool) -> str:
        return f"const {'unsigned' if self.dtype == 'u32' else 'int'} *{self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = &{self.name}_list}}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", f"((const oa_number_list *)values[{at}].pointer)->at"

    def annotation(self, on_device: bool | None = None) -> str:
        return "Sequence[int]"

    def described(self) -> str:
        many = f"{ast.unparse(self.length)} integers" if self.length else "integers"
        return f"{self.name}: a sequence of {many}."


@dataclass(frozen=True, kw_only=True)
class GivenReal(Given):
    """An output that is a real number; type_of: in the dtype that another output says."""

    type_of: str = ""

    @property
    def c_value(self) -> str:
        return "float " if self.dtype == "f32" else "double "

    def annotation(self, on_device: bool | None = None) -> str:
        return "float"

    def in_words(self) -> str:
        return f"{self.name}: a number"


@dataclass(frozen=True, kw_only=True)
class GivenList(Given):
    """An output of as many integers, characters or structs as an argument says."""

    length: str  # that argument
    at: int  # its place in the record
    format: str = ""  # of a struct's fields

    @property
    def token(self) -> str:
        return f"gives_list:{self.name}:{self.format or self.dtype or 'text'}:{self.at}"

    @property
    def c_value(self) -> str:
        if self.format:
            return "void "
        return {"i32": "int ", "u32": "unsigned ", "": "char "}[self.dtype]

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = {self.name}}}"

    def vendor(self, at: int) -> tuple[str, str]:
        return "void *", f"(void *)values[{at}].pointer"

    def annotation(self, on_device: bool | None = None) -> str:
        if self.format:
            return "list[tuple[Any, ...]]"
        return "tuple[int, ...]" if self.dtype else "str"

    def in_words(self) -> str:
        what = "tuples" if self.format else "integers" if self.dtype else "characters, as a string"
        return f"{self.name}: {self.length} {what}"


@dataclass(frozen=True, kw_only=True)
class GivenPlace(Given):
    """An output that is an address inside an array: Python has the bytes from the array's start, or None."""

    inside: str

    @property
    def c_value(self) -> str:
        return "int64_t "

    def in_words(self) -> str:
        return f"{self.name}: how many bytes behind the start of {self.inside} it is"


@dataclass(frozen=True, kw_only=True)
class Nothing(ServiceParameter):
    """A pointer that is always NULL."""

    role: ClassVar[str] = "nothing"
    in_record: ClassVar[bool] = False
    in_python: ClassVar[bool] = False

    def vendor(self, at: int) -> tuple[str, str]:
        return "const void *", "NULL"


@dataclass(frozen=True, kw_only=True)
class Elements(HostArray):
    """An array of the host, of the dtype that an enum says."""

    type_of: str

    def described(self) -> str:
        does = "written" if self.writes else "read"
        count = ast.unparse(self.extent.arguments[0])
        return f"{self.name}: a NumPy array of {count} elements of {self.type_of}, {does}."


@dataclass(frozen=True, kw_only=True)
class Bytes(HostArray):
    """So many bytes of an array of the host; type_of: of the dtype that an enum says."""

    type_of: str = ""
    may_lack: bool = False

    @property
    def token(self) -> str:
        return f"{self.kind}:{self.name}:none"

    def annotation(self, on_device: bool | None = None) -> str:
        return "npt.NDArray[Any] | None"

    def described(self) -> str:
        does = "written" if self.writes else "read"
        count = ast.unparse(self.extent.arguments[0])
        dtype = f" of {self.type_of}'s dtype" if self.type_of else ""
        return f"{self.name}: a NumPy array{dtype}, of which {count} bytes are {does}{'; or None' * self.may_lack}."


def unnoticed_change(symbol: str, parameters: list[Parameter]) -> str:
    """Returns why a function may change an object without that being noticed, with the role that makes it so; or "".

    The core remembers what objects say until a service, or a function with an output `gives`, has them. No other
    function may change one. A function changes one if it writes nothing else, or if the name of the object's type is in
    its own, as in cudnnSetDropoutDescriptor.
    """
    kinds = [one.object_kind for one in parameters if isinstance(one, Object) and not one.object_kind.is_handle]
    works = [one for one in parameters if isinstance(one, (Array, Number))]  # without any it is a service
    if not kinds or not works or any(isinstance(one, Given) for one in parameters):
        return ""
    written = [one for one in works if not isinstance(one, Scalar) and getattr(one, "direction", "out") != "in"]
    why = ""
    if all(isinstance(one, Room) and one.is_workspace for one in written):
        why = "the function writes no array and no number"
    for kind in kinds:
        named = kind.type.removesuffix("_t")
        if named.removeprefix(os.path.commonprefix([symbol, named])) in symbol:
            why = f"the function is named after {kind.type}"
    if not why:
        return ""
    return (
        f"{(written or works)[0].name}: {why}, so it changes a {kinds[0].name}, whose extents the core remembers; "
        f"have it be a service, with `real` numbers and arrays of the host or that the object `keeps`, or label an "
        f"output `gives`"
    )


class Reader:
    """Reads these labels for one function."""

    def __init__(self, labels: Labels, order: list[str]) -> None:
        """order: the names of the function's parameters as they stand in the record."""
        self.labels = labels
        self.order = order

    def read(self, name: str, c_type: str, label: str) -> Parameter | str | None:
        """Returns the parameter of a label, a fault of it, or None for a label of another kind."""
        for pattern, of in (
            (r"object (\w+) or none", self._object),
            (r"holds (\w+)", self._held),
            (r"host ((?:in|out) elements\(\w+\) of \w+)", self._elements),
            (r"host ((?:in|out) bytes\(.+\)(?: of \w+| or none)?)", self._bytes),
            (r"(weight)", self._weight),
            (r"(real)", self._real),
            (r"gives (real)", self._given_real),
            (r"gives number of (\w+)", self._given_number),
            (r"number of (\w+)", self._number),
            (r"integers(?:\((.+)\))?", self._integers),
            (r"gives integers\((\w+)\)", self._given_integers),
            (r"gives structs\((\w+)\)", self._given_structs),
            (r"gives text\((\w+)\)", self._given_text),
            (r"gives place in (\w+)", self._given_place),
            (r"gives (address)", self._given_address),
            (r"(address)", self._address),
            (r"(nothing)", self._nothing),
        ):
            found = re.fullmatch(pattern, label)
            if found:
                return of(name, c_type, found[1] or "") or f"labelled {label}, but its type is {c_type}"
        return None

    def place(self, name: str) -> int:
        return self.order.index(name) if name in self.order else -1

    def _object(self, name: str, c_type: str, key: str) -> Parameter | str | None:
        kind = self.labels.kinds.get(key)
        if kind is None:
            return f"there is no [object.{key}]"
        return OptionalObject(name=name, c_type=c_type, object_kind=kind) if c_type == kind.type else None

    def _held(self, name: str, c_type: str, key: str) -> Parameter | str | None:
        kind = self.labels.kinds.get(key)
        return HeldObject(name=name, c_type=c_type, object_kind=kind) if kind and c_type == kind.type else None

    def _elements(self, name: str, c_type: str, text: str) -> Parameter | None:
        direction, extent, _, type_of = text.split(" ")
        if c_type != ("const void *" if direction == "in" else "void *"):
            return None
        count = ast.Name(extent.removeprefix("elements(").removesuffix(")"))
        made = Extent("elements", (count,))
        return Elements(name=name, c_type=c_type, extent=made, writes=direction == "out", type_of=type_of)

    def _bytes(self, name: str, c_type: str, text: str) -> Parameter | None:
        found = re.fullmatch(r"(in|out) bytes\((.+)\)(?: of (\w+))?( or none)?", text)
        pointee = re.fullmatch(r"(const )?(\w+) ?(?:\*|\[\])", c_type)
        if not found or not pointee or bool(pointee[1]) != (found[1] == "in"):
            return None
        if pointee[2] != "void" and not self.labels.named.get(pointee[2], "").startswith("struct {"):
            return None
        made = Extent("bytes", (ast.parse(found[2], mode="eval").body,))
        of, lacks = found[3] or "", bool(found[4])
        return Bytes(name=name, c_type=c_type, extent=made, writes=found[1] == "out", type_of=of, may_lack=lacks)

    def _weight(self, name: str, c_type: str, _: str) -> Parameter | None:
        return Weight(name=name, c_type=c_type, dtype="c128") if c_type == "const void *" else None

    def _real(self, name: str, c_type: str, _: str) -> Parameter | None:
        return Real(name=name, c_type=c_type, dtype=REALS[c_type]) if c_type in REALS else None

    def _given_real(self, name: str, c_type: str, _: str) -> Parameter | None:
        dtype = REALS.get(c_type.removesuffix("*").strip(), "") if c_type.endswith("*") else ""
        return GivenReal(name=name, c_type=c_type, what="real", dtype=dtype) if dtype else None

    def _given_number(self, name: str, c_type: str, type_of: str) -> Parameter | None:
        known = c_type == "void *"
        return GivenReal(name=name, c_type=c_type, what="real", dtype="f64", type_of=type_of) if known else None

    def _number(self, name: str, c_type: str, type_of: str) -> Parameter | None:
        known = c_type in ("void *", "const void *")
        return NumberOf(name=name, c_type=c_type, dtype="f64", type_of=type_of) if known else None

    def _pointed_to(self, c_type: str) -> str:
        """Returns the dtype of the integers behind a pointer or array, of 32 bits; "" if there are none."""
        found = re.fullmatch(r"(?:const )?(\w[\w ]*?) ?(?:\*|\[\])", c_type)
        dtype = self.labels.dtype(found[1]) if found else ""
        return dtype if dtype in ("i32", "u32") else ""

    def _integers(self, name: str, c_type: str, length: str) -> Parameter | None:
        dtype = self._pointed_to(c_type)
        count = ast.parse(length, mode="eval").body if length else None
        return Integers(name=name, c_type=c_type, dtype=dtype, length=count) if dtype else None

    def _list(self, name: str, c_type: str, length: str, dtype: str = "", form: str = "") -> Parameter | str:
        at = self.place(length)
        if at < 0:
            return f"{length} is not a parameter that comes before it"
        return GivenList(name=name, c_type=c_type, what="list", dtype=dtype, length=length, at=at, format=form)

    def _given_integers(self, name: str, c_type: str, length: str) -> Parameter | str | None:
        dtype = self._pointed_to(c_type)
        return self._list(name, c_type, length, dtype=dtype) if dtype else None

    def _given_structs(self, name: str, c_type: str, length: str) -> Parameter | str | None:
        fields = struct_format(self.labels.named.get(c_type.removesuffix("*").strip(), ""))
        return self._list(name, c_type, length, form=fields) if fields else None

    def _given_text(self, name: str, c_type: str, length: str) -> Parameter | str | None:
        return self._list(name, c_type, length) if c_type == "char *" else None

    def _given_place(self, name: str, c_type: str, inside: str) -> Parameter | None:
        known = c_type == "void **"
        return GivenPlace(name=name, c_type=c_type, what="integer", dtype="i64", inside=inside) if known else None

    def _given_address(self, name: str, c_type: str, _: str) -> Parameter | None:
        is_place = c_type.endswith("*")
        return Given(name=name, c_type=c_type, what="integer", dtype="u64") if is_place else None

    def _address(self, name: str, c_type: str, _: str) -> Parameter:
        return Address(name=name, c_type=c_type, dtype="u64")

    def _nothing(self, name: str, c_type: str, _: str) -> Parameter | None:
        return Nothing(name=name, c_type=c_type) if c_type.endswith("*") else None


@dataclass(frozen=True, kw_only=True)
class Address(ServiceParameter):
    """The address of an object of another library."""

    role: ClassVar[str] = "integer"

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
    "NumberOf",
    "OptionalObject",
    "Query",
    "Reader",
    "Real",
    "Room",
    "Weight",
    "unnoticed_change",
]
