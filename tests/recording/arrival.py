"""Checks that each argument of a call arrives at the vendor's function: in its place, of its width, with its value."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bindings.descriptors import Nothing, Real
from bindings.helper_functions import Object
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
    return 8 if meaning.endswith("*") else WIDTHS[meaning]


def answer(one: Number) -> Any:
    """Return the number that the double writes or returns: another one for each dtype and count."""
    first = {"i": -19, "u": 19}.get(one.dtype[0], 4.5)
    numbers: list[Any] = [first + at for at in range(one.count)]
    if one.dtype in ("c64", "c128"):
        numbers = [complex(real, -2.25) for real in numbers]
    return numbers[0] if one.count == 1 else tuple(numbers)


def is_wide(call: Call) -> bool:
    """Return whether a size that has 32 bits, unless the library has a form for more, is beyond them."""
    narrow = [one for one in [*call.function.sizes, *call.function.lists] if one.is_narrow]
    return any(not -(2**31) <= number < 2**31 for one in narrow for number in np.ravel(call.integers[one.name]))


def integers_of(bench: DoubleBench, call: Call) -> Any:
    """Return the dtype of the integers that the vendor's function takes in lists."""
    is_wide_call = is_wide(call) and call.function.wide_symbol is not None
    return np.int64 if is_wide_call or bench.integer_bits == 64 else np.int32


def wishes(bench: DoubleBench, call: Call, form: Form) -> tuple[dict[int, Wish], bytes]:
    """Return what the double looks at and writes, numbers on the host and no others, and what it returns."""
    function = call.function
    found: dict[int, Wish] = {}
    wide = is_wide(call) and function.wide_symbol is not None
    for at, (_, c_type, one) in enumerate(legal.vendors_parameters(bench.library, function)):
        if one.name in call.many:
            found[at] = Wish(peek=8 * len(call.many[one.name]))
        if isinstance(one, HostList):
            found[at] = Wish(peek=list_of(one, call, integers_of(bench, call)).nbytes)
        if not isinstance(one, Number) or not c_type.endswith("*"):
            continue
        peek = one.count * legal.numpy_dtype(one.dtype).itemsize
        if one.is_read_only:
            if not form.on_device or bench.runs_late:
                found[at] = Wish(peek=peek)
        elif not form.on_device:
            found[at] = Wish(
                peek=peek if one.role == "update" else 0,
                poke=bytes_of(one, answer(one), wide or one.c_type == "int64_t *"),
            )
    result = function.result
    if result and result.role == "returned":
        return found, bytes_of(result, answer(result), wide=True)
    return found, bench.library.success.to_bytes(8, "little", signed=True)


def check_call(bench: DoubleBench, call: Call, form: Form) -> None:
    """Make one call; fail unless it arrives at the double as it was made, and its results come back."""
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
    """Return the address of a pointer, None of one without bytes, or a list of those of several."""
    if isinstance(pointer, list):
        return [addresses_of(one) for one in pointer]
    return pointer.address if pointer.nbytes else None


@dataclass
class Arrived:
    """A call that was made, and the addresses of its arrays."""

    bench: DoubleBench
    call: Call
    form: Form
    addresses: dict[str, Any]


def check_record(made: Arrived, record: Record) -> None:
    """Fail unless each argument of the vendor's function is the one that was passed under its name."""
    library, function = made.bench.library, made.call.function
    symbol = function.wide_symbol if is_wide(made.call) and function.wide_symbol else function.symbol
    assert record.symbol == symbol, f"{record.symbol} was called, not {symbol}"
    parameters = legal.vendors_parameters(library, function)
    types = [kind for _, kind in library.api["functions"][symbol]["parameters"]]
    if any(one.field_of for one in function.arguments):  # the double notes the fields, and no struct
        types = [kind for _, kind, _ in parameters]
    for (label, _, one), c_type, argument in zip(parameters, types, record.arguments, strict=True):
        where = f"{symbol}: {label} ({c_type})"
        assert len(argument.value) == width(made.bench, c_type), where
        check_argument(made, where, one, argument)


