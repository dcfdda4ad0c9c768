/* The loops of NumPy's generalized functions, such as numpy.linalg.solve, that go to a device as a whole. NumPy's own
 * loop of such a function copies matrices into the order of LAPACK before the call, and copies results back after it.
 * On large matrices in C order, these copies take longer than the call on a device. A hook of a loop passes the arrays
 * as they are: read by columns, the memory of A is its transpose. */
#include "accelerate/hooks.h"
#include "accelerate/lapack.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
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
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, nrhs, &X));
  OA_TRY(oa_lapack_transpose(l, 'T', n, nrhs, p[1], ldb, X, n));
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
  const char *types;                /* of the operands: T, the loop's type, or R, the type of its real numbers */
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
    {"eigvalsh_lo", "(m,m)->(m)", 1, "TR", "eigh", &eigh_family, read_lower_values},
    {"eigvalsh_up", "(m,m)->(m)", 1, "TR", "eigh", &eigh_family, read_upper_values},
    {"svd", "(m,n)->(p)", 2, "TR", "svd", &svd_family, read_values},
    {"svd_f", "(m,n)->(m,m),(p),(n,n)", 2, "TTRT", "svd", &svd_family, read_full},
    {"svd_s", "(m,n)->(m,p),(p),(p,n)", 2, "TTRT", "svd", &svd_family, read_reduced},
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
  a.info = &info;
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
#define ALL(M) SIX_KINDS(M, 0, 1, 2, 3, 4, 5) SIX_KINDS(M, 6, 7, 8, 9, 10, 11)
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
    for (int j = 0; kind->types[j]; j++) loops[i].types[j] = (kind->types[j] == 'T' ? "fdFD" : "fdfd")[i % TYPES];
  }
}

oa_accelerate_loop *oa_accelerate_loop_at(int number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!&oa_hooks || !oa_hooks.count || number < 0 || number >= LOOPS) return NULL;
  pthread_once(&once, fill);
  return &loops[number];
}
