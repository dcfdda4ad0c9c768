/* The transfer engine: every way that bytes travel, every size around the thresholds, every failing call, on host and
 * sim, and on cuda if there is one. */
#include "bytes.h"
#include "device/memory.h"
#include "device/staging.h"
#include "device/stream.h"
#include "library/library.h"
#include "region/mapping.h"
#include "transfer/transfer.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* -- arrays of every kind ------------------------------------------------------------------------------------------ */

enum { GUARD = 0x5c };

/* A host array inside a buffer. All other bytes of the buffer must stay unchanged. */
struct array {
  unsigned char *buffer;
  size_t nbytes; /* size of the buffer */
  oa_move move;
  oa_shape shape;
  int64_t extents[2], strides[2];
  size_t device_bytes;
  uint64_t address;
};

static unsigned char value_of(size_t i, int seed) {
  return (unsigned char)(i * 7 + (i >> 8) * 3 + (size_t)seed * 31 + 1);
}

static struct array array_of(oa_lines lines, bool irregular, const char *name) {
  struct array a = {.nbytes = (size_t)oa_lines_span(lines) + 64};
  a.device_bytes = (size_t)(irregular ? oa_lines_bytes(lines) : oa_lines_span(lines));
  a.move = (oa_move){.lines = lines, .name = name};
  if (irregular) { /* lines of elements of 4 bytes that the device holds without gaps */
    a.shape = (oa_shape){.ndim = 2, .itemsize = 4};
    a.extents[0] = lines.count;
    a.extents[1] = lines.width / 4;
    a.strides[0] = lines.pitch;
    a.strides[1] = 4;
    const int64_t bytes = oa_lines_bytes(lines);
    a.move.lines = (oa_lines){0, bytes, bytes, 1};
  }
  a.buffer = malloc(a.nbytes);
  return a;
}

/* Returns the array's move. The struct may have been copied since array_of, so its pointers are set here. */
static oa_move move_of(struct array *a, uint64_t address) {
  oa_move move = a->move;
  if (a->shape.ndim) {
    a->shape.shape = a->extents;
    a->shape.strides = a->strides;
    move.irregular = &a->shape;
  }
  move.host = a->buffer + 32;
  move.address = address;
  return move;
}

/* Returns whether byte i of the buffer belongs to the array. */
static bool own_byte(const struct array *a, size_t i) {
  const oa_lines *l = &a->move.lines;
  if (i < 32 || i >= a->nbytes - 32) return false;
  i -= 32;
  const int64_t pitch = a->shape.ndim ? a->strides[0] : l->pitch, width = a->shape.ndim ? a->extents[1] * 4 : l->width;
  return (int64_t)i % pitch < width || (!a->shape.ndim && l->count == 1);
}

static void set(struct array *a, int seed) {
  for (size_t i = 0; i < a->nbytes; i++) a->buffer[i] = own_byte(a, i) ? value_of(i, seed) : GUARD;
}

/* Returns 1 if all bytes of the array have the values of that seed, and no other byte of the buffer was written. */
static int holds(const struct array *a, int seed) {
  for (size_t i = 0; i < a->nbytes; i++)
    if (a->buffer[i] != (own_byte(a, i) ? value_of(i, seed) : GUARD)) return 0;
  return 1;
}

/* -- round trips -------------------------------------------------------------------------------------------------- */

static void up_and_down(void *stream, struct array *arrays, int count) {
  oa_move moves[16];
  for (int i = 0; i < count; i++) {
    CHECK_OK(oa_device_allocate(device, stream, arrays[i].device_bytes, &arrays[i].address));
    set(&arrays[i], 1 + i);
    moves[i] = move_of(&arrays[i], arrays[i].address);
  }
  CHECK_OK(oa_transfer_up(device, stream, moves, count));
  for (int i = 0; i < count; i++) set(&arrays[i], 100 + i); /* oa_transfer_up has read the arrays */
  for (int i = 0; i < count; i++) moves[i] = move_of(&arrays[i], arrays[i].address);
  CHECK_OK(oa_transfer_down(device, stream, moves, count));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  for (int i = 0; i < count; i++) CHECK(holds(&arrays[i], 100 + i)); /* nothing arrives before oa_transfer_settle */
  CHECK_OK(oa_transfer_settle(device, stream, moves, count));
  for (int i = 0; i < count; i++) CHECK(holds(&arrays[i], 1 + i));
  for (int i = 0; i < count; i++) CHECK_OK(oa_device_free(device, stream, arrays[i].address, arrays[i].device_bytes));
}

