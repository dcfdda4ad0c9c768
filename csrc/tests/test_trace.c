/* The trace is complete and equals the counters, and notes nothing while it is off. Several writers may fill its queue.
 *
 * The core puts events into one queue of 32,768, and a reader takes them out, oldest first:
 *
 *   oa_trace_set(OA_TRACE_ON);                        from now on events are queued
 *   one_region(x, y, 10, sizeof *x, 7);               ENTER (tag 7), ACCESS, two UP, DOWN, LEAVE, and events between
 *   oa_trace_set(0);                                  no more events; those in the queue stay
 *   read_all();                                       takes them into events[0 .. event_count)
 *   nth(OA_TRACE_UP, 1)->nbytes                       of the second copy up: 80
 *   lost()                                            how many found the queue full, since the process began
 *
 * An event is queued when it ends: a region's copies come before its LEAVE. */
#include "base/trace.h"
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const oa_library *const oa_libraries[] = {NULL}; /* calls below use no vendor's library */

enum { MOST = 1 << 16 };
static oa_trace_event events[MOST];
static int event_count;
static int device;

static void read_all(void) {
  event_count = 0;
  int count = 0;
  do {
    CHECK_OK(oa_trace_read(events + event_count, 1000, &count, NULL));
    event_count += count;
  } while (count);
}

static int64_t lost(void) {
  int64_t lost = 0;
  int count;
  CHECK_OK(oa_trace_read(NULL, 0, &count, &lost));
  return lost;
}

static const oa_trace_event *nth(int kind, int n) {
  for (int i = 0; i < event_count; i++)
    if (events[i].kind == kind && n-- == 0) return &events[i];
  return NULL;
}

static int64_t bytes_of(int kind, int64_t *number) {
  int64_t bytes = 0;
  *number = 0;
  for (int i = 0; i < event_count; i++) {
    if (events[i].kind != kind) continue;
    bytes += events[i].nbytes;
    ++*number;
  }
  return bytes;
}

struct add {
  int64_t n;
  const double *x;
  double *y;
};

static void run_add(void *data) {
  const struct add *a = data;
  for (int64_t i = 0; i < a->n; i++) a->y[i] += a->x[i];
}

static int add(const oa_any *x, oa_any *y, int64_t n) {
  oa_operand operands[] = {{.name = "x", .pointer = x, .access = OA_READ, .extent = OA_ELEMENTS(n)},
                           {.name = "y", .pointer = y, .access = OA_READ_WRITE, .extent = OA_ELEMENTS(n)}};
  oa_call call = {.function = "test.add", .operands = operands, .count = 2};
  const int status = oa_begin(&call);
  if (status) return status;
  struct add a = {n, operands[0].address, operands[1].address};
  return oa_submit(&call, run_add, &a, sizeof a);
}

static oa_array vector(double *data, const int64_t *n, const int64_t *step, const char *name) {
  return (oa_array){.data = data, .shape = n, .strides = step, .ndim = 1, .dtype = OA_F64, .name = name};
}

/* y += x in a region with that tag. */
static void one_region(double *x, double *y, int64_t n, int64_t step, int64_t tag) {
  oa_array arrays[] = {vector(x, &n, &step, "x"), vector(y, &n, &step, NULL)};
  const oa_region_options options = OA_SIZED(oa_region_options, .tag = tag);
  oa_region *region;
  CHECK_OK(oa_region_enter(device, &options, arrays, 2, &region));
  CHECK_OK(add(arrays[0].handle, arrays[1].handle, n));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
}

static void nothing_while_off(void) {
  double x[10] = {0}, y[10] = {0};
  one_region(x, y, 10, sizeof *x, 1);
  read_all();
  CHECK(event_count == 0);
}

