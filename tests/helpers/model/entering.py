"""Regions are entered: present arrays are shared, and all others are mapped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.model.contents import Contents
from helpers.model.outcomes import Outcome, Refused, Unspecified
from helpers.model.parts import Part, contains, overlap
from helpers.model.present import Argument, Group, Lent, Mapping, Pointer, Region


class Entering(Contents):
    """The step that lends arrays."""

    def enter(self, number: int, device: str, arguments: Sequence[Argument]) -> Outcome:
        """Lend arrays: present arrays are shared; other arguments whose hulls overlap become one new mapping."""
        pointers: dict[int, Pointer] = {}
        errors: set[str] = set()
        fresh: list[int] = []
        for i, argument in enumerate(arguments):
            try:
                mapping = self._present(device, argument)
                if mapping:
                    pointers[i] = self._share(mapping, argument, fresh=False)
                else:
                    fresh.append(i)
            except Refused as refused:
                errors |= refused.errors
        clusters: list[list[int]] = []
        for i in sorted(fresh, key=lambda i: (arguments[i].part.base, arguments[i].part.low)):
            if clusters and any(arguments[i].part.meets(arguments[j].part) for j in clusters[-1]):
                clusters[-1].append(i)
            else:
                clusters.append([i])
        built: list[Mapping] = []
        for cluster in clusters:
            try:
                built.append(self._map(device, [arguments[i] for i in cluster]))
                for i in cluster:
                    pointers[i] = self._share(built[-1], arguments[i], fresh=True)
            except Refused as refused:
                errors |= refused.errors
        if errors:
            raise Refused(*errors)
        self.mappings += built
        for pointer in pointers.values():
            pointer.mapping.holders.add(number)
        bases = frozenset(a.part.base for a in arguments if a.part is self.bases.get(a.part.base))
        ordered = [pointers[i] for i in range(len(arguments))]
        self.regions[number] = Region(device, self.thread, ordered, bases)
        return Outcome(warnings=("PerformanceWarning",) * sum(pointers[i].mapping.packed for i in fresh))

    def _present(self, device: str, argument: Argument) -> Mapping | None:
        """Return the mapping that already has an argument."""
        part = argument.part
        if argument.direction == "Scratch":
            return None
        if part.read_only and argument.direction in ("Out", "InOut"):
            raise Refused("DirectionError")
        for elsewhere in self.mappings:
            if elsewhere.device != device and elsewhere.shares(part):
                if any(group.dirty and group.invalid for group in elsewhere.groups):
                    raise Unspecified
                if elsewhere.newer or argument.direction in ("Out", "InOut"):
                    raise Refused("DirectionError")
        here = [mapping for mapping in self.mappings if mapping.device == device and mapping.shares(part)]
        if len(here) > 1 or (here and not here[0].holds(part)):
            raise Refused("PresentError")
        return here[0] if here else None

    def _map(self, device: str, members: list[Argument]) -> Mapping:
        hull = _hull(members)
        packed = len(members) == 1 and members[0].part.packed
        if not packed and any(member.part.lines is None for member in members):
            if all(member.part is members[0].part for member in members):
                raise Unspecified  # the same irregular array twice
            raise Refused("PresentError")
        parts: list[Lent] = []
        for member in members:
            lent = next((part for part in parts if part.part.elements == member.part.elements), None)
            if lent is None:
                lent = Lent(member.part, False, False)
                parts.append(lent)
            lent.writes |= member.direction != "In" and not member.part.read_only
            lent.goes_up |= member.direction != "Out"
        groups: list[Group] = []
        for lent in parts:
            joined = [group for group in groups if any(overlap(lent.part, other.part) for other in group.lent)]
            groups = [group for group in groups if group not in joined]
            groups.append(Group([lent, *(other for group in joined for other in group.lent)]))
        for group in groups:
            for lent in group.lent:
                group.elements |= lent.part.elements
        scratch = members[0].direction == "Scratch"
        if scratch:
            groups[0].valid = True
        size = hull.high if scratch else len(self.hosts[hull.base])
        contents = np.full(size, np.nan, np.result_type(hull.dtype, np.float64))
        return Mapping(device, hull.base, hull.low, hull.high, packed, groups, contents, scratch)

    def _share(self, mapping: Mapping, argument: Argument, *, fresh: bool) -> Pointer:
        """Return a pointer with the rights of the part that holds the argument, or fewer."""
        part, direction = argument.part, argument.direction
        if mapping.packed:
            results = [(g, lent) for g, lent in mapping.lent() if lent.part is part]
        elif part.lines is None:
            results = []
        else:
            results = [(g, lent) for g, lent in mapping.lent() if contains(lent.part, part)]
        if not results:
            raise Refused("PresentError")
        if fresh:
            group = next(g for g, lent in results if lent.part.elements == part.elements)
            writes = direction != "In" and not part.read_only
            return Pointer(part, mapping, group, writes, direction == "Out", direction == "Out")
        group, _ = results[0]
        rights = {(lent.writes, lent.goes_up or group.goes_up) for _, lent in results}
        writes, goes_up = max(rights, key=sum)
        if len([r for r in rights if sum(r) == writes + goes_up]) > 1:
            raise Unspecified
        if (direction in ("Out", "InOut") and not writes) or (direction == "InOut" and not goes_up):
            raise Refused("DirectionError")
        out = direction == "Out" or not goes_up
        return Pointer(part, mapping, group, writes and direction != "In", out, direction == "Out")


def _hull(members: Sequence[Argument]) -> Part:
    low, high = min(m.part.low for m in members), max(m.part.high for m in members)
    first = members[0].part
    return Part(first.base, np.arange(low, high), 0, low, high, None, False, first.dtype, first.read_only)
