"""Checks copies between host and device arrays: which arguments arrive, and that too short arrays are refused."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
import pytest

from bindings.helper_functions import HostArray
from bindings.parameters import Array, Parameter, Size, Stream
from offload_args.errors import ExtentError
from recording import legal
from recording.arrival import width
from recording.bench import DoubleBench, handle_of
from recording.legal import roles
from recording.recorder import Argument

DTYPE = np.dtype(np.float64)


def sizes(function: roles.Function, random: np.random.Generator) -> dict[str, int]:
    """Return the sizes of a legal copy."""
    sizes: dict[str, int] = {}
    for size in function.sizes:
        if size.label == "itemsize":
            sizes[size.name] = DTYPE.itemsize
        elif size.label == "ld":  # of matrices by columns
            sizes[size.name] = sizes["rows"] + int(random.integers(0, 4))
        elif size.label in ("size", "inc"):
            sizes[size.name] = int(random.integers(1, 6))
        else:
            raise NotImplementedError(f"{function.name}: {size.name}")
    return sizes


def passed_by_c(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> list[Any]:
    """Return the arguments of the typed C function."""
    passed: list[Any] = []
    for parameter in function.parameters:
        value = values[parameter.name]
        if isinstance(parameter, Size):
            passed.append(ctypes.c_int64(value))
        elif isinstance(parameter, HostArray):
            passed.append(ctypes.c_void_p(value.ctypes.data))
        else:
            passed.append(ctypes.c_void_p(handle_of(value, parameter.dtype)))
    return passed


def check_argument(place: str, parameter: Parameter, value: Any, argument: Argument) -> None:
    match parameter:
        case Size():
            assert argument.integer == value, f"{place}: got {argument.integer}, not {value}"
        case Array():
            assert argument.address == value.address, f"{place}: got {argument.address:#x}"
        case HostArray():
            assert argument.address == value.ctypes.data, f"{place}: got {argument.address:#x}"
        case Stream():
            pass  # a simulated device has no stream to compare
        case _:
            raise NotImplementedError(place)


def check_short(bench: DoubleBench, function: roles.Function, values: dict[str, Any], name: str) -> None:
    """Fail unless the copy is refused with the name of an array that lacks its last element, for each of its arrays."""
    value = values[name]
    with pytest.raises(ExtentError, match=rf"^{bench.library.name}\.{function.name}: {name} needs .*{value.size - 1}"):
        getattr(bench.module, function.name)(*(values | {name: value[:-1]}).values())


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Make a copy through Python and through C, `turns` times, with the shortest legal arrays and with shorter ones."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    parameters = legal.vendors_parameters(bench.library, function)
    for turn in range(2 * turns):
        integers = sizes(function, random)
        arrays = {
            parameter.name: np.zeros(int(legal.touched_by(parameter.extent, integers, by_rows=False).max()) + 1, DTYPE)
            for parameter in function.parameters
            if isinstance(parameter, (Array, HostArray))
        }
        bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with bench.lent({array.name: arrays[array.name] for array in function.arrays}) as pointers:
            arguments = {**integers, **arrays, **pointers}
            values = {parameter.name: arguments[parameter.name] for parameter in function.parameters}
            if turn % 2:
                status = bench.typed.call(
                    f"oa_{bench.library.name}_{function.name}", passed_by_c(bench, function, values)
                )
                assert status == 0
            else:
                getattr(bench.module, function.name)(*values.values())
            (record,) = bench.recorder.records()
            for (label, c_type, parameter), argument in zip(parameters, record.arguments, strict=True):
                place = f"{function.symbol}: {label} ({c_type})"
                assert len(argument.value) == width(bench, c_type), place
                check_argument(place, parameter, values.get(parameter.name), argument)
            for name in arrays:
                check_short(bench, function, values, name)
        assert bench.recorder.count == 1
