"""Checks that two operands in one array are refused exactly if the call writes an element that both operands have."""

from __future__ import annotations

import zlib
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bindings.parameters import Array
from offload_args.errors import AliasError
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles


class Operand(NamedTuple):
    """An array of a call, or the array with a given index in a list."""

    array: Array
    at: int | None

    def put(self, pointers: dict[str, Any], pointer: Any) -> None:
        """Pass a pointer for this operand."""
        if self.at is None:
            pointers[self.array.name] = pointer
        else:
            pointers[self.array.name][self.at] = pointer

    def __str__(self) -> str:
        return self.array.name if self.at is None else f"{self.array.name}[{self.at}]"


def same_elements(call: Call, a: Array, b: Array) -> bool:
    """Return whether two operands that begin at the same place have the same elements in the same order."""
    names = call.names
    kinds = [
        (operand.extent.kind, [legal.value(size, names) for size in operand.extent.expressions]) for operand in (a, b)
    ]
    if not a.extent.batch and all(kind == "vector" and sizes[0] == 1 for kind, sizes in kinds):
        return True  # the increment of one element has no meaning
    return kinds[0] == kinds[1]


def is_unused(call: Call, array: Array) -> bool:
    """Return whether an operand is only a diagonal that counts as ones. A library may read it, but without effect."""
    sizes = {"triangle": slice(1, 2), "band_triangle": slice(1, 3), "packed": slice(1, 2)}.get(array.extent.kind)
    if sizes is None or not array.extent.leaves_out_the_diagonal:
        return False
    _, *rest = values = [legal.value(expression, call.names) for expression in array.extent.arguments]
    n, *k = values[sizes]
    return bool(rest[-1]) and (n <= 1 or k == [0])


def is_refused(call: Call, operand: Operand, other: Operand, apart: int) -> bool:
    """Return whether a call must be refused if its second operand begins `apart` elements after its first."""
    a, b = operand.array, other.array
    if is_unused(call, a) or is_unused(call, b):
        return False
    places, others = call.places(a.name, operand.at or 0), call.places(b.name, other.at or 0)
    if not np.intersect1d(places, others + apart).size:
        return False
    allowed = all(array.in_place_if is None or legal.value(array.in_place_if, call.names) for array in (a, b))
    in_place = b.name in a.in_place and a.name in b.in_place and allowed and operand.at == other.at
    if a.in_place_at or b.in_place_at:  # one operand is a part of the other
        at = legal.value(b.in_place_at, call.names) if b.in_place_at else -legal.value(a.in_place_at, call.names)
        return not (in_place and apart == at)
    return not (in_place and apart == 0 and same_elements(call, a, b))


def is_tangled(call: Call, array: Array) -> bool:
    """Return whether the parts of a batch overlap; then all bytes from the first to the last count as touched."""
    if not array.extent.batch:
        return False
    names = call.names
    stride, count = (legal.value(expression, names) for expression in array.extent.batch)
    return count > 1 and count * stride < call.needs(array.name)


def check_pair(bench: Bench, call: Call, first: Operand, other: Operand, apart: int) -> None:
    """Make a call with two operands in one array; fail if the call is wrongly accepted or refused."""
    size = [call.needs(operand.array.name, operand.at or 0) for operand in (first, other)]
    begin, taken = max(0, -apart), True
    both = np.zeros(max(begin + size[0], begin + apart + size[1]), legal.numpy_dtype(first.array.dtype))
    with bench.lent(bench.arrays(call, Form()) | {"both": both}) as pointers:
        shared = pointers.pop("both")
        first.put(pointers, shared[begin : begin + size[0]])
        other.put(pointers, shared[begin + apart : begin + apart + size[1]])
        try:
            bench.by_python(call, pointers)
        except AliasError as error:
            taken = False
            assert str(error).startswith(f"{bench.library.name}.{call.function.name}: "), error
            assert {str(first), str(other)} <= set(str(error).replace(";", " ").split()), error
    refused = is_refused(call, first, other, apart)
    if refused or not any(is_tangled(call, operand.array) for operand in (first, other)):
        said = "refused" if refused else "taken"
        assert taken != refused, f"{other} {apart} elements behind {first} has to be {said}"


def pairs(call: Call, random: np.random.Generator) -> list[tuple[Operand, Operand]]:
    """Return all pairs of operands of one dtype of which one is written; lists give random arrays for such pairs."""
    operands = []
    for array in call.function.arrays:
        if call.needs(array.name):
            count = len(call.many[array.name]) if array.name in call.many else None
            chosen = [None] if count is None else random.permutation(count)[:2].tolist()
            operands += [Operand(array, at) for at in chosen if call.needs(array.name, at or 0)]
    return [
        (first, other)
        for first, other in combinations(operands, 2)
        if first.array.dtype == other.array.dtype and not (first.array.is_read_only and other.array.is_read_only)
    ]


def check(bench: Bench, function: roles.Function, turns: int) -> None:
    """For each pair of operands, one of which is written, put both into one array at random places, `turns` times."""
    random = np.random.default_rng(zlib.crc32(f"overlap {function.name}".encode()))
    for turn in range(turns):
        call = legal.draw(bench.library, function, random, least=1)
        for first, other in pairs(call, random):
            low, high = -call.needs(other.array.name, other.at or 0), call.needs(first.array.name, first.at or 0)
            apart = int(random.integers(low, high + 1)) if turn % 3 else 0
            if isinstance(bench, DoubleBench):
                bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
            with naming(call, Form()):
                check_pair(bench, call, first, other, apart)
