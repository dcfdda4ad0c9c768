"""Nothing hangs or leaks: different calls, ranks that die within a call, Ctrl-C, forks, and closes by other threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.launches import LATE, LIMIT, by_mpi, end, kill, launched, mpirun, telling, together
from helpers.processes import printed
from helpers.ranks import on_ranks
from offload_args import Communicator, CommunicatorError, offload_args

SIZE = 60_000  # elements of float64: more than fit into the buffers of a connection
#: Each takes a communicator, its next rank, and two pointers of SIZE and 3 * SIZE elements.
METHODS: dict[str, Callable[..., object]] = {
    "all_reduce": lambda c, peer, dx, dall: c.all_reduce(dx),
    "all_gather": lambda c, peer, dx, dall: c.all_gather(dx, dall[: c.size * dx.size]),
    "reduce_scatter": lambda c, peer, dx, dall: c.reduce_scatter(dall[: c.size * dx.size], dx),
    "broadcast": lambda c, peer, dx, dall: c.broadcast(dx),
    "reduce": lambda c, peer, dx, dall: c.reduce(dx),
    "all_to_all": lambda c, peer, dx, dall: c.all_to_all(dx[: 2 * c.size], dall[: 2 * c.size]),
    "send": lambda c, peer, dx, dall: c.send(dx, peer),
    "recv": lambda c, peer, dx, dall: c.recv(dx, peer),
    "barrier": lambda c, peer, dx, dall: c.barrier(),
    "split": lambda c, peer, dx, dall: c.split(0),
}
FITTING = {("send", "recv"), ("recv", "send")}


def errors_of(calls: tuple[str, ...], **options: Any) -> list[BaseException]:
    """Return the exceptions of ranks of which each calls one method, or none for an empty name."""

    def main(communicator: Communicator) -> None:
        name, peer = calls[communicator.rank], (communicator.rank + 1) % communicator.size
        if not name:
            raise KeyError
        x, everything = np.ones(SIZE), np.ones(3 * SIZE)
        with offload_args(x, everything, device=communicator.device) as (dx, dall):
            try:
                METHODS[name](communicator, peer, dx, dall)
            except CommunicatorError:
                assert (dx.to_host() == 1).all() and (dall.to_host() == 1).all()
                raise

    results = on_ranks(main, ["host"] * len(calls), **options)
    assert all(isinstance(result, BaseException) for result in results), results
    return [result for result in results if isinstance(result, BaseException)]


@pytest.mark.promise("T84", "T85")
@pytest.mark.parametrize("first", METHODS)
def test_two_threads_in_different_calls_both_raise(first: str) -> None:
    """Without a timeout and without debug: each pair of calls that would wait for each other forever."""
    for second in METHODS:
        if first == second not in ("send", "recv") or (first, second) in FITTING:
            continue
        for error in errors_of((first, second), timeout=None):
            assert isinstance(error, CommunicatorError), (second, error)
            assert "different calls" in str(error) or " sent " in str(error), (second, error)


def test_three_threads_that_all_send_first_raise() -> None:
    for error in errors_of(("send", "send", "send"), timeout=None):
        assert isinstance(error, CommunicatorError)
        assert "wait for each other in different calls" in str(error)


@pytest.mark.promise("T82", "T84")
@pytest.mark.parametrize("method", METHODS)
def test_a_thread_that_raises_is_named_in_each_method(method: str) -> None:
    first, second, lost = errors_of((method, "recv" if method == "send" else method, ""), timeout=None)
    assert isinstance(lost, KeyError)
    for error in (first, second):
        assert isinstance(error, CommunicatorError)
        if method != "send":  # send of rank 0 takes its array to rank 1, which waits for rank 2
            assert error.ranks == (2,)


@pytest.mark.promise("T82")
def test_random_calls_of_threads_never_hang() -> None:
    names = [*METHODS, ""]
    for calls in np.random.default_rng(3).choice(names, (30, 3)):
        if len({*calls}) == 1:
            continue

        def main(communicator: Communicator, calls: Any = calls) -> None:
            with communicator:
                name, peer = calls[communicator.rank], (communicator.rank + 1) % 3
                with offload_args(np.ones(8), np.ones(24), device="host") as (dx, dall):
                    if name:
                        METHODS[name](communicator, peer, dx, dall)

        results = on_ranks(main, ["host"] * 3, timeout=LIMIT)
        for result in results:
            assert result is None or isinstance(result, CommunicatorError)
            assert "did not come within" not in str(result), (calls, results)


@pytest.mark.promise("T82")
def test_another_thread_closes_a_communicator_that_waits() -> None:
    first, second, third = Communicator.all(["host"] * 3)
    errors: dict[int, CommunicatorError] = {}

    def wait(communicator: Communicator) -> None:
        with communicator, pytest.raises(CommunicatorError) as error:
            communicator.barrier()
        errors[communicator.rank] = error.value

    threads = [threading.Thread(target=wait, args=(communicator,)) for communicator in (first, second)]
    for thread in threads:
        thread.start()
    while not first._busy.locked():
        time.sleep(0.001)
    first.close()
    for thread in threads:
        thread.join()
    for error in errors.values():
        assert error.ranks == (0,)
        assert "rank 0 was closed by another thread" in str(error)
    third.close()


def test_a_rank_that_waited_and_was_closed_is_named_by_the_others() -> None:
    for _ in range(50):  # the other rank may look at the data of the closed rank before or after the rank raises
        first, second, third = Communicator.all(["host"] * 3)
        errors: list[CommunicatorError] = []

        def wait(communicator: Communicator, errors: list[CommunicatorError] = errors) -> None:
            with pytest.raises(CommunicatorError) as error:
                communicator.barrier()
            errors.append(error.value)

        threads = [threading.Thread(target=wait, args=(communicator,)) for communicator in (first, second)]
        for thread in threads:
            thread.start()
        while not first._busy.locked() or not second._busy.locked():
            time.sleep(0.0001)
        time.sleep(0.002)  # usually, both wait
        first.close()
        for thread in threads:
            thread.join(LIMIT)
        assert [error.ranks for error in errors] == [(0,), (0,)]
        second.close()
        third.close()


BUSY = """
import time
import numpy as np
from offload_args import Communicator, offload_args
from offload_args.communicator import sockets
sockets._SILENCE = 4  # seconds, instead of 20
communicator, x = Communicator.from_environment(device="host", timeout=LATE), np.ones(5_000_000)
with communicator, offload_args(x, device="host") as (dx,):
    communicator.barrier()
    if communicator.rank == 1:
        time.sleep(8)  # it computes, and the buffers of the connection are full
    communicator.all_reduce(dx)
