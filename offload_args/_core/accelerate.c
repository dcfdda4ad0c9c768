/* Unmodified programs: starts and stops the hooks, reads their rows, and finds the program's lines. */
#include "module.h"

#include <offload_args/accelerate.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static PyObject *site_of_this_thread;          /* () -> the number of the calling thread's place; set once */
static PyInterpreterState *own_interpreter;    /* the interpreter of site_of_this_thread */
static PyThreadState *(*current_thread)(void); /* the running thread of Python, or NULL */

/* Python's own functions for this are not part of the stable ABI. PyGILState_Check can't be used: it returns 1 on every
 * thread once the process has had a second interpreter. */
static void find_current_thread(void) {
  static const char *const names[] = {"PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet"};
  union {
    void *address;
    PyThreadState *(*function)(void);
  } symbol = {NULL};
  for (int i = 0; i < 2 && symbol.address == NULL; i++) symbol.address = dlsym(RTLD_DEFAULT, names[i]);
  current_thread = symbol.function;
}

static int has_gil(void) {
  PyThreadState *current = current_thread == NULL ? NULL : current_thread();
  /* Before Python 3.12, this may be the state of another thread, which has the GIL. */
  return current != NULL && (Py_Version >= 0x030C0000 || current == PyGILState_GetThisThreadState());
}

static int raise_later(void *error) {
  PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)error), error);
  Py_DECREF((PyObject *)error);
  return -1;
}

/* A signal handler may run meanwhile, and raise: the program gets the handler's exception after the call. */
static int site_with_gil(void) {
  PyObject *type, *value, *traceback, *raised[3];
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *site = PyObject_CallNoArgs(site_of_this_thread);
  const int number = site == NULL ? -1 : as_int(site);
  Py_XDECREF(site);
  PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
  if (raised[0] != NULL) {
    PyErr_NormalizeException(&raised[0], &raised[1], &raised[2]);
    if (Py_AddPendingCall(raise_later, raised[1]) == 0) raised[1] = NULL;
  }
  for (int i = 0; i < 3; i++) Py_XDECREF(raised[i]);
  PyErr_Restore(type, value, traceback);
  return number;
}

/* Is called in a hook, which never waits for Python's lock: the thread that has it may wait for a lock that the program
 * holds around the call. accelerate_wait requests the place of a thread without Python's lock. A thread without a
 * Python state, such as a thread of OpenMP, has no place. */
static int find_site(void) {
  if (atomic_load(&leaving_process)) return OA_SITE_NONE;
  if (has_gil()) return PyInterpreterState_Get() == own_interpreter ? site_with_gil() : OA_SITE_NONE;
  return PyGILState_GetThisThreadState() == NULL ? OA_SITE_NONE : OA_SITE_LATER;
}

