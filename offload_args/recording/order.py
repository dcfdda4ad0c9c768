"""Ordering errors: calls that give other results if the device is not waited for after each call.

A recording is replayed twice: without waits, as the program ran, and with a wait after each call and copy, while the
calls are compared. If results of a region differ, the first call after which arrays differ is found by bisection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compare import distance
from .layout import flat
from .stream import CALLS

__all__ = [
    "NAME",
    "Fault",
    "Stale",
    "Unlike",
    "Values",
    "before",
    "exchanges",
    "first_difference",
    "insert",
    "numbered",
]

NAME = "an ordering error"  #: in the text of each
_MOST = 40  # the most calls of a region that are tried in another order


class Stale(NamedTuple):
    """A difference of a region's results, or of a number, from the same calls without waits between them."""

    region: int
    place: str
    calls: list[int]  #: of the region, until then
    most: float  #: the greatest difference that rounding explains
    off: float = 0.0
    returned: Any = None  #: the number that the last of them returned; None: arrays differ


class Values(NamedTuple):
    """The arrays of a region after a call."""

    arrays: dict[int, tuple[str, NDArray[Any]]]  #: with their names, by the numbers of their pointers
    called: str  #: the call's name and line


class Fault(NamedTuple):
    """The first call whose results change without waits."""

    call: int  #: its number
    pointer: int  #: the number of the array that differs; 0: the number that the call returns
    element: tuple[int, ...]  #: the index of an element that differs
    expected: Any  #: the element, or the number, with waits
    most: float  #: the greatest difference that rounding explains


class Unlike(NamedTuple):
    """A region whose results in the recording differ from its results in a replay."""

    region: int
    calls: list[int]
    most: float  #: the greatest difference that rounding explains
    results: dict[int, NDArray[Any]]  #: in the recording, by the numbers of pointers


#: Replays up to a call, without or with waits, then ends the region after all work.
Run = Callable[[int, bool], Values]


def first_difference(stale: Stale, run: Run) -> tuple[str, Fault | None]:
    """Describe the first call after which arrays differ; the region if none differ after its last call.

    In that case its results came to the host too early, or the error does not show each time.
    """
    calls = stale.calls
    late = _difference(stale, run, calls[-1])
    if late is None:
        if stale.returned is not None:  # this call read an operand too early, and wrote no array
            text = _described(calls[-1], run(calls[-1], True).called, "the result", stale.off, stale.most)
            return text, Fault(calls[-1], 0, (), stale.returned, stale.most)
        place = f"calls {calls[0]} to {calls[-1]}, in the region of {stale.place}"
        return f"{place}: results differ unless each call is waited for, {NAME}", None
    good, bad = -1, len(calls) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        now = _difference(stale, run, calls[middle])
        if now is None:
            good = middle
        else:
            bad, late = middle, now
    return late


def _difference(stale: Stale, run: Run, last: int) -> tuple[str, Fault] | None:
    """Return a description of an array that differs after a call, and the fault; None if none does."""
    without, ordered = run(last, False), run(last, True)
    for pointer, (name, expected) in ordered.arrays.items():
        now = without.arrays[pointer][1] if pointer in without.arrays else expected
        off = distance(now, expected)
        if not off <= stale.most:
            apart = np.abs(now.astype("c16") - expected.astype("c16"))
            place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), now.shape)
            index = tuple(int(i) for i in place)
            text = _described(last, without.called, name, off, stale.most)
            return text, Fault(last, pointer, index, expected[index].item(), stale.most)
    return None


def _described(number: int, called: str, name: str, off: float, most: float) -> str:
    return (
        f"call {number}, {called}: {name} is off by {off:.3g} unless each call is waited for, {NAME}; at most "
        f"{most:.3g} is due to rounding"
    )


def numbered(events: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each call with its number."""
    return enumerate((event for event in events if next(iter(event)) in CALLS), 1)


def exchanges(events: list[dict[str, Any]], calls: list[int]) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
    """Yield two calls of a region that share an array, and the events with the later call before the earlier call.

    Nothing is yielded for regions of many calls.
    """
    wanted = sorted(set(calls))
    if len(wanted) > _MOST:
        return
    rows = dict(numbered(events))
    for place, call in enumerate(wanted):
        for earlier in reversed(wanted[:place]):
            if _arrays(rows[call]) & _arrays(rows[earlier]):
                moved = [event for event in events if event is not rows[call]]
                moved.insert(next(i for i, event in enumerate(moved) if event is rows[earlier]), rows[call])
                yield call, earlier, moved


def _arrays(call: dict[str, Any]) -> set[int]:
    operands = flat([*call["args"], *call.get("names", {}).values()])
    return {operand["p"] for operand in operands if isinstance(operand, dict) and "p" in operand}


def before(call: int, earlier: int, name: str, place: str) -> str:
    """Describe a call that ran before an earlier call."""
    return f"call {call}, {name}, {place}: the recorded results show it before call {earlier}, {NAME}"


def insert(differences: list[str], text: str, call: int) -> None:
    """Insert a difference of a call: before later calls, and before regions that end with it or after it."""
    for position, difference in enumerate(differences):
        match = re.match(r"(calls?) (?:\d+ to )?(\d+)", difference)
        if match is not None and (int(match[2]), match[1]) > (call, "call"):
            differences.insert(position, text)
            return
    differences.append(text)
