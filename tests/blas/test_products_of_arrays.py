"""`blas.gemm` of arrays with `devices`: by parts, during transfers, on several devices, and larger than a device."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import HIP, here, open_or_skip
from helpers.processes import printed
from helpers.residency import ramp
from offload_args import Device, In, blas, linalg, offload_args, testing
from offload_args.blas import streamed
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    HostAccessError,
    OffloadError,
)
from offload_args.linalg import products as linalg_products

DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(params=here("host", "sim:0", "cuda:0", HIP))
def on(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the parts so small that small products have many."""
    monkeypatch.setattr(streamed, "_LEAST", 8)
    monkeypatch.setattr(streamed, "_PART", 512)
    monkeypatch.setattr(streamed, "_UNIT", 1)


@pytest.fixture
def small_device() -> Iterator[Device]:
    """A device that has 64 KiB."""
    yield testing.sim_device(capacity=64 << 10)
    testing.sim_device()


def numbers(shape: tuple[int, int], dtype: str, order: Any, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    values: NDArray[Any] = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.standard_normal(shape)
    if order == "-":  # gaps along both axes
        wide = np.zeros((2 * shape[0], 3 * shape[1]), dtype, order="F")
        wide[::2, ::3] = values
        return wide[::2, ::3]
    return np.asarray(values, dtype, order=order)


def operation(array: NDArray[Any], trans: str) -> NDArray[Any]:
    wide: NDArray[Any] = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return {"N": wide, "T": wide.T, "C": wide.conj().T}[trans]


def check(device: Any, dtype: str, sizes: tuple[int, int, int], trans: str, order: str, beta: float) -> None:
    (m, n, k), (trans_a, trans_b) = sizes, trans
    order_a, order_b, order_c = order if len(order) == 3 else order * 3
    A = numbers((m, k) if trans_a == "N" else (k, m), dtype, order_a, 1)
    B = numbers((k, n) if trans_b == "N" else (n, k), dtype, order_b, 2)
    C = numbers((m, n), dtype, order_c, 3)
    expected = 1.5 * (operation(A, trans_a) @ operation(B, trans_b))
    if beta:
        expected = expected + beta * operation(C, "N")
    else:
        C[...] = np.nan
    blas.gemm(1.5, A, B, beta, C, trans_a=trans_a, trans_b=trans_b, devices=[device])
    bound = (k + 4) * np.finfo(dtype).eps * np.abs(expected).max(initial=1) * 4
    np.testing.assert_allclose(C, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_by_parts_are_numpys(on: str, dtype: str, order: str, small_parts: None) -> None:
    for trans in map("".join, itertools.product("NTC", repeat=2)):
        for sizes, beta in (((37, 70, 19), 0.0), ((70, 37, 19), 0.5), ((5, 3, 1), 0.5)):
            check(on, dtype, sizes, trans, order, beta)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_conjugate_transpose_may_have_another_order_than_the_result(on: str, dtype: str, small_parts: None) -> None:
    for orders in ("CCF", "CFC", "FCC", "CFF", "FCF", "FFC", "CC-", "C-F", "-FF"):
        for trans in ("CN", "NC", "CC", "TC", "CT"):
            check(on, dtype, (37, 30, 19), trans, orders, 0.5)


@pytest.mark.later("host")
def test_products_of_usual_parts_are_numpys(on: str) -> None:
    for sizes in ((1200, 900, 70), (900, 1200, 70), (1, 3000, 2)):
        for order in "CF":
            check(on, "float32", sizes, "NN", order, 0.0)


@pytest.mark.later(but="float32")
@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_may_be_larger_than_the_device(small_device: Device, dtype: str) -> None:
    for trans in map("".join, itertools.product("NTC", repeat=2)):
        check(small_device, dtype, (150, 133, 170), trans, "C", 0.5)
    check(small_device, dtype, (150, 133, 170), "NN", "F", 0.0)
    for beta in (0.0, 0.5):
        check(small_device, dtype, (150, 133, 0), "NN", "C", beta)


def test_nothing_to_sum_and_no_elements(on: str) -> None:
    for beta, expected in ((0.0, 0.0), (2.0, 6.0)):
        C = np.full((3, 4), 3.0)
        blas.gemm(1.0, np.empty((3, 0)), np.empty((0, 4)), beta, C, devices=[on])
        assert np.array_equal(C, np.full((3, 4), expected))
    blas.gemm(1.0, np.empty((0, 5)), np.empty((5, 4)), 0.0, np.empty((0, 4)), devices=[on])


def test_all_devices_of_a_list_compute(small_parts: None) -> None:
    devices = [open_or_skip("sim:0"), open_or_skip("sim:1")]
    A, B, C = numbers((400, 30), "float64", "C", 1), numbers((30, 40), "float64", "C", 2), np.empty((400, 40))
    for name in devices:
        testing.sim_device(delay_us=1000, index=int(name[-1]))  # neither device finishes before the other one begins
    before = [Device(name).counters.calls for name in devices]
    for _ in range(20):  # on a busy machine, one may finish earlier
        C[...] = np.nan
        blas.gemm(1.0, A, B, 0.0, C, devices=devices)
        np.testing.assert_allclose(C, A @ B, atol=1e-12)
        after = [Device(name).counters.calls for name in devices]
        if all(now > then for now, then in zip(after, before, strict=True)):
            break
    for name in devices:
        testing.sim_device(index=int(name[-1]))
    assert all(now > then for now, then in zip(after, before, strict=True))


def test_arrays_may_be_lent_already(on: str, small_parts: None) -> None:
    A, B, C = numbers((60, 30), "float64", "C", 1), numbers((30, 40), "float64", "C", 2), np.full((60, 40), np.nan)
    with offload_args(In(A), C, device=on) as (_, dC):
        blas.gemm(1.0, A, B, 0.0, C, devices=[on])
        blas.scal(2.0, dC.reshape(-1))
    np.testing.assert_allclose(C, 2 * (A @ B), atol=1e-12)


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_lent_operand_needs_no_second_copy(by_rows: bool, small_parts: None) -> None:
    """The memory suffices for the lent operand and the parts, but for no other array of the operand's size."""
    wide, narrow = numbers((2000, 16), "float64", "C", 1), numbers((16, 16), "float64", "C", 2)
    arrays = {"A": wide, "B": narrow} if by_rows else {"A": narrow, "B": wide.T}
    C = np.zeros((2000, 16) if by_rows else (16, 2000), order="C" if by_rows else "F")
    device = testing.sim_device(capacity=400 << 10)
    with offload_args(In(arrays["A" if by_rows else "B"]), device=device):
        blas.gemm(1.0, arrays["A"], arrays["B"], 0.0, C, devices=[device])
    testing.sim_device()
    np.testing.assert_allclose(C, arrays["A"] @ arrays["B"])


def test_a_lent_operand_may_exceed_the_memory_of_another_device(small_parts: None) -> None:
    A, B = numbers((2000, 16), "float64", "C", 1), numbers((16, 16), "float64", "C", 2)
    C = np.zeros((2000, 16))
    holds, other = testing.sim_device(capacity=1 << 20), testing.sim_device(capacity=100 << 10, index=1)
    with offload_args(In(A), device=holds):
        blas.gemm(1.0, A, B, 0.0, C, devices=[holds, other])
    testing.sim_device()
    testing.sim_device(index=1)
    np.testing.assert_allclose(C, A @ B)


def test_a_lent_operand_of_all_parts_needs_no_second_copy_on_another_device(small_parts: None) -> None:
    """The other device has memory for this operand and a few parts, but not for two such operands."""
    A, B = numbers((64, 100), "float64", "C", 1), numbers((100, 400), "float64", "C", 2)
    C = np.zeros((64, 400))
    holds, other = testing.sim_device(capacity=1 << 20), testing.sim_device(capacity=550 << 10, index=1)
    with offload_args(In(B), device=holds):
        blas.gemm(1.0, A, B, 0.0, C, devices=[holds, other])
    testing.sim_device()
    testing.sim_device(index=1)
    np.testing.assert_allclose(C, A @ B)


def test_a_check_of_lent_operands_leaves_the_arrays_that_stay_on_the_device(small_parts: None) -> None:
    stays, A, B = ramp(500_000), numbers((12_000, 32), "float64", "C", 1), numbers((32, 32), "float64", "C", 2)
    C = np.zeros((12_000, 32))
    device = testing.sim_device(capacity=7 << 20)
    with offload_args(In(stays), device=device, resident=True) as (pointer,):
        blas.asum(pointer)
    with offload_args(In(A), device=device):
        blas.gemm(1.0, A, B, 0.0, C, devices=[device])
    with testing.counting(device) as moved, offload_args(In(stays), device=device, resident=True) as (pointer,):
        blas.asum(pointer)
    testing.sim_device()
    assert moved.bytes_up == 0
    np.testing.assert_allclose(C, A @ B)


def test_parts_of_larger_arrays_and_strides(on: str, small_parts: None) -> None:
    A, B, C = (numbers((90, 90), "float64", "C", seed) for seed in (1, 2, 3))
    before = C.copy()
    blas.gemm(1.0, A[5:65, 3:33], B[::3, 10:50], 0.0, C[20:80, 40:80], devices=[on])
    expected = before.copy()
    expected[20:80, 40:80] = A[5:65, 3:33] @ B[::3, 10:50]
    np.testing.assert_allclose(C, expected, atol=1e-12)


def test_operands_may_share_memory(on: str, small_parts: None) -> None:
    A, C = numbers((60, 60), "float64", "C", 1), np.empty((60, 60))
    for B in (A, A.T, A[::-1]):
        blas.gemm(1.0, A, B, 0.0, C, devices=[on])
        np.testing.assert_allclose(C, A @ B, atol=1e-12)
    blas.gemm(1.0, A[:50], A[:, 5:], 0.0, C[:50, :55], devices=[on])
    np.testing.assert_allclose(C[:50, :55], A[:50] @ A[:, 5:], atol=1e-12)
    blas.gemm(1.0, A[:30, :20], A[10:50, 30:50], 0.0, C[:30, :40], trans_b="T", devices=[on])
    np.testing.assert_allclose(C[:30, :40], A[:30, :20] @ A[10:50, 30:50].T, atol=1e-12)


def test_large_products_of_linalg_go_by_parts(monkeypatch: pytest.MonkeyPatch, small_parts: None) -> None:
    monkeypatch.setattr(linalg_products, "_LARGE", 1)
    monkeypatch.setattr(linalg_products, "_LEAST", 30)
    device = Device(open_or_skip("sim:0"))
    A, B = numbers((60, 30), "float32", "F", 1), numbers((30, 40), "complex128", "C", 2)
    for x1, x2, parts in ((A, B, 5), (A, A[:30, :20], 1), (A, B[:, :10], 1)):
        before = device.counters.copies_down
        product = linalg.matmul(x1, x2, device=device)
        assert product.dtype == np.result_type(x1, x2)
        np.testing.assert_allclose(product, x1 @ x2, atol=1e-4)
        assert (device.counters.copies_down - before > 1) == (parts > 1)
    before = device.counters.calls
    linalg.matmul(A, B, device="host")
    assert device.counters.calls == before


def test_wrong_arguments_are_named(on: str) -> None:
    A, B, C = np.ones((4, 3)), np.ones((3, 5)), np.zeros((4, 5))
    read_only = np.zeros((4, 5))
    read_only.flags.writeable = False
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ArgumentTypeError, r"devices needs a list of devices, got 'host'; write \['host'\]", {"devices": "host"}),
        (ArgumentError, r"devices needs one device at least, got none", {"devices": []}),
        (ArgumentError, r"devices needs each device once", {"devices": ["host", "host"]}),
        (ArgumentTypeError, r"B needs a NumPy array, got list", {"B": [[1.0]]}),
        (ArgumentError, r"A has shape \(4,\), needs 2 dimensions", {"A": np.ones(4)}),
        (DTypeError, r"A needs float32, .* got int64; convert it first", {"A": np.ones((4, 3), np.int64)}),
        (DTypeError, r"C needs np\.float64 as A has, got float32", {"C": np.zeros((4, 5), np.float32)}),
        (ArgumentError, r"A of shape \(4, 3\), B of shape \(3, 5\) and C of shape \(4, 4\) do not", {"C": C[:, :4]}),
        (DirectionError, r"C is read-only; pass a writable array", {"C": read_only}),
        (AliasError, r"C shares memory with A", {"A": C[:, :3]}),
        (ArgumentTypeError, r"with devices, beta needs a number, got '0'", {"beta": "0"}),
        (DTypeError, r"alpha needs a real number for float64, got 1j", {"alpha": 1j}),
        (ArgumentError, r"trans_a must be \"N\" or \"T\" or \"C\", got 'X'", {"trans_a": "X"}),
    ]
    for error, words, changed in wrong:
        arguments: dict[str, Any] = {"alpha": 1.0, "A": A, "B": B, "beta": 0.0, "C": C, "devices": [on], **changed}
        with pytest.raises(error, match=rf"^blas\.gemm: {words}"):
            blas.gemm(**arguments)
    with offload_args(A, device=on) as (dA,):
        with pytest.raises(HostAccessError, match=r"^blas\.gemm: with devices, A needs a NumPy array, got a DevicePtr"):
            blas.gemm(1.0, dA, B, 0.0, C, devices=[on])  # type: ignore[call-overload]
    assert not C.any()


