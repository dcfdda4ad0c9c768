"""cuBLAS's copies between arrays of the host and of a device write each element to its place, and no other element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import In, Out, cublas, offload_args
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostPointerError,
    LibraryError,
    StalePointerError,
    WrongDeviceError,
)

DTYPES = [np.float32, np.complex128, np.int8, np.uint16]
ASYNC = pytest.mark.parametrize("form", ["", "_async"])


def counting(n: int, dtype: Any) -> NDArray[Any]:
    return (np.arange(n) % 100 + 1).astype(dtype)


@ASYNC
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("incx", "incy"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_a_vector_goes_to_the_device_and_back(cuda: str, form: str, dtype: Any, incx: int, incy: int) -> None:
    n = 7
    x, there, back = counting((n - 1) * incx + 1, dtype), np.zeros((n - 1) * incy + 1, dtype), np.zeros(20, dtype)
    size = x.itemsize
    with offload_args(there, device=cuda) as (d,):
        getattr(cublas, f"set_vector{form}")(n, size, x, incx, d, incy)
        getattr(cublas, f"get_vector{form}")(n, size, d, incy, back[2:], 1)
    expected = np.zeros_like(there)
    expected[::incy] = x[::incx]
    np.testing.assert_array_equal(there, expected)
    np.testing.assert_array_equal(back, [0, 0, *x[::incx], *[0] * 11])


@ASYNC
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_goes_to_the_device_and_back(cuda: str, form: str, dtype: Any) -> None:
    rows, cols = 3, 5
    A = counting(6 * 7, dtype).reshape((6, 7), order="F")
    there, back = np.zeros((4, 5), dtype, order="F"), np.zeros((8, 6), dtype, order="F")
    with offload_args(there, device=cuda) as (d,):
        getattr(cublas, f"set_matrix{form}")(rows, cols, A.itemsize, A[1:4, 2:], 6, d, 4)
        getattr(cublas, f"get_matrix{form}")(rows, cols, A.itemsize, d, d.ld, back[2:5, 1:], 8)
    expected = np.zeros_like(there)
    expected[:3] = A[1:4, 2:]
    np.testing.assert_array_equal(there, expected)
    expected = np.zeros_like(back)
    expected[2:5, 1:] = A[1:4, 2:]
    np.testing.assert_array_equal(back, expected)


def test_copies_run_behind_the_calls_before_them(cuda: str) -> None:
    n = 1 << 20
    x, y = np.ones(n, np.float32), np.empty(n, np.float32)
    for form in ("", "_async"):
        with offload_args(In(x), device=cuda) as (dx,), offload_args(Out(y), device=cuda) as (dy,):
            getattr(cublas, f"set_vector{form}")(n, 4, x * 2, 1, dy, 1)
            for _ in range(5):
                cublas.saxpy(n, 1.0, dx, 1, dy, 1)
            result = np.empty(n, np.float32)
            getattr(cublas, f"get_vector{form}")(n, 4, dy, 1, result, 1)
            np.testing.assert_array_equal(result, np.full(n, 7.0))
            cublas.sscal(n, 0.5, dy, 1)
        np.testing.assert_array_equal(y, np.full(n, 3.5))


def test_nothing_is_copied_of_nothing(cuda: str) -> None:
    x, y = np.ones(2), np.full(2, 5.0)
    with offload_args(y, device=cuda) as (dy,):
        cublas.set_vector(0, 8, x[:0], 1, dy, 1)
        cublas.get_vector(0, 8, dy, 1, x[:0], 1)
        cublas.set_matrix(0, 3, 8, x, 1, dy, 1)
    np.testing.assert_array_equal(y, [5, 5])


def test_a_host_array_that_is_too_short_is_refused(cuda: str) -> None:
    x, A = np.ones(9), np.ones((4, 6), order="F")
    with offload_args(np.zeros(100), device=cuda) as (d,):
        cublas.set_vector(5, 8, x, 2, d, 1)
        cublas.set_matrix(4, 6, 8, A, 4, d, 4)
        for n, inc, needed in [(6, 2, 11), (10, 1, 10), (2, 9, 10)]:
            with pytest.raises(ExtentError, match=f"cublas.set_vector: x needs {needed} elements .*, has 9"):
                cublas.set_vector(n, 8, x, inc, d, 1)
            with pytest.raises(ExtentError, match=f"cublas.get_vector: y needs {needed} elements .*, has 9"):
                cublas.get_vector(n, 8, d, 1, x, inc)
        with pytest.raises(ExtentError, match="cublas.set_vector: y needs 101 elements"):
            cublas.set_vector(5, 8, x, 2, d, 25)
        with pytest.raises(ExtentError, match=r"A needs 30 elements \(rows=5, cols=6, lda=5\), has 24"):
            cublas.set_matrix(5, 6, 8, A, 5, d, 5)
        with pytest.raises(ExtentError, match=r"A \(rows=3, cols=3, lda=3\) would touch elements between those of its"):
            cublas.set_matrix(3, 3, 8, A[:2], 3, d, 3)
        with pytest.raises(ExtentError, match="lda needs at least 5"):
            cublas.set_matrix(5, 2, 8, A, 4, d, 5)
        with pytest.raises(ArgumentError, match="n needs to be at least 0, got -1"):
            cublas.set_vector(-1, 8, x, 1, d, 1)


def test_the_size_of_an_element_is_that_of_both_arrays(cuda: str) -> None:
    x = np.ones(4, np.float32)
    with offload_args(np.zeros(4, np.float32), device=cuda) as (d,):
        with pytest.raises(
            ArgumentError, match=r"elemSize needs to be 4, the bytes of an element of y \(float32\), got 8"
        ):
            cublas.set_vector(2, 8, x, 1, d, 1)
        with pytest.raises(DTypeError, match="x needs an array of float32, as the device array has, got int32"):
            cublas.set_vector(4, 4, x.astype(np.int32), 1, d, 1)
        with pytest.raises(DTypeError, match="x needs a NumPy array of the host, of a dtype that devices can hold"):
            cublas.set_vector(4, 4, np.array(["a"] * 4), 1, d, 1)


def test_what_is_not_an_array_of_the_host_is_refused(cuda: str) -> None:
    x = np.ones(4)
    with offload_args(np.zeros(4), device=cuda) as (d,):
        wrong: Any
        for wrong, error in [(x.ctypes.data, ArgumentTypeError), ([1.0] * 4, ArgumentTypeError), (d, HostPointerError)]:
            with pytest.raises(error, match="cublas.set_vector: x needs a NumPy array of the host, got"):
                cublas.set_vector(4, 8, wrong, 1, d, 1)
            with pytest.raises(error, match="cublas.get_matrix: B needs a NumPy array of the host, got"):
                cublas.get_matrix(2, 2, 8, d, 2, wrong, 2)
        with pytest.raises(HostPointerError, match=r"cublas.get_vector: x needs a DevicePtr, got a NumPy array"):
            cublas.get_vector(4, 8, x, 1, x, 1)  # type: ignore[arg-type]
        for odd in (x[::-1], np.ones((4, 4, 4))[::2, ::2, ::2], np.broadcast_to(x[:1], (4,))):
            with pytest.raises(ArgumentError, match="x needs an array in C or Fortran order, or a part of one"):
                cublas.set_vector(4, 8, odd, 1, d, 1)
    with pytest.raises(StalePointerError, match="cublas.set_vector: y is a pointer whose region has ended"):
        cublas.set_vector(4, 8, x, 1, d, 1)


def test_a_host_array_that_may_not_be_written_is_refused(cuda: str) -> None:
    x, locked = np.ones(4), np.ones(4)
    locked.flags.writeable = False
    with offload_args(x, device=cuda) as (d,):
        for array in (x, locked, x[1:]):
            with pytest.raises(DirectionError, match="cublas.get_vector: y needs to be writable, and is read-only, or"):
                cublas.get_vector(2, 8, d, 1, array, 1)
        cublas.set_vector(2, 8, locked, 1, d, 1)
    with offload_args(In(x), device=cuda) as (d,):
        with pytest.raises(DirectionError, match="y needs to be writable, but .* was lent as In"):
            cublas.set_vector(2, 8, locked, 1, d, 1)


def test_a_pointer_of_another_device_is_refused() -> None:
    with offload_args(np.ones(4), device="host") as (d,):
        with pytest.raises((WrongDeviceError, LibraryError), match="cublas"):
            cublas.set_vector(4, 8, np.ones(4), 1, d, 1)
