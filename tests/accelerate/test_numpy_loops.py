"""NumPy's functions of matrices in C order go to a device as a whole, without NumPy's copies to the order of LAPACK."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from offload_args import Device, _core, accelerate, testing

NAMES = (
    *("solve", "solve1", "inv", "cholesky_lo", "eigh_lo", "eigh_up", "eigvalsh_lo", "eigvalsh_up", "svd", "svd_f"),
    *("svd_s", "qr_r_raw", "qr_reduced", "qr_complete", "lstsq", "matmul"),
)
KINDS = {"f4": "d", "f8": "d", "c8": "z", "c16": "z"}  # NumPy computes all but products in double precision
ATOL = {"f4": 2e-3, "f8": 1e-9, "c8": 2e-3, "c16": 1e-9}


@pytest.fixture
def solver(device: str) -> str:
    """A device that has LAPACK; AMD's GPUs have none in this build."""
    if device.startswith("hip"):
        pytest.skip("device unavailable: this build has no LAPACK for it")
    return device


def numbers(rows: int, columns: int, dtype: str = "f8") -> np.ndarray:
    rng = np.random.default_rng(rows * 1000 + columns)
    parts = rng.standard_normal((2, rows, columns))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


def positive(n: int, dtype: str = "f8") -> np.ndarray:
    A = numbers(n, n, dtype)
    return np.asarray(A @ A.conj().T + n * np.eye(n), dtype)


def sent(device: str, call: Callable[[], Any], *routines: str) -> Any:
    """Return the result of a call that goes to a device as these routines, and no other call with it."""
    with accelerate(device, margin=0) as on:
        result = call()
    assert {row.routine: row.gone for row in on.report.rows} == dict.fromkeys(routines, 1), on.report
    return result


