"""LAPACK of unmodified programs: its results, its info and its refusals are the same when calls go to a device."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import blas as fortran
from scipy.linalg import lapack

import offload_args
from offload_args import _core, accelerate, testing

DTYPES = ("f4", "f8", "c8", "c16")
LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}
RTOL = {"f4": 2e-3, "c8": 2e-3, "f8": 1e-10, "c16": 1e-10}


@pytest.fixture(autouse=True)
def nothing_stays_on() -> Iterator[None]:
    yield
    assert _core.accelerate_query() == (0, 0)


@pytest.fixture
def solver(device: str) -> str:
    """A device that has LAPACK; AMD's GPUs have none in this build."""
    if device.startswith("hip"):
        pytest.skip("device unavailable: this build has no LAPACK for it")
    return device


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def positive(n: int, dtype: str) -> np.ndarray:
    A = numbers((n, n), dtype)
    return np.asarray(A @ A.conj().T + n * np.eye(n), dtype)


def agree(result: Any, expected: Any, dtype: str) -> None:
    assert len(result) == len(expected)
    for actual, other in zip(result, expected, strict=True):
        actual, other = np.asarray(actual), np.asarray(other)
        assert actual.dtype == other.dtype and actual.shape == other.shape
        scale = np.abs(other).max(initial=1)
        np.testing.assert_allclose(actual, other, rtol=0, atol=RTOL[dtype] * scale)


def both(device: str, call: Callable[[], Any], *went: str) -> tuple[Any, Any]:
    """Return the results of a call without and with a device.

    Exactly the routines `went` must have gone to the device.
    """
    expected = call()
    with accelerate(device, margin=0) as on:
        result = call()
    fates = {row.routine: (row.gone, row.refused) for row in on.report.rows}
    for routine in went:
        assert fates.get(routine, (0, {}))[0] >= 1, (on.report, on.report.failure)
    return result, expected


def test_a_device_without_lapack_has_the_rest(device: str) -> None:
    A = positive(20, "f8")
    with accelerate(device, margin=0) as on:
        agree([np.linalg.cholesky(A), A @ (A + 1)], [np.linalg.cholesky(A), A @ (A + 1).copy()], "f8")
    fates = {row.routine: row.gone for row in on.report.rows}
    assert fates["dgemm"] == 2
    if device.startswith("hip"):
        assert "calls of LAPACK stay on the CPU: " in on.report.lapack and fates["dcholesky"] == 0
    else:
        assert not on.report.note and fates["dcholesky"] == 2


