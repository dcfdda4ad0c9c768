"""Tracing: records regions, copies, calls and waits, with their times and reasons. docs/guide/tracing.md is the guide.

The modules of this package are only imported when a trace begins:
    collect.py    fetches the events from the core's queue, and passes them to the listeners
    recording.py  Trace, the listener that keeps the events of a block
    summary.py    the sums of a trace, and its advice
    source.py     the names and loops in the source of the traced program
    timeline.py   a trace as JSON in the Trace Event Format
    progress.py   a line on the terminal about long copies and waits
    picture.py    a trace's timeline as a picture
    listeners.py  events as log lines, and regions as NVTX ranges
    process.py    traces of a whole process: by environment variables, and by `python -m offload_args trace`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._signatures import telling
from ..display import nearest, no_name

if TYPE_CHECKING:
    from .picture import Timeline
    from .recording import Trace
    from .summary import Advice, Event, Summary

__all__ = ["Advice", "Event", "Summary", "Timeline", "Trace", "trace"]

_PLACES = {"Advice": "summary", "Event": "summary", "Summary": "summary", "Timeline": "picture", "Trace": "recording"}


@telling
def trace(*, checksums: bool = True, limit: int = 1_000_000, progress: bool | float = False) -> Trace:
    """Record every region, copy, call and wait of a block: `with trace() as t: ...; print(t.summary)`.

    The result has `events`, `summary` (with `advice`), `timeline`, which a notebook shows as a picture, and
    `save("file.json")`, which Perfetto opens.

    checksums: whether copies up of unchanged bytes are found, for which all copied bytes are read a second time. limit:
    the most events to keep. progress: whether copies and waits that take more than a second, or than this number of
    seconds, are shown while they are under way, in a line on stderr, if stderr is a terminal.

        x = np.ones(3)
        with trace() as t, offload_args(x) as (dx,):
            blas.scal(2.0, dx)
        print([event.kind for event in t.events if event.kind in ("up", "down")])  # ['up', 'down']

    See also: record; docs/guide/tracing.md.
    """
    from .recording import Trace

    return Trace(checksums=checksums, limit=limit, progress=progress)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f".{_PLACES[name]}", __name__), name)
    raise no_name(__name__, name, nearest(name, __all__))
