/* If another device has the bytes, they come from that device's memory, and not from the host. The bytes are right even
 * if a call fails, or if an array is left, written or freed during the copy. */
#include "region/pages.h"
#include "two_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 1 << 16 }; /* floats of an array: 256 KiB */

/* The sum of the floats in some lines, as the device stores the lines. */
struct sum {
  const float *p;
  double *sum;
  int64_t width, pitch, count;
};
static void run_sum(void *data) {
  const struct sum *s = data;
  double sum = 0;
  for (int64_t i = 0; i < s->count; i++)
    for (int64_t j = 0; j < s->width; j++) sum += (double)s->p[i * s->pitch + j] * (double)((i + j) % 7 + 1);
  *s->sum = sum;
}

static double host_sum(const float *p, int64_t width, int64_t pitch, int64_t count) {
  double sum = 0;
  run_sum(&(struct sum){p, &sum, width, pitch, count});
  return sum;
}

/* Computes a sum on the device, and waits for it. */
static int sum_there(const oa_any *pointer, int64_t width, int64_t pitch, int64_t count, double *sum) {
  oa_operand p = {.name = "p",
                  .pointer = pointer,
                  .access = OA_READ,
                  .dtype = OA_F32,
                  .extent = OA_MATRIX(width, count, pitch, "width", "count", "pitch")};
  oa_call call = {.function = "test.sum", .operands = &p, .count = 1, .blocking = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct sum s = {p.address, sum, width, pitch, count};
  return oa_submit(&call, run_sum, &s, sizeof s);
}

static float *numbers(void) {
  float *x = mmap(NULL, N * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < N; i++) x[i] = (float)(i % 1000);
  return x;
}

/* Ends a test. After the resident array is released, nothing is lent or resident. */
static void end_of(float *x, const oa_array *resident) {
  if (resident) CHECK_OK(oa_release(resident, -1));
  check_empty();
  munmap(x, N * sizeof *x);
}

static oa_counters counters(int device) {
  oa_counters c = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &c));
  return c;
}

/* Sums an array on both devices, one after the other, and checks the second sum, and how many of its copies came from
 * the other device and from the host. */
static void check_copies(oa_array first, oa_array second, int64_t width, int64_t pitch, int64_t count, int64_t peers,
                         int64_t ups) {
  double sum = 0;
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
  const double expected = host_sum(second.data, width, pitch, count);
  if (first.ndim == 1) CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
  if (first.ndim == 2) CHECK_OK(sum_there(first.handle, first.shape[1], first.strides[0] / 4, first.shape[0], &sum));
  const oa_counters before = counters(device_b);
  CHECK_OK(sum_there(second.handle, width, pitch, count, &sum));
  const oa_counters after = counters(device_b);
  CHECK(sum == expected);
  CHECK(after.copies_peer - before.copies_peer == peers);
  CHECK(after.copies_up - before.copies_up == ups);
  CHECK((after.bytes_peer - before.bytes_peer) == peers * width * count * (int64_t)sizeof(float));
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  check_empty();
}

static void an_array_goes_from_device_to_device(void) {
  const int64_t n = N;
  float *x = numbers();
  const oa_array lent = vector(x, &n, OA_BY_USE);
  check_copies(lent, lent, N, N, 1, 1, 0);
  end_of(x, NULL);
}

static void the_bytes_come_from_the_device_and_not_from_the_host(void) {
  const int64_t n = N;
  float *x = numbers(), element = 0;
  oa_array first = vector(x, &n, OA_IN), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
  CHECK_OK(peek(first.handle, &element));
  x[0] = 77; /* the core does not note this write, and does not read the host's array */
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 0);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  end_of(x, NULL);
}

