/* Regions: what enters, what is shared, what comes down. */
#include "region/region.h"

#include "base/trace.h"
#include "device/staging.h"
#include "library/library.h"
#include "region/residency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

oa_present_table oa_table;
oa_mapping *oa_mappings;
static oa_state *youngest; /* of all regions */
static uint64_t last_serial;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting;

void oa_wait_change(void) {
  waiting++;
  pthread_cond_wait(&changed, &oa_mutex);
  waiting--;
}

void oa_announce_change(void) {
  if (waiting) pthread_cond_broadcast(&changed);
}

/* -- mappings -- */

oa_mapping *oa_mapping_new(oa_device *device, int kind, int64_t nbytes) {
  oa_mapping *mapping = calloc(1, sizeof *mapping);
  if (!mapping) {
    oa_fail(OA_ERROR_MEMORY, "%s: no host memory for an entry of the present table", device->name);
    return NULL;
  }
  mapping->kind = kind;
  mapping->device = device;
  mapping->nbytes = nbytes;
  mapping->parts = &mapping->one_part;
  mapping->groups = &mapping->one_group;
  mapping->part_count = mapping->group_count = 1;
  mapping->next = oa_mappings;
  if (mapping->next) mapping->next->previous = mapping;
  oa_mappings = mapping;
  device->counts.mappings++;
  return mapping;
}

static void unlist(oa_mapping *mapping) {
  if (mapping->listed) oa_present_remove(&oa_table, &mapping->at);
  mapping->listed = false;
}

void oa_mapping_seize(oa_mapping *mapping) {
  while (mapping->moving || mapping->leaving) {
    if (mapping->leaving)
      oa_region_complete(mapping->leaving);
    else
      oa_wait_change();
  }
  mapping->moving = true; /* no call begins any more, and those under way need nothing of it to end */
  while (mapping->calls) oa_wait_change();
}

void oa_mapping_yield(oa_mapping *mapping) {
  mapping->moving = false;
  oa_announce_change();
}

bool oa_mapping_is_newer(const oa_mapping *mapping) {
  if (mapping->writing || mapping->leaving) return true;
  for (int g = 0; g < mapping->group_count; g++)
    if (mapping->groups[g].dirty || mapping->groups[g].escaped) return true;
  return false;
}

static int note_unheld(oa_present *element, void *found) {
  oa_mapping *mapping = (oa_mapping *)element;
  if (mapping->holders) return 0;
  *(oa_mapping **)found = mapping;
  return 1;
}

bool oa_clear_way(uintptr_t low, uintptr_t high) {
  oa_mapping *found;
  while (oa_present_visit(&oa_table, low, high, note_unheld, &found)) {
    if (found->leaving || found->moving) {
      if (found->leaving)
        oa_region_complete(found->leaving);
      else
        oa_wait_change();
      return true;
    }
    unlist(found); /* its region frees it */
  }
  return false;
}

/* Gives back a mapping's part, whose users stream runs after, or whose uses are over; with the last one, the memory. */
static int leave_arena(oa_device *device, oa_arena *arena, oa_stream *stream, bool over) {
  int status = OA_OK;
  const bool order = !(device->backend->flags & OA_SYNCHRONOUS);
  if (--arena->mappings) {
    if (arena->block || !order || over) return OA_OK;
    status = oa_stream_advance(stream);
    return status ? status : oa_uses_add(&arena->uses, stream, true);
  }
  int released = OA_OK;
  if (arena->block) { /* which has no order but the host's: who is last has waited for all that its calls did */
    oa_block_give(device, arena->block);
  } else {
    over &= oa_uses_over(&arena->uses, stream);
    if (order) status = oa_uses_order(&arena->uses, stream, true);
    released = over ? oa_device_keep(device, stream->native, arena->address, arena->nbytes, false)
                    : oa_device_release(device, stream->native, arena->address, arena->nbytes);
  }
  oa_uses_clear(&arena->uses);
  free(arena);
  return status ? status : released;
}

/* Gives its memory back in stream's order; it stays for another time if nobody uses it any more. */
static int give_memory(oa_mapping *mapping, oa_stream *stream) {
  oa_device *device = mapping->device;
  const bool over = oa_uses_over(&mapping->uses, stream);
  const size_t nbytes = (size_t)mapping->nbytes;
  const int status = oa_uses_order(&mapping->uses, stream, true);
  const int released = mapping->arena ? leave_arena(device, mapping->arena, stream, over)
                       : over ? oa_device_keep(device, stream->native, mapping->address, nbytes, mapping->cleared)
                              : oa_device_release(device, stream->native, mapping->address, nbytes);
  return status ? status : released;
}

int oa_mapping_free(oa_mapping *mapping, oa_stream *stream) {
  int status = OA_OK;
  unlist(mapping);
  if (mapping->kind != OA_MAPS_BORROWED && mapping->address && !oa_kept_return(mapping))
    status = give_memory(mapping, stream);
  oa_kept_detach(mapping);
  if (mapping->previous)
    mapping->previous->next = mapping->next;
  else
    oa_mappings = mapping->next;
  if (mapping->next) mapping->next->previous = mapping->previous;
  mapping->device->counts.mappings--;
  for (int i = 0; i < mapping->part_count; i++) free(mapping->parts[i].shape);
  if (mapping->parts != &mapping->one_part) free(mapping->parts);
  if (mapping->groups != &mapping->one_group) free(mapping->groups);
  oa_uses_clear(&mapping->uses);
  free(mapping);
  return status;
}

int oa_region_attach(oa_state *region, oa_mapping *mapping) {
  if (region->mapping_count == region->mapping_capacity) {
    const int capacity = 2 * region->mapping_capacity;
    oa_mapping **more = malloc((size_t)capacity * sizeof(*more));
    if (!more) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a region", region->device->name);
    memcpy(more, region->mappings, (size_t)region->mapping_count * sizeof(*more));
    if (region->mappings != region->few) free(region->mappings);
    region->mappings = more;
    region->mapping_capacity = capacity;
  }
  region->mappings[region->mapping_count++] = mapping;
  return OA_OK;
}

void oa_part_move(const oa_mapping *mapping, const oa_part *part, oa_move *move) {
  *move = (oa_move){.host = part->shape ? part->data : part->host,
                    .address = mapping->address + (uint64_t)part->lines.start,
                    .lines = part->lines,
                    .irregular = part->shape,
                    .name = part->name,
                    .allocation = mapping->arena ? (const void *)mapping->arena : mapping,
                    .in_place = mapping->arena && mapping->arena->block,
                    .trace = {.region = mapping->serial}};
  if (mapping->arena && part->lines.count == 1 && part->lines.width == mapping->nbytes)
    move->padding = -mapping->nbytes & (OA_ARENA_ALIGNMENT - 1);
}

