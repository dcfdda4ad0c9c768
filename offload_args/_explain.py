"""Explains which argument of a vendor's function is wrong.

_core/function.c calls the vendors' functions. It imports this module if an argument is wrong, or if the caller passes a
handle.
"""

from __future__ import annotations

import math
import operator
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from . import _core
from .display import described, nearest, text_of, with_article
from .dtypes import C_NAMES, DTYPE_NAMES, code_of, spelled
from .errors import (
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    SizeOverflowError,
)
from .objects import LibraryObject, class_of
from .pointers import DevicePtr, lent_first, listed, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["dtype_code", "explain", "handle_address", "misfit", "refuse_type"]

_CHECKED: Final = ("device", "native_stream")  # other functions check these kinds
_RANGES: Final = {"i32": (-(2**31), 2**31), "u32": (0, 2**32), "u64": (0, 2**63)}
_DTYPE_OF: Final = dict(zip(C_NAMES, DTYPE_NAMES, strict=True))


class _Row(NamedTuple):
    """A parameter: a row of _core.record."""

    kind: str  # a kind of csrc/include/offload_args/roles.def
    name: str
    dtype: str  # abbreviated, "any" for enum and size
    more: str  # the class of an object, the argument that sets the dtype, or "none" if None is accepted
    elements: int

    @property
    def on_device_or_host(self) -> bool:
        return self.kind in ("scalar", "result", "update", "output")

    @property
    def dtype_name(self) -> str:
        return _DTYPE_OF[self.dtype]


_Record = tuple[tuple[str, str, str, str, int], ...]


@cache
def _rows(record: _Record) -> tuple[_Row, ...]:
    return tuple(_Row(*row) for row in record)


def _describe(value: object) -> str:
    if isinstance(value, DevicePtr):
        return f"a DevicePtr[{DTYPE_NAMES[value._dtype_code]}]"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of {value.dtype}"
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to write the digits of a very long int
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, (bool, int, float, complex, str)):
        return f"the {type(value).__name__} {value!r}"
    return described(value)


def _with_dtypes(rows: tuple[_Row, ...], dtypes: bytes) -> list[_Row]:
    """Return the rows, with the dtypes that depend on arguments of the call filled in."""
    types = {row.name for row in rows if row.kind == "type"}
    return [
        row._replace(dtype=C_NAMES[code]) if row.more in types else row for row, code in zip(rows, dtypes, strict=True)
    ]


def explain(
    function: str,
    record: _Record,
    arguments: Sequence[Any],
    on_device: bool,
    has_device_form: bool,
    dtypes: bytes,
) -> None:
    """Raise the error of the first wrong argument; return if all arguments are right.

    function: a name such as "cublas.sgemv". record: from _core.record. arguments: in the record's order; if a result
    was passed, it is the last argument. on_device: scalars and results have to be on the device. has_device_form:
    scalars and results may be on the device.
    dtypes: the number of each argument's dtype.
    """
    rows = _with_dtypes(_rows(record), dtypes)
    if on_device and has_device_form and len(arguments) < len(rows):
        scalar = next(
            row.name
            for row, value in zip(rows, arguments, strict=False)
            if row.on_device_or_host and isinstance(value, DevicePtr)
        )
        raise HostPointerError(
            f"{function}: {scalar} is on the device, so the result has to be: "
            f"result needs a DevicePtr[{rows[-1].dtype_name}], got None"
        )
    for row, value in zip(rows, arguments, strict=False):
        fail = _Failure(f"{function}: {row.name} needs", value)
        if row.kind == "type":
            continue  # the dtypes are known
        if row.kind in ("enum", "size", "integer"):
            _check_integer(function, row, value, fail)
        elif row.kind in ("enum*", "size*", "scalar*"):
            _check_list(function, row, value, fail)
        elif row.kind in ("object", "ended"):
            _check_object(function, row, value, fail)
        elif row.kind in ("object?", "holds"):
            if value is not None:
                _check_object(function, row, value, fail, " or None")
        elif row.kind == "integers":
            _check_list(function, row._replace(kind="integer*"), value, fail)
        elif row.kind in ("host_in", "host_out"):
            _check_array(value, fail)
        elif row.kind == "bytes":
            if not isinstance(value, bytes) or len(value) != row.elements:
                fail(ArgumentTypeError, f"{row.elements} bytes")
        elif row.kind == "keeps":
            if value is not None:
                _check_pointer(row, value, fail)
        elif row.kind in _CHECKED:
            continue
        elif row.kind.endswith("*"):
            _check_pointers(function, row, value, fail)
        elif row.kind in ("in", "out", "inout"):
            _check_pointer(row, value, fail)
        elif row.kind.endswith("?"):
            if value is not None:
                _check_pointer(row, value, fail, " or None")
        elif not has_device_form and isinstance(value, DevicePtr):
            fail(HostPointerError, "a number on the host", "it is on the device")
        elif isinstance(value, DevicePtr):
            _check_pointer(row, value, fail)
            if value.size != row.elements:
                fail(
                    ExtentError,
                    f"a pointer to {row.elements} element{'s' * (row.elements > 1)}",
                    f"pass a part of it, such as {row.name}[:{row.elements}]",
                )
        elif row.kind == "scalar" or (row.kind == "update" and not on_device):
            _check_scalar(function, row, value, fail, has_device_form)
        elif on_device:
            remedy = "leave it out to get the number" if row.name == "result" else ""
            fail(HostPointerError, f"a DevicePtr[{row.dtype_name}], as other arguments are on the device", remedy)
        elif row.kind == "output" and value is not None:
            fail(HostPointerError, f"None (its value is returned) or a DevicePtr[{row.dtype_name}]")


