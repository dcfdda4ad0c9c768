"""One class for each role of a parameter. It says what the parameter is in C, in records, in Python and in its docs."""

from __future__ import annotations

import ast
import keyword
from dataclasses import dataclass
from typing import ClassVar

from .declarations import entries

NUMPY = {name: text for _, name, _, _, text in entries("dtypes")}
NOT_NUMPYS = {name for _, name, _, kind, _ in entries("dtypes") if kind == "0"}  # nor a type for checkers
# The C type of a number on the host, and the members of oa_value that hold it. An index has 64 bits on the host.
C_NUMBER = {"f32": "float", "f64": "double", "c64": "float _Complex", "c128": "double _Complex", "i32": "int64_t"}
MEMBER = {"f32": "single", "f64": "real", "c64": "single_parts", "c128": "parts", "i32": "integer"}
PYTHON = {"f32": "float", "f64": "float", "c64": "complex", "c128": "complex", "i32": "int"}
# Dtypes that C has no type for. A scalar of theirs is a float in C, which is rounded.
ROUNDED = ("f16", "bf16")
C_NUMBER |= dict.fromkeys(ROUNDED, "float")
MEMBER |= dict.fromkeys(ROUNDED, "half")
PYTHON |= dict.fromkeys(ROUNDED, "float")

# How many arguments each extent takes, and which of them are the sizes of the operand.
EXTENTS = {
    "vector": ((2,), (0,)),
    "elements": ((1,), (0,)),
    "matrix": ((3,), (0, 1)),
    "triangle": ((3, 4), (1,)),
    "band": ((5,), (0, 1)),
    "band_triangle": ((4, 5), (1,)),
    "packed": ((2, 3), (1,)),
    "described": ((1,), ()),
    "bytes": ((1,), ()),
    "all": ((0,), ()),
}
MOST_NAMED = 20  # constants in one message
# Integer types of 32 bits, unless a library has them with 64.
NARROW = ("int", "blasint")
SIZE_TYPES = (*NARROW, "int64_t", "size_t", "long long", "long long int")
# Those that have 32 bits in every form of a function.
SHORT = ("int32_t", "uint32_t")


@dataclass(frozen=True)
class Enum:
    """The values one parameter may take: (name without the vendor's prefix, value)."""

    type: str
    values: tuple[tuple[str, int], ...]
    label: str = ""  # its name in [enums]
    dtypes: tuple[tuple[str, int, str], ...] = ()  # of an enum of dtypes: (name, value, dtype or "" for none)
    flags: tuple[tuple[str, int], ...] = ()  # which may be added to them

    @property
    def names(self) -> str:
        """Returns "OP_N, OP_T or OP_C"."""
        return _listed([name for name, _ in self.values]) + "".join(f", | {name}" for name, _ in self.flags)

    @property
    def names_and_values(self) -> str:
        """Returns "OP_N (0), OP_T (1) or OP_C (2)"."""
        listed = _listed([f"{name} ({value})" for name, value in self.values])
        return listed + "".join(f", | {name} ({value})" for name, value in self.flags)

    @property
    def mask(self) -> int:
        """Returns the bits of all flags."""
        return sum(value for _, value in self.flags)


def device_pointer(one: Parameter) -> str:
    """Returns the Python type of a DevicePtr to an operand."""
    return "DevicePtr[Any]" if one.of or one.dtype in NOT_NUMPYS else f"DevicePtr[np.{NUMPY[one.dtype]}]"


def _listed(words: list[str]) -> str:
    if len(words) > MOST_NAMED:
        words = [*words[:2], "...", words[-1]]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


