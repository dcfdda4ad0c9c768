/* Leaving a region: its results come down, and the memory that no other region holds is freed. These functions are
 * called with the core's lock, and free it meanwhile. */
#ifndef OA_LEAVE_H
#define OA_LEAVE_H

#include "region/region.h"

/* Completes the pending copies of a region that was finished, or waits a while for the thread that does so. Look
 * everything up again afterwards. */
void oa_region_complete(oa_region_state *region);
enum { OA_LOOK_AGAIN = -1 }; /* not an oa_status: the lock was free meanwhile */
/* Completes the copies down of finished regions into an interval, and takes mappings of the interval that no region
 * holds out of the present table. Returns OA_LOOK_AGAIN if it freed the lock meanwhile, or the status of a wait that
 * was refused. */
int oa_complete_overlapping(const char *function, uintptr_t low, uintptr_t high);
/* Frees the region with its slots and mappings, and returns its streams. Returns the first failure, after which the
 * region is gone all the same. */
int oa_region_destroy(oa_region_state *region);

#endif
