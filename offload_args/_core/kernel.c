/* Launches: kernels with their signatures, and launchers, which are kernels with a grid and block.
 *
 * A launcher reads the arguments of the usual kinds itself. For all others, and for wrong ones, it calls the kernel's
 * methods _value and _pointer, which are in Python. */
#include "module.h"

#include "offload_args/launch.h"

#include <string.h>

enum { DEVICES = 64, FEW_BYTES = 256 };

typedef struct {
  PyObject_HEAD PyObject *name, *parameters;
  int count;
  size_t nbytes;                        /* of all arguments */
  _Atomic(oa_kernel *) loaded[DEVICES]; /* by number of the device; NULL: not yet */
  struct {
    int access, dtype, offset, nbytes;
  } at[OA_MOST_PARAMETERS]; /* access 0: a value; its dtype is OA_ANY if only _value can read it */
  /* Those parameters that have a partition. Along x and y: what it divides (BY_SIZE, ...; 0: any grid will do), how
   * much of that belongs to one thread or block, and 1 for a block. */
  int divided;
  struct {
    int argument, kind[2], each[2], by_block[2];
  } *by;
} Kernel;

/* A type's function for calls without a tuple of arguments (PEP 590). The limited API has names for it from 3.12 on. */
typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
enum { HAS_VECTORCALL = 1 << 11 }; /* Py_TPFLAGS_HAVE_VECTORCALL */

typedef struct {
  PyObject_HEAD Kernel *kernel;
  Vectorcall call;
  oa_launch launch;
} Launcher;

static PyTypeObject *launcher_type;
static allocfunc launcher_alloc; /* of that type */
static freefunc launcher_free;
static PyObject *name_value, *name_pointer, *name_load, *name_configure, *name_misfit, *name_uncovered;

/* -- kernels ------------------------------------------------------------------------------------------------------- */
/* Reads a tuple (argument, (kind, each, by_block) along x, the same along y) for each. Returns 0, or -1. */
static int read_partitions(Kernel *self, PyObject *partitions) {
  const Py_ssize_t count = PyTuple_Size(partitions);
  if (count == 0) return 0;
  self->by = PyMem_Calloc((size_t)count, sizeof *self->by);
  if (self->by == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; self->divided < count; self->divided++) {
    int *argument = &self->by[self->divided].argument, *kind = self->by[self->divided].kind;
    int *each = self->by[self->divided].each, *by_block = self->by[self->divided].by_block;
    if (!PyArg_ParseTuple(PyTuple_GetItem(partitions, self->divided), "i(iii)(iii)", argument, &kind[0], &each[0],
                          &by_block[0], &kind[1], &each[1], &by_block[1]))
      return -1;
  }
  return 0;
}

/* (name, parameters, partitions): a tuple (access, dtype, offset, nbytes) for each parameter. */
static PyObject *kernel_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  PyObject *name, *parameters, *partitions;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "UO!O!", &name, &PyTuple_Type, &parameters, &PyTuple_Type, &partitions)) return NULL;
  const Py_ssize_t count = PyTuple_Size(parameters);
  if (count > OA_MOST_PARAMETERS) {
    PyErr_SetString(python.argument_error, "Kernel: too many parameters");
    return NULL;
  }
  Kernel *self = (Kernel *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) return NULL;
  self->name = Py_NewRef(name);
  self->parameters = Py_NewRef(parameters);
  self->count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "iiii", &self->at[i].access, &self->at[i].dtype,
                          &self->at[i].offset, &self->at[i].nbytes)) {
      Py_DECREF(self);
      return NULL;
    }
    self->nbytes = (size_t)self->at[i].offset + (size_t)self->at[i].nbytes;
  }
  if (read_partitions(self, partitions) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static void kernel_dealloc(PyObject *object) {
  Kernel *self = (Kernel *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(self->name);
  Py_XDECREF(self->parameters);
  PyMem_Free(self->by);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* Returns the kernel on the device; loads its module there if needed. NULL with an exception. */
static __attribute__((cold, noinline)) oa_kernel *load(Kernel *self, PyObject *device, int number) {
  PyObject *handle = PyObject_CallMethodObjArgs((PyObject *)self, name_load, device, NULL);
  oa_kernel *kernel = handle == NULL ? NULL : PyLong_AsVoidPtr(handle);
  Py_XDECREF(handle);
  if (kernel != NULL && number >= 0 && number < DEVICES) atomic_store(&self->loaded[number], kernel);
  return kernel;
}

/* -- launchers ----------------------------------------------------------------------------------------------------- */
/* Reads 1 to 3 sizes. Returns 0, or -1 without an exception. */
static int read_sizes(PyObject *object, uint32_t sizes[3]) {
  PyObject *one[3] = {object};
  Py_ssize_t count = 1;
  if (PyTuple_CheckExact(object)) {
    count = PyTuple_Size(object);
    if (count < 1 || count > 3) return -1;
    for (Py_ssize_t i = 0; i < count; i++) one[i] = PyTuple_GetItem(object, i);
  }
  sizes[1] = sizes[2] = 1;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyLong_CheckExact(one[i])) return -1;
    const long long size = PyLong_AsLongLong(one[i]);
    if (size == -1 && PyErr_Occurred()) PyErr_Clear();
    if (size < 1 || size > UINT32_MAX) return -1;
    sizes[i] = (uint32_t)size;
  }
  return 0;
}

static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *arguments, size_t flags_and_count,
                                     PyObject *names);

