"""One class for each role of a parameter. It describes the parameter in C, in records, in Python and in its docs."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from .declarations import entries
from .labelled import Enum, Extent, Label, Labelled, listed_pointee, pointee

NUMPY = {name: text for _, name, _, _, text in entries("dtypes")}
NOT_NUMPYS = {name for _, name, _, kind, _ in entries("dtypes") if kind == "0"}  # nor a type for checkers
# The C type of a number on the host, and the members of oa_value that hold it. An index has 64 bits on the host.
C_NUMBER = {"f32": "float", "f64": "double", "c64": "float _Complex", "c128": "double _Complex", "i32": "int64_t"}
MEMBER = {"f32": "single", "f64": "real", "c64": "single_parts", "c128": "parts", "i32": "integer"}
PYTHON = {"f32": "float", "f64": "float", "c64": "complex", "c128": "complex", "i32": "int"}
# Dtypes for which C has no type. A scalar of such a dtype is a float in C, which is rounded.
ROUNDED = ("f16", "bf16")
C_NUMBER |= dict.fromkeys(ROUNDED, "float")
MEMBER |= dict.fromkeys(ROUNDED, "half")
PYTHON |= dict.fromkeys(ROUNDED, "float")

MOST_NUMBERS = 8  # the most numbers of one parameter; OA_MOST_SLOTS has room for one such parameter
# Integer types of 32 bits, unless they have 64 bits in a library.
NARROW = ("int", "blasint")
SIZE_TYPES = (*NARROW, "int64_t", "size_t", "long long", "long long int")
# The integers that have 32 bits in every form of a function.
SHORT = ("int32_t", "uint32_t")


# The text after the first word of a number's label.
_NUMBER = r"(?:\[(?P<count>\d+)\])?(?: of (?P<of>\w+))?(?P<anyhow>; despite const)?"


def device_pointer(parameter: Parameter) -> str:
    """Return the Python type of a DevicePtr to an operand."""
    return (
        "DevicePtr[Any]" if parameter.of or parameter.dtype in NOT_NUMPYS else f"DevicePtr[np.{NUMPY[parameter.dtype]}]"
    )


# {field of an array: the clause that sets it}; clauses follow the array's extent.
CLAUSES = {
    "overwrites": Label(
        "overwrites if (.+)", "overwrites if beta == 0", "for `inout`: if the test holds, the array is not read"
    ),
    "in_place": Label(
        r"may be (\w+(?: or \w+)*)(?: at (.+?))?(?: if (.+))?",
        "may be A or B",
        "the array may have the memory of these operands, whose labels say the same; `may be C if transa == "
        "OP_N`; `may be C at rank * n`: the memory that begins so many elements after the start of C",
    ),
    "optional": Label("optional", "optional", "the argument may be NULL"),
    "optional_if": Label("optional if (.+)", "optional if jobu == JOB_N", "the argument may be NULL if the test holds"),
    "repeats": Label("may repeat", "may repeat", "a vector's increment may be 0: then one element is repeated"),
    "becomes": Label(
        "becomes (.+)", "becomes matrix(n, m, ldb)", "for `inout`: the shape of the matrix after the call"
    ),
    "despite_const": Label(
        "despite const",
        "despite const",
        "write this if the header's const is wrong: on an array that is written, or missing on one that is read",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a vendor's function."""

    labels: ClassVar[tuple[Label, ...]] = ()
    role: ClassVar[str] = ""
    in_record: ClassVar[bool] = True  # whether the caller passes it
    last: ClassVar[bool] = False  # whether it is the last value of the record
    in_python: ClassVar[bool] = True  # whether the Python function takes it, a result by name, others by position
    name: str
    c_type: str
    dtype: str = ""
    count: int = 1
    of: str = ""  # the DataType that determines the dtype, which is "any" in this case
    complex_as: str = ""  # the array that determines whether the dtype is real or complex; families.py finds it
    field_of: str = ""  # the struct whose field it is; the vendor's function gets a pointer to the struct

    @property
    def kind(self) -> str:
        """Return the parameter's role in the record, in the spelling of csrc/include/offload_args/roles.def."""
        return self.role

    @property
    def more(self) -> str:
        """Return the rest of the parameter's record, after role, name and dtype: `more` of an oa_role."""
        return self.of

    @property
    def is_pointer(self) -> bool:
        """Return whether the vendor takes an address."""
        return self.c_type.endswith(("*", "]"))

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        """Return the parameter of a label that fits one of `labels`.

        If it is not possible, note a fault and return None.
        """
        raise NotImplementedError

    # -- the typed C function --

    def declaration(self, device: bool) -> str:
        """Return the parameter's declaration in the typed C function."""
        raise NotImplementedError

    def preparation(self) -> str:
        """Return the statement of the typed C function that the parameter's initializer needs, or ""."""
        return ""

    def initializer(self, device: bool) -> str:
        """Return the initializer of the parameter's oa_value in the typed C function."""
        return f"{{.pointer = {self.name}}}"

    def is_host_address(self, device: bool) -> bool:
        """Return whether the typed C function takes a host address for the parameter."""
        return False

    # -- Python --

    def shown(self) -> str:
        """Return the parameter's part of the Python function's signature."""
        return self.name

    def annotation(self, on_device: bool | None = None) -> str:
        """Return the parameter's type for static checkers.

        `on_device`: whether a number is on the device; None for either.
        """
        return "int"


