#include "region/capture.h"
#include "region/slot.h"

#include <stdlib.h>

oa_capture *oa_capture_of(const oa_region_state *region, const oa_stream *stream) {
  return region->capture && region->capture->stream == stream ? region->capture : NULL;
}

void oa_capture_note(oa_capture *capture, const oa_slot *slot, bool overwrites, bool writes) {
  oa_mapping *mapping = slot->mapping;
  const int group = (int)(slot->group - mapping->groups);
  if (mapping->kind == OA_MAPS_SCALAR) { /* its value stays, and its memory while the region is open */
    mapping->escaped = true;
    capture->failed |= writes; /* no replay would be ordered with its readers */
    return;
  }
  mapping->counted = false; /* the graph has its address: it stays until the region ends */
  oa_captured *c = capture->groups, *end = c + capture->count;
  while (c < end && (c->mapping != mapping || c->group != group)) c++;
  if (c == end) {
    if (capture->count == capture->capacity) {
      const int capacity = capture->capacity ? 2 * capture->capacity : 8;
      oa_captured *groups = realloc(capture->groups, (size_t)capacity * sizeof *groups);
      if (!groups) {
        capture->failed = true;
        return;
      }
      capture->groups = groups;
      capture->capacity = capacity;
      c = groups + capture->count;
    }
    *c = (oa_captured){.mapping = mapping, .group = group, .address = mapping->address, .reads = !overwrites};
    capture->count++;
  }
  if (!c->root || (writes && !c->writes)) c->root = oa_slot_handle(oa_slot_root(slot));
  c->writes |= writes;
  slot->group->captured |= overwrites;
}

int oa_capture_keep(oa_capture *capture, size_t nbytes, void **memory) {
  oa_device *device = capture->stream->device;
  oa_captured_values *values = malloc(sizeof *values);
  if (!values) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for the values of a graph", device->name);
  const int status = device->backend->pin(device, nbytes, memory);
  if (status) {
    free(values);
    return status;
  }
  oa_lock();
  *values = (oa_captured_values){capture->values, *memory, nbytes};
  capture->values = values;
  oa_unlock();
  return OA_OK;
}

void oa_capture_free(oa_capture *capture) {
  oa_device *device = capture->stream->device;
  for (oa_captured_values *values = capture->values, *next; values; values = next) {
    next = values->next;
    if (!atomic_load(&device->lost)) device->backend->unpin(device, values->memory, values->nbytes);
    free(values);
  }
  free(capture->groups);
}

static bool holds(const oa_region_state *region, const oa_mapping *mapping) {
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i] == mapping) return true;
  return false;
}

/* Returns whether work on the stream may touch the mapping: calls of the region, which lends some of it, go there, or a
 * captured call that may have used it was. */
static bool concerns(const oa_region_state *region, const oa_stream *stream, const oa_mapping *mapping) {
  if (!stream->is_known) return false;
  return (stream == region->calls && holds(region, mapping)) || (stream->captured && mapping->escaped);
}

static int check(const char *function, const char *name, oa_stream *stream, oa_stream *own) {
  int capturing;
  if (own && own->native == stream->native) return OA_OK;
  /* An update, which has no stream, comes after the last call of this one, which may be gone by then. */
  if (oa_stream_capturing(stream, own != NULL, &capturing)) return OA_OK; /* HIP: the stream no longer exists */
  if (capturing)
    return oa_fail(
        OA_ERROR_CAPTURE,
        "%s: %s has to do with a stream that is being captured into a graph, and the work would go to another "
        "one: it would run now, and be missing from the graph; use that stream, or end the capture first",
        function, name);
  if (!stream->captured || !own) return OA_OK;
  if (oa_stream_capturing(own, true, &capturing) || capturing) return OA_OK; /* the program orders its graphs */
  const int status = oa_stream_advance(stream);
  return status ? status : oa_stream_after(own, stream, stream->ticket);
}

int oa_capture_check(const char *function, const char *name, const oa_mapping *mapping, oa_stream *own) {
  int status = OA_OK;
  if (!mapping || !mapping->device->known_streams) return OA_OK;
  for (const oa_region_state *region = oa_region_youngest(); region && !status; region = region->older) {
    if (region->device != mapping->device) continue;
    if (region->capture && holds(region, mapping)) status = check(function, name, region->capture->stream, own);
    if (status) break;
    if (region->calls && concerns(region, region->calls, mapping)) status = check(function, name, region->calls, own);
    for (oa_stream *s = region->foreign; s && !status; s = s->next)
      if (s != region->calls && concerns(region, s, mapping)) status = check(function, name, s, own);
  }
  return status;
}
