"""Recording: writes the extension's report of each region, copy and call."""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import os
import platform
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._operands import need_path
from .._signatures import telling
from ..arguments import In, InOut, Out, Scratch
from ..devices import Device, by_number
from ..display import answering, plural
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError, ArgumentTypeError, OffloadError
from ..tracing.collect import names_of
from .layout import span
from .stream import FORMAT, VERSION, Writer

__all__ = ["Recording"]

_CONTENTS = ("none", "hash", "inputs")
_KNOWN = 64  # the most arrays of a buffer whose digests are remembered
_SAMPLED = 1 << 14  # an array of more bytes is identified by a sample
_SAMPLES, _SAMPLE = 16, 256  # the number of samples, and the bytes of each
_OUTCOMES = {_core.OA_COMMIT: "commit", _core.OA_DISCARD: "discard", _core.OA_KEEP: "keep"}
_DIRECTIONS = {In: "in", Out: "out", InOut: "inout", Scratch: "scratch"}
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_ON_CPU = ("communicator", "sparse")  # modules that compute without a vendor's library on host and sim
_ONLY_CHECKED = ": checked, and not made"  # the same text as in csrc/call/call.c
_LARGEST = 1 << 1024  # Python refuses to print and to read much larger numbers
_base_of = np.ndarray.base.__get__  # a subclass may have another attribute `base`
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_active: tuple[Recording, ...] = ()  # this tuple is replaced, never changed
_direct: Recording | None = None  # the recording whose lines the extension writes
_lock = threading.RLock()  # reentrant, because a finalizer may leave a region while its thread holds the lock


