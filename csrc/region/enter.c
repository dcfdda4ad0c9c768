/* Entering a region: each array gets a place in a mapping, new or shared; new mappings get memory; each array gets a
 * pointer. */
#include "base/sized.h"
#include "base/threads.h"
#include "base/trace.h"
#include "device/memory.h"
#include "device/staging.h"
#include "region/array.h"
#include "region/coherent.h"
#include "region/guard.h"
#include "region/leave.h"
#include "region/residency.h"
#include "region/slot.h"
#include "region/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- places: the mapping of each array -- */

/* Checks that the array starts at a multiple of its itemsize in the mapping, whose memory starts at a multiple of every
 * itemsize. */
static int check_start(const oa_lent_array *lent, const char *other) {
  const int64_t itemsize = oa_itemsize(lent->array->dtype);
  if (lent->lines.start % itemsize == 0) return OA_OK;
  return oa_fail(
      OA_ERROR_PRESENT,
      "oa_region_enter: %s begins %lld bytes into the memory it shares with %s, which is not a multiple of its "
      "itemsize, %lld: devices can't read it there; lend a copy of it",
      lent->name, (long long)lent->lines.start, other, (long long)itemsize);
}

/* The mappings that have some of an array's bytes: a mapping on its device, a second mapping on its device, and any
 * mapping on other devices. A mapping with bytes only between the array's lines does not count. */
typedef struct overlap {
  oa_device *device;
  uintptr_t low;
  oa_lines lines;
  oa_mapping *here, *another;
  bool elsewhere, written_elsewhere;
} overlap;

static int note_overlap(oa_present *element, void *data) {
  overlap *o = data;
  oa_mapping *mapping = (oa_mapping *)element;
  if (!oa_mapping_meets(mapping, o->low, o->lines)) return 0;
  if (mapping->device == o->device) {
    *(o->here ? &o->another : &o->here) = mapping;
  } else {
    o->elsewhere = true;
    mapping->special |= OA_IS_ELSEWHERE;
    o->written_elsewhere |= oa_mapping_is_newer(mapping);
  }
  return 0;
}

/* Returns the view of a mapping that has the array's bytes; if there are several, the view with the most rights; NULL
 * with *status and the text set. */
static const oa_view *find_view(oa_lent_array *lent, const oa_mapping *mapping, int *status) {
  const oa_view *first = &mapping->views[0], *covering = NULL;
  if (first->shape) {
    lent->view = 0;
    lent->packed = true;
    lent->lines = first->lines;
    if (oa_view_is(first, lent->array)) return first;
    *status =
        oa_fail(OA_ERROR_PRESENT,
                "oa_region_enter: %s overlaps %s, which is present packed (its strides can't be expressed by a leading "
                "dimension); lend exactly the same view, or their parent in a region around both",
                lent->name, first->name);
    return NULL;
  }
  if (!lent->layout.regular) {
    *status = oa_fail(
        OA_ERROR_PRESENT,
        "oa_region_enter: %s is a part of %s, which is present, but its strides can't be expressed by a leading "
        "dimension; slice the pointer of %s, or update it and lend a copy",
        lent->name, first->name, first->name);
    return NULL;
  }
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    if (!oa_lines_contain(view->lines, lent->lines)) continue;
    if (covering && view->writes + view->goes_up <= covering->writes + covering->goes_up) continue;
    covering = view;
    lent->view = i;
  }
  lent->packed = false;
  if (covering) {
    *status = check_start(lent, covering->name);
    return *status ? NULL : covering;
  }
  *status =
      oa_fail(OA_ERROR_PRESENT,
              "oa_region_enter: %s reaches beyond the present part of its memory (%s); lend their parent array in a "
              "region around both, and slice its pointer",
              lent->name, first->name);
  return NULL;
}

