/* Device memory that a program takes while a region is open. The memory ends with its last pointer, or with the
 * region. */
#include "device/memory.h"
#include "region/array.h"
#include "region/slot.h"

#include <stdio.h>

/* Finds the operand of the youngest region. All operands have to be on one device. */
static int find_youngest(const char *function, const oa_any *const *operands, int count, const oa_any **youngest) {
  const oa_device *device = NULL;
  uint64_t serial = 0;
  for (int i = 0; i < count; i++) {
    int status;
    const oa_slot *slot = oa_slot_enter(function, "an operand", operands[i], &status);
    if (!slot) return status;
    const oa_region_state *region = slot->region;
    const oa_device *of_slot = region->device;
    if (region->serial > serial) {
      serial = region->serial;
      *youngest = operands[i];
    }
    oa_unlock();
    if (device && of_slot != device)
      return oa_fail(OA_ERROR_DEVICE,
                     "%s: an operand is on %s, and another one on %s; all must be on one device: lend "
                     "their arrays in one region",
                     function, of_slot->name, device->name);
    device = of_slot;
  }
  return OA_OK;
}

/* Fails unless the region can take memory now. of_graph: a graph of the core may keep the memory. */
static int check_region(const char *function, oa_region_state *region, bool of_graph) {
  int capturing;
  const int status = oa_stream_capturing(region->stream, true, &capturing);
  if (status) return oa_fail_in(status, "%s", function);
  if (region->phase != OA_OPEN)
    return oa_fail(OA_ERROR_STALE, "%s: an operand belongs to a region that is being left", function);
  if (!capturing && (of_graph || !region->capture)) return OA_OK;
  return oa_fail(OA_ERROR_CAPTURE,
                 "%s: the region is being captured into a graph, whose memory is there before; lend a Scratch, or make "
                 "the call outside of the capture",
                 function);
}

/* Returns the pointer to new memory of the region, which has no address yet; NULL with the text set. */
static oa_slot *make(oa_region_state *region, const oa_lent_array *lent) {
  oa_mapping *mapping = oa_mapping_new(region->device, OA_MAPS_SCRATCH, lent->layout.span);
  oa_slot *slot = mapping ? oa_slot_take(region, OA_SLOT_POINTER) : NULL;
  if (!slot || oa_region_attach(region, mapping)) {
    if (slot) oa_slot_free(slot);
    if (mapping) oa_mapping_free(mapping, region->stream, false);
    return NULL;
  }
  mapping->counted = true;
  mapping->holders = mapping->references = 1;
  mapping->serial = region->serial;
  mapping->groups[0].valid = true;
  oa_lines lines = lent->layout.lines;
  lines.start = 0;
  mapping->views[0] = (oa_view){.lines = lines, .dtype = lent->array->dtype, .writes = true};
  snprintf(mapping->views[0].name, sizeof mapping->views[0].name, "%s", lent->name);
  oa_slot_point(slot, lent->array->dtype, mapping, 0, lines);
  return slot;
}

/* Allocates the memory. Called with the lock, which it frees and takes again. */
static int allocate(oa_slot *slot) {
  const oa_region_state *region = slot->region;
  oa_mapping *mapping = slot->mapping;
  oa_device *device = region->device;
  oa_stream *stream = region->stream;
  uint64_t address = 0;
  enum oa_zeros zeros = OA_ZEROS_NONE;
  int status = OA_OK;
  bool is_pooled = oa_device_take(device, stream->native, (size_t)mapping->nbytes, &address, &zeros);
  if (!is_pooled) {
    oa_slot_hold(slot, NULL); /* a held slot keeps the region open during the allocation */
    oa_unlock();
    status = oa_device_allocate(device, stream->native, (size_t)mapping->nbytes, &address);
    oa_lock();
    oa_slot_unhold(slot, false);
    oa_announce_change();
  }
  if (status) return status;
  mapping->address = address;
  mapping->zeros = zeros != OA_ZEROS_NONE;
  if ((is_pooled && zeros != OA_ZEROS_ORDERED) || device->backend->flags & OA_SYNCHRONOUS) return OA_OK;
  status = oa_stream_advance(stream);
  return status ? status : oa_uses_add(&mapping->uses, stream, true);
}

int oa_scratch(const oa_any *const *operands, int count, oa_array *array) {
  const char *const function = "oa_scratch";
  if (!operands || !array || count < 1) return oa_fail_null(function, array ? "operands" : "array");
  if (array->direction != OA_SCRATCH)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: array->direction needs OA_SCRATCH, got %d", function, array->direction);
  oa_lent_array lent = {.array = array};
  const oa_any *youngest = NULL;
  int status = oa_lent_array_check(&lent, 0);
  if (status) return oa_fail_in(status, "%s", function);
  if ((status = find_youngest(function, operands, count, &youngest))) return status;
  const oa_slot *operand = oa_slot_enter(function, "an operand", youngest, &status);
  if (!operand) return status;
  oa_region_state *region = operand->region;
  if ((status = check_region(function, region, array->flags & OA_OF_GRAPH))) {
    oa_unlock();
    return status;
  }
  oa_slot *slot = lent.layout.size ? make(region, &lent) : oa_slot_take(region, OA_SLOT_POINTER);
  if (!slot) {
    oa_unlock();
    return OA_ERROR_MEMORY;
  }
  if (!lent.layout.size) oa_slot_point(slot, array->dtype, NULL, 0, (oa_lines){.count = 0});
  slot->reads = slot->writes = true;
  slot->nbytes = oa_lines_span(slot->inside);
  oa_any *handle = oa_slot_handle(slot);
  status = oa_slot_shape(slot, array->ndim, array->shape, array->strides);
  if (!status && lent.layout.size) status = allocate(slot);
  if (status) {
    oa_saved_error saved;
    oa_error_save(&saved);
    oa_slot_destroy(slot);
    oa_error_restore(&saved);
  }
  oa_unlock();
  if (status) return oa_fail_in(status, "%s: %s (%lld bytes)", function, lent.name, (long long)lent.layout.span);
  array->handle = handle;
  array->packed = 0;
  return OA_OK;
}
