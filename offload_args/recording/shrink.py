"""Shrinking: finds the fewest calls and the least sizes with which a fault of a recording still shows.

The calls that are needed are found by delta debugging (Zeller and Hildebrandt, 2002). Then each size is made as small
as possible in all events, and arrays get simple contents. A smaller recording is accepted if the same line of the
program has the same fault.
"""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from .. import _core
from .._table import LIBRARIES
from ..devices import Device
from ..errors import ArgumentError
from . import order
from .layout import dtype_named, flat
from .predicate import Check
from .replay import Event, Replay, compared
from .script import script
from .stream import CALLS, read

__all__ = ["Shrunk", "outcome", "shrink"]

#: The kinds of events that may be left out. Other events are descriptions, or begin or end a region.
_ACTIONS: Final = {"blas", "call", "fill", "assign", "copy", "fft", "stage", "scratch", "update_from", "update_to"}
_MOST = 100_000  # the most actions; the actions of each replay of a graph count
_LONGEST = 60  # the most seconds that the script may run
_REPEATS = 3  # how often an ordering error has to show, because it depends on time


class Shrunk(NamedTuple):
    """The smallest recording that was found."""

    script: str  #: the recording as a program
    fault: str
    kind: str  #: the name of the exception that ends the script
    before: int  #: the number of calls and copies before
    after: int
    trials: int


class _Fault(NamedTuple):
    """A fault of a replay, and the part of its text that does not change with fewer calls."""

    text: str
    subject: str
    call: int = 0  #: the number of its call; 0 if it is a fault of all calls together
    order: order.Fault | None = None  #: of an ordering error


class _Search:
    """The replays that look for one fault."""

    def __init__(self, file: str, predicate: str, device: Device | None) -> None:
        self.file, self.predicate, self.device = file, predicate, device
        self.check = None if predicate in ("differs", "fails") else Check(predicate)
        self.subject = ""  # the subject of the wanted fault; "" for any subject
        self.is_order = False  # whether the wanted fault is an ordering error
        self.trials = 0

    def fault(self, events: list[Event]) -> _Fault | None:
        """Return the first fault of the subject, or None."""
        if self.predicate == "differs" and (self.is_order or self.subject == ""):
            return self._order_fault(events)
        replay = Replay(self.device, self.predicate == "differs", 1, None, self._compared)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = replay.run(self.file, events)
        if self.check is not None:
            shows = not report.failures and self.check(replay.arrays, replay.results)
            return _Fault(f"{self.check.text} is true", self.check.text) if shows else None
        return self._first(report.differences if self.predicate == "differs" else report.failed)

    def _order_fault(self, events: list[Event]) -> _Fault | None:
        """Return the first difference of the subject; it may be an ordering error."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report, fault = compared(self.file, events, self.device)
        texts = [text for text in report.differences if text.startswith("call ")]
        first = self._first([text for text in texts if order.NAME in text or not self.is_order])
        return first._replace(order=fault) if first is not None and order.NAME in first.text else first

    def _first(self, texts: list[str]) -> _Fault | None:
        faults = (_Fault(text, self._subject(text), int(text.split(",")[0].removeprefix("call "))) for text in texts)
        return next((fault for fault in faults if self.subject in ("", fault.subject)), None)

    def shows(self, events: list[Event]) -> bool:
        """Return whether fewer or smaller events have the fault, too."""
        self.trials += 1
        try:
            return all(self.fault(events) is not None for _ in range(_REPEATS if self.is_order else 1))
        except ArgumentError:  # the events have no meaning, or lack a value that the predicate uses
            return False

    @property
    def _compared(self) -> str:
        return self.subject if self.predicate == "differs" and not self.is_order else ""

    def _subject(self, fault: str) -> str:
        """Return the name and line of a fault's call, and the text of an error."""
        call = re.sub(r"^call \d+, ", "", fault)
        if self.predicate == "differs":
            return call.partition(": ")[0]
        place, _, error = call.partition(": ")
        return f"{place}: {re.sub(r'[0-9]+', '', error)}"


