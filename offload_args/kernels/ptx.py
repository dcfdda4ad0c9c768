"""The kernels of PTX text, by their .entry directives (PTX ISA: "Kernel and Function Directives: .entry")."""

from __future__ import annotations

import re
from typing import Final

from ..errors import ModuleError
from .facts import KernelFacts, ParameterFacts
from .types import ParameterType, types_of

__all__ = ["read"]

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_VERSION: Final = re.compile(r"^\s*\.version\s+\d+\.\d+", re.MULTILINE)
_TARGET: Final = re.compile(r"^\s*\.target\s+([\w.]+)", re.MULTILINE)
_ENTRY: Final = re.compile(r"\.entry\s+([\w$%]+)\s*")
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d{1,4})\s+)?\.(?P<type>[a-z]+)(?P<bits>\d{1,3})\s+"
    r"(?P<ptr>\.ptr\b(?:\s*\.(?:global|const|local|shared))?\s*(?:\.align\s+\d{1,4}\s+)?)?"
    r"(?P<name>[\w$%]+)\s*(?:\[\s*(?P<count>\d{1,6})\s*\])?\s*"
)
_THREADS: Final = re.compile(r"\.(?:maxntid|reqntid)\s+(\d{1,5})(?:\s*,\s*(\d{1,5}))?(?:\s*,\s*(\d{1,5}))?")
_TYPES: Final = re.compile(
    r"\.b8\s+oa_types_([\w$%]+)\s*\[\s*(\d{1,6})\s*\]\s*=\s*\{(\s*\d{1,3}(?:\s*,\s*\d{1,3})*)\s*\}"
)
_MOST_BYTES: Final = 1 << 16


def _parameters(module: str, kernel: str, text: str) -> tuple[ParameterFacts, ...]:
    parameters: list[ParameterFacts] = []
    end = 0
    for part in filter(None, map(str.strip, text.split(","))):
        match = _PARAMETER.fullmatch(part)
        if match is None:
            raise ModuleError(f"{module}: kernel {kernel} has a parameter that can't be read: {part[:60]!r}")
        itemsize, count = int(match["bits"]) // 8, int(match["count"] or 1)
        nbytes = itemsize * count
        alignment = max(int(match["align"] or itemsize), 1)
        offset = -(-end // alignment) * alignment
        end = offset + nbytes
        if not 0 < nbytes <= _MOST_BYTES or end > _MOST_BYTES:
            raise ModuleError(f"{module}: kernel {kernel} has a parameter of {nbytes} bytes")
        # The compiler may not have marked a pointer. So an unmarked 64-bit integer, or a class that holds one, may be a
        # pointer.
        is_open = nbytes == 8 and alignment == 8 and match["type"] in "usb"
        parameters.append(ParameterFacts(offset, nbytes, "pointer" if match["ptr"] else "" if is_open else "value"))
    return tuple(parameters)


def _types(name: str, text: str) -> dict[str, tuple[ParameterType, ...]]:
    """Return {kernel: types of its parameters}, from the variables of kernel_types.h.

    PTX omits zeros at the ends of variables.
    """
    types = {}
    for match in _TYPES.finditer(text):
        kernel, count = match[1], int(match[2])
        if count > _MOST_BYTES:
            raise ModuleError(f"{name}: kernel {kernel}: its table of types has {count} bytes")
        raw = bytes(int(number) & 255 for number in match[3].split(","))
        types[kernel] = types_of(name, kernel, raw[:count].ljust(count, b"\0"))
    return types


def read(name: str, data: bytes) -> tuple[str, dict[str, KernelFacts]]:
    """Return the target ("sm_90") and the kernels. Raises ModuleError for text that is not PTX, or that is cut off."""
    try:
        text = data.rstrip(b"\0").decode("ascii", "strict")
    except UnicodeDecodeError as error:
        raise ModuleError(f"{name}: PTX is ASCII text; byte {error.start} is not") from None
    if "\0" in text:
        raise ModuleError(f"{name}: PTX is text; there is a zero byte in it")
    text = _COMMENT.sub(" ", text)
    if not _VERSION.search(text) or (target := _TARGET.search(text)) is None:
        raise ModuleError(f"{name}: PTX begins with .version and .target; this text lacks one of them")
    kernels: dict[str, KernelFacts] = {}
    types = _types(name, text)
    for entry in _ENTRY.finditer(text):
        kernel, start, end = entry[1], entry.end(), entry.end()
        if text[start : start + 1] == "(":
            if (end := text.find(")", start)) < 0:
                raise ModuleError(f"{name}: kernel {kernel}: its list of parameters does not end; is the file whole?")
            start, end = start + 1, end + 1
        body = text.find("{", end)
        if body < 0 and text.find(";", end) < 0:
            raise ModuleError(f"{name}: kernel {kernel} has no body; is the file whole?")
        threads = _THREADS.search(text, end, max(body, end))
        most = int(threads[1]) * int(threads[2] or 1) * int(threads[3] or 1) if threads else None
        parameters = _parameters(name, kernel, text[start : end - 1] if end > start else "")
        kernels[kernel] = KernelFacts(kernel, parameters, most_threads=most, types=types.get(kernel))
    return target[1], kernels
