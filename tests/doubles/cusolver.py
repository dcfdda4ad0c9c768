"""Writes a double of cuSOLVER in C, for the double of a GPU.

Each function computes by LAPACKE's function of the same name.

    python tests/doubles/cusolver.py > cusolver.c

It has the functions that `offload_args.lapack` calls, and some functions of each other kind: batches, exchanges of
rows, and the 64-bit interface with its settings. It checks that arrays, info and workspaces are on the device, and that
workspaces have the queried size; it overwrites all of a workspace. Like cuSOLVER, it refuses gesvd of a matrix with
more columns than rows.
"""

from __future__ import annotations

import re
import sys

PRELUDE = """
#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

typedef struct handle {
  int magic;
  void *context, *stream;
} *handle;
typedef struct params {
  int magic, main, most, iterations; /* the last three of iterative refinement */
} *params;

int cuCtxGetCurrent(void **context);
int cuStreamIsCapturing(void *stream, int *status);
int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);
int gpu_double_waits(const void *stream);
int gpu_double_unsafe(void);

enum { MAGIC = 0x501e, SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3, COLUMNS = 102 };
enum { DEVICE_BYTES = 96, HOST_BYTES = 56 }; /* of the 64-bit interface */

static int is_array(const void *pointer) { return !pointer || kind_of(pointer) != 0; }
static int is_work(void *pointer, size_t bytes, size_t needed) {
  if (bytes < needed || (needed && kind_of(pointer) != 2)) return 0;
  if (needed) memset(pointer, 0xa5, needed);
  return 1;
}
static int is_host_work(void *pointer, size_t bytes) {
  if (bytes < HOST_BYTES || !pointer || kind_of(pointer) == 2) return 0;
  memset(pointer, 0xa5, HOST_BYTES);
  return 1;
}
static int is_good(const struct handle *h) { /* while it lives, in the context in which it was made */
  void *current = NULL;
  if (!h || h->magic != MAGIC) return 0;
  cuCtxGetCurrent(&current);
  return !h->context || h->context == current;
}
/* The functions of this double compute at once, and all but those that CAPTURED names spoil the capture of their
 * stream. */
static _Thread_local int is_replayed;
static int computes(const struct handle *h) { return is_good(h) && (is_replayed || !gpu_double_waits(h->stream)); }

/* A captured call: a function, and its arguments, all of them integers and addresses. */
struct late {
  int (*function)(long, long, long, long, long, long, long, long, long, long, long, long, long, long);
  long a[14];
};
static int run_late(const void *arguments, void *stream) {
  const struct late *late = arguments;
  const long *a = late->a, *b = late->a + 7;
  (void)stream;
  is_replayed = 1;
  const int status = late->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], b[0], b[1], b[2], b[3], b[4], b[5], b[6]);
  is_replayed = 0;
  return status;
}
/* Notes a call if the stream of its handle is captured. Returns whether it did. */
static int is_captured(const struct handle *h, const struct late *late) {
  int capturing = 0;
  if (is_replayed || !is_good(h) || cuStreamIsCapturing(h->stream, &capturing) || !capturing) return 0;
  return gpu_double_captures(h->stream, run_late, late, sizeof *late);
}

void scipy_LAPACKE_set_nancheck(int);

int cusolverDnCreate(handle *h) { /* allocates memory */
  if (gpu_double_unsafe()) return NOT_INITIALIZED;
  scipy_LAPACKE_set_nancheck(0); /* cuSOLVER does not look for NaN */
  *h = calloc(1, sizeof **h);
  (*h)->magic = MAGIC;
  cuCtxGetCurrent(&(*h)->context);
  return SUCCESS;
}
int cusolverDnDestroy(handle h) {
  if (!is_good(h) || gpu_double_unsafe()) return NOT_INITIALIZED;
  h->magic = 0;
  free(h);
  return SUCCESS;
}
int cusolverDnSetStream(handle h, void *stream) { h->stream = stream; return SUCCESS; }
int cusolverDnGetStream(handle h, void **stream) { *stream = h->stream; return SUCCESS; }
int cusolverGetProperty(int part, int *value) {
  if (part < 0 || part > 2) return INVALID_VALUE;
  *value = part ? 0 : 12;
  return SUCCESS;
}
int cusolverDnCreateParams(params *p) { *p = calloc(1, sizeof **p); (*p)->magic = MAGIC; return SUCCESS; }
int cusolverDnDestroyParams(params p) { p->magic = 0; free(p); return SUCCESS; }
int cusolverDnCreateSyevjInfo(params *p) { return cusolverDnCreateParams(p); }
int cusolverDnDestroySyevjInfo(params p) { return cusolverDnDestroyParams(p); }
int cusolverDnCreateGesvdjInfo(params *p) { return cusolverDnCreateParams(p); }
int cusolverDnDestroyGesvdjInfo(params p) { return cusolverDnDestroyParams(p); }
int cusolverDnXsyevjSetTolerance(params p, double tolerance) {
  return p->magic == MAGIC && tolerance > 0 && tolerance < 1 ? SUCCESS : INVALID_VALUE;
}
int cusolverDnXsyevjSetMaxSweeps(params p, int most) {
  return p->magic == MAGIC && most > 0 ? SUCCESS : INVALID_VALUE;
}
static const char trans_of[] = "NTC";
"""

