/* One call: oa_begin checks all operands, then moves what is missing; the caller makes the vendor's call; oa_end marks
 * what was written. */
#include "call/call.h"
#include "base/trace.h"
#include "call/extent.h"
#include "call/object.h"
#include "device/memory.h"
#include "library/library.h"
#include "region/caller.h"
#include "region/leave.h"
#include "region/peers.h"
#include "region/residency.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>
#include <string.h>

/* -- extents -- */

static __attribute__((cold, noinline)) int fail_extent(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                       const oa_touched *touched) {
  char text[256];
  const int64_t itemsize = touched->itemsize, span = oa_touched_span(touched);
  oa_extent_text(&o->extent, text, sizeof text);
  if (span > slot->nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld elements (%s), has %lld", call->function, o->name,
                   (long long)(span / itemsize), text, (long long)(slot->nbytes / itemsize));
  return oa_fail(OA_ERROR_EXTENT,
                 "%s: %s (%s) would touch elements between the lines of its array, which has %lld elements a line, the "
                 "starts %lld apart; pass its own leading dimension",
                 call->function, o->name, text, (long long)(slot->inside.width / itemsize),
                 (long long)(slot->inside.pitch / itemsize));
}

/* Checks lines that go beyond the pointer's own: the elements that are touched may not. */
static __attribute__((cold, noinline)) int check_bounds(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                        const oa_lines *lines) {
  const oa_touched touched = {&o->extent, *lines, slot->itemsize};
  if (oa_touched_span(&touched) <= slot->nbytes && oa_touched_within(&touched, slot->inside)) return OA_OK;
  return fail_extent(call, o, slot, &touched);
}

/* -- checks -- */

/* The bytes that a call reaches through one operand. */
typedef struct reach {
  oa_lines lines;       /* from the mapping's address; no lines if the call touches nothing */
  uintptr_t start, end; /* its first byte, and behind the last; the same if the call touches nothing */
  bool up;              /* the group has to be brought up first */
} reach;

static __attribute__((cold, noinline)) int fail_handle(const oa_call *call, const oa_operand *o, int status) {
  if (status == OA_ERROR_STALE)
    return oa_fail(status,
                   "%s: %s is a pointer whose region has ended; use it inside its region, or lend the array again",
                   call->function, o->name);
  if (!o->pointer)
    return oa_fail(status, "%s: %s needs a device pointer, got NULL; lend an array in a region", call->function,
                   o->name);
  return oa_fail(status, "%s: %s needs a device pointer, got the host address %p; lend the array in a region first",
                 call->function, o->name, o->pointer);
}

static __attribute__((cold, noinline)) int fail_device(const oa_call *call, const oa_operand *o,
                                                       const oa_device *device) {
  const oa_library *library = call->library;
  if (library->backend) return oa_fail_library_device(library, call->function, o->name, device);
  return oa_fail(OA_ERROR_DEVICE,
                 "%s: %s is on %s, and %s works on host memory only; open the region with device=\"host\"",
                 call->function, o->name, device->name, library->name);
}

static __attribute__((cold, noinline)) int fail_only(const oa_call *call, const oa_operand *o,
                                                     const oa_device *device) {
  return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on %s, where its module was loaded", call->function,
                 o->name, device->name, ((const oa_device *)call->only)->name);
}

static int check_device(const oa_call *call, const oa_operand *o, const oa_device *device) {
  const oa_library *library = call->library;
  if (!library) return !call->only || call->only == device ? OA_OK : fail_only(call, o, device);
  return oa_library_works_on(library, device) ? OA_OK : fail_device(call, o, device);
}

typedef struct other_device {
  const oa_mapping *mapping;
  const oa_mapping *present, *newer;
} other_device;

static int note_other(oa_present *element, void *data) {
  other_device *o = data;
  const oa_mapping *m = (const oa_mapping *)element;
  if (m->device == o->mapping->device || !oa_mappings_meet(m, o->mapping)) return 0;
  o->present = m;
  if (oa_mapping_is_newer(m)) o->newer = m;
  return 0;
}

/* Checks that the array is on several devices for reading only, or on one. */
static int check_elsewhere(const oa_call *call, const oa_operand *o, oa_mapping *mapping, bool writes) {
  other_device other = {.mapping = mapping};
  if (!mapping->listed) return OA_OK;
  oa_present_visit(&oa_table, mapping->at.low, mapping->at.high, note_other, &other);
  if (!other.present) mapping->elsewhere = false;
  const oa_mapping *conflict = writes ? other.present : other.newer;
  if (!conflict) return OA_OK;
  return oa_fail(
      OA_ERROR_DIRECTION,
      "%s: %s is present on %s too%s; an array may be on several devices for reading, or on one for writing: leave "
      "that region first",
      call->function, o->name, conflict->device->name, writes ? "" : ", and is written there");
}

/* oa_operand.touched, from oa_begin to oa_end: what holds of one that the call touches */
enum { TOUCHED = 1, OVERWRITTEN = 2 /* its whole group */, FOR_WRITING = 4 /* by the call or an address given away */ };

static inline bool same_lines(const oa_lines *a, const oa_lines *b) {
  return a->start == b->start && a->width == b->width && a->count == b->count &&
         (a->count == 1 || a->pitch == b->pitch);
}

