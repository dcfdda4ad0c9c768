/* Update: moves exactly an array's bytes between the host and every device that has some of them, while regions are
 * open. */
#include "region/update.h"

#include "base/trace.h"
#include "device/memory.h"
#include "region/array.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/coherent.h"
#include "region/guard.h"
#include "region/leave.h"
#include "region/residency.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>
#include <string.h>

/* One mapping that has some of the array's bytes, and the moves between the mapping and the host. */
typedef struct holder {
  oa_mapping *mapping;
  int first, count; /* the mapping's moves: a range of plan.moves */
  int status;       /* the outcome of the mapping's moves */
} holder;

typedef struct plan {
  const char *function;
  const oa_lent_array *array;
  int device; /* the only device that provides the bytes, which has to have the whole array; -1: any device */
  bool from;  /* true: from a device to the host; false: to every device that has some of the array */
  bool lacks; /* devices may lack some of the array, or all of it */
  holder *holders;
  int holder_count, holder_capacity;
  oa_move *moves;
  int move_count, move_capacity;
} plan;

/* A search for a mapping that a thread has seized. */
typedef struct finding {
  const plan *plan;
  const oa_caller *seizer;
} finding;

enum { MOST_PIECES = 1 << 16 };

/* Bytes that the host may write, from oa_update_begin to oa_update_end. */
typedef struct writing {
  oa_present at;   /* stays first: the table's element is the writing */
  oa_lines lines;  /* the lines start at at.low */
  oa_shape *shape; /* of the array */
  bool sent;       /* oa_update_to sent the host's new bytes */
} writing;
static oa_present_table writings;

/* Returns the items with room for another item; NULL with the text set. */
static void *grown(void *items, int count, int *capacity, size_t size) {
  if (count < *capacity) return items;
  const int room = *capacity ? 2 * *capacity : 8;
  void *more = realloc(items, (size_t)room * size);
  if (!more) {
    oa_fail(OA_ERROR_MEMORY, "update: no host memory");
    return NULL;
  }
  *capacity = room;
  return more;
}

/* -- finding -- */

static bool is_named_device(const plan *p, const oa_mapping *mapping) {
  return p->device < 0 || mapping->device->number == p->device;
}

/* Returns whether an irregular view and the array share no byte. */
static bool is_apart(const oa_mapping *mapping, const oa_view *view, const oa_lent_array *lent) {
  const oa_shape *s = view->shape;
  oa_pieces ours, its;
  oa_lines a, b;
  oa_pieces_start(&its, s->ndim, s->shape, s->strides, NULL, s->itemsize);
  oa_pieces_start(&ours, lent->array->ndim, lent->array->shape, lent->array->strides, NULL,
                  oa_itemsize(lent->array->dtype));
  if (its.pieces > MOST_PIECES / ours.pieces) return false;
  const oa_pieces all = ours;
  while (oa_pieces_next(&its, &a, NULL))
    for (ours = all; oa_pieces_next(&ours, &b, NULL);) {
      b.start += (int64_t)(lent->low - mapping->at.low);
      if (!oa_lines_disjoint(a, b)) return false;
    }
  return true;
}

/* Returns whether the view may have bytes of the array. */
static bool meets(const plan *p, const oa_mapping *mapping, const oa_view *view) {
  return !view->shape || !is_apart(mapping, view, p->array);
}

/* Returns whether the mapping may have bytes of the array. */
static bool shares(const plan *p, const oa_mapping *mapping) {
  if (!oa_mapping_meets(mapping, p->array->low, oa_lent_array_lines(p->array))) return false;
  for (int i = 0; i < mapping->view_count; i++)
    if (meets(p, mapping, &mapping->views[i])) return true;
  return false;
}

static int note_holder(oa_present *element, void *data) {
  plan *p = data;
  oa_mapping *mapping = (oa_mapping *)element;
  if ((p->from && !is_named_device(p, mapping)) || !shares(p, mapping)) return 0;
  holder *more = grown(p->holders, p->holder_count, &p->holder_capacity, sizeof *more);
  if (!more) return OA_ERROR_MEMORY;
  p->holders = more;
  p->holders[p->holder_count++] = (holder){.mapping = mapping};
  return OA_OK;
}

/* Returns whether the other thread has an open call that holds one of the mappings. */
static bool seizing_needs(const oa_wait *wait, const oa_caller *other) {
  const plan *p = wait->subject;
  for (int i = 0; i < p->holder_count; i++)
    if (oa_caller_holds(other, p->holders[i].mapping)) return true;
  return false;
}

/* Marks the mappings as moving, and waits for the calls that hold them. Fails, and marks none, if the wait would be a
 * deadlock. Frees the lock and takes it again. */
