/* The core's threads. The threads are started when first needed, wait on a condition, and are detached and never
 * joined, so that no thread keeps a process from ending. A forked child has no such threads, and starts none. */
#ifndef OA_THREADS_H
#define OA_THREADS_H

/* Returns the most threads that work for one owner, the callers included. */
int oa_threads_count(void);
/* Calls run(data) on this thread and on as many free threads as there are, up to participants - 1. Returns when all
 * calls of `run` have returned. The calls of `run` have to divide the work among themselves. All tasks of one owner (a
 * device) share oa_threads_count() threads. If there are enough CPUs, each owner has oa_threads_count() threads of its
 * own, so that a device with a busy bus does not slow the copies of another device. */
void oa_threads_run(const void *owner, void (*run)(void *), void *data, int participants);
/* Wakes a few idle threads, which then poll for work for 0.1 ms. These threads are still awake if oa_threads_run is
 * called within that time. Starts no threads. */
void oa_threads_expect(void);
/* Returns how often a thread polled for work so far; for tests. */
int oa_threads_looks(void);

#endif
