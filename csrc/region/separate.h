/* Separating a coherent mapping from the host's memory. The caller holds the core's lock. */
#ifndef OA_SEPARATE_H
#define OA_SEPARATE_H

#include "region/slot.h"

/* Gives the mapping of a pointer device memory of its own, as code outside is about to get a share of the memory. Frees
 * the lock meanwhile. Returns OA_LOOK_AGAIN if it did nothing else, so that everything has to be looked up again. */
int oa_coherent_separate(const char *function, const oa_slot *pointer);

#endif