print((x == 2).all())
"""


@pytest.mark.later
def test_a_rank_that_reads_nothing_for_long_is_waited_for(port: int) -> None:
    for status, out, errors in end(launched(["-c", f"LATE = {LATE}{BUSY}"], 2, port)):
        assert (status, out, errors) == (0, "True\n", "")


CLOSED = """
from offload_args import Communicator, CommunicatorError
communicator = MAKE
communicator.barrier()
rank = communicator.rank
tell(f"{rank} met")
wait_for("0 met", "1 met", "2 met")
if rank == 0:
    once_in("WAIT", communicator.close)
if rank < 2:
    try:
        communicator.barrier()
    except CommunicatorError as error:
        print(error.ranks, str(error).partition("of 3: ")[2], flush=True)
    tell(f"{rank} raised")
else:
    wait_for("0 raised", "1 raised")
    communicator.close()
"""


def of_sockets(program: str, folder: Path) -> str:
    """Return a program whose three ranks meet, without a timeout, after all of them have imported the package."""
    (folder / "started").mkdir()
    program = program.replace("WAIT", "SocketLink._exchange")
    program = program.replace("MAKE", "Communicator.from_environment(device='host')")
    return together(folder / "started", 3) + telling(folder) + program


@pytest.mark.later
def test_another_thread_closes_a_communicator_of_sockets(port: int, tmp_path: Path) -> None:
    *waiting, _ = end(launched(["-c", of_sockets(CLOSED, tmp_path)], 3, port))
    for status, out, errors in waiting:
        words = "rank 0 was closed by another thread; the communicator has ended"
        assert (status, out, errors) == (0, f"(0,) {words}\n", "")


@pytest.mark.promise("T82", "T84")
def test_ctrl_c_in_a_call_ends_the_other_threads(tmp_path: Path) -> None:
    code = """
import os, signal, threading, numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
first, second, third = Communicator.all(["host"] * 3)
lines = []  # two threads that print at once mix their words
def other():
    with second, offload_args(np.ones(100_000), device="host") as (dx,):
        try:
            second.all_reduce(dx)
        except CommunicatorError as error:
            lines.append(f"{error.ranks} {error}")
thread = threading.Thread(target=other)
thread.start()
once_in("MemoryLink._wait", lambda: os.kill(os.getpid(), signal.SIGINT))
x = np.ones(100_000)
try:
    with offload_args(x, device="host") as (dx,):
        first.all_reduce(dx)
except KeyboardInterrupt:
    lines.append(f"interrupted {(x == 1).all()} {first}")
