/* Regions: the object, entering and leaving. Each of the two is one C function, so that no signal handler runs between
 * acquiring a resource and recording it. */
#include "region.h"

#include <errno.h>
#include <string.h>

static PyObject *name_array, *name_add_note;
static atomic_int default_device = -1;

static PyMemberDef region_members[] = {
    {"_arguments", T_OBJECT_EX, offsetof(Region, arguments), READONLY, NULL},
    {"_device", T_INT, offsetof(Region, device), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Region, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyObject *region_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords)) {
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
  PyErr_SetString(python.region_error,
                  state == OPEN ? "offload_args: this region is open already: make another one for the inner block, "
                                  "or close() this one first"
                                : "offload_args: this region is being entered or left, and one of its arguments, or "
                                  "another thread, uses it meanwhile: make another one");
  return -1;
}

/* Makes a closed region busy: until its state is set again, no other code changes it, whatever user code runs meanwhile
 * (an argument's export, a filter of warnings, a finalizer). Returns 0, or -1 with RegionError. */
static int make_busy(Region *self) {
  int state = CLOSED;
  return atomic_compare_exchange_strong(&self->state, &state, BUSY) ? 0 : refuse_busy(state);
}

void region_prepare(Region *self, PyObject *arguments, Options *options, PyObject **old) {
  old[0] = self->arguments;
  old[1] = self->stream;
  self->arguments = Py_NewRef(arguments);
  self->stream = options->stream;
  options->stream = NULL;
  self->device = options->device;
  self->keep_on_error = options->keep_on_error;
  self->resident = options->resident;
  self->guard = options->guard;
}

static int region_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  Region *self = (Region *)object;
  Options options = {.values = {NULL}};
  PyObject *name, *value, *old[2] = {NULL, NULL};
  Py_ssize_t at = 0;
  int failed = 0;
  while (!failed && keywords != NULL && PyDict_Next(keywords, &at, &name, &value)) {
    const int option = find_option(name, OPTIONS);
    failed = option < 0 || option == OPTIONS;
    if (option == OPTIONS)
      PyErr_Format(python.type_error,
                   "offload_args() got an unexpected keyword argument '%U'; arrays stand by position, and the "
                   "keywords are device, stream, on_error, resident and guard: write offload_args(x, device=\"host\")",
                   name);
    else if (option >= 0)
      options.values[option] = Py_NewRef(value);
  }
  failed = failed || read_options(&options) < 0 || make_busy(self) < 0;
  if (!failed) {
    region_prepare(self, arguments, &options, old);
    atomic_store(&self->state, CLOSED);
  }
  Py_XDECREF(old[0]);
  Py_XDECREF(old[1]);
  release_options(&options);
  return failed ? -1 : 0;
}

/* Reports to the trace that the region has ended, or could not be entered. Keeps the current exception. If there is
 * none, an exception that a signal handler raises meanwhile stays set. */
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

/* Reports to the recorder that the region will end now ("leaving"), or has ended ("leave"); otherwise as trace_left. */
static __attribute__((cold)) void recorded_left(const char *kind, Region *self, int outcome) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *arguments = Py_BuildValue("(i)", outcome);
  PyObject *none =
      arguments == NULL ? NULL : tell_recorder(kind, (PyObject *)self, arguments, NULL, Py_NewRef(Py_None));
  Py_XDECREF(arguments);
  Py_XDECREF(none);
  if (type == NULL) return;
  if (none == NULL) report(NULL);
  PyErr_Restore(type, value, traceback);
}

/* Gets the names of the arrays and the line, for reports of guarded touches. Returns the object that owns them, or NULL
 * with an exception. *names has to be freed in either case. */
static PyObject *guard_entering(Region *self, oa_region_options *options, const char ***names) {
  PyObject *each, *tuple = PyObject_CallFunctionObjArgs(python.guarding, (PyObject *)self, NULL);
  *names = PyMem_Calloc((size_t)self->count + 1, sizeof **names);
  if (*names == NULL && tuple != NULL) PyErr_NoMemory();
  if (*names == NULL || tuple == NULL || !PyArg_ParseTuple(tuple, "yO!", &options->place, &PyTuple_Type, &each)) {
    Py_XDECREF(tuple);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < self->count && i < PyTuple_Size(each); i++)
    if (((*names)[i] = PyBytes_AsString(PyTuple_GetItem(each, i))) == NULL) PyErr_Clear();
  options->names = *names;
  options->guard = 1;
  return tuple;
}

