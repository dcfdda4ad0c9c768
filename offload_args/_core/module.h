/* The names that the files of the extension share; module.c describes the extension.
 *
 * Each file adds its own types and functions to the module through its add_*(), which returns 0, or -1 with an
 * exception. */
#ifndef OFFLOAD_ARGS_CORE_MODULE_H
#define OFFLOAD_ARGS_CORE_MODULE_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>
#include <structmember.h>

#include "offload_args.h"
#include "offload_args/routine.h"
#include "offload_args/testing.h"

/* Hidden symbols: calls between the files are direct, and no other library can replace them. */
#pragma GCC visibility push(hidden)

/* -- module.c ------------------------------------------------------------------------------------------------------ */
/* The Python objects that C uses. setup() fills it, once; all references are held until the process ends. */
struct python {
  PyObject *ndarray;
  PyObject *numpy_bool;
  PyObject *may_share;       /* numpy.may_share_memory */
  PyObject *complexfloating; /* the type of NumPy's complex scalars: their __float__ drops the imaginary part */
  /* ndarray's own methods: a subclass may define other attributes by these names. */
  PyObject *base, *flags, *dtype, *array_struct, *setflags;
  PyObject *pointer;     /* DevicePtr */
  PyObject *declared[5]; /* by oa_direction: NULL, In, Out, InOut, Scratch */
  /* (argument, position, device) -> ndarray | tuple: for an argument that is not a plain ndarray; read_tuple() */
  PyObject *resolve;
  PyObject *is_array;     /* (argument) -> whether call() lends it */
  PyObject *refuse;       /* (array, position or name of the argument): raises DTypeError */
  PyObject *region;       /* offload_args */
  PyObject *device;       /* Device */
  PyObject *read_options; /* (device, stream, on_error) -> (number or -1, stream's handle or None, keep on error) */
  PyObject *load;         /* (library's name) -> "", or the reason why the library can't be loaded */
  /* (backend's name) -> a line for each place: the path of its driver, or the reason why there is none */
  PyObject *find_driver;
  PyObject *default_device;    /* () -> device number */
  PyObject *raise_status;      /* (status): raises */
  PyObject *argument_error;    /* ArgumentError */
  PyObject *type_error;        /* ArgumentTypeError */
  PyObject *region_error;      /* RegionError */
  PyObject *packed_warning;    /* PerformanceWarning */
  PyObject *unwritten_warning; /* UnwrittenWarning */
  PyObject *discarded_warning; /* DiscardedWarning */
  PyObject *guarding;          /* (region) -> (its line, a name for each argument), all as bytes */
  PyObject *guard_error;       /* GuardError */
  PyObject *inside;            /* (outer region, position): warns of a region that open() entered inside another one */
  PyObject *collected;         /* ((code, line) or None): warns of a region that was collected while it was open */
  PyObject *entering_codes;    /* a list: the codes of functions that enter regions for their callers */
  PyObject *collect;           /* gc.collect: PyGC_Collect does nothing if automatic collection is off */
  PyObject *entering;          /* while traced: (region) -> (tag, a name for each argument as bytes) */
  PyObject *left;              /* while traced: (tag) */
  PyObject *done;              /* while recorded: recording.c */
  PyObject *reused;            /* {function: bits of the arguments that it reads many times, or -1} */
};
extern struct python python;

extern atomic_int leaving_process; /* 1 once the interpreter ends: the driver may have been unloaded */

/* Raises the exception of a failed call of the core. Returns NULL. */
PyObject *fail(int status);

/* Reports an exception that can't be raised here as unraisable. Sends Ctrl-C again, to be raised later. */
void report(PyObject *context);

/* Returns an integer as PyLong_AsLong() does. */
int as_int(PyObject *object);

/* Returns the integers as a tuple; NULL with an exception. */
PyObject *tuple_of(int count, const int64_t *values);

/* Reads the integers of a tuple. Returns 0, or -1 with an exception. */
int read_integers(PyObject *tuple, int64_t *values);

/* -- pointer.c ----------------------------------------------------------------------------------------------------- */
/* The layout of an array for BLAS. */
typedef struct {
  int dimensions;        /* 1 to 3; 0 for other arrays, whose other fields are not set */
  int uneven;            /* 1: the stride is not a whole number of elements */
  int64_t rows, columns; /* of a matrix, and of each matrix of a batch */
  int64_t ld[2];         /* its leading dimension by columns and by rows; 0 if it does not have that order */
  int64_t count, stride; /* of a vector's elements, or of a batch's matrices; 1 and 0 for one matrix */
} Geometry;

