#include "region/pages.h"

#include "base/present.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* -- the kernel's interface, as documented: system headers before Linux 6.7 lack the newer half -- */

struct range {
  uint64_t start, length;
};
struct api {
  uint64_t api, features, ioctls;
};
struct registration {
  struct range range;
  uint64_t mode, ioctls;
};
struct protection {
  struct range range;
  uint64_t mode;
};
struct region {
  uint64_t start, end, categories;
};
struct scan {
  uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
  uint64_t inverted, all_of, any_of, returned;
};
struct map_query {
  uint64_t size, flags, address, start, end, vma_flags, page_size, offset, inode;
  uint32_t device_major, device_minor, name_size, build_id_size;
  uint64_t name, build_id;
};

#define USERFAULT_API _IOWR(0xAA, 0x3F, struct api)
#define USERFAULT_REGISTER _IOWR(0xAA, 0x00, struct registration)
#define USERFAULT_UNREGISTER _IOR(0xAA, 0x01, struct range)
#define USERFAULT_PROTECT _IOWR(0xAA, 0x06, struct protection)
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan)
#define MAP_QUERY _IOWR('f', 17, struct map_query)

enum { USER_MODE_ONLY = 1, API = 0xAA, WP_UNPOPULATED = 1 << 13, WP_ASYNC = 1 << 15, REGISTER_WP = 2, PROTECT_WP = 1 };
enum { CHECK_WPASYNC = 2 };
enum { IS_WRITTEN = 2, IS_PRESENT = 8, IS_SWAPPED = 16 };
enum { QUERY_COVERING_OR_NEXT = 16, QUERY_SHARED = 8 };

/* -- state: under `watching` -- */

enum {
  /* each watch may cut a memory mapping of the process in three; the kernel allows some 65,000 mappings */
  MOST_WATCHES = 8192,
  NEAR = 8, /* pages: sending so many unchanged pages is cheaper than beginning another run */
  /* The pages of a sample are in a few groups: arming single pages splits their huge pages, which are slow to scan
   * afterwards. */
  GROUPS = 4,
  APART = 8 /* distance in pages between two pages of a group, if the array is large enough */
};

struct oa_watch {
  oa_present at;          /* stays first: whole pages */
  int64_t count;          /* watched pages: all pages, or the pages of the sample */
  int64_t group, between; /* the sample's number of pages in a group, and of pages from one group to the next */
  int64_t step;           /* pages from one page of a group to the next; 0: all pages are watched */
  bool lost;              /* the kernel no longer watches some of the pages */
  bool proven;            /* the bits are reliable since the last look; otherwise all pages count as written */
  uint64_t *bits;         /* one bit for each page; set: the page was written, or its state is not known */
};

static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
static oa_present_table watches;
static int watch_count;
static atomic_int allowed = 1;
static int userfault = -1, pagemap = -1, status = -1, maps = -1;
static uintptr_t page;
static uint64_t armings; /* number of armed ranges so far */
static bool unpinned;    /* nothing was pinned at the last check */

static int open_own(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }

static void start(void) {
  page = (uintptr_t)sysconf(_SC_PAGESIZE);
  userfault = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
  if (userfault < 0) return;
  struct api api = {.api = API, .features = WP_ASYNC | WP_UNPOPULATED};
  struct scan nothing = {.size = sizeof nothing, .flags = CHECK_WPASYNC, .all_of = IS_WRITTEN, .returned = IS_WRITTEN};
  if (ioctl(userfault, USERFAULT_API, &api) == 0 && (pagemap = open_own("/proc/self/pagemap")) >= 0 &&
      ioctl(pagemap, PAGEMAP_SCAN, &nothing) == 0 && (status = open_own("/proc/self/status")) >= 0 &&
      (maps = open_own("/proc/self/maps")) >= 0)
    return;
  const int descriptors[] = {userfault, pagemap, status};
  for (int i = 0; i < 3; i++)
    if (descriptors[i] >= 0) close(descriptors[i]);
  userfault = -1;
}