/* Gives an array its place in a mapping that is present, with at most the rights of its view there. */
static int share(oa_lent_array *lent, oa_mapping *mapping) {
  const int direction = lent->array->direction;
  int status;
  lent->mapping = mapping;
  lent->lines.start = (int64_t)(lent->low - mapping->at.low);
  const oa_view *view = find_view(lent, mapping, &status);
  if (!view) return status;
  if ((direction == OA_OUT || direction == OA_INOUT) && !view->writes)
    return oa_fail(
        OA_ERROR_DIRECTION,
        "oa_region_enter: %s is lent as %s but is present as In (%s); rights only narrow inwards: lend it as "
        "InOut in the outer region",
        lent->name, oa_direction_name(direction), view->name);
  if (direction == OA_INOUT && !view->goes_up)
    return oa_fail(
        OA_ERROR_DIRECTION,
        "oa_region_enter: %s is lent as InOut but is present as Out (%s); lend it as InOut in the outer region",
        lent->name, view->name);
  lent->writes = lent->writes && view->writes;
  lent->out = lent->out || !view->goes_up;
  return OA_OK;
}

/* Returns a new mapping, which the region holds and makes. The mapping is moving until its memory is allocated. Returns
 * NULL with the text set if host memory runs out. */
static oa_mapping *make_mapping(oa_region_state *region, int kind, int64_t nbytes) {
  oa_mapping *mapping = oa_mapping_new(region->device, kind, nbytes);
  if (!mapping) return NULL;
  if (oa_region_attach(region, mapping)) {
    oa_mapping_free(mapping, region->stream, false);
    return NULL;
  }
  mapping->holders = mapping->references = 1;
  mapping->moving = kind != OA_MAPS_BORROWED;
  mapping->maker = mapping->moving ? region : NULL;
  mapping->serial = region->serial;
  return mapping;
}

/* Makes room for the views and groups of that many arrays. */
static int make_room(oa_mapping *mapping, int count) {
  oa_view *views = calloc((size_t)count, sizeof *views);
  oa_group *groups = calloc((size_t)count, sizeof *groups);
  if (!views || !groups) {
    free(views);
    free(groups);
    return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory");
  }
  mapping->views = views;
  mapping->groups = groups;
  return OA_OK;
}

/* Gives the array its view of the mapping; arrays of the same bytes share a view. first: the first array of the
 * cluster. */
static int add_view(oa_mapping *mapping, oa_lent_array *lent, const oa_lent_array *first) {
  const oa_array *a = lent->array;
  if (check_start(lent, first->name)) return OA_ERROR_PRESENT;
  int at = 0;
  while (at < mapping->view_count && memcmp(&mapping->views[at].lines, &lent->lines, sizeof lent->lines) != 0) at++;
  oa_view *view = &mapping->views[at];
  if (at == mapping->view_count) {
    mapping->view_count++;
    *view = (oa_view){.data = a->data, .host = (void *)lent->low, .lines = lent->lines, .dtype = a->dtype};
    memcpy(view->name, lent->name, sizeof view->name);
    if (lent->packed && !(view->shape = oa_shape_of(a))) return oa_fail_in(OA_ERROR_MEMORY, "oa_region_enter");
  }
  view->writes |= lent->writes;
  view->goes_up |= a->direction != OA_OUT;
  mapping->reused |= (a->flags & OA_REUSED) != 0;
  lent->mapping = mapping;
  lent->view = at;
  return OA_OK;
}

/* Returns whether a device can use the arrays in the host's memory. */
static bool are_aligned(oa_lent_array *const *cluster, int count) {
  for (int i = 0; i < count; i++)
    if (cluster[i]->low % (uintptr_t)oa_itemsize(cluster[i]->array->dtype)) return false;
  return true;
}