static void parts_lines_and_packed_arrays_go_too(void) {
  const int64_t n = N, part = 1000, shape[] = {64, N / 64}, strides[] = {N / 64 * 4, 4}, inner[] = {32, 100};
  const int64_t odd[] = {64, N / 128}, odd_strides[] = {N / 64 * 4, 8}, backwards[] = {-4};
  float *x = numbers();
  const int64_t small = !on_doubles(); /* short copies of doubles come from the host */
  const oa_array all = vector(x, &n, OA_IN), some = vector(x + 3000, &part, OA_IN);
  check_copies(all, some, 1000, 1000, 1, small, !small);
  const oa_array matrix = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_array block = matrix; /* rows 5 to 36, columns 7 to 106 */
  block.data = x + 5 * N / 64 + 7;
  block.shape = inner;
  check_copies(matrix, block, 100, N / 64, 32, small, !small);
  check_copies(block, block, 100, N / 64, 32, small,
               !small); /* all of the first array goes up, though a part is read */
  check_copies(block, matrix, N / 64, N / 64, 64, 0, 1);
  oa_array packed = {.data = x, .shape = odd, .strides = odd_strides, .ndim = 2, .dtype = OA_F32};
  oa_array other_way = vector(x + N - 1, &n, OA_IN), same = packed;
  other_way.strides = backwards;
  double sum = 0;
  oa_region *a = enter(device_a, &packed, 1), *b = enter(device_b, &same, 1);
  CHECK_OK(sum_there(packed.handle, N / 2, N / 2, 1, &sum));
  oa_counters before = counters(device_b);
  const double expected = sum;
  CHECK_OK(sum_there(same.handle, N / 2, N / 2, 1, &sum));
  CHECK(sum == expected);
  CHECK(counters(device_b).copies_peer - before.copies_peer == 1);
  leave(b, OA_COMMIT);
  b = enter(device_b, &other_way, 1); /* this array is packed in another way, so its bytes come from the host */
  before = counters(device_b);
  CHECK_OK(sum_there(other_way.handle, N, N, 1, &sum));
  CHECK(counters(device_b).copies_peer == before.copies_peer);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  end_of(x, NULL);
}

static void a_copy_waits_for_its_source_to_arrive(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  oa_array first = vector(x, &n, OA_IN), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
  configure(device_a, 0, SLOW);
  oa_operand p = operand(first.handle, OA_READ, n, 1);
  oa_call call = {.function = "test.reads", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  CHECK_OK(sum_there(second.handle, N, N, 1, &sum)); /* the first device's copy up is under way */
  CHECK(sum == host_sum(x, N, N, 1));
  CHECK(counters(device_b).copies_peer > 0);
  CHECK_OK(oa_end(&call, 0));
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  end_of(x, NULL);
}

static void updated_results_go_from_device_to_device(void) {
  const int64_t n = N;
  float *x = numbers(), element = 0;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(device_a, &first, 1), *b = NULL;
  CHECK_OK(add(first.handle, n, 5));
  CHECK_FAILS(oa_region_enter(device_b, NULL, &second, 1, &b), OA_ERROR_DIRECTION, "is present on another device too");
  CHECK_OK(oa_update_from(&first, -1));
  b = enter(device_b, &second, 1);
  const oa_counters before = counters(device_b);
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 5);
  CHECK(counters(device_b).copies_peer == before.copies_peer + 1);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  end_of(x, NULL);
}

static void bytes_that_the_host_may_write_come_from_the_host(void) {
  const int64_t n = N;
  float *x = numbers(), element = 0;
  oa_array first = vector(x, &n, OA_BY_USE), second = vector(x, &n, OA_IN), part = vector(x, &item, OA_IN);
  oa_region *a = enter(device_a, &first, 1);
  oa_writing *all = NULL, *some = NULL;
  CHECK_OK(peek(first.handle, &element));
  CHECK_OK(oa_update_begin(&first, -1, &all));
  CHECK_OK(oa_update_begin(&part, -1, &some));
  oa_update_end(all); /* the open update of a part is enough */
  x[0] = 5;
  oa_region *b = enter(device_b, &second, 1);
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 5);
  leave(b, OA_COMMIT);
  CHECK_OK(oa_update_to(&first, -1));
  oa_update_end(some);
  CHECK_OK(peek(first.handle, &element)); /* brings the bytes up anew, as one update ended without oa_update_to */
  CHECK(element == 5);
  const oa_counters before = counters(device_b);
  b = enter(device_b, &second, 1);
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 5);
  CHECK(counters(device_b).copies_peer == before.copies_peer + 1);
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  end_of(x, NULL);
}

