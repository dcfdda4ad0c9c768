/* Calls of BLAS and LAPACK by Fortran's names, timed, for beside_nvblas.py, which runs this program as it is and with
 * libraries that take its calls.
 *
 *     beside_nvblas ROUNDS SETTLE TASK:N...
 *
 * It prints a line for each task: its name, the milliseconds of the first call, the median of up to ROUNDS later calls
 * (0 without any), and a random sum of the result and its norm, for a comparison of results. All operands are written
 * anew before each call, outside of its time, so that no copy of an earlier call serves. After the first call of the
 * first task, and of the first task of LAPACK, the call is repeated for SETTLE seconds, in which a device may open. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef const char *letter;
typedef const int *integer;

void sgemm_(letter, letter, integer m, integer n, integer k, const float *alpha, const float *A, integer lda,
            const float *B, integer ldb, const float *beta, float *C, integer ldc);
void dgemm_(letter, letter, integer m, integer n, integer k, const double *alpha, const double *A, integer lda,
            const double *B, integer ldb, const double *beta, double *C, integer ldc);
void dsyrk_(letter uplo, letter trans, integer n, integer k, const double *alpha, const double *A, integer lda,
            const double *beta, double *C, integer ldc);
void dtrsm_(letter side, letter uplo, letter trans, letter diag, integer m, integer n, const double *alpha,
            const double *A, integer lda, double *B, integer ldb);
void dgemv_(letter trans, integer m, integer n, const double *alpha, const double *A, integer lda, const double *x,
            integer incx, const double *beta, double *y, integer incy);
#ifdef WITH_LAPACK
void dpotrf_(letter uplo, integer n, double *A, integer lda, int *info);
void dgesv_(integer n, integer nrhs, double *A, integer lda, int *pivots, double *B, integer ldb, int *info);
#endif

enum { PRODUCTS = 10, VECTOR_PRODUCTS = 20, RIGHT_SIDES = 8, MOST_ROUNDS = 100 };
static const double most_seconds = 5; /* of the later calls of a task */

/* The operands, for n x n elements of double each. */
static int n;
static void *A, *B, *C;
static int *pivots;
static const int one = 1;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Returns a number from -0.5 to 0.5. */
static double next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(*state >> 32) * 0x1p-32;
}

static void fill(double *at, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; i++) at[i] = next(&seed);
}

static void fill_single(float *at, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; i++) at[i] = (float)next(&seed);
}

static void add_to_diagonal(double *at) {
  for (size_t i = 0; i < (size_t)n; i++) at[i + i * (size_t)n] += n;
}

static void call_sgemm(void) {
  const float alpha = 1, beta = 0;
  sgemm_("N", "N", &n, &n, &n, &alpha, A, &n, B, &n, &beta, C, &n);
}

static void multiply(const double *left, const double *right, double alpha, double *product) {
  const double beta = 0;
  dgemm_("N", "N", &n, &n, &n, &alpha, left, &n, right, &n, &beta, product, &n);
}

static void call_dgemm(void) { multiply(A, B, 1, C); }

/* Returns the factor that keeps the size of the elements of A's products, such as A (A B). */
static double factor(void) { return sqrt(12.0 / n); }

/* Multiplies by A from the left many times; C takes each second product. */
static void call_products(void) {
  for (int i = 0; i < PRODUCTS; i++) multiply(A, i % 2 ? C : B, factor(), i % 2 ? B : C);
}

static void call_dsyrk(void) {
  const double alpha = 1, beta = 0;
  dsyrk_("L", "N", &n, &n, &alpha, A, &n, &beta, C, &n);
}

static void call_dtrsm(void) {
  const double alpha = n;
  dtrsm_("L", "L", "N", "N", &n, &n, &alpha, A, &n, B, &n);
}

static void call_dgemv(void) {
  const double alpha = factor(), beta = 0;
  for (int i = 0; i < VECTOR_PRODUCTS; i++)
    dgemv_("N", &n, &n, &alpha, A, &n, i % 2 ? C : B, &one, &beta, i % 2 ? B : C, &one);
}

#ifdef WITH_LAPACK
static void check(const char *routine, int info) {
  if (!info) return;
  fprintf(stderr, "%s: info is %d\n", routine, info);
  exit(1);
}

static void call_dpotrf(void) {
  int info;
  dpotrf_("L", &n, A, &n, &info);
  check("dpotrf", info);
}

