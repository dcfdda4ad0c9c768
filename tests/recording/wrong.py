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
from bindings.helper_functions import Object
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
    """A wrong argument, and the exceptions that are right."""

    value: Any
    kinds: tuple[type[Exception], ...]
    name: str = ""  # in messages, if it is not the parameter's


class Foreign:
    """Pointers that no call of the bench may take, or not everywhere: by dtype."""

    def __init__(self, device: str, dtypes: set[str], elements: int, stack: ExitStack) -> None:
        arrays = {name: np.zeros(elements, legal.numpy_dtype(name)) for name in dtypes}
        self.arrays = arrays
        self.other = "sim:1" if device == "sim:0" else "sim:0"
        with offload_args.offload_args(*arrays.values(), device=device) as pointers:
            self.stale = dict(zip(arrays, pointers, strict=True))
        region = offload_args.offload_args(*arrays.values(), device=self.other)
        self.elsewhere = dict(zip(arrays, stack.enter_context(region), strict=True))
        region = offload_args.offload_args(*(one.copy() for one in arrays.values()), device=device)
        self.here = dict(zip(arrays, stack.enter_context(region), strict=True))


def wrong_integers(one: Parameter, pointer: Any) -> Iterator[Wrong]:
    """Yield values that are not integers, and integers that do not fit."""
    for value in (None, 1.0, float("nan"), 1j, "1", [1], {}):
        yield Wrong(value, (ArgumentTypeError,))
    if not (isinstance(one, EnumValue) and one.enum.dtypes):  # such a one may be given as a dtype
        yield from (Wrong(value, (ArgumentTypeError,)) for value in (np.float32(1), np.ones(2, int)))
    yield Wrong(pointer, (ArgumentTypeError, HostPointerError))
    for value in (2**63, -(2**63) - 1, HUGE, -HUGE):
        yield Wrong(value, (SizeOverflowError,))


def wrong_enums(one: EnumValue) -> Iterator[Wrong]:
    """Yield integers that the parameter has no constant for."""
    known = [number for _, number in one.enum.values]
    for value in (min(known) - 1, max(known) + 1, -(2**31), 2**31 - 1):
        if value not in known:
            yield Wrong(value, (ArgumentError,))
    for value in (2**31, -(2**31) - 1, 2**32 + known[0]):
        yield Wrong(value, (SizeOverflowError,))


def wrong_sizes(function: roles.Function, one: Size, call: Call) -> Iterator[Wrong]:
    """Yield sizes that are negative where that means nothing, too small, or beyond every array."""
    if one.label == "size" and not one.may_be_negative:
        yield Wrong(-1, (ArgumentError,))
        yield Wrong(-(2**63), (ArgumentError, SizeOverflowError))
    if one.label == "size" and any(one.name in names_of(array) for array in function.arrays):
        yield Wrong(2**63 - 1, REFUSED_SIZES)
        yield Wrong(2**31 + 1, REFUSED_SIZES)
    of_ld = [array for array in function.arrays if one.name in names_of(array)]
    left_out = of_ld and not any(call.touched[array.name].size for array in of_ld)  # no size is 0 here
    if one.label == "ld" and not left_out:
        compared = any(one.name in legal.expressions.names_in(needed) for needed in function.requires)  # before extents
        kinds = (ExtentError, ArgumentError) if compared else (ExtentError,)
        yield from (Wrong(value, kinds) for value in (0, -1, least_ld(call, one) - 1))
        yield Wrong(-(2**63), (*kinds, SizeOverflowError))
        yield Wrong(2**63 - 1, REFUSED_SIZES)
    if one.label == "inc":
        if not legal.may_stand_still(function, one.name):
            yield Wrong(0, (ArgumentError,))
        yield from (Wrong(value, REFUSED_SIZES) for value in (2**63 - 1, -(2**63), -(2**63) + 1, 2**31 + 1))
    if one.label == "stride":
        yield from (Wrong(value, REFUSED_SIZES) for value in (-1, -(2**63), 2**63 - 1))


def unfit_sizes(call: Call) -> Iterator[tuple[Size, Wrong]]:
    """Yield, for each comparison of sizes that a function needs, a size with which it does not hold."""
    for one in call.function.requires:
        for size in call.function.sizes:
            if size.name not in legal.expressions.names_in(one):
                continue
            for value in (0, 100):
                names = call.names | {size.name: value}
                if not legal.value(one, names):
                    first = next(other for other in call.function.requires if not legal.value(other, names))
                    yield size, Wrong(value, (ArgumentError,), f"needs {ast.unparse(first)}, got ")


