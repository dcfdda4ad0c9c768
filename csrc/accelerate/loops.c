/* The loops of NumPy's generalized functions, such as numpy.linalg.solve, that go to a device as a whole. NumPy's own
 * loop of such a function copies matrices into the order of LAPACK before the call, and copies results back after it.
 * On large matrices in C order, these copies take longer than the call on a device. A hook of a loop passes the arrays
 * as they are: read by columns, the memory of A is its transpose. */
#include "accelerate/hooks.h"
#include "accelerate/lapack.h"
#include "base/error.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef oa_lapack_arguments arguments;

/* NumPy's own loop makes smaller calls; the hooks of LAPACK count them. */
static bool is_small(int64_t a, int64_t b, int64_t c) {
  return (double)a * (double)b * (double)c < (double)atomic_load_explicit(&oa_program_least, memory_order_relaxed);
}

static void lend(oa_lapack_call *problem, const char *name, const void *data, int64_t rows, int64_t columns, int64_t ld,
                 int direction, int dtype) {
  problem->operands[problem->count++] = (oa_program_operand){
      .name = name, .data = data, .rows = rows, .columns = columns, .ld = ld, .direction = direction, .dtype = dtype};
}

static void lend_input(oa_lapack_call *problem, const char *name, const void *data, int64_t rows, int64_t columns,
                       int64_t ld) {
  lend(problem, name, data, rows, columns, ld, OA_IN, 0);
}

/* NumPy makes results without gaps. */
static void lend_result(oa_lapack_call *problem, const char *name, const void *data, int64_t rows, int64_t columns) {
  lend(problem, name, data, rows, columns, rows, OA_OUT, 0);
}

static void lend_reals(oa_lapack_call *problem, const char *name, const void *data, int64_t count) {
  lend(problem, name, data, count, 1, count, OA_OUT, problem->real);
}

/* Plans the call as the call of LAPACK that NumPy would make, which has the same costs and the same valid arguments. */
static int plan_as(const oa_lapack_family *lapack, oa_lapack_call *problem, oa_program_call *call) {
  const int planned = lapack->plan(problem, call);
  problem->count = 0;
  return planned;
}

/* Takes scratch memory with a copy of A, without gaps. */
static int copy_of(oa_lapack *l, int64_t rows, int64_t columns, oa_any *A, int64_t lda, oa_any **copy) {
  OA_TRY(oa_lapack_scratch(l, l->dtype, rows, columns, copy));
  return oa_lapack_copy(l, rows, columns, A, lda, *copy, rows);
}

/* Takes scratch memory with the matrix (rows x columns) whose memory in C order is A. */
static int transpose_of(oa_lapack *l, int64_t rows, int64_t columns, oa_any *A, int64_t lda, oa_any **transpose) {
  OA_TRY(oa_lapack_scratch(l, l->dtype, rows, columns, transpose));
  return oa_lapack_transpose(l, 'T', rows, columns, A, lda, *transpose, rows);
}

/* Factors a copy of A^T. */
static int factor(oa_lapack *l, int64_t n, oa_any *A, int64_t lda, oa_any **factors, oa_any **ipiv) {
  OA_TRY(copy_of(l, n, n, A, lda, factors));
  OA_TRY(oa_lapack_scratch(l, OA_I32, n, 1, ipiv));
  OA_TRY(oa_lapack_getrf(l, n, n, *factors, n, *ipiv));
  return oa_lapack_pivots(l, n, *factors, n, false);
}

/* -- solve: the rows of A, B and X have no gaps, and there may be gaps between rows of A and B -- */

static int plan_solve(oa_lapack_call *problem, oa_program_call *call) {
  arguments *a = &problem->a;
  const int64_t ldb = a->ldb;
  a->ldb = a->n; /* of LAPACK's B, which NumPy would make */
  const int planned = plan_as(&oa_lapack_gesv_family, problem, call);
  a->ldb = ldb;
  lend_input(problem, "A", a->a, a->n, a->n, a->lda);
  lend_input(problem, "B", a->b, a->nrhs, a->n, ldb);
  lend_result(problem, "X", a->c, a->nrhs, a->n);
  return planned;
}

