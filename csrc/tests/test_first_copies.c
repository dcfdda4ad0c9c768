/* The streams of large copies: threads are awake for a region's first copies, which need no separate stream; later
 * copies do not wait for calls that read other bytes. */
#include "base/threads.h"
#include "region/slot.h"
#include "two_devices.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { LARGE = OA_OVERLAP_BYTES / sizeof(float) };
static float x[2][LARGE];

/* -- waking -- */

enum { EACH = 3 };
static atomic_int workers;

static void note_worker(void *unused) {
  (void)unused;
  atomic_fetch_add(&workers, 1);
  for (int k = 0; k < 200000 && atomic_load(&workers) < EACH; k++) usleep(1000);
}

static void expect(int unused) {
  (void)unused;
  oa_threads_expect();
}

static oa_region *entered;
static void enter_with(int direction) {
  const int64_t n = LARGE;
  oa_array array = vector(x[0], &n, direction);
  entered = enter(device_a, &array, 1);
}

/* Calls `begin` `times` times, and returns how often a thread polled for work after it. Stops at 3, because on a busy
 * machine most threads wake too late.
 * */
static int times_awake(void (*begin)(int), int direction, int times) {
  int differences = 0;
  for (int i = 0; i < times && differences < 3; i++) {
    usleep(1000); /* longer than threads poll */
    const int before = oa_threads_looks();
    begin(direction);
    if (entered) leave(entered, OA_COMMIT);
    entered = NULL;
    usleep(1000);
    differences += oa_threads_looks() != before;
  }
  return differences;
}

static void threads_are_woken_by_a_region_that_will_copy_much_up(void) {
  CHECK_OK(oa_set_threads(EACH));
  oa_threads_run(NULL, note_worker, NULL, EACH);
  CHECK(workers == EACH);
  CHECK(times_awake(expect, 0, 20000) == 3);
  if (device_a != host) CHECK(times_awake(enter_with, OA_IN, 20000) == 3);
  CHECK(times_awake(enter_with, OA_OUT, 30) == 0);
  CHECK_OK(oa_set_threads(0));
}

/* -- streams -- */

struct sum {
  const float *p;
  double *total;
};
static void run_sum(void *data) {
  const struct sum *s = data;
  *s->total = 0;
  for (int i = 0; i < LARGE; i++) *s->total += (double)s->p[i];
}

/* Enqueues the sum of the array. */
static void begin_sum(const oa_array *array, double *total) {
  oa_operand p = operand(array->handle, OA_READ, LARGE, 1);
  oa_call call = {.function = "test.sum", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  const struct sum s = {p.address, total};
  CHECK_OK(oa_submit(&call, run_sum, (void *)&s, sizeof s));
}

static const oa_region_state *state_of(const oa_region *region) {
  int status;
  return oa_slot_of(region, OA_SLOT_REGION, &status)->region;
}

/* The device is slow, so a call that did not wait for the copy would read other numbers. */
static void the_first_copies_of_a_region_take_its_own_stream(void) {
  const int64_t n = LARGE;
  double totals[4] = {0};
  for (int i = 0; i < 2 * LARGE; i++) x[i / LARGE][i % LARGE] = (float)(1 + i / LARGE);
  oa_array first[2] = {vector(x[0], &n, OA_IN), vector(x[1], &n, OA_IN)}, again[2] = {first[0], first[1]};
  oa_region *region = enter(device_a, first, 2), *inner = enter(device_a, again, 2);
  configure(device_a, 0, SLOW / 4);
  begin_sum(&first[0], &totals[0]);
  CHECK(!state_of(region)->copies);
  begin_sum(&again[0], &totals[1]); /* on another stream, which waits for the first copy */
  CHECK(!state_of(inner)->copies);
  begin_sum(&first[1], &totals[2]); /* while the first call is under way */
  CHECK(device_a == host || state_of(region)->copies);
  begin_sum(&again[1], &totals[3]);
  configure(device_a, 0, 0);
  leave(inner, OA_COMMIT);
  leave(region, OA_COMMIT);
  CHECK(totals[0] == LARGE && totals[1] == LARGE && totals[2] == 2 * LARGE && totals[3] == 2 * LARGE);
  check_empty();
}

static atomic_bool is_free, in_vain;
/* Runs until is_free, or for 20 s. */
static void run_hold(void *unused) {
  (void)unused;
  for (int k = 0; k < 20000 && !is_free; k++) usleep(1000);
  if (!is_free) in_vain = true;
}

/* The first call that reads the rest of an array brings it up on another stream, while the call before it runs. */
static void the_rest_of_an_array_does_not_wait_for_calls_that_read_other_parts(void) {
  const int64_t n = 4 * LARGE, one = 1;
  float *values = calloc((size_t)n, sizeof *values), last = 0;
  values[n - 1] = 5;
  oa_array array = vector(values, &n, OA_IN), again = array;
  oa_region *region = enter(device_a, &array, 1), *inner = enter(device_a, &again, 1);
  CHECK_OK(peek(array.handle, &last));
  oa_operand part = operand(array.handle, OA_READ, LARGE, 1), all = operand(array.handle, OA_READ, n, 1);
  oa_call hold = {.function = "test.hold", .operands = &part, .count = 1};
  oa_call rest = {.function = "test.rest", .operands = &all, .count = 1};
  CHECK_OK(oa_begin(&hold));
  CHECK_OK(oa_submit(&hold, run_hold, NULL, 0));
  CHECK_OK(oa_begin(&rest));
  CHECK_OK(oa_end(&rest, 0));
  oa_any *end;
  CHECK_OK(oa_pointer_view(again.handle, (n - 1) * item, 1, &one, &item, &end));
  CHECK_OK(peek(end, &last)); /* on the inner region's stream, after the copy */
  CHECK(last == 5 && !in_vain);
  is_free = true;
  leave(inner, OA_COMMIT);
  leave(region, OA_COMMIT);
  free(values);
  check_empty();
}

int main(void) {
  CHECK_OK(oa_device_open("host", &host));
  CHECK_OK(oa_device_open("sim:0", &device_a));
  CHECK_OK(oa_device_open("sim:1", &device_b));
  threads_are_woken_by_a_region_that_will_copy_much_up();
  the_first_copies_of_a_region_take_its_own_stream();
  if (device_a != host) the_rest_of_an_array_does_not_wait_for_calls_that_read_other_parts();
  return failures();
}
