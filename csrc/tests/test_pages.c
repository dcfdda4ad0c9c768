/* Pages: a watch finds every write to its pages. If the kernel lets no pages be watched, nothing is tested. */
#define _GNU_SOURCE /* mremap, memfd_create */
#include "check.h"
#include "region/pages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { PAGE = 4096, PAGES = 256, BYTES = PAGE * PAGES };

static char *pages_new(size_t nbytes, int flags) {
  char *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) memset(memory, 1, nbytes);
  return memory;
}

static int64_t taken(oa_watch *watch) {
  oa_run runs[8];
  int64_t pages;
  oa_watch_take(watch, runs, 8, &pages);
  return pages;
}

static void a_watch_finds_the_written_pages(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory + 100, (uintptr_t)memory + BYTES - 100, 0);
  oa_run runs[3];
  int64_t pages;
  if (!CHECK(watch)) return;
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 1 && pages == PAGES);
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 0 && pages == 0);
  memory[0] = 2; /* a byte before the array, on the array's first page */
  memory[70 * PAGE] = 2;
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 2 && pages == 2);
  CHECK(runs[0].low == (uintptr_t)memory && runs[0].high == (uintptr_t)memory + PAGE);
  CHECK(runs[1].low == (uintptr_t)memory + 70 * PAGE && runs[1].high == (uintptr_t)memory + 71 * PAGE);
  for (int i = 0; i < PAGES; i += 32)
    memory[i * PAGE] = 3; /* more runs than `runs` has room for: the last run has the rest */
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 3 && pages == 8);
  CHECK(runs[2].low == (uintptr_t)memory + 64 * PAGE && runs[2].high == (uintptr_t)memory + 225 * PAGE);
  memory[10 * PAGE] = memory[14 * PAGE] = 4; /* runs near each other become one run */
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 1 && pages == 2);
  memset(memory, 5, BYTES);
  oa_watch_agree(watch);
  CHECK(taken(watch) == 0);
  oa_watch_lift(watch);
  CHECK(taken(watch) == PAGES);
  madvise(memory + 7 * PAGE, PAGE, MADV_DONTNEED); /* a hole is not a clean page */
  CHECK(taken(watch) == 1);
  CHECK(memory[7 * PAGE] == 0);
  CHECK(taken(watch) == 0);        /* the hole is armed now, and reading it writes nothing */
  munmap(memory + 8 * PAGE, PAGE); /* an unmapped page, and then a new page in its place */
  CHECK(taken(watch) == PAGES);
  CHECK(mmap(memory + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        MAP_FAILED);
  CHECK(taken(watch) == PAGES);
  CHECK(taken(watch) == 0);
  oa_watch_free(watch);
  munmap(memory, BYTES);
}

/* A large hole has no page table, and unmapped memory has no mapping, so a scan alone reports neither. */
static void large_holes_are_found(void) {
  enum { HUGE = 2 << 20, IN_HUGE = HUGE / PAGE };
  char *all = mmap(NULL, 5 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *memory = (char *)(((uintptr_t)all + HUGE - 1) & -(uintptr_t)HUGE);
  madvise(memory, 4 * HUGE, MADV_HUGEPAGE);
  memset(memory, 1, 4 * HUGE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + 4 * HUGE, 0);
  if (!CHECK(watch)) return;
  CHECK(taken(watch) == 4 * IN_HUGE);
  CHECK(taken(watch) == 0);
  madvise(memory + HUGE, HUGE, MADV_DONTNEED);
  memory[3 * HUGE] = 2;
  oa_run runs[2];
  int64_t pages;
  CHECK(oa_watch_take(watch, runs, 2, &pages) == 2 && pages == IN_HUGE + 1);
  CHECK(runs[0].low == (uintptr_t)memory + HUGE && runs[0].high == (uintptr_t)memory + 2 * HUGE);
  CHECK(runs[1].low == (uintptr_t)memory + 3 * HUGE && runs[1].high == (uintptr_t)memory + 3 * HUGE + PAGE);
  CHECK(taken(watch) == 0);
  munmap(memory + HUGE, 2 * HUGE);
  CHECK(taken(watch) == 4 * IN_HUGE);
  oa_watch_free(watch);
  munmap(all, 5 * HUGE);
}

static void watches_share_pages(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *all = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 0);
  oa_watch *half = oa_watch_new((uintptr_t)memory + BYTES / 2 - 10, (uintptr_t)memory + BYTES, 0);
  oa_watch *sample = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 16);
  if (!CHECK(all && half && sample)) return;
  CHECK(oa_watch_pages(sample) == 16);
  taken(all), taken(half), taken(sample);
  taken(all), taken(half);
  CHECK(taken(all) == 0 && taken(half) == 0 && taken(sample) == 0);
  memory[BYTES / 2] = 2;
  CHECK(taken(half) == 1); /* this arms the page again, and the other watches still note the write */
  CHECK(taken(all) == 1);
  CHECK(taken(half) == 0);
  memset(memory, 3, BYTES);
  CHECK(taken(all) == PAGES && taken(sample) == 16 && taken(half) == PAGES / 2 + 1);
  oa_watch_free(all);
  memory[BYTES - 1] = 4; /* the other watches still work */
  CHECK(taken(half) == 1);
  memory[24 * PAGE] = 4;
  CHECK(taken(sample) == 1);
  oa_watch_free(half);
  oa_watch_free(sample);
  sample = oa_watch_new((uintptr_t)memory + 100, (uintptr_t)memory + BYTES - 100,
                        16); /* the first and the last page have other data, too */
  if (!CHECK(sample && oa_watch_pages(sample) == 16)) return;
  CHECK(taken(sample) == 16);
  memory[0] = memory[BYTES - 1] = 5; /* data beside the array */
  CHECK(taken(sample) == 0);
  memset(memory, 6, BYTES);
  CHECK(taken(sample) == 16);
  oa_watch_free(sample);
  munmap(memory, BYTES);
}

