/* Contents: functions that fill a pointer, copy it on the device, and read it to the host. Each of these functions
 * makes a call from oa_begin to oa_end. An array with any strides is processed in pieces, each of which one 2-D copy
 * can describe. */
#include "base/trace.h"
#include "call/call.h"
#include "device/memory.h"
#include "region/capture.h"
#include "region/slot.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>
#include <string.h>

/* -- arguments -- */

/* An array on the device: a pointer, and the layout of the chosen elements. */
typedef struct array {
  const oa_any *pointer;
  int64_t itemsize, nbytes;
  int dtype;
  oa_lines inside; /* the pointer's own bytes, from its first byte */
  bool whole;      /* the elements are all elements of the pointer */
  bool host_has;   /* the host's bytes are up to date, so reading them needs no copy */
  oa_layout layout;
} array;

static int note_elsewhere(oa_present *element, void *data) {
  const oa_mapping *other = (const oa_mapping *)element, *mapping = data;
  return other->device != mapping->device && oa_mappings_meet(other, mapping);
}

/* Returns whether the host has the bytes that a call would read through the pointer. Called with the lock. */
static bool on_host(const oa_slot *slot) {
  oa_mapping *mapping = slot->mapping;
  if (!mapping || mapping->kind != OA_MAPS_HOST || slot->out) return false;
  if (mapping->special & OA_IS_ELSEWHERE) {
    if (oa_present_visit(&oa_table, mapping->at.low, mapping->at.high, note_elsewhere, mapping))
      return false; /* a call checks which device has the newer bytes */
    mapping->special &= (uint8_t)~OA_IS_ELSEWHERE;
  }
  if (oa_capture_concerns(mapping)) return false; /* captured calls may write first; a call then refuses the read */
  const oa_group *group = slot->group;
  return !group->valid && !group->dirty && !group->invalid && !atomic_load(&mapping->device->lost);
}

/* Finds a pointer's slot, and notes the properties that do not change while it is live. */
static int look_up(const char *function, const char *name, const oa_any *pointer, array *a) {
  int status;
  const oa_slot *slot = oa_slot_enter(function, name, pointer, &status);
  if (!slot) return status;
  *a = (array){.pointer = pointer,
               .itemsize = oa_itemsize(slot->dtype),
               .nbytes = slot->nbytes,
               .dtype = slot->dtype,
               .inside = slot->inside,
               .host_has = on_host(slot)};
  a->inside.start -= slot->offset;
  oa_unlock();
  return OA_OK;
}

/* Checks one array argument of a function, and fills *a. */
static int read_array(const char *function, const char *name, const oa_any *pointer, int ndim, const int64_t *shape,
                      const int64_t *strides, array *a) {
  int status = look_up(function, name, pointer, a);
  if (status) return status;
  if (ndim > 0 && (!shape || !strides)) return oa_fail_null(function, shape ? "strides" : "shape");
  if ((status = oa_layout_of(ndim, shape, strides, a->itemsize, &a->layout)))
    return oa_fail(status, "%s: shape and strides of %s do not describe an array", function, name);
  const oa_layout *layout = &a->layout;
  if (!layout->size) return OA_OK;
  if (layout->span > a->nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: shape and strides of %s need %lld bytes, the pointer has %lld", function, name,
                   (long long)layout->span, (long long)a->nbytes);
  const oa_lines lines = layout->lines, own = oa_lines_simplest(a->inside);
  a->whole = layout->regular && own.start == 0 && own.width == lines.width && own.pitch == lines.pitch &&
             own.count == lines.count;
  if (a->whole || a->inside.count == 1) return OA_OK;
  oa_pieces pieces;
  oa_lines piece;
  oa_pieces_start(&pieces, ndim, shape, strides, NULL, a->itemsize);
  while (oa_pieces_next(&pieces, &piece, NULL))
    if (!oa_lines_contain(a->inside, piece))
      return oa_fail(OA_ERROR_EXTENT, "%s: shape and strides of %s reach between the lines of its array", function,
                     name);
  return OA_OK;
}

static int refuse_overlap(const char *function, const array *a) {
  if (!a->layout.overlapping) return OA_OK;
  return oa_fail(OA_ERROR_ALIAS, "%s: two indices of the pointer name the same element", function);
}

/* Returns the operand of a call that writes the array. If the array has only some of its pointer's elements, the call
 * also reads, because the bytes in between have to be present. */
