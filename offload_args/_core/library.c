/* Libraries: calls Python to find a library when the core first needs it. */
#include "module.h"

#include <stdio.h>
#include <string.h>

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

/* Writes the function's text for the name to text. Returns OA_OK, or OA_ERROR_LIBRARY after an exception. */
static int ask(PyObject *function, const char *name, char *text, size_t size) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *answer = PyObject_CallFunction(function, "s", name);
  const char *said = answer == NULL ? NULL : PyUnicode_AsUTF8AndSize(answer, NULL);
  const int status = said == NULL ? OA_ERROR_LIBRARY : OA_OK;
  if (said == NULL)
    postpone_exception(text, size);
  else
    snprintf(text, size, "%s", said);
  Py_XDECREF(answer);
  PyGILState_Release(state);
  return status;
}

int load_library(const char *name, char *text, size_t size) {
  const int status = ask(python.load, name, text, size);
  return text[0] == '\0' ? status : OA_ERROR_LIBRARY;
}

int find_driver(const char *backend, char *text, size_t size) { return ask(python.find_driver, backend, text, size); }

/* (library, path as bytes, shared) -> "" once it is loaded from there (with shared: taken from the libraries that the
 * loaded module at that path is linked with); otherwise the reason why not. */
static PyObject *library_open(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *path;
  int shared, status;
  if (!PyArg_ParseTuple(arguments, "syp", &library, &path, &shared)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = shared ? oa_library_share(library, path) : oa_library_open(library, path, NULL);
  Py_END_ALLOW_THREADS return PyUnicode_DecodeUTF8(
      status == OA_OK ? "" : oa_last_error(), status == OA_OK ? 0 : (Py_ssize_t)strlen(oa_last_error()), "replace");
}

/* (library, path as bytes, backend) */
static PyObject *library_double(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *path, *backend;
  int status;
  if (!PyArg_ParseTuple(arguments, "sys", &library, &path, &backend)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_library_double(library, path, backend);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (library) -> the absolute path of its file, and its version; ("", "") unless it is loaded */
static PyObject *library_loaded(PyObject *Py_UNUSED(module), PyObject *argument) {
  const char *library = PyUnicode_AsUTF8AndSize(argument, NULL);
  char version[256] = "";
  if (library == NULL) return NULL;
  const char *path = oa_library_path(library);
  if (*path && oa_library_version(library, version, sizeof version) != OA_OK) version[0] = '\0';
  return Py_BuildValue("NN", PyUnicode_DecodeFSDefault(path),
                       PyUnicode_DecodeUTF8(version, (Py_ssize_t)strlen(version), "replace"));
}

/* (library, symbol) -> the address of that function as an int; the library is loaded if needed */
static PyObject *library_address(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *symbol;
  void *address = NULL;
  int status;
  if (!PyArg_ParseTuple(arguments, "ss", &library, &symbol)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_library_address(library, symbol, &address);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromVoidPtr(address) : fail(status);
}

/* (library) -> the bits of its integers; 0 until it is loaded */
static PyObject *library_integer_bits(PyObject *Py_UNUSED(module), PyObject *argument) {
  const char *library = PyUnicode_AsUTF8AndSize(argument, NULL);
  return library == NULL ? NULL : PyLong_FromLong(oa_library_integer_bits(library));
}

static PyMethodDef library_functions[] = {
    {"library_address", library_address, METH_VARARGS, NULL},
    {"library_double", library_double, METH_VARARGS, NULL},
    {"library_integer_bits", library_integer_bits, METH_O, NULL},
    {"library_open", library_open, METH_VARARGS, NULL},
    {"library_loaded", library_loaded, METH_O, NULL},
    {"take_postponed", take_postponed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_library(PyObject *module) { return PyModule_AddFunctions(module, library_functions); }
