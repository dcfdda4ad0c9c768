"""cuSOLVER uses workspaces of the core and info on the device, and its 64-bit interface takes dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.processes import python
from offload_args import Device, In, Out, cusolver, offload_args
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    StalePointerError,
)

LIBRARY = "cusolver"

LOWER, UPPER = cusolver.CUBLAS_FILL_MODE_LOWER, cusolver.CUBLAS_FILL_MODE_UPPER


def definite(n: int, dtype: Any = np.float64) -> Any:
    values = np.random.default_rng(3).standard_normal((n, n))
    return np.asfortranarray(values @ values.T + n * np.eye(n), dtype)


@pytest.mark.parametrize(("letter", "dtype"), [("s", "f4"), ("d", "f8"), ("c", "c8"), ("z", "c16")])
def test_potrf_and_potri_invert_a_definite_matrix(gpu: str, letter: str, dtype: str) -> None:
    original = definite(20, dtype)
    A, info = original.copy("F"), np.full(1, 9, np.int32)
    with offload_args(A, Out(info), device=gpu) as (dA, dinfo):
        getattr(cusolver, f"{letter}potrf")(LOWER, 20, dA, dA.ld, dinfo)
        assert dinfo.to_host().tolist() == [0]
        getattr(cusolver, f"{letter}potri")(LOWER, 20, dA, dA.ld, dinfo)
    inverse = np.tril(A) + np.tril(A, -1).conj().T
    np.testing.assert_allclose(original @ inverse, np.eye(20), atol=2e-4 if dtype in ("f4", "c8") else 1e-12)


def test_info_says_the_pivot_and_the_call_itself_raises_nothing(gpu: str) -> None:
    A, info = np.diag([1.0, 4.0, -1.0]), np.empty(1, np.int32)
    with offload_args(A, Out(info), device=gpu) as (dA, dinfo):
        cusolver.dpotrf(UPPER, 3, dA, dA.ld, dinfo)
    assert info.tolist() == [3]


def test_workspaces_come_from_the_pool_and_go_back(gpu: str) -> None:
    original, info, device = definite(64), np.empty(1, np.int32), Device(gpu)
    with offload_args(original.copy("F"), Out(info), device=gpu) as (dA, dinfo):
        cusolver.dpotrf(LOWER, 64, dA, dA.ld, dinfo)
        used = device.counters.memory_used
        for _ in range(200):
            dA.assign(original)
            cusolver.dpotrf(LOWER, 64, dA, dA.ld, dinfo)
        assert device.counters.memory_used == used
        assert dinfo.to_host().tolist() == [0]


def test_the_64_bit_interface_takes_dtypes_and_a_workspace_on_the_host(gpu: str) -> None:
    original, params = definite(9, np.complex128), cusolver.create_params()
    A, info, ipiv = original.copy("F"), np.full(1, 9, np.int32), np.zeros(9, np.int64)
    with offload_args(A, Out(info), device=gpu) as (dA, dinfo):
        cusolver.xpotrf(params, LOWER, 9, np.complex128, dA, dA.ld, cusolver.CUDA_C_64F, dinfo)
    np.testing.assert_allclose(np.tril(A), np.linalg.cholesky(original), atol=1e-12)
    B = original.copy("F")
    with offload_args(B, Out(ipiv), Out(info), device=gpu) as (dB, dp, dinfo):
        cusolver.xgetrf(params, 9, 9, np.complex128, dB, dB.ld, dp, np.complex128, dinfo)
        with pytest.raises(DTypeError, match=r"^cusolver\.xgetrf: A .*float32.*complex128"):
            cusolver.xgetrf(params, 9, 9, np.float32, dB, dB.ld, dp, np.float32, dinfo)
        with pytest.raises((ArgumentTypeError, HostPointerError), match=r"^cusolver\.xgetrf: params "):
            cusolver.xgetrf(None, 9, 9, np.complex128, dB, dB.ld, dp, np.complex128, dinfo)  # type: ignore[arg-type]
    assert info.tolist() == [0] and ipiv.min() >= 1


def test_a_batch_has_an_info_for_each_matrix(gpu: str) -> None:
    A = [np.diag([4.0, 9.0]), np.diag([4.0, -9.0]), np.diag([-4.0, 9.0])]
    info = np.empty(3, np.int32)
    with offload_args(*A, Out(info), device=gpu) as (*dA, dinfo):
        cusolver.dpotrf_batched(LOWER, 2, dA, 2, dinfo, 3)
    assert info.tolist() == [0, 2, 1]
    assert A[0].tolist() == [[2.0, 0.0], [0.0, 3.0]]


def test_gesvd_takes_none_for_vectors_that_it_does_not_make(gpu: str) -> None:
    original = np.asfortranarray(np.arange(12.0).reshape(4, 3) ** 1.5)
    s, U, info = np.empty(3), np.empty((4, 4), order="F"), np.empty(1, np.int32)
    with offload_args(original.copy("F"), Out(s), Out(U), Out(info), device=gpu) as (dA, ds, dU, dinfo):
        none = cusolver.JOB_N
        cusolver.dgesvd(none, none, 4, 3, dA, dA.ld, ds, None, 4, None, 3, dinfo)
        dA.assign(original)
        cusolver.dgesvd(cusolver.JOB_A, none, 4, 3, dA, dA.ld, ds, dU, 4, None, 3, dinfo)
        with pytest.raises(HostPointerError, match=r"^cusolver\.dgesvd: U needs a "):
            cusolver.dgesvd(cusolver.JOB_A, none, 4, 3, dA, dA.ld, ds, None, 4, None, 3, dinfo)
    np.testing.assert_allclose(s, np.linalg.svd(original, compute_uv=False), rtol=1e-12)
    np.testing.assert_allclose(U @ U.T, np.eye(4), atol=1e-12)


@pytest.mark.parametrize(("letter", "dtype"), [("s", np.float32), ("z", np.complex128)])
def test_gesvda_finds_the_largest_singular_values_of_a_batch(gpu: str, letter: str, dtype: Any) -> None:
    count, m, n, rank = 3, 20, 4, 3
    random = np.random.default_rng(2)
    original = random.standard_normal((count, n, m)).astype(dtype)  # by columns
    if dtype is np.complex128:
        original = original + 1j * random.standard_normal(original.shape)
    s, info = np.zeros((count, rank), original.real.dtype), np.zeros(count, np.int32)
    U, V = np.zeros((count, rank, m), original.dtype), np.zeros((count, rank, n), original.dtype)
    vectors, function = cusolver.EIG_MODE_VECTOR, getattr(cusolver, f"{letter}gesvda_strided_batched")
    with offload_args(In(original), Out(s), Out(U), Out(V), Out(info), device=gpu) as (dA, ds, dU, dV, dinfo):
        shape = m, m * n, ds, rank, dU, m, m * rank, dV, n, n * rank, dinfo, count
        with pytest.raises(ArgumentError, match="needs m >= n, got m = 2 and n = 4"):
            function(vectors, rank, 2, n, dA, *shape)
        function(vectors, rank, m, n, dA, *shape)
    expected = np.linalg.svd(original, compute_uv=False)
    np.testing.assert_allclose(s, expected[:, :rank], rtol=2e-3)
    product = np.einsum("bki,bk,bkj->bij", U, s, V.conj())  # rank 3 of 4
    assert np.linalg.norm(product.transpose(0, 2, 1) - original) <= 1.05 * np.linalg.norm(expected[:, rank:])
    assert not info.any()


@pytest.mark.promise("T31")
def test_an_array_one_element_short_is_refused_before_the_library_is_called(gpu: str) -> None:
    A, tau, info = np.zeros((4, 3), order="F"), np.empty(3), np.empty(1, np.int32)
    before = Device(gpu).counters.calls
    with offload_args(A, tau, info, device=gpu) as (dA, dtau, dinfo):
        with pytest.raises(ExtentError, match=r"^cusolver\.dgeqrf: A needs 15 elements .* has 12$"):
            cusolver.dgeqrf(5, 3, dA, 5, dtau, dinfo)
        with pytest.raises(ExtentError, match=r"^cusolver\.dgeqrf: TAU needs 3 elements .* has 2$"):
            cusolver.dgeqrf(4, 3, dA, 4, dtau[:2], dinfo)
    assert Device(gpu).counters.calls == before
    with pytest.raises(StalePointerError):
        cusolver.dgeqrf(4, 3, dA, 4, dtau, dinfo)


LIMITED = """
import numpy as np
from offload_args import Out, cusolver, offload_args
from offload_args.errors import DeviceMemoryError
A, info = np.eye({n}), np.zeros(1, np.int32)
with offload_args(A, info, device="{device}") as (dA, dinfo):
    try:
        cusolver.dpotrf(cusolver.CUBLAS_FILL_MODE_LOWER, {n}, dA, dA.ld, dinfo)
    except DeviceMemoryError as error:
        print(error)
