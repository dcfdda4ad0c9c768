/* The steps of a LAPACK call on a device. A function for each step calls the vendor's library. Matrices are stored by
 * columns. Every function returns an oa_status, or OA_CALL_ODD if LAPACK's info is not 0. */
#ifndef OA_LAPACK_LIBRARY_H
#define OA_LAPACK_LIBRARY_H

#include "offload_args/core.h"

#include <stdbool.h>

enum { OA_LAPACK_SCRATCHES = 14 };

typedef struct oa_lapack {
  int device, dtype, real; /* real: the dtype of the call's real numbers */
  char letter;             /* s, d, c or z */
  bool gpu;                /* true: the device uses cuSOLVER and cuBLAS; false: LAPACKE and CBLAS */
  oa_region *regions[OA_LAPACK_SCRATCHES];
  int region_count;
  oa_any *info; /* memory for LAPACK's info, which a GPU's library writes */
} oa_lapack;

/* Makes the libraries of a device ready: loads them, and makes a small call. */
int oa_lapack_open(int device);
/* Begins a call whose arrays are of this dtype. oa_lapack_end frees its scratch memory. */
int oa_lapack_begin(oa_lapack *l, int device, int dtype);
int oa_lapack_end(oa_lapack *l);
/* Takes device memory for a matrix without gaps between columns. */
int oa_lapack_scratch(oa_lapack *l, int dtype, int64_t rows, int64_t columns, oa_any **scratch);

/* Letters are LAPACK's: uplo U or L, trans N, T or C, side L or R, diag N or U, jobz N or V, job N, S or A. */
int oa_lapack_potrf(oa_lapack *l, char uplo, int64_t n, oa_any *A, int64_t lda);
int oa_lapack_potri(oa_lapack *l, char uplo, int64_t n, oa_any *A, int64_t lda);
int oa_lapack_potrs(oa_lapack *l, char uplo, int64_t n, int64_t nrhs, oa_any *A, int64_t lda, oa_any *B, int64_t ldb);
int oa_lapack_trtri(oa_lapack *l, char uplo, char diag, int64_t n, oa_any *A, int64_t lda);
int oa_lapack_getrf(oa_lapack *l, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *ipiv);
int oa_lapack_getrs(oa_lapack *l, char trans, int64_t n, int64_t nrhs, oa_any *A, int64_t lda, oa_any *ipiv, oa_any *B,
                    int64_t ldb);
int oa_lapack_geqrf(oa_lapack *l, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *tau);
int oa_lapack_ormqr(oa_lapack *l, char side, char trans, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda,
                    oa_any *tau, oa_any *C, int64_t ldc);
int oa_lapack_orgqr(oa_lapack *l, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *tau);
int oa_lapack_syevd(oa_lapack *l, char jobz, char uplo, int64_t n, oa_any *A, int64_t lda, oa_any *w);
/* Returns whether GPUs find the singular values of such a matrix by polar factors, which is faster, and not by QR
 * steps. */
bool oa_lapack_has_polar_factors(int dtype, char job, int64_t m, int64_t n);
/* `job` is both jobu and jobvt. Destroys A. */
int oa_lapack_gesvd(oa_lapack *l, char job, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *s, oa_any *U,
                    int64_t ldu, oa_any *VT, int64_t ldvt);

/* -- steps by BLAS and by the core -- */
int oa_lapack_trsm(oa_lapack *l, char uplo, char trans, char diag, int64_t m, int64_t n, oa_any *A, int64_t lda,
                   oa_any *B, int64_t ldb);
/* Computes C (m x n) = op(A) B. `k` is the inner size. */
int oa_lapack_multiply(oa_lapack *l, char trans, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *B,
                       int64_t ldb, oa_any *C, int64_t ldc);
/* Sets C (n x n, without gaps) to the upper triangle of A, and zeros below it. */
int oa_lapack_upper(oa_lapack *l, int64_t n, oa_any *A, int64_t lda, oa_any *C);
/* Sets C (m x n) to op(A), by trans T or C; A has n rows. */
int oa_lapack_transpose(oa_lapack *l, char trans, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *C, int64_t ldc);
/* Sets the upper triangle of C (n x n, without gaps) to A A^T by trans N, or to A^T A by trans T, and the rest
 * to zero. k is the inner size. */
int oa_lapack_gram(oa_lapack *l, char trans, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *C);
/* Sets C to the symmetric matrix whose upper triangle is in A, with zeros below it. Both have no gaps. */
int oa_lapack_both(oa_lapack *l, int64_t n, oa_any *A, oa_any *C);
/* Sets A to the identity of order n, without gaps. */
int oa_lapack_identity(oa_lapack *l, int64_t n, oa_any *A);
/* Copies from (rows x columns) to `to`. */
int oa_lapack_copy(oa_lapack *l, int64_t rows, int64_t columns, oa_any *from, int64_t ld, oa_any *to, int64_t ld_to);
/* Returns OA_CALL_ODD if a pivot of a factorisation is zero but for rounding. The CPU's library may find that such a
 * matrix is singular (LU), or that it is not positive definite (Cholesky: `squared`). Reads the first `count` elements
 * of the diagonal. */
int oa_lapack_pivots(oa_lapack *l, int64_t count, oa_any *factors, int64_t ld, bool squared);
/* Sets *sum to the sum of the absolute values of a matrix, which has the call's dtype if it has gaps. The sum is
 * infinite or NaN if an element is infinite or NaN. */
int oa_lapack_sum(oa_lapack *l, int dtype, int64_t rows, int64_t columns, oa_any *A, int64_t ld, double *sum);

#endif
