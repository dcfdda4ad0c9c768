/* Objects that are aborted while calls of them run, such as communicators whose peers have died: what such calls write,
 * and what later calls compute from it, never counts as valid. */
#include "call/call.h"
#include "one_device.h"
#include "region/aborted.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 64 };
static float x[N], y[N], z[N], w[N];
static atomic_int gate; /* calls of objects run when this is 1 */

static void set(void) {
  for (int i = 0; i < N; i++) {
    x[i] = (float)i;
    y[i] = z[i] = w[i] = 1;
  }
  atomic_store(&gate, 0);
}

static oa_region *lend(oa_array *arrays, float *const *of, int count) {
  static int64_t n = N;
  oa_region *region = NULL;
  for (int i = 0; i < count; i++) arrays[i] = vector(of[i], &n, OA_BY_USE);
  CHECK_OK(oa_region_enter(device, NULL, arrays, count, &region));
  return region;
}

static int add(const oa_array *from, const oa_array *to) { return axpy(1, from->handle, 1, to->handle, 1, N, 0); }

static void run_behind_gate(void *data) {
  while (!atomic_load(&gate)) usleep(100);
  run_axpy(data);
}

/* Makes the call to += from of an object, which waits for the gate. `aborts`: the object is aborted before the call
 * ends. */
static int add_of(oa_abortable *object, const oa_array *from, const oa_array *to, bool aborts) {
  oa_operand operands[] = {{.name = "from", .pointer = from->handle, .access = OA_READ, .dtype = OA_F32},
                           {.name = "to", .pointer = to->handle, .access = OA_READ_WRITE, .dtype = OA_F32}};
  for (int i = 0; i < 2; i++) operands[i].extent = (oa_extent)OA_VECTOR(N, 1, "n", "1");
  oa_call call = {.function = "test.add", .operands = operands, .count = 2};
  const int status = oa_begin(&call);
  if (status) return status;
  oa_device *at = oa_device_of(device);
  struct axpy p = {N, 1, 1, 1, operands[0].address, operands[1].address, 0};
  CHECK_OK(at->backend->submit(at, ((oa_stream *)call.stream)->native, run_behind_gate, &p, sizeof p));
  if (aborts) atomic_store(object, "object");
  return oa_end_of(&call, 0, object);
}

static void abort_object(oa_abortable *object) {
  oa_lock();
  atomic_store(object, "object");
  oa_object_spoils(oa_device_of(device), object);
  oa_unlock();
  atomic_store(&gate, 1); /* the library stops its calls */
}

static bool is_undefined(const oa_array *array) {
  float values[N];
  const int status = oa_pointer_read(array->handle, values, 0, NULL, NULL);
  CHECK(status == OA_OK || status == OA_ERROR_INVALID);
  return status;
}

/* Promise T77. */
static void an_abort_makes_results_of_calls_and_of_later_calls_undefined(void) {
  oa_array arrays[4], inner[2];
  oa_abortable object = NULL;
  set();
  oa_region *region = lend(arrays, (float *const[]){x, y, z, w}, 4);
  CHECK_OK(add(&arrays[0], &arrays[3])); /* before the object's call */
  CHECK_OK(add_of(&object, &arrays[0], &arrays[1], false));
  oa_region *nested = lend(inner, (float *const[]){y, z}, 2); /* has another stream */
  CHECK_OK(add(&inner[0], &inner[1]));
  abort_object(&object);
  CHECK(is_undefined(&arrays[1]) && is_undefined(&arrays[2]));
  CHECK(!is_undefined(&arrays[0]) && !is_undefined(&arrays[3]));
  CHECK_FAILS(add(&inner[1], &arrays[3]), OA_ERROR_INVALID, "undefined");
  CHECK_OK(oa_region_finish(nested, OA_COMMIT, NULL));
  const int left = oa_region_wait(nested);
  CHECK(left == OA_OK || left == OA_ERROR_INVALID);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "was left undefined");
  CHECK(y[3] == 1 && z[3] == 1 && w[3] == 1 + 3);
  check_empty();
}

