/* The sections follow the life of resident memory. An entry is made, and its memory is lent again by later regions, or
 * copied to other devices. Memory that does not pay is given up. Bringing up compares the pages with the last look, and
 * bringing down notes that both sides are equal. Under memory pressure, idle entries are evicted. */
#include "region/residency.h"

#include "base/sized.h"
#include "device/memory.h"
#include "offload_args/testing.h"
#include "region/array.h"
#include "region/caller.h"
#include "region/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  /* bytes: a smaller array is sent, with other arrays in one copy, as fast as its pages can be scanned */
  LEAST = 128 << 10,
  LEAST_AUTO = 1 << 20, /* bytes: smaller arrays are not worth the risk of slower writes */
  SAMPLES = 16,         /* pages that are armed first, to see whether arming all of them pays */
  /* bytes: arming a sample takes almost no time compared with a copy of that size; a smaller array is sampled at its
   * second read */
  SAMPLE_AT_ONCE = 16 << 20,
  /* if more than one page of WRITTEN_LIMIT pages was written, residency takes more time than sending the array */
  WRITTEN_LIMIT = 20,
  MOST_STRIKES = 20,
  MOST_CANDIDATES = 256,
  OWNERS = 4096
};

/* An entry: one array on one device whose memory is resident, or may become so. An entry is in `table` until it is
 * destroyed. While an entry has no mapping, it alone uses the memory. */
struct oa_resident {
  oa_present at; /* stays first: the host's bytes */
  oa_device *device;
  const void *owner;
  oa_lines lines;
  bool owned;       /* the pages may be watched, because only the owner uses the memory */
  bool wanted;      /* the array is to be resident; otherwise it is a candidate of automatic residency */
  bool automatic;   /* automatic residency or OA_TRACKED chose the array, not the program */
  bool tracked;     /* the array was OA_TRACKED, so automatic residency does not try it */
  bool dropped;     /* the entry's memory ends with the mapping that uses the memory */
  bool keeps;       /* OA_TRACKED memory is to stay even if the region writes it */
  bool announced;   /* oa_owner_kept has reported the entry, or need not report it */
  bool outdated;    /* all bytes have to be sent, because the device's bytes are not reliable */
  bool broken;      /* a region that used the memory failed, so the memory does not stay */
  bool waited;      /* all work that the mapping's regions issued was waited for */
  bool promoted;    /* the entry becomes resident if the present moves succeed */
  bool coming;      /* copies down of the array are under way */
  bool peering;     /* another device copies the entry's idle memory */
  bool seen;        /* the pages were scanned for this mapping, and the written pages were not sent yet */
  uint64_t address; /* 0: the entry has no memory */
  int64_t nbytes;
  oa_mapping *mapping;
  oa_watch *watch;  /* NULL: the whole array is sent each time */
  oa_watch *sample; /* the watch of a sample of pages, for a candidate */
  int reads, strikes;
  int64_t skip;                    /* number of reads to ignore before the array is tried again */
  int64_t armed;                   /* number of the array's pages in the device's counters */
  int64_t spared, resent, written; /* bytes and pages of the present moves */
  struct oa_resident *next,
      *previous; /* in the list `in`: the idle entries in the order of their last use, or the candidates */
  struct list *in;
  struct oa_resident *next_of_owner, *next_news;
};

struct list {
  struct oa_resident *first, *last;
  int64_t count;
};

static oa_present_table table;
static struct list idle, candidates;
static oa_resident *owners[OWNERS];
static oa_resident *news; /* entries that were not reported yet */
static _Atomic int news_count, entry_count;
static _Atomic(oa_resident *) ended; /* entries to be freed; added under the lock */
static atomic_int mode = -1;

static int64_t evict_idle(oa_device *device, size_t nbytes);

/* -- lists -- */

static void leave_list(oa_resident *entry) {
  struct list *list = entry->in;
  if (!list) return;
  *(entry->previous ? &entry->previous->next : &list->first) = entry->next;
  *(entry->next ? &entry->next->previous : &list->last) = entry->previous;
  entry->next = entry->previous = NULL;
  entry->in = NULL;
  list->count--;
}

