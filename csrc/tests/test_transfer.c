/* The transfer engine: every way that bytes travel and every size around the thresholds, on host and sim, and on GPUs
 * if there are any. */
#include "base/threads.h"
#include "device/staging.h"
#include "device/stream.h"
#include "library/library.h"
#include "region/mapping.h"
#include "transfer/prefault.h"
#include "transfers.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* Returns how many backend calls bring neighbours in one or two allocations up and down again. */
static int64_t calls_for_neighbours(void *stream, int allocations) {
  enum { COUNT = 5 };
  int64_t calls = 0;
  struct array a[COUNT];
  oa_move moves[COUNT];
  uint64_t address;
  const int64_t sizes[COUNT] = {8, 300, 256, 100, 24};
  CHECK_OK(oa_device_allocate(device, stream, 2048, &address));
  for (int round = 0; round < 2; round++) {
    uint64_t at = address;
    for (int i = 0; i < COUNT; i++) {
      if (!round) a[i] = array_of((oa_lines){0, sizes[i], sizes[i], 1}, false, "a");
      set(&a[i], round ? 50 + i : i);
      moves[COUNT - 1 - i] = move_of(&a[i], at); /* the moves are not sorted by address */
      moves[COUNT - 1 - i].padding = -sizes[i] & 255;
      moves[COUNT - 1 - i].allocation = &a[i < 2 && allocations == 2];
      at += (uint64_t)(sizes[i] + 255) & ~(uint64_t)255;
    }
    const int64_t before = device->backend->flags & OA_DEVICE_SIMULATED ? oa_sim_backend_calls(number) : 0;
    if (!round) {
      CHECK_OK(oa_transfer_up(device, stream, moves, COUNT));
    } else {
      CHECK_OK(oa_transfer_down(device, stream, moves, COUNT));
    }
    if (device->backend->flags & OA_DEVICE_SIMULATED) calls += oa_sim_backend_calls(number) - before;
    if (!round) continue;
    CHECK_OK(device->backend->stream_synchronize(device, stream));
    CHECK_OK(oa_transfer_settle(device, stream, moves, COUNT));
    for (int i = 0; i < COUNT; i++) CHECK(holds(&a[i], i));
  }
  for (int i = 0; i < COUNT; i++) free(a[i].buffer);
  CHECK_OK(oa_device_free(device, stream, address, 2048));
  return calls;
}

/* Neighbours in one allocation are one copy, also with padding between them. Neighbours in two allocations are two
 * copies, because a driver refuses copies that cross from one allocation to the next. */
static void neighbours_travel_together(void *stream) {
  calls_for_neighbours(stream, 1); /* makes the block and the events that later calls use */
  const int64_t together = calls_for_neighbours(stream, 1);
  const int64_t apart = calls_for_neighbours(stream, 2);
  CHECK(!(device->backend->flags & OA_DEVICE_SIMULATED) || (together <= 8 && apart == together + 2));
}

static void pinned_memory_goes_directly(void *stream) {
  const size_t n = 300000;
  void *memory = NULL;
  uint64_t address;
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(number, &before));
  CHECK_OK(oa_pinned_allocate(number, n, &memory));
  CHECK_OK(oa_device_get_counters(number, &after));
  CHECK(after.pinned_bytes - before.pinned_bytes == (int64_t)n);
  CHECK_OK(oa_device_allocate(device, stream, n, &address));
  memset(memory, 3, n);
  oa_move move = {.host = memory, .address = address, .lines = {0, (int64_t)n, (int64_t)n, 1}};
  CHECK_OK(oa_transfer_up(device, stream, &move, 1));
  memset(memory, 4, n);
  move = (oa_move){.host = memory, .address = address, .lines = {0, (int64_t)n, (int64_t)n, 1}};
  CHECK_OK(oa_transfer_down(device, stream, &move, 1));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  CHECK(((char *)memory)[n / 2] == 4);
  CHECK_OK(oa_transfer_settle(device, stream, &move, 1));
  CHECK(((char *)memory)[0] == 3 && ((char *)memory)[n / 2] == 3 && ((char *)memory)[n - 1] == 3);
  CHECK_OK(oa_device_free(device, stream, address, n));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  CHECK_OK(oa_pinned_free(number, memory, n));
  CHECK_OK(oa_device_get_counters(number, &after));
  CHECK(after.pinned_bytes == before.pinned_bytes);
  CHECK_OK(oa_pinned_free(number, NULL, 0));
  CHECK_FAILS(oa_pinned_allocate(number, 0, &memory), OA_ERROR_ARGUMENT, "nbytes");
}

/* -- regions ------------------------------------------------------------------------------------------------------ */

