"""Work on another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


def on_a_new_thread(work: Callable[[], object]) -> None:
    """Run a function on a new thread to its end, and raise its exception."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
