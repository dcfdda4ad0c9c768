/* Functions of vendor libraries in the extension: their data, and how their arguments are read. */
#ifndef OFFLOAD_ARGS_CORE_FUNCTION_H
#define OFFLOAD_ARGS_CORE_FUNCTION_H

#include "module.h"

#include "offload_args/routine.h"

#pragma GCC visibility push(hidden)

enum { MOST_VALUES = 36 };

/* Kinds of parameters; only helper functions have kinds from FIRST_OF_HELPERS on. Kinds up to ARRAY are read alike for
 * scalars on the host and on the device. */
enum kind {
  ENUM,
  TYPE,
  SIZE,
  ENUMS, /* and the next two: lists of numbers */
  SIZES,
  SCALARS,
  POINTERS,
  OPTIONAL,
  ARRAY,
  SCALAR,
  RESULT,
  VALUE, /* a result that is always on the host */
  UPDATE,
  OUTPUT,
  FIRST_OF_HELPERS,
  INTEGER = FIRST_OF_HELPERS,
  OBJECT, /* an object of the library's */
  OBJECT_OR_NONE,
  HELD,       /* an object or None, which the first object uses from now on */
  INTEGERS,   /* a list of 32-bit integers */
  NEW_DEVICE, /* the device of a new object */
  SET_STREAM,
  HOST_ARRAY,
  KEPT,  /* device memory that an object keeps, or None */
  GIVEN, /* an output: an integer, or with `more`: "text" or "stream" */
  BYTES, /* bytes, as many as the record states */
  GIVEN_BYTES,
  GIVEN_LIST, /* integers, or structs of the format in `more`; elements: the index of the value with their number */
  NEW         /* an object that the function makes */
};

typedef struct {
  enum kind kind;
  /* oa_dtype; OA_ANY for integers, for values without a dtype, and, until it is known, for one that a TYPE
   * determines */
  int dtype;
  int elements;     /* 1, or the record's count */
  int code;         /* of a TYPE: the constant that the caller passed */
  int is_index;     /* a result that is an index: 64 bits on the host, 32 on the device */
  PyObject *name;   /* interned */
  const char *more; /* for helper functions: from the record; "" for none */
  const oa_role *role;
} Parameter;

/* One builtin's data. It lives as long as the module object that is the builtin's self. */
typedef struct {
  const oa_routine *routine;
  int count;      /* number of parameters */
  int positional; /* parameters that Python passes by position: not the result, which is a keyword, and not outputs */
  int has_result, has_outputs, has_handle, is_helper;
  char library[64]; /* the library's name */
  PyMethodDef method;
  Parameter parameters[];
} Function;

/* The values that a caller passed, as the caller's references. */
typedef struct {
  const Parameter *parameters; /* the function's, or this call's own */
  PyObject *const *positional;
  PyObject *result, *handle; /* NULL if not passed, or None */
  void *own_handle;          /* the address or oa_object that handle stands for; NULL: the region's handle */
  const int64_t *strides;    /* of the arrays of a repeated call; otherwise NULL */
  const void *const **lists; /* the pointers of arrays in lists; otherwise NULL */
  int64_t times;             /* the number of repetitions */
  oa_value *results;         /* memory for the result of each */
  const char *names;         /* of those arrays, one letter each; or "" */
  PyObject *room[MOST_VALUES];
} Arguments;

/* -- function.c ---------------------------------------------------------------------------------------------------- */
/* Finds the value of every parameter. Returns 0, or -1 with an exception. */
int function_bind(const Function *function, Arguments *arguments, PyObject *const *values, Py_ssize_t count,
                  PyObject *names);

/* Returns the data of a builtin; NULL without an exception if the object is not one. */
const Function *function_of(PyObject *object);

/* Calls a function that is not a helper function, with the arguments of its builtin. */
PyObject *function_call(const Function *function, PyObject *const *values, Py_ssize_t count, PyObject *names);

