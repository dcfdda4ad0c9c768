/* Arrays shared by devices, regions and threads: whatever the order of events, no result is lost, and no byte that
 * never came up goes down. */
#include "region/mapping.h"
#include "two_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* -- two devices -- */

/* Promise T50. */
static void a_device_reads_what_another_is_still_copying_down(bool waited_first) {
  float x[8] = {0}, element = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *leaving = enter(device_a, &first, 1);
  configure(device_a, 0, SLOW);
  CHECK_OK(add(first.handle, n, 5));
  CHECK_OK(oa_region_finish(leaving, OA_COMMIT, NULL));
  oa_region *region = enter(device_b, &second, 1);
  if (!waited_first) {
    CHECK_OK(peek(second.handle, &element));
    CHECK(element == 5);
  }
  CHECK_OK(add(second.handle, n, 1)); /* the first device has no bytes of the array any more */
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 6);
  if (waited_first) CHECK_OK(oa_region_wait(leaving));
  leave(region, OA_COMMIT);
  if (!waited_first) CHECK_OK(oa_region_wait(leaving));
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

/* Promise T50. */
static void a_device_that_was_left_has_no_old_bytes_for_its_next_region(void) {
  float x[8] = {0}, element = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first, third = first;
  oa_region *left = enter(device_a, &first, 1);
  CHECK_OK(add(first.handle, n, 5));
  CHECK_OK(oa_region_finish(left, OA_COMMIT, NULL));
  oa_region *region = enter(device_b, &second, 1);
  CHECK_OK(add(second.handle, n, 1));
  leave(region, OA_COMMIT);
  region = enter(device_a, &third, 1); /* the first region has not been waited for */
  CHECK_OK(peek(third.handle, &element));
  CHECK(element == 6);
  CHECK_OK(oa_region_wait(left));
  leave(region, OA_COMMIT);
  CHECK(x[0] == 6);
  check_empty();
}

/* Promise T50. */
static void what_a_call_is_writing_is_on_no_other_device(void) {
  float x[8] = {0}, element = -1;
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *writer = enter(device_a, &first, 1), *refused = NULL;
  oa_operand p = operand(first.handle, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  CHECK_FAILS(oa_region_enter(device_b, NULL, &second, 1, &refused), OA_ERROR_DIRECTION, "argument 1 is present on");
  struct change c = {p.address, n, 1, 1, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  leave(writer, OA_COMMIT);
  oa_region *region = enter(device_b, &second, 1);
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 5);
  leave(region, OA_COMMIT);
  check_empty();
}

/* Promise T50. */
static void a_call_that_writes_waits_for_no_reader_it_cannot_see(void) {
  float x[8] = {0};
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
  CHECK_FAILS(add(first.handle, n, 5), OA_ERROR_DIRECTION, "is present on");
  leave(b, OA_COMMIT);
  CHECK_OK(add(first.handle, n, 5));
  leave(a, OA_COMMIT);
  CHECK(x[3] == 5);
  check_empty();
}

/* -- calls in flight -- */

static void *run_address_slowly(void *data) {
  oa_any *const *pointer = data;
  uint64_t address;
  static int status;
  status = oa_address(*pointer, &address);
  return &status;
}

/* Promise T50. */
static void an_address_on_its_way_is_on_no_other_device(void) {
  float x[8] = {0};
  const int64_t n = 8;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = NULL;
  configure(device_a, 0, SLOW);
  pthread_t thread;
  void *address;
  pthread_create(&thread, NULL, run_address_slowly, &first.handle);
  usleep(SLOW / 4);
  const int entered = oa_region_enter(device_b, NULL, &second, 1, &b);
  pthread_join(thread, &address);
  /* One of the two calls is refused. */
  CHECK((entered == OA_ERROR_DIRECTION) != (*(int *)address == OA_ERROR_DIRECTION));
  if (b) leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  check_empty();
}

struct beside {
  oa_any *pointer, *other;
  float element;
  uint64_t address;
};
static void *run_peek_beside(void *data) {
  struct beside *b = data;
  CHECK_OK(peek(b->pointer, &b->element));
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
  oa_region *region = enter(device_a, &lent, 1);
  oa_operand p = operand(lent.handle, OA_OVERWRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  struct beside b = {.pointer = lent.handle, .element = 5};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, &b) == 0);
  usleep(5000); /* the other thread has begun, or waits for the call */
  struct change c = {p.address, n, 1, 0, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(b.element == 5);
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == 5);
  check_empty();
}

