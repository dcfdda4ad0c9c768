"""Checks that the arguments of helper functions arrive."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass
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
from bindings.helper_functions import (
    ByValue,
    DeviceNumber,
    Ended,
    Given,
    GivenBytes,
    Integer,
    Kept,
    Object,
    ObjectKind,
    SetStream,
)
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
INTEGERS = {"i32": np.int32, "u32": np.uint32, "i64": np.int64}
LENGTH = 8  # the length of lists


def maker(library: roles.Library, kind: ObjectKind) -> roles.Function:
    """Return the helper function that makes objects of a kind."""
    for function in legal.helper_functions(library.name).values():
        for argument in function.arguments:
            if isinstance(argument, Given) and argument.object_kind == kind:
                return function
    raise AssertionError(f"{library.name}: no function makes a {kind.name}")


def answer(output: Given) -> Any:
    """Return the integer, number, text or list that the double writes for an output."""
    if isinstance(output, GivenReal):
        return 0.75
    if isinstance(output, GivenBytes):
        return bytes(range(output.count))
    if isinstance(output, GivenList):
        return tuple(range(1, LENGTH + 1)) if output.dtype else []
    if output.value_kind == "text":
        return TEXT.value.decode()
    return output.enum.values[-1][1] if output.enum else 23


def new_object(bench: DoubleBench, kind: ObjectKind, in_c: bool) -> Any:
    """Return a new object of a kind: a Python object, or the address of a C object."""
    function = maker(bench.library, kind)
    arguments = {
        parameter.name: parameter.enum.values[0][1]
        for parameter in function.parameters
        if isinstance(parameter, EnumValue)
    }
    arguments |= {
        parameter.name: int(isinstance(parameter, Integer))
        for parameter in function.parameters
        if type(parameter) in (Address, Integer)
    }
    arguments |= {
        parameter.name: bytes(parameter.count) for parameter in function.parameters if isinstance(parameter, ByValue)
    }
    if in_c:
        return by_c(bench, function, arguments)
    placed = any(isinstance(parameter, DeviceNumber) for parameter in function.parameters)
    object_ = getattr(bench.module, function.name)(**arguments, **({"device": bench.device} if placed else {}))
    for helper_function in legal.helper_functions(bench.library.name).values():
        if (
            helper_function.notes and helper_function.parameters[0].object_kind == kind
        ):  # later calls need the noted values
            getattr(bench.module, helper_function.name)(
                object_, *(setting_of(other) for other in helper_function.parameters[1:])
            )
            break
    return object_


def setting_of(parameter: Parameter) -> Any:
    """Return a value for a parameter of a function that sets a noted value of an object."""
    if isinstance(parameter, EnumValue):
        return (parameter.enum.dtypes or parameter.enum.values)[0][1]
    return SHAPES[4] if isinstance(parameter, Integers) else len(SHAPES[4])


def value_of(bench: DoubleBench, parameter: Parameter, random: np.random.Generator) -> Any:
    """Return an argument for a parameter that is neither an object nor an output."""
    match parameter:
        case Real():
            return float(random.integers(1, 100)) / 4
        case Integers():
            return [int(number) for number in random.integers(0, 2, LENGTH) + parameter.optional]
        case Elements():
            return np.arange(LENGTH, dtype=np.int64)
        case Bytes():
            return np.arange(128, dtype=np.uint8)  # for attributes see fit
        case Address():
            return int(random.integers(1, 1 << 40))
        case EnumValue():
            return int(random.choice([number for _, number in parameter.enum.values]))
        case Integer():
            return int(random.integers(1, 100))
        case ByValue():
            return random.integers(0, 256, parameter.count, np.uint8).tobytes()
        case Kept():
            return None
        case Size():
            return 0
        case DeviceNumber():
            return bench.device
        case SetStream():
            handle = next(kind for kind in bench.library.object_kinds if kind.is_handle)
            if not hasattr(bench.module, "get_stream"):
                return CallersStream(int(random.integers(1, 1 << 40)))
            return bench.module.get_stream(new_object(bench, handle, in_c=False))
    raise NotImplementedError(parameter.name)


@dataclass
class CallersStream:
    """A stream of the caller, for a library that returns no streams."""

    number: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.number


def wishes(bench: DoubleBench, function: roles.Function) -> tuple[dict[int, Wish], bytes]:
    """Return the bytes that the double must write and the bytes that it must return."""
    wishes: dict[int, Wish] = {}
    returned = bench.library.success.to_bytes(8, "little", signed=True)
    for at, (_, _, parameter) in enumerate(legal.vendors_parameters(bench.library, function)):
        if isinstance(parameter, Integers):
            wishes[at] = Wish(peek=np.dtype(INTEGERS[parameter.dtype]).itemsize * LENGTH)
        elif isinstance(parameter, GivenReal) and function.symbol not in working(bench.library):
            wishes[at] = Wish(poke=REALS[parameter.dtype](answer(parameter)).tobytes())
        elif isinstance(parameter, GivenBytes):
            wishes[at] = Wish(poke=answer(parameter))
        elif isinstance(parameter, GivenList) and function.symbol not in working(bench.library):
            poke = np.array(answer(parameter), np.int32).tobytes() if parameter.dtype else b""
            wishes[at] = Wish(poke=poke)
        elif (
            isinstance(parameter, Given)
            and parameter.value_kind == "integer"
            and function.symbol not in working(bench.library)
        ):
            wishes[at] = Wish(poke=bytes(C_TYPES[parameter.dtype](answer(parameter))))
    for parameter in function.parameters:
        if isinstance(parameter, Given) and parameter.returned:
            value = ctypes.addressof(TEXT) if parameter.value_kind == "text" else answer(parameter)
            returned = value.to_bytes(8, "little")
    return wishes, returned


def check_argument(place: str, parameter: Parameter, value: Any, argument: Argument) -> None:
    match parameter:
        case Real():
            assert argument.value == REALS[parameter.dtype](value).tobytes(), place
        case Integers() if value is None:
            assert not argument.address, place
        case Integers():
            assert argument.behind == np.array(value, INTEGERS[parameter.dtype]).tobytes(), place
        case Elements() | Bytes():
            assert argument.address == value.ctypes.data, place
        case Address():
            assert argument.integer == value, place
        case ByValue():
            assert argument.value == value, place
        case Nothing():
            assert not argument.address, place
        case OptionalObject() if value is None:
            assert argument.address != 0 or not argument.address, place
        case Object():
            address = int.from_bytes(argument.value, "little")  # a plan may be a 32-bit number
            assert address == (value or address) != 0, f"{place}: got {address:#x}"
        case EnumValue() | Integer() | Size():
            assert argument.integer == value, f"{place}: got {argument.integer}, not {value}"
        case Kept():
            assert not argument.address, place
        case SetStream():
            assert argument.address == value.__cuda_stream__()[1], place
        case Given():
            assert argument.address, place
        case _:
            raise NotImplementedError(place)


def by_python(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> Any:
    """Call a helper function through Python; return its value."""
    return getattr(bench.module, function.name)(
        *(values[parameter.name] for parameter in function.parameters if parameter.name in values)
    )


def by_c(bench: DoubleBench, function: roles.Function, values: dict[str, Any]) -> Any:
    """Call a helper function through its typed C function; return its value."""
    name = f"oa_{bench.library.name}_{function.name}"
    passed: list[Any] = []
    results: list[tuple[Given, Any]] = []
    kept: list[Any] = []
    for parameter in function.parameters:
        match parameter:
            case DeviceNumber():
                passed.append(ctypes.c_int(offload_args.Device(bench.device).number))
            case EnumValue():
                passed.append(ctypes.c_int(values[parameter.name]))
            case Real():
                passed.append((ctypes.c_float if parameter.dtype == "f32" else ctypes.c_double)(values[parameter.name]))
            case Integers():
                numbers = values[parameter.name]
                kept.append((C_TYPES[parameter.dtype] * LENGTH)(*(numbers or ())))
                passed.append(ctypes.c_void_p(ctypes.addressof(kept[-1]) if numbers is not None else None))
            case Elements() | Bytes():
                passed.append(ctypes.c_void_p(values[parameter.name].ctypes.data))
            case Address():
                passed.append(ctypes.c_void_p(values[parameter.name]))
            case ByValue():
                kept.append(ctypes.create_string_buffer(values[parameter.name], parameter.count))
                passed.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
            case GivenBytes() | GivenList() | GivenReal():
                kept.append(ctypes.create_string_buffer(1024))
                passed.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
                results.append((parameter, kept[-1]))
            case Integer():
                passed.append(C_TYPES[parameter.dtype](values[parameter.name]))
            case SetStream():
                passed.append(ctypes.c_void_p(values[parameter.name].__cuda_stream__()[1]))
            case Size():
                passed.append(ctypes.c_int64(values[parameter.name]))
            case Kept():
                passed.append(ctypes.c_void_p())
            case Object():
                passed.append(ctypes.c_void_p(values[parameter.name]))
            case Given():
                place = ctypes.c_void_p() if parameter.value_kind != "integer" else C_TYPES[parameter.dtype]()
                kept.append(place)
                passed.append(ctypes.c_void_p(ctypes.addressof(place)))
                results.append((parameter, place))
            case _:
                raise NotImplementedError(f"{name}: {parameter.name}")
    status = bench.typed.call(name, passed)
    assert status == 0, f"{name} returned {status}"
    read = [value_at(output, place) for output, place in results]
    return read[0] if len(read) == 1 else tuple(read) if read else None


def value_at(output: Given, place: Any) -> Any:
    """Return an output of a typed C function as Python would return it."""
    if isinstance(output, GivenReal):
        return float(np.frombuffer(place, REALS[output.dtype], 1)[0])
    if isinstance(output, GivenBytes):
        return bytes(place[: output.count])
    if isinstance(output, GivenList):
        return tuple(np.frombuffer(place, np.int32, LENGTH).tolist()) if output.dtype else []
    return ctypes.string_at(place.value).decode() if output.value_kind == "text" else place.value


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a helper function through Python and C, `turns` times; fail unless its arguments and outputs arrive."""
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    for turn in range(2 * turns):
        in_c = turn % 2 == 1
        values: dict[str, Any] = {}
        for parameter in function.parameters:
            if isinstance(parameter, OptionalObject) and turn % 4 > 1 and not in_c:
                values[parameter.name] = None
            elif isinstance(parameter, Object):
                values[parameter.name] = new_object(bench, parameter.object_kind, in_c)
            elif not isinstance(parameter, Given):
                values[parameter.name] = value_of(bench, parameter, random)
        fit(bench.library, function, values)
        if function.noted_by:
            fit_plan(values, random)
        # A C object has no attribute with its address.
        arrives = {name: getattr(value, "address", value) for name, value in values.items()}
        if in_c:
            arrives |= {parameter.name: None for parameter in function.parameters if isinstance(parameter, Object)}
        bench.recorder.reset(*wishes(bench, function), waits=False)
        if function.group == "ends":
            bench.module.group_start()
        result = by_c(bench, function, values) if in_c else by_python(bench, function, values)
        if function.group == "begins":
            bench.module.group_end()
        record = next(record for record in bench.recorder.records(own=True) if record.symbol == function.symbol)
        parameters = legal.vendors_parameters(bench.library, function)
        for (label, c_type, parameter), argument in zip(parameters, record.arguments, strict=True):
            place = f"{function.symbol}: {label} ({c_type})"
            assert len(argument.value) == width(bench, c_type), place
            check_argument(place, parameter, arrives.get(parameter.name), argument)
        check_outputs(bench, function, result)
        destroy(bench, function, values, in_c)


