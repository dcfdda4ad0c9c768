"""Calls are checked, their operands come up, and their written elements are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from helpers.model.calls import BLAS, LARGEST, OVERWRITES, READS, Compute, Operand, Rules
from helpers.model.contents import Contents
from helpers.model.outcomes import Outcome, Refused, Unspecified
from helpers.model.parts import overlap
from helpers.model.present import Mapping, Pointer


class Calling(Contents):
    """The steps that use pointers, one by one."""

    def call(self, operands: Sequence[tuple[Operand, int]], compute: Compute, rules: Rules = BLAS) -> Outcome:
        """Call a routine: all checks precede all moves and marks."""
        pointers = self._check(operands, rules)
        values = []
        for (operand, access), pointer in zip(operands, pointers, strict=True):
            value = pointer.mapping.contents[operand.part.index]
            if not pointer.group.valid and pointer.group.goes_up:
                host = self.hosts[operand.part.base][operand.part.index]
                value = np.where(pointer.group.wrote(operand.part), value, host)
            if access & READS and np.isnan(value).any():
                raise Unspecified  # the contents of a Scratch that is not written yet
            values.append(value)
        written, result = compute(*values)
        sizes = [*written, np.array(result)] if isinstance(result, float) else written
        if any(np.abs(value).max() > LARGEST[operands[0][0].part.dtype] for value in sizes):
            raise Unspecified
        new = iter(written)
        takes = [p.mapping.takes_part(p.group, o, a) for (o, a), p in zip(operands, pointers, strict=True)]
        for (operand, access), pointer, part in zip(operands, pointers, takes, strict=True):
            covers = access == OVERWRITES and operand.part.elements == pointer.group.elements
            there = rules.stays and not (pointer.out or pointer.group.dirty or self._elsewhere(pointer.mapping))
            already = pointer.group.parts and not needed(operand, rules) & ~pointer.group.parts
            if not (covers or there or part or already):
                self._bring_up(pointer)
            if access & OVERWRITES:
                pointer.mapping.contents[operand.part.index] = next(new)
                self._mark_written(pointer, operand.region, covers)
                if part and not covers:
                    pointer.group.note_part(operand.part)
        return Outcome(value=result)

    def _check(self, operands: Sequence[tuple[Operand, int]], rules: Rules) -> list[Pointer]:
        """Return the pointers of the operands, after checks of their uses."""
        dtypes = {operand.part.dtype for operand, _ in operands}
        wrong_dtype = rules.faults([operand for operand, _ in operands])
        if any(operand.region not in self.regions for operand, _ in operands):
            raise Refused("StalePointerError", *wrong_dtype)
        pointers = [self.regions[operand.region].pointers[operand.argument] for operand, _ in operands]
        captured = self.capturing == max(operand.region for operand, _ in operands)
        errors = wrong_dtype | {
            error
            for (o, access), p in zip(operands, pointers, strict=True)
            for error in self._faults(o, access, p, rules, captured)
        }
        if len({pointer.mapping.device for pointer in pointers}) > 1:
            errors.add("WrongDeviceError")
        for i, j in combinations(range(len(operands)), 2):
            if pointers[i].mapping is pointers[j].mapping and (operands[i][1] | operands[j][1]) & OVERWRITES:
                first, other = operands[i][0].part, operands[j][0].part
                if {i, j} <= rules.in_place and np.array_equal(first.index, other.index):
                    if first.index.size == 1 or dtypes & {"complex64", "complex128"}:
                        raise Unspecified  # their increments may differ, which some libraries' axpy do not support
                    continue
                if pointers[i].mapping.packed and not first.elements & other.elements:
                    raise Unspecified  # their layouts on the device differ
                if overlap(first, other):
                    errors.add("AliasError")
        if errors:
            raise Refused(*errors)
        return pointers

    def _faults(self, operand: Operand, access: int, pointer: Pointer, rules: Rules, captured: bool) -> Iterator[str]:
        group = pointer.group
        covers = access == OVERWRITES and operand.part.elements == group.elements
        if access & OVERWRITES and not pointer.writes:
            yield "DirectionError"
        if captured and group in self.captured:
            covers = True
        if group.invalid and not covers:
            yield "InvalidDataError"
        own = access == OVERWRITES and operand.part.elements == pointer.part.elements and group.goes_up
        unwritten = pointer.out and not (covers or own) and not group.written and not (group.escaped and group.valid)
        if unwritten or (group.parts and not covers):
            captured = captured or self.capturing in pointer.mapping.holders
            takes = not captured and pointer.mapping.takes_part(group, operand, access)
            if group.goes_up:
                takes = not unwritten
            if not takes and (captured or not group.parts or needed(operand, rules) & ~group.parts):
                yield "DirectionError"
        for elsewhere in self._elsewhere(pointer.mapping):
            if access & OVERWRITES or elsewhere.newer:
                yield "DirectionError"

    def _elsewhere(self, mapping: Mapping) -> list[Mapping]:
        """Return the mappings of other devices that share an element with this one."""
        return [
            other
            for other in self.mappings
            if other.device != mapping.device and other.base == mapping.base and not mapping.scratch
            if any(other.shares(lent.part) for _, lent in mapping.lent())
        ]

    def _bring_up(self, pointer: Pointer) -> None:
        group, mapping = pointer.group, pointer.mapping
        if not group.valid and (group.goes_up or not group.parts):
            for lent in group.lent:
                index = lent.part.index[~group.wrote(lent.part)]
                mapping.contents[index] = self.hosts[mapping.base][index]
            group.valid, group.parts = True, 0

    def _mark_written(self, pointer: Pointer, region: int, covers: bool) -> None:
        group = pointer.group
        if covers:
            group.valid, group.invalid, group.parts = True, False, 0
            group.writers.clear()
        group.written = group.dirty = True
        group.writers.add(region)
        group.ever_wrote.add(region)

    def undefine(self, operands: Sequence[tuple[Operand, int]]) -> None:
        """A call failed on the device: its outputs count as undefined."""
        for operand, access in operands:
            if access & OVERWRITES:
                pointer = self.regions[operand.region].pointers[operand.argument]
                self._mark_written(pointer, operand.region, False)
                pointer.group.invalid = True

    def address(self, operand: Operand) -> Outcome:
        """Return an address: readable bytes are brought up, and an unwritten Out becomes zeros."""
        if operand.region not in self.regions:
            raise Refused("StalePointerError")
        pointer = self.regions[operand.region].pointers[operand.argument]
        group, mapping = pointer.group, pointer.mapping
        if mapping.scratch:
            raise Unspecified
        errors = {"DirectionError" for other in self._elsewhere(mapping) if pointer.writes or other.newer}
        if group.invalid:
            errors.add("InvalidDataError")
        if group.parts and not group.goes_up:
            errors.add("DirectionError")
        if errors:
            raise Refused(*errors)
        if pointer.out and not group.goes_up and not group.valid:
            if not pointer.writes:
                raise Refused("DirectionError")
            for lent in group.lent:
                mapping.contents[lent.part.index] = 0.0
            self._mark_written(pointer, operand.region, True)
        if group.invalid:
            raise Refused("InvalidDataError")
        self._bring_up(pointer)
        group.escaped |= pointer.writes
        mapping.address_taken = True
        return Outcome()


def needed(operand: Operand, rules: Rules) -> int:
    """Return the elements that a call needs of an operand: an irregular slice includes the elements between its own."""
    part = operand.part
    return part.elements if part.lines or rules.by_rows else (1 << part.high) - (1 << part.low)
