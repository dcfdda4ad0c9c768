/* Calls of helper functions, which make, set, ask, name and destroy objects of a library, and of functions that compute
 * with descriptors. */
#include "function.h"

#include <stdlib.h>
#include <string.h>

/* -- reading arguments --------------------------------------------------------------------------------------------- */
/* Each reads one argument. Returns 0, or -1 with or without an exception. */
static int read_sized(PyObject *object, int dtype, oa_value *value) {
  if (function_read_integer(object, &value->integer) < 0) return -1;
  const int64_t number = value->integer;
  if (dtype == OA_I32) return number == (int32_t)number ? 0 : -1;
  if (dtype == OA_U32) return number == (uint32_t)number ? 0 : -1;
  return dtype == OA_U64 && number < 0 ? -1 : 0;
}

static int read_object(const Function *function, const Parameter *parameter, PyObject *object, oa_value *value) {
  const Object *self = object_from(object);
  if (self == NULL || self->library == NULL || strcmp(self->library, function->library) != 0 ||
      strcmp(self->kind, parameter->more) != 0)
    return -1;
  value->pointer = self->handle;
  return 0;
}

/* The memory and references that one call holds until its end. */
typedef struct {
  int count, allocated;
  Item items[MOST_VALUES];
  oa_array arrays[MOST_VALUES];
  oa_number_list lists[MOST_VALUES];
  void *memory[MOST_VALUES];  /* memory of lists */
  int64_t sizes[MOST_VALUES]; /* of output lists, by index */
  int64_t bytes[MOST_VALUES]; /* sizes of bytes objects, beside their items */
} Room;

/* Returns zeros that live until the end of the call, or NULL with an exception. */
static void *take_memory(Room *room, size_t count, size_t itemsize) {
  void *memory = calloc(count + 1, itemsize);
  if (memory == NULL)
    PyErr_NoMemory();
  else
    room->memory[room->allocated++] = memory;
  return memory;
}

/* Reads a sequence of integers, of 32 or 64 bits. Returns 0; -1 with or without an exception; -2 with a complete
 * exception. */
static int read_integer_list(PyObject *object, const Parameter *parameter, oa_value *value, Room *room) {
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return -1;
  PyObject *numbers = PySequence_Tuple(object);
  if (numbers == NULL) return -1;
  const Py_ssize_t count = PyTuple_Size(numbers);
  const size_t itemsize = parameter->dtype == OA_I64 ? sizeof(int64_t) : sizeof(int32_t);
  char *memory = take_memory(room, (size_t)count, itemsize);
  int status = memory == NULL ? -2 : 0;
  for (Py_ssize_t i = 0; i < count && status == 0; i++) {
    oa_value number = {0};
    status = read_sized(PyTuple_GetItem(numbers, i), parameter->dtype, &number);
    memcpy(memory + (size_t)i * itemsize, &number.integer, itemsize); /* the low bytes come first */
  }
  oa_number_list *list = &room->lists[room->allocated - (memory != NULL)];
  *list = (oa_number_list){.at = memory, .count = count, .itemsize = itemsize};
  value->pointer = list;
  Py_DECREF(numbers);
  return status;
}

enum { MOST_GIVEN = 1 << 20, MOST_STRUCT = 128 }; /* the most elements of a list, and bytes of a struct */

/* Makes room for an output list. Returns 0, or -1 with an exception. */
static int make_room(const Function *function, int at, oa_value *values, Room *room) {
  const Parameter *parameter = &function->parameters[at];
  const int64_t count = values[parameter->elements].integer;
  const size_t itemsize = parameter->dtype != OA_ANY ? sizeof(int32_t) : MOST_STRUCT;
  if (count < 0 || count > MOST_GIVEN) {
    PyObject *number = PyLong_FromLongLong(count);
    PyErr_Format(PyExc_ValueError, "%s: %U needs to be from 0 to %d, got %S", function->routine->function,
                 function->parameters[parameter->elements].name, MOST_GIVEN, number);
    Py_XDECREF(number);
    return -1;
  }
  room->sizes[at] = count;
  values[at].pointer = take_memory(room, (size_t)count, itemsize);
  return values[at].pointer == NULL ? -1 : 0;
}

