"""Aborted communicators and lost devices, on doubles of NCCL and CUDA: no call waits forever, no result is wrong.

The doubles let the calls of NCCL return before they run, and lose a device, as the wrong access of a kernel does.
"""

from __future__ import annotations

import os

import pytest

from helpers.devices import library_or_skip, open_or_skip
from helpers.processes import printed, python

BEGIN = """
import ctypes, re, threading, time
import numpy as np
from offload_args import In, InOut, Out, blas, libraries, nccl as c, offload_args, update
from offload_args.errors import *
double = ctypes.CDLL(libraries.load("nccl").path)
double.double_text.restype = ctypes.c_char_p
driver = ctypes.CDLL("libcuda.so.1")

def begin(function, *arguments):
    def run():
        try:
            results.append(function(*arguments))
        except OffloadError as error:
            results.append(error)
    results = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results

def end(thread, results, seconds=60):
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return results[0]

def failed(work, kind, pattern):
    error = end(*work)
    assert type(error) is kind and re.search(pattern, str(error)), error

def until_a_call_waits():
    while not double.double_replays():
        time.sleep(0.001)

comm, other = c.comm_init_all(["cuda:0", "cuda:1"])  # the other rank makes no call
x, y, total = np.ones(4), np.ones(4), np.zeros(4)
region = offload_args(x, y, Out(total), device="cuda:0")
dx, dy, dt = region.__enter__()
leave = lambda: region.__exit__(None, None, None)
"""
GRAPH = """
with region.capture() as g:
    blas.scal(2.0, dx)
    c.all_reduce(dx, dt, 4, None, c.Sum, comm)
"""
WAITING = """
double.double_late(1)
blas.scal(2.0, dx)
c.all_reduce(dx, dt, 4, None, c.Sum, comm)
until_a_call_waits()
"""


@pytest.fixture(autouse=True)
def doubles() -> None:
    for index in range(2):
        open_or_skip(f"cuda:{index}")
    library_or_skip("nccl", "cuda:0")
    if not os.environ.get("OFFLOAD_ARGS_COLLECTIVES_DOUBLE"):
        pytest.skip("device unavailable: no double of nccl")


def run(code: str) -> None:
    assert printed(BEGIN + code + "\nprint('fine')\n").strip() == "fine"


@pytest.mark.promise("T77")
def test_aborting_on_a_lost_device_ends_though_its_graphs_stay() -> None:
    run(
        GRAPH
        + """
replay = begin(g.replay)
until_a_call_waits()
driver.gpu_double_lose(0)
failed(begin(c.comm_abort, comm), DeviceLostError, "comm_abort: cuda:0 is lost, and ncclCommAbort did not return; comm")
failed(replay, StaleGraphError, "comm of the captured calls was aborted")
failed(begin(leave), InvalidDataError, "argument ., argument . was left undefined")
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
"""
    )


@pytest.mark.promise("T77")
@pytest.mark.parametrize("call", ["g.replay", "c.all_reduce, dx, dt, 4, None, c.Sum, comm"], ids=["graph", "call"])
def test_aborting_ends_though_a_call_of_a_lost_device_never_does(call: str) -> None:
    run(
        GRAPH
        + f"""
double.double_stuck(1)
work = begin({call})
while b"AllReduce" not in double.double_text():
    time.sleep(0.001)
time.sleep(0.1)
driver.gpu_double_lose(0)
failed(begin(blas.scal, 2.0, dy), DeviceLostError, "cuda:0 is lost")
failed(begin(c.comm_abort, comm), DeviceLostError, "comm_abort: cuda:0 is lost")
double.double_stuck(0)
end(*work)
failed(begin(leave), InvalidDataError, "was left undefined")
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
"""
    )


@pytest.mark.promise("T77")
def test_a_graph_of_a_lost_device_ends_without_its_destroyed_communicator() -> None:
    run(
        GRAPH
        + """
c.comm_destroy(comm)  # the graph keeps the communicator
driver.gpu_double_lose(0)
failed(begin(leave), DeviceLostError, "cuda:0 is lost")
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
assert b"CommDestroy" not in double.double_text()
"""
    )