/* (margin, families, only_count, sites, price, planned, patience) */
static PyObject *accelerate_start(PyObject *Py_UNUSED(module), PyObject *arguments) {
  oa_accelerate_options options = OA_SIZED(oa_accelerate_options);
  unsigned long long families;
  if (!PyArg_ParseTuple(arguments, "dKppdid", &options.margin, &families, &options.only_count, &options.sites,
                        &options.price, &options.planned, &options.patience))
    return NULL;
  options.least = options.margin > 0 ? OA_USUAL_LEAST : 0;
  options.families = families;
  const int status = oa_accelerate_start(&options);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *accelerate_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_accelerate_stop();
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* () -> (slots that hold hooks, modules that have such slots) */
static PyObject *accelerate_query(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  int slots, modules;
  const int status = oa_accelerate_query(&slots, &modules);
  if (status != OA_OK) return fail(status);
  return Py_BuildValue("(ii)", slots, modules);
}

/* (device, rates or None), as accelerate_calibrate returns them */
static PyObject *accelerate_use(PyObject *Py_UNUSED(module), PyObject *arguments) {
  oa_accelerate_rates rates = OA_SIZED(oa_accelerate_rates);
  int device;
  PyObject *tuple;
  if (!PyArg_ParseTuple(arguments, "iO", &device, &tuple)) return NULL;
  double *device_rates = rates.device, *host = rates.host;
  if (tuple != Py_None &&
      !PyArg_ParseTuple(tuple, "dddddddddddd", &rates.up, &rates.down, &rates.call, &device_rates[0], &device_rates[1],
                        &device_rates[2], &device_rates[3], &host[0], &host[1], &host[2], &host[3], &rates.host_memory))
    return NULL;
  const int status = oa_accelerate_use(device, tuple == Py_None ? NULL : &rates);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (device) */
static PyObject *accelerate_use_lapack(PyObject *Py_UNUSED(module), PyObject *argument) {
  const int device = as_int(argument);
  if (device == -1 && PyErr_Occurred()) return NULL;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_accelerate_use_lapack(device);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *tuple_of_rates(const oa_accelerate_rates *r) {
  return Py_BuildValue("(dddddddddddd)", r->up, r->down, r->call, r->device[0], r->device[1], r->device[2],
                       r->device[3], r->host[0], r->host[1], r->host[2], r->host[3], r->host_memory);
}

/* (device) -> up, down, call; device and host, four each; host_memory */
static PyObject *accelerate_calibrate(PyObject *Py_UNUSED(module), PyObject *argument) {
  const int device = as_int(argument);
  if (device == -1 && PyErr_Occurred()) return NULL;
  oa_accelerate_rates r;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_accelerate_calibrate(device, &r);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  return tuple_of_rates(&r);
}

/* () -> the rates that a plan assumes, as accelerate_calibrate returns them */
static PyObject *accelerate_nominal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  oa_accelerate_rates r = OA_SIZED(oa_accelerate_rates);
  const int status = oa_accelerate_nominal(&r);
  return status != OA_OK ? fail(status) : tuple_of_rates(&r);
}

/* () -> (event, thread, serial) */
static PyObject *accelerate_wait(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  oa_accelerate_asked asked = OA_SIZED(oa_accelerate_asked);
  int status, event;
  Py_BEGIN_ALLOW_THREADS status = oa_accelerate_wait(&asked, &event);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  return Py_BuildValue("(iKK)", event, (unsigned long long)asked.thread, (unsigned long long)asked.serial);
}

/* (serial, site) */
static PyObject *accelerate_set_site(PyObject *Py_UNUSED(module), PyObject *arguments) {
  unsigned long long serial;
  int site;
  if (!PyArg_ParseTuple(arguments, "Ki", &serial, &site)) return NULL;
  const int status = oa_accelerate_set_site(serial, site);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (function): () -> the place of the thread that calls it. Set once. */
static PyObject *accelerate_set_finder(PyObject *Py_UNUSED(module), PyObject *function) {
  if (site_of_this_thread == NULL) {
    find_current_thread();
    own_interpreter = PyInterpreterState_Get();
    site_of_this_thread = Py_NewRef(function);
  }
  const int status = oa_accelerate_set_finder(find_site);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

typedef int (*replace_loop)(PyObject *ufunc, oa_loop_function loop, const int *types, oa_loop_function *before);

/* Returns whether a universal function has this signature; another version of NumPy may give the name another one. */
static int has_signature(PyObject *ufunc, const char *signature) {
  PyObject *text = PyObject_GetAttrString(ufunc, "signature");
  const char *at = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  for (; at != NULL && *at; at++)
    if (*at != ' ' && *at != *signature++) break;
  const int has = at != NULL && !*at && !*signature;
  Py_XDECREF(text);
  PyErr_Clear();
  return has;
}

/* Puts `loop` in the place of the loop of a universal function that has these types. */
static int put_loop(replace_loop replace, PyObject *ufunc, const char *types, oa_loop_function loop,
                    oa_loop_function *before) {
  static const char letters[] = "?bBhHiIlLqQfdgFD"; /* NumPy's letter of each type, at the type's number in NumPy */
  int numbers[8] = {0};
  for (int i = 0; types[i]; i++) numbers[i] = (int)(strchr(letters, types[i]) - letters);
  return replace(ufunc, loop, numbers, before);
}

/* Hooks a loop, or puts the original back. If someone else replaced the loop after the hook was there, that loop
 * calls the hook, and stays: its hook can't have it as its original, and only its owner may take it out. */
static void switch_loop(replace_loop replace, PyObject *ufunc, oa_accelerate_loop *loop, int hooked) {
  oa_loop_function before = NULL;
  if (!hooked && loop->original == NULL) return;
  if (put_loop(replace, ufunc, loop->types, hooked ? loop->hook : loop->original, &before) < 0) return;
  if (before == loop->hook || before == loop->original) return;
  if (loop->original == NULL)
    __atomic_store_n(&loop->original, before, __ATOMIC_RELEASE);
  else
    put_loop(replace, ufunc, loop->types, before, &before);
}

/* ({name: universal function}, NumPy's capsule of functions for them, whether hooks replace the loops): replaces the
 * loops of NumPy's functions by hooks, or puts NumPy's loops back. */
static PyObject *accelerate_loops(PyObject *Py_UNUSED(module), PyObject *arguments) {
  enum { REPLACE_LOOP_BY_SIGNATURE = 30 }; /* its place in the table of NumPy's C API, which is part of NumPy's ABI */
  PyObject *functions, *capsule;
  int hooked;
  if (!PyArg_ParseTuple(arguments, "O!Op", &PyDict_Type, &functions, &capsule, &hooked)) return NULL;
  void *const *table = PyCapsule_GetPointer(capsule, NULL);
  if (table == NULL) return NULL;
  union {
    void *address;
    replace_loop function;
  } replace = {table[REPLACE_LOOP_BY_SIGNATURE]};
  oa_accelerate_loop *loop;
  for (int i = 0; (loop = oa_accelerate_loop_at(i)) != NULL; i++) {
    PyObject *ufunc = PyDict_GetItemString(functions, loop->function);
    if (ufunc != NULL && has_signature(ufunc, loop->signature)) switch_loop(replace.function, ufunc, loop, hooked);
  }
  Py_RETURN_NONE;
}

static PyObject *row_of(const oa_accelerate_row *row) {
  PyObject *refused = tuple_of(OA_REFUSED_COUNT, row->refused);
  if (refused == NULL) return NULL;
  return Py_BuildValue("(siLLLLLNLLLdddd)", row->routine, row->site, (long long)row->m, (long long)row->n,
                       (long long)row->k, (long long)row->calls, (long long)row->gone, refused,
                       (long long)row->bytes_up, (long long)row->bytes_down, (long long)row->bytes_spared,
                       row->host_seconds, row->device_seconds, row->predicted_host, row->predicted_savings);
}

/* () -> (rows, small calls) */
static PyObject *accelerate_read(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  int count = 0, room = 0;
  int64_t small = 0;
  oa_accelerate_row *rows = NULL;
  do {
    room = count + 16;
    free(rows);
    if ((rows = malloc((size_t)room * sizeof *rows)) == NULL) return PyErr_NoMemory();
    const int status = oa_accelerate_read(rows, room, &count, &small);
    if (status != OA_OK) {
      free(rows);
      return fail(status);
    }
  } while (count > room);
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && i < count; i++) {
    PyObject *row = row_of(&rows[i]);
    if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  free(rows);
  return list == NULL ? NULL : Py_BuildValue("(NL)", list, (long long)small);
}

/* (list of (routine, site, m, n, k, decision)) */
static PyObject *accelerate_plan(PyObject *Py_UNUSED(module), PyObject *list) {
  const Py_ssize_t count = PyList_Size(list);
  if (count < 0) return NULL;
  oa_accelerate_row *rows = calloc((size_t)count + 1, sizeof *rows);
  if (rows == NULL) return PyErr_NoMemory();
  int status = OA_OK, read = 1;
  for (Py_ssize_t i = 0; i < count && read; i++) { /* the texts live as long as the list */
    long long m, n, k;
    int site, decision;
    read = PyArg_ParseTuple(PyList_GetItem(list, i), "siLLLi", &rows[i].routine, &site, &m, &n, &k, &decision);
    if (!read) break;
    rows[i].site = site;
    rows[i].m = m;
    rows[i].n = n;
    rows[i].k = k;
    rows[i].decision = decision;
  }
  if (read) status = oa_accelerate_plan(rows, (int)count);
  free(rows);
  if (!read) return NULL;
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* Returns a list of the texts that `text` returns for 0, 1 and so on, until it returns NULL. */
static PyObject *list_of_texts(const char *(*text)(int)) {
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && text(i) != NULL; i++) {
    PyObject *element = PyUnicode_FromString(text(i));
    if (element == NULL || PyList_Append(list, element) < 0) Py_CLEAR(list);
    Py_XDECREF(element);
  }
  return list;
}

/* () -> the names of all families, in the order of the bits of accelerate_start */
static PyObject *accelerate_families(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return list_of_texts(oa_accelerate_family);
}

/* () -> the texts of all reasons for a refusal, in the order of the counts of accelerate_read */
/* () -> the text of the latest failure of a call on the device, or "" */
static PyObject *accelerate_failure(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  char text[512];
  const int status = oa_accelerate_read_failure(text, sizeof text);
  if (status != OA_OK) return fail(status);
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *accelerate_reasons(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return list_of_texts(oa_accelerate_reason_text);
}

static PyMethodDef accelerate_functions[] = {
    {"accelerate_start", accelerate_start, METH_VARARGS, NULL},
    {"accelerate_stop", accelerate_stop, METH_NOARGS, NULL},
    {"accelerate_query", accelerate_query, METH_NOARGS, NULL},
    {"accelerate_use", accelerate_use, METH_VARARGS, NULL},
    {"accelerate_use_lapack", accelerate_use_lapack, METH_O, NULL},
    {"accelerate_calibrate", accelerate_calibrate, METH_O, NULL},
    {"accelerate_nominal", accelerate_nominal, METH_NOARGS, NULL},
    {"accelerate_wait", accelerate_wait, METH_NOARGS, NULL},
    {"accelerate_set_site", accelerate_set_site, METH_VARARGS, NULL},
    {"accelerate_set_finder", accelerate_set_finder, METH_O, NULL},
    {"accelerate_loops", accelerate_loops, METH_VARARGS, NULL},
    {"accelerate_read", accelerate_read, METH_NOARGS, NULL},
    {"accelerate_plan", accelerate_plan, METH_O, NULL},
    {"accelerate_families", accelerate_families, METH_NOARGS, NULL},
    {"accelerate_reasons", accelerate_reasons, METH_NOARGS, NULL},
    {"accelerate_failure", accelerate_failure, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_accelerate(PyObject *module) {
  PyObject *price = PyFloat_FromDouble(OA_USUAL_PRICE);
  const int status = price == NULL ? -1 : PyModule_AddObjectRef(module, "USUAL_PRICE", price);
  Py_XDECREF(price);
  return status < 0 ? -1 : PyModule_AddFunctions(module, accelerate_functions);
}
