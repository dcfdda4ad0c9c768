/* The way of one call: everything is checked, then moved, then called, then marked. */
#include "library.h"
#include "region.h"
#include "residency.h"
#include "trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {"any",     "bool",    "int8",      "int16",     "int32",   "int64",
                                          "uint8",   "uint16",  "uint32",    "uint64",    "float16", "bfloat16",
                                          "float32", "float64", "complex64", "complex128"};

/* -- extents -- */

/* "m=64, n=64, lda=64" */
static const char *extent_text(const oa_extent *e, char *text, size_t size) {
  switch (e->kind) {
    case OA_EXTENT_VECTOR:
      if (!e->ld_name[0])
        snprintf(text, size, "%s=%lld", e->rows_name, (long long)e->rows);
      else
        snprintf(text, size, "%s=%lld, %s=%lld", e->rows_name, (long long)e->rows, e->ld_name, (long long)e->ld);
      break;
    case OA_EXTENT_PACKED:
      snprintf(text, size, "%s=%lld", e->rows_name, (long long)e->rows);
      break;
    case OA_EXTENT_TRIANGLE:
      snprintf(text, size, "%s=%lld, %s=%lld", e->rows_name, (long long)e->rows, e->ld_name, (long long)e->ld);
      break;
    default:
      snprintf(text, size, "%s=%lld, %s=%lld, %s=%lld", e->rows_name, (long long)e->rows, e->columns_name,
               (long long)e->columns, e->ld_name, (long long)e->ld);
  }
  return text;
}

static __attribute__((cold, noinline)) int fail_negative(const oa_call *call, const oa_operand *o, const char *name,
                                                         int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld (the size of %s)", call->function, name,
                 (long long)value, o->name);
}

/* The lines, in bytes, of what the operand touches, but for their start; 0 lines if nothing. */
static inline int lines_of(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  int64_t span;
  if (__builtin_expect(e->rows < 0, 0)) return fail_negative(call, o, e->rows_name, e->rows);
  if (e->kind == OA_EXTENT_VECTOR) {
    const int64_t step = e->ld < 0 ? -e->ld : e->ld;
    if (__builtin_expect(e->ld == 0 || e->ld == INT64_MIN, 0))
      return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs an increment other than 0, got %lld (for %s)", call->function,
                     e->ld_name, (long long)e->ld, o->name);
    if (step == 1) {
      if (__builtin_mul_overflow(e->rows, itemsize, &lines->width)) goto overflow;
      lines->pitch = lines->width;
      lines->count = e->rows > 0;
      return OA_OK;
    }
    lines->width = itemsize;
    lines->count = e->rows;
    if (__builtin_mul_overflow(step, itemsize, &lines->pitch) || __builtin_mul_overflow(lines->pitch, e->rows, &span))
      goto overflow;
    return OA_OK;
  }
  if (e->kind == OA_EXTENT_PACKED) {
    int64_t size;
    if (e->rows == INT64_MAX || __builtin_mul_overflow(e->rows, e->rows + 1, &size) ||
        __builtin_mul_overflow(size / 2, itemsize, &size))
      goto overflow;
    lines->width = lines->pitch = size;
    lines->count = size > 0;
    return OA_OK;
  }
  if (__builtin_expect(e->columns < 0, 0)) return fail_negative(call, o, e->columns_name, e->columns);
  if (__builtin_expect(e->ld < (e->rows > 1 ? e->rows : 1), 0))
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs at least %lld (the rows of %s as stored), got %lld", call->function,
                   e->ld_name, (long long)(e->rows > 1 ? e->rows : 1), o->name, (long long)e->ld);
  if (__builtin_mul_overflow(e->ld, itemsize, &lines->pitch) || __builtin_mul_overflow(lines->pitch, e->columns, &span))
    goto overflow;
  lines->width = e->rows * itemsize;
  lines->count = e->rows ? e->columns : 0;
  if (lines->pitch == lines->width) {
    lines->width = lines->pitch = lines->width * lines->count;
    lines->count = lines->count > 0;
  }
  return OA_OK;
overflow:;
  char text[256];
  return oa_fail(OA_ERROR_OVERFLOW, "%s: what %s needs (%s) does not fit 64 bits", call->function, o->name,
                 extent_text(e, text, sizeof text));
}

