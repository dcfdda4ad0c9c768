"""LAPACK of stacks with their info on the device, and captured; a captured stack is a call for each matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from offload_args import DevicePtr, Out, blas, lapack, linalg, offload_args
from offload_args.errors import ArgumentError, CaptureError

COUNT, N = 3, 4


def stacks(seed: int = 0) -> list[Array]:
    """Return positive definite matrices, right sides, tau and pivots, by columns if LAPACK needs it."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((COUNT, N, N))
    A = A @ A.swapaxes(1, 2) + N * np.eye(N)
    B = np.ascontiguousarray(rng.standard_normal((COUNT, 2, N))).swapaxes(1, 2)
    return [A.swapaxes(1, 2), B, np.zeros((COUNT, N)), np.zeros((COUNT, N), np.int32)]


def with_info(call: Callable[..., None]) -> Callable[..., None]:
    call.takes_info = True  # type: ignore[attr-defined]
    return call


@with_info
def inverse(A: DevicePtr, B: DevicePtr, tau: DevicePtr, ipiv: DevicePtr, **info: Any) -> None:
    lapack.potrf(A, **info)
    lapack.potri(A, **info)


def least_squares(A: DevicePtr, B: DevicePtr, tau: DevicePtr, ipiv: DevicePtr) -> None:
    lapack.geqrf(A, tau)
    lapack.ormqr(A, tau, B, trans="T")


CALLS: dict[str, Callable[..., None]] = {
    "potrf": with_info(lambda A, B, tau, ipiv, **info: lapack.potrf(A, **info)),
    "posv": with_info(lambda A, B, tau, ipiv, **info: lapack.posv(A, B, **info)),
    "inverse": inverse,
    "getrf": with_info(lambda A, B, tau, ipiv, **info: lapack.getrf(A, ipiv, **info)),
    "gesv": with_info(lambda A, B, tau, ipiv, **info: lapack.gesv(A, ipiv, B, **info)),
    "potrs": lambda A, B, tau, ipiv: lapack.potrs(A, B),
    "QR": least_squares,
}
EACH = pytest.mark.parametrize("name", CALLS)


def plainly(name: str, arrays: list[Array], device: str) -> list[Array]:
    arrays = [array.copy(order="K") for array in arrays]
    with offload_args(*arrays, device=device) as pointers:
        CALLS[name](*pointers)
    return arrays


def near(arrays: list[Array], others: list[Array]) -> bool:
    return all(np.allclose(array, other, rtol=1e-12, atol=1e-12) for array, other in zip(arrays, others, strict=True))


@EACH
def test_a_captured_stack_is_right_at_each_replay(device: str, name: str) -> None:
    arrays, info = stacks(), np.full(COUNT, 77, np.int32)
    region = offload_args(*arrays, info, device=device)
    with region as (*pointers, dinfo):
        place = {"info": dinfo} if hasattr(CALLS[name], "takes_info") else {}
        if device.startswith("hip") and name != "potrs":
            with region.capture() as g, pytest.raises(CaptureError, match="rocSOLVER"):
                CALLS[name](*pointers, **place)
            return
        with region.capture(A=pointers[0], B=pointers[1]) as g:
            CALLS[name](*pointers, **place)
        assert near([pointer.to_host() for pointer in pointers], stacks())  # nothing has run yet
        for seed in range(2):
            new = stacks(seed)
            g.replay(A=new[0], B=new[1])
            expected = plainly(name, new, device)
            results = [pointer.to_host() for pointer in pointers]
            if name in ("potrf", "posv", "inverse"):  # the batched functions of cuSOLVER write the other triangle, too
                results[0], expected[0] = np.triu(results[0]), np.triu(expected[0])
            assert near(results[:2], expected[:2])
            assert not place or (dinfo.to_host() == 0).all()


