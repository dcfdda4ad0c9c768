"""Summaries of traces: the events, their sums, and advice about lines of the program."""

from __future__ import annotations

import math
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from .._signatures import telling
from ..devices import Device
from ..display import answering, html_table, plural, rate_text, size_text, time_text
from ..errors import caller_name
from .source import Loop, Place, loops_around

__all__ = ["Advice", "Copies", "Event", "Summary"]

_CALLS = ("call", "launch")  # the kinds of events that are calls
_GRAPHS = ("oa_chain_replay", "oa_chain_loop")  # names of events of the kind "access"
_MOST_ADVICE = 10
_LEAST_SAVING = 0.01  # of the trace's time; advice that saves less is not shown

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Event(NamedTuple):
    """Describe an event that is over. Times are nanoseconds, as time.monotonic_ns() counts them."""

    #: "region", "enter", "leave", "up", "down", "peer", "call", "launch", "wait", "allocate", "release" or "access"
    kind: str
    begun: int  #: the time of its beginning
    ended: int  #: the time of its end
    name: str  #: the name of the array in the source of its region, or of the function
    why: str  #: the reason for a copy or wait, such as "first read by cublas.sgemv"
    #: or the shape of a launch, such as "grid 9x1x1 block 64x2x1 shared 400"
    nbytes: int  #: for a copy, an allocation or a release: its bytes
    device: str  #: the device's name, such as "cuda:0"
    thread: int  #: the system's number of the thread
    region: int  #: the region's number, or 0 for none; for a copy, the region that first lent the array
    places: tuple[Place, ...]  #: the line that enters the region, and its callers
    unchanged: bool  #: for a copy up: whether the device last got the same bytes from the same memory
    packed: bool  #: for a copy: whether the host gathered or scattered the bytes
    batch: int  #: for a copy: the copies of its batch, among which the batch's time is divided by their bytes
    address: int  #: for a copy: its host address; 0 if unknown
    failed: str  #: the failure, or ""
    multiprocessors: int = 0  #: for a launch: the multiprocessors of its device

    @property
    def seconds(self) -> float:
        """The time that the event took."""
        return (self.ended - self.begun) * 1e-9

    @property
    def place(self) -> Place | None:
        """The line that enters the event's region."""
        return self.places[0] if self.places else None

    @property
    def rate(self) -> float:
        """The bytes per second; 0 if no bytes moved."""
        return self.nbytes / self.seconds if self.ended > self.begun else 0.0

    @property
    def blocks(self) -> int:
        """The blocks of a launch's grid; 0 for other events."""
        if self.kind != "launch":
            return 0
        return math.prod(map(int, self.why.split()[1].split("x")))


class Advice(NamedTuple):
    """Advise one change of the program."""

    text: str
    file: str  #: "" if unknown
    line: int
    seconds: float  #: the time that the change saves; 0 if unknown

    def __str__(self) -> str:
        return self.text


class Copies(NamedTuple):
    """Sum up the copies of one array from one place."""

    name: str
    nbytes: int  #: the bytes of one copy
    device: str
    direction: str  #: "up", "down", or "peer" for copies from another device
    places: tuple[Place, ...]
    times: int
    unchanged: int
    seconds: float
    seconds_unchanged: float
    packed: bool
    arrays: int  #: the number of arrays that had this name


class _Line(NamedTuple):
    """Sum up the copies of one name from one place, of any size and from any caller, for one line of the text."""

    name: str
    direction: str
    device: str
    place: str
    times: int
    least: int  # the bytes of the smallest copy
    most: int
    nbytes: int  # the bytes of all copies
    seconds: float
    unchanged: int

    @property
    def copies(self) -> str:
        return f"{self.times} x {range_text(self.least, self.most)}{'' if self.most else ', coherent'}"

    @property
    def took(self) -> str:
        return time_text(self.seconds) + rate_text(self.nbytes, self.seconds)


