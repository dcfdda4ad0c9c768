#include "region/leave.h"

#include "base/trace.h"
#include "device/memory.h"
#include "library/handles.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/coherent.h"
#include "region/guard.h"
#include "region/residency.h"
#include "transfer/prefault.h"
#include "transfer/transfer_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- the end of a region -- */

int oa_region_destroy(oa_region_state *region) {
  int status = OA_OK;
  oa_slots_free(region);
  /* The stream's event stays valid when the owner destroys the stream. */
  for (oa_stream *s = region->foreign; s; s = s->next) {
    const int ordered = s->ticket ? oa_stream_after(region->stream, s, s->ticket) : OA_OK;
    if (ordered && !status) status = ordered;
    /* After the wait, the stream's work on memory that is about to be freed is over. */
    if (ordered) oa_device_quiesce(region->device);
    oa_stream_advance(region->stream);
    for (oa_mapping *m = oa_mappings; m; m = m->next) oa_uses_inherit(&m->uses, s, region->stream);
  }
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    const oa_wait wait = {"oa_region_wait", oa_wait_needs_mover, mapping};
    while (mapping->moving) oa_wait_for_always(&wait); /* an update on another thread moves it */
    if (--mapping->references > 0) continue;
    if (OA_UNLIKELY(mapping->guard != NULL)) oa_guard_end(mapping);
    oa_mapping_unlist(mapping);
    if (mapping->exports) {
      oa_resident_separate(mapping);
      continue;
    }
    const bool stays = oa_resident_return(mapping);
    const int freed = oa_mapping_free(mapping, region->stream, stays);
    if (!status) status = freed;
  }
  while (region->foreign) {
    oa_stream *next = region->foreign->next;
    oa_library_release_handles(region->foreign, region->stream);
    oa_stream_destroy(region->foreign);
    region->foreign = next;
  }
  if (region->copies) oa_stream_return(region->copies);
  if (region->stream) oa_stream_return(region->stream);
  int ignored = OA_OK;
  oa_slot *own = region->handle ? oa_slot_of(region->handle, OA_SLOT_REGION, &ignored) : NULL;
  if (own) oa_slot_free(own);
  oa_region_free(region);
  return status;
}

/* -- finishing: all copies down are enqueued -- */

/* Notes the first failure of leaving, with its text, for oa_region_wait. */
static void remember(oa_region_state *region, int status) {
  if (!status || region->status) return;
  region->status = status;
  region->error = malloc(sizeof *region->error);
  if (region->error) oa_error_save(region->error);
}

/* Appends ", name" to text, or ", ..." if there is no room for the whole name. */
static void append_name(char *text, size_t size, const char *name) {
  static const char more[] = ", ...";
  const size_t used = strlen(text), room = size - used;
  if (used >= sizeof more && strcmp(text + used - (sizeof more - 1), more) == 0) return;
  snprintf(text + used, room, used && strlen(name) + 2 + sizeof more > room ? more : used ? ", %s" : "%s", name);
}

/* Returns whether the group comes down when the last region that holds its mapping is left with that outcome. */
static bool comes_down(const oa_group *group, int outcome) {
  if (group->invalid) return false;
  if (outcome == OA_DISCARD) return group->dirty && group->committed;
  return group->dirty || (group->escaped && group->valid);
}

/* Fills moves with the copies that bring the mapping's views down. Returns the number of moves. */
static int moves_down(const oa_mapping *mapping, int outcome, oa_move *moves) {
  int count = 0;
  if (mapping->kind != OA_MAPS_HOST || !mapping->address) return 0;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    const oa_group *group = &mapping->groups[view->group];
    if (!view->writes || !comes_down(group, outcome)) continue;
    const bool covered = group->cover >= 0 && group->cover != i && mapping->views[group->cover].writes;
    if (covered) continue;
    if (group->parts) {
      const int first = count;
      count += oa_group_moves_of_parts_down(mapping, group, moves + count);
      for (int m = first; m < count; m++) moves[m].trace.why = "written in part, leaving the region";
      continue;
    }
    oa_view_move(mapping, view, &moves[count]);
    moves[count++].trace.why =
        group->dirty ? "written, leaving the region" : "its address was given away, leaving the region";
  }
  return count;
}