/* Returns whether a call on another thread may be the first to write the pointer's group. This call's reads, copies up
 * and zeros would not be ordered with that. */
static inline bool is_being_filled(const oa_slot *slot) {
  const oa_group *group = slot->group;
  return __builtin_expect(group->writing, 0) && !group->valid && group->writer != oa_caller_of_thread;
}

/* Checks the pointer's rights and the state of its group. Sets *up if the group has to be brought up first, and
 * o->touched for oa_end. */
static inline int check_access(const oa_call *call, oa_operand *o, const oa_slot *slot, const oa_lines *lines,
                               bool *up) {
  oa_mapping *mapping = slot->mapping;
  const oa_group *group = slot->group;
  const bool address_only = o->access & OA_ADDRESS_ONLY;
  /* An Out without bytes gets zeros, so that bytes of other arrays are never seen. */
  if (__builtin_expect(address_only, 0))
    o->access =
        OA_ADDRESS_ONLY |
        (slot->out && !oa_slot_view(slot)->goes_up && !group->valid && !group->invalid ? OA_OVERWRITE : OA_READ);
  const bool writes = oa_writes(o->access);
  bool whole = false, own = false; /* the call overwrites the whole group; or all that was lent, and the rest goes up */
  if (writes) {
    if (__builtin_expect(!slot->writes, 0))
      return oa_fail(OA_ERROR_DIRECTION,
                     "%s: %s needs to be writable, but %s was lent as In or is read-only; lend it as InOut",
                     call->function, o->name, oa_slot_view(slot)->name);
    const bool fills =
        __builtin_expect(!(o->extent.part & OA_BATCHED), 1) || oa_extent_fills(&o->extent, *lines, slot->itemsize);
    if ((o->access & OA_READ_WRITE) == OA_OVERWRITE && fills && !slot->irregular &&
        o->extent.kind != OA_EXTENT_TRIANGLE && o->extent.kind != OA_EXTENT_BAND &&
        o->extent.kind != OA_EXTENT_PACKED) {
      own = oa_slot_view(slot)->goes_up && same_lines(lines, &oa_slot_root(slot)->inside);
      whole = group->cover >= 0 && same_lines(lines, &mapping->views[group->cover].lines);
    }
    whole |= address_only; /* the caller fills the group with zeros */
  }
  o->touched = TOUCHED | (whole ? OVERWRITTEN : 0) | (writes || (address_only && slot->writes) ? FOR_WRITING : 0);
  *up = !whole && !group->valid;
  if (__builtin_expect(!whole && group->invalid, 0))
    return oa_fail(OA_ERROR_INVALID,
                   "%s: %s was left undefined by a call or region that failed; overwrite it whole before it is used",
                   call->function, o->name);
  if (__builtin_expect(slot->out && !whole && !own && !group->written && !(group->escaped && group->valid), 0) &&
      !address_only)
    return oa_fail(OA_ERROR_DIRECTION,
                   (o->access & OA_READ_WRITE) == OA_OVERWRITE
                       ? "%s: %s was lent as Out, but this call does not write every element of %s; lend it as InOut"
                       : "%s: %s was lent as Out and would be read before it is written (%s); lend it as InOut",
                   call->function, o->name, oa_slot_view(slot)->name);
  if (__builtin_expect(mapping->elsewhere, 0)) { /* code that has the address may write at any time */
    return check_elsewhere(call, o, mapping, o->touched & FOR_WRITING);
  }
  return OA_OK;
}

static __attribute__((cold, noinline)) int fail_alias(const oa_call *call, const oa_operand *a, const oa_operand *b) {
  const oa_operand *written = oa_writes(a->access) ? a : b, *other = written == a ? b : a;
  return oa_fail(OA_ERROR_ALIAS, "%s: %s is written and overlaps %s; give it memory of its own", call->function,
                 written->name, other->name);
}

/* Returns whether two operands with the same lines have the same element at each place. */
static bool same_elements(const oa_extent *a, const oa_extent *b) {
  if ((a->part | b->part) & OA_BATCHED)
    return a->kind == b->kind && a->part == b->part && a->rows == b->rows && a->columns == b->columns &&
           a->ld == b->ld && a->batch == b->batch && a->stride == b->stride;
  /* Arrays of lists have their places there, other operands 0. */
  return a->kind == b->kind && a->batch == b->batch &&
         (a->ld == b->ld || (a->kind == OA_EXTENT_VECTOR && a->rows <= 1));
}

/* Checks two operands whose intervals overlap, one of which is written. */
static __attribute__((noinline)) int check_overlap(const oa_call *call, const reach *reaches, int i, int j) {
  const oa_operand *a = &call->operands[i], *b = &call->operands[j];
  const oa_slot *slot_a = a->slot, *slot_b = b->slot;
  oa_touched x = {&a->extent, reaches[i].lines, slot_a->itemsize}, y = {&b->extent, reaches[j].lines, slot_b->itemsize};
  x.lines.start += (int64_t)slot_a->mapping->address;
  y.lines.start += (int64_t)slot_b->mapping->address;
  if ((a->access & OA_RESHAPED) && j == i - 1) return OA_OK;
  const bool same = same_lines(&x.lines, &y.lines) && same_elements(x.extent, y.extent);
  if ((same && (a->access & b->access & OA_IN_PLACE)) || oa_touched_disjoint(&x, &y)) return OA_OK;
  return fail_alias(call, a, b);
}

