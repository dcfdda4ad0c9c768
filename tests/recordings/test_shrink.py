"""Shrinking a recording to a standalone script with the fewest calls and smallest sizes that still show the fault."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from recordings.files import events_of, rewritten, wrong_cublas

from helpers.processes import output_of
from offload_args import Device, In, Scratch, blas, cblas, offload_args, record, update
from offload_args.command import main
from offload_args.errors import ArgumentError, ExtentError
from offload_args.recording.script import script
from offload_args.recording.shrink import Shrunk, outcome, shrink

SHRUNK = """\
import sys
import numpy as np
from offload_args import Device, cublas, offload_args, record, testing
from offload_args.recording.shrink import shrink
testing.library("cublas", sys.argv[1])
A, B, x, y = np.ones((60, 60)), np.ones((40, 61))[:, :60], np.ones(60), np.zeros(60)
with record("r"), offload_args(A, B, x, y, device="sim:0") as (dA, dB, dx, dy):
    for _ in range(10):
        cublas.dscal(60, 2.0, dx, 1)
        cublas.dscal(60, 0.5, dy, 1)
    if sys.argv[2] == "transposition":
        cublas.dgemv(cublas.OP_T, 60, 60, 1.0, dA, 60, dx, 1, 0.0, dy, 1)  # here
    elif sys.argv[2] == "ld":
        cublas.dgemv(cublas.OP_T, 60, 40, 1.0, dB, 61, dx, 1, 0.0, dy, 1)  # here
    elif sys.argv[2] == "order":
        f, g = np.ones(60, np.float32), np.zeros(60, np.float32)
        with offload_args(f, g, device="sim:0") as (df, dg):
            cublas.scopy(60, df, 1, dg, 1)
            cublas.sscal(60, 3.0, df, 1)
            cublas.scopy(60, df, 1, dg, 1)  # here
            cublas.sscal(60, 3.0, df, 1)
    else:
        cublas.dscal(60, 0.5, dA[1], 1)
        cublas.daxpy(60, -1.0, dA[1], 1, dA[2], 1)
        cublas.dcopy(60, dA[1], 1, dA[2], 1)
        cublas.daxpy(60, -1.0, dA[1], 1, dA[2], 1)  # here
    cublas.dscal(60, 2.0, dx, 1)
shrunk = shrink("r", "differs", Device("sim:0"))
print(shrunk.after, len(shrunk.script.splitlines()))
print(shrunk.fault)
print(*(line.strip() for line in shrunk.script.splitlines() if line.startswith(("a", "with", "    cublas"))), sep="; ")
try:
    exec(shrunk.script)
except AssertionError as error:
    print("it shows", error)