# T, R and the names of functions of Q and of eigenvalues depend on the dtype; they replace the words in {}.
ROUTINES = """
int scipy_LAPACKE_{t}potrf_work(int, char, int, {T} *, int);
int scipy_LAPACKE_{t}potri_work(int, char, int, {T} *, int);
int scipy_LAPACKE_{t}trtri_work(int, char, char, int, {T} *, int);
int scipy_LAPACKE_{t}potrs_work(int, char, int, int, const {T} *, int, {T} *, int);
int scipy_LAPACKE_{t}getrf_work(int, int, int, {T} *, int, int *);
int scipy_LAPACKE_{t}getrs_work(int, char, int, int, const {T} *, int, const int *, {T} *, int);
int scipy_LAPACKE_{t}geqrf(int, int, int, {T} *, int, {T} *);
int scipy_LAPACKE_{t}{or}mqr(int, char, char, int, int, int, const {T} *, int, const {T} *, {T} *, int);
int scipy_LAPACKE_{t}{or}gqr(int, int, int, int, {T} *, int, const {T} *);
int scipy_LAPACKE_{t}{sy}evd(int, char, char, int, {T} *, int, {R} *);
int scipy_LAPACKE_{t}gesvd(int, char, char, int, int, {T} *, int, {R} *, {T} *, int, {T} *, int, {R} *);

#define SIZE_{t}(name, parameters, count)                    \\
  int cusolverDn{U}##name##_bufferSize parameters {          \\
    if (!is_good(h) || n < 0) return INVALID_VALUE;     \\
    *lwork = (int)(count);                              \\
    return SUCCESS;                                     \\
  }
#define CHECKED_{t}(A, info, count)                                        \\
  if (!computes(h)) return NOT_INITIALIZED;                                 \\
  if (n < 0 || lda < 1 || !is_array(A) || kind_of(info) != 2) return INVALID_VALUE; \\
  if (!is_work(work, (size_t)lwork * sizeof *work, (size_t)(count) * sizeof *work)) return INVALID_VALUE;

SIZE_{t}(potrf, (handle h, int uplo, int n, {T} *A, int lda, int *lwork), 3 * n)
SIZE_{t}(potri, (handle h, int uplo, int n, {T} *A, int lda, int *lwork), n)
SIZE_{t}(getrf, (handle h, int m, int n, {T} *A, int lda, int *lwork), 2 * n + m)
SIZE_{t}(geqrf, (handle h, int m, int n, {T} *A, int lda, int *lwork), n)
SIZE_{t}({or}mqr, (handle h, int side, int trans, int m, int n, int k, const {T} *A, int lda, const {T} *tau,
         const {T} *C, int ldc, int *lwork), m + n)
SIZE_{t}({or}gqr, (handle h, int m, int n, int k, const {T} *A, int lda, const {T} *tau, int *lwork), n)
SIZE_{t}({sy}evd, (handle h, int jobz, int uplo, int n, const {T} *A, int lda, const {R} *W, int *lwork), 5 * n)
SIZE_{t}(gesvd, (handle h, int m, int n, int *lwork), m + 4 * n)
SIZE_{t}(gesvdaStridedBatched, (handle h, int jobz, int rank, int m, int n, const {T} *A, int lda, long long strideA,
         const {R} *S, long long strideS, const {T} *U, int ldu, long long strideU, const {T} *V, int ldv,
         long long strideV, int *lwork, int batch), m + n)

int cusolverDn{U}potrf(handle h, int uplo, int n, {T} *A, int lda, {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, 3 * n)
  *info = scipy_LAPACKE_{t}potrf_work(COLUMNS, uplo ? 'U' : 'L', n, A, lda);
  return SUCCESS;
}
int cusolverDn{U}potri(handle h, int uplo, int n, {T} *A, int lda, {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, n)
  *info = scipy_LAPACKE_{t}potri_work(COLUMNS, uplo ? 'U' : 'L', n, A, lda);
  return SUCCESS;
}
int cusolverDn{U}potrs(handle h, int uplo, int n, int nrhs, const {T} *A, int lda, {T} *B, int ldb, int *info) {
  if (!computes(h) || !is_array(A) || !is_array(B) || kind_of(info) != 2) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}potrs_work(COLUMNS, uplo ? 'U' : 'L', n, nrhs, A, lda, B, ldb);
  return SUCCESS;
}
int cusolverDn{U}potrfBatched(handle h, int uplo, int n, {T} *A[], int lda, int *info, int count) {
  if (!computes(h) || kind_of(A) != 2 || kind_of(info) != 2) return INVALID_VALUE;
  for (int i = 0; i < count; i++) {
    if (!is_array(A[i])) return INVALID_VALUE;
    info[i] = scipy_LAPACKE_{t}potrf_work(COLUMNS, uplo ? 'U' : 'L', n, A[i], lda);
  }
  return SUCCESS;
}
int cusolverDn{U}getrf(handle h, int m, int n, {T} *A, int lda, {T} *work, int *ipiv, int *info) {
  const int lwork = 2 * n + m; /* the function is not told */
  CHECKED_{t}(A, info, 2 * n + m)
  if (!is_array(ipiv)) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}getrf_work(COLUMNS, m, n, A, lda, ipiv);
  return SUCCESS;
}
int cusolverDn{U}getrs(handle h, int trans, int n, int nrhs, const {T} *A, int lda, const int *ipiv, {T} *B, int ldb,
                       int *info) {
  if (!computes(h) || !is_array(A) || !is_array(ipiv) || !is_array(B) || kind_of(info) != 2) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}getrs_work(COLUMNS, trans_of[trans], n, nrhs, A, lda, ipiv, B, ldb);
  return SUCCESS;
}
int cusolverDn{U}geqrf(handle h, int m, int n, {T} *A, int lda, {T} *tau, {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, n)
  if (!is_array(tau)) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}geqrf(COLUMNS, m, n, A, lda, tau);
  return SUCCESS;
}
int cusolverDn{U}{or}mqr(handle h, int side, int trans, int m, int n, int k, const {T} *A, int lda, const {T} *tau,
                         {T} *C, int ldc, {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, m + n)
  if (!is_array(tau) || !is_array(C)) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}{or}mqr(COLUMNS, side ? 'R' : 'L', trans_of[trans], m, n, k, A, lda, tau, C, ldc);
  return *info < 0 ? INVALID_VALUE : SUCCESS;
}
int cusolverDn{U}{or}gqr(handle h, int m, int n, int k, {T} *A, int lda, const {T} *tau, {T} *work, int lwork,
                         int *info) {
  CHECKED_{t}(A, info, n)
  *info = scipy_LAPACKE_{t}{or}gqr(COLUMNS, m, n, k, A, lda, tau);
  return SUCCESS;
}
int cusolverDn{U}{sy}evd(handle h, int jobz, int uplo, int n, {T} *A, int lda, {R} *W, {T} *work, int lwork,
                         int *info) {
  CHECKED_{t}(A, info, 5 * n)
  if (!is_array(W)) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}{sy}evd(COLUMNS, jobz ? 'V' : 'N', uplo ? 'U' : 'L', n, A, lda, W);
  return SUCCESS;
}
SIZE_{t}({sy}evj, (handle h, int jobz, int uplo, int n, const {T} *A, int lda, const {R} *W, int *lwork, params p),
         7 * n)
int cusolverDn{U}{sy}evj(handle h, int jobz, int uplo, int n, {T} *A, int lda, {R} *W, {T} *work, int lwork, int *info,
                         params p) {
  CHECKED_{t}(A, info, 7 * n)
  if (!is_array(W) || p->magic != MAGIC) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}{sy}evd(COLUMNS, jobz ? 'V' : 'N', uplo ? 'U' : 'L', n, A, lda, W);
  return SUCCESS;
}
/* Batches of small matrices: the single function for each. */
SIZE_{t}({sy}evjBatched, (handle h, int jobz, int uplo, int n, const {T} *A, int lda, const {R} *W, int *lwork,
         params p, int batch), 7 * n)
int cusolverDn{U}{sy}evjBatched(handle h, int jobz, int uplo, int n, {T} *A, int lda, {R} *W, {T} *work, int lwork,
                                int *info, params p, int batch) {
  for (int b = 0; b < batch; b++) {
    {T} *of_b = A + (long)b * lda * n;
    const int status = cusolverDn{U}{sy}evj(h, jobz, uplo, n, of_b, lda, W + (long)b * n, work, lwork, info + b, p);
    if (status) return status;
  }
  return SUCCESS;
}
SIZE_{t}(gesvdjBatched, (handle h, int jobz, int m, int n, const {T} *A, int lda, const {R} *S, const {T} *U, int ldu,
         const {T} *V, int ldv, int *lwork, params p, int batch), 2 * m + 5 * n)
int cusolverDn{U}gesvdjBatched(handle h, int jobz, int m, int n, {T} *A, int lda, {R} *S, {T} *U, int ldu, {T} *V,
                               int ldv, {T} *work, int lwork, int *info, params p, int batch) {
  CHECKED_{t}(A, info, 2 * m + 5 * n)
  const int least = m < n ? m : n;
  if (m > 32 || n > 32 || !jobz || !is_array(S) || !is_array(U) || !is_array(V) || p->magic != MAGIC)
    return INVALID_VALUE;
  for (long b = 0; b < batch; b++, A += lda * n, S += least, U += ldu * m, V += ldv * n) {
    {T} vt[32 * 32];
    {R} superb[33];
    info[b] = scipy_LAPACKE_{t}gesvd(COLUMNS, 'A', 'A', m, n, A, lda, S, U, ldu, vt, n, superb);
    for (int i = 0; i < n * n; i++) V[i / n + i % n * ldv] = ({T})conj(vt[i]);
  }
  return SUCCESS;
}
int cusolverDn{U}gesvdaStridedBatched(handle h, int jobz, int rank, int m, int n, const {T} *A, int lda,
                                      long long strideA, {R} *S, long long strideS, {T} *U, int ldu, long long strideU,
                                      {T} *V, int ldv, long long strideV, {T} *work, int lwork, int *info,
                                      double *residuals, int batch) {
  CHECKED_{t}(A, info, m + n)
  if (m < n || rank > n || !is_array(S) || !is_array(U) || !is_array(V) || residuals) return INVALID_VALUE;
  for (long b = 0; b < batch; b++) {
    const size_t size = (size_t)(m + n + 1) * (size_t)(n + 1);
    {T} *a = malloc(size * sizeof *a), *u = malloc(size * sizeof *u), *vt = malloc(size * sizeof *vt);
    {R} *s = malloc(size * sizeof *s), *superb = malloc(size * sizeof *superb);
    for (long i = 0; i < (long)m * n; i++) a[i] = A[b * strideA + i % m + i / m * lda];
    info[b] = scipy_LAPACKE_{t}gesvd(COLUMNS, 'S', 'S', m, n, a, m, s, u, m, vt, n, superb);
    for (long r = 0; r < rank; r++) {
      S[b * strideS + r] = s[r];
      for (long i = 0; jobz && i < m; i++) U[b * strideU + i + r * ldu] = u[i + r * m];
      for (long j = 0; jobz && j < n; j++) V[b * strideV + j + r * ldv] = ({T})conj(vt[r + j * n]);
    }
    free(a), free(u), free(vt), free(s), free(superb);
  }
  return SUCCESS;
}
int scipy_LAPACKE_{t}{sy}gvd(int, int, char, char, int, {T} *, int, {T} *, int, {R} *);
int scipy_LAPACKE_{t}sytrf(int, char, int, {T} *, int, int *);
int scipy_LAPACKE_{t}{sy}trf(int, char, int, {T} *, int, int *);
int scipy_LAPACKE_{t}sytrs(int, char, int, int, const {T} *, int, const int *, {T} *, int);
int scipy_LAPACKE_{t}{sy}trs(int, char, int, int, const {T} *, int, const int *, {T} *, int);
SIZE_{t}({sy}gvd, (handle h, int itype, int jobz, int uplo, int n, const {T} *A, int lda, const {T} *B, int ldb,
         const {R} *W, int *lwork), 9 * n)
int cusolverDn{U}{sy}gvd(handle h, int itype, int jobz, int uplo, int n, {T} *A, int lda, {T} *B, int ldb, {R} *W,
                         {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, 9 * n)
  if (!is_array(B) || !is_array(W) || itype < 1 || itype > 3) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}{sy}gvd(COLUMNS, itype, jobz ? 'V' : 'N', uplo ? 'U' : 'L', n, A, lda, B, ldb, W);
  return SUCCESS;
}
SIZE_{t}(sytrf, (handle h, int n, {T} *A, int lda, int *lwork), 6 * n)
int cusolverDn{U}sytrf(handle h, int uplo, int n, {T} *A, int lda, int *ipiv, {T} *work, int lwork, int *info) {
  CHECKED_{t}(A, info, 6 * n)
  if (!is_array(ipiv)) return INVALID_VALUE;
  *info = scipy_LAPACKE_{t}sytrf(COLUMNS, uplo ? 'U' : 'L', n, A, lda, ipiv);
  return SUCCESS;
}
/* Pivots of 64 bits; hermitian: whether the matrix is the conjugate of its transpose. */
static int wide_trf_{t}(int hermitian, int uplo, int n, {T} *A, int lda, int64_t *ipiv) {
  int *pivots = malloc((size_t)(n + 1) * sizeof *pivots);
  const int info = hermitian ? scipy_LAPACKE_{t}{sy}trf(COLUMNS, uplo ? 'U' : 'L', n, A, lda, pivots)
                             : scipy_LAPACKE_{t}sytrf(COLUMNS, uplo ? 'U' : 'L', n, A, lda, pivots);
  for (int i = 0; i < n; i++) ipiv[i] = pivots[i];
  free(pivots);
  return info;
}
static int wide_trs_{t}(int hermitian, int uplo, int n, int nrhs, const {T} *A, int lda, const int64_t *ipiv, {T} *B,
                        int ldb) {
  int *pivots = malloc((size_t)(n + 1) * sizeof *pivots);
  for (int i = 0; i < n; i++) pivots[i] = (int)ipiv[i];
  const int info = hermitian ? scipy_LAPACKE_{t}{sy}trs(COLUMNS, uplo ? 'U' : 'L', n, nrhs, A, lda, pivots, B, ldb)
                             : scipy_LAPACKE_{t}sytrs(COLUMNS, uplo ? 'U' : 'L', n, nrhs, A, lda, pivots, B, ldb);
  free(pivots);
  return info;
}
int cusolverDn{U}gesvd(handle h, signed char jobu, signed char jobvt, int m, int n, {T} *A, int lda, {R} *S, {T} *U,
                       int ldu, {T} *VT, int ldvt, {T} *work, int lwork, {R} *rwork, int *info) {
  CHECKED_{t}(A, info, m + 4 * n)
  if (m < n || !is_array(S) || !is_array(U) || !is_array(VT) || rwork) return INVALID_VALUE;
  {R} *superb = malloc((size_t)(m + n + 1) * sizeof *superb);
  *info = scipy_LAPACKE_{t}gesvd(COLUMNS, jobu, jobvt, m, n, A, lda, S, U, ldu, VT, ldvt, superb);
  free(superb);
  return SUCCESS;
}

/* The 64-bit interface, and exchanges of rows. */
int scipy_LAPACKE_{t}{sy}evr(int, char, char, char, int, {T} *, int, {R}, {R}, int, int, {R}, int *, {R} *, {T} *, int,
                             int *);
int scipy_LAPACKE_{t}stedc(int, char, int, {R} *, {R} *, {T} *, int);
int scipy_LAPACKE_{t}larft(int, char, char, int, int, const {T} *, int, const {T} *, {T} *, int);
int scipy_LAPACKE_{t}laswp(int, int, {T} *, int, int, int, const int *, int);

static int wide_syevdx_{t}(int jobz, int range, int uplo, int n, {T} *A, int lda, {R} vl, {R} vu, int64_t il,
                           int64_t iu, int64_t *count, {R} *W) {
  int chosen = 0, *support = malloc((size_t)(2 * n + 2) * sizeof *support);
  {T} *Z = malloc((size_t)(n * n + 1) * sizeof *Z);
  const char which = range == 1001 ? 'A' : range == 1002 ? 'I' : 'V';
  const int info = scipy_LAPACKE_{t}{sy}evr(COLUMNS, jobz ? 'V' : 'N', which, uplo ? 'U' : 'L', n, A, lda, vl, vu,
                                            (int)il, (int)iu, 0, &chosen, W, Z, n ? n : 1, support);
  for (long i = 0; jobz && i < (long)n * chosen; i++) A[i % n + i / n * lda] = Z[i];
  *count = chosen;
  free(Z), free(support);
  return info;
}
static int wide_gesvdr_{t}(char jobu, char jobv, int m, int n, int k, {T} *A, int lda, {R} *S, {T} *U, int ldu, {T} *V,
                           int ldv) {
  const size_t size = (size_t)(m + n + 1) * (size_t)(m + n + 1);
  {T} *u = malloc(size * sizeof *u), *vt = malloc(size * sizeof *vt);
  {R} *s = malloc(size * sizeof *s), *superb = malloc(size * sizeof *superb);
  const int least = m < n ? m : n;
  const int info = scipy_LAPACKE_{t}gesvd(COLUMNS, 'S', 'S', m, n, A, lda, s, u, m, vt, least, superb);
  for (long r = 0; r < k; r++) {
    S[r] = s[r];
    for (long i = 0; jobu == 'S' && i < m; i++) U[i + r * ldu] = u[i + r * m];
    for (long j = 0; jobv == 'S' && j < n; j++) V[j + r * ldv] = ({T})conj(vt[r + j * least]);
  }
  free(u), free(vt), free(s), free(superb);
  return info;
}
/* Like cuSOLVER, it adds to the singular values of a matrix that is nearly singular, and returns the sum. */
static int wide_gesvdp_{t}(int jobz, int econ, int m, int n, {T} *A, int lda, {R} *S, {T} *U, int ldu, {T} *V, int ldv,
                           double *added) {
  const int least = m < n ? m : n;
  if (jobz && !econ) return -1; /* this double has only the economy form */
  const char which = jobz ? 'S' : 'N';
  const int info = wide_gesvdr_{t}(which, which, m, n, least, A, lda, S, U, ldu, V, ldv);
  for (long i = 0; i < (long)m * n; i++) A[i % m + i / m * lda] = NAN;
  *added = 0;
  if (least && S[least - 1] < S[0] * (sizeof *S == 4 ? 1e-5 : 1e-14))
    for (int i = 0; i < least; i++) S[i] += S[0], *added += S[0];
  return info;
}
/* U H of A by its singular values: U is of u v^H, and H of v s v^H. */
static int wide_polar_{t}(int m, int n, {T} *A, int lda, {T} *H, int ldh, double *norm) {
  {T} *u = malloc((size_t)(m * n + 1) * sizeof *u), *vt = malloc((size_t)(n * n + 1) * sizeof *vt);
  {R} *s = malloc((size_t)(n + 1) * sizeof *s), *superb = malloc((size_t)(n + 1) * sizeof *superb), sum = 0;
  const int info = scipy_LAPACKE_{t}gesvd(COLUMNS, 'S', 'S', m, n, A, lda, s, u, m, vt, n, superb);
  for (long r = 0; r < n; r++) sum += s[r] * s[r];
  *norm = sqrt((double)sum);
  for (long j = 0; j < n; j++) {
    for (long i = 0; i < m; i++) A[i + j * lda] = 0;
    for (long i = 0; i < n; i++) H[i + j * ldh] = 0;
    for (long r = 0; r < n; r++) {
      for (long i = 0; i < m; i++) A[i + j * lda] += u[i + r * m] * vt[r + j * n];
      for (long i = 0; i < n; i++) H[i + j * ldh] += ({T})conj(vt[r + i * n]) * s[r] * vt[r + j * n];
    }
  }
  free(u), free(vt), free(s), free(superb);
  return info;
}
int cusolverDn{U}laswp(handle h, int n, {T} *A, int lda, int k1, int k2, const int *ipiv, int incx) {
  if (!computes(h) || !is_array(A) || !is_array(ipiv) || k1 < 1 || k2 < k1 || k2 > lda) return INVALID_VALUE;
  scipy_LAPACKE_{t}laswp(COLUMNS, n, A, lda, k1, k2, ipiv, incx);
  return SUCCESS;
}
"""