@dataclass(frozen=True)
class Extent:
    """The elements that a call touches behind a pointer; the expressions are over the function's sizes and enums."""

    kind: str
    arguments: tuple[ast.expr, ...]
    batch: tuple[ast.expr, ast.expr] | None = None  # how far they are apart, and how many there are
    pointers: ast.expr | None = None  # how many there are, each behind a pointer of its own
    groups: str = ""  # the number of groups: of each, other values of the names that are lists

    @property
    def sizes(self) -> list[ast.expr]:
        """Returns the arguments that are dimensions: nothing is touched if one is 0."""
        counts = [*(self.batch or ())[1:], *([self.pointers] if self.pointers else [])]
        return [self.arguments[position] for position in EXTENTS[self.kind][1]] + counts

    @property
    def expressions(self) -> list[ast.expr]:
        """Returns all of its arguments."""
        return [*self.arguments, *(self.batch or ()), *([self.pointers] if self.pointers else [])]

    @property
    def leaves_out_the_diagonal(self) -> bool:
        """Returns whether the last argument is the test for a unit diagonal."""
        return len(self.arguments) == EXTENTS[self.kind][0][-1] and len(EXTENTS[self.kind][0]) > 1


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a vendor's function."""

    role: ClassVar[str] = ""
    in_record: ClassVar[bool] = True  # the caller passes it
    last: ClassVar[bool] = False  # it is the last one of the record
    in_python: ClassVar[bool] = True  # the Python function takes it, by place or, a result, by name
    name: str
    c_type: str
    dtype: str = ""
    count: int = 1
    of: str = ""  # the DataType that says the dtype, which is "any" then
    complex_as: str = ""  # the array that says whether that dtype is real or complex
    field_of: str = ""  # the struct behind a pointer, of the vendor's function, that it is a field of

    @property
    def kind(self) -> str:
        """Returns the first word of its token in the record."""
        return self.role

    @property
    def token(self) -> str:
        """Returns its token in the record: kind:name[:dtype[:count]]."""
        dtype = self.of or self.dtype
        words = [self.kind, self.name, *([dtype] if dtype else [])]
        return ":".join([*words, *([str(self.count)] if self.count > 1 else [])])

    @property
    def is_pointer(self) -> bool:
        """Returns whether the vendor takes an address."""
        return self.c_type.endswith(("*", "]"))

    # -- the typed C function --

    def declaration(self, device: bool) -> str:
        """Returns its declaration in the typed C function."""
        raise NotImplementedError

    def preparation(self) -> str:
        """Returns the statement of the typed C function that its initializer needs, or ""."""
        return ""

    def initializer(self, device: bool) -> str:
        """Returns the initializer of its oa_value in the typed C function."""
        return f"{{.pointer = {self.name}}}"

    def is_host_address(self, device: bool) -> bool:
        """Returns whether the typed C function takes an address of the host for it."""
        return False

    # -- Python --

    def shown(self) -> str:
        """Returns its part of the Python function's signature."""
        return self.name

    def annotation(self, on_device: bool | None = None) -> str:
        """Returns its type for static checkers; on_device: of a number that has to be there, or must not be."""
        return "int"


@dataclass(frozen=True, kw_only=True)
class EnumValue(Parameter):
    """A constant of the vendor's."""

    role: ClassVar[str] = "enum"
    enum: Enum

    def declaration(self, device: bool) -> str:
        return f"int {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = {self.name}}}"


@dataclass(frozen=True, kw_only=True)
class DataType(EnumValue):
    """A constant of the vendor's that stands for a dtype."""

    role: ClassVar[str] = "type"

    def annotation(self, on_device: bool | None = None) -> str:
        return "int | npt.DTypeLike"


@dataclass(frozen=True, kw_only=True)
class Size(Parameter):
    """A size, a leading dimension, an increment or a stride."""

    label: str  # size, ld, inc, stride or integer
    may_be_negative: bool = False  # then it counts as 0
    is_tried: bool = False  # a stride whose unit a first call tells

    @property
    def role(self) -> str:  # type: ignore[override]
        return self.label

    @property
    def kind(self) -> str:
        return "size"

    @property
    def is_short(self) -> bool:
        """Returns whether it has 32 bits in every form of the function."""
        return self.c_type in SHORT

    @property
    def is_narrow(self) -> bool:
        """Returns whether it has 32 bits in a function that has no form with 64-bit sizes."""
        return self.c_type in NARROW

    def declaration(self, device: bool) -> str:
        return f"int64_t {self.name}"

    def initializer(self, device: bool) -> str:
        return f"{{.integer = {self.name}}}"


@dataclass(frozen=True, kw_only=True)
class Array(Parameter):
    """A device array."""

    role: ClassVar[str] = "array"
    direction: str  # in, out or inout
    extent: Extent
    overwrites: ast.expr | None = None
    in_place: str = ""  # the operand whose memory this may be
    becomes: Extent | None = None  # the same memory after the call, in another shape
    repeats: bool = False  # a vector whose increment may be 0
    optional: bool = False  # there may be none
    optional_if: ast.expr | None = None  # there may be none if this holds
    noted_by: str = ""  # the object whose note says the dtype, which is "any" then
    typed_by: str = ""  # the descriptor that says the dtype, which is "any" then, and not the extent

    @property
    def kind(self) -> str:
        return f"{self.direction}?" if self.optional or self.optional_if else self.direction

    @property
    def is_read_only(self) -> bool:
        return self.direction == "in"

    @property
    def by(self) -> str:
        """Returns the descriptor that says its dtype and extent, or ""."""
        return ast.unparse(self.extent.arguments[0]) if self.extent.kind == "described" else ""

    @property
    def extents(self) -> list[Extent]:
        """Returns its extent, and that which it becomes."""
        return [self.extent, *([self.becomes] if self.becomes else [])]

    @property
    def expressions(self) -> list[ast.expr]:
        """Returns every expression of its label."""
        inside = [expression for extent in self.extents for expression in extent.expressions]
        return [*inside, *self.tests]

    @property
    def tests(self) -> list[ast.expr]:
        """Returns the tests of its clauses."""
        return [one for one in (self.overwrites, self.optional_if) if one]

    def declaration(self, device: bool) -> str:
        return f"{'const ' if self.is_read_only else ''}oa_{self.dtype} *{self.name}"

    def annotation(self, on_device: bool | None = None) -> str:
        return f"{device_pointer(self)}{' | None' if self.optional or self.optional_if else ''}"