static PyObject *launcher_new(PyObject *kernel, const oa_launch *launch) {
  Launcher *self = (Launcher *)launcher_alloc(launcher_type, 0);
  if (self == NULL) return NULL;
  self->kernel = (Kernel *)Py_NewRef(kernel);
  self->call = launcher_vectorcall;
  self->launch = *launch;
  return (PyObject *)self;
}

/* kernel[grid, block] */
static PyObject *kernel_subscript(PyObject *object, PyObject *key) {
  oa_launch shape = OA_SIZED(oa_launch);
  if (!PyTuple_CheckExact(key) || PyTuple_Size(key) != 2 || read_sizes(PyTuple_GetItem(key, 0), shape.grid) < 0 ||
      read_sizes(PyTuple_GetItem(key, 1), shape.block) < 0)
    return PyObject_CallMethodObjArgs(object, name_configure, key, NULL);
  return launcher_new(object, &shape);
}

/* (kernel, grid, block, shared_bytes, stream or None, cooperative, cluster, unsafe): checked by the caller; sizes are
 * three numbers each. */
static PyObject *make_launcher(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *kernel, *stream;
  long long shared_bytes;
  int is_unsafe;
  oa_launch shape = OA_SIZED(oa_launch);
  if (!PyArg_ParseTuple(arguments, "O(III)(III)LOp(III)p", &kernel, &shape.grid[0], &shape.grid[1], &shape.grid[2],
                        &shape.block[0], &shape.block[1], &shape.block[2], &shared_bytes, &stream, &shape.cooperative,
                        &shape.cluster[0], &shape.cluster[1], &shape.cluster[2], &is_unsafe))
    return NULL;
  shape.is_unsafe = is_unsafe;
  shape.shared_bytes = shared_bytes;
  if (stream != Py_None) {
    shape.has_stream = 1;
    shape.stream = PyLong_AsVoidPtr(stream);
    if (shape.stream == NULL && PyErr_Occurred()) return NULL;
  }
  return launcher_new(kernel, &shape);
}

static void launcher_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF((PyObject *)((Launcher *)object)->kernel);
  launcher_free(object);
  Py_DECREF(type);
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* Reads an integer of that dtype. Returns 0, or -1 with or without an exception. */
static int read_integer(PyObject *object, int dtype, void *bytes) {
  PyObject *index = PyLong_CheckExact(object) ? Py_NewRef(object) : PyNumber_Index(object);
  if (index == NULL) return -1;
  int status = 0;
  if (dtype == OA_U64) {
    const unsigned long long value = PyLong_AsUnsignedLongLong(index);
    status = PyErr_Occurred() ? -1 : 0;
    memcpy(bytes, &value, sizeof value);
  } else {
    const int64_t value = PyLong_AsLongLong(index);
    if (value == -1 && PyErr_Occurred()) {
      status = -1;
    } else if (dtype == OA_I64) {
      memcpy(bytes, &value, sizeof value);
    } else {
      status = dtype == OA_I32 ? (value != (int32_t)value) : (value != (int64_t)(uint32_t)value);
      const uint32_t low = (uint32_t)value;
      memcpy(bytes, &low, sizeof low);
    }
  }
  Py_DECREF(index);
  return status ? -1 : 0;
}

