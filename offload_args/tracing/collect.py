"""Collecting: fetches the core's events, and passes each event to the listeners with the place of its region.

The core keeps its events in a bounded queue. They are fetched when a region is left and 50 times a second.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any, NamedTuple, Protocol

from .. import _core
from ..arguments import In, InOut, Out, Scratch
from .source import Place, names_as_written

__all__ = ["Listener", "Site", "collector", "names_of", "short_name", "site_of"]

_NAME_BYTES = 23  # the core keeps at most so many bytes of an array's name
_DEPTH = 8  # the number of a region's callers that are noted
_LATE = 4096  # the number of ended regions that are remembered, because events of other threads may come late
_INTERVAL = 0.02  # seconds between two fetches
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_NOT_THE_USERS = (
    *(os.path.join(_PACKAGE, folder, "") for folder in ("fft", "kernels", "lapack", "linalg")),
    os.path.join(_PACKAGE, "regions.py"),
    os.path.join(_PACKAGE, "_signatures.py"),
    contextlib.__file__,
)


class Site(NamedTuple):
    """Describe the place where a region was entered."""

    places: tuple[Place, ...]  #: the line, and its callers
    names: tuple[str, ...]  #: the names of the arrays in the source
    thread: str


class Listener(Protocol):
    """Take the events of the whole process."""

    flags: int  #: the sum of the needed OA_TRACE_ flags; 0 for the ends of regions only

    def take(self, event: _core.TraceEvent, site: Site | None) -> None:
        """Take one event. This method runs on any thread, and delays the traced program."""

    def entering(self, tag: int, site: Site) -> None:
        """Note a region that is about to be entered. This method runs on the region's thread."""

    def left(self, tag: int) -> None:
        """Note a region that was left, or could not be entered. An exception may be under way."""


class _Collector:
    """Hold the listeners, and the places where regions were entered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[Listener, int] = {}  # {listener: how often it was added}; replaced, never changed
        self._tags = itertools.count(1)
        self._sites: dict[int, Site] = {}  # {tag of a region: its place}, until the region is left
        self._regions: dict[int, Site] = {}  # {the core's number of a region: its place}
        self._ended: deque[int] = deque()  # regions whose late events may still come
        self._left_tags: deque[int] = deque()  # tags of regions that were left, or could not be entered
        self._unread: deque[_core.TraceEvent] = (
            deque()
        )  # events that were taken from the core, but not yet passed to the listeners
        self._inside: int | None = None  # the thread that collects events at present
        self._stop = threading.Event()
        self.lost = 0

    def add(self, listener: Listener) -> None:
        with self._lock:
            first = not self._listeners
            self.collect()  # so that the new listener does not get earlier events
            self._listeners = {**self._listeners, listener: self._listeners.get(listener, 0) + 1}
            self._set_flags()
            if first:
                self._stop = threading.Event()
                threading.Thread(target=self._run, args=(self._stop,), name="offload_args trace", daemon=True).start()

    def remove(self, listener: Listener) -> None:
        with self._lock:
            if listener not in self._listeners:
                return
            rest = self._listeners.copy()
            rest[listener] -= 1
            if not rest[listener]:
                del rest[listener]
            if not rest:
                _core.trace_set(False, 0, self._entering, self._left)
            self.collect()
            self._listeners = rest
            if rest:
                self._set_flags()
            else:
                self._stop.set()
                self._exclusively(self._clear)

    def _clear(self) -> None:
        self._unread.clear()
        self._sites.clear()
        self._regions.clear()
        self._ended.clear()
        self._left_tags.clear()

    def collect(self) -> None:
        self._exclusively(self._collect)

    def _exclusively(self, function: Callable[[], object]) -> None:
        """Call the function once no other thread is in such a call. Ignore nested calls on this thread."""
        while self._inside != threading.get_ident() and not _core.trace_exclusively(function):
            time.sleep(1e-4)

    def forget(self) -> None:
        """Remove all listeners, in a forked child, in which the core does not work."""
        self._lock = threading.Lock()
        self._listeners = {}
        self._inside = None

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(_INTERVAL):
            _core.trace_exclusively(self._collect)

    def _set_flags(self) -> None:
        flags = 0
        for listener in self._listeners:
            flags |= listener.flags
        _core.trace_set(True, flags, self._entering, self._left)

    # Only one thread runs this method at a time. A garbage collection in it may leave a region, which calls it again on
    # the same thread.
    def _collect(self) -> None:
        try:
            self._inside = threading.get_ident()
            self._pass_on()
        finally:
            self._inside = None

    def _pass_on(self) -> None:
        events, self.lost = _core.trace_read()
        if self._listeners:
            self._unread.extend(events)
        while self._unread:
            event = self._unread.popleft()
            kind, region = event.kind, event.region
            if kind == _core.OA_TRACE_ENTER and (entered := self._sites.get(event.tag)) is not None:
                self._regions[region] = entered
            site = self._regions.get(region)
            if kind == _core.OA_TRACE_LEAVE or (kind == _core.OA_TRACE_ENTER and event.status):
                self._ended.append(region)
                if len(self._ended) > _LATE:
                    self._regions.pop(self._ended.popleft(), None)
            for listener in self._listeners:
                listener.take(event, site)
        while len(self._left_tags) > _LATE:
            self._sites.pop(self._left_tags.popleft(), None)

    # Regions call these two methods, on any thread, perhaps while an exception is under way.

    def _entering(self, entered: _core.Region) -> tuple[int, tuple[bytes, ...]]:
        tag = next(self._tags)
        site = site_of(entered, sys._getframe(1))
        self._sites[tag] = site
        for listener in self._listeners:
            listener.entering(tag, site)
        return tag, tuple(short_name(name) for name in site.names)

    def _left(self, tag: int) -> None:
        for listener in self._listeners:
            listener.left(tag)
        self._left_tags.append(tag)
        _core.trace_exclusively(self._collect)


def short_name(name: str) -> bytes:
    """Return the part of a name that the core keeps, in whole characters."""
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES:
        encoded = encoded[: _NAME_BYTES - 3].decode(errors="ignore").encode() + "…".encode()
    return encoded


def site_of(entered: _core.Region, caller: FrameType | None) -> Site:
    """Return the place where a region is entered, by the caller or by one of its callers."""
    frame = _user_of(caller)
    names = _names(entered._arguments, frame, _function_of(caller))
    places: list[Place] = []
    while frame is not None and len(places) < _DEPTH:
        code = frame.f_code
        places.append(Place(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return Site(tuple(places), names, threading.current_thread().name)


def names_of(entered: _core.Region, caller: FrameType | None) -> tuple[str, ...]:
    """Return the names that the program has for a region's arrays."""
    return _names(entered._arguments, _user_of(caller), _function_of(caller))