static int wait_for_calls(const plan *p) {
  const oa_wait wait = {p->function, seizing_needs, p};
  oa_caller *caller = oa_caller_with_room(0);
  int status = caller ? OA_OK : OA_ERROR_MEMORY;
  for (int i = 0; i < p->holder_count; i++) {
    p->holders[i].mapping->moving = true; /* no call begins, but calls under way can end */
    p->holders[i].mapping->seizer = caller;
  }
  for (int i = 0; i < p->holder_count && !status; i++)
    while (p->holders[i].mapping->calls && !(status = oa_wait_for(&wait))) continue;
  for (int i = 0; i < p->holder_count; i++) {
    p->holders[i].mapping->seizer = NULL;
    if (status) oa_mapping_yield(p->holders[i].mapping);
  }
  return status;
}

static int note_seized(oa_present *element, void *data) {
  const oa_mapping *mapping = (const oa_mapping *)element;
  const finding *f = data;
  return (!f->plan->from || is_named_device(f->plan, mapping)) && oa_mapping_is_seized_by(mapping, f->seizer);
}

/* Returns whether the other thread has seized a mapping that has some of the array's bytes. */
static bool finding_needs(const oa_wait *wait, const oa_caller *other) {
  const plan *p = wait->subject;
  finding f = {p, other};
  return oa_present_visit(&oa_table, p->array->low, p->array->high, note_seized, &f);
}

/* Finds the mappings, waits until none is moving or leaving, and then seizes all of them together. Frees the lock and
 * takes it again. */
static int seize_holders(plan *p) {
  const oa_lent_array *lent = p->array;
  const oa_wait wait = {p->function, finding_needs, p};
  int status;
  do {
    p->holder_count = 0;
    status = oa_present_visit(&oa_table, lent->low, lent->high, note_holder, p);
    for (int i = 0; i < p->holder_count && !status; i++) status = oa_complete_mapping(p->holders[i].mapping, &wait);
  } while (status == OA_LOOK_AGAIN);
  return status ? status : wait_for_calls(p);
}

static void yield_holders(plan *p) {
  for (int i = 0; i < p->holder_count; i++) {
    oa_resident_unsee(p->holders[i].mapping);
    oa_mapping_yield(p->holders[i].mapping);
  }
}

/* -- planning -- */

static int add_move(plan *p, const oa_mapping *mapping, const oa_view *view, oa_lines lines) {
  oa_move *more = grown(p->moves, p->move_count, &p->move_capacity, sizeof *more);
  if (!more) return OA_ERROR_MEMORY;
  p->moves = more;
  oa_move *move = &p->moves[p->move_count++];
  oa_view_move(mapping, view, move);
  if (!view->shape) {
    move->host = (void *)(mapping->at.low + (uintptr_t)lines.start);
    move->address = mapping->address + (uint64_t)lines.start;
    move->lines = lines;
  }
  move->padding = 0;
  move->in_place = false; /* calls may use the memory, so the copy has to be in the stream's order */
  move->trace.why = "update";
  return OA_OK;
}

/* Adds the bytes of the lines that are in [low, high). */
static int add_clipped(plan *p, const oa_mapping *mapping, const oa_view *view, oa_lines lines, int64_t low,
                       int64_t high) {
  lines = oa_lines_simplest(lines);
  int64_t first = 0, end = lines.count; /* the range of lines that are wholly inside */
  int status = OA_OK;
  if (low > lines.start) first = (low - lines.start + lines.pitch - 1) / lines.pitch;
  if (high < lines.start + oa_lines_span(lines)) end = (high - lines.start - lines.width) / lines.pitch + 1;
  if (high - lines.start < lines.width) end = 0;
  const int64_t cut[] = {first - 1, end}; /* lines that may be partly inside */
  for (int i = 0; i < 2 && !status; i++) {
    if (cut[i] < 0 || cut[i] >= lines.count || (i && cut[1] == cut[0])) continue;
    int64_t from = lines.start + cut[i] * lines.pitch, to = from + lines.width;
    if (from < low) from = low;
    if (to > high) to = high;
    if (from < to) status = add_move(p, mapping, view, (oa_lines){from, to - from, to - from, 1});
  }
  if (first < end && !status)
    status = add_move(p, mapping, view,
                      (oa_lines){lines.start + first * lines.pitch, lines.width, lines.pitch, end - first});
  return status;
}