bool oa_pages_work(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  return userfault >= 0 && atomic_load(&allowed);
}

void oa_pages_allow(int allow) { atomic_store(&allowed, allow); }

/* Returns whether this process has no pinned memory. Memory that is pinned for writing (io_uring's fixed buffers, RDMA)
 * changes without marking a page. Pinning itself marks pages, so only memory that is pinned while pages are armed
 * matters. */
static bool nothing_pinned(void) {
  char text[4096];
  const ssize_t length = pread(status, text, sizeof text - 1, 0);
  if (length <= 0) return false;
  text[length] = '\0';
  const char *line = strstr(text, "\nVmPin:");
  return line && strtol(line + 7, NULL, 10) == 0;
}

/* Returns whether the memory is private and anonymous: only this process writes it, through page tables that are
 * watched. */
static bool is_own_memory(uintptr_t low, uintptr_t high) {
  uintptr_t at = low;
  while (at < high) {
    struct map_query query = {.size = sizeof query, .flags = QUERY_COVERING_OR_NEXT, .address = at};
    if (ioctl(maps, MAP_QUERY, &query) != 0) break;
    if (query.start > at || query.vma_flags & QUERY_SHARED || query.inode) return false;
    at = query.end;
  }
  if (at >= high) return true;
  FILE *file = fopen("/proc/self/maps", "re"); /* Linux before 6.11 */
  if (!file) return false;
  unsigned long from, to, inode;
  char rights[8], line[512];
  bool foreign = false;
  while (at < high && !foreign && fgets(line, sizeof line, file)) {
    if (sscanf(line, "%lx-%lx %7s %*x %*x:%*x %lu", &from, &to, rights, &inode) != 4 || to <= at) continue;
    foreign = from > at || rights[3] != 'p' || inode;
    at = to;
  }
  fclose(file);
  return at >= high && !foreign;
}

static uintptr_t page_at(const oa_watch *watch, int64_t i) {
  if (watch->step) i = i / watch->group * watch->between + i % watch->group * watch->step;
  return watch->at.low + (uintptr_t)i * page;
}

/* -- bits -- */

static int64_t words_of(const oa_watch *watch) { return (watch->count + 63) / 64; }

static void set_bits(oa_watch *watch, int64_t from, int64_t to) {
  for (int64_t word = from / 64; word * 64 < to; word++) {
    uint64_t mask = ~(uint64_t)0;
    if (word * 64 < from) mask &= mask << (from - word * 64);
    if (word * 64 + 64 > to) mask &= ~(uint64_t)0 >> (word * 64 + 64 - to);
    watch->bits[word] |= mask;
  }
}

static void clear_bits(oa_watch *watch) { memset(watch->bits, 0, (size_t)words_of(watch) * sizeof *watch->bits); }

/* Returns the first page from `at` on whose bit has that value; the watch's count if there is none. */
static int64_t next_bit(const oa_watch *watch, int64_t at, bool set) {
  while (at < watch->count) {
    const uint64_t word = (set ? watch->bits[at / 64] : ~watch->bits[at / 64]) >> (at % 64);
    if (word) {
      at += __builtin_ctzll(word);
      break;
    }
    at = (at / 64 + 1) * 64;
  }
  return at < watch->count ? at : watch->count;
}

/* -- asking the kernel: under the lock -- */

static int note_written(oa_present *element, void *data) {
  oa_watch *watch = (oa_watch *)element;
  const oa_run *run = data;
  if (watch->step) {
    for (int64_t i = 0; i < watch->count; i++)
      if (run->low <= page_at(watch, i) && page_at(watch, i) < run->high) set_bits(watch, i, i + 1);
    return 0;
  }
  const uintptr_t low = run->low > watch->at.low ? run->low : watch->at.low;
  const uintptr_t high = run->high < watch->at.high ? run->high : watch->at.high;
  if (low < high) set_bits(watch, (int64_t)((low - watch->at.low) / page), (int64_t)((high - watch->at.low) / page));
  return 0;
}

