"""The contents of host arrays and devices, and the regions that are open."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np

from helpers.model.calls import Array, Chain
from helpers.model.outcomes import Outcome, Unspecified
from helpers.model.parts import Part
from helpers.model.present import Group, Mapping, Region


class Contents:
    """Host arrays, and the groups of them that are present on each device."""

    def __init__(self) -> None:
        self.bases: dict[str, Part] = {}
        self.hosts: dict[str, Array] = {}  # arrays in the order of their memory
        self.mappings: list[Mapping] = []
        self.regions: dict[int, Region] = {}  # open regions; on one thread, younger regions have higher numbers
        self.chains: dict[str, Chain] = {}
        self.captured: list[Group] = []  # during a capture: the groups that a captured call overwrites
        self.capturing: int | None = None  # the region whose calls are captured
        self.thread = 0  # the thread that makes the next step

    def make(self, base: Part, contents: Array) -> Outcome:
        """Make a host array, or replace the array of this name if no part of it is lent."""
        if any(mapping.base == base.base for mapping in self.mappings):
            raise Unspecified
        self.bases[base.base] = base
        self.hosts[base.base] = contents.astype(np.result_type(base.dtype, np.float64))
        return Outcome()

    def copy(self) -> Self:
        world = type(self)()
        world.bases = self.bases.copy()
        world.hosts = {base: host.copy() for base, host in self.hosts.items()}
        mappings, groups = {}, {}
        for m in self.mappings:
            for g in m.groups:
                groups[g] = replace(g, writers=g.writers.copy(), ever_wrote=g.ever_wrote.copy())
            mappings[m] = replace(
                m, groups=[groups[g] for g in m.groups], contents=m.contents.copy(), holders=m.holders.copy()
            )
        world.mappings = list(mappings.values())
        for number, region in self.regions.items():
            pointers = [replace(p, mapping=mappings[p.mapping], group=groups[p.group]) for p in region.pointers]
            world.regions[number] = replace(region, pointers=pointers)
        world.chains = self.chains.copy()
        return world

    def state(self) -> tuple[object, ...]:
        """Return a value that differs between worlds that differ."""
        return (
            tuple(host.tobytes() for host in self.hosts.values()),
            tuple(mapping.state() for mapping in self.mappings),
            tuple((number, *region.state()) for number, region in self.regions.items()),
            tuple((name, chain.calls) for name, chain in self.chains.items()),
        )

    def read_only(self, base: str) -> bool:
        return self.bases[base].read_only or any(base in region.lent_whole for region in self.regions.values())

    def lent(self, part: Part) -> bool:
        """Return whether some of a part is lent anywhere."""
        return any(
            m.base == part.base and lent.part.elements & part.elements for m in self.mappings for _, lent in m.lent()
        )
