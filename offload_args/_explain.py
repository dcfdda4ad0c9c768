"""Explains what is wrong with a call of a vendor's function, and makes the calls that are off the fast path.

Generated functions turn to this module when an argument is wrong, when a scalar or a result is on the device, and when
the caller brings a handle.
"""

from __future__ import annotations

import gc
import operator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from . import _core
from ._native import ffi, lib
from .dtypes import C_NAMES, DTYPE_NAMES
from .errors import (
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    SizeOverflowError,
    raise_status,
)
from .pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Binding"]

_DTYPE_OF: Final = dict(zip(C_NAMES, DTYPE_NAMES, strict=True))


def _allocate(function: Callable[..., int], *arguments: Any) -> None:
    """Call a core function that allocates; if memory runs out, collect garbage and retry once.

    Raises the error of the last attempt. Regions are entered in the same way, in _core.
    """
    status = function(*arguments)
    if status == _core.OA_ERROR_MEMORY:
        gc.collect()
        status = function(*arguments)
    if status:
        raise_status(status)


class _Token(NamedTuple):
    """A parameter as generated modules describe it: "scalar:alpha:f32"."""

    kind: str  # enum, size, in, out, inout, scalar, result, update or output
    name: str
    dtype: str  # abbreviated, "" for enum and size
    elements: int

    @property
    def on_device_or_host(self) -> bool:
        return self.kind in ("scalar", "result", "update", "output")

    @property
    def dtype_name(self) -> str:
        return _DTYPE_OF[self.dtype]


@cache
def _parse(record: str) -> tuple[_Token, ...]:
    tokens = []
    for word in record.split():
        kind, name, *rest = word.split(":")
        tokens.append(_Token(kind, name, rest[0] if rest else "", int(rest[1]) if len(rest) > 1 else 1))
    return tuple(tokens)


def _describe(value: object) -> str:
    if isinstance(value, DevicePtr):
        return f"a DevicePtr[{DTYPE_NAMES[value._code]}]"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of {value.dtype}"
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, complex, str)):
        return f"the {type(value).__name__} {value!r}"
    return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"