/* Reports a call to the recorder; with the kind "begun", the call that comes next. Returns as tell_recorder() does. */
__attribute__((cold)) PyObject *function_tell(const char *kind, const Function *function, PyObject *const *values,
                                              Py_ssize_t count, PyObject *names, PyObject *result);

/* Reads an integer of 64 bits. Returns 0, or -1 with an exception. */
int function_read_integer(PyObject *object, int64_t *number);

/* Reads a device array. Returns 0, or -1 without an exception. */
int function_read_array(PyObject *object, const Parameter *parameter, oa_value *value);

/* Reads a number into memory of the dtype. Returns 0, or -1 with or without an exception. */
int function_read_number(PyObject *object, int dtype, void *memory);

/* Finds the address or object of the caller's own handle. Returns 0, or -1 with an exception. */
int function_find_handle(const Function *function, Arguments *arguments);

/* Finds the dtypes that arguments determine, and writes them to parameters, which become this call's. Returns 0, or -1
 * with an exception. */
int function_find_dtypes(const Function *function, Arguments *arguments, Parameter *parameters);

/* Runs the routine, with the caller's own handle if there is one. Returns a status. Without the GIL. */
int function_run(const Function *function, const Arguments *arguments, oa_value *values);

/* Calls a function that is not a helper function, with arguments that were bound. */
PyObject *function_call_with(const Function *function, Arguments *arguments);

/* -- repeat.c ------------------------------------------------------------------------------------------------------ */
/* (function, times, steps, names, *arguments): calls oa_routine_repeat. steps: a tuple with, for each array of the
 * function, a stride, or a list or tuple of its DevicePtrs, which the caller keeps alive. All arguments are
 * positional. Returns None, or a list of the results of the repetitions. */
PyObject *function_repeat(PyObject *module, PyObject *const *values, Py_ssize_t count);

/* -- results.c ----------------------------------------------------------------------------------------------------- */
/* Returns a number of the parameter's dtype as a Python object. */
PyObject *function_number(const Parameter *parameter, const void *memory);

/* Returns the new values of a routine's updates and outputs as a tuple; NULL with an exception. */
PyObject *function_outputs(const Function *function, const Parameter *parameters, const oa_value *values);

/* -- explain.c ----------------------------------------------------------------------------------------------------- */
/* Raises the fault of the arguments, after they could not be read; if none of them is wrong, the current exception
 * stays. on_device: scalars and results have to be on the device. Returns NULL. */
__attribute__((cold)) PyObject *function_explain(const Function *function, const Arguments *arguments, int on_device);

/* Raises the TypeError of a call whose arguments do not fit the signature. Returns -1. */
__attribute__((cold)) int function_misfit(const Function *function, PyObject *const *values, Py_ssize_t count,
                                          PyObject *names);

/* Returns whether the current exception may come from a wrong argument; 1 also without an exception. */
int function_is_argument_error(void);

/* Calls a function of a module, such as "offload_args._explain". Steals arguments, which may be NULL with an exception
 * set. Returns NULL with an exception after a failure. */
PyObject *call_in_module(const char *name_of_module, const char *name, PyObject *arguments);

/* Returns a routine's record as a tuple of (role, name, dtype, more, count); NULL with an exception. */
PyObject *function_record(const oa_routine *routine);

/* -- helper.c ------------------------------------------------------------------------------------------------------ */
/* The METH_FASTCALL | METH_KEYWORDS function of helper functions. self: a module whose state is the Function. */
PyObject *helper_call(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);

/* -- object.c ------------------------------------------------------------------------------------------------------ */
/* An object that a library made. */
typedef struct {
  PyObject_HEAD oa_object *handle; /* NULL until it is made */
  PyObject *stream;                /* the caller's own stream of the object; NULL: none */
  const char *library, *kind;      /* "cublas", "Handle" */
} Object;

/* Returns the object as an Object, NULL without an exception if it is not one. */
Object *object_from(PyObject *object);

/* Returns a new Object without a handle, of the class of that library's kind; NULL with an exception. */
Object *object_new(const char *library, const char *kind);

#pragma GCC visibility pop
#endif