static void every_size_around_the_seams(void *stream) {
  const int64_t seams[] = {1, 64, 512, 4096, 8192, 3 * 4096, 64 << 10, 256 << 10};
  for (size_t s = 0; s < sizeof seams / sizeof seams[0]; s++)
    for (int64_t off = -1; off <= 1; off++) {
      const int64_t n = seams[s] + off;
      if (n < 1) continue;
      struct array a = array_of((oa_lines){0, n, n, 1}, false, "a");
      up_and_down(stream, &a, 1);
      free(a.buffer);
    }
}

static void lines_and_packed_arrays(void *stream) {
  const oa_lines cases[] = {{0, 4, 8, 3},       {0, 12, 16, 5},     {0, 4, 4096, 40},
                            {0, 100, 128, 700}, {0, 4096, 5000, 9}, {0, 4100, 4104, 11},
                            {0, 9000, 9004, 7}, {0, 4, 12, 9000},   {0, 20000, 30000, 3}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
    for (int irregular = 0; irregular < 2; irregular++) {
      struct array a = array_of(cases[c], irregular, "a");
      up_and_down(stream, &a, 1);
      free(a.buffer);
    }
}

static void batches_of_everything(void *stream) {
  struct array a[] = {array_of((oa_lines){0, 10, 10, 1}, false, "ten"),
                      array_of((oa_lines){0, 70000, 70000, 1}, false, "large"),
                      array_of((oa_lines){0, 16, 24, 10}, false, "lines"),
                      array_of((oa_lines){0, 12, 20, 10}, true, "packed"),
                      array_of((oa_lines){0, 8000, 8004, 30}, false, "large lines"),
                      array_of((oa_lines){0, 400, 404, 300}, true, "large packed"),
                      array_of((oa_lines){0, 1, 1, 1}, false, "one")};
  const int count = (int)(sizeof a / sizeof a[0]);
  for (int from = 0; from < count; from++) up_and_down(stream, a + from, count - from);
  for (int i = 0; i < count; i++) free(a[i].buffer);
}

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

/* -- failures ----------------------------------------------------------------------------------------------------- */

enum { FAILING = 4 };

static void failing_arrays(struct array *a) {
  a[0] = array_of((oa_lines){0, 100, 100, 1}, false, "small");
  a[1] = array_of((oa_lines){0, 30000, 30000, 1}, false, "large");
  a[2] = array_of((oa_lines){0, 3000, 3004, 8}, false, "lines");
  a[3] = array_of((oa_lines){0, 3000, 3004, 8}, true, "packed");
}

/* Makes a transfer that fails. If `fail` is k, the k-th call fails; -k: the device is lost in the k-th call. Returns
 * whether call k was reached. */
static bool fail_once(void *stream, struct array *a, int64_t fail, bool down) {
  oa_move moves[FAILING];
  for (int i = 0; i < FAILING; i++) {
    CHECK_OK(oa_device_allocate(device, stream, a[i].device_bytes, &a[i].address));
    set(&a[i], i);
    moves[i] = move_of(&a[i], a[i].address);
  }
  int status = OA_OK;
  const int64_t k = fail < 0 ? -fail : fail;
  int64_t before;
  if (!down) {
    CHECK_OK(oa_sim_configure(number, 0, fail, 0));
    before = oa_sim_backend_calls(number);
    status = oa_transfer_up(device, stream, moves, FAILING);
    for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], i));
  } else {
    CHECK_OK(oa_transfer_up(device, stream, moves, FAILING));
    for (int i = 0; i < FAILING; i++) {
      set(&a[i], 100 + i);
      moves[i] = move_of(&a[i], a[i].address);
    }
    CHECK_OK(oa_sim_configure(number, 0, fail, 0));
    before = oa_sim_backend_calls(number);
    status = oa_transfer_down(device, stream, moves, FAILING);
    if (!status) {
      status = device->backend->stream_synchronize(device, stream);
      for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], 100 + i));
      if (status)
        oa_transfer_cancel(device, moves, FAILING, false);
      else
        status = oa_transfer_settle(device, stream, moves, FAILING);
    }
  }
  char text[1024];
  snprintf(text, sizeof text, "%s", oa_last_error());
  atomic_store(&device->lost, 0);
  const bool reached = oa_sim_backend_calls(number) - before >= k;
  CHECK_OK(oa_sim_configure(number, 0, 0, 0));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  if (!reached) CHECK(status == OA_OK);
  if (down) {
    int old = 0, new = 0, torn = 0;
    for (int i = 0; i < FAILING; i++) {
      const int is_new = holds(&a[i], i), is_old = holds(&a[i], 100 + i);
      new += is_new;
      old += is_old;
      torn += !is_new && !is_old;
      if (status == OA_ERROR_TORN) CHECK(strstr(text, a[i].move.name));
    }
    if (status == OA_OK) CHECK(new == FAILING);
    if (status == OA_ERROR_TORN) CHECK(fail < 0); /* after a single failure there is a fallback */
    if (status && status != OA_ERROR_TORN) CHECK(old == FAILING);
    if (torn) CHECK(strstr(text, "torn"));
  } else if (status == OA_OK) { /* a fallback succeeded: all bytes are on the device */
    for (int i = 0; i < FAILING; i++) {
      set(&a[i], 50);
      moves[i] = move_of(&a[i], a[i].address);
    }
    CHECK_OK(oa_transfer_down(device, stream, moves, FAILING));
    CHECK_OK(device->backend->stream_synchronize(device, stream));
    CHECK_OK(oa_transfer_settle(device, stream, moves, FAILING));
    for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], i));
  }
  for (int i = 0; i < FAILING; i++) CHECK_OK(oa_device_free(device, stream, a[i].address, a[i].device_bytes));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  return reached;
}

