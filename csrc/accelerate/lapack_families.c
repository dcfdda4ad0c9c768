/* The LAPACK routines that go to a device: their variants, costs and steps. */
#include "accelerate/lapack_call.h"

#include "offload_args/core.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef oa_lapack_arguments arguments;

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static bool is_uplo(char uplo) { return uplo == 'U' || uplo == 'L'; }
static bool is_trans(char trans) { return trans == 'N' || trans == 'T' || trans == 'C'; }
static bool is_diag(char diag) { return diag == 'N' || diag == 'U'; }
/* Returns whether `trans` is valid for Q: 'N', or the transpose, which is 'C' for a complex Q and 'T' for a real Q. */
static bool is_trans_of_q(const oa_lapack_call *problem, char trans) {
  return trans == 'N' || trans == (problem->is_complex ? 'C' : 'T');
}

static void add(oa_lapack_call *problem, const char *name, const void *data, int64_t rows, int64_t columns, int64_t ld,
                int direction, int dtype) {
  problem->operands[problem->count++] = (oa_program_operand){
      .name = name, .data = data, .rows = rows, .columns = columns, .ld = ld, .direction = direction, .dtype = dtype};
}

static void matrix(oa_lapack_call *problem, const char *name, const void *data, int64_t rows, int64_t columns,
                   int64_t ld, int direction) {
  add(problem, name, data, rows, columns, ld, direction, 0);
}

static void vector(oa_lapack_call *problem, const char *name, const void *data, int64_t count, int direction,
                   int dtype) {
  add(problem, name, data, count, 1, count, direction, dtype);
}

static int integers_of(const oa_lapack_call *problem) { return problem->a.wide ? OA_I64 : OA_I32; }

/* Sets the cost of a call. `operations`: number of operations on real numbers. `step`: the microseconds of each step on
 * a present GPU. `device_share`: the share of the GPU's rate of products that the call reaches. `step` and
 * `device_share` were measured with cuSOLVER (docs/guide/scripts.md). */
static void cost(oa_program_call *call, double operations, double step, int64_t steps, double device_share) {
  call->operations = operations;
  call->steps = step * 1e-6 * (double)steps;
  call->device_share = device_share;
}

static double cube(int64_t n) { return (double)n * (double)n * (double)n; }

/* Returns the operations of an LU factorisation; QR takes twice as many. */
static double elimination(int64_t m, int64_t n) {
  const double a = (double)m, b = (double)n, k = (double)less(m, n);
  return 2 * a * b * k - (a + b) * k * k + 2 * k * k * k / 3;
}

/* -- checks of the program's memory -- */

/* A triangular matrix with a zero on its diagonal is singular: LAPACK reports the place of the zero. */
static bool has_inverse(const oa_lapack_call *problem) {
  const arguments *a = &problem->a;
  for (int64_t i = 0; i < a->n; i++) {
    const int64_t at = i * (a->lda + 1);
    double real, imaginary = 0;
    if (problem->real == OA_F32) {
      const float *number = (const float *)a->a + at * (problem->is_complex ? 2 : 1);
      real = number[0];
      if (problem->is_complex) imaginary = number[1];
    } else {
      const double *number = (const double *)a->a + at * (problem->is_complex ? 2 : 1);
      real = number[0];
      if (problem->is_complex) imaginary = number[1];
    }
    if (real == 0 && imaginary == 0) return false;
  }
  return true;
}

static bool has_triangle(const oa_lapack_call *problem) { return problem->a.diag == 'U' || has_inverse(problem); }

/* Libraries do not check pivots: a wrong pivot makes them write outside of the matrix. */
static bool has_pivots(const oa_lapack_call *problem) {
  for (int64_t i = 0; i < problem->a.n; i++) {
    const int64_t pivot = oa_lapack_integer(&problem->a, problem->a.ipiv, i);
    if (pivot <= i || pivot > problem->a.n) return false;
  }
  return true;
}

static bool has_factors(const oa_lapack_call *problem) { return has_pivots(problem) && has_inverse(problem); }

/* -- Cholesky -- */