static void *run_set_beside(void *data) {
  const struct beside *b = data;
  CHECK_OK(change(b->other, 4, 2, 0, 7));
  return run_peek_beside(data);
}

/* Two columns of a matrix share one mapping. A thread writes the other column, and then reads this column, which a call
 * is still writing. */
static void a_first_write_in_flight_is_not_overtaken_by_a_thread_that_writes_the_other_column(void) {
  float x[8] = {0};
  const int64_t shape[] = {4, 1}, strides[] = {2 * item, item};
  const oa_array column = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_array lent[] = {column, column};
  lent[1].data = x + 1;
  oa_region *region = enter(device_a, lent, 2);
  CHECK_OK(change(lent[1].handle, 4, 2, 0, 6));
  oa_operand p = operand(lent[0].handle, OA_OVERWRITE, 4, 2);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  struct beside b = {.pointer = lent[0].handle, .other = lent[1].handle, .element = -1};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_set_beside, &b) == 0);
  usleep(5000); /* the other thread has begun to read, or waits for the call */
  struct change c = {p.address, 4, 2, 0, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(b.element == 5);
  leave(region, OA_COMMIT);
  for (int i = 0; i < 8; i++) CHECK(x[i] == (i % 2 ? 7 : 5));
  check_empty();
}

/* -- sharers -- */

/* Promise T54. */
static void what_a_region_committed_comes_down_whatever_a_later_one_does(int direction) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  oa_array first = vector(x, &n, OA_BY_USE), second = vector(x, &n, direction);
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_a, &second, 1);
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
  s->region = enter(device_a, &s->array, 1);
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
  oa_region *region = enter(device_a, &own, 1); /* this region is not nested in the other thread's region */
  CHECK_OK(add(own.handle, n, 5));
  leave(region, OA_COMMIT);
  leave(older.region, OA_DISCARD);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

static void a_failing_outer_region_discards_what_inner_ones_wrote(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  int lost = 0;
  oa_array outer = vector(x, &n, OA_BY_USE), middle = outer, inner = outer;
  oa_region *a = enter(device_a, &outer, 1), *b = enter(device_a, &middle, 1), *c = enter(device_a, &inner, 1);
  CHECK_OK(add(inner.handle, n, 5));
  leave(c, OA_COMMIT);
  CHECK_OK(oa_region_finish(b, OA_DISCARD, &lost)); /* discards the results of the inner region, too */
  CHECK(lost == 1 && strstr(oa_last_warning(), "argument 1 was written on the device and discarded"));
  CHECK_OK(oa_region_wait(b));
  CHECK_FAILS(peek(outer.handle, &element), OA_ERROR_INVALID, "left undefined");
  CHECK_FAILS(oa_region_finish(a, OA_COMMIT, NULL) ? OA_ERROR_INVALID : oa_region_wait(a), OA_ERROR_INVALID,
              "undefined");
  for (int i = 0; i < n; i++) CHECK(x[i] == 1);
  check_empty();
}

static void a_partial_write_in_flight_heals_nothing_that_fails_meanwhile(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_a, &second, 1);
  CHECK_OK(add(first.handle, n, 5));
  oa_operand p = operand(second.handle, OA_OVERWRITE, 2, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  leave(a, OA_DISCARD);
  struct change c = {p.address, 2, 1, 0, 9};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  CHECK_FAILS(peek(second.handle, &element), OA_ERROR_INVALID, "left undefined");
  CHECK_OK(set(second.handle, n, 3)); /* to overwrite the whole array makes it valid */
  CHECK_OK(peek(second.handle, &element));
  leave(b, OA_COMMIT);
  CHECK(x[0] == 3 && x[3] == 3);
  check_empty();
}

static void an_updated_array_is_not_reported_as_discarded(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  int lost = -1;
  oa_array lent = vector(x, &n, OA_BY_USE), again = lent;
  oa_region *region = enter(device_a, &lent, 1);
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_update_from(&again, -1));
  CHECK_OK(oa_region_finish(region, OA_DISCARD, &lost));
  CHECK(lost == 0);
  CHECK_OK(oa_region_wait(region));
  CHECK(x[0] == 6);
  check_empty();
}

