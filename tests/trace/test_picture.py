"""The picture of a trace's timeline is well-formed, complete, and small for any number of events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from helpers.scripts import data, solve
from offload_args import blas, offload_args, trace
from offload_args.tracing.picture import Timeline
from offload_args.tracing.summary import Event

SVG = "{http://www.w3.org/2000/svg}"


def event(kind: str, begun: int, ended: int, name: str = "", *, failed: str = "", device: str = "host") -> Event:
    return Event(kind, begun, ended, name, "", 8, device, 1, 1, (), False, False, 0, 0, failed)


def texts(timeline: Timeline) -> list[str]:
    """Return the texts of the picture, including tips. Both forms of the picture must have the same texts."""
    shown, alone = (ElementTree.fromstring(text) for text in (timeline._repr_html_(), timeline.svg))
    texts = [element.text or "" for element in shown.iter() if element.tag in (f"{SVG}text", f"{SVG}title")]
    assert texts == [element.text or "" for element in alone.iter() if element.tag in (f"{SVG}text", f"{SVG}title")]
    return texts


def blocks(timeline: Timeline) -> int:
    return sum(element.tag == f"{SVG}title" for element in ElementTree.fromstring(timeline.svg).iter())


def test_the_picture_has_a_row_for_regions_copies_and_calls_with_the_names_of_the_source(device: str) -> None:
    A, x, y = data()
    with trace() as recording:
        for _ in range(2):
            solve(device, A, x, y)
    results = texts(recording.timeline)
    for row in ("regions", "up", "calls", "down"):
        assert row in results
    assert any(text.startswith("up A: 9.38 KiB, ") and ", unchanged, " in text for text in results)
    assert any(text.startswith("region of A, ") and "scripts.py:" in text for text in results)
    assert any(text.startswith("call ") and "gemv" in text for text in results)
    assert any(text.startswith("allocate, ") for text in results)
    assert f"{len(recording.events)} events in " in results[-1]
    assert blocks(recording.timeline) == sum(event.kind not in ("enter", "leave") for event in recording.events)


def test_names_are_escaped(device: str) -> None:
    y = np.ones((3, 4))
    with trace() as recording:
        with offload_args(y[y[:, 0] > 0], device=device) as (dy,):
            blas.asum(dy[0])
    html = recording.timeline._repr_html_()
    assert "y[y[:, 0] &gt; 0]" in html and "y[:, 0] > 0" not in html
    strange = Timeline([event("up", 0, 10, "</title><script>\x00\x1b\ud800 'x' \"y\"")])
    assert any(text.startswith("up </title><script>    'x' \"y\": 8 bytes") for text in texts(strange))


def test_the_picture_of_a_trace_without_events_says_so() -> None:
    with trace() as recording:
        pass
    assert texts(recording.timeline) == ["no events"]
    assert texts(trace().timeline) == ["no events"]
    assert repr(recording.timeline) == "Timeline(no events; a notebook shows it as a picture)"


def test_thousands_of_events_make_a_small_picture_that_says_how_many_share_a_block() -> None:
    many = [event("call", 10 * i, 10 * i + 9, f"call {i % 7}") for i in range(20_000)]
    timeline = Timeline([event("region", 0, 200_000, "A"), *many])
    assert blocks(timeline) == 201 and len(timeline.svg) < 100_000
    results = texts(timeline)
    assert results[-2:] == ["20,001 events in 200 µs", "20,000 short ones share a block with others"]
    assert "100 events: call 0, call 1, call 2, ... (0.9 µs)" in "".join(results)


def test_a_long_call_among_thousands_has_its_own_block() -> None:
    many = [event("call", 10 * i, 10 * i + 9, "short") for i in range(1000)]
    assert any(
        text.startswith("call long, ") for text in texts(Timeline([*many, event("call", 10_000, 20_000, "long")]))
    )


def test_events_at_one_time_lie_in_lanes_and_those_without_room_are_counted() -> None:
    nested = [event("region", i, 100 - i, f"region {i}") for i in range(12)]
    assert blocks(Timeline(nested[:8])) == 8
    assert texts(Timeline(nested))[-1] == "4 are not drawn: more than 8 at one time"


def test_a_failed_call_is_red_and_says_so() -> None:
    svg = Timeline([event("call", 0, 10, "sgemv", failed="status 13")]).svg
    assert "#c62828" in svg and "FAILED: status 13" in svg
    assert "#c62828" not in Timeline([event("call", 0, 10, "sgemv")]).svg


def test_rows_name_the_device_if_there_are_several() -> None:
    both: Sequence[Event] = [event("call", 0, 1, "a"), event("call", 0, 1, "b", device="sim:0")]
    assert {"calls on host", "calls on sim:0"} <= set(texts(Timeline(both)))


@pytest.mark.parametrize("span", [1, 7, 1000, 123_456_789, 10**15])
def test_the_axis_has_a_few_round_times(span: int) -> None:
    root = ElementTree.fromstring(Timeline([event("call", 5, 5 + span, "a")]).svg)
    assert min(span, 2) < len(root.findall(f"{SVG}line")) <= 7


def test_events_that_the_trace_had_no_room_for_are_counted(device: str) -> None:
    with trace(limit=3) as recording:
        solve(device, *data())
    assert recording.left_out and texts(recording.timeline)[-1].startswith(f"{recording.left_out} are missing")


def test_save_writes_the_picture_if_the_name_ends_with_svg(device: str, tmp_path: Path) -> None:
    with trace() as recording:
        solve(device, *data())
    recording.save(tmp_path / "trace.svg")
    recording.save(str(tmp_path / "again.svg"))
    text = (tmp_path / "trace.svg").read_text()
    assert text == (tmp_path / "again.svg").read_text() == recording.timeline.svg
    assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    recording.save(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text().startswith("{")
