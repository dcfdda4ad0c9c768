"""Replaces functions of rocBLAS that differ from the reference BLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import cblas
from .._operands import checking

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pointers import DevicePtr

__all__ = ["rotmg"]


def rotmg(vendors: Callable[..., None]) -> Callable[..., None]:
    """Make rotmg from CBLAS's function, on the host.

    rocBLAS's own function, whose H is wrong if it scales both weights, only checks the operands.
    """

    def call(*operands: DevicePtr[Any]) -> None:
        with checking():
            vendors(*operands)
        *updated, y1, param = operands
        function = cblas.srotmg if param.dtype == np.float32 else cblas.drotmg
        *numbers, H = function(*(pointer.to_host().item() for pointer in (*updated, y1)))
        for pointer, number in zip(updated, numbers, strict=True):
            pointer.assign(np.asarray(number, pointer.dtype))
        param.assign(np.array(H, param.dtype))

    return call
