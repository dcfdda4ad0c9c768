"""Indefinite systems, pencils, some or general eigenvalues agree with SciPy, in both orders and with gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from lapack.conftest import Matrices
from lapack.test_solutions import ORDERS, SIZES, ordered, with_gaps
from lapack.test_stacks import by_columns

from helpers.devices import has_symbol
from offload_args import In, Out, Scratch, lapack, offload_args
from offload_args.errors import (
    ArgumentError,
    DTypeError,
    HostPointerError,
    LibraryError,
    LibraryVersionError,
    PerformanceWarning,
)


def indefinite(matrices: Matrices, n: int, hermitian: bool = True) -> Any:
    values = matrices.general(n, n)
    return (values + (values.conj().T if hermitian else values.T)).astype(matrices.dtype)


def other_triangle(values: Any, uplo: str) -> Any:
    return np.tril(values, -1) if uplo == "U" else np.triu(values, 1)


def lacks_hetrf(device: str, matrices: Matrices) -> bool:
    """Return whether cuSOLVER is too old to factor complex Hermitian matrices."""
    return matrices.is_complex and device.startswith("cuda") and not has_symbol("cusolver", "cusolverDnXhetrf")


@pytest.mark.parametrize("name", ["sytr", "hetr"])
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_sytrf_and_hetrf_solve_indefinite_systems(
    device: str, matrices: Matrices, n: int, order: str, uplo: str, name: str
) -> None:
    original = indefinite(matrices, n, name == "hetr")
    right, A = np.asfortranarray(matrices.general(n, 3)), with_gaps(original, order)
    x, v, ipiv = right.copy("F"), right[:, 0].copy(), np.zeros(n, np.int32)
    factor, solve = getattr(lapack, f"{name}f"), getattr(lapack, f"{name}s")
    with offload_args(A, Out(ipiv), x, v, device=device) as (dA, dp, dx, dv):
        if name == "hetr" and order == "C" and matrices.is_complex and n > 1:
            with pytest.raises(
                ArgumentError, match=r"^lapack\.hetrf: A .* needs Fortran order for a complex Hermitian"
            ):
                factor(dA, dp, uplo=uplo)
            dp.fill(1)
            return
        if name == "hetr" and matrices.is_complex and device.startswith("hip"):
            with pytest.raises(LibraryError, match=r"^lapack\.hetrf: rocSOLVER has none for complex dtypes"):
                factor(dA, dp, uplo=uplo)
            dp.fill(1)
            return
        if name == "hetr" and lacks_hetrf(device, matrices):
            with pytest.raises(LibraryVersionError, match="has no cusolverDnXhetrf"):
                factor(dA, dp, uplo=uplo)
            dp.fill(1)
            return
        factor(dA, dp, uplo=uplo)
        if device.startswith("hip"):
            with pytest.raises(LibraryError, match=rf"^lapack\.{name}s: rocSOLVER has none"):
                solve(dA, dp, dx, uplo=uplo)
            return
        solve(dA, dp, dx, uplo=uplo)
        solve(dA, dp, dv, uplo=uplo)
    assert matrices.near(original @ x, right) and matrices.near(v, x[:, 0])
    assert np.array_equal(other_triangle(A, uplo), other_triangle(original, uplo))


def test_sytrf_leaves_the_factors_of_scipy(device: str, matrices: Matrices) -> None:
    for name, hermitian in (("sytrf", False), ("hetrf", True)):
        if hermitian and (lacks_hetrf(device, matrices) or (matrices.is_complex and device.startswith("hip"))):
            continue
        original = indefinite(matrices, 9, hermitian)
        A, ipiv = ordered(original, "F"), np.zeros(9, np.int32)
        with offload_args(A, Out(ipiv), device=device) as (dA, dp):
            getattr(lapack, name)(dA, dp, uplo="L")
        there = name if matrices.is_complex else "sytrf"
        expected, pivots, info = scipy.linalg.get_lapack_funcs((there,), (original,))[0](original, lower=1)
        assert info == 0
        assert np.array_equal(ipiv, pivots) and matrices.near(np.tril(A), np.tril(expected))


def test_indefinite_stacks_and_right_sides_in_c_order(device: str, matrices: Matrices) -> None:
    if device.startswith("hip"):
        return  # rocSOLVER has neither hetrs nor sytrs
    if lacks_hetrf(device, matrices):
        return
    stack = by_columns(np.stack([indefinite(matrices, 4) for _ in range(3)]))
    x = by_columns(matrices.general(3, 4, 2))
    right, A, alone = x.copy(), stack.copy("K"), ordered(stack[0], "F")
    y = matrices.general(4, 2)
    of_y = y.copy()
    with offload_args(A, Scratch((3, 4), np.int32), x, alone, Scratch(4, np.int32), y, device=device) as lent:
        dA, dp, dx, dalone, dq, dy = lent
        lapack.hetrf(dA, dp)
        lapack.hetrs(dA, dp, dx)
        lapack.hetrf(dalone, dq)
        with pytest.warns(PerformanceWarning, match=r"^lapack\.hetrs: B "):
            lapack.hetrs(dalone, dq, dy)
    assert matrices.near(stack @ x, right) and matrices.near(stack[0] @ y, of_y)


def test_singular_indefinite_matrices_and_wrong_pivots_are_refused(device: str, dtype: str) -> None:
    lacks = device.startswith("hip")
    A, b = np.diag([1.0, 0.0, 2.0]).astype(dtype), np.ones(3, dtype)
    with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.sytrf: A is singular: pivot 2 of its factor D is zero"):
        with offload_args(A, Scratch(3, np.int32), device=device) as (dA, dp):
            lapack.sytrf(dA, dp)
    for pivots in ([0, 1, 2], [1, 2, 4], [-4, 1, 1]):
        with offload_args(A, np.array(pivots, np.int32), b, device=device) as (dA, dp, db):
            kind = LibraryError if lacks else ArgumentError
            refused = r"rocSOLVER has none" if lacks else r"ipiv\[\d\] is -?\d, needs to be from 1 to 3, or"
            with pytest.raises(kind, match=rf"^lapack\.sytrs: {refused}"):
                lapack.sytrs(dA, dp, db)


@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("n", "itype"), [(0, 1), (1, 2), (5, 2), (5, 3), (33, 1)])
def test_sygvd_and_hegvd_find_the_eigenvalues_of_pencils(
    device: str, matrices: Matrices, n: int, order: str, uplo: str, itype: int
) -> None:
    original, beside, jobz = indefinite(matrices, n), matrices.definite(n), "V" if order == "F" else "N"
    expected = scipy.linalg.eigh(original, beside, type=itype, eigvals_only=True) if n else np.zeros(0)
    for function in (lapack.hegvd,) if matrices.is_complex else (lapack.hegvd, lapack.sygvd):
        A, B, w = with_gaps(original, order), with_gaps(beside, order), np.zeros(n, matrices.real)
        with offload_args(A, B, Out(w), device=device) as (dA, dB, dw):
            function(dA, dB, dw, itype=itype, jobz=jobz, uplo=uplo)
        assert np.allclose(w, expected, atol=matrices.tolerance * max(1, abs(expected).max(initial=0)), rtol=0)
        if jobz == "V" and n:
            left, right = {1: (original @ A, beside @ A), 2: (original @ beside @ A, A), 3: (beside @ original @ A, A)}[
                itype
            ]
            assert np.allclose(left, right * w, atol=20 * matrices.tolerance * abs(left).max(), rtol=0)
        factor = scipy.linalg.cholesky(beside, lower=uplo == "L") if n else beside
        assert matrices.near(np.triu(B) if uplo == "U" else np.tril(B), factor)


def test_a_pencil_whose_second_matrix_is_indefinite_names_the_pivot(device: str, dtype: str) -> None:
    A, B = np.eye(3, dtype=dtype), np.diag([1.0, -1.0, 1.0]).astype(dtype)
    w = np.zeros(3, np.finfo(dtype).dtype)
    with pytest.raises(
        np.linalg.LinAlgError, match=r"^lapack\.hegvd: B is not positive definite: .* order 2 \(pivot 2"
    ):
        with offload_args(A, B, w, device=device) as (dA, dB, dw):
            lapack.hegvd(dA, dB, dw, jobz="N")
    B[1, 1] = np.nan
    with offload_args(A, B, w, device=device) as (dA, dB, dw):
        with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.hegvd: B\[1, 1\] is .*nan.*isfinite\(B\)"):
            lapack.hegvd(dA, dB, dw, jobz="N")


@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 5, 33])
def test_syevdx_and_heevdx_find_some_eigenvalues(
    device: str, matrices: Matrices, n: int, order: str, uplo: str
) -> None:
    original, jobz = indefinite(matrices, n), "V" if order == "F" else "N"
    every = np.linalg.eigvalsh(original)
    least, most = float(every[0]) - 1, float(every[n // 2]) + 1e-3
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, every),
        ({"il": 1, "iu": 1}, every[:1]),
        ({"il": (n + 1) // 2, "iu": n}, every[(n + 1) // 2 - 1 :]),
        ({"vl": least, "vu": most}, every[every <= most]),
        ({"vl": least - 2, "vu": least - 1}, every[:0]),
    ]
    for function in (lapack.heevdx,) if matrices.is_complex else (lapack.heevdx, lapack.syevdx):
        for options, expected in cases:
            A, w = with_gaps(original, order), np.zeros(n, matrices.real)
            with offload_args(A, Out(w), device=device) as (dA, dw):
                count = function(dA, dw, jobz=jobz, uplo=uplo, **options)
            assert count == len(expected)
            assert matrices.near(w[:count], expected)
            assert jobz == "N" or matrices.near(original @ A[:, :count], A[:, :count] * w[:count])


@pytest.mark.parametrize(("order", "vectors"), [("C", ""), ("F", ""), ("F", "R"), ("F", "LR"), ("C", "R")])
@pytest.mark.parametrize("n", SIZES)
def test_geev_finds_eigenvalues_and_vectors(device: str, matrices: Matrices, n: int, order: str, vectors: str) -> None:
    original = matrices.general(n, n)
    kind = np.result_type(matrices.dtype, np.complex64)
    A, w = with_gaps(original, order), np.zeros(n, kind)
    VL, VR = (with_gaps(np.zeros((n, n), kind), "F") for _ in range(2))
    with offload_args(A, Out(w), VL, VR, device=device) as (dA, dw, dVL, dVR):
        outputs = {"VL": dVL} if "L" in vectors else {}
        outputs |= {"VR": dVR} if "R" in vectors else {}
        if vectors and order == "C" and n > 1:
            with pytest.raises(ArgumentError, match=r"^lapack\.geev: A .* needs Fortran order for vectors"):
                lapack.geev(dA, dw, **outputs)
            dw.fill(0)
            return
        if device.startswith("hip") or ("L" in vectors and device.startswith("cuda")):
            lacking = (
                r"^lapack\.geev: (VL: cuSOLVER finds no left eigenvectors|rocSOLVER finds no eigenvalues of general)"
            )
            with pytest.raises(LibraryError, match=lacking):
                lapack.geev(dA, dw, **outputs)
            dw.fill(0)
            return
        lapack.geev(dA, dw, **outputs)
    expected = np.linalg.eigvals(original) if n else w
    tolerance = 20 * matrices.tolerance * max(1, abs(expected).max(initial=0))
    apart = np.abs(w[:, None] - expected[None])
    assert np.all(apart.min(axis=0, initial=np.inf) < tolerance) and np.all(
        apart.min(axis=1, initial=np.inf) < tolerance
    )
    if "R" in vectors:
        assert np.allclose(original @ VR, VR * w, atol=tolerance, rtol=0)
        assert np.allclose(np.linalg.norm(VR, axis=0), 1, atol=1e-3)
    if "L" in vectors:
        assert np.allclose(VL.conj().T @ original, w[:, None] * VL.conj().T, atol=tolerance, rtol=0)


@pytest.mark.parametrize("vectors", ["VL", "VR", "VL VR"])
def test_vectors_of_a_general_matrix_may_be_lent_as_out(device: str, matrices: Matrices, vectors: str) -> None:
    if device.startswith("hip") or ("VL" in vectors and device.startswith("cuda")):
        pytest.skip("device unavailable: its library has no such vectors")
    original = np.asfortranarray(matrices.general(4, 4))
    kind, names = np.result_type(matrices.dtype, np.complex64), vectors.split()
    w, outputs = np.zeros(4, kind), {name: np.zeros((4, 4), kind, order="F") for name in names}
    with offload_args(original.copy("F"), Out(w), *map(Out, outputs.values()), device=device) as (dA, dw, *lent):
        lapack.geev(dA, dw, **dict(zip(names, lent, strict=True)))
    tolerance = 20 * matrices.tolerance * abs(w).max()
    if "VR" in outputs:
        assert np.allclose(original @ outputs["VR"], outputs["VR"] * w, atol=tolerance, rtol=0)
    if "VL" in outputs:
        left = outputs["VL"].conj().T
        assert np.allclose(left @ original, w[:, None] * left, atol=tolerance, rtol=0)


def test_stacks_of_pencils_and_of_general_matrices(device: str, matrices: Matrices) -> None:
    matrix, beside = (
        by_columns(np.stack([make(matrices) for _ in range(3)]))
        for make in (lambda m: indefinite(m, 4), lambda m: m.definite(4))
    )
    general, kind = by_columns(matrices.general(3, 4, 4)), np.result_type(matrices.dtype, np.complex64)
    A, B, w, G = matrix.copy("K"), beside.copy("K"), np.zeros((3, 4), matrices.real), general.copy("K")
    values, V = np.zeros((3, 4), kind), by_columns(np.zeros((3, 4, 4), kind))
    with offload_args(A, B, Out(w), G, Out(values), Out(V), device=device) as (dA, dB, dw, dG, dvalues, dV):
        lapack.hegvd(dA, dB, dw)
        if device.startswith("hip"):
            dvalues.fill(0)
            dV.fill(0)
        else:
            lapack.geev(dG, dvalues, VR=dV)
    assert np.allclose(matrix @ A, beside @ A * w[:, None], atol=100 * matrices.tolerance, rtol=0)
    assert np.allclose(general @ V, V * values[:, None], atol=100 * matrices.tolerance, rtol=0)


def test_what_is_not_finite_is_refused_by_name(device: str, dtype: str) -> None:
    A, kind = np.eye(3, dtype=dtype, order="F"), np.result_type(dtype, np.complex64)
    A[0, 2] = np.nan
    before, w, c = A.copy(), np.zeros(3, np.finfo(dtype).dtype), np.zeros(3, kind)
    with offload_args(A, w, c, In(np.eye(3, dtype=dtype)), device=device) as (dA, dw, dc, dB):
        calls = [("geev", lambda: lapack.geev(dA, dc))] if not device.startswith("hip") else []
        for name, call in (
            *calls,
            ("heevdx", lambda: lapack.heevdx(dA, dw)),
            ("hegvd", lambda: lapack.hegvd(dA, dB.T, dw)),
        ):
            with pytest.raises(
                np.linalg.LinAlgError, match=rf"^lapack\.{name}: A\[0, 2\] is .*nan.*needs to be finite"
            ):
                call()
    assert np.array_equal(A, before, equal_nan=True)


def test_wrong_operands_of_eigenvalues_are_refused_by_name(device: str) -> None:
    A, w, c, tall = np.eye(3), np.zeros(3), np.zeros(3, complex), np.ones((4, 2))
    functions: Any = lapack
    with offload_args(A, A.astype(complex), w, c, tall, device=device) as (dA, dC, dw, dc, dtall):
        for call, kind, text in (
            (lambda: lapack.syevdx(dC, dw), DTypeError, r"^lapack\.syevdx: A needs float32 or float64.*heevdx"),
            (lambda: lapack.sygvd(dC, dC, dw), DTypeError, r"^lapack\.sygvd: A needs .*hegvd"),
            (lambda: lapack.syevdx(dA, dw), ArgumentError, r'^lapack\.syevdx: A .* needs Fortran order for jobz="V"'),
            (lambda: lapack.syevdx(dA, dw, il=1, jobz="N"), ArgumentError, r"^lapack\.syevdx: il and iu are given tog"),
            (lambda: lapack.syevdx(dA, dw, il=0, iu=2, jobz="N"), ArgumentError, r"il and iu need 1 <= il <= iu <= 3"),
            (lambda: lapack.syevdx(dA, dw, vl=2, vu=1, jobz="N"), ArgumentError, r"vl and vu need to be finite, and"),
            (
                lambda: lapack.syevdx(dA, dw, il=1, iu=1, vl=0, vu=1, jobz="N"),
                ArgumentError,
                r"il and iu name places, vl and vu an interval",
            ),
            (
                lambda: lapack.sygvd(dA.T, dtall, dw),
                ArgumentError,
                r"^lapack\.sygvd: B has shape \(4, 2\), needs \(3, 3",
            ),
            (lambda: lapack.sygvd(dA.T, dA, dw), ArgumentError, r"^lapack\.sygvd: B .*needs Fortran order, as A has"),
            (lambda: lapack.sygvd(dA, dA, dw, itype=4, jobz="N"), ArgumentError, r"itype must be 1, 2 or 3, got 4"),
            (lambda: lapack.geev(dA, dw), DTypeError, r"^lapack\.geev: w needs complex128 for A of that dtype, got"),
            (lambda: lapack.geev(dtall, dc), ArgumentError, r"^lapack\.geev: A .* needs as many rows as columns"),
            (lambda: functions.geev(dA.T, dc, VR=3), HostPointerError, r"^lapack\.geev: VR needs a DevicePtr"),
            (lambda: functions.sytrf(dA, None), HostPointerError, r"^lapack\.sytrf: ipiv needs a DevicePtr"),
        ):
            with pytest.raises(kind, match=text):
                call()
