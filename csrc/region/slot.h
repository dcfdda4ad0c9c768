/* Slots: the core's records of pointers, regions, exports, objects, modules, kernels, chains and updates. Each handle
 * names a slot. The core's lock guards all data of this header, unless a comment says otherwise. */
#ifndef OA_SLOT_H
#define OA_SLOT_H

#include "region/region.h"

enum oa_slot_kind {
  OA_SLOT_FREE = 0,
  OA_SLOT_POINTER,
  OA_SLOT_REGION,
  OA_SLOT_EXPORT, /* a share of a mapping's memory that outlives its region */
  OA_SLOT_OBJECT, /* an object that a library made for the caller */
  OA_SLOT_MODULE, /* a module of a device's kernels */
  OA_SLOT_KERNEL,
  OA_SLOT_CHAIN,    /* captured calls of a region */
  OA_SLOT_WRITING,  /* an update during which the host writes */
  OA_SLOT_DESTROYED /* a slice that a call still holds: its handle is stale, and its slot is freed when the call ends */
};

struct oa_slot {
  /* A slot has two cache lines; most calls need only the first. */
  _Alignas(64) uint32_t generation;
  uint8_t kind;
  uint8_t dtype, itemsize;
  bool reads, writes;
  bool out;       /* a call may read the array only after a call wrote it */
  bool owed;      /* the array was lent as Out, so a call should write it */
  bool wrote;     /* for a root: a call or a nested region wrote through this pointer or one of its slices */
  bool irregular; /* the elements are not lines: only some bytes of the hull belong to the array */
  bool zero;      /* oa_stage made the pointer from a host scalar that is 0 */
  bool spaced;    /* `inside` has several lines */
  bool released;  /* for a free slot: its last use was a slice that ended before the region */
  int32_t calls;  /* number of operands, between oa_begin and oa_end, of calls that hold the slot */
  uint32_t root;  /* the number of the slice's root; for other slots, the slot's own number */
  union {
    oa_mapping *mapping;            /* NULL: the array has no bytes */
    struct oa_object_state *object; /* the state of an object, for OA_SLOT_OBJECT */
    void *state;                    /* the state of a module, kernel, chain or update */
  };
  oa_group *group; /* group in the mapping; NULL: the array has no bytes */
  oa_region_state *region;
  int64_t offset, nbytes; /* the offset from the mapping's address; the number of bytes to the end of the last one */
  /* the bytes, from the mapping's address; for an irregular slice, the bytes of the pointer from which it was made */
  oa_lines inside;
  int32_t view;
  bool read_only;                  /* for a root: the host's array is read-only, or several indices share an element */
  struct oa_slot *next, *previous; /* in the region's list; a free slot is in the list of free slots, by `next` */
};

/* The shape of a pointer's array, and its strides in bytes on the device. */
typedef struct oa_dimensions {
  int64_t *many; /* shape, then strides; NULL: shape and strides are in `few` */
  int64_t few[6];
  int32_t ndim;
} oa_dimensions;

/* The reserved range of addresses, and the slots for the handles in this range. A handle is base + (slot << bits) +
 * generation. */
extern struct oa_slots {
  uintptr_t base, size;
  unsigned bits;
  uint32_t last; /* the highest generation */
  uint32_t count, limit;
  oa_slot *at;
  oa_dimensions *dimensions; /* dimensions[i]: for slot i, if it is a pointer */
} oa_slots;

