/* Calls with lists of device pointers: each is checked and moved as a separate operand. */
#include "one_device.h"

#include <stdbool.h>

const oa_library *const oa_libraries[] = {NULL};

enum { LENGTH = 6, MOST = 3000 };

static float x[MOST][LENGTH], y[MOST][LENGTH];
static oa_array arrays[2 * MOST];
static const void *xs[MOST], *ys[MOST];
static oa_region *region;
static bool copies_addresses; /* the device needs a copy of the addresses */

/* Lends `count` arrays x and as many y. */
static void enter(int count) {
  static int64_t length = LENGTH;
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < LENGTH; j++) {
      x[i][j] = (float)(i + j);
      y[i][j] = -1;
    }
    arrays[i] = vector(x[i], &length, OA_BY_USE);
    arrays[count + i] = vector(y[i], &length, OA_BY_USE);
  }
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2 * count, &region));
  for (int i = 0; i < count; i++) {
    xs[i] = arrays[i].handle;
    ys[i] = arrays[count + i].handle;
  }
}

/* y[i] = 2 * x[i], for arrays whose addresses are in arrays on the device. */
struct doubling {
  int64_t count, n;
  const float *const *x;
  float *const *y;
  float *counted; /* becomes the number of arrays; or NULL */
};

static void run_doubling(void *data) {
  const struct doubling *d = data;
  for (int64_t i = 0; i < d->count; i++)
    for (int64_t j = 0; j < d->n; j++) d->y[i][j] = 2 * d->x[i][j];
  if (d->counted) *d->counted = (float)d->count;
}

static oa_operand listed(const char *name, const oa_pointer_list *list, int access, int64_t n, int64_t count) {
  return (oa_operand){.name = name,
                      .pointer = list,
                      .access = access,
                      .dtype = OA_F32,
                      .extent = oa_listed(OA_VECTOR(n, 1, "n", "1"), count, "count")};
}

/* Makes the call. counted: an operand that is not a list, and that may be absent. */
static int doubling(const oa_pointer_list *from, const oa_pointer_list *to, int64_t n, int64_t count, oa_any *counted) {
  oa_operand operands[] = {listed("x", from, OA_READ, n, count),
                           {.name = "counted",
                            .pointer = counted,
                            .access = OA_OVERWRITE,
                            .dtype = OA_F32,
                            .extent = oa_optional(OA_ELEMENTS(1))},
                           listed("y", to, OA_OVERWRITE, n, count)};
  oa_call call = {.function = "test.doubling", .operands = operands, .count = 3};
  const int status = oa_begin_lists(&call);
  if (status || !call.open) return status;
  struct doubling d = {count, n, operands[0].address, operands[2].address, operands[1].address};
  return oa_submit(&call, run_doubling, &d, sizeof d);
}

static int doubling_of(int64_t count) {
  const oa_pointer_list from = {.at = xs, .count = count}, to = {.at = ys, .count = count};
  return doubling(&from, &to, LENGTH, count, NULL);
}

static void check_doubled(int count) {
  for (int i = 0; i < count; i++)
    for (int j = 0; j < LENGTH; j++) CHECK(y[i][j] == (float)(2 * (i + j)));
}

static void every_array_of_a_list_is_used(int count) {
  enter(count);
  const oa_counters before = counters();
  CHECK_OK(doubling_of(count));
  leave(region);
  const oa_counters after = counters();
  check_doubled(count);
  const int64_t bytes = count * (int64_t)sizeof x[0];
  CHECK(after.bytes_down - before.bytes_down == bytes); /* y did not go up, because the call overwrites it */
  CHECK(after.bytes_up - before.bytes_up == bytes + (copies_addresses ? 2 * count * (int64_t)sizeof(void *) : 0));
}

static void a_single_operand_stands_beside_lists(void) {
  static float counted;
  static int64_t length = 1;
  oa_array array = vector(&counted, &length, OA_BY_USE);
  oa_region *inner;
  counted = 0;
  enter(5);
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &inner));
  const oa_pointer_list from = {.at = xs, .count = 5}, to = {.at = ys, .count = 5};
  CHECK_OK(doubling(&from, &to, LENGTH, 5, array.handle));
  leave(inner);
  leave(region);
  CHECK(counted == 5);
  check_doubled(5);
}

