"""Checks which arrays a call has brought up and down, and that rights which forbid what it does are refused."""

from __future__ import annotations

import ast
import zlib
from typing import Any

import numpy as np

import offload_args
from bindings.parameters import Array
from offload_args.errors import DirectionError, UnwrittenWarning
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles


def is_only_written(call: Call, array_: Array) -> bool:
    """Return whether the call writes elements of an array without reading one."""
    return array_.direction == "out" or bool(array_.overwrites and legal.value(array_.overwrites, call.names))


def is_overwritten(call: Call, array_: Array) -> bool:
    """Return whether the call writes every element of a tight array without reading one."""
    names = call.names
    if not is_only_written(call, array_):
        return False
    if array_.extent.batch and array_.extent.kind == "vector":
        n, inc = (legal.value(argument, names) for argument in array_.extent.arguments)
        if n > 1 and inc == 0:  # the core does not look so closely
            return False
    # A product of matrices writes its result, of zeros, where the inner dimension is 0.
    overwrites = ast.unparse(array_.overwrites) if array_.overwrites else ""
    is_product = array_.extent.kind == "matrix" and overwrites.endswith("== 0")
    arrays = [array_] if is_product else call.function.arrays
    dimensions = [size for array in arrays for size in array.extent.sizes]
    empty = any(names[name] <= 0 for size in dimensions for name in sizes_in(size))
    return not empty and len(np.unique(call.touched[array_.name])) == call.needs(array_.name)


def sizes_in(dimension: ast.expr) -> set[str]:
    """Return the sizes that a dimension may be: with one of them 0, a vendor's function may write nothing."""
    if isinstance(dimension, ast.IfExp):
        return sizes_in(dimension.body) | sizes_in(dimension.orelse)
    return {dimension.id} if isinstance(dimension, ast.Name) else set()


def flat(arrays: dict[str, Any]) -> list[Any]:
    """Return all arrays, those of lists among them."""
    return [element for array in arrays.values() for element in (array if isinstance(array, list) else [array])]


def check_moves(bench: Bench, call: Call, random: np.random.Generator) -> None:
    """Fail unless exactly the arrays that the call reads come up, and those that it writes come down."""
    arrays = bench.arrays(call, Form())
    for array in flat(arrays):
        array.view(np.uint8)[:] = random.integers(0, 256, array.nbytes, np.uint8)
    before = {name: [part.tobytes() for part in flat({name: array})] for name, array in arrays.items()}
    up = 8 * max(sum(map(len, call.many.values())), 1) if call.many and call.reaches_the_vendor else 0  # addresses
    down = 0
    for array_ in call.function.arrays:
        if len(call.touched[array_.name]):
            nbytes = sum(array.nbytes for array in flat({array_.name: arrays[array_.name]}))
            # A triangle of one element goes up, too: the core does not look so closely.
            up += nbytes * (not is_overwritten(call, array_) or array_.extent.kind == "triangle")
            down += nbytes * (not array_.is_read_only)
    with offload_args.testing.counting(offload_args.Device(bench.device)) as moved, bench.lent(arrays) as pointers:
        bench.by_python(call, pointers)
    assert (moved.bytes_up, moved.bytes_down) == (up, down), f"{moved.bytes_up=} {up=} {moved.bytes_down=} {down=}"
    for array_ in call.function.arrays:
        if array_.name not in call.absent and not is_overwritten(call, array_):  # the double writes nothing
            now = [array.tobytes() for array in flat({array_.name: arrays[array_.name]})]
            assert now == before[array_.name], f"{array_.name} has changed"


def check_rights(bench: Bench, call: Call) -> None:
    """Fail unless an In that would be written and an Out that would be read are refused.

    An Out of which the call writes a part is either refused, too, or it warns of the rest when it ends.
    """
    for array in call.function.arrays:
        if not len(call.places(array.name)):
            continue
        refused: list[Any] = []
        if not array.is_read_only:
            refused.append(offload_args.In)
        if not is_overwritten(call, array):
            refused.append(offload_args.Out)
        for direction in refused:
            arrays = bench.arrays(call, Form())
            values = arrays[array.name]
            start = f"{bench.library.name}.{call.function.name}: {array.name}{'[0]' * (array.name in call.many)} "
            changed = [direction(values[0]), *values[1:]] if array.name in call.many else direction(values)
            lent = arrays | {array.name: changed}
            before = bench.counts()
            try:
                with bench.lent(lent) as pointers:
                    bench.by_python(call, pointers)
            except DirectionError as error:
                assert str(error).startswith(start), error
            except UnwrittenWarning as warning:
                assert "only a part was written" in str(warning), warning
                assert direction is offload_args.Out and is_only_written(call, array), f"{array.name} was read"
                continue
            else:
                raise AssertionError(f"{array.name}, lent as {direction.__name__}, was taken")
            assert bench.counts() == before


def check(bench: Bench, function: roles.Function, turns: int) -> None:
    """Call a function `turns` times, with scalars that are zero and others that are not."""
    random = np.random.default_rng(zlib.crc32(f"movement {function.name}".encode()))
    for turn in range(turns):
        call = legal.draw(bench.library, function, random)
        for scalar in function.of("scalar"):
            if turn % 2 and scalar.count == 1:
                call.numbers[scalar.name] = 0
        if isinstance(bench, DoubleBench):
            bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with naming(call, Form()):
            check_moves(bench, call, random)
            check_rights(bench, call)
