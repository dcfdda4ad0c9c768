"""Random programs that capture chains of calls and replay them, against the model of the documented rules.

    cd tests; python -m helpers.random_replays --device sim:0 --count 5000

The seed determines a program: captures, in which some calls fail, replays with new contents and numbers, loops, and
graphs that are captured anew, deleted or stale; between these, the steps of helpers/writer.py. A program with a wrong
outcome is shortened, and printed as Python that runs in tests/.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

import numpy as np

from helpers.model import (
    CONTENTS,
    READS,
    REAL,
    Array,
    Chain,
    Operand,
    Outcome,
    Unspecified,
    World,
    number,
)
from helpers.programs import DRIVER_ERRORS, Program, Step, Wrong, product, program_on
from helpers.writer import BYTES, LENGTH, OF_MATRICES, OF_VECTORS, Writer
from offload_args import Device

Content = Operand | Array
NUMBERS: Final = ("alpha", "beta")


@dataclass(frozen=True)
class GraphStep(Step):
    """A step that captures a graph anew, or deletes it.

    `first` is the first region of the same object; None to delete it.
    """

    graph: str = ""
    first: int | None = None
    numbers: tuple[Operand, ...] = ()


class ReplayProgram(Program):
    """A program that also has graphs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.graphs: dict[str, int] = {}  # {captured graph: the first region of the same object}
        self.keeps: dict[str, set[int]] = {}  # {graph: the first regions of the objects that it may keep}
        self.numbers: dict[tuple[int, int], str] = {}  # {(region, place among its pointers): text of a graph's number}
        self.count_of_numbers = 0

    def operand(self, number: int, i: int, key: str = "") -> Operand:
        operand = super().operand(number, i, key)
        if operand.part.base.startswith("number "):
            if (number, i) not in self.numbers:
                raise Unspecified
            operand = replace(operand, text=self.numbers[number, i] + key)
        return operand

    def do(self, step: Step, thread: int = 0) -> bool:
        done = super().do(step, thread)
        if not done or not isinstance(step, GraphStep):
            return done
        if step.text.startswith(("del ", f'captured(globals(), "{step.graph}", r')):
            self.graphs.pop(step.graph, None)
        self.numbers = {at: text for at, text in self.numbers.items() if not text.startswith(f"{step.graph}[")}
        if step.first is None:
            self.keeps.pop(step.graph, None)
        else:
            self.keeps.setdefault(step.graph, set()).add(step.first)
        captured = step.first is not None and step.graph in self.names
        if captured and all(world.chains[step.graph].calls is not None for world in self.worlds):
            self.graphs[step.graph] = step.first or 0
            self.numbers.update({(x.region, x.argument): x.text for x in step.numbers})
        return done

    def end(self, look: bool) -> None:
        super().end(False)

    def dot_on_device(self, x: Operand, y: Operand, result: Operand) -> Step:
        def compute(x: Any, y: Any, old: Any) -> tuple[tuple[Any], None]:
            return (np.full(old.shape, product(x, y, 2.0**20)),), None

        text = f"blas.dot({x.text}, {y.text}, result={result.text})"
        return self.routine(text, [(x, READS), (y, READS), (result, 2)], compute, REAL)

    def drop_graph(self, name: str) -> Step:
        def drop(world: World, _: Outcome) -> Outcome:
            world.chains.pop(name, None)
            return Outcome()

        return GraphStep(f"del {name}", (drop,), expression=False, graph=name)

    def new_numbers(self, name: str, number_: int, dtypes: Sequence[str]) -> dict[str, Operand]:
        """Return the numbers that a capture will make, as pointers that its calls may take."""
        first, operands = len(self.world.regions[number_].pointers), {}
        for i, (key, dtype) in enumerate(zip(NUMBERS, dtypes, strict=False)):
            self.count_of_numbers += 1
            part = number(f"number {self.count_of_numbers}", dtype)
            operands[key] = Operand(number_, first + i, part, f'{name}["{key}"]')
        return operands

    def capture(
        self,
        name: str,
        number_: int,
        pointers: dict[str, Operand],
        numbers: dict[str, Operand],
        calls: Sequence[tuple[Step, bool]],
        *,
        raises: bool = False,
    ) -> Step:
        """Capture calls; with True, a call's result goes to the host. `raises`: whether the block raises at its end."""
        values = [float(self.values % 3) for _ in numbers]
        texts = [f"{key}={x.text}" for key, x in pointers.items()]
        for (key, x), value in zip(numbers.items(), values, strict=True):
            texts.append(f"{key}={value}" if x.part.dtype == "float64" else f"{key}=np.{x.part.dtype}({value})")
        begin = f"{name}.update" if name in self.graphs else f"r{number_}.capture"
        lambdas = [f"lambda: {step.text}" for step, _ in calls] + ["lambda: 1 // 0"] * raises
        text = ", ".join(["globals()", f'"{name}"', f"{begin}({', '.join(texts)})", *lambdas])
        names = pointers | numbers
        captured = [replace(step.call, to_host=to_host) for step, to_host in calls if step.call]

        def capture(world: World, _: Outcome) -> Outcome:
            if number_ not in world.regions:
                raise Unspecified
            if raises:
                world.capture(name, number_, names, values, captured)
                world.chains[name] = Chain(number_, names, None)
                return Outcome(frozenset({"ZeroDivisionError"}))
            return world.capture(name, number_, names, values, captured)

        def fails(world: World) -> list[tuple[World, Outcome]]:
            dead = world.copy()
            dead.capture_in_vain(name, number_, names, values)
            ends = [(dead, Outcome(errors=DRIVER_ERRORS | {"CaptureError"}))]
            for i in range(len(captured)):
                left = world.copy()
                came = left.capture(name, number_, names, values, captured[:i] + captured[i + 1 :])
                errors = list(came.value.errors)  # type: ignore[attr-defined]
                errors.insert(i, DRIVER_ERRORS)
                ends.append((left, Outcome(value=replace(came.value, errors=tuple(errors)))))  # type: ignore[type-var]
                ends.append((dead.copy(), Outcome(errors=frozenset({"CaptureError"}))))
            return ends

        touches = tuple(touch for step, _ in calls for touch in step.touches)
        regions = frozenset({number_}).union(*(step.regions for step, _ in calls))
        return GraphStep(
            f"captured({text})",
            (capture,),
            "capture",
            touches=touches,
            regions=regions,
            fails=None if begin[0] == "r" and name in self.names else fails,  # else the old graph might be lost
            graph=name,
            first=self.entered[number_].first,
            numbers=tuple(numbers.values()),
        )

    def replay(self, name: str, contents: Sequence[tuple[str, Content, str]]) -> Step:
        """Replay a graph with contents; each has its text."""
        pairs = [(key, source) for key, source, _ in contents]

        def fails(world: World) -> list[tuple[World, Outcome]]:
            world.copy().replay(name, pairs)
            chain, after = world.chains[name], world.copy()
            ends = [world.copy()]
            for write in after.writing(chain, pairs):
                undefined = after.copy()
                undefined.undefine(write(undefined))
                write(after)
                ends += [undefined, after.copy()]
            after.replay(name)
            for call in chain.calls or ():
                after.undefine(call.operands)
            return [(end, Outcome(errors=DRIVER_ERRORS)) for end in (*ends, after)]

        text = f"{name}.replay({', '.join(f'{key}={text}' for key, _, text in contents)})"
        chain = self.world.chains[name]
        operands = [(o, a > READS) for call in chain.calls or () for o, a in call.operands]
        operands += [(source, False) for _, source, _ in contents if isinstance(source, Operand)]
        operands += [(chain.names[key], True) for key, _, _ in contents if key in chain.names]
        live = [(o, writes) for o, writes in operands if o.region in self.world.regions]
        touches = tuple((self.world.regions[o.region].device, o.part, writes) for o, writes in live)
        regions = frozenset(o.region for o, _ in live)
        stages = (lambda world, _: world.replay(name, pairs),)
        return Step(text, stages, "replay", touches=touches, regions=regions, fails=fails)

    def loop(self, number_: int, calls: Sequence[tuple[Step, bool]], until: Operand, at_most: int) -> Step:
        repeated = [replace(step.call, to_host=to_host) for step, to_host in calls if step.call]
        body = "".join(f"{step.text}, " for step, _ in calls)
        text = f"r{number_}.loop(lambda: ({body}), until={until.text}, at_most={at_most})"
        regions = frozenset({number_}).union(*(step.regions for step, _ in calls))
        return Step(text, (lambda world, _: world.loop(number_, repeated, until, at_most),), "loop", regions=regions)