static void what_a_failed_call_left_undefined_goes_nowhere(void) {
  const int64_t n = N;
  float *x = numbers(), element = -1;
  oa_array first = vector(x, &n, OA_BY_USE), second = first;
  oa_region *a = enter(device_a, &first, 1), *b;
  oa_operand p = operand(first.handle, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.fails", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  oa_end(&call, -1);
  CHECK_FAILS(oa_update_from(&first, -1), OA_ERROR_INVALID, "left undefined");
  CHECK_OK(oa_update_to(&first, -1)); /* the host's bytes make the array valid */
  b = enter(device_b, &second, 1);
  CHECK_OK(peek(second.handle, &element));
  CHECK(element == 0);
  leave(b, OA_COMMIT);
  leave(a, OA_DISCARD);
  end_of(x, NULL);
}

struct reader {
  const oa_any *pointer;
  double sum;
};
static void *read_slowly(void *data) {
  struct reader *r = data;
  CHECK_OK(sum_there(r->pointer, N, N, 1, &r->sum));
  return NULL;
}

static void a_region_that_is_left_waits_for_a_copy_from_it(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  const double expected = host_sum(x, N, N, 1);
  for (int i = 0; i < 3; i++) {
    oa_array first = vector(x, &n, OA_IN), second = first;
    oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
    CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
    configure(device_b, 0, SLOW);
    struct reader r = {.pointer = second.handle};
    pthread_t thread;
    pthread_create(&thread, NULL, read_slowly, &r);
    nanosleep(&(struct timespec){.tv_nsec = i * 10000000}, NULL);
    leave(a, OA_COMMIT); /* frees memory of device_a, which sim then fills with other bytes */
    oa_device_trim(device_a);
    pthread_join(thread, NULL);
    CHECK(r.sum == expected);
    leave(b, OA_COMMIT);
    check_empty();
  }
  end_of(x, NULL);
}

static void every_failing_backend_call_leaves_exact_bytes(int device) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  const double expected = host_sum(x, N, N, 1);
  int succeeded = 0;
  for (int k = 1; k < 40 && succeeded < 3; k++) {
    oa_array first = vector(x, &n, OA_IN), second = first;
    oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
    CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
    configure(device, k, 0);
    sum = -1;
    const int status = sum_there(second.handle, N, N, 1, &sum);
    configure(device, 0, 0);
    if (status)
      CHECK(strstr(oa_last_error(), on_doubles() ? "hipErrorUnknown" : "SIM_ERROR_INJECTED") != NULL);
    else
      CHECK(sum == expected);
    succeeded += !status;
    CHECK_OK(sum_there(second.handle, N, N, 1, &sum)); /* the next call works */
    CHECK(sum == expected);
    leave(b, OA_COMMIT);
    leave(a, OA_COMMIT);
    check_empty();
  }
  CHECK(succeeded > 0);
  end_of(x, NULL);
}

/* Uses separate devices, because the test makes them fail permanently. */
static void the_death_of_the_source_leaves_the_hosts_bytes(void) {
  const int64_t n = N;
  static const char *const names[] = {"sim:4", "sim:5", "sim:6", "sim:7"};
  for (int k = 1; k <= 4; k++) {
    float *x = numbers();
    double sum = 0;
    CHECK_OK(oa_device_open(names[k - 1], &device_a));
    oa_array first = vector(x, &n, OA_IN), second = first;
    oa_region *a = enter(device_a, &first, 1), *b = enter(device_b, &second, 1);
    CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
    configure(device_a, -k, 0);
    CHECK_OK(sum_there(second.handle, N, N, 1, &sum));
    CHECK(sum == host_sum(x, N, N, 1));
    leave(b, OA_COMMIT);
    oa_region_finish(a, OA_COMMIT, NULL);
    oa_region_wait(a);
    munmap(x, N * sizeof *x);
  }
}

