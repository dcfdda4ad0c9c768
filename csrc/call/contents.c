/* The contents of pointers: filled, copied on the device, read to the host. Each is a call like any other, from oa_begin to
 * oa_end; an array of any strides is worked off in pieces that a 2-D copy can name. */
#include "base/trace.h"
#include "call/call.h"
#include "device/memory.h"
#include "region/slot.h"
#include "transfer/transfer_trace.h"

#include <stdlib.h>
#include <string.h>

/* -- pieces -- */

/* Two arrays of one shape, element by element: lines of `width` bytes, `pitch` apart on each side, once for each index of
 * the loops. Offsets count from the lowest byte of each side. */
typedef struct plan {
  int64_t width, lines, pitch[2], start[2];
  int loops;
  struct axis {
    int64_t size, step[2];
  } loop[OA_MAX_DIMENSIONS];
} plan;

/* Axes longer than 1, by their steps on side 0, which are made positive; neighbours that are one axis are merged. */
static int sort_axes(int ndim, const int64_t *shape, const int64_t *const strides[2], plan *p) {
  struct axis *axes = p->loop;
  int count = 0;
  for (int i = 0; i < ndim; i++) {
    struct axis axis = {shape[i], {strides[0][i], strides[1][i]}};
    if (axis.size == 1) continue;
    for (int k = 0; k < 2; k++) {
      const int64_t reach = (axis.size - 1) * axis.step[k];
      if (reach < 0) p->start[k] -= reach; /* index 0 is not the lowest */
      if (axis.step[0] < 0) p->start[k] += reach;
    }
    if (axis.step[0] < 0) axis = (struct axis){axis.size, {-axis.step[0], -axis.step[1]}};
    int at = count++;
    for (; at > 0 && axes[at - 1].step[0] > axis.step[0]; at--) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  int merged = 0;
  for (int i = 0; i < count; i++) {
    struct axis *last = &axes[merged - 1];
    if (merged && axes[i].step[0] == last->step[0] * last->size && axes[i].step[1] == last->step[1] * last->size)
      last->size *= axes[i].size;
    else
      axes[merged++] = axes[i];
  }
  return merged;
}

static void make_plan(int ndim, const int64_t *shape, const int64_t *strides, const int64_t *other, int64_t itemsize,
                      plan *p) {
  *p = (plan){.width = itemsize, .lines = 1};
  struct axis *axes = p->loop;
  int count = sort_axes(ndim, shape, (const int64_t *const[2]){strides, other}, p);
  if (count && axes[0].step[0] == itemsize && axes[0].step[1] == itemsize) {
    p->width *= axes[0].size;
    memmove(axes, axes + 1, (size_t)--count * sizeof *axes);
  }
  p->pitch[0] = p->pitch[1] = p->width;
  int longest = -1;
  for (int i = 0; i < count; i++)
    if (axes[i].step[0] >= p->width && axes[i].step[1] >= p->width &&
        (longest < 0 || axes[i].size > axes[longest].size))
      longest = i;
  if (longest >= 0) {
    p->lines = axes[longest].size;
    memcpy(p->pitch, axes[longest].step, sizeof p->pitch);
    memmove(axes + longest, axes + longest + 1, (size_t)(--count - longest) * sizeof *axes);
  }
  p->loops = count;
}

/* Calls each(plan, where the piece begins on both sides, data) until it fails. */
static int for_pieces(const plan *p, int (*each)(const plan *, const int64_t *, void *), void *data) {
  int64_t index[OA_MAX_DIMENSIONS] = {0}, at[2] = {p->start[0], p->start[1]};
  for (;;) {
    const int status = each(p, at, data);
    if (status) return status;
    int i = 0;
    for (; i < p->loops; i++) {
      const struct axis *axis = &p->loop[i];
      const int64_t times = ++index[i] == axis->size ? 1 - axis->size : 1; /* back to its beginning, or one further */
      for (int k = 0; k < 2; k++) at[k] += times * axis->step[k];
      if (times == 1) break;
      index[i] = 0;
    }
    if (i == p->loops) return OA_OK;
  }
}

/* -- what a function is given -- */

/* An array on the device: a pointer, and the shape and strides of what is meant of it. */
typedef struct array {
  const oa_any *pointer;
  int64_t itemsize, nbytes;
  int dtype;
  oa_lines inside; /* start: from the pointer's first byte */
  bool whole;      /* it is all that the pointer has */
  bool host_has;   /* the device has nothing that the host has not: nothing need move to read it */
  oa_layout layout;
} array;

/* Whether the host's bytes are what the pointer would have once a call reads it. Under the lock. */
static bool on_host(const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  if (!mapping || mapping->kind != OA_MAPS_HOST || mapping->failed || mapping->elsewhere || slot->out) return false;
  const oa_group *group = &mapping->groups[mapping->parts[slot->part].group];
  return !group->valid && !group->dirty && !group->invalid && !atomic_load(&mapping->device->lost);
}

/* Looks a pointer up and notes what does not change while it lives. */
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

static int check_piece(const plan *p, const int64_t *at, void *data) {
  const array *a = data;
  return oa_lines_contain(a->inside, (oa_lines){at[0], p->width, p->pitch[0], p->lines}) ? OA_OK : OA_ERROR_EXTENT;
}

/* Reads and checks one array of a function's arguments. */
static int read_array(const char *function, const char *name, const oa_any *pointer, int ndim, const int64_t *shape,
                      const int64_t *strides, array *a) {
  int status = look_up(function, name, pointer, a);
  if (status) return status;
  if (ndim > 0 && (!shape || !strides)) return oa_fail_null(function, shape ? "strides" : "shape");
  if ((status = oa_layout_of(ndim, shape, strides, a->itemsize, &a->layout)))
    return oa_fail(status, "%s: shape and strides of %s are no array's", function, name);
  const oa_layout *layout = &a->layout;
  if (!layout->size) return OA_OK;
  if (layout->span > a->nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: shape and strides of %s need %lld bytes, the pointer has %lld", function, name,
                   (long long)layout->span, (long long)a->nbytes);
  const oa_lines lines = layout->lines, own = oa_lines_simplest(a->inside);
  a->whole = layout->regular && own.start == 0 && own.width == lines.width && own.pitch == lines.pitch &&
             own.count == lines.count;
  if (a->whole || a->inside.count == 1) return OA_OK;
  plan p;
  make_plan(ndim, shape, strides, strides, a->itemsize, &p);
  if (!for_pieces(&p, check_piece, a)) return OA_OK;
  return oa_fail(OA_ERROR_EXTENT, "%s: shape and strides of %s reach between the lines of its array", function, name);
}

static int refuse_overlap(const char *function, const array *a) {
  if (!a->layout.overlapping) return OA_OK;
  return oa_fail(OA_ERROR_ALIAS, "%s: two indices of the pointer name the same element", function);
}

/* What is not all of the pointer's own is read too: what lies between has to be there. */
static oa_operand written(const array *a) {
  return (oa_operand){.name = "pointer",
                      .pointer = a->pointer,
                      .access = a->whole ? OA_OVERWRITE : OA_READ_WRITE,
                      .extent = {.kind = OA_EXTENT_ALL}};
}

/* The end of a call whose work was issued with that status: the first failure is told. */
static int end(oa_call *call, int status) {
  if (!status) return oa_end(call, OA_OK);
  oa_saved_error first;
  oa_error_save(&first);
  oa_end(call, status);
  oa_error_restore(&first);
  return oa_fail_in(status, "%s", call->function);
}

static void *stream_of(const oa_call *call) { return ((const oa_stream *)call->stream)->native; }

/* -- fill -- */

typedef struct filling {
  oa_device *device;
  void *stream;
  uint64_t address;
  const unsigned char *value;
  size_t itemsize;
} filling;

/* The least number of bytes, of those a backend fills with, that the value repeats; 0 if it does not. */
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

/* Any value: its first element bit by bit, then what is there copied behind itself until the line is full, then the lines
 * that are full behind themselves. */
static int fill_doubling(const filling *f, const plan *p, uint64_t to) {
  const oa_backend *backend = f->device->backend;
  const size_t unit = to % 4 || f->itemsize % 4 ? 1 : 4, width = (size_t)p->width, pitch = (size_t)p->pitch[0];
  int status = OA_OK;
  for (size_t i = 0; i < f->itemsize && !status; i += unit)
    status = fill_bytes(f, to + i, unit, f->value + i, unit, unit, 1);
  for (size_t have = f->itemsize, more; have < width && !status; have += more) {
    more = have < width - have ? have : width - have;
    status = backend->copy(f->device, f->stream, to + have, more, to, more, more, 1);
  }
  for (size_t have = 1, more; have < (size_t)p->lines && !status; have += more) {
    more = have < (size_t)p->lines - have ? have : (size_t)p->lines - have;
    status = backend->copy(f->device, f->stream, to + have * pitch, pitch, to, pitch, width, more);
  }
  return status;
}

static int fill_piece(const plan *p, const int64_t *at, void *data) {
  const filling *f = data;
  const uint64_t to = f->address + (uint64_t)at[0];
  const size_t unit = unit_of(f);
  if (!unit || to % unit || (p->lines > 1 && (size_t)p->pitch[0] % unit)) return fill_doubling(f, p, to);
  return fill_bytes(f, to, (size_t)p->pitch[0], f->value, unit, (size_t)p->width, (size_t)p->lines);
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
  filling f = {call.device, stream_of(&call), (uintptr_t)operand.address, value, (size_t)a.itemsize};
  plan p;
  make_plan(ndim, shape, strides, strides, a.itemsize, &p);
  return end(&call, for_pieces(&p, fill_piece, &f));
}

/* -- copy -- */

typedef struct copying {
  oa_device *device;
  void *stream;
  uint64_t to, from;
} copying;

static int copy_piece(const plan *p, const int64_t *at, void *data) {
  const copying *c = data;
  return c->device->backend->copy(c->device, c->stream, c->to + (uint64_t)at[0], (size_t)p->pitch[0],
                                  c->from + (uint64_t)at[1], (size_t)p->pitch[1], (size_t)p->width, (size_t)p->lines);
}

int oa_pointer_copy(oa_any *pointer, const int64_t *strides, const oa_any *source, const int64_t *source_strides,
                    int ndim, const int64_t *shape) {
  const char *const function = "oa_pointer_copy";
  array to, from;
  int status = read_array(function, "pointer", pointer, ndim, shape, strides, &to);
  if (status || (status = look_up(function, "source", source, &from))) return status;
  if (from.itemsize == to.itemsize) /* else oa_begin says it */
    status = read_array(function, "source", source, ndim, shape, source_strides, &from);
  if (status || (status = refuse_overlap(function, &to)) || !to.layout.size) return status;
  oa_operand operands[] = {
      written(&to),
      {.name = "source", .pointer = source, .access = OA_READ, .dtype = to.dtype, .extent = {.kind = OA_EXTENT_ALL}}};
  oa_call call = {.function = function, .operands = operands, .count = 2};
  if ((status = oa_begin(&call))) return status;
  copying c = {call.device, stream_of(&call), (uintptr_t)operands[0].address, (uintptr_t)operands[1].address};
  plan p;
  make_plan(ndim, shape, strides, source_strides, to.itemsize, &p);
  return end(&call, for_pieces(&p, copy_piece, &c));
}

/* -- read -- */

static void c_order(int ndim, const int64_t *shape, int64_t step, int64_t *strides) {
  for (int i = ndim - 1; i >= 0; step *= shape[i--]) strides[i] = step;
}

/* The packed bytes of the slot's part, which the device would have in C order. NULL: no host memory. */
static char *pack(const oa_part *part) {
  const oa_shape *s = part->shape;
  char *packed = malloc((size_t)part->lines.width);
  if (packed)
    oa_gather(packed, part->data, s->ndim, s->shape, s->strides, s->itemsize, 0, part->lines.width / s->itemsize);
  return packed;
}

/* Reads what the device does not have from the host's array, which the slot's region holds. */
static int read_host(const char *function, const array *a, void *values, int ndim, const int64_t *shape,
                     const int64_t *strides, bool *done) {
  int status = OA_OK;
  const int64_t begun = oa_trace_begin();
  oa_lock();
  oa_slot *slot = oa_slot_of(a->pointer, OA_SLOT_POINTER, &status);
  *done = slot && on_host(slot);
  if (!*done) { /* oa_begin says why, or the device has it by now */
    oa_unlock();
    return OA_OK;
  }
  const oa_state *region = slot->region;
  const oa_part *part = &slot->mapping->parts[slot->part];
  const int64_t offset = slot->offset - part->lines.start - a->layout.low;
  oa_slot_pin(slot, false); /* its region holds the array meanwhile */
  oa_unlock();
  status = OA_OK;
  char *packed = part->shape ? pack(part) : NULL;
  if (part->shape && !packed)
    status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld bytes", function, (long long)part->lines.width);
  else
    oa_gather(values, (packed ? packed : (const char *)part->host) + offset, ndim, shape, strides, a->itemsize, 0,
              a->layout.size);
  free(packed);
  if (begun)
    oa_trace_note(OA_TRACE_ACCESS, begun, region->device->number, region->serial, 0, function, NULL, 0, status);
  oa_lock();
  oa_slot_unpin(slot, false);
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

static int read_piece(const plan *p, const int64_t *at, void *data) {
  const reading *r = data;
  return r->device->backend->copy_down(r->device, r->stream, r->to + at[1], (size_t)p->pitch[1],
                                       r->from + (uint64_t)at[0], (size_t)p->pitch[0], (size_t)p->width,
                                       (size_t)p->lines);
}

/* Copies the pieces down and waits, whatever happens: nothing may write to the caller's memory later. */
static int read_pieces(const plan *p, reading *r, int64_t nbytes) {
  int status = for_pieces(p, read_piece, r);
  oa_saved_error first;
  oa_error_save(&first);
  const int waited = r->device->backend->stream_synchronize(r->device, r->stream);
  if (status) oa_error_restore(&first);
  if (!status) status = waited;
  if (status) return status;
  atomic_fetch_add_explicit(&r->device->counts.copies_down, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&r->device->counts.bytes_down, nbytes, memory_order_relaxed);
  return OA_OK;
}

/* One line: the way of whole arrays. */
static int read_line(reading *r, oa_move *move) {
  int status = oa_transfer_down(r->device, r->stream, move, 1);
  if (status) return status;
  status = r->device->backend->stream_synchronize(r->device, r->stream);
  if (!status) return oa_transfer_settle(r->device, r->stream, move, 1);
  oa_transfer_abandon(r->device, move, 1);
  return status;
}

static int read_device(const oa_call *call, const plan *p, void *values, int64_t nbytes) {
  const oa_slot *slot = call->operands[0].slot;
  const oa_mapping *mapping = slot->mapping;
  reading r = {call->device, stream_of(call), values, (uintptr_t)call->operands[0].address};
  oa_move move = {.host = values,
                  .address = r.from + (uint64_t)p->start[0],
                  .lines = {0, nbytes, nbytes, 1},
                  .name = mapping->parts[slot->part].name,
                  .trace = {.why = "read", .region = mapping->serial, .apart = true}};
  int status = OA_OK;
  int64_t begun = oa_trace_begin();
  if (begun && !(r.device->backend->flags & OA_SYNCHRONOUS)) { /* so that the copy's time is its own */
    status = oa_device_wait_stream(r.device, r.stream, mapping->serial, "calls, before a pointer is read");
    begun = oa_trace_now();
  }
  if (!status) status = p->width == nbytes ? read_line(&r, &move) : read_pieces(p, &r, nbytes);
  if (begun) oa_trace_copies(OA_TRACE_DOWN, begun, r.device, &move, 1, NULL, status);
  return status;
}

int oa_pointer_read(const oa_any *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  const char *const function = "oa_pointer_read";
  array a;
  int status = read_array(function, "pointer", pointer, ndim, shape, strides, &a);
  if (status || !a.layout.size) return status;
  if (!values) return oa_fail_null(function, "values");
  bool done = false;
  if (a.host_has) status = read_host(function, &a, values, ndim, shape, strides, &done);
  if (done) return status;
  oa_operand operand = {.name = "pointer", .pointer = pointer, .access = OA_READ, .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if ((status = oa_begin(&call))) return status;
  if (call.open == 2) {
    oa_call_abandon(&call);
    return oa_fail(OA_ERROR_CAPTURE, "%s: the stream is capturing a graph, and would have to be waited for", function);
  }
  int64_t packed[OA_MAX_DIMENSIONS];
  plan p;
  c_order(ndim, shape, a.itemsize, packed);
  make_plan(ndim, shape, strides, packed, a.itemsize, &p);
  return end(&call, read_device(&call, &p, values, a.layout.size * a.itemsize));
}
