/* Arrays shared by devices, regions and threads: whatever the order of events, no result is lost and no byte that never
 * came up goes down. sim's delay keeps copies on their way; what two threads would do is done in a fixed order. */
#include "check.h"
#include "device/device.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { SLOW = 20000 };       /* microseconds of one operation of a slow device */
static int one, other, host; /* devices */

/* A call of a library that runs on the CPU: p[i] = scale * p[i] + add, for n floats `step` apart. */
struct change {
  float *p;
  int64_t n, step;
  float scale, add;
};

static void run_change(void *data) {
  const struct change *c = data;
  for (int64_t i = 0; i < c->n; i++) c->p[i * c->step] = (c->scale != 0 ? c->scale * c->p[i * c->step] : 0) + c->add;
}

static oa_operand operand(const void *pointer, int access, int64_t n, int64_t step) {
  return (oa_operand){
      .name = "p", .pointer = pointer, .access = access, .dtype = OA_F32, .extent = OA_VECTOR(n, step, "n", "inc")};
}

static int change(oa_any *pointer, int64_t n, int64_t step, float scale, float add) {
  oa_operand p = operand(pointer, scale != 0 ? OA_READ_WRITE : OA_OVERWRITE, n, step);
  oa_call call = {.function = "test.change", .operands = &p, .count = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct change c = {p.address, n, step, scale, add};
  return oa_submit(&call, run_change, &c, sizeof c);
}

static int add(oa_any *pointer, int64_t n, float value) { return change(pointer, n, 1, 1, value); }
static int set(oa_any *pointer, int64_t n, float value) { return change(pointer, n, 1, 0, value); }

struct peek {
  const float *p;
  float *found;
};
static void run_peek(void *data) {
  const struct peek *k = data;
  *k->found = *k->p;
}

/* Reads the first element on the device. */
static int peek(const oa_any *pointer, float *found) {
  oa_operand p = operand(pointer, OA_READ, 1, 1);
  oa_call call = {.function = "test.peek", .operands = &p, .count = 1, .blocking = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct peek k = {p.address, found};
  return oa_submit(&call, run_peek, &k, sizeof k);
}

static const int64_t item = sizeof(float);
static oa_array vector(float *data, const int64_t *n, int direction) {
  return (oa_array){.data = data, .shape = n, .strides = &item, .ndim = 1, .dtype = OA_F32, .direction = direction};
}

static oa_region *enter(int device, oa_array *arrays, int count) {
  oa_region *region = NULL;
  CHECK_OK(oa_region_enter(device, NULL, arrays, count, &region));
  return region;
}

static void leave(oa_region *region, int outcome) {
  CHECK_OK(oa_region_finish(region, outcome, NULL));
  CHECK_OK(oa_region_wait(region));
}

static void configure(int device, int64_t fail_after, int64_t delay) {
  if (device != host) CHECK_OK(oa_sim_configure(device, 0, fail_after, delay));
}

static void check_empty(void) {
  const int devices[] = {one, other};
  for (int i = 0; i < 2; i++) {
    oa_counters c = OA_SIZED(oa_counters);
    configure(devices[i], 0, 0);
    CHECK_OK(oa_device_get_counters(devices[i], &c));
    CHECK(c.mappings == 0);
    CHECK(c.regions == 0);
    CHECK(c.allocations == c.frees);
  }
}

/* -- two devices ----------------------------------------------------------------------------------------------------- */

/* Promise T50. */
static void a_device_reads_what_another_is_still_copying_down(bool waited_first) {
  float x[8] = {0}, found = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *leaving = enter(one, &first, 1);
  configure(one, 0, SLOW);
  CHECK_OK(add(first.handle, n, 5));
  CHECK_OK(oa_region_finish(leaving, OA_COMMIT, NULL));
  oa_region *region = enter(other, &second, 1);
  if (!waited_first) {
    CHECK_OK(peek(second.handle, &found));
    CHECK(found == 5);
  }
  CHECK_OK(add(second.handle, n, 1)); /* the first device has nothing of it any more */
  CHECK_OK(peek(second.handle, &found));
  CHECK(found == 6);
  if (waited_first) CHECK_OK(oa_region_wait(leaving));
  leave(region, OA_COMMIT);
  if (!waited_first) CHECK_OK(oa_region_wait(leaving));
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

/* Promise T50. */
static void a_device_that_was_left_has_no_old_bytes_for_its_next_region(void) {
  float x[8] = {0}, found = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first, third = first;
  oa_region *left = enter(one, &first, 1);
  CHECK_OK(add(first.handle, n, 5));
  CHECK_OK(oa_region_finish(left, OA_COMMIT, NULL));
  oa_region *region = enter(other, &second, 1);
  CHECK_OK(add(second.handle, n, 1));
  leave(region, OA_COMMIT);
  region = enter(one, &third, 1); /* the first region has not been waited for */
  CHECK_OK(peek(third.handle, &found));
  CHECK(found == 6);
  CHECK_OK(oa_region_wait(left));
  leave(region, OA_COMMIT);
  CHECK(x[0] == 6);
  check_empty();
}

/* Promise T50. */
static void what_a_call_is_writing_is_on_no_other_device(void) {
  float x[8] = {0}, found = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *writer = enter(one, &first, 1), *refused = NULL;
  oa_operand p = operand(first.handle, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  CHECK_FAILS(oa_region_enter(other, NULL, &second, 1, &refused), OA_ERROR_DIRECTION, "argument 1 is present on");
  struct change c = {p.address, n, 1, 1, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  leave(writer, OA_COMMIT);
  oa_region *region = enter(other, &second, 1);
  CHECK_OK(peek(second.handle, &found));
  CHECK(found == 5);
  leave(region, OA_COMMIT);
  check_empty();
}

/* Promise T50. */
static void a_call_that_writes_waits_for_no_reader_it_cannot_see(void) {
  float x[8] = {0};
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(one, &first, 1), *b = enter(other, &second, 1);
  CHECK_FAILS(add(first.handle, n, 5), OA_ERROR_DIRECTION, "is present on");
  leave(b, OA_COMMIT);
  CHECK_OK(add(first.handle, n, 5));
  leave(a, OA_COMMIT);
  CHECK(x[3] == 5);
  check_empty();
}

/* -- update ---------------------------------------------------------------------------------------------------------- */

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
  oa_region *region = enter(one, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_device_synchronize(one));
  configure(one, 0, SLOW);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, &u) == 0);
  usleep(SLOW / 2); /* its copy is on its way, and slow; what follows is not */
  configure(one, fails ? 2 : 0, 0);
  const int finished = oa_region_finish(region, OA_COMMIT, NULL), waited = oa_region_wait(region);
  CHECK(pthread_join(thread, NULL) == 0);
  configure(one, 0, 0);
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
  oa_region *region = enter(one, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  oa_operand p = operand(lent.handle, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, &u) == 0);
  usleep(5000); /* it has begun, or waits for the call */
  struct change c = {p.address, n, 1, 1, 1};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(u.status);
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

struct beside {
  oa_any *pointer;
  float found;
  uint64_t address;
};
static void *run_peek_beside(void *data) {
  struct beside *b = data;
  CHECK_OK(peek(b->pointer, &b->found));
  return NULL;
}
static void *run_address_beside(void *data) {
  struct beside *b = data;
  CHECK_OK(oa_address(b->pointer, &b->address));
  return NULL;
}

static void a_first_write_in_flight_is_neither_overtaken_nor_cleared(int direction, void *(*run)(void *)) {
  float x[8] = {0};
  const int64_t n = 8;
  oa_array lent = vector(x, &n, direction);
  oa_region *region = enter(one, &lent, 1);
  oa_operand p = operand(lent.handle, OA_OVERWRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  struct beside b = {.pointer = lent.handle, .found = 5};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, &b) == 0);
  usleep(5000); /* it has begun, or waits for the call */
  struct change c = {p.address, n, 1, 0, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(b.found == 5);
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == 5);
  check_empty();
}

/* Promise T53. */
static void the_hosts_bytes_reach_every_device_that_has_some(void) {
  float x[12], found = -1;
  const int64_t n = 12, half = 6;
  for (int i = 0; i < n; i++) x[i] = 1;
  oa_array whole = vector(x, &n, OA_BY_USE), part = vector(x + 6, &half, OA_BY_USE), again = vector(x, &n, OA_BY_USE);
  oa_region *a = enter(one, &whole, 1), *b = enter(other, &part, 1);
  CHECK_OK(peek(whole.handle, &found));
  CHECK_OK(peek(part.handle, &found));
  CHECK_OK(oa_update_from(&again, -1));
  for (int i = 0; i < n; i++) x[i] = (float)i;
  CHECK_OK(oa_update_to(&again, -1));
  CHECK_OK(peek(whole.handle, &found));
  CHECK(found == 0);
  CHECK_OK(peek(part.handle, &found));
  CHECK(found == 6);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == (float)i);
  check_empty();
}

/* Promise T53. */
static void the_hosts_bytes_reach_what_is_packed(void) {
  float x[12], found = -1;
  const int64_t n = 12, shape[] = {2, 3}, strides[] = {28, -8};
  for (int i = 0; i < n; i++) x[i] = 1;
  oa_array all = vector(x, &n, OA_IN);
  oa_region *b = enter(other, &all, 1);
  oa_array packed = {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_array again = vector(x, &n, OA_BY_USE);
  oa_region *a = enter(one, &packed, 1);
  CHECK(packed.packed);
  CHECK_OK(peek(packed.handle, &found));
  CHECK_OK(oa_update_from(&again, -1));
  for (int i = 0; i < n; i++) x[i] = (float)i;
  CHECK_OK(oa_update_to(&again, -1));
  CHECK_OK(peek(packed.handle, &found));
  CHECK(found == 4);
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
  oa_region *a = enter(one, &left, 1), *b = enter(other, &right, 1);
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
  float x[24], found = -1;
  const int64_t shape[] = {2, 3}, strides[] = {48, -16}, column = 6, step = 16;
  for (int i = 0; i < 24; i++) x[i] = 1;
  oa_array packed = {.data = x + 8, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .name = "p"};
  oa_array again = {.data = x, .shape = &column, .strides = &step, .ndim = 1, .dtype = OA_F32, .name = "x"};
  oa_region *a = enter(one, &packed, 1);
  CHECK_OK(change(packed.handle, 6, 1, 1, 1));
  CHECK_FAILS(oa_update_from(&again, -1), OA_ERROR_PRESENT, "update: x");
  CHECK_FAILS(oa_update_to(&again, -1), OA_ERROR_PRESENT, "update: x");
  CHECK_OK(peek(packed.handle, &found));
  CHECK(found == 2);
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
  oa_region *region = enter(one, panels, 2);
  CHECK_OK(oa_address(panels[0].handle, &address));
  CHECK_OK(oa_update_from(&right, -1));
  for (int i = 0; i < 4 * LD; i++) CHECK(x[i] == (float)i);
  leave(region, OA_COMMIT);
  for (int i = 0; i < 4 * LD; i++) CHECK(x[i] == (float)i);
  check_empty();
}

/* Promise T61. */
static void an_address_says_nothing_of_an_unwritten_out_beside_it(void) {
  enum { LD = 8 };
  float x[4 * LD], found = -1;
  const int64_t shape[] = {4, 4}, strides[] = {LD * 4, 4};
  for (int i = 0; i < 4 * LD; i++) x[i] = (float)i;
  oa_array panels[] = {
      {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32},
      {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_OUT},
      {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_IN}};
  uint64_t address;
  oa_region *region = enter(one, panels, 3);
  CHECK_OK(oa_address(panels[0].handle, &address));
  CHECK_OK(peek(panels[2].handle, &found)); /* it came up for this one */
  CHECK_FAILS(peek(panels[1].handle, &found), OA_ERROR_DIRECTION, "would be read before it is written");
  leave(region, OA_COMMIT);
  check_empty();
}

/* Promise T61. */
static void an_address_that_could_not_be_taken_leaves_the_array_unwritten(void) {
  for (int k = 1; k < 8; k++) {
    float y[6] = {7, 7, 7, 7, 7, 7};
    const int64_t n = 6;
    uint64_t address;
    int warnings = 0;
    oa_array out = vector(y, &n, OA_OUT);
    oa_region *region = enter(one, &out, 1);
    configure(one, k, 0);
    const int status = oa_address(out.handle, &address);
    configure(one, 0, 0);
    CHECK_OK(oa_region_finish(region, OA_COMMIT, &warnings));
    CHECK_OK(oa_region_wait(region));
    CHECK(warnings == (status ? 1 : 0));
    CHECK(y[0] == (status ? 7 : 0) && y[5] == y[0]);
    check_empty();
    if (!status) break;
  }
}

static void the_address_of_an_out_keeps_what_an_overlapping_argument_brought_up(void) {
  for (int used = 0; used < 2; used++) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, found = -1;
    const int64_t n = 8, part = 4;
    uint64_t address;
    oa_array arrays[] = {vector(x, &part, OA_OUT), vector(x, &n, OA_INOUT)};
    oa_region *region = enter(one, arrays, 2);
    if (used) CHECK_OK(peek(arrays[1].handle, &found));
    CHECK_OK(oa_address(arrays[0].handle, &address));
    CHECK_OK(peek(arrays[1].handle, &found));
    CHECK(found == 1);
    leave(region, OA_COMMIT);
    for (int i = 0; i < n; i++) CHECK(x[i] == (float)(i + 1));
    check_empty();
  }
}

static void an_out_inside_a_larger_array_is_written_by_what_fills_it(void) {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t n = 8, part = 4;
  oa_array arrays[] = {vector(x, &part, OA_OUT), vector(x, &n, OA_INOUT)};
  oa_region *region = enter(one, arrays, 2);
  CHECK_OK(set(arrays[0].handle, part, 9));
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == (i < 4 ? 9 : (float)(i + 1)));
  check_empty();
}

