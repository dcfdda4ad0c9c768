"""Graphs: a region's calls, which are captured once, and run again on new data by one launch."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Coroutine, Generator
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from . import _core
from ._bodies import fixed_values
from ._operands import checking, need_path
from ._signatures import telling
from .arguments import Scratch
from .display import answering, plural, shown, size_text
from .dtypes import converted, copied, spelled
from .errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    OffloadError,
    RegionError,
    StaleGraphError,
    StalePointerError,
    caller_name,
)
from .pointers import DevicePtr, _values, listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Never

__all__ = ["Capture", "Graph", "Node"]


class Node(NamedTuple):
    """Describe a captured call: its function, and the arrays that it reads and writes, by name."""

    function: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def _stale(function: str, error: StalePointerError) -> StaleGraphError:
    """Return the exception of a graph, which replaces the exception of a captured pointer."""
    return StaleGraphError(f"{function}: {str(error).partition(': ')[2]}")


_is_child = False  # whether this is a forked child, in which a lock may be held by a thread that does not exist


def _note_child() -> None:
    global _is_child
    _is_child = True


os.register_at_fork(after_in_child=_note_child)


def _holding(lock: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context that holds the lock; in a forked child none, because each use of the core fails there."""
    return contextlib.nullcontext() if _is_child else lock


