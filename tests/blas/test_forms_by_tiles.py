"""Operands of functions with devices in all forms that one call takes: lent and packed, reversed, wrapped."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.small_tiles import small_tiles
from offload_args import Device, In, InOut, Out, blas, lapack, offload_args
from offload_args.errors import ArgumentTypeError, DirectionError, HostAccessError, PerformanceWarning

__all__ = ["small_tiles"]

N = 20
Matrix = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(params=["host", "sim:0"])
def device(request: pytest.FixtureRequest, small_tiles: None) -> Device:
    return Device(request.param)


def every_second_column(A: Matrix) -> Matrix:
    return np.repeat(A, 2, axis=1)[:, ::2]


def gaps_along_both_axes(A: Matrix) -> Matrix:
    return np.kron(A, np.ones((2, 3)))[::2, ::3]


def reversed_rows(A: Matrix) -> Matrix:
    return A[::-1].copy()[::-1]


def reversed_columns(A: Matrix) -> Matrix:
    return A[:, ::-1].copy()[:, ::-1]


PACKED = [
    gaps_along_both_axes,
    reversed_rows,
    *(pytest.param(form, marks=pytest.mark.exhaustive) for form in (every_second_column, reversed_columns)),
]


def whole(seed: int) -> Matrix:
    return np.random.default_rng(seed).integers(-3, 4, (N, N)).astype(float)


FACTOR = np.triu(np.eye(N) * 2 + np.eye(N, k=1))
CALLS: dict[str, tuple[tuple[Matrix, ...], Callable[..., None]]] = {
    "gemm": ((whole(1), whole(2), whole(3)), lambda A, B, C, d: blas.gemm(1.0, A, B, 2.0, C, devices=d)),
    "gemm that overwrites": (
        (whole(1), whole(2), whole(3)),
        lambda A, B, C, d: blas.gemm(1.0, A, B, 0.0, C, devices=d),
    ),
    "syr2k": ((whole(1), whole(2), whole(3)), lambda A, B, C, d: blas.syr2k(1.0, A, B, 2.0, C, devices=d)),
    "trmm": ((FACTOR, whole(2)), lambda A, B, d: blas.trmm(1.0, A, B, devices=d)),
    "posv": ((FACTOR.T @ FACTOR, whole(2)), lambda A, B, d: lapack.posv(A, B, devices=d)),
    "potrs": ((FACTOR, whole(2)), lambda A, B, d: lapack.potrs(A, B, devices=d)),
}


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_a_region_has_packed_are_operands(device: Device, name: str, form: Callable[..., Matrix]) -> None:
    operands, call = CALLS[name]
    expected = [operand.copy() for operand in operands]
    call(*expected, [device])
    for i in range(len(operands)):
        arrays = [form(operand) if j == i else operand.copy() for j, operand in enumerate(operands)]
        around = None if arrays[i].base is None else arrays[i].base.copy()
        with pytest.warns(PerformanceWarning), offload_args(arrays[i], device=device) as (lent,):
            lent.assign(operands[i])  # the device's elements are newer than the host's
            arrays[i].base.flags.writeable = True  # type: ignore[union-attr]
            call(*arrays, [device])
        assert all(np.array_equal(array, other) for array, other in zip(arrays, expected, strict=True)), i
        if around is not None and form is every_second_column:
            assert np.array_equal(arrays[i].base[:, 1::2], around[:, 1::2]), i  # type: ignore[index]


@pytest.mark.parametrize("form", [lambda b: np.repeat(b, 3)[::3], lambda b: b[::-1].copy()[::-1]])
def test_right_sides_of_one_dimension_that_a_region_has_packed(device: Device, form: Callable[..., Matrix]) -> None:
    values = whole(4)[0]
    for function, A in ((lapack.posv, FACTOR.T @ FACTOR), (lapack.potrs, FACTOR)):
        B, expected = form(np.zeros(N)), values.copy()
        function(A.copy(), expected, devices=[device])
        with pytest.warns(PerformanceWarning) as warned, offload_args(B, device=device) as (lent,):
            lent.assign(values)
            function(A.copy(), B, devices=[device])
        assert np.array_equal(B, expected)
        assert len(warned) == 1  # no tile packs the array again


def unaligned(A: Matrix) -> Matrix:
    B: Matrix = np.ndarray(A.shape, A.dtype, np.zeros(A.nbytes + 1, np.uint8).data, 1)
    B[...] = A
    return B


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", [reversed_rows, unaligned])
def test_a_product_of_arrays_that_are_not_lent_packs_none_as_a_whole(
    device: Device, form: Callable[..., Matrix]
) -> None:
    operands, call = CALLS["gemm"]
    expected = 2 * operands[2] + operands[0] @ operands[1]
    for i in range(3):
        arrays = [form(operand) if j == i else operand.copy() for j, operand in enumerate(operands)]
        call(*arrays, [device])
        assert np.array_equal(arrays[2], expected)


def test_a_packed_out_is_refused_before_anything_moves(device: Device) -> None:
    A, C = whole(1), gaps_along_both_axes(whole(2))
    before = C.copy()
    with warnings.catch_warnings(action="ignore"), offload_args(Out(C), device=device):
        with pytest.raises(DirectionError, match=r"blas\.gemm: C.*InOut"):
            blas.gemm(1.0, A, A, 0.0, C, devices=[device])
    assert np.array_equal(C, before)


def test_pointers_are_refused_with_the_remedy_for_all_or_for_some_operands(device: Device) -> None:
    A, B, C = (whole(seed) for seed in range(3))
    expected = A @ B
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        with pytest.raises(HostAccessError, match=r"A needs a NumPy array, got a DevicePtr; leave devices out"):
            blas.gemm(1.0, dA, dB, 0.0, dC, devices=[device])
        with pytest.raises(HostAccessError, match=r"B needs a NumPy array, got a DevicePtr; pass the lent array"):
            blas.gemm(1.0, A, dB, 0.0, C, devices=[device])
        with pytest.raises(ArgumentTypeError, match=r"ipiv needs a NumPy array, got DevicePtr; pass an array of int32"):
            lapack.getrf(whole(3), dA, devices=[device])
        blas.gemm(1.0, A, B, 0.0, C, devices=[device])
    assert np.array_equal(C, expected)


@pytest.mark.parametrize("wrapper", [In, Out, InOut])
def test_wrapped_arrays_and_lists_are_refused_with_the_remedy(device: Device, wrapper: Callable[..., Any]) -> None:
    A = whole(1)
    for call in (
        lambda: blas.gemm(1.0, wrapper(A), A, 0.0, A.copy(), devices=[device]),
        lambda: lapack.potrf(wrapper(A), devices=[device]),
    ):
        with pytest.raises(ArgumentTypeError, match=rf"A needs a NumPy array, got {wrapper.__name__}; pass the array"):
            call()
    with pytest.raises(ArgumentTypeError, match=r"B needs a NumPy array, got list; make it an array, B = np\.asarray"):
        blas.gemm(1.0, A, A.tolist(), 0.0, A.copy(), devices=[device])


def test_a_packed_matrix_of_one_column_is_an_operand(device: Device) -> None:
    A, B = whole(1), gaps_along_both_axes(whole(2))[:, :1]
    C, D = np.zeros((N, 1)), np.zeros((1, N))
    with pytest.warns(PerformanceWarning), offload_args(B, device=device):
        blas.gemm(1.0, A, B, 0.0, C, devices=[device])
    with pytest.warns(PerformanceWarning), offload_args(B.T, device=device):
        blas.gemm(1.0, B.T, A, 0.0, D, devices=[device])
    assert np.array_equal(C, A @ B) and np.array_equal(D, B.T @ A)


def test_a_thread_that_can_not_start_ends_the_others(small_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    A, C, start = whole(1), np.zeros((N, N)), threading.Thread.start
    begun: list[threading.Thread] = []

    def start_one(thread: threading.Thread) -> None:
        if begun:
            raise MemoryError
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(MemoryError) as caught:
        blas.gemm(1.0, A, A, 0.0, C, devices=["sim:0"])
    assert caught.value.__notes__[0].startswith("blas.gemm: done: ")
    assert not begun[0].is_alive()
