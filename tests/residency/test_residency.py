"""Residency: arrays that stay on a device between regions are never older than on the host."""

from __future__ import annotations

import ctypes
import gc
import io
import mmap
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.interrupts import at_every_place
from offload_args import Device, In, InOut, Out, Scratch, blas, empty, offload_args, testing
from offload_args.devices import Residency
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceMemoryError,
    DTypeError,
    StalePointerError,
)

PAGE = mmap.PAGESIZE
N = 1 << 18  # float32: 256 pages


@pytest.fixture(autouse=True)
def explicit() -> Iterator[None]:
    with testing.residency("explicit"):
        yield


@pytest.fixture
def tracked() -> None:
    """For tests of copies that are spared: they run only where the kernel lets pages be watched (userfaultfd)."""
    if not Device("host").residency.tracking:
        if "pages" in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail("OFFLOAD_ARGS_REQUIRE needs pages to be watched, and this kernel or container refuses")
        pytest.skip("device unavailable")


def ramp(n: int = N) -> Array:
    """Return 1, 2, 3, ... on pages of their own: writes of neighbours on the edge pages would count, too."""
    nbytes = (4 * n + PAGE - 1) // PAGE * PAGE
    owner = np.empty(nbytes + PAGE, np.uint8)
    x = owner[-owner.ctypes.data % PAGE :][: 4 * n].view(np.float32)
    x[:] = np.arange(n)
    return x


def there(array: Array, device: str, **options: Any) -> tuple[Array, int]:
    """Return the bytes of an array on the device, and how many of them had to be sent."""
    result = np.empty(array.size, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(In(array), device=device, **options) as (d,):
            with offload_args(Out(result), device=device) as (dresult,):
                blas.copy(d, dresult)
    return result, moved.bytes_up


def sent(array: Array, device: str, **options: Any) -> int:
    """Lend and read the array; check that the device has the bytes of the host."""
    result, nbytes = there(array, device, **options)
    np.testing.assert_array_equal(result, array.ravel())
    return nbytes


# -- nested regions ------------------------------------------------------------------------------------------


def test_a_region_around_the_loop_moves_the_matrix_once(device: str) -> None:
    A, x, y = np.eye(64, dtype=np.float32), ramp(64), np.zeros(64, np.float32)
    with testing.counting(Device(device)) as moved, offload_args(A, device=device):
        for _ in range(10):
            with offload_args(A, x, y, device=device) as (dA, dx, dy):
                blas.gemv(1.0, dA, dx, 0.0, dy)
    assert (moved.copies_up, moved.bytes_up) == (1 + 10, A.nbytes + 10 * x.nbytes)
    assert (moved.copies_down, moved.bytes_down) == (10, 10 * y.nbytes)
    np.testing.assert_array_equal(y, x)


# -- staying -------------------------------------------------------------------------------------------------


def test_an_unchanged_array_is_sent_once(device: str, tracked: None) -> None:
    x = ramp()
    assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes, 0, 0]
    assert sent(x, device) == 0  # it stays for any region that lends it next
    assert Device(device).residency.kept_bytes == x.nbytes


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
    """The kernel's own way to change memory: pages are zero again."""
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


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("offset", (0, 1, 1000))
def test_no_write_is_missed(device: str, write: Callable[[Array], None], offset: int) -> None:
    x = np.arange(N + offset, dtype=np.float32)[offset:]
    sent(x, device, resident=True)
    for _ in range(3):
        write(x)
        assert sent(x, device) > 0
        sent(x, device)


