"""Small arrays with known elements, parts of arrays, and a region without calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offload_args import offload_args

Array = NDArray[Any]


def ramp(*shape: int, dtype: Any = np.float32, order: Any = "C") -> Array:
    """Return an array of 1, 2, 3, ... in the order of C, laid out in either order."""
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(dtype, order=order)


def behind(x: Array) -> Array:
    """Return the elements of a contiguous array in the order of the host's memory, even if the array is guarded."""
    if os.environ.get("OFFLOAD_ARGS_GUARD") != "1":
        return x.ravel(order="K")
    with open("/proc/self/mem", "rb", 0) as memory:
        return np.frombuffer(os.pread(memory.fileno(), x.nbytes, x.ctypes.data), x.dtype)


def lend(*arguments: Any, device: str) -> None:
    """Enter a region with the arguments and leave it."""
    with offload_args(*arguments, device=device):
        pass


# Parts of a matrix with at least 4 rows and 5 columns.
PARTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 2:],
    "a block": lambda a: a[1:3, 1:4],
    "a row": lambda a: a[2],
    "the last row": lambda a: a[-1],
    "a column": lambda a: a[:, 1],
    "every second column": lambda a: a[:, ::2],
    "every second row": lambda a: a[::2],
    "backwards": lambda a: a[::-1],
    "a row backwards": lambda a: a[1, ::-1],
    "ellipsis": lambda a: a[..., 1:],
    "ellipsis and row": lambda a: a[1, ...],
    "a new axis": lambda a: a[0][None, 1:3],
    "twice": lambda a: a[1:][1:, 1:][:, 1:],
    "transposed": lambda a: a.T[1:3],
    "NumPy's integers": lambda a: a[np.int64(1)],
    "more than there is": lambda a: a[1:100, -100:2],
}
