"""Makes any call through Python and C, on a library's double or on the library itself."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np

import offload_args
from bindings.descriptors import Real
from bindings.helper_functions import ByValue, DeviceNumber, Given, Integer, Object
from bindings.labelled import ObjectKind
from bindings.parameters import NUMPY, EnumValue, HostList, Number, Result, Size
from offload_args import _core, testing
from recording import legal
from recording.legal import Call, roles
from recording.recorder import Recorder, Typed

# The types of handles in typed C functions.
HANDLES = cffi.FFI()
HANDLES.cdef("".join(f"typedef struct oa_{name} oa_{name};" for name in NUMPY))


@dataclass(frozen=True)
class Form:
    """The way in which a call is made."""

    in_c: bool = False  # through the typed C function; otherwise through Python
    on_device: bool = False  # numbers and results are on the device
    staged: str = ""  # a number that is passed by value, while the others are on the device

    def __str__(self) -> str:
        place = f"{'C' if self.in_c else 'Python'}, numbers on the {'device' if self.on_device else 'host'}"
        return place + (f", but for {self.staged}" if self.staged else "")


def bytes_of(number_: Number, number: Any, wide: bool = False) -> bytes:
    """Return the bytes of a number or of several numbers in memory; wide: an index has 64 bits."""
    dtype = np.dtype(np.int64) if wide and legal.is_index(number_) else legal.numpy_dtype(number_.dtype)
    return np.array(number, dtype).tobytes()


def number_at(number: Number, memory: Any) -> Any:
    """Return the number that the typed C function left in memory, or a tuple of several numbers."""
    dtype = np.dtype(np.int64) if legal.is_index(number) else legal.numpy_dtype(number.dtype)
    numbers = np.frombuffer(memory, dtype, number.count).tolist()
    return numbers[0] if number.count == 1 else tuple(numbers)


def handle_of(pointer: Any, dtype: str) -> int:
    """Return the C handle of a DevicePtr."""
    return int(HANDLES.cast("intptr_t", pointer.cdata(HANDLES, f"oa_{dtype} *")))


def list_of(host_list: HostList, call: Call, integers: Any = np.int64) -> Any:
    """Return the values of a list as C takes them; integers: the dtype of sizes."""
    dtype = {"enum": np.intc, "scalar": legal.numpy_dtype(host_list.dtype or "f32")}.get(host_list.label, integers)
    return np.array(
        call.numbers[host_list.name] if host_list.label == "scalar" else call.integers[host_list.name], dtype
    )


class Bench:
    """One library on one device."""

    def __init__(self, library: roles.Library, device: str) -> None:
        warnings.filterwarnings("ignore", ".* is deprecated by its vendor", DeprecationWarning)
        self.library, self.device = library, device
        self.stream: Any = None  # the stream of regions that lend arrays; None: each region's own
        self.module: Any = importlib.import_module(f"offload_args.{library.name}")
        self.runs_late = library.backend is None  # True: numbers on the device are read before the call
        if device.startswith("sim"):
            testing.sim_device(index=int(device[4:]))
        self.handle = self.made_handle() if library.handle and "create" not in library.handle else None
        self.objects: dict[str, Any] = {}  # {class: one object of it}
        for function in library.functions:
            if function.notes and len(function.parameters) == 2:  # the object, and the dtype that it notes
                settings = self.object_of(function.of("object")[0].object_kind)
                getattr(self.module, function.name)(settings, legal.numpy_dtype(legal.NOTED))

    def made_handle(self) -> Any:
        """Return a handle of the library, which its calls need."""
        for function in self.library.functions:
            if any(
                isinstance(argument, Given) and argument.object_kind and argument.object_kind.is_handle
                for argument in function.arguments
            ):
                first = [
                    parameter.enum.values[0][1] for parameter in function.parameters if isinstance(parameter, EnumValue)
                ]
                return getattr(self.module, function.name)(*first, device=self.device)
        raise AssertionError(f"{self.library.name}: no function makes a handle")

    def object_of(self, kind: ObjectKind) -> Any:
        """Return an object of a kind that calls take."""
        if kind.name not in self.objects:
            maker = next(
                function
                for function in self.library.functions
                if any(isinstance(argument, Given) and argument.object_kind == kind for argument in function.arguments)
            )
            values = {
                parameter.name: self.device
                if isinstance(parameter, DeviceNumber)
                else bytes(parameter.count)
                if isinstance(parameter, ByValue)
                else 1
                for parameter in maker.parameters
                if isinstance(parameter, (ByValue, DeviceNumber, Integer))
            }
            self.objects[kind.name] = getattr(self.module, maker.name)(**values)
        return self.objects[kind.name]

    def forms(self, function: roles.Function) -> list[Form]:
        """Return every way to call a function through Python."""
        forms = [Form()]
        if self.library.has_device_form(function):
            forms.append(Form(on_device=True))
            if len(function.numbers) > 1:
                forms += [Form(on_device=True, staged=scalar.name) for scalar in function.of("scalar")]
        return forms

    def arrays(self, call: Call, form: Form) -> dict[str, Any]:
        """Return the arrays that the call needs, with the smallest sizes, and arrays for numbers on the device."""
        function = call.function
        arrays: dict[str, Any] = {}
        for array in function.arrays:
            if array.name in call.absent:
                continue
            places = range(len(call.many.get(array.name, [1])))
            new = [np.zeros(call.needs(array.name, at), legal.numpy_dtype(array.dtype)) for at in places]
            arrays[array.name] = new if array.name in call.many else new[0]
        for number in function.numbers if form.on_device else []:
            if number.name != form.staged:
                value = call.numbers.get(number.name, np.zeros(number.count)[0 if number.count == 1 else slice(None)])
                arrays[number.name] = np.array(value, legal.numpy_dtype(number.dtype))
        return arrays

    @contextmanager
    def lent(self, arrays: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Lend arrays for a block, which gets {name: pointer}."""
        if not arrays:
            yield {}
            return
        listed = [element for array in arrays.values() for element in (array if isinstance(array, list) else [array])]
        with offload_args.offload_args(*listed, device=self.device, stream=self.stream) as pointers:
            rest = iter(pointers)
            yield {
                name: [next(rest) for _ in array] if isinstance(array, list) else next(rest)
                for name, array in arrays.items()
            }

    def by_python(self, call: Call, pointers: dict[str, Any], **changed: Any) -> Any:
        """Make a call through Python, and return its value.

        `changed` has, by name, arguments that replace the call's own.
        """
        objects = {
            argument.name: self.object_of(argument.object_kind)
            for argument in call.function.arguments
            if type(argument) is Object
        }
        values = {**call.integers, **call.numbers, **pointers, **objects, **changed}
        positional = [
            values.get(parameter.name) for parameter in call.function.parameters if not isinstance(parameter, Result)
        ]
        result, places = call.function.result, {**pointers, **changed}
        keywords = {"result": places[result.name]} if result and result.name in places else {}
        if self.handle:
            keywords["handle"] = self.handle
        return getattr(self.module, call.function.name)(*positional, **keywords)

    def counts(self) -> tuple[int, ...]:
        """Return the device's counters of calls and copies, which a refused call must not change."""
        now = offload_args.Device(self.device).counters
        return now.calls, now.bytes_up, now.bytes_down


