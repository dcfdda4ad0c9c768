/* A double of libcusparse.so.12 for the double of CUDA; or, with -DHIPSPARSE=2, 3 or 4, of this version of libhipsparse
 * for the double of HIP. It computes products and triangular systems, in double precision and one element at a time. It
 * refuses wrong addresses, alignments and indices, and workspaces that it did not request. Work of hipSPARSE is put
 * into the stream of the handle. */
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "numbers.h"

int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);
#ifdef HIPSPARSE
#define NAME(name) hipsparse##name
enum { VERSION = HIPSPARSE, IS_HIPSPARSE = 1, BY_ROWS = HIPSPARSE < 3 ? 0 : 2 };
int gpu_double_unsafe(void);
int gpu_double_waits(const void *stream);
int cuStreamIsCapturing(void *stream, int *status);
void *hip_double_here(const void *address);
int hipStreamSynchronize(void *stream);
static int finish(void *stream) { return hipStreamSynchronize(stream); }
#else
#define NAME(name) cusparse##name
enum { VERSION = 12, IS_HIPSPARSE = 0, BY_ROWS = 2 };
static int gpu_double_unsafe(void) { return 0; }
static int gpu_double_waits(const void *stream) { return stream ? 0 : 1; }
static int cuStreamIsCapturing(void *stream, int *status) { return *status = 0, stream ? 0 : 1; }
static void *hip_double_here(const void *address) { return (void *)(uintptr_t)address; }
static int finish(void *stream) { return (void)stream, 0; }
#endif

enum {
  SUCCESS = 0,
  NOT_INITIALIZED = 1,
  ALLOC_FAILED = 2,
  INVALID_VALUE = 3,
  EXECUTION_FAILED = 6,
  NOT_SUPPORTED = 10
};
enum format { CSR = 1, CSC, COO, BSR };
enum { BUFFER = 1000 }; /* the size of every workspace, whose bytes each function writes */

typedef struct handle {
  void *stream;
} handle;
typedef struct sparse {
  enum format format;
  int64_t rows, columns, nnz, r, c;
  const void *first, *second, *values; /* offsets and indices; of COO rows and columns */
  int index, type, upper, unit;
  int asked, analysed; /* by hipSPARSE, for a triangle */
} sparse;
typedef struct dense { /* a vector has one column */
  int64_t rows, columns, ld;
  void *values;
  int type, by_rows;
} dense;
typedef struct plan {
  int asked, analysed;
  void *buffer;
} plan;

static size_t size_of(int type) { return type == 0 ? 4 : type == 1 || type == 4 ? 8 : 16; }
static int is_array(const void *address, int64_t count, size_t alignment) {
  return !count || (kind_of(address) == 2 && (uintptr_t)address % alignment == 0);
}
static int64_t index_at(const sparse *a, const void *indices, int64_t i) {
  return a->index == 2 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
}
static int64_t place(const dense *d, int64_t i, int64_t j) { return d->by_rows ? i * d->ld + j : i + j * d->ld; }

int NAME(Create)(handle **h) {
  if (gpu_double_unsafe()) return ALLOC_FAILED; /* hipSPARSE allocates */
  return (*h = calloc(1, sizeof **h)) ? SUCCESS : ALLOC_FAILED;
}
int NAME(Destroy)(handle *h) {
  free(h);
  return SUCCESS;
}
int NAME(SetStream)(handle *h, void *stream) {
  h->stream = stream;
  return SUCCESS;
}
int NAME(GetStream)(handle *h, void **stream) {
  *stream = h->stream;
  return SUCCESS;
}
int NAME(GetVersion)(handle *h, int *version) {
  if (!h) return NOT_INITIALIZED;
  *version = IS_HIPSPARSE ? VERSION * 100000 + 100 + 1 : 12904;
  return SUCCESS;
}
#ifndef HIPSPARSE
int cusparseGetProperty(int part, int *value) {
  *value = part == 0 ? 12 : part == 1 ? 9 : 4;
  return SUCCESS;
}
#endif
#if !defined HIPSPARSE || HIPSPARSE >= 3
const char *NAME(GetErrorName)(int status) {
  static const char *const names[] = {"CUSPARSE_STATUS_SUCCESS", "CUSPARSE_STATUS_INVALID_VALUE",
                                      "HIPSPARSE_STATUS_SUCCESS", "HIPSPARSE_STATUS_INVALID_VALUE"};
  return names[!!status + 2 * IS_HIPSPARSE];
}
const char *NAME(GetErrorString)(int status) { return status ? "invalid value" : "success"; }
#endif

