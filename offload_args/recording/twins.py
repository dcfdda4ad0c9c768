"""A vendor's call for another vendor's library: the same routine, with the same meaning of each argument."""

from __future__ import annotations

import importlib
from types import BuiltinFunctionType
from typing import Any, Final

from .. import _core
from .._table import LIBRARIES
from ..devices import Device
from ..errors import OffloadError

__all__ = ["NoTwinError", "function", "runs_on", "twin"]

#: The libraries of BLAS, with the constants of theirs that mean the same, in one order.
_CONSTANTS: Final = {
    "cublas": (
        "OP_N OP_T OP_C",
        "FILL_MODE_UPPER FILL_MODE_LOWER",
        "SIDE_LEFT SIDE_RIGHT",
        "DIAG_NON_UNIT DIAG_UNIT",
    ),
    "rocblas": (
        "operation_none operation_transpose operation_conjugate_transpose",
        "fill_upper fill_lower",
        "side_left side_right",
        "diagonal_non_unit diagonal_unit",
    ),
    "cblas": ("NoTrans Trans ConjTrans", "Upper Lower", "Left Right", "NonUnit Unit"),
}
_KINDS: Final = ("trans", "uplo", "side", "diag")
_SAME: Final = {"transa": "trans", "P": "param"}  # names of parameters that mean the same
_LIBRARY_OF: Final = {"cuda": "cublas", "hip": "rocblas"}


class NoTwinError(OffloadError):
    """A recorded call that has no counterpart on the device of the replay."""


def twin(library: str, name: str, arguments: list[Any], device: Device) -> tuple[Any, list[Any], int]:
    """Return the function of a device's library, its arguments, and how much greater its indices are.

    Raises NoTwinError, which names the call, if no function there does the same.
    """
    if runs_on(library, device):
        return function(library, name), arguments, 0
    other = _LIBRARY_OF.get(device.backend, "cblas")
    if library not in _CONSTANTS or name not in _core.routine_names(other):
        raise NoTwinError(f"{library}.{name} has no counterpart on {device}")
    ours, theirs = _core.record(library, name), _core.record(other, name)
    if len(arguments) != sum(role not in ("result", "value") for role, *_ in ours):
        raise NoTwinError(f"{library}.{name} has no counterpart on {device} in this form")
    values = {_plain(row[1]): value for row, value in zip(ours, arguments, strict=False)}
    if "order" in values and values.pop("order") != _value(library, "ColMajor"):
        raise NoTwinError(f"{library}.{name} in row-major order has no counterpart on {device}")
    if {row[0] for row in (*ours, *theirs)} & {"type"}:
        raise NoTwinError(f"{library}.{name} has no counterpart on {device}")
    passed: list[Any] = []
    for role, parameter, *_ in theirs:
        if role in ("result", "value"):
            continue
        plain = _plain(parameter)
        if plain == "order":
            passed.append(_value(other, "ColMajor"))
        elif plain not in values:
            raise NoTwinError(f"{library}.{name} has no counterpart on {device}: that has an argument {parameter}")
        else:
            value = values.pop(plain)
            passed.append(_translated(library, other, plain, value) if role == "enum" else value)
    if values:
        raise NoTwinError(f"{library}.{name} has no counterpart on {device}: that has no argument {', '.join(values)}")
    return function(other, name), passed, (other == "cblas") - (library == "cblas")


def runs_on(library: str, device: Device) -> bool:
    """Tell whether a device's arrays may be passed to a library."""
    backend = LIBRARIES[library]["backend"]
    return backend == device.backend if backend else bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)


def _plain(parameter: str) -> str:
    return _SAME.get(parameter, parameter)


def _translated(library: str, other: str, parameter: str, value: int) -> int:
    for kind, ours, theirs in zip(_KINDS, _CONSTANTS[library], _CONSTANTS[other], strict=True):
        if parameter.startswith(kind):
            for constant, another in zip(ours.split(), theirs.split(), strict=True):
                if _value(library, constant) == value:
                    return _value(other, another)
    raise NoTwinError(f"{library}'s {parameter}={value} has no counterpart in {other}")


def _value(library: str, constant: str) -> int:
    number: int = getattr(importlib.import_module(f"..{library}", __package__), constant)
    return number


def function(library: str, name: str) -> Any:
    """Return a function of a vendor's library. Raises NoTwinError for any other name: files are not trusted."""
    module = importlib.import_module(f"..{library}", __package__) if library in LIBRARIES else None
    routine = getattr(module, name, None)
    if not isinstance(routine, BuiltinFunctionType):
        raise NoTwinError(f"{library}.{name} is no function of a library")
    return routine
