"""The host reads and writes arrays while they are lent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from helpers.model.calls import Array
from helpers.model.contents import Contents
from helpers.model.outcomes import Outcome, Refused, Unspecified
from helpers.model.parts import Part
from helpers.model.present import Group, Lent, Mapping


class Updating(Contents):
    """The steps of the host."""

    def update(self, part: Part, device: str | None = None) -> list[tuple[Self, Outcome]]:
        """Bring exactly the bytes of an array that devices wrote to the host; regions do not undo this later.

        Return the possible outcomes. If the lent arrays can't express exactly these bytes, the update may be refused.
        """
        news = self._news(part, device)
        if any(g.parts and not g.goes_up and g.elements & part.elements & ~g.parts for _, g, _ in news):
            raise Refused("DirectionError", "PresentError", "InvalidDataError")
        refused = [] if all(m.names(lent.part, part) for m, _, lent in news) else [self._refused()]
        if not any(group.invalid and group.elements & part.elements for _, group, _ in news):
            self._bring_down(part, news)
            return [(self, Outcome()), *refused]
        error = Outcome(errors=frozenset({"InvalidDataError"}))
        return [(self, error), *refused]

    def _refused(self) -> tuple[Self, Outcome]:
        return self.copy(), Outcome(errors=frozenset({"PresentError"}))

    def _news(self, part: Part, device: str | None = None) -> list[tuple[Mapping, Group, Lent]]:
        """Return the lent arrays that may share bytes with an array, in groups that are newer on a device."""
        holders = [m for m in self.mappings if m.shares(part) and device in (None, m.device)]
        if not any(m.holds(part) for m in holders):
            raise Refused("PresentError")
        return [
            (m, group, lent)
            for m in holders
            for group, lent in m.lent()
            if group.dirty
            or (group.escaped and group.valid and lent.writes)
            or (group.invalid and not m.holders)  # the last region of the mapping is being left
        ]

    def _bring_down(self, part: Part, news: Sequence[tuple[Mapping, Group, Lent]]) -> None:
        for mapping, group, lent in news:
            self._copy(part, lent, group, mapping.contents, self.hosts[part.base])
            if not group.elements & ~part.elements:
                group.dirty = False
                group.writers.clear()

    @staticmethod
    def _copy(part: Part, lent: Lent, group: Group, source: Array, target: Array) -> None:
        """Copy the elements that a part and a lent array have in common, and the device has."""
        there = lent.part.index[group.wrote(lent.part)] if group.parts else lent.part.index
        inside = np.intersect1d(part.index, there)
        target[inside] = source[inside]

    def write_lent(self, part: Part, inner: Part, value: float, device: str | None) -> list[tuple[Self, Outcome]]:
        """Run `with update(x): x[...] = value` for x or some of it; devices that have some of x get the host's bytes.

        The devices get them even if the block raises. `device` is the named device, from which bytes come.
        """
        if part.read_only:
            raise Unspecified
        if device and any(m.newer and m.device != device for m in self.mappings if m.meets(part)):
            raise Unspecified
        ends = self.update(part, device)
        if ends[0][1].errors:
            return ends
        near = [(m, g, lent) for m in self.mappings for g, lent in m.lent() if m.meets(part)]
        for _, group, lent in near:
            if group.goes_up and not (group.dirty or group.invalid) and lent.part.elements & part.elements:
                group.parts = 0  # all of the group goes up when it is needed
        held = [(m, g, lent) for m, g, lent in near if g.valid or (g.parts and not g.invalid)]
        if not all(m.names(lent.part, part) for m, _, lent in held):
            ends.append(self._refused())  # a group with an escaped address is refused
        self.hosts[part.base][inner.index] = value
        for mapping, group, lent in held:
            self._copy(part, lent, group, self.hosts[part.base], mapping.contents)
        return ends

    def write_host(self, part: Part, value: float) -> Outcome:
        """Write to an array that is not lent."""
        if self.lent(part) or self.read_only(part.base):
            raise Unspecified
        self.hosts[part.base][part.index] = value
        return Outcome()
