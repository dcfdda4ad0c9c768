"""Compilers of kernels from source: NVRTC for NVIDIA GPUs, hiprtc for AMD GPUs, the C++ compiler for host and sim."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from .. import _core
from .._signatures import telling
from ..cache import find, key_of, store
from ..devices import Device
from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError, LibraryError, ModuleError
from .binary import Image, read
from .dependencies import Files, command_line, environment, file_mark, listed_by, processor, scanned
from .rtc import HIPRTC, NVRTC, RefusedError, Vendor

__all__ = ["VENDORS", "Program", "Target", "compiled", "include", "named_target", "program_of", "target_of"]

# Without contraction, results equal NumPy's, even on processors that can multiply and add in one instruction.
_HOST_OPTIONS: Final = ("-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC")
_GPU_OPTIONS: Final = ("--std=c++17",)
# {options with which the compiler writes no module, or writes it to another file: the reason}.
_WRONG_OPTIONS: Final = {
    re.compile(r"-(?:E|S|c|fsyntax-only|###|-help|-version)"): "by which no module is made",
    re.compile(r"-M.*"): "by which headers are listed, as the package does already",
    re.compile(r"-o(?!pt-info).*|--output.*"): "which names a place for the module: Kernel.save writes it to a file",
}
_STANDARD: Final = re.compile("--?std\\b")
_MOST_LOG: Final = 4000  # characters

#: The compilers of GPUs, by backend.
VENDORS: Final = {"cuda": NVRTC, "hip": HIPRTC}
_PROCESSORS: Final = {"cuda": re.compile(r"sm_\d+[af]?"), "hip": re.compile(r"gfx[0-9a-f]+(:\w+[+-])*")}


class Target(NamedTuple):
    """Name the processor for which a source is compiled."""

    backend: str
    processor: str  #: a GPU's processor in its compiler's words, such as "sm_90" or "gfx90a"; "" for other devices


@dataclass(frozen=True)
class Program:
    """A source with the inputs of its compilation."""

    name: str  #: the kernel's name
    source: str
    options: tuple[str, ...]
    expressions: tuple[str, ...] = ()  #: names of kernels that are instances of templates


class _Made(NamedTuple):
    """A module that a compiler made."""

    data: bytes
    log: str  #: the compiler's warnings
    symbols: dict[str, str]  #: {the expression of a kernel: its name in the module}

    def packed(self) -> bytes:
        words = json.dumps({"log": self.log, "symbols": self.symbols}).encode()
        body = len(words).to_bytes(8, "little") + words + self.data
        return key_of(body).encode() + body

    @classmethod
    def unpacked(cls, data: bytes) -> _Made | None:
        """Return the module from its packed form, or None if this form is damaged."""
        if len(data) < 72 or key_of(data[64:]).encode() != data[:64]:
            return None
        end = 72 + int.from_bytes(data[64:72], "little")
        return cls(data[end:], **json.loads(data[72:end]))


@telling
def include() -> str:
    """Return the folder of the headers that kernels in C include: `cc -I$(python -m offload_args.kernels)`.

        print(os.path.isfile(os.path.join(kernels.include(), "offload_args", "kernel.h")))  # True

    See also: Kernel, Module; docs/guide/kernels.md.
    """
    return os.path.join(os.path.dirname(_core.__file__), "include")


_CUDA_C: Final = re.compile(r"\b(__global__|__device__|threadIdx|blockIdx|blockDim|hipLaunchKernelGGL)\b")


def _usual_mistake(source: str, log: str) -> str:
    """Return advice if any compiler refuses a source for a mistake that first kernels have; otherwise ""."""
    if re.search(r"\bOA_(BLOCK_)?KERNEL\b", source) and "offload_args/kernel.h" not in source:
        return "The source has OA_KERNEL, and no #include <offload_args/kernel.h>, which declares it\n"
    # C++ compilers name the type in the same line, and NVRTC in the next.
    if re.search(r"operator ?\"?\[\]\"?[^\n]*(\n[^\n]*)?oa::(Out|InOut)<", log):
        return (
            "An output gives each thread its own elements, and takes no number as its index: write "
            "for (auto element : y.mine(oa::Linear1D(n), here)) *element = x[element.index()];\n"
        )
    return ""


def _advice(source: str, log: str) -> str:
    """Return advice if the CPU's compiler refuses a source for a usual reason; otherwise ""."""
    match = _CUDA_C.search(source)
    if (advice := _usual_mistake(source, log)) or match is None:
        return advice
    return (
        f"The source is CUDA C or HIP ({match[0]}), which the compiler of host and sim does not know: begin the kernel "
        "with OA_KERNEL of <offload_args/kernel.h>, which suits all devices, or compile it for a GPU, as "
        'device="cuda:0"\n'
    )


