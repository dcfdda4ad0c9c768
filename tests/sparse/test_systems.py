"""Sparse systems have SciPy's solutions for each format, dtype and layout, and singular ones are named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from helpers.processes import printed
from helpers.sparse_matrices import (
    DTYPES,
    FORMATS,
    TRANS,
    agree,
    is_gpu,
    lacks,
    matrix,
    op,
    system,
    with_library,
)
from offload_args import Device, In, Out, blas, libraries, offload_args, sparse
from offload_args.errors import (
    CaptureError,
    InvalidDataError,
    LibraryError,
)
from offload_args.sparse import _cudss, _library


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_solutions_of_each_format_dtype_and_operation(factors: str, form: str, dtype: str) -> None:
    elements = system(dtype)
    for index in ("int32", "int64"):
        A = matrix(elements, form, index)
        for trans in TRANS:
            for shape in ((8,), (8, 2), (8, 0)):
                b = (1 + np.arange(float(np.prod(shape)))).reshape(shape).astype(dtype)
                expected = np.linalg.solve(op(elements, trans), b)
                is_wide = is_gpu(factors) and form == "coo" and index == "int64"
                if b.size and (is_wide or lacks(factors, form, solves=True)):
                    with pytest.raises(LibraryError, match=r"^sparse\.spsolve: cu\w+ .*; lend A(\.tocsr| with ind)"):
                        sparse.spsolve(A, b, trans=trans, device=factors)
                    continue
                agree(sparse.spsolve(A, b, trans=trans, device=factors), expected, dtype)
                with sparse.lend(A, device=factors) as dA, offload_args(In(b), device=factors) as (db,):
                    agree(sparse.spsolve(dA, db, trans=trans).to_host(), expected, dtype)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_systems_with_new_values_in_the_same_structure(factors: str, form: str) -> None:
    elements = system("float64")
    A, b, x = matrix(elements, form), np.arange(16.0).reshape(8, 2), np.empty((8, 2))
    expected = np.linalg.solve(elements, b)
    with sparse.lend(A, device=factors) as dA, offload_args(In(b), Out(x), device=factors) as (db, dx):
        for factor in (2.0, 4.0):
            blas.scal(2.0, dA.data)
            agree(sparse.spsolve(dA, db).to_host(), expected / factor, "float64")
        agree(sparse.spsolve(dA, db[:, 1]).to_host(), expected[:, 1] / 4, "float64")  # the strides are 16 bytes
        agree(sparse.spsolve(dA.T, db, trans="T").to_host(), expected / 4, "float64")
        sparse.spsolve(dA, db, out=dx)
    agree(x, expected / 4, "float64")


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_systems_with_indices_in_any_order_are_solved_repeatedly_without_the_check(factors: str, form: str) -> None:
    elements, b = system("float64"), np.arange(8.0)
    A = matrix(elements, form)
    for array in (A.indices, A.data):
        for begin, end in pairwise(A.indptr):
            array[begin:end] = array[begin:end][::-1].copy()
    A = getattr(scipy.sparse, f"{form}_array")((A.data, A.indices, A.indptr), shape=A.shape)
    with sparse.lend(A, check=False, device=factors) as dA, offload_args(In(b), device=factors) as (db,):
        for _ in range(2):
            agree(sparse.spsolve(dA, db).to_host(), np.linalg.solve(elements, b), "float64")
            agree((dA @ db).to_host(), elements @ b, "float64")


def test_a_structure_that_an_outer_region_writes_is_read_anew(on: str) -> None:
    A, x = matrix(np.diag([2.0, 3.0])), np.array([1.0, 10.0])
    with offload_args(A.indices, In(x), device=on) as (di, dx), sparse.lend(A, device=on) as dA:
        assert (dA @ dx).to_host().tolist() == [2.0, 30.0]
        di.assign(np.array([1, 0], di.dtype))
        assert (dA @ dx).to_host().tolist() == [20.0, 3.0]


def test_a_structure_that_an_outer_region_writes_is_factored_anew(factors: str) -> None:
    A, b = matrix(np.diag([2.0, 3.0])), np.array([1.0, 10.0])
    with offload_args(A.indices, In(b), device=factors) as (di, db), sparse.lend(A, device=factors) as dA:
        agree(sparse.spsolve(dA, db).to_host(), b / [2.0, 3.0], "float64")
        di.assign(np.array([1, 0], di.dtype))
        agree(sparse.spsolve(dA, db).to_host(), b[::-1] / [3.0, 2.0], "float64")


def test_new_matrices_are_solved_with_their_present_structure(factors: str) -> None:
    A, b = matrix(np.diag([2.0, 3.0])), np.array([1.0, 10.0])
    with sparse.lend(A, device=factors) as dA, offload_args(In(b), device=factors) as (db,):
        square = dA @ dA
        agree(sparse.spsolve(square, db).to_host(), b / [4.0, 9.0], "float64")
        square.arrays[1].assign(np.array([1, 0], square.index_dtype))
        agree(sparse.spsolve(square, db).to_host(), b[::-1] / [9.0, 4.0], "float64")


def test_threads_solve_with_one_matrix(factors: str) -> None:
    elements, b = system("float64"), np.arange(8.0)
    with sparse.lend(matrix(elements), device=factors) as dA, offload_args(In(b), device=factors) as (db,):
        with ThreadPoolExecutor(4) as threads:
            solutions = list(threads.map(lambda _: sparse.spsolve(dA, db).to_host(), range(200)))
    for x in solutions:
        agree(x, np.linalg.solve(elements, b), "float64")


def test_cudss_frees_all_its_objects(factors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not factors.startswith("cuda"):
        return
    balance, call = dict.fromkeys(("Config", "Data", "Matrix"), 0), _cudss.CuDSS.call

    def counted(self: _cudss.CuDSS, name: str, *arguments: Any) -> int:
        for kind in balance:
            balance[kind] += name.startswith(f"{kind}Create")
            balance[kind] -= name == f"{kind}Destroy"
        return call(self, name, *arguments)

    monkeypatch.setattr(_cudss.CuDSS, "call", counted)
    elements, b = system("float64"), np.ones(8)
    with sparse.lend(matrix(elements), device=factors) as dA, offload_args(In(b), elements, device=factors) as (db, dE):
        for operand in (dA, dA.T, dA @ dA, sparse.convert(dA, "csc"), sparse.convert(dE, "csr")):
            sparse.spsolve(operand, db)
    assert balance == {"Config": 0, "Data": 0, "Matrix": 0}


@pytest.mark.parametrize("step", ["ConfigCreate", "DataCreate", "Execute"])
def test_factors_that_failed_are_made_anew(factors: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not factors.startswith("cuda"):
        return
    call, fails, alive = _cudss.CuDSS.call, [True], [0]

    def failing(self: _cudss.CuDSS, name: str, *arguments: Any) -> int:
        if name == step and fails:
            fails.pop()
            return 2  # CUDSS_STATUS_ALLOC_FAILED
        alive[0] += (name == "MatrixCreateCsr") - (name == "MatrixDestroy" and arguments[0] == csr[0])
        status = call(self, name, *arguments)
        if name == "MatrixCreateCsr":
            csr[0] = arguments[0][0]
        return status

    csr: list[Any] = [None]
    monkeypatch.setattr(_cudss.CuDSS, "call", failing)
    elements, b = system("float64"), np.ones(8)
    with sparse.lend(matrix(elements), device=factors) as dA, offload_args(In(b), device=factors) as (db,):
        with pytest.raises(LibraryError, match=r"^sparse\.spsolve: .*ALLOC_FAILED|^sparse\.spsolve: .* 2"):
            sparse.spsolve(dA, db)
        assert alive == [0]  # the failed call has freed its objects
        for _ in range(2):
            agree(sparse.spsolve(dA, db).to_host(), np.linalg.solve(elements, b), "float64")
        assert alive == [1]
    assert alive == [0]


@pytest.mark.later
def test_the_first_solve_of_a_process_and_a_solve_after_a_product_are_equal(on: str) -> None:
    code = f"""