@answering(
    {
        **dict.fromkeys(("launch", "run", "execute", "exec"), "replay()"),
        **dict.fromkeys(("debug_dump", "dump", "plot", "dot", "save", "print"), "draw(file), or print(graph)"),
        **dict.fromkeys(("kernels", "functions"), "nodes"),
        **dict.fromkeys(("upload", "instantiate"), "replay(): the first one does so"),
        **dict.fromkeys(("capture_begin", "capture_end", "begin", "end"), "with region.capture() as g"),
    }
)
class Graph:
    """Run the captured calls of a region again, by one launch.

    `region.capture()` makes a graph. A graph has a list of the arrays that its calls use. So a replay behaves like one
    call: it runs in order with other calls, and brings up arrays that are newer on the host. The results of a replay
    come down like the results of a call. A graph lives as long as its region. `g["x"]` is the pointer that was captured
    as x.

        x = np.ones(3)
        region = offload_args(x)
        with region as (dx,):
            with region.capture(factor=2.0) as g:
                blas.scal(g["factor"], dx)
            g.replay()
            g.replay(factor=10.0)
            print(g.calls, g.arrays, g.replays)  # 1 2 2
        print(x)  # [20. 20. 20.]

    See also: offload_args; docs/guide/graphs.md.
    """

    __slots__ = ("__weakref__", "_handle", "_lock", "_names", "_region")

    @telling
    def __init__(self) -> None:
        self._handle: object = None
        self._lock = threading.RLock()  # a replay may run code of Python, such as a handler that replays the graph
        self._names: dict[str, DevicePtr[Any]] = {}
        self._region: _core.Region[Any] | None = None

    def replay(self, /, *wrong: Never, **contents: Any) -> None:
        """Run the captured calls.

        contents: new contents by their names in `capture`. They are host arrays or pointers of the same shape and
        dtype, or numbers for scalars. Other arrays keep their contents on the device. All new contents are checked
        before anything is written. They are read as they were before the replay, so `replay(a=db, b=da)` swaps two
        arrays. A replay with contents is one step: no replay on another thread comes between the writes and the calls.

        Raises StaleGraphError if the region, or the region of one of the arrays, has ended. Raises ArgumentError for an
        unknown name or another shape, DTypeError for another dtype, and the errors of `DevicePtr.assign`.

            x, y = np.ones(2), np.zeros(2)
            region = offload_args(x, y)
            with region as (dx, dy):
                with region.capture(x=dx) as g:
                    blas.axpy(1.0, dx, dy)
                for step in range(3):
                    g.replay(x=np.full(2, float(step)))
            print(y)  # [3. 3.]

        See also: Graph.update, offload_args.capture; docs/guide/graphs.md.
        """
        if wrong:
            raise ArgumentTypeError(
                f"Graph.replay: contents stand by their names, got {len(wrong)} by position; write "
                f"g.replay({next(iter(self._names), 'x')}=...), and name pointers by region.capture(x=dx)"
            )
        with _holding(self._lock):
            handle = self._usable("replay")
            if contents and not _is_child:
                self._write(handle, contents)
            try:
                _core.chain_replay(handle)
            except StalePointerError as error:
                raise _stale("Graph.replay", error) from None

    @telling
    def update(self, /, **names: Any) -> Capture:
        """Capture new calls in place of the old calls, for example for another shape: `with g.update(x=dx): ...`.

        names: as in `offload_args.capture`. The old calls and scalars are freed when the block begins.

            x = np.ones(3)
            region = offload_args(x)
            with region as (dx,):
                with region.capture() as g:
                    blas.scal(2.0, dx)
                g.replay()
                with g.update():
                    blas.scal(5.0, dx[:1])
                g.replay()
            print(x)  # [10.  2.  2.]

        See also: Graph.replay, offload_args.capture; docs/guide/graphs.md.
        """
        if self._region is None:
            raise RegionError("Graph.update: no capture of the graph has begun; make it by region.capture()")
        return Capture(self._region, names, self)

    @property
    def calls(self) -> int:
        """The number of calls that were captured."""
        return _core.chain_info(self._usable("calls"))[0]

    @property
    def arrays(self) -> int:
        """The number of arrays that the captured calls use; arrays that share elements count once.

        Numbers on the device also count.
        """
        return _core.chain_info(self._usable("arrays"))[1]

    @property
    def replays(self) -> int:
        """The number of replays so far."""
        return _core.chain_info(self._usable("replays"))[2]

    @property
    def nbytes(self) -> int:
        """The bytes that the graph itself sends to the device at each replay: host values in captured calls.

        A replay also sends its new contents, and arrays that the host has written since the last replay.
        """
        return _core.chain_info(self._usable("nbytes"))[3]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The captured calls in order, each with the arrays that it reads and writes.

        An array has the name by which it was captured, or the name of the argument that lends it. If a call has some
        numbers on the device, its numbers on the host are also listed, as "a number". After the end of the region, each
        of these numbers is listed as "an array".
        """
        handle = self._usable("nodes")
        nameless = "a number" if self._region is not None and self._region._pointers() else "an array"
        names = {_core.handle(pointer): name for name, pointer in self._names.items() if pointer.live}
        nodes = []
        for number in range(_core.chain_info(handle)[0]):
            function, uses = _core.chain_call(handle, number)
            named = [(names.get(root, name or nameless), reads, writes) for root, name, reads, writes in uses]
            reads = tuple(dict.fromkeys(name for name, reads, _ in named if reads))  # a list may repeat an array
            writes = tuple(dict.fromkeys(name for name, _, writes in named if writes))
            nodes.append(Node(caller_name(function), reads, writes))
        return tuple(nodes)

    @telling
    def draw(self, file: str | os.PathLike[str] | None = None) -> str:
        """Return an SVG drawing of the captured calls: a box for each call, an arrow for each array that a call reads.

        file: the drawing is also written to this file; with None, it is only returned.

            x = np.ones(3)
            region = offload_args(x)
            with region as (dx,):
                with region.capture() as g:
                    blas.scal(2.0, dx)
                g.draw("graph.svg")
            print(os.path.exists("graph.svg"))  # True

        See also: Graph, tracing.Trace.save; docs/guide/graphs.md.
        """
        path = None if file is None else need_path("Graph.draw", "file", file)
        text = _drawing(self.nodes)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __getitem__(self, name: str) -> DevicePtr[Any]:
        """Return the pointer that was captured by this name; for a scalar, a 0-d pointer for calls.

        Raises ArgumentError for an unknown name.
        """
        if name not in self._names:
            known = ", ".join(self._names) or "none"
            raise ArgumentError(f"Graph: nothing was captured as {shown(name)}; known names: {known}")
        return self._names[name]

    def _usable(self, method: str) -> object:
        if self._handle is None:
            raise StaleGraphError(f"Graph.{method}: the graph has no calls: its capture has not ended, or failed")
        return self._handle

    def _write(self, handle: object, contents: dict[str, Any]) -> None:
        for name in contents:
            if name not in self._names:
                known = ", ".join(self._names) or "none"
                raise ArgumentError(f"Graph.replay: nothing was captured as {shown(name)}; known names: {known}")
        targets = [(self._names[name], self._checked(name, value)) for name, value in contents.items()]
        try:
            is_defined = _core.chain_check(handle)
        except StalePointerError as error:
            raise _stale("Graph.replay", error) from None
        if not is_defined and all("undefined" not in target._state() for target, _ in targets):
            return  # the new contents do not define the undefined array, so the replay will be refused
        if len(targets) > 1:  # a lent array may be one of the targets
            targets = [(target, _separate(value)) for target, value in targets]
        if len(targets) > 1 or isinstance(targets[0][1], DevicePtr):
            # Each source is read before its memory may be written. So a single source is copied directly, and several
            # sources are copied through other memory.
            sources = [(target, value) for target, value in targets if isinstance(value, DevicePtr)]
            targets = [(target, value) for target, value in targets if not isinstance(value, DevicePtr)]
            sources = [(target, value) for target, value in sources if value is not target]
            self._check_targets([target for target, _ in (*sources, *targets)])
            self._copy(sources)
        for target, value in targets:
            target.assign(value)

    def _check_targets(self, targets: list[DevicePtr[Any]]) -> None:
        """Raise the error that writing the targets in this order would raise, before any target is written."""
        defined = set()  # arrays that earlier targets define
        for target in targets if len(targets) > 1 else ():
            array = _core.origin(target)[0]
            if array not in defined:
                with checking():
                    target.fill(0)
                if not _core.query(target).valid:
                    defined.add(array)

    def _copy(self, sources: list[tuple[DevicePtr[Any], DevicePtr[Any]]]) -> None:
        if len(sources) == 1:
            target, value = sources[0]
            with contextlib.suppress(AliasError):  # raised before anything is written
                target.copy_from(value)
                return
        if not sources or self._region is None:
            return
        copies = [Scratch(value.shape, value.dtype) for _, value in sources]
        with type(self._region)(*copies, device=sources[0][1].device) as pointers:
            for pointer, (_, value) in zip(pointers, sources, strict=True):
                pointer.copy_from(value)
            for (target, _), pointer in zip(sources, pointers, strict=True):
                target.copy_from(pointer)

    def _checked(self, name: str, value: Any) -> Any:
        pointer = self._names[name]
        try:
            rights = _core.query(pointer)
        except OffloadError:
            raise StaleGraphError(f"Graph.replay: the region of {name} has ended; capture in an open region") from None
        if not pointer.shape and isinstance(value, (int, float, complex)):
            value = _values(f"Graph.replay: {name}", value, pointer.dtype)
        if not isinstance(value, (DevicePtr, np.ndarray, np.generic)):
            needed = "a NumPy array or a DevicePtr" if pointer.shape else "a number or a DevicePtr"
            remedy = listed(name, value, spelled(pointer.dtype.name)).removesuffix(", and lend that")
            raise ArgumentTypeError(
                f"Graph.replay: {name} needs {needed}, got {type(value).__name__}{'; ' * bool(remedy)}{remedy}"
            )
        if not rights.writable:
            raise DirectionError(
                f"Graph.replay: {name} was lent as In or is read-only; lend it as InOut, or a copy of it"
            )
        if value.shape != pointer.shape:
            raise ArgumentError(
                f"Graph.replay: {name} needs shape {pointer.shape}, got {value.shape}; g.update(...) captures other "
                "shapes"
            )
        if value.dtype != pointer.dtype:
            raise DTypeError(
                f"Graph.replay: {name} needs {pointer.dtype}, got {value.dtype}; "
                f"{converted(name, pointer.dtype.name, value)}"
            )
        return value

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("Graph: can't be copied or pickled: its calls belong to a region; capture them again")

    def _release(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            _core.chain_release(handle)

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Graph without calls>"
        calls, arrays, replays = _core.chain_info(self._handle)[:3]
        names = f", names: {', '.join(self._names)}" if self._names else ""
        counts = f"{calls} {plural('call', calls)} on {arrays} {plural('array', arrays)}"
        return f"<Graph of {counts}{names}; replayed {replays} {plural('time', replays)}>"

    def __str__(self) -> str:
        """Describe the graph and each call."""
        if self._handle is None:
            return repr(self)
        lines = [repr(self)]
        for number, node in enumerate(self.nodes, 1):
            reads, writes = ", ".join(node.reads), ", ".join(node.writes)
            uses = [f"reads {reads}"] * bool(reads) + [f"writes {writes}"] * bool(writes)
            lines.append(f"{number:4} {node.function}" + f": {'; '.join(uses)}" * bool(uses))
        if self.nbytes:
            lines.append(f"each replay sends {size_text(self.nbytes)}")
        return "\n".join(lines)

    def _repr_svg_(self) -> str | None:
        """Draw the graph in a notebook."""
        return None if self._handle is None else self.draw()


def _separate(value: Any) -> Any:
    """Return a copy of a lent array, which a replay may write before it is read; return other values unchanged."""
    if isinstance(value, np.ndarray) and _core.is_lent_in_part(value):
        return copied(value, value.dtype, always=True)
    return value


@answering(
    {
        name: f"the graph after `as`, which has {name}: with region.capture() as g"
        for name in ("arrays", "calls", "draw", "nbytes", "nodes", "replay", "replays", "update")
    }
)
class Capture:
    """Capture the calls of a region within a block, instead of running them: `with region.capture() as g:`.

    See also: offload_args.capture, Graph; docs/guide/graphs.md.
    """

    __slots__ = ("_graph", "_handle", "_names", "_region")

    def __init__(self, region: _core.Region[Any], names: dict[str, Any], graph: Graph | None = None) -> None:
        for name, value in names.items():
            if not isinstance(value, (DevicePtr, np.generic)) and type(value) not in (float, complex):
                remedy = f"; a NumPy scalar has a dtype, such as np.int32({value})" if isinstance(value, int) else ""
                if isinstance(value, np.ndarray):
                    remedy = f"; pass its pointer, such as {name}=d{name}"
                raise ArgumentTypeError(
                    f"offload_args.capture: {name} needs a DevicePtr of the region, or a float or NumPy scalar, got "
                    f"{type(value).__name__}{remedy}"
                )
        self._region = region
        self._names = names
        self._graph = Graph() if graph is None else graph
        self._handle: object = None

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "Capture: can't be copied or pickled: it belongs to a region; write another with region.capture() as g"
        )

    def __repr__(self) -> str:
        names = f" of {', '.join(self._names)}" if self._names else ""
        return f"<capture{names}: a block `with region.capture(...) as g:` begins it>"

    def __enter__(self) -> Graph:
        graph = self._graph
        begins = False
        try:
            with _holding(graph._lock):
                for name, value in self._names.items():
                    _check_live(name, value)
                graph._release()
                graph._names = {}
                scalars = {name: _staged(self._region, name, value) for name, value in self._names.items()}
                begins = True
                self._handle = self._region._capture()
                graph._names, graph._region = scalars, self._region
        except OffloadError:
            raise
        except BaseException:  # Ctrl-C: if the capture has begun, no block will end it
            self._handle = None
            if begins:
                self._region._drop_capture()
            raise
        return graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handle = self._handle
        if handle is None:
            raise RegionError("offload_args.capture: this block is not entered; use it as `with region.capture():`")
        if kind is not None:
            self._handle = None
            with contextlib.suppress(OffloadError):  # the block's exception has the reason
                _core.chain_release(handle)
            return
        try:
            _core.chain_end(handle)
        except OffloadError:  # the chain is freed
            self._handle = None
            raise
        self._graph._handle = handle
        self._handle = None


def _check_live(name: str, value: Any) -> None:
    """Raise the graph's error for a pointer whose region has ended."""
    if isinstance(value, DevicePtr) and not value.live:
        raise StalePointerError(
            f"offload_args.capture: {name} is a pointer whose region has ended; lend the array again"
        )


