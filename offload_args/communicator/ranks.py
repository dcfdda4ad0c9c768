"""Ranks that are threads of this process; each thread runs one function to its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CommunicatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run_ranks"]

_Result = TypeVar("_Result")


def run_ranks(
    function: Callable[..., _Result], communicators: Sequence[Any], arguments: tuple[Any, ...]
) -> list[_Result]:
    """Return the results of function(communicator, *arguments).

    If there are several ranks, each runs on a separate thread.

    Raises the first exception that is not a CommunicatorError. If there is none, raises the first CommunicatorError.
    Ctrl-C ends the waits of all ranks.
    """
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    def run(communicator: Any) -> None:
        try:
            with communicator:
                results[communicator.rank] = function(communicator, *arguments)
        except BaseException as error:
            errors.append(error)

    if len(communicators) == 1:
        run(communicators[0])
    else:
        threads = [threading.Thread(target=run, args=(communicator,)) for communicator in communicators]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            for communicator in communicators:
                communicator.close()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise
    if errors:
        raise next((error for error in errors if not isinstance(error, CommunicatorError)), errors[0])
    return [results[communicator.rank] for communicator in communicators]
