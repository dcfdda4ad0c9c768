"""The contract of backends: the operations of a communicator on a kind of device, with checked arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..pointers import DevicePtr
    from .link import Link

__all__ = ["Backend"]


class Backend(ABC):
    """Run the collectives of one rank; the link carries the messages between the ranks' hosts.

    Pointers have one dimension and no gaps, are on the communicator's device, and have sizes that fit each other. `op`
    is "sum", "prod", "min" or "max". `deadline` is a value of time.monotonic(), or None. All methods raise
    LostRanksError if a rank is lost.
    """

    __slots__ = ("_link", "rank", "size")

    def __init__(self, link: Link) -> None:
        self.rank = link.rank
        self.size = link.size
        self._link = link

    @abstractmethod
    def all_reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine `send` of all ranks into `recv` of all ranks. A rank's two operands may be the same memory."""

    @abstractmethod
    def all_gather(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Write `send` of rank i to part i of `recv` on all ranks. On rank i, `send` may be the part i of `recv`."""

    @abstractmethod
    def reduce_scatter(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine part i of `send` of all ranks into `recv` of rank i.

        On rank i, `recv` may be the part i of `send`.
        """

    @abstractmethod
    def broadcast(self, buffer: DevicePtr[Any], root: int, deadline: float | None) -> None:
        """Write the root's buffer to the buffers of all other ranks."""

    @abstractmethod
    def reduce(
        self, send: DevicePtr[Any], recv: DevicePtr[Any] | None, op: str, root: int, deadline: float | None
    ) -> None:
        """Combine `send` of all ranks into `recv` of the root. The root's two operands may be the same memory."""

    @abstractmethod
    def all_to_all(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Write part j of `send` of rank i to part i of `recv` of rank j."""

    @abstractmethod
    def send(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Send a buffer to a rank that receives it."""

    @abstractmethod
    def recv(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Receive a buffer that a rank sends."""

    @abstractmethod
    def barrier(self, deadline: float | None) -> None:
        """Wait until all ranks have called this method."""

    def share(self, data: bytes, deadline: float | None) -> list[bytes]:
        """Return the bytes of every rank, in the order of the ranks."""
        return self._link.share(data, deadline)

    def compare(self, data: bytes, peer: int, deadline: float | None) -> bytes:
        """Exchange bytes with another rank, which passes as many bytes at the same time; return its bytes."""
        other = np.empty(len(data), np.uint8)
        self._link.exchange({peer: np.frombuffer(data, np.uint8)}, {peer: other}, deadline)
        return other.tobytes()

    @abstractmethod
    def split(self, color: int | None, key: int, deadline: float | None) -> Backend | None:
        """Return the backend of the ranks with this color, in the order of their keys; None for the color None."""

    @abstractmethod
    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report to the other ranks that this rank takes no further part, because these ranks are lost."""

    def leave(self) -> None:
        """Report to the other ranks that this rank has left, because its process ends. Frees nothing."""
        self._link.close()

    def closes_on_any_thread(self) -> bool:
        """Return whether any thread may close the backend, also beside calls of other threads."""
        return self._link.closes_on_any_thread()

    @abstractmethod
    def close(self) -> None:
        """Free the backend's resources, and report to the other ranks that this rank has left."""
