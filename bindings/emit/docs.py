"""Writes the descriptions of a function: its record, its signature and its docstring."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import NamedTuple

from ..descriptors import Factor, GivenList, Room
from ..helper_functions import Given, ServiceParameter
from ..labelled import Extent
from ..library import Function, Library
from ..parameters import (
    NUMPY,
    Array,
    DataType,
    EnumValue,
    Handle,
    HostList,
    Output,
    Parameter,
    PointerArray,
    Result,
    Scalar,
    Update,
)

RAISES = (
    "Raises HostPointerError, DTypeError (TypeErrors), ArgumentError, ExtentError, WrongDeviceError, DirectionError, "
    "AliasError (ValueErrors), SizeOverflowError (OverflowError), StalePointerError or LibraryError (RuntimeErrors)."
)
SERVICE_RAISES = (
    "Raises ArgumentTypeError (TypeError), ArgumentError, WrongDeviceError (ValueErrors), SizeOverflowError "
    "(OverflowError), StalePointerError or LibraryError (RuntimeErrors)."
)


class Role(NamedTuple):
    """A parameter in its function's record: an oa_role of csrc/include/offload_args/routine.h, and its dtype."""

    role: str
    name: str
    dtype: str = ""
    more: str = ""
    elements: int = 1  # its count


def record(library: Library, function: Function) -> list[Role]:
    """Return a function's record."""
    kinds = [one.key for one in library.object_kinds]

    def count(one: Parameter) -> int:
        kind = getattr(one, "object_kind", None)
        return kinds.index(kind.key) if kind else one.at if isinstance(one, GivenList) else one.count

    return [Role(one.kind, one.name, one.dtype, one.more, count(one)) for one in function.parameters]


def positional(function: Function) -> list[str]:
    """Return the Python function's positional parameters, with their defaults."""
    return [one.shown() for one in function.parameters if one.in_python and not isinstance(one, Result)]


def takes_handle(function: Function) -> bool:
    """Return whether the caller may pass a library handle of its own."""
    return any(isinstance(one, Handle) for one in function.arguments)


def keywords(library: Library, function: Function) -> list[str]:
    """Return its keyword-only parameters, with their defaults."""
    result = [function.result.shown()] if function.result and not function.result.on_host else []
    return [*result, *(["handle=None"] if takes_handle(function) else [])]


def signature(library: Library, function: Function) -> str:
    """Return the parameters of the Python function."""
    only = keywords(library, function)
    return ", ".join([*positional(function), *(["*", *only] if only else [])])


def _in_words(extent: Extent, library: Library, function: Function) -> str:
    if extent.batch:
        stride, count = map(ast.unparse, extent.batch)
        return f"{count} times {_one_in_words(extent, library, function)}, the starts {stride} apart"
    return _one_in_words(extent, library, function)


def _one_in_words(extent: Extent, library: Library, function: Function) -> str:
    words = [f"({text})" if " if " in text else text for text in map(ast.unparse, extent.arguments)]
    order = library.row_major
    ordered = order is not None and any(one.name == order[0] for one in function.parameters)
    lines = "rows or columns" if ordered else "columns"
    unit = f", without its diagonal if {words[-1]}" if extent.leaves_out_the_diagonal else ""
    match extent.kind:
        case "vector":
            return f"{words[0]} elements, {words[1]} apart"
        case "matrix":
            return f"{words[0]} by {words[1]}, {lines} {words[2]} apart"
        case "triangle":
            return f"one triangle of order {words[1]}, {lines} {words[2]} apart{unit}"
        case "band":
            diagonals = f"{words[2]} + {words[3]} + 1 diagonals"
            return f"{diagonals} of {words[0]} by {words[1]}, {lines} {words[4]} apart"
        case "band_triangle":
            return f"one triangle of order {words[1]} of {words[2]} + 1 diagonals, {lines} {words[3]} apart{unit}"
        case "packed":
            return f"a packed triangle of order {words[1]}{unit}"
        case "described":
            return f"as {words[0]} describes"
        case "bytes":
            return f"{words[0]} bytes"
    return "1 element" if words[0] == "1" else f"{words[0]} elements"