class Binding:
    """What the generated module of one library needs of this one; `records` describe its functions' parameters."""

    __slots__ = ("_ffi", "_lib", "_library", "_records")

    def __init__(self, library: str, library_ffi: Any, library_lib: Any, records: Mapping[str, str]) -> None:
        self._library = library
        self._ffi = library_ffi
        self._lib = library_lib
        self._records = records

    def with_handle(
        self, handle: object, function: Callable[..., Any], arguments: tuple[Any, ...], result: object = None
    ) -> Any:
        """Call a function with the caller's own library handle: an address, or an object with `handle` or `ptr`."""
        value = handle
        for attribute in ("handle", "ptr"):
            value = getattr(value, attribute, value)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not value:
            raise ArgumentTypeError(
                f"{self._library}.{function.__name__}: handle needs a handle of {self._library} as an int, or an "
                f"object with .handle or .ptr, got {_describe(handle)}"
            )
        name = self._library.encode()
        status = lib.oa_use_handle(name, ffi.cast("void *", int(value)))
        if status:
            raise_status(status)
        try:
            return function(*arguments) if result is None else function(*arguments, result=result)
        finally:
            lib.oa_use_handle(name, ffi.NULL)

    def on_device(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Call the form of a function whose scalars and results are on the device; host scalars are sent there."""
        tokens = _parse(self._records[name])
        passed: list[Any] = []
        staged: list[Any] = []
        try:
            for token, value in zip(tokens, arguments, strict=True):
                kind = token.kind
                if kind in ("size", "enum"):
                    passed.append(operator.index(value))
                elif kind in ("in", "out", "inout"):
                    passed.append(value._cd)
                elif kind == "scalar" and not isinstance(value, DevicePtr):
                    if not staged:  # nothing moves for a call that can't be made
                        self._check(name, tokens, arguments, results_on_device=True)
                    staged.append(self._stage(arguments, token, value))
                    passed.append(ffi.cast(f"oa_{token.dtype} *", staged[-1]))
                elif value.size == token.elements:
                    passed.append(value._cd)
                else:
                    raise ValueError(name)
            status = getattr(self._lib, f"oa_{self._library}_{name}_device")(*passed)
        except (AttributeError, TypeError, OverflowError, ValueError):
            self._check(name, tokens, arguments, results_on_device=True)
            raise
        else:
            if status:
                raise_status(status)
        finally:
            for one in staged:  # given back in the order of the stream, after the call
                lib.oa_pointer_release(one)

    def explain(self, name: str, arguments: tuple[Any, ...], error: BaseException) -> None:
        """Make the call whose scalars are on the device, or raise what is wrong with the arguments.

        error: what the fast path raised; it is raised again if no argument is at fault.
        """
        tokens = _parse(self._records[name])
        remote = [
            token
            for token, value in zip(tokens, arguments, strict=False)
            if token.on_device_or_host and isinstance(value, DevicePtr)
        ]
        if not remote:
            self._check(name, tokens, arguments, results_on_device=False)
            raise error
        if len(arguments) < len(tokens):
            raise HostPointerError(
                f"{self._library}.{name}: {remote[0].name} is on the device, so the result has to be: "
                f"result needs a DevicePtr[{tokens[-1].dtype_name}], got None"
            )
        self.on_device(name, arguments)

    def in_out(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a function that changes its scalars: host numbers give a tuple of the new ones, DevicePtrs None."""
        if any(isinstance(value, DevicePtr) for value in arguments):
            return self.on_device(name, arguments)
        tokens = _parse(self._records[name])
        self._check(name, tokens, arguments, results_on_device=False)
        passed: list[Any] = []
        changed: list[tuple[_Token, Any]] = []
        for token, value in zip(tokens, arguments, strict=True):
            if token.kind in ("update", "output"):
                place = self._ffi.new(f"{_c_type(token)}[]", token.elements)
                if token.kind == "update":
                    place[0] = value
                changed.append((token, place))
                passed.append(place)
            else:
                passed.append(value)
        status = getattr(self._lib, f"oa_{self._library}_{name}")(*passed)
        if status:
            raise_status(status)
        return tuple(place[0] if token.elements == 1 else tuple(place) for token, place in changed)

    def _stage(self, arguments: tuple[Any, ...], token: _Token, value: Any) -> Any:
        anchor = next(one for one in arguments if isinstance(one, DevicePtr))
        staged = ffi.new("oa_any **")
        number = ffi.from_buffer(np.asarray(value, dtype=token.dtype_name).reshape(1).view(np.uint8))
        _allocate(lib.oa_stage, ffi.cast("oa_any *", anchor._cd), number, DTYPE_NAMES.index(token.dtype_name), staged)
        return staged[0]

    def _check(
        self, name: str, tokens: Sequence[_Token], arguments: tuple[Any, ...], *, results_on_device: bool
    ) -> None:
        """Raise what is wrong with the first wrong argument, if one is."""
        for token, value in zip(tokens, arguments, strict=False):
            fail = _Failure(f"{self._library}.{name}: {token.name} needs", value)
            if token.kind in ("enum", "size"):
                _check_integer(token, value, fail)
            elif token.kind in ("in", "out", "inout"):
                _check_pointer(token, value, fail)
            elif isinstance(value, DevicePtr):
                _check_pointer(token, value, fail)
                if value.size != token.elements:
                    fail(
                        ExtentError,
                        f"a pointer to {token.elements} element{'s' * (token.elements > 1)}",
                        f"pass a part of it, such as {token.name}[:{token.elements}]",
                    )
            elif token.kind == "scalar" or (token.kind == "update" and not results_on_device):
                _check_scalar(token, value, fail)
            elif results_on_device:
                fail(HostPointerError, f"a DevicePtr[{token.dtype_name}], as other arguments are on the device")
            elif token.kind == "output" and value is not None:
                fail(HostPointerError, f"None (its value is returned) or a DevicePtr[{token.dtype_name}]")


def _c_type(token: _Token) -> str:
    return {"f32": "float", "f64": "double", "c64": "float _Complex", "c128": "double _Complex"}[token.dtype]


class _Failure:
    """The two ends of a message: who needs, and what came."""

    def __init__(self, who: str, given: object) -> None:
        self._who = who
        self._given = given

    def __call__(self, kind: type[Exception], needed: str, remedy: str = "") -> NoReturn:
        text = f"{self._who} {needed}, got {_describe(self._given)}"
        raise kind(text + (f"; {remedy}" if remedy else "")) from None


def _check_integer(token: _Token, value: object, fail: _Failure) -> None:
    if isinstance(value, DevicePtr):
        fail(HostPointerError, "an integer on the host", "it is on the device")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        fail(ArgumentTypeError, "a constant of the library" if token.kind == "enum" else "an integer")
    bits = 31 if token.kind == "enum" else 63
    if not -(2**bits) <= number < 2**bits:
        fail(SizeOverflowError, f"an integer of at most {bits} bits")


def _check_pointer(token: _Token, value: object, fail: _Failure) -> None:
    needed = f"a DevicePtr[{token.dtype_name}]"
    if not isinstance(value, DevicePtr):
        remedy = "lend a NumPy array first"
        if isinstance(value, np.ndarray):
            remedy = f"lend it first: with offload_args({token.name}) as (d{token.name},)"
            if value.dtype != np.dtype(token.dtype_name):
                remedy = f"convert it and lend it first: {token.name} = {token.name}.astype(np.{token.dtype_name})"
        elif isinstance(value, int):
            remedy = "an address is no pointer; lend a NumPy array first"
        fail(HostPointerError, needed, remedy)
    if DTYPE_NAMES[value._code] != token.dtype_name:
        fail(DTypeError, needed, f"lend an array of np.{token.dtype_name}, or call the function for that dtype")


def _check_scalar(token: _Token, value: Any, fail: _Failure) -> None:
    kind = "a number" if token.dtype.startswith("c") else "a real number"
    if token.elements > 1:
        needed = f"a sequence of {token.elements} numbers or a DevicePtr[{token.dtype_name}] of as many elements"
        if not isinstance(value, (tuple, list)) or len(value) != token.elements:
            fail(ArgumentTypeError, needed, "pass tuple(values)")
        return
    needed = f"{kind} or a 0-d DevicePtr[{token.dtype_name}]"
    if isinstance(value, np.ndarray):
        fail(HostPointerError, needed, f"pass {token.name}.item(), or lend it")
    if isinstance(value, (str, bytes, bytearray)):
        fail(ArgumentTypeError, needed)
    try:
        complex(value) if token.dtype.startswith("c") else float(value)
    except (TypeError, ValueError):
        fail(ArgumentTypeError, needed)
    except OverflowError:
        fail(SizeOverflowError, needed)
