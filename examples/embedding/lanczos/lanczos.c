/* The largest eigenvalues of a symmetric matrix, and the eigenvector of the first, by Lanczos' method.
 *
 *   lanczos [N [STEPS [COUNT]]]
 *
 * The matrix is the covariance of N points on a line under the kernel exp(-|s - t| / length), with some noise. After G.
 * H. Golub and C. F. Van Loan, Matrix Computations, chapter 10: the recurrence makes a tridiagonal matrix T of STEPS
 * rows, whose extreme eigenvalues are close to the matrix's extreme eigenvalues. Eigenvalues of T are found by
 * bisection with Sturm sequences, and its eigenvectors by inverse iteration. The basis is not stored: a second pass
 * computes it again for the eigenvector. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The work of one run: the matrix by columns, and the vectors of the recurrence. */
typedef struct {
  int n;
  double *A;
  double *start, *v, *previous, *w, *y;
} Problem;

/* A symmetric tridiagonal matrix: its diagonal, and the elements beside the diagonal. */
typedef struct {
  int n;
  double *diagonal, *beside;
} Tridiagonal;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t count) {
  void *memory = calloc(count, sizeof(double));
  if (!memory) {
    fprintf(stderr, "lanczos: no memory for %zu numbers\n", count);
    exit(1);
  }
  return memory;
}

/* -- the problem --------------------------------------------------------------------------------------------------- */

/* Fills the matrix with the covariance of equally spaced points in [0, 1]. */
static void fill_matrix(int n, double *A) {
  const double length = 0.1, noise = 1e-3;
  for (int j = 0; j < n; j++) {
    for (int i = 0; i < n; i++) A[i + (size_t)j * n] = exp(-abs(i - j) / (length * n)) + (i == j ? noise : 0);
  }
}

/* Fills the start vector of the recurrence. It has length 1, and is the same in each run. */
static void fill_start(int n, double *v) {
  unsigned state = 12345;
  double sum = 0;
  for (int i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    v[i] = 0.5 + (double)(state >> 8) / (1 << 24);
    sum += v[i] * v[i];
  }
  for (int i = 0; i < n; i++) v[i] /= sqrt(sum);
}

static void make_problem(Problem *problem, int n) {
  problem->n = n;
  problem->A = allocate((size_t)n * n);
  problem->start = allocate(n);
  problem->v = allocate(n);
  problem->previous = allocate(n);
  problem->w = allocate(n);
  problem->y = allocate(n);
  fill_matrix(n, problem->A);
  fill_start(n, problem->start);
}

static void free_problem(Problem *problem) {
  free(problem->A);
  free(problem->start);
  free(problem->v);
  free(problem->previous);
  free(problem->w);
  free(problem->y);
}

/* -- the tridiagonal matrix ---------------------------------------------------------------------------------------- */

static void make_tridiagonal(Tridiagonal *T, int n) {
  T->n = n;
  T->diagonal = allocate(n);
  T->beside = allocate(n);
}

static void free_tridiagonal(Tridiagonal *T) {
  free(T->diagonal);
  free(T->beside);
}

/* Counts the eigenvalues below x: the negative pivots of T - x I. */
static int count_below(const Tridiagonal *T, double x) {
  int count = 0;
  double pivot = 1;
  for (int i = 0; i < T->n; i++) {
    const double beside = i ? T->beside[i - 1] : 0;
    pivot = T->diagonal[i] - x - (i ? beside * beside / pivot : 0);
    if (pivot == 0) pivot = 1e-300;
    count += pivot < 0;
  }
  return count;
}

/* Sets an interval that has all eigenvalues, by Gershgorin's circles. */
static void bounds(const Tridiagonal *T, double *low, double *high) {
  *low = *high = T->diagonal[0];
  for (int i = 0; i < T->n; i++) {
    const double left = i ? fabs(T->beside[i - 1]) : 0;
    const double right = i < T->n - 1 ? fabs(T->beside[i]) : 0;
    *low = fmin(*low, T->diagonal[i] - left - right);
    *high = fmax(*high, T->diagonal[i] + left + right);
  }
}

/* Returns the k-th largest eigenvalue, from 0, by bisection. */
static double eigenvalue_of(const Tridiagonal *T, int k) {
  double low, high;
  bounds(T, &low, &high);
  while (high - low > 1e-14 * fmax(fabs(low), fabs(high))) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    if (T->n - count_below(T, middle) > k)
      low = middle;
    else
      high = middle;
  }
  return low + (high - low) / 2;
}

/* Finds the largest distinct eigenvalues, because rounding makes copies of a converged eigenvalue. Returns their
 * number. */
static int find_eigenvalues(const Tridiagonal *T, int count, double *eigenvalues) {
  int known = 0;
  for (int k = 0; k < T->n && known < count; k++) {
    const double next = eigenvalue_of(T, k);
    if (known && eigenvalues[known - 1] - next < 1e-6 * fabs(next)) continue;
    eigenvalues[known++] = next;
  }
  return known;
}

