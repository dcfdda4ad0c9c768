"""Functions of `lapack` take stacks of matrices: each is done as alone, and those that fail are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lapack.conftest import Matrices
from numpy.typing import NDArray

from offload_args import In, Out, Scratch, lapack, offload_args
from offload_args.errors import ArgumentError, DirectionError, HostPointerError

BATCHES = [(3,), (2, 2), (1,), (0,)]


def by_columns(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values as a stack whose matrices are in Fortran order."""
    return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)


def definite(matrices: Matrices, batch: tuple[int, ...], n: int = 4) -> NDArray[Any]:
    general = matrices.general(*batch, n, n)
    made = general @ general.conj().swapaxes(-1, -2) + n * np.eye(n)
    return made.astype(matrices.dtype)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_systems_of_stacks(device: str, matrices: Matrices, batch: tuple[int, ...]) -> None:
    general, given = matrices.general(*batch, 4, 4), definite(matrices, batch)
    right, vectors = by_columns(matrices.general(*batch, 4, 2)), matrices.general(*batch, 4)
    A, F, S, L = by_columns(general), by_columns(general), by_columns(given), by_columns(given)
    x, y, z, v = right.copy("K"), right.copy("K"), right.copy("K"), vectors.copy()
    pivots, others = np.zeros((*batch, 4), np.int32), np.zeros((*batch, 4), np.int32)
    with offload_args(A, Out(pivots), x, F, Out(others), v, S, y, L, z, device=device) as lent:
        dA, dp, dx, dF, dothers, dv, dS, dy, dL, dz = lent
        lapack.gesv(dA, dp, dx)
        lapack.getrf(dF, dothers)
        lapack.getrs(dF, dothers, dv)
        lapack.posv(dS, dy, uplo="L")
        lapack.potrf(dL)
        lapack.potrs(dL, dz)
    assert matrices.near(general @ x, right)
    assert matrices.near(general @ v[..., None], vectors[..., None])
    assert matrices.near(given @ y, right) and matrices.near(given @ z, right)
    assert np.array_equal(pivots, others) and np.array_equal(A, F)


def test_least_squares_triangles_and_reflectors_of_stacks(device: str, matrices: Matrices) -> None:
    given, right = by_columns(matrices.general(3, 5, 3)), matrices.general(3, 5)
    triangles = by_columns(np.triu(matrices.general(3, 4, 4)) + 4 * np.eye(4, dtype=matrices.dtype))
    A, b, R, tau, t = given.copy("K"), right.copy(), given.copy("K"), np.zeros((3, 3), matrices.dtype), right[:, :4]
    Q = by_columns(np.broadcast_to(np.eye(5, 3, dtype=matrices.dtype), (3, 5, 3)).copy())
    u = np.ascontiguousarray(t)
    with offload_args(A, b, R, Out(tau), Q, In(triangles), u, device=device) as (dA, db, dR, dtau, dQ, dT, du):
        lapack.gels(dA, db)
        lapack.geqrf(dR, dtau)
        lapack.ormqr(dR, dtau, dQ)
        lapack.trtrs(dT, du)
    for i in range(3):
        assert matrices.near(b[i, :3], np.linalg.lstsq(given[i], right[i], rcond=None)[0])
    assert matrices.near(Q @ np.triu(R[:, :3]), given)
    assert matrices.near(triangles @ u[..., None], t[..., None])


def test_eigenvalues_and_singular_values_of_stacks(device: str, matrices: Matrices) -> None:
    given, general = definite(matrices, (3,)), by_columns(matrices.general(3, 5, 3))
    V, A = by_columns(given), general.copy("K")
    w, s = np.zeros((3, 4), matrices.real), np.zeros((3, 3), matrices.real)
    U, VT = by_columns(np.zeros((3, 5, 3), matrices.dtype)), by_columns(np.zeros((3, 3, 3), matrices.dtype))
    with offload_args(V, Out(w), A, Out(s), Out(U), Out(VT), device=device) as (dV, dw, dA, ds, dU, dVT):
        lapack.heevd(dV, dw)
        lapack.gesvd(dA, ds, dU, VT=dVT)
    assert matrices.near(w, np.linalg.eigvalsh(given))
    assert matrices.near(given @ V, V * w[:, None])
    assert matrices.near((U * s[:, None]) @ VT, general)


def test_matrices_that_fail_are_named_and_the_others_are_done(device: str, dtype: str) -> None:
    given = np.stack([np.eye(3)] * 6).reshape(2, 3, 3, 3).astype(dtype) * 4
    given[0, 1, 1, 1], given[1, 2, 0, 0] = -1, -1
    A, b = given.copy(), np.ones((2, 3, 3), dtype)
    with offload_args(A, b, device=device) as (dA, db):
        named = r"^lapack\.posv: of 6 matrices 2 failed: A\[0, 1\], A\[1, 2\]; A\[0, 1\]: A is not positive definite: "
        with pytest.raises(lapack.StackError, match=named) as caught:
            lapack.posv(dA, db)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    assert caught.value.info.dtype == np.int32
    assert caught.value.info.tolist() == [[0, 2, 0], [0, 0, 1]]
    done = caught.value.info == 0
    assert np.allclose(A[done], 2 * np.eye(3)) and np.allclose(b[done], 0.25)


def test_a_failing_stack_leaves_the_host_as_it_was_without_a_handler(device: str) -> None:
    A = np.zeros((2, 3, 3))
    with pytest.raises(lapack.StackError, match=r"of 2 matrices 2 failed: A\[0\], A\[1\]; A\[0\]: A is singular"):
        with offload_args(A, Scratch((2, 3), np.int32), device=device) as (dA, dp):
            lapack.getrf(dA, dp)
    assert np.all(A == 0)


def test_many_failures_are_counted(device: str) -> None:
    A = np.zeros((9, 2, 2))
    with offload_args(A, device=device) as (dA,):
        with pytest.raises(lapack.StackError, match=r"of 9 matrices 9 failed: A\[0\], .*A\[3\] and 5 more; "):
            lapack.potrf(dA)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_has_info_minus_one(device: str, value: float) -> None:
    A, w = np.stack([np.eye(3)] * 3), np.zeros((3, 3))
    A[1, 0, 2] = value
    with offload_args(A, w, device=device) as (dA, dw):
        with pytest.raises(lapack.StackError, match=r"A\[1\]: A\[0, 2\] is (nan|inf), needs to be finite") as caught:
            lapack.heevd(dA, dw, jobz="N")
    assert caught.value.info.tolist() == [0, -1, 0]
    assert np.all(w[[0, 2]] == 1)


def test_operands_need_the_dimensions_of_the_stack(device: str) -> None:
    A, b = np.stack([np.eye(3)] * 2), np.ones((3, 2))
    with offload_args(In(A), b, Scratch(3, np.int32), device=device) as (dA, db, dp):
        with pytest.raises(ArgumentError, match=r"^lapack\.posv: B has shape \(3, 2\), needs \(2, \.\.\.\) for "):
            lapack.posv(dA, db)
        with pytest.raises(ArgumentError, match=r"^lapack\.gesv: ipiv has shape \(3,\), needs \(2, \.\.\.\)"):
            lapack.gesv(dA, dp, db)
        with pytest.raises(HostPointerError, match=r"^lapack\.posv: B needs a DevicePtr"):
            lapack.posv(dA, b)  # type: ignore[arg-type]
        with pytest.raises(DirectionError):
            lapack.potrf(dA)
