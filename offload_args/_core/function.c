/* The functions of vendor libraries: one builtin for each routine, made when its name is first used.
 *
 * A builtin reads its arguments by its routine's record, runs the routine, and returns the results (results.c). If
 * arguments are wrong, explain.c calls offload_args._explain, which is in Python, to explain them. */
#include "function.h"
#include "recorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 256 }; /* bytes of host memory, in one call, for the parameters with a count */

/* -- which argument is which --------------------------------------------------------------------------------------- */
/* Returns the address of a keyword's value, NULL for an unknown name. *index: the parameter's number, -1 for result and
 * handle. */
static PyObject **place_of(const Function *function, Arguments *arguments, PyObject *name, int *index) {
  for (*index = 0; *index < function->positional; ++*index)
    if (PyUnicode_Compare(function->parameters[*index].name, name) == 0) return &arguments->room[*index];
  *index = -1;
  const int takes_result = function->has_result && (function->parameters[function->positional].kind == RESULT ||
                                                    function->routine->has_device_form);
  if (takes_result && PyUnicode_CompareWithASCIIString(name, "result") == 0) return &arguments->result;
  if (function->has_handle && PyUnicode_CompareWithASCIIString(name, "handle") == 0) return &arguments->handle;
  return NULL;
}

/* Finds the value of every parameter if the caller passed anything other than exactly the positional arguments. Returns
 * 0, or -1 with an exception. */
int function_bind(const Function *function, Arguments *arguments, PyObject *const *values, Py_ssize_t count,
                  PyObject *names) {
  if (count > function->positional) return function_misfit(function, values, count, names);
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  if (count == function->positional) {
    arguments->positional = values;
  } else {
    arguments->positional = arguments->room;
    memcpy(arguments->room, values, (size_t)count * sizeof *values);
    memset(arguments->room + count, 0, (size_t)(function->positional - count) * sizeof *values);
  }
  for (Py_ssize_t i = 0; i < named; i++) {
    int index;
    PyObject **place = place_of(function, arguments, PyTuple_GetItem(names, i), &index);
    if (place == NULL || (index >= 0 && index < count)) return function_misfit(function, values, count, names);
    *place = values[count + i];
  }
  for (Py_ssize_t i = count; i < function->positional; i++)
    if (arguments->room[i] == NULL) {
      if (function->parameters[i].kind != OUTPUT && function->parameters[i].kind != NEW_DEVICE)
        return function_misfit(function, values, count, names);
      arguments->room[i] = Py_None;
    }
  if (arguments->result == Py_None) arguments->result = NULL;
  if (arguments->handle == Py_None) arguments->handle = NULL;
  return 0;
}

