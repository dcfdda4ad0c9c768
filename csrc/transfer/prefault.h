/* Touches the pages of arrays that are about to come down, while the device still computes. A new array of the program
 * has no pages yet. The first write to each page makes the kernel fill one, which takes longer than the copy itself. */
#ifndef OA_PREFAULT_H
#define OA_PREFAULT_H

#include "transfer/move.h"

/* Calls wait(data) on this thread. Meanwhile, other threads touch the pages of the moves' large contiguous arrays; they
 * stop when the wait is over. All bytes stay as they are. Returns the result of the wait. */
int oa_prefault_during(const oa_move *moves, int count, int (*wait)(void *), void *data);

#endif
