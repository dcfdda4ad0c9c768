"""Links between threads of one process: a rank passes its arrays to the other ranks, which read them in place."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .link import Link, LostRanksError, remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from .link import Bytes

__all__ = ["MemoryLink"]


class _Round:
    """The items of the ranks that meet. It is complete if `whole` is set."""

    def __init__(self) -> None:
        self.items: dict[int, tuple[str, Any]] = {}  # {rank: (its call, its item)}
        self.whole = False


class _Board:
    """The data that the ranks of one communicator share. `lock` protects it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.round = _Round()
        self.offers: dict[tuple[int, int], NDArray[Any]] = {}  # {(sender, receiver): an array that is not taken yet}
        self.blocked: dict[int, Callable[[], Collection[int]]] = {}  # {waiting rank: returns the ranks that it needs}
        self.wakes: dict[int, threading.Lock] = {}  # {waiting rank: a lock whose release ends the wait}
        self.left: dict[int, tuple[tuple[int, ...], str]] = {}  # {rank that left: (the lost ranks, the reason)}
        self.closed: dict[int, float] = {}  # {rank that closed its communicator: the time}
        self.parts: dict[tuple[int, int], _Board] = {}  # {(number of the split, color): board}

    def wake(self, ranks: Iterable[int]) -> None:
        """Let ranks look again whether they still have to wait."""
        for rank in ranks:
            wake = self.wakes.pop(rank, None)
            if wake is not None:
                wake.release()