static int make(sparse **out, sparse a, int64_t offsets, int base) {
  const size_t itemsize = a.index == 2 ? 4 : 8;
  if ((a.index != 2 && a.index != 3) || base || (a.type != 0 && a.type != 1 && a.type != 4 && a.type != 5))
    return INVALID_VALUE;
  if (((a.first || a.nnz || IS_HIPSPARSE) && !is_array(a.first, offsets, itemsize)) ||
      !is_array(a.second, a.nnz, itemsize))
    return INVALID_VALUE;
  if (!is_array(a.values, a.nnz, size_of(a.type)) || !(*out = malloc(sizeof a))) return INVALID_VALUE;
  **out = a;
  return SUCCESS;
}
int NAME(CreateCsr)(sparse **a, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices, void *values, int t,
                    int u, int base, int type) {
  if (t != u) return INVALID_VALUE;
  return make(a, (sparse){CSR, m, n, nnz, 1, 1, offsets, indices, values, t, type, 0, 0, 0, 0}, m + 1, base);
}
int NAME(CreateCsc)(sparse **a, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices, void *values, int t,
                    int u, int base, int type) {
  if (t != u) return INVALID_VALUE;
  return make(a, (sparse){CSC, m, n, nnz, 1, 1, offsets, indices, values, t, type, 0, 0, 0, 0}, n + 1, base);
}
int NAME(CreateCoo)(sparse **a, int64_t m, int64_t n, int64_t nnz, void *rows, void *columns, void *values, int t,
                    int base, int type) {
  return make(a, (sparse){COO, m, n, nnz, 1, 1, rows, columns, values, t, type, 0, 0, 0, 0}, nnz, base);
}
#ifndef HIPSPARSE
int cusparseCreateBsr(sparse **a, int64_t m, int64_t n, int64_t nnz, int64_t r, int64_t c, void *offsets, void *indices,
                      void *values, int t, int u, int base, int type, int order) {
  if (t != u || order != 2) return INVALID_VALUE;
  return make(a, (sparse){BSR, m * r, n * c, nnz, r, c, offsets, indices, values, t, type, 0, 0, 0, 0}, m + 1, base);
}
#endif
int NAME(DestroySpMat)(sparse *a) {
  if (gpu_double_unsafe()) return EXECUTION_FAILED; /* hipSPARSE frees memory of the device */
  free(a);
  return SUCCESS;
}
int NAME(SpMatSetAttribute)(sparse *a, int attribute, const int *value, size_t size) {
  if (size != 4 || attribute > 1) return INVALID_VALUE;
  *(attribute ? &a->unit : &a->upper) = *value;
  return SUCCESS;
}
static int make_dense(dense **out, dense d) {
  if (!is_array(d.values, d.rows * d.columns, size_of(d.type)) || !(*out = malloc(sizeof d))) return INVALID_VALUE;
  **out = d;
  return SUCCESS;
}
int NAME(CreateDnVec)(dense **d, int64_t size, void *values, int type) {
  return make_dense(d, (dense){size, 1, size, values, type, 0});
}
int NAME(CreateDnMat)(dense **d, int64_t m, int64_t n, int64_t ld, void *values, int type, int order) {
  if (IS_HIPSPARSE && order != 1 && order != BY_ROWS) abort(); /* it throws an exception of C++ */
  if ((order != 1 && order != BY_ROWS) || ld < (order == 1 ? m : n)) return INVALID_VALUE;
  return make_dense(d, (dense){m, n, ld, values, type, order == BY_ROWS});
}
int NAME(DestroyDnVec)(dense *d) {
  free(d);
  return SUCCESS;
}
int NAME(DestroyDnMat)(dense *d) {
  free(d);
  return SUCCESS;
}

