/* Leaving a region: its results come down, and the memory that no other region holds is freed. These functions are
 * called with the core's lock, and free it meanwhile. */
#ifndef OA_LEAVE_H
#define OA_LEAVE_H

#include "region/region.h"

/* Completes the pending copies of a region that was finished, or waits a while for the thread that does so. Look
 * everything up again afterwards. */
void oa_region_complete(oa_region_state *region);
/* Completes the copies down of finished regions into an interval, and takes mappings of the interval that no region
 * holds out of the present table. Returns true if it freed the lock meanwhile: then look everything up again. */
bool oa_complete_overlapping(uintptr_t low, uintptr_t high);
/* Frees the region with its slots and mappings, and returns its streams. Returns the first failure, after which the
 * region is gone all the same. */
int oa_region_destroy(oa_region_state *region);

#endif