@dataclass(frozen=True, kw_only=True)
class EnumValue(Parameter):
    """A constant of the vendor."""

    role: ClassVar[str] = "enum"
    enum: Enum

    @classmethod
    def from_enum(cls, labelled: Labelled, enum: Enum) -> Parameter:
        """Return the parameter whose label names an enum of [enums]."""
        if labelled.plain != enum.type:
            labelled.fault(f"labelled {labelled.label} ({enum.type}), but its type is {labelled.c_type}")
        return (DataType if enum.dtypes else cls)(name=labelled.name, c_type=labelled.c_type, enum=enum)

    def declaration(self, device: bool) -> str:
        return f"int {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = {self.name}}}"


@dataclass(frozen=True, kw_only=True)
class DataType(EnumValue):
    """A constant of the vendor that stands for a dtype."""

    role: ClassVar[str] = "type"

    @property
    def more(self) -> str:
        return "of array" if self.enum.from_array else ""

    def annotation(self, on_device: bool | None = None) -> str:
        return f"int | npt.DTypeLike{' | None' if self.enum.from_array else ''}"


@dataclass(frozen=True, kw_only=True)
class Size(Parameter):
    """A size, a leading dimension, an increment or a stride."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            "size|ld|inc|stride",
            "size, ld, inc, stride",
            "a size, a leading dimension, an increment, a distance of matrices in elements",
        ),
        Label("length", "length", "a size that may be negative, which counts as 0, as in level 1"),
        Label("value", "value", "any integer that expressions may name"),
        Label("itemsize", "itemsize", "the bytes of an element of each `void *` array"),
        Label(
            "tried stride",
            "tried stride",
            "a stride that some versions of a library of the CPU count in real numbers, also for complex "
            "matrices: a first call, of two products of one element, shows how the loaded version counts",
        ),
    )
    label: str  # "size", "ld", "inc", "stride" or "integer"
    may_be_negative: bool = False  # whether it may be negative, and then counts as 0
    is_tried: bool = False  # whether it is a stride whose unit is determined by a first call

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        is_tried, is_length = labelled.label == "tried stride", labelled.label == "length"
        if is_tried and (labelled.plain not in SIZE_TYPES or labelled.scope.has_backend):
            labelled.wrong_type(", or the library has a backend")
        elif labelled.plain not in SIZE_TYPES and not (labelled.label == "value" and labelled.plain in SHORT):
            is_name = labelled.plain.isidentifier() and not labelled.dtype(labelled.plain)
            labelled.wrong_type(f'; if that is an integer, say which: integers.{labelled.plain} = "int64_t"' * is_name)
        return cls(
            name=labelled.name,
            c_type=labelled.c_type,
            label="stride" if is_tried else "size" if is_length else labelled.label,
            may_be_negative=is_length,
            is_tried=is_tried and labelled.scope.letter in ("c", "z"),
        )

    @property
    def role(self) -> str:  # type: ignore[override]
        return self.label

    @property
    def kind(self) -> str:
        return "size"

    @property
    def is_short(self) -> bool:
        """Return whether the size has 32 bits in every form of the function."""
        return self.c_type in SHORT

    @property
    def is_narrow(self) -> bool:
        """Return whether the size has 32 bits in a function without a form with 64-bit sizes."""
        return self.c_type in NARROW

    def declaration(self, device: bool) -> str:
        return f"int64_t {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = {self.name}}}"


@dataclass(frozen=True, kw_only=True)
class Array(Parameter):
    """A device array."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"(?P<direction>in|out|inout)\b ?(?P<rest>.*)",
            "in matrix(m, n, lda)",
            "a device array: `in` is read, and `inout` is read and written; every element of the extent of an "
            "`out` is written, and none is read. Clauses follow after `;`",
        ),
    )
    role: ClassVar[str] = "array"
    direction: str  # "in", "out" or "inout"
    extent: Extent
    overwrites: ast.expr | None = None
    in_place: tuple[str, ...] = ()  # the operands whose memory this array may be
    in_place_at: ast.expr | None = None  # the offset from the start of these operands, in elements
    in_place_if: ast.expr | None = None  # the condition under which it may be their memory
    becomes: Extent | None = None  # the extent of the same memory after the call, in another shape
    repeats: bool = False  # whether it is a vector whose increment may be 0
    optional: bool = False  # whether the caller may leave it out
    optional_if: ast.expr | None = None  # the condition under which the caller may leave it out
    noted_by: str = ""  # the object whose note has the dtype, which is "any" in this case

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        said = cls.fields(labelled, match)
        if said is None:
            return None
        return (PointerArray if said["extent"].pointers else Array)(**said)

    @classmethod
    def fields(cls, labelled: Labelled, match: re.Match[str]) -> dict[str, Any] | None:
        """Return the values of the array's fields. If there is no extent, note a fault and return None."""
        direction, c_type = match["direction"], labelled.c_type
        text, *clauses = (part.strip() for part in match["rest"].split(";"))
        text, _, of = text.partition(" of ")
        noted_by = ""
        kind = labelled.scope.objects.get(of)
        if kind and not kind.describes[0]:
            of, noted_by = "", of
        extent = labelled.extent(text)
        if extent is None:
            return None
        said: dict[str, Any] = {}
        for clause in clauses:
            value = cls.clause(labelled, clause, direction, extent)
            if value is None:
                labelled.fault(f"{clause!r} is not understood")
            said |= value or {}
        despite_const = said.pop("despite_const", False)
        pointers = extent.pointers
        to, const = listed_pointee(c_type) if pointers else pointee(c_type)
        if pointers and of and not to:  # one library declares void * instead of void **
            to, const = pointee(c_type)
        dtype = labelled.dtype(to)
        if of or noted_by or extent.kind in ("described", "bytes"):
            dtype = "any" if to == "void" else ""
        if not to or not dtype:
            labelled.fault(f"labelled {'pointers' if pointers else 'an array'}, but its type is {c_type}")
        elif direction != "in" and const != despite_const:
            labelled.fault(f"labelled {direction}, but its type is {c_type}")
        elif direction == "in" and const == despite_const:
            labelled.fault(
                f"labelled in, but its type is {c_type}, {'whatever despite const says' if const else 'not const'}"
            )
        said |= {"name": labelled.name, "c_type": c_type, "dtype": dtype, "direction": direction, "extent": extent}
        return said | {"of": of, "noted_by": noted_by}

    @classmethod
    def clause(cls, labelled: Labelled, text: str, direction: str, extent: Extent) -> dict[str, Any] | None:
        """Return the fields that a clause after the extent sets, or None for an unknown clause."""
        matches = ((key, re.fullmatch(clause.pattern, text, re.DOTALL)) for key, clause in CLAUSES.items())
        key, match = next((pair for pair in matches if pair[1]), ("", None))
        if not match:
            return None
        match key:
            case "despite_const":
                return {key: True}
            case "optional" if not extent.pointers:
                return {key: True}
            case "optional_if" if not extent.pointers:
                return {key: labelled.parse(match[1])}
            case "overwrites" if direction == "inout":
                return {key: labelled.parse(match[1])}
            case "in_place":
                return {
                    key: tuple(match[1].split(" or ")),
                    "in_place_at": labelled.parse(match[2]) if match[2] else None,
                    "in_place_if": labelled.parse(match[3]) if match[3] else None,
                }
            case "becomes" if direction == "inout":
                return {key: labelled.extent(match[1])}
            case "repeats" if extent.kind == "vector":
                return {key: True}
        return None

    @property
    def kind(self) -> str:
        return f"{self.direction}?" if self.optional or self.optional_if else self.direction

    @property
    def is_read_only(self) -> bool:
        return self.direction == "in"

    @property
    def by(self) -> str:
        """Return the descriptor that determines the array's dtype and extent, or ""."""
        return ast.unparse(self.extent.arguments[0]) if self.extent.kind == "described" else ""

    @property
    def extents(self) -> list[Extent]:
        """Return the array's extent, and the extent that replaces it."""
        return [self.extent, *([self.becomes] if self.becomes else [])]

    @property
    def expressions(self) -> list[ast.expr]:
        """Return every expression of the array's label."""
        inside = [expression for extent in self.extents for expression in extent.expressions]
        return [*inside, *([self.in_place_at] if self.in_place_at else []), *self.tests]

    @property
    def tests(self) -> list[ast.expr]:
        """Return the tests of the array's clauses."""
        return [condition for condition in (self.overwrites, self.in_place_if, self.optional_if) if condition]

    def declaration(self, device: bool) -> str:
        return f"{'const ' if self.is_read_only else ''}oa_{self.dtype} *{self.name}"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{device_pointer(self)}{' | None' if self.optional or self.optional_if else ''}"