static oa_operand written(const array *a) {
  return (oa_operand){.name = "pointer",
                      .pointer = a->pointer,
                      .access = a->whole ? OA_OVERWRITE : OA_READ_WRITE,
                      .extent = {.kind = OA_EXTENT_ALL}};
}

/* Ends a call whose work was issued with that status. Returns the first failure. */
static int end(oa_call *call, int status) {
  if (!status) return oa_end(call, OA_OK);
  oa_saved_error first;
  oa_error_save(&first);
  oa_end(call, status);
  oa_error_restore(&first);
  return oa_fail_in(status, "%s", call->function);
}

static void *stream_of(const oa_call *call) { return ((const oa_stream *)call->stream)->native; }

int oa_pointer_invalidate(oa_any *pointer) {
  oa_operand operand = {
      .name = "pointer", .pointer = pointer, .access = OA_READ_WRITE, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = "oa_pointer_invalidate", .operands = &operand, .count = 1};
  const int status = oa_begin(&call);
  return status ? status : oa_end(&call, 1); /* ended as a failed call, so that its results become invalid */
}

/* -- fill -- */

typedef struct filling {
  oa_device *device;
  void *stream;
  uint64_t address;
  const unsigned char *value;
  size_t itemsize;
} filling;

/* Returns the size of the smallest unit with which the backend's fill can write the value; 0 if there is none. */
static size_t unit_of(const filling *f) {
  for (size_t unit = 1; unit <= 4; unit *= 2)
    if (f->itemsize % unit == 0 && memcmp(f->value, f->value + unit, f->itemsize - unit) == 0) return unit;
  return 0;
}

static int fill_bytes(const filling *f, uint64_t to, size_t pitch, const unsigned char *value, size_t unit,
                      size_t width, size_t lines) {
  uint32_t number = 0;
  for (size_t i = 0; i < unit; i++) number |= (uint32_t)value[i] << 8 * i;
  return f->device->backend->fill(f->device, f->stream, to, pitch, number, unit, width, lines);
}

/* Fills a piece with any value. Writes the first element in units. Then doubles the written elements by copies until
 * the line is full, and doubles the full lines by copies. */
static int fill_doubling(const filling *f, oa_lines piece, uint64_t to) {
  const oa_backend *backend = f->device->backend;
  const size_t unit = to % 4 || f->itemsize % 4 ? 1 : 4, width = (size_t)piece.width, pitch = (size_t)piece.pitch;
  int status = OA_OK;
  for (size_t i = 0; i < f->itemsize && !status; i += unit)
    status = fill_bytes(f, to + i, unit, f->value + i, unit, unit, 1);
  for (size_t have = f->itemsize, more; have < width && !status; have += more) {
    more = have < width - have ? have : width - have;
    status = backend->copy(f->device, f->stream, to + have, more, to, more, more, 1);
  }
  for (size_t have = 1, more; have < (size_t)piece.count && !status; have += more) {
    more = have < (size_t)piece.count - have ? have : (size_t)piece.count - have;
    status = backend->copy(f->device, f->stream, to + have * pitch, pitch, to, pitch, width, more);
  }
  return status;
}

static int fill_piece(const filling *f, oa_lines piece) {
  const uint64_t to = f->address + (uint64_t)piece.start;
  const size_t unit = unit_of(f), pitch = (size_t)piece.pitch;
  if (!unit || to % unit || (piece.count > 1 && pitch % unit)) return fill_doubling(f, piece, to);
  return fill_bytes(f, to, pitch, f->value, unit, (size_t)piece.width, (size_t)piece.count);
}

int oa_pointer_fill(oa_any *pointer, const void *value, int ndim, const int64_t *shape, const int64_t *strides) {
  const char *const function = "oa_pointer_fill";
  array a;
  int status = read_array(function, "pointer", pointer, ndim, shape, strides, &a);
  if (status || (status = refuse_overlap(function, &a)) || !a.layout.size) return status;
  if (!value) return oa_fail_null(function, "value");
  oa_operand operand = written(&a);
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if ((status = oa_begin(&call))) return status;
  const filling f = {call.device, stream_of(&call), (uintptr_t)operand.address, value, (size_t)a.itemsize};
  oa_pieces pieces;
  oa_lines piece;
  oa_pieces_start(&pieces, ndim, shape, strides, strides, a.itemsize);
  while (!status && oa_pieces_next(&pieces, &piece, NULL)) status = fill_piece(&f, piece);
  return end(&call, status);
}

/* -- copy -- */