/* -- sharers --------------------------------------------------------------------------------------------------------- */

/* Promise T54. */
static void what_a_region_committed_comes_down_whatever_a_later_one_does(int direction) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  oa_array first = vector(x, &n, OA_BY_USE), second = vector(x, &n, direction);
  oa_region *a = enter(one, &first, 1), *b = enter(one, &second, 1);
  CHECK_OK(add(first.handle, n, 5));
  leave(a, OA_COMMIT);
  leave(b, OA_DISCARD);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

struct sharer {
  oa_array array;
  oa_region *region;
};
static void *run_enter(void *data) {
  struct sharer *s = data;
  s->region = enter(one, &s->array, 1);
  return NULL;
}

/* Promise T54. */
static void threads_that_share_do_not_discard_for_each_other(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  struct sharer older = {.array = vector(x, &n, OA_BY_USE)};
  oa_array own = vector(x, &n, OA_BY_USE);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_enter, &older) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  oa_region *region = enter(one, &own, 1); /* not nested in the other thread's */
  CHECK_OK(add(own.handle, n, 5));
  leave(region, OA_COMMIT);
  leave(older.region, OA_DISCARD);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

static void a_failing_outer_region_discards_what_inner_ones_wrote(void) {
  float x[4] = {1, 1, 1, 1}, found = -1;
  const int64_t n = 4;
  int lost = 0;
  oa_array outer = vector(x, &n, OA_BY_USE), middle = outer, inner = outer;
  oa_region *a = enter(one, &outer, 1), *b = enter(one, &middle, 1), *c = enter(one, &inner, 1);
  CHECK_OK(add(inner.handle, n, 5));
  leave(c, OA_COMMIT);
  CHECK_OK(oa_region_finish(b, OA_DISCARD, &lost)); /* and with it what the inner one wrote */
  CHECK(lost == 1 && strstr(oa_last_warning(), "argument 1 was written on the device and discarded"));
  CHECK_OK(oa_region_wait(b));
  CHECK_FAILS(peek(outer.handle, &found), OA_ERROR_INVALID, "left undefined");
  CHECK_FAILS(oa_region_finish(a, OA_COMMIT, NULL) ? OA_ERROR_INVALID : oa_region_wait(a), OA_ERROR_INVALID,
              "undefined");
  for (int i = 0; i < n; i++) CHECK(x[i] == 1);
  check_empty();
}

