"""With guard=True, the host's access to an array that is newer on a device raises an exception (T69)."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import UserList
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.interrupts import ctrl_c_at_end_of
from helpers.processes import SLOWNESS, python
from offload_args import Device, In, blas, empty, offload_args, testing, update
from offload_args.errors import ArgumentError, GuardError

PAGE = os.sysconf("SC_PAGESIZE")
N = 16 * PAGE // 4  # float32 numbers: at least 15 whole pages


def ones(n: int = N) -> Array:
    return np.ones(n, np.float32)


def settle() -> None:
    """Give an exception that is pending until the next call the chance to be raised."""
    for _ in range(3):
        time.sleep(0)


def bytes_behind(x: Array) -> Array:
    """Return the host's bytes, even if access is forbidden."""
    with open("/proc/self/mem", "rb", 0) as memory:
        memory.seek(x.ctypes.data)
        return np.frombuffer(memory.read(x.nbytes), x.dtype)


TOUCHES: dict[str, Callable[[Array], object]] = {
    "sum": lambda x: x.sum(),
    "element": lambda x: x[N // 2],
    "copy": lambda x: x.copy(),
    "bytes": lambda x: bytes(x),
    "write": lambda x: x.ctypes.data_as(np.ctypeslib.ndpointer(np.float32)) and np.copyto(writeable(x), 3),
}


def writeable(x: Array) -> Array:
    """Return a view that the host may still write, like a view that was made before the array was lent."""
    return np.frombuffer((np.ctypeslib.ctypes.c_char * x.nbytes).from_address(x.ctypes.data), x.dtype)


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_touch_of_an_array_that_the_device_has_newer_is_an_exception(touch: str, device: str) -> None:
    x = ones()
    at = sys._getframe().f_lineno + 2
    with pytest.raises(GuardError) as raised:
        with offload_args(x, device=device, guard=True) as (dx,):
            blas.scal(2.0, dx)
            TOUCHES[touch](x)
            settle()
    text = str(raised.value)
    assert f"the host read or wrote x, which is lent at tests/regions/test_guard.py:{at} to {device}" in text
    assert "to_host()" in text and "update(x)" in text
    assert x.flags.writeable
    x += 1  # the array is an ordinary array again


SYSTEM_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "os.write": lambda x, file: os.write(file.fileno(), x[-x.ctypes.data % PAGE // x.itemsize :]),
    "file.write": lambda x, file: file.write(x),
    "tofile": lambda x, file: x.tofile(file),
}


@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_a_system_call_that_gets_a_guarded_array_says_why(name: str, device: str, tmp_path: Path) -> None:
    """T62. The kernel returns EFAULT, and no handler sees a fault, so the error from the block gets a note."""
    x = ones()
    with open(tmp_path / "x", "wb") as file:
        with pytest.raises(OSError) as raised, offload_args(x, device=device, guard=True) as (dx,):
            blas.scal(2.0, dx)
            SYSTEM_CALLS[name](x, file)
        assert any("a system call can't read one that is newer" in note for note in raised.value.__notes__)
        with pytest.raises(FileNotFoundError) as other, offload_args(x, device=device, guard=True) as (dx,):
            blas.scal(2.0, dx)
            os.stat(tmp_path / "none")
        assert not any("system call" in note for note in getattr(other.value, "__notes__", []))
        with offload_args(x, device=device, guard=True) as (dx,):
            blas.scal(2.0, dx)
            update(x)
            SYSTEM_CALLS[name](x, file)


def test_what_the_device_does_not_have_newer_may_be_read(device: str) -> None:
    A, x, y = ones(), ones(), ones()
    with offload_args(In(A), x, y, device=device, guard=True) as (dA, dx, dy):
        assert x.sum() == N  # no call has written x yet
        blas.copy(dA, dy)
        assert A.sum() == N and x.sum() == N
        blas.axpy(1.0, dy, dx)
        update(y)
        assert y.sum() == N
        update(x)
        assert x.sum() == 2 * N
        blas.scal(2.0, dx)
        np.testing.assert_array_equal(bytes_behind(x), 2)  # an update copies its array down
        update(x[: N // 2])
        assert x[: N // 2 - PAGE].sum() == 4 * (N // 2 - PAGE)
        with update(x) as written:
            assert written.sum() == 4 * N
            written[...] = 7
        assert x.sum() == 7 * N
        blas.scal(2.0, dx)
        assert dx.to_host().sum() == 14 * N
    assert x.sum() == 14 * N and y.sum() == N


@pytest.mark.parametrize("direction", [In, lambda x: x], ids=["In", "plain"])
def test_a_write_through_an_older_view_is_an_exception_while_the_device_only_reads(
    direction: Callable[[Array], Any], device: str
) -> None:
    """T69."""
    x, y = ones(), ones()
    lent = direction(x)
    at = sys._getframe().f_lineno + 2
    with pytest.raises(GuardError) as raised:
        with offload_args(lent, y, device=device, guard=True) as (dx, dy):
            writeable(x)[:] = 1  # the device has no bytes of it yet
            blas.copy(dx, dy)
            assert x.sum() == N
            writeable(x)[N // 2] = 5
            settle()
    text = str(raised.value)
    assert f"the host wrote lent, which is lent at tests/regions/test_guard.py:{at} to {device}" in text
    assert "with update(x):" in text
    x += 1  # the array is an ordinary array again


def test_a_write_after_an_update_is_an_exception(device: str) -> None:
    x, y = ones(), ones()
    with offload_args(x, y, device=device, guard=True) as (dx, dy):
        blas.scal(2.0, dx)
        update(x)
        with pytest.raises(GuardError, match="the host wrote x"):
            writeable(x)[N // 2] = 5
            settle()
        with update(x) as written:
            written[...] = 7
        with pytest.raises(GuardError, match="the host wrote x"):
            writeable(x)[N // 3] = 6
            settle()
        blas.copy(dx, dy)
        assert dy.to_host().sum() == 7 * N


@pytest.mark.copies
def test_an_inner_region_guards_bytes_that_the_device_has_already(device: str) -> None:
    x, y = ones(), ones()
    with offload_args(x, y, device=device) as (dx, dy):
        blas.copy(dx, dy)
        with offload_args(In(x), In(y), device=device, guard=True):
            with pytest.raises(GuardError, match="the host wrote x"):
                writeable(x)[N // 2] = 5
                settle()
            with pytest.raises(GuardError, match="the host read or wrote y"):
                y.sum()
                settle()


def test_the_guard_of_one_device_stays_when_another_device_returns_the_array() -> None:
    x = ones()
    with offload_args(In(x), device="sim:0", guard=True) as (first,):
        blas.asum(first)
        with offload_args(In(x), device="sim:1", guard=True) as (second,):
            blas.asum(second)
        with pytest.raises(GuardError, match="lent at .* to sim:0"):
            writeable(x)[N // 2] = 5
            settle()


def test_a_file_that_can_only_be_read_stays_so(device: str, tmp_path: Path) -> None:
    ones().tofile(tmp_path / "x")
    with open(tmp_path / "x", "rb") as file:  # a private map, whose pages the process could make writable
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    x, y = np.frombuffer(pages, np.float32), ones()

    def rights() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line.split()[1] for line in lines if line.endswith(str(tmp_path / "x"))]

    before = rights()
    with offload_args(In(x), y, device=device, guard=True) as (dx, dy):
        blas.scal(3.0, dy)
        blas.axpy(1.0, dx, dy)
        assert x.sum() == N and rights() == before
    assert y.sum() == 4 * N and rights() == before


def test_pages_that_an_array_shares_stay_readable(device: str) -> None:
    memory = ones(4 * N)
    part = memory[N + 5 : 3 * N - 7]
    with offload_args(part, device=device, guard=True) as (dpart,):
        blas.scal(2.0, dpart)
        assert memory[: N + 5].sum() == N + 5 and memory[3 * N - 7 :].sum() == N + 7
        settle()
        with pytest.raises(GuardError, match="part"):
            memory[2 * N :].sum()
            settle()
    A = np.ones((64, 2 * PAGE), np.float32)
    columns = A[:, : PAGE // 4]  # each line is a page or a part of a page
    with offload_args(columns, device=device, guard=True) as (dA,):
        dA.fill(2)
        assert A[:, PAGE // 4 :].sum() == 64 * (2 * PAGE - PAGE // 4)
        settle()
    assert columns.sum() == 2 * columns.size


def test_small_strided_and_packed_arrays_work_as_without(device: str) -> None:
    x, z = ones(8), np.ones((3, 40, 50), np.float32)
    strided, reordered = ones(2 * N)[::2], z.transpose(1, 2, 0)
    with (
        pytest.warns(UserWarning, match="packed"),
        offload_args(x, strided, reordered, device=device, guard=True) as (dx, dstrided, dz),
    ):
        for each in (dx, dstrided, dz):
            each.fill(3)
        assert x.sum() == 8 and strided.sum() == N
        settle()
    assert x.sum() == 24 and strided.sum() == 3 * N and z.sum() == 3 * z.size


def test_the_exception_is_of_the_thread_that_touched(device: str) -> None:
    x, caught = ones(), []

    def read() -> None:
        try:
            x.sum()
            settle()
        except GuardError as error:
            caught.append(str(error))

    with offload_args(x, device=device, guard=True) as (dx,):
        for count in range(1, 4):
            blas.scal(2.0, dx)
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
            assert len(caught) == count
    assert x.sum() == 8 * N


def read_on_a_thread_of_c(x: Array) -> None:
    """Read some of an array on a thread that Python does not know, such as a BLAS thread."""
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    strlen = ctypes.cast(libc.strlen, ctypes.c_void_p)
    middle = ctypes.c_void_p(x.ctypes.data + x.nbytes // 2)
    create, join = libc.pthread_create, libc.pthread_join
    status = []
    try:  # the exception may be raised as soon as the thread runs
        status.append(create(ctypes.byref(thread), None, strlen, middle))
    finally:
        join(thread, None)
    assert status == [0]


def test_a_touch_by_a_thread_of_c_is_an_exception_of_the_thread_that_lent(device: str) -> None:
    x, caught = ones(), []

    def lend_and_read(*, settled: bool, error: type[Exception] | None = None) -> None:
        try:
            with offload_args(x, device=device, guard=True) as (dx,):
                blas.scal(2.0, dx)
                read_on_a_thread_of_c(x)
                if settled:
                    settle()
                if error:
                    raise error
        except Exception as came:
            caught.append(came)

    for settled in (True, False):
        lend_and_read(settled=settled)
        assert isinstance(caught[-1], GuardError) and "the host read or wrote x, which is lent" in str(caught[-1])
        thread = threading.Thread(target=partial(lend_and_read, settled=settled))
        thread.start()
        thread.join()  # Python informs the main thread first, which only waits here
        assert isinstance(caught[-1], GuardError) and "the host read or wrote x, which is lent" in str(caught[-1])
        settle()
        assert len(caught) == (2 if settled else 4)
    thread = threading.Thread(target=partial(lend_and_read, settled=False, error=KeyError))
    thread.start()
    thread.join()
    if isinstance(caught[-1], KeyError):
        assert any(
            "the host read or wrote x" in note
            for note in getattr(caught[-1], "__notes__", ["the host read or wrote x"])
        )
    else:  # the main thread passed the error on before it waited
        assert isinstance(caught[-1], GuardError)


@pytest.mark.later("host")
def test_a_debugger_works_after_the_exception_came_at_the_end_of_the_region(device: str) -> None:
    """Python 3.11 runs no traced function while its flag of a sent exception is set."""
    ran = python(
        f"""
import sys
import numpy as np
from offload_args import blas, offload_args
from offload_args.errors import GuardError

x = np.ones({N}, np.float32)
for i in range(2):
    try:
        with offload_args(x, device={device!r}, guard=True) as (dx,):
            blas.scal(2.0, dx)
            x[{N // 2}]  # Python checks for sent exceptions at calls and loops only
    except GuardError as error:
        print("the host read or wrote x" in str(error), error.__traceback__.tb_next is None)
    sys.settrace(lambda *event: None)
    (lambda: None)()
    sys.settrace(None)
""",
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True True\nTrue True\n", ""), ran.stdout + ran.stderr


def test_ctrl_c_before_the_exception_at_the_end_of_the_region_comes_after_it(device: str) -> None:
    x, owner, texts = ones(), UserList[int](), []
    going = ctrl_c_at_end_of(owner)
    with pytest.raises(KeyboardInterrupt):
        try:
            with offload_args(x, device=device, guard=True) as (dx,):
                blas.scal(2.0, dx)
                x[N // 2]  # Python checks for signals and sent exceptions at calls and loops only
                del owner
        except GuardError as error:
            texts += error.args
            settle()
    assert "the host read or wrote x" in texts[0] and going() is None
    settle()


@pytest.mark.later
def test_the_main_thread_may_wait_while_threads_of_c_touch_often(device: str) -> None:
    x, caught = ones(), []

    def lend_and_read() -> None:
        time.sleep(0.5)  # by then the main thread waits
        for _ in range(40):  # Python's list of pending calls has 32 places
            try:
                with offload_args(x, device=device, guard=True) as (dx,):
                    blas.scal(1.0, dx)
                    read_on_a_thread_of_c(x)
            except GuardError:
                caught.append(x.sum())

    thread = threading.Thread(target=lend_and_read)
    thread.start()
    thread.join()
    assert caught == [N] * 40


def test_a_touch_after_the_thread_that_lent_has_ended_is_printed(device: str) -> None:
    x, opened = ones(), []
    lender = threading.Thread(
        target=lambda: opened.append(offload_args(x, device=device, guard=True)) or opened[0].open()
    )
    lender.start()
    lender.join()
    printed: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda it: printed.append(str(it.exc_value))
    try:
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            read_on_a_thread_of_c(x)
            settle()
    finally:
        sys.unraisablehook = before
        opened[0].close()
    assert len(printed) == 1 and "the host read or wrote x" in printed[0]
    assert x.sum() == 2 * N


@pytest.mark.later
def test_products_whose_threads_read_a_guarded_matrix_end_in_the_exception(device: str) -> None:
    program = f"""
import threading
import numpy as np
from offload_args import offload_args
from offload_args.errors import GuardError
A, B = np.ones((600, 500)), np.ones((500, 400))
def multiply():
    caught = []
    for i in range(20):
        try:
            with offload_args(A, B, device={device!r}, guard=True) as (dA, dB):
                dA.fill(i)
                dB.fill(2)
                A @ B
        except GuardError:
            caught.append(i)
    print(caught == list(range(20)))
multiply()
thread = threading.Thread(target=multiply)
thread.start()
thread.join()
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "4"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300 * SLOWNESS, env=environment
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\nTrue\n", "")


def test_a_pinned_array_is_guarded(device: str) -> None:
    x, y = empty(N, np.float32, device=device), empty(N, np.float32, device=device)
    x[...], y[...] = 1, 2
    for resident in (False, True):
        with pytest.raises(GuardError, match="x, which is lent"):
            with offload_args(x, In(y), device=device, guard=True, resident=resident) as (dx, dy):
                blas.axpy(1.0, dy, dx)
                assert y.sum() == 2 * N
                x.sum()
                settle()
        assert x.sum() == N
        with offload_args(x, In(y), device=device, guard=True, resident=resident) as (dx, dy):
            blas.axpy(1.0, dy, dx)
            update(x)
            assert x.sum() == 3 * N
            with update(x) as written:
                written[: N // 2] = 5
            blas.axpy(1.0, dy, dx)
            with pytest.raises(GuardError):
                x.sum()
                settle()
        assert x[: N // 2].sum() == 7 * N // 2 and x[N // 2 :].sum() == 5 * N // 2
        x[...] = 1
    Device(device).release(x)


def test_threads_that_read_while_regions_come_and_go_never_end_the_process(device: str) -> None:
    x, stop, wrong = ones(), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                x.sum()
                settle()
            except GuardError:
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with offload_args(x, device=device, guard=True) as (dx,):
            blas.scal(1.0, dx)
            blas.scal(1.0, dx)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and x.sum() == N


def test_a_forked_child_reads_its_arrays(device: str) -> None:
    x = ones()
    with offload_args(x, device=device, guard=True) as (dx,):
        blas.scal(2.0, dx)
        child = os.fork()
        if not child:
            os._exit(int(x.sum() != N))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(GuardError):
            x.sum()
            settle()


def test_a_failed_block_and_a_discarded_region_give_the_pages_back(device: str) -> None:
    x = ones()
    with pytest.raises(KeyError), offload_args(x, device=device, guard=True) as (dx,):
        blas.scal(2.0, dx)
        raise KeyError
    assert x.sum() == N
    region = offload_args(x, device=device, guard=True)
    (dx,) = region.open()
    blas.scal(2.0, dx)
    region.discard()
    assert x.sum() == N


def test_any_failing_backend_call_gives_the_pages_back() -> None:
    sim = testing.sim_device()
    for k in range(1, 12):
        x = ones()
        try:
            with offload_args(x, device=sim, guard=True) as (dx,):
                testing.fail_call(sim, k)
                blas.scal(2.0, dx)
                update(x)
                blas.scal(2.0, dx)
        except Exception:
            pass
        testing.fail_call(sim, 0)
        assert x.sum() in (N, 2 * N, 4 * N)


def test_an_array_whose_address_was_given_away_counts_as_newer(device: str) -> None:
    x = ones()
    with offload_args(x, device=device, guard=True) as (dx,):
        assert dx.address
        with pytest.raises(GuardError):
            x.sum()
            settle()
    with offload_args(In(x), device=device, guard=True) as (dx,):
        assert dx.address and x.sum() == N
        settle()


def test_an_array_may_be_freed_while_it_is_guarded(device: str) -> None:
    with offload_args(ones(100 * N), device=device, guard=True) as (dx,):
        blas.scal(2.0, dx)
    assert sum(ones(100 * N).sum() for _ in range(3)) == 300 * N


def test_nested_regions_guard_until_the_outermost_is_left(device: str) -> None:
    x = ones()
    with offload_args(x, device=device, guard=True):
        with offload_args(x[N // 4 :], device=device) as (part,):
            blas.scal(2.0, part)
        with pytest.raises(GuardError):
            x.sum()
            settle()
    assert x.sum() == N // 4 + 2 * (N - N // 4)


def test_resident_arrays_are_guarded_and_only_changed_pages_are_sent(device: str) -> None:
    x = ones(64 * N)
    with offload_args(x, device=device, guard=True, resident=True) as (dx,):
        blas.scal(2.0, dx)
        with pytest.raises(GuardError):
            x.sum()
            settle()
    x[:10] = 5
    for factor in (2.0, 4.0):
        with offload_args(x, device=device, guard=True, resident=True) as (dx,):
            assert blas.asum(dx) == pytest.approx(50 * factor / 2 + (64 * N - 10) * factor)
            blas.scal(2.0, dx)
    assert x[0] == 20 and x[-1] == 8
    Device(device).release(x)


def test_a_system_call_fails_with_an_error(device: str, tmp_path: Path) -> None:
    x = ones()
    with offload_args(x, device=device, guard=True) as (dx,):
        blas.scal(2.0, dx)
        whole = -x.ctypes.data % PAGE // 4  # where the first whole page begins
        with open(tmp_path / "x", "wb", 0) as sink, pytest.raises(OSError, match="Bad address"):
            sink.write(writeable(x)[whole:])
    assert x.sum() == 2 * N


@pytest.mark.later("host")
def test_another_fault_still_reaches_the_handler_that_was_there(device: str) -> None:
    program = f"""
import ctypes, faulthandler, sys
import numpy as np
from offload_args import blas, offload_args
{{}}
x = np.ones({N}, np.float32)
with offload_args(x, device={device!r}, guard=True) as (dx,):
    blas.scal(2.0, dx)
    {{}}
    ctypes.string_at(64)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    # AddressSanitizer's own handler would report the fault and exit.
    environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    for before, inside in (("faulthandler.enable()", ""), ("", "faulthandler.enable()"), ("", "")):
        command = [sys.executable, "-c", program.format(before, inside)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert ran.returncode == -signal.SIGSEGV
        assert ("Fatal Python error: Segmentation fault" in ran.stderr) == bool(before or inside)
    assert faulthandler.is_enabled()


@pytest.mark.later
def test_the_environment_asks_for_it_everywhere(device: str) -> None:
    program = f"""
import time
import numpy as np
from offload_args import blas, call, errors, offload_args
x = np.ones({N}, np.float32)
call(blas.scal, 2.0, x, device={device!r})
try:
    with offload_args(x, device={device!r}) as (dx,):
        blas.scal(2.0, dx)
        x.sum()
        time.sleep(0)
except errors.GuardError as error:
    print("x, which is lent at <string>:8 to {device}" in str(error), x.sum() == 2 * x.size)
"""
    for value, printed in (("1", "True True\n"), ("0", ""), ("", "")):
        environment = os.environ | {"OFFLOAD_ARGS_GUARD": value}
        ran = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment
        )
        assert (ran.stdout, ran.stderr) == (printed, "")
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"OFFLOAD_ARGS_GUARD": "yes"}
    )
    assert "OFFLOAD_ARGS_GUARD=yes: needs 0 or 1" in ran.stderr


def test_guard_is_true_or_false() -> None:
    with pytest.raises(ArgumentError, match="guard needs True or False, got 'yes'"):
        offload_args(ones(), guard="yes")  # type: ignore[arg-type]


def test_finding_the_names_holds_no_variable_of_the_caller(device: str) -> None:
    x, y = ones(), ones()
    gone = weakref.ref(x)
    for arguments in ((x,), (x, y)):
        with offload_args(*arguments, device=device, guard=True):
            pass
    del x, arguments
    gc.collect()
    assert gone() is None
    variables = locals()  # Python itself gives the program this dict
    with offload_args(*(y,), device=device, guard=True):
        pass
    assert variables["y"] is y
