"""Writes _<library>_raw.py, a module of cffi's ABI mode with the vendor's own signatures. It needs no compiler."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

from ..library import Library
from ..parameters import Result, Stream
from .c_text import made_from
from .kept import kept_bytes

BASIC = {"void", "_Bool", "char", "short", "int", "long", "unsigned", "float", "double", "size_t"}
BASIC |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
INTEGER = "blasint"  # a type of 32 bits, or of 64 bits in an ILP64 build
WIDE = "__ilp64"  # the end of the names of functions in an ILP64 build


def _types_in(c_type: str) -> set[str]:
    """Return the names in a C type; "enum X" counts as one name."""
    return {" ".join(word.split()) for word in re.findall(r"(?:enum |struct )?\w+", c_type)} - {"const"}


def _definitions(library: Library) -> dict[str, str]:
    """Return the C definition of each of the header's own types, by name."""
    named = [*library.integers.items(), *library.raw.items()]
    definitions = {name: f"{name};" if meaning == "opaque" else f"typedef {meaning} {name};" for name, meaning in named}
    for name, values in library.api["enums"].items():
        listed = ", ".join(f"{key} = {value}" for key, value in values.items())
        definitions[name] = f"typedef enum {{ {listed} }} {name};"
        definitions[f"enum {name}"] = f"enum {name} {{ {listed} }};"
    return definitions


def declarations(library: Library) -> str:
    """Return the declarations for cffi: the types, and a type for each function whose types are all known to cffi,
    [raw] or the api.

    Builds of the library may spell the names of functions differently. So each function is declared as a type, and its
    address is looked up.
    """
    defined = _definitions(library)
    used: dict[str, None] = {}
    functions: list[str] = []
    for name, entry in library.api["functions"].items():
        types = [entry["returns"], *(c_type for _, c_type in entry["parameters"])]
        own = set().union(*map(_types_in, types)) - BASIC - {INTEGER}
        inside = {type_ for name in own for type_ in _types_in(library.raw.get(name, ""))} & defined.keys()
        if not own <= defined.keys():
            if name in {name for names in library.only_raw.values() for name in names}:
                raise ValueError(f"{name}: [raw] defines not all of {', '.join(sorted(own))}")
            continue
        used |= dict.fromkeys([*sorted(inside), *sorted(own)])
        returns, *parameters = types
        written = f"typedef {returns} {name}({', '.join(parameters) or 'void'});"
        functions.append(re.sub(rf"\b{INTEGER}\b", "int", written))
        if library.probe:
            wide = written.replace(f" {name}(", f" {name}{WIDE}(")
            functions.append(re.sub(rf"\b{INTEGER}\b", "int64_t", wide))
    named = {type_.removeprefix("enum ") for type_ in used if type_.startswith("enum ")}
    return "\n".join([*(defined[type_] for type_ in used if type_ not in named), *functions, ""])


def raw_faults(library: Library) -> list[str]:
    """Return the reasons why cffi can't read the types of [raw]; none if cffi is not installed."""
    try:
        from cffi import FFI, CDefError
    except ImportError:
        return []
    try:
        FFI().cdef(declarations(library))
    except CDefError as error:
        words = re.findall(r"\w+", str(error))
        named = next((name for name in library.raw if name in words), "")
        return [f"{library.name}.toml: [raw] {named}: {str(error).splitlines()[0]}"]
    return []


def _signatures(library: Library, declared: str) -> str:
    """Return the text that cffi writes for declarations."""
    from cffi import FFI  # the build depends on it

    ffi = FFI()
    ffi.cdef(declared)
    ffi.set_source(f"offload_args._{library.name}_raw", None)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "raw.py"
        ffi.emit_python_code(str(path))
        return path.read_text()


def raw_file(library: Library, out: Path) -> str:
    """Return _<library>_raw.py. `out` keeps the text of cffi, which takes as long as all other files of a library."""
    declared = declarations(library)
    path = out / "libraries" / f"{library.name}.signatures"
    signatures = kept_bytes(path, declared.encode(), lambda: _signatures(library, declared).encode()).decode()
    routines: dict[str, str] = {}
    results: dict[str, int] = {}  # {function: the place of its result, if this is not the last passed parameter}
    for function in library.functions:
        symbols = [symbol for symbol in (function.symbol, function.wide_symbol) if symbol]
        if any(isinstance(argument, Stream) or argument.field_of for argument in function.arguments):
            continue  # the routine takes no stream of the caller, and no addresses in a struct
        routines |= dict.fromkeys(symbols, function.name)
        passed = [isinstance(argument, Result) for argument in function.arguments if argument.in_record]
        if any(passed[:-1]):
            results |= dict.fromkeys(symbols, passed.index(True))
    facts = {"HANDLE": (library.handle or {}).get("type", ""), "STATUS": library.status}
    facts["FINE: tuple[int, ...]"] = tuple(library.also_done + library.only_asked)
    facts |= {"ROUTINES: dict[str, str]": routines, "RESULTS: dict[str, int]": results}
    older = (library.older.before, library.older.instead) if library.older else ("", {})
    facts["OLDER: tuple[str, dict[str, str]]"] = older
    lines = [f"# {made_from(library)}", signatures, *(f"{key} = {value!r}" for key, value in facts.items()), ""]
    return "\n".join(lines)
