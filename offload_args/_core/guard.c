/* Guarded arrays: a touch of one becomes an exception in the thread that touched it. */
#include "module.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* Texts of pending exceptions, one for each thread. A mutex guards these texts, because the GIL does not. */
static struct {
  unsigned long thread; /* 0: the entry is free */
  int waits;            /* 1: another thread touched the array, and the exception has yet to be sent to this one */
  char text[512];
} touched[MOST];
static atomic_int used;  /* the number of entries that are not free */
static atomic_int asked; /* 1: Python has raise_all in its list, which has 32 places */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Notes the text of a thread's exception. Returns 1, or 0 if there is no room. */
static int note(unsigned long thread, int waits, const oa_guard_touch *touch) {
  int place = -1;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST && (place < 0 || touched[place].thread == 0); i++)
    if (touched[i].thread == thread || (touched[i].thread == 0 && place < 0)) place = i;
  if (place >= 0 && touched[place].thread == 0) { /* otherwise the first touch is the reported one */
    touched[place].thread = thread;
    touched[place].waits = waits;
    atomic_fetch_add(&used, 1);
    const char *const text =
        touch->newer
            ? "the host read or wrote %s, which is lent at %s to %s and may be newer there: its bytes on the host "
              "are old. Read it after the region, by `update(x)`, or by `to_host()` of its pointer; write it "
              "within `with update(x):`"
            : "the host wrote %s, which is lent at %s to %s: calls there use the bytes from before, and the end "
              "of the region may overwrite the new ones. Write it after the region, or within `with update(x):`";
    snprintf(touched[place].text, sizeof touched[place].text, text, touch->array, touch->place, touch->device);
  }
  pthread_mutex_unlock(&mutex);
  return place >= 0;
}

/* Raises the exception in a thread that has a text. Needs the GIL. */
static int raise_in(unsigned long thread) { return PyThreadState_SetAsyncExc(thread, python.guard_error) == 1; }

/* Ends the waiting of thread i of the list. Returns the thread; 0: it does not wait. */
static unsigned long take_waiting(int i) {
  unsigned long taken = 0;
  pthread_mutex_lock(&mutex);
  if (touched[i].waits) {
    taken = touched[i].thread;
    touched[i].waits = 0;
  }
  pthread_mutex_unlock(&mutex);
  return taken;
}

/* Copies the text of a thread's exception, and frees its place. Returns 0 if there is none. */
static int take_text(unsigned long thread, char text[sizeof touched->text]) {
  int taken = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < MOST; i++) {
    if (touched[i].thread != thread) continue;
    memcpy(text, touched[i].text, sizeof touched->text);
    atomic_fetch_sub(&used, 1);
    touched[i].waits = 0;
    touched[i].thread = 0;
    taken = 1;
  }
  pthread_mutex_unlock(&mutex);
  return taken;
}

/* Raises the waiting exceptions; runs on the main thread. If a thread has ended, it prints the text. */
static int raise_all(void *Py_UNUSED(nothing)) {
  char text[sizeof touched->text];
  atomic_store(&asked, 0);
  for (int i = 0; i < MOST; i++) {
    const unsigned long thread = take_waiting(i);
    if (thread == 0 || raise_in(thread) || !take_text(thread, text)) continue;
    PyErr_SetString(python.guard_error, text);
    PyErr_WriteUnraisable(NULL);
  }
  return 0;
}

/* Raises the GuardError that was sent to this thread, if it has not come yet: the interpreter raises it in an empty
 * line of Python. An exception can't be withdrawn: PyThreadState_SetAsyncExc(thread, NULL) would leave its flag set,
 * and then Python 3.11 runs no function under a debugger: its loop handles the flag again and again. */
static void receive_sent(void) {
  enum { TRIES = 10 }; /* other exceptions, such as Ctrl-C, may come before it */
  PyObject *raised[3] = {NULL, NULL, NULL}, *other[3] = {NULL, NULL, NULL};
  PyObject *names = PyDict_New(), *line = names == NULL ? NULL : Py_CompileString("None", "guard", Py_eval_input);
  for (int i = 0; i < TRIES && line != NULL && raised[0] == NULL; i++) {
    PyObject *result = PyEval_EvalCode(line, names, names);
    Py_XDECREF(result);
    if (result != NULL) break;
    if (PyErr_ExceptionMatches(python.guard_error))
      PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
    else if (other[0] == NULL)
      PyErr_Fetch(&other[0], &other[1], &other[2]);
    else
      PyErr_Clear();
  }
  PyErr_Clear();                                                                       /* no memory for the line */
  if (raised[0] != NULL) PyErr_NormalizeException(&raised[0], &raised[1], &raised[2]); /* before Ctrl-C comes again */
  Py_XDECREF(line);
  Py_XDECREF(names);
  if (other[0] != NULL) {
    PyErr_Restore(other[0], other[1], other[2]);
    report(NULL);
  }
  Py_CLEAR(raised[2]); /* of the empty line */
  PyErr_Restore(raised[0], raised[1], raised[2]);
}

int raise_touch(void) {
  const unsigned long thread = PyThread_get_thread_ident();
  char text[sizeof touched->text];
  if (PyErr_Occurred()) return 0; /* the touch is raised when the thread leaves the region */
  if (atomic_load_explicit(&used, memory_order_relaxed) == 0) return 0;
  receive_sent();
  if (PyErr_Occurred()) return -1;
  if (!take_text(thread, text)) return 0;
  PyErr_SetString(python.guard_error, text);
  return -1;
}

/* The core's oa_guard_report, in a signal handler. The fault came from a load or a store of other code, which holds no
 * lock of Python, but perhaps the GIL. A thread without a Python state, such as a thread of a BLAS, must not wait for
 * the GIL: the GIL's owner may be waiting for that thread. */
static int report_touch(const oa_guard_touch *touch) {
  if (atomic_load(&leaving_process)) return 0;
  if (PyGILState_GetThisThreadState() == NULL) {
    if (!note((unsigned long)touch->thread, 1, touch)) return 0;
    /* If the list is full, raise_touch raises the exception when the thread leaves the region. */
    if (!atomic_exchange(&asked, 1) && Py_AddPendingCall(raise_all, NULL)) atomic_store(&asked, 0);
    return 1;
  }
  const unsigned long thread = PyThread_get_thread_ident();
  if (!note(thread, 0, touch)) return 0;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int raised = raise_in(thread);
  PyGILState_Release(state);
  return raised;
}

/* () -> the text of this thread's pending exception */
static PyObject *take_touch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  char text[sizeof touched->text] = "the host touched an array that is lent";
  take_text(PyThread_get_thread_ident(), text);
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyMethodDef guard_functions[] = {
    {"take_touch", take_touch, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_guard(PyObject *module) {
  oa_guard_set_report(report_touch);
  return PyModule_AddFunctions(module, guard_functions);
}