/* Notes that the region's copies down are over, with its status. The lock is held from the end of the copies until this
 * call, so that no other region has used their bytes. */
static void end_moves(oa_region_state *region) {
  region->move_count = 0;
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->leaving == region) region->mappings[i]->leaving = NULL;
}

/* Adds the names of the arrays to a failure of copies down. Returns the status. */
static int fail_coming_down(const oa_region_state *region, int status) {
  /* The text of OA_ERROR_TORN already has the names. */
  if (OA_LIKELY(!status) || status == OA_ERROR_TORN) return status;
  char names[256] = "";
  for (int i = 0; i < region->move_count; i++) append_name(names, sizeof names, region->moves[i].name);
  return names[0] ? oa_fail_in(status, "copying back %s", names) : status;
}

/* Returns whether the other thread has an open call that holds one of the region's pointers, or has seized one of its
 * arrays. */
static bool finishing_needs(const oa_wait *wait, const oa_caller *other) {
  const oa_region_state *region = wait->subject;
  for (int i = 0; i < other->count; i++)
    if (other->held[i]->region == region) return true;
  for (int i = 0; i < region->mapping_count; i++)
    if (oa_mapping_is_seized_by(region->mappings[i], other)) return true;
  return false;
}

/* Returns whether the region can't be finished yet: a call holds one of its pointers or arrays, or a thread moves one
 * of them. So an update that brings some of the region's bytes down loses nothing, whatever happens to the region. */
static bool is_in_use(const oa_region_state *region) {
  for (const oa_slot *slot = region->slots; slot; slot = slot->next)
    if (slot->calls) return true;
  for (int i = 0; i < region->mapping_count; i++) {
    const oa_mapping *mapping = region->mappings[i];
    if (mapping->moving || (mapping->holders == 1 && (mapping->leaving || mapping->calls))) return true;
  }
  return false;
}

/* Waits until the region is not in use. After the wait, the lock stays taken until the region's arrays are seized, so
 * that finishing waits for no other thread. Fails and changes nothing if the wait would be a deadlock. */
static int wait_for_users(oa_region_state *region) {
  const oa_wait wait = {"oa_region_finish", finishing_needs, region};
  int status = OA_OK;
  while (!status && is_in_use(region)) {
    region->finisher = oa_caller_with_room(0);
    oa_region_state *leaving = NULL;
    for (int i = 0; i < region->mapping_count && !leaving; i++)
      if (region->mappings[i]->holders == 1) leaving = region->mappings[i]->leaving;
    if (leaving)
      oa_region_complete(leaving);
    else
      status = oa_wait_for(&wait);
  }
  region->finisher = NULL;
  return status;
}

/* Returns the pointer to the slot's group in the enclosing region: the youngest older open region of the same thread
 * that lends some of the group. NULL: no older region does. */
static oa_slot *enclosing(const oa_slot *slot) {
  const oa_region_state *region = slot->region;
  for (const oa_region_state *outer = region->older; outer; outer = outer->older) {
    if (outer->phase != OA_OPEN || !pthread_equal(outer->thread, region->thread)) continue;
    for (oa_slot *s = outer->slots; s; s = s->next)
      if (s->group == slot->group && oa_slot_root(s) == s) return s;
  }
  return NULL;
}

/* Names of arrays, for a warning or an error. */
typedef struct names {
  char text[256];
  int count;
} names;

static void clear_names(names *n) {
  n->count = 0;
  n->text[0] = '\0'; /* the bytes after it are not read */
}

static void add_name(names *n, const oa_slot *slot) {
  append_name(n->text, sizeof n->text, slot->mapping->views[slot->view].name);
  n->count++;
}

/* Decides again whether the group goes up, after a region that lent it was left and has no pointers any more. The
 * oldest remaining region decides: if it lends some of the group other than as Out, the host's bytes are read. */