static int plan_potrf(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (!is_uplo(a->uplo) || a->n < 1) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->n, a->n, a->lda, OA_INOUT);
  cost(call, cube(a->n) / 3, 1, a->n, 0.5);
  return OA_LAPACK_GOES;
}

static int make_potrf(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  OA_TRY(oa_lapack_potrf(l, problem->a.uplo, problem->a.n, p[0], problem->a.lda));
  return oa_lapack_pivots(l, problem->a.n, p[0], problem->a.lda, true);
}

const oa_lapack_family oa_lapack_potrf_family = {.plan = plan_potrf, .make = make_potrf};

static int plan_potri(oa_lapack_call *problem, oa_program_call *call) {
  const int planned = plan_potrf(problem, call);
  cost(call, 2 * cube(problem->a.n) / 3, 3, problem->a.n, 0.3);
  return planned;
}

static int make_potri(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  return oa_lapack_potri(l, problem->a.uplo, problem->a.n, p[0], problem->a.lda);
}

const oa_lapack_family oa_lapack_potri_family = {.plan = plan_potri, .make = make_potri, .is_plain = has_inverse};

static int plan_potrs(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (!is_uplo(a->uplo) || a->n < 1 || a->nrhs < 1) return OA_REFUSED_INVALID;
  call->k = a->nrhs;
  matrix(problem, "A", a->a, a->n, a->n, a->lda, OA_IN);
  matrix(problem, "B", a->b, a->n, a->nrhs, a->ldb, OA_INOUT);
  cost(call, 2 * (double)a->n * (double)a->n * (double)a->nrhs, 0.5, a->n, 0.5);
  return OA_LAPACK_GOES;
}

static int make_potrs(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  return oa_lapack_potrs(l, a->uplo, a->n, a->nrhs, p[0], a->lda, p[1], a->ldb);
}

const oa_lapack_family oa_lapack_potrs_family = {.plan = plan_potrs, .make = make_potrs, .is_plain = has_inverse};

/* -- triangular matrices -- */

static int plan_trtrs(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (!is_trans(a->trans) || !is_diag(a->diag)) return OA_REFUSED_INVALID;
  const int planned = plan_potrs(problem, call);
  call->operations /= 2;
  call->steps /= 2;
  return planned;
}

static int make_trtrs(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  return oa_lapack_trsm(l, a->uplo, a->trans, a->diag, a->n, a->nrhs, p[0], a->lda, p[1], a->ldb);
}

const oa_lapack_family oa_lapack_trtrs_family = {.plan = plan_trtrs, .make = make_trtrs, .is_plain = has_triangle};

static int plan_trtri(oa_lapack_call *problem, oa_program_call *call) {
  if (!is_diag(problem->a.diag)) return OA_REFUSED_INVALID;
  if (problem->a.diag == 'U') return OA_REFUSED_VARIANT; /* cuSOLVER writes ones to the diagonal, and LAPACK does not */
  const int planned = plan_potrf(problem, call);
  cost(call, cube(problem->a.n) / 3, 2, problem->a.n, 0.3);
  return planned;
}

static int make_trtri(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  return oa_lapack_trtri(l, problem->a.uplo, problem->a.diag, problem->a.n, p[0], problem->a.lda);
}

const oa_lapack_family oa_lapack_trtri_family = {.plan = plan_trtri, .make = make_trtri, .is_plain = has_triangle};

/* -- LU -- */

static int plan_getrf(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->m < 1 || a->n < 1) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->m, a->n, a->lda, OA_INOUT);
  vector(problem, "ipiv", a->ipiv, less(a->m, a->n), OA_OUT, integers_of(problem));
  cost(call, elimination(a->m, a->n), 2, less(a->m, a->n), 0.5);
  return OA_LAPACK_GOES;
}

static int make_getrf(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  OA_TRY(oa_lapack_getrf(l, a->m, a->n, p[0], a->lda, p[1]));
  return oa_lapack_pivots(l, less(a->m, a->n), p[0], a->lda, false);
}

const oa_lapack_family oa_lapack_getrf_family = {.plan = plan_getrf, .make = make_getrf};

