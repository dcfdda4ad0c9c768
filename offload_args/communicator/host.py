"""Collectives of the devices `host` and `sim`, whose memory the CPU reads, between processes.

A collective reads its operand to an array, exchanges arrays, and assigns the result last. So a failure does not change
the memory of the result. The read and the assignment run in order with the calls of the region. Numbers are combined in
the order of the ranks, and all ranks get the same bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .backend import Backend
from .link import bytes_of
from .threads import COMBINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ..pointers import DevicePtr

__all__ = ["HostBackend"]

_SMALL: Final = 1 << 14  # the most bytes of an array that each rank sends as a whole to all others, in one exchange


class HostBackend(Backend):
    """Run the collectives of a rank on the CPU."""

    __slots__ = ()

    def all_reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine small arrays as a whole on each rank.

        For larger arrays, combine one part on each rank, and gather the parts.
        """
        values = send.to_host()
        if values.nbytes <= _SMALL:
            parts = [values if rank == self.rank else np.empty_like(values) for rank in range(self.size)]
            self._exchange(dict.fromkeys(self._peers(), values), parts, deadline)
            recv.assign(_combined(parts, op))
            return
        bounds = [values.size * rank // self.size for rank in range(self.size + 1)]
        slices = [values[low:high] for low, high in pairwise(bounds)]
        own = self._scattered(slices, op, deadline)
        result = np.empty_like(values)
        parts = [result[low:high] for low, high in pairwise(bounds)]
        parts[self.rank][:] = own
        self._exchange(dict.fromkeys(self._peers(), own), parts, deadline)
        recv.assign(result)

    def all_gather(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Send the array to all other ranks."""
        values = send.to_host()
        result = np.empty((self.size, values.size), values.dtype)
        result[self.rank] = values
        self._exchange(dict.fromkeys(self._peers(), values), list(result), deadline)
        recv.assign(result.reshape(-1))

    def reduce_scatter(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine this rank's part of the arrays of all ranks."""
        recv.assign(self._scattered(list(send.to_host().reshape(self.size, -1)), op, deadline))

    def broadcast(self, buffer: DevicePtr[Any], root: int, deadline: float | None) -> None:
        """Send the root's array to all other ranks."""
        if self.rank == root:
            values = bytes_of(buffer.to_host())
            self._link.exchange(dict.fromkeys(self._peers(), values), {}, deadline)
        else:
            self.recv(buffer, root, deadline)

    def reduce(
        self, send: DevicePtr[Any], recv: DevicePtr[Any] | None, op: str, root: int, deadline: float | None
    ) -> None:
        """Combine the arrays of all ranks, one after the other, on the root."""
        values = send.to_host()
        if self.rank != root or recv is None:
            self._link.exchange({root: bytes_of(values)}, {}, deadline)
            return
        total, other = values, np.empty_like(values)
        for rank in range(self.size):
            if rank == root:
                total = values if rank == 0 else COMBINE[op](total, values)
            else:
                self._link.exchange({}, {rank: bytes_of(other)}, deadline)
                total = other.copy() if rank == 0 else COMBINE[op](total, other)
        recv.assign(total)

    def all_to_all(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Exchange a part with each other rank."""
        values = send.to_host().reshape(self.size, -1)
        result = np.empty_like(values)
        result[self.rank] = values[self.rank]
        self._exchange({rank: values[rank] for rank in self._peers()}, list(result), deadline)
        recv.assign(result.reshape(-1))

    def send(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Send a copy of the array."""
        self._link.exchange({peer: bytes_of(buffer.to_host())}, {}, deadline)

    def recv(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Receive an array, and assign it to the buffer."""
        values = np.empty(buffer.size, buffer.dtype)
        self._link.exchange({}, {peer: bytes_of(values)}, deadline)
        buffer.assign(values)

    def barrier(self, deadline: float | None) -> None:
        """Exchange empty arrays."""
        nothing = np.empty(0, np.uint8)
        self._link.exchange(dict.fromkeys(self._peers(), nothing), dict.fromkeys(self._peers(), nothing), deadline)

    def split(self, color: int | None, key: int, deadline: float | None) -> HostBackend | None:
        """Split the link."""
        link = self._link.split(color, key, deadline)
        return None if link is None else HostBackend(link)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report the ranks to the other ranks over the link."""
        self._link.give_up(ranks, reason)

    def close(self) -> None:
        """Close the link."""
        self._link.close()

    def _peers(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _exchange(
        self, outgoing: Mapping[int, NDArray[Any]], parts: list[NDArray[Any]], deadline: float | None
    ) -> None:
        """Send arrays, and fill the parts of all other ranks."""
        self._link.exchange(
            {rank: bytes_of(array) for rank, array in outgoing.items()},
            {rank: bytes_of(parts[rank]) for rank in self._peers()},
            deadline,
        )

    def _scattered(self, slices: list[NDArray[Any]], op: str, deadline: float | None) -> NDArray[Any]:
        """Return this rank's slice, reduced over all ranks."""
        own = slices[self.rank]
        parts = [own if rank == self.rank else np.empty_like(own) for rank in range(self.size)]
        self._exchange({rank: slices[rank] for rank in self._peers()}, parts, deadline)
        return _combined(parts, op)


def _combined(parts: list[NDArray[Any]], op: str) -> NDArray[Any]:
    """Combine arrays in their order. The first array is not changed, because it may be a rank's operand."""
    total = parts[0].copy()
    with np.errstate(all="ignore"):  # sums of float16 may overflow, as on a GPU
        for part in parts[1:]:
            COMBINE[op](total, part, out=total)
    return total
