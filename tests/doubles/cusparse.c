/* A double of libcusparse.so.12 for the double of a GPU: products and triangular systems, in double precision and one
 * element at a time. It refuses wrong addresses, alignments and indices, and workspaces that it did not request. */
#include <complex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);

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

typedef double complex number;
typedef struct handle {
  void *stream;
} handle;
typedef struct sparse {
  enum format format;
  int64_t rows, columns, nnz, r, c;
  const void *first, *second, *values; /* offsets and indices; of COO rows and columns */
  int index, type, upper, unit;
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
static number get(int type, const void *values, int64_t i) {
  if (type == 0) return ((const float *)values)[i];
  if (type == 1) return ((const double *)values)[i];
  if (type == 4) return ((const float complex *)values)[i];
  return ((const double complex *)values)[i];
}
static void set(int type, void *values, int64_t i, number value) {
  if (type == 0) ((float *)values)[i] = (float)creal(value);
  if (type == 1) ((double *)values)[i] = creal(value);
  if (type == 4) ((float complex *)values)[i] = (float complex)value;
  if (type == 5) ((double complex *)values)[i] = value;
}
static int64_t place(const dense *d, int64_t i, int64_t j) { return d->by_rows ? i * d->ld + j : i + j * d->ld; }

int cusparseCreate(handle **h) { return (*h = calloc(1, sizeof **h)) ? SUCCESS : ALLOC_FAILED; }
int cusparseDestroy(handle *h) {
  free(h);
  return SUCCESS;
}
int cusparseSetStream(handle *h, void *stream) {
  h->stream = stream;
  return SUCCESS;
}
int cusparseGetStream(handle *h, void **stream) {
  *stream = h->stream;
  return SUCCESS;
}
int cusparseGetVersion(handle *h, int *version) {
  *version = 12904;
  return h ? SUCCESS : NOT_INITIALIZED;
}
int cusparseGetProperty(int part, int *value) {
  *value = part == 0 ? 12 : part == 1 ? 9 : 4;
  return SUCCESS;
}
const char *cusparseGetErrorName(int status) {
  return status ? "CUSPARSE_STATUS_INVALID_VALUE" : "CUSPARSE_STATUS_SUCCESS";
}
const char *cusparseGetErrorString(int status) { return status ? "invalid value" : "success"; }

static int make(sparse **out, sparse a, int64_t offsets, int base) {
  const size_t itemsize = a.index == 2 ? 4 : 8;
  if ((a.index != 2 && a.index != 3) || base || (a.type != 0 && a.type != 1 && a.type != 4 && a.type != 5))
    return INVALID_VALUE;
  if (((a.first || a.nnz) && !is_array(a.first, offsets, itemsize)) || !is_array(a.second, a.nnz, itemsize))
    return INVALID_VALUE;
  if (!is_array(a.values, a.nnz, size_of(a.type)) || !(*out = malloc(sizeof a))) return INVALID_VALUE;
  **out = a;
  return SUCCESS;
}
int cusparseCreateCsr(sparse **a, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices, void *values, int t,
                      int u, int base, int type) {
  if (t != u) return INVALID_VALUE;
  return make(a, (sparse){CSR, m, n, nnz, 1, 1, offsets, indices, values, t, type, 0, 0}, m + 1, base);
}
int cusparseCreateCsc(sparse **a, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices, void *values, int t,
                      int u, int base, int type) {
  if (t != u) return INVALID_VALUE;
  return make(a, (sparse){CSC, m, n, nnz, 1, 1, offsets, indices, values, t, type, 0, 0}, n + 1, base);
}
int cusparseCreateCoo(sparse **a, int64_t m, int64_t n, int64_t nnz, void *rows, void *columns, void *values, int t,
                      int base, int type) {
  return make(a, (sparse){COO, m, n, nnz, 1, 1, rows, columns, values, t, type, 0, 0}, nnz, base);
}
int cusparseCreateBsr(sparse **a, int64_t m, int64_t n, int64_t nnz, int64_t r, int64_t c, void *offsets, void *indices,
                      void *values, int t, int u, int base, int type, int order) {
  if (t != u || order != 2) return INVALID_VALUE;
  return make(a, (sparse){BSR, m * r, n * c, nnz, r, c, offsets, indices, values, t, type, 0, 0}, m + 1, base);
}
int cusparseDestroySpMat(sparse *a) {
  free(a);
  return SUCCESS;
}
int cusparseSpMatSetAttribute(sparse *a, int attribute, const int *value, size_t size) {
  if (size != 4 || attribute > 1) return INVALID_VALUE;
  *(attribute ? &a->unit : &a->upper) = *value;
  return SUCCESS;
}
static int make_dense(dense **out, dense d) {
  if (!is_array(d.values, d.rows * d.columns, size_of(d.type)) || !(*out = malloc(sizeof d))) return INVALID_VALUE;
  **out = d;
  return SUCCESS;
}
int cusparseCreateDnVec(dense **d, int64_t size, void *values, int type) {
  return make_dense(d, (dense){size, 1, size, values, type, 0});
}
int cusparseCreateDnMat(dense **d, int64_t m, int64_t n, int64_t ld, void *values, int type, int order) {
  if ((order != 1 && order != 2) || ld < (order == 1 ? m : n)) return INVALID_VALUE;
  return make_dense(d, (dense){m, n, ld, values, type, order == 2});
}
int cusparseDestroyDnVec(dense *d) {
  free(d);
  return SUCCESS;
}
int cusparseDestroyDnMat(dense *d) {
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
static int use(void *buffer) {
  if (!is_array(buffer, BUFFER, 16)) return INVALID_VALUE;
  memset(buffer, 0xa5, BUFFER);
  return SUCCESS;
}
/* A product, which a graph may compute later. */
typedef struct product {
  sparse a;
  dense x, y;
  int op, type;
  number alpha, beta;
  void *buffer;
} product;
static int multiply_now(const void *arguments, void *stream) {
  const product *p = arguments;
  const sparse *a = &p->a;
  const dense *x = &p->x, *y = &p->y;
  number *full = use(p->buffer) ? NULL : elements(a);
  (void)stream;
  if (!full) return EXECUTION_FAILED;
  for (int64_t k = 0; k < y->columns; k++)
    for (int64_t i = 0; i < y->rows; i++) {
      number sum = 0;
      for (int64_t j = 0; j < x->rows; j++) {
        sum += op_at(a, full, p->op, i, j) * get(p->type, x->values, place(x, j, k));
      }
      sum *= p->alpha;
      if (p->beta != 0) sum += p->beta * get(p->type, y->values, place(y, i, k));
      set(p->type, y->values, place(y, i, k), sum);
    }
  free(full);
  return SUCCESS;
}
static int multiply(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const void *beta,
                    const dense *y, int type, void *buffer) {
  const int status = status_of(h, op, a, x, y, type);
  if (status) return status;
  const product p = {*a, *x, *y, op, type, get(type, alpha, 0), get(type, beta, 0), buffer};
  return gpu_double_captures(h->stream, multiply_now, &p, sizeof p) ? SUCCESS : multiply_now(&p, h->stream);
}
static int asked(int status, size_t *size) {
  *size = status ? 0 : BUFFER;
  return status;
}
int cusparseSpMV_bufferSize(const handle *h, int op, const void *alpha, const sparse *a, const dense *x,
                            const void *beta, const dense *y, int type, int algorithm, size_t *size) {
  return asked(alpha && beta && !algorithm ? status_of(h, op, a, x, y, type) : INVALID_VALUE, size);
}
int cusparseSpMV(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const void *beta,
                 const dense *y, int type, int algorithm, void *buffer) {
  return algorithm ? INVALID_VALUE : multiply(h, op, alpha, a, x, beta, y, type, buffer);
}
int cusparseSpMM_bufferSize(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                            const void *beta, const dense *y, int type, int algorithm, size_t *size) {
  if (op_b || algorithm || !alpha || !beta || x->by_rows != y->by_rows) return INVALID_VALUE;
  return asked(status_of(h, op, a, x, y, type), size);
}
int cusparseSpMM(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                 const void *beta, const dense *y, int type, int algorithm, void *buffer) {
  if (op_b || algorithm || x->by_rows != y->by_rows) return INVALID_VALUE;
  return multiply(h, op, alpha, a, x, beta, y, type, buffer);
}

static int solve(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y, int type,
                 plan *p) {
  const int status = status_of(h, op, a, x, y, type);
  number *full = status || !p->analysed || use(p->buffer) ? NULL : elements(a);
  if (!full) return status ? status : EXECUTION_FAILED;
  const int64_t n = y->rows;
  const int forward = !a->upper != !!op; /* a transpose exchanges the triangles */
  for (int64_t k = 0; k < y->columns; k++)
    for (int64_t step = 0; step < n; step++) {
      const int64_t i = forward ? step : n - 1 - step;
      number rest = get(type, alpha, 0) * get(type, x->values, place(x, i, k));
      for (int64_t j = forward ? 0 : i + 1; j < (forward ? i : n); j++)
        rest -= op_at(a, full, op, i, j) * get(type, y->values, place(y, j, k));
      set(type, y->values, place(y, i, k), a->unit ? rest : rest / op_at(a, full, op, i, i));
    }
  free(full);
  return SUCCESS;
}
static int ask(const handle *h, int op, const sparse *a, const dense *x, const dense *y, int type, plan *p,
               size_t *size) {
  p->asked = 1;
  if (a->format != CSR && a->format != COO) return NOT_SUPPORTED;
  return asked(status_of(h, op, a, x, y, type), size);
}
static int analyse(plan *p, void *buffer) {
  const int status = p->asked ? use(buffer) : INVALID_VALUE;
  p->analysed = !status;
  p->buffer = buffer;
  return status;
}
int cusparseSpSV_createDescr(plan **p) { return (*p = calloc(1, sizeof **p)) ? SUCCESS : ALLOC_FAILED; }
int cusparseSpSM_createDescr(plan **p) { return cusparseSpSV_createDescr(p); }
int cusparseSpSV_destroyDescr(plan *p) {
  free(p);
  return SUCCESS;
}
int cusparseSpSM_destroyDescr(plan *p) { return cusparseSpSV_destroyDescr(p); }
int cusparseSpSV_bufferSize(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y,
                            int type, int algorithm, plan *p, size_t *size) {
  return alpha && !algorithm ? ask(h, op, a, x, y, type, p, size) : INVALID_VALUE;
}
int cusparseSpSM_bufferSize(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                            const dense *y, int type, int algorithm, plan *p, size_t *size) {
  return alpha && !algorithm && !op_b ? ask(h, op, a, x, y, type, p, size) : INVALID_VALUE;
}
int cusparseSpSV_analysis(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y,
                          int type, int algorithm, plan *p, void *buffer) {
  const int status = alpha && !algorithm ? status_of(h, op, a, x, y, type) : INVALID_VALUE;
  return status ? status : analyse(p, buffer);
}
int cusparseSpSM_analysis(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                          const dense *y, int type, int algorithm, plan *p, void *buffer) {
  const int status = alpha && !algorithm && !op_b ? status_of(h, op, a, x, y, type) : INVALID_VALUE;
  return status ? status : analyse(p, buffer);
}
int cusparseSpSV_solve(const handle *h, int op, const void *alpha, const sparse *a, const dense *x, const dense *y,
                       int type, int algorithm, plan *p) {
  return algorithm ? INVALID_VALUE : solve(h, op, alpha, a, x, y, type, p);
}
int cusparseSpSM_solve(const handle *h, int op, int op_b, const void *alpha, const sparse *a, const dense *x,
                       const dense *y, int type, int algorithm, plan *p) {
  return algorithm || op_b ? INVALID_VALUE : solve(h, op, alpha, a, x, y, type, p);
}

#include "sparse_matrices.h"
