"""A C module that calls CBLAS of levels 2 and 3 by rows and by columns, with a table of stubs and without."""

from __future__ import annotations

import ctypes
import os
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy_openblas32

from offload_args import accelerate

ROW, COLUMN = 101, 102
COMPLEX = (5, 6, 7, 8, 10, 12, 14, 15, 17, 20, 21)
HERMITIAN = (12, 15, 20, 21)  # numbers of functions of level 2; by rows, the library makes these calls
SOURCE = r"""
#include <complex.h>
#define N 13
#define K 7
void scipy_cblas_dgemm(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
void scipy_cblas_dsymm(int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
void scipy_cblas_dtrsm(int, int, int, int, int, int, int, double, const void *, int, void *, int);
void scipy_cblas_dtrmm(int, int, int, int, int, int, int, double, const void *, int, void *, int);
void scipy_cblas_dsyr2k(int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
void scipy_cblas_zhemm(int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                       void *, int);
void scipy_cblas_zherk(int, int, int, int, int, double, const void *, int, double, void *, int);
void scipy_cblas_zher2k(int, int, int, int, int, const void *, const void *, int, const void *, int, double, void *,
                        int);
void scipy_cblas_ztrsm(int, int, int, int, int, int, int, const void *, const void *, int, void *, int);
void scipy_cblas_dgemv(int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
void scipy_cblas_zgemv(int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *,
                       int);
void scipy_cblas_dsymv(int, int, int, double, const void *, int, const void *, int, double, void *, int);
void scipy_cblas_zhemv(int, int, int, const void *, const void *, int, const void *, int, const void *, void *, int);
void scipy_cblas_dger(int, int, int, double, const void *, int, const void *, int, void *, int);
void scipy_cblas_zgeru(int, int, int, const void *, const void *, int, const void *, int, void *, int);
void scipy_cblas_zgerc(int, int, int, const void *, const void *, int, const void *, int, void *, int);
void scipy_cblas_dtrmv(int, int, int, int, int, const void *, int, void *, int);
void scipy_cblas_ztrsv(int, int, int, int, int, const void *, int, void *, int);
void scipy_cblas_dsyr(int, int, int, double, const void *, int, void *, int);
void scipy_cblas_dsyr2(int, int, int, double, const void *, int, const void *, int, void *, int);
void scipy_cblas_zher(int, int, int, double, const void *, int, void *, int);
void scipy_cblas_zher2(int, int, int, const void *, const void *, int, const void *, int, void *, int);
/* A: LD x LD numbers of any use; B and C: likewise. */
void call(int which, int order, int side, int uplo, int trans, int diag, const void *A, const void *B, void *C) {
  const double complex alpha = 0.5 + 0.25 * I, beta = 2;
  const int LD = 16, hermitian = trans == 111 ? 111 : 113, symmetric = trans == 113 ? 112 : trans;
  const int m = side == 141 ? N : K, n = side == 141 ? K : N;
  if (which == 0) scipy_cblas_dgemm(order, trans, symmetric, N, K, 9, 0.5, A, LD, B, LD, 2, C, LD);
  if (which == 1) scipy_cblas_dsymm(order, side, uplo, m, n, 0.5, A, LD, B, LD, 2, C, LD);
  if (which == 2) scipy_cblas_dtrsm(order, side, uplo, trans, diag, m, n, 0.5, A, LD, C, LD);
  if (which == 3) scipy_cblas_dtrmm(order, side, uplo, trans, diag, m, n, 0.5, A, LD, C, LD);
  if (which == 4) scipy_cblas_dsyr2k(order, uplo, trans, N, K, 0.5, A, LD, B, LD, 2, C, LD);
  if (which == 5) scipy_cblas_zhemm(order, side, uplo, m, n, &alpha, A, LD, B, LD, &beta, C, LD);
  if (which == 6) scipy_cblas_zherk(order, uplo, hermitian, N, K, 0.5, A, LD, 2, C, LD);
  if (which == 7) scipy_cblas_zher2k(order, uplo, hermitian, N, K, &alpha, A, LD, B, LD, 2, C, LD);
  if (which == 8) scipy_cblas_ztrsm(order, side, uplo, trans, diag, m, n, &alpha, A, LD, C, LD);
  if (which == 9) scipy_cblas_dgemv(order, trans, N, K, 0.5, A, LD, B, 2, 2, C, 3);
  if (which == 10) scipy_cblas_zgemv(order, trans, N, K, &alpha, A, LD, B, 2, &beta, C, 3);
  if (which == 11) scipy_cblas_dsymv(order, uplo, N, 0.5, A, LD, B, 2, 2, C, 3);
  if (which == 12) scipy_cblas_zhemv(order, uplo, N, &alpha, A, LD, B, 2, &beta, C, 3);
  if (which == 13) scipy_cblas_dger(order, N, K, 0.5, A, 2, B, 3, C, LD);
  if (which == 14) scipy_cblas_zgeru(order, N, K, &alpha, A, 2, B, 3, C, LD);
  if (which == 15) scipy_cblas_zgerc(order, N, K, &alpha, A, 2, B, 3, C, LD);
  if (which == 16) scipy_cblas_dtrmv(order, uplo, trans, diag, N, A, LD, C, 2);
  if (which == 17) scipy_cblas_ztrsv(order, uplo, trans, diag, N, A, LD, C, 2);
  if (which == 18) scipy_cblas_dsyr(order, uplo, N, 0.5, A, 2, C, LD);
  if (which == 19) scipy_cblas_dsyr2(order, uplo, N, 0.5, A, 2, B, 3, C, LD);
  if (which == 20) scipy_cblas_zher(order, uplo, N, 0.5, A, 2, C, LD);
  if (which == 21) scipy_cblas_zher2(order, uplo, N, &alpha, A, 2, B, 3, C, LD);
}
"""