int oa_group_moves_up(const oa_mapping *mapping, int group, oa_move *moves) {
  int count = 0;
  if (mapping->kind != OA_MAPS_HOST || mapping->kept) return 0; /* what is kept is looked at without the lock */
  const int cover = mapping->groups[group].cover;
  for (int i = 0; i < mapping->part_count; i++) {
    const oa_part *part = &mapping->parts[i];
    const bool whole = cover >= 0 && mapping->parts[cover].goes_up; /* then it says it all */
    if (part->group == group && part->goes_up && (!whole || i == cover)) oa_part_move(mapping, part, &moves[count++]);
  }
  return count;
}

/* Groups parts whose bytes may meet; finds the part of each group that covers the others. */
static void form_groups(oa_mapping *mapping) {
  const int count = mapping->part_count;
  oa_part *parts = mapping->parts;
  for (int i = 0; i < count; i++) parts[i].group = i;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++) {
      const int from = parts[i].group, to = parts[j].group;
      if (from == to || oa_lines_disjoint(parts[i].lines, parts[j].lines)) continue;
      for (int k = 0; k < count; k++)
        if (parts[k].group == from) parts[k].group = to;
    }
  /* What is valid or written is known of the group as a whole: if some of it goes up, all of it does. */
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      if (parts[i].group == parts[j].group && parts[j].goes_up) parts[i].goes_up = true;
  mapping->group_count = count; /* some may be unused */
  for (int g = 0; g < count; g++) {
    mapping->groups[g] = (oa_group){.cover = -1};
    for (int i = 0; i < count && mapping->groups[g].cover < 0; i++) {
      bool covers = parts[i].group == g;
      for (int j = 0; j < count && covers; j++)
        covers = parts[j].group != g || oa_lines_contain(parts[i].lines, parts[j].lines);
      if (covers) mapping->groups[g].cover = i;
    }
  }
}

/* -- entering -- */

static const char *const direction_names[] = {"by use", "In", "Out", "InOut", "Scratch"};

static void name_entrant(oa_entrant *e, int position) {
  const char *name = e->array->name;
  if (name) {
    const size_t length = strnlen(name, sizeof e->name - 1);
    memcpy(e->name, name, length);
    e->name[length] = '\0';
  } else if (position < 9) { /* snprintf would cost more than the rest of entering an array */
    memcpy(e->name, "argument 0", 11);
    e->name[9] = (char)('1' + position);
  } else {
    snprintf(e->name, sizeof e->name, "argument %d", position + 1);
  }
}

int oa_entrant_check(oa_entrant *e, int position) {
  const oa_array *a = e->array;
  name_entrant(e, position);
  if (a->dtype <= OA_ANY || a->dtype >= OA_DTYPE_COUNT)
    return oa_fail(OA_ERROR_TYPE, "oa_region_enter: %s: dtype %d is no oa_dtype", e->name, a->dtype);
  if (a->direction < OA_BY_USE || a->direction > OA_SCRATCH)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: direction %d is no oa_direction", e->name, a->direction);
  if (a->flags & ~(OA_READ_ONLY | OA_BORROWED | OA_RESIDENT | OA_OWNED))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: flags %d are no sum of oa_array_flags", e->name, a->flags);
  if (a->ndim < 0 || a->ndim > OA_MAX_DIMENSIONS)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: %d dimensions, at most %d can be lent", e->name, a->ndim,
                   OA_MAX_DIMENSIONS);
  if (a->ndim > 0 && (!a->shape || (!a->strides && a->direction != OA_SCRATCH)))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: shape and strides need %d numbers each, got NULL", e->name,
                   a->ndim);
  const int64_t itemsize = oa_itemsize(a->dtype);
  int64_t c_order[OA_MAX_DIMENSIONS];
  const int64_t *strides = a->strides;
  if (a->direction == OA_SCRATCH) { /* a made-up array in C order; overflow is found below */
    int64_t step = itemsize;
    for (int i = a->ndim - 1; i >= 0; i--) {
      c_order[i] = step;
      if (__builtin_mul_overflow(step, a->shape[i] > 1 ? a->shape[i] : 1, &step)) step = INT64_MAX;
    }
    strides = c_order;
  }
  const int status = oa_layout_of(a->ndim, a->shape, strides, itemsize, &e->layout);
  if (status == OA_ERROR_ARGUMENT)
    return oa_fail(status, "oa_region_enter: %s needs extents of at least 0; its shape has a negative one", e->name);
  if (status)
    return oa_fail(status, "oa_region_enter: %s: its size in bytes does not fit 64 bits; lend a part of it", e->name);
  e->writes = a->direction != OA_IN && !(a->direction == OA_BY_USE && (a->flags & OA_READ_ONLY));
  e->out = a->direction == OA_OUT;
  const bool must_write = a->direction == OA_OUT || a->direction == OA_INOUT;
  if (must_write && (a->flags & OA_READ_ONLY))
    return oa_fail(OA_ERROR_DIRECTION,
                   "oa_region_enter: %s is read-only and lent as %s; lend it as In, or a writable copy", e->name,
                   direction_names[a->direction]);
  if (e->layout.overlapping) {
    if (must_write)
      return oa_fail(OA_ERROR_ARGUMENT,
                     "oa_region_enter: %s is lent as %s but several of its indices share one element (a broadcast or "
                     "overlapping view); lend a copy of it",
                     e->name, direction_names[a->direction]);
    e->writes = false;
  }
  if (a->direction == OA_SCRATCH || e->layout.size == 0) return OA_OK;
  if (!a->data) return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s: data is NULL", e->name);
  const uintptr_t data = (uintptr_t)a->data;
  e->low = data + (uintptr_t)e->layout.low;
  e->high = e->low + (uintptr_t)e->layout.span;
  if (e->high < e->low || (e->layout.low < 0 && e->low > data))
    return oa_fail(OA_ERROR_OVERFLOW, "oa_region_enter: %s reaches beyond the address space", e->name);
  e->lines = e->layout.lines;
  /* Packed: whatever is not lines, and what no leading dimension names: reversed, or with gaps along every axis. A matrix
   * of one column counts as a matrix. */
  bool named = e->layout.lines.count == 1;
  for (int i = 0; a->ndim > 1 && i < a->ndim; i++) named |= strides[i] == itemsize;
  e->packed = !e->layout.regular || e->layout.reversed || !named;
  if ((a->flags & OA_BORROWED) && !e->layout.regular)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_region_enter: %s is on a device with strides that can't be used there; make it contiguous",
                   e->name);
  if ((a->flags & OA_BORROWED) && e->low % (uintptr_t)itemsize)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_region_enter: %s is on a device at an address that is no multiple of its itemsize, %lld bytes; "
                   "devices can't read it there: make a copy of it",
                   e->name, (long long)itemsize);
  return OA_OK;
}

