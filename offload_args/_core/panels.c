/* Products in panels. If the device lacks B, the product A B is several calls of the vendor's function, one a panel of
 * B's columns. The next panel goes up while the device multiplies A with the panels that it has. */
#include "panels.h"

#include <string.h>

enum { OP_A, OP_B, M, N, K, ALPHA, A, LDA, B, LDB, BETA, C, LDC, COUNT }; /* the values of a gemm */
enum { MOST_PANELS = 16, UNIT = 128, FEWEST_COLUMNS = 512 };
enum { FEWEST_BYTES = 8 << 20 }; /* of B: fewer bytes go up in some 0.2 ms */

/* The fewest columns of a panel. Tests change it, and then products of any size may be in panels. */
static atomic_int fewest_columns = FEWEST_COLUMNS;
atomic_llong panels_elements = PANELS_ELEMENTS;

typedef struct {
  const oa_routine *routine;
  int first;              /* the number of values before the first value of a gemm: CBLAS takes an order first */
  const oa_value *values; /* from the first value of a gemm */
  int64_t itemsize;
  oa_any *parts[2]; /* of the latest call: of B and C */
} Product;

/* Makes a pointer to some columns of a matrix. Returns a status. */
static int columns_of(const Product *product, int matrix, int64_t rows, int64_t from, int64_t count, oa_any **part) {
  const int64_t ld = product->values[matrix + 1].integer * product->itemsize;
  const int64_t shape[] = {rows, count}, strides[] = {product->itemsize, ld};
  return oa_pointer_view(product->values[matrix].pointer, from * ld, 2, shape, strides, part);
}

/* Computes some columns of C. Returns a status. */
static int compute(Product *product, int64_t from, int64_t count) {
  oa_value all[1 + COUNT], *values = all + product->first;
  int status = columns_of(product, B, product->values[K].integer, from, count, &product->parts[0]);
  if (status == OA_OK) status = columns_of(product, C, product->values[M].integer, from, count, &product->parts[1]);
  if (status != OA_OK) return status;
  for (int i = -product->first; i < COUNT; i++) values[i] = product->values[i];
  values[N].integer = count;
  values[B].pointer = product->parts[0];
  values[C].pointer = product->parts[1];
  return product->routine->run(product->routine, all, 0);
}

static void release_parts(Product *product) {
  for (int i = 0; i < 2; i++) {
    if (product->parts[i] != NULL) oa_pointer_release(product->parts[i]);
    product->parts[i] = NULL;
  }
}

/* Marks C as undefined: a call failed, and earlier calls have written some of its columns. */
static void spoil_result(const Product *product, int dtype) {
  const oa_value *values = product->values;
  oa_operand operand =
      oa_operand_of("C", values[C].pointer, OA_OVERWRITE, dtype,
                    OA_MATRIX(values[M].integer, values[N].integer, values[LDC].integer, "m", "n", "ldc"));
  oa_call call = oa_call_of("blas.gemm", NULL, &operand, 1);
  if (oa_begin(&call) == OA_OK) oa_end(&call, -1);
}

/* Returns whether the call passes all checks. It is not made. */
static int is_right(const Product *product) {
  oa_value all[1 + COUNT]; /* a run may change its values */
  memcpy(all, product->values - product->first, (size_t)(product->first + COUNT) * sizeof *all);
  oa_only_check(1);
  product->routine->run(product->routine, all, 0);
  return oa_only_check(0);
}

/* Returns the number of columns of a panel; 0 if one call is better. */
static int64_t panel_columns(const oa_value *values) {
  oa_pointer_info a = OA_SIZED(oa_pointer_info), b = a, c = a;
  const int64_t fewest = atomic_load(&fewest_columns), unit = fewest < UNIT ? fewest : UNIT, size = values[N].integer;
  if (oa_pointer_query(values[B].pointer, &b) != OA_OK || oa_pointer_query(values[C].pointer, &c) != OA_OK) return 0;
  if (!c.in_parts || c.captured || b.lacking < (fewest == FEWEST_COLUMNS ? FEWEST_BYTES : 1)) return 0;
  if (oa_pointer_query(values[A].pointer, &a) != OA_OK) return 0;
  if (a.host_writes || c.host_writes) return 0; /* each panel's call would bring it up again */
  int64_t count = ((size + MOST_PANELS - 1) / MOST_PANELS + unit - 1) / unit * unit;
  if (count < fewest) count = fewest;
  return count < size ? count : 0;
}

int panels_multiply(const Function *function, const oa_value *values, int64_t op_none) {
  const int first = function->positional - COUNT;
  if (oa_only_checks() || first < 0 || first > 1 || values[first + OP_B].integer != op_none) return 0;
  const int dtype = function->parameters[first + C].dtype;
  Product product = {function->routine, first, values + first, oa_itemsize(dtype), {NULL, NULL}};
  const int64_t size = product.values[N].integer;
  int64_t columns, done = 0;
  int status = OA_OK, in_panels;
  Py_BEGIN_ALLOW_THREADS;
  columns = panel_columns(product.values);
  in_panels = columns && is_right(&product);
  while (in_panels && status == OA_OK && done < size) {
    release_parts(&product);
    status = compute(&product, done, columns < size - done ? columns : size - done);
    if (status == OA_OK) done += columns;
  }
  Py_END_ALLOW_THREADS;
  if (status != OA_OK) fail(status); /* reads the failure's text, which the next call would replace */
  if (status != OA_OK && done) {
    Py_BEGIN_ALLOW_THREADS spoil_result(&product, dtype); /* may wait for another thread's call */
    Py_END_ALLOW_THREADS
  }
  release_parts(&product);
  return status != OA_OK ? -1 : in_panels;
}

/* (columns): lets panels have so few columns, and products of any size be in panels; 0: as usual */
static PyObject *panels_configure(PyObject *Py_UNUSED(module), PyObject *argument) {
  const int count = as_int(argument);
  if (count == -1 && PyErr_Occurred()) return NULL;
  atomic_store(&fewest_columns, count > 0 ? count : FEWEST_COLUMNS);
  atomic_store(&panels_elements, count > 0 ? 1 : PANELS_ELEMENTS);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"panels_configure", panels_configure, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_panels(PyObject *module) { return PyModule_AddFunctions(module, functions); }