struct update {
  oa_array array;
  atomic_int is_over;
};
static void *run_update(void *data) {
  struct update *update = data;
  CHECK_OK(oa_update_from(&update->array, -1));
  atomic_store(&update->is_over, 1);
  return NULL;
}

/* Starts an update on another thread. Returns once the update has seized the arrays, or is over. */
static pthread_t start_update(struct update *update) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, update) == 0);
  for (bool begun = false; !begun && !atomic_load(&update->is_over); usleep(100)) {
    oa_lock();
    for (const oa_mapping *m = oa_mappings; m; m = m->next) begun |= m->moving;
    oa_unlock();
  }
  return thread;
}

static void an_array_that_is_being_updated_is_not_discarded(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  int lost = -1;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  struct update again = {.array = first};
  oa_region *sharer = enter(device_a, &first, 1), *region = enter(device_a, &second, 1);
  CHECK_OK(add(second.handle, n, 5));
  configure(device_a, 0, SLOW);
  const pthread_t thread = start_update(&again); /* the update is bringing the results down */
  CHECK_OK(oa_region_finish(region, OA_DISCARD, &lost));
  CHECK(lost == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(oa_region_wait(region));
  CHECK_OK(peek(first.handle, &element));
  CHECK(element == 6);
  leave(sharer, OA_COMMIT);
  CHECK(x[0] == 6);
  check_empty();
}

/* -- regions that could not be entered -- */

static struct {
  oa_region *region; /* a region of another thread, which is left while memory is allocated */
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
  oa_device *device = oa_device_of(device_a);
  const oa_backend *backend = device->backend;
  oa_backend failing = *backend;
  failing.allocate = allocate_nothing;
  meanwhile.region = enter(device_a, &lent, 1);
  meanwhile.outcome = OA_COMMIT;
  CHECK_OK(add(lent.handle, n, 5));
  CHECK_OK(oa_device_trim(device_a)); /* so that no spare memory of earlier regions is taken */
  device->backend = &failing;
  CHECK_FAILS(oa_region_enter(device_a, NULL, more, 2, &refused), OA_ERROR_MEMORY, "argument 2");
  device->backend = backend;
  CHECK(meanwhile.region == NULL);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

static void *run_add_in_a_region(void *data) {
  struct sharer *s = data;
  run_enter(s);
  if (!s->region) return NULL;
  CHECK_OK(add(s->array.handle, 4, 5));
  leave(s->region, OA_COMMIT);
  return NULL;
}

static pthread_t beside;
static struct sharer *sharer_beside; /* enters on a separate thread while memory is allocated */

static int fail_beside_a_sharer(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  (void)stream;
  (void)nbytes;
  (void)address;
  device->backend = oa_backend_named(device->backend->name); /* restores the backend for the other thread */
  CHECK(pthread_create(&beside, NULL, run_add_in_a_region, sharer_beside) == 0);
  usleep(5000); /* by now, the other thread has entered its region, or waits for this region */
  /* The status is not OA_ERROR_MEMORY, because the core would then try again. */
  return oa_fail(OA_ERROR_BACKEND, "%s: no memory", device->name);
}

static void a_sharer_of_an_array_inherits_no_other_arrays_failure(void) {
  static float z[1 << 22];
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4, many = 1 << 22;
  struct sharer s = {.array = vector(x, &n, OA_BY_USE)};
  oa_array arrays[] = {vector(z, &many, OA_BY_USE), vector(x, &n, OA_BY_USE)};
  oa_region *refused = NULL;
  oa_device *device = oa_device_of(device_a);
  oa_backend failing = *device->backend;
  failing.allocate = fail_beside_a_sharer;
  sharer_beside = &s;
  CHECK_OK(oa_device_trim(device_a));
  device->backend = &failing;
  CHECK_FAILS(oa_region_enter(device_a, NULL, arrays, 2, &refused), OA_ERROR_BACKEND, "argument 1");
  CHECK(pthread_join(beside, NULL) == 0);
  for (int i = 0; i < n; i++) CHECK(x[i] == 6);
  check_empty();
}

/* -- failed calls beside others -- */

static void a_call_that_began_before_another_failed_heals_nothing(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(device_a, &lent, 1);
  oa_operand first = operand(lent.handle, OA_READ_WRITE, 1, 1), second = operand(lent.handle, OA_READ_WRITE, n, 1);
  oa_call good = {.function = "test.good", .operands = &first, .count = 1};
  oa_call bad = {.function = "test.bad", .operands = &second, .count = 1};
  CHECK_OK(oa_begin(&good));
  CHECK_OK(oa_begin(&bad));
  CHECK_OK(oa_end(&bad, -1));
  CHECK_OK(oa_end(&good, 0));
  CHECK_FAILS(peek(lent.handle, &element), OA_ERROR_INVALID, "left undefined");
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
  oa_region *region = enter(device_a, &own, 1);
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

/* -- regions that were finished, and are not waited for yet -- */

static void a_region_that_was_left_narrows_no_rights(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  oa_array read = vector(x, &n, OA_IN), written = vector(x, &n, OA_INOUT), filled = vector(x, &n, OA_OUT),
           again = filled;
  int unwritten = 0;
  oa_region *a = enter(device_a, &read, 1);
  CHECK_OK(peek(read.handle, &element));
  CHECK_OK(oa_region_finish(a, OA_COMMIT, NULL));
  oa_region *b = enter(device_a, &written, 1);
  CHECK_OK(add(written.handle, n, 5));
  CHECK_OK(oa_region_finish(b, OA_COMMIT, NULL));
  oa_region *c = enter(device_a, &filled, 1);
  CHECK_FAILS(peek(filled.handle, &element), OA_ERROR_DIRECTION, "read before it is written");
  CHECK_OK(set(filled.handle, n, 7));
  CHECK_OK(oa_region_finish(c, OA_COMMIT, NULL));
  oa_region *d = enter(device_a, &again, 1);
  CHECK_OK(oa_region_finish(d, OA_COMMIT, &unwritten));
  CHECK(unwritten == 1);
  oa_region *const regions[] = {d, b, a, c};
  for (int i = 0; i < 4; i++) CHECK_OK(oa_region_wait(regions[i]));
  for (int i = 0; i < n; i++) CHECK(x[i] == 7);
  check_empty();
}

/* -- a thread that would wait for itself -- */

enum { LIMIT = 300 }; /* seconds; then an alarm ends the process */

static oa_call begun(oa_operand *p, const char *function) {
  oa_call call = {.function = function, .operands = p, .count = 1};
  CHECK_OK(oa_begin(&call));
  return call;
}

static void refuse_all_that_waits_for_an_open_call(oa_region *region, const oa_array *array) {
  const char *text = "a call of this thread is still open and holds argument 1; end it first (oa_end or oa_submit)";
  oa_writing *writing = NULL;
  for (int outcome = OA_COMMIT; outcome <= OA_KEEP; outcome++)
    CHECK_FAILS(oa_region_finish(region, outcome, NULL), OA_ERROR_ARGUMENT, text);
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_ARGUMENT, "still open");
  CHECK_FAILS(oa_update_from(array, -1), OA_ERROR_ARGUMENT, text);
  CHECK_FAILS(oa_update_to(array, -1), OA_ERROR_ARGUMENT, text);
  CHECK_FAILS(oa_update_check(array, -1), OA_ERROR_ARGUMENT, text);
  CHECK_FAILS(oa_update_begin(array, -1, &writing), OA_ERROR_ARGUMENT, text);
  CHECK(!writing);
  CHECK_OK(oa_release(array, -1));
  CHECK_OK(oa_region_synchronize(region));
}

static void a_region_or_array_in_an_open_call_of_the_thread_is_refused(int access) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  oa_array array = vector(x, &n, OA_INOUT);
  oa_region *region = enter(device_a, &array, 1);
  oa_operand p = operand(array.handle, access, n, 1);
  oa_call call = begun(&p, "test.open");
  refuse_all_that_waits_for_an_open_call(region, &array);
  CHECK_OK(oa_end(&call, 0));
  CHECK_OK(set(array.handle, n, 3)); /* after the refusals, calls, updates and leaving still work */
  CHECK_OK(oa_update_from(&array, -1));
  CHECK(x[3] == 3);
  CHECK_OK(add(array.handle, n, 1));
  CHECK_OK(peek(array.handle, &element));
  CHECK(element == 4);
  leave(region, OA_COMMIT);
  CHECK(x[0] == 4);
  check_empty();
}

static void a_slice_in_an_open_call_keeps_its_region_open(bool is_destroyed) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  oa_array array = vector(x, &n, OA_INOUT);
  oa_any *slice;
  oa_region *region = enter(device_a, &array, 1);
  const int64_t two = 2;
  CHECK_OK(oa_pointer_view(array.handle, item, 1, &two, &item, &slice));
  oa_operand p = operand(slice, OA_READ, 2, 1);
  oa_call call = begun(&p, "test.slice");
  if (is_destroyed) CHECK_OK(oa_pointer_release(slice));
  CHECK_FAILS(oa_region_finish(region, OA_COMMIT, NULL), OA_ERROR_ARGUMENT, "end it first");
  CHECK_FAILS(oa_update_from(&array, -1), OA_ERROR_ARGUMENT, "end it first");
  CHECK_OK(oa_end(&call, 0));
  leave(region, OA_COMMIT);
  check_empty();
}