static void a_partial_write_in_flight_heals_nothing_that_fails_meanwhile(void) {
  float x[4] = {1, 1, 1, 1}, found = -1;
  const int64_t n = 4;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(one, &first, 1), *b = enter(one, &second, 1);
  CHECK_OK(add(first.handle, n, 5));
  oa_operand p = operand(second.handle, OA_OVERWRITE, 2, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  leave(a, OA_DISCARD);
  struct change c = {p.address, 2, 1, 0, 9};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK_FAILS(peek(second.handle, &found), OA_ERROR_INVALID, "left undefined");
  CHECK_OK(set(second.handle, n, 3)); /* a whole one does */
  CHECK_OK(peek(second.handle, &found));
  leave(b, OA_COMMIT);
  CHECK(x[0] == 3 && x[3] == 3);
  check_empty();
}

static void what_was_updated_is_not_told_as_discarded(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  int lost = -1;
  oa_array lent = vector(x, &n, OA_BY_USE), again = lent;
  oa_region *region = enter(one, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_update_from(&again, -1));
  CHECK_OK(oa_region_finish(region, OA_DISCARD, &lost));
  CHECK(lost == 0);
  CHECK_OK(oa_region_wait(region));
  CHECK(x[0] == 6);
  check_empty();
}

/* -- assign ---------------------------------------------------------------------------------------------------------- */

/* Promise T55. */
static void a_smaller_assignment_leaves_the_rest(void) {
  for (int direction = OA_BY_USE; direction <= OA_OUT; direction += OA_OUT - OA_BY_USE) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float values[] = {9, 9, 9};
    const int64_t n = 8, three = 3;
    oa_array lent = vector(x, &n, direction);
    oa_region *region = enter(one, &lent, 1);
    const int status = oa_pointer_assign(lent.handle, values, 1, &three, &item);
    CHECK(status == (direction == OA_OUT ? OA_ERROR_DIRECTION : OA_OK));
    leave(region, OA_COMMIT);
    for (int i = 0; i < n; i++) CHECK(x[i] == (i < 3 && !status ? 9 : (float)(i + 1)));
    check_empty();
  }
}

