/* Slots: the records of pointers, regions, exports, objects, modules and kernels, which handles name. All of this is
 * read and written under the core's lock, but where it says otherwise. */
#ifndef OA_SLOT_H
#define OA_SLOT_H

#include "region/region.h"

enum oa_slot_kind {
  OA_SLOT_FREE = 0,
  OA_SLOT_POINTER,
  OA_SLOT_REGION,
  OA_SLOT_EXPORT, /* a share of a mapping's memory that outlives its region */
  OA_SLOT_OBJECT, /* an object that a library made for the caller */
  OA_SLOT_MODULE, /* of a device's kernels */
  OA_SLOT_KERNEL,
  OA_SLOT_DESTROYED /* a slice that a call still holds: its handle is stale, and its slot is freed when the call ends */
};

struct oa_slot {
  /* Two lines of cache a slot, of which most calls need the first alone. */
  _Alignas(64) uint32_t generation;
  uint8_t kind;
  uint8_t dtype, itemsize;
  bool reads, writes;
  bool out;       /* it may be read only once it was written */
  bool owed;      /* it was lent as Out, so that a call should write it */
  bool wrote;     /* of a root: a call wrote through it or one of its slices, or a nested region did */
  bool irregular; /* its elements are not lines: only some of the bytes of its hull are its own */
  bool zero;      /* oa_stage made it of a host scalar that is 0 */
  bool spaced;    /* `inside` has several lines */
  int32_t calls;  /* operands of calls that hold it, from oa_begin to oa_end */
  uint32_t root;  /* the slot that it is a slice of; its own number if it is not a slice */
  union {
    oa_mapping *mapping;            /* NULL: it has no bytes */
    struct oa_object_state *object; /* of OA_SLOT_OBJECT */
    void *state;                    /* of a module or kernel */
  };
  oa_group *group; /* of its mapping; NULL: it has none */
  oa_region_state *region;
  int64_t offset, nbytes; /* the offset counts from the mapping's address; nbytes reach to the last byte */
  oa_lines inside; /* the bytes that are its own, from the mapping's address; of an irregular one, those of its array */
  int32_t view;
  struct oa_slot *next, *previous; /* in the region's list; next: in the list of free slots */
};

/* The reserved range of addresses, and the slots that it names. A handle is base + (slot << bits) + generation. */
extern struct oa_slots {
  uintptr_t base, size;
  unsigned bits;
  uint32_t last; /* the highest generation */
  uint32_t count, limit;
  oa_slot *at;
} oa_slots;

/* Returns the live slot of a handle, or NULL with *status OA_ERROR_NOT_HANDLE or OA_ERROR_STALE and no text. */
static inline oa_slot *oa_slot_of(const void *handle, int kind, int *status) {
  const uintptr_t offset = (uintptr_t)handle - oa_slots.base;
  if (__builtin_expect(offset >= oa_slots.size, 0)) {
    *status = OA_ERROR_NOT_HANDLE;
    return NULL;
  }
  oa_slot *slot = &oa_slots.at[offset >> oa_slots.bits];
  if (__builtin_expect(slot->kind == kind && slot->generation == (uint32_t)(offset & oa_slots.last), 1)) return slot;
  /* A slot that was never taken is all zeros, which is OA_SLOT_FREE. */
  const bool gone = slot->kind == OA_SLOT_FREE || slot->kind == OA_SLOT_DESTROYED;
  const bool other = !gone && slot->generation == (uint32_t)(offset & oa_slots.last);
  *status = other ? OA_ERROR_NOT_HANDLE : OA_ERROR_STALE; /* such as a region's handle for a pointer */
  return NULL;
}
/* Returns the region's own pointer that the slot is a slice of, or the slot itself. */
static inline oa_slot *oa_slot_root(const oa_slot *slot) { return &oa_slots.at[slot->root]; }
/* Takes the lock and returns the live slot of a pointer, which is the parameter `name` of a public function. Returns
 * NULL with *status and the text set and the lock free, if there is none. */
oa_slot *oa_slot_enter(const char *function, const char *name, const void *pointer, int *status);
/* Returns whether the slot is a device scalar, or a slice of one. */
bool oa_slot_is_scalar(const oa_slot *slot);
void *oa_slot_handle(const oa_slot *slot);
/* Returns a new slot at the head of the region's list; NULL with the text set. */
oa_slot *oa_slot_take(oa_region_state *region, int kind);
/* Gives a new pointer its array. mapping: NULL if it has no bytes; its groups are formed. */
void oa_slot_point(oa_slot *slot, int dtype, oa_mapping *mapping, int view, oa_lines inside);
/* Returns the slot to the free ones; its handle is stale from now on. */
void oa_slot_free(oa_slot *slot);
/* Destroys a slice that no call holds: frees its slot, and a device scalar with the last pointer to it. */
int oa_slot_destroy(oa_slot *slot);
/* Returns the view of a slot that has a mapping. */
static inline oa_view *oa_slot_view(const oa_slot *slot) { return &slot->mapping->views[slot->view]; }
/* Lets something hold the slot and its mapping: its region can't end meanwhile. writer: the thread, if it writes. */
static inline void oa_slot_hold(oa_slot *slot, oa_caller *writer) {
  slot->calls++;
  if (!slot->mapping) return;
  slot->mapping->calls++;
  if (!writer) return;
  slot->group->writing++;
  slot->group->writer = writer;
}
/* Ends that; frees a slot that was destroyed meanwhile, with the last call that holds it. */
static inline void oa_slot_unhold(oa_slot *slot, bool writes) {
  slot->calls--;
  if (slot->mapping) {
    slot->mapping->calls--;
    if (writes) slot->group->writing--;
  }
  if (__builtin_expect(slot->kind == OA_SLOT_DESTROYED, 0) && !slot->calls) oa_slot_destroy(slot);
}
/* Reserves the range of handles, once. Without the lock. */
int oa_slots_start(void);

#endif
