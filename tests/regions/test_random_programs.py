"""Random programs against the model of the documented rules, helpers/model.py: results, errors, every host byte.

Programs nest regions, lend overlapping views, update, assign, fail, keep arrays on devices, and use two devices and
three threads. One that comes out otherwise than it must is shrunk, and printed as Python that runs in tests/.

OFFLOAD_ARGS_MODEL_STEPS: how many steps are tried, 10,000 unless it is set. OFFLOAD_ARGS_MODEL_SEED: a number, or
"random", for other programs than those of each run.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import CodeType
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from helpers.devices import open_or_skip
from helpers.model import (
    OVERWRITES,
    READS,
    READS_AND_WRITES,
    Argument,
    Compute,
    Direction,
    End,
    Operand,
    Outcome,
    Part,
    Refused,
    Unspecified,
    World,
    view,
    whole,
)
from helpers.steps import Came, at_once, attempt, workers
from offload_args import Device, testing

STEPS: Final = int(os.environ.get("OFFLOAD_ARGS_MODEL_STEPS", "10000"))
SEED: Final = os.environ.get("OFFLOAD_ARGS_MODEL_SEED")
LENGTH: Final = 32  # steps of a program
BYTES: Final = 9  # that choose a step: one its kind, the others all else, as a number

HEADER: Final = """\
import numpy as np
from pytest import raises
from offload_args import Device, In, InOut, Out, Scratch, blas, call, offload_args, testing, update
from offload_args.errors import *
from helpers.steps import at_once, held, on_thread, raised
"""
BASES: Final = {
    "a": whole("a", (12,)),
    "A": whole("A", (4, 6)),
    "F": whole("F", (5, 4), "F"),
    "B": whole("B", (1 << 15,)),  # less than 128 KiB, its half, never stays on a device
    "L": whole("L", (1 << 21,)),  # more than there are pinned blocks for: it is on its way for a while
}
VIEWS: Final = {
    "a": ("", "[:8]", "[4:]", "[2:6]", "[::2]", "[1::2]", "[::-1]", "[3:9]"),
    "A": ("", "[:, :3]", "[:, 3:]", "[1:3]", "[:, 2]", "[1]", "[::2]", "[::2, ::2]", "[1::2, ::2]", ".T", "[2:]"),
    "F": ("", "[:2]", "[2:]", "[:, :2]", "[:, 1:]", "[1:4]", "[3:]", "[2]", "[:, 1]", "[::2, 1::2]", ".T", "[:, ::-1]"),
    "B": ("", "", "", "[:16384]", "[8192:]", "[::2]"),
}
PANELS: Final = {"A": ("[:, :3]", "[:, 3:]"), "F": ("[:2]", "[2:]")}  # side by side, with each other's gaps
# Parts of pointers to vectors and matrices, and the vectors that there are in a matrix.
OF_VECTORS: Final = ("", "", "[1:]", "[:-1]", "[::2]", "[1::2]", "[::-1]", "[2:5]")
OF_MATRICES: Final = (
    "",
    "",
    "[1:]",
    "[:, :2]",
    "[:, 2:]",
    "[::2, ::2]",
    "[1::2, ::2]",
    ".T",
    "[:, ::2]",
    "[0]",
    "[:, 1]",
)
IRREGULAR: Final = ("[::2, ::2]", "[1::2, ::2]", "[::2, 1::2]", "[:, :2]")
IN_MATRICES: Final = ("[0]", "[:, 0]", "[1]", "[:, 1]", "[-1]", "[:, -1]", "[1][::-1]", "[1, 1:]")
DIRECTIONS: Final[tuple[Direction, ...]] = ("by use", "by use", "by use", "InOut", "InOut", "In", "Out", "Out")
DRIVER_ERRORS: Final = frozenset({"BackendError", "DeviceMemoryError"})


# -- steps -------------------------------------------------------------------------------------------------------------


Ends = list[tuple[World, tuple[Outcome, ...]]]


Stage = Callable[[World, Outcome], Outcome | list[tuple[World, Outcome]]]


@dataclass(frozen=True)
class Step:
    """A step as Python, and in the model.

    stages: what changes a world, one after the other; each gets what came of the one before, and gives what came of
    both, or several worlds with that. touches: the device memory that it uses: device, part, whether it writes. views:
    base arrays of which it takes views. frees: those that it may make writable again. leaves: a region. fails: what may
    come instead when the driver refuses.
    """

    text: str
    stages: tuple[Stage, ...]
    kind: str = ""
    expression: bool = True
    touches: tuple[tuple[str, Part, bool], ...] = ()
    views: frozenset[str] = frozenset()
    frees: frozenset[str] = frozenset()
    leaves: int | None = None
    fails: Callable[[World], list[tuple[World, Outcome]]] | None = None

    def ends(self, world: World, thread: int = 0) -> Ends:
        """Return the outcomes that it may have on a thread: 1, 2, or 0 for the main one.

        It changes the world; or a copy, if a later stage may find out that the documents do not say.
        """
        return in_any_order(world if len(self.stages) < 3 else world.copy(), (self, thread))

    def called(self) -> str:
        """Return it as an expression."""
        return self.text if self.expression else f"exec({self.text!r}, globals())"

    def code(self) -> CodeType:
        return compiled(self.text, "eval" if self.expression else "exec")

    def races(self, other: Step) -> bool:
        """Tell whether they are a race of the program's own.

        One writes what the other uses on the same device; or takes a view that may be read-only or not; or both leave
        the same region.
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
    """Return the outcomes of steps made at once on their threads: their stages one after the other, in any order."""

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