static int make_solve(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const int64_t n = problem->a.n, nrhs = problem->a.nrhs, ldb = problem->a.ldb;
  oa_any *factors, *ipiv, *X = p[2];
  OA_TRY(factor(l, n, p[0], problem->a.lda, &factors, &ipiv));
  if (nrhs == 1) {
    OA_TRY(oa_lapack_copy(l, 1, n, p[1], ldb, X, 1));
    return oa_lapack_getrs(l, 'T', n, 1, factors, n, ipiv, X, n);
  }
  OA_TRY(transpose_of(l, n, nrhs, p[1], ldb, &X));
  OA_TRY(oa_lapack_getrs(l, 'T', n, nrhs, factors, n, ipiv, X, n));
  return oa_lapack_transpose(l, 'T', nrhs, n, X, n, p[2], nrhs);
}

static const oa_lapack_family solve_family = {.plan = plan_solve, .make = make_solve};

/* -- inv: the inverse of A^T is the transpose of the inverse -- */

static int plan_inv(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_gesv_family, problem, call);
  lend_input(problem, "A", a->a, a->n, a->n, a->lda);
  lend_result(problem, "X", a->c, a->n, a->n);
  return planned;
}

static int make_inv(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const int64_t n = problem->a.n;
  oa_any *factors, *ipiv;
  OA_TRY(factor(l, n, p[0], problem->a.lda, &factors, &ipiv));
  OA_TRY(oa_lapack_identity(l, n, p[1]));
  return oa_lapack_getrs(l, 'N', n, n, factors, n, ipiv, p[1], n);
}

static const oa_lapack_family inv_family = {.plan = plan_inv, .make = make_inv};

/* -- cholesky: with A = L L^H, A^T is U^H U, and U by columns has the memory of L -- */

static int plan_cholesky(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_potrf_family, problem, call);
  lend_input(problem, "A", a->a, a->n, a->n, a->lda);
  lend_result(problem, "L", a->c, a->n, a->n);
  return planned;
}

static int make_cholesky(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const int64_t n = problem->a.n;
  oa_any *factor;
  OA_TRY(copy_of(l, n, n, p[0], problem->a.lda, &factor));
  OA_TRY(oa_lapack_potrf(l, 'U', n, factor, n));
  OA_TRY(oa_lapack_pivots(l, n, factor, n, true));
  return oa_lapack_upper(l, n, factor, n, p[1]);
}

static const oa_lapack_family cholesky_family = {.plan = plan_cholesky, .make = make_cholesky};

/* -- eigh, eigvalsh: A^T is the conjugate of A, so its vectors are the conjugates of the vectors of A -- */

static int plan_eigh(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_syevd_family, problem, call);
  lend_input(problem, "A", a->a, a->n, a->n, a->lda);
  lend_reals(problem, "w", a->w, a->n);
  if (a->jobz == 'V') lend_result(problem, "V", a->c, a->n, a->n);
  return planned;
}

static int make_eigh(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const int64_t n = problem->a.n;
  oa_any *vectors;
  OA_TRY(copy_of(l, n, n, p[0], problem->a.lda, &vectors));
  OA_TRY(oa_lapack_syevd(l, problem->a.jobz, problem->a.uplo, n, vectors, n, p[1]));
  return problem->a.jobz == 'V' ? oa_lapack_transpose(l, 'C', n, n, vectors, n, p[2], n) : OA_OK;
}

static const oa_lapack_family eigh_family = {.plan = plan_eigh, .make = make_eigh, .scales = true};

/* -- svd: with A = U S V^H, A^T has the vectors V^H^T and U^T, whose memory by columns is V^H and U -- */

static int plan_svd(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_gesdd_family, problem, call);
  call->m = a->n;
  call->n = a->m;
  lend_input(problem, "A", a->a, a->m, a->n, a->lda);
  lend_reals(problem, "S", a->s, a->m < a->n ? a->m : a->n);
  if (a->jobz == 'N') return planned;
  lend_result(problem, "Vh", a->u, a->m, a->jobz == 'A' || a->m < a->n ? a->m : a->n);
  lend_result(problem, "U", a->vt, a->ldvt, a->n);
  return planned;
}

static int make_svd(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  oa_any *copy;
  OA_TRY(copy_of(l, a->m, a->n, p[0], a->lda, &copy));
  return oa_lapack_gesvd(l, a->jobz, a->m, a->n, copy, a->m, p[1], p[2], a->m, p[3], a->ldvt);
}

static const oa_lapack_family svd_family = {.plan = plan_svd, .make = make_svd, .scales = true};

/* -- qr: reflectors take the place of A, as in LAPACK -- */