@pytest.mark.parametrize("n", (1, 100, 10_000, N, 1 << 22))
def test_arrays_can_be_resident_from_128_kib_on(device: str, n: int) -> None:
    x = ramp(n)
    for i in range(4):
        sent(x, device, resident=True)
        x[n // 2] = -i
        sent(x, device)
    assert Device(device).residency.kept == (4 * n >= 128 << 10)  # small ones are sent as fast as they are looked at


def test_memory_never_written_counts_as_what_it_is(device: str) -> None:
    x = np.zeros(N, np.float32)  # no page of it exists yet
    assert sent(x, device, resident=True) == x.nbytes
    sent(x, device)
    x[17] = 1
    assert sent(x, device) > 0


def test_of_huge_pages_only_the_written_one_is_sent(device: str, tracked: None) -> None:
    x = np.ones(1 << 22, np.float32)  # 16 MiB: NumPy asks for huge pages
    sent(x, device, resident=True)
    assert sent(x, device) <= 2 * PAGE  # its neighbours'
    x[1 << 21] = 5
    assert 0 < sent(x, device) <= (2 << 20) + 2 * PAGE
    assert sent(x, device) <= 2 * PAGE


def test_a_write_while_it_is_lent_is_sent_with_the_next_region(device: str) -> None:
    x = ramp()
    view = x[10:20]
    with offload_args(In(x), device=device, resident=True) as (dx,):
        blas.asum(dx)
        view[:] = -1  # a view taken before is not locked
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
            if step != 1:  # bytes not read then are read with all that was written since
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
        parent[200, 0] = i  # a gap
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


# -- owners --------------------------------------------------------------------------------------------------


def test_resident_memory_goes_with_its_owner(device: str) -> None:
    d = Device(device)
    x = ramp()
    view = x[10:]
    sent(view, device, resident=True)
    del x
    gc.collect()
    assert d.residency.kept == 1  # the view holds its base
    del view
    gc.collect()
    assert (d.residency.kept, d.residency.kept_bytes, d.residency.pages_armed) == (0, 0, 0)


def test_an_owner_that_dies_with_its_region(device: str) -> None:
    with offload_args(In(ramp()), device=device, resident=True) as (dx,):
        blas.asum(dx)
    gc.collect()
    assert Device(device).residency.kept == 0


def test_new_arrays_at_the_same_address(device: str) -> None:
    addresses = set()
    for i in range(20):
        x = np.full(N, i, np.float32)
        addresses.add(x.ctypes.data)
        assert sent(x, device, resident=True) == x.nbytes
        del x
    assert len(addresses) < 20


def test_small_arrays_freed_and_taken_again(device: str) -> None:
    for i in range(200):
        x = np.full(100 + i % 3, i, np.float32)
        sent(x, device, resident=True)
        del x
    assert Device(device).residency.kept == 0


def test_resize_is_refused_while_an_array_is_resident(device: str) -> None:
    x = np.ones(N, np.float32)
    sent(x, device, resident=True)
    with pytest.raises(ValueError, match="reference"):
        x.resize(2 * N, refcheck=False)
    Device(device).release(x)


def test_fork_counts_for_the_parent_only(device: str) -> None:
    x = ramp()
    sent(x, device, resident=True)
    child = os.fork()
    if child == 0:
        x[:] = 0  # its own copy
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sent(x, device)
    x[99] = -1  # the parent's: a page shared with the child until now
    assert sent(x, device) > 0


# -- memory that others can write ----------------------------------------------------------------------------


def test_memory_that_is_not_the_arrays_own_is_sent_again(device: str, tmp_path: Any) -> None:
    block = shared_memory.SharedMemory(create=True, size=4 * N)
    path = tmp_path / "array"
    path.write_bytes(bytes(4 * N))
    try:
        foreign = [
            np.frombuffer(bytearray(4 * N), np.float32),
            np.frombuffer(mmap.mmap(-1, 4 * N), np.float32),
            np.memmap(path, np.float32, "r+"),
            np.memmap(path, np.float32, "c"),
            np.ndarray(N, np.float32, block.buf),
        ]
        for array in foreign:
            for _ in range(3):
                assert sent(array, device, resident=True) == array.nbytes
        del foreign, array
    finally:
        gc.collect()
        block.close()
        block.unlink()


# An array that the kernel writes through an io_uring's fixed buffer, by way of its pinned pages and not of page tables.
# Prints for each step how much was sent, and whether the device has the bytes of the host.
PINNED = """
import ctypes, mmap, os, struct, sys
import numpy as np
from offload_args import Device, In, Out, blas, offload_args, testing

SETUP, ENTER, REGISTER = 425, 426, 427
REGISTER_BUFFERS, UNREGISTER_BUFFERS, READ_FIXED, GETEVENTS = 0, 1, 4, 1
libc = ctypes.CDLL(None, use_errno=True)

def system(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        print("refused:", os.strerror(ctypes.get_errno()))
        sys.exit()
    return result

def vm_pin():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmPin:"))

def send(step):
    y = np.empty(x.size, np.float32)
    with testing.counting(device) as moved:
        with offload_args(In(x), Out(y), device=device, resident=True) as (dx, dy):
            blas.copy(dx, dy)
    print(step, moved.bytes_up, (x == y).all(), vm_pin() > 0)

device = Device("{device}")
size = 64 * mmap.PAGESIZE
owner = np.empty(size + mmap.PAGESIZE, np.uint8)
x = owner[-owner.ctypes.data % mmap.PAGESIZE :][:size].view(np.float32)
x[:] = 1
parameters = ctypes.create_string_buffer(120)
ring = system(SETUP, 1, parameters)
_, sq_tail, _, _, _, _, sq_array = struct.unpack_from("7I", parameters, 40)
_, _, _, _, _, completions = struct.unpack_from("6I", parameters, 80)
queue = mmap.mmap(ring, mmap.PAGESIZE, offset=0)
entries = mmap.mmap(ring, mmap.PAGESIZE, offset=0x10000000)

send("first")
send("again")
system(REGISTER, ring, REGISTER_BUFFERS, struct.pack("QQ", x.ctypes.data, size), 1)
send("pinned")
send("again")
source = os.memfd_create("source")
os.write(source, np.full(1000, 7, np.float32).tobytes())
struct.pack_into("BBHiQQIIQHHi", entries, 0, READ_FIXED, 0, 0, source, 0, x.ctypes.data + 4000, 4000, 0, 0, 0, 0, 0)
struct.pack_into("I", queue, sq_array, 0)
struct.pack_into("I", queue, sq_tail, 1)
system(ENTER, ring, 1, 1, GETEVENTS, None, 0)
assert struct.unpack_from("i", queue, completions + 8) == (4000,) and (x[1000:2000] == 7).all()
send("written")
system(REGISTER, ring, UNREGISTER_BUFFERS, None, 0)
send("free")
send("again")
"""


def test_while_memory_is_pinned_for_writing_everything_is_sent_again(device: str, tracked: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PINNED.replace("{device}", device)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "refused" in done.stdout:  # io_uring, in this container
        pytest.skip("device unavailable")
    size = 64 * PAGE
    assert done.stdout.splitlines() == [
        f"first {size} True False",
        "again 0 True False",
        f"pinned {size} True True",
        f"again {size} True True",
        f"written {size} True True",
        f"free {size} True False",
        "again 0 True False",
    ]


def test_a_region_that_can_not_be_entered_leaves_resident_arrays_alone(device: str, tracked: None) -> None:
    x = ramp()
    sent(x, device, resident=True)
    with pytest.raises(DeviceMemoryError):
        offload_args(x, Scratch((1 << 57,), np.uint8), device=device).__enter__()
    assert sent(x, device) == 0


def test_the_edges_of_neighbours_on_the_device_are_sent_each_to_its_own(device: str) -> None:
    arrays = [ramp() for _ in range(4)]  # of 1 MiB: the device may give them addresses one behind the other
    with offload_args(*map(In, arrays), device=device, resident=True) as pointers:
        for pointer in pointers:
            blas.asum(pointer)
    for x in arrays:
        x[0] = x[-1] = -5
    with offload_args(*map(In, arrays), device=device) as pointers:
        for i in range(0, 4, 2):
            assert blas.dot(pointers[i][-1:], pointers[i + 1][:1]) == 25
            assert blas.dot(pointers[i][:1], pointers[i + 1][-1:]) == 25
    for x in arrays:
        Device(device).release(x)


def test_an_object_that_can_not_be_lent_can_not_be_kept(device: str) -> None:
    with pytest.raises(DTypeError, match=r"Device\.keep: array has dtype <U1"):
        Device(device).keep(np.array(["a"]))
    Device(device).release(np.array(["a"]))
    with pytest.raises(ArgumentError, match="mode needs .* got 'never'"):
        with testing.residency("never"):  # type: ignore[arg-type]
            pass


def test_where_the_kernel_refuses_everything_is_sent_again(device: str) -> None:
    x = ramp()
    with testing.residency("explicit", tracking=False):
        assert not Device(device).residency.tracking
        assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes] * 3
        assert Device(device).residency.kept == 1


def test_a_kernel_that_begins_to_refuse(device: str) -> None:
    from offload_args import _core

    x = ramp()
    sent(x, device, resident=True)
    _core.residency_configure(1, 0)
    assert [sent(x, device, resident=True) for _ in range(2)] == [x.nbytes] * 2


# -- keep and release ----------------------------------------------------------------------------------------


def test_keep_keeps_until_release(device: str, tracked: None) -> None:
    d, x = Device(device), ramp()
    with testing.counting(d) as moved:
        d.keep(x)
        d.keep(x)
    assert moved.bytes_up == 0
    assert [sent(x, device) for _ in range(2)] == [x.nbytes, 0]
    with offload_args(x, device=device) as (dx,):
        d.release(x)  # while it is lent: the memory goes with the region
        blas.scal(2.0, dx)
    assert x[1] == 2 and d.residency.kept == 0
    assert [sent(x, device) for _ in range(2)] == [x.nbytes, x.nbytes]
    d.release(x)
    for function in (d.keep, d.release):
        with pytest.raises(ArgumentTypeError, match=f"Device.{function.__name__}"):
            function([1, 2])  # type: ignore[arg-type]


def test_memory_is_given_up_when_it_is_wanted() -> None:
    d = testing.sim_device(capacity=10 * 4 * N)
    arrays = [np.full(N, i, np.float32) for i in range(30)]
    for x in arrays:
        sent(x, "sim:0", resident=True)
    assert 0 < d.residency.kept < 10 and d.residency.dropped >= 20
    for x in arrays:
        sent(x, "sim:0")
    large = np.zeros(11 * N, np.float32)
    with pytest.raises(DeviceMemoryError), offload_args(large, device=d):
        pass
    assert d.residency.kept == 0
    sent(arrays[0], "sim:0")
    testing.sim_device()


def test_many_arrays_are_resident_and_memory_is_flat(device: str) -> None:
    arrays = [np.full(40_000 if i % 2 else 100, i, np.float32) for i in range(300)]
    for _ in range(3):
        with offload_args(*arrays, device=device, resident=True) as pointers:
            for d in pointers[::50]:
                blas.scal(1.0, d)
    before = resident_set()
    for _ in range(30):
        with offload_args(*arrays, device=device, resident=True) as pointers:
            for d in pointers[::50]:
                blas.scal(1.0, d)
        Device(device).keep(np.zeros(50_000))
    assert resident_set() - before < 8 << 20
    assert Device(device).residency.kept == len(arrays) // 2
    del arrays, pointers, d
    gc.collect()
    assert Device(device).residency.kept == 0


def resident_set() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


@pytest.mark.promise("T17")
def test_threads_lend_write_and_release(device: str) -> None:
    shared, errors = ramp(), []

    def work(seed: int) -> None:
        try:
            own = ramp()
            for i in range(15):
                own[seed * 100 + i] = -i
                sent(own, device, resident=True)
                sent(shared, device, resident=True)
                if i % 5 == seed % 5:
                    Device(device).release(shared)
                if i % 7 == 6:
                    own = ramp()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("k", range(1, 30))
def test_a_failing_backend_never_leaves_old_bytes(k: int) -> None:
    device, x = testing.sim_device(), ramp()
    sent(x, "sim:0", resident=True)
    x[500] = -1
    testing.fail_call(device, k)
    try:
        with offload_args(x, device=device) as (dx,):
            blas.scal(3.0, dx)
    except Exception:
        pass
    testing.fail_call(device, 0)
    sent(x, "sim:0")


# -- automatic -----------------------------------------------------------------------------------------------


def test_auto_keeps_an_array_that_is_read_for_the_third_time(device: str, tracked: None) -> None:
    with testing.residency("auto"):
        x = ramp(1 << 19)
        assert [sent(x, device) for _ in range(6)] == [x.nbytes] * 3 + [0] * 3
        x[7] = -1
        assert sent(x, device) == PAGE
        before = Device(device).residency
        x[:] = 2
        assert sent(x, device) == x.nbytes
        now = Device(device).residency
        assert now.demoted == before.demoted + 1 and now.kept == 0 and now.pages_armed == 0
        assert now.pages_written - before.pages_written >= 500
        assert now.estimated_cost > before.estimated_cost
        del x
        assert not Device(device).residency.kept


def test_auto_leaves_small_and_foreign_arrays_alone(device: str) -> None:
    with testing.residency("auto"):
        for x in (ramp(1000), np.frombuffer(bytearray(8 * N), np.float32)):
            assert [sent(x, device) for _ in range(6)] == [x.nbytes] * 6
        assert Device(device).residency.kept == 0


def test_auto_gives_up_arrays_that_the_device_writes(device: str) -> None:
    with testing.residency("auto"):
        x = np.ones(1 << 19, np.float32)
        before = Device(device).residency
        for _ in range(20):
            with offload_args(x, device=device) as (dx,):
                blas.scal(1.0, dx)
        now = Device(device).residency
        assert now.promoted == before.promoted and now.pages_armed == 0


def test_auto_backs_off_from_arrays_that_are_rewritten(device: str, tracked: None) -> None:
    with testing.residency("auto"):
        x = np.empty(1 << 19, np.float32)
        before = Device(device).residency
        for i in range(40):
            x[:] = i
            assert sent(x, device) == x.nbytes
        now = Device(device).residency
        assert now.promoted == before.promoted
        assert now.pages_written - before.pages_written <= 16 * 5


def test_auto_follows_new_arrays_at_the_same_address(device: str) -> None:
    with testing.residency("auto"):
        for i in range(12):
            x = np.full(1 << 19, i, np.float32)
            sent(x, device)
            sent(x, device)
            del x


def test_off_keeps_nothing(device: str) -> None:
    with testing.residency("off"):
        x = ramp()
        Device(device).keep(x)
        assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes] * 3
        assert Device(device).residency.kept == 0


