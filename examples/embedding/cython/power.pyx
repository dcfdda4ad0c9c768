# cython: language_level=3
from libc.stdint cimport int64_t

from offload_args cimport (
    OA_OK, OA_SIZED_oa_pointer_layout, oa_any, oa_f64, oa_f64_of, oa_import, oa_pointer_get_layout, oa_pointer_layout, oa_raise,
)
from offload_args.blas cimport (
    OA_BLAS_NO_TRANS, OA_BLAS_TRANS, oa_blas_dcopy, oa_blas_dgemv, oa_blas_dnrm2, oa_blas_dscal,
)

oa_import()


cdef int step(
    const oa_f64 *A, const oa_pointer_layout *a, oa_f64 *x, const oa_pointer_layout *into, oa_f64 *y,
    const oa_pointer_layout *out, double *eigenvalue
) noexcept nogil:
    # BLAS reads matrices by columns. A matrix that is stored by rows is the transpose of a matrix by columns.
    cdef int status
    if a.ld:
        status = oa_blas_dgemv(OA_BLAS_NO_TRANS, a.rows, a.columns, 1.0, A, a.ld, x, into.inc, 0.0, y, out.inc)
    else:
        status = oa_blas_dgemv(OA_BLAS_TRANS, a.columns, a.rows, 1.0, A, a.ld_by_rows, x, into.inc, 0.0, y, out.inc)
    if status == OA_OK:
        status = oa_blas_dnrm2(out.rows, y, out.inc, eigenvalue)
    if status == OA_OK:
        status = oa_blas_dcopy(out.rows, y, out.inc, x, into.inc)
    if status == OA_OK:
        status = oa_blas_dscal(into.rows, 1.0 / eigenvalue[0], x, into.inc)
    return status


def iterate(A, x, y, int steps):
    """Return the eigenvalue; A, x and y are DevicePtrs of one region."""
    cdef oa_f64 *dA = oa_f64_of(A)
    cdef oa_f64 *dx = oa_f64_of(x)
    cdef oa_f64 *dy = oa_f64_of(y)
    cdef oa_pointer_layout a = OA_SIZED_oa_pointer_layout
    cdef oa_pointer_layout into = OA_SIZED_oa_pointer_layout
    cdef oa_pointer_layout out = OA_SIZED_oa_pointer_layout
    cdef double eigenvalue = 0
    cdef int status = oa_pointer_get_layout(<oa_any *>dA, &a)
    if status == OA_OK:
        status = oa_pointer_get_layout(<oa_any *>dx, &into)
    if status == OA_OK:
        status = oa_pointer_get_layout(<oa_any *>dy, &out)
    with nogil:
        for _ in range(steps):
            if status == OA_OK:
                status = step(dA, &a, dx, &into, dy, &out, &eigenvalue)
    if status != OA_OK:
        oa_raise(status)
    return eigenvalue