typedef struct {
  PyObject_HEAD PyObject *shape, *strides, *dtype_code, *device;
  oa_any *handle;
  int dtype, device_number;           /* an oa_dtype; dtype_code and device are the same as objects */
  _Atomic(Geometry *) geometry;       /* made at first need */
  _Atomic(PyObject *) geometry_tuple; /* made at first need */
  _Atomic(void *) keep;               /* an export of the memory: it lives as long as this object */
  int owned;                          /* 1: a view, whose slot is freed with this object */
  /* Not 0: kernels, which get an address and no strides, refuse the pointer. ITS_OWN: because of its own strides.
   * AS_LENT: because of the strides with which the array was lent, although it may be packed on the device; slices
   * inherit it from their pointer. */
  int strided;
  /* This is a view of the root: a pointer that a region gave, a scalar or scratch. offset: the bytes from the root's
   * lowest byte to the lowest here. */
  oa_any *root;
  int64_t offset;
} Pointer;

enum { ITS_OWN = 1, AS_LENT };

/* Returns 0 if the elements are contiguous in some order of their axes, or are rows of contiguous elements with gaps
 * between them, which a leading dimension describes; 1 if they are strided or reversed. */
int is_strided(int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize);

extern PyTypeObject *pointer_type;

/* Makes a DevicePtr; NULL with an exception. owned: 1 if the handle is destroyed with it. Steals the references to
 * shape and strides, which may be NULL after a failure. */
PyObject *pointer_new(oa_any *handle, int dtype, int device, PyObject *shape, PyObject *strides, int owned);

/* Returns the object as a Pointer; NULL with TypeError if it is not one. */
Pointer *as_pointer(PyObject *object);
/* Reads the bytes from the lowest of the root to the first element. Returns 0, or -1 with an exception. */
int pointer_first(const Pointer *pointer, int64_t *bytes);

/* Returns the object as a Pointer, NULL without an exception if it is not one. For most scalars it does not look at the
 * base class. */
static inline Pointer *pointer_of(PyObject *object) {
  if (Py_TYPE(object) == (PyTypeObject *)python.pointer) return (Pointer *)object;
  if (PyFloat_CheckExact(object) || PyLong_CheckExact(object)) return NULL;
  return PyObject_TypeCheck(object, pointer_type) ? (Pointer *)object : NULL;
}

/* Exports the pointer's memory. Returns a status. The caller passes *keep to oa_export_release later. */
int export_memory(Pointer *pointer, uint64_t *value, void **keep);

int add_pointer(PyObject *module);

/* -- geometry.c ---------------------------------------------------------------------------------------------------- */
/* Returns a pointer's geometry, computed at first need; NULL with an exception. */
const Geometry *pointer_geometry(Pointer *pointer);

int add_geometry(PyObject *module);

/* Returns an array's geometry as a tuple, made at first need; borrowed. NULL with an exception. */
PyObject *pointer_geometry_tuple(Pointer *self);

/* -- lists.c ------------------------------------------------------------------------------------------------------- */
/* The pointers that were read from one argument of a call, until the call ends. */
typedef struct List {
  struct List *next;
  PyObject *objects; /* a tuple of the pointers, which keeps them alive; NULL: the caller's argument does */
  union {            /* the value for the routine */
    oa_pointer_list pointers;
    oa_number_list numbers;
  };
  const void *at[]; /* the pointers or numbers */
} List;

/* Reads the device pointers of one argument: a list or tuple of DevicePtrs, or one DevicePtr with an additional axis.
 * Adds to *lists. Returns 0, or -1 with or without an exception. */
int read_pointers(PyObject *object, int dtype, List **lists, oa_value *value);
/* Reads integers, or numbers of a dtype other than OA_ANY, from a list, a tuple or any other sequence. read_one reads
 * one of them into itemsize bytes of memory. Returns as read_pointers does. */
int read_list(PyObject *object, size_t itemsize, int (*read_one)(PyObject *object, int dtype, void *memory), int dtype,
              List **lists, oa_value *value);
void release_lists(List *lists);