class ReplayWriter(Writer):
    """Writes programs with graphs."""

    program: ReplayProgram
    KINDS: Final = (  # type: ignore[misc]
        "nothing",
        *["enter"] * 6,
        *["leave"] * 3,
        *["routine", "to_host", "assign", "write_lent"] * 3,
        *["fill", "copy_from", "update", "call", "address", "held"],
        *["drop", "new", "reside", "reenter", "write_host"],
        *["capture"] * 10,
        *["recapture"] * 3,
        *["replay"] * 24,
        *["loop", "drop_graph", "to_number", "shift"] * 2,
        "mark",
    )

    focus: int | None = None  # the region whose calls are captured
    graph = ""  # the graph that is captured
    own: tuple[Operand, ...] = ()  # the numbers of this graph

    def region(self) -> int | None:
        numbers = sorted(self.program.world.regions, reverse=True)
        if self.focus is not None and not self.chance(8):
            return self.focus if self.chance(2) else self.pick([n for n in numbers if n <= self.focus])
        return self.pick(numbers) if numbers else None

    def pointer(self, keys: Callable[[int], Sequence[str]]) -> Operand | None:
        region = self.region()
        if region is None:
            return None
        i = self.pick(range(len(self.program.entered[region].arguments)))
        part = self.program.world.regions[region].pointers[i].part
        anything = part.index.ndim == 1 or keys(2) is OF_MATRICES
        key = self.slices(part.index.shape) if anything and self.chance(12) else self.pick(keys(part.index.ndim))
        return self.program.operand(region, i, key)

    def scalar(self, numbers: Sequence[float]) -> float | Operand:
        known = self.known_numbers()
        if known and self.chance(2):
            x: Operand = self.pick(known)
            return x
        return super().scalar(numbers)

    def known_numbers(self) -> list[Operand]:
        """Return the numbers of graphs; for the graph that is captured now, the new numbers replace the old ones."""
        numbers, regions = self.program.numbers.items(), self.program.world.regions
        known = [self.program.operand(*at) for at, text in numbers if at[0] in regions and text[:2] != self.graph]
        return [*self.own, *known]

    def dot_on_device(self) -> Step | None:
        operands, known = self.vectors(2), self.known_numbers()
        return self.program.dot_on_device(*operands, self.pick(known)) if operands and known else None

    def calls(self) -> list[tuple[Step, bool]]:
        """Return calls to capture; some of them have to be refused."""
        calls = []
        for _ in range(self.pick((1, 1, 2, 2, 3, 4, 5))):
            kind = self.pick(
                (*["routine"] * 6, *["assign", "fill", "copy_from", "dot_on_device"] * 2, "to_host", "to_number")
            )
            with suppress(Unspecified):
                step = getattr(self, kind)()
                if step and step.call:
                    sums = step.text.startswith(("blas.asum(", "blas.dot(")) and "result=" not in step.text
                    calls.append((step, sums or ".to_host()" in step.text))
        return calls

    def capture(self) -> Step | None:
        free = [name for name in ("g1", "g2", "g3") if name not in self.program.graphs]
        if not free or not self.program.world.regions:
            return self.replay()
        number_ = self.pick(sorted(self.program.world.regions, reverse=True))
        return self.captured(free[0], number_)

    def recapture(self) -> Step | None:
        if not self.program.graphs:
            return self.capture()
        name = self.pick(list(self.program.graphs))
        first = self.program.graphs[name]
        open_ones = [n for n in self.program.world.regions if self.program.entered[n].first == first]
        return self.captured(name, open_ones[0]) if open_ones else None

    def captured(self, name: str, number_: int) -> Step:
        self.focus, self.graph = number_, name
        try:
            pointers = {}
            for key in ("x", "y", "z")[: self.pick((0, 1, 1, 2, 2, 3))]:
                x = self.pointer(lambda ndim: ("", "", "", *OF_VECTORS) if ndim == 1 else ("", "", "[1:]", "[0]"))
                if x:
                    pointers[key] = x
            dtypes = [self.pick(("float64", "float64", "float32")) for _ in range(self.pick((0, 1, 1, 2)))]
            numbers = self.program.new_numbers(name, number_, dtypes)
            self.own = tuple(numbers.values())
            calls = self.calls()
        finally:
            self.focus, self.graph, self.own = None, "", ()
        return self.program.capture(name, number_, pointers, numbers, calls, raises=self.chance(16))

    def replay(self) -> Step | None:
        world = self.program.world
        names = [name for name in self.program.graphs if name in world.chains]
        if not names:
            return None
        name = self.pick(names)
        contents = []
        for key, x in world.chains[name].names.items():
            if self.chance(2):
                contents.append((key, *self.content(x)))
        if self.chance(24):
            contents.append(("w", np.zeros(2), "np.zeros(2)"))
        return self.program.replay(name, contents)

    def content(self, x: Operand) -> tuple[Content, str]:
        """Return new contents of a pointer that has a name, and their text; they may be refused."""
        shape, size, dtype = x.part.index.shape, x.part.index.size, x.part.dtype
        if self.chance(3):
            operands = [*self.known_numbers(), *(self.pointer(lambda ndim: OF_VECTORS) for _ in range(4))]
            fitting = [y for y in operands if y and (y.part.index.shape, y.part.dtype) == (shape, dtype)]
            if fitting:
                y: Operand = self.pick(fitting)
                return y, y.text
        if not shape:
            value = self.pick((0.0, 1.0, -1.0, 2.0, 3.0))
            return np.array(value, dtype), f"{value}"
        if self.chance(16):
            shape, size = (size + 1,), size + 1
        if self.chance(16):
            dtype = "int32"
        first = self.program.fresh(size)
        values = np.arange(first, first + size, dtype=dtype).reshape(shape)
        return values, f'np.arange({first}, {first + size}, dtype="{dtype}").reshape({shape})'

    def loop(self) -> Step | None:
        if not self.program.world.regions:
            return None
        self.focus = self.pick(sorted(self.program.world.regions, reverse=True))
        number_ = self.focus
        try:
            calls = self.calls()
            until = self.pointer(lambda ndim: ("[:1]", "[1:2]", "[-1:]") if ndim == 1 else ("[0, :1]", "[-1, -1:]"))
        finally:
            self.focus = None
        if until is None or until.part.index.size != 1:
            return None
        return self.program.loop(number_, calls, until, self.pick((0, 1, 2, 3, 4)))

    def shift(self) -> Step | None:
        """Loop until an element that is not 0 has come to the end of a vector."""
        vectors = [x for x in (self.pointer(lambda ndim: ("",)) for _ in range(4)) if x and x.part.index.ndim == 1]
        if len(vectors) < 2:
            return None
        x, y = vectors[:2]
        n = min(x.part.index.size, y.part.index.size)
        number_ = max(x.region, y.region)
        if n < 3:
            return None
        whole, to, end = (
            self.program.operand(x.region, x.argument, key) for key in (f"[:{n - 1}]", f"[1:{n}]", f"[{n - 1}:{n}]")
        )
        spare = self.program.operand(y.region, y.argument, f"[:{n - 1}]")
        calls = [(self.program.copy_from(whole, spare), False), (self.program.copy_from(spare, to), False)]
        return self.program.loop(number_, calls, end, self.pick((5, 20)))

    def mark(self) -> Step | None:
        """Set one element of a vector to another number than 0."""
        x = self.pointer(lambda ndim: ("",))
        if not x or x.part.index.ndim != 1:
            return None
        size, k = x.part.index.size, self.pick((0, 1, 2))
        values = np.eye(1, size, k)[0]
        text = f"{x.text}.assign(np.eye(1, {size}, {k}, {x.part.dtype!r})[0])"
        return self.program.routine(text, [(x, 2)], lambda _: ((values,), None), CONTENTS)

    def drop_graph(self) -> Step | None:
        return self.program.drop_graph(self.pick(list(self.program.graphs))) if self.program.graphs else None

    def drop(self) -> Step | None:
        """Delete a region that no graph keeps."""
        number_ = self.region()
        if number_ is None or self.program.entered[number_].first in set().union(*self.program.keeps.values()):
            return None
        return self.program.drop(number_)

    def to_number(self) -> Step | None:
        known = self.known_numbers()
        if not known:
            return None
        x = self.pick(known)
        return self.program.fill(x) if self.chance(2) else self.program.to_host(x)


