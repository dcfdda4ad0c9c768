/* Guarded arrays: while a device has the bytes, the whole pages of the array on the host can't be written; while the
 * device is newer, they can't be read either. A touch of such a page is reported with the array's name. Callers hold
 * the core's lock. */
#ifndef OA_GUARD_H
#define OA_GUARD_H

#include "region/mapping.h"

/* Guards the mapping's arrays from now on, each time the device gets their bytes or becomes newer. If the arrays are
 * guarded already, only notes the name of a view that has no name. name: the name for messages; NULL: the view's own
 * name. place: the line that lends the arrays, or NULL. is_read_only: the host can't write the array's pages anyway.
 * Does nothing for a coherent mapping, whose pages the device itself uses. */
int oa_guard_begin(oa_mapping *mapping, int view, const char *name, const char *place, bool is_read_only);
/* Makes the group's pages untouchable if the device has newer bytes, or read-only if it has the same ones. Must not be
 * called while an update lets the host write the pages. */
void oa_guard_arm(oa_mapping *mapping, const oa_group *group, bool newer);
/* If the mapping is guarded, makes read-only the pages of each group whose bytes are the same on the host and the
 * device. Must not be called while an update lets the host write some of the mapping. */
void oa_guard_arm_equal(oa_mapping *mapping);
/* Makes the pages that overlap [low, high) usable until the group is armed again. */
void oa_guard_lift(oa_mapping *mapping, uintptr_t low, uintptr_t high);
/* Makes all pages usable, permanently. */
void oa_guard_end(oa_mapping *mapping);
/* Returns whether OFFLOAD_ARGS_GUARD guards the arrays of every region. */
bool oa_guard_everywhere(void);

#endif