def _dtype(one: Parameter) -> str:
    """Return the name of an operand's dtype."""
    if not one.of:
        if isinstance(one, Array) and one.by:
            return f"{one.by}'s dtype"
        if isinstance(one, Array) and one.noted_by:
            return f"the dtype that {one.noted_by} notes"
        return "any dtype" if one.dtype == "any" else NUMPY.get(one.dtype, "")
    how = f", complex as {one.complex_as} is" if one.complex_as else ""
    return f"{one.of}'s dtype{how}"


def _array(one: Array, library: Library, function: Function) -> str:
    does = {"in": "read", "out": "overwritten", "inout": "read and written"}[one.direction]
    if one.overwrites:
        does += f", overwritten if {ast.unparse(one.overwrites)}"
    if one.becomes:
        does += f"; becomes {_in_words(one.becomes, library, function)}"
    if one.in_place and not one.is_read_only:
        does += f", may be {' or '.join(one.in_place)}"
    if isinstance(one, Room) and one.is_workspace:
        size = ast.unparse(one.extent.arguments[0])
        return f"{one.name}: DevicePtr of {size} bytes, or None: the device's pool has it."
    if isinstance(one, PointerArray) and one.extent.pointers:
        count = ast.unparse(one.extent.pointers)
        count = f"sum({count})" if one.extent.groups else count
        many = f"a list of {count} DevicePtrs of {_dtype(one)}, or one DevicePtr with as many along its first axis"
        return f"{one.name}: {many}, each {_in_words(one.extent, library, function)}; {does}."
    if one.optional or one.optional_if:
        does += f"; or None{f' if {ast.unparse(one.optional_if)}' if one.optional_if else ''}"
    return f"{one.name}: DevicePtr of {_dtype(one)}, {_in_words(one.extent, library, function)}; {does}."


def _parameters(library: Library, function: Function) -> list[str]:
    """Return a line for each parameter, or for several that are alike, in the order of the signature."""
    lines = []
    either = library.has_device_form(function)
    for one in function.parameters:
        there = f" or a DevicePtr of {one.count} {'of ' if one.of else ''}{_dtype(one)}" if either else ""
        match one:
            case DataType():
                alike = [other.name for other in function.types if other.enum == one.enum]
                if one.name == alike[0]:
                    lines.append(f"{', '.join(alike)}: {one.enum.names}, or such a dtype of NumPy's.")
            case EnumValue():
                lines.append(f"{one.name}: {one.enum.names}.")
            case HostList():
                values = one.enum.names if one.enum else "numbers" if one.label == "scalar" else "integers"
                lines.append(f"{one.name}: a sequence of {one.length} values, one a group: {values}.")
            case Array():
                lines.append(_array(one, library, function))
            case Factor():
                lines.append(f"{one.name}: a number, float64 if the elements of {one.by} are and else float32.")
            case Scalar():
                number = "a number" if one.count == 1 else f"{one.count} numbers"
                lines.append(f"{one.name}: {number}{there}.")
            case Update() | Output():
                number = "a number" if isinstance(one, Update) else "None"
                lines.append(f"{one.name}: {number}{',' if there else ''}{there}.")
            case ServiceParameter() if one.in_python:
                lines.append(one.described())
    for one in function.sizes:
        if one.label == "itemsize":
            lines.append(f"{one.name}: the bytes of an element.")
    rooms = {ast.unparse(one.extent.arguments[0]) for one in function.arrays if isinstance(one, Room)}
    lines += [f"{one.name}: bytes." for one in function.sizes if one.name in rooms]
    lines += [f"{one.name}: an integer." for one in function.sizes if one.label == "value" and one.name not in rooms]
    counted = [one for one in function.sizes if one.label not in ("itemsize", "value")]
    sizes = [one.name for one in counted if one.name not in rooms]
    if sizes:
        lines.append(f"{', '.join(sizes)}: in elements.")
        if any(one.may_be_negative for one in function.sizes):
            lines[-1] += " With n of 0 or less nothing is touched."
        if any(one.repeats for one in function.arrays):
            lines[-1] += " An increment of 0 repeats one element."
    structs = {one.field_of: "" for one in function.parameters if one.field_of}
    for name in structs:
        fields = ", ".join(one.name for one in function.parameters if one.field_of == name)
        lines.append(f"{fields}: the fields of {name}.")
    order = [one.name for one in function.parameters]
    return sorted(lines, key=lambda line: order.index(re.split("[,:]", line, maxsplit=1)[0]))