def _user_of(caller: FrameType | None) -> FrameType | None:
    """Return the frame that enters a region: the frame of the caller, or of the first caller outside the package."""
    frame = caller
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _function_of(caller: FrameType | None) -> str:
    """Return the function of linalg or fft by which the program enters a region, such as "linalg.solve", or ""."""
    name, frame = "", caller
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        folder, _, _ = os.path.relpath(frame.f_code.co_filename, _PACKAGE).partition(os.sep)
        if folder in ("fft", "linalg"):
            name = f"{folder}.{frame.f_code.co_name}"
        frame = frame.f_back
    return name


def _names(arguments: Sequence[Any], frame: FrameType | None, function: str = "") -> tuple[str, ...]:
    written = names_as_written(frame.f_code, frame.f_lasti) if frame is not None else None
    if written is not None and len(written) == len(arguments):
        return written
    # The name of an array is the caller's name for the same object. linalg and fft also lend arrays of their own.
    variables = frame.f_locals if frame is not None else {}
    names = []
    for position, argument in enumerate(arguments, 1):
        if isinstance(argument, Scratch):
            names.append("scratch")
            continue
        array = argument.array if isinstance(argument, (In, Out, InOut)) else argument
        name = _name_of(array, variables) or (_name_of(array, frame.f_globals) if frame is not None else "")
        unnamed = f"{'result' if isinstance(argument, Out) else 'operand'} of {function}"
        names.append(name or (unnamed if function else f"argument {position}"))
    # Before Python 3.13, the frame keeps this copy of a function's variables, and so keeps arrays that the function
    # deletes. The copy has three references: this variable, the argument of getrefcount, and the frame. If the program
    # also has the copy, from locals(), there is a fourth reference, and the copy is not cleared.
    if sys.version_info < (3, 13) and frame is not None and frame.f_code.co_flags & CO_OPTIMIZED:
        if sys.getrefcount(variables) == 3:
            variables.clear()
    return tuple(names)


def _name_of(array: object, variables: Mapping[str, Any]) -> str:
    return next((name for name, value in list(variables.items()) if value is array), "")


collector = _Collector()
os.register_at_fork(after_in_child=collector.forget)
