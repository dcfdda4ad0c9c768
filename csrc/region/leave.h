/* Leaving a region: its results come down, and memory that no other region holds is freed. Callers hold the core's
 * lock, which these functions free and take again. */
#ifndef OA_LEAVE_H
#define OA_LEAVE_H

#include "region/caller.h"
#include "region/region.h"

/* Completes the pending copies of a finished region, or waits a while for the thread that does so. The caller has to
 * look up all slots and mappings again afterwards, because they may have been freed. */
void oa_region_complete(oa_region_state *region);
/* Waits for a finished region and frees it, as oa_region_wait does. Sets *has_arrived to true if every copy down is
 * complete, even if a later step failed, such as freeing memory. */
int oa_region_wait_for(oa_region *handle, bool *has_arrived);
enum { OA_LOOK_AGAIN = -1 }; /* not an oa_status: the lock was freed */
/* Completes the copies down of the finished region that is leaving the mapping, or else waits until no thread moves the
 * mapping; `moving` is this second wait. Returns OA_OK, with the lock still taken, if the mapping is neither leaving
 * nor moving; otherwise OA_LOOK_AGAIN, or the status of a refused wait. */
int oa_complete_mapping(const oa_mapping *mapping, const oa_wait *moving);
/* Completes the copies down of finished regions into an interval, and takes mappings of the interval that no region
 * holds out of the present table. Returns OA_LOOK_AGAIN if it has freed the lock, or the status of a refused wait. */
int oa_complete_overlapping(const char *function, uintptr_t low, uintptr_t high);
/* Frees the region with its slots and mappings, and returns its streams. Returns the first failure; after a failure,
 * too, the region no longer exists. */
int oa_region_destroy(oa_region_state *region);

#endif
