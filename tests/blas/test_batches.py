"""Batches of the portable BLAS: broadcasting, whole outputs, one call for all, refusals, and the calls of CBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.vendor import Vendor
from offload_args import Device, In, Out, Scratch, blas, cblas, offload_args
from offload_args._core import repeat
from offload_args.errors import (
    AliasError,
    ArgumentError,
    DirectionError,
    HostPointerError,
    StalePointerError,
    WrongDeviceError,
)


def numbers(*shape: int) -> Any:
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize(("m", "n"), [(3, 2), (1, 2), (3, 1), (1, 1)])
def test_an_out_of_a_product_over_nothing_is_zeros(device: str, dtype: Any, batch: Any, m: int, n: int) -> None:
    A, B, C = np.ones((*batch, m, 0), dtype), np.ones((*batch, 0, n), dtype), np.full((*batch, m, n), 7, dtype)
    with offload_args(A, B, Out(C), device=device) as (dA, dB, dC):
        blas.gemm(1, dA, dB, 0, dC)
    assert (C == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_an_out_of_a_product_with_a_vector_over_nothing_is_refused(device: str, dtype: Any) -> None:
    """BLAS returns from a gemv of an empty matrix without writing y, so y would come down undefined."""
    A, x, y = np.ones((3, 0), dtype), np.ones(0, dtype), np.full(3, 7, dtype)
    with offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
        with pytest.raises(DirectionError, match="y was lent as Out"):
            blas.gemv(1, dA, dx, 0, dy)
        dy.fill(0)
    assert (y == 0).all()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 3, 4), (5, 4, 2)),
        ((1, 3, 4), (5, 4, 2)),
        ((5, 3, 4), (1, 4, 2)),
        ((3, 4), (5, 4, 2)),
        ((5, 3, 4), (4, 2)),
        ((3, 4), (4, 2)),
        ((1, 3, 4), (1, 4, 2)),
    ],
)
def test_gemm_broadcasts_the_first_axis_as_matmul(device: str, a: Any, b: Any) -> None:
    A, B, C = numbers(*a), numbers(*b), np.full((5, 3, 2), np.nan)
    before = Device(device).counters
    with offload_args(In(A), In(B), Out(C), device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
    after = Device(device).counters
    np.testing.assert_array_equal(C, np.broadcast_to(A @ B, C.shape))
    assert after.calls - before.calls == 1
    assert after.bytes_up - before.bytes_up == A.nbytes + B.nbytes


def test_a_batch_may_be_every_second_matrix_or_a_part_of_each(device: str) -> None:
    A, B, C = numbers(7, 4, 5), numbers(4, 3, 6), np.zeros((4, 6, 6))
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        blas.gemm(2.0, dA[::2, 1:, :3], dB, 1.0, dC[:, 2:5, :])
    expected = np.zeros((4, 6, 6))
    expected[:, 2:5, :] = 2 * A[::2, 1:, :3] @ B
    np.testing.assert_array_equal(C, expected)


@pytest.mark.parametrize("beta", [0, 2])
def test_a_batch_with_nothing_to_sum_over_is_scaled(device: str, beta: int) -> None:
    C = numbers(3, 2, 4)
    expected = beta * C
    with offload_args(np.ones((3, 2, 0)), np.ones((0, 4)), C, device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, beta, dC)
    np.testing.assert_array_equal(C, expected)


def test_an_empty_batch_moves_nothing(device: str) -> None:
    C = numbers(3, 2, 2)
    before = Device(device).counters
    with offload_args(np.ones((0, 2, 2)), np.ones((2, 2)), C, device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC[:0])
        blas.gemm_strided_batched(1.0, dA, dA, 1.0, dC[3:])
    assert Device(device).counters.bytes_up == before.bytes_up
    np.testing.assert_array_equal(C, numbers(3, 2, 2))


def test_a_broadcast_operand_may_not_be_in_the_output(device: str) -> None:
    A, C = numbers(4, 2, 2), numbers(4, 2, 2)
    with offload_args(A, C, device=device) as (dA, dC):
        for part in (dC[3], dC[:1], dC[1, :, :]):
            with pytest.raises(AliasError, match="is written and overlaps"):
                blas.gemm(1.0, dA, part, 0.0, dC)
        blas.gemm(1.0, dA[:3], dC[3], 0.0, dC[:3])
    np.testing.assert_array_equal(C[:3], A[:3] @ C[3])


def test_a_batch_whose_second_matrix_is_refused_is_not_written_at_all(device: str) -> None:
    A, C = numbers(4, 2, 2), numbers(4, 2, 2)
    with offload_args(A, In(C), device=device) as (dA, dC):
        with pytest.raises(DirectionError, match="C needs to be writable"):
            blas.gemm(1.0, dA, dA, 1.0, dC)
    with pytest.raises(StalePointerError):
        blas.gemm(1.0, dA, dA, 1.0, dC)
    np.testing.assert_array_equal(C, numbers(4, 2, 2))


@pytest.mark.parametrize("name", ["gemm", "gemm_strided_batched"])
def test_batches_that_do_not_fit_are_named(device: str, name: str) -> None:
    product = getattr(blas, name)
    with offload_args(numbers(5, 3, 4), numbers(5, 4, 2), numbers(5, 3, 2), device=device) as (A, B, C):
        for arguments, text in [
            ((A[:2], B, C), r"A has shape \(2, 3, 4\), needs \(5, 3, 4\) for a C of 5 matrices, or one for all"),
            ((A, B, C[:1]), r"A has shape \(5, 3, 4\), needs \(1, 3, 4\) for a C of 1 matrices, or one for all"),
            ((A, B, C[0]), r"C has shape \(3, 2\), needs 3 dimensions; pass C\[None\]"),
            ((A[0, 0], B, C), r"A has shape \(4,\), needs 2 dimensions; pass A\[:, None\]"),
            ((A[:, :2], B, C), r"C has shape \(5, 3, 2\), needs \(5, 2, 2\) for A of shape \(5, 2, 4\)"),
            ((A, B[0].T, C), r"B has shape \(2, 4\), needs \(4, 2\) for C of shape \(5, 3, 2\), A of shape"),
            ((A, B[::-1], C), r"B has strides .*B = np\.ascontiguousarray\(B\)"),
            ((A[:, :, ::2], B[:, :2], C), r"A has shape .* and strides .*A = np\.ascontiguousarray\(A\)"),
        ]:
            with pytest.raises(ArgumentError, match=rf"^blas\.{name}: {text}"):
                product(1.0, arguments[0], arguments[1], 0.0, arguments[2])


def test_matrices_of_an_output_that_lie_within_each_other_are_refused(device: str) -> None:
    values = numbers(4, 3, 5)
    with offload_args(values, numbers(3, 3), device=device) as (d, dA):
        across = d[:, :, 0].T[:, None, :]  # shape (3, 1, 4), in which the four elements of a row are five apart
        with pytest.raises((AliasError, ArgumentError), match="memory of its own|lent"):
            blas.gemm(1.0, dA[:1, :1], d[:3, :1, :4], 0.0, across)
    np.testing.assert_array_equal(values, numbers(4, 3, 5))


# -- sums and diagonals ------------------------------------------------------------------------------------------------
def test_a_refused_sum_of_matrices_leaves_c_as_it_was(device: str) -> None:
    A, C = numbers(3, 4), numbers(3, 4)
    with offload_args(A, C, device=device) as (dA, dC):
        with pytest.raises(TypeError):
            blas.geam(1.0, dA, 1j, dA, dC)
        for part, trans in ((dC[:2, :2], "T"), (dC[:2, 1:3], "N"), (dC[1:, :2], "N")):  # each overlaps C[:2, :2]
            with pytest.raises(AliasError):
                blas.geam(1.0, dA[:2, :2], 2.0, part, dC[:2, :2], trans_b=trans)
            with pytest.raises(AliasError):
                blas.geam(2.0, part, 1.0, dA[:2, :2], dC[:2, :2], trans_a=trans)
            with pytest.raises(AliasError):
                blas.geam(2.0, dC[:2, :2], 1.0, part, dC[:2, :2], trans_b=trans)
        for side in "LR":
            with pytest.raises(AliasError):
                blas.dgmm(dC[:2, 1:3], dA[0, :2], dC[:2, :2], side=side)
            with pytest.raises(AliasError):
                blas.dgmm(dC[:2, :2], dC[:2, 0], dC[:2, :2], side=side)
        with pytest.raises(AliasError):
            blas.dgmm(dA, dC[0], dC, side="R")
        with pytest.raises(ArgumentError, match=r"^blas\.geam: B has shape \(3, 4\), needs \(4, 3\) for C of shape"):
            blas.geam(1.0, dA, 1.0, dA, dC, trans_b="T")
        with pytest.raises(ArgumentError, match=r'^blas\.dgmm: x has shape \(4,\), needs \(3,\) .* side="L"'):
            blas.dgmm(dA, dA[0], dC)
        with pytest.raises(ArgumentError, match=r"^blas\.dgmm: A and C need the same order, got A F, C C"):
            blas.dgmm(dA[:3, :3].T, dA[0, :3], dC[:, :3])
    np.testing.assert_array_equal(C, numbers(3, 4))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_sums_of_matrices_are_made_in_the_memory_of_one(device: str, dtype: str, order: Any, on_device: bool) -> None:
    rng = np.random.default_rng(5)
    A, B = (np.array(rng.integers(-3, 4, (5, 6)), dtype, order=order) for _ in range(2))
    A, B = A[:3, :4], B[:3, :4]
    a, b, T = A.copy(), B.copy(), np.array(B.T, order=order)
    two, three = np.array([2], dtype), np.array([3], dtype)
    with offload_args(A, In(B), In(T), two, three, device=device) as (dA, dB, dT, *factors):
        alpha, beta = factors if on_device else (2, 3)
        blas.geam(alpha, dA, beta, dB, dA)
        blas.geam(alpha, dB, beta, dA, dA)
        blas.geam(alpha, dT, beta, dA[:, :], dA, trans_a="T")
        blas.geam(alpha, dA, beta, dA, dA)
    expected = 2 * b + 3 * (2 * b + 3 * (2 * a + 3 * b))
    np.testing.assert_array_equal(A, 5 * expected)
    A[...] = np.nan
    with offload_args(A, In(B), device=device) as (dA, dB):
        blas.geam(0, dA, 1, dB, dA)
    np.testing.assert_array_equal(A, b)


@pytest.mark.later("host")
@pytest.mark.parametrize("step", [1, -1, 2, -2])
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_diagonal_multiplies_a_matrix_in_its_own_memory(
    device: str, dtype: str, order: Any, side: str, step: int
) -> None:
    rng = np.random.default_rng(6)
    A = np.array(rng.integers(-3, 4, (5, 6)), dtype, order=order)[:3, 1:5]
    x = rng.integers(1, 4, abs(step) * A.shape["LR".index(side)]).astype(dtype)[::step]
    a = A.copy()
    with offload_args(A, In(x.base), device=device) as (dA, dx):
        blas.dgmm(dA, dx[::step], dA[:, :], side=side)
    np.testing.assert_array_equal(A, x[:, None] * a if side == "L" else a * x)


def test_cublas_and_rocblas_sum_and_scale_in_place_and_by_one_number(device: str) -> None:
    library, op = Vendor(device).module, Vendor(device).op
    if not hasattr(library, "dgeam"):  # CBLAS lacks geam and dgmm, which blas makes from other functions
        return
    A, B, x = np.array(numbers(3, 4), order="F"), np.array(numbers(4, 3), order="F"), np.array([2.0, 9.0])
    a, b = A.copy(), B.copy()
    with offload_args(A, B, In(x), device=device) as (dA, dB, dx):
        library.dgeam(op["N"], op["T"], 3, 4, 2.0, dA, 3, 1.0, dB, 4, dA, 3)
        library.dgeam(op["T"], op["N"], 3, 4, 1.0, dB, 4, 1.0, dA, 3, dA, 3)
        library.ddgmm(Vendor(device).side["L"], 3, 4, dA, 3, dx, 0, dA, 3)
        with pytest.raises(AliasError, match=r"geam: C is written and overlaps B"):
            library.dgeam(op["N"], op["T"], 3, 3, 2.0, dA, 3, 1.0, dB, 4, dB, 4)
    np.testing.assert_array_equal(A, 2 * (2 * a + 2 * b.T))
    np.testing.assert_array_equal(B, b)


def test_a_matrix_whose_factor_is_zero_is_not_read(device: str) -> None:
    nan, A, C = np.full((3, 4), np.nan), numbers(3, 4), np.full((3, 4), np.nan)
    with offload_args(nan, A, Out(C), device=device) as (d_nan, dA, dC):
        blas.geam(0, d_nan, 2, dA, dC)
        blas.geam(0.5, dC, 0, d_nan, dA)
    np.testing.assert_array_equal(C, 2 * numbers(3, 4))
    np.testing.assert_array_equal(A, numbers(3, 4))


# -- repeated calls of the CPU's libraries -----------------------------------------------------------------------------
def test_a_repeated_call_moves_back_through_an_array_with_a_negative_stride() -> None:
    x, y = numbers(4, 3), np.zeros((4, 3))
    with offload_args(In(x), Out(y), device="sim:0") as (dx, dy):
        repeat(cblas.dcopy, 4, (-3, 3), "", 3, dx, 1, dy, 1)
    np.testing.assert_array_equal(y, x[::-1])


def test_vectors_side_by_side_are_the_rows_of_a_matrix() -> None:
    x, y = numbers(4, 6), np.zeros((4, 3))
    with offload_args(In(x[:, 1:4]), Out(y), device="sim:0") as (dx, dy):
        repeat(cblas.dcopy, 3, (1, 1), "", 4, dx, 6, dy, 3)
    np.testing.assert_array_equal(y, x[:, 1:4])


def test_what_can_not_be_repeated_is_refused() -> None:
    with offload_args(numbers(4), Scratch(4), device="host") as (dx, dy):
        with pytest.raises(ArgumentError, match=r"cblas.ddot can't be repeated"):
            repeat(cblas.ddot, 2, (1, 1), "", 1, dx, 1, dy, 1)
        with pytest.raises(ArgumentError, match="times needs to be at least 0, got -1"):
            repeat(cblas.dcopy, -1, (1, 1), "", 1, dx, 1, dy, 1)
        for arguments in [
            (len, 1, (1,), "", dx),
            (cblas.dcopy, 1, (1,), "", 1, dx, 1, dy, 1),
            (cblas.dcopy, 1, (1, 1), ""),
        ]:
            with pytest.raises(TypeError, match="repeat: "):
                repeat(*arguments)
        with pytest.raises(AliasError, match="B is written, and each of its 2 parts takes 2 elements"):
            repeat(cblas.dcopy, 2, (1, 1), "AB", 2, dx, 1, dy, 1)
    with pytest.raises(StalePointerError):
        repeat(cblas.dcopy, 2, (1, 1), "", 1, dx, 1, dy, 1)


# -- one wrong pointer among many --------------------------------------------------------------------------------------
MANY, PLACE = 1000, 617
WRONG_ENTRIES = {
    "stale": (StalePointerError, "is a pointer whose region has ended"),
    "elsewhere": (WrongDeviceError, "is on sim:1"),
    "short": (ArgumentError, "needs the dtype, shape, order and leading dimension"),
    "none": (HostPointerError, "needs a DevicePtr, got None"),
    "aliased": (AliasError, "is written and overlaps"),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("side", "LR")
def test_trsm_of_a_stack_is_trsm_of_each_matrix(device: str, dtype: str, trans: str, side: str) -> None:
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((3, 4, 4)).astype(dtype) + 3 * np.eye(4, dtype=dtype), np.ones((3, 4, 2), dtype)
    if A.dtype.kind == "c":
        A += (1j * rng.standard_normal(A.shape)).astype(dtype)
    B *= np.arange(1, 25).reshape(B.shape)
    if side == "R":
        B = np.ascontiguousarray(B.swapaxes(1, 2))
    for of_A, of_B in ((A, B.copy()), (A[1], B.copy())):
        expected = B.copy()
        options: dict[str, Any] = {"side": side, "trans": trans, "uplo": "L"}
        with offload_args(of_A, of_B, expected, device=device) as (dA, dB, dexpected):
            blas.trsm(2.0, dA, dB, **options)
            for i in range(3):
                blas.trsm(2.0, dA[i] if len(dA.shape) == 3 else dA, dexpected[i], **options)
        assert np.allclose(of_B, expected, rtol=1e-5)
        assert not np.array_equal(of_B[2], B[2])


def test_trsm_of_a_stack_names_what_does_not_fit(device: str) -> None:
    A, B = np.ones((2, 3, 3)), np.ones((4, 3, 2))
    with offload_args(A, B, device=device) as (dA, dB):
        with pytest.raises(ArgumentError, match=r"^blas\.trsm: A has shape \(2, 3, 3\), needs \(4, 3, 3\)"):
            blas.trsm(1.0, dA, dB)
        with pytest.raises(ArgumentError, match=r"^blas\.trsm: A has shape \(3, 3\), needs \(2, 2\)"):
            blas.trsm(1.0, dA, dB[:2], side="R")
        with pytest.raises(ArgumentError, match=r"^blas\.trsm: A "):
            blas.trsm(1.0, dA, dB[0])
        with pytest.raises(ArgumentError, match='uplo must be "U" or "L"'):
            blas.trsm(1.0, dA[0], dB, uplo="X")
        blas.trsm(1.0, dA[:0], dB[:0])
    assert (B == 1).all()


@pytest.mark.promise("T48")
@pytest.mark.parametrize("wrong", WRONG_ENTRIES)
@pytest.mark.parametrize("name", ["gemm_batched", "trsm_batched"])
def test_one_wrong_pointer_among_a_thousand_is_named_by_its_place(device: str, name: str, wrong: str) -> None:
    A, B = np.asfortranarray(np.eye(2)), np.ones((MANY, 2, 2)).transpose(0, 2, 1)
    error, text = WRONG_ENTRIES[wrong]
    with offload_args(A.copy(order="F"), device=device) as (dead,):
        pass
    before = Device(device).counters
    with offload_args(np.eye(2), device="sim:1") as (elsewhere,), offload_args(A, B, device=device) as (dA, dB):
        written, read = [dB[i] for i in range(MANY)], [dA] * MANY
        entries = {"stale": dead, "elsewhere": elsewhere.T, "short": written[0][:1], "none": None}
        listed = written if wrong == "aliased" else read
        listed[PLACE] = entries.get(wrong, written[3])
        with pytest.raises(error, match=rf"[ABC]\[{PLACE}\].* {text}"):
            if name == "gemm_batched":
                blas.gemm_batched(1.0, read, [dA], 0.0, written)
            else:
                blas.trsm_batched(1.0, read, written)
    after = Device(device).counters
    assert (after.bytes_up, after.calls) == (before.bytes_up, before.calls)
    assert (B == 1).all()


def test_an_error_of_a_product_in_c_order_says_which_operand_is_which(device: str) -> None:
    A, B, C = numbers(3, 2, 2)
    with offload_args(A, device=device) as (dead,):
        pass
    with offload_args(B, C, device=device) as (dB, dC):
        for wrong in (
            lambda: blas.gemm(1.0, dead, dB, 0.0, dC),
            lambda: blas.gemm_batched(1.0, [dead], [dB], 0.0, [dC]),
        ):
            with pytest.raises(StalePointerError, match=r"gemm: B(\[0\])? is a pointer|gemm_batched: B") as raised:
                wrong()
            assert raised.value.__notes__ == ["The library's operands have other names here: its B is A."]
        with pytest.raises(StalePointerError, match=r"gemm: A is a pointer") as raised:
            blas.gemm(1.0, dead, dB.T, 0.0, dC.T)
        assert not hasattr(raised.value, "__notes__")
