"""Events of a trace are complete, equal the counters, and have right names, files and lines.

Without a trace there are none.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import offload_args as package
from helpers.interrupts import ctrl_c
from helpers.processes import python
from helpers.scripts import data, saved, solve
from offload_args import (
    Device,
    DiscardedWarning,
    In,
    Out,
    Scratch,
    _core,
    blas,
    call,
    offload_args,
    testing,
    trace,
    update,
)
from offload_args.tracing import Trace, collect


def test_bytes_and_copies_equal_the_counters(device: str, tmp_path: Path) -> None:
    A, x, y = data()
    strided = np.ones(80)[::2]
    before = Device(device).counters
    with trace() as recording:
        for _ in range(3):
            solve(device, A, x, y)
        with pytest.warns(package.PerformanceWarning):
            region = offload_args(In(A), strided, Scratch((30,), np.float64), device=device)
            pointers = region.__enter__()
        blas.gemv(1.0, pointers[0].T, pointers[1], 0.0, pointers[2])
        pointers[2].assign(np.ones(30))
        blas.scal(2.0, pointers[1])
        update(strided)
        pointers[1].to_host()
        pointers[1].reshape(8, 5)[::2, ::2].to_host()
        pointers[0].to_host()
        pointers[2].fill(1)
        pointers[2][:20].copy_from(pointers[1][20:])
        region.__exit__(None, None, None)
    after = Device(device).counters
    summary = recording.summary
    assert summary.copies_up == after.copies_up - before.copies_up
    assert summary.bytes_up == after.bytes_up - before.bytes_up
    assert summary.copies_down == after.copies_down - before.copies_down
    assert summary.bytes_down == after.bytes_down - before.bytes_down
    assert summary.calls == after.calls - before.calls == 5
    assert summary.regions == after.regions - before.regions + 4 == 4
    kinds = [event.kind for event in recording.events]
    assert kinds.count("allocate") == after.allocations - before.allocations
    assert kinds.count("release") == after.frees - before.frees
    results = saved(recording, tmp_path)
    for way, total in (("up", summary.bytes_up), ("down", summary.bytes_down)):
        assert sum(event["args"]["bytes"] for event in results if event["cat"] == way) == total
    assert len(results) == len(recording.events)


def test_copies_name_their_array_size_and_reason(device: str) -> None:
    A, x, y = data()
    with trace() as recording:
        solve(device, A, x, y)
        with offload_args(y, device=device) as (dy,):
            dy.assign(np.zeros(40))
            update(y)
    name = {"cuda": "cublas", "hip": "rocblas"}.get(device.partition(":")[0], "cblas") + ".dgemv"
    copies = [
        (event.kind, event.name, event.nbytes, event.why) for event in recording.events if event.kind in ("up", "down")
    ]
    assert copies == [
        ("up", "A", A.nbytes, f"first read by {name}"),
        ("up", "x", x.nbytes, f"first read by {name}"),
        ("down", "y", y.nbytes, "written, leaving the region"),
        ("up", "y", y.nbytes, "assign"),
        ("down", "y", y.nbytes, "update"),
    ]
    assert all(event.device == device and event.seconds >= 0 and event.rate >= 0 for event in recording.events)
    assert [event.name for event in recording.events if event.kind == "call"] == [name]


def test_spans_nest_and_lie_in_their_region(device: str, tmp_path: Path) -> None:
    A, x, y = data()
    with trace() as recording, offload_args(A, device=device) as (dA,):
        for _ in range(3):
            with offload_args(x, y, device=device) as (dx, dy):
                blas.gemv(1.0, dA, dx, 0.0, dy)
    saved(recording, tmp_path)
    spans = {event.region: event for event in recording.events if event.kind == "region"}
    assert len(spans) == 4
    for event in recording.events:
        if event.region:
            assert spans[event.region].begun <= event.begun <= event.ended <= spans[event.region].ended
    outer = min(spans.values(), key=lambda span: span.begun)
    (up,) = [event for event in recording.events if event.name == "A" and event.kind == "up"]
    assert up.region == outer.region  # the region that lent the array, not the one in which it was read
    reads = [event for event in recording.events if event.kind == "call"]
    assert any(read.begun <= up.begun and up.ended <= read.ended for read in reads)


def test_regions_left_out_of_order_get_lanes_of_their_own(device: str, tmp_path: Path) -> None:
    A, x, y = data()
    with trace() as recording:
        first, second = offload_args(A, device=device), offload_args(x, device=device)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        thread = threading.Thread(target=second.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
    results = saved(recording, tmp_path)
    assert sum(event["cat"] == "region" for event in results) == 2


def test_names_are_those_of_the_source(device: str) -> None:
    A, x, y = data()
    holder = SimpleNamespace(weights=np.ones(6))
    several = [A, x]

    def names(trace: Trace) -> list[str]:
        return [event.name for event in trace.events if event.kind == "region"]

    with trace() as recording:
        with offload_args(
            In(A),
            x[2:],
            holder.weights,
            Out(y),
            Scratch((3,), np.float32),
            device=device,
        ) as (*_, dy, _):
            dy.assign(np.ones(40))
        with offload_args(*several, device=device):
            pass
        with contextlib.ExitStack() as stack:
            stack.enter_context(offload_args(A, np.ones(2), device=device))
        call(lambda first, second: None, x, In(y), device=device)
        call(lambda first, second: None, x, second=y, device=device)
        call(lambda first: None, first=x, device=device)
    regions = ["A, x[2:], holder.weights, y, scratch", "A, x", "A, np.ones(2)", "x, y", "x, y", "x"]
    assert names(recording) == regions
    assert {event.place.function for event in recording.events if event.kind == "region" and event.place} == {
        "test_names_are_those_of_the_source"
    }


def test_a_long_name_is_cut_at_a_character(device: str) -> None:
    größe_der_sehr_langen_größe = np.ones(3)
    with trace() as recording, offload_args(größe_der_sehr_langen_größe, device=device) as (pointer,):
        blas.scal(2.0, pointer)
    assert {event.name for event in recording.events if event.kind == "up"} == {"größe_der_sehr_lan…"}


def test_a_raising_body_is_traced_and_copies_nothing_down(device: str, tmp_path: Path) -> None:
    A, x, y = data()
    with trace() as recording:
        with pytest.raises(ZeroDivisionError), offload_args(A, x, y, device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            1 / 0  # noqa: B018
    kinds = [event.kind for event in recording.events]
    assert kinds.count("region") == kinds.count("leave") == 1 and "down" not in kinds
    saved(recording, tmp_path)


def test_a_trace_ends_with_its_raising_block() -> None:
    with pytest.raises(ZeroDivisionError):
        with trace() as recording:
            1 / 0  # noqa: B018
    solve("host", *data())
    assert recording.events == []


def test_a_region_that_can_not_be_entered_leaves_no_span(tmp_path: Path) -> None:
    testing.sim_device(capacity=1000)
    try:
        with trace() as recording, pytest.raises(package.DeviceMemoryError, match="big"):
            big = np.ones(1000)
            with offload_args(big, device="sim:0"):
                pass
        with trace() as refused, pytest.raises(package.DTypeError):
            with offload_args(np.array(["no"]), device="sim:0"):
                pass
    finally:
        testing.sim_device()
    assert [event.kind for event in recording.events if event.failed] == [
        "allocate",
        "enter",
    ] * 2  # a second time, without garbage
    assert recording.summary.regions == 0 and refused.events == []
    saved(recording, tmp_path)


def test_a_region_entered_once_garbage_made_room_has_its_place_and_names(tmp_path: Path) -> None:
    testing.sim_device(capacity=1000)
    try:
        with trace() as recording:
            cycle: list[Any] = [offload_args(np.ones(100), device="sim:0")]
            cycle.append(cycle)
            cycle[0].__enter__()
            del cycle
            second = np.ones(100)
            with pytest.warns(DiscardedWarning, match="never left"), offload_args(second, device="sim:0"):
                pass
    finally:
        testing.sim_device()
    span = [event for event in recording.events if event.kind == "region"][-1]
    assert span.name == "second" and span.places[0].file == __file__
    assert [event.kind for event in recording.events if event.failed] == ["allocate", "enter"]
    saved(recording, tmp_path)


def test_regions_that_can_not_be_entered_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_LATE", 8)
    testing.sim_device(capacity=1000)
    kept = collect.collector
    try:
        with trace(limit=10):
            for _ in range(20):
                with pytest.raises(package.DeviceMemoryError):
                    offload_args(Scratch((2000,), np.uint8), device="sim:0").__enter__()
            kept.collect()
            assert len(kept._regions) <= 8 and len(kept._sites) <= 8
    finally:
        testing.sim_device()


def test_a_region_open_at_the_end_counts_as_ending_there(device: str, tmp_path: Path) -> None:
    region = offload_args(np.ones(3), device=device)
    with trace() as recording:
        region.__enter__()
        assert [event.kind for event in recording.events].count("region") == 1
    region.__exit__(None, None, None)
    (span,) = [event for event in recording.events if event.kind == "region"]
    assert span.ended == recording.ended
    saved(recording, tmp_path)


def test_a_region_open_at_the_beginning_has_copies_but_no_span(device: str) -> None:
    x = np.ones(3)
    with offload_args(x, device=device) as (dx,):
        with trace() as recording:
            blas.scal(2.0, dx)
    assert [(event.kind, event.name) for event in recording.events if event.kind == "up"] == [("up", "argument 1")]
    assert recording.summary.regions == 0


def test_off_leaves_no_events(device: str) -> None:
    with trace() as recording:
        pass
    solve(device, *data())
    assert recording.events == [] and recording.summary.copies_up == 0
    assert _core.trace_read()[0] == []
    assert "offload_args trace" not in {thread.name for thread in threading.enumerate() if not thread.daemon}


def test_a_trace_within_a_trace_sees_its_own_part(device: str) -> None:
    with trace() as outer:
        solve(device, *data())
        with trace(checksums=False) as inner:
            solve(device, *data())
        solve(device, *data())
    assert [built.summary.regions for built in (outer, inner)] == [3, 1]
    assert outer.summary.calls == 3 and inner.summary.calls == 1


def test_a_trace_records_once() -> None:
    recording = trace()
    with recording:
        pass
    with pytest.raises(package.ArgumentError, match="begun before"):
        recording.start()
    with pytest.raises(package.ArgumentError, match="limit"):
        trace(limit=-1)


def test_events_beyond_the_limit_are_counted(device: str) -> None:
    with trace(limit=5) as recording:
        for _ in range(4):
            solve(device, *data())
    kinds = [event.kind for event in recording.events]
    assert len(kinds) == 7 and recording.left_out > 20
    assert kinds.count("region") == kinds.count("leave") == 1  # the end of a region is kept if its beginning is
    assert "events are missing" in str(recording.summary)


def test_many_threads_lose_no_event(device: str, tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(30):
            solve(device, *data())

    with trace() as recording:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert recording.left_out == 0
    summary = recording.summary
    assert (summary.regions, summary.calls, summary.copies_up, summary.copies_down) == (180, 180, 360, 180)
    saved(recording, tmp_path)
    document = json.loads((tmp_path / "trace.json").read_text())
    names = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert {f"worker {i}" for i in range(6)} <= names


@pytest.mark.slow
def test_a_long_region_keeps_or_counts_every_call(device: str) -> None:
    x = np.ones(4)
    with trace() as recording, offload_args(x, device=device) as (dx,):
        for _ in range(100_000):  # three times the size of the core's queue
            blas.scal(1.0, dx)
    # At least the 32,768 events of the core's queue are kept; more are kept if the queue is read fast enough.
    assert recording.summary.calls > 32_000 and recording.summary.calls + recording.left_out >= 100_000


def test_a_signal_handler_may_look_at_the_trace(device: str) -> None:
    seen = []

    with trace() as recording, contextlib.ExitStack() as stack:
        with offload_args(np.ones(3), device=device):
            stack.enter_context(ctrl_c(function="_pass_on", handler=lambda *_: seen.append(recording.summary.regions)))
    assert len(seen) == 1 and recording.summary.regions == 1


INTERRUPTED = """
import signal, sys
import numpy as np
from offload_args import blas, offload_args, trace