static void lend_up(const oa_region_state *left, oa_mapping *mapping, int number) {
  const oa_group *group = &mapping->groups[number];
  const oa_region_state *oldest = left;
  bool decided = false, up = false;
  while (oldest->older) oldest = oldest->older;
  for (; oldest; oldest = oldest->younger) {
    for (const oa_slot *s = oldest->slots; s; s = s->next) {
      if (s->group != group) continue;
      decided = true;
      up |= !oa_slot_root(s)->owed;
    }
    if (decided) break;
  }
  if (!up) return;
  for (int i = 0; i < mapping->view_count; i++)
    if (mapping->views[i].group == number) mapping->views[i].goes_up = true;
  for (; oldest; oldest = oldest->younger)
    for (oa_slot *s = oldest->slots; s; s = s->next)
      if (s->group == group) s->out = oa_slot_root(s)->owed;
}

/* Decides again, for all groups that the region lent, whether they go up. */
static void lend_rest_up(const oa_region_state *left) {
  for (int i = 0; i < left->mapping_count; i++) {
    oa_mapping *mapping = left->mappings[i];
    if (mapping->holders < 2 || mapping->kind != OA_MAPS_HOST) continue;
    for (int v = 0; v < mapping->view_count; v++)
      if (!mapping->views[v].goes_up) lend_up(left, mapping, mapping->views[v].group);
  }
}

/* Settles the region's results: the results pass to the enclosing region, are committed if there is no enclosing
 * region, or become invalid if they are discarded. Adds to `arrays` the names of arrays lent as Out that no call wrote,
 * or whose results are lost, and to `partly` the names of arrays lent as Out that calls wrote in part. */
static void account_writes(oa_region_state *region, int outcome, names *arrays, names *partly) {
  for (oa_slot *slot = region->slots; slot; slot = slot->next) {
    if (!slot->mapping) continue;
    oa_group *group = slot->group;
    if (slot->owed && outcome == OA_COMMIT && group->parts && !group->arrivals && !group->invalid &&
        !oa_parts_contain(group->parts, slot->inside))
      add_name(partly, slot);
    if (slot->wrote && outcome == OA_DISCARD) {
      /* An update has brought the group's bytes down, or the bytes were lost before. */
      if (!group->dirty || group->invalid) continue;
      group->invalid = true;
      if (slot->mapping->kind == OA_MAPS_HOST) add_name(arrays, slot);
    } else if (slot->wrote) {
      oa_slot *outer = slot->mapping->holders > 1 ? enclosing(slot) : NULL;
      *(outer ? &outer->wrote : &group->committed) = true;
    } else if (slot->owed && outcome == OA_COMMIT && !group->written && !group->escaped && !group->invalid) {
      add_name(arrays, slot);
    }
  }
}

/* Decides which groups of a coherent mapping keep the device's bytes when the region's work is over. Until then, no
 * other region lends these bytes, because its calls would not be ordered after this region's calls. */
static void decide_coherent(oa_region_state *region, oa_mapping *mapping, int outcome) {
  for (int g = 0; g < mapping->group_count; g++)
    mapping->groups[g].stays = region->moves && comes_down(&mapping->groups[g], outcome);
  mapping->leaving = region;
  if (!(region->device->backend->flags & OA_SYNCHRONOUS))
    remember(region, oa_uses_order(&mapping->uses, region->stream, true));
}

/* Returns the bytes of a mapping's arrays that never went up, because calls read other parts of these arrays only. */
static int64_t bytes_spared(const oa_mapping *mapping) {
  int64_t bytes = 0;
  for (int g = 0; g < mapping->group_count; g++) {
    const oa_group *group = &mapping->groups[g];
    if (!group->present) continue;
    oa_parts_pieces(group->present); /* merges the runs, so that no byte counts twice */
    bytes += oa_lines_bytes(mapping->views[group->cover].lines) - oa_parts_bytes(group->present);
  }
  return bytes;
}