def names_of(array: Array) -> set[str]:
    """Return the names that an array's extent has."""
    return set().union(*(legal.expressions.names_in(one) for one in array.expressions))


def least_ld(call: Call, one: Size) -> int:
    return legal.least(call.library, call.function, one, call.integers)


def wrong_lists(bench: DoubleBench, one: PointerArray, foreign: Foreign, given: list[Any]) -> Iterator[Wrong]:
    """Yield values that are not lists of pointers, lists of other lengths, and lists with one wrong pointer."""
    own = foreign.arrays[one.dtype]
    for value in (None, 0, 1.5, "x", {}, own):
        yield Wrong(value, (ArgumentTypeError, HostPointerError))
    for value in (foreign.here[one.dtype], foreign.here[one.dtype].reshape((1, -1))):
        yield Wrong(value, (ArgumentTypeError, ArgumentError))
    for value in ([], given[:-1], [*given, given[0]]):
        yield Wrong(value, (ArgumentError,))
    at = len(given) // 2
    wrong: list[Wrong] = [Wrong(value, (HostPointerError,)) for value in (None, 0, own, [given[0]])]
    wrong += [Wrong(pointer, (DTypeError,)) for dtype, pointer in foreign.here.items() if dtype != one.dtype]
    wrong.append(Wrong(foreign.stale[one.dtype], (StalePointerError,)))
    wrong.append(Wrong(foreign.elsewhere[one.dtype], (WrongDeviceError,)))
    wrong.append(Wrong(given[at][:-1], (ExtentError,)))
    for value, kinds, _ in wrong:
        yield Wrong([*given[:at], value, *given[at + 1 :]], kinds, f"{one.name}[{at}]")