def agree(actual: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=ATOL[dtype] * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("dtype", [*KINDS])
def test_systems_and_inverses(solver: str, dtype: str) -> None:
    A, letter = numbers(31, 31, dtype), KINDS[dtype]
    for B in (A[:, 0].copy(), A[:, :1].copy(), A[:, 2:7].copy()):
        agree(sent(solver, lambda B=B: np.linalg.solve(A, B), f"{letter}solve"), np.linalg.solve(A, B), dtype)
    agree(sent(solver, lambda: np.linalg.inv(A), f"{letter}inv"), np.linalg.inv(A), dtype)


@pytest.mark.parametrize("dtype", [*KINDS])
def test_cholesky_reads_one_triangle(solver: str, dtype: str) -> None:
    S = positive(29, dtype)
    S[np.triu_indices(29, 1)] = 7
    agree(sent(solver, lambda: np.linalg.cholesky(S), f"{KINDS[dtype]}cholesky"), np.linalg.cholesky(S), dtype)


@pytest.mark.parametrize("triangle", ["L", "U"])
@pytest.mark.parametrize("dtype", [*KINDS])
def test_eigenvalues_and_vectors(solver: str, dtype: str, triangle: str) -> None:
    S = numbers(27, 27, dtype)
    full = np.tril(S, -1) if triangle == "L" else np.triu(S, 1)
    full = (full + full.conj().T + np.diag(S.diagonal().real)).astype(dtype)
    np.fill_diagonal(S, S.diagonal().real)
    w, v = sent(solver, lambda: np.linalg.eigh(S, triangle), f"{KINDS[dtype]}eigh")
    agree(w, np.linalg.eigh(S, triangle)[0], dtype)
    agree(full @ v, v * w, dtype)
    agree((v.conj().T @ v).astype(dtype), np.eye(27, dtype=dtype), dtype)
    values = sent(solver, lambda: np.linalg.eigvalsh(S, triangle), f"{KINDS[dtype]}eigvalsh")
    agree(values, w, dtype)


@pytest.mark.parametrize("shape", [(23, 23), (31, 12), (12, 31), (40, 40), (50, 37), (37, 50)], ids=str)
@pytest.mark.parametrize("dtype", [*KINDS])
def test_singular_values_and_vectors(solver: str, dtype: str, shape: tuple[int, int]) -> None:
    A, k, name = numbers(*shape, dtype), min(shape), f"{KINDS[dtype]}svd"
    for full in (True, False):
        U, s, Vh = sent(solver, lambda full=full: np.linalg.svd(A, full_matrices=full), name)
        expected = np.linalg.svd(A, full_matrices=full)
        agree(s, expected[1], dtype)
        assert U.shape == expected[0].shape and Vh.shape == expected[2].shape
        agree(((U[:, :k] * s) @ Vh[:k]).astype(dtype), A, dtype)
        for Q in (U, Vh.conj().T):
            agree((Q.conj().T @ Q).astype(dtype), np.eye(Q.shape[1], dtype=dtype), dtype)
    agree(sent(solver, lambda: np.linalg.svd(A, compute_uv=False), name), s, dtype)


@pytest.mark.parametrize("shape", [(23, 23), (31, 12), (12, 31), (9, 2)], ids=str)
@pytest.mark.parametrize("dtype", [*KINDS])
def test_orthogonal_and_triangular_factors(solver: str, dtype: str, shape: tuple[int, int]) -> None:
    A, letter = numbers(*shape, dtype), KINDS[dtype]
    for mode in ("reduced", "complete", "r", "raw"):
        routines = [f"{letter}qr"] if mode in ("r", "raw") else [f"{letter}qr", f"{letter}qr_q"]
        call = lambda mode=mode: (np.linalg.qr(A, mode),) if mode == "r" else np.linalg.qr(A, mode)  # noqa: E731
        for result, expected in zip(sent(solver, call, *routines), call(), strict=True):
            agree(result, expected, dtype)


@pytest.mark.parametrize("dtype", [*KINDS])
def test_least_squares(solver: str, dtype: str) -> None:
    """A has 19 columns; numbers of right sides are below and above those that the device multiplies at once."""
    A, B, name = numbers(67, 19, dtype), numbers(67, 70, dtype), f"{KINDS[dtype]}lstsq"
    for b in (B, B[:, :1], B[:, 0], B[:, 0].copy(), B[:, 3:9], np.zeros(67, dtype)):
        for rcond in (None, -1, 1e-3):
            results = sent(solver, lambda b=b, rcond=rcond: np.linalg.lstsq(A, b, rcond), name)
            expected = np.linalg.lstsq(A, b, rcond)
            assert results[2] == expected[2] == 19 and results[1].shape == expected[1].shape
            for at in (0, 1, 3):
                agree(results[at], expected[at], dtype)


@pytest.mark.parametrize("types", ["fff->ffif", "FFf->Ffif"])
def test_least_squares_in_single_precision(solver: str, types: str) -> None:
    A, B = (numbers(67, columns, "f4" if types[0] == "f" else "c8") for columns in (19, 3))
    rcond, letter = np.float32(1e-5), "s" if types[0] == "f" else "c"
    call = lambda: _umath_linalg.lstsq(A, B, rcond, signature=types)  # noqa: E731
    for result, expected in zip(sent(solver, call, f"{letter}lstsq"), call(), strict=True):
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_least_squares_into_arrays_with_steps(solver: str) -> None:
    A, B = numbers(67, 19), numbers(67, 3)
    x, rest, rank, s = np.zeros((3, 38)), np.zeros(6), np.zeros((), "i4"), np.zeros(57)
    out = (x[:, ::-2].T, rest[::2], rank, s[::3])
    sent(solver, lambda: _umath_linalg.lstsq(A, B, 1e-9, out=out, signature="ddd->ddid"), "dlstsq")
    for result, expected in zip(out, _umath_linalg.lstsq(A, B, 1e-9), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    assert not x[:, ::2].any() and not rest[1::2].any() and not s[1::3].any() and not s[2::3].any()


def test_the_cpu_decides_about_a_rank_in_doubt(solver: str) -> None:
    A, b = numbers(67, 19), numbers(67, 2)
    equal, small = A.copy(), A * np.geomspace(1, 1e-9, 19)
    equal[:, 7] = 3 * equal[:, 5]
    for M, rcond in ((equal, None), (A, 0.5), (0 * A, None), (small, 1e-8), (equal, -1)):
        expected = np.linalg.lstsq(M, b, rcond)
        with accelerate(solver, margin=0) as on:
            results = np.linalg.lstsq(M, b, rcond)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        (row,) = on.report.rows
        assert (row.routine, row.gone, row.refused) == ("dlstsq", 0, {"info or values are odd": 1})
    results = sent(solver, lambda: np.linalg.lstsq(small, b, 1e-12), "dlstsq")
    np.testing.assert_allclose(results[0], np.linalg.lstsq(small, b, 1e-12)[0], rtol=1e-5)


@pytest.mark.parametrize("rcond", [None, -1, 1e-15, np.nan])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_the_cpu_decides_about_a_rank_in_doubt_in_fortran_order(solver: str, dtype: str, rcond: float | None) -> None:
    for columns in range(20, 24):
        A, b = np.asfortranarray(numbers(40, columns, dtype)), numbers(40, 2, dtype)
        A[:, 7] = 3 * A[:, 5] - A[:, 6]
        expected = np.linalg.lstsq(A, b, rcond)
        with accelerate(solver, margin=0) as on:
            results = np.linalg.lstsq(A, b, rcond)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        (row,) = on.report.rows
        assert (row.routine, row.gone, row.refused) == (f"{KINDS[dtype]}gelsd", 0, {"info or values are odd": 1})


def test_least_squares_of_other_shapes_take_the_hook_of_lapack(solver: str) -> None:
    A, b = numbers(40, 67), numbers(67, 2)
    for M, B, gone in ((A, b[:40], 0), (A[:, :40], b[:40], 1), (A.T[:, :39], b, 1)):
        expected = np.linalg.lstsq(M, B)
        with accelerate(solver, margin=0) as on:
            results = np.linalg.lstsq(M, B)
        agree(results[0], expected[0], "f8")
        assert [(row.routine, row.gone) for row in on.report.rows] == [("dgelsd", gone)]


@pytest.mark.parametrize("dtype", [*KINDS])
def test_a_matrix_times_its_own_transpose(solver: str, dtype: str) -> None:
    letter = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}[dtype]
    for A in (numbers(41, 13, dtype), numbers(13, 41, dtype)):
        for call in (lambda A=A: A @ A.T, lambda A=A: A.T @ A):
            result = sent(solver, call, f"{letter}gram")
            agree(result, call(), dtype)
            np.testing.assert_array_equal(result, result.T)


def test_products_keep_nan_and_infinity_in_their_place(solver: str) -> None:
    A = numbers(17, 9)
    A[3, 2], A[5, 1] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = A @ A.T
        result = sent(solver, lambda: A @ A.T, "dgram")
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))


