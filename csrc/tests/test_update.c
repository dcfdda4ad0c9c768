/* Update: exactly an array's bytes reach the host or the devices, whatever calls and regions do at the same time. */
#include "two_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

struct updating {
  oa_array array;
  int status;
};
static void *run_update(void *data) {
  struct updating *u = data;
  u->status = oa_update_from(&u->array, -1);
  return NULL;
}

/* Promise T52. */
static void an_update_and_the_end_of_the_region_share_one_array(bool resident, bool fails) {
  const int64_t n = 1 << 16;
  float *x = calloc((size_t)n, sizeof *x);
  oa_array lent = vector(x, &n, OA_BY_USE);
  struct updating u = {.array = lent};
  u.array.name = "x";
  lent.owner = x;
  lent.flags = OA_OWNED | (resident ? OA_RESIDENT : 0);
  oa_region *region = enter(device_a, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_device_synchronize(device_a));
  configure(device_a, 0, SLOW);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, &u) == 0);
  usleep(SLOW / 2); /* the update's copy is under way, and slow; later copies are fast */
  configure(device_a, fails ? 2 : 0, 0);
  const int finished = oa_region_finish(region, OA_COMMIT, NULL), waited = oa_region_wait(region);
  CHECK(pthread_join(thread, NULL) == 0);
  configure(device_a, 0, 0);
  if (fails) {
    CHECK(finished || waited || u.status || (x[0] == 5 && x[n - 1] == 5));
  } else {
    CHECK_OK(finished);
    CHECK_OK(waited);
    CHECK(u.status == OA_OK || u.status == OA_ERROR_PRESENT);
    for (int64_t i = 0; i < n; i++)
      if (x[i] != 5) {
        CHECK(x[i] == 5);
        break;
      }
  }
  CHECK_OK(oa_owner_gone(x));
  free(x);
  check_empty();
}

static void update_does_not_lose_what_a_call_in_flight_writes(void) {
  float x[8] = {0};
  const int64_t n = 8;
  oa_array lent = vector(x, &n, OA_BY_USE);
  struct updating u = {.array = vector(x, &n, OA_BY_USE)};
  oa_region *region = enter(device_a, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  oa_operand p = operand(lent.handle, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, &u) == 0);
  usleep(5000); /* the update has begun, or waits for the call */
  struct change c = {p.address, n, 1, 1, 1};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(u.status);
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

/* Promise T53. */
static void the_hosts_bytes_reach_every_device_that_has_some(void) {
  float x[12], seen = -1;
  const int64_t n = 12, half = 6;
  for (int i = 0; i < n; i++) x[i] = 1;
  oa_array whole = vector(x, &n, OA_BY_USE), part = vector(x + 6, &half, OA_BY_USE), again = vector(x, &n, OA_BY_USE);
  oa_region *a = enter(device_a, &whole, 1), *b = enter(device_b, &part, 1);
  CHECK_OK(peek(whole.handle, &seen));
  CHECK_OK(peek(part.handle, &seen));
  CHECK_OK(oa_update_from(&again, -1));
  for (int i = 0; i < n; i++) x[i] = (float)i;
  CHECK_OK(oa_update_to(&again, -1));
  CHECK_OK(peek(whole.handle, &seen));
  CHECK(seen == 0);
  CHECK_OK(peek(part.handle, &seen));
  CHECK(seen == 6);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == (float)i);
  check_empty();
}

