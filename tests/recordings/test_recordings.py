"""A recording is a file with the actions of a program.

They are replayed on any device, and the results are compared.
"""

from __future__ import annotations

import base64
import enum
import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from fractions import Fraction
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from recordings.files import events_of, replayed, rewritten, wrong_cublas
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
    fft,
    lapack,
    offload_args,
    record,
    sparse,
    testing,
    update,
)
from offload_args.errors import ArgumentError, BackendError, ExtentError
from offload_args.recording.recorder import _sample
from offload_args.recording.replay import Replay, replay
from offload_args.selftest import behaviour, routines

ROOT = Path(__file__).parents[2]


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


def test_a_recording_shows_its_file_state_and_calls(tmp_path: Path) -> None:
    recording = record(tmp_path / "r", contents="none")
    assert repr(recording).endswith("r'): not begun, 0 calls>")
    with recording, offload_args(np.ones(10), device="host") as (dx,):
        blas.scal(2.0, dx)
        assert repr(recording).endswith("r'): on, 1 call>")
    assert repr(recording).endswith("r'): over, 1 call>")


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
    (tmp_path / "same.py").write_text(SCRIPT.replace("sys.exit(3)", ""))
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
    output_of(*base, "record", "-o", "hashes", "same.py", folder=tmp_path)
    text = output_of(*base, "replay", "hashes", "--device", "host", "--compare", folder=tmp_path)
    assert text.splitlines()[1:] == [
        "no call compared: the host's calls are compared with those of another device, --device D"
    ]
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


@pytest.mark.later
def test_ctrl_c_in_a_region_that_is_dropped_is_not_lost_while_recorded(tmp_path: Path) -> None:
    ran = python(DROPPED, OFFLOAD_ARGS_RECORD=str(tmp_path / "r"))
    assert ran.stdout == "KeyboardInterrupt\n" and "ignored" not in ran.stderr


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
