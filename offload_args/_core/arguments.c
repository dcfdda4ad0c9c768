/* Reads arguments: NumPy arrays through __array_struct__, and tuples that stand for other arguments. */
#include "module.h"

#include <string.h>

/* NumPy's array interface, as documented. */
typedef struct {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t *shape;
  Py_intptr_t *strides;
  void *data;
  PyObject *descr;
} ArrayInterface;

_Static_assert(sizeof(Py_intptr_t) == sizeof(int64_t), "shapes are passed to the core without conversion");

PyObject *attribute(PyObject *array, PyObject *descriptor) {
  descrgetfunc get = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
  return get(descriptor, array, (PyObject *)Py_TYPE(array));
}

void release_item(Item *item) {
  Py_XDECREF(item->capsule);
  Py_XDECREF(item->source);
  PyMem_Free(item->dims);
}

static int dtype_of(char kind, int itemsize) {
#define OA_DTYPE(name, type, nbytes, its_kind, text) \
  if (its_kind != 0 && kind == its_kind && itemsize == nbytes) return OA_##name;
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  return -1;
}

/* Returns the oa_dtype of an array with a dtype that NumPy itself lacks, such as ml_dtypes' bfloat16; -1 if devices
 * can't hold it, or with an exception. */
static int dtype_by_name(PyObject *array) {
  PyObject *dtype = attribute(array, python.dtype);
  PyObject *name = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "name");
  const char *text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
  int number = -1;
#define OA_DTYPE(name, type, nbytes, kind, its_text) \
  if (text != NULL && kind == 0 && OA_##name != OA_ANY && strcmp(text, its_text) == 0) number = OA_##name;
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  return number;
}

int read_ndarray(Item *item, oa_array *array, int *flags) {
  item->capsule = attribute(item->source, python.array_struct);
  if (item->capsule == NULL) return -1;
  const ArrayInterface *interface = PyCapsule_GetPointer(item->capsule, NULL);
  if (interface == NULL) return -1;
  int dtype = dtype_of(interface->typekind, interface->itemsize);
  if (dtype < 0 && (interface->typekind == 'V' || interface->itemsize == 1)) {
    dtype = dtype_by_name(item->source);
    if (PyErr_Occurred()) return -1;
  }
  if (dtype < 0 || !(interface->flags & ARRAY_NATIVE)) return 0;
  array->data = interface->data;
  array->ndim = interface->nd;
  array->shape = (const int64_t *)interface->shape;
  array->strides = (const int64_t *)interface->strides;
  array->dtype = dtype;
  *flags = interface->flags;
  return 1;
}

int read_tuple(Item *item, oa_array *array, int *device, oa_region_options *options) {
  PyObject *shape, *strides, *stream;
  unsigned long long address;
  int number;
  if (!PyArg_ParseTuple(item->source, "iO!O!KiiO", &array->dtype, &PyTuple_Type, &shape, &PyTuple_Type, &strides,
                        &address, &array->flags, &number, &stream))
    return -1;
  array->ndim = (int32_t)PyTuple_Size(shape);
  item->dims = PyMem_Calloc(2 * (size_t)array->ndim + 1, sizeof *item->dims);
  if (item->dims == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (read_integers(shape, item->dims) < 0) return -1;
  if (PyTuple_Size(strides) == array->ndim && read_integers(strides, item->dims + array->ndim) < 0) return -1;
  array->shape = item->dims;
  array->strides = item->dims + array->ndim;
  array->data = (void *)(uintptr_t)address;
  if (*device < 0 && number >= 0) *device = number;
  if (stream != Py_None) {
    options->wait_stream = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred()) return -1;
    options->has_wait_stream = 1;
  }
  return 0;
}
