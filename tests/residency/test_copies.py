"""Only the bytes of a resident array that were written since the last copy are sent again."""

from __future__ import annotations

import ctypes
import io
import threading
from collections.abc import Callable

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.residency import PAGE, N, ramp, sent
from offload_args import Device, In, InOut, Out, blas, empty, offload_args, testing
from offload_args.errors import (
    StalePointerError,
)


def test_a_region_around_the_loop_moves_the_matrix_once(device: str) -> None:
    A, x, y = np.eye(64, dtype=np.float32), ramp(64), np.zeros(64, np.float32)
    with testing.counting(Device(device)) as moved, offload_args(A, device=device):
        for _ in range(10):
            with offload_args(A, x, y, device=device) as (dA, dx, dy):
                blas.gemv(1.0, dA, dx, 0.0, dy)
    assert (moved.copies_up, moved.bytes_up) == (1 + 10, A.nbytes + 10 * x.nbytes)
    assert (moved.copies_down, moved.bytes_down) == (10, 10 * y.nbytes)
    np.testing.assert_array_equal(y, x)


def test_an_unchanged_array_is_sent_once(device: str, tracked: None) -> None:
    x = ramp()
    assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes, 0, 0]
    assert sent(x, device) == 0  # x stays resident for any region
    assert Device(device).residency.kept_bytes == x.nbytes


@pytest.mark.copies
def test_a_pinned_array_is_always_sent(device: str) -> None:
    """Linux reports the writes to memory that NumPy itself allocated, and not to this one."""
    x = empty(N, np.float32, device=device)
    x[:] = ramp()
    assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes] * 3


def test_a_resident_array_is_not_allocated_again_and_counts_as_no_mapping(device: str) -> None:
    x = ramp()
    sent(x, device, resident=True)
    with testing.counting(Device(device)) as moved:
        with offload_args(x, device=device):
            pass
    assert (moved.allocations, moved.frees, moved.bytes_up) == (0, 0, 0)
    assert Device(device).counters.mappings == 0


def test_pointers_die_with_their_region_all_the_same(device: str) -> None:
    x = ramp()
    with offload_args(x, device=device, resident=True) as (dx,):
        blas.scal(2.0, dx)
    with offload_args(x, device=device, resident=True) as (again,):
        with pytest.raises(StalePointerError):
            blas.scal(2.0, dx)
        blas.scal(0.5, again)
    np.testing.assert_array_equal(x, ramp())
    assert not again.live


