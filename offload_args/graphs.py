"""Graphs: calls of a region that are captured once, and run again by one launch, with new data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .display import shown
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    RegionError,
    StaleGraphError,
    StalePointerError,
)
from .pointers import DevicePtr

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Capture", "Graph"]


class Graph:
    """Run the captured calls of a region again, by one launch.

    `region.capture()` makes it. A graph knows the arrays that its calls use. So a replay is one call: it runs in order
    with other calls, brings up what the host has newer, and its results come down as those of a call do. A graph lives
    as long as its region.
    """

    __slots__ = ("__weakref__", "_handle", "_names", "_region")

    def __init__(self) -> None:
        self._handle: int | None = None
        self._names: dict[str, DevicePtr[Any]] = {}
        self._region: _core.Region[Any] | None = None

    def replay(self, **arrays: Any) -> None:
        """Run the captured calls.

        arrays: new contents by the names that were given to `capture`, as host arrays or as pointers of the same shape
        and dtype; what is not named stays as it is on the device. They are checked before anything is written.

        Raises StaleGraphError if the region, or that of one of the arrays, has ended; ArgumentError for an unknown name
        or another shape, DTypeError for another dtype; and what `DevicePtr.assign` raises.
        """
        handle = self._usable("replay")
        if arrays:
            self._write(arrays)
        try:
            _core.chain_replay(handle)
        except StalePointerError as error:
            raise StaleGraphError(f"Graph.replay: {str(error).partition(': ')[2]}") from None

    def update(self, **names: DevicePtr[Any]) -> Capture:
        """Capture other calls in place of these, such as after a change of shape: `with g.update(x=dx): ...`.

        names: as `offload_args.capture` takes them. The old calls go when the block begins.
        """
        if self._region is None:
            raise RegionError("Graph.update: the graph was never captured; make it by region.capture()")
        return Capture(self._region, names, self)

    @property
    def calls(self) -> int:
        """The number of calls that were captured."""
        return _core.chain_info(self._usable("calls"))[0]

    @property
    def arrays(self) -> int:
        """The number of arrays that the captured calls use; arrays that share elements count once."""
        return _core.chain_info(self._usable("arrays"))[1]

    @property
    def replays(self) -> int:
        """The number of replays so far."""
        return _core.chain_info(self._usable("replays"))[2]

    def _usable(self, what: str) -> int:
        if self._handle is None:
            raise StaleGraphError(f"Graph.{what}: the graph has no calls: its capture has not ended, or failed")
        return self._handle

    def _write(self, arrays: dict[str, Any]) -> None:
        for name, value in arrays.items():
            if name not in self._names:
                known = ", ".join(self._names) or "none"
                raise ArgumentError(f"Graph.replay: no array was captured as {shown(name)}; known names: {known}")
            self._check(name, value)
        for name, value in arrays.items():
            pointer = self._names[name]
            if isinstance(value, DevicePtr):
                if value is not pointer:
                    pointer.copy_from(value)
            else:
                pointer.assign(value)

    def _check(self, name: str, value: Any) -> None:
        pointer = self._names[name]
        if "dead" in pointer._state():
            raise StaleGraphError(f"Graph.replay: the region of {name} has ended; capture in an open region")
        if not isinstance(value, (DevicePtr, np.ndarray, np.generic)):
            raise ArgumentTypeError(
                f"Graph.replay: {name} needs a NumPy array or a DevicePtr, got {type(value).__name__}"
            )
        if not _core.query(pointer).writable:
            raise DirectionError(f"Graph.replay: {name} was lent as In or is read-only; lend it as InOut")
        if value.shape != pointer.shape:
            raise ArgumentError(
                f"Graph.replay: {name} needs shape {pointer.shape}, got {value.shape}; g.update(...) captures other "
                "shapes"
            )
        if value.dtype != pointer.dtype:
            raise DTypeError(f"Graph.replay: {name} needs {pointer.dtype}, got {value.dtype}; convert it first")

    def _release(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            _core.chain_release(handle)

    def __del__(self) -> None:
        if self._handle is not None:  # the interpreter may have gone so far that the module is gone
            self._release()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Graph without calls>"
        calls, arrays, replays = _core.chain_info(self._handle)
        names = f", names: {', '.join(self._names)}" if self._names else ""
        return f"<Graph of {calls} calls on {arrays} arrays{names}; replayed {replays} times>"


class Capture:
    """Capture the calls of a region within a block, instead of running them: `with region.capture() as g:`."""

    __slots__ = ("_graph", "_handle", "_names", "_region")

    def __init__(self, region: _core.Region[Any], names: dict[str, DevicePtr[Any]], graph: Graph | None = None) -> None:
        for name, pointer in names.items():
            if not isinstance(pointer, DevicePtr):
                raise ArgumentTypeError(
                    f"offload_args.capture: {name} needs a DevicePtr of the region, got {type(pointer).__name__}"
                )
        self._region = region
        self._names = names
        self._graph = Graph() if graph is None else graph
        self._handle: int | None = None

    def __enter__(self) -> Graph:
        self._graph._release()
        self._handle = self._region._capture()
        return self._graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handle = self._handle
        if handle is None:
            raise RegionError("offload_args.capture: this block is not entered; use it as `with region.capture():`")
        if kind is not None:
            _core.chain_release(handle)
            self._handle = None
            return
        try:
            _core.chain_end(handle)  # releases it if it fails
            self._graph._handle = handle
        finally:
            self._handle = None
        self._graph._names = self._names
        self._graph._region = self._region

    def __del__(self) -> None:
        handle: int | None = getattr(self, "_handle", None)
        if handle is not None:  # the block was never left
            _core.chain_release(handle)
