/* The names that recording.c shares with lines.c, which writes a recording's lines without Python. */
#ifndef OFFLOAD_ARGS_CORE_RECORDED_H
#define OFFLOAD_ARGS_CORE_RECORDED_H

#include "module.h"

/* A call of a function of a library, or, if `library` is NULL, of blas. The last values have the names. */
typedef struct {
  const char *library, *name;
  PyObject *const *values;
  Py_ssize_t count; /* of values without a name */
  PyObject *names;  /* a tuple, or NULL */
} Recorded;

/* Begins a call of blas: the vendor's calls until its end are parts of it. Returns 1; 0 if Python needs a report of it;
 * -1 with an exception. */
int lines_begin(const Recorded *call);
/* Returns whether this thread's present call was made before with the same values: its vendor calls then need no
 * report. */
int lines_are_known(void);
/* Notes that the call for which lines_begin returned 0 has ended. */
void lines_told(void);
/* Ends a call, with its result or NULL. Returns as lines_begin does. */
int lines_end(const Recorded *call, PyObject *result);

PyObject *lines_take(PyObject *module, PyObject *written);
PyObject *lines_set(PyObject *module, PyObject *arguments);
PyObject *lines_are_inside(PyObject *module, PyObject *nothing);
void lines_after_fork(void);

#endif
