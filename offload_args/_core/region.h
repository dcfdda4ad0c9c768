/* Regions in the extension: the object, its options, entering and leaving it for call(), and the list of open ones. */
#ifndef OFFLOAD_ARGS_CORE_REGION_H
#define OFFLOAD_ARGS_CORE_REGION_H

#include "module.h"

#pragma GCC visibility push(hidden)

/* -- options.c ----------------------------------------------------------------------------------------------------- */
enum option { DEVICE, STREAM, ON_ERROR, RESIDENT, GUARD, OPTIONS };

typedef struct {
  PyObject *values[OPTIONS]; /* as the caller passed them; owned; NULL: the default */
  PyObject *stream;          /* the handle as an int, or None; owned */
  int device, keep_on_error, resident, guard;
} Options;

/* Makes the names of the options. Returns 0, or -1 with an exception. */
int start_options(void);

/* Releases the references that options own. */
void release_options(Options *options);

/* Returns which of the first `known` options a keyword names, or `known` if it names none of them; -1 with TypeError if
 * the keyword is not a string. */
int find_option(PyObject *name, int known);

/* Reads the caller's options into the other fields. Returns 0, or -1 with an exception. Runs no Python code for a
 * Device and for defaults. */
int read_options(Options *options);

/* -- region.c ------------------------------------------------------------------------------------------------------ */
enum { CLOSED, BUSY, OPEN };

/* A region. Only the code that made it busy changes its members, while it is busy. */
typedef struct Region {
  PyObject_HEAD PyObject *arguments; /* a tuple */
  PyObject *stream;   /* the handle of the caller's own stream as an int, or None; NULL before __init__ */
  PyObject *pointers; /* a tuple while the region is open, otherwise NULL */
  int device;         /* a device's number; -1: the first borrowed argument's device, otherwise the default device */
  int keep_on_error;
  int guard;       /* 1: reading its arrays on the host is a fault while the device is newer */
  int resident;    /* 1: the device memory of its arrays becomes resident */
  int once;        /* 1: one call uses each array */
  int of_kernel;   /* with once: 1 if a kernel is called, which refuses packed arrays itself */
  uint64_t reused; /* with once: bit i is set if the call reads each element of argument i many times */
  int stacklevel;  /* of warnings; 1: the caller of __enter__ and __exit__ */
  atomic_int state;
  Py_ssize_t count; /* number of arguments */
  Held *held;       /* one for each argument, while the region is open */
  oa_region *region;
  /* The last chain that captures, or captured, its calls; NULL: none. It may have ended. Under lock_lent. */
  struct oa_chain *capturing;
  long long tag; /* for the trace; 0: not traced */
  PyObject *weak_references;
  PyObject *weak; /* the weak reference that the list of open regions uses */
  /* The fields below are set while it is in that list, which has no region of call(). */
  int listed;
  int by_open;          /* 1: open() entered it, 0: a block */
  int on;               /* the number of its device */
  unsigned long thread; /* the thread that entered it */
  PyObject *code;       /* the function that entered it; NULL: C code entered it */
  int line;
  struct Region *older, *younger;
} Region;

/* Sets item->source to the argument's ndarray, or to a tuple for read_tuple(), and sets the array's direction. index:
 * the argument's index, from 0, for messages. Returns 0, or -1 with an exception. */
int resolve_argument(PyObject *argument, Py_ssize_t index, int device, Item *item, oa_array *array);

/* Begins to capture the calls of an open region. Returns the chain. */
PyObject *region_capture(PyObject *object, PyObject *nothing);

/* Drops a capture of an open region's calls that has not ended. Returns 1 if there was such a capture. */
int drop_capture(Region *self);
/* (): as drop_capture */
PyObject *region_drop_capture(PyObject *object, PyObject *nothing);

/* Makes a closed region. */
PyObject *region_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);

/* Gives a busy region other arguments and options; takes over the references of the options. old[0] and old[1] become
 * the old references: release them once the region is not busy any more, as their end may run any code. */
void region_prepare(Region *self, PyObject *arguments, Options *options, PyObject **old);

/* Enters a busy region. Returns the tuple of its pointers; NULL with an exception. The caller sets the state. */
PyObject *region_enter_open(Region *self);

/* Leaves the region if it is open. body: the exception that its body raised, or NULL. Returns 0, or -1 with an
 * exception. */
int region_leave(Region *self, PyObject *body);

/* -- open.c -------------------------------------------------------------------------------------------------------- */
/* Adds a region that was just entered to the list, with the line that entered it. Returns 0, or -1 with an
 * exception. */
int list_open(Region *self, int by_open);

/* Takes the region out of the list, if it is there, before its arrays are released. */
void unlist_open(Region *self);

/* Warns if open() entered the region inside another one that open() entered and left open, and both lend memory that
 * the host could write. Returns 0, or -1 with an exception. */
int warn_inside(Region *self);

/* Methods of the type. */
PyObject *open_around(PyObject *self, PyObject *nothing); /* -> the enclosing open region, or None */
PyObject *open_place(PyObject *self, PyObject *nothing);  /* -> (code, line) of its entry; None: not known */

#pragma GCC visibility pop
#endif
