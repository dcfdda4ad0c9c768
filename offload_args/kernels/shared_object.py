"""The kernels of a shared object for host and sim: functions oa_kernel_<name> with tables oa_parameters_<name>."""

from __future__ import annotations

import platform
import struct
from typing import Final

from ..errors import ModuleError
from .elf import Elf, Symbol
from .facts import KernelFacts, ParameterFacts
from .types import types_in

__all__ = ["read"]

_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
_DYNAMIC_SYMBOLS: Final = 11
_SHARED_OBJECT: Final = 3
_POINTER: Final = 0x80000000
_KERNEL, _PARAMETERS = "oa_kernel_", "oa_parameters_"


def _parameters(name: str, elf: Elf, kernel: str, symbol: Symbol | None) -> tuple[ParameterFacts, ...] | None:
    if symbol is None:
        return None
    table = elf.bytes_of(symbol)
    words = struct.unpack(f"<{len(table) // 4}I", table[: len(table) // 4 * 4])
    if not words or words[0] != len(words) - 1:
        raise ModuleError(f"{name}: kernel {kernel}: its table of parameters is not as kernel.h makes it")
    parameters: list[ParameterFacts] = []
    end = 0
    for word in words[1:]:
        nbytes = word & ~_POINTER
        if not 0 < nbytes <= 1 << 16:
            raise ModuleError(f"{name}: kernel {kernel} has a parameter of {nbytes} bytes")
        parameters.append(ParameterFacts(-1, nbytes, "pointer" if word & _POINTER else "value"))
        end += nbytes
    return tuple(parameters)


def read(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the processor and the kernels.

    Raises ModuleError if the bytes are not a complete shared object for this machine.
    """
    elf = Elf(name, data)
    machine = _MACHINES.get(elf.machine, f"machine {elf.machine}")
    if elf.type != _SHARED_OBJECT or machine != platform.machine():
        raise ModuleError(
            f"{name}: needs a shared object for {platform.machine()}, which this is not; compile it with cc -shared "
            "-fPIC"
        )
    symbols = {
        symbol.name: symbol
        for table in elf.sections
        if table.type == _DYNAMIC_SYMBOLS
        for symbol in elf.symbols(table)
        if symbol.section
    }
    types = types_in(name, elf, (_DYNAMIC_SYMBOLS,))
    kernels = {}
    for symbol in symbols:
        if symbol.startswith(_KERNEL):
            kernel = symbol.removeprefix(_KERNEL)
            kernels[kernel] = KernelFacts(
                kernel,
                _parameters(name, elf, kernel, symbols.get(_PARAMETERS + kernel)),
                types=types.get(kernel),
            )
    return machine, kernels
