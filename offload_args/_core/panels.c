/* Products in panels. If the device lacks a matrix, the call is several calls of the vendor's function, one a panel of
 * this matrix. The next panel goes up while the device computes with the panels that it has. All matrices are in
 * column-major order here.
 *
 * The result of a gemm, symm or hemm has the same panels as the matrix that goes up. The sums of a syrk, herk, syr2k or
 * her2k of A A^T are made panel by panel of A's columns. For A^T A, a panel of A's columns gives a panel of the
 * triangle, from its corner on: a square on the diagonal, and a product with the earlier panels by gemm. trmm and trsm
 * have no panels, which made almost all measured calls slower: benchmarks/results/2026-12-01-h200/panels.md. */
#include "panels.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PANELS = 16, UNIT = 128 };
/* The fewest columns or rows of a panel. Narrower panels hide more of the transfer, but the library's functions other
 * than gemm are slow with them: benchmarks/panels.py. */
enum { FEWEST_OF_GEMM = 512, FEWEST = 1024, FEWEST_OF_TRIANGLES = 2048 };
enum { FEWEST_BYTES = 8 << 20 }; /* of the matrix: fewer bytes go up in some 0.2 ms */
enum { MOST_MATRICES = 3, NOWHERE = -1 };

/* Unless it is 0: the fewest columns or rows of a panel in tests, where calls of any size may be in panels. */
static atomic_int fewest_in_tests;
atomic_llong panels_elements = PANELS_ELEMENTS;

/* A matrix of a call: the indices of its pointer, which its leading dimension follows, and of its sizes. */
typedef struct {
  int place, rows, columns;
  int is_parted;
} Matrix;

struct PanelForm {
  const char *name;
  int count;     /* of the values */
  int option;    /* the index of the value that decides how to part, and of its option */
  int by_column; /* the index of the size that is parted if the option has its first letter, by columns of matrices */
  int by_row;    /* the same for other letters, by rows; NOWHERE: such calls are made at once */
  int fewest;    /* columns or rows of a panel */
  int alpha, beta, matrix_count;
  int is_sum;                     /* the result is a triangle that has no panels; the first value is uplo */
  Matrix matrices[MOST_MATRICES]; /* the result is the last one */
};

static const PanelForm forms[] = {
    {"gemm", 13, 1, 3, NOWHERE, FEWEST_OF_GEMM, 5, 10, 3, 0, {{6, 2, 4, 0}, {8, 4, 3, 1}, {11, 2, 3, 1}}},
    {"symm", 12, 0, 3, 2, FEWEST, 4, 9, 3, 0, {{5, 2, 2, 0}, {7, 2, 3, 1}, {10, 2, 3, 1}}},
    {"hemm", 12, 0, 3, 2, FEWEST, 4, 9, 3, 0, {{5, 2, 2, 0}, {7, 2, 3, 1}, {10, 2, 3, 1}}},
    {"syrk", 10, 1, 3, 2, FEWEST, 4, 7, 2, 1, {{5, 2, 3, 1}, {8, 2, 2, 0}}},
    {"herk", 10, 1, 3, 2, FEWEST, 4, 7, 2, 1, {{5, 2, 3, 1}, {8, 2, 2, 0}}},
    {"syr2k", 12, 1, 3, 2, FEWEST, 4, 9, 3, 1, {{5, 2, 3, 1}, {7, 2, 3, 1}, {10, 2, 2, 0}}},
    {"her2k", 12, 1, 3, 2, FEWEST, 4, 9, 3, 1, {{5, 2, 3, 1}, {7, 2, 3, 1}, {10, 2, 2, 0}}},
};
enum { MOST_COUNT = 13, FORM_COUNT = sizeof forms / sizeof *forms };
enum { GEMM_OP_A, GEMM_OP_B, GEMM_M, GEMM_N, GEMM_K, GEMM_ALPHA, GEMM_A, GEMM_B = 8, GEMM_BETA = 10, GEMM_C };

const PanelForm *panels_form(const char *name) {
  for (int i = 0; i < FORM_COUNT; i++)
    if (strcmp(forms[i].name, name) == 0) return &forms[i];
  return NULL;
}

int panels_option(const PanelForm *form) { return form->option; }

