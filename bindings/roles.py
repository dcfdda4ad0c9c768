"""Reads api/<library>.json and roles/<library>.toml, and joins them into functions whose every parameter has a role.

The roles file says, for families of functions, what a header can't:

    [family.gemv.bind]
    "{t}gemv" = ["sdcz", "Multiplies a matrix by a vector: y = alpha op(A) x + beta y."]
    [family.gemv.parameters]
    trans = "operation"                                          an enum of the file's [enums]
    m = "size"                                                   or "ld", "inc", "stride"; "length": a size that may be
                                                                 negative, which is none, as in level 1
    alpha = "scalar"                                             a number on the host or the device; "scalar[5]": five
    A = "in matrix(m, n, lda)"                                   a device array: in, out or inout, and its extent
    y = "inout vector(m if trans == OP_N else n, incy); overwrites if beta == 0"
    C = "out matrix(m, n, ldc); may be B"                        in place: the same memory as B is fine
    result = "result"                                            the function's value ("returned": C's return value)
    info = "host result"                                         likewise, on the host whatever the pointer mode is
    m_array = "size list(groups)"                                a host array of so many; "ld list", "scalar list", or
                                                                 "operation list" of an enum
    a = "update"                                                 a scalar that is read and written; "output": written

`out` means that every element of the extent is written and none read. "despite const": the header's const is wrong.
"becomes matrix(...)", of an inout array: the call leaves a matrix of another shape in its memory.
"may repeat", of a vector: its increment may be 0, and then all are one element. "may be B" stands with both operands.
"optional", beside arrays of pointers: there may be no such array.

Extents say which elements are touched, and no others. `upper` and `unit` are tests, such as uplo == UPPER; a unit
diagonal is not touched. Rows and columns are those of the matrix: for functions with an order the generator turns them
into those stored.

    vector(n, inc)                                               n elements, inc apart
    elements(n)                                                  n elements
    matrix(rows, columns, ld)                                    all of a matrix
    triangle(upper, n, ld[, unit])                               one triangle of a square matrix
    band(rows, columns, below, above, ld)                        the diagonals of a band matrix, one a row
    band_triangle(upper, n, k, ld[, unit])                       one triangle of a square band matrix
    packed(upper, n[, unit])                                     one triangle without gaps
    strided(matrix(...), stride, count)                          count of any of these, the starts stride apart
    pointers(matrix(...), count)                                 count of any of these, behind an array of pointers
    grouped(matrix(...), groups, size)                           an array of pointers to groups of these, each group
                                                                 with its own values of the names that are lists

Of an array of pointers Python takes a list of DevicePtrs or one whose first axis counts the arrays, and C an array
of handles. The addresses go to the device as an array.

Expressions are names of sizes and enums, constants, whole numbers, `a + b`, `a - b`, `a * b`, `min(a, b)`, `a == b`,
`a in (b, c)` and `a if test else b`.

A family may have `also = { A = "AP" }`, for functions whose header names a parameter otherwise; `types`, which count
before those of the file; `pointer_mode = "device"`, if all its pointers are to the device; and `optional = true`, if a
library that lacks it is whole: so it is with extensions of one vendor.

How Python finds the library, and what to install if it is missing:

    [find]
    pathfinder = "cublas"                                        its name for cuda-pathfinder
    shared_with = { NumPy = ["module", ...] }                    loaded modules that are linked with it: it is theirs
    wheels = { name-on-the-index = "module/lib/libx*.so" }       wheels that carry it: a pattern in a module's folder
    version = { call = "xGetProperty", gives = "parts" }         the function that tells its version; VERSION_GIVES
    install = "install x"                                        the remedy, in messages

The types that the header's functions take, for the signatures of <library>.raw. Enums are known already. A function
with a type that is not known is left out there:

    [raw]
    cublasHandle_t = "struct cublasContext *"
    cuComplex = "struct { float x, y; }"

Families that several libraries have stand in a file of their own, such as roles/blas.toml, and a library takes over
those that its header has:

    extends = ["blas"]                                           at the top; the library's own families come first
    [words]
    UPPER = "CUBLAS_FILL_MODE_UPPER"                             its constant for a word of the shared tests

A family of the library with the name of a shared one states only what differs: a label, a name under `also`, a bound
template. {form} in a name stands for "" and for the batched forms that the header has ("_batched" with arrays of
pointers, and "_strided_batched"). Those have the family's parameters and extents, each once for every one of a batch.

There is no default: a parameter with no role, a role for no parameter, and a role that its C type contradicts are
errors.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from . import shared
from .lines import located
from .parameters import (
    C_NUMBER,
    EXTENTS,
    NUMBERS,
    SIZE_TYPES,
    Array,
    Enum,
    EnumValue,
    Extent,
    Handle,
    HostList,
    Number,
    Parameter,
    PointerArray,
    Result,
    Size,
    Stream,
    name_fault,
)

HERE = Path(__file__).parent
LETTERS = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}
# The keys of [find] with their defaults: how a library is found and asked for its version.
FIND: dict[str, Any] = {"install": "install it", "pathfinder": "", "shared_with": {}, "wheels": {}}
VERSION_GIVES = ("text", "parts", "number", "buffer")
# How a library receives the stream: through its handle; as an argument; or not at all.
STREAMS = ("handle", "argument", "none")
# Where its functions take scalars and results: on the host or the device, as the handle's pointer mode says; through
# pointers to the host only; by value.
SCALARS = ("pointer mode", "host", "by value")
REQUIRED = ("name", "title")
SETTINGS = (*REQUIRED, "source", "backend", "sonames", "symbols", "wide", "strip", "status", "success", "stream")
SETTINGS += ("scalars", "prefixes", "suffixes", "probe", "row_major")
MOST_PARAMETERS = 32  # OA_MOST_VALUES of csrc/call/routine.h
HANDLE_FUNCTIONS = ("create", "destroy", "set_stream", "get_stream", "set_pointer_mode", "get_pointer_mode")
HANDLE_MODES = ("host_mode", "device_mode")


class RolesError(ValueError):
    """The faults of a roles file, each on a line of its own."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Function:
    """One bound function."""

    name: str
    symbol: str
    wide_symbol: str | None
    returns: str
    arguments: tuple[Parameter, ...]  # all, in the vendor's order; a result that is returned is last
    summary: str
    family: str
    optional: bool  # a library that has all others is whole
    device_only: bool  # its pointers are to the device whatever they are to

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Returns those that the caller passes: without the handle and the stream, and with the result last."""
        passed = [one for one in self.arguments if one.in_record]
        return tuple(sorted(passed, key=lambda one: isinstance(one, Result)))

    def of(self, *roles: str) -> list[Parameter]:
        """Returns the parameters that have one of these roles."""
        return [one for one in self.parameters if one.role in roles]

    @property
    def arrays(self) -> list[Array]:
        return [one for one in self.parameters if isinstance(one, Array)]

    @property
    def sizes(self) -> list[Size]:
        return [one for one in self.parameters if isinstance(one, Size)]

    @property
    def lists(self) -> list[HostList]:
        return [one for one in self.parameters if isinstance(one, HostList)]

    @property
    def numbers(self) -> list[Number]:
        return [one for one in self.parameters if isinstance(one, Number)]

    @property
    def result(self) -> Result | None:
        """Returns the parameter that is the function's value, if it has one."""
        return next((one for one in self.parameters if isinstance(one, Result)), None)


