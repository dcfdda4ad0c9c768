/* Chains: captured calls of a region, which run at each replay, beside calls of other threads. */
#include "offload_args/chain.h"
#include "one_device.h"
#include "region/capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 64, TURNS = 50, THREADS = 3 };
static float x[N], y[N], other[N];

static oa_region *lend(oa_array *arrays, int count) {
  oa_region *region = NULL;
  CHECK_OK(oa_region_enter(device, NULL, arrays, count, &region));
  return region;
}

static oa_region *lend_both(oa_array arrays[2]) {
  static int64_t n = N;
  arrays[0] = vector(x, &n, OA_BY_USE);
  arrays[1] = vector(y, &n, OA_BY_USE);
  return lend(arrays, 2);
}

static void set(void) {
  for (int i = 0; i < N; i++) {
    x[i] = (float)i;
    y[i] = 1;
    other[i] = 0;
  }
}

static int add(float a, const oa_array arrays[2]) { return axpy(a, arrays[0].handle, 1, arrays[1].handle, 1, N, 0); }

static void captured_calls_run_at_each_replay(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL, *second = NULL;
  oa_chain_info info = OA_SIZED(oa_chain_info);
  set();
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(add(2, arrays));
  CHECK_FAILS(oa_chain_begin(region, &second), OA_ERROR_CAPTURE, "are being captured already");
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_CAPTURE, "still being captured");
  CHECK_FAILS(oa_region_synchronize(region), OA_ERROR_CAPTURE, "end the capture first");
  CHECK_FAILS(oa_region_finish(region, OA_COMMIT, NULL), OA_ERROR_CAPTURE, "end the capture first");
  CHECK_FAILS(oa_update_from(&arrays[1], -1), OA_ERROR_CAPTURE, "before the capture begins or after it has ended");
  CHECK_OK(oa_chain_end(chain));
  CHECK_FAILS(oa_chain_end(chain), OA_ERROR_ARGUMENT, "has ended already");
  CHECK_OK(oa_update_from(&arrays[1], -1));
  CHECK(y[3] == 1); /* nothing ran */
  for (int i = 0; i < 3; i++) CHECK_OK(oa_chain_replay(chain));
  CHECK_OK(oa_chain_get_info(chain, &info));
  CHECK(info.calls == 1 && info.arrays == 2 && info.replays == 3 && info.region == region);
  leave(region);
  CHECK(y[3] == 1 + 3 * 2 * 3);
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_STALE, "region has ended");
  CHECK_OK(oa_chain_release(chain));
  check_empty();
}

/* The calls use only device scalars: axpy of one element reads one scalar and writes another. */
static void a_chain_of_device_scalars_alone_runs(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  oa_any *from = NULL, *to = NULL;
  oa_chain_info info = OA_SIZED(oa_chain_info);
  const float two = 2, three = 3;
  float sum = 0;
  set();
  oa_region *region = lend_both(arrays);
  const int64_t frees = counters().frees;
  for (int i = 0; i < 3; i++) {
    CHECK_OK(oa_stage(arrays[0].handle, &two, OA_F32, &from));
    CHECK_OK(oa_stage(arrays[0].handle, &three, OA_F32, &to));
    CHECK_OK(oa_chain_begin(region, &chain));
    CHECK_OK(axpy(10, from, 1, to, 1, 1, 0));
    CHECK_OK(oa_chain_end(chain));
    CHECK_OK(oa_chain_replay(chain));
    CHECK_OK(oa_chain_replay(chain));
    CHECK_OK(oa_chain_get_info(chain, &info));
    CHECK(info.arrays == 2);
    CHECK_OK(oa_pointer_read(to, &sum, 0, NULL, NULL));
    CHECK(sum == 3 + 2 * 10 * 2);
    CHECK_OK(oa_pointer_release(from)); /* the chain has separate pointers to both scalars */
    CHECK_OK(oa_pointer_release(to));
    CHECK_OK(oa_chain_replay(chain));
    CHECK_OK(oa_chain_release(chain));
  }
  CHECK(counters().frees == frees + 6); /* the scalars are freed with the chain, not with the region */
  leave(region);
  check_empty();
}

