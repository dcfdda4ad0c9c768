"""Chains of calls are captured, and replayed or looped as one call of all their groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Self

import numpy as np

from helpers.model.calling import Calling
from helpers.model.calls import (
    CONTENTS,
    LARGEST,
    OVERWRITES,
    READS,
    READS_AND_WRITES,
    TO_HOST,
    Array,
    Call,
    Chain,
    Operand,
)
from helpers.model.contents import Contents
from helpers.model.outcomes import Each, Outcome, Refused, Unspecified
from helpers.model.present import Group, Lent, Mapping, Pointer


class Replaying(Calling):
    """The steps of graphs."""

    def capture(
        self,
        name: str,
        number: int,
        names: dict[str, Operand],
        values: Sequence[float],
        calls: Sequence[Call],
    ) -> Outcome:
        """Capture calls in a graph: they are checked, and the contents that they read go up, but they do not run.

        values: the values of the numbers, whose pointers become the last pointers of the region.
        """
        world = self.copy()
        world._make_numbers(number, names, values)
        captured: list[Call] = []
        errors = [world._capture(number, call, captured) for call in calls]
        world.captured, world.capturing = [], None
        world.chains[name] = Chain(number, names, tuple(captured))
        self._become(world)
        return Outcome(value=Each(tuple(errors)))

    def capture_in_vain(self, name: str, number: int, names: dict[str, Operand], values: Sequence[float]) -> None:
        """Make a graph without calls, as after a block that raised an exception."""
        self._make_numbers(number, names, values)
        self.chains[name] = Chain(number, names, None)

    def _make_numbers(self, number: int, names: dict[str, Operand], values: Sequence[float]) -> None:
        region = self.regions[number]
        for operand, value in zip(
            [x for x in names.values() if x.part.base.startswith("number ")], values, strict=True
        ):
            group = Group([Lent(operand.part, True, True)], operand.part.elements, valid=True, written=True)
            contents = np.full(1, value, np.result_type(operand.part.dtype, np.float64))
            mapping = Mapping(region.device, operand.part.base, 0, 1, False, [group], contents, True, {number})
            self.mappings.append(mapping)
            region.pointers.append(Pointer(operand.part, mapping, group, True, False, False))

    def _capture(self, number: int, call: Call, captured: list[Call]) -> frozenset[str]:
        """Capture one call, or make it now if it does not involve the region; return the errors that it may raise."""
        self.capturing = number
        try:
            pointers = self._check(call.operands, call.rules)
        except Refused as refused:
            return refused.errors | {"CaptureError"}
        if max(operand.region for operand, _ in call.operands) != number:
            if any(number in pointer.mapping.holders for pointer in pointers):
                return frozenset({"CaptureError"})
            self.call(call.operands, call.compute, call.rules)
            return frozenset()
        if call.to_host:
            return frozenset({"CaptureError"})
        for (operand, access), pointer in zip(call.operands, pointers, strict=True):
            if _covers(operand, access, pointer):
                self.captured.append(pointer.group)
            elif pointer.group not in self.captured:
                self._bring_up(pointer)
        captured.append(call)
        return frozenset()

    def replay(self, name: str, contents: Sequence[tuple[str, Operand | Array]] = ()) -> Outcome:
        """Write contents, and run the captured calls; if anything is refused, nothing is written."""
        world = self.copy()
        chain = world.chains[name]
        errors = world._stale(chain)
        for key, source in contents:
            if key not in chain.names:
                errors |= {"ArgumentError"}
                continue
            target, part = chain.names[key], source.part if isinstance(source, Operand) else None
            if target.region not in world.regions:
                errors |= {"StaleGraphError"}
            elif not world.regions[target.region].pointers[target.argument].writes:
                errors |= {"DirectionError"}
            if (part.index.shape if part else source.shape) != target.part.index.shape:  # type: ignore[union-attr]
                errors |= {"ArgumentError"}
            if (part.dtype if part else source.dtype.name) != target.part.dtype:  # type: ignore[union-attr]
                errors |= {"DTypeError"}
        if errors:
            raise Refused(*errors)
        if any(chain.names[a].part.meets(chain.names[b].part) for (a, _), (b, _) in combinations(contents, 2)):
            raise Unspecified
        for key, source in contents:
            same = isinstance(source, Operand) and source.is_very(chain.names[key])  # the contents do not change
            sources = [(source, READS)] if isinstance(source, Operand) and not same else []
            shares = bool(sources) and source.part.meets(chain.names[key].part)  # type: ignore[union-attr]
            if shares and len(contents) > 1:
                raise Unspecified  # it may be copied in between
            try:
                target = (chain.names[key], access_of_fill(world, chain.names[key]))
                for operands in ([target], sources) if shares else ([target, *sources],):
                    world._check(operands, CONTENTS)
            except Refused as refused:
                if same:
                    raise Unspecified from None
                errors |= refused.errors
        if errors:  # an error of the captured calls may come first
            raise Refused(*errors, "DirectionError")
        for write in world.writing(chain, contents):
            write(world)
        try:
            world._run(chain)
        except Refused as refused:
            if contents and "InvalidDataError" in refused.errors:
                raise Unspecified from None  # contents may be written before the refusal
            raise
        self._become(world)
        return Outcome()

    def _stale(self, chain: Chain) -> set[str]:
        if chain.calls is None or chain.region not in self.regions:
            return {"StaleGraphError"}
        regions = {operand.region for call in chain.calls for operand, _ in call.operands}
        return {"StaleGraphError"} if regions - set(self.regions) else set()

    def writing(
        self, chain: Chain, contents: Sequence[tuple[str, Operand | Array]]
    ) -> list[Callable[[Self], tuple[tuple[Operand, int], ...]]]:
        """Return functions that write the contents in order; pointers come first, with values before the replay."""
        pairs = [(chain.names[key], source) for key, source in contents]
        sources = [(t, s) for t, s in pairs if isinstance(s, Operand) and not t.is_very(s)]
        if len(pairs) > 1 and any(s.part.meets(t.part) for t, s in sources):
            raise Unspecified
        read = [self.call([(s, READS)], lambda x: ((), x.copy()), CONTENTS).value for _, s in sources]

        def writer(target: Operand, source: Operand | None, value: object) -> Callable[[Self], Any]:
            apart = source and not source.part.meets(target.part)  # otherwise the values come from a copy
            operands = ((target, access_of_fill(self, target)), *([(source, READS)] if source and apart else []))

            def write(world: Self) -> tuple[tuple[Operand, int], ...]:
                world.call(operands, lambda *_: ((np.asarray(value),), None), CONTENTS)
                return operands

            return write

        return [writer(t, s, v) for (t, s), v in zip(sources, read, strict=True)] + [
            writer(t, None, s) for t, s in pairs if not isinstance(s, Operand)
        ]

    def _run(self, chain: Chain) -> None:
        """Run captured calls as one call of all their groups."""
        first: dict[Group, bool] = {}  # {group: whether it is overwritten before it is read}
        writers: dict[Group, dict[int, Pointer]] = {}
        for call in chain.calls or ():
            for operand, access in call.operands:
                pointer = self.regions[operand.region].pointers[operand.argument]
                first.setdefault(pointer.group, _covers(operand, access, pointer))
                pointers = writers.setdefault(pointer.group, {})
                if access & OVERWRITES:
                    pointers.setdefault(operand.region, pointer)
        for call in chain.calls or ():
            for operand, _ in call.operands:
                pointer = self.regions[operand.region].pointers[operand.argument]
                group, elsewhere = pointer.group, self._elsewhere(pointer.mapping)
                if group.invalid and not first[group]:
                    raise Refused("InvalidDataError")
                if group.parts and not group.goes_up and not first[group]:
                    raise Refused("CaptureError")
                if any(writers[group] or other.newer for other in elsewhere):
                    raise Refused("DirectionError")
                if not first[group]:
                    self._bring_up(pointer)
        for call in chain.calls or ():
            places = [(self.regions[o.region].pointers[o.argument], o.part, a) for o, a in call.operands]
            values = [pointer.mapping.contents[part.index] for pointer, part, _ in places]
            if any(a & READS and np.isnan(value).any() for value, (_, _, a) in zip(values, places, strict=True)):
                raise Unspecified
            written, _ = call.compute(*values)
            if any(np.abs(value).max() > LARGEST[call.operands[0][0].part.dtype] for value in written):
                raise Unspecified
            new = iter(written)
            for pointer, part, access in places:
                if access & OVERWRITES:
                    pointer.mapping.contents[part.index] = next(new)
        for group, regions in writers.items():
            covers = first[group]
            for number, pointer in regions.items():
                self._mark_written(pointer, number, covers)
                covers = False

    def loop(self, number: int, calls: Sequence[Call], until: Operand, at_most: int) -> Outcome:
        """Capture calls, and run them until they have made an element other than 0."""
        world, captured = self.copy(), list[Call]()
        if not at_most:
            return Outcome(value=0)
        for call in calls:
            errors = world._capture(number, call, captured)
            if errors:
                world.captured, world.capturing = [], None
                self._become(world)
                raise Refused(*errors)
        world.captured, world.capturing = [], None
        chain, count = Chain(number, {}, tuple(captured)), 0
        if world._stale(chain):
            raise Unspecified
        try:
            while count < at_most:
                world._run(chain)
                count += 1
                if np.any(world.call([(until, READS)], lambda x: ((), x), TO_HOST).value != 0):
                    break
        except Refused:
            raise Unspecified from None
        self._become(world)
        return Outcome(value=count)

    def _become(self, world: Self) -> None:
        thread = self.thread
        self.__dict__.update(world.__dict__)
        self.thread = thread


def _covers(operand: Operand, access: int, pointer: Pointer) -> bool:
    """Return whether a call overwrites all of the operand's group."""
    return access == OVERWRITES and operand.part.elements == pointer.group.elements


def access_of_fill(world: Contents, x: Operand) -> int:
    """Return the access of a call that writes every element of a pointer.

    An irregular slice includes all elements between its own.
    """
    if x.part.lines is None and x.region in world.regions:
        whole = world.regions[x.region].pointers[x.argument].part
        return OVERWRITES if whole.elements == x.part.elements else READS_AND_WRITES
    return OVERWRITES
