"""Calls of one vendor's LAPACK are translated to another vendor's LAPACK, and their solutions are checked."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings.files import events_of

from helpers.devices import open_or_skip
from offload_args import Device, cublas, cusolver, lapack, lapacke, offload_args, record, rocsolver
from offload_args import _core as core
from offload_args.recording import solved, solvers
from offload_args.recording.replay import Replay, replay

ROOT = Path(__file__).parents[2]
Arrays = dict[str, "np.ndarray[Any, Any]"]
LIBRARIES: dict[str, Any] = {"cusolver": cusolver, "rocsolver": rocsolver, "lapacke": lapacke}
#: {library: {kind: {letter: the name of its constant}}}.
CONSTANTS: dict[str, dict[str, dict[str, str]]] = {
    "cusolver": {
        "uplo": {"U": "CUBLAS_FILL_MODE_UPPER", "L": "CUBLAS_FILL_MODE_LOWER"},
        "trans": {"N": "CUBLAS_OP_N", "T": "CUBLAS_OP_T", "C": "CUBLAS_OP_C"},
        "side": {"L": "CUBLAS_SIDE_LEFT", "R": "CUBLAS_SIDE_RIGHT"},
        "jobz": {"N": "EIG_MODE_NOVECTOR", "V": "EIG_MODE_VECTOR"},
        "jobs": {"N": "JOB_N", "S": "JOB_S", "A": "JOB_A"},
        "itype": {1: "EIG_TYPE_1", 2: "EIG_TYPE_2", 3: "EIG_TYPE_3"},
    },
    "rocsolver": {
        "uplo": {"U": "fill_upper", "L": "fill_lower"},
        "trans": {"N": "operation_none", "T": "operation_transpose", "C": "operation_conjugate_transpose"},
        "side": {"L": "side_left", "R": "side_right"},
        "jobz": {"N": "evect_none", "V": "evect_original"},
        "jobs": {"N": "svect_none", "S": "svect_singular", "A": "svect_all"},
        "itype": {1: "eform_ax", 2: "eform_abx", 3: "eform_bax"},
        "fast_alg": {"-": "outofplace"},
    },
    "lapacke": {
        "uplo": {"U": "UPPER", "L": "LOWER"},
        "trans": {"N": "NO_TRANS", "T": "TRANS", "C": "CONJ_TRANS"},
        "side": {"L": "LEFT", "R": "RIGHT"},
        "jobz": {"N": "JOB_N", "V": "JOB_V"},
        "jobs": {"N": "JOB_N", "S": "JOB_S", "A": "JOB_A"},
        "itype": {1: "ITYPE_1", 2: "ITYPE_2", 3: "ITYPE_3"},
        "diag": {"N": "NON_UNIT", "U": "UNIT"},
    },
}
KINDS = {"evect": "jobz", **dict.fromkeys(("jobu", "jobvt", "left_svect", "right_svect"), "jobs")}
#: {routine: {LAPACK's name of an argument: a letter, a size, or the name of an array}}.
LD = {"lda": 7, "ldb": 8, "ldc": 9, "ldu": 8, "ldvt": 7}
CALLS: dict[str, dict[str, Any]] = {
    "dpotrf": {"uplo": "L", "n": 5, "A": "spd"},
    "zpotrf": {"uplo": "U", "n": 5, "A": "spd"},
    "dpotrs": {"uplo": "L", "n": 5, "nrhs": 2, "A": "chol", "B": "rhs"},
    "zpotrs": {"uplo": "U", "n": 5, "nrhs": 2, "A": "chol", "B": "rhs"},
    "dpotri": {"uplo": "U", "n": 5, "A": "chol"},
    "zposv": {"uplo": "L", "n": 5, "nrhs": 2, "A": "spd", "B": "rhs"},
    "dgetrf": {"m": 6, "n": 4, "A": "any", "ipiv": "new"},
    "zgetrf": {"m": 4, "n": 6, "A": "any", "ipiv": "new"},
    "dgetrs": {"trans": "T", "n": 5, "nrhs": 2, "A": "lu", "ipiv": "pivots", "B": "rhs"},
    "zgetrs": {"trans": "C", "n": 5, "nrhs": 2, "A": "lu", "ipiv": "pivots", "B": "rhs"},
    "cgetrs": {"trans": "N", "n": 5, "nrhs": 2, "A": "lu", "ipiv": "pivots", "B": "rhs"},
    "dlaswp": {"n": 4, "A": "any", "k1": 2, "k2": 5, "ipiv": "pivots", "incx": 1},
    "zlaswp": {"n": 5, "A": "any", "k1": 1, "k2": 3, "ipiv": "pivots", "incx": 1},
    "dgetri": {"n": 5, "A": "lu", "ipiv": "pivots"},
    "zgesv": {"n": 5, "nrhs": 2, "A": "any", "ipiv": "new", "B": "rhs"},
    "dgeqrf": {"m": 6, "n": 4, "A": "any", "tau": "new"},
    "zungqr": {"m": 6, "n": 4, "k": 3, "A": "any", "tau": "taus"},
    "dormqr": {"side": "R", "trans": "T", "m": 4, "n": 6, "k": 3, "A": "any", "tau": "taus", "C": "rhs"},
    "zunmqr": {"side": "L", "trans": "C", "m": 6, "n": 4, "k": 3, "A": "any", "tau": "taus", "C": "rhs"},
    "dsyevd": {"jobz": "V", "uplo": "L", "n": 5, "A": "spd", "w": "new"},
    "zheevd": {"jobz": "N", "uplo": "U", "n": 5, "A": "spd", "w": "new"},
    "dgesvd": {"jobu": "S", "jobvt": "A", "m": 6, "n": 4, "A": "any", "s": "new", "U": "out", "VT": "out"},
    "zgesvd": {"jobu": "N", "jobvt": "S", "m": 6, "n": 4, "A": "any", "s": "new", "U": "out", "VT": "out"},
    "dsytrf": {"uplo": "L", "n": 5, "A": "spd", "ipiv": "new"},
    "dsygvd": {"itype": 2, "jobz": "N", "uplo": "U", "n": 5, "A": "spd", "B": "other", "w": "new"},
    "dgels": {"trans": "N", "m": 6, "n": 4, "nrhs": 2, "A": "any", "B": "rhs"},
    "dtrtrs": {"uplo": "U", "trans": "T", "diag": "U", "n": 5, "nrhs": 2, "A": "chol", "B": "rhs"},
    "zhetrf": {"uplo": "L", "n": 5, "A": "spd", "ipiv": "new"},
}
SAME = {"D": "w", "W": "w", "S": "s", "TAU": "tau", "V": "VT", "ldv": "ldvt", "VT": "VT", "U": "U"}


def stored(matrix: np.ndarray[Any, Any], ld: int, size: int = 80) -> np.ndarray[Any, Any]:
    """Return memory that contains a matrix in column-major order."""
    memory = np.zeros(size, matrix.dtype)
    for column, values in enumerate(matrix.T):
        memory[column * ld : column * ld + len(values)] = values
    return memory


def arrays_of(name: str) -> Arrays:
    """Return the arrays of a call by LAPACK's names, including workspaces."""
    random = np.random.default_rng(3)
    dtype = np.dtype({"d": "f8", "z": "c16", "c": "c8"}[name[0]])

    def new(*shape: int) -> np.ndarray[Any, Any]:
        values = random.uniform(-1, 1, shape)
        return (values + 1j * random.uniform(-1, 1, shape) if dtype.kind == "c" else values).astype(dtype)

    any_ = new(7, 7)
    half = new(5, 5)
    spd = half @ half.conj().T + np.eye(5)
    lu = new(5, 5)
    lu[[0, 1]] = lu[[1, 0]]
    factors = {
        "spd": spd,
        "other": spd + np.eye(5),
        "chol": np.linalg.cholesky(spd).astype(dtype)
        if CALLS[name].get("uplo") == "L"
        else np.linalg.cholesky(spd).conj().T.astype(dtype),
        "any": any_,
        "lu": lu,
        "rhs": new(8, 6),
        "out": np.zeros((8, 6), dtype),
    }
    arrays: Arrays = {}
    for parameter, kind in CALLS[name].items():
        if kind in factors and isinstance(kind, str) and len(kind) > 1:
            arrays[parameter] = stored(factors[kind], LD[f"ld{parameter.lower()}"])
        elif kind == "pivots":
            arrays[parameter] = np.array([3, 2, 5, 4, 5], np.int32)
        elif parameter == "ipiv":
            arrays[parameter] = np.zeros(8, np.int32)
        elif parameter in ("w", "s"):
            arrays[parameter] = np.zeros(8, dtype.char.lower())
        elif kind == "taus":
            arrays[parameter] = (0.5 * new(8)).astype(dtype)
        elif parameter == "tau":
            arrays[parameter] = np.zeros(8, dtype)
    real = np.dtype(dtype.char.lower())
    return arrays | {
        "work": np.zeros(9000, dtype), "E": np.zeros(8, real), "rwork": np.zeros(900, real),
        "iwork": np.zeros(900, np.int32), "info": np.full(1, -1, np.int32),
    }  # fmt: skip


