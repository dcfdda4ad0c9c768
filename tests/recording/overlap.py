"""Checks that two operands in one array are refused exactly if an element is written that the other one has, too."""

from __future__ import annotations

import zlib
from itertools import combinations

import numpy as np

from bindings.parameters import Array
from offload_args.errors import AliasError
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles


def same_elements(call: Call, a: Array, b: Array) -> bool:
    """Return whether two operands that begin at one place have the same element at each place."""
    names = call.library.constants | call.integers
    kinds = [(one.extent.kind, [legal.value(argument, names) for argument in one.extent.expressions]) for one in (a, b)]
    if all(kind == "vector" and arguments[0] == 1 for kind, arguments in kinds):
        return True
    return kinds[0] == kinds[1]


def is_refused(call: Call, a: Array, b: Array, apart: int) -> bool:
    """Return whether a call is wrong whose second operand begins `apart` elements behind its first one."""
    if not np.intersect1d(call.touched[a.name], call.touched[b.name] + apart).size:
        return False
    in_place = a.in_place == b.name and b.in_place == a.name
    return not (in_place and apart == 0 and same_elements(call, a, b))


def is_tangled(call: Call, one: Array) -> bool:
    """Return whether the parts of a batch lie in each other: then all between them counts as touched."""
    if not one.extent.batch:
        return False
    names = call.library.constants | call.integers
    stride, count = (legal.value(expression, names) for expression in one.extent.batch)
    return count > 1 and (count - 1) * stride + stride > call.needs(one.name)


def check_pair(bench: Bench, call: Call, a: Array, b: Array, apart: int) -> None:
    """Make a call with two operands in one array; fail if it is taken or refused wrongly."""
    arrays = bench.arrays(call, Form())
    size = [arrays.pop(one.name).size for one in (a, b)]
    first = max(0, -apart)
    arrays["both"] = np.zeros(max(first + size[0], first + apart + size[1]), legal.numpy_dtype(a.dtype))
    refused, taken = is_refused(call, a, b, apart), True
    with bench.lent(arrays) as pointers:
        both = pointers.pop("both")
        pointers[a.name] = both[first : first + size[0]]
        pointers[b.name] = both[first + apart : first + apart + size[1]]
        try:
            bench.by_python(call, pointers)
        except AliasError as error:
            taken = False
            assert str(error).startswith(f"{bench.library.name}.{call.function.name}: "), error
            assert {a.name, b.name} <= set(str(error).replace(";", " ").split()), error
    if not any(is_tangled(call, one) for one in (a, b)) or refused:
        said = "refused" if refused else "taken"
        assert taken != refused, f"{b.name} {apart} elements behind {a.name} has to be {said}"


def check(bench: Bench, function: roles.Function, turns: int) -> None:
    """Put each two operands of a function, one of which is written, into one array, `turns` times, at random places."""
    random = np.random.default_rng(zlib.crc32(f"overlap {function.name}".encode()))
    pairs = [
        (a, b)
        for a, b in combinations(function.arrays, 2)
        if a.dtype == b.dtype and not (a.is_read_only and b.is_read_only)
    ]
    for a, b in pairs:
        for turn in range(turns):
            call = legal.draw(bench.library, function, random, least=1)
            if not call.needs(a.name) or not call.needs(b.name):
                continue
            apart = int(random.integers(-call.needs(b.name), call.needs(a.name) + 1)) if turn % 3 else 0
            if isinstance(bench, DoubleBench):
                bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
            with naming(call, Form()):
                check_pair(bench, call, a, b, apart)