struct open_elsewhere {
  oa_any *pointer;
  atomic_int is_open;
};
static void *run_open_slowly(void *data) {
  struct open_elsewhere *open = data;
  oa_operand p = operand(open->pointer, OA_READ, 4, 1);
  oa_call call = begun(&p, "test.elsewhere");
  atomic_store(&open->is_open, 1);
  usleep(20000);
  CHECK_OK(oa_end(&call, 0));
  return NULL;
}

/* Leaving waits for an open call of another thread, and is refused for an open call of this thread, even if both calls
 * hold one pointer. */
static void an_open_call_is_found_among_those_of_other_threads(bool is_own) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  oa_array array = vector(x, &n, OA_INOUT);
  pthread_t thread;
  oa_region *region = enter(device_a, &array, 1);
  CHECK_OK(set(array.handle, n, 2));
  oa_operand p = operand(array.handle, OA_READ, n, 1);
  struct open_elsewhere open = {.pointer = array.handle};
  oa_call call = {.open = 0};
  if (is_own) call = begun(&p, "test.own");
  CHECK(pthread_create(&thread, NULL, run_open_slowly, &open) == 0);
  while (!atomic_load(&open.is_open)) usleep(100);
  if (is_own) CHECK_FAILS(oa_update_from(&array, -1), OA_ERROR_ARGUMENT, "end it first");
  if (is_own) CHECK_FAILS(oa_region_finish(region, OA_COMMIT, NULL), OA_ERROR_ARGUMENT, "end it first");
  if (is_own) CHECK_OK(oa_end(&call, 0));
  CHECK_OK(oa_update_from(&array, -1));
  CHECK(x[0] == 2);
  leave(region, OA_COMMIT);
  CHECK(pthread_join(thread, NULL) == 0);
  check_empty();
}

