"""Scalars on the device."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import blas, offload_args
from offload_args.errors import (
    ExtentError,
    HostAccessError,
)


def test_a_0d_pointer_is_a_scalar(device: str) -> None:
    x, alpha, total = ramp(4), np.array(3, np.float32), np.zeros((), np.float32)
    with offload_args(x, alpha, total, device=device) as (dx, da, dt):
        assert (da.shape, da.size) == ((), 1)
        blas.scal(da, dx)
        assert blas.dot(dx, dx, result=dt) is None
        with pytest.raises(HostAccessError):
            da[()]
        assert da[...].shape == ()
    np.testing.assert_array_equal(x, 3 * ramp(4))
    assert total == 9 * float(ramp(4) @ ramp(4))


def test_a_scalar_on_the_device_has_exactly_one_element(device: str) -> None:
    x, w = np.ones(4), np.full(3, 2.0)
    with offload_args(x, w, device=device) as (dx, dw):
        with pytest.raises(ExtentError, match=r"alpha needs a pointer to 1 element, got .*alpha\[:1\]"):
            blas.scal(dw, dx)
        with pytest.raises(ExtentError, match=r"result needs a pointer to 1 element"):
            blas.dot(dx, dx, result=dw)
        blas.scal(dw[1:2], dx)
    np.testing.assert_array_equal(x, 2.0)
