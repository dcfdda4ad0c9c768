/* Launches of a kernel, in an open region and in a new region.
 *
 * Arguments of the usual kinds are read here. Other and wrong arguments are passed to the kernel's methods in Python:
 * _value, _pointer, _strided, _uncovered, _unshaped, _misfit, _asked, _as_bytes. */
#include "call.h"
#include "kernel.h"

#include <string.h>

enum { FEW_BYTES = 512 };

static PyObject *name_value, *name_pointer, *name_strided, *name_misfit, *name_uncovered, *name_asked, *name_home,
    *name_launch_checked, *name_unshaped, *name_as_bytes, *name_offload, *name_grid, *name_block, *name_configure;

/* -- arguments ----------------------------------------------------------------------------------------------------- */
/* Reads an integer of that dtype. Returns 0, or -1 with or without an exception. */
static int read_integer(PyObject *object, int dtype, void *bytes) {
  if (bring_newest(object) < 0) return -1;
  PyObject *index = PyLong_CheckExact(object) ? Py_NewRef(object) : PyNumber_Index(object);
  if (index == NULL) return -1;
  int status = 0;
  if (dtype == OA_U64) {
    const unsigned long long value = PyLong_AsUnsignedLongLong(index);
    status = PyErr_Occurred() ? -1 : 0;
    memcpy(bytes, &value, sizeof value);
  } else {
    const int64_t value = PyLong_AsLongLong(index);
    if (value == -1 && PyErr_Occurred()) {
      status = -1;
    } else if (dtype == OA_I64) {
      memcpy(bytes, &value, sizeof value);
    } else {
      status = dtype == OA_I32 ? (value != (int32_t)value) : (value != (int64_t)(uint32_t)value);
      const uint32_t low = (uint32_t)value;
      memcpy(bytes, &low, sizeof low);
    }
  }
  Py_DECREF(index);
  return status ? -1 : 0;
}

/* Reads a value of the most frequent kinds. Returns as read_integer does. */
static inline int read_value(PyObject *object, int dtype, void *bytes) {
  if (dtype == OA_F32 || dtype == OA_F64) {
    if (!PyFloat_Check(object) && !PyLong_CheckExact(object)) return -1;
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) return -1;
    if (dtype == OA_F64) {
      memcpy(bytes, &value, sizeof value);
      return 0;
    }
    const float single = (float)value;
    memcpy(bytes, &single, sizeof single);
    return __builtin_isinf(single) && !__builtin_isinf(value) ? -1 : 0;
  }
  if (dtype == OA_I32 || dtype == OA_I64 || dtype == OA_U32 || dtype == OA_U64)
    return read_integer(object, dtype, bytes);
  return -1;
}

/* Reads a value by the kernel's own method. Returns 0, or -1 with an exception. */
static __attribute__((noinline)) int read_by_method(Kernel *kernel, PyObject *object, int i, void *bytes) {
  PyErr_Clear();
  PyObject *number = PyLong_FromLong(i);
  PyObject *value =
      number == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)kernel, name_value, number, object, NULL);
  Py_XDECREF(number);
  char *from;
  Py_ssize_t nbytes;
  int status = value == NULL ? -1 : PyBytes_AsStringAndSize(value, &from, &nbytes);
  if (status == 0 && nbytes != kernel->at[i].nbytes) {
    PyErr_SetString(PyExc_SystemError, "offload_args: an argument's value has another size");
    status = -1;
  }
  if (status == 0) memcpy(bytes, from, (size_t)nbytes);
  Py_XDECREF(value);
  return status;
}

/* Makes the kernel's method raise for an argument. */
static __attribute__((cold, noinline)) void refuse(Kernel *kernel, PyObject *method, PyObject *object, int i) {
  PyObject *number = PyLong_FromLong(i);
  if (number != NULL) Py_XDECREF(PyObject_CallMethodObjArgs((PyObject *)kernel, method, number, object, NULL));
  Py_XDECREF(number);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "offload_args: an argument is not a device pointer");
}

/* Returns whether the last dimension of a pointer to bytes is a struct of that size, and all other dimensions count
 * structs. */
static __attribute__((noinline)) int points_to_structs(const Pointer *pointer, int struct_bytes) {
  const Py_ssize_t last = PyTuple_Size(pointer->shape) - 1;
  if (last < 1 || PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, last)) != struct_bytes ||
      PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, last)) != 1)
    return 0;
  for (Py_ssize_t i = 0; i < last; i++)
    if (PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, i)) % struct_bytes) return 0;
  return 1;
}

/* Reads all arguments; is_unsafe: pointers may have any dtype. places[i] becomes the pointer, or the address of the
 * value in bytes. Returns the first pointer; NULL with an exception. */
static inline Pointer *read_arguments(Kernel *kernel, PyObject *const *arguments, int is_unsafe, unsigned char *bytes,
                                      const void **places) {
  Pointer *first = NULL;
  for (int i = 0; i < kernel->passed; i++) {
    PyObject *object = arguments[i];
    const int dtype = kernel->at[i].dtype;
    if (kernel->at[i].access) {
      Pointer *pointer = (Pointer *)object;
      if (!(Py_TYPE(object) == (PyTypeObject *)python.pointer || PyObject_TypeCheck(object, pointer_type)) ||
          (dtype != OA_ANY && pointer->dtype != dtype && !is_unsafe) ||
          (OA_UNLIKELY(kernel->at[i].struct_bytes) && !points_to_structs(pointer, kernel->at[i].struct_bytes))) {
        refuse(kernel, name_pointer, object, i);
        return NULL;
      }
      if (OA_UNLIKELY(pointer->strided)) {
        refuse(kernel, name_strided, object, i);
        return NULL;
      }
      if (first == NULL) first = pointer;
      places[i] = pointer->handle;
    } else {
      places[i] = bytes + kernel->at[i].offset;
      if (OA_UNLIKELY(read_value(object, dtype, bytes + kernel->at[i].offset) < 0) &&
          read_by_method(kernel, object, i, bytes + kernel->at[i].offset) < 0)
        return NULL;
    }
  }
  if (first == NULL) PyErr_SetString(PyExc_SystemError, "offload_args: a kernel without a pointer");
  return first;
}

