"""AMD's runtime as it is found, and as it fails. No AMD device has run these tests."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from helpers.devices import open_or_skip
from helpers.processes import printed
from offload_args import Scratch, offload_args
from offload_args.errors import DeviceMemoryError

SAY_WHY = """
from offload_args import Device
from offload_args.errors import DeviceUnavailableError
try:
    print(Device("hip:0"))
except DeviceUnavailableError as error:
    print(error)
"""


TOO_MUCH = """
import numpy as np
from offload_args import Device, Scratch, offload_args, testing
from offload_args.errors import DeviceMemoryError
x = np.ones(1000)
try:
    with offload_args(x, Scratch((1 << 50,), "f8"), device="hip:0"):
        pass
except DeviceMemoryError as error:
    print(error)
testing.no_mappings_left()
with offload_args(x, device="hip:0") as (dx,):
    dx[1:].fill(3)
print(x.sum(), Device("hip:0").counters.memory_used)
"""


@pytest.fixture(params=["hip:0"])
def hip(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


def library(path: Path, *options: str) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "/dev/null", *options], check=True)


def test_a_runtime_that_needs_a_missing_library_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    library(tmp_path / "lib" / "libneeded.so.1", "-Wl,-soname,libneeded.so.1")
    library(tmp_path / "lib" / "libamdhip64.so.5", "-Wl,--no-as-needed", f"-L{tmp_path / 'lib'}", "-l:libneeded.so.1")
    (tmp_path / "lib" / "libneeded.so.1").unlink()
    said = printed(SAY_WHY, ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    if "no device" not in said:
        return  # the system has a runtime that works
    assert "libamdhip64.so.5 could not be loaded: libneeded.so.1: cannot open shared object file" in said


def runtime() -> ctypes.CDLL:
    """HIP's runtime, which the process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libamdhip64" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[5])
    raise AssertionError("HIP is not loaded")


@pytest.mark.promise("T49")
def test_an_allocation_that_succeeds_with_a_null_pointer_is_out_of_memory(hip: str) -> None:
    said = printed(TOO_MUCH, HIP_DOUBLE_VERSION="5")  # HIP 5.7's pools, and so the double's
    assert "hip:0: out of device memory: 9007199254740992 bytes requested" in said
    assert said.rstrip().endswith("2998.0 0")


def test_a_failure_that_is_reported_here_is_not_left_for_the_programs_own_checks(hip: str) -> None:
    with pytest.raises(DeviceMemoryError), offload_args(Scratch((1 << 50,), "f8"), device=hip):
        pass
    assert runtime().hipGetLastError() == 0
