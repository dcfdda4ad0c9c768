#include "region/mapping.h"

#include "device/memory.h"
#include "device/staging.h"
#include "offload_args/testing.h"

#include <stdlib.h>
#include <string.h>

oa_present_table oa_table;
oa_mapping *oa_mappings;
struct oa_part_cost oa_part_cost = {.copy = OA_COPY_COST, .line = OA_LINE_COST};

int oa_part_cost_configure(int64_t bytes) {
  if (bytes < -1)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_part_cost_configure: bytes is %lld, needs -1 or more", (long long)bytes);
  const int status = oa_core_start(__func__);
  if (status) return status;
  oa_lock();
  oa_part_cost.copy = bytes < 0 ? OA_COPY_COST : bytes;
  oa_part_cost.line = bytes ? OA_LINE_COST : 0;
  oa_part_cost.is_configured = bytes >= 0;
  oa_unlock();
  return OA_OK;
}

oa_mapping *oa_mapping_new(oa_device *device, int kind, int64_t nbytes) {
  oa_mapping *mapping = malloc(sizeof *mapping); /* calloc does not reuse memory that this thread has just freed */
  if (!mapping) {
    oa_fail(OA_ERROR_MEMORY, "%s: no host memory for an entry of the present table", device->name);
    return NULL;
  }
  *mapping = (oa_mapping){.kind = kind,
                          .device = device,
                          .nbytes = nbytes,
                          .views = &mapping->one_view,
                          .groups = &mapping->one_group,
                          .view_count = 1,
                          .group_count = 1,
                          .next = oa_mappings};
  if (mapping->next) mapping->next->previous = mapping;
  oa_mappings = mapping;
  device->counts.mappings++;
  return mapping;
}

void oa_mapping_unlist(oa_mapping *mapping) {
  if (mapping->listed) oa_present_remove(&oa_table, &mapping->at);
  mapping->listed = false;
}

void oa_mapping_yield(oa_mapping *mapping) {
  mapping->moving = false;
  oa_announce_change();
}

bool oa_mapping_is_newer(const oa_mapping *mapping) {
  if (mapping->leaving) return true;
  for (int g = 0; g < mapping->group_count; g++)
    if (mapping->groups[g].writing || mapping->groups[g].dirty || mapping->groups[g].escaped) return true;
  return false;
}

/* -- bytes of the host -- */

/* Returns a view's bytes on the host, from the mapping's first byte on; if the bytes are not lines, one line to the
 * view's end. */
static oa_lines host_lines(const oa_mapping *mapping, const oa_view *view) {
  const int64_t span = (int64_t)(mapping->at.high - mapping->at.low);
  const oa_shape *s = view->shape;
  oa_layout layout;
  if (!s) return view->lines;
  if (oa_layout_of(s->ndim, s->shape, s->strides, s->itemsize, &layout) || !layout.regular)
    return (oa_lines){0, span, span, 1};
  layout.lines.start = 0;
  return layout.lines;
}

bool oa_mapping_meets_view(const oa_mapping *mapping, const oa_view *view, uintptr_t low, oa_lines lines) {
  lines.start = (int64_t)(low - mapping->at.low);
  return !oa_lines_disjoint(host_lines(mapping, view), lines);
}

bool oa_view_lines_on_host(const oa_mapping *mapping, const oa_view *view, oa_lines *lines) {
  const oa_shape *s = view->shape;
  const oa_lines host = host_lines(mapping, view);
  int64_t nbytes = s ? s->itemsize : 0;
  for (int i = 0; s && i < s->ndim; i++) nbytes *= s->shape[i];
  if (s && nbytes != oa_lines_bytes(host)) return false; /* some of these bytes are not the view's */
  *lines = host;
  return true;
}

bool oa_mapping_meets(const oa_mapping *mapping, uintptr_t low, oa_lines lines) {
  for (int i = 0; i < mapping->view_count; i++)
    if (oa_mapping_meets_view(mapping, &mapping->views[i], low, lines)) return true;
  return false;
}

bool oa_mappings_meet(const oa_mapping *a, const oa_mapping *b) {
  for (int i = 0; i < b->view_count; i++) {
    const oa_lines lines = host_lines(b, &b->views[i]);
    if (oa_mapping_meets(a, b->at.low + (uintptr_t)lines.start, lines)) return true;
  }
  return false;
}

