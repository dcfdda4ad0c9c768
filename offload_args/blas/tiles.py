"""Programs on tiles of host arrays: devices compute tile after tile, in memory for a few tiles.

A program is a list of tasks, each of which computes one tile of an array by calls on pointers to tiles. The results
are the same as if the tasks ran in the order of the list. Tasks that do not depend on each other run at the same time,
and tiles go up and come down meanwhile.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from heapq import heapify, heappop, heappush
from queue import SimpleQueue
from threading import Condition, Thread
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from .. import _core
from .._names import rename
from .._operands import checking
from ..arguments import In, InOut, Out, Scratch
from ..errors import CaptureError, DeviceMemoryError, DirectionError, ForkedError, OffloadError, PresentError
from ..regions import offload_args

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..devices import Device
    from ..pointers import DevicePtr

__all__ = ["Sides", "Step", "Task", "Tile", "compute", "cuts", "note_of", "share_out", "sides_for", "span"]
__all__ += ["Places", "check_lent", "finish", "places_for", "space_for"]

# The number of threads per device. While a thread waits for its results, the other threads bring up and compute their
# parts.
THREADS: Final = 3
# Parts may take this share of the free memory.
_SHARE: Final = 0.8
# The least number of tiles along the longest side, unless the tiles would then be shorter than _LEAST.
_ALONG: Final = 6
_LEAST: Final = 512
_UNIT: Final = 128
_SMALLEST: Final = 16
# Tiles that fit into the memory if unfinished tiles stay there, and the tiles of them that no unfinished tile takes:
# each thread reads two, and tiles that several tasks read one after the other stay there, too.
_IN_PLACES: Final = 48
_READ: Final = 2 * THREADS + 4
# The least bytes of such a tile: the tasks for many small tiles would take longer than the copies that they spare.
_LEAST_IN_PLACES: Final = 16 << 20
# A triangle comes down in strips of at most this number of bytes.
_STRIP: Final = 1 << 22
# A lent operand is checked in this number of strips: the check needs memory for one of them.
_STRIPS: Final = 16


# The name of an argument of a region of this module in messages.
_OWN_ARGUMENT: Final = re.compile(r"^offload_args: argument \d")
_OF_A_LENT_ARRAY: Final = re.compile(r"^(offload_args: argument \d|DevicePtr\.copy_from: source)")


class Tile(NamedTuple):
    """A part of an array: rows from `top` to before `bottom`, and columns from `left` to before `right`.

    An array of one dimension is a column.
    """

    name: str
    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        part: NDArray[Any] = array[self.top : self.bottom, self._columns(array)]
        return part

    def of_pointer(self, pointer: DevicePtr) -> DevicePtr:
        """Return the part of an array's pointer."""
        return pointer[self.top : self.bottom, self._columns(pointer)]

    def _columns(self, array: NDArray[Any] | DevicePtr) -> slice | None:
        return None if array.ndim == 1 else slice(self.left, self.right)


class Step(NamedTuple):
    """A call of a task: `call(pointer to the task's tile, pointers to the tiles that it reads...)`."""

    call: Callable[..., None]
    reads: tuple[Tile, ...] = ()


class Task(NamedTuple):
    """The computation of a tile.

    loads: whether the steps use the tile's present elements. after: tiles whose earlier tasks come first, too.
    uplo: "U" or "L" if the steps write only this triangle of the tile. Other threads may write the other triangle.
    stores: False if the tile stays on the device, unfinished, for its next task.
    """

    tile: Tile
    steps: Sequence[Step]
    loads: bool = True
    after: tuple[Tile, ...] = ()
    uplo: str = ""
    stores: bool = True


# A device reads a part of an array, overwrites it, or does both.
Access: TypeAlias = type[In | Out | InOut]


class Sides(NamedTuple):
    """The longest side of a tile, and the bytes of a device for tiles."""

    side: int
    nbytes: float


