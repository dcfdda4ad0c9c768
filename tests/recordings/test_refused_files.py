"""Files that are no recordings, are damaged, or name other functions: a replay refuses them, and names the line."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings.files import events_of, lines_of, rewritten

from offload_args import Device, blas, cblas, offload_args, record, update
from offload_args.command import main
from offload_args.errors import ArgumentError
from offload_args.recording.replay import replay
from offload_args.recording.stream import VERSION


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
    said = capsys.readouterr().err
    assert "has 3 calls" in said and said.count("replay: ") == 1


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
