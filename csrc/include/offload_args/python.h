/* Access for Python extensions in C, C++ or Cython to the library that offload_args has loaded, and to its objects.
 *
 *   #include <offload_args/python.h>          before offload_args_blas.h and its like
 *   #include <offload_args_blas.h>
 *
 *   static PyObject *scale(PyObject *module, PyObject *pointer) {
 *     oa_f64 *x = oa_f64_of(pointer);                    // a live DevicePtr[float64], or NULL with an exception
 *     if (!x) return NULL;
 *     const int status = oa_blas_dscal(4, 2.0, x, 1);
 *     return status ? oa_raise(status) : Py_NewRef(Py_None);
 *   }
 *   PyMODINIT_FUNC PyInit_mine(void) {
 *     if (oa_import() < 0) return NULL;                  // as NumPy's import_array()
 *     ...
 *
 * An extension is compiled with the headers alone. An extension is linked with nothing of offload_args, and calls each
 * function of the C API through the capsule offload_args._C_API. So an extension shares the present table, the regions
 * and the streams with Python. Functions of the C API need no GIL; the functions of this header do. If the extension is
 * linked with the library instead, define OA_LINKED before the first header. */
#ifndef OFFLOAD_ARGS_PYTHON_H
#define OFFLOAD_ARGS_PYTHON_H

#if defined(OA_DECLARED) && !defined(OA_LINKED)
#error "include offload_args/python.h before offload_args_blas.h and its like, or define OA_LINKED"
#endif

#include <Python.h>

#include "offload_args/launch.h"
#include "offload_args/routine.h"
#include "offload_args/testing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the C API, to be cast to its own type. */
typedef void (*oa_function)(void);

/* The struct that the capsule points to. New members go to the end of the struct. */
typedef struct oa_python_api {
  size_t size; /* size of this struct, in the library's version */
  int version; /* OA_VERSION of the library */
  int reserved;
  /* Returns the address of an exported function, such as "oa_cublas_sgemv"; NULL if the library has no such function.
   * Needs no GIL. */
  oa_function (*find)(const char *name);
  /* Sets *handle to a DevicePtr's handle. dtype: an oa_dtype, or OA_ANY; device: a number, or -1 for any. Returns 0; or
   * -1 with an exception if the object is not a DevicePtr, if its dtype or device is another, or if its region has
   * ended. In the last case *handle is set, and its calls return OA_ERROR_STALE. */
  int (*pointer_get)(PyObject *pointer, int dtype, int device, oa_any **handle);
  /* Returns a new DevicePtr to a part of the handle's memory that starts at the same element: a slice, with a separate
   * slot. strides are in bytes; NULL: C order. Returns NULL with an exception if the part would go beyond the
   * memory. */
  PyObject *(*pointer_new)(const oa_any *handle, int ndim, const int64_t *shape, const int64_t *strides);
  /* Sets *handle to the handle of an open offload_args(...) region, for oa_region_stream and oa_region_synchronize;
   * Python ends the region. Returns 0, or -1 with an exception. */
  int (*region_get)(PyObject *region, oa_region **handle);
  /* Raises the exception of a call that failed on this thread. Returns NULL. */
  PyObject *(*raise)(int status);
  /* Raises the exception with a saved text, for a call of another thread, or after later failures of other calls. */
  PyObject *(*raise_text)(int status, const char *text);
  /* Implements oa_array_from_python. */
  PyObject *(*array_get)(PyObject *object, int direction, oa_array *array);
} oa_python_api;

/* All files of an extension share this pointer. */
extern __attribute__((weak, visibility("hidden"))) const oa_python_api *oa_python;
__attribute__((weak, visibility("hidden"))) const oa_python_api *oa_python = NULL;

