"""Checks the executions of plans: which elements they touch, and which of these are copied.

The library's double computes nothing, so a plan is only a noted layout.
"""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import offload_args
from bindings.helper_functions import Object
from bindings.parameters import Array, EnumValue
from offload_args import _core
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostPointerError,
    StalePointerError,
    WrongDeviceError,
)
from recording import legal
from recording.bench import DoubleBench, handle_of
from recording.legal import roles
from recording.recorder import Argument

# {dtypes of the arrays: the type of the transform}.
TYPES = {
    ("c64", "c64"): "C2C",
    ("f32", "c64"): "R2C",
    ("c64", "f32"): "C2R",
    ("c128", "c128"): "Z2Z",
    ("f64", "c128"): "D2Z",
    ("c128", "f64"): "Z2D",
}
REAL = ("f32", "f64")


@dataclass
class Layout:
    """The arguments of a plan."""

    type: str
    n: tuple[int, ...]
    batch: int
    input: tuple[tuple[int, ...], int, int] | None  # dimensions, stride and distance; None: the library's default
    output: tuple[tuple[int, ...], int, int] | None

    def plan(self, bench: DoubleBench, how: int) -> Any:
        """Return a plan of the layout; how: the way to make it."""
        module = bench.module
        type_ = getattr(module, self.type)
        rank = len(self.n)
        sizes = (*(self.input or (None, 1, 1)), *(self.output or (None, 1, 1)))
        if self.input is None and how % 3 == 1 and (rank == 1 or self.batch == 1):
            batch = (self.batch,) if rank == 1 else ()
            return getattr(module, f"plan{rank}d")(*self.n, type_, *batch, device=bench.device)
        if how % 3 == 2:
            return module.plan_many(rank, self.n, *sizes, type_, self.batch, device=bench.device)
        plan = module.create(device=bench.device)
        module.set_auto_allocation(plan, 0)
        make = module.make_plan_many if how % 2 else module.make_plan_many64
        make(plan, rank, self.n, *sizes, type_, self.batch)
        return plan

    def touched(self, is_input: bool, in_place: bool) -> NDArray[np.int64]:
        """Return the places of the elements that an execution reads or writes; some places may occur twice."""
        real_side = self.type in (("R2C", "D2Z") if is_input else ("C2R", "Z2D"))
        half = self.n[-1] // 2 + 1
        last = half if not real_side and self.type not in ("C2C", "Z2Z") else self.n[-1]
        shape = (*self.n[:-1], last)
        side = self.input if is_input else self.output
        if side is None:
            padded = (*self.n[:-1], 2 * half if real_side and in_place else last)
            side = padded, 1, int(np.prod(padded))
        embed, stride, distance = side
        strides = [stride * int(np.prod(embed[axis + 1 :])) for axis in range(len(embed))]
        places = np.arange(self.batch).reshape((-1, *[1] * len(shape))) * distance
        for axis, length in enumerate(shape):
            steps = np.arange(length) * strides[axis]
            places = places + steps.reshape((1, *(-1 if other == axis else 1 for other in range(len(shape)))))
        return np.asarray(places.ravel(), np.int64)


def drawn(function: roles.Function, random: np.random.Generator) -> Layout:
    """Return a layout that a function can execute, with explicit or default strides."""
    dtypes = tuple(array.dtype for array in function.arrays)
    rank = int(random.integers(1, 4))
    n = tuple(int(length) for length in random.integers(1, 6, rank))
    batch = int(random.integers(1, 4))
    if random.integers(0, 3) == 0:
        return Layout(TYPES[dtypes[0], dtypes[1]], n, batch, None, None)
    sides = []
    for _ in range(2):
        embed = tuple(length + int(random.integers(0, 3)) for length in n)
        stride = int(random.integers(1, 4))
        size = stride * int(np.prod(embed))
        by_columns = random.integers(0, 3) == 0  # elements of the batch are adjacent
        sides.append((embed, stride * batch, stride) if by_columns else (embed, stride, size + int(random.integers(3))))
    return Layout(TYPES[dtypes[0], dtypes[1]], n, batch, sides[0], sides[1])


def direction(function: roles.Function) -> list[int]:
    """Return the arguments after the arrays."""
    return [parameter.enum.values[0][1] for parameter in function.parameters if isinstance(parameter, EnumValue)]