@answering(
    {
        **dict.fromkeys(("save", "to_json", "json"), "as_json()"),
        **dict.fromkeys(("events", "timeline"), "the trace, which has events and timeline"),
    }
)
@telling
class Summary:
    """Sum up a trace.

    The time in the first line of its text is `seconds`: the time on the clock from the trace's begin to its end, with
    the program's own work. The other times are those of copies, waits and calls, which may overlap.

    See also: tracing.Trace, trace; docs/guide/tracing.md.
    """

    seconds: float  #: the time on the clock from the trace's begin to its end
    copies_up: int  #: from the host
    bytes_up: int  #: the bytes of these copies
    seconds_up: float  #: the time of these copies
    copies_down: int  #: to the host
    bytes_down: int  #: the bytes of these copies
    seconds_down: float  #: the time of these copies
    copies_peer: int  #: from other devices
    bytes_peer: int  #: the bytes of these copies
    seconds_peer: float  #: the time of these copies
    bytes_spared: int  #: of arrays of which calls read some parts: the bytes that never went up
    regions: int  #: regions that ended
    calls: int  #: calls and launches
    waits: int  #: waits for a device
    seconds_waiting: float  #: the time of these waits
    pages_written: int  #: writes of the program to watched pages
    seconds_watching: float  #: the program's estimated time for writes to watched pages
    advice: list[Advice]  #: changes of the program that would save time; the greatest saving is first

    def __init__(
        self, events: Sequence[Event], seconds: float, left_out: int, pages_written: int = 0, watching: float = 0.0
    ) -> None:
        self.seconds = seconds
        self.left_out = left_out
        self.pages_written = pages_written
        self.seconds_watching = watching
        done = [event for event in events if not event.failed or event.kind == "call"]
        self.copies_up, self.bytes_up, self.seconds_up = _sum(done, "up")
        self.copies_down, self.bytes_down, self.seconds_down = _sum(done, "down")
        self.copies_peer, self.bytes_peer, self.seconds_peer = _sum(done, "peer")
        self.bytes_spared = sum(event.nbytes for event in done if event.kind == "leave")
        self.regions, _, _ = _sum(done, "region")
        self.calls = sum(event.kind in _CALLS for event in done)
        self.waits, _, self.seconds_waiting = _sum(done, "wait")
        self.devices = sorted({event.device for event in events})
        self.functions = _functions(done)
        self.copies = _copies(done)
        self.advice = [*_advise(self.copies), *_advise_on_grids(done)][:_MOST_ADVICE]

    def _title(self) -> str:
        return (
            f"{self.regions} {plural('region', self.regions)}, {self.calls} {plural('call', self.calls)} on "
            f"{', '.join(self.devices) or 'no device'} in {time_text(self.seconds)}"
        )

    def _shown_advice(self, holder: str = "summary.advice") -> list[str]:
        """Return the advice that saves enough to be shown, with a line about the number of the others.

        holder: what has the text of the others.
        """
        small = [advice for advice in self.advice if 0 < advice.seconds < _LEAST_SAVING * self.seconds]
        shown = [str(advice) for advice in self.advice if advice not in small]
        if small:
            count = f"{len(small)} {plural('change', len(small))}"
            shown.append(f"{count} would save less than 1% of the time; {holder} has the text")
        return shown

    def _calls(self) -> list[tuple[str, int, float]]:
        """Return the name, the number of calls and the seconds of each of the functions that took longest."""
        functions = sorted(self.functions.items(), key=lambda item: -item[1][1])
        return [(name, count, seconds) for name, (count, seconds) in functions[:10]]

    def as_json(self) -> str:
        """Return the sums, the copies of each array, the functions and the advice as JSON."""
        import json

        sums = {name: value for name, value in vars(self).items() if isinstance(value, (int, float))}
        copies = [{**copy._asdict(), "places": [str(place) for place in copy.places]} for copy in self.copies]
        functions = [
            {"name": name, "times": times, "seconds": seconds} for name, (times, seconds) in self.functions.items()
        ]
        advice = [advice._asdict() for advice in self.advice]
        report = {**sums, "devices": self.devices, "copies": copies, "functions": functions, "advice": advice}
        return json.dumps(report, indent=2)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        copies = [
            (line.direction, line.name, line.device, line.copies, line.took, f"{line.unchanged or ''}", line.place)
            for direction in ("up", "down", "peer")
            for line in _lines(self.copies, direction)[:10]
        ]
        calls = [(name, f"{count} x", time_text(seconds)) for name, count, seconds in self._calls()]
        waits = (f"waiting, {self.waits} {plural('time', self.waits)}", time_text(self.seconds_waiting))
        tables = [html_table(self._title(), (), [waits])]
        if copies:
            tables.append(html_table("Copies", ("", "array", "device", "size", "time", "unchanged", "place"), copies))
        if calls:
            tables.append(html_table("Calls, with what they brought up", ("function", "times", "time"), calls))
        if self.advice:
            tables.append(html_table("Advice", (), [(advice,) for advice in self._shown_advice()]))
        return "".join(tables)

    def __str__(self) -> str:
        return self._text()

    def _text(self, holder: str = "summary.advice") -> str:
        """Return the summary as text. holder: what has the advice that is not shown."""
        lines = [self._title()]
        if self.left_out:
            lines.append(f"{self.left_out} events are missing: there was no room for them")
        for direction, count, nbytes, seconds in (
            ("up", self.copies_up, self.bytes_up, self.seconds_up),
            ("down", self.copies_down, self.bytes_down, self.seconds_down),
            ("peer", self.copies_peer, self.bytes_peer, self.seconds_peer),
        ):
            if direction == "peer" and not count:
                continue
            took = f"{time_text(seconds)}{rate_text(nbytes, seconds)}"
            lines.append(f"{direction:5} {count} {plural('copy', count)}, {size_text(nbytes)}, {took}")
            listed = _lines(self.copies, direction)
            for copies in listed[:10]:
                unchanged = f", unchanged {copies.unchanged}" if copies.unchanged else ""
                at = f"  {copies.place}" if copies.place else ""
                on = f" on {copies.device}" if len(self.devices) > 1 else ""
                lines.append(f"      {copies.name}{on}: {copies.copies}, {copies.took}{unchanged}{at}")
            if len(listed) > 10:
                lines.append(f"      and {len(listed) - 10} more")
            if direction == "up" and self.bytes_spared:
                lines.append(f"      {size_text(self.bytes_spared)} spared: calls read other parts of the arrays")
        lines.append(f"wait  {self.waits} {plural('time', self.waits)}, {time_text(self.seconds_waiting)}")
        for name, count, seconds in self._calls():
            lines.append(f"call  {name}: {count} x, {time_text(seconds)} with its copies up")
        if self.pages_written:
            lines.append(
                f"watch {self.pages_written} {plural('write', self.pages_written)} to watched pages of what stays on a "
                f"device, about {time_text(self.seconds_watching)}"
            )
        lines += [f"advice: {advice}" for advice in self._shown_advice(holder)]
        return "\n".join(lines)