/* Device memory begins at a multiple of every itemsize: an array has to begin at one of its own within a mapping. */
static int check_start(const oa_entrant *e, const char *other) {
  const int64_t itemsize = oa_itemsize(e->array->dtype);
  if (e->lines.start % itemsize == 0) return OA_OK;
  return oa_fail(OA_ERROR_PRESENT,
                 "oa_region_enter: %s begins %lld bytes into the memory it shares with %s, which is no multiple of its "
                 "itemsize, %lld: devices can't read it there; lend a copy of it",
                 e->name, (long long)e->lines.start, other, (long long)itemsize);
}

bool oa_part_is(const oa_part *part, const oa_array *a) {
  const oa_shape *s = part->shape;
  return part->data == a->data && part->dtype == a->dtype && s->ndim == a->ndim &&
         memcmp(s->shape, a->shape, (size_t)a->ndim * sizeof *s->shape) == 0 &&
         memcmp(s->strides, a->strides, (size_t)a->ndim * sizeof *s->strides) == 0;
}

static int keep_shape(oa_part *part, const oa_array *a, int64_t itemsize) {
  const size_t bytes = (size_t)a->ndim * sizeof(int64_t);
  oa_shape *s = malloc(sizeof *s + 2 * bytes);
  if (!s) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory");
  s->ndim = a->ndim;
  s->itemsize = itemsize;
  s->shape = (int64_t *)(s + 1);
  s->strides = s->shape + a->ndim;
  memcpy(s->shape, a->shape, bytes);
  memcpy(s->strides, a->strides, bytes);
  part->shape = s;
  return OA_OK;
}

/* Finds what is present on one device in an interval, and whether others have some of it. */
typedef struct overlap {
  oa_device *device;
  oa_mapping *here;
  bool elsewhere, written_elsewhere;
} overlap;

static int note_overlap(oa_present *element, void *data) {
  overlap *o = data;
  oa_mapping *mapping = (oa_mapping *)element;
  if (mapping->device == o->device) {
    if (!o->here) o->here = mapping;
  } else {
    o->elsewhere = true;
    mapping->elsewhere = true;
    o->written_elsewhere |= oa_mapping_is_newer(mapping);
  }
  return 0;
}

static int share(oa_entrant *e, oa_mapping *mapping) {
  const oa_array *a = e->array;
  const oa_part *covering = NULL;
  const oa_part *first = &mapping->parts[0];
  e->mapping = mapping;
  e->lines.start = (int64_t)(e->low - mapping->at.low);
  if (first->shape) {
    if (!oa_part_is(first, a))
      return oa_fail(
          OA_ERROR_PRESENT,
          "oa_region_enter: %s overlaps %s, which is present packed (its strides can't be named by a leading "
          "dimension); lend exactly the same view, or their parent in a region around both",
          e->name, first->name);
    covering = first;
    e->part = 0;
    e->packed = true;
    e->lines = first->lines;
  } else if (!e->layout.regular) {
    return oa_fail(OA_ERROR_PRESENT,
                   "oa_region_enter: %s is a part of %s, which is present, but its strides can't be named by a leading "
                   "dimension; slice the pointer of %s, or lend a copy",
                   e->name, first->name, first->name);
  } else {
    for (int i = 0; i < mapping->part_count; i++) { /* the one with the most rights */
      const oa_part *part = &mapping->parts[i];
      if (!oa_lines_contain(part->lines, e->lines)) continue;
      if (covering && part->writes + part->goes_up <= covering->writes + covering->goes_up) continue;
      covering = part;
      e->part = i;
    }
    e->packed = false;
    if (covering && check_start(e, covering->name)) return OA_ERROR_PRESENT;
  }
  if (!covering)
    return oa_fail(
        OA_ERROR_PRESENT,
        "oa_region_enter: %s reaches beyond what is present of its memory (%s); lend their parent array in a "
        "region around both, and slice its pointer",
        e->name, first->name);
  const int direction = a->direction;
  if ((direction == OA_OUT || direction == OA_INOUT) && !covering->writes)
    return oa_fail(
        OA_ERROR_DIRECTION,
        "oa_region_enter: %s is lent as %s but is present as In (%s); rights only narrow inwards: lend it as "
        "InOut in the outer region",
        e->name, direction_names[direction], covering->name);
  if (direction == OA_INOUT && !covering->goes_up)
    return oa_fail(
        OA_ERROR_DIRECTION,
        "oa_region_enter: %s is lent as InOut but is present as Out (%s); lend it as InOut in the outer region",
        e->name, covering->name);
  e->writes = e->writes && covering->writes;
  e->out = e->out || !covering->goes_up;
  return OA_OK;
}

/* A new mapping over the hull of entrants [0, count), which are sorted by address. */
static int map_cluster(oa_state *region, oa_entrant **cluster, int count, uintptr_t low, uintptr_t high,
                       bool elsewhere) {
  oa_entrant *first = cluster[0];
  const bool packed = count == 1 && first->packed;
  const int64_t itemsize = oa_itemsize(first->array->dtype);
  const int64_t nbytes = packed ? first->layout.size * itemsize : (int64_t)(high - low);
  oa_mapping *mapping = oa_mapping_new(region->device, OA_MAPS_HOST, nbytes);
  if (!mapping) return OA_ERROR_MEMORY;
  if (oa_region_attach(region, mapping)) {
    oa_mapping_free(mapping, region->stream);
    return OA_ERROR_MEMORY;
  }
  mapping->holders = mapping->references = 1;
  mapping->moving = true; /* until it is allocated */
  mapping->maker = region;
  mapping->serial = region->serial;
  mapping->elsewhere = elsewhere;
  if (count > 1) {
    mapping->parts = calloc((size_t)count, sizeof *mapping->parts);
    mapping->groups = calloc((size_t)count, sizeof *mapping->groups);
    if (!mapping->parts || !mapping->groups) {
      free(mapping->parts);
      free(mapping->groups);
      mapping->parts = &mapping->one_part;
      mapping->groups = &mapping->one_group;
      return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory");
    }
  }
  mapping->part_count = 0;
  for (int i = 0; i < count; i++) {
    oa_entrant *e = cluster[i];
    const oa_array *a = e->array;
    if (!packed && !e->layout.regular)
      return oa_fail(
          OA_ERROR_PRESENT,
          "oa_region_enter: %s shares memory with %s, and its strides can't be named by a leading dimension; "
          "lend their parent and slice its pointer, or lend a copy",
          e->name, cluster[i ? 0 : 1]->name);
    e->mapping = mapping;
    e->packed = packed;
    e->lines.start = (int64_t)(e->low - low);
    if (packed) e->lines = (oa_lines){0, nbytes, nbytes, 1};
    if (check_start(e, first->name)) return OA_ERROR_PRESENT;
    int at = 0; /* the same bytes again are one part */
    while (at < mapping->part_count && memcmp(&mapping->parts[at].lines, &e->lines, sizeof e->lines) != 0) at++;
    oa_part *part = &mapping->parts[at];
    if (at == mapping->part_count) {
      mapping->part_count++;
      *part = (oa_part){.data = a->data, .host = (void *)e->low, .lines = e->lines, .dtype = a->dtype};
      memcpy(part->name, e->name, sizeof part->name);
      if (packed && keep_shape(part, a, itemsize)) return OA_ERROR_MEMORY;
    }
    part->writes |= e->writes;
    part->goes_up |= a->direction != OA_OUT;
    e->part = at;
  }
  if (mapping->part_count == 1)
    mapping->groups[0] = (oa_group){.cover = 0};
  else
    form_groups(mapping);
  mapping->at.low = low;
  mapping->at.high = high;
  mapping->listed = true;
  oa_present_insert(&oa_table, &mapping->at);
  oa_kept_attach(mapping, first->array, true);
  return OA_OK;
}