thread.join()
print(*lines, sep="\\n")
"""
    raised = "rank 0 raised KeyboardInterrupt in Communicator.all_reduce"
    assert sorted(printed(telling(tmp_path) + code).splitlines()) == [
        f"(0,) Communicator.all_reduce: on rank 1 of 3: {raised}; the communicator has ended",
        f"interrupted True Communicator(rank 0 of 3 on host, ended: {raised})",
    ]


INTERRUPTED = """
import os, signal
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
communicator = MAKE
communicator.barrier()
x, rank = np.ones(100_000), communicator.rank
tell(f"{rank} met")
wait_for("0 met", "1 met", "2 met")
if rank == 0:
    once_in("WAIT", lambda: os.kill(os.getpid(), signal.SIGINT))
if rank == 2:
    wait_for("0 interrupted")
try:
    with offload_args(x, device="host") as (dx,):
        communicator.all_reduce(dx)
except KeyboardInterrupt:
    del x
    others = [np.ones(100_000) for _ in range(20)]  # in the memory of arrays that MPI may still write
    tell("0 interrupted")
    wait_for("1 raised", "2 raised")
    print("interrupted", all((other == 1).all() for other in others), flush=True)
except CommunicatorError as error:
    print(error.ranks, str(error).partition("of 3: ")[2], flush=True)
    tell(f"{rank} raised")
"""


@pytest.mark.later
def test_ctrl_c_in_a_call_ends_the_other_processes(port: int, tmp_path: Path) -> None:
    (_, first, _), *others = end(launched(["-c", of_sockets(INTERRUPTED, tmp_path)], 3, port))
    assert first == "interrupted True\n"
    for _, out, errors in others:
        words = "rank 0 raised KeyboardInterrupt in Communicator.all_reduce; the communicator has ended"
        assert (out, errors) == (f"(0,) {words}\n", "")


# A call of one method, in which rank 2 dies, and two more calls. `root` is the root of a broadcast.
CALLS = """
calls = {
    "all_reduce": lambda: c.all_reduce(dx),
    "all_gather": lambda: c.all_gather(dx, dall),
    "reduce_scatter": lambda: c.reduce_scatter(dall, dx),
    "broadcast": lambda: c.broadcast(dx, root),
    "reduce": lambda: c.reduce(dx, root=2),
    "all_to_all": lambda: c.all_to_all(dall, dother),
    "recv": lambda: c.recv(dx, 0) if c.rank == 2 else c.send(dx, 2),
    "barrier": lambda: c.barrier(),
    "split": lambda: c.split(0),
}
def call(method):
    for each in (method, "barrier", "barrier"):
        calls[each]()
"""
DIES = f"""
LATE = {LATE}
{CALLS}
import os, signal, sys
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
from offload_args.communicator import sockets
c, root = Communicator.from_environment(device="host", timeout=LATE), 0
x, everything, other = np.ones(60_000), np.ones(3 * 60_000), np.ones(3 * 60_000)
read = sockets._Arrival.read
def read_and_die(self, connection):
    read(self, connection)
    os.kill(os.getpid(), signal.SIGKILL)  # within the call, after the first bytes
with offload_args(x, everything, other, device="host") as (dx, dall, dother):
    try:
        c.barrier()  # another rank may notice the death while it still is in this call
        if c.rank == 2:
            sockets._Arrival.read = read_and_die
        call(sys.argv[1])
    except CommunicatorError as error:
        print(error.ranks, flush=True)
"""


KILLED_IN = "all_reduce all_gather reduce_scatter broadcast reduce all_to_all recv barrier split".split()


@pytest.mark.promise("T82")
@pytest.mark.slow
@pytest.mark.parametrize("method", KILLED_IN)
def test_a_process_that_is_killed_within_a_call_is_named(method: str, port: int) -> None:
    for rank, (status, out, errors) in enumerate(end(launched(["-c", DIES, method], 3, port))):
        if rank == 2:
            assert (status, out) == (-signal.SIGKILL, "")
        else:
            assert (status, out, errors) == (0, "(2,)\n", "")


FORKED = f"""
import os, sys
from offload_args import Communicator, CommunicatorError, errors
communicator = Communicator.from_environment(device="host", timeout={LATE})
communicator.barrier()
"""


@pytest.mark.later
def test_a_forked_child_disturbs_no_rank(port: int) -> None:
    """The child is refused, and the rank goes on after the child's end."""
    code = (
        FORKED
        + """
if os.fork() == 0:
    try:
        communicator.barrier()
    except errors.ForkedError as error:
        print(error, flush=True)
    communicator.close()
    sys.exit(0)
assert os.wait()[1] == 0
communicator.barrier()
communicator.barrier()
communicator.close()
"""
    )
    for status, out, errors in end(launched(["-c", code], 2, port)):
        assert (status, errors) == (0, "")
        assert out.startswith("Communicator.barrier: the communicator belongs to the process that this one was forked")