def wrong_arrays(bench: DoubleBench, call: Call, one: Array, foreign: Foreign) -> Iterator[Wrong]:
    """Yield values that are not device pointers, and pointers of another dtype or device or after their region."""
    own, function = foreign.arrays[one.dtype], call.function
    for value in (
        *(() if legal.may_be_absent(call, one) else (None,)),
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
        if dtype != one.dtype:
            yield Wrong(pointer, (DTypeError,))
    yield Wrong(np.zeros(1, np.int8), (HostPointerError,))
    yield Wrong(foreign.stale[one.dtype], (StalePointerError,))
    if bench.device.partition(":")[0] == bench.library.backend or len(function.arrays) > 1:
        yield Wrong(foreign.elsewhere[one.dtype], (WrongDeviceError,))


def wrong_numbers(bench: DoubleBench, function: roles.Function, one: Number, foreign: Foreign) -> Iterator[Wrong]:
    """Yield values that are neither numbers nor pointers to them."""
    has_device_form = bench.library.has_device_form(function)
    if one.role in ("scalar", "update"):
        values = (None, "1", b"1", [1.0], {}, np.ones(2), np.ones(1, complex))
        yield from (Wrong(value, (ArgumentTypeError, HostPointerError)) for value in values)
        if one.count > 1:
            wrong = ((), (1.0,) * (one.count + 1), (1.0,) * (one.count - 1) + ("1",), 1.0)
            yield from (Wrong(value, (ArgumentTypeError,)) for value in wrong)
        else:
            yield Wrong(HUGE, (SizeOverflowError,))
            if one.dtype in ("f32", "f64"):
                yield from (Wrong(value, (ArgumentTypeError,)) for value in (1j, np.complex64(1)))
    elif one.role == "output":
        yield from (Wrong(value, (HostPointerError,)) for value in (1.0, "x", np.ones(1)))
    if not has_device_form:
        return
    # If one is on the device, results and updates have to be: they may be named first.
    first = () if all(number.is_read_only for number in function.numbers) else (HostPointerError,)
    for dtype, pointer in foreign.here.items():
        if dtype != one.dtype:
            yield Wrong(pointer[: one.count], (DTypeError, *first))
    yield Wrong(foreign.here[one.dtype][: one.count + 1], (ExtentError, *first))
    yield Wrong(foreign.here[one.dtype][:0], (ExtentError, *first))


def wrong_host_lists(one: HostList, call: Call, pointer: Any) -> Iterator[Wrong]:
    """Yield values that are not sequences of values on the host, and sequences with a wrong value or too many."""
    given = list(call.numbers[one.name] if one.label == "scalar" else call.integers[one.name])
    for value in (None, 1, 1.5, "x", b"x"):
        yield Wrong(value, (ArgumentTypeError,))
    yield Wrong(pointer, (HostPointerError,))
    for value in ([*given, given[0]], given[:-1]):
        yield Wrong(value, (ArgumentError,))
    wrong = [(None, ArgumentTypeError), ("1", ArgumentTypeError)]
    if one.label != "scalar":
        wrong += [(1.0, ArgumentTypeError), (2**63, SizeOverflowError), (HUGE, SizeOverflowError)]
    if one.label in ("enum", "size"):
        wrong.append((-1, ArgumentError))
    for value, kind in wrong:
        yield Wrong([*given[:-1], value], (kind,), f"{one.name}[{len(given) - 1}]")


def wrong_ones(
    bench: DoubleBench, call: Call, one: Parameter, foreign: Foreign, pointers: dict[str, Any]
) -> Iterator[Wrong]:
    """Yield every wrong argument for a parameter."""
    match one:
        case EnumValue():
            yield from wrong_integers(one, foreign.here["f32"])
            yield from wrong_enums(one)
        case Size():
            yield from wrong_integers(one, foreign.here["f32"])
            yield from wrong_sizes(call.function, one, call)
        case HostList():
            yield from wrong_host_lists(one, call, foreign.here["f32"])
        case Result(on_host=True):
            return  # Python takes no such argument
        case PointerArray():
            yield from wrong_lists(bench, one, foreign, pointers[one.name])
        case Array():
            yield from wrong_arrays(bench, call, one, foreign)
        case Object():
            for value in (None, 0, 1.5, "x", foreign.here["f32"]):
                yield Wrong(value, (ArgumentTypeError, HostPointerError))
        case Real():
            for value in (None, 1j, "1", [1], {}):
                yield Wrong(value, (ArgumentTypeError,))
            for value in (foreign.here["f32"], foreign.here["f32"][:1], foreign.arrays["f32"]):
                yield Wrong(value, (HostPointerError,))
        case Number():
            yield from wrong_numbers(bench, call.function, one, foreign)
        case _:
            raise NotImplementedError(one.name)


def check_refused(
    bench: DoubleBench, call: Call, one: Parameter, wrong: Wrong, pointers: dict[str, Any], names: tuple[str, ...]
) -> None:
    """Fail unless a call raises the right exception, which names the function and the argument, and does nothing."""
    before, name = bench.counts(), one.name
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
    """Give each parameter of a function every kind of wrong argument, then call it; fail if a wrong one is taken."""
    random = np.random.default_rng(zlib.crc32(f"wrong {function.name}".encode()))
    for _ in range(turns):
        call = legal.draw(bench.library, function, random, least=2)
        while any(call.integers[one.name] == 0 for one in function.of("inc")):  # then sizes have no bounds
            call = legal.draw(bench.library, function, random, least=2)
        typed = call.function  # with the dtypes that its arguments say
        arrays = bench.arrays(call, Form())
        bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        with ExitStack() as stack:
            dtypes = {"f32", "f64"} | {one.dtype for one in typed.parameters if one.dtype}
            foreign = Foreign(bench.device, dtypes, max([8, *(call.needs(one.name) for one in function.arrays)]), stack)
            pointers = stack.enter_context(bench.lent(arrays))
            with naming(call, Form()):
                for one in typed.parameters:
                    sharing = tuple(array.name for array in typed.arrays if one.name in names_of(array))
                    if isinstance(one, Number):  # if one is on the device, the others have to be
                        sharing = tuple(number.name for number in typed.numbers)
                    for wrong in wrong_ones(bench, call, one, foreign, pointers):
                        check_refused(
                            bench, call, one, wrong, pointers, (wrong.name,) if wrong.name else (one.name, *sharing)
                        )
                for one, wrong in unfit_sizes(call):
                    check_refused(bench, call, one, wrong, pointers, (wrong.name,))
                bench.by_python(call, pointers)
        assert bench.recorder.count == 1
