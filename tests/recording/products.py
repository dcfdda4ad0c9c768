"""Checks products of matrices that layouts describe: what arrives, and which arrays and sizes are refused.

All layouts of the double are alike: 30 matrices of float32, 2 by 2, without gaps. Descriptors say nothing but zeros.
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
from recording.legal import roles
from recording.recorder import Argument, Wish
from recording.services import destroy, new_object

NBYTES = 64


def arguments(bench: DoubleBench, function: roles.Function) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a legal call but for its arrays, and these."""
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for at, one in enumerate(function.parameters):
        match one:
            case Array():
                by_layout = bool(one.by)
                arrays[one.name] = np.ones(ELEMENTS if by_layout else NBYTES, np.float32 if by_layout else np.uint8)
            case Object():
                values[one.name] = new_object(bench, one.object_kind, in_c=False)
            case Scalar():
                values[one.name] = at + 0.5
            case Bytes():
                values[one.name] = np.arange(8, dtype=np.uint64)
            case Size():
                values[one.name] = NBYTES
            case _:
                raise NotImplementedError(one.name)
    return values, arrays


def check_argument(where: str, one: Parameter, value: Any, argument: Argument) -> None:
    match one:
        case Handle() | Stream():
            pass
        case Scalar():
            assert argument.behind == np.float32(value).tobytes(), f"{where}: got {argument.behind!r}"
        case Bytes():
            assert argument.address == value.ctypes.data, where
        case Size():
            assert argument.integer == value, where
        case Array() | Object():
            assert argument.address == value.address, where
        case _:
            raise NotImplementedError(where)


def passed_by_c(bench: DoubleBench, function: roles.Function, given: dict[str, Any]) -> list[Any]:
    """Return the arguments of the typed C function."""
    found: list[Any] = []
    for one in function.parameters:
        value = given[one.name]
        match one:
            case Array():
                found.append(ctypes.c_void_p(handle_of(value, "any")))
            case Object():
                found.append(ctypes.c_void_p(_core.object_handle(value)))
            case Scalar():
                memory = ctypes.create_string_buffer(np.complex128(value).tobytes(), 16)
                found.append(memory)
            case Bytes():
                found.append(ctypes.c_void_p(value.ctypes.data))
            case Size():
                found.append(ctypes.c_int64(value))
    return found


def check_arrival(bench: DoubleBench, function: roles.Function, in_c: bool) -> None:
    """Make a call; fail unless its arguments arrive."""
    values, arrays = arguments(bench, function)
    parameters = legal.vendors_parameters(bench.library, function)
    wishes = {at: Wish(peek=4) for at, (_, _, one) in enumerate(parameters) if isinstance(one, Scalar)}
    with bench.lent(arrays) as pointers:
        for pointer in pointers.values():
            assert pointer.address
        given = values | pointers
        bench.recorder.reset(wishes)
        if in_c:
            name = f"oa_{bench.library.name}_{function.name}"
            assert bench.typed.call(name, passed_by_c(bench, function, given)) == 0
        else:
            getattr(bench.module, function.name)(*(given[one.name] for one in function.parameters))
        record = next(one for one in bench.recorder.records(own=True) if one.symbol == function.symbol)
        for (label, c_type, one), argument in zip(parameters, record.arguments, strict=True):
            where = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), where
            check_argument(where, one, given.get(one.name), argument)
    destroy(bench, function, values, in_c=False)


def refused(bench: DoubleBench, function: roles.Function, changed: dict[str, Any], error: Any, words: str) -> None:
    """Fail unless a call with other arrays or values is refused before the library is called, or anything moves."""
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
            given = values | pointers | same | none
            getattr(bench.module, function.name)(*(given[one.name] for one in function.parameters))
        assert function.symbol not in [one.symbol for one in bench.recorder.records(own=True)], changed
        assert bench.counts() == before, changed
    destroy(bench, function, objects, in_c=False)


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Check a function with all that it may take; then with what does not fit."""
    for turn in range(2 * turns):
        check_arrival(bench, function, in_c=turn % 2 == 1)
    where = rf"^{bench.library.name}\.{function.name}: "
    result = "D" if "D" in [one.name for one in function.arrays] else "C"
    for one in function.arrays:
        if not one.by:
            short = np.ones(NBYTES - 1, np.uint8)
            refused(bench, function, {one.name: short}, ExtentError, where + f"{one.name} needs {NBYTES} elements")
            continue
        short, other = np.ones(ELEMENTS - 1, np.float32), np.ones(ELEMENTS, np.float16)
        refused(bench, function, {one.name: short}, ExtentError, where + f"{one.name} needs {ELEMENTS} elements")
        refused(bench, function, {one.name: other}, DTypeError, where + f"{one.name} needs float32, as {one.by} says")
        if one.is_read_only and result + one.name != "DC":  # D may be C
            refused(
                bench,
                function,
                {one.name: result},
                AliasError,
                where + rf"(.* overlaps {one.name}\b|{one.name} .*overlaps)",
            )
    for one in function.parameters:
        if type(one) is Object:
            refused(bench, function, {one.name: None}, ArgumentTypeError, where + f"{one.name} needs a")
        elif isinstance(one, Scalar):
            refused(bench, function, {one.name: 1j}, DTypeError, where + f"{one.name} needs a number of float32, as")
            refused(bench, function, {one.name: "1"}, ArgumentTypeError, where + f"{one.name} needs a")
        elif isinstance(one, Size):
            refused(bench, function, {one.name: -1}, ValueError, where + f"{one.name}")