static void join_list(oa_resident *entry, struct list *list) {
  leave_list(entry);
  entry->previous = list->last;
  *(list->last ? &list->last->next : &list->first) = entry;
  list->last = entry;
  entry->in = list;
  list->count++;
}

static oa_resident **owner_bucket(const void *owner) { return &owners[((uintptr_t)owner >> 4) % OWNERS]; }

static void become_news(oa_resident *entry) {
  if (entry->announced || !entry->owner) return;
  entry->next_news = news;
  news = entry;
  news_count++;
}

static void leave_owner(oa_resident *entry) {
  for (oa_resident **place = owner_bucket(entry->owner); *place; place = &(*place)->next_of_owner) {
    if (*place != entry) continue;
    *place = entry->next_of_owner;
    return;
  }
}

static void leave_news(oa_resident *entry) {
  for (oa_resident **place = &news; *place; place = &(*place)->next_news) {
    if (*place != entry) continue;
    *place = entry->next_news;
    news_count--;
    return;
  }
}

static void count_armed(oa_resident *entry) {
  const int64_t now =
      (entry->watch ? oa_watch_pages(entry->watch) : 0) + (entry->sample ? oa_watch_pages(entry->sample) : 0);
  entry->device->residency.pages_armed += now - entry->armed;
  entry->armed = now;
}

static void count_idle(oa_resident *entry, int sign) {
  entry->device->residency.kept += sign;
  entry->device->residency.kept_bytes += sign * entry->nbytes;
}

/* -- the mode -- */

int oa_residency_start(void) {
  if (OA_LIKELY(atomic_load_explicit(&mode, memory_order_relaxed) >= 0)) return OA_OK;
  const char *text = getenv("OFFLOAD_ARGS_RESIDENCY");
  int value = -1;
  if (!text || !text[0] || strcmp(text, "explicit") == 0)
    value = OA_RESIDENCY_EXPLICIT;
  else if (strcmp(text, "auto") == 0)
    value = OA_RESIDENCY_AUTO;
  else if (strcmp(text, "off") == 0)
    value = OA_RESIDENCY_OFF;
  if (value < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "OFFLOAD_ARGS_RESIDENCY needs \"auto\", \"explicit\" or \"off\", is \"%.64s\"",
                   text);
  atomic_store(&mode, value);
  return OA_OK;
}

/* -- making and ending -- */

/* Takes the entry out of the table and of its lists. From now on a mapping that has its memory owns it. Called with the
 * lock. */
static void remove_entry(oa_resident *entry) {
  if (entry->mapping) {
    entry->mapping->resident = NULL;
    entry->mapping = NULL;
    entry->address = 0;
  } else if (entry->address) {
    count_idle(entry, -1);
  }
  oa_present_remove(&table, &entry->at);
  leave_list(entry);
  leave_news(entry);
  leave_owner(entry);
  entry->device->residency.pages_armed -= entry->armed;
  entry_count--;
}

/* Frees device memory that no region uses. */
static int free_memory(oa_device *device, uint64_t address, int64_t nbytes) {
  oa_stream *stream;
  int status = oa_stream_take(device, &stream);
  if (status) return status;
  status = oa_device_free(device, stream->native, address, (size_t)nbytes);
  oa_stream_return(stream);
  return status;
}

/* Destroys the entry and frees its device memory. oa_resident_free_ended frees the entry's host memory later, without
 * the lock. */
static int destroy(oa_resident *entry) {
  remove_entry(entry);
  const int status = entry->address ? free_memory(entry->device, entry->address, entry->nbytes) : OA_OK;
  entry->next = atomic_load(&ended);
  while (!atomic_compare_exchange_weak(&ended, &entry->next, entry)) continue;
  return status;
}

void oa_resident_free_ended(void) {
  if (OA_LIKELY(!atomic_load_explicit(&ended, memory_order_relaxed))) return;
  oa_resident *entry = atomic_exchange(&ended, NULL);
  while (entry) {
    oa_resident *next = entry->next;
    oa_watch_free(entry->watch);
    oa_watch_free(entry->sample);
    free(entry);
    entry = next;
  }
}