static int place_cluster(oa_state *region, oa_entrant **cluster, int count, uintptr_t low, uintptr_t high) {
  overlap found = {.device = region->device};
  oa_present_visit(&oa_table, low, high, note_overlap, &found);
  if (found.elsewhere) {
    for (int i = 0; i < count; i++) {
      const int direction = cluster[i]->array->direction;
      if (found.written_elsewhere || direction == OA_OUT || direction == OA_INOUT)
        return oa_fail(
            OA_ERROR_DIRECTION,
            "oa_region_enter: %s is present on another device too, and one of the two writes it; an array may "
            "be on several devices for reading, or on one for writing: leave the other region first",
            cluster[i]->name);
    }
  }
  oa_mapping *here = found.here;
  if (!here) return map_cluster(region, cluster, count, low, high, found.elsewhere);
  if (low < here->at.low || high > here->at.high)
    return oa_fail(
        OA_ERROR_PRESENT,
        "oa_region_enter: %s reaches beyond %s, which is present and holds a part of it; lend the larger array in "
        "the outer region, and slice its pointer",
        cluster[0]->name, here->parts[0].name);
  int attached = 0;
  while (attached < region->mapping_count && region->mappings[attached] != here) attached++;
  if (attached == region->mapping_count) {
    const int status = oa_region_attach(region, here);
    if (status) return status;
    here->holders++;
    here->references++;
  }
  here->elsewhere |= found.elsewhere;
  for (int i = 0; i < count; i++) {
    const int status = share(cluster[i], here);
    if (status) return status;
  }
  if (low == here->at.low && high == here->at.high && cluster[0]->array->flags & OA_RESIDENT)
    oa_kept_attach(here, cluster[0]->array, false);
  return OA_OK;
}

static int by_address(const void *a, const void *b) {
  const oa_entrant *const *x = a, *const *y = b;
  if ((*x)->low != (*y)->low) return (*x)->low < (*y)->low ? -1 : 1;
  return (*x)->array < (*y)->array ? -1 : 1;
}

static bool is_on_the_host(const oa_entrant *e) {
  return e->array->direction != OA_SCRATCH && !(e->array->flags & OA_BORROWED) && e->layout.size;
}

/* Gives every host array its mapping: arrays whose hulls overlap form a cluster. */
static int place_arrays(oa_state *region, oa_entrant *entrants, int count, oa_entrant **sorted) {
  int hosts = 0;
  for (bool again = true; again;) { /* before anything is placed, for the lock may be freed */
    again = false;
    for (int i = 0; i < count; i++)
      if (is_on_the_host(&entrants[i])) again |= oa_clear_way(entrants[i].low, entrants[i].high);
  }
  for (int i = 0; i < count; i++) {
    if (!is_on_the_host(&entrants[i])) continue;
    int at = hosts++; /* insertion keeps a few arrays cheap; many are sorted below */
    for (; hosts <= 16 && at > 0 && by_address(&sorted[at - 1], &(oa_entrant *){&entrants[i]}) > 0; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = &entrants[i];
  }
  if (hosts > 16) qsort(sorted, (size_t)hosts, sizeof(*sorted), by_address);
  for (int i = 0; i < hosts;) {
    uintptr_t high = sorted[i]->high;
    int end = i + 1;
    for (; end < hosts && sorted[end]->low < high; end++)
      if (sorted[end]->high > high) high = sorted[end]->high;
    const int status = place_cluster(region, &sorted[i], end - i, sorted[i]->low, high);
    if (status) return status;
    i = end;
  }
  return OA_OK;
}

/* A mapping of its own for scratch and borrowed memory. */
static int place_apart(oa_state *region, oa_entrant *e) {
  const oa_array *a = e->array;
  const bool borrowed = a->flags & OA_BORROWED;
  oa_mapping *mapping = oa_mapping_new(region->device, borrowed ? OA_MAPS_BORROWED : OA_MAPS_SCRATCH, e->layout.span);
  if (!mapping) return OA_ERROR_MEMORY;
  if (oa_region_attach(region, mapping)) {
    oa_mapping_free(mapping, region->stream);
    return OA_ERROR_MEMORY;
  }
  mapping->holders = mapping->references = 1;
  mapping->moving = !borrowed;
  mapping->maker = borrowed ? NULL : region;
  mapping->serial = region->serial;
  if (borrowed) mapping->address = e->low;
  e->mapping = mapping;
  e->part = 0;
  e->packed = false;
  e->lines = e->layout.lines;
  e->lines.start = 0;
  oa_part *part = &mapping->parts[0];
  *part = (oa_part){.lines = e->lines, .dtype = a->dtype, .writes = e->writes};
  memcpy(part->name, e->name, sizeof part->name);
  mapping->groups[0].valid = true;
  return OA_OK;
}

static bool is_small(const oa_state *region, const oa_entrant *e) {
  const oa_mapping *mapping = e->mapping;
  return mapping && mapping->maker == region && !mapping->address && mapping->nbytes <= OA_ARENA_MOST;
}

/* Device memory for the region: what was kept for another time, else an allocation on its stream. Without the lock. */
static int take_memory(oa_state *region, size_t nbytes, uint64_t *address, bool *zeros) {
  void *stream = region->stream->native;
  const bool reused = oa_device_reuse(region->device, stream, nbytes, address, zeros);
  if (!reused || *zeros) region->allocated = true;
  return reused ? OA_OK : oa_device_allocate(region->device, stream, nbytes, address);
}

/* One allocation for all small mappings, in the order of the arguments, so that those used together are neighbours. What
 * one call uses `once` it may use in a block of pinned memory, with nothing copied to the device. */
static int allocate_small(oa_state *region, oa_entrant *entrants, int count, bool once) {
  oa_device *device = region->device;
  size_t nbytes = 0;
  int mappings = 0;
  const oa_mapping *last = NULL;
  bool in_place = once && device->backend->flags & OA_PINNED_IN_PLACE;
  for (int i = 0; i < count; i++) { /* a mapping of several arguments that don't follow each other gets too much room */
    if (!is_small(region, &entrants[i]) || entrants[i].mapping == last) continue;
    last = entrants[i].mapping;
    nbytes += ((size_t)last->nbytes + OA_ARENA_ALIGNMENT - 1) & -(size_t)OA_ARENA_ALIGNMENT;
    mappings++;
    in_place &= last->kind == OA_MAPS_HOST;
  }
  in_place &= mappings && nbytes <= OA_IN_PLACE_MOST;
  if (mappings < 2 && !in_place) return OA_OK;
  oa_arena *arena = calloc(1, sizeof *arena);
  if (!arena) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory");
  arena->nbytes = nbytes;
  oa_unlock();
  int status = OA_OK;
  bool zeros = false;
  if (in_place && (arena->block = oa_block_take(device, OA_BLOCK_SMALL, OA_BLOCK_NOW)))
    arena->address = (uint64_t)(uintptr_t)arena->block->memory;
  else
    status = take_memory(region, nbytes, &arena->address, &zeros);
  oa_lock();
  if (status) {
    free(arena);
    return oa_fail_in(status, "oa_region_enter: %d small arguments (%zu bytes)", mappings, nbytes);
  }
  uint64_t address = arena->address;
  for (int i = 0; i < count; i++) {
    if (!is_small(region, &entrants[i])) continue;
    oa_mapping *mapping = entrants[i].mapping;
    mapping->arena = arena;
    mapping->address = address;
    arena->mappings++;
    address += ((uint64_t)mapping->nbytes + OA_ARENA_ALIGNMENT - 1) & -(uint64_t)OA_ARENA_ALIGNMENT;
  }
  return OA_OK;
}

/* The memory of the mappings this enter made; the lock is free while the backend is asked. */
static int allocate_mappings(oa_state *region, oa_entrant *entrants, int count, bool once) {
  const int small = allocate_small(region, entrants, count, once);
  if (small) return small;
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region || mapping->address) continue;
    uint64_t address = 0;
    bool zeros = false;
    oa_unlock();
    const int status = take_memory(region, (size_t)mapping->nbytes, &address, &zeros);
    oa_lock();
    mapping->zeros = zeros;
    if (status)
      return oa_fail_in(status, "oa_region_enter: %s (%lld bytes)", mapping->parts[0].name, (long long)mapping->nbytes);
    mapping->address = address;
  }
  return OA_OK;
}

