"""The same call on the host, and the distance at which another device's results may be from the host's results.

A difference is rounding if it is at most 64 times the sizes of a call times the precision of its dtype, relative to the
same call on the absolute values of all operands. A solution of a triangular system is multiplied by the triangle first,
so that right sides are compared.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..devices import Device
from ..errors import OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from .layout import flat, zeros_of_layout

__all__ = ["Caller", "Difference", "Expected", "distance", "expect", "expect_launch", "host_values", "run_on"]

_PRECISIONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
_SOLVES = re.compile(r"(tr|tp|tb)sv$|trsm$")
_EXTREME = re.compile(r"^iam(ax|in)$")
_ROTATIONS = re.compile(r"rot")

Caller = Callable[[list[Any], str], Any]


class Difference(NamedTuple):
    """A result that is further from the expected result than rounding explains."""

    operand: str
    off: float
    most: float


class Expected:
    """The operands and the returned value after a call on the host."""

    def __init__(
        self, pointers: list[DevicePtr[Any]], values: list[NDArray[Any]], returned: Any, bounds: list[float]
    ) -> None:
        self.pointers, self.results, self.returned = pointers, values, returned  #: `results` are on the host
        self._values = values  # the values to compare
        self.bounds = bounds  #: the largest difference of each value that is due to rounding
        self.backwards: Callable[[list[NDArray[Any]]], list[NDArray[Any]]] | None = None
        self._extreme: NDArray[Any] | None = None

    def difference(self, returned: Any, names: list[str]) -> Difference | None:
        """Compare with the device's present contents, and with the value that the call on the device returned."""
        now = [host_values(pointer) for pointer in self.pointers]
        if self.backwards is not None:
            now = self.backwards(now)
        for name, value, expected, bound in zip(names, now, self._values, self.bounds, strict=False):
            off = distance(value, expected)
            if not off <= bound:
                return Difference(name, off, bound)
        return self.distance_of(returned, self.returned, self.most)

    @property
    def most(self) -> float:
        """Return the largest bound, which also holds for the value that the call returned."""
        return max(self.bounds, default=0.0)

    def distance_of(self, returned: Any, expected: Any, most: float) -> Difference | None:
        """Compare two values that the call returned."""
        if returned is None or expected is None:
            return None
        if self._extreme is not None:  # an index may differ if the two elements differ only by rounding
            size = len(self._extreme)
            if not (0 <= returned < size and 0 <= expected < size):
                off = 0.0 if returned == expected else float("inf")
            else:
                off = float(abs(self._extreme[returned] - self._extreme[expected]))
        else:
            off = distance(np.asarray(returned), np.asarray(expected))
        return None if off <= most else Difference("the result", off, most)


def host_values(pointer: DevicePtr[Any]) -> NDArray[Any]:
    """Return an array of a pointer's layout with its elements on the device; zeros if the device has none yet."""
    array = zeros_of_layout(pointer._shape, pointer._strides, pointer.dtype)
    with contextlib.suppress(OffloadError):  # an Out may not be written yet
        array[...] = pointer.to_host()
    return array


