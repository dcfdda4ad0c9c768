/* Memory of a device that regions use one after the other: memory that stays, zeros of an address, pinned blocks that
 * calls still read. */
#include "bytes.h"
#include "device/memory.h"
#include "device/stream.h"
#include "library/library.h"

#include <stdlib.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* -- memory that stays, and zeros ---------------------------------------------------------------------------------- */

/* Enters and leaves a region with the first `count` arrays. Returns the number of backend calls. */
static int64_t calls_to_pass(oa_array *arrays, int count) {
  oa_region *region;
  const int64_t before = oa_sim_backend_calls(number);
  CHECK_OK(oa_region_enter(number, NULL, arrays, count, &region));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  return oa_sim_backend_calls(number) - before;
}

static void a_region_that_comes_again_asks_the_driver_for_nothing(void) {
  static unsigned char x[3][40], large[300000];
  const int64_t n = 40, m = sizeof large;
  oa_array arrays[] = {bytes_of(x[0], &n, OA_INOUT), bytes_of(x[1], &n, OA_INOUT), bytes_of(large, &m, OA_INOUT)};
  CHECK_OK(oa_device_trim(number));
  CHECK(calls_to_pass(arrays, 3) > 0);
  for (int i = 0; i < 3; i++) CHECK(calls_to_pass(arrays, 3) == 0 && calls_to_pass(arrays, 2) == 0);
  CHECK_OK(oa_device_trim(number));
  CHECK(calls_to_pass(arrays, 3) > 0); /* idle memory was freed */
}

/* Memory that stays is checked and filled like memory that is released. */
static void memory_that_stays_is_as_strictly_watched(void) {
  unsigned char x[64] = {1};
  uint64_t address;
  oa_array array;
  CHECK_OK(oa_device_trim(number));
  oa_region *region = lend(&array, x, OA_INOUT, 0);
  CHECK_OK(oa_address(array.handle, &address));
  leave(region, OA_COMMIT);
  region = lend(&array, x, OA_SCRATCH, 0);
  uint64_t again;
  CHECK_OK(oa_address(array.handle, &again));
  CHECK(again == address && *(unsigned char *)(uintptr_t)again == 0xFF);
  leave(region, OA_COMMIT);
  *(unsigned char *)(uintptr_t)address = 7;
  region = lend(&array, x, OA_INOUT, 0);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK_FAILS(oa_device_synchronize(number), OA_ERROR_BACKEND, "WRITE_AFTER_RELEASE");
}

/* If an address is requested again, its zeros were made when the memory was returned. */
static void an_address_of_nothing_written_is_zeros_each_time(void) {
  unsigned char x[64], zeros[64] = {0};
  uint64_t address = 0;
  oa_array array;
  CHECK_OK(oa_device_trim(number));
  for (int i = 0; i < 20; i++) {
    oa_region *region = lend(&array, x, i == 10 ? OA_INOUT : OA_OUT, 0);
    if (i % 3 == 2) { /* a call that writes all of x, and may fail */
      oa_operand operand = {
          .name = "x", .pointer = array.handle, .access = OA_OVERWRITE, .dtype = OA_U8, .extent = OA_ELEMENTS(64)};
      oa_call call = {.function = "test.fail", .operands = &operand, .count = 1};
      CHECK_OK(oa_begin(&call));
      const oa_stream *stream = call.stream;
      CHECK_OK(device->backend->stream_synchronize(device, stream->native)); /* zeros may be under way there */
      memset(operand.address, 0xab, 64);
      oa_end(&call, i % 2 ? -1 : 0);
    } else {
      CHECK_OK(oa_address(array.handle, &address));
      if (i != 10) CHECK(memcmp((void *)(uintptr_t)address, zeros, 64) == 0);
      memset((void *)(uintptr_t)address, 0xcd, 64);
    }
    oa_region_finish(region, OA_KEEP, NULL);
    oa_region_wait(region);
  }
}

/* Fills an Out through its address, as code outside does. Returns the address, at which there were zeros. */
static uint64_t fill_by_address(const oa_array *array, int64_t n, int value) {
  uint64_t address = 0;
  CHECK_OK(oa_address(array->handle, &address));
  int64_t zeros = 0;
  while (zeros < n && !((const char *)(uintptr_t)address)[zeros]) zeros++;
  CHECK(zeros == n);
  memset((void *)(uintptr_t)address, value, (size_t)n);
  return address;
}

/* Lends x as Out, fills it through its address with that value, and leaves the region. Returns the address, at which
 * there were zeros. beside: lends another array, too, which is read. */
