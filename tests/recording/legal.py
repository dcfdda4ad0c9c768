"""Makes legal calls of any bound function from its roles, and returns the elements that they touch.

    function = functions("cublas")["sgemv"]
    call = draw(library, function, numpy.random.default_rng(1))
    call.integers                   # {"trans": 1, "m": 3, "n": 5, "lda": 4, ...}
    call.touched["A"]               # the places of A's elements that the call touches, as NumPy integers

Each extent is computed here a second time, element by element, to check the core's arithmetic. A role that this module
does not know raises NotImplementedError.
"""

from __future__ import annotations

import ast
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # at the end, so that the installed offload_args is imported, not its sources

from bindings import emit, expressions, roles  # noqa: E402
from bindings.descriptors import Nothing, Real  # noqa: E402
from bindings.emit.descriptors import has_descriptors  # noqa: E402
from bindings.helper_functions import HostArray, Integer, Object  # noqa: E402
from bindings.parameters import (  # noqa: E402
    NUMPY,
    Array,
    EnumValue,
    Extent,
    Handle,
    HostList,
    Number,
    Parameter,
    Size,
    Stream,
    Workspace,
    WorkspaceSize,
)

KEPT = emit.Kept(ROOT / "build" / "editable" / "generated")
MOST_ELEMENTS = 4096
TOLD = {"ranks": 3, "rank": 1}  # the values that every object reports, as in doubles/recording.py
NO_NUMBERS = ("f8e4m3", "f8e5m2")  # dtypes without numbers on the host
Offsets = NDArray[np.int64]


class TooManyError(Exception):
    """An extent has more elements than the tests count."""


class UnfitError(TooManyError):
    """A function does not accept this combination of sizes."""


@cache
def library(name: str) -> roles.Library:
    """Return one library: as the last build keeps it if its files have not changed since, else from its files."""
    return KEPT.read(name) if os.access(KEPT.folder, os.W_OK) else roles.read(name)


def libraries() -> dict[str, roles.Library]:
    """Return every library of the build."""
    return {name: library(name) for name in roles.names()}


@cache
def functions(name: str) -> dict[str, roles.Function]:
    """Return the bound functions of a library by name, without helper functions and copies.

    Functions with extents from descriptors are left out, too.
    """
    return {
        function.name: function
        for function in library(name).functions
        if not function.is_helper
        and not function.of("host")
        and function.name not in with_descriptors(name)
        and not function.written
    }


@cache
def with_descriptors(name: str) -> dict[str, roles.Function]:
    """Return, by name, the functions of a library whose extents depend on descriptors or on queries of the library."""
    known = library(name)
    return {function.name: function for function in known.functions if has_descriptors(known, function)}


def helper_functions(name: str) -> dict[str, roles.Function]:
    """Return the helper functions of a library by name."""
    return {function.name: function for function in library(name).functions if function.is_helper}


def copies(name: str) -> dict[str, roles.Function]:
    """Return, by name, the functions of a library that copy between host and device arrays."""
    functions = library(name).functions
    return {
        function.name: function
        for function in functions
        if function.of("host") and not function.is_helper and not function.written
    }


def written(name: str) -> dict[str, roles.Function]:
    """Return, by name, the functions of a library with bodies that are written by hand."""
    return {function.name: function for function in library(name).functions if function.written}


def executions(name: str) -> dict[str, roles.Function]:
    """Return, by name, the functions with hand-written bodies that execute a plan."""
    return {key: function for key, function in written(name).items() if function.written == "oa_fft_execute"}


def with_layouts(name: str) -> dict[str, roles.Function]:
    """Return, by name, the functions with hand-written bodies that do not execute a plan.

    Their matrices have layouts.
    """
    return {key: function for key, function in written(name).items() if key not in executions(name)}


def of_family(name: str, family: str, every: bool) -> list[roles.Function]:
    """Return the functions of a family; without `every`, only one of the functions that differ only in their types."""
    alike: dict[tuple[str, ...], list[roles.Function]] = {}
    for function in library(name).functions:
        if function.family == family:
            key = () if every else tuple(f"{type(part).__name__} {part.name}" for part in function.arguments)
            alike.setdefault(key, []).append(function)
    if every:
        return alike[()]
    return [some[zlib.crc32(f"{family} {len(key)}".encode()) % len(some)] for key, some in alike.items()]


