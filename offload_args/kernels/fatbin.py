"""The kernels of a fatbin: cubins and PTX for several GPUs, one after the other."""

from __future__ import annotations

import struct
from typing import Final

from ..errors import ModuleError
from . import cubin, ptx
from .facts import KernelFacts

__all__ = ["MAGIC", "read"]

MAGIC: Final = b"\x50\xed\x55\xba"
_HEADER: Final = struct.Struct("<4sHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIHHI")  # kind, version, header, payload, compressed, options, minor, major, target
_ENTRY_BYTES: Final = 64
_PTX, _ELF = 1, 2
_READERS: Final = {_PTX: ptx.read, _ELF: cubin.read}
_MOST_ENTRIES: Final = 4096


def read(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the targets and the kernels; for a compressed entry, only the target.

    Raises ModuleError for a file that is damaged.
    """
    if len(data) < _HEADER.size:
        raise ModuleError(f"{name}: the fatbin is cut short")
    _, _, at, rest = _HEADER.unpack_from(data)
    end = at + rest
    if at < _HEADER.size or end > len(data):
        raise ModuleError(f"{name}: the fatbin is cut short: it has {len(data)} bytes, its header says {end}")
    targets: list[str] = []
    kernels: dict[str, KernelFacts] = {}
    while at < end:
        if at + _ENTRY_BYTES > end or len(targets) == _MOST_ENTRIES:
            raise ModuleError(f"{name}: the fatbin is damaged: its entries do not end where it does")
        kind, _, header, payload, compressed, _, _, _, target = _ENTRY.unpack_from(data, at)
        start = at + header
        if header < _ENTRY_BYTES or start + payload > end:
            raise ModuleError(f"{name}: the fatbin is damaged: an entry extends past the end of the file")
        targets.append(f"{'compute' if kind == _PTX else 'sm'}_{target}{' (compressed)' if compressed else ''}")
        if kind in _READERS and not compressed:
            for kernel in _READERS[kind](name, data[start : start + payload])[1].values():
                kernels.setdefault(kernel.name, kernel)
        at = start + payload
    if not targets:
        raise ModuleError(f"{name}: the fatbin is empty")
    return ", ".join(dict.fromkeys(targets)), kernels