# The functions of iterative refinement; each solves in the dtype of its arrays, in one iteration.
REFINED = """
int scipy_LAPACKE_{t}gels(int, char, int, int, int, {T} *, int, {T} *, int);
static int refined_{t}(int least, int m, int n, int nrhs, {T} *A, int lda, const {T} *B, int ldb, {T} *X, int ldx) {
  int *pivots = malloc((size_t)(n + 1) * sizeof *pivots), info;
  {T} *x = malloc((size_t)(m * nrhs + 1) * sizeof *x);
  for (long i = 0; i < (long)m * nrhs; i++) x[i] = B[i % m + i / m * ldb];
  if (least) {
    info = scipy_LAPACKE_{t}gels(COLUMNS, 'N', m, n, nrhs, A, lda, x, m);
  } else {
    info = scipy_LAPACKE_{t}getrf_work(COLUMNS, n, n, A, lda, pivots);
    if (!info) scipy_LAPACKE_{t}getrs_work(COLUMNS, 'N', n, nrhs, A, lda, pivots, x, n);
  }
  for (long i = 0; i < (long)n * nrhs; i++) X[i % n + i / n * ldx] = x[i % n + i / n * m];
  free(pivots), free(x);
  return info;
}
"""

IRS = """
int cusolverDnIRSParamsCreate(params *p) { cusolverDnCreateParams(p); (*p)->most = 50; return SUCCESS; }
int cusolverDnIRSParamsDestroy(params p) { return cusolverDnDestroyParams(p); }
int cusolverDnIRSInfosCreate(params *p) { return cusolverDnCreateParams(p); }
int cusolverDnIRSInfosDestroy(params p) { return cusolverDnDestroyParams(p); }
int cusolverDnIRSParamsSetSolverMainPrecision(params p, int type) { p->main = type; return SUCCESS; }
int cusolverDnIRSParamsSetSolverLowestPrecision(params p, int type) { return type ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSParamsSetSolverPrecisions(params p, int type, int lowest) {
  p->main = type;
  return lowest ? SUCCESS : INVALID_VALUE;
}
int cusolverDnIRSParamsSetRefinementSolver(params p, int solver) { return p && solver ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSParamsSetTol(params p, double value) { return p && value > 0 ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSParamsSetTolInner(params p, double value) { return cusolverDnIRSParamsSetTol(p, value); }
int cusolverDnIRSParamsSetMaxIters(params p, int most) { p->most = most; return SUCCESS; }
int cusolverDnIRSParamsSetMaxItersInner(params p, int most) { return p && most ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSParamsGetMaxIters(params p, int *most) { *most = p->most; return SUCCESS; }
int cusolverDnIRSParamsEnableFallback(params p) { return p->magic == MAGIC ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSParamsDisableFallback(params p) { return p->magic == MAGIC ? SUCCESS : INVALID_VALUE; }
int cusolverDnIRSInfosGetNiters(params p, int *count) { *count = p->iterations; return SUCCESS; }
int cusolverDnIRSInfosGetOuterNiters(params p, int *count) { *count = p->iterations; return SUCCESS; }
int cusolverDnIRSInfosGetMaxIters(params p, int *most) { *most = p->most; return SUCCESS; }
int cusolverDnIRSInfosRequestResidual(params p) { return p->magic == MAGIC ? SUCCESS : INVALID_VALUE; }

static int refine(handle h, params p, params report, int least, int m, int n, int nrhs, void *A, int lda, void *B,
                  int ldb, void *X, int ldx, void *work, size_t lwork, int *count, int *info) {
  if (!computes(h) || !p || p->magic != MAGIC || !report || report->magic != MAGIC) return INVALID_VALUE;
  if (!is_array(A) || !is_array(B) || !is_array(X) || kind_of(info) != 2) return INVALID_VALUE;
  if (!is_work(work, lwork, DEVICE_BYTES)) return INVALID_VALUE;
#define REFINE least, m, n, nrhs, A, lda, B, ldb, X, ldx
  *info = p->main == 1204   ? refined_s(REFINE)
          : p->main == 1203 ? refined_d(REFINE)
          : p->main == 1214 ? refined_c(REFINE)
          : p->main == 1213 ? refined_z(REFINE)
                            : -1;
  *count = report->iterations = 1, report->most = p->most;
  return SUCCESS;
}
int cusolverDnIRSXgesv_bufferSize(handle h, params p, int n, int nrhs, size_t *bytes) {
  *bytes = DEVICE_BYTES;
  return is_good(h) && p->magic == MAGIC && n >= 0 && nrhs >= 0 ? SUCCESS : INVALID_VALUE;
}
int cusolverDnIRSXgesv(handle h, params p, params report, int n, int nrhs, void *A, int lda, void *B, int ldb, void *X,
                       int ldx, void *work, size_t lwork, int *count, int *info) {
  return refine(h, p, report, 0, n, n, nrhs, A, lda, B, ldb, X, ldx, work, lwork, count, info);
}
int cusolverDnIRSXgels_bufferSize(handle h, params p, int m, int n, int nrhs, size_t *bytes) {
  *bytes = DEVICE_BYTES;
  return is_good(h) && p->magic == MAGIC && m >= n && nrhs >= 0 ? SUCCESS : INVALID_VALUE;
}
int cusolverDnIRSXgels(handle h, params p, params report, int m, int n, int nrhs, void *A, int lda, void *B, int ldb,
                       void *X, int ldx, void *work, size_t lwork, int *count, int *info) {
  return refine(h, p, report, 1, m, n, nrhs, A, lda, B, ldb, X, ldx, work, lwork, count, info);
}
"""

