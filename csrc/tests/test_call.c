/* Calls with few and with many operands. */
#include "check.h"

const oa_library *const oa_libraries[] = {NULL};

enum { LENGTH = 5, MOST = 40 };

static int device;
static float data[MOST][LENGTH];
static oa_array arrays[MOST];
static oa_region *region;

static void enter(int count) {
  static const int64_t length = LENGTH, stride = sizeof(float);
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < LENGTH; j++) data[i][j] = (float)(i + j);
    arrays[i] = (oa_array){.data = data[i], .shape = &length, .strides = &stride, .ndim = 1, .dtype = OA_F32};
  }
  CHECK_OK(oa_region_enter(device, NULL, arrays, count, &region));
}

static void leave(void) {
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
}

struct sum {
  int count;
  const float *from[MOST];
  float *to;
};

static void run_sum(void *arguments) {
  const struct sum *s = arguments;
  for (int j = 0; j < LENGTH; j++) {
    s->to[j] = 0;
    for (int i = 0; i < s->count - 1; i++) s->to[j] += s->from[i][j];
  }
}

/* Returns a call that reads all operands but the last, and overwrites the last. */
static oa_call sum_of(oa_operand *operands, int count) {
  for (int i = 0; i < count; i++)
    operands[i] = (oa_operand){.name = i < count - 1 ? "x" : "y",
                               .pointer = arrays[i].handle,
                               .access = i < count - 1 ? OA_READ : OA_OVERWRITE,
                               .dtype = OA_F32,
                               .extent = OA_ELEMENTS(LENGTH)};
  return (oa_call){.function = "test.sum", .operands = operands, .count = count};
}

static void a_call_takes_as_many_operands_as_it_has(int count) {
  oa_operand operands[MOST];
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  enter(count);
  CHECK_OK(oa_device_get_counters(device, &before));
  oa_call call = sum_of(operands, count);
  if (CHECK_OK(oa_begin(&call))) {
    struct sum s = {.count = count, .to = operands[count - 1].address};
    for (int i = 0; i < count; i++) s.from[i] = operands[i].address;
    CHECK_OK(oa_submit(&call, run_sum, &s, sizeof s));
  }
  leave();
  CHECK_OK(oa_device_get_counters(device, &after));
  CHECK(after.copies_up - before.copies_up == count - 1);
  CHECK(after.copies_down - before.copies_down == 1);
  for (int j = 0; j < LENGTH; j++)
    CHECK(data[count - 1][j] == (float)((count - 1) * (count - 2) / 2 + (count - 1) * j));
}

/* The last operands are checked like the first operands. A refused call moves nothing and pins nothing. */
static void the_last_of_many_operands_is_checked(void) {
  oa_operand operands[MOST];
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  enter(MOST);
  CHECK_OK(oa_device_get_counters(device, &before));
  oa_call call = sum_of(operands, MOST);
  operands[MOST - 1].pointer = arrays[2].handle;
  CHECK_FAILS(oa_begin(&call), OA_ERROR_ALIAS, "y is written and overlaps x");
  call = sum_of(operands, MOST);
  operands[MOST - 1].extent = OA_ELEMENTS(LENGTH + 1);
  CHECK_FAILS(oa_begin(&call), OA_ERROR_EXTENT, "y needs 6 elements");
  call = sum_of(operands, MOST);
  operands[MOST - 1].pointer = data;
  CHECK_FAILS(oa_begin(&call), OA_ERROR_NOT_HANDLE, "y needs a device pointer");
  CHECK_OK(oa_device_get_counters(device, &after));
  CHECK(after.copies_up == before.copies_up);
  leave();
}

/* Calls that are only checked move nothing. A wrong call fails as usual, and a right call fails with
 * OA_ERROR_ARGUMENT. */
static void a_call_is_checked_and_not_made(void) {
  oa_operand operands[MOST];
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  enter(3);
  CHECK_OK(oa_device_get_counters(device, &before));
  CHECK(!oa_only_checks());
  oa_only_check(1);
  CHECK(oa_only_checks());
  oa_call call = sum_of(operands, 3);
  CHECK_FAILS(oa_begin(&call), OA_ERROR_ARGUMENT, "test.sum: checked, and not made");
  const int64_t outer = oa_checks_begin(); /* a function that checks some calls itself */
  for (int i = 0; i < 2; i++) {
    call = sum_of(operands, 3);
    CHECK_FAILS(oa_begin(&call), OA_ERROR_ARGUMENT, "checked, and not made");
  }
  CHECK(oa_checks_end(outer) == 2 && oa_only_checks());
  CHECK(oa_only_check(1) == 1);
  call = sum_of(operands, 3);
  operands[2].pointer = arrays[1].handle;
  CHECK_FAILS(oa_begin(&call), OA_ERROR_ALIAS, "y is written and overlaps x");
  CHECK(oa_only_check(0) == 0);
  CHECK(!oa_only_checks());
  CHECK_OK(oa_device_get_counters(device, &after));
  CHECK(after.copies_up == before.copies_up);
  call = sum_of(operands, 3);
  if (CHECK_OK(oa_begin(&call))) CHECK_OK(oa_end(&call, 0));
  leave();
}

int main(void) {
  const char *const devices[] = {"host", "sim:0"};
  const int counts[] = {2, 8, 9, 16, 17, MOST};
  for (int d = 0; d < 2; d++) {
    CHECK_OK(oa_device_open(devices[d], &device));
    for (int i = 0; i < 6; i++) a_call_takes_as_many_operands_as_it_has(counts[i]);
    the_last_of_many_operands_is_checked();
    a_call_is_checked_and_not_made();
    oa_counters end = OA_SIZED(oa_counters);
    CHECK_OK(oa_device_get_counters(device, &end));
    CHECK(end.regions == 0 && end.mappings == 0);
  }
  return failures();
}