def free_space(devices: Iterable[Device]) -> float:
    """Return the bytes that a program may take on each of the devices; infinity if they are not known."""
    memories = [device.memory for device in devices]
    return min(memory.free * _SHARE if memory.total else math.inf for memory in memories)


def space_for(name: str, parts: str, nbytes: float, devices: Sequence[Device]) -> float:
    """Return free_space(devices), or raise an error if it has fewer than `nbytes`. parts: their name."""
    space = free_space(devices)
    if space < nbytes:
        for device in devices:
            with suppress(CaptureError):  # memory that is freed in the order of other work is then not counted
                _core.device_synchronize(device.number)
        space = free_space(devices)
    if space < nbytes:
        raise DeviceMemoryError(
            f"{name}: {parts} need {int(nbytes)} bytes on each of {', '.join(device.name for device in devices)}, and "
            f"one has {int(space)}"
        )
    return space


def sides_for(name: str, devices: Sequence[Device], itemsize: int, longest: int, depth: float = 1.0) -> Sides:
    """Return the sides of tiles for arrays whose longest side is `longest`.

    depth: the shorter side of a tile that is read, as a share of the other side.
    """
    of_side = itemsize * THREADS * (1 + 2 * depth)  # each thread has a tile that it computes, and two that it reads
    space = space_for(name, "the smallest tiles", of_side * min(_SMALLEST, longest) ** 2, devices)
    largest = math.sqrt(space / of_side)
    side = int(min(largest, max(_LEAST, -(-longest // _ALONG)), longest))
    if side > _UNIT:
        side = side // _UNIT * _UNIT
    return Sides(max(side, 1), space)


def cuts(size: int, side: int) -> list[tuple[int, int]]:
    """Divide a size into parts of at most `side` each, and return the start and end of each part."""
    if not size:
        return []
    step = -(-size // -(-size // side))
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def span(array: NDArray[Any]) -> int:
    """Return the bytes that an array takes on a device: from its first element to its last."""
    steps = (abs(stride) * (extent - 1) for extent, stride in zip(array.shape, array.strides, strict=True))
    return sum(steps) + array.itemsize if array.size else 0


def order_of(array: NDArray[Any]) -> str:
    """Return the order of a matrix: "F" if its columns are closer together in memory than its rows, else "C".

    An array of one dimension is a column, in C order.
    """
    return "F" if array.ndim > 1 and abs(array.strides[0]) < abs(array.strides[1]) else "C"


# -- order of the work -------------------------------------------------------------------------------------------------


class _Stopped(Exception):
    """Another thread has failed."""


class _Queue:
    """The remaining tasks, and the finished tasks. A task may need other tasks to be done first."""

    def __init__(self, needs: Sequence[Collection[int]]) -> None:
        self.changed = Condition()
        self.done: list[int] = []
        self.stopped = False
        self._open = [len(before) for before in needs]
        self._followers: dict[int, list[int]] = defaultdict(list)
        for task, before in enumerate(needs):
            for earlier in before:
                self._followers[earlier].append(task)
        self._ready = [task for task, count in enumerate(self._open) if not count]
        self._left = len(needs)
        heapify(self._ready)

    def take(self) -> int | None:
        """Return the next task whose needs are done; None if all tasks are taken or a thread has failed."""
        with self.changed:
            while not self._ready and self._left and not self.stopped:
                self.changed.wait()
            if self.stopped or not self._left:
                return None
            self._left -= 1
            return heappop(self._ready)

    def end(self, task: int) -> None:
        with self.changed:
            self.done.append(task)
            for follower in self._followers[task]:
                self._open[follower] -= 1
                if not self._open[follower]:
                    heappush(self._ready, follower)
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def share_out(
    name: str,
    needs: Sequence[Collection[int]],
    devices: Sequence[Device],
    work: Callable[[Device, Callable[[], int | None]], None],
    described: Callable[[list[int]], str],
    stopping: Callable[[], None] = lambda: None,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Compute each task once, on the next free thread of a device.

    needs: for each task, the tasks that have to be done before. work: the function of one thread. It requests one task
    after the other; a task is done when it requests the next one. described: makes the note on an error from the tasks
    that are done. stopping: is called when a thread has failed. ending: is called after the last task, also after a
    failure. If the handler of a signal raises, no further task is begun, and the error is raised when all have ended.
    """
    queue = _Queue(needs)
    events = SimpleQueue[str]()
    errors: list[BaseException] = []

    def stop() -> None:
        queue.stop()
        stopping()

    def of_thread(device: Device) -> None:
        current: list[int] = []

        def following() -> int | None:
            for task in current:
                queue.end(task)
            following_task = queue.take()
            current[:] = [] if following_task is None else [following_task]
            return following_task

        try:
            work(device, following)
        except _Stopped:
            pass
        except BaseException as error:
            errors.append(error)
            stop()
        finally:
            events.put("end")

    # The host's library has several threads itself.
    used = [device for i in range(THREADS) for device in devices if i == 0 or device.backend != "host"]
    threads = [Thread(target=of_thread, args=(each,), name=f"offload_args {name}") for each in used[: len(needs)]]

    def on_threads() -> tuple[str, BaseException | None]:
        left = 0
        try:
            for thread in threads:
                thread.start()
                left += 1
        except BaseException as error:  # too many threads, or no memory
            errors.append(error)
            stop()
        while left:
            if events.get() == "stop":
                stop()
            else:
                left -= 1
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        try:
            ending()
        except OffloadError as error:
            if errors:
                errors[0].add_note(f"{name}: then {error}")
            else:
                errors.append(error)
        note = f"{name}: {described(sorted(queue.done))}"
        if not errors:
            return note, None
        errors[0].add_note(note)
        del errors[1:]
        return note, errors.pop()  # its traceback has the list, so this avoids a circle

    finish(name, on_threads, lambda: events.put("stop"))


def finish(
    name: str, work: Callable[[], tuple[str | None, BaseException | None]], stop: Callable[[], None] = lambda: None
) -> None:
    """Do work on a thread that no handler of a signal interrupts, and raise its error, or the handler's.

    work: returns the note for the handler's error, and its own error. stop: shortens the work after the handler's.
    """
    ended = SimpleQueue[tuple[str | None, BaseException | None]]()

    def run() -> None:
        try:
            ended.put(work())
        except BaseException as error:
            ended.put((None, error))

    thread = Thread(target=run, name=f"offload_args {name}")

    def start_and_wait() -> tuple[str | None, BaseException | None]:
        thread.start()
        outcome = ended.get()
        while thread.is_alive():
            sleep(0.0001)  # `join` would register this thread, which `threading` then never forgets
        return outcome

    try:
        error = _core.finish(start_and_wait, stop)
    except ForkedError as failure:
        rename(failure, r"^Device\.counters", name)
        raise
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback has this frame


def note_of(parts: Sequence[str], halves: Sequence[str] = ()) -> str:
    """Return the note for an error: the parts that are done, and the parts that lack a second step."""
    second = f"; lacking the second of two steps: {', '.join(halves)}" if halves else ""
    return f"done: {', '.join(parts) or 'nothing'}{second}; all other elements are as they were"


# -- tiles on a device -------------------------------------------------------------------------------------------------


class _Block:
    """The device memory of a tile."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.users = 1
        self.is_held = False  # the tile is unfinished, which counts as another use
        self.is_ready = False
        self.region: offload_args[tuple[DevicePtr]] | None = None
        self.pointer: Any = None


class _Cache:
    """The tiles that a device has. The tiles that later tasks use last make room for other tiles."""

    def __init__(
        self,
        name: str,
        device: Device,
        arrays: dict[str, NDArray[Any]],
        orders: dict[str, str],
        sides: Sides,
        uses: dict[Tile, list[int]],
    ):
        self.name, self.device, self.arrays, self.orders = name, device, arrays, orders
        self._uses = uses
        self._tasks: set[int] = set()  # under way
        self._space = sides.nbytes
        self._blocks: dict[Tile, _Block] = {}
        self._used = 0
        self._changed = Condition()
        self._is_stopped = False
        self._lent = {key for key, array in arrays.items() if _core.is_lent(array)}

    def begin(self, task: int) -> None:
        with self._changed:
            self._tasks.add(task)

    def end(self, task: int) -> None:
        with self._changed:
            self._tasks.remove(task)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Free all memory. Raise the first failure after that."""
        with ExitStack() as stack:
            for block in self._blocks.values():
                if block.region is not None:
                    stack.callback(block.region.discard)
            self._blocks.clear()

    def drop(self, tile: Tile) -> None:
        """Forget a tile that another device has computed."""
        with self._changed:
            block = self._blocks.pop(tile, None)
        self._end([block] if block else [])

    def take(self, tile: Tile, loads: bool = True) -> DevicePtr:
        """Return a pointer to a tile, which stays until `free`. If it is not there and `loads`, it goes up."""
        nbytes = math.prod(tile.shape) * self.arrays[tile.name].itemsize
        with self._changed:
            while True:
                if self._is_stopped:
                    raise _Stopped
                block = self._blocks.get(tile)
                if block is None:
                    evicted = self._evicted(nbytes)
                    if evicted is not None:
                        self._blocks[tile] = block = _Block(nbytes)
                        self._used += nbytes
                        break
                elif block.is_ready:
                    block.users += 1
                    return block.pointer  # type: ignore[no-any-return]
                self._changed.wait()
        try:
            self._end(evicted)
            self._fill(block, tile, loads)
        except BaseException as error:
            self.lose_after(error, tile)
            raise
        with self._changed:
            block.is_ready = True
            self._changed.notify_all()
        return block.pointer  # type: ignore[no-any-return]

    def free(self, tile: Tile, holds: bool = False) -> None:
        """End one use of a tile. holds: whether the tile stays, unfinished, until the end of its last task."""
        with self._changed:
            block = self._blocks[tile]
            block.users += holds - block.is_held - 1
            block.is_held = holds
            self._changed.notify_all()

    def lose_after(self, error: BaseException, tile: Tile) -> None:
        """Forget a tile whose contents are undefined. A failure becomes a note of the error that comes first."""
        try:
            self.lose(tile)
        except OffloadError as failure:
            error.add_note(f"{self.name}: then {failure}")

    def lose(self, tile: Tile) -> None:
        """Forget a tile whose contents are undefined."""
        with self._changed:
            block = self._blocks.pop(tile)
        region, block.region = block.region, None
        self._end([block])
        if region is not None:
            region.discard()

    def _evicted(self, nbytes: int) -> list[_Block] | None:
        """Return the blocks that make room for a tile, after forgetting them; None if too many tiles are in use."""
        chosen, room = [], self._space - self._used
        if room < nbytes:
            first = min(self._tasks)
            for tile in sorted(self._blocks, key=lambda tile: self._next_use(tile, first), reverse=True):
                block = self._blocks[tile]
                if not block.users and room < nbytes:
                    chosen.append(tile)
                    room += block.nbytes
        return [self._blocks.pop(tile) for tile in chosen] if room >= nbytes else None

    def _next_use(self, tile: Tile, first: int) -> float:
        """Return the number of the next task from `first` on that uses a tile; infinity if there is none."""
        uses = self._uses[tile]
        place = bisect_left(uses, first)
        return uses[place] if place < len(uses) else math.inf

    def _end(self, blocks: list[_Block]) -> None:
        """Free the memory of blocks that were forgotten. Raise the first failure after that."""
        try:
            with ExitStack() as stack:
                for block in blocks:
                    if block.region is not None:
                        stack.callback(block.region.close)
        finally:
            with self._changed:
                self._used -= sum(block.nbytes for block in blocks)
                self._changed.notify_all()

    def _fill(self, block: _Block, tile: Tile, loads: bool) -> None:
        size = math.prod(tile.shape)
        block.region = offload_args(Scratch(max(size, 1), self.arrays[tile.name].dtype), device=self.device)
        with self._naming(tile):
            (place,) = block.region.open()
            by_columns = self.orders[tile.name] == "F"
            place = place[:size].reshape(tile.shape[::-1] if by_columns else tile.shape)
            block.pointer = place.T if by_columns else place
            part = tile.of(self.arrays[tile.name])
            if not (loads and size):
                return
            if tile.name in self._lent:  # the device's bytes may be newer
                array = self.arrays[tile.name]
                with _lent_again(array, tile, In, self.device) as (p,):
                    block.pointer.copy_from(_of_tile(array, tile, p))
            else:
                _core.assign_strided(place, part.T if by_columns else part)

    def store(self, tile: Tile, pointer: DevicePtr, uplo: str = "") -> None:
        """Bring a tile down into its array, or only one triangle of the tile."""
        part, by_columns = tile.of(self.arrays[tile.name]), self.orders[tile.name] == "F"
        with self._naming(tile):
            if tile.name in self._lent:
                array = self.arrays[tile.name]
                with _lent_again(array, tile, InOut if uplo else Out, self.device) as (whole,):
                    p = _of_tile(array, tile, whole)
                    if uplo:
                        _copy_triangle(p, pointer, uplo)
                    else:
                        p.copy_from(pointer)
                return
            if by_columns:
                pointer, part = pointer.T, part.T
            if uplo:
                _read_triangle(pointer, part, is_upper=(uplo == "U") != by_columns)
            else:
                _core.read_strided(pointer, part)

    @contextmanager
    def _naming(self, tile: Tile) -> Iterator[None]:
        """Name the array of a tile in errors of the region that lends it."""
        try:
            yield
        except OffloadError as error:
            rename(error, _OWN_ARGUMENT, f"{self.name}: {tile.name}")
            raise


def _is_packed(array: NDArray[Any]) -> bool:
    """Return whether a device packs an array, which has no leading dimension. No part of it can then be lent."""
    (extents, strides), flags = (array.shape, array.strides), array.flags
    if array.ndim == 1:
        return not flags.c_contiguous
    return not (flags.c_contiguous or flags.f_contiguous) and not any(
        strides[i] == array.itemsize and (strides[1 - i] >= extents[i] * array.itemsize or extents[1 - i] == 1)
        for i in (0, 1)
    )


def _lent_again(array: NDArray[Any], tile: Tile, access: Access, device: Device) -> offload_args[tuple[DevicePtr]]:
    """Return the region for a tile of an array that is lent already."""
    if _is_packed(array):  # its elements that the tile lacks stay as they are
        return offload_args((In if access is In else InOut)(array), device=device)
    return offload_args(access(tile.of(array)), device=device)


def _of_tile(array: NDArray[Any], tile: Tile, pointer: DevicePtr) -> DevicePtr:
    """Return the pointer to a tile, from the pointer of _lent_again."""
    return tile.of_pointer(pointer) if _is_packed(array) else pointer


def _read_triangle(pointer: DevicePtr, part: NDArray[Any], *, is_upper: bool) -> None:
    """Bring one triangle of a square tile in C order down, and write no other element of the array."""
    n = len(part)
    rows = min(max(1, _STRIP // max(1, n * part.itemsize)), n)
    values = np.empty((rows, n), part.dtype)
    own = np.tri(rows, dtype=bool)
    for first in range(0, n, rows):
        strip = slice(first, min(first + rows, n))
        count = strip.stop - first
        _core.read_strided(pointer[strip], values[:count])
        rest = slice(strip.stop, n) if is_upper else slice(first)
        part[strip, rest] = values[:count, rest]
        mask = own[:count, :count]
        np.copyto(part[strip, strip], values[:count, strip], where=mask.T if is_upper else mask)


def _copy_triangle(target: DevicePtr, source: DevicePtr, uplo: str) -> None:
    """Copy one triangle of a square matrix on a device."""
    by_columns = source.strides[0] < source.strides[1]
    if by_columns:
        target, source = target.T, source.T
    for k in range(source.shape[0]):
        line = slice(k, None) if (uplo == "U") != by_columns else slice(k + 1)
        target[k, line].copy_from(source[k, line])


# -- programs ----------------------------------------------------------------------------------------------------------


def _needs(tasks: Sequence[Task]) -> list[set[int]]:
    """Return, for each task, the earlier tasks that write a tile of it, or that read the tile that it writes."""
    writers: dict[Tile, int] = {}
    readers: dict[Tile, list[int]] = defaultdict(list)
    needs = []
    for i, task in enumerate(tasks):
        used = {tile for step in task.steps for tile in step.reads} | {*task.after}
        needs.append({writers[tile] for tile in (*used, task.tile) if tile in writers} | {*readers.pop(task.tile, ())})
        for tile in used:
            readers[tile].append(i)
        writers[task.tile] = i
    return needs


class Places:
    """Memory of one device for unfinished tiles.

    If a task's steps read many tiles, and the memory is small, the same tiles go up for each task. With places, several
    tasks make their first steps, then all of them the second steps, and so on: what one of them reads is there for the
    others.
    """

    def __init__(self, sides: Sides, count: int) -> None:
        self.sides, self.count = sides, count
        self._tiles: dict[int, Tile] = {}  # the latest tile of each place

    def together(self, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks that do the same as at most `count` tasks, step by step.

        A step that reads the tile of another one of the tasks comes at the end, in the order of the tasks.
        """
        own = {task.tile for task in tasks}
        counts = []  # how many of a task's steps come first
        for task in tasks:
            early = (i for i, step in enumerate(task.steps) if not own.isdisjoint(step.reads))
            counts.append(min(next(early, len(task.steps)), len(task.steps) - 1))
        result = []
        for i in range(max(counts)):
            part = []
            for place, (task, count) in enumerate(zip(tasks, counts, strict=True)):
                if i < count:
                    before = (self._tiles[place],) if not i and place in self._tiles else ()
                    after = (*task.after, *before)
                    part.append(task._replace(steps=task.steps[i : i + 1], after=after, stores=False))
            result += _sorted_by_reads(part)
        result += [task._replace(steps=task.steps[count:]) for task, count in zip(tasks, counts, strict=True)]
        self._tiles.update(enumerate(task.tile for task in tasks))
        return result

    def together_in_place(self, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks as together() does, for steps that read the tiles of other tasks before these are overwritten.

        The first step of each task, and the steps that read the tile of another one of the tasks, come first.
        """
        own = {task.tile for task in tasks}
        result, rests = [], []
        for place, task in enumerate(tasks):
            rest = [step for step in task.steps[1:] if own.isdisjoint(step.reads)]
            first = [step for step in task.steps if not any(step is other for other in rest)]
            before = (self._tiles[place],) if place in self._tiles else ()
            result.append(task._replace(steps=first, after=(*task.after, *before), stores=not rest))
            rests.append(rest)
        for i in range(max(map(len, rests))):
            part = [
                task._replace(steps=rest[i : i + 1], stores=i + 1 == len(rest))
                for task, rest in zip(tasks, rests, strict=True)
                if i < len(rest)
            ]
            result += _sorted_by_reads(part)
        self._tiles.update(enumerate(task.tile for task in tasks))
        return result

    def in_blocks(self, tasks: Sequence[Task], in_place: bool = False) -> list[Task]:
        """Return tasks that do the same as tasks of any number, which are together in blocks of rows and columns.

        in_place: whether the tasks' steps read tiles that other tasks overwrite.
        """
        rows, columns = (
            {start: i for i, start in enumerate(dict.fromkeys(starts))}
            for starts in ((task.tile.top for task in tasks), (task.tile.left for task in tasks))
        )
        heights = range(1, min(self.count, len(rows)) + 1)
        height, width = min(
            ((height, min(self.count // height, len(columns))) for height in heights),
            key=lambda block: -(-len(rows) // block[0]) * -(-len(columns) // block[1]) * sum(block),
        )
        blocks: dict[tuple[int, int], list[Task]] = defaultdict(list)
        for task in tasks:
            blocks[rows[task.tile.top] // height, columns[task.tile.left] // width].append(task)
        together = self.together_in_place if in_place else self.together
        return [task for block in sorted(blocks) for task in together(blocks[block])]


def _sorted_by_reads(tasks: list[Task]) -> list[Task]:
    """Sort tasks of one step, which read one or two tiles: the fewer tiles are read again and again, and stay there."""
    reads = [(task.steps[0].reads[0], task.steps[0].reads[-1]) for task in tasks]
    firsts, seconds = (len({*column}) for column in zip(*reads, strict=True))
    order = sorted(range(len(tasks)), key=lambda i: reads[i] if firsts >= seconds else reads[i][::-1])
    return [tasks[i] for i in order]


def places_for(
    sides: Sides, devices: Sequence[Device], itemsize: int, nbytes: float, reserved: int = 0
) -> Places | None:
    """Return the places for tiles of one device's memory, None if there are too few.

    nbytes: of all tiles; if they fit, they need no places. reserved: bytes for other tiles.
    """
    space = sides.nbytes - reserved
    if len(devices) > 1 or nbytes <= space:
        return None
    side = int(math.sqrt(space / (_IN_PLACES * itemsize)))
    side = side // _UNIT * _UNIT if side > _UNIT else side
    if side**2 * itemsize < _LEAST_IN_PLACES:
        return None
    return Places(Sides(side, sides.nbytes), int(space / (side * side * itemsize)) - _READ)


def check_lent(
    name: str, arrays: dict[str, NDArray[Any]], parts: Iterable[tuple[Tile, Access]], devices: Iterable[Device]
) -> None:
    """Raise the error of an array that the host or a device may not read or write, before anything moves.

    parts: the parts of the arrays that the devices access.
    """
    parts = [*dict.fromkeys(parts)]
    written = {tile.name for tile, access in parts if access is not In}
    lent = {key for key, array in arrays.items() if _core.is_lent(array)}
    for key, array in arrays.items():
        if key not in lent and _core.is_lent_in_part(array):
            raise PresentError(f"{name}: some of {key} is lent; leave that region first, or lend all of {key}")
        if key not in lent and key in written and not array.flags.writeable:
            raise DirectionError(f"{name}: {key} is read-only; pass a writable array")

    def check() -> tuple[None, BaseException | None]:
        try:
            for device in devices:
                for tile, access in parts:
                    if tile.name in lent and 0 not in tile.shape:
                        _check_access(name, tile, arrays[tile.name], access, device)
        except OffloadError as error:
            return None, error
        return None, None

    if lent:
        finish(name, check)


def _check_access(name: str, tile: Tile, array: NDArray[Any], access: Access, device: Device) -> None:
    """Lend a part of a lent array as a computation would, and check calls that read it. Nothing moves."""
    try:
        region = _lent_again(array, tile, access, device)
        (pointer,) = region.open()
        try:
            if access is not Out:
                _check_reads(_of_tile(array, tile, pointer), device)
        finally:
            region.discard()
    except OffloadError as error:
        rename(error, _OF_A_LENT_ARRAY, f"{name}: {tile.name}")
        raise


def _check_reads(pointer: DevicePtr, device: Device) -> None:
    """Check calls that read all elements of a matrix, strip by strip: the memory may have no room for a second one."""
    along = int(pointer.shape[1] > pointer.shape[0])
    longest = pointer.shape[along]
    shape = [*pointer.shape]
    shape[along] = -(-longest // _STRIPS)
    with offload_args(Scratch(tuple(shape), pointer.dtype), device=device) as (copy,):
        for start in range(0, longest, shape[along]):
            strip = slice(start, min(start + shape[along], longest))
            size = slice(strip.stop - start)
            with checking():
                if along:
                    copy[:, size].copy_from(pointer[:, strip])
                else:
                    copy[size].copy_from(pointer[strip])


def _accesses(tasks: Iterable[Task]) -> Iterator[tuple[Tile, Access]]:
    """Yield the tiles that tasks read before a task writes them, and the tiles that they write."""
    stored: set[Tile] = set()
    for task in tasks:
        own = (task.tile,) if task.loads else ()
        for tile in (*own, *(tile for step in task.steps for tile in step.reads)):
            if tile not in stored:
                yield tile, In
        if task.stores:
            stored.add(task.tile)
            yield task.tile, InOut if task.uplo else Out


def compute(
    name: str,
    arrays: dict[str, NDArray[Any]],
    tasks: Sequence[Task],
    devices: Sequence[Device],
    sides: Sides,
    one_order: bool = False,
    note: str = "",
    hidden: str = "",
) -> None:
    """Compute the tasks.

    arrays: by the names in tiles. one_order: whether all tiles have the order of the first task's array on the device.
    note: the note of an error, instead of the list of finished tiles. hidden: an array that this list leaves out.
    """
    if not tasks:
        return
    check_lent(name, arrays, _accesses(tasks), devices)
    order = order_of(arrays[tasks[0].tile.name])
    orders = {key: order if one_order else order_of(array) for key, array in arrays.items()}
    uses: dict[Tile, list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        for tile in {task.tile, *(tile for step in task.steps for tile in step.reads)}:
            uses[tile].append(number)
    caches = {device: _Cache(name, device, arrays, orders, sides, uses) for device in devices}

    def work(device: Device, following: Callable[[], int | None]) -> None:
        cache = caches[device]
        while (number := following()) is not None:
            task = tasks[number]
            cache.begin(number)
            pointer = cache.take(task.tile, task.loads)
            try:
                for step in task.steps:
                    _make(step, pointer, cache)
                if task.stores:
                    cache.store(task.tile, pointer, task.uplo)
            except BaseException as error:
                cache.lose_after(error, task.tile)
                raise
            cache.free(task.tile, holds=not task.stores)
            cache.end(number)
            for other in caches.values():
                if other is not cache:
                    other.drop(task.tile)

    def part_of(number: int) -> str:
        tile = tasks[number].tile
        m, n = (*arrays[tile.name].shape, 1)[:2]
        rows, columns = (
            f"{low}:{high}" if (low, high) != (0, whole) else ":"
            for low, high, whole in ((tile.top, tile.bottom, m), (tile.left, tile.right, n))
        )
        return f"{tile.name}[{rows}, {columns}]"

    def described(done: list[int]) -> str:
        last = {task.tile: number for number, task in enumerate(tasks)}
        stored = [number for number in done if tasks[number].stores and tasks[number].tile.name != hidden]
        finished = [number for number in stored if last[tasks[number].tile] == number]
        halves = [number for number in stored if last[tasks[number].tile] not in done]
        return note or note_of([*map(part_of, finished)], [*map(part_of, halves)])

    def stop() -> None:
        for cache in caches.values():
            cache.stop()

    def end() -> None:
        with ExitStack() as stack:
            for cache in caches.values():
                stack.callback(cache.close)

    share_out(name, _needs(tasks), devices, work, described, stop, end)


def _make(step: Step, pointer: DevicePtr, cache: _Cache) -> None:
    held: list[Tile] = []
    try:
        pointers = []
        for tile in step.reads:
            pointers.append(cache.take(tile))
            held.append(tile)
        step.call(pointer, *pointers)
    finally:
        for tile in held:
            cache.free(tile)
