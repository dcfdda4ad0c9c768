/* offload_args._core, the extension module: hot paths, and code that must not be interrupted between acquiring a
 * resource and recording it.
 *
 * It reads NumPy arrays through __array_struct__ and enters regions with them; makes DevicePtrs; makes lent arrays
 * read-only and writeable again. Entering and leaving are one C function each, so that no signal handler runs in
 * between. It uses no part of NumPy's C API, and compiles for the stable ABI. */
#include "module.h"

#include <stdio.h>
#include <string.h>

struct python python;
atomic_int leaving_process;

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

void report(PyObject *context) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else {
    PyErr_WriteUnraisable(context);
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

/* An attribute, and the address for it. */
typedef struct {
  const char *name;
  PyObject **place;
} Attribute;

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
  recording_after_fork();
  open_after_fork();
  lent_after_fork();
  functions_after_fork();
  Py_RETURN_NONE;
}

static PyObject *at_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  leave_functions();
  Py_RETURN_NONE;
}

/* Reads attributes of an object into addresses that hold them until the process ends. Returns 0, or -1 with an
 * exception. */
static int read_attributes(PyObject *object, const Attribute *attributes) {
  for (; attributes->name != NULL; attributes++)
    if ((*attributes->place = PyObject_GetAttrString(object, attributes->name)) == NULL) return -1;
  return 0;
}

static int read_module(const char *name, const Attribute *attributes) {
  PyObject *module = PyImport_ImportModule(name);
  const int status = module == NULL ? -1 : read_attributes(module, attributes);
  Py_XDECREF(module);
  return status;
}

/* (pointer, declared, errors, resolve, refuse, is_array, load, default_device, region, device, read_options, inside,
 * collected, entering_codes, guarding, find_driver): struct python describes each one. */
static PyObject *setup(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"pointer",      "declared", "errors",         "resolve",        "refuse",
                          "is_array",     "load",     "default_device", "region",         "device",
                          "read_options", "inside",   "collected",      "entering_codes", "guarding",
                          "find_driver",  NULL};
  static const Attribute of_numpy[] = {{"ndarray", &python.ndarray},
                                       {"bool_", &python.numpy_bool},
                                       {"may_share_memory", &python.may_share},
                                       {"complexfloating", &python.complexfloating},
                                       {NULL, NULL}};
  static const Attribute of_ndarray[] = {{"base", &python.base},         {"flags", &python.flags},
                                         {"dtype", &python.dtype},       {"__array_struct__", &python.array_struct},
                                         {"setflags", &python.setflags}, {NULL, NULL}};
  static const Attribute of_errors[] = {{"raise_status", &python.raise_status},
                                        {"ArgumentError", &python.argument_error},
                                        {"ArgumentTypeError", &python.type_error},
                                        {"RegionError", &python.region_error},
                                        {"PerformanceWarning", &python.packed_warning},
                                        {"UnwrittenWarning", &python.unwritten_warning},
                                        {"DiscardedWarning", &python.discarded_warning},
                                        {"GuardError", &python.guard_error},
                                        {NULL, NULL}};
  PyObject *declared, *errors;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$OO!OOOOOOOOOOOOOO", names, &python.pointer, &PyTuple_Type,
                                   &declared, &errors, &python.resolve, &python.refuse, &python.is_array, &python.load,
                                   &python.default_device, &python.region, &python.device, &python.read_options,
                                   &python.inside, &python.collected, &python.entering_codes, &python.guarding,
                                   &python.find_driver) ||
      read_module("numpy", of_numpy) < 0 ||
      read_module("gc", (Attribute[]){{"collect", &python.collect}, {NULL, NULL}}) < 0 ||
      read_attributes(python.ndarray, of_ndarray) < 0 || read_attributes(errors, of_errors) < 0)
    return NULL;
  for (int direction = OA_IN; direction <= OA_SCRATCH; direction++) {
    python.declared[direction] = PyTuple_GetItem(declared, direction - OA_IN);
    if (python.declared[direction] == NULL) return NULL;
    Py_INCREF(python.declared[direction]);
  }
  PyObject *held[] = {python.pointer,   python.resolve,        python.refuse,   python.is_array,     python.load,
                      python.region,    python.default_device, python.device,   python.read_options, python.inside,
                      python.collected, python.entering_codes, python.guarding, python.find_driver};
  for (size_t i = 0; i < sizeof held / sizeof *held; i++) Py_INCREF(held[i]); /* until the process ends */
  oa_library_set_loader(load_library);
  oa_driver_set_finder(find_driver);
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

PyMODINIT_FUNC PyInit__core(void) {
  if (oa_check_version(OA_VERSION)) return PyErr_Format(PyExc_ImportError, "%s", oa_last_error());
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
#ifdef Py_GIL_DISABLED
  PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  if (start_lent() < 0 || add_pointer(module) < 0 || add_geometry(module) < 0 || add_region(module) < 0 ||
      add_open(module) < 0 || add_guard(module) < 0 || add_chain(module) < 0 || add_compute(module) < 0 ||
      add_call(module) < 0 || add_array(module) < 0 || add_dlpack(module) < 0 || add_library(module) < 0 ||
      add_function(module) < 0 || add_blas(module) < 0 || add_panels(module) < 0 || add_object(module) < 0 ||
      add_graph(module) < 0 || add_library_call(module) < 0 || add_kernel(module) < 0 || add_launch(module) < 0 ||
      add_memory(module) < 0 || add_device(module) < 0 || add_trace(module) < 0 || add_recording(module) < 0 ||
      add_accelerate(module) < 0 || PyModule_AddStringConstant(module, "VERSION", OA_PACKAGE_VERSION) < 0 ||
      add_numbers(module) < 0 || add_records(module) < 0 || add_c_api(module) < 0 || add_finish(module) < 0 ||
      add_checking(module) < 0)
    Py_CLEAR(module);
  return module;
}
