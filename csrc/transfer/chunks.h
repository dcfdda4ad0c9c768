/* Chunks: how the large moves of a batch travel, on several threads. */
#ifndef OA_CHUNKS_H
#define OA_CHUNKS_H

#include "transfer/batch.h"

/* Copies the large moves, `bytes` in all, on several threads if that pays; batch->status is the first failure. */
void oa_chunks_work_off(oa_batch *batch, int64_t bytes);
/* Copies a section down again, in the plain way, after a failure with that status. Marks the move as drained, or as
 * torn if this copy fails, too. If the device is lost, the function makes no copy. */
void oa_chunks_retry_plain(oa_batch *batch, const oa_section *section, int status);

#endif
