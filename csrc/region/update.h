/* Update: the bytes that the host may write while regions lend them. */
#ifndef OA_UPDATE_H
#define OA_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the host may write some of [low, high) now, in an open update. Called with the core's lock. */
bool oa_host_writes(uintptr_t low, uintptr_t high);

#endif