/* -- reading arguments --------------------------------------------------------------------------------------------- */
/* Reads an integer of 64 bits. Returns 0, or -1 with an exception. */
static inline int read_integer(PyObject *object, int64_t *number) {
  if (PyLong_CheckExact(object)) {
    *number = PyLong_AsLongLong(object);
  } else {
    PyObject *index = bring_newest(object) < 0 ? NULL : PyNumber_Index(object);
    if (index == NULL) return -1;
    *number = PyLong_AsLongLong(index);
    Py_DECREF(index);
  }
  return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Reads an integer into memory of the dtype, which it has to fit. Returns 0, or -1 with or without an exception. */
static int read_integer_of(PyObject *object, int dtype, void *memory) {
  int64_t number, least = 0, most;
  const int64_t bits = 8 * oa_itemsize(dtype);
  if (dtype >= OA_I8 && dtype <= OA_I64) {
    most = INT64_MAX >> (64 - bits);
    least = -most - 1;
  } else if (dtype >= OA_U8 && dtype <= OA_U64) {
    most = bits == 64 ? INT64_MAX : ((int64_t)1 << bits) - 1;
  } else {
    return -1;
  }
  if (read_integer(object, &number) < 0 || number < least || number > most) return -1;
  memcpy(memory, &number, (size_t)oa_itemsize(dtype)); /* its low bytes come first */
  return 0;
}

int function_read_integer(PyObject *object, int64_t *number) { return read_integer(object, number); }

static inline int read_enum(PyObject *object, int64_t *number) {
  return read_integer(object, number) < 0 || *number != (int32_t)*number ? -1 : 0;
}

static __attribute__((noinline)) int read_other_real(PyObject *object, double *number) {
  if (PyObject_TypeCheck(object, (PyTypeObject *)python.complexfloating) || bring_newest(object) < 0) return -1;
  *number = PyFloat_AsDouble(object);
  return *number == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* Reads a real number of any type. Returns 0, or -1 with or without an exception. */
static inline int read_real(PyObject *object, double *number) {
  if (!PyFloat_CheckExact(object)) return read_other_real(object, number);
  *number = PyFloat_AsDouble(object);
  return 0;
}

static int read_complex(PyObject *object, double parts[2]) {
  parts[1] = 0;
  if (PyFloat_CheckExact(object) || PyLong_CheckExact(object)) return read_real(object, &parts[0]);
  PyObject *number = NULL;
  if (bring_newest(object) < 0) return -1;
  if (!PyComplex_Check(object)) { /* complex() itself accepts strings */
    number = PyUnicode_Check(object) ? NULL : PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, object, NULL);
    if (number == NULL) return -1;
    object = number;
  }
  parts[0] = PyComplex_RealAsDouble(object);
  parts[1] = PyComplex_ImagAsDouble(object);
  Py_XDECREF(number);
  return PyErr_Occurred() ? -1 : 0;
}

/* Rounds a number. Returns 0, or -1 if it would become infinite. */
static inline int to_single(double number, float *single) {
  *single = (float)number;
  return __builtin_isinf(*single) && !__builtin_isinf(number) ? -1 : 0;
}

static int to_half(double number, int dtype, uint16_t *half) {
  const int infinity = dtype == OA_F16 ? 0x7c00 : 0x7f80;
  *half = dtype == OA_F16 ? oa_f16_from(number) : oa_bf16_from(number);
  return (*half & 0x7fff) == infinity && !__builtin_isinf(number) ? -1 : 0;
}

static __attribute__((noinline)) int read_other_number(PyObject *object, int dtype, void *memory) {
  double parts[2];
  if (dtype == OA_F16 || dtype == OA_BF16) {
    if (read_real(object, parts) < 0) return -1;
    return to_half(parts[0], dtype, memory);
  }
  if (dtype != OA_C64 && dtype != OA_C128) return read_integer_of(object, dtype, memory);
  if (read_complex(object, parts) < 0) return -1;
  if (dtype == OA_C64) return to_single(parts[0], memory) | to_single(parts[1], (float *)memory + 1);
  memcpy(memory, parts, sizeof parts);
  return 0;
}

/* Reads a number into memory of the dtype. Returns 0, or -1 with or without an exception. */
static int read_number(PyObject *object, int dtype, void *memory) {
  double number;
  if (dtype != OA_F32 && dtype != OA_F64) return read_other_number(object, dtype, memory);
  if (read_real(object, &number) < 0) return -1;
  if (dtype == OA_F32) return to_single(number, memory);
  *(double *)memory = number;
  return 0;
}

int function_read_number(PyObject *object, int dtype, void *memory) { return read_number(object, dtype, memory); }

/* Reads the numbers of a parameter, as many as it has elements, from any iterable. Returns as read_number does. */
static int read_numbers(PyObject *object, const Parameter *parameter, unsigned char *memory) {
  const int64_t itemsize = oa_itemsize(parameter->dtype);
  PyObject *numbers = bring_newest(object) < 0 ? NULL : PySequence_Tuple(object);
  int status = numbers == NULL || PyTuple_Size(numbers) != parameter->elements ? -1 : 0;
  for (int i = 0; status == 0 && i < parameter->elements; i++)
    status = read_number(PyTuple_GetItem(numbers, i), parameter->dtype, memory + i * itemsize);
  Py_XDECREF(numbers);
  return status;
}

/* For read_list. */
static int read_one_enum(PyObject *object, int Py_UNUSED(dtype), void *memory) { return read_enum(object, memory); }
static int read_one_size(PyObject *object, int Py_UNUSED(dtype), void *memory) { return read_integer(object, memory); }

/* Reads a parameter that is a list of pointers or numbers. Returns as read_number does. */
static __attribute__((noinline)) int read_any_list(PyObject *object, const Parameter *parameter, List **lists,
                                                   oa_value *value) {
  if (bring_newest(object) < 0) return -1;
  switch (parameter->kind) {
    case ENUMS:
      return read_list(object, sizeof(int64_t), read_one_enum, OA_ANY, lists, value);
    case SIZES:
      return read_list(object, sizeof(int64_t), read_one_size, OA_ANY, lists, value);
    case SCALARS:
      return read_list(object, (size_t)oa_itemsize(parameter->dtype), read_number, parameter->dtype, lists, value);
    default:
      return read_pointers(object, parameter->dtype, lists, value);
  }
}

/* Reads a device array. Returns 0, or -1 without an exception. */
static inline int read_array(PyObject *object, const Parameter *parameter, oa_value *value) {
  const Pointer *pointer = pointer_of(object);
  if (OA_UNLIKELY(pointer == NULL)) return -1;
  if (OA_UNLIKELY(pointer->dtype != parameter->dtype) && parameter->dtype != OA_ANY) return -1;
  value->pointer = pointer->handle;
  return 0;
}

int function_read_array(PyObject *object, const Parameter *parameter, oa_value *value) {
  return read_array(object, parameter, value);
}

/* Reads an array that may be None. Returns as read_array does. */
static int read_optional(PyObject *object, const Parameter *parameter, oa_value *value) {
  value->pointer = NULL;
  return object == Py_None ? 0 : read_array(object, parameter, value);
}

/* Reads a parameter of a kind up to ARRAY, which is read alike for scalars on the host and on the device. Returns as
 * read_number does. */
static inline int read_usual(PyObject *object, const Parameter *parameter, List **lists, oa_value *value) {
  switch (parameter->kind) {
    case SIZE:
      return read_integer(object, &value->integer);
    case ENUM:
      return read_enum(object, &value->integer);
    case TYPE:
      value->integer = parameter->code;
      return 0;
    case ARRAY:
      return read_array(object, parameter, value);
    case OPTIONAL:
      return read_optional(object, parameter, value);
    default:
      return read_any_list(object, parameter, lists, value);
  }
}

/* Reads the device array of a scalar or result, which has as many elements as the parameter. Returns as read_array
 * does. */
static int read_device_scalar(PyObject *object, const Parameter *parameter, oa_value *value) {
  if (read_array(object, parameter, value) < 0) return -1;
  PyObject *shape = ((Pointer *)object)->shape;
  int64_t size = 1;
  for (Py_ssize_t i = PyTuple_Size(shape) - 1; i >= 0; i--) size *= PyLong_AsLongLong(PyTuple_GetItem(shape, i));
  return size == parameter->elements ? 0 : -1;
}

/* Host memory of one call for the parameters with a count. */
typedef struct {
  _Alignas(16) unsigned char bytes[ROOM];
  size_t used;
  List *lists; /* the lists among the parameters */
} Room;

/* Returns zeros for the parameter's elements: a vendor's function need not write all of its output. */
static void *take_room(Room *room, const Parameter *parameter) {
  void *memory = room->bytes + room->used;
  const size_t bytes = ((size_t)oa_itemsize(parameter->dtype) * (size_t)parameter->elements + 15) & ~(size_t)15;
  room->used += bytes;
  return memset(memory, 0, bytes);
}

enum read { WRONG = -1, ON_HOST, ON_DEVICE };

/* Is called after a wrong argument. Returns ON_DEVICE, without an exception, if a later scalar or the result is on the
 * device, because the caller then meant the other form. */
static __attribute__((cold, noinline)) enum read asks_for_device(const Function *function, const Arguments *arguments,
                                                                 int from) {
  int on_device = arguments->result != NULL;
  for (int i = from; i < function->positional; i++)
    on_device |= arguments->parameters[i].kind >= SCALAR && pointer_of(arguments->positional[i]) != NULL;
  if (!on_device || !function_is_argument_error()) return WRONG;
  PyErr_Clear();
  return ON_DEVICE;
}

/* Reads every argument, scalars as numbers. Returns ON_DEVICE if a scalar or result is on the device; the values are
 * then useless. */
static inline __attribute__((always_inline)) enum read read_on_host(const Function *function,
                                                                    const Arguments *arguments, oa_value *values,
                                                                    Room *room) {
  PyObject *const *objects = arguments->positional;
  const Parameter *parameter = arguments->parameters;
  const int count = function->positional;
  for (int i = 0; i < count; i++, parameter++) {
    PyObject *object = objects[i];
    int wrong = 0;
    if (parameter->kind <= ARRAY) {
      wrong = read_usual(object, parameter, &room->lists, &values[i]);
    } else if (OA_UNLIKELY(pointer_of(object) != NULL)) {
      return ON_DEVICE;
    } else if (parameter->kind != SCALAR && parameter->kind != UPDATE) { /* an output */
      wrong = object != Py_None;
      memset(&values[i], 0, sizeof values[i]);
      if (parameter->elements > 1) values[i].pointer = take_room(room, parameter);
    } else if (parameter->elements == 1) {
      wrong = read_number(object, parameter->dtype, values[i].bytes);
    } else {
      unsigned char *memory = take_room(room, parameter);
      values[i].pointer = memory;
      wrong = read_numbers(object, parameter, memory);
    }
    if (OA_UNLIKELY(wrong)) return asks_for_device(function, arguments, i + 1);
  }
  return arguments->result != NULL ? ON_DEVICE : ON_HOST;
}

/* -- scalars on the device ----------------------------------------------------------------------------------------- */
/* Runs the routine. The caller's own handle is set only during this run, and never while Python code runs. Returns a
 * status. Without the GIL. */
static inline int run(const Function *function, const Arguments *arguments, oa_value *values, int on_device) {
  const oa_routine *routine = function->routine;
  if (OA_UNLIKELY(arguments->strides != NULL)) {
    if (function->has_result) values[function->positional].pointer = arguments->results;
    return oa_routine_repeat(routine, values, on_device, arguments->times, arguments->strides, arguments->lists,
                             arguments->names);
  }
  if (OA_LIKELY(arguments->own_handle == NULL)) return routine->run(routine, values, on_device);
  int status = oa_use_handle(function->library, arguments->own_handle);
  if (status != OA_OK) return status;
  status = routine->run(routine, values, on_device);
  oa_use_handle(function->library, NULL);
  return status;
}

int function_run(const Function *function, const Arguments *arguments, oa_value *values) {
  return run(function, arguments, values, 0);
}

/* Copies a host number to a device scalar. Under memory pressure it collects garbage and retries once. Returns a
 * status, or -1 with an exception. */
static int stage(const void *anchor, const void *number, int dtype, oa_any **staged) {
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_stage(anchor, number, dtype, staged);
  Py_END_ALLOW_THREADS if (status == OA_ERROR_MEMORY) {
    PyObject *collected = PyObject_CallNoArgs(python.collect);
    if (collected == NULL) return -1;
    Py_DECREF(collected);
    Py_BEGIN_ALLOW_THREADS status = oa_stage(anchor, number, dtype, staged);
    Py_END_ALLOW_THREADS
  }
  return status;
}

/* Reads every argument for the form with scalars on the device. hosted[i]: the number of a scalar on the host,
 * otherwise NULL. Returns -1, with or without an exception, for a wrong argument. */
static int read_on_device(const Function *function, const Arguments *arguments, oa_value *values, const void **hosted,
                          oa_value *numbers, Room *room) {
  for (int i = 0; i < function->count; i++) {
    const Parameter *parameter = &arguments->parameters[i];
    PyObject *object = i < function->positional ? arguments->positional[i] : arguments->result;
    int wrong = 0;
    hosted[i] = NULL;
    if (object == NULL) return -1;
    if (parameter->kind <= ARRAY) {
      wrong = read_usual(object, parameter, &room->lists, &values[i]);
    } else if (parameter->kind != SCALAR || pointer_of(object) != NULL) {
      wrong = read_device_scalar(object, parameter, &values[i]);
    } else if (parameter->elements == 1) {
      hosted[i] = numbers[i].bytes;
      wrong = read_number(object, parameter->dtype, numbers[i].bytes);
    } else {
      unsigned char *memory = take_room(room, parameter);
      hosted[i] = memory;
      wrong = read_numbers(object, parameter, memory);
    }
    if (wrong) return -1;
  }
  return 0;
}

/* Returns any device pointer of a call: staged scalars go to its region. */
static const void *anchor_of(const Function *function, const oa_value *values, const void *const *hosted) {
  for (int i = 0; i < function->count; i++) {
    const enum kind kind = function->parameters[i].kind;
    const void *pointer = kind >= OPTIONAL && hosted[i] == NULL ? values[i].pointer : NULL;
    if (kind == POINTERS) {
      const oa_pointer_list *list = values[i].pointer;
      pointer = list->first != NULL ? list->first : list->count > 0 ? list->at[0] : NULL;
    }
    if (pointer != NULL) return pointer;
  }
  return NULL;
}

/* Calls the form of a routine whose scalars and results are on the device. Host scalars are copied there once all other
 * arguments are checked, and their memory is freed in the order of the stream. */
static __attribute__((noinline)) PyObject *call_on_device(const Function *function, const Arguments *arguments) {
  oa_value values[MOST_VALUES], numbers[MOST_VALUES];
  const void *hosted[MOST_VALUES];
  oa_any *staged[MOST_VALUES];
  Room room = {.used = 0};
  int count = 0, status = OA_OK;
  if (!function->routine->has_device_form || read_on_device(function, arguments, values, hosted, numbers, &room) < 0) {
    release_lists(room.lists);
    return function_explain(function, arguments, 1);
  }
  const void *anchor = anchor_of(function, values, hosted);
  for (int i = 0; i < function->count && status == OA_OK; i++) {
    if (hosted[i] == NULL) continue;
    status = stage(anchor, hosted[i], arguments->parameters[i].dtype, &staged[count]);
    if (status == OA_OK) values[i].pointer = staged[count++];
  }
  if (status == OA_ERROR_STALE) /* the anchor is stale: the routine, which refuses it, names the argument */
    for (int i = 0; i < function->count; i++)
      if (hosted[i] != NULL) values[i].pointer = (void *)anchor;
  if (status == OA_OK || status == OA_ERROR_STALE) {
    Py_BEGIN_ALLOW_THREADS status = run(function, arguments, values, 1);
    Py_END_ALLOW_THREADS
  }
  if (status != OA_OK && !PyErr_Occurred()) fail(status);
  for (int i = 0; i < count; i++) oa_pointer_release(staged[i]);
  release_lists(room.lists);
  if (status != OA_OK) return NULL;
  Py_RETURN_NONE;
}

/* -- the call ------------------------------------------------------------------------------------------------------ */
static __attribute__((noinline)) PyObject *call_known(const Function *function, const Arguments *arguments) {
  oa_value values[MOST_VALUES];
  Room room;
  int status;
  room.used = 0;
  room.lists = NULL;
  const enum read read = read_on_host(function, arguments, values, &room);
  if (OA_UNLIKELY(read != ON_HOST)) {
    release_lists(room.lists);
    return read == ON_DEVICE ? call_on_device(function, arguments) : function_explain(function, arguments, 0);
  }
  Py_BEGIN_ALLOW_THREADS status = run(function, arguments, values, 0);
  Py_END_ALLOW_THREADS if (OA_UNLIKELY(status != OA_OK)) fail(status);
  if (OA_UNLIKELY(room.lists != NULL)) release_lists(room.lists);
  if (OA_UNLIKELY(status != OA_OK)) return NULL;
  if (function->has_result)
    return function_number(&arguments->parameters[function->positional], values[function->positional].bytes);
  if (function->has_outputs) return function_outputs(function, arguments->parameters, values);
  Py_RETURN_NONE;
}

/* Finds the constant for the dtype of the first array that a TYPE determines. Returns 0, or -1 without an exception. */
static int type_of_array(const Function *function, const Arguments *arguments, int place, int64_t *code) {
  const oa_routine *routine = function->routine;
  const oa_typed *own = routine->typed, *end = own + routine->typed_count;
  while (own->place != place) own++;
  for (const oa_typed *typed = routine->typed; typed < end; typed++) {
    if (typed->from != place || typed == own) continue;
    const Pointer *pointer = pointer_of(arguments->positional[typed->place]);
    for (const oa_code_dtype *entry = own->codes; pointer != NULL && entry->name != NULL; entry++) {
      *code = entry->code;
      if (entry->dtype == pointer->dtype) return 0;
    }
  }
  return -1;
}

/* Reads a constant that stands for a dtype, or a NumPy dtype. Returns 0, or -1 with or without an exception. */
static int read_type(const Function *function, int place, PyObject *object, int64_t *code) {
  if (PyIndex_Check(object)) return read_enum(object, code);
  PyObject *answer = call_in_module("offload_args._explain", "dtype_code", Py_BuildValue("(O)", object));
  const long dtype = answer == NULL ? -1 : PyLong_AsLong(answer);
  Py_XDECREF(answer);
  const oa_typed *typed = function->routine->typed;
  while (typed->place != place) typed++; /* each TYPE has its entry */
  for (const oa_code_dtype *entry = typed->codes; dtype > OA_ANY && entry->name != NULL; entry++) {
    *code = entry->code;
    if (entry->dtype == dtype) return 0;
  }
  return -1;
}

int function_find_dtypes(const Function *function, Arguments *arguments, Parameter *parameters) {
  oa_value values[MOST_VALUES];
  unsigned char dtypes[MOST_VALUES];
  memcpy(parameters, function->parameters, (size_t)function->count * sizeof *parameters);
  for (int i = 0; i < function->positional; i++) {
    if (parameters[i].kind != TYPE) continue;
    const int from_array = arguments->positional[i] == Py_None && parameters[i].role->more != NULL;
    if (from_array && type_of_array(function, arguments, i, &values[i].integer) == 0) {
      parameters[i].code = (int)values[i].integer;
      continue;
    }
    if (read_type(function, i, arguments->positional[i], &values[i].integer) < 0) {
      if (!function_is_argument_error()) return -1;
      PyErr_Clear();
      Py_XDECREF(call_in_module(
          "offload_args._explain", "refuse_type",
          Py_BuildValue("(sOO)", function->routine->function, parameters[i].name, arguments->positional[i])));
      return -1;
    }
    parameters[i].code = (int)values[i].integer;
  }
  const int status = oa_routine_dtypes(function->routine, values, dtypes);
  if (status != OA_OK) {
    fail(status);
    return -1;
  }
  for (int i = 0; i < function->count; i++) parameters[i].dtype = dtypes[i];
  arguments->parameters = parameters;
  return 0;
}

static __attribute__((noinline)) PyObject *call_typed(const Function *function, Arguments *arguments) {
  Parameter parameters[MOST_VALUES];
  return function_find_dtypes(function, arguments, parameters) < 0 ? NULL : call_known(function, arguments);
}

static inline PyObject *call_with(const Function *function, Arguments *arguments) {
  if (OA_UNLIKELY(function->routine->typed_count)) return call_typed(function, arguments);
  return call_known(function, arguments);
}

PyObject *function_call_with(const Function *function, Arguments *arguments) { return call_with(function, arguments); }

int function_find_handle(const Function *function, Arguments *arguments) {
  PyObject *address = call_in_module("offload_args._explain", "handle_address",
                                     Py_BuildValue("(sO)", function->routine->function, arguments->handle));
  if (address == NULL) return -1;
  arguments->own_handle = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return PyErr_Occurred() ? -1 : 0;
}

/* Makes the call with the caller's own handle, on the stream of this handle. */
static __attribute__((noinline)) PyObject *call_with_handle(const Function *function, Arguments *arguments) {
  return function_find_handle(function, arguments) < 0 ? NULL : call_with(function, arguments);
}

static inline PyObject *call_function(const Function *function, PyObject *const *values, Py_ssize_t count,
                                      PyObject *names) {
  Arguments arguments;
  arguments.parameters = function->parameters;
  arguments.result = arguments.handle = NULL;
  arguments.own_handle = NULL;
  arguments.strides = NULL;
  if (OA_LIKELY(count == function->positional && names == NULL)) {
    arguments.positional = values;
    return call_with(function, &arguments);
  }
  if (function_bind(function, &arguments, values, count, names) < 0) return NULL;
  if (arguments.handle != NULL) return call_with_handle(function, &arguments);
  return call_with(function, &arguments);
}

PyObject *function_tell(const char *kind, const Function *function, PyObject *const *values, Py_ssize_t count,
                        PyObject *names, PyObject *result) {
  const char *name = strchr(function->routine->function, '.') + 1;
  if (strcmp(kind, "call") == 0) {
    const Recorded call = {function->library, name, values, count, names};
    const int done = lines_end(&call, result);
    if (done < 0) Py_CLEAR(result);
    if (done != 0) return result;
  }
  PyObject *subject = Py_BuildValue("ss", function->library, name);
  if (subject == NULL) return result;
  result = tell_recorder_values(kind, subject, values, count, names, result);
  Py_DECREF(subject);
  return result;
}

/* Calls the function, and reports to the recorder. */
static __attribute__((cold, noinline)) PyObject *call_recorded(const Function *function, PyObject *const *values,
                                                               Py_ssize_t count, PyObject *names) {
  if (atomic_load_explicit(&recording, memory_order_relaxed) == RECORDS_BEGINNINGS) {
    PyObject *none = function_tell("begun", function, values, count, names, Py_NewRef(Py_None));
    if (none == NULL) return NULL;
    Py_DECREF(none);
  }
  return function_tell("call", function, values, count, names, call_function(function, values, count, names));
}

static PyObject *call(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  const Function *function = *(Function **)PyModule_GetState(self);
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed)))
    return call_recorded(function, values, count, names);
  return call_function(function, values, count, names);
}

