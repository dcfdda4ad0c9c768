/* Coherent mappings: the device uses the host's memory of an array, so nothing is copied between the two. Their state
 * is the state of all mappings. The host's bytes, as a region that fails has to leave them, are saved before the first
 * write (former bytes). Callers hold the core's lock unless a function says otherwise. */
#ifndef OA_COHERENT_H
#define OA_COHERENT_H

#include "region/mapping.h"

static inline bool oa_is_coherent(const oa_mapping *mapping) { return mapping->special & OA_IS_COHERENT; }

/* Saves the former bytes of a group that a call is about to write. Frees the lock meanwhile, so that everything has to
 * be looked up again. */
int oa_coherent_save(const char *function, oa_mapping *mapping, oa_group *group);
/* Makes the lines, from the mapping's address on, the former bytes: the host has them now. Without the lock, while the
 * mapping is moving, or with it. */
void oa_coherent_follow(oa_mapping *mapping, oa_lines lines);
/* Drops the former bytes of groups that no call has written since they were saved, because the host may write these
 * groups now. */
void oa_coherent_forget(oa_mapping *mapping);
/* Ends a seized mapping that no region holds any more, and whose users were waited for. With `arrived`, groups that
 * `stays` keep the device's bytes. All other groups get their former bytes; without `arrived`, all groups do. Without
 * the lock. */
void oa_coherent_leave(oa_mapping *mapping, bool arrived);
/* Gives a group its former bytes, if they are saved. Without the lock, while the mapping is moving or the caller has
 * the only call that writes the group. */
void oa_coherent_restore(const oa_mapping *mapping, const oa_group *group);

#endif