PARTS: dict[str, Callable[[np.ndarray], Any]] = {
    "solve": lambda A: np.linalg.solve(A[3:26, 5:28], A[3:26, 7:11]),
    "solve with each other row": lambda A: np.linalg.solve(A[:48:2, :24], A[1::2, 40:41]),
    "solve with a column": lambda A: np.linalg.solve(A[:24, :24], A[:24, 3]),
    "solve with each other number": lambda A: np.linalg.solve(A[:24, :24], A[0, ::2]),
    "inv": lambda A: np.linalg.inv(A[1:25, :24]),
    "cholesky": lambda A: np.linalg.cholesky(A[8:30, 8:30]),
    "eigh": lambda A: np.abs(np.linalg.eigh(A[8:30, 8:30])[1]),
    "eigvalsh": lambda A: np.linalg.eigvalsh(A[:20, :20], "U"),
    "svd": lambda A: np.linalg.svd(A[:20, 3:33])[1],
    "svd of a tall part": lambda A: np.abs(np.linalg.svd(A[:33, 3:20], full_matrices=False)[2]),
    "svd without vectors": lambda A: np.linalg.svd(A[:33, 3:20], compute_uv=False),
    "lstsq": lambda A: np.linalg.lstsq(A[3:45, 5:20], A[3:45, 7:9])[0],
    "lstsq with each other row": lambda A: np.linalg.lstsq(A[::2, 5:15], A[::2, 3])[0],
    "part @ its transpose": lambda A: A[:, :7] @ A[:, :7].T,
    "transpose @ part": lambda A: A[4:40, 3:12].T @ A[4:40, 3:12],
}