@pytest.mark.promise("T77")
@pytest.mark.parametrize("by", ["leave", "dt.to_host", "update, total", "blas.nrm2, dt"])
def test_results_of_a_call_that_waits_are_undefined_once_it_is_aborted(by: str) -> None:
    run(
        WAITING
        + f"waiting = begin({by})"
        + """
time.sleep(0.2)
c.comm_abort(comm)
failed(waiting, InvalidDataError, "a communicator was aborted before its calls")
if dx.live:
    failed(begin(leave), InvalidDataError, "argument 3 was left undefined")
assert (y == 1).all() and (total == 0).all()
"""
    )


FULL = """
driver.gpu_double_room(1000)  # operations that a stream takes while it waits
double.double_late(1)

def work(arrays):
    with offload_args(*arrays, device="cuda:0") as pointers:
        while True:
            for pointer in pointers:
                blas.scal(1.0, pointer)
                calls.append(pointer)

def until_no_thread_goes_on():
    before = -1
    while before < len(calls):
        before = len(calls)
        time.sleep(0.3)

def begin_works():
    works = [begin(work, arrays) for arrays in [(total, x), (x, y), (y, total)] for _ in range(2)]
    until_no_thread_goes_on()
    assert all(thread.is_alive() for thread, _ in works)
    return works

calls = []
"""


@pytest.mark.promise("T77")
def test_aborting_ends_while_threads_that_share_arrays_have_full_queues() -> None:
    run(
        FULL
        + """
c.all_reduce(dx, dt, 4, None, c.Sum, comm)
until_a_call_waits()
works = begin_works()
end(*begin(c.comm_abort, comm), 20)
for work in works:
    failed(work, InvalidDataError, "undefined")
failed(begin(leave), InvalidDataError, "was left undefined")
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
"""
    )


@pytest.mark.promise("T77")
@pytest.mark.parametrize("left", [4, 5, 6])
def test_aborting_ends_beside_launches_of_the_program(left: int) -> None:
    """The last place in the queue goes to the event after a copy up, to the call, or to the event after the call."""
    run(
        f"""
ROOM = 1000
driver.gpu_double_room(ROOM)
double.double_late(1)
native = region.stream.__cuda_stream__()[1]
c.all_reduce(dx, dt, 4, None, c.Sum, comm)
until_a_call_waits()
context, event = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxPushCurrent_v2(context) == 0
assert driver.cuEventCreate(ctypes.byref(event), 2) == 0
for _ in range(ROOM - {left}):
    assert driver.cuEventRecord(event, ctypes.c_void_p(native)) == 0
def work():
    for _ in range(10):
        blas.scal(2.0, dy)
        calls.append(1)
calls = []
waiting = begin(work)
time.sleep(1)
assert not calls
end(*begin(lambda: dx.live), 20)  # needs the core's lock
end(*begin(c.comm_abort, comm), 20)
assert end(*waiting, 20) is None and len(calls) == 10
assert (dy.to_host() == 2**10).all()
failed(begin(leave), InvalidDataError, "argument 3 was left undefined")
assert (total == 0).all()
"""
    )


@pytest.mark.promise("T77", "T83")
def test_a_communicator_ends_in_time_beside_threads_with_full_queues() -> None:
    run(
        FULL
        + """
from offload_args import Communicator
first, second = Communicator.all(["cuda:0", "cuda:1"], timeout=3)  # the second makes no call
waiting = begin(first.all_reduce, dx, dt)
until_a_call_waits()
works = begin_works()
assert end(*waiting, 20).ranks == (1,)
for work in works:
    failed(work, InvalidDataError, "undefined")
failed(begin(leave), InvalidDataError, "was left undefined")
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
second.close()
"""
    )


@pytest.mark.promise("T77")
def test_long_captures_and_many_replays_on_a_device_with_a_communicator() -> None:
    run(
        """
alone, = c.comm_init_all(["cuda:0"])
c.all_reduce(dx, dx, 4, None, c.Sum, alone)
for _ in range(300):
    blas.scal(1.0, dy)
with region.capture() as g:
    for _ in range(300):
        blas.axpy(1.0, dx, dy)
for _ in range(300):
    g.replay()
blas.copy(dy, dt)
leave()
assert (y == 1 + 300 * 300).all() and (total == y).all()
"""
    )