/* Reads a host array. An ndarray can't be freed or resized meanwhile: its interface refers to it. */
static int read_host(PyObject *object, oa_value *value, Room *room) {
  Item *item = &room->items[room->count];
  oa_array *array = &room->arrays[room->count];
  int flags;
  if (!PyObject_TypeCheck(object, (PyTypeObject *)python.ndarray)) return -1;
  *item = (Item){.source = Py_NewRef(object)};
  *array = (oa_array){.data = NULL};
  room->count++;
  const int read = read_ndarray(item, array, &flags);
  if (read <= 0) return -1;
  array->flags = flags & ARRAY_WRITEABLE ? 0 : OA_READ_ONLY;
  value->host.address = array->data;
  value->host.array = array;
  return 0;
}

/* Reads the bytes of a struct. */
static int read_struct(PyObject *object, const Parameter *parameter, oa_value *value) {
  char *data;
  Py_ssize_t size;
  if (!PyBytes_Check(object) || PyBytes_AsStringAndSize(object, &data, &size) < 0) return -1;
  value->pointer = data;
  return size == parameter->role->count ? 0 : -1;
}

/* Reads a bytes object, which is cheaper to read than an array. */
static int read_bytes(PyObject *object, oa_value *value, Room *room) {
  static const int64_t step = 1;
  oa_array *array = &room->arrays[room->count];
  char *data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) < 0) return -1;
  room->bytes[room->count] = size;
  *array = (oa_array){.data = data, .shape = &room->bytes[room->count], .strides = &step, .ndim = 1, .dtype = OA_U8};
  room->items[room->count++] = (Item){.source = Py_NewRef(object)};
  array->flags = OA_READ_ONLY;
  value->host.address = data;
  value->host.array = array;
  return 0;
}

static int read_number_of(const char *asked, const Function *function, const Parameter *parameter, PyObject *object,
                          unsigned long long *number) {
  PyObject *integer = call_in_module("offload_args.objects", asked,
                                     Py_BuildValue("(sOO)", function->routine->function, parameter->name, object));
  *number = integer == NULL ? 0 : PyLong_AsUnsignedLongLong(integer);
  Py_XDECREF(integer);
  return PyErr_Occurred() ? -1 : 0;
}

/* Reads one argument. Returns 0; -1 with or without an exception for a wrong argument; -2 with a complete exception. */
static int read_one(const Function *function, const Parameter *parameter, PyObject *object, oa_value *value,
                    Room *room) {
  unsigned long long number;
  switch (parameter->kind) {
    case SIZE:
      return function_read_integer(object, &value->integer);
    case ENUM:
      return read_sized(object, OA_I32, value);
    case TYPE:
      value->integer = parameter->code;
      return 0;
    case ARRAY:
      return function_read_array(object, parameter, value);
    case HOST_ARRAY:
      if (object == Py_None && parameter->more[0]) { /* the function determines whether it may be missing */
        value->host.address = NULL;
        value->host.array = NULL;
        return 0;
      }
      if (parameter->more[0] && PyBytes_CheckExact(object)) return read_bytes(object, value, room);
      return read_host(object, value, room);
    case SCALAR:
      return parameter->elements > 1 ? -1 : function_read_number(object, parameter->dtype, value->bytes);
    case KEPT:
      value->pointer = NULL;
      return object == Py_None ? 0 : function_read_array(object, parameter, value);
    case INTEGER:
      return read_sized(object, parameter->dtype, value);
    case OBJECT:
      return read_object(function, parameter, object, value);
    case OBJECT_OR_NONE:
    case HELD:
      value->pointer = NULL;
      return object == Py_None ? 0 : read_object(function, parameter, object, value);
    case INTEGERS:
      value->pointer = NULL;
      if (object == Py_None && parameter->more[0]) return 0;
      return read_integer_list(object, parameter, value, room);
    case OPTIONAL:
      value->pointer = NULL;
      return object == Py_None ? 0 : function_read_array(object, parameter, value);
    case BYTES:
      return read_struct(object, parameter, value);
    case NEW_DEVICE:
      if (read_number_of("device_number", function, parameter, object, &number) < 0) return -2;
      value->integer = (int64_t)number;
      return 0;
    case SET_STREAM:
      if (read_number_of("stream_handle", function, parameter, object, &number) < 0) return -2;
      value->pointer = (void *)(uintptr_t)number;
      return 0;
    default:
      return -1;
  }
}

