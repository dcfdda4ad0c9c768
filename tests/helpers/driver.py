"""The CUDA driver, as used by a program that also uses the package."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray


@contextmanager
def driver() -> Iterator[Callable[..., None]]:
    """Yield a function that calls the driver by name; the primary context of the first GPU is current."""
    library = ctypes.CDLL("libcuda.so.1")

    def call(function: str, *arguments: Any, expected: int = 0) -> None:
        code = getattr(library, function)(*arguments)
        assert code == expected, f"{function} returned {code}"

    context, popped = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    try:
        yield call
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(popped))
        call("cuDevicePrimaryCtxRelease_v2", 0)


class OwnStream:
    """A stream of the first GPU, which a program made, and may destroy at any time."""

    def __init__(self) -> None:
        self._stream = ctypes.c_void_p()
        with driver() as call:
            call("cuStreamCreate", ctypes.byref(self._stream), 1)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.value or 0

    def destroy(self) -> None:
        with driver() as call:
            call("cuStreamDestroy_v2", self._stream)


@contextmanager
def registered(array: NDArray[Any]) -> Iterator[None]:
    """Pin an array's memory, as a program does, for a block; check at the end that it is pinned, and only once."""
    address = ctypes.c_void_p(array.ctypes.data)
    with driver() as call:
        call("cuMemHostRegister_v2", address, ctypes.c_size_t(array.nbytes), 1)
        try:
            yield
        finally:
            call("cuMemHostUnregister", address)
            call("cuMemHostUnregister", address, expected=713)  # the memory is not registered any more
