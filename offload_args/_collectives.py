"""Unique IDs, groups of calls, and communicators of one process, for offload_args.nccl and offload_args.rccl."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

from .devices import as_device
from .errors import ArgumentError, ArgumentTypeError, OffloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from .devices import Device

__all__ = ["Group", "UniqueId", "in_thread", "init_all"]

_Comm = TypeVar("_Comm")
_Result = TypeVar("_Result")
_BYTES: Final = 128


@final
class UniqueId(bytes):
    """The ID of a new communicator: 128 bytes that one rank makes and passes to all others.

    An ID can be sent as `bytes(id)` or as a pickle. `UniqueId(data)` makes the ID again from the bytes.
    """

    __slots__ = ()

    def __new__(cls, data: bytes | bytearray | memoryview) -> Self:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"UniqueId: data needs {_BYTES} bytes, got {type(data).__name__}")
        self = super().__new__(cls, data)
        if len(self) != _BYTES:
            raise ArgumentError(f"UniqueId: data needs {_BYTES} bytes, got {len(self)}")
        return self

    def __getnewargs__(self) -> tuple[bytes]:
        return (bytes(self),)

    def __repr__(self) -> str:
        return f"UniqueId({bytes(self[:4]).hex()}...)"


@final
class Group:
    """A group of calls of this thread: `with nccl.group(): ...` issues these calls together at the end of the block."""

    __slots__ = ("_end", "_start")

    def __init__(self, start: Callable[[], None], end: Callable[[], None]) -> None:
        self._start = start
        self._end = end

    def __enter__(self) -> None:
        self._start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._end()
            return
        with suppress(OffloadError):  # only the first error is raised
            self._end()


def init_all(
    library: str,
    devices: Iterable[Device | str],
    unique_id: Callable[[], UniqueId],
    init_rank: Callable[[int, bytes, int, Any], _Comm],
) -> list[_Comm]:
    """Return a communicator's ranks, one for each device, in the order of the devices."""
    function = f"{library}.comm_init_all"
    opened = [as_device(device) for device in devices]
    if not opened:
        raise ArgumentError(f"{function}: devices needs at least 1 device, got none")
    for device in opened:
        if device.backend != opened[0].backend:
            raise ArgumentError(
                f"{function}: devices needs devices of one kind, got {opened[0].name} and {device.name}"
            )
        if opened.count(device) > 1:
            raise ArgumentError(f"{function}: devices has {device.name} twice; each rank needs a device of its own")
    shared = unique_id()
    ranks = [in_thread(partial(init_rank, len(opened), shared, rank, device)) for rank, device in enumerate(opened)]
    for rank in wait(ranks, return_when=FIRST_EXCEPTION).done:  # after a failure the other ranks may wait forever
        rank.result()
    return [rank.result() for rank in ranks]


def in_thread(call: Callable[[], _Result]) -> Future[_Result]:
    """Return the future result of a call in a thread of its own, which does not delay the end of the program."""
    result: Future[_Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="offload_args.Communicator", daemon=True).start()
    return result
