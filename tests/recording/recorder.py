"""Builds the recording doubles and the callers of typed C functions, and reads the notes of a double.

recorder = Recorder(library, path)      # the double that the core has loaded
recorder.reset({5: Wish(peek=4)})       # notes 4 bytes at the sixth argument of later calls ... (record,) =
recorder.records() record.symbol, record.arguments[5].behind
"""

from __future__ import annotations

import ctypes
import fcntl
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))

import offload_args  # noqa: E402
from doubles.recording import MOST_ARGUMENTS, MOST_BYTES, MOST_RECORDS, MOST_VALUE, roles, text, working  # noqa: E402

OPTIONS = ["-std=gnu11", "-O0", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]


# The structs of tests/doubles/recording.py.
class _Argument(ctypes.Structure):
    _fields_ = [
        ("width", ctypes.c_int32),
        ("peeked", ctypes.c_int32),
        ("value", ctypes.c_ubyte * MOST_VALUE),
        ("behind", ctypes.c_ubyte * MOST_BYTES),
    ]


class _Record(ctypes.Structure):
    _fields_ = [("function", ctypes.c_int32), ("count", ctypes.c_int32), ("arguments", _Argument * MOST_ARGUMENTS)]


class _Wish(ctypes.Structure):
    _fields_ = [("peek", ctypes.c_int32), ("poke", ctypes.c_int32), ("bytes", ctypes.c_ubyte * MOST_BYTES)]


_WAIT = ctypes.CFUNCTYPE(None)


class _State(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("returned", ctypes.c_ubyte * 16),
        ("wait", _WAIT),
        ("wishes", _Wish * MOST_ARGUMENTS),
        ("records", _Record * MOST_RECORDS),
    ]


@dataclass(frozen=True)
class Wish:
    """The number of bytes at a pointer that are noted, and the bytes that are written there afterwards."""

    peek: int = 0
    poke: bytes = b""


@dataclass(frozen=True)
class Argument:
    """An argument as it arrived: its bytes, and the requested number of bytes at its address."""

    value: bytes
    behind: bytes

    @property
    def address(self) -> int:
        assert len(self.value) == ctypes.sizeof(ctypes.c_void_p)
        return int.from_bytes(self.value, sys.byteorder)

    @property
    def integer(self) -> int:
        return int.from_bytes(self.value, sys.byteorder, signed=True)


@dataclass(frozen=True)
class Record:
    """One call."""

    symbol: str
    arguments: list[Argument]


class Recorder:
    """The double of one library in this process.

    A vendor's function writes results in stream order; the double writes them during the call. So it waits for the
    device first: a simulated device can still be filling the memory of a result. The CPU's libraries are called in
    stream order and do not wait. Helper functions write into the host's memory, and must not wait beside a capture.
    """

    def __init__(self, library: roles.Library, path: Path, device: offload_args.Device) -> None:
        self._state = _State.in_dll(ctypes.CDLL(str(path)), "recorder")
        self._wait = _WAIT(device.synchronize) if library.backend else _WAIT()
        self._symbols = list(library.api["functions"])
        bodies = working(library)
        self._cores = {at for at, symbol in enumerate(self._symbols) if symbol in bodies}
        self._wishes: list[int] = []

    def reset(self, wishes: Mapping[int, Wish], returned: bytes = b"", waits: bool = True) -> None:
        """Forget all calls.

        `wishes` are {place of an argument: wish} for later calls; `returned` is the value that functions return;
        `waits`: later calls wait for the device before they write bytes.
        """
        self._state.wait = self._wait if waits else _WAIT()
        self._state.count = 0
        self._state.returned[:] = returned.ljust(16, b"\0")
        for at in self._wishes:
            self._state.wishes[at].peek = self._state.wishes[at].poke = 0
        self._wishes = list(wishes)
        for at, wish in wishes.items():
            slot = self._state.wishes[at]
            slot.peek, slot.poke = wish.peek, len(wish.poke)
            ctypes.memmove(slot.bytes, wish.poke, len(wish.poke))

    @property
    def count(self) -> int:
        """Return the number of calls, without calls that the core itself makes."""
        return len(self._taken())

    def _taken(self, own: bool = False) -> list[_Record]:
        assert self._state.count <= MOST_RECORDS
        records = self._state.records[: self._state.count]
        return [record for record in records if own or record.function not in self._cores]

    def records(self, own: bool = False) -> list[Record]:
        """Return the calls since the last reset; own: include calls that the core itself makes."""
        records = []
        for record in self._taken(own):
            arguments = [
                Argument(bytes(argument.value[: argument.width]), bytes(argument.behind[: argument.peeked]))
                for argument in record.arguments[: record.count]
            ]
            records.append(Record(self._symbols[record.function], arguments))
        return records


def run(*command: Any) -> None:
    """Run a compiler; on an error, fail with its messages."""
    done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def compile_once(path: Path, code: Callable[[], str], *options: Any) -> None:
    """Compile a C library, unless another process of this run has compiled it.

    Wait if another process compiles it now.
    """
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            source, unfinished = path.with_suffix(".c"), path.with_suffix(".new")
            source.write_text(code())
            run("gcc", *OPTIONS, "-o", unfinished, source, *options)
            unfinished.replace(path)


def build(library: roles.Library, path: Path, wide: bool = False) -> Path:
    """Compile a library's double; wide: with 64-bit integers."""
    compile_once(path, lambda: text(library, wide))
    return path


# -- typed C functions -------------------------------------------------------------------------------------------------

_PROTOTYPE = re.compile(r"^int (oa_\w+)\(([^)]*)\);", re.MULTILINE)


def prototypes(header: str) -> dict[str, list[str]]:
    """Return the parameters' types of every typed function that a generated header declares."""
    prototypes = {}
    for name, listed in _PROTOTYPE.findall(header):
        declared = [] if listed == "void" else re.split(r",\s*", listed)
        prototypes[name] = [re.sub(r"\s*\w+$", "", parameter.strip()) for parameter in declared]
    return prototypes


class Typed:
    """The typed C functions of one library, called with ctypes through a compiled C caller for each function."""

    def __init__(self, package: Path, library: str, path: Path) -> None:
        header = package / "include" / f"offload_args_{library}.h"
        self._types = prototypes(header.read_text())
        lines = [f'#include "{header.name}"', ""]
        for name, types in self._types.items():
            passed = ", ".join(f"*({type_}*)values[{at}]" for at, type_ in enumerate(types))
            lines.append(f"int call_{name}(void **values) {{ (void)values; return {name}({passed}); }}")
        core = [f"-L{package}", "-loffload_args", f"-Wl,-rpath,{package}"]
        compile_once(path, lambda: "\n".join([*lines, ""]), f"-I{package / 'include'}", *core)
        self._callers = ctypes.CDLL(str(path))

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def types(self, name: str) -> list[str]:
        """Return the types of a function's parameters."""
        return self._types[name]

    def use_handle(self, library: str, handle: int) -> None:
        """Set the handle for this thread's calls into a library."""
        assert self._callers.oa_use_handle(library.encode(), ctypes.c_void_p(handle)) == 0

    def call(self, name: str, values: list[Any]) -> int:
        """Call a function; values: a ctypes object for each parameter."""
        caller: Callable[[Any], int] = self._callers[f"call_{name}"]
        return caller((ctypes.c_void_p * (len(values) or 1))(*[ctypes.addressof(value) for value in values]))
