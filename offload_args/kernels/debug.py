"""Kernels that check each access: the source is compiled with bounds, and each launch has a record of its own.

A kernel's arrays then have bounds (OA_DEBUG of kernel.h). The first access beyond them is written to the record, and
reads or writes other memory. The record is one more argument of the kernel; `launch` reads it when the kernel is done.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn, Protocol, final

import numpy as np

from .. import _core
from ..arguments import InOut
from ..errors import ArgumentError, ExtentError
from ..pointers import DevicePtr
from ..regions import offload_args
from .signature import Formal

__all__ = ["OPTION", "DebugLauncher", "with_record"]

OPTION: Final = "-DOA_DEBUG=1"

# As oa::Record of kernel.h. The sizes of the arguments follow it.
_RECORD: Final = np.dtype(
    [
        ("found", np.uint32),
        ("argument", np.int32),
        ("in_slice", np.int32),
        ("block", np.uint32, 3),
        ("thread", np.uint32, 3),
        ("unused", np.uint32),
        ("index", np.int64),
        ("size", np.int64),
        ("unused_too", np.int64),
        ("zeros_and_sink", np.uint8, 64),
    ]
)


def with_record(source: str, name: str, count: int) -> str:
    """Return a source with the kernel that makes arguments with bounds, for compilers of GPUs."""
    if not re.search(rf"\bOA_(BLOCK_)?KERNEL\(\s*{re.escape(name)}\s*,", source):
        raise ArgumentError(
            f"Kernel.compile: debug=True needs a kernel that OA_KERNEL({name}, ...) or OA_BLOCK_KERNEL({name}, ...) "
            "begins: only its arrays know their bounds"
        )
    arguments = [f"oa::Argument<decltype(&{name}_in), {i}>" for i in range(count)]
    parameters = "".join(f"{argument}::type a{i}, " for i, argument in enumerate(arguments))
    values = "".join(f", {argument}::given(a{i}, {i}, record)" for i, argument in enumerate(arguments))
    return f"{source}\nOA_DEBUG_KERNEL({name}, ({parameters}oa::Record *record), (oa::Here{{record}}{values}))\n"


def _span(pointer: DevicePtr[Any]) -> int:
    """Return the number of elements from a pointer's first to its last, with those between its rows."""
    if not pointer.size:
        return 0
    steps = zip(pointer.shape, pointer.strides, strict=True)
    return 1 + sum((n - 1) * abs(step) for n, step in steps) // pointer.dtype.itemsize


class Checked(Protocol):
    """A kernel whose launches have a record."""

    @property
    def name(self) -> str: ...
    @property
    def _own(self) -> tuple[Formal, ...]: ...
    def _misfit(self, arguments: tuple[object, ...]) -> NoReturn: ...


@final
class DebugLauncher:
    """Launch a kernel that checks each access with a grid and block: call it with the kernel's arguments."""

    __slots__ = ("_launcher", "kernel")

    def __init__(self, kernel: Checked, launcher: _core.Launcher) -> None:
        self.kernel = kernel
        self._launcher = launcher

    def __call__(self, *arguments: Any) -> None:
        count = len(self.kernel._own)
        if len(arguments) != count:
            self.kernel._misfit(arguments)
        sizes = [_span(one) if isinstance(one, DevicePtr) else 0 for one in arguments]
        record = np.concatenate([np.zeros(_RECORD.itemsize, np.uint8), np.array(sizes, np.int64).view(np.uint8)])
        pointer = next((one for one in arguments if isinstance(one, DevicePtr)), None)
        if pointer is None:
            return self._launcher(*arguments, None)  # raises
        with offload_args(InOut(record), device=pointer.device) as (on_device,):
            self._launcher(*arguments, on_device)
        found = record[: _RECORD.itemsize].view(_RECORD)[0]
        if found["found"]:
            raise ExtentError(self._text(found))

    def _text(self, found: Any) -> str:
        thread, block = (tuple(map(int, found[what])) for what in ("thread", "block"))
        where = f"{self.kernel.name}: thread {thread} of block {block}"
        argument, index, size = int(found["argument"]), int(found["index"]), int(found["size"])
        what = "the dynamic shared memory" if argument < 0 else self.kernel._own[argument].name
        if found["in_slice"]:
            what = f"a slice of {what}"
        return f"{where} reads or writes element {index} of {what}, which has {size}: check the index before"

    def __repr__(self) -> str:
        return f"{self._launcher!r}, each access checked"
