"""Reads a vendor header with libclang, and writes names, C types and constants, but no text, to api/<library>.json.

This module is only needed for a new version of a header; the build reads the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clang import cindex


def _c_type(kind: cindex.Type) -> str:
    """Return a parameter's type in the header's spelling, without a const that applies to the parameter itself."""
    spelling = re.sub(r"\s+", " ", kind.spelling).strip()
    if kind.is_const_qualified():
        spelling = re.sub(r"\s*\bconst$", "", spelling) if spelling.endswith("const") else spelling
        if kind.kind is not cindex.TypeKind.POINTER:
            spelling = re.sub(r"^const ", "", spelling)
    return spelling


def _version(unit: cindex.TranslationUnit, macros: list[str]) -> str:
    values: dict[str, str] = {}
    for cursor in unit.cursor.get_children():
        if cursor.kind is cindex.CursorKind.MACRO_DEFINITION and cursor.spelling in macros:
            text = " ".join(token.spelling for token in list(cursor.get_tokens())[1:])
            match = re.search(r"\d[\d.]*", text)
            if match:
                values[cursor.spelling] = match.group()
    missing = [name for name in macros if name not in values]
    if missing:
        raise ValueError(f"the header has no version macro {', '.join(missing)}")
    return ".".join(values[name] for name in macros)


def _constants(cursor: cindex.Cursor) -> dict[str, int]:
    return {
        child.spelling: child.enum_value
        for child in cursor.get_children()
        if child.kind is cindex.CursorKind.ENUM_CONSTANT_DECL
    }


def _by_value(constants: dict[str, int]) -> dict[str, int]:
    return dict(sorted(constants.items(), key=lambda item: (item[1], item[0])))


def _declarations(cursor: cindex.Cursor) -> Iterator[cindex.Cursor]:
    """Yield the declarations, including those in blocks of `extern "C"`."""
    for child in cursor.get_children():
        if child.kind is cindex.CursorKind.LINKAGE_SPEC:
            yield from _declarations(child)
        else:
            yield child


def extract(header: Path, include: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the declarations of `header`: its version, functions and enum constants, all sorted.

    settings is the [header] table of the library's roles file: `version` (macros whose values, joined by dots, are the
    version), `functions` and `constants` (regular expressions for the names to read), `prefix` (the prefix of a build's
    names, which is removed), `defines` (macros that are set before the header is read), `language` ("c++" for a header
    that declares more in C++; functions with a body are left out). Raises ValueError if the header can't be parsed
    without errors.
    """
    cpp = settings.get("language") == "c++"
    arguments = ["-x", *(["c++", "-std=c++17"] if cpp else ["c", "-std=c11"]), *(f"-I{folder}" for folder in include)]
    arguments += [f"-D{macro}" for macro in settings.get("defines", [])]
    unit = cindex.Index.create().parse(
        str(header), args=arguments, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    )
    errors = [
        str(diagnostic.spelling) for diagnostic in unit.diagnostics if diagnostic.severity >= cindex.Diagnostic.Error
    ]
    if errors:
        raise ValueError(f"{header.name} does not parse: " + "; ".join(errors[:5]))
    prefix = settings.get("prefix", "")
    functions: dict[str, Any] = {}
    enums: dict[str, dict[str, int]] = {}
    for cursor in _declarations(unit.cursor):
        name = cursor.spelling.removeprefix(prefix)
        is_function = cursor.kind is cindex.CursorKind.FUNCTION_DECL and not cursor.is_definition()
        if is_function and re.match(settings["functions"], name):
            rest = [["...", "..."]] if cursor.type.is_function_variadic() else []
            functions[name] = {
                "returns": _c_type(cursor.result_type),
                "parameters": [[argument.spelling, _c_type(argument.type)] for argument in cursor.get_arguments()]
                + rest,
            }
            if cursor.availability is cindex.AvailabilityKind.DEPRECATED:
                functions[name]["deprecated"] = True
        elif cursor.kind is cindex.CursorKind.ENUM_DECL:
            constants = _constants(cursor)
            if constants and all(re.match(settings["constants"], constant) for constant in constants):
                enums[name] = constants
        elif cursor.kind is cindex.CursorKind.TYPEDEF_DECL:
            declaration = cursor.underlying_typedef_type.get_declaration()
            if declaration.kind is cindex.CursorKind.ENUM_DECL:
                constants = _constants(declaration)
                enums.pop(declaration.spelling, None)  # functions use the name of the type, not its tag
                if constants and all(re.match(settings["constants"], constant) for constant in constants):
                    enums.pop(declaration.spelling, None)  # functions use the name of the type
                    enums[cursor.spelling] = constants
    enums = {name: values for name, values in enums.items() if re.match(r"\w+$", name)}
    return {
        "header": header.name,
        "version": _version(unit, settings["version"]),
        "functions": dict(sorted(functions.items())),
        "enums": {name: _by_value(enums[name]) for name in sorted(enums)},
    }


def to_json(api: dict[str, Any]) -> str:
    """Write an api as JSON, with one function or enum in each line, so that a diff of two versions is readable."""
    lines = ["{", f' "header": {json.dumps(api["header"])},', f' "version": {json.dumps(api["version"])},']
    for section in ("functions", "enums"):
        entries = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in api[section].items()]
        lines += [f' "{section}": {{', ",\n".join(entries), " }" + ("," if section == "functions" else "")]
    return "\n".join([*lines, "}", ""])