static bool protect(uintptr_t low, uintptr_t high, uint64_t mode) {
  struct protection protection = {{low, high - low}, mode};
  int result;
  do result = ioctl(userfault, USERFAULT_PROTECT, &protection);
  while (result != 0 && (errno == EAGAIN || errno == EINTR));
  return result == 0;
}

/* Notes the range [low, high) as written in every watch that overlaps the range, and then arms the range. */
static void note_and_arm(oa_watch *watch, uintptr_t low, uintptr_t high) {
  oa_run run = {low, high};
  armings++;
  oa_present_visit(&watches, low, high, note_written, &run);
  if (!watch->lost && !protect(low, high, PROTECT_WP)) watch->lost = true;
}

/* Adds [low, high) to a run of changed pages that is not noted yet. If the two are not adjacent, notes the run
 * first. */
static void add_changed(oa_watch *watch, oa_run *run, uintptr_t low, uintptr_t high) {
  if (run->high != low) {
    if (run->low < run->high) note_and_arm(watch, run->low, run->high);
    run->low = low;
  }
  run->high = high;
}

enum { MOST_REGIONS = 256 };

/* Fills `pages` with the pages of [*next, high) that were changed or are only swapped out, as many as fit.
 * Sets *next to the end of the scanned range. Returns the number of pages; -1 if the kernel does not report it. */
static int scan(uint64_t *next, uintptr_t high, struct region *pages) {
  struct scan scan = {.size = sizeof scan,
                      .flags = CHECK_WPASYNC,
                      .start = *next,
                      .end = high,
                      .regions = (uintptr_t)pages,
                      .region_count = MOST_REGIONS,
                      .inverted = IS_PRESENT,
                      .any_of = IS_WRITTEN | IS_PRESENT,
                      .returned = IS_WRITTEN | IS_SWAPPED};
  int count;
  do count = ioctl(pagemap, PAGEMAP_SCAN, &scan);
  while (count < 0 && errno == EINTR);
  if (count < 0 || scan.walk_end <= *next) return -1;
  *next = scan.walk_end;
  return count;
}

/* Notes and arms the pages of [low, high) that may have changed: all except pages that exist (in memory or swapped out)
 * and were not written. Holes, and pages that can't be scanned, count as changed. A mapping that was replaced or moved
 * is not scanned any more, so its kind need not be checked again.
 *
 * The scan returns the changed pages, which are few. A scan that returns the unchanged pages takes four times as long.
 * A scan does not report addresses without a mapping, so msync, which does nothing else here, checks that all addresses
 * have a mapping. (A scan for written pages alone is faster still, but misses holes, and before Linux 6.15 some
 * swapped-out pages.) */
static void look(oa_watch *watch, uintptr_t low, uintptr_t high) {
  struct region pages[MOST_REGIONS];
  oa_run changed = {low, low};
  uint64_t next = low;
  if (msync((void *)low, high - low, MS_ASYNC) != 0) {
    watch->lost = true;
    note_and_arm(watch, low, high);
    return;
  }
  for (int count; next < high && (count = scan(&next, high, pages)) >= 0;)
    for (int i = 0; i < count; i++)
      if (pages[i].categories != IS_SWAPPED) add_changed(watch, &changed, pages[i].start, pages[i].end);
  if (next < high) add_changed(watch, &changed, next, high);
  if (changed.low < changed.high) note_and_arm(watch, changed.low, changed.high);
}

static bool enlist(const oa_watch *watch) {
  struct registration registration = {.range = {watch->at.low, watch->at.high - watch->at.low}, .mode = REGISTER_WP};
  return ioctl(userfault, USERFAULT_REGISTER, &registration) == 0;
}

