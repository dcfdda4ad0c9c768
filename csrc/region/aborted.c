#include "region/aborted.h"

void oa_make_undefined(oa_mapping *mapping, int group) {
  mapping->groups[group].invalid = mapping->spoiled = true;
  mapping->device->abortable = mapping->device->spoiled = true;
  if (mapping->leaving) mapping->leaving->spoiled = true;
}

/* Returns the first (NULL) or the next one of the streams to which operations of the device went: those of the device,
 * then those of callers. */
static oa_stream *after(const oa_device *device, const oa_stream *stream) {
  const bool is_foreign = stream && stream->number < 0;
  oa_stream *next = is_foreign ? stream->next_known : stream ? stream->next_made : device->streams;
  if (!next && !is_foreign)
    next = device->known_streams;
  else if (!is_foreign)
    return next;
  while (next && next->number >= 0) next = next->next_known;
  return next;
}

/* Returns whether operations of a stream that may still run may come after doubtful operations of another stream. */
static bool follows(const oa_stream *stream, const oa_stream *other) {
  if (stream->ticket <= stream->waited) return false;
  if (other->number < 0) return true; /* streams do not note the foreign streams that they waited for */
  return other->number < stream->seen_count && stream->seen[other->number] >= other->doubtful;
}

/* Marks the operations that come after the doubtful operations of the stream. Returns whether there were unmarked
 * ones. */
static bool mark_followers(const oa_device *device, const oa_stream *doubtful) {
  bool any = false;
  for (oa_stream *s = after(device, NULL); s; s = after(device, s)) {
    if (s->doubtful || !follows(s, doubtful)) continue;
    s->doubtful = s->waited + 1;
    any = true;
  }
  return any;
}

void oa_object_spoils(oa_device *device, const oa_abortable *object) {
  bool any = false;
  if (!device) return;
  for (oa_stream *s = after(device, NULL); s; s = after(device, s))
    any |= (s->doubtful = oa_stream_first_of(s, object));
  for (bool again = any; again;) {
    again = false;
    for (oa_stream *s = after(device, NULL); s; s = after(device, s))
      if (s->doubtful) again |= mark_followers(device, s);
  }
  for (oa_mapping *m = any ? oa_mappings : NULL; m; m = m->next)
    for (int i = 0; i < m->group_count && m->device == device; i++)
      if (m->groups[i].written && oa_uses_write_doubtful(&m->uses)) oa_make_undefined(m, i);
}

/* Returns whether all operations of a stream are over. */
static bool is_over(oa_stream *stream) {
  oa_device *device = stream->device;
  const oa_backend *backend = device->backend;
  oa_saved_error saved;
  int done = 1;
  oa_error_save(&saved);
  if (stream->number >= 0)
    done = !backend->stream_done || backend->stream_done(device, stream->native, &done) || done;
  else if (stream->event) /* the caller may have destroyed the stream; its event follows each operation of the core */
    done = backend->event_done(device, stream->event, &done) || done;
  oa_error_restore(&saved);
  return done;
}

bool oa_object_runs(oa_device *device, const oa_abortable *object) {
  if (!device || atomic_load(&device->lost)) return false;
  for (oa_stream *s = after(device, NULL); s; s = after(device, s))
    if (oa_stream_first_of(s, object) && !is_over(s)) return true;
  return false;
}

bool oa_others_run(oa_device *device, bool (*is_own)(const void *subject, const oa_abortable *object),
                   const void *subject) {
  if (!device || atomic_load(&device->lost)) return false;
  for (oa_stream *s = after(device, NULL); s; s = after(device, s)) {
    bool any = false;
    for (const oa_issued *i = s->issued; i < s->issued + sizeof s->issued / sizeof s->issued[0]; i++)
      any |= i->last > s->waited && !is_own(subject, i->object);
    if (any && !is_over(s)) return true;
  }
  return false;
}