/* -- the end of a mapping -- */

/* Returns the need that the next region is expected to have of the memory, judging by this region. */
static enum oa_need need_of(bool zeros, bool cleared) {
  return !cleared ? OA_NEEDS_NOTHING : zeros ? OA_NEEDS_ZEROS_AGAIN : OA_NEEDS_ZEROS;
}

/* Takes a mapping out of its arena, and frees the arena with its last mapping. The stream already runs after the users
 * of the mapping, unless the arena is in use; over: all of them were waited for. */
static int leave_arena(const oa_mapping *mapping, oa_stream *stream, bool over) {
  oa_device *device = mapping->device;
  oa_arena *arena = mapping->arena;
  int status = OA_OK;
  arena->cleared |= mapping->cleared;
  const bool order = !(device->backend->flags & OA_SYNCHRONOUS);
  if (--arena->mappings) {
    if (arena->block || !order || over) return OA_OK;
    status = oa_stream_advance(stream);
    if (!status) status = oa_uses_add(&arena->uses, stream, true);
    if (status) arena->in_use |= !oa_device_quiesce(device);
    return status;
  }
  int released = OA_OK;
  if (arena->block) { /* the block is returned in the host's order: each region that used it has waited for its calls */
    if (arena->in_use)
      oa_block_lose(device, arena->block);
    else
      oa_block_return(device, arena->block);
  } else {
    bool ended = true;
    over &= oa_uses_over(&arena->uses, stream);
    if (order && !over) status = oa_uses_end(&arena->uses, stream, &ended);
    released = arena->in_use || !ended ? OA_OK
               : over                  ? oa_device_pool(device, stream->native, arena->address, arena->nbytes,
                                                        need_of(mapping->zeros, arena->cleared))
                                       : oa_device_free(device, stream->native, arena->address, arena->nbytes);
  }
  oa_uses_free(&arena->uses);
  free(arena);
  return status ? status : released;
}

/* Frees the mapping's memory in the stream's order, or makes it spare memory of the device if all uses are over. Memory
 * with a use that may never end is not freed. */
static int free_memory(oa_mapping *mapping, oa_stream *stream) {
  oa_device *device = mapping->device;
  const bool over = oa_uses_over(&mapping->uses, stream);
  const size_t nbytes = (size_t)mapping->nbytes;
  const enum oa_need need = need_of(mapping->zeros, mapping->cleared);
  bool ended = true;
  const int status = over ? OA_OK : oa_uses_end(&mapping->uses, stream, &ended);
  if (!ended && mapping->arena) mapping->arena->in_use = true;
  const int released = mapping->arena                                ? leave_arena(mapping, stream, over)
                       : !ended || mapping->special & OA_IS_COHERENT ? OA_OK
                       : over ? oa_device_pool(device, stream->native, mapping->address, nbytes, need)
                              : oa_device_free(device, stream->native, mapping->address, nbytes);
  return status ? status : released;
}

int oa_mapping_free(oa_mapping *mapping, oa_stream *stream, bool memory_stays) {
  int status = OA_OK;
  oa_mapping_unlist(mapping);
  if (mapping->kind != OA_MAPS_BORROWED && mapping->address && !memory_stays) status = free_memory(mapping, stream);
  if (mapping->previous)
    mapping->previous->next = mapping->next;
  else
    oa_mappings = mapping->next;
  if (mapping->next) mapping->next->previous = mapping->previous;
  mapping->device->counts.mappings--;
  for (int i = 0; i < mapping->view_count; i++) free(mapping->views[i].shape);
  for (int g = 0; g < mapping->group_count; g++) oa_group_forget_parts(&mapping->groups[g]);
  if (mapping->views != &mapping->one_view) free(mapping->views);
  if (mapping->groups != &mapping->one_group) free(mapping->groups);
  oa_uses_free(&mapping->uses);
  free(mapping->former);
  free(mapping);
  return status;
}

/* -- views -- */

