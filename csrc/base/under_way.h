/* Copies and waits that are under way, for programs that show progress (oa_trace_under_way). While OA_TRACE_UNDER_WAY
 * is off, each place that notes a copy or wait costs one load and one branch that is never taken. */
#ifndef OA_UNDER_WAY_H
#define OA_UNDER_WAY_H

#include "base/trace.h"

static inline bool oa_under_way_wanted(void) {
  return OA_UNLIKELY(atomic_load_explicit(&oa_tracing, memory_order_relaxed) & OA_TRACE_UNDER_WAY);
}

/* Notes that a copy or wait begins now. kind: an oa_trace_kind. name: the array's name or the reason of the wait, for
 * messages; may be NULL. Returns an entry for the functions below, or 0 if all entries are taken. Call it only if
 * oa_under_way_wanted() is true; otherwise pass 0 to the functions below. */
int oa_under_way_begin(int kind, int device, int64_t nbytes, const char *name);
/* Notes that another nbytes bytes of the entry's copy were copied. Any thread may call it. */
void oa_under_way_add(int entry, int64_t nbytes);
/* Notes the end of the copy or wait. */
void oa_under_way_end(int entry);

#endif
