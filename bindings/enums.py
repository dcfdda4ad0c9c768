"""The constants of a library, which are the constants in [enums], without the vendor's prefix."""

from __future__ import annotations

import re
from typing import Any

from .labelled import Enum


def is_count(name: str, constants: dict[str, int]) -> bool:
    """Return whether a constant is the last of its enum, and has the number of the other constants as its value."""
    return re.search("_COUNTS?$", name) is not None and constants[name] == len(constants) - 1 == max(constants.values())


class Enums:
    """The [enums] and [words] of a library, with the values from the header."""

    def __init__(self, name: str, api: dict[str, Any], roles: dict[str, Any]) -> None:
        self.api = api
        self.strip = roles.get("library", {}).get("strip", "").split()
        self.tables: dict[str, Any] = roles.get("enums", {})
        self.faults: list[str] = []
        self.cache: dict[tuple[str, bool], Enum] = {}
        self.words: dict[str, str] = {}
        self.all_constants = {key: value for enum in api["enums"].values() for key, value in enum.items()}
        for table in self.tables.values():  # enums of a header that is not read
            self.all_constants |= table.get("values", {})
        used = {key for table in self.tables.values() for key in [*self.constants_of(table), *table.get("flags", [])]}
        for key in sorted(used - self.all_constants.keys()):
            self.faults.append(f"{name}.toml: [enums]: the header has no constant {key}")
        for label, table in self.tables.items():
            if isinstance(table.get("constants"), str) and not self.constants_of(table):
                pattern = table["constants"]
                self.faults.append(f"{name}.toml: [enums.{label}] constants: {pattern!r} fits none of {table['type']}")
        for word, key in roles.get("words", {}).items():
            self.words[word] = self.stripped(key)
            if key not in used:
                self.faults.append(f"{name}.toml: [words] {word}: none of [enums] has a constant {key}")
        self.names_here = {key: self.stripped(key) for key in self.all_constants if key in used}
        self.constants = {name: self.all_constants[key] for key, name in self.names_here.items()}

    def stripped(self, key: str) -> str:
        """Return a constant's name without the vendor's prefix, unless the remaining text is not a valid name."""
        short = key
        for prefix in self.strip:
            short = short.removeprefix(prefix)
        return short if short.isidentifier() else key

    def constants_of(self, enum: dict[str, Any]) -> list[str]:
        """Return the names of an enum's constants: the listed names, or the names in the header that fit a pattern."""
        listed = next(enum[key] for key in ("dtypes", "values", "constants") if key in enum)
        if isinstance(listed, str):
            header = self.api["enums"].get(enum["type"], {})
            return [
                constant for constant in header if re.fullmatch(listed, constant) and not is_count(constant, header)
            ]
        return list(listed)

    def dtypes_of(self, c_type: str) -> set[str]:
        """Return every dtype for which constants of a C type stand."""
        return {
            dtype
            for table in self.tables.values()
            if table["type"] == c_type
            for dtype in table.get("dtypes", {}).values()
        }

    def for_letter(self, letter: str) -> dict[str, Enum]:
        """Return {key: enum}.

        `letter` is the letter of a function's type, because complex types may have other constants.
        """
        return {key: self.enum(key, letter in ("c", "z")) for key in self.tables}

    def enum(self, key: str, is_complex: bool = False) -> Enum:
        """Return the enum with a key of [enums]."""
        if (key, is_complex) not in self.cache:
            self.cache[key, is_complex] = self.make(key, is_complex)
        return self.cache[key, is_complex]

    def make(self, key: str, is_complex: bool) -> Enum:
        entry = self.tables[key]
        names = self.constants_of(entry)
        if is_complex:
            names = entry.get("complex", names)
        values, flags = (
            tuple((self.stripped(constant), self.all_constants.get(constant, 0)) for constant in listed)
            for listed in (names, entry.get("flags", []))
        )
        if "dtypes" not in entry:
            return Enum(entry["type"], values, key, flags=flags)
        dtypes = {self.all_constants.get(constant, 0): dtype for constant, dtype in entry["dtypes"].items()}
        of_header: dict[str, int] = next((enum for enum in self.api["enums"].values() if names[0] in enum), {})
        others = {value: (self.stripped(constant), value, "") for constant, value in reversed(of_header.items())}
        others = {value: other for value, other in others.items() if value not in dtypes}
        known = tuple((name, value, dtypes[value]) for name, value in values)
        names_of_all = (*known, *(others[value] for value in sorted(others)))
        return Enum(entry["type"], values, key, names_of_all, from_array=bool(entry.get("from_array", False)))
