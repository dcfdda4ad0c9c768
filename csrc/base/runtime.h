/* The core's runtime: its one lock and condition, the effect of a fork, and the start of threads. */
#ifndef OA_RUNTIME_H
#define OA_RUNTIME_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

extern atomic_int oa_forked; /* 1 in a child that was forked after first use */

/* Prepares the core, once. Returns OA_ERROR_FORKED in a forked child. function: named by the failure's text. */
int oa_core_start_slowly(const char *function);
extern atomic_bool oa_core_runs; /* the core is prepared, and the process was not forked since */
/* Prepares the core, once, and returns the same status as oa_core_start_slowly. Costs one load if the core already
 * runs. */
static inline int oa_core_start(const char *function) {
  return OA_LIKELY(atomic_load_explicit(&oa_core_runs, memory_order_acquire)) ? OA_OK : oa_core_start_slowly(function);
}
/* Returns OA_ERROR_FORKED in a forked child, with a text that names the function, otherwise OA_OK. Functions that need
 * an open device make this check and do not start the core, because only a started core can have opened a device. */
int oa_check_forked(const char *function);

extern pthread_mutex_t oa_mutex; /* for oa_lock */
extern int oa_waiting;           /* number of threads in oa_wait_change; oa_mutex guards this number */

/* The one lock of the core guards regions, mappings, slots and pools of streams. A thread holds this lock for
 * bookkeeping only, never during a wait for a device, a copy or a vendor's code. */
static inline void oa_lock(void) { pthread_mutex_lock(&oa_mutex); }
static inline void oa_unlock(void) { pthread_mutex_unlock(&oa_mutex); }

/* Waits until another thread announces a change of the guarded state. Called with the lock, and frees it during the
 * wait. Afterwards the caller has to read all guarded state again. */
void oa_wait_change(void);
/* Does as oa_wait_change, but waits at most until `until` (CLOCK_MONOTONIC). Returns false once that time has
 * passed. */
bool oa_wait_change_until(const struct timespec *until);
/* Returns the time (CLOCK_MONOTONIC) that is so many milliseconds from now. */
struct timespec oa_time_in(int milliseconds);
/* Wakes all threads in oa_wait_change. Called with the lock. */
void oa_wake_waiting(void);
/* Wakes all threads in oa_wait_change. Costs one load if no thread waits there. */
static inline void oa_announce_change(void) {
  if (OA_UNLIKELY(oa_waiting)) oa_wake_waiting();
}

/* Starts a detached thread, which takes no signals but its own faults. Returns 0, or pthread_create's error. */
int oa_start_thread(void *(*run)(void *), void *argument);

#endif