@pytest.mark.parametrize("name", ["potrf", "posv", "getrf", "gesv"])
def test_info_of_a_stack_names_the_matrices_that_fail(device: str, name: str) -> None:
    arrays, info = stacks(), np.full(COUNT, 77, np.int32)
    arrays[0][1, :, 2] = arrays[0][1, 2] = 0
    good = plainly(name, [array[:1] for array in arrays], device)
    region = offload_args(*arrays, info, device=device)
    with region as (*pointers, dinfo):
        CALLS[name](*pointers, info=dinfo)  # raises no error
        assert dinfo.to_host().tolist() == [0, 3, 0]
        assert near([pointers[0][0].to_host()], [good[0][0]])
        if not device.startswith("hip"):
            bad = stacks()
            bad[0][2, :, 1] = bad[0][2, 1] = 0
            with region.capture(A=pointers[0]) as g:
                CALLS[name](*pointers, info=dinfo)
            g.replay(A=bad[0])
            assert dinfo.to_host().tolist() == [0, 0, 2]
        pointers[1].fill(0)


def test_stacks_that_need_the_host_are_refused_and_spoil_nothing(device: str) -> None:
    A, B, tau, ipiv = stacks()
    rows = np.ascontiguousarray(A)
    region = offload_args(A, B, Out(tau), ipiv, rows, device=device)
    with region as (dA, dB, dtau, dipiv, drows):
        refused: dict[str, tuple[Callable[[], None], str]] = {
            "potrf": (lambda: lapack.potrf(dA), r"pass info=, a DevicePtr of int32 and shape \(3,\)"),
            "gesv": (lambda: lapack.gesv(dA, dipiv, dB), "pass info="),
            "getrs": (lambda: lapack.getrs(dA, dipiv, dB), "the host reads the pivots.* solve by gesv"),
            "syevd": (lambda: lapack.syevd(dA, dtau), "make the call outside of the capture"),
            "gesvd": (lambda: lapack.gesvd(dA, dtau), "make the call outside of the capture"),
        }
        dtau.fill(2)
        with region.capture() as g:
            for name, (call, words) in refused.items():
                with pytest.raises(CaptureError, match=rf"^lapack\.{name}: the region is being captured.*{words}"):
                    call()
            with pytest.raises(ArgumentError, match="needs Fortran order"):
                lapack.geqrf(drows, dtau)
        assert g.calls == 0
    assert (tau == 2).all()


def test_lists_of_pointers_are_the_graphs_own(device: str) -> None:
    A, B, C = np.arange(12.0).reshape(2, 2, 3), np.ones((2, 3, 2)), np.zeros((2, 2, 2))
    region = offload_args(A, B, C, device=device)
    with region as (dA, dB, dC):
        with region.capture(A=dA) as g:
            blas.gemm_batched(1.0, [dA[1], dA[0]], [dB[0], dB[1]], 0.0, [dC[0], dC[1]])
        for size in (8, 64, 512):  # these arrays would get the memory of the addresses if the call had freed it
            spoiler = np.full(size, np.nan)
            with offload_args(spoiler, device=device) as (dspoiler,):
                blas.scal(1.0, dspoiler)
        for new in (A, 2 * A, -A):
            g.replay(A=new)
            assert np.array_equal(dC.to_host(), new[::-1] @ np.ones((3, 2)))
        (node,) = g.nodes
        assert "A" in node.reads and len(node.writes) == 1


def test_products_of_linalg_are_captured_with_the_memory_of_their_results(device: str) -> None:
    A, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, -1.0])
    region = offload_args(A, b, device=device)
    with region as (dA, db):
        with region.capture(A=dA) as g:
            power = linalg.matrix_power(dA, 3)
            product = linalg.matmul(power, db)
            with pytest.raises(CaptureError, match=r"^linalg\.matrix_power: .* call lapack\.gesv with info="):
                linalg.matrix_power(dA, -1)
        for new in (np.array([[0.0, 1.0], [2.0, 3.0]]), np.eye(2)):
            g.replay(A=new)
            assert np.array_equal(power.to_host(), np.linalg.matrix_power(new, 3))
            assert np.array_equal(product.to_host(), np.linalg.matrix_power(new, 3) @ b)


def test_powers_of_a_stack_by_columns_are_captured(device: str) -> None:
    A = np.arange(12.0).reshape(3, 2, 2)
    region = offload_args(A.swapaxes(1, 2), device=device)
    with region as (dA,):
        with region.capture() as g:
            power = linalg.matrix_power(dA, 2)
        g.replay()
        assert np.array_equal(power.to_host(), np.linalg.matrix_power(A.swapaxes(1, 2), 2))
