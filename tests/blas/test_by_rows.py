"""Bands and packed triangles by rows: every function agrees with NumPy in each operation, including conjugation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offload_args import In, Out, blas, offload_args
from offload_args.errors import AliasError, ArgumentError, DirectionError

N, K = 5, 2
DTYPES = ("float64", "complex64", "complex128")


def some(dtype: Any, *shape: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape)
    return (values if np.dtype(dtype).kind == "c" else values.real).astype(dtype)


def band_rows(A: Any, kl: int, ku: int) -> Any:
    """Return the band of a matrix by rows, in which [i, kl + j - i] is A[i, j]."""
    rows = np.full((A.shape[0], kl + ku + 1), 99, A.dtype)
    for i, j in np.argwhere(np.ones_like(A, bool)):
        if -kl <= j - i <= ku:
            rows[i, kl + j - i] = A[i, j]
    return rows


def banded(A: Any, kl: int, ku: int) -> Any:
    return np.tril(np.triu(A, -kl), ku)


def operation(A: Any, trans: str) -> Any:
    return {"N": A, "T": A.T, "C": A.conj().T}[trans]


def triangle(A: Any, uplo: str) -> Any:
    return np.triu(A) if uplo == "U" else np.tril(A)


def packed_rows(A: Any, uplo: str) -> Any:
    return A[np.triu_indices(len(A)) if uplo == "U" else np.tril_indices(len(A))]


def close(actual: Any, expected: Any, case: object = "") -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3, err_msg=str(case))


@pytest.mark.later("host")
@pytest.mark.parametrize("steps", [(1, 1), (2, -1), (-1, 3)])
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("dtype", DTYPES)
def test_gbmv_takes_a_band_by_rows(device: str, dtype: Any, trans: str, steps: tuple[int, int]) -> None:
    A = banded(some(dtype, N + 1, N), 2, 1)
    inner, outer = (N, N + 1) if trans == "N" else (N + 1, N)
    x, y = some(dtype, 3 * inner, seed=2), some(dtype, 3 * outer, seed=3)
    alpha, beta = (2 - 1j, 1j) if np.dtype(dtype).kind == "c" else (2, 3)
    rows = np.empty((N + 1, 7), dtype)[:, 1:5]
    rows[:] = band_rows(A, 2, 1)
    u, v, before = x[:: steps[0]][:inner], y[:: steps[1]][:outer], y.copy()
    scalars = np.array([alpha], dtype), np.array([beta], dtype)
    with offload_args(In(rows), In(x), y, *scalars, device=device) as (dr, dx, dy, *numbers):
        pu, pv = dx[:: steps[0]][:inner], dy[:: steps[1]][:outer]
        blas.gbmv(alpha, dr, pu, beta, pv, kl=2, ku=1, trans=trans, order="C")
        first = alpha * operation(A, trans) @ u + beta * v
        blas.gbmv(numbers[0], dr, pu, numbers[1], pv, kl=2, ku=1, trans=trans, order="C")
    close(v, alpha * operation(A, trans) @ u + beta * first)
    others = np.setdiff1d(np.arange(len(y)), np.arange(len(y))[:: steps[1]][:outer])
    np.testing.assert_array_equal(y[others], before[others])


@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("dtype", DTYPES)
def test_hermitian_bands_and_packed_triangles_by_rows(device: str, dtype: Any, uplo: str) -> None:
    is_complex = np.dtype(dtype).kind == "c"
    B = some(dtype, N, N)
    H = B + B.conj().T
    band, ap = banded(H, K, K), packed_rows(H, uplo)
    rows = band_rows(band, 0, K) if uplo == "U" else band_rows(band, K, 0)
    x, y, z = some(dtype, N, seed=2), some(dtype, N, seed=3), some(dtype, N, seed=4)
    alpha, beta = (2 - 1j, 1j) if is_complex else (2, 3)
    w = np.empty(N, dtype)
    with offload_args(In(rows), In(ap), In(x), y, z, Out(w), device=device) as (dr, dap, dx, dy, dz, dw):
        blas.hbmv(alpha, dr, dx, beta, dy, uplo=uplo, order="C")
        blas.hpmv(alpha, dap, dx, beta, dz[::-1], uplo=uplo, order="C")
        blas.hpmv(alpha, dap, dx, 0, dw, uplo=uplo, order="C")
        if not is_complex:
            blas.sbmv(alpha, dr, dx, 0, dw, uplo=uplo, order="C")
            blas.spmv(alpha, dap, dx, 0, dw, uplo=uplo, order="C")
    close(y, alpha * band @ x + beta * some(dtype, N, seed=3))
    close(z[::-1], alpha * H @ x + beta * some(dtype, N, seed=4)[::-1])
    close(w, alpha * H @ x)


@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_of_packed_triangles_by_rows(device: str, dtype: Any, uplo: str) -> None:
    B = some(dtype, N, N)
    H = B + B.conj().T
    x, y = some(dtype, N, seed=2), some(dtype, 2 * N, seed=3)
    v, alpha = y[::-2], 2 - 1j if np.dtype(dtype).kind == "c" else 2
    packed, two = packed_rows(H, uplo), packed_rows(H, uplo)
    with offload_args(packed, two, In(x), In(y), device=device) as (d_one, d_two, dx, dy):
        blas.hpr(3.0, dx, d_one, uplo=uplo, order="C")
        blas.hpr2(alpha, dx, dy[::-2], d_two, uplo=uplo, order="C")
        if dtype == "float64":
            blas.spr(3.0, dx, d_one, uplo=uplo, order="C")
            blas.spr(-3.0, dx, d_one, uplo=uplo, order="C")
            blas.spr2(1.0, dx, dy[::-2], d_two, uplo=uplo, order="C")
            blas.spr2(-1.0, dx, dy[::-2], d_two, uplo=uplo, order="C")
    close(packed, packed_rows(H + 3 * np.outer(x, x.conj()), uplo))
    close(two, packed_rows(H + alpha * np.outer(x, v.conj()) + np.conj(alpha) * np.outer(v, x.conj()), uplo))


@pytest.mark.later("host")
@pytest.mark.parametrize("diag", "NU")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_bands_and_packed_triangles_by_rows(
    device: str, dtype: Any, uplo: str, trans: str, diag: str
) -> None:
    T = triangle(some(dtype, N, N), uplo)
    T[np.diag_indices(N)] = 2
    band = banded(T, K, K)
    rows, ap = band_rows(band, 0, K) if uplo == "U" else band_rows(band, K, 0), packed_rows(T, uplo)
    if diag == "U":
        T[np.diag_indices(N)] = band[np.diag_indices(N)] = 1
    vectors = [some(dtype, N, seed=seed) for seed in (2, 3, 4, 5)]
    before = [vector.copy() for vector in vectors]
    options = {"uplo": uplo, "trans": trans, "diag": diag, "order": "C"}
    with offload_args(In(rows), In(ap), *vectors, device=device) as (dr, dap, *pointers):
        blas.tbmv(dr, pointers[0], **options)
        blas.tbsv(dr, pointers[1][::-1], **options)
        blas.tpmv(dap, pointers[2], **options)
        blas.tpsv(dap, pointers[3], **options)
    close(vectors[0], operation(band, trans) @ before[0], "tbmv")
    close(operation(band, trans) @ vectors[1][::-1], before[1][::-1], "tbsv")
    close(vectors[2], operation(T, trans) @ before[2], "tpmv")
    close(operation(T, trans) @ vectors[3], before[3], "tpsv")


def test_bands_of_another_shape_order_or_direction_are_refused_by_name(device: str) -> None:
    rows, x, y = np.ones((4, 3), np.complex64), np.ones(4, np.complex64), np.ones(4, np.complex64)
    with offload_args(rows, np.asfortranarray(rows), x, In(y), device=device) as (dr, df, dx, dy):
        for call, text in (
            (lambda: blas.gbmv(1, dr, dx, 0, dx, kl=1, ku=1, order="R"), r'gbmv: order must be "F" or "C", got'),
            (
                lambda: blas.hbmv(1, df, dx, 0, dx, order="C"),
                r"hbmv: ab has shape \(4, 3\) .*ab = np\.ascontiguousarray",
            ),
            (lambda: blas.tbmv(dr[:3], dx, order="C"), r"tbmv: ab has shape \(3, 3\), needs \(4, 3\) for x of shape"),
            (
                lambda: blas.gbmv(1, dr, dx, 0, dx, kl=1, ku=2, order="C"),
                r"gbmv: ab has shape \(4, 3\), needs \(4, 4\)",
            ),
        ):
            with pytest.raises(ArgumentError, match=rf"^blas\.{text}"):
                call()
        with pytest.raises(DirectionError, match=r"(y|its C is y|C) needs to be writable"):
            blas.gbmv(1, dr, dx, 0, dy, kl=1, ku=1, trans="C", order="C")


@pytest.mark.parametrize("name", ["tbmv", "tbsv", "tpmv", "tpsv"])
def test_a_vector_in_the_memory_of_its_triangle_is_refused_and_nothing_changes(device: str, name: str) -> None:
    stored = np.ones((N, K + 1) if name[1] == "b" else N * (N + 1) // 2, np.complex64)
    with offload_args(stored, device=device) as (dA,):
        x = dA[:, 0] if name[1] == "b" else dA[2 : 2 + N]
        for trans in "NTC":
            with pytest.raises(AliasError, match=rf"{name}: .*x"):
                getattr(blas, name)(dA, x, uplo="L", trans=trans, order="C")
    np.testing.assert_array_equal(stored, 1)


@pytest.mark.parametrize("steps", [1, -1])
@pytest.mark.parametrize("place", ["host", "device", "both"])
def test_scalars_of_calls_that_conjugate_are_taken_from_the_host_or_the_device(
    device: str, place: str, steps: int
) -> None:
    A, x, y = some("complex64", N, N), some("complex64", N, seed=2), some("complex64", N, seed=3)
    A = A + A.conj().T
    ab, ap, factors = band_rows(A, 0, N - 1), packed_rows(A, "U"), np.array([2 + 1j, 3 - 1j], np.complex64)
    results = [y.copy() for _ in range(4)]
    with offload_args(In(A), In(ab), In(ap), In(x), In(factors), *results, device=device) as pointers:
        dA, dab, dap, dx, scalars, *outputs = pointers
        alpha = 2 + 1j if place == "host" else scalars[:1].reshape(())
        beta = 3 - 1j if place != "both" else scalars[1:].reshape(())
        dx, (gemv, hemv, hbmv, hpmv) = dx[::steps], (output[::steps] for output in outputs)
        blas.gemv(alpha, dA, dx, beta, gemv, trans="C")
        blas.hemv(alpha, dA, dx, beta, hemv)
        blas.hbmv(alpha, dab, dx, beta, hbmv, order="C")
        blas.hpmv(alpha, dap, dx, beta, hpmv, order="C")
    expected = (2 + 1j) * (A @ x[::steps]) + (3 - 1j) * y[::steps]
    for result, name in zip(results, ("gemv", "hemv", "hbmv", "hpmv"), strict=True):
        close(result[::steps], expected, name)
