"""Checks that work does not increase the memory of its process."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable


def resident_set() -> int:
    """Return the bytes of the process that are in memory."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def check_no_leak(run: Callable[[], object], most: int) -> None:
    """Check that one of three runs adds at most so many bytes.

    The kernel adds pages now and then, but a leak adds them in each run.
    """
    run()
    used = [resident_set()]
    while len(used) == 1 or (used[-1] - used[-2] > most and len(used) < 4):
        run()
        used.append(resident_set())
    assert used[-1] - used[-2] <= most, used
