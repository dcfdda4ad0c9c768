/* Arrivals: the groups that the device lacks, and that a call reads or writes only in part. */
#ifndef OA_ARRIVAL_H
#define OA_ARRIVAL_H

#include "call/operand.h"

/* Brings up the groups that the call needs. `arriving`: the number of operands whose group has to come up. The call
 * holds the mappings. Frees the lock and takes it again. */
int oa_arrivals_bring_up(const oa_call *call, oa_region_state *region, oa_stream *stream, const oa_reach *reaches,
                         int arriving);

#endif