@dataclass(frozen=True, kw_only=True)
class PointerArray(Array):
    """Device arrays whose number is an argument: a list of pointers, or one pointer with one more axis."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"(?P<direction>in|out|inout) (?P<rest>(?:pointers|grouped)\(.+)",
            "in pointers(matrix(m, n, lda), count)",
            "arrays of a batch. Python takes a list of DevicePtrs, or one DevicePtr whose first axis counts "
            "the arrays; C takes an array of handles. The addresses go to the device as an array",
        ),
    )

    @property
    def kind(self) -> str:
        return f"{self.direction}*"

    def declaration(self, device: bool) -> str:
        return f"{super().declaration(device).removesuffix(self.name)}const *{self.name}"

    def preparation(self) -> str:
        pointers = f"(const void *const *){self.name}"
        return f"const oa_pointer_list {self.name}_list = {{.at = {pointers}, .count = -1}};"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = &{self.name}_list}}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def annotation(self, on_device: bool | None = None) -> str:
        pointer = super().annotation(on_device)
        return f"{pointer} | Sequence[{pointer}]"


@dataclass(frozen=True, kw_only=True)
class HostList(Parameter):
    """A host array with a value for each group: a constant of an enum, a size, a leading dimension, or a number."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            r"(?P<role>\w+) list\((?P<length>\w+)\)",
            "size list(groups)",
            "an array on the host, of `groups` values; also `ld list`, `scalar list` and, for an enum, `<enum> list`",
        ),
    )
    role: ClassVar[str] = "list"
    label: str  # "enum", "size", "ld" or "scalar"
    length: str  # the parameter that is its length
    enum: Enum | None = None

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        element = re.fullmatch(r"const (.+?) ?(?:\*|\[\])", labelled.c_type)
        c_type = element[1] if element else ""
        label = match["role"]
        dtype, enum = "", None
        if label in labelled.scope.enums:
            label, enum = "enum", labelled.scope.enums[label]
            right = c_type.removeprefix("enum ") == enum.type
        elif label == "scalar":
            dtype = labelled.dtype(c_type)
            right = dtype in C_NUMBER and dtype != "i32"
        else:
            right = label in ("size", "ld") and c_type in SIZE_TYPES
        if not right:
            labelled.fault(f"labelled {label} list, but its type is {labelled.c_type}")
        length = match["length"]
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=dtype, label=label, length=length, enum=enum)

    @property
    def kind(self) -> str:
        return f"{'size' if self.label == 'ld' else self.label}*"

    @property
    def is_narrow(self) -> bool:
        """Return whether its integers have 32 bits in a function that has no form with 64-bit sizes."""
        return self.label in ("size", "ld") and self.c_type.removeprefix("const ").split(" ")[0].rstrip("[]*") in NARROW

    def declaration(self, device: bool) -> str:
        scalar = C_NUMBER.get(self.dtype, "")
        return f"const {({'enum': 'int', 'scalar': scalar}).get(self.label, 'int64_t')} *{self.name}"

    def preparation(self) -> str:
        return f"const oa_number_list {self.name}_list = {{{self.name}, -1, sizeof *{self.name}}};"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = &{self.name}_list}}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def annotation(self, on_device: bool | None = None) -> str:
        return f"Sequence[{PYTHON[self.dtype] if self.dtype else 'int'}]"