/* An operand in the order of memory. */
typedef struct place {
  uintptr_t start;
  int operand;
} place;

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start ? 1 : x->operand - y->operand;
}

/* Checks operand i with those of the list that reach beyond its start, and drops the others from the list. */
static int check_open(const oa_call *call, const reach *reaches, int i, int *open, int *count) {
  int kept = 0, status = OA_OK;
  for (int k = 0; k < *count; k++) {
    const int j = open[k];
    if (reaches[j].end <= reaches[i].start) continue;
    open[kept++] = j;
    if (!status) status = i > j ? check_overlap(call, reaches, i, j) : check_overlap(call, reaches, j, i);
  }
  *count = kept;
  return status;
}

/* Checks the same as check_alias, of many operands: goes through them in the order of memory, so that only those are
 * compared whose intervals meet. */
static __attribute__((noinline)) int check_alias_of_many(const oa_call *call, const reach *reaches) {
  int places_count = 0, written_count = 0, read_count = 0, status = OA_OK;
  place *places = malloc((size_t)call->count * (sizeof *places + 2 * sizeof(int)));
  if (!places) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to compare its operands", call->function);
  int *written = (int *)(places + call->count), *read = written + call->count; /* those met so far, still open */
  for (int i = 0; i < call->count; i++)
    if (reaches[i].lines.count) places[places_count++] = (place){reaches[i].start, i};
  qsort(places, (size_t)places_count, sizeof *places, compare_places);
  for (int p = 0; p < places_count && !status; p++) {
    const int i = places[p].operand;
    const bool writes = oa_writes(call->operands[i].access);
    status = check_open(call, reaches, i, written, &written_count);
    if (writes && !status) status = check_open(call, reaches, i, read, &read_count);
    if (writes)
      written[written_count++] = i;
    else
      read[read_count++] = i;
  }
  free(places);
  return status;
}

enum { FEW = 16 }; /* operands: more need memory, and are compared in another way */

/* Checks that no operand that is written overlaps another. */
static inline int check_alias(const oa_call *call, const reach *reaches) {
  for (int i = 1; i < call->count; i++) {
    const reach *a = &reaches[i];
    for (int j = 0; j < i; j++) {
      const reach *b = &reaches[j];
      if (__builtin_expect(b->end <= a->start || a->end <= b->start, 1) ||
          !oa_writes(call->operands[i].access | call->operands[j].access))
        continue;
      const int status = check_overlap(call, reaches, i, j);
      if (status) return status;
    }
  }
  return OA_OK;
}

/* -- bringing up -- */

/* A group to bring up. */
typedef struct arrival {
  oa_mapping *mapping;
  int group;
} arrival;

/* Returns why the group goes up: an operand reads it, or writes some of it. */
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

/* Collects the region's mappings whose pages have to be looked at, all of them at the first call that needs one, and
 * marks them as moving, as the arrivals are. Returns how many. */
static int gather_unseen(const oa_region_state *region, const arrival *arrivals, int count, oa_mapping **unseen) {
  int found = 0;
  for (int i = 0; i < region->mapping_count && found < OA_RESIDENT_LOOKS; i++) {
    oa_mapping *mapping = region->mappings[i];
    const bool busy = (mapping->moving || mapping->leaving) && !arrives(arrivals, count, mapping);
    if (busy || !oa_resident_is_unseen(mapping)) continue;
    mapping->moving = true;
    unseen[found++] = mapping;
  }
  return found;
}

/* Collects the groups to bring up, each once, in the operands' order. Returns how many. */
static int gather_arrivals(const oa_call *call, const reach *reaches, arrival *arrivals) {
  int count = 0;
  for (int i = 0; i < call->count; i++) {
    if (!reaches[i].up) continue;
    const oa_slot *slot = call->operands[i].slot;
    if (!slot->group->arriving)
      arrivals[count++] = (arrival){slot->mapping, (int)(slot->group - slot->mapping->groups)};
    slot->group->arriving = true;
  }
  return count;
}

/* Fills moves with the copies that bring the groups up, and marks their mappings as moving. Returns how many moves.
 * Frees the lock meanwhile, to look at the pages of resident mappings. */
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

/* Returns how many bytes the moves copy on a stream: none if the memory is shared with the host. */
static int64_t bytes_to_send(const oa_device *device, const oa_move *moves, int count) {
  int64_t bytes = 0;
  if (device->backend->flags & OA_SYNCHRONOUS) return 0;
  for (int m = 0; m < count; m++)
    if (!moves[m].in_place) bytes += oa_lines_bytes(moves[m].lines);
  return bytes;
}

/* Copies the moves up on *stream; large ones go to a stream of the region for copies, which *stream is then, and so do
 * those that other devices make. bytes: from bytes_to_send. Frees the lock meanwhile. */