/* Imports offload_args, and checks that its version suits the headers. Returns 0, or -1 with ImportError. */
static inline int oa_import(void) {
  if (oa_python) return 0;
  const oa_python_api *api = (const oa_python_api *)PyCapsule_Import("offload_args._C_API", 0);
  if (!api) return -1;
  int (*suits)(int) = (int (*)(int))api->find("oa_check_version");
  const char *(*text)(void) = (const char *(*)(void))api->find("oa_last_error");
  if (!suits || !text || suits(OA_VERSION)) {
    PyErr_Format(PyExc_ImportError, "this extension can't use the installed offload_args: %s", text ? text() : "");
    return -1;
  }
  if (api->size < sizeof *api) {
    PyErr_SetString(PyExc_ImportError, "the installed offload_args is older than the headers of this extension");
    return -1;
  }
  oa_python = api;
  return 0;
}

/* Returns the address of a function of the C API. Imports offload_args if the extension never called oa_import. */
static inline oa_function oa_find(const char *name) {
  if (!oa_python) {
    const PyGILState_STATE state = PyGILState_Ensure();
    if (oa_import() < 0) PyErr_Print();
    PyGILState_Release(state);
    if (!oa_python) Py_FatalError("an extension uses offload_args, which can't be imported");
  }
  return oa_python->find(name);
}

/* Raises the error of a status of the C API. Returns NULL. */
static inline PyObject *oa_raise(int status) { return oa_import() < 0 ? NULL : oa_python->raise(status); }

/* Raises the error of a status with the text that the extension kept. Returns NULL. */
static inline PyObject *oa_raise_text(int status, const char *text) {
  return oa_import() < 0 ? NULL : oa_python->raise_text(status, text);
}

/* Fills *array for oa_region_enter from a NumPy array. A Python region may lend the array at the moment, so that the
 * array is read-only for the host. A function that enters a region of its own may therefore be called inside a Python
 * region, and the two regions share the array's bytes on the device. Like offload_args(...), it also takes an object
 * that is lent as an ndarray. direction: an oa_direction other than OA_SCRATCH; with OA_BY_USE, In(x), Out(x) and
 * InOut(x) keep their directions. Returns a new reference, which owns the shape and the strides and keeps the array
 * alive and read-only for the host: release it after oa_region_wait. Returns NULL with an exception after a failure.
 *   oa_array x;
 *   PyObject *held = oa_array_from_python(object, OA_INOUT, &x); */
static inline PyObject *oa_array_from_python(PyObject *object, int direction, oa_array *array) {
  return oa_import() < 0 ? NULL : oa_python->array_get(object, direction, array);
}

/* `oa_f32 *oa_f32_of(PyObject *)` and the functions of other dtypes return the handle of a live DevicePtr of that
 * dtype, or NULL with an exception. oa_any_of takes any dtype. */
#define OA_DTYPE(name, type, nbytes, kind, text)                                                             \
  static inline oa_##type *oa_##type##_of(PyObject *pointer) {                                               \
    oa_any *handle = NULL;                                                                                   \
    if (oa_import() < 0) return NULL;                                                                        \
    return oa_python->pointer_get(pointer, OA_##name, -1, &handle) < 0 ? NULL : (oa_##type *)(void *)handle; \
  }
#include "offload_args/dtypes.def"
#undef OA_DTYPE

#ifdef __cplusplus
}
#endif

/* The C API through the capsule; each place that uses a function looks it up once. */
#ifndef OA_LINKED
#define OA_THROUGH(name)                                           \
  (*__extension__({                                                \
    static oa_function found_;                                     \
    oa_function now_ = __atomic_load_n(&found_, __ATOMIC_RELAXED); \
    if (!now_) {                                                   \
      now_ = oa_find(#name);                                       \
      __atomic_store_n(&found_, now_, __ATOMIC_RELAXED);           \
    }                                                              \
    (__typeof__(&name))now_;                                       \
  }))
#include "offload_args_names.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a new DevicePtr to all elements of the handle's memory, as a vector; NULL with an exception. */
static inline PyObject *oa_pointer_vector(const oa_any *handle) {
  if (oa_import() < 0) return NULL;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  const int status = oa_pointer_query(handle, &info);
  if (status) return oa_raise(status);
  const int64_t count = info.nbytes / oa_itemsize(info.dtype);
  return oa_python->pointer_new(handle, 1, &count, NULL);
}

#ifdef __cplusplus
}
#endif
#endif