bool oa_view_is(const oa_view *view, const oa_array *a) {
  const oa_shape *s = view->shape;
  return view->data == a->data && view->dtype == a->dtype && s->ndim == a->ndim &&
         memcmp(s->shape, a->shape, (size_t)a->ndim * sizeof *s->shape) == 0 &&
         memcmp(s->strides, a->strides, (size_t)a->ndim * sizeof *s->strides) == 0;
}

void oa_view_move(const oa_mapping *mapping, const oa_view *view, oa_move *move) {
  *move = (oa_move){.host = view->shape ? view->data : view->host,
                    .address = mapping->address + (uint64_t)view->lines.start,
                    .lines = view->lines,
                    .irregular = view->shape,
                    .name = view->name,
                    .allocation = mapping->arena ? (const void *)mapping->arena : mapping,
                    .in_place = mapping->arena && mapping->arena->block,
                    .coherent = mapping->special & OA_IS_COHERENT,
                    .trace = {.region = mapping->serial}};
  if (mapping->arena && view->lines.count == 1 && view->lines.width == mapping->nbytes)
    move->padding = -mapping->nbytes & (OA_ARENA_ALIGNMENT - 1);
}

int oa_group_moves_up(const oa_mapping *mapping, int group, oa_move *moves) {
  int count = 0;
  const bool all = mapping->groups[group].written; /* a written group came down, even if it was lent as Out */
  if (mapping->kind != OA_MAPS_HOST || mapping->resident)
    return 0; /* pages of a resident mapping are scanned without the lock */
  const int cover = mapping->groups[group].cover;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    const bool whole = cover >= 0 && (all || mapping->views[cover].goes_up); /* the cover has the bytes of all views */
    if (view->group == group && (all || view->goes_up) && (!whole || i == cover))
      oa_view_move(mapping, view, &moves[count++]);
  }
  return count;
}

/* -- parts -- */

bool oa_group_takes_part(const oa_mapping *mapping, const oa_group *group, oa_lines lines) {
  if (mapping->kind != OA_MAPS_HOST || group->valid || group->invalid || group->escaped || group->cover < 0)
    return false;
  if (group->written && !group->parts) return false; /* the host has all of such a group */
  const oa_view *view = &mapping->views[group->cover];
  if (!view->writes || view->shape) return false;
  /* Bytes that will go up are sent now if that is faster, or if the device may have most of them from an earlier
   * region. */
  return !view->goes_up || !(group->lapsed || mapping->resident || oa_parts_are_fine(group->parts, lines));
}

/* Makes a group valid if the device has all of it. */
static void note_all(const oa_mapping *mapping, oa_group *group) {
  if (!oa_parts_are_all(oa_group_present(group), mapping->views[group->cover].lines)) return;
  group->valid = true;
  oa_group_forget_parts(group);
}

int oa_group_note_part(const oa_mapping *mapping, oa_group *group, oa_lines lines) {
  if (group->valid || group->invalid) return OA_OK;
  if (!oa_parts_add(&group->parts, lines)) {
    group->invalid = true;
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to note which part was written",
                   mapping->views[group->cover].name);
  }
  if (group->present && !oa_parts_add(&group->present, lines)) oa_group_forget_arrived(group);
  note_all(mapping, group);
  return OA_OK;
}

/* Returns whether some bytes of a group that the device lacks may go up without the others. */
static bool may_come_in_parts(const oa_mapping *mapping, const oa_group *group) {
  if (mapping->kind != OA_MAPS_HOST || group->invalid || group->escaped || group->captured || group->lapsed ||
      group->cover < 0 || mapping->resident || mapping->guard || mapping->special & OA_IS_COHERENT)
    return false;
  if (group->written && !group->parts) return false;
  const oa_view *view = &mapping->views[group->cover];
  return !view->shape && view->goes_up;
}

int64_t oa_group_lacks(const oa_mapping *mapping, const oa_group *group) {
  const oa_parts *present = oa_group_present(group);
  if (group->valid || (mapping->arena && !present) || !may_come_in_parts(mapping, group)) return 0;
  return oa_lines_bytes(mapping->views[group->cover].lines) - oa_parts_bytes(present);
}

