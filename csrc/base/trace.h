/* The trace: what happened, when and why, while somebody looks. Off, each place costs one load and one branch that is
 * never taken. Places note an event once it is over; who listens reads them with oa_trace_read. */
#ifndef OA_TRACE_H
#define OA_TRACE_H

#include "transfer/transfer.h"

extern atomic_int oa_tracing; /* oa_trace_flags; 0 nearly always */

int64_t oa_trace_now(void);

/* The time now; 0 while nobody looks. What is begun with 0 is never noted. */
static inline int64_t oa_trace_begin(void) {
  return __builtin_expect(atomic_load_explicit(&oa_tracing, memory_order_relaxed), 0) ? oa_trace_now() : 0;
}

/* Notes something that began then and ends now. name and why may be NULL. */
void oa_trace_note(int kind, int64_t begun, const oa_device *device, uint64_t region, int64_t tag, const char *name,
                   const char *why, int64_t nbytes, int status);

/* Before a batch goes up: takes the checksums if they are wanted, then the time, which is not theirs. */
int64_t oa_trace_begin_up(oa_move *moves, int count);
/* Notes a batch of copies (OA_TRACE_UP or OA_TRACE_DOWN), which share its time in proportion to their bytes. function
 * (may be NULL) stands behind the reason of each; downs are in their arrays already. */
void oa_trace_copies(int kind, int64_t begun, const oa_device *device, oa_move *moves, int count, const char *function,
                     int status);

/* The backend's stream_synchronize, noted as a wait. */
int oa_trace_synchronize(oa_device *device, void *stream, uint64_t region, const char *why);
/* The backend's synchronize, noted as a wait. */
int oa_trace_synchronize_device(oa_device *device, uint64_t region, const char *why);

#endif
