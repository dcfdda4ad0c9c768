/* Regions, mappings and pointers: the types that region.c, pointer.c and call.c share. csrc/DESIGN.md has the rules.
 * Everything here is read and written under the core's lock. */
#ifndef OA_REGION_H
#define OA_REGION_H

#include "base/lines.h"
#include "base/present.h"
#include "device/stream.h"
#include "transfer/transfer.h"

typedef struct oa_group {
  bool valid, dirty, written, invalid;
  bool committed; /* what is dirty was written by regions that left well, and are nested in no other that is open */
  bool escaped;   /* an address by which it may be written was given away */
  int cover;      /* the part that has every byte of the group, or -1 */
} oa_group;

typedef struct oa_part {
  void *data;      /* the host's element at index 0 */
  void *host;      /* the host's lowest byte */
  oa_lines lines;  /* start: from the mapping's address */
  oa_shape *shape; /* of a packed array; NULL otherwise */
  int dtype;
  int group;
  bool writes, goes_up;
  char name[24]; /* for messages */
} oa_part;

enum oa_mapping_kind { OA_MAPS_HOST, OA_MAPS_SCRATCH, OA_MAPS_BORROWED, OA_MAPS_STAGED };

typedef struct oa_state oa_state; /* of a region */
typedef struct oa_kept oa_kept;   /* residency.c's */

/* One allocation that small mappings of one enter share, so that they travel in one copy. */
typedef struct oa_arena {
  uint64_t address;
  size_t nbytes;
  int mappings;
  oa_uses uses;           /* by mappings that are gone */
  struct oa_block *block; /* of pinned memory, that address is in; NULL: it is the device's own memory */
} oa_arena;
enum {
  OA_ARENA_MOST = 64 << 10,   /* bytes of a mapping */
  OA_ARENA_ALIGNMENT = 256,   /* of where it lies */
  OA_IN_PLACE_MOST = 64 << 10 /* of an arena; sgemm reads its operands more than once: benchmarks/transfer.md */
};

typedef struct oa_mapping {
  oa_present at; /* first: the table's element is the mapping */
  int kind;
  oa_device *device;
  uint64_t address; /* 0 until allocated */
  oa_arena *arena;  /* it is a part of; NULL: it has its own memory */
  int64_t nbytes;
  int holders;       /* regions not finished */
  int references;    /* regions not waited for; in the table until there are none */
  int exports;       /* its memory lives until there are none either */
  int calls;         /* operands of calls between oa_begin and oa_end */
  int writing;       /* as many of them are written */
  pthread_t writer;  /* the thread of the last call that did so */
  int views;         /* of a staged scalar: its pointers but for one */
  bool moving;       /* being allocated or copied without the lock: no call begins */
  oa_state *maker;   /* the region that is allocating it */
  oa_state *leaving; /* the region that has yet to bring down some of it: nobody may write it before */
  bool failed;       /* its memory could not be had */
  bool escaped;      /* an address of it was given away */
  bool zeros;        /* its memory was all zeros at first */
  bool cleared;      /* zeros were needed */
  bool elsewhere;    /* some of it is, or was, present on another device */
  bool listed;       /* in the present table */
  uint64_t serial;   /* of the region that made it */
  oa_kept *kept;     /* its memory is to stay, or may; NULL otherwise */
  oa_uses uses;
  oa_part *parts;
  oa_group *groups;
  int part_count, group_count;
  oa_part one_part;
  oa_group one_group;
  struct oa_mapping *next, *previous; /* all mappings of the core */
} oa_mapping;

enum oa_slot_kind {
  OA_SLOT_FREE = 0,
  OA_SLOT_POINTER,
  OA_SLOT_REGION,
  OA_SLOT_EXPORT,  /* a share of a mapping's memory, beyond its region */
  OA_SLOT_RELEASED /* a pointer that a call still uses: its handle is stale, its slot is freed when the call ends */
};

typedef struct oa_slot {
  uint32_t generation;
  uint8_t kind;
  uint8_t dtype;
  bool reads, writes;
  bool out;       /* readable only once written */
  bool owed;      /* lent as Out: somebody should write it */
  bool wrote;     /* a call wrote through it or its slices, or an inner region did; kept at the root */
  bool irregular; /* its elements are not lines: it has some of the bytes of its hull only */
  bool zero;      /* oa_stage made it of a number that is 0 */
  int32_t part;
  int32_t calls;          /* operands of calls between oa_begin and oa_end */
  uint32_t root;          /* the slot it is a slice of; itself if none */
  oa_mapping *mapping;    /* NULL: it has no bytes */
  int64_t offset, nbytes; /* from the mapping's address; to the last byte */
  oa_lines inside;        /* the bytes that are its own, from the mapping's address; of an irregular one, its array's */
  oa_state *region;
  struct oa_slot *next, *previous; /* of the region; next: of the free list */
} oa_slot;

struct oa_state {
  oa_region *handle;
  uint64_t serial;  /* younger regions have higher ones */
  pthread_t thread; /* that entered it: a younger region of the same thread is nested in it */
  oa_device *device;
  oa_stream *stream;  /* borrowed */
  oa_stream *calls;   /* where calls go: stream or a foreign one */
  oa_stream *foreign; /* list */
  oa_stream *copies;  /* borrowed for large copies up, which then overlap with calls; or NULL */
  oa_mapping **mappings;
  int mapping_count, mapping_capacity;
  oa_slot *slots;
  bool allocated; /* memory was asked for, or cleared, on its stream */
  enum { OA_OPEN, OA_FINISHING, OA_FINISHED, OA_WAITING } phase;
  bool completing; /* somebody brings its moves down */
  oa_move *moves;  /* on their way down */
  int move_count;
  int status; /* of what failed in finishing, told by wait */
  oa_saved_error error;
  oa_mapping *few[4];
  int64_t leaving, copying;         /* of the trace: since when */
  struct oa_state *older, *younger; /* all regions of the core */
};

