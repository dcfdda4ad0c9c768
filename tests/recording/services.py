"""Checks that the arguments of services arrive: functions that make, set, ask or destroy, and touch no array."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np

import offload_args
from bindings.descriptors import (
    Address,
    Bytes,
    Elements,
    GivenList,
    GivenReal,
    Integers,
    Nothing,
    OptionalObject,
    Real,
)
from bindings.emit.descriptors import dtype_enum
from bindings.expressions import names_in
from bindings.helper_functions import DeviceNumber, Ended, Given, Integer, Kept, Object, ObjectKind, SetStream
from bindings.parameters import EnumValue, Parameter, Size
from doubles.recording import SHAPES, working
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
REALS = {"f32": np.float32, "f64": np.float64}
TEXT = ctypes.create_string_buffer(b"a text")
LENGTH = 8  # of lists


def maker(library: roles.Library, kind: ObjectKind) -> roles.Function:
    """Return the service that makes objects of a kind."""
    for function in legal.services(library.name).values():
        for one in function.arguments:
            if isinstance(one, Given) and one.object_kind == kind:
                return function
    raise AssertionError(f"{library.name}: no function makes a {kind.name}")


def answer(one: Given) -> Any:
    """Return the value that the double gives for an output: an integer, a number, a text, or a list."""
    if isinstance(one, GivenReal):
        return 0.75
    if isinstance(one, GivenList):
        return tuple(range(1, LENGTH + 1)) if one.dtype else []
    if one.what == "text":
        return TEXT.value.decode()
    return one.enum.values[-1][1] if one.enum else 23


def new_object(bench: DoubleBench, kind: ObjectKind, in_c: bool) -> Any:
    """Return a new object of a kind: Python's, or the address of C's."""
    function = maker(bench.library, kind)
    given = {one.name: one.enum.values[0][1] for one in function.parameters if isinstance(one, EnumValue)}
    given |= {one.name: int(isinstance(one, Integer)) for one in function.parameters if type(one) in (Address, Integer)}
    if in_c:
        return by_c(bench, function, given)
    placed = any(isinstance(one, DeviceNumber) for one in function.parameters)
    made = getattr(bench.module, function.name)(**given, **({"device": bench.device} if placed else {}))
    for one in legal.services(bench.library.name).values():
        if one.notes and one.parameters[0].object_kind == kind:  # later calls need what it notes
            getattr(bench.module, one.name)(made, *(setting_of(other) for other in one.parameters[1:]))
            break
    return made


def setting_of(one: Parameter) -> Any:
    """Return a value for a parameter of a function that sets what an object notes."""
    if isinstance(one, EnumValue):
        return (one.enum.dtypes or one.enum.values)[0][1]
    return SHAPES[4] if isinstance(one, Integers) else len(SHAPES[4])


def value_of(bench: DoubleBench, one: Parameter, random: np.random.Generator) -> Any:
    """Return an argument for a parameter that stands for neither an object nor an output."""
    match one:
        case Real():
            return float(random.integers(1, 100)) / 4
        case Integers():
            return [int(number) for number in random.integers(0, 2, LENGTH)]
        case Elements():
            return np.arange(LENGTH, dtype=np.int64)
        case Bytes():
            return np.arange(128, dtype=np.uint8)  # but for attributes, see fit
        case Address():
            return int(random.integers(1, 1 << 40))
        case EnumValue():
            return int(random.choice([number for _, number in one.enum.values]))
        case Integer():
            return int(random.integers(1, 100))
        case Kept():
            return None
        case Size():
            return 0
        case DeviceNumber():
            return bench.device
        case SetStream():
            handle = next(kind for kind in bench.library.object_kinds if kind.is_handle)
            return bench.module.get_stream(new_object(bench, handle, in_c=False))
    raise NotImplementedError(one.name)


def wishes(bench: DoubleBench, function: roles.Function) -> tuple[dict[int, Wish], bytes]:
    """Return what the double has to write and to return."""
    found: dict[int, Wish] = {}
    returned = bench.library.success.to_bytes(8, "little", signed=True)
    for at, (_, _, one) in enumerate(legal.vendors_parameters(bench.library, function)):
        if isinstance(one, Integers):
            found[at] = Wish(peek=4 * LENGTH)
        elif isinstance(one, GivenReal) and function.symbol not in working(bench.library):
            found[at] = Wish(poke=REALS[one.dtype](answer(one)).tobytes())
        elif isinstance(one, GivenList) and function.symbol not in working(bench.library):
            poke = np.array(answer(one), np.int32).tobytes() if one.dtype else b""
            found[at] = Wish(poke=poke)
        elif isinstance(one, Given) and one.what == "integer" and function.symbol not in working(bench.library):
            found[at] = Wish(poke=bytes(C_TYPES[one.dtype](answer(one))))
    for one in function.parameters:
        if isinstance(one, Given) and one.returned:
            value = ctypes.addressof(TEXT) if one.what == "text" else answer(one)
            returned = value.to_bytes(8, "little")
    return found, returned


def check_argument(where: str, one: Parameter, value: Any, argument: Argument) -> None:
    match one:
        case Real():
            assert argument.value == REALS[one.dtype](value).tobytes(), where
        case Integers():
            assert argument.behind == np.array(value, np.int32).tobytes(), where
        case Elements() | Bytes():
            assert argument.address == value.ctypes.data, where
        case Address():
            assert argument.integer == value, where
        case Nothing():
            assert not argument.address, where
        case OptionalObject() if value is None:
            assert argument.address != 0 or not argument.address, where
        case Object():
            assert argument.address == (value or argument.address) != 0, f"{where}: got {argument.address:#x}"
        case EnumValue() | Integer() | Size():
            assert argument.integer == value, f"{where}: got {argument.integer}, not {value}"
        case Kept():
            assert not argument.address, where
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
            case Real():
                passed.append((ctypes.c_float if one.dtype == "f32" else ctypes.c_double)(values[one.name]))
            case Integers():
                kept.append((ctypes.c_int * LENGTH)(*values[one.name]))
                passed.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
            case Elements() | Bytes():
                passed.append(ctypes.c_void_p(values[one.name].ctypes.data))
            case Address():
                passed.append(ctypes.c_void_p(values[one.name]))
            case GivenList() | GivenReal():
                kept.append(ctypes.create_string_buffer(1024))
                passed.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
                results.append((one, kept[-1]))
            case Integer():
                passed.append(C_TYPES[one.dtype](values[one.name]))
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
    found = [value_at(one, place) for one, place in results]
    return found[0] if len(found) == 1 else tuple(found) if found else None


def value_at(one: Given, place: Any) -> Any:
    """Return an output of a typed C function as Python has it."""
    if isinstance(one, GivenReal):
        return float(np.frombuffer(place, REALS[one.dtype], 1)[0])
    if isinstance(one, GivenList):
        return tuple(np.frombuffer(place, np.int32, LENGTH).tolist()) if one.dtype else []
    return ctypes.string_at(place.value).decode() if one.what == "text" else place.value


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a service by Python and by C, `turns` times; fail unless its arguments arrive and its outputs come back."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    for turn in range(2 * turns):
        in_c = turn % 2 == 1
        values: dict[str, Any] = {}
        for one in function.parameters:
            if isinstance(one, OptionalObject) and turn % 4 > 1 and not in_c:
                values[one.name] = None
            elif isinstance(one, Object):
                values[one.name] = new_object(bench, one.object_kind, in_c)
            elif not isinstance(one, Given):
                values[one.name] = value_of(bench, one, random)
        fit(bench.library, function, values)
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


def dtypes_of(library: roles.Library, function: roles.Function, enum: str) -> dict[int, str]:
    """Return the dtype of each value of a parameter that is an enum of dtypes."""
    c_type = next(other.c_type for other in function.parameters if other.name == enum)
    return {value: dtype for _, value, dtype in dtype_enum(library, c_type).dtypes}


def fit(library: roles.Library, function: roles.Function, values: dict[str, Any]) -> None:
    """Make arguments agree: those that say how long lists are, and of which types numbers are."""
    for one in function.parameters:
        if isinstance(one, Integers) and one.length:
            values |= dict.fromkeys((name for name in names_in(one.length) if isinstance(values[name], int)), LENGTH)
        elif isinstance(one, GivenList):
            values[one.length] = 0 if one.format else LENGTH
        elif isinstance(one, Elements):
            values |= dict.fromkeys(names_in(one.expressions[0]), LENGTH)
            values[one.type_of] = next(
                v for v, dtype in dtypes_of(library, function, one.type_of).items() if dtype == "i64"
            )
        elif isinstance(one, Bytes) and one.type_of:
            dtypes = dtypes_of(library, function, one.type_of)
            values[one.name] = np.ones(1, legal.numpy_dtype(dtypes[values[one.type_of]]))
            values |= dict.fromkeys(names_in(one.expressions[0]), values[one.name].nbytes)
        elif isinstance(one, Bytes):
            values |= dict.fromkeys(names_in(one.expressions[0]), 1)


def check_outputs(bench: DoubleBench, function: roles.Function, result: Any) -> None:
    """Fail unless the caller has what the double wrote or returned."""
    given = [one for one in function.parameters if isinstance(one, Given)]
    if not given:
        assert result is None
    elif function.symbol in working(bench.library):
        assert result is not None
    elif len(given) > 1 and not any(one.object_kind for one in given):
        wanted = tuple(0.75 if isinstance(one, GivenReal) else answer(one) for one in given)
        assert tuple(result) == wanted, (result, wanted)
    elif given[0].what in ("integer", "text", "real", "list"):
        assert result == answer(given[0]), result
    else:
        assert result is not None


def destroy(bench: DoubleBench, function: roles.Function, values: dict[str, Any], in_c: bool) -> None:
    """Destroy the objects that a call took, if it did not."""
    for one in function.parameters:
        if isinstance(one, Object) and not isinstance(one, Ended) and values[one.name] is not None:
            ending = next(
                other
                for other in legal.services(bench.library.name).values()
                if any(isinstance(made, Ended) and made.object_kind == one.object_kind for made in other.parameters)
            )
            given = {made.name: values[one.name] for made in ending.parameters}
            by_c(bench, ending, given) if in_c else by_python(bench, ending, given)