def _refusal(name: str, compiler: str, log: str) -> ModuleError:
    cut = "" if len(log) <= _MOST_LOG else f"\n... and {len(log) - _MOST_LOG} more characters"
    return ModuleError(f"Kernel.compile: {compiler} refuses {name}:\n{log[:_MOST_LOG].strip()}{cut}")


# -- the host's compiler -----------------------------------------------------------------------------------------------


def _host_compiler() -> list[str]:
    if words := os.environ.get("CXX", "").strip():
        try:
            return shlex.split(words)
        except ValueError as error:
            raise LibraryError(f"Kernel.compile: CXX={words} can't be read: {error}") from None
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise LibraryError("Kernel.compile: there is no C++ compiler (c++, g++, clang++); install one or set CXX")
    return [compiler]


def _run(command: Sequence[str], source: str = "") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    except OSError as error:
        raise LibraryError(f"Kernel.compile: {command[0]} can't be run: {error.strerror}; see CXX") from None


@cache
def _version(command: tuple[str, ...], *_: str) -> str:
    """Return a compiler's own description; the further arguments are the inputs on which it depends."""
    return _run([*command, "--version"]).stdout.decode(errors="replace")


def _by_host(program: Program, command: Sequence[str]) -> tuple[_Made, Files | None]:
    with tempfile.TemporaryDirectory(prefix="offload_args") as folder:
        library, rule = os.path.join(folder, "kernel.so"), os.path.join(folder, "kernel.d")
        options = (*_HOST_OPTIONS, f"-I{include()}", *program.options)
        # The source precedes the options, because the linker searches a library only for symbols of the files before
        # it.
        switches = [
            *_HOST_OPTIONS,
            f"-I{include()}",
            "-MD",
            "-MF",
            rule,
            "-x",
            "c++",
            "-",
            "-x",
            "none",
            *program.options,
        ]
        done = _run([*command, *switches, "-o", library], program.source)
        log = done.stderr.decode(errors="replace")
        if done.returncode or not os.path.exists(library):
            end = "it wrote no output" if not done.returncode else f"it ended with status {done.returncode}"
            raise _refusal(program.name, command[0], _advice(program.source, log) + (log.strip() or end))
        files = None
        if os.path.exists(rule):
            files = listed_by(command, options, program.source, Path(rule).read_text(errors="surrogateescape"))
        return _Made(Path(library).read_bytes(), log, {}), files


# -- all compilers ----------------------------------------------------------------------------------------------------


def target_of(device: Device) -> Target:
    """Return the target for which a source has to be compiled to run on a device."""
    info = device._info
    if info.backend == "cuda":
        return Target("cuda", f"sm_{info.compute_major}{info.compute_minor}")
    named = re.search(r"\((gfx\w+)[\w:+-]*\)$", info.model) if info.backend == "hip" else None
    return Target(info.backend if info.backend in VENDORS else "host", named[1] if named else "")


def named_target(name: str) -> Target:
    """Return a processor of GPUs by its name."""
    _check_text("target", name)
    for backend, pattern in _PROCESSORS.items():
        if pattern.fullmatch(name):
            return Target(backend, name)
    raise ArgumentError(
        f'Kernel.compile: target needs a processor of NVIDIA GPUs ("sm_90") or of AMD GPUs ("gfx90a"), got {name!r}'
    )


def _check_text(subject: str, text: object, errors: str = "strict") -> None:
    """Refuse options that can't be passed to compilers as text."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"Kernel.compile: {subject} needs a string, got {shown(text)}")
    try:
        text.encode(errors=errors)
        at, reason = text.find("\0"), "the end of a string in C"
    except UnicodeEncodeError as error:
        at, reason = error.start, "half of a character; decode it anew"
    if at >= 0:
        raise ArgumentError(f"Kernel.compile: {subject} has {text[at]!r} at index {at}, {reason}")


def program_of(source: str, name: str, options: Sequence[str]) -> Program:
    """Return the arguments of Kernel.compile. Raises ArgumentError for an argument that no compiler takes."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and re.fullmatch(r"[^\s{};]+\.\w{1,4}", source)):
        path = os.fspath(source)
        raise ArgumentError(
            f"Kernel.compile: source needs the text of a source, got the path {path!r}; pass "
            f"pathlib.Path({path!r}).read_text()"
        )
    _check_text("source", source)
    _check_text("name", name)
    if isinstance(options, str) or not isinstance(options, Sequence):
        raise ArgumentTypeError(f"Kernel.compile: options needs a list of strings, got {shown(options)}")
    for i, option in enumerate(options):
        _check_text(f"options[{i}]", option, "surrogateescape")  # names of files may have any bytes
        if reason := next((reason for pattern, reason in _WRONG_OPTIONS.items() if pattern.fullmatch(option)), ""):
            raise ArgumentError(f"Kernel.compile: options[{i}] is {option!r}, {reason}; leave it out")
    is_plain = re.fullmatch(r"\w*", name) is not None
    return Program(name, source, tuple(options), () if is_plain else (name,))


