"""Processes join by sockets, by the environment of a launcher and by MPI, and notice each other's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.launches import LATE, by_mpi, end, kill, launched

COLLECTIVES = """
import os, sys
import numpy as np
from offload_args import Communicator, In, Out, offload_args

def main(communicator, device="host"):
    rank, size = communicator.rank, communicator.size
    for dtype in ("float32", "int64"):
        for n in (1, 30011):
            x, y = np.arange(n * size, dtype=dtype) + rank, np.empty(n * size, dtype)
            part, gathered = np.empty(n, dtype), np.empty(n * size * size, dtype)
            every = [np.arange(n * size, dtype=dtype) + r for r in range(size)]
            with offload_args(In(x), Out(y), Out(part), Out(gathered), device=communicator.device) as (dx, dy, dp, dg):
                communicator.all_reduce(dx, dy)
                assert np.array_equal(dy.to_host(), sum(every))
                communicator.all_reduce(dy, op="max")
                communicator.reduce_scatter(dx, dp)
                communicator.all_gather(dx, dg)
                communicator.all_to_all(dx, dy)
                assert np.array_equal(dy.to_host(), np.concatenate([e[rank * n : (rank + 1) * n] for e in every]))
                for root in range(size):
                    communicator.reduce(dx, dy if rank == root else None, root=root)
                    if rank == root:
                        assert np.array_equal(dy.to_host(), sum(every))
                    communicator.broadcast(dy, root)
                if size > 1:
                    if rank == 0:
                        communicator.send(dx, size - 1)
                    elif rank == size - 1:
                        communicator.recv(dy, 0)
            assert np.array_equal(part, sum(every)[rank * n : (rank + 1) * n])
            assert np.array_equal(gathered, np.concatenate(every))
            if rank and rank == size - 1:
                assert np.array_equal(y, every[0])
    half = communicator.split(rank % 2, -rank)
    with half, offload_args(z := np.array([float(rank)]), device=communicator.device) as (dz,):
        half.all_reduce(dz)
    assert z[0] == sum(r for r in range(size) if r % 2 == rank % 2), z
    communicator.barrier()
"""


@pytest.mark.later(but="2")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_of_a_launcher(port: int, size: int) -> None:
    code = COLLECTIVES + f"with Communicator.from_environment(device='host', debug=True, timeout={LATE}) as c: main(c)"
    for status, _, errors in end(launched(["-c", code], size, port)):
        assert (status, errors) == (0, "")


@pytest.mark.later
def test_run_takes_the_ranks_of_a_launcher(port: int) -> None:
    code = COLLECTIVES + f"Communicator.run(main, devices=['host', 'sim:0'], timeout={LATE})"
    for status, _, errors in end(launched(["-c", code], 3, port)):
        assert (status, errors) == (0, "")


KILLED = f"""
import sys
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
communicator = Communicator.from_environment(device="host", timeout={LATE})
x = np.ones(100_000)
try:
    with offload_args(x, device="host") as (dx,):
        dx.fill(2.0)
        communicator.barrier()
        print("ready", flush=True)
        if communicator.rank == 2:
            sys.stdin.readline()  # until it is killed
        communicator.all_reduce(dx)
except CommunicatorError as error:
    print(error.ranks, np.array_equal(x, np.ones(100_000)), error)
"""


@pytest.mark.promise("T82", "T84")
def test_a_killed_rank_is_named(port: int) -> None:
    for status, out, errors in kill(launched(["-c", KILLED], 3, port), 2)[:2]:
        assert (status, errors) == (0, "")
        assert out.startswith("(2,) True Communicator.all_reduce: on rank ")
        assert "rank 2 has ended without closing its communicator" in out


@pytest.mark.later
def test_a_rank_that_raises_ends_the_others(port: int) -> None:
    code = f"""
from offload_args import Communicator
def main(communicator):
    if communicator.rank == 1:
        raise KeyError("mine")
    communicator.barrier()
Communicator.run(main, timeout={LATE})
"""
    results = end(launched(["-c", code], 3, port))
    assert all(status == 1 for status, _, _ in results)
    assert "KeyError: 'mine'" in results[1][2]
    for rank in (0, 2):
        assert "CommunicatorError: Communicator." in results[rank][2]  # in barrier, or in the ranks' meeting
        assert "rank 1 raised KeyError" in results[rank][2]


@pytest.mark.promise("T83")
def test_ranks_that_do_not_come(port: int) -> None:
    code = """
import os
from offload_args import Communicator, CommunicatorError
os.environ["WORLD_SIZE"] = "3"
try:
    Communicator.from_environment(device="host", timeout=0.2)
except CommunicatorError as error:
    print(error)
"""
    ((status, out, errors),) = end(launched(["-c", code], 1, port))
    assert (status, errors) == (0, "")
    assert out == "Communicator.from_environment: on rank 0: ranks 1, 2 did not come within 0.2 s\n"


@pytest.mark.later
def test_join_by_an_exchange_of_ones_own(tmp_path: Path) -> None:
    """Files carry the bytes: each rank writes its own file, and waits for the other ranks' files."""
    code = (
        COLLECTIVES
        + f"""
import pathlib, time
folder, rank = pathlib.Path({str(tmp_path)!r}), int(os.environ["RANK"])
def exchange(data):
    (folder / f"{{rank}}.part").write_bytes(data)
    (folder / f"{{rank}}.part").rename(folder / f"{{rank}}.whole")
    while len(texts := sorted(folder.glob("*.whole"))) < 3:
        time.sleep(0.01)
    return [text.read_bytes() for text in texts]
with Communicator.join(rank, 3, exchange, device="sim:0", timeout={LATE}) as c: main(c)
"""
    )
    for status, _, errors in end(launched(["-c", code], 3, 0)):
        assert (status, errors) == (0, "")


@pytest.mark.later
@pytest.mark.parametrize("device", ["host", "sim:0"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_of_mpi(size: int, device: str, tmp_path: Path) -> None:
    code = COLLECTIVES + f"Communicator.run(main, devices=[{device!r}], debug=True, timeout={LATE})"
    assert by_mpi(["-c", code], size, tmp_path) == [""] * size