def _staged(region: _core.Region[Any], name: str, value: Any) -> DevicePtr[Any]:
    """Return a pointer unchanged; for a number, return a new 0-d pointer of the region to this number."""
    if isinstance(value, DevicePtr):
        return value
    pointers = region._pointers()
    if not pointers:
        raise RegionError(f"offload_args.capture: {name} the region is not open, or lends no array; enter it first")
    number = np.asarray(value)
    pointer: DevicePtr[Any] = _core.stage(pointers[0], number)
    pointer.assign(number)  # a replay may change the number, so no call may treat it as a constant 0
    return pointer


def loop(region: _core.Region[Any], body: Callable[[], object], until: object, at_most: int) -> int:
    """Run a loop for offload_args.loop, which has the details."""
    if not isinstance(until, DevicePtr) or until.size != 1:
        got = f"shape {until.shape}" if isinstance(until, DevicePtr) else type(until).__name__
        raise ArgumentTypeError(f"offload_args.loop: until needs a DevicePtr to one element, got {got}")
    if isinstance(at_most, bool) or not isinstance(at_most, (int, np.integer)) or not 0 <= at_most < 2**63:
        raise ArgumentError(f"offload_args.loop: at_most needs a number of steps of 0 or more, got {shown(at_most)}")
    if not at_most:
        return 0
    graph = _graph_of(region, body)
    with _holding(graph._lock):
        try:
            return _core.chain_loop(graph._usable("loop"), until, int(at_most))
        except StalePointerError as error:
            raise _stale("offload_args.loop", error) from None


