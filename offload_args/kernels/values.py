"""Values of arguments (whole numbers, numbers of a dtype, structs), and the name of an argument in messages."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..display import shown
from ..errors import DTypeError
from ..pointers import DevicePtr, _values

__all__ = ["filled", "kind", "whole"]


def whole(value: Any) -> int:
    """Return a whole number; raise TypeError for other values, including True and False."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


def filled(subject: str, dtype: np.dtype[Any], value: Any) -> Any:
    """Return a value in a form that NumPy takes for a dtype, and check each number in it: NumPy would cut 1.5 to 1."""
    if dtype.subdtype is not None:
        return _array_of(subject, *dtype.subdtype, value)
    if dtype.names is None:
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, (bool, int, float, complex)):
            raise DTypeError(f"{subject} needs one {dtype}, got {kind(value)}; pass a number")
        return _values(subject, value, dtype)
    if isinstance(value, np.void) and value.dtype == dtype:
        return value
    if not isinstance(value, tuple) or len(value) != len(dtype.names):
        got = f"a tuple of {len(value)}" if isinstance(value, tuple) else kind(value)
        raise DTypeError(
            f"{subject} needs a tuple of {len(dtype.names)} values or a NumPy scalar of {dtype}, got {got}"
        )
    return tuple(
        filled(f"{subject}.{name}", dtype[name], element) for name, element in zip(dtype.names, value, strict=True)
    )


def _array_of(subject: str, dtype: np.dtype[Any], shape: tuple[int, ...], value: Any) -> Any:
    """Return the values of an array in a struct as nested lists."""
    if not shape:
        return filled(subject, dtype, value)
    is_list = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not is_list or len(value) != shape[0]:
        got = f"{len(value)}" if is_list else kind(value)
        raise DTypeError(f"{subject} needs a tuple or list of {shape[0]} values, got {got}")
    return [_array_of(f"{subject}[{i}]", dtype, shape[1:], element) for i, element in enumerate(value)]


def kind(value: object) -> str:
    if isinstance(value, DevicePtr):
        return f"a pointer to {value.dtype}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return (
        f"{type(value).__name__} {shown(value):.60}" if isinstance(value, (int, float, str)) else type(value).__name__
    )
