#include "base/trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A bounded queue of many writers and readers without a lock. The turn of a cell determines which thread may use the
 * cell next. A writer at position p fills the cell with turn p and sets the cell's turn to p + 1. The reader then
 * empties the cell and sets its turn to p + CELLS. If the queue is full, a writer drops its event and counts it, so
 * that no writer waits for a reader. */
enum { CELLS = 1 << 15 };

typedef struct cell {
  _Atomic uint64_t turn;
  oa_trace_event event;
} cell;

static _Atomic(cell *) cells; /* allocated when the first trace starts; never freed, as a late writer may use it */
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
    cell *place = &ring[position % CELLS];
    const uint64_t turn = atomic_load_explicit(&place->turn, memory_order_acquire);
    if (turn == position) {
      if (!atomic_compare_exchange_weak_explicit(&next_written, &position, position + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
        continue;
      place->event = *event;
      atomic_store_explicit(&place->turn, position + 1, memory_order_release);
      return;
    }
    if (turn < position) { /* the cell's event of the last round is not read yet */
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
    cell *place = &ring[position % CELLS];
    const uint64_t turn = atomic_load_explicit(&place->turn, memory_order_acquire);
    if (turn == position + 1) {
      if (!atomic_compare_exchange_weak_explicit(&next_read, &position, position + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
        continue;
      *event = place->event;
      atomic_store_explicit(&place->turn, position + CELLS, memory_order_release);
      return true;
    }
    if (turn < position + 1) return false;
    position = atomic_load_explicit(&next_read, memory_order_relaxed);
  }
}

int oa_trace_set(int flags) {
  const int status = oa_core_start(__func__);
  if (status) return status;
  if (flags & ~(OA_TRACE_ON | OA_TRACE_CHECKSUMS | OA_TRACE_UNDER_WAY))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_trace_set: flags needs a sum of oa_trace_flags, got %d", flags);
  if (flags & ~OA_TRACE_UNDER_WAY && !atomic_load(&cells)) {
    cell *queue = malloc(CELLS * sizeof *queue), *none = NULL;
    if (!queue) return oa_fail(OA_ERROR_MEMORY, "oa_trace_set: no host memory for %d events", CELLS);
    for (uint64_t i = 0; i < CELLS; i++) atomic_init(&queue[i].turn, i);
    /* Another thread was faster and has set the queue. */
    if (!atomic_compare_exchange_strong(&cells, &none, queue)) free(queue);
  }
  atomic_store(&oa_tracing, flags);
  return OA_OK;
}

int oa_trace_read(oa_trace_event *events, int capacity, int *count, int64_t *lost) {
  if (!count || (!events && capacity > 0)) return oa_fail_null("oa_trace_read", count ? "events" : "count");
  const int status = oa_core_start(__func__);
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

void oa_trace_push(oa_trace_event *event, const char *name, const char *why) {
  event->thread = this_thread();
  copy_text(event->name, sizeof event->name, name);
  copy_text(event->why, sizeof event->why, why);
  push(event);
}

void oa_trace_note(int kind, int64_t begun, int device, uint64_t region, int64_t tag, const char *name, const char *why,
                   int64_t nbytes, int status) {
  oa_trace_event event = {.begun = begun,
                          .ended = oa_trace_now(),
                          .nbytes = nbytes,
                          .tag = tag,
                          .region = region,
                          .kind = kind,
                          .device = device,
                          .status = status};
  oa_trace_push(&event, name, why);
}
