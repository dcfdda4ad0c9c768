#include "region/capture.h"
#include "device/memory.h"
#include "library/handles.h"
#include "region/aborted.h"
#include "region/coherent.h"
#include "region/slot.h"

#include <stdio.h>
#include <stdlib.h>

static oa_capture *holding; /* captures that hold objects; under the lock */

oa_capture *oa_capture_of(const oa_region_state *region, const oa_stream *stream) {
  return region->capture && region->capture->stream == stream ? region->capture : NULL;
}

/* Returns room for one more element of a list. If host memory runs out, marks the capture as failed and returns
 * NULL. */
static void *room(oa_capture *capture, void *list, int count, int *capacity, size_t each) {
  void **at = list;
  if (count == *capacity) {
    const int wanted = *capacity ? 2 * *capacity : 8;
    void *longer = realloc(*at, (size_t)wanted * each);
    if (!longer) {
      capture->failed = true;
      return NULL;
    }
    *at = longer;
    *capacity = wanted;
  }
  return (char *)*at + (size_t)count * each;
}

/* Returns the handle of a new pointer to the counted memory of a slot; NULL: host memory ran out. */
static const void *point_to(const oa_slot *slot) {
  oa_mapping *counted = slot->mapping;
  oa_slot *own = oa_slot_take(slot->region, OA_SLOT_POINTER);
  if (!own) return NULL;
  oa_slot_point(own, slot->dtype, counted, slot->view, counted->views[slot->view].lines);
  own->reads = own->writes = true;
  own->nbytes = counted->nbytes;
  counted->pointers++;
  return oa_slot_handle(own);
}

/* Returns the entry of an operand's group, a new entry if the group has none yet; NULL: there is no memory. */
static oa_captured *entry_of(oa_capture *capture, const oa_slot *slot, bool overwrites) {
  const oa_mapping *mapping = slot->mapping;
  const int group = (int)(slot->group - mapping->groups);
  for (oa_captured *c = capture->groups; c < capture->groups + capture->count; c++)
    if (c->mapping == mapping && c->serial == mapping->serial && c->group == group) return c;
  oa_captured *c = room(capture, &capture->groups, capture->count, &capture->capacity, sizeof *c);
  const bool owns = mapping->counted;
  if (!c) return NULL;
  *c = (oa_captured){.root = owns ? point_to(slot) : NULL,
                     .noted = oa_slot_handle(slot),
                     .mapping = mapping,
                     .serial = mapping->serial,
                     .group = group,
                     .owns = owns,
                     .address = mapping->address,
                     .reads = !overwrites};
  if (owns && !c->root) {
    capture->failed = true;
    return NULL;
  }
  capture->count++;
  return c;
}

/* Notes the region's own pointer of an operand. */
static void note_root(oa_capture *capture, const oa_slot *slot, bool writes) {
  const void *root = oa_slot_handle(oa_slot_root(slot));
  oa_captured_root *r = capture->roots, *end = r + capture->root_count;
  while (r < end && r->root != root) r++;
  if (r == end) {
    r = room(capture, &capture->roots, capture->root_count, &capture->root_capacity, sizeof *r);
    if (!r) return;
    *r = (oa_captured_root){.root = root};
    capture->root_count++;
  }
  r->writes |= writes;
}

void oa_capture_note_call(oa_capture *capture, const char *function) {
  oa_captured_call *c = room(capture, &capture->calls, capture->call_count, &capture->call_capacity, sizeof *c);
  if (!c) return;
  snprintf(c->function, sizeof c->function, "%s", function);
  c->first = capture->use_count;
  c->uses = 0;
  capture->call_count++;
}

void oa_capture_note(oa_capture *capture, oa_slot *slot, bool overwrites, bool reads, bool writes) {
  oa_captured *c = entry_of(capture, slot, overwrites);
  oa_captured_use *use = room(capture, &capture->uses, capture->use_count, &capture->use_capacity, sizeof *use);
  if (capture->failed) return;
  if (!c->owns) note_root(capture, slot, writes);
  if (!c->owns && (!c->root || (writes && !c->writes))) c->root = oa_slot_handle(oa_slot_root(slot));
  c->writes |= writes;
  *use = (oa_captured_use){(int)(c - capture->groups), reads, writes};
  capture->use_count++;
  capture->calls[capture->call_count - 1].uses++;
  slot->group->captured |= overwrites;
  if (oa_is_coherent(slot->mapping)) slot->mapping->special |= OA_IS_CAPTURED;
  slot->zero &= !writes;
}

void oa_capture_end(const oa_capture *capture) {
  for (int i = 0; i < capture->count; i++) {
    const oa_captured *c = &capture->groups[i];
    int status;
    const oa_slot *slot = oa_slot_of(c->root, OA_SLOT_POINTER, &status);
    oa_mapping *mapping = slot ? slot->mapping : oa_mappings;
    while (mapping && (mapping != c->mapping || mapping->serial != c->serial)) mapping = mapping->next;
    if (mapping) mapping->groups[c->group].captured = false;
  }
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
  capture->nbytes += (int64_t)nbytes;
  oa_unlock();
  return OA_OK;
}

