"""Communicator: exchanges and reductions of device pointers among ranks."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, final

from .._names import rename
from .._operands import need_function
from .._signatures import telling
from ..devices import Device, as_device
from ..display import answering, shown
from ..errors import ArgumentError, ArgumentTypeError, CommunicatorError, ForkedError, OffloadError
from .environment import Meeting, ranks_of_environment
from .host import HostBackend
from .link import LostRanksError
from .memory import MemoryLink
from .mpi import MpiLink
from .nccl import NcclBackend
from .operands import (
    check_aliases,
    check_dtype,
    check_exchanged,
    check_operation,
    check_order,
    check_rank,
    check_shape,
    check_size,
    check_whole,
    flat,
)
from .ranks import run_ranks
from .sockets import SocketLink
from .threads import ThreadsBackend

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..pointers import DevicePtr
    from .backend import Backend
    from .link import Link

__all__ = ["Communicator"]

_Result = TypeVar("_Result")
# Variables that mpirun sets: Open MPI's, MPICH's, and the variables of implementations based on MPICH.
_OF_MPI: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_OF_MPI: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_TEXT: Final = 128  # bytes of a text that two ranks compare
_MEETING: Final = 60.0  # seconds in which all ranks have to connect, if there is no timeout
_MOST_RANKS: Final = 1 << 20
_INT64: Final = (-(1 << 63), (1 << 63) - 1)


@answering(
    {
        **dict.fromkeys(("Get_rank", "get_rank", "rank_id", "local_rank"), "rank"),
        **dict.fromkeys(("Get_size", "get_size", "world_size", "get_world_size", "nranks"), "size"),
        **dict.fromkeys(("Allreduce", "allreduce", "allReduce"), "all_reduce"),
        **dict.fromkeys(("Bcast", "bcast"), "broadcast"),
        **dict.fromkeys(("Allgather", "allgather", "allGather", "gather", "Gather"), "all_gather"),
        **dict.fromkeys(("Reduce_scatter", "reduceScatter"), "reduce_scatter"),
        **dict.fromkeys(("Alltoall", "alltoall"), "all_to_all"),
        **dict.fromkeys(("scatter", "Scatter"), "broadcast, and a slice of the pointer"),
        **dict.fromkeys(("isend", "Isend"), "send"),
        **dict.fromkeys(("irecv", "Irecv", "receive"), "recv"),
        **dict.fromkeys(("Split", "Dup", "dup", "clone"), "split"),
        **dict.fromkeys(("Free", "free", "destroy", "abort", "finalize"), "close()"),
        **dict.fromkeys(("synchronize", "sync", "wait"), "barrier(), or the end of the region, which waits"),
    }
)
@telling
@final
class Communicator:
    """Exchange and reduce device pointers among ranks: threads of this process, or processes.

        def main(communicator):
            x = np.array([1.0, 2.0]) * (communicator.rank + 1)
            with offload_args(x, device=communicator.device) as (dx,):
                communicator.all_reduce(dx)
            return x

        for x in Communicator.run(main, devices=["host", "host"]):  # a thread each
            print(x)  # [3. 6.]
                      # [3. 6.]

    Each rank has one communicator of one device, and all ranks call the same methods in the same order. Pointers belong
    to open regions on this device. A pointer's elements are in C or Fortran order without gaps, and a method takes them
    in the order of their memory. Arrays that are lent by use get their directions from the methods' reads and writes. A
    result that is lent by use or as Out is not copied up. An operand that a method reads must have a value. Methods run
    in order with the calls of the region.

    `timeout` is the greatest number of seconds that a method waits for the other ranks. With None, a method waits as
    long as the other ranks live. If a rank is killed, closes its communicator, or comes too late, the other ranks raise
    CommunicatorError. The error's `ranks` has the numbers of the lost ranks. After the error, the arrays for results
    have the values that they had before the call, and the communicator has ended.
    The limit also holds while the ranks connect, and while NCCL or RCCL connects them.

    With `debug`, all ranks compare the method, its dtype, its number of elements, its operation and its root before
    anything moves. A difference raises CommunicatorError on every rank. Threads with devices `host` and `sim` always
    compare them, and then the communicator has ended.

    As a context manager, a communicator is closed at the end of the block. So the other ranks don't wait for a rank
    that raised an exception. A communicator is also closed with its last reference, and at the end of the process. It
    can't be copied or pickled.

    See also: nccl.all_reduce, rccl.all_reduce; docs/guide/many.md.
    """

    __slots__ = ("__weakref__", "_backend", "_busy", "_debug", "_device", "_end", "_failure", "_process", "_timeout")

    _backend: Backend
    _busy: threading.Lock
    _debug: bool
    _device: Device
    _end: weakref.finalize[Any, Self]  # ends the backend of a communicator that was not closed
    _failure: tuple[tuple[int, ...], str] | None  # the ranks whose loss ended the communicator, and the reason
    _process: int  # the process that made it; a forked child can't use it
    _timeout: float | None

    def __init__(self) -> None:
        raise ArgumentTypeError(
            "Communicator: make one by Communicator.all(devices), join(rank, size, exchange), from_mpi(comm) or "
            "from_environment()"
        )

    # -- making communicators --------------------------------------------------------------------------------

    @classmethod
    def _of(cls, backend: Backend, device: Device, debug: bool, timeout: float | None) -> Self:
        self = object.__new__(cls)
        self._backend = backend
        self._busy = threading.Lock()
        self._debug = bool(debug)
        self._device = device
        self._failure = None
        self._process = os.getpid()
        self._timeout = timeout
        self._end = weakref.finalize(self, _close_elsewhere, backend, self._process)
        self._end.atexit = False
        _open.add(self)
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "Communicator: it can't be copied or pickled, because each rank has one; make another by split(0), and in "
            "another process by join(rank, size, exchange)"
        )

    @classmethod
    def all(cls, devices: Sequence[Device | str], *, debug: bool = False, timeout: float | None = None) -> list[Self]:
        """Return a communicator for each device; each communicator is for one thread of this process.

        devices: either devices `host` and `sim`, which may be repeated, or different GPUs of one vendor.

            def main(communicator, x):
                with communicator, offload_args(x, device=communicator.device) as (dx,):
                    communicator.all_reduce(dx)

            x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
            ranks = Communicator.all(["host", "host"])
            threads = [Thread(target=main, args=pair) for pair in zip(ranks, (x, y))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(x, y)  # [11. 22.] [11. 22.]

        See also: Communicator.run, Communicator.from_environment; docs/guide/many.md.
        """
        function = "Communicator.all"
        opened = _opened(function, devices)
        limit = _timeout(function, timeout)
        _need_one_kind(function, [_kind(device) for device in opened])
        links = MemoryLink.make(len(opened))
        backends: Sequence[Backend]
        if NcclBackend.has(opened[0]):
            backends = NcclBackend.all(links, opened)
        else:
            backends = [ThreadsBackend(link) for link in links]
        return [cls._of(backend, device, debug, limit) for backend, device in zip(backends, opened, strict=True)]

    @classmethod
    def join(
        cls,
        rank: int,
        size: int,
        exchange: Callable[[bytes], list[bytes]],
        *,
        device: Device | str | None = None,
        address: str = "127.0.0.1",
        debug: bool = False,
        timeout: float | None = None,
    ) -> Self:
        """Return the communicator of this process, one of `size` processes that can exchange bytes by any means.

        exchange: a function that takes this rank's bytes, and returns the bytes of all ranks in rank order, once all
        have called it. address: the address at which other ranks reach this one by TCP. The default address can be
        reached on this machine only. This rank listens at the address until all ranks have connected, for at most
        `timeout` seconds, or 60 s if `timeout` is None. It refuses connections that do not send the rank's secret.

            def exchange(data):  # the only rank: of several, by a queue, a file or a socket
                return [data]

            with Communicator.join(0, 1, exchange, device="host") as communicator:
                print(communicator)  # Communicator(rank 0 of 1 on host)

        See also: Communicator.from_environment, Communicator.from_mpi; docs/guide/many.md.
        """
        function = "Communicator.join"
        size = check_whole(function, "size", size, 1, _MOST_RANKS)
        rank = check_rank(function, "rank", rank, size)
        if not callable(exchange):
            raise ArgumentTypeError(f"{function}: exchange needs a function, got {shown(exchange)}")
        chosen, limit = _device(device, 0), _timeout(function, timeout)

        def checked(data: bytes) -> list[bytes]:
            return check_exchanged(function, exchange(data), data, rank, size)

        with _meeting(function, rank, limit) as deadline:
            link = SocketLink.make(rank, size, checked, address, deadline)
            backend = _joined(function, link, chosen, deadline)
        return cls._of(backend, chosen, debug, limit)

    @classmethod
    def from_environment(
        cls, *, device: Device | str | None = None, debug: bool = False, timeout: float | None = None
    ) -> Self:
        """Return the communicator of this process, which a launcher such as torchrun started.

        The variables RANK, WORLD_SIZE, MASTER_ADDR (by default 127.0.0.1), MASTER_PORT and LOCAL_RANK describe this
        process. Without any of these variables, this process is the only rank. Rank 0 listens at MASTER_ADDR until all
        ranks have connected; see `join`. If torchrun itself listens at MASTER_PORT, rank 0 listens at the first free
        one of the next 8 ports, or of the last 8 ports.

            with Communicator.from_environment(device="host") as communicator:  # torchrun --nproc-per-node 8 program.py
                print(communicator.rank < communicator.size)  # True

        See also: Communicator.from_mpi, Communicator.run; docs/guide/many.md.
        """
        function = "Communicator.from_environment"
        ranks = ranks_of_environment()
        chosen, limit = _device(device, ranks.local_rank), _timeout(function, timeout)
        with _meeting(function, ranks.rank, limit) as deadline, Meeting(ranks, deadline) as meeting:
            link = SocketLink.make(ranks.rank, ranks.size, meeting.exchange, meeting.address, deadline)
            backend = _joined(function, link, chosen, deadline)
        return cls._of(backend, chosen, debug, limit)

    @classmethod
    def from_mpi(
        cls,
        comm: Any = None,
        *,
        device: Device | str | None = None,
        debug: bool = False,
        timeout: float | None = None,
    ) -> Self:
        """Return the communicator of this process, with the ranks of an MPI communicator. All of these ranks call it.

        comm: a communicator of mpi4py, which is duplicated; None stands for MPI.COMM_WORLD. If a process is killed, MPI
        ends all others.

            with Communicator.from_mpi(device="host") as communicator:  # mpirun -n 8 python program.py
                print(communicator.rank < communicator.size)  # True

        See also: Communicator.from_environment, Communicator.run; docs/guide/many.md.
        """
        function = "Communicator.from_mpi"
        if comm is None:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        if not hasattr(comm, "Get_rank") or not hasattr(comm, "Dup"):
            raise ArgumentTypeError(f"{function}: comm needs a communicator of mpi4py, got {shown(comm)}")
        if not comm or comm.Is_inter():  # COMM_NULL, also of a freed one, is false
            raise ArgumentError(
                f"{function}: comm needs an open communicator within one group, got "
                f"{'one between two groups' if comm else 'MPI.COMM_NULL, or one that was freed'}"
            )
        chosen, limit = _device(device, _local_rank_of_mpi()), _timeout(function, timeout)
        link = MpiLink.duplicate(comm)
        with _meeting(function, link.rank, limit) as deadline:
            backend = _joined(function, link, chosen, deadline)
        return cls._of(backend, chosen, debug, limit)

    @classmethod
    def run(
        cls,
        function: Callable[..., _Result],
        /,
        *arguments: Any,
        devices: Sequence[Device | str] = ("host",),
        debug: bool = False,
        timeout: float | None = None,
    ) -> list[_Result]:
        """Call function(communicator, *arguments) on each rank of this process, and return the results.

        In a program that mpirun or torchrun started, this process is one rank. Its device is devices[i % len(devices)],
        where i is the number of the rank on this machine. Otherwise each device has a rank in this process, on a
        thread. Communicators are closed at the end.

        If ranks of this process raise exceptions, this method raises the first one that is not a CommunicatorError, or
        else the first CommunicatorError.

            def main(communicator, factor):
                return factor * communicator.rank

            print(Communicator.run(main, 10, devices=["host", "host", "host"]))  # [0, 10, 20]

        See also: Communicator.all, Communicator.from_environment, Communicator.from_mpi; docs/guide/many.md.
        """
        need_function("Communicator.run", "function", function)
        opened = _opened("Communicator.run", devices)
        if any(name in os.environ for name in _OF_MPI):
            ranks = [cls.from_mpi(device=opened[_local_rank_of_mpi() % len(opened)], debug=debug, timeout=timeout)]
        elif "WORLD_SIZE" in os.environ:
            local = ranks_of_environment().local_rank
            ranks = [cls.from_environment(device=opened[local % len(opened)], debug=debug, timeout=timeout)]
        else:
            ranks = cls.all(opened, debug=debug, timeout=timeout)
        return run_ranks(function, ranks, arguments)

    # -- the description -------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._backend.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._backend.size

    @property
    def device(self) -> Device:
        """The device of this rank, and of its pointers."""
        return self._device

    def __repr__(self) -> str:
        state = "" if self._failure is None else f", ended: {self._failure[1]}"
        return f"Communicator(rank {self.rank} of {self.size} on {self._device}{state})"

    # -- collectives -----------------------------------------------------------------------------------------

    def all_reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any] | None = None, op: str = "sum") -> None:
        """Combine `send` of all ranks, element by element, into `recv` of all ranks.

        recv: a pointer of the same shape and dtype; None stands for `send`. op: "sum", "prod", "min" or "max".

            def main(communicator):
                x = np.array([1.0, 2.0]) * (communicator.rank + 1)
                with offload_args(x, device=communicator.device) as (dx,):
                    communicator.all_reduce(dx, op="max")
                return x

            print(*Communicator.run(main, devices=["host", "host"]))  # [2. 4.] [2. 4.]

        See also: Communicator.reduce, Communicator.reduce_scatter; nccl.all_reduce, rccl.all_reduce;
        docs/guide/many.md.
        """
        function = "Communicator.all_reduce"
        source, target = self._pair(function, send, recv)
        check_operation(function, op, source)
        with self._call(function, ("all_reduce", source.size, source.dtype, op)) as deadline:
            self._backend.all_reduce(source, target, op, deadline)

    def all_gather(self, send: DevicePtr[Any], recv: DevicePtr[Any]) -> None:
        """Write `send` of rank i to part i of `recv`, on all ranks.

        recv: has `size` times as many elements as send. To work in place, pass the rank's own part of recv as send:
        recv[rank * n : rank * n + n].

            def main(communicator):
                x, every = np.array([1.0 + communicator.rank]), np.empty(2)
                with offload_args(x, every, device=communicator.device) as (dx, devery):
                    communicator.all_gather(dx, devery)
                return every

            print(*Communicator.run(main, devices=["host", "host"]))  # [1. 2.] [1. 2.]

        See also: Communicator.broadcast, Communicator.all_to_all; nccl.all_gather, rccl.all_gather; docs/guide/many.md.
        """
        function = "Communicator.all_gather"
        source, target = self._operands(function, send, recv)
        check_size(function, target, source.size * self.size, f"the elements of send of each of {self.size} ranks")
        check_aliases(function, source, target, self.rank)
        with self._call(function, ("all_gather", source.size, source.dtype, "")) as deadline:
            self._backend.all_gather(source, target, deadline)

    def reduce_scatter(self, send: DevicePtr[Any], recv: DevicePtr[Any], op: str = "sum") -> None:
        """Combine part i of `send` of all ranks, element by element, into `recv` of rank i.

        send: has `size` times as many elements as recv. To work in place, pass the rank's own part of send as recv:
        send[rank * n : rank * n + n].

            def main(communicator):
                x, part = np.array([1.0, 10.0]), np.empty(1)
                with offload_args(x, part, device=communicator.device) as (dx, dpart):
                    communicator.reduce_scatter(dx, dpart)
                return part

            print(*Communicator.run(main, devices=["host", "host"]))  # [2.] [20.]

        See also: Communicator.all_reduce, Communicator.all_gather; nccl.reduce_scatter, rccl.reduce_scatter;
        docs/guide/many.md.
        """
        function = "Communicator.reduce_scatter"
        source, target = self._operands(function, send, recv)
        check_operation(function, op, source)
        if source.size != target.size * self.size:
            raise ArgumentError(
                f"{function}: send has {source.size} elements, needs {target.size * self.size}: the elements of recv "
                f"for each of {self.size} ranks"
            )
        check_aliases(function, source, target, self.rank)
        with self._call(function, ("reduce_scatter", target.size, target.dtype, op)) as deadline:
            self._backend.reduce_scatter(source, target, op, deadline)

    def broadcast(self, buffer: DevicePtr[Any], root: int = 0) -> None:
        """Write the buffer of the root to the buffers of all other ranks.

            def main(communicator):
                x = np.full(2, float(communicator.rank))
                with offload_args(x, device=communicator.device) as (dx,):
                    communicator.broadcast(dx, root=1)
                return x

            print(*Communicator.run(main, devices=["host", "host"]))  # [1. 1.] [1. 1.]

        See also: Communicator.all_gather, Communicator.reduce; nccl.broadcast, rccl.broadcast; docs/guide/many.md.
        """
        function = "Communicator.broadcast"
        root = check_rank(function, "root", root, self.size)
        vector = self._flat(function, "buffer", buffer, writes=self.rank != root)
        with self._call(function, ("broadcast", vector.size, vector.dtype, root)) as deadline:
            self._backend.broadcast(vector, root, deadline)

    def reduce(self, send: DevicePtr[Any], recv: DevicePtr[Any] | None = None, op: str = "sum", root: int = 0) -> None:
        """Combine `send` of all ranks, element by element, into `recv` of the root.

        recv: on the root, a pointer of the same shape and dtype for the result; None stands for `send`. Other ranks
        need no recv.

            def main(communicator):
                x = np.array([1.0, 2.0]) * (communicator.rank + 1)
                with offload_args(x, device=communicator.device) as (dx,):
                    communicator.reduce(dx, root=0)
                return x

            print(*Communicator.run(main, devices=["host", "host"]))  # [3. 6.] [2. 4.]

        See also: Communicator.all_reduce, Communicator.broadcast; nccl.reduce, rccl.reduce; docs/guide/many.md.
        """
        function = "Communicator.reduce"
        root = check_rank(function, "root", root, self.size)
        target: DevicePtr[Any] | None = None
        if self.rank == root:
            source, target = self._pair(function, send, recv)
        else:
            source = self._flat(function, "send", send, writes=False)
        check_operation(function, op, source)
        with self._call(function, ("reduce", source.size, source.dtype, f"{op} to {root}")) as deadline:
            self._backend.reduce(source, target, op, root, deadline)

    def all_to_all(self, send: DevicePtr[Any], recv: DevicePtr[Any]) -> None:
        """Write part j of `send` of rank i to part i of `recv` of rank j.

        Both operands have `size` parts of the same number of elements. They must not overlap.

            def main(communicator):
                x, y = np.array([1.0, 2.0]) + 10 * communicator.rank, np.empty(2)
                with offload_args(x, y, device=communicator.device) as (dx, dy):
                    communicator.all_to_all(dx, dy)
                return y

            print(*Communicator.run(main, devices=["host", "host"]))  # [ 1. 11.] [ 2. 12.]

        See also: Communicator.all_gather, Communicator.send; nccl.all_to_all, rccl.all_to_all; docs/guide/many.md.
        """
        function = "Communicator.all_to_all"
        source, target = self._operands(function, send, recv)
        check_size(function, target, source.size, "the elements of send")
        if source.size % self.size:
            raise ArgumentError(f"{function}: send has {source.size} elements, needs a multiple of {self.size} ranks")
        check_aliases(function, source, target, None)
        with self._call(function, ("all_to_all", source.size, source.dtype, "")) as deadline:
            self._backend.all_to_all(source, target, deadline)

    def send(self, buffer: DevicePtr[Any], peer: int) -> None:
        """Send a buffer to another rank, which receives it by `recv`.

            def main(communicator):
                x = np.full(2, float(communicator.rank))
                with offload_args(x, device=communicator.device) as (dx,):
                    if communicator.rank == 0:
                        communicator.send(dx, 1)
                    else:
                        communicator.recv(dx, 0)
                return x

            print(*Communicator.run(main, devices=["host", "host"]))  # [0. 0.] [0. 0.]

        See also: Communicator.recv, Communicator.all_to_all; nccl.send, rccl.send; docs/guide/many.md.
        """
        self._pass("send", self._backend.send, buffer, peer)

    def recv(self, buffer: DevicePtr[Any], peer: int) -> None:
        """Receive a buffer from another rank, which sends it by `send`.

            def main(communicator):
                x = np.full(2, 7.0 + communicator.rank)
                with offload_args(x, device=communicator.device) as (dx,):
                    if communicator.rank == 0:
                        communicator.send(dx, 1)
                    else:
                        communicator.recv(dx, 0)
                return x

            print(*Communicator.run(main, devices=["host", "host"]))  # [7. 7.] [7. 7.]

        See also: Communicator.send, Communicator.all_to_all; nccl.recv, rccl.recv; docs/guide/many.md.
        """
        self._pass("recv", self._backend.recv, buffer, peer)

    def barrier(self) -> None:
        """Wait until all ranks have called this method.

            def main(communicator):
                if communicator.rank == 0:
                    np.save("x.npy", np.ones(2))
                communicator.barrier()  # the file is there
                return np.load("x.npy")

            print(*Communicator.run(main, devices=["host", "host"]))  # [1. 1.] [1. 1.]

        See also: Communicator.all_reduce; docs/guide/many.md.
        """
        with self._call("Communicator.barrier", ("barrier", 0, "", "")) as deadline:
            self._backend.barrier(deadline)

    # -- splitting and closing -------------------------------------------------------------------------------

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Return a communicator of the ranks with the same color; all ranks call this method together.

        color: a number; None for a rank that gets no new communicator. key: determines the order of the ranks;
        ranks with equal keys are in the order of their numbers.

            def main(communicator):
                with communicator.split(communicator.rank % 2) as part:  # ranks 0 and 2, and rank 1
                    return part.rank, part.size

            print(*Communicator.run(main, devices=["host"] * 3))  # (0, 2) (0, 1) (1, 2)

        See also: Communicator.close; nccl.comm_split, rccl.comm_split; docs/guide/many.md.
        """
        function = "Communicator.split"
        if color is not None:
            color = check_whole(function, "color", color, *_INT64)
        key = check_whole(function, "key", key, *_INT64)
        with self._call(function, ("split", 0, "", "")) as deadline:
            backend = self._backend.split(color, key, deadline)
        return None if backend is None else self._of(backend, self._device, self._debug, self._timeout)

    def close(self) -> None:
        """End the communicator. Ranks that wait for this rank raise CommunicatorError. A second call has no effect.

        A method that waits on another thread raises CommunicatorError, too.

            communicator, other = Communicator.all(["host", "host"])
            communicator.close()
            try:
                other.barrier()
            except CommunicatorError as error:
                print(error.ranks)  # (0,)
            other.close()

        See also: Communicator.split; docs/guide/many.md.
        """
        if self._failure is not None or self._process != os.getpid():
            return
        if self._busy.acquire(blocking=False):
            try:
                self._failure = (self.rank,), "it is closed"
                self._end.detach()
                self._backend.close()
            finally:
                self._busy.release()
        else:  # end the wait of the thread that uses it
            self._fail((self.rank,), f"rank {self.rank} was closed by another thread")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and self._failure is None:
            self._fail((self.rank,), f"rank {self.rank} raised {type(error).__name__}")
        self.close()

    # -- checks ----------------------------------------------------------------------------------------------

    def _flat(self, function: str, name: str, pointer: DevicePtr[Any], *, writes: bool) -> DevicePtr[Any]:
        return flat(function, name, pointer, self._device.number, writes=writes)

    def _operands(
        self, function: str, send: DevicePtr[Any], recv: DevicePtr[Any]
    ) -> tuple[DevicePtr[Any], DevicePtr[Any]]:
        source = self._flat(function, "send", send, writes=False)
        target = self._flat(function, "recv", recv, writes=True)
        check_dtype(function, source, target)
        check_order(function, send, recv)
        return source, target

    def _pair(
        self, function: str, send: DevicePtr[Any], recv: DevicePtr[Any] | None
    ) -> tuple[DevicePtr[Any], DevicePtr[Any]]:
        """Return the operands of a reduction into an array of the same shape."""
        if recv is None or recv is send:
            vector = self._flat(function, "send", send, writes=True)
            return vector, vector
        operands = self._operands(function, send, recv)
        check_shape(function, send, recv)
        check_aliases(function, *operands, self.rank)
        return operands

    def _peer(self, function: str, peer: int) -> int:
        peer = check_rank(function, "peer", peer, self.size)
        if peer == self.rank:
            raise ArgumentError(f"{function}: peer needs another rank than this one, {peer}; use copy_from here")
        return peer

    def _pass(
        self, name: str, method: Callable[[DevicePtr[Any], int, float | None], None], buffer: DevicePtr[Any], peer: int
    ) -> None:
        """Send a buffer to another rank, or receive it, by the backend's method."""
        function = f"Communicator.{name}"
        peer = self._peer(function, peer)
        vector = self._flat(function, "buffer", buffer, writes=name == "recv")
        with self._call(function, (name, vector.size, vector.dtype, ""), peer) as deadline:
            method(vector, peer, deadline)

    @contextmanager
    def _call(
        self, function: str, signature: tuple[str, int, object, object], peer: int | None = None
    ) -> Iterator[float | None]:
        """Run a method of the backend: only one at a time, and none after a failure."""
        if self._process != os.getpid():
            raise ForkedError(
                f"{function}: the communicator belongs to the process that this one was forked from; make one here, in "
                'a process that was started by "spawn"'
            )
        if not self._busy.acquire(blocking=False):
            raise CommunicatorError(
                f"{function}: another thread is using this communicator; each thread needs one of its own: split(0)"
            )
        try:
            if self._failure is not None:
                ranks, reason = self._failure
                raise CommunicatorError(f"{function}: the communicator has ended: {reason}; make a new one", ranks)
            deadline = None if self._timeout is None else time.monotonic() + self._timeout
            try:
                if self._debug:
                    self._compare(function, signature, peer, deadline)
                yield deadline
            except LostRanksError as lost:
                ranks, reason = self._failure or (
                    lost.ranks,
                    lost.reason or f"{_ranks(lost.ranks)} did not come within {self._timeout} s",
                )
                self._fail(ranks, reason)
                raise CommunicatorError(
                    f"{function}: on rank {self.rank} of {self.size}: {reason}; the communicator has ended", ranks
                ) from None
            except CommunicatorError:
                raise
            except BaseException as error:
                self._fail((self.rank,), f"rank {self.rank} raised {type(error).__name__} in {function}")
                raise
        finally:
            self._busy.release()

    def _fail(self, ranks: tuple[int, ...], reason: str) -> None:
        if self._failure is None:
            self._failure = ranks, reason
            self._end.detach()
            if self._process == os.getpid():
                self._backend.give_up(ranks, reason)

    def _compare(
        self, function: str, signature: tuple[str, int, object, object], peer: int | None, deadline: float | None
    ) -> None:
        """Raise CommunicatorError on all ranks if their calls differ."""
        method, count, dtype, option = signature
        text = f"{method}, {count} elements, {dtype}, {option}".removesuffix(", ") if dtype else method
        if peer is None:
            texts = dict(enumerate(part.decode() for part in self._backend.share(text.encode(), deadline)))
        else:  # both send and recv
            text = text.removeprefix("send, ").removeprefix("recv, ")
            data = text.encode().ljust(_TEXT)
            texts = {self.rank: text, peer: self._backend.compare(data, peer, deadline).decode().rstrip()}
        if len({*texts.values()}) > 1:
            calls = "; ".join(f"rank {rank}: {call}" for rank, call in sorted(texts.items()))
            raise CommunicatorError(
                f"{function}: the ranks call different things, and nothing has moved: {calls}", sorted(texts)
            )


_open: Final[weakref.WeakSet[Communicator]] = weakref.WeakSet()
_closing: Final[set[threading.Thread]] = set()  # they close backends of communicators that ended without `close`
_unclosed: Final[list[Backend]] = []  # of these, the backends that only the end of the process closes
_PATIENCE = 1.0  # seconds


def _close_elsewhere(backend: Backend, process: int) -> None:
    """Close the backend of a communicator that ended with its last reference, so that no rank waits for it.

    A thread does so, because the garbage collector may run while this thread has a lock that closing needs. If no other
    thread may close the backend, the end of the process does.
    """
    if process != os.getpid():
        return
    if not backend.closes_on_any_thread():
        _unclosed.append(backend)
        return

    def close() -> None:
        try:
            backend.close()
        finally:
            _closing.discard(threading.current_thread())

    thread = threading.Thread(target=close, name="offload_args.Communicator", daemon=True)
    _closing.add(thread)
    thread.start()


def _leave_all() -> None:
    """Report to the other ranks, at the end of the process, that its ranks leave."""
    for thread in [*_closing]:
        thread.join(_PATIENCE)
    for backend in _unclosed:
        backend.leave()
    for communicator in [*_open]:
        if communicator._failure is None and communicator._process == os.getpid():
            communicator._backend.leave()


atexit.register(_leave_all)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _timeout(function: str, timeout: object) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, Real):
        try:
            seconds = float(timeout)
        except OverflowError:
            seconds = math.inf
        if seconds > 0:
            return seconds
    raise ArgumentError(f"{function}: timeout needs seconds, more than 0, or None, got {shown(timeout)}")


