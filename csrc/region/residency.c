#include "region/residency.h"

#include "base/sized.h"
#include "device/memory.h"
#include "offload_args/testing.h"
#include "region/array.h"
#include "region/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LEAST = 128 << 10,    /* bytes: less is sent, with others in one copy, as fast as its pages are looked at */
  LEAST_AUTO = 1 << 20, /* bytes: less is not worth the risk of slower writes */
  READS_TO_KEEP = 3,    /* from the same unchanged memory */
  SAMPLES = 16,         /* pages armed first, to see whether it is worth arming all */
  WRITTEN_LIMIT = 20,   /* one page in so many written: keeping costs more than sending */
  MOST_STRIKES = 20,
  MOST_CANDIDATES = 256,
  OWNERS = 4096
};

/* One array on one device whose memory stays, or may soon. It is in `table` from its making to its end; its memory is its
 * own while it has no mapping. */
struct oa_kept {
  oa_present at; /* first: the host's bytes */
  oa_device *device;
  const void *owner;
  oa_lines lines;
  bool owned;       /* its pages may be watched */
  bool wanted;      /* it stays; else it is a candidate of automatic residency */
  bool automatic;   /* nobody asked for it */
  bool announced;   /* or nobody needs to know: oa_owner_kept told of it */
  bool stale;       /* none of the device's bytes can be relied on */
  bool broken;      /* a region that had it failed: the memory does not stay */
  bool waited;      /* for everything that its mapping's regions issued */
  bool promoted;    /* as of the moves under way */
  bool coming;      /* on its way down */
  bool seen;        /* its pages were looked at for this mapping, and what was found is not sent yet */
  uint64_t address; /* 0: none */
  int64_t nbytes;
  oa_mapping *mapping;
  oa_watch *watch;  /* NULL: sent again always */
  oa_watch *sample; /* of a candidate */
  int reads, strikes;
  int64_t skip;                    /* reads to let pass before it is tried again */
  int64_t armed;                   /* pages, as counted in the device's figures */
  int64_t spared, resent, written; /* by the moves under way */
  struct oa_kept *next, *previous; /* of the list it is in: idle ones in the order of their last use, or candidates */
  struct list *in;
  struct oa_kept *next_of_owner, *next_news;
};

struct list {
  struct oa_kept *first, *last;
  int64_t count;
};

static oa_present_table table;
static struct list idle, candidates;
static oa_kept *owners[OWNERS];
static oa_kept *news; /* not announced */
static _Atomic int news_count, kept_count;
static _Atomic(oa_kept *) ended; /* still to be freed; put there under the lock */
static atomic_int mode = -1;

static int64_t drop_idle(oa_device *device, size_t nbytes);

/* -- lists ---------------------------------------------------------------------------------------------------------- */

static void leave_list(oa_kept *kept) {
  struct list *list = kept->in;
  if (!list) return;
  *(kept->previous ? &kept->previous->next : &list->first) = kept->next;
  *(kept->next ? &kept->next->previous : &list->last) = kept->previous;
  kept->next = kept->previous = NULL;
  kept->in = NULL;
  list->count--;
}

static void join_list(oa_kept *kept, struct list *list) {
  leave_list(kept);
  kept->previous = list->last;
  *(list->last ? &list->last->next : &list->first) = kept;
  list->last = kept;
  kept->in = list;
  list->count++;
}

static oa_kept **owner_bucket(const void *owner) { return &owners[((uintptr_t)owner >> 4) % OWNERS]; }

static void become_news(oa_kept *kept) {
  if (kept->announced || !kept->owner) return;
  kept->next_news = news;
  news = kept;
  news_count++;
}

static void leave_owner(oa_kept *kept) {
  for (oa_kept **place = owner_bucket(kept->owner); *place; place = &(*place)->next_of_owner) {
    if (*place != kept) continue;
    *place = kept->next_of_owner;
    return;
  }
}

static void leave_news(oa_kept *kept) {
  for (oa_kept **place = &news; *place; place = &(*place)->next_news) {
    if (*place != kept) continue;
    *place = kept->next_news;
    news_count--;
    return;
  }
}

