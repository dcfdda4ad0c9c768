/* A program's own kernels in the extension: their signatures, their facts on devices, and launches. */
#ifndef OFFLOAD_ARGS_CORE_KERNEL_H
#define OFFLOAD_ARGS_CORE_KERNEL_H

#include "module.h"

#include "offload_args/launch.h"

#pragma GCC visibility push(hidden)

enum { DEVICES = 64 };

/* A kernel on one device. It lives as long as its Kernel. */
typedef struct {
  oa_kernel *kernel; /* NULL if each access is checked */
  int checked;       /* 1: each access is checked, and the kernel's method _launch_checked launches it */
  uint32_t block[3]; /* the block of a launch without one */
  struct {
    /* blocks along x for a partition that any grid covers: one for each `each` elements of every thread, and at most
     * `most`; most 0: the partition itself determines them */
    long long each, most;
  } blocks[]; /* by index in Kernel.by */
} OnDevice;

/* A type's function for calls without a tuple of arguments (PEP 590). The limited API has names for it only from 3.12
 * on. */
typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
enum { HAS_VECTORCALL = 1 << 11 }; /* Py_TPFLAGS_HAVE_VECTORCALL */

typedef struct {
  PyObject_HEAD PyObject *name, *parameters;
  Vectorcall call;
  int count;                           /* of all arguments */
  int passed;                          /* the arguments that a call passes; numbers of the arrays follow them */
  size_t nbytes;                       /* of all arguments */
  _Atomic(OnDevice *) loaded[DEVICES]; /* by number of the device; NULL: not loaded yet */
  atomic_int home;                     /* the device of an offload without one; -1: not known yet */
  /* access 0: a value; its dtype is OA_ANY if only _value can read it. struct_bytes of an array of structs: the
   * struct's size, and its pointer is to bytes, whose last dimension is a struct; otherwise 0. */
  struct {
    int access, dtype, offset, nbytes, struct_bytes;
  } at[OA_MOST_PARAMETERS];
  int has_structs; /* there is such an array */
  /* The parameters that have a partition. Along x and y: the extent that it divides (BY_SIZE, ...; 0: any grid fits),
   * the part of it that belongs to one thread or block, 1 for a block, and 1 if each block writes a separate element.
   * */
  int divided;
  struct {
    int argument, kind[2], each[2], by_block[2], exact[2];
  } *by;
  /* Arrays with extents and steps as further arguments, SHAPE_NUMBERS each, from `passed` on. rank 2: it has to be a
   * matrix; else its elements are counted in the order of memory. like: the argument that has to be as large; -1: none.
   * ordered: that argument also has to have its longer step along the same axis. */
  int shaped;
  struct {
    int argument, rank, like, ordered;
  } *shapes;
} Kernel;

enum { SHAPE_NUMBERS = 4 }; /* two extents, and the steps along them in elements */

typedef struct {
  PyObject_HEAD Kernel *kernel;
  Vectorcall call;
  oa_launch launch; /* grid[0] or block[0] is 0: the arguments determine it */
} Launcher;

/* -- kernel.c ------------------------------------------------------------------------------------------------------ */
/* Makes a kernel of (name, parameters, partitions, shapes): a tuple (access, dtype, offset, nbytes, struct_bytes) for
 * each parameter, (argument, (kind, each, by_block, exact) along x, the same along y) for each partition, and
 * (argument, rank, like, ordered) for each array whose shape is passed. NULL with an exception. */
PyObject *kernel_new(PyTypeObject *type, PyObject *arguments);
void kernel_dealloc(PyObject *kernel);

/* Returns the kernel on a pointer's device; loads its module there if needed. NULL with an exception. */
const OnDevice *kernel_on(Kernel *kernel, const Pointer *pointer);

/* Reads 1 to 3 sizes. Returns 0, or -1 without an exception. */
int read_sizes(PyObject *object, uint32_t sizes[3]);

/* Returns the number of dimensions of an argument's elements. */
static inline Py_ssize_t dimensions_of(const Kernel *kernel, int argument, const Pointer *pointer) {
  return PyTuple_Size(pointer->shape) - (kernel->at[argument].struct_bytes != 0);
}

/* -- grid.c -------------------------------------------------------------------------------------------------------- */
/* Chooses the grid and block if the launch has none. The number of arguments is right, and the arguments fit the
 * kernel. Returns 0; -1, with or without an exception, if a partition can't divide its array. */
int choose_shape(const Kernel *kernel, const OnDevice *on, PyObject *const *arguments, oa_launch *launch);

/* Returns 1 if the grid has an owner for each element of each argument with a partition, and has no block without an
 * element if each block writes an element; otherwise 0. */
int covers(const Kernel *kernel, const oa_launch *launch, PyObject *const *arguments);

#pragma GCC visibility pop
#endif
