"""LAPACK of arrays, with devices: by tiles and panels, also larger than the device, against SciPy."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from helpers.devices import open_or_skip
from helpers.processes import printed
from helpers.small_tiles import finished, small_device, small_tiles
from offload_args import Device, Scratch, lapack, offload_args, testing, tracing
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

from .conftest import Matrices

__all__ = ["small_device", "small_tiles"]


def unread(A: NDArray[Any], uplo: str) -> NDArray[np.bool_]:
    """Return a mask of the triangle that is not read, which becomes NaN."""
    mask: NDArray[np.bool_] = np.tril(np.ones(A.shape, bool), -1)
    mask = mask if uplo == "U" else mask.T
    A[mask] = np.nan
    return mask


def check_definite(device: Any, matrices: Matrices, order: Any, uplo: str, n: int) -> None:
    H = matrices.definite(n)
    wide = H.astype(np.clongdouble if matrices.is_complex else np.longdouble)
    A, B = np.array(H, order=order), matrices.general(n, 3)
    right, before = B.copy(), A.copy(order="K")
    mask = unread(A, uplo)
    lapack.posv(A, B, uplo=uplo, devices=[device])
    factor = np.where(mask, 0, A)
    product = factor.conj().T @ factor if uplo == "U" else factor @ factor.conj().T
    assert np.isnan(A[mask]).all()
    assert matrices.near(product, H) and matrices.near(wide @ B, right)
    x = right[:, 0].copy()
    lapack.potrs(A, x, uplo=uplo, devices=[device])
    assert matrices.near(wide @ x, right[:, 0])
    with offload_args(before, device=device) as (pointer,):
        lapack.potrf(pointer, uplo=uplo)
    assert matrices.near(np.where(mask, 0, before), factor)
    alone = np.array(H, order=order)
    lapack.potrf(alone, uplo=uplo, devices=[device])
    assert np.array_equal(np.where(mask, 0, alone), factor)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("uplo", ["U", "L"])
def test_cholesky(device: str, matrices: Matrices, order: Any, uplo: str, small_tiles: None) -> None:
    for n in (1, 40):
        check_definite(device, matrices, order, uplo, n)


@pytest.mark.later(but="float64")
@pytest.mark.parametrize("uplo", ["U", "L"])
def test_cholesky_of_a_matrix_that_is_larger_than_the_device(
    small_device: Device, matrices: Matrices, uplo: str
) -> None:
    n = int((1.2 * (1 << 20) / matrices.dtype.itemsize) ** 0.5)
    H, b = matrices.definite(n), matrices.general(n)
    A, x = H.copy(), b.copy()
    lapack.posv(A, x, uplo=uplo, devices=[small_device])
    assert matrices.near(H @ x, b)
    assert matrices.near(x, scipy.linalg.solve(H, b, assume_a="pos"))


def check_general(device: Any, matrices: Matrices, order: Any, m: int, n: int) -> None:
    original = matrices.general(m, n)
    A, ipiv = np.array(original, order=order), np.empty(min(m, n), np.int32)
    lapack.getrf(A, ipiv, devices=[device])
    flips = order == "C" and min(m, n) > 1  # the order of a row or column may be either
    factors, pivots = scipy.linalg.lu_factor(original.T if flips else original)
    assert np.array_equal(ipiv, pivots + 1)
    assert matrices.near(A.T if flips else A, factors)


@pytest.mark.parametrize("order", ["C", "F"])
def test_lu(device: str, matrices: Matrices, order: Any, small_tiles: None) -> None:
    for m, n in ((40, 40), (40, 23), (23, 40)):
        check_general(device, matrices, order, m, n)


def test_rows_of_a_panel_are_exchanged_by_one_call(device: str, small_tiles: None) -> None:
    matrix, ipiv = np.asfortranarray(Matrices("float64").general(40, 40)), np.empty(40, np.int32)
    exchanged = matrix.copy("F")
    with tracing.trace() as recording:
        lapack.getrf(exchanged, ipiv, devices=[device])
    names = [event.name.rpartition(".")[2] for event in recording.events if event.kind == "call"]
    panels = 5
    assert names.count("dgetrf") == panels and names.count("dswap") == 0
    assert names.count("dlaswp") == panels * (panels - 1) / 2 + panels - 1  # before a product, and at the end
    dominant = np.asfortranarray(matrix + 40 * np.eye(40))
    with tracing.trace() as recording:
        lapack.getrf(dominant, ipiv, devices=[device])
    assert not any("laswp" in event.name for event in recording.events)


@pytest.mark.parametrize("order", ["C", "F"])
def test_solutions_of_lu(device: str, matrices: Matrices, order: Any, small_tiles: None) -> None:
    original = matrices.general(40, 40)
    A, ipiv = np.array(original, order=order), np.empty(40, np.int32)
    right = matrices.general(40, 3)
    B = right.copy()
    lapack.gesv(A, ipiv, B, devices=[device])
    assert matrices.near(original @ B, right)
    for trans in "NTC":
        if trans == "C" and order == "C" and matrices.is_complex:
            with pytest.raises(ArgumentError, match="needs Fortran order"):
                lapack.getrs(A, ipiv, right.copy(), trans=trans, devices=[device])
            continue
        matrix = {"N": original, "T": original.T, "C": original.conj().T}[trans]
        for b in (right.copy(), right[:, 0].copy(), np.asfortranarray(right)):
            x = b.copy(order="K")
            lapack.getrs(A, ipiv, x, trans=trans, devices=[device])
            assert matrices.near(matrix @ x, b)


@pytest.mark.later(but="float64")
@pytest.mark.parametrize("order", ["C", "F"])
def test_lu_of_a_matrix_that_is_larger_than_the_device(small_device: Device, matrices: Matrices, order: Any) -> None:
    n = int((1.2 * (1 << 20) / matrices.dtype.itemsize) ** 0.5)
    original, b = matrices.general(n, n), matrices.general(n)
    A, ipiv, x = np.array(original, order=order), np.empty(n, np.int32), b.copy()
    lapack.gesv(A, ipiv, x, devices=[small_device])
    residual = np.abs(original @ x - b).max() / (np.abs(original).sum(axis=1).max() * np.abs(x).max())
    assert residual < 50 * np.finfo(matrices.dtype).eps


def test_a_wide_matrix_that_is_larger_than_the_device_is_factored(small_device: Device) -> None:
    original = Matrices("float64").general(200, 1500)
    A, ipiv = np.asfortranarray(original), np.empty(200, np.int32)
    lapack.getrf(A, ipiv, devices=[small_device])
    factors, pivots = scipy.linalg.lu_factor(original)
    assert np.array_equal(ipiv, pivots + 1) and np.allclose(A, factors)


def test_rows_and_columns_have_the_pivots_of_pointers(device: str) -> None:
    values = Matrices("float64").general(9, 9)

    def parts(A: NDArray[Any]) -> list[NDArray[Any]]:
        return [A[:1], A[:, :1], A.T[:1], A.T[:, :1], A[:1, :1]]

    for i in range(len(parts(values))):
        A, B = values.copy(), values.copy()
        ipiv, pivots = np.empty(1, np.int32), np.empty(1, np.int32)
        with offload_args(parts(A)[i], pivots, device=device) as pointers:
            lapack.getrf(*pointers)
        lapack.getrf(parts(B)[i], ipiv, devices=[device])
        assert ipiv == pivots and np.allclose(A, B)


def test_parts_of_arrays_and_files(device: str, small_tiles: None, tmp_path: Any) -> None:
    matrices = Matrices("float64")
    H, right = matrices.definite(40), matrices.general(40, 2)
    big = np.full((80, 120), np.nan)
    big[::2, ::3] = H
    B = right.copy()
    lapack.posv(big[::2, ::3], B, devices=[device])
    assert matrices.near(H @ B, right)
    assert np.isnan(big).sum() == big.size - H.size
    A = np.memmap(tmp_path / "A", np.float64, "w+", shape=(40, 40))
    A[...] = H
    ipiv, x = np.empty(40, np.int32), right[:, 0].copy()
    lapack.gesv(A, ipiv, x, devices=[device])
    assert matrices.near(H @ x, right[:, 0])
    big[...] = np.nan
    part, B = big[::-2, ::-3], right.copy()
    part[...] = H
    lapack.gesv(part, ipiv, B, devices=[device])
    assert matrices.near(H @ B, right)
    assert np.isnan(big).sum() == big.size - H.size


def test_a_matrix_that_is_not_definite(device: str, small_tiles: None) -> None:
    matrices = Matrices("float64")
    H, right = matrices.definite(40), matrices.general(40, 2)
    H[30, 30] = -1
    for uplo in "UL":
        A, B = H.copy(), right.copy()
        with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.posv: A is not positive .* order 31") as caught:
            lapack.posv(A, B, uplo=uplo, devices=[device])
        assert caught.value.info == 31  # type: ignore[attr-defined]
        done = finished(caught.value, "lapack.posv", A=A)["A"]
        factor = scipy.linalg.cholesky(H[:30, :30], lower=uplo == "L")
        assert np.array_equal(B, right) and np.array_equal(A[~done], H[~done])
        inside = done[:30, :30] & (factor != 0)
        assert inside.any() and np.allclose(A[:30, :30][inside], factor[inside])


def test_a_singular_matrix(device: str, small_tiles: None) -> None:
    original = np.asfortranarray(Matrices("float64").general(40, 40))
    original[:, 25] = 0
    A, ipiv, b = original.copy("F"), np.empty(40, np.int32), np.ones(40)
    with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.gesv: A is singular: pivot 26 ") as caught:
        lapack.gesv(A, ipiv, b, devices=[device])
    assert caught.value.info == 26 and (b == 1).all()  # type: ignore[attr-defined]
    B = original.copy("F")
    lapack.getrf(B, ipiv, singular="keep", devices=[device])
    assert np.array_equal(A, B)
    L, U = np.tril(B, -1) + np.eye(40), np.triu(B)
    rows = np.arange(40)
    for i, pivot in enumerate(ipiv):
        rows[[i, pivot - 1]] = rows[[pivot - 1, i]]
    assert np.allclose(L @ U, original[rows])


def test_arrays_without_elements(device: str) -> None:
    empty = np.empty((0, 0))
    lapack.potrf(empty, devices=[device])
    lapack.posv(empty, np.empty(0), devices=[device])
    lapack.gesv(empty, np.empty(0, np.int32), np.empty((0, 2)), devices=[device])
    lapack.getrf(np.empty((0, 3)), np.empty(0, np.int32), devices=[device])
    A = np.eye(3)
    lapack.posv(A, np.empty((3, 0)), devices=[device])
    lapack.gesv(A, np.empty(3, np.int32), np.empty((3, 0)), devices=[device])


def test_several_devices_factor_one_matrix(small_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_ALONG", 8)  # so that more tiles than one device has threads are ready
    devices, matrices = [open_or_skip("sim:0"), open_or_skip("sim:1")], Matrices("float64")
    H, right = matrices.definite(64), matrices.general(64, 2)
    A, B, ipiv = H.copy(), right.copy(), np.empty(64, np.int32)
    lapack.gesv(A, ipiv, B, devices=devices)
    assert matrices.near(H @ B, right)
    for name in devices:
        testing.sim_device(delay_us=500, index=int(name[-1]))  # neither is done before the other one begins
    try:
        before = [Device(name).counters.calls for name in devices]
        for _ in range(20):  # on a busy machine, one may be done earlier
            A, B = H.copy(), right.copy()
            lapack.posv(A, B, devices=devices)
            assert matrices.near(H @ B, right)
            both = all(Device(name).counters.calls > then for name, then in zip(devices, before, strict=True))
            if both:
                break
        assert both
    finally:
        for name in devices:
            testing.sim_device(index=int(name[-1]))


def test_memory_that_is_not_free_again_yet_is_waited_for(small_tiles: None) -> None:
    matrices = Matrices("float64")
    original, right = np.asfortranarray(matrices.general(64, 64)), matrices.general(64, 2)
    try:
        device = testing.sim_device(capacity=23_100, delay_us=1000)
        for _ in range(3):  # the device frees the panels, and the former call's tiles, later than their regions end
            A, B, ipiv = original.copy("F"), right.copy(), np.empty(64, np.int32)
            lapack.gesv(A, ipiv, B, devices=[device])
            assert matrices.near(original @ B, right)
    finally:
        testing.sim_device()


@pytest.mark.promise("T76")
# If no event can be made, copies are slower, but nothing fails.
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_failing_call_finished_tiles_are_named(step: int, small_tiles: None) -> None:
    matrices, failed = Matrices("float64"), 0
    H, right = matrices.definite(40), matrices.general(40, 2)
    factor, solution = scipy.linalg.cholesky(H), np.linalg.solve(H, right)
    for k in range(1, 300, step):
        testing.sim_device()
        A, B = H.copy(), right.copy()
        testing.fail_call("sim:0", k)
        try:
            lapack.posv(A, B, devices=["sim:0"])
        except OffloadError as error:
            failed += 1
            done = finished(error, "lapack.posv", A=A, B=B)
            assert np.allclose(np.triu(A)[done["A"]], factor[done["A"]]) and np.array_equal(
                A[~done["A"]], H[~done["A"]]
            )
            assert np.allclose(B[done["B"]], solution[done["B"]])
            assert done["A"][np.triu_indices(40)].all() or np.array_equal(B, right)
        finally:
            testing.sim_device()
    assert failed >= 3


@pytest.mark.promise("T76")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_after_a_failing_call_of_gesv_the_right_sides_are_as_they_were(step: int, small_tiles: None) -> None:
    matrices, failed = Matrices("float64"), 0
    original, right = np.asfortranarray(matrices.general(40, 40)), matrices.general(40, 2)
    for k in range(1, 400, step):
        testing.sim_device()
        A, B, ipiv = original.copy("F"), right.copy(), np.empty(40, np.int32)
        testing.fail_call("sim:0", k)
        try:
            lapack.gesv(A, ipiv, B, devices=["sim:0"])
        except OffloadError as error:
            failed += 1
            notes = [note for note in error.__notes__ if note.startswith("lapack.gesv: ")]
            assert notes in (
                ["lapack.gesv: A and ipiv are undefined"],
                ["lapack.gesv: A has its factors, B is as it was"],
            )
            assert np.array_equal(B, right)
        else:
            assert matrices.near(original @ B, right)
        finally:
            testing.sim_device()
    assert failed >= 3


@pytest.mark.promise("T76")
def test_ctrl_c_between_tiles_names_the_finished_ones(small_tiles: None) -> None:
    testing.sim_device(delay_us=3000)
    H = Matrices("float64").definite(90)
    A, factor = H.copy(), scipy.linalg.cholesky(H)

    def interrupt() -> None:
        while np.array_equal(A, H):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    (thread := threading.Thread(target=interrupt)).start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            lapack.potrf(A, devices=["sim:0"])
            thread.join()
            time.sleep(60)  # the interrupt comes here if the factorization was faster
    finally:
        testing.sim_device()
    if getattr(caught.value, "__notes__", ()):
        done = finished(caught.value, "lapack.potrf", A=A)["A"]
        assert done.any() and np.allclose(np.triu(A)[done], factor[done]) and np.array_equal(A[~done], H[~done])


def test_wrong_arguments_are_named(device: str) -> None:
    A, B, ipiv = np.eye(4), np.ones((4, 2)), np.empty(4, np.int32)
    read_only = np.eye(4)
    read_only.flags.writeable = False
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ArgumentTypeError, r"devices needs a list", lambda: lapack.posv(A, B, devices="host")),
        (
            ArgumentError,
            r"A has shape \(4, 2\), needs as many rows",
            lambda: lapack.posv(B, B.copy(), devices=[device]),
        ),
        (ArgumentError, r"B has shape \(3, 2\), needs 4 rows", lambda: lapack.posv(A, B[:3], devices=[device])),
        (DTypeError, r"A needs float32", lambda: lapack.posv(A.astype(int), B, devices=[device])),
        (AliasError, r"B shares memory with A", lambda: lapack.posv(A, A[:, :1], devices=[device])),
        (DirectionError, r"A is read-only", lambda: lapack.posv(read_only, B, devices=[device])),
        (ArgumentError, r"uplo must be", lambda: lapack.posv(A, B, uplo="X", devices=[device])),
        (ArgumentError, r"info is for", lambda: lapack.posv(A, B, info=ipiv, devices=[device])),
        (DTypeError, r"ipiv needs int32", lambda: lapack.gesv(A, B[:, 0], B, devices=[device])),
        (ArgumentError, r"ipiv has shape \(3,\), needs \(4,\)", lambda: lapack.gesv(A, ipiv[:3], B, devices=[device])),
        (ArgumentTypeError, r"ipiv needs a NumPy", lambda: lapack.gesv(A, [1], B, devices=[device])),
        (DirectionError, r"A is read-only", lambda: lapack.gesv(read_only, ipiv, B, devices=[device])),
        (
            ArgumentError,
            r"ipiv\[0\] is 9, needs to be from 1",
            lambda: lapack.getrs(A, ipiv * 0 + 9, B, devices=[device]),
        ),
    ]
    for error, words, call in wrong:
        with pytest.raises(error, match=rf"^lapack\.\w+: (with devices, )?{words}"):
            call()
    stack = np.ones((2, 4, 4))
    with pytest.raises(ArgumentError, match=r"^lapack\.potrf: A has shape \(2, 4, 4\), needs 2 dimensions"):
        lapack.potrf(stack, devices=[device])
    with offload_args(Scratch((2, 4, 4), np.float64), device=device) as (pointer,):
        with pytest.raises(HostAccessError, match=r"^lapack\.potrf: with devices, A needs a NumPy array"):
            lapack.potrf(pointer, devices=[device])
    assert np.array_equal(A, np.eye(4)) and (B == 1).all()


def test_pivots_that_share_memory_are_refused(device: str) -> None:
    A, B = np.eye(4) * 2, np.ones((4, 2))
    of_A, of_B = A.view(np.int32)[0, :4], B.view(np.int32)[:, 0]
    of_B[...] = 1, 2, 3, 4
    before = B.copy()
    repeated = np.lib.stride_tricks.as_strided(np.ones(1, np.int32), (4,), (0,))
    wrong: list[tuple[str, Any]] = [
        (r"ipiv shares memory with A", lambda: lapack.getrf(A, of_A, devices=[device])),
        (r"ipiv shares memory with B", lambda: lapack.gesv(A, of_B, B, devices=[device])),
        (r"B shares memory with ipiv", lambda: lapack.getrs(A, of_B, B, devices=[device])),
        (r"two indices of ipiv name the same element", lambda: lapack.getrf(A, repeated, devices=[device])),
    ]
    for words, call in wrong:
        with pytest.raises(AliasError, match=rf"^lapack\.\w+: {words}"):
            call()
    with pytest.raises(ArgumentTypeError, match=r"^lapack\.getrf: ipiv is a masked array"):
        lapack.getrf(A, np.ma.array(np.empty(4, np.int32)), devices=[device])
    assert np.array_equal(A, np.eye(4) * 2) and np.array_equal(B, before)


def test_lent_pivots_and_right_sides_are_refused(device: str) -> None:
    A, B, ipiv = np.eye(4) * 2, np.ones((4, 2)), np.arange(1, 5, dtype=np.int32)
    for lent, operand in ((B, "B"), (B[:2], "B"), (ipiv, "ipiv"), (ipiv[2:], "ipiv")):
        with offload_args(lent, device=device) as (pointer,):
            pointer.fill(3)
            with pytest.raises(PresentError, match=rf"^lapack\.getrs: {operand} is lent, or a part of it; leave"):
                lapack.getrs(A, ipiv, B, devices=[device])
            with pytest.raises(PresentError, match=rf"^lapack\.gesv: {operand} is lent, or a part of it; leave"):
                lapack.gesv(A, ipiv, B, devices=[device])
    with offload_args(A, device=device):
        with pytest.raises(PresentError, match=r"^lapack\.getrf: A is lent, or a part of it; leave that region first"):
            lapack.getrf(A, ipiv, devices=[device])
    assert np.array_equal(A, np.eye(4) * 2)


def test_no_space_for_the_narrowest_panel_is_told() -> None:
    testing.sim_device(capacity=8192)
    words = r"^lapack\.getrf: the narrowest panels need 11520 bytes on each of sim:0, and one has"
    with pytest.raises(DeviceMemoryError, match=words):
        lapack.getrf(np.eye(60), np.empty(60, np.int32), devices=["sim:0"])
    testing.sim_device()


def test_all_memory_is_within_the_limit() -> None:
    program = """if True:
        import numpy as np
        from offload_args import Device, lapack
        random = np.random.default_rng(0)
        A, b = random.random((200, 200)), random.random(200)
        A[np.diag_indices(200)] = 200
        S, x = np.triu(A) + np.triu(A, 1).T, b.copy()
        lapack.posv(S.copy(), x, devices=["sim:0"])
        assert np.allclose(S @ x, b)
        x, ipiv = b.copy(), np.empty(200, np.int32)
        lapack.gesv(A.copy(), ipiv, x, devices=["sim:0"])
        assert np.allclose(A @ x, b)
        print(Device("sim:0").counters.memory_peak <= 131072)
    """
    assert printed(program, OFFLOAD_ARGS_MEMORY_LIMIT="131072").strip() == "True"
