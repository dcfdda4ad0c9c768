/* The functions of the doubles of cuSPARSE and hipSPARSE that make sparse matrices: products of two of them, and
 * conversions. The doubles include this file at their end. A function whose result the host reads waits for the stream;
 * other work is put into the stream. */

typedef struct product_plan {
  int64_t nnz;
  number *full; /* the product, and in `stored` its structure */
  char *stored;
  void *first, *second;
  const void *offsets; /* of the result, which hipSPARSE 2 writes before the copy */
  int estimated, computed;
} product_plan;

/* Waits for the stream, and returns a code. A stream that is captured can't wait. */
static int wait_for(const handle *h) {
  int is_captured = 0;
  if (!h || !h->stream) return NOT_INITIALIZED;
  cuStreamIsCapturing(h->stream, &is_captured);
  return is_captured || gpu_double_unsafe() || finish(h->stream) ? EXECUTION_FAILED : SUCCESS;
}
static int use(void *buffer) {
  if (!is_buffer(buffer)) return INVALID_VALUE;
  memset(hip_double_here(buffer), 0xa5, BUFFER);
  return SUCCESS;
}
/* Returns whether the buffer has the bytes that an earlier call of this operation wrote. */
static int is_in_use(void *buffer) {
  if (!is_buffer(buffer)) return 0;
  const unsigned char *bytes = hip_double_here(buffer);
  for (int i = 0; i < BUFFER; i++)
    if (bytes[i] != 0xa5) return 0;
  return 1;
}

static void set_index(const sparse *a, void *indices, int64_t i, int64_t value) {
  if (a->index == 2)
    ((int32_t *)indices)[i] = (int32_t)value;
  else
    ((int64_t *)indices)[i] = value;
}
/* Returns a byte for each element of the matrix, 1 if it is stored, or NULL if an index is out of bounds. */
static char *structure_of(const sparse *a) {
  sparse ones = *a;
  const int64_t size = a->rows * a->columns;
  double *values = malloc((size_t)(a->nnz + 1) * sizeof *values);
  for (int64_t k = 0; k < a->nnz; k++) values[k] = 1;
  ones.values = values;
  ones.type = 1;
  number *full = elements(&ones);
  char *stored = full ? malloc((size_t)(size + 1)) : NULL;
  for (int64_t i = 0; stored && i < size; i++) stored[i] = full[i] != 0;
  free(values);
  free(full);
  return stored;
}
/* Writes the stored elements of a full matrix to the arrays of c, line by line. The indices of a line rise, or fall. */
static void store(const sparse *c, const number *full, const char *stored, int falling) {
  const int by_columns = c->format == CSC;
  const int64_t lines = by_columns ? c->columns : c->rows, places = by_columns ? c->rows : c->columns;
  int64_t k = 0;
  for (int64_t line = 0; line < lines; line++) {
    set_index(c, (void *)(uintptr_t)c->first, line, k);
    for (int64_t step = 0; step < places; step++) {
      const int64_t at = falling ? places - 1 - step : step;
      const int64_t i = by_columns ? at * c->columns + line : line * c->columns + at;
      if (!stored[i]) continue;
      set_index(c, (void *)(uintptr_t)c->second, k, at);
      set(c->type, (void *)(uintptr_t)c->values, k++, full[i]);
    }
  }
  set_index(c, (void *)(uintptr_t)c->first, lines, k);
}
static int set_pointers(sparse *c, void *offsets, void *indices, void *values) {
  const size_t itemsize = c->index == 2 ? 4 : 8;
  const int64_t lines = c->format == CSC ? c->columns : c->rows;
  if (!is_array(offsets, lines + 1, itemsize) || !is_array(indices, c->nnz, itemsize)) return INVALID_VALUE;
  if (!is_array(values, c->nnz, size_of(c->type))) return INVALID_VALUE;
  c->first = offsets;
  c->second = indices;
  c->values = values;
  return SUCCESS;
}
int NAME(CsrSetPointers)(sparse *c, void *offsets, void *indices, void *values) {
  return c->format == CSR ? set_pointers(c, offsets, indices, values) : INVALID_VALUE;
}
int NAME(SpMatGetSize)(const sparse *c, int64_t *rows, int64_t *columns, int64_t *nnz) {
  *rows = c->rows;
  *columns = c->columns;
  *nnz = c->nnz;
  return SUCCESS;
}