/* Makes a mapping over the interval [low, high) of a cluster of arrays, which are sorted by address. */
static int map_cluster(oa_region_state *region, oa_lent_array **cluster, int count, uintptr_t low, uintptr_t high) {
  oa_lent_array *first = cluster[0];
  const bool packed = count == 1 && first->packed;
  const int64_t nbytes = packed ? first->layout.size * oa_itemsize(first->array->dtype) : (int64_t)(high - low);
  oa_mapping *mapping = make_mapping(region, OA_MAPS_HOST, nbytes);
  if (!mapping) return OA_ERROR_MEMORY;
  if (count > 1 && make_room(mapping, count)) return OA_ERROR_MEMORY;
  mapping->view_count = 0;
  for (int i = 0; i < count; i++) {
    oa_lent_array *lent = cluster[i];
    if (lent->elsewhere) mapping->special |= OA_IS_ELSEWHERE;
    if (!packed && !lent->layout.regular)
      return oa_fail(
          OA_ERROR_PRESENT,
          "oa_region_enter: %s shares memory with %s, and its strides can't be expressed by a leading dimension; "
          "lend their parent and slice its pointer, or lend a copy",
          lent->name, cluster[i ? 0 : 1]->name);
    lent->packed = packed;
    lent->lines.start = (int64_t)(lent->low - low);
    if (packed) lent->lines = (oa_lines){0, nbytes, nbytes, 1};
    const int status = add_view(mapping, lent, first);
    if (status) return status;
  }
  if (mapping->view_count == 1)
    mapping->groups[0] = (oa_group){.cover = 0};
  else
    oa_mapping_form_groups(mapping);
  mapping->at.low = low;
  mapping->at.high = high;
  mapping->listed = true;
  oa_present_insert(&oa_table, &mapping->at);
  if (region->coherent && !packed && are_aligned(cluster, count)) {
    mapping->address = low;
    mapping->special |= OA_IS_COHERENT;
  } else {
    oa_resident_attach(mapping, first->array, true);
  }
  return OA_OK;
}

/* Gives an array its place in the mapping that already has its bytes. If no mapping has the bytes, lent->mapping stays
 * NULL. */
static int place_in_present(oa_region_state *region, oa_lent_array *lent) {
  const int direction = lent->array->direction;
  overlap overlaps = {.device = region->device, .low = lent->low, .lines = oa_lent_array_lines(lent)};
  oa_present_visit(&oa_table, lent->low, lent->high, note_overlap, &overlaps);
  lent->elsewhere = overlaps.elsewhere;
  if (overlaps.written_elsewhere || (overlaps.elsewhere && (direction == OA_OUT || direction == OA_INOUT)))
    return oa_fail(OA_ERROR_DIRECTION,
                   "oa_region_enter: %s is present on another device too, and one of the two writes it; an array may "
                   "be on several devices for reading, or on one for writing: leave the other region first",
                   lent->name);
  oa_mapping *here = overlaps.here;
  if (!here) return OA_OK;
  if (overlaps.another || lent->low < here->at.low || lent->high > here->at.high)
    return oa_fail(
        OA_ERROR_PRESENT,
        "oa_region_enter: %s reaches beyond %s of another region, which holds a part of it; lend the larger array in "
        "that region, and slice its pointer",
        lent->name, here->views[0].name);
  int attached = 0;
  while (attached < region->mapping_count && region->mappings[attached] != here) attached++;
  if (attached == region->mapping_count) {
    const int status = oa_region_attach(region, here);
    if (status) return status;
    here->holders++;
    here->references++;
  }
  if (overlaps.elsewhere) here->special |= OA_IS_ELSEWHERE;
  const int status = share(lent, here);
  if (!status && lent->low == here->at.low && lent->high == here->at.high && lent->array->flags & OA_RESIDENT &&
      !oa_is_coherent(here))
    oa_resident_attach(here, lent->array, false);
  return status;
}

static int by_address(const void *a, const void *b) {
  const oa_lent_array *const *x = a, *const *y = b;
  if ((*x)->low != (*y)->low) return (*x)->low < (*y)->low ? -1 : 1;
  return (*x)->array < (*y)->array ? -1 : 1;
}

static bool is_on_the_host(const oa_lent_array *lent) {
  return lent->array->direction != OA_SCRATCH && !(lent->array->flags & OA_BORROWED) && lent->layout.size;
}

static int note_making(oa_present *element, void *data) {
  const oa_mapping *mapping = (const oa_mapping *)element;
  return mapping->maker && mapping->device == data;
}

/* Waits for other threads' work on an interval: copies down, and mappings that are being made, which may still fail
 * because of another array. Returns OA_LOOK_AGAIN if it has freed the lock. */
static int wait_for_others(const oa_device *device, uintptr_t low, uintptr_t high) {
  const int status = oa_complete_overlapping("oa_region_enter", low, high);
  if (status || !oa_present_visit(&oa_table, low, high, note_making, (void *)device)) return status;
  oa_wait_change();
  return OA_LOOK_AGAIN;
}