/* Notes that what the region allocated can be used elsewhere only after that. */
static int note_allocations(oa_state *region) {
  if (!region->allocated || region->device->backend->flags & OA_SYNCHRONOUS) return OA_OK;
  int status = oa_stream_advance(region->stream);
  bool large = false;
  for (int i = 0; i < region->mapping_count && !status; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region) continue;
    status = oa_uses_add(&mapping->uses, region->stream, true);
    large |= mapping->nbytes >= OA_OVERLAP_BYTES;
  }
  if (large && !status) status = oa_stream_mark(region->stream); /* copies up wait for this, not for later calls */
  return status;
}

static int let_go(oa_state *region);

/* From the last to the first: each goes before the others in the region's list, which is in the arguments' order then. */
static int make_slots(oa_state *region, oa_entrant *entrants, int count) {
  for (int i = count - 1; i >= 0; i--) {
    oa_entrant *e = &entrants[i];
    oa_slot *slot = oa_slot_take(region, OA_SLOT_POINTER);
    if (!slot) return OA_ERROR_MEMORY;
    slot->dtype = (uint8_t)e->array->dtype;
    slot->reads = true;
    slot->writes = e->writes;
    slot->out = e->out;
    slot->owed = e->array->direction == OA_OUT;
    if (e->layout.size) {
      slot->mapping = e->mapping;
      slot->part = e->part;
      slot->offset = e->lines.start;
      slot->nbytes = oa_lines_span(e->lines);
      slot->inside = e->lines;
    }
    e->array->handle = oa_slot_handle(slot);
    e->array->packed = e->layout.size && e->packed;
  }
  return OA_OK;
}

static int enter_locked(oa_device *device, const oa_region_options *options, oa_entrant *entrants, oa_entrant **sorted,
                        int count, oa_state *region) {
  int status = oa_stream_borrow(device, &region->stream);
  if (status) return status;
  region->calls = region->stream;
  if (options && options->has_stream) {
    if ((status = oa_stream_foreign(device, options->stream, &region->foreign))) return status;
    region->calls = region->foreign;
  }
  if (options && options->has_wait_stream) {
    oa_stream *other;
    if ((status = oa_stream_foreign(device, options->wait_stream, &other))) return status;
    other->next = region->foreign;
    region->foreign = other;
    status = oa_stream_advance(other);
    if (!status) status = oa_stream_after(region->stream, other, other->ticket);
    if (!status && region->calls != region->stream) status = oa_stream_after(region->calls, other, other->ticket);
    if (status) return status;
  }
  if ((status = place_arrays(region, entrants, count, sorted))) return status;
  for (int i = 0; i < count; i++) {
    const oa_array *a = entrants[i].array;
    if (entrants[i].layout.size && (a->direction == OA_SCRATCH || (a->flags & OA_BORROWED)))
      if ((status = place_apart(region, &entrants[i]))) return status;
  }
  status = allocate_mappings(region, entrants, count, options && options->once);
  const int noted = note_allocations(region);
  return status ? status : noted;
}

static void trace_enter(const oa_state *region, int64_t begun, int64_t tag, int status) {
  int64_t nbytes = 0;
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->serial == region->serial) nbytes += region->mappings[i]->nbytes;
  oa_trace_note(OA_TRACE_ENTER, begun, region->device, region->serial, tag, "enter", NULL, nbytes, status);
}

