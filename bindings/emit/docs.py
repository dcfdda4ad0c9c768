"""Writes the descriptions of a function: its record, its signature and its docstring."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..descriptors import Factor, GivenList, Room
from ..expressions import names_in
from ..helper_functions import Given, HelperParameter, Integer, Kept
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
    Size,
    Update,
)

RAISES = (
    "Raises HostPointerError, DTypeError (TypeErrors), ArgumentError, ExtentError, WrongDeviceError, DirectionError, "
    "AliasError (ValueErrors), SizeOverflowError (OverflowError), StalePointerError or LibraryError (RuntimeErrors)."
)
HELPER_RAISES = (
    "Raises ArgumentTypeError (TypeError), ArgumentError, WrongDeviceError (ValueErrors), SizeOverflowError "
    "(OverflowError), StalePointerError or LibraryError (RuntimeErrors)."
)


class Role(NamedTuple):
    """A parameter in its function's record: an oa_role of csrc/include/offload_args/routine.h, and its dtype."""

    role: str
    name: str
    dtype: str = ""
    more: str = ""
    elements: int = 1  # the number of its elements


def record(library: Library, function: Function) -> list[Role]:
    """Return a function's record."""
    kinds = [object_kind.key for object_kind in library.object_kinds]

    def count(parameter: Parameter) -> int:
        kind = getattr(parameter, "object_kind", None)
        return kinds.index(kind.key) if kind else parameter.at if isinstance(parameter, GivenList) else parameter.count

    return [
        Role(parameter.kind, parameter.name, parameter.dtype, parameter.more, count(parameter))
        for parameter in function.parameters
    ]


def positional(function: Function) -> list[str]:
    """Return the Python function's positional parameters, with their defaults."""
    return [
        parameter.shown()
        for parameter in function.parameters
        if parameter.in_python and not isinstance(parameter, Result)
    ]


def takes_handle(function: Function) -> bool:
    """Return whether the caller may pass their own library handle."""
    return any(isinstance(argument, Handle) for argument in function.arguments)


def keywords(library: Library, function: Function) -> list[str]:
    """Return the Python function's keyword-only parameters, with their defaults."""
    result = [function.result.shown()] if function.result and library.takes_result(function) else []
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
    ordered = order is not None and any(parameter.name == order[0] for parameter in function.parameters)
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


def _dtype(parameter: Parameter) -> str:
    """Return the name of an operand's dtype."""
    if not parameter.of:
        if isinstance(parameter, Array) and parameter.by:
            return f"{parameter.by}'s dtype"
        if isinstance(parameter, Array) and parameter.noted_by:
            return f"the dtype that {parameter.noted_by} notes"
        return "any dtype" if parameter.dtype == "any" else NUMPY.get(parameter.dtype, "")
    how = f", complex as {parameter.complex_as} is" if parameter.complex_as else ""
    return f"{parameter.of}'s dtype{how}"


def _array(array: Array, library: Library, function: Function) -> str:
    does = {"in": "read", "out": "overwritten", "inout": "read and written"}[array.direction]
    if array.overwrites:
        does += f", overwritten if {ast.unparse(array.overwrites)}"
    if array.becomes:
        does += f"; becomes {_in_words(array.becomes, library, function)}"
    if array.in_place and not array.is_read_only:
        does += f", may be {' or '.join(array.in_place)}"
    if isinstance(array, Room) and array.is_workspace:
        size = ast.unparse(array.extent.arguments[0])
        return f"{array.name}: DevicePtr of {size} bytes, or None: the device's pool has it."
    if isinstance(array, PointerArray) and array.extent.pointers:
        count = ast.unparse(array.extent.pointers)
        count = f"sum({count})" if array.extent.groups else count
        many = f"a list of {count} DevicePtrs of {_dtype(array)}, or one DevicePtr with as many along its first axis"
        return f"{array.name}: {many}, each {_in_words(array.extent, library, function)}; {does}."
    if array.optional or array.optional_if:
        does += f"; or None{f' if {ast.unparse(array.optional_if)}' if array.optional_if else ''}"
    return f"{array.name}: DevicePtr of {_dtype(array)}, {_in_words(array.extent, library, function)}; {does}."


