/* The core's runtime: its one lock and condition, what a fork does to it, and how it starts threads. */
#ifndef OA_CORE_H
#define OA_CORE_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

extern atomic_int oa_forked; /* 1 in a child that was forked after first use */

/* Prepares the core, once. Returns OA_ERROR_FORKED in a forked child. */
int oa_core_start_slowly(void);
extern atomic_bool oa_core_runs; /* the core was prepared, and the process not forked since */
/* The same; costs a load once the core runs. */
static inline int oa_core_start(void) {
  return __builtin_expect(atomic_load_explicit(&oa_core_runs, memory_order_acquire), 1) ? OA_OK
                                                                                        : oa_core_start_slowly();
}
/* Returns OA_ERROR_FORKED in a forked child, else OA_OK; for functions that need a device, which only a started core
 * can have opened. */
int oa_check_forked(void);

/* The one lock of the core: it guards regions, mappings, slots and pools of streams. Held for bookkeeping only, never
 * while a device is waited for, a copy made or vendor code run. */
void oa_lock(void);
void oa_unlock(void);

/* Waits until another thread announces a change of what the lock guards. Called with the lock, which it frees
 * meanwhile: look everything up again. */
void oa_wait_change(void);
/* Wakes all threads in oa_wait_change. Called with the lock; costs a load where no thread waits. */
void oa_announce_change(void);

/* Starts a detached thread that takes no signals but its own faults. Returns 0, or pthread_create's error. */
int oa_start_thread(void *(*run)(void *), void *argument);

#endif