static uint64_t pass_by_address(unsigned char *x, int64_t n, int value, bool beside) {
  static unsigned char y[40] = {7};
  const int64_t m = sizeof y;
  uint64_t other;
  oa_array arrays[] = {bytes_of(x, &n, OA_OUT), bytes_of(y, &m, OA_IN)};
  oa_region *region;
  CHECK_OK(oa_region_enter(number, NULL, arrays, beside ? 2 : 1, &region));
  if (beside) CHECK_OK(oa_address(arrays[1].handle, &other));
  if (beside) CHECK(*(const char *)(uintptr_t)other == 7);
  const uint64_t address = fill_by_address(arrays, n, value);
  leave(region, OA_COMMIT);
  CHECK(x[0] == value && x[n / 2] == value && x[n - 1] == value);
  return address;
}

static int64_t free_memory(void) {
  int64_t free_bytes = 0, total;
  CHECK_OK(device->backend->memory(device, &free_bytes, &total));
  return free_bytes;
}

/* One fill makes the zeros for many regions, so few regions make the device fill or allocate. */
static void memory_of_an_address_is_zeros_each_time(int64_t n, bool beside) {
  enum { TIMES = 100 };
  unsigned char *x = malloc((size_t)n);
  int64_t calls[TIMES], least = INT64_MAX;
  int more = 0;
  CHECK(x);
  CHECK_OK(oa_device_trim(number));
  const int64_t before = free_memory();
  for (int i = 0; i < TIMES; i++) {
    const int64_t begun = oa_sim_backend_calls(number);
    pass_by_address(x, n, i + 1, beside);
    calls[i] = oa_sim_backend_calls(number) - begun;
    if (calls[i] < least) least = calls[i];
  }
  for (int i = 0; i < TIMES; i++) more += calls[i] > least;
  CHECK(more > 0 && more <= TIMES / 6);
  uint64_t address;
  enum oa_zeros zeros;
  int other_stream; /* any stream may take memory that is already zeros */
  const size_t taken = beside ? ((size_t)n + 255) / 256 * 256 + 256 : (size_t)n;
  CHECK(oa_device_take(device, &other_stream, taken, &address, &zeros) && zeros == OA_ZEROS_NOW);
  CHECK_OK(oa_device_pool(device, NULL, address, taken, OA_NEEDS_NOTHING));
  CHECK_OK(oa_device_trim(number));
  CHECK(free_memory() == before && device->counts.memory_used == 0 && device->spare_bytes == 0);
  free(x);
}

/* Regions use the pieces of a sheet one after the other. The pieces are checked as strictly as other memory. */
static void pieces_of_zeros_are_as_strictly_watched(void) {
  enum { N = 1000 };
  unsigned char x[N];
  CHECK_OK(oa_device_trim(number));
  for (int i = 0; i < 4; i++) pass_by_address(x, N, 1, false);
  const int64_t n = N;
  oa_array array = bytes_of(x, &n, OA_OUT);
  oa_region *region;
  CHECK_OK(oa_region_enter(number, NULL, &array, 1, &region));
  const uint64_t address = fill_by_address(&array, N, 2);
  *(unsigned char *)(uintptr_t)(address + N) = 1;
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK_FAILS(oa_device_synchronize(number), OA_ERROR_BACKEND, "OUT_OF_BOUNDS");
  CHECK_OK(oa_device_trim(number));
  for (int i = 0; i < 4; i++) pass_by_address(x, N, 1, false);
  *(unsigned char *)(uintptr_t)pass_by_address(x, N, 1, false) = 7;
  int status = OA_OK;
  for (int i = 0; i < 100 && !status; i++) {
    pass_by_address(x, N, 1, false);
    status = oa_device_synchronize(number);
  }
  CHECK(status == OA_ERROR_BACKEND && strstr(oa_last_error(), "WRITE_AFTER_RELEASE"));
}

/* There are more sizes of arrays than a device has sheets. Regions with the other sizes need one fill each, and no
 * other call. */
static void zeros_of_many_sizes_cost_one_fill_each(void) {
  enum { SIZES = 12, TIMES = 5 };
  static unsigned char x[1000 * SIZES];
  int64_t least = INT64_MAX;
  CHECK_OK(oa_device_trim(number));
  for (int i = 0; i < TIMES; i++)
    for (int k = 1; k <= SIZES; k++) {
      const int64_t begun = oa_sim_backend_calls(number);
      pass_by_address(x, 1000 * k, i + 1, false);
      const int64_t calls = oa_sim_backend_calls(number) - begun;
      if (calls < least) least = calls;
      if (i == TIMES - 1) CHECK(calls <= least + 2); /* a fill, and a wait for the fill */
    }
  CHECK_OK(oa_device_trim(number));
}

