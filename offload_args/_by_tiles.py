"""Calls of `offload_args.call` whose arrays exceed the memory of a device: some functions compute them by tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .arguments import In, InOut, Out, Scratch
from .devices import Device

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compute"]

# The functions that have the parameter `devices`, with the number of their first arrays, which are only read.
_FUNCTIONS: Final = {
    "offload_args.blas.gemm": {"gemm": 2},
    "offload_args.blas.level3": {
        "symm": 2,
        "hemm": 2,
        "syrk": 1,
        "herk": 1,
        "syr2k": 2,
        "her2k": 2,
        "trmm": 1,
        "trsm": 1,
    },
    "offload_args.lapack.cholesky": {"potrf": 0, "potrs": 1, "posv": 0},
    "offload_args.lapack.lu": {"getrf": 0, "getrs": 2, "gesv": 0},
}


def _is_zero(numbers: list[Any]) -> bool:
    """Return whether the argument before a result, its beta, is the number 0, so that the result is not read."""
    return len(numbers) == 1 and isinstance(numbers[0], (int, float, complex, np.number)) and numbers[0] == 0


def compute(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], device: Device | str | None
) -> bool:
    """Make a call of `offload_args.call` by tiles. Return False, and do nothing, if that is not possible.

    device: as passed to `call`.
    """
    read = _FUNCTIONS.get(getattr(function, "__module__", ""), {}).get(getattr(function, "__name__", ""))
    if read is None:
        return False
    passed: list[Any] = []
    for argument in arguments:
        array = argument
        if isinstance(argument, Scratch):  # the pivots
            array = np.empty(argument.shape, argument.dtype)
        elif isinstance(argument, (In, Out, InOut)):
            array = argument.array
            if isinstance(argument, Out if read > 0 else In) or not isinstance(array, np.ndarray):
                return False
            if isinstance(argument, Out) and not (array.dtype.kind == "i" or _is_zero(passed[-1:])):  # no pivots
                return False
        read -= isinstance(array, np.ndarray)
        passed.append(array)
    function(*passed, **keywords, devices=[Device.default() if device is None else device])
    return True