int oa_capture_take(oa_capture *capture, const oa_region_state *region, size_t nbytes, uint64_t *address) {
  oa_device *device = region->device;
  void *stream = region->stream->native; /* not the captured stream: there, each replay would allocate again */
  oa_captured_workspace *workspace = malloc(sizeof *workspace);
  if (!workspace) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for the workspace of a graph", device->name);
  int status = oa_device_allocate(device, stream, nbytes, address);
  if (status) {
    free(workspace);
    return status;
  }
  /* The allocation has to be complete now, because a graph waits for nothing outside itself. */
  status = device->backend->stream_synchronize(device, stream);
  oa_lock();
  *workspace = (oa_captured_workspace){capture->workspaces, *address, nbytes};
  capture->workspaces = workspace;
  oa_unlock();
  return status;
}

int oa_capture_share(oa_capture *capture, const oa_region_state *region, size_t nbytes, uint64_t *address) {
  oa_lock();
  const bool fits = nbytes <= capture->shared_bytes;
  *address = capture->shared;
  oa_unlock();
  if (fits) return OA_OK;
  const int status = oa_capture_take(capture, region, nbytes, address);
  if (status) return status;
  oa_lock();
  if (nbytes > capture->shared_bytes) {
    capture->shared = *address;
    capture->shared_bytes = nbytes;
  }
  oa_unlock();
  return OA_OK;
}

/* Sets the workspace of a handle; 0: the library's own memory. The call is made in relaxed mode, because the library
 * may free memory in it, which captures forbid otherwise. */
static int set_workspace(const oa_capture *capture, const oa_captured_handle *h, uint64_t address) {
  const oa_backend *backend = capture->stream->device->backend;
  const int mode = backend->capture_mode ? backend->capture_mode(OA_RELAXED) : -1;
  const int status = oa_library_set_workspace(h->library, h->handle, capture->stream, address);
  if (mode >= 0) backend->capture_mode(mode);
  return status;
}

/* Returns the entry of a handle once the entry is ready, or a new entry, which no other thread has. NULL: host memory
 * ran out. Called with the lock, which it may free and take again. */
static oa_captured_handle *entry_of_handle(oa_capture *capture, const oa_library *library, void *handle) {
  oa_captured_handle *h = capture->handles;
  while (h && h->handle != handle) h = h->next;
  while (h && !h->is_ready) oa_wait_change();
  if (h) return h;
  h = malloc(sizeof *h);
  if (!h) return NULL;
  *h = (oa_captured_handle){.next = capture->handles, .library = library, .handle = handle};
  capture->handles = h;
  return h;
}

int oa_capture_equip(oa_capture *capture, const oa_region_state *region, const oa_library *library, void *handle) {
  if (!library->workspace_bytes) return OA_OK;
  oa_lock();
  oa_captured_handle *h = entry_of_handle(capture, library, handle);
  const bool is_new = h && !h->is_ready;
  oa_unlock();
  if (!h) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a handle of a graph", library->name);
  if (!is_new) return OA_OK;
  uint64_t address = 0;
  int status = oa_capture_take(capture, region, (size_t)library->workspace_bytes, &address);
  if (!status) status = set_workspace(capture, h, address);
  oa_lock();
  h->is_set = address && !status;
  h->is_ready = true;
  oa_announce_change();
  oa_unlock();
  return status == OA_ERROR_MEMORY ? OA_OK : status;
}

int oa_capture_hold(oa_capture *capture, void *object, void (*let_go)(void *object), bool *is_new) {
  oa_captured_object *own = malloc(sizeof *own);
  if (!own)
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for an object of a graph", capture->stream->device->name);
  oa_lock();
  const oa_captured_object *noted = capture->objects;
  while (noted && noted->object != object) noted = noted->next;
  *is_new = !noted;
  if (*is_new) {
    *own = (oa_captured_object){capture->objects, object, let_go};
    capture->objects = own;
    if (!capture->listed) {
      capture->listed = true;
      capture->next = holding;
      holding = capture;
    }
  }
  oa_unlock();
  if (noted) free(own);
  return OA_OK;
}

void oa_capture_let_go(oa_capture *capture) {
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_lock();
  oa_captured_object *objects = capture->objects;
  capture->objects = NULL;
  if (capture->listed) {
    oa_capture **link = &holding;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    capture->listed = false;
    oa_announce_change();
  }
  oa_unlock();
  for (oa_captured_object *o = objects, *next; o; o = next) {
    next = o->next;
    o->let_go(o->object);
    free(o);
  }
  oa_error_restore(&saved);
}

/* -- objects that are aborted -- */