def _sum(events: Iterable[Event], kind: str) -> tuple[int, int, float]:
    chosen = [event for event in events if event.kind == kind]
    if kind in ("up", "down"):  # a coherent device needs no copy of an array
        chosen = [event for event in chosen if event.nbytes]
    return len(chosen), sum(event.nbytes for event in chosen), sum(event.seconds for event in chosen)


def _functions(events: Iterable[Event]) -> dict[str, tuple[int, float]]:
    functions: dict[str, tuple[int, float]] = {}
    for event in events:
        if event.kind in _CALLS or event.name in _GRAPHS:
            name = caller_name(event.name)
            count, seconds = functions.get(name, (0, 0.0))
            functions[name] = (count + 1, seconds + event.seconds)
    return functions


def _copies(events: Iterable[Event]) -> list[Copies]:
    copies: dict[tuple[Any, ...], Copies] = {}
    addresses: dict[tuple[Any, ...], set[int]] = {}
    for event in events:
        if event.kind not in ("up", "down", "peer"):
            continue
        key = (event.kind, event.name, event.nbytes, event.device, event.places)
        so_far = copies.get(key)
        if so_far is None:
            so_far = Copies(event.name, event.nbytes, event.device, event.kind, event.places, 0, 0, 0.0, 0.0, False, 0)
        known = addresses.setdefault(key, set())
        known.add(event.address)
        copies[key] = so_far._replace(
            times=so_far.times + 1,
            unchanged=so_far.unchanged + event.unchanged,
            seconds=so_far.seconds + event.seconds,
            seconds_unchanged=so_far.seconds_unchanged + (event.seconds if event.unchanged else 0.0),
            packed=so_far.packed or event.packed,
            arrays=len(known),
        )
    return list(copies.values())


