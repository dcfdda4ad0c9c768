/* Modules, and kernels with their signatures, on the devices that loaded them. launch.c has the type and launches of
 * kernels. */
#include "kernel.h"
#include "region.h"

#include <string.h>

static PyObject *name_load;

/* -- kernels ------------------------------------------------------------------------------------------------------- */
/* Reads a tuple (argument, (kind, each, by_block, exact) along x, the same along y) for each partition. Returns 0, or
 * -1. */
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
    int *exact = self->by[self->divided].exact;
    if (!PyArg_ParseTuple(PyTuple_GetItem(partitions, self->divided), "i(iiii)(iiii)", argument, &kind[0], &each[0],
                          &by_block[0], &exact[0], &kind[1], &each[1], &by_block[1], &exact[1]))
      return -1;
  }
  return 0;
}

/* Reads a tuple (argument, rank, like, ordered) for each. Returns 0, or -1. */
static int read_shapes(Kernel *self, PyObject *shapes) {
  const Py_ssize_t count = PyTuple_Size(shapes);
  self->passed = self->count - (int)count * SHAPE_NUMBERS;
  if (count == 0) return 0;
  self->shapes = PyMem_Calloc((size_t)count, sizeof *self->shapes);
  if (self->shapes == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; self->shaped < count; self->shaped++)
    if (!PyArg_ParseTuple(PyTuple_GetItem(shapes, self->shaped), "iiii", &self->shapes[self->shaped].argument,
                          &self->shapes[self->shaped].rank, &self->shapes[self->shaped].like,
                          &self->shapes[self->shaped].ordered))
      return -1;
  return 0;
}

PyObject *kernel_new(PyTypeObject *type, PyObject *arguments) {
  PyObject *name, *parameters, *partitions, *shapes;
  if (!PyArg_ParseTuple(arguments, "UO!O!O!", &name, &PyTuple_Type, &parameters, &PyTuple_Type, &partitions,
                        &PyTuple_Type, &shapes))
    return NULL;
  const Py_ssize_t count = PyTuple_Size(parameters);
  if (count > OA_MOST_PARAMETERS) {
    PyErr_SetString(python.argument_error, "Kernel: too many parameters");
    return NULL;
  }
  Kernel *self = (Kernel *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) return NULL;
  self->name = Py_NewRef(name);
  self->parameters = Py_NewRef(parameters);
  self->home = -1;
  self->count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "iiiii", &self->at[i].access, &self->at[i].dtype,
                          &self->at[i].offset, &self->at[i].nbytes, &self->at[i].struct_bytes)) {
      Py_DECREF(self);
      return NULL;
    }
    self->nbytes = (size_t)self->at[i].offset + (size_t)self->at[i].nbytes;
    if (self->at[i].struct_bytes) self->has_structs = 1;
  }
  if (read_partitions(self, partitions) < 0 || read_shapes(self, shapes) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

void kernel_dealloc(PyObject *object) {
  Kernel *self = (Kernel *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(self->name);
  Py_XDECREF(self->parameters);
  PyMem_Free(self->by);
  PyMem_Free(self->shapes);
  for (int i = 0; i < DEVICES; i++) PyMem_Free(atomic_load(&self->loaded[i]));
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* Reads (handle, checked, block, ((each, most) for each partition)). Returns memory to free; NULL with an exception. */
static OnDevice *read_loaded(const Kernel *self, PyObject *tuple) {
  PyObject *handle, *blocks;
  OnDevice *on = PyMem_Calloc(1, sizeof *on + (size_t)self->divided * sizeof *on->blocks);
  if (on == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  int read = PyArg_ParseTuple(tuple, "Op(III)O!", &handle, &on->checked, &on->block[0], &on->block[1], &on->block[2],
                              &PyTuple_Type, &blocks);
  for (int k = 0; read && k < self->divided; k++) {
    PyObject *pair = PyTuple_GetItem(blocks, k);
    read = pair != NULL && PyArg_ParseTuple(pair, "LL", &on->blocks[k].each, &on->blocks[k].most);
  }
  on->kernel = read ? PyLong_AsVoidPtr(handle) : NULL;
  if (read && !PyErr_Occurred()) return on;
  PyMem_Free(on);
  return NULL;
}

static __attribute__((cold, noinline)) const OnDevice *load(Kernel *self, const Pointer *pointer) {
  const int number = pointer->device_number;
  if (number < 0 || number >= DEVICES) {
    PyErr_SetString(PyExc_SystemError, "offload_args: more devices than kernels know");
    return NULL;
  }
  PyObject *tuple = PyObject_CallMethodObjArgs((PyObject *)self, name_load, pointer->device, NULL);
  OnDevice *loaded = tuple == NULL ? NULL : read_loaded(self, tuple), *none = NULL;
  Py_XDECREF(tuple);
  if (loaded == NULL || atomic_compare_exchange_strong(&self->loaded[number], &none, loaded)) return loaded;
  PyMem_Free(loaded); /* another thread did it first */
  return none;
}

const OnDevice *kernel_on(Kernel *self, const Pointer *pointer) {
  const int number = pointer->device_number;
  const OnDevice *on = number >= 0 && number < DEVICES ? atomic_load(&self->loaded[number]) : NULL;
  return OA_LIKELY(on != NULL) ? on : load(self, pointer);
}

int read_sizes(PyObject *object, uint32_t sizes[3]) {
  PyObject *items[3] = {object};
  Py_ssize_t count = 1;
  if (PyTuple_CheckExact(object)) {
    count = PyTuple_Size(object);
    if (count < 1 || count > 3) return -1;
    for (Py_ssize_t i = 0; i < count; i++) items[i] = PyTuple_GetItem(object, i);
  }
  sizes[1] = sizes[2] = 1;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyLong_CheckExact(items[i])) return -1;
    const long long size = PyLong_AsLongLong(items[i]);
    if (size == -1 && PyErr_Occurred()) PyErr_Clear();
    if (size < 1 || size > UINT32_MAX) return -1;
    sizes[i] = (uint32_t)size;
  }
  return 0;
}

/* -- modules ------------------------------------------------------------------------------------------------------- */
/* A module in Python is a capsule, whose context is a list of the regions of the module's variables. The capsule's end
 * ends these regions and unloads the module, without code of Python, in which Ctrl-C would be lost. */
static const char capsule_name[] = "offload_args.module";

/* Returns NULL with an exception if the object is not a module. */
static oa_module *module_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, capsule_name); }

