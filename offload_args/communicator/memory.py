"""Links between threads of one process: arrays are copied from rank to rank."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from .link import Link, LostRanksError, remaining

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .link import Bytes

__all__ = ["MemoryLink"]


class _Board:
    """The data that the ranks of one communicator share. The lock of `changed` protects it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.offers: dict[tuple[int, int], Bytes] = {}  # {(sender, receiver): bytes that are not copied yet}
        self.left: dict[int, tuple[tuple[int, ...], str]] = {}  # {rank that left: (the lost ranks, the reason)}
        self.closed: dict[int, float] = {}  # {rank that closed its communicator: the time}
        self.parts: dict[tuple[int, int], _Board] = {}  # {(number of the split, color): board}


class MemoryLink(Link):
    """Copy arrays between threads of one process."""

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

    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Offer the bytes to send, copy the bytes that other ranks offer, and wait until all bytes are copied."""
        board, rank = self._board, self.rank
        with board.changed:
            for peer, data in outgoing.items():
                board.offers[rank, peer] = data
            board.changed.notify_all()
        try:
            waiting = set(incoming)
            while waiting:
                for peer in self._ready(waiting, deadline):
                    data = board.offers[peer, rank]
                    if data.nbytes != incoming[peer].nbytes:
                        sizes = f"{data.nbytes} bytes, and rank {rank} needs {incoming[peer].nbytes}"
                        raise LostRanksError([peer], f"rank {peer} sent {sizes}")
                    incoming[peer][:] = data
                    with board.changed:
                        del board.offers[peer, rank]
                        board.changed.notify_all()
                    waiting.remove(peer)
            self._wait_until_taken(outgoing, deadline)
        except BaseException:
            with board.changed:
                for peer in outgoing:
                    board.offers.pop((rank, peer), None)
            raise

    def _ready(self, waiting: Collection[int], deadline: float | None) -> list[int]:
        """Wait until some of the ranks offer an array, and return these ranks."""
        board = self._board
        with board.changed:
            while True:
                ready = [peer for peer in waiting if (peer, self.rank) in board.offers]
                if ready:
                    return ready
                self._wait(waiting, deadline)

    def _wait_until_taken(self, outgoing: Iterable[int], deadline: float | None) -> None:
        board = self._board
        with board.changed:
            while waiting := [peer for peer in outgoing if (self.rank, peer) in board.offers]:
                self._wait(waiting, deadline)

    def _wait(self, waiting: Collection[int], deadline: float | None) -> None:
        """Wait for a change; raise LostRanksError if one of the ranks has left, or if the deadline has passed."""
        board = self._board
        for peer in waiting:
            if peer in board.left:
                raise LostRanksError(*board.left[peer])
        if not board.changed.wait(remaining(deadline)):
            raise LostRanksError(waiting, "")

    def split(self, color: int | None, key: int, deadline: float | None) -> MemoryLink | None:
        """Return a link of a board that the ranks of this color share."""
        members = self.members(color, key, deadline)
        self._splits += 1
        if color is None:
            return None
        with self._board.changed:
            part = self._board.parts.setdefault((self._splits, color), _Board(len(members)))
        return MemoryLink(members.index(self.rank), part)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Leave the board, and give these lost ranks as the reason."""
        self._leave((tuple(ranks), reason))

    def check(self, grace: float) -> None:
        """Check the board for ranks that have left."""
        with self._board.changed:
            for rank, why in self._board.left.items():
                if rank != self.rank and time.monotonic() >= self._board.closed.get(rank, 0) + grace:
                    raise LostRanksError(*why)

    def close(self) -> None:
        """Leave the board."""
        self._board.closed[self.rank] = time.monotonic()
        self._leave(((self.rank,), f"rank {self.rank} has closed its communicator"))

    def _leave(self, why: tuple[tuple[int, ...], str]) -> None:
        with self._board.changed:
            self._board.left.setdefault(self.rank, why)
            self._board.changed.notify_all()
