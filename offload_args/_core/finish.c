/* Work that no signal handler interrupts: it runs on a thread of its own, because Python runs handlers on the main
 * thread only. Python's locks are not safe from a handler that raises: a lock may stay locked, or be unlocked twice. */
#include "module.h"

#include <stdlib.h>
#include <unistd.h>

enum { POLL_US = 50000 }; /* the kernel may deliver a signal to another thread, which does not end the wait */

typedef struct {
  PyObject *work, *result;
  PyObject *type, *value, *traceback; /* the exception of the work */
  PyThread_type_lock ended;           /* locked until the end */
} Work;

static void run(void *argument) {
  Work *work = argument;
  const PyGILState_STATE state = PyGILState_Ensure();
  work->result = PyObject_CallNoArgs(work->work);
  if (work->result == NULL) PyErr_Fetch(&work->type, &work->value, &work->traceback);
  PyThread_release_lock(work->ended); /* the waiting thread then frees the lock, once it has Python's lock */
  PyGILState_Release(state);
}

/* Waits for the end. Returns the first exception of a signal handler, after which stop() has been called; NULL if
 * there is none. Sets *is_over to 0 if a handler has forked this process, in which the work then never ends. */
static PyObject *wait_for(const Work *work, PyObject *stop, int *is_over) {
  PyObject *raised = NULL;
  int is_stopped = 0;
  const pid_t process = getpid();
  *is_over = 1;
  for (PyLockStatus got = PY_LOCK_FAILURE; got != PY_LOCK_ACQUIRED;) {
    Py_BEGIN_ALLOW_THREADS;
    got = PyThread_acquire_lock_timed(work->ended, POLL_US, 1);
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() < 0) {
      PyObject *type, *value, *traceback;
      PyErr_Fetch(&type, &value, &traceback);
      if (raised == NULL) {
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != NULL) PyException_SetTraceback(value, traceback);
        raised = value, value = NULL;
      }
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(traceback);
    }
    if (got != PY_LOCK_ACQUIRED && getpid() != process) {
      *is_over = PyThread_acquire_lock(work->ended, NOWAIT_LOCK) == PY_LOCK_ACQUIRED;
      break;
    }
    if (raised != NULL && !is_stopped && got != PY_LOCK_ACQUIRED) {
      PyObject *none = PyObject_CallNoArgs(stop);
      if (none != NULL) is_stopped = 1;
      PyErr_Clear(); /* of another signal: stop() is called again */
      Py_XDECREF(none);
    }
  }
  return raised;
}

/* (work, stop): calls work() on another thread, and waits for its end. work() returns a note or None, and an exception
 * or None. If a signal handler raises meanwhile, calls stop(), and raises the handler's exception after the end, with
 * the note. Otherwise returns the exception or None. In a process that a handler has forked meanwhile, raises the
 * handler's exception or ForkedError immediately. */
static PyObject *finish(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *stop, *result = NULL;
  Work work = {0};
  if (!PyArg_ParseTuple(arguments, "OO", &work.work, &stop)) return NULL;
  work.ended = PyThread_allocate_lock();
  if (work.ended == NULL) return PyErr_NoMemory();
  PyThread_acquire_lock(work.ended, WAIT_LOCK);
  if (PyThread_start_new_thread(run, &work) == (unsigned long)-1) {
    PyErr_SetString(PyExc_RuntimeError, "can't start new thread");
  } else {
    int is_over;
    PyObject *note = NULL, *error = NULL, *raised = wait_for(&work, stop, &is_over);
    if (!is_over) {
      oa_counters counters = OA_SIZED(oa_counters);
      if (raised == NULL) fail(oa_device_get_counters(0, &counters)); /* no core function works in a forked child */
    } else if (work.result != NULL && PyArg_ParseTuple(work.result, "OO", &note, &error) && raised == NULL) {
      result = error;
      Py_INCREF(result);
    } else if (work.result == NULL) {
      PyErr_Restore(work.type, work.value, work.traceback);
    }
    if (raised != NULL) {
      PyErr_Clear();
      PyObject *none = note == NULL || note == Py_None ? NULL : PyObject_CallMethod(raised, "add_note", "O", note);
      PyErr_Clear();
      Py_XDECREF(none);
      if (error != NULL && PyExceptionInstance_Check(error)) {
        Py_INCREF(error);
        PyException_SetContext(raised, error);
      }
      PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
      Py_DECREF(raised);
    }
    Py_XDECREF(work.result);
  }
  PyThread_release_lock(work.ended);
  PyThread_free_lock(work.ended);
  return result;
}

static PyMethodDef functions[] = {
    {"finish", finish, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_finish(PyObject *module) { return PyModule_AddFunctions(module, functions); }
