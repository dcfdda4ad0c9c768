"""Compilers of kernels from source: NVRTC for NVIDIA GPUs, hiprtc for AMD GPUs, the C++ compiler for host and sim."""

from __future__ import annotations

import contextlib
import os
import re
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
from .rtc import HIPRTC, NVRTC, RefusedError, Vendor

__all__ = ["VENDORS", "compiled", "include", "processor_of"]

# Without contraction, results are those of NumPy, also on processors that multiply and add in one step.
_HOST_OPTIONS: Final = ("-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC")
_GPU_OPTIONS: Final = ("--std=c++17",)
_MOST_LOG: Final = 4000  # characters

#: The compilers of GPUs, by backend.
VENDORS: Final = {"cuda": NVRTC, "hip": HIPRTC}


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


# -- all ---------------------------------------------------------------------------------------------------------------


def processor_of(device: Device) -> str:
    """Return the processor of a GPU as its compiler has it: "sm_90", "gfx90a"; "" of other devices."""
    info = device._info
    if info.backend == "cuda":
        return f"sm_{info.compute_major}{info.compute_minor}"
    named = re.search(r"\((gfx\w+)[\w:+-]*\)$", info.model) if info.backend == "hip" else None
    return named[1] if named else ""


def _by_vendor(name: str, source: str, options: Sequence[str], vendor: Vendor) -> bytes:
    try:
        return vendor.compile(name, source, options)
    except RefusedError as refused:
        raise _refusal(name, vendor.version(), str(refused)) from None


def compiled(name: str, source: str, options: Sequence[str], device: Device) -> Image:
    """Return the module that a device's compiler makes of a source, from the cache if it is there.

    Raises ModuleError with the compiler's log, LibraryError if there is no compiler.
    """
    vendor = VENDORS.get(device._info.backend)
    if vendor is not None:  # a cubin: drivers that are older than NVRTC take it, and would refuse its PTX
        processor = processor_of(device)  # "" if HIP does not tell: then hiprtc asks it for the current device's
        options = (*([f"{vendor.architecture}={processor}"] if processor else []), *_GPU_OPTIONS, *options)
        key = key_of(vendor.version(), str(device._info.driver_version), source, _headers(), *options)
        options = (*options, f"-I{include()}")
    else:
        command = _host_compiler()
        key = key_of(shlex.join(command), _version(*command), source, _headers(), *_HOST_OPTIONS, *options)
    kept = find(key)
    if kept is not None:
        with contextlib.suppress(ModuleError):  # a damaged file
            return read(name, kept)
    made = _by_vendor(name, source, options, vendor) if vendor else _by_host(name, source, options, command)
    store(key, made)
    return read(name, made)
