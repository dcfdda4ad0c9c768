"""Checks which arrays a call has brought up and down, and that rights which forbid what it does are refused."""

from __future__ import annotations

import ast
import zlib
from typing import Any

import numpy as np

import offload_args
from bindings.parameters import Array
from offload_args.errors import DirectionError
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles


def is_overwritten(call: Call, one: Array) -> bool:
    """Return whether the call writes every element of a tight array without reading one."""
    names = call.names
    if one.direction != "out" and not (one.overwrites and legal.value(one.overwrites, names)):
        return False
    if one.extent.batch and one.extent.kind == "vector":
        n, inc = (legal.value(argument, names) for argument in one.extent.arguments)
        if n > 1 and inc == 0:  # the core does not look so closely
            return False
    dimensions = [size for array in call.function.arrays for size in array.extent.sizes]
    empty = any(names[name] <= 0 for size in dimensions for name in sizes_in(size))
    return not empty and len(np.unique(call.touched[one.name])) == call.needs(one.name)


def sizes_in(dimension: ast.expr) -> set[str]:
    """Return the sizes that a dimension may be: with one of them 0, a vendor's function may write nothing."""
    if isinstance(dimension, ast.IfExp):
        return sizes_in(dimension.body) | sizes_in(dimension.orelse)
    return {dimension.id} if isinstance(dimension, ast.Name) else set()


def flat(arrays: dict[str, Any]) -> list[Any]:
    """Return all arrays, those of lists among them."""
    return [one for array in arrays.values() for one in (array if isinstance(array, list) else [array])]


def check_moves(bench: Bench, call: Call, random: np.random.Generator) -> None:
    """Fail unless exactly the arrays that the call reads come up, and those that it writes come down."""
    arrays = bench.arrays(call, Form())
    for array in flat(arrays):
        array.view(np.uint8)[:] = random.integers(0, 256, array.nbytes, np.uint8)
    before = {name: [one.tobytes() for one in flat({name: array})] for name, array in arrays.items()}
    up = 8 * max(sum(map(len, call.many.values())), 1) if call.many and call.reaches_the_vendor else 0  # addresses
    down = 0
    for one in call.function.arrays:
        if len(call.touched[one.name]):
            nbytes = sum(array.nbytes for array in flat({one.name: arrays[one.name]}))
            up += nbytes * (not is_overwritten(call, one))
            down += nbytes * (not one.is_read_only)
    with offload_args.testing.counting(offload_args.Device(bench.device)) as moved, bench.lent(arrays) as pointers:
        bench.by_python(call, pointers)
    assert (moved.bytes_up, moved.bytes_down) == (up, down), f"{moved.bytes_up=} {up=} {moved.bytes_down=} {down=}"
    for one in call.function.arrays:
        if one.name not in call.absent and not is_overwritten(call, one):  # the double writes nothing
            now = [array.tobytes() for array in flat({one.name: arrays[one.name]})]
            assert now == before[one.name], f"{one.name} has changed"


def check_rights(bench: Bench, call: Call) -> None:
    """Fail unless an In that would be written and an Out that would be read are refused."""
    for one in call.function.arrays:
        if not len(call.places(one.name)):
            continue
        refused: list[Any] = []
        if not one.is_read_only:
            refused.append(offload_args.In)
        if not is_overwritten(call, one):
            refused.append(offload_args.Out)
        for direction in refused:
            arrays = bench.arrays(call, Form())
            given = arrays[one.name]
            start = f"{bench.library.name}.{call.function.name}: {one.name}{'[0]' * (one.name in call.many)} "
            changed = [direction(given[0]), *given[1:]] if one.name in call.many else direction(given)
            lent = arrays | {one.name: changed}
            before = bench.counts()
            try:
                with bench.lent(lent) as pointers:
                    bench.by_python(call, pointers)
            except DirectionError as error:
                assert str(error).startswith(start), error
            else:
                raise AssertionError(f"{one.name}, lent as {direction.__name__}, was taken")
            assert bench.counts() == before


def check(bench: Bench, function: roles.Function, turns: int) -> None:
    """Call a function `turns` times, with scalars that are zero and others that are not."""
    random = np.random.default_rng(zlib.crc32(f"movement {function.name}".encode()))
    for turn in range(turns):
        call = legal.draw(bench.library, function, random)
        for one in function.of("scalar"):
            if turn % 2 and one.count == 1:
                call.numbers[one.name] = 0
        if isinstance(bench, DoubleBench):
            bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with naming(call, Form()):
            check_moves(bench, call, random)
            check_rights(bench, call)