/* Promise T53. */
static void the_hosts_bytes_reach_what_is_packed(void) {
  float x[12], seen = -1;
  const int64_t n = 12, shape[] = {2, 3}, strides[] = {28, -8};
  for (int i = 0; i < n; i++) x[i] = 1;
  oa_array all = vector(x, &n, OA_IN);
  oa_region *b = enter(device_b, &all, 1);
  oa_array packed = {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_array again = vector(x, &n, OA_BY_USE);
  oa_region *a = enter(device_a, &packed, 1);
  CHECK(packed.packed);
  CHECK_OK(peek(packed.handle, &seen));
  CHECK_OK(oa_update_from(&again, -1));
  for (int i = 0; i < n; i++) x[i] = (float)i;
  CHECK_OK(oa_update_to(&again, -1));
  CHECK_OK(peek(packed.handle, &seen));
  CHECK(seen == 4);
  leave(a, OA_COMMIT);
  leave(b, OA_COMMIT);
  check_empty();
}

/* Promise T53. */
static void an_update_of_more_than_any_device_has_is_refused(void) {
  float x[12] = {0};
  const int64_t n = 12, half = 6;
  oa_array left = vector(x, &half, OA_BY_USE), right = vector(x + 6, &half, OA_BY_USE),
           again = vector(x, &n, OA_BY_USE);
  oa_region *a = enter(device_a, &left, 1), *b = enter(device_b, &right, 1);
  CHECK_OK(add(left.handle, half, 1));
  CHECK_FAILS(oa_update_from(&again, -1), OA_ERROR_PRESENT, "is present only in part; update the array that was lent");
  CHECK_FAILS(oa_update_check(&again, -1), OA_ERROR_PRESENT, "is present only in part");
  CHECK(x[0] == 0);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  check_empty();
}

/* Promise T53. */
static void an_update_that_some_device_cannot_take_moves_nothing(void) {
  float x[24], seen = -1;
  const int64_t shape[] = {2, 3}, strides[] = {48, -16}, column = 6, step = 16;
  for (int i = 0; i < 24; i++) x[i] = 1;
  oa_array packed = {.data = x + 8, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .name = "p"};
  oa_array again = {.data = x, .shape = &column, .strides = &step, .ndim = 1, .dtype = OA_F32, .name = "x"};
  oa_region *a = enter(device_a, &packed, 1);
  CHECK_OK(change(packed.handle, 6, 1, 1, 1));
  CHECK_FAILS(oa_update_from(&again, -1), OA_ERROR_PRESENT, "update: x");
  CHECK_FAILS(oa_update_to(&again, -1), OA_ERROR_PRESENT, "update: x");
  CHECK_OK(peek(packed.handle, &seen));
  CHECK(seen == 2);
  leave(a, OA_COMMIT);
  CHECK(x[8] == 2 && x[4] == 2 && x[0] == 2 && x[20] == 2 && x[1] == 1);
  check_empty();
}

/* Promise T61. */
static void an_update_brings_down_nothing_that_never_came_up(void) {
  enum { LD = 8 };
  float x[4 * LD];
  const int64_t shape[] = {4, 4}, strides[] = {LD * 4, 4};
  for (int i = 0; i < 4 * LD; i++) x[i] = (float)i;
  oa_array panels[] = {{.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32},
                       {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32}};
  oa_array right = panels[1];
  uint64_t address;
  oa_region *region = enter(device_a, panels, 2);
  CHECK_OK(oa_address(panels[0].handle, &address));
  CHECK_OK(oa_update_from(&right, -1));
  for (int i = 0; i < 4 * LD; i++) CHECK(x[i] == (float)i);
  leave(region, OA_COMMIT);
  for (int i = 0; i < 4 * LD; i++) CHECK(x[i] == (float)i);
  check_empty();
}

static void the_newest_bytes_come_from_all_devices_that_have_some(void) {
  float x[12], seen = -1;
  const int64_t n = 12, four = 4, back = -4, even[] = {3, 2}, apart[] = {16, -4};
  for (int i = 0; i < n; i++) x[i] = 1;
  oa_array left = vector(x, &four, OA_BY_USE), right = vector(x + 8, &four, OA_BY_USE),
           middle = vector(x + 4, &four, OA_IN);
  oa_array reversed = {.data = x + 11, .shape = &n, .strides = &back, .ndim = 1, .dtype = OA_F32};
  oa_array packed = {.data = x + 1, .shape = even, .strides = apart, .ndim = 2, .dtype = OA_F32};
  CHECK_OK(oa_update_newest(&reversed));
  oa_region *a = enter(device_a, &left, 1), *b = enter(device_b, &right, 1), *c = enter(device_b, &middle, 1);
  CHECK_OK(peek(middle.handle, &seen));
  CHECK_OK(add(left.handle, four, 1));
  CHECK_OK(add(right.handle, four, 2));
  CHECK_OK(oa_update_newest(&packed));
  for (int i = 0; i < n; i++) CHECK(x[i] == (i < 2 ? 2 : i == 8 || i == 9 ? 3 : 1));
  CHECK_OK(oa_update_newest(&reversed));
  for (int i = 0; i < n; i++) CHECK(x[i] == (i < 4 ? 2 : i < 8 ? 1 : 3));
  CHECK_OK(add(left.handle, four, 1));
  oa_array some = vector(x, &even[1], OA_BY_USE);
  oa_writing *writing;
  CHECK_OK(oa_update_from(&some, -1));
  CHECK_OK(oa_update_begin(&some, -1, &writing));
  x[0] = 7;
  CHECK_FAILS(oa_update_newest(&reversed), OA_ERROR_PRESENT, "the host writes some of argument 1 in a block of update");
  CHECK(x[0] == 7);
  CHECK_OK(oa_update_to(&some, -1));
  CHECK_OK(oa_update_end(writing));
  CHECK_OK(oa_update_newest(&reversed));
  CHECK(x[0] == 7 && x[1] == 3 && x[3] == 3);
  leave(c, OA_COMMIT);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  CHECK(x[0] == 7 && x[3] == 3 && x[11] == 3);
  check_empty();
}

static void an_update_of_columns_reaches_arrays_that_overlap_in_columns(bool from) {
  enum { R = 4, C = 10 };
  float x[R * C], before[R * C];
  const int64_t shape[] = {R, 4}, middle[] = {R, 3}, strides[] = {C * 4, 4}, wrapped[] = {R - 1, 7};
  for (int i = 0; i < R * C; i++) x[i] = (float)i;
  oa_array left = {.data = x + 2, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32}, right = left;
  right.data = x + 4;
  oa_array both[] = {left, right};
  oa_region *region = enter(device_a, both, 2);
  for (int i = 0; i < R * C; i++) before[i] = x[i];
  oa_array parts[] = {right, left, left, left};
  parts[2].data = x + 3, parts[2].shape = middle;
  parts[3].data = x + 6, parts[3].shape = wrapped; /* the lines of this array end in the next row */
  float seven = 7;
  for (int k = 0; k < 4; k++) {
    CHECK_OK(oa_pointer_fill(both[1].handle, &seven, 2, shape, strides));
    seven += 1;
    if (from) {
      CHECK_OK(oa_update_from(&parts[k], -1));
    } else {
      for (int64_t i = 0; i < parts[k].shape[0]; i++)
        for (int64_t j = 0; j < parts[k].shape[1]; j++) ((float *)parts[k].data)[i * C + j] = -1;
      CHECK_OK(oa_update_to(&parts[k], -1));
    }
    float seen[R * 4];
    CHECK_OK(oa_pointer_read(both[1].handle, seen, 2, shape, strides));
    for (int i = 0; i < R; i++)
      for (int j = 0; j < 4; j++) {
        bool in = false;
        for (int64_t r = 0; r < parts[k].shape[0]; r++) {
          const int64_t at = (x + i * C + 4 + j) - ((float *)parts[k].data + r * C);
          in |= at >= 0 && at < parts[k].shape[1];
        }
        const float device = seven - 1, host = x[i * C + 4 + j];
        CHECK(seen[i * 4 + j] == (in && !from ? -1 : device));
        if (from && in) CHECK(host == device);
      }
  }
  CHECK(x[0] == before[0] && (!from || x[9] == before[9]));
  leave(region, OA_COMMIT);
  check_empty();
}

int main(void) {
  for (int i = 0; open_pair(i); i++) {
    an_update_and_the_end_of_the_region_share_one_array(false, false);
    an_update_and_the_end_of_the_region_share_one_array(true, false);
    if (i) an_update_and_the_end_of_the_region_share_one_array(true, true);
    update_does_not_lose_what_a_call_in_flight_writes();
    the_hosts_bytes_reach_every_device_that_has_some();
    the_hosts_bytes_reach_what_is_packed();
    an_update_of_more_than_any_device_has_is_refused();
    an_update_that_some_device_cannot_take_moves_nothing();
    the_newest_bytes_come_from_all_devices_that_have_some();
    an_update_brings_down_nothing_that_never_came_up();
    an_update_of_columns_reaches_arrays_that_overlap_in_columns(true);
    an_update_of_columns_reaches_arrays_that_overlap_in_columns(false);
  }
  return failures();
}
