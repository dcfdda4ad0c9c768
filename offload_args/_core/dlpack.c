/* DLPack: exports device memory in the structures of its specification, versions 0 and 1. */
#include "module.h"

#include <stdlib.h>

typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides; /* in elements */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManaged {
  DLTensor tensor;
  void *owner;
  void (*deleter)(struct DLManaged *);
} DLManaged;

typedef struct DLManagedVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *owner;
  void (*deleter)(struct DLManagedVersioned *);
  uint64_t flags;
  DLTensor tensor;
} DLManagedVersioned;

/* Both structures point to this owner. */
typedef struct {
  void *keep;
  union {
    DLManaged managed;
    DLManagedVersioned versioned;
  } as;
  int64_t dims[];
} Shared;

/* Ends the export. May run on any thread, without the GIL. */
static void shared_release(Shared *shared) {
  if (!leaving_process) oa_export_release(shared->keep);
  free(shared);
}
static void managed_delete(DLManaged *managed) { shared_release(managed->owner); }
static void versioned_delete(DLManagedVersioned *managed) { shared_release(managed->owner); }

/* Ends the export of a capsule that was never consumed; a consumed capsule has another name. */
static void capsule_delete(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor"))
    managed_delete(PyCapsule_GetPointer(capsule, "dltensor"));
  else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    versioned_delete(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

/* (pointer, versioned, read_only, device type, device id, type code, bits) -> capsule */
static PyObject *dlpack(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object;
  int versioned, read_only, type, id, code, bits;
  if (!PyArg_ParseTuple(arguments, "Oppiiii", &object, &versioned, &read_only, &type, &id, &code, &bits)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  int ndim = (int)PyTuple_Size(pointer->shape);
  int64_t itemsize = oa_itemsize(pointer->dtype);
  Shared *shared = calloc(1, sizeof *shared + 2 * (size_t)ndim * sizeof *shared->dims);
  if (shared == NULL) return PyErr_NoMemory();
  uint64_t value = 0;
  if (read_integers(pointer->shape, shared->dims) < 0 || read_integers(pointer->strides, shared->dims + ndim) < 0) {
    free(shared);
    return NULL;
  }
  for (int i = 0; i < ndim; i++) shared->dims[ndim + i] /= itemsize;
  int status = export_memory(pointer, &value, &shared->keep);
  if (status != OA_OK) {
    free(shared);
    return fail(status);
  }
  DLTensor *tensor = versioned ? &shared->as.versioned.tensor : &shared->as.managed.tensor;
  tensor->data = (void *)(uintptr_t)value;
  tensor->device.type = type;
  tensor->device.id = id;
  tensor->ndim = ndim;
  tensor->dtype.code = (uint8_t)code;
  tensor->dtype.bits = (uint8_t)bits;
  tensor->dtype.lanes = 1;
  tensor->shape = shared->dims;
  tensor->strides = shared->dims + ndim;
  void *managed = &shared->as;
  if (versioned) {
    shared->as.versioned.version.major = 1;
    shared->as.versioned.flags = read_only ? 1 : 0;
    shared->as.versioned.owner = shared;
    shared->as.versioned.deleter = versioned_delete;
  } else {
    shared->as.managed.owner = shared;
    shared->as.managed.deleter = managed_delete;
  }
  PyObject *capsule = PyCapsule_New(managed, versioned ? "dltensor_versioned" : "dltensor", capsule_delete);
  if (capsule == NULL) shared_release(shared);
  return capsule;
}

static PyMethodDef dlpack_functions[] = {
    {"dlpack", dlpack, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_dlpack(PyObject *module) { return PyModule_AddFunctions(module, dlpack_functions); }
