/* An extension for tests of the capsule: it hands on what offload_args/python.h gives. */
#define PY_SSIZE_T_CLEAN
#include <offload_args/python.h>

#include <offload_args_blas.h>
#include <pthread.h>

/* (pointer, dtype, device) -> whether a live handle came */
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

/* Doubles the elements, nested in whatever lends them; Python knows nothing of this thread. */
static void *double_them(void *given) {
  Work *work = given;
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

static PyMethodDef methods[] = {{"get", get, METH_VARARGS, NULL},
                                {"make", make, METH_VARARGS, NULL},
                                {"vector", vector, METH_O, NULL},
                                {"make_of_nothing", make_of_nothing, METH_NOARGS, NULL},
                                {"scale", scale, METH_VARARGS, NULL},
                                {"synchronize", synchronize, METH_O, NULL},
                                {"has", has, METH_O, NULL},
                                {"import_again", import_again, METH_NOARGS, NULL},
                                {"double_on_a_thread", double_on_a_thread, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "through", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_through(void) {
  if (oa_import() < 0 || oa_import() < 0) return NULL;
  return PyModule_Create(&definition);
}
