/* Pointers as portable BLAS sees them: their geometry, the vendor's functions for them, and products of matrices. */
#include "module.h"

/* Returns {"device": number, "dtype": oa_dtype}, the same dict for all pointers that agree in these: portable BLAS
 * keeps there what it calls for them. NULL with an exception. */
static PyObject *kind_of(const Pointer *self) {
  enum { DEVICES = 32 };
  static _Atomic(PyObject *) kinds[DEVICES][OA_DTYPE_COUNT];
  const long device = PyLong_AsLong(self->device);
  _Atomic(PyObject *) *place = device >= 0 && device < DEVICES ? &kinds[device][self->dtype] : NULL;
  PyObject *kind = place == NULL ? NULL : atomic_load(place), *none = NULL;
  if (kind != NULL) return Py_NewRef(kind);
  kind = Py_BuildValue("{sOsO}", "device", self->device, "dtype", self->dtype_code);
  if (kind == NULL || place == NULL) return kind;
  if (atomic_compare_exchange_strong(place, &none, kind)) return Py_NewRef(kind); /* until the process ends */
  Py_DECREF(kind);
  return Py_NewRef(none);
}

/* Returns the leading dimension of a matrix of `lines` lines with `length` elements each, `step` bytes between elements
 * and `apart` bytes between lines; 0 if it has none. */
static int64_t leading_dimension(int64_t length, int64_t lines, int64_t step, int64_t apart, int64_t itemsize) {
  int64_t bytes;
  if (length > 1 && step != itemsize) return 0;
  if (lines == 1) return length;
  if (__builtin_mul_overflow(length, itemsize, &bytes) || apart < bytes || apart % itemsize != 0) return 0;
  return apart / itemsize;
}

/* Returns a distance in elements, with `lone` for that between the parts of an array that has one at most. None if it
 * is not a whole number. */
static PyObject *elements(int64_t count, int64_t bytes, int64_t itemsize, long lone) {
  if (count <= 1) return PyLong_FromLong(lone);
  return bytes % itemsize != 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(bytes / itemsize);
}

/* Returns what BLAS needs to know of an array of 1 to 3 dimensions. Of a vector: its size and increment. Of a matrix:
 * rows, columns, leading dimension by columns and by rows, 0 if it does not have that order. Of a batch of matrices:
 * the same, their number, and how far they are apart. */
static PyObject *geometry_of(Py_ssize_t ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize) {
  if (ndim == 1) return Py_BuildValue("(nN)", (Py_ssize_t)shape[0], elements(shape[0], strides[0], itemsize, 1));
  const int64_t m = shape[ndim - 2], n = shape[ndim - 1], down = strides[ndim - 2], across = strides[ndim - 1];
  int64_t by_columns = m != 0 ? m : 1, by_rows = n != 0 ? n : 1;
  if (m != 0 && n != 0 && shape[0] != 0) { /* else NumPy's strides may be 0 */
    by_columns = leading_dimension(m, n, down, across, itemsize);
    by_rows = leading_dimension(n, m, across, down, itemsize);
  }
  if (ndim == 2)
    return Py_BuildValue("(nnnn)", (Py_ssize_t)m, (Py_ssize_t)n, (Py_ssize_t)by_columns, (Py_ssize_t)by_rows);
  return Py_BuildValue("(nnnnnN)", (Py_ssize_t)m, (Py_ssize_t)n, (Py_ssize_t)by_columns, (Py_ssize_t)by_rows,
                       (Py_ssize_t)shape[0], elements(shape[0], strides[0], itemsize, 0));
}

/* Returns the geometry of a pointer, found at first need; borrowed. NULL with an exception. */
static PyObject *pointer_geometry(Pointer *self) {
  PyObject *geometry = atomic_load(&self->geometry), *none = NULL;
  if (geometry != NULL) return geometry;
  const Py_ssize_t ndim = PyTuple_Size(self->shape);
  int64_t shape[3], strides[3];
  if (ndim < 1 || ndim > 3)
    geometry = PyTuple_New(0);
  else if (read_integers(self->shape, shape) == 0 && read_integers(self->strides, strides) == 0)
    geometry = geometry_of(ndim, shape, strides, oa_itemsize(self->dtype));
  if (geometry == NULL || atomic_compare_exchange_strong(&self->geometry, &none, geometry)) return geometry;
  Py_DECREF(geometry);
  return none;
}

static int has_one_element(const Pointer *pointer) {
  const Py_ssize_t ndim = PyTuple_Size(pointer->shape);
  for (Py_ssize_t i = 0; i < ndim; i++)
    if (PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, i)) != 1) return 0;
  return 1;
}

/* Returns what the pointer's kind has for a routine as a new reference, after routine.entry(kind) where it has nothing
 * yet. NULL with an exception. */
