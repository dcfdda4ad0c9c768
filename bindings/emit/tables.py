"""Writes the C tables of a library: its descriptor, and for each routine a row, which refers to the routine's body."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..declarations import entries
from ..joins import HANDLE_FUNCTIONS, HANDLE_MODES
from ..library import Function, Library
from .bodies import Bodies
from .c_text import made_from, quoted, quoted_lines, wrapped
from .descriptors import asked_symbols, describing_functions, enums_used, known_symbols
from .docs import Role, builtin_doc, record

SPELLED = str.maketrans({"?": "_OR_NONE", "*": "_LIST"})  # roles.def spells "in?" as in_OR_NONE, and "in*" as in_LIST
CODES = {name: number for number, (_, name, *_) in enumerate(entries("dtypes"))}


def symbols_of(library: Library) -> list[str]:
    """Return the vendor's symbols that a library's routines use, in the order of its table, optional ones last."""
    names = {function.symbol for function in library.functions}
    names |= {function.wide_symbol for function in library.functions if function.wide_symbol}
    names |= {function.query for function in library.functions if function.query}
    if library.handle:
        names |= {library.handle[key] for key in HANDLE_FUNCTIONS if key in library.handle}
    names |= {object_kind.destroy for object_kind in library.object_kinds} | set(asked_symbols(library))
    names |= {symbol for object_kind in library.object_kinds for _, symbol in object_kind.tells}
    names |= {library.last_error} if library.last_error else set()
    optional = optional_symbols(library)
    return [*sorted(names - optional), *sorted(optional)]


def _own_symbols(function: Function) -> list[str]:
    """Return the vendor's symbols of one function."""
    return [symbol for symbol in (function.symbol, function.wide_symbol, function.query) if symbol]


def optional_symbols(library: Library) -> set[str]:
    """Return the symbols that a whole library may lack."""
    return {symbol for function in library.functions if function.optional for symbol in _own_symbols(function)}


def _dtypes(function: Function) -> str:
    """Return the numbers of the values' dtypes as a C string."""
    return '"' + "".join(f"\\{CODES[parameter.dtype or 'any']:o}" for parameter in function.parameters) + '"'


def _typed_values(function: Function) -> list[str]:
    """Return the initializers of a function's oa_typed, each after the initializers on which it depends."""
    at = {parameter.name: position for position, parameter in enumerate(function.parameters)}
    enums = [f"{{{at[type_.name]}, {at[type_.name]}, 0, types_{type_.enum.label}}}" for type_ in function.types]
    of = sorted(
        (parameter for parameter in function.parameters if parameter.of),
        key=lambda parameter: bool(parameter.complex_as),
    )
    how = {parameter.name: at.get(parameter.complex_as, -1) + 1 for parameter in of}
    return [*enums, *(f"{{{at[parameter.name]}, {at[parameter.of]}, {how[parameter.name]}, NULL}}" for parameter in of)]


class _Types:
    """The tables that map arguments to dtypes; each table is written once."""

    def __init__(self, library: Library) -> None:
        self.tables: dict[str, str] = {}  # by the text of the values
        self.enums: dict[str, list[str]] = {}  # by name in C
        self.lines: list[str] = []
        enums = {type_.enum.label: type_.enum for function in library.functions for type_ in function.types}
        enums |= {enum.label: enum for enum in enums_used(library)}
        for label, enum in sorted(enums.items()):
            lines = [f"static const oa_code_dtype types_{label}[] = {{"]
            for name, value, dtype in enum.dtypes:
                lines.append(f'    {{{value}, OA_{(dtype or "any").upper()}, "{name}"}},')
            self.enums[f"types_{label}"] = [*lines, "    {0, OA_ANY, NULL}};", ""]
        for function in library.functions:
            values = ", ".join(_typed_values(function))
            if values and values not in self.tables:
                self.tables[values] = f"typed_{function.name}"
                self.lines += [*wrapped(f"static const oa_typed typed_{function.name}[] = {{{values}}};"), ""]

    def fields(self, function: Function) -> list[str]:
        values = _typed_values(function)
        if not values:
            return []
        return [f".typed = {self.tables[', '.join(values)]}", f".typed_count = {len(values)}"]


def _role(role: Role) -> str:
    """Return the initializer of an oa_role.

    If the core lacks a constant for the role, the initializer does not compile.
    """
    return (
        f"{{OA_ROLE_{role.role.upper().translate(SPELLED)}, {role.elements}, {quoted(role.name)}, {quoted(role.more)}}}"
    )


