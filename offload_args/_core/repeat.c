/* Repeated calls of a vendor function, on the matrices of stacks: one loop in C. */
#include "function.h"
#include "recorded.h"

#include <string.h>

/* Reads the handles of a tuple of DevicePtrs into new memory. Returns 0, or -1 with an exception. */
static int read_handles(PyObject *pointers, int64_t times, const void *const **list) {
  if (PyTuple_Size(pointers) != times) {
    PyErr_Format(PyExc_TypeError, "repeat: needs as many pointers as calls");
    return -1;
  }
  const void **handles = PyMem_Calloc((size_t)times + 1, sizeof *handles);
  if (handles == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  *list = handles;
  for (int64_t i = 0; i < times; i++) {
    const Pointer *pointer = as_pointer(PyTuple_GetItem(pointers, (Py_ssize_t)i));
    if (pointer == NULL) return -1;
    handles[i] = pointer->handle;
  }
  return 0;
}

/* Reads the step of one array of a repeated call: a stride, or a list of DevicePtrs, whose handles go into new memory.
 * Returns 0, or -1 with an exception. */
static int read_step(PyObject *object, int64_t times, int64_t *stride, const void *const **list) {
  if (!PyList_Check(object) && !PyTuple_Check(object)) return function_read_integer(object, stride);
  PyObject *pointers = PySequence_Tuple(object); /* the caller keeps the pointers alive */
  const int status = pointers == NULL ? -1 : read_handles(pointers, times, list);
  Py_XDECREF(pointers);
  return status;
}

/* Makes the repeated call. Returns None, or a list of the repetitions' values; NULL with an exception. */
static PyObject *call_repeated(const Function *function, Arguments *arguments) {
  const int64_t times = arguments->times;
  if (!function->has_result || times < 0) return function_call_with(function, arguments);
  arguments->results = PyMem_Calloc((size_t)times + 1, sizeof *arguments->results);
  if (arguments->results == NULL) return PyErr_NoMemory();
  PyObject *last = function_call_with(function, arguments),
           *numbers = last == NULL ? NULL : PyList_New((Py_ssize_t)times);
  Py_XDECREF(last);
  for (int64_t i = 0; numbers != NULL && i < times; i++) {
    PyObject *number = function_number(&function->parameters[function->positional], arguments->results[i].bytes);
    if (number == NULL)
      Py_CLEAR(numbers);
    else
      PyList_SetItem(numbers, (Py_ssize_t)i, number);
  }
  PyMem_Free(arguments->results);
  return numbers;
}

PyObject *function_repeat(PyObject *Py_UNUSED(module), PyObject *const *values, Py_ssize_t count) {
  const Function *function = count < 4 ? NULL : function_of(values[0]);
  PyObject *done = NULL;
  if (function == NULL || !PyTuple_Check(values[2]) || !PyUnicode_Check(values[3]))
    return PyErr_Format(PyExc_TypeError, "repeat: needs a vendor's function, a count, a tuple of steps and names");
  int64_t strides[MOST_VALUES] = {0};
  const void *const *lists[MOST_VALUES] = {NULL};
  int arrays = 0, wrong = 0;
  for (int i = 0; i < function->count; i++) arrays += function->parameters[i].kind == ARRAY;
  if (function->is_helper || PyTuple_Size(values[2]) != arrays || count - 4 != function->positional)
    return PyErr_Format(PyExc_TypeError, "repeat: %s has %d arrays and %d arguments", function->routine->function,
                        arrays, function->positional);
  Arguments arguments = {
      .parameters = function->parameters, .positional = values + 4, .strides = strides, .lists = lists};
  arguments.names = PyUnicode_AsUTF8AndSize(values[3], NULL);
  if (arguments.names == NULL || function_read_integer(values[1], &arguments.times) < 0) return NULL;
  for (int i = 0; i < arrays && !wrong; i++)
    wrong = read_step(PyTuple_GetItem(values[2], i), arguments.times, &strides[i], &lists[i]);
  if (!wrong) done = call_repeated(function, &arguments);
  for (int i = 0; i < arrays; i++) PyMem_Free((void *)lists[i]);
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed))) {
    PyObject *subject =
        Py_BuildValue("ssOO", function->library, strchr(function->routine->function, '.') + 1, values[1], values[2]);
    if (subject == NULL) return done;
    done = tell_recorder_values("repeat", subject, values + 4, count - 4, NULL, done);
    Py_DECREF(subject);
  }
  return done;
}
