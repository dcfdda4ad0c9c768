/* What the files of the extension module share; module.c says what it is.
 *
 * Each file adds its types and functions to the module through its own add_*(). */
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
#include "offload_args/testing.h"

/* The files call one another directly, not through a table that another library might change. */
#pragma GCC visibility push(hidden)

/* -- module.c --------------------------------------------------------------------------------------------------------- */
/* What Python gives once, in setup(). */
struct python {
  PyObject *ndarray;
  /* Of ndarray: a subclass may have others by these names, so ndarray's own are called. */
  PyObject *base, *flags, *dtype, *array_struct, *setflags;
  PyObject *pointer;     /* DevicePtr */
  PyObject *declared[5]; /* by oa_direction: NULL, In, Out, InOut, Scratch */
  PyObject *ctypes;      /* by oa_dtype: cffi's `oa_f32 *` and so on */
  /* (argument, position, device) -> ndarray | tuple: of an argument that is not a plain ndarray; read_tuple() */
  PyObject *resolve;
  PyObject *is_array;          /* (argument) -> whether call() lends it */
  PyObject *refuse;            /* (array, position; 0: of Device.keep): raises DTypeError */
  PyObject *load;              /* (library's name) -> "", or why the library can't be loaded */
  PyObject *default_device;    /* () -> device number */
  PyObject *raise_status;      /* (status): raises */
  PyObject *argument_error;    /* ArgumentError */
  PyObject *region_error;      /* RegionError */
  PyObject *packed_warning;    /* PerformanceWarning */
  PyObject *unwritten_warning; /* UnwrittenWarning */
  PyObject *collect;           /* gc.collect: PyGC_Collect does nothing where automatic collection is off */
  PyObject *entering;          /* while traced: (region) -> (tag, a name for each argument as bytes) */
  PyObject *left;              /* while traced: (tag) */
};
extern struct python python;

extern atomic_int leaving_process; /* 1 once the interpreter is going: the driver may be gone */

/* Raises what Python makes of a status; returns NULL. */
PyObject *fail(int status);

/* Tells of an exception that can't be raised here; Ctrl-C comes once more, when it can. */
void report(PyObject *where);

/* PyLong_AsLong(), as an int. */
int as_int(PyObject *object);

PyObject *tuple_of(int count, const int64_t *values);

/* Reads the integers of a tuple; -1 with an exception. */
int read_integers(PyObject *tuple, int64_t *values);

/* -- pointer.c -------------------------------------------------------------------------------------------------------- */
typedef struct {
  PyObject_HEAD PyObject *cd, *shape, *strides, *code, *device;
  oa_any *handle;
  _Atomic(void *) keep; /* an export of the memory: it lives as long as this object */
  int owned;            /* 1: a view, whose slot goes with this object */
} Pointer;

extern PyTypeObject *pointer_type;

/* cffi's own function for "a cdata of this pointer type": a quarter of the cost of ffi.cast(). Its place in the table is
 * part of the ABI between cffi and every module it generates. */
extern PyObject *(*cdata_from_pointer)(char *, PyObject *);

/* Steals shape and strides, which may be NULL after a failure. */
PyObject *pointer_new(oa_any *handle, int dtype, int device, PyObject *shape, PyObject *strides, int owned);

/* The object as a Pointer; NULL with TypeError if it is none. */
Pointer *as_pointer(PyObject *object);

/* Exports the pointer's memory; *keep: to be given to oa_export_release. Returns a status. */
int export_memory(Pointer *pointer, uint64_t *value, void **keep);

int add_pointer(PyObject *module);

/* -- arguments.c ------------------------------------------------------------------------------------------------------ */
enum { ARRAY_ALIGNED = 0x100, ARRAY_NATIVE = 0x200, ARRAY_WRITEABLE = 0x400 };
/* What is needed of one argument until oa_region_enter has returned. */
typedef struct {
  PyObject *source; /* the ndarray or the tuple it was resolved to */
  PyObject *capsule;
  int64_t *dims; /* shape and strides of a tuple */
  int flags;     /* of an ndarray's interface */
} Item;