static __attribute__((cold, noinline)) int fail_extent(const oa_call *call, const oa_operand *o, const oa_slot *slot,
                                                       const oa_lines *lines) {
  char text[256];
  const int64_t itemsize = oa_itemsize(slot->dtype);
  extent_text(&o->extent, text, sizeof text);
  if (oa_lines_span(*lines) > slot->nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld elements (%s), has %lld", call->function, o->name,
                   (long long)(oa_lines_span(*lines) / itemsize), text, (long long)(slot->nbytes / itemsize));
  return oa_fail(OA_ERROR_EXTENT,
                 "%s: %s (%s) would touch elements between the lines of its array, which has %lld elements a line, the "
                 "starts %lld apart; pass its own leading dimension",
                 call->function, o->name, text, (long long)(slot->inside.width / itemsize),
                 (long long)(slot->inside.pitch / itemsize));
}

/* -- checks -- */

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
  if (library->backend)
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on a %s device; open the region with device=\"%s\"",
                   call->function, o->name, device->name, library->backend, library->backend);
  return oa_fail(OA_ERROR_DEVICE,
                 "%s: %s is on %s, and %s works on host memory only; open the region with device=\"host\"",
                 call->function, o->name, device->name, library->name);
}

static int check_device(const oa_call *call, const oa_operand *o, const oa_device *device) {
  const oa_library *library = call->library;
  if (!library) return OA_OK;
  if (library->backend ? strcmp(library->backend, device->backend->name) == 0 : device->backend->flags & OA_HOST_CALLS)
    return OA_OK;
  return fail_device(call, o, device);
}

typedef struct other_device {
  const oa_mapping *mapping;
  const oa_mapping *present, *dirty;
} other_device;

static int note_other(oa_present *element, void *data) {
  other_device *o = data;
  const oa_mapping *m = (const oa_mapping *)element;
  if (m->device == o->mapping->device) return 0;
  o->present = m;
  for (int g = 0; g < m->group_count; g++)
    if (m->groups[g].dirty) o->dirty = m;
  return 0;
}

/* An array may be on several devices for reading, or on one for writing. */
static int check_elsewhere(const oa_call *call, const oa_operand *o, oa_mapping *mapping, bool writes) {
  other_device other = {.mapping = mapping};
  if (!mapping->listed) return OA_OK;
  oa_present_visit(&oa_table, mapping->at.low, mapping->at.high, note_other, &other);
  if (!other.present) mapping->elsewhere = false;
  const oa_mapping *conflict = writes ? other.present : other.dirty;
  if (!conflict) return OA_OK;
  return oa_fail(
      OA_ERROR_DIRECTION,
      "%s: %s is present on %s too%s; an array may be on several devices for reading, or on one for writing: leave "
      "that region first",
      call->function, o->name, conflict->device->name, writes ? "" : ", and was written there");
}

/* Rights and state. Sets *up if the group has to be brought up first. */
static inline int check_access(const oa_call *call, const oa_operand *o, const oa_slot *slot, const oa_lines *lines,
                               bool *up) {
  oa_mapping *mapping = slot->mapping;
  const oa_part *part = &mapping->parts[slot->part];
  const oa_group *group = &mapping->groups[part->group];
  const bool writes = o->access & 2;
  bool whole = false;
  if (writes) {
    if (__builtin_expect(!slot->writes, 0))
      return oa_fail(OA_ERROR_DIRECTION,
                     "%s: %s needs to be writable, but %s was lent as In or is read-only; lend it as InOut",
                     call->function, o->name, part->name);
    if ((o->access & OA_READ_WRITE) == OA_OVERWRITE && group->cover >= 0 && o->extent.kind != OA_EXTENT_TRIANGLE &&
        o->extent.kind != OA_EXTENT_BAND) {
      const oa_lines *all = &mapping->parts[group->cover].lines;
      whole = lines->start == all->start && lines->width == all->width && lines->count == all->count &&
              (lines->count == 1 || lines->pitch == all->pitch);
    }
  }
  *up = !whole && !group->valid;
  if (__builtin_expect(!whole && group->invalid, 0))
    return oa_fail(OA_ERROR_INVALID,
                   "%s: %s was left undefined by a call or region that failed; overwrite it whole before it is used",
                   call->function, o->name);
  if (__builtin_expect(slot->out && !whole && !group->written && !(mapping->escaped && group->valid), 0))
    return oa_fail(OA_ERROR_DIRECTION,
                   (o->access & OA_READ_WRITE) == OA_OVERWRITE
                       ? "%s: %s was lent as Out, but this call does not write every element of %s; lend it as InOut"
                       : "%s: %s was lent as Out and would be read before it is written (%s); lend it as InOut",
                   call->function, o->name, part->name);
  if (__builtin_expect(mapping->elsewhere, 0)) return check_elsewhere(call, o, mapping, writes);
  return OA_OK;
}