/* Returns the orders in which a pointer's elements follow each other without gaps: 1 C's, 2 Fortran's, 3 both. */
static int orders_of(int count, const int64_t *shape, const int64_t *strides, int64_t itemsize) {
  int64_t c = itemsize, fortran = itemsize;
  int orders = 3;
  for (int i = 0; i < count; i++) {
    const int last = count - 1 - i;
    if (shape[i] == 0) return 3;
    if (shape[last] != 1 && strides[last] != c) orders &= ~1;
    if (shape[i] != 1 && strides[i] != fortran) orders &= ~2;
    c *= shape[last];
    fortran *= shape[i];
  }
  return orders;
}

static void read_numbers(PyObject *tuple, int64_t *numbers, int most) {
  const int count = (int)PyTuple_Size(tuple);
  for (int i = 0; i < count && i < most; i++) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
}

/* Returns the bytes of an argument's elements. */
static int64_t itemsize_of(const Kernel *kernel, int argument) {
  const int struct_bytes = kernel->at[argument].struct_bytes;
  return struct_bytes ? struct_bytes : (int64_t)oa_itemsize(kernel->at[argument].dtype);
}

enum { MOST_DIMENSIONS = 32 };

/* Adds the numbers of the arrays. Returns 0, or -1 without an exception if an array does not suit the kernel. */
static int add_shapes(const Kernel *kernel, PyObject *const *arguments, unsigned char *bytes, const void **places) {
  int orders = 3;
  for (int k = 0; k < kernel->shaped; k++) {
    const int argument = kernel->shapes[k].argument, like = kernel->shapes[k].like;
    const Pointer *pointer = (Pointer *)arguments[argument];
    const int64_t itemsize = itemsize_of(kernel, argument);
    int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], numbers[SHAPE_NUMBERS] = {1, 1, 1, 1};
    const int count = (int)dimensions_of(kernel, argument, pointer);
    read_numbers(pointer->shape, shape, MOST_DIMENSIONS);
    read_numbers(pointer->strides, strides, MOST_DIMENSIONS);
    if (count > MOST_DIMENSIONS || (kernel->shapes[k].rank == 2 && count != 2)) return -1;
    if (kernel->shapes[k].rank == 2) {
      for (int i = 0; i < 2; i++) {
        numbers[i] = shape[i];
        numbers[2 + i] = strides[i] / itemsize;
      }
    } else {
      for (int i = 0; i < count; i++) numbers[0] *= shape[i];
      if (count != 1) orders &= orders_of(count, shape, strides, itemsize);
      if (orders == 0) return -1;
    }
    const int at = kernel->passed + k * SHAPE_NUMBERS;
    for (int i = 0; i < SHAPE_NUMBERS; i++) {
      places[at + i] = bytes + kernel->at[at + i].offset;
      memcpy(bytes + kernel->at[at + i].offset, &numbers[i], sizeof numbers[i]);
    }
    if (like >= 0) {
      int64_t others[MOST_DIMENSIONS];
      const int other = (int)dimensions_of(kernel, like, (Pointer *)arguments[like]);
      read_numbers(((Pointer *)arguments[like])->shape, others, MOST_DIMENSIONS);
      if (other != count || memcmp(shape, others, (size_t)count * sizeof *shape) != 0) return -1;
      if (kernel->shapes[k].ordered && kernel->shapes[k].rank == 2) {
        read_numbers(((Pointer *)arguments[like])->strides, others, MOST_DIMENSIONS);
        const int64_t size = itemsize_of(kernel, like);
        if ((numbers[2] < numbers[3]) != (others[0] / size < others[1] / size)) return -1;
      }
    }
  }
  return 0;
}

/* -- launchers: kernels with a grid and block ---------------------------------------------------------------------- */
static PyTypeObject *kernel_type, *launcher_type;
static allocfunc launcher_alloc; /* of launcher_type */
static freefunc launcher_free;

static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *arguments, size_t flags_and_count,
                                     PyObject *names);

static PyObject *launcher_new(PyObject *kernel, const oa_launch *launch) {
  Launcher *self = (Launcher *)launcher_alloc(launcher_type, 0);
  if (self == NULL) return NULL;
  self->kernel = (Kernel *)Py_NewRef(kernel);
  self->call = launcher_vectorcall;
  self->launch = *launch;
  return (PyObject *)self;
}

/* -- a launch ------------------------------------------------------------------------------------------------------ */
static PyObject *tuple_from(PyObject *const *values, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) PyTuple_SetItem(tuple, i, Py_NewRef(values[i]));
  return tuple;
}

/* Refuses a wrong number of arguments, or keywords (a dict, a tuple of their names, or NULL). Returns NULL. */
static PyObject *kernel_misfit(Kernel *kernel, PyObject *arguments, PyObject *keywords) {
  return PyObject_CallMethodObjArgs((PyObject *)kernel, name_misfit, arguments, keywords, NULL);
}

/* Calls a method of the kernel with a launcher of this shape and the arguments. Returns its value; NULL with an
 * exception. */