static void count_armed(oa_kept *kept) {
  const int64_t now =
      (kept->watch ? oa_watch_pages(kept->watch) : 0) + (kept->sample ? oa_watch_pages(kept->sample) : 0);
  kept->device->residency.pages_armed += now - kept->armed;
  kept->armed = now;
}

static void count_idle(oa_kept *kept, int sign) {
  kept->device->residency.kept += sign;
  kept->device->residency.kept_bytes += sign * kept->nbytes;
}

/* -- the mode ------------------------------------------------------------------------------------------------------- */

int oa_residency_start(void) {
  if (__builtin_expect(atomic_load_explicit(&mode, memory_order_relaxed) >= 0, 1)) return OA_OK;
  const char *text = getenv("OFFLOAD_ARGS_RESIDENCY");
  int found = -1;
  if (!text || !text[0] || strcmp(text, "explicit") == 0)
    found = OA_RESIDENCY_EXPLICIT;
  else if (strcmp(text, "auto") == 0)
    found = OA_RESIDENCY_AUTO;
  else if (strcmp(text, "off") == 0)
    found = OA_RESIDENCY_OFF;
  if (found < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "OFFLOAD_ARGS_RESIDENCY needs \"auto\", \"explicit\" or \"off\", is \"%.64s\"",
                   text);
  atomic_store(&mode, found);
  return OA_OK;
}

/* -- making and ending ---------------------------------------------------------------------------------------------- */

/* Takes it out of everything, under the lock; nobody finds it any more. A mapping keeps the memory it has. */
static void forget(oa_kept *kept) {
  if (kept->mapping) {
    kept->mapping->kept = NULL;
    kept->mapping = NULL;
    kept->address = 0;
  } else if (kept->address) {
    count_idle(kept, -1);
  }
  oa_present_remove(&table, &kept->at);
  leave_list(kept);
  leave_news(kept);
  leave_owner(kept);
  kept->device->residency.pages_armed -= kept->armed;
  kept_count--;
}

/* Gives device memory back that no region has. */
static int give_back(oa_device *device, uint64_t address, int64_t nbytes) {
  oa_stream *stream;
  int status = oa_stream_take(device, &stream);
  if (status) return status;
  status = oa_device_free(device, stream->native, address, (size_t)nbytes);
  oa_stream_return(stream);
  return status;
}

/* Forgets it, and gives its device memory back. The rest is for oa_kept_tidy, which needs no lock for it. */
static int end(oa_kept *kept) {
  forget(kept);
  const int status = kept->address ? give_back(kept->device, kept->address, kept->nbytes) : OA_OK;
  kept->next = atomic_load(&ended);
  while (!atomic_compare_exchange_weak(&ended, &kept->next, kept)) continue;
  return status;
}

void oa_kept_tidy(void) {
  if (__builtin_expect(!atomic_load_explicit(&ended, memory_order_relaxed), 1)) return;
  oa_kept *kept = atomic_exchange(&ended, NULL);
  while (kept) {
    oa_kept *next = kept->next;
    oa_watch_free(kept->watch);
    oa_watch_free(kept->sample);
    free(kept);
    kept = next;
  }
}

static oa_kept *make(oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines, const oa_array *array) {
  oa_kept *kept = calloc(1, sizeof *kept);
  if (!kept) return NULL; /* then it does not stay: that is all */
  kept->at.low = low;
  kept->at.high = high;
  kept->device = device;
  kept->owner = array->owner;
  kept->owned = array->flags & OA_OWNED && array->owner;
  kept->lines = lines;
  kept->nbytes = (int64_t)(high - low);
  kept->stale = true;
  kept->next_of_owner = *owner_bucket(kept->owner);
  *owner_bucket(kept->owner) = kept;
  oa_present_insert(&table, &kept->at);
  kept_count++;
  atomic_store(&oa_device_pressure, drop_idle);
  return kept;
}

/* Its memory has another owner than when it was last seen: arrays of one address follow each other. */
static void change_owner(oa_kept *kept, const oa_array *array) {
  if (!array->owner || array->owner == kept->owner) return;
  leave_news(kept);
  leave_owner(kept);
  kept->owner = array->owner;
  kept->owned = array->flags & OA_OWNED;
  kept->announced = false;
  kept->next_of_owner = *owner_bucket(kept->owner);
  *owner_bucket(kept->owner) = kept;
  if (kept->wanted) become_news(kept);
}