static __attribute__((cold, noinline)) int fail_alias(const oa_call *call, const oa_operand *a, const oa_operand *b) {
  const oa_operand *written = (a->access & 2) ? a : b, *other = written == a ? b : a;
  return oa_fail(OA_ERROR_ALIAS, "%s: %s is written and overlaps %s; give it memory of its own", call->function,
                 written->name, other->name);
}

/* Two operands whose hulls meet. lines count from the mapping's address. */
static __attribute__((noinline)) int check_overlap(const oa_call *call, int i, int j, const oa_lines *lines) {
  const oa_operand *a = &call->operands[i], *b = &call->operands[j];
  oa_lines x = lines[i], y = lines[j];
  x.start += (int64_t)((const oa_slot *)a->slot)->mapping->address;
  y.start += (int64_t)((const oa_slot *)b->slot)->mapping->address;
  const bool same = memcmp(&x, &y, sizeof x) == 0;
  if ((same && (a->access & b->access & OA_IN_PLACE)) || oa_lines_disjoint(x, y)) return OA_OK;
  return fail_alias(call, a, b);
}

/* ends[i]: where operand i's last byte ends; its address if it touches none. */
static inline int check_alias(const oa_call *call, const oa_lines *lines, const uintptr_t *ends) {
  for (int i = 1; i < call->count; i++) {
    const oa_operand *a = &call->operands[i];
    for (int j = 0; j < i; j++) {
      const oa_operand *b = &call->operands[j];
      if (ends[i] <= (uintptr_t)b->address || ends[j] <= (uintptr_t)a->address || !((a->access | b->access) & 2))
        continue;
      const int status = check_overlap(call, i, j, lines);
      if (status) return status;
    }
  }
  return OA_OK;
}

/* -- begin -- */

/* A group to bring up: which, and whose. */
typedef struct arrival {
  oa_mapping *mapping;
  int group;
} arrival;

/* Why the group goes up: an operand reads it, or writes a part of it. */
static const char *reason(const oa_call *call, const arrival *a) {
  for (int i = 0; i < call->count; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (slot->mapping == a->mapping && a->mapping->parts[slot->part].group == a->group &&
        (call->operands[i].access & OA_READ))
      return "first read by";
  }
  return "written in part by";
}

/* Notes the reason with what brings the group up, if somebody wants to know; returns count. */
static int with_reason(const oa_call *call, const arrival *a, oa_move *moves, int count) {
  if (call->begun)
    for (int m = 0; m < count; m++) moves[m].trace.why = reason(call, a);
  return count;
}

/* Copies the groups up on stream, or on one of the region's own when they are large; called with the lock, which it frees
 * meanwhile. The mappings are pinned. */
