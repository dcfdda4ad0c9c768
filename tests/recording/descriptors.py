"""Checks functions whose descriptors determine extents: which arguments arrive, and which are refused.

All descriptors of the double describe the same number of float32 elements, and all its queries return the same number
of bytes.
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
from recording.helper_functions import destroy, new_object
from recording.legal import roles
from recording.recorder import Argument, Wish

NBYTES = 4 * ELEMENTS
LISTED = 16


def value_of(bench: DoubleBench, parameter: Parameter, at: int) -> Any:
    """Return an argument for a parameter that is not an array."""
    match parameter:
        case Object():
            return new_object(bench, parameter.object_kind, in_c=False)
        case DataType():
            return next(value for _, value, dtype in parameter.enum.dtypes if dtype == "f32")
        case EnumValue():
            return parameter.enum.values[at % len(parameter.enum.values)][1]
        case Size():
            return NBYTES if parameter.c_type == "size_t" else 2
        case Integer():
            return at + 1
        case Integers():
            return [1] * LISTED
        case Number() | Real():
            return at + 0.5
    raise NotImplementedError(parameter.name)


def array_of(function: roles.Function, array: Array) -> Any:
    """Return an array of exactly the size that a call needs."""
    objects = {other.name: shape_of(other.object_kind) for other in function.parameters if isinstance(other, Object)}
    size, needed = ELEMENTS, array.extent.arguments[0] if array.extent.kind == "elements" else None
    if needed and names_in(needed) <= set(objects):
        size = max(size, eval(ast.unparse(needed), {}, objects))  # an expression of the project's own roles
    return np.zeros(size, legal.numpy_dtype("f32" if array.of or array.dtype == "any" else array.dtype))


def check_argument(place: str, parameter: Parameter, value: Any, argument: Argument) -> None:
    match parameter:
        case Handle() | Stream() | Given():
            assert argument.address, place
        case Nothing():
            assert not argument.address, place
        case Factor():
            assert argument.behind == np.float32(value).tobytes(), f"{place}: got {argument.behind!r}"
        case Integers():
            assert argument.behind == np.array(value, np.int32).tobytes(), place
        case Room() if parameter.is_workspace and value is None:
            assert argument.address, place
        case Array() | Object():
            assert argument.address == (value.address if value is not None else 0), place
        case Real():
            assert argument.value == np.float64(value).tobytes(), place
        case EnumValue() | Integer() | Size():
            assert argument.integer == value, f"{place}: got {argument.integer}, not {value}"
        case _:
            raise NotImplementedError(place)


def legal_values(bench: DoubleBench, function: roles.Function, full: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a legal call without its arrays, and the arrays; full: with optional arguments."""
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for at, parameter in enumerate(function.parameters):
        may_lack = getattr(parameter, "optional", False) or getattr(parameter, "is_workspace", False)
        if isinstance(parameter, Given):
            continue
        if isinstance(parameter, Array) and (full or not may_lack):
            arrays[parameter.name] = array_of(function, parameter)
        elif isinstance(parameter, Array) or (isinstance(parameter, OptionalObject) and not full):
            values[parameter.name] = None
        else:
            values[parameter.name] = value_of(bench, parameter, at)
    return values, arrays


def called(bench: DoubleBench, function: roles.Function, values: dict[str, Any], pointers: dict[str, Any]) -> Any:
    arguments = values | pointers
    names = [parameter.name for parameter in function.parameters if not isinstance(parameter, Given)]
    return getattr(bench.module, function.name)(*(arguments[name] for name in names))


def check_arrival(bench: DoubleBench, function: roles.Function, full: bool) -> None:
    """Call a function by Python; fail unless its arguments arrive."""
    values, arrays = legal_values(bench, function, full)
    parameters = legal.vendors_parameters(bench.library, function)
    wishes = {at: Wish(peek=4) for at, (_, _, parameter) in enumerate(parameters) if isinstance(parameter, Factor)}
    wishes |= {
        at: Wish(peek=4 * LISTED) for at, (_, _, parameter) in enumerate(parameters) if isinstance(parameter, Integers)
    }
    with bench.lent(arrays) as pointers:
        for pointer in pointers.values():
            assert pointer.address
        bench.recorder.reset(wishes)
        called(bench, function, values, pointers)
        records = bench.recorder.records(own=True)
        record = next(record for record in records if record.symbol == function.symbol)
        room = next((array for array in function.arrays if isinstance(array, Room) and array.is_workspace), None)
        if room and not full:  # then the library's size is passed
            values[room.extent.arguments[0].id] = NEEDED  # type: ignore[attr-defined]
        arguments = values | pointers
        for output, array in room.query.beside if room and room.query else ():
            names = [name for name, _ in bench.library.api["functions"][room.query.symbol]["parameters"]]
            asked = [record.arguments[names.index(output)] for record in records if record.symbol == room.query.symbol]
            assert all(argument_.address for argument_ in asked) == (arguments[array] is not None), output
        for (label, c_type, parameter), argument in zip(parameters, record.arguments, strict=True):
            place = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), place
            check_argument(place, parameter, arguments.get(parameter.name), argument)
    destroy(bench, function, values, in_c=False)


