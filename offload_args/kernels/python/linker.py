"""A linker for one object file: it makes a shared object for host and sim, or an HSACO for AMD GPUs.

LLVM writes an object file with position-independent code. The linker lays out the object's sections, fills in the
distances between them, and lists the symbols for the loader. Code for the CPU may call functions of the C library. Each
of these functions has a slot, which the loader fills. Neither a compiler nor ROCm is needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from ...errors import ModuleError

__all__ = ["link"]

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_X86, _AMD = 62, 224
_PAGE: Final = 4096
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC, _NOTE, _NOBITS, _DYNSYM = 1, 2, 3, 4, 5, 6, 7, 8, 11
_WRITE, _ALLOC, _CODE = 1, 2, 4
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2

# {machine: {type of a relocation: (the computation, the width in bytes)}}. The computation is A for an absolute
# address, R for a relative one, G for the address of the symbol's slot relative to the place, and L or H for the low or
# high half of a relative address.
_KINDS: Final[dict[int, dict[int, tuple[str, int]]]] = {
    _X86: {1: ("A", 8), 2: ("R", 4), 4: ("R", 4), 9: ("G", 4), 41: ("G", 4), 42: ("G", 4), 24: ("R", 8)},
    _AMD: {3: ("A", 8), 4: ("R", 4), 5: ("R", 8), 10: ("L", 4), 11: ("H", 4)},
}
_RELATIVE: Final = {_X86: 8, _AMD: 13}
_SLOT: Final = {_X86: 6}  # R_X86_64_GLOB_DAT
_STUB: Final = b"\xff\x25\0\0\0\0\x66\x90"  # jmp *slot(%rip)


@dataclass
class _Part:
    """A section of the result."""

    name: str
    kind: int
    flags: int
    align: int
    data: bytearray
    nbytes: int  #: the size in memory
    link: int = 0
    info: int = 0
    entry: int = 0
    address: int = 0
    offset: int = 0
    relocations: list[tuple[int, int, int]] = field(default_factory=list)  #: place, symbol << 32 | kind, addend

    def __post_init__(self) -> None:
        self.nbytes = max(self.nbytes, len(self.data))


@dataclass
class _Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    nbytes: int
    part: _Part | None = None
    slot: int = -1  #: the symbol's place among the slots

    @property
    def is_global(self) -> bool:
        return self.info >> 4 != 0

    @property
    def address(self) -> int:
        return self.value + (self.part.address if self.part is not None else 0)


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _hash_of(name: str) -> int:
    """Return the hash of a name as ELF defines it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _read(name: str, data: bytes) -> tuple[list[_Part], list[_Symbol], tuple[int, int, int, int]]:
    """Return the sections to load, the symbols, and the machine with its flags and ABI."""
    head = _HEADER.unpack_from(data)
    rows = [_SECTION.unpack_from(data, head[6] + i * _SECTION.size) for i in range(head[12])]
    names = data[rows[head[13]][4] :][: rows[head[13]][5]]
    parts: dict[int, _Part] = {}
    for i, row in enumerate(rows):
        title = _text(names, row[0])
        if row[2] & _ALLOC and title != ".eh_frame":
            body = bytearray() if row[1] == _NOBITS else bytearray(data[row[4] : row[4] + row[5]])
            kind = _PROGBITS if row[1] not in (_NOTE, _NOBITS) else row[1]
            parts[i] = _Part(title, kind, row[2] & 7, max(row[8], 1), body, row[5])
    table = next((row for row in rows if row[1] == _SYMTAB), None)
    symbols: list[_Symbol] = []
    if table is not None:
        strings = data[rows[table[6]][4] :][: rows[table[6]][5]]
        for at in range(table[4], table[4] + table[5], _SYMBOL.size):
            row = _SYMBOL.unpack_from(data, at)
            symbol = _Symbol(_text(strings, row[0]), row[1], row[2], row[3], row[4], row[5], parts.get(row[3]))
            symbols.append(symbol)
            if symbol.section == _COMMON:
                raise ModuleError(f"{name}: the linker does not place {symbol.name}")
    for row in rows:
        if row[1] == _RELA and row[7] in parts:
            for at in range(row[4], row[4] + row[5], _RELOCATION.size):
                parts[row[7]].relocations.append(_RELOCATION.unpack_from(data, at))
    return list(parts.values()), symbols, (head[2], head[7], data[7], data[8])


def _tables(symbols: list[_Symbol], machine: int) -> list[_Part]:
    """Return the sections of symbols, names and hashes for the loader; their addresses are filled in later."""
    strings = bytearray(b"\0")
    for symbol in symbols:
        strings += symbol.name.encode() + b"\0"
    if machine == _X86:
        strings += b"libm.so.6\0"
    count = len(symbols) + 1
    chains = [0] * count
    buckets = [0] * max(1, count // 2)
    for i, symbol in enumerate(symbols, 1):
        place = _hash_of(symbol.name) % len(buckets)
        chains[i], buckets[place] = buckets[place], i
    words = struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)
    return [
        _Part(".dynsym", _DYNSYM, _ALLOC, 8, bytearray(count * _SYMBOL.size), 0, info=1, entry=_SYMBOL.size),
        _Part(".dynstr", _STRTAB, _ALLOC, 1, strings, 0),
        _Part(".hash", _HASH, _ALLOC, 8, bytearray(words), 0, entry=4),
    ]