print(info[0], A.sum())
"""


def test_a_workspace_that_finds_no_room_is_named_and_nothing_is_marked(gpu: str) -> None:
    limit = 8 * 1000 * 1000 + 4096  # room for A and info, and little else
    use = python(LIMITED.format(device=gpu, n=1000), OFFLOAD_ARGS_MEMORY_LIMIT=str(limit))
    message, sums = use.stdout.splitlines()
    assert "cusolver.dpotrf: its workspace of" in message and "OFFLOAD_ARGS_MEMORY_LIMIT" in message
    assert sums == "0 1000.0"


def test_a_handle_of_ones_own_is_used(gpu: str) -> None:
    A, info = definite(5), np.empty(1, np.int32)
    with cusolver.create(gpu) as handle, offload_args(In(A), Out(info), device=gpu) as (dA, dinfo):
        B = np.ones(5)
        with offload_args(B, device=gpu) as (dB,):
            cusolver.dpotrs(LOWER, 5, 1, dA, dA.ld, dB, 5, dinfo, handle=handle)
        assert dinfo.to_host().tolist() == [0]


def test_the_settings_of_jacobi_methods_are_objects(gpu: str) -> None:
    original, w, info = definite(6), np.empty(6), np.empty(1, np.int32)
    with cusolver.create_syevj_info() as settings:
        cusolver.xsyevj_set_tolerance(settings, 1e-12)
        cusolver.xsyevj_set_max_sweeps(settings, 50)
        with offload_args(original.copy("F"), Out(w), Out(info), device=gpu) as (dA, dw, dinfo):
            cusolver.dsyevj(cusolver.EIG_MODE_VECTOR, LOWER, 6, dA, dA.ld, dw, dinfo, settings)
    assert info.tolist() == [0]
    np.testing.assert_allclose(w, np.linalg.eigvalsh(original), rtol=1e-10)