/* Adds the bytes that two arrays of lines with one pitch share: each line of b overlaps at most two lines of a. */
static int add_met(plan *p, const oa_mapping *mapping, const oa_view *view, oa_lines a, oa_lines b) {
  const int64_t pitch = a.pitch, behind = ((b.start - a.start) % pitch + pitch) % pitch;
  const int64_t line = (b.start - a.start - behind) / pitch; /* the line of a in which the first line of b starts */
  const int64_t cuts[2][2] = {{behind, behind + b.width}, {0, behind + b.width - pitch}};
  int status = OA_OK;
  for (int i = 0; i < 2 && !status; i++) {
    const int64_t first = line + i > 0 ? line + i : 0,
                  end = line + i + b.count < a.count ? line + i + b.count : a.count;
    const int64_t from = cuts[i][0], to = cuts[i][1] < a.width ? cuts[i][1] : a.width;
    if (first < end && from < to)
      status = add_move(p, mapping, view, (oa_lines){a.start + first * pitch + from, to - from, pitch, end - first});
  }
  return status;
}

/* Returns whether the host has all bytes of the group, so that all of them may go up later, instead of some of them
 * now. */
static bool is_clean(const oa_mapping *mapping, const oa_view *view) {
  const oa_group *group = &mapping->groups[view->group];
  return !group->dirty && !group->invalid && !mapping->escaped && (view->goes_up || group->written);
}

/* Notes that the host alone has the bytes of a clean group, which go up when they are needed. */
static void leave_to_host(oa_group *group) {
  group->valid = group->lapsed = false;
  group->forgot = true;
  oa_group_forget_parts(group);
}

/* Handles bytes of a view that no copy can address. Fails unless the view is clean, because all bytes of a clean view
 * go up when they are needed. */
static int fail_unnamed(const plan *p, oa_mapping *mapping, const oa_view *view) {
  oa_group *group = &mapping->groups[view->group];
  if (!p->from && is_clean(mapping, view)) {
    leave_to_host(group);
    return OA_OK;
  }
  return oa_fail(OA_ERROR_PRESENT,
                 "%s: %s shares bytes with %s, which is present, and no copy can name these bytes; update the array "
                 "that was lent",
                 p->function, p->array->name, view->name);
}

/* Adds the bytes that the view and one piece of the array share. */
static int add_common(plan *p, oa_mapping *mapping, const oa_view *view, oa_lines piece) {
  const oa_lines lines = view->lines;
  if (oa_lines_disjoint(lines, piece)) return OA_OK;
  if (oa_lines_contain(lines, piece)) return add_move(p, mapping, view, piece);
  if (oa_lines_contain(piece, lines)) return add_move(p, mapping, view, lines);
  const oa_lines of_piece = oa_lines_simplest(piece), of_view = oa_lines_simplest(lines);
  if (of_piece.count == 1) return add_clipped(p, mapping, view, lines, of_piece.start, of_piece.start + of_piece.width);
  if (of_view.count == 1) return add_clipped(p, mapping, view, piece, of_view.start, of_view.start + of_view.width);
  return of_piece.pitch == of_view.pitch ? add_met(p, mapping, view, of_view, of_piece)
                                         : fail_unnamed(p, mapping, view);
}

/* Returns whether the group has bytes to move: for a copy down, bytes that the device wrote; for a copy up, bytes of
 * which the device has a copy. */
static bool matters(const plan *p, const oa_mapping *mapping, const oa_view *view) {
  const oa_group *group = &mapping->groups[view->group];
  if (!p->from) /* other bytes of the host go up when a call needs them */
    return group->valid || group->lapsed || (group->parts && !group->invalid);
  return group->dirty || (group->escaped && group->valid);
}

/* Returns whether the array has every byte of the view. */
static bool covers(const plan *p, const oa_mapping *mapping, const oa_view *view) {
  const oa_lent_array *lent = p->array;
  if (view->shape && oa_view_is(view, lent->array)) return true;
  if (!lent->layout.regular) return false;
  oa_lines lines = lent->lines;
  lines.start = (int64_t)(lent->low - mapping->at.low);
  const int64_t hull = (int64_t)(mapping->at.high - mapping->at.low);
  return oa_lines_contain(lines, view->shape ? (oa_lines){0, hull, hull, 1} : view->lines);
}

