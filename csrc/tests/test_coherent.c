/* Arrays that a device uses in the host's memory: nothing is copied, and regions end as they do with copies. */
#include "one_device.h"

#include <pthread.h>
#include <stdbool.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 64, LARGE = 1 << 20, MOST_CALLS = 60 };
static float *x, *y;
static int64_t n = N;

static void set(float *array, int64_t count, float value) {
  for (int64_t i = 0; i < count; i++) array[i] = value;
}

static bool all(const float *array, int64_t from, int64_t to, float value) {
  for (int64_t i = from; i < to; i++)
    if (array[i] != value) return false;
  return true;
}

static oa_region *lend(oa_array *array, float *data, int64_t *count, int direction) {
  oa_region *region = NULL;
  *array = vector(data, count, direction);
  CHECK_OK(oa_region_enter(device, NULL, array, 1, &region));
  return region;
}

static void end(oa_region *region, int outcome) {
  CHECK_OK(oa_region_finish(region, outcome, NULL));
  CHECK_OK(oa_region_wait(region));
}

static int64_t moved(void) {
  const oa_counters c = counters();
  return c.bytes_up + c.bytes_down;
}

static int fill(oa_any *pointer, float value, int64_t count) {
  const int64_t stride = sizeof value;
  return oa_pointer_fill(pointer, &value, 1, &count, &stride);
}

/* Promise T78. */
static void the_device_uses_the_hosts_memory_and_nothing_moves(void) {
  oa_array array;
  uint64_t address = 0;
  const int64_t before = moved();
  set(x, N, 1);
  oa_region *region = lend(&array, x, &n, OA_BY_USE);
  CHECK_OK(oa_address(array.handle, &address));
  CHECK(address == (uintptr_t)x);
  CHECK_OK(axpy(1, array.handle, 1, array.handle, 1, 0, 0));
  CHECK_OK(fill(array.handle, 2, N));
  CHECK_OK(oa_update_from(&array, -1));
  CHECK(all(x, 0, N, 2));
  end(region, OA_COMMIT);
  CHECK(all(x, 0, N, 2) && moved() == before);
  check_empty();
}

/* Promise T78. */
static void a_region_that_fails_leaves_the_former_bytes(void) {
  const int directions[] = {OA_BY_USE, OA_INOUT, OA_OUT};
  for (int i = 0; i < 3; i++) {
    oa_array array;
    set(x, N, 1);
    oa_region *region = lend(&array, x, &n, directions[i]);
    CHECK_OK(fill(array.handle, 2, N));
    CHECK_OK(fill(array.handle, 3, N));
    end(region, OA_DISCARD);
    CHECK(all(x, 0, N, 1));
  }
  check_empty();
}

static void an_update_of_a_part_stays_and_the_rest_does_not(void) {
  oa_array array;
  int64_t half = N / 2;
  set(x, N, 1);
  oa_region *region = lend(&array, x, &n, OA_BY_USE);
  CHECK_OK(fill(array.handle, 2, N));
  const oa_array part = vector(x, &half, OA_BY_USE);
  CHECK_OK(oa_update_from(&part, -1));
  CHECK_OK(fill(array.handle, 3, N));
  end(region, OA_DISCARD);
  CHECK(all(x, 0, half, 2) && all(x, half, N, 1));
  region = lend(&array, x, &n, OA_BY_USE);
  CHECK_OK(fill(array.handle, 4, N));
  CHECK_OK(oa_update_from(&array, -1));
  CHECK_OK(fill(array.handle, 5, N));
  end(region, OA_DISCARD);
  CHECK(all(x, 0, N, 4));
  check_empty();
}

static void what_the_host_writes_in_an_update_stays(void) {
  for (int sends = 0; sends < 2; sends++) {
    oa_array array;
    oa_writing *writing = NULL;
    int64_t half = N / 2;
    set(x, N, 1);
    oa_region *region = lend(&array, x, &n, OA_BY_USE);
    CHECK_OK(fill(array.handle, 2, N));
    const oa_array part = vector(x, &half, OA_BY_USE);
    CHECK_OK(oa_update_begin(&part, -1, &writing));
    set(x, half, 7);
    if (sends) CHECK_OK(oa_update_to(&part, -1));
    CHECK_OK(oa_update_end(writing));
    CHECK_OK(fill(array.handle, 3, N));
    end(region, OA_DISCARD);
    CHECK(all(x, 0, half, 7) && all(x, half, N, 1));
  }
  check_empty();
}