/* Returns the matrix as a dense matrix of m * n elements, or NULL if an index is out of bounds. */
static number *elements(const sparse *a) {
  number *full = calloc((size_t)(a->rows * a->columns + 1), sizeof *full);
  const int64_t lines = a->format == CSC ? a->columns : a->rows / a->r;
  int64_t line = 0;
  for (int64_t k = 0; full && k < a->nnz; k++) {
    int64_t i, j;
    if (a->format == COO) {
      i = index_at(a, a->first, k);
      j = index_at(a, a->second, k);
    } else {
      while (line < lines && index_at(a, a->first, line + 1) <= k) line++;
      i = a->format == CSC ? index_at(a, a->second, k) : line;
      j = a->format == CSC ? line : index_at(a, a->second, k);
    }
    for (int64_t p = 0; p < a->r; p++)
      for (int64_t q = 0; q < a->c; q++) {
        const int64_t row = i * a->r + p, column = j * a->c + q;
        if (row < 0 || column < 0 || row >= a->rows || column >= a->columns) {
          free(full);
          return NULL;
        }
        full[row * a->columns + column] += get(a->type, a->values, (k * a->r + p) * a->c + q);
      }
  }
  return full;
}
static number op_at(const sparse *a, const number *full, int op, int64_t i, int64_t j) {
  const number value = full[op ? j * a->columns + i : i * a->columns + j];
  return op == 2 ? conj(value) : value;
}

/* Returns the code for operands that do not fit together, or SUCCESS. */
static int status_of(const handle *h, int op, const sparse *a, const dense *x, const dense *y, int type) {
  const int64_t m = op ? a->columns : a->rows, n = op ? a->rows : a->columns;
  if (!h || !h->stream) return NOT_INITIALIZED;
  if (a->format == BSR && op) return NOT_SUPPORTED;
  if (x->rows != n || y->rows != m || x->columns != y->columns) return INVALID_VALUE;
  return a->type != type || x->type != type || y->type != type ? INVALID_VALUE : SUCCESS;
}
static int is_buffer(void *buffer) { return buffer && is_array(buffer, BUFFER, 16); }

