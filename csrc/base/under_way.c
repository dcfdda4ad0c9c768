#include "base/under_way.h"

#include <string.h>

/* An entry stands for one copy or wait that is under way. If all entries are taken, further copies and waits are not
 * shown. The mutex is a leaf: its holder takes no other lock. */
enum { ENTRIES = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
  oa_under_way is; /* kind is OA_TRACE_NONE if the entry is free */
  _Atomic int64_t done;
} entries[ENTRIES];

int oa_under_way_begin(int kind, int device, int64_t nbytes, const char *name) {
  int i = 0;
  pthread_mutex_lock(&mutex);
  while (i < ENTRIES && entries[i].is.kind != OA_TRACE_NONE) i++;
  if (i < ENTRIES) {
    oa_under_way *is = &entries[i].is;
    *is = (oa_under_way){.begun = oa_trace_now(), .nbytes = nbytes, .kind = kind, .device = device};
    if (name) memcpy(is->name, name, strnlen(name, sizeof is->name - 1));
    atomic_store_explicit(&entries[i].done, 0, memory_order_relaxed);
  }
  pthread_mutex_unlock(&mutex);
  return i < ENTRIES ? i + 1 : 0;
}

void oa_under_way_add(int entry, int64_t nbytes) {
  if (entry) atomic_fetch_add_explicit(&entries[entry - 1].done, nbytes, memory_order_relaxed);
}

void oa_under_way_end(int entry) {
  if (!entry) return;
  pthread_mutex_lock(&mutex);
  entries[entry - 1].is.kind = OA_TRACE_NONE;
  pthread_mutex_unlock(&mutex);
}

int oa_trace_under_way(oa_under_way *list, int capacity, int *count) {
  if (!count || (!list && capacity > 0)) return oa_fail_null("oa_trace_under_way", count ? "list" : "count");
  const int status = oa_core_start(__func__);
  *count = 0;
  if (status) return status;
  if (capacity < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_trace_under_way: capacity needs to be at least 0, got %d", capacity);
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < ENTRIES && *count < capacity; i++) {
    if (entries[i].is.kind == OA_TRACE_NONE) continue;
    list[*count] = entries[i].is;
    list[(*count)++].done = atomic_load_explicit(&entries[i].done, memory_order_relaxed);
  }
  pthread_mutex_unlock(&mutex);
  return OA_OK;
}
