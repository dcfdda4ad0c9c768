"""Steps of a program that are made on threads, and their results."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from helpers.model import Outcome
from helpers.processes import SLOWNESS
from kernels.images import module_for
from offload_args import Device, DevicePtr, In, Kernel, Module, Out, blas, offload_args, testing
from offload_args.errors import OffloadError
from offload_args.graphs import Capture

HUNG_S: Final = 300 * SLOWNESS
DELAY_US: Final = 3000  # of each operation of a simulated device, while steps run at the same time or are in flight


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
    """A thread that makes the steps that it gets, one after the other."""

    def __init__(self) -> None:
        self._handed: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._handed.get()()

    def begin(self, step: Callable[[], object]) -> Callable[[], Came]:
        """Pass a step to the thread; return a function that waits for its result."""
        came: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self._handed.put(lambda: came.put(attempt(step)))

        def wait() -> Came:
            try:
                return came.get(timeout=HUNG_S)
            except queue.Empty:
                return Came(TimeoutError(f"not done within {HUNG_S} s"))

        return wait


@lru_cache(maxsize=1)
def workers() -> tuple[Worker, ...]:
    return tuple(Worker() for _ in range(4))


def at_once(devices: Sequence[str], *steps: Callable[[], object]) -> list[Came]:
    """Make each step on a thread, while the operations of earlier steps are in flight on simulated devices."""
    simulated = [Device(name).index for name in devices if name.startswith("sim:")]
    for index in simulated:
        testing.sim_device(delay_us=DELAY_US, index=index)
    try:
        waits = []
        for worker, step in zip(workers(), steps, strict=False):
            if waits:
                time.sleep(0.001)
            waits.append(worker.begin(step))
        return [wait() for wait in waits]
    finally:
        for index in simulated:
            testing.sim_device(index=index)


def in_flight(device: str, step: Callable[[], object]) -> object:
    """Make a step and return its value while the first of its operations on a simulated device is under way."""
    index = Device(device).index
    testing.sim_device(delay_us=DELAY_US, index=index)
    try:
        value = step()
        time.sleep(0.0003)
        return value
    finally:
        testing.sim_device(index=index)  # without a delay for operations that have not begun


def on_thread(number: int, step: Callable[[], object]) -> object:
    """Make a step on one of the threads, 1 to 4, and return its value."""
    came = workers()[number - 1].begin(step)()
    if came.error:
        raise came.error
    return came.value


def raised(region: offload_args) -> bool:
    """Leave a region by an exception, and return whether the exception has a note about discarded results."""
    error = KeyError()
    region.__exit__(KeyError, error, None)
    return any("discarded" in note for note in getattr(error, "__notes__", ()))


@lru_cache(maxsize=8)
def vadd_on(device: Device) -> Kernel:
    module = Module.load(module_for(device.name))
    return module.kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)


def add(x: DevicePtr[np.float32], y: DevicePtr[np.float32], z: DevicePtr[np.float32]) -> None:
    """Launch a kernel that adds vectors."""
    vadd_on(x.device)[1, 64](x, y, z, x.size)


def captured(names: dict[str, Any], name: str, capture: Capture, *calls: Callable[[], object]) -> list[str | None]:
    """Capture calls in a graph, which gets its name before the calls are made; return the errors that they raised."""
    errors: list[str | None] = []
    with capture as names[name]:
        for call in calls:
            try:
                call()
            except OffloadError as error:
                errors.append(type(error).__name__)
            else:
                errors.append(None)
    return errors


def write_and_raise(writing: AbstractContextManager[Any], key: str, value: float) -> None:
    """Write a part of an array in a block of `update`, and leave the block by an exception."""
    with suppress(KeyError), writing as array:
        exec(f"array{key} = value", {"array": array, "value": value})
        raise KeyError


def write_and_call(
    writing: AbstractContextManager[Any], key: str, values: tuple[float, float], call: Callable[[], object]
) -> object:
    """Write a part of an array in a block of `update`, make a call, write again, and return the call's result."""
    with writing as array:
        exec(f"array{key} = value", {"array": array, "value": values[0]})
        result = call()
        exec(f"array{key} = value", {"array": array, "value": values[1]})
    return result


def held(x: DevicePtr[Any]) -> list[Any]:
    """Return the elements of a vector or matrix on its device."""
    copy = np.zeros(x.shape, x.dtype)
    with offload_args(copy, device=x.device) as (dcopy,):
        for i in range(1 if x.ndim == 1 else x.shape[0]):
            blas.copy(*((x, dcopy) if x.ndim == 1 else (x[i], dcopy[i])))
    return copy.ravel().tolist()
