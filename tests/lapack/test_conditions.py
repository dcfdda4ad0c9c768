"""`lapack.gecon` and `pocon` return LAPACK's estimates, in both orders, with gaps, and for singular matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from lapack.conftest import Matrices
from lapack.test_solutions import ORDERS, with_gaps

from offload_args import Scratch, lapack, offload_args
from offload_args.errors import ArgumentError, DTypeError, HostPointerError

SIZES = (1, 2, 5, 33)


def expected(name: str, matrices: Matrices, original: Any, anorm: float, *options: str) -> float:
    """Return the estimate of SciPy's LAPACK."""
    factor, estimate = scipy.linalg.lapack.get_lapack_funcs(
        ("getrf", "gecon") if name == "gecon" else ("potrf", "pocon"), (original,)
    )
    rcond, info = estimate(factor(original)[0], anorm, *options)
    assert info == 0
    return float(rcond)


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("norm", ["1", "I"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_gecon_estimates_as_scipy_does(device: str, matrices: Matrices, n: int, order: str, norm: str) -> None:
    for scale in (0, 3):  # well and badly conditioned
        original = matrices.general(n, n) * (10.0 ** np.linspace(0, -scale, n)).astype(matrices.real)
        anorm = float(np.linalg.norm(original, 1 if norm == "1" else np.inf))
        A = with_gaps(original, order)
        with offload_args(A, Scratch(n, np.int32), device=device) as (dA, dp):
            lapack.getrf(dA, dp)
            rcond = lapack.gecon(dA, anorm, norm=norm)
        true = 1 / float(np.linalg.cond(original, 1 if norm == "1" else np.inf))
        slack = 3e3 * float(np.finfo(matrices.dtype).eps) / true
        if order == "F":  # then LAPACK has the same factors
            assert rcond == pytest.approx(expected("gecon", matrices, original, anorm, norm), rel=0.01 + slack)
        assert true * (0.99 - slack) <= rcond <= 10 * true


@pytest.mark.later("host", "float32", "complex64")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_pocon_estimates_as_scipy_does(device: str, matrices: Matrices, n: int, order: str, uplo: str) -> None:
    original = matrices.definite(n)
    anorm = float(np.linalg.norm(original, 1))
    A = with_gaps(original, order)
    with offload_args(A, device=device) as (dA,):
        lapack.potrf(dA, uplo=uplo)
        rcond = lapack.pocon(dA, anorm, uplo=uplo)
    assert rcond == pytest.approx(expected("pocon", matrices, original, anorm), rel=0.01)


def test_a_singular_matrix_and_one_of_nothing(device: str, dtype: str) -> None:
    singular, ipiv = np.diag([1, 0, 2]).astype(dtype), np.zeros(3, np.int32)
    with offload_args(singular, ipiv, np.empty((0, 0), dtype), device=device) as (dA, dp, empty):
        lapack.getrf(dA, dp, singular="keep")
        assert lapack.gecon(dA, 2.0) == 0.0
        assert lapack.gecon(empty, 0.0) == 1.0 and lapack.pocon(empty, 3.0) == 1.0
    with offload_args(np.eye(3, dtype=dtype), device=device) as (dA,):
        assert lapack.gecon(dA, 1.0) == 1.0 and lapack.pocon(dA, 0.0) == 0.0
        assert math.isnan(lapack.gecon(dA, math.nan))
    with offload_args(np.full((3, 3), np.nan, dtype), device=device) as (dA,):
        assert math.isnan(lapack.gecon(dA, 1.0)) and math.isnan(lapack.pocon(dA, 1.0))


def test_wrong_operands_of_estimates_are_refused_by_name(device: str) -> None:
    functions: Any = lapack
    with offload_args(np.eye(3), np.ones((3, 2)), device=device) as (dA, dB):
        for call, kind, text in (
            (lambda: lapack.gecon(dA, -1.0), ArgumentError, r"^lapack\.gecon: anorm needs to be a norm, at least 0"),
            (lambda: lapack.gecon(dA, 1.0, norm="2"), ArgumentError, r'^lapack\.gecon: norm must be "1" or "I"'),
            (lambda: lapack.pocon(dB, 1.0), ArgumentError, r"^lapack\.pocon: A .* as many rows as columns"),
            (lambda: functions.gecon(np.eye(2), 1.0), HostPointerError, r"^lapack\.gecon: A needs a DevicePtr"),
        ):
            with pytest.raises(kind, match=text):
                call()
    with offload_args(np.eye(3, dtype=np.int32), device=device) as (dA,):
        with pytest.raises(DTypeError, match=r"^lapack\.pocon: A needs float32"):
            lapack.pocon(dA, 1.0)