/* Gives every host array its mapping: the mapping that already has its bytes, otherwise a new mapping. Arrays that need
 * a new mapping form a cluster if their intervals overlap, and share one new mapping. sorted: room for count arrays. */
static int place_arrays(oa_region_state *region, oa_lent_array *lent, int count, oa_lent_array **sorted) {
  int hosts = 0;
  /* At the start of each round no array has a place yet, so no other thread waits for this thread. */
  for (bool retry = true; retry;) {
    retry = false;
    for (int i = 0; i < count; i++) {
      const int status = is_on_the_host(&lent[i]) ? wait_for_others(region->device, lent[i].low, lent[i].high) : OA_OK;
      if (status > 0) return status;
      retry |= status == OA_LOOK_AGAIN;
    }
  }
  for (int i = 0; i < count; i++) {
    if (!is_on_the_host(&lent[i])) continue;
    const int status = place_in_present(region, &lent[i]);
    if (status) return status;
    if (lent[i].mapping) continue;
    int at = hosts++; /* insertion sorts a few arrays fast; qsort sorts many arrays below */
    for (; hosts <= 16 && at > 0 && by_address(&sorted[at - 1], &(oa_lent_array *){&lent[i]}) > 0; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = &lent[i];
  }
  if (hosts > 16) qsort(sorted, (size_t)hosts, sizeof(*sorted), by_address);
  for (int i = 0; i < hosts;) {
    uintptr_t high = sorted[i]->high;
    int end = i + 1;
    for (; end < hosts && sorted[end]->low < high; end++)
      if (sorted[end]->high > high) high = sorted[end]->high;
    const int status = map_cluster(region, &sorted[i], end - i, sorted[i]->low, high);
    if (status) return status;
    i = end;
  }
  return OA_OK;
}

/* Makes a new mapping for scratch or borrowed memory. */
static int place_apart(oa_region_state *region, oa_lent_array *lent) {
  const oa_array *a = lent->array;
  const bool borrowed = a->flags & OA_BORROWED;
  oa_mapping *mapping = make_mapping(region, borrowed ? OA_MAPS_BORROWED : OA_MAPS_SCRATCH, lent->layout.span);
  if (!mapping) return OA_ERROR_MEMORY;
  if (borrowed) mapping->address = lent->low;
  lent->mapping = mapping;
  lent->view = 0;
  lent->packed = false;
  lent->lines = lent->layout.lines;
  lent->lines.start = 0;
  oa_view *view = &mapping->views[0];
  *view = (oa_view){.lines = lent->lines, .dtype = a->dtype, .writes = lent->writes};
  memcpy(view->name, lent->name, sizeof view->name);
  mapping->groups[0].valid = true;
  return OA_OK;
}

/* -- memory -- */

/* Returns whether the array's mapping is new and belongs into an arena. */
static bool is_small(const oa_region_state *region, const oa_lent_array *lent) {
  const oa_mapping *mapping = lent->mapping;
  return mapping && mapping->maker == region && !mapping->address && mapping->nbytes <= OA_ARENA_MOST;
}

/* Takes device memory for the region: spare memory, otherwise an allocation on its stream, for which it frees the
 * lock. */
static int take_memory(oa_region_state *region, size_t nbytes, uint64_t *address, enum oa_zeros *zeros) {
  void *stream = region->stream->native;
  const bool reused = oa_device_take(region->device, stream, nbytes, address, zeros);
  if (!reused || *zeros == OA_ZEROS_ORDERED) region->allocated = true;
  if (reused) return OA_OK;
  oa_unlock();
  const int status = oa_device_allocate(region->device, stream, nbytes, address);
  oa_lock();
  return status;
}

/* The small mappings that go into an arena: all of the region's small mappings, the mappings that calls read many
 * times, or the other mappings. */
enum choice { ALL, REUSED, OTHERS };

static bool is_chosen(const oa_region_state *region, const oa_lent_array *lent, enum choice choice) {
  return is_small(region, lent) && (choice == ALL || (choice == REUSED) == lent->mapping->reused);
}

/* The small mappings of one choice. */
typedef struct choice_sum {
  size_t nbytes;
  int mappings;
  bool of_host; /* all chosen mappings are of host arrays */
} choice_sum;

/* Adds up the mappings of the chosen arguments. A mapping of several arguments in a row counts once. A mapping counts
 * again if arguments with other mappings are in between. */
static choice_sum add_up(const oa_region_state *region, const oa_lent_array *lent, int count, enum choice choice) {
  choice_sum sum = {.of_host = true};
  const oa_mapping *last = NULL;
  for (int i = 0; i < count; i++) {
    if (lent[i].mapping == last || !is_chosen(region, &lent[i], choice)) continue;
    last = lent[i].mapping;
    sum.nbytes += ((size_t)last->nbytes + OA_ARENA_ALIGNMENT - 1) & -(size_t)OA_ARENA_ALIGNMENT;
    sum.mappings++;
    sum.of_host &= last->kind == OA_MAPS_HOST;
  }
  return sum;
}

enum { NUMBERS_SHOWN = 8, NUMBERS_SIZE = 12 * NUMBERS_SHOWN + 8 };

/* Writes the numbers of the first chosen arguments. Returns the text. */
static const char *numbers_of(const oa_region_state *region, const oa_lent_array *lent, int count, enum choice choice,
                              char text[NUMBERS_SIZE]) {
  int length = 0, shown = 0;
  for (int i = 0; i < count && shown < NUMBERS_SHOWN; i++)
    if (is_chosen(region, &lent[i], choice))
      length += snprintf(text + length, (size_t)(NUMBERS_SIZE - length), "%s%d", shown++ ? ", " : "", i + 1);
  return text;
}

/* Makes one allocation for the chosen mappings, in the order of the arguments, so that mappings that are used together
 * are neighbours. in_place: the allocation is in a block of pinned memory, if a block is free. */
static int allocate_arena(oa_region_state *region, oa_lent_array *lent, int count, enum choice choice,
                          const choice_sum *sum, bool in_place) {
  oa_arena *arena = calloc(1, sizeof *arena);
  if (!arena) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory");
  arena->nbytes = sum->nbytes;
  int status = OA_OK;
  enum oa_zeros zeros = OA_ZEROS_NONE;
  if (in_place) {
    oa_unlock();
    arena->block = oa_block_take(region->device, OA_BLOCK_SMALL, OA_BLOCK_NOW);
    oa_lock();
  }
  if (arena->block) {
    const oa_backend *backend = region->device->backend;
    arena->address = (uint64_t)(uintptr_t)arena->block->memory;
    if (backend->fresh) backend->fresh(region->device, arena->address, arena->nbytes);
  } else {
    status = take_memory(region, arena->nbytes, &arena->address, &zeros);
  }
  if (status) {
    char numbers[NUMBERS_SIZE] = "";
    free(arena);
    return oa_fail_in(status, "oa_region_enter: %d small argument%s (%s%s; %zu bytes)", sum->mappings,
                      sum->mappings == 1 ? "" : "s", numbers_of(region, lent, count, choice, numbers),
                      sum->mappings > NUMBERS_SHOWN ? ", ..." : "", sum->nbytes);
  }
  uint64_t address = arena->address;
  for (int i = 0; i < count; i++) {
    if (!is_chosen(region, &lent[i], choice)) continue;
    oa_mapping *mapping = lent[i].mapping;
    mapping->arena = arena;
    mapping->address = address;
    mapping->zeros = zeros != OA_ZEROS_NONE;
    arena->mappings++;
    address += ((uint64_t)mapping->nbytes + OA_ARENA_ALIGNMENT - 1) & -(uint64_t)OA_ARENA_ALIGNMENT;
  }
  return OA_OK;
}

/* Allocates small mappings together. Arrays of a single use may get pinned memory, so that they need no copy to the
 * device, unless calls read them many times. */
static int allocate_small(oa_region_state *region, oa_lent_array *lent, int count, bool single_use) {
  const bool may = single_use && region->device->backend->flags & OA_PINNED_IN_PLACE;
  const choice_sum reused = may ? add_up(region, lent, count, REUSED) : (choice_sum){0};
  const bool apart = reused.nbytes >= OA_REUSED_LEAST;
  const enum choice choice = apart ? OTHERS : ALL;
  const choice_sum sum = add_up(region, lent, count, choice);
  const bool in_place = may && sum.mappings && sum.of_host && sum.nbytes <= OA_IN_PLACE_MOST;
  if (apart && reused.mappings > 1) {
    const int status = allocate_arena(region, lent, count, REUSED, &reused, false);
    if (status) return status;
  }
  return sum.mappings < 2 && !in_place ? OA_OK : allocate_arena(region, lent, count, choice, &sum, in_place);
}

/* Returns whether the region will probably copy arrays up on several threads. */
static bool expects_copies(const oa_region_state *region) {
  if (region->device->backend->flags & OA_SYNCHRONOUS) return false;
  for (int i = 0; i < region->mapping_count; i++) {
    const oa_mapping *mapping = region->mappings[i];
    if (mapping->maker == region && !mapping->address && mapping->nbytes >= OA_OVERLAP_BYTES)
      for (int v = 0; v < mapping->view_count; v++)
        if (mapping->views[v].goes_up) return true;
  }
  return false;
}

/* Sets the error of a mapping that got no memory. The text also has the total need of the region's new mappings, none
 * of which has moved yet. */
static int fail_allocation(const oa_region_state *region, const oa_mapping *mapping, int status) {
  char all[128] = "", gaps[128] = "";
  const oa_view *view = &mapping->views[0];
  const int64_t used = view->lines.width * view->lines.count;
  int64_t nbytes = 0;
  int count = 0;
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->maker == region) nbytes += region->mappings[i]->nbytes, count++;
  if (count > 1)
    snprintf(all, sizeof all, "; the region needs %lld bytes for %d arrays at once, from its entry on",
             (long long)nbytes, count);
  if (mapping->view_count == 1 && used < mapping->nbytes)
    snprintf(gaps, sizeof gaps, ": with the gaps between its %lld bytes, which a copy of it does not have",
             (long long)used);
  return oa_fail_in(status, "oa_region_enter: %s (%lld bytes%s%s)", view->name, (long long)mapping->nbytes, gaps, all);
}