/* Reads a value of the kinds that are most frequent. Returns as above. */
static inline int read_value(PyObject *object, int dtype, void *bytes) {
  if (dtype == OA_F32 || dtype == OA_F64) {
    if (!PyFloat_Check(object) && !PyLong_CheckExact(object)) return -1;
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) return -1;
    if (dtype == OA_F64) {
      memcpy(bytes, &value, sizeof value);
      return 0;
    }
    const float single = (float)value;
    memcpy(bytes, &single, sizeof single);
    return __builtin_isinf(single) && !__builtin_isinf(value) ? -1 : 0;
  }
  if (dtype == OA_I32 || dtype == OA_I64 || dtype == OA_U32 || dtype == OA_U64)
    return read_integer(object, dtype, bytes);
  return -1;
}

/* Reads a value by the kernel's own method. Returns 0, or -1 with an exception. */
static __attribute__((noinline)) int read_by_method(Kernel *kernel, PyObject *object, int i, void *bytes) {
  PyErr_Clear();
  PyObject *number = PyLong_FromLong(i);
  PyObject *made =
      number == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)kernel, name_value, number, object, NULL);
  Py_XDECREF(number);
  char *from;
  Py_ssize_t nbytes;
  int status = made == NULL ? -1 : PyBytes_AsStringAndSize(made, &from, &nbytes);
  if (status == 0 && nbytes != kernel->at[i].nbytes) {
    PyErr_SetString(PyExc_SystemError, "offload_args: an argument's value has another size");
    status = -1;
  }
  if (status == 0) memcpy(bytes, from, (size_t)nbytes);
  Py_XDECREF(made);
  return status;
}

static __attribute__((cold, noinline)) void refuse_pointer(Kernel *kernel, PyObject *object, int i) {
  PyObject *number = PyLong_FromLong(i);
  if (number != NULL) Py_XDECREF(PyObject_CallMethodObjArgs((PyObject *)kernel, name_pointer, number, object, NULL));
  Py_XDECREF(number);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: an argument is not a device pointer");
}

/* Reads all arguments; is_unsafe: pointers may have any dtype. places[i] becomes the pointer, or the address of the
 * value in bytes. Returns the first pointer; NULL with an exception. */
static inline Pointer *read_arguments(Kernel *kernel, PyObject *const *arguments, int is_unsafe, unsigned char *bytes,
                                      const void **places) {
  Pointer *first = NULL;
  for (int i = 0; i < kernel->count; i++) {
    PyObject *object = arguments[i];
    const int dtype = kernel->at[i].dtype;
    if (kernel->at[i].access) {
      Pointer *pointer = (Pointer *)object;
      if (!(Py_TYPE(object) == (PyTypeObject *)python.pointer || PyObject_TypeCheck(object, pointer_type)) ||
          (dtype != OA_ANY && pointer->dtype != dtype && !is_unsafe)) {
        refuse_pointer(kernel, object, i);
        return NULL;
      }
      if (first == NULL) first = pointer;
      places[i] = pointer->handle;
    } else {
      places[i] = bytes + kernel->at[i].offset;
      if (__builtin_expect(read_value(object, dtype, bytes + kernel->at[i].offset) < 0, 0) &&
          read_by_method(kernel, object, i, bytes + kernel->at[i].offset) < 0)
        return NULL;
    }
  }
  if (first == NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a kernel without a pointer");
  return first;
}

/* -- partitions ---------------------------------------------------------------------------------------------------- */
enum { BY_SIZE = 1, BY_ROWS, BY_COLUMNS }; /* as offload_args/kernels/partitions.py has them */

/* Reads what a partition divides: the pointer's elements, rows or columns. A matrix's rows lie one after the other in
 * memory, so those of a matrix in Fortran order are its columns. One row or column has both orders, with any strides:
 * all its elements are rows if only rows are divided. Returns -1, perhaps with an exception, if it is not a matrix, or
 * if its strides leave two readings. */
static long long extent_of(const Pointer *pointer, int kind, int both) {
  const Py_ssize_t count = PyTuple_Size(pointer->shape);
  if (kind == BY_SIZE) {
    long long size = 1;
    for (Py_ssize_t i = 0; i < count; i++) size *= PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, i));
    return size;
  }
  if (count != 2) return -1;
  const long long strides[] = {PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, 0)),
                               PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, 1))};
  const long long shape[] = {PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, 0)),
                             PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, 1))};
  const int rows = strides[0] < strides[1];
  if ((shape[0] == 1 || shape[1] == 1) && shape[0] * shape[1] > 1) {
    if (!both) return shape[0] * shape[1];
    if (rows || (strides[0] == strides[1] && shape[1] != 1)) return -1;
  }
  return shape[kind == BY_ROWS ? rows : !rows];
}