int oa_pointer_copy(oa_any *pointer, const int64_t *strides, const oa_any *source, const int64_t *source_strides,
                    int ndim, const int64_t *shape) {
  const char *const function = "oa_pointer_copy";
  array to, from;
  int status = read_array(function, "pointer", pointer, ndim, shape, strides, &to);
  if (status || (status = look_up(function, "source", source, &from))) return status;
  if (from.itemsize == to.itemsize) /* otherwise oa_begin reports that the dtypes differ */
    status = read_array(function, "source", source, ndim, shape, source_strides, &from);
  if (status || (status = refuse_overlap(function, &to))) return status;
  oa_operand operands[] = {
      written(&to),
      {.name = "source", .pointer = source, .access = OA_READ, .dtype = to.dtype, .extent = {.kind = OA_EXTENT_ALL}}};
  const bool empty = !to.layout.size; /* devices and dtypes are checked as for an array with elements */
  if (empty) operands[0].extent = operands[1].extent = (oa_extent){.kind = OA_EXTENT_VECTOR, .ld = 1};
  oa_call call = {.function = function, .operands = operands, .count = 2};
  if ((status = oa_begin(&call))) return status;
  oa_device *device = call.device;
  const uint64_t target = (uintptr_t)operands[0].address, origin = (uintptr_t)operands[1].address;
  oa_pieces pieces;
  oa_lines piece, other;
  if (!empty) oa_pieces_start(&pieces, ndim, shape, strides, source_strides, to.itemsize);
  while (!empty && !status && oa_pieces_next(&pieces, &piece, &other))
    status = device->backend->copy(device, stream_of(&call), target + (uint64_t)piece.start, (size_t)piece.pitch,
                                   origin + (uint64_t)other.start, (size_t)other.pitch, (size_t)piece.width,
                                   (size_t)piece.count);
  return end(&call, status);
}

/* -- read -- */

static void c_order(int ndim, const int64_t *shape, int64_t step, int64_t *strides) {
  for (int i = ndim - 1; i >= 0; step *= shape[i--]) strides[i] = step;
}

/* Returns a copy of an irregular view in C order, as on the device. The caller frees the copy. Returns NULL if host
 * memory runs out. */
static char *pack(const oa_view *view) {
  const oa_shape *s = view->shape;
  char *packed = malloc((size_t)view->lines.width);
  if (packed)
    oa_gather(packed, view->data, s->ndim, s->shape, s->strides, s->itemsize, 0, view->lines.width / s->itemsize);
  return packed;
}

/* Reads the elements from the host, if the device does not have them. Sets *was_read to true if the elements were
 * read. */
static int read_host(const char *function, const array *a, void *values, int ndim, const int64_t *shape,
                     const int64_t *strides, bool *was_read) {
  int status = OA_OK;
  const int64_t begun = oa_trace_begin();
  oa_lock();
  oa_slot *slot = oa_slot_of(a->pointer, OA_SLOT_POINTER, &status);
  *was_read = slot && on_host(slot);
  if (!*was_read) { /* the device has the bytes by now, or oa_begin finds the fault */
    oa_unlock();
    return OA_OK;
  }
  const oa_region_state *region = slot->region;
  const oa_view *view = &slot->mapping->views[slot->view];
  const int64_t offset = slot->offset - view->lines.start - a->layout.low;
  oa_slot_hold(slot, NULL); /* a held slot keeps the region open, and with it the array */
  oa_unlock();
  status = OA_OK;
  char *packed = view->shape ? pack(view) : NULL;
  if (view->shape && !packed)
    status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld bytes", function, (long long)view->lines.width);
  else
    oa_gather(values, (packed ? packed : (const char *)view->host) + offset, ndim, shape, strides, a->itemsize, 0,
              a->layout.size);
  free(packed);
  if (begun)
    oa_trace_note(OA_TRACE_ACCESS, begun, region->device->number, region->serial, 0, function, NULL, 0, status);
  oa_lock();
  oa_slot_unhold(slot, false);
  oa_announce_change();
  oa_unlock();
  return status;
}

typedef struct reading {
  oa_device *device;
  void *stream;
  char *to;
  uint64_t from;
} reading;

