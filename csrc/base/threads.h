/* The core's threads: started when first needed, idle on a condition, detached, never joined: they keep no process from
 * ending, and a forked child has none and asks for none. */
#ifndef OA_THREADS_H
#define OA_THREADS_H

/* Returns how many threads work for one owner at most, the callers included. */
int oa_threads_count(void);
/* Calls run(data) on this thread and on up to participants - 1 others, as many as are free. Returns when all have
 * returned. The calls share the work among themselves. Tasks of one owner, a device, share oa_threads_count() threads;
 * those of different owners have as many each, as far as there are CPUs: one bus is not slower because another one is
 * busy. */
void oa_threads_run(const void *owner, void (*run)(void *), void *data, int participants);
/* Wakes a few idle threads, which then look out for work for a tenth of a millisecond: oa_threads_run finds them awake
 * if it is called within that time. Starts none. */
void oa_threads_expect(void);
/* Returns how often a thread was awake for that so far; for tests. */
int oa_threads_looks(void);

#endif
