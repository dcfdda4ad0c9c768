"""The summary of a trace and its advice."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import offload_args as package
from helpers.scripts import LOOP, advised, data, solve
from offload_args import Device, In, Out, blas, linalg, offload_args, testing, trace
from offload_args.tracing.source import Place
from offload_args.tracing.summary import Event, Summary


def test_unchanged_means_the_same_bytes_as_the_device_had_last(device: str) -> None:
    A, x, y = data()
    with trace() as recording:
        solve(device, A, x, y)
        solve(device, A, x, y)
        x[3] += 1
        A[0, 0] = 5
        solve(device, A, x, y)
        with offload_args(y, device=device) as (dy,):
            blas.scal(2.0, dy)
    ups = [(event.name, event.unchanged) for event in recording.events if event.kind == "up"]
    assert ups == [
        ("A", False),
        ("x", False),
        ("A", True),
        ("x", True),
        ("A", False),
        ("x", False),
        ("y", True),  # y came down and went up again
    ]
    with trace(checksums=False) as blind:
        solve(device, A, x, y)
        solve(device, A, x, y)
    assert not any(event.unchanged for event in blind.events)


def test_arrays_of_linalg_have_the_programs_names_and_its_line(device: str) -> None:
    A, b = np.eye(5) * 2, np.ones(5)
    with trace() as recording:
        linalg.solve(A, b, device=device)
    ups = {(event.name, event.place.file if event.place else "") for event in recording.events if event.kind == "up"}
    assert {("A", __file__), ("b", __file__)} <= ups


def test_arrays_that_linalg_makes_are_named_as_its_results(device: str) -> None:
    A, b = np.eye(5) * 2, np.ones(10)
    with trace() as recording:
        linalg.solve(A, b[::2], device=device)
    names = {(event.name, event.kind) for event in recording.events if event.kind in ("up", "down")}
    assert names == {("A", "up"), ("operand of linalg.solve", "up"), ("result of linalg.solve", "down")}


CHANGING = """\
import numpy as np
from offload_args import In, blas, offload_args, update

B, x, y = np.ones((30, 30)), np.ones(30), np.empty(30)
for k in range(20):
    if k % 5 == 0:
        B[0, 0] += 1
    with offload_args(B, x, y) as (dB, dx, dy):
        blas.gemv(1.0, dB, dx, 0.0, dy)
    print(y.sum())
"""


@pytest.mark.slow
def test_the_advice_for_an_array_that_the_loop_changes_can_be_followed(tmp_path: Path) -> None:
    ran, advice = advised(tmp_path / "changing.py", CHANGING)
    line = "open a region around the loop at changing.py:5, and change B within `with update(B):` (saves "
    assert f"advice: B (7.03 KiB) went up 20 times, unchanged 16: {line}" in advice
    head, loop = CHANGING.split("for k")
    loop = f"for k{loop}".replace("        B[0, 0] += 1\n", "        with update(B):\n            B[0, 0] += 1\n")
    loop = "".join(f"    {line}" for line in loop.splitlines(keepends=True))
    again, more = advised(tmp_path / "followed.py", f"{head}with offload_args(In(B)) as (dB,):\n{loop}")
    assert again.returncode == 0, again.stderr
    assert again.stdout == ran.stdout
    assert "advice: B" not in more


def test_advice_that_saves_little_is_counted_and_not_shown() -> None:
    place = Place("cg.py", 3, "")

    def up(name: str, begun: int, ended: int) -> Event:
        return Event("up", begun, ended, name, "", 8, "host", 1, 1, (place,), True, False, 1, 4096, "")

    events = [up("A", 0, 20_000_000), up("A", 0, 20_000_000), up("x", 0, 9_000)]
    text = str(Summary(events, 1.0, 0))
    assert "advice: A (8 bytes) went up 2 times" in text and "advice: x" not in text
    assert text.endswith("advice: 1 change would save less than 1% of the time; summary.advice has the text")
    assert Summary(events, 1.0, 0)._text("--json FILE").endswith("of the time; --json FILE has the text")
    assert "advice: x (8 bytes)" in str(Summary(events, 0.0005, 0))


def test_the_replays_of_a_graph_have_a_line(device: str) -> None:
    A, x, y = data()
    region = offload_args(A, x, y, device=device)
    with trace() as recording, region as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
        with region.capture() as graph:
            blas.gemv(1.0, dA, dx, 0.0, dy)
        for _ in range(3):
            graph.replay()
    assert recording.summary.functions["Graph.replay"][0] == 3
    assert "call  Graph.replay: 3 x, " in str(recording)


@pytest.mark.later("host")
def test_advice_names_file_line_and_loop(device: str, tmp_path: Path) -> None:
    ran, advice = advised(tmp_path / "cg.py", LOOP.format(device=device))
    assert ran.returncode == 0, ran.stderr
    assert len(advice.splitlines()) == 1
    text = "advice: A (16 KiB) went up 10 times, unchanged 9: open a region around the loop at cg.py:14 (saves "
    assert advice.startswith(text)
    assert "      x: 10 x 256 bytes" in ran.stderr


@pytest.mark.later
def test_advice_stays_within_the_loop_that_makes_the_array(tmp_path: Path) -> None:
    text = LOOP.format(device="host").replace("for epoch in range(2):\n", "for A in (A, A):\n")
    ran, advice = advised(tmp_path / "anew.py", text)
    assert "open a region around the loop at anew.py:15" in advice


@pytest.mark.later
def test_advice_is_the_loop_that_repeats_not_the_one_that_runs_through_the_arrays(tmp_path: Path) -> None:
    ran, advice = advised(
        tmp_path / "blocks.py",
        """\
