/* Functions of vendor libraries inside the extension: what one is, and how its arguments are read. */
#ifndef OFFLOAD_ARGS_CORE_FUNCTION_H
#define OFFLOAD_ARGS_CORE_FUNCTION_H

#include "module.h"

#include "offload_args/routine.h"

#pragma GCC visibility push(hidden)

enum { MOST_VALUES = 36 };

/* Of parameters; those from FIRST_OF_SERVICES on are of services only. */
enum kind {
  ENUM,
  TYPE,
  SIZE,
  ENUMS, /* and the two that follow: lists of numbers */
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
  FIRST_OF_SERVICES,
  INTEGER = FIRST_OF_SERVICES,
  OBJECT, /* an object of the library's */
  OBJECT_OR_NONE,
  HELD,       /* an object or None, which the first object uses from now on */
  INTEGERS,   /* a list of integers of 32 bits */
  TEXT,       /* more: "none" if None will do */
  NEW_DEVICE, /* the device of a new object */
  SET_STREAM,
  HOST_ARRAY,
  STRUCT,     /* by value; more: the format of its fields, as Python's struct module has them */
  KEPT,       /* device memory that an object keeps, or None */
  GIVEN,      /* an output: an integer, or of more: "text" or "stream" */
  GIVEN_LIST, /* integers, or of more: "text", or structs of that format; elements: the place that says how many */
  NEW         /* an object that the function makes */
};

typedef struct {
  enum kind kind;
  int dtype;      /* oa_dtype; OA_ANY of integers, of what has no dtype, and where a TYPE says it, until it is known */
  int elements;   /* 1, or the count of the record */
  int code;       /* of a TYPE: the constant that the caller passed */
  int is_index;   /* a result that is an index: of 64 bits on the host, and of 32 on the device */
  PyObject *name; /* interned */
  char more[32];  /* of services: the third field of the record, unless that is a dtype */
} Parameter;

/* One builtin's data. It lives as long as the module object that is the builtin's self. */
typedef struct {
  const oa_routine *routine;
  int count;      /* of parameters */
  int positional; /* those that Python passes by place: not the result, which is a keyword, and not what is given */
  int has_result, has_outputs, has_handle, is_service;
  char library[64]; /* its name */
  PyMethodDef method;
  Parameter parameters[];
} Function;

/* The values that a caller passed, as the caller's references. */
typedef struct {
  const Parameter *parameters; /* the function's, or as this call has them */
  PyObject *const *positional;
  PyObject *result, *handle; /* NULL where not given, or None */
  void *own_handle;          /* what handle stands for: an address or an oa_object; NULL: the region's handle */
  const int64_t *strides;    /* of the arrays of a call that is repeated; NULL of others */
  const void *const **lists; /* the pointers of those that are in lists, NULL of others */
  int64_t times;             /* that it is repeated */
  const char *names;         /* of those arrays, one letter each; or "" */
  PyObject *room[MOST_VALUES];
} Arguments;

/* -- function.c ---------------------------------------------------------------------------------------------------- */
/* Finds the value of every parameter. Returns 0, or -1 with an exception. */
int function_bind(const Function *function, Arguments *arguments, PyObject *const *values, Py_ssize_t count,
                  PyObject *names);

/* Raises what is wrong with the arguments, now that they could not be read; if none of them is to blame, the current
 * exception stays. Returns NULL. */
PyObject *function_explain(const Function *function, const Arguments *arguments);

/* Returns the data of a builtin; NULL without an exception if the object is none of them. */
const Function *function_of(PyObject *object);

/* Reads an integer of 64 bits. Returns 0, or -1 with an exception. */
int function_read_integer(PyObject *object, int64_t *number);

/* Reads a device array. Returns 0, or -1 without an exception. */
int function_read_array(PyObject *object, const Parameter *parameter, oa_value *value);

/* Reads a number into memory of the dtype. Returns 0, or -1 with or without an exception. */
int function_read_number(PyObject *object, int dtype, void *memory);

/* Returns a number of the parameter's dtype as Python has it. */
PyObject *function_number(const Parameter *parameter, const void *memory);

/* Finds what the caller's own handle stands for. Returns 0, or -1 with an exception. */
int function_find_handle(const Function *function, Arguments *arguments);

/* Finds the dtypes that arguments say, into parameters, which becomes this call's. Returns 0, or -1 with an
 * exception. */
int function_find_dtypes(const Function *function, Arguments *arguments, Parameter *parameters);

/* Has the routine run, with the caller's own handle if there is one. Returns a status. Without the GIL. */
int function_run(const Function *function, const Arguments *arguments, oa_value *values);

/* -- service.c ----------------------------------------------------------------------------------------------------- */
/* The METH_FASTCALL | METH_KEYWORDS function of services. self: a module whose state is the Function. */
PyObject *service_call(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names);

/* -- object.c ------------------------------------------------------------------------------------------------------ */
/* An object that a library made. */
typedef struct {
  PyObject_HEAD oa_object *handle; /* NULL until it is made */
  PyObject *stream;                /* the caller's own stream that it has; NULL: none */
  PyObject *kept;                  /* a dict of the DevicePtrs that it keeps, by the parameter's name; NULL: none */
  const char *library, *kind;      /* "cublas", "Handle" */
} Object;

/* Returns the object as an Object, NULL without an exception if it is none. */
Object *object_from(PyObject *object);

/* Returns a new Object without a handle, of the class of that library's kind; NULL with an exception. */
Object *object_new(const char *library, const char *kind);

/* Calls a function of offload_args.objects; steals arguments, which may be NULL with an exception set. */
PyObject *object_ask(const char *name, PyObject *arguments);

#pragma GCC visibility pop
#endif