static int plan_getrs(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (!is_trans(a->trans) || a->n < 1 || a->nrhs < 1) return OA_REFUSED_INVALID;
  call->k = a->nrhs;
  matrix(problem, "A", a->a, a->n, a->n, a->lda, OA_IN);
  vector(problem, "ipiv", a->ipiv, a->n, OA_IN, integers_of(problem));
  matrix(problem, "B", a->b, a->n, a->nrhs, a->ldb, OA_INOUT);
  cost(call, 2 * (double)a->n * (double)a->n * (double)a->nrhs, 0.5, a->n, 0.5);
  return OA_LAPACK_GOES;
}

static int make_getrs(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  return oa_lapack_getrs(l, a->trans, a->n, a->nrhs, p[0], a->lda, p[1], p[2], a->ldb);
}

const oa_lapack_family oa_lapack_getrs_family = {.plan = plan_getrs, .make = make_getrs, .is_plain = has_factors};

static int plan_gesv(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->n < 1 || a->nrhs < 1) return OA_REFUSED_INVALID;
  call->k = a->nrhs;
  matrix(problem, "A", a->a, a->n, a->n, a->lda, OA_INOUT);
  vector(problem, "ipiv", a->ipiv, a->n, OA_OUT, integers_of(problem));
  matrix(problem, "B", a->b, a->n, a->nrhs, a->ldb, OA_INOUT);
  const double solving = 2 * (double)a->n * (double)a->n * (double)a->nrhs;
  cost(call, elimination(a->n, a->n) + solving, 2.5, a->n, 0.5);
  return OA_LAPACK_GOES;
}

static int make_gesv(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  OA_TRY(oa_lapack_getrf(l, a->n, a->n, p[0], a->lda, p[1]));
  OA_TRY(oa_lapack_pivots(l, a->n, p[0], a->lda, false));
  return oa_lapack_getrs(l, 'N', a->n, a->nrhs, p[0], a->lda, p[1], p[2], a->ldb);
}

const oa_lapack_family oa_lapack_gesv_family = {.plan = plan_gesv, .make = make_gesv};

static int plan_getri(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->n < 1 || a->lwork < a->n) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->n, a->n, a->lda, OA_INOUT);
  vector(problem, "ipiv", a->ipiv, a->n, OA_IN, integers_of(problem));
  cost(call, 4 * cube(a->n) / 3, 1, a->n, 0.4);
  return OA_LAPACK_GOES;
}

/* Computes the inverse as the X that solves A X = I, because cuSOLVER lacks getri. */
static int make_getri(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  oa_any *X;
  OA_TRY(oa_lapack_scratch(l, l->dtype, a->n, a->n, &X));
  OA_TRY(oa_lapack_identity(l, a->n, X));
  OA_TRY(oa_lapack_getrs(l, 'N', a->n, a->n, p[0], a->lda, p[1], X, a->n));
  return oa_lapack_copy(l, a->n, a->n, X, a->n, p[0], a->lda);
}

const oa_lapack_family oa_lapack_getri_family = {.plan = plan_getri, .make = make_getri, .is_plain = has_factors};

/* -- QR -- */

static int plan_geqrf(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->m < 1 || a->n < 1 || a->lwork < a->n) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->m, a->n, a->lda, OA_INOUT);
  vector(problem, "tau", a->tau, less(a->m, a->n), OA_OUT, 0);
  cost(call, 2 * elimination(a->m, a->n), 4, less(a->m, a->n), 0.3);
  return OA_LAPACK_GOES;
}

static int make_geqrf(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  return oa_lapack_geqrf(l, problem->a.m, problem->a.n, p[0], problem->a.lda, p[1]);
}

const oa_lapack_family oa_lapack_geqrf_family = {.plan = plan_geqrf, .make = make_geqrf};

static int plan_orgqr(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->k < 1 || a->n < a->k || a->m < a->n || a->lwork < a->n) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->m, a->n, a->lda, OA_INOUT);
  problem->operands[problem->count - 1].read = a->k;
  vector(problem, "tau", a->tau, a->k, OA_IN, 0);
  const double m = (double)a->m, n = (double)a->n, k = (double)a->k;
  cost(call, 4 * m * n * k - 2 * (m + n) * k * k + 4 * k * k * k / 3, 2, a->k, 0.3);
  return OA_LAPACK_GOES;
}

