#include "region/array.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const direction_names[] = {"by use", "In", "Out", "InOut", "Scratch"};

const char *oa_direction_name(int direction) { return direction_names[direction]; }

static void name_array(oa_lent_array *lent, int position) {
  const char *name = lent->array->name;
  if (name) {
    const size_t length = strnlen(name, sizeof lent->name - 1);
    memcpy(lent->name, name, length);
    lent->name[length] = '\0';
  } else if (position < 9) { /* snprintf would cost more than all other work for an array */
    memcpy(lent->name, "argument 0", 11);
    lent->name[9] = (char)('1' + position);
  } else {
    snprintf(lent->name, sizeof lent->name, "argument %d", position + 1);
  }
}

/* Checks the members of the array for which the layout is not needed. */
static int check_description(const oa_lent_array *lent) {
  const oa_array *a = lent->array;
  if (a->dtype <= OA_ANY || a->dtype >= OA_DTYPE_COUNT)
    return oa_fail(OA_ERROR_TYPE, "oa_region_enter: %s: dtype %d is not an oa_dtype", lent->name, a->dtype);
  if (a->direction < OA_BY_USE || a->direction > OA_SCRATCH)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: direction %d is not an oa_direction", lent->name,
                   a->direction);
  const int of_scratch = a->direction == OA_SCRATCH ? OA_OF_GRAPH : 0;
  if (a->flags & ~(OA_READ_ONLY | OA_BORROWED | OA_RESIDENT | OA_OWNED | OA_REUSED | OA_TRACKED | of_scratch))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: flags %d are not a sum of oa_array_flags", lent->name,
                   a->flags);
  if (a->ndim < 0 || a->ndim > OA_MAX_DIMENSIONS)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: %d dimensions, at most %d can be lent", lent->name, a->ndim,
                   OA_MAX_DIMENSIONS);
  if (a->ndim > 0 && (!a->shape || (!a->strides && a->direction != OA_SCRATCH)))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: shape and strides need %d numbers each, got NULL",
                   lent->name, a->ndim);
  return OA_OK;
}

/* Finds the layout of the array. Scratch without strides is in C order, and its elements have no gaps. */
static int find_layout(oa_lent_array *lent, int64_t itemsize) {
  const oa_array *a = lent->array;
  int64_t c_order[OA_MAX_DIMENSIONS];
  const int64_t *strides = a->strides;
  if (!strides) { /* Scratch, or an array without dimensions */
    int64_t step = itemsize;
    for (int i = a->ndim - 1; i >= 0; i--) {
      c_order[i] = step;
      if (__builtin_mul_overflow(step, a->shape[i] > 1 ? a->shape[i] : 1, &step))
        step = INT64_MAX; /* with this step, oa_layout_of finds the overflow */
    }
    strides = c_order;
  }
  const int status = oa_layout_of(a->ndim, a->shape, strides, itemsize, &lent->layout);
  if (status == OA_ERROR_ARGUMENT)
    return oa_fail(status, "oa_region_enter: %s needs extents of at least 0; its shape has a negative one", lent->name);
  if (status)
    return oa_fail(status, "oa_region_enter: %s: its size in bytes does not fit 64 bits; lend a part of it",
                   lent->name);
  const oa_layout *layout = &lent->layout;
  if (a->direction == OA_SCRATCH && layout->size &&
      (!layout->regular || layout->reversed || layout->overlapping || layout->lines.count != 1))
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_region_enter: %s is Scratch with gaps between its elements, or reversed; give it the strides of "
                   "C or Fortran order, or none, for C order",
                   lent->name);
  return OA_OK;
}

/* Decides whether the array may be written. */
static int decide_rights(oa_lent_array *lent) {
  const oa_array *a = lent->array;
  const bool must_write = a->direction == OA_OUT || a->direction == OA_INOUT;
  lent->writes = a->direction != OA_IN && !(a->direction == OA_BY_USE && (a->flags & OA_READ_ONLY));
  lent->out = a->direction == OA_OUT;
  if (must_write && (a->flags & OA_READ_ONLY))
    return oa_fail(OA_ERROR_DIRECTION,
                   "oa_region_enter: %s is read-only and lent as %s; lend a writable copy, x = x.copy(), which gets "
                   "the results, or In if no call writes it",
                   lent->name, direction_names[a->direction]);
  if (!lent->layout.overlapping) return OA_OK;
  if (must_write)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_region_enter: %s is lent as %s but several of its indices share one element (a broadcast or "
                   "overlapping view); lend a copy of it, x = x.copy()",
                   lent->name, direction_names[a->direction]);
  lent->writes = false;
  return OA_OK;
}