/* y += x until y[3], the tested element, is not 0. */
static void captured_calls_run_until_an_element_is_set(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  oa_chain_use use = OA_SIZED(oa_chain_use);
  oa_any *until = NULL;
  int64_t count = -1;
  int ended = -1;
  set();
  y[3] = -6;
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_pointer_view(arrays[1].handle, 3 * (int64_t)sizeof *y, 0, NULL, NULL, &until));
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_FAILS(oa_chain_get_use(chain, 0, 0, &use), OA_ERROR_CAPTURE, "still being captured");
  CHECK_OK(add(1, arrays));
  CHECK_OK(oa_chain_end(chain));
  CHECK_OK(oa_chain_loop(chain, until, 0, &count, &ended));
  CHECK(count == 0 && !ended);
  CHECK_OK(oa_chain_loop(chain, until, 9, &count, &ended));
  CHECK(count == 1 && ended); /* -3 is not 0 */
  CHECK_OK(oa_chain_loop(chain, until, 1, &count, &ended));
  CHECK(count == 1 && !ended);
  CHECK_OK(oa_chain_loop(chain, until, 9, &count, &ended));
  CHECK(count == 1 && ended);
  CHECK_FAILS(oa_chain_loop(chain, arrays[1].handle, 9, &count, &ended), OA_ERROR_EXTENT, "until needs one element");
  CHECK_FAILS(oa_chain_loop(chain, until, 9, NULL, &ended), OA_ERROR_ARGUMENT, "count");
  CHECK_OK(oa_chain_get_use(chain, 0, 1, &use));
  CHECK(strcmp(use.function, "test.axpy") == 0 && use.uses == 2 && use.array == 1 && use.reads && use.writes);
  CHECK(use.pointer == arrays[1].handle);
  CHECK_OK(oa_chain_get_use(chain, 0, 2, &use));
  CHECK(use.array == -1);
  CHECK_FAILS(oa_chain_get_use(chain, 1, 0, &use), OA_ERROR_ARGUMENT, "needs a call from 0 to 0");
  CHECK_OK(oa_chain_release(chain));
  leave(region);
  check_empty();
}

/* Captured calls use an array and a device scalar of another region. That region ends before the capture does. */
static void an_array_may_end_while_calls_that_use_it_are_captured(void) {
  static int64_t n = N;
  oa_array arrays[2], outer = vector(other, &n, OA_BY_USE);
  oa_chain *chain = NULL;
  oa_any *scalar = NULL;
  const float two = 2;
  set();
  oa_region *lender = lend(&outer, 1);
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_stage(outer.handle, &two, OA_F32, &scalar));
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(axpy(1, outer.handle, 1, arrays[1].handle, 1, N, 0));
  CHECK_OK(axpy(1, scalar, 1, arrays[1].handle, 1, 1, 0));
  leave(lender);
  CHECK_OK(oa_chain_end(chain));
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_STALE, "region of an array that the captured calls use has ended");
  CHECK_OK(oa_chain_release(chain));
  leave(region);
  check_empty();
}

static void a_chain_that_is_released_while_it_is_captured_ends_the_capture(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  set();
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(add(2, arrays));
  CHECK_OK(oa_chain_release(chain));
  CHECK_OK(add(1, arrays));
  leave(region);
  CHECK(y[3] == 4);
  check_empty();
}

static void a_captured_call_that_fails_spoils_the_chain(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  set();
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &chain));
  oa_operand operand = {
      .name = "x", .pointer = arrays[0].handle, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(N)};
  oa_call call = oa_call_of("test.fails", NULL, &operand, 1);
  CHECK_OK(oa_begin(&call));
  CHECK_FAILS(oa_chain_end(chain), OA_ERROR_CAPTURE, "a call of this thread has not ended");
  CHECK_FAILS(oa_chain_release(chain), OA_ERROR_CAPTURE, "has not ended");
  oa_end(&call, 1);
  CHECK_FAILS(oa_chain_end(chain), OA_ERROR_CAPTURE, "a captured call had failed");
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_STALE, "the chain was released");
  leave(region);
  check_empty();
}

