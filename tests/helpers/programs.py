"""Programs that are run step by step in Python and in the model, and compared after each step.

If a step has another outcome than it must have, Wrong is raised; its text is the program as Python that runs in tests/.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import CodeType
from typing import Any, Final

import numpy as np

from helpers.arrays import behind, lend
from helpers.devices import works_in_place
from helpers.model import (
    BLAS,
    CONTENTS,
    HELD,
    LARGEST,
    LEVEL_1,
    OVERWRITES,
    READS,
    READS_AND_WRITES,
    REAL,
    SCAL,
    TO_HOST,
    Argument,
    Call,
    Compute,
    Direction,
    End,
    Operand,
    Outcome,
    Part,
    Refused,
    Rules,
    Unspecified,
    Within,
    World,
    access_of_fill,
    triangle,
    view,
    whole,
)
from helpers.steps import Came, at_once, attempt, workers
from offload_args import Device, testing

HEADER: Final = """\
import numpy as np
from pytest import raises
from offload_args import Device, In, InOut, Out, Scratch, blas, call, cblas, cublas, empty, offload_args, testing
from offload_args import update
from offload_args.errors import *
from helpers.steps import add, at_once, captured, held, in_flight, on_thread, raised, write_and_call
from helpers.steps import write_and_raise
"""
BASES: Final = {
    "a": whole("a", (12,)),
    "A": whole("A", (4, 6)),
    "F": whole("F", (5, 4), "F"),
    "B": whole("B", (1 << 15,)),  # its half has less than 128 KiB, and never stays on a device
    "P": whole("P", (1501,)),  # several pages; those at both ends are shared with other data
    "R": whole("R", (23, 67)),
    "L": whole("L", (1 << 21,)),  # larger than all pinned blocks, so that its copy takes a while
    "f": whole("f", (12,), dtype="float32"),
    "g": whole("g", (3, 5), "F", "float32"),
    "c": whole("c", (9,), dtype="complex128"),
    "C": whole("C", (3, 4), dtype="complex64"),
    "i": whole("i", (10,), dtype="int32"),
    "p": whole("p", (11,)),  # pinned
    "E": whole("E", (1301,)),  # pinned, too; several pages
    "q": whole("q", (7,), read_only=True),
}
REFUSALS: Final = frozenset(
    {"AliasError", "DirectionError", "InvalidDataError", "StalePointerError", "WrongDeviceError"}
)  # the sizes of operands
DRIVER_ERRORS: Final = frozenset({"BackendError", "DeviceMemoryError"})

# -- steps -------------------------------------------------------------------------------------------------------------


Ends = list[tuple[World, tuple[Outcome, ...]]]


Stage = Callable[[World, Outcome], Outcome | list[tuple[World, Outcome]]]


@dataclass(frozen=True)
class Step:
    """A step as Python, and in the model.

    stages: functions that change a world, one after the other; each gets the outcome of the stages before, and returns
    the outcome including its own, or several worlds with their outcomes. touches: the device memory that it uses, as
    (device, part, whether it writes). views: base arrays of which it takes views. regions: regions whose pointers a
    routine gets. frees: arrays that it may make writable again. leaves: the region that it leaves. fails: the possible
    outcomes if the driver refuses. call: a routine's call.
    """

    text: str
    stages: tuple[Stage, ...]
    kind: str = ""
    expression: bool = True
    touches: tuple[tuple[str, Part, bool], ...] = ()
    views: frozenset[str] = frozenset()
    regions: frozenset[int] = frozenset()
    frees: frozenset[str] = frozenset()
    leaves: int | None = None
    fails: Callable[[World], list[tuple[World, Outcome]]] | None = None
    call: Call | None = None

    def ends(self, world: World, thread: int = 0) -> Ends:
        """Return the possible outcomes on a thread: 1, 2, or 0 for the main thread.

        The step changes the world, or a copy of it if a later stage may be unspecified.
        """
        return in_any_order(world if len(self.stages) < 3 else world.copy(), (self, thread))

    def failures(self, world: World) -> list[tuple[World, Outcome]]:
        """Return the possible outcomes if the driver refuses; none for a step that is refused before."""
        try:
            return self.fails(world) if self.fails else []
        except Refused:
            return []

    def called(self) -> str:
        """Return the step as an expression."""
        return self.text if self.expression else f"exec({self.text!r}, globals())"

    def code(self) -> CodeType:
        return compiled(self.text, "eval" if self.expression else "exec")

    def races(self, other: Step) -> bool:
        """Return whether two steps are a race in the program itself.

        It is a race if one step writes memory of a device that the other step uses, or takes a view whose writability
        the other step changes, or if both leave the same region.
        """
        if self.frees & other.views or other.frees & self.views:
            return True
        if self.leaves is not None and self.leaves == other.leaves:
            return True
        return any(
            device == its_device
            and part.base == its_part.base
            and bool(part.elements & its_part.elements)
            and (writes or its_writes)
            for device, part, writes in self.touches
            for its_device, its_part, its_writes in other.touches
        )


def in_any_order(world: World, *steps: tuple[Step, int]) -> Ends:
    """Return the outcomes of steps that run at the same time on their threads; their stages may run in any order."""

    def go_on(world: World, left: list[tuple[Stage, ...]], outcomes: list[Outcome]) -> None:
        if not any(left):
            ends.append((world, tuple(outcomes)))
        for i, stages in enumerate(left):
            if stages:
                turn = world if len(steps) == 1 else world.copy()
                turn.thread = steps[i][1]
                try:
                    came = stages[0](turn, outcomes[i])
                except Refused as refused:
                    came = Outcome(refused.errors, warnings=outcomes[i].warnings)
                for end, outcome in [(turn, came)] if isinstance(came, Outcome) else came:
                    go_on(end, _with(left, i, stages[1:]), _with(outcomes, i, outcome))

    ends: Ends = []
    go_on(world, [step.stages for step, _ in steps], [Outcome()] * len(steps))
    return ends


def forget(world: World, so_far: Outcome) -> Outcome:
    """The last stage of leaving."""
    world.forget()
    return so_far


def _may_fail(outcome: Outcome) -> Outcome:
    """Add the driver's errors to the outcome of a refused step, because the driver may fail before the refusal."""
    return replace(outcome, errors=outcome.errors | DRIVER_ERRORS) if outcome.errors else outcome