/* Adds the bytes that the array and the written parts of a view share. */
static int add_parts(plan *p, oa_mapping *mapping, const oa_view *view) {
  const oa_lent_array *lent = p->array;
  oa_parts_place place = {.low = 0};
  oa_view part = *view;
  int status = OA_OK;
  while (!status && (part.lines = oa_parts_next(mapping->groups[view->group].parts, &place)).count) {
    const oa_lines all = part.lines;
    oa_pieces pieces;
    oa_lines piece;
    oa_pieces_start(&pieces, lent->array->ndim, lent->array->shape, lent->array->strides, NULL,
                    oa_itemsize(lent->array->dtype));
    while (!status && oa_pieces_next(&pieces, &piece, NULL)) {
      piece.start += (int64_t)(lent->low - mapping->at.low);
      const bool together = all.count == 1 || piece.count == 1 || all.pitch == piece.pitch;
      for (int64_t i = 0; i < (together ? 1 : all.count) && !status; i++) {
        part.lines = together ? all
                              : (oa_lines){all.start + i * all.pitch, all.width, all.width,
                                           1}; /* with a single line, the pitch has no meaning, so any pitch is right */
        status = add_common(p, mapping, &part, piece);
      }
    }
  }
  return status;
}

/* Adds the moves of one view, and refuses to bring invalid bytes down. */
static int plan_view(plan *p, oa_mapping *mapping, const oa_view *view) {
  const oa_lent_array *lent = p->array;
  const int before = p->move_count;
  int status = OA_OK;
  const oa_group *group = &mapping->groups[view->group];
  /* The host has all bytes of the group that are not in the written parts. */
  const bool some = group->parts && view->goes_up;
  if (some && !group->invalid) {
    status = add_parts(p, mapping, &mapping->views[group->cover]);
  } else if (covers(p, mapping, view)) {
    status = add_move(p, mapping, view, view->lines);
  } else if (view->shape) {
    status = fail_unnamed(p, mapping, view);
  } else {
    oa_pieces pieces;
    oa_lines piece;
    oa_pieces_start(&pieces, lent->array->ndim, lent->array->shape, lent->array->strides, NULL,
                    oa_itemsize(lent->array->dtype));
    if (pieces.pieces > MOST_PIECES) return fail_unnamed(p, mapping, view);
    while (!status && oa_pieces_next(&pieces, &piece, NULL)) {
      piece.start += (int64_t)(lent->low - mapping->at.low);
      status = add_common(p, mapping, view, piece);
    }
  }
  if (!status && p->from && p->move_count > before && group->invalid)
    return oa_fail(OA_ERROR_INVALID, "%s: %s was left undefined by a call that failed; overwrite it whole first",
                   p->function, lent->name);
  for (int i = before; i < p->move_count && group->parts && !some && !status; i++) {
    oa_lines lines = p->moves[i].lines;
    lines.start = (int64_t)(p->moves[i].address - mapping->address);
    if (!oa_parts_contain(group->parts, lines))
      return oa_fail(OA_ERROR_DIRECTION,
                     "%s: %s was lent as Out, and calls wrote only a part of it; update that part, "
                     "or write all of it first",
                     p->function, lent->name);
  }
  return status;
}

/* Returns the first view of a group that has every byte of the array; -1 if there is none. */
static int find_view_of_all(const plan *p, const oa_mapping *mapping, int group) {
  oa_lines lines = p->array->lines;
  lines.start = (int64_t)(p->array->low - mapping->at.low);
  for (int i = 0; i < mapping->view_count && p->array->layout.regular; i++) {
    const oa_view *view = &mapping->views[i];
    if (view->group == group && !view->shape && oa_lines_contain(view->lines, lines)) return i;
  }
  return -1;
}

/* Returns whether the moves need the bytes of the view. The moves do not need them if another view has all of the
 * array's bytes or, for a copy down, if no call could write the view. An invalid group is checked as a whole, to be
 * refused. */
static bool is_named(const plan *p, const oa_mapping *mapping, int i) {
  const oa_view *view = &mapping->views[i];
  const oa_group *group = &mapping->groups[view->group];
  if (!oa_mapping_meets(mapping, p->array->low, oa_lent_array_lines(p->array)) || !meets(p, mapping, view))
    return false;
  const int whole = find_view_of_all(p, mapping, view->group);
  if (whole >= 0) return i == whole && matters(p, mapping, view);
  const bool all = !p->from || group->invalid;
  const bool covered = group->cover >= 0 && group->cover != i && (all || mapping->views[group->cover].writes);
  return !covered && (all || view->writes) && matters(p, mapping, view);
}

/* Adds the moves of one mapping: for each group, the view that has all of the array, or all views of the group if no
 * view has all of it. */
static int plan_holder(plan *p, holder *h) {
  oa_mapping *mapping = h->mapping;
  int status = OA_OK;
  h->first = p->move_count;
  for (int i = 0; i < mapping->view_count && !status; i++)
    if (mapping->address && is_named(p, mapping, i)) status = plan_view(p, mapping, &mapping->views[i]);
  h->count = p->move_count - h->first;
  return status;
}

/* Returns whether the mapping is on the named device, and spans the whole array. */
static bool has_all(const plan *p, const oa_mapping *mapping) {
  return is_named_device(p, mapping) && mapping->at.low <= p->array->low && p->array->high <= mapping->at.high;
}