/* -- outputs ------------------------------------------------------------------------------------------------------ */
static PyObject *output_from(const Parameter *parameter, const oa_value *value, PyObject *first) {
  if (strcmp(parameter->more, "text") == 0) {
    const char *text = value->pointer;
    return text == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  }
  if (strcmp(parameter->more, "stream") == 0)
    return call_in_module("offload_args.objects", "stream_of",
                          Py_BuildValue("(ON)", first, PyLong_FromVoidPtr((void *)value->pointer)));
  switch (parameter->dtype) { /* the vendor's function wrote that many bytes, or returned the value */
    case OA_I32:
      return PyLong_FromLong(*(const int32_t *)value->bytes);
    case OA_U32:
      return PyLong_FromUnsignedLong(*(const uint32_t *)value->bytes);
    case OA_I64:
      return PyLong_FromLongLong(value->integer);
    case OA_F32:
      return PyFloat_FromDouble((double)value->single);
    case OA_F64:
      return PyFloat_FromDouble(value->real);
    default:
      return PyLong_FromUnsignedLongLong((unsigned long long)value->integer);
  }
}

/* Returns an output list. */
static PyObject *output_list(const Parameter *parameter, const void *memory, int64_t count) {
  if (parameter->dtype == OA_ANY)
    return call_in_module("offload_args.objects", "unpacked",
                          Py_BuildValue("(sy#L)", parameter->more, (const char *)memory,
                                        (Py_ssize_t)(count * MOST_STRUCT), (long long)count));
  PyObject *tuple = PyTuple_New((Py_ssize_t)count);
  for (int64_t i = 0; tuple != NULL && i < count; i++) {
    const int32_t number = ((const int32_t *)memory)[i];
    PyObject *item = parameter->dtype == OA_U32 ? PyLong_FromUnsignedLong((uint32_t)number) : PyLong_FromLong(number);
    if (item == NULL)
      Py_CLEAR(tuple);
    else
      PyTuple_SetItem(tuple, (Py_ssize_t)i, item);
  }
  return tuple;
}

/* Returns the bytes of a struct as an object of its class. */
static PyObject *output_bytes(const Function *function, const Parameter *parameter, const void *memory) {
  return call_in_module("offload_args.objects", "made_of_bytes",
                        Py_BuildValue("(ssy#)", function->library, parameter->more, (const char *)memory,
                                      (Py_ssize_t)parameter->role->count));
}

