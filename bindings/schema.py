"""Lists the tables and keys that a roles file may have, and the kind of each value."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .parameters import NUMPY

PACKAGE = Path(__file__).parents[1] / "offload_args"
# The backends of libraries; this build may lack them.
BACKENDS = ("cuda", "hip", "sim")
MOST_OPERATORS = 100  # the most operators of one label
TEXT, TEXTS, FLAG, ANY = "a text", "a list of texts", "true or false", "a text or a list"
NUMBER = "a whole number"

# {placeholder in names: its meaning}.
PLACEHOLDERS = {
    "t": "in `bind`: each of the letters that stand for types: s, d, c, z",
    "r": "in `bind`: the letter of the real type, for s, d, c, z: s, d, s, d",
    "form": 'in `bind`: each of "", `_batched` and `_strided_batched` that the header has',
    "name": "in `symbols`: the name of `bind`",
    "Name": "in `symbols`: the name of `bind`, in CamelCase",
}
_OF_SYMBOLS = ("name", "Name")

PART = (r"\w*", "a part of a name")
VERSION = (r"\d+(\.\d+)*", "a version, such as 6.4")
# {(table, key): the form of its text}, for texts that become parts of names or files, and for versions.
FORMS = {
    **{("library", key): PART for key in ("wide", "prefixes", "suffixes")},
    ("library", "sonames"): (r"\S+", "the name of a file"),
    ("older", "before"): VERSION,
}
STUB_IMPORTS = """\
from collections.abc import Sequence
from typing import Any, Final, final, overload

import numpy as np
import numpy.typing as npt