# -- extents, element by element ---------------------------------------------------------------------------------------


def value(expression: ast.expr, names: Mapping[str, int]) -> int:
    """Return the value of an expression of a roles file."""
    match expression:
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute():
            return names[ast.unparse(expression)]
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = value(left, names), value(right, names)
            return {
                ast.Add: a + b,
                ast.Sub: max(a - b, 0),
                ast.Mult: a * b,
                ast.FloorDiv: a // b if b > 0 else 0,
                ast.Mod: a % b if b > 0 else 0,
            }[type(operator)]
        case ast.Call(func=ast.Name(id="min"), args=arguments):
            return min(value(argument, names) for argument in arguments)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return value(body if value(test, names) else orelse, names)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return int(value(left, names) == value(right, names))
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return int(value(left, names) != value(right, names))
        case ast.Compare(left=left, ops=[ast.LtE()], comparators=[right]):
            return int(value(left, names) <= value(right, names))
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]):
            return int(value(left, names) >= value(right, names))
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=some)]):
            return int(value(left, names) in [value(constant, names) for constant in some])
    raise NotImplementedError(ast.unparse(expression))


def _grid(rows: int, columns: int) -> tuple[Offsets, Offsets]:
    if rows * columns > MOST_ELEMENTS:
        raise TooManyError
    if not rows * columns:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    i, j = np.indices((rows, columns), np.int64)
    return i.ravel(), j.ravel()


def _band(rows: int, columns: int, below: int, above: int, ld: int, by_rows: bool) -> tuple[Offsets, ...]:
    i, j = _grid(rows, columns)
    inside = (i - j <= below) & (j - i <= above)
    i, j = i[inside], j[inside]
    return i, j, i * ld + below + j - i if by_rows else j * ld + above + i - j


def _packed(upper: bool, n: int, by_rows: bool) -> tuple[Offsets, ...]:
    i, j = _grid(n, n)
    inside = i <= j if upper else i >= j
    i, j = i[inside], j[inside]
    order = np.lexsort((j, i) if by_rows else (i, j))  # row after row, or column after column
    return i[order], j[order], np.arange(len(order))


def touched_by_one(kind: str, arguments: list[int], by_rows: bool) -> Offsets:
    """Return the places of the elements that one extent touches; by_rows: a matrix is stored row by row."""
    unit = False
    match kind, arguments:
        case "vector", [n, inc]:
            return _grid(n, 1)[0] * abs(inc) if inc else np.zeros(min(n, 1), np.int64)
        case "elements", [n]:
            return _grid(n, 1)[0]
        case "matrix", [rows, columns, ld]:
            i, j = _grid(rows, columns)
            return i * ld + j if by_rows else i + j * ld
        case "triangle", [upper, n, ld, *rest]:
            i, j = _grid(n, n)
            inside = i <= j if upper else i >= j
            i, j, unit = i[inside], j[inside], any(rest) and n > 1
            places = i * ld + j if by_rows else i + j * ld
        case "band", [rows, columns, below, above, ld]:
            i, j, places = _band(rows, columns, below, above, ld, by_rows)
        case "band_triangle", [upper, n, k, ld, *rest]:
            i, j, places = _band(n, n, 0 if upper else k, k if upper else 0, ld, by_rows)
            unit = any(rest) and n > 1 and k > 0
        case "packed", [upper, n, *rest]:
            i, j, places = _packed(bool(upper), n, by_rows)
            unit = any(rest) and n > 1
        case _:
            raise NotImplementedError(kind)
    return places[i != j] if unit else places