def run(library: str, name: str, function: Any, arrays: Arrays) -> Any:
    """Make a call with the library's names of arguments."""
    known = CALLS[name] | LD
    sizes = {"lwork": 9000, "lrwork": 900, "liwork": 900}
    with offload_args(*arrays.values(), device="host") as pointers:
        lent = dict(zip(arrays, pointers, strict=True))
        arguments: list[Any] = []
        for role, parameter, *_ in core.record(library, name):
            plain = SAME.get(parameter, parameter)
            if role == "value":
                continue
            if parameter == "matrix_layout":
                arguments.append(lapacke.COL_MAJOR)
            elif role == "enum":
                constants = CONSTANTS[library][KINDS.get(parameter, parameter)]
                letter = {"evect": "jobz", "left_svect": "jobu", "right_svect": "jobvt"}.get(parameter, parameter)
                arguments.append(getattr(LIBRARIES[library], constants[known.get(letter, "-")]))
            elif parameter == "ipiv" and "ipiv" not in lent:
                arguments.append(lent["tau"])  # rocSOLVER's name
            else:
                plain = {name.lower(): name for name in lent}.get(plain.lower(), plain)
                arguments.append(lent.get(plain, known.get(plain, sizes.get(plain))))
        return function(*arguments)


CASES = [(library, name) for library in LIBRARIES for name in CALLS if name in core.routine_names(library)]


