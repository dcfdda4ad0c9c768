"""Values of arguments: whole numbers, numbers of a dtype, structs; and what a message calls an argument."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..display import shown
from ..errors import DTypeError
from ..pointers import DevicePtr, _values

__all__ = ["filled", "kind", "whole"]


def whole(given: Any) -> int:
    """Return a whole number; raise TypeError for all else, True and False among it."""
    if isinstance(given, (bool, np.bool_)):
        raise TypeError
    return operator.index(given)


def filled(what: str, dtype: np.dtype[Any], given: Any) -> Any:
    """Return a value as NumPy takes it for a dtype, each number in it checked: NumPy itself would cut 1.5 to 1."""
    if dtype.subdtype is not None:
        return _array_of(what, *dtype.subdtype, given)
    if dtype.names is None:
        if isinstance(given, np.generic):
            given = given.item()
        if not isinstance(given, (bool, int, float, complex)):
            raise DTypeError(f"{what} needs one {dtype}, got {kind(given)}")
        return _values(what, given, dtype)
    if isinstance(given, np.void) and given.dtype == dtype:
        return given
    if not isinstance(given, tuple) or len(given) != len(dtype.names):
        got = f"a tuple of {len(given)}" if isinstance(given, tuple) else kind(given)
        raise DTypeError(f"{what} needs a tuple of {len(dtype.names)} values or a NumPy scalar of {dtype}, got {got}")
    return tuple(filled(f"{what}.{name}", dtype[name], one) for name, one in zip(dtype.names, given, strict=True))


def _array_of(what: str, dtype: np.dtype[Any], shape: tuple[int, ...], given: Any) -> Any:
    """Return the values of an array in a struct as nested lists."""
    if not shape:
        return filled(what, dtype, given)
    is_list = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim > 0)
    if not is_list or len(given) != shape[0]:
        got = f"{len(given)}" if is_list else kind(given)
        raise DTypeError(f"{what} needs a tuple or list of {shape[0]} values, got {got}")
    return [_array_of(f"{what}[{i}]", dtype, shape[1:], one) for i, one in enumerate(given)]


def kind(given: object) -> str:
    if isinstance(given, DevicePtr):
        return f"a pointer to {given.dtype}"
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return (
        f"{type(given).__name__} {shown(given):.60}" if isinstance(given, (int, float, str)) else type(given).__name__
    )