/* Checks an array that is on the device already. */
static int check_borrowed(const oa_lent_array *lent, int64_t itemsize) {
  if (!lent->layout.regular)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_region_enter: %s is on a device with strides that can't be used there; make it contiguous",
                   lent->name);
  if (lent->low % (uintptr_t)itemsize)
    return oa_fail(
        OA_ERROR_ARGUMENT,
        "oa_region_enter: %s is on a device at an address that is not a multiple of its itemsize, %lld bytes; "
        "devices can't read it there: make a copy of it",
        lent->name, (long long)itemsize);
  return OA_OK;
}

/* Finds the array's bytes on the host, and whether the device holds it packed. */
static int find_bytes(oa_lent_array *lent, int64_t itemsize) {
  const oa_array *a = lent->array;
  if (!a->data) return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: data is NULL", lent->name);
  const uintptr_t data = (uintptr_t)a->data;
  lent->low = data + (uintptr_t)lent->layout.low;
  lent->high = lent->low + (uintptr_t)lent->layout.span;
  if (lent->high < lent->low || (lent->layout.low < 0 && lent->low > data))
    return oa_fail(OA_ERROR_OVERFLOW, "oa_region_enter: %s reaches beyond the address space", lent->name);
  lent->lines = lent->layout.lines;
  /* An array is packed if it is not lines, or if no leading dimension can describe it: it is reversed, or has gaps
   * along every axis. A matrix of one column counts as a matrix. */
  bool named = lent->layout.lines.count == 1;
  for (int i = 0; a->ndim > 1 && i < a->ndim; i++) named |= a->strides[i] == itemsize;
  lent->packed = !lent->layout.regular || lent->layout.reversed || !named;
  return OA_OK;
}

int oa_lent_array_check(oa_lent_array *lent, int position) {
  const oa_array *a = lent->array;
  int status;
  name_array(lent, position);
  if ((status = check_description(lent))) return status;
  const int64_t itemsize = oa_itemsize(a->dtype);
  if ((status = find_layout(lent, itemsize)) || (status = decide_rights(lent))) return status;
  if (a->direction == OA_SCRATCH || lent->layout.size == 0) return OA_OK;
  if ((status = find_bytes(lent, itemsize))) return status;
  return a->flags & OA_BORROWED ? check_borrowed(lent, itemsize) : OA_OK;
}

oa_lines oa_lent_array_lines(const oa_lent_array *lent) {
  const int64_t span = (int64_t)(lent->high - lent->low);
  oa_lines lines = lent->layout.regular ? lent->layout.lines : (oa_lines){.width = span, .pitch = span, .count = 1};
  lines.start = 0;
  return lines;
}

oa_shape *oa_shape_of(const oa_array *array) {
  const size_t bytes = (size_t)array->ndim * sizeof(int64_t);
  oa_shape *s = malloc(sizeof *s + 2 * bytes);
  if (!s) {
    oa_fail(OA_ERROR_MEMORY, "no host memory");
    return NULL;
  }
  s->ndim = array->ndim;
  s->itemsize = oa_itemsize(array->dtype);
  s->shape = (int64_t *)(s + 1);
  s->strides = s->shape + array->ndim;
  if (bytes) memcpy(s->shape, array->shape, bytes);
  if (bytes) memcpy(s->strides, array->strides, bytes);
  return s;
}

int oa_array_bytes(const char *function, const oa_array *array, uintptr_t *low, uintptr_t *high, oa_lines *lines) {
  if (!array) return oa_fail_null(function, "array");
  oa_lent_array lent = {.array = (oa_array *)array};
  const int status = oa_lent_array_check(&lent, 0);
  if (status) return oa_fail_in(status, "%s", function);
  *low = lent.low;
  *high = lent.high;
  *lines = lent.packed ? (oa_lines){0} : lent.lines;
  lines->start = 0;
  return OA_OK;
}
