"""Checks that each argument of a call arrives at the vendor's function in the right place, width and value."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bindings.descriptors import Nothing, Real
from bindings.helper_functions import Integer, Object, struct_bytes
from bindings.parameters import (
    Array,
    EnumValue,
    Handle,
    HostList,
    Number,
    Parameter,
    Size,
    Stream,
    Workspace,
    WorkspaceSize,
)
from doubles.recording import HOST_WORKSPACE, WORKSPACE
from offload_args.errors import SizeOverflowError
from recording import legal
from recording.bench import DoubleBench, Form, bytes_of, list_of, naming
from recording.legal import Call, roles
from recording.recorder import Argument, Record, Wish

WIDTHS = {
    "int": 4,
    "int64_t": 8,
    "uint64_t": 8,
    "size_t": 8,
    "int32_t": 4,
    "uint32_t": 4,
    "long long": 8,
    "unsigned long long": 8,
    "unsigned": 4,
    "unsigned int": 4,
    "float": 4,
    "double": 8,
    "uint16_t": 2,
    "char": 1,
    "signed char": 1,
}


def width(bench: DoubleBench, c_type: str) -> int:
    """Return the bytes of an argument of a C type of the api file."""
    if c_type.endswith(("*", "]")):
        return 8
    if c_type == "blasint":
        return bench.integer_bits // 8
    meaning = (bench.library.raw | bench.library.integers).get(c_type, c_type)
    if c_type.startswith("enum ") or {c_type, meaning} & bench.library.api["enums"].keys():
        return 4
    return 8 if meaning.endswith("*") else struct_bytes(meaning) or WIDTHS[meaning]


def answer(number: Number) -> Any:
    """Return the number that the double writes or returns, which differs for each dtype and count."""
    first = {"i": -19, "u": 19}.get(number.dtype[0], 4.5)
    numbers: list[Any] = [first + at for at in range(number.count)]
    if number.dtype in ("c64", "c128"):
        numbers = [complex(real, -2.25) for real in numbers]
    return numbers[0] if number.count == 1 else tuple(numbers)


def is_wide(call: Call) -> bool:
    """Return whether the call has a size beyond 32 bits although it has 32 bits in the vendor's plain function."""
    narrow = [size for size in [*call.function.sizes, *call.function.lists] if size.is_narrow]
    return any(not -(2**31) <= number < 2**31 for size in narrow for number in np.ravel(call.integers[size.name]))


def integers_of(bench: DoubleBench, call: Call) -> Any:
    """Return the dtype of the integers that the vendor's function takes in lists."""
    is_wide_call = is_wide(call) and call.function.wide_symbol is not None
    return np.int64 if is_wide_call or bench.integer_bits == 64 else np.int32


def wishes(bench: DoubleBench, call: Call, form: Form) -> tuple[dict[int, Wish], bytes]:
    """Return the bytes that the double notes and writes, for numbers on the host only, and the bytes it returns."""
    function = call.function
    wishes: dict[int, Wish] = {}
    wide = is_wide(call) and function.wide_symbol is not None
    for at, (_, c_type, parameter) in enumerate(legal.vendors_parameters(bench.library, function)):
        if parameter.name in call.many:
            wishes[at] = Wish(peek=8 * len(call.many[parameter.name]))
        if isinstance(parameter, HostList):
            wishes[at] = Wish(peek=list_of(parameter, call, integers_of(bench, call)).nbytes)
        if not isinstance(parameter, Number) or not c_type.endswith("*"):
            continue
        peek = parameter.count * legal.numpy_dtype(parameter.dtype).itemsize
        if parameter.is_read_only:
            if not form.on_device or bench.runs_late:
                wishes[at] = Wish(peek=peek)
        elif not form.on_device:
            wishes[at] = Wish(
                peek=peek if parameter.role == "update" else 0,
                poke=bytes_of(parameter, answer(parameter), wide or parameter.c_type == "int64_t *"),
            )
    result = function.result
    if result and result.role == "returned":
        return wishes, bytes_of(result, answer(result), wide=True)
    return wishes, bench.library.success.to_bytes(8, "little", signed=True)