/* A product or a solution, which a stream or a graph may compute later. */
typedef struct work {
  sparse a;
  dense x, y;
  int op, type;
  number alpha, beta;
  void *buffer;
} work;
/* Returns a descriptor with addresses that the host may read. */
static sparse at_hand(sparse a) {
  a.first = hip_double_here(a.first);
  a.second = hip_double_here(a.second);
  a.values = hip_double_here(a.values);
  return a;
}
/* Writes the bytes of the buffer, and returns the matrix as a dense matrix. */
static number *begin(work *w) {
  w->a = at_hand(w->a);
  w->x.values = hip_double_here(w->x.values);
  w->y.values = hip_double_here(w->y.values);
  memset(hip_double_here(w->buffer), 0xa5, BUFFER);
  return elements(&w->a);
}
static int multiply_now(const void *arguments, void *stream) {
  work w = *(const work *)arguments;
  number *full = begin(&w);
  (void)stream;
  if (!full) return EXECUTION_FAILED;
  for (int64_t k = 0; k < w.y.columns; k++)
    for (int64_t i = 0; i < w.y.rows; i++) {
      number sum = 0;
      for (int64_t j = 0; j < w.x.rows; j++)
        sum += op_at(&w.a, full, w.op, i, j) * get(w.type, w.x.values, place(&w.x, j, k));
      sum *= w.alpha;
      if (w.beta != 0) sum += w.beta * get(w.type, w.y.values, place(&w.y, i, k));
      set(w.type, w.y.values, place(&w.y, i, k), sum);
    }
  free(full);
  return SUCCESS;
}
static int solve_now(const void *arguments, void *stream) {
  work w = *(const work *)arguments;
  number *full = begin(&w);
  (void)stream;
  if (!full) return EXECUTION_FAILED;
  const int64_t n = w.y.rows;
  const int forward = !w.a.upper != !!w.op; /* a transpose exchanges the triangles */
  for (int64_t k = 0; k < w.y.columns; k++)
    for (int64_t step = 0; step < n; step++) {
      const int64_t i = forward ? step : n - 1 - step;
      number rest = w.alpha * get(w.type, w.x.values, place(&w.x, i, k));
      for (int64_t j = forward ? 0 : i + 1; j < (forward ? i : n); j++)
        rest -= op_at(&w.a, full, w.op, i, j) * get(w.type, w.y.values, place(&w.y, j, k));
      set(w.type, w.y.values, place(&w.y, i, k), w.a.unit ? rest : rest / op_at(&w.a, full, w.op, i, i));
    }
  free(full);
  return SUCCESS;
}
/* Puts work into a stream. hipSPARSE may allocate and wait, so no graph can have its calls. */
static int enqueue(const handle *h, int (*run)(const void *, void *), const void *arguments, size_t nbytes) {
  int is_captured = 0;
  cuStreamIsCapturing(h->stream, &is_captured);
  if (is_captured || gpu_double_unsafe()) return EXECUTION_FAILED;
  return gpu_double_captures(h->stream, run, arguments, nbytes) ? SUCCESS : run(arguments, h->stream);
}
static int put(const handle *h, int (*run)(const void *, void *), const work *w) {
  return is_buffer(w->buffer) ? enqueue(h, run, w, sizeof *w) : EXECUTION_FAILED;
}
static int multiply(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const void *beta,
                    const dense *y, int type, void *buffer) {
  const int status = status_of(h, op, a, x, y, type);
  if (status) return status;
  const work w = {*a, *x, *y, op, type, get(type, alpha, 0), get(type, beta, 0), buffer};
  return put(h, multiply_now, &w);
}
/* Returns whether SpMV takes the algorithm for the format. */
static int has(const sparse *a, int algorithm) {
  if (!IS_HIPSPARSE) return !algorithm;
  return !algorithm || (a->format == COO ? algorithm == 1 || algorithm == 4 : algorithm == 2 || algorithm == 3);
}
static int asked(int status, size_t *size) {
  *size = status ? 0 : BUFFER;
  return status;
}
int NAME(SpMV_bufferSize)(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const void *beta,
                          const dense *y, int type, int algorithm, size_t *size) {
  return asked(alpha && beta && has(a, algorithm) ? status_of(h, op, a, x, y, type) : INVALID_VALUE, size);
}
int NAME(SpMV)(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const void *beta,
               const dense *y, int type, int algorithm, void *buffer) {
  return has(a, algorithm) ? multiply(h, op, alpha, a, x, beta, y, type, buffer) : INVALID_VALUE;
}
int NAME(SpMM_bufferSize)(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                          const void *beta, const dense *y, int type, int algorithm, size_t *size) {
  if (op_b || algorithm || !alpha || !beta || x->by_rows != y->by_rows) return INVALID_VALUE;
  return asked(status_of(h, op, a, x, y, type), size);
}
int NAME(SpMM)(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x, const void *beta,
               const dense *y, int type, int algorithm, void *buffer) {
  if (op_b || algorithm || x->by_rows != y->by_rows) return INVALID_VALUE;
  /* cuSPARSE before 12.7.20 launches a block for each 16 columns along a dimension of at most 65,535 blocks. */
  if (!IS_HIPSPARSE && y->columns > 16 * 65535) return EXECUTION_FAILED;
  return multiply(h, op, alpha, a, x, beta, y, type, buffer);
}

/* hipSPARSE keeps the analysis in the matrix, and cuSPARSE in the plan. */
static int ask(const handle *h, int op, sparse *a, const dense *x, const dense *y, int type, plan *p, size_t *size) {
  *(IS_HIPSPARSE ? &a->asked : &p->asked) = 1;
  if (a->format != CSR && a->format != COO) return NOT_SUPPORTED;
  return asked(status_of(h, op, a, x, y, type), size);
}
static int analyse(const handle *h, sparse *a, plan *p, void *buffer) {
  if (!is_buffer(buffer) || !(IS_HIPSPARSE ? a->asked : p->asked)) return INVALID_VALUE;
  if (gpu_double_waits(h->stream)) return EXECUTION_FAILED;
  *(IS_HIPSPARSE ? &a->analysed : &p->analysed) = 1;
  if (p) p->buffer = buffer;
  return SUCCESS;
}
static int solve(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y, int type,
                 const plan *p, void *buffer) {
  const int status = status_of(h, op, a, x, y, type);
  if (status) return status;
  if (!(IS_HIPSPARSE ? a->analysed : p->analysed)) return EXECUTION_FAILED;
  const work w = {*a, *x, *y, op, type, get(type, alpha, 0), 0, buffer};
  return put(h, solve_now, &w);
}