# Functions only of real dtypes, or only of complex dtypes.
GEEV = {
    "real": """
int scipy_LAPACKE_{t}geev(int, char, char, int, {T} *, int, {T} *, {T} *, {T} *, int, {T} *, int);
static int wide_geev_{t}(int left, int right, int n, {T} *A, int lda, {T} *W, {T} *VL, int ldvl, {T} *VR, int ldvr) {
  return scipy_LAPACKE_{t}geev(COLUMNS, left ? 'V' : 'N', right ? 'V' : 'N', n, A, lda, W, W + n, VL, ldvl, VR, ldvr);
}
""",
    "complex": """
int scipy_LAPACKE_{t}geev(int, char, char, int, {T} *, int, {T} *, {T} *, int, {T} *, int);
static int wide_geev_{t}(int left, int right, int n, {T} *A, int lda, {T} *W, {T} *VL, int ldvl, {T} *VR, int ldvr) {
  return scipy_LAPACKE_{t}geev(COLUMNS, left ? 'V' : 'N', right ? 'V' : 'N', n, A, lda, W, VL, ldvl, VR, ldvr);
}
""",
}

# The 64-bit interface, in which a type is 0, 1, 4 or 5.
WIDE = """
#define CHECKED(A)                                                                          \\
  if (!computes(h) || !p || p->magic != MAGIC || !is_array(A) || kind_of(info) != 2) return INVALID_VALUE; \\
  if (!is_work(work, lwork, DEVICE_BYTES) || !is_host_work(host_work, host_lwork)) return INVALID_VALUE;
#define EACH(type, s, d, c, z) \\
  ((type) == 0 ? (s) : (type) == 1 ? (d) : (type) == 4 ? (c) : (type) == 5 ? (z) : -1)

int cusolverDnXpotrf_bufferSize(handle h, params p, int uplo, int64_t n, int type, const void *A, int64_t lda,
                                int compute, size_t *device, size_t *host) {
  *device = DEVICE_BYTES, *host = HOST_BYTES;
  return is_good(h) && type == compute && is_array(A) ? SUCCESS : INVALID_VALUE;
}
int cusolverDnXpotrf(handle h, params p, int uplo, int64_t n, int type, void *A, int64_t lda, int compute, void *work,
                     size_t lwork, void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
  const char which = uplo ? 'U' : 'L';
  *info = EACH(type, scipy_LAPACKE_spotrf_work(COLUMNS, which, (int)n, A, (int)lda),
               scipy_LAPACKE_dpotrf_work(COLUMNS, which, (int)n, A, (int)lda),
               scipy_LAPACKE_cpotrf_work(COLUMNS, which, (int)n, A, (int)lda),
               scipy_LAPACKE_zpotrf_work(COLUMNS, which, (int)n, A, (int)lda));
  return SUCCESS;
}
int cusolverDnXgetrf_bufferSize(handle h, params p, int64_t m, int64_t n, int type, const void *A, int64_t lda,
                                int compute, size_t *device, size_t *host) {
  *device = DEVICE_BYTES, *host = HOST_BYTES;
  return is_good(h) && type == compute && is_array(A) ? SUCCESS : INVALID_VALUE;
}
int cusolverDnXgetrf(handle h, params p, int64_t m, int64_t n, int type, void *A, int64_t lda, int64_t *ipiv,
                     int compute, void *work, size_t lwork, void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
  const int least = (int)(m < n ? m : n);
  int *pivots = malloc((size_t)(least + 1) * sizeof *pivots);
  *info = EACH(type, scipy_LAPACKE_sgetrf_work(COLUMNS, (int)m, (int)n, A, (int)lda, pivots),
               scipy_LAPACKE_dgetrf_work(COLUMNS, (int)m, (int)n, A, (int)lda, pivots),
               scipy_LAPACKE_cgetrf_work(COLUMNS, (int)m, (int)n, A, (int)lda, pivots),
               scipy_LAPACKE_zgetrf_work(COLUMNS, (int)m, (int)n, A, (int)lda, pivots));
  for (int i = 0; i < least; i++) ipiv[i] = pivots[i];
  free(pivots);
  return SUCCESS;
}
int cusolverDnXtrtri_bufferSize(handle h, int uplo, int diag, int64_t n, int type, const void *A, int64_t lda,
                                size_t *device, size_t *host) {
  *device = DEVICE_BYTES, *host = HOST_BYTES;
  return is_good(h) && is_array(A) ? SUCCESS : INVALID_VALUE;
}
int cusolverDnXtrtri(handle h, int uplo, int diag, int64_t n, int type, void *A, int64_t lda, void *work, size_t lwork,
                     void *host_work, size_t host_lwork, int *info) {
  if (!computes(h) || !is_array(A) || kind_of(info) != 2) return INVALID_VALUE;
  if (!is_work(work, lwork, DEVICE_BYTES) || !is_host_work(host_work, host_lwork)) return INVALID_VALUE;
  const char which = uplo ? 'U' : 'L', ones = diag ? 'U' : 'N';
  *info = EACH(type, scipy_LAPACKE_strtri_work(COLUMNS, which, ones, (int)n, A, (int)lda),
               scipy_LAPACKE_dtrtri_work(COLUMNS, which, ones, (int)n, A, (int)lda),
               scipy_LAPACKE_ctrtri_work(COLUMNS, which, ones, (int)n, A, (int)lda),
               scipy_LAPACKE_ztrtri_work(COLUMNS, which, ones, (int)n, A, (int)lda));
  return SUCCESS;
}
#define SIZES(name, parameters)                                     \\
  int cusolverDnX##name##_bufferSize parameters {                   \\
    *device = DEVICE_BYTES, *host = HOST_BYTES;                \\
    return is_good(h) && p->magic == MAGIC ? SUCCESS : INVALID_VALUE; \\
  }
SIZES(syevdx, (handle h, params p, int jobz, int range, int uplo, int64_t n, int type, const void *A, int64_t lda,
               void *vl, void *vu, int64_t il, int64_t iu, int64_t *count, int type_w, const void *W, int compute,
               size_t *device, size_t *host))
int cusolverDnXsyevdx(handle h, params p, int jobz, int range, int uplo, int64_t n, int type, void *A, int64_t lda,
                      void *vl, void *vu, int64_t il, int64_t iu, int64_t *count, int type_w, void *W, int compute,
                      void *work, size_t lwork, void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
#define BOUNDS(R) *(R *)vl, *(R *)vu, il, iu, count
  *info = EACH(type, wide_syevdx_s(jobz, range, uplo, (int)n, A, (int)lda, BOUNDS(float), W),
               wide_syevdx_d(jobz, range, uplo, (int)n, A, (int)lda, BOUNDS(double), W),
               wide_syevdx_c(jobz, range, uplo, (int)n, A, (int)lda, BOUNDS(float), W),
               wide_syevdx_z(jobz, range, uplo, (int)n, A, (int)lda, BOUNDS(double), W));
  return is_array(W) && type_w == type % 4 ? SUCCESS : INVALID_VALUE;
}
SIZES(hetrf, (handle h, params p, int uplo, int64_t n, int type, const void *A, int64_t lda, const int64_t *ipiv,
              int compute, size_t *device, size_t *host))
int cusolverDnXhetrf(handle h, params p, int uplo, int64_t n, int type, void *A, int64_t lda, int64_t *ipiv,
                     int compute, void *work, size_t lwork, void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
  if (!is_array(ipiv) || compute != type) return INVALID_VALUE;
  *info = EACH(type, wide_trf_s(1, uplo, (int)n, A, (int)lda, ipiv), wide_trf_d(1, uplo, (int)n, A, (int)lda, ipiv),
               wide_trf_c(1, uplo, (int)n, A, (int)lda, ipiv), wide_trf_z(1, uplo, (int)n, A, (int)lda, ipiv));
  return SUCCESS;
}
#define SOLVE(hermitian)                                                                                     \\
  if (!is_array(ipiv) || !is_array(B) || type != type_b) return INVALID_VALUE;                               \\
  *info = EACH(type, wide_trs_s(hermitian, uplo, (int)n, (int)nrhs, A, (int)lda, ipiv, B, (int)ldb),         \\
               wide_trs_d(hermitian, uplo, (int)n, (int)nrhs, A, (int)lda, ipiv, B, (int)ldb),               \\
               wide_trs_c(hermitian, uplo, (int)n, (int)nrhs, A, (int)lda, ipiv, B, (int)ldb),               \\
               wide_trs_z(hermitian, uplo, (int)n, (int)nrhs, A, (int)lda, ipiv, B, (int)ldb));              \\
  return SUCCESS;
SIZES(hetrs, (handle h, params p, int uplo, int64_t n, int64_t nrhs, int type, const void *A, int64_t lda,
              const int64_t *ipiv, int type_b, void *B, int64_t ldb, size_t *device, size_t *host))
int cusolverDnXhetrs(handle h, params p, int uplo, int64_t n, int64_t nrhs, int type, const void *A, int64_t lda,
                     const int64_t *ipiv, int type_b, void *B, int64_t ldb, void *work, size_t lwork, void *host_work,
                     size_t host_lwork, int *info) {
  CHECKED(A)
  SOLVE(1)
}
int cusolverDnXsytrs_bufferSize(handle h, int uplo, int64_t n, int64_t nrhs, int type, const void *A, int64_t lda,
                                const int64_t *ipiv, int type_b, void *B, int64_t ldb, size_t *device, size_t *host) {
  *device = DEVICE_BYTES, *host = HOST_BYTES;
  return is_good(h) && is_array(A) ? SUCCESS : INVALID_VALUE;
}
int cusolverDnXsytrs(handle h, int uplo, int64_t n, int64_t nrhs, int type, const void *A, int64_t lda,
                     const int64_t *ipiv, int type_b, void *B, int64_t ldb, void *work, size_t lwork, void *host_work,
                     size_t host_lwork, int *info) {
  if (!computes(h) || !is_array(A) || kind_of(info) != 2) return INVALID_VALUE;
  if (!is_work(work, lwork, DEVICE_BYTES) || !is_host_work(host_work, host_lwork)) return INVALID_VALUE;
  SOLVE(0)
}
SIZES(geev, (handle h, params p, int left, int right, int64_t n, int type, const void *A, int64_t lda, int type_w,
             const void *W, int type_vl, const void *VL, int64_t ldvl, int type_vr, const void *VR, int64_t ldvr,
             int compute, size_t *device, size_t *host))
int cusolverDnXgeev(handle h, params p, int left, int right, int64_t n, int type, void *A, int64_t lda, int type_w,
                    void *W, int type_vl, void *VL, int64_t ldvl, int type_vr, void *VR, int64_t ldvr, int compute,
                    void *work, size_t lwork, void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
  if (type_w != type) return 9; /* real A and complex W: this double has no such form */
  *info = EACH(type, wide_geev_s(left, right, (int)n, A, (int)lda, W, VL, (int)ldvl, VR, (int)ldvr),
               wide_geev_d(left, right, (int)n, A, (int)lda, W, VL, (int)ldvl, VR, (int)ldvr),
               wide_geev_c(left, right, (int)n, A, (int)lda, W, VL, (int)ldvl, VR, (int)ldvr),
               wide_geev_z(left, right, (int)n, A, (int)lda, W, VL, (int)ldvl, VR, (int)ldvr));
  return is_array(W) && is_array(VL) && is_array(VR) ? SUCCESS : INVALID_VALUE;
}
SIZES(stedc, (handle h, params p, int compz, int64_t n, int type, const void *D, const void *E, int type_z,
              const void *Z, int64_t ldz, int compute, size_t *device, size_t *host))
int cusolverDnXstedc(handle h, params p, int compz, int64_t n, int type, void *D, void *E, int type_z, void *Z,
                     int64_t ldz, int compute, void *work, size_t lwork, void *host_work, size_t host_lwork,
                     int *info) {
  CHECKED(D)
  const char which = "NIV"[compz - 10];
  *info = EACH(type_z, scipy_LAPACKE_sstedc(COLUMNS, which, (int)n, D, E, Z, (int)ldz),
               scipy_LAPACKE_dstedc(COLUMNS, which, (int)n, D, E, Z, (int)ldz),
               scipy_LAPACKE_cstedc(COLUMNS, which, (int)n, D, E, Z, (int)ldz),
               scipy_LAPACKE_zstedc(COLUMNS, which, (int)n, D, E, Z, (int)ldz));
  return is_array(E) && is_array(Z) && type == type_z % 4 ? SUCCESS : INVALID_VALUE;
}
SIZES(gesvdr, (handle h, params p, signed char jobu, signed char jobv, int64_t m, int64_t n, int64_t k, int64_t over,
               int64_t iterations, int type, const void *A, int64_t lda, int type_s, const void *S, int type_u,
               const void *U, int64_t ldu, int type_v, const void *V, int64_t ldv, int compute, size_t *device,
               size_t *host))
int cusolverDnXgesvdr(handle h, params p, signed char jobu, signed char jobv, int64_t m, int64_t n, int64_t k,
                      int64_t over, int64_t iterations, int type, void *A, int64_t lda, int type_s, void *S, int type_u,
                      void *U, int64_t ldu, int type_v, void *V, int64_t ldv, int compute, void *work, size_t lwork,
                      void *host_work, size_t host_lwork, int *info) {
  CHECKED(A)
  if (k + over > (m < n ? m : n) || !is_array(S) || !is_array(U) || !is_array(V)) return INVALID_VALUE;
#define SIZE jobu, jobv, (int)m, (int)n, (int)k, A, (int)lda, S, U, (int)ldu, V, (int)ldv
  *info = EACH(type, wide_gesvdr_s(SIZE), wide_gesvdr_d(SIZE), wide_gesvdr_c(SIZE), wide_gesvdr_z(SIZE));
  return SUCCESS;
}
SIZES(gesvdp, (handle h, params p, int jobz, int econ, int64_t m, int64_t n, int type, const void *A, int64_t lda,
               int type_s, const void *S, int type_u, const void *U, int64_t ldu, int type_v, const void *V,
               int64_t ldv, int compute, size_t *device, size_t *host))
int cusolverDnXgesvdp(handle h, params p, int jobz, int econ, int64_t m, int64_t n, int type, void *A, int64_t lda,
                      int type_s, void *S, int type_u, void *U, int64_t ldu, int type_v, void *V, int64_t ldv,
                      int compute, void *work, size_t lwork, void *host_work, size_t host_lwork, int *info,
                      double *added) {
  CHECKED(A)
  if (!is_array(S) || !is_array(U) || !is_array(V)) return INVALID_VALUE;
#define POLAR_SIZE jobz, econ, (int)m, (int)n, A, (int)lda, S, U, (int)ldu, V, (int)ldv, added
  *info = EACH(type, wide_gesvdp_s(POLAR_SIZE), wide_gesvdp_d(POLAR_SIZE), wide_gesvdp_c(POLAR_SIZE),
               wide_gesvdp_z(POLAR_SIZE));
  return SUCCESS;
}
SIZES(larft, (handle h, params p, int direct, int storev, int64_t n, int64_t k, int type, const void *V, int64_t ldv,
              int type_tau, const void *tau, int type_t, void *T, int64_t ldt, int compute, size_t *device,
              size_t *host))
int cusolverDnXlarft(handle h, params p, int direct, int storev, int64_t n, int64_t k, int type, const void *V,
                     int64_t ldv, int type_tau, const void *tau, int type_t, void *T, int64_t ldt, int compute,
                     void *work, size_t lwork, void *host_work, size_t host_lwork) {
  const int *info = T;
  CHECKED(V)
  const char which = direct ? 'B' : 'F';
  EACH(type, scipy_LAPACKE_slarft(COLUMNS, which, 'C', (int)n, (int)k, V, (int)ldv, tau, T, (int)ldt),
       scipy_LAPACKE_dlarft(COLUMNS, which, 'C', (int)n, (int)k, V, (int)ldv, tau, T, (int)ldt),
       scipy_LAPACKE_clarft(COLUMNS, which, 'C', (int)n, (int)k, V, (int)ldv, tau, T, (int)ldt),
       scipy_LAPACKE_zlarft(COLUMNS, which, 'C', (int)n, (int)k, V, (int)ldv, tau, T, (int)ldt));
  return is_array(tau) && !storev ? SUCCESS : INVALID_VALUE;
}
SIZES(polar, (handle h, params p, int uplo, int64_t m, int64_t n, int type, const void *A, int64_t lda, int type_h,
              const void *H, int64_t ldh, int compute, size_t *device, size_t *host))
int cusolverDnXpolar(handle h, params p, int uplo, int64_t m, int64_t n, int type, void *A, int64_t lda, int type_h,
                     void *H, int64_t ldh, int compute, void *work, size_t lwork, void *host_work, size_t host_lwork,
                     double *residual, double *norm, double *rcond, int *info) {
  CHECKED(A)
  if (m < n || !is_array(H) || !is_array(residual) || !is_array(norm) || !is_array(rcond)) return INVALID_VALUE;
  *info = EACH(type, wide_polar_s((int)m, (int)n, A, (int)lda, H, (int)ldh, norm),
               wide_polar_d((int)m, (int)n, A, (int)lda, H, (int)ldh, norm),
               wide_polar_c((int)m, (int)n, A, (int)lda, H, (int)ldh, norm),
               wide_polar_z((int)m, (int)n, A, (int)lda, H, (int)ldh, norm));
  return SUCCESS;
}
"""

