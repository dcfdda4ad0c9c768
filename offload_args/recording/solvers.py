"""Makes a call of one vendor's LAPACK by another vendor's library, through the adapters of `lapack`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .. import _core, lapack
from ..arguments import Scratch
from ..devices import Device
from ..errors import LibraryError, OffloadError
from ..lapack._vendors import VENDORS, vendor_of
from ..pointers import DevicePtr
from ..regions import offload_args

__all__ = ["NoTwinError", "is_setting", "is_solver", "operands_of", "repeated", "routine_of", "twin"]

#: Parameters that not every library has: workspaces, and options that do not affect results.
_COUNTS: Final = ("batchSize", "batch_count")
_OWN: Final = {
    *("work", "lwork", "iwork", "liwork", "rwork", "lrwork", "E", "fast_alg", "info", "matrix_layout"),
    *_COUNTS,
}
#: {a routine's name for complex matrices: its name for real matrices}.
_SAME: Final = {
    "ungqr": "orgqr",
    "unmqr": "ormqr",
    "hegvd": "sygvd",
    "heevdx": "syevdx",
    "gesvdp": "gesvdj",
    # Jacobi methods, and syev of batches, find the same eigenvalues.
    **dict.fromkeys(("heevd", "syevj", "heevj", "syev"), "syevd"),
    **dict.fromkeys(("sygvj", "hegvj"), "sygvd"),
}
#: {routine: its arguments in any library, without workspaces and info}.
_ROUTINES: Final = {
    "potrf": "uplo n A lda",
    "potrs": "uplo n nrhs A lda B ldb",
    "potri": "uplo n A lda",
    "posv": "uplo n nrhs A lda B ldb",
    "getrf": "m n A lda ipiv",
    "getrs": "trans n nrhs A lda ipiv B ldb",
    "laswp": "n A lda k1 k2 ipiv incx",
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
    "syevdx": "jobz range uplo n A lda vl vu il iu w",
    "gesvdj": "jobz econ m n A lda s U ldu V ldv",
    "geev": "jobvl jobvr n A lda w VL ldvl VR ldvr",
}
#: Roles of arguments without a counterpart: settings, and dtypes that the arrays have, too.
_SETTINGS: Final = ("object", "type")
_RANGES: Final = {"A": "EIG_RANGE_ALL", "I": "EIG_RANGE_I", "V": "EIG_RANGE_V"}
_LETTERS: Final = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
#: {name of an enum's parameter in a library: the choice that the enum makes}.
_KINDS: Final = {
    "trans": "op",
    "uplo": "uplo",
    "side": "side",
    "jobz": "jobz",
    **dict.fromkeys(("evect", "jobvl", "jobvr"), "jobz"),
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
    if routine not in _ROUTINES:
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
                return _returned(info, infos)
            for number in range(next(named[count] for count in _COUNTS if count in named)):
                info = _make(none, library, name, _of_batch(none, library, routine, values, number))
                _returned(info, infos[number : number + 1] if infos is not None else None)
        except (LibraryError, NotImplementedError) as error:
            raise NoTwinError(f"{none}: {error}" if str(error) else none) from error
        return 0

    return call


def _returned(info: int | tuple[int, int], place: DevicePtr | None) -> int:
    """Write info to its place, if there is one.

    Return info, or the number of eigenvalues if only some were requested.
    """
    info, number = info if isinstance(info, tuple) else (info, info)
    if place is not None:
        place.fill(info)
    return number


def is_setting(library: str, name: str) -> bool:
    """Return whether a function only makes, changes or ends settings of solvers, which no other library needs."""
    makes = name.removeprefix("create_").removeprefix("destroy_") in ("params", "syevj_info", "gesvdj_info")
    return library == "cusolver" and (makes or name.startswith(("xsyevj_set_", "xgesvdj_set_")))


def repeated(function: Callable[..., int], times: int, steps: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
    """Make a call several times.

    `steps` has, for each pointer, the elements by which it advances, or a list of pointers.
    """
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
    named = {parameter: value for _, parameter, value in values}
    if not steps and library == "cusolver" and routine in ("syevd", "gesvdj"):  # the matrices follow each other
        m = named.get("m", n)
        steps = {"A": named["lda"] * n, "W": n, "S": min(m, n), "U": named.get("ldu", 0) * m}
        steps["V"] = named.get("ldv", 0) * n
    parts = []
    for role, parameter, value in values:
        if parameter.startswith("stride"):
            continue
        if parameter == "m" and routine == "gesvdj":
            parts.append((role, "econ", 0))
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


def _make(none: str, library: str, name: str, values: Sequence[tuple[str, str, Any]]) -> int | tuple[int, int]:
    """Make one call, and return LAPACK's info, with the number of eigenvalues if only some are requested."""
    wide = next((value for _, parameter, value in values if parameter == "ipiv"), None)
    if isinstance(wide, DevicePtr) and wide.dtype == np.int64:
        with offload_args(Scratch(wide.shape, np.int32), device=wide.device) as (narrow,):
            if routine_of(name).endswith("s"):  # it reads the pivots
                narrow.assign(wide.to_host().astype(np.int32))
            shorter = [(role, parameter, narrow if value is wide else value) for role, parameter, value in values]
            info = _make(none, library, name, shorter)
            if not routine_of(name).endswith("s"):
                wide.assign(narrow.to_host().astype(np.int64))
            return info
    routine, passed = routine_of(name), _passed(none, library, values)
    t = _LETTERS[next(value for value in passed if isinstance(value, DevicePtr)).dtype.name]
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
        case "gesvdj":
            return _gesvdj(none, t, *passed)
        case "syevdx":
            jobz, which, uplo, n, _, lda, vl, vu, il, iu, w = passed
            chosen = {"A": ("A", 0.0, 0.0, 1, n), "I": ("I", 0.0, 0.0, il, iu)}.get(which, ("V", vl, vu, 0, 0))
            return vendor.syevdx(t, jobz, uplo, n, _columns(A, n, n, lda), lda, chosen, w)
        case "geev":
            return _geev(none, t, *passed)
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