class _Kept(NamedTuple):
    """The graph of a loop's body.

    It keeps the body's code and values alive, so that no other object gets their identities.
    """

    pointers: object  # the region's pointers, which are new each time it is entered
    values: tuple[Any, ...]
    graph: Graph


_MOST_KEPT: Final = 4  # the most graphs of a region
_kept: WeakKeyDictionary[Any, list[_Kept]] = WeakKeyDictionary()  # {region: its graphs, the last used graph first}
_keeping = threading.Lock()


def _make_calls(body: Callable[[], object]) -> None:
    result = body()
    if isinstance(result, (Generator, Coroutine)):
        result.close()
        raise ArgumentTypeError(
            f"offload_args.loop: body needs a function that makes the calls, got one that returns a "
            f"{type(result).__name__}, which made none"
        )


def _graph_of(region: _core.Region[Any], body: Callable[[], object]) -> Graph:
    """Capture the calls of a loop's body, or find the graph of an earlier loop that made the same calls."""
    values = fixed_values(body)
    if values is None:
        with Capture(region, {}) as graph:
            _make_calls(body)
        return graph
    pointers = region._pointers()
    with _holding(_keeping):
        kept = [entry for entry in _kept.get(region, ()) if entry.pointers is pointers]
        for entry in kept:
            if len(entry.values) == len(values) and all(map(is_, entry.values, values)) and _is_alive(entry.graph):
                kept.remove(entry)
                _kept[region] = [entry, *kept]
                return entry.graph
    with Capture(region, {}) as graph:
        _make_calls(body)
    graph._region = None  # this reference would keep the region alive
    with _holding(_keeping):
        _kept[region] = [_Kept(pointers, values, graph), *kept][:_MOST_KEPT]
    return graph