/* -- resident arrays -- */

static oa_array resident(float *x, const int64_t *n) {
  oa_array lent = vector(x, n, OA_BY_USE);
  lent.flags = OA_RESIDENT | OA_OWNED;
  lent.owner = x;
  return lent;
}

static void idle_resident_memory_is_copied_until_the_host_writes(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  oa_array first = resident(x, &n), second = vector(x, &n, OA_IN);
  oa_region *a = enter(device_a, &first, 1);
  CHECK_OK(add(first.handle, n, 1)); /* the results are on the device, too */
  leave(a, OA_COMMIT);
  for (int i = 0; i < 4; i++) {
    if (i == 2) x[N / 2] = 5000; /* changes one page */
    const oa_counters before = counters(device_b);
    second = vector(x, &n, OA_IN);
    oa_region *b = enter(device_b, &second, 1);
    CHECK_OK(sum_there(second.handle, N, N, 1, &sum));
    CHECK(sum == host_sum(x, N, N, 1));
    const int64_t peers = counters(device_b).copies_peer - before.copies_peer;
    CHECK(peers == (i < 2));
    CHECK(counters(device_b).copies_up - before.copies_up == !peers);
    leave(b, OA_COMMIT);
  }
  end_of(x, &first);
}

static void an_array_resident_on_both_devices_is_sent_once_from_the_host(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  const int devices[] = {device_a, device_b};
  int64_t ups = counters(device_a).bytes_up + counters(device_b).bytes_up;
  for (int i = 0; i < 6; i++) {
    oa_array lent = resident(x, &n);
    oa_region *region = enter(devices[i % 2], &lent, 1);
    CHECK_OK(sum_there(lent.handle, N, N, 1, &sum));
    CHECK(sum == host_sum(x, N, N, 1));
    leave(region, OA_COMMIT);
  }
  CHECK(counters(device_a).bytes_up + counters(device_b).bytes_up - ups == N * (int64_t)sizeof(float));
  x[17] = 9; /* both devices find the write */
  ups = counters(device_a).bytes_up + counters(device_b).bytes_up;
  for (int i = 0; i < 4; i++) {
    oa_array lent = resident(x, &n);
    oa_region *region = enter(devices[i % 2], &lent, 1);
    CHECK_OK(sum_there(lent.handle, N, N, 1, &sum));
    CHECK(sum == host_sum(x, N, N, 1));
    leave(region, OA_COMMIT);
  }
  CHECK(counters(device_a).bytes_up + counters(device_b).bytes_up - ups < N * (int64_t)sizeof(float));
  end_of(x, &(oa_array){.data = x, .shape = &n, .strides = &item, .ndim = 1, .dtype = OA_F32});
}

static void memory_that_is_being_copied_is_in_no_new_region(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  oa_array first = resident(x, &n), second = vector(x, &n, OA_IN);
  oa_residency idle = OA_SIZED(oa_residency);
  oa_region *a = enter(device_a, &first, 1);
  CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
  leave(a, OA_COMMIT);
  oa_region *b = enter(device_b, &second, 1);
  configure(device_b, 0, 100 * SLOW); /* the copy lasts until the new region is entered, on a busy machine too */
  struct reader r = {.pointer = second.handle};
  pthread_t thread;
  pthread_create(&thread, NULL, read_slowly, &r);
  do { /* until the copy is under way */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK_OK(oa_residency_query(device_a, &idle));
  } while (idle.kept);
  first = resident(x, &n);
  a = enter(device_a, &first, 1);
  configure(device_b, 0, 0);
  pthread_join(thread, NULL);
  CHECK_OK(oa_residency_query(device_a, &idle));
  CHECK(idle.kept == 1); /* the memory is idle; the new region does not use it */
  CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
  CHECK(sum == r.sum);
  leave(a, OA_COMMIT);
  leave(b, OA_COMMIT);
  end_of(x, &first);
}