/* Promise T01. */
static void every_failing_call_leaves_arrays_whole(void *stream) {
  struct array a[FAILING];
  failing_arrays(a);
  for (int down = 0; down < 2; down++)
    for (int lost = 0; lost < 2; lost++) {
      int k = 1, missed = 0;
      for (; missed < 3 && k < 400; k++) missed = fail_once(stream, a, lost ? -k : k, down) ? 0 : missed + 1;
      CHECK(k < 400);
    }
  for (int i = 0; i < FAILING; i++) free(a[i].buffer);
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
    for (int64_t i = 0; i < n; i++) CHECK(x[i] == (unsigned char)(seed + round));
    for (int64_t i = 0; i < m; i++) CHECK(y[i] == (unsigned char)(seed + 2));
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

/* -- settings, each in a process of its own ----------------------------------------------------------------------- */

static void tune(int64_t small, int64_t chunk) {
  oa_tuning.past_least = chunk;
  oa_tuning.past_most = 8 * chunk; /* so that only some transfers bypass the caches */
  oa_tuning.small = small;
  oa_tuning.alone_most = chunk / 2;
  oa_tuning.chunk_least = oa_tuning.chunk_most = chunk;
  oa_tuning.part_least = 1024;
  oa_tuning.split_least = chunk;
}

/* Promise T34. */
static void without_pinned_memory(void) {
  open_device("sim:0");
  tune(512, 4096);
  void *stream = new_stream(), *memory;
  CHECK_OK(oa_set_threads(3));
  every_size_around_the_seams(stream);
  lines_and_packed_arrays(stream);
  batches_of_everything(stream);
  const char *warning = oa_take_warning();
  CHECK(warning && strstr(warning, "pinned") && strstr(warning, "OFFLOAD_ARGS_PINNED_LIMIT"));
  CHECK(oa_take_warning() == NULL);
  batches_of_everything(stream);
  CHECK(oa_take_warning() == NULL);
  CHECK_FAILS(oa_pinned_allocate(number, 10, &memory), OA_ERROR_MEMORY, "limit 0");
  CHECK_OK(oa_sim_configure(number, 0, 0, 0));
}

/* More threads than blocks, and batches that are cancelled: no thread waits for a block that is never returned. */
static void with_few_blocks(void) {
  open_device("sim:0");
  tune(64, 4096);
  CHECK_OK(oa_set_threads(16));
  void *stream = new_stream();
  const int64_t n = 4096 * 100;
  uint64_t address;
  char *x = calloc(1, (size_t)n);
  CHECK_OK(oa_device_allocate(device, stream, (size_t)n, &address));
  alarm(600);
  for (int round = 0; round < 400; round++) {
    oa_move move = {.host = x, .address = address, .lines = {0, n, n, 1}, .name = "x"};
    const int k = 1 + round * 7 % 60, delay = round % 3 ? 0 : 20;
    if (round % 2) CHECK_OK(oa_transfer_down(device, stream, &move, 1));
    CHECK_OK(oa_sim_configure(number, 0, round % 4 < 2 ? k : -k, delay));
    if (round % 2)
      oa_transfer_settle(device, stream, &move, 1);
    else
      oa_transfer_up(device, stream, &move, 1);
    atomic_store(&device->lost, 0);
    CHECK_OK(oa_sim_configure(number, 0, 0, 0));
    CHECK_OK(device->backend->stream_synchronize(device, stream));
  }
  free(x);
}

static void with_a_memory_limit(void) {
  open_device("sim:0");
  static unsigned char x[1 << 20], y[1 << 20];
  const int64_t n = 600000;
  oa_array arrays[] = {bytes_of(x, &n, OA_INOUT), bytes_of(y, &n, OA_INOUT)};
  oa_region *region;
  CHECK_FAILS(oa_region_enter(number, NULL, arrays, 2, &region), OA_ERROR_MEMORY, "limit 1.00 MiB (");
  CHECK(strstr(oa_last_error(), "600000 bytes requested") && strstr(oa_last_error(), "600000 bytes used"));
  for (int i = 0; i < 5; i++) {
    CHECK_OK(oa_region_enter(number, NULL, arrays, 1, &region));
    CHECK_OK(add(arrays[0].handle, n, 1));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
  }
  CHECK(x[n - 1] == 5);
  CHECK(device->counts.memory_used == 0 && device->counts.memory_peak == 600000);
  const int64_t more = 700000; /* idle memory of the last region is freed */
  arrays[0] = bytes_of(x, &more, OA_INOUT);
  CHECK_OK(oa_region_enter(number, NULL, arrays, 1, &region));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
}

static void with_nonsense(const char *variable) {
  CHECK_FAILS(oa_device_open("host", &number), OA_ERROR_ARGUMENT, variable);
  CHECK_FAILS(oa_device_open("sim:0", &number), OA_ERROR_ARGUMENT, variable);
}

/* Runs this program again with one variable set. */
static void again(const char *program, const char *variable, const char *value, const char *case_name) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value, 1);
    execl(program, program, case_name, variable, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void settings(const char *program) {
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "0", "unpinned");
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "4MiB", "few");
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "8MiB", "few");
  again(program, "OFFLOAD_ARGS_MEMORY_LIMIT", "1MiB", "limit");
  const char *const nonsense[][2] = {{"OFFLOAD_ARGS_MEMORY_LIMIT", "plenty"}, {"OFFLOAD_ARGS_MEMORY_LIMIT", "-1"},
                                     {"OFFLOAD_ARGS_MEMORY_LIMIT", "101%"},   {"OFFLOAD_ARGS_MEMORY_LIMIT", "1 QB"},
                                     {"OFFLOAD_ARGS_PINNED_LIMIT", "inf"},    {"OFFLOAD_ARGS_MEMORY_LIMIT", "1e3"},
                                     {"OFFLOAD_ARGS_THREADS", "many"},        {"OFFLOAD_ARGS_THREADS", "0"}};
  for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
    again(program, nonsense[i][0], nonsense[i][1], "nonsense");
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

int main(int argc, char **argv) {
  if (argc == 3) {
    if (strcmp(argv[1], "unpinned") == 0) without_pinned_memory();
    if (strcmp(argv[1], "few") == 0) with_few_blocks();
    if (strcmp(argv[1], "limit") == 0) with_a_memory_limit();
    if (strcmp(argv[1], "nonsense") == 0) with_nonsense(argv[2]);
    return failures();
  }
  settings(argv[0]);
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
    CHECK_OK(oa_device_open("sim:1", &number));
    CHECK_OK(oa_sim_configure(number, 0, 0, 20));
    open_device("sim:0");
    every_failing_call_leaves_arrays_whole(new_stream());
  }
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