int oa_region_enter(int number, const oa_region_options *options, oa_array *arrays, int count, oa_region **handle) {
  int status = oa_core_start();
  if (status) return status;
  const int64_t begun = oa_trace_begin();
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_region_enter");
  if ((status = oa_device_usable(device)) || (status = oa_slots_start()) || (status = oa_residency_start()))
    return status;
  if (count < 0 || (count && !arrays) || !handle)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_enter: %s",
                   handle ? "arrays needs count entries, got none" : "region needs an address, got NULL");

  oa_entrant few[8];
  oa_entrant *few_sorted[8];
  oa_entrant *entrants = few, **sorted = few_sorted;
  void *many = NULL;
  if (count > 8) {
    many = malloc((size_t)count * (sizeof *entrants + sizeof(*sorted)));
    if (!many) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory for %d arrays", count);
    entrants = many;
    sorted = (oa_entrant **)(entrants + count);
  }
  for (int i = 0; i < count; i++) {
    entrants[i] = (oa_entrant){.array = &arrays[i]};
    if ((status = oa_entrant_check(&entrants[i], i))) {
      free(many);
      return status;
    }
  }
  oa_state *region = calloc(1, sizeof *region);
  if (!region) {
    free(many);
    return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory for a region");
  }
  region->device = device;
  region->mappings = region->few;
  region->mapping_capacity = (int)(sizeof region->few / sizeof *region->few);

  oa_lock();
  device->counts.regions++;
  region->serial = ++last_serial;
  region->thread = pthread_self();
  region->older = youngest;
  if (youngest) youngest->younger = region;
  youngest = region;
  oa_slot *own = oa_slot_take(region, OA_SLOT_REGION);
  status = own ? enter_locked(device, options, entrants, sorted, count, region) : OA_ERROR_MEMORY;
  if (!status) status = make_slots(region, entrants, count);
  if (own) region->handle = oa_slot_handle(own);
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->maker != region) continue;
    mapping->maker = NULL;
    mapping->moving = false;
    mapping->failed = !mapping->address; /* others may share it already */
    if (status) oa_kept_untouched(mapping);
  }
  if (begun) trace_enter(region, begun, options ? options->tag : 0, status);
  const bool holds = region->mapping_count;
  oa_region *own_handle = region->handle;
  if (!status) *handle = own_handle;
  oa_saved_error saved;
  if (status) oa_error_save(&saved);
  if (status && !holds) let_go(region); /* it may have no stream */
  oa_announce_change();
  oa_unlock();
  if (status && holds) { /* others that shared its mappings may have left meanwhile: what they wrote comes down */
    oa_region_finish(own_handle, OA_DISCARD, NULL);
    const int left = oa_region_wait(own_handle);
    if (!left) oa_error_restore(&saved);
    if (left) status = left;
  } else if (status) {
    oa_error_restore(&saved);
  }
  oa_kept_tidy();
  free(many);
  return status;
}

/* -- leaving -- */

/* Releases slots, mappings, streams and the region itself. Under the lock. Whatever fails, all of it is gone. */
static int let_go(oa_state *region) {
  int status = OA_OK;
  while (region->slots) oa_slot_release(region->slots);
  for (oa_stream *s = region->foreign; s; s = s->next) { /* its event stays good when its owner is gone */
    if (s->ticket) oa_stream_after(region->stream, s, s->ticket);
    oa_stream_advance(region->stream);
    for (oa_mapping *m = oa_mappings; m; m = m->next) oa_uses_inherit(&m->uses, s, region->stream);
  }
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    while (mapping->moving) oa_wait_change(); /* an update on another thread */
    if (--mapping->references > 0) continue;
    unlist(mapping);
    if (mapping->exports) {
      oa_kept_detach(mapping);
      continue;
    }
    const int freed = oa_mapping_free(mapping, region->stream);
    if (!status) status = freed;
  }
  while (region->foreign) {
    oa_stream *next = region->foreign->next;
    oa_library_give_back(region->foreign);
    oa_stream_forget(region->foreign);
    region->foreign = next;
  }
  if (region->copies) oa_stream_give_back(region->copies);
  if (region->stream) oa_stream_give_back(region->stream);
  int ignored = OA_OK;
  oa_slot *own = region->handle ? oa_slot_of(region->handle, OA_SLOT_REGION, &ignored) : NULL;
  if (own) oa_slot_release(own);
  region->device->counts.regions--;
  if (region->older) region->older->younger = region->younger;
  *(region->younger ? &region->younger->older : &youngest) = region->older;
  if (region->mappings != region->few) free(region->mappings);
  free(region->moves);
  free(region);
  return status;
}

static void remember(oa_state *region, int status) {
  if (!status || region->status) return;
  region->status = status;
  oa_error_save(&region->error);
}

/* Appends ", name" to text. */
/* Whole names; "..." stands for those that there is no room for. */
static void append_name(char *text, size_t size, const char *name) {
  static const char more[] = ", ...";
  const size_t used = strlen(text), room = size - used;
  if (used >= sizeof more && strcmp(text + used - (sizeof more - 1), more) == 0) return;
  snprintf(text + used, room, used && strlen(name) + 2 + sizeof more > room ? more : used ? ", %s" : "%s", name);
}

/* Whether the group comes down at the end of its mapping's last region, which has that outcome. */
static bool comes_down(const oa_group *group, int outcome) {
  if (group->invalid) return false;
  if (outcome == OA_DISCARD) return group->dirty && group->committed;
  return group->dirty || (group->escaped && group->valid);
}

/* Fills moves with what brings the mapping's parts down; returns how many. */
static int moves_down(const oa_mapping *mapping, int outcome, oa_move *moves) {
  int count = 0;
  if (mapping->kind != OA_MAPS_HOST || !mapping->address) return 0;
  for (int i = 0; i < mapping->part_count; i++) {
    const oa_part *part = &mapping->parts[i];
    const oa_group *group = &mapping->groups[part->group];
    if (!part->writes || !comes_down(group, outcome)) continue;
    const bool covered = group->cover >= 0 && group->cover != i && mapping->parts[group->cover].writes;
    if (covered) continue;
    oa_part_move(mapping, part, &moves[count]);
    moves[count++].trace.why =
        group->dirty ? "written, leaving the region" : "its address was given away, leaving the region";
  }
  return count;
}

/* Nothing of the region's is on its way any more; status is what came of it. Under the lock. */
static void come_down(oa_state *region, int status) {
  remember(region, status);
  region->move_count = 0;
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->leaving == region) region->mappings[i]->leaving = NULL;
}

/* A failure on the way down, with the names of what was to come down. */
static int fail_coming_down(const oa_state *region, int status) {
  char names[256] = "";
  if (!status || status == OA_ERROR_TORN) return status; /* that one says it */
  for (int i = 0; i < region->move_count; i++) append_name(names, sizeof names, region->moves[i].name);
  return names[0] ? oa_fail_in(status, "copying back %s", names) : status;
}

static bool is_in_a_call(const oa_state *region) {
  for (const oa_slot *slot = region->slots; slot; slot = slot->next)
    if (slot->calls) return true;
  return false;
}