static void events_equal_counters(void) {
  double x[200], y[200];
  for (int i = 0; i < 200; i++) x[i] = i, y[i] = 1;
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &before));
  CHECK_OK(oa_trace_set(OA_TRACE_ON | OA_TRACE_CHECKSUMS));
  one_region(x, y, 100, sizeof *x, 7);
  one_region(x, y, 100, sizeof *x, 8);
  one_region(x, y, 100, 2 * sizeof *x, 9); /* strided arrays, which are packed on the device */
  CHECK_OK(oa_trace_set(0));
  one_region(x, y, 100, sizeof *x, 10);
  CHECK_OK(oa_device_get_counters(device, &after));
  read_all();
  int64_t number;
  CHECK(bytes_of(OA_TRACE_UP, &number) == (after.bytes_up - before.bytes_up) * 3 / 4);
  CHECK(number == 6);
  CHECK(bytes_of(OA_TRACE_DOWN, &number) == (after.bytes_down - before.bytes_down) * 3 / 4);
  CHECK(number == 3);
  bytes_of(OA_TRACE_ACCESS, &number);
  CHECK(number == 3);
  bytes_of(OA_TRACE_ALLOCATE, &number); /* the two arrays of a region share an allocation */
  CHECK(number == 3);
  bytes_of(OA_TRACE_RELEASE, &number);
  CHECK(number == 3);
  for (int i = 0; i < 3; i++) {
    const oa_trace_event *enter = nth(OA_TRACE_ENTER, i), *leave = nth(OA_TRACE_LEAVE, i),
                         *down = nth(OA_TRACE_DOWN, i);
    const oa_trace_event *call = nth(OA_TRACE_ACCESS, i), *up = nth(OA_TRACE_UP, 2 * i),
                         *next = nth(OA_TRACE_UP, 2 * i + 1);
    if (!CHECK(enter && leave && down && call && up && next)) return;
    CHECK(enter->tag == 7 + i && enter->nbytes == 1600);
    CHECK(enter->region == leave->region && enter->region == call->region && enter->region == up->region &&
          enter->region == next->region && enter->region == down->region);
    CHECK(enter->ended <= call->begun && call->ended <= leave->begun);
    CHECK(call->begun <= up->begun && up->begun <= up->ended && up->ended == next->begun && next->ended <= call->ended);
    CHECK(leave->begun <= down->begun && down->ended <= leave->ended);
    for (int w = 0; nth(OA_TRACE_WAIT, w); w++) /* no wait overlaps with the copy */
      CHECK(nth(OA_TRACE_WAIT, w)->ended <= down->begun || down->ended <= nth(OA_TRACE_WAIT, w)->begun);
    CHECK(!strcmp(call->name, "test.add") && !strcmp(up->name, "x") && !strcmp(next->name, "argument 2"));
    CHECK(!strcmp(up->why, "first read by test.add") && !strcmp(down->why, "written, leaving the region"));
    CHECK(up->batch == 2 && up->packed == (i == 2) && up->thread == enter->thread);
  }
  /* In the second region x is unchanged, and y has changed: the bytes of y that came down go up. */
  CHECK(nth(OA_TRACE_UP, 0)->checksum == nth(OA_TRACE_UP, 2)->checksum);
  CHECK(nth(OA_TRACE_UP, 1)->checksum != nth(OA_TRACE_UP, 3)->checksum);
  CHECK(nth(OA_TRACE_DOWN, 0)->checksum == nth(OA_TRACE_UP, 3)->checksum);
}

static void a_byte_changes_the_checksum(void) {
  double x[61], y[61] = {0};
  int64_t number;
  for (int i = 0; i < 61; i++) x[i] = i;
  CHECK_OK(oa_trace_set(OA_TRACE_ON | OA_TRACE_CHECKSUMS));
  one_region(x, y, 61, sizeof *x, 0);
  for (int i = 0; i < 61; i++) { /* changes one number after the other */
    ((unsigned char *)&x[i])[i % 8] ^= 0x80;
    one_region(x, y, 61, sizeof *x, 0);
  }
  CHECK_OK(oa_trace_set(0));
  read_all();
  bytes_of(OA_TRACE_UP, &number);
  CHECK(number == 2 * 62);
  for (int i = 0; i < 62; i++)
    for (int j = 0; j < i; j++) CHECK(nth(OA_TRACE_UP, 2 * i)->checksum != nth(OA_TRACE_UP, 2 * j)->checksum);
}

static void a_full_queue_loses_and_counts(void) {
  double x[1] = {0}, y[1] = {0};
  const int64_t before = lost();
  CHECK_OK(oa_trace_set(OA_TRACE_ON));
  for (int i = 0; i < 6000; i++) one_region(x, y, 1, sizeof *x, i);
  CHECK_OK(oa_trace_set(0));
  read_all();
  CHECK(event_count == 1 << 15);
  CHECK(lost() > before);
  CHECK(events[0].kind == OA_TRACE_ALLOCATE || events[0].kind == OA_TRACE_ENTER);
  for (int i = 1; i < event_count; i++) CHECK(events[i - 1].ended <= events[i].ended);
  CHECK_OK(oa_trace_set(OA_TRACE_ON)); /* the queue has room again */
  one_region(x, y, 1, sizeof *x, 5);
  CHECK_OK(oa_trace_set(0));
  read_all();
  CHECK(nth(OA_TRACE_ENTER, 0) && nth(OA_TRACE_ENTER, 0)->tag == 5);
}

enum { THREADS = 6, ROUNDS = 400 };

static void *many_regions(void *data) {
  double x[4] = {0}, y[4] = {0};
  for (int i = 0; i < ROUNDS; i++) one_region(x, y, 4, sizeof *x, (int64_t)(intptr_t)data);
  return NULL;
}

static atomic_int readers_done;
static atomic_int seen[THREADS + 1];

