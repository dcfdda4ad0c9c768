"""The kernels of a cubin: an ELF file whose .nv.info.<kernel> sections are lists of attributes.

Each attribute has a format, a number and a value. In format 4, the value is a 16-bit size and as many bytes. In the
other formats, the value has 16 bits, which may have no meaning. The numbers below and their layouts were found by
comparing cubins of nvcc 12 and 13 with their sources.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ..errors import ModuleError
from .elf import Elf
from .facts import KernelFacts, ParameterFacts
from .types import types_in

__all__ = ["read"]

_MACHINE: Final = 190
_SYMBOLS: Final = 2  # a section's type
_RELOCATABLE: Final = 1  # an ELF file's type, as written by nvcc -rdc=true
_SIZED: Final = 4
_PARAMETER, _PARAMETER_2, _PARAMETER_BYTES, _MOST_THREADS, _REGISTERS = 0x17, 0x45, 0x19, 0x05, 0x2F
_RESERVED_BYTES: Final = 1024  # shared memory that the driver reserves from sm_90 on; sizes in files include it
_FUNCTION, _ENTRY = 2, 0x10  # in st_info, the type of functions; in st_other, the bit that marks a kernel
_ATTRIBUTE: Final = struct.Struct("<BBH")


def _attributes(name: str, section: str, contents: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (number, value, bytes) of each attribute."""
    at = 0
    while at < len(contents):
        if at + _ATTRIBUTE.size > len(contents):
            raise ModuleError(f"{name}: the cubin is damaged: {section} ends within an attribute")
        form, number, value = _ATTRIBUTE.unpack_from(contents, at)
        at += _ATTRIBUTE.size
        end = at + value if form == _SIZED else at
        if end > len(contents):
            raise ModuleError(f"{name}: the cubin is damaged: an attribute extends past the end of {section}")
        yield number, value, contents[at:end]
        at = end


def _parameter(number: int, raw: memoryview) -> tuple[int, ParameterFacts]:
    """Return a parameter's place in the order, and its facts."""
    if number == _PARAMETER:
        _, ordinal, offset, flags = struct.unpack_from("<IHHI", raw)
        nbytes, hint = flags >> 18, flags >> 8 & 15
    else:
        _, ordinal, offset, nbytes, flags = struct.unpack_from("<IHHHH", raw)
        hint = flags >> 8 & 15
    # Compilers before CUDA 13 do not mark pointers, so a value of 8 bytes may be a pointer.
    if nbytes != 8:
        return ordinal, ParameterFacts(offset, nbytes, "value")
    return ordinal, ParameterFacts(offset, nbytes, "pointer" if hint else "")


def _kernel(name: str, kernel: str, section: str, contents: memoryview) -> KernelFacts:
    facts: dict[int, ParameterFacts] = {}
    most_threads = total = None
    for number, value, raw in _attributes(name, section, contents):
        if number in (_PARAMETER, _PARAMETER_2) and len(raw) >= 12:
            ordinal, parameter = _parameter(number, raw)
            facts[ordinal] = parameter
        elif number == _PARAMETER_BYTES:
            total = value
        elif number == _MOST_THREADS and len(raw) >= 12:
            x, y, z = struct.unpack_from("<III", raw)
            most_threads = x * y * z
    parameters = tuple(facts[ordinal] for ordinal in sorted(facts))
    ends = [0, *(parameter.offset + parameter.nbytes for parameter in parameters)]
    apart = all(
        parameter.nbytes > 0 and end <= parameter.offset for parameter, end in zip(parameters, ends, strict=False)
    )
    if sorted(facts) != list(range(len(facts))) or not apart or (total is not None and ends[-1] > total):
        raise ModuleError(f"{name}: the cubin is damaged: the parameters of kernel {kernel} do not fit each other")
    return KernelFacts(kernel, parameters, most_threads=most_threads)


def _registers(name: str, elf: Elf) -> dict[str, int]:
    """Return {kernel: the registers of a thread}."""
    section, table = elf.named(".nv.info"), elf.named(".symtab")
    if section is None or table is None:
        return {}
    names = [symbol.name for symbol in elf.symbols(table)]
    registers = {}
    for number, _, raw in _attributes(name, ".nv.info", elf.contents(section)):
        if number == _REGISTERS and len(raw) >= 8:
            symbol, count = struct.unpack_from("<II", raw)
            if symbol < len(names):
                registers[names[symbol]] = count
    return registers


def _device_functions(elf: Elf) -> set[str]:
    """Return the functions that can't be launched because kernels call them; `nvcc -G` does not inline them."""
    table = elf.named(".symtab")
    symbols = elf.symbols(table) if table is not None else ()
    return {symbol.name for symbol in symbols if symbol.info & 15 == _FUNCTION and not symbol.other & _ENTRY}


def read(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the target ("sm_90") and the kernels. Raises ModuleError for a file that is damaged."""
    elf = Elf(name, data)
    if elf.machine != _MACHINE:
        raise ModuleError(f"{name}: needs a cubin, got an ELF file for machine {elf.machine}")
    target = elf.flags >> 8 & 0xFF if elf.abi_version >= 8 else elf.flags & 0xFF
    registers = _registers(name, elf)
    sizes = {section.name: section.nbytes for section in elf.sections}
    reserved = _RESERVED_BYTES if ".nv.shared.reserved.0" in sizes else 0
    kernels: dict[str, KernelFacts] = {}
    others = _device_functions(elf)
    types = types_in(name, elf, (_SYMBOLS,))
    left = len(data)  # overlapping sections may have more bytes than the file; such a file is refused
    for section in elf.sections:
        kernel = section.name.removeprefix(".nv.info.")
        if kernel == section.name or f".text.{kernel}" not in sizes or kernel in others:
            continue
        left -= section.nbytes
        if left < 0:
            raise ModuleError(f"{name}: the cubin is damaged: its sections overlap")
        facts = _kernel(name, kernel, section.name, elf.contents(section))
        kernels[kernel] = KernelFacts(
            kernel,
            facts.parameters,
            shared_bytes=max(0, sizes.get(f".nv.shared.{kernel}", 0) - reserved),
            registers=registers.get(kernel),
            most_threads=facts.most_threads,
            types=types.get(kernel),
        )
    return f"sm_{target}{' (not linked)' if elf.type == _RELOCATABLE else ''}", kernels