/* Returns a new entry; NULL, without a text, if host memory runs out. */
static oa_resident *make_entry(oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines,
                               const oa_array *array) {
  oa_resident *entry = calloc(1, sizeof *entry);
  if (!entry) return NULL; /* without an entry, the array is sent each time */
  entry->at.low = low;
  entry->at.high = high;
  entry->device = device;
  entry->owner = array->owner;
  entry->owned = array->flags & OA_TRACKED || (array->flags & OA_OWNED && array->owner);
  entry->lines = lines;
  entry->nbytes = (int64_t)(high - low);
  entry->outdated = true;
  entry->next_of_owner = *owner_bucket(entry->owner);
  *owner_bucket(entry->owner) = entry;
  oa_present_insert(&table, &entry->at);
  entry_count++;
  atomic_store(&oa_device_pressure, evict_idle);
  return entry;
}

/* Notes that the host memory has a new owner. Arrays that live one after the other may have the same address. */
static void change_owner(oa_resident *entry, const oa_array *array) {
  if (!array->owner || array->owner == entry->owner) return;
  leave_news(entry);
  leave_owner(entry);
  entry->owner = array->owner;
  entry->owned = array->flags & OA_OWNED;
  entry->announced = false;
  entry->next_of_owner = *owner_bucket(entry->owner);
  *owner_bucket(entry->owner) = entry;
  if (entry->wanted) become_news(entry);
}

/* Makes a candidate resident. */
static void want(oa_resident *entry) {
  if (entry->wanted) return;
  entry->wanted = true;
  leave_list(entry);
  become_news(entry);
}

typedef struct search {
  const oa_device *device; /* NULL: any */
  uintptr_t low, high;
  oa_lines lines;
  oa_resident *match;
} search;

static int note_entry(oa_present *element, void *data) {
  search *s = data;
  oa_resident *entry = (oa_resident *)element;
  if (element->low != s->low || element->high != s->high || (s->device && entry->device != s->device) ||
      memcmp(&entry->lines, &s->lines, sizeof s->lines) != 0)
    return 0;
  s->match = entry;
  return 1;
}

static oa_resident *find(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines) {
  search s = {.device = device, .low = low, .high = high, .lines = lines};
  oa_present_visit(&table, low, high, note_entry, &s);
  return s.match;
}

/* -- lending again -- */

/* Returns whether the entry's memory is being copied, so that the entry can't be destroyed before the next change. */
static bool is_busy(const oa_resident *entry) { return entry->peering || (entry->mapping && entry->mapping->moving); }

static void become_candidate(oa_resident *entry) {
  if (!entry->wanted) return;
  entry->wanted = false;
  leave_news(entry);
  join_list(entry, &candidates);
  entry->device->residency.demoted++;
}

static bool can_stay(const oa_mapping *mapping) {
  return mapping->kind == OA_MAPS_HOST && mapping->nbytes >= LEAST && mapping->view_count == 1 &&
         !mapping->views[0].shape;
}

