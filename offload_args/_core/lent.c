/* Lent arrays are read-only to the host and kept alive. The ends of owners with resident memory are watched. */
#include "module.h"

#include <pthread.h>
#include <string.h>

static PyObject *name_owndata;

/* -- lent arrays are read-only to the host ------------------------------------------------------------------------- */
/* `locked` and `owners` have an entry for each time that an array is lent, by the addresses of the array and of its
 * owner. A mutex guards them, not the GIL. The mutex is recursive, because a garbage collection while it is held may
 * end a region. */
enum { BUCKETS = 4096 };
static Held *locked[BUCKETS], *owners[BUCKETS];
static unsigned long changes; /* number of changes of the two tables so far */
/* A list of arrays that are no longer lent, but still read-only: NumPy refuses to set a view's flag while its base
 * array is read-only. */
static PyObject *deferred;
static pthread_mutex_t locked_mutex;

static void locked_mutex_init(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&locked_mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void lock_lent(void) {
  if (pthread_mutex_trylock(&locked_mutex) == 0) return;
  Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&locked_mutex);
  Py_END_ALLOW_THREADS
}

void unlock_lent(void) { pthread_mutex_unlock(&locked_mutex); }

static PyObject *owner_of(const Held *held) { return held->root != NULL ? held->root : held->array; }

static Held **bucket_of(Held **table, const PyObject *array) { return &table[((uintptr_t)array >> 4) % BUCKETS]; }

/* Returns 1 if this very array is lent, and the host could write it before (writeable: 1) or could not (0). */
static int is_locked(const Held *array_held, int writeable) {
  for (const Held *held = *bucket_of(locked, array_held->array); held != NULL; held = held->next)
    if (held->array == array_held->array && held->writeable == writeable) return 1;
  return 0;
}

static int owner_is_locked(const PyObject *owner) {
  for (const Held *held = *bucket_of(owners, owner); held != NULL; held = held->next_of_owner)
    if (owner_of(held) == owner && held->writeable) return 1;
  return 0;
}

/* Returns 1 if the two may share an element: arrays of different columns of one matrix do not. */
static int may_share(PyObject *a, PyObject *b) {
  Py_INCREF(a);                           /* its region may end when garbage is collected */
  PyObject *work = PyLong_FromLong(1000); /* NumPy returns True if it would need more steps than these */
  PyObject *shared = work == NULL ? NULL : PyObject_CallFunctionObjArgs(python.may_share, a, b, work, NULL);
  const int none = shared == Py_False;
  Py_XDECREF(work);
  Py_XDECREF(shared);
  Py_DECREF(a);
  if (shared == NULL) report(python.may_share);
  return !none;
}

int held_meet(const Held *a, const Held *b) {
  if (a->array == NULL || b->array == NULL || a->low >= b->high || b->low >= a->high) return 0;
  return (!a->gaps && !b->gaps) || may_share(a->array, b->array);
}

/* Compares bytes and not bases: NumPy records the owner of a view's memory as its base, not the view that it was taken
 * from. A part with no elements counts as lent. Returns 0 if the host is known to have made the array read-only. */
int is_lent(const Held *part) {
  if (is_locked(part, 0)) return 0;
  Held **bucket = bucket_of(owners, owner_of(part));
  for (const Held *held = *bucket, *next; held != NULL; held = next) {
    const unsigned long before = changes;
    next = held->next_of_owner;
    if (owner_of(held) != owner_of(part) || !held->writeable || held->low > part->low || part->high > held->high)
      continue;
    if (!held->gaps || part->low == part->high || may_share(held->array, part->array)) return 1;
    if (changes != before) next = *bucket; /* a garbage collection meanwhile ended a region */
  }
  return 0;
}

/* Returns 1 if an element of the array is lent, and the host could write it before. */
int is_lent_in_part(const Held *part) {
  Held **bucket = bucket_of(owners, owner_of(part));
  for (const Held *held = *bucket, *next; held != NULL; held = next) {
    const unsigned long before = changes;
    next = held->next_of_owner;
    if (owner_of(held) == owner_of(part) && held->writeable && held_meet(held, part)) return 1;
    if (changes != before) next = *bucket; /* a garbage collection meanwhile ended a region */
  }
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
  changes++;
}

static void count_out(Held *held) {
  Held **place = bucket_of(locked, held->array);
  while (*place != held) place = &(*place)->next;
  *place = held->next;
  *held->place_of_owner = held->next_of_owner;
  if (held->next_of_owner != NULL) held->next_of_owner->place_of_owner = held->place_of_owner;
  held->counted = 0;
  changes++;
}

/* Sets the flag. Returns 0, or -1 without an exception if NumPy refuses. */
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

int lock_if_lent(const Held *part) {
  const int lent = is_lent(part);
  if (lent) set_writeable(part->array, 0);
  for (Held *held = *bucket_of(locked, part->array); held != NULL; held = held->next)
    if (held->array == part->array) held->reopened = 0;
  return lent;
}

/* Returns the next newer entry of the same array, or NULL. */
static Held *newer_than(const Held *entry) {
  Held *newer = NULL;
  for (Held *held = *bucket_of(locked, entry->array); held != entry; held = held->next)
    if (held->array == entry->array) newer = held;
  return newer;
}

/* Ends an entry whose array becomes writeable again, although older entries remain. If the array has a newer entry,
 * that entry does this at its end. */
static void reopen(Held *held, Held *newer) {
  if (newer != NULL)
    newer->reopened = 1;
  else
    set_writeable(held->array, 1);
}

/* Returns the last array in the chain of a view's bases, or NULL if the array is not a view. *memory becomes the base
 * of that last array: None if it owns its memory, NULL after a failure. Both are new references; no exception is
 * set. */
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

