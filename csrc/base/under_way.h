/* Copies and waits that are under way, for programs that show progress (oa_trace_under_way). While OA_TRACE_UNDER_WAY
 * is off, each place costs one load and one branch that is never taken. */
#ifndef OA_UNDER_WAY_H
#define OA_UNDER_WAY_H

#include "base/trace.h"

static inline bool oa_under_way_wanted(void) {
  return __builtin_expect(atomic_load_explicit(&oa_tracing, memory_order_relaxed) & OA_TRACE_UNDER_WAY, 0);
}

/* Notes that something begins now: an oa_trace_kind, and for people the name of its array or the reason of the wait
 * (may be NULL). Returns its entry, or 0 if there is no room for it. Call it if oa_under_way_wanted, and pass the
 * result, else 0, to the functions below. */
int oa_under_way_begin(int kind, int device, int64_t nbytes, const char *name);
/* Notes that so many more of its bytes were copied; by any thread. */
void oa_under_way_add(int entry, int64_t nbytes);
/* Notes that it is over. */
void oa_under_way_end(int entry);

#endif
