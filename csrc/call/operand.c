/* The operands of a call: oa_begin finds each operand, and checks its extent, rights, device and overlaps, before
 * anything moves. */
#include "call/operand.h"
#include "call/extent.h"
#include "library/library.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/coherent.h"
#include "region/leave.h"
#include "region/residency.h"
#include "region/update.h"

#include <stdlib.h>
#include <string.h>

/* -- extents -- */

static __attribute__((cold, noinline)) int fail_extent(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                       const oa_touched *touched) {
  char text[256];
  const int64_t itemsize = touched->itemsize, span = oa_touched_span(touched);
  oa_extent_text(&o->extent, text, sizeof text);
  if (span > slot->nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld element%s (%s), has %lld", call->function, o->name,
                   (long long)(span / itemsize), span == itemsize ? "" : "s", text,
                   (long long)(slot->nbytes / itemsize));
  return oa_fail(OA_ERROR_EXTENT,
                 "%s: %s (%s) would touch elements between the lines of its array, which has %lld elements a line, the "
                 "starts %lld apart; pass its own leading dimension",
                 call->function, o->name, text, (long long)(slot->inside.width / itemsize),
                 (long long)(slot->inside.pitch / itemsize));
}

/* Checks an operand whose lines go beyond the pointer's own lines. The touched elements of the operand may not go
 * beyond the pointer's lines. */
static __attribute__((cold, noinline)) int check_bounds(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                        const oa_lines *lines) {
  const oa_touched touched = {&o->extent, *lines, slot->itemsize};
  if (oa_touched_span(&touched) <= slot->nbytes && oa_touched_within(&touched, slot->inside)) return OA_OK;
  return fail_extent(call, o, slot, &touched);
}

/* -- checks -- */

static __attribute__((cold, noinline)) int fail_handle(const oa_call *call, const oa_operand *o, int status) {
  if (status == OA_ERROR_STALE && oa_slot_was_released(o->pointer))
    return oa_fail(status, "%s: %s is a view that was released; make another one", call->function, o->name);
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
  if (call->library)
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on %s, the device of the object that the call takes",
                   call->function, o->name, device->name, ((const oa_device *)call->only)->name);
  return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on %s, where its module was loaded", call->function,
                 o->name, device->name, ((const oa_device *)call->only)->name);
}

