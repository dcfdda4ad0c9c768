"""The values that determine the calls in the body of a loop."""

from __future__ import annotations

import builtins
import dis
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from . import _core
from .pointers import DevicePtr

__all__ = ["fixed_values"]

_NUMBERS: Final = (type(None), bool, int, float, complex, str, bytes, np.number, np.bool_, np.dtype, type)
_BUILTINS: Final = frozenset(
    "abs bool complex divmod enumerate float int len max min pow range reversed round slice sum tuple zip".split()
)
_STORES: Final = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "DELETE_", "IMPORT_", "YIELD", "SEND")
_DEEPEST: Final = 5  # how many functions of a chain of calls are examined


def fixed_values(body: object) -> tuple[Any, ...] | None:
    """Return all outer values that a function without arguments may read, in a fixed order.

    If these values are later the same objects, the function makes the same calls again. The result is None if one of
    the values, such as a list, can change, or if the function changes anything but its own variables.
    """
    values: list[Any] = []
    return tuple(values) if _add_function(body, values, _DEEPEST) else None


@lru_cache(maxsize=128)
def _globals_of(code: CodeType) -> tuple[str, ...] | None:
    """Return the global names that a function reads; None if it changes anything but its own variables."""
    names: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(_STORES):
            return None
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
    for constant in code.co_consts:
        inner = _globals_of(constant) if isinstance(constant, CodeType) else ()
        if inner is None:
            return None
        names.update(dict.fromkeys(inner))
    return tuple(names)


def _add_function(function: object, values: list[Any], depth: int) -> bool:
    if not isinstance(function, FunctionType) or not depth:
        return False
    names = _globals_of(function.__code__)
    if names is None:
        return False
    values.append(function.__code__)
    seen: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    try:
        seen += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable has no value yet
        return False
    for name in names:
        if name in function.__globals__:
            seen.append(function.__globals__[name])
        elif name not in _BUILTINS or not hasattr(builtins, name):
            return False
    return all(_add(value, values, depth) for value in seen)


def _add(value: Any, values: list[Any], depth: int) -> bool:
    """Add a value; return False if it can change."""
    values.append(value)
    if isinstance(value, tuple):
        return all(_add(part, values, depth) for part in value)
    if isinstance(value, (*_NUMBERS, DevicePtr, _core.Kernel)):
        return True
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    ours = isinstance(name, str) and name.partition(".")[0] == __package__
    if ours and isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType)):
        return True
    return _add_function(value, values, depth - 1)