/* Promise T50. */
static void a_region_that_is_waited_for_late_does_not_vouch_for_older_bytes(void) {
  const int64_t n = N;
  float *x = numbers();
  float element = -1;
  oa_array first = resident(x, &n), second = resident(x, &n);
  oa_region *left = enter(device_a, &first, 1);
  CHECK_OK(add(first.handle, n, 5));
  CHECK_OK(oa_region_finish(left, OA_COMMIT, NULL));
  oa_region *region = enter(device_b, &second, 1);
  CHECK_OK(add(second.handle, n, 1));
  leave(region, OA_COMMIT);
  CHECK_OK(oa_region_wait(left)); /* device_a now has bytes that are older than the host's */
  first = resident(x, &n);
  region = enter(device_a, &first, 1);
  CHECK_OK(peek(first.handle, &element));
  CHECK(element == 6);
  leave(region, OA_COMMIT);
  end_of(x, &first);
}

static void *release_it(void *data) {
  CHECK_OK(oa_release(data, -1));
  return NULL;
}

static void resident_memory_that_is_released_meanwhile_is_copied_whole(void) {
  const int64_t n = N;
  float *x = numbers();
  double sum = 0;
  const double expected = host_sum(x, N, N, 1);
  for (int i = 0; i < 4; i++) {
    oa_array first = resident(x, &n), second = vector(x, &n, OA_IN);
    oa_region *a = enter(device_a, &first, 1);
    CHECK_OK(sum_there(first.handle, N, N, 1, &sum));
    leave(a, OA_COMMIT);
    oa_region *b = enter(device_b, &second, 1);
    configure(device_b, 0, SLOW);
    struct reader r = {.pointer = second.handle};
    pthread_t thread, releasing;
    pthread_create(&thread, NULL, read_slowly, &r);
    nanosleep(&(struct timespec){.tv_nsec = i * 8000000}, NULL);
    pthread_create(&releasing, NULL, release_it, &first);
    oa_array again = resident(x, &n); /* this array can neither use the resident memory now nor wait for it */
    a = enter(device_a, &again, 1);
    CHECK_OK(sum_there(again.handle, N, N, 1, &sum));
    CHECK(sum == expected);
    leave(a, OA_COMMIT);
    pthread_join(thread, NULL);
    pthread_join(releasing, NULL);
    CHECK(r.sum == expected);
    leave(b, OA_COMMIT);
    CHECK_OK(oa_release(&first, -1));
    check_empty();
  }
  end_of(x, NULL);
}

int main(void) {
  CHECK_OK(oa_device_open("host", &host));
  CHECK_OK(oa_device_open("sim:0", &device_a));
  CHECK_OK(oa_device_open("sim:1", &device_b));
  an_array_goes_from_device_to_device();
  the_bytes_come_from_the_device_and_not_from_the_host();
  parts_lines_and_packed_arrays_go_too();
  a_copy_waits_for_its_source_to_arrive();
  updated_results_go_from_device_to_device();
  bytes_that_the_host_may_write_come_from_the_host();
  what_a_failed_call_left_undefined_goes_nowhere();
  a_region_that_is_left_waits_for_a_copy_from_it();
  every_failing_backend_call_leaves_exact_bytes(device_a);
  every_failing_backend_call_leaves_exact_bytes(device_b);
  if (oa_pages_work()) {
    idle_resident_memory_is_copied_until_the_host_writes();
    an_array_resident_on_both_devices_is_sent_once_from_the_host();
    if (!on_doubles()) memory_that_is_being_copied_is_in_no_new_region(); /* doubles copy immediately */
    a_region_that_is_waited_for_late_does_not_vouch_for_older_bytes();
    resident_memory_that_is_released_meanwhile_is_copied_whole();
  }
  if (!on_doubles()) the_death_of_the_source_leaves_the_hosts_bytes(); /* no double is lost */
  return failures();
}
