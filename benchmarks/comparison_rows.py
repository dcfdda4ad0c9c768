"""The rows of a comparison: measured times of the same work, with goals. compare.py and sizes.py import it."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Loop = Callable[[int], float]  # does its work so many times, and returns the seconds

OURS = "offload_args"
CALL = "offload_args.call"


@dataclass(frozen=True)
class Goal:
    """A goal: at most `most` times the time of another contender, or a limit `value`; NaN until it is measured."""

    text: str
    value: float
    limit: float
    at_most: bool = True

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return f"{self.text}: not measured"
        met = self.value <= self.limit if self.at_most else self.value >= self.limit
        return f"{self.text}: {self.value:,.4g}, {'met' if met else 'missed'}"


@dataclass
class Row:
    work: str
    unit: str = "us"
    median: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    note: str = ""

    def over(self, other: str, own: str = OURS) -> float:
        """Return the ratio of two medians; NaN if one of them is missing."""
        return self.median.get(own, np.nan) / self.median.get(other, np.nan)

    def cell(self, name: str) -> str:
        if name in self.failed:
            return "failed: " + self.failed[name].replace("|", "/").replace("\n", " ")[:80]
        if name not in self.median:
            return "—"
        ratio = "" if name in (OURS, CALL) or OURS not in self.median else f" ({self.over(name):.2f})"
        return f"{self.median[name]:,.{1 if self.median[name] < 100 else 0}f}{ratio}"


def calls(once: Callable[[], object]) -> Loop:
    def loop(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            once()
        return time.perf_counter() - start

    return loop


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()


def quiet() -> None:
    """Wait at most a second until no thread of this process computes.

    When their work is done, threads of BLAS libraries spin for a tenth of a second, on cores that the next run needs. A
    thread's time is counted in ticks of 4 ms.
    """
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 1e-3:
            return


def measure(row: Row, loops: dict[str, Loop], seconds: float, per: int = 1, most: int = 31) -> None:
    """Time the loops in turn, for `seconds` and at least 3 rounds each. A time is in µs per work of the loop.

    A slow loop makes fewer rounds than the others. A loop that raises is noted as failed and left out. A round begins
    when nothing else of this process runs, and after at least one uncounted run, so that cores and caches belong to it.
    """
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in loops}

    def attempt(name: str, count: int) -> float:
        try:
            return loops[name](count)
        except Exception as error:
            row.failed[name] = said(error)
            return np.nan

    for name in loops:
        quiet()
        warm = [attempt(name, 1) for _ in range(2)]  # the first runs may be slower, because pools fill and cores wake
        while name not in row.failed and sum(warm) < 0.05 and len(warm) < 1000:
            warm.append(attempt(name, 1))
        counts[name] = int(min(max(3e-2 / max(min(warm), 1e-7), 1), 1000)) if name not in row.failed else 1
    gc.collect()
    gc.disable()
    try:
        for i in range(most):
            due = [
                name
                for name in loops
                if name not in row.failed and (i < 3 or sum(times[name]) * counts[name] < seconds)
            ]
            for name in due:
                quiet()
                attempt(name, counts[name] // 4 + 1)
                times[name].append(attempt(name, counts[name]) / counts[name])
            if not due:
                break
    finally:
        gc.enable()
    for name, seen in times.items():
        if seen and name not in row.failed:
            row.median[name] = statistics.median(seen) * 1e6 / per
            row.best[name] = min(seen) * 1e6 / per
            row.rounds[name] = len(seen)


def contenders(
    row: Row, *shape: int
) -> tuple[dict[str, tuple[Loop, Array]], Callable[[str, Callable[[Array], Loop]], None]]:
    """Return {name: (loop, array of its result)}, and a function that adds a loop, which gets the array or fails."""
    loops: dict[str, tuple[Loop, Array]] = {}

    def add(name: str, make: Callable[[Array], Loop]) -> None:
        result = np.zeros(shape, np.float32)
        try:
            loops[name] = make(result), result
        except Exception as error:
            row.failed[name] = said(error)

    return loops, add


def right_once(once: Callable[[], object]) -> float:
    """Return the µs of one call."""
    return calls(once)(1) * 1e6
