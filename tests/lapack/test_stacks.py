"""Functions of `lapack` take stacks of matrices.

Each matrix has the same result as alone, and failing matrices are named.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from lapack.conftest import Matrices
from numpy.typing import NDArray

from helpers.devices import here, library_or_skip, open_or_skip
from offload_args import In, Out, Scratch, lapack, linalg, offload_args, trace
from offload_args.errors import ArgumentError, DirectionError, HostPointerError, PerformanceWarning
from offload_args.lapack import _lapacke

BATCHES = [(3,), (2, 2), (1,), (0,)]


def by_columns(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values as a stack whose matrices are in Fortran order."""
    return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)


def definite(matrices: Matrices, batch: tuple[int, ...], n: int = 4) -> NDArray[Any]:
    general = matrices.general(*batch, n, n)
    gram = general @ general.conj().swapaxes(-1, -2) + n * np.eye(n)
    return gram.astype(matrices.dtype)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_systems_of_stacks(device: str, matrices: Matrices, batch: tuple[int, ...]) -> None:
    general, gram = matrices.general(*batch, 4, 4), definite(matrices, batch)
    right, vectors = by_columns(matrices.general(*batch, 4, 2)), matrices.general(*batch, 4)
    A, F, S, L = by_columns(general), by_columns(general), by_columns(gram), by_columns(gram)
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
    assert matrices.near(gram @ y, right) and matrices.near(gram @ z, right)
    assert np.array_equal(pivots, others) and np.array_equal(A, F)


def test_the_copy_of_a_stack_that_messages_name_is_in_order(device: str) -> None:
    """np.asfortranarray of a stack leaves no matrix of it in an order that LAPACK takes."""
    remedy = "B = np.ascontiguousarray(B.swapaxes(-1, -2)).swapaxes(-1, -2)"

    def solve(B: NDArray[Any]) -> NDArray[Any]:
        A, pivots = np.stack([4 * np.eye(3), 2 * np.eye(3)]), np.zeros((2, 3), np.int32)
        with offload_args(A, pivots, B, device=device) as pointers:
            lapack.gesv(*pointers)
        return B

    right = np.arange(12.0).reshape(2, 3, 2)
    with pytest.warns(PerformanceWarning, match=rf"^lapack\.gesv: .* to avoid that, {re.escape(remedy)}$"):
        in_c_order = solve(right.copy())
    with pytest.raises(ArgumentError, match=rf"^lapack\.gesv: .* copy it first: {re.escape(remedy)}"):
        solve(np.asfortranarray(right))
    ordered: dict[str, Any] = {"np": np, "B": right}
    exec(remedy, ordered)
    assert np.array_equal(solve(ordered["B"]), in_c_order)
    assert np.array_equal(in_c_order, right / np.array([4.0, 2.0])[:, None, None])


def test_least_squares_triangles_and_reflectors_of_stacks(device: str, matrices: Matrices) -> None:
    tall, right = by_columns(matrices.general(3, 5, 3)), matrices.general(3, 5)
    triangles = by_columns(np.triu(matrices.general(3, 4, 4)) + 4 * np.eye(4, dtype=matrices.dtype))
    A, b, R, tau, t = tall.copy("K"), right.copy(), tall.copy("K"), np.zeros((3, 3), matrices.dtype), right[:, :4]
    Q = by_columns(np.broadcast_to(np.eye(5, 3, dtype=matrices.dtype), (3, 5, 3)).copy())
    u = np.ascontiguousarray(t)
    with offload_args(A, b, R, Out(tau), Q, In(triangles), u, device=device) as (dA, db, dR, dtau, dQ, dT, du):
        lapack.gels(dA, db)
        lapack.geqrf(dR, dtau)
        lapack.ormqr(dR, dtau, dQ)
        lapack.trtrs(dT, du)
    for i in range(3):
        assert matrices.near(b[i, :3], np.linalg.lstsq(tall[i], right[i], rcond=None)[0])
    assert matrices.near(Q @ np.triu(R[:, :3]), tall)
    assert matrices.near(triangles @ u[..., None], t[..., None])