/* Tells whether a grid has an owner for each element of each argument that has a partition. */
static int covers(const Kernel *kernel, const oa_launch *launch, PyObject *const *arguments) {
  for (int k = 0; k < kernel->divided; k++) {
    const Pointer *pointer = (Pointer *)arguments[kernel->by[k].argument];
    const int *kind = kernel->by[k].kind;
    for (int axis = 0; axis < 2; axis++) {
      if (!kind[axis]) continue;
      const long long extent = extent_of(pointer, kind[axis], kind[0] && kind[1]), each = kernel->by[k].each[axis];
      const long long owners = (long long)launch->grid[axis] * (kernel->by[k].by_block[axis] ? 1 : launch->block[axis]);
      if (extent < 0 || extent / each + (extent % each != 0) > owners) return 0;
    }
  }
  return 1;
}

static PyObject *tuple_from(PyObject *const *values, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) PyTuple_SetItem(tuple, i, Py_NewRef(values[i]));
  return tuple;
}

static __attribute__((cold, noinline)) PyObject *refuse_grid(Launcher *self, PyObject *const *arguments) {
  PyErr_Clear();
  PyObject *given = tuple_from(arguments, self->kernel->count);
  if (given != NULL)
    Py_XDECREF(PyObject_CallMethodObjArgs((PyObject *)self->kernel, name_uncovered, self, given, NULL));
  Py_XDECREF(given);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "offload_args: a grid without an owner for each element");
  return NULL;
}

static inline PyObject *launch(Launcher *self, PyObject *const *arguments, unsigned char *bytes) {
  const void *places[OA_MOST_PARAMETERS];
  Kernel *kernel = self->kernel;
  const Pointer *first = read_arguments(kernel, arguments, self->launch.is_unsafe != 0, bytes, places);
  if (first == NULL) return NULL;
  if (kernel->divided && !self->launch.is_unsafe && !covers(kernel, &self->launch, arguments))
    return refuse_grid(self, arguments);
  const int device = first->device_number;
  oa_kernel *loaded = device >= 0 && device < DEVICES ? atomic_load(&kernel->loaded[device]) : NULL;
  if (__builtin_expect(loaded == NULL, 0) && (loaded = load(kernel, first->device, device)) == NULL) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_kernel_launch(loaded, &self->launch, places, kernel->count);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* Refuses arguments that are not the kernel's, all of them by place. keywords: a dict, or NULL. */
static __attribute__((cold, noinline)) PyObject *refuse_arguments(Launcher *self, PyObject *const *arguments,
                                                                  Py_ssize_t count, PyObject *keywords) {
  PyObject *given = tuple_from(arguments, count), *none = NULL;
  if (given != NULL) none = PyObject_CallMethodObjArgs((PyObject *)self->kernel, name_misfit, given, keywords, NULL);
  Py_XDECREF(given);
  return none;
}

static __attribute__((noinline)) PyObject *launch_many(Launcher *self, PyObject *const *arguments) {
  unsigned char *bytes = PyMem_Malloc(self->kernel->nbytes);
  PyObject *result = bytes == NULL ? PyErr_NoMemory() : launch(self, arguments, bytes);
  PyMem_Free(bytes);
  return result;
}

static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *arguments, size_t flags_and_count,
                                     PyObject *names) {
  Launcher *self = (Launcher *)object;
  const Py_ssize_t count = (Py_ssize_t)(flags_and_count & (SIZE_MAX >> 1)); /* the highest bit is a flag */
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  if (__builtin_expect(count != self->kernel->count || named != 0, 0)) {
    PyObject *keywords = PyDict_New(), *none = NULL;
    for (Py_ssize_t i = 0; keywords != NULL && i < named; i++)
      if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), arguments[count + i]) < 0) Py_CLEAR(keywords);
    if (keywords != NULL) none = refuse_arguments(self, arguments, count, keywords);
    Py_XDECREF(keywords);
    return none;
  }
  _Alignas(16) unsigned char few[FEW_BYTES];
  return __builtin_expect(self->kernel->nbytes <= FEW_BYTES, 1) ? launch(self, arguments, few)
                                                                : launch_many(self, arguments);
}

