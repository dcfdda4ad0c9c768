"""Arrays that calls fill block by block: the written blocks come down, and no bytes go up."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import copied
from helpers.interrupts import at_every_place
from helpers.processes import python
from helpers.reference import in_triangle
from helpers.residency import ramp as resident_ramp
from helpers.residency import there
from helpers.threads import on_a_new_thread
from offload_args import Device, DevicePtr, In, Out, Scratch, blas, offload_args, testing, update
from offload_args.errors import (
    BackendError,
    CaptureError,
    DirectionError,
    GuardError,
    InvalidDataError,
    OffloadError,
    OffloadWarning,
    UnwrittenWarning,
)

PARTS = {
    "rows": [np.s_[i, :] for i in (3, 0, 2, 1, 5, 4)],
    "row blocks": [np.s_[4:, :], np.s_[:4, :]],
    "columns": [np.s_[:, j] for j in (4, 0, 1, 3, 2)],
    "column blocks": [np.s_[:, :2], np.s_[:, 2:]],
    "tiles": [np.s_[3:, :2], np.s_[:3, 2:], np.s_[:3, :2], np.s_[3:, 2:]],
    "overlapping": [np.s_[:4, :], np.s_[2:, :]],
    "every second row": [np.s_[::2, :], np.s_[1::2, :]],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("parts", list(PARTS))
def test_an_out_filled_by_parts_comes_down_and_does_not_go_up(device: str, parts: str, order: str, dtype: type) -> None:
    C, expected = np.full((6, 5), -1, dtype, order=order), np.zeros((6, 5), dtype)  # type: ignore[call-overload]
    with testing.counting(Device(device)) as moved, offload_args(Out(C), device=device) as (dC,):
        for value, part in enumerate(PARTS[parts]):
            dC[part].fill(value)
            expected[part] = value
        assert moved.bytes_up == 0
    np.testing.assert_array_equal(C, expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("parts", list(PARTS))
def test_a_missing_part_keeps_the_hosts_bytes_and_warns(device: str, parts: str, order: str) -> None:
    C = np.asarray(ramp(6, 5), order=order)  # type: ignore[call-overload]
    expected = C.copy()
    with pytest.warns(UnwrittenWarning, match="only a part was written"):
        with offload_args(Out(C), device=device) as (dC,):
            dC[PARTS[parts][0]].fill(7)
    expected[PARTS[parts][0]] = 7
    np.testing.assert_array_equal(C, expected)


def test_rows_in_any_order_and_again_come_down_from_a_matrix_by_columns(device: str) -> None:
    C, number = np.full((40, 9), -1, np.float32, order="F"), random.Random(0)
    expected, rows = C.copy(), [*range(1, 40, 2), *range(0, 40, 4), 6, 4]
    number.shuffle(rows)
    with pytest.warns(UnwrittenWarning, match="only a part was written"), testing.counting(Device(device)) as moved:
        with offload_args(Out(C), device=device) as (dC,):
            for value, row in enumerate([*rows, *rows[:9]]):
                dC[row].fill(value)
                expected[row] = value
                assert blas.asum(dC[number.choice(rows[: value + 1])]) >= 0
    np.testing.assert_array_equal(C, expected)
    written = len(set(rows)) * C.shape[1] * C.itemsize
    assert moved.bytes_up == 0 and copied(device, written) <= moved.bytes_down <= copied(device, written * 9 // 8)


def test_only_the_written_part_comes_down(device: str) -> None:
    x = ramp(4, 8)
    with pytest.warns(UnwrittenWarning), testing.counting(Device(device)) as moved:
        with offload_args(Out(x), device=device) as (dx,):
            dx[1].fill(0)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, 0, 32)


UPDATES: dict[str, Callable[[DevicePtr, DevicePtr, str], None]] = {
    "syrk": lambda dA, dC, uplo: blas.syrk(1.0, dA, 0.0, dC, uplo=uplo),
    "herk": lambda dA, dC, uplo: blas.herk(1.0, dA, 0.0, dC, uplo=uplo),
    "syr2k": lambda dA, dC, uplo: blas.syr2k(0.5, dA, dA, 0.0, dC, uplo=uplo),
    "her2k": lambda dA, dC, uplo: blas.her2k(0.5, dA, dA, 0.0, dC, uplo=uplo),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("uplo", ["U", "L"])
@pytest.mark.parametrize("name", list(UPDATES))
def test_one_triangle_comes_down_and_the_other_keeps_the_hosts_bytes(
    device: str, name: str, uplo: str, order: str
) -> None:
    dtype = np.complex64 if name.startswith("her") else np.float64
    A = ramp(5, 2, dtype=dtype, order=order)
    C = np.asarray(-ramp(5, 5).astype(dtype), order=order)  # type: ignore[call-overload]
    expected = np.where(in_triangle(5, uplo), A @ A.T, C)
    with pytest.warns(UnwrittenWarning, match="only a part was written"), testing.counting(Device(device)) as moved:
        with offload_args(In(A), Out(C), device=device) as (dA, dC):
            UPDATES[name](dA, dC, uplo)
    np.testing.assert_array_equal(C, expected)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, A.nbytes, 15 * C.itemsize)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("uplo", ["U", "L"])
@pytest.mark.parametrize("n", [40, 700])
def test_a_large_triangle_comes_down_in_few_copies(device: str, n: int, uplo: str, order: str) -> None:
    A = ramp(n, 2) % 16
    C = np.asarray(-ramp(n, n), order=order)  # type: ignore[call-overload]
    expected = np.where(in_triangle(n, uplo), A @ A.T, C)
    on = Device(device)
    with pytest.warns(UnwrittenWarning, match="only a part was written"), testing.counting(on) as moved:
        with offload_args(In(A), Out(C), device=device) as (dA, dC):
            blas.syrk(1.0, dA, 0.0, dC, uplo=uplo)
    np.testing.assert_array_equal(C, expected)
    written = n * (n + 1) // 2 * 4
    if on.backend == "host":
        assert (moved.bytes_down, moved.copies_down) == copied(device, written, n)
    else:
        assert copied(device, written) <= moved.bytes_down <= copied(device, written * 9 // 8)
        assert moved.copies_down <= 45


@pytest.mark.later("host")
def test_without_pinned_memory_no_more_than_a_triangle_arrives(device: str) -> None:
    code = """