def range_text(least: int, most: int) -> str:
    """Return "4 KiB", or "4 KiB to 64 MiB" for sizes that differ."""
    first, last = size_text(least), size_text(most)
    return first if first == last else f"{first} to {last}"


def _lines(copies: Iterable[Copies], direction: str) -> list[_Line]:
    """Return the lines of one direction, the longest time first."""
    lines: dict[tuple[str, ...], _Line] = {}
    for copy in copies:
        if copy.direction != direction:
            continue
        place = str(copy.places[0]) if copy.places else ""
        key = (copy.name, copy.device, place)
        line = lines.get(key) or _Line(copy.name, direction, copy.device, place, 0, copy.nbytes, copy.nbytes, 0, 0.0, 0)
        lines[key] = line._replace(
            times=line.times + copy.times,
            least=min(line.least, copy.nbytes),
            most=max(line.most, copy.nbytes),
            nbytes=line.nbytes + copy.times * copy.nbytes,
            seconds=line.seconds + copy.seconds,
            unchanged=line.unchanged + copy.unchanged,
        )
    return sorted(lines.values(), key=lambda line: -line.seconds)


def _is_of_a_library(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package, because advice is about the user's loops."""
    on_path = (os.path.join(os.path.abspath(folder), "") for folder in sys.path)
    return file.startswith(_LIBRARIES) or any(file.startswith(folder) and _holds_packages(folder) for folder in on_path)


@cache
def _holds_packages(folder: str) -> bool:
    """Return whether packages were installed into a folder, such as site-packages or another target of pip."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


def _base_of(copies: Copies) -> str:
    """Return the variable that has the array, or its parts: A for A[:, 1:] or A.T."""
    return copies.name.partition(".")[0].partition("[")[0]


def _line_around(copies: Copies, loop: tuple[Place, Loop] | None, written: bool) -> str:
    """Return the line that opens the advised region. If the array has no name there, the line has none."""
    name, device = _base_of(copies), f', device="{copies.device}"' * (copies.device != Device.default().name)
    is_there = loop is None or (loop[0] == copies.places[0] and name not in loop[1].bound)
    if not name.isidentifier() or not is_there:
        return f"with offload_args(In(ARRAY){device}) as (pointer,):  # write the array's name for ARRAY"
    return f"with offload_args({name if written else f'In({name})'}{device}) as (d{name},):"


def _loop_of(copies: Copies) -> tuple[Place, Loop] | None:
    """Return a loop around the place, or around the nearest caller that is in a loop.

    It is the innermost loop that does not make the array anew; if the array never changed, it is the outermost such
    loop.
    """
    for depth, place in enumerate(copies.places):
        if depth and _is_of_a_library(place.file):
            continue
        loops = loops_around(place.file, place.line, place.function)
        if loops:
            name = _base_of(copies)
            never_changed = copies.unchanged >= copies.times - copies.arrays
            fixed = [loop for loop in loops if name not in loop.bound]
            if depth or not fixed:
                return place, loops[0]
            return place, fixed[-1 if never_changed else 0]
    return None


class _Repetition:
    """Add up the copies, of several sizes and from several callers, for one piece of advice."""

    def __init__(self, remedy: str, line: str = "") -> None:
        self.remedy = remedy
        self.line = line  # the line of the program to write
        self.times = self.unchanged = self.most = 0
        self.least = sys.maxsize
        self.seconds = 0.0

    def add(self, copies: Copies, seconds: float) -> None:
        self.times += copies.times
        self.unchanged += copies.unchanged
        self.least = min(self.least, copies.nbytes)
        self.most = max(self.most, copies.nbytes)
        self.seconds += seconds

    def size(self) -> str:
        return range_text(self.least, self.most)


def _advise(copies: Sequence[Copies]) -> list[Advice]:
    written = {copy.name for copy in copies if copy.direction == "down"}
    repeated: dict[tuple[str, str, int], _Repetition] = {}
    packed: dict[tuple[str, str, str, int], _Repetition] = {}
    for copy in copies:
        if copy.packed and copy.places:
            place = copy.places[0]
            case = packed.setdefault((copy.name, copy.direction, place.file, place.line), _Repetition(f"at {place}"))
            case.add(copy, copy.seconds)
        if (
            copy.direction != "up" or not copy.unchanged or 2 * copy.unchanged < copy.times
        ):  # these copies are needed, because the host changes the array
            continue
        loop = _loop_of(copy)
        if loop is not None:
            file, line = loop[0].file, loop[1].line
            remedy = f"open a region around the loop at {Place(file, line, '')}"
            if copy.times - copy.unchanged > copy.arrays:
                name = _base_of(copy)
                remedy += f", and change {copy.name} within `with update({name if name.isidentifier() else '...'}):`"
        elif copy.places:
            file, line = copy.places[0].file, copy.places[0].line
            remedy = f"open a region around all that uses it, the one at {copy.places[0]} too"
        else:
            file, line, remedy = "", 0, "open a region around all that uses it"
        opens = _line_around(copy, loop, copy.name in written)
        repetition = repeated.setdefault((copy.name, file, line), _Repetition(remedy, opens))
        repetition.remedy = max(repetition.remedy, remedy, key=len)  # one of several sizes may change
        repetition.add(copy, copy.seconds_unchanged)
    advice = [
        Advice(
            f"{name} ({case.size()}) is packed each time it goes {direction}, {case.times} "
            f"{plural('time', case.times)}: lend a contiguous array {case.remedy} (it took {time_text(case.seconds)})",
            file,
            line,
            0.0,
        )
        for (name, direction, file, line), case in packed.items()
    ]
    advice += [
        Advice(
            f"{name} ({case.size()}) went up {case.times} {plural('time', case.times)}, unchanged {case.unchanged}: "
            f"{case.remedy} (saves {time_text(case.seconds)}): {case.line}",
            file,
            line,
            case.seconds,
        )
        for (name, file, line), case in repeated.items()
    ]
    return sorted(advice, key=lambda value: -value.seconds)


def _advise_on_grids(events: Iterable[Event]) -> list[Advice]:
    """Advise on kernels if most of their launches had fewer blocks than half of the device's multiprocessors."""
    launches: dict[tuple[str, str, tuple[Place, ...]], list[Event]] = {}
    for event in events:
        if event.multiprocessors:
            launches.setdefault((event.name, event.device, event.places[:1]), []).append(event)
    advice = []
    for (name, device, places), group in launches.items():
        few = [event.blocks for event in group if 2 * event.blocks < event.multiprocessors]
        if 2 * len(few) <= len(group):
            continue
        blocks = f"{min(few)}" if min(few) == max(few) else f"{min(few)} to {max(few)}"
        count = group[0].multiprocessors
        advice.append(
            Advice(
                f"{name} was launched {len(group)} {plural('time', len(group))}, {len(few)} of them with a grid of "
                f"{blocks} {plural('block', max(few))}: most of the {count} multiprocessors of {device} had no block; "
                f"launch {count} blocks or more, of fewer threads if need be",
                places[0].file if places else "",
                places[0].line if places else 0,
                0.0,
            )
        )
    return advice
