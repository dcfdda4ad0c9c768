"""Groups of calls, and communicators of several devices of one process, for offload_args.nccl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import nccl
from ._collectives import Group, init_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .devices import Device
    from .nccl import Comm

__all__ = ["comm_init_all", "group"]


def comm_init_all(devices: Iterable[Device | str]) -> list[Comm]:
    """Make a communicator of several devices of this process.

    Returns its ranks, one for each device, in the order of the devices. comm_init_rank makes each rank in a separate
    thread.
    """
    return init_all("nccl", devices, nccl.get_unique_id, nccl.comm_init_rank)


def group() -> Group:
    """Return a group for `with`: the calls that this thread makes in the block are issued together at its end.

    Groups may be nested; the end of the outermost one issues the calls. An error in the block also ends the group.
    """
    return Group(nccl.group_start, nccl.group_end)