/* Collects the copies down of a seized mapping whose last holder was the region. Frees the lock and takes it again. */
static void bring_down(oa_region_state *region, oa_mapping *mapping, int outcome, names *invalid) {
  if (mapping->escaped && !mapping->waited) { /* another thread exposed an address since wait_for_escaped */
    const uint64_t ticket = region->stream->ticket;
    oa_unlock();
    const int status = oa_device_wait(mapping->device, region->serial, "code that has an array's address");
    oa_lock();
    remember(region, status);
    if (!status) oa_stream_waited(region->stream, ticket);
  }
  if (oa_is_coherent(mapping)) decide_coherent(region, mapping, outcome);
  if (!region->moves) return;
  for (int p = 0; p < mapping->view_count; p++)
    if (mapping->groups[mapping->views[p].group].invalid && mapping->views[p].writes && mapping->kind == OA_MAPS_HOST &&
        outcome == OA_COMMIT)
      append_name(invalid->text, sizeof invalid->text, mapping->views[p].name);
  const int count = moves_down(mapping, outcome, region->moves + region->move_count);
  if (!count) return;
  if (mapping->resident) oa_resident_before_down(mapping);
  region->move_count += count;
  mapping->leaving = region;
  if (!(region->device->backend->flags & OA_SYNCHRONOUS))
    remember(region, oa_uses_order(&mapping->uses, region->stream, false));
  for (int g = 0; g < mapping->group_count && !oa_is_coherent(mapping); g++)
    mapping->groups[g].dirty = mapping->groups[g].committed = false;
}

/* Enqueues the collected copies down. Called without the lock. */
static int issue_down(oa_region_state *region) {
  const bool order = !(region->device->backend->flags & OA_SYNCHRONOUS);
  int status = OA_OK;
  if (order && oa_trace_begin())
    status =
        oa_device_wait_stream(region->device, region->stream->native, region->serial, "calls, before arrays come down");
  if (!status) {
    oa_held_blocks_look(region->device, &region->blocks);
    region->copying_since = oa_trace_begin();
    status = fail_coming_down(
        region, oa_transfer_down(region->device, region->stream->native, region->moves, region->move_count));
  }
  remember(region, status);
  return status;
}

/* Notes the issued copies as uses of their mappings, so that later writers wait for them. */
static void note_down(oa_region_state *region) {
  bool issued = false; /* false: oa_region_wait copies everything */
  for (int i = 0; i < region->move_count; i++) issued |= region->moves[i].staged != NULL;
  if (!issued) return;
  remember(region, oa_stream_advance(region->stream));
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->leaving == region)
      remember(region, oa_uses_add(&region->mappings[i]->uses, region->stream, false));
}

/* Ends the region's hold of every mapping, and collects the copies down of mappings that no other region holds. The
 * function seizes all of these mappings before it frees the lock for the first time. */
static void collect_moves(oa_region_state *region, int outcome) {
  names invalid;
  clear_names(&invalid);
  int views = 0;
  for (int i = 0; i < region->mapping_count; i++) {
    const oa_mapping *mapping = region->mappings[i];
    views += mapping->view_count;
    for (int g = 0; g < mapping->group_count; g++)
      if (mapping->groups[g].parts) views += (int)oa_parts_pieces(mapping->groups[g].parts);
  }
  if (views) {
    region->moves = malloc((size_t)views * sizeof *region->moves);
    if (!region->moves) remember(region, oa_fail(OA_ERROR_MEMORY, "oa_region_finish: no host memory"));
  }
  for (int i = 0; i < region->mapping_count; i++)
    if (--region->mappings[i]->holders == 0) {
      region->mappings[i]->moving = true;
      if (OA_UNLIKELY(region->mappings[i]->guard != NULL)) oa_guard_end(region->mappings[i]);
    }
  for (int i = 0; i < region->mapping_count; i++) {
    if (region->mappings[i]->holders) continue;
    if (region->leaving_since) region->spared += bytes_spared(region->mappings[i]);
    bring_down(region, region->mappings[i], outcome, &invalid);
    oa_mapping_yield(region->mappings[i]);
  }
  if (invalid.text[0])
    remember(region,
             oa_fail(OA_ERROR_INVALID,
                     "leaving the region: %s was left undefined by a call that failed, and was not copied back; "
                     "overwrite it whole, or don't use it",
                     invalid.text));
}

