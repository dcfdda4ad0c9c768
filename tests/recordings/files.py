"""Files of recordings, for tests: their lines and events, replays, and a wrong library."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from helpers.processes import output_of
from offload_args import (
    Device,
    cublas,
    rocblas,
)
from offload_args.recording.replay import Report, replay

HERE = Path(__file__).parent


VENDORS = {"cuda": cublas, "hip:": rocblas}


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


def rewritten(file: Path, events: list[dict[str, Any]]) -> None:
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(event) + "\n" for event in events)


def wrong_cublas(folder: Path) -> Path:
    """Compile a double of cuBLAS with wrong results, and return its path."""
    double = folder / "libcublas.so"
    output_of("gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", double, HERE / "wrong_cublas.c", folder=folder)
    return double


def begun_events(file: Path) -> list[dict[str, Any]]:
    """Return the events of an unfinished file."""
    return [json.loads(line) for line in zlib.decompressobj(31).decompress(file.read_bytes()).splitlines()]