def refused(bench: DoubleBench, function: roles.Function, changed: str, array: Any, error: Any, words: str) -> None:
    """Fail unless a call with a different array or value is refused before the library is called."""
    values, arrays = legal_values(bench, function, full=True)
    (arrays if changed in arrays else values)[changed] = array
    with bench.lent(arrays) as pointers:
        bench.recorder.reset({})
        before = bench.counts()
        with pytest.raises(error, match=words):
            called(bench, function, values, pointers)
        symbols = [record.symbol for record in bench.recorder.records(own=True)]
        assert function.symbol not in symbols, f"{changed}: the library was called"
        if error is not ExtentError or "bytes, as" not in words:
            assert bench.counts() == before, changed
    destroy(bench, function, values, in_c=False)


def check_answers(bench: DoubleBench, function: roles.Function) -> None:
    """Fail unless a workspace is queried only once until a descriptor is set or the descriptor's address is used."""
    room = next(
        (array for array in function.arrays if isinstance(array, Room) and array.query and array.is_workspace), None
    )
    objects = [parameter for parameter in function.parameters if isinstance(parameter, Object)]
    if room is None or any(isinstance(parameter, Integers) for parameter in function.parameters):
        return
    asked = {argument.id for argument in room.query.arguments if isinstance(argument, ast.Name)}
    values, arrays = legal_values(bench, function, full=True)
    del arrays[room.name]
    values[room.name] = None

    def asks() -> bool:
        bench.recorder.reset({})
        called(bench, function, values, pointers)
        return room.query.symbol in [record.symbol for record in bench.recorder.records(own=True)]

    with bench.lent(arrays) as pointers:
        asks()
        assert not asks(), f"{function.symbol}: asks twice"
        if function.name == "convolution_forward":
            bench.module.set_convolution_group_count(values["convDesc"], 2)
            assert asks()
            assert not asks()
        for object_ in objects:
            if object_.name in asked:
                assert values[object_.name].address
                assert asks(), f"{function.symbol}: {object_.name} may have changed"
                assert asks(), f"{function.symbol}: {object_.name} may have changed again"
                break
    destroy(bench, function, values, in_c=False)


def check_descriptors(bench: DoubleBench, function: roles.Function) -> None:
    """Fail unless the library is asked about a descriptor once, and at every call after its address was given away."""
    first = next((array.by for array in function.arrays if array.by), None)
    if first is None or any(
        isinstance(parameter, Given) for parameter in function.parameters
    ):  # these may change the objects
        return
    descriptor = next(parameter for parameter in function.parameters if parameter.name == first)
    assert isinstance(descriptor, Object)
    asked = descriptor.object_kind.describes[0]
    values, arrays = legal_values(bench, function, full=True)

    def times() -> int:
        bench.recorder.reset({})
        called(bench, function, values, pointers)
        return [record.symbol for record in bench.recorder.records(own=True)].count(asked)

    with bench.lent(arrays) as pointers:
        assert times() > 0, f"{function.symbol}: never asks for {first}"
        assert times() == 0, f"{function.symbol}: asks for {first} twice"
        assert values[first].address
        assert times() == 1, f"{function.symbol}: {first} may have changed"
        assert times() == 1, f"{function.symbol}: {first} may have changed again"
    destroy(bench, function, values, in_c=False)


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Check a function with all optional arguments, with required arguments only, and with unfit arguments."""
    for turn in range(turns):
        if any(not getattr(array, "optional", False) for array in function.arrays) or turn % 2 == 0:
            check_arrival(bench, function, full=turn % 2 == 0)
    for array in function.arrays:
        if array.by:
            short, other = np.zeros(ELEMENTS - 1, np.float32), np.zeros(ELEMENTS, np.float16)
            refused(
                bench,
                function,
                array.name,
                short,
                ExtentError,
                rf"{array.name} needs {ELEMENTS} elements .*{array.by}=",
            )
            refused(bench, function, array.name, other, DTypeError, f"{array.name} needs float32, as {array.by} says")
        elif isinstance(array, Room):
            size = array.extent.arguments[0]
            short = np.zeros(NBYTES - 1, np.uint8)
            if getattr(size, "id", ""):
                refused(bench, function, array.name, short, ExtentError, f"{array.name} needs {NBYTES} elements")
            if array.query:
                words = f"{array.name} needs {NEEDED} bytes, as {array.query.symbol}"
                refused(bench, function, size.id, NEEDED - 1, ExtentError, words)  # type: ignore[attr-defined]
    check_answers(bench, function)
    check_descriptors(bench, function)
    assert not any(isinstance(array, GivenPlace) for array in function.arrays)
