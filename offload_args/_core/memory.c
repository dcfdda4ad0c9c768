/* Pinned memory: allocates it as buffers. */
#include "module.h"

/* A buffer that frees its own memory. No Python code runs then, so no signal handler can raise. */
typedef struct {
  PyObject_HEAD int device;
  void *memory;
  int64_t nbytes;
} Pinned;

static void pinned_dealloc(PyObject *object) {
  Pinned *self = (Pinned *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->memory != NULL && !leaving_process) {
    Py_BEGIN_ALLOW_THREADS oa_pinned_free(self->device, self->memory, (size_t)self->nbytes);
    Py_END_ALLOW_THREADS
  }
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static int pinned_getbuffer(PyObject *object, Py_buffer *buffer, int flags) {
  Pinned *self = (Pinned *)object;
  return PyBuffer_FillInfo(buffer, object, self->memory, (Py_ssize_t)self->nbytes, 0, flags);
}

static PyType_Slot pinned_slots[] = {
    {Py_bf_getbuffer, pinned_getbuffer},
    {Py_tp_dealloc, pinned_dealloc},
    {Py_tp_doc, "Host memory that a device copies from and to directly; it is freed with its last user."},
    {0, NULL},
};

static PyType_Spec pinned_spec = {
    .name = "offload_args._core.Pinned",
    .basicsize = sizeof(Pinned),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pinned_slots,
};

static PyTypeObject *pinned_type;

/* (device, nbytes) -> a writable buffer. Under memory pressure this function collects garbage and retries once, as
 * entering a region does. */
static PyObject *pinned(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int device, status;
  long long nbytes;
  if (!PyArg_ParseTuple(arguments, "iL", &device, &nbytes)) return NULL;
  Pinned *self = (Pinned *)((allocfunc)PyType_GetSlot(pinned_type, Py_tp_alloc))(pinned_type, 0);
  if (self == NULL) return NULL;
  self->device = device;
  self->nbytes = nbytes;
  Py_BEGIN_ALLOW_THREADS status = oa_pinned_allocate(device, (size_t)nbytes, &self->memory);
  Py_END_ALLOW_THREADS if (status == OA_ERROR_MEMORY) {
    PyObject *collected = PyObject_CallNoArgs(python.collect);
    if (collected != NULL) {
      Py_DECREF(collected);
      Py_BEGIN_ALLOW_THREADS status = oa_pinned_allocate(device, (size_t)nbytes, &self->memory);
      Py_END_ALLOW_THREADS
    }
  }
  if (status != OA_OK && !PyErr_Occurred()) fail(status);
  if (PyErr_Occurred()) Py_CLEAR(self);
  return (PyObject *)self;
}

static PyMethodDef memory_functions[] = {
    {"pinned", pinned, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_memory(PyObject *module) {
  pinned_type = (PyTypeObject *)PyType_FromSpec(&pinned_spec);
  if (pinned_type == NULL) return -1;
  return PyModule_AddFunctions(module, memory_functions);
}
