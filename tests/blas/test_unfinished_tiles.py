"""Level 3 of arrays that are much larger than a device, on which unfinished tiles of the result stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.small_tiles import finished
from offload_args import Device, blas, lapack, offload_args, testing
from offload_args.blas import tiles
from offload_args.errors import OffloadError

N = 128  # the order of a matrix of float64 with 128 KiB
CAPACITY = 32 << 10
Matrix = NDArray[Any]


@pytest.fixture(autouse=True)
def tiles_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_LEAST", 8)
    monkeypatch.setattr(tiles, "_UNIT", 1)
    monkeypatch.setattr(tiles, "_SMALLEST", 4)
    monkeypatch.setattr(tiles, "_LEAST_IN_PLACES", 128)


def whole(*shape: int, seed: int = 0) -> Matrix:
    """Return a matrix of small whole numbers, so that every sum is exact."""
    return np.random.default_rng([*shape, seed]).integers(-3, 4, shape).astype(float)


def symmetric(A: Matrix) -> Matrix:
    full: Matrix = np.triu(A) + np.triu(A, 1).T
    return full


def triangular(n: int, uplo: str) -> Matrix:
    """Return a triangle whose inverse has whole numbers: 1 on the diagonal, and few elements beside it."""
    T = np.eye(n)
    T[np.arange(n - 9), np.arange(9, n)] = -1
    return T if uplo == "U" else T.T.copy()


# The most bytes that go up, in sizes of A; the tiles of the result, one after the other, need 11, 12, 6, 10, 6
# and 6. With M elements of memory, any order of p products moves 2 p / sqrt(M) elements: 4 sizes of A for gemm, and
# half of that for a triangle.
MOST = {"gemm": 8, "symm": 8, "syrk": 4, "syr2k": 7, "trsm": 5, "trmm": 4}


# One thread moves the same bytes in each run. Which of three threads takes the next tile is up to the system, and a
# tile that is used late goes up again.
@pytest.mark.later(but="gemm-1")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", MOST)
def test_operands_go_up_few_times(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "THREADS", threads)
    A, B, C = whole(N, N), whole(N, N, seed=1), np.full((N, N), np.nan)
    device = testing.sim_device(capacity=CAPACITY)
    upper = np.triu(np.ones((N, N), bool))
    with testing.counting(device) as moved:
        if name == "gemm":
            blas.gemm(1.0, A, B, 0.0, C, devices=[device])
            assert np.array_equal(C, A @ B)
        elif name == "symm":
            blas.symm(1.0, A, B, 0.0, C, devices=[device])
            assert np.array_equal(C, symmetric(A) @ B)
        elif name == "syrk":
            blas.syrk(1.0, A, 0.0, C, devices=[device])
            assert np.array_equal(C[upper], (A @ A.T)[upper]) and np.isnan(C[~upper]).all()
        elif name == "syr2k":
            blas.syr2k(1.0, A, B, 0.0, C, devices=[device])
            assert np.array_equal(C[upper], (A @ B.T + B @ A.T)[upper])
        elif name == "trmm":
            X = B.copy()
            blas.trmm(1.0, A, X, uplo="L", devices=[device])
            assert np.array_equal(X, np.tril(A) @ B)
        else:
            T, X = triangular(N, "U"), B.copy()
            blas.trsm(1.0, T, X, devices=[device])
            assert np.array_equal(T @ X, B)
    if threads == 1:
        assert moved.bytes_up < MOST[name] * A.nbytes
    testing.sim_device()


@pytest.mark.later(but="1-R-L-N")
@pytest.mark.parametrize(
    ("threads", "side", "uplo", "trans"),
    [(1, "R", "L", "N"), (1, "L", "U", "T"), *((3, *kind) for kind in itertools.product("LR", "UL", "NT"))],
)
def test_triangles_of_every_kind(
    threads: int, side: str, uplo: str, trans: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "THREADS", threads)
    T, B = triangular(N, uplo), whole(N, 100) if side == "L" else whole(100, N)
    device = testing.sim_device(capacity=CAPACITY)
    X, Y = B.copy(), B.copy()
    blas.trsm(2.0, T, X, side=side, uplo=uplo, trans=trans, devices=[device])
    op = T if trans == "N" else T.T
    assert np.array_equal(op @ X if side == "L" else X @ op, 2 * B)
    with testing.counting(device) as moved:
        blas.trmm(2.0, T, Y, side=side, uplo=uplo, trans=trans, devices=[device])
    assert moved.bytes_down == B.nbytes
    if threads == 1:
        assert moved.bytes_up < 4.6 * B.nbytes
    assert np.array_equal(Y, 2 * (op @ B if side == "L" else B @ op))
    testing.sim_device()


@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_other_shapes_orders_and_options(count: int) -> None:
    random = np.random.default_rng(3)
    for _ in range(count):
        m, n, k = (int(size) for size in random.integers(1, 200, 3))
        A, B, C = whole(m, k), whole(k, n, seed=1), whole(m, n, seed=2)
        device = testing.sim_device(
            capacity=max(8192, int((A.nbytes + B.nbytes + C.nbytes) * random.uniform(0.1, 0.9)))
        )
        left, right = np.asfortranarray(A), B
        expected = 2 * (A @ B) + 3 * C
        blas.gemm(2.0, left, right, 3.0, C, devices=[device])
        assert np.array_equal(C, expected)
        S, D = whole(m, m, seed=4), np.asfortranarray(whole(m, n, seed=5))
        blas.symm(1.0, S, C, -1.0, D, uplo="U", devices=[device])
        assert np.array_equal(D, symmetric(S) @ expected - whole(m, n, seed=5))
    testing.sim_device()


@pytest.mark.later(but="C-2")
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
def test_right_sides_that_are_newer_on_the_device_are_solved(columns: int, order: Any) -> None:
    A = np.diag(np.full(N, 4.0)) + np.eye(N, k=1) + np.eye(N, k=-1)
    B = np.zeros((N, columns), order=order)
    device = testing.sim_device(capacity=CAPACITY)
    with offload_args(B, device=device) as (dB,):
        dB.fill(1.0)
        lapack.posv(A.copy(), B, devices=[device])
    np.testing.assert_allclose(A @ B, np.ones((N, columns)), rtol=1e-12)
    testing.sim_device()


def failing(*many: int) -> pytest.MarkDecorator:
    """Return the numbers of the calls that fail, and the failures after which a test ends.

    A call that fails may be without effect: the next block then goes up later, or a copy takes a slower way.
    """
    return pytest.mark.parametrize(
        ("calls", "least"),
        [pytest.param(range(100, 500, 30), 1, id="some"), pytest.param(many, 4, id="many", marks=pytest.mark.slow)],
    )


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.later("L")
@failing(1, 30, 100, 250, 400, 700, 1000, 1500)
@pytest.mark.parametrize("side", ["L", "R"])
def test_after_a_failing_call_of_trmm_finished_tiles_are_named(side: str, calls: Iterable[int], least: int) -> None:
    A, B, failed = whole(N, N), whole(N, N, seed=1), 0
    expected = np.triu(A) @ B if side == "L" else B @ np.triu(A)
    for k in calls:
        if failed == least:
            return
        device: Device = testing.sim_device(capacity=CAPACITY, index=1)  # its copies may be slower after failures
        X = B.copy()
        testing.fail_call(device, k)
        try:
            blas.trmm(1.0, A, X, side=side, devices=[device])
        except OffloadError as error:
            failed += 1
            done = finished(error, "blas.trmm", B=X)["B"]
            assert np.array_equal(X[done], expected[done]) and np.array_equal(X[~done], B[~done])
        finally:
            testing.sim_device(index=1)
    assert failed == least


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@failing(1, 30, 100, 400, 900, 1500, 2200, 3000)
def test_after_a_failing_call_finished_tiles_are_named(calls: Iterable[int], least: int) -> None:
    A, B, failed = whole(N, N), whole(N, N, seed=1), 0
    for k in calls:
        if failed == least:
            return
        device: Device = testing.sim_device(capacity=CAPACITY, index=1)  # its copies may be slower after failures
        C = whole(N, N, seed=2)
        before, expected = C.copy(), A @ B + C
        testing.fail_call(device, k)
        try:
            blas.gemm(1.0, A, B, 1.0, C, devices=[device])
        except OffloadError as error:
            failed += 1
            done = finished(error, "blas.gemm", C=C)["C"]
            assert np.array_equal(C[done], expected[done]) and np.array_equal(C[~done], before[~done])
        finally:
            testing.sim_device(index=1)
    assert failed == least