static oa_group *group_of(const oa_slot *slot) {
  return &slot->mapping->groups[slot->mapping->parts[slot->part].group];
}

/* The pointer to the slot's group of the region that the slot's is nested in: the youngest older one of its thread that is
 * open and lends some of the group. NULL: it is in none. */
static oa_slot *enclosing(const oa_slot *slot) {
  const oa_state *region = slot->region;
  for (const oa_state *outer = region->older; outer; outer = outer->older) {
    if (outer->phase != OA_OPEN || !pthread_equal(outer->thread, region->thread)) continue;
    for (oa_slot *s = outer->slots; s; s = s->next)
      if (s->mapping == slot->mapping && oa_slot_root(s) == s && group_of(s) == group_of(slot)) return s;
  }
  return NULL;
}

/* Arrays to be named when their region is left. */
typedef struct names {
  char text[256];
  int count;
} names;

static void add_name(names *n, const oa_slot *slot) {
  append_name(n->text, sizeof n->text, slot->mapping->parts[slot->part].name);
  n->count++;
}

/* Hands on what the region wrote: to the region around it, else to the host; what is discarded is undefined for others.
 * Adds the arrays lent as Out that nothing wrote, or those whose results are lost. */
static void account_writes(oa_state *region, int outcome, names *told) {
  for (oa_slot *slot = region->slots; slot; slot = slot->next) {
    if (!slot->mapping) continue;
    oa_group *group = group_of(slot);
    if (slot->wrote && outcome == OA_DISCARD) {
      if (!group->dirty || group->invalid) continue; /* an update has brought it down, or it was lost before */
      group->invalid = true;
      if (slot->mapping->kind == OA_MAPS_HOST) add_name(told, slot);
    } else if (slot->wrote) {
      oa_slot *outer = slot->mapping->holders > 1 ? enclosing(slot) : NULL;
      *(outer ? &outer->wrote : &group->committed) = true;
    } else if (slot->owed && outcome == OA_COMMIT && !group->written && !group->escaped && !group->invalid) {
      add_name(told, slot);
    }
  }
}

/* Notes what has to come down of a mapping that the region was the last to hold. The mapping is seized; frees the lock
 * meanwhile. */
static void bring_down(oa_state *region, oa_mapping *mapping, int outcome, names *invalid) {
  if (mapping->escaped) { /* whatever the outcome: code that has its address may be at it still */
    const uint64_t ticket = region->stream->ticket;
    oa_unlock();
    const int status = oa_trace_synchronize_device(mapping->device, region->serial, "whoever has an array's address");
    oa_lock();
    remember(region, status);
    if (!status) oa_stream_waited(region->stream, ticket);
  }
  if (!region->moves) return;
  for (int p = 0; p < mapping->part_count; p++)
    if (mapping->groups[mapping->parts[p].group].invalid && mapping->parts[p].writes && mapping->kind == OA_MAPS_HOST &&
        outcome == OA_COMMIT)
      append_name(invalid->text, sizeof invalid->text, mapping->parts[p].name);
  const int count = moves_down(mapping, outcome, region->moves + region->move_count);
  if (!count) return;
  if (mapping->kept) oa_kept_before_down(mapping);
  region->move_count += count;
  mapping->leaving = region;
  if (!(region->device->backend->flags & OA_SYNCHRONOUS))
    remember(region, oa_uses_order(&mapping->uses, region->stream, false));
  for (int g = 0; g < mapping->group_count; g++) mapping->groups[g].dirty = mapping->groups[g].committed = false;
}

/* The region holds the mapping no more. Frees the lock meanwhile. */
static void leave_mapping(oa_state *region, oa_mapping *mapping, int outcome, names *invalid) {
  if (mapping->holders > 1) {
    mapping->holders--;
    return;
  }
  oa_mapping_seize(mapping); /* others may share it meanwhile */
  if (--mapping->holders == 0) bring_down(region, mapping, outcome, invalid);
  oa_mapping_yield(mapping);
}

/* Enqueues the copies down that were noted; without the lock. */
static int issue_down(oa_state *region) {
  const bool order = !(region->device->backend->flags & OA_SYNCHRONOUS);
  int status = OA_OK;
  if (order && oa_trace_begin())
    status =
        oa_trace_synchronize(region->device, region->stream->native, region->serial, "calls, before arrays come down");
  if (!status) {
    region->copying = oa_trace_begin();
    status = fail_coming_down(
        region, oa_transfer_down(region->device, region->stream->native, region->moves, region->move_count));
  }
  remember(region, status);
  return status;
}

/* Notes the copies that are on their way; until they have arrived nobody writes what they read. */
static void note_down(oa_state *region) {
  bool issued = false; /* else all is left to be copied when the region is waited for */
  for (int i = 0; i < region->move_count; i++) issued |= region->moves[i].staged != NULL;
  if (!issued) return;
  remember(region, oa_stream_advance(region->stream));
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->leaving == region)
      remember(region, oa_uses_add(&region->mappings[i]->uses, region->stream, false));
}

int oa_region_finish(oa_region *handle, int outcome, int *warnings) {
  if (warnings) *warnings = 0;
  int status = oa_core_start();
  if (status) return status;
  if (outcome < OA_COMMIT || outcome > OA_KEEP)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_finish: outcome %d is no oa_outcome", outcome);
  oa_lock();
  oa_slot *own = oa_slot_of(handle, OA_SLOT_REGION, &status);
  if (!own) {
    oa_unlock();
    if (status == OA_ERROR_STALE) return OA_OK;
    return oa_fail(status, "oa_region_finish: region needs what oa_region_enter gave, got the address %p",
                   (void *)handle);
  }
  oa_state *region = own->region;
  if (region->phase != OA_OPEN) {
    oa_unlock();
    return OA_OK;
  }
  region->phase = OA_FINISHING;
  region->leaving = oa_trace_begin();
  while (is_in_a_call(region)) oa_wait_change();

  names told = {.count = 0}, invalid = {.count = 0};
  account_writes(region, outcome, &told);
  while (region->slots) oa_slot_release(region->slots);
  int parts = 0;
  for (int i = 0; i < region->mapping_count; i++) parts += region->mappings[i]->part_count;
  if (parts) {
    region->moves = calloc((size_t)parts, sizeof *region->moves);
    if (!region->moves) remember(region, oa_fail(OA_ERROR_MEMORY, "oa_region_finish: no host memory"));
  }
  for (int i = 0; i < region->mapping_count; i++) leave_mapping(region, region->mappings[i], outcome, &invalid);
  if (invalid.text[0])
    remember(region,
             oa_fail(OA_ERROR_INVALID,
                     "leaving the region: %s was left undefined by a call that failed, and was not copied back; "
                     "overwrite it whole, or don't use it",
                     invalid.text));
  const bool down = region->move_count && (region->status == OA_OK || region->status == OA_ERROR_INVALID);
  oa_unlock();
  if (down) status = issue_down(region);
  oa_lock();
  if (down && !status) note_down(region);
  if (!down || status) come_down(region, 0);
  region->phase = OA_FINISHED;
  oa_announce_change();
  oa_unlock();
  if (warnings) *warnings = told.count;
  if (told.count && outcome == OA_COMMIT)
    oa_warn("lent as Out, and nothing wrote it: %s; the host array is as it was. Write all of it, or lend it as InOut",
            told.text);
  else if (told.count)
    oa_warn("%s %s written on the device and discarded; on_error=\"keep\" copies down what is valid", told.text,
            told.count > 1 ? "were" : "was");
  return OA_OK;
}