static void small_arguments_share_an_allocation(void) {
  unsigned char x[3][40];
  const int64_t n = 40;
  oa_array arrays[3];
  oa_region *region;
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  for (int i = 0; i < 3; i++) {
    memset(x[i], i, 40);
    arrays[i] = bytes_of(x[i], &n, OA_INOUT);
  }
  CHECK_OK(oa_device_get_counters(number, &before));
  CHECK_OK(oa_region_enter(number, NULL, arrays, 3, &region));
  CHECK_OK(oa_device_get_counters(number, &after));
  CHECK(after.allocations == before.allocations + 1);
  CHECK(after.memory_used - before.memory_used == 3 * 256 && after.memory_peak >= after.memory_used);
  for (int i = 0; i < 3; i++) CHECK_OK(add(arrays[i].handle, n, 10));
  CHECK(add(arrays[0].handle, n + 1, 10) == OA_ERROR_EXTENT);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  for (int i = 0; i < 3; i++) CHECK(x[i][0] == 10 + i && x[i][39] == 10 + i);
  CHECK_OK(oa_device_get_counters(number, &after));
  CHECK(after.allocations - before.allocations == 1 && after.frees - before.frees == 1);
  CHECK(after.memory_used == before.memory_used);
}

static void small_arguments_used_once_need_no_device_memory(void) {
  unsigned char x[3][40], y[40000];
  const int64_t n = 40, m = sizeof y;
  const bool in_place = device->backend->flags & OA_PINNED_IN_PLACE;
  for (int outcome = OA_COMMIT; outcome <= OA_DISCARD; outcome++) {
    oa_array arrays[4];
    oa_region *region;
    oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
    for (int i = 0; i < 3; i++) {
      memset(x[i], i, 40);
      arrays[i] = bytes_of(x[i], &n, OA_INOUT);
    }
    memset(y, 3, sizeof y);
    arrays[3] = bytes_of(y, &m, OA_BY_USE);
    const oa_region_options options = OA_SIZED(oa_region_options, .single_use = 1);
    CHECK_OK(oa_device_get_counters(number, &before));
    CHECK_OK(oa_region_enter(number, &options, arrays, 4, &region));
    CHECK_OK(oa_device_get_counters(number, &after));
    if (in_place) CHECK(after.allocations == before.allocations && after.memory_used == before.memory_used);
    for (int i = 0; i < 4; i++) CHECK_OK(add(arrays[i].handle, i < 3 ? n : m, 10));
    CHECK_OK(add(arrays[0].handle, n, 10));
    CHECK(x[0][0] == 0 && x[2][39] == 2 && y[m - 1] == 3); /* nothing reaches the arrays before the region is left */
    CHECK_OK(oa_region_finish(region, outcome, NULL));
    CHECK_OK(oa_region_wait(region));
    const unsigned char by = outcome == OA_COMMIT ? 10 : 0;
    for (int i = 0; i < 3; i++) CHECK(x[i][0] == i + (i ? by : 2 * by) && x[i][39] == x[i][0]);
    CHECK(y[0] == 3 + by && y[m - 1] == 3 + by);
    CHECK_OK(oa_device_get_counters(number, &after));
    CHECK(after.allocations - before.allocations == after.frees - before.frees);
  }
}

/* Lends two arrays that calls read many times and an array that calls write, in a region with single_use. */
static void what_is_read_many_times_is_copied(int64_t each, bool copied, int outcome) {
  static unsigned char x[3][40000];
  const bool in_place = device->backend->flags & OA_PINNED_IN_PLACE;
  const oa_region_options options = OA_SIZED(oa_region_options, .single_use = 1);
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  const int64_t n = 40000;
  oa_array arrays[3];
  oa_region *region;
  for (int i = 0; i < 3; i++) {
    memset(x[i], i, sizeof x[i]);
    arrays[i] = bytes_of(x[i], i < 2 ? &each : &n, OA_BY_USE);
    arrays[i].flags = i < 2 ? OA_REUSED : 0;
  }
  CHECK_OK(oa_device_get_counters(number, &before));
  CHECK_OK(oa_region_enter(number, &options, arrays, 3, &region));
  CHECK_OK(oa_device_get_counters(number, &after));
  const int64_t arena = copied ? 2 * ((each + 255) / 256 * 256) : 0;
  if (in_place) CHECK(after.memory_used - before.memory_used == arena);
  CHECK_OK(add(arrays[2].handle, n, 10));
  CHECK_OK(add(arrays[1].handle, each, 10)); /* a call writes one of the arrays nevertheless */
  CHECK_OK(oa_region_finish(region, outcome, NULL));
  CHECK_OK(oa_region_wait(region));
  const unsigned char by = outcome == OA_COMMIT ? 10 : 0;
  CHECK(x[0][0] == 0 && x[0][each - 1] == 0 && x[1][0] == 1 + by && x[1][each - 1] == 1 + by);
  CHECK(x[2][0] == 2 + by && x[2][n - 1] == 2 + by);
  CHECK_OK(oa_device_get_counters(number, &after));
  CHECK(after.allocations - before.allocations == after.frees - before.frees);
}

