"""Regions are left: results come down, are kept for an outer region, or become invalid."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from helpers.model.contents import Contents
from helpers.model.outcomes import Outcome, Unspecified
from helpers.model.parts import Part
from helpers.model.present import Group, Mapping, Pointer

End = Literal["well", "discard", "keep"]

LEAST_RESIDENT: Final = 128 << 10  # bytes of an array whose pages residency watches; smaller ones are sent each time


class Leaving(Contents):
    """The steps that end a region."""

    def leave(self, number: int, end: End, *, copied: bool = True) -> Outcome:
        """Leave a region without an exception, or by an exception with on_error "discard" or "keep".

        Then call forget().

        copied: False if the results could not come down; then all of them are lost.
        """
        region = self.regions[number]
        if end == "well" and any(map(self._may_be_all_there, region.pointers)):
            raise Unspecified
        mappings = list(dict.fromkeys(pointer.mapping for pointer in region.pointers))
        fates = [(m, g, self._fate(number, end, m, g)) for m in mappings for g in m.groups if not m.scratch]
        told_invalid = False
        for mapping, group, fate in fates:
            if fate == "spoil":
                group.invalid = True
            if end != "discard":
                self._hand_on(number, group)
            if len(mapping.holders) == 1 and group.invalid and group.writable and end == "well":
                told_invalid = True
            if fate == "come down" and copied:
                for lent in group.lent:
                    if lent.writes:
                        self._bring_written_down(mapping, group, lent.part)
        owed = [p for p in region.pointers if p.owed and not p.group.invalid]
        unwritten = [
            p
            for p in owed
            if (p.part.elements & ~p.group.parts if p.group.parts else not p.group.written and not p.group.escaped)
        ]
        for mapping in mappings:
            mapping.holders.discard(number)
            for group in mapping.groups:
                group.writers.discard(number)
                group.ever_wrote.discard(number)
                if not mapping.holders:
                    group.dirty = False
        del self.regions[number]
        for group in {pointer.group for pointer in region.pointers}:
            self._lend_up(group)
        if end == "discard":
            return Outcome(value="spoil" in [fate for _, _, fate in fates])
        if told_invalid:
            return Outcome(errors=frozenset({"InvalidDataError"}))
        return Outcome(warnings=("UnwrittenWarning",) if unwritten and end == "well" else ())

    def _may_be_all_there(self, pointer: Pointer) -> bool:
        """Return whether the unwritten part of an Out went up before calls wrote a part, if the array is resident.

        The array is also lent in another way then, and no warning says that a part of the Out is missing.
        """
        group = pointer.group
        if not (pointer.owed and group.goes_up and group.parts and pointer.part.elements & ~group.parts):
            return False
        return self.hosts[pointer.mapping.base].nbytes >= LEAST_RESIDENT

    def _bring_written_down(self, mapping: Mapping, group: Group, part: Part) -> None:
        index = part.index[group.wrote(part)] if group.parts else part.index
        self.hosts[mapping.base][index] = mapping.contents[index]

    def _lend_up(self, group: Group) -> None:
        """Let a group go up if the oldest region that still lends it lends some of it, but not as Out."""
        lending = {n: [p for p in r.pointers if p.group is group] for n, r in self.regions.items() if r.lends(group)}
        if group.goes_up or not lending or all(pointer.owed for pointer in lending[min(lending)]):
            return
        group.lent = [replace(lent, goes_up=True) for lent in group.lent]
        for pointer in (pointer for pointers in lending.values() for pointer in pointers):
            pointer.out = pointer.owed

    def _hand_on(self, number: int, group: Group) -> None:
        """Pass the results of a region to the youngest older region of its thread that lends some of them."""
        thread = self.regions[number].thread
        around = [n for n, r in self.regions.items() if n < number and r.thread == thread and r.lends(group)]
        for wrote in (group.writers, group.ever_wrote):
            if number in wrote and around:
                wrote.add(max(around))

    def forget(self) -> None:
        """Remove the groups of regions that were left. Until then another region may still share them."""
        self.mappings = [mapping for mapping in self.mappings if mapping.holders]

    def _fate(self, number: int, end: End, mapping: Mapping, group: Group) -> Literal["stay", "come down", "spoil"]:
        """Change a group as one of its regions is left."""
        last = len(mapping.holders) == 1
        news = group.dirty or (group.escaped and group.valid and end != "discard")
        if group.invalid or not news:
            return "stay"
        if end == "discard" and number in group.ever_wrote:
            if number not in group.writers:
                raise Unspecified  # its results were brought down or overwritten, but other regions have written since
            return "spoil"
        return "come down" if last else "stay"