/* Writes the elements at even rows and columns, in one update, of an array that a call has written, and discards the
 * region: only these elements stay. */
static void what_the_host_writes_between_gaps_stays_alone(void) {
  const int64_t shape[] = {4, 4}, strides[] = {64, 8}; /* of 8 rows of 8 elements: no lines have these bytes */
  for (int sends = 0; sends < 2; sends++) {
    oa_array array, even = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
    oa_writing *writing = NULL;
    set(x, N, 1);
    oa_region *region = lend(&array, x, &n, OA_BY_USE);
    CHECK_OK(fill(array.handle, 2, N));
    CHECK_OK(oa_update_begin(&even, -1, &writing));
    for (int i = 0; i < 16; i++) x[i / 4 * 16 + i % 4 * 2] = 7;
    if (sends) CHECK_OK(oa_update_to(&even, -1));
    CHECK_OK(oa_update_end(writing));
    end(region, OA_DISCARD);
    for (int i = 0; i < N; i++) CHECK(x[i] == (i / 8 % 2 == 0 && i % 2 == 0 ? 7 : 1));
  }
  check_empty();
}

/* The calls that read x are slow, and a region that lends only x waits for them, too. */
static void leaving_waits_for_calls_that_read(void) {
  oa_array from, to;
  set(x, N, 1);
  set(y, N, 0);
  if (!on_doubles()) CHECK_OK(oa_sim_configure(device, 0, 0, 2000));
  oa_region *writes = lend(&to, y, &n, OA_BY_USE), *reads = lend(&from, x, &n, OA_IN);
  for (int i = 0; i < 3; i++) CHECK_OK(axpy(1, from.handle, 1, to.handle, 1, N, 0));
  end(reads, OA_COMMIT);
  set(x, N, 100);
  end(writes, OA_COMMIT);
  CHECK(all(y, 0, N, 3));
  oa_writing *writing = NULL; /* an update of the host waits for them, too */
  set(x, N, 1);
  oa_region *region = lend(&from, x, &n, OA_BY_USE);
  writes = lend(&to, y, &n, OA_BY_USE);
  for (int i = 0; i < 3; i++) CHECK_OK(axpy(1, from.handle, 1, to.handle, 1, N, 0));
  CHECK_OK(oa_update_begin(&from, -1, &writing));
  set(x, N, 100);
  CHECK_OK(oa_update_to(&from, -1));
  CHECK_OK(oa_update_end(writing));
  end(writes, OA_COMMIT);
  end(region, OA_COMMIT);
  CHECK(all(y, 0, N, 6) && all(x, 0, N, 100));
  if (!on_doubles()) CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  check_empty();
}

/* Promise T78. */
static void a_share_of_the_memory_is_not_the_hosts_memory(void) {
  for (int outcome = OA_COMMIT; outcome <= OA_DISCARD; outcome++) {
    oa_array array;
    uint64_t address = 0;
    void *keep = NULL;
    set(x, N, 1);
    oa_region *region = lend(&array, x, &n, OA_BY_USE);
    CHECK_OK(fill(array.handle, 2, N));
    CHECK_OK(oa_export(array.handle, &address, &keep));
    CHECK(address && address != (uintptr_t)x);
    CHECK(all(x, 0, N, 1)); /* the bytes of the host until the region is left */
    CHECK_OK(axpy(1, array.handle, 1, array.handle, 1, 0, 0));
    end(region, outcome);
    CHECK(all(x, 0, N, outcome ? 1 : 2));
    set(x, N, 9);
    CHECK(all(reachable(address), 0, N, 2));
    CHECK_OK(oa_export_release(keep));
  }
  oa_array array;
  uint64_t address = 0;
  void *keep = NULL;
  oa_region *region = lend(&array, x, &n, OA_BY_USE);
  CHECK_OK(oa_address(array.handle, &address));
  CHECK_FAILS(oa_export(array.handle, &address, &keep), OA_ERROR_ARGUMENT, "has its address there already");
  end(region, OA_COMMIT);
  check_empty();
}