@pytest.mark.slow
def test_a_killed_rank_is_named_although_its_forked_child_lives(port: int) -> None:
    code = (
        FORKED
        + """
child = os.fork() if communicator.rank == 1 else 1
if child == 0:
    os.close(1), os.close(2)
    sys.stdin.readline()  # until the test ends
    os._exit(0)
print("ready", flush=True)
if communicator.rank == 1:
    sys.stdin.readline()  # until it is killed
try:
    communicator.barrier()
except CommunicatorError as error:
    print(error.ranks)
"""
    )
    first, _ = kill(launched(["-c", code], 2, port), 1)
    assert first == (0, "(1,)\n", "")


def test_a_child_of_threads_does_not_wait_for_them() -> None:
    code = """
import os
from offload_args import Communicator, errors
first, second = Communicator.all(["host"] * 2)
if os.fork() == 0:
    try:
        first.barrier()
    except errors.ForkedError:
        first.close()
        os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
first.close(), second.close()
"""
    assert printed(code) == "3\n"


LEAKS = """
import gc, os, pathlib, threading
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args

def held():
    gc.collect()
    shared = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "/dev/shm" in line]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(shared)

def use(communicator):
    with communicator, offload_args(x := np.ones(2000), device="host") as (dx,):
        communicator.all_reduce(dx)
        with communicator.split(0) as part:
            part.barrier()
    assert x[0] == communicator.size

def many(make, count=50):
    make()
    before = held()
    for _ in range(count):
        make()
    assert held() == before, (held(), before)
"""


@pytest.mark.later
def test_fifty_communicators_of_threads_leave_nothing() -> None:
    code = """
many(lambda: Communicator.run(use, devices=["host"] * 3))

def fail(communicator):
    if communicator.rank:
        raise KeyError
    communicator.barrier()

def failing():
    try:
        Communicator.run(fail, devices=["host"] * 3)
    except KeyError:
        pass

many(failing)
print("right")
"""
    assert printed(LEAKS + code) == "right\n"


@pytest.mark.later
def test_fifty_communicators_of_processes_leave_nothing(port: int) -> None:
    code = f"many(lambda: use(Communicator.from_environment(device='host', timeout={LATE})))"
    for status, out, errors in end(launched(["-W", "error", "-c", LEAKS + code], 2, port)):
        assert (status, out, errors) == (0, "", "")


@pytest.mark.later
def test_fifty_communicators_of_mpi_leave_nothing(tmp_path: Path) -> None:
    code = f"""
from offload_args.communicator import mpi
many(lambda: use(Communicator.from_mpi(device="host", timeout={LATE})))
assert len(mpi._closing) <= 4, mpi._closing
print("right")
"""
    assert by_mpi(["-c", LEAKS + code], 2, tmp_path) == ["right\n"] * 2


@pytest.mark.later
@pytest.mark.parametrize("program", ["closed", "interrupted"])
def test_processes_of_mpi_that_end_within_a_call(program: str, tmp_path: Path) -> None:
    code = {"closed": CLOSED, "interrupted": INTERRUPTED}[program].replace("WAIT", "MpiLink._wait")
    code = telling(tmp_path) + code.replace("MAKE", "Communicator.from_mpi(device='host')")
    closed = "(0,) rank 0 was closed by another thread; the communicator has ended\n"
    raised = "(0,) rank 0 raised KeyboardInterrupt in Communicator.all_reduce; the communicator has ended\n"
    outputs = {"closed": [closed, closed, ""], "interrupted": ["interrupted True\n", raised, raised]}
    assert by_mpi(["-c", code], 3, tmp_path) == outputs[program]


@pytest.mark.promise("T82")
@pytest.mark.later
def test_a_process_of_mpi_that_closes_early_is_named(tmp_path: Path) -> None:
    """Without a timeout: rank 2 leaves after the first call, and the others call again."""
    code = """
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
communicator = Communicator.from_mpi(device="host")
with communicator, offload_args(x := np.ones(100_000), device="host") as (dx,):
    communicator.all_reduce(dx)
    if communicator.rank < 2:
        try:
            communicator.all_reduce(dx)
        except CommunicatorError as error:
            print(error.ranks, flush=True)
"""
    assert by_mpi(["-c", code], 3, tmp_path) == ["(2,)\n", "(2,)\n", ""]


