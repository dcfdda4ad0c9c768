"""C programs without Python: threads, forks, early ends, and a driver that other code uses, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.devices import HIP, open_or_skip
from offload_args import get_library, libraries
from offload_args.embedding import cflags, libs

HERE = Path(__file__).parent
GPUS = ("cuda:0", HIP)
ENDS_WITH = {"ends": 7, "ends_busy": 7, "ends_with_handler": 7}
SLOW_END = """
#include <unistd.h>
static __attribute__((destructor)) void end(void) { usleep(200000); }
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("programs", tmp_path_factory.mktemp("programs"), *libs(), "-pthread")


def build(name: str, folder: Path, *options: str) -> Path:
    """Build a program of this folder."""
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command: list[str | Path] = [
        "gcc",
        "-O1",
        *warnings,
        *cflags(),
        "-o",
        folder / name,
        HERE / f"{name}.c",
        *options,
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return folder / name


def right(programs: Path, device: str, case: str) -> None:
    """Run one case, and check that its results are right, its exit code is unchanged, and it prints no error."""
    results = os.environ.copy()
    library = {"cuda": "cublas", "hip": "rocblas"}.get(device.partition(":")[0])
    if library:  # Python searches more places
        results[f"OFFLOAD_ARGS_{library.upper()}"] = libraries.load(library).path
    ran = subprocess.run([programs, device, case], capture_output=True, text=True, timeout=300, env=results)
    said = (ran.returncode, ran.stdout.splitlines()[-1:], ran.stderr)
    assert said == (ENDS_WITH.get(case, 0), ["right"], ""), ran.stdout


@pytest.mark.promise("T18")
def test_a_region_of_a_c_program_is_left_on_another_thread(programs: Path, device: str) -> None:
    right(programs, device, "thread")


@pytest.mark.promise("T21")
def test_a_forked_c_program_gets_a_clear_status_and_its_parent_goes_on(programs: Path, device: str) -> None:
    right(programs, device, "forked")


@pytest.mark.promise("T22")
@pytest.mark.parametrize("case", ["ends", "ends_busy", "ends_with_handler"])
def test_a_c_program_may_end_at_any_place(programs: Path, device: str, case: str) -> None:
    right(programs, device, case)


@pytest.mark.promise("T22")
def test_no_worker_calls_a_library_that_has_ended_with_the_process(programs: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", slow], input=SLOW_END, text=True, check=True)
    actual = os.environ | {"SLOW_END": str(slow)}
    ran = subprocess.run([programs, "sim:0", "ends_late"], capture_output=True, text=True, timeout=300, env=actual)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "right\n", "")


@pytest.mark.promise("T22")
def test_a_region_that_an_early_handler_of_exit_leaves_fails_and_does_not_hang(tmp_path: Path) -> None:
    program = build("handler", tmp_path)
    ran = subprocess.run([program, get_library()], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "right\n", "")


@pytest.mark.promise("T08")
def test_memory_goes_from_region_to_region_of_c_threads_and_results_are_exact(programs: Path, device: str) -> None:
    right(programs, device, "reuse")


@pytest.mark.promise("T09")
@pytest.mark.parametrize("name", GPUS)
def test_a_c_program_destroys_its_stream_before_its_region_is_left(programs: Path, name: str) -> None:
    right(programs, open_or_skip(name), "stream")


@pytest.mark.promise("T20")
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("case", ["reset_between", "reset_inside"])
def test_a_c_program_that_resets_its_device_loses_it_and_no_array(programs: Path, name: str, case: str) -> None:
    right(programs, open_or_skip(name), case)


@pytest.mark.promise("T19")
@pytest.mark.parametrize(("name", "other"), [("sim:0", "sim:1"), ("cuda:0", "cuda:1"), ("hip:0", "hip:1")])
def test_a_c_program_uses_two_devices_whichever_is_current(programs: Path, name: str, other: str) -> None:
    open_or_skip(other)
    right(programs, open_or_skip(name), "two_devices")


@pytest.mark.promise("T04")
def test_a_stray_write_of_a_kernel_loses_the_device_of_a_c_program_and_no_array(programs: Path, cuda: str) -> None:
    right(programs, cuda, "stray")


@pytest.mark.promise("T22")
@pytest.mark.parametrize("last", ["open", "left"])
def test_a_program_loads_and_unloads_the_library_again_and_again(device: str, last: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [build("loaded", tmp_path), get_library(), device, last], capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "right\n", "")
