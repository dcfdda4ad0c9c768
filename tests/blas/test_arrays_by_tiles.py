"""Level 3 of arrays, with devices: by tiles, under the transfers, on several devices, and larger than a device.

Most matrices have small whole numbers, so that every sum is exact, and results equal NumPy's bit for bit.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import HIP, here, open_or_skip
from helpers.small_tiles import finished, small_device, small_tiles
from offload_args import Device, In, Out, Scratch, blas, call, lapack, offload_args, testing
from offload_args.blas import tiles
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    HostAccessError,
    OffloadError,
    PresentError,
)

__all__ = ["small_device", "small_tiles"]

DTYPES = ("float32", "float64", "complex64", "complex128")
ORDERS = ("CC", "FF", "CF", "FC")  # of A, and of the result
Matrix = NDArray[Any]


@pytest.fixture(params=here("host", "sim:0", "cuda:0", HIP))
def on(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


def is_complex(dtype: str) -> bool:
    return np.dtype(dtype).kind == "c"


def whole(shape: tuple[int, int], dtype: str, order: Any = "C", seed: int = 0) -> Matrix:
    """Return a matrix of small whole numbers."""
    random = np.random.default_rng([*shape, seed])
    values: Matrix = random.integers(-3, 4, shape).astype(float)
    if is_complex(dtype):
        values = values + 1j * random.integers(-3, 4, shape)
    return np.asarray(values, dtype, order=order)


def triangle(n: int, uplo: str, k: int = 0) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.triu(np.ones((n, n), bool), k)
    return mask if uplo == "U" else mask.T


def without(A: Matrix, uplo: str, diag: str = "N") -> tuple[Matrix, Matrix]:
    """Return A with NaN where it is not read, and the triangle."""
    read = triangle(len(A), uplo, diag == "U")
    stored = A.copy(order="K")
    stored[~read] = np.nan
    values = np.where(read, A, 0)
    if diag == "U":
        np.fill_diagonal(values, 1)
    return stored, values


def op(A: Matrix, trans: str) -> Matrix:
    return {"N": A, "T": A.T, "C": A.conj().T}[trans]


def check_symmetric(device: Any, name: str, dtype: str, orders: str, sizes: tuple[int, int, int], side: str) -> None:
    m, n, _ = sizes
    order = m if side == "L" else n
    for uplo, beta in (("U", 3.0), ("L", 0.0)):
        A, half = without(whole((order, order), dtype, orders[0]), uplo)
        B, C = (whole((m, n), dtype, orders[1], seed) for seed in (1, 2))
        S = half + op(half, "C" if name == "hemm" else "T")
        np.fill_diagonal(S, half.diagonal().real if name == "hemm" else half.diagonal())
        expected = 2 * (S @ B if side == "L" else B @ S) + beta * C
        C = C if beta else np.full_like(C, np.nan)
        getattr(blas, name)(2.0, A, B, beta, C, side=side, uplo=uplo, devices=[device])
        assert np.array_equal(C, expected.astype(dtype))


def check_rank(device: Any, name: str, dtype: str, orders: str, sizes: tuple[int, int, int], trans: str) -> None:
    (_, n, k), is_hermitian = sizes, name.startswith("he")
    if is_complex(dtype) and trans == ("T" if is_hermitian else "C"):
        return
    turn = "C" if is_hermitian else "T"
    A, B = (whole((n, k) if trans == "N" else (k, n), dtype, orders[0], seed) for seed in (1, 2))
    alpha = 2.0 + 1j if is_complex(dtype) and name != "herk" else 2.0
    left, right = (op(A, "N" if trans == "N" else turn), op(A, turn if trans == "N" else "N"))
    if name.endswith("2k"):
        b_left, b_right = (op(B, "N" if trans == "N" else turn), op(B, turn if trans == "N" else "N"))
        product = alpha * (left @ b_right) + (np.conj(alpha) if is_hermitian else alpha) * (b_left @ right)
        operands = [A, B]
    else:
        product, operands = alpha * (left @ right), [A]
    for uplo, beta in (("U", 3.0), ("L", 0.0)):
        C = whole((n, n), dtype, orders[1], 3)
        np.fill_diagonal(C, C.diagonal().real)
        written = triangle(n, uplo)
        C[~written] = np.nan
        expected = np.where(written, product + beta * np.nan_to_num(C), np.nan)
        getattr(blas, name)(alpha, *operands, beta, C, uplo=uplo, trans=trans, devices=[device])
        assert np.array_equal(C[written], expected[written].astype(dtype))
        assert np.isnan(C[~written]).all()


def check_triangular(device: Any, name: str, dtype: str, orders: str, sizes: tuple[int, int, int], side: str) -> None:
    m, n, _ = sizes
    order = m if side == "L" else n
    for uplo, trans, diag in itertools.product("UL", "NTC", "NU"):
        A, B = whole((order, order), dtype, orders[0]), whole((m, n), dtype, orders[1], 1)
        if name == "trsm":  # few elements beside powers of two: the solution is exact
            A *= np.random.default_rng(5).random(A.shape) < 1 / order
            np.fill_diagonal(A, np.random.default_rng(6).choice([1, -1, 0.5], order))
        A, T = without(A, uplo, diag)
        T = op(T, trans)
        if name == "trmm":
            expected = 2 * (T @ B if side == "L" else B @ T)
        else:
            solve = np.linalg.solve
            wide = np.clongdouble if is_complex(dtype) else np.longdouble
            expected = 2 * (solve(T, B) if side == "L" else solve(T.T, B.T).T)
            residual = (T.astype(wide) @ expected if side == "L" else expected @ T.astype(wide)) - 2 * B.astype(wide)
            assert np.abs(residual).max() < 1e-3
        getattr(blas, name)(2.0, A, B, side=side, uplo=uplo, trans=trans, diag=diag, devices=[device])
        if name == "trmm":
            assert np.array_equal(B, expected.astype(dtype))
        else:
            bound = 100 * float(np.finfo(dtype).eps) * max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(B, expected, rtol=0, atol=bound)


CHECKS = {
    "symm": (check_symmetric, "LR"),
    "hemm": (check_symmetric, "LR"),
    "syrk": (check_rank, "NTC"),
    "herk": (check_rank, "NTC"),
    "syr2k": (check_rank, "NTC"),
    "her2k": (check_rank, "NTC"),
    "trmm": (check_triangular, "LR"),
    "trsm": (check_triangular, "LR"),
}
CALLS = [(name, option) for name, (_, options) in CHECKS.items() for option in options]


# CI has each dtype and each order of each call, and the exhaustive run all combinations.
TILED = [
    pytest.param(
        *chosen, DTYPES[k], ORDERS[o],
        marks=pytest.mark.exhaustive if (at + k + o) % 4 else (), id="-".join([*chosen, DTYPES[k], ORDERS[o]]),
    )
    for at, chosen in enumerate(CALLS) for k in range(4) for o in range(4)
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "dtype", "orders"), TILED)
def test_results_by_tiles_are_numpys(
    on: str, name: str, option: str, dtype: str, orders: str, small_tiles: None
) -> None:
    CHECKS[name][0](on, name, dtype, orders, (23, 31, 26), option)


@pytest.mark.exhaustive
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "option"), CALLS)
def test_results_of_other_shapes_are_numpys(
    on: str, name: str, option: str, dtype: str, orders: str, small_tiles: None
) -> None:
    for sizes in ((1, 40, 7), (40, 1, 0), (9, 8, 1), (64, 17, 100), (3, 2, 5)):
        CHECKS[name][0](on, name, dtype, orders, sizes, option)


# CI has float64 and another dtype of each call.
LARGER = [
    pytest.param(*chosen, dtype, marks=pytest.mark.exhaustive if k < 3 and (at + k) % 3 else ())
    for at, chosen in enumerate(CALLS)
    for k, dtype in enumerate(("float32", "complex64", "complex128", "float64"))
]


@pytest.mark.later(but="float64")
@pytest.mark.parametrize(("name", "option", "dtype"), LARGER)
def test_operands_may_be_larger_than_the_device(small_device: Device, name: str, option: str, dtype: str) -> None:
    size = {"float32": 540, "float64": 380, "complex64": 380, "complex128": 270}[dtype]
    if name in ("trmm", "trsm"):
        A, B = np.eye(size, dtype=dtype) * 2, whole((size, size), dtype)
        A[0, -1] = A[-1, 0] = 1
        T = np.triu(A)
        factor = T if name == "trmm" else np.linalg.inv(T)
        expected = factor @ B if option == "L" else B @ factor
        getattr(blas, name)(1.0, A, B, side=option, devices=[small_device])
        assert np.array_equal(B, expected.astype(dtype))
    else:
        CHECKS[name][0](small_device, name, dtype, "CC", (size, size, size), option)


def test_call_computes_by_tiles_if_the_arrays_do_not_fit(small_device: Device) -> None:
    A, B, C = whole((380, 380), "float64"), whole((380, 300), "float64", seed=1), np.full((380, 380), np.nan)
    call(blas.syrk, 1.0, In(A), 0.0, C, device=small_device, uplo="L")
    assert np.array_equal(C[triangle(380, "L")], (A @ A.T)[triangle(380, "L")])
    D = np.full((380, 300), np.nan)
    call(blas.gemm, 1.0, In(A), B, 0.0, Out(D), device=small_device)
    assert np.array_equal(D, A @ B)
    S, x = A + 4000 * np.eye(380), np.ones(380)
    call(lapack.gesv, S.copy(), Scratch(380, np.int32), x, device=small_device)
    assert np.allclose(S @ x, 1)
    with pytest.raises(DeviceMemoryError):
        call(blas.syrk, 1.0, A, 0.0, In(C), device=small_device)
    with pytest.raises(DeviceMemoryError):  # by tiles it would read an Out
        call(blas.gemm, 1.0, A, B, 1.0, Out(D), device=small_device)
    assert np.array_equal(D, A @ B)
    with pytest.raises(DTypeError, match=r"^blas\.syrk: C needs np\.float64 as A has"):
        call(blas.syrk, 1.0, A, 0.0, C.astype(np.float32), device=small_device)


@pytest.mark.parametrize("name", ["gemm", "syrk", "trsm", "posv", "gesv"])
def test_the_error_of_a_region_that_is_too_large_names_functions_by_tiles(small_device: Device, name: str) -> None:
    A = np.ones((380, 380))
    with pytest.raises(DeviceMemoryError, match=rf"with devices=\[...\], .*\b{name}\b"):
        with offload_args(A, device=small_device):
            pass


def test_arrays_of_any_strides(on: str, small_tiles: None) -> None:
    big = whole((90, 120), "float64")
    for part in (big[::2, ::3], big[::-1, :40], big[5:50, 7:40], big.T[::2, 20:60], big[:45, ::-2]):
        C = np.full((2 * len(part), 3 * len(part)), np.nan)
        results = (C[::2, ::3], C[::-2, 1::3], C[: len(part), : len(part)], C.T[-len(part) :, : len(part)])
        for result in results:
            C[...] = np.nan
            blas.syrk(1.0, part, 0.0, result, uplo="L", devices=[on])
            lower = triangle(len(part), "L")
            assert np.array_equal(result[lower], (part @ part.T)[lower])
            assert np.isnan(C).sum() == C.size - lower.sum()


def test_a_memmap_is_computed_in_its_file(on: str, small_tiles: None, tmp_path: Any) -> None:
    A = np.memmap(tmp_path / "A", np.float64, "w+", shape=(40, 40))
    B = np.memmap(tmp_path / "B", np.float64, "w+", shape=(40, 30))
    A[...], B[...] = np.eye(40) * 2, 6
    blas.trsm(1.0, A, B, devices=[on])
    B.flush()
    assert (np.fromfile(tmp_path / "B") == 3).all()


def test_an_alpha_of_zero_reads_no_matrix(on: str, small_tiles: None) -> None:
    A, B, C = np.full((30, 30), np.nan), np.full((30, 30), np.nan), np.ones((30, 30))
    blas.trsm(0.0, A, B, devices=[on])
    assert not B.any()
    B[...] = np.nan
    blas.trmm(0.0, A, B, devices=[on])
    assert not B.any()
    blas.syrk(0.0, A, 2.0, C, devices=[on])
    assert np.array_equal(C, np.where(triangle(30, "U"), 2, 1))
    for side in "LR":
        C[...] = 1
        blas.symm(0.0, A, A.copy(), 2.0, C, side=side, devices=[on])
        assert (C == 2).all()


def test_no_elements_and_nothing_to_sum(on: str, small_tiles: None) -> None:
    C = np.full((20, 20), 3.0)
    for beta, expected in ((2.0, 6.0), (0.0, 0.0)):
        C[...] = 3
        blas.syrk(1.0, np.empty((20, 0)), beta, C, devices=[on])
        assert np.array_equal(C, np.where(triangle(20, "U"), expected, 3))
    blas.syrk(1.0, np.empty((0, 4)), 0.0, np.empty((0, 0)), devices=[on])
    blas.trsm(1.0, np.empty((0, 0)), np.empty((0, 4)), devices=[on])
    blas.trsm(1.0, np.empty((4, 4)), np.empty((4, 0)), devices=[on])
    blas.symm(1.0, np.empty((4, 4)), np.empty((4, 0)), 0.0, np.empty((4, 0)), devices=[on])


def test_operands_that_are_read_may_share_memory(on: str, small_tiles: None) -> None:
    A, C = whole((40, 40), "float64"), np.zeros((30, 30))
    blas.syr2k(1.0, A[:30, :20], A[5:35, 10:30], 0.0, C, devices=[on])
    product = A[:30, :20] @ A[5:35, 10:30].T
    assert np.array_equal(C, np.triu(product + product.T))
    blas.symm(1.0, A[:30, :30], A[10:, 10:], 0.0, C, devices=[on])
    S = np.triu(A[:30, :30]) + np.triu(A[:30, :30], 1).T
    assert np.array_equal(C, S @ A[10:, 10:])


def test_lent_arrays_have_the_devices_elements(on: str, small_tiles: None) -> None:
    A, B = np.eye(30) * 2.0, whole((30, 20), "float64")
    before = B.copy()
    with offload_args(A, B, device=on) as (dA, dB):
        blas.scal(2.0, dA.reshape(-1))  # the host has the older elements
        blas.trsm(1.0, A, B, devices=[on])
        blas.scal(2.0, dB.reshape(-1))
    assert np.array_equal(B, before / 2)
    C = np.ones((30, 30))
    with offload_args(In(A), C, device=on) as (_, dC):
        blas.scal(3.0, dC.reshape(-1))
        blas.syrk(1.0, A, 1.0, C, devices=[on])
    assert np.array_equal(C, np.where(triangle(30, "U"), A @ A.T + 3, 3))


@pytest.mark.promise("T80")
@pytest.mark.parametrize("name", ["syrk", "potrf"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_host_may_write_the_other_triangle_meanwhile(name: str, order: Any, small_tiles: None) -> None:
    A, C = whole((40, 7), "float64"), np.asarray(np.eye(40), order=order)
    expected = C + A @ A.T if name == "syrk" else C.copy()
    with slow_sim() as device, _computing(device, name, A, C):
        C[triangle(40, "L", 1)] = 5
    assert np.array_equal(C, np.where(triangle(40, "U"), expected, 5))


@pytest.mark.promise("T80")
@pytest.mark.parametrize("order", ["C", "F"])
def test_another_thread_may_write_the_other_triangle_of_a_lent_array(order: Any, small_tiles: None) -> None:
    A, B, C = whole((40, 7), "float64"), whole((39, 7), "float64", seed=1), np.zeros((40, 40), order=order)
    with slow_sim() as device, offload_args(In(B), C, device=device) as (dB, dC):
        with _computing(device, "syrk", A, C):
            blas.syrk(1.0, dB, 1.0, dC[1:, :-1], uplo="L")  # the elements below C's diagonal
    expected = np.triu(A @ A.T)
    expected[1:, :-1] += np.tril(B @ B.T)
    assert np.array_equal(C, expected)


def test_strips_of_a_triangle_have_all_its_elements(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_STRIP", 7 * 40 * 8)
    A = whole((40, 7), "float64")
    for uplo, order in itertools.product("UL", "CF"):
        C = np.full((40, 40), np.nan, order=order)
        blas.syrk(1.0, A, 0.0, C, uplo=uplo, devices=[on])
        np.testing.assert_array_equal(C, np.where(triangle(40, uplo), A @ A.T, np.nan))


@contextmanager
def slow_sim() -> Iterator[Device]:
    """Yield a device whose calls take so long that other calls are made meanwhile."""
    yield testing.sim_device(delay_us=3000)
    testing.sim_device()


@contextmanager
def _computing(device: Device, name: str, A: Matrix, C: Matrix) -> Iterator[None]:
    """Compute the upper triangle of C by tiles on another thread; the block runs after the first tile went up."""
    before = device.counters.calls
    work = (
        (lambda: blas.syrk(1.0, A, 1.0, C, devices=[device]))
        if name == "syrk"
        else (lambda: lapack.potrf(C, uplo="U", devices=[device]))
    )
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        while device.counters.calls == before and not done.done():
            time.sleep(0)
        yield
        done.result()


def test_an_array_that_is_lent_in_part_is_refused(on: str) -> None:
    A, B = np.eye(30), np.ones((30, 20))
    with offload_args(B[:10], device=on):
        with pytest.raises(PresentError, match=r"^blas\.trsm: some of B is lent; leave that region first"):
            blas.trsm(1.0, A, B, devices=[on])
    with offload_args(A[:, :4], device=on):
        with pytest.raises(PresentError, match=r"^blas\.trsm: some of A is lent"):
            blas.trsm(1.0, A, B, devices=[on])
        blas.trsm(1.0, A[4:, 4:], B[4:], devices=[on])
    assert (B == 1).all()


def test_an_array_that_is_lent_as_in_is_not_written(on: str, small_tiles: None) -> None:
    A, B = np.eye(30), np.ones((30, 20))
    with offload_args(In(B), device=on):
        with pytest.raises(DirectionError, match=r"B"):
            blas.trsm(1.0, A, B, devices=[on])
    assert (B == 1).all()


def test_several_devices_share_the_tiles(small_tiles: None) -> None:
    devices = [open_or_skip("sim:0"), open_or_skip("sim:1")]
    for name in devices:
        testing.sim_device(delay_us=2000, index=int(name[-1]))  # neither is done before the other one begins
    try:
        before = [Device(name).counters.calls for name in devices]
        for _ in range(20):  # on a busy machine, one may be done earlier
            A, B = whole((60, 60), "float64"), whole((60, 50), "float64")
            expected = np.tril(A) @ B
            blas.trmm(1.0, A, B, uplo="L", devices=devices)
            assert np.array_equal(B, expected)
            after = [Device(name).counters.calls for name in devices]
            if all(now > then for now, then in zip(after, before, strict=True)):
                break
        assert all(now > then for now, then in zip(after, before, strict=True))
    finally:
        for name in devices:
            testing.sim_device(index=int(name[-1]))


@pytest.mark.later(but="syrk")
@pytest.mark.promise("T76")
# If no event can be made, copies are slower, but nothing fails.
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["syrk", "symm", "trmm", "trsm"])
def test_an_error_names_the_finished_tiles(name: str, step: int, small_tiles: None) -> None:
    A, B = np.eye(50) * 2 + np.diag(np.ones(40), 10), whole((50, 50), "float64")
    C = B.copy()
    expected = {
        "syrk": np.where(triangle(50, "U"), A @ A.T, C),
        "symm": (A + np.diag(np.ones(40), -10)) @ B,
        "trmm": A @ B,
        "trsm": np.linalg.solve(A, B),
    }[name]
    operands = {"syrk": [A, 0.0, C], "symm": [A, B, 0.0, C], "trmm": [A, C], "trsm": [A, C]}[name]
    result, before, failed, passed = "C" if name in ("syrk", "symm") else "B", C.copy(), 0, 0
    for k in range(1, 300, step):
        testing.sim_device()
        C[...] = before
        testing.fail_call("sim:0", k)
        try:
            getattr(blas, name)(1.0, *operands, devices=["sim:0"])
        except OffloadError as error:
            failed, passed = failed + 1, 0
            done = finished(error, f"blas.{name}", **{result: C})[result]
            assert np.allclose(C[done], expected[done]) and np.array_equal(C[~done], before[~done])
        else:
            assert np.allclose(C, expected)
            passed += step
            if passed > 60:  # there is no k-th call
                break
        finally:
            testing.sim_device()
    assert failed >= 3


@pytest.mark.promise("T76")
def test_ctrl_c_between_tiles_names_the_finished_ones(small_tiles: None) -> None:
    testing.sim_device(delay_us=2000)
    A, B = np.eye(200), np.full((200, 180), 2.0)

    def interrupt() -> None:
        while (B != 4).all():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    (thread := threading.Thread(target=interrupt)).start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            blas.trmm(2.0, A, B, devices=["sim:0"])
            thread.join()
            time.sleep(60)  # the interrupt comes here if the product was faster
    finally:
        testing.sim_device()
    if getattr(caught.value, "__notes__", ()):
        done = finished(caught.value, "blas.trmm", B=B)["B"]
        assert done.any() and (B[done] == 4).all() and (B[~done] == 2).all()


@pytest.mark.promise("T76")
def test_another_ctrl_c_does_not_leave_tiles_under_way(small_tiles: None) -> None:
    device = testing.sim_device(delay_us=3000)
    A, came = np.eye(200), list[int]()

    def handle(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "trmm":
            frame = frame.f_back
        if frame is not None:
            came.append(number)
            raise KeyboardInterrupt

    def interrupt(ends: threading.Event, calls: int) -> None:
        while testing.backend_calls("sim:0") < calls:
            time.sleep(0.001)
        while not ends.wait(0.002):
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.signal(signal.SIGINT, handle)
    try:
        for _ in range(20):  # on a busy machine, the second Ctrl-C may come too late
            came.clear()
            B, ends = np.full((200, 180), 2.0), threading.Event()
            thread = threading.Thread(target=interrupt, args=(ends, testing.backend_calls("sim:0") + 20))
            thread.start()
            try:
                with pytest.raises(KeyboardInterrupt) as caught:
                    blas.trmm(2.0, A, B, devices=["sim:0"])
                counters, after = device.counters, B.copy()
            finally:
                ends.set()
                thread.join()
            done = finished(caught.value, "blas.trmm", B=B)["B"]
            assert (after[done] == 4).all() and (after[~done] == 2).all() and np.array_equal(B, after)
            assert counters.mappings == 0
            if len(came) > 1:
                break
    finally:
        signal.signal(signal.SIGINT, handler)
        testing.sim_device()
    assert len(came) > 1


def test_a_result_whose_elements_overlap_is_refused(on: str) -> None:
    A, memory = np.eye(6), np.ones(20)
    for strides in ((0, 8), (8, 0), (8, 8), (-8, 16)):
        B = np.lib.stride_tricks.as_strided(memory[8:], (6, 6), strides)
        for name, arguments in (("trmm", (1.0, A, B)), ("syrk", (1.0, A, 0.0, B)), ("gemm", (1.0, A, A, 0.0, B))):
            with pytest.raises(AliasError, match=rf"^blas\.{name}: two indices of [BC] name the same element, with st"):
                getattr(blas, name)(*arguments, devices=[on])
    assert (memory == 1).all()
    C = np.empty((6, 6))
    blas.syrk(1.0, np.broadcast_to(1.0, (6, 4)), 0.0, C, devices=[on])
    assert (C[triangle(6, "U")] == 4).all()


def test_wrong_arguments_are_named(on: str) -> None:
    A, B, C = np.eye(4), np.ones((4, 5)), np.zeros((4, 5))
    read_only = np.zeros((4, 5))
    read_only.flags.writeable = False
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ArgumentTypeError, r"devices needs a list of devices, got 'host'; write \['host'\]", {"devices": "host"}),
        (ArgumentError, r"devices needs one device at least, got none", {"devices": []}),
        (ArgumentTypeError, r"B needs a NumPy array, got list", {"B": [[1.0]]}),
        (ArgumentError, r"A has shape \(4,\), needs 2 dimensions", {"A": np.ones(4)}),
        (DTypeError, r"A needs float32, .* got int64; convert it first", {"A": np.eye(4, dtype=np.int64)}),
        (DTypeError, r"C needs np\.float64 as A has, got float32", {"C": np.zeros((4, 5), np.float32)}),
        (ArgumentError, r"A has shape \(4, 4\), needs \(5, 5\) for C of shape \(4, 5\) and side=\"R\"", {"side": "R"}),
        (ArgumentError, r"B has shape \(4, 4\), needs \(4, 5\) for C of shape", {"B": B[:, :4]}),
        (DirectionError, r"C is read-only", {"C": read_only}),
        (AliasError, r"C shares memory with B", {"B": C}),
        (ArgumentTypeError, r"with devices, beta needs a number, got '0'", {"beta": "0"}),
        (DTypeError, r"alpha needs a real number for float64, got 1j", {"alpha": 1j}),
        (ArgumentError, r"uplo must be \"U\" or \"L\", got 'X'", {"uplo": "X"}),
    ]
    for error, words, changed in wrong:
        arguments: dict[str, Any] = {"alpha": 1.0, "A": A, "B": B, "beta": 0.0, "C": C, "devices": [on], **changed}
        with pytest.raises(error, match=rf"^blas\.symm: {words}"):
            blas.symm(**arguments)
    with offload_args(A, device=on) as (dA,):
        with pytest.raises(HostAccessError, match=r"^blas\.trsm: with devices, A needs a NumPy array, got a DevicePtr"):
            blas.trsm(1.0, dA, B, devices=[on])
    Z = np.zeros((4, 4), complex)
    with pytest.raises(DTypeError, match=r"^blas\.herk: alpha needs a real number for float64, got 1j"):
        blas.herk(1j, Z, 0.0, Z.copy(), devices=[on])
    with pytest.raises(ArgumentError, match=r'^blas\.syrk: trans must be "N" or "T", got \'C\''):
        blas.syrk(1.0, Z, 0.0, Z.copy(), trans="C", devices=[on])
    with pytest.raises(ArgumentError, match=r"^blas\.syrk: C has shape \(4, 5\), needs as many rows as columns"):
        blas.syrk(1.0, A, 0.0, C, devices=[on])
    assert not C.any()


def test_no_space_for_the_smallest_tiles_is_told() -> None:
    testing.sim_device(capacity=8192)
    words = r"^blas\.trsm: the smallest tiles need 18432 bytes on each of sim:0, and one has"
    with pytest.raises(DeviceMemoryError, match=words):
        blas.trsm(1.0, np.eye(60), np.ones((60, 60)), devices=["sim:0"])
    testing.sim_device()