enum { ROWS = 6, LD = 9, COLUMNS = 7 };
static const int64_t matrix_shape[] = {ROWS, COLUMNS}, matrix_strides[] = {LD * 4, 4};

static oa_any *view(oa_any *pointer, int64_t offset, const int64_t *shape, const int64_t *strides) {
  oa_any *made = NULL;
  CHECK_OK(oa_pointer_view(pointer, offset, 2, shape, strides, &made));
  return made;
}

/* Promise T55. */
static void an_irregular_slice_of_a_matrix_with_gaps_is_assigned(void) {
  float x[ROWS * LD], values[3 * 4];
  const int64_t shape[] = {3, 4}, strides[] = {2 * LD * 4, 8};
  for (int i = 0; i < ROWS * LD; i++) x[i] = (float)i;
  for (int i = 0; i < 12; i++) values[i] = (float)(100 + i);
  oa_array lent = {.data = x, .shape = matrix_shape, .strides = matrix_strides, .ndim = 2, .dtype = OA_F32};
  oa_region *region = enter(one, &lent, 1);
  oa_any *slice = view(lent.handle, 0, shape, strides);
  CHECK_OK(oa_pointer_assign(slice, values, 2, shape, strides));
  leave(region, OA_COMMIT);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < LD; c++) {
      const bool assigned = r % 2 == 0 && c % 2 == 0 && c < COLUMNS;
      CHECK(x[r * LD + c] == (assigned ? values[r / 2 * 4 + c / 2] : (float)(r * LD + c)));
    }
  check_empty();
}