/* The state of a live region, under the lock it takes; NULL with the lock free. */
static oa_state *find(const char *function, oa_region *handle, int *status) {
  if ((*status = oa_core_start())) return NULL;
  oa_lock();
  oa_slot *own = oa_slot_of(handle, OA_SLOT_REGION, status);
  if (own) return own->region;
  oa_unlock();
  if (*status == OA_ERROR_NOT_HANDLE)
    oa_fail(*status, "%s: region needs what oa_region_enter gave, got the address %p", function, (void *)handle);
  else
    oa_fail(*status, "%s: the region has ended", function);
  return NULL;
}

/* Makes the region's stream run after all that has to be waited for; false if there is nothing. */
static bool order_all(oa_state *region) {
  oa_stream *stream = region->stream;
  bool wait = stream->waited != stream->ticket;
  for (int i = 0; i < region->mapping_count; i++) {
    const oa_mapping *mapping = region->mappings[i];
    if (mapping->references > 1 && !(mapping->arena && mapping->arena->block))
      continue; /* but a block goes back in no stream's order: each waits, whoever is last */
    if (oa_uses_over(&mapping->uses, stream)) continue;
    remember(region, oa_uses_order(&mapping->uses, stream, true));
    wait = true;
  }
  for (oa_stream *s = region->foreign; s; s = s->next) {
    if (!s->ticket) continue;
    remember(region, oa_stream_after(stream, s, s->ticket));
    wait = true;
  }
  return wait;
}

/* Waits for the region's work and everybody's on what is about to be released, then brings the arrays down. With the lock,
 * which it frees meanwhile. */
static void complete(oa_state *region) {
  oa_device *device = region->device;
  const uint64_t ticket = region->stream->ticket;
  int status = OA_OK;
  region->completing = true;
  const bool wait = !(device->backend->flags & OA_SYNCHRONOUS) && order_all(region);
  oa_unlock();
  if (wait)
    status = region->copying /* then this is a part of copying down */
                 ? device->backend->stream_synchronize(device, region->stream->native)
                 : oa_trace_synchronize(device, region->stream->native, region->serial, "leaving the region");
  if (!status)
    status = oa_transfer_settle(device, region->stream->native, region->moves, region->move_count);
  else
    oa_transfer_abandon(device, region->moves, region->move_count);
  if (region->copying)
    oa_trace_copies(OA_TRACE_DOWN, region->copying, device, region->moves, region->move_count, NULL, status);
  const bool waited = !status;
  status = fail_coming_down(region, status);
  oa_lock();
  if (waited) oa_stream_waited(region->stream, ticket);
  come_down(region, status);
  region->completing = false;
  oa_announce_change();
}

void oa_region_complete(oa_state *region) {
  if (region->phase == OA_FINISHED && !region->completing)
    complete(region);
  else
    oa_wait_change();
}

int oa_region_wait(oa_region *handle) {
  int status;
  oa_state *region = find("oa_region_wait", handle, &status);
  while (region && region->phase != OA_OPEN && (region->phase != OA_FINISHED || region->completing)) {
    oa_wait_change(); /* another thread may wait for it too, and be the one to end it */
    oa_slot *own = oa_slot_of(handle, OA_SLOT_REGION, &status);
    region = own ? own->region : NULL;
    if (!region) oa_unlock();
  }
  if (!region) return status == OA_ERROR_STALE ? OA_OK : status;
  if (region->phase == OA_OPEN) {
    oa_unlock();
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_wait: the region is still open; call oa_region_finish first");
  }
  region->phase = OA_WAITING;
  complete(region);
  const int first = region->status;
  const oa_saved_error text = region->error;
  oa_device *device = region->device;
  const int64_t leaving = region->leaving;
  const uint64_t serial = region->serial;
  oa_kept_after_down(region, !first);
  status = let_go(region);
  oa_announce_change();
  oa_unlock();
  oa_kept_tidy();
  if (leaving) oa_trace_note(OA_TRACE_LEAVE, leaving, device, serial, 0, "leave", NULL, 0, first ? first : status);
  if (first) oa_error_restore(&text);
  return first || status ? oa_fail_in(first ? first : status, "oa_region_wait") : OA_OK;
}

int oa_region_synchronize(oa_region *handle) {
  int status;
  oa_state *region = find("oa_region_synchronize", handle, &status);
  if (!region) return status;
  oa_device *device = region->device;
  if (device->backend->flags & OA_SYNCHRONOUS) {
    oa_unlock();
    return OA_OK;
  }
  for (oa_stream *s = region->foreign; s && !status; s = s->next)
    if (s->ticket) status = oa_stream_after(region->stream, s, s->ticket);
  void *native = region->stream->native;
  const uint64_t serial = region->serial;
  oa_unlock();
  return status ? status : oa_trace_synchronize(device, native, serial, "oa_region_synchronize");
}

int oa_region_stream(oa_region *handle, void **stream) {
  int status;
  if (!stream) return oa_fail_null("oa_region_stream", "stream");
  oa_state *region = find("oa_region_stream", handle, &status);
  if (!region) return status;
  if (region->phase != OA_OPEN)
    status = oa_fail(OA_ERROR_STALE, "oa_region_stream: the region has ended");
  else
    *stream = region->calls->native;
  oa_unlock();
  return status;
}

int oa_array_bytes(const char *function, const oa_array *array, uintptr_t *low, uintptr_t *high, oa_lines *lines) {
  if (!array) return oa_fail_null(function, "array");
  oa_entrant e = {.array = (oa_array *)array};
  const int status = oa_entrant_check(&e, 0);
  if (status) return oa_fail_in(status, "%s", function);
  *low = e.low;
  *high = e.high;
  *lines = e.packed ? (oa_lines){0} : e.lines;
  lines->start = 0;
  return OA_OK;
}
