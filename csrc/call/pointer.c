/* Pointers: making slices, giving addresses to code outside, assigning values of the host. */
#include "base/number.h"
#include "base/sized.h"
#include "call/call.h"
#include "device/memory.h"
#include "region/slot.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>
#include <string.h>

int oa_pointer_view(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides,
                    oa_any **view) {
  int status;
  if (!view) return oa_fail_null("oa_pointer_view", "view");
  if (ndim > 0 && (!shape || !strides)) return oa_fail_null("oa_pointer_view", shape ? "strides" : "shape");
  oa_slot *slot = oa_slot_enter("oa_pointer_view", "pointer", pointer, &status);
  if (!slot) return status;
  oa_layout layout;
  const int64_t itemsize = oa_itemsize(slot->dtype);
  status = oa_layout_of(ndim, shape, strides, itemsize, &layout);
  int64_t low = 0, end = 0;
  if (status == OA_ERROR_ARGUMENT) {
    oa_fail(status, "oa_pointer_view: shape has a negative extent, or more than %d dimensions", OA_MAX_DIMENSIONS);
  } else if (status || __builtin_add_overflow(offset, layout.low, &low) ||
             __builtin_add_overflow(low, layout.span, &end)) {
    status = oa_fail(OA_ERROR_OVERFLOW, "oa_pointer_view: shape and strides reach further than 64 bits can say");
  } else if (low < 0 || end > slot->nbytes) {
    status = oa_fail(OA_ERROR_EXTENT, "oa_pointer_view: the view needs bytes %lld to %lld, the pointer has %lld",
                     (long long)low, (long long)end, (long long)slot->nbytes);
  } else {
    oa_slot *made = oa_slot_take(slot->region, OA_SLOT_POINTER);
    if (!made) {
      status = OA_ERROR_MEMORY;
    } else {
      const int64_t start = slot->offset + low;
      const oa_lines lines = {start, layout.lines.width, layout.lines.pitch, layout.lines.count};
      made->irregular = !layout.regular || !oa_lines_contain(slot->inside, lines);
      oa_slot_point(made, slot->dtype, layout.span ? slot->mapping : NULL, slot->view,
                    made->irregular ? slot->inside : lines);
      made->reads = slot->reads;
      made->writes = slot->writes;
      made->out = slot->out;
      made->root = slot->root;
      if (oa_slot_is_scalar(made)) made->mapping->pointers++;
      made->offset = start;
      made->nbytes = layout.span;
      *view = oa_slot_handle(made);
    }
  }
  oa_unlock();
  return status;
}

int oa_pointer_release(oa_any *view) {
  int status = OA_OK;
  if (atomic_load(&oa_forked)) return OA_OK;
  oa_lock();
  oa_slot *slot = oa_slot_of(view, OA_SLOT_POINTER, &status);
  if (!slot) {
    if (status == OA_ERROR_STALE)
      status = OA_OK; /* it ended with its region */
    else
      oa_fail(status, "oa_pointer_release: view needs what oa_pointer_view gave, got the address %p", (void *)view);
  } else if (oa_slot_root(slot) == slot && !oa_slot_is_scalar(slot)) {
    status =
        oa_fail(OA_ERROR_ARGUMENT,
                "oa_pointer_release: view is a region's own pointer, which ends with its region; leave the region");
  } else if (slot->calls) {
    slot->kind = OA_SLOT_DESTROYED;
    status = OA_OK;
  } else {
    status = oa_slot_destroy(slot);
  }
  oa_unlock();
  return status;
}

int oa_pointer_query(const oa_any *pointer, oa_pointer_info *info) {
  oa_pointer_info now;
  int status;
  if ((status = oa_sized_check("oa_pointer_query", "info", info, OA_FIRST_POINTER_INFO, sizeof now))) return status;
  oa_slot *slot = oa_slot_enter("oa_pointer_query", "pointer", pointer, &status);
  if (!slot) return status;
  const oa_mapping *mapping = slot->mapping;
  const oa_group *group = slot->group;
  now = (oa_pointer_info){.device = slot->region->device->number,
                          .dtype = slot->dtype,
                          .readable = slot->reads,
                          .writable = slot->writes,
                          .borrowed = mapping && mapping->kind == OA_MAPS_BORROWED,
                          .escaped = mapping && mapping->escaped,
                          .nbytes = slot->nbytes,
                          .scratch = mapping && mapping->kind == OA_MAPS_SCRATCH,
                          .valid = group && group->valid && !group->invalid,
                          .written = group && group->written};
  oa_unlock();
  oa_sized_write(info, &now);
  return OA_OK;
}