/* Before anything is marked, waits for code that has the address of an array that will come down or be freed. The wait
 * is necessary for every outcome. If the wait is impossible because a stream is being captured, the region stays open.
 * Frees the lock and takes it again. */
static int wait_for_escaped(oa_region_state *region) {
  int status = OA_OK, capturing;
  bool escaped = false;
  /* The region is left even if the driver fails. */
  if ((status = oa_stream_capturing(region->stream, true, &capturing))) {
    remember(region, status);
    status = OA_OK;
    capturing = 0;
  }
  if (capturing || region->capture)
    return oa_fail(OA_ERROR_CAPTURE,
                   "leaving the region: its stream is being captured into a graph; end the capture first, then leave "
                   "the region");
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    mapping->waited = mapping->escaped && mapping->holders == 1;
    escaped |= mapping->waited;
  }
  if (!escaped) return OA_OK;
  const uint64_t ticket = region->stream->ticket;
  oa_unlock();
  status = oa_device_wait(region->device, region->serial, "code that has an array's address, or a graph");
  oa_lock();
  if (!status) oa_stream_waited(region->stream, ticket);
  if (status != OA_ERROR_CAPTURE) remember(region, status);
  return status == OA_ERROR_CAPTURE ? oa_fail_in(status, "leaving the region") : OA_OK;
}

/* Cancels the collected copies. Groups of coherent mappings get their former bytes in oa_region_wait. */
static void cancel_moves(oa_region_state *region) {
  region->move_count = 0;
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    if (mapping->leaving != region) continue;
    if (!oa_is_coherent(mapping)) mapping->leaving = NULL;
    for (int g = 0; g < mapping->group_count; g++) mapping->groups[g].stays = false;
  }
}

/* Enqueues the collected copies, unless a failure made them worthless. Frees the lock and takes it again. */
static void issue_moves(oa_region_state *region) {
  int status = OA_OK;
  const bool down = region->move_count && (region->status == OA_OK || region->status == OA_ERROR_INVALID);
  if (down) {
    oa_unlock();
    status = issue_down(region);
    oa_lock();
  }
  if (down && !status)
    note_down(region);
  else if (region->move_count)
    cancel_moves(region);
}

/* Warns of arrays that no call wrote, or whose results are lost. */
static void warn_of(const names *arrays, const names *partly, int outcome) {
  static const char rest[] = "the rest of the host array is as it was. Write all of it, or lend it as InOut";
  if (partly->count && arrays->count)
    oa_warn("lent as Out, and nothing wrote it: %s; only a part was written: %s; %s", arrays->text, partly->text, rest);
  else if (partly->count)
    oa_warn("lent as Out, and only a part was written: %s; %s", partly->text, rest);
  else if (arrays->count && outcome == OA_COMMIT)
    oa_warn("lent as Out, and nothing wrote it: %s; the host array is as it was. Write all of it, or lend it as InOut",
            arrays->text);
  else if (arrays->count)
    oa_warn("%s %s written on the device and discarded; on_error=\"keep\" copies down what is valid", arrays->text,
            arrays->count > 1 ? "were" : "was");
}