void oa_resident_attach(oa_mapping *mapping, const oa_array *array, bool is_new) {
  const int now = atomic_load_explicit(&mode, memory_order_relaxed);
  const bool is_resident = array->flags & OA_RESIDENT;
  const bool candidate =
      now == OA_RESIDENCY_AUTO && array->flags & OA_OWNED && mapping->nbytes >= LEAST_AUTO && mapping->views[0].goes_up;
  if (now == OA_RESIDENCY_OFF || mapping->resident || !(is_resident || candidate || entry_count) || !can_stay(mapping))
    return;
  /* The mapping has no memory, or memory in an arena, which can't stay. */
  if (!is_new && (!mapping->address || mapping->arena)) return;
  const oa_lines lines = mapping->views[0].lines;
  oa_resident *entry = find(mapping->device, mapping->at.low, mapping->at.high, lines);
  if (!entry && !is_resident && !candidate) return;
  if (!entry && !(entry = make_entry(mapping->device, mapping->at.low, mapping->at.high, lines, array))) return;
  if (entry->mapping || entry->peering || (entry->address && !is_new)) return; /* the entry's memory is still in use */
  change_owner(entry, array);
  const bool tracked = array->flags & OA_TRACKED;
  if (tracked ? !entry->wanted : candidate) entry->tracked = tracked;
  entry->keeps = is_resident && tracked && mapping->views[0].writes;
  if (is_resident) {
    entry->dropped = false;
    if (!tracked || !entry->wanted) entry->automatic = tracked;
    want(entry);
  } else if (!entry->wanted) {
    entry->automatic = true;
    join_list(entry, &candidates);
    oa_resident *oldest = candidates.first;
    if (candidates.count > MOST_CANDIDATES && !oldest->mapping) destroy(oldest);
  }
  mapping->resident = entry;
  entry->mapping = mapping;
  entry->waited = entry->seen = false;
  if (!entry->address) {
    entry->outdated = true;
    return;
  }
  leave_list(entry);
  count_idle(entry, -1);
  mapping->address = entry->address;
}

void oa_resident_unused(oa_mapping *mapping) {
  oa_resident *entry = mapping->resident;
  if (entry && entry->address) entry->waited = true; /* there is nothing to wait for */
}

void oa_resident_separate(oa_mapping *mapping) {
  oa_resident *entry = mapping->resident;
  if (!entry) return;
  mapping->resident = NULL;
  entry->mapping = NULL;
  entry->address = 0;
  entry->outdated = true;
  entry->broken = entry->coming = false;
}

typedef struct lent_search {
  const oa_device *device;
  uintptr_t low, high;
} lent_search;

static int note_lent(oa_present *element, void *data) {
  const lent_search *s = data;
  return ((oa_mapping *)element)->device == s->device && element->low <= s->low && element->high >= s->high;
}

int64_t oa_resident_missing(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines) {
  const int64_t bytes = oa_lines_bytes(lines);
  oa_lock();
  const oa_resident *entry = entry_count ? find(device, low, high, lines) : NULL;
  /* A thread that moves an entry's memory may change entry->watch without the lock, so a busy entry does not count. */
  const bool here =
      entry && !is_busy(entry) && entry->wanted && entry->owned && entry->watch && !entry->outdated && entry->address;
  lent_search search = {device, low, high};
  const bool lent = oa_present_visit(&oa_table, low, high, note_lent, &search);
  oa_unlock();
  if (lent) return 0;
  const int64_t unknown = here ? oa_pages_unknown(low, high) : -1;
  return unknown < 0 || unknown > bytes ? bytes : unknown;
}

void oa_resident_drop(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines) {
  oa_lock();
  oa_resident *entry = find(device, low, high, lines);
  const bool ends = entry && entry->tracked && entry->automatic;
  if (ends && is_busy(entry)) entry->dropped = true;
  if (ends && !is_busy(entry)) destroy(entry);
  oa_unlock();
  oa_resident_free_ended();
}

bool oa_resident_return(oa_mapping *mapping) {
  oa_resident *entry = mapping->resident;
  if (!entry) return false;
  const bool stays = mapping->address && entry->wanted && !entry->dropped && entry->waited && !mapping->escaped &&
                     !entry->broken && !mapping->device->lost;
  if (!stays) {
    oa_resident_separate(mapping);
    if (entry->dropped) become_candidate(entry);
    return false;
  }
  const oa_group *group = &mapping->groups[0];
  if (group->dirty || group->invalid) entry->outdated = true; /* the device has bytes that never reached the host */
  if (oa_group_present(group)) entry->outdated = true;        /* the device has only parts of the array */
  entry->address = mapping->address;
  entry->mapping = NULL;
  entry->coming = false;
  mapping->resident = NULL;
  join_list(entry, &idle);
  count_idle(entry, +1);
  return true;
}

/* -- other devices -- */

typedef struct peer_search {
  const oa_device *device;
  uintptr_t low;
  oa_lines lines;
  oa_resident *match;
} peer_search;