/* The check comes before any array is held. So it distinguishes a view that the host made read-only from a view whose
 * base is lent by the same region. NumPy does not distinguish a view that the host made read-only from a view that was
 * taken of a lent array. So if an outer region lends the memory, a read-only view counts as taken of a lent array,
 * unless it was lent with that region or before. */
int was_writeable(const Held *held, int flag) {
  return flag || is_locked(held, 1) || deferred_index(held->array) >= 0 || is_lent(held);
}

/* If an array is read-only already, it gets an entry if it is lent itself, or if the host had made it read-only. */
void hold(Held *held, int flag) {
  const Py_ssize_t index = flag ? -1 : deferred_index(held->array);
  if (flag ? held->kept_writeable : held->writeable && index < 0 && !is_locked(held, 1)) return;
  if (index >= 0) PyList_SetSlice(deferred, index, index + 1, NULL);
  held->reopened = flag && is_locked(held, 1);
  count_in(held);
  if (flag) set_writeable(held->array, 0);
}

/* Makes deferred arrays writeable if NumPy now permits it. Also takes an array out of the list if its owner is no
 * longer lent: then the host itself made that owner read-only. */
static void restore_deferred(void) {
  for (Py_ssize_t i = PyList_Size(deferred) - 1; i >= 0; i--) {
    PyObject *array = PyList_GetItem(deferred, i);
    if (array == NULL) { /* the end of an array ended another region, which emptied the list */
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

void release_one(Held *held) {
  Py_XDECREF(held->weak);
  Py_XDECREF(held->weak_root);
  Py_XDECREF(held->root);
  Py_XDECREF(held->array);
}

int keep_alive(Held *held, PyObject *array) {
  held->array = Py_NewRef(array);
  held->weak = PyWeakref_NewRef(array, NULL);
  if (held->weak == NULL) return -1;
  PyObject *memory;
  Py_buffer buffer;
  held->root = root_of(array, &memory);
  if (memory != NULL && memory != Py_None) { /* NumPy checks the same before it sets the flag */
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

void find_bytes(Held *held, const oa_array *array) {
  uintptr_t nbytes = (uintptr_t)oa_itemsize(array->dtype);
  held->low = (uintptr_t)array->data;
  held->high = held->low + nbytes;
  for (int i = 0; i < array->ndim; i++) {
    if (array->shape[i] == 0) {
      held->high = held->low;
      return;
    }
    const int64_t reach = (array->shape[i] - 1) * array->strides[i];
    *(reach < 0 ? &held->low : &held->high) += (uintptr_t)reach;
    nbytes *= (uintptr_t)array->shape[i];
  }
  held->gaps = held->high - held->low != nbytes;
}

/* -- owners of arrays with resident memory ------------------------------------------------------------------------- */
/* A dict of weak references to such owners, by address. They report an owner's end to the core, and make ndarray.resize
 * refuse, so that the memory does not move. Their callback is in C, so that no signal handler raises in it. */
static PyObject *watched;

static PyObject *owner_gone(PyObject *key, PyObject *dead) {
  if (leaving_process) Py_RETURN_NONE; /* the driver may have been unloaded */
  void *owner = PyLong_AsVoidPtr(key);
  if (PyDict_GetItemWithError(watched, key) == dead) PyDict_DelItem(watched, key);
  PyErr_Clear();
  Py_BEGIN_ALLOW_THREADS oa_owner_gone(owner); /* fails only in a forked child, where nothing is resident */
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyMethodDef owner_gone_method = {"owner_gone", owner_gone, METH_O, NULL};

void watch_owner(PyObject *owner) {
  if (!oa_owner_kept(owner)) return;
  PyObject *key = PyLong_FromVoidPtr(owner), *callback = NULL, *reference = NULL;
  int known = key == NULL ? -1 : PyDict_Contains(watched, key);
  if (known == 0) { /* an owner that died was removed */
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

void release_held(Held *held, Py_ssize_t count) {
  if (held == NULL) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  lock_lent();
  for (Py_ssize_t i = count - 1; i >= 0; i--) {
    if (!held[i].counted) continue;
    Held *newer = held[i].reopened ? newer_than(&held[i]) : NULL;
    count_out(&held[i]);
    if (held[i].reopened && is_locked(&held[i], 1)) reopen(&held[i], newer);
    if (!held[i].writeable || is_locked(&held[i], 1) || set_writeable(held[i].array, 1) == 0) continue;
    if (PyList_Append(deferred, held[i].array) < 0) PyErr_Clear();
  }
  if (PyList_Size(deferred) > 0) restore_deferred();
  unlock_lent();
  for (Py_ssize_t i = 0; i < count; i++)
    if (held[i].owner != NULL) watch_owner(held[i].owner);
  for (Py_ssize_t i = 0; i < count; i++) release_one(&held[i]);
  PyMem_Free(held);
  PyErr_Restore(type, value, traceback);
}

int name_owner(Held *held, oa_array *array) {
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

void lent_after_fork(void) {
  locked_mutex_init();
  for (int pass = 0; pass < 2; pass++) /* a view can become writeable only after its base */
    for (int i = 0; i < BUCKETS; i++)
      for (Held *held = locked[i]; held != NULL; held = held->next) {
        if (held->writeable) set_writeable(held->array, 1);
        held->counted = 0; /* the region belongs to the parent */
      }
  memset(locked, 0, sizeof locked);
  memset(owners, 0, sizeof owners);
  restore_deferred();
}

int start_lent(void) {
  locked_mutex_init();
  deferred = PyList_New(0);
  watched = PyDict_New();
  name_owndata = PyUnicode_InternFromString("owndata");
  return deferred == NULL || watched == NULL || name_owndata == NULL ? -1 : 0;
}