int oa_region_finish(oa_region *handle, int outcome, int *warnings) {
  if (warnings) *warnings = 0;
  int status = oa_core_start(__func__);
  if (status) return status;
  if (outcome < OA_COMMIT || outcome > OA_KEEP)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_finish: outcome %d is not an oa_outcome", outcome);
  oa_lock();
  oa_slot *own = oa_slot_of(handle, OA_SLOT_REGION, &status);
  if (!own || own->region->phase != OA_OPEN) {
    oa_unlock();
    if (own || status == OA_ERROR_STALE) return OA_OK;
    return oa_fail(status, "oa_region_finish: region needs what oa_region_enter gave, got the address %p",
                   (void *)handle);
  }
  oa_region_state *region = own->region;
  names arrays, partly;
  clear_names(&arrays);
  clear_names(&partly);
  region->phase = OA_FINISHING;
  region->leaving_since = oa_trace_begin();
  status = wait_for_escaped(region);
  if (status || (status = wait_for_users(region))) {
    region->phase = OA_OPEN;
    oa_announce_change();
    oa_unlock();
    return status;
  }
  account_writes(region, outcome, &arrays, &partly);
  oa_slots_free(region);
  lend_rest_up(region);
  collect_moves(region, outcome);
  issue_moves(region);
  region->phase = OA_FINISHED;
  oa_announce_change();
  oa_unlock();
  if (warnings) *warnings = arrays.count + partly.count;
  warn_of(&arrays, &partly, outcome);
  return OA_OK;
}

/* -- waiting: the enqueued copies arrive -- */

/* Takes the lock and returns the state of a live region. If `handle` is not a live region, returns NULL with the text
 * set and the lock free. */
static oa_region_state *find(const char *function, oa_region *handle, int *status) {
  if ((*status = oa_core_start(function))) return NULL;
  oa_lock();
  oa_slot *own = oa_slot_of(handle, OA_SLOT_REGION, status);
  if (own) return own->region;
  oa_unlock();
  if (*status == OA_ERROR_NOT_HANDLE)
    oa_fail(*status, "%s: region needs what oa_region_enter gave, got the address %p", function, (void *)handle);
  else
    oa_fail(*status, "%s: the region has ended", function);
  return NULL;
}

/* Makes the region's stream run after all work that leaving has to wait for. Returns false if leaving has to wait for
 * no work. *ordered becomes false if some of the work could not be ordered, so that the device has to be waited for. */
static bool order_all(oa_region_state *region, bool *ordered) {
  oa_stream *stream = region->stream;
  int status;
  *ordered = true;
  bool wait = stream->waited != stream->ticket;
  for (int i = 0; i < region->mapping_count; i++) {
    const oa_mapping *mapping = region->mappings[i];
    const bool ends = mapping->leaving == region && oa_is_coherent(mapping); /* its host memory may be written */
    if (mapping->references > 1 && !ends && !(mapping->arena && mapping->arena->block))
      continue; /* a block is not returned in a stream's order: every region that uses it waits */
    if (oa_uses_over(&mapping->uses, stream)) continue;
    remember(region, status = oa_uses_order(&mapping->uses, stream, true));
    *ordered &= !status;
    wait = true;
  }
  for (oa_stream *s = region->foreign; s; s = s->next) {
    if (!s->ticket) continue;
    remember(region, status = oa_stream_after(stream, s, s->ticket));
    *ordered &= !status;
    wait = true;
  }
  return wait;
}

/* Notes the outcome of the region's work. Frees the lock and takes it again, but other regions may not use the arrays
 * before that, so resident memory still equals the host's. */
static void note_completed(oa_region_state *region, int status) {
  remember(region, status);
  for (int i = 0; i < region->mapping_count; i++) oa_resident_after_down(region->mappings[i], !region->status);
  end_moves(region);
  region->completing = false;
}

/* Returns whether coherent mappings end with the region. */
static bool ends_coherent(const oa_region_state *region) {
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i]->leaving == region && oa_is_coherent(region->mappings[i])) return true;
  return false;
}

/* Ends the coherent mappings that end with the region. Without the lock. */
static void leave_coherent(const oa_region_state *region, bool arrived) {
  for (int i = 0; i < region->mapping_count; i++) {
    oa_mapping *mapping = region->mappings[i];
    oa_lock();
    const bool ends = mapping->leaving == region && oa_is_coherent(mapping);
    oa_unlock();
    if (ends) oa_coherent_leave(mapping, arrived);
  }
}

/* Fails if an object was aborted before its calls that write arrays had ended, and these arrays are coming down. Takes
 * the lock. */