def dtype_code(dtype: Any) -> int:
    """Return the oa_dtype of any object from which NumPy can make a dtype; -1 for other objects."""
    if dtype is None:  # np.dtype(None) is float64
        return -1
    try:
        return code_of(np.dtype(dtype))
    except TypeError:
        return -1


def refuse_type(function: str, name: str, value: object) -> NoReturn:
    """Raise the error of an argument that is not a dtype of the library."""
    fail = _Failure(f"{function}: {name} needs", value)
    if hasattr(type(value), "__index__") and not isinstance(value, DevicePtr):
        fail(SizeOverflowError, "an integer of at most 31 bits")
    fail(ArgumentTypeError, "a constant of the library, or a dtype that one of them stands for")


def misfit(name: str, doc: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise the TypeError of a Python function with this signature for these arguments, with the remedy.

    name: the function's name in programs. doc: begins with the signature, such as "sgemv(trans, m, n)".
    """
    from ._advice import written_as  # here, because it imports this module's users

    signature, _, _ = doc.partition("\n--")
    namespace: dict[str, Any] = {}
    exec(f"def {signature}: pass", namespace)  # the signature is text of this package; the call below raises the error
    stub = namespace[signature.partition("(")[0]]
    try:
        stub(*positional, **keywords)
    except TypeError as error:
        names = stub.__code__.co_varnames
        wrong = next((keyword for keyword in keywords if keyword not in names), "")
        near = nearest(wrong, [name for name in names if name not in keywords]) if wrong in str(error) else ""
        text = str(error).removeprefix(stub.__name__).partition(". Did you mean")[0]
        raise ArgumentTypeError(f"{name}{text}{near}; {written_as(stub, name=name)}") from None


def handle_address(function: str, handle: object) -> int:
    """Return the stand-in for the caller's own library handle.

    handle: a handle that the library made, an address, or an object with `handle` or `ptr`. Raises ArgumentTypeError
    for other values.
    """
    library = function.partition(".")[0]
    if isinstance(handle, LibraryObject):
        return _core.object_handle(handle)
    value = handle
    for attribute in ("handle", "ptr"):
        value = getattr(value, attribute, value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 < value < 2**64:
        raise ArgumentTypeError(
            f"{function}: handle needs an object that {library} made, a handle of {library} as an int, or an object "
            f"with .handle or .ptr, got {_describe(handle)}"
        )
    return int(value)


class _Failure:
    """The beginning of a message, with the requirement of the argument, and its end, with the passed value."""

    def __init__(self, need: str, value: object) -> None:
        self._need = need
        self._given = value
        is_of_real = need.partition(".")[2][:1] in ("s", "d")  # zherk takes a real alpha for complex arrays
        self.of_complex = "or lend complex arrays" if is_of_real else ""  #: the remedy for a complex number

    def __call__(self, kind: type[Exception], needed: str, remedy: str = "") -> NoReturn:
        text = f"{self._need} {needed}, got {_describe(self._given)}"
        raise kind(text + (f"; {remedy}" if remedy else "")) from None


def _constants(function: str, name: str) -> str:
    """Return the constants of an enum as the function's docstring lists them, such as "OP_N, OP_T or OP_C"."""
    library, _, routine = function.partition(".")
    doc = getattr(getattr(import_module(f".{library}", __package__), routine, None), "__doc__", None) or ""
    said = re.search(rf"^(?:\w+, )*{name}(?:, \w+)*: (.*)\.$", re.sub(r"\n {4}", " ", doc), re.MULTILINE)
    return said[1] if said else ""


def _refuse_enum(function: str, row: _Row, value: object, fail: _Failure) -> NoReturn:
    """Raise the error of a value that is no integer in the place of a constant."""
    library, names = function.partition(".")[0], _constants(function, row.name)
    letters = text_of(value).lower()
    known = re.findall(r"\w{3,}", names) if letters else []
    start = min((name.rpartition("_")[0] for name in known), key=len, default="")  # "OP" of OP_N, OP_T
    meant = [name for name in known if name.lower() == letters]
    meant = meant or [name for name in known if name.removeprefix(f"{start}_").lower().startswith(letters)]
    remedy = f"write {library}.{meant[0]}" if len(meant) == 1 else ""
    fail(ArgumentTypeError, f"a constant of {library}{f', {names}' * bool(names)}", remedy)


def _check_integer(function: str, row: _Row, value: object, fail: _Failure) -> None:
    if isinstance(value, DevicePtr):
        fail(HostPointerError, "an integer on the host", "it is on the device")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        if row.kind.startswith("enum"):
            _refuse_enum(function, row, value, fail)
        fail(ArgumentTypeError, "an integer")
    bits = 31 if row.kind == "enum" else 63
    low, end = _RANGES.get(row.dtype, (-(2**bits), 2**bits))
    if not low <= number < end:
        unsigned = "" if low else ", 0 or more,"
        fail(SizeOverflowError, f"an integer{unsigned} of at most {(end - 1).bit_length()} bits")


def _check_object(function: str, row: _Row, value: object, fail: _Failure, otherwise: str = "") -> None:
    library = function.partition(".")[0]
    if type(value) is not class_of(library, row.more):
        fail(ArgumentTypeError, f"{with_article(f'{library}.{row.more}')}{otherwise}")


def _check_array(value: object, fail: _Failure) -> None:
    needed = "a NumPy array of the host"
    if isinstance(value, DevicePtr):
        fail(HostPointerError, needed, "it is on the device")
    if not isinstance(value, np.ndarray):
        fail(ArgumentTypeError, needed)
    if code_of(value.dtype) < 0:
        fail(DTypeError, f"{needed}, of a dtype that devices can hold")


def _check_pointers(function: str, row: _Row, value: object, fail: _Failure) -> None:
    needed = f"a list of DevicePtr[{row.dtype_name}], or one whose first axis counts the arrays"
    if isinstance(value, DevicePtr):
        _check_pointer(row, value, fail)
        if value.ndim < 2:
            fail(ArgumentTypeError, needed, f"it has {value.ndim} dimension{'s' * (value.ndim != 1)}")
        if value.shape[0] > 1 and (value.strides[0] < 0 or value.strides[0] % value.dtype.itemsize):
            fail(ArgumentTypeError, needed, "its first axis goes backwards; pass a list of its parts")
    elif isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            part = row._replace(name=f"{row.name}[{index}]")
            _check_pointer(part, element, _Failure(f"{function}: {part.name} needs", element))
    elif isinstance(value, np.ndarray):
        fail(HostPointerError, needed, lent_first(row.name, value))
    else:
        fail(ArgumentTypeError, needed)


def _check_list(function: str, row: _Row, value: Any, fail: _Failure) -> None:
    if isinstance(value, DevicePtr):
        fail(HostPointerError, "a sequence of values on the host, one a group", "it is on the device")
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        fail(ArgumentTypeError, "a sequence of values, one a group")
    single = row._replace(kind=row.kind[:-1], elements=1)
    for index, element in enumerate(value):
        fail_one = _Failure(f"{function}: {row.name}[{index}] needs", element)
        if single.kind == "scalar":
            _check_number(single, element, fail_one, "a number" if row.dtype.startswith("c") else "a real number")
        else:
            _check_integer(function, single, element, fail_one)


def _check_pointer(row: _Row, value: object, fail: _Failure, otherwise: str = "") -> None:
    is_any = row.dtype == "any"
    needed = f"a DevicePtr{'' if is_any else f'[{row.dtype_name}]'}{otherwise}"
    if not isinstance(value, DevicePtr):
        dtype = "dtype" if is_any else spelled(row.dtype_name)
        remedy = unpacked(row.name, value) or listed(row.name, value, dtype) or "lend a NumPy array first"
        if isinstance(value, np.ndarray):
            remedy = lent_first(row.name, value)
            if not is_any and value.dtype.name != row.dtype_name:
                converted = f"{row.name}.astype({spelled(row.dtype_name)})"
                remedy = f"convert it and lend it first: {row.name} = {converted}"
        elif isinstance(value, int):
            remedy = "an address is not a pointer; lend a NumPy array first"
        fail(HostPointerError, needed, remedy)
    dtype_name = row.dtype_name if is_any else DTYPE_NAMES[value._dtype_code]
    if dtype_name != row.dtype_name and row.more:
        remedy = f"pass {spelled(dtype_name)} as {row.more}, or lend an array of {spelled(row.dtype_name)}"
        fail(DTypeError, f"{needed}, as {row.more} says", remedy)
    if dtype_name != row.dtype_name:
        fail(DTypeError, needed, f"lend an array of {spelled(row.dtype_name)}, or call the function for that dtype")


# The least number that is rounded to infinity, by dtype.
_INFINITE: Final = {"f16": 65520.0, "bf16": (2 - 2**-8) * 2.0**127, "f32": (2 - 2**-24) * 2.0**127}
_INFINITE["c64"] = _INFINITE["f32"]


def _check_scalar(function: str, row: _Row, value: Any, fail: _Failure, may_be_on_device: bool) -> None:
    kind = "a number" if row.dtype.startswith("c") else "a real number"
    if row.dtype.startswith(("i", "u")):
        kind = f"an integer of {row.dtype_name}"
    if row.elements > 1:
        needed = f"a sequence of {row.elements} numbers"
        needed += f" or a DevicePtr[{row.dtype_name}] of as many elements" if may_be_on_device else ""
        if not isinstance(value, (tuple, list)) or len(value) != row.elements:
            fail(ArgumentTypeError, needed, "pass tuple(values)")
        for index, element in enumerate(value):
            _check_number(row, element, _Failure(f"{function}: {row.name}[{index}] needs", element), kind)
        return
    needed = f"{kind} or a 0-d DevicePtr[{row.dtype_name}]" if may_be_on_device else kind
    if isinstance(value, np.ndarray):
        fail(HostPointerError, needed, _number_in(row.name, value, may_be_on_device))
    _check_number(row, value, fail, needed)


def _number_in(name: str, array: NDArray[Any], may_be_on_device: bool) -> str:
    """Return the remedy for an array that was passed instead of a number."""
    if array.size != 1:
        return f"pass one of its {array.size} elements, such as {name}.item(0)" if array.size else "pass a number"
    if not _core.is_lent_in_part(array):
        return f"pass {name}.item(){', or lend it' if may_be_on_device else ''}"
    return f"pass its pointer, d{name}" if may_be_on_device else f"pass {name}.item(), after update({name})"


def _check_number(row: _Row, value: Any, fail: _Failure, needed: str) -> None:
    if row.dtype.startswith(("i", "u")):
        _check_small_integer(row, value, fail, needed)
        return
    if row.dtype.startswith("f8"):
        fail(ArgumentTypeError, f"a DevicePtr[{row.dtype_name}], as there are no such numbers on the host")
    complex_is_taken = row.dtype.startswith("c")
    if isinstance(value, (complex, np.complexfloating)) and not complex_is_taken:
        fail(ArgumentTypeError, needed, fail.of_complex)
    if value is None or isinstance(value, (str, bytes, bytearray)):
        fail(ArgumentTypeError, needed, "pass a number, such as 1.0")
    try:
        number = complex(value) if complex_is_taken else float(value)
    except (TypeError, ValueError):
        fail(ArgumentTypeError, needed)
    except OverflowError:
        fail(SizeOverflowError, needed)
    parts = abs(complex(number).real), abs(complex(number).imag)
    if any(_INFINITE.get(row.dtype, math.inf) <= part < math.inf for part in parts):
        fail(SizeOverflowError, needed, f"{row.dtype_name} holds no number as large; pass numpy.inf for infinity")


def _check_small_integer(row: _Row, value: Any, fail: _Failure, needed: str) -> None:
    if not hasattr(value, "__index__"):
        fail(ArgumentTypeError, needed)
    limits = np.iinfo(row.dtype_name)
    most = min(limits.max, 2**63 - 1)
    if not limits.min <= operator.index(value) <= most:
        fail(SizeOverflowError, needed, f"it has to be from {limits.min} to {most}")
