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