static void *run_update_of(void *data) {
  CHECK_OK(oa_update_from(data, -1));
  return NULL;
}

/* The stacks of three threads are at equal distances, and so are the numbers of the threads. */
static void calls_of_two_threads_are_not_taken_for_those_of_the_one_between_them(void) {
  enum { STACK = 1 << 20 };
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  oa_array array = vector(x, &n, OA_INOUT);
  oa_region *region = enter(device_a, &array, 1);
  CHECK_OK(set(array.handle, n, 2));
  struct open_elsewhere open[3] = {{.pointer = array.handle}, {.pointer = NULL}, {.pointer = array.handle}};
  unsigned char *stacks = aligned_alloc(4096, 3 * (size_t)STACK);
  CHECK(stacks);
  pthread_t threads[3];
  static const int order[] = {0, 2, 1};
  for (int i = 0; i < 3; i++) {
    const int at = order[i];
    pthread_attr_t attributes;
    CHECK(!pthread_attr_init(&attributes) && !pthread_attr_setstack(&attributes, stacks + (size_t)at * STACK, STACK));
    void *(*run)(void *) = at == 1 ? run_update_of : run_open_slowly;
    CHECK(!pthread_create(&threads[at], &attributes, run, at == 1 ? (void *)&array : &open[at]));
    while (at != 1 && !atomic_load(&open[at].is_open)) usleep(100);
    CHECK(!pthread_attr_destroy(&attributes));
  }
  for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(x[0] == 2);
  free(stacks);
  leave(region, OA_COMMIT);
  check_empty();
}