def check_call(bench: DoubleBench, call: Call, form: Form) -> None:
    """Make one call; fail unless its arguments arrive at the double unchanged, and the results come back."""
    bench.recorder.reset(*wishes(bench, call, form))
    arrays = bench.arrays(call, form)
    with bench.lent(arrays) as pointers:
        result = bench.by_c(call, pointers, form.on_device) if form.in_c else bench.by_python(call, pointers)
        addresses = {name: addresses_of(pointer) for name, pointer in pointers.items()}
    if call.writes_nothing or (not call.reaches_the_vendor and not form.on_device):
        assert not bench.recorder.count
        return
    (record,) = bench.recorder.records()
    check_record(Arrived(bench, call, form, addresses), record)
    check_results(bench, call.function, form, result, arrays)


def addresses_of(pointer: Any) -> Any:
    """Return the address of a pointer, None for a pointer without bytes, or a list for several pointers."""
    if isinstance(pointer, list):
        return [addresses_of(part) for part in pointer]
    return pointer.address if pointer.nbytes else None


@dataclass
class Arrived:
    """A call that was made, and the addresses of its arrays."""

    bench: DoubleBench
    call: Call
    form: Form
    addresses: dict[str, Any]


def check_record(arrived: Arrived, record: Record) -> None:
    """Fail unless each argument of the vendor's function is the value that was passed under its name."""
    library, function = arrived.bench.library, arrived.call.function
    symbol = function.wide_symbol if is_wide(arrived.call) and function.wide_symbol else function.symbol
    assert record.symbol == symbol, f"{record.symbol} was called, not {symbol}"
    parameters = legal.vendors_parameters(library, function)
    types = [kind for _, kind in library.api["functions"][symbol]["parameters"]]
    if any(argument.field_of for argument in function.arguments):  # the double notes fields, not structs
        types = [kind for _, kind, _ in parameters]
    for (label, _, parameter), c_type, argument in zip(parameters, types, record.arguments, strict=True):
        place = f"{symbol}: {label} ({c_type})"
        assert len(argument.value) == width(arrived.bench, c_type), place
        check_argument(arrived, place, parameter, argument)


def check_argument(arrived: Arrived, place: str, parameter: Parameter, argument: Argument) -> None:
    call = arrived.call
    match parameter:
        case Handle():
            check_handle(arrived, place, argument)
        case Stream() | Object():
            assert argument.address, place
        case Workspace():
            assert argument.address and argument.address not in arrived.addresses.values(), place
        case WorkspaceSize():
            wanted = HOST_WORKSPACE if parameter.on_host else WORKSPACE
            assert argument.integer == wanted, f"{place}: got {argument.integer}"
        case Nothing():
            assert not argument.address, f"{place}: got {argument.address:#x}"
        case EnumValue() | Integer():
            assert argument.integer == call.integers[parameter.name], f"{place}: got {argument.integer}"
        case Size():
            integer = call.integers[parameter.name]
            wanted = max(integer, 0) if parameter.may_be_negative else integer
            assert argument.integer == wanted, f"{place}: got {argument.integer}, not {wanted}"
        case Array():
            if parameter.name in call.many:
                assert argument.address, place
                got = np.frombuffer(argument.behind, np.uintp).tolist()
                wanted_too = [
                    known or there for known, there in zip(arrived.addresses[parameter.name], got, strict=True)
                ]
                assert got == wanted_too, f"{place}: got the addresses {got}"
            elif parameter.name in call.absent:
                assert not argument.address, f"{place}: got {argument.address:#x}"
            elif arrived.addresses[parameter.name] is not None:
                assert argument.address == arrived.addresses[parameter.name], f"{place}: got {argument.address:#x}"
        case HostList():
            wanted_list = list_of(parameter, call, integers_of(arrived.bench, call))
            assert argument.behind == wanted_list.tobytes(), f"{place}: got {argument.behind!r} for {wanted_list}"
        case Real():
            wanted_real = np.array(call.numbers[parameter.name], legal.numpy_dtype(parameter.dtype)).tobytes()
            assert argument.value == wanted_real, f"{place}: got {argument.value!r}"
        case Number():
            check_number(arrived, place, parameter, argument)
        case _:
            raise NotImplementedError(place)


