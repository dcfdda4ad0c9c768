/* Brings up the groups that a call reads, or of which it writes only a part, as one batch of moves. */
#include "call/arrival.h"
#include "base/trace.h"
#include "device/memory.h"
#include "region/guard.h"
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
  bool host_writes; /* an update lets the host write some of the group */
  bool part;        /* all operands of the group need some of it only */
  oa_parts *rest;   /* the bytes to bring up, if these are not all bytes of the group */
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

/* Collects the region's mappings whose pages have to be scanned. The first call that needs such a mapping collects all
 * such mappings. Marks the collected mappings as moving, as the mappings of the arrivals are. Returns the number of
 * collected mappings. */
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

/* Finds the bytes of a group that operands reach and the device lacks. Returns false if host memory runs out. */
static bool find_reached(const oa_call *call, const oa_reach *reaches, arrival *a) {
  const oa_group *group = &a->mapping->groups[a->group];
  bool enough = true;
  for (int i = 0; i < call->count && enough; i++) {
    const oa_slot *slot = call->operands[i].slot;
    oa_parts *missing = NULL;
    if (!reaches[i].up || slot->group != group) continue;
    enough =
        oa_parts_missing(oa_group_present(group), reaches[i].lines, &missing) && oa_parts_add_all(&a->rest, missing);
    oa_parts_clear(&missing);
  }
  return enough;
}

/* Marks the arrival of a group as whole if the operand needs all of the group. */
static void join_arrival(arrival *arrivals, int count, const oa_slot *slot, bool part) {
  for (int i = 0; i < count; i++)
    if (&arrivals[i].mapping->groups[arrivals[i].group] == slot->group) arrivals[i].part &= part;
}

/* Collects the groups to bring up, each once, in the operands' order, and adds the most moves for them to *most.
 * Returns false if host memory runs out. */
static bool gather_arrivals(const oa_call *call, const oa_reach *reaches, arrival *arrivals, int *count, size_t *most) {
  bool enough = true;
  for (int i = 0; i < call->count; i++) {
    const oa_slot *slot = call->operands[i].slot;
    oa_mapping *mapping = slot->mapping;
    oa_group *group = slot->group;
    if (!reaches[i].up) continue;
    if (group->arriving) {
      join_arrival(arrivals, *count, slot, reaches[i].part);
      continue;
    }
    arrivals[(*count)++] =
        (arrival){mapping, (int)(group - mapping->groups),
                  mapping->listed && oa_host_writes(mapping->at.low, mapping->at.high), reaches[i].part, NULL};
    group->arriving = true;
  }
  for (int i = 0; i < *count; i++) {
    arrival *a = &arrivals[i];
    const oa_mapping *mapping = a->mapping;
    const oa_group *group = &mapping->groups[a->group];
    oa_parts *present = oa_group_present(group);
    /* Many short parts that no call wrote go up again with the rest, in one copy. */
    const bool again = present && !group->parts && oa_parts_are_fine(present, (oa_lines){.count = 0});
    if (a->part || (present && !again)) {
      enough = enough && (a->part ? find_reached(call, reaches, a)
                                  : oa_parts_missing(present, mapping->views[group->cover].lines, &a->rest));
      if (enough) *most += (size_t)oa_parts_pieces(a->rest);
    } else {
      *most += (size_t)(mapping->resident ? OA_RESIDENT_MOVES : mapping->view_count);
    }
  }
  return enough;
}

/* Fills moves with the copies that bring the groups up, and marks their mappings as moving. Returns the number of
 * moves. Frees the lock to scan the pages of resident mappings, and takes it again. */
