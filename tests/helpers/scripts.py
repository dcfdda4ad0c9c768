"""Scripts and calls for tests of traces, and of the timelines that traces save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from offload_args import In, Out, blas, offload_args
from offload_args.tracing import Trace

# This script lends A, x and y in ten regions, at line 16.
LOOP = """\
import numpy as np
from offload_args import blas, offload_args

A = np.ones((64, 32))
x = np.ones(32)
y = np.empty(64)


def step(A):
    with offload_args(A, x, y, device={device!r}) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)


for epoch in range(2):
    for i in range(5):
        with offload_args(A, x, y, device={device!r}) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
        x[:] = y[:32] + i
    print(y[0])
"""


def run(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    return subprocess.run(
        [sys.executable, *arguments, str(path)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env=clean | environment,
        timeout=900,
    )


def traced(script: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Write a script and run it by `python -m offload_args trace`."""
    script.write_text(text)
    return run(script, "-m", "offload_args", "trace")


def advised(script: Path, text: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Trace a script, and return its run and all advice, a line each, also the advice for savings of microseconds."""
    script.write_text(text)
    report = script.with_suffix(".json")
    ran = run(script, "-m", "offload_args", "trace", "--json", str(report))
    return ran, "".join(f"advice: {advice['text']}\n" for advice in json.loads(report.read_text())["advice"])


def slices(path: Path) -> list[dict[str, Any]]:
    """Return the slices of a timeline, after checks of all facts on which readers of the format rely."""
    document = json.loads(path.read_text())
    slices = []
    for event in document["traceEvents"]:
        assert event["ph"] in "MX"
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["name"], str)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["args"], dict)
            slices.append(event)
    named = {event["tid"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert named == {event["tid"] for event in slices}
    assert_nested(slices)
    return slices


def assert_nested(results: list[dict[str, Any]]) -> None:
    for thread in {event["tid"] for event in results}:
        ends: list[int] = []
        these = [event for event in results if event["tid"] == thread]
        for event in sorted(these, key=lambda event: (event["ts"], -event["dur"])):
            begun = round(event["ts"] * 1000)
            ended = begun + round(event["dur"] * 1000)
            while ends and ends[-1] <= begun:
                ends.pop()
            assert not ends or ended <= ends[-1], event
            ends.append(ended)


def saved(trace: Trace, folder: Path) -> list[dict[str, Any]]:
    trace.save(folder / "trace.json")
    return slices(folder / "trace.json")


def solve(device: str, A: Any, x: Any, y: Any) -> None:
    with offload_args(A, In(x), Out(y), device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)


def data() -> tuple[Any, Any, Any]:
    return np.ones((40, 30)), np.arange(30.0), np.empty(40)
