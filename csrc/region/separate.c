#include "region/separate.h"

#include "device/memory.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/coherent.h"
#include "region/leave.h"
#include "region/update.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>

/* Returns whether the other thread has an open call that holds the pointer's mapping. */
static bool holds(const oa_wait *wait, const oa_caller *other) {
  const oa_slot *pointer = oa_wait_slot(wait);
  return pointer && oa_caller_holds(other, pointer->mapping);
}

/* Returns whether the other thread has seized the pointer's mapping. */
static bool moves(const oa_wait *wait, const oa_caller *other) {
  const oa_slot *pointer = oa_wait_slot(wait);
  return pointer && oa_mapping_is_seized_by(pointer->mapping, other);
}

/* Copies the mapping's bytes to new device memory, and restores the former bytes on the host. Without the lock, while
 * the mapping is moving. */
static int copy_out(const oa_mapping *mapping, oa_stream *stream, uint64_t *address) {
  oa_device *device = mapping->device;
  const bool order = !(device->backend->flags & OA_SYNCHRONOUS);
  int status = order ? device->backend->stream_synchronize(device, stream->native) : OA_OK;
  if (!status) status = oa_device_allocate(device, stream->native, (size_t)mapping->nbytes, address);
  if (status) return status;
  for (int i = 0; i < mapping->view_count && !status; i++) {
    oa_move move;
    oa_view_move(mapping, &mapping->views[i], &move);
    move.address += *address - mapping->address;
    move.coherent = false;
    move.trace.why = "a share of the memory was asked for";
    const int64_t begun = oa_trace_begin_up(&move, 1);
    status = oa_transfer_up(device, stream->native, &move, 1);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, &move, 1, NULL, status);
  }
  const int waited = order ? device->backend->stream_synchronize(device, stream->native) : OA_OK;
  if (!status) status = waited;
  if (status) {
    oa_device_quiesce(device);
    oa_device_free(device, stream->native, *address, (size_t)mapping->nbytes);
    return status;
  }
  for (int g = 0; g < mapping->group_count; g++) oa_coherent_restore(mapping, &mapping->groups[g]);
  return OA_OK;
}

int oa_coherent_separate(const char *function, const oa_slot *pointer) {
  oa_mapping *mapping = pointer->mapping;
  oa_caller *caller = oa_caller_with_room(0);
  oa_stream *stream;
  const void *handle = oa_slot_handle(pointer);
  const oa_wait calls = {function, holds, handle}, moving = {function, moves, handle};
  if (!caller) return OA_ERROR_MEMORY;
  int status = oa_complete_mapping(mapping, &moving);
  if (status) return status;
  if (oa_host_writes(mapping->at.low, mapping->at.high))
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: the host is writing %s in an update, in the memory that %s uses; export it after the update",
                   function, mapping->views[0].name, mapping->device->name);
  if (mapping->escaped || mapping->special & OA_IS_CAPTURED || oa_capture_concerns(mapping))
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: %s lends its host memory to %s, and code or a graph has its address there already; export it "
                   "before that, or run the program with OFFLOAD_ARGS_COHERENT=never",
                   function, mapping->views[0].name, mapping->device->name);
  if ((status = oa_stream_take(mapping->device, &stream))) return status;
  mapping->moving = true;
  mapping->seizer = caller;
  while (mapping->calls && !(status = oa_wait_for(&calls))) continue;
  mapping->seizer = NULL;
  if (!status && !(mapping->device->backend->flags & OA_SYNCHRONOUS))
    status = oa_uses_order(&mapping->uses, stream, true);
  if (!status) {
    uint64_t address = 0;
    oa_unlock();
    status = copy_out(mapping, stream, &address);
    oa_lock();
    if (!status) {
      mapping->address = address;
      mapping->special &= (uint8_t)~OA_IS_COHERENT;
      for (int g = 0; g < mapping->group_count; g++) mapping->groups[g].saved = false;
      free(mapping->former);
      mapping->former = NULL;
    }
  }
  oa_stream_return(stream);
  oa_mapping_yield(mapping);
  return status;
}
