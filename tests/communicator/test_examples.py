"""The programs of examples/many compute right results with one rank, threads, mpirun and a launcher's variables."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.launches import LIMIT, by_mpi, end, launched
from offload_args import Communicator

PROGRAMS = sorted((Path(__file__).parents[2] / "examples" / "many").glob("*.py"))
WAYS = {"one rank": ["host"], "two threads": ["host", "sim:0"], "four threads": ["host"] * 4}
whole_programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)


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
@whole_programs
def test_a_launcher(program: Path, port: int) -> None:
    for status, out, errors in end(launched([str(program)], 2, port)):
        assert (status, errors) == (0, "")
        assert len(out.splitlines()) == 1


def test_conjugate_gradients_of_four_ranks_equal_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS[0].parent))
    conjugate_gradients = importlib.import_module("conjugate_gradients")
    (alone,) = Communicator.run(conjugate_gradients.solve, devices=["host"], timeout=LIMIT)
    for x in Communicator.run(conjugate_gradients.solve, devices=["host"] * 4, timeout=LIMIT):
        np.testing.assert_allclose(x, alone, rtol=0, atol=1e-10)