static int check_device(const oa_call *call, const oa_operand *o, const oa_device *device) {
  const oa_library *library = call->library;
  if (!library) return !call->only || call->only == device ? OA_OK : fail_only(call, o, device);
  if (OA_UNLIKELY(!oa_library_works_on(library, device))) return fail_device(call, o, device);
  return OA_LIKELY(!call->only || call->only == device) ? OA_OK : fail_only(call, o, device);
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

/* Checks that the array is on one device, or that several devices only read it. */
static int check_elsewhere(const oa_call *call, const oa_operand *o, oa_mapping *mapping, bool writes) {
  other_device other = {.mapping = mapping};
  if (!mapping->listed) return OA_OK;
  oa_present_visit(&oa_table, mapping->at.low, mapping->at.high, note_other, &other);
  if (!other.present) mapping->special &= (uint8_t)~OA_IS_ELSEWHERE;
  const oa_mapping *conflict = writes ? other.present : other.newer;
  if (!conflict) return OA_OK;
  return oa_fail(
      OA_ERROR_DIRECTION,
      "%s: %s is present on %s too%s; an array may be on several devices for reading, or on one for writing: leave "
      "that region first",
      call->function, o->name, conflict->device->name, writes ? "" : ", and is written there");
}

/* Checks an operand of a special mapping. Refuses a coherent mapping while the host writes it. Saves the former bytes
 * of a coherent group before its first write. Returns OA_LOOK_AGAIN if it freed the lock meanwhile. */
static __attribute__((cold, noinline)) int check_special(const oa_call *call, const oa_operand *o,
                                                         const oa_slot *slot) {
  oa_mapping *mapping = slot->mapping;
  const bool writes = o->touched & OA_FOR_WRITING; /* code that has the address may write at any time */
  const int status = mapping->special & OA_IS_ELSEWHERE ? check_elsewhere(call, o, mapping, writes) : OA_OK;
  if (status || !oa_is_coherent(mapping)) return status;
  if (oa_host_writes(mapping->at.low, mapping->at.high))
    return oa_fail(
        OA_ERROR_ARGUMENT,
        "%s: the host is writing %s in an update, in the memory that %s uses; make the call after the update, "
        "or run the program with OFFLOAD_ARGS_COHERENT=never",
        call->function, o->name, mapping->device->name);
  if (!writes || slot->group->saved) return OA_OK;
  const int saved = oa_coherent_save(call->function, mapping, slot->group);
  return saved ? saved : OA_LOOK_AGAIN;
}

static inline bool same_lines(const oa_lines *a, const oa_lines *b) {
  return a->start == b->start && a->width == b->width && a->count == b->count &&
         (a->count == 1 || a->pitch == b->pitch);
}

/* Returns whether a call on another thread may be the first to write the pointer's group. The reads, copies up and
 * zeros of this call would not be ordered with that call. */
static inline bool is_being_filled(const oa_slot *slot) {
  const oa_group *group = slot->group;
  return OA_UNLIKELY(group->writing) && !group->valid && group->writer != oa_caller_of_thread;
}

/* Fails for an operand of an Out that uses bytes that no call wrote. `exact`: the call would overwrite all of the
 * operand's lines. */
static __attribute__((cold, noinline)) int fail_unwritten(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                          bool writes, bool exact) {
  const char *name = oa_slot_view(slot)->name;
  if (o->access & OA_ADDRESS_ONLY)
    return oa_fail(
        OA_ERROR_DIRECTION,
        "%s: %s was lent as Out, and calls wrote only a part of it (%s), so that code with its address could "
        "read bytes that nothing wrote; write the rest first, or lend it as InOut",
        call->function, o->name, name);
  if (exact)
    return oa_fail(OA_ERROR_DIRECTION,
                   "%s: %s was lent as Out, but this call does not write every element of %s, and the others would "
                   "come down undefined; fill all of it first, such as by dy.fill(0), lend each part as an Out of its "
                   "own, or lend it as InOut, which sends the host's bytes",
                   call->function, o->name, name);
  if ((o->access & OA_READ_WRITE) == OA_OVERWRITE || (writes && o->extent.kind == OA_EXTENT_TRIANGLE))
    return oa_fail(
        OA_ERROR_DIRECTION,
        "%s: %s was lent as Out, but this call does not write every element of it (%s), and the others would "
        "come down undefined; fill all of it first, such as by dy.fill(0), or lend it as InOut, which sends "
        "the host's bytes",
        call->function, o->name, name);
  return oa_fail(OA_ERROR_DIRECTION,
                 slot->group->parts
                     ? "%s: %s would be read before it is written: calls wrote only a part of %s, which was lent as "
                       "Out; write the rest first, or lend it as InOut"
                     : "%s: %s was lent as Out and would be read before it is written (%s); write it first, or lend it "
                       "as InOut",
                 call->function, o->name, name);
}

/* Fails for an operand that the call writes, and that may only be read. */
static __attribute__((cold, noinline)) int fail_rights(const oa_call *call, const oa_operand *o, const oa_slot *slot) {
  const char *lent = oa_slot_view(slot)->name;
  if (oa_slot_root(slot)->read_only) {
    const char *name = strchr(o->name, ' ') || !strcmp(o->name, "pointer") ? "x" : o->name; /* a variable's name */
    return oa_fail(OA_ERROR_DIRECTION,
                   "%s: %s needs to be writable, but its array (%s of the region) is read-only; lend a writable copy, "
                   "%s = %s.copy(), which gets the results, or lend it as In to functions that only read it",
                   call->function, o->name, lent, name, name);
  }
  return oa_fail(OA_ERROR_DIRECTION,
                 "%s: %s needs to be writable, but its array (%s of the region) was lent as In; lend it as %s",
                 call->function, o->name, lent, (o->access & OA_READ_WRITE) == OA_OVERWRITE ? "Out" : "InOut");
}

/* Returns whether a set has every byte of a group that the operand touches. */
static bool has_touched(const oa_parts *parts, const oa_operand *o, const oa_slot *slot, const oa_lines *lines) {
  const oa_touched touched = {&o->extent, *lines, slot->itemsize};
  const int64_t runs = oa_touched_runs(&touched);
  for (int64_t j = 0; j < runs; j++)
    if (!oa_parts_contain(parts, oa_touched_run(&touched, j))) return false;
  return true;
}

/* Returns whether the call belongs to a region that the core captures: the youngest region of its operands. */
static __attribute__((cold, noinline)) bool is_in_capture(const oa_call *call) {
  const oa_region_state *youngest = NULL;
  int status;
  for (const oa_operand *o = call->operands; o < call->operands + call->count; o++) {
    const oa_slot *slot = oa_slot_of(o->pointer, OA_SLOT_POINTER, &status);
    if (slot && (!youngest || slot->region->serial > youngest->serial)) youngest = slot->region;
  }
  return youngest && youngest->capture;
}

/* Returns whether the core may capture the call, or other calls that use the mapping. */
static bool may_be_captured(const oa_call *call, const oa_mapping *mapping) {
  return is_in_capture(call) || oa_capture_concerns(mapping);
}

/* Returns whether a call that uses some of a group may leave the rest of the group to later calls: no graph has the
 * call, and no host writes the array meanwhile. */
static bool may_come_in_parts(const oa_call *call, const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  return !(call->special & (OA_REPLAYS | OA_BESIDE_CAPTURE)) &&
         (!slot->region->device->known_streams || oa_part_cost.is_configured) && !may_be_captured(call, mapping) &&
         !(mapping->listed && oa_host_writes(mapping->at.low, mapping->at.high));
}

/* Returns whether the bytes of an operand that is not overwritten are on the device (present: true), or may go up
 * without the rest of the group. Notes a part that the call then writes. */
static bool is_used_in_part(const oa_call *call, oa_operand *o, const oa_slot *slot, const oa_lines *lines,
                            bool present) {
  const oa_mapping *mapping = slot->mapping;
  const oa_group *group = slot->group;
  const bool notes = oa_writes(o->access) && !has_touched(group->parts, o, slot, lines);
  const bool waits = notes && mapping->device->backend->flags & OA_SYNCHRONOUS; /* threads would take turns */
  if (notes && (waits || !oa_group_takes_part(mapping, group, *lines))) return false;
  if (present) {
    const oa_parts *set = oa_group_present(group);
    const bool here =
        notes && !oa_extent_is_triangle(&o->extent) ? oa_parts_contain(set, *lines) : has_touched(set, o, slot, lines);
    if (!here) return false;
  } else if (!may_come_in_parts(call, slot) || !oa_group_comes_in_parts(mapping, group, *lines)) {
    return false;
  }
  if (notes) o->touched |= OA_PART_WRITTEN;
  return true;
}

/* Checks an operand that is a part of its group, or of which the device has a part, as check_part does. */
static __attribute__((cold, noinline)) int check_use_of_part(const oa_call *call, oa_operand *o, const oa_slot *slot,
                                                             const oa_lines *lines, bool exact, bool unwritten,
                                                             oa_reach *r) {
  bool *up = &r->up;
  const oa_mapping *mapping = slot->mapping;
  const oa_group *group = slot->group;
  const bool goes_up = oa_slot_view(slot)->goes_up, captured = may_be_captured(call, mapping);
  *up = !unwritten && (goes_up || !group->parts);
  if (!*up && group->parts && (call->special & OA_REPLAYS || captured))
    return oa_fail(OA_ERROR_CAPTURE,
                   "%s: only a part of %s was written before its calls are captured; write all of it first",
                   call->function, oa_slot_view(slot)->name);
  const bool triangle = (o->access & OA_READ_WRITE) == OA_OVERWRITE && oa_extent_is_triangle(&o->extent) && !goes_up;
  if (!(o->access & OA_ADDRESS_ONLY) && !(call->special & OA_REPLAYS) && !captured) {
    if ((exact || (triangle && !slot->irregular)) && (*up || !goes_up) && oa_group_takes_part(mapping, group, *lines))
      o->touched |= OA_PART_WRITTEN;
    const bool there = !unwritten && oa_group_present(group) && !(o->touched & OA_PART_WRITTEN);
    if (o->touched & OA_PART_WRITTEN || (there && is_used_in_part(call, o, slot, lines, true))) {
      *up = false;
      return OA_OK;
    }
    r->part = *up && is_used_in_part(call, o, slot, lines, false);
  }
  return *up ? OA_OK : fail_unwritten(call, o, slot, oa_writes(o->access), exact);
}

/* Checks an operand that is a part of its group, or that reads the group, while some of the group is not on the device.
 * The call may overwrite a part, and may use parts that the device has. If the call uses other bytes, these bytes or
 * all missing bytes go up, or the call is refused. `exact`: the call overwrites all of the operand's lines.
 * `unwritten`: the call may not read the host's bytes. Sets r->up and r->part. */
static __attribute__((cold, noinline)) int check_part(const oa_call *call, oa_operand *o, const oa_slot *slot,
                                                      bool exact, bool unwritten, oa_reach *r) {
  const oa_mapping *mapping = slot->mapping;
  if (!unwritten && !oa_writes(o->access) && !oa_group_present(slot->group) &&
      (mapping->arena || mapping->kind != OA_MAPS_HOST))
    return OA_OK; /* all of the group goes up */
  return check_use_of_part(call, o, slot, &r->lines, exact, unwritten, r);
}

/* Returns whether the lines are all the lent bytes of an array, and its other bytes go up. */
static bool fills_view(const oa_slot *slot, const oa_lines *lines) {
  return oa_slot_view(slot)->goes_up && same_lines(lines, &oa_slot_root(slot)->inside);
}

/* Checks the pointer's rights and the state of its group. Sets r->up if the group has to be brought up first, and
 * o->touched for oa_end. */
static inline int check_access(const oa_call *call, oa_operand *o, const oa_slot *slot, oa_reach *r) {
  const oa_lines *lines = &r->lines;
  oa_mapping *mapping = slot->mapping;
  const oa_group *group = slot->group;
  const bool address_only = o->access & OA_ADDRESS_ONLY;
  /* An Out without bytes gets zeros, so that code outside never reads bytes of other arrays. */
  if (OA_UNLIKELY(address_only))
    o->access =
        OA_ADDRESS_ONLY |
        (slot->out && !oa_slot_view(slot)->goes_up && !group->valid && !group->invalid && !group->written ? OA_OVERWRITE
                                                                                                          : OA_READ);
  const bool writes = oa_writes(o->access);
  bool whole = false, exact = false; /* the call overwrites the whole group; all of the operand's lines */
  if (writes) {
    if (OA_UNLIKELY(!slot->writes)) return fail_rights(call, o, slot);
    const bool fills = OA_LIKELY(!(o->extent.part & OA_BATCHED)) || oa_extent_fills(&o->extent, *lines, slot->itemsize);
    exact = (o->access & OA_READ_WRITE) == OA_OVERWRITE && fills && !slot->irregular &&
            o->extent.kind != OA_EXTENT_TRIANGLE && o->extent.kind != OA_EXTENT_BAND &&
            o->extent.kind != OA_EXTENT_PACKED;
    whole = exact && group->cover >= 0 && same_lines(lines, &mapping->views[group->cover].lines);
    whole |= address_only; /* the caller fills the group with zeros */
  }
  o->touched =
      OA_TOUCHED | (whole ? OA_OVERWRITTEN : 0) | (writes || (address_only && slot->writes) ? OA_FOR_WRITING : 0);
  const bool captured =
      OA_UNLIKELY(group->captured) && is_in_capture(call); /* an earlier call of the graph writes it */
  const bool up = !whole && !group->valid && !captured;
  r->up = up;
  if (OA_UNLIKELY(!whole && group->invalid && !captured))
    return oa_fail(OA_ERROR_INVALID,
                   "%s: %s was left undefined by a call or region that failed; overwrite it whole before it is used",
                   call->function, o->name);
  const bool unwritten = OA_UNLIKELY(slot->out && !whole && !group->written && !captured &&
                                     !(call->special & OA_REPLAYS) && !(group->escaped && group->valid)) &&
                         !address_only && !(exact && fills_view(slot, lines));
  if (OA_UNLIKELY(unwritten || up)) {
    const int status = check_part(call, o, slot, exact, unwritten, r);
    if (status) return status;
  }
  return OA_UNLIKELY(mapping->special) ? check_special(call, o, slot) : OA_OK;
}

static __attribute__((cold, noinline)) int fail_alias(const oa_call *call, const oa_operand *a, const oa_operand *b) {
  const oa_operand *written = oa_writes(a->access) ? a : b, *other = written == a ? b : a;
  return oa_fail(OA_ERROR_ALIAS, "%s: %s is written and overlaps %s; give it memory of its own", call->function,
                 written->name, other->name);
}

/* Returns whether two operands with the same lines have the same element at each index. */
static bool same_elements(const oa_extent *a, const oa_extent *b) {
  if ((a->part | b->part) & OA_BATCHED)
    return a->kind == b->kind && a->part == b->part && a->rows == b->rows && a->columns == b->columns &&
           a->ld == b->ld && a->batch == b->batch && a->stride == b->stride;
  /* `batch` is an array's index in its pointer list; it is 0 for other operands. */
  return a->kind == b->kind && a->batch == b->batch &&
         (a->ld == b->ld || (a->kind == OA_EXTENT_VECTOR && a->rows <= 1));
}

/* Returns whether `inner` is exactly the part of `outer` that its extent allows (OA_INSIDE). */
static bool is_inside(const oa_touched *inner, const oa_touched *outer) {
  int64_t offset;
  return inner->extent->part & OA_INSIDE && !__builtin_mul_overflow(inner->extent->stride, inner->itemsize, &offset) &&
         inner->itemsize == outer->itemsize && inner->lines.start - outer->lines.start == offset &&
         oa_lines_contain(outer->lines, inner->lines);
}

/* Checks two operands with overlapping intervals, if one of them is written. */
static __attribute__((noinline)) int check_overlap(const oa_call *call, const oa_reach *reaches, int i, int j) {
  const oa_operand *a = &call->operands[i], *b = &call->operands[j];
  const oa_slot *slot_a = a->slot, *slot_b = b->slot;
  oa_touched x = {&a->extent, reaches[i].lines, slot_a->itemsize}, y = {&b->extent, reaches[j].lines, slot_b->itemsize};
  x.lines.start += (int64_t)slot_a->mapping->address;
  y.lines.start += (int64_t)slot_b->mapping->address;
  if ((a->access & OA_RESHAPED) && j == i - 1) return OA_OK;
  if ((a->extent.part | b->extent.part) & OA_UNUSED) return OA_OK;
  const bool same = (x.extent->part | y.extent->part) & OA_INSIDE
                        ? is_inside(&x, &y) || is_inside(&y, &x)
                        : same_lines(&x.lines, &y.lines) && same_elements(x.extent, y.extent);
  if ((same && (a->access & b->access & OA_IN_PLACE)) || oa_touched_disjoint(&x, &y)) return OA_OK;
  return fail_alias(call, a, b);
}

/* An operand and the start of its bytes, to sort operands in the order of memory. */
typedef struct place {
  uintptr_t start;
  int operand;
} place;

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start ? 1 : x->operand - y->operand;
}