@pytest.mark.parametrize(("library", "name"), CASES)
def test_a_call_of_lapack_is_the_same_call_of_the_hosts(library: str, name: str) -> None:
    expected, arrays = arrays_of(name), arrays_of(name)
    if name in core.routine_names("lapacke"):
        assert run("lapacke", name, getattr(lapacke, name), expected) == 0
    assert run(library, name, solvers.twin(library, name, Device.host()), arrays) == 0
    before = arrays_of(name)
    written = [key for key in CALLS[name] if key in arrays and not np.array_equal(expected[key], before[key])]
    assert written
    for key in written:
        np.testing.assert_allclose(arrays[key], expected[key], rtol=1e-5, atol=1e-5)
    if library != "lapacke" and any(row[1] == "info" and row[0] != "value" for row in core.record(library, name)):
        assert arrays["info"][0] == 0


def test_a_matrix_that_is_not_definite_has_its_info() -> None:
    arrays = arrays_of("dpotrf")
    arrays["A"][8] = -100
    assert run("cusolver", "dpotrf", solvers.twin("cusolver", "dpotrf", Device.host()), arrays) == 2
    assert arrays["info"][0] == 2


@pytest.mark.parametrize(
    ("library", "name", "change", "reason"),
    [
        ("lapacke", "dgetrf", {"matrix_layout": "ROW_MAJOR"}, "lapacke.dgetrf has no counterpart on host in row-major"),
        ("lapacke", "dsyevr", {}, "lapacke.dsyevr has no counterpart on host"),
        ("cusolver", "xstedc", {}, "cusolver.xstedc has no counterpart on host"),
        ("cusolver", "dsygvdx", {}, "cusolver.dsygvdx has no counterpart on host"),
        ("rocsolver", "dsyevx", {}, "rocsolver.dsyevx has no counterpart on host"),
        ("cusolver", "dgesvd", {"jobu": "JOB_O"}, "cusolver.dgesvd has no counterpart on host with jobu="),
    ],
)
def test_a_call_of_lapack_without_a_counterpart_is_named(
    library: str, name: str, change: dict[str, str], reason: str
) -> None:
    rows = core.record(library, name)
    with offload_args(np.ones(60), device="host") as (d,), pytest.raises(solvers.NoTwinError, match=reason):
        arguments = []
        for role, parameter, *_ in rows:
            constant = change.get(parameter)
            if role != "value":
                arguments.append(d if constant is None else getattr(LIBRARIES[library], constant))
        if "jobu" in change:
            arguments[1] = cusolver.JOB_N
        solvers.twin(library, name, Device.host())(*arguments)