SCRIPT = """
import numpy as np
from offload_args import Device, offload_args, blas
x = np.ones(1 << 19, np.float32)
for _ in range(5):
    with offload_args(x, device="host", **OPTIONS) as (dx,):
        blas.asum(dx)
print(Device("host").residency.mode, Device("host").counters.bytes_up // x.nbytes)
"""


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    (("", "{}", "explicit 5"), ("off", "{'resident': True}", "off 5"), ("auto", "{}", "auto 3"),
     ("explicit", "{'resident': True}", "explicit 1")),
)  # fmt: skip
def test_the_mode_comes_from_the_environment(tracked: None, value: str, options: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("OPTIONS", options)],
        env={**os.environ, "OFFLOAD_ARGS_RESIDENCY": value},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", expected)


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_RESIDENCY", "yes")
    with pytest.raises(ArgumentError, match='OFFLOAD_ARGS_RESIDENCY needs "auto", "explicit" or "off", is "yes"'):
        with testing.residency():
            pass
    with pytest.raises(ArgumentError, match="OFFLOAD_ARGS_RESIDENCY"), offload_args(ramp(), device="host"):
        pass
    monkeypatch.delenv("OFFLOAD_ARGS_RESIDENCY")


def test_the_figures_have_names() -> None:
    figures = Device("host").residency
    assert isinstance(figures, Residency)
    assert figures.mode == "explicit"