def arguments(bench: DoubleBench, function: roles.Function) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a legal call without its arrays, and the arrays."""
    source, target = function.arrays
    layout = Layout(TYPES[source.dtype, target.dtype], (4, 6), 1, None, None)
    arrays = {
        array.name: np.zeros(len(layout.touched(array is source, False)), legal.numpy_dtype(array.dtype))
        for array in function.arrays
    }
    values = {
        parameter.name: parameter.enum.values[0][1]
        for parameter in function.parameters
        if isinstance(parameter, EnumValue)
    }
    return values | {function.parameters[0].name: layout.plan(bench, 0)}, arrays


def check_record(bench: DoubleBench, function: roles.Function, plan: Any, pointers: list[Any], in_c: bool) -> None:
    """Make a call; fail unless its arguments arrive, after a call that sets the stream."""
    bench.recorder.reset({})
    if in_c:
        handles = [
            ctypes.c_void_p(handle_of(pointer, array.dtype))
            for pointer, array in zip(pointers, function.arrays, strict=True)
        ]
        rest = [ctypes.c_int(value) for value in direction(function)]
        name = f"oa_{bench.library.name}_{function.name}"
        assert bench.typed.call(name, [ctypes.c_void_p(_core.object_handle(plan)), *handles, *rest]) == 0
    else:
        getattr(bench.module, function.name)(plan, *pointers, *direction(function))
    *before, record = bench.recorder.records(own=True)
    assert record.symbol == function.symbol
    assert [other.symbol for other in before if other.symbol.endswith("SetStream")], before
    wanted = [plan.address, *(pointer.address for pointer in pointers), *direction(function)]
    for parameter, value, argument in zip(function.parameters, wanted, record.arguments, strict=True):
        assert number_of(argument, parameter) == value, f"{function.symbol}: {parameter.name}"


def number_of(argument: Argument, parameter: Any) -> int:
    """Return the value of an argument; a plan may be a 32-bit number."""
    if isinstance(parameter, (Array, Object)):
        return int.from_bytes(argument.value, "little")
    return argument.integer


def check_layout(bench: DoubleBench, function: roles.Function, random: np.random.Generator, turn: int) -> None:
    """Execute a plan with arrays of exactly its size; fail if it takes shorter arrays, or copies other bytes."""
    layout = drawn(function, random)
    plan = layout.plan(bench, turn)
    arrays, sizes = [], []
    for at, array in enumerate(function.arrays):
        touched = layout.touched(at == 0, in_place=False)
        sizes.append(int(touched.max()) + 1)
        arrays.append(np.ones(sizes[-1], legal.numpy_dtype(array.dtype)))
    written = len(np.unique(layout.touched(False, False))) * arrays[1].itemsize
    up, down = arrays[0].nbytes, arrays[0].nbytes * (not function.arrays[0].is_read_only)
    moves = {(up, down + written), (up + arrays[1].nbytes, down + arrays[1].nbytes)}  # a part counts as whole
    with offload_args.testing.counting(offload_args.Device(bench.device)) as moved:
        with bench.lent({"x": arrays[0], "y": arrays[1]}) as pointers:
            x, y = pointers["x"], pointers["y"]
            for at, (array, pointer) in enumerate(zip(function.arrays, (x, y), strict=True)):
                changed = [x, y]
                changed[at] = pointer[:-1]
                place = rf"^{bench.library.name}\.{function.name}: {array.name} needs {sizes[at]} element"
                with pytest.raises(ExtentError, match=place):
                    getattr(bench.module, function.name)(plan, *changed, *direction(function))
            getattr(bench.module, function.name)(plan, x, y, *direction(function))
    with bench.lent({"x": arrays[0], "y": arrays[1]}) as pointers:
        check_record(bench, function, plan, [pointers["x"], pointers["y"]], in_c=turn % 2 == 1)
    assert (moved.bytes_up, moved.bytes_down) in moves, (moved, moves, layout)
    if written == arrays[1].nbytes and (layout.output is None or is_regular(layout.output, layout)):
        assert moved.bytes_up == up, (moved, up, layout)
    bench.module.destroy(plan)


def is_regular(side: tuple[tuple[int, ...], int, int], layout: Layout) -> bool:
    """Return whether the core always recognizes that an output has no gaps, because the output is one line."""
    return layout.batch == 1 and len(layout.n) == 1 and side[1] == 1


def with_one_place(layout: Layout, random: np.random.Generator) -> Layout:
    """Return a layout whose lines begin at the same bytes of the input and of the output."""
    if layout.input is None or layout.output is None:
        return layout
    if layout.type in ("C2C", "Z2Z"):
        return replace(layout, output=layout.input)
    embed, stride, distance = whole = layout.output if layout.type in ("R2C", "D2Z") else layout.input
    real = embed, 2 * stride, 2 * distance
    if stride == 1 and random.integers(0, 2):
        real = (*embed[:-1], 2 * embed[-1]), 1, 2 * distance
    return replace(layout, input=real, output=whole) if layout.type in ("R2C", "D2Z") else replace(layout, output=real)


def fits_in_place(layout: Layout, itemsizes: list[int]) -> bool | None:
    """Return whether no line overwrites a byte of another one in place; None if the core need not recognize it."""
    if layout.input is None:
        return True
    count = layout.batch * int(np.prod(layout.n[:-1]))
    before, after = (
        layout.touched(at == 0, in_place=True).reshape(count, -1) * itemsize for at, itemsize in enumerate(itemsizes)
    )
    nbytes = [
        [{place + byte for place in line for byte in range(itemsize)} for line in lines.tolist()]
        for lines, itemsize in zip((before, after), itemsizes, strict=True)
    ]
    if any(i != k and nbytes[0][i] & nbytes[1][k] for i in range(count) for k in range(count)):
        return False
    together = min(before.shape[1], after.shape[1])
    return True if count == 1 or np.array_equal(before[:, :together], after[:, :together]) else None


def check_in_place(bench: DoubleBench, function: roles.Function, random: np.random.Generator) -> None:
    """Execute a plan in place. Lines of real numbers are padded, and an array that ends too early is refused, and a
    layout in which a line would overwrite another one."""
    layout = drawn(function, random)
    if random.integers(0, 3):
        layout = with_one_place(layout, random)
    plan = layout.plan(bench, 0)
    dtypes = [legal.numpy_dtype(array.dtype) for array in function.arrays]
    nbytes = [(int(layout.touched(at == 0, in_place=True).max()) + 1) * dtypes[at].itemsize for at in range(2)]
    itemsize = max(dtype.itemsize for dtype in dtypes)
    whole = -(-max(nbytes) // itemsize) * itemsize
    memory = np.zeros(whole, np.uint8)
    views = [memory[: whole // dtype.itemsize * dtype.itemsize].view(dtype) for dtype in dtypes]
    fits = fits_in_place(layout, [dtype.itemsize for dtype in dtypes])
    with bench.lent({"x": views[0], "y": views[1]}) as pointers:
        x, y = pointers["x"], pointers["y"]
        try:
            check_record(bench, function, plan, [x, y], in_c=False)
            assert fits is not False, layout
        except AliasError as error:
            assert not fits and "odata is idata, but the plan's lines have other places in odata" in str(error), layout
            bench.module.destroy(plan)
            return
        if dtypes[0] == dtypes[1]:
            check_record(bench, function, plan, [x, x], in_c=False)
        for at, pointer in enumerate((x, y)):
            changed = [x, y]
            changed[at] = pointer[: nbytes[at] // dtypes[at].itemsize - 1]
            with pytest.raises(ExtentError, match=f": {function.arrays[at].name} needs"):
                getattr(bench.module, function.name)(plan, *changed, *direction(function))
    bench.module.destroy(plan)


def refused(
    bench: DoubleBench,
    function: roles.Function,
    values: list[Any],
    error: type[Exception] | tuple[type[Exception], ...],
    words: str,
) -> None:
    """Fail unless a call is refused with the argument's name, and nothing is copied."""
    before = bench.counts()
    with pytest.raises(error, match=rf"^{bench.library.name}\.{function.name}: .*{words}"):
        getattr(bench.module, function.name)(*values)
    assert bench.counts() == before


