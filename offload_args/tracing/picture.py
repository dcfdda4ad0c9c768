"""The timeline as a picture in SVG, for notebooks and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from .._signatures import telling
from ..display import plural, rate_text, size_text, time_text
from .summary import Event

__all__ = ["Timeline"]

# Each row's name, its kinds of events, and a colour on which white text is readable, in light and dark mode.
_ROWS = (
    ("regions", ("region",), "#5f6b7a"),
    ("up", ("up",), "#1f6fb2"),
    ("from peers", ("peer",), "#7b4fa3"),
    ("calls", ("call", "launch"), "#2e7d4f"),
    ("waits", ("wait",), "#8a6d00"),
    ("down", ("down",), "#b35c00"),
    ("memory", ("allocate", "release", "access"), "#7a5c4f"),
)
_FAILED = "#c62828"
_SINGLY = 300  # up to so many events of a row are all drawn separately
_BINS = 200  # parts of the time; in a row of more events, short events of the same part are drawn as one
_LANES = 8  # the most events that a row shows at one time
_LANE, _HEAD, _LINE = 18, 16, 15  # the heights, in pixels, of a lane, a row's name and a line of text
_ALONE = (
    "<style>svg{color:#222;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd;background:#181818}}</style>"
)


@telling
class Timeline:
    """Show the events of a trace over time: a notebook draws it, and `svg` has the picture.

    The picture has a row for each kind of event on each device, and a tooltip for each block. Time begins at the first
    event.

    See also: tracing.Trace.save, trace; docs/guide/tracing.md.
    """

    def __init__(self, events: Iterable[Event], left_out: int = 0) -> None:
        self._events = sorted(events, key=lambda event: (event.begun, -event.ended))
        self._left_out = left_out

    def __repr__(self) -> str:
        return f"Timeline({self._title()}; a notebook shows it as a picture)"

    def _repr_html_(self) -> str:
        return self._draw("100%", "")

    @property
    def svg(self) -> str:
        """The picture as the text of an SVG file; its colours follow the light or dark scheme of its reader."""
        return self._draw("960", _ALONE)

    def _title(self) -> str:
        count = len(self._events)
        if not count:
            return "no events"
        return f"{count:,} {plural('event', count)} in {time_text(self._span() * 1e-9)}"

    def _span(self) -> int:
        return max(max(event.ended for event in self._events) - self._events[0].begun, 1)

    def _draw(self, width: str, style: str) -> str:
        parts: list[str] = []
        notes = [self._title()]
        height = 0
        if self._events:
            axis = _Axis(self._events[0].begun, self._span())
            together, hidden = 0, 0
            for name, colour, events in _rows(self._events):
                lanes, rest = _lanes(_blocks(events, axis))
                together += sum(block.events for lane in lanes for block in lane if block.events > 1)
                hidden += sum(block.events for block in rest)
                parts.append(_text(0, height + 12, name))
                for y, lane in enumerate(lanes):
                    top = height + _HEAD + y * _LANE
                    parts += [_drawn(block, axis, top, colour) for block in lane]
                height += _HEAD + len(lanes) * _LANE + 6
            parts = [*axis.drawn(height), *parts]
            height += _LINE
            if together:
                notes.append(f"{together:,} short ones share a block with others")
            if hidden:
                notes.append(f"{hidden:,} are not drawn: more than {_LANES} at one time")
        if self._left_out:
            notes.append(f"{self._left_out:,} are missing: the trace had no room for them")
        for note in notes:
            height += _LINE
            parts.append(_text(0, height, note))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 6}" role="img" '
            f'aria-label="timeline of a trace: {escape("; ".join(notes))}" fill="currentColor" font-size="11" '
            f'font-family="system-ui, sans-serif">{style}{"".join(parts)}</svg>'
        )


class _Block(NamedTuple):
    """Describe one block, which stands for an event or for several short events."""

    begun: int
    ended: int
    label: str
    tip: str
    failed: bool
    events: int


class _Axis:
    """Convert times in nanoseconds to positions between 0 % and 100 %."""

    def __init__(self, begun: int, span: int) -> None:
        self.begun = begun
        self.span = span

    def at(self, time: int) -> float:
        return 100 * (time - self.begun) / self.span

    def drawn(self, height: int) -> Iterator[str]:
        """Yield 3 to 7 vertical lines at round times, each with its time below."""
        step = 1
        while 4 * step * 10 <= self.span:
            step *= 10
        step *= next(factor for factor in (1, 2, 5, 10) if self.span < 6 * factor * step)
        for time in range(0, self.span + 1, step):
            x = 100 * time / self.span
            yield (
                f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height}" stroke="currentColor" stroke-opacity="0.15"/>'
            )
            if x < 94:  # beyond 94 %, there is no room for the time
                label = time_text(time * 1e-9) if time else "0"
                yield _text(x, height + 11, label, "middle" if time else "start")


def _text(x: float, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.2f}%" y="{y}" text-anchor="{anchor}" fill-opacity="0.75">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    """Return text escaped for XML, with spaces in place of characters that are not printable."""
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _rows(events: Sequence[Event]) -> Iterator[tuple[str, str, list[Event]]]:
    """Yield the name, the colour and the events of each row that has events."""
    devices = sorted({event.device for event in events})
    for device in devices:
        for name, kinds, colour in _ROWS:
            chosen = [event for event in events if event.device == device and event.kind in kinds]
            if chosen:
                yield f"{name} on {device}" if len(devices) > 1 else name, colour, chosen


def _blocks(events: Sequence[Event], axis: _Axis) -> list[_Block]:
    """Return the blocks of a row in the order of time: one for each event, unless there are many."""
    if len(events) <= _SINGLY:
        return [_single(event) for event in events]
    bins: dict[int, list[Event]] = {}
    blocks = []
    for event in events:
        if (event.ended - event.begun) * _BINS >= axis.span:
            blocks.append(_single(event))
        else:
            bins.setdefault((event.begun - axis.begun) * _BINS // axis.span, []).append(event)
    for number, members in bins.items():
        if len(members) == 1:
            blocks.append(_single(members[0]))
            continue
        end = axis.begun + (number + 1) * axis.span // _BINS
        most = ", ".join(name for name, _ in Counter(event.name or event.kind for event in members).most_common(3))
        tip = f"{len(members):,} events: {most}, ... ({time_text(sum(event.seconds for event in members))})"
        ended = max(min(max(event.ended for event in members), end), members[0].begun)
        failed = any(event.failed for event in members)
        blocks.append(_Block(members[0].begun, ended, f"{len(members):,} x", tip, failed, len(members)))
    return sorted(blocks, key=lambda block: (block.begun, -block.ended))


def _single(event: Event) -> _Block:
    took = time_text(event.seconds)
    if event.kind == "region":
        label, tip = event.name or "region", f"region of {event.name}"
    elif event.kind == "wait":
        label, tip = event.why, "wait"
    elif event.kind in ("up", "down", "peer"):
        label, tip = event.name, f"{event.kind} {event.name}: {size_text(event.nbytes)}"
        took += rate_text(event.nbytes, event.seconds)
    else:
        label = event.name or event.kind
        tip = label if label == event.kind else f"{event.kind} {label}"
    unchanged = "unchanged" if event.unchanged else ""
    failed = f"FAILED: {event.failed}" if event.failed else ""
    place = str(event.place or "")
    details = (tip, took, event.why, unchanged, place, failed)
    return _Block(
        event.begun,
        event.ended,
        f"{label}, unchanged" if unchanged else label,
        ", ".join(filter(None, details)),
        bool(failed),
        1,
    )


def _lanes(blocks: Iterable[_Block]) -> tuple[list[list[_Block]], list[_Block]]:
    """Return lanes in which no block overlaps another, and the blocks that fit in no lane."""
    lanes: list[list[_Block]] = []
    rest = []
    for block in blocks:
        lane = next((lane for lane in lanes if lane[-1].ended <= block.begun), None)
        if lane is not None:
            lane.append(block)
        elif len(lanes) < _LANES:
            lanes.append([block])
        else:
            rest.append(block)
    return lanes, rest


def _drawn(block: _Block, axis: _Axis, top: int, colour: str) -> str:
    """Return a block, with its label inside if the block is wide enough to show some of the label."""
    fill = _FAILED if block.failed else colour
    x, width = axis.at(block.begun), max(axis.at(block.ended) - axis.at(block.begun), 0.01)
    place = f'x="{x:.3f}%" y="{top}" width="{width:.3f}%" height="{_LANE - 2}"'
    tip = f"<title>{_escaped(block.tip)}</title>"
    if width < 4:  # the stroke of even the shortest block is visible
        return f'<rect {place} rx="1" fill="{fill}" stroke="{fill}">{tip}</rect>'
    label = f'<text x="4" y="12" fill="#fff">{_escaped(block.label)}</text>'
    return f'<svg {place}>{tip}<rect width="100%" height="100%" rx="2" fill="{fill}"/>{label}</svg>'