/* The memory of A, read by columns, has n x m. */
static int plan_qr(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_geqrf_family, problem, call);
  lend(problem, "A", a->a, a->n, a->m, a->lda, OA_INOUT, 0);
  lend_result(problem, "tau", a->tau, a->m < a->n ? a->m : a->n, 1);
  return planned;
}

static int make_qr(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  oa_any *factors;
  OA_TRY(transpose_of(l, a->m, a->n, p[0], a->lda, &factors));
  OA_TRY(oa_lapack_geqrf(l, a->m, a->n, factors, a->m, p[1]));
  return oa_lapack_transpose(l, 'T', a->n, a->m, factors, a->m, p[0], a->lda);
}

static const oa_lapack_family qr_family = {.plan = plan_qr, .make = make_qr};

/* Q (m x n) is made from the first k columns of A. */
static int plan_qr_q(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const int planned = plan_as(&oa_lapack_orgqr_family, problem, call);
  lend_input(problem, "A", a->a, a->k, a->m, a->lda);
  lend_input(problem, "tau", a->tau, a->k, 1, a->k);
  lend_result(problem, "Q", a->c, a->n, a->m);
  return planned;
}

static int make_qr_q(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  oa_any *Q;
  OA_TRY(oa_lapack_scratch(l, l->dtype, a->m, a->n, &Q));
  OA_TRY(oa_lapack_transpose(l, 'T', a->m, a->k, p[0], a->lda, Q, a->m));
  OA_TRY(oa_lapack_orgqr(l, a->m, a->n, a->k, Q, a->m, p[1]));
  return oa_lapack_transpose(l, 'T', a->n, a->m, Q, a->m, p[2], a->n);
}

static const oa_lapack_family qr_q_family = {.plan = plan_qr_q, .make = make_qr_q};

/* -- lstsq of a tall matrix: QR on the device, and NumPy's own loop for the small system of R, as in LAPACK -- */

/* A call of NumPy's loop. */
typedef struct numpy_call {
  int number; /* of the loop */
  char *const *at;
  const intptr_t *sizes, *steps;
  void *data;
} numpy_call;

static oa_loop_function original_of(int number);

static int plan_lstsq(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const double n = (double)a->n;
  const int planned = plan_as(&oa_lapack_geqrf_family, problem, call);
  call->k = a->nrhs;
  call->operations += 4 * (double)a->m * n * (double)a->nrhs;
  call->steps += 4 * n * n * n / 4e10 + 1e-5 * n; /* the CPU's part */
  call->host_share = fmin(0.5, n / 2000);         /* 16 cores took 32 ms for 20,000 x 101 */
  lend_input(problem, "A", a->a, a->n, a->m, a->lda);
  lend_input(problem, "B", a->b, a->nrhs, a->m, a->ldb);
  return planned;
}

/* Reads the sums of squares of the columns of Z (rows x columns, real or complex) into `sums`, as numbers of the call's
 * dtype. */
static int sums_of_squares(oa_lapack *l, int64_t rows, int64_t columns, oa_any *Z, int64_t ld, void *sums) {
  enum { BLOCK = 32 };
  const int64_t itemsize = oa_itemsize(l->dtype);
  oa_any *products, *diagonal;
  OA_TRY(oa_lapack_scratch(l, l->dtype, BLOCK, BLOCK, &products));
  OA_TRY(oa_lapack_scratch(l, l->dtype, columns, 1, &diagonal));
  for (int64_t j = 0; j < columns; j += BLOCK) {
    const int64_t width = columns - j < BLOCK ? columns - j : BLOCK;
    const int64_t shape[2] = {rows, width}, strides[2] = {itemsize, itemsize * ld};
    oa_any *block, *place = NULL;
    OA_TRY(oa_pointer_view(Z, j * ld * itemsize, 2, shape, strides, &block));
    int status = oa_pointer_view(diagonal, j * itemsize, 1, &width, &itemsize, &place);
    if (!status)
      status = oa_lapack_multiply(l, l->dtype == l->real ? 'T' : 'C', width, width, rows, block, ld, block, ld,
                                  products, width);
    if (!status) status = oa_lapack_copy(l, 1, width, products, width + 1, place, 1);
    if (place) oa_pointer_release(place);
    oa_pointer_release(block);
    OA_TRY(status);
  }
  return oa_pointer_read(diagonal, sums, 1, &columns, &itemsize);
}