struct assigning {
  oa_any *pointer;
  const int64_t *shape, *strides;
  float value;
};
static void *run_assign(void *data) {
  const struct assigning *a = data;
  float values[12];
  for (int i = 0; i < 12; i++) values[i] = a->value;
  for (int i = 0; i < 20; i++) CHECK_OK(oa_pointer_assign(a->pointer, values, 2, a->shape, a->strides));
  return NULL;
}

/* Promise T55. */
static void threads_assign_to_disjoint_irregular_slices(void) {
  float x[ROWS * LD];
  const int64_t shape[] = {3, 3}, strides[] = {2 * LD * 4, 8};
  for (int i = 0; i < ROWS * LD; i++) x[i] = -1;
  oa_array lent = {.data = x, .shape = matrix_shape, .strides = matrix_strides, .ndim = 2, .dtype = OA_F32};
  oa_region *region = enter(one, &lent, 1);
  configure(one, 0, 100);
  struct assigning a[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    a[i] = (struct assigning){view(lent.handle, (i / 2 * LD + i % 2) * 4, shape, strides), shape, strides, (float)i};
    CHECK(pthread_create(&threads[i], NULL, run_assign, &a[i]) == 0);
  }
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  leave(region, OA_COMMIT);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < LD; c++) CHECK(x[r * LD + c] == (c < 6 ? (float)(r % 2 * 2 + c % 2) : -1));
  check_empty();
}

/* -- handles --------------------------------------------------------------------------------------------------------- */

/* Promise T57. */
static void a_regions_own_pointer_is_not_released_before_it(void) {
  float x[4] = {1, 1, 1, 1}, z[4] = {2, 2, 2, 2};
  const int64_t n = 4;
  oa_array outer = vector(x, &n, OA_BY_USE), inner = outer, more = vector(z, &n, OA_BY_USE);
  oa_region *a = enter(one, &outer, 1), *b = enter(one, &inner, 1);
  oa_any *slice;
  CHECK_OK(oa_pointer_view(inner.handle, 0, 1, &n, &item, &slice));
  CHECK_FAILS(oa_pointer_release(inner.handle), OA_ERROR_ARGUMENT, "oa_pointer_release");
  oa_region *c = enter(one, &more, 1); /* would take its place */
  CHECK_OK(add(slice, n, 5));
  leave(b, OA_DISCARD);
  CHECK_FAILS(oa_region_finish(a, OA_COMMIT, NULL) ? OA_ERROR_INVALID : oa_region_wait(a), OA_ERROR_INVALID,
              "undefined");
  leave(c, OA_COMMIT);
  CHECK(x[0] == 1 && z[0] == 2);
  check_empty();
}