class Wrong(AssertionError):
    """A program came out otherwise than it must; its text is the program."""


@dataclass
class Program:
    """A program that is run as it is written, with the worlds it may be in by the documents."""

    devices: tuple[str, str]
    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    worlds: list[World] = field(default_factory=lambda: [World()])
    warned: list[str] = field(default_factory=list)
    lent: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # host arrays, by region
    keeping: set[int] = field(default_factory=set)  # regions with on_error="keep"
    failed: bool = False  # a backend call did, on purpose
    count: int = 0  # of regions
    values: int = 1  # the next; no two are the same
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
        """Return the first of some values that were nowhere before."""
        self.values += count
        return float(self.values - count)

    # -- making steps --

    def do(self, step: Step, thread: int = 0) -> bool:
        """Make a step and compare. Return False if the documents promise no outcome of it; then nothing was done."""
        try:
            if len(self.worlds) == 1:
                ends = step.ends(self.world, thread)
            else:
                ends = [end for world in self.worlds for end in step.ends(world.copy(), thread)]
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

    def do_at_once(self, first: Step, second: Step) -> bool:
        try:
            ends = [end for world in self.worlds for end in in_any_order(world, (first, 1), (second, 2))]
        except Unspecified:
            return False
        names = ", ".join(f'"{device}"' for device in self.devices)
        self.lines.append(f"at_once(lambda: {first.called()}, lambda: {second.called()}, {names})")
        one, other = (partial(eval, step.code(), self.names) for step in (first, second))
        self.judge(ends, at_once(one, other, *self.devices))
        return True

    def do_failing(self, step: Step, device: str, k: int) -> bool:
        """Make a step while the device's k-th backend call from now fails."""

        def failing(world: World, _: Outcome) -> list[tuple[World, Outcome]]:
            ends = [(end, outcome) for end, (outcome,) in step.ends(world.copy())]
            refused = [(end, outcome) for end, outcome in ends if outcome.errors]
            well = [(end, outcome) for end, outcome in ends if not outcome.errors]
            if well and step.fails:
                well += step.fails(world)
            # Unless the driver fails before a refusal is found out.
            return well + [(end, replace(outcome, errors=outcome.errors | DRIVER_ERRORS)) for end, outcome in refused]

        # Idle memory is freed first, so that the k-th call is the same one each time.
        self.lines.append(f'Device("{device}").trim(); testing.fail_call(Device("{device}"), {k})')
        self.failed = True
        Device(device).trim()
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
        arrays = {base: self.names[base].ravel(order="K") for base in ends[0][0].bases}
        kept, reasons = [], []
        for world, outcomes in ends:
            must = Counter(warning for outcome in outcomes for warning in outcome.warnings)
            told = [f"# must raise {sorted(o.errors)}" if o.errors else f"# must give {o.value}" for o in outcomes]
            if not all(one.agrees(outcome) for one, outcome in zip(came, outcomes, strict=True)):
                reasons.append("; ".join(told))
            elif warned != must and not self.failed:  # a lack of pinned memory is reported once
                reasons.append(f"# must warn {dict(must)}")
            elif wrong := [base for base, array in arrays.items() if not np.array_equal(array, world.hosts[base])]:
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
        reshape = (
            "" if part.index.ndim == 1 else f'.reshape({part.index.shape}, order="{base if base == "F" else "C"}")'
        )
        text = f"{base} = np.arange({first}, {last}){reshape}"
        return Step(text, (lambda world, _: world.make(part, contents),), expression=False)

    def enter(
        self, device: str, *arguments: tuple[Direction, str, str], resident: bool = False, keep: bool = False
    ) -> Step:
        number = self.next_region()
        lent = [Argument(direction, self.part(number, i, *of)) for i, (direction, *of) in enumerate(arguments)]
        self.lent[number] = tuple((base, key) for _, base, key in arguments if base)
        if keep:
            self.keeping.add(number)
        texts = [self.argument(*argument) for argument in arguments]
        options = (", resident=True" if resident else "") + (', on_error="keep"' if keep else "")
        made = f'r{number} = offload_args({", ".join(texts)}, device="{device}"{options})'
        return Step(
            f"{made}; p{number} = r{number}.__enter__()",
            (lambda world, _: world.enter(number, device, lent),),
            "enter",
            expression=False,
            views=frozenset(base for _, base, key in arguments if key),
            fails=lambda world: [(world, Outcome(errors=DRIVER_ERRORS))],
        )

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
            return world.leave(number, end) if number in world.regions else Outcome()  # twice does nothing

        frees = self.world.regions[number].lent_whole
        return Step(text, (leave, forget), "leave", frees=frees, leaves=number, fails=fails)

    def drop(self, number: int) -> Step:
        def drop(world: World, _: Outcome) -> Outcome:
            world.leave(number, "discard")
            return Outcome(warnings=("ResourceWarning",))

        return Step(f"del r{number}", (drop, forget), expression=False)

    def routine(self, text: str, operands: Sequence[tuple[Operand, int]], compute: Compute) -> Step:
        def fails(world: World) -> list[tuple[World, Outcome]]:
            spoilt = world.copy()
            spoilt.call(operands, compute)
            spoilt.undefine(operands)
            return [(end, Outcome(errors=DRIVER_ERRORS)) for end in (world, spoilt)]

        regions = self.world.regions
        touches = [(regions[o.region].device, o.part, access > READS) for o, access in operands if o.region in regions]
        stages = (lambda world, _: world.call(operands, compute),)
        return Step(text, stages, "call", touches=tuple(touches), fails=fails)

    def scal(self, alpha: float, x: Operand) -> Step:
        return self.routine(f"blas.scal({alpha}, {x.text})", [(x, READS_AND_WRITES)], lambda x: ((alpha * x,), None))

    def axpy(self, alpha: float, x: Operand, y: Operand) -> Step:
        text = f"blas.axpy({alpha}, {x.text}, {y.text})"
        return self.routine(text, [(x, READS), (y, READS_AND_WRITES)], lambda x, y: ((y + alpha * x,), None))

    def copy(self, x: Operand, y: Operand) -> Step:
        return self.routine(f"blas.copy({x.text}, {y.text})", [(x, READS), (y, OVERWRITES)], lambda x, y: ((x,), None))

    def swap(self, x: Operand, y: Operand) -> Step:
        operands = [(x, READS_AND_WRITES), (y, READS_AND_WRITES)]
        return self.routine(f"blas.swap({x.text}, {y.text})", operands, lambda x, y: ((y, x), None))

    def dot(self, x: Operand, y: Operand) -> Step:
        text = f"blas.dot({x.text}, {y.text})"
        return self.routine(text, [(x, READS), (y, READS)], lambda x, y: ((), float(x @ y)))

    def asum(self, x: Operand) -> Step:
        return self.routine(f"blas.asum({x.text})", [(x, READS)], lambda x: ((), float(np.abs(x).sum())))

    def held(self, x: Operand) -> Step:
        step = self.routine(f"held({x.text})", [(x, READS)], lambda x: ((), x.ravel().tolist()))
        return replace(step, fails=None)  # it makes several calls

    def gemv(self, A: Operand, x: Operand, beta: float, y: Operand) -> Step:
        text = f"blas.gemv(1.0, {A.text}, {x.text}, {beta}, {y.text})"
        operands = [(A, READS), (x, READS), (y, READS_AND_WRITES if beta else OVERWRITES)]
        return self.routine(text, operands, lambda A, x, y: ((A @ x + (beta * y if beta else 0.0),), None))

    def assign(self, x: Operand, *, scalar: bool = False) -> Step:
        size, shape = x.part.index.size, x.part.index.shape
        first = self.fresh(size)
        values = np.full(shape, first) if scalar else np.arange(first, first + size).reshape(shape)
        given = f"{first}" if scalar else f"np.arange({first}, {first + size}).reshape({shape})"
        return self.routine(f"{x.text}.assign({given})", [(x, OVERWRITES)], lambda _: ((values,), None))

    def fill(self, x: Operand) -> Step:
        value = self.fresh()
        values = np.full(x.part.index.shape, value)
        return self.routine(f"{x.text}.fill({value})", [(x, self.writes(x))], lambda _: ((values,), None))

    def copy_from(self, x: Operand, y: Operand) -> Step:
        operands = [(x, READS), (y, self.writes(y))]
        return self.routine(f"{y.text}.copy_from({x.text})", operands, lambda x, y: ((x,), None))

    def writes(self, x: Operand) -> int:
        """Return how filling a pointer uses it: an irregular slice counts with all the elements between."""
        regions = self.world.regions
        if x.part.lines is None and x.region in regions:
            whole = regions[x.region].pointers[x.argument].part
            return OVERWRITES if whole.elements == x.part.elements else READS_AND_WRITES
        return OVERWRITES

    def to_host(self, x: Operand) -> Step:
        text = f"{x.text}.to_host().ravel().tolist()"
        step = self.routine(text, [(x, READS)], lambda x: ((), x.ravel().tolist()))
        stages = (lambda world, _: world.call([(x, READS)], lambda x: ((), x.ravel().tolist()), stays=True),)
        return replace(step, stages=stages, fails=lambda world: [(world, Outcome(errors=DRIVER_ERRORS))])

    def address(self, x: Operand) -> Step:
        def fails(world: World) -> list[tuple[World, Outcome]]:
            return [(world, Outcome(errors=DRIVER_ERRORS))]

        return Step(f"{x.text}.address", (lambda world, _: world.address(x),), "address", fails=fails)

    def update(self, base: str, key: str, device: str | None = None) -> Step:
        part = view(BASES[base], key)
        where = f', device="{device}"' if device else ""

        def fails(world: World) -> list[tuple[World, Outcome]]:
            after = world.copy().update(part, device)
            return [(end, Outcome(errors=DRIVER_ERRORS)) for end in (world, *(end for end, _ in after))]

        stages = (lambda world, _: world.update(part, device),)
        return Step(f"update({base}{key}{where})", stages, "update", fails=fails)

    def write_lent(self, base: str, key: str) -> Step:
        part, value = view(BASES[base], key), self.fresh()
        text = f"with update({base}{key}) as h: h[...] = {value}"
        return Step(text, (lambda world, _: world.write_lent(part, value),), expression=False)

    def write_host(self, base: str, key: str) -> Step:
        part, value = view(BASES[base], key), self.fresh()
        stages = (lambda world, _: world.write_host(part, value),)
        return Step(f"{base}{key}[...] = {value}", stages, expression=False)

    def call(self, device: str, routine: str, *arguments: tuple[Direction, str, str]) -> Step:
        """`call(blas.scal, ...)` or `call(blas.asum, ...)` of one vector, `call(blas.copy, ...)` of two."""
        number = self.next_region()
        lent = [Argument(direction, view(BASES[base], key)) for direction, base, key in arguments]
        operands = [Operand(number, i, one.part, "") for i, one in enumerate(lent)]
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
        touches = tuple((device, one.part, one.direction != "In") for one in lent)
        text = f'call(blas.{routine}, {texts}, device="{device}")'
        views = frozenset(base for _, base, key in arguments if key)
        frees = frozenset(base for _, base, key in arguments if not key)
        return Step(text, (enter, use, leave, forget), "call", touches=touches, views=views, frees=frees)

    def reside(self, method: str, device: str, base: str, key: str) -> Step:
        text = f'Device("{device}").{method}({"" if method == "trim" else base + key})'
        return Step(text, (lambda world, _: Outcome(),))


