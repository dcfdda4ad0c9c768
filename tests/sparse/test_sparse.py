"""`sparse` has SciPy's results for each format, dtype and layout, and refuses every index that is out of bounds."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from regions.test_graphs import FOR_ALL_THREADS, Graphs

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from helpers.sparse_matrices import (
    DTYPES,
    FORMATS,
    SHAPE,
    TRANS,
    agree,
    dense,
    is_gpu,
    lacks,
    matrix,
    op,
    set_coordinates,
    system,
    with_library,
)
from offload_args import Device, DevicePtr, In, Out, blas, offload_args, sparse, testing, update
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostAccessError,
    HostPointerError,
    LibraryError,
    StalePointerError,
    WrongDeviceError,
)
from offload_args.sparse import _library

# -- products --


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_products_of_each_format_dtype_and_operation(on: str, form: str, dtype: str) -> None:
    elements = dense(dtype)
    for index in ("int32", "int64"):
        A = matrix(elements, form, index)
        for trans in TRANS:
            columns = SHAPE[1] if trans == "N" else SHAPE[0]
            if lacks(on, form, trans):
                with pytest.raises(LibraryError, match=r"^sparse\.matmul: .* lend A\.tocsr\(\)"):
                    sparse.matmul(A, np.ones(columns, dtype), trans=trans, device=on)
                continue
            for shape in ((columns,), (columns, 3), (columns, 0)):
                x = np.arange(float(np.prod(shape))).reshape(shape).astype(dtype)
                agree(sparse.matmul(A, x, trans=trans, device=on), op(elements, trans) @ x, dtype)
                with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
                    assert dA.index_dtype == index
                    y = sparse.matmul(dA, dx, trans=trans)
                    assert isinstance(y, DevicePtr)
                    agree(y.to_host(), op(elements, trans) @ x, dtype)


@pytest.mark.parametrize("form", FORMATS)
def test_factors_and_out(on: str, form: str) -> None:
    if lacks(on, form):
        form = "csr"
    for dtype, alpha, beta in (("float32", 2, -0.5), ("float64", np.float64(-1.5), 1), ("complex128", 1j, 2 - 1j)):
        elements, x = dense(dtype), np.arange(8.0).astype(dtype)
        y = np.arange(6.0).astype(dtype)
        expected = alpha * (elements @ x) + beta * y
        with sparse.lend(matrix(elements, form), device=on) as dA, offload_args(x, y, device=on) as (dx, dy):
            assert sparse.matmul(dA, dx, out=dy, alpha=alpha, beta=beta) is dy
        agree(y, expected.astype(dtype), dtype)


def test_out_is_not_read_without_beta(on: str) -> None:
    elements, x, y = dense("float64"), np.ones(8), np.full(6, np.nan)
    A = matrix(elements)
    before = Device(on).counters.bytes_up
    with sparse.lend(A, device=on) as dA, offload_args(x, Out(y), device=on) as (dx, dy):
        sparse.matmul(dA, dx, dy)
        up = Device(on).counters.bytes_up - before
    agree(y, elements @ x, "float64")
    moved = (A.data, A.indices, A.indptr, x) if is_gpu(on) else (y,)  # SciPy reads the host's arrays
    assert up == sum(array.nbytes for array in moved)


def test_the_structure_goes_up_once_and_nothing_comes_down(on: str) -> None:
    A, x = matrix(dense("float64")), np.ones(8)
    with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
        first = dA @ dx
        before = Device(on).counters
        second = dA @ dx
        after = Device(on).counters
        assert np.array_equal(first.to_host(), second.to_host())
    assert after.bytes_up - before.bytes_up <= first.nbytes
    assert A.data.flags.writeable


def test_values_change_while_the_structure_stays(on: str) -> None:
    A, x = matrix(dense("float64")), np.ones(8)
    expected = A @ x
    with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
        blas.scal(2.0, dA.data)
        agree((dA @ dx).to_host(), 2 * expected, "float64")
        with update(A.data) as values:
            values *= 2
        agree((dA @ dx).to_host(), 4 * expected, "float64")
        dA.data.fill(0.0)
        assert not (dA @ dx).to_host().any()
        with pytest.raises(DirectionError):
            dA.arrays[1].fill(0)
        with pytest.raises(ValueError, match="read-only"):
            A.indices[0] = 1
    assert not A.data.any() and A.indices.flags.writeable


def test_a_resident_matrix_is_sent_once(on: str) -> None:
    elements, x = dense("float64", (64, 64)), np.ones(64)
    A = matrix(elements)
    for _ in range(2):
        with sparse.lend(A, device=on, resident=True) as dA, offload_args(In(x), device=on) as (dx,):
            agree((dA @ dx).to_host(), elements @ x, "float64")
    for array in (A.data, A.indices, A.indptr):
        Device(on).release(array)


def test_transposes_share_the_arrays(on: str) -> None:
    for form in ("csr", "csc"):
        elements, x = dense("complex128"), np.arange(6.0) + 1j
        with sparse.lend(matrix(elements, form), device=on) as dA, offload_args(In(x), device=on) as (dx,):
            assert dA.T.shape == (8, 6) and dA.T.data is dA.data and dA.T.T.format == form
            agree((dA.T @ dx).to_host(), elements.T @ x, "complex128")
    for form in ("coo", "bsr"):  # by rows, the transpose has its values in another order
        with sparse.lend(matrix(dense("float64"), form), device=on) as dA:
            assert dA.blocksize == ((2, 2) if form == "bsr" else (1, 1))
            with pytest.raises(ArgumentError, match=rf"""Matrix\.T: "{form}" has no transpose .* trans="T" to"""):
                assert dA.T


def test_operands_of_any_layout(on: str) -> None:
    elements = dense("float64")
    A = matrix(elements)
    x = np.arange(80.0).reshape(16, 5)
    for part in (x[::2, ::3], x[:8].copy(order="F"), x[7::-1], x[:16:2, 0]):
        agree(sparse.matmul(A, part, device=on), elements @ part, "float64")
    with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
        for pointer, part in ((dx[::2, ::3], x[::2, ::3]), (dx[:16:2, 0], x[:16:2, 0]), (dx[:5, :3].T, x[:5, :3].T)):
            trans = "T" if pointer._shape[0] == 3 else "N"
            if trans == "N":
                agree((dA @ pointer).to_host(), elements @ part, "float64")
    y = np.zeros((6, 4))
    with sparse.lend(A, device=on) as dA, offload_args(x[:8], y, device=on) as (dx, dy):
        sparse.matmul(dA, dx[:, :2], out=dy[:, ::2])
    agree(y[:, ::2], elements @ x[:8, :2], "float64")
    assert not y[:, 1::2].any()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_has_more_columns_than_a_kernel_of_cusparse(on: str, order: Any) -> None:
    A, columns = matrix(np.array([[2.0, 0.0], [1.0, -1.0]], np.float32)), 16 * 65535 + 1
    x = np.array(np.arange(2 * columns).reshape(2, columns) % 5, np.float32, order=order)
    y, z = np.empty_like(x), np.ones_like(x)
    with sparse.lend(A, device=on) as dA, offload_args(In(x), Out(y), z, device=on) as (dx, dy, dz):
        sparse.matmul(dA, dx, out=dy)
        sparse.matmul(dA, dx, out=dz, beta=3.0)
    expected = np.array([2 * x[0], x[0] - x[1]])
    assert np.array_equal(y, expected) and np.array_equal(z, expected + 3)


def test_lists_integers_and_wider_operands_are_taken(on: str) -> None:
    A = matrix(np.array([[2.0, 0.0], [1.0, 3.0]], np.float32))
    agree(sparse.matmul(A, [1, 10], device=on), np.array([2.0, 31.0]), "float64")
    agree(sparse.matmul(A, np.ones(2), device=on), np.array([2.0, 4.0]), "float64")
    agree(sparse.matmul(A, np.ones(2, np.complex64), device=on), np.array([2.0, 4.0]), "complex64")
    agree(sparse.matmul(A, np.ones(2, ">f4"), device=on), np.array([2.0, 4.0]), "float32")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (4, 6)])
def test_empty_matrices(on: str, shape: tuple[int, int], form: str) -> None:
    if form == "bsr" and 0 in shape:
        A: Any = scipy.sparse.bsr_array(shape, blocksize=(1, 1))
    else:
        A = matrix(np.zeros(shape), form)
    assert A.nnz == 0
    m, n = shape
    agree(sparse.matmul(A, np.ones(n), device=on), np.zeros(m), "float64")
    if not lacks(on, form, "T") or 0 in shape:
        agree(sparse.matmul(A, np.ones((m, 2)), trans="T", device=on), np.zeros((n, 2)), "float64")
    y = np.ones(m)
    with sparse.lend(A, device=on) as dA, offload_args(np.ones(n), y, device=on) as (dx, dy):
        sparse.matmul(dA, dx, out=dy, beta=3.0)
    assert np.array_equal(y, np.full(m, 3.0))


def test_arrays_that_are_longer_than_the_matrix(on: str) -> None:
    A = matrix(dense("float64"))
    x = np.ones(8)
    expected = A @ x
    A.data, A.indices = np.append(A.data, [np.nan, np.nan]), np.append(A.indices, np.int32([99, 98]))
    agree(sparse.matmul(A, x, device=on), expected, "float64")


@pytest.mark.filterwarnings("ignore:.*packed on its way")
def test_read_only_and_strided_arrays_are_lent(on: str) -> None:
    A, x = matrix(dense("float64")), np.ones(8)
    expected = A @ x
    for array in (A.data, A.indices, A.indptr):
        array.flags.writeable = False
    agree(sparse.matmul(A, x, device=on), expected, "float64")
    with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
        agree((dA @ dx).to_host(), expected, "float64")
        with pytest.raises(DirectionError):
            blas.scal(2.0, dA.data)
    values = np.repeat(A.data, 2)[::2]
    strided = scipy.sparse.csr_array((values, A.indices, A.indptr), shape=A.shape)
    strided.data = values
    agree(sparse.matmul(strided, x, device=on), expected, "float64")
    with sparse.lend(strided, device=on) as dA:
        blas.scal(2.0, dA.data)
    assert np.array_equal(values, 2 * A.data)


def test_matrices_of_the_old_classes(on: str) -> None:
    elements = dense("float64")
    for form in (form for form in FORMATS if not lacks(on, form)):
        A = getattr(scipy.sparse, f"{form}_matrix")(matrix(elements, form))
        agree(sparse.matmul(A, np.ones(8), device=on), elements @ np.ones(8), "float64")


# -- products of two sparse matrices, and conversions --


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_products_of_two_sparse_matrices(on: str, form: str, dtype: str) -> None:
    left, right = dense(dtype), dense(dtype, (8, 4))
    A = matrix(left, form)
    for other in FORMATS:
        B = matrix(right, other)
        if is_gpu(on) and "bsr" in (form, other):
            name = "A" if form == "bsr" else "x"
            with pytest.raises(LibraryError, match=rf"^sparse\.matmul: \w+ converts no bsr .*lend {name}\.tocsr"):
                sparse.matmul(A, B, device=on)
            continue
        C = sparse.matmul(A, B, device=on)
        assert scipy.sparse.issparse(C) and C.format == ("csc" if form == "csc" else "csr")
        assert C.has_canonical_format and C.indices.dtype == "int32"
        agree(C.toarray(), left @ right, dtype)
        with sparse.lend(A, device=on) as dA, sparse.lend(B, device=on) as dB:
            dC = dA @ dB
            assert isinstance(dC, sparse.Matrix) and dC.shape == (6, 4) and dC.nnz == C.nnz
            agree(dC.to_host().toarray(), left @ right, dtype)
            agree(sparse.matmul(dA, dB, alpha=-2).to_host().toarray(), -2 * left @ right, dtype)


@pytest.mark.parametrize("other", ["csr", "csc", "coo"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_products_of_matrices_of_scipy_take_indices_of_any_width(on: str, form: str, other: str) -> None:
    left, right = dense("float64"), dense("float64", (8, 4))
    for widths in (("int32", "int64"), ("int64", "int32"), ("int64", "int64")):
        A, B = matrix(left, form, widths[0]), matrix(right, other, widths[1])
        C = sparse.matmul(A, B, device=on)
        assert C.indices.dtype == C.indptr.dtype == "int64"
        agree(C.toarray(), left @ right, "float64")


def test_products_of_sparse_matrices_are_operands_themselves(on: str) -> None:
    elements, x = system("float64"), np.arange(8.0)
    A = matrix(elements)
    before = Device(on).counters.bytes_down
    with sparse.lend(A, device=on) as dA, offload_args(In(x), device=on) as (dx,):
        dB = dA.T @ dA @ dA
        agree((dB @ dx).to_host(), elements.T @ elements @ elements @ x, "float64")
        blas.scal(2.0, dB.data)
        agree((dB.T @ dx).to_host(), 2 * (elements.T @ elements @ elements).T @ x, "float64")
        down = Device(on).counters.bytes_down - before
        if is_gpu(on):
            assert down == 2 * x.nbytes  # no array of a matrix comes down
        upper = sparse.matmul(dA, dA.T)
        expected = np.linalg.solve(np.tril(elements @ elements.T), x)
        agree(sparse.spsolve_triangular(upper, dx).to_host(), expected, "float64")


def test_products_do_not_depend_on_the_memory_that_they_are_written_to(on: str) -> None:
    A = matrix(system("float64"))
    with sparse.lend(A, device=on) as dA:
        product = dA @ dA
        size = product.nnz
        product.data.fill(np.nan)
        del product  # the next products may have its memory
        for _ in range(3):
            product = dA @ dA
            assert product.nnz == size
            agree(product.to_host().toarray(), A.toarray() @ A.toarray(), "float64")


def test_products_of_mixed_dtypes_and_of_no_elements(on: str) -> None:
    A, B = matrix(dense("float32")), matrix(dense("complex128", (8, 3)), "csc")
    agree(sparse.matmul(A, B, device=on).toarray(), A.toarray() @ B.toarray(), "complex128")
    for m, k, n in ((0, 4, 3), (3, 0, 4), (3, 4, 0), (0, 0, 0), (3, 4, 2)):
        A, B = matrix(np.zeros((m, k))), matrix(np.zeros((k, n)))
        assert sparse.matmul(A, B, device=on).shape == (m, n)
    first, second = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    assert sparse.matmul(matrix(first), matrix(second), device=on).nnz == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_conversions(on: str, form: str, dtype: str) -> None:
    elements = dense(dtype)
    for index in ("int32", "int64"):
        with sparse.lend(matrix(elements, form, index), device=on) as dA:
            for other in ("csr", "csc", "coo"):
                if is_gpu(on) and (form == "bsr" or (index == "int64" and form != other)):
                    with pytest.raises(LibraryError, match=r"^sparse\.convert: \w+SPARSE .*; lend A"):
                        sparse.convert(dA, other)
                    continue
                dB = sparse.convert(dA, other)
                assert (dB.format, dB.shape, dB.index_dtype) == (other, dA.shape, index)
                B = dB.to_host()
                assert B.count_nonzero() == count(elements)
                agree(B.toarray(), elements, dtype)
                assert is_sorted(B)
            if is_gpu(on) and form == "bsr":
                with pytest.raises(LibraryError, match=r"^sparse\.convert: \w+SPARSE converts no bsr"):
                    sparse.convert(dA, "dense")
            else:
                agree(sparse.convert(dA, "dense").to_host(), elements, dtype)


def is_sorted(A: Any) -> bool:
    """Return whether A can be lent, so that its indices rise."""
    with sparse.lend(A, device="host"):
        return True


def count(elements: NDArray[Any]) -> int:
    return int(np.count_nonzero(elements))


def test_dense_matrices_of_any_layout_become_sparse(on: str) -> None:
    for dtype in DTYPES:
        x = np.zeros((9, 12), dtype)
        x[:6, :8] = dense(dtype)
        x[0, 0] = np.nan
        with offload_args(In(x), device=on) as (dx,):
            for pointer, part in ((dx, x), (dx.T, x.T), (dx[::2, ::3], x[::2, ::3]), (dx[:5, 2:7], x[:5, 2:7])):
                for form in ("csr", "csc", "coo"):
                    A = sparse.convert(pointer, form).to_host()
                    assert A.format == form and A.nnz == count(part) and is_sorted(A)
                    assert np.array_equal(A.toarray(), part, equal_nan=True)
    for shape in ((0, 3), (3, 0), (2, 2)):
        with offload_args(np.zeros(shape), device=on) as (dx,):
            for form in ("csr", "csc", "coo"):
                dA = sparse.convert(dx, form)
                assert dA.nnz == 0 and sparse.convert(dA, "dense")._shape == shape


def test_conversions_share_the_arrays_that_stay_the_same(on: str) -> None:
    A = matrix(dense("float64"))
    with sparse.lend(A, device=on) as dA:
        assert sparse.convert(dA, "csr").data is dA.data
        if is_gpu(on):
            assert sparse.convert(dA, "coo").data is dA.data


def test_sparse_operands_that_do_not_fit_are_named(on: str) -> None:
    A, B = matrix(dense("float64")), matrix(dense("float64", (8, 4)))
    wide, single = matrix(dense("float64", (8, 4)), index="int64"), matrix(dense("float32", (8, 4)))
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: x has shape \(6, 8\), needs \(8, any\) for A of shape"):
        sparse.matmul(A, A, device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: trans needs a dense x; the product of two sparse"):
        sparse.matmul(A, B, trans="T", device=on)
    with pytest.raises(DTypeError, match=r"^sparse\.matmul: alpha needs a real number for float64"):
        sparse.matmul(A, B, alpha=1j, device=on)
    B.indices[0] = 9
    with pytest.raises(ExtentError, match=r"^sparse\.matmul: x\.indices\[0\] is 9, needs 0 to 3"):
        sparse.matmul(A, B, device=on)
    B.indices[0] = 0
    with sparse.lend(A, device=on) as dA, offload_args(np.ones(6), device=on) as (dy,):
        with pytest.raises(HostPointerError, match=r"^sparse\.matmul: x needs a sparse\.Matrix as A is one, got csr_"):
            sparse.matmul(dA, B)
        with pytest.raises(HostPointerError, match=r"^sparse\.matmul: A needs a sparse\.Matrix as x is one, got csr_"):
            sparse.matmul(B, dA)
        with pytest.raises(ArgumentError, match=r"^sparse\.matmul: out needs a dense x"):
            sparse.matmul(dA, dA.T, out=dy)
        with sparse.lend(wide, device=on) as dB, pytest.raises(DTypeError, match=r"x needs indices of int32 as A has"):
            assert dA @ dB
        with (
            sparse.lend(single, device=on) as dB,
            pytest.raises(DTypeError, match=r"^sparse\.matmul: x needs float64"),
        ):
            assert dA @ dB
        with pytest.raises(HostPointerError, match=r"^sparse\.convert: A needs a sparse\.Matrix or a pointer, got"):
            sparse.convert(A, "csc")
        with pytest.raises(ArgumentError, match=r'^sparse\.convert: format must be "csr" or .*, got \'bsr\''):
            sparse.convert(dA, "bsr")
        with pytest.raises(ArgumentError, match=r"^sparse\.convert: A has shape \(6,\), and needs two dimensions"):
            sparse.convert(dy, "csr")
        with pytest.raises(ArgumentError, match=r"^sparse\.convert: A is dense already; pass format='csr'"):
            sparse.convert(dy.reshape(2, 3), "dense")
    with pytest.raises(StalePointerError, match=r"^sparse\.matmul: A belongs to a region that has ended"):
        assert dA @ dA.T
    with pytest.raises(StalePointerError, match=r"^sparse\.convert: A belongs to a region that has ended"):
        sparse.convert(dA, "csc")


def test_a_captured_region_makes_no_sparse_matrices(on: str) -> None:
    region = offload_args(np.ones((2, 2)), device=on)
    with sparse.lend(matrix(system("float64")), device=on) as dA, region as (dx,):
        with pytest.raises(CaptureError, match=r"^sparse\.convert: the region is being captured"):
            with region.capture():
                sparse.convert(dx, "csr")
        assert (dA @ dA).nnz


# -- indices --


def broken(form: str = "csr", **arrays: Any) -> Any:
    """Return a 3 x 4 matrix with some of its arrays replaced; SciPy does not check the new arrays."""
    elements = np.array([[1.0, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 4]])
    A = matrix(elements, form)
    for name, values in arrays.items():
        setattr(A, name, np.array(values, np.float64 if name == "data" else np.int32))
    return A


SORT = r"; call A\.sum_duplicates\(\)"
WRONG = [
    ("csr", {"indices": [0, 4, 1, 3]}, ExtentError, r"A\.indices\[1\] is 4, needs 0 to 3"),
    ("csr", {"indices": [-1, 2, 1, 3]}, ExtentError, r"A\.indices\[0\] is -1, needs 0 to 3"),
    ("csr", {"indices": [2, 0, 1, 3]}, ArgumentError, rf"A\.indices\[1\] is 0 in row 0, less than 2 before it{SORT}"),
    (
        "csr",
        {"indices": [0, 2, 1, 1]},
        ArgumentError,
        rf"A\.indices\[3\] is 1 in row 2, the same as 1 before it{SORT}",
    ),
    ("csr", {"indptr": [0, 3, 2, 4]}, ArgumentError, r"A\.indptr\[2\] is 2, less than 3 before it"),
    ("csr", {"indptr": [1, 2, 2, 4]}, ArgumentError, r"A\.indptr\[0\] needs to be 0, is 1"),
    ("csr", {"indptr": [0, 2, 2, 5]}, ExtentError, r"A\.indptr\[-1\] is 5, A\.indices has 4 elements and A\.data 4"),
    ("csr", {"indptr": [0, 2, 2, -4]}, ArgumentError, r"A\.indptr\[3\] is -4, less than 2 before it"),
    ("csr", {"indptr": [0, 2, 4]}, ArgumentError, r"A\.indptr needs 4 elements for A of shape \(3, 4\), has 3"),
    ("csc", {"indices": [0, 2, 3, 2]}, ExtentError, r"A\.indices\[2\] is 3, needs 0 to 2"),
    ("csc", {"indptr": [0, 2, 2, 3, 4], "indices": [2, 0, 0, 2]}, ArgumentError, r"A\.indices\[1\] is 0 in column 0"),
    ("coo", {"row": [0, 0, 2, 3]}, ExtentError, r"A\.row\[3\] is 3, needs 0 to 2"),
    ("coo", {"col": [0, -2, 1, 3]}, ExtentError, r"A\.col\[1\] is -2, needs 0 to 3"),
    ("coo", {"row": [0, 2, 0, 2]}, ArgumentError, rf"A\.row\[2\] is 0, less than 2 before it{SORT}"),
    ("coo", {"col": [0, 0, 1, 3]}, ArgumentError, rf"A\.col\[1\] is 0 in row 0, the same as 0 before it{SORT}"),
    ("coo", {"data": [1.0, 2.0]}, ArgumentError, r"the arrays of A need one length, have A\.data 2, A\.row 4"),
    ("bsr", {"indices": [0, 4, 1, 3]}, ExtentError, r"A\.indices\[1\] is 4, needs 0 to 1"),
]


@pytest.mark.parametrize(("form", "arrays", "error", "words"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_indices_are_named_before_anything_moves(
    on: str, form: str, arrays: dict[str, Any], error: type[Exception], words: str
) -> None:
    A = broken(form, **arrays)
    before = Device(on).counters
    with pytest.raises(error, match=rf"^sparse\.lend: {words}"):
        with sparse.lend(A, device=on):
            pass
    for operand in (np.ones(4), np.ones(4, complex), matrix(np.eye(4)), matrix(np.eye(4, dtype=complex))):
        with pytest.raises(error, match=rf"^sparse\.matmul: {words}"):
            sparse.matmul(A, operand, device=on)
    after = Device(on).counters
    assert (after.bytes_up, after.allocations) == (before.bytes_up, before.allocations)


def test_without_the_check_indices_are_taken_as_they_are(on: str) -> None:
    A = broken(indices=[2, 0, 1, 3])
    agree(sparse.matmul(A, np.array([1.0, 2, 3, 4]), check=False, device=on), np.array([5.0, 0, 22]), "float64")
    with sparse.lend(A, check=False, device=on) as dA, offload_args(np.ones(4), device=on) as (dx,):
        agree((dA @ dx).to_host(), np.array([3.0, 0, 7]), "float64")


def test_random_indices_are_refused_if_and_only_if_they_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from offload_args.sparse import _checks

    random = np.random.default_rng(11)
    outcomes = set()
    for trial in range(400):
        monkeypatch.setattr(_checks, "_CHUNK", int(random.integers(1, 8)))
        form = FORMATS[trial % 4]
        elements = np.where(random.random((4, 6)) < 0.5, 1.0, 0.0)
        A = matrix(elements, form, ("int32", "int64")[trial % 8 // 4])
        names = ("row", "col") if form == "coo" else ("indices", "indptr")
        arrays = {name: getattr(A, name).copy() for name in names}
        places = arrays[names[trial // 8 % 2]]
        if random.random() < 0.7 and len(places):
            places[random.integers(len(places))] += random.integers(-2, 3)
        if form == "coo":
            set_coordinates(A, arrays["row"], arrays["col"])
        else:
            A.indices, A.indptr = arrays.values()
        right = is_right(A, arrays)
        outcomes.add(right)
        try:
            with sparse.lend(A, device="host"):
                assert right, (form, arrays)
        except (ArgumentError, ExtentError):
            assert not right, (form, arrays)
    assert outcomes == {True, False}


def is_right(A: Any, arrays: dict[str, NDArray[Any]]) -> bool:
    """Return whether indices are in bounds and increase in each line, computed with a loop."""
    m, n = A.shape
    if A.format == "coo":
        pairs = list(zip(arrays["row"].tolist(), arrays["col"].tolist(), strict=True))
        in_bounds = all(0 <= i < m and 0 <= j < n for i, j in pairs)
        return in_bounds and all(p < q for p, q in pairwise(pairs))
    rows, columns = (2, 2) if A.format == "bsr" else (1, 1)
    lines, places = (n, m) if A.format == "csc" else (m // rows, n // columns)
    starts, indices = arrays["indptr"].tolist(), arrays["indices"].tolist()
    if starts[0] != 0 or starts[-1] > len(indices) or any(a > b for a, b in pairwise(starts)):
        return False
    for line in range(lines):
        own = indices[starts[line] : starts[line + 1]]
        if any(not 0 <= i < places for i in own) or any(a >= b for a, b in pairwise(own)):
            return False
    return True


# -- refusals --


def test_other_objects_are_named(on: str) -> None:
    A, x = matrix(dense("float64")), np.ones(8)
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.lend: A needs a sparse matrix of SciPy, got ndarray; pass"):
        sparse.lend(A.toarray(), device=on).__enter__()
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.matmul: A has the format 'lil', .*; pass A\.tocsr\(\)"):
        sparse.matmul(A.tolil(), x, device=on)
    with pytest.raises(DTypeError, match=r"^sparse\.matmul: A\.data needs float32, .*, got int64; pass A\.astype"):
        sparse.matmul(matrix(np.eye(8, dtype=np.int64)), x, device=on)
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.spsolve_triangular: b is a sparse matrix, .*; pass b"):
        sparse.spsolve_triangular(A, A, device=on)
    with pytest.raises(DTypeError, match=r"^sparse\.matmul: x needs float32, .*, got float16; convert it first"):
        sparse.matmul(A, x.astype(np.float16), device=on)
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.matmul: x is a masked array"):
        sparse.matmul(A, np.ma.masked_array(x), device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: x has shape \(7,\), needs \(8,\) or \(8, any\) for op"):
        sparse.matmul(A, x[:7], device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: x has shape \(\), needs \(6,\) .* shape \(8, 6\)"):
        sparse.matmul(A, 1.0, trans="T", device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.spsolve: A has shape \(6, 8\), and needs as many rows as col"):
        sparse.spsolve(A, x, device=on)
    with pytest.raises(ArgumentError, match=r'^sparse\.matmul: trans must be "N" or "T" or "C", got \'t\'; write tran'):
        sparse.matmul(A, x, trans="t", device=on)
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.matmul: alpha needs a number, got None"):
        sparse.matmul(A, x, alpha=None, device=on)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"^sparse\.matmul: alpha needs a real number for float64, got 1j"):
        sparse.matmul(A, x, alpha=1j, device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: beta needs out, the array that it multiplies"):
        sparse.matmul(A, x, beta=1.0, device=on)
    with pytest.raises(ArgumentError, match=r"A needs two dimensions, has shape \(8,\)"):
        sparse.matmul(scipy.sparse.coo_array(x), x, device=on)


def test_other_values_of_options_are_named(on: str) -> None:
    A, x, y = matrix(system("float64")), np.ones(8), np.zeros(8)
    for trans in ("", "NT", "TC", "NTC"):
        for function in (sparse.matmul, sparse.spsolve, sparse.spsolve_triangular):
            words = rf'^sparse\.{function.__name__}: trans must be "N" or "T" or "C", got \'{trans}\'$'
            with pytest.raises(ArgumentError, match=words):
                function(A, x, trans=trans, device=on)
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.spsolve_triangular: lower needs True or False, got 'U'"):
        sparse.spsolve_triangular(A, x, "U", device=on)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.spsolve_triangular: unit_diagonal needs True or False"):
        sparse.spsolve_triangular(A, x, unit_diagonal=1, device=on)  # type: ignore[arg-type]
    for function in (sparse.matmul, sparse.spsolve, sparse.spsolve_triangular):
        with pytest.raises(ArgumentTypeError, match=rf"^sparse\.{function.__name__}: check needs True or False"):
            function(A, x, check="no", device=on)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^sparse\.lend: check needs True or False, got None"):
        sparse.lend(A, check=None, device=on)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: alpha needs a number that float64 can have, got an int"):
        sparse.matmul(A, x, alpha=10**400, device=on)
    with pytest.raises(ArgumentError, match=r"^sparse\.matmul: x needs an array, or lists that NumPy can convert"):
        sparse.matmul(A, [[1.0], [1.0, 2.0]], device=on)
    with pytest.raises(HostPointerError, match=r"^sparse\.matmul: out needs a DevicePtr, and A a sparse\.Matrix"):
        sparse.matmul(A, x, out=y, device=on)  # type: ignore[arg-type]


def test_pointers_that_do_not_fit_are_named(on: str) -> None:
    A = matrix(dense("float64"))
    x, y, single = np.ones(8), np.ones(6), np.ones(8, np.float32)
    other = "host" if on != "host" else open_or_skip("sim:0")
    with sparse.lend(A, device=on) as dA, offload_args(x, y, single, device=on) as (dx, dy, ds):
        with pytest.raises(HostPointerError, match=r"^sparse\.matmul: x needs a DevicePtr as A is one, got an ndarray"):
            sparse.matmul(dA, x)
        with pytest.raises(HostPointerError, match=r"^sparse\.matmul: A needs a sparse\.Matrix as x is a pointer"):
            sparse.matmul(A, dx)
        with pytest.raises(HostPointerError, match=r"^sparse\.matmul: A needs a sparse\.Matrix as out is a pointer"):
            sparse.matmul(A, x, out=dy)
        with pytest.raises(DTypeError, match=r"^sparse\.matmul: x needs float64 as A has, got float32"):
            assert dA @ ds
        with pytest.raises(ArgumentError, match=r"^sparse\.matmul: out has shape \(8,\), needs \(6,\)"):
            sparse.matmul(dA, dx, out=dx)
        with pytest.raises(WrongDeviceError, match=rf"^sparse\.matmul: A is on {on}, got device='{other}'"):
            sparse.matmul(dA, dx, device=other)
        for product in (lambda: dA * dx, lambda: dx * dA, lambda: 2.0 * dA, lambda: dA * x):
            with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: __r?mul__ is not .*; A @ x is the product"):
                product()
        for product in (lambda: x @ dA, lambda: dx @ dA):
            with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: __rmatmul__ is not .*; write A\.T @ x\.T, wh"):
                product()
        for result in (lambda: dA + dA, lambda: dx - dA, lambda: dA / 2.0, lambda: -dA):
            with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: .*; to_host\(\) makes an array of SciPy"):
                result()
        with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: its elements are on a device"):
            np.asarray(dA)
    with pytest.raises(StalePointerError, match=r"^sparse\.matmul: A belongs to a region that has ended"):
        assert dA @ dx
    with offload_args(x, device=on) as (dx,), pytest.raises(StalePointerError, match=r"A belongs to a region that has"):
        assert dA @ dx
    assert "of a block that has ended" in repr(dA) and not dA.live


def test_the_remedy_for_a_dense_left_operand_gives_the_transpose(on: str) -> None:
    elements = dense("float64")
    x, X = np.arange(1.0, 7.0), np.arange(18.0).reshape(3, 6)
    with sparse.lend(matrix(elements), device=on) as dA, offload_args(x, X, device=on) as (dx, dX):
        for left, host in ((dx, x), (dX, X)):
            with pytest.raises(HostAccessError, match=r"write A\.T @ x\.T, which is the transpose of x @ A"):
                assert left @ dA
            agree((dA.T @ left.T).to_host().T, host @ elements, "float64")


@pytest.mark.parametrize(
    ("result", "name", "remedy"),
    [
        (lambda dA, dx: abs(dA), "abs", r"to_host\(\) makes an array of SciPy, which has it"),
        (lambda dA, dx: dA**2, "pow", r"to_host\(\) makes an array of SciPy, which has it"),
        (lambda dA, dx: pow(dA, 2, 3), "pow", r"to_host\(\) makes an array of SciPy, which has it"),
        (lambda dA, dx: dx**dA, "rpow", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: 2 / dA, "rtruediv", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dx / dA, "rtruediv", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dA // 2, "floordiv", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dx // dA, "rfloordiv", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dA % 2, "mod", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dx % dA, "rmod", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: divmod(dA, 2), "divmod", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: divmod(dx, dA), "rdivmod", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: +dA, "pos", r"to_host\(\)\.toarray\(\) makes a NumPy array, which has it"),
        (lambda dA, dx: dx < dA, "gt", r"compare to_host\(\)"),
        (lambda dA, dx: dA <= dx, "le", r"compare to_host\(\)"),
        (lambda dA, dx: dA == dA.T, "eq", r"compare to_host\(\), or use `is`"),
        (lambda dA, dx: dA[0], "getitem", r"to_host\(\) makes an array of SciPy; its tocsr\(\)\[i, j\]"),
        (lambda dA, dx: list(dA), "iter", r"to_host\(\) makes an array of SciPy"),
        (lambda dA, dx: len(dA), "len", r"to_host\(\) makes an array of SciPy"),
        (lambda dA, dx: bool(dA), "bool", r"to_host\(\) makes an array of SciPy"),
        (lambda dA, dx: float(dA), "float", r"to_host\(\) makes an array of SciPy"),
        (lambda dA, dx: 3.0 in dA, "contains", r"to_host\(\) makes an array of SciPy"),
        (lambda dA, dx: dA.__setitem__((0, 0), 1.0), "setitem", r"change A\.data by calls or within"),
    ],
)
def test_operators_of_a_lent_matrix_name_an_array_that_has_them(result: Any, name: str, remedy: str, on: str) -> None:
    x = np.ones(8)
    with sparse.lend(matrix(dense("float64")), device=on) as dA, offload_args(x, device=on) as (dx,):
        with pytest.raises(HostAccessError, match=rf"^sparse\.Matrix: __{name}__ is not an operator .*; {remedy}"):
            result(dA, dx)


def test_a_function_of_numpy_on_a_lent_matrix_names_to_host(on: str) -> None:
    with sparse.lend(matrix(dense("float64")), device=on) as dA:
        assert dA in {dA}  # a set compares by identity
        with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: np\.trace runs on the host; to_host\(\) makes"):
            np.trace(dA)


def test_results_that_overlap_an_operand_are_refused(on: str) -> None:
    elements = system("float64")
    A, z = matrix(elements), np.ones(16)
    with sparse.lend(A, device=on) as dA, offload_args(z, device=on) as (dz,):
        with pytest.raises(AliasError, match=r"^sparse\.matmul: out is written and overlaps x; give it mem"):
            sparse.matmul(dA, dz[:8], out=dz[7:15])
        with pytest.raises(AliasError, match=r"^sparse\.spsolve_triangular: out is written and overlaps b;"):
            sparse.spsolve_triangular(dA, dz[:8], out=dz[:8])
        with pytest.raises(AliasError, match=r"^sparse\.matmul: out is written and overlaps A\.data;"):
            sparse.matmul(dA, dz[:8], out=dA.data[:8])
        sparse.matmul(dA, dz[:8], out=dz[8:])
    agree(z, np.concatenate([np.ones(8), elements @ np.ones(8)]), "float64")


def test_results_that_overlap_an_operand_that_was_lent_separately_are_refused(on: str) -> None:
    elements = system("float64")
    A = matrix(elements)
    z = np.concatenate([A.data, np.ones(16)])
    n = A.data.size
    A.data = z[:n]
    x = z[n : n + 8]
    with offload_args(z, device=on) as (dz,), sparse.lend(A, device=on) as dA, offload_args(x, device=on) as (dx,):
        with pytest.raises(AliasError, match=r"^sparse\.matmul: out is written and overlaps x; give it mem"):
            sparse.matmul(dA, dx, out=dz[n + 7 : n + 15])
        with pytest.raises(AliasError, match=r"^sparse\.spsolve: out is written and overlaps b;"):
            sparse.spsolve(dA, dx, out=dz[n : n + 8])
        with pytest.raises(AliasError, match=r"^sparse\.matmul: out is written and overlaps A\.data;"):
            sparse.matmul(dA, dx, out=dz[:8])
        sparse.matmul(dA, dx, out=dz[n + 8 :])
    agree(z, np.concatenate([A.data, np.ones(8), elements @ np.ones(8)]), "float64")


@pytest.mark.parametrize("order", ["C", "F"])
def test_right_sides_are_not_overwritten_in_any_order(factors: str, order: Any) -> None:
    b = np.ones((8, 6), order=order)
    with sparse.lend(matrix(system("float64")), device=factors) as dA, offload_args(b, device=factors) as (db,):
        for function in (sparse.spsolve, sparse.spsolve_triangular):
            for source, result in ((db, db), (db[:, :3], db[:, 2:5])):
                with pytest.raises(AliasError, match=rf"^sparse\.{function.__name__}: out is written and overlaps b;"):
                    function(dA, source, out=result)
        sparse.spsolve_triangular(dA, db[:, ::2], out=db[:, 1::2])  # no element is in both
    assert (b[:, ::2] == 1).all()
    assert np.allclose(b[:, 1::2], np.linalg.solve(np.tril(system("float64")), b[:, ::2]), rtol=0, atol=1e-13)


def test_directions_are_kept(on: str) -> None:
    A, x, y = matrix(dense("float64")), np.ones(8), np.ones(6)
    with sparse.lend(A, device=on) as dA, offload_args(Out(x), In(y), device=on) as (dx, dy):
        with pytest.raises(DirectionError, match=r"^sparse\.matmul: x was lent as Out and would be read before it is"):
            assert dA @ dx
        dx.fill(1.0)
        with pytest.raises(DirectionError, match=r"^sparse\.matmul: out"):
            sparse.matmul(dA, dx, out=dy)


def test_errors_of_the_region_name_the_arrays(on: str) -> None:
    A = matrix(dense("float64"))
    with offload_args(In(A.data), device=on):
        with sparse.lend(A, device=on) as dA:  # an inner region can't write values that dA only reads
            with pytest.raises(DirectionError):
                blas.scal(2.0, dA.data)
    with offload_args(A.indices[1:], device=on):
        with pytest.raises(Exception, match=r"^sparse\.lend: A\.indices "):
            sparse.lend(A, device=on).__enter__()


def test_a_captured_region_has_no_sparse_matrices_on_the_cpu(cpu: str) -> None:
    A = matrix(dense("float64"))
    region = offload_args(np.ones(8), np.ones(6), device=cpu)
    with sparse.lend(A, device=cpu) as dA, region as (dx, dy):
        with pytest.raises(CaptureError, match=r"^sparse\.matmul: "):
            with region.capture():
                sparse.matmul(dA, dx, out=dy)


def test_a_device_that_is_full_is_named() -> None:
    testing.sim_device(index=1, capacity=1024)
    with pytest.raises(DeviceMemoryError):
        sparse.matmul(matrix(dense("float64", (64, 64))), np.ones(64), device="sim:1")
    testing.sim_device(index=1)


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    A = matrix(dense("float64"))
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    monkeypatch.setattr(_library, "adapter_of", lambda function, adapters, device: adapters[0]())
    with pytest.raises(LibraryError, match=r"SciPy, which is not installed: pip install scipy"):
        sparse.matmul(A, np.ones(8))


@pytest.mark.parametrize("gpu", here("cuda:0") or ["cuda:0"])
def test_a_captured_product_is_replayed_with_new_values(gpu: str) -> None:
    open_or_skip(gpu)
    library_or_skip("cusparse", gpu)
    A, x, y = matrix(dense("float64")), np.ones(8), np.empty(6)
    region = offload_args(x, y, device=gpu)
    with sparse.lend(A, device=gpu) as dA, region as (dx, dy):
        sparse.matmul(dA, dx, out=dy)  # now the matrix has a workspace
        with region.capture(x=dx) as graph:
            sparse.matmul(dA, dx, out=dy)
        for factor in (1.0, 2.0):
            dA.data.assign(factor * A.data)
            graph.replay(x=np.arange(8.0))
            agree(dy.to_host(), factor * (A @ np.arange(8.0)), "float64")


@pytest.mark.parametrize("gpu", here(HIP) or [HIP])
def test_a_capture_refuses_products_of_hipsparse(gpu: str) -> None:
    with_library(gpu)
    A, x, y = matrix(dense("float64")), np.ones(8), np.zeros(6)
    region = offload_args(x, y, device=gpu)
    with sparse.lend(A, device=gpu) as dA, region as (dx, dy):
        sparse.matmul(dA, dx, out=dy)
        with pytest.raises(CaptureError, match=r"^sparse\.matmul: .*hipSPARSE may wait and allocate"):
            with region.capture():
                sparse.matmul(dA, dx, out=dy, alpha=2.0)
    agree(y, A @ x, "float64")


@pytest.mark.parametrize("gpu", here(HIP) or [HIP])
def test_a_program_may_capture_another_stream_while_hipsparse_works(gpu: str) -> None:
    with_library(gpu)
    elements, b, x, y = system("float64"), np.arange(24.0).reshape(8, 3), np.zeros((8, 3)), np.zeros((8, 3))
    graphs = Graphs(gpu)
    with sparse.lend(matrix(elements), device=gpu) as dA, offload_args(b, x, y, device=gpu) as (db, dx, dy):
        with graphs.captured(FOR_ALL_THREADS):  # hipSPARSE allocates and frees, and the capture stays valid
            sparse.matmul(dA, db, out=dy)
            sparse.spsolve_triangular(dA, db, out=dx)
    graphs.destroy()
    agree(y, elements @ b, "float64")
    agree(x, np.linalg.solve(np.tril(elements), b), "float64")


@pytest.mark.parametrize("gpu", here(HIP) or [HIP])
def test_amd_multiplies_no_bsr_and_the_error_says_what_to_lend(gpu: str) -> None:
    with_library(gpu)
    A = matrix(dense("float64"), "bsr")
    with pytest.raises(LibraryError, match=r"^sparse\.matmul: hipSPARSE multiplies no bsr matrices; lend A\.tocsr\(\)"):
        sparse.matmul(A, np.ones(8), device=gpu)
    agree(sparse.matmul(A.tocsr(), np.ones(8), device=gpu), A @ np.ones(8), "float64")


@pytest.mark.parametrize("gpu", here(HIP) or [HIP])
def test_amd_factors_no_matrices_and_the_error_says_what_to_call(gpu: str) -> None:
    with_library(gpu)
    A = matrix(system("float64"))
    with pytest.raises(LibraryError, match=r"^sparse\.spsolve: hipSPARSE factors no matrices; call sparse\.spsolve_"):
        sparse.spsolve(A, np.ones(8), device=gpu)
    agree(sparse.spsolve(A, np.ones(8)), np.linalg.solve(A.toarray(), np.ones(8)), "float64")  # on the host


def test_arrays_are_computed_on_the_default_device() -> None:
    A, x = matrix(dense("float64")), np.ones(8)
    device = Device.default().name
    with_library(device)
    before = Device(device).counters.allocations
    agree(sparse.matmul(A, x), A @ x, "float64")
    assert Device(device).counters.allocations > before


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[::-2]], ids=str)
def test_a_view_of_a_lent_array_has_the_elements_of_the_device(on: str, view: slice) -> None:
    A, x = scipy.sparse.csr_array([[2.0, 1.0], [0.0, 3.0]]), np.arange(4.0)
    with offload_args(x, device=on) as (dx,):
        blas.scal(10.0, dx)
        result = sparse.matmul(A, x[view], device=on)
    np.testing.assert_array_equal(result, A @ x[view])
    assert x[3] == 30


def test_values_that_are_converted_are_the_values_of_the_device(on: str) -> None:
    A, x = scipy.sparse.csr_array(np.array([[2, 1], [0, 3]], np.float32)), np.ones(2)
    with offload_args(A.data, device=on) as (data,):
        blas.scal(10.0, data)
        result = sparse.matmul(A, x, device=on)
    np.testing.assert_array_equal(result, [30, 30])