@dataclass(frozen=True, kw_only=True)
class Number(Parameter):
    """A number, or several numbers, on the host or the device."""

    is_read_only: ClassVar[bool] = False
    comes_back: ClassVar[bool] = True

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        return cls(**cls.fields(labelled, match, match[0].partition("[")[0].split(" ")[0].rstrip(";")))

    @classmethod
    def fields(cls, labelled: Labelled, match: re.Match[str], role: str) -> dict[str, Any]:
        """Return the values of the number's fields; `role` is the first word of the label."""
        count, of = int(match["count"] or 1), match["of"] or ""
        if not 0 < count <= MOST_NUMBERS:
            labelled.fault(f"{labelled.label!r}: a number of 1 to {MOST_NUMBERS} is needed")
        to, const = pointee(labelled.c_type)
        dtype = labelled.dtype(to or labelled.plain)
        if of:
            dtype = "any" if to == "void" and role != "returned" else ""
        by_value = role == "returned" or (role == "scalar" and not to and count == 1)
        on_gpu = by_value and labelled.scope.has_backend
        right = not to if by_value else bool(to) and (const != bool(match["anyhow"])) == (role == "scalar")
        takes_rounded = (role == "scalar" and not on_gpu and count == 1) or (
            role == "result" and labelled.scope.on_device
        )
        if not right or not dtype or (dtype == "i32" and role not in ("result", "returned")):
            labelled.wrong_type()
        elif not of and (dtype not in C_NUMBER or (dtype in ROUNDED and not takes_rounded)):
            labelled.fault(f"labelled {labelled.label}, and there are no such numbers of {dtype} yet")
        return {"name": labelled.name, "c_type": labelled.c_type, "dtype": dtype, "count": count, "of": of}

    @property
    def python(self) -> str:
        """Return the type of one number in Python."""
        return "complex" if self.of else PYTHON[self.dtype]

    @property
    def is_void(self) -> bool:
        """Return whether the typed C function takes a plain address of the number, whose dtype each call determines."""
        return bool(self.of) and self.count == 1

    def declaration(self, device: bool) -> str:
        const = "const " if self.is_read_only else ""
        if device:
            return f"{const}oa_{self.dtype} *{self.name}"
        return f"{const}{'void' if self.of else C_NUMBER[self.dtype]} *{self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = {self.name}}}" if device or self.count > 1 else "{0}"

    def is_host_address(self, device: bool) -> bool:
        return not device

    def annotation(self, on_device: bool | None = None) -> str:
        pointer = device_pointer(self)
        if on_device:
            return pointer
        number = self.python if self.count == 1 else f"Sequence[{self.python}]"
        return f"{number} | {pointer}" if on_device is None else number


