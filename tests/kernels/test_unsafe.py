"""offload_unsafe leaves out the checks of arguments against the signature and against each other, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import In, InOut, Kernel, Module, Out, errors, offload, offload_args, offload_unsafe
from offload_args.kernels import Linear1D

N = 40


def test_a_written_array_may_overlap_another_argument(vadd: Kernel, device: str) -> None:
    a, b = ramp(N), ramp(N)
    with offload_args(a, b, device=device) as (da, db):
        with pytest.raises(errors.AliasError):
            offload(vadd, da, db, db, N, grid=1, block=64)
        offload_unsafe(vadd, da, db, db, N, grid=1, block=64)
    np.testing.assert_array_equal(b, 2 * ramp(N))


def test_a_pointer_may_have_another_dtype_than_the_signature(vadd: Kernel, device: str) -> None:
    a, b, bits = ramp(N), ramp(N), np.zeros(N, np.uint32)
    with pytest.raises(errors.DTypeError, match="argument 3"):
        offload(vadd, a, b, bits, N, grid=1, block=64, device=device)
    offload_unsafe(vadd, a, b, bits, N, grid=1, block=64, device=device)
    np.testing.assert_array_equal(bits.view(np.float32), 2 * ramp(N))


def test_a_grid_may_leave_elements_of_a_partition_without_an_owner(module: Module, device: str) -> None:
    relu = module.kernel("relu", InOut[np.float32].by(Linear1D()), np.int32)
    x = -ramp(N)
    with pytest.raises(errors.CoverageError):
        offload(relu, x, 8, grid=1, block=8, device=device)
    offload_unsafe(relu, x, 8, grid=1, block=8, device=device)
    np.testing.assert_array_equal(x[:8], 0)
    np.testing.assert_array_equal(x[8:], -ramp(N)[8:])


def test_all_else_is_checked_as_ever(vadd: Kernel, device: str) -> None:
    a, b, c = ramp(N), ramp(N), np.zeros(N, np.float32)
    with offload_args(In(a), b, Out(c), device=device) as (da, db, dc):
        for arguments, error in (
            ((da, db, dc), errors.ArgumentTypeError),  # too few arguments
            ((da, db, 4096, N), errors.HostPointerError),
            ((da, db, dc, 2**31), errors.SizeOverflowError),
            ((da, db, dc, 1.5), errors.DTypeError),
            ((db, db, da, N), errors.DirectionError),  # an In would be written
        ):
            with pytest.raises(error):
                offload_unsafe(vadd, *arguments, grid=1, block=64)
        with pytest.raises(errors.ArgumentError, match="block needs 1 to 1024"):
            offload_unsafe(vadd, da, db, dc, N, grid=1, block=1025)
        dc.fill(0)
    with pytest.raises(errors.StalePointerError):
        offload_unsafe(vadd, da, db, dc, N, grid=1, block=64)


def test_a_kernel_of_another_kind_is_refused_by_its_name(device: str) -> None:
    with pytest.raises(errors.ArgumentTypeError, match="offload_unsafe: kernel needs a Kernel, got"):
        offload_unsafe(print, ramp(N), device=device)
