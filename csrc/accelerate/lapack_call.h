/* The arguments of a LAPACK call, and its family, which plans and makes it. */
#ifndef OA_LAPACK_CALL_H
#define OA_LAPACK_CALL_H

#include "accelerate/lapack_library.h"
#include "accelerate/program_call.h"

/* The arguments of any routine, by LAPACK's names. Members for arguments that the routine lacks are 0. Matrices are
 * stored by columns. */
typedef struct oa_lapack_arguments {
  char uplo, trans, diag, side, jobz, range; /* capital letters */
  bool wide;                                 /* true: integers in memory have 64 bits; false: 32 bits */
  int64_t m, n, k, nrhs, lda, ldb, ldc, ldu, ldvt, ldz, il, iu, lwork, lrwork, liwork;
  void *a, *b, *c, *s, *u, *vt, *w, *z, *tau, *work, *rwork; /* numbers; s, w and rwork are real */
  void *ipiv, *iwork, *isuppz, *found, *rank, *info;         /* integers */
  const void *vl, *vu, *abstol, *rcond;                      /* each points to a real number */
  const void *numpy;                                         /* the call of NumPy's loop (loops.c) */
} oa_lapack_arguments;

/* One routine without its dtype, such as potrf. */
typedef struct oa_lapack_family oa_lapack_family;
extern const oa_lapack_family oa_lapack_potrf_family, oa_lapack_potrs_family, oa_lapack_potri_family,
    oa_lapack_trtrs_family, oa_lapack_trtri_family, oa_lapack_gesv_family, oa_lapack_getrf_family,
    oa_lapack_getrs_family, oa_lapack_getri_family, oa_lapack_geqrf_family, oa_lapack_orgqr_family,
    oa_lapack_ormqr_family, oa_lapack_syevd_family, oa_lapack_syevr_family, oa_lapack_gesdd_family,
    oa_lapack_gelsd_family;

enum { OA_LAPACK_OPERANDS = 4, OA_LAPACK_GOES = -1 };

typedef struct oa_lapack_call {
  const oa_lapack_family *family;
  oa_lapack_arguments a;
  int dtype, real; /* the dtypes of the call's numbers, and of its real numbers */
  bool is_complex;
  oa_program_operand operands[OA_LAPACK_OPERANDS];
  int count;
  int64_t rank; /* the rank that the call found */
} oa_lapack_call;

struct oa_lapack_family {
  /* Fills the operands, in the order of the pointers that `make` receives. Fills the call's sizes, operations and
   * steps. Returns OA_LAPACK_GOES, or the oa_accelerate_reason why the call can't go. */
  int (*plan)(oa_lapack_call *problem, oa_program_call *call);
  /* Makes the call. Returns an oa_status or OA_CALL_ODD. */
  int (*make)(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p);
  /* Checks the program's own memory before anything moves. Returns false if the CPU's library has to report a fault. */
  bool (*is_plain)(const oa_lapack_call *problem);
  /* Sets LAPACK's outputs that are not arrays, except info. */
  void (*finish)(const oa_lapack_call *problem);
  bool scales;  /* LAPACK scales a matrix of very small or very large numbers, and the device's library may not */
  bool is_blas; /* all steps are of BLAS: the call needs no LAPACK, and takes NaN and infinity */
};

/* Read and write the integers of the program. */
int64_t oa_lapack_integer(const oa_lapack_arguments *a, const void *array, int64_t at);
void oa_lapack_set_integer(const oa_lapack_arguments *a, void *array, int64_t at, int64_t value);

#endif