@dataclass(frozen=True, kw_only=True)
class Scalar(Number):
    """A number that is read."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            "scalar" + _NUMBER,
            "scalar, scalar[5]",
            "a number that is read, or five numbers, on the host or the device. `scalar of dtype`: the "
            "argument `dtype` gives the number's dtype; if no enum of that C type has a complex dtype, the "
            "number is complex if the written array is complex. `scalar; despite const`: the header lacks a"
            " const",
        ),
    )
    role: ClassVar[str] = "scalar"
    is_read_only: ClassVar[bool] = True
    comes_back: ClassVar[bool] = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.scope.is_listed and listed_pointee(labelled.c_type)[0]:  # an array in the batched form
            label = f"in elements({match['count'] or 1})"
            array = re.fullmatch(Array.labels[0].pattern, label)
            return Array.from_label(replace(labelled, label=label), array) if array else None
        return super().from_label(labelled, match)

    def declaration(self, device: bool) -> str:
        if device or self.count > 1 or self.is_void:
            return super().declaration(device)
        return f"{C_NUMBER[self.dtype]} {self.name}"

    def initializer(self, device: bool) -> str:
        if device or self.count > 1:
            return f"{{.pointer = {self.name}}}"
        if self.is_void:
            return "{0}"
        if self.dtype in ROUNDED:
            return f"{{.half = oa_{self.dtype}_from({self.name})}}"
        if self.dtype in ("c64", "c128"):
            return f"{{.{MEMBER[self.dtype]} = {{__real__ {self.name}, __imag__ {self.name}}}}}"
        return f"{{.{MEMBER[self.dtype]} = {self.name}}}"

    def is_host_address(self, device: bool) -> bool:
        return not device and (self.count > 1 or self.is_void)


@dataclass(frozen=True, kw_only=True)
class Result(Number):
    """The function's value, which is the last parameter; it is written through a pointer, or is the return value."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            "(?:result|returned)" + _NUMBER,
            "result",
            "the function's value, which it writes to an address; `returned`: C's return value",
        ),
        Label(
            "host result|returned on the host",
            "host result",
            "a result on the host, with any pointer mode; `returned on the host`",
        ),
    )
    returned: bool = False
    on_host: bool = False  # whether it is on the host in any pointer mode
    last: ClassVar[bool] = True

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if "host" not in labelled.label:
            role = "returned" if labelled.label.startswith("returned") else "result"
            return cls(**{**cls.fields(labelled, match, role), "name": "result"}, returned=role == "returned")
        returned = labelled.label != "host result"
        to, const = (labelled.c_type, False) if returned else pointee(labelled.c_type)
        dtype = "i32" if to == "int64_t" else labelled.dtype(to)  # an index has 64 bits on the host
        if const or dtype not in C_NUMBER:
            labelled.wrong_type()
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=dtype, on_host=True, returned=returned)

    @property
    def role(self) -> str:  # type: ignore[override]
        return "returned" if self.returned else "value" if self.on_host else "result"

    @property
    def kind(self) -> str:
        return "value" if self.on_host else "result"

    def shown(self) -> str:
        return "result=None"


