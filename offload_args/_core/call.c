/* offload_args.call: calls one function in a new region, which lends the arrays among its arguments. */
#include "call.h"

#include <string.h>

/* Takes the options out of the keyword arguments. Returns 0, or -1 with an exception. */
static int take_options(Call *call) {
  for (Py_ssize_t i = call->positional; i < call->count; i++) {
    const int option = find_option(PyTuple_GetItem(call->names, i - call->positional), RESIDENT);
    if (option < 0) return -1;
    if (option == RESIDENT) continue; /* an argument of the function */
    call->options.values[option] = Py_NewRef(call->values[i]);
    call->roles[i] = OPTION;
  }
  return read_options(&call->options);
}

int is_lent_by_call(PyObject *argument) {
  if (Py_TYPE(argument) == (PyTypeObject *)python.ndarray) return 1;
  if (PyFloat_CheckExact(argument) || PyLong_CheckExact(argument)) return 0;
  PyObject *result = PyObject_CallFunctionObjArgs(python.is_array, argument, NULL);
  Py_XDECREF(result);
  return result == NULL ? -1 : result == Py_True;
}

/* Finds the role of each argument. Returns 0, or -1 with an exception. */
static int find_roles(Call *call) {
  for (Py_ssize_t i = 0; i < call->count; i++) {
    const int lent = call->roles[i] == OPTION ? 0 : is_lent_by_call(call->values[i]);
    if (lent < 0) return -1;
    if (lent) call->roles[i] = LENT;
  }
  return 0;
}

PyObject *lent_of(Call *call) {
  Py_ssize_t count = 0, at = 0;
  for (Py_ssize_t i = 0; i < call->count; i++) count += call->roles[i] == LENT;
  PyObject *lent = PyTuple_New(count); /* no other code runs before the tuple is filled */
  uint64_t reused = 0;
  for (Py_ssize_t i = 0; lent != NULL && i < call->count; i++) {
    if (call->roles[i] != LENT) continue;
    if (i < call->positional && i < 64 && at < 64) reused |= (call->reused >> i & 1) << at;
    PyTuple_SetItem(lent, at++, Py_NewRef(call->values[i]));
  }
  call->reused = reused;
  return lent;
}

/* Calls the function with pointers in place of the lent arguments. Returns its value; NULL with an exception. */
static PyObject *call_with(const Call *call, void *function, PyObject *pointers) {
  PyObject *result = NULL, *passed = PyTuple_New(call->positional), *keywords = NULL;
  Py_ssize_t next = 0;
  int failed = passed == NULL;
  for (Py_ssize_t i = 0; i < call->count && !failed; i++) {
    PyObject *value = call->roles[i] == LENT ? PyTuple_GetItem(pointers, next++) : call->values[i];
    if (i < call->positional) {
      PyTuple_SetItem(passed, i, Py_NewRef(value));
    } else if (call->roles[i] != OPTION) {
      if (keywords == NULL) keywords = PyDict_New();
      failed =
          keywords == NULL || PyDict_SetItem(keywords, PyTuple_GetItem(call->names, i - call->positional), value) < 0;
    }
  }
  if (!failed) result = PyObject_Call(function, passed, keywords);
  Py_XDECREF(keywords);
  Py_XDECREF(passed);
  return result;
}

/* Leaves the region after a call that raised. The call's exception stays set, or becomes the context of another
 * exception. */
