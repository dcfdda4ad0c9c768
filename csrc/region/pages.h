/* Pages: finds the pages of this process's memory that were written since the last look. The kernel marks them by write
 * protection that lifts itself (userfaultfd, WP_ASYNC), and PAGEMAP_SCAN reads the marks.
 *
 * A watch never misses a write: pages that the kernel can't vouch for count as written. Several watches may share
 * pages; written pages are noted in all of them before they are armed again. All functions take a separate lock (a
 * leaf), may take milliseconds per GiB, and must not be called under the core's lock. */
#ifndef OA_PAGES_H
#define OA_PAGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct oa_watch oa_watch;

typedef struct oa_run { /* a range of pages, as addresses */
  uintptr_t low, high;
} oa_run;

/* Returns a watch of the pages of [low, high), or of `samples` of these pages if `samples` (a multiple of 4) is not 0.
 * No page is armed yet, and all count as written. Returns NULL if nothing can be proven: the kernel refuses, or [low,
 * high) is not private anonymous memory. */
oa_watch *oa_watch_new(uintptr_t low, uintptr_t high, int samples);
/* Frees the watch; NULL is fine. */
void oa_watch_free(oa_watch *watch);
/* Arms the pages, and fills runs, in order, with the pages written since the last time; runs a few pages apart become
 * one. Returns the number of runs, at most `most`. From now on, the bytes that a later read of the memory returns count
 * as known. *pages: the number of written pages, without pages between two runs that became one. */
int oa_watch_take(oa_watch *watch, oa_run *runs, int most, int64_t *pages);
/* Arms the pages of several watches together, which takes fewer system calls, and notes the written pages.
 * oa_watch_take_seen later returns the result that oa_watch_take would have returned now. */
void oa_watches_look(oa_watch *const *watches, int count);
int oa_watch_take_seen(oa_watch *watch, oa_run *runs, int most, int64_t *pages);
/* Looks at the pages. Returns whether no page was written since the last oa_watch_take or oa_watch_agree, and the
 * kernel vouches for that. */
bool oa_watch_is_clean(oa_watch *watch);
/* Finds a watch of just the pages of [low, high), and returns how many bytes of the pages may have changed since the
 * watch's last oa_watch_take or oa_watch_agree. Returns -1 if there is no such watch, or if the kernel could not vouch
 * for the pages. Arms nothing, and is faster than a scan. */
int64_t oa_pages_unknown(uintptr_t low, uintptr_t high);
/* Lifts the protection of all pages, before the core rewrites them. The pages count as written. */
void oa_watch_lift(oa_watch *watch);
/* Arms the pages; their present bytes count as known. */
void oa_watch_agree(oa_watch *watch);
int64_t oa_watch_pages(const oa_watch *watch);

/* Returns whether pages can be watched here; the first call finds out. */
bool oa_pages_work(void);
/* Sets, for tests, whether pages can be watched; 0: they can't, as on a kernel that refuses. */
void oa_pages_allow(int allowed);

#endif
