"""A pointer can't be used after the end of its region, whatever the use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import (
    In,
    blas,
    offload_args,
)
from offload_args.errors import (
    StalePointerError,
)


@pytest.mark.promise("T37")
def test_a_pointer_is_dead_after_its_region(device: str) -> None:
    with offload_args(ramp(8), device=device) as (dx,):
        pass
    with pytest.raises(StalePointerError):
        blas.scal(2.0, dx)


WHEN_DEAD: dict[str, Callable[[Any], object]] = {
    "call": lambda p: blas.scal(2.0, p),
    "slice": lambda p: p[1:],
    "new axis": lambda p: p[None],
    "offset": lambda p: p.offset(1),
    "transpose": lambda p: p.T,
    "assign": lambda p: p.assign(1),
    "fill": lambda p: p.fill(1),
    "copy_from": lambda p: p.copy_from(p),
    "to_host": lambda p: p.to_host(),
    "reshape": lambda p: p.reshape(-1, 1),
    "address": lambda p: p.address,
    "DLPack": lambda p: p.__dlpack__(),
    "DLPack device": lambda p: p.__dlpack_device__(),
    "CUDA array interface": lambda p: p.__cuda_array_interface__,
    "a region": lambda p: offload_args(p).__enter__(),
    "an In": lambda p: offload_args(In(p)).__enter__(),
}


@pytest.mark.promise("T37")
@pytest.mark.parametrize("use", WHEN_DEAD)
def test_every_use_of_a_pointer_after_its_region_is_refused(device: str, use: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        part = dx[1:]
    for pointer in (dx, part):
        with pytest.raises(StalePointerError):
            WHEN_DEAD[use](pointer)
        assert "dead" in repr(pointer)


@pytest.mark.promise("T37")
def test_a_stale_pointer_stays_stale_when_its_array_is_lent_again(device: str) -> None:
    x = ramp(3)
    with offload_args(x, device=device) as (old,):
        pass
    with offload_args(x, device=device) as (new,):
        with pytest.raises(StalePointerError):
            blas.axpy(1.0, old, new)
        blas.scal(2.0, new)
    np.testing.assert_array_equal(x, 2 * ramp(3))
