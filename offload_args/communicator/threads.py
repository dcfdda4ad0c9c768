"""Collectives of the devices `host` and `sim` between threads of one process.

Each rank copies its operand from the device once. The other ranks read this copy in place, and combine a part each. A
result is assigned last, so a failure does not change its memory. Numbers are combined in the order of the ranks, and
all ranks get the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core
from .backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ..pointers import DevicePtr
    from .memory import MemoryLink

__all__ = ["COMBINE", "ThreadsBackend"]

COMBINE: Final[dict[str, np.ufunc]] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
_SMALL: Final = 1 << 14  # the most bytes of an array that each rank combines as a whole
_PIECE: Final = 1 << 15  # elements that are combined at a time, so that their sum stays in a cache


class ThreadsBackend(Backend):
    """Run the collectives of a rank that is a thread."""

    __slots__ = ("_memory",)

    def __init__(self, link: MemoryLink) -> None:
        super().__init__(link)
        self._memory = link

    def all_reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine small arrays as a whole on each rank, and a part of larger arrays."""
        recv.assign(self._reduced(_call("all_reduce", send, op), send.to_host(), op, deadline))

    def all_gather(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Copy each rank's operand from its device to one array, which all ranks then read."""
        call = _call("all_gather", send)
        if recv.nbytes <= _SMALL:
            recv.assign(np.concatenate(self._memory.meet(call, send.to_host(), deadline)))
            return
        whole = self._memory.meet(call, np.empty(recv.size, recv.dtype) if self.rank == 0 else None, deadline)[0]
        _core.read(send, whole[self.rank * send.size : (self.rank + 1) * send.size])
        self._memory.meet(call, None, deadline)
        recv.assign(whole)

    def reduce_scatter(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Combine this rank's part of the arrays of all ranks."""
        every = self._memory.meet(_call("reduce_scatter", send, op), send.to_host(), deadline)
        own = slice(self.rank * recv.size, (self.rank + 1) * recv.size)
        result = np.empty(recv.size, recv.dtype)
        _combine([values[own] for values in every], op, result)
        recv.assign(result)

    def broadcast(self, buffer: DevicePtr[Any], root: int, deadline: float | None) -> None:
        """Assign the root's array."""
        own = buffer.to_host() if self.rank == root else None
        values = self._memory.meet(_call("broadcast", buffer, f"root {root}"), own, deadline)[root]
        if self.rank != root:
            buffer.assign(values)

    def reduce(
        self, send: DevicePtr[Any], recv: DevicePtr[Any] | None, op: str, root: int, deadline: float | None
    ) -> None:
        """Combine as in all_reduce, and assign the result on the root."""
        result = self._reduced(_call("reduce", send, f"{op} to {root}"), send.to_host(), op, deadline)
        if recv is not None and self.rank == root:
            recv.assign(result)

    def all_to_all(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Copy this rank's part of each array."""
        every = self._memory.meet(_call("all_to_all", send), send.to_host(), deadline)
        part = send.size // self.size
        recv.assign(np.concatenate([values[self.rank * part : (self.rank + 1) * part] for values in every]))

    def send(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Pass a copy of the array."""
        self._memory.give(peer, buffer.to_host(), deadline)

    def recv(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Assign the other rank's copy to the buffer."""
        buffer.assign(self._memory.take(peer, np.empty(buffer.size, buffer.dtype), deadline))

    def barrier(self, deadline: float | None) -> None:
        """Meet the other ranks."""
        self._memory.meet("barrier", None, deadline)

    def split(self, color: int | None, key: int, deadline: float | None) -> ThreadsBackend | None:
        """Split the link."""
        link = self._memory.split(color, key, deadline)
        return None if link is None else ThreadsBackend(link)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report the ranks to the other ranks over the link."""
        self._memory.give_up(ranks, reason)

    def close(self) -> None:
        """Close the link."""
        self._memory.close()

    def _reduced(self, call: str, values: NDArray[Any], op: str, deadline: float | None) -> NDArray[Any]:
        """Return the combined arrays of all ranks."""
        if values.nbytes <= _SMALL:
            every = self._memory.meet(call, values, deadline)
            combined = np.empty_like(values)
            _combine(every, op, combined)
            return combined
        pairs = self._memory.meet(call, (values, np.empty_like(values) if self.rank == 0 else None), deadline)
        result: NDArray[Any] = pairs[0][1]
        own = slice(values.size * self.rank // self.size, values.size * (self.rank + 1) // self.size)
        _combine([other[own] for other, _ in pairs], op, result[own])
        self._memory.meet(call, None, deadline)
        return result


def _call(name: str, pointer: DevicePtr[Any], option: str = "") -> str:
    return f"{name}, {pointer.size} elements, {pointer.dtype}, {option}".removesuffix(", ")


def _combine(arrays: Sequence[NDArray[Any]], op: str, result: NDArray[Any]) -> None:
    """Combine arrays in their order."""
    if len(arrays) == 1:
        result[:] = arrays[0]
        return
    combine, first, second, *others = COMBINE[op], *arrays
    with np.errstate(all="ignore"):  # sums of float16 may overflow, as on a GPU
        for low in range(0, result.size, _PIECE):
            piece = slice(low, low + _PIECE)
            total = combine(first[piece], second[piece], out=result[piece])
            for other in others:
                combine(total, other[piece], out=total)