static int note_peer(oa_present *element, void *data) {
  peer_search *s = data;
  oa_resident *entry = (oa_resident *)element;
  oa_lines lines = s->lines;
  if (entry->device == s->device || entry->device->backend != s->device->backend || entry->device->lost ||
      entry->in != &idle || !entry->watch || !entry->owned || entry->outdated || element->low > s->low)
    return 0;
  lines.start = (int64_t)(s->low - element->low);
  if (!oa_lines_contain(entry->lines, lines)) return 0;
  s->match = entry;
  return 1;
}

oa_resident *oa_resident_take_peer(const oa_device *device, uintptr_t low, oa_lines lines, oa_device **source,
                                   uint64_t *address) {
  peer_search s = {.device = device, .low = low, .lines = lines};
  if (!idle.count || !oa_present_visit(&table, low, low + (uintptr_t)oa_lines_span(lines), note_peer, &s)) return NULL;
  leave_list(s.match);
  count_idle(s.match, -1);
  s.match->peering = true;
  *source = s.match->device;
  *address = s.match->address + (uint64_t)(low - s.match->at.low);
  return s.match;
}

bool oa_resident_is_current(const oa_resident *entry) { return oa_watch_is_clean(entry->watch); }

void oa_resident_return_peer(oa_resident *entry) {
  entry->peering = false;
  join_list(entry, &idle);
  count_idle(entry, +1);
}

/* -- giving up -- */

/* Stops watching an array that automatic residency misjudged, each time for more reads. Called without the lock. */
static void set_aside(oa_resident *entry) {
  oa_watch_free(entry->watch);
  oa_watch_free(entry->sample);
  entry->watch = entry->sample = NULL;
  entry->strikes += entry->strikes < MOST_STRIKES;
  entry->skip = (int64_t)1 << entry->strikes;
  entry->reads = 0;
}

/* -- bringing up -- */

/* Notes a read of a candidate. Returns whether to make the array resident, judged by a sample of its pages. Called
 * without the lock. */
static bool promote(oa_resident *entry) {
  oa_run runs[1];
  int64_t written = 0;
  if (entry->tracked) return false;
  if (entry->skip > 0) {
    entry->skip--;
    return false;
  }
  /* Most arrays are read once, and arming the pages of such an array does not pay. */
  const int first = entry->nbytes >= SAMPLE_AT_ONCE ? 1 : 2;
  if (++entry->reads < first) return false;
  if (!entry->sample) {
    entry->sample = oa_watch_new(entry->at.low, entry->at.high, SAMPLES);
    if (entry->sample)
      oa_watch_take(entry->sample, runs, 1, &written);
    else
      set_aside(entry);
    return false;
  }
  oa_watch_take(entry->sample, runs, 1, &written);
  if (!written) return true;
  entry->written = written;
  set_aside(entry);
  return false;
}

/* Fills *move with the bytes of the array in a run of pages: whole lines if the run has several lines. *next: the first
 * line that no move has yet. Returns false if there are no bytes. */
static bool move_between(const oa_mapping *mapping, oa_run run, int64_t *next, oa_move *move) {
  const oa_view *view = &mapping->views[0];
  const int64_t span = (int64_t)(mapping->at.high - mapping->at.low);
  int64_t from = run.low > mapping->at.low ? (int64_t)(run.low - mapping->at.low) : 0;
  int64_t to = run.high < mapping->at.high ? (int64_t)(run.high - mapping->at.low) : span;
  if (from >= to) return false;
  oa_lines lines = {0, to - from, to - from, 1};
  if (view->lines.count > 1) {
    const oa_lines all = view->lines;
    int64_t first = from / all.pitch, end = (to + all.pitch - 1) / all.pitch;
    if (from - first * all.pitch >= all.width) first++; /* the run starts in a gap */
    if (first < *next) first = *next;
    if (end > all.count) end = all.count;
    if (first >= end) return false;
    *next = end;
    from = first * all.pitch;
    lines = (oa_lines){0, all.width, all.pitch, end - first};
  }
  *move = (oa_move){.host = (char *)view->host + from,
                    .address = mapping->address + (uint64_t)(view->lines.start + from),
                    .lines = lines,
                    .name = view->name,
                    .allocation = mapping,
                    .trace = {.region = mapping->serial}};
  return true;
}

