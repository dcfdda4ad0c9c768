"""The programs of examples/many compute right results with one rank, threads, mpirun and torchrun.

torchrun itself runs where torch is installed (scripts/gpu-check, lanes tests and many). Elsewhere processes get all the
variables that it sets. tests/communicator/test_dask.py has Dask.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.devices import library_or_skip, open_or_skip
from helpers.launches import LIMIT, by_mpi, by_torchrun, end, launched
from offload_args import Communicator

FOLDER = Path(__file__).parents[2] / "examples" / "many"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "on_dask")
WAYS = {"one rank": ["host"], "two threads": ["host", "sim:0"], "four threads": ["host"] * 4}
whole_programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)


def some_programs(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test over the programs. CI runs the named programs so, and all by threads and mpirun."""
    cases = [pytest.param(path, marks=[] if path.stem in names else pytest.mark.exhaustive) for path in PROGRAMS]
    return pytest.mark.parametrize("program", cases, ids=lambda path: path.stem)


@pytest.mark.later(but="product-two threads")
@pytest.mark.parametrize("devices", WAYS.values(), ids=WAYS)
@whole_programs
def test_threads(program: Path, devices: list[str]) -> None:
    ran = subprocess.run([sys.executable, program, *devices], capture_output=True, text=True, timeout=LIMIT)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == len(devices)


@pytest.mark.later
@whole_programs
def test_mpirun(program: Path, tmp_path: Path) -> None:
    for out in by_mpi([str(program)], 4, tmp_path):
        assert len(out.splitlines()) == 1


@pytest.mark.later
@some_programs("cholesky", "product")
def test_a_launcher(program: Path, port: int) -> None:
    for status, out, errors in end(launched([str(program)], 2, port)):
        assert (status, errors) == (0, "")
        assert len(out.splitlines()) == 1


@pytest.mark.later
@some_programs("conjugate_gradients", "power_iteration")
def test_the_variables_of_torchrun(program: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as store:  # torchrun's own, which answers no rank of this package
        processes = launched([str(program), "host", "sim:0"], 2, store.getsockname()[1], str(tmp_path))
        for status, out, errors in end(processes):
            assert (status, errors) == (0, "")
            assert len(out.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("devices", [["host", "sim:0"], ["cuda:0", "cuda:1"]], ids=["cpu", "cuda"])
@whole_programs
def test_torchrun(program: Path, devices: list[str], tmp_path: Path) -> None:
    for device in devices:
        open_or_skip(device)
    if devices[0] == "cuda:0":
        library_or_skip("nccl", "cuda:0")
        if os.environ.get("OFFLOAD_ARGS_COLLECTIVES_DOUBLE"):
            pytest.skip("device unavailable: the double of nccl is for one process")
    out = by_torchrun(["--standalone"], [str(program), *devices], 2, tmp_path)
    assert len(out.splitlines()) == 2, out


def test_conjugate_gradients_of_four_ranks_equal_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS[0].parent))
    conjugate_gradients = importlib.import_module("conjugate_gradients")
    (alone,) = Communicator.run(conjugate_gradients.solve, devices=["host"], timeout=LIMIT)
    for x in Communicator.run(conjugate_gradients.solve, devices=["host"] * 4, timeout=LIMIT):
        np.testing.assert_allclose(x, alone, rtol=0, atol=1e-10)
