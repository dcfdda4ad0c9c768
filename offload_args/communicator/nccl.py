"""Collectives of GPUs, by NCCL or RCCL on the streams of regions.

While a method waits for its result, a thread watches the other ranks. If a rank is lost, or comes too late, the thread
aborts NCCL's communicator. This ends the kernels of the communicator, which would otherwise wait forever.
"""

from __future__ import annotations

import importlib
import threading
import time
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from .. import _core
from .._collectives import in_thread
from ..errors import OffloadError
from .backend import Backend
from .link import LostRanksError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..devices import Device
    from ..pointers import DevicePtr
    from .link import Link

__all__ = ["NcclBackend"]

_LIBRARIES: Final = {"cuda": "nccl", "hip": "rccl"}
_OPERATIONS: Final = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max"}
_LOOK: Final = 0.05  # seconds between two checks of the other ranks
_GRACE: Final = 1.0  # a rank that has left on purpose counts as lost after so many seconds


class NcclBackend(Backend):
    """Run the collectives of a rank on a GPU.

    The link reports lost ranks, and carries the messages that NCCL does not carry.
    """

    __slots__ = (
        "_aborted",
        "_comm",
        "_deadline",
        "_device",
        "_ended",
        "_issued",
        "_library",
        "_lock",
        "_waits",
    )

    def __init__(self, comm: Any, link: Link, device: Device) -> None:
        super().__init__(link)
        self._library = library_of(device)
        self._comm = comm
        self._device = device
        self._aborted: LostRanksError | None = None
        self._waits = self._issued = False  # whether a method waits for a call, and whether the call was issued
        self._deadline: float | None = None
        self._ended = threading.Event()
        # The thread _watch has the lock while it uses the link or the communicator. Methods take it before they end,
        # and close() before it destroys: a process that exits while the thread aborts would crash.
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="offload_args.Communicator", daemon=True).start()

    @staticmethod
    def has(device: Device) -> bool:
        """Return whether NCCL or RCCL runs on devices of this kind."""
        return device.backend in _LIBRARIES

    @classmethod
    def all(cls, links: Iterable[Link], devices: list[Device]) -> list[NcclBackend]:
        """Return the backends of all ranks, which are threads of this process."""
        comms = library_of(devices[0]).comm_init_all(devices)
        return [cls(comm, link, device) for comm, link, device in zip(comms, links, devices, strict=True)]

    @classmethod
    def join(cls, link: Link, device: Device, deadline: float | None) -> NcclBackend:
        """Return the backend of this rank. All ranks call this together."""
        library = library_of(device)
        shared = link.share(bytes(library.get_unique_id()) if link.rank == 0 else b"", deadline)[0]
        comm = _within(lambda: library.comm_init_rank(link.size, shared, link.rank, device), library, link, deadline)
        return cls(comm, link, device)

    def all_reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Issue ncclAllReduce, and wait."""
        with self._watched(recv, deadline):
            self._library.all_reduce(send, recv, send.size, None, self._op(op), self._comm)

    def all_gather(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Issue ncclAllGather, and wait."""
        with self._watched(recv, deadline):
            self._library.all_gather(send, recv, send.size, None, self._comm)

    def reduce_scatter(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str, deadline: float | None) -> None:
        """Issue ncclReduceScatter, and wait."""
        with self._watched(recv, deadline):
            self._library.reduce_scatter(send, recv, recv.size, None, self._op(op), self._comm)

    def broadcast(self, buffer: DevicePtr[Any], root: int, deadline: float | None) -> None:
        """Issue ncclBroadcast, and wait."""
        with self._watched(buffer, deadline, writes=self.rank != root):
            self._library.broadcast(buffer if self.rank == root else None, buffer, buffer.size, None, root, self._comm)

    def reduce(
        self, send: DevicePtr[Any], recv: DevicePtr[Any] | None, op: str, root: int, deadline: float | None
    ) -> None:
        """Issue ncclReduce, and wait."""
        with self._watched(send if recv is None else recv, deadline, writes=recv is not None):
            self._library.reduce(send, recv, send.size, None, self._op(op), root, self._comm)

    def all_to_all(self, send: DevicePtr[Any], recv: DevicePtr[Any], deadline: float | None) -> None:
        """Issue a group of sends and receives, and wait. NCCL before 2.28 has no ncclAlltoAll."""
        part = send.size // self.size
        bounds = [slice(peer * part, (peer + 1) * part) for peer in range(self.size)]
        with self._watched(recv, deadline):
            recv[bounds[self.rank]].copy_from(send[bounds[self.rank]])
            with self._library.group():
                for peer in range(self.size):
                    if peer != self.rank:
                        self._library.send(send[bounds[peer]], part, None, peer, self._comm)
                        self._library.recv(recv[bounds[peer]], part, None, peer, self._comm)

    def send(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Issue ncclSend, and wait."""
        with self._watched(buffer, deadline, writes=False):
            self._library.send(buffer, buffer.size, None, peer, self._comm)

    def recv(self, buffer: DevicePtr[Any], peer: int, deadline: float | None) -> None:
        """Issue ncclRecv, and wait."""
        with self._watched(buffer, deadline):
            self._library.recv(buffer, buffer.size, None, peer, self._comm)

    def barrier(self, deadline: float | None) -> None:
        """Wait for the device, and for all ranks."""
        self._device.synchronize()
        self._link.share(b"", deadline)

    def split(self, color: int | None, key: int, deadline: float | None) -> NcclBackend | None:
        """Split the link, and make a new communicator of NCCL for each part."""
        link = self._link.split(color, key, deadline)
        return None if link is None else NcclBackend.join(link, self._device, deadline)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report the ranks to the other ranks over the link, and abort."""
        self._link.give_up(ranks, reason)
        with self._lock:
            self._abort(LostRanksError(ranks, reason))

    def close(self) -> None:
        """Destroy NCCL's communicator, and close the link."""
        self._ended.set()
        with self._lock:
            self._link.close()
            if self._aborted is None:
                self._library.comm_destroy(self._comm)

    def _op(self, op: str) -> Any:
        return getattr(self._library, _OPERATIONS[op])

    def _abort(self, lost: LostRanksError) -> None:
        self._ended.set()
        if self._aborted is None:
            self._aborted = lost
            _abort_in_silence(self._library, self._comm)

    @contextmanager
    def _watched(self, pointer: DevicePtr[Any], deadline: float | None, writes: bool = True) -> Iterator[None]:
        """Let the block issue a call, and wait until the device has made the call, or a rank is lost."""
        self._deadline, self._waits = deadline, True
        try:
            yield
            self._issued = True
            if pointer.size:
                pointer[:1].to_host()
        except OffloadError:
            if self._aborted is None:
                with self._lock:
                    self._link.check(0.0)  # raises LostRanksError if a lost rank is the reason
                raise
        finally:
            with self._lock:
                self._waits = self._issued = False
        if self._aborted is not None:
            if writes:
                with suppress(OffloadError):
                    _core.invalidate(pointer)
            raise self._aborted

    def _watch(self) -> None:
        """While a method waits, abort if a rank is lost, NCCL reports an error, or the deadline has passed."""
        library = self._library
        others = [rank for rank in range(self.size) if rank != self.rank]
        while not self._ended.wait(_LOOK):
            with self._lock:
                if not self._waits:
                    continue
                try:
                    self._link.check(_GRACE)
                    if self._deadline is not None and time.monotonic() > self._deadline:
                        raise LostRanksError(others, "")
                    # comm_get_async_error would wait until the call is issued, and a call may be issued only once the
                    # other ranks are there.
                    status = library.comm_get_async_error(self._comm) if self._issued else library.Success
                    if status not in (library.Success, library.InProgress):
                        raise LostRanksError(others, f"{library.__name__} reported {library.get_error_string(status)}")
                except LostRanksError as lost:
                    self._abort(lost)
                except OffloadError:  # the call has failed, and has ended the communicator
                    return


def _within(make: Callable[[], Any], library: Any, link: Link, deadline: float | None) -> Any:
    """Return the communicator that `make` returns. A thread calls `make`, which may wait for other ranks forever.

    Raises LostRanksError if a rank is lost or the deadline passes. A communicator that is made after that is aborted.
    """
    comm = in_thread(make)
    try:
        while not wait([comm], _LOOK).done:
            link.check(_GRACE)
            if deadline is not None and time.monotonic() > deadline:
                others = [rank for rank in range(link.size) if rank != link.rank]
                raise LostRanksError(others, f"{library.__name__} did not connect all ranks in time")
        if isinstance(comm.exception(), OffloadError):
            link.check(0.0)  # raises LostRanksError if a lost rank is the reason
        return comm.result()
    except BaseException:
        comm.add_done_callback(lambda late: None if late.exception() else _abort_in_silence(library, late.result()))
        raise


def _abort_in_silence(library: Any, comm: Any) -> None:
    with suppress(OffloadError):
        library.comm_abort(comm)


def library_of(device: Device) -> Any:
    """Return the module of the device's library."""
    return importlib.import_module(f"offload_args.{_LIBRARIES[device.backend]}")