class _Records:
    """The records of a library's functions. Records that differ only in dtypes are written as one record."""

    def __init__(self, library: Library) -> None:
        self.names: dict[str, str] = {}  # {function: name of its record}
        self.lines: list[str] = []
        known: dict[tuple[str, ...], str] = {}
        for function in library.functions:
            roles = tuple(_role(row) for row in record(library, function))
            if roles and roles not in known:
                known[roles] = f"record_{function.name}"
                self.lines += [
                    f"static const oa_role {known[roles]}[] = {{",
                    *(f"    {role}," for role in roles),
                    "};",
                    "",
                ]
            self.names[function.name] = known.get(roles, "NULL")


def _row(
    library: Library, function: Function, index: dict[str, int], bodies: Bodies, types: _Types, records: _Records
) -> list[str]:
    body, caller = bodies.of[function.name]
    wide = index.get(function.wide_symbol or "", -1)
    fields = [
        f".symbols = {{{index[function.symbol]}, {wide}, {index.get(function.query, -1)}}}",
        f".count = {len(function.parameters)}",
        f".has_device_form = {int(library.has_device_form(function))}",
        *types.fields(function),
    ]
    return [
        f'    {{.function = "{library.name}.{function.name}",',
        f"     .record = {records.names[function.name]},",
        "     .doc =",
        *quoted_lines(builtin_doc(library, function), " " * 9),
        "     ,",
        f"     .library = &oa_library_{library.name},",
        f"     .run = {body},",
        *([f"     .call = {caller},"] if caller else []),
        f"     .dtypes = {_dtypes(function)},",
        f"     {', '.join(fields)}}},",
    ]


def _beside(library: Library) -> list[str]:
    """Return patterns for a library's files in packages of Python, relative to the folder of packages."""
    patterns = list(library.find["wheels"].values())
    if library.find["pathfinder"]:  # NVIDIA's wheels: nvidia/cublas/lib, nvidia/cu13/lib
        patterns += [f"nvidia/*/lib/{soname}" for soname in library.sonames]
    return patterns


def _descriptor(library: Library, index: dict[str, int]) -> list[str]:
    """Return the C text of the library's descriptor, and of the tables to which it points."""
    label = f"oa_library_{library.name}"
    lines = ["static const char *const symbols[] = {", *(f'    "{name}",' for name in index), "};"]
    lines += [f"static void *addresses[{len(index)}];", "static oa_library_state state;", ""]
    lines += ["static const oa_code_name codes[] = {"]
    lines += [f'    {{{code}, "{name}"}},' for code, name in library.status_codes] + ["    {0, NULL}};", ""]
    if library.object_kinds:
        lines += ["static const oa_object_kind object_kinds[] = {"]
        for kind in library.object_kinds:
            is_number = int(library.raw.get(kind.type) == "int")
            facts = [quoted(kind.name), str(index[kind.destroy]), str(int(kind.is_handle)), str(is_number)]
            told = ", ".join(str(index[symbol]) for _, symbol in kind.tells)
            facts += [str(len(kind.tells)), f"{{{told or 0}}}"]
            lines.append(f"    {{{', '.join(facts)}}},")
        lines += ["};", ""]
    spelling = {"sonames": library.sonames, "prefixes": library.prefixes, "suffixes": library.suffixes}
    spelling |= {"beside": _beside(library), "folders": library.find["folders"]}
    for key, texts in spelling.items():
        listed = "".join(f'"{text}", ' for text in texts)
        lines += [f"static const char *const {key}[] = {{{listed}NULL}};"]
    others = {"also_done": library.also_done, "only_asked": library.only_asked}
    others = {key: codes for key, codes in others.items() if codes}
    for key, statuses in others.items():
        lines += [f"static const int {key}[] = {{{', '.join(map(str, [*statuses, library.success]))}}};"]
    older = library.older
    if older:
        lines += ["static const oa_older older[] = {"]
        for symbol in (symbol for symbol in index if symbol in older.instead or symbol in older.only):
            lines += [f"    {{{index[symbol]}, {quoted(older.instead.get(symbol))}}},"]
        lines += ["};"]
    since = [
        (name, function.since) for function in library.functions if function.since for name in _own_symbols(function)
    ]
    if since:
        lines += ["static const oa_since since[] = {"]
        for symbol, (first, why) in since:
            lines += wrapped(f"    {{{index[symbol]}, {quoted(first)}, {quoted(why)}}},")
        lines += ["};"]
    handle = library.handle or {}
    version, gives = library.find["version"]
    fields = {
        "name": quoted(library.name),
        "title": quoted(library.title),
        "backend": quoted(library.backend),
        **{key: key for key in spelling},
        "probe": quoted(library.probe),
        "version": quoted(version),
        "version_kind": f"OA_VERSION_{(gives or 'none').upper()}",
        "symbols": "symbols",
        "symbol_count": str(len(index)),
        "optional_count": str(len(optional_symbols(library))),
        "code_names": "codes",
        "routines": f"oa_routines_{library.name}",
        "routine_count": str(len(library.functions)),
        "success": str(library.success),
        **{key: key for key in others},
        **{key: str(index[handle[key]] if key in handle else -1) for key in HANDLE_FUNCTIONS},
        **{key: str(handle.get(key, 0)) for key in (*HANDLE_MODES, "workspace_bytes")},
        **({"handles_of": quoted(handle["handles_of"])} if "handles_of" in handle else {}),
        "needs_handle": str(int(library.handle is not None and "create" not in handle)),
        "shares_handles": str(int(handle.get("shared", False))),
        "header_version": quoted(library.version),
        **({"older": "older", "older_count": "sizeof older / sizeof *older"} if older else {}),
        **({"older_version": quoted(older.version), "older_before": quoted(older.before)} if older else {}),
        **({"since": "since", "since_count": "sizeof since / sizeof *since"} if since else {}),
        **({"last_error": f"1 + {index[library.last_error]}"} if library.last_error else {}),
        "takes_stream": str(int(library.stream == "argument")),
        "uncaptured": quoted(library.uncaptured),
        "object_kinds": "object_kinds" if library.object_kinds else "NULL",
        "object_kind_count": str(len(library.object_kinds)),
        "addresses": "addresses",
        "state": "&state",
    }
    lines += ["", f"const oa_library {label} = {{"]
    return [*lines, *(f"    .{key} = {value}," for key, value in fields.items()), "};", ""]


