"""Cholesky and LU factors of matrices that are larger than a device, on which unfinished tiles and panels stay."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from helpers.small_tiles import finished
from offload_args import Device, lapack, testing
from offload_args.blas import tiles
from offload_args.errors import OffloadError
from offload_args.lapack import streamed

from .conftest import Matrices

N = 128  # the order of a matrix of float64 with 128 KiB
CAPACITY = 32 << 10


@pytest.fixture(autouse=True)
def tiles_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_LEAST", 8)
    monkeypatch.setattr(tiles, "_UNIT", 1)
    monkeypatch.setattr(tiles, "_SMALLEST", 4)
    monkeypatch.setattr(tiles, "_LEAST_IN_PLACES", 128)
    monkeypatch.setattr(streamed, "_NARROWEST_IN_PLACES", 1)


def small(capacity: int = CAPACITY, **options: Any) -> Device:
    return testing.sim_device(capacity=capacity, **options)


def triangle(n: int, uplo: str) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.tril(np.ones((n, n), bool))
    return mask if uplo == "L" else mask.T


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one thread compute all tiles, so that each run moves the same bytes.

    Which of several threads takes the next tile is up to the system, and a tile that is used late goes up again.
    """
    monkeypatch.setattr(tiles, "THREADS", 1)


def failing(test: Any) -> Any:
    """Parametrize a test over the numbers of the calls that fail, and over the failures after which it ends.

    A call that fails may be without effect: the next block then goes up later, or a copy takes a slower way.
    """
    some = pytest.param(range(100, 500, 30), 1, id="some")
    many = pytest.param((1, 20, 90, *range(300, 4300, 200)), 8, id="many", marks=pytest.mark.slow)
    test = pytest.mark.parametrize(("calls", "least"), [some, many])(test)
    return pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")(test)


def of_random_matrices(count: int) -> pytest.MarkDecorator:
    """Parametrize a test over types and numbers of random matrices: `count` by default, and 3 of each type in CI."""
    usual = [pytest.param("float64", count), pytest.param("complex64", 1)]
    names = ("float32", "float64", "complex64", "complex128")
    return pytest.mark.parametrize(
        ("dtype", "count"), [*usual, *(pytest.param(name, 3, marks=pytest.mark.slow) for name in names)]
    )


@pytest.mark.later(but="U")
@pytest.mark.parametrize("uplo", ["U", "L"])
@pytest.mark.parametrize(("right_sides", "most"), [(1, 1.9), (3, 2.4)])  # 3 are too many to stay there
def test_a_large_triangle_goes_up_few_times(uplo: str, right_sides: int, most: float, one_thread: None) -> None:
    matrices = Matrices("float64")
    H, right = matrices.definite(N), matrices.general(N, right_sides)
    A, B = H.copy(), right.copy()
    with testing.counting(small()) as moved:
        lapack.posv(A, B, uplo=uplo, devices=["sim:0"])
    assert matrices.near(H @ B, right)
    own = triangle(N, uplo)
    assert matrices.near(A[own], scipy.linalg.cholesky(H, lower=uplo == "L")[own])
    assert np.array_equal(A[~own], H[~own])
    assert moved.bytes_up < most * A.nbytes  # 3 if each tile of the factor is computed alone
    assert moved.bytes_down < 0.7 * A.nbytes
    testing.sim_device()


