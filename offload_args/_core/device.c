/* Devices: opens, describes and configures them. */
#include "module.h"

/* Returns the text of a name, which lives as long as the object. Returns NULL with ArgumentError if the object is not a
 * text, or has characters that C or a message would not show, such as a NUL or a new line. */
static const char *text_of_name(PyObject *name) {
  Py_ssize_t length = 0, shown = 0;
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : NULL;
  while (text != NULL && (unsigned char)text[shown] >= ' ') shown++;
  if (text != NULL && shown == length) return text;
  PyErr_Format(python.argument_error, "Device: name needs a string such as \"cuda:0\" or \"host\", got %R", name);
  return NULL;
}

static PyObject *device_open(PyObject *Py_UNUSED(module), PyObject *argument) {
  const char *name = text_of_name(argument);
  int device = -1, status;
  if (name == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_open(name, &device);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromLong(device) : fail(status);
}

/* (backend) -> the number of its devices; 0 if its driver is missing */
static PyObject *device_count(PyObject *Py_UNUSED(module), PyObject *argument) {
  const char *backend = text_of_name(argument);
  int count = 0, status;
  if (backend == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_count(backend, &count);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromLong(count) : fail(status);
}

/* () -> a BackendInfo for each backend of this build, backends of GPUs first */
static PyObject *backends(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *list = PyList_New(0), *row;
  oa_backend_info info = OA_SIZED(oa_backend_info);
  for (int i = 0; list != NULL && oa_backend_get_info(i, &info) == OA_OK; i++) {
    row = record_new(RECORD_BACKEND_INFO, &info);
    if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  PyObject *all = list == NULL ? NULL : PyList_AsTuple(list);
  Py_XDECREF(list);
  return all;
}

static PyObject *device_info(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument), status;
  oa_device_info info = OA_SIZED(oa_device_info);
  if (device == -1 && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_get_info(device, &info);
  Py_END_ALLOW_THREADS return status == OA_OK ? record_new(RECORD_DEVICE_INFO, &info) : fail(status);
}

static PyObject *device_counters(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  oa_counters now = OA_SIZED(oa_counters);
  if (device == -1 && PyErr_Occurred()) return NULL;
  int status = oa_device_get_counters(device, &now);
  return status == OA_OK ? record_new(RECORD_COUNTERS, &now) : fail(status);
}

static PyObject *device_residency(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  oa_residency now = OA_SIZED(oa_residency);
  if (device == -1 && PyErr_Occurred()) return NULL;
  int status = oa_residency_query(device, &now);
  return status == OA_OK ? record_new(RECORD_RESIDENCY, &now) : fail(status);
}

/* (mode, tracking) */
static PyObject *residency_configure(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int mode, tracking, status;
  if (!PyArg_ParseTuple(arguments, "ii", &mode, &tracking)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_residency_configure(mode, tracking);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (coherence) */
static PyObject *coherent_configure(PyObject *Py_UNUSED(module), PyObject *argument) {
  const int coherence = as_int(argument);
  if (coherence == -1 && PyErr_Occurred()) return NULL;
  const int status = oa_coherent_configure(coherence);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (bytes) */
static PyObject *part_cost_configure(PyObject *Py_UNUSED(module), PyObject *argument) {
  const long long bytes = PyLong_AsLongLong(argument);
  if (bytes == -1 && PyErr_Occurred()) return NULL;
  const int status = oa_part_cost_configure(bytes);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *device_synchronize(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument), status;
  if (device == -1 && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_synchronize(device);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *device_trim(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument), status;
  if (device == -1 && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_trim(device);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (device, capacity, fail_after, delay_us) */
static PyObject *sim_configure(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int device;
  long long capacity, fail_after, delay;
  if (!PyArg_ParseTuple(arguments, "iLLL", &device, &capacity, &fail_after, &delay)) return NULL;
  int status = oa_sim_configure(device, capacity, fail_after, delay);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (device, ordered) */
static PyObject *sim_order(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int device, ordered;
  if (!PyArg_ParseTuple(arguments, "ip", &device, &ordered)) return NULL;
  int status = oa_sim_order(device, ordered);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *sim_backend_calls(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  if (device == -1 && PyErr_Occurred()) return NULL;
  return PyLong_FromLongLong(oa_sim_backend_calls(device));
}

static PyMethodDef device_functions[] = {
    {"backends", backends, METH_NOARGS, NULL},
    {"device_open", device_open, METH_O, NULL},
    {"device_count", device_count, METH_O, NULL},
    {"device_info", device_info, METH_O, NULL},
    {"device_counters", device_counters, METH_O, NULL},
    {"device_residency", device_residency, METH_O, NULL},
    {"residency_configure", residency_configure, METH_VARARGS, NULL},
    {"coherent_configure", coherent_configure, METH_O, NULL},
    {"part_cost_configure", part_cost_configure, METH_O, NULL},
    {"device_synchronize", device_synchronize, METH_O, NULL},
    {"device_trim", device_trim, METH_O, NULL},
    {"sim_configure", sim_configure, METH_VARARGS, NULL},
    {"sim_order", sim_order, METH_VARARGS, NULL},
    {"sim_backend_calls", sim_backend_calls, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_device(PyObject *module) { return PyModule_AddFunctions(module, device_functions); }
