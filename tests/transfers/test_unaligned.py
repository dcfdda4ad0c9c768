"""Arrays whose addresses are not multiples of their item size, such as chunks of Dask and Ray."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, lend, ramp
from offload_args import Device, In, InOut, Out, blas, offload_args, testing, update
from offload_args.errors import (
    DirectionError,
    PerformanceWarning,
    PresentError,
)


def at(address: int, like: Array) -> Array:
    """Return a copy of an array in C order with data at `address` modulo 16, as in a Dask worker."""
    memory = bytearray(like.nbytes + 32)
    start = (address - np.frombuffer(memory, np.uint8).ctypes.data) % 16
    copy = np.ndarray(like.shape, like.dtype, memory, start)
    copy[...] = like
    return copy


def field(like: Array) -> Array:
    """Return a copy of an array as the middle field of packed records."""
    records = np.zeros(like.shape, [("before", "u1"), ("it", like.dtype), ("after", "u2")])
    records["before"], records["after"] = 7, 8
    records["it"] = like
    return records["it"]


UNALIGNED: dict[str, Callable[[Array], Array]] = {
    "one byte on": lambda x: at(1, x),
    "two bytes on": lambda x: at(2, x),
    "at the end of a chunk": lambda x: at(15, x),
    "in Fortran order": lambda x: at(3, x.T.copy()).T,
    "a part of rows": lambda x: at(5, np.pad(x, [(0, 1)] * x.ndim))[tuple(slice(n) for n in x.shape)],
    "every second": lambda x: at(1, np.repeat(x, 2, axis=-1))[..., ::2],
    "reversed": lambda x: at(1, x[::-1].copy())[::-1],
    "a field of packed records": field,
}


@pytest.mark.later("host")
@pytest.mark.promise("T59")
@pytest.mark.parametrize("declared", [None, InOut])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", UNALIGNED)
def test_an_unaligned_array_goes_up_and_comes_down_right(device: str, kind: str, dtype: Any, declared: Any) -> None:
    A, x = ramp(5, 3, dtype=dtype), ramp(7, dtype=dtype)
    A_lent, x_lent = UNALIGNED[kind](A), UNALIGNED[kind](x)
    assert not A_lent.flags.aligned and not x_lent.flags.aligned
    owner = x_lent.base
    arguments = [A_lent, x_lent] if declared is None else [declared(A_lent), declared(x_lent)]
    with pytest.warns(PerformanceWarning, match="is not aligned to its items.*packed") as warned:
        with offload_args(*arguments, device=device) as (dA, dx):
            assert dx.ndim == 1 and dA.shape == (5, 3)
            blas.scal(2.0, dx)
            for row in range(5):
                blas.scal(3.0, dA[row])
    assert ["argument 1" in str(warning.message) for warning in warned] == [True, False]  # then argument 2
    assert warned[0].filename == __file__
    np.testing.assert_array_equal(A_lent, 3 * A)
    np.testing.assert_array_equal(x_lent, 2 * x)
    assert x_lent.flags.writeable and A_lent.flags.writeable
    if kind == "a field of packed records":
        assert (owner["before"] == 7).all() and (owner["after"] == 8).all()


@pytest.mark.promise("T59")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("kind", ["one byte on", "in Fortran order", "a part of rows"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_of_unaligned_matrices_is_right(device: str, kind: str, order: Any) -> None:
    A, B, C = (np.asarray(ramp(*shape, dtype=np.float64), order=order) for shape in ((5, 3), (3, 4), (5, 4)))
    lent = [UNALIGNED[kind](value) for value in (A, B, C)]
    with offload_args(In(lent[0]), In(lent[1]), Out(lent[2]), device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC) if kind != "a part of rows" else dC.assign(A @ B)
    np.testing.assert_allclose(lent[2], A @ B, rtol=1e-13)
    np.testing.assert_array_equal(lent[0], A)


@pytest.mark.promise("T59")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("kind", UNALIGNED)
def test_unaligned_arrays_are_written_read_and_updated_in_the_middle(device: str, kind: str) -> None:
    x = UNALIGNED[kind](ramp(7, dtype=np.float64))
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        np.testing.assert_array_equal(update(x, device=device)._array, 2 * ramp(7))
        with update(x, device=device):
            x[3] = -1
        dx[:2].assign(UNALIGNED[kind](ramp(2, dtype=np.float64)))
        blas.scal(2.0, dx)
        with offload_args(x, device=device) as (again,):
            blas.scal(0.5, again)
    np.testing.assert_array_equal(x, [1, 2, 6, -1, 10, 12, 14])


@pytest.mark.promise("T59")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_parts_of_an_unaligned_array_share_its_memory(device: str) -> None:
    for order in (1, -1):
        x = at(1, ramp(16, dtype=np.float32))
        with offload_args(*(x, x[4:8], x[8:])[::order], device=device) as pointers:
            blas.scal(2.0, pointers[1])
            with offload_args(x[2:6], device=device) as (part,):
                blas.scal(3.0, part)
        expected = ramp(16)
        expected[4:8] *= 2
        expected[2:6] *= 3
        np.testing.assert_array_equal(x, expected)


@pytest.mark.promise("T59")
def test_an_array_that_would_be_unaligned_on_the_device_is_refused(device: str) -> None:
    memory = np.zeros(64, np.uint8)
    floats, z = memory[1:61].view(np.float32), np.zeros(4).view(np.float64)
    for arguments in ((memory, floats), (floats, memory)):
        with pytest.raises(PresentError, match=r"begins 1 bytes into the memory it shares with argument.*itemsize, 4"):
            lend(*arguments, device=device)
    with offload_args(memory, device=device):
        with pytest.raises(PresentError, match="argument 1 begins 1 bytes into.*lend a copy of it"):
            lend(floats, device=device)
        lend(memory[4:60].view(np.float32), device=device)
    with offload_args(z, device=device):
        with pytest.raises(PresentError, match="begins 8 bytes into.*itemsize, 16"):
            lend(z[1:3].view(np.complex128), device=device)
    records = np.zeros(4, [("a", "u1"), ("b", "f8")])
    with pytest.raises(PresentError, match="can't be expressed by a leading dimension"):
        lend(records["a"], records["b"], device=device)
    assert memory.flags.writeable and floats.flags.writeable and z.flags.writeable


@pytest.mark.promise("T59")
def test_rows_that_are_no_multiple_of_the_items_apart_are_packed(device: str) -> None:
    records = np.zeros(5, [("z", "c16", (3,)), ("f", "f8")])
    z = records["z"]  # aligned for NumPy, but not for a GPU
    z[...] = ramp(5, 3)
    with pytest.warns(PerformanceWarning, match="argument 1.*packed"):
        with offload_args(z, device=device) as (dz,):
            assert dz.strides == (48, 16)
            for row in range(5):
                blas.scal(2.0, dz[row])
    np.testing.assert_array_equal(z, 2 * ramp(5, 3))
    assert (records["f"] == 0).all()


@pytest.mark.promise("T59")
def test_an_unaligned_array_with_no_elements_is_not_warned_of(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lend(np.ndarray((0,), np.float64, bytearray(16), 1), ramp(3), device=device)


@pytest.mark.promise("T59")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_an_unaligned_array_may_be_resident(device: str) -> None:
    n = 1 << 16
    x = at(1, ramp(n, dtype=np.float64))
    with testing.residency("explicit"):
        for step in range(3):
            x[step] = 0
            with offload_args(x, device=device, resident=True) as (dx,):
                assert blas.asum(dx) == x.sum()
                blas.scal(2.0, dx)
        Device(device).keep(x)
        Device(device).release(x)
    np.testing.assert_array_equal(x[3:], 8 * ramp(n)[3:])


@pytest.mark.promise("T59")
def test_an_unaligned_chunk_of_bytes_is_lent_read_only(device: str) -> None:
    chunk = np.frombuffer(b"." + ramp(5, dtype=np.float64).tobytes(), np.uint8)[1:].view(np.float64)
    with pytest.warns(PerformanceWarning, match="not aligned"):
        with offload_args(chunk, device=device) as (dx,):
            assert blas.asum(dx) == 15
            with pytest.raises(DirectionError):
                blas.scal(2.0, dx)
    with pytest.raises(DirectionError, match="read-only"):
        lend(Out(chunk), device=device)
