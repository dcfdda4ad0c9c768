/* offload_args._core: what is too slow or too delicate in Python.
 *
 * Reads NumPy arrays through __array_struct__ and enters regions with them; makes DevicePtrs; locks and unlocks the arrays
 * that are lent. Entering and leaving are each one C function, so that no signal handler runs between what is taken and
 * the note of it. Names no part of NumPy's C API, and compiles for the stable ABI. */
#include "module.h"

#include <stdio.h>
#include <string.h>

struct python python;
atomic_int leaving_process;

/* Raises what Python makes of a status; returns NULL. */
PyObject *fail(int status) {
  PyObject *number = PyLong_FromLong(status);
  if (number == NULL) return NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(python.raise_status, number, NULL);
  Py_DECREF(number);
  if (result != NULL) {
    Py_DECREF(result);
    PyErr_SetString(PyExc_SystemError, "offload_args: a failure was not raised");
  }
  return NULL;
}

/* Tells of an exception that can't be raised here; Ctrl-C comes once more, when it can. */
void report(PyObject *where) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else {
    PyErr_WriteUnraisable(where);
  }
}

int as_int(PyObject *object) { return (int)PyLong_AsLong(object); }

PyObject *tuple_of(int count, const int64_t *values) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; i++) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (value == NULL || PyTuple_SetItem(tuple, i, value) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

int read_integers(PyObject *tuple, int64_t *values) {
  Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; i++) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (values[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

static PyObject *last_error(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return PyUnicode_DecodeUTF8(oa_last_error(), (Py_ssize_t)strlen(oa_last_error()), "replace");
}

static PyObject *status_name(PyObject *Py_UNUSED(module), PyObject *argument) {
  int status = as_int(argument);
  if (status == -1 && PyErr_Occurred()) return NULL;
  return PyUnicode_FromString(oa_status_name(status));
}

static PyObject *after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  trace_after_fork();
  lent_after_fork();
  Py_RETURN_NONE;
}

static PyObject *at_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  atomic_store(&leaving_process, 1);
  Py_RETURN_NONE;
}

static PyObject *setup(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"ndarray",
                          "pointer",
                          "declared",
                          "ctypes",
                          "resolve",
                          "refuse",
                          "dtype_code",
                          "raise_status",
                          "default_device",
                          "packed_warning",
                          "unwritten_warning",
                          "entered_error",
                          "argument_error",
                          "collect",
                          "is_array",
                          "load",
                          NULL};
  PyObject *declared, *capsule;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$OOO!O!OOOOOOOOOOOO", names, &python.ndarray, &python.pointer,
                                   &PyTuple_Type, &declared, &PyTuple_Type, &python.ctypes, &python.resolve,
                                   &python.refuse, &python.dtype_code, &python.raise_status, &python.default_device,
                                   &python.packed_warning, &python.unwritten_warning, &python.entered_error,
                                   &python.argument_error, &python.collect, &python.is_array, &python.load))
    return NULL;
  python.base = PyObject_GetAttrString(python.ndarray, "base");
  python.flags = PyObject_GetAttrString(python.ndarray, "flags");
  python.array_struct = PyObject_GetAttrString(python.ndarray, "__array_struct__");
  python.setflags = PyObject_GetAttrString(python.ndarray, "setflags");
  if (!python.base || !python.flags || !python.array_struct || !python.setflags) return NULL;
  PyObject *backend = PyImport_ImportModule("_cffi_backend");
  if (backend == NULL) return NULL;
  capsule = PyObject_GetAttrString(backend, "_C_API");
  Py_DECREF(backend);
  void **exports = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "cffi");
  Py_XDECREF(capsule);
  if (exports == NULL) return NULL;
  memcpy(&cdata_from_pointer, &exports[10], sizeof cdata_from_pointer);
  for (int direction = OA_IN; direction <= OA_SCRATCH; direction++) {
    python.declared[direction] = PyTuple_GetItem(declared, direction - OA_IN);
    if (python.declared[direction] == NULL) return NULL;
    Py_INCREF(python.declared[direction]);
  }
  PyObject *kept[] = {python.ndarray,        python.pointer,           python.ctypes,        python.resolve,
                      python.refuse,         python.dtype_code,        python.raise_status,  python.default_device,
                      python.packed_warning, python.unwritten_warning, python.entered_error, python.argument_error,
                      python.collect,        python.is_array,          python.load};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_INCREF(kept[i]); /* until the process ends */
  oa_library_set_loader(load_library);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS, NULL},
    {"last_error", last_error, METH_NOARGS, NULL},
    {"status_name", status_name, METH_O, NULL},
    {"after_fork", after_fork, METH_NOARGS, NULL},
    {"at_exit", at_exit, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "offload_args._core", .m_size = -1,
                                        .m_methods = functions};

static int add_version(PyObject *module) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", OA_VERSION / 10000, OA_VERSION / 100 % 100, OA_VERSION % 100);
  return PyModule_AddStringConstant(module, "VERSION", text);
}

PyMODINIT_FUNC PyInit__core(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
#ifdef Py_GIL_DISABLED
  PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  if (start_lent() < 0 || add_pointer(module) < 0 || add_region(module) < 0 || add_array(module) < 0 ||
      add_dlpack(module) < 0 || add_library(module) < 0 || add_function(module) < 0 || add_memory(module) < 0 ||
      add_device(module) < 0 || add_trace(module) < 0 || add_version(module) < 0 || add_numbers(module) < 0)
    Py_CLEAR(module);
  return module;
}
