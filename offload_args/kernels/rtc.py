"""Vendors' compilers in this process: NVRTC for NVIDIA GPUs, hiprtc for AMD GPUs. Their functions differ in names."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ..errors import LibraryError
from ..libraries import rocm_files

__all__ = ["HIPRTC", "NVRTC", "RefusedError", "Vendor"]


class RefusedError(Exception):
    """The error for a source that does not compile, with the compiler's log."""


def _override(name: str) -> str:
    """Return the absolute path in the variable OFFLOAD_ARGS_<NAME>; "" if it has none."""
    path = os.environ.get(f"OFFLOAD_ARGS_{name.upper()}", "")
    if path and not os.path.isabs(path):
        raise OSError(f"OFFLOAD_ARGS_{name.upper()} needs an absolute path, got {path!r}")
    return path


_NEEDED: Final = ("Version", "CreateProgram", "CompileProgram", "GetProgramLog", "DestroyProgram")


def _lacks(library: ctypes.CDLL, prefix: str, code: str) -> str:
    """Return a message about a function that a compiler's library lacks; "" if the library has all functions."""
    names = [prefix + name for name in (*_NEEDED, f"Get{code}", f"Get{code}Size")]
    return next((f"{library._name} has no {name}" for name in names if not hasattr(library, name)), "")


@cache
def _load_nvrtc() -> ctypes.CDLL:
    try:
        if path := _override("nvrtc"):
            # NVRTC opens this library by its name alone, and would not find it: NVIDIA's wheels of 13.0 do not add its
            # folder.
            for beside in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(str(beside))
        else:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            path = load_nvidia_dynamic_lib("nvrtc").abs_path
        library = ctypes.CDLL(path)
        if lacks := _lacks(library, "nvrtc", "CUBIN"):
            raise OSError(f"{lacks}: it is another library, or NVRTC before CUDA 11.1")
        return library
    except (ImportError, OSError, RuntimeError) as error:
        raise LibraryError(
            "Kernel.compile: NVRTC was not found; pip install 'offload-args[cuda13]' (in a checkout '.[cuda13]'), or "
            f"cuda12 for an older driver ({' '.join(str(error).split())})"
        ) from None


def _hiprtc_places(tried: list[str]) -> Iterator[str]:
    """Yield paths and names of hiprtc. Before ROCm 6, and in Debian, HIP's runtime contains hiprtc."""
    for library in ("hiprtc", "amdhip64"):
        yield from rocm_files(library, tried)


@cache
def _load_hiprtc() -> ctypes.CDLL:
    faults: list[str] = []
    tried: list[str] = []
    try:
        path = _override("hiprtc")
    except OSError as error:
        raise LibraryError(f"Kernel.compile: {error}") from None
    for place in [path] if path else _hiprtc_places(tried):
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            if path or os.path.exists(place):  # the file exists, but a file that it needs may be missing
                faults.append(str(error))
            continue
        lacks = _lacks(library, "hiprtc", "Code")
        if not lacks:
            return library
        faults.append(lacks)
    raise LibraryError(
        "Kernel.compile: hiprtc was not found; install ROCm, or pip install 'offload-args[rocm]' (in a checkout "
        "'.[rocm]'), or set OFFLOAD_ARGS_HIPRTC to its path. Only Kernel.compile needs it: Module.load takes an HSACO "
        f"that hipcc or clang has compiled. {''.join(fault + '; ' for fault in faults[:2])}"
        f"tried {path or '; '.join(dict.fromkeys(tried))}"
    )


@dataclass(frozen=True)
class Vendor:
    """A vendor's compiler."""

    title: str
    prefix: str  #: the prefix of its functions
    code: str  #: the word for the result in names of functions
    suffix: str  #: the suffix of a source
    architecture: str  #: the option for the processor
    load: Callable[[], ctypes.CDLL]

    def _call(self, function: str, *arguments: object) -> int:
        called = getattr(self.load(), self.prefix + function, None)
        if called is None:
            raise LibraryError(f"Kernel.compile: {self.version()} ({self.path()}) has no {self.prefix}{function}")
        return int(called(*arguments))

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        return f"{self.title} {major.value}.{minor.value}"

    def path(self) -> str:
        """Return the absolute path of the loaded compiler; its name if the system does not report the path."""
        name = self.load()._name
        if os.path.isabs(name) or not os.path.exists("/proc/self/maps"):
            return name
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if name in line}
        return min(paths, default=name)

    def compile(
        self, name: str, source: str, options: Sequence[str], expressions: Sequence[str] = ()
    ) -> tuple[bytes, str, list[str]]:
        """Return the module compiled from a source, the log, and the symbols of the kernels in `expressions`.

        Raises RefusedError with the log, and LibraryError without a compiler.
        """
        program = ctypes.c_void_p()
        words = [os.fsencode(option) for option in options]
        texts = (ctypes.c_char_p * len(words))(*words)
        file = f"{re.sub(r'[^0-9A-Za-z_]+', '_', name)}{self.suffix}".encode()
        code = self._call("CreateProgram", ctypes.byref(program), source.encode(), file, 0, None, None)
        if code:
            raise LibraryError(f"Kernel.compile: {self.prefix}CreateProgram of {name} returned {code}")
        try:
            for expression in expressions:
                if code := self._call("AddNameExpression", program, expression.encode()):
                    raise LibraryError(
                        f"Kernel.compile: {self.prefix}AddNameExpression of {expression} returned {code}"
                    )
            code = self._call("CompileProgram", program, len(words), texts)
            log = self._text("GetProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code:
                raise RefusedError(log or f"{self.prefix}CompileProgram returned {code}")
            symbols = [self._symbol(program, expression) for expression in expressions]
            return self._text(f"Get{self.code}", program), log, symbols
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _symbol(self, program: ctypes.c_void_p, expression: str) -> str:
        lowered = ctypes.c_char_p()
        code = self._call("GetLoweredName", program, expression.encode(), ctypes.byref(lowered))
        if code or not lowered.value:
            raise LibraryError(f"Kernel.compile: {self.prefix}GetLoweredName of {expression} returned {code}")
        return lowered.value.decode()

    def _text(self, function: str, program: ctypes.c_void_p) -> bytes:
        """Return the log or the result of a program."""
        size = ctypes.c_size_t()
        if self._call(f"{function}Size", program, ctypes.byref(size)):
            return b""
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(function, program, buffer)
        return buffer.raw[: size.value]


NVRTC: Final = Vendor("NVRTC", "nvrtc", "CUBIN", ".cu", "--gpu-architecture", _load_nvrtc)
HIPRTC: Final = Vendor("hiprtc", "hiprtc", "Code", ".hip", "--offload-arch", _load_hiprtc)
