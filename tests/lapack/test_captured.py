"""LAPACK with its info on the device: calls for which nothing waits, and captured calls."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from offload_args import Device, In, blas, lapack, offload_args, testing
from offload_args.errors import (
    CaptureError,
    DTypeError,
    ExtentError,
    HostPointerError,
    StaleGraphError,
    WrongDeviceError,
)

N = 6
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])


def matrices(dtype: Any, order: Any = "F", seed: int = 0) -> list[Array]:
    """Return a positive definite matrix, right sides, tau, pivots and an info that no function leaves."""
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, N, N)) + (1j * rng.standard_normal((2, N, N)) if np.dtype(dtype).kind == "c" else 0)
    A = np.asarray(parts[0] @ parts[0].conj().T + N * np.eye(N), dtype, order=order)
    B = np.asarray(parts[1][:, :2], dtype, order="F")
    return [A, B, np.zeros(N, dtype), np.zeros(N, np.int32), np.full(1, 77, np.int32)]


class Lent:
    """The pointers to the arrays of `matrices`."""

    def __init__(self, pointers: Any) -> None:
        self.A, self.B, self.tau, self.ipiv, self.info = pointers


def posv_by_two(w: Lent, **info: Any) -> None:
    lapack.potrf(w.A, uplo="L", **info)
    lapack.potrs(w.A, w.B, uplo="L")


def inverse(w: Lent, **info: Any) -> None:
    lapack.potrf(w.A, **info)
    lapack.potri(w.A, **info)


def least_squares(w: Lent, **_: Any) -> None:
    lapack.geqrf(w.A, w.tau)
    lapack.ormqr(w.A, w.tau, w.B, trans="C")
    blas.trsm(1.0, w.A, w.B)


def q_of(w: Lent, **_: Any) -> None:
    lapack.geqrf(w.A, w.tau)
    lapack.orgqr(w.A, w.tau)


CALLS: dict[str, Callable[..., None]] = {
    "potrf": lambda w, **info: lapack.potrf(w.A, **info),
    "potrf, potrs": posv_by_two,
    "posv": lambda w, **info: lapack.posv(w.A, w.B, **info),
    "inverse": inverse,
    "getrf": lambda w, **info: lapack.getrf(w.A, w.ipiv, **info),
    "gesv": lambda w, **info: lapack.gesv(w.A, w.ipiv, w.B, **info),
    "QR": least_squares,
    "Q": q_of,
}
NO_INFO = ("QR", "Q")
EACH = pytest.mark.parametrize("name", CALLS)


def plainly(name: str, arrays: list[Array], device: str) -> list[Array]:
    """Return the arrays after the plain calls; their info is 0."""
    arrays = [array.copy(order="K") for array in arrays]
    with offload_args(*arrays, device=device) as pointers:
        CALLS[name](Lent(pointers))
    if name not in NO_INFO:
        arrays[4][:] = 0
    return arrays


def is_same(arrays: list[Array], others: list[Array]) -> bool:
    return all(np.array_equal(array, other) for array, other in zip(arrays, others, strict=True))


@pytest.mark.later("float64")
@TYPES
@EACH
def test_calls_whose_info_stays_on_the_device_give_the_bits_of_plain_ones(device: str, name: str, dtype: Any) -> None:
    takes_any_order = name not in NO_INFO and np.dtype(dtype).kind == "f"
    for order in ("F", "C") if takes_any_order else ("F",):
        arrays = matrices(dtype, order)
        expected = plainly(name, arrays, device)
        with offload_args(*arrays, device=device) as pointers:
            w = Lent(pointers)
            CALLS[name](w, info=w.info)
        assert is_same(arrays, expected)


@TYPES
@EACH
def test_captured_calls_give_the_bits_of_plain_ones_at_each_replay(device: str, name: str, dtype: Any) -> None:
    arrays = matrices(dtype)
    region = offload_args(*arrays, device=device)
    with region as pointers:
        w = Lent(pointers)
        if device.startswith("hip"):
            with region.capture() as g, pytest.raises(CaptureError, match="rocSOLVER"):
                CALLS[name](w, info=w.info)
            assert g.calls == 0
            return
        with region.capture(A=w.A, B=w.B) as g:
            CALLS[name](w, info=w.info)
        assert is_same([pointer.to_host() for pointer in pointers], matrices(dtype))  # nothing has run yet
        for seed in range(3):
            new = matrices(dtype, seed=seed)
            g.replay(A=new[0], B=new[1])
            expected = plainly(name, new, device)
            if name in NO_INFO:
                expected[4] = w.info.to_host()
            if name not in ("getrf", "gesv"):
                expected[3] = w.ipiv.to_host()
            if name not in NO_INFO:
                expected[2] = w.tau.to_host()
            assert is_same([pointer.to_host() for pointer in pointers], expected)
    if name == "gesv":
        np.testing.assert_allclose(new[0] @ arrays[1], new[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["potrf", "posv", "getrf", "gesv"])
def test_info_says_at_each_replay_which_matrix_fails(device: str, name: str) -> None:
    arrays = matrices(np.float64)
    bad, good = arrays[0].copy(order="F"), arrays[0].copy(order="F")
    bad[:, 2] = bad[2] = 0
    region = offload_args(*arrays, device=device)
    with region as pointers:
        w = Lent(pointers)
        w.A.assign(bad)
        CALLS[name](w, info=w.info)  # raises no error
        assert w.info.to_host() == 3
        if not device.startswith("hip"):
            with region.capture(A=w.A, info=w.info) as g:
                CALLS[name](w, info=g["info"])
            for A, info in ((good, 0), (bad, 3), (good, 0)):
                g.replay(A=A)
                assert w.info.to_host() == info
        w.B.assign(arrays[1].copy())


def refused(w: Lent) -> dict[str, tuple[Callable[[], object], str]]:
    """Return calls that a chain can't capture, each with words of its remedy."""
    return {
        "potrf": (lambda: lapack.potrf(w.A), "pass info="),
        "posv": (lambda: lapack.posv(w.A, w.B), "pass info="),
        "getrf": (lambda: lapack.getrf(w.A, w.ipiv), "pass info="),
        "gesv": (lambda: lapack.gesv(w.A, w.ipiv, w.B), "pass info="),
        "getrs": (lambda: lapack.getrs(w.A, w.ipiv, w.B), "solve by gesv"),
        "getri": (lambda: lapack.getri(w.A, w.ipiv), "solve by gesv"),
        "potri": (lambda: lapack.potri(w.A), "pass info="),
        "trtrs": (lambda: lapack.trtrs(w.A, w.B), "solve by blas.trsm"),
        "gels": (lambda: lapack.gels(w.A, w.B), "geqrf, ormqr and blas.trsm"),
        "gelsd": (lambda: lapack.gelsd(w.A, w.B, w.tau), "make the call outside of the capture"),
        "syevd": (lambda: lapack.syevd(w.A, w.tau), "make the call outside of the capture"),
        "sygvd": (lambda: lapack.sygvd(w.A, w.A, w.tau), "make the call outside of the capture"),
        "syevdx": (lambda: lapack.syevdx(w.A, w.tau), "make the call outside of the capture"),
        "gesvd": (lambda: lapack.gesvd(w.A, w.tau), "make the call outside of the capture"),
        "gecon": (lambda: lapack.gecon(w.A, 1.0), "make the call outside of the capture"),
        "pocon": (lambda: lapack.pocon(w.A, 1.0), "make the call outside of the capture"),
    }


