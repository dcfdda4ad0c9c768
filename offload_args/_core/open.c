/* The list of open regions: where each one was entered, and which one is inside which. */
#include "region.h"

/* All open regions, except the regions of call(). The mutex of lent arrays guards it: while a region is in the list, so
 * are its arrays. */
static Region *youngest;

/* Returns whether a function enters regions for its caller, as ExitStack.enter_context does. */
static int enters_for_caller(PyObject *code) {
  for (Py_ssize_t i = PyList_Size(python.entering_codes); i-- > 0;)
    if (PyList_GetItem(python.entering_codes, i) == code) return 1;
  return 0;
}

/* Notes the nearest caller that does not enter the region for another function: its code and line. */
static void note_place(Region *self) {
  PyObject *frame = Py_XNewRef((PyObject *)PyEval_GetFrame());
  while (frame != NULL && frame != Py_None) {
    self->code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    if (!enters_for_caller(self->code)) break;
    Py_CLEAR(self->code);
    PyObject *back = PyObject_GetAttrString(frame, "f_back");
    if (back == NULL) PyErr_Clear();
    Py_DECREF(frame);
    frame = back;
  }
  if (self->code != NULL) self->line = PyFrame_GetLineNumber((PyFrameObject *)frame);
  Py_XDECREF(frame);
}

int list_open(Region *self, int by_open) {
  if (self->weak == NULL && (self->weak = PyWeakref_NewRef((PyObject *)self, NULL)) == NULL) return -1;
  note_place(self);
  self->by_open = by_open;
  self->thread = PyThread_get_thread_ident();
  lock_lent();
  self->listed = 1;
  self->younger = NULL;
  self->older = youngest;
  if (youngest != NULL) youngest->younger = self;
  youngest = self;
  unlock_lent();
  return 0;
}

void unlist_open(Region *self) {
  lock_lent();
  const int listed = self->listed;
  if (listed) {
    *(self->younger != NULL ? &self->younger->older : &youngest) = self->older;
    if (self->older != NULL) self->older->younger = self->younger;
    self->listed = 0;
  }
  PyObject *code = self->code;
  self->code = NULL;
  unlock_lent();
  Py_XDECREF(code);
}

void open_after_fork(void) {
  for (Region *region = youngest; region != NULL; region = region->older) region->listed = 0;
  youngest = NULL;
}

/* Returns a region of the list, unless its memory is being freed: a new reference or NULL. */
static PyObject *strong(const Region *listed) {
  PyObject *object = NULL;
#ifdef Py_GIL_DISABLED
  PyWeakref_GetRef(listed->weak, &object);
#else
  object = PyWeakref_GetObject(listed->weak);
  object = object == NULL || object == Py_None ? NULL : Py_NewRef(object);
#endif
  return object;
}

/* Returns a list of the regions older than region, or of all if that is NULL, the oldest first; NULL with an
 * exception. */
static PyObject *older_than(const Region *region) {
  PyObject *list = PyList_New(0);
  lock_lent();
  for (Region *each = region == NULL ? youngest : region->older; each != NULL && list != NULL; each = each->older) {
    PyObject *object = strong(each); /* neither this nor a growing list runs code */
    if (object != NULL && PyList_Append(list, object) < 0) Py_CLEAR(list);
    Py_XDECREF(object);
  }
  unlock_lent();
  if (list != NULL && PyList_Reverse(list) < 0) Py_CLEAR(list);
  return list;
}

static int is_in(const Region *self, Py_ssize_t i) {
  return (PyObject *)Py_TYPE(PyTuple_GetItem(self->arguments, i)) == python.declared[OA_IN];
}

/* Returns the position of the first argument that shares bytes with an array of an older region; -1 if there is none.
 * written: only arguments that a region may write count. Needs the lock. */
static Py_ssize_t shared_with(const Region *self, const Region *outer, int written) {
  for (Py_ssize_t i = 0; i < self->count; i++) {
    if (written && (!self->held[i].writeable || is_in(self, i))) continue;
    for (Py_ssize_t j = 0; self->listed && outer->listed && j < outer->count; j++)
      if (held_meet(&outer->held[j], &self->held[i])) return i;
  }
  return -1;
}

/* Returns the enclosing region: the youngest older one of its thread and device that lends some of the same memory. A
 * new reference; NULL if there is none, or with an exception. by_open: only regions that open() entered count, and only
 * arguments that may be written; *position becomes the position of the first such argument. */
static Region *region_around(Region *self, int by_open, Py_ssize_t *position) {
  Region *around = NULL;
  lock_lent(); /* another thread may close any of them */
  PyObject *list = self->listed ? older_than(self) : PyList_New(0);
  for (Py_ssize_t i = list == NULL ? 0 : PyList_Size(list); i > 0 && around == NULL; i--) {
    Region *outer = (Region *)PyList_GetItem(list, i - 1);
    if (!outer->listed || outer->thread != self->thread || outer->on != self->on) continue;
    if (by_open && !outer->by_open) continue;
    *position = shared_with(self, outer, by_open);
    if (*position >= 0) around = (Region *)Py_NewRef((PyObject *)outer);
  }
  unlock_lent();
  Py_XDECREF(list);
  return around;
}

int warn_inside(Region *self) {
  Py_ssize_t position;
  PyObject *outer = (PyObject *)region_around(self, 1, &position);
  if (outer == NULL) return PyErr_Occurred() ? -1 : 0;
  PyObject *none = PyObject_CallFunction(python.inside, "On", outer, position + 1);
  Py_DECREF(outer);
  Py_XDECREF(none);
  return none == NULL ? -1 : 0;
}

PyObject *open_around(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  Py_ssize_t position;
  PyObject *outer = (PyObject *)region_around((Region *)object, 0, &position);
  return outer != NULL ? outer : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *open_place(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  const Region *self = (Region *)object;
  lock_lent();
  PyObject *code = self->code != NULL ? Py_NewRef(self->code) : NULL;
  const int line = self->line;
  unlock_lent();
  return code != NULL ? Py_BuildValue("(Ni)", code, line) : Py_NewRef(Py_None);
}

/* () -> the open regions, the oldest first */
static PyObject *open_regions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) { return older_than(NULL); }

static PyMethodDef open_functions[] = {
    {"open_regions", open_regions, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_open(PyObject *module) { return PyModule_AddFunctions(module, open_functions); }