import warnings
import numpy as np
from offload_args import In, Out, blas, offload_args
for n in (40, 700):
    A, C = np.arange(2 * n, dtype=np.float32).reshape(n, 2) % 16, np.full((n, n), -1, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with offload_args(In(A), Out(C), device="{device}") as (dA, dC):
            blas.syrk(1.0, dA, 0.0, dC, uplo="L")
    print((np.tril(C) == np.tril(A @ A.T)).all(), (np.triu(C, 1) == np.triu(np.full((n, n), -1), 1)).all())
"""
    use = python(code.replace("{device}", device), OFFLOAD_ARGS_PINNED_LIMIT="1")
    assert use.stdout.split() == ["True"] * 4, use


def test_a_written_triangle_may_be_used_and_the_other_not(device: str) -> None:
    A, B, C = ramp(4, 4, dtype=np.float64) + 9 * np.eye(4), np.eye(4), np.full((4, 4), -1.0)
    D = np.zeros((4, 4))
    with pytest.warns(UnwrittenWarning), offload_args(In(A), In(B), Out(C), Out(D), device=device) as (dA, dB, dC, dD):
        with pytest.raises(DirectionError, match="does not write every element"):
            blas.syrk(1.0, dA, 1.0, dC, uplo="L")
        blas.syrk(1.0, dA, 0.0, dC, uplo="L")
        blas.syrk(1.0, dA, 1.0, dC, uplo="L")
        blas.symm(1.0, dC, dB, 0.0, dD, uplo="L")
        for refused in (
            lambda: blas.symm(1.0, dC, dB, 0.0, dD),
            lambda: blas.gemm(1.0, dC, dB, 0.0, dD),
            lambda: blas.syrk(1.0, dA, 1.0, dC),
            lambda: blas.asum(dC[0]),
        ):
            with pytest.raises(DirectionError, match="only a part of|does not write every element"):
                refused()
        assert blas.asum(dC[3]) > 0
    np.testing.assert_allclose(D, 2 * A @ A.T)
    np.testing.assert_array_equal(C, np.where(in_triangle(4, "L"), D, -1))


def test_both_triangles_are_the_whole(device: str) -> None:
    A, C = ramp(6, 2), np.full((6, 6), np.nan, np.float32)
    with testing.counting(Device(device)) as moved, offload_args(In(A), Out(C), device=device) as (dA, dC):
        for uplo in "LU":
            blas.syrk(1.0, dA, 0.0, dC, uplo=uplo)
        blas.gemm(1.0, dA, dA.T, 1.0, dC)
    np.testing.assert_array_equal(C, 2 * A @ A.T)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, A.nbytes, C.nbytes)


def test_triangles_on_the_diagonal_and_blocks_below_are_one_triangle(device: str) -> None:
    A, C = ramp(6, 2), np.zeros((6, 6), np.float32)
    with pytest.warns(UnwrittenWarning), testing.counting(Device(device)) as moved:
        with offload_args(In(A), Out(C), device=device) as (dA, dC):
            for i in (4, 0, 2):
                blas.syrk(1.0, dA[i : i + 2], 0.0, dC[i : i + 2, i : i + 2], uplo="L")
                blas.gemm(1.0, dA[i : i + 2], dA[:i].T, 0.0, dC[i : i + 2, :i])
    np.testing.assert_array_equal(C, np.tril(A @ A.T))
    assert moved.bytes_down == copied(device, 21 * 4)


def test_products_fill_a_stack(device: str) -> None:
    A, B, C = ramp(3, 4, 5), ramp(3, 5, 2), np.full((3, 4, 2), np.nan, np.float32)
    with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
        for i in (2, 0, 1):
            blas.gemm(1.0, dA[i], dB[i], 0.0, dC[i])
    np.testing.assert_allclose(C, A @ B, rtol=1e-6)


def test_gaps_of_a_part_of_a_matrix_are_never_written(device: str) -> None:
    M = np.full((4, 6), -1, np.float32)
    with offload_args(Out(M[:, :3]), device=device) as (dC,):
        for i in range(4):
            dC[i].fill(i)
    np.testing.assert_array_equal(M[:, :3], np.arange(4)[:, None] * np.ones(3))
    assert (M[:, 3:] == -1).all()


def test_written_parts_may_be_read_and_others_not(device: str) -> None:
    x, y = np.zeros((3, 4), np.float32), ramp(4)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), y, device=device) as (dx, dy):
        dx[1].fill(2)
        blas.axpy(1.0, dx[1], dy)
        blas.scal(2.0, dx[1])
        with pytest.raises(DirectionError, match="read before it is written"):
            blas.axpy(1.0, dx[0], dy)
        with pytest.raises(DirectionError):
            blas.scal(2.0, dx.reshape(12))
    np.testing.assert_array_equal(y, ramp(4) + 2)
    np.testing.assert_array_equal(x[1], np.full(4, 4))


def test_an_array_written_in_all_parts_may_be_read_whole(device: str) -> None:
    x = np.zeros((3, 4), np.float32)
    with offload_args(Out(x), device=device) as (dx,):
        for i in range(3):
            dx[i].fill(i)
        blas.scal(2.0, dx.reshape(12))
    np.testing.assert_array_equal(x, np.arange(3)[:, None] * np.full(4, 2))


def test_an_inner_region_writes_a_part(device: str) -> None:
    x = np.zeros((3, 4), np.float32)
    with offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        with offload_args(Out(x[1]), device=device) as (inner,):
            inner.fill(2)
        with offload_args(x[2], device=device) as (inner,):
            inner.fill(3)
    np.testing.assert_array_equal(x, np.array([1, 2, 3])[:, None] * np.ones(4))


def test_parts_of_a_region_that_fails_stay_on_the_device(device: str) -> None:
    x = ramp(3, 4)
    with pytest.raises(KeyError), offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        raise KeyError
    np.testing.assert_array_equal(x, ramp(3, 4))


def test_on_error_keep_brings_the_parts_down(device: str) -> None:
    x = ramp(3, 4)
    with pytest.raises(KeyError), offload_args(Out(x), device=device, on_error="keep") as (dx,):
        dx[0].fill(1)
        raise KeyError
    np.testing.assert_array_equal(x[0], np.ones(4))
    np.testing.assert_array_equal(x[1:], ramp(3, 4)[1:])


def test_update_takes_written_parts_only(device: str) -> None:
    x = ramp(3, 4)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        update(x[0])
        np.testing.assert_array_equal(x[0], np.ones(4))
        with pytest.raises(OffloadError, match="only a part"):
            update(x)


def test_empty_parts_write_nothing(device: str) -> None:
    x = ramp(3, 4)
    with pytest.warns(UnwrittenWarning, match="nothing wrote it"), offload_args(Out(x), device=device) as (dx,):
        dx[1:1].fill(1)
    np.testing.assert_array_equal(x, ramp(3, 4))


def test_parts_by_steps_backwards(device: str) -> None:
    source, x, y = np.arange(6.0), np.full(9, -1.0), np.full(9, -1.0)
    with offload_args(In(source), Out(x), Out(y), device=device) as (ds, dx, dy):
        blas.copy(ds[:3], dx[5:2:-1])
        blas.copy(ds[::-1][:3], dx[:3])
        blas.copy(ds[3:], dx[:5:-1])
        for first in (2, 0, 1):
            blas.copy(ds[first::3], dy[8 - 3 * first :: -1][:2])
            dy[6 - 3 * first : 7 - 3 * first].fill(first)
    np.testing.assert_array_equal(x, [5, 4, 3, 2, 1, 0, 5, 4, 3])
    np.testing.assert_array_equal(y, [2, 5, 2, 1, 4, 1, 0, 3, 0])


def test_a_call_that_reads_and_writes_parts_of_one_array(device: str) -> None:
    x = np.zeros((3, 4), np.float32)
    with offload_args(Out(x), device=device) as (dx,):
        dx[1].fill(3)
        blas.copy(dx[1], dx[0])
        with pytest.raises(DirectionError, match="read before it is written"):
            blas.copy(dx[2], dx[0])
        with pytest.raises(DirectionError, match="read before it is written"):
            blas.swap(dx[2], dx[0])
        blas.scal(2.0, dx[0])
        dx[2].copy_from(dx[0])
    np.testing.assert_array_equal(x, np.array([6, 3, 6])[:, None] * np.ones(4))


def test_a_part_of_a_region_that_fails_leaves_the_array_undefined(device: str) -> None:
    x = ramp(3, 4)
    with pytest.raises(InvalidDataError), offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        with pytest.raises(KeyError), offload_args(Out(x[1]), device=device) as (inner,):
            inner.fill(2)
            raise KeyError
        with pytest.raises(InvalidDataError, match="overwrite it whole"):
            dx[1].fill(2)
    np.testing.assert_array_equal(x, ramp(3, 4))
    with offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        with pytest.raises(KeyError), offload_args(Out(x[1]), device=device) as (inner,):
            inner.fill(2)
            raise KeyError
        dx.fill(5)
        dx[2].fill(6)
    np.testing.assert_array_equal(x, np.array([5, 5, 6])[:, None] * np.ones(4))


@pytest.mark.copies
def test_no_backend_call_that_fails_spoils_a_part() -> None:
    sim = testing.sim_device()
    failed = 0
    for k in range(1, 40):
        x = ramp(3, 4)
        raised = False
        sim.trim()
        testing.fail_call(sim, k)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OffloadWarning)
                with offload_args(Out(x), device=sim) as (dx,):
                    dx[0].fill(7)
                    dx[2, 1:3].fill(9)
        except BackendError:
            raised = True
        finally:
            testing.fail_call(sim, 0)
        failed += raised
        expected = ramp(3, 4)
        assert x[1].tolist() == expected[1].tolist()
        assert x[0].tolist() in ([7] * 4, expected[0].tolist())
        assert x[2].tolist() in ([9, 9, 9, 12], [9, 10, 11, 12])
        if not raised:
            assert x[0, 0] == 7 and x[2, 1] == 9
        testing.no_mappings_left()
    assert 3 < failed < 39


@pytest.mark.copies
@pytest.mark.parametrize("n", [4, 24])
def test_no_backend_call_that_fails_spoils_a_triangle(n: int) -> None:
    sim = testing.sim_device()
    A, failed = ramp(n, 2), 0
    lower = in_triangle(n, "L")
    for k in range(1, 60):
        C = -ramp(n, n)
        raised = False
        sim.trim()
        testing.fail_call(sim, k)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OffloadWarning)
                with offload_args(In(A), Out(C), device=sim) as (dA, dC):
                    blas.syrk(1.0, dA, 0.0, dC, uplo="L")
        except BackendError:
            raised = True
        finally:
            testing.fail_call(sim, 0)
        failed += raised
        np.testing.assert_array_equal(C[~lower], -ramp(n, n)[~lower])
        columns = [C[j:, j].tolist() for j in range(n)]
        written, kept = ([M[j:, j].tolist() for j in range(n)] for M in (A @ A.T, -ramp(n, n)))
        assert all(column in (new, old) for column, new, old in zip(columns, written, kept, strict=True))
        assert raised or columns == written
        testing.no_mappings_left()
    assert 3 < failed < 59


def test_ctrl_c_between_parts_leaves_each_as_it_was_or_as_written(device: str) -> None:
    x = ramp(3, 4)

    def write() -> None:
        x[:] = ramp(3, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OffloadWarning)
            with offload_args(Out(x), device=device) as (dx,):
                dx[0].fill(7)
                dx[2].fill(9)

    expected = ramp(3, 4)
    for _ in at_every_place(write):
        assert x[1].tolist() == expected[1].tolist()
        assert x[0].tolist() in ([7] * 4, expected[0].tolist())
        assert x[2].tolist() in ([9] * 4, expected[2].tolist())
        testing.no_mappings_left()


def test_threads_write_parts_of_one_array(device: str) -> None:
    x, faults = np.zeros((8, 64), np.float32), list[BaseException]()

    def write(dx: DevicePtr[np.float32], first: int) -> None:
        try:
            for i in range(first, 8, 4):
                dx[i].fill(i)
                blas.scal(2.0, dx[i])
        except BaseException as fault:
            faults.append(fault)

    with testing.counting(Device(device)) as moved, offload_args(Out(x), device=device) as (dx,):
        threads = [threading.Thread(target=write, args=(dx, first)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults and moved.bytes_up == 0
    np.testing.assert_array_equal(x, 2 * np.arange(8)[:, None] * np.ones(64))


def test_streams_of_regions_write_and_read_parts_in_order() -> None:
    sim = testing.sim_device(delay_us=500)
    x = np.zeros((4, 64), np.float32)
    try:
        with offload_args(Out(x), device=sim) as (dx,):
            dx[0].fill(1)
            with offload_args(x[0], Out(x[1]), device=sim) as (first, second):
                blas.copy(first, second)  # on a different stream from the fill
                blas.scal(2.0, second)
            dx[3].fill(5)
            with offload_args(Out(x[2]), x[3], device=sim) as (third, last):
                blas.copy(dx[1], third)
                blas.axpy(1.0, third, last)
        np.testing.assert_array_equal(x, np.array([1, 2, 2, 7])[:, None] * np.ones(64))
    finally:
        testing.sim_device()


def test_a_region_that_ends_while_another_holds_the_array_hands_the_parts_on(device: str) -> None:
    x = ramp(3, 4)
    other, opened = offload_args(x, device=device), list[DevicePtr[np.float32]]()
    with pytest.warns(UnwrittenWarning, match="only a part"):
        with offload_args(Out(x), device=device) as (dx,):
            dx[0].fill(1)
            on_a_new_thread(lambda: opened.extend(other.open()))
    (dother,) = opened
    assert blas.asum(dother[0]) == 4
    with testing.counting(Device(device)) as moved:
        assert blas.asum(dother[1]) == ramp(3, 4)[1].sum()
    assert moved.bytes_up == copied(device, 32)
    other.close()
    np.testing.assert_array_equal(x[0], np.ones(4))
    np.testing.assert_array_equal(x[1:], ramp(3, 4)[1:])


def test_parts_on_one_device_are_seen_on_another_after_the_region() -> None:
    x = ramp(3, 4)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), device="sim:0") as (dx,):
        dx[1].fill(9)
        for lent in (x, In(x), Out(x), x[0]):
            with pytest.raises(DirectionError):
                offload_args(lent, device="sim:1").open()
        dx[2].fill(8)
    with offload_args(In(x), device="sim:1") as (dx,):
        np.testing.assert_array_equal(dx.to_host(), [[1, 2, 3, 4], [9] * 4, [8] * 4])


def test_a_graph_has_no_part_of_an_out(device: str) -> None:
    x, y = ramp(3, 4), ramp(4)
    region = offload_args(Out(x), y, device=device)
    with region as (dx, dy):
        with region.capture():
            with pytest.raises(DirectionError, match="does not write every element"):
                dx[0].fill(1)
        dx[0].fill(2)
        with region.capture():
            with pytest.raises(CaptureError, match="only a part of argument 1 was written"):
                blas.axpy(1.0, dx[0], dy)
            with pytest.raises(CaptureError, match="only a part of argument 1 was written"):
                dx[1].fill(3)
        with region.capture() as g:
            dx.fill(4)
            blas.axpy(1.0, dx[0], dy)
        g.replay()
        dx[0].fill(5)
    np.testing.assert_array_equal(x, np.array([5, 4, 4])[:, None] * np.ones(4))
    np.testing.assert_array_equal(y, ramp(4) + 4)


def test_a_graph_of_another_region_has_no_part_of_an_out(device: str) -> None:
    x, y = ramp(3, 4), ramp(4)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), device=device) as (dx,):
        region = offload_args(y, device=device)
        with region as (dy,):
            with region.capture():
                with pytest.raises(DirectionError, match="does not write every element"):
                    dx[0].copy_from(dy)
            with pytest.raises(DirectionError, match="does not write every element"):
                region.loop(lambda: dx[0].copy_from(dy), until=dx[2, 3:], at_most=1)
        dx[1].fill(2)
    np.testing.assert_array_equal(x, [ramp(3, 4)[0], [2] * 4, ramp(3, 4)[2]])


def test_a_call_outside_of_a_capture_reads_nothing_that_only_the_graph_writes(device: str) -> None:
    x, y, z = ramp(4), ramp(4) + 10, ramp(4) + 20
    with offload_args(Out(y), z, device=device) as (dy, dz):
        region = offload_args(x, device=device)
        with region as (dx,):
            with region.capture() as g:
                dy.copy_from(dx)
                blas.axpy(1.0, dx, dy)  # a call of the graph may read it
                for read in (lambda: dz.copy_from(dy), dy.to_host, lambda: blas.asum(dy), lambda: blas.scal(2.0, dy)):
                    with pytest.raises(DirectionError, match="would be read before it is written"):
                        read()
            g.replay()
        dz.copy_from(dy)
    np.testing.assert_array_equal(y, 2 * ramp(4))
    np.testing.assert_array_equal(z, y)


def test_an_array_that_stays_on_the_device_may_be_written_by_parts(device: str) -> None:
    x = resident_ramp()
    half, expected = x.size // 2, resident_ramp()
    with offload_args(x, device=device, resident=True) as (dx,):
        blas.scal(1.0, dx)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), device=device, resident=True) as (dx,):
        dx[:half].fill(3)
        with pytest.raises(DirectionError):
            blas.asum(dx[half:])
    expected[:half] = 3
    np.testing.assert_array_equal(x, expected)
    assert there(x, device, resident=True)[0].tolist() == expected.tolist()
    Device(device).release(x)


def test_the_host_may_not_touch_an_array_of_which_a_part_was_written(device: str) -> None:
    x = np.ones(1 << 16, np.float32)
    with pytest.raises(GuardError), offload_args(Out(x), device=device, guard=True) as (dx,):
        dx[: 1 << 15].fill(2)
        x.sum()
        for _ in range(3):
            time.sleep(0)
    with pytest.warns(UnwrittenWarning), offload_args(Out(x), device=device, guard=True) as (dx,):
        dx[: 1 << 15].fill(2)
    assert (x[: 1 << 15] == 2).all() and (x[1 << 15 :] == 1).all()


@pytest.mark.copies
def test_a_forked_child_leaves_the_parts_of_its_parent_alone(device: str) -> None:
    x = ramp(2, 4)
    with offload_args(Out(x), device=device) as (dx,):
        dx[0].fill(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            os._exit(0 if (x == ramp(2, 4)).all() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        dx[1].fill(2)
    np.testing.assert_array_equal(x, [[1] * 4, [2] * 4])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("parts", list(PARTS))
def test_a_plain_array_overwritten_by_parts_never_goes_up(device: str, parts: str, order: str) -> None:
    C = np.asarray(ramp(6, 5), order=order)  # type: ignore[call-overload]
    expected = C.copy()
    with testing.counting(Device(device)) as moved, offload_args(C, device=device) as (dC,):
        for value, part in enumerate(PARTS[parts]):
            dC[part].fill(value)
            expected[part] = value
    np.testing.assert_array_equal(C, expected)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, 0, C.nbytes)
    expected[PARTS[parts][-1]] = 7
    with testing.counting(Device(device)) as moved, offload_args(C, device=device) as (dC,):
        dC[PARTS[parts][-1]].fill(7)
    np.testing.assert_array_equal(C, expected)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, 0, C[PARTS[parts][-1]].nbytes)


def test_products_fill_tiles_of_a_plain_array(device: str) -> None:
    A, B, C = ramp(6, 3), ramp(3, 8), -ramp(6, 8)
    expected = np.where(np.arange(8) < 4, A @ B, C)
    with testing.counting(Device(device)) as moved, offload_args(In(A), In(B), C, device=device) as (dA, dB, dC):
        for i in (3, 0):
            blas.gemm(1.0, dA[i : i + 3], dB[:, :4], 0.0, dC[i : i + 3, :4])
        blas.gemm(1.0, dA[:3], dB[:, :4], 1.0, dC[:3, :4])  # reads blocks that calls wrote
    expected[:3, :4] *= 2
    np.testing.assert_array_equal(C, expected)
    assert (moved.bytes_up, moved.bytes_down) == copied(device, A.nbytes + B.nbytes, C.nbytes // 2)


READERS: dict[str, Callable[[DevicePtr], object]] = {
    "a call that reads it": lambda dx: blas.asum(dx[1]),
    "a call that updates it": lambda dx: blas.scal(1.0, dx[1]),
    "a call that reads all of it": lambda dx: blas.asum(dx.reshape(12)),
    "its address": lambda dx: dx.address,
    "its contents": lambda dx: dx.to_host(),
}


@pytest.mark.promise("T32")
@pytest.mark.parametrize("reader", list(READERS))
def test_what_was_not_written_goes_up_before_it_is_read(device: str, reader: str) -> None:
    x, expected = ramp(3, 4), ramp(3, 4)
    expected[2], expected[0, 1:3] = 9, 8
    with offload_args(x, device=device) as (dx,):
        dx[2].fill(9)
        dx[0, 1:3].fill(8)
        with testing.counting(Device(device)) as moved:
            READERS[reader](dx)
        assert moved.bytes_up == copied(device, 24)
        np.testing.assert_array_equal(dx.to_host(), expected)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("guard", [False, True])
def test_large_parts_keep_what_calls_wrote_as_the_rest_goes_up(device: str, guard: bool) -> None:
    x = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
    expected = 2 * x
    expected[::3] = 6
    with offload_args(x, device=device, guard=guard) as (dx,):
        dx[::3].fill(3)
        with testing.counting(Device(device)) as moved:
            blas.scal(2.0, dx.reshape(1 << 18))
        assert moved.bytes_up == (x.nbytes - 171 * 2048 if guard else copied(device, x.nbytes - 171 * 2048))
        if guard:
            with pytest.raises(GuardError):
                x.sum()
                for _ in range(3):
                    time.sleep(0)
    np.testing.assert_array_equal(x, expected)


def test_many_short_parts_of_a_plain_array_go_up_first(device: str) -> None:
    x, y = np.zeros(2500, np.float32), np.zeros(1100, np.float32)
    with (
        testing.counting(Device(device)) as moved,
        offload_args(x, Scratch(y.shape, y.dtype), device=device) as (dx, dy),
    ):
        dy.fill(1)
        blas.copy(dy[:1000], dx[1:2000:2])
        assert moved.bytes_up == 0
        blas.copy(dy, dx[::2][:1100])
        assert moved.bytes_up == copied(device, x.nbytes - 4000)
    assert x.sum() == 2100 and moved.bytes_down == copied(device, x.nbytes)


def test_update_moves_written_parts_of_a_plain_array(device: str) -> None:
    x, expected = ramp(3, 4), ramp(3, 4)
    with offload_args(x, device=device) as (dx,):
        dx[1].fill(2)
        dx[2, :2].fill(3)
        expected[1], expected[2, :2] = 2, 3
        with testing.counting(Device(device)) as moved:
            update(x)
        np.testing.assert_array_equal(x, expected)
        assert (moved.bytes_up, moved.bytes_down) == copied(device, 0, 24)
        dx[0].fill(4)
        with update(x[0]):
            assert x[0].tolist() == [4] * 4
            x[0] = 5
        with update(x[1:]):
            x[1:] = 6
        blas.scal(2.0, dx.reshape(12))
    np.testing.assert_array_equal(x, np.array([10, 12, 12])[:, None] * np.ones(4))


def test_an_update_of_a_clean_array_sends_all_of_it_at_its_next_use(device: str) -> None:
    x = ramp(3, 4)
    with offload_args(x, device=device) as (dx,):
        dx[1].fill(2)
        with testing.counting(Device(device)) as moved, update(x):
            x[:] = 3
        assert (moved.bytes_up, moved.bytes_down) == copied(device, 0, 16)
        dx[0].fill(4)
        assert blas.asum(dx.reshape(12)) == 4 * 4 + 8 * 3
    np.testing.assert_array_equal(x, np.array([4, 3, 3])[:, None] * np.ones(4))


def test_a_graph_brings_the_rest_of_a_plain_array_up(device: str) -> None:
    x, y = ramp(3, 4), ramp(4)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        dx[0].fill(2)
        with region.capture() as g:
            blas.axpy(1.0, dx[1], dy)
            dx[2].fill(3)
        g.replay()
    np.testing.assert_array_equal(x, [[2] * 4, ramp(3, 4)[1], [3] * 4])
    np.testing.assert_array_equal(y, ramp(4) + ramp(3, 4)[1])


def test_a_failed_region_leaves_a_plain_array_as_it_was(device: str) -> None:
    x = ramp(3, 4)
    with pytest.raises(KeyError), offload_args(x, device=device) as (dx,):
        dx[0].fill(1)
        raise KeyError
    np.testing.assert_array_equal(x, ramp(3, 4))
    with offload_args(x, device=device) as (dx,):
        dx[0].fill(1)
        with offload_args(Out(x[1]), device=device) as (inner,):
            inner.fill(2)
    np.testing.assert_array_equal(x, [[1] * 4, [2] * 4, ramp(3, 4)[2]])


def test_threads_fill_parts_of_a_plain_array(device: str) -> None:
    x = ramp(16, 64)
    with offload_args(x, device=device) as (dx,):
        threads = [threading.Thread(target=lambda i=i: dx[i].fill(i)) for i in range(0, 16, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        blas.scal(2.0, dx.reshape(16 * 64))
    np.testing.assert_array_equal(x[::2], 2 * np.arange(0, 16, 2)[:, None] * np.ones(64))
    np.testing.assert_array_equal(x[1::2], 2 * ramp(16, 64)[1::2])


@pytest.mark.copies
@pytest.mark.promise("T32")
def test_no_backend_call_that_fails_spoils_a_plain_array() -> None:
    sim = testing.sim_device()
    failed = 0
    for k in range(1, 40):
        x, raised = ramp(3, 4), False
        sim.trim()
        testing.fail_call(sim, k)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OffloadWarning)
                with offload_args(x, device=sim) as (dx,):
                    dx[0].fill(7)
                    blas.scal(2.0, dx[1])
        except BackendError:
            raised = True
        finally:
            testing.fail_call(sim, 0)
        failed += raised
        expected = ramp(3, 4)
        assert x.tolist() in (expected.tolist(), [[7] * 4, (2 * expected[1]).tolist(), expected[2].tolist()])
        assert raised or x[0, 0] == 7
        testing.no_mappings_left()
    assert 3 < failed < 39


def test_an_array_that_stays_on_the_device_goes_up_before_a_part_is_written(device: str) -> None:
    x = resident_ramp()
    expected = x.copy()
    with offload_args(x, device=device, resident=True) as (dx,):
        dx[:8].fill(3)
    expected[:8] = 3
    np.testing.assert_array_equal(x, expected)
    assert there(x, device, resident=True)[0].tolist() == expected.tolist()
    Device(device).release(x)