def check_wrong(bench: DoubleBench, function: roles.Function) -> None:
    """Fail unless wrong arguments are refused with their names before anything is copied."""
    values, arrays = arguments(bench, function)
    plan, rest = values[function.parameters[0].name], direction(function)
    module = bench.module
    (source, target) = function.arrays
    other_type = next(name for name in TYPES.values() if name != TYPES[source.dtype, target.dtype])
    other = module.plan1d(4, getattr(module, other_type), 1, device=bench.device)
    empty = module.create(device=bench.device)
    ended = module.create(device=bench.device)
    module.destroy(ended)
    wrong = np.zeros(64, np.int32)
    with bench.lent(arrays | {"wrong": wrong}) as pointers:
        x, y, z = pointers[source.name], pointers[target.name], pointers["wrong"]
        for value in (None, 0, 1.5, "x", x):
            refused(bench, function, [value, x, y, *rest], (ArgumentTypeError, HostPointerError), "plan")
        refused(bench, function, [ended, x, y, *rest], StalePointerError, "plan")
        refused(bench, function, [empty, x, y, *rest], ArgumentError, "plan has no transform yet")
        refused(bench, function, [other, x, y, *rest], (DTypeError, ArgumentError, ArgumentTypeError), "plan is for")
        refused(bench, function, [plan, z, y, *rest], DTypeError, source.name)
        refused(bench, function, [plan, x, z, *rest], DTypeError, target.name)
        for value in (None, 0, 1 << 40, 1.5, arrays[source.name]):
            refused(bench, function, [plan, value, y, *rest], HostPointerError, source.name)
            refused(bench, function, [plan, x, value, *rest], HostPointerError, target.name)
        for value in (0, 2, -2) if rest else ():
            refused(bench, function, [plan, x, y, value], ArgumentError, "direction")
    with bench.lent({"x": arrays[source.name], "y": offload_args.In(arrays[target.name])}) as pointers:
        refused(bench, function, [plan, pointers["x"], pointers["y"], *rest], DirectionError, target.name)
    with bench.lent({"x": offload_args.Out(arrays[source.name]), "y": arrays[target.name]}) as pointers:
        refused(bench, function, [plan, pointers["x"], pointers["y"], *rest], DirectionError, source.name)
        pointers["x"].fill(0)
    refused(bench, function, [plan, pointers["x"], pointers["y"], *rest], StalePointerError, source.name)
    nbytes = [array.nbytes for array in arrays.values()]
    memory = np.zeros(sum(nbytes) + 16, np.uint8)
    overlapping = {
        "x": memory[16 : 16 + nbytes[0]].view(arrays[source.name].dtype),
        "y": memory[: nbytes[1]].view(arrays[target.name].dtype),
    }
    with bench.lent(overlapping) as pointers:
        refused(bench, function, [plan, pointers["x"], pointers["y"], *rest], AliasError, source.name)
    for each in (other, empty, plan):
        module.destroy(each)