/* Fills a group with zeros, before its first use. */
static int clear(const oa_mapping *mapping, int group, void *stream) {
  int status = OA_OK;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_lines lines = mapping->views[i].lines;
    if (mapping->views[i].group != group) continue;
    if (mapping->arena && mapping->arena->block) { /* a block is memory of this process */
      for (int64_t line = 0; line < lines.count; line++)
        memset((char *)(uintptr_t)mapping->address + lines.start + line * lines.pitch, 0, (size_t)lines.width);
      continue;
    }
    if (!status)
      status = mapping->device->backend->fill(mapping->device, stream, mapping->address + (uint64_t)lines.start,
                                              (size_t)lines.pitch, 0, 1, (size_t)lines.width, (size_t)lines.count);
  }
  return status;
}

/* Brings the pointer's bytes up, marks its mapping as escaped and returns its address. keep: NULL, or where to put a
 * share of the memory. */
static int escape(const char *function, const oa_any *pointer, uint64_t *address, void **keep) {
  int status;
  if (!address) return oa_fail_null(function, "address");
  oa_slot *slot = oa_slot_enter(function, "pointer", pointer, &status);
  if (!slot) return status;
  const bool empty = !slot->mapping;
  oa_unlock();
  if (empty) {
    *address = 0;
    return OA_OK;
  }
  oa_operand operand = {
      .name = "pointer", .pointer = pointer, .access = OA_READ | OA_ADDRESS_ONLY, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if ((status = oa_begin(&call))) return status;
  slot = operand.slot;
  oa_mapping *mapping = slot->mapping;
  oa_stream *stream = call.stream;
  const bool blank = oa_writes(operand.access); /* oa_begin found an Out without bytes */
  const bool in_place = mapping->arena && mapping->arena->block;
  oa_lock();
  const uint64_t ticket = stream->ticket;
  const bool over = oa_uses_over(&mapping->uses, stream) && !((const oa_region_state *)call.region)->foreign;
  const int group = mapping->views[slot->view].group;
  const bool fill = blank && !(mapping->zeros && !mapping->groups[group].written);
  const bool wait = !over || (fill && !in_place);
  mapping->cleared |= blank;
  if (fill || wait) {
    oa_unlock();
    if (fill) status = clear(mapping, group, stream->native);
    if (!status && wait) status = oa_device_wait_stream(mapping->device, stream->native, mapping->serial, function);
    if (status) {
      oa_call_cancel(&call);
      return status;
    }
    oa_lock();
  }
  call.open = OA_CALL_UNNOTED; /* its work was waited for */
  if (wait) oa_stream_waited(stream, ticket);
  oa_slot *share = keep ? oa_slot_take(NULL, OA_SLOT_EXPORT) : NULL;
  if (share) {
    share->mapping = mapping;
    mapping->exports++;
    *keep = oa_slot_handle(share);
  }
  mapping->escaped = true;
  slot->group->escaped |= slot->writes;
  *address = mapping->address + (uint64_t)slot->offset;
  oa_unlock();
  status = oa_end(&call, 0);
  return keep && !share ? OA_ERROR_MEMORY : status;
}

int oa_address(const oa_any *pointer, uint64_t *address) { return escape("oa_address", pointer, address, NULL); }

int oa_export(const oa_any *pointer, uint64_t *address, void **keep) {
  if (!keep) return oa_fail_null("oa_export", "keep");
  *keep = NULL;
  return escape("oa_export", pointer, address, keep);
}

int oa_export_release(void *keep) {
  if (!keep || atomic_load(&oa_forked)) return OA_OK;
  int status = OA_OK;
  oa_lock();
  oa_slot *share = oa_slot_of(keep, OA_SLOT_EXPORT, &status);
  if (!share) {
    oa_unlock();
    return oa_fail(status, "oa_export_release: keep needs what oa_export gave, once; got %p", keep);
  }
  oa_mapping *mapping = share->mapping;
  oa_slot_free(share);
  const bool last = --mapping->exports == 0 && mapping->references == 0;
  oa_unlock();
  if (!last) return OA_OK;
  if (mapping->kind != OA_MAPS_BORROWED) status = mapping->device->backend->synchronize(mapping->device);
  oa_lock();
  oa_stream *stream = NULL;
  if (oa_stream_take(mapping->device, &stream) == OA_OK) {
    const int freed = oa_mapping_free(mapping, stream, false);
    oa_stream_return(stream);
    if (!status) status = freed;
  }
  oa_unlock();
  return status;
}

/* Copies the elements of an array up, and none of its gaps, from an image of it that is laid out as on the device. */
static int send_pieces(oa_call *call, char *image, oa_pieces pieces) {
  enum { AT_ONCE = 64 };
  oa_move moves[AT_ONCE];
  const oa_slot *target = call->operands->slot;
  oa_device *device = call->device;
  void *stream = ((oa_stream *)call->stream)->native;
  int status = OA_OK, count = 0;
  oa_lines lines;
  do {
    for (count = 0; count < AT_ONCE && oa_pieces_next(&pieces, &lines, NULL); count++)
      moves[count] = (oa_move){.host = image + lines.start,
                               .address = (uint64_t)(uintptr_t)call->operands->address + (uint64_t)lines.start,
                               .lines = {0, lines.width, lines.pitch, lines.count},
                               .name = target->mapping->views[target->view].name,
                               .trace = {.why = "assign", .region = target->mapping->serial, .is_copy = true}};
    const int64_t begun = oa_trace_begin_up(moves, count);
    if (count) status = oa_transfer_up(device, stream, moves, count);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, moves, count, NULL, status);
  } while (count == AT_ONCE && !status);
  return status;
}