def test_the_guide_names_the_functions_without_a_counterpart() -> None:
    page = (ROOT / "docs" / "guide" / "recordings.md").read_text()
    table = page.partition("### Functions without a counterpart")[2].partition("##")[0]
    expected = set()
    for library in LIBRARIES:
        for name in core.routine_names(library):
            roles = {row[0].rstrip("*?") for row in core.record(library, name)}
            if roles & {"in", "out", "inout"} and solvers.routine_of(name) not in solvers._ROUTINES:
                plain = name if name[0] == "x" or name.startswith("irs_") else name[1:]
                plain = re.sub("^he", "sy", re.sub("^un", "or", plain))
                expected.add("dsgesv" if re.fullmatch("[a-z]ge(sv|ls)", plain) else plain)
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row) if row.startswith("|")}
    assert named == expected


V, N, LOWER = cusolver.EIG_MODE_VECTOR, cusolver.EIG_MODE_NOVECTOR, cusolver.CUBLAS_FILL_MODE_LOWER


def made(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    """Return random elements in column-major order."""
    random = np.random.default_rng(11)
    values = random.uniform(-1, 1, shape) + (1j * random.uniform(-1, 1, shape) if dtype in ("c8", "c16") else 0)
    return np.asfortranarray(values.astype(dtype))


def definite(dtype: str, n: int) -> np.ndarray[Any, Any]:
    half = made(dtype, n, n)
    return np.asfortranarray(half @ half.conj().T + np.eye(n, dtype=dtype))


def on_host(name: str) -> Any:
    return solvers.twin("cusolver", name, Device.host())


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_the_64_bit_interface_of_cusolver_is_lapack_of_the_host(dtype: str) -> None:
    A, G, b, c = definite(dtype, 5), made(dtype, 5, 5), made(dtype, 5, 2), made(dtype, 5, 2)
    chol, lu, x, y, tall = A.copy("F"), G.copy("F"), b.copy("F"), c.copy("F"), made(dtype, 6, 4)
    qr, pivots, tau, info = tall.copy("F"), np.zeros(5, np.int64), np.zeros(4, dtype), np.full(1, -1, np.int32)
    lent = offload_args(chol, lu, x, y, qr, pivots, tau, info, device="host")
    with lent as (dchol, dlu, dx, dy, dqr, dpivots, dtau, dinfo):
        on_host("xpotrf")(None, LOWER, 5, dtype, dchol, 5, dtype, dinfo)
        on_host("xpotrs")(None, LOWER, 5, 2, dtype, dchol, 5, dtype, dx, 5, dinfo)
        on_host("xgetrf")(None, 5, 5, dtype, dlu, 5, dpivots, dtype, dinfo)
        on_host("xgetrs")(None, cusolver.CUBLAS_OP_N, 5, 2, dtype, dlu, 5, dpivots, dtype, dy, 5, dinfo)
        on_host("xgeqrf")(None, 6, 4, dtype, dqr, 6, dtype, dtau, dtype, dinfo)
    assert info[0] == 0 and (pivots > 0).all()
    close = {"rtol": 1e-3, "atol": 1e-4} if dtype == "f4" else {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(A @ x, b, **close)
    np.testing.assert_allclose(G @ y, c, **close)
    R = np.triu(qr[:4])
    np.testing.assert_allclose(R.conj().T @ R, tall.conj().T @ tall, **close)


@pytest.mark.parametrize("name", ["xsyevd", "syevj", "syevj_batched", "xsyev_batched"])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_eigenvalues_by_other_methods_are_those_of_syevd(name: str, dtype: str) -> None:
    S = definite(dtype, 4)
    stack = np.array([(S * (number + 1)).T for number in range(3)])  # by columns
    w, info, count = np.zeros((3, 4)), np.full(3, -1, np.int32), 3 if "batched" in name else 1
    vectors = stack.copy()
    with offload_args(vectors, w, info, device="host") as (dA, dw, dinfo):
        if name[0] == "x":
            arguments = [None, V, LOWER, 4, dtype, dA, 4, "f8", dw, dtype, dinfo, *([3] if count > 1 else [])]
        else:
            name = f"{'d' if dtype == 'f8' else 'z'}{'sy' if dtype == 'f8' else 'he'}{name[2:]}"
            arguments = [V, LOWER, 4, dA, 4, dw, dinfo, None, *([3] if count > 1 else [])]
        on_host(name)(*arguments)
    for number in range(count):
        A, columns = stack[number].T, vectors[number].T
        np.testing.assert_allclose(w[number], np.linalg.eigvalsh(A), rtol=1e-10)
        np.testing.assert_allclose(A @ columns, columns * w[number], atol=1e-10)
    assert info[:count].tolist() == [0] * count


@pytest.mark.parametrize("name", ["gesvdj", "xgesvdp", "gesvdj_batched"])
@pytest.mark.parametrize("econ", [0, 1])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_singular_values_by_other_methods_come_with_v_itself(name: str, econ: int, dtype: str) -> None:
    A = made(dtype, 5, 3)
    is_batch = name.endswith("batched")
    count, econ = (2, 0) if is_batch else (1, econ)
    stack = np.array([A.T * (number + 1) for number in range(count)])
    before, s, info = stack.copy(), np.zeros((count, 3)), np.full(count, -1, np.int32)
    columns = 3 if econ else 5
    U, VV = np.zeros((count, columns, 5), dtype), np.zeros((count, 3, 3), dtype)
    with offload_args(stack, s, U, VV, info, device="host") as (dA, ds, dU, dV, dinfo):
        t = "d" if dtype == "f8" else "z"
        if name[0] == "x":
            types = (dtype, dA, 5, "f8", ds, dtype, dU, 5, dtype, dV, 3, dtype)
            on_host(name)(None, V, econ, 5, 3, *types, dinfo)
        elif is_batch:
            on_host(f"{t}{name}")(V, 5, 3, dA, 5, ds, dU, 5, dV, 3, dinfo, None, count)
        else:
            on_host(f"{t}{name}")(V, econ, 5, 3, dA, 5, ds, dU, 5, dV, 3, dinfo, None)
    for number in range(count):
        left, right = U[number].T[:, :3], VV[number].T
        np.testing.assert_allclose(left * s[number] @ right.conj().T, before[number].T, atol=1e-10)
    assert info.tolist() == [0] * count


@pytest.mark.parametrize("name", ["syevdx", "xsyevdx"])
@pytest.mark.parametrize("kind", ["ALL", "I", "V"])
def test_some_eigenvalues_are_found_and_their_number_is_returned(name: str, kind: str) -> None:
    S = definite("f8", 5)
    values = np.linalg.eigvalsh(S)
    vl, vu = (values[0] + values[1]) / 2, (values[3] + values[4]) / 2
    chosen = values if kind == "ALL" else values[1:4]
    vectors, w, info = S.copy("F"), np.zeros(5), np.full(1, -1, np.int32)
    which = getattr(cusolver, f"EIG_RANGE_{kind}")
    with offload_args(vectors, w, info, device="host") as (dA, dw, dinfo):
        if name[0] == "x":
            arguments = [None, V, which, LOWER, 5, "f8", dA, 5, vl, vu, 2, 4, "f8", dw, "f8", dinfo]
        else:
            arguments = [V, which, LOWER, 5, dA, 5, vl, vu, 2, 4, dw, dinfo]
        count = on_host(name if name[0] == "x" else f"d{name}")(*arguments)
    assert (count, info[0]) == (len(chosen), 0)
    np.testing.assert_allclose(w[:count], chosen, rtol=1e-10)
    np.testing.assert_allclose(S @ vectors[:, :count], vectors[:, :count] * chosen, atol=1e-10)


@pytest.mark.parametrize("form", ["two parts", "complex values", "complex matrix", "lapacke"])
def test_eigenvalues_of_a_general_matrix_are_lapacks(form: str) -> None:
    dtype = "c16" if form == "complex matrix" else "f8"
    G, values = made(dtype, 5, 5), np.zeros(10, "f8" if form == "two parts" else "c16")
    right, info, parts = np.zeros((5, 5), dtype, "F"), np.full(1, -1, np.int32), np.zeros((2, 5))
    A = G.copy("F")
    with offload_args(A, values, right, info, parts, device="host") as (dA, dw, dR, dinfo, dparts):
        if form == "lapacke":
            jobs = lapacke.COL_MAJOR, lapacke.JOB_N, lapacke.JOB_V
            arguments = *jobs, 5, dA, 5, dparts[0], dparts[1], None, 5, dR, 5, None, 0
            solvers.twin("lapacke", "dgeev", Device.host())(*arguments)
        else:
            types = dtype, dA, 5, "", dw, dtype, None, 5, dtype, dR, 5, dtype
            on_host("xgeev")(None, N, V, 5, *types, dinfo)
    w = {"two parts": values[:5] + 1j * values[5:], "lapacke": parts[0] + 1j * parts[1]}.get(form, values[:5])
    np.testing.assert_allclose(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(G)), rtol=1e-10)
    assert np.abs(right).max() > 0.1


def test_calls_of_cusolver_with_settings_replay_on_the_host(tmp_path: Path) -> None:
    S, w, info = definite("f8", 4), np.zeros(4), np.zeros(1, np.int32)
    with record(tmp_path / "r"), offload_args(S, w, info, device="host") as (dS, dw, dinfo):
        lapacke.dpotrf(lapacke.COL_MAJOR, lapacke.LOWER, 4, dS, 4)
    events = events_of(tmp_path / "r")
    rows = {row["name"]: {"p": row["pointer"]} for event in events if "enter" in event for row in event["arrays"]}
    setting, end = {"object": 1, "kind": "SyevjInfo"}, {"at": 0, "thread": 1}
    position = next(position for position, event in enumerate(events) if "call" in event)
    events[position : position + 1] = [
        {"call": "cusolver.create_syevj_info", "args": [], "result": setting, **end},
        {"call": "cusolver.xsyevj_set_tolerance", "args": [setting, 1e-9], **end},
        {"call": "cusolver.dsyevj", "args": [V, LOWER, 4, rows["S"], 4, rows["w"], rows["info"], setting], **end},
    ]
    for event in events:
        if "enter" in event:
            event["device"] = "cuda:7"
    for device in ("host", "sim:0"):
        again = Replay(Device(device), True, 1, None)
        report = again.run(tmp_path / "r", events)
        assert (report.calls, report.skipped, report.failures, report.differences) == (1, {}, [], [])
        assert report.compared == (device == "sim:0") and again.arrays["w"].min() > 0


def test_functions_of_cusolver_recorded_on_a_gpu_replay_on_every_device(tmp_path: Path) -> None:
    device = open_or_skip("cuda:0")
    if Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double does not factor")
    S, G, b, tall = definite("f8", 5), made("f8", 5, 5), made("f8", 5, 2), made("f8", 6, 4)
    chol, jacobi, some = S.copy("F"), S.copy("F"), S.copy("F")
    pivots, info, w, s = np.zeros(5, np.int64), np.zeros(1, np.int32), np.zeros((3, 5)), np.zeros(4)
    U, VV = np.zeros((6, 4), order="F"), np.zeros((4, 4), order="F")
    lent = offload_args(S, G, b, tall, chol, jacobi, some, pivots, info, w, s, U, VV, device=device)
    with record(tmp_path / "r", contents="inputs"), lent as pointers:
        dS, dG, db, dtall, dchol, djacobi, dsome, dpivots, dinfo, dw, ds, dU, dV = pointers
        with cusolver.create_params() as params:
            cusolver.xpotrf(params, LOWER, 5, "f8", dchol, 5, "f8", dinfo)
            cusolver.xgetrf(params, 5, 5, "f8", dG, 5, dpivots, "f8", dinfo)
            cusolver.xgetrs(params, cusolver.CUBLAS_OP_N, 5, 2, "f8", dG, 5, dpivots, "f8", db, 5, dinfo)
            cusolver.xsyevd(params, V, LOWER, 5, "f8", dS, 5, "f8", dw[0], "f8", dinfo)
        with cusolver.create_syevj_info() as settings:
            cusolver.xsyevj_set_tolerance(settings, 1e-12)
            cusolver.dsyevj(V, LOWER, 5, djacobi, 5, dw[1], dinfo, settings)
        with cusolver.create_gesvdj_info() as settings:
            cusolver.dgesvdj(V, 1, 6, 4, dtall, 6, ds, dU, 6, dV, 4, dinfo, settings)
        assert cusolver.dsyevdx(V, cusolver.EIG_RANGE_I, LOWER, 5, dsome, 5, 0.0, 0.0, 2, 4, dw[2], dinfo) == 3
    for name in (device, "host", "sim:0"):
        report = replay(tmp_path / "r", device=Device(name), compare=True)
        assert (report.skipped, report.failures, report.differences) == ({}, [], [])
        assert report.calls >= 7


def systems(dtype: str, count: int) -> Arrays:
    random = np.random.default_rng(5)
    G = random.uniform(-1, 1, (count, 4, 4)).astype(dtype)
    if G.dtype.kind == "c":
        G += 1j * random.uniform(-1, 1, G.shape)
    definite = G @ G.conj().transpose(0, 2, 1) + np.eye(4)
    return {"G": G, "S": definite.astype(dtype), "B": random.uniform(-1, 1, (count, 4)).astype(dtype)}


@pytest.mark.parametrize("form", ["lists", "stacks", "strides"])
def test_a_batch_of_factors_is_calls_one_after_the_other(form: str) -> None:
    """Each matrix of the batch is read by columns, which gives its transpose."""
    arrays = systems("f8", 3)
    G, S, B = (arrays[key].copy() for key in "GSB")
    pivots, infos, inverse, tau = (
        np.zeros((3, 4), np.int32),
        np.full(3, -1, np.int32),
        np.zeros((3, 4, 4)),
        np.zeros((3, 4)),
    )
    Q = arrays["G"].copy()
    host = Device.host()
    with offload_args(G, S, B, pivots, infos, inverse, tau, Q, device="host") as (g, s, b, p, i, inv, t, q):
        if form == "strides":
            solvers.twin("rocsolver", "dgetrf_strided_batched", host)(4, 4, g, 4, 16, p, 4, i, 3)
            solvers.twin("rocsolver", "dgetrs_strided_batched", host)(
                rocsolver.operation_transpose, 4, 1, g, 4, 16, p, 4, b, 4, 4, 3
            )
            solvers.twin("rocsolver", "dpotrf_strided_batched", host)(rocsolver.fill_upper, 4, s, 4, 16, i, 3)
            solvers.twin("rocsolver", "dgeqrf_strided_batched", host)(4, 4, q, 4, 16, t, 4, 3)
        else:

            def batch(pointer: Any) -> Any:
                return [pointer[at] for at in range(3)] if form == "lists" else pointer

            flat = p if form == "stacks" else p.offset(0)
            solvers.twin("cublas", "dgetrf_batched", host)(4, batch(g), 4, flat, i, 3)
            solvers.twin("cublas", "dgetrs_batched", host)(cublas.OP_T, 4, 1, batch(g), 4, flat, batch(b), 4, 3)
            solvers.twin("cublas", "dgetri_batched", host)(4, batch(g), 4, flat, batch(inv), 4, i, 3)
            solvers.twin("cusolver", "dpotrf_batched", host)(cusolver.CUBLAS_FILL_MODE_UPPER, 4, batch(s), 4, i, 3)
            solvers.twin("cublas", "dgeqrf_batched", host)(4, 4, batch(q), 4, batch(t), 3)
    assert infos.tolist() == [0, 0, 0] and (pivots > 0).all() and (tau[:, :3] != 0).all()
    for at in range(3):
        np.testing.assert_allclose(arrays["G"][at] @ B[at], arrays["B"][at], atol=1e-12)
        np.testing.assert_allclose(np.tril(S[at]) @ np.tril(S[at]).T, arrays["S"][at], atol=1e-12)
        R = np.tril(Q[at])
        np.testing.assert_allclose(R @ R.T, arrays["G"][at] @ arrays["G"][at].T, atol=1e-12)
        if form != "strides":
            np.testing.assert_allclose(inverse[at] @ arrays["G"][at], np.eye(4), atol=1e-12)


def test_a_batch_without_pivots_is_named() -> None:
    with offload_args(np.ones((2, 3, 3)), np.zeros(2, np.int32), device="host") as (g, i):
        with pytest.raises(
            solvers.NoTwinError, match="cublas.dgetrf_batched has no counterpart on host without pivots"
        ):
            solvers.twin("cublas", "dgetrf_batched", Device.host())(3, g, 3, None, i, 2)


def solve_all(dtype: str, device: str) -> list[str]:
    """Solve systems of each kind; return the names of the arrays with a unique right value."""
    count = systems(dtype, 3)
    (G, S, B), is_complex = count.values(), np.dtype(dtype).kind == "c"
    real = np.dtype(dtype).char.lower()
    chol, lu, square, tall = (np.asfortranarray(M) for M in (S[0], G[0], G[1], G.reshape(12, 4)[:7]))
    x1, x2, x3, x4 = B[0].copy(), B[1].copy(), B[2].copy(), np.asfortranarray(np.ones((7, 2), dtype))
    p1, p2, tau, ps = np.zeros(4, "i4"), np.zeros(4, "i4"), np.zeros(4, dtype), np.zeros((3, 4), "i4")
    with offload_args(chol, lu, square, x1, x2, x3, p1, p2, device=device) as (dc, dl, ds, d1, d2, d3, q1, q2):
        lapack.potrf(dc, uplo="L")
        lapack.potrs(dc, d1, uplo="L")
        lapack.getrf(dl, q1)
        lapack.getrs(dl, q1, d2, trans="T")
        lapack.gesv(ds, q2, d3)
        lapack.getri(dl, q1)
    Q, R, x5 = tall.copy("F"), tall.copy("F"), x4.copy("F")
    with offload_args(Q, tau, x4, R, x5, device=device) as (dQ, dt, d4, dR, d5):
        lapack.geqrf(dQ, dt)
        lapack.ormqr(dQ, dt, d4, trans="C" if is_complex else "T")
        (lapack.ungqr if is_complex else lapack.orgqr)(dQ, dt)
        lapack.gels(dR, d5)
    w, s = np.zeros(4, real), np.zeros(4, real)
    with offload_args(S[1], tall, w, s, device=device) as (dS, dT, dw, dsv):
        (lapack.heevd if is_complex else lapack.syevd)(dS, dw, jobz="N")
        lapack.gesvd(dT, dsv)
    with offload_args(G, B, ps, device=device) as (dG, dB, dp):
        lapack.getrf(dG, dp)
        lapack.getrs(dG, dp, dB)
    return ["x1", "x2", "x3", "x5", "lu", "p1", "w", "s", "B", "ps"]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_solvers_recorded_on_a_device_replay_on_every_other(device: str, dtype: str, tmp_path: Path) -> None:
    with record(tmp_path / "r", contents="inputs"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = solve_all(dtype, device)
    events = events_of(tmp_path / "r")
    for event in events:  # replays would start each region with these
        if "leave" in event:
            event["arrays"] = {}
    original = Replay(Device(device), False, 1, None)
    original.run(tmp_path / "r", events)
    for on in dict.fromkeys((device, "host", "sim:0")):
        again = Replay(Device(on), False, 1, None)
        report = again.run(tmp_path / "r", events)
        assert (report.skipped, report.failures) == ({}, [])
        for name in names:
            np.testing.assert_allclose(again.arrays[name], original.arrays[name], rtol=1e-3, atol=1e-3)
        report = replay(tmp_path / "r", device=Device(on), compare=True)
        assert (report.skipped, report.failures, report.differences) == ({}, [], [])


def test_a_check_that_makes_no_call_is_not_recorded(tmp_path: Path) -> None:
    arrays = systems("f8", 3)
    G, pivots = arrays["G"], np.zeros((3, 4), np.int32)
    with record(tmp_path / "r"), offload_args(G, pivots, device="host") as (dG, dp):
        lapack.getrf(dG, dp)
        lapack.getri(dG, dp)
    assert not any("error" in event for event in events_of(tmp_path / "r"))
    assert replay(tmp_path / "r", device=Device("host")).is_good


#: Calls with results that can be checked without another library.
JUDGED = sorted(name for name in CALLS if solvers.routine_of(name) in solved._RESIDUALS)


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("name", JUDGED)
def test_a_call_that_did_not_solve_what_it_was_given_is_told(name: str, is_wrong: bool) -> None:
    expected: list[Any] = []
    library = "cusolver" if name in core.routine_names("cusolver") else "rocsolver"

    def make(*arguments: Any) -> int:
        def call(values: list[Any], other: str) -> Any:
            return solvers.twin(library, name, Device.host())(*values)

        expected.append(solved.expect(library, name, list(arguments), call, Device.host()))
        info = solvers.twin(library, name, Device.host())(*arguments)
        if is_wrong:
            operands = solvers.operands_of(library, name, arguments)
            wrong = next(operands[key] for key in ("s", "w", "C", "B", "A") if key in operands)
            wrong[:1].assign(wrong[:1].to_host() + (0.1 if name[0] == "c" else 1e-8))
        expected.append(expected[0].difference(None, []))
        return info

    arrays = arrays_of(name)
    run(library, name, make, arrays)
    assert (expected[1] is not None) == is_wrong, expected[1]