# -- random programs ---------------------------------------------------------------------------------------------------


class Writer:
    """Writes a program's next step from some bytes; zeros make none."""

    KINDS: Final = (
        "nothing",
        *["enter"] * 6,
        *["leave"] * 4,
        *["routine"] * 12,
        *["held"] * 2,
        *["to_host"] * 3,
        *["assign"] * 3,
        *["fill", "copy_from"] * 2,
        *["update"] * 2,
        *["write_lent"] * 2,
        *["write_host"] * 2,
        *["call"] * 2,
        *["address"] * 2,
        *["drop", "new", "reside", "stale"],
    )

    BESIDE: Final = (
        *["call"] * 3,
        *["enter", "leave", "routine", "assign", "update"] * 2,
        *["fill", "copy_from", "to_host", "address", "reside"],
    )

    def __init__(self, program: Program, bases: str, kinds: Sequence[str] = KINDS, *, at_once: bool = False) -> None:
        self.program = program
        self.bases = bases
        self.kinds = kinds
        self.at_once = at_once
        self.choices = 0

    def pick(self, among: Sequence[Any]) -> Any:
        self.choices, i = divmod(self.choices, len(among))
        return among[i]

    def chance(self, of: int) -> bool:
        return bool(self.pick(range(of)) == of - 1)

    def write(self, data: bytes) -> None:
        """Make one more step of the program, if the bytes say one that the documents speak of."""
        self.choices = int.from_bytes(data[1:], "little")
        program = self.program
        try:
            step = getattr(self, self.kinds[data[0] % len(self.kinds)])()
            if step is None:
                return
            if self.at_once and len(program.worlds) < 5 and self.chance(2):
                other = getattr(self, self.pick(self.BESIDE))()
                if other and not step.races(other):
                    program.do_at_once(step, other)
                return
            device = self.pick(program.devices)
            if (
                step.fails
                and device.startswith("sim:")
                and len(program.worlds) < 5
                and self.chance(4 if step.kind == "address" else 12)
            ):
                program.do_failing(step, device, 1 + self.pick(range(6)))
            else:
                program.do(step, self.pick((0, 0, 0, 0, 0, 0, 1, 2)))
        except Unspecified:
            pass

    # -- kinds of steps; None: nothing to do --

    def nothing(self) -> Step | None:
        return None

    def enter(self) -> Step | None:
        if len(self.program.world.regions) >= 5:
            return self.leave()
        device = self.pick((self.program.devices[0], *self.program.devices))
        arguments: list[tuple[Direction, str, str]] = []
        for _ in range(self.pick((1, 1, 2, 2, 3))):
            direction = self.pick(DIRECTIONS)
            base, key = self.lent_array() if self.chance(2) else self.host_array()
            if arguments and self.chance(2):
                base = arguments[0][1]
                key = self.pick(VIEWS[base])
            arguments.append((direction, base, key))
        if base in PANELS and self.chance(6):
            arguments = [(self.pick(DIRECTIONS), base, key) for key in PANELS[base]]
        if self.chance(8):
            arguments.append(("Scratch", "", ""))
        options = self.pick(range(8))
        return self.program.enter(
            device, *arguments, resident=options % 4 == 3 or "B" in self.bases, keep=options in (5, 7)
        )

    def host_array(self) -> tuple[str, str]:
        base = self.pick(self.bases)
        return base, self.pick(VIEWS[base])

    def lent_array(self) -> tuple[str, str]:
        """Return one that is lent, or else any."""
        number = self.region()
        lent = self.program.lent[number] if number else ()
        return self.pick(lent) if lent and not self.chance(4) else self.host_array()

    def vector(self) -> tuple[str, str]:
        base, key = self.host_array()
        while view(BASES[base], key).index.ndim != 1:
            key = self.pick([one for one in VIEWS[base] if view(BASES[base], one).index.ndim == 1])
        return base, key

    def region(self) -> int | None:
        numbers = sorted(self.program.world.regions, reverse=True)
        return self.pick(numbers) if numbers else None

    def leave(self) -> Step | None:
        number = self.region()
        if number is None:
            return None
        end: End = self.pick(("well", "well", "well", "discard"))
        if end == "discard" and number in self.program.keeping:
            end = "keep"
        return self.program.leave(number, end)

    def drop(self) -> Step | None:
        number = self.region()
        return None if number is None else self.program.drop(number)

    def new(self) -> Step | None:
        return self.program.new(self.pick(self.bases))

    def pointer(self, keys: Callable[[int], Sequence[str]]) -> Operand | None:
        number = self.region()
        if number is None:
            return None
        pointers = self.program.world.regions[number].pointers
        i = self.pick(range(len(pointers)))
        return self.program.operand(number, i, self.pick(keys(pointers[i].part.index.ndim)))

    def vectors(self, count: int) -> list[Operand]:
        """Return vectors of one size, or none if nothing is lent."""
        operands = [self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else IN_MATRICES) for _ in range(count)]
        found = [operand for operand in operands if operand]
        size = min((operand.part.index.size for operand in found), default=0)
        return [trimmed(operand, size) for operand in found]

    def routine(self) -> Step | None:
        name = self.pick(
            ("scal", "scal", "scal", "copy", "copy", "axpy", "axpy", "swap", "asum", "dot", "gemv", "gemv")
        )
        if name == "gemv":
            return self.gemv()
        operands = self.vectors(1 if name in ("scal", "asum") else 2)
        if not operands:
            return None
        scale = [self.pick((-1.0, 2.0, 0.0, 3.0))] if name in ("scal", "axpy") else []
        step: Step = getattr(self.program, name)(*scale, *operands)
        return step

    def held(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.held(x)

    def to_host(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.to_host(x)

    def fill(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.fill(x)

    def copy_from(self) -> Step | None:
        found = [self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES) for _ in range(2)]
        operands = [x for x in found if x]
        if len({x.part.index.shape for x in operands}) != 1 or self.chance(3):
            operands = self.vectors(2)
        return self.program.copy_from(*operands) if operands else None

    def gemv(self) -> Step | None:
        A = self.pointer(lambda ndim: ("", "[1:]", ".T"))
        x, y = (self.vectors(1) for _ in range(2))
        if A is None or A.part.index.ndim != 2 or not x or not y:
            return None
        packed = self.program.world.regions[A.region].pointers[A.argument].mapping.packed
        rows, columns = A.part.index.shape
        if A.part.packed and not packed or x[0].part.index.size < columns or y[0].part.index.size < rows:
            return None
        return self.program.gemv(A, trimmed(x[0], columns), self.pick((0.0, 1.0)), trimmed(y[0], rows))

    def assign(self) -> Step | None:
        of_matrices = IRREGULAR if self.at_once else OF_MATRICES
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else of_matrices)
        return None if x is None else self.program.assign(x, scalar=self.chance(4))

    def address(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.address(x)

    def stale(self) -> Step | None:
        """Return a step with a pointer of a region that was left."""
        dead = sorted(set(self.program.lent) - set(self.program.world.regions), reverse=True)
        dead = [number for number in dead if f"p{number}" in self.program.names]
        if not dead:
            return None
        number = self.pick(dead)
        x = Operand(number, 0, BASES["a"], f"p{number}[0]")
        return self.program.address(x) if self.chance(2) else self.program.assign(x, scalar=True)

    def update(self) -> Step | None:
        return self.program.update(*self.lent_array(), self.pick((None, None, *self.program.devices)))

    def write_lent(self) -> Step | None:
        return self.program.write_lent(*self.lent_array())

    def write_host(self) -> Step | None:
        return self.program.write_host(*self.host_array())

    def call(self) -> Step | None:
        device = self.pick((self.program.devices[0], *self.program.devices))
        one, other = ((self.pick(DIRECTIONS), *self.vector()) for _ in range(2))
        sizes = {view(BASES[base], key).index.size for _, base, key in (one, other)}
        if len(sizes) > 1 or one[1:] == other[1:]:
            return self.program.call(device, self.pick(("asum", "scal")), one)
        return self.program.call(device, "copy", one, other)

    def reside(self) -> Step | None:
        method = self.pick(("keep", "keep", "keep", "release", "trim"))
        return self.program.reside(method, self.pick(self.program.devices), *self.host_array())


def trimmed(operand: Operand, size: int) -> Operand:
    """Return the first elements of a vector."""
    if operand.part.index.size == size:
        return operand
    key = f"[:{size}]"
    return replace(operand, part=view(operand.part, key), text=operand.text + key)


@contextmanager
def program_on(devices: tuple[str, str], bases: str) -> Iterator[Program]:
    """Give a program that has made its arrays; at the end of the block everything of it is gone."""
    program = Program(devices)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: program.warned.append(category.__name__)
        try:
            for base in bases:
                program.do(program.new(base))
            yield program
        finally:
            program.close()


def check(devices: tuple[str, str], steps: int, write: Callable[[bytes], None]) -> None:
    """Have Hypothesis make programs of so many steps in all."""
    seen = False

    def repeated(data: bytes) -> None:
        """While a fault is shrunk, try a program some times: the moment at which threads meet may decide."""
        nonlocal seen
        for _ in range(3 if seen else 1):
            try:
                write(data)
            except Wrong:
                seen = True
                raise

    tried = settings(
        max_examples=max(1, 3 * steps // 2 // LENGTH),
        deadline=None,
        database=None,
        derandomize=SEED is None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    test = tried(given(st.binary(min_size=LENGTH * BYTES, max_size=LENGTH * BYTES))(repeated))
    if SEED is not None:
        test = seed(random.randrange(1 << 32) if SEED == "random" else int(SEED))(test)
    text = ""
    try:
        test()
    except Wrong as wrong:
        text = str(wrong)
    except FlakyFailure as flaky:
        text = "\n# or, run again, well\n".join(str(error) for error in flaky.exceptions if isinstance(error, Wrong))
    if text:
        pytest.fail(text, pytrace=False)


@pytest.fixture(params=[("sim:0", "sim:1"), ("sim:0", "host"), ("cuda:0", "cuda:1"), ("cuda:0", "host")], ids="-".join)
def devices(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of two devices that are here."""
    one, other = request.param
    open_or_skip(one)
    if other == "cuda:1" and len(Device.all()) < 3:  # also where OFFLOAD_ARGS_REQUIRE asks for a GPU, for one will do
        pytest.skip("device unavailable")
    return one, open_or_skip(other)


def test_random_programs_agree_with_the_documents(devices: tuple[str, str]) -> None:
    def write(data: bytes) -> None:
        bases = ("a", "A", "aA", "AF", "a", "A", "aAF", "B")[data[0] % 8]
        with program_on(devices, bases) as program:
            # Residency shows when arrays come back often.
            again = ("leave", "leave", "call", "call", "call", "write_host") * 5 if bases == "B" else ()
            writer = Writer(program, bases, Writer.KINDS + again)
            if bases == "B":
                program.do(program.reside("keep", devices[0], "B", ""))
            for at in range(0, len(data), BYTES):
                writer.write(data[at : at + BYTES])
            program.end(look=data[1] % 2 == 1)

    check(devices, STEPS // 2, write)


def test_two_steps_at_once_come_out_as_one_after_the_other(devices: tuple[str, str]) -> None:
    once = ("call", "address", "to_host", "fill", "copy_from", "reside")
    kinds = ("nothing", *["enter"] * 4, *["leave"] * 3, *["routine"] * 3, *["assign"] * 2, *["update"] * 2, *once)

    def write(data: bytes) -> None:
        bases = ("a", "A", "A", "AF")[data[0] % 4]
        with program_on(devices, bases) as program:
            writer = Writer(program, bases, kinds, at_once=True)
            for at in range(0, len(data), BYTES):
                writer.write(data[at : at + BYTES])
            program.end(look=data[1] % 2 == 1)

    check(devices, STEPS // 20, write)


# -- programs that were wrong once -------------------------------------------------------------------------------------


def reads_while_another_device_leaves(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "a", "")))
    p.do(p.scal(2.0, p.operand(1, 0)))
    p.do_at_once(p.leave(1, "well"), p.call(other, "asum", ("by use", "a", "")))


def enters_while_another_device_writes(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "")))
    p.do_at_once(p.assign(p.operand(1, 0, "[::2, ::2]")), p.enter(other, ("by use", "A", "")))


def raises_while_another_region_writes_a_part(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "")))
    p.do(p.enter(one, ("by use", "A", "")))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do_at_once(p.assign(p.operand(2, 0, "[::2, ::2]")), p.leave(1, "discard"))


def writes_what_another_device_holds_in_part(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "")))
    p.do(p.enter(other, ("by use", "A", "[1:3]")))
    p.do(p.held(p.operand(2, 0)))
    p.do(p.write_lent("A", ""))


def writes_what_another_device_holds_packed(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "")))
    p.do(p.enter(other, ("by use", "A", "[::2, ::2]")))
    p.do(p.held(p.operand(2, 0)))
    p.do(p.write_lent("A", ""))


def raises_after_another_region_left_well(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "a", "")))
    p.do(p.enter(one, ("In", "a", "")))
    p.do(p.scal(2.0, p.operand(1, 0)))
    p.do(p.leave(1, "well"))
    p.do(p.leave(2, "discard"))


def raises_around_a_region_that_left_well(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "a", "")))
    p.do(p.enter(one, ("by use", "a", "")))
    p.do(p.scal(2.0, p.operand(2, 0)))
    p.do(p.leave(2, "well"))
    p.do(p.leave(1, "discard"))


def assigns_to_an_irregular_slice_beside_gaps(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "[:, :3]")))
    p.do(p.assign(p.operand(1, 0, "[::2, ::2]")))


def assigns_to_two_irregular_slices_at_once(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "")))
    p.do_at_once(p.assign(p.operand(1, 0, "[::2, ::2]")), p.assign(p.operand(1, 0, "[1::2, ::2]")))


def gives_the_address_of_a_panel_away_and_updates_the_other(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "[:, :3]"), ("by use", "A", "[:, 3:]")))
    p.do(p.address(p.operand(1, 0)))
    p.do(p.update("A", "[:, 3:]"))


def fails_to_give_the_address_of_an_out_away(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("Out", "a", "")))
    if one.startswith("sim:"):
        p.do_failing(p.address(p.operand(1, 0)), one, 1)


def enters_while_another_device_is_sent_what_it_writes(p: Program, one: str, other: str) -> None:
    p.do(p.new("L"))
    p.do(p.enter(one, ("by use", "L", "")))
    p.do_at_once(p.scal(2.0, p.operand(1, 0)), p.enter(other, ("by use", "L", "")))


def raises_while_another_region_sends_a_part(p: Program, one: str, other: str) -> None:
    p.do(p.new("L"))
    p.do(p.enter(one, ("by use", "L", "")))
    p.do(p.enter(one, ("by use", "L", "")))
    p.do(p.fill(p.operand(1, 0)))
    x = p.operand(2, 0, "[1:]")
    values = np.arange(1.0, x.part.index.size + 1)
    p.do(Step(f"v = np.arange(1.0, {values.size + 1})", (lambda world, _: Outcome(),), expression=False))
    assign = p.routine(f"{x.text}.assign(v)", [(x, OVERWRITES)], lambda _: ((values,), None))
    p.do_at_once(assign, p.leave(1, "discard"))
    p.do(p.asum(p.operand(2, 0, "[:4]")))


def updates_two_arrays_that_overlap_and_raises(p: Program, one: str, other: str) -> None:
    for _ in range(2):
        p.do(p.enter(one, ("by use", "a", "[:8]"), ("by use", "a", "[4:]")))
    p.do(p.scal(2.0, p.operand(2, 0)))
    p.do(p.update("a", ""))
    p.do(p.leave(2, "discard"))
    p.do(p.asum(p.operand(1, 0)))


def takes_the_address_of_an_out_that_a_call_left_undefined(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("Out", "a", "")))
    if one.startswith("sim:"):
        p.do_failing(p.fill(p.operand(1, 0)), one, 3)  # after some of it was filled
        p.do(p.asum(p.operand(1, 0)))
    p.do(p.address(p.operand(1, 0)))


def overwrites_one_of_two_outs_that_overlap(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("Out", "a", ""), ("Out", "a", "[4:]")))
    p.do(p.fill(p.operand(1, 1)))


def overwrites_an_out_within_an_array_that_is_lent(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "a", "")))
    p.do(p.enter(one, ("Out", "a", "[2:6]")))
    p.do(p.fill(p.operand(2, 0)))


def reads_on_the_host_what_another_device_has_left(p: Program, one: str, other: str) -> None:
    p.do(p.enter(other, ("In", "A", "[::2]")))
    p.do(p.enter(one, ("In", "A", "[:, :3]"), ("In", "A", "[:, 3:]")))
    p.do(p.leave(1, "well"))
    p.do(p.to_host(p.operand(2, 1)))
    p.do(p.write_lent("A", "[1::2, ::2]"))  # no device has any of it


def updates_an_array_that_one_lent_for_reading_crosses(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "[:, :3]"), ("In", "A", "[::2]")))
    p.do(p.address(p.operand(1, 0)))
    p.do(p.update("A", "[:, :3]"))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do(p.update("A", "[:, 2:]"))
    p.do(p.write_lent("A", "[:, :2]"))


def lends_columns_apart_and_then_together(p: Program, one: str, other: str) -> None:
    p.do(p.enter(one, ("by use", "A", "[:, :3]")))
    p.do(p.enter(other, ("by use", "A", "[:, 3:]")))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do(p.scal(3.0, p.operand(2, 0, "[1]")))
    p.do(p.leave(2, "well"))
    p.do(p.enter(one, ("by use", "A", "[:, 3:]"), ("by use", "A", "[:, :3]")))
    p.do(p.scal(5.0, p.operand(3, 0, "[:, 1]")))
    p.do(p.leave(1, "discard"))
    p.do(p.fill(p.operand(3, 1)))


@pytest.mark.parametrize(
    "write",
    [
        reads_while_another_device_leaves,
        enters_while_another_device_writes,
        raises_while_another_region_writes_a_part,
        writes_what_another_device_holds_in_part,
        writes_what_another_device_holds_packed,
        raises_after_another_region_left_well,
        raises_around_a_region_that_left_well,
        assigns_to_an_irregular_slice_beside_gaps,
        assigns_to_two_irregular_slices_at_once,
        gives_the_address_of_a_panel_away_and_updates_the_other,
        fails_to_give_the_address_of_an_out_away,
        enters_while_another_device_is_sent_what_it_writes,
        raises_while_another_region_sends_a_part,
        updates_two_arrays_that_overlap_and_raises,
        takes_the_address_of_an_out_that_a_call_left_undefined,
        overwrites_one_of_two_outs_that_overlap,
        overwrites_an_out_within_an_array_that_is_lent,
        reads_on_the_host_what_another_device_has_left,
        updates_an_array_that_one_lent_for_reading_crosses,
        lends_columns_apart_and_then_together,
    ],
)
def test_a_program_agrees_with_the_documents_that(
    devices: tuple[str, str], write: Callable[[Program, str, str], None]
) -> None:
    for _ in range(3):  # the first time libraries are looked for, and the moment is another one
        with program_on(devices, "aA") as program:
            write(program, *devices)
            large = "L" in program.world.bases
            program.end(look=not large)
        if large:
            break