bool oa_resident_is_unseen(const oa_mapping *mapping) {
  const oa_resident *entry = mapping->resident;
  return entry && entry->wanted && entry->owned && entry->watch && !entry->seen && mapping->views[0].goes_up &&
         !mapping->groups[0].valid;
}

void oa_resident_look(oa_mapping *const *mappings, int count) {
  oa_watch *watches[OA_RESIDENT_LOOKS];
  for (int i = 0; i < count; i++) {
    watches[i] = mappings[i]->resident->watch;
    mappings[i]->resident->seen = true;
  }
  oa_watches_look(watches, count);
}

void oa_resident_unsee(oa_mapping *mapping) {
  if (mapping->resident) mapping->resident->seen = false;
}

int oa_resident_moves_up(oa_mapping *mapping, oa_move *moves) {
  oa_resident *entry = mapping->resident;
  const oa_view *view = &mapping->views[0];
  const oa_run all = {mapping->at.low, mapping->at.high};
  oa_run runs[OA_RESIDENT_MOVES];
  int64_t next = 0, written = 0;
  int count = 0, run_count = 0;
  entry->spared = entry->resent = entry->written = 0;
  entry->promoted = false;
  if (!view->goes_up && !mapping->groups[0].written) return 0;
  const bool stays = entry->wanted || promote(entry);
  bool whole = true;
  if (stays && entry->owned) {
    const bool known = entry->watch != NULL;
    if (!known) entry->watch = oa_watch_new(entry->at.low, entry->at.high, 0);
    if (entry->watch) {
      run_count = (entry->seen ? oa_watch_take_seen : oa_watch_take)(entry->watch, runs, OA_RESIDENT_MOVES, &written);
      entry->seen = false;
      const bool many = entry->automatic && written * WRITTEN_LIMIT > oa_watch_pages(entry->watch);
      whole = entry->outdated || written * 2 > oa_watch_pages(entry->watch);
      if (known) entry->written = written;
      /* Residency of this array takes more time than it saves. */
      if (known && !entry->outdated && many) set_aside(entry);
    }
  }
  if (stays && !entry->wanted) {
    entry->promoted = entry->watch != NULL;
    if (!entry->promoted) set_aside(entry);
    oa_watch_free(entry->sample);
    entry->sample = NULL;
  }
  if (whole) {
    runs[0] = all;
    run_count = 1;
  }
  for (int i = 0; i < run_count; i++) count += move_between(mapping, runs[i], &next, &moves[count]);
  int64_t sent = 0;
  for (int i = 0; i < count; i++) sent += oa_lines_bytes(moves[i].lines);
  if (entry->address) { /* the array was resident before */
    entry->resent = sent;
    entry->spared = oa_lines_bytes(view->lines) - sent;
  }
  return count;
}

void oa_resident_arrived(oa_mapping *mapping, bool well) {
  oa_resident *entry = mapping->resident;
  if (!entry) return;
  oa_residency *figures = &entry->device->residency;
  if (!well) {
    entry->outdated = true;
    return;
  }
  entry->outdated = false;
  figures->returns += entry->address != 0;
  figures->bytes_spared += entry->spared;
  figures->bytes_resent += entry->resent;
  figures->pages_written += entry->written;
  if (entry->promoted) {
    want(entry);
    figures->promoted++;
  }
  if (entry->automatic && !entry->watch) become_candidate(entry);
  count_armed(entry);
}

/* -- bringing down -- */

void oa_resident_before_down(oa_mapping *mapping) {
  oa_resident *entry = mapping->resident;
  const oa_group *group = &mapping->groups[0];
  if (!group->dirty || group->invalid) return;
  entry->coming = true;
  oa_unlock();
  if (entry->automatic && !entry->keeps)
    set_aside(entry); /* writing armed pages is slow, and the program will probably write the array again */
  else if (entry->watch)
    oa_watch_lift(entry->watch);
  oa_lock();
  if (entry->automatic && !entry->keeps) become_candidate(entry);
  count_armed(entry);
}