@pytest.mark.promise("T75")
# If no event can be made, copies are slower, but nothing fails.
@pytest.mark.later("in tiles")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("capacity", [0, 64 << 10], ids=["in panels", "in tiles"])
def test_an_error_says_which_parts_are_done(capacity: int, small_parts: None) -> None:
    size = 120
    A, B = numbers((size, size), "float64", "C", 1), numbers((size, size), "float64", "C", 2)
    failed = 0
    for k in range(1, 80, 2):
        testing.sim_device(capacity=capacity)
        C = np.full((size, size), np.nan)
        testing.fail_call("sim:0", k)
        try:
            blas.gemm(1.0, A, B, 0.0, C, devices=["sim:0"])
        except OffloadError as error:
            failed += 1
            (note,) = (note for note in error.__notes__ if note.startswith("blas.gemm: done: "))
            there = np.zeros((size, size), bool)
            for name in note.removeprefix("blas.gemm: done: ").partition(";")[0].split(", C"):
                if name != "nothing":
                    rows, columns = (slice(*map(int, s.split(":"))) if s != ":" else slice(None)
                                     for s in name.strip("C[]").split(", "))  # fmt: skip
                    there[rows, columns] = True
            assert np.allclose(C[there], (A @ B)[there]) and np.isnan(C[~there]).all()
        finally:
            testing.sim_device()
    assert failed >= 3


