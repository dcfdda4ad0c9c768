"""Calls with unknown keywords, or with too many arguments, name the right ones and the remedy, which is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import offload_args as package
from offload_args import Scratch, blas, fft, lapack, linalg, offload_args, sparse, trace, update
from offload_args.errors import ArgumentError, ArgumentTypeError, DTypeError, HostAccessError

scipy_sparse = pytest.importorskip("scipy.sparse")

A = np.array([[4.0, 1.0], [1.0, 3.0]])
B, X = np.array([1.0, 2.0]), np.arange(4.0)
S = scipy_sparse.csr_array(A)


class Mistake(NamedTuple):
    call: Callable[[], object]
    words: str  # the end of the message
    remedy: Callable[[], Any] | None = None  # is called; if it returns a pair, its members agree


MISTAKES = {
    "solve, overwrite_a": Mistake(
        lambda: linalg.solve(A, B, overwrite_a=True),  # type: ignore[call-arg]
        "linalg.solve() got an unexpected keyword argument 'overwrite_a'; leave it out: the arrays are lent as In, so "
        "that none is overwritten; write linalg.solve(a, b, device=None)",
        lambda: (linalg.solve(a=A, b=B, device=None), np.linalg.solve(A, B)),
    ),
    "solve, check_finite": Mistake(
        lambda: linalg.solve(A, B, check_finite=False),  # type: ignore[call-arg]
        "'check_finite'; leave it out: infinities and NaN are not looked for; write linalg.solve(a, b, device=None)",
    ),
    "solve, assume_a": Mistake(
        lambda: linalg.solve(A, B, assume_a="pos"),  # type: ignore[call-arg]
        "; leave it out: each a is solved by LU; lapack.posv and lapack.sytrf use the symmetry; write "
        "linalg.solve(a, b, device=None)",
    ),
    "solve, three": Mistake(
        lambda: linalg.solve(A, B, True),  # type: ignore[misc]
        "linalg.solve() takes 2 positional arguments but 3 were given; write linalg.solve(a, b, device=None)",
    ),
    "solve, one": Mistake(
        lambda: linalg.solve(A),  # type: ignore[call-arg]
        "linalg.solve() missing 1 required positional argument: 'b'; write linalg.solve(a, b, ...)",
    ),
    "inv, overwrite_a": Mistake(
        lambda: linalg.inv(A, overwrite_a=True),  # type: ignore[call-arg]
        "is overwritten; write linalg.inv(a, device=None)",
    ),
    "eigh, lower": Mistake(
        lambda: linalg.eigh(A, lower=False),  # type: ignore[call-arg]
        '\'lower\'; write UPLO="L" for the lower triangle, UPLO="U" for the upper one; write '
        "linalg.eigh(a, UPLO='L', device=None)",
        lambda: (linalg.eigh(np.triu(A), UPLO="U")[0], np.linalg.eigvalsh(A)),
    ),
    "eigh, uplo": Mistake(lambda: linalg.eigh(A, uplo="L"), '; write UPLO="L" for the'),  # type: ignore[call-arg]
    "eigh, eigvals_only": Mistake(
        lambda: linalg.eigh(A, eigvals_only=True),  # type: ignore[call-arg]
        "; call linalg.eigvalsh; write",
        lambda: (linalg.eigvalsh(A), np.linalg.eigvalsh(A)),
    ),
    "eigh, subset_by_index": Mistake(
        lambda: linalg.eigh(A, subset_by_index=[0, 0]),  # type: ignore[call-arg]
        "; leave it out: slice the results, which are in order; write",
    ),
    "cholesky, lower": Mistake(
        lambda: linalg.cholesky(A, lower=True),  # type: ignore[call-arg]
        "; write upper=False for the lower triangle, upper=True for the upper one; write linalg.cholesky(",
        lambda: (linalg.cholesky(A, upper=False), np.linalg.cholesky(A)),
    ),
    "svd, full": Mistake(
        lambda: linalg.svd(A, full=False),  # type: ignore[call-overload]
        "; write full_matrices=; write linalg.svd(a, full_matrices=True, compute_uv=True, "
        "hermitian=False, device=None)",
    ),
    "svd, lapack_driver": Mistake(
        lambda: linalg.svd(A, lapack_driver="gesvd"),  # type: ignore[call-overload]
        "; leave it out: the library chooses; write",
    ),
    "qr, pivoting": Mistake(
        lambda: linalg.qr(A, pivoting=True),  # type: ignore[call-overload]
        "; leave it out, or use scipy.linalg.qr: columns are not exchanged; write",
    ),
    "lstsq, cond": Mistake(
        lambda: linalg.lstsq(A, B, cond=1e-3),  # type: ignore[call-arg]
        "; write rcond=; write linalg.lstsq(a, b, rcond=None, device=None)",
        lambda: (linalg.lstsq(A, B, rcond=1e-3)[0], np.linalg.solve(A, B)),
    ),
    "matmul, out": Mistake(
        lambda: linalg.matmul(A, A, out=A),  # type: ignore[call-arg]
        "; leave it out: the result is new; blas and lapack write into arrays; write linalg.matmul(x1, x2, device=",
    ),
    "matmul, three": Mistake(
        lambda: linalg.matmul(A, A, A),  # type: ignore[misc]
        "linalg.matmul() takes 2 positional arguments but 3 were given; write linalg.matmul(x1, x2, device=None)",
    ),
    "matmul, dtype": Mistake(
        lambda: linalg.matmul(A, A, dtype=np.float32),  # type: ignore[call-arg]
        "; the dtype is that of the arrays: convert them first, x = x.astype(dtype); write",
    ),
    "solve, devices": Mistake(
        lambda: linalg.solve(A, B, devices=["host"]),  # type: ignore[call-arg]
        "; it runs on one device: pass device=; blas.gemm and lapack.gesv, posv and potrf have devices=",
    ),
    "det, misspelt": Mistake(
        lambda: linalg.det(A, devise="host"),  # type: ignore[call-arg]
        "; did you mean device?; write",
    ),
    "fft, axes": Mistake(
        lambda: fft.fft(X, axes=0),  # type: ignore[call-arg]
        "; write axis=; write fft.fft(x, n=None, axis=-1,",
    ),
    "fft2, axis": Mistake(
        lambda: fft.fft2(A, axis=0),  # type: ignore[call-arg]
        "; write axes=; write fft.fft2(x, s=None, axes=(-2, -1),",
    ),
    "fft, s": Mistake(
        lambda: fft.fft(X, s=3),  # type: ignore[call-arg]
        "; write n=; write",
    ),
    "fftn, n": Mistake(
        lambda: fft.fftn(X, n=3),  # type: ignore[call-arg]
        "; write s=; write",
    ),
    "fft, plan": Mistake(
        lambda: fft.fft(X, plan=None),  # type: ignore[call-arg]
        "; leave it out: the library chooses",
    ),
    "fft, out": Mistake(
        lambda: fft.fft(X, out=X),  # type: ignore[call-arg]
        "; leave it out: the result is new; write",
    ),
    "fft, none": Mistake(
        lambda: fft.fft(),  # type: ignore[call-arg]
        "fft.fft() missing 1 required positional argument: 'x'; write fft.fft(x, ...)",
    ),
    "sparse.matmul, transa": Mistake(
        lambda: sparse.matmul(S, B, transa="T"),  # type: ignore[call-arg]
        '; write trans=, such as "T"; write sparse.matmul(A, x, out=None, alpha=1.0',
        lambda: (sparse.matmul(S, B, trans="T"), S.T @ B),
    ),
    "spsolve, permc_spec": Mistake(
        lambda: sparse.spsolve(S, B, permc_spec="COLAMD"),  # type: ignore[call-arg]
        "; leave it out: the library chooses; write sparse.spsolve(A, b, out=None,",
        lambda: (sparse.spsolve(S, B), np.linalg.solve(A, B)),
    ),
    "spsolve_triangular, overwrite_A": Mistake(
        lambda: sparse.spsolve_triangular(S, B, overwrite_A=True),  # type: ignore[call-arg]
        "; leave it out: the arrays are lent as In, so that none is overwritten; write",
    ),
    "spsolve_triangular, unit": Mistake(
        lambda: sparse.spsolve_triangular(S, B, unit=True),  # type: ignore[call-arg]
        "; write unit_diagonal=True; write",
    ),
    "sparse.lend, device": Mistake(
        lambda: sparse.lend(S, "host"),  # type: ignore[misc]
        "sparse.lend() takes 1 positional argument but 2 were given; write sparse.lend(A, check=",
    ),
    "update, two": Mistake(
        lambda: update(X, B),  # type: ignore[misc]
        "update() takes 1 positional argument but 2 were given; write update(array, device=None); for several arrays, "
        "with update(x), update(y):",
    ),
    "update, none": Mistake(
        lambda: update(),  # type: ignore[call-arg]
        "update() missing 1 required positional argument: 'array'; write update(array, ...)",
    ),
    "update, dev": Mistake(
        lambda: update(X, dev="host"),  # type: ignore[call-arg]
        "update() got an unexpected keyword argument 'dev'; write update(array, device=None)",
    ),
    "trace, file": Mistake(
        lambda: trace(file="trace.json"),  # type: ignore[call-arg]
        "; save it after the block: with trace() as t: ...; t.save(file); write trace(checksums=True, ",
    ),
    "trace, a number": Mistake(
        lambda: trace(1),  # type: ignore[misc]
        "trace() takes 0 positional arguments but 1 was given; write trace(checksums=True, ",
    ),
    "empty, extents": Mistake(
        lambda: package.empty(3, 4),
        "empty: dtype needs a dtype of NumPy, got 4; extents stand in a tuple: empty((3, 4))",
        lambda: (np.shape(package.empty((3, 4))), (3, 4)),
    ),
    "empty, order": Mistake(
        lambda: package.empty(3, np.float64, "F"),  # type: ignore[misc]
        "empty() takes from 1 to 2 positional arguments but 3 were given; "
        "write empty(shape, dtype=np.float64, order='C', device=",
    ),
    "Scratch, an array": Mistake(
        lambda: Scratch(X),  # type: ignore[arg-type]
        "Scratch: shape needs whole numbers, got an array: write Scratch(x.shape, x.dtype); a region lends the array x "
        "itself, offload_args(x)",
        lambda: (Scratch(X.shape, X.dtype).shape, (4,)),
    ),
    "Scratch, extents": Mistake(
        lambda: Scratch(3, 4),  # type: ignore[arg-type]
        "Scratch: dtype needs a dtype of NumPy, got 4; extents stand in a tuple: Scratch((3, 4))",
        lambda: (Scratch((3, 4)).shape, (3, 4)),
    ),
    "Scratch, order": Mistake(
        lambda: Scratch((3, 4), np.float64, "F"),  # type: ignore[misc]
        "Scratch() takes from 1 to 2 positional arguments but 3 were given; "
        "write Scratch(shape, dtype=np.float64, order='C')",
    ),
    "Scratch, none": Mistake(
        lambda: Scratch(),  # type: ignore[call-arg]
        "Scratch() missing 1 required positional argument: 'shape'; write Scratch(shape, ...)",
    ),
    "Device, an index": Mistake(
        lambda: package.Device("cuda", 0),  # type: ignore[call-arg]
        "Device() takes 1 positional argument but 2 were given; write Device(name); the number stands in the name, "
        'Device("cuda:0")',
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_with_the_right_arguments(case: str) -> None:
    call, words, remedy = MISTAKES[case]
    with pytest.raises(ArgumentTypeError) as raised:
        call()
    assert words in str(raised.value)
    if remedy is not None:
        result, expected = remedy()
        np.testing.assert_allclose(result, expected)


OF_POINTERS: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "potrf, lower": (
        lambda dA, dx, dy: lapack.potrf(dA, lower=True),  # type: ignore[call-arg]
        'lapack.potrf() got an unexpected keyword argument \'lower\'; write uplo="L" for the lower triangle, uplo="U" '
        "for the upper one; write lapack.potrf(A, uplo='U', info=None, devices=None)",
    ),
    "trsv, lower": (
        lambda dA, dx, dy: blas.trsv(dA, dx, lower=1),  # type: ignore[call-arg]
        '; write uplo="L" for the lower triangle, uplo="U" for the upper one; write blas.trsv(A, x, uplo=',
    ),
    "trsm, unit_diag": (
        lambda dA, dx, dy: blas.trsm(1.0, dA, dA, unit_diag=True),  # type: ignore[call-arg]
        '; write diag="U" for ones on the diagonal; write',
    ),
    "gemm, trans": (
        lambda dA, dx, dy: blas.gemm(1.0, dA, dA, 0.0, dA, trans="T"),  # type: ignore[call-arg]
        '; write trans_a= and trans_b=, such as "T"; write',
    ),
    "gemv, transa": (
        lambda dA, dx, dy: blas.gemv(1.0, dA, dx, 0.0, dy, transa="T"),  # type: ignore[call-arg]
        '; write trans=, such as "T"; write',
    ),
    "gemv, a": (
        lambda dA, dx, dy: blas.gemv(1.0, a=dA, x=dx, beta=0.0, y=dy),  # type: ignore[call-arg]
        "; write A=; write blas.gemv(",
    ),
    "gemv, incx": (
        lambda dA, dx, dy: blas.gemv(1.0, dA, dx, 0.0, dy, incx=1),  # type: ignore[call-arg]
        "; leave it out: sizes, leading dimensions and increments come from the pointers; write",
    ),
    "gemv, overwrite_y": (
        lambda dA, dx, dy: blas.gemv(1.0, dA, dx, 0.0, dy, overwrite_y=1),  # type: ignore[call-arg]
        "; leave it out: the results are written into the operands; write",
    ),
    "gemv, stream": (
        lambda dA, dx, dy: blas.gemv(1.0, dA, dx, 0.0, dy, stream=1),  # type: ignore[call-arg]
        "; pass stream= to offload_args, whose region's calls run on it; write",
    ),
    "gemv, device": (
        lambda dA, dx, dy: blas.gemv(1.0, dA, dx, 0.0, dy, device="host"),  # type: ignore[call-arg]
        "; it runs on the device of its pointers: pass device= to offload_args, or to call",
    ),
    "dot, out": (
        lambda dA, dx, dy: blas.dot(dx, dy, out=dx),  # type: ignore[call-arg]
        "; write result=, a pointer to one element; without it, the number is returned; write blas.dot(x, y, result=",
    ),
    "syevd, compute_v": (
        lambda dA, dx, dy: lapack.syevd(dA, dx, compute_v=0),  # type: ignore[call-arg]
        '; write jobz="V", or jobz="N" for the eigenvalues alone; write',
    ),
    "gesvd, full_matrices": (
        lambda dA, dx, dy: lapack.gesvd(dA, dx, dA, dA, full_matrices=0),  # type: ignore[call-arg]
        '; write jobu="A" and jobvt="A", or "S"; write',
    ),
    "geqrf, lwork": (
        lambda dA, dx, dy: lapack.geqrf(dA, dx, lwork=3),  # type: ignore[call-arg]
        "; leave it out: the library chooses; write lapack.geqrf(A, tau)",
    ),
}


@pytest.mark.parametrize("case", OF_POINTERS)
def test_a_mistake_with_pointers_is_told_with_the_right_arguments(device: str, case: str) -> None:
    call, words = OF_POINTERS[case]
    matrix, x, y = np.asfortranarray(A), B.copy(), B.copy()
    with offload_args(matrix, x, y, device=device) as (dA, dx, dy):
        with pytest.raises(ArgumentTypeError) as raised:
            call(dA, dx, dy)
    assert words in str(raised.value)


def test_a_short_name_that_is_misspelt_gets_the_name_that_is_meant() -> None:
    for module, name, meant in (
        (fft, "ftt", "fft"),
        (fft, "iftf", "ifft"),
        (blas, "dto", "dot"),
        (linalg, "drt", "det"),
    ):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean {meant}\b"):
            getattr(module, name)


def test_solvers_and_functions_of_scipy_name_what_computes_on_the_device(device: str) -> None:
    solvers, special = pytest.importorskip("scipy.sparse.linalg"), pytest.importorskip("scipy.special")
    with offload_args(A, B, device=device) as (dA, dB):
        for solver in (solvers.cg, solvers.gmres, solvers.aslinearoperator):
            with pytest.raises(
                HostAccessError, match=r"scipy\.sparse\.linalg run on the host; .*linalg\.solve and sparse"
            ):
                solver(dA, dB) if solver is not solvers.aslinearoperator else solver(dA)
        np.testing.assert_allclose(linalg.solve(dA, dB).to_host(), np.linalg.solve(A, B))
        with pytest.raises(HostAccessError, match=r"DevicePtr: erf runs on the host; use kernels\.elementwise"):
            special.erf(dB)
        with pytest.raises(HostAccessError, match=r"DevicePtr: np\.exp runs on the host"):
            np.exp(dB)


def test_a_region_that_is_unpacked_is_entered_first(device: str) -> None:
    x, y = np.ones(3), np.ones(3)
    region = offload_args(x, y, device=device)
    with pytest.raises(ArgumentTypeError, match=r"with region as \(dx, \.\.\.\), or dx, \.\.\. = region\.open\(\)$"):
        dx, dy = region
    dx, dy = region.open()
    blas.axpy(1.0, dx, dy)
    region.close()
    assert y.tolist() == [2, 2, 2]


def test_captures_and_loops_tell_their_arguments(device: str) -> None:
    x, y = np.ones(3), np.zeros(3)
    region = offload_args(x, y, device=device)
    untyped: Any = region
    with region as (dx, dy):
        with pytest.raises(ArgumentTypeError, match=r"capture\(\) takes 0 .* but 1 was given; .*: region\.capture"):
            untyped.capture(dx)
        with pytest.raises(ArgumentTypeError, match=r"got ndarray; pass its pointer, such as x=dx$"):
            untyped.capture(x=x)
        with region.capture(x=dx) as g:
            blas.axpy(1.0, dx, dy)
        with pytest.raises(ArgumentTypeError, match=r"loop\(\) missing 2 .*; write offload_args\.loop\(body, until="):
            untyped.loop(lambda: None)
        with pytest.raises(ArgumentTypeError, match=r"got list; make it an array, x = np\.asarray\(x, np\.float64\)$"):
            g.replay(x=[1.0, 2.0, 3.0])
        g.replay(x=np.asarray([1.0, 2.0, 3.0], np.float64))
        single = np.ones(3, np.float32)
        with pytest.raises(DTypeError, match=r"; convert it first: x = x\.astype\(np\.float64\)$"):
            g.replay(x=single)
        g.replay(x=single.astype(np.float64))
        with pytest.raises(ArgumentTypeError, match=r"; update one array after the other: for x in arrays: update"):
            untyped_update: Any = update
            untyped_update([x, y])
        for array in (x, y):
            update(array)
    assert y.tolist() == [2, 3, 4]
    with pytest.raises(ArgumentError, match=r"^trace: limit needs a number of events, 0 or more, got 'a'$"):
        trace(limit="a").__enter__()  # type: ignore[arg-type]