static int bring_up(const oa_call *call, oa_state *region, oa_stream *stream, const arrival *arrivals, int count) {
  oa_device *device = region->device;
  int total = 0, moves = 0, status = OA_OK;
  int64_t bytes = 0;
  bool kept = false;
  for (int i = 0; i < count; i++) total += arrivals[i].mapping->kept ? OA_KEPT_MOVES : arrivals[i].mapping->part_count;
  for (int i = 0; i < count; i++) kept |= arrivals[i].mapping->kept != NULL;
  oa_move *batch = malloc((size_t)total * sizeof *batch);
  if (!batch) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to move its operands", call->function);
  for (int i = 0; i < count; i++) {
    oa_move *own = batch + moves;
    moves += with_reason(call, &arrivals[i], own, oa_group_moves_up(arrivals[i].mapping, arrivals[i].group, own));
    arrivals[i].mapping->moving = true;
  }
  if (kept) {
    oa_unlock();
    for (int i = 0; i < count; i++)
      if (arrivals[i].mapping->kept) {
        oa_move *own = batch + moves;
        moves += with_reason(call, &arrivals[i], own, oa_kept_moves_up(arrivals[i].mapping, own));
      }
    oa_lock();
  }
  for (int m = 0; m < moves; m++) bytes += oa_lines_bytes(batch[m].lines);
  if (bytes >= OA_OVERLAP_BYTES && !(device->backend->flags & OA_SYNCHRONOUS)) {
    if (!region->copies) status = oa_stream_borrow(device, &region->copies);
    if (!status) stream = region->copies; /* the call is ordered after it, as after any other user of its operands */
  }
  for (int i = 0; i < count && !status; i++) status = oa_uses_order(&arrivals[i].mapping->uses, stream, true);
  oa_unlock();
  if (!status) {
    const int64_t begun = oa_trace_begin_up(batch, moves);
    status = oa_transfer_up(device, stream->native, batch, moves);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, batch, moves, call->function, status);
  }
  oa_lock();
  if (!status && !(device->backend->flags & OA_SYNCHRONOUS)) status = oa_stream_advance(stream);
  for (int i = 0; i < count; i++) {
    oa_mapping *mapping = arrivals[i].mapping;
    if (!status && !(device->backend->flags & OA_SYNCHRONOUS)) status = oa_uses_add(&mapping->uses, stream, true);
    if (!status) mapping->groups[arrivals[i].group].valid = true;
    oa_kept_arrived(mapping, !status);
    mapping->moving = false;
  }
  oa_announce_change();
  free(batch);
  return status ? oa_fail_in(status, "%s: bringing up its operands", call->function) : OA_OK;
}