static PyObject *entry_of(const Pointer *pointer, PyObject *routine) {
  PyObject *kind = kind_of(pointer), *entry = kind == NULL ? NULL : PyDict_GetItemWithError(kind, routine);
  if (entry != NULL)
    Py_INCREF(entry);
  else if (kind != NULL && !PyErr_Occurred())
    entry = PyObject_CallMethod(routine, "entry", "O", kind);
  Py_XDECREF(kind);
  return entry;
}

/* (dimensions, routine, *pointers) -> (the vendor's entry for the routine, the geometry of each). dimensions: a digit
 * a pointer, such as "211"; 0: it has one element, and its geometry says nothing. ValueError if an operand is not of
 * such dimensions, of the first one's dtype, and with increments in whole elements; TypeError if it is not a
 * DevicePtr. */
static PyObject *layout(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
  if (count < 3) return PyErr_Format(PyExc_TypeError, "layout: needs pointers");
  PyObject *made = PyTuple_New(count - 1), *entry = NULL;
  for (Py_ssize_t i = 2; made != NULL && i < count; i++) {
    Pointer *pointer = (Pointer *)arguments[i];
    if (Py_TYPE(arguments[i]) != (PyTypeObject *)python.pointer && as_pointer(arguments[i]) == NULL) break;
    const Py_ssize_t ndim = (Py_ssize_t)PyUnicode_ReadChar(arguments[0], i - 2) - '0';
    PyObject *geometry = pointer_geometry(pointer);
    if (geometry == NULL) break;
    const int fits = ndim == 0
                         ? has_one_element(pointer)
                         : PyTuple_Size(geometry) == 2 * ndim && (ndim != 1 || PyTuple_GetItem(geometry, 1) != Py_None);
    if (!fits || pointer->dtype != ((Pointer *)arguments[2])->dtype) {
      PyErr_Format(PyExc_ValueError, "layout: an operand does not fit");
      break;
    }
    PyTuple_SetItem(made, i - 1, Py_NewRef(geometry));
    if (i == count - 1) entry = entry_of((Pointer *)arguments[2], arguments[1]);
  }
  if (entry == NULL) {
    Py_XDECREF(made);
    return NULL;
  }
  PyTuple_SetItem(made, 0, entry);
  return made;
}

/* -- products of matrices ------------------------------------------------------------------------------------------ */
/* A matrix or a batch of them, as its geometry has it. */
typedef struct Matrix {
  PyObject *pointer;
  int64_t rows, columns, ld[2]; /* by columns, by rows; 0 if it does not have that order */
  int64_t count, stride;
  int is_batch;
} Matrix;

/* An operand as the vendor's function takes it. */
typedef struct Factor {
  const Matrix *matrix;
  PyObject *op; /* borrowed */
  int64_t ld;
} Factor;

/* Reads a pointer of 2 or 3 dimensions. Returns 1; 0 if it is another one, or if its matrices do not lie one behind the
 * other; -1 with an exception. */
static int read_matrix(PyObject *object, Matrix *matrix) {
  if (Py_TYPE(object) != (PyTypeObject *)python.pointer) return 0;
  PyObject *geometry = pointer_geometry((Pointer *)object);
  if (geometry == NULL) return -1;
  int64_t values[6] = {0, 0, 0, 0, 1, 0};
  const Py_ssize_t count = PyTuple_Size(geometry);
  if (count < 4 || PyTuple_GetItem(geometry, count - 1) == Py_None) return 0;
  if (read_integers(geometry, values) < 0) return -1;
  *matrix = (Matrix){object, values[0], values[1], {values[2], values[3]}, values[4], values[5], count == 6};
  return matrix->stride >= 0;
}

/* Finds how a library that goes by columns (0) or by rows (1) takes an operand. Returns 0 if it can't. */
static int read_factor(Factor *factor, const Matrix *matrix, PyObject *ops, PyObject *letter, int by_rows) {
  const int other = matrix->ld[by_rows] == 0; /* then it is the transpose that has the order */
  PyObject *known = PyTuple_GetItem(ops, other);
  factor->matrix = matrix;
  factor->op = known == NULL ? NULL : PyDict_GetItemWithError(known, letter);
  factor->ld = matrix->ld[by_rows != other];
  return factor->op != NULL && factor->op != Py_None && factor->ld != 0;
}

static int do_fit(const Matrix *a, const Matrix *b, const Matrix *c, int plain_a, int plain_b) {
  return (plain_a ? a->rows : a->columns) == c->rows && (plain_b ? b->columns : b->rows) == c->columns &&
         (plain_a ? a->columns : a->rows) == (plain_b ? b->rows : b->columns) &&
         (a->count == 1 || a->count == c->count) && (b->count == 1 || b->count == c->count);
}

/* Adds an operand to a tuple of arguments, with its leading dimension and, of a batch, its stride. */
static void put_matrix(PyObject *to, Py_ssize_t *at, const Matrix *matrix, int64_t ld, int in_batch) {
  PyTuple_SetItem(to, (*at)++, Py_NewRef(matrix->pointer));
  PyTuple_SetItem(to, (*at)++, PyLong_FromLongLong(ld));
  if (in_batch) PyTuple_SetItem(to, (*at)++, PyLong_FromLongLong(matrix->stride));
}

