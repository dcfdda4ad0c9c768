"""A recording is a file with the actions of a program.

They are replayed on any device, and the results are compared.
"""

from __future__ import annotations

import base64
import enum
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from regions.test_signals import DROPPED

from helpers.processes import output_of, printed, python
from offload_args import (
    Communicator,
    Device,
    In,
    InOut,
    Out,
    Scratch,
    blas,
    call,
    cblas,
    cublas,
    fft,
    lapack,
    offload_args,
    record,
    rocblas,
    sparse,
    testing,
    update,
)
from offload_args.command import main
from offload_args.errors import ArgumentError, BackendError, ExtentError
from offload_args.recording.recorder import _sample
from offload_args.recording.replay import Replay, Report, replay
from offload_args.recording.stream import VERSION
from offload_args.selftest import behaviour, routines

HERE = Path(__file__).parent
VENDORS = {"cuda": cublas, "hip:": rocblas}
ROOT = HERE.parents[1]


def replayed(file: Path, device: str, **options: Any) -> Report:
    """Replay a file on a device; fail unless all results equal the recorded ones."""
    report = replay(file, device=Device(device), compare=True, **options)
    assert (report.failures, report.differences) == ([], [])
    return report


def lines_of(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def events_of(file: Path) -> list[dict[str, Any]]:
    """Return a recording's events, with repeated calls written out."""
    events, calls = [], [{}]
    for line in lines_of(file):
        event = again(calls[line["again"]], line) if "again" in line else line
        if next(iter(event)) in ("blas", "call", "launch"):
            calls.append(dict(event))
        events.append(event)
    return events


def again(call: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """Return a call with the numbers of the line that repeats it."""
    call = dict(call)
    if "numbers" in line:
        call.pop("calls", None)
        numbers = [float.fromhex(text) for text in line["numbers"]][::-1]
        call["args"] = [numbers.pop() if isinstance(value, float) else value for value in call["args"]]
        for name, value in call.get("names", {}).items():
            call["names"] = call["names"] | {name: numbers.pop() if isinstance(value, float) else value}
        assert not numbers
    return call


def checks_recorded(file: Path, device: str, every: int, **options: Any) -> int:
    """Record the checks of selftest's routines, and return the number of checks."""
    count = 0
    with record(file, **options):
        for _, check in islice(routines.checks(Device(device)), 0, None, every):
            check()
            count += 1
    return count


@pytest.mark.later("host")
@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_every_routine_recorded_on_host_replays_on_each_device_and_does_not_differ(
    device: str, every: int, tmp_path: Path
) -> None:
    count = checks_recorded(tmp_path / "r", "host", every)
    report = replayed(tmp_path / "r", device)
    assert (report.calls, report.skipped) == (count, {})
    assert report.compared == (0 if device == "host" else count)


@pytest.mark.later("host")
@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.slow)])
def test_every_routine_recorded_on_a_device_replays_on_host_with_the_recorded_results(
    device: str, every: int, tmp_path: Path
) -> None:
    count = checks_recorded(tmp_path / "r", device, every, contents="inputs")
    report = replayed(tmp_path / "r", "host")
    assert (report.calls, report.skipped) == (count, {})
    assert report.compared_recorded > count / 2