static oa_chain *shared;
static oa_array *lent;
static bool has_streams;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

/* The host has no streams: threads that write one array order their calls themselves. */
static int in_order(int (*run)(void)) {
  if (!has_streams) pthread_mutex_lock(&order);
  const int status = run();
  if (!has_streams) pthread_mutex_unlock(&order);
  return status;
}

static int replay(void) { return oa_chain_replay(shared); }
static int call(void) { return add(1, lent); }

static void *replay_some(void *nothing) {
  for (int i = 0; i < TURNS; i++) CHECK_OK(in_order(replay));
  return nothing;
}

/* Makes calls in the same region, in order with the replays. */
static void *call_some(void *nothing) {
  for (int i = 0; i < TURNS; i++) CHECK_OK(in_order(call));
  return nothing;
}

/* Captures and replays chains of this thread's own region. */
static void *capture_some(void *nothing) {
  static int64_t n = N;
  oa_array own = vector(other, &n, OA_BY_USE);
  oa_region *region = lend(&own, 1);
  for (int i = 0; i < TURNS; i++) {
    oa_chain *chain = NULL;
    const float two = 2;
    const int64_t stride = sizeof two;
    CHECK_OK(oa_chain_begin(region, &chain));
    CHECK_OK(oa_pointer_fill(own.handle, &two, 1, &n, &stride));
    CHECK_OK(oa_chain_end(chain));
    CHECK_OK(oa_chain_replay(chain));
    CHECK_OK(oa_chain_release(chain));
  }
  leave(region);
  return nothing;
}

static void threads_replay_call_and_capture_at_once(void) {
  void *(*const work[THREADS])(void *) = {replay_some, call_some, capture_some};
  pthread_t threads[THREADS];
  oa_array arrays[2];
  set();
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &shared));
  CHECK_OK(add(2, arrays));
  CHECK_OK(oa_chain_end(shared));
  lent = arrays;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work[i], NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_OK(oa_chain_release(shared)); /* the last replay may still be under way */
  leave(region);
  CHECK(y[3] == 1 + 3 * 3 * TURNS && other[3] == 2);
  check_empty();
}