/* Refuses an update if captured work may touch the mapping: an update is made immediately, and is part of no graph. */
static int check_captures(const plan *p, const oa_mapping *mapping) {
  const int status = oa_capture_check(p->function, p->array->name, mapping, NULL);
  return status || !mapping->escaped ? status : oa_streams_check(mapping->device, p->function, false);
}

static int note_writing(oa_present *element, void *data) {
  (void)element;
  (void)data;
  return 1;
}

bool oa_host_writes(uintptr_t low, uintptr_t high) {
  return oa_present_visit(&writings, low, high, note_writing, NULL);
}

/* Refuses to bring down bytes that the host may be writing. */
static int check_writings(const plan *p) {
  if (!p->move_count || !oa_host_writes(p->array->low, p->array->high)) return OA_OK;
  return oa_fail(OA_ERROR_PRESENT,
                 "%s: the host writes some of %s in a block of update, and a device wrote other bytes of it; update "
                 "all of the array, or read it after the block",
                 p->function, p->array->name);
}

/* Plans all moves before the first is made. After a success, the holders are seized. */
static int make_plan(plan *p) {
  int status = seize_holders(p);
  if (status) return status;
  bool whole = false;
  for (int i = 0; i < p->holder_count; i++) {
    whole |= has_all(p, p->holders[i].mapping);
    if (!status && !p->lacks) status = check_captures(p, p->holders[i].mapping);
  }
  if (status) {
    yield_holders(p);
    return status;
  }
  if (!whole && !p->lacks) {
    yield_holders(p);
    return oa_fail(OA_ERROR_PRESENT,
                   p->holder_count ? "%s: %s is present only in part; update the array that was lent"
                                   : "%s: %s is not present on the device; call it inside a region that lends it",
                   p->function, p->array->name);
  }
  for (int i = 0; i < p->holder_count && !status; i++) {
    status = plan_holder(p, &p->holders[i]);
    if (!status && p->lacks && p->holders[i].count) status = check_captures(p, p->holders[i].mapping);
  }
  if (!status && p->lacks) status = check_writings(p);
  if (status) yield_holders(p);
  return status;
}

static void free_plan(plan *p) {
  free(p->holders);
  free(p->moves);
}

/* -- moving -- */

/* Fails if an object was aborted before its calls that write some of the mapping had ended. Takes the lock. */
static int check_spoiled(const plan *p, const oa_mapping *mapping) {
  const oa_view *spoiled = NULL;
  oa_lock();
  for (const oa_view *v = mapping->views; mapping->spoiled && v < mapping->views + mapping->view_count; v++)
    if (mapping->groups[v->group].invalid && matters(p, mapping, v)) spoiled = v;
  oa_unlock();
  if (!spoiled) return OA_OK;
  return oa_fail(OA_ERROR_INVALID,
                 "a communicator was aborted before its calls that write %s had ended; the results are undefined",
                 spoiled->name);
}

/* Makes the planned moves of one mapping, and waits for them. Called without the lock. */
static int move(const plan *p, const holder *h, oa_stream *stream, bool escaped) {
  oa_mapping *mapping = h->mapping;
  oa_device *device = mapping->device;
  oa_move *moves = p->moves + h->first;
  const bool order = !(device->backend->flags & OA_SYNCHRONOUS);
  void *native = stream->native;
  int status = OA_OK;
  if (escaped) status = oa_device_wait(device, mapping->serial, "code that has an array's address");
  if (status) return status;
  int64_t begun = p->from ? oa_trace_begin() : oa_trace_begin_up(moves, h->count);
  if (begun && order) {
    status = oa_device_wait_stream(device, native, mapping->serial, "calls, before an update");
    begun = oa_trace_now();
  }
  if (!status)
    status =
        p->from ? oa_transfer_down(device, native, moves, h->count) : oa_transfer_up(device, native, moves, h->count);
  const int waited = order ? device->backend->stream_synchronize(device, native) : OA_OK;
  const bool over = !waited || oa_device_quiesce(device);
  if (!status) status = waited;
  if (p->from && !status) status = check_spoiled(p, mapping);
  if (p->from && !status) status = oa_transfer_settle(device, native, moves, h->count);
  if (begun) oa_trace_copies(p->from ? OA_TRACE_DOWN : OA_TRACE_UP, begun, device, moves, h->count, NULL, status);
  oa_transfer_cancel(device, moves, h->count, over);
  return status;
}