"""


#: {fault: (the needed calls, the script without its imports and its end)}.
SHRUNK_TO = {
    "transposition": (
        1,
        "a1 = np.arange(1, 5).astype('float64').reshape((2, 2)); a2 = np.array([1.0, 2.0], 'float64'); "
        "a3 = np.array([1.0, 2.0], 'float64'); with offload_args(a1, a2, a3, device='sim:0') as (p1, p3, p4,):; "
        "cublas.dgemv(1, 2, 2, 1.0, p1, 2, p3, 1, 0.0, p4, 1)",
    ),
    "ld": (
        1,
        "a1 = np.ndarray((2, 2), 'float64', memory2, 0, (488, 8)); "
        "a1[...] = np.arange(1, 5).astype('float64').reshape((2, 2)); a2 = np.array([1.0, 2.0], 'float64'); "
        "a3 = np.array([1.0, 2.0], 'float64'); with offload_args(a1, a2, a3, device='sim:0') as (p2, p3, p4,):; "
        "cublas.dgemv(1, 2, 2, 1.0, p2, 61, p3, 1, 0.0, p4, 1)",
    ),
    "order": (
        2,
        "a1 = np.array([1.0], 'float32'); a2 = np.array([1.0], 'float32'); "
        "with offload_args(a1, a2, device='sim:0') as (p5, p6,):; cublas.sscal(1, 3.0, p5, 1); "
        "cublas.scopy(1, p5, 1, p6, 1)",
    ),
    "cancelled": (
        2,
        "a1 = np.arange(1, 10).astype('float64').reshape((3, 3)); with offload_args(a1, device='sim:0') as (p1,):; "
        "cublas.dcopy(3, p1[1, 0:3], 1, p1[2, 0:3], 1); cublas.daxpy(3, -1.0, p1[1, 0:3], 1, p1[2, 0:3], 1)",
    ),
}


@pytest.mark.later(but="order")
@pytest.mark.parametrize("fault", SHRUNK_TO)
def test_a_fault_of_a_library_is_shrunk_to_a_script_that_shows_it(fault: str, tmp_path: Path) -> None:
    needed, body = SHRUNK_TO[fault]
    double = wrong_cublas(tmp_path)
    (tmp_path / "user.py").write_text(SHRUNK)
    counts, subject, calls, shows = output_of(sys.executable, "user.py", double, fault, folder=tmp_path).splitlines()
    after, lines = map(int, counts.split())
    assert (after, calls) == (needed, body) and lines <= 30
    position = list(SHRUNK_TO).index(fault)
    places = [number for number, line in enumerate(SHRUNK.splitlines(), 1) if line.endswith("# here")]
    assert re.match(rf"call {needed}, cublas.[ds]\w+, .*user.py:{places[position]}: ", subject)
    assert shows.startswith("it shows (")


def test_an_error_is_shrunk_to_a_script_that_raises_it(device: str, library: ModuleType, tmp_path: Path) -> None:
    A, x = np.ones((50, 80)), np.ones(100)
    with record(tmp_path / "r"), offload_args(A, x, device=device) as (dA, dx):
        for row in range(20):
            blas.axpy(0.5, dA[row, :20], dx[5:25])
        with pytest.raises(ExtentError, match=r"x needs \d+ elements"):
            library.dscal(40, 3.0, dx, 3)
    shrunk = shrink(str(tmp_path / "r"), "fails", Device(device))
    assert (shrunk.before, shrunk.after) == (21, 1) and len(shrunk.script.splitlines()) <= 30
    with pytest.raises(ExtentError, match=r"x needs \d+ elements"):
        exec(shrunk.script, {})
    with pytest.raises(ArgumentError, match="no call of .* differs here: there is nothing to shrink"):
        shrink(str(tmp_path / "r"), "differs", Device(device))


def test_a_script_has_regions_copies_and_parts_of_arrays(tmp_path: Path) -> None:
    x, y, A = np.ones(40), np.zeros(40), np.asfortranarray(np.eye(6))
    with record(tmp_path / "r"), offload_args(In(x), y, A, Scratch((6,), "f8"), device="sim:0") as (dx, dy, dA, ds):
        ds.fill(2.0)
        with offload_args(y, device="sim:0") as (inner,):
            blas.axpy(np.float64(2.0), dx[4:10], inner[:6])
        ds.assign(np.arange(6.0))
        dy[6:12].copy_from(ds)
        with update(y):
            y[:3] = 5
        blas.gemv(1.0, dA[1:5, 2:4].T, ds[:4], 0.0, dy[:2])
        with pytest.raises(ExtentError):
            cblas.dscal(41, 3.0, dy, 1)
    events = events_of(tmp_path / "r")
    text = script(str(tmp_path / "r"), events, "a fault\nof two lines", Device("host"), False, "", None)
    assert text.startswith("# a fault\n# of two lines\n") and "[1:5, 2:4].T" in text and "_core" not in text
    with pytest.raises(ExtentError):
        exec(text, {})


SPOILED = """\
def shows(arrays, results):
    return bool((arrays["y"] > arrays["limit"][0]).any())