static int check_spoiled(const oa_region_state *region) {
  oa_lock();
  const bool spoiled = region->spoiled;
  oa_unlock();
  if (!spoiled) return OA_OK;
  return oa_fail(
      OA_ERROR_INVALID,
      "leaving the region: a communicator was aborted before its calls had ended; the results are undefined, "
      "and nothing was copied back");
}

/* Waits for the region's work. If copies down were issued under a trace, the trace counts the wait as part of them. */
static int wait_for_work(void *data) {
  const oa_region_state *region = data;
  oa_device *device = region->device;
  return region->copying_since
             ? device->backend->stream_synchronize(device, region->stream->native)
             : oa_device_wait_stream(device, region->stream->native, region->serial, "leaving the region");
}

/* Waits for the region's work and for all other work on memory that is about to be freed, then brings the arrays down.
 * Called with the lock, which it frees and takes again. */
static void complete(oa_region_state *region) {
  oa_device *device = region->device;
  const uint64_t ticket = region->stream->ticket;
  int status = OA_OK;
  region->completing = true;
  bool ordered = true;
  const bool wait = !(device->backend->flags & OA_SYNCHRONOUS) && order_all(region, &ordered);
  const bool coherent = ends_coherent(region);
  if (!wait && !region->move_count && !coherent) {
    oa_held_blocks_return(device, &region->blocks, region->stream->native, true);
    note_completed(region, OA_OK);
    return;
  }
  oa_unlock();
  if (wait) status = oa_prefault_during(region->moves, region->move_count, wait_for_work, region);
  const bool over = (!status && ordered) || oa_device_quiesce(device);
  oa_held_blocks_return(device, &region->blocks, region->stream->native, over);
  if (!status && wait) status = check_spoiled(region);
  if (!status && ordered) {
    status = oa_transfer_settle(device, region->stream->native, region->moves, region->move_count);
    region->has_arrived = !status && region->move_count;
  } else {
    oa_transfer_cancel(device, region->moves, region->move_count, over);
  }
  if (coherent) leave_coherent(region, !status);
  if (region->copying_since)
    oa_trace_copies(OA_TRACE_DOWN, region->copying_since, device, region->moves, region->move_count, NULL, status);
  const bool waited = !status;
  status = fail_coming_down(region, status);
  oa_lock();
  for (int i = 0; i < region->mapping_count && !over; i++)
    if (region->mappings[i]->arena) region->mappings[i]->arena->in_use = true;
  if (waited) oa_stream_waited(region->stream, ticket);
  note_completed(region, status);
  oa_announce_change();
}

void oa_region_complete(oa_region_state *region) {
  if (region->phase == OA_FINISHED && !region->completing)
    complete(region);
  else
    oa_wait_change();
}

int oa_complete_mapping(const oa_mapping *mapping, const oa_wait *moving) {
  int status = OA_OK;
  if (!mapping->leaving && !mapping->moving) return OA_OK;
  if (mapping->leaving)
    oa_region_complete(mapping->leaving);
  else
    status = oa_wait_for(moving);
  return status ? status : OA_LOOK_AGAIN;
}

/* Returns whether the other thread finishes the region that is waited for. */
static bool waiting_needs(const oa_wait *wait, const oa_caller *other) {
  int ignored;
  const oa_slot *own = oa_slot_of(wait->subject, OA_SLOT_REGION, &ignored);
  return own && own->region->phase != OA_OPEN && own->region->finisher == other;
}

int oa_region_wait(oa_region *handle) {
  bool has_arrived;
  return oa_region_wait_for(handle, &has_arrived);
}