static int send(const oa_call *call, oa_region_state *region, oa_stream **stream, const arrival *arrivals, int count,
                oa_move *moves, int move_count, int64_t bytes) {
  oa_device *device = region->device;
  oa_peers peers;
  int status = OA_OK;
  move_count = oa_peers_take(&peers, device, moves, move_count);
  /* There is nothing that the first copies could overlap with. */
  const bool first = *stream == region->stream && region->stream->ticket == region->entered;
  if ((bytes >= OA_OVERLAP_BYTES && !first) || peers.count) {
    if (!region->copies) status = oa_stream_take(device, &region->copies);
    if (!status) *stream = region->copies; /* the call runs after it, as after any other user of its operands */
  }
  for (int i = 0; i < count && !status; i++) status = oa_uses_order(&arrivals[i].mapping->uses, *stream, true);
  /* Leaving the region waits for its own stream: what went up on that needs no event. */
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

/* Brings up the groups that the operands need; ups: how many operands need theirs. The call holds the mappings. Frees
 * the lock meanwhile. */
static __attribute__((noinline)) int bring_up(const oa_call *call, oa_region_state *region, oa_stream *stream,
                                              const reach *reaches, int ups) {
  size_t most = 0;
  for (int i = 0; i < call->count; i++) {
    const oa_mapping *mapping = ((const oa_slot *)call->operands[i].slot)->mapping;
    if (reaches[i].up) most += (size_t)(mapping->resident ? OA_RESIDENT_MOVES : mapping->view_count);
  }
  oa_move *moves = malloc(most * sizeof *moves + (size_t)ups * sizeof(arrival));
  if (!moves) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to move its operands", call->function);
  arrival *arrivals = (arrival *)(moves + most);
  const int count = gather_arrivals(call, reaches, arrivals);
  const int move_count = gather_moves(call, region, arrivals, count, moves);
  const int64_t bytes = bytes_to_send(region->device, moves, move_count);
  int status = send(call, region, &stream, arrivals, count, moves, move_count, bytes);
  for (int i = 0; i < count; i++) {
    oa_mapping *mapping = arrivals[i].mapping;
    mapping->groups[arrivals[i].group].arriving = false;
    if (!status && bytes) status = oa_uses_add(&mapping->uses, stream, true);
    if (!status) mapping->groups[arrivals[i].group].valid = true;
    oa_resident_arrived(mapping, !status);
    mapping->moving = false;
  }
  oa_announce_change();
  free(moves);
  return status ? oa_fail_in(status, "%s: bringing up its operands", call->function) : OA_OK;
}

/* Finds the region's record of a stream of the caller's, or makes it. */
static int foreign_stream(oa_region_state *region, void *native, oa_stream **stream) {
  oa_stream *s = region->foreign;
  while (s && s->native != native) s = s->next;
  if (!s) {
    const int status = oa_stream_foreign(region->device, native, &s);
    if (status) return status;
    s->next = region->foreign;
    region->foreign = s;
  }
  *stream = s;
  return OA_OK;
}

/* Ends the call's hold of an operand: of the first one first. */
static inline void unhold_one(const oa_call *call, const oa_operand *o) {
  oa_caller_unhold(call->caller, o->slot);
  oa_slot_unhold(o->slot, o->touched & FOR_WRITING);
}

/* Ends the call's hold of its operands. */
static void unhold(oa_call *call) {
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    unhold_one(call, o);
  }
  oa_announce_change();
}

/* Puts a handle of the caller's into the wanted pointer mode; call->saved_mode: what it had, -1 if that is to stay. */
static int use_mode(oa_call *call, int wanted) {
  const oa_library *library = call->library;
  int mode = -1;
  if (library->set_pointer_mode < 0) return OA_OK;
  if (library->get_pointer_mode >= 0) {
    const int status = oa_library_get_mode(library, call->handle, &mode);
    if (status || mode == wanted) return status;
  }
  const int status = oa_library_set_mode(library, call->handle, wanted);
  if (!status) call->saved_mode = mode;
  return status;
}

/* Takes the stream's own handle that has the pointer mode of the call. */
static int take_handle(oa_call *call, oa_stream *stream) {
  const oa_library *library = call->library;
  void **handles = __atomic_load_n(&stream->handles, __ATOMIC_ACQUIRE);
  if (__builtin_expect(handles != NULL, 1))
    call->handle = __atomic_load_n(&handles[oa_library_handle_place(library, call->device_scalars)], __ATOMIC_ACQUIRE);
  if (__builtin_expect(call->handle != NULL, 1)) return OA_OK;
  return oa_library_handle(library, stream, call->device_scalars, &call->handle);
}

/* Whether the vendor's function can't be told of a stream: it is waited for before and after each call. */
static inline bool has_no_stream(const oa_call *call) {
  return call->library->state->waits || call->special & OA_ON_DEFAULT_STREAM;
}

/* After the checks: the vendor's handle on the right stream, in the right pointer mode. Without the lock. */
static int prepare_library(oa_call *call, oa_device *device, oa_stream *stream, void *used) {
  const oa_library *library = call->library;
  int status = OA_OK;
  if (device->backend->enter && (status = device->backend->enter(device, &call->saved))) return status;
  call->saved_mode = -1;
  call->native_stream = stream->native;
  call->handle = NULL;
  if ((library->create >= 0 || library->needs_handle) && !(call->special & OA_WITHOUT_HANDLE)) {
    if (used) {
      call->handle = used;
      status = use_mode(call, call->device_scalars ? library->device_mode : library->host_mode);
    } else {
      status = take_handle(call, stream);
    }
  }
  if (!status && has_no_stream(call)) status = device->backend->stream_synchronize(device, stream->native);
  if (status && device->backend->leave) {
    oa_saved_error saved;
    oa_error_save(&saved);
    device->backend->leave(device, call->saved);
    oa_error_restore(&saved);
  }
  return status;
}

