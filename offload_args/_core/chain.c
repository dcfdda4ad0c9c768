/* Chains: captured calls of a region. */
#include "region.h"

#include "offload_args/chain.h"

#include <time.h>

/* A chain in Python is a capsule. The capsule's end frees the chain, without code of Python, in which Ctrl-C would be
 * lost. */
static const char capsule_name[] = "offload_args.chain";

/* Returns NULL with an exception if the object is not a chain. */
static oa_chain *handle_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, capsule_name); }

static void free_chain(PyObject *capsule) {
  oa_chain *chain = handle_of(capsule);
  Py_BEGIN_ALLOW_THREADS oa_chain_release(chain); /* fails if it was freed before */
  Py_END_ALLOW_THREADS
}

static PyObject *answer(int status) {
  if (status == OA_OK) Py_RETURN_NONE;
  return fail_function(status);
}

/* Reports a call on a chain to the recorder, which knows the chain by its number, while a recording is under way.
 * Steals the result. */
static PyObject *recorded_of(const char *kind, const oa_chain *chain, PyObject *result) {
  if (OA_LIKELY(!atomic_load_explicit(&recording, memory_order_relaxed))) return result;
  PyObject *number = PyLong_FromVoidPtr((void *)chain);
  if (number == NULL) {
    if (result != NULL) PyErr_Clear();
    return result;
  }
  result = tell_recorder_values(kind, Py_None, &number, 1, NULL, result);
  Py_DECREF(number);
  return result;
}

PyObject *region_capture(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  oa_chain *chain = NULL;
  Region *region = (Region *)object;
  int status = OA_OK;
  lock_lent(); /* leaving by an exception has to find each capture that has begun */
  const int is_open = atomic_load(&region->state) == OPEN;
  if (is_open) status = oa_chain_begin(region->region, &chain);
  if (chain != NULL) region->capturing = chain;
  unlock_lent();
  if (!is_open) {
    PyErr_SetString(python.region_error, "offload_args.capture: the region is not open; enter it first");
    return NULL;
  }
  if (status != OA_OK) return fail(status);
  PyObject *capsule = PyCapsule_New(chain, capsule_name, free_chain);
  if (capsule == NULL) oa_chain_release(chain);
  if (capsule == NULL || OA_LIKELY(!atomic_load_explicit(&recording, memory_order_relaxed))) return capsule;
  PyObject *number = PyLong_FromVoidPtr(chain);
  if (number != NULL) number = tell_recorder_values("capture", Py_None, &object, 1, NULL, number);
  if (number == NULL) Py_CLEAR(capsule);
  Py_XDECREF(number);
  return capsule;
}

int drop_capture(Region *self) {
  int is_over;
  oa_chain_info info = OA_SIZED(oa_chain_info);
  lock_lent();
  oa_chain *chain = self->capturing;
  self->capturing = NULL;
  unlock_lent();
  if (chain == NULL) return 0;
  Py_BEGIN_ALLOW_THREADS is_over = oa_chain_end(chain) == OA_OK; /* fails for a chain whose capture has ended */
  if (is_over)
    oa_chain_release(chain);
  else
    is_over = oa_chain_get_info(chain, &info) == OA_ERROR_STALE; /* freed, such as after a captured call that failed */
  Py_END_ALLOW_THREADS return is_over;
}

PyObject *region_drop_capture(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  drop_capture((Region *)object);
  Py_RETURN_NONE;
}

/* (chain): ends the capture */
static PyObject *chain_end(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_chain *chain = handle_of(capsule);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_end(chain);
  Py_END_ALLOW_THREADS;
  return recorded_of("captured", chain, answer(status));
}

/* (chain): runs the captured calls */
static PyObject *chain_replay(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_chain *chain = handle_of(capsule);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_replay(chain);
  Py_END_ALLOW_THREADS;
  return recorded_of("graph", chain, raise_touch() < 0 ? NULL : answer(status));
}

/* (chain) -> False if the calls read an undefined array; raises any other error that a replay would raise before its
 * first call. */