_NOUNS = {"size": "size", "ld": "leading dimension", "inc": "increment", "stride": "stride"}


def _meanings(function: Function) -> Iterator[tuple[str, str, str]]:
    """Yield each integer, or list of integers, with its list's length or "", and its label, or its meaning in words."""
    arrays = function.arrays
    rooms = [array.extent.arguments[0] for array in arrays if isinstance(array, Room)]
    rooms += [parameter.size for parameter in function.parameters if isinstance(parameter, Kept)]
    in_bytes = {ast.unparse(room) for room in rooms}
    batches = {ast.unparse(array.extent.batch[1]) for array in arrays if array.extent.batch}
    batches |= {ast.unparse(array.extent.pointers) for array in arrays if array.extent.pointers}
    lengths = {parameter.length for parameter in function.lists}
    in_extents = {name for array in arrays for expression in array.expressions for name in names_in(expression)}
    for parameter in function.parameters:
        name, length, label = parameter.name, "", ""
        match parameter:
            case Size(label=label) | HostList(label="size" | "ld" as label):
                length = getattr(parameter, "length", "")
            case Integer():
                label = "value"
            case _:
                continue
        if name in in_bytes:
            label = "in bytes"
        elif name in lengths:
            label = "the number of groups"
        elif batches == {name}:
            label = "the size of each group" if length else "the size of the batch"
        elif label == "size" and not length and name not in in_extents:
            label = "value"
        yield name, length, label