def test_calls_that_need_the_host_are_refused_and_spoil_nothing(device: str) -> None:
    arrays = matrices(np.float64)
    expected = [array.copy() for array in arrays]
    region = offload_args(*arrays, device=device)
    with region as pointers:
        w = Lent(pointers)
        with region.capture() as g:
            blas.scal(2.0, w.tau)
            for name, (call, words) in refused(w).items():
                with pytest.raises(CaptureError, match=rf"^lapack\.{name}: the region is being captured, .* {words}"):
                    call()
            blas.scal(3.0, w.tau)
        assert [node.function for node in g.nodes] == [g.nodes[0].function] * 2
        w.tau.fill(1.0)
        g.replay()
        assert (w.tau.to_host() == 6).all()
        w.tau.assign(expected[2])
        lapack.posv(w.A, w.B)  # works as usual
        w.A.assign(expected[0])
        w.B.assign(expected[1])
    assert is_same(arrays, expected)


def test_info_is_one_int32_of_the_same_region(device: str) -> None:
    A, wide, two, other = np.eye(3), np.zeros(1, np.int64), np.zeros(2, np.int32), np.zeros(1, np.int32)
    region = offload_args(A, wide, two, device=device)
    with region as (dA, dwide, dtwo):
        for info, kind, words in (
            (dwide, DTypeError, "info needs int32"),
            (dtwo, ExtentError, r"info needs one element, got shape \(2,\)"),
            (other, HostPointerError, "info needs a DevicePtr"),
        ):
            with pytest.raises(kind, match=words):
                lapack.potrf(dA, info=info)  # type: ignore[arg-type]
        with offload_args(other, device=device) as (dother,):
            lapack.potrf(dA, info=dother)  # nothing is captured
            with region.capture() as g, pytest.raises(CaptureError, match="lend all in one region"):
                lapack.potrf(dA, info=dother)
            assert g.calls == 0
        elsewhere = "host" if device != "host" else testing.sim_device()
        with offload_args(other, device=elsewhere) as (dother,), pytest.raises(WrongDeviceError):
            lapack.potrf(dA, info=dother)
        with offload_args(np.zeros((2, 3, 3)), device=device) as (stack,):
            with pytest.raises(ExtentError, match=r"info has shape \(1,\) .* needs shape \(2,\)"):
                lapack.potrf(stack, info=dtwo[:1])
            with pytest.raises(DTypeError, match="info needs int32"):
                lapack.potrf(stack, info=dwide)
    assert (np.eye(3) == A).all()


