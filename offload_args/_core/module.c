/* offload_args._core: what is too slow or too delicate in Python.
 *
 * Reads NumPy arrays through __array_struct__ and enters regions with them; makes DevicePtrs; locks and unlocks the arrays
 * that are lent. Entering and leaving are each one C function, so that no signal handler runs between what is taken and
 * the note of it. Names no part of NumPy's C API, and compiles for the stable ABI. */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "numbers.h"
#include "offload_args.h"

/* NumPy's array interface, as its documentation gives it. */
typedef struct {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t *shape;
  Py_intptr_t *strides;
  void *data;
  PyObject *descr;
} ArrayInterface;

enum { ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };

_Static_assert(sizeof(Py_intptr_t) == sizeof(int64_t), "shapes are handed to the core as they are");

/* What Python gives once, in setup(). */
static struct {
  PyObject *ndarray;
  PyObject *base, *flags, *array_struct, *setflags; /* of ndarray: as a subclass may have others, these are asked */
  PyObject *pointer;                                /* DevicePtr */
  PyObject *declared[5];                            /* by oa_direction: NULL, In, Out, InOut, Scratch */
  PyObject *ctypes;                                 /* by oa_dtype: cffi's `oa_f32 *` and so on */
  PyObject *resolve;        /* (argument, position, device) -> ndarray | tuple: what is no plain ndarray */
  PyObject *is_array;       /* (argument) -> whether call() lends it */
  PyObject *refuse;         /* (array, position; 0: of Device.keep): raises DTypeError */
  PyObject *dtype_code;     /* (array) -> oa_dtype or -1: dtypes that NumPy itself does not know */
  PyObject *raise_status;   /* (status): raises */
  PyObject *default_device; /* () -> device number */
  PyObject *packed_warning; /* PerformanceWarning */
  PyObject *unwritten_warning;
  PyObject *entered_error;
  PyObject *collect;  /* gc.collect: PyGC_Collect does nothing where automatic collection is off */
  PyObject *entering; /* while traced: (region) -> (tag, a name for each argument as bytes) */
  PyObject *left;     /* while traced: (tag) */
  PyObject *load;     /* (library's name) -> why it can't be loaded, "" if it is */
  PyObject *argument_error;
} python;

static atomic_int tracing; /* 1: the two are called */

static PyObject *name_owndata, *name_array, *name_as_array, *name_add_note;
static atomic_int default_device = -1;
static atomic_int leaving_process; /* 1 once the interpreter is going: the driver may be gone */

/* cffi's own function for "a cdata of this pointer type": a quarter of the cost of ffi.cast(). Its place in the table is
 * part of the ABI between cffi and every module it generates. */
static PyObject *(*cdata_from_pointer)(char *, PyObject *);

/* Raises what Python makes of a status; returns NULL. */
static PyObject *fail(int status) {
  PyObject *number = PyLong_FromLong(status);
  if (number == NULL) return NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(python.raise_status, number, NULL);
  Py_DECREF(number);
  if (result != NULL) {
    Py_DECREF(result);
    PyErr_SetString(PyExc_SystemError, "offload_args: a failure was not raised");
  }
  return NULL;
}

/* -- DevicePtr's fields --------------------------------------------------------------------------------------------- */
typedef struct {
  PyObject_HEAD PyObject *cd, *shape, *strides, *code, *device;
  oa_any *handle;
  _Atomic(void *) keep; /* an export of the memory: it lives as long as this object */
  int owned;            /* 1: a view, whose slot goes with this object */
} Pointer;