/* Returns whether the array has every byte of the group. */
static bool covers_group(const plan *p, const oa_mapping *mapping, int group) {
  for (int i = 0; i < mapping->view_count; i++)
    if (mapping->views[i].group == group && !covers(p, mapping, &mapping->views[i])) return false;
  return true;
}

/* Returns whether the former bytes of some group have to follow moves to the host: only some of the group moves, or
 * code with its address may write it at any time. */
static bool follows(const plan *p, const oa_mapping *mapping) {
  for (int g = 0; mapping->former && g < mapping->group_count; g++)
    if (mapping->groups[g].saved && (mapping->groups[g].escaped || !covers_group(p, mapping, g))) return true;
  return false;
}

/* Makes the planned moves of one mapping, after the earlier uses of the mapping. Called with the lock, which it frees
 * and takes again. */
static int move_holder(const plan *p, const holder *h) {
  oa_mapping *mapping = h->mapping;
  oa_stream *stream;
  int status = oa_stream_take(mapping->device, &stream);
  if (status) return status;
  if (!(mapping->device->backend->flags & OA_SYNCHRONOUS)) status = oa_uses_order(&mapping->uses, stream, !p->from);
  const bool escaped = mapping->escaped, following = p->from && follows(p, mapping);
  oa_unlock();
  if (!status) status = move(p, h, stream, escaped);
  for (int i = 0; i < h->count && following && !status; i++) {
    oa_lines lines = p->moves[h->first + i].lines;
    lines.start = (int64_t)(p->moves[h->first + i].address - mapping->address);
    oa_coherent_follow(mapping, lines);
  }
  oa_lock();
  oa_stream_return(stream);
  return status;
}

/* Returns whether the array has every byte that a writing permits. */
static bool covers_writing(const oa_lent_array *lent, const writing *w) {
  if (lent->low > w->at.low || w->at.high > lent->high) return false;
  oa_lines lines = oa_lent_array_lines(lent);
  lines.start = (int64_t)(lent->low - w->at.low);
  return lent->layout.regular ? oa_lines_contain(lines, w->lines) : lent->low == w->at.low && lent->high == w->at.high;
}

static int note_other_writing(oa_present *element, void *data) {
  return !covers_writing(data, (const writing *)element);
}

/* Returns whether the host may write bytes of the mapping that the array does not have. */
static bool others_write(const plan *p, const oa_mapping *mapping) {
  return oa_present_visit(&writings, mapping->at.low, mapping->at.high, note_other_writing, (void *)p->array);
}

/* Notes which bytes the host and the device have now. */
static void mark_holder(const plan *p, const holder *h) {
  oa_mapping *mapping = h->mapping;
  if (p->from && h->status) return;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    oa_group *group = &mapping->groups[view->group];
    if ((group->cover >= 0 && group->cover != i) || !matters(p, mapping, view)) continue;
    if (h->status && !group->dirty && (view->goes_up || group->written)) {
      leave_to_host(group);
    } else if (h->status) {
      group->invalid = true;
    } else if (covers_group(p, mapping, view->group)) {
      group->dirty = group->committed = false;
      group->saved &= group->escaped;
      if (!p->from) group->invalid = false;
    }
    if (!p->from && !h->status && group->lapsed && !others_write(p, mapping)) {
      group->valid = true;
      group->lapsed = false;
    }
  }
}

/* Makes the planned moves. After a failure the other moves up are still made, but no more moves down. Returns the first
 * failure. */
static int move_all(const plan *p) {
  oa_saved_error first;
  int status = OA_OK;
  for (int i = 0; i < p->holder_count; i++) {
    holder *h = &p->holders[i];
    if (!h->count || (p->from && status)) continue;
    h->status = move_holder(p, h);
    if (h->status && !status) {
      status = h->status;
      oa_error_save(&first);
    }
    mark_holder(p, h);
  }
  if (status) oa_error_restore(&first);
  return status;
}

/* Forgets which bytes of the array went up for calls that read some of a group: they may be older than the host's. */
static void forget_arrived(const plan *p) {
  for (int h = 0; h < p->holder_count; h++)
    for (int g = 0; g < p->holders[h].mapping->group_count; g++)
      oa_group_forget_arrived(&p->holders[h].mapping->groups[g]);
}

/* Marks the array's bytes on the devices as older than the host's: a call that reads them brings them up. */
static void lapse(const plan *p) {
  for (int h = 0; h < p->holder_count; h++) {
    const oa_mapping *mapping = p->holders[h].mapping;
    for (int i = 0; i < mapping->view_count; i++) {
      const oa_view *view = &mapping->views[i];
      oa_group *group = &mapping->groups[view->group];
      if (!is_clean(mapping, view) || !(group->valid || group->parts)) continue;
      if (!oa_mapping_meets_view(mapping, view, p->array->low, oa_lent_array_lines(p->array)) ||
          !meets(p, mapping, view))
        continue;
      const bool whole = group->valid;
      leave_to_host(group);
      group->lapsed = whole;
    }
  }
}