def test_eigenvalues_and_singular_values_of_stacks(device: str, matrices: Matrices) -> None:
    gram, general = definite(matrices, (3,)), by_columns(matrices.general(3, 5, 3))
    V, A = by_columns(gram), general.copy("K")
    w, s = np.zeros((3, 4), matrices.real), np.zeros((3, 3), matrices.real)
    U, VT = by_columns(np.zeros((3, 5, 3), matrices.dtype)), by_columns(np.zeros((3, 3, 3), matrices.dtype))
    with offload_args(V, Out(w), A, Out(s), Out(U), Out(VT), device=device) as (dV, dw, dA, ds, dU, dVT):
        lapack.heevd(dV, dw)
        lapack.gesvd(dA, ds, dU, VT=dVT)
    assert matrices.near(w, np.linalg.eigvalsh(gram))
    assert matrices.near(gram @ V, V * w[:, None])
    assert matrices.near((U * s[:, None]) @ VT, general)


def test_right_singular_vectors_alone(device: str, matrices: Matrices) -> None:
    general = by_columns(matrices.general(2, 5, 3))
    A, s, VT = general.copy("K"), np.zeros((2, 3), matrices.real), by_columns(np.zeros((2, 3, 3), matrices.dtype))
    with offload_args(A, Out(s), Out(VT), device=device) as (dA, ds, dVT):
        lapack.gesvd(dA, ds, VT=dVT)
    squares = general.conj().swapaxes(-1, -2) @ general
    assert matrices.near(VT.conj().swapaxes(-1, -2) @ (s[..., None] ** 2 * VT), squares)


def test_matrices_that_fail_are_named_and_the_others_are_done(device: str, dtype: str) -> None:
    stack = np.stack([np.eye(3)] * 6).reshape(2, 3, 3, 3).astype(dtype) * 4
    stack[0, 1, 1, 1], stack[1, 2, 0, 0] = -1, -1
    A, b = stack.copy(), np.ones((2, 3, 3), dtype)
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


def test_small_matrices_of_a_stack_are_one_call_of_a_gpu(matrices: Matrices) -> None:
    device = open_or_skip("cuda:0")
    library_or_skip("cusolver", device)
    general, gram, t = (
        by_columns(matrices.general(5, 4, 4)),
        by_columns(definite(matrices, (5,))),
        matrices.dtype.char.translate(str.maketrans("fdFD", "sdcz")),
    )
    A, S, Q, V, F = general.copy("K"), gram.copy("K"), general.copy("K"), gram.copy("K"), general.copy("K")
    b, x = by_columns(matrices.general(5, 4, 2)), by_columns(matrices.general(5, 4, 2))
    pivots, tau = np.zeros((5, 4), np.int32), np.zeros((5, 4), matrices.dtype)
    w, s = np.zeros((5, 4), matrices.real), np.zeros((5, 4), matrices.real)
    with trace() as traced, offload_args(A, pivots, b, S, x, Q, tau, V, w, F, s, device=device) as lent:
        dA, dp, db, dS, dx, dQ, dtau, dV, dw, dF, ds = lent
        lapack.gesv(dA, dp, db)
        lapack.getrs(dA, dp, db)
        lapack.posv(dS, dx)
        lapack.geqrf(dQ, dtau)
        lapack.heevd(dV, dw)
        lapack.gesvd(dF, ds)
    calls = [event.name for event in traced.events if event.kind == "call"]
    of_sums = f"cublas.{'s' if t == 's' else 'd' if t == 'd' else 'sc' if t == 'c' else 'dz'}asum"
    assert calls == [
        f"cublas.{t}getrf_batched",
        f"cublas.{t}getrs_batched",
        f"cublas.{t}getrs_batched",
        f"cusolver.{t}potrf_batched",
        f"cublas.{t}trsm_batched",
        f"cublas.{t}trsm_batched",
        f"cublas.{t}geqrf_batched",
        of_sums,
        f"cusolver.{t}{'sy' if t in 'sd' else 'he'}evj_batched",
        of_sums,
        f"cusolver.{t}gesvdj_batched",
    ]


@pytest.mark.parametrize("n", [1, 512, 513])  # orders up to and above the largest order for a batch
def test_systems_of_stacks_of_any_order(device: str, n: int) -> None:
    matrices = Matrices("float64")
    general, gram = by_columns(matrices.general(2, n, n)), by_columns(definite(matrices, (2,), n))
    right = by_columns(matrices.general(2, n, 1))
    A, S, x, y, pivots = (
        general.copy("K"),
        gram.copy("K"),
        right.copy("K"),
        right.copy("K"),
        np.zeros((2, n), np.int32),
    )
    with offload_args(A, Out(pivots), x, S, y, device=device) as (dA, dp, dx, dS, dy):
        lapack.gesv(dA, dp, dx)
        lapack.posv(dS, dy, uplo="L")
    matrices.tolerance *= n
    assert matrices.near(general @ x, right) and matrices.near(gram @ y, right)