static int make_orgqr(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  return oa_lapack_orgqr(l, problem->a.m, problem->a.n, problem->a.k, p[0], problem->a.lda, p[1]);
}

const oa_lapack_family oa_lapack_orgqr_family = {.plan = plan_orgqr, .make = make_orgqr};

static int plan_ormqr(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const bool left = a->side == 'L';
  const int64_t order = left ? a->m : a->n;
  if ((!left && a->side != 'R') || !is_trans_of_q(problem, a->trans) || a->m < 1 || a->n < 1 || a->k < 1 ||
      a->k > order || a->lwork < (left ? a->n : a->m))
    return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, order, a->k, a->lda, OA_IN);
  vector(problem, "tau", a->tau, a->k, OA_IN, 0);
  matrix(problem, "C", a->c, a->m, a->n, a->ldc, OA_INOUT);
  const double others = (double)(left ? a->n : a->m), k = (double)a->k;
  cost(call, 2 * others * k * (2 * (double)order - k), 2, a->k, 0.3);
  return OA_LAPACK_GOES;
}

static int make_ormqr(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  return oa_lapack_ormqr(l, a->side, a->trans, a->m, a->n, a->k, p[0], a->lda, p[1], p[2], a->ldc);
}

const oa_lapack_family oa_lapack_ormqr_family = {.plan = plan_ormqr, .make = make_ormqr};

/* -- eigenvalues: the signs of vectors are arbitrary, as in LAPACK -- */

static void cost_eigenvalues(oa_program_call *call, int64_t n, bool vectors) {
  call->form = !vectors;
  cost(call, (vectors ? 6 : 4.0 / 3) * cube(n), vectors ? 10 : 6, n, 0.1);
}

static int plan_syevd(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int64_t n = a->n;
  const bool vectors = a->jobz == 'V';
  if ((!vectors && a->jobz != 'N') || !is_uplo(a->uplo) || n < 1) return OA_REFUSED_INVALID;
  const int64_t work =
      problem->is_complex ? (vectors ? 2 * n + n * n : n + 1) : (vectors ? 1 + 6 * n + 2 * n * n : 2 * n + 1);
  if (n > 1 && (a->lwork < work || a->liwork < (vectors ? 3 + 5 * n : 1) ||
                (problem->is_complex && a->lrwork < (vectors ? 1 + 5 * n + 2 * n * n : n))))
    return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, n, n, a->lda, vectors ? OA_INOUT : OA_SCRATCH);
  vector(problem, "w", a->w, n, OA_OUT, problem->real);
  cost_eigenvalues(call, n, vectors);
  return OA_LAPACK_GOES;
}

static int make_syevd(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  return oa_lapack_syevd(l, problem->a.jobz, problem->a.uplo, problem->a.n, p[0], problem->a.lda, p[1]);
}

const oa_lapack_family oa_lapack_syevd_family = {.plan = plan_syevd, .make = make_syevd, .scales = true};

/* Only calls for all eigenvalues go. The CPU makes calls for a range of eigenvalues. */
static int plan_syevr(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int64_t n = a->n;
  const bool vectors = a->jobz == 'V', all = a->range == 'A' || (a->range == 'I' && a->il == 1 && a->iu == n);
  if ((!vectors && a->jobz != 'N') || !is_uplo(a->uplo) || n < 1) return OA_REFUSED_INVALID;
  if (!all) return a->range == 'I' || a->range == 'V' ? OA_REFUSED_VARIANT : OA_REFUSED_INVALID;
  if (n > 1 && (a->lwork < (problem->is_complex ? 2 : 26) * n || a->liwork < 10 * n ||
                (problem->is_complex && a->lrwork < 24 * n)))
    return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, n, n, a->lda, OA_SCRATCH);
  vector(problem, "w", a->w, n, OA_OUT, problem->real);
  if (vectors) matrix(problem, "Z", a->z, n, n, a->ldz, OA_OUT);
  cost_eigenvalues(call, n, vectors);
  return OA_LAPACK_GOES;
}