static void want(oa_kept *kept) {
  if (kept->wanted) return;
  kept->wanted = true;
  leave_list(kept);
  become_news(kept);
}

typedef struct search {
  const oa_device *device; /* NULL: any */
  uintptr_t low, high;
  oa_lines lines;
  oa_kept *found;
} search;

static int note_kept(oa_present *element, void *data) {
  search *s = data;
  oa_kept *kept = (oa_kept *)element;
  if (element->low != s->low || element->high != s->high || (s->device && kept->device != s->device) ||
      memcmp(&kept->lines, &s->lines, sizeof s->lines) != 0)
    return 0;
  s->found = kept;
  return 1;
}

static oa_kept *find(const oa_device *device, uintptr_t low, uintptr_t high, oa_lines lines) {
  search s = {.device = device, .low = low, .high = high, .lines = lines};
  oa_present_visit(&table, low, high, note_kept, &s);
  return s.found;
}

/* -- lending again -------------------------------------------------------------------------------------------------- */

static bool can_stay(const oa_mapping *mapping) {
  return mapping->kind == OA_MAPS_HOST && mapping->nbytes >= LEAST && mapping->part_count == 1 &&
         !mapping->parts[0].shape;
}

void oa_kept_attach(oa_mapping *mapping, const oa_array *array, bool made) {
  const int now = atomic_load_explicit(&mode, memory_order_relaxed);
  const bool asked = array->flags & OA_RESIDENT;
  const bool candidate =
      now == OA_RESIDENCY_AUTO && array->flags & OA_OWNED && mapping->nbytes >= LEAST_AUTO && mapping->parts[0].goes_up;
  if (now == OA_RESIDENCY_OFF || mapping->kept || !(asked || candidate || kept_count) || !can_stay(mapping)) return;
  if (!made && (!mapping->address || mapping->arena)) return; /* it has no memory of its own, or may yet get none */
  const oa_lines lines = mapping->parts[0].lines;
  oa_kept *kept = find(mapping->device, mapping->at.low, mapping->at.high, lines);
  if (!kept && !asked && !candidate) return;
  if (!kept && !(kept = make(mapping->device, mapping->at.low, mapping->at.high, lines, array))) return;
  if (kept->mapping || (kept->address && !made)) return; /* its last mapping is not over yet */
  change_owner(kept, array);
  if (asked) {
    kept->automatic = false;
    want(kept);
  } else if (!kept->wanted) {
    kept->automatic = true;
    join_list(kept, &candidates);
    oa_kept *oldest = candidates.first;
    if (candidates.count > MOST_CANDIDATES && !oldest->mapping) end(oldest);
  }
  mapping->kept = kept;
  kept->mapping = mapping;
  kept->waited = kept->seen = false;
  if (!kept->address) {
    kept->stale = true;
    return;
  }
  leave_list(kept);
  count_idle(kept, -1);
  mapping->address = kept->address;
}

void oa_kept_untouched(oa_mapping *mapping) {
  oa_kept *kept = mapping->kept;
  if (kept && kept->address) kept->waited = true; /* there was nothing to wait for */
}

void oa_kept_detach(oa_mapping *mapping) {
  oa_kept *kept = mapping->kept;
  if (!kept) return;
  mapping->kept = NULL;
  kept->mapping = NULL;
  kept->address = 0;
  kept->stale = true;
  kept->broken = kept->coming = false;
}

bool oa_kept_return(oa_mapping *mapping) {
  oa_kept *kept = mapping->kept;
  if (!kept) return false;
  const bool stays =
      mapping->address && kept->wanted && kept->waited && !mapping->escaped && !kept->broken && !mapping->device->lost;
  if (!stays) {
    oa_kept_detach(mapping);
    return false;
  }
  const oa_group *group = &mapping->groups[0];
  if (group->dirty || group->invalid) kept->stale = true; /* the device has what the host never got */
  kept->address = mapping->address;
  kept->mapping = NULL;
  kept->coming = false;
  mapping->kept = NULL;
  join_list(kept, &idle);
  count_idle(kept, +1);
  return true;
}

