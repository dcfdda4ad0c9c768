#include "region/slot.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

struct oa_slots oa_slots;
static oa_slot *free_slots;

static int slots_status;
static oa_saved_error slots_error;

/* Returns memory with an element for each slot, all zeros, which takes no pages until it is used; MAP_FAILED if there
 * is none. */
static void *table(size_t size) {
  return mmap(NULL, (size_t)oa_slots.limit * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
}

/* Takes a range of addresses that no process can use. Every access traps, because on a 64-bit CPU these addresses
 * belong neither to a process nor to the kernel, even if the CPU ignores the highest byte of an address. A range of
 * such addresses takes no address space. The tables take at most an eighth of the limit. */
static void take_unreserved(size_t limit) {
  enum { GENERATION_BITS = 24, SLOT_BITS = 21, FEWEST_SLOT_BITS = 10 };
  const size_t each = sizeof *oa_slots.at + sizeof *oa_slots.dimensions;
  unsigned bits = SLOT_BITS;
  while (bits > FEWEST_SLOT_BITS && each << bits > limit / 8) bits--;
  oa_slots.base = (uintptr_t)1 << 55;
  oa_slots.size = (uintptr_t)1 << (bits + GENERATION_BITS);
  oa_slots.bits = GENERATION_BITS;
}

static void take_reserved(void) {
  for (unsigned bits = 45; bits >= 32; bits--) {
    void *range = mmap(NULL, (size_t)1 << bits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    oa_slots.base = (uintptr_t)range;
    oa_slots.size = (uintptr_t)1 << bits;
    oa_slots.bits = bits - 21 > 24 ? 24 : bits >= 41 ? bits - 21 : 16;
    break;
  }
}

static int reserve(void) {
  struct rlimit space;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    take_unreserved((size_t)space.rlim_cur);
  else
    take_reserved();
  /* Reserving the range can fail, for example in a container that forbids it. */
  if (!oa_slots.size) take_unreserved((size_t)1 << 32);
  oa_slots.last = ((uint32_t)1 << oa_slots.bits) - 1;
  oa_slots.limit = (uint32_t)(oa_slots.size >> oa_slots.bits);
  oa_slots.at = table(sizeof *oa_slots.at);
  oa_slots.dimensions = table(sizeof *oa_slots.dimensions);
  if (oa_slots.at != MAP_FAILED && oa_slots.dimensions != MAP_FAILED) return OA_OK;
  oa_slots.size = 0; /* with size 0, no address counts as a handle */
  return oa_fail(OA_ERROR_MEMORY, "no address space for the table of handles");
}

static void start(void) {
  slots_status = reserve();
  oa_error_save(&slots_error);
}

int oa_slots_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  if (slots_status) oa_error_restore(&slots_error);
  return slots_status;
}

void *oa_slot_handle(const oa_slot *slot) {
  return (void *)(oa_slots.base + ((uintptr_t)(slot - oa_slots.at) << oa_slots.bits) + slot->generation);
}

oa_slot *oa_slot_take(oa_region_state *region, int kind) {
  oa_slot *slot = free_slots;
  uint32_t generation;
  if (slot) {
    free_slots = slot->next;
    generation = slot->generation;
  } else if (oa_slots.count < oa_slots.limit) {
    slot = &oa_slots.at[oa_slots.count++];
    generation = 1;
  } else {
    oa_fail(OA_ERROR_MEMORY, "all %u handles are in use or used up; end regions you no longer need", oa_slots.limit);
    return NULL;
  }
  *slot = (oa_slot){.generation = generation, .kind = (uint8_t)kind, .region = region};
  slot->root = (uint32_t)(slot - oa_slots.at);
  if (kind == OA_SLOT_POINTER) {
    oa_slots.dimensions[slot->root].ndim = 0;
    slot->next = region->slots;
    if (slot->next) slot->next->previous = slot;
    region->slots = slot;
  }
  return slot;
}

void oa_slot_point(oa_slot *slot, int dtype, oa_mapping *mapping, int view, oa_lines inside) {
  slot->dtype = (uint8_t)dtype;
  slot->itemsize = (uint8_t)oa_itemsize(dtype);
  slot->mapping = mapping;
  slot->view = view;
  slot->group = mapping ? &mapping->groups[mapping->views[view].group] : NULL;
  slot->inside = inside;
  slot->spaced = inside.count > 1;
}

/* Writes the shape, then the strides. strides: NULL if the array is in C order. */
static inline void write_shape(int64_t *to, int ndim, int64_t stride, const int64_t *shape, const int64_t *strides) {
  if (OA_LIKELY(strides != NULL)) {
    for (int i = 0; i < ndim; i++) {
      to[i] = shape[i];
      to[ndim + i] = strides[i];
    }
    return;
  }
  for (int i = ndim - 1; i >= 0; i--) {
    to[i] = shape[i];
    to[ndim + i] = stride;
    if (shape[i] > 1) stride *= shape[i];
  }
}

static __attribute__((cold, noinline)) int note_many(oa_dimensions *dimensions, int ndim, int64_t itemsize,
                                                     const int64_t *shape, const int64_t *strides) {
  dimensions->many = malloc(2 * (size_t)ndim * sizeof *dimensions->many);
  if (!dimensions->many) return oa_fail(OA_ERROR_MEMORY, "no host memory for a shape of %d dimensions", ndim);
  dimensions->ndim = ndim;
  write_shape(dimensions->many, ndim, itemsize, shape, strides);
  return OA_OK;
}

int oa_slot_shape(const oa_slot *slot, int ndim, const int64_t *shape, const int64_t *strides) {
  enum { FEW = sizeof((oa_dimensions *)0)->few / (2 * sizeof(int64_t)) };
  oa_dimensions *dimensions = &oa_slots.dimensions[slot - oa_slots.at];
  if (OA_UNLIKELY(ndim > FEW)) return note_many(dimensions, ndim, slot->itemsize, shape, strides);
  dimensions->ndim = ndim;
  write_shape(dimensions->few, ndim, slot->itemsize, shape, strides);
  return OA_OK;
}

static void free_dimensions(const oa_slot *slot) {
  oa_dimensions *dimensions = &oa_slots.dimensions[slot - oa_slots.at];
  if (OA_LIKELY(!dimensions->many)) return;
  free(dimensions->many);
  dimensions->many = NULL;
}

/* Frees a slot that is in no list, for another handle. */
static void release(oa_slot *slot) {
  slot->kind = OA_SLOT_FREE;
  if (slot->generation == oa_slots.last) return; /* the slot is retired, because no generation is left */
  slot->generation++;
  slot->next = free_slots;
  free_slots = slot;
}

void oa_slots_free(oa_region_state *region) {
  for (oa_slot *slot = region->slots, *next; slot; slot = next) {
    next = slot->next;
    free_dimensions(slot);
    release(slot);
  }
  region->slots = NULL;
}

void oa_slot_free(oa_slot *slot) {
  if (slot->kind == OA_SLOT_POINTER || slot->kind == OA_SLOT_DESTROYED) {
    free_dimensions(slot);
    if (slot->previous)
      slot->previous->next = slot->next;
    else
      slot->region->slots = slot->next;
    if (slot->next) slot->next->previous = slot->previous;
  }
  release(slot);
}

bool oa_slot_was_released(const void *handle) {
  const uintptr_t offset = (uintptr_t)handle - oa_slots.base;
  const oa_slot *slot = &oa_slots.at[offset >> oa_slots.bits];
  const uint32_t generation = (uint32_t)(offset & oa_slots.last);
  if (slot->kind == OA_SLOT_DESTROYED) return slot->generation == generation;
  return slot->kind == OA_SLOT_FREE && slot->released && slot->generation == generation + 1;
}

bool oa_slot_is_counted(const oa_slot *slot) { return slot->mapping && slot->mapping->counted; }

int oa_slot_destroy(oa_slot *slot) {
  oa_mapping *counted = oa_slot_is_counted(slot) ? slot->mapping : NULL;
  oa_region_state *region = slot->region;
  oa_slot_free(slot);
  slot->released = true;
  /* Code that knows the address, such as a captured graph, may use the memory while the region is open. */
  if (!counted || counted->escaped) return OA_OK;
  if (counted->pointers--) return OA_OK;
  oa_region_detach(region, counted);
  return oa_mapping_free(counted, region->stream, false);
}

oa_slot *oa_slot_enter(const char *function, const char *name, const void *pointer, int *status) {
  if ((*status = oa_core_start(function))) return NULL;
  oa_lock();
  oa_slot *slot = oa_slot_of(pointer, OA_SLOT_POINTER, status);
  if (slot) return slot;
  const bool released = *status == OA_ERROR_STALE && oa_slot_was_released(pointer);
  oa_unlock();
  if (released)
    oa_fail(*status, "%s: %s was released; make another view of its array", function, name);
  else if (*status == OA_ERROR_STALE)
    oa_fail(*status, "%s: %s belongs to a region that has ended; use it inside its region", function, name);
  else
    oa_fail(*status, "%s: %s needs a device pointer, got the address %p; lend the array in a region first", function,
            name, pointer);
  return NULL;
}
