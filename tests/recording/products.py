"""Checks products of matrices with layouts: which arguments arrive, and which arrays and sizes are refused.

All layouts of the double are the same: 30 matrices of float32, 2 by 2, without gaps. All values of descriptors are 0.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from bindings.descriptors import Bytes
from bindings.helper_functions import Object
from bindings.parameters import Array, Handle, Parameter, Scalar, Size, Stream
from doubles.recording import ELEMENTS
from offload_args import _core
from offload_args.errors import AliasError, ArgumentTypeError, DTypeError, ExtentError
from recording import legal
from recording.arrival import width
from recording.bench import DoubleBench, handle_of
from recording.helper_functions import destroy, new_object
from recording.legal import roles
from recording.recorder import Argument, Wish

NBYTES = 64


def arguments(bench: DoubleBench, function: roles.Function) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a legal call without its arrays, and the arrays."""
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for at, parameter in enumerate(function.parameters):
        match parameter:
            case Array():
                by_layout = bool(parameter.by)
                arrays[parameter.name] = np.ones(
                    ELEMENTS if by_layout else NBYTES, np.float32 if by_layout else np.uint8
                )
            case Object():
                values[parameter.name] = new_object(bench, parameter.object_kind, in_c=False)
            case Scalar():
                values[parameter.name] = at + 0.5
            case Bytes():
                values[parameter.name] = np.arange(8, dtype=np.uint64)
            case Size():
                values[parameter.name] = NBYTES
            case _:
                raise NotImplementedError(parameter.name)
    return values, arrays


def check_argument(place: str, parameter: Parameter, value: Any, argument: Argument) -> None:
    match parameter:
        case Handle() | Stream():
            pass
        case Scalar():
            assert argument.behind == np.float32(value).tobytes(), f"{place}: got {argument.behind!r}"
        case Bytes():
            assert argument.address == value.ctypes.data, place
        case Size():
            assert argument.integer == value, place
        case Array() | Object():
            assert argument.address == value.address, place
        case _:
            raise NotImplementedError(place)


def passed_by_c(bench: DoubleBench, function: roles.Function, arguments: dict[str, Any]) -> list[Any]:
    """Return the arguments of the typed C function."""
    passed: list[Any] = []
    for parameter in function.parameters:
        value = arguments[parameter.name]
        match parameter:
            case Array():
                passed.append(ctypes.c_void_p(handle_of(value, "any")))
            case Object():
                passed.append(ctypes.c_void_p(_core.object_handle(value)))
            case Scalar():
                memory = ctypes.create_string_buffer(np.complex128(value).tobytes(), 16)
                passed.append(memory)
            case Bytes():
                passed.append(ctypes.c_void_p(value.ctypes.data))
            case Size():
                passed.append(ctypes.c_int64(value))
    return passed


def check_arrival(bench: DoubleBench, function: roles.Function, in_c: bool) -> None:
    """Make a call; fail unless its arguments arrive."""
    values, arrays = arguments(bench, function)
    parameters = legal.vendors_parameters(bench.library, function)
    wishes = {at: Wish(peek=4) for at, (_, _, parameter) in enumerate(parameters) if isinstance(parameter, Scalar)}
    with bench.lent(arrays) as pointers:
        for pointer in pointers.values():
            assert pointer.address
        all_values = values | pointers
        bench.recorder.reset(wishes)
        if in_c:
            name = f"oa_{bench.library.name}_{function.name}"
            assert bench.typed.call(name, passed_by_c(bench, function, all_values)) == 0
        else:
            getattr(bench.module, function.name)(*(all_values[parameter.name] for parameter in function.parameters))
        record = next(record for record in bench.recorder.records(own=True) if record.symbol == function.symbol)
        for (label, c_type, parameter), argument in zip(parameters, record.arguments, strict=True):
            place = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), place
            check_argument(place, parameter, all_values.get(parameter.name), argument)
    destroy(bench, function, values, in_c=False)


def refused(bench: DoubleBench, function: roles.Function, changed: dict[str, Any], error: Any, words: str) -> None:
    """Fail unless a call with the changed arrays or values is refused before any call or copy."""
    values, arrays = arguments(bench, function)
    objects = dict(values)
    arrays |= {name: array for name, array in changed.items() if name in arrays and isinstance(array, np.ndarray)}
    values |= {name: value for name, value in changed.items() if name not in arrays}
    with bench.lent(arrays) as pointers:
        same = {name: pointers[other] for name, other in changed.items() if name in arrays and isinstance(other, str)}
        none = dict.fromkeys((name for name in changed if name in arrays and changed[name] is None), None)
        bench.recorder.reset({})
        before = bench.counts()
        with pytest.raises(error, match=words):
            all_values = values | pointers | same | none
            getattr(bench.module, function.name)(*(all_values[parameter.name] for parameter in function.parameters))
        assert function.symbol not in [record.symbol for record in bench.recorder.records(own=True)], changed
        assert bench.counts() == before, changed
    destroy(bench, function, objects, in_c=False)


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Check a function with all optional arguments, and then with arguments that do not fit."""
    for turn in range(2 * turns):
        check_arrival(bench, function, in_c=turn % 2 == 1)
    place = rf"^{bench.library.name}\.{function.name}: "
    result = "D" if "D" in [array.name for array in function.arrays] else "C"
    for array in function.arrays:
        if not array.by:
            short = np.ones(NBYTES - 1, np.uint8)
            refused(bench, function, {array.name: short}, ExtentError, place + f"{array.name} needs {NBYTES} elements")
            continue
        short, other = np.ones(ELEMENTS - 1, np.float32), np.ones(ELEMENTS, np.float16)
        refused(bench, function, {array.name: short}, ExtentError, place + f"{array.name} needs {ELEMENTS} elements")
        refused(
            bench, function, {array.name: other}, DTypeError, place + f"{array.name} needs float32, as {array.by} says"
        )
        if array.is_read_only and result + array.name != "DC":  # D may be C
            refused(
                bench,
                function,
                {array.name: result},
                AliasError,
                place + rf"(.* overlaps {array.name}\b|{array.name} .*overlaps)",
            )
    for array in function.parameters:
        if type(array) is Object:
            refused(bench, function, {array.name: None}, ArgumentTypeError, place + f"{array.name} needs a")
        elif isinstance(array, Scalar):
            refused(
                bench, function, {array.name: 1j}, DTypeError, place + f"{array.name} needs a number of float32, as"
            )
            refused(bench, function, {array.name: "1"}, ArgumentTypeError, place + f"{array.name} needs a")
        elif isinstance(array, Size):
            refused(bench, function, {array.name: -1}, ValueError, place + f"{array.name}")
