/* Pointers: making slices, exposing addresses to code outside, assigning values of the host. */
#include "base/number.h"
#include "base/sized.h"
#include "call/call.h"
#include "device/memory.h"
#include "region/capture.h"
#include "region/coherent.h"
#include "region/guard.h"
#include "region/leave.h"
#include "region/separate.h"
#include "region/slot.h"
#include "region/update.h"
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
  if (status == OA_ERROR_ARGUMENT && (ndim < 0 || ndim > OA_MAX_DIMENSIONS)) {
    oa_fail(status, "oa_pointer_view: ndim needs to be from 0 to %d, got %d", OA_MAX_DIMENSIONS, ndim);
  } else if (status == OA_ERROR_ARGUMENT) {
    oa_fail(status, "oa_pointer_view: shape has a negative extent");
  } else if (status || __builtin_add_overflow(offset, layout.low, &low) ||
             __builtin_add_overflow(low, layout.span, &end)) {
    status = oa_fail(OA_ERROR_OVERFLOW, "oa_pointer_view: shape and strides reach further than 64 bits can say");
  } else if (low < 0 || end > slot->nbytes) {
    status = oa_fail(OA_ERROR_EXTENT, "oa_pointer_view: the view needs bytes %lld to %lld, the pointer has %lld",
                     (long long)low, (long long)end, (long long)slot->nbytes);
  } else {
    oa_slot *slice = oa_slot_take(slot->region, OA_SLOT_POINTER);
    if (!slice) {
      status = OA_ERROR_MEMORY;
    } else {
      const int64_t start = slot->offset + low;
      const oa_lines lines = {start, layout.lines.width, layout.lines.pitch, layout.lines.count};
      slice->irregular = !layout.regular || !oa_lines_contain(slot->inside, lines);
      oa_slot_point(slice, slot->dtype, layout.span ? slot->mapping : NULL, slot->view,
                    slice->irregular ? slot->inside : lines);
      slice->reads = slot->reads;
      slice->writes = slot->writes;
      slice->out = slot->out;
      if (oa_slot_is_counted(slice))
        slice->mapping->pointers++; /* `pointer` may end first, so the slice is a root itself */
      else
        slice->root = slot->root;
      slice->offset = start;
      slice->nbytes = layout.span;
      if ((status = oa_slot_shape(slice, ndim, shape, strides)))
        oa_slot_destroy(slice);
      else
        *view = oa_slot_handle(slice);
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
      status = OA_OK; /* the slice ended with its region */
    else
      oa_fail(status, "oa_pointer_release: view needs a pointer from oa_pointer_view, got the address %p",
              (void *)view);
  } else if (oa_slot_root(slot) == slot && !oa_slot_is_counted(slot)) {
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

/* Returns whether the host may write the pointer's array during an oa_update. */
static bool host_writes(const oa_mapping *mapping) {
  return mapping && mapping->listed && oa_host_writes(mapping->at.low, mapping->at.high);
}

/* Returns how many bytes of some lines of a group are not on the device, and at most `most`. */
static int64_t missing_of(const oa_group *group, oa_lines lines, int64_t most) {
  oa_parts *rest = NULL;
  const int64_t own = oa_lines_bytes(lines);
  if (own < most) most = own;
  if (!oa_group_present(group) || !oa_parts_missing(oa_group_present(group), lines, &rest)) return most;
  const int64_t missing = oa_parts_bytes(rest);
  oa_parts_free(rest);
  return missing < most ? missing : most;
}

/* Returns at most how many of the pointer's bytes may go up in parts, under other calls: none for a graph, in an update
 * by the host, or on a device that computes at once. */
static int64_t lacking(const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  const oa_device *device = slot->region->device;
  if (!mapping || slot->irregular || device->backend->flags & OA_SYNCHRONOUS || slot->region->capture ||
      (device->known_streams && !oa_part_cost.is_configured))
    return 0;
  const int64_t lacks = oa_group_lacks(mapping, slot->group);
  if (!lacks || oa_capture_concerns(mapping) || host_writes(mapping)) return 0;
  return missing_of(slot->group, slot->inside, lacks);
}

/* Returns whether a call may overwrite a part of the pointer's array, and nothing goes up for the rest. */
static bool is_written_in_parts(const oa_slot *slot) {
  const oa_group *group = slot->group;
  if (!slot->mapping || slot->irregular || !slot->writes) return false;
  return group->valid ? !group->invalid : oa_group_takes_part(slot->mapping, group, slot->inside);
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
                          .written = group && group->written,
                          .captured = slot->region->capture != NULL,
                          .in_parts = is_written_in_parts(slot),
                          .lacking = lacking(slot),
                          .host_writes = host_writes(mapping),
                          .packed = mapping && oa_slot_view(slot)->shape,
                          .shared = mapping && mapping->serial != slot->region->serial};
  oa_unlock();
  oa_sized_write(info, &now);
  return OA_OK;
}

/* Returns the leading dimension of a matrix of `lines` lines with `length` elements each; 0 if it has none. The
 * elements of a line are `step` bytes apart, and the lines are `apart` bytes apart. */
static int64_t leading_dimension(int64_t length, int64_t lines, int64_t step, int64_t apart, int64_t itemsize) {
  int64_t bytes;
  if (length == 0 || lines == 0) return length ? length : 1; /* strides of an empty array may be 0 */
  if (length > 1 && step != itemsize) return 0;
  if (lines == 1) return length;
  if (__builtin_mul_overflow(length, itemsize, &bytes) || apart < bytes || apart % itemsize != 0) return 0;
  return apart / itemsize;
}

/* Fills in the description of a vector or a matrix for BLAS. */
static void describe(oa_pointer_layout *layout, int64_t itemsize) {
  const int64_t *const shape = layout->shape, *const strides = layout->strides;
  if (layout->ndim == 1) {
    layout->rows = shape[0];
    layout->columns = 1;
    if (shape[0] <= 1)
      layout->inc = 1;
    else if (strides[0] % itemsize == 0)
      layout->inc = strides[0] / itemsize;
  } else if (layout->ndim == 2) {
    layout->rows = shape[0];
    layout->columns = shape[1];
    layout->ld = leading_dimension(shape[0], shape[1], strides[0], strides[1], itemsize);
    layout->ld_by_rows = leading_dimension(shape[1], shape[0], strides[1], strides[0], itemsize);
  }
}

int oa_pointer_get_layout(const oa_any *pointer, oa_pointer_layout *layout) {
  const char *const function = "oa_pointer_get_layout";
  oa_pointer_layout now = {0};
  int status;
  if ((status = oa_sized_check(function, "layout", layout, OA_FIRST_POINTER_LAYOUT, sizeof now))) return status;
  const oa_slot *slot = oa_slot_enter(function, "pointer", pointer, &status);
  if (!slot) return status;
  enum { MOST = sizeof now.shape / sizeof *now.shape };
  const oa_dimensions *dimensions = oa_slot_dimensions(slot);
  const int64_t *from = dimensions->many ? dimensions->many : dimensions->few;
  now.dtype = slot->dtype;
  now.ndim = dimensions->ndim;
  for (int i = 0; i < now.ndim && i < MOST; i++) {
    now.shape[i] = from[i];
    now.strides[i] = from[now.ndim + i];
  }
  const int64_t itemsize = slot->itemsize;
  oa_unlock();
  describe(&now, itemsize);
  oa_sized_write(layout, &now);
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

/* Brings the pointer's bytes up, marks its mapping as escaped and returns its address. `keep`: NULL, or the place for a
 * share of the memory. */
static int escape(const char *function, const oa_any *pointer, uint64_t *address, void **keep) {
  int status;
  if (!address) return oa_fail_null(function, "address");
  oa_slot *slot = oa_slot_enter(function, "pointer", pointer, &status);
  if (!slot) return status;
  const bool empty = !slot->mapping;
  while (keep && !empty && oa_is_coherent(slot->mapping)) {
    status = oa_coherent_separate(function, slot);
    oa_unlock();
    if (status && status != OA_LOOK_AGAIN) return status;
    if (!(slot = oa_slot_enter(function, "pointer", pointer, &status))) return status;
  }
  oa_unlock();
  if (empty) {
    *address = 0;
    return OA_OK;
  }
  oa_operand operand = {
      .name = "pointer", .pointer = pointer, .access = OA_READ | OA_ADDRESS_ONLY, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function,
                  .operands = &operand,
                  .count = 1,
                  .uncaptured = "its work would have to be waited for; take the address before the capture begins"};
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
      if (fill) oa_device_quiesce(mapping->device); /* the zeros are not noted as a use of the memory */
      if (fill) oa_coherent_restore(mapping, slot->group);
      return oa_call_fail(&call, status);
    }
    oa_lock();
  }
  call.open = OA_CALL_UNNOTED; /* the call's work was waited for */
  if (wait) oa_stream_waited(stream, ticket);
  oa_slot *share = keep ? oa_slot_take(NULL, OA_SLOT_EXPORT) : NULL;
  if (share) {
    share->mapping = mapping;
    mapping->exports++;
    *keep = oa_slot_handle(share);
  }
  mapping->escaped = true;
  mapping->waited = false;
  slot->group->escaped |= slot->writes;
  if (slot->writes && mapping->guard && !oa_host_writes(mapping->at.low, mapping->at.high))
    oa_guard_arm(mapping, slot->group, true);
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

/* Frees the memory of an export without other users, after the work of code that may use it. */
static int end_export(oa_mapping *mapping) {
  int status = OA_OK;
  if (mapping->kind != OA_MAPS_BORROWED)
    status = oa_device_wait(mapping->device, mapping->serial, "the end of an export");
  oa_lock();
  oa_stream *stream = NULL;
  mapping->waits = status == OA_ERROR_CAPTURE;
  if (!mapping->waits && oa_stream_take(mapping->device, &stream) == OA_OK) {
    const int freed = oa_mapping_free(mapping, stream, false);
    oa_stream_return(stream);
    if (!status) status = freed;
  }
  oa_unlock();
  return status == OA_ERROR_CAPTURE ? OA_OK : status;
}

/* Returns a mapping whose export ended while a stream was captured, so that the device could not be waited for; NULL:
 * there is none. */
static oa_mapping *next_waiting(void) {
  oa_lock();
  oa_mapping *mapping = oa_mappings;
  while (mapping && !(mapping->waits && !oa_streams_check(mapping->device, "", false))) mapping = mapping->next;
  if (mapping) mapping->waits = false;
  oa_unlock();
  return mapping;
}

int oa_export_release(void *keep) {
  if (!keep || atomic_load(&oa_forked)) return OA_OK;
  int status = OA_OK;
  for (oa_mapping *waiting; !status && (waiting = next_waiting());) status = end_export(waiting);
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
  const int ended = last ? end_export(mapping) : OA_OK;
  return ended ? ended : status;
}

/* Copies the elements of an array up without its gaps, from an image with the device's layout. */
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

/* Copies the same elements up in a call that is captured. The graph keeps the image. */
static int send_in_graph(const oa_call *call, const char *image, size_t nbytes, oa_pieces pieces) {
  oa_device *device = call->device;
  oa_stream *stream = call->stream;
  const uint64_t to = (uint64_t)(uintptr_t)call->operands->address;
  void *kept;
  int status = oa_capture_keep(oa_capture_of(call->region, stream), nbytes, &kept);
  oa_lines lines;
  if (status) return status;
  memcpy(kept, image, nbytes);
  while (!status && oa_pieces_next(&pieces, &lines, NULL))
    status = device->backend->copy_up_later(device, stream->native, to + (uint64_t)lines.start, (size_t)lines.pitch,
                                            (const char *)kept + lines.start, (size_t)lines.pitch, (size_t)lines.width,
                                            (size_t)lines.count);
  return status;
}

/* Returns whether every piece is within the pointer's own bytes. */
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
    return oa_fail(status, "%s: shape and strides do not describe an array", function);
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
  oa_call call = {.function = function,
                  .operands = &operand,
                  .count = 1,
                  .special = OA_KEEPS_VALUES,
                  .uncaptured = "the values would be gone when the graph runs; assign them outside of the capture"};
  if (!status && !(status = oa_begin(&call))) {
    oa_pieces pieces;
    oa_pieces_start(&pieces, ndim, shape, strides, NULL, itemsize);
    if (are_inside(operand.slot, pieces)) {
      oa_scatter(image - layout.low, values, ndim, shape, strides, itemsize, 0, layout.size);
      status = call.open == OA_CALL_CAPTURED ? send_in_graph(&call, image, (size_t)layout.span, pieces)
                                             : send_pieces(&call, image, pieces);
      if (status) oa_fail_in(status, "%s: pointer", function);
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
  if (oa_core_start(__func__)) return 0;
  oa_lock();
  const oa_slot *slot = oa_slot_of(pointer, OA_SLOT_POINTER, &status);
  const int zero = slot && slot->zero && !slot->wrote && !slot->group->written && !slot->mapping->escaped;
  oa_unlock();
  return zero;
}

/* Returns the pointer to a new device scalar of the region; NULL with the text set. The scalar has no memory yet. */
static oa_slot *make_scalar(oa_region_state *region, const void *value, int dtype) {
  const int64_t nbytes = oa_itemsize(dtype);
  oa_mapping *mapping = oa_mapping_new(region->device, OA_MAPS_SCALAR, nbytes);
  oa_slot *scalar = mapping ? oa_slot_take(region, OA_SLOT_POINTER) : NULL;
  if (!scalar || oa_region_attach(region, mapping)) {
    if (scalar) oa_slot_free(scalar);
    if (mapping) oa_mapping_free(mapping, region->stream, false);
    return NULL;
  }
  oa_slot_point(scalar, dtype, mapping, 0, (oa_lines){0, nbytes, nbytes, 1});
  scalar->reads = scalar->writes = true;
  scalar->zero = oa_number_is_zero(value, dtype);
  scalar->nbytes = nbytes;
  mapping->counted = true;
  mapping->groups[0].valid = true;
  mapping->views[0].lines = scalar->inside;
  mapping->holders = mapping->references = 1;
  return scalar;
}

/* Allocates a device scalar, and copies its value up. Called with the lock, which it frees and takes again. */
static int send_scalar(oa_slot *scalar, const void *value) {
  const oa_region_state *region = scalar->region;
  oa_mapping *mapping = scalar->mapping;
  oa_device *device = region->device;
  oa_stream *stream = region->stream;
  oa_move move = {
      .host = (void *)value,
      .lines = scalar->inside,
      .name = "a scalar",
      .trace = {.why = "for a call whose scalars are on the device", .region = region->serial, .is_copy = true}};
  oa_slot_hold(scalar, NULL); /* the region can't end until the copy of the value is issued */
  oa_unlock();
  int status = oa_device_allocate(device, stream->native, (size_t)scalar->nbytes, &move.address);
  const uint64_t address = status ? 0 : move.address;
  if (!status) {
    const int64_t begun = oa_trace_begin_up(&move, 1);
    status = oa_transfer_up(device, stream->native, &move, 1);
    if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, &move, 1, NULL, status);
  }
  oa_lock();
  mapping->address = address;
  if (!status && !(device->backend->flags & OA_SYNCHRONOUS)) {
    status = oa_stream_advance_apart(stream);
    if (!status) status = oa_uses_add(&mapping->uses, stream, true);
  }
  oa_slot_unhold(scalar, false);
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
  int capturing;
  oa_slot *scalar = NULL;
  if (!(status = oa_stream_capturing(slot->region->stream, true, &capturing)) && capturing)
    status = oa_fail(OA_ERROR_CAPTURE,
                     "%s: the stream is capturing a graph, and a scalar would have to be copied up; pass all scalars "
                     "from the host, or all on the device",
                     function);
  if (!status) scalar = make_scalar(slot->region, value, dtype);
  if (scalar) *staged = oa_slot_handle(scalar);
  if (!status) status = scalar ? send_scalar(scalar, value) : OA_ERROR_MEMORY;
  oa_unlock();
  if (status && scalar) {
    oa_saved_error saved;
    oa_error_save(&saved);
    oa_pointer_release(*staged);
    oa_error_restore(&saved);
  }
  return status;
}