@of_random_matrices(1)
def test_random_sizes_and_capacities(dtype: str, count: int) -> None:
    matrices, random = Matrices(dtype), np.random.default_rng(5)
    for _ in range(count):
        n, uplo = int(random.integers(40, 200)), str(random.choice(["U", "L"]))
        device = small(int(n * n * np.dtype(dtype).itemsize * random.uniform(0.1, 0.7)))
        H, right = matrices.definite(n), matrices.general(n, int(random.choice([1, 2, n // 2])))
        order: Any = random.choice(["C", "F"])
        A, B = np.array(H, order=order), np.array(right, order=order)
        lapack.posv(A, B, uplo=uplo, devices=[device])
        assert matrices.near(H @ B, right)
        assert np.array_equal(A[~triangle(n, uplo)], H[~triangle(n, uplo)])
    testing.sim_device()


@pytest.mark.later(but="F")
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_matrix_goes_up_few_times_for_its_panels(order: Any, one_thread: None) -> None:
    n = 256
    original = Matrices("float64").general(n, n)
    A, ipiv = np.array(original, order=order), np.empty(n, np.int32)
    device = small(CAPACITY * 4)
    with testing.counting(device) as moved:
        lapack.getrf(A, ipiv, devices=[device])
    factors, pivots = scipy.linalg.lu_factor(original if order == "F" else original.T)
    assert np.array_equal(ipiv, pivots + 1) and np.allclose(A if order == "F" else A.T, factors)
    # Panels that are computed alone need 7.0 and 1.94. With M elements of memory, any order of the n^3 / 3 products
    # moves 2 n^3 / (3 sqrt(M)) elements, which is 1.3 matrices, both ways together.
    assert moved.bytes_up < 3.8 * A.nbytes and moved.bytes_down < 1.6 * A.nbytes
    testing.sim_device()


def test_panels_that_stay_unfinished_are_updated_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    find_needs, programs = tiles._needs, []

    def needs(tasks: Any) -> list[set[int]]:
        programs.append(find_needs(tasks))
        return programs[-1]

    monkeypatch.setattr(tiles, "_needs", needs)
    A, ipiv = np.asfortranarray(Matrices("float64").general(N, N)), np.empty(N, np.int32)
    lapack.getrf(A, ipiv, devices=[small(CAPACITY * 3)])
    testing.sim_device()
    chains: list[int] = []  # for each task, the number of tasks that have to come one after the other up to it
    for before in programs[0]:
        chains.append(1 + max((chains[i] for i in before), default=0))
    assert max(chains) < len(chains) / 3 and len(chains) > 2 * N / 4  # panels of 4 columns, each in many tasks


@of_random_matrices(2)
def test_random_shapes_and_capacities_of_panels(dtype: str, count: int) -> None:
    matrices, random = Matrices(dtype), np.random.default_rng(7)
    for _ in range(count):
        m, n = (int(size) for size in random.integers(20, 200, 2))
        order: Any = random.choice(["C", "F"])
        original = matrices.general(m, n)
        A, ipiv = np.array(original, order=order), np.empty(min(m, n), np.int32)
        by_columns = order == "F"
        nbytes = original.itemsize * (m if by_columns else n)  # of a column that the library sees
        device = small(int(random.uniform(40, 120) * nbytes))
        lapack.getrf(A, ipiv, devices=[device])
        factors, pivots = scipy.linalg.lu_factor(original if by_columns else original.T)
        assert np.array_equal(ipiv, pivots + 1)
        assert matrices.near(A if by_columns else A.T, factors)
    testing.sim_device()


@failing
def test_after_a_failing_call_of_gesv_the_right_sides_are_as_they_were(calls: Iterable[int], least: int) -> None:
    matrices, failed = Matrices("float64"), 0
    original, right = np.asfortranarray(matrices.general(N, N)), matrices.general(N)
    for k in calls:
        if failed == least:
            return
        device = small(CAPACITY * 2)
        A, x, ipiv = original.copy("F"), right.copy(), np.empty(N, np.int32)
        testing.fail_call(device, k)
        try:
            lapack.gesv(A, ipiv, x, devices=[device])
        except OffloadError as error:
            failed += 1
            assert np.array_equal(x, right)
            assert {"lapack.gesv: A and ipiv are undefined", "lapack.gesv: A has its factors, B is as it was"} & {
                *error.__notes__
            }
        else:
            assert matrices.near(original @ x, right)
        finally:
            testing.sim_device()
    assert failed == least


def test_two_devices_finish_each_tile_at_once() -> None:
    matrices = Matrices("float64")
    H, right = matrices.definite(N), matrices.general(N)
    A, x = H.copy(), right.copy()
    small()
    testing.sim_device(capacity=CAPACITY, index=1)
    lapack.posv(A, x, devices=["sim:0", "sim:1"])
    testing.sim_device()
    testing.sim_device(index=1)
    assert matrices.near(H @ x, right)


@pytest.mark.later(but="U")
@pytest.mark.parametrize("uplo", ["U", "L"])
def test_a_matrix_that_is_not_definite_leaves_the_right_sides(uplo: str) -> None:
    matrices = Matrices("float64")
    H, right = matrices.definite(N), matrices.general(N)
    H[100, 100] = -1
    A, x = H.copy(), right.copy()
    with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.posv: A is not positive .* order 101") as caught:
        lapack.posv(A, x, uplo=uplo, devices=[small()])
    testing.sim_device()
    done = finished(caught.value, "lapack.posv", A=A)["A"]
    own = triangle(N, uplo) & done
    own[100:, 100:] = False
    factor = scipy.linalg.cholesky(H[:100, :100], lower=uplo == "L")
    assert np.array_equal(x, right) and np.array_equal(A[~done], H[~done])
    assert done.any() and np.allclose(A[:100, :100][own[:100, :100]], factor[own[:100, :100]])


@failing
def test_after_a_failing_call_finished_tiles_are_named(calls: Iterable[int], least: int) -> None:
    matrices, failed = Matrices("float64"), 0
    H, right = matrices.definite(N), matrices.general(N)
    factor, solution = scipy.linalg.cholesky(H), np.linalg.solve(H, right)
    upper = triangle(N, "U")
    for k in calls:
        if failed == least:
            return
        device = small(index=1)  # its copies may be slower after failures
        A, x = H.copy(), right.copy()
        testing.fail_call(device, k)
        try:
            lapack.posv(A, x, devices=[device])
        except OffloadError as error:
            failed += 1
            done = finished(error, "lapack.posv", A=A, B=x[:, np.newaxis])
            assert np.allclose(A[done["A"] & upper], factor[done["A"] & upper])
            assert np.array_equal(A[~done["A"]], H[~done["A"]])
            rows = done["B"][:, 0]
            assert np.allclose(x[rows], solution[rows]) and np.array_equal(x[~rows], right[~rows])
        finally:
            testing.sim_device(index=1)
    assert failed == least


def test_ctrl_c_names_the_finished_tiles() -> None:
    H = Matrices("float64").definite(N)
    device = small(delay_us=300)
    A, factor = H.copy(), scipy.linalg.cholesky(H)

    def interrupt() -> None:
        while np.array_equal(A, H):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    (thread := threading.Thread(target=interrupt)).start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            lapack.potrf(A, devices=[device])
            thread.join()
            time.sleep(60)  # the interrupt comes here if the factorization was faster
    finally:
        testing.sim_device()
    if getattr(caught.value, "__notes__", ()):
        done = finished(caught.value, "lapack.potrf", A=A)["A"]
        upper = triangle(N, "U") & done
        assert done.any() and np.allclose(A[upper], factor[upper]) and np.array_equal(A[~done], H[~done])
