"""The timeline: a trace in the Trace Event Format (JSON), for Perfetto and chrome://tracing."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .summary import Event

__all__ = ["write"]


def write(
    file: str | os.PathLike[str],
    events: Iterable[Event],
    begun: int,
    threads: Mapping[int, str],
    others: Mapping[str, float],
) -> None:
    """Write a timeline.

    `begun` is the trace's first nanosecond, and `threads` is {the system's number of a thread: its name}.
    """
    document = {
        "traceEvents": list(_chrome(events, begun, threads)),
        "displayTimeUnit": "ms",
        "otherData": {"made by": "offload_args", **others},
    }
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out)


def _lanes(events: Iterable[Event]) -> Iterator[tuple[int, int, Event]]:
    """Yield (thread, lane, event) so that two events of a lane are nested or apart.

    Two events of one thread are nested or apart, too, except for regions that are left out of order or on another
    thread.
    """
    stacks: dict[tuple[int, int], list[int]] = {}
    for event in sorted(events, key=lambda event: (event.begun, -event.ended)):
        for lane in itertools.count():
            stack = stacks.setdefault((event.thread, lane), [])
            while stack and stack[-1] <= event.begun:
                stack.pop()
            if not stack or event.ended <= stack[-1]:
                stack.append(event.ended)
                yield event.thread, lane, event
                break


def _label(event: Event) -> str:
    if event.kind == "region":
        return f"region {event.place}" if event.place else "region"
    if event.kind in ("up", "down", "peer"):
        return f"{event.kind} {event.name}"
    if event.kind == "wait":
        return f"wait: {event.why}"
    return event.name


def _chrome(events: Iterable[Event], begun: int, threads: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "offload_args"}}
    names = {thread.native_id: thread.name for thread in threading.enumerate()} | dict(threads)
    lanes: dict[tuple[int, int], int] = {}
    extra = itertools.count(1 << 30)  # above the system's thread numbers
    for thread, lane, event in _lanes(events):
        if (thread, lane) not in lanes:
            lanes[thread, lane] = next(extra) if lane else thread
            name = names.get(thread) or f"thread {thread}"
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": process,
                "tid": lanes[thread, lane],
                "args": {"name": f"{name} (overlapping)" if lane else name},
            }
        yield {
            "ph": "X",
            "name": _label(event),
            "cat": event.kind,
            "pid": process,
            "tid": lanes[thread, lane],
            "ts": (event.begun - begun) / 1000,
            "dur": (event.ended - event.begun) / 1000,
            "args": _details(event),
        }


def _details(event: Event) -> dict[str, Any]:
    details: dict[str, Any] = {"device": event.device}
    if event.region:
        details["region"] = event.region
    if event.place:
        details["place"] = str(event.place)
    if event.kind == "region":
        details["arrays"] = event.name
    if event.kind in ("up", "down", "peer"):
        details["array"] = event.name
        details["GB/s"] = round(event.rate / 1e9, 3)
        details["batch"] = event.batch
        if event.packed:
            details["packed"] = True
    if event.kind == "up":
        details["unchanged"] = event.unchanged
    if event.nbytes:
        details["bytes"] = event.nbytes
    if event.why:
        details["why"] = event.why
    if event.failed:
        details["failed"] = event.failed
    return details
