"""Q as a matrix, and inverses from factors, agree with SciPy in both orders, with gaps, in stacks, and if empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg.lapack
from lapack.conftest import Matrices
from lapack.test_solutions import ORDERS, SIZES, ordered, with_gaps
from lapack.test_stacks import by_columns, definite

from offload_args import In, Out, Scratch, lapack, offload_args
from offload_args.errors import ArgumentError, DirectionError, HostPointerError


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("name", ["orgqr", "ungqr"])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 3, 3), (7, 3, 2), (5, 5, 5), (4, 3, 0), (1, 1, 1), (3, 0, 0), (0, 0, 0)])
def test_orgqr_makes_the_q_of_scipy(device: str, matrices: Matrices, m: int, n: int, k: int, name: str) -> None:
    original = matrices.general(m, n)
    A, tau = with_gaps(original, "F"), np.zeros(k, matrices.dtype)
    with offload_args(A, tau, device=device) as (dA, dtau):
        if k:
            lapack.geqrf(dA[:, :k], dtau)
        getattr(lapack, name)(dA, dtau)
    expected = scipy.linalg.qr(original[:, :k], mode="full")[0][:, :n] if k else np.eye(m, n)
    assert matrices.near(A, expected)


def test_orgqr_of_stacks(device: str, matrices: Matrices) -> None:
    tall = by_columns(matrices.general(2, 2, 5, 3))
    A, tau = tall.copy("K"), np.zeros((2, 2, 3), matrices.dtype)
    R = np.zeros_like(tall)
    with offload_args(A, Out(tau), R, device=device) as (dA, dtau, dR):
        lapack.geqrf(dA, dtau)
        dR.copy_from(dA)
        lapack.orgqr(dA, dtau)
    assert matrices.near(A @ np.triu(R[..., :3, :]), tall)
    assert matrices.near(A.conj().swapaxes(-1, -2) @ A, np.broadcast_to(np.eye(3), (2, 2, 3, 3)))


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_getri_inverts_from_factors(device: str, matrices: Matrices, n: int, order: str) -> None:
    original = (matrices.general(n, n) + n * np.eye(n)).astype(matrices.dtype)
    A = with_gaps(original, order)
    around = A.base.copy()
    with offload_args(A, Scratch(n, np.int32), device=device) as (dA, dp):
        lapack.getrf(dA, dp)
        lapack.getri(dA, dp)
    assert matrices.near(A, np.linalg.inv(original))
    A[...] = original
    assert np.array_equal(A.base, around)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_potri_inverts_a_triangle(device: str, matrices: Matrices, n: int, order: str, uplo: str) -> None:
    original = matrices.definite(n)
    A = with_gaps(original, order)
    with offload_args(A, device=device) as (dA,):
        lapack.potrf(dA, uplo=uplo)
        lapack.potri(dA, uplo=uplo)
    kept, other = (np.triu, np.tril) if uplo == "U" else (np.tril, np.triu)
    assert matrices.near(kept(A), kept(np.linalg.inv(original)))
    assert np.array_equal(other(A, -1 if uplo == "U" else 1), other(original, -1 if uplo == "U" else 1))


@pytest.mark.parametrize("order", ORDERS)
def test_inverses_of_stacks(device: str, matrices: Matrices, order: str) -> None:
    arranged = by_columns if order == "F" else np.ascontiguousarray
    general, gram = matrices.general(2, 3, 4, 4), definite(matrices, (2, 3))
    A, S = arranged(general).copy("K"), arranged(gram).copy("K")
    with offload_args(A, Scratch((2, 3, 4), np.int32), S, device=device) as (dA, dp, dS):
        lapack.getrf(dA, dp)
        lapack.getri(dA, dp)
        lapack.potrf(dS)
        lapack.potri(dS)
    assert matrices.near(A, np.linalg.inv(general))
    assert matrices.near(np.triu(S), np.triu(np.linalg.inv(gram)))


def test_factors_with_a_zero_on_the_diagonal_have_no_inverse(device: str, dtype: str) -> None:
    singular = np.diag([1.0, 2.0, 0.0]).astype(dtype)
    A, ipiv = singular.copy(), np.arange(1, 4, dtype=np.int32)
    with offload_args(A, In(ipiv), device=device) as (dA, dp):
        with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.getri: A is singular: pivot 3 of its factor U is z"):
            lapack.getri(dA, dp)
        with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.potri: A is singular: pivot 3, on its diagonal, is"):
            lapack.potri(dA)
    assert np.array_equal(A, singular)
    stack = np.stack([np.eye(3), singular, np.eye(3)]).astype(dtype)
    with offload_args(stack, In(np.stack([ipiv] * 3)), device=device) as (dA, dp):
        with pytest.raises(lapack.StackError, match=r"^lapack\.getri: of 3 matrices 1 failed: A\[1\]") as caught:
            lapack.getri(dA, dp)
    assert caught.value.info.tolist() == [0, 3, 0]


def test_wrong_operands_are_refused_by_name(device: str) -> None:
    A, tall, wide, tau, ipiv = np.eye(3), np.ones((4, 2)), np.ones((2, 4), order="F"), np.ones(2), np.zeros(3, np.int32)
    functions: Any = lapack
    with offload_args(A, tall, wide, tau, ipiv, device=device) as (dA, dtall, dwide, dtau, dp):
        for call, kind, text in (
            (lambda: lapack.orgqr(dtall, dtau), ArgumentError, r"^lapack\.orgqr: A .* needs Fortran order, as geqrf"),
            (lambda: lapack.ungqr(dwide, dtau), ArgumentError, r"^lapack\.ungqr: A .* at most as many columns as rows"),
            (lambda: lapack.orgqr(dA, dp), ArgumentError, r"^lapack\.orgqr: A .* needs Fortran"),
            (lambda: lapack.getri(dtall, dp), ArgumentError, r"^lapack\.getri: A .* needs as many rows as columns"),
            (lambda: lapack.getri(dA, dp), ArgumentError, r"^lapack\.getri: ipiv\[0\] is 0, needs to be from 1 to 3"),
            (lambda: lapack.potri(dA, uplo="X"), ArgumentError, r'^lapack\.potri: uplo must be "U" or "L"'),
            (lambda: functions.getri(dA, 3), HostPointerError, r"^lapack\.getri: ipiv needs a DevicePtr"),
            (lambda: functions.orgqr(dA.T, None), HostPointerError, r"^lapack\.orgqr: tau needs a DevicePtr"),
            (lambda: functions.potri(A), HostPointerError, r"^lapack\.potri: A needs a DevicePtr"),
        ):
            with pytest.raises(kind, match=text):
                call()
    with offload_args(In(A), np.arange(1, 4, dtype=np.int32), device=device) as (dA, dp):
        for refused in (lambda: lapack.getri(dA, dp), lambda: lapack.potri(dA)):
            with pytest.raises(DirectionError, match="lent as In"):
                refused()


def test_more_reflectors_than_columns_are_refused(device: str) -> None:
    with offload_args(np.ones((4, 2), order="F"), np.ones(3), device=device) as (dA, dtau):
        with pytest.raises(ArgumentError, match=r"^lapack\.orgqr: tau has shape \(3,\), needs \(2,\)"):
            lapack.orgqr(dA, dtau)


def test_q_has_the_columns_of_scipy_beyond_the_reflectors(device: str) -> None:
    tall = np.asfortranarray(np.random.default_rng(1).standard_normal((6, 4)))
    factors, tau, _, _ = scipy.linalg.lapack.dgeqrf(tall[:, :2])
    A = np.asfortranarray(np.hstack([factors, np.full((6, 2), np.nan)]))  # the last columns are not read
    expected, _, _ = scipy.linalg.lapack.dorgqr(np.asfortranarray(np.hstack([factors, np.zeros((6, 2))])), tau)
    with offload_args(A, In(tau), device=device) as (dA, dtau):
        lapack.orgqr(dA, dtau)
    np.testing.assert_allclose(A, expected, atol=1e-13)


def test_ordered_copies_of_inverses_agree(device: str) -> None:
    matrix = np.array([[4.0, 1.0], [2.0, 3.0]])
    results = []
    for order in ORDERS:
        A = ordered(matrix, order)
        with offload_args(A, Scratch(2, np.int32), device=device) as (dA, dp):
            lapack.getrf(dA, dp)
            lapack.getri(dA, dp)
        results.append(A)
    np.testing.assert_allclose(*results, atol=1e-14)
