"""Programs see the same of NumPy's functions of matrices, whatever they pass, and whoever else replaces the loops."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from helpers import random_calls
from offload_args import _core, accelerate, scripts

LOOP = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
INNER = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]


def positive(n: int) -> np.ndarray:
    A = np.random.default_rng(n).standard_normal((n, n))
    return A @ A.T + n * np.eye(n)


@pytest.mark.later("host")
@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_random_calls_have_the_same_outcomes(device: str, first: int) -> None:
    differences, gone = random_calls.check(device, first, 3000 if first else 150)
    assert not differences
    assert gone > (300 if first else 15)


def test_calls_of_fewer_than_a_million_multiplications_have_no_rows() -> None:
    for least, n in ((False, 99), (True, 101)):
        A = positive(n)
        calls = (np.linalg.inv, np.linalg.cholesky, np.linalg.eigh, np.linalg.svd, lambda A: np.linalg.solve(A, A))
        with accelerate("host") as on:
            for call in calls:
                call(A)
            wide = A[:2] @ A[:2].T
        assert wide.shape == (2, 2)
        routines = {"dinv", "dcholesky", "deigh", "dsvd", "dsolve"} if least else set()
        assert {row.routine for row in on.report.rows} == routines


# -- singular matrices -------------------------------------------------------------------------------------------------


def fault(call: Callable[[np.ndarray], object], A: np.ndarray) -> str:
    try:
        call(A)
    except np.linalg.LinAlgError as error:
        return str(error)
    return ""


def singular(n: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((n, seed))
    dummies = np.c_[np.ones(n), rng.integers(0, 3, n)[:, None] == np.arange(3), rng.standard_normal((n, 2))]
    zeros_and_ones = rng.integers(0, 2, (n, n)).astype(float)
    zeros_and_ones[:, 1] = zeros_and_ones[:, 0] + zeros_and_ones[:, -1]
    integers = rng.integers(-3, 4, (n, n)).astype(float)
    integers[-1] = integers[:-1].sum(0)
    return {
        "dummy variables": dummies.T @ dummies,
        "rank 1": np.outer(rng.standard_normal(n), rng.standard_normal(n)),
        "zeros and ones": zeros_and_ones,
        "the sum of its rows": integers,
    }


@pytest.mark.parametrize("name", ["dummy variables", "rank 1", "zeros and ones", "the sum of its rows"])
def test_a_matrix_is_singular_if_numpy_says_so(device: str, name: str) -> None:
    """A device eliminates the transpose of A, or in another order, so its last pivot may be 1e-17 instead of 0."""
    calls = (np.linalg.inv, lambda A: np.linalg.solve(A, A[0]), np.linalg.cholesky)
    matrices = [singular(n, seed)[name] for n in (3, 4, 8, 24, 100) for seed in range(6)]
    expected = [fault(call, A) for A in matrices for call in calls]
    with accelerate(device, margin=0):
        assert [fault(call, A) for A in matrices for call in calls] == expected
    assert "Singular matrix" in expected


# -- programs that replace NumPy's functions and loops -----------------------------------------------------------------


def address(loop: object) -> int:
    return ctypes.cast(loop, ctypes.c_void_p).value or 0


def replace(ufunc: object, loop: int) -> int:
    """Replace the loop for float64 by PyUFunc_ReplaceLoopBySignature, as mkl_umath does, and return the loop before."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(get(INNER._UFUNC_API, None), ctypes.POINTER(ctypes.c_void_p))
    arguments = (ctypes.py_object, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_void_p))
    call = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)(table[30] or 0)
    before = ctypes.c_void_p()
    assert call(ufunc, loop, (ctypes.c_int * 2)(12, 12), before) == 0
    return before.value or 0


def test_a_loop_that_someone_puts_over_a_hook_stays() -> None:
    A, inv = positive(30), _umath_linalg.inv
    expected, seen = np.linalg.inv(A), []

    @LOOP
    def theirs(*arguments: int) -> None:
        seen.append(1)
        covered(*arguments)

    own = replace(inv, 0)
    replace(inv, own)
    try:
        with accelerate("host", margin=0) as on:
            below = replace(inv, address(theirs))
            covered = LOOP(below)
            with accelerate("host", margin=0):
                np.testing.assert_allclose(np.linalg.inv(A), expected)
        assert (len(seen), on.report.gone) == (1, 1)
        np.testing.assert_allclose(np.linalg.inv(A), expected)
        with accelerate("host", margin=0) as on:
            np.testing.assert_allclose(np.linalg.inv(A), expected)
        assert (len(seen), on.report.gone) == (3, 1)
        assert replace(inv, below) == address(theirs)
        with accelerate("host", margin=0) as on:
            np.testing.assert_allclose(np.linalg.inv(A), expected)
        assert (len(seen), on.report.gone) == (3, 1)
        assert replace(inv, own) == own
    finally:
        replace(inv, own)


def test_functions_that_a_program_replaced_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    A = positive(30)
    expected = np.linalg.inv(A), A @ A.T
    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *words: matmul(*words))
    monkeypatch.setattr(_umath_linalg, "inv", lambda *words, inv=_umath_linalg.inv, **more: inv(*words, **more))
    scripts._loops.cache_clear()
    try:
        with accelerate("host", margin=0) as on:
            for actual, other in zip((np.linalg.inv(A), A @ A.T), expected, strict=True):
                np.testing.assert_allclose(actual, other)
        assert {row.routine: row.gone for row in on.report.rows} == {"dgesv": 1, "dgram": 1}
    finally:
        scripts._loops.cache_clear()


def test_a_function_with_another_signature_keeps_its_loops() -> None:
    own = replace(_umath_linalg.det, 0)
    replace(_umath_linalg.det, own)
    _core.accelerate_loops({"inv": _umath_linalg.det}, INNER._UFUNC_API, True)
    assert replace(_umath_linalg.det, own) == own


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_acceleration_begins_and_ends_while_threads_are_in_loops(turns: int) -> None:
    A = positive(40)
    calls = (np.linalg.inv, np.linalg.cholesky, np.linalg.eigvalsh, lambda A: A @ A.T, lambda A: np.linalg.solve(A, A))
    expected = [call(A) for call in calls]
    rounds = 0

    def work(number: int) -> None:
        while rounds < turns:
            np.testing.assert_allclose(calls[number](A), expected[number], rtol=1e-9, atol=1e-9)

    with ThreadPoolExecutor(len(calls)) as pool, warnings.catch_warnings():
        running = [pool.submit(work, number) for number in range(len(calls))]
        while rounds < turns and not any(future.done() for future in running):
            with accelerate("sim:0" if rounds % 2 else "host", margin=0):
                np.linalg.inv(A)
            rounds += 1
        rounds = turns
        for future in running:
            future.result()
