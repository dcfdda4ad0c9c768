"""Compilers of kernels from source: NVRTC for NVIDIA GPUs, the C++ compiler for host and sim."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from .. import _core
from ..devices import Device
from ..errors import LibraryError, ModuleError
from .binary import Image, read
from .cache import find, key_of, store

__all__ = ["compiled", "include"]

# Without contraction, results are those of NumPy, also on processors that multiply and add in one step.
_HOST_OPTIONS: Final = ("-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC")
_GPU_OPTIONS: Final = ("--std=c++17",)
_MOST_LOG: Final = 4000  # characters


def include() -> str:
    """Return the folder of the headers that kernels in C include: `cc -I$(python -m offload_args.kernels)`."""
    return os.path.join(os.path.dirname(_core.__file__), "include")


@cache
def _headers() -> bytes:
    """Return the text of all that kernels may include of this package."""
    return Path(include(), "offload_args", "kernel.h").read_bytes()


def _refusal(name: str, compiler: str, log: str) -> ModuleError:
    cut = "" if len(log) <= _MOST_LOG else f"\n... and {len(log) - _MOST_LOG} more characters"
    return ModuleError(f"Kernel.compile: {compiler} refuses {name}:\n{log[:_MOST_LOG].strip()}{cut}")


# -- the host's compiler -----------------------------------------------------------------------------------------------


def _host_compiler() -> list[str]:
    if given := os.environ.get("CXX"):
        return shlex.split(given)
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        raise LibraryError("Kernel.compile: there is no C++ compiler (c++, g++, clang++); install one or set CXX")
    return [found]


@cache
def _version(*command: str) -> str:
    """Return what a compiler says of itself."""
    try:
        return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise LibraryError(f"Kernel.compile: {shlex.join(command)} can't be run: {error}") from None


def _by_host(name: str, source: str, options: Sequence[str], command: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="offload_args") as folder:
        made = os.path.join(folder, "kernel.so")
        given = [*command, *_HOST_OPTIONS, f"-I{include()}", *options, "-x", "c++", "-", "-o", made]
        done = subprocess.run(given, input=source.encode(), capture_output=True, check=False)
        if done.returncode:
            raise _refusal(name, command[0], done.stderr.decode(errors="replace"))
        return Path(made).read_bytes()


# -- NVRTC -------------------------------------------------------------------------------------------------------------


@cache
def _nvrtc() -> ctypes.CDLL:
    """Return NVRTC: that of OFFLOAD_ARGS_NVRTC, an absolute path, else one that cuda-pathfinder finds."""
    path = os.environ.get("OFFLOAD_ARGS_NVRTC", "")
    try:
        if path:
            if not os.path.isabs(path):
                raise OSError(f"OFFLOAD_ARGS_NVRTC needs an absolute path, got {path!r}")
            for beside in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(
                    str(beside)
                )  # NVRTC opens it by its name alone, and NVIDIA's wheels of 13.0 don't say where
            return ctypes.CDLL(path)
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        raise LibraryError(
            "Kernel.compile: NVRTC was not found; pip install 'offload-args[cuda13]', or cuda12 for an older driver "
            f"({type(error).__name__}: {error})"
        ) from None


@cache
def _nvrtc_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"NVRTC {major.value}.{minor.value}"


def _text(function: str, program: ctypes.c_void_p) -> bytes:
    """Return the log or the result of a program."""
    size = ctypes.c_size_t()
    library = _nvrtc()
    if getattr(library, f"{function}Size")(program, ctypes.byref(size)):
        return b""
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    getattr(library, function)(program, buffer)
    return buffer.raw[: size.value]


def _by_nvrtc(name: str, source: str, options: Sequence[str]) -> bytes:
    library, program = _nvrtc(), ctypes.c_void_p()
    given = [option.encode() for option in (*_GPU_OPTIONS, f"-I{include()}", *options)]
    texts = (ctypes.c_char_p * len(given))(*given)
    code = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None)
    if code:
        raise LibraryError(f"Kernel.compile: nvrtcCreateProgram of {name} returned {code}")
    try:
        if library.nvrtcCompileProgram(program, len(given), texts):
            log = _text("nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace")
            raise _refusal(name, _nvrtc_version(), log)
        return _text("nvrtcGetCUBIN", program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


# -- either ------------------------------------------------------------------------------------------------------------


def compiled(name: str, source: str, options: Sequence[str], device: Device) -> Image:
    """Return the module that a device's compiler makes of a source, from the cache if it is there.

    Raises ModuleError with the compiler's log, LibraryError if there is no compiler.
    """
    if device.is_gpu:  # a cubin: drivers that are older than NVRTC take it, and would refuse its PTX
        options = (f"--gpu-architecture=sm_{device._info.compute_major}{device._info.compute_minor}", *options)
        key = key_of(_nvrtc_version(), source, _headers(), *options)
    else:
        command = _host_compiler()
        key = key_of(shlex.join(command), _version(*command), source, _headers(), *_HOST_OPTIONS, *options)
    kept = find(key)
    if kept is not None:
        with contextlib.suppress(ModuleError):  # a damaged file
            return read(name, kept)
    made = _by_nvrtc(name, source, options) if device.is_gpu else _by_host(name, source, options, command)
    store(key, made)
    return read(name, made)