static void *reader(void *unused) {
  oa_trace_event few[16];
  int count;
  do {
    const int last = atomic_load(&readers_done);
    CHECK_OK(oa_trace_read(few, 16, &count, NULL));
    for (int i = 0; i < count; i++)
      if (few[i].kind == OA_TRACE_ENTER) atomic_fetch_add(&seen[few[i].tag], 1);
    if (last && !count) return unused;
  } while (1);
}

static void threads_write_while_others_read(void) {
  pthread_t writers[THREADS], readers[2];
  const int64_t before = lost();
  CHECK_OK(oa_trace_set(OA_TRACE_ON));
  for (intptr_t i = 0; i < 2; i++) pthread_create(&readers[i], NULL, reader, NULL);
  for (intptr_t i = 0; i < THREADS; i++) pthread_create(&writers[i], NULL, many_regions, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) pthread_join(writers[i], NULL);
  atomic_store(&readers_done, 1);
  for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
  CHECK_OK(oa_trace_set(0));
  int total = 0;
  for (int i = 1; i <= THREADS; i++) total += atomic_load(&seen[i]);
  if (lost() == before) CHECK(total == THREADS * ROUNDS);
  atomic_store(&readers_done, 0);
  for (int i = 0; i <= THREADS; i++) atomic_store(&seen[i], 0);
}

static void a_failure_is_noted_and_moves_nothing(void) {
  double x[10] = {0}, y[10] = {0};
  const int64_t n = 10, step = sizeof *x;
  oa_array arrays[] = {vector(x, &n, &step, "x"), vector(y, &n, &step, "y")};
  oa_region *region;
  CHECK_OK(oa_trace_set(OA_TRACE_ON));
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK_OK(oa_sim_configure(device, 0, 1, 0));
  CHECK_FAILS(add(arrays[0].handle, arrays[1].handle, n), OA_ERROR_BACKEND, "test.add");
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  CHECK_OK(oa_region_finish(region, OA_DISCARD, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK_OK(oa_trace_set(0));
  read_all();
  const oa_trace_event *up = nth(OA_TRACE_UP, 0);
  CHECK(up && up->status == OA_ERROR_BACKEND);
  CHECK(!nth(OA_TRACE_ACCESS, 0) && !nth(OA_TRACE_DOWN, 0) && nth(OA_TRACE_LEAVE, 0));
}

static atomic_int region_done;

static void *one_large_region(void *unused) {
  enum { N = 1 << 18 };
  double *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
  one_region(x, y, N, sizeof *x, 1);
  free(x);
  free(y);
  atomic_store(&region_done, 1);
  return unused;
}

static void copies_and_waits_are_listed_while_they_are_under_way(void) {
  oa_under_way list[4];
  pthread_t thread;
  int count, kinds = 0;
  int64_t most_done = 0;
  CHECK_OK(oa_sim_configure(device, 0, 0, 20000));
  CHECK_OK(oa_trace_set(OA_TRACE_UNDER_WAY));
  pthread_create(&thread, NULL, one_large_region, NULL);
  while (!atomic_load(&region_done)) {
    CHECK_OK(oa_trace_under_way(list, 4, &count));
    CHECK(count <= 1);
    if (!count) continue;
    kinds |= 1 << list->kind;
    CHECK(list->device == device && list->begun > 0 && list->begun <= oa_trace_now() && list->done <= list->nbytes);
    if (list->kind == OA_TRACE_UP) CHECK(list->nbytes == 2 * (8 << 18) && strstr(list->name, " and 1 more"));
    if (list->kind == OA_TRACE_WAIT) CHECK(list->nbytes == 0 && list->name[0]);
    if (list->done > most_done) most_done = list->done;
  }
  pthread_join(thread, NULL);
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  CHECK(kinds & 1 << OA_TRACE_UP && kinds & 1 << OA_TRACE_WAIT && most_done > 0);
  CHECK_OK(oa_trace_under_way(list, 4, &count));
  CHECK(count == 0);
  CHECK_OK(oa_trace_set(0));
  read_all();
  CHECK(event_count == 0);
  CHECK_FAILS(oa_trace_under_way(NULL, 4, &count), OA_ERROR_ARGUMENT, "list");
  CHECK_FAILS(oa_trace_under_way(list, -1, &count), OA_ERROR_ARGUMENT, "capacity needs to be at least 0, got -1");
  CHECK_FAILS(oa_trace_under_way(list, 4, NULL), OA_ERROR_ARGUMENT, "count");
}

int main(void) {
  CHECK_FAILS(oa_trace_set(64), OA_ERROR_ARGUMENT, "oa_trace_flags");
  static const char *const names[] = {"host", "sim:0"};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    nothing_while_off();
    events_equal_counters();
    a_byte_changes_the_checksum();
    a_full_queue_loses_and_counts();
    threads_write_while_others_read();
  }
  a_failure_is_noted_and_moves_nothing();
  if (!on_doubles()) copies_and_waits_are_listed_while_they_are_under_way(); /* doubles do all work immediately */
  return failures();
}
