/* Copies in the trace: one event for each array of a batch, with its share of the time and, if wanted, its checksum. */
#ifndef OA_TRANSFER_TRACE_H
#define OA_TRANSFER_TRACE_H

#include "transfer/transfer.h"

/* Computes the checksums of a batch before it goes up, if the trace has them. Returns the time after the checksums were
 * computed, or 0 while the trace is off. */
int64_t oa_trace_begin_up(oa_move *moves, int count);
/* Notes a batch of copies (OA_TRACE_UP or OA_TRACE_DOWN). The copies share the batch's time in proportion to their
 * bytes. Each event's reason is followed by `function`, which may be NULL. Copies down have already reached their
 * arrays. */
void oa_trace_copies(int kind, int64_t begun, const oa_device *device, oa_move *moves, int count, const char *function,
                     int status);

#endif
