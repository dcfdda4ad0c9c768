"""Kernels in recordings: their names are always recorded, machine code on request; replays launch it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings.files import events_of, rewritten

from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from helpers.processes import output_of
from kernels.images import module_for
from offload_args import Device, In, InOut, Kernel, Module, Out, blas, kernel, kernels, offload, offload_args, record
from offload_args.errors import CoverageError, ExtentError
from offload_args.recording.images import _names_until_bracket
from offload_args.recording.replay import Replay, Report

# Annotations of kernels are values, not types, so type checkers see functions without types.


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0"))
def running_device(request: pytest.FixtureRequest) -> str:
    """The name of an available device that runs machine code."""
    name = open_or_skip(request.param)
    if Device(name).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return name


def launched(file: Path, device: str, images: bool = True) -> tuple[Report, dict[str, Any]]:
    """Replay a file without its recorded results. Return the report and the arrays as the replay left them."""
    events = events_of(file)
    for event in events:
        if "leave" in event:
            for result in event["arrays"].values():
                result.pop("data", None)
    replay = Replay(Device(device), True, 1, None, images=images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without the kernel, its Out stays unwritten
        return replay.run(file, events), replay.arrays


def test_kernels_of_a_module_replay_on_the_device_of_the_recording(device: str, tmp_path: Path) -> None:
    module = Module.load(module_for(device), name="kernels")
    vadd = module.kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    a, b, c = np.arange(-40, 60, dtype=np.float32), np.ones(100, np.float32), np.zeros(100, np.float32)
    with record(tmp_path / "r", contents="inputs", images=True), offload_args(a, b, Out(c), device=device) as pointers:
        vadd[4, 32](*pointers, 100)
        module.kernel("relu", InOut[np.float32], np.int32)[4, 32](pointers[2], 100)
    report, arrays = launched(tmp_path / "r", device)
    assert (report.calls, report.skipped, report.failures) == (2, {}, [])
    assert np.array_equal(c, np.maximum(a + 1, 0)) and np.array_equal(arrays["c"], c)
    report, _ = launched(tmp_path / "r", device, images=False)
    assert report.calls == 0 and report.skipped.total() == 2
    assert all("--images runs it, if you trust the file" in reason for reason in report.skipped)


@kernel
def scale(a: np.float32, x: InOut[np.float32].by(kernels.Tiles(4, 8))):
    for i, j in x.mine():
        x[i, j] *= a


SOURCE = """\
#include <offload_args/kernel.h>
OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element += x[element.index()];
}
"""


@pytest.mark.later
def test_kernels_from_source_replay_on_the_cpu_too(running_device: str, tmp_path: Path) -> None:
    types = [In[np.float32], InOut[np.float32].by(kernels.Linear1D()), np.int32]
    add = Kernel.compile(SOURCE, "add", types, device=running_device)
    A, x, y = np.ones((5, 20), np.float32), np.arange(50, dtype=np.float32), np.ones(50, np.float32)
    with record(tmp_path / "r", contents="inputs", images=True):
        with offload_args(A, x, y, device=running_device) as (dA, dx, dy):
            scale(3.0, dA)
            add(dx, dy, 50)
            blas.scal(2.0, dy)
        offload(add, x, y, 50, device=running_device)
    assert A.min() == 3 and np.array_equal(y, 3 * np.arange(50) + 2)
    for device in {running_device, "host", "sim:0"}:
        report, arrays = launched(tmp_path / "r", device)
        assert (report.calls, report.skipped, report.failures, report.differences) == (4, {}, [], [])
        assert report.compared == (4 if device != "host" else 0)
        assert np.array_equal(arrays["A"], A) and np.array_equal(arrays["y"], y)
    kinds = [next(iter(event)) for event in events_of(tmp_path / "r")]
    assert kinds.count("kernel") == 2


@pytest.mark.later
def test_a_kernel_in_python_has_code_for_nvidia_gpus_wherever_it_was_recorded(tmp_path: Path) -> None:
    A = np.ones((5, 20), np.float32)
    with record(tmp_path / "r", images=True):
        offload(scale, 3.0, A, device="host")
    (row,) = (event for event in events_of(tmp_path / "r") if "kernel" in event and "launch" not in event)
    assert [(image["backend"], image["format"]) for image in row["images"]] == [
        ("host", "shared object"),
        ("cuda", "PTX"),
    ]


def test_launches_that_a_graph_captured_replay_in_each_turn(tmp_path: Path) -> None:
    module = Module.load(module_for("sim:0"), name="kernels")
    vadd = module.kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    a, b = np.ones(8, np.float32), np.zeros(8, np.float32)
    with record(tmp_path / "r", contents="inputs", images=True):
        region = offload_args(a, b, device="sim:0")
        with region as (da, db):
            with region.capture() as graph:
                vadd[1, 8](da, da, db, 8)
                blas.copy(db, da)
            graph.replay()
            graph.replay()
    report, arrays = launched(tmp_path / "r", "host")
    assert (report.calls, report.failures) == (4, []) and arrays["a"][0] == a[0] == 4


@pytest.mark.slow
def test_a_recording_has_the_code_of_kernels_only_if_asked_to(tmp_path: Path) -> None:
    A = np.ones((5, 20), np.float32)
    with record(tmp_path / "r"):
        offload(scale, 3.0, A, device="host")
    (launch,) = (event for event in events_of(tmp_path / "r") if "launch" in event)
    assert len(launch["image"]) == 64 and "kernel" not in launch
    assert not any(next(iter(event)) in ("kernel", "image") for event in events_of(tmp_path / "r"))
    report, _ = launched(tmp_path / "r", "host")
    (reason,) = report.skipped
    assert reason.endswith("the recording has no machine code (record --images)")


@pytest.mark.later
def test_refused_launches_are_refused_again_and_checks_that_failed_are_not_made(tmp_path: Path) -> None:
    add = Kernel.compile(SOURCE, "add", [In[np.float32], InOut[np.float32], np.int32], device="host")
    by = Kernel.compile(
        SOURCE, "add", [In[np.float32], InOut[np.float32].by(kernels.Linear1D()), np.int32], device="host"
    )
    x, y = np.ones(10, np.float32), np.ones(20, np.float32)
    with record(tmp_path / "r", images=True), offload_args(x, y, device="host") as (dx, dy):
        with pytest.raises(ExtentError):
            add[1, 20](dx, dy, 20)
        with pytest.raises(CoverageError):
            by[1, 5](dx, dy, 20)
    report, _ = launched(tmp_path / "r", "sim:0")
    assert (report.failed_again, report.failures) == (0, [])
    assert set(report.skipped) == {"kernel add: its checks failed, and the recording has it without them"}


def test_a_kernel_that_a_replay_can_not_launch_is_named_with_the_reason(tmp_path: Path) -> None:
    line = Module.load(module_for("host")).kernel(
        "line", Out[np.float64], np.dtype([("slope", "f4"), ("start", "f8")], align=True), np.int64
    )
    relu = Module.load(module_for("host")).kernel("relu", InOut[np.float32], np.int32)
    y, x = np.zeros(8), np.ones(8, np.float32)
    with record(tmp_path / "r", images=True), offload_args(y, x, device="host") as (dy, dx):
        line[1, 8](dy, np.array((1, 2), line._formals[1].dtype)[()], 8)
        relu[1, 8](dx, 8)
    events = events_of(tmp_path / "r")
    for event in events:
        if event.get("name") == "relu":
            event["images"] = []
    rewritten(tmp_path / "r", events)
    report, _ = launched(tmp_path / "r", "host")
    assert set(report.skipped) == {
        "kernel line: it takes a struct, whose values a recording does not have",
        "kernel relu: the recording has no machine code for host",
    }


HALVES = """\
#include <offload_args/kernel.h>
OA_KERNEL(halves, oa::In<float> x, oa::Out<float> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element = x[element.index()] / 2;
}
"""


@pytest.mark.later
def test_a_launch_whose_results_are_not_those_of_the_host_is_named_with_its_line(tmp_path: Path) -> None:
    """The kernel does not write a part of its Out, where sim and the host have different bytes."""
    types = [In[np.float32], Out[np.float32], np.int32]
    halves = Kernel.compile(HALVES, "halves", types, device="host")
    x, halved, whole = np.ones(40, np.float32), np.zeros(40, np.float32), np.zeros(40, np.float32)
    with record(tmp_path / "r", contents="inputs", images=True):
        with offload_args(x, whole, device="sim:0") as (dx, dwhole):
            halves[1, 40](dx, dwhole, 40)
        with offload_args(x, Out(halved), device="sim:0") as (dx, dhalved):
            halves[1, 40](dx, dhalved, 30)
    report, _ = launched(tmp_path / "r", "sim:0")
    (difference,) = report.differences
    assert (
        report.compared == 2
        and f"call 2, kernel halves, {__file__}:" in difference
        and ": y=halved is off by" in difference
    )


PLAIN = """\
extern "C" __global__ void plain(const float *matrix, float *__restrict__ y, int counts[]) {}
"""


@pytest.mark.later
def test_a_recording_has_the_names_of_a_kernels_parameters(tmp_path: Path) -> None:
    A, x, y = np.ones((5, 20), np.float32), np.ones(20, np.float32), np.ones(20, np.float32)
    add = Kernel.compile(SOURCE, "add", [In[np.float32], InOut[np.float32], np.int32], device="host")
    relu = Module.load(module_for("host")).kernel("relu", InOut[np.float32], np.int32)
    with record(tmp_path / "r"), offload_args(A, x, y, device="host") as (dA, dx, dy):
        scale(3.0, dA)
        add(dx, dy, 20)
        relu[1, 20](dx, 20)
    launches = [event for event in events_of(tmp_path / "r") if "launch" in event]
    assert [event.get("parameters") for event in launches] == [["a", "x"], ["x", "y", "n"], None]
    assert _names_until_bracket(PLAIN.partition("plain(")[2]) == ["matrix", "y", "counts"]


def test_results_of_kernels_are_compared_with_the_recorded_ones(tmp_path: Path) -> None:
    A = np.ones((5, 20), np.float32)
    with record(tmp_path / "r", contents="inputs", images=True):
        offload(scale, 3.0, A, device="sim:0")
        with offload_args(A, device="sim:0") as (dA,):
            blas.scal(0.5, dA[0])
            scale(2.0, dA)
    for device in ("host", "sim:0"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = Replay(Device(device), True, 1, None, images=True).run(tmp_path / "r")
        assert (report.compared_recorded, report.differences, report.skipped) == (2, [], {})
    events = events_of(tmp_path / "r")
    launch = [event for event in events if "launch" in event][1]
    launch["args"][0] = {"scalar": "float32", "value": 2.25}
    rewritten(tmp_path / "r", events)
    report = Replay(Device("host"), True, 1, None, images=True).run(tmp_path / "r")
    (difference,) = report.differences
    assert f"calls 2 to 3, in the region of {__file__}:" in difference and "A is off by 0.75" in difference


@pytest.mark.slow
def test_the_commands_record_and_launch_kernels(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import numpy as np\nfrom offload_args import InOut, Module, offload\n"
        f"relu = Module.load({module_for('host')!r}).kernel('relu', InOut[np.float32], np.int32)\n"
        "offload(relu, -np.ones(4, np.float32), 4, grid=1, block=4, device='host')\n"
    )
    # The command shuts down the executors of its process, as Python does at exit.
    command = (sys.executable, "-m", "offload_args")
    output_of(*command, "record", "--images", "-o", "r", "user.py", folder=tmp_path)
    said = output_of(*command, "replay", "r", "--device", "sim:0", "--images", folder=tmp_path)
    assert "replayed on sim:0: 1 call in 1 region" in said and "not run" not in said