/* The host's copies of R (n x n), c = Q^H B (n x nrhs), both in C order, and the sums of squares of what remains of B
 * below c. */
typedef struct reduced {
  char *R, *c, *sums;
} reduced;

static int reduce(oa_lapack *l, const arguments *a, oa_any *const *p, const reduced *to) {
  const int64_t m = a->m, n = a->n, nrhs = a->nrhs, itemsize = oa_itemsize(l->dtype);
  oa_any *A, *B, *R, *tau, *below;
  OA_TRY(transpose_of(l, m, n, p[0], a->lda, &A));
  OA_TRY(transpose_of(l, m, nrhs, p[1], a->ldb, &B));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, 1, &tau));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &R));
  OA_TRY(oa_lapack_geqrf(l, m, n, A, m, tau));
  OA_TRY(oa_lapack_ormqr(l, 'L', l->dtype == l->real ? 'T' : 'C', m, nrhs, n, A, m, tau, B, m));
  OA_TRY(oa_lapack_upper(l, n, A, m, R));
  double sums[2];
  OA_TRY(oa_lapack_sum(l, l->dtype, n, n, R, n, &sums[0]));
  OA_TRY(oa_lapack_sum(l, l->dtype, m, nrhs, B, m, &sums[1]));
  if (!isfinite(sums[0]) || !isfinite(sums[1])) return OA_CALL_ODD;
  const int64_t strides[2] = {itemsize, itemsize * n}, strides_of_B[2] = {itemsize, itemsize * m};
  OA_TRY(oa_pointer_read(R, to->R, 2, (const int64_t[]){n, n}, strides));
  OA_TRY(oa_pointer_read(B, to->c, 2, (const int64_t[]){n, nrhs}, strides_of_B));
  const int64_t shape[2] = {m - n, nrhs};
  OA_TRY(oa_pointer_view(B, n * itemsize, 2, shape, strides_of_B, &below));
  const int status = sums_of_squares(l, m - n, nrhs, below, m, to->sums);
  oa_pointer_release(below);
  return status;
}

static double real_at(const void *number, int real) {
  return real == OA_F32 ? (double)*(const float *)number : *(const double *)number;
}

/* Solves R x = c by NumPy's loop, which sets all outputs. Returns OA_CALL_ODD if LAPACK fails, or if R's rank, but for
 * rounding, may be another one than n. */
static int solve_reduced(const oa_lapack_call *problem, const reduced *from) {
  enum { OPERANDS = 7, OUTPUTS = OPERANDS + 4, STEPS = OUTPUTS + 4 };
  const numpy_call *numpy = problem->a.numpy;
  const intptr_t n = (intptr_t)problem->a.n, nrhs = (intptr_t)problem->a.nrhs, itemsize = oa_itemsize(problem->dtype);
  const int real = problem->real;
  char *at[OPERANDS] = {from->R, from->c};
  const intptr_t sizes[] = {1, n, n, nrhs, n};
  intptr_t steps[STEPS] = {[OPERANDS] = n * itemsize, itemsize, nrhs * itemsize, itemsize};
  memcpy(at + 2, numpy->at + 2, (OPERANDS - 2) * sizeof *at);
  memcpy(steps + OUTPUTS, numpy->steps + OUTPUTS, (STEPS - OUTPUTS) * sizeof *steps);
  original_of(numpy->number)(at, sizes, steps, numpy->data);
  /* NumPy's loop raises this flag if info is not 0, or if the flag was raised before. */
  if (fetestexcept(FE_INVALID)) return OA_CALL_ODD;
  const intptr_t step_of_s = steps[STEPS - 1], step_of_sums = steps[STEPS - 2];
  const double most = real_at(at[6], real), least = real_at(at[6] + (n - 1) * step_of_s, real);
  const double epsilon = real == OA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  if (!(least > most * (fmax(real_at(at[2], real), epsilon) + 100 * epsilon * (double)n))) return OA_CALL_ODD;
  for (intptr_t j = 0; j < nrhs; j++)
    memcpy(at[4] + j * step_of_sums, from->sums + j * itemsize, (size_t)oa_itemsize(real));
  return OA_OK;
}