PyObject *function_call(const Function *function, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed)))
    return call_recorded(function, values, count, names);
  return call_function(function, values, count, names);
}

/* -- making one ---------------------------------------------------------------------------------------------------- */
static void function_free(void *module) {
  Function **state = PyModule_GetState(module);
  Function *function = state == NULL ? NULL : *state;
  if (function == NULL) return;
  for (int i = 0; i < function->count; i++) Py_XDECREF(function->parameters[i].name);
  PyMem_Free(function);
}

/* The type of a builtin's self: a module that has only its Function. Python therefore treats the builtin as a function
 * of a module: its repr shows this, and it is pickled by its name. */
static struct PyModuleDef carrier = {PyModuleDef_HEAD_INIT, .m_name = "offload_args._core.routine",
                                     .m_size = sizeof(Function *), .m_free = function_free};

const Function *function_of(PyObject *object) {
  PyObject *self = PyCFunction_Check(object) ? PyCFunction_GetSelf(object) : NULL;
  return self != NULL && PyModule_Check(self) && PyModule_GetDef(self) == &carrier
             ? *(Function **)PyModule_GetState(self)
             : NULL;
}

/* Fills a function's parameters from its routine's record. Returns 0, or -1 with or without an exception. */
static int read_record(Function *function) {
  static const enum kind kinds[] = {
#define OA_ROLE(name, text, kind) kind,
#include "offload_args/roles.def"
#undef OA_ROLE
  };
  const oa_routine *routine = function->routine;
  int64_t room = 0;
  for (int i = 0; i < routine->count; i++) {
    const oa_role *role = &routine->record[i];
    const enum kind kind = kinds[role->role];
    Parameter *parameter = &function->parameters[i];
    parameter->role = role;
    parameter->kind = kind;
    parameter->dtype = (unsigned char)routine->dtypes[i];
    parameter->is_index = kind == RESULT && parameter->dtype == OA_I32;
    parameter->elements = kind < FIRST_OF_HELPERS || kind == GIVEN_LIST ? role->count : 1;
    parameter->more = kind < FIRST_OF_HELPERS || role->more == NULL ? "" : role->more;
    parameter->name = PyUnicode_InternFromString(role->name);
    if (parameter->name == NULL) return -1;
    function->count++;
    function->has_result = kind == RESULT || kind == VALUE;
    function->has_outputs |= kind == UPDATE || kind == OUTPUT;
    const int64_t itemsize = parameter->dtype == OA_ANY ? (int64_t)sizeof(oa_value) : oa_itemsize(parameter->dtype);
    function->is_helper |= kind >= FIRST_OF_HELPERS;
    function->positional +=
        kind != RESULT && kind != VALUE && kind != GIVEN && kind != GIVEN_LIST && kind != GIVEN_BYTES && kind != NEW;
    if (parameter->elements > 1 && kind != GIVEN_LIST) room += (itemsize * parameter->elements + 15) & ~15;
  }
  return room <= ROOM ? 0 : -1;
}

