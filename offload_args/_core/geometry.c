/* Pointers in portable BLAS: their geometry, and the vendor's functions for them. */
#include "module.h"

/* Returns {"device": number, "dtype": oa_dtype}, the same dict for all pointers that agree in both. In this dict
 * portable BLAS keeps the functions that it calls for these pointers. NULL with an exception. */
static PyObject *kind_of(const Pointer *self) {
  enum { DEVICES = 32 };
  static _Atomic(PyObject *) kinds[DEVICES][OA_DTYPE_COUNT];
  const int device = self->device_number;
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

/* Finds the geometry, for BLAS, of an array of 1 to 3 dimensions. */
static void find_geometry(Geometry *g, const int64_t *shape, const int64_t *strides, int64_t itemsize) {
  const int64_t apart = strides[0]; /* distance of a vector's elements, or of a batch's matrices */
  if (shape[0] > 1 && g->dimensions != 2) {
    g->uneven = apart % itemsize != 0;
    g->stride = apart / itemsize;
  } else {
    g->stride = g->dimensions == 1;
  }
  g->count = g->dimensions == 2 ? 1 : shape[0];
  if (g->dimensions == 1) return;
  const int64_t *const last = shape + g->dimensions - 2, *const steps = strides + g->dimensions - 2;
  const int64_t m = g->rows = last[0], n = g->columns = last[1];
  g->ld[0] = m != 0 ? m : 1;
  g->ld[1] = n != 0 ? n : 1;
  if (m == 0 || n == 0 || shape[0] == 0) return; /* NumPy's strides may be 0 */
  g->ld[0] = leading_dimension(m, n, steps[0], steps[1], itemsize);
  g->ld[1] = leading_dimension(n, m, steps[1], steps[0], itemsize);
}

const Geometry *pointer_geometry(Pointer *self) {
  Geometry *geometry = atomic_load(&self->geometry), *none = NULL;
  if (OA_LIKELY(geometry != NULL)) return geometry;
  const Py_ssize_t ndim = PyTuple_Size(self->shape);
  int64_t shape[3], strides[3];
  geometry = PyMem_Calloc(1, sizeof *geometry);
  if (geometry == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  if (ndim >= 1 && ndim <= 3) {
    if (read_integers(self->shape, shape) < 0 || read_integers(self->strides, strides) < 0) {
      PyMem_Free(geometry);
      return NULL;
    }
    geometry->dimensions = (int)ndim;
    find_geometry(geometry, shape, strides, oa_itemsize(self->dtype));
  }
  if (atomic_compare_exchange_strong(&self->geometry, &none, geometry)) return geometry;
  PyMem_Free(geometry);
  return none;
}

/* Returns an array's geometry as a tuple: (size, increment) for a vector; (rows, columns, leading dimension by columns,
 * by rows) for a matrix; for a batch the same, then the number of matrices and their distance. NULL with an
 * exception. */
static PyObject *tuple_from(const Geometry *g) {
  PyObject *stride = g->uneven ? Py_NewRef(Py_None) : PyLong_FromLongLong(g->stride);
  const Py_ssize_t m = (Py_ssize_t)g->rows, n = (Py_ssize_t)g->columns;
  const Py_ssize_t by_columns = (Py_ssize_t)g->ld[0], by_rows = (Py_ssize_t)g->ld[1], count = (Py_ssize_t)g->count;
  switch (g->dimensions) {
    case 1:
      return Py_BuildValue("(nN)", count, stride);
    case 2:
      Py_XDECREF(stride);
      return Py_BuildValue("(nnnn)", m, n, by_columns, by_rows);
    case 3:
      return Py_BuildValue("(nnnnnN)", m, n, by_columns, by_rows, count, stride);
    default:
      Py_XDECREF(stride);
      return PyTuple_New(0);
  }
}

PyObject *pointer_geometry_tuple(Pointer *self) {
  PyObject *tuple = atomic_load(&self->geometry_tuple), *none = NULL;
  if (tuple != NULL) return tuple;
  const Geometry *geometry = pointer_geometry(self);
  tuple = geometry == NULL ? NULL : tuple_from(geometry);
  if (tuple == NULL || atomic_compare_exchange_strong(&self->geometry_tuple, &none, tuple)) return tuple;
  Py_DECREF(tuple);
  return none;
}

static int has_one_element(const Pointer *pointer) {
  const Py_ssize_t ndim = PyTuple_Size(pointer->shape);
  for (Py_ssize_t i = 0; i < ndim; i++)
    if (PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, i)) != 1) return 0;
  return 1;
}

/* Returns the entry of the pointer's kind for a routine, a new reference; routine.entry(kind) makes it at first need.
 * NULL with an exception. */
static PyObject *entry_of(const Pointer *pointer, PyObject *routine) {
  PyObject *kind = kind_of(pointer), *entry = kind == NULL ? NULL : PyDict_GetItemWithError(kind, routine);
  if (entry != NULL)
    Py_INCREF(entry);
  else if (kind != NULL && !PyErr_Occurred())
    entry = PyObject_CallMethod(routine, "entry", "O", kind);
  Py_XDECREF(kind);
  return entry;
}

/* (dimensions, routine, *pointers) -> (the vendor's entry for the routine, the geometry of each pointer). dimensions: a
 * digit for each pointer, such as "211"; 0: one element, without a geometry. Raises TypeError if an operand is not a
 * DevicePtr. Raises ValueError if its number of dimensions differs, if its dtype is not the first operand's dtype, or
 * if its increments are not whole elements. */
static PyObject *layout(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
  if (count < 3) return PyErr_Format(PyExc_TypeError, "layout: needs pointers");
  PyObject *result = PyTuple_New(count - 1), *entry = NULL;
  for (Py_ssize_t i = 2; result != NULL && i < count; i++) {
    Pointer *pointer = (Pointer *)arguments[i];
    if (Py_TYPE(arguments[i]) != (PyTypeObject *)python.pointer && as_pointer(arguments[i]) == NULL) break;
    const Py_ssize_t ndim = (Py_ssize_t)PyUnicode_ReadChar(arguments[0], i - 2) - '0';
    PyObject *geometry = pointer_geometry_tuple(pointer);
    if (geometry == NULL) break;
    const int fits = ndim == 0
                         ? has_one_element(pointer)
                         : PyTuple_Size(geometry) == 2 * ndim && (ndim != 1 || PyTuple_GetItem(geometry, 1) != Py_None);
    if (!fits || pointer->dtype != ((Pointer *)arguments[2])->dtype) {
      PyErr_Format(PyExc_ValueError, "layout: an operand does not fit");
      break;
    }
    PyTuple_SetItem(result, i - 1, Py_NewRef(geometry));
    if (i == count - 1) entry = entry_of((Pointer *)arguments[2], arguments[1]);
  }
  if (entry == NULL) {
    Py_XDECREF(result);
    return NULL;
  }
  PyTuple_SetItem(result, 0, entry);
  return result;
}

/* (pointer) -> its geometry: for a matrix (rows, columns, leading dimension by columns, by rows), with 0 for the order
 * that it does not have; () for an array without 1 to 3 dimensions */
static PyObject *geometry(PyObject *Py_UNUSED(module), PyObject *argument) {
  Pointer *pointer = as_pointer(argument);
  PyObject *facts = pointer == NULL ? NULL : pointer_geometry_tuple(pointer);
  return Py_XNewRef(facts);
}

static PyMethodDef functions[] = {
    {"geometry", geometry, METH_O, NULL},
    {"layout", (PyCFunction)(void (*)(void))layout, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_geometry(PyObject *module) { return PyModule_AddFunctions(module, functions); }
