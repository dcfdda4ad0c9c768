"""cuSOLVER's 64-bit interface compared with NumPy and SciPy: eigenvalues, polar factors, reflectors, row exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from offload_args import In, Out, cusolver, offload_args
from offload_args.errors import ArgumentError, ExtentError, HostPointerError, LibraryVersionError

LIBRARY = "cusolver"

LOWER, UPPER = cusolver.CUBLAS_FILL_MODE_LOWER, cusolver.CUBLAS_FILL_MODE_UPPER
NONE, VECTOR = cusolver.EIG_MODE_NOVECTOR, cusolver.EIG_MODE_VECTOR


def lacks(name: str, call: Callable[[], Any]) -> bool:
    """Call the function; return whether the error says that the loaded version lacks it."""
    try:
        call()
    except LibraryVersionError as error:
        assert f"has no cusolverDn{name}: its version is" in str(error)
        return True
    return False


def some(*shape: int, dtype: Any = np.float64) -> Any:
    random = np.random.default_rng(7)
    values = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.standard_normal(shape)
    return np.asfortranarray(values, dtype)


def hermitian(n: int, dtype: Any) -> Any:
    values = some(n, n, dtype=dtype)
    return np.asfortranarray(values + values.conj().T)


def zeros(*shape: int, dtype: Any) -> Any:
    return np.zeros(shape, dtype, order="F")


def real(dtype: Any) -> Any:
    return np.zeros(0, dtype).real.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_xsyevdx_finds_the_eigenvalues_of_an_interval_or_of_places(gpu: str, dtype: Any) -> None:
    n, of = 12, real(dtype)
    original, tolerance = hermitian(n, dtype), 1e-4 if of == np.float32 else 1e-10
    expected, params = np.linalg.eigvalsh(original), cusolver.create_params()
    A, w, info = original.copy("F"), np.zeros(n, of), np.zeros(1, np.int32)
    with offload_args(A, w, Out(info), device=gpu) as (dA, dw, di):

        def find(mode: int, which: int, low: float, high: float, first: int, last: int) -> Any:
            dA.assign(original)
            passed = params, mode, which, LOWER, n, dtype, dA, n, low, high, first, last, of, dw, dtype, di
            count = cusolver.xsyevdx(*passed)
            assert di.to_host()[0] == 0
            return dw.to_host()[:count]

        np.testing.assert_allclose(find(VECTOR, cusolver.EIG_RANGE_I, 0, 0, 3, 7), expected[2:7], atol=tolerance)
        vectors = dA.to_host()[:, :5]
        np.testing.assert_allclose(original @ vectors, vectors * expected[2:7], atol=20 * tolerance)
        low, high = (expected[1] + expected[2]) / 2, (expected[8] + expected[9]) / 2
        np.testing.assert_allclose(find(NONE, cusolver.EIG_RANGE_V, low, high, 0, 0), expected[2:9], atol=tolerance)
        np.testing.assert_allclose(find(NONE, cusolver.EIG_RANGE_ALL, 0, 0, 0, 0), expected, atol=tolerance)


def test_xgeev_gives_the_eigenvalues_of_a_real_matrix_in_parts_or_complex(gpu: str) -> None:
    n, params = 9, cusolver.create_params()
    original = some(n, n)
    expected = np.sort_complex(np.linalg.eigvals(original))
    A, parts, info = original.copy("F"), np.zeros(2 * n), np.zeros(1, np.int32)
    V = zeros(n, n, dtype=np.float64)
    f8 = np.float64
    with offload_args(A, Out(parts), Out(V), Out(info), device=gpu) as (dA, dw, dV, di):
        with pytest.raises(ExtentError, match=r"^cusolver\.xgeev: W needs 18 elements .*has 17$"):
            cusolver.xgeev(params, NONE, VECTOR, n, f8, dA, n, f8, dw[:-1], f8, None, n, f8, dV, n, f8, di)
        cusolver.xgeev(params, NONE, VECTOR, n, f8, dA, n, f8, dw, f8, None, n, f8, dV, n, f8, di)
    actual = parts[:n] + 1j * parts[n:]
    np.testing.assert_allclose(np.sort_complex(actual), expected, atol=1e-10)
    assert info[0] == 0
    for at in np.flatnonzero(parts[n:] == 0):
        np.testing.assert_allclose(original @ V[:, at], parts[at] * V[:, at], atol=1e-10)


def test_xgeev_finds_right_vectors_of_a_complex_matrix(gpu: str) -> None:
    n, params, of = 8, cusolver.create_params(), np.complex128
    original = some(n, n, dtype=of)
    A, w, info, V = original.copy("F"), np.zeros(n, of), np.zeros(1, np.int32), zeros(n, n, dtype=of)
    with offload_args(A, Out(w), Out(V), Out(info), device=gpu) as (dA, dw, dV, di):
        cusolver.xgeev(params, NONE, VECTOR, n, of, dA, n, of, dw, of, None, n, of, dV, n, of, di)
        with pytest.raises(HostPointerError, match=r"^cusolver\.xgeev: VR needs a "):
            cusolver.xgeev(params, NONE, VECTOR, n, of, dA, n, of, dw, of, None, n, of, None, n, of, di)
    assert info[0] == 0
    np.testing.assert_allclose(original @ V, V * w, atol=1e-10)
    np.testing.assert_allclose(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(original)), atol=1e-10)


def test_xstedc_finds_the_eigenvalues_of_a_tridiagonal_matrix(gpu: str) -> None:
    n, params, of = 40, cusolver.create_params(), np.float64
    d, e = some(n), some(n - 1)
    whole = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    D, E, Z, info = d.copy(), e.copy(), zeros(n, n, dtype=of), np.zeros(1, np.int32)
    with offload_args(D, E, Z, info, device=gpu) as (dD, dE, dZ, di):
        if lacks("Xstedc", lambda: cusolver.xstedc(params, cusolver.EIG_COMP_I, n, of, dD, dE, of, dZ, n, of, di)):
            return
    assert info[0] == 0
    np.testing.assert_allclose(D, np.linalg.eigvalsh(whole), atol=1e-10)
    np.testing.assert_allclose(whole @ Z, Z * D, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_xgesvdr_approximates_a_matrix_of_low_rank(gpu: str, dtype: Any) -> None:
    m, n, k, p, params, of = 50, 30, 4, 6, cusolver.create_params(), real(dtype)
    original = np.asfortranarray(some(m, k, dtype=dtype) @ some(k, n, dtype=dtype))
    A, s, info = original.copy("F"), np.zeros(n, of), np.zeros(1, np.int32)
    U, V = zeros(m, k, dtype=dtype), zeros(n, k, dtype=dtype)
    jobs = params, cusolver.JOB_S, cusolver.JOB_S, m, n
    with offload_args(A, s, U, V, Out(info), device=gpu) as (dA, ds, dU, dV, di):
        rest = dtype, dA, m, of, ds, dtype, dU, m, dtype, dV, n, dtype, di
        with pytest.raises(ArgumentError, match=r"^cusolver\.xgesvdr: "):
            cusolver.xgesvdr(*jobs, k, n, 2, *rest)
        cusolver.xgesvdr(*jobs, k, p, 2, *rest)
    tolerance = 1e-3 if of == np.float32 else 1e-10
    assert info[0] == 0
    np.testing.assert_allclose(s[:k], np.linalg.svd(original, compute_uv=False)[:k], rtol=tolerance)
    np.testing.assert_allclose((U * s[:k]) @ V.conj().T, original, atol=100 * tolerance)


def test_xlarft_makes_the_factor_of_a_block_of_reflectors(gpu: str) -> None:
    n, k, params, of = 12, 5, cusolver.create_params(), np.float64
    (packed, tau), _ = scipy.linalg.qr(some(n, k), mode="raw")
    V = np.asfortranarray(np.tril(packed, -1) + np.eye(n, k))
    T = zeros(k, k, dtype=of)
    forward, columns = cusolver.CUBLAS_DIRECT_FORWARD, cusolver.CUBLAS_STOREV_COLUMNWISE
    with offload_args(In(V), In(tau), T, device=gpu) as (dV, dtau, dT):
        cusolver.xlarft(params, forward, columns, n, k, of, dV, n, of, dtau, of, dT, k, of)
    product = np.eye(n)
    for at in range(k):
        product = product @ (np.eye(n) - tau[at] * np.outer(V[:, at], V[:, at]))
    np.testing.assert_allclose(np.eye(n) - V @ np.triu(T) @ V.T, product, atol=1e-12)


def test_xpolar_factors_a_tall_matrix(gpu: str) -> None:
    m, n, params, of = 20, 6, cusolver.create_params(), np.float64
    original = some(m, n)
    A, H, numbers, info = original.copy("F"), zeros(n, n, dtype=of), np.zeros(3), np.zeros(1, np.int32)
    with offload_args(A, H, numbers, info, device=gpu) as (dA, dH, dn, di):
        outputs = dn[:1], dn[1:2], dn[2:], di
        with pytest.raises(ArgumentError, match="needs M >= N, got M = 5 and N = 6"):
            cusolver.xpolar(params, LOWER, 5, n, of, dA, m, of, dH, n, of, *outputs)
        if lacks("Xpolar", lambda: cusolver.xpolar(params, LOWER, m, n, of, dA, m, of, dH, n, of, *outputs)):
            return
    U, P = scipy.linalg.polar(original)
    assert info[0] == 0
    np.testing.assert_allclose(A, U, atol=1e-10)
    np.testing.assert_allclose(np.tril(H), np.tril(P), atol=1e-10)
    np.testing.assert_allclose(numbers[1], np.linalg.norm(original), rtol=1e-10)


def positive(n: int, dtype: Any, seed: int = 0) -> Any:
    values = np.roll(some(n, n, dtype=dtype), seed)
    return np.asfortranarray(values @ values.conj().T + n * np.eye(n), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_xsygvdx_finds_some_eigenvalues_of_a_pencil(gpu: str, dtype: Any) -> None:
    n = 10
    A, B, w, info = hermitian(n, dtype), positive(n, dtype), np.zeros(n), np.full(1, 7, np.int32)
    a, b, count = A.copy("F"), B.copy("F"), 0

    def call() -> None:
        nonlocal count
        with offload_args(a, b, w, Out(info), device=gpu) as (pa, pb, pw, pi), cusolver.create_params() as params:
            count = cusolver.xsygvdx(
                params, cusolver.EIG_TYPE_1, VECTOR, cusolver.EIG_RANGE_I, LOWER, n, a.dtype, pa, n, b.dtype, pb, n,
                0.0, 0.0, 3, 6, w.dtype, pw, a.dtype, pi,
            )  # fmt: skip

    if lacks("Xsygvdx", call):
        return
    values = scipy.linalg.eigh(A, B, eigvals_only=True)[2:6]
    assert (count, info[0]) == (4, 0)
    np.testing.assert_allclose(w[:4], values, rtol=1e-9)
    np.testing.assert_allclose(A @ a[:, :4], B @ a[:, :4] * w[:4], atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_xsygv_strided_batched_finds_the_eigenvalues_of_each_pencil(gpu: str, dtype: Any) -> None:
    n, count, of = 6, 3, real(dtype)
    A = np.stack([hermitian(n, dtype) * (1 + at) for at in range(count)])  # Hermitian, so C order only conjugates
    B = np.stack([positive(n, dtype, at) for at in range(count)])
    a, b, w, info = A.conj().copy(), B.conj().copy(), np.zeros((count, n), of), np.full(count, 7, np.int32)

    def call() -> None:
        with offload_args(a, b, Out(w), Out(info), device=gpu) as (pa, pb, pw, pi), cusolver.create_params() as params:
            cusolver.xsygv_strided_batched(
                params, cusolver.EIG_TYPE_1, VECTOR, LOWER, n, a.dtype, pa, n, n * n, b.dtype, pb, n, n * n,
                of, pw, n, a.dtype, count, pi,
            )  # fmt: skip

    if lacks("XsygvStridedBatched", call):
        return
    assert info.tolist() == [0] * count
    tolerance = 1e-4 if of == np.float32 else 1e-10
    for at in range(count):
        np.testing.assert_allclose(w[at], scipy.linalg.eigh(A[at], B[at], eigvals_only=True), rtol=tolerance)
        vectors = a[at].T
        np.testing.assert_allclose(A[at] @ vectors, B[at] @ vectors * w[at], atol=100 * tolerance)
