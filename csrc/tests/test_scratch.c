/* Memory that is taken while a region is open, on host and sim. */
#include "one_device.h"

#include <string.h>

const oa_library *const oa_libraries[] = {NULL};

static oa_array scratch_of(int64_t *n) {
  return (oa_array){.shape = n, .ndim = 1, .dtype = OA_F32, .direction = OA_SCRATCH, .name = "w"};
}

static void it_ends_with_its_last_pointer(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0}, back[2];
  int64_t n = 4;
  const int64_t half = 2, step = 4;
  oa_region *region;
  oa_any *view;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_OUT)}, scratch = scratch_of(&n);
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  const oa_any *const operands[] = {arrays[0].handle, arrays[1].handle};
  CHECK_OK(oa_scratch(operands, 2, &scratch));
  CHECK(counters().mappings == 3);
  CHECK_OK(oa_pointer_query(scratch.handle, &info));
  CHECK(info.scratch && info.writable && info.nbytes == 16);
  CHECK_OK(axpy(2, arrays[0].handle, 1, scratch.handle, 1, 4, 1));
  CHECK_OK(oa_pointer_view(scratch.handle, 8, 1, &half, &step, &view));
  CHECK_OK(oa_pointer_release(scratch.handle));
  CHECK_FAILS(oa_pointer_query(scratch.handle, &info), OA_ERROR_STALE, "was released");
  CHECK(counters().mappings == 3);
  /* The view is written after the pointer from which it was made has ended. */
  CHECK_OK(axpy(1, arrays[0].handle, 1, view, 1, 2, 0));
  CHECK_OK(oa_pointer_read(view, back, 1, &half, &step));
  CHECK(back[0] == 7 && back[1] == 10);
  CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 4, 1));
  CHECK_OK(oa_pointer_release(view));
  CHECK(counters().mappings == 2);
  leave(region);
  CHECK(y[3] == 4);
  check_empty();
}

static void it_ends_with_the_youngest_region_of_its_operands(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  int64_t n = 4, none = 0;
  oa_region *outer, *inner;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  oa_array of_outer = vector(x, &n, OA_IN), of_inner = vector(y, &n, OA_IN);
  oa_array longer = scratch_of(&n), shorter = scratch_of(&n), empty = scratch_of(&none);
  CHECK_OK(oa_region_enter(device, NULL, &of_outer, 1, &outer));
  CHECK_OK(oa_region_enter(device, NULL, &of_inner, 1, &inner));
  const oa_any *operands[] = {of_inner.handle, of_outer.handle};
  CHECK_OK(oa_scratch(operands, 2, &shorter));
  CHECK_OK(oa_scratch(operands + 1, 1, &longer));
  CHECK_OK(oa_scratch(operands, 2, &empty));
  leave(inner);
  CHECK_FAILS(oa_pointer_query(shorter.handle, &info), OA_ERROR_STALE, "has ended");
  CHECK_OK(oa_pointer_release(shorter.handle)); /* to release a pointer that ended with its region is not an error */
  CHECK_FAILS(oa_scratch(operands, 2, &shorter), OA_ERROR_STALE, "oa_scratch: an operand belongs to a region that has");
  CHECK_OK(axpy(1, of_outer.handle, 1, longer.handle, 1, 4, 1));
  leave(outer);
  CHECK_FAILS(oa_pointer_query(longer.handle, &info), OA_ERROR_STALE, "has ended");
  check_empty();
}

static void wrong_descriptions_are_refused(void) {
  float x[4] = {1, 2, 3, 4};
  int64_t n = 4, negative = -1;
  const int64_t gap = 8;
  oa_region *region;
  oa_array array = vector(x, &n, OA_IN), scratch = scratch_of(&n);
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  const oa_any *const operands[] = {array.handle};
  const oa_any *const host[] = {(const oa_any *)x};
  CHECK_FAILS(oa_scratch(NULL, 1, &scratch), OA_ERROR_ARGUMENT, "oa_scratch: operands");
  CHECK_FAILS(oa_scratch(operands, 1, NULL), OA_ERROR_ARGUMENT, "oa_scratch: array");
  CHECK_FAILS(oa_scratch(operands, 0, &scratch), OA_ERROR_ARGUMENT, "oa_scratch: operands");
  CHECK_FAILS(oa_scratch(operands, 1, &array), OA_ERROR_ARGUMENT, "needs OA_SCRATCH");
  CHECK_FAILS(oa_scratch(host, 1, &scratch), OA_ERROR_NOT_HANDLE, "device pointer");
  scratch.shape = &negative;
  CHECK_FAILS(oa_scratch(operands, 1, &scratch), OA_ERROR_ARGUMENT, "negative");
  scratch.shape = &n;
  scratch.strides = &gap;
  CHECK_FAILS(oa_scratch(operands, 1, &scratch), OA_ERROR_ARGUMENT, "gaps");
  CHECK(counters().mappings == 1);
  leave(region);
  check_empty();
}

int main(void) {
  static const char *const names[] = {"host", "sim:0"};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    it_ends_with_its_last_pointer();
    it_ends_with_the_youngest_region_of_its_operands();
    wrong_descriptions_are_refused();
  }
  return failures();
}