static int gather_moves(const oa_call *call, const oa_region_state *region, const arrival *arrivals, int count,
                        oa_move *moves) {
  int total = 0;
  bool resident = false;
  for (int i = 0; i < count; i++) {
    const arrival *a = &arrivals[i];
    oa_mapping *mapping = a->mapping;
    oa_move *own = moves + total;
    total += with_reason(call, a, own,
                         a->rest ? oa_group_moves_of_parts(mapping, &mapping->groups[a->group], a->rest, own)
                                 : oa_group_moves_up(mapping, a->group, own));
    if (a->rest) oa_guard_lift(mapping, mapping->at.low, mapping->at.high);
    mapping->moving = true;
    resident |= mapping->resident && !a->rest;
  }
  if (!resident) return total;
  oa_mapping *unseen[OA_RESIDENT_LOOKS];
  const int unseen_count = gather_unseen(region, arrivals, count, unseen);
  oa_unlock();
  if (unseen_count) oa_resident_look(unseen, unseen_count);
  for (int i = 0; i < count; i++)
    if (arrivals[i].mapping->resident && !arrivals[i].rest) {
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
    if (!moves[m].in_place && !moves[m].coherent) bytes += oa_lines_bytes(moves[m].lines);
  return bytes;
}

/* Returns whether no call has read the bytes that go up, so that the copy need not wait for calls that read others: the
 * bytes are a part of the group, or all that the device lacks. */
static bool is_unused(const arrival *a) {
  const oa_group *group = &a->mapping->groups[a->group];
  return a->rest && !group->written && !group->forgot;
}

/* Returns whether the device lacks some of the groups after these arrivals. */
static bool leaves_rest(const arrival *arrivals, int count) {
  for (int i = 0; i < count; i++)
    if (arrivals[i].part) return true;
  return false;
}

/* Copies the moves up on *stream. Large copies, and copies made by other devices, go to the region's stream for copies;
 * *stream becomes the stream of the copies. bytes: from bytes_to_send. Frees the lock and takes it again. */
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
    if (!status) *stream = region->copies; /* the call runs after these copies, as after all uses of its operands */
  }
  for (int i = 0; i < count && !status; i++)
    status = oa_uses_order(&arrivals[i].mapping->uses, *stream, !is_unused(&arrivals[i]));
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
  if (status || region->blocks.count) /* another thread's call has set the region's blocks */
    oa_held_blocks_return(device, &blocks, (*stream)->native, false);
  else
    region->blocks = blocks;
  if (!status && bytes) status = oa_stream_advance_apart(*stream);
  /* Later copies of other parts wait for these copies, and not for the call. */
  if (!status && bytes && leaves_rest(arrivals, count) && !(*stream)->is_known) status = oa_stream_mark(*stream);
  return status;
}

/* Notes that all of a group is on the device. While the host may write some of the group, the next call brings the
 * group up again, unless this call writes it. */
static void note_arrival(const arrival *a) {
  oa_group *group = &a->mapping->groups[a->group];
  const bool again = a->host_writes && !group->writing;
  if (a->part) {
    oa_group_note_arrival(a->mapping, group, a->rest);
    return;
  }
  if (!a->host_writes && a->mapping->guard) oa_guard_arm(a->mapping, group, group->dirty);
  group->valid = !again;
  group->lapsed = again && !a->rest;
  if (!again) oa_group_forget_parts(group);
  if (again) oa_resident_unsee(a->mapping);
}

int oa_arrivals_bring_up(const oa_call *call, oa_region_state *region, oa_stream *stream, const oa_reach *reaches,
                         int arriving) {
  enum { FEW = 4 }; /* as many have room on the stack */
  arrival few[FEW], *arrivals = arriving <= FEW ? few : malloc((size_t)arriving * sizeof *arrivals);
  oa_move few_moves[FEW], *moves = few_moves;
  size_t most = 0;
  int count = 0, status = OA_OK;
  int64_t bytes = 0;
  const bool enough = arrivals && gather_arrivals(call, reaches, arrivals, &count, &most);
  if (!enough || (most > FEW && !(moves = malloc(most * sizeof *moves)))) {
    status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory to move its operands", call->function);
  } else {
    const int move_count = gather_moves(call, region, arrivals, count, moves);
    bytes = bytes_to_send(region->device, moves, move_count);
    status = send(call, region, &stream, arrivals, count, moves, move_count, bytes);
    for (int i = 0; i < count; i++) {
      oa_mapping *mapping = arrivals[i].mapping;
      if (!status && bytes) status = oa_uses_add(&mapping->uses, stream, true);
      if (!status) note_arrival(&arrivals[i]);
      oa_resident_arrived(mapping, !status && !arrivals[i].rest);
      mapping->moving = false;
    }
  }
  if (status && bytes) oa_device_quiesce(region->device); /* the issued copies are not noted as uses of the memory */
  for (int i = 0; i < count; i++) {
    arrivals[i].mapping->groups[arrivals[i].group].arriving = false;
    oa_parts_clear(&arrivals[i].rest);
  }
  oa_announce_change();
  if (moves != few_moves) free(moves);
  if (arrivals != few) free(arrivals);
  return status ? oa_fail_in(status, "%s: bringing up its operands", call->function) : OA_OK;
}