/* Solves (T - x I) z = z by elimination with row exchanges; the exchanged rows fill a second diagonal. */
static void solve_shifted(const Tridiagonal *T, double x, double *z) {
  const int n = T->n;
  double *pivot = allocate(n), *next = allocate(n), *second = allocate(n);
  double head = T->diagonal[0] - x, right = n > 1 ? T->beside[0] : 0;
  for (int i = 0; i < n - 1; i++) {
    const double below = T->beside[i], diagonal = T->diagonal[i + 1] - x, after = i < n - 2 ? T->beside[i + 1] : 0;
    if (fabs(head) >= fabs(below)) {
      const double factor = head == 0 ? 0 : below / head;
      pivot[i] = head;
      next[i] = right;
      z[i + 1] -= factor * z[i];
      head = diagonal - factor * right;
      right = after;
    } else {
      const double factor = head / below, own = z[i];
      pivot[i] = below;
      next[i] = diagonal;
      second[i] = after;
      z[i] = z[i + 1];
      z[i + 1] = own - factor * z[i];
      head = right - factor * diagonal;
      right = -factor * after;
    }
  }
  pivot[n - 1] = head;
  for (int i = n - 1; i >= 0; i--) {
    double sum = z[i];
    if (i < n - 1) sum -= next[i] * z[i + 1];
    if (i < n - 2) sum -= second[i] * z[i + 2];
    z[i] = sum / (pivot[i] == 0 ? 1e-300 : pivot[i]);
  }
  free(pivot);
  free(next);
  free(second);
}

/* Computes the eigenvector of T for an eigenvalue, of length 1, by inverse iteration. */
static void eigenvector_of(const Tridiagonal *T, double eigenvalue, double *z) {
  for (int i = 0; i < T->n; i++) z[i] = 1;
  for (int round = 0; round < 3; round++) {
    double sum = 0;
    solve_shifted(T, eigenvalue, z);
    for (int i = 0; i < T->n; i++) sum += z[i] * z[i];
    for (int i = 0; i < T->n; i++) z[i] /= sqrt(sum);
  }
}

/* -- the recurrence ---------------------------------------------------------------------------------------------- */

/* One step: computes w = A v - beta previous - alpha v, and its length. Then w, divided by this length, becomes v. */
static int step(int n, double *A, double **v, double **previous, double **w, double before, double *alpha,
                double *beta) {
  double *next;
  cblas_dsymv(CblasColMajor, CblasLower, n, 1.0, A, n, *v, 1, 0.0, *w, 1);
  cblas_daxpy(n, -before, *previous, 1, *w, 1);
  *alpha = cblas_ddot(n, *w, 1, *v, 1);
  cblas_daxpy(n, -*alpha, *v, 1, *w, 1);
  *beta = cblas_dnrm2(n, *w, 1);
  if (*beta > 0) cblas_dscal(n, 1.0 / *beta, *w, 1);
  next = *w;
  *w = *previous;
  *previous = *v;
  *v = next;
  return 0;
}

/* The first pass makes T, which becomes smaller if the recurrence ends early. */
static int make_t(int n, double *A, double *start, double *v, double *previous, double *w, Tridiagonal *T) {
  double before = 0;
  cblas_dcopy(n, start, 1, v, 1);
  for (int j = 0; j < T->n; j++) {
    if (step(n, A, &v, &previous, &w, before, &T->diagonal[j], &T->beside[j])) return 1;
    before = T->beside[j];
    if (before < 1e-12 * fabs(T->diagonal[0])) T->n = j + 1;
  }
  return 0;
}

/* The second pass adds up the eigenvector y = z_0 v_0 + z_1 v_1 + ... */
static int make_y(int n, double *A, double *start, double *v, double *previous, double *w, double *y, int steps,
                  const double *z) {
  double before = 0, alpha;
  cblas_dcopy(n, start, 1, v, 1);
  for (int j = 0; j < steps; j++) {
    cblas_daxpy(n, z[j], v, 1, y, 1);
    if (step(n, A, &v, &previous, &w, before, &alpha, &before)) return 1;
  }
  return 0;
}

/* Computes T, its largest eigenvalues, and the eigenvector of the first eigenvalue. */
static int lanczos(Problem *problem, Tridiagonal *T, int count, double *eigenvalues) {
  const int n = problem->n;
  double *A = problem->A, *start = problem->start, *y = problem->y;
  double *v = problem->v, *previous = problem->previous, *w = problem->w;
  double *z = allocate(T->n);
  int failed = make_t(n, A, start, v, previous, w, T);
  if (!failed) {
    find_eigenvalues(T, count, eigenvalues);
    eigenvector_of(T, eigenvalues[0], z);
    failed = make_y(n, A, start, v, previous, w, y, T->n, z);
  }
  free(z);
  return failed;
}

/* Returns |A y - eigenvalue y| / |y|, on the host, and row by row. */
static double residual(const Problem *problem, double eigenvalue) {
  const int n = problem->n;
  double errors = 0, lengths = 0;
  for (int i = 0; i < n; i++) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += problem->A[j + (size_t)i * n] * problem->y[j];
    errors += (sum - eigenvalue * problem->y[i]) * (sum - eigenvalue * problem->y[i]);
    lengths += problem->y[i] * problem->y[i];
  }
  return sqrt(errors / lengths);
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 1000;
  const int steps = argc > 2 ? atoi(argv[2]) : 30;
  const int count = argc > 3 ? atoi(argv[3]) : 3;
  if (n < 1 || steps < 1 || steps > n || count < 1 || count > steps) {
    fprintf(stderr, "usage: lanczos [N [STEPS [COUNT]]] with COUNT <= STEPS <= N\n");
    return 2;
  }
  Problem problem;
  Tridiagonal T;
  double *eigenvalues = allocate(count);
  make_problem(&problem, n);
  make_tridiagonal(&T, steps);
  const double begun = now();
  const int failed = lanczos(&problem, &T, count, eigenvalues);
  const double seconds = now() - begun;
  if (!failed) {
    for (int k = 0; k < count; k++) printf("eigenvalue %d: %.9f\n", k + 1, eigenvalues[k]);
    printf("residual of the first: %.1e\n", residual(&problem, eigenvalues[0]));
    fprintf(stderr, "%.3f s\n", seconds);
  }
  free_tridiagonal(&T);
  free_problem(&problem);
  free(eigenvalues);
  return failed;
}
