#include "base/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A bounded queue of many writers and readers without a lock: a cell's turn says whose it is. At position p a writer may
 * fill the cell whose turn is p and makes it p + 1; a reader may empty it then and makes it p + CELLS. A full queue
 * loses the event and counts it: nobody ever waits for who looks. */
enum { CELLS = 1 << 15 };

typedef struct cell {
  _Atomic uint64_t turn;
  oa_trace_event event;
} cell;

static _Atomic(cell *) cells; /* made when the first trace starts, kept for good: a writer may be late */
static _Atomic uint64_t next_written, next_read;
static _Atomic int64_t dropped;

atomic_int oa_tracing;

int64_t oa_trace_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int32_t this_thread(void) {
  static _Thread_local int32_t number;
  if (!number) number = (int32_t)syscall(SYS_gettid);
  return number;
}

static void push(const oa_trace_event *event) {
  cell *ring = atomic_load_explicit(&cells, memory_order_acquire);
  uint64_t position = atomic_load_explicit(&next_written, memory_order_relaxed);
  if (!ring) return;
  for (;;) {
    cell *mine = &ring[position % CELLS];
    const uint64_t turn = atomic_load_explicit(&mine->turn, memory_order_acquire);
    if (turn == position) {
      if (!atomic_compare_exchange_weak_explicit(&next_written, &position, position + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
        continue;
      mine->event = *event;
      atomic_store_explicit(&mine->turn, position + 1, memory_order_release);
      return;
    }
    if (turn < position) { /* not read yet since the last time round */
      atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
      return;
    }
    position = atomic_load_explicit(&next_written, memory_order_relaxed);
  }
}

static bool pop(oa_trace_event *event) {
  cell *ring = atomic_load_explicit(&cells, memory_order_acquire);
  uint64_t position = atomic_load_explicit(&next_read, memory_order_relaxed);
  if (!ring) return false;
  for (;;) {
    cell *mine = &ring[position % CELLS];
    const uint64_t turn = atomic_load_explicit(&mine->turn, memory_order_acquire);
    if (turn == position + 1) {
      if (!atomic_compare_exchange_weak_explicit(&next_read, &position, position + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
        continue;
      *event = mine->event;
      atomic_store_explicit(&mine->turn, position + CELLS, memory_order_release);
      return true;
    }
    if (turn < position + 1) return false;
    position = atomic_load_explicit(&next_read, memory_order_relaxed);
  }
}

int oa_trace_set(int flags) {
  const int status = oa_core_start();
  if (status) return status;
  if (flags & ~(OA_TRACE_ON | OA_TRACE_CHECKSUMS))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_trace_set: flags needs a sum of oa_trace_flags, got %d", flags);
  if (flags && !atomic_load(&cells)) {
    cell *made = malloc(CELLS * sizeof *made), *none = NULL;
    if (!made) return oa_fail(OA_ERROR_MEMORY, "oa_trace_set: no host memory for %d events", CELLS);
    for (uint64_t i = 0; i < CELLS; i++) atomic_init(&made[i].turn, i);
    if (!atomic_compare_exchange_strong(&cells, &none, made)) free(made); /* another thread was faster */
  }
  atomic_store(&oa_tracing, flags);
  return OA_OK;
}

int oa_trace_read(oa_trace_event *events, int capacity, int *count, int64_t *lost) {
  if (!count || (!events && capacity > 0)) return oa_fail_null("oa_trace_read", count ? "events" : "count");
  const int status = oa_core_start();
  *count = 0;
  if (status) return status;
  if (capacity < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_trace_read: capacity needs to be at least 0, got %d", capacity);
  while (*count < capacity && pop(&events[*count])) ++*count;
  if (lost) *lost = atomic_load_explicit(&dropped, memory_order_relaxed);
  return OA_OK;
}

static void copy_text(char *to, size_t size, const char *from) {
  const size_t length = from ? strnlen(from, size - 1) : 0;
  if (length) memcpy(to, from, length);
  to[length] = '\0';
}

void oa_trace_note(int kind, int64_t begun, const oa_device *device, uint64_t region, int64_t tag, const char *name,
                   const char *why, int64_t nbytes, int status) {
  oa_trace_event event = {.begun = begun,
                          .ended = oa_trace_now(),
                          .nbytes = nbytes,
                          .tag = tag,
                          .region = region,
                          .kind = kind,
                          .device = device->number,
                          .thread = this_thread(),
                          .status = status};
  copy_text(event.name, sizeof event.name, name);
  copy_text(event.why, sizeof event.why, why);
  push(&event);
}

/* -- copies -- */

/* Four lanes, so that it runs at the speed of memory. Not for adversaries: it tells whether bytes are the same again. */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t size) {
  const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t lanes[4] = {sum, sum ^ odd, sum + odd, ~sum}, words[4];
  for (; size >= sizeof words; bytes += sizeof words, size -= sizeof words) {
    memcpy(words, bytes, sizeof words);
    for (int i = 0; i < 4; i++) { /* the high bits come back down, or they would never reach the low ones */
      lanes[i] = (lanes[i] ^ words[i]) * odd;
      lanes[i] ^= lanes[i] >> 32;
    }
  }
  if (size) {
    memset(words, 0, sizeof words);
    memcpy(words, bytes, size);
    for (int i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ words[i]) * odd;
  }
  sum = 0;
  for (int i = 0; i < 4; i++) sum = (sum ^ lanes[i] ^ (lanes[i] >> 29)) * odd;
  return sum;
}

static uint64_t checksum(const oa_move *move) {
  const oa_lines lines = move->lines;
  const char *bytes = move->host;
  uint64_t sum = (uint64_t)oa_lines_bytes(lines);
  if (move->irregular) {
    const oa_shape *s = move->irregular;
    void *packed = malloc((size_t)lines.width);
    if (!packed) return 0; /* not known */
    oa_gather(packed, move->host, s->ndim, s->shape, s->strides, s->itemsize, 0, lines.width / s->itemsize);
    sum = mix(sum, packed, (size_t)lines.width);
    free(packed);
  } else {
    for (int64_t i = 0; i < lines.count; i++, bytes += lines.pitch)
      sum = mix(sum, (const unsigned char *)bytes, (size_t)lines.width);
  }
  return sum ? sum : 1;
}

static void take_checksums(oa_move *moves, int count) {
  if (!(atomic_load_explicit(&oa_tracing, memory_order_relaxed) & OA_TRACE_CHECKSUMS)) return;
  for (int i = 0; i < count; i++) moves[i].trace.checksum = checksum(&moves[i]);
}

int64_t oa_trace_begin_up(oa_move *moves, int count) {
  if (!oa_trace_begin()) return 0;
  take_checksums(moves, count);
  return oa_trace_now();
}

void oa_trace_copies(int kind, int64_t begun, const oa_device *device, oa_move *moves, int count, const char *function,
                     int status) {
  const int64_t ended = oa_trace_now();
  int64_t total = 0, done = 0;
  if (kind == OA_TRACE_DOWN && !status) take_checksums(moves, count);
  for (int i = 0; i < count; i++) total += oa_lines_bytes(moves[i].lines);
  oa_trace_event event = {.kind = kind,
                          .device = device->number,
                          .thread = this_thread(),
                          .status = status,
                          .batch = count,
                          .ended = begun};
  for (int i = 0; i < count; i++) {
    const oa_move *move = &moves[i];
    event.nbytes = oa_lines_bytes(move->lines);
    done += event.nbytes;
    event.begun = event.ended;
    event.ended = begun + (total ? (int64_t)((double)(ended - begun) * ((double)done / (double)total)) : 0);
    event.region = move->trace.region;
    event.checksum = move->trace.checksum;
    event.address = move->trace.apart ? 0 : (uint64_t)(uintptr_t)move->host;
    event.packed = move->irregular != NULL;
    copy_text(event.name, sizeof event.name, move->name);
    snprintf(event.why, sizeof event.why, "%s%s%s", move->trace.why ? move->trace.why : "", function ? " " : "",
             function ? function : "");
    push(&event);
  }
}

/* -- waits -- */

int oa_trace_synchronize(oa_device *device, void *stream, uint64_t region, const char *why) {
  const int64_t begun = oa_trace_begin();
  const int status = device->backend->stream_synchronize(device, stream);
  if (begun) oa_trace_note(OA_TRACE_WAIT, begun, device, region, 0, "wait", why, 0, status);
  return status;
}

int oa_trace_synchronize_device(oa_device *device, uint64_t region, const char *why) {
  const int64_t begun = oa_trace_begin();
  const int status = device->backend->synchronize(device);
  if (begun) oa_trace_note(OA_TRACE_WAIT, begun, device, region, 0, "wait", why, 0, status);
  return status;
}