def touched_by(extent: Extent, names: Mapping[str, int], by_rows: bool) -> Offsets:
    """Return the places of all elements that an extent touches, including every array in an array of pointers."""
    touched = touched_by_one(extent.kind, [value(argument, names) for argument in extent.arguments], by_rows)
    if not extent.batch:
        return touched
    stride, count = (value(expression, names) for expression in extent.batch)
    starts, each = _grid(count, len(touched))
    return starts * stride + touched[each] if len(touched) else touched


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """The arguments of one legal call. In a function for groups, lists have one value for each group."""

    library: roles.Library
    function: roles.Function
    integers: dict[str, Any]  # enums and sizes
    numbers: dict[str, Any]  # scalars and updates, as Python objects
    touched: dict[str, Offsets]  # {array: places}
    many: dict[str, list[Offsets]]  # {array of pointers: the places in each array}
    absent: frozenset[str] = frozenset()  # optional arrays that are not passed

    @property
    def reaches_the_vendor(self) -> bool:
        """Return whether the vendor's function is called.

        It is not called without an array, or if it would write nothing.
        """
        there = not self.touched or any(self.many.get(name, True) for name in self.touched.keys() - self.absent)
        return not self.writes_nothing and there

    @property
    def writes_nothing(self) -> bool:
        """Return whether every array that the call would write is empty, and the call would write nothing else."""
        function = self.function
        written = [array for array in function.arrays if not array.is_read_only]
        numbers = any(not number.is_read_only for number in function.numbers)
        hosts = any(isinstance(parameter, HostArray) and parameter.writes for parameter in function.parameters)
        if function.lists or numbers or hosts or not written or told(function):
            return False
        return not any(any(map(len, self.many.get(name.name, [self.touched[name.name]]))) for name in written)

    @property
    def names(self) -> dict[str, Any]:
        """Return the values of all names in expressions."""
        return clamped(self.library, self.function, self.integers) | self.numbers

    def places(self, name: str, at: int = 0) -> Offsets:
        """Return the places of the touched elements of an array, or of the array at `at` in an array of pointers."""
        if name not in self.many:
            return self.touched[name]
        return self.many[name][at] if self.many[name] else np.zeros(0, np.int64)

    def needs(self, name: str, at: int = 0) -> int:
        """Return the least number of elements of an array, or of the array at index `at` of an array of pointers."""
        places = self.places(name, at)
        return int(places.max()) + 1 if len(places) else 0

    def __str__(self) -> str:
        sizes = {name: f"<{self.needs(name)}>" for name in self.touched}
        sizes |= {name: [f"<{self.needs(name, at)}>" for at in range(len(each))] for name, each in self.many.items()}
        shown = {**self.integers, **self.numbers, **sizes}
        return f"{self.library.name}.{self.function.name}({', '.join(f'{k}={v}' for k, v in shown.items())})"


def is_by_rows(library: roles.Library, integers: Mapping[str, int]) -> bool:
    """Return whether matrices are stored row by row."""
    order = library.row_major
    return order is not None and integers.get(order[0]) == order[1]


def stored_rows(extent: Extent, names: Mapping[str, int], by_rows: bool) -> int:
    """Return the least leading dimension of an extent that has one."""
    match extent.kind, [value(argument, names) for argument in extent.arguments]:
        case "matrix", [rows, columns, _]:
            return max(columns if by_rows else rows, 1)
        case "band", [_, _, below, above, _]:
            return below + above + 1
        case "triangle", [_, n, *_]:
            return max(n, 1)
        case "band_triangle", [_, _, k, *_]:
            return k + 1
    raise NotImplementedError(extent.kind)


LD_AT = {"matrix": 2, "triangle": 2, "band": 4, "band_triangle": 3}


def extents_with(function: roles.Function, name: str, label: str) -> list[tuple[Array, Extent]]:
    """Return the extents whose leading dimension, increment or stride is the parameter `name`."""
    key = (function.symbol, name)
    if key not in _extents_with:
        _extents_with[key] = _find_extents(function, name, label)
    return _extents_with[key]


_extents_with: dict[tuple[str, str], list[tuple[Array, Extent]]] = {}


def _find_extents(function: roles.Function, name: str, label: str) -> list[tuple[Array, Extent]]:
    extents = []
    for array in function.arrays:
        for extent in array.extents:
            place = None
            if label == "ld" and extent.kind in LD_AT:
                place = extent.arguments[LD_AT[extent.kind]]
            elif label == "inc" and extent.kind == "vector":
                place = extent.arguments[1]
            elif label == "stride" and extent.batch:
                place = extent.batch[0]
            if place is not None and name in expressions.names_in(place):
                extents.append((array, extent))
    return extents


