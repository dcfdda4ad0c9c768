/* A double of libcudss.so.1 for the double of a GPU: factors of a dense matrix with exchanges of rows, in double
 * precision. It refuses wrong addresses, alignments and indices, phases out of order, and objects of another handle. */
#include <complex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "numbers.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 2, INVALID_VALUE = 3, NOT_SUPPORTED = 4, EXECUTION_FAILED = 5 };
enum { ANALYSIS = 3, FACTORIZATION = 4, REFACTORIZATION = 8, SOLVE = 1008 };

typedef struct handle {
  void *stream;
} handle;
typedef struct config {
  int mode;
} config;
typedef struct matrix {         /* CSR, or dense by columns if there are no offsets */
  int64_t rows, columns, count; /* count: the elements of CSR, or the distance of columns */
  const void *offsets, *indices;
  void *values;
  int index, type;
} matrix;
typedef struct data {
  const handle *owner;
  int64_t n, count; /* of the structure that was analysed */
  int64_t *structure, *order;
  number *factors;
  int64_t replaced;
  int index, analysed, factored;
} data;

static size_t size_of(int type) { return type == 0 || type == 10 ? 4 : type == 5 ? 16 : 8; }
static int is_array(const void *address, int64_t count, int type) {
  const size_t alignment = type == 10 ? 4 : type == 24 ? 8 : size_of(type);
  return !count || (kind_of(address) == 2 && (uintptr_t)address % alignment == 0);
}
static int64_t index_at(int type, const void *indices, int64_t i) {
  return type == 10 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
}

int cudssCreate(handle **h) { return (*h = calloc(1, sizeof **h)) ? SUCCESS : ALLOC_FAILED; }
int cudssDestroy(handle *h) {
  free(h);
  return SUCCESS;
}
int cudssSetStream(handle *h, void *stream) {
  h->stream = stream;
  return SUCCESS;
}
int cudssGetProperty(int part, int *value) {
  *value = part == 0;
  return SUCCESS;
}
int cudssConfigCreate(config **c) { return (*c = calloc(1, sizeof **c)) ? SUCCESS : ALLOC_FAILED; }
int cudssConfigDestroy(config *c) {
  free(c);
  return SUCCESS;
}
int cudssConfigSet(config *c, int attribute, const void *value, size_t size) {
  const int mode = attribute == 4 && size == sizeof(int) ? *(const int *)value : -1;
  if (mode < 0 || mode > 2) return INVALID_VALUE;
  c->mode = mode;
  return SUCCESS;
}
int cudssDataCreate(handle *h, data **d) {
  if (!(*d = calloc(1, sizeof **d))) return ALLOC_FAILED;
  (*d)->owner = h;
  return SUCCESS;
}
int cudssDataDestroy(handle *h, data *d) {
  if (d->owner != h) return INVALID_VALUE;
  free(d->structure);
  free(d->order);
  free(d->factors);
  free(d);
  return SUCCESS;
}
int cudssDataGet(handle *h, data *d, int attribute, void *value, size_t size, size_t *written) {
  const size_t needed = attribute == 2 && d->index == 24 ? 8 : 4;
  const int64_t count = attribute == 2 ? d->replaced : 0;
  if (d->owner != h || (attribute != 0 && attribute != 2) || !d->factored) return INVALID_VALUE;
  *written = needed;
  if (!value) return size ? INVALID_VALUE : SUCCESS;
  if (size != needed) return INVALID_VALUE;
  memcpy(value, &count, size);
  return SUCCESS;
}
static int make(matrix **out, matrix m) {
  if ((m.type != 0 && m.type != 1 && m.type != 4 && m.type != 5) || !(*out = malloc(sizeof m))) return INVALID_VALUE;
  **out = m;
  return SUCCESS;
}
int cudssMatrixCreateDn(matrix **m, int64_t rows, int64_t columns, int64_t ld, void *values, int type, int layout) {
  if (layout || ld < rows || !is_array(values, rows * columns, type)) return INVALID_VALUE;
  return make(m, (matrix){rows, columns, ld, NULL, NULL, values, 0, type});
}
int cudssMatrixCreateCsr(matrix **m, int64_t rows, int64_t columns, int64_t count, void *starts, void *ends,
                         void *indices, void *values, int offset, int index, int type, int symmetry, int view,
                         int base) {
  if (ends || symmetry || view || base || offset != index || (index != 10 && index != 24)) return INVALID_VALUE;
  if (!is_array(starts, rows + 1, index) || !is_array(indices, count, index) || !is_array(values, count, type))
    return INVALID_VALUE;
  return make(m, (matrix){rows, columns, count, starts, indices, values, index, type});
}
int cudssMatrixDestroy(matrix *m) {
  free(m);
  return SUCCESS;
}

