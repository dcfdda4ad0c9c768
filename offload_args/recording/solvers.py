"""Makes a call of one vendor's LAPACK by another vendor's library, through the adapters of `lapack`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .. import _core, lapack
from ..devices import Device
from ..errors import LibraryError, OffloadError
from ..lapack._vendors import VENDORS, vendor_of
from ..pointers import DevicePtr

__all__ = ["NoTwinError", "is_solver", "operands_of", "repeated", "routine_of", "twin"]

#: Parameters that not every library has: workspaces, and options that do not affect results.
_COUNTS: Final = ("batchSize", "batch_count")
_OWN: Final = {
    *("work", "lwork", "iwork", "liwork", "rwork", "lrwork", "E", "fast_alg", "info", "matrix_layout"),
    *_COUNTS,
}
#: {a routine's name for complex matrices: its name for real matrices}.
_SAME: Final = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hegvd": "sygvd"}
#: {routine: its arguments in any library, without workspaces and info}.
_ROUTINES: Final = {
    "potrf": "uplo n A lda",
    "potrs": "uplo n nrhs A lda B ldb",
    "potri": "uplo n A lda",
    "posv": "uplo n nrhs A lda B ldb",
    "getrf": "m n A lda ipiv",
    "getrs": "trans n nrhs A lda ipiv B ldb",
    "getri": "n A lda ipiv",
    "gesv": "n nrhs A lda ipiv B ldb",
    "geqrf": "m n A lda tau",
    "orgqr": "m n k A lda tau",
    "ormqr": "side trans m n k A lda tau C ldc",
    "gels": "trans m n nrhs A lda B ldb",
    "trtrs": "uplo trans diag n nrhs A lda B ldb",
    "syevd": "jobz uplo n A lda w",
    "gesvd": "jobu jobvt m n A lda s U ldu VT ldvt",
    "sygvd": "itype jobz uplo n A lda B ldb w",
    "sytrf": "uplo n A lda ipiv",
    "hetrf": "uplo n A lda ipiv",
    "sytrs": "uplo n nrhs A lda ipiv B ldb",
    "hetrs": "uplo n nrhs A lda ipiv B ldb",
}
#: {name of an enum's parameter in a library: the choice that the enum makes}.
_KINDS: Final = {
    "trans": "op",
    "uplo": "uplo",
    "side": "side",
    "jobz": "jobz",
    "evect": "jobz",
    **dict.fromkeys(("jobu", "jobvt", "left_svect", "right_svect"), "jobs"),
}
_TYPES: Final = {
    "cusolver": ("EIG_TYPE_1", "EIG_TYPE_2", "EIG_TYPE_3"),
    "rocsolver": ("eform_ax", "eform_abx", "eform_bax"),
    "lapacke": ("ITYPE_1", "ITYPE_2", "ITYPE_3"),
}


_ADAPTERS: Final = {adapter.module: adapter for adapter in VENDORS}


class NoTwinError(OffloadError):
    """A recorded call that has no counterpart on the device of the replay."""


def is_solver(library: str, name: str) -> bool:
    """Return whether a function of a vendor's library is a function of LAPACK."""
    return library in _TYPES or (library == "cublas" and routine_of(name) in _ROUTINES)


def routine_of(name: str) -> str:
    """Return the name of a routine without its dtype and its form."""
    routine = name[1:].removesuffix("_batched").removesuffix("_strided")
    return _SAME.get(routine, routine)