@pytest.mark.parametrize("name", [*PARTS])
def test_parts_of_a_matrix_go_without_a_copy(solver: str, name: str) -> None:
    A, call = positive(48), PARTS[name]
    expected, before = call(A), A.copy()
    routine = {"part": "gram", "transpose": "gram"}.get(name.split()[0], name.split()[0])
    agree(sent(solver, lambda: call(A), f"d{routine}"), expected, "f8")
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("name", [*PARTS])
def test_floating_point_flags_of_a_device_do_not_reach_the_program(solver: str, name: str) -> None:
    """Products of the small numbers underflow, on the device as on the CPU."""
    A, call = positive(48), PARTS[name]
    with np.errstate(all="raise"), accelerate(solver, margin=0) as on:
        call(A)
        call(1e-170 * A + np.eye(48))
    assert on.report.gone > 0


def test_factors_take_the_place_of_a_part(solver: str) -> None:
    A, B = numbers(48, 48), numbers(48, 48)
    A[:] = B
    tau = sent(solver, lambda: _umath_linalg.qr_r_raw(A[3:33:2, 5:14]), "dqr")
    agree(tau, _umath_linalg.qr_r_raw(B[3:33:2, 5:14]), "f8")
    agree(A, B, "f8")
    Q = sent(solver, lambda: _umath_linalg.qr_reduced(A[3:33:2, 5:14], tau), "dqr_q")
    agree(Q, _umath_linalg.qr_reduced(A[3:33:2, 5:14], tau), "f8")
    Q = sent(solver, lambda: _umath_linalg.qr_complete(A[3:33:2, 5:14], tau), "dqr_q")
    agree(Q, _umath_linalg.qr_complete(A[3:33:2, 5:14], tau), "f8")


@pytest.mark.parametrize("name", ["solve", "cholesky", "eigh", "svd", "lstsq"])
def test_numbers_between_the_rows_of_a_part_are_never_read(solver: str, name: str) -> None:
    A, wide = positive(48), np.full((96, 96), np.nan)
    wide[::2, :48] = A
    expected = PARTS[name](A)
    agree(sent(solver, lambda: PARTS[name](wide[::2, :48]), f"d{name}"), expected, "f8")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_part_that_is_not_finite_is_computed_by_the_cpu(solver: str, value: float) -> None:
    A = positive(48)
    A[30, 20] = value
    expected = np.linalg.inv(A[2:42, 1:41])
    with accelerate(solver, margin=0) as on:
        np.testing.assert_array_equal(np.linalg.inv(A[2:42, 1:41]), expected)
    assert next(row for row in on.report.rows if row.routine == "dinv").gone == 0


OTHERS: dict[str, Callable[[np.ndarray], Any]] = {
    "Fortran order": lambda A: np.linalg.solve(np.asfortranarray(A), A[0]),
    "strides": lambda A: np.linalg.inv(np.repeat(A, 2, 1)[:, ::2]),
    "a stack": lambda A: np.linalg.cholesky(np.stack([A, 2 * A])),
    "qr of a stack": lambda A: np.linalg.qr(np.stack([A, 2 * A]))[0],
    "qr in Fortran order": lambda A: np.linalg.qr(np.asfortranarray(A))[0],
    "lstsq of a stack": lambda A: _umath_linalg.lstsq(np.stack([A, 2 * A])[:, :, :9], A[:, :2], 1e-9)[0],
    "lstsq in Fortran order": lambda A: np.linalg.lstsq(np.asfortranarray(A[:, :9]), A[:, :2])[0],
    "reversed rows": lambda A: np.linalg.inv(A[::-1]),
    "a reversed vector": lambda A: np.linalg.solve(A, A[0, ::-1]),
    "every vector the same": lambda A: np.linalg.solve(A, np.broadcast_to(A[0], (24, 24)).T),
    "into an array with steps": lambda A: np.matmul(A, A.T, out=np.empty((24, 48))[:, ::2]),
}


