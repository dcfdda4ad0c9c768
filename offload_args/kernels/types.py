"""The types of a kernel's parameters in its source; kernel_types.h puts them into the module."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import _core
from ..errors import ModuleError
from .elf import Elf

__all__ = ["SYMBOL", "ParameterType", "types_in", "types_of"]

SYMBOL: Final = "oa_types_"  #: the symbol of a table begins with this prefix, which the kernel's name follows

# The numbers of kernel_types.h.
_OTHER, _BOOL, _CHARACTER, _SIGNED, _UNSIGNED, _FLOATING, _ENUMERATION = range(7)
_VALUE, _CONST_POINTER, _POINTER, _IN, _OUT, _IN_OUT, _ATOMIC = range(7)

_SPELLED: Final = ("{}", "const {} *", "{} *", "oa::In<{}>", "oa::Out<{}>", "oa::InOut<{}>", "oa::Atomic<{}>")
_DECLARED: Final = ("{}", "In[{}]", "InOut[{}]", "In[{}]", "Out[{}]", "InOut[{}]", "InOut[{}]")
_KINDS: Final = {_CHARACTER: "int", _SIGNED: "int", _UNSIGNED: "uint", _FLOATING: "float"}
_NUMBERS: Final = {
    (_BOOL, 1): "bool", (_CHARACTER, 1): "char",
    (_SIGNED, 1): "signed char", (_SIGNED, 2): "short", (_SIGNED, 4): "int", (_SIGNED, 8): "long long",
    (_UNSIGNED, 1): "unsigned char", (_UNSIGNED, 2): "unsigned short", (_UNSIGNED, 4): "unsigned",
    (_UNSIGNED, 8): "unsigned long long", (_FLOATING, 4): "float", (_FLOATING, 8): "double",
}  # fmt: skip
# {access of a declared parameter: the ways in which the source may pass it}.
_PASSED: Final = {
    0: (_VALUE,),
    _core.OA_READ: (_CONST_POINTER, _IN),
    _core.OA_OVERWRITE: (_POINTER, _OUT),
    _core.OA_READ_WRITE: (_POINTER, _OUT, _IN_OUT, _ATOMIC),
}
# {kind of a dtype: the kinds of types in a source that may stand for it}. In a source, floating-point numbers of 16
# bits or fewer are structs, or integers with the same bits.
_STANDS: Final = {
    "b": (_BOOL, _CHARACTER, _SIGNED, _UNSIGNED),
    "i": (_SIGNED, _CHARACTER, _ENUMERATION),
    "u": (_UNSIGNED, _CHARACTER, _ENUMERATION),
    "f": (_FLOATING,),
    "c": (_OTHER,),
}
_LESS_THAN_FLOAT: Final = (_OTHER, _UNSIGNED, _FLOATING)
_MOST_WORDS: Final = _core.OA_MOST_PARAMETERS + 1


@dataclass(frozen=True)
class ParameterType:
    """The type of one parameter in the source."""

    word: int

    @property
    def passed(self) -> int:
        return self.word >> 20

    @property
    def number(self) -> int:
        return self.word >> 16 & 15

    @property
    def nbytes(self) -> int:
        """The bytes of the value or of an element; 0 if unknown."""
        return self.word & 0xFFFF

    @property
    def is_read_only(self) -> bool:
        """Whether the parameter is an array that the kernel only reads."""
        return self.passed in (_CONST_POINTER, _IN)

    @property
    def declaration(self) -> str:
        """The parameter's type in a signature, such as "InOut[np.float32]"; "" if no dtype of numbers stands for it."""
        if (self.number, self.nbytes) not in _NUMBERS:
            return ""
        dtype = "np.bool_" if self.number == _BOOL else f"np.{_KINDS[self.number]}{8 * self.nbytes}"
        return _DECLARED[self.passed].format(dtype)

    def suits(self, access: int, dtype: np.dtype[Any] | None) -> bool:
        """Return whether a signature may declare the parameter with this access and dtype; None is any dtype."""
        if self.passed not in _PASSED[access]:
            return False
        if dtype is None or (self.number == _OTHER and self.nbytes == 0):
            return True
        is_small = dtype.names is None and dtype.kind in "fV" and dtype.itemsize < 4
        if access and self.number == _OTHER and dtype.kind != "c":  # a struct of one or more elements of the dtype
            return self.nbytes % dtype.itemsize == 0 and (is_small or self.nbytes >= 4)
        stands = _LESS_THAN_FLOAT if is_small else _STANDS.get(dtype.kind, (_OTHER,))
        return self.number in stands and self.nbytes == dtype.itemsize

    def __str__(self) -> str:
        if (self.number, self.nbytes) in _NUMBERS:
            element = _NUMBERS[self.number, self.nbytes]
        elif self.nbytes == 0:
            element = "void"
        else:
            element = f"{'enum' if self.number == _ENUMERATION else 'struct'} of {self.nbytes} bytes"
        return _SPELLED[self.passed].format(element)


def types_of(name: str, kernel: str, raw: bytes | memoryview) -> tuple[ParameterType, ...]:
    """Return the types that a table states. Raises ModuleError for a damaged table."""
    count = len(raw) // 4
    words = struct.unpack(f"<{count}I", raw[: 4 * count]) if 0 < count <= _MOST_WORDS else (0,)
    if words[0] != count - 1 or any(word >> 20 > _ATOMIC for word in words[1:]):
        raise ModuleError(f"{name}: kernel {kernel}: its table of types is not as kernel_types.h makes it")
    return tuple(map(ParameterType, words[1:]))


def types_in(name: str, elf: Elf, tables: Iterable[int]) -> dict[str, tuple[ParameterType, ...]]:
    """Return {kernel: types of its parameters}, from an ELF file. `tables` has the types of its sections of symbols."""
    types = {}
    for section in elf.sections:
        if section.type not in tables:
            continue
        for symbol in elf.symbols(section):
            if symbol.section and symbol.name.startswith(SYMBOL):
                kernel = symbol.name.removeprefix(SYMBOL)
                types[kernel] = types_of(name, kernel, elf.bytes_of(symbol))
    return types