@pytest.mark.promise("T75")
def test_ctrl_c_ends_after_the_parts_that_are_under_way(small_parts: None) -> None:
    testing.sim_device(delay_us=50_000)
    A, B, C = np.ones((9000, 30)), np.ones((30, 40)), np.full((9000, 40), np.nan)

    def interrupt() -> None:
        while np.isnan(C[0, 0]):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    (thread := threading.Thread(target=interrupt)).start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            blas.gemm(1.0, A, B, 0.0, C, devices=["sim:0"])
            thread.join()
            time.sleep(60)  # the interrupt comes here if the product was faster
    finally:
        testing.sim_device()
    assert any(note.startswith("blas.gemm: done: C[") for note in getattr(caught.value, "__notes__", ()))
    rows = ~np.isnan(C).any(axis=1)
    assert rows.any() and not rows.all() and (C[rows] == 30).all() and np.isnan(C[~rows]).all()


def test_no_space_for_the_smallest_tiles_is_told() -> None:
    testing.sim_device(capacity=8192)
    words = r"^blas\.gemm: the smallest tiles need 9216 bytes on each of sim:0, and one has"
    with pytest.raises(DeviceMemoryError, match=words):
        blas.gemm(1.0, np.ones((60, 60)), np.ones((60, 60)), 0.0, np.empty((60, 60)), devices=["sim:0"])
    testing.sim_device()


