"""Ranks of a communicator, as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from helpers.launches import LATE
from offload_args import Communicator

Result = TypeVar("Result")


def on_ranks(
    function: Callable[[Communicator], Result], devices: Sequence[str], *, debug: bool = False, timeout: float = LATE
) -> list[Result | BaseException]:
    """Return the result, or the exception, of a function on each rank. A rank ends when its function does."""
    results: list[Result | BaseException] = [RuntimeError("it did not run")] * len(devices)

    def run(communicator: Communicator) -> None:
        with communicator:
            try:
                results[communicator.rank] = function(communicator)
            except BaseException as error:
                results[communicator.rank] = error

    communicators = Communicator.all(devices, debug=debug, timeout=timeout)
    threads = [threading.Thread(target=run, args=(communicator,)) for communicator in communicators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def all_right(results: Sequence[Result | BaseException]) -> list[Result]:
    """Return the results; raise the first exception among them."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