from ._raw import Raw
from .devices import Device
from .objects import LibraryObject, SupportsStream
from .pointers import DevicePtr
"""
# A class with one of these names would shadow a name that stubs need.
OF_STUBS = {*vars(builtins), *re.findall(r"(\w+)(?=,|$)", STUB_IMPORTS, re.MULTILINE)}


@dataclass(frozen=True)
class Table:
    """The keys of a table with their kinds; `others` is the kind of all other keys, if they are allowed."""

    keys: dict[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    others: Kind | None = None


@dataclass(frozen=True)
class Tables:
    """A list of tables."""

    each: Table


Kind = str | Table | Tables

_NAMED = Table(others=TEXT)
_TEXTS_OF_LIBRARY = ("name", "title", "source", "backend", "wide", "strip", "status", "success", "stream", "scalars")
LIBRARY = Table(
    {
        **dict.fromkeys((*_TEXTS_OF_LIBRARY, "probe", "workspace", "uncaptured", "last_error"), TEXT),
        **dict.fromkeys(("sonames", "symbols", "prefixes", "suffixes", "also_done", "only_asked"), TEXTS),
        "fetches_results": FLAG,
        "adds": Table(others=TEXTS),
        "row_major": Table({"parameter": TEXT, "value": TEXT}, ("parameter", "value")),
    },
    required=("name", "title"),
)
FIND = Table(
    {
        "install": TEXT,
        "pathfinder": TEXT,
        "rocm": TEXT,
        "shared_with": Table(others=TEXTS),
        "wheels": _NAMED,
        "folders": TEXTS,
        "version": Table({"call": TEXT, "gives": TEXT}, ("call", "gives")),
    }
)
HEADER = Table(
    {
        "version": TEXTS,
        **dict.fromkeys(("functions", "constants", "prefix", "language"), TEXT),
        "defines": TEXTS,
    },
    ("version", "functions"),
)
# An enum has constants of the header, a pattern for such constants, dtypes for which they stand, or values of a header
# that is not read.
ENUM = Table(
    {
        "type": TEXT,
        "constants": ANY,
        "dtypes": _NAMED,
        "complex": TEXTS,
        "from_array": FLAG,
        "flags": TEXTS,
        "values": Table(others=NUMBER),
    },
    ("type",),
)
DESCRIBES = Table(dict.fromkeys(("call", "gives", "bytes"), TEXT), ("call", "gives"))
OBJECT = Table(
    {
        **dict.fromkeys(("type", "class", "destroy", "attributes"), TEXT),
        "placed": FLAG,
        "tells": _NAMED,
        "describes": DESCRIBES,
    },
    ("type", "class", "destroy"),
)
FAMILY = Table(
    {
        "bind": Table(others=ANY),
        "parameters": _NAMED,
        "also": _NAMED,
        "types": _NAMED,
        **dict.fromkeys(("pointer_mode", "written", "called_by", "asks", "hides", "notes", "noted_by", "group"), TEXT),
        **dict.fromkeys(("optional", "captured", "outside_groups", "outside_graphs", "aborts"), FLAG),
        "requires": TEXTS,
        "older": _NAMED,
        "since": Table({"version": TEXT, "why": TEXT}, ("version", "why")),
    }
)
FILE = Table(
    {
        "extends": TEXTS,
        "library": LIBRARY,
        "find": FIND,
        "header": HEADER,
        "older": Table({"api": TEXT, "before": TEXT}, ("api", "before")),
        "newer": Table({"api": TEXT, "lacks": TEXTS}, ("api",)),
        "integers": _NAMED,
        "also": _NAMED,
        "handle": Table({"workspace_bytes": NUMBER, "shared": FLAG}, others=TEXT),
        "object": Table(others=OBJECT),
        "raw": _NAMED,
        "types": _NAMED,
        "words": _NAMED,
        "enums": Table(others=ENUM),
        "family": Table(others=FAMILY),
        "not_bound": Tables(Table({"names": TEXT, "reason": TEXT}, ("names", "reason"))),
        "only_raw": Tables(Table({"names": TEXT, "reason": TEXT}, ("names", "reason"))),
    }
)


def _is(value: Any, kind: str) -> bool:
    if kind == FLAG:
        return isinstance(value, bool)
    if kind == NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == TEXTS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, str) or (kind == ANY and isinstance(value, list))


def _of_value(place: str, path: str, key: str, value: Any, kind: Kind) -> list[str]:
    if isinstance(kind, Table):
        inside = f"{path}.{key}" if path else key
        return _of_table(place, inside, value, kind) if isinstance(value, dict) else [f"{place} {key} is not a table"]
    if isinstance(kind, Tables):
        if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
            return [f"{place} {key} is not a list of tables"]
        return [fault for table in value for fault in _of_table(place, key, table, kind.each)]
    return [] if _is(value, kind) else [f"{place} {key}: {value!r} is not {kind}"]


def _of_table(file: str, path: str, table: dict[str, Any], kind: Table) -> list[str]:
    place = f"{file.partition(':')[0]}: [{path}]" if path else file
    faults = [f"{place} has no {key}" for key in kind.required if key not in table]
    for key, value in table.items():
        expected = kind.keys.get(key, kind.others)
        if expected is None:
            known = ", ".join(kind.keys)
            faults.append(f"{place} {key} is not understood; there are {known}")
        else:
            faults += _of_value(place, path, key, value, expected)
    return faults


def _of_template(place: str, template: str, bound: Any) -> list[str]:
    if isinstance(bound, str):
        bound = ["", bound]
    if len(bound) != 2 or not all(isinstance(item, str) for item in bound) or not set(bound[0]) <= set("sdcz"):
        return [f'{place} {template}: needs a text, or letters of s, d, c, z and a text: ["sd", "Adds ..."]']
    faults = (
        [] if bound[1].endswith(".") else [f"{place} {template}: {bound[1]!r} is not a sentence that says what it does"]
    )
    unknown = set(re.findall(r"{(\w*)}", template)) - (PLACEHOLDERS.keys() - set(_OF_SYMBOLS))
    if unknown or re.sub(r"{\w*}", "", template).strip("{}") != re.sub(r"{\w*}", "", template):
        faults.append(f"{place} {template}: a name may have {{t}}, {{r}} and {{form}}")
    return faults


def _of_pattern(place: str, pattern: str) -> list[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"{place}: {pattern!r} is not a pattern: {error}"]
    return []


def _of_form(place: str, texts: str | list[str], form: tuple[str, str]) -> list[str]:
    values = [texts] if isinstance(texts, str) else texts
    return [f"{place}: {value!r} is not {form[1]}" for value in values if not re.fullmatch(form[0], value)]


def _of_labels(place: str, family: dict[str, Any]) -> list[str]:
    """Return the labels that nest too deeply to be read."""
    labels = [
        *family.get("parameters", {}).items(),
        *(("requires", requirement) for requirement in family.get("requires", [])),
    ]
    faults = [(key, len(re.findall(r"[-+*/%(]|\b(?:if|not)\b", text))) for key, text in labels]
    return [
        f"{place} {key}: has {count} operators and brackets; at most {MOST_OPERATORS} are read"
        for key, count in faults
        if count > MOST_OPERATORS
    ]


def faults(name: str, roles: dict[str, Any]) -> list[str]:
    """Return the faults of the structure of roles/<name>.toml. If there are faults, the rest must not be read."""
    faults = _of_table(f"{name}.toml:", "", roles, FILE)
    if faults:
        return faults
    for key, family in roles.get("family", {}).items():
        for template, bound in family.get("bind", {}).items():
            faults += _of_template(f"{name}.toml: [family.{key}]", template, bound)
        faults += _of_labels(f"{name}.toml: [family.{key}]", family)
        if "since" in family:
            faults += _of_form(f"{name}.toml: [family.{key}.since] version", family["since"]["version"], VERSION)
    for symbol in roles.get("library", {}).get("symbols", []):
        if "{" in re.sub(r"{[nN]ame}", "", symbol) or "{" not in symbol:
            faults.append(f"{name}.toml: [library] symbols: {symbol!r} needs {{name}} or {{Name}}, and no other")
    for (table, key), form in FORMS.items():
        faults += _of_form(f"{name}.toml: [{table}] {key}", roles.get(table, {}).get(key, []), form)
    for key in ("functions", "constants"):
        faults += _of_pattern(f"{name}.toml: [header] {key}", roles.get("header", {}).get(key, ""))
    title = roles.get("library", {}).get("title", "-")
    if not re.fullmatch(r"[\w .+-]+", title):  # comments of C and docstrings contain it
        faults.append(f"{name}.toml: [library] title: {title!r} is not a name of letters, digits, spaces and . + -")
    for key, enum in roles.get("enums", {}).items():
        if len(enum.keys() & {"constants", "dtypes", "values"}) != 1:
            faults.append(f"{name}.toml: [enums.{key}] has no constants, or values besides")
        if isinstance(enum.get("constants"), str):
            faults += _of_pattern(f"{name}.toml: [enums.{key}] constants", enum["constants"])
    for rule in [*roles.get("not_bound", []), *roles.get("only_raw", [])]:
        faults += _of_pattern(f"{name}.toml: [not_bound] names", rule["names"])
    return faults


def incomplete(name: str, roles: dict[str, Any]) -> list[str]:
    """Return the families that still lack a table after the shared families were added."""
    families = roles.get("family", {}).items()
    wrong = [(key, key_) for key, family in families for key_ in ("bind", "parameters") if key_ not in family]
    return [f"{name}.toml: [family.{key}] has no {key_}" for key, key_ in wrong]


def _lacks(module: str, name: str) -> bool:
    """Return whether a module of offload_args lacks a class or function; False if the package's sources are missing."""
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    text = path.read_text() if path.exists() else ""
    return PACKAGE.exists() and not re.search(rf"^(?:class|def) {re.escape(name)}\b", text, re.MULTILINE)


