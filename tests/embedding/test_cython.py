"""The .pxd has more than the C headers: structs with their size set, and arrays to lend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.processes import output_of

SOURCE = """
# cython: language_level=3
from libc.stdint cimport int64_t
from offload_args cimport *
from offload_args.blas cimport oa_blas_dgemv, oa_blas_dscal, OA_BLAS_NO_TRANS, OA_BLAS_TRANS

oa_import()


cdef void check(int status) except *:
    if status != OA_OK:
        oa_raise(status)


def product(bytes device_name, double[:, :] A, double[::1] x, double[::1] y):
    cdef int64_t room[2]
    cdef oa_array arrays[3]
    cdef oa_region *region
    cdef oa_region_options options = OA_SIZED_oa_region_options
    cdef oa_pointer_layout a = OA_SIZED_oa_pointer_layout
    cdef int device
    arrays[0] = OA_LEND(&A[0, 0], OA_F64, 2, <int64_t *>A.shape, <int64_t *>A.strides)
    arrays[1] = OA_LEND(&x[0], OA_F64, 1, <int64_t *>x.shape, <int64_t *>x.strides)
    arrays[2] = OA_LEND_VECTOR(&y[0], OA_F64, y.shape[0], room)
    check(oa_device_open(device_name, &device))
    check(oa_region_enter(device, &options, arrays, 3, &region))
    check(oa_pointer_get_layout(arrays[0].handle, &a))
    cdef const oa_f64 *dA = <oa_f64 *>arrays[0].handle
    cdef int status
    if a.ld:
        status = oa_blas_dgemv(OA_BLAS_NO_TRANS, a.rows, a.columns, 1, dA, a.ld, <oa_f64 *>arrays[1].handle, 1, 0,
                               <oa_f64 *>arrays[2].handle, 1)
    else:
        status = oa_blas_dgemv(OA_BLAS_TRANS, a.columns, a.rows, 1, dA, a.ld_by_rows, <oa_f64 *>arrays[1].handle, 1, 0,
                               <oa_f64 *>arrays[2].handle, 1)
    check(oa_region_finish(region, OA_COMMIT if status == OA_OK else OA_DISCARD, NULL))
    check(oa_region_wait(region))
    check(status)


def leading(double[::1] memory, int64_t m, int64_t n, int64_t ld):
    cdef int64_t room[4]
    cdef oa_array lent = OA_LEND_MATRIX(&memory[0], OA_F64, m, n, ld, room)
    cdef oa_region *region
    cdef oa_pointer_layout layout = OA_SIZED_oa_pointer_layout
    cdef int device
    check(oa_device_open("sim:0", &device))
    check(oa_region_enter(device, NULL, &lent, 1, &region))
    check(oa_pointer_get_layout(lent.handle, &layout))
    check(oa_region_finish(region, OA_DISCARD, NULL))
    check(oa_region_wait(region))
    return layout.rows, layout.columns, layout.ld


def doubled(object array):
    cdef oa_array lent
    cdef oa_region *region
    cdef int device
    held = oa_array_from_python(array, OA_INOUT, &lent)
    check(oa_device_open("sim:0", &device))
    check(oa_region_enter(device, NULL, &lent, 1, &region))
    check(oa_blas_dscal(lent.shape[0], 2, <oa_f64 *>lent.handle, 1))
    check(oa_region_finish(region, OA_COMMIT, NULL))
    check(oa_region_wait(region))
"""
SETUP = """
import offload_args
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(name="lent", ext_modules=cythonize([Extension("lent", ["lent.pyx"], include_dirs=[offload_args.get_include()])]))
"""
USE = """
import numpy as np, lent
from offload_args import offload_args
x = np.arange(5.0)
for A in (np.arange(15.0).reshape(3, 5), np.asfortranarray(np.arange(15.0).reshape(3, 5))):
    y = np.zeros(3)
    lent.product(b"host", A, x, y)
    np.testing.assert_allclose(y, A @ x)
S = np.arange(25.0).reshape(5, 5)
y = np.zeros(5)
lent.product(b"sim:0", S.T, x, y)
np.testing.assert_allclose(y, S.T @ x)
assert lent.leading(np.zeros(40), 3, 5, 7) == (3, 5, 7)
with offload_args(x, device="sim:0") as (dx,):
    lent.doubled(x)
print(x)
"""


@pytest.mark.slow
def test_cython_lends_memoryviews_and_asks_for_layouts(tmp_path: Path) -> None:
    (tmp_path / "lent.pyx").write_text(SOURCE)
    (tmp_path / "setup.py").write_text(SETUP)
    output_of(sys.executable, "setup.py", "build_ext", "--inplace", folder=tmp_path)
    assert output_of(sys.executable, "-c", USE, folder=tmp_path) == "[0. 2. 4. 6. 8.]\n"