def _put_symbols(part: _Part, symbols: list[_Symbol], order: list[_Part]) -> None:
    at = 1
    for i, symbol in enumerate(symbols, 1):
        section = order.index(symbol.part) + 1 if symbol.part is not None else _UNDEFINED
        row = (at, symbol.info, symbol.other, section, symbol.address, symbol.nbytes)
        _SYMBOL.pack_into(part.data, i * _SYMBOL.size, *row)
        at += len(symbol.name.encode()) + 1


class _Linker:
    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.parts, self.symbols, (self.machine, self.flags, self.abi, self.abi_version) = _read(name, data)
        if self.machine not in _KINDS:
            raise ModuleError(f"{name}: the linker knows x86_64 and AMD GPUs, not machine {self.machine}")
        self.kinds = _KINDS[self.machine]
        needed = [
            self.symbols[info >> 32]
            for part in self.parts
            for _, info, _ in part.relocations
            if self.symbols[info >> 32].section == _UNDEFINED
        ]
        outside = list({symbol.name: symbol for symbol in needed}.values())
        if outside and self.machine not in _SLOT:
            raise ModuleError(f"{name}: it needs {', '.join(symbol.name for symbol in outside)}, which no GPU has")
        with_slots = [
            self.symbols[info >> 32]
            for part in self.parts
            for _, info, _ in part.relocations
            if self.kinds.get(info & 0xFFFFFFFF, ("", 0))[0] == "G"
        ]
        self.slots = list({id(symbol): symbol for symbol in [*outside, *with_slots]}.values())
        for i, symbol in enumerate(self.slots):
            symbol.slot = i
        self.outside = outside
        exported = [symbol for symbol in self.symbols if symbol.is_global and symbol.part is not None]
        self.listed = [*outside, *exported]

    def link(self) -> bytes:
        tables = _tables(self.listed, self.machine)
        absolute = sum(
            self.kinds.get(info & 0xFFFFFFFF, ("", 0))[0] == "A"
            for part in self.parts
            for _, info, _ in part.relocations
        )
        self.loader = _Part(".rela.dyn", _RELA, _ALLOC, 8, bytearray(), (absolute + len(self.slots)) * 24, entry=24)
        self.stubs = _Part(".plt", _PROGBITS, _ALLOC | _CODE, 16, bytearray(_STUB * len(self.outside)), 0)
        self.table = _Part(".got", _PROGBITS, _ALLOC | _WRITE, 8, bytearray(8 * len(self.slots)), 0)
        self.dynamic = _Part(".dynamic", _DYNAMIC, _ALLOC | _WRITE, 8, bytearray(), 16 * 12, entry=16)
        own = sorted(self.parts, key=lambda part: (part.kind != _NOTE, part.kind == _NOBITS))
        groups = [
            [*[x for x in own if not x.flags & (_WRITE | _CODE)][:], *tables, self.loader],
            [*[x for x in own if x.flags & _CODE], self.stubs],
            [self.dynamic, self.table, *[x for x in own if x.flags & _WRITE and not x.flags & _CODE]],
        ]
        groups[0].sort(key=lambda group: group.kind != _NOTE)
        groups = [[part for part in group if part.nbytes] for group in groups]
        groups = [group for group in groups if group]
        order = [part for group in groups for part in group]
        notes = [part for part in order if part.kind == _NOTE]
        count = len(groups) + 2 + len(notes)
        at = _HEADER.size + count * _SEGMENT.size
        for i, group in enumerate(groups):
            if i:
                at = -(-at // _PAGE) * _PAGE
            for part in group:
                at = -(-at // part.align) * part.align
                part.address = part.offset = at
                at += part.nbytes
        self.relocate()
        _put_symbols(tables[0], self.listed, order)
        tables[0].link, tables[2].link = order.index(tables[1]) + 1, order.index(tables[0]) + 1
        self.loader.link, self.dynamic.link = order.index(tables[0]) + 1, order.index(tables[1]) + 1
        self.fill_dynamic(tables)
        return self.file(groups, order, notes)

    def relocate(self) -> None:
        rows: list[tuple[int, int, int]] = []
        for i, symbol in enumerate(self.slots):
            if symbol.section == _UNDEFINED:
                rows.append(
                    (self.table.address + 8 * i, (self.listed.index(symbol) + 1) << 32 | _SLOT[self.machine], 0)
                )
            else:
                rows.append((self.table.address + 8 * i, _RELATIVE[self.machine], symbol.address))
        for i, symbol in enumerate(self.outside):
            stub = self.stubs.address + len(_STUB) * i
            struct.pack_into("<i", self.stubs.data, len(_STUB) * i + 2, self.table.address + 8 * symbol.slot - stub - 6)
        names = {symbol.name: symbol for symbol in self.outside}
        for part in self.parts:
            for place, info, addend in part.relocations:
                symbol = self.symbols[info >> 32]
                known = self.kinds.get(info & 0xFFFFFFFF)
                if known is None:
                    raise ModuleError(f"{self.name}: the linker does not know the relocation {info & 0xFFFFFFFF}")
                kind, nbytes = known
                at = part.address + place
                if symbol.section == _UNDEFINED:
                    symbol = names[symbol.name]
                    target = self.stubs.address + len(_STUB) * self.outside.index(symbol)
                elif symbol.part is None:
                    raise ModuleError(f"{self.name}: the linker does not place {symbol.name}")
                else:
                    target = symbol.address
                if kind == "A":
                    rows.append((at, _RELATIVE[self.machine], target + addend))
                    continue
                value = (self.table.address + 8 * symbol.slot if kind == "G" else target) + addend - at
                if kind in "LH":
                    value = (value if kind == "L" else value >> 32) & 0xFFFFFFFF
                struct.pack_into("<Q" if nbytes == 8 else "<I", part.data, place, value & (1 << 8 * nbytes) - 1)
        self.loader.data = bytearray(b"".join(_RELOCATION.pack(*row) for row in rows))

    def fill_dynamic(self, tables: list[_Part]) -> None:
        symbols, strings, hashes = tables
        rows = [(4, hashes.address), (5, strings.address), (6, symbols.address), (10, strings.nbytes), (11, 24)]
        if self.machine == _X86:
            rows.insert(0, (1, len(strings.data) - len("libm.so.6") - 1))
        if self.loader.data:
            rows += [(7, self.loader.address), (8, len(self.loader.data)), (9, 24)]
        rows.append((0, 0))
        self.dynamic.data = bytearray(b"".join(struct.pack("<qQ", *row) for row in rows))

    def file(self, groups: list[list[_Part]], order: list[_Part], notes: list[_Part]) -> bytes:
        segments = []
        for i, group in enumerate(groups):
            first = 0 if i == 0 else group[0].address
            held = max((part.offset + len(part.data) for part in group if part.kind != _NOBITS), default=first)
            end = group[-1].address + group[-1].nbytes
            rights = 4 | (1 if group[0].flags & _CODE else 0) | (2 if group[0].flags & _WRITE else 0)
            segments.append((1, rights, first, first, first, max(held - first, 0), end - first, _PAGE))
        d = self.dynamic
        segments.append((2, 6, d.offset, d.address, d.address, d.nbytes, d.nbytes, 8))
        segments.append((0x6474E551, 6, 0, 0, 0, 0, 0, 0))  # makes the stack not executable
        segments += [(4, 4, n.offset, n.address, n.address, n.nbytes, n.nbytes, n.align) for n in notes]
        plain = _Part(".symtab", _SYMTAB, 0, 8, bytearray((len(self.listed) + 1) * _SYMBOL.size), 0, info=1, entry=24)
        _put_symbols(plain, self.listed, order)
        texts = _Part(".strtab", _STRTAB, 0, 1, bytearray(b"\0"), 0)
        for symbol in self.listed:
            texts.data += symbol.name.encode() + b"\0"
        titles = _Part(".shstrtab", _STRTAB, 0, 1, bytearray(b"\0"), 0)
        every = [*order, plain, texts, titles]
        plain.link = every.index(texts) + 1
        places = []
        for part in every:
            places.append(len(titles.data))
            titles.data += part.name.encode() + b"\0"
        at = max(part.offset + (0 if part.kind == _NOBITS else max(part.nbytes, len(part.data))) for part in order)
        for part in every[len(order) :]:
            part.nbytes = len(part.data)
            part.offset = at = -(-at // part.align) * part.align
            at += part.nbytes
        at = -(-at // 8) * 8
        data = bytearray(at)
        identity = b"\x7fELF\x02\x01\x01" + bytes([self.abi, self.abi_version]) + bytes(7)
        _HEADER.pack_into(
            data, 0, identity, 3, self.machine, 1, 0, _HEADER.size, at, self.flags, _HEADER.size, _SEGMENT.size,
            len(segments), _SECTION.size, len(every) + 1, len(every),
        )  # fmt: skip
        for i, segment in enumerate(segments):
            _SEGMENT.pack_into(data, _HEADER.size + i * _SEGMENT.size, *segment)
        rows = [_SECTION.pack(*[0] * 10)]
        for part, title in zip(every, places, strict=True):
            data[part.offset : part.offset + len(part.data)] = part.data
            rows.append(
                _SECTION.pack(
                    title,
                    part.kind,
                    part.flags,
                    part.address,
                    part.offset,
                    part.nbytes,
                    part.link,
                    part.info,
                    part.align,
                    part.entry,
                )
            )
        return bytes(data) + b"".join(rows)


def link(name: str, data: bytes) -> bytes:
    """Return the shared object, or the HSACO, of an object file. Raises ModuleError if the file can't be linked."""
    return _Linker(name, data).link()