/* -- arguments.c --------------------------------------------------------------------------------------------------- */
enum { ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };
/* One argument, until oa_region_enter has returned. */
typedef struct {
  PyObject *source;  /* the ndarray, or the tuple that stands for the argument */
  PyObject *capsule; /* of an ndarray's interface */
  int64_t *dims;     /* the shape and strides of a tuple */
  int flags;         /* of an ndarray's interface */
} Item;

/* Releases the references and memory of an item. */
void release_item(Item *item);

/* Fills array from an ndarray; *flags becomes its interface's flags. Returns 1, or 0 if devices can't hold its dtype,
 * or -1 with an exception. */
int read_ndarray(Item *item, oa_array *array, int *flags);
/* Brings the newest bytes of an ndarray to the host, whether regions lend it or not. Returns 0, or -1 with an
 * exception. */
int update_newest_of(PyObject *array);
/* Does this for any object that the host is about to read as numbers; does nothing for an object of another type. */
static inline int bring_newest(PyObject *object) {
  return PyObject_TypeCheck(object, (PyTypeObject *)python.ndarray) ? update_newest_of(object) : 0;
}

/* Fills array from (dtype, shape, strides, address, flags, device, stream or None), which stands for a Scratch or
 * borrowed memory. Returns 0, or -1 with an exception. */
int read_tuple(Item *item, oa_array *array, int *device, oa_region_options *options);

/* Returns an array's attribute as ndarray itself defines it: a new reference, or NULL with an exception. */
PyObject *attribute(PyObject *array, PyObject *descriptor);

/* -- lent.c -------------------------------------------------------------------------------------------------------- */
/* One argument of an open region. */
typedef struct Held {
  PyObject *array, *root;     /* strong references: the array, and the array that owns its memory */
  PyObject *weak, *weak_root; /* weak references: they make ndarray.resize refuse */
  uintptr_t low, high;        /* the interval of the array's bytes, gaps included */
  int gaps;                   /* 1: there may be gaps */
  PyObject *owner;            /* of memory that may become resident: root, or array if root is NULL; borrowed */
  struct Held *next;          /* in its bucket of `locked` */
  struct Held *next_of_owner, **place_of_owner; /* in its bucket of `owners` */
  int counted;                                  /* 1: in both tables */
  int writeable;                                /* 1: the host could write the array before it was lent */
  int reopened;                                 /* 1: it was lent before, and an update block made it writeable again */
  int unaligned;                                /* 1: the elements do not start at multiples of their size */
  int kept_writeable; /* 1: NumPy could never set the flag again, because the memory's owner does not permit writes */
} Held;

/* Return whether objects of libraries were collected while a stream was captured, and are not destroyed yet; destroy
 * them if this is possible by now. */
int objects_are_left(void);
void destroy_left_objects(void);

/* Lock and unlock the mutex of lent arrays. The GIL is released while the lock is waited for. */
void lock_lent(void);
void unlock_lent(void);

/* Takes references to the array and to its root, strong and weak. Returns 0, or -1 with an exception. */
int keep_alive(Held *held, PyObject *array);

/* Records the interval of the array's bytes. */
void find_bytes(Held *held, const oa_array *array);

/* Gives the core the owner of an array's memory, and whether it is the sole owner. Returns 0, or -1 with an
 * exception. */
int name_owner(Held *held, oa_array *array);

/* Returns 1 if the two may share an element. Needs the lock. */
int held_meet(const Held *a, const Held *b);

/* Returns 1 if all bytes of the array belong to a lent array that the host could write before. Needs the lock. */
int is_lent(const Held *part);
int is_lent_in_part(const Held *part);
int lock_if_lent(const Held *part); /* makes the array read-only if it is lent; returns as is_lent does */

/* Returns 1 if the host could write an array before it was lent. flag: 1 if the host can write it now. Needs the lock.
 * Call it for all arguments of an entry before the first one is held. */
int was_writeable(const Held *held, int flag);

/* Makes the array read-only while it is held. flag: 1 if the host can write it now. Needs the lock. */
void hold(Held *held, int flag);

/* Releases the references of one argument that was not held. */
void release_one(Held *held);

/* Makes held arguments writeable again, releases their references, and frees the memory of `held`. Keeps the current
 * exception. */
void release_held(Held *held, Py_ssize_t count);

/* Reports the end of an owner to the core, if memory of that owner newly became resident. Sets no exception. */
void watch_owner(PyObject *owner);