/* A call in panels. */
typedef struct {
  const PanelCall *call;
  const PanelForm *form;
  const oa_value *values; /* of the form */
  int dtype;
  int64_t itemsize;
  int by_rows; /* panels are rows of matrices */
  /* A triangle by panels of its columns, with gemm. `backward`: from the last panel on, for the lower triangle. */
  int in_triangle, backward;
  int has_begun;
  oa_value beta_of_sums;            /* 1: the panels after the first one add to its result */
  oa_any *parts[2 * MOST_MATRICES]; /* the pointers of the latest panel */
  int part_count;
} Product;

static int64_t size_of(const Product *product, int place) { return product->values[place].integer; }

static const Matrix *result_of(const PanelForm *form) { return &form->matrices[form->matrix_count - 1]; }

/* Makes a pointer to a part of the matrix whose pointer is at `place`. Returns a status. */
static int part_of(Product *product, int place, int64_t row, int64_t rows, int64_t column, int64_t columns,
                   const void **part) {
  const int64_t ld = product->values[place + 1].integer * product->itemsize;
  const int64_t shape[] = {rows, columns}, strides[] = {product->itemsize, ld};
  oa_any *view = NULL;
  const int status =
      oa_pointer_view(product->values[place].pointer, row * product->itemsize + column * ld, 2, shape, strides, &view);
  if (status == OA_OK) product->parts[product->part_count++] = view;
  *part = view;
  return status;
}

static void release_parts(Product *product) {
  while (product->part_count) oa_pointer_release(product->parts[--product->part_count]);
}

/* Copies the values of the whole call. Returns the values of the form. */
static oa_value *copy_values(const Product *product, oa_value *all) {
  const int first = product->call->first;
  memcpy(all, product->values - first, (size_t)(first + product->form->count) * sizeof *all);
  return all + first;
}

static int run(const Function *function, oa_value *all) { return function->routine->run(function->routine, all, 0); }

/* -- panels of a matrix -------------------------------------------------------------------------------------------- */

/* Computes with some columns or rows of the parted matrices. Returns a status. */
static int compute_panel(Product *product, int64_t from, int64_t count) {
  const PanelForm *form = product->form;
  oa_value all[1 + MOST_COUNT], *values = copy_values(product, all);
  for (int i = 0; i < form->matrix_count; i++) {
    const Matrix *matrix = &form->matrices[i];
    if (!matrix->is_parted) continue;
    const int status = product->by_rows ? part_of(product, matrix->place, from, count, 0,
                                                  size_of(product, matrix->columns), &values[matrix->place].pointer)
                                        : part_of(product, matrix->place, 0, size_of(product, matrix->rows), from,
                                                  count, &values[matrix->place].pointer);
    if (status != OA_OK) return status;
  }
  values[product->by_rows ? form->by_row : form->by_column].integer = count;
  if (form->is_sum && product->has_begun) values[form->beta] = product->beta_of_sums;
  return run(product->call->function, all);
}

/* -- panels of a triangle ------------------------------------------------------------------------------------------ */

/* Copies a number of the call as a number of the matrices' dtype, which may be complex. */
static oa_value number_of(const Product *product, int place, int conjugated) {
  const int dtype = product->call->function->parameters[product->call->first + place].dtype;
  const int64_t itemsize = oa_itemsize(dtype);
  oa_value number = product->values[place];
  if (itemsize < product->itemsize) memset(number.bytes + itemsize, 0, sizeof number.bytes - (size_t)itemsize);
  if (conjugated && product->dtype == OA_C64) number.single_parts[1] = -number.single_parts[1];
  if (conjugated && product->dtype == OA_C128) number.parts[1] = -number.parts[1];
  return number;
}

