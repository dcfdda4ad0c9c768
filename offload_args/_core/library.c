/* Libraries: asks Python to find one when the core first needs it. */
#include "module.h"

#include <stdio.h>

/* An exception that was raised in a callback of the core. errors.raise_status() raises it on the same thread, when it
 * reports the failed call. */
static _Thread_local PyObject *postponed;

static PyObject *take_postponed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *error = postponed;
  postponed = NULL;
  return error != NULL ? error : Py_NewRef(Py_None);
}

/* Postpones the current exception if it is not an Exception, such as Ctrl-C. Otherwise writes its message to text. */
static void postpone_exception(char *text, size_t size) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    PyObject *said = name == NULL ? NULL : PyUnicode_FromFormat("looking for it failed: %U: %S", name, value);
    const char *utf8 = said == NULL ? NULL : PyUnicode_AsUTF8AndSize(said, NULL);
    snprintf(text, size, "%s", utf8 != NULL ? utf8 : "looking for it failed");
    Py_XDECREF(said);
    Py_XDECREF(name);
    Py_XDECREF(value);
  } else {
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    Py_XDECREF(postponed);
    postponed = value;
    snprintf(text, size, "looking for it was interrupted");
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(traceback);
}

int load_library(const char *name, char *text, size_t size) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *failure = PyObject_CallFunction(python.load, "s", name);
  const char *said = failure == NULL ? NULL : PyUnicode_AsUTF8AndSize(failure, NULL);
  if (said == NULL)
    postpone_exception(text, size);
  else
    snprintf(text, size, "%s", said);
  Py_XDECREF(failure);
  PyGILState_Release(state);
  return text[0] == '\0' ? OA_OK : OA_ERROR_LIBRARY;
}

static PyMethodDef library_functions[] = {
    {"take_postponed", take_postponed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_library(PyObject *module) { return PyModule_AddFunctions(module, library_functions); }