void release_item(Item *item);

/* Fills array from an ndarray; *flags are the interface's. 1: done, 0: no dtype for devices, -1: an exception. */
int read_ndarray(Item *item, oa_array *array, int *flags);

/* Fills array from (dtype, shape, strides, address, flags, device, stream or None), a Scratch or borrowed memory. */
int read_tuple(Item *item, oa_array *array, int *device, oa_region_options *options);

/* What ndarray itself says of an array's attribute. */
PyObject *attribute(PyObject *array, PyObject *descriptor);

/* -- lent.c ----------------------------------------------------------------------------------------------------------- */
/* One argument of an open region. */
typedef struct Held {
  PyObject *array, *root;     /* strong: the array and the one that owns its memory */
  PyObject *weak, *weak_root; /* weak: they make ndarray.resize refuse */
  uintptr_t low, high;        /* where the array's bytes are */
  PyObject *owner;            /* borrowed, where something may stay on the device: root, or array if that has none */
  struct Held *next;          /* in its bucket of `locked` */
  struct Held *next_of_owner, **place_of_owner; /* in its bucket of `owners` */
  int counted;                                  /* 1: it is in both */
  int writeable;                                /* 1: the host could write it before it was lent */
  int unaligned;                                /* 1: its elements do not begin at multiples of their size */
  int kept_writeable; /* 1: NumPy would never give the flag back, since the memory's owner can't say that it may be written */
} Held;

/* The mutex of the arrays that are lent, with the GIL released while it is waited for. */
void lock_lent(void);
void unlock_lent(void);

/* Notes who is held: the array, its root and weak references to both. */
int keep_alive(Held *held, PyObject *array);

/* Where the array's bytes are, gaps included. */
void find_bytes(Held *held, const oa_array *array);

/* Names the owner of an array's memory to the core, and whether that has it to itself. -1 with an exception. */
int name_owner(Held *held, oa_array *array);

/* Whether all its bytes belong to an array that is lent and that the host could write before; lent.c says more. */
int is_lent(const Held *one);

/* Whether the host could write an array before it was lent; flag: whether it can now. Ask of all arguments of an enter
 * before the first is held. */
int was_writeable(const Held *held, int flag);

/* Makes the array read-only while it is held; flag: whether the host can write it now. */
void hold(Held *held, int flag);

void release_one(Held *held);

/* Gives back everything the held arguments took, and the memory itself. Keeps the current exception. */
void release_held(Held *held, Py_ssize_t count);

/* Has the core told of the end of an owner, if something newly stays of it. Keeps no exception. */
void watch_owner(PyObject *owner);

/* In a forked child: arrays of the parent's regions are writable again, and no lock is taken. */
void lent_after_fork(void);

/* Makes the mutex and the tables; -1 with an exception. */
int start_lent(void);

/* -- the others ------------------------------------------------------------------------------------------------------- */
extern atomic_int tracing; /* 1: python.entering and python.left are called (trace.c) */
void trace_after_fork(void);

/* What the core calls when a library is first needed: an oa_library_loader (library.c). */
int load_library(const char *name, char *text, size_t size);

int add_region(PyObject *module);
int add_array(PyObject *module);
int add_dlpack(PyObject *module);
int add_library(PyObject *module);
int add_memory(PyObject *module);
int add_device(PyObject *module);
int add_trace(PyObject *module);

/* -- records.c -------------------------------------------------------------------------------------------------------- */
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

/* -- numbers.c -------------------------------------------------------------------------------------------------------- */
/* Adds the tables of dtypes, statuses and kinds of trace events, and every constant of the core that Python uses, by its C
 * name. */
int add_numbers(PyObject *module);

#pragma GCC visibility pop
#endif