/* Returns the live slot of a handle, or NULL with *status OA_ERROR_NOT_HANDLE or OA_ERROR_STALE and no text. */
static inline oa_slot *oa_slot_of(const void *handle, int kind, int *status) {
  const uintptr_t offset = (uintptr_t)handle - oa_slots.base;
  if (OA_UNLIKELY(offset >= oa_slots.size)) {
    *status = OA_ERROR_NOT_HANDLE;
    return NULL;
  }
  oa_slot *slot = &oa_slots.at[offset >> oa_slots.bits];
  if (OA_LIKELY(slot->kind == kind && slot->generation == (uint32_t)(offset & oa_slots.last))) return slot;
  /* A slot that was never taken is all zeros, which is OA_SLOT_FREE. */
  const bool gone = slot->kind == OA_SLOT_FREE || slot->kind == OA_SLOT_DESTROYED;
  const bool other = !gone && slot->generation == (uint32_t)(offset & oa_slots.last);
  /* The handle is valid, but not of this kind, for example a region's handle in place of a pointer. */
  *status = other ? OA_ERROR_NOT_HANDLE : OA_ERROR_STALE;
  return NULL;
}
/* Returns the slot of the region's pointer that this slot is a slice of, or the slot itself. */
static inline oa_slot *oa_slot_root(const oa_slot *slot) { return &oa_slots.at[slot->root]; }
/* Takes the lock and returns the live slot of a pointer, which is the parameter `name` of a public function. If
 * `pointer` is not a live pointer, returns NULL with *status and the text set and the lock free. */
oa_slot *oa_slot_enter(const char *function, const char *name, const void *pointer, int *status);
/* Returns whether the slot's memory ends with its last pointer: a device scalar, or scratch of oa_scratch. */
bool oa_slot_is_counted(const oa_slot *slot);
void *oa_slot_handle(const oa_slot *slot);
/* Returns a new slot at the head of the region's list; NULL with the text set. */
oa_slot *oa_slot_take(oa_region_state *region, int kind);
/* Gives a new pointer its array. mapping: a mapping with formed groups; NULL if the array has no bytes. */
void oa_slot_point(oa_slot *slot, int dtype, oa_mapping *mapping, int view, oa_lines inside);
/* Notes the shape of a new pointer's array. strides: NULL if the array is in C order. Returns OA_ERROR_MEMORY with the
 * text set if there is no memory for it. */
int oa_slot_shape(const oa_slot *slot, int ndim, const int64_t *shape, const int64_t *strides);
static inline const oa_dimensions *oa_slot_dimensions(const oa_slot *slot) {
  return &oa_slots.dimensions[slot - oa_slots.at];
}
/* Frees the slot; its handle is stale from now on. */
void oa_slot_free(oa_slot *slot);
/* Frees all pointers of a region. */
void oa_slots_free(oa_region_state *region);
/* Returns whether a stale handle belonged to a slice that ended before its region. */
bool oa_slot_was_released(const void *handle);
/* Destroys a slice that no call holds: frees its slot, and counted memory with its last pointer. */
int oa_slot_destroy(oa_slot *slot);
/* Returns the view of a slot that has a mapping. */
static inline oa_view *oa_slot_view(const oa_slot *slot) { return &slot->mapping->views[slot->view]; }
/* Holds the slot of an array with bytes, and its mapping: its region can't end during the hold. writer: the caller of
 * the call, if the call writes; otherwise NULL. */
static inline void oa_slot_hold_bytes(oa_slot *slot, oa_caller *writer) {
  slot->calls++;
  slot->mapping->calls++;
  if (!writer) return;
  slot->group->writing++;
  slot->group->writer = writer;
}
/* Holds a slot as oa_slot_hold_bytes does. The array may have no bytes. */
static inline void oa_slot_hold(oa_slot *slot, oa_caller *writer) {
  if (slot->mapping)
    oa_slot_hold_bytes(slot, writer);
  else
    slot->calls++;
}
/* Ends the hold of oa_slot_hold_bytes; frees a slot that was destroyed meanwhile, with the last call that holds it. */
static inline void oa_slot_unhold_bytes(oa_slot *slot, bool writes) {
  slot->calls--;
  slot->mapping->calls--;
  if (writes) slot->group->writing--;
  if (OA_UNLIKELY(slot->kind == OA_SLOT_DESTROYED) && !slot->calls) oa_slot_destroy(slot);
}
/* Ends the hold of oa_slot_hold, as oa_slot_unhold_bytes does. */
static inline void oa_slot_unhold(oa_slot *slot, bool writes) {
  if (slot->mapping) {
    oa_slot_unhold_bytes(slot, writes);
  } else {
    slot->calls--;
    if (OA_UNLIKELY(slot->kind == OA_SLOT_DESTROYED) && !slot->calls) oa_slot_destroy(slot);
  }
}
/* Reserves the range of handles, once. Called without the lock. */
int oa_slots_start(void);

#endif
