"""`lapack` refuses singular and indefinite input, layouts that need a copy, and wrong operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from helpers.devices import library_or_skip, open_or_skip
from offload_args import In, Out, Scratch, lapack, offload_args
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    HostPointerError,
    InvalidDataError,
    LibraryError,
    StalePointerError,
    WrongDeviceError,
)

SINGULAR = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0], [4.0, 0.0, 5.0]])  # its factors have no rounding


@pytest.mark.parametrize(("order", "pivot"), [("C", 3), ("F", 2)])  # the pivots of A^T and of A
def test_a_singular_matrix_is_a_lin_alg_error_that_names_the_pivot(device: str, order: Any, pivot: int) -> None:
    A, b = np.array(SINGULAR, order=order), np.ones(3)
    with pytest.raises(np.linalg.LinAlgError, match=rf"^lapack\.gesv: A is singular: pivot {pivot} of its factor U"):
        with offload_args(A, Scratch((3,), np.int32), b, device=device) as (dA, dp, db):
            lapack.gesv(dA, dp, db)
    assert np.array_equal(A, SINGULAR) and np.array_equal(b, np.ones(3))


def test_an_indefinite_matrix_is_a_lin_alg_error_that_names_the_pivot(device: str, dtype: str) -> None:
    original = np.diag([4.0, 9.0, -1.0, 1.0]).astype(dtype)
    A, b = original.copy(), np.ones(4, dtype)
    with pytest.raises(np.linalg.LinAlgError, match=r"leading minor of order 3 \(pivot 3\)"):
        with offload_args(A, b, device=device) as (dA, db):
            lapack.posv(dA, db)
    assert np.array_equal(A, original) and np.array_equal(b, np.ones(4, dtype))


def test_a_zero_on_the_diagonal_of_a_triangle_is_named(device: str, dtype: str) -> None:
    A, b = np.diag([1.0, 0.0, 2.0]).astype(dtype), np.ones(3, dtype)
    with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.trtrs: A is singular: pivot 2, on its diagonal, is zer"):
        with offload_args(In(A), b, device=device) as (dA, db):
            lapack.trtrs(dA, db)
    with offload_args(In(A), b, device=device) as (dA, db):
        lapack.trtrs(dA, db, diag="U")


def test_least_squares_need_full_rank(device: str, dtype: str) -> None:
    A = np.zeros((4, 2), dtype, order="F")
    A[:, 0] = 1
    with pytest.raises(np.linalg.LinAlgError, match=r"^lapack\.gels: A has not full rank: pivot 2.*; gelsd and linalg"):
        with offload_args(A, np.ones(4, dtype), device=device) as (dA, db):
            lapack.gels(dA, db)
    assert np.array_equal(A[:, 1], np.zeros(4))


@pytest.mark.filterwarnings("ignore::offload_args.OffloadWarning")
def test_what_a_failure_left_half_written_never_reaches_the_host(device: str) -> None:
    A, ipiv, b = SINGULAR.copy(), np.full(3, 77, np.int32), np.ones(3)
    region = offload_args(A, ipiv, b, device=device)
    dA, dp, db = region.open()
    with pytest.raises(np.linalg.LinAlgError):
        lapack.gesv(dA, dp, db)
    with pytest.raises(InvalidDataError, match="undefined"):
        lapack.getrs(dA, dp, db)
    with pytest.raises(InvalidDataError):
        region.close()
    assert np.array_equal(A, SINGULAR) and np.array_equal(ipiv, np.full(3, 77)) and np.array_equal(b, np.ones(3))


def test_other_errors_name_the_function_and_the_copy(device: str) -> None:
    A, B = np.eye(3), np.ones((3, 2))
    tall, ipiv, tau, w = np.ones((4, 2)), np.zeros(3, np.int32), np.ones(2), np.ones(3)
    with offload_args(A, B, ipiv, tall, tau, w, device=device) as (dA, dB, dp, dtall, dtau, dw):
        for call, text in (
            (
                lambda: lapack.geqrf(dtall, dtau),
                r"^lapack\.geqrf: A .* needs Fortran order.*A = np\.asfortranarray\(A\)",
            ),
            (lambda: lapack.syevd(dA, dw), r'^lapack\.syevd: A .* needs Fortran order for jobz="V"'),
            (lambda: lapack.getrf(dtall, dp), r"^lapack\.getrf: ipiv has shape \(3,\), needs \(2,\)"),
            (lambda: lapack.potrf(dtall), r"^lapack\.potrf: A has shape \(4, 2\), needs as many rows as columns"),
            (lambda: lapack.potrf(dA, uplo="u"), r'^lapack\.potrf: uplo must be "U" or "L", got \'u\''),
            (lambda: lapack.posv(dA, dtall), r"^lapack\.posv: B has shape \(4, 2\), needs \(3, n\)"),
            (lambda: lapack.gesvd(dA, dw, jobu="N", jobvt="S"), r"^lapack\.gesvd: VT needs a DevicePtr"),
            (lambda: lapack.gesvd(dA, dw, dA, jobu="N", jobvt="N"), r"^lapack\.gesvd: U needs to be None"),
            (lambda: lapack.potrf(dA[::2, ::2]), r"^lapack\.potrf: A .* needs unit stride"),
            (lambda: lapack.ormqr(dA, dtau, dB, side="X"), r'^lapack\.ormqr: side must be "L" or "R"'),
        ):
            with pytest.raises(ArgumentError, match=text):
                call()


def test_operands_of_other_kinds_are_refused_by_name(device: str) -> None:
    A, b, whole = np.eye(3), np.ones(3), np.ones(3, np.int64)
    functions: Any = lapack  # type checkers would refuse these calls, too
    with offload_args(A, b, whole, A.astype(np.complex64), device=device) as (dA, db, dwhole, dc):
        for call, kind, text in (
            (lambda: functions.potrf(A), HostPointerError, r"^lapack\.potrf: A needs a DevicePtr, got numpy\.ndarray"),
            (lambda: functions.gesv(dA, None, db), HostPointerError, r"^lapack\.gesv: ipiv needs a DevicePtr"),
            (lambda: functions.gesv(dA, dwhole, db), DTypeError, r"^lapack\.gesv: ipiv needs int32, got int64"),
            (lambda: functions.posv(dA, dc), DTypeError, r"^lapack\.posv: B needs float64 as A has, got complex64"),
            (lambda: functions.syevd(dc, db), DTypeError, r"^lapack\.syevd: A needs float32 or float64.*heevd"),
            (lambda: functions.heevd(dc, db), DTypeError, r"^lapack\.heevd: w needs float32"),
            (lambda: functions.potrf(dwhole), DTypeError, r"^lapack\.potrf: A needs float32 or"),
            (lambda: functions.ormqr(dA.T, 5, db), HostPointerError, r"^lapack\.ormqr: tau needs a DevicePtr, got int"),
            (lambda: functions.ormqr(dA.T, db, 5), HostPointerError, r"^lapack\.ormqr: C needs a DevicePtr, got int"),
        ):
            with pytest.raises(kind, match=text):
                call()
    with pytest.raises(StalePointerError):
        lapack.potrf(dA)


def test_an_in_is_not_factored(device: str) -> None:
    A = np.eye(3)
    with pytest.raises(DirectionError, match="lent as In"):
        with offload_args(In(A), device=device) as (dA,):
            lapack.potrf(dA)


@pytest.mark.parametrize("pivots", [[2, 3, 2], [0, 1, 2], [10**8, 7, -5 * 10**8], [1, 2, 4]])
def test_pivots_that_getrf_never_leaves_are_refused(device: str, pivots: list[int]) -> None:
    A, ipiv, b = np.eye(3), np.array(pivots, np.int32), np.arange(9.0)
    with offload_args(A, ipiv, b, device=device) as (dA, dp, db):
        with pytest.raises(
            ArgumentError, match=r"^lapack\.getrs: ipiv\[\d\] is -?\d+, needs to be from . to 3: .*from 1"
        ):
            lapack.getrs(dA, dp, db[3:6])
    assert np.array_equal(b, np.arange(9.0))


def test_pivots_of_scipy_are_refused_and_plus_one_they_solve(device: str) -> None:
    original, b = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([1.0, 2.0])
    factors, pivots = scipy.linalg.lu_factor(original)
    A, right, plus_one = np.asfortranarray(factors), pivots.astype(np.int32), (pivots + 1).astype(np.int32)
    with offload_args(A, right, plus_one, b, device=device) as (dA, dp, dplus, db):
        with pytest.raises(ArgumentError, match=r"SciPy's lu_factor counts from 0: pass piv \+ 1"):
            lapack.getrs(dA, dp, db)
        lapack.getrs(dA, dplus, db)
    assert np.allclose(original @ b, [1.0, 2.0])


def test_pivots_of_a_matrix_with_nans_are_taken(device: str) -> None:
    A, ipiv, b = np.full((5, 5), np.nan), np.zeros(5, np.int32), np.ones(5)
    try:
        with offload_args(A, ipiv, b, device=device) as (dA, dp, db):
            lapack.getrf(dA, dp)
            lapack.getrs(dA, dp, db)
    except np.linalg.LinAlgError:
        return  # a NaN may be reported as a wrong pivot
    assert np.isnan(b).all()


@pytest.mark.filterwarnings("ignore::offload_args.PerformanceWarning")
def test_a_right_side_in_another_order_that_overlaps_the_matrix_is_refused(device: str, dtype: str) -> None:
    A, ipiv = np.eye(4, dtype=dtype) * 3, np.arange(1, 5, dtype=np.int32)
    wide = np.ones((2, 5), dtype, order="F")
    with offload_args(A, ipiv, wide, device=device) as (dA, dp, dwide):
        for name, call in (
            ("gesv", lambda: lapack.gesv(dA, dp, dA[:, :2])),
            ("getrs", lambda: lapack.getrs(dA, dp, dA[:, 1:3])),
            ("gels", lambda: lapack.gels(dwide, dwide[1])),
        ):
            with pytest.raises(AliasError, match=rf"^lapack\.{name}: .*overlap"):
                call()
    assert np.array_equal(A, np.eye(4) * 3) and np.all(wide == 1)


SOLVERS: Any = {  # functions of A, B and the pivots
    "gesv": lambda A, p, B: lapack.gesv(A, p, B),
    "posv": lambda A, p, B: lapack.posv(A, B),
    "gels": lambda A, p, B: lapack.gels(A, B),
}
DEFINITE = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]], order="F")


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_right_side_that_is_an_in_leaves_a_as_it_was(device: str, solver: str) -> None:
    A, ipiv, b = DEFINITE.copy("F"), np.full(3, 77, np.int32), np.ones(3)
    with offload_args(A, ipiv, In(b), device=device) as (dA, dp, db):
        with pytest.raises(DirectionError, match=rf"^lapack\.{solver}: B .* lent as In .*lend it as InOut"):
            SOLVERS[solver](dA, dp, db)
    assert np.array_equal(A, DEFINITE) and np.array_equal(ipiv, np.full(3, 77)) and np.array_equal(b, np.ones(3))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_right_side_on_another_device_leaves_a_as_it_was(device: str, solver: str) -> None:
    A, ipiv, b = DEFINITE.copy("F"), np.full(3, 77, np.int32), np.ones(3)
    other = "sim:0" if device == "host" else "host"
    with offload_args(A, ipiv, device=device) as (dA, dp), offload_args(b, device=other) as (db,):
        with pytest.raises(WrongDeviceError, match=rf"^lapack\.{solver}: B is on {other}, and A is on {device}"):
            SOLVERS[solver](dA, dp, db)
    assert np.array_equal(A, DEFINITE) and np.array_equal(ipiv, np.full(3, 77)) and np.array_equal(b, np.ones(3))


@pytest.mark.filterwarnings("ignore::offload_args.OffloadWarning")
@pytest.mark.parametrize(("case", "kind"), [("overlaps", AliasError), ("lent as Out", DirectionError)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_half_of_a_solution_that_is_refused_never_reaches_the_host(
    device: str, solver: str, case: str, kind: type[Exception]
) -> None:
    A, ipiv, b = DEFINITE.copy("F"), np.full(3, 77, np.int32), np.ones(3)
    region = offload_args(A, ipiv, Out(b), device=device)
    dA, dp, db = region.open()
    with pytest.raises(kind, match=rf"^lapack\.{solver}: .*{case}.* undefined on the device now"):
        SOLVERS[solver](dA, dp, dA[:, 0] if case == "overlaps" else db)
    with pytest.raises(InvalidDataError, match="undefined"):
        dA.to_host()
    with pytest.raises(InvalidDataError):
        region.close()
    assert np.array_equal(A, DEFINITE) and np.array_equal(ipiv, np.full(3, 77)) and np.array_equal(b, np.ones(3))


def test_an_option_that_is_no_string_is_refused_by_name(device: str) -> None:
    functions: Any = lapack
    with offload_args(np.eye(2), device=device) as (dA,):
        for wrong in (np.array(["U", "L"]), None, 5):
            with pytest.raises(ArgumentError, match=r'^lapack\.potrf: uplo must be "U" or "L", got '):
                functions.potrf(dA, uplo=wrong)


@pytest.mark.parametrize("device", ["hip:0"])
def test_what_rocsolver_lacks_is_refused_with_the_reason(device: str) -> None:
    open_or_skip(device)
    library_or_skip("rocsolver", device)
    C, ipiv = np.eye(2, dtype=complex, order="F"), np.arange(1, 3, dtype=np.int32)
    with offload_args(np.eye(2), C, ipiv, np.ones(2), np.ones(2, complex), device=device) as lent:
        dA, dC, dp, db, dw = lent
        for call, text in (
            (lambda: lapack.hetrf(dC, dp), r"^lapack\.hetrf: rocSOLVER has none for complex dtypes; use getrf"),
            (lambda: lapack.sytrs(dA, dp, db), r"^lapack\.sytrs: rocSOLVER has none; use getrf and getrs, or the host"),
            (lambda: lapack.geev(dA, dw), r"^lapack\.geev: rocSOLVER finds no eigenvalues of general matrices; find"),
        ):
            with pytest.raises(LibraryError, match=text):
                call()


def test_an_operand_that_the_library_names_otherwise_is_named_as_the_caller_does(device: str) -> None:
    square = np.asfortranarray(np.eye(3))
    with offload_args(In(square), Scratch((3,), np.int32), In(np.ones(3)), device=device) as (dA, dp, db):
        for call, named in ((lambda: lapack.getrf(dA, dp), "A"), (lambda: lapack.heevd(dA, db), "A")):
            with pytest.raises(DirectionError) as caught:
                call()
            library = str(caught.value).partition(": ")[2].partition(" ")[0]
            assert library == named or f"its {library} is {named}" in caught.value.__notes__[0]


def test_a_right_side_that_is_too_short_is_told_the_shape_of_A(device: str) -> None:
    wanted = r"B has .*needs \(5,\) for A of shape \(2, 5\): .*; make B = np\.zeros\(\(5,\)\), .*; linalg\.lstsq needs"
    for function, rest in ((lapack.gels, ()), (lapack.gelsd, (np.empty(2),))):
        with offload_args(np.ones((2, 5), order="F"), np.ones(2), *rest, device=device) as (dA, dB, *others):
            with pytest.raises(ArgumentError, match=wanted):
                function(dA, dB, *others)


def test_a_call_without_pivots_and_one_with_a_device_name_the_arguments(device: str) -> None:
    with offload_args(np.eye(2), np.ones(2), device=device) as (dA, db):
        with pytest.raises(ArgumentTypeError, match=r"'B'; write lapack\.gesv\(A, ipiv, B, \.\.\.\)$"):
            lapack.gesv(dA, db)  # type: ignore[call-arg]
        with pytest.raises(
            ArgumentTypeError, match=r"^lapack\.potrf\(\) got .*'device'; it runs on the device of its p"
        ):
            lapack.potrf(dA, device="host")  # type: ignore[call-arg]