def expect(name: str, arguments: list[Any], call: Caller, host: Device) -> Expected | None:
    """Make a call on the host before the device makes it; return None if its results can't be compared.

    call: takes the arguments and another name for the routine; "" stands for the routine's own name.
    """
    pointers = [value for value in flat(arguments) if isinstance(value, DevicePtr)]
    before = [host_values(pointer) for pointer in pointers]
    values = [array.copy(order="K") if not _has_gaps(array) else _twin(array) for array in before]
    returned = run_on(arguments, values, call, "", host)
    if not pointers:
        return None
    sizes = sum(sum(pointer._shape) for pointer in pointers)
    precision = max(_precision(array.dtype) for array in before)
    solves = _SOLVES.search(name)
    expected = Expected(pointers, values, returned, [])
    if solves and not name.endswith("batched"):
        other = "trmm" if solves.group(1) is None else f"{solves.group(1)}mv"
        # The triangle times the solution is the right side.
        scalars = [
            1.0 if not isinstance(value, (DevicePtr, list, tuple, str, int, NoneType)) else value for value in arguments
        ]

        def multiplied(now: list[NDArray[Any]]) -> list[NDArray[Any]]:
            products = [_twin(array) for array in now]
            run_on(scalars, products, call, other, host)
            return products

        expected.backwards = multiplied
        alpha = next((v for v in arguments if isinstance(v, (float, complex, np.inexact))), 1.0)
        expected._values = [*values[:-1], (alpha * before[-1]).astype(before[-1].dtype)]
        largest = [_absolute(array) for array in values]
        run_on(_magnitudes(scalars), largest, call, other, host)
        scale = max(_largest(largest[-1:]), _largest(expected._values[-1:]))
    elif _ROTATIONS.search(name) or name.endswith("batched") or solves:
        scale = 4 * max(1.0, _largest(values), _largest(before))
    else:
        largest = [_absolute(array) for array in before]
        value = run_on(_magnitudes(arguments), largest, call, "", host)
        scale = max(_largest(largest), float(abs(value)) if isinstance(value, (float, complex)) else 0.0)
    if _EXTREME.search(name) and returned is not None:
        sizes_of = _wide(before[0])
        expected._extreme = np.abs(sizes_of.real) + np.abs(sizes_of.imag)
    expected.bounds = [64 * max(sizes, 1) * precision * scale] * len(values)
    return expected


def expect_launch(arguments: list[Any], launch: Callable[[list[Any]], None], host: Device) -> Expected:
    """Launch a kernel on the host before the device does. Integers have to be the same on both devices."""
    pointers = [value for value in arguments if isinstance(value, DevicePtr)]
    before = [host_values(pointer) for pointer in pointers]
    values = [_twin(array) for array in before]
    run_on(arguments, values, lambda values, _: launch(values), "", host)
    precisions = [_precision(array.dtype) for array in values]
    sizes = sum(sum(pointer._shape) for pointer in pointers)
    scale = 64 * max(sizes, 1) * _largest([*before, *values])
    return Expected(pointers, values, None, [scale * precision for precision in precisions])


def run_on(arguments: list[Any], arrays: list[NDArray[Any]], call: Caller, name: str, host: Device) -> Any:
    """Make a call on the host with these arrays in place of the pointers, in their order."""
    with offload_args(*arrays, device=host) as pointers:
        rest = iter(pointers)
        return call(_replaced(arguments, rest), name)


def _replaced(arguments: Any, rest: Any) -> Any:
    return [
        next(rest) if isinstance(value, DevicePtr) else _replaced(value, rest) if isinstance(value, list) else value
        for value in arguments
    ]


def _magnitudes(arguments: list[Any]) -> list[Any]:
    return [abs(value) if isinstance(value, (float, complex, np.inexact)) else value for value in arguments]


def _absolute(array: NDArray[Any]) -> NDArray[Any]:
    other = _twin(array)
    other[...] = np.abs(array).astype(array.dtype)
    return other


def _has_gaps(array: NDArray[Any]) -> bool:
    return not (array.flags.c_contiguous or array.flags.f_contiguous)


def _twin(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy with the same strides."""
    copy = zeros_of_layout(array.shape, array.strides, array.dtype)
    copy[...] = array
    return copy


def _precision(dtype: np.dtype[Any]) -> float:
    if dtype.name in _PRECISIONS:
        return _PRECISIONS[dtype.name]
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _largest(arrays: list[NDArray[Any]]) -> float:
    sizes = [np.abs(_wide(array)) for array in arrays if array.size]
    finite = [size[np.isfinite(size)] for size in sizes]
    return max((float(size.max()) for size in finite if size.size), default=0.0)


def distance(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest distance; infinite if only one of two elements is NaN."""
    a, b = _wide(actual), _wide(expected)
    if a.size == 0:
        return 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)[~same]
    if apart.size == 0:
        return 0.0
    return float("inf") if np.isnan(apart).any() else float(apart.max())