/* Promise T57. */
static void a_view_released_within_a_call_lives_until_the_call_ends(void) {
  float x[4] = {1, 1, 1, 1}, z[4] = {2, 2, 2, 2};
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE), more = vector(z, &n, OA_BY_USE);
  oa_region *a = enter(one, &lent, 1), *b = enter(one, &more, 1);
  oa_any *slice, *next;
  CHECK_OK(oa_pointer_view(lent.handle, 0, 1, &n, &item, &slice));
  oa_operand p = operand(slice, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(oa_pointer_release(slice)); /* once is enough */
  CHECK(add(slice, n, 1) == OA_ERROR_STALE);
  CHECK_OK(oa_pointer_view(more.handle, 0, 1, &n, &item, &next));
  struct change c = {p.address, n, 1, 1, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  CHECK(x[0] == 6 && z[0] == 2);
  check_empty();
}

/* -- regions that could not be entered -------------------------------------------------------------------------------- */

static struct {
  oa_region *region; /* another thread's, left while memory is asked for */
  int outcome;
} meanwhile;

static int allocate_nothing(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  (void)stream;
  (void)address;
  oa_region *region = meanwhile.region;
  meanwhile.region = NULL;
  if (region) leave(region, meanwhile.outcome);
  return oa_fail(OA_ERROR_MEMORY, "%s: no memory for %zu bytes", device->name, nbytes);
}

static void what_was_written_is_not_lost_by_a_sharer_that_could_not_enter(void) {
  static float z[1 << 22];
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4, many = 1 << 22;
  oa_array lent = vector(x, &n, OA_BY_USE), more[] = {vector(x, &n, OA_BY_USE), vector(z, &many, OA_BY_USE)};
  oa_region *refused = NULL;
  oa_device *device = oa_device_of(one);
  const oa_backend *backend = device->backend;
  oa_backend failing = *backend;
  failing.allocate = allocate_nothing;
  meanwhile.region = enter(one, &lent, 1);
  meanwhile.outcome = OA_COMMIT;
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_device_trim(one)); /* nothing that stays from earlier regions is taken */
  device->backend = &failing;
  CHECK_FAILS(oa_region_enter(one, NULL, more, 2, &refused), OA_ERROR_MEMORY, "argument 2");
  device->backend = backend;
  CHECK(meanwhile.region == NULL);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

/* -- failed calls beside others --------------------------------------------------------------------------------------- */

static void a_call_that_began_before_another_failed_heals_nothing(void) {
  float x[4] = {1, 1, 1, 1}, found = -1;
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(one, &lent, 1);
  oa_operand first = operand(lent.handle, OA_READ_WRITE, 1, 1), second = operand(lent.handle, OA_READ_WRITE, n, 1);
  oa_call good = {.function = "test.good", .operands = &first, .count = 1};
  oa_call bad = {.function = "test.bad", .operands = &second, .count = 1};
  CHECK_OK(oa_begin(&good));
  CHECK_OK(oa_begin(&bad));
  CHECK_OK(oa_end(&bad, -1));
  CHECK_OK(oa_end(&good, 0));
  CHECK_FAILS(peek(lent.handle, &found), OA_ERROR_INVALID, "left undefined");
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "undefined");
  check_empty();
}

static void what_a_failing_sharer_wrote_is_healed_by_no_call_in_flight(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  struct sharer other_thread = {.array = vector(x, &n, OA_BY_USE)};
  oa_array own = vector(x, &n, OA_BY_USE);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_enter, &other_thread) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  oa_region *region = enter(one, &own, 1);
  CHECK_OK(add(other_thread.array.handle, n, 5));
  oa_operand p = operand(own.handle, OA_READ_WRITE, 1, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  leave(other_thread.region, OA_DISCARD);
  CHECK_OK(oa_end(&call, 0));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "undefined");
  for (int i = 0; i < n; i++) CHECK(x[i] == 1);
  check_empty();
}

/* -- addresses -------------------------------------------------------------------------------------------------------- */

static void write_at(uint64_t address, float value) { *(float *)(uintptr_t)address = value; }

static void an_address_that_was_given_away_writes_its_own_array_only(void) {
  float x[6] = {1, 1, 1, 1, 1, 1}, found = 0;
  const int64_t shape[] = {3, 1}, strides[] = {8, 4};
  oa_array even = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32}, odd = even;
  odd.data = x + 1;
  oa_array both[] = {even, odd};
  uint64_t address = 0;
  oa_region *region = enter(one, both, 2);
  CHECK_OK(peek(both[1].handle, &found));
  CHECK_OK(oa_address(both[0].handle, &address));
  write_at(address, 7);
  x[1] = 9; /* the host's own: of this array nothing was written on the device */
  leave(region, OA_COMMIT);
  CHECK(x[0] == 7 && x[1] == 9);
  check_empty();
}

