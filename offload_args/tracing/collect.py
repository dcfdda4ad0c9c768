"""Seeing it: what was lent, copied, called and waited for, when and why. docs/tracing.md is the guide.

Imported when somebody looks: by `offload_args.trace()`, `python -m offload_args trace`, or the package itself if one
of OFFLOAD_ARGS_TRACE, OFFLOAD_ARGS_INFO and OFFLOAD_ARGS_NVTX is set. The core notes events in a bounded queue;
they are fetched when a region is left and 50 times a second.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

from . import _core, regions
from .arguments import In, InOut, Out, Scratch
from .devices import by_number, opened
from .display import plural, rate_text, size_text, time_text
from .errors import ArgumentError, ForkedError
from .source import Place, names_as_written
from .summary import Event, Summary

__all__ = ["Trace"]

_KINDS = ("", "enter", "leave", "up", "down", "call", "wait", "allocate", "release", "access")
_ENTER, _LEAVE, _CALL = 1, 2, 5
_ON, _CHECKSUMS, _REGIONS_ONLY = 1, 2, 4
_NAME_BYTES = 23  # what the core keeps of an array's name
_DEPTH = 8  # callers noted of a region
_LATE = 4096  # regions that have ended and are remembered: events of other threads may come late
_INTERVAL = 0.02  # seconds
_NOT_THE_USERS = (regions.__file__, contextlib.__file__)


class _Site(NamedTuple):
    places: tuple[Place, ...]
    names: tuple[str, ...]
    thread: str


class _Raw(NamedTuple):
    """An event as the core has it."""

    kind: int
    begun: int
    ended: int
    nbytes: int
    tag: int
    region: int
    address: int
    checksum: int
    device: int
    thread: int
    status: int
    batch: int
    packed: int
    name: str
    why: str


class _Listener(Protocol):
    flags: int

    def take(self, event: tuple[Any, ...], site: _Site | None) -> None: ...  # the fields of _Raw

    def entering(self, tag: int, site: _Site) -> None: ...

    def left(self, tag: int) -> None: ...


# -- collecting ----------------------------------------------------------------------------------------------


class _Collector:
    """Who listens, and where the regions were entered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[_Listener, int] = {}  # how often each was added; replaced, never changed
        self._tags = itertools.count(1)
        self._sites: dict[int, _Site] = {}  # by tag, until the region is left
        self._regions: dict[int, _Site] = {}  # by the core's number
        self._ended: deque[int] = deque()  # regions whose late events may still come
        self._left_tags: deque[int] = deque()  # their regions were left, or could not be entered
        self._unread: deque[tuple[Any, ...]] = deque()  # events that the core has handed out
        self._inside: int | None = None  # the thread that collects
        self._stop = threading.Event()
        self.lost = 0

    def add(self, listener: _Listener) -> None:
        with self._lock:
            first = not self._listeners
            self.collect()  # what came before is none of its business
            self._listeners = {**self._listeners, listener: self._listeners.get(listener, 0) + 1}
            self._set_flags()
            if first:
                self._stop = threading.Event()
                threading.Thread(target=self._run, args=(self._stop,), name="offload_args trace", daemon=True).start()

    def remove(self, listener: _Listener) -> None:
        with self._lock:
            if listener not in self._listeners:
                return
            rest = self._listeners.copy()
            rest[listener] -= 1
            if not rest[listener]:
                del rest[listener]
            if not rest:
                _core.trace_set(0, self._entering, self._left)
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
        """Call what one thread at a time may call, unless this thread, or a signal handler on it, is in it already."""
        while self._inside != threading.get_ident() and not _core.trace_exclusively(function):
            time.sleep(1e-4)

    def forget(self) -> None:
        """Listen no more, in a forked child: the core is dead there, and the parent tells its own story."""
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
        _core.trace_set(flags, self._entering, self._left)

    # Exclusively: it may be asked for by a garbage collection on a thread that is in it already.
    def _collect(self) -> None:
        try:
            self._inside = threading.get_ident()
            self._hand_on()
        finally:
            self._inside = None

    def _hand_on(self) -> None:
        events, self.lost = _core.trace_read()
        if self._listeners:
            self._unread.extend(events)
        while self._unread:
            event = self._unread.popleft()
            kind, region = event[0], event[5]
            if kind == _ENTER and (entered := self._sites.get(event[4])) is not None:
                self._regions[region] = entered
            site = self._regions.get(region)
            if kind == _LEAVE or (kind == _ENTER and event[10]):
                self._ended.append(region)
                if len(self._ended) > _LATE:
                    self._regions.pop(self._ended.popleft(), None)
            for listener in self._listeners:
                listener.take(event, site)
        while len(self._left_tags) > _LATE:
            self._sites.pop(self._left_tags.popleft(), None)

    # What regions call: on any thread, while any exception is on its way.

    def _entering(self, entered: _core.Region) -> tuple[int, tuple[bytes, ...]]:
        tag = next(self._tags)
        site = _site(entered, sys._getframe(1))
        self._sites[tag] = site
        for listener in self._listeners:
            listener.entering(tag, site)
        return tag, tuple(_short(name) for name in site.names)

    def _left(self, tag: int) -> None:
        for listener in self._listeners:
            listener.left(tag)
        self._left_tags.append(tag)
        _core.trace_exclusively(self._collect)