def _opened(function: str, devices: Sequence[Device | str]) -> list[Device]:
    try:
        listed = [] if isinstance(devices, (str, bytes, Device, dict)) else list(devices)
    except TypeError:
        listed = []
    if not listed:
        raise ArgumentTypeError(f'{function}: devices needs a list such as ["host", "host"], got {shown(devices)}')
    opened = []
    for place, device in enumerate(listed):
        try:
            opened.append(as_device(device))
        except OffloadError as error:
            rename(error, "^Device: (name )?", f"{function}: devices[{place}] ")
            raise
    return opened


def _device(device: Device | str | None, local_rank: int) -> Device:
    """Return the device of a process.

    None stands for the GPU whose number is the local rank modulo the number of GPUs, or for the host.
    """
    if device is not None:
        return as_device(device)
    default = Device.default()
    if not default.is_gpu:
        return default
    alike = [other for other in Device.all() if other.backend == default.backend]
    return alike[local_rank % len(alike)]


def _local_rank_of_mpi() -> int:
    return next((int(os.environ[name]) for name in _LOCAL_OF_MPI if name in os.environ), 0)


def _kind(device: Device) -> str:
    return device.backend if NcclBackend.has(device) else "CPU"


def _need_one_kind(function: str, kinds: Sequence[str]) -> None:
    if len({*kinds}) > 1:
        raise ArgumentError(
            f"{function}: all ranks need devices of the CPU, or all need GPUs of one vendor; theirs are of "
            f"{', '.join(kinds)}"
        )


def _joined(function: str, link: Link, device: Device, deadline: float) -> Backend:
    """Return the backend of a device over a link; all ranks call this function together."""
    try:
        kinds = [text.decode() for text in link.share(_kind(device).encode(), deadline)]
        _need_one_kind(function, kinds)
        return NcclBackend.join(link, device, deadline) if NcclBackend.has(device) else HostBackend(link)
    except LostRanksError as lost:
        link.give_up(lost.ranks, lost.reason)  # so that the errors of all other ranks name the same rank
        raise
    except BaseException:
        link.close()
        raise


@contextmanager
def _meeting(function: str, rank: int, timeout: float | None) -> Iterator[float]:
    """Yield the time by which all ranks have to connect; raise CommunicatorError if some do not."""
    seconds = _MEETING if timeout is None else timeout
    try:
        yield time.monotonic() + seconds
    except LostRanksError as lost:
        reason = lost.reason or f"{_ranks(lost.ranks)} did not come within {seconds} s"
        raise CommunicatorError(f"{function}: on rank {rank}: {reason}", lost.ranks) from None