/* -- looking up -- */

/* Returns the operand's slot, which has the right dtype; NULL with *status and the text set. */
static inline oa_slot *find_slot(const oa_call *call, const oa_operand *o, int *status) {
  const int known = OA_READ_WRITE | OA_IN_PLACE | OA_RESHAPED | OA_ADDRESS_ONLY;
  if (__builtin_expect(!o->name || o->access & ~known || !(o->access & OA_READ_WRITE), 0)) {
    *status = oa_fail_operand(call, o);
    return NULL;
  }
  oa_slot *slot = oa_slot_of(o->pointer, OA_SLOT_POINTER, status);
  if (__builtin_expect(!slot, 0)) {
    fail_handle(call, o, *status);
    return NULL;
  }
  if (__builtin_expect(o->dtype == slot->dtype || o->dtype == OA_ANY, 1)) return slot;
  *status = (unsigned)o->dtype >= OA_DTYPE_COUNT
                ? oa_fail_operand(call, o)
                : oa_fail(OA_ERROR_TYPE, "%s: %s needs %s, got a pointer to %s", call->function, o->name,
                          oa_dtype_name(o->dtype), oa_dtype_name(slot->dtype));
  return NULL;
}

/* Checks that the operand is on the call's device. *region is the youngest region of the operands so far, NULL before
 * the first. */
static inline int join_region(const oa_call *call, const oa_operand *o, oa_region_state *its,
                              oa_region_state **region) {
  oa_device *device = its->device;
  int status;
  if (!*region) {
    if ((status = check_device(call, o, device))) return status;
    if (__builtin_expect(device->lost, 0) && (status = oa_device_usable(device))) return status;
    *region = its;
  } else if (its != *region) {
    if (device != (*region)->device)
      return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, and %s is on %s; all pointers of a call must be on one device",
                     call->function, o->name, device->name, call->operands[0].name, (*region)->device->name);
    if (its->serial > (*region)->serial) *region = its;
  }
  return OA_OK;
}

/* Finds the lines that the operand touches, and checks that they belong to the pointer. *span: from their first byte to
 * the last; 0 if there are none. */
static inline int find_lines(const oa_call *call, const oa_operand *o, const oa_slot *slot, oa_lines *lines,
                             int64_t *span) {
  if (o->extent.kind == OA_EXTENT_ALL) {
    *lines = slot->irregular ? (oa_lines){slot->offset, slot->nbytes, slot->nbytes, 1} : slot->inside;
    if (!slot->mapping) lines->count = 0;
    *span = oa_lines_span(*lines);
    return OA_OK;
  }
  const int status = oa_extent_lines(call, o, slot->itemsize, lines);
  if (status) return status;
  lines->start = slot->offset;
  if (!lines->width) lines->count = 0;
  *span = oa_lines_span(*lines);
  if (__builtin_expect(*span > slot->nbytes, 0) || (slot->spaced && !oa_lines_contain(slot->inside, *lines)))
    return check_bounds(call, o, slot, lines);
  return OA_OK;
}

/* Returns whether the other thread has seized the mapping of an operand, or is the one that fills its group. */
static bool needs(const oa_wait *wait, const oa_caller *other) {
  int ignored;
  const oa_slot *slot = oa_slot_of(wait->what, OA_SLOT_POINTER, &ignored);
  if (!slot || !slot->mapping) return false;
  const oa_mapping *mapping = slot->mapping;
  if (mapping->moving) return mapping->seizer == other;
  const oa_group *group = slot->group;
  return group->writing && !group->valid && group->writer == other;
}

/* Waits for a change: the operand's mapping is moving, or another thread fills its group. */
static __attribute__((cold, noinline)) int wait_for_change(const oa_call *call, const oa_operand *o) {
  const oa_wait wait = {call->function, needs, o->pointer};
  const int status = oa_wait_for(&wait);
  return status ? status : OA_LOOK_AGAIN;
}

/* Waits for other threads whose work on the operand's mapping comes before this call. Returns OA_LOOK_AGAIN if it freed
 * the lock meanwhile. */
static inline int wait_for_others(const oa_call *call, const oa_operand *o, const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  if (__builtin_expect(mapping->moving, 0)) return wait_for_change(call, o);
  if (__builtin_expect(mapping->leaving != NULL, 0) && oa_writes(o->access)) {
    oa_region_complete(mapping->leaving);
    return OA_LOOK_AGAIN;
  }
  if (__builtin_expect(mapping->elsewhere, 0) && mapping->listed) {
    const int status = oa_complete_overlapping(call->function, mapping->at.low, mapping->at.high);
    if (status) return status;
  }
  return __builtin_expect(is_being_filled(slot), 0) ? wait_for_change(call, o) : OA_OK;
}