int NAME(SpGEMM_createDescr)(product_plan **p) { return (*p = calloc(1, sizeof **p)) ? SUCCESS : ALLOC_FAILED; }
int NAME(SpGEMM_destroyDescr)(product_plan *p) {
  free(p->full);
  free(p->stored);
  free(p);
  return SUCCESS;
}
static int fit(const handle *h, int op_a, int op_b, const sparse *a, const sparse *b, const void *beta, const sparse *c,
               int type, int algorithm) {
  if (!h || !h->stream) return NOT_INITIALIZED;
  if (op_a || op_b || algorithm || a->format != CSR || b->format != CSR || c->format != CSR) return NOT_SUPPORTED;
  if (a->index != 2 || b->index != 2 || c->index != 2) return NOT_SUPPORTED;
  if (a->columns != b->rows || c->rows != a->rows || c->columns != b->columns) return INVALID_VALUE;
  return a->type != type || b->type != type || c->type != type || get(type, beta, 0) != 0 ? INVALID_VALUE : SUCCESS;
}
int NAME(SpGEMM_workEstimation)(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a,
                                const sparse *b, const void *beta, const sparse *c, int type, int algorithm,
                                product_plan *p, size_t *size, void *buffer) {
  const int status = alpha ? fit(h, op_a, op_b, a, b, beta, c, type, algorithm) : INVALID_VALUE;
  if (status || !buffer) return asked(status, size);
  p->first = buffer;
  p->estimated = *size == BUFFER && !wait_for(h) && !use(buffer);
  return p->estimated ? SUCCESS : INVALID_VALUE;
}
/* Computes the product and its structure. The matrices have addresses that the host may read. */
static int compute(product_plan *p, number alpha, const sparse *a, const sparse *b) {
  const int64_t m = a->rows, k = a->columns, n = b->columns;
  number *left = elements(a), *right = elements(b);
  char *in_left = structure_of(a), *in_right = structure_of(b);
  p->full = calloc((size_t)(m * n + 1), sizeof *p->full);
  p->stored = calloc((size_t)(m * n + 1), 1);
  if (!left || !right || !in_left || !in_right || !p->full || !p->stored) return EXECUTION_FAILED;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < k; l++) {
        p->full[i * n + j] += alpha * left[i * k + l] * right[l * n + j];
        p->stored[i * n + j] |= in_left[i * k + l] && in_right[l * n + j];
      }
  for (int64_t i = 0; i < m * n; i++) p->nnz += p->stored[i];
  free(left);
  free(right);
  free(in_left);
  free(in_right);
  return SUCCESS;
}
int NAME(SpGEMM_compute)(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a, const sparse *b,
                         const void *beta, sparse *c, int type, int algorithm, product_plan *p, size_t *size,
                         void *buffer) {
  const int status = fit(h, op_a, op_b, a, b, beta, c, type, algorithm);
  if (status || !p->estimated) return status ? status : INVALID_VALUE;
  if (!buffer) return asked(SUCCESS, size);
  if (*size != BUFFER || wait_for(h) || !is_in_use(p->first) || use(buffer)) return INVALID_VALUE;
  p->second = buffer;
  const sparse left = at_hand(*a), right = at_hand(*b);
  if (compute(p, get(type, alpha, 0), &left, &right)) return EXECUTION_FAILED;
  c->nnz = p->nnz;
  p->offsets = c->first;
  p->computed = 1;
  return SUCCESS;
}
int NAME(SpGEMM_copy)(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a, const sparse *b,
                      const void *beta, const sparse *c, int type, int algorithm, product_plan *p) {
  const int status = alpha ? fit(h, op_a, op_b, a, b, beta, c, type, algorithm) : INVALID_VALUE;
  if (status || !p->computed || c->nnz != p->nnz || !c->first || (p->nnz && !(c->second && c->values)))
    return status ? status : INVALID_VALUE;
  if (VERSION < 3 && c->first != p->offsets) return INVALID_VALUE;
  if (wait_for(h) || !is_in_use(p->first) || !is_in_use(p->second)) return INVALID_VALUE;
  const sparse result = at_hand(*c);
  number *sums = p->full;
  int64_t place = 0;
  for (int64_t i = 0; IS_HIPSPARSE && i < c->rows * c->columns; i++) /* hipSPARSE adds beta times the old values */
    if (p->stored[i] && get(type, result.values, place++) != 0) sums[i] = NAN;
  store(&result, sums, p->stored, 1); /* the libraries do not promise an order */
  return SUCCESS;
}

