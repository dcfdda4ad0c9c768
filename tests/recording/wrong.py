"""Checks that each wrong argument, in each place of each function, is refused by name before anything is done."""

from __future__ import annotations

import ast
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import offload_args
from bindings.descriptors import Real
from bindings.helper_functions import Integer, Object
from bindings.parameters import Array, EnumValue, HostList, Number, Parameter, PointerArray, Result, Size
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    SizeOverflowError,
    StalePointerError,
    WrongDeviceError,
)
from recording import legal
from recording.bench import DoubleBench, Form, naming
from recording.legal import Call, roles

HUGE = 10**400
REFUSED_SIZES = (ArgumentError, ExtentError, SizeOverflowError, AliasError)


class Wrong(NamedTuple):
    """A wrong argument, and the exceptions that a call with it may raise."""

    value: Any
    kinds: tuple[type[Exception], ...]
    name: str = ""  # the name in messages; "": the parameter's name


class Foreign:
    """Pointers, by dtype, that calls of the bench must refuse in all places or in some."""

    def __init__(self, device: str, dtypes: set[str], elements: int, stack: ExitStack) -> None:
        arrays = {name: np.zeros(elements, legal.numpy_dtype(name)) for name in dtypes}
        self.arrays = arrays
        self.other = "sim:1" if device == "sim:0" else "sim:0"
        with offload_args.offload_args(*arrays.values(), device=device) as pointers:
            self.stale = dict(zip(arrays, pointers, strict=True))
        region = offload_args.offload_args(*arrays.values(), device=self.other)
        self.elsewhere = dict(zip(arrays, stack.enter_context(region), strict=True))
        region = offload_args.offload_args(*(array.copy() for array in arrays.values()), device=device)
        self.here = dict(zip(arrays, stack.enter_context(region), strict=True))


def wrong_integers(parameter: Parameter, pointer: Any) -> Iterator[Wrong]:
    """Yield values that are not integers, and integers out of range."""
    of_array = isinstance(parameter, EnumValue) and parameter.enum.from_array  # None is legal for these
    for value in (*(() if of_array else (None,)), 1.0, float("nan"), 1j, "1", [1], {}):
        yield Wrong(value, (ArgumentTypeError,))
    if not (isinstance(parameter, EnumValue) and parameter.enum.dtypes):  # an enum of dtypes may be given as a dtype
        yield from (Wrong(value, (ArgumentTypeError,)) for value in (np.float32(1), np.ones(2, int)))
    yield Wrong(pointer, (ArgumentTypeError, HostPointerError))
    for value in (2**63, -(2**63) - 1, HUGE, -HUGE):
        yield Wrong(value, (SizeOverflowError,))


def wrong_enums(enum_value: EnumValue) -> Iterator[Wrong]:
    """Yield integers that are not constants of the parameter."""
    known = [number for _, number in enum_value.enum.values]
    for value in (min(known) - 1, max(known) + 1, -(2**31), 2**31 - 1):
        if value not in known:
            yield Wrong(value, (ArgumentError,))
    for value in (2**31, -(2**31) - 1, 2**32 + known[0]):
        yield Wrong(value, (SizeOverflowError,))


def wrong_sizes(function: roles.Function, size: Size, call: Call) -> Iterator[Wrong]:
    """Yield sizes that are negative without a meaning, too small, or larger than every array."""
    if size.label == "size" and not size.may_be_negative:
        yield Wrong(-1, (ArgumentError,))
        yield Wrong(-(2**63), (ArgumentError, SizeOverflowError))
    if size.label == "size" and any(size.name in names_of(array) for array in function.arrays):
        yield Wrong(2**63 - 1, REFUSED_SIZES)
        yield Wrong(2**31 + 1, REFUSED_SIZES)
    of_ld = [array for array in function.arrays if size.name in names_of(array)]
    left_out = of_ld and not any(call.touched[array.name].size for array in of_ld)  # no size is 0 in `call`
    if size.label == "ld" and not left_out:
        compared = any(
            size.name in legal.expressions.names_in(needed) for needed in function.requires
        )  # checked before extents
        kinds = (ExtentError, ArgumentError) if compared else (ExtentError,)
        yield from (Wrong(value, kinds) for value in (0, -1, least_ld(call, size) - 1))
        yield Wrong(-(2**63), (*kinds, SizeOverflowError))
        yield Wrong(2**63 - 1, REFUSED_SIZES)
    if size.label == "inc":
        if not legal.may_stand_still(function, size.name):
            yield Wrong(0, (ArgumentError,))
        yield from (Wrong(value, REFUSED_SIZES) for value in (2**63 - 1, -(2**63), -(2**63) + 1, 2**31 + 1))
    if size.label == "stride" and not left_out:
        yield from (Wrong(value, REFUSED_SIZES) for value in (-1, -(2**63), 2**63 - 1))


