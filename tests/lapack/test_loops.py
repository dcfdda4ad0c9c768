"""Stacks of small matrices are one call on the CPU; condition numbers and least squares of stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lapack.conftest import Matrices
from numpy.typing import NDArray

from helpers.devices import here, open_or_skip
from offload_args import In, Out, Scratch, lapack, offload_args, trace
from offload_args.errors import ArgumentError, CaptureError

CPUS = here("host", "sim:0")


def by_columns(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values as a stack whose matrices are in Fortran order."""
    return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)


def adjoint(values: NDArray[Any]) -> NDArray[Any]:
    return values.conj().swapaxes(-1, -2)


def calls_of(traced: Any) -> list[str]:
    """Return the functions of LAPACK that were called, without the letter of their dtype."""
    calls = [event.name for event in traced.events if event.kind == "call"]
    return [name.removeprefix("lapacke.")[1:] for name in calls if name.startswith("lapacke.")]


def indefinite(matrices: Matrices, count: int, n: int, hermitian: bool) -> NDArray[Any]:
    general = matrices.general(count, n, n)
    return by_columns(general + (adjoint(general) if hermitian else general.swapaxes(-1, -2)))


@pytest.mark.later("host", "float32", "complex64")
def test_q_of_a_stack(device: str, matrices: Matrices) -> None:
    general = by_columns(matrices.general(2, 3, 5, 3))
    A, C, E = general.copy("K"), by_columns(matrices.general(2, 3, 5, 2)), matrices.general(2, 3, 5)
    before, vectors = C.copy("K"), E.copy()
    with offload_args(A, Scratch((2, 3, 3), matrices.dtype), C, E, device=device) as (dA, dtau, dC, dE):
        lapack.geqrf(dA, dtau)
        lapack.ormqr(dA, dtau, dC, trans="C")
        lapack.ormqr(dA, dtau, dE, trans="C")
        lapack.ormqr(dA, dtau, dC)
        lapack.orgqr(dA, dtau)
    assert matrices.near(adjoint(A) @ A, np.broadcast_to(np.eye(3), (2, 3, 3, 3)))
    assert matrices.near(A @ (adjoint(A) @ general), general)
    assert matrices.near(C, before)
    assert matrices.near(E[..., :3], (adjoint(A) @ vectors[..., None])[..., 0])


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("side", ["L", "R"])
@pytest.mark.parametrize("order", ["F", "C"])
def test_products_with_q_of_a_stack(device: str, matrices: Matrices, side: str, order: str) -> None:
    reflectors = by_columns(matrices.general(4, 4, 3))
    C = matrices.general(4, 4, 5) if side == "L" else matrices.general(4, 5, 4)
    C = by_columns(C) if order == "F" or matrices.is_complex else C  # a complex C in C order would be copied
    single, whole = C.copy("K"), C.copy("K")
    with offload_args(reflectors, Scratch((4, 3), matrices.dtype), single, whole, device=device) as (dA, dtau, d, dC):
        lapack.geqrf(dA, dtau)
        lapack.ormqr(dA, dtau, dC, side=side, trans="C")
        for i in range(4):
            lapack.ormqr(dA[i], dtau[i], d[i], side=side, trans="C")
    assert matrices.near(whole, single)
    assert not matrices.near(whole, C)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("trans", ["N", "C"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)], ids=str)
@pytest.mark.parametrize("of_vectors", [True, False], ids=["vectors", "matrices"])
def test_least_squares_of_a_stack(
    device: str, matrices: Matrices, trans: str, shape: tuple[int, int], of_vectors: bool
) -> None:
    m, n = shape
    general = matrices.general(3, m, n)
    general = by_columns(general) if m >= n else np.ascontiguousarray(general)
    op = general if trans == "N" else adjoint(general)
    A, B = general.copy("K"), by_columns(matrices.general(3, max(m, n), 1 if of_vectors else 2))
    B = B[..., 0].copy() if of_vectors else B
    right = (B[..., None] if of_vectors else B)[:, : op.shape[1]].copy()
    with offload_args(A, B, device=device) as (dA, dB):
        lapack.gels(dA, dB, trans=trans)
    X = (B[..., None] if of_vectors else B)[:, : op.shape[2]]
    for i in range(3):
        assert matrices.near(X[i], np.linalg.lstsq(op[i], right[i], rcond=None)[0])


def test_real_right_sides_in_c_order(device: str) -> None:
    matrices = Matrices("float64")
    general, right = by_columns(matrices.general(3, 5, 2)), matrices.general(3, 5, 4)
    A, B = general.copy("K"), right.copy()
    with offload_args(A, B, device=device) as (dA, dB):
        lapack.gels(dA, dB)
    for i in range(3):
        assert matrices.near(B[i, :2], np.linalg.lstsq(general[i], right[i], rcond=None)[0])


