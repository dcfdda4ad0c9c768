/* Mappings: the entries of the present table. A mapping has device memory, the arrays in it (views) and their state
 * (groups). csrc/DESIGN.md has the rules. The core's lock guards all data of this header. */
#ifndef OA_MAPPING_H
#define OA_MAPPING_H

#include "base/lines.h"
#include "base/parts.h"
#include "base/present.h"
#include "device/stream.h"
#include "transfer/transfer.h"

typedef struct oa_caller oa_caller;

/* The state of views whose elements may overlap. */
typedef struct oa_group {
  bool valid, dirty, written, invalid;
  /* the dirty bytes are from regions that were left without failure, so no open region can still discard them */
  bool committed;
  bool escaped;  /* a writable address in the group was exposed */
  bool arriving; /* a call is bringing the group up */
  /* the group is not valid, and the only reason is that updates let the host write some of the group's bytes
   * (region/update.c) */
  bool lapsed;
  /* a call that is being captured overwrites the group, so that later calls of that graph may read the group */
  bool captured;
  bool saved;      /* of a coherent mapping: `former` has the group's bytes */
  bool stays;      /* of a coherent mapping that ends: the host keeps the device's bytes */
  int cover;       /* the view that has every byte of the group, or -1 */
  oa_parts *parts; /* bytes that calls wrote while the group is not valid, from the mapping's address; usually NULL */
  /* `parts`, and the bytes that went up for calls that read some of the group; NULL: no such bytes went up */
  oa_parts *present;
  int arrivals; /* number of copies up of some of the group */
  bool forgot;  /* the device had bytes of the group that are no longer present */
  int writing;  /* number of operands, between oa_begin and oa_end, of calls that write the group */
  /* caller of the last call that writes the group; while the group is not valid, caller of all such calls, and other
   * callers wait */
  oa_caller *writer;
} oa_group;

/* One distinct array in a mapping. */
typedef struct oa_view {
  int group;
  bool writes, goes_up;
  int dtype;
  void *data;      /* the element at index 0 on the host */
  void *host;      /* the array's lowest byte on the host */
  oa_lines lines;  /* the start is an offset from the mapping's address */
  oa_shape *shape; /* shape of a packed array, otherwise NULL */
  char name[24];   /* for messages */
} oa_view;

enum oa_mapping_kind { OA_MAPS_HOST, OA_MAPS_SCRATCH, OA_MAPS_BORROWED, OA_MAPS_SCALAR };
enum oa_mapping_special {
  OA_IS_ELSEWHERE = 1, /* some of it is, or was, present on another device */
  OA_IS_COHERENT = 2,  /* its address is the host's: the device uses the host's memory (region/coherent.c) */
  OA_IS_CAPTURED = 4   /* of a coherent mapping: a graph has, or had, its address */
};

typedef struct oa_region_state oa_region_state;
typedef struct oa_resident oa_resident;
typedef struct oa_guard oa_guard;

/* One allocation that the small mappings of one entry share, so that they travel in one copy. */
typedef struct oa_arena {
  uint64_t address;
  size_t nbytes;
  int mappings;
  oa_uses uses;           /* uses by mappings that were freed */
  struct oa_block *block; /* the pinned block that has the address; NULL: the memory is the device's own */
  bool in_use;            /* a wait failed, so some of the arena may be in use for ever, and the arena is not freed */
  bool cleared;           /* a call needed zeros in one of the freed mappings */
} oa_arena;
enum {
  OA_ARENA_MOST = 64 << 10, /* the most bytes of a mapping in an arena */
  OA_ARENA_ALIGNMENT = 256, /* bytes: each mapping starts at a multiple of this number */
  /* the most bytes of an arena in a block; larger arenas are copied (benchmarks/transfer.md) */
  OA_IN_PLACE_MOST = 64 << 10,
  OA_REUSED_LEAST = 16 << 10 /* arrays that calls read many times are copied if they have at least so many bytes */
};

