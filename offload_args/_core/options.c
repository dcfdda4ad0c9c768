/* The options of regions and of call(): device, stream, on_error; and of regions only: resident, guard. */
#include "region.h"

static PyObject *option_names[OPTIONS]; /* by enum option */
static PyObject *name_number, *discard;

void release_options(Options *options) {
  for (int i = 0; i < OPTIONS; i++) Py_XDECREF(options->values[i]);
  Py_XDECREF(options->stream);
}

int find_option(PyObject *name, int known) {
  for (int i = 0; i < known; i++)
    if (name == option_names[i]) return i;
  if (!PyUnicode_Check(name)) {
    PyErr_SetString(PyExc_TypeError, "keywords must be strings");
    return -1;
  }
  for (int i = 0; i < known; i++)
    if (PyUnicode_Compare(name, option_names[i]) == 0) return i;
  return PyErr_Occurred() ? -1 : known;
}

static int is_given(PyObject *option) { return option != NULL && option != Py_None; }

/* Reads an option that is True or False (the default). Returns 0, or -1 with an exception. */
static int read_switch(const Options *options, int option, int *value) {
  PyObject *switch_value = options->values[option];
  *value = 0;
  if (switch_value == NULL || switch_value == Py_False) return 0;
  if (PyBool_Check(switch_value) || Py_TYPE(switch_value) == (PyTypeObject *)python.numpy_bool)
    return (*value = PyObject_IsTrue(switch_value)) < 0 ? -1 : 0;
  PyErr_Format(python.argument_error, "offload_args: %U needs True or False, got %R", option_names[option],
               switch_value);
  return -1;
}

int read_options(Options *options) {
  PyObject *device = options->values[DEVICE], *on_error = options->values[ON_ERROR];
  options->device = -1;
  options->stream = Py_NewRef(Py_None);
  if (is_given(options->values[STREAM]) || on_error != NULL ||
      (is_given(device) && Py_TYPE(device) != (PyTypeObject *)python.device)) {
    PyObject *stream, *stream_value = options->values[STREAM];
    PyObject *tuple = PyObject_CallFunctionObjArgs(python.read_options, device != NULL ? device : Py_None,
                                                   stream_value != NULL ? stream_value : Py_None,
                                                   on_error != NULL ? on_error : discard, NULL);
    const int read =
        tuple != NULL && PyArg_ParseTuple(tuple, "iOp", &options->device, &stream, &options->keep_on_error);
    if (read) {
      Py_DECREF(options->stream);
      options->stream = Py_NewRef(stream);
    }
    Py_XDECREF(tuple);
    if (!read) return -1;
  } else if (is_given(device)) {
    PyObject *number = PyObject_GetAttr(device, name_number);
    if (number == NULL) return -1;
    options->device = as_int(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) return -1;
  }
  return read_switch(options, RESIDENT, &options->resident) < 0 ? -1 : read_switch(options, GUARD, &options->guard);
}

int start_options(void) {
  static const char *const names[] = {"device", "stream", "on_error", "resident", "guard"};
  name_number = PyUnicode_InternFromString("number");
  discard = PyUnicode_InternFromString("discard");
  int failed = name_number == NULL || discard == NULL;
  for (int i = 0; i < OPTIONS; i++) failed |= (option_names[i] = PyUnicode_InternFromString(names[i])) == NULL;
  return failed ? -1 : 0;
}