static int make_syevr(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  OA_TRY(oa_lapack_syevd(l, a->jobz, a->uplo, a->n, p[0], a->lda, p[1]));
  return a->jobz == 'V' ? oa_lapack_copy(l, a->n, a->n, p[0], a->lda, p[2], a->ldz) : OA_OK;
}

/* Sets the number of eigenvalues, and for each vector the range of rows with nonzero numbers, which is all rows. */
static void finish_syevr(const oa_lapack_call *problem) {
  const arguments *a = &problem->a;
  oa_lapack_set_integer(a, a->found, 0, a->n);
  for (int64_t i = 0; i < a->n && a->jobz == 'V'; i++) {
    oa_lapack_set_integer(a, a->isuppz, 2 * i, 1);
    oa_lapack_set_integer(a, a->isuppz, 2 * i + 1, a->n);
  }
}

const oa_lapack_family oa_lapack_syevr_family = {
    .plan = plan_syevr, .make = make_syevr, .finish = finish_syevr, .scales = true};

/* -- singular values -- */

static void cost_singular_values(oa_program_call *call, int64_t m, int64_t n, char job) {
  const double k = (double)less(m, n);
  const double reduction = 4 * (double)m * (double)n * k;
  const bool vectors = job != 'N', polar = oa_lapack_has_polar_factors(call->routine->dtype, job, m, n);
  const double step = polar ? (vectors ? 22 : 20) : (vectors ? 110 : 40);
  call->form = !vectors;
  cost(call, vectors ? reduction + 12 * k * k * k : reduction, step, less(m, n), 0.1);
}

static int plan_gesdd(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int64_t k = less(a->m, a->n);
  if (a->jobz == 'O') return OA_REFUSED_VARIANT; /* with jobz 'O', LAPACK writes vectors to A */
  const bool all = a->jobz == 'A', vectors = all || a->jobz == 'S';
  /* In LAPACK, the least size of the workspace depends on the shape. The check of lwork accepts some workspaces that
   * LAPACK may refuse. */
  if ((!vectors && a->jobz != 'N') || k < 1 || a->lwork < k) return OA_REFUSED_INVALID;
  matrix(problem, "A", a->a, a->m, a->n, a->lda, OA_SCRATCH);
  vector(problem, "s", a->s, k, OA_OUT, problem->real);
  if (vectors) {
    matrix(problem, "U", a->u, a->m, all ? a->m : k, a->ldu, OA_OUT);
    matrix(problem, "VT", a->vt, all ? a->n : k, a->n, a->ldvt, OA_OUT);
  }
  cost_singular_values(call, a->m, a->n, a->jobz);
  return OA_LAPACK_GOES;
}

static int make_gesdd(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  return oa_lapack_gesvd(l, a->jobz, a->m, a->n, p[0], a->lda, p[1], p[2], a->ldu, p[3], a->ldvt);
}

const oa_lapack_family oa_lapack_gesdd_family = {.plan = plan_gesdd, .make = make_gesdd, .scales = true};

/* -- least squares, by QR and the singular values of R, as in LAPACK if m is large -- */

static int plan_gelsd(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  if (a->m < 1 || a->n < 1 || a->nrhs < 1 || a->lwork < a->n) return OA_REFUSED_INVALID;
  if (a->m < a->n) return OA_REFUSED_VARIANT;
  call->k = a->nrhs;
  matrix(problem, "A", a->a, a->m, a->n, a->lda, OA_SCRATCH);
  matrix(problem, "B", a->b, a->m, a->nrhs, a->ldb, OA_INOUT);
  vector(problem, "s", a->s, a->n, OA_OUT, problem->real);
  cost_singular_values(call, a->n, a->n, 'S');
  call->operations += 2 * elimination(a->m, a->n) + 4 * (double)a->m * (double)a->n * (double)a->nrhs;
  return OA_LAPACK_GOES;
}

static double real_at(const oa_lapack_call *problem, const void *array, int64_t at) {
  return problem->real == OA_F32 ? (double)((const float *)array)[at] : ((const double *)array)[at];
}