def shrink(file: str, predicate: str, device: Device | None) -> Shrunk:
    """Find a smaller recording with the first fault of a file.

    predicate: "differs" if the fault is a call's results that differ from the host's, "fails" if it is a call that
    raises an error, or else the text of a Check, which is true for a replay with the fault.

    Raises ArgumentError if the file can't be replayed, if none of its calls has such a fault, or if a Check raises an
    exception.
    """
    search = _Search(file, predicate, device)
    events = _plain(list(read(file)), file)
    if search.check is not None:
        events = [event for event in events if "error" not in event]
    fault = search.fault(events)
    if fault is None:
        reason = f"no call of {file} {predicate} here" if search.check is None else f"{predicate} is not true of {file}"
        raise ArgumentError(f"replay: {reason}: there is nothing to shrink")
    search.subject, search.is_order = fault.subject, fault.order is not None
    before = sum(next(iter(event)) in _ACTIONS for event in events)
    if fault.call and search.shows(through := _through(events, fault.call)):
        events = through
    for reduce in (_fewer_actions, _fewer_arrays, _smaller_sizes, _simple_contents, _fewer_actions, _fewer_arrays):
        events = reduce(events, search.shows)
    last = next(filter(None, (search.fault(events) for _ in range(5 * _REPEATS))), fault)
    after = sum(next(iter(event)) in _ACTIONS for event in events)
    compares = predicate == "differs" and last.order is None
    text = script(file, events, last.text, device, compares, search._compared, search.check, last.order)
    kind = last.subject.partition(": ")[2].partition(":")[0] if predicate == "fails" else "AssertionError"
    return Shrunk(text, last.text, kind, before, after, search.trials)


def outcome(shrunk: Shrunk, device: Device | None = None) -> str:
    """Run the script in a separate process, and describe its end. `device` replaces the script's device."""
    text = shrunk.script
    if device is not None:
        text = re.sub(r"device='[a-z]+(:\d+)?'\) as \(", f"device={device.name!r}) as (", text)
    place = f" on {device.name}" if device is not None else ""
    with tempfile.TemporaryDirectory(prefix="offload_args") as folder:
        path = Path(folder, "shrunk.py")
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        try:
            command = [sys.executable, str(path)]
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LONGEST, text=True
            )
        except subprocess.TimeoutExpired:
            return f"run alone{place}, it does not end in {_LONGEST} s"
    if ran.returncode < 0:
        return f"run alone{place}, it is ended by {signal.Signals(-ran.returncode).name}"
    if ran.returncode == 0:
        return f"run alone{place}, it does not show the fault"
    lines = [line for line in ran.stderr.splitlines() if re.match(r"[\w.]+(:|$)", line)]
    shown = [line for line in lines if line.partition(":")[0].rpartition(".")[2] == shrunk.kind]
    if shown:
        return f"run alone{place}, it shows the fault: {shown[-1]}"
    return f"run alone{place}, it does not show the fault, but ends with {lines[-1] if lines else 'no error'}"


def _plain(events: list[Event], file: str) -> list[Event]:
    """Return the events without recorded results; the events of each replay of a graph replace the replay."""
    plain: list[Event] = []
    chains: dict[int, list[Event]] = {}
    capturing: dict[int, int] = {}
    count = 0
    for event in events:
        kind = next(iter(event))
        if kind == "begun":
            continue
        if kind == "capture":
            capturing[event["thread"]] = event["capture"]
            chains[event["capture"]] = []
        elif kind == "captured":
            capturing = {thread: chain for thread, chain in capturing.items() if chain != event["captured"]}
        elif kind == "graph":
            steps = [step for step in chains.get(event["graph"], []) if "error" not in step]
            count += len(steps) * event["times"]
            if count > _MOST:
                raise ArgumentError(f"replay: {file} has graphs of more than {_MOST} calls: too many to shrink")
            plain += steps * event["times"]
        elif kind in _ACTIONS and event.get("thread") in capturing:
            chains[capturing[event["thread"]]].append(event)
        else:
            plain.append(event | {"arrays": {}} if kind == "leave" else event)
    return plain


