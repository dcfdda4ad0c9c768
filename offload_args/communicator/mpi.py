"""Links between the processes of an MPI program, by mpi4py."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from contextlib import suppress
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
_GRACE: Final = 1.0  # seconds after which an array of a rank that has closed its communicator does not come any more
_BYE: Final = b"bye"  # the text of a rank that closes its communicator
_closing: Final[list[MpiLink]] = []  # closed links that have not received the last texts of all other ranks
_freeing: Final = threading.Lock()  # protects _closing


class MpiLink(Link):
    """Carry arrays by Isend and Irecv, in a duplicate of the program's communicator.

    MPI itself ends all processes of a program when one of them is killed. A rank that raises an exception, or closes
    its communicator, sends a text to the other ranks. MPI's communicator is freed after the texts of all ranks have
    come, because MPI could otherwise take a late text for a message of a newer communicator.
    """

    __slots__ = ("_closed", "_comm", "_left", "_mpi", "_sent")

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        super().__init__(comm.Get_rank(), comm.Get_size())
        self._mpi = MPI
        self._comm = comm
        self._closed: dict[int, float] = {}  # {rank that closed its communicator: the time at which its text came}
        self._left: LostRanksError | None = None  # set once this rank has given up
        self._sent: list[Any] = []  # the requests of this rank's last texts

    @classmethod
    def duplicate(cls, comm: Any) -> MpiLink:
        """Return a link of the ranks of an MPI communicator. All of these ranks call this together."""
        _free_closed()
        return cls(comm.Dup())

    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Post all sends and receives, and wait for them."""
        peers = [*incoming, *outgoing]
        arrays = [*incoming.values(), *outgoing.values()]
        byte = self._mpi.BYTE
        requests: list[Any] = []
        try:
            requests += (self._comm.Irecv([array, byte], peer, _ARRAY) for peer, array in incoming.items())
            requests += (self._comm.Isend([array, byte], peer, _ARRAY) for peer, array in outgoing.items())
            statuses = [self._mpi.Status() for _ in requests]
            self._wait(requests, statuses, peers, deadline)
        except self._mpi.Exception as error:
            _keep((requests, arrays))
            lost = self._failed() or {*peers}
            raise LostRanksError(
                lost, f"MPI reported {str(error).removesuffix(chr(10))} in an exchange with ranks {sorted(lost)}"
            ) from None
        except BaseException:  # also Ctrl-C: MPI may still write to the arrays
            _keep((requests, arrays))
            raise
        for peer, array, status in zip(peers, arrays, statuses, strict=False):
            if peer in incoming and array is incoming[peer] and status.Get_count(byte) != array.nbytes:
                raise LostRanksError(
                    [peer], f"rank {peer} sent {status.Get_count(byte)} bytes, and this rank needs {array.nbytes}"
                )

    def _failed(self) -> set[int]:
        """Return the ranks whose processes MPI reports as failed. Only some implementations of MPI notice failures."""
        try:
            group = self._comm.Get_failed()
            return {*group.Translate_ranks(range(group.Get_size()), self._comm.Get_group())}
        except (self._mpi.Exception, AttributeError, NotImplementedError):
            return set()

    def _wait(self, requests: list[Any], statuses: list[Any], peers: list[int], deadline: float | None) -> None:
        eager = time.monotonic() + _EAGER
        while not self._mpi.Request.Testall(requests, statuses):
            self._read_signs()
            if remaining(deadline) == 0:
                late = {peer for peer, request in zip(peers, requests, strict=True) if not request.Get_status()}
                raise LostRanksError(late, "")
            if self._closed:
                self._need_open(
                    {peer for peer, request in zip(peers, requests, strict=True) if not request.Get_status()}
                )
            if time.monotonic() > eager:
                time.sleep(_PAUSE)

    def check(self, grace: float) -> None:
        """Look for the text of a rank that gave up, or that closed its communicator a while ago."""
        self._read_signs()
        self._need_open(self._closed, grace)

    def _read_signs(self) -> None:
        """Note the ranks that have closed their communicators; raise LostRanksError if a rank gave up."""
        if self._left is not None:
            raise self._left
        status = self._mpi.Status()
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, _SIGN, status):
            rank = status.Get_source()
            text = bytearray(status.Get_count(self._mpi.BYTE))
            self._comm.Recv([text, self._mpi.BYTE], rank, _SIGN)
            self._closed[rank] = time.monotonic()
            if text != _BYE:
                raise LostRanksError(*json.loads(text))

    def _need_open(self, ranks: Iterable[int], grace: float = _GRACE) -> None:
        for rank in ranks:
            if rank in self._closed and time.monotonic() >= self._closed[rank] + grace:
                raise LostRanksError([rank], f"rank {rank} has closed its communicator")

    def split(self, color: int | None, key: int, deadline: float | None) -> MpiLink | None:
        """Split by MPI."""
        members = self.members(color, key, deadline)
        if color is None:
            self._comm.Split(self._mpi.UNDEFINED)
            return None
        comm = self._comm.Split(members[0], members.index(self.rank))  # a key of MPI has 32 bits
        return MpiLink(comm)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Send a text to all other ranks. This ends a wait of another thread in `exchange`."""
        if self._left is None:
            self._left = LostRanksError(ranks, reason)
            self._send(json.dumps([list(ranks), reason]).encode())

    def closes_on_any_thread(self) -> bool:
        """Return whether MPI was initialized for threads that call it at the same time."""
        return not self._mpi.Is_finalized() and bool(self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE)

    def close(self) -> None:
        """Send a text to all other ranks, and free the communicator once their texts have come."""
        if self._left is None and not self._mpi.Is_finalized():
            self._left = LostRanksError([self.rank], "it is closed")
            self._send(_BYE)
            with _freeing:
                _closing.append(self)
            _free_closed()

    def _send(self, text: bytes) -> None:
        for peer in range(self.size):
            if peer != self.rank:
                self._sent.append(self._comm.Isend([text, self._mpi.BYTE], peer, _SIGN))
        _keep((self._sent, text))

    def free(self) -> bool:
        """Free MPI's communicator if the last texts of all ranks have come; return whether it is freed."""
        with suppress(LostRanksError):
            left, self._left = self._left, None
            try:
                self._read_signs()
            finally:
                self._left = left
        if len(self._closed) < self.size - 1 or not self._mpi.Request.Testall(self._sent):
            return False
        self._comm.Free()
        return True


def _keep(objects: object) -> None:
    """Keep late requests and their arrays to the end of the process, because MPI may use them until it has ended.

    MPI ends after Python has freed its objects.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(objects))


def _free_closed() -> None:
    with _freeing:
        _closing[:] = [link for link in _closing if not link.free()]