/* Looks one operand up and checks it. Returns OA_LOOK_AGAIN if the lock was free meanwhile. */
static inline int look_up(const oa_call *call, oa_operand *o, oa_region_state **region, reach *r) {
  int64_t span;
  int status;
  oa_slot *slot = find_slot(call, o, &status);
  r->up = false;
  if (!slot) return status;
  o->slot = slot;
  if ((status = join_region(call, o, slot->region, region)) || (status = find_lines(call, o, slot, &r->lines, &span)))
    return status;
  const oa_mapping *mapping = slot->mapping;
  if (!r->lines.count) {
    o->touched = 0;
    r->start = r->end = mapping ? (uintptr_t)mapping->address + (uintptr_t)slot->offset : 0;
    o->address = (void *)r->start;
    return OA_OK;
  }
  if (__builtin_expect(status = wait_for_others(call, o, slot), 0)) return status;
  r->start = (uintptr_t)mapping->address + (uintptr_t)slot->offset;
  r->end = r->start + (uintptr_t)span;
  o->address = (void *)r->start;
  return check_access(call, o, slot, &r->lines, &r->up);
}

/* Looks all operands up and checks them. Finds the bytes that each reaches, the region that the call belongs to, and
 * how many operands have to be brought up. Called with the lock, which it may free meanwhile. */
static inline int look_up_all(const oa_call *call, reach *reaches, oa_region_state **region, int *arriving) {
  int status;
  do {
    status = OA_OK;
    *region = NULL;
    *arriving = 0;
    reach *r = reaches;
    for (oa_operand *o = call->operands, *end = o + call->count; o < end && !status; o++, r++) {
      status = look_up(call, o, region, r);
      *arriving += r->up;
    }
  } while (status == OA_LOOK_AGAIN);
  if (status || call->count == 1 || call->special & OA_MAY_OVERLAP) return status;
  return __builtin_expect(call->count > FEW, 0) ? check_alias_of_many(call, reaches) : check_alias(call, reaches);
}

/* -- beginning -- */

/* Chooses the stream that the call goes to: the region's, or the one of the caller's handle. *capturing: the stream is
 * being captured into a graph. */
static inline int choose_stream(const oa_call *call, oa_region_state *region, bool has_stream, void *own_stream,
                                bool arriving, oa_stream **stream, int *capturing) {
  int status;
  *stream = region->calls;
  *capturing = 0;
  if (__builtin_expect(has_stream, 0) && (status = foreign_stream(region, own_stream, stream))) return status;
  if (__builtin_expect((*stream)->number >= 0, 1)) return OA_OK;
  oa_device *device = region->device;
  if ((status = device->backend->stream_capturing(device, (*stream)->native, capturing))) return status;
  if (!*capturing || !(arriving || call->special & (OA_ON_DEFAULT_STREAM | OA_ON_HOST_MEMORY))) return OA_OK;
  return oa_fail(OA_ERROR_CAPTURE,
                 "%s: the stream is capturing a graph and an operand would have to be copied up; use it once before "
                 "the capture begins",
                 call->function);
}

/* Lets the call hold its operands, the last one first. Returns whether no other stream used them, so that the call's
 * needs no order. */
static inline bool hold(oa_call *call, oa_caller *caller, const oa_stream *stream) {
  bool alone = true;
  oa_slot **held = oa_caller_hold(caller, call->count);
  call->caller = caller;
  for (const oa_operand *o = call->operands + call->count; o-- > call->operands;) {
    oa_slot *slot = *held++ = o->slot;
    oa_slot_hold(slot, o->touched & FOR_WRITING ? caller : NULL);
    if (!o->touched) continue;
    const oa_uses *uses = &slot->mapping->uses;
    alone = alone && uses->count == 1 && uses->first.stream == stream;
  }
  return alone;
}

/* Makes the stream run after the uses that the operands have to wait for. */
static int order(const oa_call *call, const reach *reaches, oa_stream *stream) {
  int status = OA_OK;
  for (int i = 0; i < call->count && !status; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (!reaches[i].lines.count) continue;
    status = oa_uses_order(&slot->mapping->uses, stream, oa_writes(call->operands[i].access));
  }
  return status;
}

/* Brings up the missing groups of operands that the call holds, and orders the stream after their users. */
static int order_and_bring_up(const oa_call *call, const reach *reaches, oa_region_state *region, oa_stream *stream,
                              int arriving, bool capturing) {
  int status = OA_OK;
  if (__builtin_expect(arriving, 0)) status = bring_up(call, region, stream, reaches, arriving);
  if (status || region->device->backend->flags & OA_SYNCHRONOUS || capturing) return status;
  return order(call, reaches, stream);
}

/* Begins a call as begin_locked does; reaches: room for each operand. */
static inline int begin(oa_call *call, reach *reaches, void *handle, bool has_stream, void *own_stream) {
  oa_region_state *region;
  oa_stream *stream;
  int arriving, capturing;
  int status = look_up_all(call, reaches, &region, &arriving);
  if (__builtin_expect(handle != NULL, 0) && !status) status = oa_object_check_device(call, region->device);
  if (!status) status = choose_stream(call, region, has_stream, own_stream, arriving, &stream, &capturing);
  oa_caller *caller = status ? NULL : oa_caller_with_room(call->count);
  if (!caller) {
    oa_unlock();
    return status ? status : oa_fail_in(OA_ERROR_MEMORY, "%s", call->function);
  }
  const bool alone = hold(call, caller, stream);
  if (__builtin_expect(arriving || !alone, 0))
    status = order_and_bring_up(call, reaches, region, stream, arriving, capturing);
  call->device = region->device;
  call->stream = stream;
  call->region = region;
  call->vendor_status = call->library ? call->library->success : 0;
  oa_unlock();
  if (!status && call->library) status = prepare_library(call, call->device, stream, handle);
  if (status) {
    oa_lock();
    unhold(call);
    oa_unlock();
    return status;
  }
  call->open = capturing ? OA_CALL_UNNOTED : OA_CALL_OPEN;
  return OA_OK;
}