/* The conversion of CSR to CSC, whose arrays are of 32 bits. */
int NAME(Csr2cscEx2_bufferSize)(const handle *h, int m, int n, int nnz, const void *values, const int *offsets,
                                const int *indices, void *to_values, int *to_offsets, int *to_indices, int type,
                                int action, int base, int algorithm, size_t *size) {
  (void)values, (void)offsets, (void)indices, (void)to_values, (void)to_offsets, (void)to_indices, (void)type;
  return asked(h && m >= 0 && n >= 0 && nnz > 0 && action == 1 && !base && algorithm == 1 ? SUCCESS : INVALID_VALUE,
               size);
}
typedef struct conversion {
  sparse from, to;
  dense full;
  void *buffer;
} conversion;
static int convert_now(const void *arguments, void *stream) {
  conversion w = *(const conversion *)arguments;
  (void)stream;
  if (use(w.buffer)) return EXECUTION_FAILED;
  const sparse from = at_hand(w.from), to = at_hand(w.to);
  number *full = elements(&from);
  char *stored = structure_of(&from);
  if (full && stored) store(&to, full, stored, 0);
  const int status = full && stored ? SUCCESS : EXECUTION_FAILED;
  free(full);
  free(stored);
  return status;
}
int NAME(Csr2cscEx2)(const handle *h, int m, int n, int nnz, const void *values, const int *offsets, const int *indices,
                     void *to_values, int *to_offsets, int *to_indices, int type, int action, int base, int algorithm,
                     void *buffer) {
  if (!h || !h->stream || action != 1 || base || algorithm != 1 || nnz < 1 || !is_buffer(buffer)) return INVALID_VALUE;
  if (!is_array(values, nnz, size_of(type)) || !is_array(offsets, m + 1, 4) || !is_array(indices, nnz, 4))
    return INVALID_VALUE;
  if (!is_array(to_values, nnz, size_of(type)) || !is_array(to_offsets, n + 1, 4) || !is_array(to_indices, nnz, 4))
    return INVALID_VALUE;
  const sparse from = {CSR, m, n, nnz, 1, 1, offsets, indices, values, 2, type, 0, 0, 0, 0};
  const sparse to = {CSC, m, n, nnz, 1, 1, to_offsets, to_indices, to_values, 2, type, 0, 0, 0, 0};
  const conversion w = {from, to, {0}, buffer};
  return enqueue(h, convert_now, &w, sizeof w);
}

