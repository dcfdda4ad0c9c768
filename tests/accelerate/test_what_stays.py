"""Arrays that stay on the device between an unmodified program's calls are never stale, whatever writes the memory.

All numbers are small integers, so that each product is exact in any order of summation, and a single byte of an old
value changes the result.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import offload_args
from offload_args import Device, In, _core, accelerate, testing

N = 160  # a matrix of 200 KiB, because few arrays of less than 128 KiB become resident
SIZE = N * N * 8


@pytest.fixture(autouse=True)
def all_goes_back() -> Iterator[None]:
    with testing.residency("explicit"):
        yield
        assert _core.accelerate_query() == (0, 0)
        for name in ("host", "sim:0"):
            assert Device(name).residency.kept == 0


@pytest.fixture
def tracked(device: str) -> str:
    """A device, if the Linux kernel lets pages be watched."""
    if not Device(device).residency.tracking:
        pytest.skip("device unavailable")
    return device


def whole(seed: int = 0, shape: tuple[int, ...] = (N, N)) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype("f8")


class Sent:
    """Make products that must be exact, and return the number of bytes that went up for each."""

    def __init__(self, device: str) -> None:
        self.device = Device(device)

    def __call__(self, A: np.ndarray, x: np.ndarray) -> int:
        right = np.einsum("ij,j->i", A.copy(), x)
        before = self.device.counters.bytes_up
        result = A @ x
        went = self.device.counters.bytes_up - before
        np.testing.assert_array_equal(result, right)
        return went


def until_it_stays(sent: Sent, A: np.ndarray, x: np.ndarray) -> None:
    assert any(sent(A, x) < SIZE / 4 for _ in range(16))


def test_a_matrix_that_is_left_unchanged_goes_up_no_more(tracked: str) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(tracked)
    with accelerate(tracked, margin=0) as on:
        went = [sent(A, x) for _ in range(8)]
    edges = 2 * mmap.PAGESIZE  # other data is written on these pages, too
    assert went[0] >= SIZE and max(went[4:]) <= x.nbytes + edges
    assert 5 * SIZE >= on.report.bytes_spared >= 4 * (SIZE - edges)
    assert sum(row.bytes_spared for row in on.report.rows) == on.report.bytes_spared
    assert " KiB that stayed there" in str(on.report)


def write(A: np.ndarray) -> None:
    A[37, 5:90] += 1


def fill(A: np.ndarray) -> None:
    A.fill(3)


def write_by_another_thread(A: np.ndarray) -> None:
    thread = threading.Thread(target=write, args=(A,))
    thread.start()
    thread.join()


def read_into(A: np.ndarray) -> None:
    """The kernel itself writes, by read(2), to memory whose writes are watched."""
    ends = os.pipe()
    os.write(ends[1], np.arange(64.0).tobytes())
    assert os.readv(ends[0], [memoryview(A).cast("B")[8 * N * 9 : 8 * N * 9 + 512]]) == 512
    for end in ends:
        os.close(end)


def read_a_file_into(A: np.ndarray) -> None:
    with open("/proc/self/exe", "rb", buffering=0) as file:
        assert file.readinto(memoryview(np.empty(64)).cast("B")) == 512
        numbers = np.arange(512.0)
        with tempfile.TemporaryFile(buffering=0) as own:
            own.write(numbers.tobytes())
            own.seek(0)
            assert own.readinto(memoryview(A).cast("B")[4096:8192]) == 4096


def write_by_c(A: np.ndarray) -> None:
    ctypes.memset(A.ctypes.data + 8 * N * 100, 0, 8 * N)


def write_by_a_view(A: np.ndarray) -> None:
    A.reshape(-1).view("i8")[777] = np.float64(5.0).view("i8")


def write_one_byte(A: np.ndarray) -> None:
    A[N - 1, N - 1] = 6


def write_in_place(A: np.ndarray) -> None:
    np.negative(A, out=A)


def discard_pages(A: np.ndarray) -> None:
    """Pages that madvise discards are zeros again, although nothing writes to them."""
    page = mmap.PAGESIZE
    low = (A.ctypes.data + page - 1) // page * page
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(low), ctypes.c_size_t(8 * page), mmap.MADV_DONTNEED) == 0


@pytest.mark.parametrize(
    "change",
    [write, fill, write_by_another_thread, read_into, read_a_file_into, write_by_c, write_by_a_view, write_one_byte,
     write_in_place, discard_pages],
)  # fmt: skip
def test_a_write_is_seen(tracked: str, change: Callable[[np.ndarray], None]) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(tracked)
    with accelerate(tracked, margin=0):
        for _ in range(2):
            until_it_stays(sent, A, x)
            change(A)
            for _ in range(6 if change in (fill, write_in_place) else 1):
                sent(A, x)


def test_residency_that_is_off_is_off_here_too(device: str) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(device)
    with testing.residency("off"), accelerate(device, margin=0):
        assert [sent(A, x) for _ in range(8)] == [SIZE + x.nbytes] * 8


def test_a_few_written_pages_are_all_that_goes_up() -> None:
    A, x, sent = whole(0, (600, 600)), whole(1, (600,)), Sent("host")
    if not sent.device.residency.tracking:
        pytest.skip("device unavailable")
    with accelerate("host", margin=0):
        for _ in range(4):
            sent(A, x)
        A[300] = 2
        assert 4800 < sent(A, x) < 50_000
        assert sent(A, x) <= 4800 + 2 * mmap.PAGESIZE  # other data is written on the pages at its edges


def test_an_array_that_is_written_each_time_never_stays(tracked: str) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(tracked)
    before = sent.device.residency
    with accelerate(tracked, margin=0):
        for i in range(40):
            A[:] = i % 7
            assert sent(A, x) >= SIZE
    after = sent.device.residency
    assert after.pages_written - before.pages_written <= 0.01 * 40 * SIZE / mmap.PAGESIZE
    assert after.kept == 0


def test_memory_that_is_freed_and_taken_again(tracked: str) -> None:
    x, sent = whole(1, (N,)), Sent(tracked)
    addresses = set()
    with accelerate(tracked, margin=0):
        for seed in range(12):
            A = whole(seed)
            addresses.add(A.ctypes.data)
            for _ in range(5):
                sent(A, x)
            del A
    assert len(addresses) < 12, "no memory came again"


@pytest.mark.parametrize("large", [False, True])
def test_memory_that_is_unmapped_and_mapped_anew(tracked: str, large: bool) -> None:
    """Another mapping at the same address was written before it was watched, or was never written."""
    n = 600 if large else N
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    nbytes = (n * n * 8 + 4095) // 4096 * 4096
    private, fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x10

    def mapped(at: int | None) -> int:
        flags = private | (fixed if at else 0)
        address = libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(nbytes), 3, flags, -1, ctypes.c_long(0))
        assert address not in (None, ctypes.c_void_p(-1).value)
        return int(address)

    def array(address: int) -> np.ndarray:
        return np.frombuffer((ctypes.c_double * (n * n)).from_address(address)).reshape(n, n)

    x, sent = whole(1, (n,)), Sent(tracked)
    address = mapped(None)
    A = array(address)
    A[:] = whole(2, (n, n))
    with accelerate(tracked, margin=0):
        for _ in range(6):
            sent(A, x)
        mapped(address)  # a new mapping of zeros replaces it
        for _ in range(6):
            sent(A, x)
        A[:] = 3
        for _ in range(6):
            sent(A, x)
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
        mapped(address)
        A[5] = 7
        for _ in range(6):
            sent(A, x)
        for _ in range(3):
            whole(4) @ whole(5, (N,))
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))


def test_memory_that_is_moved(tracked: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    nbytes = (SIZE + 4095) // 4096 * 4096
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    places = [libc.mmap(None, ctypes.c_size_t(nbytes), 3, flags, -1, ctypes.c_long(0)) for _ in range(2)]
    first, second = (np.frombuffer((ctypes.c_double * (N * N)).from_address(at)).reshape(N, N) for at in places)
    first[:], second[:] = whole(2), whole(3)
    x, sent = whole(1, (N,)), Sent(tracked)
    with accelerate(tracked, margin=0):
        for _ in range(6):
            sent(first, x)
            sent(second, x)
        third = libc.mmap(None, ctypes.c_size_t(nbytes), 3, flags, -1, ctypes.c_long(0))
        maymove_fixed = 3
        sizes = (ctypes.c_size_t(nbytes), ctypes.c_size_t(nbytes), maymove_fixed)
        assert libc.mremap(ctypes.c_void_p(places[0]), *sizes, ctypes.c_void_p(third)) == third
        assert libc.mremap(ctypes.c_void_p(places[1]), *sizes, ctypes.c_void_p(places[0])) == places[0]
        for _ in range(6):
            sent(first, x)  # x has the values of `second`
    for at in (places[0], third):
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(nbytes))


def test_memory_of_others_is_sent_each_time(tracked: str, tmp_path: object) -> None:
    """Writes to files, and to memory that processes share, are not recorded in this process."""
    (x, sent), path = (whole(1, (N,)), Sent(tracked)), f"{tmp_path}/m"
    mapped = np.memmap(path, "f8", "w+", shape=(N, N))
    other = np.memmap(path, "f8", "r+", shape=(N, N))
    shared = np.frombuffer(mmap.mmap(-1, SIZE)).reshape(N, N)
    with accelerate(tracked, margin=0):
        for i in range(8):
            other[i], shared[i] = i, i
            assert sent(mapped, x) >= SIZE
            assert sent(shared, x) >= SIZE


def test_pinned_memory_never_stays() -> None:
    sent = Sent("sim:0")
    A, x = offload_args.empty((N, N), "f8", device="sim:0"), whole(1, (N,))
    with accelerate("sim:0", margin=0):
        for i in range(8):
            A[:] = i
            assert sent(A, x) >= SIZE
    del A


def test_slices_of_one_array_stay_apart(tracked: str) -> None:
    A, x, sent = whole(0, (2 * N, N)), whole(1, (N,)), Sent(tracked)
    parts = [A[:N], A[N:], A[N // 2 : N // 2 + N], A[:N, ::1].T]
    with accelerate(tracked, margin=0):
        for i in range(24):
            for part in parts:
                sent(part, x)
            if i % 5 == 4:
                A[(i * 31) % (2 * N), 3:9] = i % 8


def test_what_a_call_writes_stays_once_a_chain_was_seen_twice(tracked: str) -> None:
    A, B, device = whole(0, (400, 400)), whole(1, (400, 400)), Device(tracked)
    right = A @ B @ B
    ups = []
    with accelerate(tracked, margin=0):
        for _ in range(8):
            before = device.counters.bytes_up
            C = A @ B
            D = C @ B
            ups.append((device.counters.bytes_up - before) / A.nbytes)
            np.testing.assert_array_equal(D, right)
    assert ups[0] >= 4
    assert min(ups) < 0.2, ups  # A, B and C are on the device


def test_what_a_call_wrote_and_the_program_changed_is_sent(tracked: str) -> None:
    A, B = whole(), whole(1)
    with accelerate(tracked, margin=0):
        for i in range(9):
            C = A @ B
            if i > 4:
                C[i] += 1
            right = np.einsum("ij,jk->ik", C.copy(), B)
            np.testing.assert_array_equal(C @ B, right)
            out = np.empty_like(C)
            np.matmul(C, B, out=out)
            np.testing.assert_array_equal(out, right)
            np.matmul(B, C, out=A[:])  # an operand of the previous product is written
            np.testing.assert_array_equal(A, np.einsum("ij,jk->ik", B, C))
            A[:] = whole(i)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_leaves_both_processes_right(tracked: str) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(tracked)
    with accelerate(tracked, margin=0) as on:
        until_it_stays(sent, A, x)
        pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            A[3] = 5
            os._exit(0 if np.array_equal(A @ x, np.einsum("ij,j->i", A, x)) else 2)
        A[4] = 6
        sent(A, x)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        A[5] = 7
        for _ in range(6):
            sent(A, x)
        gone = on.report.gone
        sent(A, x)
        assert on.report.gone == gone + 1


def test_threads_that_share_a_matrix_and_write_their_own(tracked: str) -> None:
    shared = whole()

    def work(seed: int) -> int:
        own, x = whole(seed), whole(seed + 100, (N,))
        wrong = 0
        for i in range(15):
            for A in (shared, own):
                wrong += not np.array_equal(A @ x, np.einsum("ij,j->i", A, x))
            if i % 6 == 5:
                own[i] = seed
        return wrong

    with accelerate(tracked, margin=0), ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 0


def test_a_device_that_fails_at_any_call_leaves_nothing_stale() -> None:
    A, B, x = whole(), whole(1), whole(2, (N,))
    sim = testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(1, 30):
            A[k % N] = k % 9
            right = np.einsum("ij,j->i", A, x), np.einsum("ij,j->i", A, np.einsum("ij,j->i", B, x))
            for i in range(3):
                testing.fail_call(sim, k if i == 1 else 0)
                np.testing.assert_array_equal(A @ x, right[0])
                np.testing.assert_array_equal((A @ B) @ x, right[1])
    testing.fail_call(sim, 0)
    assert on.report.gone > 0
    assert sum(row.refused.get("device failed", 0) for row in on.report.rows) > 5


def test_a_device_without_room_for_all_keeps_what_it_can() -> None:
    sim = testing.sim_device(capacity=5 * SIZE, index=1)
    matrices, x = [whole(i) for i in range(6)], whole(1, (N,))
    with accelerate(sim, margin=0):
        for i in range(12):
            for A in matrices:
                np.testing.assert_array_equal(A @ x, np.einsum("ij,j->i", A, x))
            matrices[i % 6][i] = i % 4
        assert sim.residency.kept_bytes <= 5 * SIZE
    assert sim.residency.kept == 0
    testing.sim_device(index=1)


def test_what_the_program_lends_itself_needs_no_copy(device: str) -> None:
    A, x, sent = whole(), whole(1, (N,)), Sent(device)
    with offload_args.offload_args(In(A), device=device) as (dA,), accelerate(device, margin=0):
        assert dA.live
        sent(A, x)
        assert sent(A, x) == x.nbytes  # the whole array, whatever is written in between


def test_a_trace_says_what_moved(tracked: str) -> None:
    from offload_args import trace

    A, x = whole(), whole(1, (N,))
    with accelerate(tracked, margin=0), trace() as seen:
        for _ in range(8):
            A @ x
    ups = [event for event in seen.events if event.kind == "up" and event.name == "A"]
    assert 1 <= len([event for event in ups if event.nbytes >= SIZE]) <= 4


# -- rent or buy -------------------------------------------------------------------------------------------------------


def test_a_matrix_is_rented_before_it_is_bought() -> None:
    """The rates are chosen by the test: the CPU is slow, the device is fast, and copies take long."""
    sim, n = Device("sim:0"), 1100
    if not sim.residency.tracking:
        pytest.skip("device unavailable")
    A, x = whole(0, (n, n)), whole(1, (n,))
    rates = (2e8, 2e9, 1e-6, *(1e15,) * 4, *(1e12,) * 4, 1e12)
    with accelerate("sim:0") as on:
        _core.accelerate_use(sim.number, rates)
        refused = 0
        for _ in range(4000):
            A @ x
            if on.report.gone:
                break
            refused += 1
    price = A.nbytes / 2e8
    assert on.report.gone == 1
    assert refused >= 1
    cpu = on.report.rows[0].host_seconds
    assert cpu > 0.5 * price, (cpu, price, refused)  # at least the cost of bringing the matrix was lost before


def test_a_matrix_that_is_used_once_is_not_bought() -> None:
    sim, n = Device("sim:0"), 1100
    x = whole(1, (n,))
    rates = (2e8, 2e9, 1e-6, *(1e15,) * 4, *(1e12,) * 4, 1e12)
    with accelerate("sim:0") as on:
        _core.accelerate_use(sim.number, rates)
        for i in range(6):
            whole(i, (n, n)) @ x
    assert on.report.calls == 6 and on.report.gone == 0, on.report