@dataclass(frozen=True, kw_only=True)
class PointerArray(Array):
    """Device arrays of a number that the call says: a list of pointers, or one pointer with an axis more."""

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
    """A host array with a value for each group: of an enum, of sizes or leading dimensions, or of numbers."""

    role: ClassVar[str] = "list"
    label: str  # enum, size, ld or scalar
    length: str  # the parameter that says how many
    enum: Enum | None = None

    @property
    def kind(self) -> str:
        return f"{'size' if self.label == 'ld' else self.label}*"

    @property
    def is_narrow(self) -> bool:
        """Returns whether its integers have 32 bits in a function that has no form with 64-bit sizes."""
        return self.label in ("size", "ld") and self.c_type.removeprefix("const ").split(" ")[0].rstrip("[]*") in NARROW

    def declaration(self, device: bool) -> str:
        scalar = "void" if self.of else C_NUMBER.get(self.dtype, "")
        return f"const {({'enum': 'int', 'scalar': scalar}).get(self.label, 'int64_t')} *{self.name}"

    def preparation(self) -> str:
        itemsize = "0" if self.of else f"sizeof *{self.name}"
        return f"const oa_number_list {self.name}_list = {{{self.name}, -1, {itemsize}}};"

    def initializer(self, device: bool) -> str:
        return f"{{.pointer = &{self.name}_list}}"

    def is_host_address(self, device: bool) -> bool:
        return True

    def annotation(self, on_device: bool | None = None) -> str:
        return f"Sequence[{'complex' if self.of else PYTHON[self.dtype] if self.dtype else 'int'}]"


@dataclass(frozen=True, kw_only=True)
class Number(Parameter):
    """A number, or a few, on the host or the device."""

    is_read_only: ClassVar[bool] = False
    comes_back: ClassVar[bool] = True

    @property
    def python(self) -> str:
        """Returns the type of one number in Python."""
        return "complex" if self.of else PYTHON[self.dtype]

    @property
    def is_void(self) -> bool:
        """Returns whether the typed C function takes a plain address of it, for its dtype is known only there."""
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

    role: ClassVar[str] = "scalar"
    is_read_only: ClassVar[bool] = True
    comes_back: ClassVar[bool] = False

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
    """The function's value, through a pointer or (returned) as its return value. The last parameter."""

    returned: bool = False
    on_host: bool = False  # whatever the pointer mode is
    last: ClassVar[bool] = True

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

    role: ClassVar[str] = "stream"
    in_record: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Workspace(Parameter):
    """Memory that the vendor's function uses for itself; the core takes as much as the library's query says."""

    role: ClassVar[str] = "workspace"
    in_record: ClassVar[bool] = False
    on_host: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkspaceSize(Parameter):
    """How much of it there is, which the core passes."""

    role: ClassVar[str] = "workspace_size"
    in_record: ClassVar[bool] = False
    on_host: bool = False


NUMBERS: dict[str, type[Number]] = {
    "scalar": Scalar,
    "result": Result,
    "returned": Result,
    "update": Update,
    "output": Output,
}
# Names that generated C uses itself.
_TAKEN = {"routine", "values", "device", "wide", "symbol", "operands", "call", "failed", "status", "late"}
_TAKEN |= {"dtypes", "typed", "taken", "refused"}
_C_WORDS = set(
    "auto case char const default do double enum extern float goto int long register short signed sizeof static "
    "struct switch typedef union unsigned".split()
)


def name_fault(name: str) -> str:
    """Returns why a parameter can't have this name, or ""."""
    if not name.isidentifier() or keyword.iskeyword(name) or name in _C_WORDS:
        return "is not a name that Python and C allow"
    return "is a name that generated C uses itself" if name in _TAKEN else ""