int oa_region_wait_for(oa_region *handle, bool *has_arrived) {
  int status;
  *has_arrived = false;
  oa_region_state *region = find("oa_region_wait", handle, &status);
  const oa_wait wait = {"oa_region_wait", waiting_needs, handle};
  while (region && region->phase != OA_OPEN && (region->phase != OA_FINISHED || region->completing)) {
    status = oa_wait_for(&wait); /* another thread may wait for the region, too, and destroy it */
    oa_slot *own = status ? NULL : oa_slot_of(handle, OA_SLOT_REGION, &status);
    region = own ? own->region : NULL;
    if (!region) oa_unlock();
  }
  if (!region) return status == OA_ERROR_STALE ? OA_OK : status;
  if (region->phase == OA_OPEN) {
    oa_unlock();
    return oa_fail(OA_ERROR_ARGUMENT, "oa_region_wait: the region is still open; call oa_region_finish first");
  }
  region->phase = OA_WAITING;
  complete(region);
  const int first = region->status;
  *has_arrived = region->has_arrived;
  oa_saved_error *text = region->error;
  region->error = NULL;
  oa_device *device = region->device;
  const int64_t leaving_since = region->leaving_since, spared = region->spared;
  const uint64_t serial = region->serial;
  status = oa_region_destroy(region);
  oa_announce_change();
  oa_unlock();
  oa_resident_free_ended();
  if (leaving_since)
    oa_trace_note(OA_TRACE_LEAVE, leaving_since, device->number, serial, 0, "leave", NULL, spared,
                  first ? first : status);
  if (text) oa_error_restore(text);
  if (first && !text) oa_fail(first, "leaving the region failed, and there was no host memory to note how");
  free(text);
  return first || status ? oa_fail_in(first ? first : status, "oa_region_wait") : OA_OK;
}

int oa_region_synchronize(oa_region *handle) {
  int status;
  oa_region_state *region = find("oa_region_synchronize", handle, &status);
  if (!region) return status;
  oa_device *device = region->device;
  if (region->capture)
    status = oa_fail(OA_ERROR_CAPTURE, "oa_region_synchronize: its calls are being captured; end the capture first");
  if (status || device->backend->flags & OA_SYNCHRONOUS) {
    oa_unlock();
    return status;
  }
  int capturing;
  if (!(status = oa_stream_capturing(region->calls, false, &capturing)) && capturing)
    status =
        oa_fail(OA_ERROR_CAPTURE,
                "oa_region_synchronize: the region's stream is being captured into a graph; end the capture first");
  for (oa_stream *s = region->foreign; s && !status; s = s->next)
    if (s->ticket) status = oa_stream_after(region->stream, s, s->ticket);
  void *native = region->stream->native;
  const uint64_t serial = region->serial;
  oa_unlock();
  return status ? status : oa_device_wait_stream(device, native, serial, "oa_region_synchronize");
}

int oa_region_stream(oa_region *handle, void **stream) {
  int status;
  if (!stream) return oa_fail_null("oa_region_stream", "stream");
  oa_region_state *region = find("oa_region_stream", handle, &status);
  if (!region) return status;
  if (region->phase != OA_OPEN)
    status = oa_fail(OA_ERROR_STALE, "oa_region_stream: the region has ended");
  else if (!(status = oa_stream_make_known(region->calls)))
    *stream = region->calls->native;
  oa_unlock();
  return status;
}

/* -- regions and mappings that others wait for -- */

static int note_unheld(oa_present *element, void *result) {
  oa_mapping *mapping = (oa_mapping *)element;
  if (mapping->holders) return 0;
  *(oa_mapping **)result = mapping;
  return 1;
}

static int note_seized_unheld(oa_present *element, void *other) {
  const oa_mapping *mapping = (const oa_mapping *)element;
  return !mapping->holders && oa_mapping_is_seized_by(mapping, other);
}

static bool overlapping_needs(const oa_wait *wait, const oa_caller *other) {
  const oa_present *interval = wait->subject;
  return oa_present_visit(&oa_table, interval->low, interval->high, note_seized_unheld, (void *)other);
}

int oa_complete_overlapping(const char *function, uintptr_t low, uintptr_t high) {
  const oa_present interval = {.low = low, .high = high};
  const oa_wait wait = {function, overlapping_needs, &interval};
  oa_mapping *mapping;
  while (oa_present_visit(&oa_table, low, high, note_unheld, &mapping)) {
    const int status = oa_complete_mapping(mapping, &wait);
    if (status) return status;
    oa_mapping_unlist(mapping); /* the mapping's region frees the mapping */
  }
  return OA_OK;
}