/* Gets the region's tag and the names of its arrays from the trace. Returns the object that owns the names, or NULL if
 * a signal handler raised meanwhile. */
static PyObject *trace_entering(Region *self, oa_array *arrays, oa_region_options *options) {
  PyObject *names = NULL, *tuple = PyObject_CallFunctionObjArgs(python.entering, (PyObject *)self, NULL);
  if (tuple == NULL || !PyArg_ParseTuple(tuple, "LO!", &self->tag, &PyTuple_Type, &names)) {
    Py_XDECREF(tuple);
    return NULL;
  }
  options->tag = self->tag;
  for (Py_ssize_t i = 0; i < self->count && i < PyTuple_Size(names); i++) {
    arrays[i].name = PyBytes_AsString(PyTuple_GetItem(names, i));
    if (arrays[i].name == NULL) PyErr_Clear(); /* the core then says "argument 1" */
  }
  return tuple;
}

/* Takes the core's region and the pointers out of the object, which other threads may use meanwhile. */
static PyObject *take_pointers(Region *self) {
  lock_lent();
  PyObject *pointers = self->pointers;
  self->pointers = NULL;
  self->region = NULL;
  unlock_lent();
  return pointers;
}

/* Whether a region could not be ended now, and can be later: a stream was being captured, or a call of this thread was
 * open, whose function ran the collection of garbage. */
static int can_end_later(int status) { return status == OA_ERROR_CAPTURE || status == OA_ERROR_ARGUMENT; }

/* Ends the open region: its pointers become stale, and its arrays are released. Returns the first failure's status,
 * with that exception. */
static int region_end(Region *self, int outcome, int *warnings) {
  int status, waited, refused;
  oa_region *region = self->region;
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed))) recorded_left("leaving", self, outcome);
  Py_BEGIN_ALLOW_THREADS status = oa_region_finish(region, outcome, warnings);
  /* C code began a call in this thread and has not ended it, or a captured stream would have to be waited for. */
  refused = can_end_later(status);
  if (refused) {
    waited = 1;
  } else if (status == OA_OK) {
    status = oa_region_wait(region);
    waited = 1;
  } else {
    waited = 0;
  }
  Py_END_ALLOW_THREADS if (!waited) {
    /* Raised before the wait, which may replace the text of the first failure. */
    fail(status);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_BEGIN_ALLOW_THREADS oa_region_wait(region);
    Py_END_ALLOW_THREADS PyErr_Restore(type, value, traceback);
  }
  else if (status != OA_OK) {
    fail(status);
  }
  if (refused) { /* nothing has changed: the region is open */
    atomic_store(&self->state, OPEN);
    return status;
  }
  unlist_open(self);
  Held *held = self->held;
  self->held = NULL;
  PyObject *pointers = take_pointers(self);
  release_held(held, self->count);
  Py_XDECREF(pointers);
  if (self->tag) trace_left(self);
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed))) recorded_left("leave", self, outcome);
  atomic_store(&self->state, CLOSED);
  return status;
}

/* Ends the open region as region_end does, but discards its results, or keeps them. Drops a capture of its calls that
 * has not ended, such as a capture that Ctrl-C interrupted. */