static void results_of_a_single_use_stay_in_place_beside_operands_that_are_copied(void) {
  for (int outcome = OA_COMMIT; outcome <= OA_DISCARD; outcome++) {
    what_is_read_many_times_is_copied(4000, false, outcome);
    what_is_read_many_times_is_copied(20000, true, outcome);
    what_is_read_many_times_is_copied(40000, true, outcome);
  }
}

/* -- threads that still copy --------------------------------------------------------------------------------------- */

/* Bytes that a region has yet to bring down come down before another region may write them. */
static void a_region_that_was_left_keeps_its_bytes(int64_t n) {
  unsigned char *x = malloc((size_t)n);
  memset(x, 1, (size_t)n);
  oa_array first = bytes_of(x, &n, OA_BY_USE), second = first;
  oa_region *left, *right;
  CHECK_OK(oa_region_enter(number, NULL, &first, 1, &left));
  CHECK_OK(add(first.handle, n, 1));
  CHECK_OK(oa_region_finish(left, OA_COMMIT, NULL));
  CHECK_OK(oa_region_enter(number, NULL, &second, 1, &right));
  CHECK_OK(add(second.handle, n, 10));
  CHECK(x[0] == 2 && x[n - 1] == 2);
  CHECK_OK(oa_region_finish(right, OA_DISCARD, NULL));
  CHECK_OK(oa_region_wait(right));
  CHECK_OK(oa_region_wait(left));
  CHECK(x[0] == 2 && x[n - 1] == 2);
  free(x);
}

BY_RANGE static bool all_are(const unsigned char *bytes, int64_t n, unsigned char value) {
  reads(bytes, n);
  int64_t i = 0;
  while (i < n && bytes[i] == value) i++;
  return i == n;
}

static void *many_transfers(void *data) {
  const int seed = *(int *)data;
  const int64_t sizes[] = {10, 700, 5000, 40000, 200000};
  for (int round = 0; round < 10; round++) {
    const int64_t n = sizes[(round + seed) % 5], m = sizes[(round * 3 + seed) % 5];
    unsigned char *x = malloc((size_t)n), *y = malloc((size_t)m);
    memset(x, seed, (size_t)n);
    memset(y, seed + 1, (size_t)m);
    oa_array arrays[] = {bytes_of(x, &n, OA_BY_USE), bytes_of(y, &m, OA_BY_USE)};
    oa_region *region;
    CHECK_OK(oa_region_enter(number, NULL, arrays, 2, &region));
    CHECK_OK(add(arrays[0].handle, n, round));
    CHECK_OK(add(arrays[1].handle, m, 1));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
    CHECK(all_are(x, n, (unsigned char)(seed + round)));
    CHECK(all_are(y, m, (unsigned char)(seed + 2)));
    if (seed == 5) CHECK_OK(oa_device_trim(number));
    free(x);
    free(y);
  }
  return NULL;
}