static void arrays_that_are_guarded_or_not_aligned_are_copied(void) {
  oa_array array;
  uint64_t address = 0;
  const oa_region_options options = OA_SIZED(oa_region_options, .guard = 1);
  oa_region *region = NULL;
  array = vector(x, &n, OA_IN);
  CHECK_OK(oa_region_enter(device, &options, &array, 1, &region));
  CHECK_OK(oa_address(array.handle, &address));
  CHECK(address != (uintptr_t)x);
  end(region, OA_COMMIT);
  int64_t few = N / 2;
  char *odd = (char *)x + 2;
  region = lend(&array, (float *)(void *)odd, &few, OA_IN);
  CHECK_OK(oa_address(array.handle, &address));
  CHECK(address != (uintptr_t)odd);
  end(region, OA_COMMIT);
  check_empty();
}

static void an_array_by_lines_keeps_its_gaps_and_the_former_bytes(void) {
  const int64_t shape[] = {8, 4}, strides[] = {32, 4}; /* 8 lines of 4 elements, 8 apart */
  for (int outcome = OA_COMMIT; outcome <= OA_DISCARD; outcome++) {
    set(x, N, 1);
    oa_array array = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
    oa_region *region = NULL;
    const float value = 2;
    CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
    CHECK_OK(oa_pointer_fill(array.handle, &value, 2, shape, strides));
    end(region, outcome);
    for (int i = 0; i < N - 4; i++) CHECK(x[i] == (i % 8 < 4 && outcome == OA_COMMIT ? 2 : 1));
  }
  check_empty();
}

static void what_a_region_committed_stays_whatever_a_later_one_does(void) {
  oa_array first, second;
  set(x, N, 1);
  oa_region *outer = lend(&first, x, &n, OA_BY_USE), *inner = lend(&second, x, &n, OA_BY_USE);
  CHECK_OK(fill(second.handle, 2, N));
  end(inner, OA_DISCARD); /* invalid outside */
  CHECK_FAILS(axpy(1, first.handle, 1, first.handle, 1, 1, 0), OA_ERROR_INVALID, "");
  CHECK_OK(oa_region_finish(outer, OA_COMMIT, NULL));
  CHECK_FAILS(oa_region_wait(outer), OA_ERROR_INVALID, "left undefined");
  CHECK(all(x, 0, N, 1));
  outer = lend(&first, x, &n, OA_BY_USE);
  inner = lend(&second, x, &n, OA_BY_USE);
  CHECK_OK(fill(first.handle, 3, N));
  CHECK_OK(oa_region_finish(outer, OA_COMMIT, NULL)); /* committed: it is nested in no region */
  end(inner, OA_DISCARD);
  CHECK_OK(oa_region_wait(outer));
  CHECK(all(x, 0, N, 3));
  check_empty();
}

/* Promise T78. */
static void whatever_call_fails_an_array_is_old_or_new(void) {
  if (on_doubles()) return;
  for (int k = 1; k < MOST_CALLS; k++) {
    oa_array array;
    oa_region *region = NULL;
    set(x, N, 1);
    array = vector(x, &n, OA_BY_USE);
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    int status = oa_region_enter(device, NULL, &array, 1, &region);
    if (!status) {
      status = axpy(1, array.handle, 1, array.handle, 1, 0, 0);
      if (!status) status = fill(array.handle, 2, N);
      if (!status) status = oa_update_from(&array, -1);
      const bool updated = !status;
      if (!status) status = fill(array.handle, 3, N);
      const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
      const int waited = oa_region_wait(region);
      if (!status) status = finished ? finished : waited;
      CHECK(all(x, 0, N, status ? (updated ? 2 : 1) : 3));
    }
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    check_empty();
  }
}