@pytest.mark.parametrize("name", here("host", "sim:0"))
def test_small_matrices_of_a_stack_are_one_call_of_the_cpu(name: str, matrices: Matrices) -> None:
    device = open_or_skip(name)
    t = matrices.dtype.char.translate(str.maketrans("fdFD", "sdcz"))
    general, positive = by_columns(matrices.general(5, 4, 4)), by_columns(definite(matrices, (5,)))
    A, S, Q, V, F = general.copy("K"), positive.copy("K"), general.copy("K"), positive.copy("K"), general.copy("K")
    b, x = by_columns(matrices.general(5, 4, 2)), by_columns(matrices.general(5, 4, 2))
    pivots, tau = np.zeros((5, 4), np.int32), np.zeros((5, 4), matrices.dtype)
    w, s = np.zeros((5, 4), matrices.real), np.zeros((5, 4), matrices.real)
    with trace() as traced, offload_args(A, pivots, b, S, x, Q, tau, V, w, F, s, device=device) as lent:
        dA, dp, db, dS, dx, dQ, dtau, dV, dw, dF, ds = lent
        lapack.gesv(dA, dp, db)
        lapack.posv(dS, dx)
        lapack.getri(dA, dp)
        lapack.geqrf(dQ, dtau)
        lapack.heevd(dV, dw)
        lapack.gesvd(dF, ds)
    calls = [event.name for event in traced.events if event.kind == "call" and event.name.startswith("lapacke")]
    names = ("getrf", "getrs", "potrf", "getri", "geqrf", "syevd" if t in "sd" else "heevd", "gesvd")
    assert calls == [f"lapacke.{t}{of}" for of in names]


def test_a_stack_of_more_matrices_than_one_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = Matrices("float64")
    monkeypatch.setattr(_lapacke, "_TOGETHER", 4 * 4096)  # so that a loop takes 4096 matrices
    positive = definite(matrices, (5000,), 2)
    positive[[0, 4095, 4096, 4999], 0, 0] = -1
    A = positive.copy()
    with offload_args(A, device=device) as (dA,):
        with pytest.raises(
            lapack.StackError, match=r"of 5000 matrices 4 failed: A\[0\], A\[4095\], A\[4096\]"
        ) as caught:
            lapack.potrf(dA, uplo="L")
    assert np.flatnonzero(caught.value.info).tolist() == [0, 4095, 4096, 4999]
    good = caught.value.info == 0
    assert matrices.near(np.tril(A)[good], np.linalg.cholesky(positive[good]))