@pytest.mark.parametrize("name", [*OTHERS])
def test_other_arrays_take_the_hooks_of_lapack_and_blas(solver: str, name: str) -> None:
    A, call = positive(24), OTHERS[name]
    expected = call(A)
    with accelerate(solver, margin=0) as on:
        agree(call(A), expected, "f8")
    loops = ("dsolve", "dinv", "dcholesky", "deigh", "deigvalsh", "dgram", "dqr", "dqr_q", "dlstsq")
    assert not {row.routine for row in on.report.rows} & {*loops} and on.report.gone > 0, on.report


def test_a_factorisation_that_breaks_off_predicts_nothing() -> None:
    fast = (1e15, 1e15, 1e-9, *(1e18,) * 4, *(1e9,) * 4, 1e12)  # the rates of a device
    missed, indefinite = [], positive(200)
    indefinite[-1, -1] = -1
    for A in (positive(200), indefinite):
        with accelerate("sim:0", only_count=True, lines=False) as on:
            _core.accelerate_use(Device("sim:0").number, fast)
            for _ in range(3):
                try:
                    np.linalg.cholesky(A)
                except np.linalg.LinAlgError:
                    continue
        (row,) = on.report.rows
        assert (row.routine, row.calls, row.gone) == ("dcholesky", 3, 0)
        missed.append(row.missed)
    assert missed[0] > 0 and missed[1] == 0, missed


def test_a_matrix_that_is_badly_scaled_is_tried_less_and_less() -> None:
    bad, good = np.diag(np.geomspace(1, 1e-12, 200)) + 1e-14 * numbers(200, 200), positive(200)
    expected, other, odd = np.linalg.solve(bad, bad[0]), np.linalg.solve(good, good[0]), "info or values are odd"
    with accelerate("sim:0", margin=1e-9, lines=False) as on:
        _core.accelerate_use_lapack(Device("sim:0").number)
        tries: list[int] = []
        while not tries or not tries[-1] or len(tries) < 100:
            tries = [count for count in tries if count]  # the CPU makes the first two calls of a kind
            before = on.report.missed
            np.testing.assert_array_equal(np.linalg.solve(bad, bad[0]), expected)
            tries.append(on.report.rows[0].refused.get(odd, 0))
            assert on.report.missed == before or not tries[-1]
        assert [tries.index(count) for count in (1, 2, 3, 4, 5, 6)] == [0, 1, 2, 11, 28, 61], tries
        assert on.report.rows[0].refused["odd before"] == 94 and on.report.gone == 0
        while not on.report.gone:
            agree(np.linalg.solve(good, good[0]), other, "f8")
        gone = on.report.gone
        for _ in range(3):
            np.testing.assert_array_equal(np.linalg.solve(bad, bad[0]), expected)
            agree(np.linalg.solve(good, good[0]), other, "f8")
        assert on.report.gone == gone + 3
    with accelerate("sim:0", margin=0) as on:
        for _ in range(9):
            np.linalg.solve(bad, bad[0])
    assert on.report.rows[0].refused == {odd: 9}


def test_faults_are_raised_as_by_numpy(solver: str) -> None:
    singular, odd, S = np.ones((20, 20)), positive(20), positive(20)
    odd[1, 2] = np.nan
    S[5, 5] = -1
    for call in (
        lambda: np.linalg.solve(singular, singular[0]),
        lambda: np.linalg.inv(singular),
        lambda: np.linalg.cholesky(S),
        lambda: np.linalg.svd(odd),
        lambda: np.linalg.lstsq(odd[:, :9], odd[:, 0]),
    ):
        with accelerate(solver, margin=0) as on, pytest.raises(np.linalg.LinAlgError):
            call()
        assert on.report.gone == 0
    expected = np.linalg.qr(odd, "r")
    with accelerate(solver, margin=0):
        np.testing.assert_array_equal(np.linalg.inv(odd), np.linalg.inv(odd))
        np.testing.assert_array_equal(np.isnan(np.linalg.solve(odd, S[0])), True)
        np.testing.assert_array_equal(np.linalg.qr(odd, "r"), expected)
    with accelerate(solver, margin=0) as on, np.errstate(all="raise"):
        np.linalg.cholesky(positive(20))
    assert on.report.gone == 2  # positive() has a product