static void calls_of_another_thread_are_captured_too(void) {
  pthread_t thread;
  oa_array arrays[2];
  set();
  oa_region *region = lend_both(arrays);
  lent = arrays;
  CHECK_OK(oa_chain_begin(region, &shared));
  CHECK(pthread_create(&thread, NULL, call_some, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK_OK(oa_chain_end(shared));
  CHECK_OK(oa_chain_replay(shared));
  CHECK_OK(oa_chain_release(shared));
  leave(region);
  CHECK(y[3] == 1 + 3 * TURNS);
  check_empty();
}

/* -- functions that run on the thread of the replay -- */

typedef struct {
  const float *from;
  float *to;
  pthread_t *thread;
} doubling;

static bool refuses;

static int run_doubling(void *arguments) {
  const doubling *d = arguments;
  if (refuses) return 7;
  for (int i = 0; i < N; i++) d->to[i] = 2 * d->from[i];
  *d->thread = pthread_self();
  return 0;
}

static void count_one(void *count) { ++*(int *)count; }

/* Makes y = 2 x. *let_go counts the ends of the call's object, and *thread becomes the thread that computes. */
static int double_here(const oa_array arrays[2], int *let_go, pthread_t *thread) {
  oa_operand operands[] = {oa_operand_of("x", arrays[0].handle, OA_READ, OA_F32, OA_ELEMENTS(N)),
                           oa_operand_of("y", arrays[1].handle, OA_OVERWRITE, OA_F32, OA_ELEMENTS(N))};
  oa_call call = oa_call_of("double", NULL, operands, 2);
  const int status = oa_begin(&call);
  if (status) return status;
  doubling d = {operands[0].address, operands[1].address, thread};
  return oa_submit_here(&call, run_doubling, &d, sizeof d, let_go, count_one);
}

static void a_function_runs_on_the_thread_of_the_call_and_of_each_replay(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  pthread_t by;
  int ended = 0;
  set();
  oa_region *region = lend_both(arrays);
  CHECK_OK(axpy(1, arrays[1].handle, 1, arrays[0].handle, 1, N, 0)); /* x += 1; on sim, a worker does so later */
  by = (pthread_t)0;
  CHECK_OK(double_here(arrays, &ended, &by));
  CHECK(ended == 1 && pthread_equal(by, pthread_self()));
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(add(1, arrays));
  by = (pthread_t)0;
  CHECK_OK(double_here(arrays, &ended, &by));
  CHECK_OK(add(1, arrays));
  CHECK_OK(oa_chain_end(chain));
  CHECK(ended == 1 && !pthread_equal(by, pthread_self()));
  for (int i = 0; i < 2; i++) {
    by = (pthread_t)0;
    CHECK_OK(oa_chain_replay(chain));
    CHECK(pthread_equal(by, pthread_self()));
  }
  CHECK(ended == 1);
  CHECK_OK(oa_chain_release(chain));
  CHECK(ended == 2);
  leave(region);
  CHECK(x[3] == 4 && y[3] == 12);
  check_empty();
}

static void a_function_that_fails_fails_its_call_and_its_replay(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  pthread_t by;
  int ended = 0;
  set();
  oa_region *region = lend_both(arrays);
  refuses = true;
  CHECK_FAILS(double_here(arrays, &ended, &by), OA_ERROR_LIBRARY, "double: its function failed with status 7");
  CHECK(ended == 1);
  CHECK_FAILS(add(1, arrays), OA_ERROR_INVALID, "undefined");
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(double_here(arrays, &ended, &by));
  CHECK_OK(oa_chain_end(chain));
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_LIBRARY, "double: its function failed with status 7");
  CHECK_FAILS(add(1, arrays), OA_ERROR_INVALID, "undefined");
  refuses = false;
  CHECK_OK(oa_chain_replay(chain));
  refuses = true;
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_LIBRARY, "double: its function failed with status 7");
  refuses = false;
  CHECK(ended == 1);
  CHECK_OK(oa_chain_release(chain));
  CHECK(ended == 2);
  CHECK_OK(double_here(arrays, &ended, &by));
  leave(region);
  CHECK(y[3] == 6);
  check_empty();
}

/* -- objects that are aborted, such as communicators whose peers have died -- */

static atomic_int gate; /* the captured call runs when this is 1 */
static int holds;

static void run_behind_gate(void *data) {
  while (!atomic_load(&gate)) usleep(100);
  run_axpy(data);
}

static void let_go(void *object) { holds -= object == (void *)&holds; }

/* Captures y += x, which waits for the gate and uses the object `holds`. */
static int add_behind_gate(const oa_array arrays[2]) {
  oa_operand operands[] = {{.name = "x", .pointer = arrays[0].handle, .access = OA_READ, .dtype = OA_F32},
                           {.name = "y", .pointer = arrays[1].handle, .access = OA_READ_WRITE, .dtype = OA_F32}};
  for (int i = 0; i < 2; i++) operands[i].extent = (oa_extent)OA_VECTOR(N, 1, "n", "1");
  oa_call call = {.function = "test.add", .operands = operands, .count = 2};
  const int status = oa_begin(&call);
  if (status) return status;
  bool is_new;
  CHECK_OK(oa_capture_hold(oa_capture_of(call.region, call.stream), &holds, let_go, &is_new));
  holds += is_new;
  struct axpy p = {N, 1, 1, 1, operands[0].address, operands[1].address, 0};
  return oa_submit(&call, run_behind_gate, &p, sizeof p);
}

typedef struct reader {
  enum { READ, UPDATE, LEAVE } kind;
  oa_region *region;
  oa_array *array;
  int status;
} reader;

static void *read_results(void *argument) {
  reader *r = argument;
  float values[N];
  if (r->kind == READ) r->status = oa_pointer_read(r->array->handle, values, 0, NULL, NULL);
  if (r->kind == UPDATE) r->status = oa_update_from(r->array, -1);
  if (r->kind == LEAVE) {
    CHECK_OK(oa_region_finish(r->region, OA_COMMIT, NULL));
    r->status = oa_region_wait(r->region);
  }
  return NULL;
}

