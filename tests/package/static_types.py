"""Types that static checkers must know: `make lint` checks this file, and test_static_types.py runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type, no_type_check

import numpy as np
from numpy.typing import NDArray

from offload_args import DevicePtr, In, InOut, Out, Scratch, blas, call, kernel, kernels, launch, offload_args


def regions_give_pointers(x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    with offload_args(In(x), Out(y), device="host") as (dx, dy):
        assert_type(dx, DevicePtr[Any])
        dy.copy_from(dx)
        assert_type(dx[1:].shape, tuple[int, ...])
    many = [x, y]
    with offload_args(*many, device="host") as pointers:
        assert_type(pointers, tuple[DevicePtr[Any], ...])
    region = offload_args(x, Scratch(3), device="host")
    (dz, dw) = region.open()
    assert_type(dz, DevicePtr[np.float32])
    assert_type(dw, DevicePtr[Any])
    assert_type(region.close(), None)


def a_decorator_makes_kernels_of_functions(function: Callable[..., None], dx: DevicePtr[Any]) -> None:
    assert_type(kernel(function), kernels.PythonKernel)
    assert_type(kernel(debug=True)(function), kernels.PythonKernel)
    launch(kernel(function), dx)
    kernel.function(function)


@kernel
@no_type_check
def halve(y: InOut[np.float32].by(kernels.Linear1D())):
    for i in y.mine():
        y[i] *= 0.5


class ByDLPack:
    """An array of another package that can be shared through DLPack only."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def regions_take_what_has_dlpack_alone(x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    with offload_args(ByDLPack(x), device="host") as pointers:
        assert_type(pointers, tuple[DevicePtr[Any], ...])
    with offload_args(In(x), ByDLPack(y), device="host") as (dx, dy):
        dy.copy_from(dx)


def regions_give_pointers_of_the_arrays_dtypes(x: NDArray[np.float32], y: NDArray[np.complex128]) -> None:
    i = np.arange(3)
    with offload_args(x) as (dx,):
        assert_type(dx, DevicePtr[np.float32])
        assert_type(dx.to_host(), NDArray[np.float32])
    with offload_args(x, In(y), i, device="host", resident=True) as (da, db, dc):
        assert_type(da, DevicePtr[np.float32])
        assert_type(db, DevicePtr[Any])
        assert_type(dc[1:].shape, tuple[int, ...])
    with offload_args(x, y, x, y, x, y, device="host") as six:
        assert_type(six[4], DevicePtr[np.float32])
        assert_type(six[5], DevicePtr[np.complex128])
    with offload_args(x, y, x, y, x, y, x, device="host") as seven:
        assert_type(seven, tuple[DevicePtr[Any], ...])
    untyped: Any = x
    with offload_args(untyped, device="host") as (dx,):
        pass
    try:
        offload_args([1.0, 2.0]).open()  # type: ignore[call-overload]
    except TypeError:
        pass


def a_call_returns_what_its_function_does(x: NDArray[np.float64]) -> None:
    def norm(dx: DevicePtr[np.float64], by: int) -> float:
        return by * float(blas.nrm2(dx))

    assert_type(call(norm, x, 2, device="host"), float)
    assert_type(call(blas.scal, 2.0, x, device="host"), None)


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
    regions_take_what_has_dlpack_alone(x, np.zeros(3, np.float32))
    regions_give_pointers_of_the_arrays_dtypes(x, np.zeros(3, np.complex128))
    a_call_returns_what_its_function_does(np.ones(3))
    pointers_keep_their_dtype(x)