/* A stream of the caller's own as one of the region's foreign streams. */
static int foreign_stream(oa_state *region, void *native, oa_stream **stream) {
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

static void unpin(oa_call *call, int count) {
  for (int i = 0; i < count; i++) ((oa_slot *)call->operands[i].slot)->region->open_calls--;
  oa_announce_change();
}

/* After the checks: the vendor's handle on the right stream, in the right pointer mode. Without the lock. */
static int prepare_library(oa_call *call, oa_device *device, oa_stream *stream, void *used) {
  oa_library *library = call->library;
  int status = OA_OK;
  if (device->backend->enter && (status = device->backend->enter(device, &call->saved))) return status;
  call->saved_mode = -1;
  if (library->create >= 0) {
    const int wanted = call->device_scalars ? library->device_mode : library->host_mode;
    if (used) {
      int mode = wanted;
      call->handle = used;
      status = oa_library_get_mode(library, used, &mode);
      if (!status && mode != wanted && !(status = oa_library_set_mode(library, used, wanted))) call->saved_mode = mode;
    } else {
      call->handle = stream->handles[library->index];
      if (!call->handle) status = oa_library_handle(library, stream, &call->handle);
      if (!status && stream->modes[library->index] != wanted) {
        status = oa_library_set_mode(library, call->handle, wanted);
        if (!status) stream->modes[library->index] = wanted;
      }
    }
  }
  if (status && device->backend->leave) {
    oa_saved_error saved;
    oa_error_save(&saved);
    device->backend->leave(device, call->saved);
    oa_error_restore(&saved);
  }
  return status;
}

int oa_begin(oa_call *call) {
  enum { MOST = 8 };
  oa_lines lines[MOST];
  uintptr_t ends[MOST];
  bool ups[MOST];
  const int count = call->count;
  int status = OA_OK;
  call->open = 0;
  call->begun = oa_trace_begin();
  if (count < 1 || count > MOST)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: a call has 1 to %d operands, got %d", call->function, MOST, count);
  if ((status = oa_core_start())) return status;
  void *used = call->library ? oa_library_used_handle(call->library) : NULL, *used_stream = NULL;
  if (__builtin_expect(used != NULL, 0) && (status = oa_library_handle_stream(call->library, used, &used_stream)))
    return status;
  oa_lock();
again:;
  oa_state *region = NULL;
  oa_device *device = NULL;
  int arriving = 0;
  for (int i = 0; i < count; i++) {
    oa_operand *o = &call->operands[i];
    oa_slot *slot = oa_slot_of(o->pointer, OA_SLOT_POINTER, &status);
    if (__builtin_expect(!slot, 0)) {
      fail_handle(call, o, status);
      goto failed;
    }
    o->slot = slot;
    if (__builtin_expect(o->dtype != slot->dtype && o->dtype != OA_ANY, 0)) {
      status = oa_fail(OA_ERROR_TYPE, "%s: %s needs %s, got a pointer to %s", call->function, o->name,
                       dtype_names[o->dtype], dtype_names[slot->dtype]);
      goto failed;
    }
    oa_state *its = slot->region;
    if (!region) {
      device = its->device;
      if ((status = check_device(call, o, device))) goto failed;
      if (__builtin_expect(device->lost, 0) && (status = oa_device_usable(device))) goto failed;
      region = its;
    } else if (its != region) {
      if (its->device != device) {
        status =
            oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, and %s is on %s; all pointers of a call must be on one device",
                    call->function, o->name, its->device->name, call->operands[0].name, device->name);
        goto failed;
      }
      if (its->serial > region->serial) region = its;
    }
    oa_mapping *mapping = slot->mapping;
    if (o->extent.kind == OA_EXTENT_ALL) {
      lines[i] = slot->inside;
      if (!mapping)
        lines[i].count = 0;
      else if (slot->inside.start != slot->offset || oa_lines_span(slot->inside) != slot->nbytes)
        lines[i] = (oa_lines){slot->offset, slot->nbytes, slot->nbytes, 1};
    } else {
      if ((status = lines_of(call, o, oa_itemsize(slot->dtype), &lines[i]))) goto failed;
      lines[i].start = slot->offset;
      if (!lines[i].width) lines[i].count = 0;
    }
    ups[i] = false;
    if (!lines[i].count) {
      ends[i] = mapping ? (uintptr_t)mapping->address + (uintptr_t)slot->offset : 0;
      o->address = (void *)ends[i];
      continue;
    }
    const int64_t span = oa_lines_span(lines[i]);
    if (__builtin_expect(span > slot->nbytes, 0) ||
        (slot->inside.count > 1 && !oa_lines_contain(slot->inside, lines[i]))) {
      status = fail_extent(call, o, slot, &lines[i]);
      goto failed;
    }
    if (__builtin_expect(mapping->moving, 0)) {
      oa_wait_change();
      goto again;
    }
    if (__builtin_expect(mapping->leaving != NULL, 0) && (o->access & 2)) {
      oa_region_complete(mapping->leaving);
      goto again;
    }
    if (__builtin_expect(mapping->failed, 0)) {
      status = oa_fail(OA_ERROR_MEMORY, "%s: the memory of %s could not be had by the region that lent it first",
                       call->function, o->name);
      goto failed;
    }
    const uintptr_t address = (uintptr_t)mapping->address + (uintptr_t)slot->offset;
    o->address = (void *)address;
    ends[i] = address + (uintptr_t)span;
    if ((status = check_access(call, o, slot, &lines[i], &ups[i]))) goto failed;
    arriving += ups[i];
  }
  if (count > 1 && (status = check_alias(call, lines, ends))) goto failed;

  oa_stream *stream = region->calls;
  if (__builtin_expect(used != NULL, 0) && (status = foreign_stream(region, used_stream, &stream))) goto failed;
  const bool synchronous = device->backend->flags & OA_SYNCHRONOUS;
  int capturing = 0;
  if (__builtin_expect(stream->number < 0, 0)) {
    if ((status = device->backend->stream_capturing(device, stream->native, &capturing))) goto failed;
    if (capturing && arriving) {
      status =
          oa_fail(OA_ERROR_CAPTURE,
                  "%s: the stream is capturing a graph and an operand would have to be copied up; use it once before "
                  "the capture begins",
                  call->function);
      goto failed;
    }
  }
  for (int i = 0; i < count; i++) {
    ((oa_slot *)call->operands[i].slot)->region->open_calls++;
    call->operands[i].touched = lines[i].count > 0;
  }
  if (__builtin_expect(arriving, 0)) {
    arrival arrivals[MOST];
    int groups = 0;
    for (int i = 0; i < count; i++) {
      if (!ups[i]) continue;
      const oa_slot *slot = call->operands[i].slot;
      const arrival a = {slot->mapping, slot->mapping->parts[slot->part].group};
      int at = 0;
      while (at < groups && (arrivals[at].mapping != a.mapping || arrivals[at].group != a.group)) at++;
      arrivals[at] = a;
      groups += at == groups;
    }
    if ((status = bring_up(call, region, stream, arrivals, groups))) goto unpinned;
  }
  if (!synchronous && !capturing) {
    for (int i = 0; i < count; i++) {
      const oa_slot *slot = call->operands[i].slot;
      if (!lines[i].count) continue;
      const oa_uses *uses = &slot->mapping->uses;
      if (uses->count == 1 && uses->first.stream == stream) continue;
      if ((status = oa_uses_order(uses, stream, call->operands[i].access & 2))) goto unpinned;
    }
  }
  call->device = device;
  call->stream = stream;
  call->region = region;
  oa_unlock();
  if (call->library && (status = prepare_library(call, device, stream, used))) {
    oa_lock();
    goto unpinned;
  }
  call->open = capturing ? 2 : 1;
  return OA_OK;

unpinned:
  unpin(call, count);
failed:
  oa_unlock();
  return status;
}