def _is_alive(graph: Graph) -> bool:
    """Return whether a graph can run: no region of its arrays has ended."""
    try:
        _core.chain_check(graph._usable("loop"))
    except OffloadError:
        return False
    return True


def _drawing(nodes: tuple[Node, ...]) -> str:
    """Draw calls as SVG from top to bottom, with the arrays between them; outer arrays and results are at the left.

    A result is an array that no later call reads or writes.
    """
    from xml.sax.saxutils import escape

    longest = max((len(name) for node in nodes for name in node.reads + node.writes), default=0)
    high, left, wide = 56, 62 + 8 * longest, 30 + 8 * max((len(node.function) for node in nodes), default=0)
    arrows: list[tuple[int, int, str]] = []  # (from, to, name): `from` is a call, or -1 for an outer array
    written: dict[str, int] = {}
    last: dict[str, int] = {}  # the last call that uses each array
    for i, node in enumerate(nodes):
        arrows += [(written.get(name, -1), i, name) for name in node.reads]
        written.update(dict.fromkeys(node.writes, i))
        last.update(dict.fromkeys(node.reads + node.writes, i))
    shapes: list[str] = []
    reach = 0
    beside, above = [0] * len(nodes), [0] * len(nodes)  # for each call: the arrows at its left, and from the call above
    for start, end, name in arrows:
        y, text = 20 + high * end, escape(name)
        if start < 0:
            y += 8 + 14 * beside[end]
            beside[end] += 1
            shapes.append(f'<path d="M{left - 40} {y}H{left - 6}"/><text x="{left - 46}" y="{y + 4}">{text}</text>')
        elif start == end - 1:
            x = left + wide // 2 + (14 + 8 * longest) * above[end]
            above[end] += 1
            shapes.append(f'<path d="M{x} {y - 22}V{y - 6}"/><text x="{x + 6}" y="{y - 10}" class="s">{text}</text>')
        else:
            from_y, bend = 20 + high * start + 24, min(24 * (end - start), 360)
            reach = max(reach, bend + 12 * len(name))
            x = left + wide
            shapes.append(
                f'<path d="M{x} {from_y}C{x + bend} {from_y} {x + bend} {y + 10} {x + 6} {y + 10}"/>'
                f'<text x="{x + bend * 3 // 4 + 6}" y="{(from_y + y + 14) // 2}" class="s">{text}</text>'
            )
    for name, i in written.items():
        if last[name] == i:
            y = 28 + high * i + 14 * beside[i]
            beside[i] += 1
            shapes.append(
                f'<path d="M{left} {y}H{left - 34}"/><text x="{left - 46}" y="{y + 4}" class="r">{escape(name)}</text>'
            )
    for i, node in enumerate(nodes):
        y = 20 + high * i
        shapes.append(
            f'<rect x="{left}" y="{y}" width="{wide}" height="34" rx="6"/>'
            f'<text x="{left + wide // 2}" y="{y + 22}" class="m">{escape(node.function)}</text>'
        )
    width, height = left + wide + reach + 40, high * len(nodes) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        "<style>text{font:13px monospace;text-anchor:end}.s{text-anchor:start}.m{text-anchor:middle}"
        ".r{font-weight:bold}rect{fill:#e8eef7;stroke:#3b5b92}path{fill:none;stroke:#3b5b92;marker-end:url(#a)}</style>"
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="5" refY="3" orient="auto">'
        '<polygon points="0 0 6 3 0 6" style="fill:#3b5b92"/></marker></defs>' + "".join(shapes) + "</svg>\n"
    )