def _by_vendor(program: Program, options: Sequence[str], vendor: Vendor) -> _Made:
    try:
        data, log, symbols = vendor.compile(program.name, program.source, options, program.expressions)
    except RefusedError as refused:
        log = str(refused)
        raise _refusal(program.name, vendor.version(), _usual_mistake(program.source, log) + log) from None
    return _Made(data, log, dict(zip(program.expressions, symbols, strict=True)))


def _kept(key: str | None) -> _Made | None:
    data = find(key) if key is not None else None
    return _Made.unpacked(data) if data is not None else None


def _with_types(program: Program) -> Program:
    """Return the program with text that puts the kernel's types into the module, if kernel.h does not do so."""
    if program.expressions or "__global__" not in program.source:
        return program
    if not re.search(rf"\b{re.escape(program.name)}\s*\(", program.source):
        return program
    added = f"#include <offload_args/kernel_types.h>\nOA_KERNEL_TYPES({program.name}, {program.name})"
    return replace(program, source=f"{program.source}\n{added}\n")


def _alias(expression: str) -> str:
    """Return the name of an instance of a template in a shared object, such as scale_float for "scale<float>"."""
    return re.sub(r"\W+", "_", expression).strip("_")


def _with_instances(program: Program) -> Program:
    """Return a program that makes the instances of templates, for the host's compiler."""
    added = ""
    for expression in program.expressions:
        head, bracket, rest = expression.partition("<")
        added += f"OA_INSTANCE({_alias(expression)}, {head.strip()}_in{bracket}{rest})\n"
    return replace(program, source=f"{program.source}\n{added}") if added else program


def _from_vendor(program: Program, target: Target, vendor: Vendor) -> _Made:
    # With a processor, NVRTC writes a cubin, which a driver that is older than NVRTC accepts; such a driver would
    # refuse NVRTC's PTX. If HIP does not report a processor, hiprtc compiles for the current device.
    processor = [f"{vendor.architecture}={target.processor}"] if target.processor else []
    standard = () if any(map(_STANDARD.match, program.options)) else _GPU_OPTIONS
    options = (*processor, *standard, *program.options, f"-I{include()}")
    begun = time.clock_gettime_ns(time.CLOCK_REALTIME)
    files = scanned(program.source, options)
    first = key_of(vendor.version(), file_mark(vendor.path()), *environment(), program.source, *program.expressions)
    key = files.key(key_of(first, *options)) if files is not None else None
    compiled = _kept(key)
    if compiled is None:
        compiled = _by_vendor(program, options, vendor)
        if key is not None and files is not None and not files.changed_since(begun):
            store(key, compiled.packed())
    return compiled


def _from_host(program: Program) -> _Made:
    command = _host_compiler()
    identity = command_line(command)
    version = _version(tuple(command), identity, *environment())
    parts = (
        identity,
        version,
        processor(),
        *environment(),
        include(),
        program.source,
        *_HOST_OPTIONS,
        *program.options,
    )
    first = key_of(*parts)
    if (listed := find(first)) is not None:  # the names of the files that the compilation read
        try:
            files = Files(**json.loads(listed))
            if (result := _kept(files.key(first))) is not None:
                return result
        except (ValueError, TypeError):
            pass  # a damaged file
    begun = time.clock_gettime_ns(time.CLOCK_REALTIME)
    result, read_files = _by_host(program, command)
    if read_files is not None and not read_files.changed_since(begun) and (key := read_files.key(first)) is not None:
        store(key, result.packed())
        store(first, json.dumps(asdict(read_files)).encode())
    return result


def compiled(program: Program, target: Target) -> Image:
    """Return the module that a target's compiler makes from a source. If the cache has it, nothing is compiled.

    Raises ModuleError with the compiler's log, and LibraryError if there is no compiler.
    """
    vendor = VENDORS.get(target.backend)
    if vendor is None:
        result = _from_host(_with_instances(program))
        result = result._replace(symbols={name: _alias(name) for name in program.expressions})
    else:
        typed = _with_types(program)
        try:
            result = _from_vendor(typed, target, vendor)
        except ModuleError:  # if the name of a kernel is overloaded, it has no single type
            if typed == program:
                raise
            result = _from_vendor(program, target, vendor)
    return replace(read(program.name, result.data), log=result.log, symbols=result.symbols)