/* Checks operand i against the operands of the list that reach beyond its start, and removes the other operands from
 * the list. */
static int check_open(const oa_call *call, const oa_reach *reaches, int i, int *open, int *count) {
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

/* Makes the check of check_alias for many operands. Goes through the operands in the order of memory, so that it
 * compares only operands with overlapping intervals. */
static __attribute__((noinline)) int check_alias_of_many(const oa_call *call, const oa_reach *reaches) {
  int places_count = 0, written_count = 0, read_count = 0, status = OA_OK;
  place *places = malloc((size_t)call->count * (sizeof *places + 2 * sizeof(int)));
  if (!places) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to compare its operands", call->function);
  /* indices of earlier operands that are still open */
  int *written = (int *)(places + call->count), *read = written + call->count;
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

/* Checks that no written operand overlaps another operand. */
static inline int check_alias(const oa_call *call, const oa_reach *reaches, const oa_reach *end) {
  for (const oa_reach *a = reaches + 1; a < end; a++) {
    for (const oa_reach *b = reaches; b < a; b++) {
      if (OA_LIKELY(b->end <= a->start || a->end <= b->start)) continue;
      const int i = (int)(a - reaches), j = (int)(b - reaches);
      const int status =
          oa_writes(call->operands[i].access | call->operands[j].access) ? check_overlap(call, reaches, i, j) : OA_OK;
      if (status) return status;
    }
  }
  return OA_OK;
}

/* -- finding operands -- */

/* Returns the operand's slot, which has the right dtype; NULL with *status and the text set. */
static inline oa_slot *find_slot(const oa_call *call, const oa_operand *o, int *status) {
  const int known = OA_READ_WRITE | OA_IN_PLACE | OA_RESHAPED | OA_ADDRESS_ONLY;
  if (OA_UNLIKELY(!o->name || o->access & ~known || !(o->access & OA_READ_WRITE))) {
    *status = oa_fail_operand(call, o);
    return NULL;
  }
  oa_slot *slot = oa_slot_of(o->pointer, OA_SLOT_POINTER, status);
  if (OA_UNLIKELY(!slot)) {
    fail_handle(call, o, *status);
    return NULL;
  }
  if (OA_LIKELY(o->dtype == slot->dtype || o->dtype == OA_ANY)) return slot;
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
    if (OA_UNLIKELY(device->lost) && (status = oa_device_usable(device))) return status;
    *region = its;
  } else if (its != *region) {
    if (device != (*region)->device)
      return oa_fail(OA_ERROR_DEVICE,
                     "%s: %s is on %s, and %s is on %s; all pointers of a call must be on one device: "
                     "lend its arrays in one region",
                     call->function, o->name, device->name, call->operands[0].name, (*region)->device->name);
    if (its->serial > (*region)->serial) *region = its;
  }
  return OA_OK;
}

/* Finds the lines that the operand touches, and checks that they belong to the pointer. *span: the number of bytes from
 * the first touched byte to the last; 0 if the operand touches nothing. */
static inline __attribute__((always_inline)) int find_lines(const oa_call *call, const oa_operand *o,
                                                            const oa_slot *slot, oa_lines *lines, int64_t *span) {
  if (o->extent.kind == OA_EXTENT_ALL) {
    *lines = slot->irregular ? (oa_lines){slot->offset, slot->nbytes, slot->nbytes, 1} : slot->inside;
    if (!slot->mapping) lines->count = 0;
    *span = oa_lines_span(*lines);
    return OA_OK;
  }
  const int status = oa_extent_lines(call, o, slot->itemsize, lines);
  if (status) return status;
  lines->start = slot->offset;
  *span = oa_lines_span(*lines);
  if (OA_UNLIKELY(!*span)) lines->count = 0;
  if (OA_UNLIKELY(*span > slot->nbytes) || (slot->spaced && !oa_lines_contain(slot->inside, *lines)))
    return check_bounds(call, o, slot, lines);
  return OA_OK;
}

__attribute__((cold)) void oa_operand_lines(const oa_call *call, const oa_operand *operand, oa_lines *lines) {
  int64_t span;
  find_lines(call, operand, operand->slot, lines, &span);
}

/* Returns whether the other thread has seized the mapping of an operand, or fills its group. */
static bool needs(const oa_wait *wait, const oa_caller *other) {
  const oa_slot *slot = oa_wait_slot(wait);
  if (!slot || !slot->mapping) return false;
  const oa_mapping *mapping = slot->mapping;
  if (mapping->moving) return mapping->seizer == other;
  const oa_group *group = slot->group;
  return group->writing && !group->valid && group->writer == other;
}

/* If the operand's mapping leaves or moves, waits for the end of that; otherwise waits while another thread fills the
 * operand's group. */
static __attribute__((cold, noinline)) int wait_for_change(const oa_call *call, const oa_operand *o,
                                                           const oa_mapping *mapping) {
  const oa_wait wait = {call->function, needs, o->pointer};
  int status = oa_complete_mapping(mapping, &wait);
  if (!status) status = oa_wait_for(&wait);
  return status ? status : OA_LOOK_AGAIN;
}

/* Waits for other threads whose work on the operand's mapping comes before this call. Returns OA_LOOK_AGAIN if it has
 * freed the lock. */
static inline int wait_for_others(const oa_call *call, const oa_operand *o, const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  if (OA_UNLIKELY(mapping->moving) || (OA_UNLIKELY(mapping->leaving != NULL) && oa_writes(o->access)))
    return wait_for_change(call, o, mapping);
  if (OA_UNLIKELY(mapping->special & OA_IS_ELSEWHERE) && mapping->listed) {
    const int status = oa_complete_overlapping(call->function, mapping->at.low, mapping->at.high);
    if (status) return status;
  }
  return OA_UNLIKELY(is_being_filled(slot)) ? wait_for_change(call, o, mapping) : OA_OK;
}

/* Finds one operand and checks it. Returns OA_LOOK_AGAIN if it has freed the lock. */
static inline int look_up(const oa_call *call, oa_operand *o, oa_region_state **region, oa_reach *r) {
  int64_t span;
  int status;
  oa_slot *slot = find_slot(call, o, &status);
  r->up = r->part = false;
  if (!slot) return status;
  o->slot = slot;
  if ((status = join_region(call, o, slot->region, region)) || (status = find_lines(call, o, slot, &r->lines, &span)))
    return status;
  const oa_mapping *mapping = slot->mapping;
  if (OA_UNLIKELY(!span)) {
    o->touched = 0;
    r->start = r->end = mapping ? (uintptr_t)mapping->address + (uintptr_t)slot->offset : 0;
    o->address = (void *)r->start;
    return OA_OK;
  }
  if (OA_UNLIKELY(status = wait_for_others(call, o, slot))) return status;
  r->start = (uintptr_t)mapping->address + (uintptr_t)slot->offset;
  r->end = r->start + (uintptr_t)span;
  o->address = (void *)r->start;
  return check_access(call, o, slot, r);
}

int oa_operands_find(const oa_call *call, oa_reach *reaches, oa_region_state **region, int *arriving) {
  oa_region_state *youngest;
  oa_reach *r;
  int status, up;
  do {
    status = OA_OK;
    youngest = NULL;
    up = 0;
    r = reaches;
    oa_operand *o = call->operands;
    for (int left = call->count; left > 0 && !status; left--, o++, r++) {
      status = look_up(call, o, &youngest, r);
      up += r->up;
    }
  } while (status == OA_LOOK_AGAIN);
  *region = youngest;
  *arriving = up;
  if (status || call->count == 1 || call->special & OA_MAY_OVERLAP) return status;
  return OA_UNLIKELY(call->count > OA_FEW_OPERANDS) ? check_alias_of_many(call, reaches)
                                                    : check_alias(call, reaches, r);
}