@dataclass
class Library:
    """One vendor library: its settings, constants and bound functions."""

    name: str
    title: str
    source: str
    backend: str | None
    sonames: list[str]
    stream: str  # one of STREAMS
    scalars: str  # one of SCALARS
    success: int
    prefixes: list[str]
    suffixes: list[str]
    probe: str | None
    header: str
    version: str
    status_codes: list[tuple[int, str]]
    handle: dict[str, Any] | None
    row_major: tuple[str, int] | None
    constants: dict[str, int]
    functions: list[Function]
    find: dict[str, Any]
    api: dict[str, Any]
    status: str = ""  # the type that its functions return; "" if they return none
    raw: dict[str, str] = field(default_factory=dict)  # the C definition of types that the api only names
    not_bound: dict[str, list[str]] = field(default_factory=dict)
    api_count: int = 0

    def has_device_form(self, function: Function) -> bool:
        """Returns whether the numbers of a function may be on the device."""
        return any(one.role != "value" for one in function.numbers) and self.scalars != "host"


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def names_in(expression: ast.expr) -> set[str]:
    """Returns every name of an expression."""
    called = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name) and id(node) not in called}


def _pointee(c_type: str) -> tuple[str, bool]:
    """Returns what a pointer type points to, and whether that is const; ("", False) for any other type."""
    found = re.fullmatch(r"(const )?([\w ]+?) ?\*", c_type)
    return (found.group(2), found.group(1) is not None) if found else ("", False)