static int make_lstsq(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const size_t n = (size_t)problem->a.n, nrhs = (size_t)problem->a.nrhs, itemsize = (size_t)oa_itemsize(l->dtype);
  char *memory = malloc((n * n + n * nrhs + nrhs) * itemsize);
  if (!memory) return oa_fail(OA_ERROR_MEMORY, "accelerate: no host memory");
  const reduced host = {memory, memory + n * n * itemsize, memory + (n + nrhs) * n * itemsize};
  int status = reduce(l, &problem->a, p, &host);
  if (!status) status = solve_reduced(problem, &host);
  free(memory);
  return status;
}

static const oa_lapack_family lstsq_family = {.plan = plan_lstsq, .make = make_lstsq, .scales = true};

/* -- matmul of A and its own transpose: NumPy copies one triangle to the other, element by element -- */

/* The memory of A, read by columns, has k x n (trans T) or n x k (trans N). */
static int plan_gram(oa_lapack_call *problem, oa_program_call *call) {
  const arguments *a = &problem->a;
  const bool rows = a->trans == 'T';
  lend_input(problem, "A", a->a, rows ? a->k : a->n, rows ? a->n : a->k, a->lda);
  lend_result(problem, "C", a->c, a->n, a->n);
  call->operations = (double)a->n * (double)a->n * (double)a->k;
  call->host_share = call->device_share = 1;
  return OA_LAPACK_GOES;
}

static int make_gram(oa_lapack *l, oa_lapack_call *problem, oa_any *const *p) {
  const arguments *a = &problem->a;
  oa_any *upper;
  OA_TRY(oa_lapack_scratch(l, l->dtype, a->n, a->n, &upper));
  OA_TRY(oa_lapack_gram(l, a->trans, a->n, a->k, p[0], a->lda, upper));
  return oa_lapack_both(l, a->n, upper, p[1]);
}

static const oa_lapack_family gram_family = {.plan = plan_gram, .make = make_gram, .is_blas = true};

/* -- the arguments of loops -- */

/* The matrices of one loop, by NumPy's names: `sizes` has the extents of the core dimensions, and `steps` the strides
 * of the operands' core dimensions, in the order of the operands. */
typedef struct passed {
  char *const *at;
  const intptr_t *sizes, *steps;
  int64_t itemsize;
} passed;

/* Returns whether the rows of the matrix whose strides begin at `first` have no gaps. Sets *ld to the distance between
 * rows, in elements. NumPy's strides of extents of 1 have no meaning. */
static bool has_rows(const passed *p, int first, int64_t rows, int64_t columns, int64_t *ld) {
  const intptr_t step = rows == 1 ? columns * p->itemsize : p->steps[first];
  *ld = step / p->itemsize;
  return (columns == 1 || p->steps[first + 1] == p->itemsize) && step % p->itemsize == 0 && *ld >= columns;
}

/* Returns whether the matrix has C order without gaps. */
static bool is_dense(const passed *p, int first, int64_t rows, int64_t columns) {
  int64_t ld;
  return has_rows(p, first, rows, columns, &ld) && ld == columns;
}

static bool is_vector(const passed *p, int first, int64_t itemsize) { return p->steps[first] == itemsize; }

static int64_t real_size(const passed *p, int dtype) { return dtype >= OA_C64 ? p->itemsize / 2 : p->itemsize; }

static bool read_solve(arguments *a, const passed *p, int dtype) {
  const int64_t n = p->sizes[0], k = p->sizes[1];
  (void)dtype;
  *a = (arguments){.n = n, .nrhs = k, .a = p->at[0], .b = p->at[1], .c = p->at[2]};
  return has_rows(p, 0, n, n, &a->lda) && has_rows(p, 2, n, k, &a->ldb) && is_dense(p, 4, n, k);
}

static bool read_solve1(arguments *a, const passed *p, int dtype) {
  const int64_t n = p->sizes[0];
  (void)dtype;
  *a = (arguments){.n = n, .nrhs = 1, .a = p->at[0], .b = p->at[1], .c = p->at[2]};
  a->ldb = p->steps[2] / p->itemsize;
  return has_rows(p, 0, n, n, &a->lda) && p->steps[2] % p->itemsize == 0 && a->ldb > 0 && is_vector(p, 3, p->itemsize);
}

static bool read_square(arguments *a, const passed *p, int dtype) {
  const int64_t n = p->sizes[0];
  (void)dtype;
  *a = (arguments){.uplo = 'U', .n = n, .nrhs = n, .ldb = n, .a = p->at[0], .c = p->at[1]};
  return has_rows(p, 0, n, n, &a->lda) && is_dense(p, 2, n, n);
}

