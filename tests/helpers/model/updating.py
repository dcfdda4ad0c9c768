"""The host reads and writes arrays while they are lent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from helpers.model.calling import Calling
from helpers.model.calls import READS, Array, Call
from helpers.model.outcomes import Outcome, Refused, Unspecified
from helpers.model.parts import Part
from helpers.model.present import Group, Lent, Mapping


@dataclass(frozen=True, eq=False)
class Within:
    """A call in the block of an update, and the value that the block writes after it.

    coherent: devices that use the host's memory, and refuse calls that use the array.
    """

    call: Call
    value: float
    coherent: frozenset[str]


class Updating(Calling):
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

    def write_lent(
        self, part: Part, inner: Part, value: float, device: str | None, within: Within | None = None
    ) -> list[tuple[Self, Outcome]]:
        """Run `with update(x): x[...] = value` for x or some of it; devices that have some of x get the host's bytes.

        The devices get them even if the block raises. `device` is the named device, from which bytes come. `within`
        goes on in the block.
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
        if within:
            ends[0] = self, self._go_on(part, inner, within)
        return ends

    def _go_on(self, part: Part, inner: Part, within: Within) -> Outcome:
        """Make a call in the block of an update, then write again."""
        live = [(o, access) for o, access in within.call.operands if o.region in self.regions]
        places = [(self.regions[o.region].pointers[o.argument], o, access) for o, access in live]
        for pointer, operand, access in places:
            group = pointer.group
            if not group.elements & part.elements or pointer.mapping.is_in_place(within.coherent):
                continue
            if not pointer.mapping.names_all(part) or pointer.mapping.address_taken:
                raise Unspecified
            # Calls wrote other elements of the lent array, so a call reads the device's elements.
            if group.dirty and access & READS and operand.part.elements & part.elements:
                raise Unspecified
        try:
            if any(p.mapping.meets(part) and p.mapping.is_in_place(within.coherent) for p, _, _ in places):
                self._check(within.call.operands, within.call.rules)
                if within.call.rules.stays:
                    raise Unspecified  # it may read the host's memory, without the device
                raise Refused("ArgumentError")
            outcome = self.call(within.call.operands, within.call.compute, within.call.rules)
        except Refused as refused:
            outcome = Outcome(errors=refused.errors | {"ArgumentError"} if within.coherent else refused.errors)
        else:
            self.hosts[part.base][inner.index] = within.value
        for mapping in self.mappings:
            for group, lent in mapping.lent() if mapping.meets(part) else ():
                if group.parts and not group.goes_up and group.elements & part.elements & ~group.parts:
                    raise Unspecified  # the block ends with a refusal: calls wrote only a part of an Out
                if group.valid or (group.parts and not group.invalid):
                    self._copy(part, lent, group, self.hosts[part.base], mapping.contents)
                    if not group.elements & ~part.elements:
                        group.dirty = group.invalid = False
                        group.writers.clear()
        return outcome

    def write_host(self, part: Part, value: float) -> Outcome:
        """Write to an array that is not lent."""
        if self.lent(part) or self.read_only(part.base):
            raise Unspecified
        self.hosts[part.base][part.index] = value
        return Outcome()
