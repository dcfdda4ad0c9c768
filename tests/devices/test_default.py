"""OFFLOAD_ARGS_DEVICE names the default device, and unknown variables are told at import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import run
from offload_args import curand
from offload_args.environment import KNOWN
from offload_args.errors import WrongDeviceError

PROGRAM = """\
import numpy as np
from offload_args import Device, blas, call, linalg, offload_args
x = np.ones(3)
with offload_args(x) as (dx,):
    print(dx.device, Device.default())
before = Device("sim:0").counters.bytes_up
linalg.solve(np.eye(3), x)
print(Device("sim:0").counters.bytes_up - before)
"""


def program(path: Path, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    return run(path, *options, **environment)


def test_the_variable_names_the_default_device(tmp_path: Path) -> None:
    ran = program(tmp_path / "lend.py", PROGRAM, OFFLOAD_ARGS_DEVICE="sim:0")
    assert (ran.stdout, ran.stderr) == ("sim:0 sim:0\n96\n", "")


def test_commands_use_it(tmp_path: Path) -> None:
    ran = program(tmp_path / "lend.py", PROGRAM, "-m", "offload_args", "trace", OFFLOAD_ARGS_DEVICE="sim:0")
    assert "2 regions, " in ran.stderr and " on sim:0 in " in ran.stderr


@pytest.mark.later(but="gpu")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", r"use one of cuda, hip, host, sim.*; without the variable, the first GPU"),
        ("sim:99", "there are 8 of sim.*; OFFLOAD_ARGS_DEVICE=host computes on the CPU"),
    ],
)
def test_an_unknown_device_is_refused_with_the_list(tmp_path: Path, name: str, words: str) -> None:
    ran = program(tmp_path / "lend.py", PROGRAM, OFFLOAD_ARGS_DEVICE=name)
    assert ran.returncode == 1
    assert re.search(rf"DeviceUnavailableError: .*OFFLOAD_ARGS_DEVICE={name}: .*{words}", ran.stderr), ran.stderr
    ran = subprocess.run(
        [sys.executable, "-m", "offload_args", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "OFFLOAD_ARGS_DEVICE": name},
    )
    assert ran.returncode and f"OFFLOAD_ARGS_DEVICE={name}: " in ran.stderr and "Traceback" not in ran.stderr


def test_an_unknown_variable_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    text = "import offload_args\n"
    ran = program(tmp_path / "lend.py", text, OFFLOAD_ARGS_MEMORY_LIMITS="1GiB", OFFLOAD_ARGS_QUIET="1")
    first, _, second, _ = ran.stderr.splitlines()
    place = f"{tmp_path / 'lend.py'}:1: OffloadWarning: offload_args: the environment variable "
    assert first == f"{place}OFFLOAD_ARGS_MEMORY_LIMITS has no effect; did you mean OFFLOAD_ARGS_MEMORY_LIMIT?"
    assert second.startswith(f"{place}OFFLOAD_ARGS_QUIET has no effect; the page Environment variables ")
    assert program(tmp_path / "lend.py", text, OFFLOAD_ARGS_GUARD="1", OFFLOAD_ARGS_CUBLAS="/no").stderr == ""


def test_the_page_has_the_known_variables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "environment.md").read_text()
    from offload_args import libraries

    listed = set(re.findall(r"\{envvar\} OFFLOAD_ARGS_(\w+)", page))
    assert listed == KNOWN - {name.upper() for name in libraries.NAMES}


def test_a_library_of_gpus_names_the_device_before_the_library() -> None:
    for name in ("host", "sim:0"):
        words = f"^curand.create_generator: device needs to be a cuda device, got {name}; lend an array of NumPy's"
        with pytest.raises(WrongDeviceError, match=words):
            curand.create_generator(curand.RNG_PSEUDO_PHILOX4_32_10, name)