/* Returns a new function, or NULL with an exception. */
static Function *function_from(const oa_routine *routine, const char *library, const char *name) {
  const size_t count = routine->count;
  Function *function = PyMem_Calloc(1, sizeof *function + count * sizeof *function->parameters);
  if (function == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  const char *signature_end = strstr(routine->doc, "--");
  const char *handle = strstr(routine->doc, "handle=None");
  function->routine = routine;
  function->has_handle = handle != NULL && handle < signature_end;
  snprintf(function->library, sizeof function->library, "%s", library);
  if (count <= MOST_VALUES && read_record(function) == 0) {
    void (*called)(void) = (void (*)(void))(function->is_helper ? helper_call : call);
    function->method = (PyMethodDef){name, (PyCFunction)called, METH_FASTCALL | METH_KEYWORDS, routine->doc};
    return function;
  }
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_SystemError, "%s: it takes more than a call has room for", routine->function);
  for (int i = 0; i < function->count; i++) Py_XDECREF(function->parameters[i].name);
  PyMem_Free(function);
  return NULL;
}

/* (library, name, module) -> the builtin of that routine; None if the library has no such routine */
static PyObject *make_function(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *name;
  PyObject *home;
  if (!PyArg_ParseTuple(arguments, "ssU", &library, &name, &home)) return NULL;
  const oa_routine *routine = oa_routine_find(library, name);
  if (routine == NULL) Py_RETURN_NONE;
  PyObject *self = PyModule_Create(&carrier), *builtin = NULL;
  Function *function = self == NULL ? NULL : function_from(routine, library, strchr(routine->function, '.') + 1);
  if (function != NULL) {
    *(Function **)PyModule_GetState(self) = function;
    builtin = PyCFunction_NewEx(&function->method, self, home);
  }
  Py_XDECREF(self);
  return builtin;
}