def _through(events: list[Event], number: int) -> list[Event]:
    """Return the events without the actions after a call."""
    calls, kept = 0, []
    for event in events:
        kind = next(iter(event))
        if kind not in _ACTIONS or calls < number:
            kept.append(event)
        calls += kind in CALLS
    return kept


Shows = Callable[[list[Event]], bool]


def _fewer_actions(events: list[Event], shows: Shows) -> list[Event]:
    """Leave out actions, by delta debugging: large groups of actions first, then smaller groups."""
    units = [position for position, event in enumerate(events) if next(iter(event)) in _ACTIONS]

    def kept(some: Iterable[int]) -> list[Event]:
        wanted = set(some)
        return [
            event
            for position, event in enumerate(events)
            if position in wanted or next(iter(event)) not in {*_ACTIONS, "launch"}
        ]

    parts = 2
    while len(units) > 1:
        size = -(-len(units) // parts)
        for start in range(0, len(units), size):
            rest = units[:start] + units[start + size :]
            if shows(kept(rest)):
                units, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(units))
    return kept(units)


def _fewer_arrays(events: list[Event], shows: Shows) -> list[Event]:
    """Leave out arrays that no action uses, and regions without arrays."""
    used = {
        operand["p"]
        for event in events
        if next(iter(event)) in _ACTIONS
        for operand in flat([*event.values(), *event.get("args", ()), *event.get("names", {}).values()])
        if isinstance(operand, dict) and "p" in operand
    }
    fewer, regions = [], set()
    for event in events:
        if "enter" in event:
            rows = [row for row in event["arrays"] if row["pointer"] in used]
            if rows:
                regions.add(event["enter"])
                fewer.append(event | {"arrays": rows})
        elif "leave" not in event or event["leave"] in regions:
            fewer.append(event)
    return fewer if shows(fewer) else events


