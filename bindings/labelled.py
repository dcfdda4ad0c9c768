"""A label and its parameter, from which the classes of parameters are made."""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from dataclasses import dataclass
from functools import cache

# {extent: (the possible numbers of its arguments, the positions of the arguments that are the operand's sizes)}.
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
}
LETTERS = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
MOST_NAMED = 20  # the most constants in one message
# {C type of an integer: its dtype}. A number of a helper function has as many bits as its type.
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


@dataclass(frozen=True)
class Label:
    """A form of label of a parameter: its pattern, an example, and its meaning, for bindings/words.md."""

    pattern: str
    example: str
    meaning: str


@dataclass(frozen=True)
class Enum:
    """The values that a parameter may take, as pairs of a name without the vendor's prefix and a value."""

    type: str
    values: tuple[tuple[str, int], ...]
    label: str = ""  # the enum's name in [enums]
    dtypes: tuple[tuple[str, int, str], ...] = ()  # for an enum of dtypes: (name, value, dtype or "" for none)
    flags: tuple[tuple[str, int], ...] = ()  # values that may be added to the constants
    from_array: bool = False  # for an enum of dtypes: whether None stands for the first array's dtype

    @property
    def names(self) -> str:
        """Return the names as text, such as "OP_N, OP_T or OP_C"."""
        return _listed([name for name, _ in self.values]) + "".join(f", | {name}" for name, _ in self.flags)

    @property
    def names_and_values(self) -> str:
        """Return the names and values as text, such as "OP_N (0), OP_T (1) or OP_C (2)"."""
        listed = _listed([f"{name} ({value})" for name, value in self.values])
        return listed + "".join(f", | {name} ({value})" for name, value in self.flags)

    @property
    def mask(self) -> int:
        """Return the bits of all flags."""
        return sum(value for _, value in self.flags)


def _listed(words: list[str]) -> str:
    if len(words) > MOST_NAMED:
        words = [*words[:2], "...", words[-1]]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


@dataclass(frozen=True)
class Extent:
    """The elements that a call touches through a pointer; the expressions contain the function's sizes and enums."""

    kind: str
    arguments: tuple[ast.expr, ...]
    batch: tuple[ast.expr, ast.expr] | None = None  # the stride between arrays, and their number
    pointers: ast.expr | None = None  # the number of arrays, each with a separate pointer
    groups: str = ""  # the number of groups; names of lists have other values for each group

    @property
    def sizes(self) -> list[ast.expr]:
        """Return the arguments that are dimensions; if one of them is 0, nothing is touched."""
        counts = [*(self.batch or ())[1:], *([self.pointers] if self.pointers else [])]
        return [self.arguments[position] for position in EXTENTS[self.kind][1]] + counts

    @property
    def expressions(self) -> list[ast.expr]:
        """Return all arguments of the extent."""
        return [*self.arguments, *(self.batch or ()), *([self.pointers] if self.pointers else [])]

    @property
    def leaves_out_the_diagonal(self) -> bool:
        """Return whether the last argument is the test for a unit diagonal."""
        return len(self.arguments) == EXTENTS[self.kind][0][-1] and len(EXTENTS[self.kind][0]) > 1


@dataclass(frozen=True)
class ObjectKind:
    """A kind of object that a library makes: the table [object.<key>] of its roles file."""

    key: str
    type: str  # the kind's type in C
    name: str  # the name of its class in Python
    destroy: str  # the function that destroys such an object
    is_handle: bool  # whether it is the library's handle, which belongs to one device and has a stream
    describes: tuple[str, str, str] = ("", "", "")  # the functions for the layout and bytes of described memory
    attributes: tuple[str, str] = ("", "")  # the enum of dtypes, and the beginning of the names of functions in Python
    placed: bool = False  # whether it belongs to the device that is current when it is made
    tells: tuple[tuple[str, str], ...] = ()  # numbers that never change, each with the function that returns it

    @property
    def with_article(self) -> str:
        """Return the name after "a" or "an", as it is spoken: an RNNDescriptor, a UniqueId."""
        vowels = "AEFHILMNORSX" if self.name[:2].isupper() else "AEIO"
        return f"{'an' if self.name[0] in vowels else 'a'} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The names and settings that the labels of one function may refer to."""

    library: str  # the library's name
    has_backend: bool
    stream: str | None  # `stream` of [library]
    workspace: str  # the end of the names of queries; "" without queries
    functions: Container[str]  # the functions of the header
    dtypes: dict[str, str]  # {C type: dtype}, from [types]
    kinds: dict[str, ObjectKind]  # the [object] tables
    enums: dict[str, Enum]  # the [enums] tables
    named: dict[str, str]  # the C definitions of types in [raw]; the header's enums are "int"
    words: dict[str, str]  # a constant for each word of shared families
    letter: str  # "s", "d", "c", "z" or ""
    is_listed: bool  # whether the arrays of the batched form are passed as arrays of pointers
    on_device: bool  # whether all pointers are to the device
    order: list[str]  # the names of the parameters in the record
    objects: dict[str, ObjectKind]  # the kinds of the parameters that are objects
    faults: list[str]

    def parse(self, text: str, place: str) -> ast.expr | None:
        """Return an expression in the library's own constants; for other texts, note a fault and return None."""
        try:
            return _parsed(text.strip(), tuple(self.words.items()))
        except SyntaxError:
            self.faults.append(f"{place}: {text!r} is not an expression")
            return None


