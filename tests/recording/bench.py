"""Makes calls through Python and C on a double that records them, and compares what arrived with what was passed."""

from __future__ import annotations

import ctypes
import importlib
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

import offload_args
from bindings.parameters import NUMPY, Array, EnumValue, Handle, Number, Parameter, Result, Size, Stream
from offload_args import testing
from recording import legal
from recording.legal import Call, roles
from recording.recorder import Argument, Record, Recorder, Typed, Wish

# For the handles that typed C functions take.
HANDLES = cffi.FFI()
HANDLES.cdef("".join(f"typedef struct oa_{name} oa_{name};" for name in NUMPY))
WIDTHS = {"int": 4, "int64_t": 8, "size_t": 8, "long long": 8, "float": 4, "double": 8, "uint16_t": 2}


def width(library: roles.Library, c_type: str, wide: bool) -> int:
    """Return the bytes of an argument of a C type of the api file. wide: `blasint` has 64 bits."""
    if c_type.endswith(("*", "]")):
        return 8
    if c_type == "blasint":
        return 8 if wide else 4
    if c_type.startswith("enum ") or c_type in library.api["enums"]:
        return 4
    if c_type in WIDTHS:
        return WIDTHS[c_type]
    meaning = library.raw[c_type]
    return 8 if meaning.endswith("*") else WIDTHS[meaning]


def answer(one: Number) -> Any:
    """Return the number that the double answers with: another one for each dtype and count."""
    if one.dtype == "i32":
        return 19
    numbers: list[Any] = [4.5 + at for at in range(one.count)]
    if one.dtype in ("c64", "c128"):
        numbers = [complex(real, -2.25) for real in numbers]
    return numbers[0] if one.count == 1 else tuple(numbers)


@dataclass
class Form:
    """How a call is made."""

    in_c: bool  # by the typed C function, else by Python
    on_device: bool  # its numbers and results are there
    wide: bool = False  # a size is beyond 32 bits
    staged: str = ""  # a number that is passed as one, though the others are on the device

    def __str__(self) -> str:
        place = f"{'C' if self.in_c else 'Python'}, numbers on the {'device' if self.on_device else 'host'}"
        return place + (f", but for {self.staged}" if self.staged else "")


