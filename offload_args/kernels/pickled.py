"""Pickles of kernels. They contain the sources and types, from which another process makes the kernel again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

__all__ = ["loaded_again", "pickled"]

_MOST: Final = 256  # kernels that a process keeps


def pickled(make: Callable[..., Any], *arguments: Any) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
    """Return the result of `__reduce__` for an object that is make(*arguments)."""
    return _made_again, (pickle.dumps((make, arguments)),)


@lru_cache(_MOST)
def _made_again(state: bytes) -> Any:
    """Make an object from its pickle, or return it if it was made before: tasks of a worker bring the same pickle."""
    make, arguments = pickle.loads(state)
    return make(*arguments)


def loaded_again(data: bytes, module: str, name: str, *signature: object) -> Any:
    """Return a kernel of a module; the module if the name is ""."""
    # A static import would be a circle: modules and their kernels are pickled by this file.
    again = import_module(f"{__package__}.module").Module.load(data, name=module)
    return again.kernel(name, *signature) if name else again