/* Copies the pieces down and waits for them, even after a failure: nothing may write to the caller's memory later. */
static int read_pieces(const reading *r, oa_pieces *pieces, int64_t nbytes) {
  oa_lines piece, packed;
  oa_saved_error first;
  int status = OA_OK;
  while (!status && oa_pieces_next(pieces, &piece, &packed))
    status = r->device->backend->copy_down(r->device, r->stream, r->to + packed.start, (size_t)packed.pitch,
                                           r->from + (uint64_t)piece.start, (size_t)piece.pitch, (size_t)piece.width,
                                           (size_t)piece.count);
  oa_error_save(&first);
  const int waited = r->device->backend->stream_synchronize(r->device, r->stream);
  if (waited) oa_device_quiesce(r->device);
  if (status) oa_error_restore(&first);
  if (!status) status = waited;
  if (status) return status;
  atomic_fetch_add_explicit(&r->device->counts.copies_down, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&r->device->counts.bytes_down, nbytes, memory_order_relaxed);
  return OA_OK;
}

/* Copies one line down, in the way that whole arrays are copied. */
static int read_line(const reading *r, oa_move *move) {
  int status = oa_transfer_down(r->device, r->stream, move, 1);
  if (status) return status;
  status = r->device->backend->stream_synchronize(r->device, r->stream);
  if (!status) return oa_transfer_settle(r->device, r->stream, move, 1);
  oa_transfer_cancel(r->device, move, 1, false);
  return status;
}

static int read_device(const oa_call *call, oa_pieces *pieces, void *values, int64_t nbytes) {
  oa_stream *stream = call->stream;
  oa_lock();
  const uint64_t ticket = stream->ticket;
  oa_unlock();
  const oa_slot *slot = call->operands[0].slot;
  const oa_mapping *mapping = slot->mapping;
  const reading r = {call->device, stream_of(call), values, (uintptr_t)call->operands[0].address};
  oa_move move = {.host = values,
                  .address = r.from + (uint64_t)pieces->at[0],
                  .lines = {0, nbytes, nbytes, 1},
                  .name = mapping->views[slot->view].name,
                  .trace = {.why = "read", .region = mapping->serial, .is_copy = true}};
  int status = OA_OK;
  int64_t begun = oa_trace_begin();
  /* Waits, so that the copy's time includes no other work. */
  if (begun && !(r.device->backend->flags & OA_SYNCHRONOUS)) {
    status = oa_device_wait_stream(r.device, r.stream, mapping->serial, "calls, before a pointer is read");
    begun = oa_trace_now();
  }
  if (!status) status = pieces->width == nbytes ? read_line(&r, &move) : read_pieces(&r, pieces, nbytes);
  if (begun) oa_trace_copies(OA_TRACE_DOWN, begun, r.device, &move, 1, NULL, status);
  if (status) return status;
  oa_lock();
  oa_stream_waited(stream, ticket);
  oa_unlock();
  return OA_OK;
}

/* Swaps `each` bytes between two places. */
static void swap_bytes(char *a, char *b, int64_t each) {
  char kept[256];
  for (int64_t at = 0; at < each; at += (int64_t)sizeof kept) {
    const size_t n = (size_t)(each - at < (int64_t)sizeof kept ? each - at : (int64_t)sizeof kept);
    memcpy(kept, a + at, n);
    memcpy(a + at, b + at, n);
    memcpy(b + at, kept, n);
  }
}

/* `values` is an array in C order. Reverses each axis of `values` along which the pointer's elements run backwards. */
static void reverse_axes(char *values, int ndim, const int64_t *shape, const int64_t *strides, int64_t nbytes) {
  int64_t outer = nbytes; /* bytes of one step along the previous axis */
  for (int i = 0; i < ndim; i++) {
    const int64_t each = outer / shape[i];
    for (int64_t start = 0; strides[i] < 0 && start < nbytes; start += outer)
      for (int64_t low = start, high = start + outer - each; low < high; low += each, high -= each)
        swap_bytes(values + low, values + high, each);
    outer = each;
  }
}

int oa_pointer_read(const oa_any *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  const char *const function = "oa_pointer_read";
  array a;
  int status = read_array(function, "pointer", pointer, ndim, shape, strides, &a);
  if (status || !a.layout.size) return status;
  if (!values) return oa_fail_null(function, "values");
  bool was_read = false;
  if (a.host_has) status = read_host(function, &a, values, ndim, shape, strides, &was_read);
  if (was_read) return status;
  oa_operand operand = {.name = "pointer", .pointer = pointer, .access = OA_READ, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function,
                  .operands = &operand,
                  .count = 1,
                  .uncaptured =
                      "captured calls have no values before a replay; read the values before the capture "
                      "begins or after it has ended"};
  if ((status = oa_begin(&call))) return status;
  /* Along a reversed axis, each element would need a separate copy. So the elements are copied in the order of memory,
   * and then reversed by reverse_axes. */
  const int64_t nbytes = a.layout.size * a.itemsize;
  int64_t packed[OA_MAX_DIMENSIONS], forwards[OA_MAX_DIMENSIONS];
  oa_pieces pieces;
  c_order(ndim, shape, a.itemsize, packed);
  for (int i = 0; i < ndim; i++) forwards[i] = shape[i] > 1 && strides[i] < 0 ? -strides[i] : strides[i];
  oa_pieces_start(&pieces, ndim, shape, forwards, packed, a.itemsize);
  status = read_device(&call, &pieces, values, nbytes);
  if (!status) reverse_axes(values, ndim, shape, strides, nbytes);
  return end(&call, status);
}