def twin(library: str, name: str, device: Device) -> Callable[..., int]:
    """Return a function that takes the arguments of a library's function, and makes the call on a device.

    The returned function returns LAPACK's info, and writes the info to the call's place for it. Raises a NoTwinError
    that names the call if the device has no such function.
    """
    from .. import lapacke

    routine, none = routine_of(name), f"{library}.{name} has no counterpart on {device}"
    if routine not in _ROUTINES or name.startswith("x"):
        raise NoTwinError(none)
    rows = [(role, parameter) for role, parameter, *_ in _core.record(library, name) if role not in ("result", "value")]

    def call(*arguments: Any, result: DevicePtr | None = None) -> int:
        if len(arguments) != len(rows):
            raise NoTwinError(f"{none} in this form")
        values = [(role, parameter, value) for (role, parameter), value in zip(rows, arguments, strict=True)]
        named = {parameter: value for _, parameter, value in values}
        if named.get("matrix_layout", lapacke.COL_MAJOR) != lapacke.COL_MAJOR:
            raise NoTwinError(f"{none} in row-major order")
        infos = named.get("info", result)  # one info for each matrix
        try:
            if "batched" not in name:
                info = _make(none, library, name, values)
                if infos is not None:
                    infos.fill(info)
                return info
            for number in range(next(named[count] for count in _COUNTS if count in named)):
                info = _make(none, library, name, _of_batch(none, library, routine, values, number))
                if infos is not None:
                    infos[number : number + 1].fill(info)
        except (LibraryError, NotImplementedError) as error:
            raise NoTwinError(f"{none}: {error}" if str(error) else none) from error
        return 0

    return call