static __attribute__((cold, noinline)) PyObject *by_method(Kernel *kernel, PyObject *method, const oa_launch *launch,
                                                           PyObject *const *arguments) {
  PyObject *launcher = launcher_new((PyObject *)kernel, launch);
  PyObject *tuple = launcher == NULL ? NULL : tuple_from(arguments, kernel->passed);
  PyObject *result =
      tuple == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)kernel, method, launcher, tuple, NULL);
  Py_XDECREF(tuple);
  Py_XDECREF(launcher);
  return result;
}

static __attribute__((cold, noinline)) PyObject *refuse_grid(Kernel *kernel, const oa_launch *launch,
                                                             PyObject *const *arguments) {
  PyErr_Clear();
  Py_XDECREF(by_method(kernel, name_uncovered, launch, arguments));
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "offload_args: a grid without an owner for each element");
  return NULL;
}

static __attribute__((cold, noinline)) PyObject *refuse_shapes(Kernel *kernel, PyObject *const *arguments) {
  PyObject *tuple = tuple_from(arguments, kernel->passed);
  if (tuple != NULL) Py_XDECREF(PyObject_CallMethodObjArgs((PyObject *)kernel, name_unshaped, tuple, NULL));
  Py_XDECREF(tuple);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "offload_args: an array that does not suit the kernel");
  return NULL;
}

/* bytes: room for the arguments' values. */
static inline PyObject *launch(Kernel *kernel, const oa_launch *asked, PyObject *const *arguments,
                               unsigned char *bytes) {
  const void *places[OA_MOST_PARAMETERS];
  const Pointer *first = read_arguments(kernel, arguments, asked->is_unsafe != 0, bytes, places);
  if (first == NULL) return NULL;
  if (kernel->shaped && add_shapes(kernel, arguments, bytes, places) < 0) return refuse_shapes(kernel, arguments);
  const OnDevice *on = kernel_on(kernel, first);
  if (on == NULL) return NULL;
  oa_launch chosen;
  if (asked->grid[0] == 0 || asked->block[0] == 0) {
    chosen = *asked;
    asked = &chosen;
    if (choose_shape(kernel, on, arguments, &chosen) < 0) {
      chosen.grid[0] = 0;
      return refuse_grid(kernel, &chosen, arguments);
    }
  }
  if (kernel->divided && !asked->is_unsafe && !covers(kernel, asked, arguments))
    return refuse_grid(kernel, asked, arguments);
  if (OA_UNLIKELY(on->checked)) return by_method(kernel, name_launch_checked, asked, arguments);
  int status;
  Py_BEGIN_ALLOW_THREADS status = oa_kernel_launch(on->kernel, asked, places, kernel->count);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static __attribute__((noinline)) PyObject *launch_many(Kernel *kernel, const oa_launch *asked,
                                                       PyObject *const *arguments) {
  unsigned char *bytes = PyMem_Malloc(kernel->nbytes);
  PyObject *result = bytes == NULL ? PyErr_NoMemory() : launch(kernel, asked, arguments, bytes);
  PyMem_Free(bytes);
  return result;
}

static inline PyObject *launch_any(Kernel *kernel, const oa_launch *asked, PyObject *const *arguments) {
  _Alignas(16) unsigned char few[FEW_BYTES];
  return OA_LIKELY(kernel->nbytes <= FEW_BYTES) ? launch(kernel, asked, arguments, few)
                                                : launch_many(kernel, asked, arguments);
}

/* Launches the kernel, and reports this launch to the recorder, but no launch within it. */
static __attribute__((cold, noinline)) PyObject *launch_recorded(Kernel *kernel, const oa_launch *asked,
                                                                 PyObject *const *arguments) {
  static _Thread_local int depth;
  if (depth > 0) return launch_any(kernel, asked, arguments);
  PyObject *subject = Py_BuildValue("O(III)(III)Li(III)i", (PyObject *)kernel, asked->grid[0], asked->grid[1],
                                    asked->grid[2], asked->block[0], asked->block[1], asked->block[2],
                                    (long long)asked->shared_bytes, asked->cooperative != 0, asked->cluster[0],
                                    asked->cluster[1], asked->cluster[2], asked->is_unsafe != 0);
  PyObject *result = subject == NULL ? NULL : Py_NewRef(Py_None);
  if (result != NULL && atomic_load_explicit(&recording, memory_order_relaxed) == RECORDS_BEGINNINGS)
    result = tell_recorder_values("begun", subject, arguments, kernel->passed, NULL, result);
  if (result != NULL) {
    Py_DECREF(result);
    depth++;
    result = launch_any(kernel, asked, arguments);
    depth--;
    result = tell_recorder_values("launch", subject, arguments, kernel->passed, NULL, result);
  }
  Py_XDECREF(subject);
  return result;
}

/* Launches the kernel with as many arguments as it has. Returns None; NULL with an exception. */
static PyObject *kernel_launch(Kernel *kernel, const oa_launch *asked, PyObject *const *arguments) {
  if (OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed)))
    return launch_recorded(kernel, asked, arguments);
  return launch_any(kernel, asked, arguments);
}

static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *arguments, size_t flags_and_count,
                                     PyObject *names) {
  Launcher *self = (Launcher *)object;
  const Py_ssize_t count = (Py_ssize_t)(flags_and_count & (SIZE_MAX >> 1)); /* the highest bit is a flag */
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  if (OA_LIKELY(count == self->kernel->passed && named == 0))
    return kernel_launch(self->kernel, &self->launch, arguments);
  PyObject *keywords = PyDict_New(), *tuple = tuple_from(arguments, count), *none = NULL;
  for (Py_ssize_t i = 0; keywords != NULL && i < named; i++)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), arguments[count + i]) < 0) Py_CLEAR(keywords);
  if (keywords != NULL && tuple != NULL) none = kernel_misfit(self->kernel, tuple, keywords);
  Py_XDECREF(tuple);
  Py_XDECREF(keywords);
  return none;
}