/* One pointer has all arrays, `step` elements apart. */
static void one_pointer_stands_for_many(int64_t step) {
  static float from[64], to[64];
  static int64_t length = 64;
  oa_array both[] = {vector(from, &length, OA_BY_USE), vector(to, &length, OA_BY_USE)};
  for (int j = 0; j < 64; j++) {
    from[j] = (float)j;
    to[j] = -1;
  }
  CHECK_OK(oa_region_enter(device, NULL, both, 2, &region));
  const oa_pointer_list x4 = {.first = both[0].handle, .stride = step, .count = 4};
  const oa_pointer_list y4 = {.first = both[1].handle, .stride = step, .count = 4};
  CHECK_OK(doubling(&x4, &y4, 3, 4, NULL));
  leave(region);
  for (int64_t j = 0; j < 64; j++) CHECK(to[j] == (j < 4 * step && j % step < 3 ? (float)(2 * j) : -1));
}

/* An array without elements has no memory. So one pointer without memory may stand for many empty arrays. */
static void one_pointer_stands_for_many_empty_arrays(void) {
  static float from[1], to[64];
  static int64_t none = 0, length = 64;
  oa_array both[] = {vector(from, &none, OA_BY_USE), vector(to, &length, OA_BY_USE)};
  CHECK_OK(oa_region_enter(device, NULL, both, 2, &region));
  const oa_pointer_list x4 = {.first = both[0].handle, .stride = INT64_MAX / 2, .count = 4};
  const oa_pointer_list y4 = {.first = both[1].handle, .stride = 5, .count = 4};
  CHECK_OK(doubling(&x4, &y4, 0, 4, NULL));
  leave(region);
}

static void the_array_that_is_wrong_is_named(void) {
  const oa_pointer_list from = {.at = xs, .count = 40}, to = {.at = ys, .count = 40};
  const oa_counters before = counters();
  oa_any *view;
  const int64_t shape = LENGTH - 1, stride = sizeof(float);
  enter(40);
  const void *const old = xs[17];
  CHECK_OK(oa_pointer_view(old, 0, 1, &shape, &stride, &view));
  xs[17] = view;
  CHECK_FAILS(doubling_of(40), OA_ERROR_EXTENT, "test.doubling: x[17] needs 6 elements (n=6, 1=1), has 5");
  xs[17] = x[17];
  CHECK_FAILS(doubling_of(40), OA_ERROR_NOT_HANDLE, "x[17] needs a device pointer, got the host address");
  xs[17] = NULL;
  CHECK_FAILS(doubling_of(40), OA_ERROR_NOT_HANDLE, "x[17] needs a device pointer, got NULL");
  CHECK_OK(oa_pointer_release(view));
  xs[17] = view;
  CHECK_FAILS(doubling_of(40), OA_ERROR_STALE, "x[17] is a view that was released; make another one");
  xs[17] = old;
  const void *const other = ys[39];
  ys[39] = ys[3];
  CHECK_FAILS(doubling_of(40), OA_ERROR_ALIAS, "y[39] is written and overlaps y[3]");
  ys[39] = xs[20];
  CHECK_FAILS(doubling_of(40), OA_ERROR_ALIAS, "y[39] is written and overlaps x[20]");
  ys[39] = other;
  CHECK_FAILS(doubling(&from, &to, LENGTH, 41, NULL), OA_ERROR_ARGUMENT,
              "x needs 41 arrays (count=41), got 40; pass as many pointers");
  CHECK_FAILS(doubling(&from, &to, LENGTH, -1, NULL), OA_ERROR_ARGUMENT, "count needs to be at least 0, got -1");
  CHECK_FAILS(doubling(NULL, &to, LENGTH, 40, NULL), OA_ERROR_ARGUMENT, "test.doubling: x");
  const oa_pointer_list none = {.count = -1};
  CHECK_FAILS(doubling(&none, &to, LENGTH, 40, NULL), OA_ERROR_ARGUMENT, "test.doubling: x");
  const oa_pointer_list within = {.first = ys[0], .stride = 2, .count = 40};
  CHECK_FAILS(doubling(&from, &within, 3, 40, NULL), OA_ERROR_ALIAS, "y is written, and each of its 40 parts takes 3");
  CHECK_FAILS(doubling(&within, &to, 3, 40, NULL), OA_ERROR_EXTENT,
              "x needs 81 elements (n=3, 1=1, stride=2, count=40), has 6");
  CHECK(counters().copies_up == before.copies_up);
  leave(region);
  CHECK_FAILS(doubling_of(40), OA_ERROR_STALE, "x[0] is a pointer whose region has ended");
  CHECK(y[0][0] == -1);
}