int oa_end(oa_call *call, int vendor_status) {
  if (!call->open) return oa_fail(OA_ERROR_ARGUMENT, "%s: oa_end without an oa_begin that succeeded", call->function);
  oa_device *device = call->device;
  oa_stream *stream = call->stream;
  const bool capturing = call->open == 2;
  const uint64_t serial = __builtin_expect(call->begun != 0, 0) ? ((const oa_state *)call->region)->serial : 0;
  int status = OA_OK;
  call->open = 0;
  if (call->library) {
    if (__builtin_expect(call->saved_mode >= 0, 0))
      status = oa_library_set_mode(call->library, call->handle, call->saved_mode);
    if (device->backend->leave) {
      const int left = device->backend->leave(device, call->saved);
      if (!status) status = left;
    }
    device->counts.calls++;
  }
  oa_lock();
  const bool synchronous = device->backend->flags & OA_SYNCHRONOUS;
  if (!synchronous && !capturing) {
    const int advanced = oa_stream_advance(stream);
    if (!status) status = advanced;
  }
  for (int i = 0; i < call->count; i++) {
    oa_operand *o = &call->operands[i];
    oa_slot *slot = o->slot;
    slot->region->open_calls--;
    if (!o->touched) continue;
    oa_mapping *mapping = slot->mapping;
    const bool writes = o->access & 2;
    if (!synchronous && !capturing) {
      oa_use *use = &mapping->uses.first;
      if (mapping->uses.count == 1 && use->stream == stream)
        *(writes ? &use->written : &use->read) = stream->ticket;
      else if (oa_uses_add(&mapping->uses, stream, writes))
        status = OA_ERROR_MEMORY;
    }
    if (capturing) mapping->escaped = true; /* the graph may run at any time: leaving waits for the device */
    if (!writes) continue;
    oa_group *group = &mapping->groups[mapping->parts[slot->part].group];
    oa_slot_root(slot)->wrote = true;
    group->written = group->dirty = true;
    if (__builtin_expect(vendor_status != 0, 0)) {
      group->invalid = true;
    } else if (!group->valid || group->invalid) { /* a whole overwrite: begin let nothing else pass */
      group->valid = true;
      group->invalid = false;
    }
  }
  oa_announce_change();
  oa_unlock();
  if (__builtin_expect(serial != 0, 0))
    oa_trace_note(call->library ? OA_TRACE_CALL : OA_TRACE_ACCESS, call->begun, device, serial, 0, call->function, NULL,
                  0, vendor_status);
  if (vendor_status && call->library) {
    char text[128];
    oa_library_status_text(call->library, vendor_status, text, sizeof text);
    return oa_fail(OA_ERROR_LIBRARY, "%s: the library answered %s; what the call writes counts as undefined",
                   call->function, text);
  }
  return status;
}

int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size) {
  if (!call->open)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: oa_submit without an oa_begin that succeeded", call->function);
  oa_device *device = call->device;
  if (device->backend->flags & OA_SYNCHRONOUS) {
    run(arguments);
    return oa_end(call, 0);
  }
  void *native = ((oa_stream *)call->stream)->native;
  int status = device->backend->submit(device, native, run, arguments, size);
  if (!status && call->blocking)
    status = oa_trace_synchronize(device, native, ((const oa_state *)call->region)->serial, call->function);
  if (!status) return oa_end(call, 0);
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_end(call, -1);
  oa_error_restore(&saved);
  return oa_fail_in(status, "%s", call->function);
}