/* The address of an Out that no call wrote is an address of zeros, and a failure leaves the array as it was. */
static void an_address_that_fails_leaves_the_array(void) {
  if (on_doubles()) return;
  for (int k = 1; k < MOST_CALLS; k++) {
    oa_array array;
    uint64_t address;
    set(x, N, 1);
    oa_region *region = lend(&array, x, &n, OA_OUT);
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    const int status = oa_address(array.handle, &address);
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    CHECK(all(x, 0, N, status ? 1 : 0));
    end(region, OA_COMMIT);
    CHECK(all(x, 0, N, status ? 1 : 0));
    check_empty();
    if (!status) return;
  }
}

static pthread_mutex_t in_turns = PTHREAD_MUTEX_INITIALIZER; /* calls of two threads on one array have no order */

static void *write_some(void *data) {
  oa_array array;
  int64_t *count = data;
  for (int i = 0; i < 20; i++) {
    oa_region *region = lend(&array, y, count, OA_BY_USE);
    pthread_mutex_lock(&in_turns);
    CHECK_OK(fill(array.handle, (float)(i % 5), *count));
    pthread_mutex_unlock(&in_turns);
    oa_region_finish(region, i % 3 ? OA_COMMIT : OA_DISCARD, NULL);
    oa_region_wait(region);
  }
  return NULL;
}

static void threads_lend_one_array(void) {
  pthread_t threads[3];
  int64_t count = LARGE / 4; /* several threads of the core copy this, too */
  set(y, count, 1);
  for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, write_some, &count));
  for (int i = 0; i < 3; i++) CHECK(!pthread_join(threads[i], NULL));
  CHECK(all(y, 0, count, y[0]));
  check_empty();
}

static void a_large_array_gets_its_former_bytes(void) {
  oa_array array;
  int64_t count = LARGE;
  for (int64_t i = 0; i < LARGE; i++) y[i] = (float)i;
  oa_region *region = lend(&array, y, &count, OA_INOUT);
  CHECK_OK(fill(array.handle, -1, LARGE));
  end(region, OA_DISCARD);
  bool same = true;
  for (int64_t i = 0; i < LARGE; i++) same &= y[i] == (float)i;
  CHECK(same);
  check_empty();
}

/* Promise T79. */
static void the_setting_decides(void) {
  oa_device_info info = OA_SIZED(oa_device_info);
  const int reads_only_pages = 1;
  CHECK_OK(oa_device_get_info(device, &info));
  CHECK(info.coherent && info.reads_host == reads_only_pages);
  for (int coherence = OA_COHERENT_NEVER; coherence <= OA_COHERENT_AUTO; coherence++) {
    oa_array array;
    uint64_t address = 0;
    CHECK_OK(oa_coherent_configure(coherence));
    CHECK_OK(oa_device_get_info(device, &info));
    CHECK(!info.coherent);
    oa_region *region = lend(&array, x, &n, OA_IN);
    CHECK_OK(oa_address(array.handle, &address));
    CHECK(address != (uintptr_t)x);
    end(region, OA_COMMIT);
  }
  CHECK_OK(oa_coherent_configure(OA_COHERENT_ALWAYS));
}

static void run_all(const char *name) {
  CHECK_OK(oa_device_open(name, &device));
  CHECK_OK(oa_coherent_configure(OA_COHERENT_ALWAYS));
  the_setting_decides();
  the_device_uses_the_hosts_memory_and_nothing_moves();
  a_region_that_fails_leaves_the_former_bytes();
  an_update_of_a_part_stays_and_the_rest_does_not();
  what_the_host_writes_in_an_update_stays();
  what_the_host_writes_between_gaps_stays_alone();
  a_share_of_the_memory_is_not_the_hosts_memory();
  arrays_that_are_guarded_or_not_aligned_are_copied();
  an_array_by_lines_keeps_its_gaps_and_the_former_bytes();
  what_a_region_committed_stays_whatever_a_later_one_does();
  a_large_array_gets_its_former_bytes();
  threads_lend_one_array();
}

int main(void) {
  if (on_doubles()) return 0; /* tests/devices/test_coherent.py has them */
  x = malloc(N * sizeof *x);
  y = malloc(LARGE * sizeof *y);
  run_all("sim:0");
  leaving_waits_for_calls_that_read();
  whatever_call_fails_an_array_is_old_or_new();
  an_address_that_fails_leaves_the_array();
  run_all("host");
  free(x);
  free(y);
  return failures();
}