def test_an_empty_matrix_has_info_0(device: str) -> None:
    A, B, ipiv, info = np.zeros((0, 0)), np.zeros((0, 2)), np.zeros(0, np.int32), np.full(2, 9, np.int32)
    region = offload_args(A, B, ipiv, info, device=device)
    with region as (dA, dB, dipiv, dinfo):
        with region.capture() as g:
            lapack.posv(dA, dB, info=dinfo[:1])
            lapack.gesv(dA, dipiv, dB, info=dinfo[1:])
        g.replay()
    assert (info == 0).all()


def test_a_graph_keeps_its_workspaces_and_frees_them_with_it(device: str) -> None:
    if device.startswith("hip"):
        return  # HIP captures no functions of rocSOLVER
    arrays = matrices(np.float64)
    expected = plainly("QR", arrays, device)
    region = offload_args(*arrays, device=device)
    with region as pointers:
        w = Lent(pointers)
        w.info.fill(0)
        [pointer.to_host() for pointer in pointers]
        Device(device).synchronize()
        gc.collect()  # frees garbage of earlier tests
        before = Device(device).counters.memory_used
        with region.capture(A=w.A, B=w.B) as g:
            least_squares(w)
        assert Device(device).counters.memory_used > before
        gc.collect()
        for size in (8, 1 << 10, 1 << 16):  # these arrays would get memory that the graph had freed
            spoiler = np.full(size, np.nan)
            with offload_args(spoiler, device=device) as (dspoiler,):
                blas.scal(1.0, dspoiler)
        g.replay(A=matrices(np.float64)[0], B=matrices(np.float64)[1])
        assert np.array_equal(w.B.to_host(), expected[1])
        del g
        gc.collect()
        assert Device(device).counters.memory_used == before


def test_a_chain_of_lapack_in_a_loop_ends_where_the_matrix_is_no_more_definite(device: str) -> None:
    if device.startswith("hip"):
        return  # HIP captures no functions of rocSOLVER
    A, W, ones, info = np.diag([9.0, 5.5, 7.0]), np.zeros((3, 3)), np.ones(3), np.zeros(1, np.int32)
    region = offload_args(A, W, In(ones), info, device=device)
    with region as (dA, dW, dones, dinfo):

        def step() -> None:
            dW.copy_from(dA)
            lapack.potrf(dW, info=dinfo)
            blas.axpy(-1.0, dones, dA._view(0, (3,), (32,)))

        assert region.loop(step, until=dinfo, at_most=50) == 7
    assert info[0] == 2 and A[1, 1] == -1.5


def test_a_graph_of_lapack_is_dead_with_its_region(device: str) -> None:
    if device.startswith("hip"):
        return  # HIP captures no functions of rocSOLVER
    arrays = matrices(np.float64)
    region = offload_args(*arrays, device=device)
    with region as pointers:
        w = Lent(pointers)
        with region.capture() as g:
            least_squares(w)
    with pytest.raises(StaleGraphError):
        g.replay()
