"""Sets and reads, by each vendor's interface, the device that is current for a program's own calls."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


class Cuda:
    """Contexts of CUDA; no context is current on a new thread."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._contexts = []
        for index in range(2):
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)
            self._contexts.append(context)

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        assert code == 0, f"{function} returned {code}"

    def now(self) -> int | None:
        """Return the index of the current device; None if no context is current."""
        current = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(current))
        values = [context.value for context in self._contexts]
        return values.index(current.value) if current.value else None

    @contextmanager
    def making_current(self, index: int | None) -> Iterator[None]:
        """Make a device current for a block; with None, no device is current, as on a new thread."""
        if index is None:
            yield
            return
        popped = ctypes.c_void_p()
        self._call("cuCtxPushCurrent_v2", self._contexts[index])
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(popped))


class Hip:
    """Devices of HIP; the first device is current on a new thread."""

    def __init__(self) -> None:
        for name in ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"):
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError:
                continue
        raise AssertionError("libamdhip64 was found before")

    def now(self) -> int:
        current = ctypes.c_int(-1)
        assert self._library.hipGetDevice(ctypes.byref(current)) == 0
        return current.value

    @contextmanager
    def making_current(self, index: int | None) -> Iterator[None]:
        before = self.now()
        assert self._library.hipSetDevice(0 if index is None else index) == 0
        try:
            yield
        finally:
            assert self._library.hipSetDevice(before) == 0