/* Calls the vendor's function; first, second: the operands as it takes them. Returns 1, or -1 with an exception. */
static int call_product(PyObject *function, const Factor *first, const Factor *second, const Matrix *c, int64_t k,
                        PyObject *alpha, PyObject *beta, int by_rows) {
  const int64_t sizes[] = {by_rows ? c->columns : c->rows, by_rows ? c->rows : c->columns, k};
  PyObject *passed = PyTuple_New(c->is_batch ? 17 : 13), *done = NULL;
  if (passed == NULL) return -1;
  PyTuple_SetItem(passed, 0, Py_NewRef(first->op));
  PyTuple_SetItem(passed, 1, Py_NewRef(second->op));
  for (int i = 0; i < 3; i++) PyTuple_SetItem(passed, 2 + i, PyLong_FromLongLong(sizes[i]));
  Py_ssize_t at = 5;
  PyTuple_SetItem(passed, at++, Py_NewRef(alpha));
  put_matrix(passed, &at, first->matrix, first->ld, c->is_batch);
  put_matrix(passed, &at, second->matrix, second->ld, c->is_batch);
  PyTuple_SetItem(passed, at++, Py_NewRef(beta));
  put_matrix(passed, &at, c, c->ld[by_rows], c->is_batch);
  if (c->is_batch) PyTuple_SetItem(passed, at, PyLong_FromLongLong(c->count));
  if (!PyErr_Occurred()) done = PyObject_Call(function, passed, NULL); /* else there was no memory for a number */
  Py_DECREF(passed);
  Py_XDECREF(done);
  return done == NULL ? -1 : 1;
}

/* (routines, alpha, A, B, beta, C, trans_a, trans_b) -> whether it has computed the product, as blas.gemm does. If not,
 * something is wrong or rare. routines: of matrices, None if there is none, and of batches: 2 and 2 dimensions of A and
 * B, 2 and 3, 3 and 2, 3 and 3. Raises what the vendor's function raises. */
static PyObject *product(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
  if (count != 8) return PyErr_Format(PyExc_TypeError, "product: needs 8 arguments");
  PyObject *trans_a = given[6], *trans_b = given[7];
  Matrix a, b, c;
  Factor first, second;
  int done = read_matrix(given[5], &c);
  if (done > 0) done = read_matrix(given[2], &a);
  if (done > 0) done = read_matrix(given[3], &b);
  if (done < 0) return NULL;
  if (done == 0 || !PyUnicode_Check(trans_a) || !PyUnicode_Check(trans_b)) Py_RETURN_FALSE;
  const int plain_a = PyUnicode_CompareWithASCIIString(trans_a, "N") == 0;
  const int plain_b = PyUnicode_CompareWithASCIIString(trans_b, "N") == 0;
  const int dtype = ((Pointer *)c.pointer)->dtype;
  PyObject *routine = PyTuple_GetItem(given[0], c.is_batch ? 1 + 2 * a.is_batch + b.is_batch : 0);
  if (routine == NULL) return NULL;
  if (routine == Py_None || c.is_batch < (a.is_batch | b.is_batch) || ((Pointer *)a.pointer)->dtype != dtype ||
      ((Pointer *)b.pointer)->dtype != dtype || !do_fit(&a, &b, &c, plain_a, plain_b))
    Py_RETURN_FALSE;
  PyObject *entry = entry_of((Pointer *)c.pointer, routine);
  if (entry == NULL && !PyErr_ExceptionMatches(PyExc_KeyError)) return NULL;
  if (entry == NULL) { /* no routine of that dtype */
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  PyObject *function = PyTuple_GetItem(entry, 0), *enums = PyTuple_GetItem(entry, 2);
  PyObject *ops = enums == NULL ? NULL : PyTuple_GetItem(enums, 0);
  done = 0;
  for (int by_rows = 0; by_rows < 2 && done == 0 && ops != NULL; by_rows++) {
    if (c.ld[by_rows] == 0 || !read_factor(&first, &a, ops, trans_a, by_rows) ||
        !read_factor(&second, &b, ops, trans_b, by_rows))
      continue;
    done = call_product(function, by_rows ? &second : &first, by_rows ? &first : &second, &c,
                        plain_a ? a.columns : a.rows, given[1], given[4], by_rows);
  }
  Py_DECREF(entry);
  if (done < 0 || PyErr_Occurred()) return NULL;
  return Py_NewRef(done ? Py_True : Py_False);
}

static PyMethodDef portable_functions[] = {
    {"layout", (PyCFunction)(void (*)(void))layout, METH_FASTCALL, NULL},
    {"product", (PyCFunction)(void (*)(void))product, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_portable(PyObject *module) { return PyModule_AddFunctions(module, portable_functions); }