/* If there is no room for a sheet, the memory of each region is filled separately. */
static void zeros_keep_to_the_limit_of_memory(void) {
  enum { N = 64 << 10 };
  static unsigned char x[N];
  const int64_t limit = device->memory_limit;
  CHECK_OK(oa_device_trim(number));
  for (int64_t room = 2 * N; room <= 64 * N; room *= 4) {
    device->memory_limit = room;
    for (int i = 0; i < 70; i++) {
      pass_by_address(x, N, i + 1, i % 2);
      CHECK(device->counts.memory_used + device->spare_bytes <= room);
    }
    CHECK_OK(oa_device_trim(number));
  }
  device->memory_limit = limit;
}

/* Whichever call of the device fails, no memory is lost, and no other bytes are taken for zeros. */
static void zeros_outlive_failing_calls(void) {
  enum { N = 1000 };
  unsigned char x[N];
  CHECK_OK(oa_device_trim(number));
  const int64_t before = free_memory(), n = N;
  for (int64_t k = 1; k < 40; k++) {
    CHECK_OK(oa_sim_configure(number, 0, k, 0));
    for (int i = 0; i < 4; i++) {
      oa_array array = bytes_of(x, &n, OA_OUT);
      oa_region *region;
      uint64_t address;
      if (oa_region_enter(number, NULL, &array, 1, &region)) continue;
      if (!oa_address(array.handle, &address)) {
        CHECK(((char *)(uintptr_t)address)[0] == 0 && ((char *)(uintptr_t)address)[N - 1] == 0);
        memset((void *)(uintptr_t)address, 5, N);
      }
      oa_region_finish(region, OA_COMMIT, NULL);
      oa_region_wait(region);
    }
    CHECK_OK(oa_sim_configure(number, 0, 0, 0));
    CHECK_OK(oa_device_trim(number));
    CHECK(free_memory() == before && device->counts.memory_used == 0 && device->spare_bytes == 0);
  }
}

static void memory_that_is_exported_keeps_its_bytes(void) {
  enum { N = 64 << 10 };
  static unsigned char x[N];
  const int64_t n = N;
  oa_array array = bytes_of(x, &n, OA_OUT);
  oa_region *region;
  uint64_t address;
  void *keep;
  CHECK_OK(oa_region_enter(number, NULL, &array, 1, &region));
  fill_by_address(&array, n, 5);
  CHECK_OK(oa_export(array.handle, &address, &keep));
  leave(region, OA_COMMIT);
  CHECK(x[N - 1] == 5 && ((const char *)(uintptr_t)address)[N - 1] == 5);
  CHECK_OK(oa_export_release(keep));
}

/* -- threads that still copy --------------------------------------------------------------------------------------- */

/* to[0] = from[0], or to[0 .. 64) = value if from is NULL, after a while. */
typedef struct late {
  volatile unsigned char *to, *from;
  unsigned char value;
  unsigned us;
} late;

static void late_run(void *data) {
  late *l = data;
  usleep(l->us);
  if (l->to && l->from) l->to[0] = l->from[0];
  for (int i = 0; i < 64 && l->to && !l->from; i++) l->to[i] = l->value;
}

/* Makes a call that reads `from`, and writes to[0] unless `to` is NULL. */
static void late_copy(oa_any *to, oa_any *from, unsigned us) {
  oa_operand operands[] = {
      {.name = "from", .pointer = from, .access = OA_READ, .dtype = OA_U8, .extent = OA_ELEMENTS(64)},
      {.name = "to", .pointer = to, .access = OA_READ_WRITE, .dtype = OA_U8, .extent = OA_ELEMENTS(64)}};
  oa_call call = {.function = "test.late_copy", .operands = operands, .count = to ? 2 : 1};
  CHECK_OK(oa_begin(&call));
  late l = {to ? operands[1].address : NULL, operands[0].address, 0, us};
  CHECK_OK(oa_submit(&call, late_run, &l, sizeof l));
}

