"""Turns a call of one vendor's library into the call of another vendor's same routine with the same arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final

import numpy as np

from .. import _core, blas
from .._table import LIBRARIES
from ..devices import Device
from ..pointers import DevicePtr
from . import solvers
from .layout import flat
from .solvers import NoTwinError

__all__ = ["NoTwinError", "function", "runs_on", "twin"]

#: {library of BLAS: its constants}. Constants of the same meaning have the same position.
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
#: {name of a parameter: another name with the same meaning}.
_SAME: Final = {"transa": "trans", "P": "param", "batchCount": "batch_count", "batchSize": "batch_count"}
#: {family: (the arguments to exchange, the arguments to transpose)}, to turn a row-major call into a column-major call
#: of the transposes.
_TURNED: Final = {
    "gemm": ("m n, trans transb, A B, lda ldb", ""),
    "gemv": ("m n", "trans"),
    "gbmv": ("m n, kl ku", "trans"),
    "ger": ("m n, x y, incx incy", ""),
    "geru": ("m n, x y, incx incy", ""),
    **dict.fromkeys(("symm", "hemm", "trmm", "trsm"), ("m n", "side uplo")),
    **dict.fromkeys(("syrk", "syr2k", "herk", "her2k"), ("", "uplo trans")),
    **dict.fromkeys(("trmv", "trsv", "tbmv", "tbsv", "tpmv", "tpsv"), ("", "uplo trans")),
    **dict.fromkeys(("symv", "sbmv", "spmv", "syr", "syr2", "spr", "spr2"), ("", "uplo")),
}
_LIBRARY_OF: Final = {"cuda": "cublas", "hip": "rocblas"}


def twin(library: str, name: str, arguments: list[Any], device: Device) -> tuple[Any, list[Any], int]:
    """Return the function of the device, its arguments, and the difference of its indices from recorded ones.

    Raises a NoTwinError that names the call if this library has no such function.
    """
    has_pointers = any(isinstance(value, DevicePtr) for value in flat(arguments))
    if runs_on(library, device) or (not has_pointers and not LIBRARIES[library]["backend"]):
        return function(library, name), arguments, 0
    other = _LIBRARY_OF.get(device.backend, "cblas")
    none = f"{library}.{name} has no counterpart on {device}"
    if solvers.is_solver(library, name):
        return solvers.twin(library, name, device), arguments, 0
    if library not in _CONSTANTS:
        raise NoTwinError(none)
    ours = [row for row in _core.record(library, name) if row[0] not in ("result", "value")]
    if len(arguments) != len(ours):
        raise NoTwinError(f"{none} in this form")
    values = {_plain(row[1]): value for row, value in zip(ours, arguments, strict=True)}
    if library != "cblas" and other == "cblas":
        if name.endswith("_batched"):
            return _batch(library, name, ours, values, device), [], 0
        if name[1:] == "rotmg":
            return blas.rotmg, arguments, 0
        if name[1:] == "geam":
            return _sum(library, values), [], 0
        if name[1:] == "trmm":
            _copy(values)
    if name not in _core.routine_names(other):
        raise NoTwinError(none)
    theirs = _core.record(other, name)
    if "order" in values and values.pop("order") != _value(library, "ColMajor"):
        values = _turned(name, values, device)
    if library == "cblas" and name[1:] == "trmm":
        values["C"], values["ldc"] = values["B"], values["ldb"]
    if {row[0] for row in (*ours, *theirs)} & {"type"}:
        raise NoTwinError(none)
    passed: list[Any] = []
    for role, parameter, *_ in theirs:
        if role in ("result", "value"):
            continue
        plain = _plain(parameter)
        if plain == "order":
            passed.append(_value(other, "ColMajor"))
        elif plain not in values:
            raise NoTwinError(f"{none}: that has an argument {parameter}")
        else:
            value = values.pop(plain)
            passed.append(_translated(library, other, plain, value) if role == "enum" else value)
    if values:
        raise NoTwinError(f"{none}: that has no argument {', '.join(values)}")
    return function(other, name), passed, (other == "cblas") - (library == "cblas")


def _turned(name: str, values: dict[str, Any], device: Device) -> dict[str, Any]:
    """Return the arguments of a row-major call for the transposes, which are the same memory in column-major order."""
    family, none = name[1:], f"cblas.{name} in row-major order has no counterpart on {device}"
    if family not in _TURNED:
        raise NoTwinError(none)
    exchanged, turned = _TURNED[family]
    values = dict(values)
    for pair in filter(None, exchanged.split(", ")):
        first, second = pair.split()
        values[first], values[second] = values[second], values[first]
    pairs = {"side": "Left Right", "uplo": "Upper Lower", "trans": "NoTrans Trans"}
    if family in ("herk", "her2k"):
        pairs["trans"] = "NoTrans ConjTrans"
    for parameter in turned.split():
        value, sides = values[parameter], [_value("cblas", side) for side in pairs[parameter].split()]
        if value == _value("cblas", "ConjTrans") and name[0] in "sd":
            value = _value("cblas", "Trans")
        if value not in sides:
            raise NoTwinError(f"{none} with {parameter}={value}")
        values[parameter] = sides[1 - sides.index(value)]
    if family == "her2k":
        values["alpha"] = complex(values["alpha"]).conjugate()
    return values


def _copy(values: dict[str, Any]) -> None:
    """Copy the matrix B of a trmm to C, and pass C as B, because CBLAS computes in place."""
    B, ldb, C, ldc = (values.pop(name) for name in ("B", "ldb", "C", "ldc"))
    if (_core.origin(B), ldb) != (_core.origin(C), ldc):
        for column in range(values["n"]):
            C.offset(column * ldc)[: values["m"]].copy_from(B.offset(column * ldb)[: values["m"]])
    values["B"], values["ldb"] = C, ldc


def _sum(library: str, values: dict[str, Any]) -> Callable[[], None]:
    """Return a function that computes C = alpha op(A) + beta op(B), as geam does, which CBLAS lacks."""
    m, n, C, ldc = (values[name] for name in "m n C ldc".split())

    def term(factor: complex, X: DevicePtr, ldx: int, operation: int) -> Any:
        if factor == 0:
            return 0
        op = [_value(library, constant) for constant in _CONSTANTS[library][0].split()].index(operation)
        rows, columns = (n, m) if op else (m, n)
        matrix = np.array([X.offset(column * ldx)[:rows].to_host() for column in range(columns)])  # X^T
        return factor * (matrix.T if op == 0 else matrix if op == 1 else matrix.conj())

    def compute() -> None:
        A = term(values["alpha"], values["A"], values["lda"], values["trans"])
        total = np.broadcast_to(A + term(values["beta"], values["B"], values["ldb"], values["transb"]), (m, n))
        for column in range(n):
            C.offset(column * ldc)[:m].assign(total[:, column].astype(C.dtype))

    return compute


def _batch(library: str, name: str, rows: list[Any], values: dict[str, Any], device: Device) -> Callable[[], None]:
    """Return a function that makes the calls of a batch one after the other."""
    plain = name.removesuffix("_batched").removesuffix("_strided")
    parameters = [(role, _plain(parameter)) for role, parameter, *_ in rows]
    lists = [parameter for role, parameter in parameters if role.endswith("*")]
    if plain not in _core.routine_names(library) or not all(isinstance(values[each], list) for each in lists):
        raise NoTwinError(f"{library}.{name} has no counterpart on {device}")

    def part(parameter: str, number: int) -> Any:
        value, step = values[parameter], values.get(f"stride_{parameter.lower()}")
        if parameter in lists:
            return value[number]
        return value if step is None else value.offset(number * step)

    def calls() -> None:
        for number in range(values["batch_count"]):
            arguments = [
                part(parameter, number)
                for _, parameter in parameters
                if parameter != "batch_count" and not parameter.startswith("stride_")
            ]
            routine, passed, _ = twin(library, plain, arguments, device)
            routine(*passed)

    return calls


def runs_on(library: str, device: Device) -> bool:
    """Return whether a device's arrays may be passed to a library."""
    backend = LIBRARIES[library]["backend"]
    return backend == device.backend if backend else bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)


def _plain(parameter: str) -> str:
    if parameter.startswith("stride"):
        return f"stride_{parameter[6:].lstrip('_').lower()}"
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
    """Return a function of a vendor's library. Raises NoTwinError for any other name, because files are not trusted."""
    module = importlib.import_module(f"..{library}", __package__) if library in LIBRARIES else None
    routine = getattr(module, name, None)
    if not isinstance(routine, BuiltinFunctionType):
        raise NoTwinError(f"{library}.{name} is no function of a library")
    return routine
