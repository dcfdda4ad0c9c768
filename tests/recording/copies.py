"""Checks copies between arrays of the host and of the device: what arrives, and which arrays are too short."""

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
    found: dict[str, int] = {}
    for one in function.sizes:
        if one.label == "itemsize":
            found[one.name] = DTYPE.itemsize
        elif one.label == "ld":  # of matrices that lie by columns
            found[one.name] = found["rows"] + int(random.integers(0, 4))
        elif one.label in ("size", "inc"):
            found[one.name] = int(random.integers(1, 6))
        else:
            raise NotImplementedError(f"{function.name}: {one.name}")
    return found


def passed_by_c(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> list[Any]:
    """Return the arguments of the typed C function."""
    found: list[Any] = []
    for one in function.parameters:
        value = values[one.name]
        if isinstance(one, Size):
            found.append(ctypes.c_int64(value))
        elif isinstance(one, HostArray):
            found.append(ctypes.c_void_p(value.ctypes.data))
        else:
            found.append(ctypes.c_void_p(handle_of(value, one.dtype)))
    return found


def check_argument(where: str, one: Parameter, value: Any, argument: Argument) -> None:
    match one:
        case Size():
            assert argument.integer == value, f"{where}: got {argument.integer}, not {value}"
        case Array():
            assert argument.address == value.address, f"{where}: got {argument.address:#x}"
        case HostArray():
            assert argument.address == value.ctypes.data, f"{where}: got {argument.address:#x}"
        case Stream():
            pass  # of a simulated device it says nothing
        case _:
            raise NotImplementedError(where)


def check_short(bench: DoubleBench, function: roles.Function, values: dict[str, Any], name: str) -> None:
    """Fail unless a copy is refused, by name, if one of its arrays lacks the last element."""
    one = values[name]
    with pytest.raises(ExtentError, match=rf"^{bench.library.name}\.{function.name}: {name} needs .*{one.size - 1}"):
        getattr(bench.module, function.name)(*(values | {name: one[:-1]}).values())


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Make a copy by Python and by C, `turns` times, with the shortest arrays and then with shorter ones."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    parameters = legal.vendors_parameters(bench.library, function)
    for turn in range(2 * turns):
        integers = sizes(function, random)
        arrays = {
            one.name: np.zeros(int(legal.touched_by(one.extent, integers, by_rows=False).max()) + 1, DTYPE)
            for one in function.parameters
            if isinstance(one, (Array, HostArray))
        }
        bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with bench.lent({one.name: arrays[one.name] for one in function.arrays}) as pointers:
            given = {**integers, **arrays, **pointers}
            values = {one.name: given[one.name] for one in function.parameters}
            if turn % 2:
                status = bench.typed.call(
                    f"oa_{bench.library.name}_{function.name}", passed_by_c(bench, function, values)
                )
                assert status == 0
            else:
                getattr(bench.module, function.name)(*values.values())
            (record,) = bench.recorder.records()
            for (label, c_type, one), argument in zip(parameters, record.arguments, strict=True):
                where = f"{function.symbol}: {label} ({c_type})"
                assert len(argument.value) == width(bench, c_type), where
                check_argument(where, one, values.get(one.name), argument)
            for name in arrays:
                check_short(bench, function, values, name)
        assert bench.recorder.count == 1