/* Launches the kernel with a tuple and a dict. */
static PyObject *launcher_call(PyObject *object, PyObject *arguments, PyObject *keywords) {
  Launcher *self = (Launcher *)object;
  PyObject *values[OA_MOST_PARAMETERS];
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count != self->kernel->passed || (keywords != NULL && PyDict_Size(keywords) != 0))
    return kernel_misfit(self->kernel, arguments, keywords);
  for (Py_ssize_t i = 0; i < count; i++) values[i] = PyTuple_GetItem(arguments, i);
  return kernel_launch(self->kernel, &self->launch, values);
}

/* -- the caller's arguments --------------------------------------------------------------------------------------- */
/* A kernel, and exactly as many arguments as it has. */
typedef struct {
  Kernel *kernel;             /* owned */
  PyObject *const *arguments; /* borrowed from the caller, or from apart */
  PyObject *apart; /* a tuple, if objects with __offload__ were taken apart, or structs are lent as bytes; owned */
  PyObject *parts[OA_MOST_PARAMETERS]; /* its items */
} KernelArguments;

static void release_arguments(KernelArguments *arranged) {
  Py_XDECREF((PyObject *)arranged->kernel);
  Py_XDECREF(arranged->apart);
}

/* Returns 1 if an argument has a method __offload__, and so stands for other arguments; otherwise 0, or -1 with an
 * exception. Remembers the last static type without this method: static types get no methods later. */
static int stands_for_others(PyObject *object) {
  static _Atomic(PyTypeObject *) known;
  PyTypeObject *type = Py_TYPE(object);
  if (type == (PyTypeObject *)python.pointer || type == (PyTypeObject *)python.ndarray || PyLong_CheckExact(object) ||
      PyFloat_CheckExact(object) || type == atomic_load_explicit(&known, memory_order_relaxed))
    return 0;
  for (int direction = OA_IN; direction <= OA_SCRATCH; direction++)
    if (type == (PyTypeObject *)python.declared[direction]) return 0;
  PyObject *method = PyObject_GetAttr((PyObject *)type, name_offload);
  if (method == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyErr_Clear();
  if (method == NULL && !(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE))
    atomic_store_explicit(&known, type, memory_order_relaxed);
  Py_XDECREF(method);
  return method != NULL;
}

/* Calls a function of offload_args.kernels.launches. Returns its value; NULL with an exception. */
static PyObject *in_python(const char *name, const char *format, ...) {
  va_list values;
  PyObject *module = PyImport_ImportModule("offload_args.kernels.launches");
  PyObject *function = module == NULL ? NULL : PyObject_GetAttrString(module, name), *arguments = NULL, *result = NULL;
  va_start(values, format);
  if (function != NULL) arguments = Py_VaBuildValue(format, values);
  va_end(values);
  if (arguments != NULL) result = PyObject_CallObject(function, arguments);
  Py_XDECREF(arguments);
  Py_XDECREF(function);
  Py_XDECREF(module);
  return result;
}

/* Takes objects with __offload__ apart. If `kernel` has no signature, finds a kernel that has one. keywords: the names
 * of the call's keywords, or NULL. Returns 0, or -1 with an exception; the caller releases *arranged in either case. */
static int read_kernel_arguments(const char *function, PyObject *kernel, PyObject *const *arguments, Py_ssize_t count,
                                 PyObject *keywords, KernelArguments *arranged) {
  arranged->kernel = NULL;
  arranged->apart = NULL;
  arranged->arguments = arguments;
  int apart = 0;
  for (Py_ssize_t i = 0; i < count && apart == 0; i++) apart = stands_for_others(arguments[i]);
  if (apart < 0) return -1;
  const int declared = PyObject_TypeCheck(kernel, kernel_type);
  if (declared && !apart && count == ((Kernel *)kernel)->passed) {
    arranged->kernel = (Kernel *)Py_NewRef(kernel);
    return 0;
  }
  arranged->apart = tuple_from(arguments, count);
  if (arranged->apart != NULL && apart) {
    PyObject *whole = arranged->apart;
    arranged->apart = in_python("parts", "(O)", whole);
    Py_DECREF(whole);
  }
  if (arranged->apart == NULL) return -1;
  PyObject *launched = declared ? Py_NewRef(kernel) : in_python("declared", "(sOO)", function, kernel, arranged->apart);
  if (launched == NULL) return -1;
  arranged->kernel = (Kernel *)launched;
  count = PyTuple_Size(arranged->apart);
  if (count != arranged->kernel->passed) {
    kernel_misfit(arranged->kernel, arranged->apart, keywords);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) arranged->parts[i] = PyTuple_GetItem(arranged->apart, i);
  arranged->arguments = arranged->parts;
  return 0;
}

/* Puts the bytes of arrays of structs in their place. Returns 0, or -1 with an exception. */
static __attribute__((noinline)) int lend_structs(KernelArguments *arranged) {
  const int count = arranged->kernel->passed;
  PyObject *tuple = tuple_from(arranged->arguments, count);
  PyObject *lent =
      tuple == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)arranged->kernel, name_as_bytes, tuple, NULL);
  Py_XDECREF(tuple);
  if (lent == NULL) return -1;
  Py_XDECREF(arranged->apart);
  arranged->apart = lent;
  for (int i = 0; i < count; i++) arranged->parts[i] = PyTuple_GetItem(lent, i);
  arranged->arguments = arranged->parts;
  return 0;
}