static PyMemberDef pointer_members[] = {
    {"_cd", T_OBJECT_EX, offsetof(Pointer, cd), READONLY, NULL},
    {"_shape", T_OBJECT_EX, offsetof(Pointer, shape), READONLY, NULL},
    {"_strides", T_OBJECT_EX, offsetof(Pointer, strides), READONLY, NULL},
    {"_code", T_OBJECT_EX, offsetof(Pointer, code), READONLY, NULL},
    {"_device", T_OBJECT_EX, offsetof(Pointer, device), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static void pointer_dealloc(PyObject *object) {
  Pointer *self = (Pointer *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (!leaving_process) {
    void *keep = atomic_load(&self->keep);
    if (self->owned) oa_pointer_release(self->handle); /* stale after its region: nothing to do then */
    if (keep != NULL) oa_export_release(keep);
  }
  Py_XDECREF(self->cd);
  Py_XDECREF(self->shape);
  Py_XDECREF(self->strides);
  Py_XDECREF(self->code);
  Py_XDECREF(self->device);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* The buffer protocol is refused as np.asarray() is, with the same advice. */
static int pointer_getbuffer(PyObject *object, Py_buffer *buffer, int Py_UNUSED(flags)) {
  buffer->obj = NULL;
  Py_XDECREF(PyObject_CallMethodObjArgs(object, name_as_array, NULL));
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_BufferError, "DevicePtr: no host memory");
  return -1;
}

static PyType_Slot pointer_slots[] = {
    {Py_bf_getbuffer, pointer_getbuffer},
    {Py_tp_dealloc, pointer_dealloc},
    {Py_tp_members, pointer_members},
    {Py_tp_doc, "The fields of a DevicePtr: a handle, and what it points to."},
    {0, NULL},
};

static PyType_Spec pointer_spec = {
    .name = "offload_args._core.Pointer",
    .basicsize = sizeof(Pointer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pointer_slots,
};

static PyTypeObject *pointer_type;

static PyObject *tuple_of(int count, const int64_t *values) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple != NULL && i < count; i++) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (value == NULL || PyTuple_SetItem(tuple, i, value) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

/* Steals shape and strides, which may be NULL after a failure. */
static PyObject *pointer_new(oa_any *handle, int dtype, int device, PyObject *shape, PyObject *strides, int owned) {
  PyTypeObject *type = (PyTypeObject *)python.pointer;
  Pointer *self = NULL;
  PyObject *ctype = PyTuple_GetItem(python.ctypes, dtype);
  if (shape != NULL && strides != NULL && ctype != NULL)
    self = (Pointer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) {
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    if (owned) oa_pointer_release(handle);
    return NULL;
  }
  self->handle = handle;
  self->owned = owned;
  self->shape = shape;
  self->strides = strides;
  self->cd = cdata_from_pointer((char *)handle, ctype);
  self->code = PyLong_FromLong(dtype);
  self->device = PyLong_FromLong(device);
  if (self->cd == NULL || self->code == NULL || self->device == NULL) Py_CLEAR(self);
  return (PyObject *)self;
}

/* -- arrays that are lent are read-only to the host ------------------------------------------------------------------ */
/* One argument of an open region. */
typedef struct Held {
  PyObject *array, *root;     /* strong: the array and the one that owns its memory */
  PyObject *weak, *weak_root; /* weak: they make ndarray.resize refuse */
  uintptr_t low, high;        /* where the array's bytes are */
  PyObject *owner;            /* borrowed, where something may stay on the device: root, or array if that has none */
  struct Held *next;          /* in its bucket of `locked` */
  struct Held *next_of_owner, **place_of_owner; /* in its bucket of `owners` */
  int counted;                                  /* 1: it is in both */
  int writeable;                                /* 1: the host could write it before it was lent */
  int unaligned;                                /* 1: its elements do not begin at multiples of their size */
  int kept_writeable; /* 1: NumPy would never give the flag back, since the memory's owner can't say that it may be written */
} Held;

/* The arrays made read-only, each as often as it is lent, by address and by the array that owns their memory; and those
 * whose flag NumPy would not give back yet, because what they are views of is still lent. Guarded by a mutex of their own
 * and not by the GIL. It is recursive: collecting garbage while it is held may end a region. */
enum { BUCKETS = 4096 };
static Held *locked[BUCKETS], *owners[BUCKETS];
static PyObject *deferred; /* list */
static pthread_mutex_t locked_mutex;

static void locked_mutex_init(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&locked_mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

static void lock(void) {
  if (pthread_mutex_trylock(&locked_mutex) == 0) return;
  Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&locked_mutex);
  Py_END_ALLOW_THREADS
}

static void unlock(void) { pthread_mutex_unlock(&locked_mutex); }

static PyObject *owner_of(const Held *held) { return held->root != NULL ? held->root : held->array; }

static Held **bucket_of(Held **table, const PyObject *array) { return &table[((uintptr_t)array >> 4) % BUCKETS]; }

/* Whether this very array is lent, and could be written before, or could not. */
static int is_locked(const Held *one, int writeable) {
  for (const Held *held = *bucket_of(locked, one->array); held != NULL; held = held->next)
    if (held->array == one->array && held->writeable == writeable) return 1;
  return 0;
}

static int owner_is_locked(const PyObject *owner) {
  for (const Held *held = *bucket_of(owners, owner); held != NULL; held = held->next_of_owner)
    if (owner_of(held) == owner && held->writeable) return 1;
  return 0;
}

/* Whether all its bytes belong to an array that is lent and that the host could write before, and the host had not made
 * it read-only as far as is known. NumPy names the owner of a view's memory as its base, not the view it was taken of: so
 * the bytes tell. */
static int is_lent(const Held *one) {
  if (is_locked(one, 0)) return 0;
  for (const Held *held = *bucket_of(owners, owner_of(one)); held != NULL; held = held->next_of_owner)
    if (owner_of(held) == owner_of(one) && held->writeable && held->low <= one->low && one->high <= held->high)
      return 1;
  return 0;
}

static void count_in(Held *held) {
  Held **bucket = bucket_of(locked, held->array), **of_owner = bucket_of(owners, owner_of(held));
  held->next = *bucket;
  *bucket = held;
  held->next_of_owner = *of_owner;
  held->place_of_owner = of_owner;
  if (*of_owner != NULL) (*of_owner)->place_of_owner = &held->next_of_owner;
  *of_owner = held;
  held->counted = 1;
}

static void count_out(Held *held) {
  Held **place = bucket_of(locked, held->array);
  while (*place != held) place = &(*place)->next;
  *place = held->next;
  *held->place_of_owner = held->next_of_owner;
  if (held->next_of_owner != NULL) held->next_of_owner->place_of_owner = held->place_of_owner;
  held->counted = 0;
}

/* 0, or -1 with no exception set. */
static int set_writeable(PyObject *array, int writeable) {
  PyObject *result = PyObject_CallFunctionObjArgs(python.setflags, array, writeable ? Py_True : Py_False, NULL);
  Py_XDECREF(result);
  if (result != NULL) return 0;
  PyErr_Clear();
  return -1;
}

static int is_ndarray(PyObject *object) {
  return Py_TYPE(object) == (PyTypeObject *)python.ndarray ||
         PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)python.ndarray);
}

/* What ndarray itself says of an array's attribute. */
static PyObject *attribute(PyObject *array, PyObject *descriptor) {
  descrgetfunc get = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
  return get(descriptor, array, (PyObject *)Py_TYPE(array));
}

/* The last array that a view leads to, NULL if it is no view; *memory: what that has its memory from, None if from itself,
 * or NULL. New references; no exception set. */
static PyObject *root_of(PyObject *array, PyObject **memory) {
  PyObject *root = NULL, *base = attribute(array, python.base);
  while (base != NULL && is_ndarray(base)) {
    Py_XDECREF(root);
    root = base;
    base = attribute(root, python.base);
  }
  if (base == NULL) PyErr_Clear();
  *memory = base;
  return root;
}

static Py_ssize_t deferred_index(PyObject *array) {
  for (Py_ssize_t i = PyList_Size(deferred) - 1; i >= 0; i--)
    if (PyList_GetItem(deferred, i) == array) return i;
  return -1;
}

/* Whether the host could write an array before it was lent; flag: whether it can now. To be asked of all arguments of an
 * enter before the first is held: so a view that the host made read-only is known as such beside its own base. NumPy does
 * not tell one that was made so from one that was taken of an array already lent: beside an array that an outer region
 * lends, a view counts as the latter, unless it was lent with that region or before. */
static int was_writeable(const Held *held, int flag) {
  return flag || is_locked(held, 1) || deferred_index(held->array) >= 0 || is_lent(held);
}

/* Makes the array read-only while it is held; flag: whether the host can write it now. One that is read-only already is
 * noted, if it is lent itself or the host had made it so. */
static void hold(Held *held, int flag) {
  const Py_ssize_t index = flag ? -1 : deferred_index(held->array);
  if (flag ? held->kept_writeable : held->writeable && index < 0 && !is_locked(held, 1)) return;
  if (index >= 0) PyList_SetSlice(deferred, index, index + 1, NULL);
  count_in(held);
  if (flag) set_writeable(held->array, 0);
}

/* Gives back the flags that can be given back now; of an owner that is lent no more, also gives up those that can't: the
 * host has made that read-only itself. */
static void restore_deferred(void) {
  for (Py_ssize_t i = PyList_Size(deferred) - 1; i >= 0; i--) {
    PyObject *array = PyList_GetItem(deferred, i);
    if (array == NULL) { /* the end of one has ended another region, which was here before */
      PyErr_Clear();
      continue;
    }
    Py_INCREF(array);
    PyObject *memory, *root = root_of(array, &memory);
    if (set_writeable(array, 1) == 0 || !owner_is_locked(root != NULL ? root : array))
      PyList_SetSlice(deferred, i, i + 1, NULL);
    Py_XDECREF(root);
    Py_XDECREF(memory);
    Py_DECREF(array);
  }
}

static void release_one(Held *held) {
  Py_XDECREF(held->weak);
  Py_XDECREF(held->weak_root);
  Py_XDECREF(held->root);
  Py_XDECREF(held->array);
}

/* Tells of an exception that can't be raised here; Ctrl-C comes once more, when it can. */
static void report(PyObject *where) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else {
    PyErr_WriteUnraisable(where);
  }
}

/* -- arrays of which something stays on a device --------------------------------------------------------------------- */
/* By id, weak references to them: they tell the core of the end, and make ndarray.resize refuse, so that the memory stays
 * where it is. Their callback is in C, so that no signal handler raises in it. */
static PyObject *watched;

static PyObject *owner_gone(PyObject *key, PyObject *dead) {
  if (leaving_process) Py_RETURN_NONE; /* the driver may be gone */
  void *owner = PyLong_AsVoidPtr(key);
  if (PyDict_GetItemWithError(watched, key) == dead) PyDict_DelItem(watched, key);
  PyErr_Clear();
  Py_BEGIN_ALLOW_THREADS oa_owner_gone(owner); /* fails in a forked child only: nothing is kept there */
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyMethodDef owner_gone_method = {"owner_gone", owner_gone, METH_O, NULL};

/* Has the core told of the end of an owner, if something newly stays of it. Keeps no exception. */
static void watch_owner(PyObject *owner) {
  if (!oa_owner_kept(owner)) return;
  PyObject *key = PyLong_FromVoidPtr(owner), *callback = NULL, *reference = NULL;
  int known = key == NULL ? -1 : PyDict_Contains(watched, key);
  if (known == 0) { /* one that died is there no more */
    callback = PyCFunction_New(&owner_gone_method, key);
    reference = callback == NULL ? NULL : PyWeakref_NewRef(owner, callback);
    known = reference == NULL || PyDict_SetItem(watched, key, reference) < 0 ? -1 : 1;
  }
  Py_XDECREF(reference);
  Py_XDECREF(callback);
  Py_XDECREF(key);
  if (known > 0) return;
  report(owner);
  Py_BEGIN_ALLOW_THREADS oa_owner_gone(owner);
  Py_END_ALLOW_THREADS
}

/* Gives back everything the held arguments took, and the memory itself. Keeps the current exception. */
static void release_held(Held *held, Py_ssize_t count) {
  if (held == NULL) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  lock();
  for (Py_ssize_t i = count - 1; i >= 0; i--) {
    if (!held[i].counted) continue;
    count_out(&held[i]);
    if (!held[i].writeable || is_locked(&held[i], 1) || set_writeable(held[i].array, 1) == 0) continue;
    if (PyList_Append(deferred, held[i].array) < 0) PyErr_Clear();
  }
  if (PyList_Size(deferred) > 0) restore_deferred();
  unlock();
  for (Py_ssize_t i = 0; i < count; i++)
    if (held[i].owner != NULL) watch_owner(held[i].owner);
  for (Py_ssize_t i = 0; i < count; i++) release_one(&held[i]);
  PyMem_Free(held);
  PyErr_Restore(type, value, traceback);
}

/* -- reading arguments ----------------------------------------------------------------------------------------------- */
/* What is needed of one argument until oa_region_enter has returned. */
typedef struct {
  PyObject *source; /* the ndarray or the tuple it was resolved to */
  PyObject *capsule;
  int64_t *dims; /* shape and strides of a tuple */
  int flags;     /* of an ndarray's interface */
} Item;

static void release_item(Item *item) {
  Py_XDECREF(item->capsule);
  Py_XDECREF(item->source);
  PyMem_Free(item->dims);
}

static int dtype_of(char kind, int itemsize) {
  switch (kind << 8 | itemsize) {
#define OA_DTYPE(name, type, nbytes, kind, text) \
  case kind << 8 | nbytes:                       \
    return OA_##name;
#include "offload_args/dtypes.def"
#undef OA_DTYPE
    default:
      return -1;
  }
}

/* Fills array from an ndarray; *flags are the interface's. 1: done, 0: no dtype for devices, -1: an exception. */
static int read_ndarray(Item *item, oa_array *array, int *flags) {
  item->capsule = attribute(item->source, python.array_struct);
  if (item->capsule == NULL) return -1;
  const ArrayInterface *interface = PyCapsule_GetPointer(item->capsule, NULL);
  if (interface == NULL) return -1;
  int dtype = dtype_of(interface->typekind, interface->itemsize);
  if (dtype < 0 && interface->typekind == 'V') {
    PyObject *code = PyObject_CallFunctionObjArgs(python.dtype_code, item->source, NULL);
    if (code == NULL) return -1;
    dtype = (int)PyLong_AsLong(code);
    Py_DECREF(code);
    if (PyErr_Occurred()) return -1;
  }
  if (dtype < 0 || !(interface->flags & ARRAY_NATIVE)) return 0;
  array->data = interface->data;
  array->ndim = interface->nd;
  array->shape = (const int64_t *)interface->shape;
  array->strides = (const int64_t *)interface->strides;
  array->dtype = dtype;
  *flags = interface->flags;
  return 1;
}

/* Where the array's bytes are, gaps included. */
static void find_bytes(Held *held, const oa_array *array) {
  held->low = (uintptr_t)array->data;
  held->high = held->low + (uintptr_t)oa_itemsize(array->dtype);
  for (int i = 0; i < array->ndim; i++) {
    if (array->shape[i] == 0) {
      held->high = held->low;
      return;
    }
    const int64_t reach = (array->shape[i] - 1) * array->strides[i];
    *(reach < 0 ? &held->low : &held->high) += (uintptr_t)reach;
  }
}

static int read_integers(PyObject *tuple, int64_t *values) {
  Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; i++) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (values[i] == -1 && PyErr_Occurred()) return -1;
  }
  return 0;
}