def unfit_sizes(call: Call) -> Iterator[tuple[Size, Wrong]]:
    """Yield, for each comparison of sizes that must hold in a function, a size that violates it."""
    for require in call.function.requires:
        for size in call.function.sizes:
            if size.name not in legal.expressions.names_in(require):
                continue
            for value in (0, 100):
                names = call.names | {size.name: value}
                if not legal.value(require, names):
                    first = next(other for other in call.function.requires if not legal.value(other, names))
                    yield size, Wrong(value, (ArgumentError,), f"needs {ast.unparse(first)}, got ")


def names_of(array: Array) -> set[str]:
    """Return the names in an array's extent."""
    return set().union(*(legal.expressions.names_in(expression) for expression in array.expressions))


def least_ld(call: Call, size: Size) -> int:
    return legal.least(call.library, call.function, size, call.integers)


def wrong_lists(
    bench: DoubleBench, pointer_array: PointerArray, foreign: Foreign, pointers: list[Any]
) -> Iterator[Wrong]:
    """Yield values that are not lists of pointers, lists of wrong lengths, and lists with one wrong pointer."""
    own = foreign.arrays[pointer_array.dtype]
    for value in (None, 0, 1.5, "x", {}, own):
        yield Wrong(value, (ArgumentTypeError, HostPointerError))
    for value in (foreign.here[pointer_array.dtype], foreign.here[pointer_array.dtype].reshape((1, -1))):
        yield Wrong(value, (ArgumentTypeError, ArgumentError))
    for value in ([], pointers[:-1], [*pointers, pointers[0]]):
        yield Wrong(value, (ArgumentError,))
    at = len(pointers) // 2
    wrong: list[Wrong] = [Wrong(value, (HostPointerError,)) for value in (None, 0, own, [pointers[0]])]
    wrong += [Wrong(pointer, (DTypeError,)) for dtype, pointer in foreign.here.items() if dtype != pointer_array.dtype]
    wrong.append(Wrong(foreign.stale[pointer_array.dtype], (StalePointerError,)))
    wrong.append(Wrong(foreign.elsewhere[pointer_array.dtype], (WrongDeviceError,)))
    wrong.append(Wrong(pointers[at][:-1], (ExtentError,)))
    for value, kinds, _ in wrong:
        yield Wrong([*pointers[:at], value, *pointers[at + 1 :]], kinds, f"{pointer_array.name}[{at}]")


def wrong_arrays(bench: DoubleBench, call: Call, array: Array, foreign: Foreign) -> Iterator[Wrong]:
    """Yield values that are not device pointers, and pointers of another dtype, device or ended region."""
    own, function = foreign.arrays[array.dtype], call.function
    for value in (
        *(() if legal.may_be_absent(call, array) else (None,)),
        0,
        1 << 40,
        1.5,
        "x",
        [1.0],
        own,
        own.ctypes.data,
        memoryview(own.view(np.uint8)),
    ):
        yield Wrong(value, (HostPointerError,))
    for dtype, pointer in foreign.here.items():
        if dtype != array.dtype:
            yield Wrong(pointer, (DTypeError,))
    yield Wrong(np.zeros(1, np.int8), (HostPointerError,))
    yield Wrong(foreign.stale[array.dtype], (StalePointerError,))
    if bench.device.partition(":")[0] == bench.library.backend or len(function.arrays) > 1:
        yield Wrong(foreign.elsewhere[array.dtype], (WrongDeviceError,))


def wrong_numbers(bench: DoubleBench, function: roles.Function, parameter: Number, foreign: Foreign) -> Iterator[Wrong]:
    """Yield values that are neither numbers nor pointers to them."""
    has_device_form = bench.library.has_device_form(function)
    if parameter.role in ("scalar", "update"):
        values = (None, "1", b"1", [1.0], {}, np.ones(2), np.ones(1, complex))
        yield from (Wrong(value, (ArgumentTypeError, HostPointerError)) for value in values)
        if parameter.count > 1:
            wrong = ((), (1.0,) * (parameter.count + 1), (1.0,) * (parameter.count - 1) + ("1",), 1.0)
            yield from (Wrong(value, (ArgumentTypeError,)) for value in wrong)
        else:
            yield Wrong(HUGE, (SizeOverflowError,))
            if parameter.dtype in ("f32", "f64"):
                yield from (Wrong(value, (ArgumentTypeError,)) for value in (1j, np.complex64(1)))
    elif parameter.role == "output":
        yield from (Wrong(value, (HostPointerError,)) for value in (1.0, "x", np.ones(1)))
    if not has_device_form:
        return
    # If one number is on the device, results and updates must be there, and the error may name them first.
    first = () if all(number.is_read_only for number in function.numbers) else (HostPointerError,)
    for dtype, pointer in foreign.here.items():
        if dtype != parameter.dtype:
            yield Wrong(pointer[: parameter.count], (DTypeError, *first))
    yield Wrong(foreign.here[parameter.dtype][: parameter.count + 1], (ExtentError, *first))
    yield Wrong(foreign.here[parameter.dtype][:0], (ExtentError, *first))