def clamped(library: roles.Library, function: roles.Function, integers: Mapping[str, int]) -> dict[str, int]:
    """Return the values of all names in expressions, with 0 for negative lengths."""
    lengths = {size.name: max(integers[size.name], 0) for size in function.sizes if size.may_be_negative}
    return library.constants | dict(integers) | lengths | told(function)


def told(function: roles.Function) -> dict[str, int]:
    """Return {attribute of an object, such as object.rank: the value that the object reports}."""
    return {
        f"{parameter.name}.{name}": TOLD[name]
        for parameter in function.parameters
        if isinstance(parameter, Object)
        for name, _ in parameter.object_kind.tells
    }


def may_stand_still(function: roles.Function, inc: str) -> bool:
    """Return whether an increment may be 0."""
    return all(array.repeats for array, _ in extents_with(function, inc, "inc"))


def least(library: roles.Library, function: roles.Function, size: Size | HostList, names: dict[str, int]) -> int:
    """Return the least value of a leading dimension or of a stride."""
    by_rows = is_by_rows(library, names)
    names = clamped(library, function, names) | {size.name: 0}
    extents = extents_with(function, size.name, size.label)
    if size.label == "ld":
        return max((stored_rows(extent, names, by_rows) for _, extent in extents), default=1)
    least = 0
    for array, extent in extents:
        alone = touched_by(Extent(extent.kind, extent.arguments), names, by_rows)
        if not array.is_read_only and len(alone):
            least = max(least, int(alone.max()) + 1)
    return least


def choices(function: roles.Function, enum_value: EnumValue) -> list[int]:
    """Return the possible values of an enum.

    An enum for the dtype of a number has only dtypes with numbers on the host.
    """
    named = any(number.of == enum_value.name for number in (*function.numbers, *function.lists))
    without = {number for _, number, dtype in enum_value.enum.dtypes if dtype in NO_NUMBERS} if named else set()
    return [number for _, number in enum_value.enum.values if number not in without]


NOTED = "f64"  # the noted dtype of objects


def with_dtypes(function: roles.Function, integers: Mapping[str, int]) -> roles.Function:
    """Return the function with the dtypes that its arguments give and its objects note."""
    if any(array.noted_by for array in function.arrays):
        noted = (
            replace(argument, dtype=NOTED) if getattr(argument, "noted_by", "") else argument
            for argument in function.arguments
        )
        return replace(function, arguments=tuple(noted))
    if not function.types:
        return function
    said = {type_.name: {number: dtype for _, number, dtype in type_.enum.dtypes} for type_ in function.types}
    dtypes = {
        parameter.name: said[parameter.of][integers[parameter.of]] for parameter in function.parameters if parameter.of
    }
    for parameter in function.parameters:
        if parameter.complex_as and dtypes[parameter.complex_as] in ("c64", "c128"):
            dtypes[parameter.name] = {"f32": "c64", "f64": "c128"}.get(dtypes[parameter.name], dtypes[parameter.name])
    return replace(
        function,
        arguments=tuple(
            replace(argument, dtype=dtypes.get(argument.name, argument.dtype)) for argument in function.arguments
        ),
    )


def number(random: np.random.Generator, dtype: str) -> Any:
    """Return a number that every dtype of its kind can represent exactly."""
    if dtype[0] in "iu":
        return int(random.integers(0, 99))
    real = float(random.integers(-99, 99)) / 4 + 0.125
    if dtype in ("c64", "c128"):
        return complex(real, float(random.integers(-99, 99)) / 4 + 0.125)
    if dtype in ("f16", "bf16", "f32", "f64"):
        return real
    raise NotImplementedError(f"numbers of {dtype}")


def _numbers(random: np.random.Generator, function: roles.Function) -> dict[str, Any]:
    return {
        parameter.name: number(random, parameter.dtype)
        if parameter.count == 1
        else tuple(number(random, parameter.dtype) for _ in range(parameter.count))
        for parameter in function.of("scalar", "update")
    }


