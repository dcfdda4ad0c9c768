"""Types that static checkers must know: `make lint` checks this file, and test_static_types.py runs it."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from offload_args import DevicePtr, In, Out, Scratch, offload_args


def regions_give_pointers(x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    with offload_args(In(x), Out(y), device="host") as (dx, dy):
        assert_type(dx, DevicePtr[Any])
        dy.copy_from(dx)
        assert_type(dx[1:].shape, tuple[int, ...])
    with offload_args(x, device="host") as pointers:
        assert_type(pointers, tuple[DevicePtr[Any], ...])
    region = offload_args(x, Scratch(3), device="host")
    (dx, dw) = region.open()
    assert_type(dw, DevicePtr[Any])
    assert_type(region.close(), None)


def pointers_keep_their_dtype(x: NDArray[np.float32]) -> None:
    def typed(dx: DevicePtr[np.float32]) -> None:
        assert_type(dx.reshape(-1, 1), DevicePtr[np.float32])
        assert_type(dx.reshape((1, -1)).T, DevicePtr[np.float32])
        assert_type(dx.to_host(), NDArray[np.float32])
        assert_type(dx.fill(1.0), None)
        try:
            dx.sum()  # type: ignore[attr-defined]
        except AttributeError:
            pass

    with offload_args(x, device="host") as (dx,):
        typed(dx)


def check() -> None:
    x = np.ones(3, np.float32)
    regions_give_pointers(x, np.zeros(3, np.float32))
    pointers_keep_their_dtype(x)