# -- each routine ------------------------------------------------------------------------------------------------------


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_of_equations(solver: str, dtype: str) -> None:
    t, A, B = LETTERS[dtype], numbers((23, 23), dtype), numbers((23, 5), dtype, 1)
    agree(*both(solver, lambda: getattr(lapack, f"{t}gesv")(A, B), f"{t}gesv"), dtype)
    lu, piv, _ = getattr(lapack, f"{t}getrf")(A)
    agree(*both(solver, lambda: getattr(lapack, f"{t}getrf")(A[:, :17]), f"{t}getrf"), dtype)
    agree(*both(solver, lambda: getattr(lapack, f"{t}getrf")(A[:17]), f"{t}getrf"), dtype)
    for trans in range(3):
        agree(*both(solver, lambda: getattr(lapack, f"{t}getrs")(lu, piv, B, trans), f"{t}getrs"), dtype)  # noqa: B023
    agree(*both(solver, lambda: getattr(lapack, f"{t}getri")(lu, piv, lwork=23 * 8), f"{t}getri"), dtype)


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [0, 1])
def test_positive_definite_and_triangular_matrices(solver: str, dtype: str, lower: int) -> None:
    t, A, B = LETTERS[dtype], positive(23, dtype), numbers((23, 5), dtype, 1)
    for clean in (0, 1):
        call = getattr(lapack, f"{t}potrf")
        agree(*both(solver, lambda: call(A, lower, clean), f"{t}potrf"), dtype)  # noqa: B023
    factor = call(A, lower, 0)[0]
    agree(*both(solver, lambda: getattr(lapack, f"{t}potrs")(factor, B, lower), f"{t}potrs"), dtype)
    agree(*both(solver, lambda: getattr(lapack, f"{t}potri")(factor, lower), f"{t}potri"), dtype)
    for unit in (0, 1):
        call = getattr(lapack, f"{t}trtri")
        went = [] if unit else [f"{t}trtri"]  # cuSOLVER's writes ones to a unit diagonal, so the CPU makes it
        agree(*both(solver, lambda: call(factor / 3, lower, unit), *went), dtype)  # noqa: B023
        for trans in range(3):
            call = getattr(lapack, f"{t}trtrs")
            result = both(solver, lambda: call(factor / 3, B, lower, trans, unit), f"{t}trtrs")  # noqa: B023
            agree(*result, dtype)


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(31, 17), (17, 31)])
def test_qr(solver: str, dtype: str, shape: tuple[int, int]) -> None:
    t, A = LETTERS[dtype], numbers(shape, dtype)
    q = "or" if t in "sd" else "un"
    agree(*both(solver, lambda: getattr(lapack, f"{t}geqrf")(A)[:2], f"{t}geqrf"), dtype)
    a, tau, _, _ = getattr(lapack, f"{t}geqrf")(A)
    tall = a[:, : min(shape)]
    agree(*both(solver, lambda: getattr(lapack, f"{t}{q}gqr")(tall, tau)[:1], f"{t}{q}gqr"), dtype)
    for side, C in ("L", numbers((shape[0], 7), dtype)), ("R", numbers((7, shape[0]), dtype)):
        for trans in "N", "T" if t in "sd" else "C":
            call = getattr(lapack, f"{t}{q}mqr")
            result = both(solver, lambda: call(side, trans, tall, tau, C, 4096)[:1], f"{t}{q}mqr")  # noqa: B023
            agree(*result, dtype)


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("junk", [np.nan, np.inf, 3])
def test_orgqr_does_not_read_the_columns_beyond_its_reflectors(solver: str, dtype: str, junk: float) -> None:
    """The columns that scipy.linalg.qr adds to a tall matrix for all of Q have the former values of their memory."""
    t = LETTERS[dtype]
    q = "or" if t in "sd" else "un"
    a, tau, _, _ = getattr(lapack, f"{t}geqrf")(numbers((31, 17), dtype))
    for columns in (31, 20):
        wide = np.full((31, columns), junk, dtype, order="F")
        wide[:, :17] = a
        Q, expected = both(solver, lambda A=wide: getattr(lapack, f"{t}{q}gqr")(A, tau)[:1], f"{t}{q}gqr")
        agree(Q, expected, dtype)
        assert np.isfinite(Q[0]).all()


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", "LU")
def test_eigenvalues(solver: str, dtype: str, uplo: str) -> None:
    """NumPy calls syevd, and SciPy calls syevr; the signs of vectors are arbitrary."""
    t, A = LETTERS[dtype], numbers((23, 23), dtype)
    A = A + A.conj().T
    name = "sy" if t in "sd" else "he"
    driver = {"lower": uplo == "L", "driver": "evr"}
    agree(*both(solver, lambda: [scipy.linalg.eigh(A, eigvals_only=True, **driver)], f"{t}{name}evr"), dtype)
    agree(*both(solver, lambda: [scipy.linalg.eigh(A, eigvals_only=True, driver="evd")], f"{t}{name}evd"), dtype)
    for call, routine in (
        (lambda: scipy.linalg.eigh(A, **driver), f"{t}{name}evr"),
        (lambda: scipy.linalg.eigh(A, lower=uplo == "L", driver="evd"), f"{t}{name}evd"),
    ):
        (w, V), (expected, _) = both(solver, call, routine)
        agree([w, (V * w) @ V.conj().T, V.conj().T @ V], [expected, A, np.eye(23, dtype=dtype)], dtype)


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(31, 17), (17, 31), (20, 20)])
def test_singular_values(solver: str, dtype: str, shape: tuple[int, int]) -> None:
    """A wide matrix is transposed on a GPU."""
    A, t = numbers(shape, dtype), LETTERS[dtype]
    agree(*both(solver, lambda: [scipy.linalg.svd(A, compute_uv=False)], f"{t}gesdd"), dtype)
    for full in (False, True):
        result, expected = both(solver, lambda: scipy.linalg.svd(A, full_matrices=full), f"{t}gesdd")  # noqa: B023
        U, s, VT = result
        k = min(shape)
        agree([s, U[:, :k] * s @ VT[:k]], [expected[1], A], dtype)
        for Q, other in (U, expected[0]), (VT.conj().T, expected[2].conj().T):
            assert Q.shape == other.shape
            agree([Q.conj().T @ Q], [np.eye(Q.shape[1], dtype=dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_least_squares(solver: str, dtype: str) -> None:
    """Checked are the residuals for a full rank, and the rank and the solution of least norm for a lower rank."""
    A, B, t = numbers((41, 13), dtype), numbers((41, 3), dtype, 1), LETTERS[dtype]
    agree(*both(solver, lambda: scipy.linalg.lstsq(A, B), f"{t}gelsd"), dtype)
    A[:, 3] = 2 * A[:, 5]
    result, expected = both(solver, lambda: scipy.linalg.lstsq(A, B, cond=1e-4), f"{t}gelsd")
    assert result[2] == expected[2] == 12
    agree([result[0], result[3]], [expected[0], expected[3]], dtype)
    wide, _ = both(solver, lambda: scipy.linalg.lstsq(A[:9], B[:9]))
    agree(wide, scipy.linalg.lstsq(A[:9], B[:9]), dtype)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_numpys_own_functions(solver: str, dtype: str) -> None:
    """NumPy's wheels have integers of 64 bits, and names that end in _64_. Loops of some functions go as a whole."""
    A, B, S, T = numbers((19, 19), dtype), numbers((19, 4), dtype, 1), positive(19, dtype), numbers((30, 8), dtype)
    t = LETTERS[dtype]
    agree(*both(solver, lambda: [np.linalg.solve(A, B)], f"{t}solve"), dtype)
    agree(*both(solver, lambda: [np.linalg.solve(np.asfortranarray(A), B)], f"{t}gesv"), dtype)
    agree(*both(solver, lambda: [np.linalg.inv(A)], f"{t}inv"), dtype)
    agree(*both(solver, lambda: [np.linalg.det(A)], f"{t}getrf"), dtype)
    agree(*both(solver, lambda: [np.linalg.cholesky(S)], f"{t}cholesky"), dtype)
    agree(*both(solver, lambda: [np.linalg.eigvalsh(S)], f"{t}eigvalsh"), dtype)
    agree(*both(solver, lambda: [np.linalg.svd(T, compute_uv=False)], f"{t}svd"), dtype)
    agree(*both(solver, lambda: np.linalg.lstsq(T, numbers((30, 2), dtype), rcond=None), f"{t}lstsq"), dtype)
    agree(*both(solver, lambda: np.linalg.qr(T), f"{t}qr", f"{t}qr_q"), dtype)
    F = np.asfortranarray(T)
    agree(*both(solver, lambda: np.linalg.lstsq(F, numbers((30, 2), dtype), rcond=None), f"{t}gelsd"), dtype)
    agree(*both(solver, lambda: np.linalg.qr(F), f"{t}geqrf"), dtype)
    agree(*both(solver, lambda: [np.linalg.solve(np.stack([A, S]), B)], f"{t}gesv"), dtype)


# -- calls that stay on the CPU ----------------------------------------------------------------------------------------


def refusals(on: Any) -> dict[str, int]:
    return {reason: count for row in on.report.rows for reason, count in row.refused.items()}


def test_a_matrix_that_can_not_be_factored_is_the_cpus_to_refuse(solver: str) -> None:
    """If info > 0, the device's results don't come down, and the CPU reports the pivot."""
    bad = positive(20, "f8")
    bad[11, 11] = -5
    singular = numbers((20, 20), "f8")
    singular[:, 7] = 0
    calls: list[Callable[[], Any]] = [
        lambda: lapack.dpotrf(bad, 1, 0),
        lambda: lapack.dgesv(singular, np.ones((20, 2))),
        lambda: lapack.dgetrf(singular),
        lambda: lapack.dgetri(*lapack.dgetrf(singular)[:2]),
        lambda: lapack.dtrtri(np.triu(singular)),
        lambda: lapack.dtrtrs(np.triu(singular), np.ones((20, 2))),
        lambda: lapack.dpotri(np.triu(singular)),
    ]
    for call in calls:
        expected = call()
        assert expected[-1] > 0
        with accelerate(solver, margin=0) as on:
            result = call()
        for actual, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(actual, other)
        assert set(refusals(on)) == {"info or values are odd"}, on.report
    with accelerate(solver, margin=0), pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        np.linalg.cholesky(bad)
    with accelerate(solver, margin=0), pytest.raises(np.linalg.LinAlgError, match="Singular"):
        np.linalg.solve(singular, np.ones(20))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_the_cpus(solver: str, value: float) -> None:
    A = positive(20, "f8")
    A[3, 2] = A[2, 3] = value

    def results() -> list[Any]:
        values: list[Any] = []
        for call in (
            lambda: lapack.dpotrf(A),
            lambda: lapack.dgesv(A, np.ones((20, 2))),
            lambda: lapack.dgeqrf(A)[:2],
            lambda: lapack.dgetrs(*lapack.dgetrf(positive(20, "f8"))[:2], A),
            lambda: np.linalg.svd(A),
            lambda: [np.linalg.eigvalsh(A)],
        ):
            try:
                values += call()
            except np.linalg.LinAlgError as error:
                values.append(str(error))
        return values

    with np.errstate(all="ignore"):
        expected = results()
        with accelerate(solver, margin=0, functions=["potrf", "gesv", "geqrf", "getrs", "gesdd", "syevd"]) as on:
            actual = results()
    for left, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(left, other)
    assert on.report.gone == 0, on.report


def test_a_range_of_eigenvalues_and_vectors_in_a_stay(solver: str) -> None:
    S = positive(20, "f8")
    expected = scipy.linalg.eigh(S, subset_by_index=[2, 5]), lapack.dgesdd(S, overwrite_a=0)
    with accelerate(solver, margin=0, functions=["syevr", "gesdd", "gelsd"]) as on:
        result = scipy.linalg.eigh(S, subset_by_index=[2, 5])
        scipy.linalg.lstsq(S[:8], np.ones(8))
    np.testing.assert_array_equal(result[0], expected[0][0])
    assert refusals(on) == {"variant stays on the CPU": 1}
    assert on.report.gone == 0


def test_very_small_and_large_numbers_stay_where_lapack_scales(solver: str) -> None:
    S = positive(20, "f8")
    for factor in (1e-200, 1e200):
        expected = np.linalg.eigvalsh(S * factor)
        with accelerate(solver, margin=0, functions=["syevd"]) as on:
            np.testing.assert_array_equal(np.linalg.eigvalsh(S * factor), expected)
        assert on.report.gone == 0


def test_queries_of_workspaces_and_empty_matrices_are_the_cpus(solver: str) -> None:
    with accelerate(solver, margin=0) as on:
        assert lapack.dgeqrf_lwork(300, 200)[0] >= 200
        assert lapack.dsyevr_lwork(300)[0] >= 26 * 300
        assert lapack.dgesdd_lwork(300, 200)[0] > 200
        assert lapack.dgelsd_lwork(300, 200, 1)[0] > 0
        assert not on.report.calls
        assert np.linalg.cholesky(np.empty((0, 0))).shape == (0, 0)
        assert np.linalg.solve(np.ones((3, 3)) + np.eye(3), np.empty((3, 0))).shape == (3, 0)
        assert np.linalg.svd(np.empty((0, 3)))[2].shape == (3, 3)
        assert lapack.dpotrf(np.empty((0, 0)))[1] == 0
    assert on.report.gone == 0


def test_pivots_that_are_none_are_lapacks_to_use(solver: str) -> None:
    lu, piv, _ = lapack.dgetrf(numbers((20, 20), "f8"))
    piv[:] = np.arange(20)[::-1]  # these are rows of the matrix, but getrf never leaves such pivots
    expected = lapack.dgetrs(lu, piv, np.ones((20, 1)))[0]
    with accelerate(solver, margin=0) as on:
        result = lapack.dgetrs(lu, piv, np.ones((20, 1)))[0]
    np.testing.assert_array_equal(result, expected)
    assert refusals(on) == {"info or values are odd": 1}


def test_arrays_that_a_program_has_lent_itself_stay_right(solver: str) -> None:
    A, b = np.asfortranarray(positive(40, "f8")), np.ones((40, 1))
    expected = np.linalg.solve(A, b)
    with accelerate(solver, margin=0), offload_args.offload_args(offload_args.In(A), device=solver):
        agree([np.linalg.solve(A, b)], [expected], "f8")
        agree([lapack.dgesv(A, b)[2]], [expected], "f8")


def lent_calls() -> dict[str, tuple[np.ndarray, Callable[[np.ndarray], Any]]]:
    """Return {name: (an array, a call that writes to this array)}."""
    bad, singular, good = positive(24, "f8"), numbers((24, 24), "f8"), positive(24, "f8")
    bad[11, 11] = -5
    singular[:, 7] = 0
    odd = good.copy()
    odd[2, 3] = np.inf
    return {
        "not positive": (bad, lambda A: lapack.dpotrf(A, 1, 0, overwrite_a=1)[-1]),
        "singular": (singular, lambda A: lapack.dgesv(A, np.ones((24, 1)), overwrite_a=1)[-1]),
        "not finite": (odd, lambda A: lapack.dgetrf(A, overwrite_a=1)[-1]),
        "goes": (good, lambda A: lapack.dpotrf(A, 1, 0, overwrite_a=1)[-1]),
        "destroyed": (good, lambda A: lapack.dgesdd(A, overwrite_a=1)[-1]),
        "right-hand side": (good, lambda A: lapack.dgesv(good + 1, A, overwrite_b=1)[-1]),
        "product": (good, lambda A: fortran.dgemm(1.0, good, good, beta=1.0, c=A, overwrite_c=1).shape),
        "vector": (good, lambda A: fortran.dger(2.0, np.ones(24), np.ones(24), a=A, overwrite_a=1).shape),
    }


@pytest.mark.later("host")
@pytest.mark.parametrize("name", [*lent_calls()])
@pytest.mark.parametrize("direction", ["InOut", "In"])
def test_what_the_program_lends_itself_is_the_cpus_to_write(solver: str, name: str, direction: str) -> None:
    """A view of an array that a region lends can still be written; the call must not use the device's copy."""
    matrix, call = lent_calls()[name]
    plain, lent = np.asfortranarray(matrix), np.asfortranarray(matrix)
    written = lent.view()  # the view is taken before the array is lent, so it stays writable
    with np.errstate(all="ignore"):
        expected = call(plain)
        arguments = getattr(offload_args, direction)(lent)
        with accelerate(solver, margin=0) as on, offload_args.offload_args(arguments, device=solver):
            assert call(written) == expected
            np.testing.assert_array_equal(written, plain)
    np.testing.assert_array_equal(lent, plain)
    assert {"lent by the program": 1} in [row.refused for row in on.report.rows], on.report


def test_a_failing_device_spoils_nothing_that_the_program_lends() -> None:
    sim = testing.sim_device(index=1)
    matrix, call = lent_calls()["goes"]
    plain = np.asfortranarray(matrix)
    call(plain)
    with accelerate(sim, margin=0):
        for k in range(1, 20):
            lent = np.asfortranarray(matrix)
            written = lent.view()
            with offload_args.offload_args(lent, device=sim):
                testing.fail_call(sim, k)
                call(written)
                testing.fail_call(sim, 0)
            np.testing.assert_array_equal(lent, plain)


# -- failures, threads, forks, signals ---------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[np.ndarray], Any]] = {
    "potrf": lambda A: lapack.dpotrf(A, 1, 0, overwrite_a=0),
    "gesv": lambda A: lapack.dgesv(A, A[:, :3]),
    "getri": lambda A: lapack.dgetri(*lapack.dgetrf(A)[:2], lwork=99),
    "syevd": lambda A: [np.linalg.eigvalsh(A)],
    "syevr": lambda A: [scipy.linalg.eigh(A, eigvals_only=True, driver="evr")],
    "gesdd": lambda A: [np.abs(part) for part in scipy.linalg.svd(A[:, :13], full_matrices=False)],
    "gelsd": lambda A: scipy.linalg.lstsq(A[:, :13], A[:, 14:16]),
    "geqrf": lambda A: lapack.dgeqrf(A)[:2],
}


@pytest.mark.later
@pytest.mark.parametrize("name", [*PROGRAMS])
def test_a_device_that_fails_at_any_call_changes_nothing(name: str) -> None:
    A, call = np.asfortranarray(positive(24, "f8")), PROGRAMS[name]
    expected, before = call(A), A.copy()
    sim = testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on, warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in [*range(1, 40), *range(41, 120, 9)]:
            testing.fail_call(sim, k)
            agree(call(A), expected, "f8")
            np.testing.assert_array_equal(A, before)
        testing.fail_call(sim, 0)
        warnings.simplefilter("ignore")  # the next region warns once if it can't have a pool
        with offload_args.offload_args(A, device=sim):
            pass
        agree(call(A), expected, "f8")
    refused = [row.refused.get("device failed", 0) for row in on.report.rows]
    assert sum(refused) > 0 and on.report.gone > 0


def test_a_device_without_room_changes_nothing() -> None:
    A = positive(200, "f8")
    expected = np.linalg.solve(A, A[0])
    with accelerate(testing.sim_device(64 << 10, index=1), margin=0) as on:
        agree([np.linalg.solve(A, A[0])], [expected], "f8")
    testing.sim_device(index=1)
    assert on.report.gone == 0


def test_threads(solver: str) -> None:
    A, b = positive(40, "f8"), np.ones(40)
    expected = [np.linalg.solve(A, b), np.linalg.eigvalsh(A), np.linalg.cholesky(A), np.linalg.svd(A)[1]]

    def work(_: int) -> list[np.ndarray]:
        return [np.linalg.solve(A, b), np.linalg.eigvalsh(A), np.linalg.cholesky(A), np.linalg.svd(A)[1]]

    with accelerate(solver, margin=0) as on, ThreadPoolExecutor(8) as pool:
        for result in pool.map(work, range(24)):
            agree(result, expected, "f8")
    assert on.report.calls >= 96 and on.report.gone > 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_uses_the_library(solver: str) -> None:
    A, b = positive(30, "f8"), np.ones(30)
    expected = np.linalg.solve(A, b)
    with accelerate(solver, margin=0) as on:
        np.linalg.solve(A, b)
        pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            status = 1
            try:
                status = 0 if np.allclose(np.linalg.solve(A, b), expected) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert on.report.gone == 1


def test_signals_and_flags(solver: str) -> None:
    A, b = positive(40, "f8"), np.ones(40)
    expected, hits = np.linalg.solve(A, b), []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with np.errstate(all="raise"), accelerate(solver, margin=0):
            rounds = 0
            while rounds < 60 or not hits:
                agree([np.linalg.solve(A, b)], [expected], "f8")
                np.linalg.eigvalsh(A)
                rounds += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_report_counts_what_lapack_would_save(solver: str) -> None:
    A = positive(200, "f8")
    with accelerate(solver, only_count=True) as on:
        np.linalg.solve(A, A)
    (row,) = on.report.rows
    assert (row.routine, row.n, row.k, row.gone, row.refused) == ("dsolve", 200, 200, 0, {"left out": 1})