def completed(
    library: roles.Library, function: roles.Function, sizes: Mapping[str, int], random: np.random.Generator, spare: int
) -> Call:
    """Return a call with these integers, and leading dimensions and strides at most `spare` above the least."""
    integers = dict(sizes)
    function = with_dtypes(function, integers)
    for label in ("ld", "stride"):
        for size in function.of(label):
            assert isinstance(size, Size)
            if size.name not in integers:
                integers[size.name] = least(library, function, size, integers) + int(random.integers(0, spare + 1))
    by_rows = is_by_rows(library, integers)
    names = (
        library.constants
        | integers
        | {size.name: max(integers[size.name], 0) for size in function.sizes if size.may_be_negative}
        | told(function)
    )
    if not all(value(require, names) for require in function.requires):
        raise UnfitError
    touched = {
        array.name: np.concatenate([touched_by(extent, names, by_rows) for extent in array.extents])
        for array in function.arrays
    }
    counts = {array.name: value(array.extent.pointers, names) for array in function.arrays if array.extent.pointers}
    if any(count > MOST_ELEMENTS for count in counts.values()):
        raise TooManyError
    many = {name: [touched[name]] * count for name, count in counts.items()}
    order = [parameter.name for parameter in function.parameters if parameter.name in integers]
    return Call(library, function, {name: integers[name] for name in order}, _numbers(random, function), touched, many)


def completed_groups(
    library: roles.Library,
    function: roles.Function,
    fixed: Mapping[str, int],
    groups: list[dict[str, int]],
    random: np.random.Generator,
    spare: int,
) -> Call:
    """Return a call of these groups, each with its own integers; fixed: the integers that are not lists."""
    function = with_dtypes(function, fixed)
    many: dict[str, list[Offsets]] = {array.name: [] for array in function.arrays}
    by_rows = is_by_rows(library, fixed)
    for group in groups:
        for list_ in function.lists:
            if list_.label == "ld" and list_.name not in group:
                group[list_.name] = least(library, function, list_, {**fixed, **group}) + int(
                    random.integers(0, spare + 1)
                )
        names = library.constants | fixed | group
        for array in function.arrays:
            count = value(array.extent.pointers, names)
            if count > MOST_ELEMENTS:
                raise TooManyError
            many[array.name] += [touched_by(array.extent, names, by_rows)] * count
    lists = [list_.name for list_ in function.lists if list_.label != "scalar"]
    integers = {**fixed, **{name: tuple(group[name] for group in groups) for name in lists}}
    integers[function.lists[0].length] = len(groups)
    numbers = {
        list_.name: tuple(number(random, list_.dtype) for _ in groups)
        for list_ in function.lists
        if list_.label == "scalar"
    }
    touched = {name: np.concatenate([np.zeros(0, np.int64), *each]) for name, each in many.items()}
    return Call(library, function, integers, numbers, touched, many)


def draw_groups(library: roles.Library, function: roles.Function, random: np.random.Generator, lowest: int) -> Call:
    fixed = {
        parameter.name: int(random.choice(choices(function, parameter)))
        for parameter in function.parameters
        if isinstance(parameter, EnumValue)
    }
    groups = []
    for _ in range(int(random.integers(lowest, 4))):
        group = {}
        for list_ in function.lists:
            if list_.enum:
                group[list_.name] = int(random.choice([number for _, number in list_.enum.values]))
            elif list_.label == "size":
                group[list_.name] = int(random.choice([1, 2, 3, 4] + [0] * (lowest == 0)))
        groups.append(group)
    return completed_groups(library, function, fixed, groups, random, spare=3)


# An unknown field may be a clause of the grammar that calls must follow.
ARRAY_FIELDS = {
    "name",
    "c_type",
    "dtype",
    "count",
    "direction",
    "extent",
    "overwrites",
    "in_place",
    "in_place_at",
    "in_place_if",
    "becomes",
}
ARRAY_FIELDS |= {
    "repeats",
    "optional",
    "optional_if",
    "of",
    "complex_as",
    "noted_by",
    "field_of",
}
KNOWN = (
    EnumValue,
    Size,
    HostList,
    Array,
    Number,
    Real,
    Handle,
    Stream,
    Workspace,
    WorkspaceSize,
    Nothing,
    Object,
    Integer,
)