static void an_update_brings_down_what_was_written_by_address_in_a_part(void) {
  float x[6] = {1, 1, 1, 1, 1, 1};
  const int64_t n = 6, two = 2;
  oa_array both[] = {vector(x, &n, OA_IN), vector(x + 2, &two, OA_INOUT)}, part = vector(x + 2, &two, OA_BY_USE);
  uint64_t address = 0;
  oa_region *region = enter(one, both, 2);
  CHECK_OK(oa_address(both[1].handle, &address));
  write_at(address, 7);
  CHECK_OK(oa_update_from(&part, -1));
  CHECK(x[2] == 7);
  leave(region, OA_COMMIT);
  CHECK(x[2] == 7);
  check_empty();
}

static void an_array_whose_address_may_be_written_is_on_no_other_device(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  uint64_t address = 0;
  oa_array lent = vector(x, &n, OA_BY_USE), again = lent, read[] = {vector(x, &n, OA_IN)}, same[] = {read[0]};
  oa_region *a = enter(one, &lent, 1), *b = enter(other, &again, 1), *refused = NULL;
  CHECK_FAILS(oa_address(lent.handle, &address), OA_ERROR_DIRECTION, "is present on");
  leave(b, OA_COMMIT);
  CHECK_OK(oa_address(lent.handle, &address));
  write_at(address, 7);
  CHECK_FAILS(oa_region_enter(other, NULL, read, 1, &refused), OA_ERROR_DIRECTION, "is present on another device");
  leave(a, OA_COMMIT);
  CHECK(x[0] == 7);
  a = enter(one, read, 1), b = enter(other, same, 1); /* nobody may write: both addresses are given */
  CHECK_OK(oa_address(read[0].handle, &address));
  CHECK_OK(oa_address(same[0].handle, &address));
  leave(a, OA_COMMIT);
  leave(b, OA_COMMIT);
  check_empty();
}

/* Promise T57. */
static void a_staged_scalar_lives_as_long_as_its_views(void) {
  float x[4] = {1, 1, 1, 1}, value = 3, found = -1;
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(one, &lent, 1);
  oa_any *staged = NULL, *slice = NULL;
  CHECK_OK(oa_stage(lent.handle, &value, OA_F32, &staged));
  CHECK_OK(oa_pointer_view(staged, 0, 0, NULL, NULL, &slice));
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(peek(staged, &found));
  CHECK(found == 3);
  CHECK_OK(oa_pointer_view(staged, 0, 0, NULL, NULL, &slice));
  CHECK_OK(oa_pointer_release(staged));
  CHECK_OK(peek(slice, &found));
  CHECK(found == 3);
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(oa_stage(lent.handle, &value, OA_F32, &staged));
  value = 4;
  CHECK_OK(oa_pointer_assign(staged, &value, 0, NULL, NULL));
  CHECK_OK(peek(staged, &found));
  CHECK(found == 4);
  leave(region, OA_COMMIT);
  check_empty();
}

/* -- regions that were left, and are not yet waited for ----------------------------------------------------------------- */

static void a_region_that_was_left_narrows_nobodys_rights(void) {
  float x[4] = {1, 1, 1, 1}, found = -1;
  const int64_t n = 4;
  oa_array read = vector(x, &n, OA_IN), written = vector(x, &n, OA_INOUT), filled = vector(x, &n, OA_OUT),
           again = filled;
  int unwritten = 0;
  oa_region *a = enter(one, &read, 1);
  CHECK_OK(peek(read.handle, &found));
  CHECK_OK(oa_region_finish(a, OA_COMMIT, NULL));
  oa_region *b = enter(one, &written, 1);
  CHECK_OK(add(written.handle, n, 5));
  CHECK_OK(oa_region_finish(b, OA_COMMIT, NULL));
  oa_region *c = enter(one, &filled, 1);
  CHECK_FAILS(peek(filled.handle, &found), OA_ERROR_DIRECTION, "read before it is written");
  CHECK_OK(set(filled.handle, n, 7));
  CHECK_OK(oa_region_finish(c, OA_COMMIT, NULL));
  oa_region *d = enter(one, &again, 1);
  CHECK_OK(oa_region_finish(d, OA_COMMIT, &unwritten));
  CHECK(unwritten == 1);
  oa_region *const regions[] = {d, b, a, c};
  for (int i = 0; i < 4; i++) CHECK_OK(oa_region_wait(regions[i]));
  for (int i = 0; i < n; i++) CHECK(x[i] == 7);
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
  oa_region *region = enter(one, both, 2);
  for (int i = 0; i < R * C; i++) before[i] = x[i];
  oa_array parts[] = {right, left, left, left};
  parts[2].data = x + 3, parts[2].shape = middle;
  parts[3].data = x + 6, parts[3].shape = wrapped; /* its lines end in the next row */
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
    float found[R * 4];
    CHECK_OK(oa_pointer_read(both[1].handle, found, 2, shape, strides));
    for (int i = 0; i < R; i++)
      for (int j = 0; j < 4; j++) {
        bool in = false;
        for (int64_t r = 0; r < parts[k].shape[0]; r++) {
          const int64_t at = (x + i * C + 4 + j) - ((float *)parts[k].data + r * C);
          in |= at >= 0 && at < parts[k].shape[1];
        }
        const float device = seven - 1, host = x[i * C + 4 + j];
        CHECK(found[i * 4 + j] == (in && !from ? -1 : device));
        if (from && in) CHECK(host == device);
      }
  }
  CHECK(x[0] == before[0] && (!from || x[9] == before[9]));
  leave(region, OA_COMMIT);
  check_empty();
}