BASES_OF_PROGRAMS: Final = tuple("a aA aA aAF aF aAf af fg c cC ai p pA qa P E AF ap aE".split())


def run(devices: tuple[str, str], data: bytes) -> int:
    """Run a program; return the number of its steps."""
    bases = BASES_OF_PROGRAMS[data[0] % len(BASES_OF_PROGRAMS)]
    with program_on(devices, bases, ReplayProgram) as program:
        assert isinstance(program, ReplayProgram)
        writer = ReplayWriter(program, bases, ReplayWriter.KINDS)
        for at in range(0, len(data), BYTES):
            writer.write(data[at : at + BYTES])
        program.end(look=False)
        return program.steps


def shortened(devices: tuple[str, str], data: bytes) -> Wrong:
    """Return the error of a shortened program, of which no step can be left out."""
    steps = [data[at : at + BYTES] for at in range(0, len(data), BYTES)]
    wrong = Wrong("it did not come again")
    size = len(steps)
    while size:
        for at in range(1, len(steps), size):
            fewer = [*steps[:at], *[bytes(BYTES)] * len(steps[at : at + size]), *steps[at + size :]]
            if fewer == steps:
                continue
            try:
                run(devices, b"".join(fewer))
            except Wrong as error:
                steps, wrong = fewer, error
        size //= 2
    return wrong


def check(devices: tuple[str, str], first: int, count: int) -> int:
    """Run the programs of some seeds; return the number of their steps."""
    steps = 0
    for seed in range(first, first + count):
        data = random.Random(seed).randbytes(LENGTH * BYTES)
        try:
            steps += run(devices, data)
        except Wrong as wrong:
            shorter = shortened(devices, data)
            text = f"program {seed} on {devices[0]}:\n{wrong}\n\n# shortened:\n{shorter}"
            raise AssertionError(text) from None
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="sim:0")
    parser.add_argument("--other", help="a second device; sim:1 beside sim:0, else host, and sim:0 beside host")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--on", action="store_true", help="go on after a program that comes out wrong")
    options = parser.parse_args()
    other = options.other or {"sim:0": "sim:1", "host": "sim:0"}.get(options.device, "host")
    Device(options.device), Device(other)  # check that both devices exist
    begun, steps = perf_counter(), 0
    for seed in range(options.first, options.first + options.count):
        try:
            steps += check((options.device, other), seed, 1)
        except AssertionError as wrong:
            if not options.on:
                raise
            print(wrong, flush=True)
    print(f"{options.count} programs of {steps} steps on {options.device}, {perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