def repeated(function: Callable[..., int], times: int, steps: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
    """Make a call several times; `steps` has the elements by which each pointer advances, or a list of pointers."""
    places = [place for place, value in enumerate(arguments) if isinstance(value, DevicePtr)]
    infos = []
    for number in range(times):
        now = list(arguments)
        for place, step in zip(places, steps, strict=True):
            now[place] = now[place].offset(number * step) if isinstance(step, int) else step[number]
        infos.append(function(*now))
    return infos


def _of_batch(
    none: str, library: str, routine: str, values: Sequence[tuple[str, str, Any]], number: int
) -> list[tuple[str, str, Any]]:
    """Return the arguments of one call of a batch."""
    steps: dict[str, int] = {}  # {the pointer before the stride: the stride}
    before, n = "", next(value for _, parameter, value in values if parameter == "n")
    for _, parameter, value in values:
        if parameter.startswith("stride"):
            steps[before] = value
        elif isinstance(value, DevicePtr):
            before = parameter
    parts = []
    for role, parameter, value in values:
        if parameter.startswith("stride"):
            continue
        if library == "cublas" and parameter == "n" and routine == "getrf":
            parts.append((role, "m", value))  # cuBLAS's function takes a square matrix
        if role.endswith("*"):  # the argument is a list, or a stack
            value = value[number]
        elif parameter in steps:
            value = value.offset(number * steps[parameter])
        elif parameter == "P":
            if value is None:
                raise NoTwinError(f"{none} without pivots")
            value = value[number] if len(value.shape) == 2 else value[number * n : number * n + n]
        parts.append((role, parameter, value))
    return parts


def _make(none: str, library: str, name: str, values: Sequence[tuple[str, str, Any]]) -> int:
    """Make one call, and return LAPACK's info."""
    t, routine = name[0], routine_of(name)
    passed = _passed(none, library, values)
    if any(parameter in ("m", "n", "nrhs") and value == 0 for _, parameter, value in values):
        return 0
    A = next(value for value in passed if isinstance(value, DevicePtr))
    vendor = vendor_of(none, A)
    match routine:
        case "posv":
            uplo, n, nrhs, _, lda, B, ldb = passed
            operands = _columns(A, n, n, lda), _columns(B, n, nrhs, ldb)
            return vendor.potrf(t, uplo, n, A, lda) or _info(lapack.potrs, *operands, uplo=uplo)
        case "potrs":
            uplo, n, nrhs, _, lda, B, ldb = passed
            return _info(lapack.potrs, _columns(A, n, n, lda), _columns(B, n, nrhs, ldb), uplo=uplo)
        case "gesv":
            n, nrhs, _, lda, *rest = passed
            return vendor.getrf(t, n, n, A, lda, rest[0]) or vendor.getrs(t, "N", n, nrhs, A, lda, *rest)
        case "getri":
            n, _, lda, ipiv, *to = passed
            source = target = _columns(A, n, n, lda)
            if to:  # cuBLAS's function writes the inverse to another matrix
                target, lda = _columns(to[0], n, n, to[1]), to[1]
                target.copy_from(source)
            return vendor.getri(t, n, target, lda, ipiv)
        case "gesvd":
            left, right, m, n, _, lda, s, *vectors = passed
            if vendor.needs_tall and m < n:
                raise NoTwinError(f"{none}: that takes no more columns than rows")
            sides: list[Any] = []
            for V, ld in (vectors[:2], vectors[2:]):
                sides += (A, max(m, n)) if V is None else (V, ld)
            return vendor.gesvd(t, (left, right), m, n, A, lda, s, *sides)
        case "sytrf" | "hetrf" | "sytrs" | "hetrs":
            is_hermitian, solves = routine.startswith("he"), routine.endswith("s")
            vendor.need_indefinite(none, is_hermitian, solves)
            return (vendor.sytrs if solves else vendor.sytrf)(t, is_hermitian, *passed)
        case "gels":
            trans, m, n, nrhs, _, lda, B, ldb = passed
            return _info(lapack.gels, _columns(A, m, n, lda), _columns(B, max(m, n), nrhs, ldb), trans=trans)
        case "trtrs":
            uplo, trans, diag, n, nrhs, _, lda, B, ldb = passed
            operands = _columns(A, n, n, lda), _columns(B, n, nrhs, ldb)
            return _info(lapack.trtrs, *operands, uplo=uplo, trans=trans, diag=diag)
    return int(getattr(vendor, routine)(t, *passed))


def _passed(none: str, library: str, values: Sequence[tuple[str, str, Any]]) -> list[Any]:
    """Return the arguments that all libraries have, with letters for enums."""
    return [
        _meaning(none, library, parameter, value) if role == "enum" else value
        for role, parameter, value in values
        if parameter not in _OWN
    ]


def operands_of(library: str, name: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call by LAPACK's names, with letters for enums.

    Raises NoTwinError for unknown names.
    """
    rows = [(role, parameter) for role, parameter, *_ in _core.record(library, name) if role not in ("result", "value")]
    values = [(role, parameter, value) for (role, parameter), value in zip(rows, arguments, strict=True)]
    operands = dict(zip(_ROUTINES[routine_of(name)].split(), _passed(name, library, values), strict=True))
    return operands | {parameter: value for _, parameter, value in values if parameter == "info"}


def _columns(pointer: DevicePtr, m: int, n: int, ld: int) -> DevicePtr:
    """Return an m x n matrix in column-major order, whose memory begins at a pointer."""
    size = pointer.dtype.itemsize
    matrix: DevicePtr = _core.view(pointer, 0, (m, n), (size, ld * size))
    return matrix


def _info(function: Callable[..., None], *operands: DevicePtr, **options: str) -> int:
    """Call a function of `lapack`, and return LAPACK's info."""
    try:
        function(*operands, **options)
    except np.linalg.LinAlgError as error:
        return int(error.info)  # type: ignore[attr-defined]
    return 0


def _meaning(none: str, library: str, parameter: str, value: int) -> Any:
    """Return the letter for a value of an enum, or the number of an itype."""
    module = importlib.import_module(f"..{library}", __package__)
    if parameter == "itype":
        names: dict[Any, str] = dict(enumerate(_TYPES[library], 1))
    elif parameter == "diag":
        names = {"N": "NON_UNIT", "U": "UNIT"}
    else:
        adapter = _ADAPTERS["cusolver" if library == "cublas" else library]
        names = getattr(adapter, _KINDS[parameter], adapter.jobz)
    for letter, name in names.items():
        if getattr(module, name.removeprefix("CUBLAS_") if library == "cublas" else name) == value:
            return letter
    raise NoTwinError(f"{none} with {parameter}={value}")
