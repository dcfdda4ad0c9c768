/* Guarded arrays: while a device is newer, the whole pages of the array on the host can't be touched. A touch of such a
 * page is reported with the array's name. Callers hold the core's lock. */
#ifndef OA_GUARD_H
#define OA_GUARD_H

#include "region/mapping.h"

/* Guards the mapping's arrays from now on, each time the device becomes newer. If the arrays are guarded already, only
 * notes the name of a view that has no name. name: the name for messages; NULL: the view's own name. place: the line
 * that lends the arrays, or NULL. Does nothing for a coherent mapping, whose pages the device itself uses. */
int oa_guard_begin(oa_mapping *mapping, int view, const char *name, const char *place);
/* Makes the group's pages untouchable, as the device has newer bytes. Must not be called while an update lets the host
 * write the pages. */
void oa_guard_arm(oa_mapping *mapping, const oa_group *group);
/* Makes the pages that overlap [low, high) usable until the group is armed again. */
void oa_guard_lift(oa_mapping *mapping, uintptr_t low, uintptr_t high);
/* Makes all pages usable, permanently. */
void oa_guard_end(oa_mapping *mapping);
/* Returns whether OFFLOAD_ARGS_GUARD guards the arrays of every region. */
bool oa_guard_everywhere(void);

#endif