def test_matrices_without_full_rank_are_named(device: str, matrices: Matrices) -> None:
    general = by_columns(matrices.general(4, 4, 2))
    general[1, :, 1], general[3, :, 0] = 0, 0
    right = matrices.general(4, 4)
    A, b = general.copy("K"), right.copy()
    with offload_args(A, b, device=device) as (dA, db):
        with pytest.raises(lapack.StackError, match=r"of 4 matrices 2 failed: A\[1\], A\[3\]; A\[1\]: A has") as caught:
            lapack.gels(dA, db)
    assert caught.value.info.tolist() == [0, 2, 0, 1]
    for i in (0, 2):
        assert matrices.near(b[i, :2], np.linalg.lstsq(general[i], right[i], rcond=None)[0])


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("uplo", ["U", "L"])
def test_inverses_of_positive_definite_stacks(device: str, matrices: Matrices, uplo: str) -> None:
    positive = np.stack([matrices.definite(3) for _ in range(4)])
    A, F = positive.copy(), by_columns(positive)
    with offload_args(A, F, device=device) as (dA, dF):
        for stack in (dA, dF):
            lapack.potrf(stack, uplo=uplo)
            lapack.potri(stack, uplo=uplo)
    triangle: Any = np.triu if uplo == "U" else np.tril
    for inverses in (A, F):
        assert matrices.near(triangle(inverses), triangle(np.linalg.inv(positive)))


def test_factors_with_zeros_are_named_by_potri(device: str, matrices: Matrices) -> None:
    factors = np.stack([2 * np.eye(3)] * 3).astype(matrices.dtype)
    factors[1, 2, 2] = 0
    with offload_args(factors, device=device) as (dA,):
        with pytest.raises(lapack.StackError, match=r"A\[1\]: A is singular: pivot 3, on its diagonal, is zero"):
            lapack.potri(dA)
    assert np.array_equal(factors[0], np.eye(3) / 4) and np.array_equal(factors[2], np.eye(3) / 4)


@pytest.mark.later("float32", "complex64")
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("hermitian", [False, True], ids=["symmetric", "Hermitian"])
@pytest.mark.parametrize("uplo", ["U", "L"])
def test_indefinite_stacks(name: str, matrices: Matrices, hermitian: bool, uplo: str) -> None:
    device = open_or_skip(name)
    trf, trs = (lapack.hetrf, lapack.hetrs) if hermitian else (lapack.sytrf, lapack.sytrs)
    stack, right = indefinite(matrices, 4, 5, hermitian), by_columns(matrices.general(4, 5, 2))
    A, B, v = stack.copy("K"), right.copy("K"), right[..., 0].copy()
    with trace() as traced, offload_args(A, Scratch((4, 5), np.int32), B, v, device=device) as (dA, dp, dB, dv):
        trf(dA, dp, uplo=uplo)
        trs(dA, dp, dB, uplo=uplo)
        trs(dA, dp, dv, uplo=uplo)
    matrices.tolerance *= 10
    assert matrices.near(stack @ B, right) and matrices.near(stack @ v[..., None], right[..., :1])
    kind = "he" if hermitian and matrices.is_complex else "sy"
    assert calls_of(traced) == [f"{kind}trf", f"{kind}trs", f"{kind}trs"]


@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("of_stack", [True, False], ids=["stack", "matrix"])
def test_singular_factors_of_indefinite_matrices_are_kept(name: str, matrices: Matrices, of_stack: bool) -> None:
    device = open_or_skip(name)
    stack = by_columns(np.stack([np.diag([2.0, -3.0, 4.0])] * 3).astype(matrices.dtype))
    stack[1, 0, 0] = 0
    for trf in (lapack.sytrf, lapack.hetrf):
        A, ipiv = stack.copy("K"), np.zeros((3, 3), np.int32)
        with offload_args(A, Out(ipiv), device=device) as (dA, dp):
            if of_stack:
                trf(dA, dp, singular="keep")
            else:
                dp.fill(0)
                for i in range(3):
                    trf(dA[i], dp[i], singular="keep")
        assert np.array_equal(np.diagonal(A, axis1=1, axis2=2), np.diagonal(stack, axis1=1, axis2=2))
        assert np.array_equal(ipiv, [[1, 2, 3]] * 3)
        singular = "A is singular: pivot 1 of its factor D is zero"
        with pytest.raises(np.linalg.LinAlgError, match=singular):
            with offload_args(A, Scratch((3, 3), np.int32), device=device) as (dA, dp):
                trf(dA if of_stack else dA[1], dp if of_stack else dp[1])