/* Begins a call. handle: the caller's own handle for the library, or NULL. has_stream: the call goes to a stream of the
 * caller's. Called with the lock, which is free when it returns. */
static __attribute__((noinline)) int begin_locked(oa_call *call, void *handle, bool has_stream, void *own_stream) {
  reach few[FEW], *reaches = few;
  if (call->count < 1) {
    oa_unlock();
    return oa_fail(OA_ERROR_ARGUMENT, "%s: a call needs at least 1 operand, got %d", call->function, call->count);
  }
  if (__builtin_expect(call->count > FEW, 0) && !(reaches = malloc((size_t)call->count * sizeof *reaches))) {
    oa_unlock();
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %d operands", call->function, call->count);
  }
  const int status = begin(call, reaches, handle, has_stream, own_stream);
  if (__builtin_expect(reaches != few, 0)) free(reaches);
  return status;
}

/* Takes the caller's own handle for this call: *handle becomes the vendor's, *stream that handle's stream if it has
 * one. */
static __attribute__((noinline)) int use_handle(oa_call *call, void **handle, void **stream) {
  int status = oa_object_take_handle(call, handle);
  if (!status && !call->library->takes_stream) status = oa_object_handle_stream(call, *handle, stream);
  if (status) oa_object_return_handle(call);
  return status;
}

static inline void reset(oa_call *call) {
  call->open = 0;
  call->lists = NULL;
  call->object = NULL;
  call->begun = oa_trace_begin();
}

int oa_begin(oa_call *call) {
  int status;
  if (!call) return oa_fail_null("oa_begin", "call");
  reset(call);
  if (!call->function || !call->operands) return oa_fail_null("oa_begin", call->function ? "operands" : "function");
  if ((status = oa_core_start())) return status;
  void *handle = call->library ? oa_library_used_handle(call->library) : NULL;
  void *own_stream = call->library ? NULL : call->own_stream;
  const bool has_stream = call->library ? handle && !call->library->takes_stream : call->has_own_stream;
  if (__builtin_expect(handle != NULL, 0) && (status = use_handle(call, &handle, &own_stream))) return status;
  if (__builtin_expect(call->library && call->library->needs_handle && !handle, 0)) return oa_object_fail_none(call);
  oa_lock();
  status = begin_locked(call, handle, has_stream, own_stream);
  if (__builtin_expect(status, 0)) oa_object_return_handle(call);
  return status;
}

int oa_begin_locked(oa_call *call) {
  reset(call);
  return begin_locked(call, NULL, call->has_own_stream, call->own_stream);
}

/* -- ending -- */

/* Waits for a call that has to be complete. */
static __attribute__((noinline)) int wait_for_end(const oa_call *call) {
  const oa_device *device = call->device;
  if (has_no_stream(call)) return device->backend->synchronize(call->device);
  return device->backend->stream_synchronize(call->device, call->native_stream);
}

/* Gives the caller's handle its pointer mode again, and returns it. */
static __attribute__((noinline)) int release_handle(oa_call *call) {
  const int status = call->saved_mode < 0 ? OA_OK : oa_library_set_mode(call->library, call->handle, call->saved_mode);
  oa_object_return_handle(call);
  return status;
}

/* Undoes prepare_library: the device is no longer current, and the caller's handle has its pointer mode again. */
static inline int release_library(oa_call *call) {
  const oa_device *device = call->device;
  int status = OA_OK;
  if (!call->library) return OA_OK;
  if (__builtin_expect(has_no_stream(call) || call->special & OA_ON_HOST_MEMORY, 0)) status = wait_for_end(call);
  if (__builtin_expect(call->saved_mode >= 0 || call->object, 0)) {
    const int released = release_handle(call);
    if (!status) status = released;
  }
  if (device->backend->leave) {
    const int left = device->backend->leave(call->device, call->saved);
    if (!status) status = left;
  }
  return status;
}

/* Frees the addresses of a call with lists, after what its stream does with them. */
static __attribute__((noinline)) int free_addresses(const oa_call *call) {
  const oa_lists *lists = call->lists;
  if (!lists->address) return OA_OK;
  return oa_device_free(call->device, ((const oa_stream *)call->stream)->native, lists->address, lists->nbytes);
}

/* Frees what a call with lists had, and gives it the caller's operands again. */
static __attribute__((cold, noinline)) void forget_lists(oa_call *call) {
  oa_lists *lists = call->lists;
  call->operands = lists->given;
  call->count = lists->given_count;
  call->lists = NULL;
  free(lists->addresses);
  free(lists->names);
  free(lists);
}

void oa_call_cancel(oa_call *call) {
  call->open = 0;
  if (call->lists) free_addresses(call);
  release_library(call);
  oa_lock();
  unhold(call);
  oa_unlock();
  if (call->lists) forget_lists(call);
}