class DoubleBench(Bench):
    """A library's double on one device; integer_bits: for a library with builds of 32 and of 64 bits."""

    def __init__(self, library: roles.Library, device: str, double: Path, typed: Typed, integer_bits: int) -> None:
        loaded = testing.library(library.name, str(double), device.partition(":")[0])
        assert loaded.path == str(double), loaded
        super().__init__(library, device)
        self.integer_bits, self.typed = integer_bits, typed
        self.recorder = Recorder(library, double, offload_args.Device(device))

    def by_c(self, call: Call, pointers: dict[str, Any], on_device: bool) -> Any:
        """Make a call through the typed C function, and return the value that Python's function would return."""
        name = f"oa_{self.library.name}_{call.function.name}{'_device' if on_device else ''}"
        values: list[Any] = []
        results: list[tuple[Number, Any]] = []
        kept: list[Any] = []
        for parameter, c_type in zip(call.function.parameters, self.typed.types(name), strict=True):
            if isinstance(parameter, (EnumValue, Integer, Size)):
                values.append({"int": ctypes.c_int, "int64_t": ctypes.c_int64}[c_type](call.integers[parameter.name]))
            elif isinstance(parameter, Object):
                values.append(ctypes.c_void_p(_core.object_handle(self.object_of(parameter.object_kind))))
            elif isinstance(parameter, HostList):
                array = list_of(parameter, call)
                kept.append(array)
                values.append(ctypes.c_void_p(array.ctypes.data))
            elif isinstance(parameter, Real):
                values.append(
                    {"float": ctypes.c_float, "double": ctypes.c_double}[c_type](call.numbers[parameter.name])
                )
            elif parameter.name in call.absent:
                values.append(ctypes.c_void_p())
            elif parameter.name in call.many:
                core_type = "any" if parameter.of else parameter.dtype
                handles = [handle_of(pointer, core_type) for pointer in pointers[parameter.name]]
                assert c_type.removeprefix("const ") == f"oa_{core_type} *const *", (parameter.name, c_type)
                kept.append((ctypes.c_void_p * (len(handles) or 1))(*handles))
                values.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
            elif parameter.name in pointers:
                core_type = "any" if parameter.of or getattr(parameter, "noted_by", "") else parameter.dtype
                assert c_type.removeprefix("const ") == f"oa_{core_type} *", (parameter.name, c_type)
                values.append(ctypes.c_void_p(handle_of(pointers[parameter.name], core_type)))
            elif isinstance(parameter, Number):
                memory = ctypes.create_string_buffer(16 * parameter.count)
                data = bytes_of(parameter, call.numbers[parameter.name]) if parameter.name in call.numbers else b""
                if c_type == "float":  # rounded if the number has fewer bits
                    data = np.float32(call.numbers[parameter.name]).tobytes()
                ctypes.memmove(memory, data, len(data))
                kept.append(memory)
                values.append(ctypes.c_void_p(ctypes.addressof(memory)) if c_type.endswith("*") else memory)
                if not parameter.is_read_only:
                    results.append((parameter, memory))
            else:
                raise NotImplementedError(f"{name}: {parameter.name}")
        if self.handle:
            self.typed.use_handle(self.library.name, _core.object_handle(self.handle))
        status = self.typed.call(name, values)
        assert status == 0, f"{name} returned {status}"
        if on_device or not results:
            return None
        outputs = tuple(number_at(result, memory) for result, memory in results)
        return outputs[0] if isinstance(results[0][0], Result) else outputs


@contextmanager
def naming(call: Call, form: Form) -> Iterator[None]:
    """Add the call to the notes of an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {call}, by {form}")
        raise
