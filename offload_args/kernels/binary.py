"""Facts about a module's kernels, which are read from the module's bytes without a GPU.

Every malformed input raises ModuleError. The readers copy no large parts, follow no pointer outside the bytes, and take
time in proportion to the number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from .. import _core
from ..errors import ModuleError
from . import cubin, fatbin, ptx, shared_object
from .elf import Elf
from .facts import KernelFacts, ParameterFacts
from .types import types_in

__all__ = ["Image", "read"]

Format = Literal["PTX", "cubin", "fatbin", "HSACO", "bundle of HSACOs", "shared object"]
_CUDA_MACHINE, _AMD_MACHINE = 190, 224
_BUNDLE: Final = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_BUNDLE: Final = b"CCOB"
_DYNAMIC_SYMBOLS: Final = 11


@dataclass(frozen=True)
class Image:
    """A module's bytes, and their metadata."""

    name: str  #: for messages
    data: bytes = field(repr=False)
    format: Format
    backend: str  #: the backend of the devices that load it; "host" for all devices whose calls run on the CPU
    target: str  #: the processor for which it was made, such as "sm_90"
    kernels: dict[str, KernelFacts]
    whole: bool  #: whether its kernels are known; they are not if it is compressed
    log: str = ""  #: the compiler's warnings, if Kernel.compile made it
    symbols: dict[str, str] = field(default_factory=dict)  #: {kernel: its other name in the module}


def _read_hsaco(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the targets and the kernels of an HSACO, or of a bundle of HSACOs."""
    kernels: dict[str, KernelFacts] = {}
    targets = []
    for start, nbytes, target, rows in _core.hsaco_read(name.encode("utf-8", "replace").decode(), data):
        targets.append(target or "an AMD GPU")
        types = types_in(name, Elf(name, data[start : start + nbytes]), (_DYNAMIC_SYMBOLS,))
        for kernel, shared_bytes, registers, most_threads, parameters in rows:
            places = tuple(ParameterFacts(*row) for row in parameters)
            facts = KernelFacts(kernel, places, shared_bytes, registers, most_threads, types.get(kernel))
            kernels.setdefault(kernel, facts)
    return ", ".join(dict.fromkeys(targets)), kernels


_READERS: Final[dict[Format, tuple[str, Callable[[str, bytes], tuple[str, dict[str, KernelFacts]]]]]] = {
    "PTX": ("cuda", ptx.read),
    "cubin": ("cuda", cubin.read),
    "fatbin": ("cuda", fatbin.read),
    "HSACO": ("hip", _read_hsaco),
    "bundle of HSACOs": ("hip", _read_hsaco),
    "shared object": ("host", shared_object.read),
}


def _format_of(name: str, data: bytes) -> Format:
    if data[:4] == b"\x7fELF":
        machine = int.from_bytes(data[18:20], "little")
        return "cubin" if machine == _CUDA_MACHINE else "HSACO" if machine == _AMD_MACHINE else "shared object"
    if data.startswith(fatbin.MAGIC):
        return "fatbin"
    if data.startswith(_BUNDLE):
        return "bundle of HSACOs"
    if data.startswith(_COMPRESSED_BUNDLE):
        raise ModuleError(f"{name}: the bundle is compressed; build it with --no-offload-compress")
    if b".version" in data[:65536]:
        return "PTX"
    raise ModuleError(
        f"{name}: needs PTX, a cubin, a fatbin, an HSACO or a shared object, got "
        f"{'bytes of another format' if data else 'no bytes'}"
    )


def read(name: str, data: bytes) -> Image:
    """Return the facts about a module's bytes.

    Raises ModuleError for bytes of another format, and for damaged bytes.
    """
    format_ = _format_of(name, data)
    backend, reader = _READERS[format_]
    target, kernels = reader(name, data)
    return Image(name, data, format_, backend, target, kernels, bool(kernels) or "compressed" not in target)