int oa_call_fail(oa_call *call, int status) {
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_call_cancel(call);
  oa_error_restore(&saved);
  return status;
}

/* Notes the stream's last operation as a use of the mapping. */
static inline int note_use(oa_mapping *mapping, oa_stream *stream, bool writes) {
  oa_use *use = &mapping->uses.first;
  if (mapping->uses.count != 1 || use->stream != stream) return oa_uses_add(&mapping->uses, stream, writes);
  *(writes ? &use->written : &use->read) = stream->ticket;
  return OA_OK;
}

/* Marks an operand of a captured call as escaped: the graph may run at any time, so that leaving waits for the
 * device. */
static void escape_to_graph(const oa_slot *slot, bool writes) {
  slot->mapping->escaped = true;
  slot->group->escaped |= writes;
}

/* Marks an operand that the call wrote; failed: its bytes are undefined. */
static inline void mark_written(const oa_operand *o, const oa_slot *slot, bool failed) {
  oa_group *group = slot->group;
  oa_slot_root(slot)->wrote = true;
  group->written = group->dirty = true;
  if (__builtin_expect(failed, 0)) {
    group->invalid = true;
  } else if (o->touched & OVERWRITTEN) { /* only this makes it valid: another region may have failed since oa_begin */
    group->valid = true;
    group->invalid = false;
  }
}

static __attribute__((cold)) bool is_among(const oa_library *library, const int *statuses, int status) {
  for (; statuses && *statuses != library->success; statuses++)
    if (*statuses == status) return true;
  return false;
}

/* Fails for a call that the library reports as failed. */
static __attribute__((cold, noinline)) int fail_in_library(const oa_call *call, int vendor_status) {
  char text[128];
  oa_library_status_text(call->library, vendor_status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s; the contents of its output arrays are undefined",
                 call->function, text);
}

int oa_end(oa_call *call, int vendor_status) {
  if (!call) return oa_fail_null("oa_end", "call");
  if (!call->open) return oa_fail(OA_ERROR_ARGUMENT, "%s: oa_end without an oa_begin that succeeded", call->function);
  oa_device *device = call->device;
  oa_stream *stream = call->stream;
  const oa_library *const library = call->library;
  const bool differs = __builtin_expect(vendor_status != (library ? library->success : 0), 0);
  const bool only_asked = differs && library && is_among(library, library->only_asked, vendor_status);
  const bool failed = differs && !only_asked && !(library && is_among(library, library->also_done, vendor_status));
  const bool capturing = call->open == OA_CALL_UNNOTED; /* or an address was taken, which escapes as well */
  const uint64_t serial = __builtin_expect(call->begun != 0, 0) ? ((const oa_region_state *)call->region)->serial : 0;
  call->open = 0;
  int status = release_library(call);
  if (__builtin_expect(call->lists != NULL, 0)) {
    const int freed = free_addresses(call);
    if (!status) status = freed;
  }
  oa_lock();
  if (call->library || call->only) /* a library's function or a kernel: its only writers have the lock */
    atomic_store_explicit(&device->counts.calls, device->counts.calls + 1, memory_order_relaxed);
  const bool synchronous = device->backend->flags & OA_SYNCHRONOUS;
  if (!synchronous && !capturing) {
    const int advanced = oa_stream_advance(stream);
    if (!status) status = advanced;
  }
  for (const oa_operand *o = call->operands, *end = o + call->count; o < end; o++) {
    oa_slot *slot = o->slot;
    const bool writes = o->touched && oa_writes(o->access);
    if (o->touched && !synchronous && !capturing && note_use(slot->mapping, stream, writes)) status = OA_ERROR_MEMORY;
    if (o->touched && capturing) escape_to_graph(slot, writes);
    if (writes && !only_asked) mark_written(o, slot, failed);
    unhold_one(call, o);
  }
  oa_announce_change();
  oa_unlock();
  if (__builtin_expect(call->lists != NULL, 0)) forget_lists(call);
  if (__builtin_expect(serial != 0, 0))
    oa_trace_note(call->library ? OA_TRACE_CALL : OA_TRACE_ACCESS, call->begun, device->number, serial, 0,
                  call->function, NULL, 0, vendor_status);
  return __builtin_expect(failed && library, 0) ? fail_in_library(call, vendor_status) : status;
}

int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size) {
  if (!call) return oa_fail_null("oa_submit", "call");
  if (!call->open)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: oa_submit without an oa_begin that succeeded", call->function);
  oa_device *device = call->device;
  if (!run || (size && !arguments) || size > PTRDIFF_MAX / 2 || !device->backend->submit) {
    oa_end(call, -1);
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: oa_submit needs a function to run, its arguments, and a device that runs it, %s",
                   call->function, device->name);
  }
  if (device->backend->flags & OA_SYNCHRONOUS) {
    run(arguments);
    return oa_end(call, call->vendor_status);
  }
  void *native = ((oa_stream *)call->stream)->native;
  int status = device->backend->submit(device, native, run, arguments, size);
  if (!status && call->blocking)
    status = oa_device_wait_stream(device, native, ((const oa_region_state *)call->region)->serial, call->function);
  if (!status) return oa_end(call, call->vendor_status);
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_end(call, -1);
  oa_error_restore(&saved);
  return oa_fail_in(status, "%s", call->function);
}