/* -- slots (pointer.c) -- */
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
  const bool gone = slot->kind == OA_SLOT_FREE || slot->kind == OA_SLOT_RELEASED;
  const bool other = !gone && slot->generation == (uint32_t)(offset & oa_slots.last);
  *status = other ? OA_ERROR_NOT_HANDLE : OA_ERROR_STALE; /* a region's handle for a pointer, or the reverse */
  return NULL;
}
/* The slot that slot is a slice of, or itself. */
static inline oa_slot *oa_slot_root(const oa_slot *slot) { return &oa_slots.at[slot->root]; }
/* The live slot of a pointer that a function of the public header was given by that name, under the lock it takes; NULL
 * with the text set and the lock free. */
oa_slot *oa_slot_enter(const char *function, const char *name, const void *pointer, int *status);
void *oa_slot_handle(const oa_slot *slot);
/* A new slot at the head of region's list; NULL with the text set. */
oa_slot *oa_slot_take(oa_state *region, int kind);
void oa_slot_release(oa_slot *slot);
/* Frees the slot of a pointer that was released, and a staged scalar's memory with it. */
int oa_slot_free_released(oa_slot *slot);
/* Counts an operand's pointer into a call. */
static inline void oa_slot_pin(oa_slot *slot, bool writes) {
  slot->calls++;
  if (!slot->mapping) return;
  slot->mapping->calls++;
  if (!writes) return;
  slot->mapping->writing++;
  slot->mapping->writer = pthread_self();
}
/* And out of it; a slot that was released meanwhile is freed with its last call. */
static inline void oa_slot_unpin(oa_slot *slot, bool writes) {
  slot->calls--;
  if (slot->mapping) {
    slot->mapping->calls--;
    slot->mapping->writing -= writes;
  }
  if (__builtin_expect(slot->kind == OA_SLOT_RELEASED, 0) && !slot->calls) oa_slot_free_released(slot);
}
int oa_slots_start(void); /* reserves the range, once */

/* -- mappings (region.c) -- */
oa_mapping *oa_mapping_new(oa_device *device, int kind, int64_t nbytes);
/* Gives the memory back in stream's order and frees the mapping; nobody refers to it any more. */
int oa_mapping_free(oa_mapping *mapping, oa_stream *stream);
int oa_region_attach(oa_state *region, oa_mapping *mapping);
/* The copy of a part as the host has it. */
void oa_part_move(const oa_mapping *mapping, const oa_part *part, oa_move *move);
/* Fills moves with what brings the group up; returns how many (at most part_count). */
int oa_group_moves_up(const oa_mapping *mapping, int group, oa_move *moves);
/* The bytes of a host array, and as lines from the lowest of them (none if it would be packed). Without the lock. */
int oa_array_bytes(const char *function, const oa_array *array, uintptr_t *low, uintptr_t *high, oa_lines *lines);
/* Completes the copies down of a region that was left, or waits a while for the thread that does. Frees the lock meanwhile:
 * everything has to be looked up again. */
void oa_region_complete(oa_state *region);
/* Waits until the mapping is neither being moved nor on its way down, then marks it as moving and waits for the calls
 * that use it. Frees the lock meanwhile; the caller sees to it that the mapping lives. */
void oa_mapping_seize(oa_mapping *mapping);
void oa_mapping_yield(oa_mapping *mapping);
/* Whether the device has, or may soon have, bytes that the host has not. */
bool oa_mapping_is_newer(const oa_mapping *mapping);
/* Completes what regions that were left still bring down into an interval, and takes what they had of it out of the present
 * table, so that it stands in nobody's way. Returns true if it freed the lock meanwhile: then look again. */
bool oa_clear_way(uintptr_t low, uintptr_t high);
/* Blocks until something changed. */
void oa_wait_change(void);
void oa_announce_change(void);
extern oa_present_table oa_table;
extern oa_mapping *oa_mappings;

/* -- arrays (region.c) -- */
/* One array that the caller describes: on its way into a region, or to be updated. */
typedef struct oa_entrant {
  oa_array *array;
  oa_layout layout;
  uintptr_t low, high; /* of its bytes on the host */
  bool packed;
  bool writes, out;
  oa_mapping *mapping;
  int part;
  oa_lines lines; /* in the mapping */
  char name[24];
} oa_entrant;
/* Checks the array at that position of the arguments and fills the rest but for its place. */
int oa_entrant_check(oa_entrant *entrant, int position);
/* The part is packed, and is the array. */
bool oa_part_is(const oa_part *part, const oa_array *array);

/* -- calls (call.c) -- */
/* Of operands of the core's own calls: all that the pointer has. */
enum { OA_EXTENT_ALL = 100 };
/* Added to the access of such an operand: its address is taken, and nothing of it read by the call itself. oa_begin makes it an
 * overwrite where the caller has to fill the group with zeros. */
enum { OA_ADDRESS_ONLY = 1 << 16 };
/* oa_call.open: of a call that has begun; of one of which its stream has nothing to note. */
enum { OA_CALL_OPEN = 1, OA_CALL_UNNOTED };
/* Ends a call that oa_begin let pass, and marks nothing. */
void oa_call_abandon(oa_call *call);
static inline bool oa_writes(int access) { return access & OA_OVERWRITE; }

#endif
