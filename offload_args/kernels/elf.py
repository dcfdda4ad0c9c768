"""ELF files of 64 bits, little-endian: sections and symbols, each checked to be inside the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..errors import ModuleError

__all__ = ["Elf", "Section", "Symbol"]

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_NO_BITS: Final = 8


@dataclass(frozen=True)
class Section:
    name: str
    type: int
    address: int
    offset: int
    nbytes: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    nbytes: int


class Elf:
    """The header and sections of a file. Raises ModuleError if a part is outside the file's bytes."""

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._data = memoryview(data)
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
            raise ModuleError(f"{name}: needs an ELF file of 64 bits, little-endian")
        (_, self.type, self.machine, _, _, _, sections, self.flags, _, _, _, entry, count, names) = _HEADER.unpack_from(
            data
        )
        self.abi, self.abi_version = data[7], data[8]
        if count and entry != _SECTION.size:
            raise self._damaged("its table of sections")
        table = self._range(sections, count * _SECTION.size, "its table of sections")
        rows = list(_SECTION.iter_unpack(table))
        strings = self._range(rows[names][4], rows[names][5], "its names") if names < count else memoryview(b"")
        self.sections = [
            Section(self._text(strings, row[0]), row[1], row[3], row[4], row[5], row[6], row[7]) for row in rows
        ]

    def _damaged(self, subject: str) -> ModuleError:
        return ModuleError(
            f"{self._name}: the ELF file is damaged: {subject} is not inside its {len(self._data)} bytes"
        )

    def _range(self, offset: int, nbytes: int, subject: str) -> memoryview:
        if offset + nbytes > len(self._data):
            raise self._damaged(subject)
        return self._data[offset : offset + nbytes]

    def _text(self, strings: memoryview, offset: int) -> str:
        """Return a name of at most 4096 bytes; a longer name is cut."""
        raw = bytes(strings[offset : offset + 4096])
        return raw.partition(b"\0")[0].decode("utf-8", "replace")

    def contents(self, section: Section) -> memoryview:
        """Return a section's bytes; the result is empty if the section has no bytes in the file."""
        if section.type == _NO_BITS:
            return memoryview(b"")
        return self._range(section.offset, section.nbytes, f"section {section.name}")

    def named(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def symbols(self, table: Section) -> Iterator[Symbol]:
        if table.link >= len(self.sections):
            raise self._damaged("the names of its symbols")
        strings = self.contents(self.sections[table.link])
        contents = self.contents(table)
        for name, info, other, section, value, nbytes in _SYMBOL.iter_unpack(
            contents[: len(contents) // _SYMBOL.size * _SYMBOL.size]
        ):
            yield Symbol(self._text(strings, name), info, other, section, value, nbytes)

    def bytes_of(self, symbol: Symbol) -> memoryview:
        """Return the bytes of a symbol in its section."""
        if symbol.section >= len(self.sections):
            raise self._damaged(f"symbol {symbol.name}")
        section = self.sections[symbol.section]
        contents, start = self.contents(section), symbol.value - section.address
        if start < 0 or start + symbol.nbytes > len(contents):
            raise self._damaged(f"symbol {symbol.name}")
        return contents[start : start + symbol.nbytes]
