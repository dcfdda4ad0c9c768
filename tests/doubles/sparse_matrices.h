/* The functions of the double of cuSPARSE that make sparse matrices: products of two of them, and conversions. The
 * double of cuSPARSE includes this file at its end. */

typedef struct product_plan {
  int64_t nnz;
  number *full; /* the product, and in `stored` its structure */
  char *stored;
  void *first, *second;
  int estimated, computed;
} product_plan;

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
int cusparseCsrSetPointers(sparse *c, void *offsets, void *indices, void *values) {
  return c->format == CSR ? set_pointers(c, offsets, indices, values) : INVALID_VALUE;
}
int cusparseSpMatGetSize(const sparse *c, int64_t *rows, int64_t *columns, int64_t *nnz) {
  *rows = c->rows;
  *columns = c->columns;
  *nnz = c->nnz;
  return SUCCESS;
}

int cusparseSpGEMM_createDescr(product_plan **p) { return (*p = calloc(1, sizeof **p)) ? SUCCESS : ALLOC_FAILED; }
int cusparseSpGEMM_destroyDescr(product_plan *p) {
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
int cusparseSpGEMM_workEstimation(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a,
                                  const sparse *b, const void *beta, const sparse *c, int type, int algorithm,
                                  product_plan *p, size_t *size, void *buffer) {
  const int status = alpha ? fit(h, op_a, op_b, a, b, beta, c, type, algorithm) : INVALID_VALUE;
  if (status || !buffer) return asked(status, size);
  p->first = buffer;
  p->estimated = *size == BUFFER && !use(buffer);
  return p->estimated ? SUCCESS : INVALID_VALUE;
}
int cusparseSpGEMM_compute(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a, const sparse *b,
                           const void *beta, sparse *c, int type, int algorithm, product_plan *p, size_t *size,
                           void *buffer) {
  const int status = fit(h, op_a, op_b, a, b, beta, c, type, algorithm);
  if (status || !p->estimated) return status ? status : INVALID_VALUE;
  if (!buffer) return asked(SUCCESS, size);
  if (*size != BUFFER || use(buffer)) return INVALID_VALUE;
  p->second = buffer;
  const int64_t m = a->rows, k = a->columns, n = b->columns;
  number *left = elements(a), *right = elements(b);
  char *in_left = structure_of(a), *in_right = structure_of(b);
  p->full = calloc((size_t)(m * n + 1), sizeof *p->full);
  p->stored = calloc((size_t)(m * n + 1), 1);
  if (!left || !right || !in_left || !in_right || !p->full || !p->stored) return EXECUTION_FAILED;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < k; l++) {
        p->full[i * n + j] += get(type, alpha, 0) * left[i * k + l] * right[l * n + j];
        p->stored[i * n + j] |= in_left[i * k + l] && in_right[l * n + j];
      }
  for (int64_t i = 0; i < m * n; i++) p->nnz += p->stored[i];
  c->nnz = p->nnz;
  free(left);
  free(right);
  free(in_left);
  free(in_right);
  p->computed = 1;
  return SUCCESS;
}
int cusparseSpGEMM_copy(const handle *h, int op_a, int op_b, const void *alpha, const sparse *a, const sparse *b,
                        const void *beta, const sparse *c, int type, int algorithm, product_plan *p) {
  const int status = alpha ? fit(h, op_a, op_b, a, b, beta, c, type, algorithm) : INVALID_VALUE;
  if (status || !p->computed || c->nnz != p->nnz || !c->first || (p->nnz && !(c->second && c->values)))
    return status ? status : INVALID_VALUE;
  if (use(p->first) || use(p->second)) return INVALID_VALUE; /* both workspaces are in use until now */
  store(c, p->full, p->stored, 1);                           /* cuSPARSE does not promise an order */
  return SUCCESS;
}

