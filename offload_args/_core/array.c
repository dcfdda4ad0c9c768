/* Functions on single arrays: they update an array, test whether it is lent, and change its residency. */
#include "module.h"

/* (array, device): calls an update function of the core with them. */
static PyObject *update(PyObject *arguments, int (*function)(const oa_array *, int)) {
  Item item = {0};
  oa_array array = {.name = "the array"};
  int flags, device, status;
  if (!PyArg_ParseTuple(arguments, "O!i", python.ndarray, &item.source, &device)) return NULL;
  Py_INCREF(item.source);
  int result = read_ndarray(&item, &array, &flags);
  if (result <= 0) {
    if (result == 0) Py_XDECREF(PyObject_CallFunction(python.refuse, "Os", item.source, "update: array"));
    release_item(&item);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = function(&array, device);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *update_from(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("update_from", arguments, update(arguments, oa_update_from));
}
int update_newest_of(PyObject *source) {
  Item item = {.source = Py_NewRef(source)};
  oa_array array = {.name = "the array"};
  int flags, status = OA_OK;
  const int result = read_ndarray(&item, &array, &flags);
  if (result > 0) {
    Py_BEGIN_ALLOW_THREADS status = oa_update_newest(&array);
    Py_END_ALLOW_THREADS
  }
  release_item(&item);
  if (status != OA_OK) fail(status);
  return result < 0 || status != OA_OK ? -1 : 0; /* result 0: no device can hold this dtype */
}

/* (array): the host has the newest bytes of the array then, whether regions lend it or not */
static PyObject *update_newest(PyObject *Py_UNUSED(module), PyObject *source) {
  if (update_newest_of(source) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyObject *update_to(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("update_to", arguments, update(arguments, oa_update_to));
}

static void end_update(PyObject *capsule) {
  oa_writing *writing = PyCapsule_GetPointer(capsule, NULL);
  Py_BEGIN_ALLOW_THREADS oa_update_end(writing);
  Py_END_ALLOW_THREADS
}

/* The update that a call on this thread began. */
static _Thread_local oa_writing *begun;
static int begin_update(const oa_array *array, int device) { return oa_update_begin(array, device, &begun); }

/* (array, device) -> an object, or None for an empty array: the host may write the array while the object lives */
static PyObject *update_begin(PyObject *Py_UNUSED(module), PyObject *arguments) {
  begun = NULL;
  PyObject *none = update(arguments, begin_update);
  if (!none || !begun) return none;
  Py_DECREF(none);
  PyObject *capsule = PyCapsule_New(begun, NULL, end_update);
  if (!capsule) {
    Py_BEGIN_ALLOW_THREADS oa_update_end(begun);
    Py_END_ALLOW_THREADS
  }
  return capsule;
}

/* Tests an array, with the lock of lent arrays held. */
static PyObject *ask(PyObject *array, int (*question)(const Held *)) {
  Held held = {0};
  Item item = {.source = Py_NewRef(array)};
  oa_array read = {0};
  int flags, result = keep_alive(&held, array) < 0 ? -1 : read_ndarray(&item, &read, &flags);
  if (result > 0) {
    find_bytes(&held, &read);
    lock_lent();
    result = question(&held);
    unlock_lent();
  }
  release_item(&item);
  release_one(&held);
  return result < 0 ? NULL : PyBool_FromLong(result);
}

/* (array) -> whether it is a lent array, or a part of one */
static PyObject *lent_array(PyObject *Py_UNUSED(module), PyObject *array) { return ask(array, is_lent); }

/* (array) -> whether some of its elements are lent */
static PyObject *lent_in_part(PyObject *Py_UNUSED(module), PyObject *array) { return ask(array, is_lent_in_part); }

/* (array) -> whether it is a lent array, or a part of one; if so, makes it read-only */
static PyObject *lock_array(PyObject *Py_UNUSED(module), PyObject *array) { return ask(array, lock_if_lent); }

/* (array, device): calls a residency function of the core, which also needs the array's owner. */
static PyObject *reside(PyObject *arguments, int (*function)(const oa_array *, int)) {
  Item item = {0};
  Held held = {0};
  oa_array array = {.name = "the array"};
  int flags, device, status = OA_OK;
  if (!PyArg_ParseTuple(arguments, "O!i", python.ndarray, &item.source, &device)) return NULL;
  Py_INCREF(item.source);
  int result = keep_alive(&held, item.source);
  if (result == 0) result = name_owner(&held, &array) < 0 ? -1 : read_ndarray(&item, &array, &flags);
  if (result == 0 && function == oa_keep)
    Py_XDECREF(PyObject_CallFunction(python.refuse, "Os", item.source, "Device.keep: array"));
  if (result > 0) {
    Py_BEGIN_ALLOW_THREADS status = function(&array, device);
    Py_END_ALLOW_THREADS watch_owner(held.owner);
  }
  release_one(&held);
  release_item(&item);
  if (status != OA_OK) return fail(status);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE; /* also for an array that can't be lent: it can't be resident either */
}

static PyObject *keep(PyObject *Py_UNUSED(module), PyObject *arguments) { return reside(arguments, oa_keep); }
static PyObject *release(PyObject *Py_UNUSED(module), PyObject *arguments) { return reside(arguments, oa_release); }

static PyMethodDef array_functions[] = {
    {"update_from", update_from, METH_VARARGS, NULL},
    {"update_newest", update_newest, METH_O, NULL},
    {"update_to", update_to, METH_VARARGS, NULL},
    {"update_begin", update_begin, METH_VARARGS, NULL},
    {"is_lent", lent_array, METH_O, NULL},
    {"lock_if_lent", lock_array, METH_O, NULL},
    {"is_lent_in_part", lent_in_part, METH_O, NULL},
    {"keep", keep, METH_VARARGS, NULL},
    {"release", release, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_array(PyObject *module) { return PyModule_AddFunctions(module, array_functions); }