/* Reads a grid or block of the usual kind. Returns 1 if it is one, otherwise 0. */
static int read_usual(PyObject *name, PyObject *value, oa_launch *launch) {
  if (name != name_grid && name != name_block) return 0;
  return value == Py_None || read_sizes(value, name == name_grid ? launch->grid : launch->block) == 0;
}

/* Reads the keywords of the launch. options: the options of an offload's region; NULL: there are none. Returns 0, or -1
 * with an exception. */
static int read_keywords(const char *function, Kernel *kernel, PyObject *const *values, PyObject *names,
                         oa_launch *launch, Options *options) {
  const Py_ssize_t count = names == NULL ? 0 : PyTuple_Size(names);
  PyObject *others = NULL;
  int failed = 0;
  for (Py_ssize_t i = 0; i < count && !failed; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    const int option = options == NULL ? RESIDENT : find_option(name, RESIDENT);
    if (option < 0) {
      failed = 1;
    } else if (option < RESIDENT) {
      options->values[option] = Py_NewRef(values[i]);
    } else if (!read_usual(name, values[i], launch)) {
      if (others == NULL) others = PyDict_New();
      failed = others == NULL || PyDict_SetItem(others, name, values[i]) < 0;
    }
  }
  if (others != NULL && !failed) { /* also passes the grid and block that were read */
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
      PyObject *name = PyTuple_GetItem(names, i);
      if (name == name_grid || name == name_block) failed = PyDict_SetItem(others, name, values[i]) < 0;
    }
    PyObject *text = failed ? NULL : PyUnicode_FromString(function);
    PyObject *launcher =
        text == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)kernel, name_asked, text, others, NULL);
    failed = launcher == NULL || Py_TYPE(launcher) != launcher_type;
    if (!failed) *launch = ((Launcher *)launcher)->launch;
    Py_XDECREF(text);
    Py_XDECREF(launcher);
  }
  Py_XDECREF(others);
  return failed ? -1 : 0;
}

static PyObject *launch_values(const char *function, PyObject *kernel, PyObject *const *arguments, Py_ssize_t count,
                               PyObject *names) {
  KernelArguments arranged;
  oa_launch shape = OA_SIZED(oa_launch);
  PyObject *result = NULL;
  if (read_kernel_arguments(function, kernel, arguments, count, names, &arranged) == 0 &&
      read_keywords(function, arranged.kernel, arguments + count, names, &shape, NULL) == 0)
    result = kernel_launch(arranged.kernel, &shape, arranged.arguments);
  release_arguments(&arranged);
  return result;
}

/* kernel(*arguments, **shape) */
static PyObject *kernel_vectorcall(PyObject *kernel, PyObject *const *arguments, size_t flags_and_count,
                                   PyObject *names) {
  const Py_ssize_t count = (Py_ssize_t)(flags_and_count & (SIZE_MAX >> 1)); /* the highest bit is a flag */
  return launch_values("launch", kernel, arguments, count, names);
}

/* kernel(...) with a tuple and a dict: Python 3.11 calls subclasses in this way. */
static PyObject *kernel_call(PyObject *object, PyObject *arguments, PyObject *keywords) {
  const Py_ssize_t count = PyTuple_Size(arguments), named = keywords == NULL ? 0 : PyDict_Size(keywords);
  PyObject *few[16], **values = few, *names = NULL, *name, *value, *result = NULL;
  Py_ssize_t at = 0, place = 0;
  if (count + named > 16) values = PyMem_Malloc((size_t)(count + named) * sizeof *values);
  if (values == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) values[i] = PyTuple_GetItem(arguments, i);
  if (named) names = PyTuple_New(named);
  for (; names != NULL && PyDict_Next(keywords, &at, &name, &value); place++) {
    values[count + place] = value;
    PyTuple_SetItem(names, place, Py_NewRef(name));
  }
  if (!named || names != NULL) result = kernel_vectorcall(object, values, (size_t)count, names);
  Py_XDECREF(names);
  if (values != few) PyMem_Free(values);
  return result;
}

/* Returns 1 if there is a kernel among the positional arguments; 0 with ArgumentTypeError. */
static int has_kernel(const char *function, Py_ssize_t count) {
  if (count < 1)
    PyErr_Format(python.type_error, "%s() missing 1 required positional argument: 'kernel'; write %s(kernel, x, y)",
                 function, function);
  return count >= 1;
}

/* launch(kernel, *arguments, **shape) */
static PyObject *launch_builtin(PyObject *Py_UNUSED(module), PyObject *const *values, Py_ssize_t count,
                                PyObject *names) {
  return has_kernel("launch", count) ? launch_values("launch", values[0], values + 1, count - 1, names) : NULL;
}

/* -- with a region of its own -------------------------------------------------------------------------------------- */
typedef struct {
  Kernel *kernel;
  oa_launch shape;
} Asked;

/* Launches with pointers in place of the lent arguments. */
static PyObject *launch_lent(const Call *call, void *context, PyObject *pointers) {
  PyObject *values[OA_MOST_PARAMETERS];
  Asked *asked = context;
  for (Py_ssize_t i = 0, next = 0; i < call->count; i++)
    values[i] = call->roles[i] == LENT ? PyTuple_GetItem(pointers, next++) : call->values[i];
  return kernel_launch(asked->kernel, &asked->shape, values);
}

