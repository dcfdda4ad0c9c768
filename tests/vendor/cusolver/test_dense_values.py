"""Each dense function of cuSOLVER on a GPU, compared with NumPy and SciPy, in all dtypes, with gaps between columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from offload_args import In, Out, Scratch, cusolver, offload_args
from offload_args.errors import ArgumentError, LibraryVersionError, OffloadError

LIBRARY = "cusolver"

DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
FILLS = {"lower": cusolver.CUBLAS_FILL_MODE_LOWER, "upper": cusolver.CUBLAS_FILL_MODE_UPPER}
LEFT, RIGHT = cusolver.CUBLAS_SIDE_LEFT, cusolver.CUBLAS_SIDE_RIGHT
VECTOR = cusolver.EIG_MODE_VECTOR
letters = pytest.mark.parametrize("letter", DTYPES)
fills = pytest.mark.parametrize("fill", FILLS)


def some(letter: str, *shape: int, seed: int = 7) -> Any:
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if letter in "cz":
        values = values + 1j * random.standard_normal(shape)
    return spaced(values.astype(DTYPES[letter]))


def spaced(values: Any) -> Any:
    """Return a matrix by columns, with gaps between the columns."""
    built = np.full((values.shape[0] + 2, *values.shape[1:]), 9, values.dtype, order="F")[: values.shape[0]]
    built[:] = values
    return built


def hermitian(letter: str, n: int, definite: bool = False) -> Any:
    values = some(letter, n, n)
    return spaced(
        values @ values.conj().T + n * np.eye(n, dtype=values.dtype) if definite else values + values.conj().T
    )


def real(letter: str) -> Any:
    return np.float32 if letter in "sc" else np.float64


def one_triangle(A: Any, fill: str) -> Any:
    """Return the matrix with NaN in the triangle that must not be read."""
    results = spaced(A)
    results[np.triu_indices(len(A), 1) if fill == "lower" else np.tril_indices(len(A), -1)] = np.nan
    return results


def close(actual: Any, expected: Any, letter: str) -> None:
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=2e-4 if letter in "sc" else 1e-11)


def called(gpu: str, name: str, *arguments: Any, **keywords: Any) -> Any:
    """Lend the arrays and call a function whose last argument is info; fail unless info is 0."""
    places = [at for at, array in enumerate(arguments) if isinstance(array, (np.ndarray, In, Out, Scratch))]
    info = np.full(1, 9, np.int32)
    with offload_args(*(arguments[at] for at in places), Out(info), device=gpu) as pointers:
        lent = list(arguments)
        for at, pointer in zip(places, pointers, strict=False):
            lent[at] = pointer
        result = getattr(cusolver, name)(*lent, pointers[-1], **keywords)
    assert info[0] == 0, f"{name}: info {info[0]}"
    return result


def op(letter: str) -> int:
    return cusolver.CUBLAS_OP_C if letter in "cz" else cusolver.CUBLAS_OP_T


def q(letter: str) -> str:
    return f"{letter}{'un' if letter in 'cz' else 'or'}"


def ld(A: Any) -> int:
    return int(A.strides[1] // A.itemsize)


@letters
def test_orgqr_makes_q_of_every_small_shape(gpu: str, letter: str) -> None:
    wrong = []
    shapes = [(rows, n, k) for rows in (0, 1, 2, 3, 5) for n in range(rows + 1) for k in range(n + 1)]
    for m, n, k in shapes:
        for gap, zeros in ((0, True), (0, False), (2, False)):
            A = np.zeros((m + gap, n), DTYPES[letter], order="F")[:m]
            A[:] = 0 if zeros else some(letter, m, n)
            F, tau = scipy.linalg.qr(A[:, :k], mode="raw")[0] if k else (A[:, :0], np.zeros(0, A.dtype))
            expected = scipy.linalg.qr(A[:, :k])[0][:, :n] if k else np.eye(m, n)
            A[:, :k] = F
            Q, taus = A, np.append(tau, np.zeros(1, A.dtype)).astype(A.dtype)  # an empty array has no address
            try:
                with offload_args(Q, In(taus), np.zeros(1, np.int32), device=gpu) as (dQ, dt, info):
                    getattr(cusolver, f"{q(letter)}gqr")(m, n, k, dQ, max(m + gap, 1), dt, info)
                    assert info.to_host()[0] == 0
                close(Q[:, :k], expected[:, :k], letter)
                close(Q.conj().T @ Q, np.eye(n), letter)
            except ArgumentError as error:
                if k or "k >= 1" not in str(error):
                    wrong.append(((m, n, k, gap, zeros), str(error)))
            except (AssertionError, OffloadError) as error:
                wrong.append(((m, n, k, gap, zeros), " ".join(str(error).split())[:200]))
    assert not wrong, f"{len(wrong)} shapes (m, n, k, gap, zeros):\n" + "\n".join(f"{at}: {why}" for at, why in wrong)


@letters
def test_qr_factors_make_and_apply_q(gpu: str, letter: str) -> None:
    A, C = some(letter, 7, 5), some(letter, 7, 3, seed=2)
    F, tau, D = spaced(A), np.zeros(5, A.dtype), spaced(C)
    called(gpu, f"{letter}geqrf", 7, 5, F, ld(F), tau)
    R = np.triu(F[:5])
    called(gpu, f"{q(letter)}mqr", LEFT, op(letter), 7, 3, 5, In(F), ld(F), In(tau), D, ld(D))
    Q = spaced(F)
    called(gpu, f"{q(letter)}gqr", 7, 5, 5, Q, ld(Q), In(tau))
    close(Q @ R, A, letter)
    close(Q.conj().T @ Q, np.eye(5), letter)
    close(D[:5], Q.conj().T @ C, letter)


@letters
def test_a_matrix_becomes_bidiagonal_and_comes_back(gpu: str, letter: str) -> None:
    A = some(letter, 6, 4)
    F, d, e = spaced(A), np.zeros(4, real(letter)), np.zeros(3, real(letter))
    left, right = np.zeros(4, A.dtype), np.zeros(4, A.dtype)
    called(gpu, f"{letter}gebrd", 6, 4, F, ld(F), d, e, left, right)
    Q, P = spaced(F), spaced(F[:4])
    called(gpu, f"{q(letter)}gbr", LEFT, 6, 4, 4, Q, ld(Q), In(left))
    called(gpu, f"{q(letter)}gbr", RIGHT, 4, 4, 6, P, ld(P), In(right))
    close(Q @ (np.diag(d) + np.diag(e, 1)) @ P, A, letter)


@letters
@fills
def test_a_matrix_becomes_tridiagonal_and_comes_back(gpu: str, letter: str, fill: str) -> None:
    A, n, C = hermitian(letter, 6), 6, some(letter, 6, 2, seed=3)
    F, d, e, tau = (
        one_triangle(A, fill),
        np.zeros(n, real(letter)),
        np.zeros(n - 1, real(letter)),
        np.zeros(n - 1, A.dtype),
    )
    called(gpu, f"{letter}{'he' if letter in 'cz' else 'sy'}trd", FILLS[fill], n, F, ld(F), d, e, tau)
    D = spaced(C)
    called(gpu, f"{q(letter)}mtr", LEFT, FILLS[fill], op(letter), n, 2, In(F), ld(F), In(tau), D, ld(D))
    Q = spaced(F)
    called(gpu, f"{q(letter)}gtr", FILLS[fill], n, Q, ld(Q), In(tau))
    close(Q @ (np.diag(d) + np.diag(e, 1) + np.diag(e, -1)) @ Q.conj().T, A, letter)
    close(D, Q.conj().T @ C, letter)


def symmetric(letter: str) -> str:
    return f"{letter}{'he' if letter in 'cz' else 'sy'}"


@letters
@fills
def test_eigenvalues_and_vectors_of_a_hermitian_matrix(gpu: str, letter: str, fill: str) -> None:
    A, n = hermitian(letter, 9), 9
    values = np.linalg.eigvalsh(A.astype(np.complex128))
    settings = cusolver.create_syevj_info()
    everything, places, between = cusolver.EIG_RANGE_ALL, cusolver.EIG_RANGE_I, cusolver.EIG_RANGE_V
    middle = float(values[2] + values[3]) / 2, float(values[6] + values[7]) / 2
    for name, beside, first, count in (
        ("evd", None, 0, n),
        ("evj", None, 0, n),
        ("evdx", (everything, 0, 0, 0, 0), 0, n),
        ("evdx", (places, 0, 0, 3, 5), 2, 3),
        ("evdx", (between, *middle, 0, 0), 3, 4),
    ):
        V, w = one_triangle(A, fill), np.zeros(n, real(letter))
        name = symmetric(letter) + name
        if name.endswith("evj"):
            info = np.zeros(1, np.int32)
            with offload_args(V, Out(w), Out(info), device=gpu) as (dV, dw, dinfo):
                getattr(cusolver, name)(VECTOR, FILLS[fill], n, dV, ld(V), dw, dinfo, settings)
            assert info[0] == 0
        elif beside:
            actual = called(gpu, name, VECTOR, beside[0], FILLS[fill], n, V, ld(V), *beside[1:], w)
            assert actual == count
        else:
            called(gpu, name, VECTOR, FILLS[fill], n, V, ld(V), w)
        close(w[:count], values[first : first + count], letter)
        close(A @ V[:, :count], V[:, :count] * w[:count], letter)


@letters
def test_eigenvalues_of_each_matrix_of_a_batch(gpu: str, letter: str) -> None:
    A = np.asfortranarray(np.stack([hermitian(letter, 5) * (1 + at) for at in range(3)], axis=2))
    V, w, info, settings = A.copy("F"), np.zeros((5, 3), real(letter), order="F"), np.zeros(3, np.int32), None
    settings = cusolver.create_syevj_info()
    name, lower = f"{symmetric(letter)}evj_batched", FILLS["lower"]
    with offload_args(V, Out(w), Out(info), device=gpu) as (dV, dw, dinfo):
        getattr(cusolver, name)(VECTOR, lower, 5, dV, 5, dw, dinfo, settings, 3)
    assert not info.any()
    for at in range(3):
        close(w[:, at], np.linalg.eigvalsh(A[:, :, at].astype(np.complex128)), letter)
        close(A[:, :, at] @ V[:, :, at], V[:, :, at] * w[:, at], letter)


@letters
@pytest.mark.parametrize("itype", [1, 2, 3])
def test_eigenvalues_of_a_pencil(gpu: str, letter: str, itype: int) -> None:
    A, B, n = hermitian(letter, 6), hermitian(letter, 6, definite=True), 6
    values, lower = (
        scipy.linalg.eigh(A.astype(complex), B.astype(complex), type=itype, eigvals_only=True),
        FILLS["lower"],
    )
    settings, code = cusolver.create_syevj_info(), getattr(cusolver, f"EIG_TYPE_{itype}")
    for name in ("gvd", "gvj", "gvdx"):
        V, F, w, info = (
            one_triangle(A, "lower"),
            one_triangle(B, "lower"),
            np.zeros(n, real(letter)),
            np.zeros(1, np.int32),
        )
        with offload_args(V, F, w, Out(info), device=gpu) as (dV, dF, dw, dinfo):
            beside = (cusolver.EIG_RANGE_I, lower) if name == "gvdx" else (lower,)
            arguments = code, VECTOR, *beside, n, dV, ld(V), dF, ld(F)
            rest = (settings,) if name == "gvj" else ()
            bounds = (0, 0, 2, 4) if name == "gvdx" else ()
            actual = getattr(cusolver, symmetric(letter) + name)(*arguments, *bounds, dw, dinfo, *rest)
        first, count = (1, 3) if name == "gvdx" else (0, n)
        assert info[0] == 0 and actual in (None, count)
        V, w = V[:, :count], w[:count]
        close(w, values[first : first + count], letter)
        sides = {1: (A @ V, B @ V * w), 2: (A @ (B @ V), V * w), 3: (B @ (A @ V), V * w)}[itype]
        close(*sides, letter)


@letters
@pytest.mark.parametrize(("m", "n"), [(7, 4), (4, 7), (5, 5)])
@pytest.mark.parametrize("econ", [0, 1])
def test_singular_values_and_vectors_by_jacobi(gpu: str, letter: str, m: int, n: int, econ: int) -> None:
    A, less = some(letter, m, n), min(m, n)
    F, s, info = spaced(A), np.zeros(less, real(letter)), np.zeros(1, np.int32)
    U, V = (spaced(np.zeros((size, less if econ else size), A.dtype)) for size in (m, n))
    settings = cusolver.create_gesvdj_info()
    cusolver.xgesvdj_set_max_sweeps(settings, 30)
    with cusolver.create(gpu) as handle:
        with offload_args(F, Out(s), Out(U), Out(V), Out(info), device=gpu) as (dA, ds, dU, dV, dinfo):
            arguments = VECTOR, econ, m, n, dA, ld(F), ds, dU, ld(U), dV, ld(V), dinfo, settings
            getattr(cusolver, f"{letter}gesvdj")(*arguments, handle=handle)
        assert 0 < cusolver.xgesvdj_get_sweeps(handle, settings) <= 30
        assert 0 <= cusolver.xgesvdj_get_residual(handle, settings) < 1e-3
    assert info[0] == 0
    close(s, np.linalg.svd(A.astype(complex), compute_uv=False), letter)
    close(U[:, :less] * s @ V[:, :less].conj().T, A, letter)
    close(U.conj().T @ U, np.eye(U.shape[1]), letter)


@letters
def test_singular_values_of_each_matrix_of_a_batch(gpu: str, letter: str) -> None:
    A = np.asfortranarray(np.stack([some(letter, 6, 4, seed=at) for at in range(3)], axis=2))
    s, info = np.zeros((4, 3), real(letter), order="F"), np.zeros(3, np.int32)
    U, V = (np.zeros((size, size, 3), A.dtype, order="F") for size in (6, 4))
    with offload_args(A.copy("F"), Out(s), Out(U), Out(V), Out(info), device=gpu) as (dA, ds, dU, dV, dinfo):
        settings = cusolver.create_gesvdj_info()
        arguments = VECTOR, 6, 4, dA, 6, ds, dU, 6, dV, 4, dinfo, settings, 3
        getattr(cusolver, f"{letter}gesvdj_batched")(*arguments)
    assert not info.any()
    for at in range(3):
        close(s[:, at], np.linalg.svd(A[:, :, at].astype(complex), compute_uv=False), letter)
        close(U[:, :4, at] * s[:, at] @ V[:, :, at].conj().T, A[:, :, at], letter)


@letters
@fills
def test_triangles_are_multiplied_and_symmetric_matrices_inverted(gpu: str, letter: str, fill: str) -> None:
    A, n = some(letter, 6, 6), 6
    A[np.diag_indices(n)] = A.diagonal().real
    T = np.tril(A) if fill == "lower" else np.triu(A)
    F = one_triangle(A, fill)
    called(gpu, f"{letter}lauum", FILLS[fill], n, F, ld(F))
    half = np.tril if fill == "lower" else np.triu
    close(half(np.nan_to_num(F)), half(T.conj().T @ T if fill == "lower" else T @ T.conj().T), letter)
    S = spaced(A + A.T)
    F, pivots = one_triangle(S, fill), np.zeros(n, np.int32)
    called(gpu, f"{letter}sytrf", FILLS[fill], n, F, ld(F), pivots)
    factors = F.copy()
    called(gpu, f"{letter}sytri", FILLS[fill], n, F, ld(F), In(pivots))
    actual = half(np.nan_to_num(F))
    if np.array_equal(F, factors, equal_nan=True):  # sytri of this version does nothing
        assert cusolver.get_version() // 100 == 120
    else:
        close((actual + actual.T - np.diag(np.diag(actual))) @ S, np.eye(n), letter)


@letters
@fills
def test_a_batch_of_definite_systems_is_solved(gpu: str, letter: str, fill: str) -> None:
    n, A = 5, [hermitian(letter, 5, definite=True) * (1 + at) for at in range(3)]
    B = [some(letter, n, 1, seed=at) for at in range(3)]
    F, X, info = [one_triangle(array, fill) for array in A], [spaced(array) for array in B], np.zeros(3, np.int32)
    with offload_args(*F, *X, Out(info), device=gpu) as (*pointers, dinfo):
        dF, dX = pointers[:3], pointers[3:]
        getattr(cusolver, f"{letter}potrf_batched")(FILLS[fill], n, dF, n + 2, dinfo, 3)
        assert not dinfo.to_host().any()
        with offload_args(Scratch((1,), np.int32), device=gpu) as (empty,):
            getattr(cusolver, f"{letter}potrs_batched")(FILLS[fill], n, 1, dF, n + 2, dX, n + 2, empty, 3)
    for matrix, x, b in zip(A, X, B, strict=True):
        close(matrix @ x, b, letter)


MIXED = "zz zc zk ze zy cc ce ck cy dd ds dh db dx ss sh sb sx".split()


@pytest.mark.parametrize("pair", MIXED)
def test_a_system_is_solved_in_a_lower_precision_and_refined(gpu: str, pair: str) -> None:
    letter, n = pair[0], 24
    A, B = some(letter, n, n), some(letter, n, 2, seed=3)
    A += (2 * n * np.eye(n)).astype(A.dtype)
    X, pivots = spaced(np.zeros_like(B)), np.zeros(n, np.int32)
    steps = called(gpu, f"{pair}gesv", n, 2, spaced(A), ld(A), pivots, spaced(B), ld(B), X, ld(X))
    assert isinstance(steps, int)
    close(A @ X, B, letter)
    C, Y = some(letter, 40, n, seed=4), spaced(np.zeros((n, 2), A.dtype))
    D = some(letter, 40, 2, seed=5)
    called(gpu, f"{pair}gels", 40, n, 2, spaced(C), ld(C), spaced(D), ld(D), Y, ld(Y))
    close(Y, np.linalg.lstsq(C.astype(complex), D.astype(complex), rcond=None)[0], letter)


def lacks(call: Callable[[], Any]) -> bool:
    try:
        call()
    except LibraryVersionError as error:
        assert ": its version is" in str(error)
        return True
    return False


@letters
def test_the_64_bit_interface_factors_and_solves(gpu: str, letter: str) -> None:
    n, t, params = 6, DTYPES[letter], cusolver.create_params()
    A, B = some(letter, n, n), some(letter, n, 2, seed=3)
    F, X, pivots = spaced(A), spaced(B), np.zeros(n, np.int64)
    called(gpu, "xgetrf", params, n, n, t, F, ld(F), pivots, t)
    for trans, matrix in (("N", A), ("T", A.T), ("C", A.conj().T)):
        X = spaced(B)
        code = getattr(cusolver, f"CUBLAS_OP_{trans}")
        called(gpu, "xgetrs", params, code, n, 2, t, In(F), ld(F), In(pivots), t, X, ld(X))
        close(matrix @ X, B, letter)
    D = hermitian(letter, n, definite=True)
    F, X = one_triangle(D, "upper"), spaced(B)
    called(gpu, "xpotrf", params, FILLS["upper"], n, t, F, ld(F), t)
    called(gpu, "xpotrs", params, FILLS["upper"], n, 2, t, In(F), ld(F), t, X, ld(X))
    close(D @ X, B, letter)
    C = some(letter, 7, 4)
    F, tau = spaced(C), np.zeros(4, t)
    called(gpu, "xgeqrf", params, 7, 4, t, F, ld(F), t, tau, t)
    close(np.abs(np.triu(F[:4])), np.abs(np.linalg.qr(C)[1]), letter)
    T = one_triangle(A + 5 * np.eye(n, dtype=t), "lower")
    inverse = spaced(T)
    called(gpu, "xtrtri", FILLS["lower"], cusolver.CUBLAS_DIAG_NON_UNIT, n, t, inverse, ld(inverse))
    close(np.tril(np.nan_to_num(inverse)) @ np.tril(np.nan_to_num(T)), np.eye(n), letter)


@letters
def test_the_64_bit_interface_solves_symmetric_systems(gpu: str, letter: str) -> None:
    n, t, params = 6, DTYPES[letter], cusolver.create_params()
    values, B, lower = some(letter, n, n), some(letter, n, 2, seed=3), FILLS["lower"]
    for kind, A in (("sy", spaced(values + values.T)), ("he", spaced(values + values.conj().T))):
        if kind == "he" and letter in "sd":
            continue
        F, X, pivots = one_triangle(A, "lower"), spaced(B), np.zeros(n, np.int64)
        if lacks(lambda kind=kind, F=F, p=pivots: called(gpu, f"x{kind}trf", params, lower, n, t, F, ld(F), p, t)):
            continue
        arguments = lower, n, 2, t, In(F), ld(F), In(pivots), t, X, ld(X)
        called(gpu, f"x{kind}trs", *arguments)
        close(A @ X, B, letter)


@letters
@pytest.mark.parametrize(("m", "n"), [(7, 4), (5, 5)])
def test_the_64_bit_interface_finds_singular_values(gpu: str, letter: str, m: int, n: int) -> None:
    t, r, params, A = DTYPES[letter], real(letter), cusolver.create_params(), some(letter, m, n)
    values = np.linalg.svd(A.astype(complex), compute_uv=False)
    s, U, VT = np.zeros(n, r), spaced(np.zeros((m, m), t)), spaced(np.zeros((n, n), t))
    whole = cusolver.JOB_A
    types = lambda array: (t, array, ld(array))  # noqa: E731
    F = spaced(A)
    called(gpu, "xgesvd", params, whole, whole, m, n, *types(F), r, Out(s), t, Out(U), ld(U), t, Out(VT), ld(VT), t)
    close(s, values, letter)
    close(U[:, :n] * s @ VT, A, letter)
    V, F = spaced(np.zeros((n, n), t)), spaced(A)
    called(gpu, "xgesvdp", params, VECTOR, 1, m, n, *types(F), r, Out(s), t, U, ld(U), t, Out(V), ld(V), t)
    close(s, values, letter)
    close(U[:, :n] * s @ V.conj().T, A, letter)


@letters
@fills
def test_the_64_bit_interface_finds_eigenvalues(gpu: str, letter: str, fill: str) -> None:
    n, t, r, params = 6, DTYPES[letter], real(letter), cusolver.create_params()
    A, B = hermitian(letter, n), hermitian(letter, n, definite=True)
    V, w = one_triangle(A, fill), np.zeros(n, r)
    called(gpu, "xsyevd", params, VECTOR, FILLS[fill], n, t, V, ld(V), r, Out(w), t)
    close(w, np.linalg.eigvalsh(A.astype(complex)), letter)
    close(A @ V, V * w, letter)
    batch, values = np.asfortranarray(np.stack([A, 2 * A], axis=2)), np.zeros((n, 2), r, order="F")
    vectors, info = batch.copy("F"), np.zeros(2, np.int32)
    with offload_args(vectors, Out(values), Out(info), device=gpu) as (dV, dw, dinfo):
        arguments = params, VECTOR, FILLS[fill], n, t, dV, n, r, dw, t, dinfo, 2
        if lacks(lambda: cusolver.xsyev_batched(*arguments)):
            dV.assign(vectors)
            for array in (dw, dinfo):
                array.fill(0)
            return
    assert not info.any()
    for at in range(2):
        close(batch[:, :, at] @ vectors[:, :, at], vectors[:, :, at] * values[:, at], letter)
    V, F = one_triangle(A, fill), one_triangle(B, fill)
    arguments = params, cusolver.EIG_TYPE_1, VECTOR, FILLS[fill], n, t, V, ld(V), t, F, ld(F), r, Out(w), t
    if not lacks(lambda: called(gpu, "xsygvd", *arguments)):
        close(A @ V, B @ V * w, letter)


Captured = tuple[list[Any], Callable[..., Any]]
T = np.float64
LOWER, COLUMNWISE = FILLS["lower"], cusolver.CUBLAS_STOREV_COLUMNWISE


def captured(name: str, params: Any, n: int) -> Captured:
    """Return arrays, and a call that takes pointers to them."""
    A = np.asfortranarray(hermitian("d", n, definite=True) / n)
    C, tau, info = np.asfortranarray(some("d", n, n, seed=3)), np.full(n, 0.5), np.zeros(1, np.int32)
    d, e, taus, pivots = np.zeros(n), np.zeros(n - 1), np.full(n - 1, 0.5), np.arange(n, 0, -1, dtype=np.int32)
    calls: dict[str, Captured] = {
        "sytrd": ([A, d, e, taus, info], lambda A, *rest: cusolver.dsytrd(LOWER, n, A, n, *rest)),
        "ormtr": (
            [A, taus, C, info],
            lambda A, t, C, i: cusolver.dormtr(LEFT, LOWER, op("d"), n, n, A, n, t, C, n, i),
        ),
        "gebrd": ([A, d, e, tau, tau.copy(), info], lambda A, *rest: cusolver.dgebrd(n, n, A, n, *rest)),
        "orgbr": ([A, tau, info], lambda A, t, i: cusolver.dorgbr(LEFT, n, n, n, A, n, t, i)),
        "sytri": ([A, np.sort(pivots), info], lambda A, p, i: cusolver.dsytri(LOWER, n, A, n, p, i)),
        "laswp": ([A, np.maximum(pivots, np.sort(pivots))], lambda A, p: cusolver.dlaswp(n, A, n, 1, n, p, 1)),
        "xpotrf": ([A, info], lambda A, i: cusolver.xpotrf(params, LOWER, n, T, A, n, T, i)),
        "xgetrf": (
            [C, pivots.astype(np.int64), info],
            lambda A, p, i: cusolver.xgetrf(params, n, n, T, A, n, p, T, i),
        ),
        "xgeqrf": ([C, tau, info], lambda A, t, i: cusolver.xgeqrf(params, n, n, T, A, n, T, t, T, i)),
        "xlarft": (
            [C, tau[: n // 2].copy(), np.asfortranarray(np.zeros((n // 2, n // 2)))],
            lambda V, t, F: cusolver.xlarft(
                params, cusolver.CUBLAS_DIRECT_FORWARD, COLUMNWISE, n, n // 2, T, V, n, T, t, T, F, n // 2, T
            ),
        ),
        "xtrtri": (
            [A, info],
            lambda A, i: cusolver.xtrtri(LOWER, cusolver.CUBLAS_DIAG_NON_UNIT, n, T, A, n, i),
        ),
    }
    return calls[name]


@pytest.mark.parametrize(
    "name",
    ["sytrd", "ormtr", "gebrd", "orgbr", "sytri", "laswp", "xpotrf", "xgetrf", "xgeqrf", "xlarft", "xtrtri"],
)
def test_a_graph_repeats_calls_of_two_sizes_with_the_bits_of_single_calls(gpu: str, name: str) -> None:
    """A call that moved or freed memory of an earlier call of the graph would change the results."""
    params = cusolver.create_params()
    parts = [captured(name, params, n) for n in (9, 500)]
    arrays = [array for part, _ in parts for array in part]
    region = offload_args(*(array.copy("F") for array in arrays), device=gpu)
    with region as pointers:
        few = len(parts[0][0])

        def call() -> None:
            for (_, function), own in zip(parts, (pointers[:few], pointers[few:]), strict=True):
                function(*own)

        def results(run: Callable[[], None], factor: float) -> list[Any]:
            for pointer, array in zip(pointers, arrays, strict=True):
                pointer.assign(array * factor if array.dtype == T else array)
            run()
            return [pointer.to_host() for pointer in pointers]

        with region.capture() as g:
            call()
        with region.capture() as other:  # has its own memory
            call()
        for factor in (1.0, 1.25):
            expected = results(call, factor)
            for graph in (g, other, g):
                for actual, value in zip(results(graph.replay, factor), expected, strict=True):
                    np.testing.assert_array_equal(actual, value)
