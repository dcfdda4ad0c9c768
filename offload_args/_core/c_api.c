/* The capsule offload_args._C_API, for other extensions: csrc/include/offload_args/python.h. */
#define _GNU_SOURCE /* dladdr */
#include "region.h"

#define OA_LINKED
#include "offload_args/python.h"

#include <dlfcn.h>
#include <string.h>

static void *library; /* the handle of the C library for dlsym */

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
  oa_any *slice = NULL;
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
  if (status == OA_OK) status = oa_pointer_view(handle, 0, ndim, shape, strides, &slice);
  if (status != OA_OK) return fail(status);
  PyObject *pointer = pointer_new(slice, info.dtype, info.device, tuple_of(ndim, shape), tuple_of(ndim, strides), 1);
  if (pointer != NULL)
    ((Pointer *)pointer)->strided = is_strided(ndim, shape, strides, oa_itemsize(info.dtype)) ? ITS_OWN : 0;
  return pointer;
}

static int region_get(PyObject *object, oa_region **handle) {
  /* isinstance() is not used, because an object may claim to be of another class. */
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

static PyObject *raise_text(int status, const char *text) {
  const char *const said = text != NULL ? text : "";
  PyObject *kept = PyUnicode_DecodeUTF8(said, (Py_ssize_t)strlen(said), "replace");
  PyObject *result = kept == NULL ? NULL : PyObject_CallFunction(python.raise_status, "iO", status, kept);
  Py_XDECREF(kept);
  Py_XDECREF(result);
  if (result != NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a failure was not raised");
  return NULL;
}

/* -- arrays for regions of C --------------------------------------------------------------------------------------- */

/* The object that keeps an array for a region of C. */
typedef struct {
  Item item;
  Held *held; /* one entry */
} Kept;

static const char kept_name[] = "offload_args.array";

static void release_kept(PyObject *capsule) {
  Kept *kept = PyCapsule_GetPointer(capsule, kept_name);
  if (kept == NULL) return;
  if (!leaving_process) release_held(kept->held, 1);
  release_item(&kept->item);
  PyMem_Free(kept);
}

/* Sets the array's direction: the extension's, or if the extension passes none, the direction of In(x), Out(x) or
 * InOut(x). Returns 0, or -1 with an exception. */
static int choose_direction(int direction, oa_array *array) {
  static const char *const names[] = {"", "In", "Out", "InOut", "Scratch"};
  const int own = array->direction;
  if (own != OA_BY_USE && direction != OA_BY_USE && own != direction) {
    PyErr_Format(python.argument_error,
                 "offload_args: an argument was declared %s, and the function lends it as %s; pass the array alone",
                 names[own], names[direction]);
    return -1;
  }
  if (direction != OA_BY_USE) array->direction = direction;
  return 0;
}

/* Reads the array, and makes it read-only for the host. Returns 1, 0 if devices can't hold its dtype, or -1 with an
 * exception. */
static int hold_array(Kept *kept, oa_array *array) {
  Held *held = kept->held;
  int flags;
  if (keep_alive(held, kept->item.source) < 0) return -1;
  lock_lent(); /* reads and clears the flag in one step */
  const int result = read_ndarray(&kept->item, array, &flags);
  if (result > 0) {
    find_bytes(held, array);
    held->unaligned = !(flags & ARRAY_ALIGNED);
    held->writeable = was_writeable(held, flags & ARRAY_WRITEABLE);
    if (!held->writeable) array->flags |= OA_READ_ONLY;
    hold(held, flags & ARRAY_WRITEABLE);
  }
  unlock_lent();
  if (result > 0 && oa_residency_current() == OA_RESIDENCY_AUTO && name_owner(held, array) < 0) return -1;
  return result;
}

static int fill_array(Kept *kept, PyObject *object, int direction, oa_array *array) {
  *array = (oa_array){0};
  if (resolve_argument(object, 0, -1, &kept->item, array) < 0 || choose_direction(direction, array) < 0) return -1;
  if (PyTuple_Check(kept->item.source)) {
    PyErr_Format(PyExc_TypeError,
                 "offload_args: an argument needs a host array, got %R; pass its array, or a DevicePtr where "
                 "the function takes one",
                 Py_TYPE(object));
    return -1;
  }
  const int result = hold_array(kept, array);
  if (result == 0) {
    PyObject *none = PyObject_CallFunction(python.refuse, "On", kept->item.source, (Py_ssize_t)1);
    Py_XDECREF(none);
    if (none != NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a dtype was neither taken nor refused");
  }
  return result > 0 ? 0 : -1;
}

static PyObject *array_get(PyObject *object, int direction, oa_array *array) {
  if (object == NULL || array == NULL || direction < OA_BY_USE || direction > OA_INOUT) {
    PyErr_Format(python.argument_error,
                 "offload_args: oa_array_from_python: object and array may not be NULL, and direction needs one of "
                 "OA_BY_USE, OA_IN, OA_OUT and OA_INOUT, got %d",
                 direction);
    return NULL;
  }
  PyObject *capsule = NULL;
  Kept *kept = PyMem_Calloc(1, sizeof *kept);
  Held *held = PyMem_Calloc(1, sizeof *held);
  if (kept == NULL || held == NULL) {
    PyErr_NoMemory();
    PyMem_Free(held);
    PyMem_Free(kept);
    return NULL;
  }
  kept->held = held;
  if (fill_array(kept, object, direction, array) == 0) capsule = PyCapsule_New(kept, kept_name, release_kept);
  if (capsule != NULL) return capsule;
  release_held(held, 1);
  release_item(&kept->item);
  PyMem_Free(kept);
  return NULL;
}

static const oa_python_api api = {.size = sizeof(oa_python_api),
                                  .version = OA_VERSION,
                                  .find = find,
                                  .pointer_get = pointer_get,
                                  .pointer_new = slice_of,
                                  .region_get = region_get,
                                  .raise = fail,
                                  .raise_text = raise_text,
                                  .array_get = array_get};

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