static PyObject *chain_check(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_chain *chain = handle_of(capsule);
  int status, checked;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  const int64_t outer = oa_checks_begin();
  status = oa_chain_replay(chain);
  checked = oa_checks_end(outer);
  Py_END_ALLOW_THREADS;
  if (raise_touch() < 0) return NULL;
  if (checked || status == OA_OK) Py_RETURN_TRUE;
  if (status == OA_ERROR_INVALID) Py_RETURN_FALSE;
  return fail(status);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns how many steps of a loop to make before signals are handled: on a GPU they may be one launch. */
static int64_t first_steps(const oa_any *until) {
  oa_pointer_info pointer = OA_SIZED(oa_pointer_info);
  oa_device_info device = OA_SIZED(oa_device_info);
  const int on_gpu = oa_pointer_query(until, &pointer) == OA_OK &&
                     oa_device_get_info(pointer.device, &device) == OA_OK && device.flags & OA_DEVICE_GPU;
  return on_gpu ? 100 : 1;
}

/* (chain, pointer, at_most) -> how often the calls ran. Signals are handled after the first steps, and then every
 * tenth of a second or so. */
static PyObject *chain_loop(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *capsule, *object;
  long long at_most;
  if (!PyArg_ParseTuple(arguments, "OOL", &capsule, &object, &at_most)) return NULL;
  oa_chain *chain = handle_of(capsule);
  const Pointer *until = PyErr_Occurred() ? NULL : as_pointer(object);
  if (until == NULL) return NULL;
  int64_t count = 0, most = first_steps(until->handle);
  int status = OA_OK, ended = 0;
  while (status == OA_OK && !ended && count < at_most) {
    int64_t steps;
    if (PyErr_CheckSignals() < 0) return NULL;
    const int64_t left = at_most - count;
    const double begun = seconds();
    Py_BEGIN_ALLOW_THREADS status = oa_chain_loop(chain, until->handle, left < most ? left : most, &steps, &ended);
    Py_END_ALLOW_THREADS count += steps;
    const double fit = 0.1 * (double)steps / (seconds() - begun + 1e-7);
    most = fit < 1 ? 1 : (int64_t)fit;
  }
  if (raise_touch() < 0) return NULL;
  return recorded_of("loop", chain, status == OA_OK ? PyLong_FromLongLong(count) : fail_function(status));
}

/* (chain, number) -> (function, [(handle, name, reads, writes) of each array]) */
static PyObject *chain_call(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *capsule;
  int call;
  oa_chain_use use = OA_SIZED(oa_chain_use);
  if (!PyArg_ParseTuple(arguments, "Oi", &capsule, &call)) return NULL;
  const oa_chain *chain = handle_of(capsule);
  if (PyErr_Occurred()) return NULL;
  int status = oa_chain_get_use(chain, call, 0, &use);
  if (status != OA_OK) return fail(status);
  PyObject *uses = PyList_New(0);
  for (int i = 0; uses != NULL && i < use.uses; i++) {
    status = oa_chain_get_use(chain, call, i, &use);
    PyObject *handle = status == OA_OK ? PyLong_FromVoidPtr((void *)use.pointer) : fail(status);
    PyObject *entry = handle == NULL ? NULL
                                     : Py_BuildValue("(NsNN)", handle, use.name, PyBool_FromLong(use.reads),
                                                     PyBool_FromLong(use.writes));
    if (entry == NULL || PyList_Append(uses, entry) < 0) Py_CLEAR(uses);
    Py_XDECREF(entry);
  }
  return uses == NULL ? NULL : Py_BuildValue("(sN)", use.function, uses);
}

/* (chain) -> (calls, arrays, replays, nbytes) */
static PyObject *chain_info(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_chain_info info = OA_SIZED(oa_chain_info);
  const oa_chain *chain = handle_of(capsule);
  if (PyErr_Occurred()) return NULL;
  const int status = oa_chain_get_info(chain, &info);
  return status == OA_OK
             ? Py_BuildValue("iiLL", info.calls, info.arrays, (long long)info.replays, (long long)info.nbytes)
             : fail(status);
}

/* (chain): frees the chain */
static PyObject *chain_release(PyObject *Py_UNUSED(module), PyObject *capsule) {
  oa_chain *chain = handle_of(capsule);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_release(chain);
  Py_END_ALLOW_THREADS;
  return answer(status);
}

static PyMethodDef chain_functions[] = {
    {"chain_end", chain_end, METH_O, NULL},         {"chain_check", chain_check, METH_O, NULL},
    {"chain_replay", chain_replay, METH_O, NULL},   {"chain_loop", chain_loop, METH_VARARGS, NULL},
    {"chain_call", chain_call, METH_VARARGS, NULL}, {"chain_info", chain_info, METH_O, NULL},
    {"chain_release", chain_release, METH_O, NULL}, {NULL, NULL, 0, NULL},
};

int add_chain(PyObject *module) { return PyModule_AddFunctions(module, chain_functions); }