UNSTOPPED = """
double.double_refuse_aborts(1)
aborting = begin(c.comm_abort, comm)
failed(aborting, LibraryError, "comm_abort: the library returned .*; calls of comm still run, so cuda:0 is lost")
"""
UNTOUCHED = """
assert (x == 1).all() and (y == 1).all() and (total == 0).all()
failed(begin(blas.scal, 2.0, dy) if dy.live else begin(offload_args(y, device="cuda:0").__enter__), DeviceLostError,
       "cuda:0 is lost: ncclCommAbort did not end the calls of comm, which still run on the device")
with offload_args(InOut(x), device="cuda:1") as (dx,):  # another device goes on
    blas.scal(2.0, dx)
assert (x == 2).all()
"""


@pytest.mark.promise("T77")
@pytest.mark.parametrize("begins", ["graph", "call"])
def test_a_failed_abort_ends_and_so_do_all_waits_after_it(begins: str) -> None:
    if begins == "graph":
        work = GRAPH + "double.double_late(1)\nwaiting = begin(g.replay)\nuntil_a_call_waits()\n"
    else:
        work = WAITING + "waiting = begin(lambda: None)\n"
    run(
        work
        + UNSTOPPED
        + """
end(*waiting)
for wait in (dt.to_host, lambda: update(total).__enter__(), lambda: c.all_reduce(dx, dt, 4, None, c.Sum, comm), leave):
    assert isinstance(end(*begin(wait)), OffloadError)
"""
        + UNTOUCHED
    )


@pytest.mark.promise("T77")
@pytest.mark.parametrize("by", ["leave", "dt.to_host", "update, total", "blas.nrm2, dt", "dx.device.synchronize"])
def test_a_wait_ends_if_the_abort_fails_meanwhile(by: str) -> None:
    run(
        WAITING
        + f"waiting = begin({by})\ntime.sleep(0.2)"
        + UNSTOPPED
        + """
error = end(*waiting)
assert isinstance(error, (DeviceLostError, InvalidDataError)), error
if dx.live:
    assert isinstance(end(*begin(leave)), OffloadError)
"""
        + UNTOUCHED
    )


@pytest.mark.promise("T77")
def test_a_failed_abort_keeps_the_device_if_the_calls_have_ended() -> None:
    run(
        """
alone, = c.comm_init_all(["cuda:0"])
c.all_reduce(dx, dt, 4, None, c.Sum, alone)
double.double_refuse_aborts(1)
failed(begin(c.comm_abort, alone), LibraryError, "comm_abort: the library returned [^;]*$")
blas.scal(2.0, dy)
assert (dy.to_host() == 2).all()
failed(begin(leave), InvalidDataError, "argument 3 was left undefined")
"""
    )


@pytest.mark.promise("T77", "T83")
def test_a_communicator_ends_though_its_abort_fails() -> None:
    run(
        """
from offload_args import Communicator
first, second = Communicator.all(["cuda:0", "cuda:1"], timeout=1)  # the second makes no call
driver.gpu_double_room(1000)  # a copy into pinned memory does not wait
double.double_late(1)
double.double_refuse_aborts(1)
waiting = begin(first.all_reduce, dx, dt)
assert end(*waiting, 20).ranks == (1,)
assert isinstance(end(*begin(leave), 20), OffloadError)
end(*begin(first.close), 20)
"""
        + UNTOUCHED
    )


@pytest.mark.promise("T77")
@pytest.mark.parametrize("end", ["del region, dx, dy, dt", "leave()", "sys.exit()"])
def test_a_process_ends_after_a_failed_abort(end: str) -> None:
    code = BEGIN + "import sys" + GRAPH + WAITING + UNSTOPPED + "print('fine', flush=True)\n" + end
    ended = python(code, timeout=120)
    assert (ended.stdout.strip(), ended.returncode) == ("fine", int(end == "leave()")), ended.stderr


@pytest.mark.slow
@pytest.mark.promise("T77")
def test_an_abort_that_does_not_return_ends() -> None:
    run(
        WAITING
        + """
double.double_stuck(1)
failed(begin(c.comm_abort, comm), LibraryError,
       "ncclCommAbort did not return within 10 s; comm stays in use until the process ends; calls of comm still run")
assert isinstance(end(*begin(leave), 20), OffloadError)
"""
        + UNTOUCHED
    )