def test_only_pages_that_were_written_are_sent(device: str, tracked: None) -> None:
    x = ramp()
    sent(x, device, resident=True)
    x[N // 2] = -1
    x[N // 4] = -2
    assert 0 < sent(x, device) <= 2 * PAGE
    x[:] = 3
    assert sent(x, device) == x.nbytes


def write_a_view(x: Array) -> None:
    x.reshape(64, -1)[5:7, ::3] += 1


def write_another_dtype(x: Array) -> None:
    x.view(np.uint8)[12345] ^= 0x40


def write_from_a_thread(x: Array) -> None:
    thread = threading.Thread(target=x.fill, args=(9,))
    thread.start()
    thread.join()


def write_by_readinto(x: Array) -> None:
    assert io.BytesIO(b"\x01\x02\x03\x04" * 1000).readinto(memoryview(x).cast("B")[8000:12000]) == 4000


def write_by_the_kernel(x: Array) -> None:
    with open("/dev/zero", "rb", buffering=0) as file:
        assert file.readinto(memoryview(x).cast("B")[40000:90000]) == 50000  # type: ignore[attr-defined]


def write_by_copyto(x: Array) -> None:
    np.copyto(x[::2], -5)


def write_by_out(x: Array) -> None:
    np.add(x, 1, out=x)


def write_from_c(x: Array) -> None:
    values = (ctypes.c_float * 3)(7, 8, 9)
    ctypes.memmove(x.ctypes.data + 4 * 1000, values, 12)


def write_one_byte_at_each_end(x: Array) -> None:
    x[0] = x[-1] = -1


def forget_pages(x: Array) -> None:
    """Let the kernel replace the array's pages by zeros."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = (x.ctypes.data + PAGE - 1) // PAGE * PAGE
    assert libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(16 * PAGE), 4) == 0


WRITES: tuple[Callable[[Array], None], ...] = (
    write_a_view,
    write_another_dtype,
    write_from_a_thread,
    write_by_readinto,
    write_by_the_kernel,
    write_by_copyto,
    write_by_out,
    write_from_c,
    write_one_byte_at_each_end,
    forget_pages,
)


@pytest.mark.later("host")
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("offset", [0, 1, 1000])
def test_no_write_is_missed(device: str, write: Callable[[Array], None], offset: int) -> None:
    x = np.arange(N + offset, dtype=np.float32)[offset:]
    sent(x, device, resident=True)
    for _ in range(3):
        write(x)
        assert sent(x, device) > 0
        sent(x, device)


@pytest.mark.later("4194304")
@pytest.mark.parametrize("n", [1, 100, 10_000, N, 1 << 22])
def test_arrays_can_be_resident_from_128_kib_on(device: str, n: int) -> None:
    x = ramp(n)
    for i in range(4):
        sent(x, device, resident=True)
        x[n // 2] = -i
        sent(x, device)
    assert Device(device).residency.kept == (4 * n >= 128 << 10)  # comparing small arrays takes as long as sending


def test_memory_never_written_counts_as_what_it_is(device: str) -> None:
    x = np.zeros(N, np.float32)  # none of its pages exist yet
    assert sent(x, device, resident=True) == x.nbytes
    sent(x, device)
    x[17] = 1
    assert sent(x, device) > 0


@pytest.mark.later("host")
def test_of_huge_pages_only_the_written_one_is_sent(device: str, tracked: None) -> None:
    x = np.ones(1 << 22, np.float32)  # 16 MiB: NumPy asks for huge pages
    sent(x, device, resident=True)
    assert sent(x, device) <= 2 * PAGE  # pages with neighbours
    x[1 << 21] = 5
    assert 0 < sent(x, device) <= (2 << 20) + 2 * PAGE
    assert sent(x, device) <= 2 * PAGE


def test_a_write_while_it_is_lent_is_sent_with_the_next_region(device: str) -> None:
    x = ramp(N + 10)
    view = x[N:]  # a guard of all arrays leaves this page, which x does not fill
    with offload_args(In(x), device=device, resident=True) as (dx,):
        blas.asum(dx)
        view[:] = -1  # a view made earlier is not locked
    assert sent(x, device) > 0


def test_bytes_that_came_down_are_not_sent_again(device: str, tracked: None) -> None:
    x = ramp()
    for _ in range(3):
        with testing.counting(Device(device)) as moved:
            with offload_args(x, device=device, resident=True) as (dx,):
                blas.scal(2.0, dx)
    assert (moved.bytes_up, moved.bytes_down) == (0, x.nbytes)
    np.testing.assert_array_equal(x, 8 * ramp())
    assert sent(x, device) == 0
    x[3] = 1
    assert 0 < sent(x, device) <= PAGE


def test_an_array_that_a_call_writes_whole_is_sent_neither_before_nor_after(device: str, tracked: None) -> None:
    x, y = ramp(), ramp()
    with testing.counting(Device(device)) as moved:
        with offload_args(x, y, device=device, resident=True) as (dx, dy):
            blas.copy(dx, dy)
    assert moved.bytes_up == x.nbytes
    assert sent(y, device) == 0


def test_results_of_a_failed_block_are_not_taken_for_the_hosts_bytes(device: str) -> None:
    x = ramp()
    sent(x, device, resident=True)
    with pytest.raises(KeyError), offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        raise KeyError
    np.testing.assert_array_equal(x, ramp())
    assert sent(x, device) == x.nbytes


def test_nested_in_an_outer_region_that_does_not_keep(device: str) -> None:
    x = ramp()
    with offload_args(x, device=device):
        sent(x, device, resident=True)
    sent(x, device)
    x[5] = -1
    assert sent(x, device) > 0


def test_arrays_of_one_region_are_each_sent_as_they_are_when_first_read(device: str) -> None:
    a, b, c = ramp(), ramp(), ramp()
    results = [np.empty(N, np.float32) for _ in range(3)]
    for step in range(3):
        a[step * 2048] = -step
        c[5] = 10 * step
        with offload_args(In(a), b, In(c), *map(Out, results), device=device, resident=True) as (da, db, dc, *ds):
            blas.copy(da, ds[0])
            with offload_args.update(b):  # the first read of another array does not fix the contents of this one
                b[step * 3000 : step * 3000 + 50] = step + 0.5
            blas.copy(db, ds[1])
            if step != 1:  # otherwise the bytes are read with later writes
                blas.copy(dc, ds[2])
            else:
                blas.copy(da, ds[2])
        np.testing.assert_array_equal(results[0], a)
        np.testing.assert_array_equal(results[1], b)
        np.testing.assert_array_equal(results[2], a if step == 1 else c)


def test_matrices_with_a_leading_dimension(device: str) -> None:
    parent = np.zeros((300, 1000), np.float32)
    A, x = parent[:, 100:900], np.ones(800, np.float32)
    for i in range(4):
        A[100 + i, 5] = i
        parent[200, 0] = i  # an element in a gap
        y = np.zeros(300, np.float32)
        with offload_args(A, x, y, device=device, resident=True) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
        np.testing.assert_array_equal(y, A @ x)
    assert parent[200, 0] == 3


def test_two_arrays_on_one_page(device: str) -> None:
    parent = ramp(2 * N)
    a, b = parent[: N + 7], parent[N + 7 :]
    for i in range(6):
        a[-1], b[0] = i, -i
        first, second = (a, b) if i % 2 else (b, a)
        sent(first, device, resident=True)
        sent(second, device, resident=True)


def test_overlapping_views_each_know(device: str) -> None:
    x = ramp()
    head, tail = x[: N // 2 + 100], x[N // 2 - 100 :]
    for i in range(4):
        for view in (x, head, tail):
            with offload_args(InOut(view), device=device, resident=True) as (d,):
                blas.scal(-1.0, d)
        x[N // 2] = i
        for view in (tail, x, head):
            sent(view, device)