@dataclass(frozen=True, kw_only=True)
class Update(Number):
    """A number that is read and written."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label("update" + _NUMBER, "update, update[2]", "a number that is read and written"),
    )
    role: ClassVar[str] = "update"

    def initializer(self, device: bool) -> str:
        if device or self.count > 1 or self.is_void:
            return super().initializer(device)
        if self.dtype in ("c64", "c128"):
            return f"{{.{MEMBER[self.dtype]} = {{__real__ *{self.name}, __imag__ *{self.name}}}}}"
        return f"{{.{MEMBER[self.dtype]} = *{self.name}}}"


@dataclass(frozen=True, kw_only=True)
class Output(Number):
    """A number that is written."""

    labels: ClassVar[tuple[Label, ...]] = (Label("output" + _NUMBER, "output, output[2]", "a number that is written"),)
    role: ClassVar[str] = "output"

    def shown(self) -> str:
        return f"{self.name}=None"


@dataclass(frozen=True, kw_only=True)
class Handle(Parameter):
    """The library's handle, which the core passes."""

    role: ClassVar[str] = "handle"
    in_record: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Stream(Parameter):
    """The stream, which the core passes."""

    labels: ClassVar[tuple[Label, ...]] = (Label("stream", "stream", "the stream, which the core passes"),)
    role: ClassVar[str] = "stream"
    in_record: ClassVar[bool] = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.scope.stream not in ("argument", "handle") or labelled.plain in SIZE_TYPES:
            labelled.fault('labelled stream, but [library] stream is not "argument" or "handle", or it is a number')
        return cls(name=labelled.name, c_type=labelled.c_type)


