"""Groups of calls, and communicators of several devices of one process, for offload_args.rccl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import rccl
from ._collectives import Group, init_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .devices import Device
    from .rccl import Comm

__all__ = ["comm_init_all", "group"]


def comm_init_all(devices: Iterable[Device | str]) -> list[Comm]:
    """Make a communicator of several devices of this process.

    Returns its ranks, one for each device, in the order of the devices. comm_init_rank makes each rank in a separate
    thread.
    """
    return init_all("rccl", devices, rccl.get_unique_id, rccl.comm_init_rank)


def group() -> Group:
    """Return a group for `with`: the calls that this thread makes in the block are issued together at its end.

    Groups may be nested; the end of the outermost one issues the calls. An error in the block also ends the group.
    """
    return Group(rccl.group_start, rccl.group_end)