static bool has_saved_group(const oa_mapping *mapping) {
  for (int g = 0; mapping->former && g < mapping->group_count; g++)
    if (mapping->groups[g].saved) return true;
  return false;
}

/* Makes the bytes of an array, the lowest of which is at `low`, the former bytes of a coherent mapping, also if the
 * device has no copy of them: a region that fails leaves them to the host. */
static void follow_array(oa_mapping *mapping, uintptr_t low, const oa_shape *s) {
  const int64_t hull = (int64_t)(mapping->at.high - mapping->at.low);
  oa_pieces pieces;
  oa_lines piece;
  oa_pieces_start(&pieces, s->ndim, s->shape, s->strides, NULL, s->itemsize);
  while (oa_pieces_next(&pieces, &piece, NULL)) {
    piece.start += (int64_t)(low - mapping->at.low);
    for (int64_t i = 0; i < piece.count; i++) {
      const int64_t start = piece.start + i * piece.pitch, end = start + piece.width;
      const int64_t from = start > 0 ? start : 0, to = end < hull ? end : hull;
      if (from < to) oa_coherent_follow(mapping, (oa_lines){from, to - from, to - from, 1});
    }
  }
}

/* Notes that the host has written the array, whether its bytes arrived on all devices or not. Frees the lock
 * meanwhile. */
static void follow_host(const plan *p) {
  const oa_array *a = p->array->array;
  const oa_shape shape = {a->ndim, oa_itemsize(a->dtype), (int64_t *)a->shape, (int64_t *)a->strides};
  for (int i = 0; i < p->holder_count; i++) {
    oa_mapping *mapping = p->holders[i].mapping;
    if (!has_saved_group(mapping)) continue;
    oa_unlock();
    follow_array(mapping, p->array->low, &shape);
    oa_lock();
  }
}

static int note_sent(oa_present *element, void *data) {
  writing *w = (writing *)element;
  w->sent |= covers_writing(data, w);
  return 0;
}

/* Waits for the users of the coherent mappings, whose memory the host is about to write. Frees the lock meanwhile. */
static int wait_for_coherent(const plan *p) {
  int status = OA_OK;
  for (int i = 0; i < p->holder_count && !status; i++) {
    const oa_mapping *mapping = p->holders[i].mapping;
    oa_device *device = mapping->device;
    oa_stream *stream;
    if (!oa_is_coherent(mapping)) continue;
    if (mapping->escaped) {
      oa_unlock();
      status = oa_device_wait(device, mapping->serial, "code that has an array's address");
      oa_lock();
    }
    if (status || device->backend->flags & OA_SYNCHRONOUS) continue;
    if ((status = oa_stream_take(device, &stream))) return status;
    status = oa_uses_order(&mapping->uses, stream, true);
    oa_unlock();
    if (!status) status = oa_device_wait_stream(device, stream->native, mapping->serial, "calls, before an update");
    oa_lock();
    oa_stream_return(stream);
  }
  return status;
}

enum purpose { FROM, NEWEST, TO, CHECK, BEGIN };

static void free_writing(writing *w) {
  if (w) free(w->shape);
  free(w);
}

/* Lets the host write the array until the end of *handle. */
static int begin_writing(const plan *p, oa_writing **handle) {
  const oa_lent_array *lent = p->array;
  writing *entry = malloc(sizeof *entry);
  if (!entry) return oa_fail(OA_ERROR_MEMORY, "no host memory");
  *entry = (writing){.at = {.low = lent->low, .high = lent->high},
                     .lines = oa_lent_array_lines(lent),
                     .shape = oa_shape_of(lent->array)};
  oa_slot *slot = entry->shape ? oa_slot_take(NULL, OA_SLOT_WRITING) : NULL;
  if (!slot) {
    free_writing(entry);
    return OA_ERROR_MEMORY;
  }
  slot->state = entry;
  oa_present_insert(&writings, &entry->at);
  *handle = oa_slot_handle(slot);
  for (int i = 0; i < p->holder_count; i++) oa_coherent_forget(p->holders[i].mapping);
  lapse(p);
  return OA_OK;
}

/* Guards the groups again whose bytes are the same on the host and the device, unless an update lets the host write
 * some of the mapping. */
static void guard_equal(oa_mapping *mapping) {
  if (!oa_host_writes(mapping->at.low, mapping->at.high)) oa_guard_arm_equal(mapping);
}