def known_roles(function: roles.Function) -> None:
    """Raise NotImplementedError if calls can't be made because of a parameter."""
    for argument in function.arguments:
        if not isinstance(argument, KNOWN):
            raise NotImplementedError(f"{function.name}: {argument.name} is a {type(argument).__name__}")
        for field in fields(argument) if isinstance(argument, Array) else ():
            if field.name not in ARRAY_FIELDS and getattr(argument, field.name) != field.default:
                raise NotImplementedError(f"{function.name}: {argument.name} has {field.name}")


def may_be_absent(call: Call, array: Array) -> bool:
    """Return whether a call may pass None for an array."""
    return array.optional or (array.optional_if is not None and bool(value(array.optional_if, call.names)))


def draw(library: roles.Library, function: roles.Function, random: np.random.Generator, least: int = 0) -> Call:
    """Return a legal call with small sizes, any increments, and leading dimensions and strides with and without gaps.

    `least` is the least value of every size; with 0, sizes that may be negative sometimes are.
    """
    known_roles(function)
    if function.lists:
        return draw_groups(library, function, random, least)
    while True:
        try:
            call = completed(library, function, drawn(function, random, least), random, spare=3)
            break
        except UnfitError:
            continue
    optional = [array.name for array in function.arrays if may_be_absent(call, array)]
    call.absent = frozenset(name for name in optional if random.integers(0, 3) == 0)
    call.touched |= dict.fromkeys(call.absent, np.zeros(0, np.int64))
    return call


def drawn(function: roles.Function, random: np.random.Generator, least: int) -> dict[str, int]:
    """Return random enums, sizes and increments."""
    integers: dict[str, int] = {}
    for parameter in function.parameters:
        if isinstance(parameter, EnumValue):
            integers[parameter.name] = int(random.choice(choices(function, parameter)))
        elif isinstance(parameter, Size) and parameter.label == "value":
            is_tested = any(parameter.name in _names_of(array.extent) for array in function.arrays)
            integers[parameter.name] = int(random.integers(*((0, 2) if is_tested else (1, 100))))
        elif isinstance(parameter, Integer):
            integers[parameter.name] = int(random.integers(0, 100))
        elif isinstance(parameter, Size) and parameter.label == "size":
            few = [0, 1, 1, 2, 3, 3, 4, 5, 6] + ([-1, -7] if parameter.may_be_negative else [])
            integers[parameter.name] = int(random.choice([size for size in few if size >= least or not least]))
        elif isinstance(parameter, Size) and parameter.label == "inc":
            still = [0] if may_stand_still(function, parameter.name) else []
            integers[parameter.name] = int(random.choice([1, 1, 2, 3, -1, -2, *still]))
    return integers


def with_large(library: roles.Library, function: roles.Function, name: str, large: int) -> Call | None:
    """Return a legal call of few elements in which one size, leading dimension or increment is `large`, or None.

    The other sizes differ from each other as far as possible. But matrices must be empty or have one column, and
    vectors must have one element or an increment of 0.
    """
    random = np.random.default_rng(zlib.crc32(f"{function.family} {name}".encode()))
    counted = {name for array in function.arrays for part in array.extents for name in _names_of(part)}
    enums = {
        parameter.name: _any_order(
            random, choices(function, parameter), len(parameter.enum.values) if parameter.name in counted else 1
        )
        for parameter in function.parameters
        if isinstance(parameter, EnumValue)
    }
    sizes = {size.name: (3 + at, 1, 0) for at, size in enumerate(function.of("size")) if size.name != name}
    incs = {}
    for at, inc in enumerate(function.of("inc")):
        incs[inc.name] = (2 + at, 0) if may_stand_still(function, inc.name) else (2 + at,)
    axes = sizes | incs | enums
    key = (library.name, function.family, name, *axes, *enums.values())
    for values in filter(None, [_found_before[key]]) if key in _found_before else product(*axes.values()):
        others = {value_.name: 6 + at for at, value_ in enumerate(function.of("value", "integer"))}
        integers = others | dict(zip(axes, values, strict=True)) | {name: large}
        try:
            call = completed(library, function, integers, random, spare=9)
        except TooManyError:
            continue
        if all(call.needs(name_) <= MOST_ELEMENTS for name_ in call.touched):
            _found_before[key] = values
            return call
    _found_before[key] = ()
    return None


