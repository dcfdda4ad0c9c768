"""Checks which arrays a call copies up and down, and that In and Out are refused if the call needs more."""

from __future__ import annotations

import ast
import itertools
import zlib
from typing import Any

import numpy as np

import offload_args
from bindings.parameters import Array
from offload_args.errors import DirectionError, UnwrittenWarning
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles

LINES = ("vector", "matrix", "elements")  # kinds of extents whose parts the core can recognize


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
        if n > 1 and inc == 0:  # the core does not examine this
            return False
    return not may_be_left(call, array_) and len(np.unique(call.touched[array_.name])) == call.needs(array_.name)


def may_be_left(call: Call, array_: Array) -> bool:
    """Return whether a size is 0 with which a vendor's function may write nothing."""
    # A product of matrices with inner dimension 0 writes zeros to its result.
    overwrites = ast.unparse(array_.overwrites) if array_.overwrites else ""
    is_product = array_.extent.kind == "matrix" and overwrites.endswith("== 0")
    arrays = [array_] if is_product else call.function.arrays
    dimensions = [size for array in arrays for size in array.extent.sizes]
    return any(call.names[name] <= 0 for size in dimensions for name in sizes_in(size))


def ways(call: Call, array_: Array, lent: list[Any]) -> list[tuple[int, int]]:
    """Return the bytes of arrays that are copied up and down: one pair, or two if the core may not recognize a part."""
    nbytes = sum(array.nbytes for array in lent)
    whole = (nbytes, 0 if array_.is_read_only else nbytes)
    # The core copies even a triangle of one element up.
    if is_overwritten(call, array_) and array_.extent.kind != "triangle":
        return [(0, whole[1])]
    if not is_only_written(call, array_) or array_.extent.kind not in LINES:
        return [whole]
    places = call.many.get(array_.name, [call.touched[array_.name]])
    part = (0, sum(array.itemsize * len(np.unique(offsets)) for array, offsets in zip(lent, places, strict=True)))
    certain = array_.extent.kind == "vector" and not array_.extent.batch and not may_be_left(call, array_)
    return [part] if certain else [part, whole]


def sizes_in(dimension: ast.expr) -> set[str]:
    """Return the sizes in a dimension. If one of them is 0, a vendor's function may write nothing."""
    if isinstance(dimension, ast.IfExp):
        return sizes_in(dimension.body) | sizes_in(dimension.orelse)
    return {dimension.id} if isinstance(dimension, ast.Name) else set()


def flat(arrays: dict[str, Any]) -> list[Any]:
    """Return all arrays, including the arrays in lists."""
    return [element for array in arrays.values() for element in (array if isinstance(array, list) else [array])]


def check_moves(bench: Bench, call: Call, random: np.random.Generator) -> None:
    """Fail unless exactly the arrays that the call reads are copied up, and exactly the written arrays down."""
    arrays = bench.arrays(call, Form())
    for array in flat(arrays):
        array.view(np.uint8)[:] = random.integers(0, 256, array.nbytes, np.uint8)
    before = {name: [part.copy() for part in flat({name: array})] for name, array in arrays.items()}
    up = 8 * max(sum(map(len, call.many.values())), 1) if call.many and call.reaches_the_vendor else 0  # addresses
    each = [
        ways(call, array_, flat({array_.name: arrays[array_.name]}))
        for array_ in call.function.arrays
        if len(call.touched[array_.name])
    ]
    expected = {(up + sum(a for a, _ in chosen), sum(b for _, b in chosen)) for chosen in itertools.product(*each)}
    with offload_args.testing.counting(offload_args.Device(bench.device)) as moved, bench.lent(arrays) as pointers:
        bench.by_python(call, pointers)
    assert (moved.bytes_up, moved.bytes_down) in expected, f"{moved.bytes_up=} {moved.bytes_down=} {expected=}"
    for array_ in call.function.arrays:
        if array_.name in call.absent or is_overwritten(call, array_):
            continue
        # The double writes nothing, so a part that is copied down alone has the previous bytes of the device memory.
        written = is_only_written(call, array_) and array_.extent.kind in LINES
        places = call.many.get(array_.name, [call.touched[array_.name]])
        for array, old, part in zip(flat({array_.name: arrays[array_.name]}), before[array_.name], places, strict=True):
            kept = np.ones(array.size, bool)
            kept[part] = not written
            assert array[kept].tobytes() == old[kept].tobytes(), f"{array_.name} has changed"


def check_rights(bench: Bench, call: Call) -> None:
    """Fail unless a call that would write an In or read an Out is refused.

    For an Out that the call writes only in part, either the call is refused, too, or the region warns about the rest
    when it ends.
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
    """Call a function `turns` times, with zero and nonzero scalars."""
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
