"""Traces of a whole process: those that the environment asks for, and `python -m offload_args trace`."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TextIO

from .collect import Listener, collector
from .listeners import Log, nvtx_ranges
from .recording import Trace

__all__ = ["run", "start_from_environment"]


def _wanted(variable: str) -> str:
    value = os.environ.get(variable, "")
    return "" if value == "0" else value


def start_from_environment() -> None:
    """Begin what OFFLOAD_ARGS_TRACE, OFFLOAD_ARGS_INFO and OFFLOAD_ARGS_NVTX ask for. Called once, on import."""
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
    trace, process = Trace(), os.getpid()
    trace.start()

    def write() -> None:
        if os.getpid() != process:  # a forked child
            return
        trace.stop()
        try:
            trace.save(file)
        except OSError as error:
            print(f"offload_args: OFFLOAD_ARGS_TRACE: {error}", file=sys.stderr)

    atexit.register(write)


_COMMAND = os.path.join(os.path.dirname(os.path.dirname(__file__)), "command")
_RUNNERS = (os.path.join(_COMMAND, "trace.py"), "<frozen runpy>")


def _say(text: str, file: TextIO | None) -> None:
    """Print to a script's stderr, which may be gone: that does not change its status."""
    if file is None:
        return
    try:
        print(text, file=file, flush=True)
    except (AttributeError, OSError, ValueError):
        if file is sys.stderr:
            sys.stderr = None  # Python would try again at its end, and leave with another status


def _write(trace: Trace, save: str | None, json: str | None, stderr: TextIO | None) -> int:
    """Write the files that were asked for. Return 2 if one of them can't be written, else 0."""
    try:
        if save is not None:
            trace.save(save)
            where = "a browser" if save.endswith(".svg") else "ui.perfetto.dev"
            _say(f"timeline: {save} (open it in {where})", stderr)
        if json is not None:
            with open(json, "w") as file:
                file.write(trace.summary.as_json() + "\n")
    except OSError as error:
        _say(f"trace: {error}", stderr)
        return 2
    return 0


def run(run_script: Callable[[], object], *, save: str | None, json: str | None, progress: bool) -> int:
    """Run a script with a trace, print the summary to stderr (stdout is the script's), and return its exit status.

    save: a file for the timeline. json: a file for the summary.
    """
    import traceback

    status, me, process, stderr = 0, threading.current_thread(), os.getpid(), sys.stderr
    trace = Trace(progress=progress)
    trace.start()
    try:
        run_script()
    except SystemExit as leaving:
        code = leaving.code
        if code is not None and not isinstance(code, int):
            _say(str(code), sys.stderr)
        status = 0 if code is None else code if isinstance(code, int) else 1
    except BaseException as error:
        rest = error.__traceback__
        while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, *_RUNNERS):
            rest = rest.tb_next
        _say("".join(traceback.format_exception(type(error), error, rest)).rstrip("\n"), sys.stderr)
        status = 1
    finally:
        try:
            while others := [one for one in threading.enumerate() if one is not me and not one.daemon]:
                others[0].join()  # as Python itself does at its end
        except KeyboardInterrupt:
            status = 1
        finally:
            trace.stop()
    with contextlib.suppress(AttributeError, OSError, ValueError):  # the script may have closed it
        sys.stdout.flush()
    if os.getpid() != process:  # a child that the script forked; the parent tells
        return status
    _say(f"\n-- offload_args trace\n{trace.summary}", stderr)
    written = _write(trace, save, json, stderr)
    return status or written