def _smaller_sizes(events: list[Event], shows: Shows) -> list[Event]:
    """Make each size smaller, in all events."""
    tried: set[tuple[int, int]] = set()
    while True:
        sizes = {size for event in events for row in _rows(event) for size in row["shape"]}
        sizes |= {size for event in events if "call" in event for size in _sizes_of(event)}
        pairs = [
            (old, new)
            for old in sorted(sizes, reverse=True)
            for new in sorted({1, 2, 3, 4, 5, 8, old // 4, old // 2, old - 1})
            if 0 < new < old and (old, new) not in tried
        ]
        for old, new in pairs:
            tried.add((old, new))
            smaller = _resized(events, old, new)
            if smaller is not None and shows(smaller):
                events = smaller
                break
        else:
            return events


def _rows(event: Event) -> list[Event]:
    """Return the descriptions of arrays and memory of an event."""
    if "enter" in event:
        return list(event["arrays"])
    return [event] if "scratch" in event else []


def _is_size(event: Event, position: int) -> bool:
    """Return whether the argument of a call at a position may be a size."""
    if "call" not in event:
        return True
    library, _, routine = event["call"].partition(".")
    rows = _core.record(library, routine) if library in LIBRARIES else ()
    return position >= len(rows) or rows[position][0] != "enum"


def _sizes_of(event: Event) -> set[int]:
    return {
        value
        for position, value in enumerate(event["args"])
        if type(value) is int and value > 1 and _is_size(event, position)
    }


def _resized(events: list[Event], old: int, new: int) -> list[Event] | None:
    """Return the events with another size; None if an array's layout has no counterpart."""
    layouts: dict[int, tuple[list[int], list[int]]] = {}  # {pointer: its strides before and after}
    resized: list[Event] = []

    def size(value: int) -> int:
        return new if value == old else value

    def row_of(row: Event) -> Event:
        itemsize = dtype_named(row["dtype"]).itemsize
        shape = [size(extent) for extent in row["shape"]]
        strides = _restrided(row["shape"], row["strides"], shape, itemsize, size)
        layouts[row["pointer"] if "pointer" in row else row["scratch"]] = list(row["strides"]), strides
        other = row | {"shape": shape, "strides": strides}
        other.pop("packed", None)
        if "data" in row:
            values = np.frombuffer(base64.b64decode(row["data"]), dtype_named(row["dtype"])).reshape(row["shape"])
            part = np.ascontiguousarray(values[tuple(map(slice, shape))])
            other["data"] = base64.b64encode(part.tobytes()).decode()
        return other

    def value_of(value: Any, is_size: bool) -> Any:
        if isinstance(value, list):
            return [value_of(part, False) for part in value]
        if isinstance(value, dict) and "p" in value and "offset" in value and value["p"] in layouts:
            before, after = layouts[value["p"]]
            return value | _part(value, before, after, size)
        return size(value) if is_size and type(value) is int else value

    try:
        for event in events:
            kind = next(iter(event))
            if kind == "enter":
                resized.append(event | {"arrays": [row_of(row) for row in event["arrays"]]})
            elif kind in ("blas", "call"):
                arguments = [value_of(value, _is_size(event, place)) for place, value in enumerate(event["args"])]
                names = {name: value_of(value, True) for name, value in event.get("names", {}).items()}
                resized.append(event | {"args": arguments} | ({"names": names} if names else {}))
            elif kind == "scratch":
                resized.append(row_of(event) | {"beside": value_of(event["beside"], False)})
            elif kind in _ACTIONS and kind not in ("update_from", "update_to"):
                resized.append({key: value_of(value, False) for key, value in event.items()})
            else:
                resized.append(event)
    except (IndexError, ValueError):
        return None
    return resized


def _restrided(
    shape: list[int], strides: list[int], other: list[int], itemsize: int, size: Callable[[int], int]
) -> list[int]:
    """Return strides for another shape.

    The strides are as dense as before. A gap keeps its width unless the width is a size, too.
    """
    result, dense_before, dense = list(strides), itemsize, itemsize
    for axis in sorted(range(len(shape)), key=lambda axis: (abs(strides[axis]), shape[axis])):
        if strides[axis] == dense_before or shape[axis] == 1:
            result[axis] = dense
        else:
            result[axis] = size(strides[axis] // itemsize) * itemsize
        dense_before = abs(strides[axis]) * shape[axis]
        dense = abs(result[axis]) * other[axis]
    return result


def _part(value: Event, before: list[int], after: list[int], size: Callable[[int], int]) -> Event:
    """Return a part of an array whose strides have changed. Its first element has the same indices."""
    rest, offset = value["offset"], 0
    for axis in sorted(range(len(before)), key=lambda axis: -before[axis]):
        if before[axis] <= 0:
            raise ValueError(before)
        offset += rest // before[axis] * after[axis]
        rest %= before[axis]
    strides = []
    for stride in value["strides"]:
        axis = max((a for a in range(len(before)) if stride % before[a] == 0), key=lambda a: before[a])
        strides.append(stride // before[axis] * after[axis])
    return {"offset": offset, "shape": [size(extent) for extent in value["shape"]], "strides": strides}


def _simple_contents(events: list[Event], shows: Shows) -> list[Event]:
    """Give arrays the elements 1, 2, 3 and so on, if the fault shows with these elements."""
    simple: list[Event] = []
    lent: dict[int, set[int]] = {}  # the memory of open regions
    for event in events:
        rows = []
        if "leave" in event:
            lent.pop(event["leave"], None)
        open_memory = set().union(*lent.values())
        for row in event["arrays"] if "enter" in event else ():
            if "buffer" in row and row["buffer"] not in open_memory:
                lent.setdefault(event["enter"], set()).add(row["buffer"])
                values = np.arange(1, 1 + np.prod(row["shape"], dtype=int)).astype(dtype_named(row["dtype"]))
                digest = f"{len(simple):x}"
                row = row | {"hash": digest, "data": base64.b64encode(values.tobytes()).decode()}
            rows.append(row)
        simple.append(event | {"arrays": rows} if "enter" in event else event)
    return simple if shows(simple) else events
