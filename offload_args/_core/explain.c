/* Explains wrong arguments of the functions of vendor libraries. The texts are in Python, in offload_args._explain. */
#include "function.h"

#include <string.h>

PyObject *call_in_module(const char *name_of_module, const char *name, PyObject *arguments) {
  PyObject *module = arguments == NULL ? NULL : PyImport_ImportModule(name_of_module);
  PyObject *function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
  PyObject *answer = function == NULL ? NULL : PyObject_CallObject(function, arguments);
  Py_XDECREF(function);
  Py_XDECREF(module);
  Py_XDECREF(arguments);
  return answer;
}

static PyObject *tuple_from(PyObject *const *values, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) PyTuple_SetItem(tuple, i, Py_NewRef(values[i]));
  return tuple;
}

/* Returns the values of a call in the order of its record as a new tuple, or NULL with an exception. */
static PyObject *values_of(const Function *function, const Arguments *arguments) {
  PyObject *values[MOST_VALUES];
  memcpy(values, arguments->positional, (size_t)function->positional * sizeof *values);
  const int with_result = function->has_result && arguments->result != NULL;
  if (with_result) values[function->positional] = arguments->result;
  return tuple_from(values, function->positional + with_result);
}

int function_is_argument_error(void) {
  PyObject *error = PyErr_Occurred();
  PyObject *kinds[] = {PyExc_AttributeError, PyExc_TypeError, PyExc_OverflowError, PyExc_ValueError};
  for (size_t i = 0; error != NULL && i < sizeof kinds / sizeof *kinds; i++)
    if (PyErr_ExceptionMatches(kinds[i])) return 1;
  return error == NULL;
}

PyObject *function_record(const oa_routine *routine) {
  static const char *const roles[] = {
#define OA_ROLE(name, text, kind) text,
#include "offload_args/roles.def"
#undef OA_ROLE
  };
  static const char *const dtypes[] = {
#define OA_DTYPE(name, type, nbytes, kind, text) #type,
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  };
  const int count = routine == NULL ? 0 : routine->count;
  PyObject *record = PyTuple_New(count);
  for (int i = 0; record != NULL && i < count; i++) {
    const oa_role *role = &routine->record[i];
    PyObject *row = Py_BuildValue("(ssssi)", roles[role->role], role->name, dtypes[(unsigned char)routine->dtypes[i]],
                                  role->more == NULL ? "" : role->more, role->count);
    if (row == NULL)
      Py_CLEAR(record);
    else
      PyTuple_SetItem(record, i, row);
  }
  return record;
}

PyObject *function_explain(const Function *function, const Arguments *arguments, int on_device) {
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  if (!function_is_argument_error()) return NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *values = values_of(function, arguments);
  const oa_routine *routine = function->routine;
  char dtypes[MOST_VALUES];
  for (int i = 0; i < function->count; i++) dtypes[i] = (char)arguments->parameters[i].dtype;
  PyObject *none = call_in_module(
      "offload_args._explain", "explain",
      values == NULL
          ? NULL
          : Py_BuildValue("(sNNNNy#)", routine->function, function_record(routine), values, PyBool_FromLong(on_device),
                          PyBool_FromLong(routine->has_device_form), dtypes, (Py_ssize_t)function->count));
  if (none == NULL) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return NULL;
  }
  Py_DECREF(none);
  if (type != NULL)
    PyErr_Restore(type, value, traceback);
  else
    PyErr_Format(PyExc_TypeError, "%s: an argument can't be read", routine->function);
  return NULL;
}

int function_misfit(const Function *function, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  PyObject *keywords = PyDict_New(), *positional = tuple_from(values, count);
  for (Py_ssize_t i = 0; keywords != NULL && names != NULL && i < PyTuple_Size(names); i++)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), values[count + i]) < 0) Py_CLEAR(keywords);
  if (keywords == NULL || positional == NULL) {
    Py_XDECREF(keywords);
    Py_XDECREF(positional);
    return -1;
  }
  PyObject *none = call_in_module(
      "offload_args._explain", "misfit",
      Py_BuildValue("(ssNN)", function->routine->function, function->routine->doc, positional, keywords));
  if (none != NULL) PyErr_Format(PyExc_TypeError, "%s: arguments do not fit", function->routine->function);
  Py_XDECREF(none);
  return -1;
}
