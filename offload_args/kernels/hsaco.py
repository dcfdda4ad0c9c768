"""The kernels of an HSACO, by the metadata in its note (LLVM: "User Guide for AMDGPU Backend", code objects 3 to 6)."""

from __future__ import annotations

import struct
from typing import Any, Final

from ..errors import ModuleError
from .elf import Elf
from .facts import KernelFacts, ParameterFacts

__all__ = ["BUNDLE", "COMPRESSED", "read", "read_bundle"]

BUNDLE: Final = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED: Final = b"CCOB"
_MACHINE: Final = 224
_NOTE_SECTION: Final = 7
_METADATA: Final = 32  # the note's type
_NOTE: Final = struct.Struct("<III")
_POINTERS: Final = frozenset(("global_buffer", "dynamic_shared_pointer"))
_MOST_ENTRIES: Final = 4096


def _metadata(name: str, elf: Elf) -> dict[str, Any]:
    for section in elf.sections:
        if section.type != _NOTE_SECTION:
            continue
        contents, at = elf.contents(section), 0
        while at + _NOTE.size <= len(contents):
            owner_bytes, nbytes, kind = _NOTE.unpack_from(contents, at)
            owner = at + _NOTE.size
            start = owner + -(-owner_bytes // 4) * 4
            if start + nbytes > len(contents):
                raise ModuleError(f"{name}: the HSACO is damaged: a note is longer than its section")
            if kind == _METADATA and bytes(contents[owner : owner + 6]) == b"AMDGPU":
                return _unpacked(name, contents[start : start + nbytes])
            at = start + -(-nbytes // 4) * 4
    raise ModuleError(f"{name}: the HSACO has no metadata; compile it with code object version 3 or newer")


def _unpacked(name: str, raw: memoryview) -> dict[str, Any]:
    try:
        import msgpack
    except ImportError:
        raise ModuleError(f"{name}: reading HSACO needs msgpack: pip install 'offload-args[kernels]'") from None
    try:
        found = msgpack.unpackb(raw, raw=False, strict_map_key=False, unicode_errors="replace")
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ModuleError(f"{name}: the HSACO is damaged: its metadata can't be read: {error}") from None
    if not isinstance(found, dict):
        raise ModuleError(f"{name}: the HSACO is damaged: its metadata is not a map")
    return found


def _number(name: str, where: dict[str, Any], key: str, most: int = 1 << 31) -> int:
    value = where.get(key)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ModuleError(f"{name}: the HSACO is damaged: {key} needs a number up to {most}, got {value!r:.40}")
    return value


def _list(name: str, where: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = where.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ModuleError(f"{name}: the HSACO is damaged: {key} needs a list of maps")
    return value


def _kernel(name: str, metadata: dict[str, Any]) -> KernelFacts:
    kernel = metadata.get(".name")
    if not isinstance(kernel, str):
        raise ModuleError(f"{name}: the HSACO is damaged: a kernel has no name")
    segment = _number(name, metadata, ".kernarg_segment_size")
    parameters: list[ParameterFacts] = []
    end = 0
    for argument in _list(name, metadata, ".args"):
        kind = argument.get(".value_kind")
        if not isinstance(kind, str):
            raise ModuleError(f"{name}: the HSACO is damaged: an argument of kernel {kernel} has no kind")
        if kind.startswith("hidden_"):
            continue
        offset, nbytes = _number(name, argument, ".offset"), _number(name, argument, ".size")
        if offset < end or not nbytes or offset + nbytes > segment:
            raise ModuleError(f"{name}: the HSACO is damaged: the arguments of kernel {kernel} do not fit each other")
        end = offset + nbytes
        # Plain C compilers state a pointer as a value of 8 bytes.
        known = "pointer" if kind in _POINTERS else "" if nbytes == 8 else "value"
        parameters.append(ParameterFacts(offset, nbytes, known))  # type: ignore[arg-type]
    return KernelFacts(
        kernel,
        tuple(parameters),
        shared_bytes=_number(name, metadata, ".group_segment_fixed_size"),
        registers=_number(name, metadata, ".vgpr_count"),
        most_threads=_number(name, metadata, ".max_flat_workgroup_size"),
    )


def read(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the target ("gfx90a") and the kernels. Raises ModuleError for a file that is damaged."""
    elf = Elf(name, data)
    if elf.machine != _MACHINE:
        raise ModuleError(f"{name}: needs an HSACO, got an ELF file for machine {elf.machine}")
    metadata = _metadata(name, elf)
    target = str(metadata.get("amdhsa.target", "")).rpartition("--")[2] or "an AMD GPU"
    kernels = [_kernel(name, one) for one in _list(name, metadata, "amdhsa.kernels")]
    return target, {one.name: one for one in kernels}


def read_bundle(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the targets and the kernels of a bundle of several HSACOs."""
    if len(data) < len(BUNDLE) + 8:
        raise ModuleError(f"{name}: the bundle is cut short")
    (count,) = struct.unpack_from("<Q", data, len(BUNDLE))
    if count > _MOST_ENTRIES:
        raise ModuleError(f"{name}: the bundle is damaged: it says that it has {count} entries")
    at, targets, left = len(BUNDLE) + 8, [], len(data)
    kernels: dict[str, KernelFacts] = {}
    for _ in range(count):
        if at + 24 > len(data):
            raise ModuleError(f"{name}: the bundle is cut short")
        offset, nbytes, length = struct.unpack_from("<QQQ", data, at)
        left -= nbytes
        if at + 24 + length > len(data) or offset + nbytes > len(data) or left < 0:
            raise ModuleError(f"{name}: the bundle is damaged: an entry is longer than it")
        triple = data[at + 24 : at + 24 + length]
        at += 24 + length
        if b"amdgcn" in triple and nbytes:
            target, found = read(name, data[offset : offset + nbytes])
            targets.append(target)
            kernels = {**found, **kernels}
    if not targets:
        raise ModuleError(f"{name}: the bundle has no code for AMD GPUs")
    return ", ".join(dict.fromkeys(targets)), kernels