@pytest.mark.parametrize("name", CPUS)
def test_other_words_for_singular_matrices_are_refused(name: str) -> None:
    device = open_or_skip(name)
    A, B = np.eye(3), np.stack([np.eye(3)] * 2)
    lent = In(A), Scratch(3, np.int32), In(B), Scratch((2, 3), np.int32)
    with offload_args(*lent, device=device) as (dA, dp, dB, dq):
        for trf in (lapack.sytrf, lapack.hetrf, lapack.getrf):
            for operands in ((dA, dp), (dB, dq)):
                with pytest.raises(ArgumentError, match=r'singular must be "raise" or "keep", got \'skip\''):
                    trf(*operands, singular="skip")


@pytest.mark.parametrize("name", CPUS)
def test_pivots_of_indefinite_stacks_are_checked(name: str) -> None:
    device = open_or_skip(name)
    A, ipiv, b = np.stack([np.eye(3)] * 2), np.ones((2, 3), np.int32), np.ones((2, 3))
    ipiv[1, 1] = -4
    with offload_args(In(A), In(ipiv), b, device=device) as (dA, dp, db):
        with pytest.raises(ArgumentError, match=r"^lapack\.sytrs: ipiv\[1\] is -4, needs to be from 1 to 3"):
            lapack.sytrs(dA, dp, db)


@pytest.mark.later("float32", "complex64")
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("vectors", [False, True], ids=["values", "vectors"])
def test_eigenvalues_of_general_stacks(name: str, matrices: Matrices, vectors: bool) -> None:
    device = open_or_skip(name)
    general = by_columns(matrices.general(2, 3, 5, 5))
    A, w = general.copy("K"), np.zeros((2, 3, 5), np.result_type(matrices.dtype, np.complex64))
    VL, VR = by_columns(np.zeros((2, 3, 5, 5), w.dtype)), by_columns(np.zeros((2, 3, 5, 5), w.dtype))
    with trace() as traced, offload_args(A, Out(w), Out(VL), Out(VR), device=device) as (dA, dw, dVL, dVR):
        if vectors:
            lapack.geev(dA, dw, dVL, dVR)
        else:
            lapack.geev(dA, dw)
            dVL.fill(0)
            dVR.fill(0)
    assert calls_of(traced) == ["geev"]
    expected = np.linalg.eigvals(general)
    matrices.tolerance *= 10
    for index in np.ndindex(2, 3):
        distances = abs(w[index][:, None] - expected[index][None, :])
        assert np.all(distances.min(axis=1) <= matrices.tolerance) and np.all(
            distances.min(axis=0) <= matrices.tolerance
        )
    if vectors:
        assert matrices.near(general @ VR, VR * w[..., None, :])
        assert matrices.near(adjoint(VL) @ general, w[..., :, None] * adjoint(VL))
        assert matrices.near(np.linalg.norm(VR, axis=-2), np.ones((2, 3, 5)))


@pytest.mark.parametrize("name", CPUS)
def test_a_general_matrix_that_is_not_finite_is_named(name: str, matrices: Matrices) -> None:
    device = open_or_skip(name)
    general = by_columns(matrices.general(3, 4, 4))
    A, w = general.copy("K"), np.zeros((3, 4), np.result_type(matrices.dtype, np.complex64))
    A[1, 2, 0] = np.nan
    with offload_args(A, w, device=device) as (dA, dw):
        with pytest.raises(lapack.StackError, match=r"A\[1\]: A\[2, 0\] is .*nan.*, needs to be finite") as caught:
            lapack.geev(dA, dw)
    assert caught.value.info.tolist() == [0, -1, 0]


@pytest.mark.parametrize("name", CPUS)
def test_each_function_of_a_stack_is_one_call(name: str, matrices: Matrices) -> None:
    device = open_or_skip(name)
    A, L = by_columns(matrices.general(5, 4, 3)), by_columns(matrices.general(5, 4, 3))
    S = np.stack([matrices.definite(3) for _ in range(5)])
    C, b = by_columns(matrices.general(5, 4, 2)), matrices.general(5, 4)
    lent = A, Scratch((5, 3), matrices.dtype), C, L, b, S
    with trace() as traced, offload_args(*lent, device=device) as (dA, dtau, dC, dL, db, dS):
        lapack.geqrf(dA, dtau)
        lapack.ormqr(dA, dtau, dC)
        lapack.orgqr(dA, dtau)
        lapack.gels(dL, db)
        lapack.potrf(dS)
        lapack.potri(dS)
    q = "un" if matrices.is_complex else "or"
    assert calls_of(traced) == ["geqrf", f"{q}mqr", f"{q}gqr", "geqrf", f"{q}mqr", "potrf", "potri"]