def _done(kind: str, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> Any:
    """Record an operation, or return a value to the extension, which calls this function on any thread."""
    answer = None
    for recording in _active:
        answer = recording._take(kind, subject, arguments, names, result, error)
    return answer


def _tell() -> None:
    """Make the extension report the events that recordings need. If there is only one recording, the extension may also
    write the recording's lines."""
    global _direct
    alone = _active[0] if len(_active) == 1 and _active[0]._is_simple else None
    if alone is not _direct:
        ended, _direct = _direct, alone
        facts = (None, 0) if alone is None else (alone._roots, alone._calls)
        lines = _core.recording_directly(*facts)
        if ended is not None:
            ended._add(*lines)
    _core.recording_set(_done, max((1 + recording._is_sync for recording in _active), default=0))


def _forget() -> None:
    """End all recordings as they are, in a forked child; the parent continues the recordings."""
    global _active, _direct, _lock
    _lock, _direct = threading.RLock(), None
    for recording in _active:
        recording._writer.abandon()
        recording._is_over = True
    _active = ()


os.register_at_fork(after_in_child=_forget)


class _Owner(weakref.ref[NDArray[Any]]):
    """A reference to the array that owns the memory of a buffer."""

    __slots__ = ("key", "number")  # the array's id, and the buffer's number

    key: int
    number: int


class _Buffer:
    """The host memory of an array that owns it; views of the array share this memory."""

    __slots__ = ("known", "lent", "low", "number", "owner", "start")

    def __init__(self, owner: _Owner, low: int, start: int) -> None:
        self.number, self.owner, self.low = owner.number, owner, low
        self.start = start  # the offset of the owning array
        self.lent = 0  # the number of open regions that lend it
        self.known: dict[tuple[Any, ...], str] = {}  # the digests of its arrays that were last written to the file


class _Lent:
    """One array of an open region."""

    __slots__ = ("array", "buffer", "is_known", "is_writable", "pointer")

    def __init__(self, array: NDArray[Any], buffer: _Buffer, pointer: Any, is_writable: bool, is_known: bool) -> None:
        self.array, self.buffer, self.pointer, self.is_writable = array, buffer, pointer, is_writable
        self.is_known = is_known  # the file has the array's contents after the region


@answering(
    {
        **dict.fromkeys(("save", "write", "dump"), "flush(); after the block, the file of record(file) is whole"),
        **dict.fromkeys(("close", "pause", "end", "disable"), "stop()"),
        **dict.fromkeys(("begin", "enable", "resume"), "start()"),
        **dict.fromkeys(("replay", "run"), "python -m offload_args replay file, in a shell"),
    }
)
@telling
class Recording:
    """Record a block, or a process, in a file; `offload_args.record(file)` makes one.

        recording = record("calls.jsonl.gz")
        recording.start()
        with offload_args(np.ones(3)) as (dx,):
            blas.scal(2.0, dx)
        recording.flush()  # the file has the call
        recording.stop()
        print(os.path.getsize("calls.jsonl.gz") > 100)  # True

    See also: record; docs/guide/recordings.md.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        contents: str = "hash",
        calls: int | None = None,
        sync: bool = False,
        images: bool = False,
    ) -> None:
        if contents not in _CONTENTS:
            raise ArgumentError(f'record: contents needs "none", "hash" or "inputs", got {contents!r}')
        if calls is not None and (not isinstance(calls, int) or calls < 1):
            raise ArgumentError(f"record: calls needs a number above 0, or None, got {calls!r}")
        self.file = need_path("record", "file", file)
        self.contents = contents
        self._calls = 0  # recorded calls, except those whose lines the extension still has
        self.fault: Exception | None = None  #: the reason why the file ends before the recording
        self._is_sync, self._has_images = sync, images
        self._most = calls
        self._is_simple = contents != "inputs" and calls is None and not sync  # whether the extension can write lines
        self._is_over = False
        self._writer: Writer
        self._keyed = hashlib.sha256(os.urandom(64))  # a secret key, so that contents can't be guessed from hashes
        self._places: dict[tuple[CodeType, int], int] = {}
        self._files: dict[str, bool] = {}  # {source file: whether it belongs to this package}
        self._buffers: dict[int, _Buffer] = {}  # {id of the owner: buffer}
        self._gone: list[_Owner] = []  # references to arrays that were collected
        self._numbers = {"buffer": 0, "region": 0, "pointer": 0, "object": 0, "chain": 0, "kernel": 0}
        self._roots: dict[int, tuple[int, int]] = {}  # {handle: numbers of the pointer and its region}
        self._regions: dict[int, tuple[int, list[_Lent | None], list[int]]] = {}  # {id: number, arrays, handles}
        self._objects: dict[int, int] = {}
        self._kernels: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}  # {(id, device): kernel, description}
        self._images: set[str] = set()  # the digests of the images in the file
        self._chains: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._inside: dict[int, list[list[dict[str, Any]]]] = {}  # {thread: its portable calls under way}
        self._devices: set[int] = set()
        self._libraries: set[str] = set()

    def __repr__(self) -> str:
        state = "on" if self in _active else "over" if self._is_over else "not begun"
        return f"<record({self.file!r}): {state}, {self.calls} {plural('call', self.calls)}>"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "Recording: can't be copied or pickled: it writes a file in this process; make another, "
            "record(another_file), where it is used"
        )

    def __enter__(self) -> Recording:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to record. A recording can begin only once. Raises OSError if the file can't be written.

        See also: recording.Recording.stop, record; docs/guide/recordings.md.
        """
        global _active
        with _lock:
            if self._is_over or self in _active:
                raise ArgumentError("record: it has begun before; make another one")
            self._writer = Writer(self.file, has_contents=self.contents == "inputs" or self._has_images)
            try:
                self._writer.write(self._header())
                self._writer.flush()
            except BaseException:
                self._writer.abandon()
                raise
            _active = (*_active, self)
            _tell()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the recording, and the file. A second stop has no effect.

        See also: recording.Recording.start, record; docs/guide/recordings.md.
        """
        with _lock:
            if self._leave():
                try:
                    self._writer.write({"end": "stopped", "calls": self.calls})
                    self._writer.close()
                except (OSError, TypeError, ValueError) as error:  # of the file, or of an event that is no JSON
                    self._fail(error)

    def flush(self) -> None:
        """Write all recorded events to the file. They are then safe even if the process is killed.

        See also: recording.Recording.stop, record; docs/guide/recordings.md.
        """
        with _lock:
            if not self._is_over:
                self._drain()
                self._writer.flush()

    def note_info(self, facts: dict[str, Any]) -> None:
        """Write the facts of `info --json`, which the caller collected, to the file."""
        with _lock:
            if not self._is_over:
                self._put({"info": facts})
                self._writer.flush()

    @property
    def calls(self) -> int:
        """Return the number of calls recorded so far."""
        with _lock:
            if not self._is_over:
                self._drain()
            return self._calls

    def _drain(self, calls: int = 0) -> None:
        """Take the lines that the extension wrote for this recording.

        `calls` is the number of calls that the caller writes.
        """
        if _direct is self:
            self._add(*_core.recording_lines(calls))

    def _add(self, lines: bytes, calls: int) -> None:
        self._calls += calls
        if lines:
            self._writer.add(lines)

    def _leave(self) -> bool:
        """Stop receiving events; return whether this recording was under way."""
        global _active
        atexit.unregister(self.stop)
        with _lock:
            if self not in _active:
                return False
            self._is_over = True
            _active = tuple(other for other in _active if other is not self)
            _tell()
            return True

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "offload_args": _core.VERSION,
            "contents": self.contents,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "numpy": np.__version__,
            "system": f"{platform.platform()}, {platform.machine()}",
        }

    # -- requests of the extension ---------------------------------------------------------------------------

    def _on_where(self, *_: Any) -> int:
        """Return the number of the calling line; 0 for a line of this package, because many user's lines call it."""
        frame = sys._getframe(3)
        return 0 if self._is_own(frame.f_code.co_filename) else self._place()

    def _on_thread(self, *_: Any) -> int:
        return self._thread()

    def _on_library(self, name: str, *_: Any) -> None:
        self._note_library(name)

    def _on_flush(self, *_: Any) -> None:
        self._drain()
        self._writer.flush()

    # -- reports of the extension ------------------------------------------------------------------------------

    def _take(
        self, kind: str, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: BaseException | None
    ) -> Any:
        try:
            with _lock:
                if not self._is_over:
                    answer = getattr(self, f"_on_{kind}")(subject, arguments, names or (), result, error)
                    if self._most is not None and self.calls >= self._most and self._leave():
                        self._writer.write({"end": "enough calls", "calls": self.calls})
                        self._writer.close()
                    return answer
        except Exception as fault:
            self._leave()
            self._fail(fault)
        return None

    def _fail(self, fault: Exception) -> None:
        """Leave the file as it is, and warn. The program continues unchanged."""
        self.fault = fault
        self._writer.abandon()
        with contextlib.suppress(Warning):
            warnings.warn(f"record: {self.file} ends here: {fault}", RuntimeWarning, stacklevel=3)

    def _put(self, event: dict[str, Any], calls: int = 0) -> None:
        self._drain(calls)
        while self._gone:
            owner = self._gone.pop()
            self._writer.write({"free": owner.number})
            if owner.key in self._buffers and self._buffers[owner.key].number == owner.number:
                del self._buffers[owner.key]
        self._writer.write(event)

    def _next(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]

    def _thread(self) -> int:
        return self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)

    def _stack(self) -> list[list[dict[str, Any]]]:
        return self._inside.setdefault(threading.get_ident(), [])

    def _is_inside(self) -> bool:
        """Return whether this thread is in a portable call."""
        return bool(self._stack()) or _core.recording_is_inside()

    def _caller(self) -> FrameType | None:
        """Return the user's frame that calls this package, or None."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not self._is_own(frame.f_code.co_filename):
                break
            frame = frame.f_back
        return frame

    def _is_own(self, file: str) -> bool:
        """Return whether a file belongs to this package."""
        own = self._files.get(file)
        if own is None:
            own = self._files[file] = file.startswith(_PACKAGE) or file == contextlib.__file__
        return own

    def _place(self) -> int:
        """Return the number of the user's line that calls this package; 0 if there is no such line."""
        frame = self._caller()
        if frame is None:
            return 0
        key = frame.f_code, frame.f_lineno
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self._places) + 1
            code = frame.f_code
            self._put({"place": number, "file": code.co_filename, "line": key[1], "function": code.co_name})
        return number

    # -- regions -----------------------------------------------------------------------------------------------

    def _on_enter(self, region: Any, pointers: tuple[Any, ...], *_: Any) -> None:
        if self._is_inside():
            return  # this region belongs to a portable call
        number, handles = self._next("region"), []
        rows: list[dict[str, Any]] = []
        lents: list[_Lent | None] = []
        names = names_of(region, self._caller())
        arguments = region._arguments
        device = pointers[0]._device if pointers else region._device
        self._note_device(device)
        for position, (argument, pointer) in enumerate(zip(arguments, pointers, strict=True)):
            name = names[position] if position < len(names) else ""
            row, lent = self._argument(argument, pointer, name)
            handle = _core.origin(pointer)[0]
            self._roots[handle] = row["pointer"], number
            handles.append(handle)
            rows.append(row)
            lents.append(lent)
        for lent in filter(None, lents):
            lent.buffer.lent += 1
        self._regions[id(region)] = number, lents, handles
        self._put(
            {
                "enter": number,
                "device": by_number(device).name if device >= 0 else "",
                "arrays": rows,
                "at": self._place(),
                "thread": self._thread(),
            }
        )

    def _argument(self, argument: Any, pointer: Any, name: str) -> tuple[dict[str, Any], _Lent | None]:
        direction = _DIRECTIONS.get(type(argument), "by use")
        array = argument.array if isinstance(argument, (In, Out, InOut)) else argument
        row: dict[str, Any] = {
            "pointer": self._next("pointer"),
            "name": name,
            "direction": direction,
            "dtype": DTYPE_NAMES[pointer._dtype_code],
            "shape": pointer._shape,
        }
        if not isinstance(array, np.ndarray):
            return row | {
                "strides": pointer._strides,
                "memory": "scratch" if direction == "scratch" else "borrowed",
            }, None
        buffer = self._buffer(array)
        offset = buffer.start if array is buffer.owner() else _interval(array)[0] - buffer.low
        is_writable = _core.query(pointer).writable
        row |= {"strides": array.strides, "buffer": buffer.number, "offset": offset, "writable": is_writable}
        if pointer._strides != array.strides:
            row["packed"] = pointer._strides
        is_known = buffer.lent == 0 and direction != "out"
        if is_known:
            row |= self._described(array, buffer)
        return row, _Lent(array, buffer, pointer, is_writable, is_known)

    def _buffer(self, array: NDArray[Any]) -> _Buffer:
        """Return the memory of an array as a buffer; if the buffer is new, write its line."""
        owner = array
        while isinstance(base := _base_of(owner), np.ndarray):
            owner = base
        buffer = self._buffers.get(id(owner))
        if buffer is None or buffer.owner() is not owner:
            (start, high), own = _interval(owner), _interval(array)
            low, high = min(start, own[0]), max(high, own[1])  # as_strided may make an array larger than its owner
            # The callback runs at any moment, on any thread. It is a built-in function, because a Ctrl-C in Python code
            # would be lost.
            reference = _Owner(owner, self._gone.append)
            reference.number, reference.key = self._next("buffer"), id(owner)
            buffer = self._buffers[reference.key] = _Buffer(reference, low, start - low)
            self._put({"buffer": buffer.number, "nbytes": high - low, "align": low % 64})
        return buffer

    def _described(self, array: NDArray[Any], buffer: _Buffer) -> dict[str, Any]:
        """Return the description of an array's contents for the file."""
        if self.contents == "none":
            return {}
        if self.contents == "hash":
            return {"hash": self._digest(_sample(array))}
        key = _interval(array)[0] - buffer.low, array.shape, array.strides, array.dtype
        values = np.ascontiguousarray(array).tobytes()
        digest = self._digest(values)
        is_same, buffer.known[key] = buffer.known.pop(key, None) == digest, digest
        if len(buffer.known) > _KNOWN:
            del buffer.known[next(iter(buffer.known))]
        return {"hash": digest} if is_same else {"hash": digest, "data": base64.b64encode(values).decode()}

    def _digest(self, contents: bytes) -> str:
        digest = self._keyed.copy()
        digest.update(contents)
        return digest.hexdigest()[:16]

    def _on_leaving(self, region: Any, *_: Any) -> None:
        for lent in self._regions.get(id(region), (0, (), ()))[1] if self.contents == "hash" else ():
            if lent is not None and lent.is_known:
                state = _core.query(lent.pointer)
                lent.is_known = not (state.written or state.escaped)

    def _on_leave(self, region: Any, arguments: tuple[Any, ...], *_: Any) -> None:
        entered = self._regions.pop(id(region), None)
        if entered is None:
            return
        number, lents, handles = entered
        for handle in handles:
            self._roots.pop(handle, None)
        results: dict[str, Any] = {}
        for ended in filter(None, lents):
            ended.buffer.lent -= 1
        for position, lent in enumerate(lents):
            if lent is None or not lent.is_writable or lent.buffer.lent > 0:
                continue
            if not (lent.is_known and self.contents == "hash"):
                results[str(position)] = self._described(lent.array, lent.buffer)
        self._put({"leave": number, "outcome": _OUTCOMES.get(arguments[0], ""), "arrays": results})

    def _on_update_from(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._update("update_from", arguments[0], error)

    def _on_update_to(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._update("update_to", arguments[0], error)

    def _update(self, kind: str, array: NDArray[Any], error: Any) -> None:
        if error is not None or self._is_inside():
            return
        buffer = self._buffer(array)
        for _, lents, _ in self._regions.values():
            for lent in lents:
                if lent is not None and lent.buffer is buffer:
                    lent.is_known = False
        row = {
            "dtype": array.dtype.name,
            "shape": array.shape,
            "strides": array.strides,
            "buffer": buffer.number,
            "offset": _interval(array)[0] - buffer.low,
        }
        self._put({kind: row | self._described(array, buffer), "at": self._place(), "thread": self._thread()})

    # -- memory on the device ----------------------------------------------------------------------------------

    def _on_fill(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._written("fill", arguments, {"value": self._value(arguments[1][()])}, error)

    def _on_assign(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        if error is None and not self._is_inside():
            by = self._portable()
            self._written(
                "assign", arguments, {"values": self._value(arguments[1]), **({"by": by} if by else {})}, error
            )

    def _on_unrecorded(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        """Write the name of a call that is not recorded, because a portable module makes it with addresses."""
        if not self._is_inside():
            self._put({"unrecorded": arguments[0], "at": self._place(), "thread": self._thread()})

    def _on_computed(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        """Write a transform of `fft` on the CPU."""
        _, work, x, y = arguments
        call = {"from": self._value(x), "function": work.name, "lengths": work.lengths, "axes": work.axes}
        self._written("fft", (y,), {**call, "norm": work.norm}, error)

    def _portable(self) -> str:
        """Return the name of the user's call of this package if it computes on the CPU without a library, or ""."""
        frame: FrameType | None = sys._getframe(1)
        name = ""
        while frame is not None and self._is_own(frame.f_code.co_filename):
            module = frame.f_globals.get("__name__", "").split(".")
            if module[-1] != "_signatures":  # a wrapper of the user's call
                name = f"{module[1]}.{frame.f_code.co_name}" if len(module) > 1 and module[1] in _ON_CPU else ""
            frame = frame.f_back
        return name

    def _on_copy(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._written("copy", arguments, {"from": self._value(arguments[1])}, error)

    def _written(self, kind: str, arguments: tuple[Any, ...], more: dict[str, Any], error: Any) -> None:
        if error is None and not self._is_inside():
            self._put({kind: self._value(arguments[0]), **more, "at": self._place(), "thread": self._thread()})

    def _on_stage(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._made("stage", arguments[0], result, {"value": self._value(arguments[1][()])})

    def _on_scratch(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._made("scratch", arguments[0], result, {})

    def _made(self, kind: str, like: Any, result: Any, more: dict[str, Any]) -> None:
        """Note memory that a call or a program took in a region."""
        if result is None or self._is_inside():
            return
        beside = like if isinstance(like, tuple) else (like,)
        root = max((self._roots.get(_core.origin(pointer)[0], (0, 0)) for pointer in beside), key=lambda pair: pair[1])
        number, handle = self._next("pointer"), _core.origin(result)[0]
        self._roots[handle] = number, root[1]
        for region_number, _, handles in self._regions.values():
            if region_number == root[1]:
                handles.append(handle)
        row = {"dtype": DTYPE_NAMES[result._dtype_code], "shape": result._shape, "strides": result._strides}
        self._put({kind: number, "beside": [self._value(pointer) for pointer in beside], **row, **more})

    # -- calls -------------------------------------------------------------------------------------------------

    def _on_begin(self, name: str, arguments: tuple[Any, ...], names: Any, *_: Any) -> None:
        if self._is_sync:
            self._begun(lambda: {"blas": name, **self._arguments(arguments, names)})
        self._stack().append([])

    def _on_begun(self, subject: tuple[Any, ...], arguments: tuple[Any, ...], names: Any, *_: Any) -> None:
        if self._is_sync:
            is_launch = len(subject) > 2
            named = self._launched(subject, arguments) if is_launch else {"call": ".".join(subject)}
            self._begun(lambda: {**named, **self._arguments(arguments, names)})

    def _begun(self, event: Callable[[], dict[str, Any]]) -> None:
        """Write a call to the file before it is made."""
        if not self._is_inside():
            self._put({"begun": self.calls + 1, **event(), "at": self._place(), "thread": self._thread()})
            self._writer.flush()

    def _on_blas(self, name: str, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        stack = self._stack()
        calls = stack.pop() if stack else []
        self._call({"blas": name, **self._arguments(arguments, names), "calls": calls}, result, error)

    def _on_call(self, subject: tuple[str, str], arguments: Any, names: Any, result: Any, error: Any) -> None:
        self._note_library(subject[0])
        self._call({"call": ".".join(subject), **self._arguments(arguments, names)}, result, error)

    def _on_repeat(self, subject: tuple[Any, ...], arguments: Any, names: Any, result: Any, error: Any) -> None:
        self._note_library(subject[0])
        more = {"times": subject[2], "steps": self._value(subject[3])}
        self._call({"call": ".".join(subject[:2]), **more, **self._arguments(arguments, names)}, result, error)

    def _on_launch(self, subject: tuple[Any, ...], arguments: Any, names: Any, result: Any, error: Any) -> None:
        self._call({**self._launched(subject, arguments), **self._arguments(arguments, names)}, result, error)

    def _launched(self, subject: tuple[Any, ...], arguments: tuple[Any, ...]) -> dict[str, Any]:
        kernel, grid, block, shared_bytes, is_cooperative, cluster, is_unsafe = subject
        event: dict[str, Any] = {"launch": kernel.name, "grid": grid, "block": block, "shared_bytes": shared_bytes}
        event |= {"cooperative": True} if is_cooperative else {}
        event |= {"cluster": cluster} if cluster[0] else {}
        event |= {"unsafe": True} if is_unsafe else {}
        pointer = next((value for value in arguments if isinstance(value, _core.Pointer)), None)
        return event if pointer is None else event | self._kernel(kernel, by_number(pointer._device))

    def _kernel(self, kernel: Any, device: Device) -> dict[str, Any]:
        """Return the description that a kernel's launches on a device have. Write the kernel's signature and images if
        they are to be recorded."""
        key = id(kernel), device.number
        if key not in self._kernels:
            from .images import described, image_on, images_of, parameter_names

            facts: dict[str, Any] = {}
            with contextlib.suppress(OffloadError):
                image = image_on(kernel, device)
                facts = {"image": hashlib.sha256(image.data).hexdigest(), "format": str(image.format)}
            if parameters := parameter_names(kernel):
                facts["parameters"] = parameters
            if self._has_images:
                facts["kernel"] = self._next("kernel")
                images = {id(image): image for image in images_of(kernel, device)}
                rows = [self._image(kernel.name, image) for image in images.values()]
                self._put({"kernel": facts["kernel"], **described(kernel, device), "images": rows})
            self._kernels[key] = kernel, facts
        return self._kernels[key][1]

    def _image(self, name: str, image: Any) -> dict[str, Any]:
        """Return the description of a module; write the module's bytes if they are new."""
        digest = hashlib.sha256(image.data).hexdigest()
        if digest not in self._images:
            self._images.add(digest)
            self._put({"image": digest, "data": base64.b64encode(image.data).decode()})
        facts = {"backend": image.backend, "format": str(image.format), "target": image.target}
        return {"image": digest, "symbol": image.symbols.get(name, name), **facts}

    def _arguments(self, arguments: tuple[Any, ...], names: tuple[str, ...]) -> dict[str, Any]:
        split = len(arguments) - len(names)
        event: dict[str, Any] = {"args": [self._value(value) for value in arguments[:split]]}
        if names:
            pairs = zip(names, arguments[split:], strict=True)
            event["names"] = {name: self._value(value) for name, value in pairs}
        return event

    def _call(self, event: dict[str, Any], result: Any, error: BaseException | None) -> None:
        if error is not None:
            if str(error).endswith(_ONLY_CHECKED):
                return  # this package only checked whether the call is possible
            event["error"] = f"{type(error).__name__}: {_ADDRESS.sub('', str(error))}"
        elif result is not None and (self.contents == "inputs" or _has_objects(result)):
            event["result"] = self._value(result, is_new=True)
        stack = self._stack()
        if stack:
            stack[-1].append(event)
            return
        if self._is_inside():
            return
        event |= {"at": self._place(), "thread": self._thread()}
        self._calls += 1
        self._put(event, calls=1)

    # -- chains of captured calls ------------------------------------------------------------------------------

    def _on_capture(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        entered = self._regions.get(id(arguments[0]))
        self._chains[result] = self._next("chain")
        self._put({"capture": self._chains[result], "region": entered[0] if entered else 0, "thread": self._thread()})

    def _on_captured(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        self._put({"captured": self._chains.get(arguments[0], 0), "failed": error is not None})

    def _on_graph(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        if error is None:
            self._put({"graph": self._chains.get(arguments[0], 0), "times": 1, "at": self._place()})

    def _on_loop(self, subject: Any, arguments: tuple[Any, ...], names: Any, result: Any, error: Any) -> None:
        if error is None:
            self._put({"graph": self._chains.get(arguments[0], 0), "times": result, "at": self._place()})

    # -- values ------------------------------------------------------------------------------------------------

    def _value(self, value: Any, *, is_new: bool = False) -> Any:
        """Return a value in JSON's form. `is_new`: whether the objects in it are new."""
        kind = type(value)
        if kind is bool or value is None or (kind is int and -_LARGEST < value < _LARGEST):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # members of an enum become plain text
        if isinstance(value, float) and not isinstance(value, np.generic):
            return value if value - value == 0 else {"float": repr(value)}
        if isinstance(value, _core.Pointer):
            return self._pointer(value)
        if isinstance(value, (list, tuple)):
            return [self._value(part, is_new=is_new) for part in value]
        if isinstance(value, complex) and not isinstance(value, np.generic):
            return {"complex": [self._value(value.real), self._value(value.imag)]}
        if isinstance(value, np.generic):
            number = value.item()
            return {"scalar": value.dtype.name, "value": self._value(number if type(number) is not kind else None)}
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return {"dtype": np.dtype(value).name}
        if isinstance(value, np.ndarray):
            row: dict[str, Any] = {"array": value.dtype.name, "shape": value.shape}
            if self.contents == "inputs":
                row["data"] = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            elif self.contents == "hash":
                row["hash"] = self._digest(_sample(value))
            return row
        if isinstance(value, _core.Object):
            if is_new or id(value) not in self._objects:
                self._objects[id(value)] = self._next("object")
            return {"object": self._objects[id(value)], "kind": kind.__name__}
        number = _number(value)
        return {"other": kind.__name__} if number is None else self._value(number)

    def _pointer(self, pointer: Any) -> dict[str, Any]:
        handle, offset = _core.origin(pointer)
        number = self._roots.get(handle, (0, 0))[0]
        if number and handle == _core.handle(pointer):
            return {"p": number}
        row = {"p": number, "offset": offset, "shape": pointer._shape, "strides": pointer._strides}
        return row if number else row | {"dtype": DTYPE_NAMES[pointer._dtype_code]}

    # -- the environment ---------------------------------------------------------------------------------------

    def _note_device(self, number: int) -> None:
        if number < 0 or number in self._devices:
            return
        self._devices.add(number)
        device = by_number(number)
        facts = {"model": device.model, "driver": device.driver_version}
        self._put({"device": device.name, **facts, "memory": device.memory.total})

    def _note_library(self, name: str) -> None:
        if name in self._libraries:
            return
        self._libraries.add(name)
        from .. import libraries

        with contextlib.suppress(OffloadError):
            library = libraries.load(name)
            self._put({"library": name, "path": library.path, "version": library.version, "found": library.found})


def _interval(array: NDArray[Any]) -> tuple[int, int]:
    """Return the addresses of an array's lowest byte and of the byte after its highest byte."""
    first = array.__array_interface__["data"][0]
    if array.flags.forc:
        return first, first + array.nbytes
    low, high = span(array.shape, array.strides, array.itemsize)
    return first + low, first + high


def _sample(array: NDArray[Any]) -> bytes:
    """Return an array's bytes, or samples of a large array's bytes."""
    if array.nbytes <= _SAMPLED:
        return array.tobytes()
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.reshape(-1, order="A").view(np.uint8)
        parts = np.ndarray((_SAMPLES, _SAMPLE), np.uint8, flat, 0, (flat.size // _SAMPLES, 1))
        return parts.tobytes() + flat[-_SAMPLE:].tobytes()
    most = round((_SAMPLES * _SAMPLE / array.itemsize) ** (1 / array.ndim))  # samples in each dimension
    return array[tuple(slice(None, None, -(-extent // most)) for extent in array.shape)].tobytes()


def _number(value: Any) -> int | float | complex | None:
    """Return the number that a routine would read from an object; None if the object is not a number."""
    with contextlib.suppress(Exception):  # the object's own code may raise any exception
        for read in ("__index__", "__float__", "__complex__"):
            if hasattr(type(value), read):
                number = getattr(type(value), read)(value)
                return number if type(number) in (float, complex) or -_LARGEST < number < _LARGEST else None
    return None


def _has_objects(result: Any) -> bool:
    parts = result if isinstance(result, (list, tuple)) else (result,)
    return any(isinstance(part, _core.Object) for part in parts)
