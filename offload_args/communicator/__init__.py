"""Communicators: exchanges and reductions of device pointers among several devices.

    def main(communicator):
        with communicator, offload_args(y, device=communicator.device) as (dy,):
            communicator.all_reduce(dy)

    for communicator in Communicator.all(["host", "host"]):      # the ranks are threads of this process
        Thread(target=main, args=(communicator,)).start()

`Communicator` has the methods; docs/guide/many.md compares the ways to start ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..display import listing, missing
from .communicator import Communicator

__all__ = ["Communicator"]

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
