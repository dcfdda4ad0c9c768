"""Links between the processes of an MPI program, by mpi4py."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from .link import Link, LostRanksError, remaining

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .link import Bytes

__all__ = ["MpiLink"]

_ARRAY: Final = 0  # the tag of an array
_SIGN: Final = 1  # the tag of the text of a rank that gives up
_EAGER: Final = 1e-3  # seconds for which requests are polled without a pause
_PAUSE: Final = 1e-4  # seconds between two later polls
_abandoned: Final[list[Any]] = []  # late requests and their arrays, kept because MPI may still use them


class MpiLink(Link):
    """Carry arrays by Isend and Irecv, in a duplicate of the program's communicator.

    MPI itself ends all processes of a program when one of them is killed. A rank that raises an exception sends a text
    to the other ranks.
    """

    __slots__ = ("_comm", "_mpi")

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        super().__init__(comm.Get_rank(), comm.Get_size())
        self._mpi = MPI
        self._comm = comm

    @classmethod
    def duplicate(cls, comm: Any) -> MpiLink:
        """Return a link of the ranks of an MPI communicator. All of these ranks call this together."""
        return cls(comm.Dup())

    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Post all sends and receives, and wait for them."""
        peers = [*incoming, *outgoing]
        arrays = [*incoming.values(), *outgoing.values()]
        byte = self._mpi.BYTE
        try:
            requests = [self._comm.Irecv([array, byte], peer, _ARRAY) for peer, array in incoming.items()]
            requests += [self._comm.Isend([array, byte], peer, _ARRAY) for peer, array in outgoing.items()]
            statuses = [self._mpi.Status() for _ in requests]
            self._wait(requests, statuses, peers, arrays, deadline)
        except self._mpi.Exception as error:
            raise LostRanksError(
                peers, f"MPI reported {str(error).removesuffix(chr(10))} in an exchange with ranks {sorted({*peers})}"
            ) from None
        for peer, array, status in zip(peers, arrays, statuses, strict=False):
            if peer in incoming and array is incoming[peer] and status.Get_count(byte) != array.nbytes:
                raise LostRanksError(
                    [peer], f"rank {peer} sent {status.Get_count(byte)} bytes, and this rank needs {array.nbytes}"
                )

    def _wait(
        self, requests: list[Any], statuses: list[Any], peers: list[int], arrays: list[Bytes], deadline: float | None
    ) -> None:
        eager = time.monotonic() + _EAGER
        while not self._mpi.Request.Testall(requests, statuses):
            try:
                self.check(0)
            except LostRanksError:
                _abandoned.append((requests, arrays))
                raise
            if remaining(deadline) == 0:
                _abandoned.append((requests, arrays))
                late = {peer for peer, request in zip(peers, requests, strict=True) if not request.Test()}
                raise LostRanksError(late, "")
            if time.monotonic() > eager:
                time.sleep(_PAUSE)

    def check(self, grace: float) -> None:
        """Look for the text of a rank that gave up; MPI does not report a rank that closed its communicator."""
        status = self._mpi.Status()
        if self._comm.Iprobe(self._mpi.ANY_SOURCE, _SIGN, status):
            text = bytearray(status.Get_count(self._mpi.BYTE))
            self._comm.Recv([text, self._mpi.BYTE], status.Get_source(), _SIGN)
            raise LostRanksError(*json.loads(text))

    def split(self, color: int | None, key: int, deadline: float | None) -> MpiLink | None:
        """Split by MPI."""
        members = self.members(color, key, deadline)
        comm = self._comm.Split(self._mpi.UNDEFINED if color is None else members[0], key)
        return None if comm == self._mpi.COMM_NULL else MpiLink(comm)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Send a text to all other ranks, which may or may not read it."""
        text = json.dumps([list(ranks), reason]).encode()
        for peer in range(self.size):
            if peer != self.rank:
                _abandoned.append((self._comm.Isend([text, self._mpi.BYTE], peer, _SIGN), text))
        self._comm = self._mpi.COMM_NULL  # the communicator is never freed, because messages are under way

    def close(self) -> None:
        """Free the communicator, unless MPI has ended."""
        if not self._mpi.Is_finalized() and self._comm != self._mpi.COMM_NULL:
            self._comm.Free()
