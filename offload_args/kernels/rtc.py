"""Vendors' compilers in this process: NVRTC for NVIDIA GPUs, hiprtc for AMD GPUs. Their functions differ in names."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ..errors import LibraryError

__all__ = ["HIPRTC", "NVRTC", "RefusedError", "Vendor"]


class RefusedError(Exception):
    """The compiler's log of a source that does not compile."""


def _override(name: str) -> str:
    """Return the absolute path in OFFLOAD_ARGS_<NAME>; "" without one."""
    path = os.environ.get(f"OFFLOAD_ARGS_{name.upper()}", "")
    if path and not os.path.isabs(path):
        raise OSError(f"OFFLOAD_ARGS_{name.upper()} needs an absolute path, got {path!r}")
    return path


@cache
def _load_nvrtc() -> ctypes.CDLL:
    try:
        if path := _override("nvrtc"):
            # NVRTC opens this one by its name alone, and NVIDIA's wheels of 13.0 don't say where it is.
            for beside in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(str(beside))
            return ctypes.CDLL(path)
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        raise LibraryError(
            "Kernel.compile: NVRTC was not found; pip install 'offload-args[cuda13]', or cuda12 for an older driver "
            f"({type(error).__name__}: {error})"
        ) from None


def _hiprtc_places() -> Iterator[str]:
    """Yield paths and names of hiprtc: ROCm's folders, its packages for Python, and what the system looks up.

    Before ROCm 6, and in Debian, the runtime has it.
    """
    for library in ("libhiprtc", "libamdhip64"):
        names = [f"{library}.so{version}" for version in ("", ".7", ".6", ".5")]
        for root in (os.environ.get("ROCM_PATH", ""), "/opt/rocm"):
            yield from (os.path.join(root, "lib", name) for name in names if os.path.isabs(root))
        try:
            from rocm.bindings.util.paths import get_library_path

            yield os.fsdecode(get_library_path(library.removeprefix("lib")))
        except (ImportError, OSError, RuntimeError):
            pass  # hip-python is not installed
        yield from names


@cache
def _load_hiprtc() -> ctypes.CDLL:
    faults: list[str] = []
    try:
        given = _override("hiprtc")
    except OSError as error:
        raise LibraryError(f"Kernel.compile: {error}") from None
    for place in [given] if given else _hiprtc_places():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            if given or os.path.exists(place):  # it is there, and something that it needs is not
                faults.append(str(error))
            continue
        if hasattr(library, "hiprtcCreateProgram"):
            return library
        faults.append(f"{place} has no hiprtcCreateProgram")
    raise LibraryError(
        "Kernel.compile: hiprtc was not found (libhiprtc.so or libamdhip64.so, .7, .6 or .5, in ROCM_PATH, /opt/rocm, "
        f"packages of this Python, and where the system looks{''.join('; ' + fault for fault in faults[:2])}). Install "
        "ROCm; or pip install 'offload-args[rocm]', which finds ROCm's packages for Python; or set OFFLOAD_ARGS_HIPRTC "
        "to its path. Only Kernel.compile needs it: Module.load takes an HSACO that hipcc or clang has compiled"
    )


@dataclass(frozen=True)
class Vendor:
    """A vendor's compiler."""

    title: str
    prefix: str  #: of its functions
    code: str  #: of the functions that return the result
    suffix: str  #: of a source
    architecture: str  #: the option
    load: Callable[[], ctypes.CDLL]

    def _call(self, function: str, *arguments: object) -> int:
        return int(getattr(self.load(), self.prefix + function)(*arguments))

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        return f"{self.title} {major.value}.{minor.value}"

    def path(self) -> str:
        """Return the absolute path of the loaded compiler; its name if the system does not tell."""
        name = self.load()._name
        if os.path.isabs(name) or not os.path.exists("/proc/self/maps"):
            return name
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if name in line}
        return min(paths, default=name)

    def compile(self, name: str, source: str, options: Sequence[str]) -> bytes:
        """Return the module that a source makes. Raises RefusedError with the log, LibraryError without a compiler."""
        program = ctypes.c_void_p()
        given = [os.fsencode(option) for option in options]
        texts = (ctypes.c_char_p * len(given))(*given)
        file = f"{name}{self.suffix}".encode()
        code = self._call("CreateProgram", ctypes.byref(program), source.encode(), file, 0, None, None)
        if code:
            raise LibraryError(f"Kernel.compile: {self.prefix}CreateProgram of {name} returned {code}")
        try:
            if self._call("CompileProgram", program, len(given), texts):
                raise RefusedError(self._text("GetProgramLog", program).rstrip(b"\0").decode(errors="replace"))
            return self._text(f"Get{self.code}", program)
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

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
