/* Mappings: the entries of the present table. Each has device memory, the arrays (parts) that lie in it and their state
 * (groups). csrc/DESIGN.md has the rules. Everything here is read and written under the core's lock. */
#ifndef OA_MAPPING_H
#define OA_MAPPING_H

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

typedef struct oa_view {
  void *data;      /* the host's element at index 0 */
  void *host;      /* the host's lowest byte */
  oa_lines lines;  /* start: from the mapping's address */
  oa_shape *shape; /* of a packed array; NULL otherwise */
  int dtype;
  int group;
  bool writes, goes_up;
  char name[24]; /* for messages */
} oa_view;

enum oa_mapping_kind { OA_MAPS_HOST, OA_MAPS_SCRATCH, OA_MAPS_BORROWED, OA_MAPS_SCALAR };

typedef struct oa_region_state oa_region_state; /* of a region */
typedef struct oa_resident oa_resident;         /* residency.c's */

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
  int holders;              /* regions not finished */
  int references;           /* regions not waited for; in the table until there are none */
  int exports;              /* its memory lives until there are none either */
  int calls;                /* operands of calls between oa_begin and oa_end */
  int writing;              /* as many of them are written */
  pthread_t writer;         /* the thread of the last call that did so */
  int pointers;             /* of a staged scalar: its pointers but for one */
  bool moving;              /* being allocated or copied without the lock: no call begins */
  oa_region_state *maker;   /* the region that is allocating it */
  oa_region_state *leaving; /* the region that has yet to bring down some of it: nobody may write it before */
  bool failed;              /* its memory could not be had */
  bool escaped;             /* an address of it was given away */
  bool zeros;               /* its memory was all zeros at first */
  bool cleared;             /* zeros were needed */
  bool elsewhere;           /* some of it is, or was, present on another device */
  bool listed;              /* in the present table */
  uint64_t serial;          /* of the region that made it */
  oa_resident *resident;    /* its memory is to stay, or may; NULL otherwise */
  oa_uses uses;
  oa_view *views;
  oa_group *groups;
  int view_count, group_count;
  oa_view one_view;
  oa_group one_group;
  struct oa_mapping *next, *previous; /* all mappings of the core */
} oa_mapping;

/* The present table, and the list of all mappings of the core. */
extern oa_present_table oa_table;
extern oa_mapping *oa_mappings;

/* A mapping with one part and one group, in the list; NULL with the text set. */
oa_mapping *oa_mapping_new(oa_device *device, int kind, int64_t nbytes);
/* Frees the mapping, and its memory in stream's order unless that stays. Nobody refers to it any more, and residency does
 * not either. */
int oa_mapping_free(oa_mapping *mapping, oa_stream *stream, bool memory_stays);
/* Takes the mapping out of the present table; nothing if it is not there. */
void oa_mapping_unlist(oa_mapping *mapping);
/* Ends a seizure: calls may use the mapping again. */
void oa_mapping_yield(oa_mapping *mapping);
/* Whether the device has, or may soon have, bytes that the host has not. */
bool oa_mapping_is_newer(const oa_mapping *mapping);
/* Groups the parts whose bytes may meet, and finds the part of each group that covers the others. */
void oa_mapping_form_groups(oa_mapping *mapping);
/* Whether the part, which is packed, is that array. */
bool oa_view_is(const oa_view *view, const oa_array *array);
/* The copy of a part as the host has it. */
void oa_view_move(const oa_mapping *mapping, const oa_view *view, oa_move *move);
/* Fills moves with what brings the group up; returns how many (at most view_count). */
int oa_group_moves_up(const oa_mapping *mapping, int group, oa_move *moves);

#endif
