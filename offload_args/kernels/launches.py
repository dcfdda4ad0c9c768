"""Launches of kernels, in an open region or in a region of the launch. The extension implements launches. It calls the
functions of this module for objects that stand for several arguments, and for kernels without a signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .._core import launch, offload, offload_unsafe
from ..display import described
from ..errors import ArgumentError, ArgumentTypeError
from .kernel_type import Kernel

__all__ = ["declared", "launch", "offload", "offload_unsafe", "parts"]

_MOST_DEPTH: Final = 16  # of nested objects


def declared(function: str, kernel: Any, arguments: Sequence[object]) -> Kernel:
    """Return a kernel without a signature as a kernel with the signature that the arguments determine."""
    if hasattr(kernel, "for_arguments"):
        result: Kernel = kernel.for_arguments(arguments)
        return result
    from .._advice import how_to_run, title

    got = f"the function {title(kernel)}" if hasattr(kernel, "__name__") else described(kernel)
    raise ArgumentTypeError(f"{function}: kernel needs a Kernel, got {got}; {how_to_run(function, kernel)}")


def parts(arguments: Sequence[object], depth: int = 0) -> tuple[Any, ...]:
    """Return the arguments; each object with a method `__offload__` is replaced by the result of this method."""
    leaves: list[object] = []
    for argument in arguments:
        travels = getattr(type(argument), "__offload__", None)
        if travels is None:
            leaves.append(argument)
            continue
        own = travels(argument)
        if not isinstance(own, (tuple, list)):
            raise ArgumentTypeError(
                f"{type(argument).__name__}.__offload__ needs to return a tuple of arrays and numbers, got "
                f"{type(own).__name__}"
            )
        if depth == _MOST_DEPTH:
            raise ArgumentError(f"{type(argument).__name__}.__offload__ returns objects that have it, {depth} deep")
        leaves += parts(own, depth + 1)
    return tuple(leaves)
