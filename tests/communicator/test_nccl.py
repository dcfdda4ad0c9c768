"""The collectives of GPUs, on a double of NCCL and of RCCL whose ranks are threads of one process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.launches import LATE, end, launched, telling, together
from helpers.processes import printed

BEGIN = """
import os
import numpy as np
from offload_args import Communicator, CommunicatorError, Device, In, Out, blas, offload_args, testing
from offload_args.communicator import nccl as adapter

LIBRARY = os.environ["LIBRARY"]
testing.library(LIBRARY, os.environ["DOUBLE"], backend="sim")
adapter._LIBRARIES["sim"] = LIBRARY  # as if sim were a GPU
DEVICES = ["sim:0", "sim:1"]
"""

# The time for NCCL to connect the ranks is over, though the ranks meet by sockets in time.
OVER = f"""
import time, types
LATE = {LATE}
adapter.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() + LATE)
"""


pytestmark = pytest.mark.later("rccl")  # these are the same calls with other names


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file of the double."""
    path = tmp_path_factory.mktemp("communicator") / "libnccl.so"
    source = Path(__file__).parents[1] / "doubles" / "collectives.c"
    subprocess.run(["cc", "-std=gnu11", "-shared", "-fPIC", "-pthread", str(source), "-o", str(path)], check=True)
    return str(path)


@pytest.fixture(params=["nccl", "rccl"])
def double(request: pytest.FixtureRequest, file: str) -> dict[str, str]:
    """Return the variables of a child: the library, and the file of its double."""
    return {"LIBRARY": request.param, "DOUBLE": file}


def test_all_methods(double: dict[str, str]) -> None:
    code = """
def main(c):
    rank, size, n = c.rank, c.size, 5
    for dtype in ("int8", "int32", "uint64", "float32", "float64"):
        x = (np.arange(n * size) + 1 + rank).astype(dtype)
        every = [(np.arange(n * size) + 1 + r).astype(dtype) for r in range(size)]
        y, z, part, gathered = np.empty_like(x), x.copy(), np.empty(n, dtype), np.empty(n * size * size, dtype)
        own = slice(rank * n, (rank + 1) * n)
        ring, swapped = np.zeros(n * size * size, dtype), np.empty_like(x)
        ring[rank * n * size : (rank + 1) * n * size] = x
        product, inplace = (np.arange(3) + 1 + rank).astype(dtype), x.copy()
        arrays = In(x), Out(y), z, Out(part), Out(gathered), ring, Out(swapped), product, inplace
        with offload_args(*arrays, device=c.device) as (
            dx, dy, dz, dpart, dgathered, dring, dswapped, dproduct, dinplace
        ):
            c.all_reduce(dx, dy, "max")
            c.all_reduce(dz)
            c.reduce_scatter(dx, dpart, "min")
            c.all_reduce(dproduct, op="prod")
            c.reduce_scatter(dinplace, dinplace[own])
            c.all_gather(dx, dgathered)
            c.all_gather(dring[rank * n * size : (rank + 1) * n * size], dring)
            c.all_to_all(dx, dswapped)
        assert (y == np.max(every, axis=0)).all() and (z == np.sum(every, axis=0, dtype=dtype)).all()
        assert (product == np.prod([np.arange(3) + 1 + r for r in range(size)], axis=0)).all()
        assert (inplace[own] == np.sum(every, axis=0, dtype=dtype)[own]).all()
        assert (part == np.min(every, axis=0)[own]).all()
        assert (gathered == np.concatenate(every)).all() and (ring == gathered).all()
        assert (swapped == np.concatenate([e[own] for e in every])).all()
        for root in range(size):
            u, v = x.copy(), np.zeros_like(x)
            with offload_args(u, v, device=c.device) as (du, dv):
                c.reduce(du, dv if rank == root else None, root=root)
                c.broadcast(du, root)
            assert (u == every[root]).all()
            assert (v == (np.sum(every, axis=0, dtype=dtype) if rank == root else 0)).all()
        with offload_args(w := x.copy(), device=c.device) as (dw,):
            c.recv(dw, 0) if rank else c.send(dw, 1)
        assert (w == every[0]).all()
    c.barrier()
    with c.split(0, key=-rank) as part:
        assert (part.rank, part.size) == (1 - rank, 2)
        with offload_args(w := np.array([rank + 1.0]), device=c.device) as (dw,):
            part.all_reduce(dw)
        assert w[0] == 3
for debug in (False, True):
    Communicator.run(main, devices=DEVICES, debug=debug, timeout=100)
"""
    assert printed(BEGIN + code, **double) == ""