/* Allocates the new mappings of this region. Frees the lock and takes it again. */
static int allocate_mappings(oa_region_state *region, oa_lent_array *lent, int count, bool single_use) {
  const int small = allocate_small(region, lent, count, single_use);
  if (small) return small;
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region || mapping->address) continue;
    uint64_t address = 0;
    enum oa_zeros zeros = OA_ZEROS_NONE;
    const int status = take_memory(region, (size_t)mapping->nbytes, &address, &zeros);
    mapping->zeros = zeros != OA_ZEROS_NONE;
    if (status) return fail_allocation(region, mapping, status);
    mapping->address = address;
  }
  return OA_OK;
}

/* Notes the allocations as uses of the new mappings, so that other streams use the memory after them. */
static int note_allocations(oa_region_state *region) {
  if (!region->allocated || region->device->backend->flags & OA_SYNCHRONOUS) return OA_OK;
  int status = oa_stream_advance(region->stream);
  bool large = false;
  for (int i = 0; i < region->mapping_count && !status; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region) continue;
    status = oa_uses_add(&mapping->uses, region->stream, true);
    large |= mapping->nbytes >= OA_OVERLAP_BYTES;
  }
  if (large && !status)
    status = oa_stream_mark(region->stream); /* large copies up wait for this event, not for later calls */
  return status;
}