static bool read_eigenvalues(arguments *a, const passed *p, int dtype) {
  const int64_t n = p->sizes[0];
  *a = (arguments){.jobz = 'N', .n = n, .a = p->at[0], .w = p->at[1]};
  a->lwork = a->lrwork = a->liwork = INT64_MAX;
  return has_rows(p, 0, n, n, &a->lda) && is_vector(p, 2, real_size(p, dtype));
}

/* The lower triangle of A is the upper one of A^T. */
static bool read_lower_values(arguments *a, const passed *p, int dtype) {
  const bool goes = read_eigenvalues(a, p, dtype);
  a->uplo = 'U';
  return goes;
}

static bool read_upper_values(arguments *a, const passed *p, int dtype) {
  const bool goes = read_eigenvalues(a, p, dtype);
  a->uplo = 'L';
  return goes;
}

static bool read_vectors(arguments *a, const passed *p, int dtype, char uplo) {
  const bool goes = read_eigenvalues(a, p, dtype) && is_dense(p, 3, a->n, a->n);
  a->jobz = 'V';
  a->uplo = uplo;
  a->c = p->at[2];
  return goes;
}

static bool read_lower_vectors(arguments *a, const passed *p, int dtype) { return read_vectors(a, p, dtype, 'U'); }
static bool read_upper_vectors(arguments *a, const passed *p, int dtype) { return read_vectors(a, p, dtype, 'L'); }

static bool read_svd(arguments *a, const passed *p, int dtype, char job) {
  const int64_t rows = p->sizes[0], columns = p->sizes[1], less = rows < columns ? rows : columns;
  *a = (arguments){.jobz = job, .m = columns, .n = rows, .lwork = INT64_MAX, .a = p->at[0]};
  if (is_small(rows, columns, less) || !has_rows(p, 0, rows, columns, &a->lda)) return false;
  if (job == 'N') {
    a->s = p->at[1];
    return is_vector(p, 2, real_size(p, dtype));
  }
  a->s = p->at[2];
  a->vt = p->at[1];
  a->u = p->at[3];
  a->ldu = columns;
  a->ldvt = job == 'A' ? rows : less;
  return is_dense(p, 2, rows, a->ldvt) && is_vector(p, 4, real_size(p, dtype)) &&
         is_dense(p, 5, job == 'A' ? columns : less, columns);
}

static bool read_values(arguments *a, const passed *p, int dtype) { return read_svd(a, p, dtype, 'N'); }
static bool read_full(arguments *a, const passed *p, int dtype) { return read_svd(a, p, dtype, 'A'); }
static bool read_reduced(arguments *a, const passed *p, int dtype) { return read_svd(a, p, dtype, 'S'); }

static bool read_reflectors(arguments *a, const passed *p, int dtype) {
  const int64_t rows = p->sizes[0], columns = p->sizes[1];
  (void)dtype;
  *a = (arguments){.m = rows, .n = columns, .lwork = INT64_MAX, .a = p->at[0], .tau = p->at[1]};
  return !is_small(rows, columns, rows < columns ? rows : columns) && has_rows(p, 0, rows, columns, &a->lda) &&
         is_vector(p, 2, p->itemsize);
}

static bool read_q(arguments *a, const passed *p, int64_t columns, int64_t reflectors) {
  const int64_t rows = p->sizes[0];
  *a = (arguments){.m = rows, .n = columns, .k = reflectors, .lwork = INT64_MAX};
  a->a = p->at[0];
  a->tau = p->at[1];
  a->c = p->at[2];
  return reflectors <= columns && columns <= rows && !is_small(rows, columns, reflectors) &&
         has_rows(p, 0, rows, p->sizes[1], &a->lda) && is_vector(p, 2, p->itemsize) && is_dense(p, 3, rows, columns);
}

static bool read_reduced_q(arguments *a, const passed *p, int dtype) {
  const int64_t rows = p->sizes[0], columns = p->sizes[1], less = rows < columns ? rows : columns;
  (void)dtype;
  return p->sizes[2] == less && read_q(a, p, less, less);
}

static bool read_complete_q(arguments *a, const passed *p, int dtype) {
  (void)dtype;
  return read_q(a, p, p->sizes[0], p->sizes[1]);
}

