"""Progress: a line on the terminal about a copy or wait that has been under way for a long time.

A thread polls the core's current copies and waits five times a second. It delays no call, and draws
nothing if stderr is not a terminal.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from typing import Any

from .. import _core
from ..devices import by_number
from ..display import plural, shown, size_text, time_text
from ..errors import ArgumentError, OffloadError
from .collect import Site, collector

__all__ = ["progress", "seconds_of"]

_INTERVAL = 0.2  # seconds between two polls
_DIRECTIONS = {_core.OA_TRACE_UP: "up to", _core.OA_TRACE_DOWN: "down from", _core.OA_TRACE_PEER: "from a peer to"}


def seconds_of(value: object, name: str) -> float:
    """Return the seconds after which a copy or wait is shown: 1 for True, and 0 for False, which means never.

    Raises ArgumentError for a value that is neither a bool nor a number of seconds.
    """
    if isinstance(value, (bool, int, float)) and 0 <= value < math.inf:
        return float(value)
    raise ArgumentError(f"{name} needs True, False, or the seconds after which to show something, got {shown(value)}")


class _Progress:
    """Draw the line.

    This class is a listener, so that the core has the arrays' names, and the end of a region erases the line.
    """

    flags = _core.OA_TRACE_UNDER_WAY

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects begin() and end()
        self._drawing = threading.Lock()  # protects the line; no thread waits for it, because a terminal may be stopped
        self._wanted: list[float] = []  # the seconds of each begin() that was not ended
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._width = 0  # the width of the drawn line

    def begin(self, seconds: float) -> None:
        """Show copies and waits that take more seconds, until end() is called with the same seconds."""
        with self._lock:
            self._wanted = [*self._wanted, seconds]
            if self._thread is None:
                collector.add(self)
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="offload_args progress", daemon=True
                )
                self._thread.start()

    def end(self, seconds: float) -> None:
        """Undo one begin()."""
        with self._lock:
            if seconds not in self._wanted:  # this is a forked child, or the process is ending
                return
            rest = self._wanted.copy()
            rest.remove(seconds)
            self._wanted = rest
            if not rest:
                self._end()

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)  # with a limit, because a stopped terminal must not block the program
            self._thread = None
            collector.remove(self)
            self._draw("")

    def at_exit(self) -> None:
        """Stop drawing, because the interpreter ends."""
        with self._lock:
            self._wanted = []
            self._end()

    def forget(self) -> None:
        """Stop drawing in a forked child, because the line belongs to the parent, and the thread was not forked."""
        self.__init__()  # type: ignore[misc]

    # Listener

    def take(self, event: _core.TraceEvent, site: Site | None) -> None:
        pass

    def entering(self, tag: int, site: Site) -> None:
        pass

    def left(self, tag: int) -> None:
        if self._width:
            self._draw("")

    # The thread

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(_INTERVAL):
            try:
                text = self._text() if _terminal() is not None else ""
            except OffloadError:
                return
            if not stop.is_set():
                self._draw(text)

    def _text(self) -> str:
        """Return the line for the longest copy or wait, or "" if it has not taken long."""
        now = time.monotonic_ns()
        after = min(self._wanted, default=math.inf)
        entries = sorted(entry for entry in _core.trace_under_way() if (now - entry[0]) * 1e-9 > after)
        if not entries:
            return ""
        begun, nbytes, done, kind, number, name = entries[0]
        took = (now - begun) * 1e-9
        device = by_number(number).name
        if kind == _core.OA_TRACE_WAIT:
            text = f"offload_args: waiting for {device} ({name}), {time_text(took)}"
        else:
            text = _copying(f"offload_args: {name} {_DIRECTIONS[kind]} {device}", nbytes, done, took)
        return text + (f", and {len(entries) - 1} {plural('other', len(entries) - 1)}" if len(entries) > 1 else "")

    def _draw(self, text: str) -> None:
        """Replace the drawn line; the cursor is left at its beginning, so that other output replaces the line."""
        fd = _terminal()
        if not (text or self._width) or fd is None or not self._drawing.acquire(blocking=False):
            return
        try:
            text = text[: _columns(fd) - 1]
            line = f"\r{text.ljust(self._width)}\r"
            self._width = len(text)
            # This does not use sys.stderr, because a fork would copy its lock and the contents of its buffer.
            with contextlib.suppress(OSError):
                os.write(fd, line.encode(getattr(sys.stderr, "encoding", None) or "utf-8", "replace"))
        finally:
            self._drawing.release()


def _terminal() -> int | None:
    """Return the file descriptor of stderr if it is a terminal."""
    try:
        fd: int = sys.stderr.fileno()  # type: ignore[union-attr,unused-ignore]
        return fd if os.isatty(fd) else None
    except (AttributeError, OSError, ValueError):  # stderr does not exist, or is closed
        return None


def _columns(fd: int) -> int:
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def _tqdm() -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    return tqdm


def _copying(subject: str, nbytes: int, done: int, took: float) -> str:
    if not done:
        return f"{subject}: {size_text(nbytes)}, {time_text(took)}"
    tqdm = _tqdm()
    if tqdm is None:
        return f"{subject}: {done / nbytes:.0%} of {size_text(nbytes)}, {time_text(took)}"
    fd = _terminal()
    bar: str = tqdm.format_meter(
        done,
        nbytes,
        took,
        ncols=_columns(fd) - 1 if fd is not None else 80,
        prefix=subject,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        ascii=not (getattr(sys.stderr, "encoding", None) or "").lower().startswith("utf"),
    )
    return bar


progress = _Progress()
os.register_at_fork(after_in_child=progress.forget)
atexit.register(progress.at_exit)
