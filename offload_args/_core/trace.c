/* The trace: turns it on and off, and reads its events. */
#include "module.h"

#include <string.h>

atomic_int tracing;

/* (listening, flags, entering, left): turns the trace on or off. While it is on, the two functions are called when a
 * region is entered and left. flags is a sum of oa_trace_flags; 0: the core records no events. */
static PyObject *trace_set(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int listening, flags;
  PyObject *entering, *left;
  if (!PyArg_ParseTuple(arguments, "piOO", &listening, &flags, &entering, &left)) return NULL;
  const int status = oa_trace_set(flags);
  if (status != OA_OK) return fail(status);
  if (python.entering == NULL) { /* set once, as another thread may be calling them */
    python.entering = Py_NewRef(entering);
    python.left = Py_NewRef(left);
  }
  atomic_store(&tracing, listening);
  Py_RETURN_NONE;
}

/* () -> (events, the number of lost events so far) */
static PyObject *trace_read(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  enum { AT_ONCE = 64 };
  oa_trace_event events[AT_ONCE];
  int count = 0;
  int64_t lost = 0;
  PyObject *list = PyList_New(0);
  do {
    const int status = list == NULL ? OA_OK : oa_trace_read(events, AT_ONCE, &count, &lost);
    if (status != OA_OK) {
      Py_DECREF(list);
      return fail(status);
    }
    for (int i = 0; list != NULL && i < count; i++) {
      PyObject *event = record_new(RECORD_TRACE_EVENT, &events[i]);
      if (event == NULL || PyList_Append(list, event) < 0) Py_CLEAR(list);
      Py_XDECREF(event);
    }
  } while (list != NULL && count == AT_ONCE);
  return list == NULL ? NULL : Py_BuildValue("NL", list, (long long)lost);
}

/* () -> the copies and waits that are under way: (begun in ns, bytes, copied bytes, kind, device's number, name) */
static PyObject *trace_under_way(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  enum { MOST = 64 };
  oa_under_way pending[MOST];
  int count;
  const int status = oa_trace_under_way(pending, MOST, &count);
  if (status != OA_OK) return fail(status);
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && i < count; i++) {
    const oa_under_way *item = &pending[i];
    PyObject *name = PyUnicode_DecodeUTF8(item->name, (Py_ssize_t)strlen(item->name), "replace");
    PyObject *entry = Py_BuildValue("(LLLiiN)", (long long)item->begun, (long long)item->nbytes, (long long)item->done,
                                    item->kind, item->device, name);
    if (entry == NULL || PyList_Append(list, entry) < 0) Py_CLEAR(list);
    Py_XDECREF(entry);
  }
  return list;
}

static atomic_flag collecting = ATOMIC_FLAG_INIT;

/* (function) -> whether it was called. It is not called while another such call runs, on another thread or further down
 * the stack of this thread. No exception of a signal handler comes between the flag and the call. */
static PyObject *trace_exclusively(PyObject *Py_UNUSED(module), PyObject *function) {
  if (atomic_flag_test_and_set(&collecting)) Py_RETURN_FALSE;
  PyObject *none = PyObject_CallNoArgs(function);
  atomic_flag_clear(&collecting);
  if (none == NULL) return NULL;
  Py_DECREF(none);
  Py_RETURN_TRUE;
}

void trace_after_fork(void) {
  atomic_store(&tracing, 0);
  atomic_flag_clear(&collecting);
}

static PyMethodDef trace_functions[] = {
    {"trace_set", trace_set, METH_VARARGS, NULL},
    {"trace_read", trace_read, METH_NOARGS, NULL},
    {"trace_under_way", trace_under_way, METH_NOARGS, NULL},
    {"trace_exclusively", trace_exclusively, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_trace(PyObject *module) { return PyModule_AddFunctions(module, trace_functions); }
