"""The file of a recording: a line of JSON for each event, compressed by gzip.

Lines are written as events come. After a flush, all earlier lines can be read, however the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
import zlib
from collections.abc import Iterator
from typing import Any

from ..errors import ArgumentError

__all__ = ["CALLS", "FORMAT", "VERSION", "Writer", "damaged", "read"]

FORMAT = "offload_args recording"
VERSION = 1

_MOST = 1 << 16  # the most bytes that wait for a flush
_EVENT = 1 << 8  # bytes of an event, for this purpose
_LONGEST = 0.5  # the most seconds that an event waits for a flush, if another event follows
CALLS = ("blas", "call", "launch")  # kinds of events that are numbered calls
_REACH = 4096  # the most calls from one call to its repetition
_GZIP = 16 + zlib.MAX_WBITS  # zlib's code for the gzip format

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class Writer:
    """Write lines to a file, in place of its former contents. The caller serialises the calls of its methods.

    Raises OSError if the file can't be written, or if another recording writes it.
    """

    def __init__(self, file: str, *, has_contents: bool = False) -> None:
        """Open the file. has_contents: events may be large, and become lines immediately."""
        self._has_contents = has_contents
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if stat.S_ISREG(os.fstat(self._file).st_mode):  # several recordings may write a device file
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise BlockingIOError(
                f"{file}: another recording writes it (%p in a name is the process, in OFFLOAD_ARGS_RECORD)"
            ) from None
        except OSError:
            pass  # the file system has no locks
        with contextlib.suppress(OSError):  # a pipe, for example, has no size
            os.ftruncate(self._file, 0)
        self._rest = b""  # compressed bytes that are not yet in the file
        self._compressor = zlib.compressobj(3, wbits=_GZIP)
        self._lines: list[bytes | dict[str, Any]] = []  # lines, and events that become lines when they are flushed
        self._size = 0
        self._flushed = time.monotonic()

    def write(self, event: dict[str, Any]) -> None:
        """Write an event, which does not change any more."""
        if self._has_contents:
            self.add(_line(event))
        else:
            self._add(event, _EVENT)

    def add(self, lines: bytes) -> None:
        """Write lines as they are."""
        self._add(lines, len(lines))

    def _add(self, lines: bytes | dict[str, Any], size: int) -> None:
        self._lines.append(lines)
        self._size += size
        if self._size > _MOST or time.monotonic() - self._flushed > _LONGEST:
            self.flush()

    def flush(self) -> None:
        """Bring all lines to the file."""
        if self._lines:
            self._put(zlib.Z_SYNC_FLUSH)

    def close(self) -> None:
        """Write all lines to the file, and close it."""
        if self._file < 0:
            return
        try:
            self._put(zlib.Z_FINISH)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without a last line."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _put(self, mode: int) -> None:
        lines, self._lines, self._size = self._lines, [], 0  # a finalizer may add lines
        text = b"".join(part if isinstance(part, bytes) else _line(part) for part in lines)
        self._rest += self._compressor.compress(text) + self._compressor.flush(mode)
        while self._rest:  # this includes the rest of an interrupted write
            self._rest = self._rest[os.write(self._file, self._rest) :]
        self._flushed = time.monotonic()


def _line(event: dict[str, Any]) -> bytes:
    return f"{_encode(event)}\n".encode()


def read(file: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a recording; the first one describes it. A file may lack its end.

    Raises ArgumentError if the file is not a recording, is damaged, or has a later version of the format.
    """
    with open(file, "rb") as source:
        unpacked = zlib.decompressobj(_GZIP)
        parts: list[bytes] = []  # parts of a line whose end was not read yet
        number = 0  # the number of the line
        calls = 0
        recent: dict[int, dict[str, Any]] = {}  # calls by their numbers
        while block := source.read(1 << 20):
            try:
                head, *lines = unpacked.decompress(block).split(b"\n")
            except zlib.error as error:
                raise _no_recording(file) if number == 0 else damaged(file, number + 1, error) from error
            parts.append(head)
            if lines:
                lines = [b"".join(parts), *lines]
                parts = [lines.pop()]
            for line in lines:
                number += 1
                event = _decoded(file, line, number)
                if number == 1:
                    _check(file, event)
                kind = next(iter(event))
                if kind in (*CALLS, "again"):
                    calls += 1
                    if kind == "again":
                        event = _again(file, number, recent, event)
                    else:
                        recent[calls] = event
                    recent.pop(calls - _REACH, None)
                yield event
        if number == 0:
            raise _no_recording(file)


def _no_recording(file: str | os.PathLike[str]) -> ArgumentError:
    return ArgumentError(f"{os.fspath(file)} is no recording; `python -m offload_args record` makes one")


def damaged(file: str | os.PathLike[str], number: int, error: object) -> ArgumentError:
    """Return the error for a line that has no meaning."""
    reason = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    return ArgumentError(f"{os.fspath(file)}: line {number} can't be replayed: {reason}")


def _decoded(file: str | os.PathLike[str], line: bytes, number: int) -> dict[str, Any]:
    try:
        event = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _no_recording(file) if number == 1 else damaged(file, number, error) from error
    if not isinstance(event, dict) or not event:
        raise _no_recording(file) if number == 1 else damaged(file, number, "it is no event")
    return event


def _again(file: str | os.PathLike[str], number: int, recent: dict[int, dict[str, Any]], event: Any) -> dict[str, Any]:
    """Return the call that an event repeats, with the numbers of the event."""
    call = event["again"]
    if type(call) is not int or call not in recent:
        raise damaged(file, number, f"it repeats call {call}, which is none of the last {_REACH} before it")
    if "numbers" not in event:
        return dict(recent[call])
    repeated = {key: value for key, value in recent[call].items() if key != "calls"}
    try:
        numbers = iter([float.fromhex(text) for text in event["numbers"]])
        repeated["args"] = [_other(value, numbers) for value in repeated["args"]]
        if "names" in repeated:
            repeated["names"] = {name: _other(value, numbers) for name, value in repeated["names"].items()}
    except (LookupError, OverflowError, StopIteration, TypeError, ValueError) as error:
        raise damaged(file, number, error) from error
    return repeated


def _other(value: Any, numbers: Iterator[float]) -> Any:
    """Return the next number in place of a float; return another value unchanged."""
    return next(numbers) if isinstance(value, float) else value


def _check(file: str | os.PathLike[str], header: dict[str, Any]) -> None:
    version = header.get("version")
    if header.get("format") != FORMAT or not isinstance(version, int):
        raise _no_recording(file)
    if version > VERSION:
        raise ArgumentError(
            f"{os.fspath(file)} has version {version} of the format, from offload_args "
            f"{header.get('offload_args', '')}; this one reads versions up to {VERSION}: install that one"
        )