@pytest.mark.promise("T82", "T83", "T84")
@pytest.mark.later
def test_a_rank_that_raises_or_comes_too_late(double: dict[str, str]) -> None:
    code = """
def raises(c):
    if c.rank:
        raise KeyError
    x = np.ones(4)
    with offload_args(x, device=c.device) as (dx,):
        try:
            c.all_reduce(dx)
        except CommunicatorError as error:
            print(error.ranks, error)
            raise
try:
    Communicator.run(raises, devices=DEVICES, timeout=600)
except KeyError:
    print("KeyError")
first, second = Communicator.all(DEVICES, timeout=0.2)
x = np.ones(4)
try:
    with offload_args(x, device="sim:0") as (dx,):
        first.all_reduce(dx)
except CommunicatorError as error:
    print(error.ranks, error)
print(x, first)
first.close()
second.close()
"""
    assert printed(BEGIN + code, **double).splitlines() == [
        "(1,) Communicator.all_reduce: on rank 0 of 2: rank 1 raised KeyError; the communicator has ended",
        "KeyError",
        "(1,) Communicator.all_reduce: on rank 0 of 2: rank 1 did not come within 0.2 s; the communicator has ended",
        "[1. 1. 1. 1.] Communicator(rank 0 of 2 on sim:0, ended: rank 1 did not come within 0.2 s)",
    ]


@pytest.mark.later
def test_a_call_that_fails_waits_until_the_communicator_has_been_aborted(double: dict[str, str]) -> None:
    code = """
import importlib, time
library = importlib.import_module(f"offload_args.{LIBRARY}")
abort, aborted = library.comm_abort, []

def slowly(comm):
    abort(comm)
    time.sleep(0.5)
    aborted.append(comm)

library.comm_abort = slowly
first, second = Communicator.all(DEVICES, timeout=0.2)
try:
    with offload_args(np.ones(4), device="sim:0") as (dx,):
        first.all_reduce(dx)
except CommunicatorError:
    print(len(aborted))
second.close()
"""
    assert printed(BEGIN + code, **double) == "1\n"


@pytest.mark.later
@pytest.mark.promise("T83")
def test_ranks_that_nccl_does_not_bring_together(double: dict[str, str], port: int, tmp_path: Path) -> None:
    code = """
try:
    Communicator.from_environment(device="sim:0", timeout=LATE)
except CommunicatorError as error:
    print(error.ranks, error)
"""  # the ranks of the double are threads of one process
    begin = f"import os; os.environ.update({double!r})" + BEGIN + OVER + together(tmp_path, 2)
    starts = launched(["-c", begin + code], 2, port)
    for rank, (status, out, errors) in enumerate(end(starts)):
        assert (status, errors) == (0, "")
        module = f"offload_args.{double['LIBRARY']}"
        words = f"Communicator.from_environment: on rank {rank}: {module} did not connect all ranks in time"
        assert out.rstrip() in {
            f"({lost},) {words}" for lost in range(2)
        }  # the rank that gives up first names the other


@pytest.mark.later
def test_a_rank_that_makes_its_communicator_too_late(double: dict[str, str]) -> None:
    code = """
import threading
library = adapter.library_of(Device("sim:0"))
barrier, texts, make, abort, aborted = threading.Barrier(2), [b"", b""], library.comm_init_rank, library.comm_abort, []
go_on = threading.Event()

def late(size, shared, rank, device):
    if rank:
        go_on.wait()
    return make(size, shared, rank, device)

def join(rank):
    def exchange(data):
        texts[rank] = data
        barrier.wait()
        return texts
    try:
        Communicator.join(rank, 2, exchange, device=DEVICES[rank], timeout=LATE)
    except CommunicatorError as error:
        errors[rank] = error.ranks

errors = {}
library.comm_init_rank, library.comm_abort = late, lambda comm: (aborted.append(1), abort(comm))
ranks = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
for rank in ranks: rank.start()
for rank in ranks: rank.join()
assert sorted(errors) == [0, 1] and not aborted, errors
go_on.set()
while len(aborted) < 2:
    time.sleep(0.01)
print(len(aborted))
"""
    assert printed(BEGIN + OVER + code, **double) == "2\n"


@pytest.mark.later
def test_another_thread_closes_a_communicator_that_waits(double: dict[str, str], tmp_path: Path) -> None:
    code = """
first, second = Communicator.all(DEVICES)
x = np.ones(4)
once_in("NcclBackend.all_reduce", first.close)
try:
    with offload_args(x, device="sim:0") as (dx,):
        first.all_reduce(dx)
except CommunicatorError as error:
    print(error.ranks, error)
print(x)
try:
    with offload_args(x, device="sim:1") as (dx,):
        second.all_reduce(dx)
except CommunicatorError as error:
    print(error.ranks, error)
"""
    words = "rank 0 was closed by another thread; the communicator has ended"
    assert printed(BEGIN + telling(tmp_path) + code, **double).splitlines() == [
        f"(0,) Communicator.all_reduce: on rank 0 of 2: {words}",
        "[1. 1. 1. 1.]",
        f"(0,) Communicator.all_reduce: on rank 1 of 2: {words}",
    ]


@pytest.mark.later
def test_devices_of_two_kinds(double: dict[str, str]) -> None:
    code = """
try:
    Communicator.all(["host", "sim:0"])
except ValueError as error:
    print(error)
"""
    assert printed(BEGIN + code, **double).startswith("Communicator.all: all ranks need devices of the CPU, or all")
