"""Facts that a module's bytes state about its kernels, read without a GPU.

Every malformed input raises ModuleError. The readers copy nothing large, follow no pointer outside the bytes, and take
time in proportion to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from ..errors import ModuleError
from . import ptx, shared_object
from .facts import KernelFacts

__all__ = ["Image", "read"]

Format = Literal["PTX", "shared object"]


@dataclass(frozen=True)
class Image:
    """A module's bytes, and what they say."""

    name: str  #: for messages
    data: bytes = field(repr=False)
    format: Format
    backend: str  #: of the devices that load it; "host": those whose calls run on the CPU
    target: str  #: the processor that it was made for: "sm_90"
    kernels: dict[str, KernelFacts]


_READERS: Final[dict[Format, tuple[str, Callable[[str, bytes], tuple[str, dict[str, KernelFacts]]]]]] = {
    "PTX": ("cuda", ptx.read),
    "shared object": ("host", shared_object.read),
}


def _format_of(name: str, data: bytes) -> Format:
    if data[:4] == b"\x7fELF":
        return "shared object"
    if b".version" in data[:65536]:
        return "PTX"
    raise ModuleError(
        f"{name}: needs PTX or a shared object, got {'no bytes' if not data else 'bytes of another format'}"
    )


def read(name: str, data: bytes) -> Image:
    """Return the facts about a module's bytes. Raises ModuleError for bytes that are none, or damaged."""
    found = _format_of(name, data)
    backend, reader = _READERS[found]
    target, kernels = reader(name, data)
    return Image(name, data, found, backend, target, kernels)
