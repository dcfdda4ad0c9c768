"""Processes of a launcher meet: torchrun and its restarts, ports in use, foreign connections, ranks that come twice."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from helpers.launches import LATE, LIMIT, by_torchrun, end, launched, together
from offload_args import ArgumentError, Communicator

MEET = """
from offload_args import Communicator, CommunicatorError
import numpy as np
from offload_args import offload_args
try:
    with Communicator.from_environment(device="host", timeout={timeout}) as c:
        with offload_args(x := np.array([1.0 + c.rank]), device="host") as (dx,):
            c.all_reduce(dx)
    print(x[0])
except CommunicatorError as error:
    print(error.ranks, error)
"""

RESTARTED = f"""
import os, signal, sys
import numpy as np
from offload_args import Communicator, offload_args

restart, x = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), np.ones(100_000)
communicator = Communicator.from_environment(device="host", timeout={LATE})
with communicator, offload_args(x, device="host") as (dx,):
    communicator.barrier()
    if communicator.rank == restart < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    communicator.all_reduce(dx)
print("total", x[0], "after restart", restart)
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--standalone"], ["--master-port", "PORT"]], ids=["c10d", "static"])
def test_torchrun_restarts_ranks_that_were_killed(options: list[str], port: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RESTARTED)
    options = [option.replace("PORT", str(port)) for option in options]
    out = by_torchrun([*options, "--max-restarts", "2", "--monitor-interval", "0.1"], ["program.py"], 3, tmp_path)
    assert out.splitlines() == ["total 3.0 after restart 2"] * 3


@pytest.fixture
def torchruns_own_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set variables as torchrun does if it listens at the port itself. No other program has this identity."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", str(tmp_path))


@pytest.mark.later
def test_a_port_beside_torchruns_own_is_in_use(torchruns_own_port: None) -> None:
    """torchrun listens at MASTER_PORT, and another program at the next port; the ranks meet at the port after it."""
    with socket.create_server(("127.0.0.1", 0)) as other:  # it accepts connections, and does not answer
        for status, out, errors in end(launched(["-c", MEET.format(timeout=LATE)], 2, other.getsockname()[1] - 1)):
            assert (status, out, errors) == (0, "3.0\n", "")


@pytest.mark.slow
@pytest.mark.later("1e7")
@pytest.mark.parametrize("timeout", ["1e7", "float('inf')"])
def test_processes_may_wait_longer_than_the_system_does(port: int, timeout: str) -> None:
    for status, out, errors in end(launched(["-c", MEET.format(timeout=timeout)], 2, port)):
        assert (status, out, errors) == (0, "3.0\n", "")


@pytest.mark.later
def test_torchrun_may_listen_at_the_last_port(torchruns_own_port: None) -> None:
    for status, out, errors in end(launched(["-c", MEET.format(timeout=LATE)], 2, 65535)):
        assert (status, out, errors) == (0, "3.0\n", "")


@pytest.mark.parametrize("number", ["0", "65536"])
def test_numbers_that_are_no_ports(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": number}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=f"MASTER_PORT needs a number from 1 to 65535, got {number}"):
        Communicator.from_environment(device="host")


@pytest.mark.later
def test_a_port_that_is_free_a_little_later(port: int) -> None:
    """A rank 0 of an earlier run may still hold the port."""
    with socket.create_server(("127.0.0.1", port)):
        processes = launched(["-c", MEET.format(timeout=LATE)], 2, port)
        time.sleep(1)
    for status, out, errors in end(processes):
        assert (status, out, errors) == (0, "3.0\n", "")


@pytest.mark.later
def test_a_port_of_another_program(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        code = together(tmp_path, 2) + MEET.format(timeout=0.5)
        (first, out, _), (second, its_out, _) = end(launched(["-c", code], 2, other.getsockname()[1]))
    assert (first, second) == (0, 0)
    assert out.startswith(f"(0,) Communicator.from_environment: on rank 0: rank 0 can't listen at {place}: ")
    assert "set MASTER_PORT to a free port" in out
    assert its_out == (
        f"(0,) Communicator.from_environment: on rank 1: another program listens at {place}; set MASTER_PORT\n"
    )


def test_foreign_connections_do_not_delay_the_ranks(port: int) -> None:
    """One sends nothing, one sends other bytes, and one claims a rank of another program."""
    (first,) = launched(["-c", as_rank(0, 2) + MEET.format(timeout=LATE)], 1, port)
    silent = connected(port)
    with silent, connected(port) as wrong, connected(port) as foreign:
        wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert closed(wrong)
        foreign.sendall(b"offload_args/2\n" + bytes(16) + b"\1\0\0\0")
        assert foreign.recv(1) == b"o"
        (second,) = launched(["-c", as_rank(1, 2) + MEET.format(timeout=LATE)], 1, port)
        for status, out, errors in end([first, second]):
            assert (status, out, errors) == (0, "3.0\n", "")


def as_rank(rank: int, size: int) -> str:
    return f"import os; os.environ.update(RANK='{rank}', WORLD_SIZE='{size}')\n"


def connected(port: int) -> socket.socket:
    until = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.02)


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.later
def test_a_rank_that_restarts_before_all_have_come(port: int, tmp_path: Path) -> None:
    """Its first process is killed while it waits for rank 2."""

    def start(rank: int) -> subprocess.Popen[str]:
        code = together(tmp_path, 1) + as_rank(rank, 3) + MEET.format(timeout=LATE)
        return launched(["-c", code], 1, port)[0]

    first, second = start(0), start(1)
    while len([*tmp_path.iterdir()]) < 2:
        time.sleep(0.01)
    time.sleep(0.5)  # usually, rank 0 has welcomed it
    end_now(second)
    for status, out, errors in end([first, start(1), start(2)]):
        assert (status, out, errors) == (0, "6.0\n", "")


def end_now(process: subprocess.Popen[str]) -> None:
    process.kill()
    end([process])


@pytest.mark.later
def test_two_processes_with_one_rank(port: int) -> None:
    """Rank 2 comes once one of them has been refused."""

    def start(rank: int) -> subprocess.Popen[str]:
        return launched(["-c", as_rank(rank, 3) + MEET.format(timeout=LATE)], 1, port)[0]

    zero, *twice = start(0), start(1), start(1)
    until = time.monotonic() + LIMIT
    while all(process.poll() is None for process in twice) and time.monotonic() < until:
        time.sleep(0.02)
    results = end([zero, *twice, start(2)])
    assert all((status, errors) == (0, "") for status, _, errors in results), results
    assert results[0][1] == results[3][1] == "6.0\n"
    assert sorted(out for _, out, _ in results[1:3]) == [
        "(1,) Communicator.from_environment: on rank 1: another process is rank 1, too: see RANK\n",
        "6.0\n",
    ]


@pytest.mark.later
def test_ranks_that_wait_for_a_third_one_name_it(port: int, tmp_path: Path) -> None:
    for seconds in (1.0, 10.0, 100.0):  # on a busy machine, rank 1 may come too late, too
        (folder := tmp_path / str(seconds)).mkdir()
        processes = [
            launched(["-c", together(folder, 2) + as_rank(rank, 3) + MEET.format(timeout=seconds)], 1, port)[0]
            for rank in (0, 1)
        ]
        results = end(processes)
        if all("rank 2 did" in out for _, out, _ in results):
            break
    for rank, result in enumerate(results):
        words = f"Communicator.from_environment: on rank {rank}: rank 2 did not come within {seconds} s"
        assert result == (0, f"(2,) {words}\n", "")