void oa_resident_after_down(oa_mapping *mapping, bool well) {
  const oa_wait wait = {"oa_region_wait", oa_wait_needs_mover, mapping};
  while (mapping->resident && mapping->moving) oa_wait_for_always(&wait);
  oa_resident *entry = mapping->resident;
  if (!entry) return;
  entry->broken |= !well;
  entry->waited = true;
  if (!well || !entry->coming) return;
  entry->coming = false;
  if (!entry->wanted || !entry->owned) return;
  mapping->moving = true;
  oa_unlock();
  if (!entry->watch) entry->watch = oa_watch_new(entry->at.low, entry->at.high, 0);
  if (entry->watch) oa_watch_agree(entry->watch);
  oa_lock();
  entry->outdated = false;
  count_armed(entry);
  oa_mapping_yield(mapping);
}

/* -- memory pressure -- */

/* Evicts idle memory of the device until at least nbytes are free: first entries that can't save a copy, then the least
 * recently used entries. Idle memory is never newer than the host's, so nothing has to be saved. Returns the number of
 * freed bytes. */
static int64_t evict_idle(oa_device *device, size_t nbytes) {
  enum { AT_ONCE = 64 };
  oa_watch *unused[AT_ONCE];
  int64_t freed = 0;
  int count = 0;
  oa_lock();
  for (int pass = 0; pass < 2; pass++)
    for (oa_resident *entry = idle.first, *next; entry && freed < (int64_t)nbytes && count < AT_ONCE; entry = next) {
      next = entry->next;
      if (entry->device != device || (pass == 0 && entry->watch && !entry->outdated)) continue;
      freed += entry->nbytes;
      device->residency.dropped++;
      if (entry->automatic) {
        destroy(entry);
        continue;
      }
      leave_list(entry); /* the entry stays without memory, because the array may be lent again */
      count_idle(entry, -1);
      if (free_memory(device, entry->address, entry->nbytes)) freed -= entry->nbytes;
      entry->address = 0;
      entry->outdated = true;
      unused[count++] = entry->watch;
      entry->watch = NULL;
      count_armed(entry);
    }
  oa_unlock();
  for (int i = 0; i < count; i++) oa_watch_free(unused[i]);
  oa_resident_free_ended();
  return freed;
}

/* -- public -- */

static bool is_seized(const oa_resident *entry, const oa_caller *by) {
  return entry->mapping && oa_mapping_is_seized_by(entry->mapping, by);
}

/* The memory that oa_release releases. */
typedef struct released {
  oa_device *device;
  uintptr_t low, high;
  oa_lines lines;
} released;

static bool releasing_needs(const oa_wait *wait, const oa_caller *other) {
  const released *r = wait->subject;
  const oa_resident *entry = find(r->device, r->low, r->high, r->lines);
  return entry && is_seized(entry, other);
}

/* Returns whether ending an owner has to wait for the other thread. */
static bool ending_needs(const oa_wait *wait, const oa_caller *other) {
  for (const oa_resident *entry = *owner_bucket(wait->subject); entry; entry = entry->next_of_owner)
    if (entry->owner == wait->subject && is_seized(entry, other)) return true;
  return false;
}

/* Returns whether ending all residency has to wait for the other thread. */
static bool clearing_needs(const oa_wait *wait, const oa_caller *other) {
  (void)wait;
  for (int i = 0; i < OWNERS; i++)
    if (owners[i] && is_busy(owners[i])) return is_seized(owners[i], other);
  return false;
}