static void leave_raising(Region *self) {
  PyObject *type, *body, *traceback;
  PyErr_Fetch(&type, &body, &traceback);
  PyErr_NormalizeException(&type, &body, &traceback);
  if (traceback != NULL) PyException_SetTraceback(body, traceback);
  if (region_leave(self, body) == 0) {
    PyErr_Restore(type, body, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  PyObject *newer;
  PyErr_Fetch(&type, &newer, &traceback);
  PyErr_NormalizeException(&type, &newer, &traceback);
  PyException_SetContext(newer, body);
  PyErr_Restore(type, newer, traceback);
}

PyObject *call_in_region(Call *call, PyObject *lent, Body *body, void *context) {
  PyObject *result = NULL, *none[2];
  Region *self = (Region *)region_new((PyTypeObject *)python.region, NULL, NULL);
  if (self == NULL) return NULL;
  atomic_store(&self->state, BUSY);
  region_prepare(self, lent, &call->options, none);
  self->once = 1;
  self->of_kernel = call->of_kernel;
  self->reused = call->reused;
  PyObject *pointers = region_enter_open(self);
  atomic_store(&self->state, pointers != NULL ? OPEN : CLOSED);
  if (pointers != NULL) {
    result = body(call, context, pointers);
    if (result == NULL)
      leave_raising(self);
    else if (region_leave(self, NULL) < 0)
      Py_CLEAR(result);
  }
  Py_XDECREF(pointers);
  Py_DECREF(self);
  return result;
}

/* Returns 1 if a function belongs to cffi: it is a cffi pointer, or a function of a compiled cffi library. Otherwise
 * returns 0, or -1 with an exception. Remembers the last static type that is not cffi's. */
static int is_of_cffi(PyObject *function) {
  static _Atomic(PyTypeObject *) known;
  PyTypeObject *type = Py_TYPE(function);
  if (PyCFunction_CheckExact(function)) {
    PyObject *self = PyCFunction_GetSelf(function);
    if (self == NULL || PyModule_Check(self)) return 0;
    type = Py_TYPE(self);
  }
  if (type == atomic_load_explicit(&known, memory_order_relaxed)) return 0;
  PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
  if (module == NULL) return -1;
  const int is_cffi = PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "_cffi_backend") == 0;
  Py_DECREF(module);
  if (!is_cffi && !(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE))
    atomic_store_explicit(&known, type, memory_order_relaxed);
  return is_cffi;
}

/* Returns the function, or for a function of cffi a callable that calls it with pointers: a new reference; NULL with an
 * exception. */
static PyObject *adapted(PyObject *function) {
  const int of_cffi = is_of_cffi(function);
  if (of_cffi <= 0) return of_cffi < 0 ? NULL : Py_NewRef(function);
  PyObject *module = PyImport_ImportModule("offload_args._cffi");
  PyObject *callable = module == NULL ? NULL : PyObject_CallMethod(module, "adapted", "(O)", function);
  Py_XDECREF(module);
  return callable;
}

/* Returns the positions of the arguments that the function is known to read many times, as bits. All bits are set for a
 * function that takes arrays itself and returns new ones: its pointers would be stale at the end of the call. */
static uint64_t find_reused(PyObject *function) {
  PyObject *known = PyDict_GetItem(python.reused, function); /* also NULL if it has no hash */
  return known == NULL ? 0 : PyLong_AsUnsignedLongLongMask(known);
}

static PyObject *refuse_function(PyObject *function) {
  PyObject *module = PyImport_ImportModule("offload_args._advice");
  PyObject *result = module == NULL ? NULL : PyObject_CallMethod(module, "refuse_function", "(O)", function);
  Py_XDECREF(module);
  return result;
}

/* Makes the call by tiles, after a MemoryError of the region. Returns None; NULL with the MemoryError if the function
 * can't compute by tiles, or with the function's own error. */
static PyObject *call_by_tiles(const Call *call, PyObject *function) {
  PyObject *type, *error, *traceback, *done = NULL;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject *module = PyImport_ImportModule("offload_args._by_tiles"), *keywords = PyDict_New();
  PyObject *arguments = PyTuple_New(call->positional);
  int failed = module == NULL || keywords == NULL || arguments == NULL;
  for (Py_ssize_t i = 0; i < call->count && !failed; i++) {
    if (i < call->positional)
      PyTuple_SetItem(arguments, i, Py_NewRef(call->values[i]));
    else if (call->roles[i] != OPTION)
      failed = PyDict_SetItem(keywords, PyTuple_GetItem(call->names, i - call->positional), call->values[i]) < 0;
  }
  PyObject *device = call->options.values[DEVICE];
  if (!failed)
    done = PyObject_CallMethod(module, "compute", "OOOO", function, arguments, keywords, device ? device : Py_None);
  Py_XDECREF(arguments);
  Py_XDECREF(keywords);
  Py_XDECREF(module);
  if (done == Py_False) {
    PyErr_Restore(type, error, traceback);
    Py_DECREF(done);
    return NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  if (done == NULL) return NULL;
  Py_DECREF(done);
  Py_RETURN_NONE;
}

/* (function, *arguments, **keywords) -> the function's value */
static PyObject *call(PyObject *Py_UNUSED(module), PyObject *const *values, Py_ssize_t count, PyObject *names) {
  if (count < 1) {
    PyErr_SetString(python.type_error,
                    "call() missing 1 required positional argument: 'function'; write call(blas.scal, 2.0, x)");
    return NULL;
  }
  Call request = {.values = values + 1, .names = names, .positional = count - 1, .reused = find_reused(values[0])};
  if (request.reused == UINT64_MAX || !PyCallable_Check(values[0])) return refuse_function(values[0]);
  request.count = request.positional + (names != NULL ? PyTuple_Size(names) : 0);
  request.roles = request.count > (Py_ssize_t)sizeof request.few ? PyMem_Malloc((size_t)request.count) : request.few;
  if (request.roles == NULL) return PyErr_NoMemory();
  memset(request.roles, PASSED, (size_t)request.count);
  PyObject *lent = take_options(&request) < 0 || find_roles(&request) < 0 ? NULL : lent_of(&request);
  PyObject *function = lent == NULL ? NULL : adapted(values[0]);
  PyObject *result = function == NULL ? NULL : call_in_region(&request, lent, call_with, function);
  if (result == NULL && PyErr_ExceptionMatches(PyExc_MemoryError) && request.options.values[STREAM] == NULL)
    result = call_by_tiles(&request, values[0]);
  Py_XDECREF(function);
  Py_XDECREF(lent);
  release_options(&request.options);
  if (request.roles != request.few) PyMem_Free(request.roles);
  return result;
}

static PyMethodDef call_functions[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS,
     "call($module, function, /, *arguments, device=None, stream=None, on_error='discard', **keywords)\n--\n\n"
     "Lend every array among the arguments, call function with pointers in their place, and return its value.\n\n"
     "function may be one of a cffi library of your own: it receives the addresses of the arrays, in pointers of the\n"
     "types that it takes.\n\n"
     "Arrays may be in In, Out, InOut or Scratch; other arguments are passed on unchanged, and so are lists, with the\n"
     "arrays in them. device, stream and on_error are the region's. Where the device can use pinned memory of the\n"
     "host, small arrays, 64 KiB in all, are used there: faster if the function uses each once, and slower if it uses\n"
     "them again and again; open a region for that. Matrices that a product of level 3 of blas only reads are copied\n"
     "from 16 KiB in all on. If the device has not enough memory for the arrays of a function that has the parameter\n"
     "devices, the function computes them by tiles.\n\n"
     "Raises the errors of the region and of the function.\n\n"
     "    x, y = np.array([1.0, 2.0]), np.ones(2)\n"
     "    call(blas.axpy, 10.0, In(x), y)\n"
     "    print(y)  # [11. 21.]\n\n"
     "See also: offload_args, offload; docs/help/which-of-five.md."},
    {NULL, NULL, 0, NULL},
};

int add_call(PyObject *module) {
  python.reused = PyDict_New();
  if (python.reused == NULL || PyModule_AddObjectRef(module, "reused", python.reused) < 0) return -1;
  return PyModule_AddFunctions(module, call_functions);
}
