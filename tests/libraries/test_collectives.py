"""NCCL and RCCL on a double whose ranks are threads of one process: results, refusals, groups and failures."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers.devices import library_or_skip, open_or_skip
from helpers.processes import printed
from offload_args import libraries, nccl, offload_args
from offload_args.errors import ArgumentError, ArgumentTypeError

BEGIN = """
import ctypes, importlib, os, re, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from offload_args import In, InOut, Out, blas, libraries, offload_args, testing
from offload_args.errors import *
LIBRARY, BACKEND = os.environ["LIBRARY"], os.environ["BACKEND"]
c = importlib.import_module(f"offload_args.{LIBRARY}")
if os.environ["DOUBLE"]:
    testing.library(LIBRARY, os.environ["DOUBLE"], backend=BACKEND)
double = ctypes.CDLL(libraries.load(LIBRARY).path)
double.double_text.restype = ctypes.c_char_p
DEVICES = [f"{BACKEND}:0", f"{BACKEND}:1"]
def text():
    return double.double_text().decode()
def on_ranks(work, comms=None):
    comms = comms or c.comm_init_all(DEVICES)
    with ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(lambda rank: work(comms[rank], rank, DEVICES[rank]), range(len(comms))))
def refused(kind, pattern, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert re.search(pattern, str(error)), error
    else:
        raise AssertionError(f"{function}: it was not refused")
def sent(rank, n, dtype):
    return (np.arange(n) + 3 * rank + 1).astype(dtype)
"""

pytestmark = pytest.mark.later("rccl-sim")  # these are the same calls with other names

PLACES = [("nccl", "sim"), ("rccl", "sim"), ("nccl", "cuda"), ("rccl", "hip")]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file of the double."""
    path = tmp_path_factory.mktemp("collectives") / "libnccl.so"
    source = Path(__file__).parents[1] / "doubles" / "collectives.c"
    command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, str(source), "-o", str(path)], check=True)
    return str(path)


@pytest.fixture(params=PLACES, ids="-".join)
def place(request: pytest.FixtureRequest, double: str) -> dict[str, str]:
    """Return the environment of a child: a library, and the backend of its two devices."""
    library, backend = request.param
    if backend != "sim":
        for index in range(2):
            open_or_skip(f"{backend}:{index}")
        library_or_skip(library, f"{backend}:0")
        if not os.environ.get("OFFLOAD_ARGS_COLLECTIVES_DOUBLE"):
            pytest.skip(f"device unavailable: no double of {library}")
    return {"LIBRARY": library, "BACKEND": backend, "DOUBLE": double if backend == "sim" else ""}


def run(code: str, place: dict[str, str]) -> str:
    return printed(BEGIN + code, **place).strip()