import numpy as np
from offload_args import blas, offload_args
blocks = [np.full(1000, i) * 1.0 for i in range(4)]
for step in range(10):
    for block in blocks:
        with offload_args(block, device="host") as (d,):
            blas.asum(d)
""",
    )
    assert "went up 40 times, unchanged 36: open a region around the loop at blocks.py:4 (" in advice


@pytest.mark.later
def test_a_lambda_on_the_line_does_not_hide_the_loop(tmp_path: Path) -> None:
    ran, advice = advised(
        tmp_path / "lambdas.py",
        """\
import numpy as np
from offload_args import blas, call
A = np.ones(1000)
def sums():
    return [call(lambda d: blas.asum(d), A, device="host") for i in range(5)]
for step in range(2):
    sums()
""",
    )
    assert "unchanged 9: open a region around the loop at lambdas.py:5 (" in advice


def test_resident_arrays_have_their_place_and_cost_in_the_summary(device: str) -> None:
    A, before = np.ones((512, 512)), Device(device).residency.pages_written
    with testing.residency("explicit"), trace() as recording:
        for i in range(3):
            A[i] = i
            with offload_args(A, device=device, resident=True) as (dA,):
                blas.asum(dA[0])
        written = Device(device).residency.pages_written - before
        Device(device).release(A)
    ups = [event for event in recording.events if event.kind == "up"]
    assert {event.name for event in ups} == {"A"}
    assert {event.place and event.place.file for event in ups} == {__file__}
    assert recording.summary.pages_written == written
    assert ("writes to watched pages" in str(recording.summary)) == (written > 0)


@pytest.mark.later
def test_advice_finds_the_loop_of_a_caller(tmp_path: Path) -> None:
    text = LOOP.format(device="host").partition("for epoch")[0]
    text += "[step(A) for i in range(4)]\nwhile x[0] < 3:\n    x[0] += 1\n    step(A)\n"
    ran, advice = advised(tmp_path / "called.py", text)
    assert "A (16 KiB) went up 4 times, unchanged 3: open a region around the loop at called.py:14" in advice
    assert "A (16 KiB) went up 2 times, unchanged 2: open a region around the loop at called.py:15" in advice


def test_advice_passes_over_loops_of_installed_packages(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "installed"  # made by pip install --target
    (folder / "plugin_of_the_test-1.0.dist-info").mkdir(parents=True)
    (folder / "plugin_of_the_test.py").write_text("def run(body):\n    for _ in range(2):\n        body()\n")
    monkeypatch.syspath_prepend(folder)
    plugin = importlib.import_module("plugin_of_the_test")
    del sys.modules["plugin_of_the_test"]  # the plugin's folder is deleted after the test
    A, x, y = data()

    def body() -> None:
        with offload_args(A, In(x), Out(y), device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)

    with trace() as recording:
        plugin.run(body)
    advice = [advice_ for advice_ in recording.summary.advice if advice_.text.startswith("A (")]
    assert [advice_.file for advice_ in advice] == [__file__]


def test_advice_without_a_loop_names_the_region(device: str) -> None:
    A, x, y = data()
    with trace() as recording:
        with offload_args(A, In(x), Out(y), device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
        with offload_args(A, In(x), Out(y), device=device) as (dA, dx, dy):
            line = sys._getframe().f_lineno - 1
            blas.gemv(1.0, dA, dx, 0.0, dy)
    advice = [advice_ for advice_ in recording.summary.advice if advice_.text.startswith("A (")]
    assert [(advice_.file, advice_.line) for advice_ in advice] == [(__file__, line)]
    assert "open a region around all that uses it" in str(advice[0])


def test_advice_tells_of_packing(device: str) -> None:
    wide = np.ones(60)
    with trace() as recording, pytest.warns(package.PerformanceWarning):
        with offload_args(wide[::3], device=device) as (d,):
            blas.scal(2.0, d)
    assert any(
        "wide[::3] (160 bytes) is packed each time it goes up" in advice_.text for advice_ in recording.summary.advice
    )


def test_nothing_to_advise_where_a_region_is_around_the_loop(device: str) -> None:
    A, x, y = data()
    with trace() as recording, offload_args(A, y, device=device) as (dA, dy):
        for i in range(5):
            x[:] = i
            with offload_args(x, device=device) as (dx,):
                blas.gemv(1.0, dA, dx, 0.0, dy)
    assert recording.summary.advice == []
    assert str(recording.summary).startswith("6 regions, 5 calls on " + device)


SIZES = """\
import numpy as np
from offload_args import blas, offload_args

