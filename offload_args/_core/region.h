/* Regions inside the extension: the object, its options, and entering and leaving it for call(). */
#ifndef OFFLOAD_ARGS_CORE_REGION_H
#define OFFLOAD_ARGS_CORE_REGION_H

#include "module.h"

#pragma GCC visibility push(hidden)

/* -- options.c ----------------------------------------------------------------------------------------------------- */
enum option { DEVICE, STREAM, ON_ERROR, RESIDENT, OPTIONS };

typedef struct {
  PyObject *given[OPTIONS]; /* as the caller passed them; owned; NULL: the default */
  PyObject *stream;         /* the handle as an int, or None; owned */
  int device, keep_on_error, resident;
} Options;

/* Makes the names of the options. Returns 0, or -1 with an exception. */
int start_options(void);

/* Releases the references that options own. */
void release_options(Options *options);

/* Returns which of the first `known` options a keyword names, or `known` if it names none of them; -1 with TypeError if
 * the keyword is not a string. */
int find_option(PyObject *name, int known);

/* Reads the given options into the others. Returns 0, or -1 with an exception. Runs no Python code for a Device and for
 * defaults. */
int read_options(Options *options);

/* -- region.c ------------------------------------------------------------------------------------------------------ */
enum { CLOSED, BUSY, OPEN };

/* A region. Its members change only while it is busy, by the code that made it busy. */
typedef struct {
  PyObject_HEAD PyObject *arguments; /* a tuple */
  PyObject *stream;   /* the handle of the caller's own stream as an int, or None; NULL before __init__ */
  PyObject *pointers; /* a tuple while the region is open, otherwise NULL */
  int device;         /* a number; -1: that of the first borrowed argument, else the default device */
  int keep_on_error;
  int resident;    /* 1: the device memory of its arrays becomes resident */
  int once;        /* 1: one call uses each array */
  uint64_t reused; /* of once: bit i is set if the call reads each element of argument i many times */
  int stacklevel;  /* of warnings; 1: the caller of __enter__ and __exit__ */
  atomic_int state;
  Py_ssize_t count; /* of arguments */
  Held *held;       /* one for each argument, while the region is open */
  oa_region *region;
  long long tag; /* of the trace; 0: not traced */
} Region;

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

#pragma GCC visibility pop
#endif