/* Returns the device for an offload that names none; -1 with an exception. */
static int find_home(const Call *call, Kernel *kernel) {
  for (Py_ssize_t i = 0; i < call->count; i++) {
    const Pointer *pointer = kernel->at[i].access ? pointer_of(call->values[i]) : NULL;
    if (pointer != NULL) return pointer->device_number;
  }
  int home = atomic_load(&kernel->home);
  if (home >= 0) return home;
  PyObject *number = PyObject_CallMethodObjArgs((PyObject *)kernel, name_home, NULL);
  if (number == NULL) return -1;
  home = as_int(number);
  Py_DECREF(number);
  if (PyErr_Occurred()) return -1;
  atomic_store(&kernel->home, home);
  return home;
}

/* Lends the arrays among the arguments, and launches. The caller releases the options' references. */
static PyObject *offload_call(Call *call, Asked *asked) {
  if (read_options(&call->options) < 0) return NULL;
  if (call->options.device < 0 && (call->options.device = find_home(call, asked->kernel)) < 0) return NULL;
  for (Py_ssize_t i = 0; i < call->count; i++) {
    const int lent = asked->kernel->at[i].access ? is_lent_by_call(call->values[i]) : 0;
    if (lent < 0) return NULL;
    call->roles[i] = lent ? LENT : PASSED;
  }
  PyObject *lent = lent_of(call);
  PyObject *result = lent == NULL ? NULL : call_in_region(call, lent, launch_lent, asked);
  Py_XDECREF(lent);
  return result;
}

static PyObject *offload_values(const char *function, int is_unsafe, PyObject *const *values, Py_ssize_t count,
                                PyObject *names) {
  if (!has_kernel(function, count)) return NULL;
  KernelArguments arranged;
  Asked asked = {.shape = OA_SIZED(oa_launch)};
  Call call = {.of_kernel = 1};
  char roles[OA_MOST_PARAMETERS];
  PyObject *result = NULL;
  if (read_kernel_arguments(function, values[0], values + 1, count - 1, names, &arranged) == 0 &&
      (!arranged.kernel->has_structs || lend_structs(&arranged) == 0) &&
      read_keywords(function, arranged.kernel, values + count, names, &asked.shape, &call.options) == 0) {
    asked.kernel = arranged.kernel;
    asked.shape.is_unsafe = is_unsafe;
    call.values = arranged.arguments;
    call.positional = call.count = arranged.kernel->passed;
    call.roles = roles;
    result = offload_call(&call, &asked);
  }
  release_options(&call.options);
  release_arguments(&arranged);
  return result;
}

static PyObject *offload(PyObject *Py_UNUSED(module), PyObject *const *values, Py_ssize_t count, PyObject *names) {
  return offload_values("offload", 0, values, count, names);
}

static PyObject *offload_unsafe(PyObject *Py_UNUSED(module), PyObject *const *values, Py_ssize_t count,
                                PyObject *names) {
  return offload_values("offload_unsafe", 1, values, count, names);
}

/* -- types --------------------------------------------------------------------------------------------------------- */
/* kernel[grid, block] */
static PyObject *kernel_subscript(PyObject *object, PyObject *key) {
  oa_launch shape = OA_SIZED(oa_launch);
  if (!PyTuple_CheckExact(key) || PyTuple_Size(key) != 2 || read_sizes(PyTuple_GetItem(key, 0), shape.grid) < 0 ||
      read_sizes(PyTuple_GetItem(key, 1), shape.block) < 0)
    return PyObject_CallMethodObjArgs(object, name_configure, key, NULL);
  return launcher_new(object, &shape);
}

/* (kernel, grid, block, shared_bytes, stream or None, cooperative, cluster): checked by the caller; sizes are three
 * numbers each, grid and block zeros if the arguments determine them. */
static PyObject *make_launcher(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *kernel, *stream;
  long long shared_bytes;
  oa_launch shape = OA_SIZED(oa_launch);
  if (!PyArg_ParseTuple(arguments, "O(III)(III)LOp(III)", &kernel, &shape.grid[0], &shape.grid[1], &shape.grid[2],
                        &shape.block[0], &shape.block[1], &shape.block[2], &shared_bytes, &stream, &shape.cooperative,
                        &shape.cluster[0], &shape.cluster[1], &shape.cluster[2]))
    return NULL;
  shape.shared_bytes = shared_bytes;
  if (stream != Py_None) {
    shape.has_stream = 1;
    shape.stream = PyLong_AsVoidPtr(stream);
    if (shape.stream == NULL && PyErr_Occurred()) return NULL;
  }
  return launcher_new(kernel, &shape);
}

/* (launcher, kernel) -> a launcher of the kernel that otherwise equals the first, and waits on the CPU */
static PyObject *launcher_of(PyObject *Py_UNUSED(module), PyObject *arguments) {
  PyObject *launcher, *kernel;
  if (!PyArg_ParseTuple(arguments, "O!O!", launcher_type, &launcher, kernel_type, &kernel)) return NULL;
  oa_launch shape = ((Launcher *)launcher)->launch;
  shape.waits = 1;
  return launcher_new(kernel, &shape);
}

static void launcher_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF((PyObject *)((Launcher *)object)->kernel);
  launcher_free(object);
  Py_DECREF(type);
}

/* (grid, block, shared_bytes) */
static PyObject *launcher_shape(PyObject *object, void *Py_UNUSED(closure)) {
  const oa_launch *l = &((Launcher *)object)->launch;
  return Py_BuildValue("((III)(III)L)", l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                       (long long)l->shared_bytes);
}

static PyObject *launcher_kernel(PyObject *object, void *Py_UNUSED(closure)) {
  return Py_NewRef((PyObject *)((Launcher *)object)->kernel);
}