/* Fills array from (dtype, shape, strides, address, flags, device, stream or None), a Scratch or borrowed memory. */
static int read_tuple(Item *item, oa_array *array, int *device, oa_region_options *options) {
  PyObject *shape, *strides, *stream;
  unsigned long long address;
  int found;
  if (!PyArg_ParseTuple(item->source, "iO!O!KiiO", &array->dtype, &PyTuple_Type, &shape, &PyTuple_Type, &strides,
                        &address, &array->flags, &found, &stream))
    return -1;
  array->ndim = (int32_t)PyTuple_Size(shape);
  item->dims = PyMem_Calloc(2 * (size_t)array->ndim + 1, sizeof *item->dims);
  if (item->dims == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (read_integers(shape, item->dims) < 0) return -1;
  if (PyTuple_Size(strides) == array->ndim && read_integers(strides, item->dims + array->ndim) < 0) return -1;
  array->shape = item->dims;
  array->strides = item->dims + array->ndim;
  array->data = (void *)(uintptr_t)address;
  if (*device < 0 && found >= 0) *device = found;
  if (stream != Py_None) {
    options->wait_stream = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred()) return -1;
    options->has_wait_stream = 1;
  }
  return 0;
}

/* Notes who is held: the array, its root and weak references to both. */
static int keep_alive(Held *held, PyObject *array) {
  held->array = Py_NewRef(array);
  held->weak = PyWeakref_NewRef(array, NULL);
  if (held->weak == NULL) return -1;
  PyObject *memory;
  Py_buffer buffer;
  held->root = root_of(array, &memory);
  if (memory != NULL && memory != Py_None) { /* as NumPy does before it sets the flag again */
    held->kept_writeable = PyObject_GetBuffer(memory, &buffer, PyBUF_WRITABLE) < 0;
    if (held->kept_writeable)
      PyErr_Clear();
    else
      PyBuffer_Release(&buffer);
  }
  Py_XDECREF(memory);
  if (held->root == NULL) return 0;
  held->weak_root = PyWeakref_NewRef(held->root, NULL);
  return held->weak_root == NULL ? -1 : 0;
}

/* Names the owner of an array's memory to the core, and whether that has it to itself. -1 with an exception. */
static int name_owner(Held *held, oa_array *array) {
  PyObject *owner = held->root != NULL ? held->root : held->array;
  PyObject *flags = attribute(owner, python.flags);
  PyObject *owns = flags == NULL ? NULL : PyObject_GetAttr(flags, name_owndata);
  Py_XDECREF(flags);
  if (owns == NULL) return -1;
  array->owner = held->owner = owner;
  if (owns == Py_True) array->flags |= OA_OWNED;
  Py_DECREF(owns);
  return 0;
}

/* -- regions ---------------------------------------------------------------------------------------------------------- */
enum { CLOSED, BUSY, OPEN };

typedef struct {
  PyObject_HEAD PyObject *arguments; /* tuple; these change only in a region that is busy, by the one that made it so */
  PyObject *stream;   /* the handle of the caller's own stream as an int, or None; NULL before __init__ */
  PyObject *pointers; /* tuple, while it is open; NULL otherwise */
  int device;         /* its number; -1: where borrowed arguments are, else the default */
  int keep_on_error;
  int resident;   /* 1: device memory of its arrays stays */
  int once;       /* 1: each array is used by one call */
  int stacklevel; /* of warnings; 1: who called __enter__ and __exit__ */
  atomic_int state;
  Py_ssize_t count;
  Held *held;
  oa_region *region;
  long long tag; /* the trace's; 0: not traced */
} Region;

static PyMemberDef region_members[] = {
    {"_arguments", T_OBJECT_EX, offsetof(Region, arguments), READONLY, NULL},
    {"_device", T_INT, offsetof(Region, device), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *region_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords)) {
  Region *self = (Region *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) return NULL;
  self->device = -1;
  self->stacklevel = 1;
  return (PyObject *)self;
}

static int region_traverse(PyObject *object, visitproc visit, void *arg) {
  Region *self = (Region *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->arguments);
  if (atomic_load(&self->state) == OPEN)
    for (Py_ssize_t i = 0; i < self->count; i++) {
      Py_VISIT(self->held[i].array);
      Py_VISIT(self->held[i].root);
    }
  Py_VISIT(self->pointers);
  return 0;
}

static int region_clear(PyObject *object) {
  Py_CLEAR(((Region *)object)->arguments);
  return 0;
}

static int refuse_busy(int state) {
  PyErr_SetString(python.entered_error,
                  state == OPEN ? "offload_args: this region is open already: make another one for the inner block, "
                                  "or close() this one first"
                                : "offload_args: this region is being entered or left, and one of its arguments, or "
                                  "another thread, uses it meanwhile: make another one");
  return -1;
}

/* Makes a closed region busy: until its state is set again, nobody else changes it, whatever code of the user's runs
 * meanwhile (an argument's export, a filter of warnings, a finalizer). -1 with RegionError. */
static int make_busy(Region *self) {
  int state = CLOSED;
  return atomic_compare_exchange_strong(&self->state, &state, BUSY) ? 0 : refuse_busy(state);
}

/* (arguments, device or -1, stream's handle or None, keep on error, resident): what __init__ was given. */
static PyObject *region_prepare(PyObject *object, PyObject *given) {
  Region *self = (Region *)object;
  PyObject *arguments, *stream;
  int device, keep_on_error, resident;
  if (!PyArg_ParseTuple(given, "O!iOpp:_prepare", &PyTuple_Type, &arguments, &device, &stream, &keep_on_error,
                        &resident) ||
      make_busy(self) < 0)
    return NULL;
  PyObject *old_arguments = self->arguments, *old_stream = self->stream;
  self->arguments = Py_NewRef(arguments);
  self->stream = Py_NewRef(stream);
  self->device = device;
  self->keep_on_error = keep_on_error;
  self->resident = resident;
  atomic_store(&self->state, CLOSED);
  Py_XDECREF(old_arguments); /* their end may run any code */
  Py_XDECREF(old_stream);
  Py_RETURN_NONE;
}

/* Tells the trace that the region has ended, or could not be entered. Keeps the current exception; if there is none, one
 * that a signal handler raised meanwhile stays set. */
static void trace_left(Region *self) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *none = PyObject_CallFunction(python.left, "L", self->tag);
  self->tag = 0;
  Py_XDECREF(none);
  if (type == NULL) return;
  if (none == NULL) report(python.left);
  PyErr_Restore(type, value, traceback);
}

/* Asks the trace for the region's tag and its arrays' names, which live as long as what is returned. NULL if a signal
 * handler raised meanwhile. */
static PyObject *trace_entering(Region *self, oa_array *arrays, oa_region_options *options) {
  PyObject *names = NULL, *found = PyObject_CallFunctionObjArgs(python.entering, (PyObject *)self, NULL);
  if (found == NULL || !PyArg_ParseTuple(found, "LO!", &self->tag, &PyTuple_Type, &names)) {
    Py_XDECREF(found);
    return NULL;
  }
  options->tag = self->tag;
  for (Py_ssize_t i = 0; i < self->count && i < PyTuple_Size(names); i++) {
    arrays[i].name = PyBytes_AsString(PyTuple_GetItem(names, i));
    if (arrays[i].name == NULL) PyErr_Clear(); /* "argument 1" it is */
  }
  return found;
}

static PyObject *take_pointers(Region *self) {
  lock();
  PyObject *pointers = self->pointers;
  self->pointers = NULL;
  unlock();
  return pointers;
}

/* Ends the open region; its pointers die, the arrays are released. Returns the first failure's status. */
static int region_end(Region *self, int outcome, int *warnings) {
  int status, waited;
  oa_region *region = self->region;
  Py_BEGIN_ALLOW_THREADS status = oa_region_finish(region, outcome, warnings);
  if (status == OA_OK) {
    status = oa_region_wait(region);
    waited = 1;
  } else {
    waited = 0;
  }
  Py_END_ALLOW_THREADS if (!waited) {
    /* The text of the first failure is the one to tell. */
    fail(status);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_BEGIN_ALLOW_THREADS oa_region_wait(region);
    Py_END_ALLOW_THREADS PyErr_Restore(type, value, traceback);
  }
  else if (status != OA_OK) {
    fail(status);
  }
  Held *held = self->held;
  self->held = NULL;
  self->region = NULL;
  PyObject *pointers = take_pointers(self);
  release_held(held, self->count);
  Py_XDECREF(pointers);
  if (self->tag) trace_left(self);
  atomic_store(&self->state, CLOSED);
  return status;
}