int oa_keep(const oa_array *array, int number) {
  uintptr_t low, high;
  oa_lines lines;
  int status = oa_core_start(__func__);
  if (status || (status = oa_residency_start())) return status;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_keep");
  if ((status = oa_array_bytes("oa_keep", array, &low, &high, &lines))) return status;
  if (atomic_load(&mode) == OA_RESIDENCY_OFF || high - low < LEAST || !lines.count) return OA_OK;
  oa_lock();
  oa_resident *entry = find(device, low, high, lines);
  if (!entry && !(entry = make_entry(device, low, high, lines, array)))
    status = oa_fail(OA_ERROR_MEMORY, "oa_keep: no host memory");
  if (entry) {
    change_owner(entry, array);
    entry->automatic = false;
    want(entry);
  }
  oa_unlock();
  return status;
}

int oa_release(const oa_array *array, int number) {
  uintptr_t low, high;
  oa_lines lines;
  int status = oa_core_start(__func__);
  if (status) return status;
  oa_device *device = number < 0 ? NULL : oa_device_of(number);
  if (!device && number >= 0) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_release");
  if ((status = oa_array_bytes("oa_release", array, &low, &high, &lines)) || low == high) return status;
  oa_lock();
  for (oa_resident *entry = find(device, low, high, lines); entry; entry = find(device, low, high, lines)) {
    if (is_busy(entry)) {
      const released r = {device, low, high, lines};
      const oa_wait wait = {"oa_release", releasing_needs, &r};
      if ((status = oa_wait_for(&wait))) break;
      continue;
    }
    const int freed = destroy(entry);
    if (!status) status = freed;
  }
  oa_unlock();
  oa_resident_free_ended();
  return status;
}

int oa_owner_gone(const void *owner) {
  int status = OA_OK;
  if (!owner || atomic_load(&oa_forked)) return OA_OK;
  oa_lock();
  for (oa_resident *entry = *owner_bucket(owner); entry;) {
    if (entry->owner != owner) {
      entry = entry->next_of_owner;
      continue;
    }
    if (is_busy(entry)) {
      const oa_wait wait = {"oa_owner_gone", ending_needs, owner};
      oa_wait_for_always(&wait);
    } else {
      const int freed = destroy(entry);
      if (!status) status = freed;
    }
    entry = *owner_bucket(owner);
  }
  oa_unlock();
  oa_resident_free_ended();
  return status;
}

int oa_owner_kept(const void *owner) {
  int any = 0;
  if (!owner || !atomic_load_explicit(&news_count, memory_order_relaxed) || atomic_load(&oa_forked)) return 0;
  oa_lock();
  for (oa_resident *entry = news, *next; entry; entry = next) {
    next = entry->next_news;
    if (entry->owner != owner) continue;
    leave_news(entry);
    entry->announced = true;
    any = 1;
  }
  oa_unlock();
  return any;
}

int oa_residency_query(int number, oa_residency *residency) {
  oa_residency now;
  int status = oa_core_start(__func__);
  if (status || (status = oa_residency_start())) return status;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_residency_query");
  if ((status = oa_sized_check("oa_residency_query", "residency", residency, OA_FIRST_RESIDENCY, sizeof now)))
    return status;
  oa_lock();
  now = device->residency;
  oa_unlock();
  now.mode = atomic_load(&mode);
  now.tracking = oa_pages_work();
  oa_sized_write(residency, &now);
  return OA_OK;
}

int oa_residency_current(void) { return oa_residency_start() ? -1 : atomic_load_explicit(&mode, memory_order_relaxed); }

int oa_residency_configure(int wanted, int tracking) {
  int status = oa_core_start(__func__);
  if (status) return status;
  if (wanted < -1 || wanted > OA_RESIDENCY_AUTO)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_residency_configure: mode %d is not an oa_residency_mode", wanted);
  const oa_wait wait = {"oa_residency_configure", clearing_needs, NULL};
  oa_lock();
  for (int i = 0; i < OWNERS && !status; i++)
    while (owners[i] && !status) {
      if (is_busy(owners[i]))
        status = oa_wait_for(&wait);
      else
        destroy(owners[i]);
    }
  oa_unlock();
  oa_resident_free_ended();
  if (status) return status;
  oa_pages_allow(tracking);
  atomic_store(&mode, wanted);
  return oa_residency_start();
}
