/* Brings up the groups that a call reads or writes in part, as one batch of moves. */
#include "call/arrival.h"
#include "base/trace.h"
#include "device/memory.h"
#include "region/peers.h"
#include "region/residency.h"
#include "region/slot.h"
#include "region/update.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>

/* A group to bring up. */
typedef struct arrival {
  oa_mapping *mapping;
  int group;
  bool host_writes; /* an update lets the host write some of it */
} arrival;

/* Returns the reason why the group goes up: an operand reads it, or writes some of it. */
static const char *reason(const oa_call *call, const arrival *a) {
  for (int i = 0; i < call->count; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (slot->group == &a->mapping->groups[a->group] && (call->operands[i].access & OA_READ)) return "first read by";
  }
  return "written in part by";
}

/* Notes the reason in the moves that bring the group up, while the trace is on. Returns count. */
static int with_reason(const oa_call *call, const arrival *a, oa_move *moves, int count) {
  if (call->begun)
    for (int m = 0; m < count; m++) moves[m].trace.why = reason(call, a);
  return count;
}

static bool arrives(const arrival *arrivals, int count, const oa_mapping *mapping) {
  for (int i = 0; i < count; i++)
    if (arrivals[i].mapping == mapping) return true;
  return false;
}

/* Collects the region's mappings whose pages have to be looked at, all of them at the first call that needs one. Marks
 * them as moving, like the arrivals. Returns their number. */
static int gather_unseen(const oa_region_state *region, const arrival *arrivals, int count, oa_mapping **unseen) {
  int number = 0;
  for (int i = 0; i < region->mapping_count && number < OA_RESIDENT_LOOKS; i++) {
    oa_mapping *mapping = region->mappings[i];
    const bool busy = (mapping->moving || mapping->leaving) && !arrives(arrivals, count, mapping);
    if (busy || !oa_resident_is_unseen(mapping)) continue;
    mapping->moving = true;
    unseen[number++] = mapping;
  }
  return number;
}

/* Collects the groups to bring up, each once, in the operands' order. Returns their number. */
static int gather_arrivals(const oa_call *call, const oa_reach *reaches, arrival *arrivals) {
  int count = 0;
  for (int i = 0; i < call->count; i++) {
    if (!reaches[i].up) continue;
    const oa_slot *slot = call->operands[i].slot;
    const oa_mapping *mapping = slot->mapping;
    if (!slot->group->arriving)
      arrivals[count++] = (arrival){slot->mapping, (int)(slot->group - mapping->groups),
                                    mapping->listed && oa_host_writes(mapping->at.low, mapping->at.high)};
    slot->group->arriving = true;
  }
  return count;
}

/* Fills moves with the copies that bring the groups up, and marks their mappings as moving. Returns the number of
 * moves. Frees the lock meanwhile, to look at the pages of resident mappings. */
static int gather_moves(const oa_call *call, const oa_region_state *region, const arrival *arrivals, int count,
                        oa_move *moves) {
  int total = 0;
  bool resident = false;
  for (int i = 0; i < count; i++) {
    oa_move *own = moves + total;
    total += with_reason(call, &arrivals[i], own, oa_group_moves_up(arrivals[i].mapping, arrivals[i].group, own));
    arrivals[i].mapping->moving = true;
    resident |= arrivals[i].mapping->resident != NULL;
  }
  if (!resident) return total;
  oa_mapping *unseen[OA_RESIDENT_LOOKS];
  const int unseen_count = gather_unseen(region, arrivals, count, unseen);
  oa_unlock();
  if (unseen_count) oa_resident_look(unseen, unseen_count);
  for (int i = 0; i < count; i++)
    if (arrivals[i].mapping->resident) {
      oa_move *own = moves + total;
      total += with_reason(call, &arrivals[i], own, oa_resident_moves_up(arrivals[i].mapping, own));
    }
  oa_lock();
  for (int i = 0; i < unseen_count; i++)
    if (!arrives(arrivals, count, unseen[i])) unseen[i]->moving = false;
  return total;
}