def test_free_memory_is_within_the_limit() -> None:
    program = """if True:
        import numpy as np
        from offload_args import Device, blas
        free = Device("sim:0").memory.free
        assert free <= 65536, free
        A, B = np.random.default_rng(0).standard_normal((2, 150, 150))
        C = np.empty((150, 150))
        blas.gemm(1.0, A, B, 0.0, C, devices=["sim:0"])
        assert np.allclose(C, A @ B)
        print(Device("sim:0").counters.memory_peak <= 65536)
    """
    assert printed(program, OFFLOAD_ARGS_MEMORY_LIMIT="65536").strip() == "True"


@pytest.mark.later(but="shape1-sim:0")
@pytest.mark.parametrize("device", ["host", "sim:0"])
@pytest.mark.parametrize("shape", [(40_000, 64, 64), (64, 64, 40_000)])
def test_long_products_take_parts_within_the_limit(device: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    program = f"""if True:
        import numpy as np
        from offload_args import Device, blas
        random = np.random.default_rng(0)
        A, B, C = random.random(({m}, {k})), random.random(({k}, {n})), np.empty(({m}, {n}))
        if {n} > {m}:
            A, B, C = map(np.asfortranarray, (A, B, C))
        blas.gemm(1.0, A, B, 0.0, C, devices=["{device}"])
        assert np.allclose(C, A @ B)
        print(Device("{device}").counters.memory_peak <= 4 << 20 < C.nbytes)
    """
    assert printed(program, OFFLOAD_ARGS_MEMORY_LIMIT="4MiB").strip() == "True"


PARTS = {
    "whole": np.s_[:, :],
    "inner": np.s_[1:, 1:],
    "columns": np.s_[:, 1:5],
    "rows": np.s_[1:5],
    "some rows": np.s_[::2],
    "some columns": np.s_[:, ::2],
    "reversed": np.s_[::-1],
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("left", PARTS)
@pytest.mark.parametrize("right", PARTS)
def test_overlapping_parts_of_a_lent_array_have_the_elements_of_the_device(
    on: str, left: str, right: str, transposed: bool
) -> None:
    A = np.arange(36.0).reshape(6, 6) + 1

    def operands(whole: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        a, b = whole[PARTS[left]], whole[PARTS[right]]
        b = b.T if transposed else b
        k = min(a.shape[1], b.shape[0])
        return a[:, :k], b[:k]

    a, b = operands(A)
    C, expected = np.zeros((a.shape[0], b.shape[1])), 100 * (a @ b)
    with offload_args(A, device=on) as (dA,):
        blas.scal(10.0, dA.reshape(-1))
        blas.gemm(1.0, a, b, 0.0, C, devices=[on])
    np.testing.assert_array_equal(C, expected)