typedef struct expansion { /* the offsets of rows, and the row of each element */
  int *offsets, *rows;
  int nnz, m;
} expansion;
static int compress_now(const void *arguments, void *stream) {
  const expansion *w = arguments;
  int *offsets = hip_double_here(w->offsets);
  const int *rows = hip_double_here(w->rows);
  (void)stream;
  for (int i = 0, k = 0; i <= w->m; i++) {
    while (k < w->nnz && rows[k] < i) k++;
    offsets[i] = k;
  }
  return SUCCESS;
}
static int expand_now(const void *arguments, void *stream) {
  const expansion *w = arguments;
  const int *offsets = hip_double_here(w->offsets);
  int *rows = hip_double_here(w->rows);
  (void)stream;
  for (int i = 0; i < w->m; i++)
    for (int k = offsets[i]; k < offsets[i + 1]; k++) rows[k] = i;
  return SUCCESS;
}
static int expand(const handle *h, int (*run)(const void *, void *), expansion w, int base) {
  if (!h || !h->stream || base || w.nnz < 1 || !is_array(w.rows, w.nnz, 4) || !is_array(w.offsets, w.m + 1, 4))
    return INVALID_VALUE;
  return enqueue(h, run, &w, sizeof w);
}
int NAME(Xcoo2csr)(const handle *h, const int *rows, int nnz, int m, int *offsets, int base) {
  return expand(h, compress_now, (expansion){offsets, (int *)(uintptr_t)rows, nnz, m}, base);
}
int NAME(Xcsr2coo)(const handle *h, const int *offsets, int nnz, int m, int *rows, int base) {
  return expand(h, expand_now, (expansion){(int *)(uintptr_t)offsets, rows, nnz, m}, base);
}

int NAME(SparseToDense_bufferSize)(const handle *h, const sparse *a, const dense *d, int algorithm, size_t *size) {
  return asked(h && !algorithm && a->rows == d->rows && a->columns == d->columns ? SUCCESS : INVALID_VALUE, size);
}
static int to_dense_now(const void *arguments, void *stream) {
  const conversion *w = arguments;
  (void)stream;
  if (use(w->buffer)) return EXECUTION_FAILED;
  const sparse a = at_hand(w->from);
  number *full = elements(&a);
  if (!full) return EXECUTION_FAILED;
  for (int64_t i = 0; i < a.rows; i++)
    for (int64_t j = 0; j < a.columns; j++)
      set(a.type, hip_double_here(w->full.values), place(&w->full, i, j), full[i * a.columns + j]);
  free(full);
  return SUCCESS;
}
int NAME(SparseToDense)(const handle *h, const sparse *a, const dense *d, int algorithm, void *buffer) {
  if (!h || !h->stream || algorithm || a->type != d->type || !is_buffer(buffer)) return INVALID_VALUE;
  if (a->format == BSR) return NOT_SUPPORTED;
  const conversion w = {*a, *a, *d, buffer};
  return enqueue(h, to_dense_now, &w, sizeof w);
}
int NAME(DenseToSparse_bufferSize)(const handle *h, const dense *d, const sparse *a, int algorithm, size_t *size) {
  return NAME(SparseToDense_bufferSize)(h, a, d, algorithm, size);
}
int NAME(DenseToSparse_analysis)(const handle *h, const dense *d, sparse *a, int algorithm, void *buffer) {
  if (!h || algorithm || a->format != CSR || !a->first || wait_for(h) || use(buffer)) return INVALID_VALUE;
  a->nnz = 0;
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < a->columns; j++) a->nnz += get(d->type, hip_double_here(d->values), place(d, i, j)) != 0;
  return SUCCESS;
}
static int to_sparse_now(const void *arguments, void *stream) {
  const conversion *w = arguments;
  const sparse a = at_hand(w->to);
  const int64_t size = a.rows * a.columns;
  number *full = calloc((size_t)(size + 1), sizeof *full);
  char *stored = calloc((size_t)(size + 1), 1);
  (void)stream;
  if (!full || !stored || !is_in_use(w->buffer)) return EXECUTION_FAILED;
  for (int64_t i = 0; i < size; i++) {
    full[i] = get(a.type, hip_double_here(w->full.values), place(&w->full, i / a.columns, i % a.columns));
    stored[i] = full[i] != 0;
  }
  store(&a, full, stored, 0);
  free(full);
  free(stored);
  return SUCCESS;
}
int NAME(DenseToSparse_convert)(const handle *h, const dense *d, const sparse *a, int algorithm, void *buffer) {
  if (!h || !h->stream || algorithm || !is_buffer(buffer) || (a->nnz && !a->values)) return INVALID_VALUE;
  const conversion w = {*a, *a, *d, buffer};
  return enqueue(h, to_sparse_now, &w, sizeof w);
}