/* The same array may be read many times; written arrays may be between the lines of other arrays. */
static void what_may_overlap_is_allowed(void) {
  static float matrix[LENGTH][MOST];
  static const int64_t shape[] = {LENGTH, MOST}, strides[] = {sizeof matrix[0], sizeof(float)};
  enum { COUNT = 100 };
  oa_array whole = {.data = matrix, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_region *inner;
  const void *columns[COUNT];
  oa_any *views[COUNT];
  enter(COUNT);
  CHECK_OK(oa_region_enter(device, NULL, &whole, 1, &inner));
  for (int i = 0; i < COUNT; i++) {
    const int64_t n = LENGTH, step = sizeof matrix[0];
    CHECK_OK(oa_pointer_view(whole.handle, i * (int64_t)sizeof(float), 1, &n, &step, &views[i]));
    columns[i] = views[i];
    xs[i] = xs[0];
  }
  const oa_pointer_list from = {.at = xs, .count = COUNT}, to = {.at = columns, .count = COUNT};
  oa_operand operands[] = {listed("x", &from, OA_READ, LENGTH, COUNT), listed("y", &to, OA_READ_WRITE, LENGTH, COUNT)};
  operands[1].extent = oa_listed(OA_VECTOR(LENGTH, MOST, "n", "inc"), COUNT, "count");
  oa_call call = {.function = "test.columns", .operands = operands, .count = 2};
  if (CHECK_OK(oa_begin_lists(&call))) CHECK_OK(oa_end(&call, 0));
  CHECK(call.operands == operands && call.count == 2 && !call.lists);
  leave(inner);
  leave(region);
}

/* Operands in a row that have the same list are parts of this list. */
static void groups_are_parts_of_one_list(void) {
  enter(7);
  const oa_pointer_list from = {.at = xs, .count = 7}, to = {.at = ys, .count = 7};
  oa_operand operands[] = {listed("x", &from, OA_READ, 2, 3), listed("x", &from, OA_READ, 5, 4),
                           listed("y", &to, OA_READ_WRITE, 2, 3), listed("y", &to, OA_READ_WRITE, 5, 4)};
  oa_call call = {.function = "test.groups", .operands = operands, .count = 4};
  if (CHECK_OK(oa_begin_lists(&call))) {
    CHECK((char *)operands[1].address - (char *)operands[0].address == 3 * (int)sizeof(void *));
    struct doubling d = {7, 2, operands[0].address, operands[2].address, NULL};
    CHECK_OK(oa_submit(&call, run_doubling, &d, sizeof d));
  }
  operands[3].extent.batch = 5;
  CHECK_FAILS(oa_begin_lists(&call), OA_ERROR_ARGUMENT, "y needs 8 arrays (the sum of count), got 7");
  operands[3].extent.batch = 4;
  operands[3].extent.rows = LENGTH + 1;
  CHECK_FAILS(oa_begin_lists(&call), OA_ERROR_EXTENT, "y[3] needs 7 elements");
  const oa_pointer_list all = {.first = xs[0], .stride = 1, .count = 7};
  operands[0].pointer = operands[1].pointer = &all;
  CHECK_FAILS(oa_begin_lists(&call), OA_ERROR_ARGUMENT, "x needs a list of pointers, one an array");
  leave(region);
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < LENGTH; j++) CHECK(y[i][j] == (j < 2 ? (float)(2 * (i + j)) : -1));
}

