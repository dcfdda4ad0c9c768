/* Which pages of this process's memory were written since they were last looked at, as the kernel knows it: write
 * protection that lifts itself (userfaultfd, WP_ASYNC), read back by PAGEMAP_SCAN.
 *
 * A watch never misses a write: what the kernel can't vouch for counts as written. Several watches may share pages; what
 * one finds is noted for all before the pages are armed anew. All functions lock for themselves (a leaf), may take
 * milliseconds a GiB, and are not to be called under the core's lock. */
#ifndef OA_PAGES_H
#define OA_PAGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct oa_watch oa_watch;

typedef struct oa_run { /* of pages, as addresses */
  uintptr_t low, high;
} oa_run;

/* Watches the pages of [low, high), or `samples` of them, a multiple of 4, if that is not 0. Nothing is armed yet, all counts as written.
 * NULL where nothing can be proven: the kernel refuses, or this is not private anonymous memory. */
oa_watch *oa_watch_new(uintptr_t low, uintptr_t high, int samples);
void oa_watch_free(oa_watch *watch); /* NULL is fine */
/* Arms the pages and gives what was written since the last time, as at most `most` runs, in order; runs a few pages
 * apart are one. Whoever reads the memory after this reads what counts as known from now on. *pages: how many were
 * written, those between runs not counted. */
int oa_watch_take(oa_watch *watch, oa_run *runs, int most, int64_t *pages);
/* Arms the pages of several at once, which asks the kernel less than one after the other, and notes what was written; until
 * then oa_watch_take_seen gives what oa_watch_take would have given now. */
void oa_watches_look(oa_watch *const *watches, int count);
int oa_watch_take_seen(oa_watch *watch, oa_run *runs, int most, int64_t *pages);
/* Lifts the protection of all pages: before they are rewritten on purpose. They count as written. */
void oa_watch_lift(oa_watch *watch);
/* Arms the pages; what they hold now counts as known. */
void oa_watch_agree(oa_watch *watch);
int64_t oa_watch_pages(const oa_watch *watch);

/* Whether pages can be watched here; the first call finds out. */
bool oa_pages_work(void);
/* For tests: 0 lets everything be as where the kernel refuses. */
void oa_pages_allow(int allowed);

#endif