/* -- host arrays of any strides -- */

/* A call that copies between a pointer without gaps and a host array of any strides. */
typedef struct strided {
  oa_operand operand;
  oa_call call;
  oa_shape shape;
  oa_move move;
} strided;

/* Checks the arguments, and begins the call. *empty: there is nothing to copy, and no call has begun. The strided must
 * not move afterwards. */
static int begin_strided(strided *s, const char *function, const oa_any *pointer, int access, void *values, int ndim,
                         const int64_t *shape, const int64_t *strides, bool *empty) {
  array a;
  oa_layout host;
  int status = look_up(function, "pointer", pointer, &a);
  if (status) return status;
  if (ndim > 0 && (!shape || !strides)) return oa_fail_null(function, shape ? "strides" : "shape");
  if ((status = oa_layout_of(ndim, shape, strides, a.itemsize, &host)))
    return oa_fail(status, "%s: shape and strides of values do not describe an array", function);
  if (!values) return oa_fail_null(function, "values");
  if (host.size * a.itemsize != a.nbytes || (a.inside.count != 1 && host.size))
    return oa_fail(OA_ERROR_EXTENT, "%s: values have %lld bytes, and the pointer has %lld%s", function,
                   (long long)(host.size * a.itemsize), (long long)a.nbytes,
                   a.inside.count != 1 ? ", with gaps between its lines" : "");
  if (access == OA_READ && host.overlapping)
    return oa_fail(OA_ERROR_ALIAS, "%s: two indices of values name the same element", function);
  *empty = !host.size;
  if (*empty) return OA_OK;
  s->operand = (oa_operand){.name = "pointer", .pointer = pointer, .access = access, .extent = {.kind = OA_EXTENT_ALL}};
  s->call = (oa_call){.function = function,
                      .operands = &s->operand,
                      .count = 1,
                      .uncaptured = "copies between the device and the host; make it outside of the capture"};
  s->shape = (oa_shape){ndim, a.itemsize, (int64_t *)shape, (int64_t *)strides};
  if ((status = oa_begin(&s->call))) return status;
  const oa_slot *slot = s->operand.slot;
  s->move = (oa_move){
      .host = values,
      .address = (uintptr_t)s->operand.address,
      .lines = {0, a.nbytes, a.nbytes, 1},
      .irregular = &s->shape,
      .name = slot->mapping->views[slot->view].name,
      .trace = {.why = access == OA_READ ? "read" : "assign", .region = slot->mapping->serial, .is_copy = true}};
  return OA_OK;
}

int oa_pointer_assign_strided(oa_any *pointer, const void *values, int ndim, const int64_t *shape,
                              const int64_t *strides) {
  strided s;
  bool empty;
  int status = begin_strided(&s, "oa_pointer_assign_strided", pointer, OA_OVERWRITE, (void *)values, ndim, shape,
                             strides, &empty);
  if (status || empty) return status;
  const int64_t begun = oa_trace_begin_up(&s.move, 1);
  status = oa_transfer_up(s.call.device, stream_of(&s.call), &s.move, 1);
  if (begun) oa_trace_copies(OA_TRACE_UP, begun, s.call.device, &s.move, 1, NULL, status);
  return end(&s.call, status);
}

int oa_pointer_read_strided(const oa_any *pointer, void *values, int ndim, const int64_t *shape,
                            const int64_t *strides) {
  strided s;
  bool empty;
  int status = begin_strided(&s, "oa_pointer_read_strided", pointer, OA_READ, values, ndim, shape, strides, &empty);
  if (status || empty) return status;
  const reading r = {s.call.device, stream_of(&s.call), values, s.move.address};
  const int64_t begun = oa_trace_begin();
  status = read_line(&r, &s.move);
  if (begun) oa_trace_copies(OA_TRACE_DOWN, begun, r.device, &s.move, 1, NULL, status);
  return end(&s.call, status);
}