/* One host interval, or other memory of a region, on one device. */
typedef struct oa_mapping {
  oa_present at; /* stays first: the table's element is the mapping */
  oa_device *device;
  int64_t nbytes;
  /* Each call reads and writes the fields down to one_group. These fields are adjacent to use few cache lines. */
  uint64_t address; /* 0 until allocated */
  /* the finished region that has yet to bring some of the mapping down: until then, no call may write the mapping */
  oa_region_state *leaving;
  int calls;       /* number of operands, between oa_begin and oa_end, of calls that hold the mapping */
  bool moving;     /* a thread allocates or copies the memory without the lock: no call may begin */
  uint8_t special; /* a sum of oa_mapping_special; calls look closer at such mappings */
  bool escaped;    /* an address in the mapping was exposed */
  bool spoiled;    /* the abort of a communicator has made bytes undefined */
  bool listed;     /* the mapping is in the present table */
  oa_uses uses;
  oa_guard *guard; /* NULL: the arrays are not guarded */
  char *former;    /* of a coherent mapping: the host's bytes of saved groups, for a region that fails; usually NULL */
  oa_group one_group;
  oa_group *groups;
  oa_view *views;
  oa_view one_view;
  bool zeros;   /* the memory was all zeros when it was allocated */
  bool reused;  /* one of the arrays is OA_REUSED */
  bool cleared; /* a call needed zeros in the mapping */
  int kind;
  int view_count, group_count;
  oa_arena *arena; /* the arena that has its memory; NULL: it has separate memory */
  int holders;     /* number of regions that hold the mapping and are not finished */
  int references;  /* number of regions that were not waited for yet; the mapping is in the table until this is 0 */
  int exports;     /* number of exports; the memory lives until this is 0, too */
  bool waits;      /* the last export ended while a stream was captured, so the memory is freed later */
  bool waited;     /* leaving has waited for all users of an exposed address, and no address was exposed since */
  bool counted;    /* the memory ends with the last pointer to it, or with the region */
  int pointers;    /* for a counted mapping: the number of pointers to it, less one */
  /* the region that is allocating the mapping; until it has done so, no other region may share the mapping */
  oa_region_state *maker;
  /* the thread that marked the mapping as moving and still waits for calls that hold the mapping; NULL: none */
  oa_caller *seizer;
  uint64_t serial;                    /* the serial of the region that made the mapping */
  oa_resident *resident;              /* the entry of residency that the memory belongs to; NULL: none */
  struct oa_mapping *next, *previous; /* in the list of all mappings */
} oa_mapping;

/* The bytes that a copy up of some of a group, and each line of such a copy, count for. Tests change them. */
enum { OA_COPY_COST = 256 << 10, OA_LINE_COST = 64 };
extern struct oa_part_cost {
  int64_t copy, line;
  bool is_configured; /* parts go up also while other code has a stream of the device */
} oa_part_cost;

/* The present table, and the list of all mappings of the core. */
extern oa_present_table oa_table;
extern oa_mapping *oa_mappings;

/* Returns a mapping with one view and one group, in the list of all; NULL with the text set. */
oa_mapping *oa_mapping_new(oa_device *device, int kind, int64_t nbytes);
/* Frees the mapping, and its memory in the stream's order unless the memory stays. No region, export or entry of
 * residency may refer to the mapping. */
int oa_mapping_free(oa_mapping *mapping, oa_stream *stream, bool memory_stays);
/* Takes the mapping out of the present table, if it is there. */
void oa_mapping_unlist(oa_mapping *mapping);
/* Returns whether that thread moves the mapping, and waits for calls that hold it. */
static inline bool oa_mapping_is_seized_by(const oa_mapping *mapping, const oa_caller *caller) {
  return mapping->moving && mapping->seizer == caller;
}
/* Ends the time in which a mapping is moving: calls may use it again. */
void oa_mapping_yield(oa_mapping *mapping);
/* Returns whether the device has bytes that the host lacks, or may have them soon. */
bool oa_mapping_is_newer(const oa_mapping *mapping);
/* Sets *lines to a view's bytes on the host, from the mapping's first byte on. If the bytes are not lines, returns
 * false and sets nothing. */