/* -- giving up ------------------------------------------------------------------------------------------------------ */

/* Automatic residency was wrong about this array. Without the lock. */
static void give_up(oa_kept *kept) {
  oa_watch_free(kept->watch);
  oa_watch_free(kept->sample);
  kept->watch = kept->sample = NULL;
  kept->strikes += kept->strikes < MOST_STRIKES;
  kept->skip = (int64_t)1 << kept->strikes;
  kept->reads = 0;
}

static void become_candidate(oa_kept *kept) {
  if (!kept->wanted) return;
  kept->wanted = false;
  leave_news(kept);
  join_list(kept, &candidates);
  kept->device->residency.demoted++;
}

/* -- bringing up ---------------------------------------------------------------------------------------------------- */

/* A candidate is read: whether to begin to keep it, seen from a sample of its pages. Without the lock. */
static bool promote(oa_kept *kept) {
  oa_run runs[1];
  int64_t written = 0;
  if (kept->skip > 0) {
    kept->skip--;
    return false;
  }
  if (++kept->reads == 1) return false; /* most arrays are read once: nothing is armed for them */
  if (!kept->sample) {
    kept->sample = oa_watch_new(kept->at.low, kept->at.high, SAMPLES);
    if (kept->sample)
      oa_watch_take(kept->sample, runs, 1, &written);
    else
      give_up(kept);
    return false;
  }
  oa_watch_take(kept->sample, runs, 1, &written);
  if (!written) return kept->reads >= READS_TO_KEEP;
  kept->written = written;
  give_up(kept);
  return false;
}

/* The part of the array between two addresses, as a move: whole lines where it has several. *next: the first line that no
 * move has yet. */
static bool move_between(const oa_mapping *mapping, oa_run run, int64_t *next, oa_move *move) {
  const oa_part *part = &mapping->parts[0];
  const int64_t span = (int64_t)(mapping->at.high - mapping->at.low);
  int64_t from = run.low > mapping->at.low ? (int64_t)(run.low - mapping->at.low) : 0;
  int64_t to = run.high < mapping->at.high ? (int64_t)(run.high - mapping->at.low) : span;
  if (from >= to) return false;
  oa_lines lines = {0, to - from, to - from, 1};
  if (part->lines.count > 1) {
    const oa_lines all = part->lines;
    int64_t first = from / all.pitch, end = (to + all.pitch - 1) / all.pitch;
    if (from - first * all.pitch >= all.width) first++; /* it begins in a gap */
    if (first < *next) first = *next;
    if (end > all.count) end = all.count;
    if (first >= end) return false;
    *next = end;
    from = first * all.pitch;
    lines = (oa_lines){0, all.width, all.pitch, end - first};
  }
  *move = (oa_move){.host = (char *)part->host + from,
                    .address = mapping->address + (uint64_t)(part->lines.start + from),
                    .lines = lines,
                    .name = part->name,
                    .allocation = mapping,
                    .trace = {.region = mapping->serial}};
  return true;
}

bool oa_kept_is_unseen(const oa_mapping *mapping) {
  const oa_kept *kept = mapping->kept;
  return kept && kept->wanted && kept->owned && kept->watch && !kept->seen && mapping->parts[0].goes_up &&
         !mapping->groups[0].valid;
}

void oa_kept_look(oa_mapping *const *mappings, int count) {
  oa_watch *watches[OA_KEPT_LOOKS];
  for (int i = 0; i < count; i++) {
    watches[i] = mappings[i]->kept->watch;
    mappings[i]->kept->seen = true;
  }
  oa_watches_look(watches, count);
}

void oa_kept_unsee(oa_mapping *mapping) {
  if (mapping->kept) mapping->kept->seen = false;
}