/* Makes an update. handle: for the purpose BEGIN, becomes the handle of the writing. */
static int update(const oa_array *array, int device, enum purpose purpose, oa_writing **handle) {
  static const char *const function = "update";
  int status = oa_core_start(function);
  if (status) return status;
  if (!array) return oa_fail_null(function, "array");
  oa_lent_array lent = {.array = (oa_array *)array};
  if ((status = oa_lent_array_check(&lent, 0))) return oa_fail_in(status, "%s", function);
  if (!lent.layout.size) return OA_OK;
  plan p = {
      .function = function, .array = &lent, .device = device, .from = purpose <= NEWEST, .lacks = purpose == NEWEST};
  oa_lock();
  status = make_plan(&p);
  if (!status) {
    for (int i = 0; i < p.holder_count && purpose != CHECK; i++)
      if (purpose != NEWEST || p.holders[i].count) oa_guard_lift(p.holders[i].mapping, lent.low, lent.high);
    for (int i = 0; i < p.holder_count && purpose == TO; i++) oa_coherent_forget(p.holders[i].mapping);
    if (purpose == TO || purpose == BEGIN) forget_arrived(&p);
    if (p.from || purpose == TO) status = move_all(&p);
    if (purpose == TO) follow_host(&p);
    if (purpose == TO && !status) oa_present_visit(&writings, lent.low, lent.high, note_sent, &lent);
    if (purpose == BEGIN && !(status = wait_for_coherent(&p))) status = begin_writing(&p, handle);
    for (int i = 0; i < p.holder_count && p.from && !status; i++) guard_equal(p.holders[i].mapping);
    yield_holders(&p);
    if (status) oa_fail_in(status, "%s: %s", function, lent.name);
  }
  oa_unlock();
  free_plan(&p);
  return status;
}

/* -- public -- */

int oa_update_from(const oa_array *array, int device) { return update(array, device, FROM, NULL); }

int oa_update_newest(const oa_array *array) { return update(array, -1, NEWEST, NULL); }

int oa_update_to(const oa_array *array, int device) { return update(array, device, TO, NULL); }

int oa_update_check(const oa_array *array, int device) { return update(array, device, CHECK, NULL); }

int oa_update_begin(const oa_array *array, int device, oa_writing **handle) {
  if (!handle) return oa_fail_null("update", "writing");
  *handle = NULL;
  return update(array, device, BEGIN, handle);
}

static int note_unsent(oa_present *element, void *data) {
  const writing *ended = data;
  oa_mapping *mapping = (oa_mapping *)element;
  if (has_saved_group(mapping)) follow_array(mapping, ended->at.low, ended->shape);
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    oa_group *group = &mapping->groups[view->group];
    if (!group->lapsed) continue;
    group->lapsed = false;
    if (is_clean(mapping, view)) group->valid = false;
  }
  return 0;
}

static int guard_again(oa_present *element, void *ended) {
  (void)ended;
  guard_equal((oa_mapping *)element);
  return 0;
}

int oa_update_end(oa_writing *handle) {
  if (!handle || atomic_load(&oa_forked)) return OA_OK;
  int status = OA_OK;
  oa_lock();
  oa_slot *slot = oa_slot_of(handle, OA_SLOT_WRITING, &status);
  writing *ended = slot ? slot->state : NULL;
  if (ended) {
    oa_present_remove(&writings, &ended->at);
    if (!ended->sent) oa_present_visit(&oa_table, ended->at.low, ended->at.high, note_unsent, ended);
    oa_present_visit(&oa_table, ended->at.low, ended->at.high, guard_again, NULL);
    oa_slot_free(slot);
  }
  oa_unlock();
  const bool was_open = ended != NULL;
  free_writing(ended);
  if (status == OA_ERROR_STALE) return oa_fail(status, "oa_update_end: the update has ended already");
  return was_open ? OA_OK
                  : oa_fail(status, "oa_update_end: writing needs what oa_update_begin gave, got the address %p",
                            (void *)handle);
}

typedef struct search {
  int device;
  uintptr_t low, high;
} search;

static int note_present(oa_present *element, void *data) {
  const search *s = data;
  const oa_mapping *mapping = (const oa_mapping *)element;
  return (s->device < 0 || mapping->device->number == s->device) && element->low <= s->low && s->high <= element->high;
}

int oa_is_present(const void *data, int64_t nbytes, int device) {
  if (oa_core_start(__func__) || nbytes <= 0) return 0;
  search s = {.device = device, .low = (uintptr_t)data, .high = (uintptr_t)data + (uintptr_t)nbytes};
  oa_lock();
  const int present = oa_present_visit(&oa_table, s.low, s.high, note_present, &s);
  oa_unlock();
  return present;
}