/* Brings the bits up to date and arms the pages. The caller checks for pinned memory afterwards. */
static void refresh(oa_watch *watch) {
  if (watch->lost && is_own_memory(watch->at.low, watch->at.high) && enlist(watch)) {
    /* The memory was mapped again, and no page is protected, so the kernel watches all pages again. */
    watch->lost = false;
    set_bits(watch, 0, watch->count);
  }
  if (watch->step)
    for (int64_t i = 0; i < watch->count; i++) look(watch, page_at(watch, i), page_at(watch, i) + page);
  else
    look(watch, watch->at.low, watch->at.high);
}

/* Looks at several watches. All pages of a watch for which the kernel can't vouch count as written. The search for
 * pinned memory takes as long as most scans, so it runs only after pages were armed: pinning such armed memory later
 * marks its pages. */
static void look_at(oa_watch *const *these, int count) {
  const uint64_t before = armings;
  bool known = unpinned;
  for (int i = 0; i < count; i++) known &= these[i]->proven;
  for (int i = 0; i < count; i++) refresh(these[i]);
  if (!known || armings != before) unpinned = nothing_pinned();
  const bool sure = atomic_load(&allowed) && unpinned;
  for (int i = 0; i < count; i++) {
    these[i]->proven = sure && !these[i]->lost;
    if (!these[i]->proven) set_bits(these[i], 0, these[i]->count);
  }
}

/* -- watches -- */

oa_watch *oa_watch_new(uintptr_t low, uintptr_t high, int samples) {
  if (!oa_pages_work()) return NULL;
  oa_watch *watch = calloc(1, sizeof *watch);
  if (!watch) return NULL;
  watch->at.low = low / page * page;
  watch->at.high = (high + page - 1) / page * page;
  watch->count = (int64_t)((watch->at.high - watch->at.low) / page);
  if (samples && watch->count > samples) {
    /* Other data share the first and the last page, and writes to these data would count. */
    if (watch->count > samples + 2) {
      watch->at.low = (low + page - 1) / page * page;
      watch->at.high = high / page * page;
      watch->count = (int64_t)((watch->at.high - watch->at.low) / page);
    }
    watch->group = samples / GROUPS;
    watch->step = watch->count / samples < APART ? watch->count / samples : APART;
    watch->between = (watch->count - watch->group * watch->step) / (GROUPS - 1);
    watch->count = samples;
  }
  watch->bits = malloc((size_t)words_of(watch) * sizeof *watch->bits);
  pthread_mutex_lock(&watching);
  const bool works =
      watch->bits && watch_count < MOST_WATCHES && is_own_memory(watch->at.low, watch->at.high) && enlist(watch);
  if (works) {
    clear_bits(watch);
    set_bits(watch, 0, watch->count);
    oa_present_insert(&watches, &watch->at);
    watch_count++;
  }
  pthread_mutex_unlock(&watching);
  if (works) return watch;
  free(watch->bits);
  free(watch);
  return NULL;
}

static void delist(uintptr_t low, uintptr_t high) {
  struct range range = {low, high - low};
  if (low < high)
    ioctl(userfault, USERFAULT_UNREGISTER, &range); /* this fails if the memory was unmapped, and that is no error */
}

static int keep_others(oa_present *element, void *data) {
  oa_run *rest = data;
  delist(rest->low, element->low);
  if (element->high > rest->low) rest->low = element->high;
  return 0;
}

void oa_watch_free(oa_watch *watch) {
  if (!watch) return;
  pthread_mutex_lock(&watching);
  oa_present_remove(&watches, &watch->at);
  watch_count--;
  oa_run rest = {watch->at.low, watch->at.high};
  oa_present_visit(&watches, rest.low, rest.high, keep_others, &rest);
  delist(rest.low, watch->at.high);
  pthread_mutex_unlock(&watching);
  free(watch->bits);
  free(watch);
}