/* A region that was entered and never left: nothing comes down. */
static void region_finalize(PyObject *object) {
  Region *self = (Region *)object;
  int open = OPEN;
  if (leaving_process || !atomic_compare_exchange_strong(&self->state, &open, BUSY)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int status = region_end(self, OA_DISCARD, NULL);
  if (status == OA_ERROR_FORKED) PyErr_Clear();   /* the parent's region */
  PyObject *its_type, *its_value, *its_traceback; /* of its end */
  PyErr_Fetch(&its_type, &its_value, &its_traceback);
  if (status == OA_OK &&
      PyErr_WarnEx(PyExc_ResourceWarning,
                   "offload_args: a region was never left; what it wrote is lost: use `with`, or close()", 1) < 0)
    report(NULL);
  PyErr_Restore(its_type, its_value, its_traceback);
  if (PyErr_Occurred()) report(NULL);
  PyErr_Restore(type, value, traceback);
}

static void region_dealloc(PyObject *object) {
  Region *self = (Region *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  region_finalize(object);
  Py_XDECREF(self->arguments);
  Py_XDECREF(self->stream);
  Py_XDECREF(self->pointers);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

enum { FEW = 8 };

/* What an argument asks for: an ndarray or a tuple in item->source, and its direction. */
static int resolve_argument(PyObject *argument, Py_ssize_t index, int device, Item *item, oa_array *array) {
  PyObject *type = (PyObject *)Py_TYPE(argument);
  for (int direction = OA_IN; direction <= OA_SCRATCH; direction++)
    if (type == python.declared[direction]) array->direction = direction;
  if (type == python.ndarray) {
    item->source = Py_NewRef(argument);
    return 0;
  }
  if (array->direction >= OA_IN && array->direction <= OA_INOUT) {
    item->source = PyObject_GetAttr(argument, name_array);
    if (item->source == NULL) return -1;
    if (Py_TYPE(item->source) == (PyTypeObject *)python.ndarray) return 0;
    Py_CLEAR(item->source);
  }
  item->source = PyObject_CallFunction(python.resolve, "Oni", argument, index + 1, device);
  return item->source == NULL ? -1 : 0;
}

/* Reads and holds every argument. On failure the exception is set; the caller releases items and held alike. */
static int read_arguments(Region *self, Item *items, oa_array *arrays, Held *held, int *device,
                          oa_region_options *options) {
  Py_ssize_t count = self->count;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (resolve_argument(PyTuple_GetItem(self->arguments, i), i, *device, &items[i], &arrays[i]) < 0) return -1;
    if (PyTuple_Check(items[i].source)) {
      if (read_tuple(&items[i], &arrays[i], device, options) < 0) return -1;
    } else if (keep_alive(&held[i], items[i].source) < 0) {
      return -1;
    }
  }
  Py_ssize_t refused = -1;
  int result = 1;
  lock(); /* all flags are read, and cleared, as one step */
  for (Py_ssize_t i = 0; i < count && result > 0; i++) {
    if (held[i].array == NULL) continue;
    result = read_ndarray(&items[i], &arrays[i], &items[i].flags);
    if (result == 0) refused = i;
    if (result <= 0) break;
    find_bytes(&held[i], &arrays[i]);
    held[i].unaligned = !(items[i].flags & ARRAY_ALIGNED);
    held[i].writeable = was_writeable(&held[i], items[i].flags & ARRAY_WRITEABLE);
    if (!held[i].writeable) arrays[i].flags |= OA_READ_ONLY;
  }
  for (Py_ssize_t i = 0; i < count && result > 0; i++)
    if (held[i].array != NULL) hold(&held[i], items[i].flags & ARRAY_WRITEABLE);
  unlock();
  if (refused >= 0) {
    PyObject *none = PyObject_CallFunction(python.refuse, "On", items[refused].source, refused + 1);
    Py_XDECREF(none);
    if (none != NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a dtype was neither taken nor refused");
  }
  return result > 0 ? 0 : -1;
}

/* The default device, where nothing else says which. */
static int find_device(int *device) {
  if (*device >= 0) return 0;
  *device = atomic_load(&default_device);
  if (*device >= 0) return 0;
  PyObject *number = PyObject_CallNoArgs(python.default_device);
  if (number == NULL) return -1;
  *device = (int)PyLong_AsLong(number);
  Py_DECREF(number);
  if (PyErr_Occurred()) return -1;
  atomic_store(&default_device, *device);
  return 0;
}

/* The strides of a C-order array with no gaps. */
static PyObject *packed_strides(const oa_array *array) {
  int64_t strides[64], stride = oa_itemsize(array->dtype);
  for (int i = array->ndim - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= array->shape[i] > 1 ? array->shape[i] : 1;
  }
  return tuple_of(array->ndim, strides);
}

/* Warns of an array that does not travel as it lies. -1 with an exception. */
static int warn_packed(const Region *self, const oa_array *array, const Held *held, Py_ssize_t position) {
  if (held->unaligned && held->low < held->high)
    return PyErr_WarnFormat(python.packed_warning, self->stacklevel,
                            "offload_args: argument %zd is not aligned to its items of %lld bytes: it is packed into "
                            "aligned memory on its way; lend an aligned copy, such as x.copy(), to avoid that",
                            position, (long long)oa_itemsize(array->dtype));
  if (array->packed && array->direction != OA_SCRATCH)
    return PyErr_WarnFormat(python.packed_warning, self->stacklevel,
                            "offload_args: argument %zd is strided in a way that devices' libraries can't take: it is "
                            "packed on its way; lend a contiguous array to avoid that",
                            position);
  return 0;
}

/* The tuple that `as` binds; warns of what was packed. */
static PyObject *make_pointers(Region *self, const oa_array *arrays, const Held *held, int device) {
  PyObject *pointers = PyTuple_New(self->count);
  for (Py_ssize_t i = 0; pointers != NULL && i < self->count; i++) {
    const oa_array *array = &arrays[i];
    int packed = array->packed || array->direction == OA_SCRATCH;
    PyObject *strides = packed ? packed_strides(array) : tuple_of(array->ndim, array->strides);
    PyObject *pointer =
        pointer_new(array->handle, array->dtype, device, tuple_of(array->ndim, array->shape), strides, 0);
    if (pointer == NULL || PyTuple_SetItem(pointers, i, pointer) < 0) Py_CLEAR(pointers);
  }
  for (Py_ssize_t i = 0; pointers != NULL && i < self->count; i++) /* once the tuple is whole: others may see it then */
    if (warn_packed(self, &arrays[i], &held[i], i + 1) < 0) Py_CLEAR(pointers);
  return pointers;
}

/* Enters the region in the core; for want of memory once more, without what garbage holds: regions that were never left
 * and exports, in reference cycles. Device memory is allocated here, and for scalars that are staged (library.py, as pinned
 * memory is); nothing is allocated when arrays are first used. -1 with an exception. */
static int enter_core(Region *self, int device, const oa_region_options *options, oa_array *arrays) {
  const int count = (int)self->count;
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_region_enter(device, options, arrays, count, &self->region);
  Py_END_ALLOW_THREADS if (status == OA_ERROR_MEMORY) {
    PyObject *collected = PyObject_CallNoArgs(python.collect);
    if (collected == NULL) return -1;
    Py_DECREF(collected);
    Py_BEGIN_ALLOW_THREADS status = oa_region_enter(device, options, arrays, count, &self->region);
    Py_END_ALLOW_THREADS
  }
  if (status != OA_OK) fail(status);
  return status == OA_OK ? 0 : -1;
}

static PyObject *region_enter_open(Region *self) {
  Item few_items[FEW], *items = few_items;
  oa_array few_arrays[FEW], *arrays = few_arrays;
  oa_region_options options = {.once = self->once};
  PyObject *pointers = NULL, *names = NULL;
  int device = self->device, entered = 0;
  if (self->arguments == NULL) {
    PyErr_SetString(python.entered_error, "offload_args: this region was never initialised: call its __init__ first");
    return NULL;
  }
  self->count = PyTuple_Size(self->arguments);
  size_t count = (size_t)self->count;
  if (count > FEW) {
    items = PyMem_Malloc(count * sizeof *items);
    arrays = PyMem_Malloc(count * sizeof *arrays);
  }
  Held *held = PyMem_Calloc(count + 1, sizeof *held);
  if (items == NULL || arrays == NULL || held == NULL) {
    PyErr_NoMemory();
    count = 0;
    goto done;
  }
  memset(items, 0, count * sizeof *items);
  memset(arrays, 0, count * sizeof *arrays);
  if (self->stream != NULL && self->stream != Py_None) {
    options.stream = PyLong_AsVoidPtr(self->stream);
    if (PyErr_Occurred()) goto done;
    options.has_stream = 1;
  }
  if (__builtin_expect(atomic_load_explicit(&tracing, memory_order_relaxed), 0) &&
      (names = trace_entering(self, arrays, &options)) == NULL)
    goto done;
  if (read_arguments(self, items, arrays, held, &device, &options) < 0 || find_device(&device) < 0) goto done;
  if (self->resident || oa_residency_current() == OA_RESIDENCY_AUTO)
    for (size_t i = 0; i < count; i++) {
      if (held[i].array == NULL) continue;
      if (self->resident) arrays[i].flags |= OA_RESIDENT;
      if (name_owner(&held[i], &arrays[i]) < 0) goto done;
    }
  if (enter_core(self, device, &options, arrays) < 0) goto done;
  entered = 1;
  pointers = make_pointers(self, arrays, held, device);

done:
  Py_XDECREF(names);
  for (size_t i = 0; i < count; i++) release_item(&items[i]);
  if (items != few_items) PyMem_Free(items);
  if (arrays != few_arrays) PyMem_Free(arrays);
  if (pointers != NULL) {
    self->held = held;
    self->pointers = Py_NewRef(pointers);
    return pointers;
  }
  if (entered) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_BEGIN_ALLOW_THREADS oa_region_finish(self->region, OA_DISCARD, NULL);
    oa_region_wait(self->region);
    Py_END_ALLOW_THREADS PyErr_Restore(type, value, traceback);
    self->region = NULL;
  }
  release_held(held, held == NULL ? 0 : self->count);
  if (self->tag) trace_left(self);
  return NULL;
}

static PyObject *region_enter(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  if (make_busy(self) < 0) return NULL;
  PyObject *pointers = region_enter_open(self);
  atomic_store(&self->state, pointers != NULL ? OPEN : CLOSED);
  return pointers;
}

/* Puts the current exception on that of the body as a note. */
static void add_note(PyObject *body) {
  PyObject *type, *value, *traceback;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    report(body);
    return;
  }
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *name = type == NULL ? NULL : PyObject_GetAttrString(type, "__name__");
  PyObject *note = name == NULL ? NULL : PyUnicode_FromFormat("leaving the region failed too: %U: %S", name, value);
  PyObject *none = note == NULL ? NULL : PyObject_CallMethodObjArgs(body, name_add_note, note, NULL);
  PyErr_Clear();
  Py_XDECREF(none);
  Py_XDECREF(note);
  Py_XDECREF(name);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

/* Puts on the body's exception which results are lost. Keeps the current exception. */
static void note_discarded(PyObject *body) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *note = PyUnicode_FromFormat("offload_args: %s", oa_last_warning());
  PyObject *none = note == NULL ? NULL : PyObject_CallMethodObjArgs(body, name_add_note, note, NULL);
  if (none == NULL) PyErr_Clear();
  Py_XDECREF(none);
  Py_XDECREF(note);
  PyErr_Restore(type, value, traceback);
}

/* Leaves the region, if it is open; body: the exception that its body raised, or NULL. -1 with an exception. */
static int leave(Region *self, PyObject *body) {
  int state = OPEN, warnings = 0;
  if (!atomic_compare_exchange_strong(&self->state, &state, BUSY))
    return state == CLOSED ? 0 : refuse_busy(state); /* closed: it was left before */
  int status = region_end(self, body == NULL ? OA_COMMIT : self->keep_on_error ? OA_KEEP : OA_DISCARD, &warnings);
  if (body != NULL && warnings > 0) note_discarded(body);
  if (status != OA_OK) {
    if (body == NULL) return -1;
    add_note(body);
  } else if (PyErr_Occurred()) { /* a signal handler's, while the trace was told */
    return -1;
  } else if (warnings > 0 && body == NULL &&
             PyErr_WarnEx(python.unwritten_warning, oa_last_warning(), self->stacklevel) < 0) {
    return -1;
  }
  const char *warning = body != NULL ? NULL : oa_take_warning();
  return warning != NULL ? PyErr_WarnEx(python.packed_warning, warning, self->stacklevel) : 0;
}

static PyObject *region_exit(PyObject *object, PyObject *arguments) {
  PyObject *type, *body, *traceback;
  if (!PyArg_ParseTuple(arguments, "OOO:__exit__", &type, &body, &traceback)) return NULL;
  if (leave((Region *)object, type == Py_None ? NULL : body) < 0) return NULL;
  Py_RETURN_FALSE;
}

static PyObject *region_close(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  if (leave((Region *)object, NULL) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *region_discard(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  int open = OPEN;
  if (!atomic_compare_exchange_strong(&self->state, &open, BUSY)) Py_RETURN_NONE;
  if (region_end(self, OA_DISCARD, NULL) != OA_OK || PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

/* () -> the pointers that it gave, None unless it is open */
static PyObject *region_pointers(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  lock();
  PyObject *pointers = Py_NewRef(self->pointers != NULL ? self->pointers : Py_None);
  unlock();
  return pointers;
}

/* () -> the handle of the stream that its calls go to */
static PyObject *region_stream(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  void *stream = NULL;
  if (atomic_load(&self->state) == OPEN && oa_region_stream(self->region, &stream) == OA_OK)
    return PyLong_FromVoidPtr(stream);
  PyErr_SetString(python.entered_error, "offload_args.stream: the region is not open; enter it first");
  return NULL;
}

/* Appends what call() lends to the list. */
static int note_lent(PyObject *lent, PyObject *argument) {
  if (PyFloat_CheckExact(argument) || PyLong_CheckExact(argument)) return 0;
  if (Py_TYPE(argument) == (PyTypeObject *)python.ndarray) return PyList_Append(lent, argument);
  PyObject *answer = PyObject_CallFunctionObjArgs(python.is_array, argument, NULL);
  Py_XDECREF(answer);
  return answer == NULL ? -1 : answer == Py_True ? PyList_Append(lent, argument) : 0;
}

/* Leaves the region after a call that raised; its exception stays, or is the context of another. */
static void leave_raising(Region *self) {
  PyObject *type, *body, *traceback;
  PyErr_Fetch(&type, &body, &traceback);
  PyErr_NormalizeException(&type, &body, &traceback);
  if (traceback != NULL) PyException_SetTraceback(body, traceback);
  if (leave(self, body) == 0) {
    PyErr_Restore(type, body, traceback);
    return;
  }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  PyObject *newer;
  PyErr_Fetch(&type, &newer, &traceback);
  PyErr_NormalizeException(&type, &newer, &traceback);
  PyException_SetContext(newer, body);
  PyErr_Restore(type, newer, traceback);
}

/* What of a call's arguments is lent, as a tuple; NULL with an exception. */
static PyObject *find_lent(PyObject *arguments, PyObject *keywords) {
  PyObject *name, *value, *lent = PyList_New(0), *found = NULL;
  int failed = lent == NULL;
  Py_ssize_t count = PyTuple_Size(arguments), at = 0;
  for (Py_ssize_t i = 0; i < count && !failed; i++) failed = note_lent(lent, PyTuple_GetItem(arguments, i)) < 0;
  while (!failed && PyDict_Next(keywords, &at, &name, &value)) failed = note_lent(lent, value) < 0;
  if (!failed) found = PyList_AsTuple(lent);
  Py_XDECREF(lent);
  return found;
}

/* Calls the function with pointers in place of what is lent; keywords are changed. */
static PyObject *call_with(PyObject *function, PyObject *arguments, PyObject *keywords, PyObject *lent,
                           PyObject *pointers) {
  const Py_ssize_t count = PyTuple_Size(arguments), lent_count = PyTuple_Size(lent);
  Py_ssize_t at = 0, next = 0;
  PyObject *name, *value, *result = NULL, *passed = PyTuple_New(count); /* filled at once: others see it whole only */
  int failed = passed == NULL;
  for (Py_ssize_t i = 0; i < count && !failed; i++) {
    PyObject *one = PyTuple_GetItem(arguments, i);
    if (next < lent_count && one == PyTuple_GetItem(lent, next)) one = PyTuple_GetItem(pointers, next++);
    PyTuple_SetItem(passed, i, Py_NewRef(one));
  }
  while (!failed && PyDict_Next(keywords, &at, &name, &value))
    if (next < lent_count && value == PyTuple_GetItem(lent, next))
      failed = PyDict_SetItem(keywords, name, PyTuple_GetItem(pointers, next++)) < 0;
  if (!failed) result = PyObject_Call(function, passed, keywords);
  Py_XDECREF(passed);
  return result;
}

/* offload_args.call: enters the region with the arrays among the arguments, calls with their pointers, leaves. */
static PyObject *region_call(PyObject *object, PyObject *given) {
  Region *self = (Region *)object;
  PyObject *function, *arguments, *keywords, *pointers = NULL, *result = NULL, *old = NULL;
  if (!PyArg_ParseTuple(given, "OO!O!:_call", &function, &PyTuple_Type, &arguments, &PyDict_Type, &keywords) ||
      (keywords = PyDict_Copy(keywords)) == NULL) /* others may change the caller's */
    return NULL;
  if (make_busy(self) < 0) {
    Py_DECREF(keywords);
    return NULL;
  }
  PyObject *lent = find_lent(arguments, keywords);
  if (lent != NULL) {
    old = self->arguments;
    self->arguments = Py_NewRef(lent);
    self->once = 1;
    self->stacklevel = 2;
    pointers = region_enter_open(self);
  }
  atomic_store(&self->state, pointers != NULL ? OPEN : CLOSED);
  if (pointers != NULL) {
    result = call_with(function, arguments, keywords, lent, pointers);
    if (result == NULL)
      leave_raising(self);
    else if (leave(self, NULL) < 0)
      Py_CLEAR(result);
  }
  Py_XDECREF(old);
  Py_XDECREF(lent);
  Py_XDECREF(pointers);
  Py_DECREF(keywords);
  return result;
}

static PyMethodDef region_methods[] = {
    {"__enter__", region_enter, METH_NOARGS,
     "Enter the region: a tuple of one DevicePtr an argument; nothing moves yet."},
    {"__exit__", region_exit, METH_VARARGS, "Leave it: what was written comes down, unless the body raised."},
    {"open", region_enter, METH_NOARGS,
     "Enter the region, as `with` does: return a tuple of one DevicePtr an argument.\n\n"
     "For what no block encloses, such as the cells of a notebook; close() or discard() ends it. One that is collected "
     "open is discarded with a ResourceWarning.\n\n"
     "Raises RegionError if it is open already, and what entering raises."},
    {"close", region_close, METH_NOARGS,
     "Leave the region as the end of a `with` block does: what was written comes down, its pointers die.\n\n"
     "A region that is not open is left alone; one that was closed may be opened again. Raises and warns what leaving "
     "does."},
    {"discard", region_discard, METH_NOARGS,
     "Leave the region as a `with` block does that raises: nothing comes down, its pointers die.\n\n"
     "A region that is not open is left alone. `on_error` does not count. Raises what the device does."},
    {"_pointers", region_pointers, METH_NOARGS, NULL},
    {"_calls_to", region_stream, METH_NOARGS, NULL},
    {"_call", region_call, METH_VARARGS, NULL},
    {"_prepare", region_prepare, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot region_slots[] = {
    {Py_tp_new, region_new},
    {Py_tp_dealloc, region_dealloc},
    {Py_tp_finalize, region_finalize},
    {Py_tp_traverse, region_traverse},
    {Py_tp_clear, region_clear},
    {Py_tp_members, region_members},
    {Py_tp_methods, region_methods},
    {Py_tp_doc, "What offload_args is made of: one region of the core and the arrays it holds."},
    {0, NULL},
};

static PyType_Spec region_spec = {
    .name = "offload_args._core.Region",
    .basicsize = sizeof(Region),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = region_slots,
};

/* -- functions on pointers -------------------------------------------------------------------------------------------- */
static Pointer *as_pointer(PyObject *object) {
  if (PyObject_TypeCheck(object, pointer_type)) return (Pointer *)object;
  PyErr_SetString(PyExc_TypeError, "offload_args: not a DevicePtr");
  return NULL;
}

/* (pointer, offset, shape, strides) -> DevicePtr with bounds of its own; offset and strides in bytes. */
static PyObject *view(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object, *shape, *strides;
  long long offset;
  int64_t dims[128];
  if (!PyArg_ParseTuple(arguments, "OLO!O!", &object, &offset, &PyTuple_Type, &shape, &PyTuple_Type, &strides))
    return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  int ndim = (int)PyTuple_Size(shape);
  if (ndim > 64 || PyTuple_Size(strides) != ndim) {
    PyErr_SetString(python.argument_error, "DevicePtr: a pointer has at most 64 dimensions, with a stride each");
    return NULL;
  }
  if (read_integers(shape, dims) < 0 || read_integers(strides, dims + 64) < 0) return NULL;
  oa_any *handle = NULL;
  int status = oa_pointer_view(pointer->handle, offset, ndim, dims, dims + 64, &handle);
  if (status != OA_OK) return fail(status);
  return pointer_new(handle, (int)PyLong_AsLong(pointer->code), (int)PyLong_AsLong(pointer->device), Py_NewRef(shape),
                     Py_NewRef(strides), 1);
}

static PyObject *alive(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  oa_pointer_info info;
  if (pointer == NULL) return NULL;
  return PyBool_FromLong(oa_pointer_query(pointer->handle, &info) == OA_OK);
}

/* (pointer) -> (readable, writable, borrowed, escaped, nbytes, scratch, valid, written) */
static PyObject *query(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  oa_pointer_info info;
  if (pointer == NULL) return NULL;
  int status = oa_pointer_query(pointer->handle, &info);
  if (status != OA_OK) return fail(status);
  return Py_BuildValue("NNNNLNNN", PyBool_FromLong(info.readable), PyBool_FromLong(info.writable),
                       PyBool_FromLong(info.borrowed), PyBool_FromLong(info.escaped), (long long)info.nbytes,
                       PyBool_FromLong(info.scratch), PyBool_FromLong(info.valid), PyBool_FromLong(info.written));
}

static PyObject *address(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  uint64_t value = 0;
  int status;
  if (pointer == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_address(pointer->handle, &value);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromUnsignedLongLong(value) : fail(status);
}

static int export_memory(Pointer *pointer, uint64_t *value, void **keep) {
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_export(pointer->handle, value, keep);
  Py_END_ALLOW_THREADS return status;
}

/* (pointer) -> address of memory that lives at least as long as the DevicePtr */
static PyObject *export(PyObject *Py_UNUSED(module), PyObject *object) {
  Pointer *pointer = as_pointer(object);
  uint64_t value = 0;
  void *keep = NULL, *none = NULL;
  if (pointer == NULL) return NULL;
  int status = export_memory(pointer, &value, &keep);
  if (status != OA_OK) return fail(status);
  if (!atomic_compare_exchange_strong(&pointer->keep, &none, keep)) oa_export_release(keep); /* it has one already */
  return PyLong_FromUnsignedLongLong(value);
}

/* (pointer, array): array has the pointer's dtype and shape, in C order. */
static PyObject *assign(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  int flags, status;
  int64_t strides[64];
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0 || read_integers(pointer->strides, strides) < 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no values that a device can hold");
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = oa_pointer_assign(pointer->handle, array.data, array.ndim, array.shape, strides);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* The shape and strides of a pointer; -1 with an exception. */
static int read_dims(const Pointer *pointer, int64_t *shape, int64_t *strides) {
  return read_integers(pointer->shape, shape) < 0 || read_integers(pointer->strides, strides) < 0 ? -1 : 0;
}

/* (pointer, array): what fill and read have in common; array has the pointer's dtype. It is looked at or written. */
static PyObject *with_array(PyObject *arguments,
                            int (*function)(const Pointer *, void *, int, const int64_t *, const int64_t *)) {
  PyObject *object;
  Item item = {0};
  oa_array array = {0};
  int flags, status;
  int64_t shape[64], strides[64];
  if (!PyArg_ParseTuple(arguments, "OO!", &object, python.ndarray, &item.source)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  Py_INCREF(item.source);
  if (read_ndarray(&item, &array, &flags) <= 0 || read_dims(pointer, shape, strides) < 0) {
    release_item(&item);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: no array that a device can hold");
    return NULL;
  }
  const int ndim = (int)PyTuple_Size(pointer->shape);
  Py_BEGIN_ALLOW_THREADS status = function(pointer, array.data, ndim, shape, strides);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static int fill_with(const Pointer *pointer, void *value, int ndim, const int64_t *shape, const int64_t *strides) {
  return oa_pointer_fill(pointer->handle, value, ndim, shape, strides);
}

static int read_to(const Pointer *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  return oa_pointer_read(pointer->handle, values, ndim, shape, strides);
}

static PyObject *pointer_fill(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return with_array(arguments, fill_with);
}
static PyObject *pointer_read(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return with_array(arguments, read_to);
}

/* (pointer, source): both have the same shape. */
static PyObject *pointer_copy(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object, *from;
  int status;
  int64_t shape[64], strides[64], source_strides[64];
  if (!PyArg_ParseTuple(arguments, "OO", &object, &from)) return NULL;
  Pointer *pointer = as_pointer(object), *source = pointer == NULL ? NULL : as_pointer(from);
  if (source == NULL || read_dims(pointer, shape, strides) < 0 || read_dims(source, shape, source_strides) < 0)
    return NULL;
  const int ndim = (int)PyTuple_Size(pointer->shape);
  Py_BEGIN_ALLOW_THREADS status =
      oa_pointer_copy(pointer->handle, strides, source->handle, source_strides, ndim, shape);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

/* -- DLPack: the structures of its specification, versions 0 and 1 ------------------------------------------------------ */
typedef struct {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides; /* in elements */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManaged {
  DLTensor tensor;
  void *owner;
  void (*deleter)(struct DLManaged *);
} DLManaged;

typedef struct DLManagedVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *owner;
  void (*deleter)(struct DLManagedVersioned *);
  uint64_t flags;
  DLTensor tensor;
} DLManagedVersioned;

/* What both point to as their owner. */
typedef struct {
  void *keep;
  union {
    DLManaged managed;
    DLManagedVersioned versioned;
  } as;
  int64_t dims[];
} Shared;

/* May run on any thread, without the GIL. */
static void shared_release(Shared *shared) {
  if (!leaving_process) oa_export_release(shared->keep);
  free(shared);
}
static void managed_delete(DLManaged *managed) { shared_release(managed->owner); }
static void versioned_delete(DLManagedVersioned *managed) { shared_release(managed->owner); }

/* A capsule that nobody consumed still owns its share; a consumed one has another name. */
static void capsule_delete(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor"))
    managed_delete(PyCapsule_GetPointer(capsule, "dltensor"));
  else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    versioned_delete(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

/* (pointer, versioned, read_only, device type, device id, type code, bits) -> capsule */
static PyObject *dlpack(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *object;
  int versioned, read_only, type, id, code, bits;
  if (!PyArg_ParseTuple(arguments, "Oppiiii", &object, &versioned, &read_only, &type, &id, &code, &bits)) return NULL;
  Pointer *pointer = as_pointer(object);
  if (pointer == NULL) return NULL;
  int ndim = (int)PyTuple_Size(pointer->shape);
  int64_t itemsize = oa_itemsize((int)PyLong_AsLong(pointer->code));
  Shared *shared = calloc(1, sizeof *shared + 2 * (size_t)ndim * sizeof *shared->dims);
  if (shared == NULL) return PyErr_NoMemory();
  uint64_t value = 0;
  if (read_integers(pointer->shape, shared->dims) < 0 || read_integers(pointer->strides, shared->dims + ndim) < 0) {
    free(shared);
    return NULL;
  }
  for (int i = 0; i < ndim; i++) shared->dims[ndim + i] /= itemsize;
  int status = export_memory(pointer, &value, &shared->keep);
  if (status != OA_OK) {
    free(shared);
    return fail(status);
  }
  DLTensor *tensor = versioned ? &shared->as.versioned.tensor : &shared->as.managed.tensor;
  tensor->data = (void *)(uintptr_t)value;
  tensor->device.type = type;
  tensor->device.id = id;
  tensor->ndim = ndim;
  tensor->dtype.code = (uint8_t)code;
  tensor->dtype.bits = (uint8_t)bits;
  tensor->dtype.lanes = 1;
  tensor->shape = shared->dims;
  tensor->strides = shared->dims + ndim;
  void *managed = &shared->as;
  if (versioned) {
    shared->as.versioned.version.major = 1;
    shared->as.versioned.flags = read_only ? 1 : 0;
    shared->as.versioned.owner = shared;
    shared->as.versioned.deleter = versioned_delete;
  } else {
    shared->as.managed.owner = shared;
    shared->as.managed.deleter = managed_delete;
  }
  PyObject *capsule = PyCapsule_New(managed, versioned ? "dltensor_versioned" : "dltensor", capsule_delete);
  if (capsule == NULL) shared_release(shared);
  return capsule;
}

/* -- functions on arrays ---------------------------------------------------------------------------------------------- */
static PyObject *update(PyObject *arguments, int (*function)(const oa_array *, int)) {
  Item item = {0};
  oa_array array = {.name = "the array"};
  int flags, device, status;
  if (!PyArg_ParseTuple(arguments, "O!i", python.ndarray, &item.source, &device)) return NULL;
  Py_INCREF(item.source);
  int result = read_ndarray(&item, &array, &flags);
  if (result <= 0) {
    if (result == 0) PyErr_SetString(PyExc_TypeError, "offload_args.update: an array of this dtype is on no device");
    release_item(&item);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS status = function(&array, device);
  Py_END_ALLOW_THREADS release_item(&item);
  if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *update_from(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return update(arguments, oa_update_from);
}
static PyObject *update_to(PyObject *Py_UNUSED(module), PyObject *arguments) { return update(arguments, oa_update_to); }
static PyObject *update_check(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return update(arguments, oa_update_check);
}

/* (array) -> bool: it is an array that is lent, or a part of one */
static PyObject *lent_array(PyObject *Py_UNUSED(module), PyObject *array) {
  Held one = {0};
  Item item = {.source = Py_NewRef(array)};
  oa_array read = {0};
  int flags, result = keep_alive(&one, array) < 0 ? -1 : read_ndarray(&item, &read, &flags);
  if (result > 0) {
    find_bytes(&one, &read);
    lock();
    result = is_lent(&one);
    unlock();
  }
  release_item(&item);
  release_one(&one);
  return result < 0 ? NULL : PyBool_FromLong(result);
}

/* (array, device): what is said of the array once it is read, for functions that need its owner too. */
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
    Py_XDECREF(PyObject_CallFunction(python.refuse, "On", item.source, (Py_ssize_t)0));
  if (result > 0) {
    Py_BEGIN_ALLOW_THREADS status = function(&array, device);
    Py_END_ALLOW_THREADS watch_owner(held.owner);
  }
  release_one(&held);
  release_item(&item);
  if (status != OA_OK) return fail(status);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE; /* what can't be lent is not kept */
}

static PyObject *keep(PyObject *Py_UNUSED(module), PyObject *arguments) { return reside(arguments, oa_keep); }
static PyObject *release(PyObject *Py_UNUSED(module), PyObject *arguments) { return reside(arguments, oa_release); }

/* -- libraries -------------------------------------------------------------------------------------------------------- */
/* What was raised where the core had called back: raised on the same thread by what reports the failed call. */
static _Thread_local PyObject *postponed;

static PyObject *take_postponed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  PyObject *error = postponed;
  postponed = NULL;
  return error != NULL ? error : Py_NewRef(Py_None);
}

/* Puts the current exception aside, if it is none of Exception, such as Ctrl-C; else *text becomes what it says. */
static void postpone_exception(char *text, size_t size) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    PyObject *said = name == NULL ? NULL : PyUnicode_FromFormat("looking for it failed: %U: %S", name, value);
    const char *utf8 = said == NULL ? NULL : PyUnicode_AsUTF8AndSize(said, NULL);
    snprintf(text, size, "%s", utf8 != NULL ? utf8 : "looking for it failed");
    Py_XDECREF(said);
    Py_XDECREF(name);
    Py_XDECREF(value);
  } else {
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    Py_XDECREF(postponed);
    postponed = value;
    snprintf(text, size, "looking for it was interrupted");
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(traceback);
}

/* What the core calls when a library is first needed: an oa_library_loader. In C, so that whatever is raised anywhere in
 * the search is caught here. */
static int load_library(const char *name, char *text, size_t size) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *failure = PyObject_CallFunction(python.load, "s", name);
  const char *said = failure == NULL ? NULL : PyUnicode_AsUTF8AndSize(failure, NULL);
  if (said == NULL)
    postpone_exception(text, size);
  else
    snprintf(text, size, "%s", said);
  Py_XDECREF(failure);
  PyGILState_Release(state);
  return text[0] == '\0' ? OA_OK : OA_ERROR_LIBRARY;
}

/* -- pinned memory ---------------------------------------------------------------------------------------------------- */
/* A buffer that frees itself: with no code of Python's, in which a signal handler might raise. */
typedef struct {
  PyObject_HEAD int device;
  void *memory;
  int64_t nbytes;
} Pinned;

static void pinned_dealloc(PyObject *object) {
  Pinned *self = (Pinned *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->memory != NULL && !leaving_process) {
    Py_BEGIN_ALLOW_THREADS oa_pinned_release(self->device, self->memory, (size_t)self->nbytes);
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
    {Py_tp_doc, "Host memory that a device copies from and to directly, freed with its last user."},
    {0, NULL},
};

static PyType_Spec pinned_spec = {
    .name = "offload_args._core.Pinned",
    .basicsize = sizeof(Pinned),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pinned_slots,
};

static PyTypeObject *pinned_type;

/* (device, nbytes) -> a writable buffer. For want of memory what garbage holds is freed, as when a region is entered. */
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

/* -- devices ---------------------------------------------------------------------------------------------------------- */
/* The text of a name, which lives as long as the object; NULL with ArgumentError for what is no text, or has characters
 * that C or a message would not show: a NUL, a new line. */
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

/* (backend) -> the number of its devices; 0 where its driver is missing */
static PyObject *device_count(PyObject *Py_UNUSED(module), PyObject *argument) {
  const char *backend = text_of_name(argument);
  int count = 0, status;
  if (backend == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_count(backend, &count);
  Py_END_ALLOW_THREADS return status == OA_OK ? PyLong_FromLong(count) : fail(status);
}

static int as_int(PyObject *object) { return (int)PyLong_AsLong(object); }

/* (device) -> (name, backend, model, index, host_calls, memory_free, memory_total, driver, compute_major, compute_minor) */
static PyObject *device_info(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument), status;
  oa_device_info info;
  if (device == -1 && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_device_get_info(device, &info);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  return Py_BuildValue("sssiiLLiii", info.name, info.backend, info.model, info.index, info.host_calls,
                       (long long)info.memory_free, (long long)info.memory_total, info.driver_version,
                       info.compute_major, info.compute_minor);
}

/* (device) -> the fields of oa_counters in their order */
static PyObject *device_counters(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  oa_counters now;
  if (device == -1 && PyErr_Occurred()) return NULL;
  int status = oa_device_get_counters(device, &now);
  if (status != OA_OK) return fail(status);
  return Py_BuildValue("LLLLLLLLLLLL", (long long)now.copies_up, (long long)now.bytes_up, (long long)now.copies_down,
                       (long long)now.bytes_down, (long long)now.allocations, (long long)now.frees,
                       (long long)now.mappings, (long long)now.regions, (long long)now.calls,
                       (long long)now.memory_used, (long long)now.memory_peak, (long long)now.pinned_bytes);
}

/* (device) -> the fields of oa_residency in their order */
static PyObject *device_residency(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  oa_residency now;
  if (device == -1 && PyErr_Occurred()) return NULL;
  int status = oa_residency_query(device, &now);
  if (status != OA_OK) return fail(status);
  return Py_BuildValue("iiLLLLLLLLLL", now.mode, now.tracking, (long long)now.kept, (long long)now.kept_bytes,
                       (long long)now.returns, (long long)now.bytes_spared, (long long)now.bytes_resent,
                       (long long)now.pages_armed, (long long)now.pages_written, (long long)now.dropped,
                       (long long)now.promoted, (long long)now.demoted);
}

/* (mode, tracking) */
static PyObject *residency_configure(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int mode, tracking, status;
  if (!PyArg_ParseTuple(arguments, "ii", &mode, &tracking)) return NULL;
  Py_BEGIN_ALLOW_THREADS status = oa_residency_configure(mode, tracking);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
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

static PyObject *sim_backend_calls(PyObject *Py_UNUSED(module), PyObject *argument) {
  int device = as_int(argument);
  if (device == -1 && PyErr_Occurred()) return NULL;
  return PyLong_FromLongLong(oa_sim_backend_calls(device));
}

/* -- the trace -------------------------------------------------------------------------------------------------------- */
enum { REGIONS_ONLY = 4 }; /* added to oa_trace_flags: nothing of the core's */

/* (flags, entering, left): who is called when a region is entered and left while flags is not 0 */
static PyObject *trace_set(PyObject *Py_UNUSED(module), PyObject *arguments) {
  int flags;
  PyObject *entering, *left;
  if (!PyArg_ParseTuple(arguments, "iOO", &flags, &entering, &left)) return NULL;
  const int status = oa_trace_set(flags & ~REGIONS_ONLY);
  if (status != OA_OK) return fail(status);
  if (python.entering == NULL) { /* the same ones from now on: another thread may be calling them */
    python.entering = Py_NewRef(entering);
    python.left = Py_NewRef(left);
  }
  atomic_store(&tracing, flags != 0);
  Py_RETURN_NONE;
}

/* () -> (events, how many were lost so far) */
static PyObject *trace_read(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  enum { AT_ONCE = 64 };
  oa_trace_event events[AT_ONCE];
  int count = 0;
  int64_t lost = 0;
  PyObject *list = PyList_New(0);
  do {
    const int status = list == NULL ? OA_OK : oa_trace_read(events, AT_ONCE, &count, &lost);
    if (status != OA_OK) {
      Py_DECREF(list);
      return fail(status);
    }
    for (int i = 0; list != NULL && i < count; i++) {
      const oa_trace_event *e = &events[i];
      PyObject *event =
          Py_BuildValue("iLLLLKKKiiiiiNN", e->kind, (long long)e->begun, (long long)e->ended, (long long)e->nbytes,
                        (long long)e->tag, (unsigned long long)e->region, (unsigned long long)e->address,
                        (unsigned long long)e->checksum, e->device, e->thread, e->status, e->batch, e->packed,
                        PyUnicode_DecodeUTF8(e->name, (Py_ssize_t)strlen(e->name), "replace"),
                        PyUnicode_DecodeUTF8(e->why, (Py_ssize_t)strlen(e->why), "replace"));
      if (event == NULL || PyList_Append(list, event) < 0) Py_CLEAR(list);
      Py_XDECREF(event);
    }
  } while (list != NULL && count == AT_ONCE);
  return list == NULL ? NULL : Py_BuildValue("NL", list, (long long)lost);
}

/* -- the module -------------------------------------------------------------------------------------------------------- */
static atomic_flag collecting = ATOMIC_FLAG_INIT;

/* (function) -> whether it was called: not if it runs already, on another thread or below on this one. No exception of a
 * signal handler comes between the flag and the call. */
static PyObject *trace_exclusively(PyObject *Py_UNUSED(module), PyObject *function) {
  if (atomic_flag_test_and_set(&collecting)) Py_RETURN_FALSE;
  PyObject *none = PyObject_CallNoArgs(function);
  atomic_flag_clear(&collecting);
  if (none == NULL) return NULL;
  Py_DECREF(none);
  Py_RETURN_TRUE;
}

static PyObject *last_error(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  return PyUnicode_DecodeUTF8(oa_last_error(), (Py_ssize_t)strlen(oa_last_error()), "replace");
}

static PyObject *status_name(PyObject *Py_UNUSED(module), PyObject *argument) {
  int status = as_int(argument);
  if (status == -1 && PyErr_Occurred()) return NULL;
  return PyUnicode_FromString(oa_status_name(status));
}

/* In a forked child: the arrays of regions that are the parent's business are writable again, and no lock is taken. */
static PyObject *after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  locked_mutex_init();
  atomic_store(&tracing, 0);
  atomic_flag_clear(&collecting);
  for (int pass = 0; pass < 2; pass++) /* views can only follow what they are views of */
    for (int i = 0; i < BUCKETS; i++)
      for (Held *held = locked[i]; held != NULL; held = held->next) {
        if (held->writeable) set_writeable(held->array, 1);
        held->counted = 0; /* the regions are the parent's */
      }
  memset(locked, 0, sizeof locked);
  memset(owners, 0, sizeof owners);
  restore_deferred();
  Py_RETURN_NONE;
}

static PyObject *at_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
  atomic_store(&leaving_process, 1);
  Py_RETURN_NONE;
}

static PyObject *setup(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"ndarray",
                          "pointer",
                          "declared",
                          "ctypes",
                          "resolve",
                          "refuse",
                          "dtype_code",
                          "raise_status",
                          "default_device",
                          "packed_warning",
                          "unwritten_warning",
                          "entered_error",
                          "argument_error",
                          "collect",
                          "is_array",
                          "load",
                          NULL};
  PyObject *declared, *capsule;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$OOO!O!OOOOOOOOOOOO", names, &python.ndarray, &python.pointer,
                                   &PyTuple_Type, &declared, &PyTuple_Type, &python.ctypes, &python.resolve,
                                   &python.refuse, &python.dtype_code, &python.raise_status, &python.default_device,
                                   &python.packed_warning, &python.unwritten_warning, &python.entered_error,
                                   &python.argument_error, &python.collect, &python.is_array, &python.load))
    return NULL;
  python.base = PyObject_GetAttrString(python.ndarray, "base");
  python.flags = PyObject_GetAttrString(python.ndarray, "flags");
  python.array_struct = PyObject_GetAttrString(python.ndarray, "__array_struct__");
  python.setflags = PyObject_GetAttrString(python.ndarray, "setflags");
  if (!python.base || !python.flags || !python.array_struct || !python.setflags) return NULL;
  PyObject *backend = PyImport_ImportModule("_cffi_backend");
  if (backend == NULL) return NULL;
  capsule = PyObject_GetAttrString(backend, "_C_API");
  Py_DECREF(backend);
  void **exports = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "cffi");
  Py_XDECREF(capsule);
  if (exports == NULL) return NULL;
  memcpy(&cdata_from_pointer, &exports[10], sizeof cdata_from_pointer);
  for (int direction = OA_IN; direction <= OA_SCRATCH; direction++) {
    python.declared[direction] = PyTuple_GetItem(declared, direction - OA_IN);
    if (python.declared[direction] == NULL) return NULL;
    Py_INCREF(python.declared[direction]);
  }
  PyObject *kept[] = {python.ndarray,        python.pointer,           python.ctypes,        python.resolve,
                      python.refuse,         python.dtype_code,        python.raise_status,  python.default_device,
                      python.packed_warning, python.unwritten_warning, python.entered_error, python.argument_error,
                      python.collect,        python.is_array,          python.load};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_INCREF(kept[i]); /* until the process ends */
  oa_library_set_loader(load_library);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS, NULL},
    {"view", view, METH_VARARGS, NULL},
    {"alive", alive, METH_O, NULL},
    {"query", query, METH_O, NULL},
    {"address", address, METH_O, NULL},
    {"export", export, METH_O, NULL},
    {"assign", assign, METH_VARARGS, NULL},
    {"fill", pointer_fill, METH_VARARGS, NULL},
    {"copy", pointer_copy, METH_VARARGS, NULL},
    {"read", pointer_read, METH_VARARGS, NULL},
    {"dlpack", dlpack, METH_VARARGS, NULL},
    {"update_from", update_from, METH_VARARGS, NULL},
    {"update_to", update_to, METH_VARARGS, NULL},
    {"update_check", update_check, METH_VARARGS, NULL},
    {"is_lent", lent_array, METH_O, NULL},
    {"keep", keep, METH_VARARGS, NULL},
    {"release", release, METH_VARARGS, NULL},
    {"pinned", pinned, METH_VARARGS, NULL},
    {"take_postponed", take_postponed, METH_NOARGS, NULL},
    {"device_open", device_open, METH_O, NULL},
    {"device_count", device_count, METH_O, NULL},
    {"device_info", device_info, METH_O, NULL},
    {"device_counters", device_counters, METH_O, NULL},
    {"device_residency", device_residency, METH_O, NULL},
    {"residency_configure", residency_configure, METH_VARARGS, NULL},
    {"device_synchronize", device_synchronize, METH_O, NULL},
    {"device_trim", device_trim, METH_O, NULL},
    {"sim_configure", sim_configure, METH_VARARGS, NULL},
    {"sim_backend_calls", sim_backend_calls, METH_O, NULL},
    {"trace_set", trace_set, METH_VARARGS, NULL},
    {"trace_read", trace_read, METH_NOARGS, NULL},
    {"trace_exclusively", trace_exclusively, METH_O, NULL},
    {"last_error", last_error, METH_NOARGS, NULL},
    {"status_name", status_name, METH_O, NULL},
    {"after_fork", after_fork, METH_NOARGS, NULL},
    {"at_exit", at_exit, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "offload_args._core", .m_size = -1,
                                        .m_methods = functions};

static int add_version(PyObject *module) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", OA_VERSION / 10000, OA_VERSION / 100 % 100, OA_VERSION % 100);
  return PyModule_AddStringConstant(module, "VERSION", text);
}

PyMODINIT_FUNC PyInit__core(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
#ifdef Py_GIL_DISABLED
  PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  locked_mutex_init();
  deferred = PyList_New(0);
  watched = PyDict_New();
  name_owndata = PyUnicode_InternFromString("owndata");
  name_array = PyUnicode_InternFromString("array");
  name_as_array = PyUnicode_InternFromString("__array__");
  name_add_note = PyUnicode_InternFromString("add_note");
  pointer_type = (PyTypeObject *)PyType_FromSpec(&pointer_spec);
  pinned_type = (PyTypeObject *)PyType_FromSpec(&pinned_spec);
  PyObject *region_type = PyType_FromSpec(&region_spec);
  if (deferred == NULL || watched == NULL || name_owndata == NULL || name_array == NULL || name_as_array == NULL ||
      name_add_note == NULL || pointer_type == NULL || region_type == NULL || pinned_type == NULL ||
      PyModule_AddObjectRef(module, "Pointer", (PyObject *)pointer_type) < 0 ||
      PyModule_AddObjectRef(module, "Region", region_type) < 0 || add_version(module) < 0 || add_numbers(module) < 0)
    Py_CLEAR(module);
  return module;
}