/* Promise T77. */
static void an_abort_keeps_results_that_were_waited_for_and_those_of_other_objects(void) {
  oa_array arrays[3], others[2];
  oa_abortable object = NULL, another = NULL;
  set();
  atomic_store(&gate, 1);
  oa_region *region = lend(arrays, (float *const[]){x, y, z}, 3);
  CHECK_OK(add_of(&object, &arrays[0], &arrays[1], false));
  CHECK(!is_undefined(&arrays[1])); /* waits */
  CHECK_OK(add_of(&another, &arrays[0], &arrays[2], false));
  oa_region *unrelated = lend(others, (float *const[]){x, w}, 2);
  CHECK_OK(add(&others[0], &others[1]));
  abort_object(&object);
  CHECK(!is_undefined(&arrays[1]) && !is_undefined(&arrays[2]) && !is_undefined(&others[1]));
  leave(unrelated);
  leave(region);
  CHECK(y[3] == 1 + 3 && z[3] == 1 + 3 && w[3] == 1 + 3);
  check_empty();
}

/* Promise T77. */
static void a_call_that_ends_after_the_abort_fails(void) {
  oa_array arrays[2];
  oa_abortable object = NULL;
  set();
  atomic_store(&gate, 1);
  oa_region *region = lend(arrays, (float *const[]){x, y}, 2);
  CHECK_FAILS(add_of(&object, &arrays[0], &arrays[1], true), OA_ERROR_STALE, "test.add: object was aborted meanwhile");
  CHECK(is_undefined(&arrays[1]));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "was left undefined");
  CHECK(y[3] == 1);
  check_empty();
}

/* Promise T77. A stream notes a few objects each, and the rest together. */
static void an_abort_of_one_object_among_many_on_a_stream_is_noticed(void) {
  enum { OBJECTS = 9 };
  for (int aborted = 0; aborted < OBJECTS; aborted++) {
    oa_array arrays[2];
    oa_abortable objects[OBJECTS] = {NULL};
    set();
    oa_region *region = lend(arrays, (float *const[]){x, y}, 2);
    for (int i = 0; i < OBJECTS; i++) CHECK_OK(add_of(&objects[i], &arrays[0], &arrays[1], false));
    abort_object(&objects[aborted]);
    CHECK(is_undefined(&arrays[1]));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "was left undefined");
    CHECK(y[3] == 1);
    check_empty();
  }
}

enum { THREADS = 4, CALLS = 1000 };
static atomic_int call_count, failed_calls;

/* Makes many calls without a wait, until one fails. */
static void *make_calls(void *data) {
  const oa_array *arrays = data;
  for (int i = 0; i < CALLS; i++) {
    const int status = add(&arrays[0], &arrays[1]);
    CHECK(status == OA_OK || status == OA_ERROR_INVALID);
    if (status) {
      atomic_fetch_add(&failed_calls, 1);
      break;
    }
    atomic_fetch_add(&call_count, 1);
  }
  return NULL;
}

/* Promise T77. Threads that get ahead of a call which waits for other ranks wait without the lock before a driver's
 * queue is full, so that the call can be aborted. */
static void threads_do_not_fill_a_queue_behind_a_call_that_waits(void) {
  oa_array arrays[2];
  oa_abortable object = NULL;
  pthread_t threads[THREADS];
  set();
  oa_region *region = lend(arrays, (float *const[]){x, y}, 2);
  oa_lock();
  oa_device_of(device)->abortable = true; /* as a call of a communicator does */
  oa_unlock();
  CHECK_OK(add_of(&object, &arrays[0], &arrays[1], false));
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, make_calls, arrays));
  for (int before = -1; before < atomic_load(&call_count); usleep(200000)) before = atomic_load(&call_count);
  CHECK(atomic_load(&call_count) >= 64 && atomic_load(&call_count) <= 2 * 64 + THREADS);
  abort_object(&object);
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
  CHECK(atomic_load(&failed_calls) == THREADS);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_INVALID, "was left undefined");
  CHECK(y[3] == 1);
  check_empty();
}

int main(void) {
  CHECK_OK(oa_device_open("sim:0", &device));
  an_abort_makes_results_of_calls_and_of_later_calls_undefined();
  an_abort_keeps_results_that_were_waited_for_and_those_of_other_objects();
  a_call_that_ends_after_the_abort_fails();
  an_abort_of_one_object_among_many_on_a_stream_is_noticed();
  threads_do_not_fill_a_queue_behind_a_call_that_waits();
  return failures();
}
