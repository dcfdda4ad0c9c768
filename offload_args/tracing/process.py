"""Traces of a whole process: by environment variables, and by `python -m offload_args trace`."""

from __future__ import annotations

import atexit
import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import TextIO

from ..running import run_to_end, say
from .collect import Listener, collector
from .listeners import Log, nvtx_ranges
from .recording import Trace

__all__ = ["run", "start_from_environment"]


def _wanted(variable: str) -> str:
    value = os.environ.get(variable, "")
    return "" if value == "0" else value


def start_from_environment() -> None:
    """Begin the traces that OFFLOAD_ARGS_TRACE, OFFLOAD_ARGS_INFO and OFFLOAD_ARGS_NVTX request. The package calls this
    function once, when it is imported."""
    file = _wanted("OFFLOAD_ARGS_TRACE")
    listeners: list[Listener] = []
    if _wanted("OFFLOAD_ARGS_INFO"):
        listeners.append(Log())
    if _wanted("OFFLOAD_ARGS_NVTX"):
        listeners.append(nvtx_ranges)
    for listener in listeners:
        collector.add(listener)
        atexit.register(collector.remove, listener)
    if seconds := _progress_wanted():
        from .progress import progress

        progress.begin(seconds)
    if file:
        _trace_process(os.path.abspath(file.replace("%p", str(os.getpid()))))


def _progress_wanted() -> float:
    text = _wanted("OFFLOAD_ARGS_PROGRESS")
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    warnings.warn(
        "OFFLOAD_ARGS_PROGRESS needs the seconds after which to show something, such as 1, got "
        f"{text!r}: nothing is shown",
        RuntimeWarning,
        stacklevel=2,
    )
    return 0.0


def _trace_process(file: str) -> None:
    if fault := _unwritable(file):
        say(f"offload_args: OFFLOAD_ARGS_TRACE: {fault}; unless that changes, the trace is lost at exit", sys.stderr)
    trace, process = Trace(), os.getpid()
    trace.start()

    def write() -> None:
        if os.getpid() != process:  # this process is a forked child
            return
        trace.stop()
        try:
            trace.save(file)
        except OSError as error:
            print(f"offload_args: OFFLOAD_ARGS_TRACE: {error}", file=sys.stderr)

    atexit.register(write)


def _write(trace: Trace, save: str | None, json: str | None, stderr: TextIO | None) -> int:
    """Write the requested files. Return 2 if one of them can't be written, else 0."""
    try:
        if save is not None:
            trace.save(save)
            viewer = "a browser" if save.lower().endswith(".svg") else "ui.perfetto.dev"
            say(f"timeline: {save} (open it in {viewer})", stderr)
        if json is not None:
            with open(json, "w") as file:
                file.write(trace.summary.as_json() + "\n")
    except OSError as error:
        say(f"trace: {error}", stderr)
        return 2
    return 0


def _unwritable(file: str) -> str:
    """Return the reason why a file can't be written; "" if it can be written. An existing file is not changed."""
    there = os.path.lexists(file)
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        return ""  # a pipe is not opened, because closing it again would end it for its reader
    try:
        with open(file, "a"):
            pass
    except OSError as error:
        return str(error)
    if not there:
        os.unlink(file)
    return ""


def run(run_script: Callable[[], object], *, save: str | None, json: str | None, progress: bool) -> int:
    """Run a script with a trace, print the summary to stderr (stdout is the script's), return its status.

    save: a file for the timeline. json: a file for the summary.
    """
    for file in (save, json):
        if file is not None and (fault := _unwritable(file)):
            say(f"trace: {fault}; the script was not run", sys.stderr)
            return 2
    process, stderr = os.getpid(), sys.stderr
    trace = Trace(progress=progress)
    trace.start()
    status = run_to_end(run_script, trace.stop)
    if os.getpid() != process:  # this process is a child that the script forked; its parent writes the report
        return status
    holder = "--json FILE" if json is None else json
    say(f"\n-- offload_args trace\n{trace.summary._text(holder)}", stderr)
    written = _write(trace, save, json, stderr)
    return status or written