def _listed(c_type: str) -> tuple[str, bool]:
    """Returns what the pointers of an array point to, and whether that is const; ("", False) for any other type."""
    found = re.fullmatch(r"(const )?([\w ]+?) ?\*(?:const)? ?(?:\*|\[\])", c_type)
    return (found.group(2), found.group(1) is not None) if found else ("", False)


class _Reader:
    def __init__(self, name: str, api: dict[str, Any], roles: dict[str, Any]) -> None:
        self.name = name
        self.api = api
        self.roles = roles
        self.settings = roles.get("library", {})
        self.enums = roles.get("enums", {})
        self.own_types: dict[str, str] = {}  # of the family that is read
        self.form = ""  # likewise
        self.words: dict[str, str] = {}
        self.faults: list[str] = []
        self.faults += [f"{name}.toml: [library] has no {key}" for key in REQUIRED if key not in self.settings]
        self.faults += [
            f"{name}.toml: [library] {key} is not understood" for key in self.settings if key not in SETTINGS
        ]
        strip = self.settings.get("strip", "")
        self.all_constants = {key: value for one in api["enums"].values() for key, value in one.items()}
        used = {key for one in self.enums.values() for key in one["constants"]}
        for key in sorted(used - self.all_constants.keys()):
            self.faults.append(f"{name}.toml: [enums]: the header has no constant {key}")
        for word, key in roles.get("words", {}).items():
            self.words[word] = key.removeprefix(strip)
            if key not in used:
                self.faults.append(f"{name}.toml: [words] {word}: none of [enums] has a constant {key}")
        self.constants = {key.removeprefix(strip): value for key, value in self.all_constants.items() if key in used}

    def enum(self, key: str, letter: str) -> Enum:
        entry = self.enums[key]
        names = entry.get("complex", entry["constants"]) if letter in ("c", "z") else entry["constants"]
        strip = self.settings.get("strip", "")
        return Enum(entry["type"], tuple((one.removeprefix(strip), self.all_constants.get(one, 0)) for one in names))

    def dtype(self, pointee: str, letter: str) -> str:
        named = str((self.roles.get("types", {}) | self.own_types).get(pointee, ""))
        return LETTERS.get(letter, "") if named == "letter" else named

    def extent(self, text: str, where: str) -> Extent | None:
        call = shared.in_words(_parse(text), self.words)
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            self.faults.append(f"{where}: {text!r} is not an extent")
            return None
        batch, pointers, groups = None, None, ""
        if call.func.id == "pointers" and len(call.args) == 2 and isinstance(call.args[0], ast.Call):
            pointers = call.args[1]
            call = call.args[0]
        elif call.func.id == "grouped" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            groups, pointers = ast.unparse(call.args[1]), call.args[2]
            call = call.args[0]
        elif shared.is_listed(self.form):
            pointers = ast.Name("batch count")  # in_form says which
        elif call.func.id == "strided" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            batch = (call.args[1], call.args[2])
            call = call.args[0]
        kind = call.func.id if isinstance(call.func, ast.Name) else ""
        if kind not in EXTENTS or len(call.args) not in EXTENTS[kind][0]:
            self.faults.append(f"{where}: {text!r} is not an extent; there are {', '.join(EXTENTS)}")
            return None
        return Extent(kind, tuple(call.args), batch, pointers, groups)

    def array(self, name: str, c_type: str, label: str, letter: str, where: str) -> Array | None:
        head, *clauses = (part.strip() for part in label.split(";"))
        direction, _, extent_text = head.partition(" ")
        extent = self.extent(extent_text, where)
        if extent is None:
            return None
        overwrites, in_place, becomes, despite_const, repeats = None, "", None, False, False
        pointers, optional = extent.pointers, False
        for clause in clauses:
            if clause.startswith("overwrites if "):
                overwrites = shared.in_words(_parse(clause.removeprefix("overwrites if ")), self.words)
            elif clause.startswith("may be "):
                in_place = clause.removeprefix("may be ")
            elif clause == "despite const":
                despite_const = True
            elif clause.startswith("becomes ") and direction == "inout":
                becomes = self.extent(clause.removeprefix("becomes "), where)
            elif clause == "may repeat" and extent.kind == "vector":
                repeats = True
            elif clause == "optional" and not pointers:
                optional = True
            else:
                self.faults.append(f"{where}: {clause!r} is not understood")
        pointee, const = _listed(c_type) if pointers else _pointee(c_type)
        dtype = self.dtype(pointee, letter)
        if not pointee or not dtype:
            kind_of = "pointers" if pointers else "an array"
            self.faults.append(f"{where}: labelled {kind_of}, but its type is {c_type}")
        elif direction != "in" and const != despite_const:
            self.faults.append(f"{where}: labelled {direction}, but its type is {c_type}")
        elif direction == "in" and not const:
            self.faults.append(f"{where}: labelled in, but its type is {c_type}, not const")
        return (PointerArray if pointers else Array)(
            name=name,
            c_type=c_type,
            dtype=dtype,
            direction=direction,
            extent=extent,
            overwrites=overwrites,
            in_place=in_place,
            becomes=becomes,
            repeats=repeats,
            optional=optional,
        )

    def parameter(self, name: str, c_type: str, label: str, letter: str, where: str) -> Parameter | None:
        plain = c_type.removeprefix("enum ")
        if label in ("size", "length", "ld", "inc", "stride"):
            if plain not in SIZE_TYPES:
                self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
            is_length = label == "length"
            return Size(name=name, c_type=c_type, label="size" if is_length else label, may_be_negative=is_length)
        if label in self.enums:
            enum = self.enum(label, letter)
            if plain != enum.type:
                self.faults.append(f"{where}: labelled {label} ({enum.type}), but its type is {c_type}")
            return EnumValue(name=name, c_type=c_type, enum=enum)
        listed = re.fullmatch(r"(\w+) list\((\w+)\)", label)
        if listed:
            return self.host_list(name, c_type, listed[1], listed[2], letter, where)
        if label == "host result":
            pointee, const = _pointee(c_type)
            dtype = self.dtype(pointee, letter)
            if const or dtype not in C_NUMBER:
                self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
            return Result(name=name, c_type=c_type, dtype=dtype, on_host=True)
        counted = re.fullmatch(r"(scalar|result|returned|update|output)(?:\[(\d+)\])?", label)
        if counted:
            role, count = counted.group(1), int(counted.group(2) or 1)
            pointee, const = _pointee(c_type)
            dtype = self.dtype(pointee or plain, letter)
            by_value = role == "returned" or (role == "scalar" and not pointee and count == 1)
            right = not pointee if by_value else bool(pointee) and const == (role == "scalar")
            if not right or not dtype or (dtype == "i32" and role not in ("result", "returned")):
                self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
            elif dtype not in C_NUMBER:
                self.faults.append(f"{where}: labelled {label}, and there are no numbers of {dtype} yet")
            if role in ("result", "returned"):
                return Result(name="result", c_type=c_type, dtype=dtype, count=count, returned=role == "returned")
            return NUMBERS[role](name=name, c_type=c_type, dtype=dtype, count=count)
        if label == "stream":
            return Stream(name=name, c_type=c_type)
        if label.split(" ")[0] in ("in", "out", "inout"):
            return self.array(name, c_type, label, letter, where)
        self.faults.append(f"{where}: {label!r} is not a role")
        return None

    def host_list(self, name: str, c_type: str, label: str, length: str, letter: str, where: str) -> HostList:
        found = re.fullmatch(r"const (.+?) ?(?:\*|\[\])", c_type)
        element = found[1] if found else ""
        dtype, enum = "", None
        if label in self.enums:
            label, enum = "enum", self.enum(label, letter)
            right = element.removeprefix("enum ") == enum.type
        elif label == "scalar":
            dtype = self.dtype(element, letter)
            right = dtype in C_NUMBER and dtype != "i32"
        else:
            right = label in ("size", "ld") and element in SIZE_TYPES
        if not right:
            self.faults.append(f"{where}: labelled {label} list, but its type is {c_type}")
        return HostList(name=name, c_type=c_type, dtype=dtype, label=label, length=length, enum=enum)

    def function(self, name: str, symbol: str, letter: str, key: str, summary: str, form: str) -> Function:
        family = self.roles["family"][key]
        self.own_types, self.form = family.get("types", {}), form
        unknown = family.keys() - {"bind", "parameters", "also", "types", "pointer_mode", "optional", "shared"}
        if unknown:
            self.faults.append(f"{self.name}.toml: [family.{key}] {', '.join(sorted(unknown))}: not understood")
        entry = self.api["functions"][symbol]
        labels = {one.casefold(): (one, label) for one, label in family["parameters"].items()}
        also = {one.casefold(): ours for one, ours in family.get("also", {}).items()}
        where = f"{self.name}.toml: [family.{key}] {symbol}"
        handle = self.roles.get("handle", {}).get("type")
        parameters: list[Parameter] = []
        used: set[str] = set()
        for given, c_type in entry["parameters"]:
            if handle and c_type == handle:
                parameters.append(Handle(name="handle", c_type=c_type))
                continue
            looked_up = also.get(given.casefold(), given).casefold()
            if looked_up not in labels:
                looked_up = shared.plain_name(form, looked_up)
            if looked_up not in labels:
                labelled = shared.label_in_form(form, given)
                if labelled and (made := self.parameter(given, c_type, labelled, letter, f"{where}: {given}")):
                    parameters.append(made)
                    continue
                self.faults.append(f"{where}: {given} ({c_type}) has no role")
                continue
            ours, label = labels[looked_up]
            used.add(looked_up)
            made = self.parameter(ours, c_type, label, letter, f"{where}: {given}")
            if made:
                parameters.append(made)
        for folded, (ours, label) in labels.items():
            if label == "returned":
                made = self.parameter(ours, entry["returns"], label, letter, f"{where}: return value")
                if made:
                    parameters.append(made)
            elif folded not in used:
                self.faults.append(f"{where}: the role {ours} names no parameter")
        parameters, lacking = shared.in_form(form, parameters)
        self.faults += [f"{where}: {one} has no stride, or no batch count" for one in lacking]
        known = {one.name for one in parameters} | self.constants.keys()
        for one in parameters:
            if isinstance(one, HostList) and one.length not in known:
                self.faults.append(f"{where}: {one.name}: {one.length} is neither a parameter nor a constant")
            wrong = name_fault(one.name) if one.in_record else ""
            if wrong:
                self.faults.append(f"{where}: {one.name}: it {wrong}; name it otherwise under `also`")
            if not isinstance(one, Array):
                continue
            for expression in one.expressions:
                for unknown in sorted(names_in(expression) - known):
                    self.faults.append(f"{where}: {one.name}: {unknown} is neither a parameter nor a constant")
        passed = sum(one.in_record for one in parameters)
        if passed > MOST_PARAMETERS:
            self.faults.append(f"{where}: has {passed} parameters, and a routine at most {MOST_PARAMETERS}")
        status = self.settings.get("status")
        if entry["returns"] not in (status, "void") and not any(one.role == "returned" for one in parameters):
            self.faults.append(f"{where}: the return value ({entry['returns']}) has no role")
        device_only = family.get("pointer_mode") == "device"
        return Function(
            name=name,
            symbol=symbol,
            wide_symbol=self.wide(symbol, where),
            returns=entry["returns"],
            arguments=tuple(parameters),
            summary=summary,
            family=key,
            optional=bool(family.get("optional", False)),
            device_only=device_only,
        )

    def wide(self, symbol: str, where: str) -> str | None:
        """Returns the name of the form with 64-bit sizes, once it is known to be the same function."""
        suffix = self.settings.get("wide")
        wide = self.api["functions"].get(f"{symbol}{suffix}") if suffix else None
        if wide is None:
            return None
        narrow = self.api["functions"][symbol]["parameters"]
        same = len(narrow) == len(wide["parameters"]) and all(
            a == b or (a[0] == b[0] and b[1] == re.sub(r"\bint\b", "int64_t", a[1]))
            for a, b in zip(narrow, wide["parameters"], strict=True)
        )
        if not same:
            self.faults.append(f"{where}: {symbol}{suffix} differs in more than its sizes")
        return f"{symbol}{suffix}"

    def named(self) -> Iterator[tuple[str, str, str, str, bool, str]]:
        """Yields family, name, letter, summary, whether the header may lack it, and form of each function to be bound.

        A library's own families come first.
        """
        families = self.roles.get("family", {})
        templates = [
            (key, one, one in family.get("shared", ())) for key, family in families.items() for one in family["bind"]
        ]
        for key, template, is_shared in sorted(templates, key=lambda one: one[2]):
            bound = families[key]["bind"][template]
            # Without letters: one function, whose types say all.
            letters, summary = ([""], bound) if isinstance(bound, str) else bound
            for letter in letters:
                for form, text in shared.FORMS.items() if "{form}" in template else [("", "")]:
                    name = template.format(t=letter, r=REAL.get(letter, ""), form=form)
                    yield key, name, letter, summary + text, is_shared or form != "", form

    def functions(self) -> list[Function]:
        found: dict[str, Function] = {}
        for key, name, letter, summary, may_lack, form in self.named():
            camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
            spelled = {"name": name, "Name": camel}
            candidates = [one.format(**spelled) for one in self.settings.get("symbols", ["{name}"])]
            symbol = next((one for one in candidates if one in self.api["functions"]), None)
            if symbol is not None and name not in found:
                found[name] = self.function(name, symbol, letter, key, summary, form)
            elif symbol is None and not may_lack:
                listed = ", ".join(candidates)
                self.faults.append(f"{self.name}.toml: [family.{key}] {name}: the header has none of {listed}")
            elif symbol is not None and not may_lack:
                self.faults.append(f"{self.name}.toml: [family.{key}] {name}: bound twice")
        return [found[name] for name in sorted(found)]

    def left_over(self, functions: list[Function]) -> dict[str, list[str]]:
        bound = {one.symbol for one in functions} | {one.wide_symbol for one in functions}
        used = {str(one) for one in self.roles.get("handle", {}).values()}  # by the core
        used |= {self.roles.get("find", {}).get("version", {}).get("call", "")}
        groups: dict[str, list[str]] = {one["reason"]: [] for one in self.roles.get("not_bound", [])}
        for symbol in self.api["functions"]:
            if symbol in bound:
                continue
            rule = next((one for one in self.roles.get("not_bound", []) if re.fullmatch(one["names"], symbol)), None)
            if rule:
                groups[rule["reason"]].append(symbol)
            elif symbol not in used:
                self.faults.append(f"{self.name}.toml: {symbol} is neither bound nor under [[not_bound]]")
        return groups

    def find(self) -> dict[str, Any]:
        """Returns how Python finds the library, with a value for every key."""
        given = dict(self.roles.get("find", {}))
        version = given.pop("version", {"call": "", "gives": ""})
        if version["gives"] not in ("", *VERSION_GIVES):
            known = ", ".join(VERSION_GIVES)
            self.faults.append(f"{self.name}.toml: [find] version: gives is one of {known}, not {version['gives']!r}")
        found = {key: given.pop(key, empty) for key, empty in FIND.items()}
        self.faults += [f"{self.name}.toml: [find] {key} is not understood" for key in given]
        return found | {"version": (version["call"], version["gives"])}

    def setting(self, table: str, key: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Returns a setting that has to be one of a few words."""
        value = self.roles[table].get(key, default)
        if value not in allowed:
            self.faults.append(f"{self.name}.toml: [{table}] {key}: {value!r} is none of {', '.join(allowed)}")
        return str(value)

    def handle(self) -> dict[str, Any] | None:
        """Returns the [handle] table, with the values of its modes."""
        if "handle" not in self.roles:
            return None
        handle = dict(self.roles["handle"])
        for key, value in handle.items():
            if key in HANDLE_MODES:
                handle[key] = self.all_constants.get(value, 0)
            if key in HANDLE_MODES and value not in self.all_constants:
                self.faults.append(f"{self.name}.toml: [handle] {key}: the header has no {value}")
            elif key in HANDLE_FUNCTIONS and value not in self.api["functions"]:
                self.faults.append(f"{self.name}.toml: [handle] {key}: the header has no {value}")
            elif key not in ("type", *HANDLE_MODES, *HANDLE_FUNCTIONS):
                self.faults.append(f"{self.name}.toml: [handle] {key}: there is no such setting")
        for key in ("type", "create"):
            if key not in handle:
                self.faults.append(f"{self.name}.toml: [handle] has no {key}")
        return handle

    def policies(self, handle: dict[str, Any] | None) -> tuple[str, str]:
        """Returns how the stream is passed and where scalars are taken, once they agree with the handle's functions."""
        has = handle or {}
        modes = "pointer mode" if "set_pointer_mode" in has else "host"
        stream = self.setting("library", "stream", STREAMS, "handle" if "set_stream" in has else "none")
        scalars = self.setting("library", "scalars", SCALARS, modes if self.settings.get("backend") else "by value")
        where = f"{self.name}.toml: [library]"
        if stream == "handle" and "set_stream" not in has:
            self.faults.append(f'{where} stream = "handle": [handle] has no set_stream')
        if scalars == "pointer mode" and not {"set_pointer_mode", *HANDLE_MODES} <= has.keys():
            self.faults.append(f'{where} scalars = "pointer mode": [handle] has no set_pointer_mode, or not its modes')
        if not self.settings.get("backend") and (stream, handle) != ("none", None):
            self.faults.append(f"{where}: a library without a backend runs on the CPU, and has no stream and no handle")
        return stream, scalars

    def library(self) -> Library:
        settings = self.settings
        functions = self.functions()
        handle = self.handle()
        stream, scalars = self.policies(handle)
        probe = settings.get("probe")
        if probe is not None and probe not in self.api["functions"]:
            self.faults.append(f"{self.name}.toml: [library] probe: the header has no {probe}")
        status = settings.get("status")
        codes = sorted((value, key) for key, value in self.api["enums"].get(status, {}).items()) if status else []
        success = settings.get("success")
        if success is not None and success not in self.all_constants:
            self.faults.append(f"{self.name}.toml: [library] success: the header has no {success}")
        row_major = settings.get("row_major")
        not_bound = self.left_over(functions)
        find = self.find()
        if settings.get("name", self.name) != self.name:
            self.faults.append(f"{self.name}.toml: [library] name: {settings['name']!r} is not the name of the file")
        if self.faults:
            raise RolesError(self.faults)
        return Library(
            name=self.name,
            title=settings["title"],
            source=settings.get("source", f"{settings['title']} manual"),
            backend=settings.get("backend"),
            sonames=settings.get("sonames", []),
            stream=stream,
            scalars=scalars,
            success=self.all_constants[success] if success else 0,
            prefixes=settings.get("prefixes", [""]),
            suffixes=settings.get("suffixes", [""]),
            probe=probe,
            header=self.api["header"],
            version=self.api["version"],
            status_codes=codes,
            handle=handle,
            row_major=(row_major["parameter"], self.all_constants[row_major["value"]]) if row_major else None,
            constants=dict(sorted(self.constants.items(), key=lambda item: item[0])),
            functions=functions,
            find=find,
            api=self.api,
            status=status or "",
            raw=self.roles.get("raw", {}),
            not_bound=not_bound,
            api_count=len(self.api["functions"]),
        )


def read_roles(name: str, folder: Path = HERE) -> dict[str, Any]:
    """Reads roles/<name>.toml, with the families that it shares with other libraries."""
    with open(folder / "roles" / f"{name}.toml", "rb") as file:
        return shared.extended(tomllib.load(file), folder)


def names(folder: Path = HERE) -> list[str]:
    """Returns the libraries: those of roles/*.toml that have [library]; other files have families to share."""
    paths = sorted((folder / "roles").glob("*.toml"))
    return [path.stem for path in paths if "[library]" in path.read_text().splitlines()]


def join(name: str, api: dict[str, Any], roles: dict[str, Any]) -> Library:
    """Joins an api and its roles; raises RolesError with every fault found."""
    return _Reader(name, api, roles).library()


def load(folder: Path = HERE) -> list[Library]:
    """Reads every library that has both an api file and a roles file; raises RolesError with every fault found."""
    libraries: list[Library] = []
    faults: list[str] = []
    for name in names(folder):
        source = folder / "api" / f"{name}.json"
        if not source.exists():
            faults.append(f"{name}.toml: there is no api/{source.name}; run python -m bindings extract")
            continue
        try:
            libraries.append(join(name, json.loads(source.read_text()), read_roles(name, folder)))
        except RolesError as error:
            faults += [located(fault, folder) for fault in error.faults]
        except tomllib.TOMLDecodeError as error:
            faults.append(f"{name}.toml: {error}")
    if faults:
        raise RolesError(faults)
    return libraries
