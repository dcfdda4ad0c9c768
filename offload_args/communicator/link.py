"""The contract of links, which carry bytes between ranks of host devices, and do not combine them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]  # one dimension, no gaps

__all__ = ["Link", "LostRanksError", "bytes_of", "remaining"]

_WEEK: Final = 604_800.0  # seconds


class LostRanksError(Exception):
    """The ranks that can't take part any more, and the reason; Communicator turns it into a CommunicatorError."""

    def __init__(self, ranks: Iterable[int], reason: str) -> None:
        super().__init__(reason)
        self.ranks = tuple(sorted(ranks))
        self.reason = reason


class Link(ABC):
    """Carry bytes between the ranks of one communicator. One thread of each rank uses it at a time."""

    __slots__ = ("rank", "size")

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    @abstractmethod
    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Send an array to each rank of `outgoing` and fill each array of `incoming`, all at the same time.

        Between two ranks, arrays arrive in the order in which they were sent. deadline: a value of time.monotonic().

        Raises LostRanksError if a rank left, sent another number of bytes, or did not take part in time.
        """

    @abstractmethod
    def split(self, color: int | None, key: int, deadline: float | None) -> Link | None:
        """Return the link of the ranks with this color, in the order of their keys; None for the color None."""

    @abstractmethod
    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report to the other ranks that this rank takes no further part, because these ranks are lost."""

    @abstractmethod
    def check(self, grace: float) -> None:
        """Raise LostRanksError if a rank is lost, or closed its communicator at least `grace` seconds ago."""

    def closes_on_any_thread(self) -> bool:
        """Return whether any thread may close the link, also beside calls of other threads."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Free the link's resources, and report to the other ranks that this rank has left."""

    def share(self, data: bytes, deadline: float | None) -> list[bytes]:
        """Return the bytes of every rank, in the order of the ranks."""
        peers = [rank for rank in range(self.size) if rank != self.rank]
        lengths = np.zeros(self.size, np.int64)
        lengths[self.rank] = len(data)
        own = bytes_of(lengths[self.rank : self.rank + 1])
        self.exchange(dict.fromkeys(peers, own), {p: bytes_of(lengths[p : p + 1]) for p in peers}, deadline)
        texts = [np.empty(int(length), np.uint8) for length in lengths]
        texts[self.rank][:] = np.frombuffer(data, np.uint8)
        self.exchange(dict.fromkeys(peers, texts[self.rank]), {p: texts[p] for p in peers}, deadline)
        return [text.tobytes() for text in texts]

    def members(self, color: int | None, key: int, deadline: float | None) -> list[int]:
        """Return the ranks with this color, in the order of their keys. All ranks call this together."""
        own = b"" if color is None else np.array([color, key], np.int64).tobytes()
        pairs = [np.frombuffer(text, np.int64) for text in self.share(own, deadline)]
        chosen = [(int(pair[1]), rank) for rank, pair in enumerate(pairs) if pair.size and pair[0] == color]
        return [rank for _, rank in sorted(chosen)]


def bytes_of(array: NDArray[Any]) -> Bytes:
    """Return the bytes of a one-dimensional array without gaps, in the same memory."""
    return array.view(np.uint8)


def remaining(deadline: float | None) -> float | None:
    """Return the seconds until a deadline, at least 0 and at most a week; None without a deadline.

    After a week, a loop asks again. The system's waits take no infinite or very long times.
    """
    return None if deadline is None else min(max(deadline - time.monotonic(), 0.0), _WEEK)
