/* Leaving a region: what it wrote comes down, and what nobody else holds is freed. Everything here is called under the core's
 * lock, and frees it meanwhile. */
#ifndef OA_LEAVE_H
#define OA_LEAVE_H

#include "region/region.h"

/* Completes the pending copies of a region that was already left, or waits a while for the thread that is doing so.
 * Everything has to be looked up again afterwards. */
void oa_region_complete(oa_region_state *region);
/* Completes what regions that were left still bring down into an interval, and takes what they had of it out of the present
 * table, so that it stands in nobody's way. Returns true if it freed the lock meanwhile: then look again. */
bool oa_complete_overlapping(uintptr_t low, uintptr_t high);
/* Releases slots, mappings and streams, and frees the region itself. Returns the first failure; whatever fails, all of it is
 * gone. */
int oa_region_destroy(oa_region_state *region);

#endif
