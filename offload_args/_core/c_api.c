/* The capsule offload_args._C_API, for other extensions: csrc/include/offload_args/python.h. */
#define _GNU_SOURCE /* dladdr */
#include "region.h"

#define OA_LINKED
#include "offload_args/python.h"

#include <dlfcn.h>
#include <string.h>

static void *library; /* the C library, as dlsym knows it */

static oa_function find(const char *name) {
  return name != NULL && strncmp(name, "oa_", 3) == 0 ? (oa_function)dlsym(library, name) : NULL;
}

/* Raises the error of an object that is not the DevicePtr that a C extension needs. Returns -1. */
static int refuse(PyObject *object, int dtype, int device) {
  PyObject *module = PyImport_ImportModule("offload_args.embedding");
  PyObject *none = module == NULL ? NULL : PyObject_CallMethod(module, "_refuse", "Oii", object, dtype, device);
  Py_XDECREF(module);
  Py_XDECREF(none);
  if (none != NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a pointer was neither taken nor refused");
  return -1;
}

static int pointer_get(PyObject *object, int dtype, int device, oa_any **handle) {
  if (object == NULL || handle == NULL) {
    PyErr_SetString(python.argument_error, "offload_args: pointer_get: pointer or handle is NULL");
    return -1;
  }
  *handle = NULL;
  if (!PyObject_TypeCheck(object, pointer_type)) return refuse(object, dtype, device);
  const Pointer *pointer = (const Pointer *)object;
  if (dtype != OA_ANY && dtype != pointer->dtype) return refuse(object, dtype, device);
  if (device != -1 && device != as_int(pointer->device)) return refuse(object, dtype, device);
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  *handle = pointer->handle;
  const int status = oa_pointer_query(pointer->handle, &info);
  if (status != OA_OK) fail(status);
  return status == OA_OK ? 0 : -1;
}

static PyObject *slice_of(const oa_any *handle, int ndim, const int64_t *shape, const int64_t *strides) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  int64_t packed[64];
  oa_any *made = NULL;
  int status = oa_pointer_query(handle, &info);
  if (status == OA_OK && (ndim < 0 || ndim > 64 || (ndim > 0 && shape == NULL)))
    return PyErr_Format(python.argument_error, "offload_args: pointer_new: ndim needs 0 to 64, with a shape; got %d",
                        ndim);
  if (status == OA_OK && strides == NULL) {
    int64_t stride = oa_itemsize(info.dtype);
    for (int i = ndim - 1; i >= 0; i--) {
      packed[i] = stride;
      if (shape[i] > 1 && __builtin_mul_overflow(stride, shape[i], &stride)) {
        PyErr_SetString(PyExc_OverflowError, "offload_args: pointer_new: the shape has more bytes than there are");
        return NULL;
      }
    }
    strides = packed;
  }
  if (status == OA_OK) status = oa_pointer_view(handle, 0, ndim, shape, strides, &made);
  if (status != OA_OK) return fail(status);
  return pointer_new(made, info.dtype, info.device, tuple_of(ndim, shape), tuple_of(ndim, strides), 1);
}

static int region_get(PyObject *object, oa_region **handle) {
  /* Not isinstance: an object may say that it is of another class. */
  const int is_region = object != NULL && handle != NULL && PyObject_TypeCheck(object, (PyTypeObject *)python.region);
  if (is_region && atomic_load(&((Region *)object)->state) == OPEN) {
    *handle = ((Region *)object)->region;
    return 0;
  }
  if (is_region)
    PyErr_SetString(python.region_error, "offload_args: region_get: the region is not open; enter it first");
  else
    PyErr_SetString(PyExc_TypeError, "offload_args: region_get: needs an offload_args(...) region");
  return -1;
}

static const oa_python_api api = {.size = sizeof(oa_python_api),
                                  .version = OA_VERSION,
                                  .find = find,
                                  .pointer_get = pointer_get,
                                  .pointer_new = slice_of,
                                  .region_get = region_get,
                                  .raise = fail};

int add_c_api(PyObject *module) {
  Dl_info info;
  if (!dladdr((const void *)oa_version, &info) || !(library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD))) {
    PyErr_SetString(PyExc_ImportError, "offload_args: its C library does not know where it is");
    return -1;
  }
  PyObject *capsule = PyCapsule_New((void *)&api, "offload_args._C_API", NULL);
  const int status = capsule == NULL ? -1 : PyModule_AddObjectRef(module, "_C_API", capsule);
  Py_XDECREF(capsule);
  return status;
}
