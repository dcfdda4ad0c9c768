/* DevicePtr in C: its fields, and functions on pointers. */
#include "module.h"

PyTypeObject *pointer_type;

static PyObject *name_as_array, *name_missing;

static PyMemberDef pointer_members[] = {
    {"_shape", T_OBJECT_EX, offsetof(Pointer, shape), READONLY, NULL},
    {"_strides", T_OBJECT_EX, offsetof(Pointer, strides), READONLY, NULL},
    {"_dtype_code", T_OBJECT_EX, offsetof(Pointer, dtype_code), READONLY, NULL},
    {"_device", T_OBJECT_EX, offsetof(Pointer, device), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static void pointer_dealloc(PyObject *object) {
  Pointer *self = (Pointer *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (!leaving_process) {
    void *keep = atomic_load(&self->keep);
    if (self->owned) oa_pointer_release(self->handle); /* does nothing if the handle is stale */
    if (keep != NULL) oa_export_release(keep);
  }
  Py_XDECREF(self->shape);
  Py_XDECREF(self->strides);
  Py_XDECREF(self->dtype_code);
  Py_XDECREF(self->device);
  Py_XDECREF(atomic_load(&self->geometry_tuple));
  PyMem_Free(atomic_load(&self->geometry));
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject *pointer_address(PyObject *object, void *Py_UNUSED(closure)) {
  uint64_t value = 0;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_address(((Pointer *)object)->handle, &value);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromUnsignedLongLong(value) : fail(status);
}

/* Calls _missing() for an attribute that does not exist. A __getattr__ would slow down existing attributes. */
static PyObject *pointer_attribute(PyObject *object, PyObject *name) {
  PyObject *attribute = PyObject_GenericGetAttr(object, name);
  if (attribute != NULL || name == name_missing || !PyErr_ExceptionMatches(PyExc_AttributeError)) return attribute;
  PyErr_Clear();
  return PyObject_CallMethodObjArgs(object, name_missing, name, NULL);
}

static PyGetSetDef pointer_properties[] = {
    {"address", pointer_address, NULL,
     "The true device address, for other code, whose accesses are not checked.\n\n"
     "Reading it brings the data up, or sets the memory of an Out that nothing wrote yet to zero. From then on an\n"
     "array counts as written unless it was lent as In, and leaving the region waits for the whole device.\n\n"
     "Raises DirectionError if the array may be written and is on another device too, InvalidDataError if a failed\n"
     "call left it undefined, an Out too.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Refuses the buffer protocol as np.asarray() is refused, with the same advice. */
static int pointer_getbuffer(PyObject *object, Py_buffer *buffer, int Py_UNUSED(flags)) {
  buffer->obj = NULL;
  Py_XDECREF(PyObject_CallMethodObjArgs(object, name_as_array, NULL));
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "DevicePtr: no host memory");
  return -1;
}

static PyType_Slot pointer_slots[] = {
    {Py_bf_getbuffer, pointer_getbuffer},
    {Py_tp_dealloc, pointer_dealloc},
    {Py_tp_members, pointer_members},
    {Py_tp_getset, pointer_properties},
    {Py_tp_getattro, pointer_attribute},
    {Py_tp_doc, "Hold the fields of a DevicePtr: its handle, layout and device."},
    {0, NULL},
};

static PyType_Spec pointer_spec = {
    .name = "offload_args._core.Pointer",
    .basicsize = sizeof(Pointer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pointer_slots,
};

PyObject *pointer_new(oa_any *handle, int dtype, int device, PyObject *shape, PyObject *strides, int owned) {
  PyTypeObject *type = (PyTypeObject *)python.pointer;
  Pointer *self = NULL;
  if (shape != NULL && strides != NULL) self = (Pointer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) {
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    if (owned) oa_pointer_release(handle);
    return NULL;
  }
  self->handle = self->root = handle;
  self->owned = owned;
  self->dtype = dtype;
  self->device_number = device;
  self->shape = shape;
  self->strides = strides;
  self->dtype_code = PyLong_FromLong(dtype);
  self->device = PyLong_FromLong(device);
  if (self->dtype_code == NULL || self->device == NULL) Py_CLEAR(self);
  return (PyObject *)self;
}

/* Decides which arrays to pack, as oa_region_enter does: arrays that are not lines, are reversed, or have gaps along
 * every axis. */
int is_strided(int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize) {
  int order[64], axes = 0, named = 0;
  for (int i = 0; i < ndim; i++)
    if (shape[i] == 0) return 0;
  for (int i = 0; i < ndim; i++) {
    named |= ndim > 1 && strides[i] == itemsize; /* also with one element: a matrix of one column is a matrix */
    if (shape[i] == 1) continue;
    if (strides[i] <= 0 || strides[i] % itemsize) return 1;
    int at = axes++; /* by stride, the smallest first */
    for (; at > 0 && strides[order[at - 1]] > strides[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  int64_t next = itemsize; /* the stride of an axis without a gap */
  int gaps = 0;
  for (int k = 0; k < axes; k++) {
    const int64_t stride = strides[order[k]];
    if (stride < next) return 1; /* indices share elements */
    gaps += stride > next;
    next = stride * shape[order[k]];
  }
  return gaps > 1 || (axes > 0 && strides[order[0]] != itemsize && !named);
}

/* -- functions on pointers ----------------------------------------------------------------------------------------- */
Pointer *as_pointer(PyObject *object) {
  if (PyObject_TypeCheck(object, pointer_type)) return (Pointer *)object;
  PyErr_SetString(PyExc_TypeError, "offload_args: not a DevicePtr");
  return NULL;
}

/* Returns the bytes from the lowest byte of an array to its first element. */
static int64_t bytes_before(Py_ssize_t ndim, const int64_t *shape, const int64_t *strides) {
  int64_t bytes = 0;
  for (Py_ssize_t i = 0; i < ndim; i++)
    if (shape[i] == 0) return 0;
  for (Py_ssize_t i = 0; i < ndim; i++)
    if (strides[i] < 0) bytes -= (shape[i] - 1) * strides[i];
  return bytes;
}

int pointer_first(const Pointer *pointer, int64_t *bytes) {
  int64_t shape[64], strides[64];
  if (read_integers(pointer->shape, shape) < 0 || read_integers(pointer->strides, strides) < 0) return -1;
  *bytes = pointer->offset + bytes_before(PyTuple_Size(pointer->shape), shape, strides);
  return 0;
}

/* (pointer) -> (handle of the pointer that it is a view of, or its own handle; the bytes from that pointer's lowest
 * byte to the first element here) */
static PyObject *origin(PyObject *Py_UNUSED(module), PyObject *object) {
  int64_t first;
  const Pointer *pointer = as_pointer(object);
  if (pointer == NULL || pointer_first(pointer, &first) < 0) return NULL;
  return Py_BuildValue("KL", (unsigned long long)(uintptr_t)pointer->root, (long long)first);
}

/* Makes an operand of all elements of a pointer. If the elements are neither a vector nor a matrix with a leading
 * dimension, the operand has the bytes between them, too. Returns a status. */
static int make_operand(oa_operand *operand, const char *name, const Pointer *pointer, int access) {
  oa_pointer_layout l = OA_SIZED(oa_pointer_layout);
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  int status = oa_pointer_get_layout(pointer->handle, &l);
  if (status == OA_OK) status = oa_pointer_query(pointer->handle, &info);
  if (status != OA_OK) return status;
  const oa_extent extent = l.ndim == 1 && l.inc != 0 ? OA_VECTOR(l.rows, l.inc, "size", "its step")
                           : l.ld != 0               ? OA_MATRIX(l.rows, l.columns, l.ld, "rows", "columns", "ld")
                           : l.ld_by_rows != 0 ? OA_MATRIX(l.columns, l.rows, l.ld_by_rows, "columns", "rows", "ld")
                                               : OA_ELEMENTS(info.nbytes / oa_itemsize(l.dtype));
  *operand = oa_operand_of(name, pointer->handle, access, l.dtype, extent);
  return OA_OK;
}

/* (written, read) -> whether two arrays have a byte in common on the device, also if they were lent separately. The
 * result is False if a call with both operands is refused for another reason: that call then raises the error. */
static PyObject *overlaps(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *objects[2];
  if (!PyArg_ParseTuple(arguments, "OO", &objects[0], &objects[1])) return NULL;
  const Pointer *written = as_pointer(objects[0]), *read = written == NULL ? NULL : as_pointer(objects[1]);
  if (read == NULL) return NULL;
  oa_operand operands[2];
  oa_call call = oa_call_of("overlaps", NULL, operands, 2);
  int status = make_operand(&operands[0], "written", written, OA_OVERWRITE);
  if (status == OA_OK) status = make_operand(&operands[1], "read", read, OA_READ);
  if (status != OA_OK) return fail(status);
  Py_BEGIN_ALLOW_THREADS;
  const int64_t outer = oa_checks_begin();
  status = oa_begin(&call);
  oa_checks_end(outer);
  Py_END_ALLOW_THREADS;
  return PyBool_FromLong(status == OA_ERROR_ALIAS);
}

/* (pointer, offset, shape, strides) -> DevicePtr with separate bounds; offset and strides in bytes. */
static PyObject *view(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object, *shape, *strides;
  long long offset;
  int64_t dims[128];
  if (!PyArg_ParseTuple(arguments, "OLO!O!", &object, &offset, &PyTuple_Type, &shape, &PyTuple_Type, &strides))
    return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  int ndim = (int)PyTuple_Size(shape);
  if (ndim > 64 || PyTuple_Size(strides) != ndim) {
    PyErr_SetString(python.argument_error, "DevicePtr: a pointer has at most 64 dimensions, with a stride each");
    return NULL;
  }
  if (read_integers(shape, dims) < 0 || read_integers(strides, dims + 64) < 0) return NULL;
  oa_any *handle = NULL;
  int status = oa_pointer_view(pointer->handle, offset, ndim, dims, dims + 64, &handle);
  if (status != OA_OK) return fail(status);
  PyObject *pointer_to_part =
      pointer_new(handle, pointer->dtype, pointer->device_number, Py_NewRef(shape), Py_NewRef(strides), 1);
  if (pointer_to_part != NULL) {
    ((Pointer *)pointer_to_part)->root = pointer->root;
    ((Pointer *)pointer_to_part)->offset = pointer->offset + offset - bytes_before(ndim, dims, dims + 64);
    ((Pointer *)pointer_to_part)->strided = pointer->strided == AS_LENT                                      ? AS_LENT
                                            : is_strided(ndim, dims, dims + 64, oa_itemsize(pointer->dtype)) ? ITS_OWN
                                                                                                             : 0;
  }
  return pointer_to_part;
}

/* (pointers, dtype, shape, strides) -> DevicePtr to new memory in the youngest region of the pointers, which are in a
 * tuple. The memory ends with the last pointer to it. */
static PyObject *do_scratch(PyObject *arguments) {
  enum { MOST = 128 };
  PyObject *pointers, *shape, *strides;
  const oa_any *operands[MOST];
  int64_t dims[128];
  int dtype, status, of_graph = 0;
  if (!PyArg_ParseTuple(arguments, "O!iO!O!|p", &PyTuple_Type, &pointers, &dtype, &PyTuple_Type, &shape, &PyTuple_Type,
                        &strides, &of_graph))
    return NULL;
  const int count = (int)PyTuple_Size(pointers), ndim = (int)PyTuple_Size(shape);
  if (count < 1 || count > MOST) {
    PyErr_SetString(python.argument_error, "DevicePtr: scratch needs 1 to 128 pointers");
    return NULL;
  }
  if (ndim > 64 || PyTuple_Size(strides) != ndim) {
    PyErr_SetString(python.argument_error, "DevicePtr: scratch has at most 64 dimensions, with a stride each");
    return NULL;
  }
  Pointer *first = NULL;
  for (int i = count - 1; i >= 0; i--) {
    if ((first = as_pointer(PyTuple_GetItem(pointers, i))) == NULL) return NULL;
    operands[i] = first->handle;
  }
  if (read_integers(shape, dims) < 0 || read_integers(strides, dims + 64) < 0) return NULL;
  oa_array array = {.shape = dims,
                    .strides = dims + 64,
                    .name = "a result or workspace",
                    .ndim = ndim,
                    .dtype = dtype,
                    .direction = OA_SCRATCH,
                    .flags = of_graph ? OA_OF_GRAPH : 0};
  Py_BEGIN_ALLOW_THREADS status = oa_scratch(operands, count, &array);
  Py_END_ALLOW_THREADS if (status == OA_ERROR_MEMORY) { /* garbage may hold pointers and regions */
    PyObject *collected = PyObject_CallNoArgs(python.collect);
    if (collected == NULL) return NULL;
    Py_DECREF(collected);
    Py_BEGIN_ALLOW_THREADS status = oa_scratch(operands, count, &array);
    Py_END_ALLOW_THREADS
  }
  if (status != OA_OK) return fail(status);
  return pointer_new(array.handle, dtype, first->device_number, Py_NewRef(shape), Py_NewRef(strides), 1);
}

/* (pointer) -> its handle, such as an `oa_f32 *`, as an int */
static PyObject *handle(PyObject *Py_UNUSED(module), PyObject *object) {
  const Pointer *pointer = as_pointer(object);
  return pointer == NULL ? NULL : PyLong_FromVoidPtr(pointer->handle);
}

static PyObject *alive(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  if (pointer == NULL) return NULL;
  return PyBool_FromLong(oa_pointer_query(pointer->handle, &info) == OA_OK);
}

static PyObject *query(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  if (pointer == NULL) return NULL;
  int status = oa_pointer_query(pointer->handle, &info);
  return status == OA_OK ? record_new(RECORD_POINTER_INFO, &info) : fail(status);
}

int export_memory(Pointer *pointer, uint64_t *value, void **keep) {
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_export(pointer->handle, value, keep);
  Py_END_ALLOW_THREADS return status;
}

/* (pointer) -> the address of memory that lives at least as long as the DevicePtr */
static PyObject *export(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  uint64_t value = 0;
  void *keep = NULL, *none = NULL;
  if (pointer == NULL) return NULL;
  int status = export_memory(pointer, &value, &keep);
  if (status != OA_OK) return fail(status);
  if (!atomic_compare_exchange_strong(&pointer->keep, &none, keep))
    oa_export_release(keep); /* the pointer has an export already */
  return PyLong_FromUnsignedLongLong(value);
}

/* (pointer, array): writes the array's values to the device; it has the pointer's dtype and shape, in C order. */
static PyObject *do_assign(PyObject *arguments) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  int flags, status;
  int64_t strides[64];
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0 || read_integers(pointer->strides, strides) < 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no values that a device can hold");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = oa_pointer_assign(pointer->handle, array.data, array.ndim, array.shape, strides);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (pointer, array): copies between a pointer without gaps and an array of its dtype, whose elements in C order are the
 * pointer's. */
static PyObject *strided(PyObject *arguments, int reads) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  int flags, status;
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no array that a device can hold");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status =
      reads ? oa_pointer_read_strided(pointer->handle, array.data, array.ndim, array.shape, array.strides)
            : oa_pointer_assign_strided(pointer->handle, array.data, array.ndim, array.shape, array.strides);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (pointer, array of one element) -> DevicePtr to a new device scalar of the pointer's region */
static PyObject *do_stage(PyObject *arguments) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  oa_any *staged = NULL;
  int flags, status;
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  const Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no number that a device can hold");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = oa_stage(pointer->handle, array.data, array.dtype, &staged);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  return pointer_new(staged, array.dtype, pointer->device_number, PyTuple_New(0), PyTuple_New(0), 1);
}

/* Reads the shape and strides of a pointer. Returns 0, or -1 with an exception. */
static int read_dims(const Pointer *pointer, int64_t *shape, int64_t *strides) {
  return read_integers(pointer->shape, shape) < 0 || read_integers(pointer->strides, strides) < 0 ? -1 : 0;
}

/* (pointer, array): calls a function of the core that reads or writes the array, which has the pointer's dtype. */
static PyObject *with_array(PyObject *arguments,
                            int (*function)(const Pointer *, void *, int, const int64_t *, const int64_t *)) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  int flags, status;
  int64_t shape[64], strides[64];
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0 || read_dims(pointer, shape, strides) < 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no array that a device can hold");
    return NULL;
  }
  const int ndim = (int)PyTuple_Size(pointer->shape);
  Py_BEGIN_ALLOW_THREADS status = function(pointer, array.data, ndim, shape, strides);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static int fill_with(const Pointer *pointer, void *value, int ndim, const int64_t *shape, const int64_t *strides) {
  return oa_pointer_fill(pointer->handle, value, ndim, shape, strides);
}

static int read_to(const Pointer *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  return oa_pointer_read(pointer->handle, values, ndim, shape, strides);
}

static PyObject *pointer_fill(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("fill", arguments, with_array(arguments, fill_with));
}
static PyObject *pointer_read(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return with_array(arguments, read_to);
}

/* (pointer): its array is undefined from now on. */
static PyObject *pointer_invalidate(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_pointer_invalidate(pointer->handle);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (pointer, source): copies between pointers of the same shape. */
static PyObject *do_copy(PyObject *arguments) {
  PyObject *object, *from;
  int status;
  int64_t shape[64], strides[64], source_strides[64];
  if (!PyArg_ParseTuple(arguments, "OO", &object, &from)) return NULL;
  Pointer *pointer = as_pointer(object), *source = pointer == NULL ? NULL : as_pointer(from);
  if (source == NULL || read_dims(pointer, shape, strides) < 0 || read_dims(source, shape, source_strides) < 0)
    return NULL;
  const int ndim = (int)PyTuple_Size(pointer->shape);
  Py_BEGIN_ALLOW_THREADS status =
      oa_pointer_copy(pointer->handle, strides, source->handle, source_strides, ndim, shape);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* The same functions, which also report to the recorder. */
static PyObject *assign(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("assign", arguments, do_assign(arguments));
}
static PyObject *assign_strided(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("assign", arguments, strided(arguments, 0));
}
static PyObject *read_strided(PyObject *Py_UNUSED(module), PyObject *arguments) { return strided(arguments, 1); }
static PyObject *stage(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("stage", arguments, do_stage(arguments));
}
static PyObject *scratch(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("scratch", arguments, do_scratch(arguments));
}
static PyObject *pointer_copy(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("copy", arguments, do_copy(arguments));
}

static PyMethodDef pointer_functions[] = {
    {"view", view, METH_VARARGS, NULL},
    {"scratch", scratch, METH_VARARGS, NULL},
    {"handle", handle, METH_O, NULL},
    {"origin", origin, METH_O, NULL},
    {"overlaps", overlaps, METH_VARARGS, NULL},
    {"alive", alive, METH_O, NULL},
    {"query", query, METH_O, NULL},
    {"export", export, METH_O, NULL},
    {"stage", stage, METH_VARARGS, NULL},
    {"assign", assign, METH_VARARGS, NULL},
    {"fill", pointer_fill, METH_VARARGS, NULL},
    {"copy", pointer_copy, METH_VARARGS, NULL},
    {"read", pointer_read, METH_VARARGS, NULL},
    {"assign_strided", assign_strided, METH_VARARGS, NULL},
    {"read_strided", read_strided, METH_VARARGS, NULL},
    {"invalidate", pointer_invalidate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_pointer(PyObject *module) {
  name_as_array = PyUnicode_InternFromString("__array__");
  name_missing = PyUnicode_InternFromString("_missing");
  pointer_type = (PyTypeObject *)PyType_FromSpec(&pointer_spec);
  if (name_as_array == NULL || name_missing == NULL || pointer_type == NULL ||
      PyModule_AddObjectRef(module, "Pointer", (PyObject *)pointer_type) < 0)
    return -1;
  return PyModule_AddFunctions(module, pointer_functions);
}