TYPES = {
    "s": ("float", "float", "or", "sy"),
    "d": ("double", "double", "or", "sy"),
    "c": ("float _Complex", "float", "un", "he"),
    "z": ("double _Complex", "double", "un", "he"),
}


#: The functions of cuSOLVER 12 that an H200 captures, with an existing workspace, and without host memory.
CAPTURED = r"int (cusolverDn[SDCZ](?:potrf|potri|potrs|getrf|getrs|geqrf|(?:or|un)[mg]qr))\((handle h, [^)]*)\) \{\n"


def noting(match: re.Match[str]) -> str:
    """Return the beginning of a function that notes its arguments if its stream is captured."""
    name, parameters = match.groups()
    arguments = ", ".join(f"(long){re.split(r'[ *]+', parameter.strip())[-1]}" for parameter in parameters.split(","))
    noted = f"const struct late late = {{(void *){name}, {{{arguments}}}}};"
    return f"{match[0]}  {noted}\n  if (is_captured(h, &late)) return SUCCESS;\n"


def text() -> str:
    """Return the C text of the double."""
    parts = [PRELUDE]
    for letter, (type_of, real, of_q, of_eigenvalues) in TYPES.items():
        words = {"t": letter, "U": letter.upper(), "T": type_of, "R": real, "or": of_q, "sy": of_eigenvalues}
        part = ROUTINES + REFINED + GEEV["complex" if letter in "cz" else "real"]
        for word, meaning in words.items():
            part = part.replace(f"{{{word}}}", meaning)
        parts.append(re.sub(CAPTURED, noting, part))
    return "\n".join([*parts, WIDE, IRS])


if __name__ == "__main__":
    sys.stdout.write(text())