def _of_library(name: str, api: dict[str, Any], roles: dict[str, Any], parameters: set[str]) -> list[str]:
    """Return the names under [library] and [also] that stand for nothing. `parameters`: the names of all parameters."""
    faults = [
        f"{name}.toml: [also] {key}: no function has it"
        for key in roles.get("also", {})
        if key.casefold() not in parameters
    ]
    library = roles.get("library", {})
    order = library.get("row_major", {}).get("parameter", "")
    if order.casefold() not in {*parameters, ""}:
        faults.append(f"{name}.toml: [library] row_major: no function has a parameter {order}")
    ending = library.get("workspace", "")
    if ending and not any(symbol.endswith(ending) for symbol in api["functions"]):
        faults.append(f"{name}.toml: [library] workspace: no function's name ends with {ending!r}")
    for module, names in library.get("adds", {}).items():
        faults += [
            f"{name}.toml: [library] adds: {module}.py has no {function}"
            for function in names
            if _lacks(module, function)
        ]
    backend = library.get("backend", "cuda")
    if backend not in BACKENDS:
        faults.append(f"{name}.toml: [library] backend: {backend!r} is none of {', '.join(BACKENDS)}")
    return faults


def disagreements(name: str, api: dict[str, Any], roles: dict[str, Any]) -> list[str]:
    """Return the names in roles/<name>.toml that stand for no dtype, no type of the header, and no parameter."""
    faults = []
    functions = api["functions"].values()
    spelled = " ".join(c_type for function in functions for _, c_type in function["parameters"])
    names = {name.casefold() for function in functions for name, _ in function["parameters"]}
    families = roles.get("family", {})
    tables = {
        "types": roles.get("types", {}),
        **{f"family.{key}": family.get("types", {}) for key, family in families.items()},
    }
    for place, types in tables.items():
        faults += [
            f"{name}.toml: [{place}] {c_type}: {dtype!r} is not a dtype; there are {', '.join(NUMPY)} and letter"
            for c_type, dtype in types.items()
            if dtype not in {*NUMPY, "letter"} or (dtype == "any" and c_type != "void")
        ]
        faults += [
            f"{name}.toml: [{place}] {c_type}: {types[c_type]!r} is not the dtype of C's {c_type}, which is {dtype}"
            for c_type, dtype in (("float", "f32"), ("double", "f64"))
            if types.get(c_type, dtype) not in (dtype, "letter")
        ]
    for key, enum in roles.get("enums", {}).items():
        faults += [
            f"{name}.toml: [enums.{key}] {constant}: {dtype!r} is not a dtype; there are {', '.join(NUMPY)}"
            for constant, dtype in enum.get("dtypes", {}).items()
            if dtype not in NUMPY or dtype == "any"
        ]
    for key, family in families.items():
        place = f"{name}.toml: [family.{key}]"
        labels = [label.casefold() for label in family["parameters"]]
        faults += [
            f"{place} {label} stands there twice"
            for label in sorted({label for label in labels if labels.count(label) > 1})
        ]
        faults += [
            f"{place} also {theirs}: {ours} is not among its parameters"
            for theirs, ours in family.get("also", {}).items()
            if ours.casefold() not in labels
        ]
        if family.get("hides", "").casefold() not in [*labels, ""]:
            faults.append(f"{place} hides: {family['hides']} is not among its parameters")
        unused = [type_ for type_ in family.get("types", {}) if not re.search(rf"\b{type_}\b", spelled)]
        faults += [f"{place} types {type_}: no function has a parameter of this type" for type_ in unused]
        faults += [
            f"{place} also {name}: no function has it"
            for name in family.get("also", {})
            if name.casefold() not in names
        ]
        faults += [
            f"{place} older {name}: bind has no such name"
            for name in family.get("older", {})
            if name not in family["bind"]
        ]
        if family.get("pointer_mode", "device") != "device":
            faults.append(f'{place} pointer_mode: {family["pointer_mode"]!r} is not "device"')
    return faults + _of_library(name, api, roles, names)
