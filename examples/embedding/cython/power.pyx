# cython: language_level=3
from libc.stdint cimport int64_t

from offload_args cimport OA_OK, oa_f64, oa_f64_of, oa_import, oa_raise
from offload_args.blas cimport OA_BLAS_LOWER, oa_blas_dcopy, oa_blas_dnrm2, oa_blas_dscal, oa_blas_dsymv

oa_import()


cdef int step(int64_t n, oa_f64 *A, oa_f64 *x, oa_f64 *y, double *eigenvalue) noexcept nogil:
    cdef int status = oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, A, n, x, 1, 0.0, y, 1)
    if status == OA_OK:
        status = oa_blas_dnrm2(n, y, 1, eigenvalue)
    if status == OA_OK:
        status = oa_blas_dcopy(n, y, 1, x, 1)
    if status == OA_OK:
        status = oa_blas_dscal(n, 1.0 / eigenvalue[0], x, 1)
    return status


def iterate(int64_t n, A, x, y, int steps):
    """Return the eigenvalue; A, x and y are DevicePtrs of one region."""
    cdef oa_f64 *dA = oa_f64_of(A)
    cdef oa_f64 *dx = oa_f64_of(x)
    cdef oa_f64 *dy = oa_f64_of(y)
    cdef double eigenvalue = 0
    cdef int status = OA_OK
    with nogil:
        for _ in range(steps):
            status = step(n, dA, dx, dy, &eigenvalue)
            if status != OA_OK:
                break
    if status != OA_OK:
        oa_raise(status)
    return eigenvalue