def _gesvdj(none: str, t: str, jobz: str, econ: int, m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
    """Find singular values by gesvd. The library's own function returns V, not its transpose."""
    s, U, ldu, V, ldv = rest
    vendor = vendor_of(none, A)
    if vendor.needs_tall and m < n:
        raise NoTwinError(f"{none}: that takes no more columns than rows")
    if jobz == "N":
        return vendor.gesvd(t, ("N", "N"), m, n, A, lda, s, A, max(m, n), A, max(m, n))
    rows = min(m, n) if econ else n
    with offload_args(Scratch((rows, n), A.dtype, order="F"), device=A.device) as (VT,):
        info = vendor.gesvd(t, ("S", "S") if econ else ("A", "A"), m, n, A, lda, s, U, ldu, VT, rows)
        if not info:
            _columns(V, n, rows, ldv).assign(VT.to_host().conj().T)
    return info


def _geev(none: str, t: str, left: str, right: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
    """Find the eigenvalues of a general matrix.

    For a real matrix, the eigenvalues are two arrays, one array, or complex numbers.
    """
    *values, VL, ldvl, VR, ldvr = rest
    vendor = vendor_of(none, A)
    vendor.need_geev(none, left == "V")
    vectors = [_columns(V, n, n, ld) if job == "V" else None for job, V, ld in ((left, VL, ldvl), (right, VR, ldvr))]
    w = values[0]
    if len(values) == 1 and (t in "cz" or w.dtype == A.dtype):
        return vendor.geev(t, n, A, lda, w, *vectors)
    with offload_args(Scratch((2 * n,), A.dtype), device=A.device) as (both,):
        info = vendor.geev(t, n, A, lda, both, *vectors)
        real, imaginary = np.split(both.to_host(), 2)
        if len(values) == 1:
            w[:n].assign((real + 1j * imaginary).astype(w.dtype))
        else:
            values[0][:n].assign(real)
            values[1][:n].assign(imaginary)
    return info


def _passed(none: str, library: str, values: Sequence[tuple[str, str, Any]]) -> list[Any]:
    """Return the arguments that all libraries have, with letters for enums."""
    return [
        _meaning(none, library, parameter, value) if role == "enum" else value
        for role, parameter, value in values
        if parameter not in _OWN and role not in _SETTINGS
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
    if parameter == "econ":
        return value
    if parameter == "range":
        names: dict[Any, str] = _RANGES
    elif parameter == "itype":
        names = dict(enumerate(_TYPES[library], 1))
    elif parameter == "diag":
        names = {"N": "NON_UNIT", "U": "UNIT"}
    else:
        adapter = _ADAPTERS["cusolver" if library == "cublas" else library]
        names = getattr(adapter, _KINDS[parameter], adapter.jobz)
    for letter, name in names.items():
        if getattr(module, name.removeprefix("CUBLAS_") if library == "cublas" else name) == value:
            return letter
    raise NoTwinError(f"{none} with {parameter}={value}")