/* -- entering -- */

/* Makes a pointer for each array. Begins with the last array, because each new pointer goes to the head of the region's
 * list: so the list gets the order of the arguments. */
static int make_slots(oa_region_state *region, oa_lent_array *lent, int count) {
  for (int i = count - 1; i >= 0; i--) {
    oa_lent_array *entry = &lent[i];
    oa_slot *slot = oa_slot_take(region, OA_SLOT_POINTER);
    if (!slot) return OA_ERROR_MEMORY;
    const bool has_bytes = entry->layout.size != 0;
    oa_slot_point(slot, entry->array->dtype, has_bytes ? entry->mapping : NULL, has_bytes ? entry->view : 0,
                  has_bytes ? entry->lines : (oa_lines){.count = 0});
    slot->reads = true;
    slot->writes = entry->writes;
    slot->out = entry->out;
    slot->owed = entry->array->direction == OA_OUT;
    slot->read_only =
        entry->array->direction == OA_BY_USE && (entry->array->flags & OA_READ_ONLY || entry->layout.overlapping);
    slot->offset = slot->inside.start;
    slot->nbytes = oa_lines_span(slot->inside);
    entry->array->handle = oa_slot_handle(slot);
    entry->array->packed = has_bytes && entry->packed;
    const oa_array *array = entry->array;
    const int status = oa_slot_shape(slot, array->ndim, array->shape, array->packed ? NULL : array->strides);
    if (status) return status;
  }
  return OA_OK;
}

