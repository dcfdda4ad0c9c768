/* Objects that libraries made, such as handles and descriptors. offload_args.objects has their classes. */
#include "function.h"

static PyTypeObject *object_type;

Object *object_from(PyObject *object) { return PyObject_TypeCheck(object, object_type) ? (Object *)object : NULL; }

/* The core's object of a Python object that was collected while a stream was being captured, so that the core's object
 * could not be destroyed. */
typedef struct Left {
  struct Left *next;
  oa_object *handle;
  PyObject *stream; /* the caller's, which the object has; NULL: none */
} Left;
static _Atomic(Left *) left; /* taken as a whole */

static void keep_left(Left *entry) {
  entry->next = atomic_load(&left);
  while (!atomic_compare_exchange_weak(&left, &entry->next, entry)) continue;
}

int objects_are_left(void) { return atomic_load_explicit(&left, memory_order_relaxed) != NULL; }

void destroy_left_objects(void) {
  Left *list = atomic_exchange(&left, NULL);
  while (list != NULL) {
    Left *entry = list;
    int status;
    list = entry->next;
    Py_BEGIN_ALLOW_THREADS status = oa_object_destroy(entry->handle);
    Py_END_ALLOW_THREADS if (status == OA_ERROR_CAPTURE) {
      keep_left(entry);
      continue;
    }
    Py_XDECREF(entry->stream);
    PyMem_Free(entry);
  }
}

Object *object_new(const char *library, const char *kind) {
  if (objects_are_left()) destroy_left_objects();
  PyObject *type = call_in_module("offload_args.objects", "class_of", Py_BuildValue("(ss)", library, kind));
  if (type == NULL) return NULL;
  Object *self = (Object *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
  Py_DECREF(type);
  return self;
}

static int object_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Object *)object)->stream);
  return 0;
}

static int object_clear(PyObject *object) {
  Py_CLEAR(((Object *)object)->stream);
  return 0;
}

static void object_dealloc(PyObject *object) {
  Object *self = (Object *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->handle != NULL && !leaving_process) {
    int status;
    Py_BEGIN_ALLOW_THREADS status = oa_object_destroy(self->handle);
    Py_END_ALLOW_THREADS Left *entry = status == OA_ERROR_CAPTURE ? PyMem_Malloc(sizeof *entry) : NULL;
    if (entry != NULL) { /* without memory it is never destroyed */
      *entry = (Left){.handle = self->handle, .stream = self->stream};
      self->stream = NULL;
      keep_left(entry);
    }
  }
  Py_CLEAR(self->stream);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyType_Slot object_slots[] = {
    {Py_tp_traverse, object_traverse},
    {Py_tp_clear, object_clear},
    {Py_tp_dealloc, object_dealloc},
    {Py_tp_doc, "An object that a vendor's library made; it is destroyed with its last user."},
    {0, NULL},
};

static PyType_Spec object_spec = {
    .name = "offload_args._core.Object",
    .basicsize = sizeof(Object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = object_slots,
};

static Object *as_object(PyObject *object) {
  Object *self = object_from(object);
  if (self == NULL) PyErr_Format(PyExc_TypeError, "needs an object of a library, got %R", object);
  return self;
}

/* (object) -> the vendor's own address */
static PyObject *object_address(PyObject *Py_UNUSED(module), PyObject *argument) {
  const Object *self = as_object(argument);
  oa_object_info info = OA_SIZED(oa_object_info);
  if (self == NULL) return NULL;
  const int status = oa_object_query(self->handle, &info);
  return status == OA_OK ? PyLong_FromVoidPtr(info.native) : fail(status);
}

/* (object) -> the number of its device, or -1 */
static PyObject *object_device(PyObject *Py_UNUSED(module), PyObject *argument) {
  const Object *self = as_object(argument);
  int device = -1;
  if (self == NULL) return NULL;
  const int status = oa_object_names(self->handle, NULL, NULL, &device);
  return status == OA_OK ? PyLong_FromLong(device) : fail(status);
}

/* (object) -> the core's handle of it */
static PyObject *object_handle(PyObject *Py_UNUSED(module), PyObject *argument) {
  const Object *self = as_object(argument);
  return self == NULL ? NULL : PyLong_FromVoidPtr(self->handle);
}

/* (object): destroys it */
static PyObject *object_destroy(PyObject *Py_UNUSED(module), PyObject *argument) {
  const Object *self = as_object(argument);
  int status;
  if (self == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_object_destroy(self->handle);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* (object) -> the caller's own stream of the object, or None */
static PyObject *object_stream(PyObject *Py_UNUSED(module), PyObject *argument) {
  const Object *self = as_object(argument);
  return self == NULL ? NULL : Py_NewRef(self->stream != NULL ? self->stream : Py_None);
}

/* (library) -> the names of the kinds of objects that it makes, as a list */
static PyObject *object_kinds(PyObject *Py_UNUSED(module), PyObject *argument) {
  const oa_object_kind *kinds = NULL;
  int count = 0;
  const char *library = PyUnicode_AsUTF8AndSize(argument, NULL);
  if (library == NULL) return NULL;
  const int status = oa_library_object_kinds(library, &kinds, &count);
  if (status != OA_OK) return fail(status);
  PyObject *names = PyList_New(count);
  for (int i = 0; names != NULL && i < count; i++) PyList_SetItem(names, i, PyUnicode_FromString(kinds[i].name));
  return names;
}

static PyMethodDef object_functions[] = {
    {"object_kinds", object_kinds, METH_O, NULL},
    {"object_address", object_address, METH_O, NULL},
    {"object_device", object_device, METH_O, NULL},
    {"object_handle", object_handle, METH_O, NULL},
    {"object_destroy", object_destroy, METH_O, NULL},
    {"object_stream", object_stream, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_object(PyObject *module) {
  object_type = (PyTypeObject *)PyType_FromSpec(&object_spec);
  if (object_type == NULL || PyModule_AddObjectRef(module, "Object", (PyObject *)object_type) < 0) return -1;
  return PyModule_AddFunctions(module, object_functions);
}