import numpy as np
from scipy.sparse import csr_array
from offload_args import sparse
A, b, B = csr_array(np.tril(np.arange(1.0, 17).reshape(4, 4))), np.arange(1.0, 5), np.ones((4, 3))
first = sparse.spsolve_triangular(A, b, device={on!r})
assert np.array_equal(sparse.matmul(A, B, device={on!r}), A @ B)
print(np.array_equal(sparse.spsolve_triangular(A, b, device={on!r}), first), np.allclose(A @ first, b))
"""
    assert printed(code) == "True True\n"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_triangles_of_each_format_dtype_and_operation(on: str, form: str, dtype: str) -> None:
    elements = system(dtype)
    A, b = matrix(elements, form), np.arange(1, 9).astype(dtype)
    for lower in (True, False):
        for unit in (True, False):
            triangle = (np.tril if lower else np.triu)(elements)
            if unit:
                triangle = triangle - np.diag(np.diag(triangle)) + np.eye(8, dtype=dtype)
            for trans in TRANS:
                expected = np.linalg.solve(op(triangle, trans), b)
                options: dict[str, Any] = {"lower": lower, "unit_diagonal": unit, "trans": trans}
                if lacks(on, form, solves=True):
                    with pytest.raises(LibraryError, match=r"^sparse\.spsolve_triangular: .* lend A\.tocsr\(\)"):
                        sparse.spsolve_triangular(A, b, **options, device=on)
                    continue
                agree(sparse.spsolve_triangular(A, b, **options, device=on), expected, dtype)
    if lacks(on, form, solves=True):
        return
    x = np.zeros((8, 3), dtype)
    right = np.arange(24.0).reshape(8, 3).astype(dtype)
    with sparse.lend(A, device=on) as dA, offload_args(right, Out(x), device=on) as (db, dx):
        assert sparse.spsolve_triangular(dA, db, out=dx) is dx
    agree(x, np.linalg.solve(np.tril(elements), right), dtype)


def test_singular_systems_are_named(factors: str) -> None:
    elements = np.diag([1.0, 0.0, 2.0])
    elements[2, 0] = 1.0
    words = "A is singular, or nearly so: cuDSS replaced 1 pivots" if "cuda" in factors else "A is singular; SuperLU: "
    for b in (np.ones(3), np.ones((3, 2))):
        with pytest.raises(np.linalg.LinAlgError, match=rf"^sparse\.spsolve: {words}"):
            sparse.spsolve(matrix(elements), b, device=factors)
    with pytest.raises(np.linalg.LinAlgError, match=r"^sparse\.spsolve: A is singular"):
        sparse.spsolve(matrix(np.zeros((3, 3))), np.ones(3), device=factors)


@pytest.mark.parametrize("columns", [(), (3,)])
def test_a_stored_zero_pivot_is_named_unless_the_operands_are_not_finite(factors: str, columns: tuple) -> None:
    A, b, x = matrix(np.diag([1.0, 2.0, 4.0])), np.ones((3, *columns)), np.empty((3, *columns), order="F")
    A.data[1] = 0
    words = "A is singular, or nearly so: x is not finite" if "cuda" in factors else "A is singular; SuperLU: "
    with pytest.raises(np.linalg.LinAlgError, match=rf"^sparse\.spsolve: {words}"):
        sparse.spsolve(A, b, device=factors)
    A.data[1], b[0] = 2, np.nan
    with sparse.lend(A, device=factors) as dA, offload_args(In(b), Out(x), device=factors) as (db, dx):
        sparse.spsolve(dA, db, out=dx)
    for result in (x, sparse.spsolve(A, b, device=factors)):
        assert np.isnan(result[0]).all()


def test_a_singular_system_gives_the_host_no_result(factors: str) -> None:
    A, x = matrix(np.eye(2)), np.full(2, 7.0)
    A.data[1] = 0
    left = pytest.raises(InvalidDataError, match="argument 2 was left") if "cuda" in factors else nullcontext()
    with left, sparse.lend(A, device=factors) as dA, offload_args(np.ones(2), x, device=factors) as (db, dx):
        with pytest.raises(np.linalg.LinAlgError):
            sparse.spsolve(dA, db, out=dx)
    assert x.tolist() == [7.0, 7.0]


def test_singular_triangles_are_named(cpu: str) -> None:
    elements = np.diag([1.0, 0.0, 2.0])
    elements[2, 0] = 1.0
    with pytest.raises(np.linalg.LinAlgError, match=r"^sparse\.spsolve_triangular: A is singular: A\[1, 1\] is 0"):
        sparse.spsolve_triangular(matrix(elements), np.ones(3), device=cpu)
    unit = sparse.spsolve_triangular(matrix(elements), np.ones(3), unit_diagonal=True, device=cpu)
    agree(unit, np.array([1.0, 1.0, 0.0]), "float64")


def test_a_triangle_of_no_elements_is_the_identity_if_its_diagonal_is_ones(on: str) -> None:
    A, b = matrix(np.zeros((3, 3))), np.arange(3.0)
    agree(sparse.spsolve_triangular(A, b, unit_diagonal=True, device=on), b, "float64")
    with pytest.raises(np.linalg.LinAlgError, match=r"^sparse\.spsolve_triangular: A is singular: "):
        sparse.spsolve_triangular(A, b, device=on)


def test_systems_without_rows(on: str) -> None:
    A = matrix(np.zeros((0, 0)))
    for function in (sparse.spsolve, sparse.spsolve_triangular):  # without rows, no library is needed to solve
        assert function(A, np.ones(0), device=on).shape == (0,)


@pytest.mark.parametrize("gpu", here("cuda:0", HIP) or ["cuda:0"])
def test_triangles_of_right_sides_in_any_order(gpu: str) -> None:
    with_library(gpu)
    elements = system("complex64")
    right = (np.arange(40.0).reshape(8, 5) * (1 - 2j)).astype("complex64")
    expected = np.linalg.solve(np.tril(elements).T, right)
    wide = np.repeat(right, 2, axis=1)
    for b, step in ((right, 1), (np.asfortranarray(right), 1), (wide, 2), (np.asfortranarray(wide), 2)):
        for x in (np.zeros((8, 5), "complex64"), np.zeros((8, 5), "complex64", order="F")):
            with sparse.lend(matrix(elements), device=gpu) as dA, offload_args(b, Out(x), device=gpu) as (db, dx):
                sparse.spsolve_triangular(dA, db[:, ::step], out=dx, trans="T")
            agree(x, expected, "complex64")


def _absent(name: str) -> None:
    raise LibraryError(f"no {name}")


@pytest.mark.parametrize("gpu", here("cuda:0") or ["cuda:0"])
def test_a_captured_region_has_no_factorizations(gpu: str) -> None:
    open_or_skip(gpu)
    library_or_skip("cudss", gpu)
    x = np.ones(8)
    region = offload_args(x, np.ones(8), device=gpu)
    with sparse.lend(matrix(system("float64")), device=gpu) as dA, region as (dx, dy):
        with pytest.raises(CaptureError, match=r"^sparse\.spsolve: "):
            with region.capture():
                sparse.spsolve(dA, dx, out=dy)


@pytest.mark.parametrize("gpu", here("cuda:0") or ["cuda:0"])
def test_a_gpu_without_cudss_factors_no_matrices(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_or_skip(gpu)
    library_or_skip("cusparse", gpu)
    A = matrix(system("float64"))
    cusparse = _library.kernels_of("sparse.spsolve", Device(gpu).number)
    monkeypatch.setattr(cusparse, "_solver", None)
    monkeypatch.setattr(_cudss.libraries, "load", lambda name: _absent(name))
    with pytest.raises(LibraryError, match=r"^sparse\.spsolve: cuDSS factors .* or install cuDSS: no cudss"):
        sparse.spsolve(A, np.ones(8), device=gpu)
    older = libraries.Library("cudss", "/old/libcudss.so.0", "0.7.1", "here")
    monkeypatch.setattr(_cudss.libraries, "load", lambda name: older)
    with pytest.raises(LibraryError, match=r"^sparse\.spsolve: needs cuDSS 1\.0 or later, .*libcudss\.so\.0 is 0\.7"):
        sparse.spsolve(A, np.ones(8), device=gpu)
    agree(sparse.spsolve(A, np.ones(8)), np.linalg.solve(A.toarray(), np.ones(8)), "float64")  # on the host


def test_a_view_of_lent_right_sides_has_the_elements_of_the_device(cpu: str) -> None:
    A, b = scipy.sparse.csr_array([[2.0, 0.0], [0.0, 5.0]]), np.arange(4.0)
    with offload_args(b, device=cpu) as (db,):
        blas.scal(10.0, db)
        solved = sparse.spsolve(A, b[::-2], device=cpu)
        by_triangle = sparse.spsolve_triangular(A, b[::2], device=cpu)
    np.testing.assert_array_equal(solved, [15, 2])
    np.testing.assert_array_equal(by_triangle, [0, 4])
