/* The state of a region, and the list of all. Everything here is read and written under the core's lock but where it says
 * otherwise. */
#ifndef OA_REGION_H
#define OA_REGION_H

#include "region/mapping.h"

typedef struct oa_slot oa_slot;

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
  oa_held_blocks blocks; /* of small arrays that went up on its stream */
  bool completing;       /* somebody brings its moves down */
  oa_move *moves;        /* on their way down */
  int move_count;
  int status;            /* of what failed in finishing, told by wait */
  oa_saved_error *error; /* the text of that; NULL: there was no host memory for it */
  oa_mapping *few[4];
  int64_t leaving, copying;         /* of the trace: since when */
  struct oa_state *older, *younger; /* all regions of the core */
};

/* A region that is in no list yet; NULL with the text set. Without the lock. */
oa_state *oa_region_new(oa_device *device);
/* Makes it the youngest of all regions, entered by this thread. */
void oa_region_list(oa_state *region);
/* Takes it out of the list and frees it; its slots, mappings and streams are gone. */
void oa_region_free(oa_state *region);
/* Adds a mapping to those that the region holds. */
int oa_region_attach(oa_state *region, oa_mapping *mapping);
/* Removes one of them: a staged scalar's. */
void oa_region_detach(oa_state *region, const oa_mapping *mapping);

#endif