/* The conversion of CSR to CSC, whose arrays are of 32 bits. */
int cusparseCsr2cscEx2_bufferSize(const handle *h, int m, int n, int nnz, const void *values, const int *offsets,
                                  const int *indices, void *to_values, int *to_offsets, int *to_indices, int type,
                                  int action, int base, int algorithm, size_t *size) {
  (void)values, (void)offsets, (void)indices, (void)to_values, (void)to_offsets, (void)to_indices, (void)type;
  return asked(h && m >= 0 && n >= 0 && nnz > 0 && action == 1 && !base && algorithm == 1 ? SUCCESS : INVALID_VALUE,
               size);
}
int cusparseCsr2cscEx2(const handle *h, int m, int n, int nnz, const void *values, const int *offsets,
                       const int *indices, void *to_values, int *to_offsets, int *to_indices, int type, int action,
                       int base, int algorithm, void *buffer) {
  if (!h || !h->stream || action != 1 || base || algorithm != 1 || nnz < 1 || use(buffer)) return INVALID_VALUE;
  if (!is_array(values, nnz, size_of(type)) || !is_array(offsets, m + 1, 4) || !is_array(indices, nnz, 4))
    return INVALID_VALUE;
  if (!is_array(to_values, nnz, size_of(type)) || !is_array(to_offsets, n + 1, 4) || !is_array(to_indices, nnz, 4))
    return INVALID_VALUE;
  const sparse from = {.format = CSR,
                       .rows = m,
                       .columns = n,
                       .nnz = nnz,
                       .r = 1,
                       .c = 1,
                       .first = offsets,
                       .second = indices,
                       .values = values,
                       .index = 2,
                       .type = type};
  sparse to = from;
  to.format = CSC;
  to.first = to_offsets;
  to.second = to_indices;
  to.values = to_values;
  number *full = elements(&from);
  char *stored = structure_of(&from);
  if (!full || !stored) return EXECUTION_FAILED;
  store(&to, full, stored, 0);
  free(full);
  free(stored);
  return SUCCESS;
}
int cusparseXcoo2csr(const handle *h, const int *rows, int nnz, int m, int *offsets, int base) {
  if (!h || !h->stream || base || nnz < 1 || !is_array(rows, nnz, 4) || !is_array(offsets, m + 1, 4))
    return INVALID_VALUE;
  for (int i = 0, k = 0; i <= m; i++) {
    while (k < nnz && rows[k] < i) k++;
    offsets[i] = k;
  }
  return SUCCESS;
}
int cusparseXcsr2coo(const handle *h, const int *offsets, int nnz, int m, int *rows, int base) {
  if (!h || !h->stream || base || nnz < 1 || !is_array(rows, nnz, 4) || !is_array(offsets, m + 1, 4))
    return INVALID_VALUE;
  for (int i = 0; i < m; i++)
    for (int k = offsets[i]; k < offsets[i + 1]; k++) rows[k] = i;
  return SUCCESS;
}

int cusparseSparseToDense_bufferSize(const handle *h, const sparse *a, const dense *d, int algorithm, size_t *size) {
  return asked(h && !algorithm && a->rows == d->rows && a->columns == d->columns ? SUCCESS : INVALID_VALUE, size);
}
int cusparseSparseToDense(const handle *h, const sparse *a, const dense *d, int algorithm, void *buffer) {
  if (!h || !h->stream || algorithm || a->type != d->type || use(buffer)) return INVALID_VALUE;
  if (a->format == BSR) return NOT_SUPPORTED;
  number *full = elements(a);
  if (!full) return EXECUTION_FAILED;
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < a->columns; j++) set(d->type, d->values, place(d, i, j), full[i * a->columns + j]);
  free(full);
  return SUCCESS;
}
int cusparseDenseToSparse_bufferSize(const handle *h, const dense *d, const sparse *a, int algorithm, size_t *size) {
  return cusparseSparseToDense_bufferSize(h, a, d, algorithm, size);
}
int cusparseDenseToSparse_analysis(const handle *h, const dense *d, sparse *a, int algorithm, void *buffer) {
  if (!h || !h->stream || algorithm || a->format != CSR || !a->first || use(buffer)) return INVALID_VALUE;
  a->nnz = 0;
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < a->columns; j++) a->nnz += get(d->type, d->values, place(d, i, j)) != 0;
  return SUCCESS;
}
int cusparseDenseToSparse_convert(const handle *h, const dense *d, const sparse *a, int algorithm, void *buffer) {
  const int64_t size = a->rows * a->columns;
  number *full = calloc((size_t)(size + 1), sizeof *full);
  char *stored = calloc((size_t)(size + 1), 1);
  if (!h || !h->stream || algorithm || !full || !stored || use(buffer) || (a->nnz && !a->values)) return INVALID_VALUE;
  for (int64_t i = 0; i < a->rows; i++)
    for (int64_t j = 0; j < a->columns; j++) {
      full[i * a->columns + j] = get(d->type, d->values, place(d, i, j));
      stored[i * a->columns + j] = full[i * a->columns + j] != 0;
    }
  store(a, full, stored, 0);
  free(full);
  free(stored);
  return SUCCESS;
}
