"""cuSOLVER's solvers with iterative refinement, whose settings determine the dtype of their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offload_args import In, Out, cusolver, offload_args
from offload_args.errors import ArgumentError, DTypeError, ExtentError, OffloadError

LIBRARY = "cusolver"

LOWER_OF = {"f4": cusolver.R_16F, "f8": cusolver.R_32F, "c8": cusolver.C_32F, "c16": cusolver.C_32F}


def drawn(rows: int, columns: int, dtype: str, seed: int) -> Any:
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, columns))
    if dtype[0] == "c":
        values = values + 1j * random.standard_normal((rows, columns))
    return np.asfortranarray(values + 8 * np.eye(rows, columns), dtype)


def settings(dtype: str, refinement: int = cusolver.IRS_REFINE_GMRES) -> Any:
    settings = cusolver.irs_params_create()
    cusolver.irs_params_set_solver_precisions(settings, np.dtype(dtype), LOWER_OF[dtype])
    cusolver.irs_params_set_refinement_solver(settings, refinement)
    cusolver.irs_params_set_tol(settings, 1e-12 if dtype in ("f8", "c16") else 1e-5)
    cusolver.irs_params_set_tol_inner(settings, 1e-4)
    cusolver.irs_params_set_max_iters(settings, 30)
    cusolver.irs_params_enable_fallback(settings)
    return settings


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_a_system_is_refined_to_the_precision_that_the_settings_say(gpu: str, dtype: str) -> None:
    n, nrhs = 24, 1
    A, B, X, info = drawn(n, n, dtype, 1), drawn(n, nrhs, dtype, 2), drawn(n, nrhs, dtype, 3), np.full(1, 7, np.int32)
    params, infos = settings(dtype), cusolver.irs_infos_create()
    with offload_args(A.copy("F"), In(B), Out(X), Out(info), device=gpu) as (dA, dB, dX, di):
        count = cusolver.irs_xgesv(params, infos, n, nrhs, dA, n, dB, n, dX, n, di)
    assert info.tolist() == [0]
    assert count == cusolver.irs_infos_get_niters(infos)
    assert cusolver.irs_infos_get_outer_niters(infos) <= abs(count)
    assert cusolver.irs_infos_get_max_iters(infos) == cusolver.irs_params_get_max_iters(params) == 30
    np.testing.assert_allclose(A @ X, B, atol=1e-9 if dtype in ("f8", "c16") else 1e-3)


def test_a_least_squares_solution_is_refined(gpu: str) -> None:
    m, n = 40, 12
    A, B, X, info = drawn(m, n, "f8", 1), drawn(m, 1, "f8", 2), np.zeros((n, 1)), np.full(1, 7, np.int32)
    with offload_args(A.copy("F"), In(B), Out(X), Out(info), device=gpu) as (dA, dB, dX, di):
        params = settings("f8", cusolver.IRS_REFINE_CLASSICAL)
        cusolver.irs_xgels(params, cusolver.irs_infos_create(), m, n, 1, dA, m, dB, m, dX, n, di)
    assert info.tolist() == [0]
    np.testing.assert_allclose(X, np.linalg.lstsq(A, B, rcond=None)[0], atol=1e-8)


def test_arrays_need_the_dtype_and_the_extent_that_the_settings_say(gpu: str) -> None:
    n = 4
    params, infos = cusolver.irs_params_create(), cusolver.irs_infos_create()
    double, single = np.zeros((n, n)), np.zeros((n, n), np.float32)
    arguments = double, double.copy(), double.copy(), double[:, :3].copy("F"), single, np.zeros(1, np.int32)
    with offload_args(*arguments, device=gpu) as (dA, dB, dX, short, ds, di):

        def refused(error: type[OffloadError], words: str, A: Any = dA, B: Any = dB, X: Any = dX) -> None:
            with pytest.raises(error, match=rf"^cusolver\.irs_xgesv: {words}"):
                cusolver.irs_xgesv(params, infos, n, n, A, n, B, n, X, n, di)

        refused(ArgumentError, "params says no dtype yet; set it first")
        cusolver.irs_params_set_solver_main_precision(params, cusolver.R_64F)
        refused(DTypeError, "A needs float64, got .*float32", A=ds)
        refused(DTypeError, "B needs float64, got .*float32", B=ds)
        refused(DTypeError, "X needs float64, got .*float32", X=ds)
        refused(ExtentError, "A needs 16 elements", A=short)
        refused(ExtentError, "X needs 16 elements", X=short)
        cusolver.irs_params_set_solver_precisions(params, np.float32, cusolver.R_16F)
        refused(DTypeError, "A needs float32, got .*float64")
        with pytest.raises(ArgumentError, match="solver_main_precision needs one of R_32F"):
            cusolver.irs_params_set_solver_main_precision(params, cusolver.R_16F)
        refused(DTypeError, "A needs float32, got .*float64")