# The values that with_large found, by family, size and the values of the enums. They are valid for all types. (): no
# such values.
_found_before: dict[tuple[Any, ...], tuple[int, ...]] = {}


def _names_of(extent: Extent) -> set[str]:
    return set().union(*map(expressions.names_in, extent.expressions))


def _any_order(random: np.random.Generator, values: list[int], count: int) -> tuple[int, ...]:
    return tuple(int(number) for number in random.permutation(values)[:count])


def with_large_group(library: roles.Library, function: roles.Function, name: str, large: int) -> Call | None:
    """Return a legal call of one group in which one list has the value `large`, or None."""
    random = np.random.default_rng(zlib.crc32(f"{function.family} {name}".encode()))
    fixed = {
        parameter.name: parameter.enum.values[0][1]
        for parameter in function.parameters
        if isinstance(parameter, EnumValue)
    }
    axes: dict[str, tuple[int, ...]] = {}
    for at, list_ in enumerate(function.lists):
        if list_.enum:
            axes[list_.name] = _any_order(random, [number for _, number in list_.enum.values], len(list_.enum.values))
        elif list_.label == "size" and list_.name != name:
            axes[list_.name] = (3 + at, 1, 0)
    for values in product(*axes.values()):
        try:
            group = dict(zip(axes, values, strict=True)) | {name: large}
            call = completed_groups(library, function, fixed, [group], random, spare=9)
        except TooManyError:
            continue
        if all(call.needs(name_, at) <= MOST_ELEMENTS for name_ in call.many for at in range(len(call.many[name_]))):
            return call
    return None


def large_calls(library: roles.Library, function: roles.Function) -> Iterator[tuple[Size | HostList, Call]]:
    """Yield, for each size that may exceed 32 bits, a legal call with such a size."""
    for at, list_ in enumerate(function.lists):
        large = 2**31 + 3 * at if at % 2 else 2**33 + 5 + at
        call = with_large_group(library, function, list_.name, large) if list_.label in ("size", "ld") else None
        if call:
            yield list_, call
    if function.lists:
        return
    for at, size in enumerate(function.sizes):
        large = 2**31 + 3 * at if at % 2 else 2**33 + 5 + at
        call = with_large(library, function, size.name, -large if size.label == "inc" and at % 2 else large)
        if call:
            yield size, call


@cache
def also(library: str) -> dict[str, dict[str, str]]:
    """Return {family: {name in the header: name of the parameter}} for names that differ."""
    labels = roles.read_roles(library)
    return {
        family: {theirs.casefold(): ours for theirs, ours in (labels.get("also", {}) | table.get("also", {})).items()}
        for family, table in labels["family"].items()
    }


def vendors_parameters(library: roles.Library, function: roles.Function) -> list[tuple[str, str, Parameter]]:
    """Return name, C type and role of each parameter, in the order of the vendor's header.

    The pairs are matched by name, so that a generator that confuses parameters can't confuse these pairs, too.
    """
    others = also(library.name)[function.family]
    ours = {
        argument.name.casefold(): argument
        for argument in function.arguments
        if getattr(argument, "passed", True) and not getattr(argument, "returned", False)
    }
    vendors_parameters = []
    for label, c_type in function.declared:
        named = label.casefold()
        if library.handle and c_type == library.handle["type"] and "handle" in ours:
            named = "handle"
        if named not in ours:
            named = others.get(named, label).casefold()
        named = named if named in ours else named.removesuffix("array")
        if named not in ours:
            named = named.removesuffix("array")
        if named not in ours and label.casefold() in ours:
            named = label.casefold()
        if named not in ours:
            named = "result" if "result" in ours else "results"
        vendors_parameters.append((label, c_type, ours.pop(named)))
    assert not ours, f"{function.symbol} has no {', '.join(ours)}"
    return vendors_parameters


def is_index(number: Number) -> bool:
    """Return whether a number is an index, which has 64 bits on the host and 32 bits on the device."""
    return number.dtype == "i32" and not number.of


def numpy_dtype(name: str) -> Any:
    """Return NumPy's dtype for a dtype of the roles file."""
    known = NUMPY[name]
    return np.dtype(getattr(ml_dtypes, known) if hasattr(ml_dtypes, known) else known)
