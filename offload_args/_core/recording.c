/* The recorder's hook: while a recording is under way, each call is reported to a Python function, except calls whose
 * lines lines.c writes. */
#include "recorded.h"

atomic_int recording;

PyObject *tell_recorder(const char *kind, PyObject *subject, PyObject *arguments, PyObject *names, PyObject *result) {
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  if (result == NULL) {
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
  }
  PyObject *none =
      subject == NULL || arguments == NULL
          ? NULL
          : PyObject_CallFunction(python.done, "sOOOOO", kind, subject, arguments, names == NULL ? Py_None : names,
                                  result == NULL ? Py_None : result, value == NULL ? Py_None : value);
  if (result == NULL) {
    if (none == NULL) report(NULL);
    PyErr_Restore(type, value, traceback);
  } else if (none == NULL) {
    Py_CLEAR(result);
  }
  Py_XDECREF(none);
  return result;
}

PyObject *tell_recorder_values(const char *kind, PyObject *subject, PyObject *const *values, Py_ssize_t count,
                               PyObject *names, PyObject *result) {
  PyObject *type, *value, *traceback;
  const Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_Size(names));
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *arguments = PyTuple_New(all);
  for (Py_ssize_t i = 0; arguments != NULL && i < all; i++) PyTuple_SetItem(arguments, i, Py_NewRef(values[i]));
  if (arguments == NULL) report(NULL);
  PyErr_Restore(type, value, traceback);
  if (arguments == NULL) return result;
  result = tell_recorder(kind, subject, arguments, names, result);
  Py_DECREF(arguments);
  return result;
}

/* (function, when): reports calls to that function, which is always the same. when: 0, RECORDS or RECORDS_BEGINNINGS.
 * The function is called on any thread with (kind, subject, arguments, names of the last
 * ones or None, result, exception or None). */
static PyObject *recording_set(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *function;
  int when;
  if (!PyArg_ParseTuple(arguments, "Oi", &function, &when)) return NULL;
  if (python.done == NULL) python.done = Py_NewRef(function); /* once: others may be calling it */
  atomic_store(&recording, when);
  Py_RETURN_NONE;
}

void recording_after_fork(void) {
  atomic_store(&recording, 0);
  lines_after_fork();
}

static PyMethodDef recording_functions[] = {
    {"recording_lines", lines_take, METH_O, NULL},
    {"recording_directly", lines_set, METH_VARARGS, NULL},
    {"recording_is_inside", lines_are_inside, METH_NOARGS, NULL},
    {"recording_set", recording_set, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_recording(PyObject *module) { return PyModule_AddFunctions(module, recording_functions); }