/* (library) -> the names of its routines, as a list */
static PyObject *routine_names(PyObject *Py_UNUSED(module), PyObject *argument) {
  const oa_routine *routines = NULL;
  int count = 0;
  const char *library = PyUnicode_Check(argument) ? PyUnicode_AsUTF8AndSize(argument, NULL) : NULL;
  if (library == NULL) return PyErr_Format(PyExc_TypeError, "routine_names: library needs a string, got %R", argument);
  const int status = oa_library_routines(library, &routines, &count);
  if (status != OA_OK) return fail(status);
  PyObject *names = PyList_New(count);
  for (int i = 0; names != NULL && i < count; i++) {
    PyObject *name = PyUnicode_FromString(strchr(routines[i].function, '.') + 1);
    if (name == NULL)
      Py_CLEAR(names);
    else
      PyList_SetItem(names, i, name);
  }
  return names;
}

/* (library, name) -> that routine's record: (role, name, dtype, more, count) for each value; () if there is no such
 * routine */
static PyObject *routine_record(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *name;
  if (!PyArg_ParseTuple(arguments, "ss", &library, &name)) return NULL;
  return function_record(oa_routine_find(library, name));
}

/* (library, name, values: the enums at their indices, and anything elsewhere) -> the dtype of each value in such a
 * call: its number; OA_ANY for enums and sizes */