def test_arrays_are_read_only_or_empty_or_wrong(solver: str) -> None:
    A = positive(20)
    A.flags.writeable = False
    before = A.copy()
    agree(sent(solver, lambda: np.linalg.svd(A)[1], "dsvd"), np.linalg.svd(A)[1], "f8")
    np.testing.assert_array_equal(A, before)
    with accelerate(solver, margin=0):
        assert np.linalg.inv(np.empty((0, 0))).shape == (0, 0)
        assert np.linalg.solve(np.empty((0, 0)), np.empty((0, 3))).shape == (0, 3)
        for shape in ((0, 3), (3, 0), (0, 0)):
            assert np.linalg.qr(np.empty(shape))[0].shape == (shape[0], 0)
            x, _, rank, s = np.linalg.lstsq(np.empty(shape), np.empty(shape[0]))
            assert (x.shape, rank, s.size) == ((shape[1],), 0, 0)
        assert np.linalg.lstsq(A[:, :4], np.empty((20, 0)))[0].shape == (4, 0)
        assert (np.empty((0, 4)) @ np.empty((0, 4)).T).shape == (0, 0)
        np.testing.assert_array_equal(np.empty((4, 0)) @ np.empty((4, 0)).T, np.zeros((4, 4)))
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.inv(np.ones((3, 4)))


PROGRAMS: dict[str, Callable[[np.ndarray], Any]] = {
    "solve": lambda A: np.linalg.solve(A, A[:, :3].copy()),
    "inv": np.linalg.inv,
    "cholesky": np.linalg.cholesky,
    "eigh": lambda A: np.linalg.eigh(A)[0],
    "svd": lambda A: np.linalg.svd(A)[1],
    "gram": lambda A: A @ A.T,
    "qr": lambda A: np.concatenate(np.linalg.qr(A)),
    "lstsq": lambda A: np.linalg.lstsq(A[:, :9], A[:, 9:12])[0],
}


@pytest.mark.parametrize("name", [*PROGRAMS])
def test_a_device_that_fails_at_any_call_changes_nothing(name: str) -> None:
    A, call = positive(24), PROGRAMS[name]
    expected, before = call(A), A.copy()
    sim = testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on, warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(1, 60):
            testing.fail_call(sim, k)
            agree(call(A), expected, "f8")
            np.testing.assert_array_equal(A, before)
        testing.fail_call(sim, 0)
        warnings.simplefilter("ignore")  # the next region warns once if it can't have a pool
        agree(call(A), expected, "f8")
    assert sum(row.refused.get("device failed", 0) for row in on.report.rows) > 0 and on.report.gone > 0


def loops_of(name: str) -> list[int]:
    """Return the addresses of a universal function's loops, which are a field of its struct."""
    ufunc = getattr(_umath_linalg, name, None) or getattr(np, name)
    loops = ctypes.c_void_p.from_address(id(ufunc) + 16 + 4 * ctypes.sizeof(ctypes.c_int)).value
    assert loops is not None
    return [ctypes.c_size_t.from_address(loops + 8 * i).value for i in range(ufunc.ntypes)]


def test_numpys_loops_come_back_at_the_end() -> None:
    before = [loops_of(name) for name in NAMES]
    with accelerate("host", margin=0):
        during = [loops_of(name) for name in NAMES]
        with accelerate("sim:0", margin=0):
            assert [loops_of(name) for name in NAMES] == during
        assert [loops_of(name) for name in NAMES] == during
        for name, old, new in zip(NAMES, before, during, strict=True):
            changed = [a != b for a, b in zip(old, new, strict=True)]
            assert sum(changed) == 4 if name == "matmul" else all(changed), name
    assert [loops_of(name) for name in NAMES] == before
    assert _core.accelerate_query() == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="device unavailable: this system has no fork")
def test_a_forked_child_computes_on_the_cpu() -> None:
    A = positive(40)
    expected = np.linalg.inv(A)
    with accelerate("host", margin=0) as on:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about threads
            child = os.fork()
        if not child:
            np.linalg.qr(np.linalg.lstsq(A[:, :9], A)[0])
            os._exit(0 if np.array_equal(np.linalg.inv(A), expected) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert on.report.calls == 0