/* Returns the outputs of the function: None, one value, or a tuple of several. NULL with an exception. */
static PyObject *outputs_from(const Function *function, const Arguments *arguments, const oa_value *values,
                              Object *object, const Room *room) {
  if (function->positional == function->count) Py_RETURN_NONE;
  PyObject *list = PyList_New(0);
  PyObject *first = function->positional ? arguments->positional[0] : Py_None;
  for (int i = function->positional; list != NULL && i < function->count; i++) {
    const Parameter *parameter = &function->parameters[i];
    const int is_number = parameter->kind == RESULT || parameter->kind == VALUE;
    const int is_none = parameter->kind == NEW && object->handle == NULL; /* the library made none */
    PyObject *item = is_none                          ? Py_NewRef(Py_None)
                     : parameter->kind == NEW         ? Py_NewRef((PyObject *)object)
                     : is_number                      ? function_number(parameter, values[i].bytes)
                     : parameter->kind == GIVEN_LIST  ? output_list(parameter, values[i].pointer, room->sizes[i])
                     : parameter->kind == GIVEN_BYTES ? output_bytes(function, parameter, values[i].pointer)
                                                      : output_from(parameter, &values[i], first);
    if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  if (list == NULL) return NULL;
  const Py_ssize_t count = PyList_Size(list);
  PyObject *outputs = count > 1    ? PyList_AsTuple(list)
                      : count == 1 ? Py_NewRef(PyList_GetItem(list, 0))
                                   : Py_NewRef(Py_None);
  Py_DECREF(list);
  return outputs;
}

/* -- the call ------------------------------------------------------------------------------------------------------ */
/* Notes the core's handle, and a stream of the caller, in an object. No Python code ran since the library made it. */
static void note(const Function *function, const Arguments *arguments, const oa_value *values, Object *fresh) {
  for (int i = 0; i < function->count; i++) {
    const Parameter *parameter = &function->parameters[i];
    if (parameter->kind == NEW && values[i].pointer != NULL) {
      fresh->handle = (oa_object *)values[i].pointer;
      oa_object_names(fresh->handle, &fresh->library, &fresh->kind, NULL);
    } else if (parameter->kind == SET_STREAM) {
      Object *object = object_from(arguments->positional[0]);
      PyObject *old = object == NULL ? NULL : object->stream;
      if (object != NULL) object->stream = Py_NewRef(arguments->positional[i]);
      Py_XDECREF(old);
    }
  }
}

/* Makes the call once its arguments are read. */
static PyObject *run(const Function *function, const Arguments *arguments, oa_value *values, Room *room) {
  Object *object = NULL;
  int status;
  for (int i = function->positional; i < function->count; i++)
    if (function->parameters[i].kind == NEW && object == NULL) {
      object = object_new(function->library, function->parameters[i].more);
      if (object == NULL) return NULL;
    } else if (function->parameters[i].kind == GIVEN_BYTES) {
      values[i].pointer = take_memory(room, function->parameters[i].role->count, 1);
      if (values[i].pointer == NULL) return NULL;
    } else if (function->parameters[i].kind == GIVEN_LIST && make_room(function, i, values, room) < 0) {
      return NULL;
    }
  Py_BEGIN_ALLOW_THREADS status = function_run(function, arguments, values);
  Py_END_ALLOW_THREADS if (status == OA_OK) note(function, arguments, values, object);
  PyObject *outputs = status == OA_OK ? outputs_from(function, arguments, values, object, room) : fail(status);
  Py_XDECREF((PyObject *)object);
  return outputs;
}

static PyObject *call_with(const Function *function, const Arguments *arguments) {
  oa_value values[MOST_VALUES];
  Room room;
  int wrong = 0;
  memset(values, 0, (size_t)function->count * sizeof *values);
  room.count = room.allocated = 0;
  for (int i = 0; i < function->positional && !wrong; i++)
    wrong = read_one(function, &arguments->parameters[i], arguments->positional[i], &values[i], &room);
  PyObject *outputs = wrong == -1 ? function_explain(function, arguments, 0)
                      : wrong     ? NULL
                                  : run(function, arguments, values, &room);
  for (int i = 0; i < room.allocated; i++) free(room.memory[i]);
  for (int i = 0; i < room.count; i++) release_item(&room.items[i]);
  return outputs;
}

static PyObject *call(const Function *function, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  Arguments arguments;
  arguments.parameters = function->parameters;
  arguments.result = arguments.handle = NULL;
  arguments.own_handle = NULL;
  arguments.strides = NULL;
  if (function_bind(function, &arguments, values, count, names) < 0) return NULL;
  if (arguments.handle != NULL && function_find_handle(function, &arguments) < 0) return NULL;
  Parameter parameters[MOST_VALUES]; /* of this call */
  if (function->routine->typed_count && function_find_dtypes(function, &arguments, parameters) < 0) return NULL;
  return call_with(function, &arguments);
}

PyObject *helper_call(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *names) {
  const Function *function = *(Function **)PyModule_GetState(self);
  PyObject *outputs = call(function, values, count, names);
  if (OA_LIKELY(!atomic_load_explicit(&recording, memory_order_relaxed))) return outputs;
  return function_tell("call", function, values, count, names, outputs);
}
