"""The documented rules of regions as plain NumPy: results and errors of each step, and the host arrays after it.

A model of docs/, csrc/DESIGN.md and the docstrings: it has no streams, handles or copies. A `World` holds the contents
of every host array and what is present on each device. Its methods are the steps that a program can take. Each returns
an `Outcome`; or it raises `Refused` with the exceptions of which one must come, and then nothing has changed; or it
raises `Unspecified` before it changes anything, where the documents promise nothing: a test must not go there.

Elements are numbered in the order of the memory of their base array. A set of them is an int with a bit for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Direction = Literal["by use", "In", "Out", "InOut", "Scratch"]
End = Literal["well", "discard", "keep"]

READS, OVERWRITES, READS_AND_WRITES = 1, 2, 3  # how a call uses an operand
# Sums and products of whole numbers up to here are exact in any order.
LARGEST = {"float32": 2.0**20, "complex64": 2.0**20, "int32": 2.0**31 - 1, "float64": 2.0**48, "complex128": 2.0**48}


class Refused(Exception):
    """The step must raise one of these exceptions, named by their classes."""

    def __init__(self, *errors: str) -> None:
        super().__init__(*errors)
        self.errors = frozenset(errors)


class Unspecified(Exception):
    """The documents promise no outcome of this step."""


@dataclass(frozen=True)
class Outcome:
    """The outcome that a step must have."""

    errors: frozenset[str] = frozenset()  # one of these is raised; none is if it is empty
    value: object = None
    warnings: tuple[str, ...] = ()  # these come, in any order


# -- parts of arrays -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """`count` runs of `width` elements, `pitch` apart: an array that a device holds in the layout of the host."""

    width: int
    pitch: int
    count: int


@dataclass(frozen=True, eq=False)
class Part:
    """Some elements of a base array, in the shape of a view of it."""

    base: str
    index: NDArray[np.intp]
    elements: int
    low: int  # from the first element
    high: int  # to before the end
    lines: Lines | None  # None: they are none, the part is irregular
    packed: bool  # on its way, when it is lent alone
    dtype: str = "float64"
    read_only: bool = False  # to the program, also while nothing is lent

    def meets(self, other: Part) -> bool:
        """Tell whether their hulls overlap."""
        return self.base == other.base and self.low < other.high and other.low < self.high


@cache
def whole(
    base: str,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
    dtype: str = "float64",
    read_only: bool = False,
) -> Part:
    """Return all of a base array."""
    return _part(base, np.arange(np.prod(shape)).reshape(shape, order=order), dtype, read_only)


@cache
def number(base: str, dtype: str) -> Part:
    """Return the one element of a number that a graph has by name."""
    return _part(base, np.zeros((), np.intp), dtype, False)


@cache
def view(part: Part, key: str) -> Part:
    """Return a view of a part, written as in Python: "[1:, ::2].T"; the same one each time.

    Raises Unspecified if it has no elements, or is not a view.
    """
    if not key:
        return part
    try:
        return _part(part.base, eval(f"index{key}", {"index": part.index}), part.dtype, part.read_only)
    except IndexError:
        raise Unspecified from None


_parts: dict[tuple[object, ...], Part] = {}  # so that views that are the same are one Part


def _part(base: str, index: NDArray[np.intp], dtype: str, read_only: bool) -> Part:
    if not index.size:
        raise Unspecified
    key = base, index.shape, index.tobytes() if index.size < 100 else (index.flat[0], index.strides)
    if key not in _parts:
        _parts[key] = _new_part(base, index, dtype, read_only)
    return _parts[key]


def _new_part(base: str, index: NDArray[np.intp], dtype: str, read_only: bool) -> Part:
    low, high = int(index.min()), int(index.max()) + 1
    bits = np.zeros(high, bool)
    bits[index] = True
    elements = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
    steps = [int(index.take(1, axis).flat[0] - index.flat[0]) if n > 1 else 1 for axis, n in enumerate(index.shape)]
    lines = _lines(index.shape, steps)
    named = lines is not None and (lines.count == 1 or (index.ndim > 1 and 1 in steps))
    return Part(base, index, elements, low, high, lines, not named or min(steps, default=1) < 0, dtype, read_only)


def _lines(shape: Sequence[int], steps: Sequence[int]) -> Lines | None:
    width, pitch, count = 1, 1, 1
    for step, extent in sorted((abs(step), extent) for step, extent in zip(steps, shape, strict=True) if extent > 1):
        if count == 1 and step == width:
            width *= extent
        elif count == 1:
            pitch, count = step, extent
        elif step == pitch * count:
            count *= extent
        else:
            return None
    return Lines(width, pitch, count)


def overlap(part: Part, other: Part) -> bool:
    """Tell whether two parts share an element.

    Raises Unspecified for interleaved parts of different pitch, which the core may take to be overlapping.
    """
    if not part.meets(other):
        return False
    if part.elements & other.elements:
        return True
    if part.lines is None or other.lines is None:
        raise Unspecified
    if part.lines.count > 1 and other.lines.count > 1 and part.lines.pitch != other.lines.pitch:
        raise Unspecified
    return False


def contains(outer: Part, inner: Part) -> bool:
    return outer.base == inner.base and not inner.elements & ~outer.elements


# -- the present table -------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Lent:
    """A part that was lent, of a mapping: its rights are those of all arguments that were exactly this part."""

    part: Part
    writes: bool
    goes_up: bool


@dataclass(eq=False)
class Group:
    """Lent parts of a mapping that overlap; they have one state."""

    lent: list[Lent]
    elements: int = 0
    valid: bool = False  # the device's contents are at least as new as the host's
    dirty: bool = False  # the device wrote, and the host does not have it
    written: bool = False  # a call wrote it in this mapping's life
    invalid: bool = False  # a failure left it undefined
    escaped: bool = False  # an address by which it may be written was given away
    parts: int = 0  # elements that calls wrote, of an Out that is not valid as others were not
    writers: set[int] = field(default_factory=set)  # open regions whose writes it holds and the host does not
    ever_wrote: set[int] = field(default_factory=set)  # open regions that wrote it at all, or were handed writes

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

    def takes_parts(self) -> bool:
        """Tell whether calls may write it by parts: nothing goes up, and one of its arrays has all of it."""
        if self.valid or self.invalid or self.escaped or self.goes_up or (self.written and not self.parts):
            return False
        return any(lent.writes for lent in self.lent if lent.part.elements == self.elements)


@dataclass(eq=False)
class Mapping:
    """An interval of a base array that is present on a device; or device memory alone, of Scratch."""

    device: str
    base: str
    low: int
    high: int
    packed: bool
    groups: list[Group]
    contents: Array  # by position, as the base array's; NaN where it is unknown
    scratch: bool = False
    holders: set[int] = field(default_factory=set)  # regions that are open

    def takes_part(self, group: Group, operand: Operand, access: int) -> bool:
        """Tell whether a call writes a part of a group that takes parts."""
        regular = operand.part.lines is not None and not (self.packed or self.scratch)
        return access == OVERWRITES and regular and group.takes_parts()

    def meets(self, part: Part) -> bool:
        return not self.scratch and self.base == part.base and self.low < part.high and part.low < self.high

    def shares(self, part: Part) -> bool:
        """Tell whether an array of it and a part share an element."""
        return self.meets(part) and any(overlap(lent.part, part) for _, lent in self.lent())

    def holds(self, part: Part) -> bool:
        return not self.scratch and self.base == part.base and self.low <= part.low and part.high <= self.high

    @property
    def dirty(self) -> bool:
        return any(group.dirty for group in self.groups)

    @property
    def newer(self) -> bool:
        """The device has, or may have at any time, newer bytes than the host and other devices."""
        return self.dirty or any(group.escaped for group in self.groups)

    def state(self) -> tuple[object, ...]:
        groups = [
            (g.valid, g.dirty, g.written, g.invalid, g.escaped, g.parts, frozenset(g.writers), frozenset(g.ever_wrote))
            for g in self.groups
        ]
        lent = [(lent.part, lent.writes, lent.goes_up) for _, lent in self.lent()]
        return self.device, self.contents.tobytes(), frozenset(self.holders), *groups, *lent

    def lent(self) -> Iterator[tuple[Group, Lent]]:
        return ((group, lent) for group in self.groups for lent in group.lent)

    def names(self, lent: Part, part: Part) -> bool:
        """Tell whether the lent arrays surely have names for the bytes of a part; without, an update may be refused."""
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
    """The pointer that a region gives for one argument."""

    part: Part
    mapping: Mapping
    group: Group
    writes: bool
    out: bool  # readable only once it was written
    owed: bool  # lent as Out: a call should write it


@dataclass(eq=False)
class Region:
    device: str
    thread: int
    pointers: list[Pointer]
    lent_whole: frozenset[str]  # base arrays that are arguments themselves, and so read-only

    def lends(self, group: Group) -> bool:
        return any(pointer.group is group for pointer in self.pointers)

    def state(self) -> tuple[object, ...]:
        return self.device, self.thread, *((p.part, p.writes, p.out) for p in self.pointers)


@dataclass(frozen=True)
class Argument:
    """An argument of a region; the part of a Scratch has a base of its own."""

    direction: Direction
    part: Part


@dataclass(frozen=True)
class Operand:
    """A pointer of a region, the part that it was sliced to, and the slice as Python."""

    region: int
    argument: int
    part: Part
    text: str

    def is_very(self, other: Operand) -> bool:
        """Tell whether the other one is the same object, not a slice of its own."""
        return self.text == other.text and (self.text.count("[") == 1 or self.text.startswith("g"))


Compute = Callable[..., tuple[tuple[Array, ...], object]]  # operands' values -> (those of written ones, result)


FLOATS = frozenset({"float32", "float64", "complex64", "complex128"})


@dataclass(frozen=True)
class Rules:
    """Rules of a routine beyond its operands."""

    dtypes: frozenset[str] = FLOATS  # of all operands, which have the same
    in_place: frozenset[int] = frozenset()  # operands that may be the very same vector
    may_be_real: frozenset[int] = frozenset()  # operands that may be real where the others are complex
    stays: bool = False  # contents that are on the host only are read there
    by_rows: bool = False  # rows of an irregular slice are read one by one; otherwise with what is between

    def faults(self, operands: Sequence[Operand]) -> set[str]:
        """Return the errors of the operands' dtypes."""
        dtypes = {operand.part.dtype for i, operand in enumerate(operands) if i not in self.may_be_real}
        others = {operands[i].part.dtype for i in self.may_be_real if i < len(operands)}
        real = {"complex64": "float32", "complex128": "float64"}
        if len(dtypes) > 1 or dtypes - self.dtypes:
            return {"DTypeError"}
        return {"DTypeError"} if others - dtypes - {real.get(dtype, "") for dtype in dtypes} else set()