def _integers(function: Function) -> list[str]:
    """Return a line for all integers of one meaning. Sizes, leading dimensions and increments have different rules."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, length, label in _meanings(function):
        alike.setdefault((length, label), []).append(name)
    lines = []
    for (length, label), names in alike.items():
        plural = "s" * (len(names) > 1)
        number = f"integer{plural}" if plural else "an integer"
        if length:
            number = f"{'sequences' if plural else 'a sequence'} of {length} integers"
        if label in _NOUNS:
            number += f", the {_NOUNS[label]}{plural} in elements{', one a group' if length else ''}"
        elif label != "value":
            number += ", the bytes of an element" if label == "itemsize" else f", {label}"
        lines.append(f"{', '.join(names)}: {number}.")
        if label == "size" and any(size.may_be_negative for size in function.sizes):
            lines[-1] += " With n of 0 or less nothing is touched."
        if label == "inc" and any(array.repeats for array in function.arrays):
            lines[-1] += " An increment of 0 repeats one element."
    return lines


def _parameters(library: Library, function: Function) -> list[str]:
    """Return a line for each parameter, or for several parameters that are alike, in the order of the signature."""
    lines = []
    either = library.has_device_form(function)
    for parameter in function.parameters:
        there = (
            f" or a DevicePtr of {parameter.count} {'of ' if parameter.of else ''}{_dtype(parameter)}" if either else ""
        )
        match parameter:
            case DataType():
                alike = [other.name for other in function.types if other.enum == parameter.enum]
                if parameter.name == alike[0]:
                    none = "; None: that of the array" if parameter.enum.from_array else ""
                    lines.append(f"{', '.join(alike)}: {parameter.enum.names}, or such a dtype of NumPy's{none}.")
            case EnumValue():
                lines.append(f"{parameter.name}: {parameter.enum.names}.")
            case HostList() if parameter.label in ("enum", "scalar"):
                values = parameter.enum.names if parameter.enum else "numbers"
                lines.append(f"{parameter.name}: a sequence of {parameter.length} values, one a group: {values}.")
            case Array():
                lines.append(_array(parameter, library, function))
            case Factor():
                lines.append(
                    f"{parameter.name}: a number, float64 if the elements of {parameter.by} are and else float32."
                )
            case Scalar():
                number = "a number" if parameter.count == 1 else f"{parameter.count} numbers"
                lines.append(f"{parameter.name}: {number}{there}.")
            case Update() | Output():
                number = "a number" if isinstance(parameter, Update) else "None"
                lines.append(f"{parameter.name}: {number}{',' if there else ''}{there}.")
            case HelperParameter() if parameter.in_python and parameter.described():
                lines.append(parameter.described())
    lines += _integers(function)
    structs = {parameter.field_of: "" for parameter in function.parameters if parameter.field_of}
    for name in structs:
        fields = ", ".join(parameter.name for parameter in function.parameters if parameter.field_of == name)
        lines.append(f"{fields}: the fields of {name}.")
    order = [parameter.name for parameter in function.parameters]
    return sorted(lines, key=lambda line: order.index(re.split("[,:]", line, maxsplit=1)[0]))


@dataclass(frozen=True)
class Description:
    """The description of a function, for its docstring and its page of the reference, without line breaks."""

    summary: str
    deprecated: str  # the reason for its deprecation; "" if it is not deprecated
    parameters: list[tuple[str, str]]  # pairs of one or several names, and their meaning
    needs: str  # the requirements of its arguments; "" if there are none
    returns: list[str]
    handle: str  # its use of a handle; "" if it takes no handle
    raises: str
    source: str


def describe(library: Library, function: Function) -> Description:
    """Describe a function: its work, parameters, results and errors."""
    returns, handle = [], ""
    either = library.has_device_form(function)
    if function.result:
        dtype = _dtype(function.result)
        there = f"; with result, a DevicePtr of one {dtype}, writes it there and returns None" if either else ""
        named = f"{function.result.name}, " if function.result.on_host else ""
        returns.append(f"{named}a number{there}.")
    elif function.of("update", "output"):
        changed = ", ".join(number.name for number in function.of("update", "output"))
        there = "; with DevicePtrs for all of them writes there and returns None" if either else ""
        returns.append(f"the new ({changed}){there}.")
    outputs = [parameter.in_words() for parameter in function.parameters if isinstance(parameter, Given)]
    if outputs:
        returns.append(f"{', '.join(outputs)}.")
    if takes_handle(function):
        kind = next((object_kind.name for object_kind in library.object_kinds if object_kind.is_handle), "")
        needed = (
            f"a {kind}, which is needed" if "create" not in (library.handle or {}) else "a library handle of your own"
        )
        handle = f"{needed}, whose stream is used."
    deprecated = library.api["functions"][function.symbol].get("deprecated")
    return Description(
        function.summary,
        f"{library.title} {library.version} still has it; later versions may lack it." if deprecated else "",
        [(names, text) for names, _, text in (line.partition(": ") for line in _parameters(library, function))],
        f"{' and '.join(map(ast.unparse, function.requires))}." if function.requires else "",
        returns,
        handle,
        HELPER_RAISES if function.is_helper else RAISES,
        f"{library.source}, {function.symbol}.",
    )


def docstring(library: Library, function: Function) -> str:
    """Return the text of a function's docstring."""
    said = describe(library, function)
    lines = [said.summary, *([f"Deprecated: {said.deprecated}"] if said.deprecated else []), ""]
    lines += [*(f"{names}: {text}" for names, text in said.parameters)]
    lines += [*([f"Needs {said.needs}"] if said.needs else []), ""]
    lines += [f"Returns {text}" for text in said.returns] + ([f"handle: {said.handle}"] if said.handle else [])
    lines += [said.raises, f"Source: {said.source}"]
    wrapped_lines: list[str] = []
    for line in lines:
        wrapped_lines += textwrap.wrap(line, 104, subsequent_indent="    ", break_long_words=False) or [""]
    return "\n".join(wrapped_lines)


def builtin_doc(library: Library, function: Function) -> str:
    """Return the text from which CPython reads a built-in function's signature and docstring."""
    return f"{function.name}({signature(library, function)})\n--\n\n{docstring(library, function)}"