static bool uses(const oa_capture *capture, const void *object) {
  const oa_captured_object *noted = capture->objects;
  while (noted && noted->object != object) noted = noted->next;
  return noted;
}

int oa_captures_abort(const char *function, const char *name, const void *object, bool *any) {
  *any = false;
  for (const oa_capture *c = holding; c; c = c->next)
    if (!c->is_whole && uses(c, object))
      return oa_fail(OA_ERROR_CAPTURE, "%s: calls with %s are being captured; end the capture first", function, name);
  for (oa_capture *c = holding; c; c = c->next) {
    if (!uses(c, object)) continue;
    *any = true;
    atomic_store(&c->aborted, name);
    oa_object_spoils(c->stream->device, &c->aborted);
  }
  return OA_OK;
}

bool oa_captures_end(const void *object) {
  oa_capture *c = holding;
  bool all = true;
  while (c) {
    if (uses(c, object) && c->end(c)) {
      c = holding; /* the list may have changed */
      all = true;
    } else {
      all &= !uses(c, object);
      c = c->next;
    }
  }
  return all;
}

bool oa_captures_have(const void *object, const oa_abortable *aborted) {
  for (const oa_capture *c = holding; c; c = c->next)
    if (&c->aborted == aborted) return uses(c, object);
  return false;
}

bool oa_captures_run(const void *object) {
  for (const oa_capture *c = holding; c; c = c->next)
    if (uses(c, object) && oa_object_runs(c->stream->device, &c->aborted)) return true;
  return false;
}

/* Makes the handles use the libraries' own memory again. */
static void free_handles(const oa_capture *capture) {
  const oa_device *device = capture->stream->device;
  oa_saved_error saved;
  void *before = NULL;
  oa_error_save(&saved);
  const bool alive = capture->handles && !atomic_load(&device->lost);
  const bool entered = alive && (!device->backend->enter || !device->backend->enter(capture->stream->device, &before));
  for (oa_captured_handle *h = capture->handles, *next; h; h = next) {
    next = h->next;
    if (entered && h->is_set) set_workspace(capture, h, 0);
    free(h);
  }
  if (entered && device->backend->leave) device->backend->leave(capture->stream->device, before);
  oa_error_restore(&saved);
}

void oa_capture_free(oa_capture *capture) {
  oa_device *device = capture->stream->device;
  free_handles(capture);
  oa_capture_let_go(capture);
  for (oa_captured_workspace *w = capture->workspaces, *next; w; w = next) {
    next = w->next;
    if (!atomic_load(&device->lost)) oa_device_free(device, capture->stream->native, w->address, w->nbytes);
    free(w);
  }
  for (oa_captured_values *values = capture->values, *next; values; values = next) {
    next = values->next;
    if (!atomic_load(&device->lost)) device->backend->unpin(device, values->memory, values->nbytes);
    free(values);
  }
  oa_lock();
  for (const oa_captured *c = capture->groups; c < capture->groups + capture->count; c++) {
    int status;
    oa_slot *own = c->owns ? oa_slot_of(c->root, OA_SLOT_POINTER, &status) : NULL;
    if (own) oa_slot_destroy(own);
  }
  oa_unlock();
  free(capture->groups);
  free(capture->roots);
  free(capture->calls);
  free(capture->uses);
}

static bool holds(const oa_region_state *region, const oa_mapping *mapping) {
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i] == mapping) return true;
  return false;
}

bool oa_capture_concerns(const oa_mapping *mapping) {
  for (const oa_region_state *region = oa_region_youngest(); region; region = region->older)
    if (region->capture && holds(region, mapping)) return true;
  return false;
}

/* Returns whether work on the stream may touch the mapping: the region lends some of the mapping and its calls go to
 * the stream, or a call that may have used the mapping was captured on the stream. */
static bool concerns(const oa_region_state *region, const oa_stream *stream, const oa_mapping *mapping) {
  if (!stream->is_known) return false;
  return (stream == region->calls && holds(region, mapping)) || (stream->captured && mapping->escaped);
}

static int check(const char *function, const char *name, oa_stream *stream, oa_stream *own) {
  int capturing;
  if (own && own->native == stream->native) return OA_OK;
  /* An update has no stream, and may come after this stream was destroyed. */
  /* This failure means, on HIP, that the stream no longer exists. */
  if (oa_stream_capturing(stream, own != NULL, &capturing)) return OA_OK;
  if (capturing)
    return oa_fail(
        OA_ERROR_CAPTURE,
        "%s: %s belongs to a stream that is being captured into a graph, and this work would run now, outside of the "
        "graph; do it before the capture begins or after it has ended, or in a call on that stream",
        function, name);
  if (!stream->captured || !own) return OA_OK;
  /* The program itself orders its graphs, so that this function adds no order. */
  if (oa_stream_capturing(own, true, &capturing) || capturing) return OA_OK;
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
