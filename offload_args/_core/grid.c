/* Grids and blocks: the defaults of a launch, and whether a grid covers the arrays that its kernel divides. */
#include "kernel.h"

#include <limits.h>
#include <string.h>

enum { BY_SIZE = 1, BY_ROWS, BY_COLUMNS }; /* as in offload_args/kernels/partitions.py */

static long long size_of(const Pointer *pointer, Py_ssize_t count) {
  long long size = 1;
  for (Py_ssize_t i = 0; i < count; i++) size *= PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, i));
  return size;
}

/* Reads the extent that a partition divides: the pointer's elements, rows or columns. Here, a row is a line of the
 * matrix in memory, which in Fortran order is one of its columns. A matrix of one row or column has both orders, with
 * any strides. If only its rows are divided, each of its elements counts as a row. Returns -1, perhaps with an
 * exception, if the array is not a matrix, or if its strides fit both orders. */
static long long extent_of(const Pointer *pointer, Py_ssize_t count, int kind, int both) {
  if (kind == BY_SIZE) return size_of(pointer, count);
  if (count != 2) return -1;
  const long long strides[] = {PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, 0)),
                               PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, 1))};
  const long long shape[] = {PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, 0)),
                             PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, 1))};
  const int rows = strides[0] < strides[1];
  if ((shape[0] == 1 || shape[1] == 1) && shape[0] * shape[1] > 1) {
    if (!both) return shape[0] * shape[1];
    if (rows || (strides[0] == strides[1] && shape[1] != 1)) return -1;
  }
  return shape[kind == BY_ROWS ? rows : !rows];
}

/* Returns how many parts of a size cover the elements. */
static long long parts_of(long long count, long long each) { return count / each + (count % each != 0); }

static long long product(long long a, long long b) { return __builtin_mul_overflow(a, b, &a) ? LLONG_MAX : a; }

/* Raises the number of blocks along an axis to at least that number. Devices refuse a larger number than
 * they support. */
static void at_least(oa_launch *launch, int axis, long long blocks) {
  if (blocks > UINT32_MAX) blocks = UINT32_MAX;
  if (launch->grid[axis] < blocks) launch->grid[axis] = (uint32_t)blocks;
}

/* Makes the grid cover the divided extent of each argument. Returns 0, or -1 if a partition can't divide its array. */
static int cover_divided(const Kernel *kernel, const OnDevice *on, PyObject *const *arguments, oa_launch *launch) {
  for (int k = 0; k < kernel->divided; k++) {
    const Pointer *pointer = (Pointer *)arguments[kernel->by[k].argument];
    const Py_ssize_t count = dimensions_of(kernel, kernel->by[k].argument, pointer);
    const int *kind = kernel->by[k].kind;
    for (int axis = 0; axis < 2; axis++) {
      if (!kind[axis]) continue;
      const long long extent = extent_of(pointer, count, kind[axis], kind[0] && kind[1]);
      if (extent < 0) return -1;
      const long long units = parts_of(extent, kernel->by[k].each[axis]);
      at_least(launch, axis, kernel->by[k].by_block[axis] ? units : parts_of(units, launch->block[axis]));
    }
    const long long most = on->blocks[k].most;
    if (most == 0) continue;
    const long long blocks = parts_of(size_of(pointer, count), product(on->blocks[k].each, launch->block[0]));
    at_least(launch, 0, blocks < most ? blocks : most);
  }
  return 0;
}

/* Returns the elements of the largest written argument, or of the largest argument if none is written. */
static long long largest(const Kernel *kernel, PyObject *const *arguments) {
  long long read = 0, written = -1;
  for (int i = 0; i < kernel->passed; i++) {
    const int access = kernel->at[i].access;
    if (!access) continue;
    const Pointer *pointer = (Pointer *)arguments[i];
    const long long size = size_of(pointer, dimensions_of(kernel, i, pointer));
    if (access & OA_OVERWRITE) {
      if (size > written) written = size;
    } else if (size > read) {
      read = size;
    }
  }
  return written >= 0 ? written : read;
}

int choose_shape(const Kernel *kernel, const OnDevice *on, PyObject *const *arguments, oa_launch *launch) {
  if (launch->block[0] == 0) memcpy(launch->block, on->block, sizeof launch->block);
  if (launch->grid[0] != 0) return 0;
  launch->grid[0] = launch->grid[1] = launch->grid[2] = 1;
  if (kernel->divided) return cover_divided(kernel, on, arguments, launch);
  const long long threads = product(product(launch->block[0], launch->block[1]), launch->block[2]);
  at_least(launch, 0, parts_of(largest(kernel, arguments), threads));
  return 0;
}

int covers(const Kernel *kernel, const oa_launch *launch, PyObject *const *arguments) {
  for (int k = 0; k < kernel->divided; k++) {
    const Pointer *pointer = (Pointer *)arguments[kernel->by[k].argument];
    const Py_ssize_t count = dimensions_of(kernel, kernel->by[k].argument, pointer);
    const int *kind = kernel->by[k].kind;
    for (int axis = 0; axis < 2; axis++) {
      if (!kind[axis]) continue;
      const long long extent = extent_of(pointer, count, kind[axis], kind[0] && kind[1]);
      const long long units = parts_of(extent, kernel->by[k].each[axis]);
      const long long owners = (long long)launch->grid[axis] * (kernel->by[k].by_block[axis] ? 1 : launch->block[axis]);
      if (extent < 0 || units > owners || (kernel->by[k].exact[axis] && units < owners)) return 0;
    }
  }
  return 1;
}