/* Returns the number of bytes that the moves copy on a stream: none if the memory is shared with the host. */
static int64_t bytes_to_send(const oa_device *device, const oa_move *moves, int count) {
  int64_t bytes = 0;
  if (device->backend->flags & OA_SYNCHRONOUS) return 0;
  for (int m = 0; m < count; m++)
    if (!moves[m].in_place) bytes += oa_lines_bytes(moves[m].lines);
  return bytes;
}

/* Copies the moves up on *stream. Large ones, and those that other devices make, go to a stream of the region for
 * copies, which *stream then is. bytes: from bytes_to_send. Frees the lock meanwhile. */
static int send(const oa_call *call, oa_region_state *region, oa_stream **stream, const arrival *arrivals, int count,
                oa_move *moves, int move_count, int64_t bytes) {
  oa_device *device = region->device;
  oa_peers peers;
  int status = OA_OK;
  move_count = oa_peers_take(&peers, device, moves, move_count);
  /* The first copies have nothing to overlap with. */
  const bool first = *stream == region->stream && region->stream->ticket == region->entered;
  if ((bytes >= OA_OVERLAP_BYTES && !first) || peers.count) {
    if (!region->copies) status = oa_stream_take(device, &region->copies);
    if (!status) *stream = region->copies; /* the call runs after it, as after any other user of its operands */
  }
  for (int i = 0; i < count && !status; i++) status = oa_uses_order(&arrivals[i].mapping->uses, *stream, true);
  /* Blocks used on the region's own stream need no event: leaving waits for that stream. */
  const bool holds = *stream == region->stream && !region->blocks.count;
  oa_held_blocks blocks = {.count = 0};
  oa_unlock();
  if (!status) status = oa_peers_copy(&peers, device, (*stream)->native, call->function, moves, &move_count);
  if (!status && move_count) {
    const int64_t begun = oa_trace_begin_up(moves, move_count);
    status = oa_transfer_up_holding(device, (*stream)->native, moves, move_count, holds ? &blocks : NULL);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, moves, move_count, call->function, status);
  }
  oa_lock();
  oa_peers_return(&peers);
  if (status || region->blocks.count) /* another thread's call was faster */
    oa_held_blocks_return(device, &blocks, (*stream)->native, false);
  else
    region->blocks = blocks;
  return status || !bytes ? status : oa_stream_advance(*stream);
}

int oa_arrivals_bring_up(const oa_call *call, oa_region_state *region, oa_stream *stream, const oa_reach *reaches,
                         int arriving) {
  size_t most = 0;
  for (int i = 0; i < call->count; i++) {
    const oa_mapping *mapping = ((const oa_slot *)call->operands[i].slot)->mapping;
    if (reaches[i].up) most += (size_t)(mapping->resident ? OA_RESIDENT_MOVES : mapping->view_count);
  }
  oa_move *moves = malloc(most * sizeof *moves + (size_t)arriving * sizeof(arrival));
  if (!moves) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to move its operands", call->function);
  arrival *arrivals = (arrival *)(moves + most);
  const int count = gather_arrivals(call, reaches, arrivals);
  const int move_count = gather_moves(call, region, arrivals, count, moves);
  const int64_t bytes = bytes_to_send(region->device, moves, move_count);
  int status = send(call, region, &stream, arrivals, count, moves, move_count, bytes);
  for (int i = 0; i < count; i++) {
    oa_mapping *mapping = arrivals[i].mapping;
    oa_group *group = &mapping->groups[arrivals[i].group];
    if (!status && bytes) status = oa_uses_add(&mapping->uses, stream, true);
    group->arriving = false;
    if (!status) { /* the next call reads the host's writable bytes again, unless this call writes the group */
      group->lapsed = arrivals[i].host_writes && !group->writing;
      group->valid = !group->lapsed;
      if (group->lapsed) oa_resident_unsee(mapping);
    }
    oa_resident_arrived(mapping, !status);
    mapping->moving = false;
  }
  if (status && bytes) oa_device_quiesce(region->device); /* the issued copies are not noted as uses of the memory */
  oa_announce_change();
  free(moves);
  return status ? oa_fail_in(status, "%s: bringing up its operands", call->function) : OA_OK;
}
