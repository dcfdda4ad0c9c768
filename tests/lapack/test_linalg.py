"""`linalg` of arrays: results, dtypes, shapes and errors are NumPy's, to within rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lapack.conftest import Matrices
from numpy.typing import NDArray

from helpers.devices import library_or_skip, open_or_skip
from offload_args import Device, linalg, offload_args, testing, trace
from offload_args.errors import ArgumentError, ArgumentTypeError, DeviceMemoryError, DTypeError

SHAPES = [(0, 0), (1, 1), (5, 5), (3, 4, 4), (2, 3, 3, 3), (0, 4, 4), (2, 0, 0)]
ORDERS = ["C", "F", "gaps"]


def ordered(values: NDArray[Any], order: str) -> NDArray[Any]:
    """Return the values as an array whose matrices are in this order, or have gaps along every axis."""
    if order == "C" or values.ndim < 2:
        return np.ascontiguousarray(values)
    if order == "F":
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    roomy = np.zeros([2 * extent for extent in values.shape], values.dtype)
    part = roomy[tuple(slice(None, None, 2) for _ in values.shape)][tuple(slice(0, n) for n in values.shape)]
    part[...] = values
    return part


class Given:
    """A stack of matrices, with a comparison of results."""

    def __init__(self, matrices: Matrices, shape: tuple[int, ...], order: str) -> None:
        self.matrices = matrices
        general = matrices.general(*shape)
        self.A = ordered(general, order)
        gram = general @ general.conj().swapaxes(-1, -2) + np.eye(shape[-2]) * shape[-2]
        self.definite = ordered(gram.astype(general.dtype), order)

    def near(self, actual: Any, expected: Any) -> None:
        assert type(actual) is type(expected)
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        assert self.matrices.near(actual, expected)


def each(matrices: Matrices, shapes: list[tuple[int, ...]] = SHAPES) -> list[Given]:
    """Return stacks of each shape, in each order for double precision, and in C order for single precision."""
    orders = ORDERS if matrices.tolerance < 1e-8 else ORDERS[:1]
    return [Given(matrices, shape, order) for shape in shapes for order in orders]


@pytest.mark.later("host")
def test_systems_and_determinants_are_numpys(device: str, matrices: Matrices) -> None:
    for stack in each(matrices):
        A, n = stack.A, stack.A.shape[-1]
        before = A.copy()
        vector, right = stack.matrices.general(n), ordered(stack.matrices.general(*A.shape[:-1], 3), "C")
        stack.near(linalg.solve(A, vector, device=device), np.linalg.solve(A, vector))
        stack.near(linalg.solve(A, right, device=device), np.linalg.solve(A, right))
        stack.near(linalg.inv(A, device=device), np.linalg.inv(A))
        stack.near(linalg.det(A, device=device), np.linalg.det(A))
        for actual, expected in zip(linalg.slogdet(A, device=device), np.linalg.slogdet(A), strict=True):
            stack.near(actual, expected)
        assert np.array_equal(A, before)


@pytest.mark.later("host")
def test_factors_and_eigenvalues_are_numpys(device: str, matrices: Matrices) -> None:
    for stack in each(matrices):
        S = stack.definite
        before = S.copy()
        for upper in (False, True):
            stack.near(linalg.cholesky(S, upper=upper, device=device), np.linalg.cholesky(S, upper=upper))
        for UPLO in "lU":
            one_triangle = np.tril(S) if UPLO == "l" else np.triu(S)
            values, vectors = linalg.eigh(one_triangle, UPLO, device=device)
            stack.near(values, np.linalg.eigh(S).eigenvalues)
            stack.near(S @ vectors, (vectors * values[..., None, :]).astype(S.dtype))
            stack.near(linalg.eigvalsh(one_triangle, UPLO, device=device), np.linalg.eigvalsh(S))
        assert np.array_equal(S, before)


@pytest.mark.later("host")
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 1), (1, 4), (2, 4, 3), (2, 3, 4), (0, 3), (3, 0), (2, 0, 3)])
def test_singular_values_and_qr_are_numpys(device: str, matrices: Matrices, shape: tuple[int, ...]) -> None:
    for stack in each(matrices, [shape]):
        check_factors(device, stack.A, stack.near)


def check_factors(device: str, A: NDArray[Any], near: Callable[[Any, Any], None]) -> None:
    shape = A.shape
    k = min(shape[-2:])
    for full in (True, False):
        U, s, Vh = linalg.svd(A, full, device=device)
        expected = np.linalg.svd(A, full)
        assert (U.shape, Vh.shape) == (expected.U.shape, expected.Vh.shape)
        near(s, expected.S)
        near(((U[..., :k] * s[..., None, :]) @ Vh[..., :k, :]).astype(A.dtype), np.ascontiguousarray(A))
        for Q in (U, Vh):
            near(Q.conj().swapaxes(-1, -2) @ Q if Q is U else Q @ Q.conj().swapaxes(-1, -2), identities(Q, Q is U))
    near(linalg.svd(A, compute_uv=False, device=device), np.linalg.svd(A, compute_uv=False))
    for mode in ("reduced", "complete"):
        for actual, factor in zip(linalg.qr(A, mode, device=device), np.linalg.qr(A, mode), strict=True):
            near(actual, factor)
    near(linalg.qr(A, "r", device=device), np.linalg.qr(A, "r"))
    for actual, factor in zip(linalg.qr(A, "raw", device=device), np.linalg.qr(A, "raw"), strict=True):
        near(actual, factor)


def identities(Q: NDArray[Any], of_columns: bool) -> NDArray[Any]:
    n = Q.shape[-1] if of_columns else Q.shape[-2]
    return np.broadcast_to(np.eye(n, dtype=Q.dtype), (*Q.shape[:-2], n, n)).copy()


def test_svd_of_a_hermitian_matrix_uses_its_eigenvalues(device: str, matrices: Matrices) -> None:
    stack = Given(matrices, (2, 4, 4), "C")
    A = stack.definite - 3 * np.eye(4, dtype=matrices.dtype)
    U, s, Vh = linalg.svd(A, hermitian=True, device=device)
    stack.near((U * s[..., None, :]) @ Vh, A)
    stack.near(linalg.svd(A, compute_uv=False, hermitian=True, device=device), s)
    stack.near(s, np.linalg.svd(A, compute_uv=False))
    A[0, 0, 0] = np.nan
    for compute_uv in True, False:
        with pytest.raises(np.linalg.LinAlgError, match=r"^linalg\.svd: "):
            linalg.svd(A, compute_uv=compute_uv, hermitian=True, device=device)


@pytest.mark.later("host")
@pytest.mark.parametrize(
    ("m", "n", "rank"), [(6, 3, 3), (3, 6, 3), (6, 4, 2), (4, 6, 2), (4, 4, 0), (0, 3, 0), (3, 0, 0)]
)
def test_least_squares_are_numpys_of_any_rank(device: str, matrices: Matrices, m: int, n: int, rank: int) -> None:
    order = "C" if m < n else "F"
    A = ordered((matrices.general(m, rank) @ matrices.general(rank, n)).astype(matrices.dtype), order)
    near = Given(matrices, (1, 1), "C").near
    for b in (matrices.general(m), matrices.general(m, 2), matrices.general(m, 0)):
        x, residuals, actual_rank, s = linalg.lstsq(A, b, 1e-4, device=device)
        expected = np.linalg.lstsq(A, b, 1e-4)
        assert actual_rank == expected[2] == rank and type(actual_rank) is type(expected[2])
        for actual, other in zip((x, residuals, s), (expected[0], expected[1], expected[3]), strict=True):
            near(actual, other)


@pytest.mark.later("host")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((1, 2, 3), (5, 3, 1)),
        ((3,), (5, 3, 4)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
        ((0, 2, 3), (3, 4)),
        ((2, 0), (0,)),
        ((0,), (0, 3)),
        ((0,), (0,)),
        ((4, 2, 0), (0,)),
        ((0,), (4, 0, 3)),
        ((4, 2, 0), (0, 3)),
    ],
)
def test_products_are_numpys(device: str, matrices: Matrices, first: Any, second: Any) -> None:
    for order in ORDERS:
        a, b = ordered(matrices.general(*first), order), ordered(matrices.general(*second), "C")
        Given(matrices, (1, 1), "C").near(linalg.matmul(a, b, device=device), np.matmul(a, b))


@pytest.mark.later("host")
@pytest.mark.parametrize("power", [0, 1, 2, 3, 7, -1, -2])
def test_powers_are_numpys(device: str, matrices: Matrices, power: int) -> None:
    for stack in each(matrices):
        A = stack.A / max(stack.A.shape[-1], 1)
        A[...] += np.eye(A.shape[-1])
        actual = linalg.matrix_power(A, power, device=device)
        expected = np.linalg.matrix_power(A, power)
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        scale = max(1.0, *np.abs(expected).ravel(), 1.0)
        assert stack.matrices.near(actual / scale, expected / scale)


@pytest.mark.parametrize("pair", [(np.float32, np.int8), (np.complex64, np.float64), (np.float32, np.complex64)])
def test_dtypes_are_promoted_as_numpys_are(device: str, pair: tuple[Any, Any]) -> None:
    A, b = np.array([[4, 1], [2, 3]], pair[0]), np.array([6, 8], pair[1])
    actual, expected = linalg.solve(A, b, device=device), np.linalg.solve(A, b)
    assert actual.dtype == expected.dtype
    assert np.allclose(actual, expected)
    assert linalg.det([[1, 2], [3, 4]], device=device).dtype == np.float64


def test_arrays_of_another_byte_order_and_class(device: str) -> None:
    A = np.array([[4.0, 1.0], [2.0, 3.0]])
    assert np.allclose(linalg.inv(A.astype(">f8"), device=device), np.linalg.inv(A))
    matrix = A.view(np.matrix)
    assert type(linalg.inv(matrix, device=device)) is np.matrix
    assert type(linalg.solve(A, matrix, device=device)) is np.matrix


def test_an_argument_may_be_given_twice_or_be_lent(device: str) -> None:
    A = np.array([[4.0, 1.0], [2.0, 3.0]])
    assert np.allclose(linalg.solve(A, A, device=device), np.eye(2))
    assert np.allclose(linalg.matmul(A, A.T, device=device), A @ A.T)
    with offload_args(A, device=device) as (dA,):
        dA.fill(2)
        assert np.array_equal(linalg.matmul(A, A, device=device), np.full((2, 2), 8.0))  # of the bytes on the device


@pytest.mark.parametrize("function", [linalg.solve, linalg.inv])
def test_a_singular_matrix_is_named(device: str, function: Callable[..., Any]) -> None:
    stack = np.stack([np.eye(3)] * 4).reshape(2, 2, 3, 3)
    stack[0, 1, 1] = stack[1, 0] = 0
    name, right = function.__name__, (np.ones(3),) if function is linalg.solve else ()
    with pytest.raises(np.linalg.LinAlgError, match=rf"^linalg\.{name}: a is singular: pivot 1") as caught:
        function(np.zeros((3, 3)), *right, device=device)
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(
        np.linalg.LinAlgError, match=rf"^linalg\.{name}: a\[0, 1\] is singular: .*so it is with a\[1, 0"
    ):
        function(stack, *right, device=device)


def test_an_indefinite_matrix_is_named(device: str) -> None:
    stack = np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0])])
    with pytest.raises(np.linalg.LinAlgError, match=r"^linalg\.cholesky: a\[1\] is not positive definite: .*order 2"):
        linalg.cholesky(stack, device=device)


@pytest.mark.exhaustive
def test_a_stack_may_have_more_matrices_than_a_process_has_handles(device: str) -> None:
    stack = np.full((2**21 + 5, 1, 1), 4.0)
    assert (linalg.cholesky(stack, device=device) == 2).all()


def test_determinants_of_singular_matrices_are_zero(device: str, dtype: str) -> None:
    stack = np.stack([np.eye(2), np.zeros((2, 2))]).astype(dtype)
    assert np.array_equal(linalg.det(stack, device=device), [1, 0])
    sign, log = linalg.slogdet(stack, device=device)
    assert np.array_equal(sign, [1, 0]) and np.array_equal(log, [0, -np.inf])


def test_determinants_with_infinities_and_nan_are_numpys(device: str) -> None:
    stack = np.array([[[np.inf]], [[-np.inf]], [[np.nan]]])
    with np.errstate(invalid="ignore"):
        for got, expected in zip(linalg.slogdet(stack, device=device), np.linalg.slogdet(stack), strict=True):
            assert np.array_equal(got, expected, equal_nan=True)
        assert np.array_equal(linalg.det(stack, device=device), [np.inf, -np.inf, np.nan], equal_nan=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_iterations_refuse_what_is_not_finite(device: str, dtype: str, value: float) -> None:
    A = np.eye(3).astype(dtype)
    A[2, 1] = value
    for function in (linalg.eigh, linalg.eigvalsh, linalg.svd, lambda A, device: linalg.lstsq(A, A[0], device=device)):
        with pytest.raises(np.linalg.LinAlgError, match=r"is .*(nan|inf).*, needs to be finite"):
            function(A, device=device)
    values = linalg.eigvalsh(A, "U", device=device)  # this triangle is finite
    assert np.array_equal(values, np.ones(3))


def test_wrong_arguments_are_refused_as_numpy_refuses_them(device: str) -> None:
    square, flat = np.eye(3), np.ones(3)
    for function in (linalg.inv, linalg.det, linalg.cholesky, linalg.eigh, linalg.slogdet):
        with pytest.raises(np.linalg.LinAlgError, match=r"needs square matrices"):
            function(np.ones((2, 3)), device=device)
        with pytest.raises(np.linalg.LinAlgError, match=r"needs at least two dimensions"):
            function(flat, device=device)
        with pytest.raises(DTypeError, match=r"float16 of a is unsupported in linalg; convert it first"):
            function(square.astype(np.float16), device=device)
    with pytest.raises(ArgumentError, match=r"^linalg\.solve: b has shape \(2,\), needs 3 rows"):
        linalg.solve(square, np.ones(2), device=device)
    with pytest.raises(ArgumentError, match=r"can't be broadcast together"):
        linalg.solve(np.ones((2, 3, 3)), np.ones((3, 3, 1)), device=device)
    with pytest.raises(ArgumentError, match=r"x1 of shape \(3, 3\) has 3 columns, and x2 of shape \(2,\) has 2 rows"):
        linalg.matmul(square, np.ones(2), device=device)
    with pytest.raises(ArgumentError, match=r"need one dimension at least"):
        linalg.matmul(square, 2.0, device=device)
    with pytest.raises(DTypeError, match=r"x1 needs float32.*got int64; pass x1\.astype"):
        linalg.matmul([[1]], [[1]], device=device)
    with pytest.raises(ArgumentTypeError, match=r"n needs a whole number"):
        linalg.matrix_power(square, 1.5, device=device)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r'UPLO argument must be "L" or "U"'):
        linalg.eigh(square, "lower", device=device)
    with pytest.raises(ArgumentError, match=r"mode must be"):
        linalg.qr(square, "full", device=device)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"is a masked array"):
        linalg.inv(np.ma.masked_invalid(square), device=device)


def test_only_what_is_needed_moves(device: str) -> None:
    A, counters = np.eye(64), Device(device).counters
    before = counters
    linalg.solve(A, np.ones(64), device=device)
    after = Device(device).counters
    assert after.bytes_up - before.bytes_up <= A.nbytes + 64 * 8 + 4096
    assert after.mappings == before.mappings


def test_small_matrices_of_a_stack_are_one_call_of_a_gpu() -> None:
    device = open_or_skip("cuda:0")
    library_or_skip("cusolver", device)
    A = np.random.default_rng(0).standard_normal((6, 4, 4)) + 4 * np.eye(4)
    S, b = A @ A.swapaxes(1, 2), np.ones((6, 4, 3))
    functions: dict[str, Callable[[], Any]] = {
        "getrf_batched getrs_batched": lambda: linalg.solve(A, np.ones(4), device=device),
        "asum gemm_strided_batched getrf_batched getrs_batched": lambda: linalg.solve(A, b, device=device),
        "getrf_batched getri_batched": lambda: linalg.inv(A, device=device),
        "getrf_batched": lambda: linalg.det(A, device=device),
        "potrf_batched": lambda: linalg.cholesky(S, device=device),
        "asum syevj_batched": lambda: linalg.eigh(S, device=device),
        "asum gesvdj_batched gemm_strided_batched": lambda: linalg.svd(A, device=device),
        "asum gemm_strided_batched geqrf_batched": lambda: linalg.qr(A, mode="r", device=device),
    }
    for names, function in functions.items():
        with trace() as traced:
            function()
        calls = [event.name.partition(".d")[2] for event in traced.events if event.kind == "call"]
        assert sorted(calls) == sorted(names.split())


def test_the_other_triangle_of_a_stack_is_not_read(device: str, matrices: Matrices) -> None:
    general = matrices.general(2, 3, 3)
    gram = general @ general.conj().swapaxes(-1, -2)
    A = np.where(np.triu(np.ones((3, 3)), 1) != 0, np.array(np.nan, matrices.dtype), gram)
    w, v = linalg.eigh(A, device=device)
    assert matrices.near(gram @ v, v * w[:, None])


def test_a_vector_for_each_matrix_is_passed_as_a_column(device: str) -> None:
    a, b = np.stack([2 * np.eye(3)] * 4), np.ones((4, 3))
    with pytest.raises(
        ArgumentError, match=r"b has shape \(4, 3\), needs 3 rows, .*; b\[\.\.\., None\] has a column for each"
    ):
        linalg.solve(a, b, device=device)
    assert (linalg.solve(a, b[..., None], device=device) == 0.5).all()


def test_a_singular_or_rectangular_system_names_least_squares(device: str) -> None:
    singular, wide = np.diag([2.0, 0.0]), np.ones((2, 3))
    with pytest.raises(np.linalg.LinAlgError, match=r"; linalg\.lstsq solves singular systems$"):
        linalg.solve(singular, np.ones(2), device=device)
    with pytest.raises(
        np.linalg.LinAlgError, match=r"; linalg\.lstsq\(a, np\.eye\(len\(a\)\)\)\[0\] is its pseudoinverse$"
    ):
        linalg.inv(singular, device=device)
    np.testing.assert_allclose(linalg.lstsq(singular, np.eye(2), device=device)[0], np.linalg.pinv(singular))
    for function, rest in ((linalg.solve, (np.ones(2),)), (linalg.inv, ())):
        with pytest.raises(np.linalg.LinAlgError, match=r"needs square matrices; linalg\.lstsq takes other shapes$"):
            function(wide, *rest, device=device)


def test_a_product_that_is_larger_than_the_device_is_computed_by_parts() -> None:
    sim = testing.sim_device(capacity=100_000)
    A, B = np.random.default_rng(0).standard_normal((2, 90, 90))  # three times 64,800 bytes
    with testing.residency("off"):
        np.testing.assert_allclose(linalg.matmul(A, B, device=sim), A @ B, atol=1e-12)
        np.testing.assert_allclose(linalg.matmul(A.T, B.T, device=sim), A.T @ B.T, atol=1e-12)
        with pytest.raises(DeviceMemoryError, match=r"^linalg\.matmul: "):
            linalg.matmul(np.stack([A] * 3), B, device=sim)
    testing.sim_device()
