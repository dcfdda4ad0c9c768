"""Ctrl-C at a chosen place of the package's own code."""

from __future__ import annotations

import ctypes
import itertools
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import offload_args

_PACKAGE = str(Path(offload_args.__file__).parent)


class Sent:
    """A flag that is true once Ctrl-C was sent."""

    def __init__(self) -> None:
        self.sent = False

    def __bool__(self) -> bool:
        return self.sent


@contextmanager
def ctrl_c(
    at: int = 0,
    function: str | None = None,
    handler: Callable[..., Any] = signal.default_int_handler,
    modules: tuple[str, ...] = (),
) -> Iterator[Sent]:
    """Send Ctrl-C once in the block, when code of the package is called, reaches a line or returns.

    at: the number of such events before Ctrl-C. function: only events in functions of this name count. handler: the
    handler of the signal. modules: other files whose code counts, too.
    """
    sent, left = Sent(), at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith((_PACKAGE, *modules)):
            return None
        if event != "exception" and function in (None, frame.f_code.co_name):
            left -= 1
        if left >= 0:
            return trace
        sys.settrace(None)
        frame.f_trace = None
        sent.sent = True
        signal.raise_signal(signal.SIGINT)
        return None

    before, tracer = signal.signal(signal.SIGINT, handler), sys.gettrace()  # coverage has a tracer
    sys.settrace(trace)
    try:
        yield sent
    finally:
        sys.settrace(tracer)
        signal.signal(signal.SIGINT, before)


def ctrl_c_at_end_of(owner: object) -> weakref.ref[object]:
    """Send Ctrl-C when `owner` is freed, before the objects that it owns. C sends it, so Python handles it later.

    Keep the reference that is returned until then.
    """
    interrupt = ctypes.PyDLL(None).PyErr_SetInterrupt
    interrupt.argtypes, interrupt.restype = [ctypes.py_object], None
    return weakref.ref(owner, interrupt)


def at_every_place(block: Callable[[], object], step: int = 1, modules: tuple[str, ...] = ()) -> Iterator[int]:
    """Call `block` with Ctrl-C at each place in turn, and then without Ctrl-C; each Ctrl-C must be raised.

    After each call, yield the number of places before this place. step: of places. modules: as in ctrl_c.
    """
    for at in itertools.count(0, step):
        arrived = False
        try:
            with ctrl_c(at, modules=modules) as sent:
                block()
                for _ in range(1000):  # lines of the user that follow
                    pass
        except KeyboardInterrupt:
            arrived = True
        assert arrived == sent.sent, at
        yield at
        if not sent:
            return