@dataclass(frozen=True)
class Description:
    """Everything there is to say of a function, in its docstring and on its page of the reference; no line breaks."""

    summary: str
    deprecated: str  # "" if it is not
    parameters: list[tuple[str, str]]  # one name or several, and what they are
    needs: str  # of its arguments; "" if nothing
    returns: list[str]
    handle: str  # "" if it takes none
    raises: str
    source: str


def describe(library: Library, function: Function) -> Description:
    """Says what a function does, takes, returns and raises."""
    returns, handle = [], ""
    either = library.has_device_form(function)
    if function.result:
        dtype = _dtype(function.result)
        there = f"; with result, a DevicePtr of one {dtype}, writes it there and returns None" if either else ""
        named = f"{function.result.name}, " if function.result.on_host else ""
        returns.append(f"{named}a number{there}.")
    elif function.of("update", "output"):
        changed = ", ".join(one.name for one in function.of("update", "output"))
        there = "; with DevicePtrs for all of them writes there and returns None" if either else ""
        returns.append(f"the new ({changed}){there}.")
    given = [one.in_words() for one in function.parameters if isinstance(one, Given)]
    if given:
        returns.append(f"{', '.join(given)}.")
    if takes_handle(function):
        kind = next((one.name for one in library.object_kinds if one.is_handle), "")
        needed = (
            f"a {kind}, which is needed" if "create" not in (library.handle or {}) else "a library handle of your own"
        )
        handle = f"{needed}, whose stream is used."
    deprecated = library.api["functions"][function.symbol].get("deprecated")
    return Description(
        function.summary,
        f"{library.title} {library.version} has it still, and a later one may not." if deprecated else "",
        [(names, text) for names, _, text in (line.partition(": ") for line in _parameters(library, function))],
        f"{' and '.join(map(ast.unparse, function.requires))}." if function.requires else "",
        returns,
        handle,
        SERVICE_RAISES if function.is_service else RAISES,
        f"{library.source}, {function.symbol}.",
    )


def docstring(library: Library, function: Function) -> str:
    """Return the text of a function's docstring."""
    said = describe(library, function)
    lines = [said.summary, *([f"Deprecated: {said.deprecated}"] if said.deprecated else []), ""]
    lines += [*(f"{names}: {text}" for names, text in said.parameters)]
    lines += [*([f"Needs {said.needs}"] if said.needs else []), ""]
    lines += [f"Returns {one}" for one in said.returns] + ([f"handle: {said.handle}"] if said.handle else [])
    lines += [said.raises, f"Source: {said.source}"]
    wrapped_lines: list[str] = []
    for line in lines:
        wrapped_lines += textwrap.wrap(line, 104, subsequent_indent="    ", break_long_words=False) or [""]
    return "\n".join(wrapped_lines)


def builtin_doc(library: Library, function: Function) -> str:
    """Return the text from which CPython reads a built-in function's signature and docstring."""
    return f"{function.name}({signature(library, function)})\n--\n\n{docstring(library, function)}"