/* Divides row i of C (n x nrhs, in C's order) by the i-th singular value, or sets it to zero beyond the rank. Returns
 * OA_CALL_ODD if the rank, but for rounding, may be another one. */
static int divide(oa_lapack_call *problem, const void *s, void *C, int64_t n, int64_t nrhs) {
  const bool single = problem->real == OA_F32;
  const double epsilon = single ? (double)FLT_EPSILON : DBL_EPSILON, most = real_at(problem, s, 0);
  double share = real_at(problem, problem->a.rcond, 0);
  if (isnan(share)) return OA_CALL_ODD;
  if (!(share > 0 && share < 1)) share = epsilon / 2;
  const int64_t numbers = nrhs * (problem->is_complex ? 2 : 1);
  problem->rank = 0;
  for (int64_t i = 0; i < n; i++) {
    const double value = real_at(problem, s, i);
    const bool counts = value > share * most;
    if (fabs(value - share * most) <= 10 * epsilon * (double)n * most) return OA_CALL_ODD;
    problem->rank += counts;
    for (int64_t j = i * numbers; j < (i + 1) * numbers; j++) {
      if (single)
        ((float *)C)[j] = counts ? ((float *)C)[j] / (float)value : 0;
      else
        ((double *)C)[j] = counts ? ((double *)C)[j] / value : 0;
    }
  }
  return OA_OK;
}

/* Finds the x of least norm that solves R x = c. With R = U s VT, x is V c', and c' is U^H c divided by s. The first n
 * rows of B have c before the call, and x after it. */
static int solve_by_values(oa_lapack *l, oa_lapack_call *problem, oa_any *U, oa_any *VT, oa_any *s, oa_any *B) {
  const int64_t n = problem->a.n, nrhs = problem->a.nrhs, itemsize = oa_itemsize(l->dtype), real = oa_itemsize(l->real);
  const char conjugate = problem->is_complex ? 'C' : 'T';
  oa_any *C;
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, nrhs, &C));
  OA_TRY(oa_lapack_multiply(l, conjugate, n, nrhs, n, U, n, B, problem->a.ldb, C, n));
  void *values = malloc((size_t)(n * real)), *numbers = malloc((size_t)(n * nrhs * itemsize));
  const int64_t shape[2] = {n, nrhs}, strides[2] = {itemsize, itemsize * n};
  int status = values && numbers ? OA_OK : OA_ERROR_MEMORY;
  if (!status) status = oa_pointer_read(s, values, 1, &n, &real);
  if (!status) status = oa_pointer_read(C, numbers, 2, shape, strides);
  if (!status) status = divide(problem, values, numbers, n, nrhs);
  if (!status) status = oa_pointer_assign(C, numbers, 2, shape, strides);
  free(values);
  free(numbers);
  return status ? status : oa_lapack_multiply(l, conjugate, n, nrhs, n, VT, n, C, n, B, problem->a.ldb);
}

static int make_gelsd(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  const int64_t n = a->n;
  oa_any *tau, *R, *U, *VT;
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, 1, &tau));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &R));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &U));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &VT));
  OA_TRY(oa_lapack_geqrf(l, a->m, n, p[0], a->lda, tau));
  const char conjugate = problem->is_complex ? 'C' : 'T';
  OA_TRY(oa_lapack_ormqr(l, 'L', conjugate, a->m, a->nrhs, n, p[0], a->lda, tau, p[1], a->ldb));
  OA_TRY(oa_lapack_upper(l, n, p[0], a->lda, R));
  OA_TRY(oa_lapack_gesvd(l, 'S', n, n, R, n, p[2], U, n, VT, n));
  return solve_by_values(l, problem, U, VT, p[2], p[1]);
}

static void finish_gelsd(const oa_lapack_call *problem) {
  oa_lapack_set_integer(&problem->a, problem->a.rank, 0, problem->rank);
}

const oa_lapack_family oa_lapack_gelsd_family = {
    .plan = plan_gelsd, .make = make_gelsd, .finish = finish_gelsd, .scales = true};