static int region_end_after_failure(Region *self, int outcome, int *warnings) {
  int status = region_end(self, outcome, warnings);
  if (status != OA_ERROR_CAPTURE) return status;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  int open = OPEN;
  if (!drop_capture(self) || !atomic_compare_exchange_strong(&self->state, &open, BUSY)) {
    PyErr_Restore(type, value, traceback);
    return status;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return region_end(self, outcome, warnings);
}

/* A region of the core whose object is gone, and that could not be ended yet. */
typedef struct Left {
  struct Left *next;
  oa_region *region;
  Held *held;
  Py_ssize_t count;
} Left;
static Left *left; /* under lock_lent */
static atomic_int left_count;

/* Keeps the region of an object that is being freed, to end it later. The region stays open if memory is short. */
static void leave_later(Region *self) {
  Left *kept = PyMem_Malloc(sizeof *kept);
  if (kept != NULL) *kept = (Left){NULL, self->region, self->held, self->count};
  unlist_open(self);
  self->held = NULL;
  atomic_store(&self->state, CLOSED);
  Py_XDECREF(take_pointers(self));
  if (kept == NULL) return;
  lock_lent();
  kept->next = left;
  left = kept;
  unlock_lent();
  atomic_fetch_add(&left_count, 1);
}

/* Discards the kept regions that can end by now. */
static void end_left(void) {
  lock_lent();
  Left *list = left;
  left = NULL;
  unlock_lent();
  while (list != NULL) {
    Left *kept = list;
    int status;
    list = kept->next;
    Py_BEGIN_ALLOW_THREADS status = oa_region_finish(kept->region, OA_DISCARD, NULL);
    if (!can_end_later(status)) oa_region_wait(kept->region);
    Py_END_ALLOW_THREADS if (can_end_later(status)) {
      lock_lent();
      kept->next = left;
      left = kept;
      unlock_lent();
      continue;
    }
    release_held(kept->held, kept->count);
    PyMem_Free(kept);
    atomic_fetch_sub(&left_count, 1);
  }
}

/* Discards a region that was entered and never left, with a warning of a class that Python shows by default. */
static void region_finalize(PyObject *object) {
  Region *self = (Region *)object;
  int open = OPEN;
  if (leaving_process || !atomic_compare_exchange_strong(&self->state, &open, BUSY)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *of = open_place(object, NULL); /* it is no longer known once the region has ended */
  int status = region_end_after_failure(self, OA_DISCARD, NULL);
  if (status == OA_ERROR_FORKED) PyErr_Clear(); /* the parent's region */
  if (can_end_later(status) && self->region != NULL) leave_later(self);
  if (status == OA_ERROR_ARGUMENT) { /* collected in a call of this thread: it ends after the call */
    PyErr_Clear();
    status = OA_OK;
  }
  PyObject *its_type, *its_value, *its_traceback; /* of the region's end */
  PyErr_Fetch(&its_type, &its_value, &its_traceback);
  if (status == OA_OK) {
    PyObject *none = PyObject_CallFunctionObjArgs(python.collected, of, NULL);
    if (none == NULL) report(NULL);
    Py_XDECREF(none);
  }
  Py_XDECREF(of);
  PyErr_Restore(its_type, its_value, its_traceback);
  if (PyErr_Occurred()) report(NULL);
  PyErr_Restore(type, value, traceback);
}

static void region_dealloc(PyObject *object) {
  Region *self = (Region *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  region_finalize(object);
  if (self->weak_references != NULL) PyObject_ClearWeakRefs(object);
  Py_XDECREF(self->arguments);
  Py_XDECREF(self->stream);
  Py_XDECREF(self->pointers);
  Py_XDECREF(self->weak);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

enum { FEW = 8 };

int resolve_argument(PyObject *argument, Py_ssize_t index, int device, Item *item, oa_array *array) {
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

/* Reads and holds every argument. Returns 0, or -1 with an exception. The caller releases items and held in either
 * case. */
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
  lock_lent(); /* reads and clears all flags in one step */
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
  unlock_lent();
  if (refused >= 0) {
    PyObject *none = PyObject_CallFunction(python.refuse, "On", items[refused].source, refused + 1);
    Py_XDECREF(none);
    if (none != NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a dtype was neither taken nor refused");
  }
  return result > 0 ? 0 : -1;
}

/* Sets *device to the default device if it is -1. Returns 0, or -1 with an exception. */
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

/* Returns the strides of a C-order array without gaps; NULL with an exception. */
static PyObject *packed_strides(const oa_array *array) {
  int64_t strides[64], stride = oa_itemsize(array->dtype);
  for (int i = array->ndim - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= array->shape[i] > 1 ? array->shape[i] : 1;
  }
  return tuple_of(array->ndim, strides);
}

/* Returns whether a region around this one lends the array's bytes to the device, and has warned of them. */
static int is_lent_before(const oa_array *array) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  return oa_pointer_query(array->handle, &info) == OA_OK && info.shared;
}

/* Warns of an array that is packed for the copy. Returns 0, or -1 with an exception. */
static int warn_packed(const Region *self, const oa_array *array, const Held *held, Py_ssize_t position) {
  const int is_unaligned = held->unaligned && held->low < held->high;
  if ((!is_unaligned && !array->packed) || is_lent_before(array)) return 0;
  if (self->of_kernel && is_strided(array->ndim, array->shape, array->strides, oa_itemsize(array->dtype))) return 0;
  if (is_unaligned)
    return PyErr_WarnFormat(python.packed_warning, self->stacklevel,
                            "offload_args: argument %zd is not aligned to its items of %lld bytes: it is packed into "
                            "aligned memory on its way; lend an aligned copy, such as x.copy(), to avoid that",
                            position, (long long)oa_itemsize(array->dtype));
  return PyErr_WarnFormat(
      python.packed_warning, self->stacklevel,
      "offload_args: argument %zd has strides that a copy can't keep: it is packed on its way; to avoid "
      "that, lend a contiguous array%s",
      position, array->ndim == 1 ? ", or the whole array and slice its pointer, such as dx[::2]" : "");
}

/* Returns the tuple that `as` binds, after warnings of packed arrays; NULL with an exception. */
static PyObject *make_pointers(Region *self, const oa_array *arrays, const Held *held, int device) {
  PyObject *pointers = PyTuple_New(self->count);
  for (Py_ssize_t i = 0; pointers != NULL && i < self->count; i++) {
    const oa_array *array = &arrays[i];
    PyObject *strides = array->packed ? packed_strides(array) : tuple_of(array->ndim, array->strides);
    PyObject *pointer =
        pointer_new(array->handle, array->dtype, device, tuple_of(array->ndim, array->shape), strides, 0);
    if (pointer != NULL && array->direction != OA_SCRATCH)
      ((Pointer *)pointer)->strided =
          is_strided(array->ndim, array->shape, array->strides, oa_itemsize(array->dtype)) ? AS_LENT : 0;
    if (pointer == NULL || PyTuple_SetItem(pointers, i, pointer) < 0) Py_CLEAR(pointers);
  }
  for (Py_ssize_t i = 0; pointers != NULL && i < self->count;
       i++) /* after the tuple is filled: code that a warning runs may see it */
    if (warn_packed(self, &arrays[i], &held[i], i + 1) < 0) Py_CLEAR(pointers);
  return pointers;
}

/* Enters the region in the core. Under memory pressure it collects garbage, which may hold regions that were never left
 * and exports in reference cycles, and retries once. Device memory is allocated only here, except for device scalars.
 * Returns 0, or -1 with an exception. */
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

PyObject *region_enter_open(Region *self) {
  Item few_items[FEW], *items = few_items;
  oa_array few_arrays[FEW], *arrays = few_arrays;
  oa_region_options options = OA_SIZED(oa_region_options, .single_use = self->once);
  PyObject *pointers = NULL, *names = NULL, *guarded = NULL;
  const char **guard_names = NULL;
  int device = self->device, entered = 0;
  if (self->arguments == NULL) {
    PyErr_SetString(python.region_error, "offload_args: this region was never initialised: call its __init__ first");
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
  if (OA_UNLIKELY(atomic_load_explicit(&tracing, memory_order_relaxed)) &&
      (names = trace_entering(self, arrays, &options)) == NULL)
    goto done;
  if (OA_UNLIKELY(self->guard || oa_guard_is_default()) &&
      (guarded = guard_entering(self, &options, &guard_names)) == NULL)
    goto done;
  if (read_arguments(self, items, arrays, held, &device, &options) < 0 || find_device(&device) < 0) goto done;
  if (self->resident || oa_residency_current() == OA_RESIDENCY_AUTO)
    for (size_t i = 0; i < count; i++) {
      if (held[i].array == NULL) continue;
      if (self->resident) arrays[i].flags |= OA_RESIDENT;
      if (name_owner(&held[i], &arrays[i]) < 0) goto done;
    }
  for (uint64_t bits = self->reused; bits != 0; bits &= bits - 1) arrays[__builtin_ctzll(bits)].flags |= OA_REUSED;
  if (enter_core(self, device, &options, arrays) < 0) goto done;
  entered = 1;
  pointers = make_pointers(self, arrays, held, device);
  if (pointers != NULL && OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed)))
    pointers = tell_recorder("enter", (PyObject *)self, pointers, NULL, pointers);

done:
  Py_XDECREF(names);
  Py_XDECREF(guarded);
  PyMem_Free(guard_names);
  for (size_t i = 0; i < count; i++) release_item(&items[i]);
  if (items != few_items) PyMem_Free(items);
  if (arrays != few_arrays) PyMem_Free(arrays);
  if (pointers != NULL) {
    self->held = held;
    self->pointers = Py_NewRef(pointers);
    self->on = device;
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

/* Enters the region for a block or for open(). Returns the tuple of its pointers; NULL with an exception. */
static PyObject *enter_as(PyObject *object, int by_open) {
  Region *self = (Region *)object;
  if (make_busy(self) < 0) return NULL;
  if (atomic_load_explicit(&left_count, memory_order_relaxed)) end_left();
  if (objects_are_left()) destroy_left_objects();
  PyObject *pointers = region_enter_open(self);
  if (pointers == NULL) {
    atomic_store(&self->state, CLOSED);
    return NULL;
  }
  if (list_open(self, by_open) == 0 && (!by_open || warn_inside(self) == 0)) {
    atomic_store(&self->state, OPEN);
    return pointers;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (region_end(self, OA_DISCARD, NULL) != OA_OK || PyErr_Occurred()) report(object);
  PyErr_Restore(type, value, traceback);
  Py_DECREF(pointers);
  return NULL;
}

static PyObject *region_enter(PyObject *object, PyObject *Py_UNUSED(nothing)) { return enter_as(object, 0); }

/* Returns 1 if a method that takes no arguments got none; 0 with ArgumentTypeError. */
static int has_none(const char *method, Py_ssize_t count, PyObject *names) {
  count += names == NULL ? 0 : PyTuple_Size(names);
  if (count > 0)
    PyErr_Format(python.type_error,
                 "offload_args.%s() takes no arguments, got %zd; arrays and options stand before: write "
                 "region = offload_args(x, device=\"host\"), and then region.%s()",
                 method, count, method);
  return count == 0;
}

static PyObject *region_open(PyObject *object, PyObject *const *Py_UNUSED(values), Py_ssize_t count, PyObject *names) {
  return has_none("open", count, names) ? enter_as(object, 1) : NULL;
}

/* Adds the current exception as a note to the body's exception, and clears it. */
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

/* Adds a note to the exception of the body. Keeps the current exception. */
static void add_text(PyObject *body, const char *text) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *note = PyUnicode_FromFormat("offload_args: %s", text);
  PyObject *none = note == NULL ? NULL : PyObject_CallMethodObjArgs(body, name_add_note, note, NULL);
  if (none == NULL) PyErr_Clear();
  Py_XDECREF(none);
  Py_XDECREF(note);
  PyErr_Restore(type, value, traceback);
}

/* Returns whether the exception may be from a system call that got guarded memory: the kernel ends such a call with
 * EFAULT, and raises no fault. ndarray.tofile keeps no errno. */
static int is_bad_address(PyObject *body) {
  if (!PyErr_GivenExceptionMatches(body, PyExc_OSError)) return 0;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *code = PyObject_GetAttrString(body, "errno");
  const int is_fault = code != NULL && (code == Py_None || (PyLong_Check(code) && PyLong_AsLong(code) == EFAULT));
  Py_XDECREF(code);
  PyErr_Restore(type, value, traceback);
  return is_fault;
}

/* Adds a note to NumPy's error about a write to an array that the region lent, or to Python's error about arguments of
 * a pointer's method. */
static void note_remedy(Region *self, PyObject *body) {
  if (!PyErr_GivenExceptionMatches(body, PyExc_ValueError) && !PyErr_GivenExceptionMatches(body, PyExc_TypeError))
    return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *module = PyImport_ImportModule("offload_args._advice");
  PyObject *none = module == NULL ? NULL : PyObject_CallMethod(module, "note_remedy", "OO", (PyObject *)self, body);
  if (none == NULL) PyErr_Clear();
  Py_XDECREF(none);
  Py_XDECREF(module);
  PyErr_Restore(type, value, traceback);
}

/* Returns 1 if no code reads the exception's message or notes: it ends a cancelled task, or the program. */
static int is_silent(PyObject *body) {
  return !PyErr_GivenExceptionMatches(body, PyExc_Exception) &&
         !PyErr_GivenExceptionMatches(body, PyExc_KeyboardInterrupt);
}

int region_leave(Region *self, PyObject *body) {
  int state = OPEN, warnings = 0;
  /* A generator is closed because its caller needs no more values: nothing failed. */
  if (body != NULL && PyErr_GivenExceptionMatches(body, PyExc_GeneratorExit)) body = NULL;
  if (!atomic_compare_exchange_strong(&self->state, &state, BUSY))
    return state == CLOSED ? 0 : refuse_busy(state); /* closed: left before */
  int status = body == NULL ? region_end(self, OA_COMMIT, &warnings)
                            : region_end_after_failure(self, self->keep_on_error ? OA_KEEP : OA_DISCARD, &warnings);
  if (body != NULL && warnings > 0) add_text(body, oa_last_warning());
  if (body != NULL) note_remedy(self, body);
  if (body != NULL && OA_UNLIKELY(self->guard || oa_guard_is_default()) && is_bad_address(body))
    add_text(
        body,
        "the region guards its arrays (guard=True), and a system call can't read one that is newer on the device, or "
        "write one that the device has: if it was given one, use its pointer's to_host(), or call it after update(x) "
        "or the region");
  if (status == OA_OK && !PyErr_Occurred() && raise_touch() < 0) {
    if (body == NULL) return -1;
    add_note(body);
  }
  if (status != OA_OK) {
    if (body == NULL) return -1;
    add_note(body);
  } else if (PyErr_Occurred()) { /* a signal handler raised it during the trace's note */
    return -1;
  } else if (warnings > 0 && body == NULL) {
    if (PyErr_WarnEx(python.unwritten_warning, oa_last_warning(), self->stacklevel) < 0) return -1;
  } else if (warnings > 0 && is_silent(body)) {
    if (PyErr_WarnFormat(python.discarded_warning, self->stacklevel, "offload_args: %s", oa_last_warning()) < 0)
      add_note(body); /* the exception of the body comes first, even if warnings are errors */
  }
  const char *warning = body != NULL ? NULL : oa_take_warning();
  return warning != NULL ? PyErr_WarnEx(python.packed_warning, warning, self->stacklevel) : 0;
}

/* (type, exception, traceback): leaves the region, as `with` does. */
static PyObject *region_exit(PyObject *object, PyObject *const *values, Py_ssize_t count) {
  if (count != 3) return PyErr_Format(PyExc_TypeError, "__exit__() takes exactly 3 arguments (%zd given)", count);
  if (region_leave((Region *)object, values[0] == Py_None ? NULL : values[1]) < 0) return NULL;
  Py_RETURN_FALSE;
}

static PyObject *region_close(PyObject *object, PyObject *const *Py_UNUSED(values), Py_ssize_t count, PyObject *names) {
  if (!has_none("close", count, names) || region_leave((Region *)object, NULL) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *region_discard(PyObject *object, PyObject *const *Py_UNUSED(values), Py_ssize_t count,
                                PyObject *names) {
  if (!has_none("discard", count, names)) return NULL;
  Region *self = (Region *)object;
  int open = OPEN;
  if (!atomic_compare_exchange_strong(&self->state, &open, BUSY)) Py_RETURN_NONE;
  if (region_end_after_failure(self, OA_DISCARD, NULL) != OA_OK || PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

/* () -> the tuple of its pointers; None if it is not open */
static PyObject *region_pointers(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  lock_lent();
  PyObject *pointers = Py_NewRef(self->pointers != NULL ? self->pointers : Py_None);
  unlock_lent();
  return pointers;
}

/* () -> the handle of the stream of its calls */
static PyObject *region_stream(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Region *self = (Region *)object;
  void *stream = NULL;
  if (atomic_load(&self->state) == OPEN && oa_region_stream(self->region, &stream) == OA_OK)
    return PyLong_FromVoidPtr(stream);
  PyErr_SetString(python.region_error, "offload_args.stream: the region is not open; enter it first");
  return NULL;
}

/* Static checkers know the types of a region's pointers; at run time all regions have one class. */
static PyObject *region_class(PyObject *type, PyObject *Py_UNUSED(types)) { return Py_NewRef(type); }

static PyMethodDef region_methods[] = {
    {"__class_getitem__", region_class, METH_O | METH_CLASS,
     "offload_args[types]: the class itself; for static checkers"},
    {"__enter__", region_enter, METH_NOARGS,
     "Enter the region and return a tuple with one DevicePtr per argument. Nothing moves yet."},
    {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL,
     "Leave the region: results come down, unless the body raised."},
    {"open", (PyCFunction)(void (*)(void))region_open, METH_FASTCALL | METH_KEYWORDS,
     "open($self, /)\n--\n\n"
     "Enter the region, as `with` does, and return a tuple with one DevicePtr per argument.\n\n"
     "This is for code without a block, such as the cells of a notebook. close() or discard() ends the region. An open "
     "region that is garbage-collected is discarded with a DiscardedWarning. A region that lends memory which another "
     "one lends that open() entered in this thread and left open is inside that one, and warns "
     "(NestedRegionWarning).\n\n"
     "Raises RegionError if the region is open already, and the errors of entering.\n\n"
     "    x = np.ones(3)\n"
     "    region = offload_args(x)\n"
     "    (dx,) = region.open()\n"
     "    blas.scal(2.0, dx)\n"
     "    region.close()\n"
     "    print(x)  # [2. 2. 2.]\n\n"
     "See also: offload_args.close, offload_args.discard; docs/guide/notebooks.md."},
    {"close", (PyCFunction)(void (*)(void))region_close, METH_FASTCALL | METH_KEYWORDS,
     "close($self, /)\n--\n\n"
     "Leave the region as the end of a `with` block does: results come down, and its pointers die.\n\n"
     "Does nothing if the region is not open. A closed region may be opened again. Raises and warns as leaving "
     "does.\n\n"
     "    region = offload_args(np.ones(3))\n"
     "    (dx,) = region.open()\n"
     "    region.close()\n"
     "    print(dx.live)  # False\n\n"
     "See also: offload_args.open, offload_args.discard; docs/guide/notebooks.md."},
    {"discard", (PyCFunction)(void (*)(void))region_discard, METH_FASTCALL | METH_KEYWORDS,
     "discard($self, /)\n--\n\n"
     "Leave the region as a `with` block does that raises: nothing comes down, and its pointers die.\n\n"
     "Does nothing if the region is not open. `on_error` does not count. Raises the errors of the device.\n\n"
     "    x = np.ones(3)\n"
     "    region = offload_args(x)\n"
     "    (dx,) = region.open()\n"
     "    blas.scal(2.0, dx)\n"
     "    region.discard()\n"
     "    print(x)  # [1. 1. 1.]\n\n"
     "See also: offload_args.close, offload_args.open; docs/guide/notebooks.md."},
    {"_around", open_around, METH_NOARGS, NULL},
    {"_place", open_place, METH_NOARGS, NULL},
    {"_pointers", region_pointers, METH_NOARGS, NULL},
    {"_capture", region_capture, METH_NOARGS, NULL},
    {"_drop_capture", region_drop_capture, METH_NOARGS, NULL},
    {"_calls_to", region_stream, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot region_slots[] = {
    {Py_tp_new, region_new},
    {Py_tp_init, region_init},
    {Py_tp_dealloc, region_dealloc},
    {Py_tp_finalize, region_finalize},
    {Py_tp_traverse, region_traverse},
    {Py_tp_clear, region_clear},
    {Py_tp_members, region_members},
    {Py_tp_methods, region_methods},
    {Py_tp_doc,
     "Region(*arrays, device=None, stream=None, on_error='discard', resident=False, guard=False)\n--\n\n"
     "Hold one region of the core and its arrays."},
    {0, NULL},
};

static PyType_Spec region_spec = {
    .name = "offload_args._core.Region",
    .basicsize = sizeof(Region),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = region_slots,
};

int add_region(PyObject *module) {
  name_array = PyUnicode_InternFromString("array");
  name_add_note = PyUnicode_InternFromString("add_note");
  PyObject *type =
      name_array == NULL || name_add_note == NULL || start_options() < 0 ? NULL : PyType_FromSpec(&region_spec);
  const int status = type == NULL ? -1 : PyModule_AddObjectRef(module, "Region", type);
  Py_XDECREF(type);
  return status;
}