/* Takes a stream for the region, and notes the caller's stream. */
static int find_streams(oa_region_state *region, const oa_region_options *options) {
  oa_device *device = region->device;
  int status = oa_stream_take(device, &region->stream);
  if (status) return status;
  region->calls = region->stream;
  if (options->has_stream) {
    if ((status = oa_stream_foreign(device, options->stream, &region->foreign))) return status;
    region->calls = region->foreign;
  }
  if (!options->has_wait_stream) return OA_OK;
  oa_stream *other;
  if ((status = oa_stream_foreign(device, options->wait_stream, &other))) return status;
  other->next = region->foreign;
  region->foreign = other;
  status = oa_stream_advance(other);
  if (!status) status = oa_stream_after(region->stream, other, other->ticket);
  if (!status && region->calls != region->stream) status = oa_stream_after(region->calls, other, other->ticket);
  return status;
}

/* Guards the arrays. A region around this one may have brought their bytes to the device already. Frees the lock and
 * takes it again while another thread moves bytes, because it touches the pages that are closed here. */
static int guard_arrays(const oa_region_state *region, const oa_lent_array *lent, int count,
                        const oa_region_options *options) {
  for (int i = 0; i < count; i++) {
    oa_mapping *mapping = lent[i].mapping;
    if (!mapping) continue;
    const oa_wait wait = {"oa_region_enter", oa_wait_needs_mover, mapping};
    int status = OA_OK;
    while (mapping->moving && mapping->maker != region && !status) status = oa_wait_for(&wait);
    const char *name = options->names ? options->names[lent[i].array - lent[0].array] : NULL;
    if (!status)
      status = oa_guard_begin(mapping, lent[i].view, name, options->place, lent[i].array->flags & OA_READ_ONLY);
    if (status) return status;
    if (!mapping->guard || oa_host_writes(mapping->at.low, mapping->at.high)) continue;
    for (int g = 0; g < mapping->group_count; g++)
      if (mapping->groups[g].dirty) oa_guard_arm(mapping, &mapping->groups[g], true);
    oa_guard_arm_equal(mapping);
  }
  return OA_OK;
}

/* Fills an empty region with streams, mappings, their memory, and slots. After a failure the region keeps the finished
 * parts. */
static int fill_region(oa_region_state *region, const oa_region_options *options, oa_lent_array *lent,
                       oa_lent_array **sorted, int count) {
  region->coherent = region->device->coherent && !options->guard && !oa_guard_everywhere();
  int status = find_streams(region, options);
  if (status || (status = place_arrays(region, lent, count, sorted))) return status;
  for (int i = 0; i < count; i++) {
    const oa_array *a = lent[i].array;
    if (lent[i].layout.size && (a->direction == OA_SCRATCH || (a->flags & OA_BORROWED)))
      if ((status = place_apart(region, &lent[i]))) return status;
  }
  if (expects_copies(region)) oa_threads_expect(); /* threads wake up while memory is allocated */
  status = allocate_mappings(region, lent, count, options->single_use);
  const int noted = note_allocations(region);
  region->entered = region->stream->ticket;
  if (status || (status = noted)) return status;
  if (options->guard || oa_guard_everywhere()) status = guard_arrays(region, lent, count, options);
  return status ? status : make_slots(region, lent, count);
}

/* Lets other regions use this region's new mappings. Mappings without memory are not shared yet, and stay unshared. */
static void end_making(oa_region_state *region, bool entered) {
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region) continue;
    mapping->maker = NULL;
    mapping->moving = false;
    if (!entered) oa_resident_unused(mapping);
    if (mapping->address) continue;
    oa_mapping_unlist(mapping);
    oa_resident_separate(mapping);
  }
}

