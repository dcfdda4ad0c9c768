/* The state of a region, and the list of all regions. The core's lock guards all data of this header, unless a comment
 * says otherwise. */
#ifndef OA_REGION_H
#define OA_REGION_H

#include "region/mapping.h"

typedef struct oa_slot oa_slot;

struct oa_region_state {
  oa_region *handle;
  uint64_t serial; /* a younger region has a higher serial */
  oa_device *device;
  oa_stream *calls;   /* the stream of the region's calls: `stream`, or a foreign stream */
  pthread_t thread;   /* the thread that entered the region: a younger region of that thread is nested in this region */
  oa_stream *stream;  /* taken from the device's pool */
  uint64_t entered;   /* the ticket of `stream` on entry */
  oa_stream *foreign; /* the list of the caller's streams */
  oa_stream *copies;  /* taken for large copies up, which then overlap with calls; NULL: none yet */
  struct oa_capture *capture; /* the capture of the region's calls into a graph of the core; NULL: none */
  oa_mapping **mappings;
  int mapping_count, mapping_capacity;
  oa_slot *slots;
  bool coherent;  /* its new mappings use the host's memory: the device is coherent, and no array is guarded */
  bool allocated; /* memory was allocated or cleared on `stream` */
  enum { OA_OPEN, OA_FINISHING, OA_FINISHED, OA_WAITING } phase;
  oa_caller *finisher;   /* the thread that waits until it can finish the region; NULL: none */
  oa_held_blocks blocks; /* blocks of small arrays that went up on `stream` */
  bool completing;       /* a thread makes the copies of `moves` */
  oa_move *moves;        /* copies on their way down */
  int move_count;
  bool spoiled;          /* the abort of a communicator made bytes undefined that are on their way down */
  int status;            /* status of the first failure of leaving; oa_region_wait reports it */
  oa_saved_error *error; /* text of this failure; NULL: there was no host memory for the text */
  bool has_arrived;      /* all bytes that were to come down have arrived */
  oa_mapping *few[4];
  int64_t leaving_since, copying_since; /* for the trace; 0: the trace is off */
  int64_t spared; /* bytes of its mappings that never went up, because calls read other parts only */
  struct oa_region_state *older, *younger; /* in the list of all regions */
};

/* Returns a region that is not in the list yet; NULL with the text set. Called without the lock. */
oa_region_state *oa_region_new(oa_device *device);
/* Makes the region the youngest of all, entered by this thread. */
void oa_region_list(oa_region_state *region);
/* Returns the youngest of all regions. Each region refers to the next older region. */
oa_region_state *oa_region_youngest(void);
/* Takes the region out of the list and frees it. The region no longer has slots, mappings or streams. */
void oa_region_free(oa_region_state *region);
/* Adds a mapping to the region's list. */
int oa_region_attach(oa_region_state *region, oa_mapping *mapping);
/* Removes a device scalar's mapping from the region's list. */
void oa_region_detach(oa_region_state *region, const oa_mapping *mapping);

#endif