class Bench:
    """One library on its double, on one device.

    wide: the double has integers of 64 bits, of a library that has such builds.
    """

    def __init__(self, library: roles.Library, device: str, double: Path, typed: Typed, wide: bool = False) -> None:
        self.library, self.device, self.wide, self.typed = library, device, wide, typed
        self.module: Any = importlib.import_module(f"offload_args.{library.name}")
        self.runs_late = library.backend is None  # then numbers on the device are read before the call
        if device.startswith("sim"):
            testing.sim_device(index=int(device[4:]))
        loaded = offload_args.libraries.load(library.name)
        assert loaded.path == str(double), loaded
        self.recorder = Recorder(library, double)

    # -- one call --

    def wishes(self, function: roles.Function, form: Form) -> tuple[dict[int, Wish], bytes]:
        """Return what the double has to look at and write: numbers on the host, and no others."""
        wishes: dict[int, Wish] = {}
        returned = self.library.success.to_bytes(8, "little", signed=True)
        for at, (_, c_type, one) in enumerate(legal.vendors_parameters(self.library, function)):
            if not isinstance(one, Number) or not c_type.endswith("*"):
                continue
            itemsize = one.count * legal.numpy_dtype(one.dtype).itemsize
            if one.is_read_only:
                if not form.on_device or self.runs_late:
                    wishes[at] = Wish(peek=itemsize)
            elif not form.on_device:
                poke = self.bytes_of(one, answer(one), form.wide and function.wide_symbol is not None)
                wishes[at] = Wish(peek=itemsize if one.role == "update" else 0, poke=poke)
        if function.result and function.result.role == "returned":
            returned = self.bytes_of(function.result, answer(function.result), True)
        return wishes, returned

    @staticmethod
    def bytes_of(one: Number, number: Any, wide: bool = False) -> bytes:
        """Return a number as it lies in memory; wide: an index has 64 bits."""
        dtype = np.dtype(np.int64) if wide and one.dtype == "i32" else legal.numpy_dtype(one.dtype)
        return np.array(number, dtype).tobytes()

    def arrays(self, call: Call, form: Form) -> dict[str, Any]:
        """Return the arrays that the call needs, exactly as large: also for its numbers if they are on the device."""
        function = call.function
        made = {one.name: np.zeros(call.needs(one.name), legal.numpy_dtype(one.dtype)) for one in function.arrays}
        if form.on_device:
            for number in function.numbers:
                if number.name == form.staged:
                    continue
                given = call.numbers.get(number.name, np.zeros(number.count)[0 if number.count == 1 else slice(None)])
                made[number.name] = np.array(given, legal.numpy_dtype(number.dtype))
        return made

    def passed(self, call: Call, pointers: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional arguments and the keywords of a call by Python."""
        given = {**call.integers, **call.numbers, **pointers}
        positional = [given.get(one.name) for one in call.function.parameters if not isinstance(one, Result)]
        return positional, {"result": pointers["result"]} if "result" in pointers else {}

    def by_python(self, call: Call, pointers: dict[str, Any]) -> Any:
        """Make a call by Python, and return its value."""
        positional, keywords = self.passed(call, pointers)
        return getattr(self.module, call.function.name)(*positional, **keywords)

    def by_c(self, call: Call, pointers: dict[str, Any], on_device: bool) -> Any:
        """Make a call by the typed C function, and return its value as Python's has it."""
        name = f"oa_{self.library.name}_{call.function.name}{'_device' if on_device else ''}"
        values: list[Any] = []
        stored: list[tuple[Number, Any]] = []
        kept: list[Any] = []
        for one, c_type in zip(call.function.parameters, self.typed.types(name), strict=True):
            if isinstance(one, (EnumValue, Size)):
                values.append({"int": ctypes.c_int, "int64_t": ctypes.c_int64}[c_type](call.integers[one.name]))
            elif one.name in pointers:
                core_type = f"oa_{one.dtype} *"
                assert c_type.removeprefix("const ") == core_type, (one.name, c_type)
                handle = pointers[one.name].cdata(HANDLES, core_type)
                values.append(ctypes.c_void_p(int(HANDLES.cast("intptr_t", handle))))
            else:
                assert isinstance(one, Number)
                memory = ctypes.create_string_buffer(16 * one.count + 16)
                number = call.numbers.get(one.name)
                if number is not None:
                    ctypes.memmove(memory, self.bytes_of(one, number), len(self.bytes_of(one, number)))
                kept.append(memory)
                values.append(ctypes.c_void_p(ctypes.addressof(memory)) if c_type.endswith("*") else memory)
                if not one.is_read_only:
                    stored.append((one, memory))
        status = self.typed.call(name, values)
        assert status == 0, f"{name} returned {status}"
        if on_device or not stored:
            return None
        found = tuple(self.number_at(one, memory) for one, memory in stored)
        return found[0] if isinstance(stored[0][0], Result) else found

    def number_at(self, one: Number, memory: Any) -> Any:
        dtype = np.dtype(np.int64) if one.dtype == "i32" else legal.numpy_dtype(one.dtype)
        numbers = np.frombuffer(memory, dtype, one.count).tolist()
        return numbers[0] if one.count == 1 else tuple(numbers)

    def check(self, call: Call, form: Form) -> None:
        """Make one call; fail unless it arrives at the double as it was made."""
        function = call.function
        self.recorder.reset(*self.wishes(function, form))
        arrays = self.arrays(call, form)
        with ExitStack() as stack:
            if arrays:
                region = offload_args.offload_args(*arrays.values(), device=self.device)
                pointers = dict(zip(arrays, stack.enter_context(region), strict=True))
            else:
                pointers = {}
            result = self.by_c(call, pointers, form.on_device) if form.in_c else self.by_python(call, pointers)
            addresses = {name: pointer.address for name, pointer in pointers.items() if pointer.nbytes}
        (record,) = self.recorder.records()
        self.check_record(record, call, form, addresses)
        self.check_results(function, form, result, arrays)

    # -- what arrived --

    def check_record(self, record: Record, call: Call, form: Form, addresses: dict[str, int]) -> None:
        """Fail unless each argument of the vendor's function is the one that was passed under its name."""
        function = call.function
        # as the roles say of sizes with 32 bits
        wide = any(not -(2**31) <= self.expected(call, one) < 2**31 for one in function.sizes if one.is_narrow)
        symbol = function.wide_symbol if wide and function.wide_symbol else function.symbol
        assert record.symbol == symbol, (record.symbol, symbol)
        parameters = legal.vendors_parameters(self.library, function)
        assert len(record.arguments) == len(parameters)
        types = [kind for _, kind in self.library.api["functions"][symbol]["parameters"]]
        for (label, _, one), c_type, argument in zip(parameters, types, record.arguments, strict=True):
            where = f"{symbol}: {label} ({c_type})"
            assert len(argument.value) == width(self.library, c_type, self.wide), where
            self.check_argument(where, one, argument, call, form, addresses)

    def expected(self, call: Call, one: Size) -> int:
        """Return the value of a size that the vendor's function gets."""
        given = call.integers[one.name]
        return max(given, 0) if one.may_be_negative else given

    def check_argument(
        self, where: str, one: Parameter, argument: Argument, call: Call, form: Form, addresses: dict[str, int]
    ) -> None:
        match one:
            case Handle():
                assert argument.address, where
                stream, mode = np.frombuffer(argument.behind, np.int64)
                if self.library.stream == "handle":
                    assert stream or self.device.startswith("sim"), f"{where}: has no stream"
                if self.library.scalars == "pointer mode":
                    there = form.on_device or call.function.device_only
                    wanted = self.library.handle["device_mode" if there else "host_mode"] if self.library.handle else 0
                    if there or call.function.numbers:
                        assert mode == wanted, f"{where}: its pointer mode is {mode}"
            case Stream():
                assert argument.address, where
            case EnumValue():
                assert argument.integer == call.integers[one.name], f"{where}: got {argument.integer}"
            case Size():
                wanted = self.expected(call, one)
                assert argument.integer == wanted, f"{where}: got {argument.integer}, not {wanted}"
            case Array():
                if one.name in addresses:
                    assert argument.address == addresses[one.name], f"{where}: got {argument.address:#x}"
            case Number():
                self.check_number(where, one, argument, call, form, addresses)
            case _:
                raise NotImplementedError(where)

    def check_number(
        self, where: str, one: Number, argument: Argument, call: Call, form: Form, addresses: dict[str, int]
    ) -> None:
        number = call.numbers.get(one.name)
        is_pointer = one.c_type.endswith("*")
        if one.name == form.staged and not self.runs_late:
            assert argument.address and argument.address not in addresses.values(), where
        elif form.on_device and is_pointer and not (self.runs_late and one.is_read_only):
            assert argument.address == addresses[one.name], f"{where}: got {argument.address:#x}"
        elif not is_pointer:
            assert argument.value == self.bytes_of(one, number), f"{where}: got {argument.value!r} for {number}"
        elif number is not None:
            assert argument.behind == self.bytes_of(one, number), f"{where}: got {argument.behind!r} for {number}"
        else:
            assert argument.address, where

    def check_results(self, function: roles.Function, form: Form, result: Any, arrays: dict[str, Any]) -> None:
        """Fail unless the caller gets what the double answered."""
        written = [one for one in function.numbers if not one.is_read_only]
        if not written or form.on_device:
            assert result is None
            if function.result and function.result.role == "returned" and form.on_device:
                assert arrays["result"] == answer(function.result), arrays["result"]
        elif function.result:
            assert result == answer(function.result), result
        else:
            assert result == tuple(answer(one) for one in written), result

    # -- all calls of one function --

    def forms(self, function: roles.Function) -> list[Form]:
        """Return every way to call a function that takes and gives no size beyond 32 bits."""
        places = [False, True] if self.library.has_device_form(function) else [False]
        forms = [Form(in_c, on_device) for in_c in (False, True) for on_device in places]
        if len(places) == 2 and len(function.numbers) > 1:
            forms += [Form(in_c=False, on_device=True, staged=one.name) for one in function.of("scalar")]
        return forms

    def check_arrival(self, function: roles.Function, turns: int) -> None:
        """Call a function in every form; fail if a call does not arrive as it was made."""
        random = np.random.default_rng(zlib.crc32(function.name.encode()))
        for form in self.forms(function):
            for turn in range(turns):
                call = legal.draw(self.library, function, random, least=1 - turn % 2)
                with naming(call, form):
                    self.check(call, form)
        self.check_large(function)

    def check_large(self, function: roles.Function) -> None:
        """Call a function with each size beyond 32 bits that is legal; the library has to have a form that takes it."""
        tried = 0
        for size, call in legal.large_calls(self.library, function):
            tried += 1
            taken = not size.is_narrow or function.wide_symbol or self.wide
            for in_c in (False, True):
                form = Form(in_c, on_device=False, wide=size.is_narrow)
                with naming(call, form):
                    if taken:
                        self.check(call, form)
                    else:
                        self.check_too_large(call, form, size)
        if function.sizes and not tried:
            raise AssertionError(f"{function.name}: no call with a size beyond 32 bits was found")

    def check_too_large(self, call: Call, form: Form, size: Size) -> None:
        """Fail unless a size that the library can't take is refused by name."""
        if form.in_c:
            return
        self.recorder.reset({})
        arrays = self.arrays(call, form)
        pattern = (
            rf"{self.library.name}\.{call.function.name}: {size.name} is {call.integers[size.name]}, and this library"
        )
        with offload_args.offload_args(*arrays.values(), device=self.device) as pointers:
            with pytest.raises(offload_args.errors.SizeOverflowError, match=pattern):
                self.by_python(call, dict(zip(arrays, pointers, strict=True)))
        assert not self.recorder.count


@contextmanager
def naming(call: Call, form: Form) -> Iterator[None]:
    """Say which call failed."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {call}, by {form}")
        raise