def check_plans(bench: DoubleBench) -> None:
    """Fail unless arguments that no transform accepts are refused with their names."""
    module = bench.module
    for name, values, words in (
        ("plan1d", (0, module.C2C, 1), "nx needs to be at least 1, got 0"),
        ("plan1d", (4, module.C2C, 0), "batch needs to be at least 1, got 0"),
        ("plan2d", (4, -1, module.R2C), "ny needs to be at least 1, got -1"),
        ("plan3d", (4, 1, 0, module.Z2Z), "nz needs to be at least 1, got 0"),
        ("plan1d", (4, 7, 1), "type"),
        ("plan_many", (0, [4], None, 1, 4, None, 1, 4, module.C2C, 1), "rank needs to be 1, 2 or 3, got 0"),
        ("plan_many", (4, [4] * 4, None, 1, 4, None, 1, 4, module.C2C, 1), "rank needs to be 1, 2 or 3, got 4"),
        ("plan_many", (2, [4, 0], None, 1, 4, None, 1, 4, module.C2C, 1), r"n\[1\] needs to be at least 1, got 0"),
        ("plan_many", (1, [4], [4], 1, 4, None, 1, 4, module.C2C, 1), "onembed is None and inembed is not"),
        ("plan_many", (1, [4], [0], 1, 4, [4], 1, 4, module.C2C, 1), r"inembed\[0\] needs to be at least 1, got 0"),
        ("plan_many", (1, [4], [4], 0, 4, [4], 1, 4, module.C2C, 1), "istride needs to be at least 1, got 0"),
        ("plan_many", (1, [4], [4], 1, 4, [4], -1, 4, module.C2C, 1), "ostride needs to be at least 1, got -1"),
        ("plan_many", (1, [4], [4], 1, -4, [4], 1, 4, module.C2C, 2), "idist needs to be at least 0, got -4"),
        ("plan_many", (1, [4], [4], 1, 4, [4], 1, 0, module.C2C, 2), "odist needs to be at least 1, got 0"),
    ):
        with pytest.raises(ArgumentError, match=f"^{bench.library.name}.{name}: {words}"):
            getattr(module, name)(*values, device=bench.device)
    with pytest.raises(ExtentError, match="n needs 2 values"):
        module.plan_many(2, [4], None, 1, 4, None, 1, 4, module.C2C, 1, device=bench.device)
    if bench.device.startswith("sim"):
        plan = module.plan1d(4, module.C2C, 1, device=bench.device)
        offload_args.testing.sim_device(index=1)
        x = np.zeros(4, np.complex64)
        with offload_args.offload_args(x, device="sim:1") as (dx,):
            with pytest.raises(
                WrongDeviceError,
                match="idata is on sim:1, needs to be on sim:0, the device of the object that the call takes",
            ):
                module.exec_c2c(plan, dx, dx, module.FORWARD)


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Execute plans of many layouts, in and out of place; then try arguments that do not fit."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    for turn in range(12 * turns):
        check_layout(bench, function, random, turn)
        check_in_place(bench, function, random)
    check_wrong(bench, function)
    check_plans(bench)