def wrong_host_lists(host_list: HostList, call: Call, pointer: Any) -> Iterator[Wrong]:
    """Yield values that are not sequences on the host, and sequences with a wrong value or with too many values."""
    values = list(call.numbers[host_list.name] if host_list.label == "scalar" else call.integers[host_list.name])
    for value in (None, 1, 1.5, "x", b"x"):
        yield Wrong(value, (ArgumentTypeError,))
    yield Wrong(pointer, (HostPointerError,))
    for value in ([*values, values[0]], values[:-1]):
        yield Wrong(value, (ArgumentError,))
    wrong = [(None, ArgumentTypeError), ("1", ArgumentTypeError)]
    if host_list.label != "scalar":
        wrong += [(1.0, ArgumentTypeError), (2**63, SizeOverflowError), (HUGE, SizeOverflowError)]
    if host_list.label in ("enum", "size"):
        wrong.append((-1, ArgumentError))
    for value, kind in wrong:
        yield Wrong([*values[:-1], value], (kind,), f"{host_list.name}[{len(values) - 1}]")


def wrong_ones(
    bench: DoubleBench, call: Call, parameter: Parameter, foreign: Foreign, pointers: dict[str, Any]
) -> Iterator[Wrong]:
    """Yield every wrong argument for a parameter."""
    match parameter:
        case EnumValue():
            yield from wrong_integers(parameter, foreign.here["f32"])
            yield from wrong_enums(parameter)
        case Integer():
            yield from wrong_integers(parameter, foreign.here["f32"])
        case Size():
            yield from wrong_integers(parameter, foreign.here["f32"])
            yield from wrong_sizes(call.function, parameter, call)
        case HostList():
            yield from wrong_host_lists(parameter, call, foreign.here["f32"])
        case Result(on_host=True):
            return  # Python's function has no such argument
        case PointerArray():
            yield from wrong_lists(bench, parameter, foreign, pointers[parameter.name])
        case Array():
            yield from wrong_arrays(bench, call, parameter, foreign)
        case Object():
            for value in (None, 0, 1.5, "x", foreign.here["f32"]):
                yield Wrong(value, (ArgumentTypeError, HostPointerError))
        case Real():
            for value in (None, 1j, "1", [1], {}):
                yield Wrong(value, (ArgumentTypeError,))
            for value in (foreign.here["f32"], foreign.here["f32"][:1], foreign.arrays["f32"]):
                yield Wrong(value, (HostPointerError,))
        case Number():
            yield from wrong_numbers(bench, call.function, parameter, foreign)
        case _:
            raise NotImplementedError(parameter.name)


def check_refused(
    bench: DoubleBench, call: Call, parameter: Parameter, wrong: Wrong, pointers: dict[str, Any], names: tuple[str, ...]
) -> None:
    """Fail unless a call does nothing but raise the right exception, which names the function and the argument."""
    before, name = bench.counts(), parameter.name
    try:
        bench.by_python(call, pointers, **{name: wrong.value})
    except wrong.kinds as error:
        text = str(error)
        function = f"{bench.library.name}.{call.function.name}: "
        assert text.startswith(function), f"{name}={wrong.value!r:.60}: {text}"
        assert any(word in text.removeprefix(function) for word in names), f"{name}={wrong.value!r:.60}: {text}"
        assert len(text) < 600, text
    except Exception as error:
        raise AssertionError(f"{name}={wrong.value!r:.60} raised {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{name}={wrong.value!r:.60} was taken")
    assert bench.counts() == before, f"{name}={wrong.value!r:.60}: something moved"


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a function with every kind of wrong argument for each parameter; fail if it accepts a wrong argument."""
    random = np.random.default_rng(zlib.crc32(f"wrong {function.name}".encode()))
    for _ in range(turns):
        call = legal.draw(bench.library, function, random, least=2)
        while any(call.integers[inc.name] == 0 for inc in function.of("inc")):  # then sizes are unbounded
            call = legal.draw(bench.library, function, random, least=2)
        typed = call.function  # with the dtypes that its arguments give
        arrays = bench.arrays(call, Form())
        bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with ExitStack() as stack:
            dtypes = {"f32", "f64"} | {parameter.dtype for parameter in typed.parameters if parameter.dtype}
            foreign = Foreign(
                bench.device, dtypes, max([8, *(call.needs(array.name) for array in function.arrays)]), stack
            )
            pointers = stack.enter_context(bench.lent(arrays))
            with naming(call, Form()):
                for parameter in typed.parameters:
                    sharing = tuple(array.name for array in typed.arrays if parameter.name in names_of(array))
                    if isinstance(parameter, Number):  # all numbers must be on the device if one is
                        sharing = tuple(number.name for number in typed.numbers)
                    for wrong in wrong_ones(bench, call, parameter, foreign, pointers):
                        check_refused(
                            bench,
                            call,
                            parameter,
                            wrong,
                            pointers,
                            (wrong.name,) if wrong.name else (parameter.name, *sharing),
                        )
                for parameter, wrong in unfit_sizes(call):
                    check_refused(bench, call, parameter, wrong, pointers, (wrong.name,))
                bench.by_python(call, pointers)
        assert bench.recorder.count == 1