/* The same with a tuple and a dict. */
static PyObject *launcher_call(PyObject *object, PyObject *arguments, PyObject *keywords) {
  Launcher *self = (Launcher *)object;
  PyObject *values[OA_MOST_PARAMETERS];
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count != self->kernel->count || (keywords != NULL && PyDict_Size(keywords) != 0))
    return PyObject_CallMethodObjArgs((PyObject *)self->kernel, name_misfit, arguments, keywords, NULL);
  for (Py_ssize_t i = 0; i < count; i++) values[i] = PyTuple_GetItem(arguments, i);
  return launcher_vectorcall(object, values, (size_t)count, NULL);
}

/* (grid, block, shared_bytes) */
static PyObject *launcher_shape(PyObject *object, void *Py_UNUSED(closure)) {
  const oa_launch *l = &((Launcher *)object)->launch;
  return Py_BuildValue("((III)(III)L)", l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                       (long long)l->shared_bytes);
}

static PyObject *launcher_kernel(PyObject *object, void *Py_UNUSED(closure)) {
  return Py_NewRef((PyObject *)((Launcher *)object)->kernel);
}

static PyObject *launcher_repr(PyObject *object) {
  PyObject *shape = launcher_shape(object, NULL);
  PyObject *text = shape == NULL ? NULL
                                 : PyUnicode_FromFormat("%U[grid=%R, block=%R, shared_bytes=%R]",
                                                        ((Launcher *)object)->kernel->name, PyTuple_GetItem(shape, 0),
                                                        PyTuple_GetItem(shape, 1), PyTuple_GetItem(shape, 2));
  Py_XDECREF(shape);
  return text;
}