"""


@pytest.mark.parametrize("form", ["expression", "file"])
def test_a_predicate_of_ones_own_is_shrunk_to_a_script_that_shows_it(form: str, device: str, tmp_path: Path) -> None:
    A, x, y, limit = np.full((30, 40), 0.5), np.ones(40), np.zeros(30), np.full(3, 7.0)
    with record(tmp_path / "r", contents="inputs"):
        with offload_args(A, x, y, limit, device=device) as (dA, dx, dy, dlimit):
            for _ in range(5):
                blas.scal(1.0, dx)
                blas.gemv(1.0, dA, dx, 0.0, dy)
                blas.scal(1.0, dlimit)
            with pytest.raises(ArgumentError):
                blas.copy(dx, dy)
    (tmp_path / "spoiled.py").write_text(SPOILED)
    text = "(arrays['y'] > arrays['limit'][0]).any()"
    predicate = text if form == "expression" else str(tmp_path / "spoiled.py")
    shrunk = shrink(str(tmp_path / "r"), predicate, Device(device))
    assert (shrunk.before, shrunk.after) == (15, 1) and len(shrunk.script.splitlines()) <= 30
    with pytest.raises(AssertionError):
        exec(shrunk.script, {})


def test_a_predicate_of_results_keeps_the_calls_that_return_them(tmp_path: Path) -> None:
    x, y = np.arange(1.0, 21), np.ones(20)
    with record(tmp_path / "r"), offload_args(x, y, device="sim:0") as (dx, dy):
        for _ in range(4):
            blas.scal(1.0, dy)
            blas.asum(dx)
    shrunk = shrink(str(tmp_path / "r"), "len(results) > 1", Device("host"))
    assert shrunk.after == 2 and "results.append(blas." in shrunk.script and " (1,)" not in shrunk.script
    with pytest.raises(AssertionError):
        exec(shrunk.script, {})


def test_the_contents_that_a_fault_needs_are_kept_when_sizes_shrink(tmp_path: Path) -> None:
    A = np.arange(48.0).reshape(6, 8)
    with record(tmp_path / "r", contents="inputs"), offload_args(A, device="host") as (dA,):
        blas.scal(1.0, dA[1])
    shrunk = shrink(str(tmp_path / "r"), "arrays['A'][0, 1] == 1 and arrays['A'][1, 0] == 8", Device("host"))
    assert "np.array([[0.0, 1.0], [8.0, 9.0]], 'float64')" in shrunk.script
    with pytest.raises(AssertionError):
        exec(shrunk.script, {})


def test_each_turn_of_a_graph_counts_for_a_fault(tmp_path: Path) -> None:
    x = np.ones(20)
    with record(tmp_path / "r", contents="inputs"):
        region = offload_args(x, device="sim:0")
        with region as (dx,):
            with region.capture() as graph:
                blas.scal(2.0, dx)
            graph.replay()
    events = events_of(tmp_path / "r")
    for event in events:
        if "graph" in event:
            event["times"] = 3
    rewritten(tmp_path / "r", events)
    shrunk = shrink(str(tmp_path / "r"), "arrays['x'][0] > 6", Device("host"))
    assert (shrunk.before, shrunk.after) == (3, 3) and shrunk.script.count("blas.scal(2.0, ") == 3


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("arrays[", r"arrays\[ can't be read: "),
        ("arrays['z'] > 0", r"raises KeyError: 'z'; arrays: x; 1 results"),
        ("results == []", r"results == \[\] is not true of "),
        ("none.py", r"needs a function shows\(arrays, results\)"),
    ],
)
def test_a_predicate_that_can_not_be_asked_is_refused(
    predicate: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("none.py").write_text("shown = 1\n")
    x = np.ones(4)
    with record("r"), offload_args(x, device="host") as (dx,):
        blas.asum(dx)
    with pytest.raises(ArgumentError, match=reason):
        shrink("r", predicate, Device("host"))


OUTCOMES = {
    "raise ValueError(1)": "it does not show the fault, but ends with ValueError: 1",
    "pass": "it does not show the fault",
    "import os; os.abort()": "it is ended by SIGABRT",
    "assert 1 > 2, 'less'": "it shows the fault: AssertionError: less",
}


@pytest.mark.parametrize("code", OUTCOMES)
def test_the_end_of_a_script_that_runs_alone_is_told(code: str) -> None:
    assert outcome(Shrunk(code, "", "AssertionError", 1, 1, 1)) == f"run alone, {OUTCOMES[code]}"


@pytest.mark.later
def test_the_command_writes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with record(tmp_path / "r"), offload_args(np.ones(4), device="host") as (dx,):
        with pytest.raises(ExtentError):
            cblas.dscal(5, 3.0, dx, 1)
    output = tmp_path / "s.py"
    options = ["--device", "host", "--shrink", "fails", "--confirm", "sim:0", "-o", str(output)]
    assert main(["replay", str(tmp_path / "r"), *options]) == 1
    said = capsys.readouterr().out
    for place in ("", " on sim:0"):
        assert f"run alone{place}, it shows the fault: offload_args.errors.ExtentError: cblas.dscal: x needs" in said
    assert "ExtentError" in said and "shrunk from 1 call or copy to 1" in said and "lines that show it" in said
    with pytest.raises(ExtentError):
        exec(output.read_text(), {})
