/* Pointers: handles and their slots; slices; addresses for code outside. */
#include "region.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct oa_slots oa_slots;
static oa_slot *free_slots;

static int slots_status;
static oa_saved_error slots_error;

static int reserve(void) {
  for (unsigned bits = 45; bits >= 32; bits--) {
    void *range = mmap(NULL, (size_t)1 << bits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    oa_slots.base = (uintptr_t)range;
    oa_slots.size = (uintptr_t)1 << bits;
    oa_slots.bits = bits - 21 > 24 ? 24 : bits >= 41 ? bits - 21 : 16;
    break;
  }
  if (!oa_slots.size)
    return oa_fail(OA_ERROR_MEMORY, "no address space for handles: 4 GiB of it (no memory) are needed");
  oa_slots.last = ((uint32_t)1 << oa_slots.bits) - 1;
  oa_slots.limit = (uint32_t)(oa_slots.size >> oa_slots.bits);
  oa_slots.at = mmap(NULL, (size_t)oa_slots.limit * sizeof *oa_slots.at, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (oa_slots.at != MAP_FAILED) return OA_OK;
  oa_slots.size = 0; /* nothing is a handle */
  return oa_fail(OA_ERROR_MEMORY, "no address space for the table of handles");
}

static void start(void) {
  slots_status = reserve();
  oa_error_save(&slots_error);
}

int oa_slots_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  if (slots_status) oa_error_restore(&slots_error);
  return slots_status;
}

void *oa_slot_handle(const oa_slot *slot) {
  return (void *)(oa_slots.base + ((uintptr_t)(slot - oa_slots.at) << oa_slots.bits) + slot->generation);
}

oa_slot *oa_slot_take(oa_state *region, int kind) {
  oa_slot *slot = free_slots;
  uint32_t generation;
  if (slot) {
    free_slots = slot->next;
    generation = slot->generation;
  } else if (oa_slots.count < oa_slots.limit) {
    slot = &oa_slots.at[oa_slots.count++];
    generation = 1;
  } else {
    oa_fail(OA_ERROR_MEMORY, "all %u handles are in use or used up; end regions you no longer need", oa_slots.limit);
    return NULL;
  }
  *slot = (oa_slot){.generation = generation, .kind = (uint8_t)kind, .region = region};
  slot->root = (uint32_t)(slot - oa_slots.at);
  if (kind == OA_SLOT_POINTER) {
    slot->next = region->slots;
    if (slot->next) slot->next->previous = slot;
    region->slots = slot;
  }
  return slot;
}

void oa_slot_release(oa_slot *slot) {
  if (slot->kind == OA_SLOT_POINTER) {
    if (slot->previous)
      slot->previous->next = slot->next;
    else
      slot->region->slots = slot->next;
    if (slot->next) slot->next->previous = slot->previous;
  }
  slot->kind = OA_SLOT_FREE;
  if (slot->generation == oa_slots.last) return; /* used up: never taken again */
  slot->generation++;
  slot->next = free_slots;
  free_slots = slot;
}

/* The live slot of a pointer given to a function of the public header, under the lock it takes; NULL with the text set and
 * the lock free. */
static oa_slot *enter(const char *function, const void *pointer, int *status) {
  if ((*status = oa_core_start())) return NULL;
  oa_lock();
  oa_slot *slot = oa_slot_of(pointer, OA_SLOT_POINTER, status);
  if (slot) return slot;
  oa_unlock();
  if (*status == OA_ERROR_STALE)
    oa_fail(*status, "%s: pointer belongs to a region that has ended; use it inside its region", function);
  else
    oa_fail(*status, "%s: pointer needs a device pointer, got the address %p; lend the array in a region first",
            function, pointer);
  return NULL;
}

int oa_pointer_view(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides,
                    oa_any **view) {
  int status;
  oa_slot *slot = enter("oa_pointer_view", pointer, &status);
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
      made->dtype = slot->dtype;
      made->reads = slot->reads;
      made->writes = slot->writes;
      made->out = slot->out;
      made->part = slot->part;
      made->root = slot->root;
      made->mapping = layout.span ? slot->mapping : NULL;
      made->offset = slot->offset + low;
      made->nbytes = layout.span;
      made->inside = slot->inside;
      if (layout.regular) {
        oa_lines lines = layout.lines;
        lines.start = made->offset;
        if (oa_lines_contain(slot->inside, lines)) made->inside = lines;
      }
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
  if (slot) {
    status = OA_OK;
    oa_mapping *staged = slot->mapping && slot->mapping->kind == OA_MAPS_STAGED ? slot->mapping : NULL;
    oa_state *region = slot->region;
    oa_slot_release(slot);
    if (staged && !staged->escaped) { /* else a captured graph may read it as long as the region is open */
      for (int i = 0; i < region->mapping_count; i++)
        if (region->mappings[i] == staged) region->mappings[i] = region->mappings[--region->mapping_count];
      status = oa_mapping_free(staged, region->stream);
    }
  } else if (status == OA_ERROR_STALE) {
    status = OA_OK; /* its region released it */
  }
  oa_unlock();
  return status;
}

int oa_pointer_query(const oa_any *pointer, oa_pointer_info *info) {
  int status;
  oa_slot *slot = enter("oa_pointer_query", pointer, &status);
  if (!slot) return status;
  const oa_mapping *mapping = slot->mapping;
  *info = (oa_pointer_info){.device = slot->region->device->number,
                            .dtype = slot->dtype,
                            .readable = slot->reads,
                            .writable = slot->writes,
                            .borrowed = mapping && mapping->kind == OA_MAPS_BORROWED,
                            .escaped = mapping && mapping->escaped,
                            .nbytes = slot->nbytes};
  oa_unlock();
  return OA_OK;
}

/* Fills a group's bytes with zeros. */
static int clear(const oa_mapping *mapping, int group, void *stream) {
  int status = OA_OK;
  for (int i = 0; i < mapping->part_count; i++) {
    const oa_lines lines = mapping->parts[i].lines;
    if (mapping->parts[i].group != group) continue;
    for (int64_t line = 0; line < lines.count && !status; line++)
      status = mapping->device->backend->fill(mapping->device, stream,
                                              mapping->address + (uint64_t)(lines.start + line * lines.pitch), 0,
                                              (size_t)lines.width);
  }
  return status;
}

/* Brings up what may be read and marks the mapping escaped; with keep, takes a share of the memory. */
static int escape(const char *function, const oa_any *pointer, uint64_t *address, oa_mapping **keep) {
  int status;
  oa_slot *slot = enter(function, pointer, &status);
  if (!slot) return status;
  if (!slot->mapping) {
    oa_unlock();
    if (keep) *keep = NULL;
    *address = 0;
    return OA_OK;
  }
  const oa_group *group = &slot->mapping->groups[slot->mapping->parts[slot->part].group];
  const bool blank = slot->out && !group->valid; /* nothing may go up: zeros, so that no other array's bytes are seen */
  oa_unlock();
  oa_operand operand = {.name = "pointer",
                        .pointer = pointer,
                        .access = blank ? OA_OVERWRITE : OA_READ,
                        .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if ((status = oa_begin(&call))) return status;
  slot = operand.slot;
  oa_mapping *mapping = slot->mapping;
  oa_stream *stream = call.stream;
  if (blank) status = clear(mapping, mapping->parts[slot->part].group, stream->native);
  if (!status) status = oa_trace_synchronize(mapping->device, stream->native, mapping->serial, function);
  if (!status) {
    oa_lock();
    mapping->escaped = true;
    if (keep) {
      mapping->exports++;
      *keep = mapping;
    }
    *address = mapping->address + (uint64_t)slot->offset;
    oa_unlock();
  }
  const int ended = oa_end(&call, 0);
  return status ? status : ended;
}

int oa_address(const oa_any *pointer, uint64_t *address) { return escape("oa_address", pointer, address, NULL); }

int oa_export(const oa_any *pointer, uint64_t *address, void **keep) {
  oa_mapping *mapping = NULL;
  const int status = escape("oa_export", pointer, address, &mapping);
  *keep = mapping;
  return status;
}

int oa_export_release(void *keep) {
  oa_mapping *mapping = keep;
  if (!mapping || atomic_load(&oa_forked)) return OA_OK;
  int status = OA_OK;
  oa_lock();
  const bool last = --mapping->exports == 0 && mapping->references == 0;
  oa_unlock();
  if (!last) return OA_OK;
  if (mapping->kind != OA_MAPS_BORROWED) status = mapping->device->backend->synchronize(mapping->device);
  oa_lock();
  oa_stream *stream = NULL;
  if (oa_stream_borrow(mapping->device, &stream) == OA_OK) {
    const int freed = oa_mapping_free(mapping, stream);
    oa_stream_give_back(stream);
    if (!status) status = freed;
  }
  oa_unlock();
  return status;
}

int oa_pointer_assign(oa_any *pointer, const void *values, int ndim, const int64_t *shape, const int64_t *strides) {
  const char *const function = "oa_pointer_assign";
  int status;
  oa_slot *slot = enter(function, pointer, &status);
  if (!slot) return status;
  const int64_t itemsize = oa_itemsize(slot->dtype), nbytes = slot->nbytes;
  oa_unlock();
  oa_layout layout;
  if ((status = oa_layout_of(ndim, shape, strides, itemsize, &layout)))
    return oa_fail(status, "%s: shape and strides are no array's", function);
  if (layout.span > nbytes)
    return oa_fail(OA_ERROR_EXTENT, "%s: the values need %lld bytes, the pointer has %lld", function,
                   (long long)layout.span, (long long)nbytes);
  if (layout.overlapping)
    return oa_fail(OA_ERROR_ALIAS, "%s: two indices of the pointer name the same element", function);
  if (layout.size == 0) return OA_OK;
  /* An array as it lies on the device; its gaps, if it has any, are brought up first and so keep what they held. */
  char *image = malloc((size_t)layout.span);
  if (!image) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld bytes", function, (long long)layout.span);
  oa_operand operand = {.name = "pointer",
                        .pointer = pointer,
                        .access = layout.regular ? OA_OVERWRITE : OA_READ_WRITE,
                        .extent = {.kind = OA_EXTENT_ALL}};
  oa_call call = {.function = function, .operands = &operand, .count = 1};
  if (!(status = oa_begin(&call))) {
    oa_device *device = call.device;
    const oa_backend *backend = device->backend;
    void *stream = ((oa_stream *)call.stream)->native;
    const uint64_t address = (uint64_t)(uintptr_t)operand.address;
    oa_lines lines = layout.lines;
    if (!layout.regular) { /* its lines can't be named: rewrite everything from its first byte to its last */
      status = backend->copy_down(device, stream, image, (size_t)layout.span, address, (size_t)layout.span,
                                  (size_t)layout.span, 1);
      if (!status) status = backend->stream_synchronize(device, stream);
      lines = (oa_lines){0, layout.span, layout.span, 1};
    }
    if (!status) {
      oa_scatter(image - layout.low, values, ndim, shape, strides, itemsize, 0, layout.size);
      const oa_slot *target = operand.slot;
      const oa_mapping *mapping = target->mapping;
      oa_move move = {.host = image,
                      .address = address,
                      .lines = lines,
                      .name = mapping->parts[target->part].name,
                      .trace = {.why = "assign", .region = mapping->serial, .apart = true}};
      const int64_t begun = oa_trace_begin_up(&move, 1);
      status = oa_transfer_up(device, stream, &move, 1);
      if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, &move, 1, NULL, status);
    }
    if (status) oa_fail_in(status, "%s: pointer", function);
    const int ended = oa_end(&call, status);
    if (!status) status = ended;
  }
  free(image);
  return status;
}

int oa_stage(const oa_any *pointer, const void *value, int dtype, oa_any **staged) {
  const char *const function = "oa_stage";
  const int64_t nbytes = oa_itemsize(dtype);
  int status;
  if (!nbytes) return oa_fail(OA_ERROR_TYPE, "%s: dtype %d is no oa_dtype", function, dtype);
  oa_slot *slot = enter(function, pointer, &status);
  if (!slot) return status;
  oa_state *region = slot->region;
  oa_device *device = region->device;
  oa_stream *stream = region->stream;
  oa_mapping *mapping = oa_mapping_new(device, OA_MAPS_STAGED, nbytes);
  oa_slot *made = mapping ? oa_slot_take(region, OA_SLOT_POINTER) : NULL;
  if (!made || oa_region_attach(region, mapping)) {
    if (made) oa_slot_release(made);
    if (mapping) oa_mapping_free(mapping, stream);
    oa_unlock();
    return OA_ERROR_MEMORY;
  }
  made->dtype = (uint8_t)dtype;
  made->reads = made->writes = true;
  made->mapping = mapping;
  made->nbytes = nbytes;
  made->inside = (oa_lines){0, nbytes, nbytes, 1};
  mapping->groups[0].valid = true;
  mapping->parts[0].lines = made->inside;
  mapping->holders = mapping->references = 1;
  *staged = oa_slot_handle(made);
  region->open_calls++; /* it stays open until the value is on its way */
  oa_unlock();
  uint64_t address = 0;
  status = oa_device_allocate(device, stream->native, (size_t)nbytes, &address);
  if (!status) {
    oa_move move = {
        .host = (void *)value,
        .address = address,
        .lines = made->inside,
        .name = "a scalar",
        .trace = {.why = "for a call whose scalars are on the device", .region = region->serial, .apart = true}};
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
  region->open_calls--;
  oa_announce_change();
  oa_unlock();
  if (status) {
    oa_saved_error saved;
    oa_error_save(&saved);
    oa_pointer_release(*staged);
    oa_error_restore(&saved);
  }
  return status;
}