def test_regions_copies_and_directions_replay(device: str, tmp_path: Path) -> None:
    groups = (behaviour.transfers, 19), (behaviour.residency, 3), (behaviour.errors, 1)
    with record(tmp_path / "r"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group, every in groups:
            for name, check in islice(group(Device(device)), 0, None, every):
                if "64 MiB" not in name:
                    check()
    replayed(tmp_path / "r", device)
    replayed(tmp_path / "r", "host")


def test_slices_and_layouts_of_pointers_replay(device: str, tmp_path: Path) -> None:
    A = np.arange(1.0, 61).reshape(6, 10)
    F, backwards = np.asfortranarray(A[:, :6]), np.ones(12)[::-2]
    with record(tmp_path / "r", contents="inputs"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a packed array
        with offload_args(A, F, backwards, Scratch((6,), "f8"), device=device) as (dA, dF, db, ds):
            blas.gemv(1.0, dA[:, 2:8].T, db, 0.0, ds)
            blas.axpy(2.0, ds[::-1], dF[0])
            blas.gemv(0.5, dF[1:4, 2:5], dA[0, 1:4], 1.0, db[3:])
    report = replayed(tmp_path / "r", "host")
    assert report.compared_recorded == 2
    replayed(tmp_path / "r", device)


def test_arrays_that_share_memory_share_it_in_a_replay(device: str, tmp_path: Path) -> None:
    x = np.arange(1.0, 11)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(x[:6], x[4:], device=device) as (head, tail):
            blas.scal(2.0, head)
            blas.scal(3.0, tail)
        with offload_args(x, device=device) as (dx,):
            total = blas.asum(dx)
    assert total == x.sum()
    replayed(tmp_path / "r", "host")
    replayed(tmp_path / "r", device)


def test_nested_regions_updates_fills_and_copies_replay(device: str, tmp_path: Path) -> None:
    x, y = np.ones(50), np.zeros(50)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(x, y, device=device) as (dx, dy):
            dy.fill(2.0)
            with offload_args(x, device=device) as (inner,):
                blas.axpy(1.0, inner, dy)
            with update(x):
                x[:] = 5
            blas.axpy(1.0, dx, dy)
            dx[:25].assign(np.arange(25.0))
            dx[25:].copy_from(dy[25:])
            blas.axpy(1.0, dx, dy)
        call(blas.scal, 2.0, y, device=device)
    report = replayed(tmp_path / "r", "host")
    assert report.compared_recorded > 0
    replayed(tmp_path / "r", device)


def test_a_graph_replays_as_often_as_it_ran(tmp_path: Path) -> None:
    x, y = np.ones(50), np.zeros(50)
    with record(tmp_path / "r", contents="inputs"):
        region = offload_args(x, y, device="sim:0")
        with region as (dx, dy):
            with region.capture(x=dx, a=2.0) as graph:
                blas.axpy(graph["a"], dx, dy)
                blas.scal(0.5, dx)
            graph.replay()
            graph.replay(x=np.full(50, 3.0), a=4.0)
    assert y[0] == 14
    assert [event["value"]["value"] for event in events_of(tmp_path / "r") if "stage" in event] == [2.0]
    report = replayed(tmp_path / "r", "host")
    assert (report.calls, report.compared_recorded) == (4, 2)
    replayed(tmp_path / "r", "sim:0")


def test_solvers_get_contents_that_can_be_solved_with(device: str, tmp_path: Path) -> None:
    n = 300
    A, x, ap = np.eye(n), np.ones(n), np.ones(n * (n + 1) // 2)
    with record(tmp_path / "r"), offload_args(A, In(ap), x, device=device) as (dA, dap, dx):
        blas.trsv(dA, dx)
        blas.trsv(dA, dx, uplo="L")
        blas.tpsv(dap, dx)
        if not device.startswith("hip"):  # HIP's tests have no library for it
            lapack.potrf(dA)
    report = replayed(tmp_path / "r", device)
    assert report.calls >= 3


def test_threads_are_recorded_and_replay(device: str, tmp_path: Path) -> None:
    ends: list[Any] = []
    all_are_here = threading.Barrier(4)

    def work(number: int) -> None:
        all_are_here.wait()
        A, x, y = np.full((30, 20), number + 1.0), np.ones(20), np.empty(30)
        for _ in range(10):
            with offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
                blas.gemv(1.0, dA, dx, 0.0, dy)
        ends.append(y[0])
        all_are_here.wait()  # a new thread may get the number of an ended one

    with record(tmp_path / "r", contents="inputs") as recording:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ends) == [20, 40, 60, 80] and recording.calls == 40
    assert len({event["thread"] for event in events_of(tmp_path / "r") if "blas" in event}) == 4
    report = replayed(tmp_path / "r", "host")
    assert (report.calls, report.compared_recorded) == (40, 4)  # each y after a change


def test_two_devices_are_recorded_and_replay_where_they_were_or_on_one(tmp_path: Path) -> None:
    x, y, z = np.ones(40), np.zeros(40), np.zeros(40)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(In(x), y, device="sim:0") as (dx, dy), offload_args(In(x), z, device="sim:1") as (ex, ez):
            blas.axpy(2.0, dx, dy)
            blas.axpy(3.0, ex, ez)
    assert (y[0], z[0]) == (2, 3)
    report = replay(tmp_path / "r", compare=True)
    assert report.is_good and report.device == "sim:0, sim:1" and report.compared == 2
    assert replayed(tmp_path / "r", "host").recorded_on == ["sim:0", "sim:1"]


def test_a_call_that_failed_fails_again_and_one_that_did_not_is_named(
    device: str, library: ModuleType, tmp_path: Path
) -> None:
    x = np.ones(4)
    with record(tmp_path / "r"), offload_args(x, device=device) as (dx,):
        with pytest.raises(ExtentError):
            library.dscal(20, 3.0, dx, 1)
    report = replay(tmp_path / "r", device=Device(device))
    assert report.failed_again == 1 and report.is_good
    events = events_of(tmp_path / "r")
    lines = {event["place"]: event["line"] for event in events if "place" in event}
    (call_event,) = (event for event in events if event.pop("error", None))
    line = lines[call_event["at"]]
    rewritten(tmp_path / "r", events)
    (failure,) = replay(tmp_path / "r", device=Device(device)).failures
    assert f"{Path(__file__).name}:{line}: ExtentError: " in failure


def test_a_failure_of_a_driver_has_a_note_that_a_recording_shows_it() -> None:
    device = testing.sim_device()
    with offload_args(np.ones(4), device=device) as (dx,):
        testing.fail_call(device, 1)
        with pytest.raises(BackendError) as caught:
            blas.scal(2.0, dx)
        testing.fail_call(device, 0)
        with pytest.raises(ExtentError) as refused:
            cblas.dscal(5, 2.0, dx, 1)
    assert any("`python -m offload_args record script.py`" in note for note in caught.value.__notes__)
    assert not hasattr(refused.value, "__notes__")


def rewritten(file: Path, events: list[dict[str, Any]]) -> None:
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(event) + "\n" for event in events)


USER = """\
import sys
import numpy as np
from offload_args import cublas, offload_args, record, testing
testing.library("cublas", sys.argv[1])
A, B, x, y = np.ones((6, 6)), np.ones((4, 6)), np.ones(6), np.zeros(6)
with record("r"), offload_args(A, B, x, y, device="sim:0") as (dA, dB, dx, dy):
    cublas.dscal(6, 2.0, dx, 1)
    cublas.dgemv(cublas.OP_T, 6, 4, 1.0, dB, 6, dx, 1, 0.0, dy, 1)
    cublas.dgemv(cublas.OP_T, 6, 6, 1.0, dA, 6, dx, 1, 0.0, dy, 1)
    cublas.dscal(6, 2.0, dy, 1)
from offload_args import Device
from offload_args.recording.replay import replay
for device in ("sim:0", "host"):
    print(*replay("r", device=Device(device), compare=True).lines(), sep="\\n")
"""


def wrong_cublas(folder: Path) -> Path:
    """Compile a double of cuBLAS with wrong results, and return its path."""
    double = folder / "libcublas.so"
    output_of("gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", double, HERE / "wrong_cublas.c", folder=folder)
    return double


def test_a_wrong_function_of_a_library_is_found_at_the_users_line(tmp_path: Path) -> None:
    double = wrong_cublas(tmp_path)
    (tmp_path / "user.py").write_text(USER)
    on_sim, on_host = output_of(sys.executable, "user.py", double, folder=tmp_path).split("replayed on host")
    assert re.search(
        r"4 calls compared .*\n1 differ\nthe first: call 3, cublas.dgemv, .*user.py:9: y is off by", on_sim
    )
    assert on_host.startswith(": 4 calls in 1 region, recorded on sim:0") and "not run" not in on_host


STALE = """\
import sys
import numpy as np
from offload_args import Device, cublas, offload_args, record, testing
from offload_args.recording.replay import replay
testing.library("cublas", sys.argv[1])
x, y = np.ones(60, np.float32), np.zeros(60, np.float32)
with record("r", contents="inputs"):
    with offload_args(x, y, device="sim:0") as (dx, dy):
        cublas.sscal(60, 3.0, dx, 1)
    with offload_args(x, y, device="sim:0") as (dx, dy):  # here
        cublas.sscal(60, 3.0, dx, 1)
        cublas.scopy(60, dx, 1, dy, 1)  # this call
print(*replay("r", device=Device("host"), compare=True).differences, sep="\\n")
"""


@pytest.mark.later
def test_a_stale_order_of_the_recorded_run_is_found_at_its_line_on_another_device(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(STALE)
    said = output_of(sys.executable, "user.py", wrong_cublas(tmp_path), folder=tmp_path).splitlines()
    region, call = (n for n, text in enumerate(STALE.splitlines(), 1) if text.endswith(("# here", "# this call")))
    order = "the recorded results show it before call 2, an ordering error"
    assert len(said) == 2 and re.fullmatch(rf"call 3, cublas.scopy, .*user.py:{call}: {order}", said[0])
    place = rf"calls 2 to 3, in the region of .*user.py:{region}: y is off by 6 from the recorded results"
    assert re.match(place, said[1])


def test_a_result_other_than_the_recorded_one_is_found_in_its_region(tmp_path: Path) -> None:
    x = np.ones(40)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(x, device="sim:0") as (dx,):
            blas.scal(2.0, dx)
        with offload_args(x, device="sim:0") as (dx,):
            blas.scal(2.0, dx)
    events = events_of(tmp_path / "r")
    (*_, last) = (event for event in events if "leave" in event)
    last["arrays"]["0"]["data"] = next(
        row["data"] for event in events if "enter" in event for row in event["arrays"] if "data" in row
    )
    rewritten(tmp_path / "r", events)
    report = replay(tmp_path / "r", device=Device("host"), compare=True)
    (difference,) = report.differences
    assert difference.startswith("calls 2 to 2, in the region of ") and "x is off by 3 from" in difference


def test_a_returned_number_other_than_the_recorded_one_is_found(tmp_path: Path) -> None:
    x = np.ones(40)
    with record(tmp_path / "r", contents="inputs"), offload_args(x, device="host") as (dx,):
        blas.asum(dx)
    events = events_of(tmp_path / "r")
    for event in events:
        if "blas" in event:
            assert event["result"] == 40
            event["result"] = 41
    rewritten(tmp_path / "r", events)
    (difference,) = replay(tmp_path / "r", compare=True).differences
    assert "blas.asum" in difference and "the result is off by 1 from the recorded result" in difference


KILLED = """\
import sys, time
import numpy as np
from offload_args import blas, offload_args, record
with record("r") as recording, offload_args(np.ones(10), device="sim:0") as (dx,):
    for _ in range(7):
        blas.scal(2.0, dx)
    recording.flush()
    blas.scal(2.0, dx)
    print("flushed", flush=True)
    time.sleep(600)
"""


def test_a_killed_program_leaves_all_that_was_flushed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"flushed\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    report = replayed(tmp_path / "r", "sim:0")
    assert report.is_cut and report.calls >= 7
    assert any("killed" in line for line in report.lines())


FORKED = """\
import os
import numpy as np
from offload_args import blas, offload_args, record
with record("r") as recording:
    with offload_args(np.ones(10), device="host") as (dx,):
        blas.scal(2.0, dx)
    child = os.fork()
    if not child:
        try:
            offload_args(np.ones(10), device="host").open()
        except Exception as error:
            print(type(error).__name__, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    with offload_args(np.ones(10), device="host") as (dx,):
        blas.scal(2.0, dx)
"""


@pytest.mark.later
def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    assert output_of(sys.executable, "-c", FORKED, folder=tmp_path) == "ForkedError\n"
    report = replayed(tmp_path / "r", "sim:0")
    assert (report.calls, report.regions, report.is_cut) == (2, 2, False)


def test_hash_and_none_have_no_values_and_inputs_has_them(tmp_path: Path) -> None:
    secret = np.full(9, 6.02214076e23)
    texts = {}
    for contents in ("none", "hash", "inputs"):
        with (
            record(tmp_path / "r", contents=contents),
            offload_args(secret, Out(np.empty(9)), device="host") as (ds, dy),
        ):
            blas.copy(ds, dy)
            dy.assign(secret)
            blas.asum(ds)
        texts[contents] = gzip.decompress((tmp_path / "r").read_bytes()).decode()
    values = ("6.02214076e", "5.4199", '"data"', '"result"')
    assert [any(value in text for value in values) for text in texts.values()] == [False, False, True]
    assert ['"hash"' in text for text in texts.values()] == [False, True, True]


def test_hashes_are_others_in_each_file(tmp_path: Path) -> None:
    hashes = set()
    for _ in range(2):
        with record(tmp_path / "r"), offload_args(np.ones(9), device="host"):
            pass
        hashes |= {row["hash"] for event in events_of(tmp_path / "r") if "enter" in event for row in event["arrays"]}
    assert len(hashes) == 2


def test_a_newer_version_is_refused_with_its_version(tmp_path: Path) -> None:
    with record(tmp_path / "r"):
        pass
    header, *rest = events_of(tmp_path / "r")
    rewritten(tmp_path / "r", [header | {"version": VERSION + 1, "offload_args": "9.1"}, *rest])
    with pytest.raises(ArgumentError, match=r"has version 2 of the format, from offload_args 9\.1; this one reads"):
        replay(tmp_path / "r")


@pytest.mark.parametrize(
    "contents",
    [b"", b"hello\n", gzip.compress(b"hello\n"), gzip.compress(b'{"format": 1}\n')],
    ids=["nothing", "text", "compressed text", "another format"],
)
def test_another_file_is_no_recording(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(contents)
    with pytest.raises(ArgumentError, match="r is no recording; "):
        replay(tmp_path / "r")


def test_wrong_arguments_are_refused_by_name(tmp_path: Path) -> None:
    wrong: Any = "all"
    with pytest.raises(ArgumentError, match='record: contents needs "none", "hash" or "inputs", got \'all\''):
        record(tmp_path / "r", contents=wrong)
    with pytest.raises(ArgumentError, match="record: calls needs a number above 0, or None, got 0"):
        record(tmp_path / "r", calls=0)
    with record(tmp_path / "r") as recording, pytest.raises(ArgumentError, match="record: it has begun before"):
        recording.start()
    with pytest.raises(FileNotFoundError):
        record(tmp_path / "none" / "r").start()


def test_a_recording_ends_after_so_many_calls_and_the_program_goes_on(tmp_path: Path) -> None:
    x = np.ones(4)
    with record(tmp_path / "r", calls=3) as recording, offload_args(x, device="host") as (dx,):
        for _ in range(5):
            blas.scal(2.0, dx)
    assert (x[0], recording.calls) == (32, 3)
    assert replayed(tmp_path / "r", "sim:0").calls == 3


def test_two_recordings_at_once_have_the_same_calls(tmp_path: Path) -> None:
    x = np.ones(4)
    with record(tmp_path / "a"), record(tmp_path / "b"), offload_args(x, device="host") as (dx,):
        blas.scal(2.0, dx)
    assert [replayed(tmp_path / name, "host").calls for name in "ab"] == [1, 1]


def test_a_full_disk_ends_the_recording_and_not_the_program() -> None:
    x = np.ones(4)
    before, recordings = len(os.listdir("/proc/self/fd")), [record("/dev/full") for _ in range(5)]
    for recording in recordings:
        with pytest.raises(OSError, match="No space"):
            recording.start()
    assert len(os.listdir("/proc/self/fd")) < before + 5
    with offload_args(x, device="host") as (dx,):
        blas.scal(2.0, dx)
    assert x[0] == 2


def test_only_the_asked_calls_run(tmp_path: Path) -> None:
    x, y = np.ones(4), np.empty(4)
    with record(tmp_path / "r"), offload_args(x, Out(y), device="sim:0") as (dx, dy):
        blas.copy(dx, dy)
        blas.scal(2.0, dy)
        blas.axpy(1.0, dx, dy)
    assert replayed(tmp_path / "r", "sim:0", first=2, last=2).compared == 1
    assert replayed(tmp_path / "r", "sim:0", first=2).compared == 2
    assert replayed(tmp_path / "r", "sim:0", last=2).compared == 2


@pytest.mark.parametrize("turns", [1000, pytest.param(333_334, marks=pytest.mark.exhaustive)])
def test_a_million_calls_take_less_than_100_mb(turns: int, tmp_path: Path) -> None:
    A, x, y = np.ones((8, 8)), np.ones(8), np.zeros(8)
    with record(tmp_path / "r") as recording, offload_args(A, x, y, device="host") as (dA, dx, dy):
        for turn in range(turns):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            blas.scal(1.0 / (turn + 1), dy[turn % 7 :])
            blas.copy(dy, dx)
    assert recording.calls == 3 * turns
    assert (tmp_path / "r").stat().st_size / recording.calls < 100
    report = replay(tmp_path / "r", device=Device("host"))
    assert (report.calls, report.failures) == (3 * turns, [])


def test_the_page_that_reads_a_recording_without_the_package_does(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "internals" / "recordings.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "read.py").write_text(program)
    A, x, y = np.ones((4, 3)), np.ones(3), np.zeros(4)
    with record(tmp_path / "r"), offload_args(A, x, InOut(y), device="host") as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy[:])
        for _ in range(3):
            cblas.dscal(4, 3.0, dy, 1)
    text = output_of(sys.executable, "-I", "-S", "read.py", "r", folder=tmp_path)
    assert "blas.gemv(1.0, A, x, 0.0, y at byte 0)" in text and text.count("cblas.dscal(4, 3.0, y, 1)") == 3
    assert f"{Path(__file__).name}:" in text


SCRIPT = """\
import sys
import numpy as np
from offload_args import blas, offload_args
with offload_args(np.ones(10), device="sim:0") as (dx,):
    print(blas.asum(dx), sys.argv[1:])
sys.exit(3)
"""


@pytest.mark.later
def test_the_command_records_a_script_and_another_replays_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    base = [sys.executable, "-m", "offload_args"]
    ran = subprocess.run(
        [*base, "record", "-o", "r", "--contents", "inputs", "script.py", "-x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (3, "10.0 ['-x']\n")
    assert "WILL HAVE THE VALUES" in ran.stderr and "record: 1 call in " in ran.stderr
    (info,) = (event["info"] for event in events_of(tmp_path / "r") if "info" in event)
    assert info["offload_args"] and "cblas" in [library["name"] for library in info["libraries"]]
    text = output_of(*base, "replay", "r", "--device", "sim:0", "--compare", folder=tmp_path)
    assert text.startswith("replayed on sim:0: 1 call in 1 region, recorded on sim:0\n") and "\n0 differ\n" in text
    none = subprocess.run([*base, "replay", "none"], cwd=tmp_path, capture_output=True, text=True)
    assert none.returncode == 2 and "none" in none.stderr and "Traceback" not in none.stderr


def test_the_environment_records_a_process(tmp_path: Path) -> None:
    code = SCRIPT.replace("sys.exit(3)", "print(sum('Recorder' in name for name in dir(sys)))")
    printed(code, OFFLOAD_ARGS_RECORD=str(tmp_path / "r%p"))
    (file,) = tmp_path.iterdir()
    assert replayed(file, "sim:0").calls == 1


class Hiding(np.ndarray):
    """An array with an attribute of a different meaning."""

    base = property(lambda self: self)  # type: ignore[assignment]


def test_an_array_that_hides_its_base_is_recorded(tmp_path: Path) -> None:
    x = np.ones(4).view(Hiding)
    with record(tmp_path / "r"), offload_args(x, device="host") as (dx,):
        blas.scal(2.0, dx)
    assert replayed(tmp_path / "r", "sim:0").calls == 1


@pytest.mark.later
def test_a_file_that_is_being_recorded_is_not_overwritten(tmp_path: Path) -> None:
    x = np.ones(4)
    with record(tmp_path / "r"), offload_args(x, device="host") as (dx,):
        with pytest.raises(OSError, match="another recording writes it"):
            record(tmp_path / "r").start()
        ran = subprocess.run(
            [sys.executable, "-c", "import offload_args; print('ran')"],
            env=os.environ | {"OFFLOAD_ARGS_RECORD": str(tmp_path / "r")},
            capture_output=True,
            text=True,
        )
        assert (ran.returncode, ran.stdout) == (0, "ran\n") and "another recording writes it" in ran.stderr
        blas.scal(2.0, dx)
    assert replayed(tmp_path / "r", "sim:0").calls == 1


FULL = """\
import os, resource, signal, sys
import numpy as np
from offload_args import blas, offload_args
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with offload_args(np.ones(8), device="host") as (dx,):
    blas.scal(2.0, dx)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat("r").st_size,) * 2)
sys.exit(7)
"""


@pytest.mark.later
def test_a_disk_that_fills_before_the_end_leaves_the_exit_status(tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL)
    command = [sys.executable, "-m", "offload_args", "record", "-o", "r", "full.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 7 and "ends here: [Errno 27]" in ran.stderr and "Traceback" not in ran.stderr
    assert "r ends early, at most 1 call is in it: [Errno 27]" in ran.stderr and "runs them again" not in ran.stderr


def test_names_that_are_no_text_are_recorded(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile("def scale(dx, blas):\n    blas.scal(2.0, dx)\n", "\udcff.py", "exec"), names)
    with record(tmp_path / "r"), offload_args(np.ones(4), device="host") as (dx,):
        names["scale"](dx, blas)
    assert any(event.get("file") == "\udcff.py" for event in events_of(tmp_path / "r"))
    assert replayed(tmp_path / "r", "sim:0").calls == 1


@pytest.mark.parametrize("name", ["call", "blas"])
def test_a_file_calls_nothing_but_functions_of_libraries(name: str, tmp_path: Path) -> None:
    with record(tmp_path / "r"), offload_args(np.ones(4), device="host") as (dx,):
        blas.scal(2.0, dx)
    events = events_of(tmp_path / "r")
    for position, event in enumerate(events):
        if "blas" in event:
            target = "running.say" if name == "call" else "missing"
            events[position] = {name: target, "args": ["x", {"p": 1}], "names": {}, "at": 0, "thread": 1}
    rewritten(tmp_path / "r", events)
    report = replay(tmp_path / "r", device=Device("host"))
    assert report.calls == 0
    assert any("is no function of" in reason for reason in report.skipped)


def test_a_file_may_not_name_elements_that_are_addresses(tmp_path: Path) -> None:
    with record(tmp_path / "r"), offload_args(np.ones(4), device="host"):
        pass
    events = events_of(tmp_path / "r")
    (entered,) = (event for event in events if "enter" in event)
    entered["arrays"][0]["dtype"] = "object"
    rewritten(tmp_path / "r", events)
    with pytest.raises(ArgumentError, match="elements of object, which devices can't hold"):
        replay(tmp_path / "r", device=Device("host"))


@pytest.mark.later
def test_ctrl_c_in_a_region_that_is_dropped_is_not_lost_while_recorded(tmp_path: Path) -> None:
    ran = python(DROPPED, OFFLOAD_ARGS_RECORD=str(tmp_path / "r"))
    assert ran.stdout == "KeyboardInterrupt\n" and "ignored" not in ran.stderr


def changed(value: Any) -> list[Any]:
    """Return values of other kinds, and wrong values of the same kind."""
    others = [None, -1, 1 << 40, "x", [], {}, [[1]], {"p": "x"}]
    return [other for other in others if type(other) is not type(value) or other != value]


def damages(events: list[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """For each key of one event of each kind, yield the line's number and the events with this key damaged."""
    kinds = set()
    for position, event in enumerate(events):
        kind = next(iter(event))
        if kind in kinds or position == 0:
            continue
        kinds.add(kind)
        for key in event:
            rows = [event | {key: other} for other in changed(event[key]) if (key, other) != ("times", 1 << 40)]
            rows.append({name: value for name, value in event.items() if name != key})
            if key == "arrays" and isinstance(event[key], list):
                row = event[key][0]
                rows += [event | {key: [row | {name: other}]} for name in row for other in changed(row[name])]
            for damaged in rows:
                yield position + 1, [*events[:position], damaged, *events[position + 1 :]]


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_damaged_line_is_named_by_its_number_or_does_no_harm(every: int, tmp_path: Path) -> None:
    A, x, y = np.eye(4), np.ones(4), np.zeros(4)
    with record(tmp_path / "r", contents="inputs"):
        region = offload_args(A, x, y, device="host")
        with region as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            cblas.dscal(3, 2.0, dy[1:], 1)
            dx.fill(2.0)
            dx.assign(np.arange(4.0))
            dx[1:].copy_from(dy[1:])
            with update(x):
                x[:] = 5
            with region.capture(a=2.0) as graph:
                blas.axpy(graph["a"], dx, dy)
            graph.replay()
    events, refused = lines_of(tmp_path / "r"), 0
    assert replay(tmp_path / "r", device=Device("host"), compare=True).is_good
    for line, damaged in islice(damages(events), 0, None, every):
        rewritten(tmp_path / "d", [event for event in damaged if event])
        try:
            replay(tmp_path / "d", device=Device("host"), compare=True)
        except ArgumentError as error:
            refused += 1
            (number,) = re.findall(r"^.*/d: line (\d+) can't be replayed: ", str(error))
            assert int(number) >= line
    assert refused > 10


@pytest.mark.parametrize("text", [b"[]\n", b"{}\n", b"{nothing\n", b"\xff\n"])
def test_a_line_that_is_no_event_is_named_by_its_number(text: bytes, tmp_path: Path) -> None:
    with record(tmp_path / "r"):
        pass
    header = gzip.decompress((tmp_path / "r").read_bytes()).splitlines(keepends=True)[0]
    (tmp_path / "r").write_bytes(gzip.compress(header + text))
    with pytest.raises(ArgumentError, match=r"/r: line 2 can't be replayed: "):
        replay(tmp_path / "r")


@pytest.mark.parametrize(("first", "last"), [(4, None), (1, 4), (3, 2)])
def test_calls_that_the_file_does_not_have_are_refused(
    first: int, last: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with record(tmp_path / "r"), offload_args(np.ones(4), device="host") as (dx,):
        for _ in range(3):
            blas.scal(2.0, dx)
    with pytest.raises(ArgumentError, match=r"replay: .*/r has 3 calls, not .*: they have the numbers 1 to 3"):
        replay(tmp_path / "r", first=first, last=last)
    options = ["--from", str(first), *(["--to", str(last)] if last else [])]
    assert main(["replay", str(tmp_path / "r"), *options]) == 2
    assert "has 3 calls" in capsys.readouterr().err


def test_numbers_of_other_classes_are_recorded(tmp_path: Path) -> None:
    class Size(enum.IntEnum):
        four = 4

    x = np.ones(4)
    with record(tmp_path / "r"), offload_args(x, device="host") as (dx,):
        cblas.dscal(Size.four, Fraction(1, 2), dx, 1)
        blas.scal(Fraction(1, 2), dx)
    assert [event["args"][:2] for event in events_of(tmp_path / "r") if "call" in event] == [[4, 0.5]]
    report = replayed(tmp_path / "r", "sim:0")
    assert (report.calls, report.skipped, report.compared) == (2, {}, 2)


def test_a_region_that_was_discarded_is_discarded_again(tmp_path: Path) -> None:
    x = np.ones(4)
    with record(tmp_path / "r", contents="inputs"), pytest.raises(ZeroDivisionError):
        with offload_args(x, device="host") as (dx,):
            blas.scal(2.0, dx)
            raise ZeroDivisionError
    events = events_of(tmp_path / "r")
    for event in events:
        if "leave" in event:  # replays would use the results
            event["arrays"] = {}
    again = Replay(Device("sim:0"), False, 1, None)
    assert again.run(tmp_path / "r", events).calls == 1
    assert again.arrays["x"].tolist() == [1] * 4


def test_memory_has_its_alignment_and_ends_with_its_array(tmp_path: Path) -> None:
    arrays = [np.zeros(200 + 16 * size, np.uint8) for size in range(40)]
    places, memory = [], next(array for array in arrays if array.__array_interface__["data"][0] % 64)
    with record(tmp_path / "r"):
        for start in (8, 24):
            whole = np.frombuffer(memory, np.float64, 10, start)  # the oldest array, which owns no memory
            places.append(memory.__array_interface__["data"][0] % 64)
            with offload_args(In(whole), device="host") as (dx,):
                blas.asum(dx)
        for _ in range(3):
            with offload_args(np.ones(10), device="host") as (dx,):
                blas.asum(dx)
        with offload_args(In(memory), device="host"):
            pass
    events = events_of(tmp_path / "r")
    numbers = [event["buffer"] for event in events if next(iter(event)) == "buffer"]
    freed = [event["free"] for event in events if "free" in event]
    assert len(numbers) == 4 and freed == numbers[1:]
    again = Replay(Device("host"), False, 1, None)
    again.run(tmp_path / "r", events)
    ((number, kept),) = again._buffers.items()
    assert number == numbers[0] and kept.__array_interface__["data"][0] % 64 == places[0]


def test_functions_that_make_no_recorded_calls_are_named(device: str, tmp_path: Path) -> None:
    z, x, y, w = np.ones(8, np.complex128), np.ones(6), np.zeros(6), np.ones(4)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(z, device=device) as (dz,):
            fft.fft(dz)
        if not device.startswith("hip"):  # HIP's tests have no library for it
            with (
                sparse.lend(sp.eye(6, format="csr"), device=device) as dA,
                offload_args(x, y, device=device) as (dx, dy),
            ):
                sparse.matmul(dA, dx, out=dy)
        if not Device(device).is_gpu:
            (rank,) = Communicator.all([device])
            with offload_args(w, device=device) as (dw,):
                rank.all_reduce(dw)
    report = replay(tmp_path / "r", device=Device("host"), compare=True)
    assert report.is_good
    named = [line for line in report.lines() if "not run" in line]
    if Device(device).is_gpu:
        assert any("fft.exec_z2z: an object of kind Plan that was not made here" in line for line in named)
        assert device.startswith("hip") or any(
            "sparse.matmul: a recording does not have its calls" in line for line in named
        )
    else:
        functions = "communicator.all_reduce", "sparse.matmul"
        assert named == [
            f"not run 1 times: {name} on the CPU; its results are those of the recording" for name in functions
        ]


@pytest.mark.parametrize("name", ["rfft", "ifft2", "fftn"])
def test_transforms_of_the_cpu_are_repeated_also_in_graphs(device: str, tmp_path: Path, name: str) -> None:
    if Device(device).is_gpu:
        return  # its library computes them
    function = getattr(fft, name)
    x = np.random.default_rng(5).standard_normal((4, 6))
    x = x if name == "rfft" else x.astype(np.complex128)
    results = [np.zeros(function(x).shape, np.complex128) for _ in range(2)]
    region = offload_args(x, *results, device=device)
    with record(tmp_path / "r", contents="inputs"), region as (dx, *dresults):
        dresults[0].copy_from(function(dx[::-1], norm="ortho"))
        with region.capture() as g:
            blas.scal(0.5, dx.reshape(24))
            dresults[1].copy_from(function(dx))
        for _ in range(3):
            g.replay()
    again = Replay(Device("host"), False, 1, None)
    report = again.run(tmp_path / "r")
    assert report.is_good and not report.skipped and not report.taken
    for number, result in enumerate(results, 2):
        assert again.arrays[f"argument {number}"].tobytes() == result.tobytes()
    events = events_of(tmp_path / "r")
    transforms = [event for event in events if "fft" in event]
    assert [event["function"] for event in transforms] == [name, name]
    transforms[0]["function"] = "os.abort"
    failures = Replay(Device("host"), False, 1, None).run(tmp_path / "r", events).failures
    assert len(failures) == 1 and "replay: fft has no function 'os.abort'" in failures[0]


def test_an_array_is_hashed_again_if_it_was_written(device: str, tmp_path: Path) -> None:
    A, x, y, z = np.eye(200), np.ones(200), np.zeros(200), np.ones(200)
    with record(tmp_path / "r"):
        with offload_args(A, x, y, z, device=device) as (dA, dx, dy, dz):
            with offload_args(x, device=device) as (inner,):
                blas.scal(2.0, inner)
            blas.gemv(1.0, dA, dx, 0.0, dy)
            with update(z[:10]):
                z[:10] = 5
        with offload_args(A, x, y, z, device=device):
            pass
    events = events_of(tmp_path / "r")
    left = [sorted(event["arrays"]) for event in events if "leave" in event]
    assert left == [[], ["1", "2", "3"], []]
    hashes = [row.get("hash") for event in events if "enter" in event for row in event["arrays"]]
    first, second = hashes[:4], hashes[5:]
    assert first[0] == second[0] and all(a != b for a, b in zip(first[1:], second[1:], strict=True))
    after = next(event["arrays"] for event in events if event.get("arrays") and "leave" in event)
    assert [after[position]["hash"] for position in "123"] == second[1:]
    replayed(tmp_path / "r", device)


@pytest.mark.parametrize("shape", [(1 << 17,), (600, 400), (40, 30, 50)])
def test_a_sample_of_a_large_array_is_small_and_has_its_ends(shape: tuple[int, ...]) -> None:
    whole = np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)
    for array in (whole, np.asfortranarray(whole), whole[..., : shape[-1]]):
        before = _sample(array)
        assert 1 << 11 <= len(before) <= 1 << 14
        array[(0,) * array.ndim] = 1
        first = _sample(array)
        assert first != before
        if array.size == whole.size:  # for arrays without gaps
            array[(-1,) * array.ndim] = 1
            assert _sample(array) != first
        array[...] = 0


@pytest.mark.parametrize("contents", ["none", "hash", "inputs"])
def test_views_of_one_array_do_not_fill_the_memory(contents: Any, tmp_path: Path) -> None:
    x = np.zeros(5000, np.uint8)
    with record(tmp_path / "r", contents=contents) as recording:
        for end in range(300):
            with offload_args(In(x[end:]), device="host"):
                pass
        (buffer,) = recording._buffers.values()
        assert len(buffer.known) <= 64
    assert replayed(tmp_path / "r", "host").regions == 300


def test_pointers_that_are_passed_by_name_are_compared(tmp_path: Path) -> None:
    A, x, y, total = np.eye(5), np.arange(1.0, 6), np.zeros(5), np.zeros(1)
    with record(tmp_path / "r"), offload_args(A, x, y, total, device="sim:0") as (dA, dx, dy, dtotal):
        blas.dot(dx, dx, result=dtotal)
        blas.gemv(y=dy, x=dx, A=dA, beta=0.0, alpha=2.0)
        cblas.dasum(n=5, x=dx, incx=1, result=dtotal)
        blas.trsv(x=dx, A=dA)
    assert replayed(tmp_path / "r", "sim:0").compared == 4


def test_a_wrong_result_in_an_array_that_is_passed_by_name_is_found(tmp_path: Path) -> None:
    x, total = np.ones(5), np.zeros(1)
    with record(tmp_path / "r", contents="inputs"), offload_args(x, total, device="sim:0") as (dx, dtotal):
        blas.dot(dx, dx, result=dtotal)
    events = events_of(tmp_path / "r")
    for event in events:
        if "leave" in event:
            event["arrays"]["1"]["data"] = base64.b64encode(np.full(1, 6.0)).decode()
    rewritten(tmp_path / "r", events)
    (difference,) = replay(tmp_path / "r", device=Device("host"), compare=True).differences
    assert "total is off by 1 from the recorded results" in difference


CRASHES = """\
import sys
import numpy as np
from offload_args import cublas, offload_args, record, testing
testing.library("cublas", sys.argv[1])
with record("r", sync=True), offload_args(np.ones(13), device="sim:0") as (dx,):
    cublas.dscal(4, 2.0, dx, 1)
    cublas.dscal(13, 2.0, dx, 1)
"""


@pytest.mark.later
def test_a_call_that_ends_the_process_is_in_the_file_with_sync(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(CRASHES)
    command = [sys.executable, "user.py", wrong_cublas(tmp_path)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == -signal.SIGABRT
    report = replayed(tmp_path / "r", "host")
    assert report.calls == 2 and report.is_cut
    assert re.fullmatch(r"call 2, cublas\.dscal, .*user\.py:7", report.ended_in)
    assert f"the recorded program ended in {report.ended_in}" in report.lines()


def test_sync_changes_no_recorded_call(device: str, tmp_path: Path) -> None:
    A, x, y = np.eye(6), np.ones(6), np.zeros(6)
    for sync in (False, True):
        with record(tmp_path / str(sync), sync=sync), offload_args(A, x, y, device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy, trans="T")
            blas.scal(2.0, dy)
    texts = [
        [event["blas"] for event in events_of(tmp_path / name) if next(iter(event)) == "blas"]
        for name in ("False", "True")
    ]
    assert texts[0] == texts[1] == ["gemv", "scal"]
    begun = [event for event in events_of(tmp_path / "True") if "begun" in event]
    assert [(event["begun"], event["blas"]) for event in begun] == [(1, "gemv"), (2, "scal")]
    report = replayed(tmp_path / "True", device)
    assert (report.calls, report.is_cut, report.ended_in) == (2, False, "")


def usual_and_rare_calls(device: str) -> None:
    A, x, y, total = np.eye(6), np.ones(6), np.zeros(6), np.zeros(1)
    with offload_args(A, x, y, total, device=device) as (dA, dx, dy, dtotal):
        for alpha in (1.0, -0.0, 1 / 3, -2.5e300, 5e-324, 1e15, 123456789.0, 7, -(1 << 62), float("nan"), True):
            blas.gemv(alpha, dA, dx, 0.0, dy)
        for other in (np.float64(0.5), np.float32(3), 1 << 70, Fraction(1, 4)):
            blas.scal(other, dx)
        blas.gemv(1.0, dA[1:4, 1:5].T, dx[:3], 1.0, dy[2:], trans="N")
        blas.dot(dx[::-1], dx, result=dtotal)
        blas.trsv(dA, dx, uplo="L", trans="T")
        blas.gemm_batched(1.0, [dA[:2, :2], dA[2:4, :2]], [dA[:2, 2:4], dA[2:4, 2:4]], 0.0, [dA[4:, :2], dA[4:, 2:4]])
        with pytest.raises(ArgumentError):
            blas.copy(dx, dy[1:])
        cblas.dscal(3, 2.0, dy, 1)
        assert blas.iamax(dx) >= 0 and blas.asum(dx) is not None


def test_lines_that_c_writes_are_those_of_python(tmp_path: Path) -> None:
    for name, calls in (("c", None), ("python", 1000)):  # only Python code counts calls
        with record(tmp_path / name, calls=calls, contents="none") as recording:
            usual_and_rare_calls("host")
        assert recording.calls == 23
    events = [
        [event for event in events_of(tmp_path / name) if next(iter(event)) in ("blas", "call")]
        for name in ("c", "python")
    ]
    numbers = [{event.pop("at"): None for event in side} for side in events]
    assert len(numbers[0]) == len(numbers[1]) > 5
    for written, expected in zip(*events, strict=True):
        calls = [event.pop("calls", []) for event in (written, expected)]
        assert calls[0] in (calls[1], [])  # with rare arguments, no vendor's calls are recorded
        assert json.dumps(written) == json.dumps(expected)
    assert sum("calls" not in event for event in events[0]) > 15


def calls_again(device: str) -> None:
    """Make equal calls and different calls at the same line: in regions, on views, with numbers that look the same."""
    A, x, y = np.eye(6), np.ones(6), np.zeros(6)
    pairs = ((np.ones(3), np.zeros(3)), (np.ones(4), np.zeros(4)), (np.ones(3), np.zeros(3)))
    for left, right in (*pairs, *pairs[::-1]):
        with offload_args(left, right, device=device) as (dx, dy):
            for alpha in (1.0, 1, True, 1.0, -0.0, 0.0, 1 / 3, float("inf"), -5e-324, 1.7e308, Fraction(1, 4), 0.5):
                blas.axpy(alpha, dx, dy)
            for pair in ((dx, dy), (dx, dy), (dy, dx), (dx, dy)):
                blas.copy(*pair)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        for turn in range(8):
            blas.gemv(1.0, dA, dx, 0.0, dy, trans="TN"[turn // 4])
            blas.gemv(1.0, dA, dx, 0.0, dy, **({"trans": "T"} if turn % 3 else {}))
            blas.gemv(turn / 3, dA, dx, y=dy, beta=-0.25 * turn)
            blas.scal(2.0, dx[turn % 2 :])
            with pytest.raises(ArgumentError):
                blas.copy(dx, dy[1:])
            VENDORS.get(device[:4], cblas).dscal(6, 0.5, dx, 1)
            if turn % 4 == 3:
                dx.fill(1.0)
            assert blas.nrm2(dx) is not None


def test_the_same_calls_again_are_those_of_python(device: str, tmp_path: Path) -> None:
    for name, calls in (("c", None), ("python", 100_000)):  # only Python code counts calls
        with record(tmp_path / name, calls=calls, contents="none") as recording:
            calls_again(device)
        assert recording.calls == 6 * 16 + 8 * 7
    events = [
        [event for event in events_of(tmp_path / name) if next(iter(event)) in ("blas", "call")]
        for name in ("c", "python")
    ]
    places = [
        {event["place"]: event["line"] for event in events_of(tmp_path / name) if "place" in event}
        for name in ("c", "python")
    ]
    for written, expected in zip(*events, strict=True):
        lines = [at[event.pop("at")] for at, event in zip(places, (written, expected), strict=True)]
        calls = [event.pop("calls", []) for event in (written, expected)]
        assert lines[0] == lines[1] and calls[0] in (calls[1], [])
        assert json.dumps(written) == json.dumps(expected)
    assert sum("again" in line for line in lines_of(tmp_path / "c")) > 20
    assert sum("numbers" in line for line in lines_of(tmp_path / "c")) > 10
    assert not any("again" in line for line in lines_of(tmp_path / "python"))
    replayed(tmp_path / "c", device)


def test_calls_again_of_several_threads_keep_their_order(tmp_path: Path) -> None:
    alphas = (1.0, 1.0, 1.0, Fraction(1, 2), 1.0, 2.0, 2.0)  # Python code writes the line of a fraction

    def work(extent: int) -> None:
        with offload_args(np.zeros(extent), device="host") as (dx,):
            for turn in range(700):
                blas.scal(alphas[turn % len(alphas)], dx)

    with record(tmp_path / "r", contents="none"):
        threads = [threading.Thread(target=work, args=(extent,)) for extent in (2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = events_of(tmp_path / "r")
    pointers = {event["arrays"][0]["pointer"]: event["arrays"][0]["shape"][0] for event in events if "enter" in event}
    alphas_of: dict[int, list[Any]] = {}
    for event in events:
        if "blas" in event:
            alpha, operand = event["args"]
            alphas_of.setdefault(pointers[operand["p"]], []).append(alpha)
    assert alphas_of == {extent: [float(alpha) for alpha in alphas] * 100 for extent in (2, 3, 4)}


@pytest.mark.parametrize("number", [0, 25, -1, 1 << 40, None, "1", 1.0, True])
def test_a_call_again_that_is_not_before_it_is_named_by_its_line(number: Any, tmp_path: Path) -> None:
    with record(tmp_path / "r", contents="none"), offload_args(np.ones(3), device="host") as (dx,):
        for _ in range(20):
            blas.scal(2.0, dx)
    rows = lines_of(tmp_path / "r")
    at = next(position for position, line in enumerate(rows) if "again" in line)
    rows = [*rows[: at + 1], rows[-1]]
    rewritten(tmp_path / "d", [*rows[:at], {"again": number}, *rows[at + 1 :]])
    with pytest.raises(ArgumentError, match=rf"/d: line {at + 1} can't be replayed: it repeats call .*, which is none"):
        replay(tmp_path / "d")


@pytest.mark.parametrize("numbers", [None, [], ["0x1p+0"], ["x", "0x1p+0"], [1.0, 2.0], 1, ["0x1p+2000", "0x1p+0"]])
def test_a_call_again_with_wrong_numbers_is_named_by_its_line(numbers: Any, tmp_path: Path) -> None:
    with record(tmp_path / "r", contents="none"), offload_args(np.ones((3, 3)), np.ones(3), device="host") as (dA, dx):
        for turn in range(20):
            blas.gemv(0.5 * turn, dA, dA[0], 2.0, dx)
    rows = lines_of(tmp_path / "r")
    calls = [line for line in rows if next(iter(line)) in ("blas", "again")]
    rows = [*rows[: rows.index(calls[0]) + 1], {"again": 1, "numbers": numbers}, rows[-1]]
    rewritten(tmp_path / "d", rows)
    with pytest.raises(ArgumentError, match=rf"/d: line {len(rows) - 1} can't be replayed: "):
        replay(tmp_path / "d")


def test_many_calls_of_several_threads_are_all_in_the_file(tmp_path: Path) -> None:
    def work() -> None:
        with offload_args(np.ones(4), device="host") as (dx,):
            for _ in range(500):
                blas.scal(1.0, dx)

    with record(tmp_path / "r", contents="none") as recording:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert recording.calls == 2000
    events = [event for event in events_of(tmp_path / "r") if "blas" in event]
    counts = Counter(event["thread"] for event in events)
    assert sum(counts.values()) == 2000 and set(counts.values()) <= {500, 1000, 1500, 2000}
    assert {len(event["calls"]) for event in events} == {1}
    assert replayed(tmp_path / "r", "host").calls == 2000


def test_a_recording_within_another_leaves_no_call_out(tmp_path: Path) -> None:
    with record(tmp_path / "a") as outer, offload_args(np.ones(4), device="host") as (dx,):
        blas.scal(2.0, dx)
        with record(tmp_path / "b") as inner, offload_args(np.ones(4), device="host") as (dy,):
            blas.scal(3.0, dy)
            assert (outer.calls, inner.calls) == (2, 1)
        blas.scal(4.0, dx)
        outer.flush()
        assert [event["args"][0] for event in begun_events(tmp_path / "a") if "blas" in event] == [2, 3, 4]
    assert [event["args"][0] for event in events_of(tmp_path / "a") if "blas" in event] == [2, 3, 4]
    assert [event["args"][0] for event in events_of(tmp_path / "b") if "blas" in event] == [3]


def begun_events(file: Path) -> list[dict[str, Any]]:
    """Return the events of an unfinished file."""
    return [json.loads(line) for line in zlib.decompressobj(31).decompress(file.read_bytes()).splitlines()]


def test_recordings_that_begin_and_end_beside_calls_of_other_threads_change_none(tmp_path: Path) -> None:
    ended = threading.Event()

    def work() -> None:
        with offload_args(np.ones(4), device="host") as (dx,):
            for _ in range(300):
                blas.scal(1.0, dx)
        ended.set()

    with record(tmp_path / "all", contents="none") as recording:
        thread = threading.Thread(target=work)
        thread.start()
        while not ended.is_set():
            with record(tmp_path / "some", contents="none"), offload_args(np.ones(4), device="host"):
                pass
        thread.join()
        assert recording.calls == 300
    calls = [event for event in events_of(tmp_path / "all") if next(iter(event)) in ("blas", "call")]
    assert [event.get("blas") for event in calls] == ["scal"] * 300
