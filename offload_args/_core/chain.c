/* Chains: captured calls of a region. */
#include "region.h"

#include "offload_args/chain.h"

/* (number): the handle. Returns NULL with an exception if the number is none. */
static oa_chain *handle_of(PyObject *number) { return PyLong_AsVoidPtr(number); }

static PyObject *answer(int status) {
  if (status == OA_OK) Py_RETURN_NONE;
  return fail(status);
}

PyObject *region_capture(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  oa_chain *chain = NULL;
  const Region *region = (const Region *)object;
  if (atomic_load(&region->state) != OPEN) {
    PyErr_SetString(python.region_error, "offload_args.capture: the region is not open; enter it first");
    return NULL;
  }
  const int status = oa_chain_begin(region->region, &chain);
  return status == OA_OK ? PyLong_FromVoidPtr(chain) : fail(status);
}

/* (handle): ends the capture */
static PyObject *chain_end(PyObject *Py_UNUSED(module), PyObject *number) {
  oa_chain *chain = handle_of(number);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_end(chain);
  Py_END_ALLOW_THREADS;
  return answer(status);
}

/* (handle): runs the captured calls */
static PyObject *chain_replay(PyObject *Py_UNUSED(module), PyObject *number) {
  oa_chain *chain = handle_of(number);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_replay(chain);
  Py_END_ALLOW_THREADS;
  return raise_touch() < 0 ? NULL : answer(status);
}

/* (handle) -> (calls, arrays, replays) */
static PyObject *chain_info(PyObject *Py_UNUSED(module), PyObject *number) {
  oa_chain_info info = OA_SIZED(oa_chain_info);
  const oa_chain *chain = handle_of(number);
  if (PyErr_Occurred()) return NULL;
  const int status = oa_chain_get_info(chain, &info);
  return status == OA_OK ? Py_BuildValue("iiL", info.calls, info.arrays, (long long)info.replays) : fail(status);
}

/* (handle): frees the chain */
static PyObject *chain_release(PyObject *Py_UNUSED(module), PyObject *number) {
  oa_chain *chain = handle_of(number);
  int status;
  if (PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = oa_chain_release(chain);
  Py_END_ALLOW_THREADS;
  return answer(status);
}

static PyMethodDef chain_functions[] = {
    {"chain_end", chain_end, METH_O, NULL},
    {"chain_replay", chain_replay, METH_O, NULL},
    {"chain_info", chain_info, METH_O, NULL},
    {"chain_release", chain_release, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_chain(PyObject *module) { return PyModule_AddFunctions(module, chain_functions); }
