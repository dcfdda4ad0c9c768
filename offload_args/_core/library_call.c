/* One call of a vendor's library that Python makes, between the checks of its operands and their marks. */
#include "module.h"

#include "offload_args/shim.h"

#include <string.h>

enum { MOST_OPERANDS = 16 };

static const oa_library *library_named(const char *name) {
  for (const oa_library *const *library = oa_libraries; *library != NULL; library++)
    if (strcmp((*library)->name, name) == 0) return *library;
  PyErr_Format(PyExc_ValueError, "library_call: there is no library %s", name);
  return NULL;
}

/* Reads (name, pointer, access, line, lines, step): `lines` lines of `line` elements, whose starts are `step` elements
 * apart. Returns 0, or -1 with an exception. */
static int read_operand(PyObject *facts, oa_operand *operand) {
  const char *name;
  PyObject *object;
  int access;
  long long line, lines, step;
  if (!PyArg_ParseTuple(facts, "sOiLLL", &name, &object, &access, &line, &lines, &step)) return -1;
  const Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return -1;
  *operand = oa_operand_of(name, pointer->handle, access, OA_ANY,
                           OA_MATRIX(line, lines, step, "its elements", "its lines", "its step"));
  return 0;
}

/* Returns (handle, address, ...), for the function that makes the call. */
static PyObject *arguments_of(const oa_call *call) {
  PyObject *arguments = PyTuple_New(1 + call->count);
  for (int i = 0; arguments != NULL && i <= call->count; i++) {
    PyObject *value = PyLong_FromVoidPtr(i ? call->operands[i - 1].address : call->handle);
    if (value == NULL || PyTuple_SetItem(arguments, i, value) < 0) Py_CLEAR(arguments);
  }
  return arguments;
}

/* Calls work with the handle and the addresses. Returns the vendor's status, or -1 with an exception. */
static int make_call(const oa_call *call, PyObject *work) {
  PyObject *arguments = arguments_of(call);
  PyObject *answer = arguments == NULL ? NULL : PyObject_CallObject(work, arguments);
  const long status = answer == NULL ? -1 : PyLong_AsLong(answer);
  Py_XDECREF(arguments);
  Py_XDECREF(answer);
  return status == -1 && PyErr_Occurred() ? -1 : (int)status;
}

static PyObject *call_library(PyObject *arguments) {
  const char *function, *name;
  PyObject *facts, *work, *type, *value, *traceback;
  oa_operand operands[MOST_OPERANDS];
  if (!PyArg_ParseTuple(arguments, "ssO!O", &function, &name, &PyTuple_Type, &facts, &work)) return NULL;
  const Py_ssize_t count = PyTuple_Size(facts);
  const oa_library *library = library_named(name);
  if (library == NULL) return NULL;
  if (count < 1 || count > MOST_OPERANDS)
    return PyErr_Format(PyExc_ValueError, "%s: needs 1 to %d operands, got %zd", function, MOST_OPERANDS, count);
  for (Py_ssize_t i = 0; i < count; i++)
    if (read_operand(PyTuple_GetItem(facts, i), &operands[i]) < 0) return NULL;
  oa_call call = oa_call_of(function, library, operands, (int)count);
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_begin(&call);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  const int answer = make_call(&call, work);
  PyErr_Fetch(&type, &value, &traceback);
  Py_BEGIN_ALLOW_THREADS status = oa_end(&call, type != NULL ? -1 : answer);
  Py_END_ALLOW_THREADS if (type != NULL) {
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *library_call(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("unrecorded", arguments, call_library(arguments));
}

static PyMethodDef methods[] = {
    /* (function, library, operands, work): calls work(handle, address, ...), which calls the library and returns its
     * status. operands: a tuple of (name, pointer, access, line, lines, step) */
    {"library_call", library_call, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

int add_library_call(PyObject *module) { return PyModule_AddFunctions(module, methods); }
