/* Memory that a vendor's function uses internally while it runs, on the device and the host. Callers do not pass this
 * memory. */
#ifndef OA_WORKSPACE_H
#define OA_WORKSPACE_H

#include "offload_args/shim.h"

#include <stdbool.h>

/* The memory of one call, from oa_workspaces_take to oa_workspaces_end. */
typedef struct oa_workspaces {
  void *device, *host; /* addresses; NULL: the function needs none */
  size_t device_bytes;
  bool is_kept; /* the graph that captured the call keeps the memory */
} oa_workspaces;

/* Takes memory for an open call, on its device and on the host. A failure cancels the call. */
int oa_workspaces_take(oa_workspaces *w, oa_call *call, size_t device_bytes, size_t host_bytes);
/* Ends the call as oa_end does, and frees the memory in the order of the call's stream. Waits for the stream if some of
 * the memory is on the host. */
int oa_workspaces_end(oa_workspaces *w, oa_call *call, int vendor_status);

#endif