def _with(items: list[Any], i: int, item: object) -> list[Any]:
    return [*items[:i], item, *items[i + 1 :]]


@lru_cache(maxsize=10_000)
def compiled(text: str, mode: str) -> CodeType:
    return compile(text, "<step>", mode)


@lru_cache(maxsize=1)
def imported() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(HEADER, names)
    return names


def product(A: Any, x: Any, largest: float) -> Any:
    """Return A @ x, if every intermediate sum is exact."""
    if np.max(np.abs(A) @ np.abs(x)) > largest:
        raise Unspecified
    return A @ x


class Wrong(AssertionError):
    """A program has a wrong outcome; the text of the error is the program."""


@dataclass(frozen=True)
class Entered:
    """An entered region, and the number of times that its host arrays had been made."""

    first: int  # the number of the first region of the same object
    device: str
    arguments: tuple[tuple[Direction, str, str], ...]
    versions: tuple[int, ...]


@dataclass
class Program:
    """A program that is run while it is written, with the worlds that the documents allow for it."""

    devices: tuple[str, str]
    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    worlds: list[World] = field(default_factory=lambda: [World()])
    warned: list[str] = field(default_factory=list)
    lent: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # {region: its host arrays}
    versions: dict[str, int] = field(default_factory=dict)  # {host array: the number of times that it was made}
    entered: dict[int, Entered] = field(default_factory=dict)
    keeping: set[int] = field(default_factory=set)  # regions with on_error="keep"
    failed: bool = False  # whether a backend call failed on purpose
    short: bool = False  # whether the first device has little memory, so that any step may fail
    count: int = 0  # the number of regions
    values: int = 1  # the next value; no two values are the same
    steps: int = 0

    def __post_init__(self) -> None:
        self.names.update(imported())

    @property
    def world(self) -> World:
        return self.worlds[0]

    def next_region(self) -> int:
        self.count += 1
        return self.count

    def fresh(self, count: int = 1) -> float:
        """Return the first of some values that were not used before."""
        self.values += count
        return float(self.values - count)

    # -- making steps --

    def do(self, step: Step, thread: int = 0) -> bool:
        """Make a step and compare. If the documents promise no outcome of the step, do nothing and return False."""
        try:
            if len(self.worlds) == 1 and not self.short:
                ends = step.ends(self.world, thread)
            else:
                ends = [end for world in self.worlds for end in step.ends(world.copy(), thread)]
            if self.short:
                more = [end for world in self.worlds for end in step.failures(world.copy())]
                ends = [(world, tuple(_may_fail(outcome) for outcome in outcomes)) for world, outcomes in ends]
                ends += [(world, (outcome,)) for world, outcome in more]
        except Unspecified:
            return False
        run = partial(eval, step.code(), self.names)
        came = workers()[thread - 1].begin(run)() if thread else attempt(run)
        text = f"on_thread({thread}, lambda: {step.called()})" if thread else step.text
        if came.error:
            self.lines.append(f"with raises({type(came.error).__name__}): {text}")
        elif (value := ends[0][1][0].value) is not None:
            self.lines.append(f"assert {text} == {value if not isinstance(value, list) or len(value) < 100 else '...'}")
        else:
            self.lines.append(text)
        self.judge(ends, (came,))
        return True

    def do_at_once(self, *steps: Step) -> bool:
        numbered = [(step, i + 1) for i, step in enumerate(steps)]
        try:
            ends = [end for world in self.worlds for end in in_any_order(world, *numbered)]
        except Unspecified:
            return False
        self.lines.append(f"at_once({self.devices}, {', '.join(f'lambda: {step.called()}' for step in steps)})")
        self.judge(ends, at_once(self.devices, *(partial(eval, step.code(), self.names) for step in steps)))
        return True

    def do_in_flight(self, step: Step, device: str) -> bool:
        """Make a step whose operations on a simulated device are still under way when the next step begins."""
        # Idle memory is freed first, because freeing it later would wait for the operations.
        self.lines.append(f'Device("{device}").trim()')
        Device(device).trim()
        return self.do(replace(step, text=f'in_flight("{device}", lambda: {step.called()})', expression=True))

    def do_failing(self, step: Step, device: str, k: int, *, trim: bool = True) -> bool:
        """Make a step while the device's k-th backend call from now fails.

        trim: whether idle memory is freed first, so that the k-th call is the same each time; this waits for the
        device.
        """

        def failing(world: World, _: Outcome) -> list[tuple[World, Outcome]]:
            ends = [(end, outcome) for end, (outcome,) in step.ends(world.copy())]
            refused = [(end, outcome) for end, outcome in ends if outcome.errors]
            well = [(end, outcome) for end, outcome in ends if not outcome.errors]
            if well and step.fails:
                well += step.fails(world)
            # The driver may fail before the step is refused.
            return well + [(end, _may_fail(outcome)) for end, outcome in refused]

        if trim:
            self.lines.append(f'Device("{device}").trim()')
            Device(device).trim()
        self.lines.append(f'testing.fail_call(Device("{device}"), {k})')
        self.failed = True
        testing.fail_call(Device(device), k)
        try:
            return self.do(replace(step, stages=(failing,)))
        finally:
            testing.fail_call(Device(device), 0)
            self.lines.append(f'testing.fail_call(Device("{device}"), 0)')

    def judge(self, ends: Ends, came: Sequence[Came]) -> None:
        """Keep the worlds that agree with the results and with the host arrays."""
        self.steps += len(came)
        warned, self.warned[:] = Counter(self.warned), []
        arrays = {base: behind(self.names[base]) for base in ends[0][0].bases}
        kept, reasons = [], []
        for world, outcomes in ends:
            must = Counter(warning for outcome in outcomes for warning in outcome.warnings)
            messages = [f"# must raise {sorted(o.errors)}" if o.errors else f"# must give {o.value}" for o in outcomes]
            if not all(outcome_.agrees(outcome) for outcome_, outcome in zip(came, outcomes, strict=True)):
                reasons.append("; ".join(messages))
            elif warned != must and not self.failed and not self.short:  # no memory to pin: reported only once
                reasons.append(f"# must warn {dict(must)}")
            elif wrong := [
                base
                for base, array in arrays.items()
                if not (np.array_equal(array, world.hosts[base]) or self.has_in_place(world, base))
            ]:
                base = wrong[0]
                held = world.hosts[base].tolist()
                if len(held) > 100:
                    at = np.flatnonzero(world.hosts[base] != arrays[base])
                    reasons.append(f"assert {base}[{at[0]}] == {held[at[0]]}  # is {arrays[base][at[0]]}")
                else:
                    got = arrays[base].tolist()
                    reasons.append(f"assert {base}.ravel('K').tolist() == {held}\n#  is {' ' * len(base)}{got}")
            elif wrong := [b for b in arrays if self.names[b].flags.writeable == world.read_only(b)]:
                reasons.append(f"assert {wrong[0]}.flags.writeable == {not world.read_only(wrong[0])}")
            else:
                kept.append(world)
        if not kept:
            came_text = "; ".join(map(str, came))
            warned_text = f", warned {dict(warned)}" if warned else ""
            text = "\n# or\n".join(dict.fromkeys(reasons))
            raise Wrong("\n".join(["", *HEADER.splitlines(), *self.lines, f"# came: {came_text}{warned_text}", text]))
        self.worlds = kept if len(kept) == 1 else list({world.state(): world for world in kept}.values())

    def has_in_place(self, world: World, base: str) -> bool:
        """Return whether a coherent device may have written some of an array that a region still has."""
        return any(map(works_in_place, self.devices)) and any(
            pointer.part.base == base for region in world.regions.values() for pointer in region.pointers
        )

    def end(self, look: bool) -> None:
        """Look at the arrays on devices, leave the open regions, and compare."""
        for number, region in self.world.regions.items() if look else ():
            for i in range(len(region.pointers)):
                self.do(self.held(self.operand(number, i)))
        for number in sorted(self.world.regions, reverse=True):
            if not self.do(self.leave(number, "well")) and not self.do(self.leave(number, "discard")):
                return

    def close(self) -> None:
        """Leave the regions that are still open, and ignore any error."""
        for name in [name for name in self.names if name[0] == "r" and name[1:].isdigit()]:
            attempt(partial(self.names[name].__exit__, KeyError, KeyError(), None))
        self.names.clear()
        if self.failed or self.short:
            # The next region that is left without an exception, on any thread, reports that this program lacked pinned
            # memory.
            lend(np.zeros(1), device="host")

    # -- steps, written --

    def operand(self, number: int, i: int, key: str = "") -> Operand:
        """Return a part of the pointer that a region gave for its argument i."""
        part = self.world.regions[number].pointers[i].part
        return Operand(number, i, view(part, key), f"p{number}[{i}]{key}")

    def new(self, base: str) -> Step:
        part = BASES[base]
        first = self.fresh(part.index.size)
        last = first + part.index.size
        contents = np.arange(first, last)
        text = f"np.arange({first}, {last}"
        if part.dtype != "float64":
            text += f', dtype="{part.dtype}"'
        text += ")"
        if part.index.ndim > 1:
            text += f'.reshape({part.index.shape}, order="{"F" if base in "Fg" else "C"}")'
        if base in "pE":
            text = f"empty({part.index.size}); {base}[:] = {text}"
        elif base == "q":
            text += "; q.flags.writeable = False"
        self.versions[base] = self.versions.get(base, 0) + 1
        return Step(f"{base} = {text}", (lambda world, _: world.make(part, contents),), expression=False)

    def enter(
        self, device: str, *arguments: tuple[Direction, str, str], resident: bool = False, keep: bool = False
    ) -> Step:
        number = self.next_region()
        lent = [Argument(direction, self.part(number, i, *of)) for i, (direction, *of) in enumerate(arguments)]
        self.lent[number] = tuple((base, key) for _, base, key in arguments if base)
        if keep:
            self.keeping.add(number)
        versions = tuple(self.versions.get(base, 0) for _, base, _ in arguments)
        self.entered[number] = Entered(number, device, arguments, versions)
        texts = [self.argument(*argument) for argument in arguments]
        options = (", resident=True" if resident else "") + (', on_error="keep"' if keep else "")
        built = f'r{number} = offload_args({", ".join(texts)}, device="{device}"{options})'
        return Step(
            f"{built}; p{number} = r{number}.__enter__()",
            (lambda world, _: world.enter(number, device, lent),),
            "enter",
            expression=False,
            views=frozenset(base for _, base, key in arguments if key),
            fails=lambda world: [(world, Outcome(errors=DRIVER_ERRORS))],
        )

    def reenter(self, old: int) -> Step | None:
        """Enter a region object again with its arrays, if these are whole arrays that still belong to the program."""
        entered = self.entered[old]
        versions = tuple(self.versions.get(base, 0) for _, base, _ in entered.arguments)
        if any(self.entered[number].first == entered.first for number in self.world.regions):
            return None
        if f"r{old}" not in self.names or versions != entered.versions or any(key for _, _, key in entered.arguments):
            return None
        enter = self.enter(entered.device, *entered.arguments, keep=old in self.keeping)
        self.entered[self.count] = replace(entered)
        return replace(enter, text=f"r{self.count} = r{old}; p{self.count} = r{self.count}.__enter__()")

    @staticmethod
    def part(number: int, i: int, base: str, key: str) -> Part:
        return view(BASES[base], key) if base else whole(f"scratch {number}.{i}", (8,))

    @staticmethod
    def argument(direction: Direction, base: str, key: str) -> str:
        if direction == "Scratch":
            return "Scratch(8)"
        return f"{base}{key}" if direction == "by use" else f"{direction}({base}{key})"

    def leave(self, number: int, end: End) -> Step:
        how = "None, None, None" if end == "well" else "KeyError, KeyError(), None"
        text = f"raised(r{number})" if end == "discard" else f"r{number}.__exit__({how})"

        def fails(world: World) -> list[tuple[World, Outcome]]:
            if any(len(pointer.mapping.holders) > 1 for pointer in world.regions[number].pointers):
                raise Unspecified
            ends = []
            for copied in (True, False):
                left = world.copy()
                outcome = left.leave(number, end, copied=copied)
                left.forget()
                ends.append((left, Outcome(errors=outcome.errors | DRIVER_ERRORS) if end == "well" else Outcome()))
            return ends

        def leave(world: World, _: Outcome) -> Outcome:
            return world.leave(number, end) if number in world.regions else Outcome()  # a second time, it does nothing

        frees = self.world.regions[number].lent_whole
        return Step(text, (leave, forget), "leave", frees=frees, leaves=number, fails=fails)

    def drop(self, number: int) -> Step:
        def drop(world: World, _: Outcome) -> Outcome:
            world.leave(number, "discard")
            return Outcome(warnings=("DiscardedWarning",))

        first = self.entered[number].first
        names = [f"r{i}" for i, entered in self.entered.items() if entered.first == first and f"r{i}" in self.names]
        return Step(f"del {', '.join(names)}", (drop, forget), expression=False)

    def routine(
        self, text: str, operands: Sequence[tuple[Operand, int]], compute: Compute, rules: Rules = BLAS
    ) -> Step:
        def fails(world: World) -> list[tuple[World, Outcome]]:
            spoilt = world.copy()
            spoilt.call(operands, compute, rules)
            spoilt.undefine(operands)
            return [(end, Outcome(errors=DRIVER_ERRORS)) for end in (world, spoilt)]

        regions = self.world.regions
        touches = [(regions[o.region].device, o.part, access > READS) for o, access in operands if o.region in regions]
        stages = (lambda world, _: world.call(operands, compute, rules),)
        numbers = frozenset(operand.region for operand, _ in operands)
        call = Call(tuple(operands), compute, rules)
        return Step(text, stages, "call", touches=tuple(touches), regions=numbers, fails=fails, call=call)

    def scaled(
        self,
        name: str,
        alpha: float | Operand,
        operands: Sequence[tuple[Operand, int]],
        compute: Callable[..., tuple[tuple[Any, ...], object]],
        rules: Rules = BLAS,
    ) -> Step:
        """Return a call of a routine whose first argument is a scalar on the host, or an element of a pointer."""
        texts = ", ".join(operand.text for operand, _ in operands)
        if isinstance(alpha, Operand):
            text = f"blas.{name}({alpha.text}, {texts})"
            return self.routine(
                text, [*operands, (alpha, READS)], lambda *v: compute(np.ravel(v[-1])[0], *v[:-1]), rules
            )
        return self.routine(f"blas.{name}({alpha}, {texts})", operands, partial(compute, alpha), rules)

    def scal(self, alpha: float | Operand, x: Operand) -> Step:
        return self.scaled("scal", alpha, [(x, READS_AND_WRITES)], lambda alpha, x: ((alpha * x,), None), SCAL)

    def axpy(self, alpha: float | Operand, x: Operand, y: Operand) -> Step:
        operands = [(x, READS), (y, READS_AND_WRITES)]
        return self.scaled("axpy", alpha, operands, lambda alpha, x, y: ((y + alpha * x,), None), LEVEL_1)

    def copy(self, x: Operand, y: Operand) -> Step:
        text = f"blas.copy({x.text}, {y.text})"
        return self.routine(text, [(x, READS), (y, OVERWRITES)], lambda x, y: ((x,), None), LEVEL_1)

    def swap(self, x: Operand, y: Operand) -> Step:
        operands = [(x, READS_AND_WRITES), (y, READS_AND_WRITES)]
        return self.routine(f"blas.swap({x.text}, {y.text})", operands, lambda x, y: ((y, x), None), LEVEL_1)

    def dot(self, x: Operand, y: Operand) -> Step:
        text = f"blas.dot({x.text}, {y.text})"
        largest = LARGEST[x.part.dtype]
        return self.routine(text, [(x, READS), (y, READS)], lambda x, y: ((), float(product(x, y, largest).real)), REAL)

    def asum(self, x: Operand) -> Step:
        return self.routine(
            f"blas.asum({x.text})",
            [(x, READS)],
            lambda x: ((), float(np.abs(x.real).sum() + np.abs(x.imag).sum())),
        )

    def held(self, x: Operand) -> Step:
        step = self.routine(f"held({x.text})", [(x, READS)], lambda x: ((), x.ravel().tolist()), HELD)
        return replace(step, fails=None)  # it makes several calls

    def gemv(
        self, A: Operand, x: Operand, y: Operand, *, alpha: float | Operand = 1.0, beta: float | Operand = 1.0
    ) -> Step:
        """Return a product; alpha and beta are numbers, or elements of pointers, or one of each."""
        largest = LARGEST[A.part.dtype]
        operands = [(A, READS), (x, READS), (y, OVERWRITES if beta == 0 else READS_AND_WRITES)]
        numbers: list[float | None] = []
        for scalar in (alpha, beta):
            numbers.append(None if isinstance(scalar, Operand) else scalar)
            if isinstance(scalar, Operand):
                operands.append((scalar, READS))

        def compute(A: Any, x: Any, y: Any, *elements: Any) -> tuple[tuple[Any], None]:
            left = iter(elements)
            a, b = (np.ravel(next(left))[0] if number is None else number for number in numbers)
            Ax = a * product(A, x, largest / 8)
            return (Ax + b * y if numbers[1] != 0 else Ax,), None

        words = [scalar.text if isinstance(scalar, Operand) else str(scalar) for scalar in (alpha, beta)]
        text = f"blas.gemv({words[0]}, {A.text}, {x.text}, {words[1]}, {y.text})"
        return self.routine(text, operands, compute)

    def syrk(self, A: Operand, C: Operand, uplo: str) -> Step:
        """Return a product of a matrix with its transpose, which writes one triangle."""
        largest = LARGEST[A.part.dtype]

        def compute(A: Any, _: Any) -> tuple[tuple[Any], None]:
            rows, columns = np.indices((len(A), len(A)))
            return (product(A, A.T, largest)[rows <= columns if uplo == "U" else rows >= columns],), None

        operands = [(A, READS), (replace(C, part=triangle(C.part, uplo)), OVERWRITES)]
        return self.routine(f'blas.syrk(1.0, {A.text}, 0.0, {C.text}, uplo="{uplo}")', operands, compute)

    def vendor(self, name: str, n: int, x: Operand, kx: int, y: Operand, ky: int, device: str) -> Step | None:
        """Return a vendor's copy, swap or axpy of n elements; they are every k-th element of a pointer's vector."""
        if x.part.dtype != y.part.dtype or x.part.dtype == "int32" or "" in (x.text, y.text):
            return None
        results: list[Operand] = []
        words: list[str] = []
        beyond = False
        for operand, k in ((x, kx), (y, ky)):
            pointer = self.world.regions[operand.region].pointers[operand.argument]
            index = operand.part.index
            step = int(index[1] - index[0]) if index.size > 1 else 1
            if step < 1 or (pointer.mapping.packed and pointer.part is not operand.part):
                return None
            increment = k * (1 if pointer.mapping.packed else step)
            last = (n - 1) * abs(k)
            beyond |= last >= index.size
            key = f"[: {last + 1} : {k}]" if k > 0 else f"[{last}::{k}]"
            if not beyond and n > 0:
                results.append(replace(operand, part=view(operand.part, key)))
            words.append(f"{operand.text}, {increment}")
        letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[x.part.dtype]
        library = "cublas" if device.startswith("cuda") else "cblas"
        text = f"{library}.{letter}{name}({n}, {'2.0, ' if name == 'axpy' else ''}{', '.join(words)})"
        if beyond and n > 0:
            return Step(text, (lambda world, _: Outcome(errors=frozenset({"ExtentError", *REFUSALS})),))
        if n < 1:
            refused = Outcome(errors=REFUSALS)
            return Step(text, (lambda world, _: [(world, Outcome()), (world.copy(), refused)],))
        operands = [(results[0], READS_AND_WRITES if name == "swap" else READS)]
        operands.append((results[1], OVERWRITES if name == "copy" else READS_AND_WRITES))
        compute: Compute = {
            "copy": lambda x, y: ((x,), None),
            "swap": lambda x, y: ((y, x), None),
            "axpy": lambda x, y: ((y + 2.0 * x,), None),
        }[name]
        return self.routine(text, operands, compute, LEVEL_1)

    def add(self, x: Operand, y: Operand, z: Operand) -> Step:
        """Return a launch of the program's own kernel."""
        operands = [(x, READS), (y, READS), (z, OVERWRITES)]
        text = f"add({x.text}, {y.text}, {z.text})"
        return self.routine(text, operands, lambda x, y, z: ((x + y,), None))

    def assign(self, x: Operand, *, scalar: bool = False) -> Step:
        size, shape = x.part.index.size, x.part.index.shape
        first = self.fresh(size)
        values = np.full(shape, first) if scalar else np.arange(first, first + size).reshape(shape)
        if scalar:
            arguments = self.number(first, x)
        else:
            dtype = "" if x.part.dtype == "float64" else f', dtype="{x.part.dtype}"'
            arguments = f"np.arange({first}, {first + size}{dtype}).reshape({shape})"
        return self.routine(f"{x.text}.assign({arguments})", [(x, OVERWRITES)], lambda _: ((values,), None), CONTENTS)

    @staticmethod
    def number(value: float, x: Operand) -> str:
        return f"{int(value)}" if x.part.dtype == "int32" else f"{value}"

    def fill(self, x: Operand) -> Step:
        value = self.fresh()
        values = np.full(x.part.index.shape, value)
        text = f"{x.text}.fill({self.number(value, x)})"
        return self.routine(text, [(x, access_of_fill(self.world, x))], lambda _: ((values,), None), CONTENTS)

    def copy_from(self, x: Operand, y: Operand) -> Step:
        operands = [(x, READS), (y, access_of_fill(self.world, y))]
        return self.routine(f"{y.text}.copy_from({x.text})", operands, lambda x, y: ((x,), None), CONTENTS)

    def to_host(self, x: Operand) -> Step:
        text = f"{x.text}.to_host().ravel().tolist()"
        step = self.routine(text, [(x, READS)], lambda x: ((), x.ravel().tolist()), TO_HOST)
        return replace(step, fails=lambda world: [(world, Outcome(errors=DRIVER_ERRORS))])

    def address(self, x: Operand) -> Step:
        def fails(world: World) -> list[tuple[World, Outcome]]:
            return [(world, Outcome(errors=DRIVER_ERRORS))]

        return Step(f"{x.text}.address", (lambda world, _: world.address(x),), "address", fails=fails)

    def update(self, base: str, key: str, device: str | None = None) -> Step:
        part = view(BASES[base], key)
        place = f', device="{device}"' if device else ""

        def fails(world: World) -> list[tuple[World, Outcome]]:
            after = world.copy().update(part, device)
            return [(end, Outcome(errors=DRIVER_ERRORS)) for end in (world, *(end for end, _ in after))]

        stages = (lambda world, _: world.update(part, device),)
        return Step(f"update({base}{key}{place})", stages, "update", fails=fails)

    def write_lent(
        self, base: str, key: str, device: str | None = None, inner: str = "", *, raises: bool = False
    ) -> Step:
        part, value = view(BASES[base], key), self.fresh()
        some = view(part, inner)
        place = f', device="{device}"' if device else ""
        writing, inner = f"update({base}{key}{place})", inner or "[...]"
        text = (
            f"write_and_raise({writing}, {inner!r}, {value})" if raises else f"with {writing} as h: h{inner} = {value}"
        )
        return Step(text, (lambda world, _: world.write_lent(part, some, value, device),), expression=raises)

    def call_while_writing(self, base: str, key: str, inner: str, step: Step) -> Step | None:
        """Return a block of `update` that writes some of an array, makes the call of a step, and writes again."""
        if not step.call or not step.expression:
            return None
        part, values = view(BASES[base], key), (self.fresh(), self.fresh())
        some = view(part, inner)
        coherent = frozenset(filter(works_in_place, self.devices))
        within = Within(step.call, values[1], coherent)
        text = f"write_and_call(update({base}{key}), {inner or '[...]'!r}, {values}, lambda: {step.text})"
        return Step(text, (lambda world, _: world.copy().write_lent(part, some, values[0], None, within),))

    def write_host(self, base: str, key: str) -> Step:
        part, value = view(BASES[base], key), self.fresh()
        stages = (lambda world, _: world.write_host(part, value),)
        return Step(f"{base}{key}[...] = {value}", stages, expression=False)

    def call(self, device: str, routine: str, *arguments: tuple[Direction, str, str]) -> Step:
        """Return `call(blas.scal, ...)` or `call(blas.asum, ...)` of one vector, or `call(blas.copy, ...)` of two."""
        number = self.next_region()
        lent = [Argument(direction, view(BASES[base], key)) for direction, base, key in arguments]
        operands = [Operand(number, i, lent_array.part, "") for i, lent_array in enumerate(lent)]
        scale = [2.0] if routine == "scal" else []
        inner: Step = getattr(self, routine)(*scale, *operands)

        def enter(world: World, _: Outcome) -> Outcome:
            return world.enter(number, device, lent)

        def use(world: World, entered: Outcome) -> Outcome:
            if entered.errors:
                return entered
            (_, (used,)), *_ = inner.ends(world)
            return replace(used, warnings=entered.warnings)

        def leave(world: World, so_far: Outcome) -> Outcome:
            if number not in world.regions:
                return so_far
            left = world.leave(number, "discard" if so_far.errors else "well")
            return Outcome(so_far.errors | left.errors, so_far.value, so_far.warnings + left.warnings)

        texts = ", ".join([*map(str, scale), *(self.argument(*argument) for argument in arguments)])
        touches = tuple((device, lent_array.part, lent_array.direction != "In") for lent_array in lent)
        text = f'call(blas.{routine}, {texts}, device="{device}")'
        views = frozenset(base for _, base, key in arguments if key)
        frees = frozenset(base for _, base, key in arguments if not key)
        return Step(text, (enter, use, leave, forget), "call", touches=touches, views=views, frees=frees)

    def reside(self, method: str, device: str, base: str, key: str) -> Step:
        text = f'Device("{device}").{method}({"" if method == "trim" else base + key})'
        return Step(text, (lambda world, _: Outcome(),))


@contextmanager
def program_on(devices: tuple[str, str], bases: str, kind: type[Program] = Program) -> Iterator[Program]:
    """Yield a program that has made its arrays; at the end of the block, all its arrays and regions have ended."""
    program = kind(devices)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: program.warned.append(category.__name__)
        try:
            for base in bases:
                program.do(program.new(base))
            yield program
        finally:
            program.close()