/* Returns whether every piece lies within the pointer's own bytes. */
static bool are_inside(const oa_slot *slot, oa_pieces pieces) {
  oa_lines lines;
  while (oa_pieces_next(&pieces, &lines, NULL)) {
    lines.start += slot->offset;
    if (!oa_lines_contain(slot->inside, lines)) return false;
  }
  return true;
}

int oa_pointer_assign(oa_any *pointer, const void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  const char *const function = "oa_pointer_assign";
  int status;
  if (!values) return oa_fail_null(function, "values");
  if (ndim > 0 && (!shape || !strides)) return oa_fail_null(function, shape ? "strides" : "shape");
  oa_slot *slot = oa_slot_enter(function, "pointer", pointer, &status);
  if (!slot) return status;
  const int64_t itemsize = oa_itemsize(slot->dtype), nbytes = slot->nbytes;
  oa_unlock();
  oa_layout layout;
  if ((status = oa_layout_of(ndim, shape, strides, itemsize, &layout)))
    return oa_fail(status, "%s: shape and strides are not those of an array", function);
  if (layout.span > nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: the values need %lld bytes, the pointer has %lld", function,
                   (long long)layout.span, (long long)nbytes);
  if (layout.overlapping)
    return oa_fail(OA_ERROR_ALIAS, "%s: two indices of the pointer name the same element", function);
  if (layout.size == 0) return OA_OK;
  oa_any *target;
  if ((status = oa_pointer_view(pointer, -layout.low, ndim, shape, strides, &target))) return status;
  char *image = malloc((size_t)layout.span);
  if (!image) status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld bytes", function, (long long)layout.span);
  oa_operand operand = {
      .name = "pointer", .pointer = target, .access = OA_OVERWRITE, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if (!status && !(status = oa_begin(&call))) {
    oa_pieces pieces;
    oa_pieces_start(&pieces, ndim, shape, strides, NULL, itemsize);
    if (are_inside(operand.slot, pieces)) {
      oa_scatter(image - layout.low, values, ndim, shape, strides, itemsize, 0, layout.size);
      if ((status = send_pieces(&call, image, pieces))) oa_fail_in(status, "%s: pointer", function);
      const int ended = oa_end(&call, status);
      if (!status) status = ended;
    } else {
      oa_call_cancel(&call);
      status = oa_fail(OA_ERROR_EXTENT, "%s: shape and strides reach elements between the lines of the pointer's array",
                       function);
    }
  }
  free(image);
  oa_pointer_release(target);
  return status;
}

int oa_is_host_zero(const void *pointer) {
  int status;
  if (oa_core_start()) return 0;
  oa_lock();
  const oa_slot *slot = oa_slot_of(pointer, OA_SLOT_POINTER, &status);
  const int zero = slot && slot->zero && !slot->wrote && !slot->mapping->escaped;
  oa_unlock();
  return zero;
}

/* Returns the pointer to a new device scalar of the region, which has no memory yet; NULL with the text set. */
static oa_slot *make_scalar(oa_region_state *region, const void *value, int dtype) {
  const int64_t nbytes = oa_itemsize(dtype);
  oa_mapping *mapping = oa_mapping_new(region->device, OA_MAPS_SCALAR, nbytes);
  oa_slot *made = mapping ? oa_slot_take(region, OA_SLOT_POINTER) : NULL;
  if (!made || oa_region_attach(region, mapping)) {
    if (made) oa_slot_free(made);
    if (mapping) oa_mapping_free(mapping, region->stream, false);
    return NULL;
  }
  oa_slot_point(made, dtype, mapping, 0, (oa_lines){0, nbytes, nbytes, 1});
  made->reads = made->writes = true;
  made->zero = oa_number_is_zero(value, dtype);
  made->nbytes = nbytes;
  mapping->groups[0].valid = true;
  mapping->views[0].lines = made->inside;
  mapping->holders = mapping->references = 1;
  return made;
}

/* Allocates a device scalar, and copies its value up. Called with the lock, which it frees meanwhile. */
static int send_scalar(oa_slot *made, const void *value) {
  const oa_region_state *region = made->region;
  oa_mapping *mapping = made->mapping;
  oa_device *device = region->device;
  oa_stream *stream = region->stream;
  oa_move move = {
      .host = (void *)value,
      .lines = made->inside,
      .name = "a scalar",
      .trace = {.why = "for a call whose scalars are on the device", .region = region->serial, .is_copy = true}};
  oa_slot_hold(made, NULL); /* the region can't end until the value is on its way */
  oa_unlock();
  int status = oa_device_allocate(device, stream->native, (size_t)made->nbytes, &move.address);
  const uint64_t address = status ? 0 : move.address;
  if (!status) {
    const int64_t begun = oa_trace_begin_up(&move, 1);
    status = oa_transfer_up(device, stream->native, &move, 1);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, &move, 1, NULL, status);
  }
  oa_lock();
  mapping->address = address;
  if (!status && !(device->backend->flags & OA_SYNCHRONOUS)) {
    status = oa_stream_advance(stream);
    if (!status) status = oa_uses_add(&mapping->uses, stream, true);
  }
  oa_slot_unhold(made, false);
  oa_announce_change();
  return status;
}

int oa_stage(const oa_any *pointer, const void *value, int dtype, oa_any **staged) {
  const char *const function = "oa_stage";
  int status;
  if (!oa_itemsize(dtype)) return oa_fail(OA_ERROR_TYPE, "%s: dtype %d is not an oa_dtype", function, dtype);
  if (!value || !staged) return oa_fail_null(function, value ? "staged" : "value");
  oa_slot *slot = oa_slot_enter(function, "pointer", pointer, &status);
  if (!slot) return status;
  oa_slot *made = make_scalar(slot->region, value, dtype);
  if (made) *staged = oa_slot_handle(made);
  status = made ? send_scalar(made, value) : OA_ERROR_MEMORY;
  oa_unlock();
  if (status && made) {
    oa_saved_error saved;
    oa_error_save(&saved);
    oa_pointer_release(*staged);
    oa_error_restore(&saved);
  }
  return status;
}