/* Adds op(left) right to the block of C at `block`: rows of the triangle that belong to other panels. */
static int add_product(Product *product, int left, const void *right, int right_place, oa_value alpha, oa_value beta,
                       int64_t row, int64_t rows, int64_t columns, const void *block) {
  oa_value all[1 + MOST_COUNT], *values = all + product->call->first;
  const int c = result_of(product->form)->place;
  const int64_t k = size_of(product, product->form->by_column);
  for (int i = -product->call->first; i < 0; i++) values[i] = product->values[i];
  values[GEMM_OP_A] = product->values[product->form->option];
  values[GEMM_OP_B].integer = product->call->plain;
  values[GEMM_M].integer = rows;
  values[GEMM_N].integer = columns;
  values[GEMM_K].integer = k;
  values[GEMM_ALPHA] = alpha;
  const int status = part_of(product, left, 0, k, row, rows, &values[GEMM_A].pointer);
  if (status != OA_OK) return status;
  values[GEMM_A + 1] = product->values[left + 1];
  values[GEMM_B].pointer = right;
  values[GEMM_B + 1] = product->values[right_place + 1];
  values[GEMM_BETA] = beta;
  values[GEMM_C].pointer = block;
  values[GEMM_C + 1] = product->values[c + 1];
  return run(product->call->gemm, all);
}

/* Computes some columns of the triangle: from the diagonal up, or down if the panels go backward. Returns a status. */
static int compute_columns(Product *product, int64_t from, int64_t count) {
  const PanelForm *form = product->form;
  const int a = form->matrices[0].place, b = form->matrices[form->matrix_count - 2].place, c = result_of(form)->place;
  const int64_t k = size_of(product, form->by_column), size = size_of(product, form->by_row);
  const int64_t row = product->backward ? from + count : 0, rows = product->backward ? size - row : from;
  oa_value all[1 + MOST_COUNT], *values = copy_values(product, all);
  const void *of_a, *of_b, *block;
  int status = part_of(product, a, 0, k, from, count, &of_a);
  of_b = of_a;
  if (status == OA_OK && b != a) status = part_of(product, b, 0, k, from, count, &of_b);
  if (status == OA_OK) status = part_of(product, c, from, count, from, count, &values[c].pointer);
  if (status != OA_OK) return status;
  values[form->by_row].integer = count;
  values[a].pointer = of_a;
  values[b].pointer = of_b;
  status = run(product->call->function, all);
  if (status == OA_OK) product->has_begun = 1;
  if (status != OA_OK || !rows) return status;
  status = part_of(product, c, row, rows, from, count, &block);
  const oa_value alpha = number_of(product, form->alpha, 0), beta = number_of(product, form->beta, 0);
  if (status == OA_OK) status = add_product(product, a, of_b, b, alpha, beta, row, rows, count, block);
  if (status != OA_OK || a == b) return status;
  const int conjugates = strcmp(form->name, "her2k") == 0;
  return add_product(product, b, of_a, a, number_of(product, form->alpha, conjugates), product->beta_of_sums, row, rows,
                     count, block);
}

/* -- all panels ---------------------------------------------------------------------------------------------------- */

/* Marks the result as undefined: a call failed, and earlier calls have written parts of it. */
static void spoil_result(const Product *product) {
  const PanelForm *form = product->form;
  const Matrix *result = result_of(form);
  const oa_value *values = &product->values[result->place];
  const int64_t rows = size_of(product, result->rows), columns = size_of(product, result->columns);
  char name[32];
  snprintf(name, sizeof name, "blas.%s", form->name);
  oa_operand operand = oa_operand_of("C", values[0].pointer, OA_OVERWRITE, product->dtype,
                                     OA_MATRIX(rows, columns, values[1].integer, "rows", "columns", "ld"));
  oa_call call = oa_call_of(name, NULL, &operand, 1);
  if (oa_begin(&call) == OA_OK) oa_end(&call, -1);
}

/* Returns whether the call passes all checks. It is not made. */
static int is_right(const Product *product) {
  oa_value all[1 + MOST_COUNT]; /* a run may change its values */
  copy_values(product, all);
  const int64_t outer = oa_checks_begin();
  run(product->call->function, all);
  return oa_checks_end(outer);
}

/* Returns whether the device lacks enough of a parted matrix, and its arrays let the call be parted. */
static int is_worthwhile(const Product *product, int in_test) {
  const PanelForm *form = product->form;
  int lacks = 0;
  for (int i = form->matrix_count - 1; i >= 0; i--) {
    const Matrix *matrix = &form->matrices[i];
    const int is_result = i == form->matrix_count - 1;
    oa_pointer_info info = OA_SIZED(oa_pointer_info);
    if (oa_pointer_query(product->values[matrix->place].pointer, &info) != OA_OK) return 0;
    if (info.host_writes) return 0; /* each panel's call would bring it up again */
    if (is_result && (info.captured || ((matrix->is_parted || product->in_triangle) && !info.in_parts))) return 0;
    if (matrix->is_parted && !is_result) lacks |= info.lacking >= (in_test ? 1 : FEWEST_BYTES);
  }
  return lacks;
}

