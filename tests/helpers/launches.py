"""Processes that are ranks of a communicator."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.processes import SLOWNESS, program_of_python_or_skip

LIMIT = 400 * SLOWNESS  # seconds in which a process has to end
LATE = 300  # seconds for which ranks wait for each other: on a busy machine, a process starts in a minute


def launched(arguments: list[str], size: int, port: int, torchrun: str = "") -> list[subprocess.Popen[str]]:
    """Start Python with these arguments for each rank, with the variables that launchers such as torchrun set.

    torchrun: the identity of a run. The processes then get all variables of torchrun, which listens at the port itself.
    """
    processes = []
    for rank in range(size):
        variables = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OPENBLAS_NUM_THREADS": 1,
        }
        if torchrun:
            variables |= {
                "GROUP_RANK": 0,
                "ROLE_RANK": rank,
                "ROLE_NAME": "default",
                "LOCAL_WORLD_SIZE": size,
                "GROUP_WORLD_SIZE": 1,
                "ROLE_WORLD_SIZE": size,
                "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 0,
                "TORCHELASTIC_RUN_ID": torchrun,
                "TORCHELASTIC_USE_AGENT_STORE": True,
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
                "OMP_NUM_THREADS": 1,
            }
        processes.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def together(folder: Path, count: int) -> str:
    """Return code that waits until as many processes have come to it. Each imports the package before."""
    return f"""
import os, pathlib, time
import offload_args.communicator
folder = pathlib.Path({str(folder)!r})
(folder / str(os.getpid())).touch()
while len([*folder.iterdir()]) < {count}:
    time.sleep(0.01)
"""


def telling(folder: Path) -> str:
    """Return code of functions by which processes wait for each other, and for a place of their main threads."""
    return f"""
import pathlib, sys, threading, time

def tell(name):
    (pathlib.Path({str(folder)!r}) / name).touch()

def wait_for(*names):
    while not all((pathlib.Path({str(folder)!r}) / name).exists() for name in names):
        time.sleep(0.01)

def once_in(function, act):
    main = threading.main_thread().ident
    def watch():
        while True:
            frame = sys._current_frames()[main]
            while frame is not None:
                if frame.f_code.co_qualname == function:
                    return act()
                frame = frame.f_back
            time.sleep(0.01)
    threading.Thread(target=watch, daemon=True).start()
"""


def end(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Wait for all processes, and return the exit status and output of each; kill a process that takes too long."""
    deadline = time.monotonic() + LIMIT
    results = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=max(deadline - time.monotonic(), 1))
            results.append((process.returncode, out, errors))
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return results


def kill(processes: list[subprocess.Popen[str]], rank: int) -> list[tuple[int, str, str]]:
    """Kill a rank once all ranks have printed "ready", and return each one's exit status and output."""
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        processes[rank].send_signal(signal.SIGKILL)
    except BaseException:
        end(processes)
        raise
    results = end(processes)
    assert results[rank][0] == -signal.SIGKILL
    return results


def mpirun() -> list[str]:
    """The command that starts an MPI program on this machine."""
    pytest.importorskip("mpi4py", reason="device unavailable: no mpi4py")
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return [program_of_python_or_skip("mpirun"), *options]


def by_torchrun(options: list[str], arguments: list[str], size: int, folder: Path) -> str:
    """Run Python with these arguments by torchrun, and return the output of all ranks. The program must succeed."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("device unavailable: no torch")
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, "--nproc-per-node", str(size), *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3 * LIMIT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def by_mpi(arguments: list[str], size: int, folder: Path) -> list[str]:
    """Run Python with these arguments by mpirun, and return the output of each rank. The program must succeed.

    Each rank writes to a file of its own, because mpirun may mix lines that ranks print at the same time.
    """
    write = 'exec "$@" >"$0/output of ${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'
    command = [*mpirun(), "-n", str(size), "sh", "-c", write, str(folder), sys.executable, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    files = [folder / f"output of {rank}" for rank in range(size)]
    outputs = [file.read_text() if file.exists() else "" for file in files]
    assert ran.returncode == 0, (outputs, ran.stdout, ran.stderr)
    return outputs