def check_argument(made: Arrived, where: str, one: Parameter, argument: Argument) -> None:
    call = made.call
    match one:
        case Handle():
            check_handle(made, where, argument)
        case Stream() | Object():
            assert argument.address, where
        case Workspace():
            assert argument.address and argument.address not in made.addresses.values(), where
        case WorkspaceSize():
            wanted = HOST_WORKSPACE if one.on_host else WORKSPACE
            assert argument.integer == wanted, f"{where}: got {argument.integer}"
        case Nothing():
            assert not argument.address, f"{where}: got {argument.address:#x}"
        case EnumValue():
            assert argument.integer == call.integers[one.name], f"{where}: got {argument.integer}"
        case Size():
            given = call.integers[one.name]
            wanted = max(given, 0) if one.may_be_negative else given
            assert argument.integer == wanted, f"{where}: got {argument.integer}, not {wanted}"
        case Array():
            if one.name in call.many:
                assert argument.address, where
                got = np.frombuffer(argument.behind, np.uintp).tolist()
                wanted_too = [known or there for known, there in zip(made.addresses[one.name], got, strict=True)]
                assert got == wanted_too, f"{where}: got the addresses {got}"
            elif one.name in call.absent:
                assert not argument.address, f"{where}: got {argument.address:#x}"
            elif made.addresses[one.name] is not None:
                assert argument.address == made.addresses[one.name], f"{where}: got {argument.address:#x}"
        case HostList():
            wanted_list = list_of(one, call, integers_of(made.bench, call))
            assert argument.behind == wanted_list.tobytes(), f"{where}: got {argument.behind!r} for {wanted_list}"
        case Real():
            wanted_real = np.array(call.numbers[one.name], legal.numpy_dtype(one.dtype)).tobytes()
            assert argument.value == wanted_real, f"{where}: got {argument.value!r}"
        case Number():
            check_number(made, where, one, argument)
        case _:
            raise NotImplementedError(where)


def check_handle(made: Arrived, where: str, argument: Argument) -> None:
    """Fail unless the handle has the stream and the pointer mode of the call."""
    library, function = made.bench.library, made.call.function
    assert argument.address, where
    stream, mode = np.frombuffer(argument.behind, np.int64)
    if library.stream == "handle" and made.bench.device.startswith("cuda"):
        assert stream, f"{where}: has no stream"
    on_device = made.form.on_device or function.device_only
    if library.handle and library.scalars == "pointer mode" and (function.numbers or on_device):
        wanted = library.handle["device_mode" if on_device else "host_mode"]
        assert mode == wanted, f"{where}: its pointer mode is {mode}"


def check_number(made: Arrived, where: str, one: Number, argument: Argument) -> None:
    """Fail unless a number, the pointer to it, or the place for a result arrived."""
    number, form = made.call.numbers.get(one.name), made.form
    is_pointer = one.c_type.endswith("*")
    if one.name == form.staged and not made.bench.runs_late:
        assert argument.address and argument.address not in made.addresses.values(), where
    elif form.on_device and is_pointer and not (made.bench.runs_late and one.is_read_only):
        assert argument.address == made.addresses[one.name], f"{where}: got {argument.address:#x}"
    elif not is_pointer:
        assert argument.value == bytes_of(one, number), f"{where}: got {argument.value!r} for {number}"
    elif number is not None:
        assert argument.behind == bytes_of(one, number), f"{where}: got {argument.behind!r} for {number}"
    else:
        assert argument.address, where


def check_results(
    bench: DoubleBench, function: roles.Function, form: Form, result: Any, arrays: dict[str, Any]
) -> None:
    """Fail unless the caller has what the double wrote or returned."""
    written = [one for one in function.numbers if not one.is_read_only]
    if not written or form.on_device:
        assert result is None
        if function.result and function.result.role == "returned":
            assert arrays["result"] == answer(function.result), arrays["result"]
    elif function.result:
        assert result == answer(function.result), result
    else:
        assert result == tuple(answer(one) for one in written), result


def check_too_large(bench: DoubleBench, call: Call, size: Size | HostList) -> None:
    """Fail unless a size that the library can't take is refused by name."""
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
    """Call a function in every form, and with each size beyond 32 bits; fail if a call does not arrive as it was made.

    turns: calls of each form, with other sizes.
    """
    random = np.random.default_rng(zlib.crc32(function.name.encode()))
    forms = bench.forms(function)
    for form in [*forms, *(replace(one, in_c=True) for one in forms if not one.staged)]:
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
    counts = set().union(*map(legal.expressions.names_in, lists))  # no list is so long
    matrices = any(extent.kind != "elements" for array in function.arrays for extent in array.extents)
    possible = [one.name for one in function.sizes if one.name not in counts and matrices]
    assert tried or not possible, f"{function.name}: no call with a size beyond 32 bits was found"
