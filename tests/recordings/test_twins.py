"""Calls of one vendor's library are translated to another vendor's: row-major order, batches, and other forms."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from recordings.files import events_of, rewritten

from offload_args import Device, cblas, offload_args, record
from offload_args import cublas as cublas_names
from offload_args.recording import twins
from offload_args.recording.replay import Replay, replay

RANDOM = np.random.default_rng(7)


def lent(*arrays: np.ndarray[Any, Any]) -> Any:
    return offload_args(*arrays, device="host")


#: A call in row-major order for each family: the routine and the arguments after the order, with names for arrays.
R, C = cblas.RowMajor, cblas.ColMajor
N, T, H, UP, LOW, LEFT, RIGHT, NON = (
    cblas.NoTrans, cblas.Trans, cblas.ConjTrans, cblas.Upper, cblas.Lower, cblas.Left, cblas.Right, cblas.NonUnit,
)  # fmt: skip
ROW_MAJOR: dict[str, tuple[Any, ...]] = {
    "dgemm": (N, T, 3, 4, 5, 2.0, "A", 6, "B", 7, 0.5, "C", 8),
    "zgemm": (H, N, 3, 4, 5, 2.0, "A", 6, "B", 7, 0.5, "C", 8),
    "dgemv": (H, 3, 4, 2.0, "A", 6, "x", 1, 0.5, "y", 2),
    "dgbmv": (N, 5, 4, 1, 2, 2.0, "A", 6, "x", 1, 0.5, "y", 2),
    "dger": (3, 4, 2.0, "x", 1, "y", 2, "A", 6),
    "zgeru": (3, 4, 2.0, "x", 1, "y", 2, "A", 6),
    "zhemm": (LEFT, UP, 3, 4, 2.0, "A", 6, "B", 7, 0.5, "C", 8),
    "dsymm": (RIGHT, LOW, 3, 4, 2.0, "A", 6, "B", 7, 0.5, "C", 8),
    "ztrmm": (LEFT, UP, H, NON, 3, 4, 2.0, "A", 6, "B", 7),
    "dtrsm": (RIGHT, LOW, N, NON, 3, 4, 2.0, "A", 6, "B", 7),
    "dsyrk": (UP, T, 3, 4, 2.0, "A", 6, 0.5, "C", 8),
    "zherk": (UP, H, 3, 4, 2.0, "A", 6, 0.5, "C", 8),
    "zher2k": (LOW, N, 3, 4, 2.0 + 1j, "A", 6, "B", 7, 0.5, "C", 8),
    "dtrmv": (UP, N, NON, 4, "A", 6, "x", 1),
    "dtpsv": (LOW, T, NON, 4, "A", "x", 1),
    "dsymv": (UP, 4, 2.0, "A", 6, "x", 1, 0.5, "y", 2),
    "dspr2": (LOW, 4, 2.0, "x", 1, "y", 2, "A"),
}


def arrays_of(name: str) -> dict[str, np.ndarray[Any, Any]]:
    dtype = {"d": "f8", "z": "c16"}[name[0]]
    sizes = {"A": 60, "B": 60, "C": 60, "x": 12, "y": 24}
    return {key: (1 + RANDOM.random(size) + (1j * RANDOM.random(size) if dtype == "c16" else 0)).astype(dtype)
            for key, size in sizes.items()}  # fmt: skip


@pytest.mark.parametrize("name", ROW_MAJOR)
def test_a_row_major_call_is_a_column_major_one_of_the_transposes(name: str) -> None:
    results = []
    arrays = arrays_of(name)
    for is_turned in (False, True):
        own = {key: array.copy() for key, array in arrays.items()}
        with lent(*own.values()) as pointers:
            places = dict(zip(own, pointers, strict=True))
            arguments = [places[value] if isinstance(value, str) else value for value in ROW_MAJOR[name]]
            if is_turned:
                parameters = [twins._plain(row[1]) for row in twins._core.record("cblas", name)][1:]
                values = twins._turned(name, dict(zip(parameters, arguments, strict=True)), Device.host())
                arguments = list(values.values())
            getattr(cblas, name)(C if is_turned else R, *arguments)
        results.append(own)
    assert any(not np.array_equal(results[0][key], array) for key, array in arrays.items())
    for key in arrays:
        np.testing.assert_allclose(results[1][key], results[0][key], rtol=1e-12)


@pytest.mark.parametrize(("name", "arguments"), [
    ("zgemv", (H, 3, 4, 2.0, "A", 6, "x", 1, 0.5, "y", 2)),
    ("zgerc", (3, 4, 2.0, "x", 1, "y", 2, "A", 6)),
    ("zhemv", (UP, 4, 2.0, "A", 6, "x", 1, 0.5, "y", 2)),
])  # fmt: skip
def test_a_row_major_call_without_such_a_form_is_named(name: str, arguments: tuple[Any, ...]) -> None:
    parameters = [twins._plain(row[1]) for row in twins._core.record("cblas", name)][1:]
    with pytest.raises(twins.NoTwinError, match=rf"cblas.{name} in row-major order has no counterpart on host"):
        twins._turned(name, dict(zip(parameters, arguments, strict=True)), Device.host())


@pytest.mark.parametrize("library", ["cublas", "rocblas"])
@pytest.mark.parametrize("in_place", [False, True])
def test_trmm_of_gpus_is_a_copy_and_cblas_own(library: str, in_place: bool) -> None:
    arrays = arrays_of("dtrmm")
    A, B, to = (arrays[key] for key in "ABC")
    expected = B.copy() if in_place else to.copy()
    triangle = np.triu(A.reshape(10, 6).T[:3, :3])
    step = 7 if in_place else 8
    for column in range(4):
        expected[column * step : column * step + 3] = 2 * triangle @ B[column * 7 : column * 7 + 3]
    with lent(A, B, to) as (dA, dB, dC):
        names = twins._CONSTANTS[library]
        side, uplo, trans, diag = (twins._value(library, names[at].split()[0]) for at in (2, 1, 0, 3))
        target = (dB, 7) if in_place else (dC, 8)
        routine, passed, _ = twins.twin(
            library, "dtrmm", [side, uplo, trans, diag, 3, 4, 2.0, dA, 6, dB, 7, *target], Device.host()
        )
        routine(*passed)
    np.testing.assert_allclose(B if in_place else to, expected, rtol=1e-12)


@pytest.mark.parametrize("library", ["cublas", "rocblas"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("op_a", "op_b"), [(0, 0), (1, 2), (2, 1)])
@pytest.mark.parametrize("beta", [0.0, 2.0 - 1.0j])
def test_sums_of_matrices_are_computed_for_the_host(
    library: str, in_place: bool, op_a: int, op_b: int, beta: complex
) -> None:
    m, n = (4, 4) if in_place else (3, 4)
    A, B, to = (RANDOM.random((5, 6)) + 1j * RANDOM.random((5, 6)) for _ in range(3))  # by columns: gaps of 2
    if beta == 0:
        B[...] = np.nan

    def operated(X: Any, op: int) -> Any:
        part = X.T[: (n if op else m), : (m if op else n)]
        return (part, part.T, part.conj().T)[op]

    expected = 3j * operated(A, 0 if in_place else op_a) + (beta * operated(B, op_b) if beta else 0)
    target = A if in_place else to
    before, ops = target.copy(), twins._CONSTANTS[library][0].split()
    with lent(A, B, to) as (dA, dB, dC):
        first, second = twins._value(library, ops[0 if in_place else op_a]), twins._value(library, ops[op_b])
        arguments = [first, second, m, n, 3j, dA, 6, beta, dB, 6, dA if in_place else dC, 6]
        routine, passed, _ = twins.twin(library, "zgeam", arguments, Device.host())
        routine(*passed)
    np.testing.assert_allclose(target.T[:m, :n], expected, rtol=1e-12)
    before.T[:m, :n] = target.T[:m, :n]
    assert np.array_equal(target, before, equal_nan=True)


@pytest.mark.parametrize("form", ["lists", "strides"])
def test_a_batch_of_gpus_is_calls_of_cblas_one_after_the_other(form: str) -> None:
    A, B, to = RANDOM.random((4, 3, 3)), RANDOM.random((4, 3, 3)), np.zeros((4, 3, 3))
    n = cublas_names.OP_N
    with lent(A, B, to) as (dA, dB, dC):
        if form == "lists":
            parts = [[pointer[i] for i in range(4)] for pointer in (dA, dB, dC)]
            name, rest = "dgemm_batched", [parts[1], 3, parts[0], 3, 0.0, parts[2], 3, 4]
        else:
            name, rest = "dgemm_strided_batched", [dB, 3, 9, dA, 3, 9, 0.0, dC, 3, 9, 4]
        routine, passed, _ = twins.twin("cublas", name, [n, n, 3, 3, 3, 1.0, *rest], Device.host())
        routine(*passed)
    np.testing.assert_allclose(to, A @ B, rtol=1e-12)


def test_rotmg_of_gpus_is_that_of_blas_and_calls_without_pointers_are_made_as_they_are() -> None:
    values = [np.ones(1), np.ones(1), np.array([4.0]), np.array([2.0]), np.zeros(5)]
    with lent(*values) as pointers:
        routine, passed, _ = twins.twin("rocblas", "drotmg", list(pointers), Device.host())
        routine(*passed)
    assert values[2] == 5
    assert twins.twin("cblas", "drotmg", [1.0, 1.0, 4.0, 2.0, None], Device("sim:0"))[0] is cblas.drotmg


def test_forms_of_cblas_recorded_on_host_replay_on_each_device(device: str, tmp_path: Path) -> None:
    A, B, to, x, y = np.eye(5) + 0.1, RANDOM.random((5, 4)), np.zeros((5, 4)), np.ones(4), np.ones(5)
    with record(tmp_path / "r"), lent(A, B, to, x, y) as (dA, dB, dC, dx, dy):
        cblas.dgemm(R, N, N, 5, 4, 5, 1.0, dA, 5, dB, 4, 0.0, dC, 4)
        cblas.dgemv(R, N, 5, 4, 1.0, dB, 4, dx, 1, 0.0, dy, 1)
        cblas.dtrmm(R, LEFT, UP, N, NON, 5, 4, 1.0, dA, 5, dB, 4)
        cblas.dtrmm(C, LEFT, UP, N, NON, 4, 4, 1.0, dA, 5, dB, 4)
    report = replay(tmp_path / "r", device=Device(device), compare=True)
    assert (report.calls, report.skipped, report.failures, report.differences) == (4, {}, [], [])
    assert report.compared == (0 if device == "host" else 4)


def test_forms_of_a_devices_library_replay_on_host(device: str, library: ModuleType, tmp_path: Path) -> None:
    A, B, to = np.eye(4) + 0.1, np.ones((3, 4, 4)), np.zeros((3, 4, 4))
    constants = twins._CONSTANTS[library.__name__.rpartition(".")[2]]
    none, upper, left, non_unit = (getattr(library, names.split()[0]) for names in constants)
    count = 0
    with record(tmp_path / "r"), offload_args(A, B, to, device=device) as (dA, dB, dC):
        if library is cblas:
            library.dtrmm(C, left, upper, none, non_unit, 4, 4, 1.0, dA, 4, dB[0], 4)
            count = 1
        else:
            library.dtrmm(left, upper, none, non_unit, 4, 4, 1.0, dA, 4, dB[0], 4, dC[0], 4)
            library.dgemm_strided_batched(none, none, 4, 4, 4, 1.0, dB, 4, 16, dA, 4, 0, 0.0, dC, 4, 16, 3)
            count = 2
    for on in (device, "host"):
        report = replay(tmp_path / "r", device=Device(on), compare=True)
        assert (report.calls, report.skipped, report.failures, report.differences) == (count, {}, [], [])


@pytest.mark.parametrize("library", ["cublas", "rocblas"])
def test_indices_of_gpus_count_from_one_and_those_of_cblas_from_zero(library: str, tmp_path: Path) -> None:
    x = np.array([1.0, -5, 2, 3])
    with record(tmp_path / "r", contents="inputs"), offload_args(x, device="host") as (dx,):
        assert cblas.idamax(4, dx, 1) == 1
    events = events_of(tmp_path / "r")
    for event in events:
        if "enter" in event:
            event["device"] = "cuda:7" if library == "cublas" else "hip:7"
        if "call" in event:
            event |= {"call": f"{library}.idamax", "result": 2}
    rewritten(tmp_path / "r", events)
    again = Replay(Device("host"), True, 1, None)
    assert again.run(tmp_path / "r").is_good and again.results == [2]
