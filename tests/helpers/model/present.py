"""The present table: mappings of base arrays, their groups of lent parts, pointers and regions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.model.calls import OVERWRITES, Array, Operand
from helpers.model.parts import Part, contains, overlap

Direction = Literal["by use", "In", "Out", "InOut", "Scratch"]


@dataclass(eq=False)
class Lent:
    """A lent part of a mapping, with the rights of all arguments that are exactly this part."""

    part: Part
    writes: bool
    goes_up: bool


@dataclass(eq=False)
class Group:
    """Lent parts of a mapping that overlap; they have one state."""

    lent: list[Lent]
    elements: int = 0
    valid: bool = False  # the device's contents are at least as new as the host's
    dirty: bool = False  # the device wrote it, and the host does not have the new contents
    written: bool = False  # a call wrote it in this mapping's life
    invalid: bool = False  # a failure left it undefined
    escaped: bool = False  # code outside has an address with which it may write
    parts: int = 0  # a bit set of the elements that calls wrote, while not all are valid
    writers: set[int] = field(default_factory=set)  # open regions whose writes it has and the host lacks
    ever_wrote: set[int] = field(default_factory=set)  # open regions that wrote it, or to which writes were passed

    @property
    def goes_up(self) -> bool:
        return any(lent.goes_up for lent in self.lent)

    @property
    def writable(self) -> bool:
        return any(lent.writes for lent in self.lent)

    def note_part(self, part: Part) -> None:
        if not self.valid:
            self.parts |= part.elements
        if self.parts == self.elements:
            self.valid, self.parts = True, 0

    def wrote(self, part: Part) -> NDArray[np.bool_]:
        """Return a mask of the elements of an array that calls wrote by parts."""
        data = np.frombuffer(self.parts.to_bytes(part.high // 8 + self.parts.bit_length() // 8 + 1, "little"), np.uint8)
        return np.unpackbits(data, bitorder="little")[part.index] == 1

    def takes_parts(self) -> bool:
        """Return whether calls may write the group by parts: elements may be missing, and one array has them all."""
        if self.valid or self.invalid or self.escaped or (self.written and not self.parts):
            return False
        return any(lent.writes for lent in self.lent if lent.part.elements == self.elements)


@dataclass(eq=False)
class Mapping:
    """An interval of a base array that is present on a device, or the device memory of a Scratch."""

    device: str
    base: str
    low: int
    high: int
    packed: bool
    groups: list[Group]
    contents: Array  # contents by the positions of the base array; NaN for unknown elements
    scratch: bool = False
    holders: set[int] = field(default_factory=set)  # its open regions
    address_taken: bool = False

    def is_in_place(self, coherent: frozenset[str]) -> bool:
        """Return whether a coherent device uses it in the host's memory; it has copies of packed arrays."""
        return self.device in coherent and not self.packed and not self.scratch

    def names_all(self, part: Part) -> bool:
        return all(self.names(lent.part, part) for _, lent in self.lent())

    def takes_part(self, group: Group, operand: Operand, access: int) -> bool:
        """Return whether a call writes a part of a group that takes parts."""
        regular = operand.part.lines is not None and not (self.packed or self.scratch)
        return access == OVERWRITES and regular and group.takes_parts()

    def meets(self, part: Part) -> bool:
        return not self.scratch and self.base == part.base and self.low < part.high and part.low < self.high

    def shares(self, part: Part) -> bool:
        """Return whether one of its arrays shares an element with a part."""
        return self.meets(part) and any(overlap(lent.part, part) for _, lent in self.lent())

    def holds(self, part: Part) -> bool:
        return not self.scratch and self.base == part.base and self.low <= part.low and part.high <= self.high

    @property
    def dirty(self) -> bool:
        return any(group.dirty for group in self.groups)

    @property
    def newer(self) -> bool:
        """Whether the device has, or may soon have, newer bytes than the host and other devices."""
        return self.dirty or any(group.escaped for group in self.groups)

    def state(self) -> tuple[object, ...]:
        groups = [
            (g.valid, g.dirty, g.written, g.invalid, g.escaped, g.parts, frozenset(g.writers), frozenset(g.ever_wrote))
            for g in self.groups
        ]
        lent = [(lent.part, lent.writes, lent.goes_up) for _, lent in self.lent()]
        return self.device, self.contents.tobytes(), frozenset(self.holders), self.address_taken, *groups, *lent

    def lent(self) -> Iterator[tuple[Group, Lent]]:
        return ((group, lent) for group in self.groups for lent in group.lent)

    def names(self, lent: Part, part: Part) -> bool:
        """Return whether the lent arrays can surely express the bytes of a part; if not, an update may be refused."""
        if lent is part or not lent.meets(part):
            return True
        if self.packed or lent.lines is None:
            return part.lines is not None and part.lines.count == 1 and part.low <= lent.low and lent.high <= part.high
        if contains(lent, part) or lent.lines.count == 1:
            return True
        if part.lines is None:
            return False
        same = part.lines.pitch == lent.lines.pitch and not part.elements & lent.elements
        return same or contains(part, lent) or part.lines.count == 1


@dataclass(eq=False)
class Pointer:
    """A region's pointer for one argument."""

    part: Part
    mapping: Mapping
    group: Group
    writes: bool
    out: bool  # whether it is only readable once it was written
    owed: bool  # whether it is lent as Out, so that a call should write it


@dataclass(eq=False)
class Region:
    device: str
    thread: int
    pointers: list[Pointer]
    lent_whole: frozenset[str]  # base arrays that are arguments themselves, and are therefore read-only

    def lends(self, group: Group) -> bool:
        return any(pointer.group is group for pointer in self.pointers)

    def state(self) -> tuple[object, ...]:
        return self.device, self.thread, *((p.part, p.writes, p.out) for p in self.pointers)


@dataclass(frozen=True)
class Argument:
    """An argument of a region; the part of a Scratch has a separate base."""

    direction: Direction
    part: Part