/* Makes the arrays of the parent's regions writeable again, in a forked child. Takes no lock. */
void lent_after_fork(void);

/* Makes the mutex and the tables. Returns 0, or -1 with an exception. */
int start_lent(void);

/* -- the others ---------------------------------------------------------------------------------------------------- */
extern atomic_int tracing; /* 1: python.entering and python.left are called (trace.c) */
void trace_after_fork(void);

/* The core's oa_library_loader (library.c). It is in C, so that it catches any exception of the search. */
int load_library(const char *name, char *text, size_t size);
/* The core's finder of drivers (library.c). */
int find_driver(const char *backend, char *text, size_t size);

/* -- recording.c --------------------------------------------------------------------------------------------------- */
enum {
  RECORDS = 1,       /* the recorder, python.done, is called after each call */
  RECORDS_BEGINNINGS /* it is called before and after each call */
};
extern atomic_int recording; /* RECORDS, RECORDS_BEGINNINGS, or 0 for no recorder */
void recording_after_fork(void);

/* Reports a call, with its arguments, to the recorder. names: of the last arguments; NULL: none has a name. Steals the
 * result, and returns it; NULL with the exception of the call, or else of the recorder. */
__attribute__((cold)) PyObject *tell_recorder(const char *kind, PyObject *subject, PyObject *arguments, PyObject *names,
                                              PyObject *result);
__attribute__((cold)) PyObject *tell_recorder_values(const char *kind, PyObject *subject, PyObject *const *values,
                                                     Py_ssize_t count, PyObject *names, PyObject *result);

/* Reports a call of a function of this module likewise, while a recording is under way. */
static inline PyObject *recorded(const char *kind, PyObject *arguments, PyObject *result) {
  if (!OA_UNLIKELY(atomic_load_explicit(&recording, memory_order_relaxed))) return result;
  return tell_recorder(kind, Py_None, arguments, NULL, result);
}

int add_recording(PyObject *module);

int add_function(PyObject *module);
int add_blas(PyObject *module);
int add_panels(PyObject *module);
int add_object(PyObject *module);
int add_graph(PyObject *module);
int add_finish(PyObject *module);
int add_checking(PyObject *module);
int add_library_call(PyObject *module);
int add_region(PyObject *module);
int add_guard(PyObject *module);
int add_chain(PyObject *module);

/* -- compute.c ----------------------------------------------------------------------------------------------------- */
/* Notes that the interpreter ends, and waits for Python functions that calls run on other threads. */
void leave_functions(void);
void functions_after_fork(void);
/* Raises the exception of a call or replay: the one that its Python function left, or the core's. Returns NULL. */
PyObject *fail_function(int status);
int add_compute(PyObject *module);

/* -- guard.c ------------------------------------------------------------------------------------------------------- */
/* Raises the GuardError that was noted for this thread, or sent to it, after a thread without a Python state touched an
 * array. Returns 0, or -1 with the exception. */
int raise_touch(void);
int add_open(PyObject *module);
void open_after_fork(void); /* empties the list of open regions, which belong to the parent, in a forked child */
int add_call(PyObject *module);
int add_array(PyObject *module);
int add_dlpack(PyObject *module);
int add_library(PyObject *module);
int add_kernel(PyObject *module);
int add_launch(PyObject *module);
int add_memory(PyObject *module);
int add_device(PyObject *module);
int add_accelerate(PyObject *module);
int add_trace(PyObject *module);
int add_c_api(PyObject *module);

/* -- records.c ----------------------------------------------------------------------------------------------------- */
enum {
  RECORD_BACKEND_INFO,
  RECORD_DEVICE_INFO,
  RECORD_COUNTERS,
  RECORD_RESIDENCY,
  RECORD_POINTER_INFO,
  RECORD_TRACE_EVENT,
  RECORD_COUNT
};

/* Returns a structure of the core as a named tuple; NULL with an exception. */
PyObject *record_new(int record, const void *structure);

extern const char *const residency_modes[]; /* by oa_residency_mode, then NULL */

int add_records(PyObject *module);

/* -- numbers.c ----------------------------------------------------------------------------------------------------- */
/* Adds the tables of dtypes, statuses, kinds of trace events and residency modes, and every constant of the core that
 * Python uses, by its name in C. */
int add_numbers(PyObject *module);

#pragma GCC visibility pop
#endif
