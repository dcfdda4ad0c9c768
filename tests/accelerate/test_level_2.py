"""Level 2 of unmodified programs: products of a matrix and a vector, by NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg.blas as fortran

from offload_args import accelerate

DTYPES = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
RTOL = {"f": 1e-4, "d": 1e-11, "F": 1e-4, "D": 1e-11}
N, M = 23, 17


def numbers(shape: tuple[int, ...], letter: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if letter in "cz" else real).astype(DTYPES[letter], order="F")


def calls_of(letter: str) -> dict[str, Callable[[], np.ndarray]]:
    A, S = numbers((M, N), letter), numbers((N, N), letter, 1) + 8 * np.eye(N, dtype=DTYPES[letter])
    S = np.asfortranarray(S)
    x, y, z = numbers((N,), letter, 2), numbers((M,), letter, 3), numbers((N,), letter, 4)
    long = numbers((3 * N,), letter, 5)
    built: dict[str, Callable[[], np.ndarray]] = {}

    def add(name: str, *words: object, **named: object) -> None:
        function = getattr(fortran, letter + name, None)
        if function is not None:
            built[f"{name} {len(built)}"] = lambda: function(*words, **named)

    for trans in (0, 1, 2):
        add("gemv", 0.5, A, *((y,) if trans else (x,)), beta=2, y=z if trans else y, trans=trans)
        add("gemv", 0.5, A, *((y,) if trans else (x,)), trans=trans)
        for name in ("trmv", "trsv"):
            for lower in (0, 1):
                add(name, S, x, trans=trans, lower=lower, diag=lower)
    add("gemv", 0.5, A, long, incx=3)
    for lower in (0, 1):
        add("symv", 0.5, S, x, beta=2, y=z, lower=lower)
        add("hemv", 0.5, S, x, beta=2, y=z, lower=lower)
        add("syr", 0.5, x, a=S, lower=lower)
        add("her", 0.5, x, a=S, lower=lower)
        add("syr2", 0.5, x, z, a=S, lower=lower)
        add("her2", 0.5, x, z, a=S, lower=lower)
    for name in ("ger", "geru", "gerc"):
        add(name, 0.5, y, x, a=A)
    return built


@pytest.mark.parametrize("letter", DTYPES)
def test_each_routine_of_level_2_agrees(device: str, letter: str) -> None:
    calls = calls_of(letter)
    expected = {name: call() for name, call in calls.items()}
    with accelerate(device, margin=0) as on:
        results = {name: call() for name, call in calls.items()}
    for name, right in expected.items():
        rtol = RTOL[right.dtype.char]
        np.testing.assert_allclose(results[name], right, rtol=rtol, atol=rtol, err_msg=name)
    lapacks = [name for name in calls if letter in "cz" and name.startswith(("symv", "syr "))]
    assert on.report.gone == len(calls) - len(lapacks), on.report


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("order", "CF")
def test_a_matrix_times_a_vector_of_numpy_goes(device: str, dtype: str, order: str) -> None:
    letter = {value: key for key, value in DTYPES.items()}[dtype]
    A, x = np.array(numbers((M, 2 * N), letter), order=order), numbers((4 * N,), letter, 1)
    with accelerate(device, margin=0) as on:
        results = A @ x[: 2 * N], A @ x[::2], x[:M] @ A, np.dot(A, x[: 2 * N])
    expected = A @ x[: 2 * N], A @ x[::2], x[:M] @ A, np.dot(A, x[: 2 * N])
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=RTOL[right.dtype.char], atol=RTOL[right.dtype.char])
    assert on.report.gone == 4, on.report


def test_increments_below_1_are_the_librarys(device: str) -> None:
    A, x = numbers((M, N), "d"), numbers((N,), "d", 1)
    expected = fortran.dgemv(1.0, A, x[::-1].copy())
    with accelerate(device, margin=0) as on:
        result = fortran.dgemv(1.0, A, x, incx=-1)
    np.testing.assert_allclose(result, expected)
    assert [row.refused for row in on.report.rows] == [{"invalid or empty": 1}]


def test_a_product_of_a_matrix_that_is_not_there_never_goes(device: str) -> None:
    """Sending a matrix for a single product takes longer than the product."""
    A, x = numbers((1200, 1100), "d"), numbers((1100,), "d", 1)
    with accelerate(device) as on:
        for _ in range(3):
            A = A + 1
            A @ x
    assert on.report.calls == 3
    assert on.report.gone == 0, on.report