static PyObject *launcher_repr(PyObject *object) {
  PyObject *shape = launcher_shape(object, NULL);
  PyObject *text = shape == NULL ? NULL
                                 : PyUnicode_FromFormat("%U[grid=%R, block=%R, shared_bytes=%R]",
                                                        ((Launcher *)object)->kernel->name, PyTuple_GetItem(shape, 0),
                                                        PyTuple_GetItem(shape, 1), PyTuple_GetItem(shape, 2));
  Py_XDECREF(shape);
  return text;
}

/* -> what copies and pickles are made from; the kernel's method refuses a stream, which belongs to this process */
static PyObject *launcher_reduce(PyObject *object, PyObject *Py_UNUSED(nothing)) {
  const Launcher *self = (const Launcher *)object;
  return PyObject_CallMethod((PyObject *)self->kernel, "_reduced", "Ni", launcher_shape(object, NULL),
                             (int)self->launch.has_stream);
}

/* (name, parameters, partitions): the arguments of kernel_new() */
static PyObject *make_kernel(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)keywords;
  PyObject *self = kernel_new(type, arguments);
  if (self != NULL) ((Kernel *)self)->call = kernel_vectorcall;
  return self;
}

static PyMemberDef kernel_members[] = {
    {"name", T_OBJECT_EX, offsetof(Kernel, name), READONLY, PyDoc_STR("The kernel's name in its module.")},
    {"_parameters", T_OBJECT_EX, offsetof(Kernel, parameters), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Kernel, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot kernel_slots[] = {
    {Py_tp_new, make_kernel},        {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_members, kernel_members}, {Py_mp_subscript, kernel_subscript},
    {Py_tp_call, kernel_call},       {0, NULL},
};
static PyType_Spec kernel_spec = {.name = "offload_args._core.Kernel",
                                  .basicsize = sizeof(Kernel),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | HAS_VECTORCALL,
                                  .slots = kernel_slots};

static PyGetSetDef launcher_properties[] = {
    {"_shape", launcher_shape, NULL, NULL, NULL},
    {"kernel", launcher_kernel, NULL, "The kernel.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef launcher_methods[] = {
    {"__reduce__", launcher_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot launcher_slots[] = {
    {Py_tp_methods, launcher_methods},
    {Py_tp_members, launcher_members},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_call, launcher_call},
    {Py_tp_repr, launcher_repr},
    {Py_tp_getset, launcher_properties},
    {Py_tp_doc, "Launch a kernel with a grid and block: call it with the kernel's arguments."},
    {0, NULL},
};
static PyType_Spec launcher_spec = {.name = "offload_args._core.Launcher",
                                    .basicsize = sizeof(Launcher),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | HAS_VECTORCALL,
                                    .slots = launcher_slots};

/* -- functions ----------------------------------------------------------------------------------------------------- */
/* A function's text has its signature twice: for inspect, and with types for help. */
#define OFFLOAD_PARAMETERS                                                                             \
  "($module, kernel, /, *arguments, grid=None, block=None, shared_bytes=0, stream=None, device=None, " \
  "on_error='discard', cooperative=False, cluster=None)\n--\n\n"
#define SIZES "int | tuple[int, ...] | None = None"
#define LAUNCH_TYPES                                                                       \
  "(kernel: Kernel | UndeclaredKernel, /, *arguments: Any, grid: " SIZES ", block: " SIZES \
  ", shared_bytes: int | Shared = 0, stream: object = None, "
#define OFFLOAD_TYPES \
  LAUNCH_TYPES "device: Device | str | None = None, on_error: Literal['discard', 'keep'] = 'discard', "
#define LAST_TYPES "cooperative: bool = False, cluster: " SIZES ") -> None\n\n"

static PyMethodDef functions[] = {
    {"launcher", make_launcher, METH_VARARGS, NULL},
    {"launcher_of", launcher_of, METH_VARARGS, NULL},
    {"launch", (PyCFunction)(void (*)(void))launch_builtin, METH_FASTCALL | METH_KEYWORDS,
     "launch($module, kernel, /, *arguments, grid=None, block=None, shared_bytes=0, stream=None, cooperative=False, "
     "cluster=None)\n--\n\n"
     "launch" LAUNCH_TYPES LAST_TYPES "Launch a kernel in an open region; kernel(*arguments, ...) does the same.\n"
     "\n"
     "kernel: a Kernel, or what Module.kernel returned without a signature.\n"
     "arguments: a DevicePtr for each pointer, a number (a tuple for a struct) for each value; an object with\n"
     "`__offload__()` stands for all that this returns, a tuple of such arguments.\n"
     "grid: blocks along x, y, z. None: as many as give each element of the largest written array a thread.\n"
     "block: threads of a block. None: 256, or fewer if the kernel takes no more.\n"
     "shared_bytes: dynamic shared memory of a block, in bytes or as Shared[dtype](size).\n"
     "stream: an object with `__cuda_stream__`. None: the region's.\n"
     "cooperative: whether all blocks run at the same time.\n"
     "cluster: the blocks of a cluster, along x, y, z.\n"
     "\n"
     "    source = \"\"\"\n"
     "    #include <offload_args/kernel.h>\n"
     "    OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {\n"
     "      for (auto element : y.mine(oa::Linear1D(n), here)) *element += x[element.index()];\n"
     "    }\"\"\"\n"
     "    add = Kernel.compile(source, \"add\", [In[np.float32], InOut[np.float32], np.int32])\n"
     "    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)\n"
     "    with offload_args(x, y) as (dx, dy):\n"
     "        launch(add, dx, dy, 3)\n"
     "    print(y)  # [1. 2. 3.]\n"
     "\n"
     "Raises the errors of Kernel.\n"
     "\n"
     "See also: offload, offload_unsafe, Kernel; docs/guide/kernels.md."},
    {"offload", (PyCFunction)(void (*)(void))offload, METH_FASTCALL | METH_KEYWORDS,
     "offload" OFFLOAD_PARAMETERS "offload" OFFLOAD_TYPES LAST_TYPES
     "Lend every array among the arguments, launch the kernel, and bring back what it wrote.\n"
     "\n"
     "kernel: a Kernel, or what Module.kernel returned without a signature.\n"
     "arguments: as those of launch, with arrays in place of pointers, or In, Out, InOut, Scratch of them.\n"
     "grid: blocks along x, y, z. None: as many as give each element of the largest written array a thread.\n"
     "block: threads of a block. None: 256, or fewer if the kernel takes no more.\n"
     "shared_bytes: dynamic shared memory of a block, in bytes or as Shared[dtype](size).\n"
     "stream: an object with `__cuda_stream__`. None: the region's.\n"
     "device: a Device or its name. None: the default one if it can run the module, else the first that can.\n"
     "on_error: \"discard\" or \"keep\", as of a region: what becomes of written arrays after an exception.\n"
     "cooperative: whether all blocks run at the same time.\n"
     "cluster: the blocks of a cluster, along x, y, z.\n"
     "\n"
     "    source = \"\"\"\n"
     "    #include <offload_args/kernel.h>\n"
     "    OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {\n"
     "      for (auto element : y.mine(oa::Linear1D(n), here)) *element += x[element.index()];\n"
     "    }\"\"\"\n"
     "    add = Kernel.compile(source, \"add\", [In[np.float32], InOut[np.float32], np.int32])\n"
     "    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)\n"
     "    offload(add, x, y, 3)\n"
     "    print(y)  # [1. 2. 3.]\n"
     "\n"
     "Raises the errors of a region and of Kernel.\n"
     "\n"
     "See also: launch, offload_unsafe, Kernel; docs/guide/kernels.md."},
    {"offload_unsafe", (PyCFunction)(void (*)(void))offload_unsafe, METH_FASTCALL | METH_KEYWORDS,
     "offload_unsafe" OFFLOAD_PARAMETERS "offload_unsafe" OFFLOAD_TYPES LAST_TYPES
     "Do as offload, and leave out the checks of the arguments against the kernel's signature and each other.\n"
     "\n"
     "kernel: a Kernel, or what Module.kernel returned without a signature.\n"
     "arguments: as those of offload. Pointers may be of other dtypes than the signature says.\n"
     "grid: blocks along x, y, z. None: as many as give each element of the largest written array a thread.\n"
     "block: threads of a block. None: 256, or fewer if the kernel takes no more.\n"
     "shared_bytes: dynamic shared memory of a block, in bytes or as Shared[dtype](size).\n"
     "stream: an object with `__cuda_stream__`. None: the region's.\n"
     "device: a Device or its name. None: the default one if it can run the module, else the first that can.\n"
     "on_error: \"discard\" or \"keep\", as of a region: what becomes of written arrays after an exception.\n"
     "cooperative: whether all blocks run at the same time.\n"
     "cluster: the blocks of a cluster, along x, y, z.\n"
     "\n"
     "Written arrays may overlap, and a grid may leave elements of a partition without an owner, for kernels that "
     "mean\n"
     "this. The number of arguments, the types of values, whether pointers are live, contiguous, on the device and "
     "lent for\n"
     "what the kernel does, and the limits of the device are checked. No array is read on the host.\n"
     "\n"
     "    source = \"\"\"\n"
     "    #include <offload_args/kernel.h>\n"
     "    OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {\n"
     "      for (auto element : y.mine(oa::Linear1D(n), here)) *element += x[element.index()];\n"
     "    }\"\"\"\n"
     "    add = Kernel.compile(source, \"add\", [In[np.float32], InOut[np.float32], np.int32])\n"
     "    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)\n"
     "    offload_unsafe(add, x.view(np.int32), y, 3)  # the same bytes under another dtype\n"
     "    print(y)  # [1. 2. 3.]\n"
     "\n"
     "Raises the other errors of offload.\n"
     "\n"
     "See also: offload, launch, Kernel; docs/guide/kernels.md."},
    {NULL, NULL, 0, NULL},
};

int add_launch(PyObject *module) {
  static const struct {
    PyObject **place;
    const char *text;
  } names[] = {{&name_value, "_value"},         {&name_pointer, "_pointer"},
               {&name_strided, "_strided"},     {&name_misfit, "_misfit"},
               {&name_asked, "_asked"},         {&name_home, "_home"},
               {&name_uncovered, "_uncovered"}, {&name_grid, "grid"},
               {&name_block, "block"},          {&name_offload, "__offload__"},
               {&name_configure, "_configure"}, {&name_launch_checked, "_launch_checked"},
               {&name_unshaped, "_unshaped"},   {&name_as_bytes, "_as_bytes"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((*names[i].place = PyUnicode_InternFromString(names[i].text)) == NULL) return -1;
  kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
  launcher_type = (PyTypeObject *)PyType_FromSpec(&launcher_spec);
  if (kernel_type == NULL || launcher_type == NULL) return -1;
  launcher_alloc = (allocfunc)PyType_GetSlot(launcher_type, Py_tp_alloc);
  launcher_free = (freefunc)PyType_GetSlot(launcher_type, Py_tp_free);
  if (PyModule_AddObjectRef(module, "Kernel", (PyObject *)kernel_type) < 0 ||
      PyModule_AddObjectRef(module, "Launcher", (PyObject *)launcher_type) < 0)
    return -1;
  return PyModule_AddFunctions(module, functions);
}