bool oa_view_lines_on_host(const oa_mapping *mapping, const oa_view *view, oa_lines *lines);
/* Returns whether some of these host bytes, from low on, may belong to the mapping's arrays. */
bool oa_mapping_meets(const oa_mapping *mapping, uintptr_t low, oa_lines lines);
/* Returns whether some of these bytes may belong to that view. */
bool oa_mapping_meets_view(const oa_mapping *mapping, const oa_view *view, uintptr_t low, oa_lines lines);
/* Returns whether arrays of the two mappings may share a byte. */
bool oa_mappings_meet(const oa_mapping *a, const oa_mapping *b);
/* Forms groups of the views whose bytes may overlap, and finds, for each group, the view that covers the group's other
 * views. */
void oa_mapping_form_groups(oa_mapping *mapping);
/* Returns whether the view, which is packed, is exactly that array. */
bool oa_view_is(const oa_view *view, const oa_array *array);
/* Fills *move with the copy between a view and the host's array. */
void oa_view_move(const oa_mapping *mapping, const oa_view *view, oa_move *move);
/* Returns whether a call may write these lines of the group as a part: missing bytes need not be brought up, and parts
 * of the group can come down. */
bool oa_group_takes_part(const oa_mapping *mapping, const oa_group *group, oa_lines lines);
/* Notes that a call wrote these bytes of a group that is not valid. The group is valid once all of it is written. If
 * host memory runs out, the group becomes invalid, and the function returns OA_ERROR_MEMORY with the text set. */
int oa_group_note_part(const oa_mapping *mapping, oa_group *group, oa_lines lines);
/* Returns the bytes of a group that the device has while the group is not valid. */
static inline oa_parts *oa_group_present(const oa_group *group) {
  return group->present ? group->present : group->parts;
}
/* Forgets the bytes that went up for calls that read some of the group. */
static inline void oa_group_forget_arrived(oa_group *group) {
  group->forgot |= group->present != NULL;
  oa_parts_clear(&group->present);
}
/* Forgets which bytes of the group the device has. */
static inline void oa_group_forget_parts(oa_group *group) {
  oa_parts_clear(&group->parts);
  oa_parts_clear(&group->present);
}
/* Returns whether only these lines of a group go up for a call that reads them, because they are much less than all
 * bytes that the device lacks. */
bool oa_group_comes_in_parts(const oa_mapping *mapping, const oa_group *group, oa_lines lines);
/* Returns the number of bytes that the device lacks, if some of them may go up without the others; otherwise 0. */
int64_t oa_group_lacks(const oa_mapping *mapping, const oa_group *group);
/* Notes that these bytes of a group went up. The group is valid once the device has all of it. */
void oa_group_note_arrival(const oa_mapping *mapping, oa_group *group, const oa_parts *arrived);
/* Fills moves with the copies between some parts of the group and the host. Returns the number of moves,
 * oa_parts_pieces. */
int oa_group_moves_of_parts(const oa_mapping *mapping, const oa_group *group, const oa_parts *parts, oa_move *moves);
/* Fills moves with the copies that bring the written parts of a group down, at most oa_parts_pieces moves. If there are
 * many parts, near parts travel together, and the bytes between them do not reach the host. Returns the number of
 * moves. */
int oa_group_moves_of_parts_down(const oa_mapping *mapping, const oa_group *group, oa_move *moves);
/* Fills moves with the copies that bring the group up. Returns the number of moves, at most view_count; 0 for a
 * resident mapping. */
int oa_group_moves_up(const oa_mapping *mapping, int group, oa_move *moves);

#endif