/* Returns the number of columns or rows of a panel; 0 if one call is better. */
static int64_t panel_size(const Product *product, int64_t size) {
  const int in_test = atomic_load(&fewest_in_tests),
            usual = product->in_triangle ? FEWEST_OF_TRIANGLES : product->form->fewest;
  const int64_t fewest = in_test ? in_test : usual, unit = fewest < UNIT ? fewest : UNIT;
  int64_t count = ((size + MOST_PANELS - 1) / MOST_PANELS + unit - 1) / unit * unit;
  if (count < fewest) count = fewest;
  return count < size && is_worthwhile(product, in_test) ? count : 0;
}

/* Sets how the call is parted. Returns the index of the parted size; NOWHERE if the call has to be made at once. */
static int choose_parts(Product *product) {
  const PanelForm *form = product->form;
  if (product->values[form->option].integer == product->call->plain) return form->by_column;
  if (form->is_sum) {
    product->in_triangle = product->call->gemm != NULL;
    product->backward = product->values[0].integer != product->call->upper;
    return product->in_triangle ? form->by_row : NOWHERE;
  }
  product->by_rows = 1;
  return form->by_row;
}

/* Computes all panels. Returns a status. */
static int compute_all(Product *product, int64_t size, int64_t count) {
  int status = OA_OK;
  for (int64_t done = 0; status == OA_OK && done < size; done += count) {
    /* backward: from the last panel, which is the one with fewer columns */
    const int64_t from = product->backward ? (size - 1 - done) / count * count : done;
    const int64_t rest = size - from, here = count < rest ? count : rest;
    release_parts(product);
    status = (product->in_triangle ? compute_columns : compute_panel)(product, from, here);
    if (status == OA_OK) product->has_begun = 1;
  }
  return status;
}

int panels_compute(const PanelCall *call) {
  const PanelForm *form = call->form;
  const Function *function = call->function;
  if (oa_only_checks() || form->count != function->positional - call->first) return 0;
  const int dtype = function->parameters[call->first + result_of(form)->place].dtype;
  Product product = {
      .call = call, .form = form, .values = call->values + call->first, .dtype = dtype, .itemsize = oa_itemsize(dtype)};
  const int place = choose_parts(&product);
  if (place == NOWHERE) return 0;
  if (form->is_sum) {
    const int type = product.in_triangle ? dtype : function->parameters[call->first + form->beta].dtype;
    PyObject *number = PyLong_FromLong(1);
    const int failed = number == NULL || function_read_number(number, type, product.beta_of_sums.bytes);
    Py_XDECREF(number);
    if (failed) return -1;
  }
  const int64_t size = size_of(&product, place);
  int64_t count;
  int status = OA_OK, in_panels;
  Py_BEGIN_ALLOW_THREADS;
  count = panel_size(&product, size);
  in_panels = count && is_right(&product);
  if (in_panels) status = compute_all(&product, size, count);
  Py_END_ALLOW_THREADS;
  if (status != OA_OK) fail(status); /* reads the failure's text, which the next call would replace */
  if (status != OA_OK && product.has_begun) {
    Py_BEGIN_ALLOW_THREADS spoil_result(&product); /* may wait for another thread's call */
    Py_END_ALLOW_THREADS
  }
  release_parts(&product);
  return status != OA_OK ? -1 : in_panels;
}

/* (size): lets panels have so few columns or rows, and calls of any size be in panels; 0: as usual */
static PyObject *panels_configure(PyObject *Py_UNUSED(module), PyObject *argument) {
  const int size = as_int(argument);
  if (size == -1 && PyErr_Occurred()) return NULL;
  atomic_store(&fewest_in_tests, size > 0 ? size : 0);
  atomic_store(&panels_elements, size > 0 ? 1 : PANELS_ELEMENTS);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"panels_configure", panels_configure, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_panels(PyObject *module) { return PyModule_AddFunctions(module, functions); }