def _short(name: str) -> bytes:
    """Return as much of a name as the core keeps, in whole characters."""
    encoded = name.encode()
    if len(encoded) > _NAME_BYTES:
        encoded = encoded[: _NAME_BYTES - 3].decode(errors="ignore").encode() + "…".encode()
    return encoded


def _site(entered: _core.Region, caller: FrameType | None) -> _Site:
    frame = caller
    while frame is not None and frame.f_code.co_filename in _NOT_THE_USERS and frame.f_back is not None:
        frame = frame.f_back
    names = _names(entered._arguments, frame)
    places: list[Place] = []
    while frame is not None and len(places) < _DEPTH:
        code = frame.f_code
        places.append(Place(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return _Site(tuple(places), names, threading.current_thread().name)


def _names(arguments: Sequence[Any], frame: FrameType | None) -> tuple[str, ...]:
    written = names_as_written(frame.f_code, frame.f_lasti) if frame is not None else None
    if written is not None and len(written) == len(arguments):
        return written
    # By identity: what the caller calls the same object.
    scopes = [] if frame is None else [frame.f_locals, frame.f_globals]
    names = []
    for position, argument in enumerate(arguments, 1):
        if isinstance(argument, Scratch):
            names.append("scratch")
            continue
        array = argument.array if isinstance(argument, (In, Out, InOut)) else argument
        found = (name for scope in scopes for name, value in list(scope.items()) if value is array)
        names.append(next(found, f"argument {position}"))
    return tuple(names)


_collector = _Collector()
os.register_at_fork(after_in_child=_collector.forget)


# -- a trace -------------------------------------------------------------------------------------------------


class Trace:
    """Record what happens in a block, or in a process; `offload_args.trace()` makes one.

    checksums: also take the checksum of what is copied, which tells what went up unchanged; it reads the bytes once
    more. limit: events kept at most; more are counted in left_out.
    """

    def __init__(self, *, checksums: bool = True, limit: int = 1_000_000) -> None:
        if limit < 0:
            raise ArgumentError(f"trace: limit needs 0 or more events, got {limit}")
        self.flags = _ON | (_CHECKSUMS if checksums else 0)
        self.begun = 0
        self.ended = 0
        self.left_out = 0
        self._limit = limit
        self._lost_before = 0
        self._raw: list[tuple[tuple[Any, ...], _Site | None]] = []
        self._open: set[int] = set()  # regions whose end is still to come
        self._events: list[Event] = []
        self._decoded = 0  # how much of _raw is in _events
        self._spans: dict[int, Event] = {}  # regions without an end in _events
        self._devices: dict[int, str] = {}
        self._watched_before = self._watched_after = (0, 0.0)  # _watched() when it began, and when it ended
        self._last: dict[tuple[int, int, int], int] = {}  # checksums by device, address and bytes
        self._threads: dict[int, str] = {}

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to record; a trace records once."""
        if self.begun:
            raise ArgumentError("trace: it has begun before; make another one")
        self.begun = time.monotonic_ns()
        self._watched_before = _watched()
        _collector.add(self)
        _collector.add(_nvtx)
        self._lost_before = _collector.lost

    def stop(self) -> None:
        """End it; regions that are still open count as ending now. A second stop does nothing."""
        if not self.begun or self.ended:
            return
        self._watched_after = _watched()
        self.ended = time.monotonic_ns()
        _collector.remove(self)
        _collector.remove(_nvtx)
        self.left_out += _collector.lost - self._lost_before

    # _Listener

    def take(self, event: tuple[Any, ...], site: _Site | None) -> None:
        # On the traced program's time: what can be done when it is over is done then.
        kind, begun, region = event[0], event[1], event[5]
        if begun < self.begun:
            return
        if kind == _LEAVE and region in self._open:
            self._open.discard(region)  # its other end is kept, so this one is
        elif len(self._raw) >= self._limit:
            self.left_out += 1
            return
        elif kind == _LEAVE:  # it was entered before the trace began
            return
        elif kind == _ENTER:
            self._open.add(region)
            if site is not None:
                self._threads.setdefault(event[9], site.thread)
        self._raw.append((event, site))

    def entering(self, tag: int, site: _Site) -> None:
        pass

    def left(self, tag: int) -> None:
        pass

    def _decode(self) -> None:
        for fields, site in self._raw[self._decoded :]:
            self._decoded += 1
            raw = _Raw(*fields)
            if raw.device not in self._devices:
                self._devices[raw.device] = by_number(raw.device).name
            event = Event(
                kind=_KINDS[raw.kind],
                begun=raw.begun,
                ended=raw.ended,
                name=raw.name,
                why=raw.why,
                nbytes=raw.nbytes,
                device=self._devices[raw.device],
                thread=raw.thread,
                region=raw.region,
                places=site.places if site is not None else (),
                unchanged=self._unchanged(raw),
                packed=bool(raw.packed),
                batch=raw.batch,
                address=raw.address,
                failed=_failure(raw),
            )
            if raw.kind == _ENTER and not raw.status:
                names = ", ".join(site.names) if site is not None else ""
                self._spans[raw.region] = event._replace(kind="region", name=names)
            self._events.append(event)
            if raw.kind == _LEAVE and (span := self._spans.pop(raw.region, None)) is not None:
                self._events.append(span._replace(ended=raw.ended))

    def _unchanged(self, raw: _Raw) -> bool:
        if not raw.checksum or not raw.address or raw.status:
            return False
        key = (raw.device, raw.address, raw.nbytes)
        last, self._last[key] = self._last.get(key), raw.checksum
        return _KINDS[raw.kind] == "up" and last == raw.checksum

    # What came of it

    @property
    def events(self) -> list[Event]:
        """What is over so far, and the regions that are still open as if they ended now; in the order of their ends."""
        if self.begun and not self.ended:
            _collector.collect()
        self._decode()
        now = self.ended or time.monotonic_ns()
        return self._events + [span._replace(ended=now) for span in self._spans.values()]

    @property
    def summary(self) -> Summary:
        """What was copied, called and waited for in all, and what to do about it; str() of it is for people."""
        end = self.ended or time.monotonic_ns()
        return Summary(self.events, (end - self.begun) * 1e-9 if self.begun else 0.0, self.left_out, *self._watching())

    def __repr__(self) -> str:
        """Return the summary once it is over; that takes a while where there are many events."""
        if self.ended:
            return str(self.summary)
        state = f"under way, {len(self._raw)} {plural('event', len(self._raw))} so far" if self.begun else "not begun"
        return f"Trace({state})"

    def _repr_html_(self) -> str | None:
        return self.summary._repr_html_() if self.ended else None

    def _watching(self) -> tuple[int, float]:
        """Return how many watched pages were written, and what that cost, as estimated."""
        after = _watched() if self.begun and not self.ended else self._watched_after
        return after[0] - self._watched_before[0], after[1] - self._watched_before[1]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing open: Trace Event Format, JSON."""
        pages, seconds = self._watching()
        document = {
            "traceEvents": list(_chrome(self.events, self.begun, self._threads)),
            "displayTimeUnit": "ms",
            "otherData": {
                "made by": "offload_args",
                "events left out": self.left_out,
                "watched pages written": pages,
                "seconds that cost, estimated": seconds,
            },
        }
        with open(file, "w", encoding="utf-8") as out:
            json.dump(document, out)


def _watched() -> tuple[int, float]:
    try:
        figures = [device.residency for device in opened()]
    except ForkedError:
        return 0, 0.0
    return sum(one.pages_written for one in figures), sum(one.estimated_cost for one in figures)


def _failure(raw: _Raw) -> str:
    if not raw.status:
        return ""
    return f"status {raw.status}" if raw.kind == _CALL else _core.status_name(raw.status)


# -- the timeline --------------------------------------------------------------------------------------------


def _lanes(events: Iterable[Event]) -> Iterator[tuple[int, int, Event]]:
    """Yield (thread, lane, event) so that the events of a lane nest or are apart.

    Those of one thread do, but for regions left out of order or on another thread.
    """
    stacks: dict[tuple[int, int], list[int]] = {}
    for event in sorted(events, key=lambda one: (one.begun, -one.ended)):
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
    if event.kind in ("up", "down"):
        return f"{event.kind} {event.name}"
    if event.kind == "wait":
        return f"wait: {event.why}"
    return event.name


def _chrome(events: Iterable[Event], begun: int, threads: dict[int, str]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "offload_args"}}
    names = {thread.native_id: thread.name for thread in threading.enumerate()} | threads
    seen: dict[tuple[int, int], int] = {}
    extra = itertools.count(1 << 30)  # above the system's numbers of threads
    for thread, lane, event in _lanes(events):
        if (thread, lane) not in seen:
            seen[thread, lane] = next(extra) if lane else thread
            name = names.get(thread) or f"thread {thread}"
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": process,
                "tid": seen[thread, lane],
                "args": {"name": f"{name} (overlapping)" if lane else name},
            }
        yield {
            "ph": "X",
            "name": _label(event),
            "cat": event.kind,
            "pid": process,
            "tid": seen[thread, lane],
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
    if event.kind in ("up", "down"):
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


# -- as text -------------------------------------------------------------------------------------------------


class _Fallback(logging.StreamHandler[Any]):
    """Write to stderr in a program that has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


class _Log:
    """Tell events to the logger "offload_args" as they are fetched."""

    flags = _ON

    def __init__(self) -> None:
        self._logger = logging.getLogger("offload_args")
        if not self._logger.handlers:
            handler = _Fallback()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            self._logger.addHandler(handler)
        if self._logger.level == logging.NOTSET:
            self._logger.setLevel(logging.INFO)

    def take(self, event: tuple[Any, ...], site: _Site | None) -> None:
        raw = _Raw(*event)
        kind = _KINDS[raw.kind]
        device = by_number(raw.device).name
        took = (raw.ended - raw.begun) * 1e-9
        at = f" {site.places[0]}" if site is not None and site.places else ""
        failed = f", FAILED: {_failure(raw)}" if raw.status else ""
        if kind == "enter":
            names = ", ".join(site.names) if site is not None else ""
            text = f"region {raw.region}{at} on {device}: {names or 'entered'} ({size_text(raw.nbytes)} allocated)"
        elif kind == "leave":
            text = f"region {raw.region}{at} left in {time_text(took)}"
        elif kind in ("up", "down"):
            rate = rate_text(raw.nbytes, took)
            text = f"{kind} {raw.name}: {size_text(raw.nbytes)} in {time_text(took)}{rate}, {raw.why}"
        elif kind == "call":
            text = f"call {raw.name} on {device}: {time_text(took)}"
        elif kind == "wait":
            text = f"wait on {device}: {time_text(took)}, {raw.why}"
        else:
            text = f"{kind} {size_text(raw.nbytes)} on {device}"
        self._logger.info("%s%s", text, failed)

    def entering(self, tag: int, site: _Site) -> None:
        pass

    def left(self, tag: int) -> None:
        pass


# -- as NVTX ranges ------------------------------------------------------------------------------------------


class _Nvtx:
    """A range for each region, in the domain "offload_args", where the package nvtx is here.

    Copies and calls have none: a profiler sees the driver's own.
    """

    flags = _REGIONS_ONLY

    def __init__(self) -> None:
        self._ranges: dict[int, Any] = {}
        self._nvtx: Any = None

    def entering(self, tag: int, site: _Site) -> None:
        if self._nvtx is None:
            try:
                import nvtx  # type: ignore[import-untyped,import-not-found,unused-ignore]
            except ImportError:
                nvtx = False
            self._nvtx = nvtx
        if self._nvtx:
            message = f"region {site.places[0] if site.places else ''}: {', '.join(site.names)}"
            self._ranges[tag] = self._nvtx.start_range(message=message, domain="offload_args")

    def left(self, tag: int) -> None:
        started = self._ranges.pop(tag, None)
        if started is not None:
            self._nvtx.end_range(started)

    def take(self, event: tuple[Any, ...], site: _Site | None) -> None:
        pass


_nvtx = _Nvtx()


# -- for the whole process -----------------------------------------------------------------------------------


def _wanted(variable: str) -> str:
    value = os.environ.get(variable, "")
    return "" if value == "0" else value


def start_from_environment() -> None:
    """Begin what OFFLOAD_ARGS_TRACE, OFFLOAD_ARGS_INFO and OFFLOAD_ARGS_NVTX ask for; called once, on import."""
    file = _wanted("OFFLOAD_ARGS_TRACE")
    listeners: list[_Listener] = []
    if _wanted("OFFLOAD_ARGS_INFO"):
        listeners.append(_Log())
    if _wanted("OFFLOAD_ARGS_NVTX"):
        listeners.append(_nvtx)
    for listener in listeners:
        _collector.add(listener)
        atexit.register(_collector.remove, listener)
    if file:
        _trace_process(os.path.abspath(file.replace("%p", str(os.getpid()))))


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


# -- the command ---------------------------------------------------------------------------------------------


_RUNNERS = (os.path.join(os.path.dirname(__file__), "__main__.py"), "<frozen runpy>")


def run(run_script: Callable[[], object], save: str | None) -> int:
    """Run a script, traced; print the summary to stderr, for stdout is the script's; return its exit status."""
    import traceback

    status, me = 0, threading.current_thread()
    trace = Trace()
    trace.start()
    try:
        run_script()
    except SystemExit as leaving:
        code = leaving.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        status = 0 if code is None else code if isinstance(code, int) else 1
    except BaseException as error:
        rest = error.__traceback__
        while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, *_RUNNERS):
            rest = rest.tb_next
        traceback.print_exception(type(error), error, rest)
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
    print(f"\n-- offload_args trace\n{trace.summary}", file=sys.stderr)
    if save is not None:
        trace.save(save)
        print(f"timeline: {save} (open it in ui.perfetto.dev)", file=sys.stderr)
    return status