int oa_kept_moves_up(oa_mapping *mapping, oa_move *moves) {
  oa_kept *kept = mapping->kept;
  const oa_part *part = &mapping->parts[0];
  const oa_run all = {mapping->at.low, mapping->at.high};
  oa_run runs[OA_KEPT_MOVES];
  int64_t next = 0, written = 0;
  int count = 0, run_count = 0;
  kept->spared = kept->resent = kept->written = 0;
  kept->promoted = false;
  if (!part->goes_up) return 0;
  const bool keep = kept->wanted || promote(kept);
  bool whole = true;
  if (keep && kept->owned) {
    const bool known = kept->watch != NULL;
    if (!known) kept->watch = oa_watch_new(kept->at.low, kept->at.high, 0);
    if (kept->watch) {
      run_count = (kept->seen ? oa_watch_take_seen : oa_watch_take)(kept->watch, runs, OA_KEPT_MOVES, &written);
      kept->seen = false;
      const bool many = kept->automatic && written * WRITTEN_LIMIT > oa_watch_pages(kept->watch);
      whole = kept->stale || written * 2 > oa_watch_pages(kept->watch);
      if (known) kept->written = written;
      if (known && !kept->stale && many) give_up(kept); /* it costs more than it saves */
    }
  }
  if (keep && !kept->wanted) {
    kept->promoted = kept->watch != NULL;
    if (!kept->promoted) give_up(kept);
    oa_watch_free(kept->sample);
    kept->sample = NULL;
  }
  if (whole) {
    runs[0] = all;
    run_count = 1;
  }
  for (int i = 0; i < run_count; i++) count += move_between(mapping, runs[i], &next, &moves[count]);
  int64_t sent = 0;
  for (int i = 0; i < count; i++) sent += oa_lines_bytes(moves[i].lines);
  if (kept->address) { /* it was here before */
    kept->resent = sent;
    kept->spared = oa_lines_bytes(part->lines) - sent;
  }
  return count;
}

void oa_kept_arrived(oa_mapping *mapping, bool well) {
  oa_kept *kept = mapping->kept;
  if (!kept) return;
  oa_residency *figures = &kept->device->residency;
  if (!well) {
    kept->stale = true;
    return;
  }
  kept->stale = false;
  figures->returns += kept->address != 0;
  figures->bytes_spared += kept->spared;
  figures->bytes_resent += kept->resent;
  figures->pages_written += kept->written;
  if (kept->promoted) {
    want(kept);
    figures->promoted++;
  }
  if (kept->automatic && !kept->watch) become_candidate(kept);
  count_armed(kept);
}

/* -- bringing down -------------------------------------------------------------------------------------------------- */

void oa_kept_before_down(oa_mapping *mapping) {
  oa_kept *kept = mapping->kept;
  const oa_group *group = &mapping->groups[0];
  if (!group->dirty || group->invalid) return;
  kept->coming = true;
  oa_unlock();
  if (kept->automatic)
    give_up(kept); /* writing armed pages is slow, and it will happen again */
  else if (kept->watch)
    oa_watch_lift(kept->watch);
  oa_lock();
  if (kept->automatic) become_candidate(kept);
  count_armed(kept);
}

void oa_kept_after_down(oa_mapping *mapping, bool well) {
  while (mapping->kept && mapping->moving) oa_wait_change();
  oa_kept *kept = mapping->kept;
  if (!kept) return;
  kept->broken |= !well;
  kept->waited = true;
  if (!well || !kept->coming) return;
  kept->coming = false;
  if (!kept->wanted || !kept->owned) return;
  mapping->moving = true;
  oa_unlock();
  if (!kept->watch) kept->watch = oa_watch_new(kept->at.low, kept->at.high, 0);
  if (kept->watch) oa_watch_agree(kept->watch);
  oa_lock();
  kept->stale = false;
  count_armed(kept);
  oa_mapping_yield(mapping);
}

/* -- want of memory ------------------------------------------------------------------------------------------------- */

/* Gives idle memory back until there is nbytes of it: what can't spare a copy first, then what was unused longest. What
 * is idle is never newer than the host's, so that nothing need be saved. Answers how much it was. */