static void trace_enter(const oa_region_state *region, int64_t begun, int64_t tag, int status) {
  int64_t nbytes = 0;
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->serial == region->serial) nbytes += region->mappings[i]->nbytes;
  oa_trace_note(OA_TRACE_ENTER, begun, region->device->number, region->serial, tag, "enter", NULL, nbytes, status);
}

/* Leaves a region that could not be entered. Regions that shared its mappings may have been left meanwhile; their
 * results then come down. Returns the reason why the region could not be entered, or the failure of leaving. */
static int leave_again(oa_region *handle, int status, const oa_saved_error *why) {
  oa_region_finish(handle, OA_DISCARD, NULL);
  const int left = oa_region_wait(handle);
  if (left) return left;
  oa_error_restore(why);
  return status;
}

/* Enters a region with checked arrays. sorted: room for count arrays. */
static int enter(oa_device *device, const oa_region_options *options, oa_lent_array *lent, oa_lent_array **sorted,
                 int count, int64_t begun, oa_region **handle) {
  oa_region_state *region = oa_region_new(device);
  if (!region) return OA_ERROR_MEMORY;
  oa_lock();
  oa_region_list(region);
  oa_slot *own = oa_slot_take(region, OA_SLOT_REGION);
  if (own) region->handle = oa_slot_handle(own);
  int status = own ? fill_region(region, options, lent, sorted, count) : OA_ERROR_MEMORY;
  end_making(region, !status);
  if (begun) trace_enter(region, begun, options->tag, status);
  oa_region *own_handle = region->handle;
  const bool holds = region->mapping_count;
  oa_saved_error why;
  if (status) oa_error_save(&why);
  /* oa_region_finish can't be used, because the region may have no stream. */
  if (status && !holds) oa_region_destroy(region);
  oa_announce_change();
  oa_unlock();
  if (!status)
    *handle = own_handle;
  else if (holds)
    status = leave_again(own_handle, status, &why);
  else
    oa_error_restore(&why);
  oa_resident_free_ended();
  return status;
}

/* Refuses options with undefined values, such as an uninitialized struct has. */
static int check_options(const oa_region_options *options) {
  const struct {
    const char *name;
    int value;
  } fields[] = {{"has_stream", options->has_stream},
                {"has_wait_stream", options->has_wait_stream},
                {"single_use", options->single_use},
                {"guard", options->guard}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (fields[i].value < 0 || fields[i].value > 1)
      return oa_fail(OA_ERROR_ARGUMENT,
                     "oa_region_enter: options->%s needs 0 or 1, got %d; make the options with OA_SIZED",
                     fields[i].name, fields[i].value);
  return OA_OK;
}

int oa_region_enter(int number, const oa_region_options *caller_options, oa_array *arrays, int count,
                    oa_region **handle) {
  enum { FEW = 8 };
  oa_lent_array few[FEW], *few_sorted[FEW], *lent = few, **sorted = few_sorted;
  oa_region_options options;
  void *many = NULL;
  int status = oa_core_start(__func__);
  if (status) return status;
  const int64_t begun = oa_trace_begin();
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_region_enter");
  if ((status = oa_device_usable(device)) || (status = oa_slots_start()) || (status = oa_residency_start()))
    return status;
  if (count < 0 || (count && !arrays) || !handle)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s",
                   handle ? "arrays needs count entries, got none" : "region needs an address, got NULL");
  if ((status = oa_sized_read("oa_region_enter", "options", caller_options, &options, OA_FIRST_REGION_OPTIONS,
                              sizeof options)))
    return status;
  if (caller_options && (status = check_options(&options))) return status;
  if (count > FEW) {
    many = malloc((size_t)count * (sizeof *lent + sizeof(*sorted)));
    if (!many) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory for %d arrays", count);
    lent = many;
    sorted = (oa_lent_array **)(lent + count);
  }
  for (int i = 0; i < count && !status; i++) {
    lent[i] = (oa_lent_array){.array = &arrays[i]};
    status = oa_lent_array_check(&lent[i], i);
  }
  if (!status) status = enter(device, &options, lent, sorted, count, begun, handle);
  free(many);
  return status;
}
