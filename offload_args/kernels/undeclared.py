"""Kernels without a declared signature.

The arguments of each call determine the types, and the module must not contradict them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from .._core import launch
from ..arguments import In, InOut, Out, Scratch
from ..errors import ArgumentTypeError
from ..pointers import DevicePtr
from .facts import KernelFacts
from .kernel_type import Kernel
from .loaded import Loaded
from .pickled import loaded_again, pickled

__all__ = ["UndeclaredKernel"]

_LENT = (DevicePtr, np.ndarray, In, Out, InOut, Scratch)


@final
class UndeclaredKernel:
    """Launch a kernel by the facts that its module proves: `vadd(da, db, dc, np.int32(n))`, or `vadd[grid,
    block](...)`.

    Every pointer counts as read and written, unless the module says that it is only read. Every value needs a NumPy
    type, such as np.int32(5), because the module has only the sizes of values. `launch` and `offload` also take such a
    kernel. Module.kernel returns an UndeclaredKernel if no signature is passed.

    A call raises SignatureError if the module contradicts the arguments.
    """

    __slots__ = ("_declared", "_loaded", "facts", "name")

    def __init__(self, loaded: Loaded, facts: KernelFacts) -> None:
        self.name = facts.name
        self.facts = facts
        self._loaded = loaded
        self._declared: dict[tuple[object, ...], Kernel] = {}

    def for_arguments(self, arguments: Sequence[object]) -> Kernel:
        """Return the kernel with the signature that the arguments of a call determine."""
        signature = tuple(self._declaration(i, argument) for i, argument in enumerate(arguments, 1))
        kernel = self._declared.get(signature)
        if kernel is None:
            kernel = self._declared[signature] = Kernel(self._loaded, self.name, signature, self.facts)
        return kernel

    def _declaration(self, position: int, value: object) -> Any:
        types = self.facts.types or ()
        if isinstance(value, _LENT) or hasattr(value, "__cuda_array_interface__"):
            return In if position <= len(types) and types[position - 1].is_read_only else InOut
        if isinstance(value, np.generic):
            return value.dtype
        raise ArgumentTypeError(
            f"{self.name}: argument {position}: without a signature a value needs a NumPy type, such as np.int32(5); "
            f"got {type(value).__name__}"
        )

    def __call__(self, *arguments: Any, **shape: Any) -> None:
        launch(self, *arguments, **shape)

    def __getitem__(self, key: object) -> UndeclaredLauncher:
        return UndeclaredLauncher(self, key)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickled(loaded_again, self._loaded.image.data, self._loaded.name, self.name)

    def __repr__(self) -> str:
        return f"UndeclaredKernel({self.facts}, from {self._loaded.image.name})"


@final
class UndeclaredLauncher:
    """Launch an undeclared kernel with a grid and block, by a call with the kernel's arguments."""

    __slots__ = ("_key", "kernel")

    def __init__(self, kernel: UndeclaredKernel, key: object) -> None:
        self.kernel = kernel
        self._key = key

    def __call__(self, *arguments: Any) -> None:
        self.kernel.for_arguments(arguments)[self._key](*arguments)
