"""Solutions of sparse systems by cuDSS: the analysis of a structure, its factors, and solves with them."""

from __future__ import annotations

import importlib
import math
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from .. import _core, libraries
from ..blas.level1 import nrm2
from ..errors import LibraryError, OffloadError
from ..linalg._call import new
from .matrix import flat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pointers import DevicePtr
    from .matrix import LentMatrix

__all__ = ["CuDSS"]

_LIBRARY: Final = "cudss"
_OLDEST: Final = 1  # earlier versions have other functions and constants
_MODES: Final = {"N": 0, "T": 1, "C": 2}
_TYPES: Final = {"int32": 10, "int64": 24, "float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_ANALYSIS: Final = 3
_FACTORIZATION: Final = 4
_REFACTORIZATION: Final = 8
_SOLVE: Final = 1008
_SOLVE_MODE: Final = 4  # the number of an attribute of a configuration
_INFO: Final = 0  # the numbers of two attributes of the factors
_NPIVOTS: Final = 2
_GENERAL: Final = 0  # a matrix without symmetry, whose elements are all stored
_BY_COLUMNS: Final = 0


class Products(Protocol):
    """The library that multiplies the same matrices, and finds the layouts of arrays."""

    def by_columns(self, pointer: DevicePtr, reads: bool = True) -> Any:
        """Return an array by columns, or a copy: its pointer, line, lines and step."""

    def multiply(
        self, function: str, A: LentMatrix, x: DevicePtr, y: DevicePtr, alpha: complex, beta: complex, trans: str
    ) -> None:
        """Set y to alpha op(A) x + beta y."""


class CuDSS:
    """cuDSS, the library of NVIDIA GPUs that factors sparse matrices."""

    _lock: ClassVar = threading.Lock()  # two threads may solve with the same factors, and make two instances at once

    def __init__(self, function: str) -> None:
        try:
            library = libraries.load(_LIBRARY)
        except LibraryError as error:
            raise LibraryError(
                f"{function}: cuDSS factors matrices on NVIDIA GPUs, and it is not installed; lend A to the host, or "
                f"install cuDSS: {error}"
            ) from None
        if int(library.version.partition(".")[0] or _OLDEST) < _OLDEST:
            raise LibraryError(
                f"{function}: needs cuDSS {_OLDEST}.0 or later, and {library.path} is {library.version}; install a "
                f"later nvidia-cudss-cu13 or nvidia-cudss-cu12"
            )
        self._raw: Any = importlib.import_module(f"..{_LIBRARY}", __package__).raw
        self.ffi = self._raw.ffi
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of cuDSS, and return its status."""
        function = self._functions.get(name)
        if function is None:
            symbol = f"{_LIBRARY}{name}"
            function = self.ffi.cast(self._raw.function_type(symbol), _core.library_address(_LIBRARY, symbol))
            self._functions[name] = function
        status: int = function(*arguments)
        return status

    def solve(self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, trans: str, products: Products) -> None:
        """Solve op(A) x = b. Raises LinAlgError if A is singular.

        A matrix of `lend` keeps the analysis of its structure until the end of its block. Another matrix has no block,
        so its analysis is not kept. A call may write its structure, or the structure that an outer region lends.

        trans: not "C" for a complex csc matrix.
        products: the library for the product that checks x, if cuDSS has replaced pivots.
        """
        if A.format not in ("csr", "csc"):
            raise LibraryError(f"{function}: cuDSS takes no {A.format}; lend A.tocsr()")
        if not A.nnz:
            raise np.linalg.LinAlgError(f"{function}: A is singular: no element of it is stored")
        by_rows, mode = A, "T" if trans == "C" and A.dtype.kind != "c" else trans
        if A.format == "csc":
            by_rows, mode = A.T, "T" if mode == "N" else "N"
        written = products.by_columns(x, reads=False)
        read = products.by_columns(b)
        arrays = zip(("data", "indices", "indptr"), A.arrays, strict=True)
        operands = [flat(f"A.{name}", pointer) for name, pointer in arrays]
        operands.append(("b", read.pointer, _core.OA_READ, *read[1:4]))
        operands.append(("out", written.pointer, _core.OA_OVERWRITE, *written[1:4]))
        is_written = any(_core.query(pointer).written for pointer in A.arrays[1:])  # by a call of an outer region
        kept, ends = ({}, None) if is_written else (A._kept, A._ends)
        at_once: list[Callable[[], None]] = []
        replaced = 0

        def work(handle: int, *addresses: int) -> int:
            nonlocal replaced
            status: int
            key = ("cudss", handle, addresses[:3], read.lines)
            with self._lock:
                factors, end = kept.pop(key, (None, None))
                if factors is None:
                    factors = _Factors(self, function, by_rows, handle, addresses[:3])
                    end = partial(factors.end, A)
                    (at_once if ends is None else ends).append(end)
                dense = (read, addresses[3]), (written, addresses[4])
                status, replaced = factors.solve(mode, *(self._dense(*operand) for operand in dense))
                if ends is not None and status:  # the next call begins anew
                    ends.remove(end)
                    at_once.append(end)
                elif ends is not None:
                    kept[key] = factors, end
            return status

        try:
            _core.library_call(function, _LIBRARY, tuple(operands), work)
        finally:
            for end in at_once:
                end()
        if written.pointer is not x:
            x.copy_from(written.pointer)
        if replaced:
            solves, cause = _solves(function, A, b, x, trans, products), f"cuDSS replaced {replaced} pivots, and x does"
        else:  # cuDSS does not count a stored 0 by which it divides
            solves = _is_finite(x) or not (_is_finite(A.data) and _is_finite(b))
            cause = "x is not finite, and does"
        if not solves:
            with suppress(OffloadError):  # the device is lost, and nothing comes down anyway
                _core.invalidate(x)
            raise np.linalg.LinAlgError(f"{function}: A is singular, or nearly so: {cause} not solve the system")

    def _dense(self, operand: Any, address: int) -> Any:
        """Return the place of a new descriptor of a vector, or of a matrix by columns."""
        columns = operand.lines
        values = self.ffi.cast("void *", address), _TYPES[operand.pointer.dtype.name]
        place = self.ffi.new("cudssMatrix_t *")
        status = self.call("MatrixCreateDn", place, operand.line, columns, operand.step, *values, _BY_COLUMNS)
        return place if status == 0 else None


class _Factors:
    """The analysis and the factors of one lent matrix, until the end of its block."""

    def __init__(self, library: CuDSS, function: str, A: LentMatrix, handle: int, addresses: tuple[int, ...]) -> None:
        """Make the objects of cuDSS. A: a csr matrix."""
        ffi = library.ffi
        self._library = library
        self._function = function
        self._handle = ffi.cast("cudssHandle_t", handle)
        self._matrix, self._config, self._data = (
            ffi.new(f"{kind} *") for kind in ("cudssMatrix_t", "cudssConfig_t", "cudssData_t")
        )
        data, indices, indptr = (ffi.cast("void *", address) for address in addresses)
        index = _TYPES[A.index_dtype.name]
        types = index, index, _TYPES[A.dtype.name], _GENERAL, 0, 0
        arrays = indptr, ffi.NULL, indices, data
        self._status = (
            library.call("MatrixCreateCsr", self._matrix, *A.shape, A.nnz, *arrays, *types)
            or library.call("ConfigCreate", self._config)
            or library.call("DataCreate", self._handle, self._data)
        )
        self._phase = 0  # the last phase of the factorization

    def solve(self, mode: str, b: Any, x: Any) -> tuple[int, int]:
        """Factor the present values and solve. Return the status, and the number of replaced pivots."""
        places = [place for place in (b, x) if place is not None]
        try:
            if len(places) < 2:
                return self._status or 3, 0  # the status of a wrong value
            return self._solve(mode, b[0], x[0])
        finally:
            for place in places:
                self._library.call("MatrixDestroy", place[0])

    def _solve(self, mode: str, b: Any, x: Any) -> tuple[int, int]:
        ffi, call = self._library.ffi, self._library.call

        def execute(phase: int) -> int:
            return call("Execute", self._handle, phase, self._config[0], self._data[0], self._matrix[0], x, b)

        setting, replaced = ffi.new("int *", _MODES[mode]), 0
        status = self._status
        if not status and not self._phase:
            status = execute(_ANALYSIS)
            self._phase = 0 if status else _ANALYSIS
        if not status:
            status = execute(_FACTORIZATION if self._phase == _ANALYSIS else _REFACTORIZATION)
            self._phase = self._phase if status else _FACTORIZATION
        if not status:
            replaced = abs(self._number(_INFO)) + abs(self._number(_NPIVOTS))
            status = call("ConfigSet", self._config[0], _SOLVE_MODE, setting, 4) or execute(_SOLVE)
        return status, replaced

    def _number(self, attribute: int) -> int:
        """Return an integer of the factors, whose size cuDSS states. The call waits for the factorization."""
        ffi, call = self._library.ffi, self._library.call
        size, value = ffi.new("size_t *"), ffi.new("long long *")
        call("DataGet", self._handle, self._data[0], attribute, ffi.NULL, 0, size)
        nbytes = size[0] if size[0] in (4, 8) else 4
        if call("DataGet", self._handle, self._data[0], attribute, value, nbytes, size):
            return 0
        return int(value[0] if nbytes == 8 else ffi.cast("int *", value)[0])

    def end(self, A: LentMatrix) -> None:
        """Destroy the objects of cuDSS."""
        call = self._library.call

        def work(*_: int) -> int:
            for destroy, place in (("MatrixDestroy", self._matrix), ("ConfigDestroy", self._config)):
                if place[0]:
                    call(destroy, place[0])
            return call("DataDestroy", self._handle, self._data[0]) if self._data[0] else 0

        try:
            A.device.synchronize()  # no solve uses the factors any more
            _core.library_call(self._function, _LIBRARY, (flat("A.indptr", A.arrays[2]),), work)
        except OffloadError:
            pass  # the device has failed, and has no factors


def _columns(x: DevicePtr) -> list[DevicePtr]:
    """Return pointers to the columns of a matrix, or a vector itself."""
    return [x] if len(x._shape) == 1 else [x[:, j] for j in range(x._shape[1])]


def _is_finite(x: DevicePtr) -> bool:
    """Return whether no element is infinite or NaN."""
    follow = x._strides == (x.dtype.itemsize, x.dtype.itemsize * x._shape[0])
    return all(math.isfinite(nrm2(column)) for column in ([x.T.reshape(-1)] if follow else _columns(x)))


def _solves(function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, trans: str, products: Products) -> bool:
    """Return whether b - op(A) x is small, for each column."""
    rest = new(b, b._shape, b.dtype)
    rest.copy_from(b)
    columns = _columns(rest)
    before = [nrm2(column) for column in columns]
    products.multiply(function, A, x, rest, -1, 1, trans)
    bound = math.sqrt(np.finfo(A.dtype).eps)
    return all(nrm2(column) <= bound * norm for column, norm in zip(columns, before, strict=True))
