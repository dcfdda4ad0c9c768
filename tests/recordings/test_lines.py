"""The lines of recorded calls: C writes the lines that Python code would write, for calls of several threads, too."""

from __future__ import annotations

import json
import threading
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings.files import VENDORS, begun_events, events_of, lines_of, replayed

from offload_args import (
    blas,
    cblas,
    offload_args,
    record,
)
from offload_args.errors import ArgumentError


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