@pytest.mark.parametrize("n", [1, 128, 129])  # orders up to and above the largest order for a loop
def test_right_sides_of_any_number(device: str, n: int) -> None:
    matrices = Matrices("float64")
    general, right = by_columns(matrices.general(2, 3, 2)), by_columns(matrices.general(2, 3, n))
    A, B = general.copy("K"), right.copy("K")
    with offload_args(A, B, device=device) as (dA, dB):
        lapack.gels(dA, dB)
    for i in range(2):
        assert matrices.near(B[i, :2], np.linalg.lstsq(general[i], right[i], rcond=None)[0])


@pytest.mark.parametrize("norm", ["1", "I"])
def test_condition_numbers_of_a_stack(device: str, matrices: Matrices, norm: str) -> None:
    general, positive = matrices.general(2, 3, 4, 4), np.stack([matrices.definite(4) for _ in range(3)])
    order: Any = 1 if norm == "1" else np.inf
    sizes, others = np.linalg.norm(general, order, axis=(-2, -1)), np.linalg.norm(positive, 1, axis=(-2, -1))
    A, S = general.copy(), positive.copy()
    with offload_args(A, Scratch((2, 3, 4), np.int32), S, device=device) as (dA, dp, dS):
        lapack.getrf(dA, dp)
        lapack.potrf(dS)
        of_general = lapack.gecon(dA, sizes, norm=norm)
        of_positive = lapack.pocon(dS, others)
        alone = [[lapack.gecon(dA[i, j], float(sizes[i, j]), norm=norm) for j in range(3)] for i in range(2)]
        assert np.array_equal(of_general, alone)
        assert np.array_equal(of_positive, [lapack.pocon(dS[i], float(others[i])) for i in range(3)])
        assert np.array_equal(lapack.pocon(dS, 2.0), [lapack.pocon(dS[i], 2.0) for i in range(3)])
        with pytest.raises(
            ArgumentError, match=r"^lapack\.gecon: anorm has shape \(2,\), needs \(2, 3\), as the stack"
        ):
            lapack.gecon(dA, sizes[:, 0])
    assert of_general.shape == (2, 3) and of_general.dtype == np.float64


@pytest.mark.later("float32", "complex64")
def test_least_squares_of_stacks_of_any_rank(device: str, matrices: Matrices) -> None:
    general, right = matrices.general(2, 2, 5, 3), matrices.general(2, 2, 5, 2)
    general[1, 0, :, 2] = general[1, 0, :, 0]
    B, s = right.copy(), np.zeros((2, 2, 3), matrices.real)
    rcond = 1e-5 if matrices.real == np.float32 else 1e-10
    with offload_args(In(general), B, Out(s), device=device) as (dA, dB, ds):
        ranks = lapack.gelsd(dA, dB, ds, rcond=rcond)
    assert ranks.tolist() == [[3, 3], [2, 3]]
    assert matrices.near(s, np.linalg.svd(general, compute_uv=False))
    for index in np.ndindex(2, 2):
        assert matrices.near(B[index][:3], np.linalg.lstsq(general[index], right[index], rcond=rcond)[0])


def test_a_matrix_of_a_stack_that_gelsd_refuses_is_named(device: str) -> None:
    general, B = np.stack([np.eye(3)] * 3), np.ones((3, 3))
    general[1, 2, 0] = np.nan
    with offload_args(In(general), B, Scratch((3, 3)), device=device) as (dA, dB, ds):
        named = r"^lapack\.gelsd: of 3 matrices 1 failed: A\[1\]; A\[1\]: A\[2, 0\] is nan, needs to be finite"
        with pytest.raises(lapack.StackError, match=named) as caught:
            lapack.gelsd(dA, dB, ds)
    assert caught.value.info.tolist() == [0, -1, 0]


@pytest.mark.parametrize("name", CPUS)
def test_a_chain_captures_products_with_q_of_a_stack(name: str, matrices: Matrices) -> None:
    device = open_or_skip(name)
    general, C = by_columns(matrices.general(3, 4, 2)), by_columns(matrices.general(3, 4, 2))
    A, before = general.copy("K"), C.copy("K")
    region = offload_args(A, Scratch((3, 2), matrices.dtype), C, device=device)
    with region as (dA, dtau, dC):
        lapack.geqrf(dA, dtau)
        with region.capture() as g:
            lapack.ormqr(dA, dtau, dC, trans="C")
        g.replay()
        lapack.ormqr(dA, dtau, dC)
        with pytest.raises(CaptureError, match=r"^lapack\.gels: the region is being captured"), region.capture():
            lapack.gels(dA, dC)
    assert matrices.near(C, before)