/* An operand in place may be the array at the same place of the other list, and no other array of that list. */
static void arrays_in_place_have_the_same_place(void) {
  enter(20);
  const oa_pointer_list from = {.at = xs, .count = 20}, to = {.at = ys, .count = 20};
  oa_operand operands[] = {listed("x", &from, OA_READ | OA_IN_PLACE, LENGTH, 20),
                           listed("y", &to, OA_READ_WRITE | OA_IN_PLACE, LENGTH, 20)};
  oa_call call = {.function = "test.in_place", .operands = operands, .count = 2};
  ys[4] = xs[4];
  if (CHECK_OK(oa_begin_lists(&call))) CHECK_OK(oa_end(&call, 0));
  ys[4] = xs[5];
  CHECK_FAILS(oa_begin_lists(&call), OA_ERROR_ALIAS, "y[4] is written and overlaps x[5]");
  leave(region);
}

/* A call that fails leaves each array that it writes undefined. */
static void a_failed_call_leaves_its_arrays_undefined(void) {
  enter(3);
  const oa_pointer_list from = {.at = xs, .count = 3}, to = {.at = ys, .count = 3};
  oa_operand operands[] = {listed("x", &from, OA_READ, LENGTH, 3), listed("y", &to, OA_OVERWRITE, LENGTH, 3)};
  oa_call call = {.function = "test.failing", .operands = operands, .count = 2};
  if (CHECK_OK(oa_begin_lists(&call))) CHECK_OK(oa_end(&call, 7));
  CHECK_FAILS(doubling(&to, &from, LENGTH, 3, NULL), OA_ERROR_INVALID, "x[0] was left undefined");
  CHECK_OK(oa_region_finish(region, OA_DISCARD, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK(y[0][0] == -1);
}

static void lists_without_arrays_touch_no_device(void) {
  const oa_counters before = counters();
  CHECK_OK(doubling_of(0));
  CHECK(counters().regions == before.regions && counters().calls == before.calls);
}

/* The caller does not make a call that writes nothing, so the addresses do not go up. */
static void addresses_for_a_call_that_writes_nothing_do_not_go_up(void) {
  enter(2);
  const oa_pointer_list from = {.at = xs, .count = 2}, to = {.at = ys, .count = 2};
  for (int64_t n = 0; n < 2; n++) {
    oa_operand operands[] = {listed("x", &from, OA_READ, 1, 2), listed("y", &to, OA_OVERWRITE, n, 2)};
    oa_call call = {.function = "test.empty", .operands = operands, .count = 2, .special = OA_ENDS_UNWRITTEN};
    const oa_counters before = counters();
    CHECK_OK(oa_begin_lists(&call));
    CHECK((operands[1].address == NULL) == (n == 0));
    CHECK_OK(oa_end(&call, 0));
    const int64_t of_arrays = n ? 0 : 2 * (int64_t)sizeof x[0]; /* the arrays x go up once */
    const int64_t of_addresses = n && copies_addresses ? 4 * (int64_t)sizeof(void *) : 0;
    CHECK(counters().bytes_up - before.bytes_up == of_arrays + of_addresses);
  }
  leave(region);
}

int main(void) {
  const char *const devices[] = {"host", "sim:0"};
  const int counts[] = {1, 8, 9, 17, 1000, MOST};
  for (int d = 0; d < 2; d++) {
    CHECK_OK(oa_device_open(devices[d], &device));
    copies_addresses = d == 1;
    for (int i = 0; i < 6; i++) every_array_of_a_list_is_used(counts[i]);
    a_single_operand_stands_beside_lists();
    one_pointer_stands_for_many(3);
    one_pointer_stands_for_many(11);
    one_pointer_stands_for_many_empty_arrays();
    the_array_that_is_wrong_is_named();
    what_may_overlap_is_allowed();
    groups_are_parts_of_one_list();
    arrays_in_place_have_the_same_place();
    a_failed_call_leaves_its_arrays_undefined();
    lists_without_arrays_touch_no_device();
    addresses_for_a_call_that_writes_nothing_do_not_go_up();
    check_empty();
  }
  return failures();
}
