"""Checks which arrays a call has brought up and down, and that rights which forbid what it does are refused."""

from __future__ import annotations

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
    names = call.library.constants | call.integers | call.numbers
    if one.direction != "out" and not (one.overwrites and legal.value(one.overwrites, names)):
        return False
    dimensions = [size for array in call.function.arrays for size in array.extent.sizes]
    empty = any(legal.value(size, names) <= 0 for size in dimensions)
    return not empty and len(np.unique(call.touched[one.name])) == call.needs(one.name)


def check_moves(bench: Bench, call: Call, random: np.random.Generator) -> None:
    """Fail unless exactly the arrays that the call reads come up, and those that it writes come down."""
    arrays = bench.arrays(call, Form())
    for array in arrays.values():
        array.view(np.uint8)[:] = random.integers(0, 256, array.nbytes, np.uint8)
    before = {name: array.tobytes() for name, array in arrays.items()}
    up = down = 0
    for one in call.function.arrays:
        if len(call.touched[one.name]):
            up += arrays[one.name].nbytes * (not is_overwritten(call, one))
            down += arrays[one.name].nbytes * (not one.is_read_only)
    with offload_args.testing.counting(offload_args.Device(bench.device)) as moved, bench.lent(arrays) as pointers:
        bench.by_python(call, pointers)
    assert (moved.bytes_up, moved.bytes_down) == (up, down), f"{moved.bytes_up=} {up=} {moved.bytes_down=} {down=}"
    for one in call.function.arrays:
        if not is_overwritten(call, one):  # the double writes nothing
            assert arrays[one.name].tobytes() == before[one.name], f"{one.name} has changed"


def check_rights(bench: Bench, call: Call) -> None:
    """Fail unless an In that would be written and an Out that would be read are refused."""
    for one in call.function.arrays:
        if not len(call.touched[one.name]):
            continue
        refused: list[Any] = []
        if not one.is_read_only:
            refused.append(offload_args.In)
        if not is_overwritten(call, one):
            refused.append(offload_args.Out)
        for direction in refused:
            arrays = bench.arrays(call, Form())
            lent = arrays | {one.name: direction(arrays[one.name])}
            before = bench.counts()
            try:
                with bench.lent(lent) as pointers:
                    bench.by_python(call, pointers)
            except DirectionError as error:
                assert str(error).startswith(f"{bench.library.name}.{call.function.name}: {one.name} "), error
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
                call.numbers[one.name] = 0.0
        if isinstance(bench, DoubleBench):
            bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with naming(call, Form()):
            check_moves(bench, call, random)
            check_rights(bench, call)
