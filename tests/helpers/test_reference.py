"""The references of the tests of BLAS are compared with SciPy's BLAS."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.linalg import blas as scipy_blas
from scipy.linalg import lapack

from helpers import reference as ref

ALPHA, BETA = 0.5 - 1.25j, -0.75 + 0.25j
RANDOM = np.random.default_rng(7)


def values(*shape: int) -> Any:
    return RANDOM.uniform(-1, 1, shape) + 1j * RANDOM.uniform(-1, 1, shape)


def same(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("trans", "NTC")
def test_gemv_and_gbmv(trans: str) -> None:
    m, n, kl, ku = 6, 4, 2, 1
    A = values(m, n)
    x, y = values(n if trans == "N" else m), values(m if trans == "N" else n)
    code = "NTC".index(trans)
    same(ref.gemv(ALPHA, A, x, BETA, y, trans), scipy_blas.zgemv(ALPHA, A, x, BETA, y, trans=code))
    A = ref.band_of(A, kl, ku)
    stored = ref.banded(A, kl, ku, "F", 99)
    same(
        ref.gemv(ALPHA, A, x, BETA, y, trans),
        scipy_blas.zgbmv(m, n, kl, ku, ALPHA, stored, x, beta=BETA, y=y, trans=code),
    )
    by_rows = ref.banded(A, kl, ku, "C", 99)
    assert by_rows.shape == (m, kl + ku + 1)
    assert all(by_rows[i, kl + j - i] == A[i, j] for i in range(m) for j in range(n) if -kl <= j - i <= ku)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(product("NTC", "NTC")))
def test_gemm(trans_a: str, trans_b: str) -> None:
    A, B = values(*((3, 5) if trans_a == "N" else (5, 3))), values(*((5, 4) if trans_b == "N" else (4, 5)))
    C = values(3, 4)
    codes = {"trans_a": "NTC".index(trans_a), "trans_b": "NTC".index(trans_b)}
    same(ref.gemm(ALPHA, A, B, BETA, C, trans_a, trans_b), scipy_blas.zgemm(ALPHA, A, B, BETA, C, **codes))


@pytest.mark.parametrize("uplo", "UL")
def test_symmetric_and_hermitian(uplo: str) -> None:
    n = 5
    A, B, x, y = values(n, n), values(n, 3), values(n), values(n)
    A[np.diag_indices(n)] = A.diagonal().real
    lower = int(uplo == "L")
    for hermitian, t in [(False, "sy"), (True, "he")]:
        S = ref.symmetric(A, uplo, hermitian)
        multiply = getattr(scipy_blas, f"z{t}mm")
        same(ref.symm(ALPHA, S, B, 0, B), multiply(ALPHA, A, B, lower=lower))
        same(ref.symm(ALPHA, S, B.T, 0, B.T, "R"), multiply(ALPHA, A, B.T, side=1, lower=lower))
        kept = ref.in_triangle(n, uplo)
        for trans in "NC" if hermitian else "NT":
            P, Q = (values(n, 3), values(n, 3)) if trans == "N" else (values(3, n), values(3, n))
            code = "NTC".index(trans)
            alpha, beta = (-1.5, 0.75) if hermitian else (ALPHA, BETA)
            updated = getattr(scipy_blas, f"z{t}rk")(alpha, P, beta, A, trans=code, lower=lower)
            same(ref.syrk(alpha, P, beta, A, trans, hermitian)[kept], updated[kept])
            two = getattr(scipy_blas, f"z{t}r2k")(ALPHA, P, Q, beta, A, trans=code, lower=lower)
            same(ref.syr2k(ALPHA, P, Q, beta, A, trans, hermitian)[kept], two[kept])
    kept = ref.in_triangle(n, uplo)
    same(ref.syr2(ALPHA, x, y, np.zeros((n, n)), True)[kept], scipy_blas.zher2(ALPHA, x, y, lower=lower)[kept])
    update = scipy_blas.dsyr2(-1.5, x.real, y.real, lower=lower)
    same(ref.syr2(-1.5, x.real, y.real, np.zeros((n, n)))[kept], update[kept])
    H = ref.symmetric(A, uplo, True)
    same(H @ x, scipy_blas.zhpmv(n, 1, ref.packed(A, uplo), x, lower=lower))
    by_rows = ref.packed(A, uplo, "C")  # this is the other triangle of the transpose
    same(H.T @ x, scipy_blas.zhpmv(n, 1, by_rows, x, lower=1 - lower))
    k = 2
    stored = ref.banded(A, 0 if uplo == "U" else k, k if uplo == "U" else 0, "F", 99)
    same(ref.band_of(H, k, k) @ x, scipy_blas.zhbmv(k, 1, stored, x, lower=lower))


@pytest.mark.parametrize(("uplo", "trans", "diag"), list(product("UL", "NTC", "NU")))
def test_triangular(uplo: str, trans: str, diag: str) -> None:
    n = 5
    A, B = values(n, n) + 3 * np.eye(n), values(n, 4)
    options = {"lower": int(uplo == "L"), "diag": int(diag == "U"), "trans_a": "NTC".index(trans)}
    T = ref.triangle(A, uplo, diag)
    same(ref.trmm(ALPHA, T, B, "L", trans), scipy_blas.ztrmm(ALPHA, A, B, **options))
    same(ref.trmm(ALPHA, T, B.T, "R", trans), scipy_blas.ztrmm(ALPHA, A, B.T, side=1, **options))
    same(ref.trmm(1, T, scipy_blas.ztrsm(ALPHA, A, B, **options), "L", trans), ALPHA * B)


def test_the_reference_of_level_1_agrees_with_scipy() -> None:
    x, y = values(9), values(9)
    same(ref.axpy(ALPHA, x, y), scipy_blas.zaxpy(x, y.copy(), a=ALPHA))
    same(ref.dot(x, y), scipy_blas.zdotu(x, y))
    same(ref.dot(x, y, conjugated=True), scipy_blas.zdotc(x, y))
    same(ref.asum(x), scipy_blas.dzasum(x))
    same(ref.nrm2(x), scipy_blas.dznrm2(x))
    assert ref.size1(x).argmax() == scipy_blas.izamax(x)
    same(ref.rot(x.real, y.real, 0.6, 0.8), scipy_blas.drot(x.real, y.real, 0.6, 0.8))
    same(ref.rot(x, y, 0.5, 0.25 + 0.5j), lapack.zrot(x, y, 0.5, 0.25 + 0.5j))
    for flag in (-2, -1, 0, 1):
        param = np.array([flag, 0.5, -0.75, 0.25, 1.5])
        same(ref.rotm_matrix(param) @ [x.real, y.real], scipy_blas.drotm(x.real, y.real, param))
    same(ref.ger(ALPHA, x, y, np.zeros((9, 9)), conjugated=True), scipy_blas.zgerc(ALPHA, x, y))


def test_tolerance_is_tight_and_sees_nan() -> None:
    x = RANDOM.uniform(-1, 1, 1000).astype(np.float32)
    wide = ref.wide(x)
    exact, magnitude = ref.dot(wide, wide), ref.dot(abs(wide), abs(wide))
    ref.assert_close(np.float32(exact), exact, 1000, magnitude, np.float32)
    for wrong in (np.nan, float(exact) * 1.001):
        with pytest.raises(AssertionError, match="1 of 1 elements are off"):
            ref.assert_close(wrong, exact, 1000, magnitude, np.float32)
