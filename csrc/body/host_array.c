/* Host arrays among the arguments of a call. */
#include "body/body.h"
#include "call/extent.h"

/* Returns the dtype of a device array; -1 if oa_begin will refuse it. */
static int dtype_of(const void *pointer) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  return oa_pointer_query(pointer, &info) ? -1 : info.dtype;
}

int oa_check_itemsize(const oa_routine *routine, const char *name, int64_t itemsize, const char *array,
                      const void *pointer) {
  const int dtype = dtype_of(pointer);
  if (dtype < 0 || itemsize == oa_itemsize(dtype)) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be %lld, the bytes of an element of %s (%s), got %lld",
                 routine->function, name, (long long)oa_itemsize(dtype), array, oa_dtype_name(dtype),
                 (long long)itemsize);
}

/* Finds the bytes of a host array, relative to its address. */
static int find_lines(const oa_routine *routine, const char *name, const oa_array *array, oa_lines *lines,
                      int64_t *nbytes) {
  oa_layout layout;
  const int64_t itemsize = oa_itemsize(array->dtype);
  if (oa_layout_of(array->ndim, array->shape, array->strides, itemsize, &layout) || !layout.regular ||
      layout.overlapping || layout.reversed)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs an array in C or Fortran order, or a part of one; pass a copy",
                   routine->function, name);
  *lines = layout.lines;
  *nbytes = layout.span;
  return OA_OK;
}

static int fail_extent(const oa_routine *routine, const char *name, const oa_extent *extent, int64_t needed,
                       int64_t has) {
  char text[256];
  oa_extent_text(extent, text, sizeof text);
  if (needed > has)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld element%s (%s), has %lld", routine->function, name,
                   (long long)needed, needed == 1 ? "" : "s", text, (long long)has);
  return oa_fail(OA_ERROR_EXTENT, "%s: %s (%s) would touch elements between those of its array; pass its own strides",
                 routine->function, name, text);
}

int oa_check_host(const oa_routine *routine, const char *name, const oa_value *value, const oa_extent *extent,
                  const void *pointer, int writes) {
  const oa_array *array = value->host.array;
  oa_operand operand = {.name = name, .extent = *extent};
  const oa_call call = {.function = routine->function, .operands = &operand, .count = 1};
  oa_lines needed, has;
  int64_t nbytes;
  const int dtype = dtype_of(pointer);
  const int64_t itemsize = oa_itemsize(dtype);
  if (dtype < 0) return OA_OK;
  int status = oa_extent_lines(&call, &operand, itemsize, &needed);
  if (status) return status;
  needed.start = 0;
  const int64_t span = needed.width ? oa_lines_span(needed) : 0;
  if (!array) return value->host.address || !span ? OA_OK : oa_fail_null(routine->function, name);
  if (array->dtype != dtype)
    return oa_fail(OA_ERROR_TYPE, "%s: %s needs an array of %s, as the device array has, got %s", routine->function,
                   name, oa_dtype_name(dtype), oa_dtype_name(array->dtype));
  if (writes && array->flags & OA_READ_ONLY)
    return oa_fail(OA_ERROR_DIRECTION,
                   "%s: %s needs to be writable, and is read-only, or lent to a device; pass one that is neither",
                   routine->function, name);
  if (!span) return OA_OK;
  if ((status = find_lines(routine, name, array, &has, &nbytes))) return status;
  const oa_touched touched = {extent, needed, itemsize};
  if (span <= nbytes && oa_touched_within(&touched, has)) return OA_OK;
  return fail_extent(routine, name, extent, span / itemsize, nbytes / itemsize);
}
