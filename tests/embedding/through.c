/* An extension for tests of the capsule. Its functions call the functions of offload_args/python.h. */
#define PY_SSIZE_T_CLEAN
#include <offload_args/python.h>

#include <offload_args_blas.h>
#include <pthread.h>

/* (pointer, dtype, device) -> whether the handle is live */
static PyObject *get(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *pointer;
  int dtype, device;
  oa_any *handle = NULL;
  if (!PyArg_ParseTuple(arguments, "Oii", &pointer, &dtype, &device)) return NULL;
  if (oa_python->pointer_get(pointer, dtype, device, &handle) < 0) return NULL;
  return PyBool_FromLong(handle != NULL);
}

/* (pointer, count, stride; 0: C order) -> a DevicePtr to a vector of its elements */
static PyObject *make(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *pointer;
  long long count, stride;
  if (!PyArg_ParseTuple(arguments,
                        "O"
                        "LL",
                        &pointer, &count, &stride))
    return NULL;
  oa_any *handle = oa_any_of(pointer);
  const int64_t shape = count, strides = stride;
  return handle ? oa_python->pointer_new(handle, 1, &shape, stride ? &strides : NULL) : NULL;
}

static PyObject *vector(PyObject *module, PyObject *pointer) {
  (void)module;
  oa_any *handle = oa_any_of(pointer);
  return handle ? oa_pointer_vector(handle) : NULL;
}

static PyObject *make_of_nothing(PyObject *module, PyObject *nothing) {
  (void)module, (void)nothing;
  const int64_t shape = 1;
  return oa_python->pointer_new((oa_any *)1, 1, &shape, NULL);
}

static PyObject *scale(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *pointer;
  double by;
  if (!PyArg_ParseTuple(arguments, "Od", &pointer, &by)) return NULL;
  oa_f64 *x = oa_f64_of(pointer);
  if (!x) return NULL;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  int status = oa_pointer_query((oa_any *)x, &info);
  if (!status) status = oa_blas_dscal(info.nbytes / 8, by, x, 1);
  return status ? oa_raise(status) : Py_NewRef(Py_None);
}

static PyObject *synchronize(PyObject *module, PyObject *object) {
  (void)module;
  oa_region *region;
  if (oa_python->region_get(object, &region) < 0) return NULL;
  const int status = oa_region_synchronize(region);
  return status ? oa_raise(status) : Py_NewRef(Py_None);
}

static PyObject *has(PyObject *module, PyObject *name) {
  (void)module;
  return PyBool_FromLong(oa_python->find(PyUnicode_AsUTF8AndSize(name, NULL)) != NULL);
}

static PyObject *import_again(PyObject *module, PyObject *nothing) {
  (void)module, (void)nothing;
  oa_python = NULL;
  return oa_import() < 0 ? NULL : Py_NewRef(Py_None);
}

typedef struct {
  double *data;
  int64_t count;
  int status;
  char text[512];
} Work;

/* Doubles the elements, nested in the region that lends them. This thread has no Python state. */
static void *double_them(void *argument) {
  Work *work = argument;
  const int64_t stride = 8;
  oa_array array = {.data = work->data, .shape = &work->count, .strides = &stride, .ndim = 1, .dtype = OA_F64};
  oa_region *region;
  int device;
  work->status = oa_device_open("sim:0", &device);
  if (!work->status) work->status = oa_region_enter(device, NULL, &array, 1, &region);
  if (!work->status) {
    work->status = oa_blas_dscal(work->count, 2.0, (oa_f64 *)array.handle, 1);
    const int finished = oa_region_finish(region, OA_COMMIT, NULL), waited = oa_region_wait(region);
    if (!work->status) work->status = finished ? finished : waited;
  }
  if (work->status) snprintf(work->text, sizeof work->text, "%s", oa_last_error());
  return NULL;
}

/* (buffer of doubles) */
static PyObject *double_on_a_thread(PyObject *module, PyObject *object) {
  (void)module;
  Py_buffer buffer;
  pthread_t thread;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE) < 0) return NULL;
  Work work = {.data = buffer.buf, .count = buffer.len / 8};
  Py_BEGIN_ALLOW_THREADS if (pthread_create(&thread, NULL, double_them, &work) == 0) pthread_join(thread, NULL);
  Py_END_ALLOW_THREADS PyBuffer_Release(&buffer);
  return work.status ? PyErr_Format(PyExc_RuntimeError, "%s", work.text) : Py_NewRef(Py_None);
}

