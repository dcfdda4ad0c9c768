"""Recording: a Trace keeps the events of a block, or of a process."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import TYPE_CHECKING

from .. import _core
from .._signatures import telling
from ..devices import by_number, opened
from ..display import answering, plural, shown
from ..errors import ArgumentError, ForkedError
from .collect import Site, collector
from .listeners import failure, nvtx_ranges
from .progress import progress, seconds_of
from .summary import Event, Summary

if TYPE_CHECKING:
    from .picture import Timeline

__all__ = ["Trace"]


@answering(
    {
        **dict.fromkeys(
            ("print_stats", "key_averages", "table", "stats", "report", "total", "print", "totals"),
            "summary, print(t.summary)",
        ),
        **dict.fromkeys(
            ("export_chrome_trace", "dump_stats", "write", "export", "to_json", "dump"), 'save("trace.json")'
        ),
        "advice": "summary.advice",
        **dict.fromkeys(("enable", "begin"), "start()"),
        **dict.fromkeys(("disable", "end", "close"), "stop()"),
        **dict.fromkeys(("picture", "plot", "draw", "show"), "timeline"),
    }
)
class Trace:
    """Record the events of a block or of a process; `offload_args.trace()` makes one.

    checksums: whether checksums of the copied bytes are computed, for which the bytes are read again; they show which
    copies up were of unchanged bytes. limit: the most events to keep; further events are counted in left_out. progress:
    whether copies and waits of more than a second, or than this number of seconds, are shown on the terminal.

        x = np.ones(3)
        with trace() as t, offload_args(x) as (dx,):
            blas.scal(2.0, dx)
        print(t.summary.calls, t.summary.bytes_up, t.summary.bytes_down)  # 1 24 24

    See also: trace, record; docs/guide/tracing.md.
    """

    @telling
    def __init__(self, *, checksums: bool = True, limit: int = 1_000_000, progress: bool | float = False) -> None:
        self._progress = seconds_of(progress, "trace: progress")
        if not isinstance(limit, int) or limit < 0:
            raise ArgumentError(f"trace: limit needs a number of events, 0 or more, got {shown(limit)}")
        self.flags = _core.OA_TRACE_ON | (_core.OA_TRACE_CHECKSUMS if checksums else 0)
        self.begun = 0
        self.ended = 0
        self.left_out = 0
        self._limit = limit
        self._lost_before = 0
        self._raw: list[tuple[_core.TraceEvent, Site | None]] = []
        self._open: set[int] = set()  # regions that have not ended
        self._events: list[Event] = []
        self._decoded = 0  # the number of elements of _raw that are in _events
        self._spans: dict[int, Event] = {}  # regions in _events that have not ended
        self._devices: dict[int, str] = {}
        self._watched_before = self._watched_after = (0, 0.0)  # _watching() at the begin and at the end of the trace
        self._last: dict[tuple[int, int, int], int] = {}  # {(device, address, bytes): checksum}
        self._threads: dict[int, str] = {}

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @telling
    def start(self) -> None:
        """Begin to record. A trace can record only once.

            t = trace()
            t.start()
            with offload_args(np.ones(3)) as (dx,):
                blas.scal(2.0, dx)
            t.stop()
            print(t.summary.calls)  # 1

        See also: trace; docs/guide/tracing.md.
        """
        if self.begun:
            raise ArgumentError("trace: it has begun before; make another one")
        self.begun = time.monotonic_ns()
        self._watched_before = _watched()
        collector.add(self)
        collector.add(nvtx_ranges)
        if self._progress:
            progress.begin(self._progress)
        self._lost_before = collector.lost

    @telling
    def stop(self) -> None:
        """End the recording. For the trace, regions that are still open end now. A second stop has no effect.

            t = trace()
            t.start()
            t.stop()
            print(t.events)  # []

        See also: trace; docs/guide/tracing.md.
        """
        if not self.begun or self.ended:
            return
        self._watched_after = _watched()
        self.ended = time.monotonic_ns()
        collector.remove(self)
        collector.remove(nvtx_ranges)
        if self._progress:
            progress.end(self._progress)
        self.left_out += collector.lost - self._lost_before

    # _Listener

    def take(self, event: _core.TraceEvent, site: Site | None) -> None:
        """Keep an event that the collector fetched."""
        # This method delays the traced program, so all work that can wait is left to _decode().
        kind, region = event.kind, event.region
        if event.begun < self.begun:
            return
        if kind == _core.OA_TRACE_LEAVE and region in self._open:
            self._open.discard(region)  # its start was kept, so its end is kept, too
        elif len(self._raw) >= self._limit:
            self.left_out += 1
            return
        elif kind == _core.OA_TRACE_LEAVE:  # this region was entered before the trace began
            return
        elif kind == _core.OA_TRACE_ENTER:
            self._open.add(region)
            if site is not None:
                self._threads.setdefault(event.thread, site.thread)
        self._raw.append((event, site))

    def entering(self, tag: int, site: Site) -> None:
        """Do nothing before a region is entered, because its events have all facts."""

    def left(self, tag: int) -> None:
        """Do nothing after a region was left, because its events have all facts."""

    def _decode(self) -> None:
        for raw, site in self._raw[self._decoded :]:
            self._decoded += 1
            if raw.device not in self._devices:
                self._devices[raw.device] = by_number(raw.device).name
            is_launch = raw.kind == _core.OA_TRACE_LAUNCH
            event = Event(
                kind=_core.TRACE_KINDS[raw.kind],
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
                packed=raw.packed,
                batch=0 if is_launch else raw.batch,
                address=raw.address,
                failed=failure(raw),
                multiprocessors=raw.batch if is_launch else 0,
            )
            if raw.kind == _core.OA_TRACE_ENTER and not raw.status:
                names = ", ".join(site.names) if site is not None else ""
                self._spans[raw.region] = event._replace(kind="region", name=names)
            self._events.append(event)
            if raw.kind == _core.OA_TRACE_LEAVE and (span := self._spans.pop(raw.region, None)) is not None:
                self._events.append(span._replace(ended=raw.ended))

    def _unchanged(self, raw: _core.TraceEvent) -> bool:
        if not raw.checksum or not raw.address or raw.status:
            return False
        key = (raw.device, raw.address, raw.nbytes)
        last, self._last[key] = self._last.get(key), raw.checksum
        return raw.kind == _core.OA_TRACE_UP and last == raw.checksum

    # The results

    @property
    def events(self) -> list[Event]:
        """The events so far, in the order of their ends; a region that is still open is listed as if it ended now."""
        if self.begun and not self.ended:
            collector.collect()
        self._decode()
        now = self.ended or time.monotonic_ns()
        return self._events + [span._replace(ended=now) for span in self._spans.values()]

    @property
    def summary(self) -> Summary:
        """The sums of copies, calls and waits, with advice; str() of it is a text for people.

        Its first line has the time on the clock from the trace's begin to its end.
        """
        end = self.ended or time.monotonic_ns()
        return Summary(self.events, (end - self.begun) * 1e-9 if self.begun else 0.0, self.left_out, *self._watching())

    @property
    def timeline(self) -> Timeline:
        """The events over time, as a picture that notebooks show; save("file.svg") writes it."""
        from .picture import Timeline

        return Timeline(self.events, self.left_out)

    def __repr__(self) -> str:
        """Return the summary once the trace is over. With many events, the summary takes a while."""
        if self.ended:
            return str(self.summary)
        state = f"under way, {len(self._raw)} {plural('event', len(self._raw))} so far" if self.begun else "not begun"
        return f"Trace({state})"

    def _repr_html_(self) -> str | None:
        return self.summary._repr_html_() if self.ended else None

    def _watching(self) -> tuple[int, float]:
        """Return the number of watched pages that were written, and the estimated seconds that these writes cost."""
        after = _watched() if self.begun and not self.ended else self._watched_after
        return after[0] - self._watched_before[0], after[1] - self._watched_before[1]

    @telling
    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the timeline: as a picture if the name ends with .svg or .SVG, else as JSON in the Trace Event Format.

        Perfetto (ui.perfetto.dev) and chrome://tracing open the JSON.

            with trace() as t, offload_args(np.ones(3)) as (dx,):
                blas.scal(2.0, dx)
            t.save("trace.json")  # https://ui.perfetto.dev opens it
            t.save("trace.svg")
            print(sorted(os.listdir()))  # ['trace.json', 'trace.svg']

        See also: tracing.Timeline, trace; docs/guide/tracing.md.
        """
        from .._operands import need_path

        path = need_path("Trace.save", "file", file)
        if path.lower().endswith(".svg"):
            with open(path, "w", encoding="utf-8") as out:
                out.write(self.timeline.svg)
            return
        from .timeline import write

        pages, seconds = self._watching()
        others = {
            "events left out": self.left_out,
            "watched pages written": pages,
            "seconds that cost, estimated": seconds,
        }
        write(file, self.events, self.begun, self._threads, others)


def _watched() -> tuple[int, float]:
    try:
        figures = [device.residency for device in opened()]
    except ForkedError:
        return 0, 0.0
    return sum(figure.pages_written for figure in figures), sum(figure.estimated_cost for figure in figures)
