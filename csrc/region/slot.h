/* Slots: what the handles that callers hold stand for. Everything here is read and written under the core's lock but where
 * it says otherwise. */
#ifndef OA_SLOT_H
#define OA_SLOT_H

#include "region/region.h"

enum oa_slot_kind {
  OA_SLOT_FREE = 0,
  OA_SLOT_POINTER,
  OA_SLOT_REGION,
  OA_SLOT_EXPORT,   /* a share of a mapping's memory, beyond its region */
  OA_SLOT_DESTROYED /* a pointer that a call still uses: its handle is stale, its slot is freed when the call ends */
};

struct oa_slot {
  uint32_t generation;
  uint8_t kind;
  uint8_t dtype;
  bool reads, writes;
  bool out;       /* readable only once written */
  bool owed;      /* lent as Out: somebody should write it */
  bool wrote;     /* a call wrote through it or its slices, or an inner region did; kept at the root */
  bool irregular; /* its elements are not lines: it has some of the bytes of its hull only */
  bool zero;      /* oa_stage made it of a number that is 0 */
  int32_t view;
  int32_t calls;          /* operands of calls between oa_begin and oa_end */
  uint32_t root;          /* the slot it is a slice of; itself if none */
  oa_mapping *mapping;    /* NULL: it has no bytes */
  int64_t offset, nbytes; /* from the mapping's address; to the last byte */
  oa_lines inside;        /* the bytes that are its own, from the mapping's address; of an irregular one, its array's */
  oa_region_state *region;
  struct oa_slot *next, *previous; /* of the region; next: of the free list */
};

/* The reserved range and the slots it names. A handle is base + (slot << bits) + generation. */
extern struct oa_slots {
  uintptr_t base, size;
  unsigned bits;
  uint32_t last; /* generation */
  uint32_t count, limit;
  oa_slot *at;
} oa_slots;

/* The live slot of a handle; else NULL and *status OA_ERROR_NOT_HANDLE or OA_ERROR_STALE, no text. */
static inline oa_slot *oa_slot_of(const void *handle, int kind, int *status) {
  const uintptr_t offset = (uintptr_t)handle - oa_slots.base;
  if (__builtin_expect(offset >= oa_slots.size, 0)) {
    *status = OA_ERROR_NOT_HANDLE;
    return NULL;
  }
  oa_slot *slot = &oa_slots.at[offset >> oa_slots.bits];
  if (__builtin_expect(slot->kind == kind && slot->generation == (uint32_t)(offset & oa_slots.last), 1)) return slot;
  /* A slot that was never taken is all zero: of no kind. */
  const bool gone = slot->kind == OA_SLOT_FREE || slot->kind == OA_SLOT_DESTROYED;
  const bool other = !gone && slot->generation == (uint32_t)(offset & oa_slots.last);
  *status = other ? OA_ERROR_NOT_HANDLE : OA_ERROR_STALE; /* a region's handle for a pointer, or the reverse */
  return NULL;
}
/* The slot that slot is a slice of, or itself. */
static inline oa_slot *oa_slot_root(const oa_slot *slot) { return &oa_slots.at[slot->root]; }
/* The live slot of a pointer that a function of the public header was given by that name, under the lock it takes; NULL
 * with the text set and the lock free. */
oa_slot *oa_slot_enter(const char *function, const char *name, const void *pointer, int *status);
/* Whether the slot is a staged scalar, or a view of one. */
bool oa_slot_is_scalar(const oa_slot *slot);
void *oa_slot_handle(const oa_slot *slot);
/* A new slot at the head of region's list; NULL with the text set. */
oa_slot *oa_slot_take(oa_region_state *region, int kind);
void oa_slot_free(oa_slot *slot);
/* Frees the slot of a pointer that was released, and a staged scalar's memory with it. */
int oa_slot_destroy(oa_slot *slot);
/* Counts an operand's pointer into a call. */
static inline void oa_slot_hold(oa_slot *slot, bool writes) {
  slot->calls++;
  if (!slot->mapping) return;
  slot->mapping->calls++;
  if (!writes) return;
  slot->mapping->writing++;
  slot->mapping->writer = pthread_self();
}
/* And out of it; a slot that was released meanwhile is freed with its last call. */
static inline void oa_slot_unhold(oa_slot *slot, bool writes) {
  slot->calls--;
  if (slot->mapping) {
    slot->mapping->calls--;
    slot->mapping->writing -= writes;
  }
  if (__builtin_expect(slot->kind == OA_SLOT_DESTROYED, 0) && !slot->calls) oa_slot_destroy(slot);
}
int oa_slots_start(void); /* reserves the range, once */

#endif