def total(x):
    with offload_args(x, device={device!r}) as (dx,):
        return blas.asum(dx)

def again(x):
    return total(x)

data = [np.full(n, 1.0) for n in (128, 1024, 4096)]
for step in range(4):
    for x in data:
        total(x)
        again(x)
"""


@pytest.mark.slow
@pytest.mark.later("host")
def test_a_place_has_one_line_whatever_the_sizes_and_the_callers(device: str, tmp_path: Path) -> None:
    ran, advice = advised(tmp_path / "sizes.py", SIZES.format(device=device))
    lines = ran.stderr.splitlines()
    assert len([line for line in lines if line.startswith("      x: ")]) == 1, ran.stderr
    assert any(line.startswith("      x: 24 x 1 KiB to 32 KiB, ") for line in lines), ran.stderr
    assert advice.count("\n") == 1
    assert advice.startswith(
        "advice: x (1 KiB to 32 KiB) went up 24 times, unchanged 21: open a region around the loop at sizes.py:13 ("
    )
    assert len(lines) == len(set(lines))


def test_copies_to_two_devices_are_told_apart(tmp_path: Path) -> None:
    A, x, y = data()
    with trace() as recording:
        for name in ("host", "sim:0"):
            solve(name, A, x, y)
    text = str(recording.summary)
    assert "      A on host: 1 x 9.38 KiB" in text and "      A on sim:0: 1 x 9.38 KiB" in text


def test_a_trace_and_its_summary_show_themselves(device: str) -> None:
    recording = trace()
    assert repr(recording) == "Trace(not begun)" and recording._repr_html_() is None
    with recording:
        assert repr(recording) == "Trace(under way, 0 events so far)"
        for _ in range(2):
            solve(device, *data())
        y = np.ones((3, 4))
        with offload_args(y[y[:, 0] > 0], device=device) as (dy,):
            blas.asum(dy[0])
    assert repr(recording) == repr(recording.summary) == str(recording.summary)
    html = recording._repr_html_()
    assert html == recording.summary._repr_html_()
    assert html is not None and "y[y[:, 0] &gt; 0]" in html and "y[:, 0] > 0" not in html
    assert "blas" in html or "cublas" in html
    assert html.count("<table ") == html.count("</table>") >= 3


CHAINS = """\
import numpy as np
from offload_args import In, blas, call, offload_args

A, x, y = np.eye(40), np.ones(40), np.zeros(40)
for step in range(5):
    x[0] = step
    call(blas.gemv, 1.0, A, x, 1.0, y, device={device!r})
for step in range(3):
    with offload_args(A[1:], device={device!r}) as (dA,):
        blas.asum(dA.reshape(-1))
print(y.sum())
"""


@pytest.mark.later("host")
def test_the_advised_line_opens_the_region_around_the_loop(device: str, tmp_path: Path) -> None:
    text = CHAINS.format(device=device)
    ran, advice = advised(tmp_path / "chains.py", text)
    form = r"^advice: (\S+) .* around the loop at chains\.py:(\d+) \(.*\): (with .*:)$"
    opened = {(name, int(line)): opens for name, line, opens in re.findall(form, advice, re.MULTILINE)}
    chosen = "" if device == Device.default().name else f', device="{device}"'
    assert opened == {
        ("A", 5): f"with offload_args(In(A){chosen}) as (dA,):",
        ("A[1:]", 8): f"with offload_args(In(A){chosen}) as (dA,):",
        ("y", 5): f"with offload_args(y{chosen}) as (dy,):",
    }
    lines = text.splitlines()
    for name, number in sorted(opened, key=lambda place: -place[1]):
        end = next(i for i in range(number, len(lines)) if not lines[i].startswith(" "))
        lines[number - 1 : end] = [opened[name, number], *(f"    {line}" for line in lines[number - 1 : end])]
    again, more = advised(tmp_path / "advised.py", "\n".join(lines) + "\n")
    assert again.returncode == 0, again.stderr
    assert again.stdout == ran.stdout
    assert "around the loop" not in more


@pytest.mark.slow
def test_the_advised_line_has_no_name_that_the_place_lacks(device: str, tmp_path: Path) -> None:
    ran, advice = advised(tmp_path / "sizes.py", SIZES.format(device=device))
    chosen = "" if device == Device.default().name else f', device="{device}"'
    assert f": with offload_args(In(ARRAY){chosen}) as (pointer,):  # write the array's name for ARRAY\n" in advice
