"""Messages about a full device name the way of the called function that needs less memory; each way is run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

import pytest


class Case(NamedTuple):
    call: str
    words: str  # in the message
    remedy: str  # gives the array `result`
    expected: str


# A is a matrix of 500 KiB, b a vector, X many vectors, S a sparse matrix; the limit is 700 KiB.
CASES = {
    "solve": Case(
        "linalg.solve(A, X)",
        "lapack.gesv(A, ipiv, B, devices=[...]) solves with NumPy arrays by tiles, or leave regions",
        "F, ipiv, result = A.copy(), np.empty(256, np.int32), X.copy(); lapack.gesv(F, ipiv, result, devices=['host'])",
        "np.linalg.solve(A, X)",
    ),
    "inv": Case(
        "linalg.inv(A)",
        "lapack.gesv(A, ipiv, B, devices=[...]) with B = np.eye(n) inverts a NumPy array by tiles",
        "F, ipiv, result = A.copy(), np.empty(256, np.int32), np.eye(256); "
        "lapack.gesv(F, ipiv, result, devices=['host'])",
        "np.linalg.inv(A)",
    ),
    "cholesky": Case(
        "linalg.cholesky(A)",
        'lapack.potrf(A, uplo="L", devices=[...]) factors a NumPy array by tiles',
        "F = A.copy(); lapack.potrf(F, uplo='L', devices=['host']); result = np.tril(F)",
        "np.linalg.cholesky(A)",
    ),
    "lstsq": Case(
        "linalg.lstsq(A, X)",
        "linalg.lstsq: a (",
        "C, result = linalg.matmul(A.T, A), linalg.matmul(A.T, X); lapack.posv(C, result, devices=['host'])",
        "np.linalg.lstsq(A, X)[0]",
    ),
    "the way of lstsq": Case(
        "linalg.lstsq(A, X)",
        "lstsq has no form by parts; if a has full rank and a small condition number, which this squares, "
        "lapack.posv(C, B, devices=[...]) solves it by tiles, with C = linalg.matmul(a.T, a), B = linalg.matmul(",
        "C, result = linalg.matmul(A.T, A), linalg.matmul(A.T, X); lapack.posv(C, result, devices=['host'])",
        "np.linalg.lstsq(A, X)[0]",
    ),
    "svd": Case("linalg.svd(A)", "svd has no form by parts: leave regions", "", ""),
    "eigh": Case("linalg.eigh(A)", "eigh has no form by parts: leave regions", "", ""),
    "a stack": Case(
        "linalg.inv(A.reshape(16, 64, 64) + np.eye(64))",
        "pass parts of the stack, such as a[:k]",
        "T = A.reshape(16, 64, 64) + np.eye(64); "
        "result = np.concatenate([linalg.inv(T[i : i + 4]) for i in range(0, 16, 4)])",
        "np.linalg.inv(T)",
    ),
    "fft2": Case(
        "fft.fft2(A)",
        "transform one axis after the other, by parts: fft.fft(x[:k]), then fft.fft(y[:, :k].copy(), axis=0)",
        "y = np.concatenate([fft.fft(A[i : i + 64]) for i in range(0, 256, 64)]); "
        "result = np.concatenate([fft.fft(y[:, i : i + 64].copy(), axis=0) for i in range(0, 256, 64)], axis=1)",
        "np.fft.fft2(A)",
    ),
    "rfft2": Case(
        "fft.rfft2(A)",
        "by parts: fft.rfft(x[:k]), then fft.fft(y[:, :k].copy(), axis=0)",
        "y = np.concatenate([fft.rfft(A[i : i + 64]) for i in range(0, 256, 64)]); "
        "result = np.concatenate([fft.fft(y[:, i : i + 64].copy(), axis=0) for i in range(0, 129, 64)], axis=1)",
        "np.fft.rfft2(A)",
    ),
    "irfft2": Case("fft.irfft2(A)", "irfft2 has no form by parts", "", ""),
    "fft of rows": Case(
        "fft.ifft(A)",
        "transform some rows at a time, such as fft.ifft(x[:k])",
        "result = np.concatenate([fft.ifft(A[i : i + 64]) for i in range(0, 256, 64)])",
        "np.fft.ifft(A)",
    ),
    "sparse columns": Case(
        "sparse.matmul(S, A)",
        "pass some columns at a time, such as x[:, :k].copy()",
        "result = np.concatenate([sparse.matmul(S, A[:, i : i + 64].copy()) for i in range(0, 256, 64)], axis=1)",
        "S @ A",
    ),
    "sparse solutions": Case(
        "sparse.spsolve(S, A)",
        "pass some columns at a time, such as b[:, :k].copy()",
        "result = np.concatenate([sparse.spsolve(S, A[:, i : i + 64].copy()) for i in range(0, 256, 64)], axis=1)",
        "A / S.diagonal()[:, None]",
    ),
}
PROGRAM = """
import numpy as np, scipy.sparse
from offload_args import fft, lapack, linalg, offload_args, sparse
from offload_args.errors import DeviceMemoryError
random = np.random.default_rng(0)
A = random.random((256, 256))
A = A @ A.T + 256 * np.eye(256)
X = random.random((256, 96))
S = scipy.sparse.diags_array(np.arange(1.0, 257.0)).tocsr()
try:
    {call}
except DeviceMemoryError as error:
    print(error)
{remedy}
"""


@pytest.mark.copies  # arrays that are used in place fill no device
@pytest.mark.later(but="lstsq")
@pytest.mark.parametrize("case", CASES)
def test_a_full_device_names_the_way_of_the_function(case: str) -> None:
    call, words, remedy, expected = CASES[case]
    check = f"{remedy}; np.testing.assert_allclose(result, {expected}, rtol=1e-7, atol=1e-9)" if remedy else ""
    environment = {**os.environ, "OFFLOAD_ARGS_MEMORY_LIMIT": "700KiB", "OFFLOAD_ARGS_DEVICE": "host"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call, remedy=check)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert words in ran.stdout
    assert "with devices=[...], gemm, symm" not in ran.stdout
    assert "lend parts of the arrays" not in ran.stdout


POINTERS = """
import numpy as np
from offload_args import lapack, linalg, offload_args
from offload_args.errors import DeviceMemoryError
A, s, tau = np.eye(256), np.empty(256), np.empty(256)
with offload_args(A, s, device="host") as (dA, ds):
    for call in (lambda: linalg.svd(dA), lambda: lapack.gesvd(dA, ds, None, dA.T)):
        try:
            call()
        except DeviceMemoryError as error:
            print(error)
"""


def test_functions_of_pointers_name_themselves_and_no_way() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", POINTERS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OFFLOAD_ARGS_MEMORY_LIMIT": "700KiB"},
    )
    first, *others = ran.stdout.splitlines()
    assert first.startswith("linalg.svd: ")
    assert "svd has no form by parts: leave regions" in first
    for other in others:
        assert other.startswith("lapack.gesvd: ")
