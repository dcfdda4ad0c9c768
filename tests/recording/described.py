"""Checks functions whose extents descriptors say: what arrives, and which arrays, descriptors and sizes are refused.

All descriptors of the double describe as many elements of float32, and its queries say as many bytes.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from bindings.descriptors import Factor, GivenPlace, Integers, Nothing, OptionalObject, Real, Room
from bindings.expressions import names_in
from bindings.helper_functions import Given, Integer, Object
from bindings.parameters import Array, DataType, EnumValue, Handle, Number, Parameter, Size, Stream
from doubles.recording import ELEMENTS, NEEDED, shape_of
from offload_args.errors import DTypeError, ExtentError
from recording import legal
from recording.arrival import width
from recording.bench import DoubleBench
from recording.legal import roles
from recording.recorder import Argument, Wish
from recording.services import destroy, new_object

NBYTES = 4 * ELEMENTS
LISTED = 16


def value_of(bench: DoubleBench, one: Parameter, at: int) -> Any:
    """Return an argument for a parameter that is not an array."""
    match one:
        case Object():
            return new_object(bench, one.object_kind, in_c=False)
        case DataType():
            return next(value for _, value, dtype in one.enum.dtypes if dtype == "f32")
        case EnumValue():
            return one.enum.values[at % len(one.enum.values)][1]
        case Size():
            return NBYTES if one.c_type == "size_t" else 2
        case Integer():
            return at + 1
        case Integers():
            return [1] * LISTED
        case Number() | Real():
            return at + 0.5
    raise NotImplementedError(one.name)


def array_of(function: roles.Function, one: Array) -> Any:
    """Return an array as large as a call needs it."""
    objects = {other.name: shape_of(other.object_kind) for other in function.parameters if isinstance(other, Object)}
    size, needed = ELEMENTS, one.extent.arguments[0] if one.extent.kind == "elements" else None
    if needed and names_in(needed) <= set(objects):
        size = max(size, eval(ast.unparse(needed), {}, objects))  # of the project's own roles
    return np.zeros(size, legal.numpy_dtype("f32" if one.of or one.dtype == "any" else one.dtype))


def check_argument(where: str, one: Parameter, value: Any, argument: Argument) -> None:
    match one:
        case Handle() | Stream() | Given():
            assert argument.address, where
        case Nothing():
            assert not argument.address, where
        case Factor():
            assert argument.behind == np.float32(value).tobytes(), f"{where}: got {argument.behind!r}"
        case Integers():
            assert argument.behind == np.array(value, np.int32).tobytes(), where
        case Room() if one.is_workspace and value is None:
            assert argument.address, where
        case Array() | Object():
            assert argument.address == (value.address if value is not None else 0), where
        case Real():
            assert argument.value == np.float64(value).tobytes(), where
        case EnumValue() | Integer() | Size():
            assert argument.integer == value, f"{where}: got {argument.integer}, not {value}"
        case _:
            raise NotImplementedError(where)


def legal_values(bench: DoubleBench, function: roles.Function, full: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a legal call but for its arrays, and these; full: nothing is left out that may be."""
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for at, one in enumerate(function.parameters):
        may_lack = getattr(one, "optional", False) or getattr(one, "is_workspace", False)
        if isinstance(one, Given):
            continue
        if isinstance(one, Array) and (full or not may_lack):
            arrays[one.name] = array_of(function, one)
        elif isinstance(one, Array) or (isinstance(one, OptionalObject) and not full):
            values[one.name] = None
        else:
            values[one.name] = value_of(bench, one, at)
    return values, arrays


def called(bench: DoubleBench, function: roles.Function, values: dict[str, Any], pointers: dict[str, Any]) -> Any:
    given = values | pointers
    names = [one.name for one in function.parameters if not isinstance(one, Given)]
    return getattr(bench.module, function.name)(*(given[name] for name in names))


def check_arrival(bench: DoubleBench, function: roles.Function, full: bool) -> None:
    """Call a function by Python; fail unless its arguments arrive."""
    values, arrays = legal_values(bench, function, full)
    parameters = legal.vendors_parameters(bench.library, function)
    wishes = {at: Wish(peek=4) for at, (_, _, one) in enumerate(parameters) if isinstance(one, Factor)}
    wishes |= {at: Wish(peek=4 * LISTED) for at, (_, _, one) in enumerate(parameters) if isinstance(one, Integers)}
    with bench.lent(arrays) as pointers:
        for pointer in pointers.values():
            assert pointer.address
        bench.recorder.reset(wishes)
        called(bench, function, values, pointers)
        records = bench.recorder.records(own=True)
        record = next(one for one in records if one.symbol == function.symbol)
        room = next((one for one in function.arrays if isinstance(one, Room) and one.is_workspace), None)
        if room and not full:  # then the size is the library's own
            values[room.extent.arguments[0].id] = NEEDED  # type: ignore[attr-defined]
        given = values | pointers
        for output, array in room.query.beside if room and room.query else ():
            names = [name for name, _ in bench.library.api["functions"][room.query.symbol]["parameters"]]
            asked = [one.arguments[names.index(output)] for one in records if one.symbol == room.query.symbol]
            assert all(one.address for one in asked) == (given[array] is not None), output
        for (label, c_type, one), argument in zip(parameters, record.arguments, strict=True):
            where = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), where
            check_argument(where, one, given.get(one.name), argument)
    destroy(bench, function, values, in_c=False)