/* The CPU solves the system of R. Of a matrix that is not tall, or of a large R, the device finds the singular values,
 * in the hook of gelsd. */
static bool read_lstsq(arguments *a, const passed *p, int dtype) {
  const int64_t rows = p->sizes[0], columns = p->sizes[1], nrhs = p->sizes[2];
  (void)dtype;
  *a = (arguments){.m = rows, .n = columns, .nrhs = nrhs, .lwork = INT64_MAX, .a = p->at[0], .b = p->at[1]};
  return columns <= 1024 && rows >= 2 * columns && nrhs > 0 && !is_small(rows, columns, columns) &&
         has_rows(p, 0, rows, columns, &a->lda) && has_rows(p, 2, rows, nrhs, &a->ldb);
}

/* NumPy's loop calls syrk for a matrix and its own transpose. */
static bool read_gram(arguments *a, const passed *p, int dtype) {
  const int64_t n = p->sizes[0], k = p->sizes[1], itemsize = p->itemsize;
  (void)dtype;
  if (p->at[0] != p->at[1] || n != p->sizes[2] || p->steps[0] != p->steps[3] || p->steps[1] != p->steps[2])
    return false;
  const bool rows = p->steps[1] == itemsize, columns = p->steps[0] == itemsize;
  const intptr_t step = p->steps[rows ? 0 : 1];
  *a = (arguments){.trans = rows ? 'T' : 'N', .n = n, .k = k, .lda = step / itemsize, .a = p->at[0], .c = p->at[2]};
  return rows != columns && step % itemsize == 0 && a->lda >= (rows ? k : n) && !is_small(n, n, k) &&
         is_dense(p, 4, n, n);
}

/* -- the table -- */

typedef struct kind {
  const char *function, *signature; /* of NumPy */
  int extents;                      /* how many of its sizes count, beginning with the first */
  const char *types;                /* of the operands: T, the loop's type; R, the type of its real numbers; i, int */
  const char *routine;              /* its name in reports, without the letter of its type */
  const oa_lapack_family *family;   /* plans and makes the call */
  bool (*read)(arguments *a, const passed *p, int dtype); /* returns false for arrays that NumPy's own loop takes */
} kind;

static const kind kinds[] = {
    {"solve", "(m,m),(m,n)->(m,n)", 1, "TTT", "solve", &solve_family, read_solve},
    {"solve1", "(m,m),(m)->(m)", 1, "TTT", "solve", &solve_family, read_solve1},
    {"inv", "(m,m)->(m,m)", 1, "TT", "inv", &inv_family, read_square},
    {"cholesky_lo", "(m,m)->(m,m)", 1, "TT", "cholesky", &cholesky_family, read_square},
    {"eigh_lo", "(m,m)->(m),(m,m)", 1, "TRT", "eigh", &eigh_family, read_lower_vectors},
    {"eigh_up", "(m,m)->(m),(m,m)", 1, "TRT", "eigh", &eigh_family, read_upper_vectors},
    {"eigvalsh_lo", "(m,m)->(m)", 1, "TR", "eigvalsh", &eigh_family, read_lower_values},
    {"eigvalsh_up", "(m,m)->(m)", 1, "TR", "eigvalsh", &eigh_family, read_upper_values},
    {"svd", "(m,n)->(p)", 2, "TR", "svd", &svd_family, read_values},
    {"svd_f", "(m,n)->(m,m),(p),(n,n)", 2, "TTRT", "svd", &svd_family, read_full},
    {"svd_s", "(m,n)->(m,p),(p),(p,n)", 2, "TTRT", "svd", &svd_family, read_reduced},
    {"qr_r_raw", "(m,n)->(p)", 2, "TT", "qr", &qr_family, read_reflectors},
    {"qr_reduced", "(m,n),(k)->(m,k)", 2, "TTT", "qr_q", &qr_q_family, read_reduced_q},
    {"qr_complete", "(m,n),(n)->(m,m)", 2, "TTT", "qr_q", &qr_q_family, read_complete_q},
    {"lstsq", "(m,n),(m,nrhs),()->(n,nrhs),(nrhs),(),(p)", 2, "TTRTRiR", "lstsq", &lstsq_family, read_lstsq},
    {"matmul", "(n?,k),(k,m?)->(n?,m?)", 3, "TTT", "gram", &gram_family, read_gram},
};
enum { KINDS = sizeof kinds / sizeof *kinds, TYPES = 4, LOOPS = KINDS * TYPES };
static const int dtypes[TYPES] = {OA_F32, OA_F64, OA_C64, OA_C128};