/* Ends the regions of a module's variables. Returns 0, or -1 with an exception. */
static int end_regions(PyObject *capsule) {
  PyObject *regions = PyCapsule_GetContext(capsule);
  int status = 0;
  for (Py_ssize_t last; status == 0 && regions != NULL && (last = PyList_Size(regions) - 1) >= 0;) {
    PyObject *region = Py_NewRef(PyList_GetItem(regions, last));
    status = PyList_SetSlice(regions, last, last + 1, NULL) < 0 ? -1 : region_leave((Region *)region, NULL);
    Py_DECREF(region);
  }
  return status;
}

static void free_module(PyObject *capsule) {
  oa_module *loaded = module_of(capsule);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  while (!leaving_process && end_regions(capsule) < 0) {
    if (PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    if (PyErr_Occurred()) report(NULL);
  }
  if (!leaving_process) {
    Py_BEGIN_ALLOW_THREADS oa_module_unload(loaded); /* fails if it was unloaded before */
    Py_END_ALLOW_THREADS
  }
  Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
  PyErr_Restore(type, value, traceback);
}

/* (device, name, image) -> a module */
static PyObject *module_load(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int device, status;
  const char *name;
  Py_buffer image;
  oa_module *loaded = NULL;
  if (!PyArg_ParseTuple(arguments, "isy*", &device, &name, &image)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_module_load(device, name, image.buf, (size_t)image.len, &loaded);
  Py_END_ALLOW_THREADS PyBuffer_Release(&image);
  if (status != OA_OK) return fail(status);
  PyObject *capsule = PyCapsule_New(loaded, capsule_name, free_module);
  if (capsule == NULL) oa_module_unload(loaded);
  return capsule;
}

/* (module): ends the regions of its variables, and unloads it; does nothing at the end of the process */
static PyObject *module_unload(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_module *loaded = module_of(capsule);
  int status = OA_OK;
  if (loaded == NULL) return NULL;
  if (leaving_process) Py_RETURN_NONE;
  if (end_regions(capsule) < 0) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_module_unload(loaded);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (module, name) -> the address and bytes of a variable */
static PyObject *module_variable(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *capsule;
  const char *name;
  uint64_t address = 0;
  size_t nbytes = 0;
  if (!PyArg_ParseTuple(arguments, "Os", &capsule, &name)) return NULL;
  oa_module *loaded = module_of(capsule);
  if (loaded == NULL) return NULL;
  const int status = oa_module_find_variable(loaded, name, &address, &nbytes);
  return status == OA_OK ? Py_BuildValue("Kn", (unsigned long long)address, (Py_ssize_t)nbytes) : fail(status);
}

/* (module, pointer's handle, its region): makes launches of the module's kernels wait for the pointer's other uses. The
 * module ends the region before it is unloaded. */
static PyObject *module_use(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *capsule, *pointer, *region;
  if (!PyArg_ParseTuple(arguments, "OOO!", &capsule, &pointer, python.region, &region)) return NULL;
  oa_module *loaded = module_of(capsule);
  const oa_any *used = loaded == NULL ? NULL : PyLong_AsVoidPtr(pointer);
  if (PyErr_Occurred()) return NULL;
  PyObject *regions = PyCapsule_GetContext(capsule);
  if (regions == NULL && ((regions = PyList_New(0)) == NULL || PyCapsule_SetContext(capsule, regions) < 0)) return NULL;
  if (PyList_Append(regions, region) < 0) return NULL;
  const int status = oa_module_use_variable(loaded, used);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (module, kernel, names of the parameters, its name in the module) -> a kernel's handle as an int */
static PyObject *kernel_get(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *capsule, *object, *names, *symbol;
  oa_parameter parameters[OA_MOST_PARAMETERS];
  oa_kernel *result = NULL;
  int status;
  if (!PyArg_ParseTuple(arguments, "OOO!U", &capsule, &object, &PyTuple_Type, &names, &symbol)) return NULL;
  const Kernel *kernel = (Kernel *)object;
  oa_module *loaded = module_of(capsule);
  const char *name = PyUnicode_AsUTF8AndSize(symbol, NULL);
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
  Py_BEGIN_ALLOW_THREADS status = oa_kernel_get(loaded, name, parameters, kernel->count, &result);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromVoidPtr(result) : fail(status);
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

/* The result of hsaco_read: the objects, and the lists that get the next rows. */
typedef struct {
  PyObject *objects, *kernels, *parameters;
} Facts;

static PyObject *text_of(const char *bytes) {
  return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

/* Appends a row whose last item is `inner`, and takes both references. Returns 0, or -1 with an exception. */
static int append_row(PyObject *list, PyObject *row, PyObject *inner) {
  const int status = row == NULL || inner == NULL ? -1 : PyList_Append(list, row);
  Py_XDECREF(row);
  Py_XDECREF(inner);
  return status;
}

static int add_object_facts(void *context, size_t at, size_t nbytes, const char *target) {
  Facts *facts = context;
  facts->kernels = PyList_New(0);
  return append_row(facts->objects,
                    Py_BuildValue("nnNO", (Py_ssize_t)at, (Py_ssize_t)nbytes, text_of(target), facts->kernels),
                    facts->kernels);
}

static int add_kernel_facts(void *context, const char *name, int64_t shared_bytes, int64_t registers,
                            int64_t most_threads) {
  Facts *facts = context;
  facts->parameters = PyList_New(0);
  return append_row(facts->kernels,
                    Py_BuildValue("NLLLO", text_of(name), (long long)shared_bytes, (long long)registers,
                                  (long long)most_threads, facts->parameters),
                    facts->parameters);
}

static int add_parameter_facts(void *context, int64_t offset, int64_t nbytes, int kind) {
  static const char *const kinds[] = {
      [OA_STATED_VALUE] = "value", [OA_STATED_POINTER] = "pointer", [OA_NOT_STATED] = ""};
  Facts *facts = context;
  return append_row(facts->parameters, Py_BuildValue("LLs", (long long)offset, (long long)nbytes, kinds[kind]),
                    Py_NewRef(Py_None));
}

/* (name, image) -> a list of (at, nbytes, target, kernels), an item for each object of an HSACO or a bundle; kernels:
 * (name, shared_bytes, registers, most_threads, parameters); parameters: (offset, nbytes, kind) */
static PyObject *hsaco_read(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *name;
  Py_buffer image;
  if (!PyArg_ParseTuple(arguments, "sy*", &name, &image)) return NULL;
  Facts facts = {PyList_New(0), NULL, NULL};
  int status = -1;
  if (facts.objects != NULL)
    status = oa_hsaco_read(name, image.buf, (size_t)image.len,
                           &(oa_hsaco_visitor){&facts, add_object_facts, add_kernel_facts, add_parameter_facts});
  PyBuffer_Release(&image);
  if (status == 0) return facts.objects;
  Py_XDECREF(facts.objects);
  return PyErr_Occurred() ? NULL : fail(status);
}

static PyMethodDef functions[] = {
    {"hsaco_read", hsaco_read, METH_VARARGS, NULL}, {"module_load", module_load, METH_VARARGS, NULL},
    {"module_unload", module_unload, METH_O, NULL}, {"module_variable", module_variable, METH_VARARGS, NULL},
    {"module_use", module_use, METH_VARARGS, NULL}, {"kernel_get", kernel_get, METH_VARARGS, NULL},
    {"kernel_info", kernel_info, METH_O, NULL},     {NULL, NULL, 0, NULL},
};

int add_kernel(PyObject *module) {
  name_load = PyUnicode_InternFromString("_load");
  return name_load == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
