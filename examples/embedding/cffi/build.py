"""Build the extension `_power` in cffi's API mode, linked with the library: python build.py"""

import cffi

from offload_args import embedding

builder = cffi.FFI()
builder.cdef("""
    typedef struct oa_f64 oa_f64;
    const char *oa_last_error(void);
    int iterate(int64_t n, const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue);
""")
builder.set_source(
    "_power",
    """
    #include <offload_args_blas.h>

    static int iterate(int64_t n, const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
      for (int i = 0; i < steps; i++) {
        OA_TRY(oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, A, n, x, 1, 0.0, y, 1));
        OA_TRY(oa_blas_dnrm2(n, y, 1, eigenvalue));
        OA_TRY(oa_blas_dcopy(n, y, 1, x, 1));
        OA_TRY(oa_blas_dscal(n, 1.0 / *eigenvalue, x, 1));
      }
      return OA_OK;
    }
    """,
    extra_compile_args=embedding.cflags(),
    extra_link_args=embedding.libs(),
)

if __name__ == "__main__":
    builder.compile()