def interrupt(frame, event, argument):
    names = ("acquire", "trace_exclusively")
    if event == "c_return" and frame.f_code.co_name == "_left" and argument.__name__ in names:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

running = trace()
running.start()
try:
    region = offload_args(np.ones(3), device="host")
    region.__enter__()
    sys.setprofile(interrupt)
    region.__exit__(None, None, None)
except KeyboardInterrupt:
    print("KeyboardInterrupt")
running.stop()
print(running.summary.regions)
"""


@pytest.mark.promise("T24")
def test_ctrl_c_while_the_trace_reads_its_queue_does_not_stop_it() -> None:
    ran = python(INTERRUPTED)
    assert (ran.stdout, ran.stderr) == ("KeyboardInterrupt\n1\n", "")


@pytest.mark.later
def test_regions_of_many_threads_keep_their_places() -> None:
    def work() -> None:
        x = np.ones(8)
        for _ in range(400):
            with offload_args(x, device="host") as (dx,):
                blas.asum(dx)

    with trace() as recording:
        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    regions = [event for event in recording.events if event.kind == "region"]
    assert recording.left_out == 0 and len(regions) == 4800
    assert {event.name for event in regions} == {"x"} and all(event.place for event in regions)


def test_a_region_that_is_opened_by_hand_has_its_names_and_place(device: str) -> None:
    A, x, _ = data()
    with trace() as recording:
        region = offload_args(A, In(x), Scratch((3,)), device=device)
        dA, dx, _ = region.open()
        line = sys._getframe().f_lineno - 1
        blas.asum(dx)
        region.close()
    (event,) = (event for event in recording.events if event.kind == "region")
    assert event.name == "A, x, scratch" and event.place is not None and event.place[:2] == (__file__, line)


@pytest.mark.promise("T24")
def test_ctrl_c_while_traced_is_never_lost(recwarn: pytest.WarningsRecorder) -> None:
    sim, x, rounds = testing.sim_device(delay_us=50), np.ones(64), 50
    main, (asked, ask) = threading.get_ident(), os.pipe()
    sent = interrupts = 0

    def interrupt() -> None:
        nonlocal sent
        while os.read(asked, 1):
            time.sleep(14e-6 * sent)  # each signal comes at a different place
            signal.pthread_kill(main, signal.SIGINT)
            sent += 1

    def use() -> None:
        with offload_args(x, device=sim) as (dx,):
            blas.scal(1.0, dx)

    thread = threading.Thread(target=interrupt)
    with trace() as recording:
        thread.start()
        for i in range(rounds):
            try:
                os.write(ask, b"1")
                while sent <= i:
                    use()
                for _ in range(10):  # the sent signal is raised here at the latest
                    use()
            except KeyboardInterrupt:
                interrupts += 1
        os.close(ask)
        thread.join()
    os.close(asked)
    testing.sim_device()
    assert interrupts == rounds
    assert recording.summary.regions > 10