def refused(bench: DoubleBench, function: roles.Function, changed: str, array: Any, error: Any, words: str) -> None:
    """Fail unless a call with another array, or another value, is refused before the library is called."""
    values, arrays = legal_values(bench, function, full=True)
    (arrays if changed in arrays else values)[changed] = array
    with bench.lent(arrays) as pointers:
        bench.recorder.reset({})
        before = bench.counts()
        with pytest.raises(error, match=words):
            called(bench, function, values, pointers)
        symbols = [one.symbol for one in bench.recorder.records(own=True)]
        assert function.symbol not in symbols, f"{changed}: the library was called"
        if error is not ExtentError or "bytes, as" not in words:
            assert bench.counts() == before, changed
    destroy(bench, function, values, in_c=False)


def check_answers(bench: DoubleBench, function: roles.Function) -> None:
    """Fail unless the library is asked for a workspace once, until a descriptor is set or its address is given away."""
    room = next((one for one in function.arrays if isinstance(one, Room) and one.query and one.is_workspace), None)
    objects = [one for one in function.parameters if isinstance(one, Object)]
    if room is None or any(isinstance(one, Integers) for one in function.parameters):
        return
    asked = {one.id for one in room.query.arguments if isinstance(one, ast.Name)}
    values, arrays = legal_values(bench, function, full=True)
    del arrays[room.name]
    values[room.name] = None

    def asks() -> bool:
        bench.recorder.reset({})
        called(bench, function, values, pointers)
        return room.query.symbol in [one.symbol for one in bench.recorder.records(own=True)]

    with bench.lent(arrays) as pointers:
        asks()
        assert not asks(), f"{function.symbol}: asks twice"
        if function.name == "convolution_forward":
            bench.module.set_convolution_group_count(values["convDesc"], 2)
            assert asks()
            assert not asks()
        for one in objects:
            if one.name in asked:
                assert values[one.name].address
                assert asks(), f"{function.symbol}: {one.name} may have changed"
                assert asks(), f"{function.symbol}: {one.name} may have changed again"
                break
    destroy(bench, function, values, in_c=False)


def check_descriptors(bench: DoubleBench, function: roles.Function) -> None:
    """Fail unless the library is asked for a descriptor once, until its address is given away."""
    first = next((one.by for one in function.arrays if one.by), None)
    if first is None or any(isinstance(one, Given) for one in function.parameters):  # which may change its objects
        return
    described = next(one for one in function.parameters if one.name == first)
    assert isinstance(described, Object)
    asked = described.object_kind.describes[0]
    values, arrays = legal_values(bench, function, full=True)

    def times() -> int:
        bench.recorder.reset({})
        called(bench, function, values, pointers)
        return [one.symbol for one in bench.recorder.records(own=True)].count(asked)

    with bench.lent(arrays) as pointers:
        assert times() > 0, f"{function.symbol}: never asks for {first}"
        assert times() == 0, f"{function.symbol}: asks for {first} twice"
        assert values[first].address
        assert times() == 1, f"{function.symbol}: {first} may have changed"
        assert times() == 1, f"{function.symbol}: {first} may have changed again"
    destroy(bench, function, values, in_c=False)


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Check a function with all that it may take, and with no more than it needs; then with what does not fit."""
    for turn in range(turns):
        if any(not getattr(one, "optional", False) for one in function.arrays) or turn % 2 == 0:
            check_arrival(bench, function, full=turn % 2 == 0)
    for one in function.arrays:
        if one.by:
            short, other = np.zeros(ELEMENTS - 1, np.float32), np.zeros(ELEMENTS, np.float16)
            refused(bench, function, one.name, short, ExtentError, rf"{one.name} needs {ELEMENTS} elements .*{one.by}=")
            refused(bench, function, one.name, other, DTypeError, f"{one.name} needs float32, as {one.by} says")
        elif isinstance(one, Room):
            size = one.extent.arguments[0]
            short = np.zeros(NBYTES - 1, np.uint8)
            if getattr(size, "id", ""):
                refused(bench, function, one.name, short, ExtentError, f"{one.name} needs {NBYTES} elements")
            if one.query:
                words = f"{one.name} needs {NEEDED} bytes, as {one.query.symbol}"
                refused(bench, function, size.id, NEEDED - 1, ExtentError, words)  # type: ignore[attr-defined]
    check_answers(bench, function)
    check_descriptors(bench, function)
    assert not any(isinstance(one, GivenPlace) for one in function.arrays)