static PyObject *routine_dtypes(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *library, *name;
  PyObject *tuple;
  oa_value values[MOST_VALUES];
  unsigned char dtypes[MOST_VALUES];
  if (!PyArg_ParseTuple(arguments, "ssO!", &library, &name, &PyTuple_Type, &tuple)) return NULL;
  const oa_routine *routine = oa_routine_find(library, name);
  if (routine == NULL) return fail(OA_ERROR_ARGUMENT);
  memset(values, 0, sizeof values);
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple) && i < MOST_VALUES; i++)
    if (PyLong_Check(PyTuple_GetItem(tuple, i)) && read_enum(PyTuple_GetItem(tuple, i), &values[i].integer) < 0)
      PyErr_Clear();
  const int status = oa_routine_dtypes(routine, values, dtypes);
  return status == OA_OK ? PyBytes_FromStringAndSize((const char *)dtypes, routine->count) : fail(status);
}

static PyMethodDef functions[] = {
    {"function", make_function, METH_VARARGS, NULL},
    {"routine_names", routine_names, METH_O, NULL},
    {"record", routine_record, METH_VARARGS, NULL},
    {"routine_dtypes", routine_dtypes, METH_VARARGS, NULL},
    {"repeat", (PyCFunction)(void (*)(void))function_repeat, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_function(PyObject *module) { return PyModule_AddFunctions(module, functions); }