@dataclass(frozen=True, kw_only=True)
class Workspace(Parameter):
    """Memory that the vendor's function uses for itself; the core allocates as much as the library's query returns."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label(
            "(?P<host>host )?workspace",
            "workspace",
            "memory that the function uses while it runs, which callers do not pass; `<function><[library] "
            "workspace>` returns its size, in elements, or in bytes for a `void *`. `host workspace`: on "
            "the host",
        ),
    )
    role: ClassVar[str] = "workspace"
    in_record: ClassVar[bool] = False
    on_host: bool = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        dtype, on_host = labelled.dtype(pointee(labelled.c_type)[0]), bool(match["host"])
        if not (labelled.c_type.endswith("*") and labelled.scope.workspace) or (on_host and dtype):
            labelled.wrong_type(", or [library] has no workspace")
        return cls(name=labelled.name, c_type=labelled.c_type, dtype=dtype, on_host=on_host)


@dataclass(frozen=True, kw_only=True)
class WorkspaceSize(Parameter):
    """The workspace's size, which the core passes."""

    labels: ClassVar[tuple[Label, ...]] = (
        Label("(?P<host>host )?workspace size", "workspace size", "the size of the workspace; `host workspace size`"),
    )
    role: ClassVar[str] = "workspace_size"
    in_record: ClassVar[bool] = False
    on_host: bool = False

    @classmethod
    def from_label(cls, labelled: Labelled, match: re.Match[str]) -> Parameter | None:
        if labelled.c_type not in SIZE_TYPES:
            labelled.wrong_type(", or [library] has no workspace")
        return cls(name=labelled.name, c_type=labelled.c_type, on_host=bool(match["host"]))


# Names that generated C code uses itself.
_TAKEN = {"routine", "values", "device", "wide", "symbol", "operands", "call", "failed", "status", "late"}
_TAKEN |= {"dtypes", "typed", "taken", "refused"}
_C_WORDS = set(
    "auto case char const default do double enum extern float goto int long register short signed sizeof static "
    "struct switch typedef union unsigned".split()
)


def name_fault(name: str) -> str:
    """Return the reason why a parameter can't have this name, or ""."""
    if not name.isidentifier() or keyword.iskeyword(name) or name in _C_WORDS:
        return "is not a name that Python and C allow"
    return "is a name that generated C uses itself" if name in _TAKEN else ""