/* (array, direction, factor): enters a new region, and multiplies the array in it */
static PyObject *scale_array(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *object;
  int direction, device, status;
  double factor;
  oa_array x;
  oa_region *region;
  if (!PyArg_ParseTuple(arguments, "Oid", &object, &direction, &factor)) return NULL;
  PyObject *held = oa_array_from_python(object, direction, &x);
  if (!held) return NULL;
  char text[512] = "";
  Py_BEGIN_ALLOW_THREADS status = oa_device_open("sim:0", &device);
  if (!status && x.dtype != OA_F64) status = oa_fail_enum("scale_array", "x", x.dtype, "float64");
  if (!status) status = oa_region_enter(device, NULL, &x, 1, &region);
  if (!status) {
    oa_pointer_layout layout = OA_SIZED(oa_pointer_layout);
    status = oa_pointer_get_layout(x.handle, &layout);
    for (int64_t i = 0; !status && i < layout.rows; i++) {
      const int64_t shape = layout.columns, stride = layout.ndim == 2 ? layout.strides[1] : 8;
      const int64_t offset = i * layout.strides[0];
      oa_any *row;
      if ((status = oa_pointer_view(x.handle, offset, 1, &shape, &stride, &row))) break;
      status = oa_blas_dscal(shape, factor, (oa_f64 *)row, stride / 8);
      oa_pointer_release(row);
    }
    if (status) snprintf(text, sizeof text, "%s", oa_last_error());
    const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
    const int waited = oa_region_wait(region);
    if (!status) status = finished ? finished : waited;
  }
  Py_END_ALLOW_THREADS Py_DECREF(held);
  if (status) return text[0] ? oa_raise_text(status, text) : oa_raise(status);
  return Py_NewRef(Py_None);
}

/* (array) -> an object: the array is held for a region of C while it lives */
static PyObject *hold_array(PyObject *module, PyObject *object) {
  (void)module;
  oa_array x;
  return oa_array_from_python(object, OA_BY_USE, &x);
}

/* (pointer) -> (shape, strides, rows, columns, ld, ld_by_rows, inc) */
static PyObject *layout(PyObject *module, PyObject *pointer) {
  (void)module;
  oa_any *handle = oa_any_of(pointer);
  if (!handle) return NULL;
  oa_pointer_layout l = OA_SIZED(oa_pointer_layout);
  const int status = oa_pointer_get_layout(handle, &l);
  if (status) return oa_raise(status);
  PyObject *shape = PyTuple_New(l.ndim), *strides = PyTuple_New(l.ndim);
  for (int i = 0; i < l.ndim; i++) {
    PyTuple_SetItem(shape, i, PyLong_FromLongLong(l.shape[i]));
    PyTuple_SetItem(strides, i, PyLong_FromLongLong(l.strides[i]));
  }
  return Py_BuildValue("NNLLLLL", shape, strides, (long long)l.rows, (long long)l.columns, (long long)l.ld,
                       (long long)l.ld_by_rows, (long long)l.inc);
}

static PyObject *raise_text(PyObject *module, PyObject *arguments) {
  (void)module;
  int status;
  const char *text;
  if (!PyArg_ParseTuple(arguments, "iz", &status, &text)) return NULL;
  return oa_raise_text(status, text);
}

static PyMethodDef methods[] = {{"get", get, METH_VARARGS, NULL},
                                {"make", make, METH_VARARGS, NULL},
                                {"vector", vector, METH_O, NULL},
                                {"make_of_nothing", make_of_nothing, METH_NOARGS, NULL},
                                {"scale", scale, METH_VARARGS, NULL},
                                {"synchronize", synchronize, METH_O, NULL},
                                {"has", has, METH_O, NULL},
                                {"import_again", import_again, METH_NOARGS, NULL},
                                {"double_on_a_thread", double_on_a_thread, METH_O, NULL},
                                {"scale_array", scale_array, METH_VARARGS, NULL},
                                {"hold_array", hold_array, METH_O, NULL},
                                {"layout", layout, METH_O, NULL},
                                {"raise_text", raise_text, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "through", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_through(void) {
  if (oa_import() < 0 || oa_import() < 0) return NULL;
  return PyModule_Create(&definition);
}
