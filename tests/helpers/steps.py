"""Steps of a program that are made on threads, and their results."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from helpers.model import Outcome
from helpers.processes import SLOWNESS
from offload_args import Device, DevicePtr, blas, offload_args, testing

HUNG_S: Final = 60 * SLOWNESS
DELAY_US: Final = 3000  # of each operation of a simulated device, while two steps are made at once


@dataclass
class Came:
    """The result of a step: a value or an error."""

    error: BaseException | None = None
    value: object = None

    def agrees(self, outcome: Outcome) -> bool:
        if self.error is not None:
            return type(self.error).__name__ in outcome.errors
        return not outcome.errors and (outcome.value is None or self.value == outcome.value)

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error else f"no error, and {self.value}"


def attempt(step: Callable[[], object]) -> Came:
    try:
        return Came(value=step())
    except Exception as error:
        return Came(error.with_traceback(None))


class Worker:
    """A thread that makes the steps it is handed, one after the other."""

    def __init__(self) -> None:
        self._handed: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._handed.get()()

    def begin(self, step: Callable[[], object]) -> Callable[[], Came]:
        """Hand a step over; returns a function that waits for its result."""
        came: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self._handed.put(lambda: came.put(attempt(step)))

        def wait() -> Came:
            try:
                return came.get(timeout=HUNG_S)
            except queue.Empty:
                return Came(TimeoutError(f"not done within {HUNG_S} s"))

        return wait


@lru_cache(maxsize=1)
def workers() -> tuple[Worker, Worker]:
    return Worker(), Worker()


def at_once(first: Callable[[], object], second: Callable[[], object], *devices: str) -> list[Came]:
    """Make two steps on two threads, the second while what the first began is in flight on simulated devices."""
    simulated = [Device(name).index for name in devices if name.startswith("sim:")]
    for index in simulated:
        testing.sim_device(delay_us=DELAY_US, index=index)
    try:
        waits = [workers()[0].begin(first)]
        time.sleep(0.001)
        waits.append(workers()[1].begin(second))
        return [wait() for wait in waits]
    finally:
        for index in simulated:
            testing.sim_device(index=index)


def on_thread(number: int, step: Callable[[], object]) -> object:
    """Make a step on one of the two threads, 1 or 2, and return its value."""
    came = workers()[number - 1].begin(step)()
    if came.error:
        raise came.error
    return came.value


def raised(region: offload_args) -> bool:
    """Leave a region by an exception, and tell whether that has a note of discarded results."""
    error = KeyError()
    region.__exit__(KeyError, error, None)
    return any("discarded" in note for note in getattr(error, "__notes__", ()))


def held(x: DevicePtr[np.float64]) -> list[float]:
    """Return the elements of a vector or matrix on its device."""
    copy = np.zeros(x.shape)
    with offload_args(copy, device=x.device) as (dcopy,):
        for i in range(1 if x.ndim == 1 else x.shape[0]):
            blas.copy(*((x, dcopy) if x.ndim == 1 else (x[i], dcopy[i])))
    return copy.ravel().tolist()