static void call_dgesv(void) {
  const int right_sides = RIGHT_SIDES;
  int info;
  dgesv_(&n, &right_sides, A, &n, pivots, B, &n, &info);
  check("dgesv", info);
}
#endif

/* Which array has the result, and how many rows or columns of n elements it has; 0 is for n. */
static const struct task {
  const char *name;
  void (*call)(void);
  void **result;
  int columns;
  enum { GENERAL, DOMINANT } matrix; /* A's diagonal is larger than the rest of its row for DOMINANT */
  int is_lapack;
} tasks[] = {
    {"sgemm", call_sgemm, &C, 0, GENERAL, 0},       {"dgemm", call_dgemm, &C, 0, GENERAL, 0},
    {"products", call_products, &B, 0, GENERAL, 0}, {"dsyrk", call_dsyrk, &C, 0, GENERAL, 0},
    {"dtrsm", call_dtrsm, &B, 0, DOMINANT, 0},      {"dgemv", call_dgemv, &B, 1, GENERAL, 0},
#ifdef WITH_LAPACK
    {"dpotrf", call_dpotrf, &A, 0, DOMINANT, 1},    {"dgesv", call_dgesv, &B, RIGHT_SIDES, GENERAL, 1},
#endif
};

/* Writes the operands, and returns the seconds of one call. */
static double timed(const struct task *task) {
  const size_t count = (size_t)n * (size_t)n;
  if (task->call == call_sgemm) {
    fill_single(A, count, 1);
    fill_single(B, count, 2);
    memset(C, 0, count * sizeof(float));
  } else {
    fill(A, count, 1);
    fill(B, task->columns ? (size_t)n * (size_t)task->columns : count, 2);
    memset(C, 0, count * sizeof(double));
    if (task->matrix == DOMINANT) add_to_diagonal(A);
  }
  const double begun = now();
  task->call();
  return now() - begun;
}

static int compare(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void run(const struct task *task, int rounds, double settle) {
  double taken[MOST_ROUNDS], sum = 0, squares = 0;
  const double first = timed(task), begun = now();
  while (now() - begun < settle) timed(task);
  double left = most_seconds;
  int calls = 0;
  while (calls < rounds && left > 0) left -= taken[calls++] = timed(task);
  qsort(taken, (size_t)calls, sizeof taken[0], compare);
  const size_t count = (size_t)n * (size_t)(task->columns ? task->columns : n);
  uint64_t state = 3;
  for (size_t i = 0; i < count; i++) {
    const double value = task->call == call_sgemm ? ((float *)*task->result)[i] : ((double *)*task->result)[i];
    sum += value * next(&state);
    squares += value * value;
  }
  printf("%s:%d,%.6g,%.6g,%.17g,%.17g\n", task->name, n, first * 1e3, calls ? taken[calls / 2] * 1e3 : 0, sum,
         sqrt(squares));
  fflush(stdout);
}

static int run_word(const char *word, int rounds, double settle, int *is_settled) {
  const char *colon = strchr(word, ':');
  if (!colon) return -1;
  n = atoi(colon + 1);
  for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
    const struct task *task = &tasks[i];
    if (n < RIGHT_SIDES || strlen(task->name) != (size_t)(colon - word) ||
        strncmp(task->name, word, strlen(task->name)))
      continue;
    const size_t bytes = (size_t)n * (size_t)n * sizeof(double);
    A = malloc(bytes), B = malloc(bytes), C = malloc(bytes), pivots = malloc((size_t)n * sizeof(int));
    if (!A || !B || !C || !pivots) return -1;
    run(task, rounds, is_settled[task->is_lapack] ? 0 : settle);
    is_settled[task->is_lapack] = 1;
    free(A), free(B), free(C), free(pivots);
    return 0;
  }
  return -1;
}

int main(int count, char **words) {
  int is_settled[2] = {0, 0};
  const int rounds = count > 2 ? atoi(words[1]) : -1;
  const double settle = count > 2 ? atof(words[2]) : 0;
  if (rounds < 0 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "needs ROUNDS (0 to %d) SETTLE TASK:N...\n", MOST_ROUNDS);
    return 2;
  }
  for (int i = 3; i < count; i++)
    if (run_word(words[i], rounds, settle, is_settled)) {
      fprintf(stderr, "%s: no such task, or no memory\n", words[i]);
      return 1;
    }
  return 0;
}