def dtypes_of(library: roles.Library, function: roles.Function, enum: str) -> dict[int, str]:
    """Return the dtype of each value of a parameter that is an enum of dtypes."""
    c_type = next(other.c_type for other in function.parameters if other.name == enum)
    return {value: dtype for _, value, dtype in dtype_enum(library, c_type).dtypes}


def fit(library: roles.Library, function: roles.Function, values: dict[str, Any]) -> None:
    """Make arguments consistent: the lengths of lists with the lists, and the types of numbers with the numbers."""
    for parameter in function.parameters:
        if isinstance(parameter, Integers) and parameter.length:
            values |= dict.fromkeys(
                (name for name in names_in(parameter.length) if isinstance(values[name], int)), LENGTH
            )
        elif isinstance(parameter, GivenList):
            values[parameter.length] = 0 if parameter.format else LENGTH
        elif isinstance(parameter, Elements):
            values |= dict.fromkeys(names_in(parameter.expressions[0]), LENGTH)
            values[parameter.type_of] = next(
                v for v, dtype in dtypes_of(library, function, parameter.type_of).items() if dtype == "i64"
            )
        elif isinstance(parameter, Bytes) and parameter.type_of:
            dtypes = dtypes_of(library, function, parameter.type_of)
            values[parameter.name] = np.ones(1, legal.numpy_dtype(dtypes[values[parameter.type_of]]))
            values |= dict.fromkeys(names_in(parameter.expressions[0]), values[parameter.name].nbytes)
        elif isinstance(parameter, Bytes):
            values |= dict.fromkeys(names_in(parameter.expressions[0]), 1)