@pytest.fixture(scope="module", params=["-fplt", "-fno-plt"])
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The module, compiled for each way to call imported functions: by JUMP_SLOT, and by GLOB_DAT."""
    folder = Path(scipy_openblas32.get_lib_dir())
    library = next(folder.glob("libscipy_openblas*.so*"))
    built = tmp_path_factory.mktemp("by_rows")
    (built / "calls.c").write_text(SOURCE)
    words = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", request.param, "calls.c", "-o", "calls.so"]
    subprocess.run([*words, library, f"-Wl,-rpath,{folder}"], cwd=built, check=True, timeout=300)
    return ctypes.CDLL(str(built / "calls.so"))


@pytest.mark.later("host")
@pytest.mark.parametrize("order", [ROW, COLUMN])
@pytest.mark.parametrize("which", range(22))
def test_each_routine_by_rows_and_by_columns(module: ctypes.CDLL, device: str, which: int, order: int) -> None:
    rng = np.random.default_rng(which)
    dtype = "c16" if which in COMPLEX else "f8"
    A, B, C = (rng.standard_normal((16, 16, 2)).view("c16")[..., 0].astype(dtype) for _ in range(3)) if dtype == "c16" \
        else (rng.standard_normal((16, 16)) for _ in range(3))  # fmt: skip
    A += 8 * np.eye(16)

    def updated(side: int, uplo: int, trans: int, diag: int) -> np.ndarray:
        result = C.copy()
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (A, B, result))
        module.call(which, order, side, uplo, trans, diag, *addresses)
        return result

    choices = [*product((141, 142), (121, 122), (111, 112, 113), (131, 132))]
    expected = [updated(*choice) for choice in choices]
    with accelerate(device, margin=0) as on:
        results = [updated(*choice) for choice in choices]
    np.testing.assert_allclose(results, expected, rtol=1e-10, atol=1e-10)
    conjugates = sum(which in HERMITIAN or (which in (10, 17) and choice[2] == 113) for choice in choices)
    assert on.report.calls == 24
    assert on.report.gone == 24 - (conjugates if order == ROW else 0)


def test_a_wrong_order_is_the_librarys_to_refuse(module: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> None:
    A = np.ones((16, 16))
    at = [ctypes.c_void_p(A.ctypes.data)] * 3
    module.call(0, 7, 141, 121, 111, 131, *at)
    before = capfd.readouterr()
    with accelerate("host", margin=0) as on:
        module.call(0, 7, 141, 121, 111, 131, *at)
    assert capfd.readouterr() == before
    assert on.report.gone == 0