@pytest.mark.promise("T82")
@pytest.mark.later
def test_a_process_of_mpi_that_ends_with_an_open_communicator_is_named(tmp_path: Path) -> None:
    """Without a timeout: rank 2 raises an exception outside of a `with` block, and MPI then waits for the others."""
    code = """
from offload_args import Communicator, CommunicatorError
communicator = Communicator.from_mpi(device="host")
communicator.barrier()
if communicator.rank == 2:
    raise SystemExit
try:
    communicator.barrier()
except CommunicatorError as error:
    print(error.ranks, flush=True)
"""
    assert by_mpi(["-c", code], 3, tmp_path) == ["(2,)\n", "(2,)\n", ""]


DIES_IN_MPI = f"""
{CALLS}
import os, pathlib, signal, sys
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
from offload_args.communicator import mpi
c, root = Communicator.from_mpi(device="host", timeout=5), 2
x, everything, other = np.ones(60_000), np.ones(3 * 60_000), np.ones(3 * 60_000)
wait = mpi.MpiLink._wait
def wait_and_die(self, *arguments):
    os.kill(os.getpid(), signal.SIGKILL)  # within the call, after its sends and receives were posted
try:
    with offload_args(x, everything, other, device="host") as (dx, dall, dother):
        dx.fill(2.0)
        c.barrier()
        if c.rank == 2:
            mpi.MpiLink._wait = wait_and_die
        call(sys.argv[1])
except CommunicatorError as error:
    pathlib.Path(sys.argv[2], str(c.rank)).write_text(f"{{error.ranks}} {{(x == 1).all()}}")
    os._exit(0)
"""


def in_mpi(method: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose last rank dies in a call; the other ranks write their errors to files."""
    command = [*mpirun(), *options, "-n", "3", sys.executable, "-c", DIES_IN_MPI, method, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.promise("T82", "T84")
@pytest.mark.parametrize(
    "method", [pytest.param(method, marks=[pytest.mark.exhaustive, pytest.mark.slow][method in KILLED_IN[::3]])
               for method in KILLED_IN]
)  # fmt: skip
def test_a_process_of_mpi_that_is_killed_within_a_call_is_named(method: str, tmp_path: Path) -> None:
    """With this option, mpirun does not end the other processes; MPI itself never reports the death."""
    ran = in_mpi(method, tmp_path, "--enable-recovery")
    errors = [(tmp_path / rank).read_text() for rank in "01"]
    for error in errors:  # a rank may also wait for the other one, which waits for the killed rank
        assert error in ("(2,) True", "(0, 2) True", "(1, 2) True"), (errors, ran.stdout, ran.stderr)


@pytest.mark.slow
@pytest.mark.promise("T82")
@pytest.mark.parametrize("method", ["all_reduce", "broadcast", "recv"])
def test_a_process_that_mpi_reports_as_failed_is_named(method: str, tmp_path: Path) -> None:
    ran = in_mpi(method, tmp_path, "--with-ft", "ulfm")
    errors = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert errors == {"0": "(2,) True", "1": "(2,) True"}, (errors, ran.stdout, ran.stderr)


@pytest.mark.later
@pytest.mark.promise("T82")
def test_mpirun_ends_when_a_process_is_killed_within_a_call(tmp_path: Path) -> None:
    ran = in_mpi("all_reduce", tmp_path)
    assert ran.returncode == 128 + signal.SIGKILL
    assert "process rank 2" in ran.stderr and "signal 9" in ran.stderr


@pytest.mark.later
def test_odd_communicators_and_keys_of_mpi(tmp_path: Path) -> None:
    code = """
from mpi4py import MPI
from offload_args import ArgumentError, Communicator
comm = MPI.COMM_WORLD
freed = comm.Dup()
freed.Free()
half = comm.Split(comm.Get_rank() % 2)
between = half.Create_intercomm(0, comm, 1 - comm.Get_rank() % 2)
for odd in (MPI.COMM_NULL, freed, between):
    try:
        Communicator.from_mpi(odd, device="host")
    except ArgumentError as error:
        print(str(error).partition("got ")[2])
with Communicator.from_mpi(half, device="host") as part:
    assert part.size == 1
for _ in range(20):
    Communicator.from_mpi(device="host")  # a thread closes it, while this thread makes the next one
with Communicator.from_mpi(device="host") as c:
    with c.split(-(2**40), -(2**40) * c.rank) as part:
        print(part.rank == 1 - c.rank, flush=True)
"""
    null = "MPI.COMM_NULL, or one that was freed"
    assert by_mpi(["-c", code], 2, tmp_path) == [f"{null}\n{null}\none between two groups\nTrue\n"] * 2