static void a_block_waits_for_who_has_its_address(int outcome) {
  unsigned char x[64] = {1}, y[64];
  uint64_t address;
  oa_array array;
  void *own = new_stream();
  memset(y, 2, sizeof y);
  oa_region *region = lend(&array, x, OA_BY_USE, 1);
  CHECK_OK(oa_address(array.handle, &address));
  late l = {.to = (unsigned char *)(uintptr_t)address, .value = 0xee, .us = 50000};
  CHECK_OK(device->backend->submit(device, own, late_run, &l, sizeof l));
  leave(region, outcome);
  region = lend(&array, y, OA_INOUT, 1);
  late_copy(NULL, array.handle, 80000);
  CHECK_OK(add(array.handle, 64, 1));
  leave(region, OA_COMMIT);
  CHECK(y[0] == 3 && y[63] == 3);
}

static void *wait_for(void *region) {
  CHECK_OK(oa_region_wait(region));
  return NULL;
}

/* Two regions that share a block are waited for at the same time, while a call in a third region reads the block. */
static void a_block_waits_for_all_that_use_it(void) {
  unsigned char x[64], y[64] = {0}, z[64];
  memset(x, 7, sizeof x);
  memset(z, 9, sizeof z);
  oa_array part, other, target, next;
  oa_region *first = lend(&part, x, OA_IN, 1), *second = lend(&other, x, OA_IN, 0),
            *third = lend(&target, y, OA_INOUT, 0);
  late_copy(NULL, part.handle, 40000);
  late_copy(NULL, other.handle, 40000);
  late_copy(target.handle, part.handle, 300000);
  CHECK_OK(oa_region_finish(first, OA_COMMIT, NULL));
  CHECK_OK(oa_region_finish(second, OA_COMMIT, NULL));
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, wait_for, first);
  pthread_create(&threads[1], NULL, wait_for, second);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  oa_region *last = lend(&next, z, OA_IN, 1);
  late_copy(NULL, next.handle, 1);
  leave(last, OA_COMMIT);
  leave(third, OA_COMMIT);
  CHECK(y[0] == 7);
}

static int is_capturing(oa_device *device, void *stream, int *capturing) {
  (void)device, (void)stream;
  *capturing = 1;
  return OA_OK;
}

static void a_captured_scalar_lives_as_long_as_its_region(void) {
  static oa_backend capturing;
  const oa_backend *usual = device->backend;
  unsigned char x[64] = {1};
  const unsigned char value = 7;
  const int64_t n = 64;
  uint64_t address;
  oa_array array = bytes_of(x, &n, OA_BY_USE);
  oa_region *region;
  oa_any *staged;
  const oa_region_options options = OA_SIZED(oa_region_options, .stream = new_stream(), .has_stream = 1);
  CHECK_OK(oa_region_enter(number, &options, &array, 1, &region));
  CHECK_OK(oa_address(array.handle, &address)); /* brings the array up */
  CHECK_OK(oa_stage(array.handle, &value, OA_U8, &staged));
  capturing = *usual;
  capturing.stream_capturing = is_capturing;
  device->backend = &capturing;
  oa_operand operand = {
      .name = "alpha", .pointer = staged, .access = OA_READ, .dtype = OA_U8, .extent = OA_ELEMENTS(1)};
  oa_call call = {.function = "test.captured", .operands = &operand, .count = 1};
  CHECK_OK(oa_begin(&call));
  const unsigned char *at = operand.address;
  CHECK_OK(oa_end(&call, 0));
  device->backend = usual;
  CHECK_OK(oa_pointer_release(staged));
  CHECK_OK(usual->synchronize(device));
  CHECK(*at == value);
  leave(region, OA_COMMIT);
}

int main(void) {
  open_device("sim:0");
  a_region_that_comes_again_asks_the_driver_for_nothing();
  memory_that_stays_is_as_strictly_watched();
  an_address_of_nothing_written_is_zeros_each_time();
  for (int64_t n = 40; n <= 256 << 10; n = 3 * n + 7)
    for (int beside = 0; beside <= (n <= 64 << 10); beside++) memory_of_an_address_is_zeros_each_time(n, beside);
  memory_of_an_address_is_zeros_each_time(256 << 10, false);
  pieces_of_zeros_are_as_strictly_watched();
  zeros_of_many_sizes_cost_one_fill_each();
  zeros_keep_to_the_limit_of_memory();
  zeros_outlive_failing_calls();
  memory_that_is_exported_keeps_its_bytes();
  for (int outcome = OA_COMMIT; outcome <= OA_KEEP; outcome++) a_block_waits_for_who_has_its_address(outcome);
  a_block_waits_for_all_that_use_it();
  a_captured_scalar_lives_as_long_as_its_region();
  return failures();
}