int main(void) {
  const char *const names[][2] = {{"host", "sim:1"}, {"sim:0", "sim:1"}, {"sim:0", "host"}};
  CHECK_OK(oa_device_open("host", &host));
  for (int i = 0; i < 3; i++) {
    CHECK_OK(oa_device_open(names[i][0], &one));
    CHECK_OK(oa_device_open(names[i][1], &other));
    a_device_reads_what_another_is_still_copying_down(false);
    a_device_reads_what_another_is_still_copying_down(true);
    a_device_that_was_left_has_no_old_bytes_for_its_next_region();
    what_a_call_is_writing_is_on_no_other_device();
    a_call_that_writes_waits_for_no_reader_it_cannot_see();
    an_update_and_the_end_of_the_region_share_one_array(false, false);
    an_update_and_the_end_of_the_region_share_one_array(true, false);
    if (i) an_update_and_the_end_of_the_region_share_one_array(true, true);
    update_does_not_lose_what_a_call_in_flight_writes();
    a_first_write_in_flight_is_neither_overtaken_nor_cleared(OA_BY_USE, run_peek_beside);
    a_first_write_in_flight_is_neither_overtaken_nor_cleared(OA_OUT, run_address_beside);
    the_hosts_bytes_reach_every_device_that_has_some();
    the_hosts_bytes_reach_what_is_packed();
    an_update_of_more_than_any_device_has_is_refused();
    an_update_that_some_device_cannot_take_moves_nothing();
    an_update_brings_down_nothing_that_never_came_up();
    an_address_says_nothing_of_an_unwritten_out_beside_it();
    if (i) an_address_that_could_not_be_taken_leaves_the_array_unwritten();
    the_address_of_an_out_keeps_what_an_overlapping_argument_brought_up();
    an_out_inside_a_larger_array_is_written_by_what_fills_it();
    what_a_region_committed_comes_down_whatever_a_later_one_does(OA_IN);
    what_a_region_committed_comes_down_whatever_a_later_one_does(OA_BY_USE);
    threads_that_share_do_not_discard_for_each_other();
    a_failing_outer_region_discards_what_inner_ones_wrote();
    a_partial_write_in_flight_heals_nothing_that_fails_meanwhile();
    what_was_updated_is_not_told_as_discarded();
    a_smaller_assignment_leaves_the_rest();
    an_irregular_slice_of_a_matrix_with_gaps_is_assigned();
    threads_assign_to_disjoint_irregular_slices();
    a_regions_own_pointer_is_not_released_before_it();
    if (i) a_view_released_within_a_call_lives_until_the_call_ends();
    a_region_that_was_left_narrows_nobodys_rights();
    an_update_of_columns_reaches_arrays_that_overlap_in_columns(true);
    an_update_of_columns_reaches_arrays_that_overlap_in_columns(false);
    what_was_written_is_not_lost_by_a_sharer_that_could_not_enter();
    a_call_that_began_before_another_failed_heals_nothing();
    what_a_failing_sharer_wrote_is_healed_by_no_call_in_flight();
    an_address_that_was_given_away_writes_its_own_array_only();
    an_update_brings_down_what_was_written_by_address_in_a_part();
    an_array_whose_address_may_be_written_is_on_no_other_device();
    if (i) a_staged_scalar_lives_as_long_as_its_views();
  }
  return failures();
}
