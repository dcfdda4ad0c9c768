"""Kernels that check each access: their source is compiled with bounds, and each launch gets a record.

With OA_DEBUG, the arrays of kernel.h have bounds. An access out of bounds is redirected to memory outside the arrays,
and the first such access is noted in the record. The record is a further argument of the kernel, and is read when the
kernel is done.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from .. import _core
from ..arguments import InOut
from ..errors import ArgumentError, BackendError, ExtentError
from ..pointers import DevicePtr
from ..regions import offload_args

__all__ = ["OPTION", "has_bounds", "launch_with_record", "record_kernel"]

OPTION: Final = "-DOA_DEBUG=1"
_EXCEPTION: Final = -2  # stands in place of an argument's number
_ASSERTION: Final = -3
_ENDED: Final = -4
_lost: Final[list[Any]] = []  # records that must never be freed

# The same structure as oa::Record of kernel.h. The sizes of the arguments follow it.
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
        ("zeros", np.uint8, 256),
        ("sink", np.uint8, 256),
    ]
)


def has_bounds(source: str, name: str) -> bool:
    """Return whether a source has the kernel in the form whose arrays can have bounds."""
    return re.search(rf"\bOA_(BLOCK_)?KERNEL\(\s*{re.escape(name)}\s*,", source) is not None


def record_kernel(source: str, name: str, count: int) -> str:
    """Return the text to add for compilers of GPUs: a kernel that makes arguments with bounds."""
    if not has_bounds(source, name):
        raise ArgumentError(
            f"Kernel.compile: debug=True needs a kernel that OA_KERNEL({name}, ...) or OA_BLOCK_KERNEL({name}, ...) "
            "begins: only its arrays know their bounds"
        )
    arguments = [f"oa::Argument<decltype(&{name}_in), {i}>" for i in range(count)]
    parameters = "".join(f"{argument}::type a{i}, " for i, argument in enumerate(arguments))
    values = "".join(f", {argument}::passed(a{i}, {i}, record)" for i, argument in enumerate(arguments))
    return f"\nOA_DEBUG_KERNEL({name}, ({parameters}oa::Record *record), (oa::Here{{record}}{values}))\n"


def _span(pointer: DevicePtr[Any]) -> int:
    """Return the number of elements from a pointer's first element to its last, including gaps between rows."""
    if not pointer.size:
        return 0
    steps = zip(pointer.shape, pointer.strides, strict=True)
    return 1 + sum((n - 1) * abs(step) for n, step in steps) // pointer.dtype.itemsize


def launch_with_record(launcher: _core.Launcher, checked: _core.Kernel, arguments: tuple[Any, ...]) -> None:
    """Launch the kernel `checked` in place of a launcher's kernel, and wait for it.

    `checked` checks each access, and takes the arguments, which are known to fit, and a record. Raises ExtentError for
    the first access out of bounds.
    """
    device = next(argument.device for argument in arguments if isinstance(argument, DevicePtr))
    sizes = [_span(argument) if isinstance(argument, DevicePtr) else 0 for argument in arguments]
    record = np.concatenate([np.zeros(_RECORD.itemsize, np.uint8), np.array(sizes, np.int64).view(np.uint8)])
    launch = _core.launcher_of(launcher, checked)
    if device.is_gpu:
        with offload_args(InOut(record), device=device) as (on_device,):
            launch(*arguments, on_device)
    else:
        try:
            launch(*arguments, record.ctypes.data)
        except BaseException:
            _lost.append(record)  # perhaps only the wait failed, and the kernel still runs
            raise
    header = record[: _RECORD.itemsize].view(_RECORD)[0]
    if header["found"] and header["argument"] == _EXCEPTION:
        raise BackendError(_thrown(checked.name, header))
    if header["found"] and header["argument"] == _ASSERTION:
        raise AssertionError(_asserted(checked.name, header))
    if header["found"] and header["argument"] == _ENDED:
        raise ExtentError(_ended(checked.name, header))
    if header["found"]:
        raise ExtentError(_text(checked, header))


def _asserted(name: str, header: Any) -> str:
    thread, block = (tuple(map(int, header[key])) for key in ("thread", "block"))
    line = f"line {int(header['index'])}{' of a function that it calls' if header['size'] else ''}"
    return f"{name}: thread {thread} of block {block}: the assert in {line} does not hold"


def _ended(name: str, header: Any) -> str:
    thread, block = (tuple(map(int, header[key])) for key in ("thread", "block"))
    return (
        f"{name}: thread {thread} of block {block} ended early: the step of a range is 0, an index is outside of "
        "its tuple, or a function reached assert False: check it before"
    )


def _thrown(name: str, header: Any) -> str:
    thread, block = (tuple(map(int, header[key])) for key in ("thread", "block"))
    text = bytes(header["sink"]).partition(b"\0")[0].decode(errors="replace")
    return f"{name}: thread {thread} of block {block} threw a C++ exception: {text}"


def _text(kernel: Any, header: Any) -> str:
    thread, block = (tuple(map(int, header[key])) for key in ("thread", "block"))
    argument, index, size = int(header["argument"]), int(header["index"]), int(header["size"])
    subject = kernel._named_in_messages(argument)
    if header["in_slice"]:
        subject = f"a slice of {subject}"
    return (
        f"{kernel.name}: thread {thread} of block {block} reads or writes element {index} of {subject}, which has "
        f"{size}: check the index before"
    )
