"""The modules `cublas.raw`, `cblas.raw` etc.: a vendor's functions through cffi, with the signatures of its manual.

If every pointer is a plain cffi pointer, the vendor's function is called directly. If an argument is a DevicePtr, the
call is checked, and missing bytes come up, as in a call through the library's module. If an argument is a DevicePtr and
the package does not bind the function, only the dtype of the DevicePtr is checked, and its address is passed.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._cffi import CDATA, FFI, converted
from .display import nearest, plural, shown
from .dtypes import dtype_of
from .errors import ArgumentError, ArgumentTypeError, LibraryError, LibraryVersionError
from .objects import LibraryObject
from .pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Raw"]


def _numbers_at(place: Any, dtype: int, count: int) -> NDArray[Any]:
    """Return the numbers of an oa_dtype that a cffi pointer points to."""
    element = dtype_of(dtype)
    return np.frombuffer(FFI.buffer(FFI.cast("char *", place), count * element.itemsize), element)


def _number(dtype: int, value: Any) -> Any:
    """Return the number of a scalar argument: a cffi pointer to it, a list of one number, or the number itself."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    if not isinstance(value, CDATA):
        return value
    if FFI.typeof(value).kind not in ("pointer", "array"):
        return complex(value) if dtype_of(dtype).kind == "c" else float(value)
    return _numbers_at(value, dtype, 1)[0].item()


def _numbers(dtype: int, count: int, value: Any) -> Any:
    return tuple(_numbers_at(value, dtype, count).tolist()) if isinstance(value, CDATA) else value


