/* Calls whose elements a Python function computes, on devices whose calls the CPU makes. A graph calls the function
 * again at each replay. */
#include "module.h"

#include "offload_args/chain.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* A call's function and operands. */
typedef struct {
  PyObject *function; /* the call's, or the graph's */
  const char *name;
  const char *from;
  char *to;
  int64_t from_bytes, to_bytes;
} Work;

/* Writes the function's result to the operand. Returns 0, or -1 with an exception. */
static int compute(const Work *w) {
  Py_buffer buffer;
  PyObject *from = PyBytes_FromStringAndSize(w->from, (Py_ssize_t)w->from_bytes);
  PyObject *result = from == NULL ? NULL : PyObject_CallFunctionObjArgs(w->function, from, NULL);
  int status = result == NULL ? -1 : PyObject_GetBuffer(result, &buffer, PyBUF_SIMPLE);
  if (status == 0) {
    if (buffer.len == w->to_bytes) {
      memcpy(w->to, buffer.buf, (size_t)w->to_bytes);
    } else {
      PyErr_Format(PyExc_SystemError, "%s: the result has %zd bytes and not %lld", w->name, buffer.len,
                   (long long)w->to_bytes);
      status = -1;
    }
    PyBuffer_Release(&buffer);
  }
  Py_XDECREF(result);
  Py_XDECREF(from);
  return status;
}

/* The end of the interpreter stops any other thread that asks for the GIL, in the middle of its function: SciPy's C++
 * would then abort the process. So the end waits for functions under way, and later functions do not begin. */
static atomic_int under_way;
static pthread_t leaving_thread;

/* Counts a function that may begin now. Returns 0 if it may not. */
static int may_begin(void) {
  atomic_fetch_add(&under_way, 1);
  if (Py_IsInitialized() && (!atomic_load(&leaving_process) || pthread_equal(leaving_thread, pthread_self()))) return 1;
  atomic_fetch_sub(&under_way, 1);
  return 0;
}

void leave_functions(void) {
  enum { MOST_MS = 10000 };
  leaving_thread = pthread_self();
  atomic_store(&leaving_process, 1);
  Py_BEGIN_ALLOW_THREADS for (int ms = 0; ms < MOST_MS && atomic_load(&under_way) > 0; ms++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  Py_END_ALLOW_THREADS
}

void functions_after_fork(void) { atomic_store(&under_way, 0); }

/* Runs without the GIL, and without a lock of the core. After a failure, the exception stays set for the caller's
 * Python; a thread without Python prints it. */
static int run(void *arguments) {
  const Work *w = arguments;
  if (!may_begin()) return -1;
  const int is_of_python = PyGILState_GetThisThreadState() != NULL;
  const PyGILState_STATE state = PyGILState_Ensure();
  const int status = compute(w);
  if (status < 0 && !is_of_python) PyErr_WriteUnraisable(w->function);
  PyGILState_Release(state);
  atomic_fetch_sub(&under_way, 1);
  return status;
}

PyObject *fail_function(int status) {
  if (PyErr_Occurred()) return NULL;
  if (status != OA_ERROR_LIBRARY || !atomic_load(&leaving_process)) return fail(status);
  PyErr_SetString(python.region_error,
                  "offload_args: Python ends, and functions such as fft compute on its main thread only; end the other "
                  "threads first");
  return NULL;
}

static void let_go(void *function) {
  if (atomic_load(&leaving_process)) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Py_DECREF((PyObject *)function);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
}

/* Returns the name of a function, which lives as long as the process; NULL with an exception. */
static const char *name_of(const char *name) {
  static const char *const names[] = {"fft.fft",   "fft.ifft",   "fft.rfft",  "fft.irfft",  "fft.hfft",  "fft.ihfft",
                                      "fft.fft2",  "fft.ifft2",  "fft.fftn",  "fft.ifftn",  "fft.rfft2", "fft.irfft2",
                                      "fft.rfftn", "fft.irfftn", "fft.hfft2", "fft.ihfft2", "fft.hfftn", "fft.ihfftn"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return names[i];
  PyErr_Format(PyExc_ValueError, "no function of fft has the name %s", name);
  return NULL;
}

/* Reads the number of a pointer's elements and of its bytes. Returns 0, or -1 with an exception. */
static int read_size(const Pointer *pointer, int64_t *elements, int64_t *bytes) {
  *elements = 1;
  for (Py_ssize_t i = PyTuple_Size(pointer->shape) - 1; i >= 0; i--) {
    const long long length = PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, i));
    if (length == -1 && PyErr_Occurred()) return -1;
    *elements *= length;
  }
  *bytes = *elements * oa_itemsize(pointer->dtype);
  return 0;
}

static PyObject *do_compute(PyObject *arguments) {
  const char *name;
  PyObject *from, *to;
  Work w;
  int64_t from_count, to_count;
  int status;
  if (!PyArg_ParseTuple(arguments, "sOOO", &name, &w.function, &from, &to) || (w.name = name_of(name)) == NULL)
    return NULL;
  const Pointer *x = as_pointer(from), *y = x == NULL ? NULL : as_pointer(to);
  if (y == NULL || read_size(x, &from_count, &w.from_bytes) < 0 || read_size(y, &to_count, &w.to_bytes) < 0)
    return NULL;
  oa_operand operands[] = {oa_operand_of("x", x->handle, OA_READ, x->dtype, OA_ELEMENTS(from_count)),
                           oa_operand_of("y", y->handle, OA_OVERWRITE, y->dtype, OA_ELEMENTS(to_count))};
  oa_call call = oa_call_of(w.name, NULL, operands, 2);
  Py_BEGIN_ALLOW_THREADS status = oa_begin(&call);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  w.from = operands[0].address;
  w.to = operands[1].address;
  Py_INCREF(w.function);
  Py_BEGIN_ALLOW_THREADS status = oa_submit_here(&call, run, &w, sizeof w, w.function, let_go);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail_function(status);
  Py_RETURN_NONE;
}

/* (name, function, x, y): writes function(bytes of x), an object with as many bytes as y, to y. x and y are in C order,
 * and on a device whose calls the CPU makes. */
static PyObject *compute_elements(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("computed", arguments, do_compute(arguments));
}

static PyMethodDef compute_functions[] = {{"compute", compute_elements, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int add_compute(PyObject *module) { return PyModule_AddFunctions(module, compute_functions); }
