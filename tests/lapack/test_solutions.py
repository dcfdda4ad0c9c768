"""Each function of `lapack` agrees with SciPy and NumPy: in both orders, with gaps, and for 0 and 1 element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from lapack.conftest import Matrices
from numpy.typing import NDArray

from offload_args import Device, In, Out, Scratch, lapack, offload_args, tracing
from offload_args.errors import DirectionError, PerformanceWarning

SIZES = (0, 1, 5, 33)
ORDERS = ("C", "F")


def with_gaps(values: NDArray[Any], order: str) -> NDArray[Any]:
    """Return a part of a larger array in this order, with these values."""
    rows, columns = values.shape
    whole = np.full((rows + 3, columns + 2), 99, values.dtype, order=order)  # type: ignore[call-overload]
    part: NDArray[Any] = whole[1 : rows + 1, 1 : columns + 1]
    part[...] = values
    return part


def ordered(values: NDArray[Any], order: str) -> NDArray[Any]:
    return np.array(values, order=order)  # type: ignore[call-overload, no-any-return]


def operation(values: NDArray[Any], trans: str) -> NDArray[Any]:
    return {"N": values, "T": values.T, "C": values.conj().T}[trans]


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_gesv_solves_a_general_system(device: str, matrices: Matrices, n: int, order: str) -> None:
    original, right = matrices.general(n, n), np.asfortranarray(matrices.general(n, 3))
    for A, b in ((ordered(original, order), right.copy("F")), (with_gaps(original, order), right[:, 0].copy())):
        x = b.copy("F")
        with offload_args(A, Scratch((n,), np.int32), x, device=device) as (dA, dp, dx):
            lapack.gesv(dA, dp, dx)
        assert matrices.near(original @ x, b)


@pytest.mark.parametrize("n", SIZES)
def test_getrf_leaves_the_factors_of_scipy(device: str, matrices: Matrices, n: int) -> None:
    for m in {n, n + 3}:
        original = matrices.general(m, n)
        A, ipiv = ordered(original, "F"), np.zeros(min(m, n), np.int32)
        with offload_args(A, Out(ipiv), device=device) as (dA, dp):
            lapack.getrf(dA, dp)
        lower, upper = np.tril(A[:, : min(m, n)], -1) + np.eye(m, min(m, n)), np.triu(A[: min(m, n)])
        rows = original.copy()
        for i, pivot in enumerate(ipiv - 1):
            rows[[i, pivot]] = rows[[pivot, i]]
        assert matrices.near(lower @ upper, rows)


@pytest.mark.parametrize("order", ORDERS)
def test_getrf_keeps_the_factors_of_a_singular_matrix(device: str, matrices: Matrices, order: str) -> None:
    original = matrices.general(4, 4)
    original[:, 1] = 0
    A, ipiv, stack = ordered(original, order), np.zeros(4, np.int32), np.stack([original, np.eye(4)]).copy()
    stack, pivots = stack.astype(matrices.dtype), np.zeros((2, 4), np.int32)
    with offload_args(A, Out(ipiv), stack, Out(pivots), device=device) as (dA, dp, dstack, dpivots):
        lapack.getrf(dA, dp, singular="keep")
        lapack.getrf(dstack, dpivots, singular="keep")
    factors, rows = A if order == "F" else A.T, (original if order == "F" else original.T).copy()
    for i, pivot in enumerate(ipiv - 1):
        rows[[i, pivot]] = rows[[pivot, i]]
    assert matrices.near((np.tril(factors, -1) + np.eye(4)) @ np.triu(factors), rows)
    assert np.prod(np.diag(factors)) == 0 and np.array_equal(stack[1], np.eye(4))
    with offload_args(A, ipiv, device=device) as (dA, dp):
        with pytest.raises(ValueError, match=r'^lapack\.getrf: singular must be "raise" or "keep"'):
            lapack.getrf(dA, dp, singular="ignore")


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("order", ORDERS)
def test_getrs_solves_with_each_operation(device: str, matrices: Matrices, order: str, trans: str) -> None:
    original, right = matrices.general(6, 6), np.asfortranarray(matrices.general(6, 2))
    A, x = ordered(original, order), right.copy("F")
    with offload_args(A, Scratch((6,), np.int32), x, device=device) as (dA, dp, dx):
        lapack.getrf(dA, dp)
        if trans == "C" and order == "C" and matrices.is_complex:
            with pytest.raises(ValueError, match=r'^lapack\.getrs: a complex A with trans="C" needs Fortran order'):
                lapack.getrs(dA, dp, dx, trans=trans)
            return
        lapack.getrs(dA, dp, dx, trans=trans)
    assert matrices.near(operation(original, trans) @ x, right)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_posv_solves_a_definite_system_and_leaves_its_factor(
    device: str, matrices: Matrices, n: int, order: str, uplo: str
) -> None:
    original, right = matrices.definite(n), ordered(matrices.general(n, 3), order)
    A, x = with_gaps(original, order), ordered(right, order)
    with offload_args(A, x, device=device) as (dA, dx):
        lapack.posv(dA, dx, uplo=uplo)
    assert matrices.near(original @ x, right)
    factor = scipy.linalg.cholesky(original, lower=uplo == "L") if n else original
    kept = np.tril(original, -1) if uplo == "U" else np.triu(original, 1)
    assert matrices.near(np.triu(A) if uplo == "U" else np.tril(A), factor)
    assert np.array_equal(np.tril(A, -1) if uplo == "U" else np.triu(A, 1), kept)


def test_potrs_solves_in_mixed_orders(device: str, matrices: Matrices) -> None:
    original = matrices.definite(5)
    for a_order, b_order in (("F", "C"), ("C", "F")):
        A, right = ordered(original, a_order), ordered(matrices.general(5, 3), b_order)
        x, y, F = ordered(right, b_order), ordered(right, b_order), ordered(original, a_order)
        with offload_args(A, x, F, y, device=device) as (dA, dx, dF, dy):
            lapack.potrf(dA)
            if matrices.is_complex:
                needed = "Fortran" if a_order == "F" else "C"
                with pytest.warns(PerformanceWarning, match=rf"^lapack\.potrs: B .* needs {needed} order here"):
                    lapack.potrs(dA, dx)
                with pytest.warns(PerformanceWarning, match=r"^lapack\.posv: B "):
                    lapack.posv(dF, dy)
            else:
                lapack.potrs(dA, dx)
                lapack.posv(dF, dy)
        assert matrices.near(original @ x, right) and matrices.near(original @ y, right)


def test_trtrs_takes_mixed_orders(device: str, matrices: Matrices) -> None:
    triangle = np.triu(matrices.general(5, 5)) + 5 * np.eye(5, dtype=matrices.dtype)
    right = matrices.general(5, 3)
    for a_order, b_order in (("F", "C"), ("C", "F")):
        x = ordered(right, b_order)
        with offload_args(In(ordered(triangle, a_order)), x, device=device) as (dA, dx):
            if matrices.is_complex:
                with pytest.warns(PerformanceWarning, match=r"^lapack\.trtrs: B "):
                    lapack.trtrs(dA, dx, trans="C")
            else:
                lapack.trtrs(dA, dx, trans="C")
        assert matrices.near(triangle.conj().T @ x, right)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("diag", "NU")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
def test_trtrs_solves_a_triangular_system(
    device: str, matrices: Matrices, order: str, uplo: str, trans: str, diag: str
) -> None:
    arguments = matrices.general(7, 7) + 7 * np.eye(7, dtype=matrices.dtype)
    A, right = ordered(arguments, order), ordered(matrices.general(7, 2), order)
    x = ordered(right, order)
    with offload_args(In(A), x, device=device) as (dA, dx):
        lapack.trtrs(dA, dx, uplo=uplo, trans=trans, diag=diag)
    triangle = np.triu(arguments) if uplo == "U" else np.tril(arguments)
    if diag == "U":
        np.fill_diagonal(triangle, 1)
    assert matrices.near(operation(triangle, trans) @ x, right)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize(("m", "n"), [(7, 3), (5, 5), (4, 1), (1, 1), (3, 6), (3, 0), (0, 3)])
def test_geqrf_and_ormqr_are_the_factors(device: str, matrices: Matrices, m: int, n: int) -> None:
    k, arguments = min(m, n), matrices.general(m, n)
    A, tau, full = ordered(arguments, "F"), np.zeros(k, matrices.dtype), np.eye(m, dtype=matrices.dtype, order="F")
    back, beside = full.copy("F"), full.copy("F")
    with offload_args(A, tau, full, back, beside, device=device) as (dA, dtau, dQ, dback, dbeside):
        lapack.geqrf(dA, dtau)
        lapack.ormqr(dA[:, :k], dtau, dQ)
        lapack.ormqr(dA[:, :k], dtau, dback, trans="C")
        lapack.ormqr(dA[:, :k], dtau, dbeside, side="R")
    assert matrices.near(full @ np.triu(A), arguments)
    assert matrices.near(full.conj().T @ full, np.eye(m))
    assert matrices.near(back, full.conj().T) and matrices.near(beside, full)


def test_ormqr_takes_a_c_in_c_order(device: str, matrices: Matrices) -> None:
    A, tau, C = ordered(matrices.general(6, 4), "F"), np.zeros(4, matrices.dtype), matrices.general(6, 3)
    there, wanted = C.copy("F"), C.copy("C")
    with offload_args(A, tau, there, wanted, device=device) as (dA, dtau, dthere, dwanted):
        lapack.geqrf(dA, dtau)
        lapack.ormqr(dA, dtau, dthere, trans="C")
        if matrices.is_complex:
            with pytest.warns(PerformanceWarning, match=r"^lapack\.ormqr: C .* needs Fortran order here"):
                lapack.ormqr(dA, dtau, dwanted, trans="C")
        else:
            lapack.ormqr(dA, dtau, dwanted, trans="C")
    assert matrices.near(there, wanted)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize(("m", "n"), [(9, 4), (4, 9), (5, 5), (1, 3), (3, 1), (1, 1), (0, 3), (3, 0)])
def test_gels_is_least_squares_or_the_least_norm(device: str, matrices: Matrices, m: int, n: int, trans: str) -> None:
    original, right = matrices.general(m, n), np.asfortranarray(matrices.general(max(m, n), 2))
    meant = operation(original, trans)
    solution = np.linalg.lstsq(meant, right[: meant.shape[0]], rcond=None)[0]
    for A in (ordered(original, "F"), ordered(original, "C"), with_gaps(original, "F"), with_gaps(original, "C")):
        B = right.copy("F")
        with offload_args(A, B, device=device) as (dA, dB):
            lapack.gels(dA, dB, trans=trans)
        assert matrices.near(B[: meant.shape[1]], solution)


@pytest.mark.parametrize("trans", "NC")
@pytest.mark.parametrize(("m", "n"), [(9, 4), (4, 9)])
def test_gels_takes_right_sides_in_c_order(device: str, matrices: Matrices, m: int, n: int, trans: str) -> None:
    original, right = matrices.general(m, n), matrices.general(9, 2)
    meant = operation(original, trans)
    A, B = ordered(original, "F" if m > n else "C"), with_gaps(right, "C")
    with offload_args(A, B, device=device) as (dA, dB):
        if matrices.is_complex:
            with pytest.warns(PerformanceWarning, match=r"^lapack\.gels: B .* needs Fortran order.*asfortranarray"):
                lapack.gels(dA, dB, trans=trans)
        else:
            lapack.gels(dA, dB, trans=trans)
    solution = np.linalg.lstsq(meant, right[: meant.shape[0]], rcond=None)[0]
    assert matrices.near(B[: meant.shape[1]], solution)


def test_gels_leaves_a_matrix_that_it_copies(device: str, matrices: Matrices) -> None:
    original, right = matrices.general(3, 5), matrices.general(5)
    A, b = ordered(original, "F"), right.copy()
    with offload_args(In(A), b, device=device) as (dA, db):
        lapack.gels(dA, db)
    assert matrices.near(original @ b, right[:3]) and np.array_equal(A, original)


@pytest.mark.parametrize("trans", "NTC")
def test_right_sides_in_c_order_are_solved_with_a_warning(device: str, matrices: Matrices, trans: str) -> None:
    original, right = matrices.general(5, 5), matrices.general(5, 3)
    A, x, y, pivots = ordered(original, "F"), with_gaps(right, "C"), right.copy(), np.zeros(5, np.int32)
    outside = x.base.copy()
    with offload_args(A, pivots, x, y, In(original), device=device) as (dA, dp, dx, dy, copy):
        with pytest.warns(PerformanceWarning, match=r"^lapack\.gesv: B .*needs Fortran order here: a copy is") as told:
            lapack.gesv(dA, dp, dx)
        assert told[0].filename == __file__
        with pytest.warns(PerformanceWarning, match=r"^lapack\.getrs: B has shape \(5, 3\) and strides"):
            lapack.getrs(dA, dp, dy, trans=trans)
        with pytest.warns(PerformanceWarning):
            lapack.getrs(dA, dp, dy[:, 1], trans=trans)
    assert matrices.near(original @ x, right)
    assert matrices.near(operation(original, trans) @ y[:, [0, 2]], right[:, [0, 2]])
    twice = np.linalg.solve(operation(original, trans), np.linalg.solve(operation(original, trans), right[:, 1]))
    assert matrices.near(y[:, 1], twice)
    x[...] = right
    assert np.array_equal(x.base, outside)


def test_right_sides_in_c_order_of_stacks(device: str, matrices: Matrices) -> None:
    general, right = matrices.general(3, 4, 4), matrices.general(3, 4, 2)
    A, x = general.copy(), right.copy()
    with offload_args(A, Scratch((3, 4), np.int32), x, device=device) as (dA, dp, dx), pytest.warns(PerformanceWarning):
        lapack.gesv(dA, dp, dx)
    assert matrices.near(general @ x, right)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_heevd_and_syevd_find_eigenvalues_and_vectors(
    device: str, matrices: Matrices, n: int, order: str, uplo: str
) -> None:
    original, jobz = matrices.definite(n), "V" if order == "F" else "N"
    for function in (lapack.heevd,) if matrices.is_complex else (lapack.heevd, lapack.syevd):
        A, w = ordered(original, order), np.zeros(n, matrices.real)
        with offload_args(A, Out(w), device=device) as (dA, dw):
            function(dA, dw, jobz=jobz, uplo=uplo)
        assert matrices.near(w, np.linalg.eigvalsh(original) if n else w)
        assert jobz == "N" or matrices.near(original @ A, A * w)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("jobs", ["AA", "SS", "NN", "SN", "NA"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("m", "n"), [(7, 3), (3, 7), (5, 5), (1, 4), (4, 1), (0, 3)])
def test_gesvd_finds_singular_values_and_vectors(
    device: str, matrices: Matrices, m: int, n: int, order: str, jobs: str
) -> None:
    original, k = matrices.general(m, n), min(m, n)
    A, s = ordered(original, order), np.zeros(k, matrices.real)
    U = np.zeros((m, m if jobs[0] == "A" else k), matrices.dtype, order=order)  # type: ignore[call-overload]
    VT = np.zeros((n if jobs[1] == "A" else k, n), matrices.dtype, order=order)  # type: ignore[call-overload]
    with offload_args(A, s, U, VT, device=device) as (dA, ds, dU, dVT):
        arguments = dA, ds, *(value if job != "N" else None for value, job in zip((dU, dVT), jobs, strict=True))
        lapack.gesvd(*arguments, jobu=jobs[0], jobvt=jobs[1])
    assert matrices.near(s, np.linalg.svd(original, compute_uv=False) if k else s)
    if k and "N" not in jobs:
        assert matrices.near((U[:, :k] * s) @ VT[:k], original)


@pytest.mark.parametrize("jobs", ["AA", "SS", "NN"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("shape", "rank"), [((40, 40), 40), ((40, 40), 30), ((50, 40), 40), ((40, 50), 40)])
def test_gesvd_of_a_larger_matrix_of_any_rank(
    device: str, matrices: Matrices, shape: tuple[int, int], rank: int, order: str, jobs: str
) -> None:
    (m, n), k = shape, min(shape)
    original = matrices.general(m, rank) @ matrices.general(rank, n) / 8
    A, s, full = ordered(original, order), np.zeros(k, matrices.real), jobs == "AA"
    U = ordered(np.zeros((m, m if full else k), matrices.dtype), order)
    VT = ordered(np.zeros((n if full else k, n), matrices.dtype), order)
    vectors = () if jobs == "NN" else (Out(U), Out(VT))
    with offload_args(A, Out(s), *vectors, device=device) as pointers:
        lapack.gesvd(*pointers, jobu=jobs[0], jobvt=jobs[1])
    tolerance = 100 * np.finfo(matrices.real).eps * s[0]
    np.testing.assert_allclose(s, np.linalg.svd(original.astype(complex), compute_uv=False), rtol=0, atol=tolerance)
    if vectors:
        np.testing.assert_allclose((U[:, :k] * s) @ VT[:k], original, rtol=0, atol=tolerance)
        for orthogonal in (U.conj().T @ U, VT @ VT.conj().T):
            np.testing.assert_allclose(orthogonal, np.eye(len(orthogonal)), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("smallest", "calls"), [(1.0, ["xgesvdp"]), (0.0, ["xgesvdp", "dgesvd"])])
def test_cusolver_uses_polar_factors_unless_the_matrix_is_singular(
    cuda: str, smallest: float, calls: list[str]
) -> None:
    A, s = np.diag([*np.arange(40.0, 1.0, -1), smallest]), np.zeros(40)
    expected = A.diagonal().copy()
    with tracing.trace() as trace, offload_args(A, Out(s), device=cuda) as pointers:
        lapack.gesvd(*pointers)
    np.testing.assert_allclose(s, expected, atol=1e-13)
    names = [event.name for event in trace.events if event.kind == "call"]
    assert [name.split(".")[1] for name in names if "gesvd" in name] == calls


@pytest.mark.parametrize("n", [5, 40])
def test_gesvd_refuses_a_matrix_that_it_must_not_destroy(device: str, n: int) -> None:
    A, s = np.diag(np.arange(1.0, n + 1)), np.full(n, 7.0)
    with offload_args(In(A), s, device=device) as (dA, ds), pytest.raises(DirectionError, match="A"):
        lapack.gesvd(dA, ds)
    assert (s == 7).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("full", [True, False])
def test_gesvd_takes_the_job_that_the_shapes_need(device: str, shape: tuple[int, int], full: bool) -> None:
    m, n = shape
    k, order = min(m, n), "F" if m >= n else "C"
    values = np.random.default_rng(5).standard_normal(shape)
    A, s = ordered(values, order), np.empty(k)
    U, VT = (ordered(np.empty(size), order) for size in ((m, m if full else k), (n if full else k, n)))
    B, s_alone = ordered(values, order), np.empty(k)
    with offload_args(A, s, U, VT, B, s_alone, device=device) as (dA, ds, dU, dVT, dB, alone):
        lapack.gesvd(dA, ds, dU, dVT)
        lapack.gesvd(dB, alone)
    np.testing.assert_allclose(U[:, :k] * s @ VT[:k], values, atol=1e-12)
    np.testing.assert_allclose(s_alone, s, atol=1e-12)


def test_rows_and_columns_of_a_matrix_are_right_sides(device: str) -> None:
    A = np.array([[4.0, 1.0], [2.0, 3.0]])
    B = np.array([[1.0, 2.0], [3.0, 4.0]])
    with offload_args(A, Scratch((2,), np.int32), B, device=device) as (dA, dp, dB):
        lapack.gesv(dA, dp, dB[0])
    assert np.allclose(B, [[0.1, 0.6], [3.0, 4.0]])


def test_a_factor_serves_several_right_sides_and_stays_on_the_device(device: str) -> None:
    A, first, second = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    with offload_args(A, Scratch((2,), np.int32), first, second, device=device) as (dA, dp, d1, d2):
        lapack.getrf(dA, dp)
        before = Device(device).counters.bytes_up
        lapack.getrs(dA, dp, d1)
        lapack.getrs(dA, dp, d2)
        assert Device(device).counters.bytes_up - before <= 32
    assert np.allclose(np.column_stack([first, second]), np.linalg.inv([[4.0, 1.0], [2.0, 3.0]]))