class MemoryLink(Link):
    """Pass arrays between threads of one process."""

    __slots__ = ("_board", "_splits")

    def __init__(self, rank: int, board: _Board) -> None:
        super().__init__(rank, board.size)
        self._board = board
        self._splits = 0

    @classmethod
    def make(cls, size: int) -> list[MemoryLink]:
        """Return the links of all ranks."""
        board = _Board(size)
        return [cls(rank, board) for rank in range(size)]

    def meet(self, call: str, item: Any, deadline: float | None) -> list[Any]:
        """Pass an object to all ranks, and return the objects of all ranks, in the order of the ranks.

        call: a description of the call, which all ranks have to make. All ranks call this together.

        A rank may read an array of another rank until its next call of `meet`.
        """
        board = self._board
        with board.lock:
            current = board.round
            current.items[self.rank] = call, item
            if len(current.items) == self.size:
                current.whole = True
                board.round = _Round()
                board.wake(range(self.size))
        if not current.whole:
            self._wait_for(current, deadline)
        calls = {rank: text for rank, (text, _) in sorted(current.items.items())}
        if len({*calls.values()}) > 1:
            listed = "; ".join(f"rank {rank}: {text}" for rank, text in calls.items())
            others = [rank for rank, text in calls.items() if text != call]
            raise LostRanksError(others, f"the ranks make different calls: {listed}")
        return [current.items[rank][1] for rank in range(self.size)]

    def _wait_for(self, current: _Round, deadline: float | None) -> None:
        everyone = range(self.size)
        try:
            self._wait(
                lambda: () if current.whole else [rank for rank in everyone if rank not in current.items], deadline
            )
        except BaseException:
            with self._board.lock:
                if not current.whole:
                    current.items.pop(self.rank, None)
                    self._board.wake(range(self.size))  # they may need this rank now
            raise

    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Offer the bytes to send, copy the bytes that other ranks offer, and wait until all bytes are taken."""
        with self._offering(outgoing):
            waiting = dict(incoming)
            while waiting:
                for peer, data in self._taken(waiting, deadline).items():
                    waiting.pop(peer)[:] = data
            self._wait_until_taken(outgoing, deadline)

    def give(self, peer: int, array: NDArray[Any], deadline: float | None) -> None:
        """Pass an array, which this rank does not change any more, to a rank that takes it."""
        with self._offering({peer: array}):
            self._wait_until_taken([peer], deadline)

    def take(self, peer: int, like: NDArray[Any], deadline: float | None) -> NDArray[Any]:
        """Return the array that another rank gives, which has the size and dtype of `like`."""
        return self._taken({peer: like}, deadline)[peer]

    @contextmanager
    def _offering(self, arrays: Mapping[int, NDArray[Any]]) -> Iterator[None]:
        board, rank = self._board, self.rank
        with board.lock:
            for peer, data in arrays.items():
                board.offers[rank, peer] = data
            board.wake(arrays)
        try:
            yield
        except BaseException:
            with board.lock:
                for peer in arrays:
                    board.offers.pop((rank, peer), None)
            raise

    def _taken(self, waiting: Mapping[int, NDArray[Any]], deadline: float | None) -> dict[int, NDArray[Any]]:
        """Wait until some of the ranks offer an array, and return their arrays."""
        board, rank = self._board, self.rank
        self._wait(lambda: () if any((peer, rank) in board.offers for peer in waiting) else waiting, deadline)
        taken: dict[int, NDArray[Any]] = {}
        with board.lock:
            for peer, own in waiting.items():
                data = board.offers.get((peer, rank))
                if data is None:
                    continue
                if (data.size, data.dtype) != (own.size, own.dtype):
                    raise LostRanksError(
                        [peer], f"rank {peer} sent {_described(data)}, and rank {rank} needs {_described(own)}"
                    )
                taken[peer] = board.offers.pop((peer, rank))
            board.wake(taken)
        return taken

    def _wait_until_taken(self, outgoing: Iterable[int], deadline: float | None) -> None:
        offers, rank = self._board.offers, self.rank
        self._wait(lambda: [peer for peer in outgoing if (rank, peer) in offers], deadline)

    def _wait(self, needed: Callable[[], Collection[int]], deadline: float | None) -> None:
        """Wait until `needed` returns no ranks.

        Raises LostRanksError if one of the ranks that it returns has left or waits for this rank, or if the deadline
        has passed.
        """
        board = self._board
        while True:
            with board.lock:
                board.blocked.pop(self.rank, None)
                board.wakes.pop(self.rank, None)
                ranks = needed()
                if not ranks:
                    return
                for rank, why in board.left.items():
                    if rank in ranks or rank == self.rank:
                        raise LostRanksError(*why)
                seconds = remaining(deadline)
                if seconds == 0:
                    raise LostRanksError(ranks, "")
                if self._is_in_a_circle(ranks):
                    raise LostRanksError(ranks, f"{_ranks([self.rank, *ranks])} wait for each other in different calls")
                wake = threading.Lock()
                wake.acquire()
                board.wakes[self.rank] = wake
                board.blocked[self.rank] = needed
            try:
                wake.acquire(timeout=-1 if seconds is None else seconds)
            except BaseException:  # Ctrl-C
                with board.lock:
                    board.blocked.pop(self.rank, None)
                    board.wakes.pop(self.rank, None)
                raise

    def _is_in_a_circle(self, ranks: Iterable[int]) -> bool:
        """Return whether one of the ranks waits for this rank, perhaps by way of other ranks."""
        blocked, reached, new = self._board.blocked, set[int](), [*ranks]
        while new:
            rank = new.pop()
            if rank == self.rank:
                return True
            if rank in blocked and rank not in reached:
                reached.add(rank)
                new += blocked[rank]()
        return False

    def share(self, data: bytes, deadline: float | None) -> list[bytes]:
        """Return the bytes of every rank, in the order of the ranks."""
        return self.meet("an exchange of bytes", data, deadline)

    def split(self, color: int | None, key: int, deadline: float | None) -> MemoryLink | None:
        """Return a link of a board that the ranks of this color share."""
        members = self.members(color, key, deadline)
        self._splits += 1
        if color is None:
            return None
        with self._board.lock:
            part = self._board.parts.setdefault((self._splits, color), _Board(len(members)))
        return MemoryLink(members.index(self.rank), part)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Leave the board, and give these lost ranks as the reason."""
        self._leave((tuple(ranks), reason))

    def check(self, grace: float) -> None:
        """Check the board for ranks that have left."""
        with self._board.lock:
            for rank, why in self._board.left.items():
                if rank != self.rank and time.monotonic() >= self._board.closed.get(rank, 0) + grace:
                    raise LostRanksError(*why)

    def close(self) -> None:
        """Leave the board."""
        self._board.closed[self.rank] = time.monotonic()
        self._leave(((self.rank,), f"rank {self.rank} has closed its communicator"))

    def _leave(self, why: tuple[tuple[int, ...], str]) -> None:
        with self._board.lock:
            self._board.left.setdefault(self.rank, why)
            self._board.wake(range(self.size))


def _described(array: NDArray[Any]) -> str:
    return f"{array.nbytes} bytes" if array.dtype == np.uint8 else f"{array.size} elements of {array.dtype}"


def _ranks(ranks: Iterable[int]) -> str:
    *most, last = sorted({*ranks})
    return f"ranks {', '.join(map(str, most))} and {last}"