static int64_t drop_idle(oa_device *device, size_t nbytes) {
  enum { AT_ONCE = 64 };
  oa_watch *unused[AT_ONCE];
  int64_t freed = 0;
  int count = 0;
  oa_lock();
  for (int pass = 0; pass < 2; pass++)
    for (oa_kept *kept = idle.first, *next; kept && freed < (int64_t)nbytes && count < AT_ONCE; kept = next) {
      next = kept->next;
      if (kept->device != device || (pass == 0 && kept->watch && !kept->stale)) continue;
      freed += kept->nbytes;
      device->residency.dropped++;
      if (kept->automatic) {
        end(kept);
        continue;
      }
      leave_list(kept); /* it may be lent and kept again */
      count_idle(kept, -1);
      if (give_back(device, kept->address, kept->nbytes)) freed -= kept->nbytes;
      kept->address = 0;
      kept->stale = true;
      unused[count++] = kept->watch;
      kept->watch = NULL;
      count_armed(kept);
    }
  oa_unlock();
  for (int i = 0; i < count; i++) oa_watch_free(unused[i]);
  oa_kept_tidy();
  return freed;
}

/* -- public --------------------------------------------------------------------------------------------------------- */

int oa_keep(const oa_array *array, int number) {
  uintptr_t low, high;
  oa_lines lines;
  int status = oa_core_start();
  if (status || (status = oa_residency_start())) return status;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_keep");
  if ((status = oa_array_bytes("oa_keep", array, &low, &high, &lines))) return status;
  if (atomic_load(&mode) == OA_RESIDENCY_OFF || high - low < LEAST || !lines.count) return OA_OK;
  oa_lock();
  oa_kept *kept = find(device, low, high, lines);
  if (!kept && !(kept = make(device, low, high, lines, array)))
    status = oa_fail(OA_ERROR_MEMORY, "oa_keep: no host memory");
  if (kept) {
    change_owner(kept, array);
    kept->automatic = false;
    want(kept);
  }
  oa_unlock();
  return status;
}

int oa_release(const oa_array *array, int number) {
  uintptr_t low, high;
  oa_lines lines;
  int status = oa_core_start();
  if (status) return status;
  oa_device *device = number < 0 ? NULL : oa_device_of(number);
  if (!device && number >= 0) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_release");
  if ((status = oa_array_bytes("oa_release", array, &low, &high, &lines)) || low == high) return status;
  oa_lock();
  for (oa_kept *kept = find(device, low, high, lines); kept; kept = find(device, low, high, lines)) {
    if (kept->mapping && kept->mapping->moving) {
      oa_wait_change();
      continue;
    }
    const int freed = end(kept);
    if (!status) status = freed;
  }
  oa_unlock();
  oa_kept_tidy();
  return status;
}

int oa_owner_gone(const void *owner) {
  int status = OA_OK;
  if (!owner || atomic_load(&oa_forked)) return OA_OK;
  oa_lock();
  for (oa_kept *kept = *owner_bucket(owner); kept;) {
    if (kept->owner != owner) {
      kept = kept->next_of_owner;
      continue;
    }
    if (kept->mapping && kept->mapping->moving) {
      oa_wait_change();
    } else {
      const int freed = end(kept);
      if (!status) status = freed;
    }
    kept = *owner_bucket(owner);
  }
  oa_unlock();
  oa_kept_tidy();
  return status;
}

int oa_owner_kept(const void *owner) {
  int found = 0;
  if (!owner || !atomic_load_explicit(&news_count, memory_order_relaxed) || atomic_load(&oa_forked)) return 0;
  oa_lock();
  for (oa_kept *kept = news, *next; kept; kept = next) {
    next = kept->next_news;
    if (kept->owner != owner) continue;
    leave_news(kept);
    kept->announced = true;
    found = 1;
  }
  oa_unlock();
  return found;
}

int oa_residency_query(int number, oa_residency *residency) {
  oa_residency now;
  int status = oa_core_start();
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
  int status = oa_core_start();
  if (status) return status;
  if (wanted < -1 || wanted > OA_RESIDENCY_AUTO)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_residency_configure: mode %d is no oa_residency_mode", wanted);
  oa_lock();
  for (int i = 0; i < OWNERS; i++)
    while (owners[i]) {
      if (owners[i]->mapping && owners[i]->mapping->moving)
        oa_wait_change();
      else
        end(owners[i]);
    }
  oa_unlock();
  oa_kept_tidy();
  oa_pages_allow(tracking);
  atomic_store(&mode, wanted);
  return oa_residency_start();
}
