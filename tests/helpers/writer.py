"""Writes random programs of helpers/programs.py; some bytes determine each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb
from typing import Any, Final

import numpy as np

from helpers.model import Direction, End, Operand, Unspecified, view
from helpers.programs import BASES, Program, Step, program_on
from offload_args import Device, testing

VIEWS: Final = {
    "a": ("", "[:8]", "[4:]", "[2:6]", "[::2]", "[1::2]", "[::-1]", "[3:9]"),
    "A": ("", "[:, :3]", "[:, 3:]", "[1:3]", "[:, 2]", "[1]", "[::2]", "[::2, ::2]", "[1::2, ::2]", ".T", "[2:]"),
    "F": ("", "[:2]", "[2:]", "[:, :2]", "[:, 1:]", "[1:4]", "[3:]", "[2]", "[:, 1]", "[::2, 1::2]", ".T", "[:, ::-1]"),
    "P": ("", "", "[:700]", "[513:]", "[3:1400]", "[::2]", "[1::2]", "[::-1]"),
    "R": ("", "", "[1:]", "[:17]", "[:, :40]", "[:, 40:]", "[:, 66]", "[8:22]", "[::3]", ".T"),
    "B": ("", "", "", "[:16384]", "[8192:]", "[::2]"),
    "f": ("", "", "[:8]", "[4:]", "[::2]", "[::-1]"),
    "g": ("", "[:2]", "[1:]", "[:, :3]", "[:, 1:]", "[0]", "[:, 2]", ".T"),
    "c": ("", "[:5]", "[3:]", "[::2]"),
    "C": ("", "[:, :2]", "[1:]", "[1]", "[:, 3]", ".T"),
    "i": ("", "[:6]", "[::2]", "[3:]"),
    "p": ("", "", "[:6]", "[::3]", "[5:]"),
    "E": ("", "", "[:600]", "[100:1299]", "[::3]"),
    "q": ("", "", "[2:]", "[::2]"),
}
PANELS: Final = {"A": ("[:, :3]", "[:, 3:]"), "F": ("[:2]", "[2:]")}  # side by side, in each other's gaps
# Parts of pointers to vectors and to matrices, and the vectors in a matrix.
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


LENGTH: Final = 32  # the steps of a program
BYTES: Final = 9  # the bytes that choose a step: one byte is its kind, the others are a number for all other choices


class Writer:
    """Writes a program's next step from some bytes; zeros make no step."""

    KINDS: Final = (
        "nothing",
        *["enter"] * 6,
        *["leave"] * 4,
        *["routine"] * 12,
        *["held"] * 2,
        *["to_host"] * 3,
        *["assign"] * 3,
        *["fill", "copy_from"] * 2,
        *["part"] * 3,
        *["update"] * 2,
        *["write_lent"] * 3,
        *["call_while_writing"] * 3,
        *["write_host"] * 2,
        *["call"] * 2,
        *["address"] * 2,
        *["vendor"] * 3,
        *["drop", "new", "reside", "stale", "reenter"],
    )

    BESIDE: Final = (
        *["call"] * 3,
        *["enter", "leave", "routine", "assign", "update"] * 2,
        *["fill", "copy_from", "to_host", "address", "reside", "vendor", "part"],
    )

    FOLLOWING: Final = (*["routine"] * 4, *["assign", "fill"] * 2, *["copy_from", "vendor", "to_host"])

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
        """Make one more step of the program, if the bytes stand for a step that the documents specify."""
        self.choices = int.from_bytes(data[1:], "little")
        program = self.program
        try:
            step = getattr(self, self.kinds[data[0] % len(self.kinds)])()
            if step is None:
                return
            if self.at_once and len(program.worlds) < 5 and self.chance(2):
                steps = [step]
                for _ in range(self.pick((1, 1, 1, 3))):
                    other = getattr(self, self.pick(self.BESIDE))()
                    if other and not any(step.races(other) for step in steps) and orders(*steps, other) <= MOST_ORDERS:
                        steps.append(other)
                if len(steps) > 1:
                    program.do_at_once(*steps)
                return
            device = self.pick(program.devices)
            calm = not program.short and len(program.worlds) < 5
            often = 3 if len([r for r in program.world.regions.values() if r.device == device]) > 1 else 12
            if step.regions and calm and device.startswith("sim:") and self.chance(often):
                if program.do_in_flight(step, device):
                    self.follow(step, device)
                return
            if (
                step.fails
                and device.startswith("sim:")
                and len(program.worlds) < 5
                and self.chance(4 if step.kind == "address" else 8)
            ):
                program.do_failing(step, device, 1 + self.pick(range(14)))
            elif len(program.worlds) < 5 or not program.short:
                program.do(step, self.pick((0, 0, 0, 0, 0, 0, 1, 2, 3, 4)))
        except Unspecified:
            pass

    def follow(self, flying: Step, device: str) -> None:
        """Make a step that must wait for a step in flight, if there is one; often one of its backend calls fails."""
        numbers = random.Random(self.choices)
        for _ in range(20):
            self.choices = numbers.getrandbits(128)
            try:
                step = getattr(self, self.pick(self.FOLLOWING))()
            except Unspecified:
                continue
            if not step or not step.regions - flying.regions or not flying.races(step):
                continue
            if step.fails and len(self.program.worlds) < 5 and self.chance(2):
                done = self.program.do_failing(step, device, self.pick((1, 1, 2, 2, 2, 3, 4, 5, 6, 8)), trim=False)
            else:
                done = self.program.do(step)
            if done:
                return

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
                key = self.key(base)
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
        return base, self.key(base)

    def key(self, base: str) -> str:
        """Return a view of a host array, mostly from a list, so that the same views are used again."""
        return self.slices(BASES[base].index.shape) if base != "B" and self.chance(8) else self.pick(VIEWS[base])

    def slices(self, shape: tuple[int, ...]) -> str:
        """Return any slice; a slice of a matrix has at least two rows and columns."""
        texts, least = [], min(2, len(shape))
        for extent in shape:
            first = self.pick(range(extent + 1 - min(least, extent)))
            end = first + least + self.pick(range(max(1, extent + 1 - first - least)))
            step = self.pick((1, 2, 3))
            steps = step > 1 and end - first > step and self.chance(2)
            texts.append(f"{first}:{end}:{step}" if steps else f"{first}:{end}")
        everything = all(text == f"0:{extent}" for text, extent in zip(texts, shape, strict=True))
        return "" if everything else f"[{', '.join(texts)}]"

    def lent_array(self) -> tuple[str, str]:
        """Return a lent array, or any array if none is lent."""
        number = self.region()
        lent = self.program.lent[number] if number else ()
        return self.pick(lent) if lent and not self.chance(4) else self.host_array()

    def vector(self) -> tuple[str, str]:
        base, key = self.host_array()
        while view(BASES[base], key).index.ndim != 1:
            key = self.pick([key for key in VIEWS[base] if view(BASES[base], key).index.ndim == 1])
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
        part = pointers[i].part
        # Random slices keep a matrix two-dimensional, so they are not used if the keys select vectors of a matrix.
        anything = part.index.ndim == 1 or keys(2) is OF_MATRICES
        key = self.slices(part.index.shape) if anything and self.chance(12) else self.pick(keys(part.index.ndim))
        return self.program.operand(number, i, key)

    def vectors(self, count: int) -> list[Operand]:
        """Return vectors of one size, or none if nothing is lent."""
        operands = [self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else IN_MATRICES) for _ in range(count)]
        results = [operand for operand in operands if operand]
        size = min((operand.part.index.size for operand in results), default=0)
        return [trimmed(operand, size) for operand in results]

    def routine(self) -> Step | None:
        name = self.pick(
            (
                "scal",
                "scal",
                "scal",
                "copy",
                "copy",
                "axpy",
                "axpy",
                "swap",
                "asum",
                "dot",
                "gemv",
                "gemv",
                "add",
                "syrk",
            )
        )
        if name == "syrk":
            return self.syrk(self.pointer(lambda ndim: OF_MATRICES))
        if name == "gemv":
            return self.gemv()
        if name == "add":
            return self.add()
        operands = self.vectors(1 if name in ("scal", "asum") else 2)
        if not operands:
            return None
        if name in ("axpy", "copy", "swap") and self.chance(12):
            operands[1] = operands[0]
        scale = [self.scalar((-1.0, 2.0, 0.0, 3.0))] if name in ("scal", "axpy") else []
        step: Step = getattr(self.program, name)(*scale, *operands)
        return step

    def scalar(self, numbers: Sequence[float]) -> float | Operand:
        """Return a number, or an element of a pointer."""
        number: float = self.pick(numbers)
        if not self.chance(4):
            return number
        x = self.pointer(lambda ndim: ("[:1]", "[1:2]", "[2:3]") if ndim == 1 else ("[0, :1]", "[1, 1:2]", "[-1, -1:]"))
        return x if x and x.part.index.shape == (1,) else number

    def add(self) -> Step | None:
        operands = self.vectors(3)
        if len(operands) < 3 or any(x.part.dtype != "float32" for x in operands):
            return None
        for x in operands:
            lent = self.program.world.regions[x.region].pointers[x.argument].part
            if any((np.diff(part.index.ravel()) != 1).any() for part in (lent, x.part)):
                return None  # a kernel takes no arrays that were lent with gaps, or reversed
        return self.program.add(*operands)

    def vendor(self) -> Step | None:
        results = [
            self.pointer(lambda ndim: ("", "[1:]", "[::2]", "[:-1]") if ndim == 1 else IN_MATRICES) for _ in "xy"
        ]
        operands = [x for x in results if x and x.part.index.ndim == 1]
        if len(operands) < 2:
            return None
        n = self.pick(range(-1, min(x.part.index.size for x in operands) + 2))
        ks = [self.pick((1, 1, 1, -1, 2, -2)) for _ in operands]
        name = self.pick(("copy", "swap", "axpy"))
        device = self.program.world.regions[operands[0].region].device
        return self.program.vendor(name, n, operands[0], ks[0], operands[1], ks[1], device)

    def held(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.held(x)

    def to_host(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.to_host(x)

    def fill(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.fill(x)

    def part(self) -> Step | None:
        """Write or read a part of an Out that takes parts; if there is none, lend one."""
        regions = self.program.world.regions
        taking = [
            (number, i)
            for number in sorted(regions, reverse=True)
            for i, pointer in enumerate(regions[number].pointers)
            if pointer.writes and pointer.group.takes_parts()
        ]
        if not taking:
            directions: tuple[Direction, ...] = ("Out", "by use")
            return self.program.enter(self.pick(self.program.devices), (self.pick(directions), *self.host_array()))
        number, i = self.pick(taking)
        shape = regions[number].pointers[i].part.index.shape
        regular = OF_VECTORS if len(shape) == 1 else OF_MATRICES
        x = self.program.operand(number, i, self.slices(shape) if self.chance(2) else self.pick(regular))
        way = self.pick(("fill", "fill", "fill", "assign", "assign", "to_host", "scal", "syrk"))
        if way == "syrk":
            return self.syrk(x)
        if way == "scal" and len(shape) == 1:
            return self.program.scal(2.0, x)
        step: Step = getattr(self.program, "fill" if way == "scal" else way)(x)
        return step

    def copy_from(self) -> Step | None:
        results = [self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES) for _ in range(2)]
        operands = [x for x in results if x]
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
        if (A.part.packed and not packed) or x[0].part.index.size < columns or y[0].part.index.size < rows:
            return None
        alpha = self.scalar((1.0, 1.0, 2.0))
        return self.program.gemv(
            A, trimmed(x[0], columns), trimmed(y[0], rows), alpha=alpha, beta=self.scalar((0.0, 1.0))
        )

    def syrk(self, C: Operand | None) -> Step | None:
        """Write a triangle of a square matrix, which consists of the first rows and columns of C."""
        A = self.pointer(lambda ndim: OF_MATRICES)
        if A is None or C is None or A.part.index.ndim != 2 or C.part.index.ndim != 2:
            return None
        n = min(len(A.part.index), *C.part.index.shape)
        A, C = (
            replace(x, part=view(x.part, key), text=x.text + key) for x, key in ((A, f"[:{n}]"), (C, f"[:{n}, :{n}]"))
        )
        mappings = [self.program.world.regions[x.region].pointers[x.argument].mapping for x in (A, C)]
        if n < 2 or A.part.packed or C.part.packed or any(mapping.packed for mapping in mappings):
            return None
        return self.program.syrk(A, C, self.pick("UL"))

    def assign(self) -> Step | None:
        of_matrices = IRREGULAR if self.at_once else OF_MATRICES
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else of_matrices)
        return None if x is None else self.program.assign(x, scalar=self.chance(4))

    def address(self) -> Step | None:
        x = self.pointer(lambda ndim: OF_VECTORS if ndim == 1 else OF_MATRICES)
        return None if x is None else self.program.address(x)

    def reenter(self) -> Step | None:
        dead = sorted(set(self.program.entered) - set(self.program.world.regions), reverse=True)
        if not dead or len(self.program.world.regions) >= 5:
            return None
        return self.program.reenter(self.pick(dead))

    def stale(self) -> Step | None:
        """Return a step with a pointer of a region that was left."""
        dead = sorted(set(self.program.lent) - set(self.program.world.regions), reverse=True)
        dead = [number for number in dead if f"p{number}" in self.program.names]
        if not dead:
            return None
        number = self.pick(dead)
        x = Operand(number, 0, BASES[self.program.lent[number][0][0]], f"p{number}[0]")
        return self.program.address(x) if self.chance(2) else self.program.assign(x, scalar=True)

    def update(self) -> Step | None:
        return self.program.update(*self.lent_array(), self.pick((None, None, *self.program.devices)))

    def write_lent(self) -> Step | None:
        base, key = self.lent_array()
        device = self.pick((None, None, *self.program.devices))
        inner = self.pick(("", "", "[1:]", "[::2]"))
        return self.program.write_lent(base, key, device, inner, raises=self.chance(4))

    def call_while_writing(self) -> Step | None:
        base, key = self.lent_array()
        step = getattr(self, self.pick(("routine", "routine", "routine", "fill", "assign", "to_host", "copy_from")))()
        return step and self.program.call_while_writing(base, key, self.pick(("", "", "[1:]", "[::2]")), step)

    def write_host(self) -> Step | None:
        return self.program.write_host(*self.host_array())

    def call(self) -> Step | None:
        device = self.pick((self.program.devices[0], *self.program.devices))
        first, other = ((self.pick(DIRECTIONS), *self.vector()) for _ in range(2))
        sizes = {view(BASES[base], key).index.size for _, base, key in (first, other)}
        if len(sizes) > 1 or first[1:] == other[1:]:
            return self.program.call(device, self.pick(("asum", "scal")), first)
        return self.program.call(device, "copy", first, other)

    def reside(self) -> Step | None:
        method = self.pick(("keep", "keep", "keep", "release", "trim"))
        return self.program.reside(method, self.pick(self.program.devices), *self.host_array())


MOST_ORDERS: Final = 120  # the most orders of the stages of steps that are made at the same time


def orders(*steps: Step) -> int:
    """Return the number of orders in which the stages of steps may run."""
    count, together = 1, 0
    for step in steps:
        together += len(step.stages)
        count *= comb(together, len(step.stages))
    return count


def trimmed(operand: Operand, size: int) -> Operand:
    """Return the first elements of a vector."""
    if operand.part.index.size == size:
        return operand
    key = f"[:{size}]"
    return replace(operand, part=view(operand.part, key), text=operand.text + key)


def any_program(devices: tuple[str, str], data: bytes) -> None:
    """Run a program of one step after the other."""
    bases = tuple("a A aA AF a A aAF B P R aP E f fg c cC i ai p pA q qa af gC".split())
    _run(devices, data, bases, Writer.KINDS)


def program_short_of_memory(devices: tuple[str, str], data: bytes) -> None:
    """Run a program on a simulated device whose memory is too small for some of its steps."""
    index = Device(devices[0]).index
    testing.sim_device(capacity=(768, 1024, 1536, 2048)[data[0] % 4], index=index)
    try:
        _run(devices, data, ("aA", "AF", "aAF", "AFg", "aAp"), [*filter("held".__ne__, Writer.KINDS)], short=True)
    finally:
        testing.sim_device(index=index)


def program_of_parts(devices: tuple[str, str], data: bytes) -> None:
    """Run a program that mostly writes and reads parts of an Out."""
    bases = tuple("a A aA AF F g C f P R E p cC".split())
    _run(devices, data, bases, (*["part"] * 20, *Writer.KINDS, *["leave", "routine", "update"] * 2))


def program_of_steps_at_once(devices: tuple[str, str], data: bytes) -> None:
    """Run a program in which two to four steps are often made at the same time."""
    once = ("call", "address", "to_host", "fill", "copy_from", "reside")
    kinds = (
        "nothing",
        *["enter"] * 4,
        *["leave"] * 3,
        *["routine"] * 3,
        *["assign"] * 2,
        *["update"] * 2,
        "part",
        *once,
    )
    _run(devices, data, ("a", "A", "A", "AF", "f", "cC", "pq", "P", "R", "E"), kinds, at_once=True)


def _run(
    devices: tuple[str, str],
    data: bytes,
    choices: Sequence[str],
    kinds: Sequence[str],
    *,
    short: bool = False,
    at_once: bool = False,
) -> None:
    bases = choices[data[0] % len(choices)]
    with program_on(devices, bases) as program:
        program.short = short
        # Residency matters if the same arrays are lent often.
        again = ("leave", "leave", "call", "call", "call", "write_host") * 5 if bases == "B" else ()
        writer = Writer(program, bases, (*kinds, *again), at_once=at_once)
        if bases == "B":
            program.do(program.reside("keep", devices[0], "B", ""))
        for at in range(0, len(data), BYTES):
            writer.write(data[at : at + BYTES])
        program.end(look=data[1] % 2 == 1 and not short)