def _all_of(kind: str, dtype: int, value: Any) -> list[Any]:
    """Return the elements of a cffi array: integers, or numbers of an oa_dtype."""
    if kind != "scalar*":
        return [int(number) for number in value]
    numbers: list[Any] = _numbers_at(value, dtype, FFI.sizeof(value) // dtype_of(dtype).itemsize).tolist()
    return numbers


def _store(place: Any, kind: str, dtype: int, value: Any) -> None:
    """Write a host result to the place to which the vendor's function would have written it."""
    if kind in ("result", "value") and dtype == _core.OA_I32:
        place[0] = value  # an index; the caller's pointer has its width
    else:
        numbers = value if isinstance(value, tuple) else (value,)
        _numbers_at(place, dtype, len(numbers))[:] = numbers


def _is_on_device(value: object) -> bool:
    return isinstance(value[0] if isinstance(value, (list, tuple)) and value else value, DevicePtr)


def _numbers_of(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


class _Function:
    """One function of a vendor's library."""

    def __init__(self, raw: Raw, name: str, c_type: Any, routine: str, record: tuple[Any, ...]) -> None:
        self._raw = raw
        self._type = c_type
        self._routine = routine
        self._record = record
        self._address: Any = None
        self.__name__ = self.__qualname__ = name
        self.__module__ = raw.__name__
        self.__doc__ = c_type.cname.replace("(*)", f" {name}")

    def __repr__(self) -> str:
        return f"<{self.__module__}: {self.__doc__}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return getattr, (self._raw, self.__name__)

    def __call__(self, *arguments: Any) -> Any:
        needed = len(self._type.args)
        further = self._further(arguments[needed - 1 :]) if self._type.ellipsis and len(arguments) >= needed else ()
        if len(arguments) - len(further) != needed:
            raise ArgumentTypeError(
                f"{self._title}: needs {needed} {plural('argument', needed)}, got {len(arguments)}: {self.__doc__}"
            )
        arguments = (*map(self._plain, arguments, self._type.args), *further)
        if not any(map(_is_on_device, arguments)):
            return self._call(arguments)
        if self._routine:
            return self._check(arguments)
        return self._call(converted(self._title, arguments, self._type.args))

    def _further(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the sizes that a variadic function gets, in cffi's types; the first argument is their number."""
        count, *sizes = arguments
        if count != len(sizes):
            raise ArgumentError(f"{self._title}: got {len(sizes)} sizes, and {shown(count)} as their number")
        wrong = [size for size in sizes if not isinstance(size, int) or not 0 <= size < 2**64]
        if wrong:
            raise ArgumentTypeError(
                f"{self._title}: a size needs an integer, 0 or more, of at most 64 bits, got {shown(wrong[0])}"
            )
        return tuple(self._raw.ffi.cast("size_t", size) for size in sizes)

    def _plain(self, value: Any, c_type: Any) -> Any:
        """Return the vendor's own handle for a library's object; return other values unchanged."""
        if not isinstance(value, LibraryObject):
            return value
        if not isinstance(value, getattr(self._raw.functions, type(value).__name__, ())):
            raise ArgumentTypeError(f"{self._title}: needs an object of {self._raw.library}, got {value!r}")
        return self._raw.ffi.cast(c_type, value.address)

    @property
    def _title(self) -> str:
        return f"{self._raw.library}.raw.{self.__name__}"

    def _call(self, arguments: Sequence[Any]) -> Any:
        """Call the vendor's function directly; raise LibraryError for a status other than success."""
        if self._address is None:
            pointer = _core.library_address(self._raw.library, self.__name__)
            c_type = self._raw.function_type(self.__name__)  # this loads the library
            self._raw.check_version(self._title, self.__name__)
            self._address = self._raw.ffi.cast(c_type, pointer)
        answer = self._address(*arguments)
        if self._raw.status and self._type.result.cname == self._raw.status and answer not in self._raw.fine:
            name = self._type.result.elements.get(answer, "a status")
            raise LibraryError(f"{self._title}: the library returned {name} ({answer})")
        return answer

    def _check(self, arguments: Sequence[Any]) -> Any:
        """Make the call through the package's own function, which checks it and moves missing data."""
        function = getattr(self._raw.functions, self._routine)
        values = list(arguments)
        keywords: dict[str, Any] = {}
        if self._raw.handle and self._type.args[0] == self._raw.ffi.typeof(self._raw.handle):
            handle = values.pop(0)
            if isinstance(handle, CDATA):
                handle = int(FFI.cast("uintptr_t", handle))
            if handle:
                keywords["handle"] = handle
        place = self._raw.results.get(self.__name__)
        if place is not None:  # the record's last row is the result
            values.append(values.pop(place))
        values = [
            int(value) if row[0] in ("enum", "type", "size") and isinstance(value, CDATA) else value
            for row, value in zip(self._record, values, strict=False)
        ]
        dtypes = _core.routine_dtypes(self._raw.library, self._routine, tuple(values))
        passed: list[Any] = []
        outputs: list[tuple[Any, str, int]] = []
        for (kind, _, _, _, count), dtype, value in zip(self._record, dtypes, values, strict=False):
            if kind in ("scalar", "update") and not isinstance(value, DevicePtr):
                passed.append(_number(dtype, value) if count == 1 else _numbers(dtype, count, value))
            elif kind in ("enum*", "size*", "scalar*"):
                is_array = isinstance(value, CDATA) and FFI.typeof(value).kind == "array"
                passed.append(_all_of(kind, dtype, value) if is_array else value)
            elif kind in ("result", "value"):
                if isinstance(value, DevicePtr):
                    keywords["result"] = value
            else:
                passed.append(None if kind == "output" and isinstance(value, CDATA) else value)
            if kind in ("result", "value", "update", "output") and isinstance(value, CDATA):
                outputs.append((value, kind, dtype))
        answer = function(*passed, **keywords)
        if outputs:
            results = answer if isinstance(answer, tuple) else (answer,)
            for (there, kind, dtype), result in zip(outputs, results, strict=True):
                _store(there, kind, dtype, result)
            answer = None
        return 0 if self._raw.status else answer


class Raw:
    """A vendor's library through cffi: functions, constants and types with the names of its manual.

    `ffi` is the cffi object of the library: ffi.new("cublasHandle_t *") makes a value of one of its types. If the
    library's name of a function ends in _v2, the name without this ending works, too, as in the manual. The library is
    opened at the first call.

        x = np.array([3.0, 4.0])
        raw = cblas.raw
        print(raw.cblas_dnrm2(2, raw.ffi.from_buffer("double[]", x), 1))  # 5.0

    See also: libraries.load; docs/guide/cffi.md.
    """

    def __init__(self, library: str) -> None:
        declared: Any = importlib.import_module(f"._{library}_raw", __package__)
        self.library = library
        self.__module__ = f"{__package__}.{library}"
        self.__name__ = f"{self.__module__}.raw"
        self.ffi = declared.ffi
        self.handle: str = declared.HANDLE
        self.status: str = declared.STATUS
        self.fine = (0, *declared.FINE)  # statuses that are not failures
        self.functions = importlib.import_module(f".{library}", __package__)
        self._older: tuple[str, dict[str, str]] = declared.OLDER
        self._routines: dict[str, str] = declared.ROUTINES
        self.results: dict[str, int] = declared.RESULTS
        self._types = frozenset(declared.ffi.list_types()[0])

    def function_type(self, name: str) -> Any:
        """Return the type of a pointer to a function, with the integer width of the loaded library."""
        wide = f"{name}__ilp64"
        if wide in self._types and _core.library_integer_bits(self.library) == 64:
            name = wide
        return self.ffi.typeof(f"{name} *")

    def check_version(self, title: str, name: str) -> None:
        """Raise LibraryVersionError if the loaded version has a function of this name with another signature."""
        before, instead = self._older
        if name not in instead:
            return
        version = _core.library_loaded(self.library)[1]
        if _numbers_of(version) < _numbers_of(before):
            raise LibraryVersionError(
                f"{title}: before version {before} it takes other arguments, and {version} is loaded; "
                f"call {instead[name]}"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for known in (name, f"{name}_v2"):
            if known in self._types:
                c_type = self.ffi.typeof(f"{known} *")
                if c_type.kind == "function":
                    routine = self._routines.get(known, "")
                    record = _core.record(self.library, routine) if routine else ()
                    function = _Function(self, known, c_type, routine, record)
                    return self.__dict__.setdefault(name, function)
        try:
            return self.ffi.integer_const(name)
        except AttributeError:
            own = next((symbol for symbol, routine in self._routines.items() if routine == name), "")
            own = own.removesuffix("_v2")
            remedy = f"; its names are the vendor's: {own}" if own else nearest(name, dir(self))
            raise AttributeError(f"{self.__name__} has no function or constant {name!r}{remedy}", name=name) from None

    def __reduce__(self) -> str:
        return "raw"  # the name in its module

    def __dir__(self) -> list[str]:
        functions = {
            name
            for name in self._types
            if not name.endswith("__ilp64") and self.ffi.typeof(f"{name} *").kind == "function"
        }
        return sorted({*functions, *vars(self)})

    def __repr__(self) -> str:
        return f"<{self.__name__}>"