@pytest.mark.promise("T58")
def test_ctrl_c_while_an_owner_dies_is_raised_and_its_memory_goes(device: str) -> None:
    held = {"x": np.ones(N, np.float32)}

    def drop() -> None:
        held.clear()

    sent(held["x"], device, resident=True)
    for _ in at_every_place(drop):
        assert Device(device).residency.kept == 0
        held["x"] = np.ones(N, np.float32)
        sent(held["x"], device, resident=True)
        assert Device(device).residency.kept == 1
    drop()
    assert Device(device).residency.kept == 0


@pytest.mark.promise("T58")
def test_ctrl_c_while_pinned_memory_goes_is_raised_and_it_is_freed(device: str) -> None:
    held = {"x": empty(1000, device=device)}
    del held["x"]
    before = Device(device).counters.pinned_bytes

    def drop() -> None:
        held.clear()

    held["x"] = empty(1000, device=device)
    for _ in at_every_place(drop):
        assert Device(device).counters.pinned_bytes == before
        held["x"] = empty(1000, device=device)
    drop()
    assert Device(device).counters.pinned_bytes == before


@pytest.mark.promise("T58")
def test_an_owner_lent_on_several_devices_is_watched_once_and_forgotten() -> None:
    for _ in range(3):  # at the same address, perhaps
        x = np.ones(N, np.float32)
        for name in ("host", "sim:0"):
            sent(x, name, resident=True)
            assert Device(name).residency.kept == 1
        with pytest.raises(ValueError, match="referenced|resize"):
            x.resize(3)
        assert weakref.getweakrefcount(x) == 1
        del x
        assert [Device(name).residency.kept for name in ("host", "sim:0")] == [0, 0]