def test_a_stack_of_small_matrices_is_few_loops(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not device.startswith(("host", "sim")):
        return  # these libraries have calls for stacks
    loops, repeat = [], _lapacke._core.repeat
    monkeypatch.setattr(_lapacke._core, "repeat", lambda *arguments: loops.append(1) or repeat(*arguments))
    A = np.tile(2 * np.eye(4), (30_000, 1, 1))
    assert np.array_equal(linalg.inv(A, device=device), A / 4)
    assert len(loops) == 2  # a loop for factors, and one for their inverses


def test_loops_that_share_workspaces(device: str, matrices: Matrices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lapacke, "_SPACE", 1000)  # so that a loop takes one to three matrices
    positive, general = definite(matrices, (7,)), by_columns(matrices.general(7, 4, 3))
    V, Q, S, I = by_columns(positive), general.copy("K"), general.copy("K"), positive.copy()  # noqa: E741
    w, tau, s = np.zeros((7, 4), matrices.real), np.zeros((7, 3), matrices.dtype), np.zeros((7, 3), matrices.real)
    with offload_args(V, Out(w), Q, Out(tau), S, Out(s), I, Scratch((7, 4), np.int32), device=device) as lent:
        dV, dw, dQ, dtau, dS, ds, dI, dp = lent
        lapack.heevd(dV, dw)
        lapack.geqrf(dQ, dtau)
        lapack.gesvd(dS, ds)
        lapack.getrf(dI, dp)
        lapack.getri(dI, dp)
    assert matrices.near(w, np.linalg.eigvalsh(positive)) and matrices.near(positive @ V, V * w[:, None])
    assert matrices.near(abs(np.triu(Q[:, :3])), abs(np.linalg.qr(general, mode="r")))
    assert matrices.near(s, np.linalg.svd(general, compute_uv=False))
    assert matrices.near(positive @ I, np.broadcast_to(np.eye(4), (7, 4, 4)))


@pytest.mark.parametrize("name", here("host", "sim:0"))
def test_stacks_backwards(name: str, matrices: Matrices) -> None:
    device = open_or_skip(name)
    general, positive = by_columns(matrices.general(4, 3, 3)), definite(matrices, (4,), 3)
    A, S, right = general.copy("K"), positive.copy(), matrices.general(4, 3)
    b, x = right.copy(), right.copy()
    with offload_args(A, Scratch((4, 3), np.int32), b, S, x, device=device) as (dA, dp, db, dS, dx):
        lapack.gesv(dA[::-1], dp[::-1], db)
        lapack.posv(dS[::-1], dx)
    assert matrices.near(general[::-1] @ b[..., None], right[..., None])
    assert matrices.near(positive[::-1] @ x[..., None], right[..., None])


@pytest.mark.parametrize("n", [1, 32, 33])
def test_values_of_stacks_of_any_order(device: str, n: int) -> None:
    matrices = Matrices("float64")
    gram, general = by_columns(definite(matrices, (2,), n)), by_columns(matrices.general(2, n, n))
    V, A, w, s = gram.copy("K"), general.copy("K"), np.zeros((2, n)), np.zeros((2, n))
    with offload_args(V, Out(w), A, Out(s), device=device) as (dV, dw, dA, ds):
        lapack.syevd(dV, dw)
        lapack.gesvd(dA, ds)
    assert matrices.near(w, np.linalg.eigvalsh(gram)) and matrices.near(gram @ V, V * w[:, None])
    assert matrices.near(s, np.linalg.svd(general, compute_uv=False))


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("order", ["F", "C"])
@pytest.mark.parametrize("full", [True, False], ids=["full", "thin"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (3, 5)], ids=str)
def test_singular_vectors_of_stacks(
    device: str, matrices: Matrices, shape: tuple[int, int], full: bool, order: str
) -> None:
    (m, n), k = shape, min(shape)
    if device.startswith("cuda") and (m < n if order == "F" else m > n):
        order = "C" if order == "F" else "F"  # the order of cuSOLVER's function for one matrix
    ordered = by_columns if order == "F" else np.ascontiguousarray
    general = matrices.general(2, 2, m, n)
    A = ordered(general).copy("K")
    s = np.zeros((2, 2, k), matrices.real)
    U = ordered(np.zeros((2, 2, m, m if full else k), matrices.dtype))
    VT = ordered(np.zeros((2, 2, n if full else k, n), matrices.dtype))
    with offload_args(A, Out(s), Out(U), Out(VT), device=device) as (dA, ds, dU, dVT):
        lapack.gesvd(dA, ds, dU, dVT)
    assert matrices.near((U[..., :k] * s[..., None, :]) @ VT[..., :k, :], general)
    assert matrices.near(U.conj().swapaxes(-1, -2) @ U, np.broadcast_to(np.eye(U.shape[-1]), (2, 2, *U.shape[-1:] * 2)))
    assert matrices.near(
        VT @ VT.conj().swapaxes(-1, -2), np.broadcast_to(np.eye(VT.shape[-2]), (2, 2, *VT.shape[-2:-1] * 2))
    )


def test_a_stack_with_gaps(device: str, matrices: Matrices) -> None:
    gram = definite(matrices, (2, 3))
    A, b = gram.copy(), matrices.general(2, 3, 4)
    right = b.copy()
    with offload_args(A, b, device=device) as (dA, db):
        lapack.posv(dA[:, :2], db[:, :2])
    assert matrices.near((gram @ b[..., None])[:, :2], right[:, :2, :, None])
    assert np.array_equal(A[:, 2], gram[:, 2]) and np.array_equal(b[:, 2], right[:, 2])


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_parts_that_lie_side_by_side_in_one_matrix(device: str, matrices: Matrices) -> None:
    gram, tall, vectors = definite(matrices, (3,)), matrices.general(3, 5, 2), matrices.general(3, 5)
    A = np.moveaxis(np.ascontiguousarray(np.moveaxis(gram, 0, 1)), 1, 0)  # rows of 3 blocks of 4 columns
    F, T = A.copy("K"), A.copy("K")
    b, x, t, c, y = (np.ascontiguousarray(vectors[:, :n].T).T for n in (4, 4, 4, 5, 5))
    Q, R, tau = by_columns(tall), by_columns(tall), np.zeros((3, 2), matrices.dtype)
    with offload_args(A, b, F, x, T, t, Q, Out(tau), c, R, y, device=device) as lent:
        dA, db, dF, dx, dT, dt, dQ, dtau, dc, dR, dy = lent
        lapack.posv(dA, db)
        lapack.potrf(dF)
        lapack.potrs(dF, dx)
        lapack.trtrs(dT, dt)
        lapack.geqrf(dQ, dtau)
        lapack.ormqr(dQ, dtau, dc, trans="C")
        lapack.gels(dR, dy)
    right = vectors[:, :4, None]
    assert matrices.near(gram @ b[..., None], right) and matrices.near(gram @ x[..., None], right)
    assert matrices.near(np.triu(gram) @ t[..., None], right)
    assert matrices.near(np.abs(np.linalg.norm(c, axis=1)), np.linalg.norm(vectors, axis=1))
    assert matrices.near(y[:, :2], (np.linalg.pinv(tall) @ vectors[..., None])[..., 0])


def test_every_second_matrix(device: str, matrices: Matrices) -> None:
    general, gram = by_columns(matrices.general(4, 3, 3)), by_columns(definite(matrices, (4,), 3))
    A, F, V, W = general.copy("K"), general.copy("K"), gram.copy("K"), gram[:2].copy("K")
    b = matrices.general(4, 3)
    right, pivots = b.copy(), np.zeros((4, 3), np.int32)
    w, s, t = (np.zeros((4, 3), matrices.real) for _ in range(3))
    with offload_args(A, pivots, b, V, w, F, s, W, t, device=device) as (dA, dp, db, dV, dw, dF, ds, dW, dt):
        lapack.gesv(dA[::2], dp[::2], db[::2])
        lapack.heevd(dV[::2], dw[:2])
        lapack.gesvd(dF[::2], ds[:2])
        lapack.heevd(dW, dt[::2], jobz="N")
    assert matrices.near(general[::2] @ b[::2, :, None], right[::2, :, None])
    assert matrices.near(w[:2], np.linalg.eigvalsh(gram[::2])) and matrices.near(t[::2], np.linalg.eigvalsh(gram[:2]))
    assert matrices.near(s[:2], np.linalg.svd(general[::2], compute_uv=False))
    for now, before in ((A, general), (b, right), (V, gram), (F, general)):
        assert np.array_equal(now[1::2], before[1::2])
    assert not pivots[1::2].any() and not t[1::2].any()


def test_every_singular_matrix_of_a_stack_is_named(device: str, matrices: Matrices) -> None:
    general = by_columns(matrices.general(4, 3, 3))
    general[1, :, 2], general[3, :, 0] = 0, 0
    A, b, right = general.copy("K"), matrices.general(4, 3), matrices.general(4, 3)
    b[:] = right
    with offload_args(A, Scratch((4, 3), np.int32), b, device=device) as (dA, dp, db):
        with pytest.raises(lapack.StackError, match=r"^lapack\.gesv: of 4 matrices 2 failed: A\[1\], A\[3\]") as caught:
            lapack.gesv(dA, dp, db)
    assert caught.value.info.tolist() == [0, 3, 0, 1]
    for i in (0, 2):
        assert matrices.near(general[i] @ b[i], right[i])


def test_pivots_of_a_stack_are_checked(device: str) -> None:
    A, pivots, b = np.stack([np.eye(3)] * 2), np.full((2, 3), 3, np.int32), np.ones((2, 3))
    pivots[1, 1] = 1
    with offload_args(In(A), In(pivots), b, device=device) as (dA, dp, db):
        with pytest.raises(ArgumentError, match=r"^lapack\.getrs: ipiv\[1\] is 1, needs to be from 2 to 3"):
            lapack.getrs(dA, dp, db)


def test_triangles_of_a_stack_with_zeros_are_named(device: str, matrices: Matrices) -> None:
    triangles = by_columns(np.triu(matrices.general(3, 4, 4)) + 4 * np.eye(4, dtype=matrices.dtype))
    triangles[1, 2, 2] = 0
    b, right = matrices.general(3, 4), np.zeros((3, 4), matrices.dtype)
    right[:] = b
    with offload_args(In(triangles), b, device=device) as (dA, db):
        with pytest.raises(
            lapack.StackError, match=r"A\[1\]: A is singular: pivot 3, on its diagonal, is zero"
        ) as caught:
            lapack.trtrs(dA, db)
    assert caught.value.info.tolist() == [0, 3, 0]
    for i in (0, 2):
        assert matrices.near(triangles[i] @ b[i], right[i])