def _head(library: Library) -> list[str]:
    """Return the beginning of a library's C files."""
    names = ["descriptor", "groups", "result", "cublaslt", "fft", "helper_function", "rotmg", "workspace"]
    names += ["collective"] if library.has_groups else []
    lines = [f"/* {made_from(library)} */", *(f'#include "body/{name}.h"' for name in names), ""]
    lines += [f"extern const oa_library oa_library_{library.name};"]
    return [*lines, f"extern const oa_routine oa_routines_{library.name}[{len(library.functions)}];", ""]


def _used(pieces: dict[str, list[str]], lines: list[str]) -> list[str]:
    """Return the lines of the pieces that `lines` name. Compilers would warn about static pieces that are not used."""
    words = set(re.findall(r"\w+", "\n".join(lines)))
    return [line for name, piece in pieces.items() if name in words for line in piece]


def library_file(library: Library, bodies: Bodies) -> str:
    """Return <library>.c: the descriptor and the rows."""
    index = {name: position for position, name in enumerate(symbols_of(library))}
    types, records = _Types(library), _Records(library)
    lines = [*types.lines, *records.lines]
    lines += [f"const oa_routine oa_routines_{library.name}[{len(library.functions)}] = {{"]
    for function in library.functions:
        lines += _row(library, function, index, bodies, types, records)
    lines = [*_used(types.enums, lines), *bodies.prototypes(), "", *lines, "};", ""]
    return "\n".join([*_head(library), *_descriptor(library, index), *lines])


def bodies_files(library: Library, bodies: Bodies, parts: int) -> list[str]:
    """Return the texts of <library>_bodies_<number>.c: the bodies, divided among `parts` files of moderate size."""
    index = {name: position for position, name in enumerate(symbols_of(library))}
    enums, described = _Types(library).enums, describing_functions(library)
    files = []
    for number in range(parts):
        lines = bodies.part(number, parts)
        lines = [*_used(described, lines), *lines]
        lines = [*_used(enums, lines), *known_symbols(library, index), *lines]
        files.append("\n".join([*_head(library), *lines]))
    return files


def libraries_file(libraries: Iterable[Library]) -> str:
    """Return libraries.c: the table of every library of this build."""
    labels = [f"oa_library_{library.name}" for library in libraries]
    lines = ["/* Generated by bindings/emit: every library that has an api file and a roles file. */"]
    lines += ['#include "offload_args/shim.h"', "", *(f"extern const oa_library {label};" for label in labels)]
    table = ", ".join(f"&{label}" for label in labels)
    return "\n".join([*lines, f"const oa_library *const oa_libraries[] = {{{table}, NULL}};", ""])


def constants_header(library: Library) -> str:
    """Return the header with the library's constants, by the vendor's names, for hand-written bodies."""
    values = {name: value for enum in library.api["enums"].values() for name, value in enum.items()}
    lines = [f"/* {made_from(library)} */", "enum {", *(f"  {name} = {value}," for name, value in values.items()), "};"]
    return "\n".join([*lines, ""])