/* Frees the core's lock for a moment. */
static void wait_briefly(void) {
  const struct timespec until = oa_time_in(1);
  oa_wait_change_until(&until);
}

/* Promise T77. The reader usually waits for the replay when the object is aborted. */
static void an_aborted_object_makes_results_of_running_replays_undefined(int kind) {
  pthread_t thread;
  oa_array arrays[2];
  oa_chain *chain = NULL;
  bool any = false;
  set();
  atomic_store(&gate, 0);
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(add_behind_gate(arrays));
  oa_lock();
  CHECK_FAILS(oa_captures_abort("test.abort", "object", &holds, &any), OA_ERROR_CAPTURE, "are being captured");
  oa_unlock();
  CHECK_OK(oa_chain_end(chain));
  CHECK_OK(oa_chain_replay(chain));
  reader r = {.kind = kind, .region = region, .array = &arrays[1]};
  CHECK(pthread_create(&thread, NULL, read_results, &r) == 0);
  usleep(20000);
  oa_lock();
  CHECK_OK(oa_captures_abort("test.abort", "object", &holds, &any));
  oa_unlock();
  CHECK(any && holds == 1);
  oa_lock();
  CHECK(kind == LEAVE || (!oa_captures_end(&holds) && oa_captures_run(&holds))); /* neither waits */
  oa_unlock();
  atomic_store(&gate, 1); /* the library stops the call */
  oa_lock();
  while (!oa_captures_end(&holds)) wait_briefly(); /* the replay may still run */
  CHECK(!oa_captures_run(&holds));
  oa_unlock();
  CHECK(holds == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(r.status == OA_ERROR_INVALID);
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_STALE, kind == LEAVE ? "region has ended" : "object of the captured");
  if (kind != LEAVE) {
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "argument 2 was left undefined");
  }
  CHECK(y[3] == 1 && x[3] == 3);
  CHECK_OK(oa_chain_release(chain));
  check_empty();
}

/* Promise T77. */
static void an_aborted_object_keeps_results_of_replays_that_are_over(void) {
  oa_array arrays[2];
  oa_chain *chain = NULL;
  bool any = false;
  float values[N];
  set();
  atomic_store(&gate, 1);
  oa_region *region = lend_both(arrays);
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(add_behind_gate(arrays));
  CHECK_OK(oa_chain_end(chain));
  CHECK_OK(oa_chain_replay(chain));
  CHECK_OK(oa_pointer_read(arrays[1].handle, values, 0, NULL, NULL));
  oa_lock();
  CHECK_OK(oa_captures_abort("test.abort", "object", &holds, &any));
  CHECK(oa_captures_end(&holds));
  oa_unlock();
  CHECK(any && holds == 0);
  CHECK_FAILS(oa_chain_replay(chain), OA_ERROR_STALE, "object of the captured calls was aborted");
  leave(region);
  CHECK(y[3] == 1 + 3);
  CHECK_OK(oa_chain_release(chain));
  check_empty();
}

int main(void) {
  static const char *const names[] = {"host", "sim:0"};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    has_streams = i == 1;
    captured_calls_run_at_each_replay();
    a_chain_of_device_scalars_alone_runs();
    captured_calls_run_until_an_element_is_set();
    an_array_may_end_while_calls_that_use_it_are_captured();
    a_chain_that_is_released_while_it_is_captured_ends_the_capture();
    a_captured_call_that_fails_spoils_the_chain();
    threads_replay_call_and_capture_at_once();
    calls_of_another_thread_are_captured_too();
    a_function_runs_on_the_thread_of_the_call_and_of_each_replay();
    a_function_that_fails_fails_its_call_and_its_replay();
    for (int kind = READ; kind <= LEAVE && has_streams; kind++)
      an_aborted_object_makes_results_of_running_replays_undefined(kind);
    an_aborted_object_keeps_results_of_replays_that_are_over();
  }
  return failures();
}