class _Words(ast.NodeTransformer):
    def __init__(self, words: dict[str, str]) -> None:
        self.words = words

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.words.get(node.id, node.id), node.ctx)


def in_words(expression: ast.expr, words: dict[str, str]) -> ast.expr:
    """Return an expression with a library's own constants instead of the words of shared families."""
    changed: ast.expr = _Words(words).visit(expression)
    return changed


@cache
def _parsed(text: str, words: tuple[tuple[str, str], ...]) -> ast.expr:
    """Return an expression in a library's own constants. Functions share this expression, and do not change it."""
    return in_words(ast.parse(text, mode="eval").body, dict(words))


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A parameter of the header and its label."""

    name: str
    c_type: str
    label: str
    place: str  # the place in the roles file
    scope: Scope

    @property
    def plain(self) -> str:
        """Return the C type without the word enum."""
        return self.c_type.removeprefix("enum ")

    def fault(self, text: str) -> None:
        """Note a fault of the label."""
        self.scope.faults.append(f"{self.place}: {text}")

    def wrong_type(self, more: str = "") -> None:
        """Note that the C type contradicts the label."""
        self.fault(f"labelled {self.label}, but its type is {self.c_type}{more}")

    def dtype(self, c_type: str) -> str:
        """Return the dtype of a C type in [types], or ""."""
        named = self.scope.dtypes.get(c_type, "")
        return LETTERS.get(self.scope.letter, "") if named == "letter" else named

    def integer_dtype(self, c_type: str) -> str:
        """Return the dtype of an integer's C type, which [raw] may define; "" for other types."""
        plain = c_type.removeprefix("enum ")
        return INTEGERS.get(self.scope.named.get(plain, plain), "")

    def parse(self, text: str) -> ast.expr | None:
        """Return an expression in the library's own constants; for other texts, note a fault and return None."""
        return self.scope.parse(text, self.place)

    def kind(self, key: str) -> ObjectKind | None:
        """Return the kind of object of a C type; if there is none, note a fault."""
        kind = self.scope.kinds.get(key)
        if kind is None:
            self.fault(f"labelled {self.label}, and there is no [object.{key}]")
        elif self.c_type.replace(" *", "*") != kind.type + "*" * self.label.startswith("new "):
            self.wrong_type()
        else:
            return kind
        return None

    def extent(self, text: str) -> Extent | None:
        """Return an extent, such as matrix(m, n, lda); for other text, note a fault and return None."""
        call = self.parse(text)
        if call is None:
            return None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords):
            self.fault(f"{text!r} is not an extent")
            return None
        batch, pointers, groups = None, None, ""
        outer = call.func.id
        if outer == "pointers" and len(call.args) == 2 and isinstance(call.args[0], ast.Call):
            pointers = call.args[1]
            call = call.args[0]
        elif outer == "grouped" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            groups, pointers = ast.unparse(call.args[1]), call.args[2]
            call = call.args[0]
        elif self.scope.is_listed:
            pointers = ast.Name("batch count")  # shared.in_form replaces it
        elif outer == "strided" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            batch = (call.args[1], call.args[2])
            call = call.args[0]
        kind = call.func.id if isinstance(call.func, ast.Name) else ""
        if kind not in EXTENTS or len(call.args) not in EXTENTS[kind][0]:
            self.fault(f"{text!r} is not an extent; there are {', '.join(EXTENTS)}")
            return None
        return Extent(kind, tuple(call.args), batch, pointers, groups)


def pointee(c_type: str) -> tuple[str, bool]:
    """Return the target of a pointer type, and whether it is const; ("", False) for any other type."""
    match = re.fullmatch(r"(const )?([\w ]+?) ?(?:\*|\[\])", c_type)
    return (match.group(2), match.group(1) is not None) if match else ("", False)


def listed_pointee(c_type: str) -> tuple[str, bool]:
    """Return the target of an array's pointers, and whether it is const; ("", False) for any other type."""
    match = re.fullmatch(r"(const )?([\w ]+?) ?\*(?:const)? ?(?:\*|\[\])", c_type)
    return (match.group(2), match.group(1) is not None) if match else ("", False)