def fit_plan(values: dict[str, Any], random: np.random.Generator) -> None:
    """Change the arguments of a function that makes a plan so that such a plan exists."""
    if "rank" not in values:
        return
    values["rank"] = int(random.integers(1, 4))
    values["n"] = [number + 1 for number in values["n"]]
    if random.integers(0, 2):
        values["inembed"] = values["onembed"] = None


def check_outputs(bench: DoubleBench, function: roles.Function, result: Any) -> None:
    """Fail unless the caller received the values that the double wrote or returned."""
    outputs = [parameter for parameter in function.parameters if isinstance(parameter, Given)]
    if not outputs:
        assert result is None
    elif function.symbol in working(bench.library):
        assert result is not None
    elif len(outputs) > 1 and not any(output.object_kind for output in outputs):
        wanted = tuple(0.75 if isinstance(output, GivenReal) else answer(output) for output in outputs)
        assert tuple(result) == wanted, (result, wanted)
    elif outputs[0].value_kind in ("integer", "text", "real", "list", "bytes"):
        assert result == answer(outputs[0]), result
    else:
        assert result is not None


def destroy(bench: DoubleBench, function: roles.Function, values: dict[str, Any], in_c: bool) -> None:
    """Destroy the objects that a call took, unless the call destroyed them."""
    for parameter in function.parameters:
        if isinstance(parameter, Object) and not isinstance(parameter, Ended) and values[parameter.name] is not None:
            ending = next(
                other
                for other in legal.helper_functions(bench.library.name).values()
                if other.symbol == parameter.object_kind.destroy
            )
            arguments = {ended.name: values[parameter.name] for ended in ending.parameters}
            by_c(bench, ending, arguments) if in_c else by_python(bench, ending, arguments)
