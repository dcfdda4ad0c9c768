"""The portable BLAS of C, oa_blas_*: one call on every device, against NumPy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from offload_args import In, InOut, call, get_include, get_library, offload_args

NO_TRANS, TRANS, UPPER, LOWER, NON_UNIT, UNIT, LEFT, RIGHT = 111, 112, 121, 122, 131, 132, 141, 142
HEADER = (Path(get_include()) / "offload_args_blas.h").read_text()


@pytest.fixture(scope="module")
def blas() -> Any:
    ffi = cffi.FFI()
    prototypes = re.findall(r"^int oa_blas_[^;]*;", HEADER, re.MULTILINE)
    types = "".join(f"typedef struct oa_{dtype} oa_{dtype};" for dtype in ("f32", "f64", "c64", "c128"))
    ffi.cdef(types + "\n".join(prototypes) + "const char *oa_last_error(void);")
    return ffi, ffi.dlopen(get_library())


def array(*shape: int, dtype: str = "float64") -> Any:
    return np.asfortranarray(np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype))


def test_all_that_the_vendors_share_is_there() -> None:
    names = re.findall(r"^int oa_blas_(\w+)\(", HEADER, re.MULTILINE)
    assert len(names) > 130
    assert {"sgemv", "dgemm", "zherk", "ctrsm", "isamax", "scnrm2", "dtrmm", "zdotc"} <= set(names)


def test_matrix_and_vector(blas: Any, device: str) -> None:
    _, library = blas
    A, x, y = array(6, 4), array(6), array(4)
    expected = 2 * A.T @ x + 0.5 * y
    assert call(library.oa_blas_dgemv, TRANS, 6, 4, 2.0, In(A), 6, In(x), 1, 0.5, InOut(y), 1, device=device) == 0
    np.testing.assert_allclose(y, expected)


def test_triangles_and_sides_mean_the_same_everywhere(blas: Any, device: str) -> None:
    _, library = blas
    A, B = array(3, 3), array(5, 3)
    expected = B @ (np.tril(A, -1) + np.eye(3)).T
    arguments = (RIGHT, LOWER, TRANS, UNIT, 5, 3, 1.0, In(A), 3, InOut(B), 5)
    assert call(library.oa_blas_dtrmm, *arguments, device=device) == 0
    np.testing.assert_allclose(B, expected)
    C = array(4, 4)
    full = np.triu(C) + np.triu(C, 1).T
    x, y = array(4), np.zeros(4)
    assert call(library.oa_blas_dsymv, UPPER, 4, 1.0, In(C), 4, In(x), 1, 0.0, y, 1, device=device) == 0
    np.testing.assert_allclose(y, full @ x)


def test_an_index_counts_from_0_everywhere(blas: Any, device: str) -> None:
    ffi, library = blas
    x = np.array([1, -7, 3], "float32")
    results = ffi.new("int64_t *", -1)
    with offload_args(x, device=device) as (dx,):
        call(library.oa_blas_isamax, 3, dx, 1, results, device=device)
        assert results[0] == 1
        call(library.oa_blas_isamax, 0, dx, 1, results, device=device)
        assert results[0] == 0


@pytest.mark.promise("T51")
def test_wrong_constants_and_pointers_are_refused_by_name(blas: Any, device: str) -> None:
    ffi, library = blas
    A, x = array(2, 2), array(2)

    def text() -> str:
        return ffi.string(library.oa_last_error()).decode()

    for wrong in (0, 110, 114, 2**31 - 1, -(2**31)):
        assert call(library.oa_blas_dtrmv, UPPER, wrong, NON_UNIT, 2, A, 2, x, 1, device=device) != 0
        assert "blas.dtrmv: trans" in text() and "OA_BLAS_NO_TRANS (111)" in text() and str(wrong) in text()
    assert call(library.oa_blas_dtrmv, NO_TRANS, NO_TRANS, NON_UNIT, 2, A, 2, x, 1, device=device) != 0
    assert "blas.dtrmv: uplo" in text()
    for pointer in (0, 1, 2**63):
        wrong_pointer = ffi.cast("oa_f64 *", pointer)
        assert library.oa_blas_dscal(2, 1.0, wrong_pointer, 1) != 0
        assert "blas.dscal: x needs a device pointer" in text()
    assert call(library.oa_blas_dscal, 3, 1.0, x, 1, device=device) != 0
    assert "x needs 3 elements" in text()