BLAS = Rules()
REAL = Rules(dtypes=frozenset({"float32", "float64"}))
LEVEL_1 = Rules(in_place=frozenset({0, 1}))
SCAL = Rules(may_be_real=frozenset({1}))
CONTENTS = Rules(dtypes=FLOATS | {"int32"})
HELD = Rules(by_rows=True)
TO_HOST = Rules(dtypes=FLOATS | {"int32"}, stays=True)


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a routine, which a graph may capture."""

    operands: tuple[tuple[Operand, int], ...]
    compute: Compute
    rules: Rules = BLAS
    to_host: bool = False  # its result goes to the host


@dataclass(frozen=True, eq=False)
class Chain:
    """A graph of captured calls of a region; calls: None while it has none to replay."""

    region: int
    names: dict[str, Operand]
    calls: tuple[Call, ...] | None


@dataclass(frozen=True)
class Each:
    """The errors of some calls, in order: of each, one of these came, or none."""

    errors: tuple[frozenset[str], ...]

    def __eq__(self, came: object) -> bool:
        return isinstance(came, list) and all(
            error in errors if errors else error is None for error, errors in zip(came, self.errors, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


class World:
    """Host arrays, and the groups of them that are present on each device."""

    def __init__(self) -> None:
        self.bases: dict[str, Part] = {}
        self.hosts: dict[str, Array] = {}  # in the order of their memory
        self.mappings: list[Mapping] = []
        self.regions: dict[int, Region] = {}  # that are open; of one thread, younger ones have higher numbers
        self.chains: dict[str, Chain] = {}
        self.captured: list[Group] = []  # while calls are captured: those that one of them overwrites
        self.capturing: int | None = None  # the region whose calls are captured
        self.thread = 0  # that makes the next step

    def make(self, base: Part, contents: Array) -> Outcome:
        """Make a host array, or another one of that name if nothing of it is lent."""
        if any(mapping.base == base.base for mapping in self.mappings):
            raise Unspecified
        self.bases[base.base] = base
        self.hosts[base.base] = contents.astype(np.result_type(base.dtype, np.float64))
        return Outcome()

    def copy(self) -> World:
        world = World()
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
        """Tell whether some of it is lent anywhere."""
        return any(
            m.base == part.base and lent.part.elements & part.elements for m in self.mappings for _, lent in m.lent()
        )

    # -- entering ----------------------------------------------------------------------------------------------------

    def enter(self, number: int, device: str, arguments: Sequence[Argument]) -> Outcome:
        """Lend arrays: what is present is shared; of the others, arguments whose hulls overlap are one new mapping."""
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
        return Outcome(warnings=("PerformanceWarning",) * sum(pointer.mapping.packed for pointer in ordered))

    def _present(self, device: str, argument: Argument) -> Mapping | None:
        """Return the mapping that has an argument already."""
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
                raise Unspecified  # the same array twice, but irregular
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

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, operands: Sequence[tuple[Operand, int]], compute: Compute, rules: Rules = BLAS) -> Outcome:
        """Call a routine: nothing moves and nothing is marked before everything is checked."""
        pointers = self._check(operands, rules)
        values = []
        for (operand, access), pointer in zip(operands, pointers, strict=True):
            source = pointer.mapping.contents
            if not pointer.group.valid and not pointer.group.parts and pointer.group.goes_up:
                source = self.hosts[operand.part.base]
            value = source[operand.part.index]
            if access & READS and np.isnan(value).any():
                raise Unspecified  # of a Scratch that nothing wrote
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
            if not covers and not there and not part:
                self._bring_up(pointer)
            if access & OVERWRITES:
                pointer.mapping.contents[operand.part.index] = next(new)
                self._mark_written(pointer, operand.region, covers)
                if part and not covers:
                    pointer.group.note_part(operand.part)
        return Outcome(value=result)

    def _check(self, operands: Sequence[tuple[Operand, int]], rules: Rules) -> list[Pointer]:
        """Return the pointers of operands that may be used so."""
        dtypes = {operand.part.dtype for operand, _ in operands}
        wrong_dtype = rules.faults([operand for operand, _ in operands])
        if any(operand.region not in self.regions for operand, _ in operands):
            raise Refused("StalePointerError", *wrong_dtype)
        pointers = [self.regions[operand.region].pointers[operand.argument] for operand, _ in operands]
        errors = wrong_dtype | {
            error
            for (o, access), p in zip(operands, pointers, strict=True)
            for error in self._faults(o, access, p, rules)
        }
        if len({pointer.mapping.device for pointer in pointers}) > 1:
            errors.add("WrongDeviceError")
        for i, j in combinations(range(len(operands)), 2):
            if pointers[i].mapping is pointers[j].mapping and (operands[i][1] | operands[j][1]) & OVERWRITES:
                first, other = operands[i][0].part, operands[j][0].part
                if {i, j} <= rules.in_place and np.array_equal(first.index, other.index):
                    if first.index.size == 1 or dtypes & {"complex64", "complex128"}:
                        raise Unspecified  # their increments may differ; some libraries' axpy can't
                    continue
                if pointers[i].mapping.packed and not first.elements & other.elements:
                    raise Unspecified  # their layout on the device differs
                if overlap(first, other):
                    errors.add("AliasError")
        if errors:
            raise Refused(*errors)
        return pointers

    def _faults(self, operand: Operand, access: int, pointer: Pointer, rules: Rules) -> Iterator[str]:
        group = pointer.group
        covers = access == OVERWRITES and operand.part.elements == group.elements
        if access & OVERWRITES and not pointer.writes:
            yield "DirectionError"
        if group in self.captured:
            covers = True
        if group.invalid and not covers:
            yield "InvalidDataError"
        own = access == OVERWRITES and operand.part.elements == pointer.part.elements and group.goes_up
        unwritten = pointer.out and not (covers or own) and not group.written and not (group.escaped and group.valid)
        if unwritten or (group.parts and not covers):
            captured = self.capturing in pointer.mapping.holders
            part = operand.part
            needed = part.elements if part.lines or rules.by_rows else (1 << part.high) - (1 << part.low)
            takes = not captured and pointer.mapping.takes_part(group, operand, access)
            if not takes and (captured or not group.parts or needed & ~group.parts):
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
        if not group.valid and not group.parts:
            for lent in group.lent:
                mapping.contents[lent.part.index] = self.hosts[mapping.base][lent.part.index]
            group.valid = True

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
        """Give an address away: readable bytes are brought up, and an Out that nothing wrote becomes zeros."""
        if operand.region not in self.regions:
            raise Refused("StalePointerError")
        pointer = self.regions[operand.region].pointers[operand.argument]
        group, mapping = pointer.group, pointer.mapping
        if mapping.scratch:
            raise Unspecified
        errors = {"DirectionError" for other in self._elsewhere(mapping) if pointer.writes or other.newer}
        if group.invalid:
            errors.add("InvalidDataError")
        if group.parts:
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
        return Outcome()

    # -- graphs ------------------------------------------------------------------------------------------------------

    def capture(
        self,
        name: str,
        number: int,
        names: dict[str, Operand],
        values: Sequence[float],
        calls: Sequence[Call],
    ) -> Outcome:
        """Capture calls in a graph: they are checked, what they read is brought up, and nothing of them runs.

        values: of the numbers, whose pointers become the last ones of the region.
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
        """Make a graph that has no calls, as after a block that raised."""
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
        """Capture one call, or make it now if it has nothing to do with the region; return the errors it may raise."""
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
            same = isinstance(source, Operand) and source.is_very(chain.names[key])  # it stays as it is
            sources = [(source, READS)] if isinstance(source, Operand) and not same else []
            if sources and len(contents) > 1 and source.part.meets(chain.names[key].part):  # type: ignore[union-attr]
                raise Unspecified  # a copy of it may come between
            try:
                world._check([(chain.names[key], access_of_fill(world, chain.names[key])), *sources], CONTENTS)
            except Refused as refused:
                if same:
                    raise Unspecified from None
                errors |= refused.errors
        if errors:  # of the captured calls one may come first
            raise Refused(*errors, "DirectionError")
        for write in world.writing(chain, contents):
            write(world)
        try:
            world._run(chain)
        except Refused as refused:
            if contents and "InvalidDataError" in refused.errors:
                raise Unspecified from None  # contents may be written before that is found out
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
    ) -> list[Callable[[World], tuple[tuple[Operand, int], ...]]]:
        """Return what writes the contents: one after the other, those of pointers first, as they were before."""
        pairs = [(chain.names[key], source) for key, source in contents]
        sources = [(t, s) for t, s in pairs if isinstance(s, Operand) and not t.is_very(s)]
        if any(s.part.meets(t.part) for t, s in sources):
            raise Unspecified
        read = [self.call([(s, READS)], lambda x: ((), x.copy()), CONTENTS).value for _, s in sources]

        def writer(target: Operand, source: Operand | None, value: object) -> Callable[[World], Any]:
            operands = ((target, access_of_fill(self, target)), *([(source, READS)] if source else []))

            def write(world: World) -> tuple[tuple[Operand, int], ...]:
                world.call(operands, lambda *_: ((np.asarray(value),), None), CONTENTS)
                return operands

            return write

        return [writer(t, s, v) for (t, s), v in zip(sources, read, strict=True)] + [
            writer(t, None, s) for t, s in pairs if not isinstance(s, Operand)
        ]

    def _run(self, chain: Chain) -> None:
        """Run captured calls as one call of all their groups."""
        first: dict[Group, bool] = {}  # whether it is overwritten before it is read
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
                if group.parts and not first[group]:
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

    def _become(self, world: World) -> None:
        thread = self.thread
        self.__dict__.update(world.__dict__)
        self.thread = thread

    # -- the host, while arrays are lent -----------------------------------------------------------------------------

    def update(self, part: Part, device: str | None = None) -> list[tuple[World, Outcome]]:
        """Bring exactly the bytes that devices wrote of an array to the host; regions do not undo that later.

        Returns what may come of it: what can't be named in what is present is brought too, or nothing is.
        """
        news = self._news(part, device)
        if any(group.parts and group.elements & part.elements & ~group.parts for _, group, _ in news):
            raise Refused("DirectionError", "PresentError", "InvalidDataError")
        refused = [] if all(m.names(lent.part, part) for m, _, lent in news) else [self._refused()]
        if not any(group.invalid and group.elements & part.elements for _, group, _ in news):
            self._bring_down(part, news)
            return [(self, Outcome()), *refused]
        error = Outcome(errors=frozenset({"InvalidDataError"}))
        return [(self, error), *refused]

    def _refused(self) -> tuple[World, Outcome]:
        return self.copy(), Outcome(errors=frozenset({"PresentError"}))

    def _news(self, part: Part, device: str | None = None) -> list[tuple[Mapping, Group, Lent]]:
        """Return the lent arrays near an array, of groups that are newer on a device than on the host."""
        holders = [m for m in self.mappings if m.shares(part) and device in (None, m.device)]
        if not any(m.holds(part) for m in holders):
            raise Refused("PresentError")
        return [
            (m, group, lent)
            for m in holders
            for group, lent in m.lent()
            if group.dirty
            or (group.escaped and group.valid and lent.writes)
            or (group.invalid and not m.holders)  # its last region is being left
        ]

    def _bring_down(self, part: Part, news: Sequence[tuple[Mapping, Group, Lent]]) -> None:
        for mapping, group, lent in news:
            self._copy(part, lent, mapping.contents, self.hosts[part.base])
            if not group.elements & ~part.elements:
                group.dirty = False
                group.writers.clear()

    @staticmethod
    def _copy(part: Part, lent: Lent, source: Array, target: Array) -> None:
        """Copy the elements that a part and a lent array have in common."""
        inside = np.intersect1d(part.index, lent.part.index)
        target[inside] = source[inside]

    def write_lent(self, part: Part, inner: Part, value: float, device: str | None) -> list[tuple[World, Outcome]]:
        """`with update(x): x[...] = value`, of x or some of it: every device that has some of x gets the host's bytes.

        So do they if the block raises. device: the one that is named, from which bytes come.
        """
        if part.read_only:
            raise Unspecified
        if device and any(m.newer and m.device != device for m in self.mappings if m.meets(part)):
            raise Unspecified
        ends = self.update(part, device)
        if ends[0][1].errors:
            return ends
        held = [
            (m, lent)
            for m in self.mappings
            for g, lent in m.lent()
            if m.meets(part) and (g.valid or (g.parts and not g.invalid))
        ]
        if not all(m.names(lent.part, part) for m, lent in held):
            ends.append(self._refused())  # as it is where an address was given away
        self.hosts[part.base][inner.index] = value
        for mapping, lent in held:
            self._copy(part, lent, self.hosts[part.base], mapping.contents)
        return ends

    def write_host(self, part: Part, value: float) -> Outcome:
        """Write to an array that is not lent."""
        if self.lent(part) or self.read_only(part.base):
            raise Unspecified
        self.hosts[part.base][part.index] = value
        return Outcome()

    # -- leaving -----------------------------------------------------------------------------------------------------

    def leave(self, number: int, end: End, *, copied: bool = True) -> Outcome:
        """Leave a region: well, or by an exception with on_error "discard" or "keep". Then call forget().

        copied: False if what was to come down could not; it is lost, all of it.
        """
        region = self.regions[number]
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

    def _bring_written_down(self, mapping: Mapping, group: Group, part: Part) -> None:
        index = part.index.ravel()
        if group.parts:
            data = np.frombuffer(group.parts.to_bytes(mapping.high // 8 + 1, "little"), np.uint8)
            index = index[np.unpackbits(data, bitorder="little")[index] == 1]
        self.hosts[mapping.base][index] = mapping.contents[index]

    def _lend_up(self, group: Group) -> None:
        """Let a group go up if the oldest region that still lends it lends some of it otherwise than as Out."""
        lending = {n: [p for p in r.pointers if p.group is group] for n, r in self.regions.items() if r.lends(group)}
        if group.goes_up or not lending or all(pointer.owed for pointer in lending[min(lending)]):
            return
        group.lent = [replace(lent, goes_up=True) for lent in group.lent]
        for pointer in (pointer for pointers in lending.values() for pointer in pointers):
            pointer.out = pointer.owed

    def _hand_on(self, number: int, group: Group) -> None:
        """Hand the results of a region to the youngest older region of its thread that lends some of them."""
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
                raise Unspecified  # its results were brought down or overwritten, but others wrote since
            return "spoil"
        return "come down" if last else "stay"


def _covers(operand: Operand, access: int, pointer: Pointer) -> bool:
    """Tell whether a call overwrites all of the operand's group."""
    return access == OVERWRITES and operand.part.elements == pointer.group.elements


def access_of_fill(world: World, x: Operand) -> int:
    """Return how a call that writes every element of a pointer uses it.

    An irregular slice counts with all the elements between.
    """
    if x.part.lines is None and x.region in world.regions:
        whole = world.regions[x.region].pointers[x.argument].part
        return OVERWRITES if whole.elements == x.part.elements else READS_AND_WRITES
    return OVERWRITES


def _hull(members: Sequence[Argument]) -> Part:
    low, high = min(m.part.low for m in members), max(m.part.high for m in members)
    first = members[0].part
    return Part(first.base, np.arange(low, high), 0, low, high, None, False, first.dtype, first.read_only)
