"""Checks that the arguments of services arrive: functions that make, set, ask or destroy, and touch no array."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np

import offload_args
from bindings.parameters import EnumValue, Parameter, Size
from bindings.services import DeviceNumber, Ended, Given, Integer, Kept, Object, ObjectKind, SetStream, Text
from doubles.recording import working
from recording import legal
from recording.arrival import width
from recording.bench import DoubleBench
from recording.legal import roles
from recording.recorder import Argument, Wish

C_TYPES = {
    "u8": ctypes.c_uint8,
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
}
TEXT = ctypes.create_string_buffer(b"a text")


def maker(library: roles.Library, kind: ObjectKind) -> roles.Function:
    """Return the service that makes objects of a kind."""
    for function in legal.services(library.name).values():
        for one in function.arguments:
            if isinstance(one, Given) and one.object_kind == kind:
                return function
    raise AssertionError(f"{library.name}: no function makes a {kind.name}")


def answer(one: Given) -> Any:
    """Return the value that the double gives for an output: an integer, or a text."""
    if one.what == "text":
        return TEXT.value.decode()
    return one.enum.values[-1][1] if one.enum else 23


def new_object(bench: DoubleBench, kind: ObjectKind, in_c: bool) -> Any:
    """Return a new object of a kind: Python's, or the address of C's."""
    function = maker(bench.library, kind)
    enums = {one.name: one.enum.values[0][1] for one in function.parameters if isinstance(one, EnumValue)}
    if in_c:
        return by_c(bench, function, enums)
    device = {"device": bench.device} if kind.is_handle else {}
    return getattr(bench.module, function.name)(**enums, **device)


def value_of(bench: DoubleBench, one: Parameter, random: np.random.Generator) -> Any:
    """Return an argument for a parameter that stands for neither an object nor an output."""
    match one:
        case EnumValue():
            return int(random.choice([number for _, number in one.enum.values]))
        case Integer():
            return int(random.integers(1, 100))
        case Kept():
            return None
        case Size():
            return 0
        case Text():
            return TEXT.value.decode()
        case DeviceNumber():
            return bench.device
        case SetStream():
            return bench.module.get_stream(new_object(bench, bench.library.object_kinds[0], in_c=False))
    raise NotImplementedError(one.name)


def wishes(bench: DoubleBench, function: roles.Function) -> tuple[dict[int, Wish], bytes]:
    """Return what the double has to write and to return."""
    found: dict[int, Wish] = {}
    returned = bench.library.success.to_bytes(8, "little", signed=True)
    for at, (_, _, one) in enumerate(legal.vendors_parameters(bench.library, function)):
        if isinstance(one, Text):
            found[at] = Wish(peek=len(TEXT.value) + 1)
        elif isinstance(one, Given) and one.what == "integer" and function.symbol not in working(bench.library):
            found[at] = Wish(poke=bytes(C_TYPES[one.dtype](answer(one))))
    for one in function.parameters:
        if isinstance(one, Given) and one.returned:
            value = ctypes.addressof(TEXT) if one.what == "text" else answer(one)
            returned = value.to_bytes(8, "little")
    return found, returned


def check_argument(where: str, one: Parameter, value: Any, argument: Argument) -> None:
    match one:
        case Object():
            assert argument.address == (value or argument.address) != 0, f"{where}: got {argument.address:#x}"
        case EnumValue() | Integer() | Size():
            assert argument.integer == value, f"{where}: got {argument.integer}, not {value}"
        case Kept():
            assert not argument.address, where
        case Text():
            assert argument.behind == TEXT.value + b"\0", f"{where}: got {argument.behind!r}"
        case SetStream():
            assert argument.address == value.__cuda_stream__()[1], where
        case Given():
            assert argument.address, where
        case _:
            raise NotImplementedError(where)


def by_python(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> Any:
    """Call a service by Python; return its value."""
    return getattr(bench.module, function.name)(
        *(values[one.name] for one in function.parameters if one.name in values)
    )


def by_c(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> Any:
    """Call a service by its typed C function; return its value."""
    name = f"oa_{bench.library.name}_{function.name}"
    passed: list[Any] = []
    results: list[tuple[Given, Any]] = []
    kept: list[Any] = []
    for one in function.parameters:
        match one:
            case DeviceNumber():
                passed.append(ctypes.c_int(offload_args.Device(bench.device).number))
            case EnumValue():
                passed.append(ctypes.c_int(values[one.name]))
            case Integer():
                passed.append(C_TYPES[one.dtype](values[one.name]))
            case Text():
                passed.append(ctypes.c_char_p(values[one.name].encode()))
            case SetStream():
                passed.append(ctypes.c_void_p(values[one.name].__cuda_stream__()[1]))
            case Size():
                passed.append(ctypes.c_int64(values[one.name]))
            case Kept():
                passed.append(ctypes.c_void_p())
            case Object():
                passed.append(ctypes.c_void_p(values[one.name]))
            case Given():
                place = ctypes.c_void_p() if one.what != "integer" else C_TYPES[one.dtype]()
                kept.append(place)
                passed.append(ctypes.c_void_p(ctypes.addressof(place)))
                results.append((one, place))
            case _:
                raise NotImplementedError(f"{name}: {one.name}")
    status = bench.typed.call(name, passed)
    assert status == 0, f"{name} returned {status}"
    found = [ctypes.string_at(place.value).decode() if one.what == "text" else place.value for one, place in results]
    return found[0] if len(found) == 1 else None


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a service by Python and by C, `turns` times; fail unless its arguments arrive and its outputs come back."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    for turn in range(2 * turns):
        in_c = turn % 2 == 1
        values: dict[str, Any] = {}
        for one in function.parameters:
            if isinstance(one, Object):
                values[one.name] = new_object(bench, one.object_kind, in_c)
            elif not isinstance(one, Given):
                values[one.name] = value_of(bench, one, random)
        # An object of C's own does not say its address.
        arrives = {name: getattr(value, "address", value) for name, value in values.items()}
        if in_c:
            arrives |= {one.name: None for one in function.parameters if isinstance(one, Object)}
        bench.recorder.reset(*wishes(bench, function))
        result = by_c(bench, function, values) if in_c else by_python(bench, function, values)
        record = next(one for one in bench.recorder.records(own=True) if one.symbol == function.symbol)
        parameters = legal.vendors_parameters(bench.library, function)
        for (label, c_type, one), argument in zip(parameters, record.arguments, strict=True):
            where = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), where
            check_argument(where, one, arrives.get(one.name), argument)
        check_outputs(bench, function, result)
        destroy(bench, function, values, in_c)


def check_outputs(bench: DoubleBench, function: roles.Function, result: Any) -> None:
    """Fail unless the caller has what the double wrote or returned."""
    given = [one for one in function.parameters if isinstance(one, Given)]
    if not given:
        assert result is None
    elif given[0].what in ("integer", "text") and function.symbol not in working(bench.library):
        assert result == answer(given[0]), result
    elif given[0].what != "kept":
        assert result is not None


def destroy(bench: DoubleBench, function: roles.Function, values: dict[str, Any], in_c: bool) -> None:
    """Destroy the objects that a call took, if it did not."""
    for one in function.parameters:
        if isinstance(one, Object) and not isinstance(one, Ended):
            ending = next(
                other
                for other in legal.services(bench.library.name).values()
                if any(isinstance(made, Ended) and made.object_kind == one.object_kind for made in other.parameters)
            )
            given = {made.name: values[one.name] for made in ending.parameters}
            by_c(bench, ending, given) if in_c else by_python(bench, ending, given)