static int analyse(data *d, const matrix *a) {
  const int64_t n = a->rows;
  if (d->analysed) return INVALID_VALUE;
  d->n = n;
  d->count = a->count;
  d->index = a->index;
  d->structure = malloc((size_t)(n + 1 + a->count) * sizeof *d->structure);
  d->order = malloc((size_t)n * sizeof *d->order);
  d->factors = malloc((size_t)(n * n) * sizeof *d->factors);
  if (!d->structure || !d->order || !d->factors) return ALLOC_FAILED;
  for (int64_t i = 0; i <= n; i++) d->structure[i] = index_at(a->index, a->offsets, i);
  for (int64_t k = 0; k < a->count; k++) d->structure[n + 1 + k] = index_at(a->index, a->indices, k);
  if (d->structure[0] || d->structure[n] != a->count) return EXECUTION_FAILED;
  for (int64_t k = 0; k < a->count; k++)
    if (d->structure[n + 1 + k] < 0 || d->structure[n + 1 + k] >= n) return EXECUTION_FAILED;
  d->analysed = 1;
  return SUCCESS;
}
/* Whether a column has stored elements, all of which are 0. cuDSS divides by such an element. */
static int is_of_zeros(const data *d, const matrix *a, int64_t column) {
  int stored = 0;
  for (int64_t k = 0; k < d->count; k++) {
    if (d->structure[d->n + 1 + k] != column) continue;
    stored = 1;
    if (get(a->type, a->values, k) != 0) return 0;
  }
  return stored;
}
static int factor(data *d, const matrix *a, int again) {
  const int64_t n = d->n;
  if (!d->analysed || again != d->factored) return INVALID_VALUE;
  memset(d->factors, 0, (size_t)(n * n) * sizeof *d->factors);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = d->structure[i]; k < d->structure[i + 1]; k++)
      d->factors[i * n + d->structure[n + 1 + k]] += get(a->type, a->values, k);
  d->replaced = 0;
  for (int64_t j = 0; j < n; j++) {
    int64_t best = j;
    for (int64_t i = j + 1; i < n; i++)
      if (cabs(d->factors[i * n + j]) > cabs(d->factors[best * n + j])) best = i;
    d->order[j] = best;
    for (int64_t k = 0; best != j && k < n; k++) {
      const number other = d->factors[j * n + k];
      d->factors[j * n + k] = d->factors[best * n + k];
      d->factors[best * n + k] = other;
    }
    if (cabs(d->factors[j * n + j]) < 1e-13 && !is_of_zeros(d, a, j)) {
      d->factors[j * n + j] = 1e-13;
      d->replaced++;
    }
    for (int64_t i = j + 1; i < n; i++) {
      const number part = d->factors[i * n + j] /= d->factors[j * n + j];
      for (int64_t k = j + 1; k < n; k++) d->factors[i * n + k] -= part * d->factors[j * n + k];
    }
  }
  d->factored = 1;
  return SUCCESS;
}
static number element(const data *d, int mode, int64_t i, int64_t j) {
  return mode == 2 ? conj(d->factors[j * d->n + i]) : d->factors[mode ? j * d->n + i : i * d->n + j];
}
static void exchange(const data *d, number *x, int64_t j) {
  const number other = x[j];
  x[j] = x[d->order[j]];
  x[d->order[j]] = other;
}
static int solve(const data *d, int mode, const matrix *x, const matrix *b) {
  const int64_t n = d->n;
  number *line = malloc((size_t)(n + 1) * sizeof *line);
  if (!d->factored || !line) return INVALID_VALUE;
  for (int64_t column = 0; column < b->columns; column++) {
    for (int64_t i = 0; i < n; i++) line[i] = get(b->type, b->values, i + column * b->count);
    for (int64_t j = 0; !mode && j < n; j++) exchange(d, line, j);
    for (int64_t i = 0; i < n; i++) { /* the lower triangle: L, or the transpose of U */
      for (int64_t j = 0; j < i; j++) line[i] -= element(d, mode, i, j) * line[j];
      if (mode) line[i] /= element(d, mode, i, i);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
      for (int64_t j = i + 1; j < n; j++) line[i] -= element(d, mode, i, j) * line[j];
      if (!mode) line[i] /= element(d, mode, i, i);
    }
    for (int64_t j = n - 1; mode && j >= 0; j--) exchange(d, line, j);
    for (int64_t i = 0; i < n; i++) set(x->type, x->values, i + column * x->count, line[i]);
  }
  free(line);
  return SUCCESS;
}
int cudssExecute(handle *h, int phase, const config *c, data *d, const matrix *a, const matrix *x, const matrix *b) {
  if (!h || !h->stream) return NOT_INITIALIZED;
  if (d->owner != h || !a->offsets || x->offsets || b->offsets || a->rows != a->columns) return INVALID_VALUE;
  if (x->rows != a->rows || b->rows != a->rows || x->columns != b->columns || x->type != a->type || b->type != a->type)
    return INVALID_VALUE;
  if (d->analysed && (d->n != a->rows || d->count != a->count || d->index != a->index)) return INVALID_VALUE;
  if (phase == ANALYSIS) return analyse(d, a);
  if (phase == FACTORIZATION || phase == REFACTORIZATION) return factor(d, a, phase == REFACTORIZATION);
  return phase == SOLVE ? solve(d, c->mode, x, b) : NOT_SUPPORTED;
}