/* Promise T17. */
static void many_threads_transfer_at_once(void) {
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  int seeds[THREADS];
  for (int i = 0; i < THREADS; i++) {
    seeds[i] = i;
    pthread_create(&threads[i], NULL, many_transfers, &seeds[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* Forked children print nothing, take no lock, and end normally. */
static void forks_are_silent(void) {
  for (int i = 0; i < 3; i++) {
    const pid_t child = fork();
    if (child == 0) {
      void *memory;
      const int reported =
          oa_pinned_allocate(number, 10, &memory) == OA_ERROR_FORKED && oa_set_threads(2) == OA_ERROR_FORKED;
#ifdef __SANITIZE_ADDRESS__
      _exit(!reported); /* ends without the search for leaks, which looks for threads that only the parent has */
#else
      exit(!reported);
#endif
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static void *keep_transferring(void *data) {
  many_transfers(data);
  return NULL;
}

/* Promise T21. */
static void forks_amid_transfers_are_silent(void) {
  pthread_t threads[2];
  int seeds[2] = {3, 4};
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, keep_transferring, &seeds[i]);
  forks_are_silent();
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* A result that is about to come down: new pages of the program. */
struct result {
  unsigned char *pages, *array; /* the array begins and ends within a page */
  size_t nbytes;
};

enum { RESULT_PAGES = 2000, RESULT_PAGE = 4096 };

static int count_present(const struct result *r) {
  unsigned char present[RESULT_PAGES];
  int count = 0;
  CHECK(mincore(r->pages, sizeof present * RESULT_PAGE, present) == 0);
  for (int i = 0; i < RESULT_PAGES; i++) count += present[i] & 1;
  return count;
}

/* Waits until all pages of the result but the first and the last one are present, at most 20 s. */
static int wait_for_pages(void *data) {
  for (time_t end = time(NULL) + 20; count_present(data) < RESULT_PAGES - 2 && time(NULL) < end;) sched_yield();
  return 17;
}

static int wait_for_nothing(void *data) {
  (void)data;
  return 18;
}

static void enter(void *data) {
  atomic_int *const entered = data;
  atomic_fetch_add(entered, 1);
  for (time_t end = time(NULL) + 20; atomic_load(entered) < 2 && time(NULL) < end;) sched_yield();
}

/* Does work for two threads on the device. Returns the number of threads that did it. */
static int work_during_the_wait(void *data) {
  (void)data;
  atomic_int entered = 0;
  oa_threads_run(device, enter, &entered, 2);
  return atomic_load(&entered);
}

/* Pages of results are there before the copies down, and their bytes stay as they are. */
static void pages_of_results_are_touched_during_the_wait(void) {
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  struct result r = {.pages = mmap(NULL, (size_t)RESULT_PAGES * RESULT_PAGE, protection, flags, -1, 0)};
  CHECK(r.pages != MAP_FAILED);
  madvise(r.pages, (size_t)RESULT_PAGES * RESULT_PAGE, MADV_NOHUGEPAGE); /* a touch makes one page */
  r.nbytes = (size_t)(RESULT_PAGES - 2) * RESULT_PAGE - 200;
  r.array = r.pages + RESULT_PAGE + 100;
  const int64_t n = (int64_t)r.nbytes;
  oa_move moves[3] = {{.host = r.array, .lines = {0, n, n, 1}}};
  moves[1] = moves[2] = moves[0];
  moves[0].coherent = true; /* not copied, and not touched */
  moves[1].lines = (oa_lines){0, n / 2000, n / 1000, 1000};
  CHECK(oa_prefault_during(moves, 2, wait_for_nothing, &r) == 18);
  CHECK(count_present(&r) == 0);
  r.array[5000] = 77;
  CHECK(oa_prefault_during(&moves[2], 1, wait_for_pages, &r) == 17);
  CHECK(count_present(&r) == RESULT_PAGES - 2);
  for (size_t i = 0; i < r.nbytes; i++) CHECK(r.array[i] == (i == 5000 ? 77 : 0));
  CHECK(oa_prefault_during(&moves[2], 1, wait_for_nothing, &r) == 18);
  CHECK_OK(oa_set_threads(2)); /* a thread that waits is none of the two that may copy for the device */
  CHECK(oa_prefault_during(&moves[2], 1, work_during_the_wait, &r) == 2);
  CHECK_OK(oa_set_threads(4));
  munmap(r.pages, (size_t)RESULT_PAGES * RESULT_PAGE);
}

static void everything(const char *name) {
  open_device(name);
  void *stream = new_stream();
  every_size_around_the_seams(stream);
  lines_and_packed_arrays(stream);
  batches_of_everything(stream);
  neighbours_travel_together(stream);
  pinned_memory_goes_directly(stream);
  if (!(device->backend->flags & OA_DEVICE_HOST_CALLS)) return;
  small_arguments_share_an_allocation();
  small_arguments_used_once_need_no_device_memory();
  results_of_a_single_use_stay_in_place_beside_operands_that_are_copied();
  a_region_that_was_left_keeps_its_bytes(1000);
  a_region_that_was_left_keeps_its_bytes(300000);
  many_threads_transfer_at_once();
}

int main(void) {
  const struct oa_tuning usual = oa_tuning;
  if (on_doubles()) {
    tune(512, 4096);
    everything("sim:0");
    oa_tuning = usual;
    everything("sim:0");
    return failures();
  }
  for (int threads = 1; threads <= 4; threads += 3) {
    CHECK_OK(oa_set_threads(threads));
    tune(512, 4096);
    everything("host");
    everything("sim:0");
  }
  pages_of_results_are_touched_during_the_wait();
  CHECK_OK(oa_device_open("sim:1", &number));
  CHECK_OK(oa_sim_configure(number, 0, 0, 20));
  everything("sim:1");
  oa_tuning = usual;
  everything("host");
  everything("sim:0");
  const char *const gpus[][2] = {{"cuda", "cuda:0"}, {"hip", "hip:0"}};
  for (int i = 0, devices = 0; i < 2; i++)
    if (oa_device_count(gpus[i][0], &devices) == OA_OK && devices) everything(gpus[i][1]);
  open_device("sim:0");
  forks_amid_transfers_are_silent();
  return failures();
}