static oa_accelerate_loop loops[LOOPS];
static const oa_hooked *routines[LOOPS];

/* Returns NumPy's own loop. While a thread puts the hook in place, another thread may call the hook already, if Python
 * has no lock for all threads. */
static oa_loop_function original_of(int number) {
  oa_loop_function original;
  while (!(original = __atomic_load_n(&loops[number].original, __ATOMIC_ACQUIRE))) sched_yield();
  return original;
}

/* Returns whether even the largest product of three sizes is small. Most calls of programs are, and take no other step
 * of a hook. With one size this is the whole check; `read` compares the product of two or three sizes. */
static inline bool is_tiny(int extents, const intptr_t *sizes) {
  int64_t most = sizes[1];
  for (int i = 2; i <= extents; i++) most = sizes[i] > most ? sizes[i] : most;
  return is_small(most, most, most);
}

static void run(int number, char **at, const intptr_t *sizes, const intptr_t *steps, void *data) {
  const kind *kind = &kinds[number / TYPES];
  const int dtype = dtypes[number % TYPES];
  const passed passed = {at, sizes + 1, steps + strlen(kind->types), oa_itemsize(dtype)};
  arguments a;
  oa_program_call call;
  int32_t info = 0;
  /* On a device without these steps, NumPy's loop reaches the hook of syrk. */
  if (sizes[0] != 1 || (kind->family->is_blas && !oa_program_has_steps()) || !kind->read(&a, &passed, dtype)) {
    original_of(number)(at, sizes, steps, data);
    return;
  }
  const numpy_call numpy = {number, at, sizes, steps, data};
  a.info = &info;
  a.numpy = &numpy;
  if (oa_lapack_try(kind->family, routines[number], &a, &call)) return;
  original_of(number)(at, sizes, steps, data);
  /* NumPy's loop clears this flag, and raises it if LAPACK's info is not 0. Such a call breaks off, so its time does
   * not predict the time of other calls. */
  call.is_odd |= fetestexcept(FE_INVALID) != 0;
  oa_program_by_host(&call);
}

#define LOOP(kind, type)                                                                                  \
  static void loop_##kind##_##type(char **at, const intptr_t *sizes, const intptr_t *steps, void *data) { \
    if (is_tiny(kinds[kind].extents, sizes))                                                              \
      original_of(kind * TYPES + type)(at, sizes, steps, data);                                           \
    else                                                                                                  \
      run(kind * TYPES + type, at, sizes, steps, data);                                                   \
  }
#define NAME(kind, type) loop_##kind##_##type,
#define EACH_TYPE(M, kind) M(kind, 0) M(kind, 1) M(kind, 2) M(kind, 3)
#define SIX_KINDS(M, a, b, c, d, e, f) \
  EACH_TYPE(M, a) EACH_TYPE(M, b) EACH_TYPE(M, c) EACH_TYPE(M, d) EACH_TYPE(M, e) EACH_TYPE(M, f)
#define ALL(M)                     \
  SIX_KINDS(M, 0, 1, 2, 3, 4, 5)   \
  SIX_KINDS(M, 6, 7, 8, 9, 10, 11) \
  EACH_TYPE(M, 12) EACH_TYPE(M, 13) EACH_TYPE(M, 14) EACH_TYPE(M, 15)
ALL(LOOP)

static void fill(void) {
  static const oa_loop_function hooks[LOOPS] = {ALL(NAME)};
  char name[16];
  for (int i = 0; i < LOOPS; i++) {
    const kind *kind = &kinds[i / TYPES];
    snprintf(name, sizeof name, "%c%s", "sdcz"[i % TYPES], kind->routine);
    routines[i] = oa_hook_routine(name);
    loops[i].function = kind->function;
    loops[i].signature = kind->signature;
    loops[i].hook = hooks[i];
    for (int j = 0; kind->types[j]; j++)
      loops[i].types[j] = (kind->types[j] == 'i' ? "iiii" : kind->types[j] == 'T' ? "fdFD" : "fdfd")[i % TYPES];
  }
}

oa_accelerate_loop *oa_accelerate_loop_at(int number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!&oa_hooks || !oa_hooks.count || number < 0 || number >= LOOPS) return NULL;
  pthread_once(&once, fill);
  return &loops[number];
}
