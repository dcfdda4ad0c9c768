/* One call of a function or a kernel in a new region. */
#ifndef OFFLOAD_ARGS_CORE_CALL_H
#define OFFLOAD_ARGS_CORE_CALL_H

#include "region.h"

#pragma GCC visibility push(hidden)

/* How an argument reaches the function: unchanged, as a pointer, or not at all. */
enum role { PASSED, LENT, OPTION };

typedef struct {
  PyObject *const *values; /* the positional arguments after the function, then the keyword arguments; borrowed */
  PyObject *names;         /* of the keyword arguments; borrowed; NULL: there are none */
  Py_ssize_t positional, count;
  char *roles, few[32];
  uint64_t reused; /* by position, and after lent_of() by index among the lent arguments */
  int of_kernel;   /* 1: packed arrays are refused, and need no warning */
  Options options;
} Call;

/* A function or kernel to call: gets the pointers of the lent arguments in their order. Returns its value; NULL with an
 * exception. */
typedef PyObject *Body(const Call *call, void *context, PyObject *pointers);

/* Returns 1 if a call lends an argument, otherwise 0; -1 with an exception. */
int is_lent_by_call(PyObject *argument);

/* Returns the arguments whose role is LENT as a tuple, in their order; NULL with an exception. */
PyObject *lent_of(Call *call);

/* Calls the body in a region that lends these arguments. Returns its value; NULL with an exception. */
PyObject *call_in_region(Call *call, PyObject *lent, Body *body, void *context);

#pragma GCC visibility pop
#endif
