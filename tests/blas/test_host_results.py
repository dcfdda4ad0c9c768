"""Results that the host gets belong to their own calls, whatever stream the calls are in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
from regions.test_graphs import RELAXED, Graphs

from offload_args import In, InOut, blas, cblas, offload_args, rocblas
from offload_args.errors import CaptureError, DirectionError

RESULTS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "nrm2": (blas.nrm2, np.linalg.norm),
    "asum": (blas.asum, lambda x: np.abs(x.real).sum() + np.abs(x.imag).sum()),
    "iamax": (blas.iamax, lambda x: np.argmax(np.abs(x.real) + np.abs(x.imag))),
    "dot": (lambda dx: (blas.dot if dx.dtype.kind == "f" else blas.dotu)(dx, dx), lambda x: x @ x),
}


@pytest.mark.parametrize("stream", ["the region's", "the caller's"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_a_result_is_that_of_its_call_and_not_of_an_earlier_one(device: str, dtype: type, stream: str) -> None:
    """T63. rocBLAS before 4.1 fetches some results in a stream that does not wait for other streams."""
    if stream == "the caller's" and not device.startswith(("cuda", "hip")):
        return  # only GPUs have such streams
    with ExitStack() as stack:
        own = {}
        if stream == "the caller's":
            own["stream"] = graphs = Graphs(device)
            stack.callback(graphs.destroy_stream)
        x = np.zeros(700, dtype)
        (dx,) = stack.enter_context(offload_args(x, device=device, **own))
        for turn in range(1, 5):
            now = np.zeros_like(x)
            now[turn * 100] = -turn
            now[turn] = 0.5
            dx.assign(now)
            for name, (call, expected) in RESULTS.items():
                np.testing.assert_allclose(call(dx), expected(now), rtol=1e-5, err_msg=f"{name}, turn {turn}")


def test_a_handle_of_the_callers_keeps_its_pointer_mode_whatever_way_a_result_takes(hip: str) -> None:
    """T63. The numbers are on the host, then on the device, and then on the host again."""
    x, result = np.arange(50.0), np.zeros(1)
    handle = rocblas.create_handle(hip)
    with offload_args(x, InOut(result), device=hip) as (dx, dresult):
        for turn in 1, 2, 3:
            rocblas.dscal(50, 2.0, dx, 1, handle=handle)
            assert rocblas.get_pointer_mode(handle) == rocblas.pointer_mode_host
            np.testing.assert_allclose(
                rocblas.dnrm2(50, dx, 1, handle=handle), 2.0**turn * np.linalg.norm(np.arange(50.0))
            )
            rocblas.dasum(50, dx, 1, result=dresult, handle=handle)
    np.testing.assert_allclose(result, 8 * np.arange(50.0).sum())


# Weights, of which none, one or both need scaling, once or several times; either product is greater; and a case without
# a rotation.
ROTATIONS = [
    (2, 3, 1.5, 0.5),
    (1e-9, 3e-9, 0.5, 1.5),
    (1e9, 3e-9, 0.5, 1.5),
    (3e-9, 2e9, 1.5, 0.5),
    (1e-12, 1e12, 2, 3),
]
ROTATIONS += [(2e-30, 1e-30, 0.5, 0.25), (-1, 3, 0.5, 1.5), (1, -3, 0.5, 1.5), (3, -1, 1.5, 0.5), (2, 3, 1.5, 0)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", ROTATIONS)
def test_rotmg_of_amd_is_that_of_the_reference(hip: str, numbers: tuple[float, ...], dtype: type) -> None:
    """T63. rocBLAS sets elements of H a second time if it scales both weights."""
    arguments: list[Any] = [np.array([number], dtype) for number in numbers]
    param: Any = np.full(5, 7, dtype)
    letter = "s" if dtype is np.float32 else "d"
    expected = getattr(cblas, f"{letter}rotmg")(*(float(value[0]) for value in arguments))
    with offload_args(*arguments, param, device=hip) as pointers:
        blas.rotmg(*pointers)
    close = partial(np.testing.assert_allclose, rtol=8 * float(np.finfo(dtype).eps), err_msg=f"{numbers}")
    close([value[0] for value in arguments[:3]], expected[:3])
    assert arguments[3][0] == dtype(numbers[3]) and param[0] == expected[3][0]
    said: list[int] = {-2: [], -1: [1, 2, 3, 4], 0: [2, 3], 1: [1, 4]}[int(param[0])]  # the flag implies the rest
    close(param[said], np.array(expected[3])[said])


def test_rotmg_of_amd_refuses_before_it_writes(hip: str) -> None:
    """T62, T63.

    Refused are wrong arguments, and a captured stream, because a graph would lack the host's computation.
    """
    arguments: list[Any] = [np.array([value]) for value in (1e-9, 3e-9, 0.5, 1.5)] + [np.zeros(5)]
    before = [array.copy() for array in arguments]
    graphs = Graphs(hip)
    try:
        with offload_args(*arguments[:2], In(arguments[2]), *arguments[3:], device=hip) as pointers:
            with pytest.raises(DirectionError, match="x1"):
                blas.rotmg(*pointers)
        with offload_args(*arguments, device=hip, stream=graphs) as pointers:
            for pointer in pointers:  # their bytes are on the device, and newer than the host's
                pointer.fill(1.0)
            with graphs.captured(RELAXED):
                with pytest.raises(CaptureError):
                    blas.rotmg(*pointers)
                blas.scal(2.0, pointers[4])
            for pointer, value in zip(pointers, before, strict=True):
                pointer.assign(value)
    finally:
        graphs.destroy()
    for array, value in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(array, value)


def test_threads_in_one_region_get_their_own_results(device: str) -> None:
    A = np.random.default_rng(3).integers(-99, 99, (64, 8)).astype(np.float64)
    sums = np.abs(A).sum(axis=1)

    def read(first: int) -> None:
        for turn in range(300):
            row = (first + 5 * turn) % 64
            assert blas.asum(dA[row]) == sums[row]

    with offload_args(A, device=device) as (dA,), ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read, 16 * i) for i in range(4)]:
            done.result()