/* hipSPARSE 2 makes no plans, so its callers have NULL. */
static int is_plan(const plan *p) { return VERSION < 3 ? !p : p != NULL; }
int NAME(SpSV_createDescr)(plan **p) {
  if (VERSION < 3) return SUCCESS;
  return (*p = calloc(1, sizeof **p)) ? SUCCESS : ALLOC_FAILED;
}
int NAME(SpSM_createDescr)(plan **p) { return NAME(SpSV_createDescr)(p); }
int NAME(SpSV_destroyDescr)(plan *p) {
  free(p);
  return SUCCESS;
}
int NAME(SpSM_destroyDescr)(plan *p) { return NAME(SpSV_destroyDescr)(p); }
int NAME(SpSV_bufferSize)(const handle *h, int op, const void *alpha, sparse *a, const dense *x, const dense *y,
                          int type, int algorithm, plan *p, size_t *size) {
  return alpha && !algorithm && is_plan(p) ? ask(h, op, a, x, y, type, p, size) : INVALID_VALUE;
}
int NAME(SpSM_bufferSize)(const handle *h, int op, int op_b, const void *alpha, sparse *a, const dense *x,
                          const dense *y, int type, int algorithm, plan *p, size_t *size) {
  return op_b ? INVALID_VALUE : NAME(SpSV_bufferSize)(h, op, alpha, a, x, y, type, algorithm, p, size);
}
int NAME(SpSV_analysis)(const handle *h, int op, const void *alpha, sparse *a, const dense *x, const dense *y, int type,
                        int algorithm, plan *p, void *buffer) {
  const int status = alpha && !algorithm && is_plan(p) ? status_of(h, op, a, x, y, type) : INVALID_VALUE;
  return status ? status : analyse(h, a, p, buffer);
}
int NAME(SpSM_analysis)(const handle *h, int op, int op_b, const void *alpha, sparse *a, const dense *x, const dense *y,
                        int type, int algorithm, plan *p, void *buffer) {
  return op_b ? INVALID_VALUE : NAME(SpSV_analysis)(h, op, alpha, a, x, y, type, algorithm, p, buffer);
}
#if defined HIPSPARSE && HIPSPARSE < 3
int hipsparseSpSV_solve(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y,
                        int type, int algorithm, plan *p, void *buffer) {
  return algorithm || !is_plan(p) ? INVALID_VALUE : solve(h, op, alpha, a, x, y, type, p, buffer);
}
#else
int NAME(SpSV_solve)(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y,
                     int type, int algorithm, plan *p) {
  return algorithm || !is_plan(p) ? INVALID_VALUE : solve(h, op, alpha, a, x, y, type, p, p->buffer);
}
#endif
#ifdef HIPSPARSE
/* Takes each matrix to be by columns, as hipSPARSE 3.0 does. hipSPARSE 2 copies in the null stream, before the earlier
 * work of the handle's stream. */
int hipsparseSpSM_solve(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                        const dense *y, int type, int algorithm, plan *p, void *buffer) {
  (void)buffer;
  if (algorithm || op_b || !is_plan(p)) return INVALID_VALUE;
  if (VERSION < 3 || x->by_rows || y->by_rows) return EXECUTION_FAILED;
  return solve(h, op, alpha, a, x, y, type, p, p->buffer);
}
#else
int cusparseSpSM_solve(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                       const dense *y, int type, int algorithm, plan *p) {
  return algorithm || op_b ? INVALID_VALUE : solve(h, op, alpha, a, x, y, type, p, p->buffer);
}
#endif

#include "sparse_matrices.h"