static void several_watches_are_looked_at_together(void) {
  enum { COUNT = 3 };
  char *memory[COUNT];
  oa_watch *watches[COUNT];
  oa_run runs[3];
  int64_t pages;
  for (int i = 0; i < COUNT; i++) {
    memory[i] = pages_new(BYTES, MAP_PRIVATE);
    watches[i] = oa_watch_new((uintptr_t)memory[i], (uintptr_t)memory[i] + BYTES, 0);
    CHECK(watches[i] && taken(watches[i]) == PAGES);
  }
  memory[1][5 * PAGE] = 1;
  oa_watches_look(watches, COUNT);
  memory[1][9 * PAGE] = memory[2][0] = 1; /* written after the look, so the next look finds it */
  CHECK(oa_watch_take_seen(watches[0], runs, 3, &pages) == 0 && pages == 0);
  CHECK(oa_watch_take_seen(watches[1], runs, 3, &pages) == 1 && pages == 1);
  CHECK(runs[0].low == (uintptr_t)memory[1] + 5 * PAGE);
  CHECK(oa_watch_take_seen(watches[2], runs, 3, &pages) == 0);
  CHECK(taken(watches[0]) == 0 && taken(watches[1]) == 1 && taken(watches[2]) == 1);
  memory[0][0] = 2;
  oa_watches_look(watches, COUNT); /* the pages of the former look were not taken */
  CHECK(taken(watches[0]) == 1);
  for (int i = 0; i < COUNT; i++) {
    oa_watch_free(watches[i]);
    munmap(memory[i], BYTES);
  }
}

static void *write_one(void *data) {
  *(char *)data = 9;
  return NULL;
}

static void a_write_is_found_whichever_thread_or_call_makes_it(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 0);
  if (!CHECK(watch)) return;
  taken(watch);
  pthread_t thread;
  pthread_create(&thread, NULL, write_one, memory + 3 * PAGE);
  pthread_join(thread, NULL);
  CHECK(taken(watch) == 1);
  int ends[2]; /* the kernel writes to the page */
  CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1 && read(ends[0], memory + 5 * PAGE, 1) == 1);
  CHECK(taken(watch) == 1);
  const pid_t child = fork();
  if (child == 0) {
    memory[PAGE] = 7; /* the child writes a copy of its own */
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(taken(watch) == 0 && memory[PAGE] != 7);
  memory[2 * PAGE] = 7; /* the parent writes a page after the fork */
  CHECK(taken(watch) == 1);
  char *place = pages_new(BYTES, MAP_PRIVATE);
  char *moved = mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  CHECK(moved == place && taken(watch) == PAGES);
  oa_watch_free(watch);
  munmap(moved, BYTES);
}

static void memory_that_others_can_write_is_not_watched(void) {
  char *shared = pages_new(BYTES, MAP_SHARED);
  CHECK(!oa_watch_new((uintptr_t)shared, (uintptr_t)shared + BYTES, 0));
  munmap(shared, BYTES);
  const int file = memfd_create("test", 0);
  CHECK(file >= 0 && ftruncate(file, BYTES) == 0);
  const int kinds[] = {MAP_SHARED, MAP_PRIVATE};
  for (int i = 0; i < 2; i++) {
    char *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, kinds[i], file, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(!oa_watch_new((uintptr_t)mapped, (uintptr_t)mapped + BYTES, 0));
    munmap(mapped, BYTES);
  }
  close(file);
  char *holes = pages_new(3 * BYTES, MAP_PRIVATE);
  munmap(holes + BYTES, BYTES);
  CHECK(!oa_watch_new((uintptr_t)holes, (uintptr_t)holes + 3 * BYTES, 0));
  munmap(holes, BYTES);
  munmap(holes + 2 * BYTES, BYTES);
}

static void huge_pages_are_watched(void) {
  const size_t nbytes = 8 << 20, huge = 2 << 20;
  char *memory = mmap(NULL, nbytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *aligned = (char *)(((uintptr_t)memory + huge - 1) / huge * huge);
  madvise(aligned, nbytes, MADV_HUGEPAGE);
  memset(aligned, 1, nbytes);
  oa_watch *watch = oa_watch_new((uintptr_t)aligned + 64, (uintptr_t)aligned + nbytes - 64, 0);
  if (!CHECK(watch)) return;
  taken(watch);
  CHECK(taken(watch) == 0);
  aligned[3 << 20] = 2;
  const int64_t pages = taken(watch);
  CHECK(pages >= 1 && pages <= 512);
  CHECK(taken(watch) == 0);
  oa_watch_free(watch);
  munmap(memory, nbytes + huge);
}

int main(void) {
  if (!oa_pages_work()) {
    fprintf(stderr, "the kernel lets no pages be watched here\n");
    return 0;
  }
  a_watch_finds_the_written_pages();
  large_holes_are_found();
  watches_share_pages();
  several_watches_are_looked_at_together();
  a_write_is_found_whichever_thread_or_call_makes_it();
  memory_that_others_can_write_is_not_watched();
  huge_pages_are_watched();
  return failures();
}