def check_handle(arrived: Arrived, place: str, argument: Argument) -> None:
    """Fail unless the handle has the stream and the pointer mode of the call."""
    library, function = arrived.bench.library, arrived.call.function
    assert argument.address, place
    stream, mode = np.frombuffer(argument.behind, np.int64)
    if library.stream == "handle" and arrived.bench.device.startswith("cuda"):
        assert stream, f"{place}: has no stream"
    fetched = library.fetches_results and function.result and function.arrays  # the core fetches it from the device
    on_device = arrived.form.on_device or function.device_only or fetched
    if library.handle and library.scalars == "pointer mode" and (function.numbers or on_device):
        wanted = library.handle["device_mode" if on_device else "host_mode"]
        assert mode == wanted, f"{place}: its pointer mode is {mode}"


def check_number(arrived: Arrived, place: str, parameter: Number, argument: Argument) -> None:
    """Fail unless a number, the pointer to it, or the place for a result arrived."""
    number, form = arrived.call.numbers.get(parameter.name), arrived.form
    is_pointer = parameter.c_type.endswith("*")
    if parameter.name == form.staged and not arrived.bench.runs_late:
        assert argument.address and argument.address not in arrived.addresses.values(), place
    elif form.on_device and is_pointer and not (arrived.bench.runs_late and parameter.is_read_only):
        assert argument.address == arrived.addresses[parameter.name], f"{place}: got {argument.address:#x}"
    elif not is_pointer:
        assert argument.value == bytes_of(parameter, number), f"{place}: got {argument.value!r} for {number}"
    elif number is not None:
        assert argument.behind == bytes_of(parameter, number), f"{place}: got {argument.behind!r} for {number}"
    else:
        assert argument.address, place


def check_results(
    bench: DoubleBench, function: roles.Function, form: Form, result: Any, arrays: dict[str, Any]
) -> None:
    """Fail unless the caller received the values that the double wrote or returned."""
    written = [number for number in function.numbers if not number.is_read_only]
    if not written or form.on_device:
        assert result is None
        if function.result and function.result.role == "returned":
            assert arrays[function.result.name] == answer(function.result), arrays[function.result.name]
    elif function.result:
        assert result == answer(function.result), result
    else:
        assert result == tuple(answer(number) for number in written), result


def check_too_large(bench: DoubleBench, call: Call, size: Size | HostList) -> None:
    """Fail unless a size that is too large for the library is refused with its name."""
    bench.recorder.reset({})
    name = f"{bench.library.name}.{call.function.name}"
    place, number = (
        (r"\[0\]", call.integers[size.name][0]) if isinstance(size, HostList) else ("", call.integers[size.name])
    )
    pattern = rf"^{name}: {size.name}{place} is {number}, and this library"
    with bench.lent(bench.arrays(call, Form())) as pointers:
        with pytest.raises(SizeOverflowError, match=pattern):
            bench.by_python(call, pointers)
    assert not bench.recorder.count


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a function in every form, and with each size beyond 32 bits. Fail if an argument does not arrive unchanged.

    `turns` is the number of calls of each form, with different sizes.
    """
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    forms = bench.forms(function)
    for form in [*forms, *(replace(form, in_c=True) for form in forms if not form.staged)]:
        for turn in range(turns):
            call = legal.draw(bench.library, function, random, least=1 - turn % 2)
            with naming(call, form):
                check_call(bench, call, form)
    tried = 0
    for size, call in legal.large_calls(bench.library, function):
        tried += 1
        for form in (Form(), Form(in_c=True)):
            with naming(call, form):
                is_short = isinstance(size, Size) and size.is_short
                if not is_short and (not size.is_narrow or function.wide_symbol or bench.integer_bits == 64):
                    check_call(bench, call, form)
                else:
                    check_too_large(bench, call, size)
    lists = [extent.pointers for array in function.arrays for extent in array.extents if extent.pointers]
    counts = set().union(*map(legal.expressions.names_in, lists))  # a list can't be so long
    matrices = any(extent.kind != "elements" for array in function.arrays for extent in array.extents)
    possible = [size.name for size in function.sizes if size.name not in counts and matrices]
    assert tried or not possible, f"{function.name}: no call with a size beyond 32 bits was found"
