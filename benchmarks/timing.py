"""Time runs for the other benchmarks, and give them CuPy for comparisons."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from offload_args import Device

Run = Callable[[], object]


def median(run: Run, wait: Run, rounds: int, unit: float = 1e-3) -> float:
    """Return the median time of a run with a wait for it, after a warm-up.

    `unit` is the unit of the time, in seconds.
    """
    taken = []
    run()
    wait()
    gc.disable()
    for _ in range(rounds):
        begun = perf_counter()
        run()
        wait()
        taken.append(perf_counter() - begun)
    gc.enable()
    return statistics.median(taken) / unit


def cupy_for(device: Device) -> Any:
    """Return CuPy, for comparisons on a CUDA device; None for another device, or if CuPy is not installed."""
    if not device.name.startswith("cuda"):
        return None
    try:
        import cupy
    except ImportError:
        print("CuPy is not installed")
        return None
    return cupy