/* Another thread's update waits for this thread's call: to begin, leave or update now would wait for that update. */
static void a_thread_waits_for_no_thread_that_waits_for_its_open_call(void) {
  float x[4] = {1, 1, 1, 1}, element = -1;
  const int64_t n = 4;
  oa_array array = vector(x, &n, OA_INOUT), again = array;
  struct update update = {.array = array};
  oa_region *region = enter(device_a, &array, 1), *inner = enter(device_a, &again, 1);
  CHECK_OK(set(array.handle, n, 2));
  oa_operand p = operand(array.handle, OA_READ, n, 1);
  oa_call call = begun(&p, "test.open");
  const pthread_t thread = start_update(&update);
  CHECK_FAILS(peek(array.handle, &element), OA_ERROR_ARGUMENT, "test.peek: a call of this thread is still open");
  CHECK_FAILS(oa_region_finish(inner, OA_COMMIT, NULL), OA_ERROR_ARGUMENT, "end it first");
  CHECK_FAILS(oa_update_to(&array, -1), OA_ERROR_ARGUMENT, "end it first");
  CHECK_OK(oa_end(&call, 0));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(x[0] == 2);
  leave(inner, OA_COMMIT);
  leave(region, OA_COMMIT);
  check_empty();
}

static void refuse_to_wait_for_oneself(void) {
  alarm(LIMIT);
  a_region_or_array_in_an_open_call_of_the_thread_is_refused(OA_READ);
  a_region_or_array_in_an_open_call_of_the_thread_is_refused(OA_READ_WRITE);
  a_region_or_array_in_an_open_call_of_the_thread_is_refused(OA_OVERWRITE);
  a_slice_in_an_open_call_keeps_its_region_open(false);
  a_slice_in_an_open_call_keeps_its_region_open(true);
  an_open_call_is_found_among_those_of_other_threads(false);
  an_open_call_is_found_among_those_of_other_threads(true);
  calls_of_two_threads_are_not_taken_for_those_of_the_one_between_them();
  a_thread_waits_for_no_thread_that_waits_for_its_open_call();
  alarm(0);
}

int main(void) {
  for (int i = 0; open_pair(i); i++) {
    a_device_reads_what_another_is_still_copying_down(false);
    a_device_reads_what_another_is_still_copying_down(true);
    a_device_that_was_left_has_no_old_bytes_for_its_next_region();
    what_a_call_is_writing_is_on_no_other_device();
    a_call_that_writes_waits_for_no_reader_it_cannot_see();
    an_address_on_its_way_is_on_no_other_device();
    a_first_write_in_flight_is_neither_overtaken_nor_cleared(OA_BY_USE, run_peek_beside);
    a_first_write_in_flight_is_neither_overtaken_nor_cleared(OA_OUT, run_address_beside);
    a_first_write_in_flight_is_not_overtaken_by_a_thread_that_writes_the_other_column();
    what_a_region_committed_comes_down_whatever_a_later_one_does(OA_IN);
    what_a_region_committed_comes_down_whatever_a_later_one_does(OA_BY_USE);
    threads_that_share_do_not_discard_for_each_other();
    a_failing_outer_region_discards_what_inner_ones_wrote();
    a_partial_write_in_flight_heals_nothing_that_fails_meanwhile();
    an_updated_array_is_not_reported_as_discarded();
    an_array_that_is_being_updated_is_not_discarded();
    a_region_that_was_left_narrows_no_rights();
    what_was_written_is_not_lost_by_a_sharer_that_could_not_enter();
    a_sharer_of_an_array_inherits_no_other_arrays_failure();
    a_call_that_began_before_another_failed_heals_nothing();
    what_a_failing_sharer_wrote_is_healed_by_no_call_in_flight();
    refuse_to_wait_for_oneself();
  }
  return failures();
}
