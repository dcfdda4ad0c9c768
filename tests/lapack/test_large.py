"""Large matrices, and matrices of lower rank than their size, in double precision, compared with SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from helpers.devices import here
from helpers.processes import python
from offload_args import Out, Scratch, lapack, offload_args

SLOW = pytest.mark.slow
SIZES = [200, pytest.param(1000, marks=SLOW), pytest.param(2048, marks=SLOW)]
FEWER = [
    200,
    pytest.param(600, marks=SLOW),
    pytest.param(1000, marks=pytest.mark.exhaustive),
]  # SciPy takes long for vectors of larger matrices


def general(*shape: int) -> NDArray[np.float64]:
    return np.asfortranarray(np.random.default_rng(3).standard_normal(shape))


def close(actual: Any, expected: Any, times: float = 1e-11) -> None:
    largest = max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=times * largest)


@pytest.mark.parametrize("n", SIZES)
def test_systems(device: str, n: int) -> None:
    original, right = general(n, n), general(n, 2)
    A, x = original.copy("F"), right.copy("F")
    definite, y = original @ original.T + n * np.eye(n), right.copy("F")
    with offload_args(A, Scratch((n,), np.int32), x, definite, y, device=device) as (dA, dp, dx, dS, dy):
        lapack.gesv(dA, dp, dx)
        lapack.posv(dS, dy, uplo="L")
    factors, _ = scipy.linalg.lu_factor(original)
    close(A, factors, 1e-9)
    close(original @ x, right, 1e-8)
    close(y, scipy.linalg.solve(original @ original.T + n * np.eye(n), right, assume_a="pos"))


@pytest.mark.parametrize("n", SIZES)
def test_least_squares(device: str, n: int) -> None:
    original, right = general(n, n // 2), general(n, 1)
    A, x = original.copy("F"), right.copy("F")
    with offload_args(A, x, device=device) as (dA, dx):
        lapack.gels(dA, dx)
    close(x[: n // 2], scipy.linalg.lstsq(original, right, lapack_driver="gelsy")[0])


@pytest.mark.parametrize("n", FEWER)
def test_eigenvalues_and_singular_values(device: str, n: int) -> None:
    original = general(n, n)
    S, w, A, s = np.asfortranarray(original + original.T), np.zeros(n), original.copy("F"), np.zeros(n)
    U, VT = np.zeros((n, n), order="F"), np.zeros((n, n), order="F")
    with offload_args(S, Out(w), A, Out(s), Out(U), Out(VT), device=device) as (dS, dw, dA, ds, dU, dVT):
        lapack.syevd(dS, dw)
        lapack.gesvd(dA, ds, dU, dVT)
    close(w, scipy.linalg.eigvalsh(original + original.T))
    close((original + original.T) @ S, S * w)
    close(s, scipy.linalg.svdvals(original))
    close(U * s @ VT, original)


def test_a_matrix_of_a_lower_rank(device: str) -> None:
    m, n, rank = 60, 40, 7
    original = np.asfortranarray(general(m, rank) @ general(rank, n))
    gram = original.T @ original
    A, s, S, w = original.copy("F"), np.zeros(n), np.asfortranarray(gram), np.zeros(n)
    R, tau, Q = original.copy("F"), np.zeros(n), np.asfortranarray(np.eye(m, n))
    arrays = (A, Out(s), S, Out(w), R, Out(tau), Q)
    with offload_args(*arrays, device=device) as (dA, ds, dS, dw, dR, dtau, dQ):
        lapack.gesvd(dA, ds, jobu="N", jobvt="N")
        lapack.syevd(dS, dw)
        lapack.geqrf(dR, dtau)
        lapack.ormqr(dR, dtau, dQ)
    close(s, scipy.linalg.svdvals(original))
    close(s[rank:], np.zeros(n - rank), 1e-12)
    close(w, scipy.linalg.eigvalsh(gram))
    close(gram @ S, S * w)
    close(Q @ np.triu(R[:n]), original)
    close(Q.T @ Q, np.eye(n))


LONG = """
import numpy as np
from offload_args import Out, lapack, linalg, offload_args
for shape in (200_000, 2), (2, 200_000):
    A, s = np.asarray(np.random.default_rng(1).standard_normal(shape), order="F"), np.empty(2)
    U, VT = np.empty((shape[0], 2), order="F"), np.empty((2, shape[1]), order="F")
    with offload_args(A.copy("F"), Out(s), Out(U), Out(VT), device="{device}") as lent:
        lapack.gesvd(*lent)
    print(np.allclose(U * s @ VT, A), end=" ")
"""


@pytest.mark.later("host")
@pytest.mark.parametrize("device", here("host", "sim:0"))
def test_singular_vectors_of_a_long_matrix_need_little_memory(device: str) -> None:
    use = python(LONG.format(device=device), OFFLOAD_ARGS_MEMORY_LIMIT="16MiB")
    assert use.stdout == "True True ", use