bool oa_group_comes_in_parts(const oa_mapping *mapping, const oa_group *group, oa_lines lines) {
  if (!may_come_in_parts(mapping, group)) return false;
  const oa_view *view = &mapping->views[group->cover];
  if (!oa_lines_contain(view->lines, lines)) return false; /* a slice with bytes in the array's gaps */
  lines = oa_lines_simplest(lines);
  const oa_parts *present = oa_group_present(group);
  const int64_t cost = oa_lines_bytes(lines) + (lines.count + oa_parts_intervals(present)) * oa_part_cost.line +
                       ((int64_t)group->arrivals + 1) * oa_part_cost.copy;
  return cost < (oa_lines_bytes(view->lines) - oa_parts_bytes(present)) / 2;
}

void oa_group_note_arrival(const oa_mapping *mapping, oa_group *group, const oa_parts *arrived) {
  const bool first = !group->present;
  group->arrivals++;
  /* Without host memory, the bytes go up again at their next use. */
  if ((first && !oa_parts_add_all(&group->present, group->parts)) || !oa_parts_add_all(&group->present, arrived)) {
    oa_group_forget_arrived(group);
    group->forgot = true; /* also if `present` is still NULL */
  }
  note_all(mapping, group);
}

/* Fills *move with the copy between some lines of a view and the host. */
static void move_lines(const oa_mapping *mapping, const oa_view *view, oa_lines lines, oa_move *move) {
  oa_view_move(mapping, view, move);
  move->host = (char *)view->host + (lines.start - view->lines.start);
  move->address = mapping->address + (uint64_t)lines.start;
  move->lines = lines;
  move->padding = 0;
}

int oa_group_moves_of_parts(const oa_mapping *mapping, const oa_group *group, const oa_parts *parts, oa_move *moves) {
  oa_parts_place place = {.low = 0};
  oa_lines lines;
  int count = 0;
  while ((lines = oa_parts_next(parts, &place)).count)
    move_lines(mapping, &mapping->views[group->cover], lines, &moves[count++]);
  return count;
}

int oa_group_moves_of_parts_down(const oa_mapping *mapping, const oa_group *group, oa_move *moves) {
  enum { FEW = 16 };
  const oa_view *view = &mapping->views[group->cover];
  const int64_t pieces = oa_parts_pieces(group->parts);
  const bool here = mapping->device->backend->flags & OA_SYNCHRONOUS || mapping->special & OA_IS_COHERENT ||
                    (mapping->arena && mapping->arena->block);
  int64_t from = INT64_MIN, low = from, number = 0;
  while (pieces > FEW && !here && oa_parts_next_near(group->parts, view->lines, &from).count) number++;
  if (!number || number >= pieces) return oa_group_moves_of_parts(mapping, group, group->parts, moves);
  for (int i = 0; i < number; i++, low = from) {
    if (!i) from = INT64_MIN;
    const oa_lines lines = oa_parts_next_near(group->parts, view->lines, &from);
    move_lines(mapping, view, lines, &moves[i]);
    moves[i].kept = (oa_kept){group->parts, lines.start, low, from};
  }
  return (int)number;
}

/* -- groups -- */

void oa_mapping_form_groups(oa_mapping *mapping) {
  const int count = mapping->view_count;
  oa_view *views = mapping->views;
  for (int i = 0; i < count; i++) views[i].group = i;
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++) {
      const int from = views[i].group, to = views[j].group;
      if (from == to || oa_lines_disjoint(views[i].lines, views[j].lines)) continue;
      for (int k = 0; k < count; k++)
        if (views[k].group == from) views[k].group = to;
    }
  /* The whole group has one validity: if some of it goes up, all of it does. */
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      if (views[i].group == views[j].group && views[j].goes_up) views[i].goes_up = true;
  mapping->group_count = count; /* some groups may have no views */
  for (int g = 0; g < count; g++) {
    mapping->groups[g] = (oa_group){.cover = -1};
    for (int i = 0; i < count && mapping->groups[g].cover < 0; i++) {
      bool covers = views[i].group == g;
      for (int j = 0; j < count && covers; j++)
        covers = views[j].group != g || oa_lines_contain(views[i].lines, views[j].lines);
      if (covers) mapping->groups[g].cover = i;
    }
  }
}
