/* The trace: a bounded queue of events. While the trace is off, each place that notes an event costs one load and one
 * branch that is never taken. An event is noted once it is over; programs read events with oa_trace_read. */
#ifndef OA_TRACE_H
#define OA_TRACE_H

#include "base/runtime.h"

extern atomic_int oa_tracing; /* oa_trace_flags; usually 0 */

int64_t oa_trace_now(void);

/* Returns the time now, or 0 while no events are recorded. An event that began at 0 is never noted. */
static inline int64_t oa_trace_begin(void) {
  const int flags = atomic_load_explicit(&oa_tracing, memory_order_relaxed);
  return OA_UNLIKELY(flags & (OA_TRACE_ON | OA_TRACE_CHECKSUMS)) ? oa_trace_now() : 0;
}

/* Notes an event on device number `device` that began at `begun` and ends now. `name` and `why` may be NULL. */
void oa_trace_note(int kind, int64_t begun, int device, uint64_t region, int64_t tag, const char *name, const char *why,
                   int64_t nbytes, int status);
/* Notes an event that the caller has filled, except for the thread and the texts. */
void oa_trace_push(oa_trace_event *event, const char *name, const char *why);

#endif