/* -- modules ------------------------------------------------------------------------------------------------------- */
/* (device, name, image) -> a module's handle as an int */
static PyObject *module_load(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int device, status;
  const char *name;
  Py_buffer image;
  oa_module *loaded = NULL;
  if (!PyArg_ParseTuple(arguments, "isy*", &device, &name, &image)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_module_load(device, name, image.buf, (size_t)image.len, &loaded);
  Py_END_ALLOW_THREADS PyBuffer_Release(&image);
  return status == OA_OK ? PyLong_FromVoidPtr(loaded) : fail(status);
}

/* (handle): unloads a module; does nothing at the end of the process */
static PyObject *module_unload(PyObject *Py_UNUSED(module), PyObject *argument) {
  oa_module *loaded = PyLong_AsVoidPtr(argument);
  int status = OA_OK;
  if (PyErr_Occurred()) return NULL;
  if (leaving_process) Py_RETURN_NONE;
  Py_BEGIN_ALLOW_THREADS status = oa_module_unload(loaded);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (module's handle, kernel, names of the parameters) -> a kernel's handle as an int */
static PyObject *kernel_get(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *handle, *object, *names;
  oa_parameter parameters[OA_MOST_PARAMETERS];
  oa_kernel *found = NULL;
  int status;
  if (!PyArg_ParseTuple(arguments, "OOO!", &handle, &object, &PyTuple_Type, &names)) return NULL;
  const Kernel *kernel = (Kernel *)object;
  oa_module *loaded = PyLong_AsVoidPtr(handle);
  const char *name = PyUnicode_AsUTF8AndSize(kernel->name, NULL);
  if (name == NULL || PyErr_Occurred() || PyTuple_Size(names) != kernel->count) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "offload_args: a name for each parameter");
    return NULL;
  }
  for (int i = 0; i < kernel->count; i++) {
    parameters[i] = (oa_parameter){.name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL),
                                   .access = kernel->at[i].access,
                                   .dtype = kernel->at[i].dtype,
                                   .nbytes = kernel->at[i].nbytes,
                                   .offset = kernel->at[i].offset};
    if (parameters[i].name == NULL) return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = oa_kernel_get(loaded, name, parameters, kernel->count, &found);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromVoidPtr(found) : fail(status);
}

/* (kernel's handle) -> the fields of oa_kernel_info */
static PyObject *kernel_info(PyObject *Py_UNUSED(module), PyObject *argument) {
  oa_kernel_info i = OA_SIZED(oa_kernel_info);
  oa_kernel *kernel = PyLong_AsVoidPtr(argument);
  if (PyErr_Occurred()) return NULL;
  const int status = oa_kernel_get_info(kernel, &i);
  if (status != OA_OK) return fail(status);
  return Py_BuildValue("((iii)(iii)iiiiiiLL)", i.most_grid[0], i.most_grid[1], i.most_grid[2], i.most_block[0],
                       i.most_block[1], i.most_block[2], i.most_threads, i.good_threads, i.registers, i.multiprocessors,
                       i.cooperative, i.clusters, (long long)i.fixed_shared_bytes, (long long)i.most_shared_bytes);
}

/* -- types --------------------------------------------------------------------------------------------------------- */
static PyMemberDef kernel_members[] = {
    {"name", T_OBJECT_EX, offsetof(Kernel, name), READONLY, NULL},
    {"_parameters", T_OBJECT_EX, offsetof(Kernel, parameters), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot kernel_slots[] = {
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_members, kernel_members},
    {Py_mp_subscript, kernel_subscript},
    {0, NULL},
};
static PyType_Spec kernel_spec = {.name = "offload_args._core.Kernel",
                                  .basicsize = sizeof(Kernel),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  .slots = kernel_slots};

static PyGetSetDef launcher_properties[] = {
    {"_shape", launcher_shape, NULL, NULL, NULL},
    {"kernel", launcher_kernel, NULL, "The kernel.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot launcher_slots[] = {
    {Py_tp_members, launcher_members},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_call, launcher_call},
    {Py_tp_repr, launcher_repr},
    {Py_tp_getset, launcher_properties},
    {Py_tp_doc, "Launch a kernel with a grid and block: call it with the kernel's arguments."},
    {0, NULL},
};
static PyType_Spec launcher_spec = {.name = "offload_args._core.Launcher",
                                    .basicsize = sizeof(Launcher),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | HAS_VECTORCALL,
                                    .slots = launcher_slots};

static PyMethodDef functions[] = {
    {"launcher", make_launcher, METH_VARARGS, NULL}, {"module_load", module_load, METH_VARARGS, NULL},
    {"module_unload", module_unload, METH_O, NULL},  {"kernel_get", kernel_get, METH_VARARGS, NULL},
    {"kernel_info", kernel_info, METH_O, NULL},      {NULL, NULL, 0, NULL},
};

/* Interns a name. Returns 0, or -1 with an exception. */
static int intern(PyObject **place, const char *text) {
  *place = PyUnicode_InternFromString(text);
  return *place == NULL ? -1 : 0;
}

int add_kernel(PyObject *module) {
  if (intern(&name_value, "_value") < 0 || intern(&name_pointer, "_pointer") < 0 || intern(&name_load, "_load") < 0 ||
      intern(&name_configure, "_configure") < 0 || intern(&name_misfit, "_misfit") < 0 ||
      intern(&name_uncovered, "_uncovered") < 0)
    return -1;
  PyObject *kernel = PyType_FromSpec(&kernel_spec);
  launcher_type = (PyTypeObject *)PyType_FromSpec(&launcher_spec);
  if (kernel == NULL || launcher_type == NULL) return -1;
  launcher_alloc = (allocfunc)PyType_GetSlot(launcher_type, Py_tp_alloc);
  launcher_free = (freefunc)PyType_GetSlot(launcher_type, Py_tp_free);
  if (PyModule_AddObjectRef(module, "Kernel", kernel) < 0 ||
      PyModule_AddObjectRef(module, "Launcher", (PyObject *)launcher_type) < 0)
    return -1;
  Py_DECREF(kernel);
  return PyModule_AddFunctions(module, functions);
}