def test_every_rank_gets_what_numpy_computes(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    n, R = 6, c.comm_count(comm)
    assert (R, c.comm_user_rank(comm), comm.device.name) == (2, rank, device)
    for dtype in (np.int32, np.float32, np.float64):
        x = sent(rank, 2 * n, dtype)
        X = np.stack([sent(r, 2 * n, dtype) for r in range(R)])
        for op, wanted in ((c.Sum, X.sum(0)), (c.Prod, X.prod(0)), (c.Max, X.max(0)), (c.Min, X.min(0))):
            y = np.full(2 * n, -1, dtype)
            with offload_args(In(x), Out(y), device=device) as (dx, dy):
                c.all_reduce(dx, dy, 2 * n, None, op, comm)
            assert (y == wanted).all(), (dtype, op)
        y, part, everyone, parts = (np.full(size, -1, dtype) for size in (2 * n, n, 4 * n, 2 * n))
        with offload_args(In(x), Out(y), Out(part), Out(everyone), Out(parts), device=device) as (dx, dy, dp, de, dt):
            c.broadcast(dx if rank == 1 else None, dy, 2 * n, dtype, 1, comm)
            c.reduce_scatter(dx, dp, n, dtype, c.Sum, comm)
            c.all_gather(dx, de, 2 * n, dtype, comm)
            c.all_to_all(dx, dt, n, dtype, comm)
        assert (y == X[1]).all() and (part == X.sum(0)[rank * n:][:n]).all() and (everyone == X.ravel()).all()
        assert (parts == X[:, rank * n:][:, :n].ravel()).all()
        total, all_of_them, mine = (np.full(size, -1, dtype) for size in (2 * n, 4 * n, n))
        with offload_args(In(x), InOut(total), InOut(all_of_them), Out(mine), device=device) as (dx, dt, da, dm):
            c.reduce(dx, dt if rank == 0 else None, 2 * n, dtype, c.Sum, 0, comm)
            c.gather(dx, da if rank == 0 else None, 2 * n, dtype, 0, comm)
            c.scatter(dx if rank == 1 else None, dm, n, dtype, 1, comm)
        assert (total == (X.sum(0) if rank == 0 else -1)).all()
        assert (all_of_them == (X.ravel() if rank == 0 else -1)).all()
        assert (mine == X[1][rank * n:][:n]).all()
on_ranks(work)
print("fine")
"""
    assert run(code, place) == "fine"


def test_operations_in_place_are_as_those_that_are_not(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    n, R = 5, 2
    X = np.stack([sent(r, 2 * n, np.float64) for r in range(R)])
    x, g, s, b, t, q = X[rank].copy(), np.zeros(4 * n), X[rank].copy(), X[rank].copy(), X[rank].copy(), np.zeros(4 * n)
    g[rank * 2 * n:][:2 * n] = q[rank * 2 * n:][:2 * n] = X[rank]
    with offload_args(x, g, s, b, t, q, device=device) as (dx, dg, ds, db, dt, dq):
        c.all_reduce(dx, dx, 2 * n, None, c.Sum, comm)
        c.all_gather(dg[rank * 2 * n:][:2 * n], dg, 2 * n, None, comm)
        c.reduce_scatter(ds, ds[rank * n:][:n], n, None, c.Sum, comm)
        c.broadcast(db, db, 2 * n, None, 1, comm)
        c.reduce(dt, dt, 2 * n, None, c.Max, 1, comm)
        c.gather(dq[rank * 2 * n:][:2 * n], dq if rank == 1 else None, 2 * n, None, 1, comm)
        c.scatter(dx, dx[n:] if rank == 1 else dx[:n], n, None, 1, comm)
    assert (x[n:] if rank == 1 else x[:n]).tolist() == X.sum(0)[rank * n:][:n].tolist()
    assert (g == X.ravel()).all() and (s[rank * n:][:n] == X.sum(0)[rank * n:][:n]).all()
    assert (b == X[1]).all() and (t == (X.max(0) if rank == 1 else X[0])).all()
    assert rank == 0 or (q == X.ravel()).all()
on_ranks(work)
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_other_overlaps_extents_and_dtypes_are_refused_before_anything_moves(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    x, y, z, ints = np.zeros(8), np.zeros(8), np.zeros(8, complex), np.zeros(8, np.int32)
    with offload_args(x, y, z, ints, device=device) as (dx, dy, dz, di):
        before = text().count("rank=")
        other = 1 - rank
        there, overlaps = dx[other * 4:][:4], "recvbuff is written and overlaps sendbuff"
        refused(AliasError, overlaps, c.all_gather, there, dx, 4, None, comm)
        refused(AliasError, overlaps, c.reduce_scatter, dx, there, 4, None, c.Sum, comm)
        refused(AliasError, overlaps, c.all_reduce, dx[:4], dx[1:], 4, None, c.Sum, comm)
        refused(AliasError, overlaps, c.all_to_all, dx, dx, 4, None, comm)
        refused(ExtentError, r"all_gather: recvbuff needs 10 elements \\(comm.ranks \\* sendcount=10\\), has 8",
                c.all_gather, dx, dy, 5, None, comm)
        refused(ExtentError, "all_reduce: sendbuff needs 9 elements", c.all_reduce, dx, dy, 9, None, c.Sum, comm)
        refused(ArgumentError, "count needs to be at least 0, got -1", c.all_reduce, dx, dy, -1, None, c.Sum, comm)
        refused(DTypeError, "recvbuff needs a DevicePtr.*float64", c.all_reduce, dx, di, 8, None, c.Sum, comm)
        refused(DTypeError, "sendbuff needs a DevicePtr.*int32", c.all_reduce, dx, dy, 8, c.Int32, c.Sum, comm)
        refused(DTypeError, "sendbuff needs a DevicePtr.*float32", c.all_reduce, dx, dy, 8, np.float32, c.Sum, comm)
        refused(TypeError, "datatype needs a constant", c.all_reduce, dz, dz, 8, None, c.Sum, comm)
        refused(HostPointerError, r"sendbuff needs a DevicePtr", c.all_reduce, None, dy, 8, None, c.Sum, comm)
        refused(TypeError, f"comm needs a {LIBRARY}.Comm, got the int 3", c.all_reduce, dx, dy, 8, None, c.Sum, 3)
        refused(HostPointerError, "sendbuff needs a device pointer", c.broadcast, None, dy, 8, np.float64, rank, comm)
        refused(HostPointerError, "recvbuff needs a device pointer", c.reduce, dx, None, 8, None, c.Sum, rank, comm)
        assert text().count("rank=") == before
    with offload_args(x, y, device=DEVICES[other]) as (dx, dy):
        pattern = f"sendbuff is on {DEVICES[other]}, needs to be on {device}, the device of the object"
        refused(WrongDeviceError, pattern, c.all_reduce, dx, dy, 8, None, c.Sum, comm)
    read_only = In(x)
    with offload_args(read_only, device=device) as (dx,):
        refused(DirectionError, "recvbuff needs to be writable", c.all_reduce, dx, dx, 8, None, c.Sum, comm)
[work(comm, rank, DEVICES[rank]) for rank, comm in enumerate(c.comm_init_all(DEVICES))]
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_only_bytes_that_a_rank_needs_are_moved(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    n = 1000
    x, y, z = np.ones(n), np.empty(n), np.ones(n)
    with testing.counting(device) as moved, offload_args(In(x), Out(y), In(z), device=device) as (dx, dy, dz):
        c.all_reduce(dx, dy, n, None, c.Sum, comm)
        c.broadcast(dz, dy, n, None, 0, comm)  # only the root's array is read
    assert (moved.bytes_up, moved.bytes_down) == (8 * n * (2 if rank == 0 else 1), 8 * n)
    assert (y == 1).all()
on_ranks(work)
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_calls_are_ordered_with_others_on_the_stream_of_their_region(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    n = 64
    A = np.asfortranarray(np.full((n, n), 1.0 + rank))
    x, y = np.ones(n), np.empty(n)
    with offload_args(In(A), In(x), Out(y), device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
        c.all_reduce(dy, dy, n, None, c.Sum, comm)
        c.all_reduce(dy, dy, n, None, c.Max, comm)
    assert (y == 3 * n).all(), y[:3]
on_ranks(work)
streams = {}
for rank, stream in re.findall(r"AllReduce rank=(\\d).* stream=(\\S+)", text()):
    streams.setdefault(rank, set()).add(stream)
assert [len(streams[rank]) for rank in "01"] == [1, 1], streams
print("fine")
"""
    assert run(code, place) == "fine"


def test_a_group_is_issued_at_its_end_and_holds_its_arrays_until_then(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    n, other = 4, 1 - rank
    x, y = np.r_[0.0, np.arange(n) + 10 * rank, 0.0], np.full(n, 7.0)
    with offload_args(x, y, device=device) as (dx, dy):
        with c.group():
            with c.group():  # an edge to each neighbour, and its edge from there
                c.send(dx[n:n + 1] if rank == 0 else dx[1:2], 1, None, other, comm)
                c.recv(dx[n + 1:] if rank == 0 else dx[:1], 1, None, other, comm)
            refused(AliasError, "not issued yet", dx.fill, 0)
            refused(AliasError, "recvbuff overlaps sendbuff of .*send, which this thread's group has not issued yet",
                    c.recv, dx[n:n + 1] if rank == 0 else dx[1:2], 1, None, other, comm)
            dy.fill(3.0)
            refused(ArgumentError, f"comm_destroy: a group of {LIBRARY} is open in this thread", c.comm_destroy, comm)
            refused(ArgumentError, "a call of this thread is still open", update, x)
    assert x.tolist() == x_wanted(rank, n) and (y == 3).all(), x
def x_wanted(rank, n):
    own = [i + 10.0 * rank for i in range(n)]
    return [0.0, *own, 10.0] if rank == 0 else [n - 1.0, *own, 0.0]
from offload_args import update
on_ranks(work)
comms = c.comm_init_all(DEVICES)  # one thread, two devices
a, b = np.ones(3), np.full(3, 2.0)
with offload_args(a, device=DEVICES[0]) as (da,), offload_args(b, device=DEVICES[1]) as (db,):
    with c.group():
        c.all_reduce(da, da, 3, None, c.Sum, comms[0])
        c.all_reduce(db, db, 3, None, c.Sum, comms[1])
assert (a == 3).all() and (b == 3).all()
depths = re.findall(r"^(?:Send|GroupEnd|GroupStart).* ?depth=(\\d)", text(), re.MULTILINE)
assert {"0", "1", "2"} == set(depths), depths
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_an_error_in_a_group_ends_it(place: dict[str, str]) -> None:
    code = """
comm, = c.comm_init_all(DEVICES[:1])
x = np.ones(3)
try:
    with offload_args(x, device=DEVICES[0]) as (dx,), c.group():
        c.all_reduce(dx, dx, 3, None, c.Sum, comm)
        raise KeyError("of the caller")
except KeyError:
    pass
assert text().count("GroupEnd") == 1
with offload_args(x, device=DEVICES[0]) as (dx,):
    c.all_reduce(dx, dx, 3, None, c.Sum, comm)
assert (x == 1).all()
try:
    c.group_end()
except LibraryError as error:
    assert "ncclInvalidUsage (5): no group was begun" in str(error), error
with c.group():
    refused(ArgumentError, "a group of .* is open", c.comm_init_rank, 1, c.get_unique_id(), 0, DEVICES[0])
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_regions_may_not_end_before_the_group_of_their_calls(place: dict[str, str]) -> None:
    code = """
comm, = c.comm_init_all(DEVICES[:1])
x = np.ones(3)
with c.group(), offload_args(x, device=DEVICES[0]) as (dx,):
    refused(ArgumentError, "begin the group inside of their region", c.all_reduce, dx, dx, 3, None, c.Sum, comm)
    dx.fill(2.0)
assert (x == 2).all()
with offload_args(x, device=DEVICES[0]) as (dx,), c.group(), offload_args(np.ones(3), device=DEVICES[0]) as (dy,):
    c.all_reduce(dx, dx, 3, None, c.Sum, comm)
    dy.fill(1.0)
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_a_communicator_that_ends_in_a_group_ends_after_it(place: dict[str, str]) -> None:
    code = """
comm, = c.comm_init_all(DEVICES[:1])
x = np.ones(3)
with offload_args(x, device=DEVICES[0]) as (dx,):
    with c.group():
        c.all_reduce(dx, dx, 3, None, c.Sum, comm)
        del comm
        assert "CommDestroy" not in text()
    assert text().splitlines()[-1].startswith("CommDestroy"), text()
print("fine")
"""
    assert run(code, place) == "fine"


def test_failures_name_the_status_and_the_librarys_message(place: dict[str, str]) -> None:
    code = """
comm, = c.comm_init_all(DEVICES[:1])
for k in range(1, 4):
    x = np.ones(3)
    double.double_fail(k)
    try:
        with offload_args(x, device=DEVICES[0]) as (dx,):
            with c.group():  # start, call, end
                c.all_reduce(dx, dx, 3, None, c.Sum, comm)
    except LibraryError as error:
        assert "ncclSystemError (2): the double was told to fail" in str(error), error
    else:
        raise AssertionError(k)
    double.double_fail(0)
    assert (x == 1).all()
x = np.ones(3)
with offload_args(x, device=DEVICES[0]) as (dx,):
    refused(LibraryError, r"ncclInvalidArgument \\(4\\): invalid root or peer", c.broadcast, dx, dx, 3, None, 7, comm)
    dx.fill(1)  # it was left undefined
    refused(LibraryError, r"ncclInvalidArgument \\(4\\): invalid op", c.all_reduce, dx, dx, 3, None, 77, comm)
    dx.fill(1)
double.double_fail(1)
refused(LibraryError, "comm_init_rank: .*ncclSystemError", c.comm_init_rank, 1, c.get_unique_id(), 0, DEVICES[0])
assert c.get_error_string(2) == "a failure of the double" and c.get_last_error(comm) == "the double was told to fail"
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_each_call_of_a_program_fails_once(place: dict[str, str]) -> None:
    """Whichever call of the library fails, its error is raised, no array changes, and nothing hangs."""
    code = """
def program(x, y):
    comm, = c.comm_init_all(DEVICES[:1])
    with comm:
        with offload_args(x, Out(y), device=DEVICES[0]) as (dx, dy):
            c.all_reduce(dx, dy, 4, None, c.Sum, comm)
            c.all_gather(dx, dy, 4, None, comm)
            c.reduce_scatter(dy, dx, 4, None, c.Sum, comm)
            c.broadcast(dx, dx, 4, None, 0, comm)
            c.reduce(dx, dy, 4, None, c.Sum, 0, comm)
            with c.group():
                c.send(dx, 4, None, 0, comm)
                c.recv(dy, 4, None, 0, comm)
        left.append(True)
        c.comm_destroy(c.comm_split(comm, 0, 0))
        op = c.red_op_create_pre_mul_sum(np.array([2.0]), c.Float64, c.ScalarHostImmediate, comm)
        c.red_op_destroy(op, comm)
        c.comm_finalize(comm)

def outcome(k):
    x, y = np.arange(4.0), np.zeros(4)
    left.clear()
    double.double_fail(k)
    try:
        program(x, y)
    except LibraryError as error:
        assert "the double was told to fail" in str(error), (k, error)
        assert (x == np.arange(4.0)).all() and (y == (np.arange(4.0) if left else 0)).all(), (k, y)
        return True
    assert (y == np.arange(4.0)).all()
    return False

left, k = [], 1
while outcome(k):
    assert not outcome(0), k  # the library and the device can be used
    k += 1
assert k > 12, k
print("fine")
"""
    assert run(code, place) == "fine"


def test_the_failure_of_one_rank_of_comm_init_all_is_raised_while_the_other_waits(place: dict[str, str]) -> None:
    code = """
import threading
double.double_fail(2)  # the call after get_unique_id
refused(LibraryError, "comm_init_rank: .*the double was told to fail", c.comm_init_all, DEVICES)
assert [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_aborting_frees_a_rank_that_waits_for_another(place: dict[str, str]) -> None:
    code = """
import threading
first, second = c.comm_init_all(DEVICES)
assert c.comm_get_async_error(first) == c.Success
errors = []
def wait():
    x = np.ones(3)
    try:
        with offload_args(x, device=DEVICES[0]) as (dx,):
            c.all_reduce(dx, dx, 3, None, c.Sum, first)  # the other rank never makes it
    except LibraryError as error:
        errors.append(str(error))
thread = threading.Thread(target=wait)
thread.start()
while "AllReduce" not in text():
    pass
c.comm_abort(first)
thread.join()
assert "ncclInternalError" in errors[0] and "aborted" in errors[0], errors
refused(StalePointerError, "was destroyed", c.comm_count, first)
assert c.comm_get_async_error(second) == c.RemoteError
c.comm_finalize(second)
c.comm_destroy(second)
refused(StalePointerError, "was destroyed", c.comm_count, second)
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.promise("T77")
def test_captured_calls_run_at_each_replay_of_all_ranks(place: dict[str, str]) -> None:
    code = """
ranks = 2 if BACKEND == "cuda" else 1  # streams of the double of HIP do not wait for each other
fence = threading.Barrier(ranks, timeout=300)
def work(comm, rank, device):
    x, total, pair = np.zeros(4), np.zeros(4), np.zeros(8)
    other = (rank + 1) % ranks
    region = offload_args(x, Out(total), Out(pair), device=device)
    with region as (dx, dt, dp):
        with region.capture(x=dx) as g:
            blas.scal(2.0, dx)
            c.all_reduce(dx, dt, 4, None, c.Sum, comm)
            dp.fill(7.0)
            with c.group():
                c.send(dx, 4, None, other, comm)
                c.recv(dp[4:], 4, None, other, comm)
            blas.scal(0.5, dt)
        for turn in range(3):
            g.replay(x=sent(rank, 4, float) + turn)
            both = [sent(r, 4, float) + turn for r in range(ranks)]
            assert (dt.to_host() == sum(both)).all(), dt.to_host()
            assert (dp.to_host() == [*[7] * 4, *2 * both[other]]).all(), dp.to_host()
            c.all_reduce(dx, dt, 4, None, c.Sum, comm)  # a call between the replays
        fence.wait()
        names = [node.function.rpartition(".")[2] for node in g.nodes]
        assert names == ["dscal", "all_reduce", "fill", "send", "recv", "dscal"], names
        refused(CaptureError, "a graph has calls of comm", c.comm_finalize, comm)
        with region.capture():
            c.all_reduce(dx, dt, 4, None, c.Sum, comm)
            refused(CaptureError, "calls with comm are being captured", c.comm_abort, comm)
        c.comm_destroy(comm)  # the graph keeps the communicator
        g.replay(x=sent(rank, 4, float))
        assert (dt.to_host() == sum(sent(r, 4, float) for r in range(ranks))).all()
        assert "CommDestroy" not in text()
        fence.wait()
        refused(StalePointerError, "comm was destroyed", c.all_reduce, dx, dt, 4, None, c.Sum, comm)
    del g
on_ranks(work, c.comm_init_all(DEVICES[:ranks]))
assert text().count("CommDestroy") == ranks
print("fine")
"""
    if place["BACKEND"] != "sim":  # whose streams no library captures
        assert run(code, place) == "fine"


@pytest.mark.promise("T77")
def test_aborting_ends_a_replay_whose_peer_has_died(place: dict[str, str]) -> None:
    code = """
import time
comm, _ = c.comm_init_all(DEVICES)  # the other rank never replays
x, y, total = np.ones(4), np.ones(2), np.zeros(4)
region, errors = offload_args(x, y, Out(total), device=DEVICES[0]), []

def replay():
    try:
        g.replay()  # the double of CUDA waits here
    except OffloadError as error:
        errors.append(error)

dx, dy, dt = region.__enter__()
with region.capture() as g:
    blas.scal(2.0, dx)
    c.all_reduce(dx, dt, 4, None, c.Sum, comm)
with region.capture() as other:
    blas.scal(3.0, dy)
other.replay()
thread = threading.Thread(target=replay)
thread.start()
while thread.is_alive() and not double.double_replays():  # until the replay waits for the other rank
    time.sleep(0.001)
assert thread.is_alive() and not errors
c.comm_abort(comm)
thread.join(60)
(error,) = errors
assert isinstance(error, StaleGraphError), error
assert str(error).startswith("Graph.replay: comm of the captured calls was aborted; make another"), error
refused(StaleGraphError, "comm of the captured calls was aborted", g.replay)
other.replay()
assert g.calls == 2
refused(InvalidDataError, "was left undefined", dt.to_host)
refused(InvalidDataError, "was left undefined", region.__exit__, None, None, None)
assert (y == 9).all()
assert (total == 0).all() and (x == 1).all()
refused(StalePointerError, "was destroyed", c.comm_count, comm)
assert text().count("CommAbort") == 1
print("fine")
"""
    if place["BACKEND"] == "cuda":  # the double of HIP holds a lock while an operation waits
        assert run(code, place) == "fine"


@pytest.mark.promise("T77")
def test_aborting_after_a_replay_keeps_its_results(place: dict[str, str]) -> None:
    code = """
comm, = c.comm_init_all(DEVICES[:1])
x, total = np.ones(4), np.zeros(4)
region = offload_args(x, Out(total), device=DEVICES[0])
with region as (dx, dt):
    with region.capture() as g:
        c.all_reduce(dx, dt, 4, None, c.Sum, comm)
    with region.capture() as never:
        c.all_reduce(dx, dx, 4, None, c.Sum, comm)
    g.replay()
    assert (dt.to_host() == 1).all()
    c.comm_abort(comm)
    refused(StaleGraphError, "comm of the captured calls was aborted", g.replay)
    refused(StaleGraphError, "comm of the captured calls was aborted", never.replay)
    with g.update():
        blas.scal(5.0, dt)
    g.replay()
assert (total == 5).all()
print("fine")
"""
    if place["BACKEND"] != "sim":  # whose streams no library captures
        assert run(code, place) == "fine"


def test_a_group_of_one_thread_is_captured_for_each_device(place: dict[str, str]) -> None:
    code = """
comms = c.comm_init_all(DEVICES)
a, b = np.ones(3), np.full(3, 2.0)
first, second = offload_args(a, device=DEVICES[0]), offload_args(b, device=DEVICES[1])
with first as (da,), second as (db,):
    if BACKEND == "sim":
        with first.capture():
            refused(CaptureError, "would have to be waited for", c.all_reduce, da, da, 3, None, c.Sum, comms[0])
    else:
        with first.capture() as g, second.capture() as h:
            with c.group():
                c.all_reduce(da, da, 3, None, c.Sum, comms[0])
                c.all_reduce(db, db, 3, None, c.Sum, comms[1])
        if BACKEND == "cuda":  # the streams of the double of HIP do not wait for each other
            with ThreadPoolExecutor(2) as pool:  # a replay of one rank may wait for the other rank
                list(pool.map(lambda graph: graph.replay(), (g, h)))
            assert (da.to_host() == 3).all() and (db.to_host() == 3).all()
        assert g.calls == h.calls == 1
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_a_communicator_is_split_by_color(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    both = c.comm_split(comm, 3, -rank)
    assert (c.comm_count(both), c.comm_user_rank(both), both.device.name) == (2, 1 - rank, device)
    assert c.comm_cu_device(both) in (0, 1)
    part = c.comm_split(comm, 0 if rank == 0 else c.SPLIT_NOCOLOR, 0)
    assert (part is None) == (rank == 1), part
    if part is not None:
        assert c.comm_count(part) == 1
on_ranks(work)
print("fine")
"""
    assert run(code, place) == "fine"


@pytest.mark.later
def test_operators_multiply_and_then_add_up(place: dict[str, str]) -> None:
    code = """
def work(comm, rank, device):
    x = np.full(3, 2.0)
    op = c.red_op_create_pre_mul_sum(np.array([0.5 + rank]), c.Float64, c.ScalarHostImmediate, comm)
    with offload_args(x, device=device) as (dx,):
        c.all_reduce(dx, dx, 3, None, op, comm)
    assert (x == 4).all(), x
    c.red_op_destroy(op, comm)
    refused(LibraryError, "InvalidArgument", c.red_op_destroy, op, comm)
on_ranks(work)
print("fine")
"""
    assert run(code, place) == "fine"


def test_an_id_is_128_bytes() -> None:
    data = bytes(range(128))
    unique = nccl.UniqueId(data)
    assert bytes(unique) == data and pickle.loads(pickle.dumps(unique)) == unique
    assert type(pickle.loads(pickle.dumps(unique))) is nccl.UniqueId and repr(unique) == "UniqueId(00010203...)"
    with pytest.raises(ArgumentError, match="UniqueId: data needs 128 bytes, got 3"):
        nccl.UniqueId(b"abc")
    with pytest.raises(ArgumentTypeError, match="UniqueId: data needs 128 bytes, got int"):
        nccl.UniqueId(128)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="comm_init_rank: commId needs 128 bytes, got a bytes"):
        nccl.comm_init_rank(1, b"abc", 0, "host")


def test_devices_of_other_kinds_are_refused() -> None:
    with pytest.raises(ArgumentError, match="comm_init_all: devices needs at least 1 device, got none"):
        nccl.comm_init_all([])
    with pytest.raises(ArgumentError, match="comm_init_all: devices has sim:0 twice"):
        nccl.comm_init_all(["sim:0", "sim:0"])
    assert "nccl" in libraries.NAMES and "rccl" in libraries.NAMES
    with offload_args(np.ones(2), device="host"):
        assert "all_reduce" in dir(nccl)