void oa_watches_look(oa_watch *const *these, int count) {
  pthread_mutex_lock(&watching);
  look_at(these, count);
  pthread_mutex_unlock(&watching);
}

/* Makes the result of oa_watch_take_seen. Called with the lock. */
static int take(oa_watch *watch, oa_run *runs, int most, int64_t *pages) {
  int count = 0;
  *pages = 0;
  int64_t last = 0; /* the end of the last run */
  for (int64_t from = next_bit(watch, 0, true); from < watch->count; from = next_bit(watch, last, true)) {
    const int64_t to = next_bit(watch, from, false);
    *pages += to - from;
    if (!count || (from - last > NEAR && count < most)) runs[count++].low = page_at(watch, from);
    runs[count - 1].high = page_at(watch, to - 1) + page;
    last = to;
  }
  if (watch->proven) clear_bits(watch);
  return count;
}

int oa_watch_take(oa_watch *watch, oa_run *runs, int most, int64_t *pages) {
  pthread_mutex_lock(&watching);
  look_at(&watch, 1);
  const int count = take(watch, runs, most, pages);
  pthread_mutex_unlock(&watching);
  return count;
}

int oa_watch_take_seen(oa_watch *watch, oa_run *runs, int most, int64_t *pages) {
  pthread_mutex_lock(&watching);
  const int count = take(watch, runs, most, pages);
  pthread_mutex_unlock(&watching);
  return count;
}

bool oa_watch_is_clean(oa_watch *watch) {
  pthread_mutex_lock(&watching);
  look_at(&watch, 1);
  const bool clean = watch->proven && next_bit(watch, 0, true) >= watch->count;
  pthread_mutex_unlock(&watching);
  return clean;
}

static int note_same(oa_present *element, void *data) {
  const oa_watch *watch = (const oa_watch *)element;
  oa_watch *const *wanted = data; /* wanted[0]: the wanted interval; wanted[1]: the result */
  if (watch->step || watch->at.low != wanted[0]->at.low || watch->at.high != wanted[0]->at.high) return 0;
  ((oa_watch **)data)[1] = (oa_watch *)element;
  return 1;
}

int64_t oa_pages_unknown(uintptr_t low, uintptr_t high) {
  struct region pages[MOST_REGIONS];
  int64_t bytes = -1;
  if (!oa_pages_work()) return -1;
  oa_watch interval = {.at = {.low = low / page * page, .high = (high + page - 1) / page * page}};
  oa_watch *search[2] = {&interval, NULL};
  pthread_mutex_lock(&watching);
  oa_present_visit(&watches, interval.at.low, interval.at.high, note_same, search);
  const oa_watch *watch = search[1];
  if (watch && watch->proven && !watch->lost && unpinned &&
      msync((void *)interval.at.low, interval.at.high - interval.at.low, MS_ASYNC) == 0) {
    uint64_t next = interval.at.low;
    bytes = 0;
    for (int64_t i = 0; i < words_of(watch); i++) bytes += __builtin_popcountll(watch->bits[i]) * (int64_t)page;
    for (int count; next < interval.at.high && (count = scan(&next, interval.at.high, pages)) >= 0;)
      for (int i = 0; i < count; i++)
        if (pages[i].categories != IS_SWAPPED) bytes += (int64_t)(pages[i].end - pages[i].start);
    if (next < interval.at.high) bytes = -1;
  }
  pthread_mutex_unlock(&watching);
  return bytes;
}

void oa_watch_lift(oa_watch *watch) {
  pthread_mutex_lock(&watching);
  protect(watch->at.low, watch->at.high, 0);
  pthread_mutex_unlock(&watching);
}

void oa_watch_agree(oa_watch *watch) {
  pthread_mutex_lock(&watching);
  look_at(&watch, 1);
  if (watch->proven) clear_bits(watch);
  pthread_mutex_unlock(&watching);
}

int64_t oa_watch_pages(const oa_watch *watch) { return watch->count; }
