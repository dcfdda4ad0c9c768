"""Build the extension `_power` in cffi's API mode, linked with the library: python build.py"""

import cffi

from offload_args import embedding

builder = cffi.FFI()
builder.cdef("""
    typedef struct oa_f64 oa_f64;
    enum oa_status { OA_OK, ... };
    enum oa_status iterate(const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue);
""")
builder.set_source(
    "_power",
    """
    #include <offload_args_blas.h>

    static enum oa_status iterate(const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
      oa_pointer_layout a = OA_SIZED(oa_pointer_layout), in = a, out = a;
      OA_TRY(oa_pointer_get_layout((const oa_any *)A, &a));
      OA_TRY(oa_pointer_get_layout((const oa_any *)x, &in));
      OA_TRY(oa_pointer_get_layout((const oa_any *)y, &out));
      /* BLAS reads matrices by columns: one that is stored by rows is the transpose of such a matrix. */
      const int trans = a.ld ? OA_BLAS_NO_TRANS : OA_BLAS_TRANS;
      const int64_t m = a.ld ? a.rows : a.columns, n = a.ld ? a.columns : a.rows, ld = a.ld ? a.ld : a.ld_by_rows;
      for (int i = 0; i < steps; i++) {
        OA_TRY(oa_blas_dgemv(trans, m, n, 1.0, A, ld, x, in.inc, 0.0, y, out.inc));
        OA_TRY(oa_blas_dnrm2(out.rows, y, out.inc, eigenvalue));
        OA_TRY(oa_blas_dcopy(out.rows, y, out.inc, x, in.inc));
        OA_TRY(oa_blas_dscal(in.rows, 1.0 / *eigenvalue, x, in.inc));
      }
      return OA_OK;
    }
    """,
    extra_compile_args=embedding.cflags(),
    extra_link_args=embedding.libs(),
)

if __name__ == "__main__":
    builder.compile()
