#include "device/stream.h"

#include "device/staging.h"

#include <stdlib.h>

static void list_known(oa_stream *stream) {
  oa_device *device = stream->device;
  stream->is_known = true;
  stream->next_known = device->known_streams;
  if (stream->next_known) stream->next_known->previous_known = stream;
  device->known_streams = stream;
}

int oa_stream_capturing(const oa_stream *stream, bool is_used, int *capturing) {
  *capturing = 0;
  if (OA_LIKELY(!stream->is_known)) return OA_OK;
  if (!is_used && stream->number < 0 && !stream->captured) return OA_OK;
  return stream->device->backend->stream_capturing(stream->device, stream->native, capturing);
}

int oa_streams_check(const oa_device *device, const char *why, bool asked) {
  int capturing = 0;
  for (const oa_stream *s = device->known_streams; s && !capturing; s = s->next_known)
    if (oa_stream_capturing(s, asked, &capturing)) capturing = 0; /* on HIP, a query fails if the capture has ended */
  if (!capturing) return OA_OK;
  return oa_fail(OA_ERROR_CAPTURE,
                 "%s: one of its streams is being captured into a graph, and the whole device would have to be waited "
                 "for (%s); end the capture first",
                 device->name, why);
}

/* Takes a stream from a pool, or makes one. */
static int take(oa_device *device, oa_stream **pool, oa_stream **stream) {
  for (oa_stream **link = pool; *link; link = &(*link)->next) {
    oa_stream *idle = *link;
    int capturing;
    if (oa_stream_capturing(idle, true, &capturing) || capturing) continue;
    *stream = idle;
    *link = idle->next;
    idle->next = NULL;
    return OA_OK;
  }
  oa_stream *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a stream", device->name);
  const int status = device->backend->stream_create(device, &fresh->native);
  if (status) {
    free(fresh);
    return status;
  }
  fresh->device = device;
  fresh->number = device->stream_count++;
  fresh->next_made = device->streams;
  device->streams = fresh;
  *stream = fresh;
  return OA_OK;
}

int oa_stream_take(oa_device *device, oa_stream **stream) { return take(device, &device->idle_streams, stream); }

int oa_stream_take_for_capture(oa_device *device, oa_stream **stream) {
  const int status = take(device, &device->idle_capture_streams, stream);
  if (!status) (*stream)->is_for_capture = true;
  return status;
}

void oa_stream_return(oa_stream *stream) {
  oa_device *device = stream->device;
  oa_stream **pool = stream->is_for_capture ? &device->idle_capture_streams : &device->idle_streams;
  stream->next = *pool;
  *pool = stream;
}

int oa_stream_foreign(oa_device *device, void *native, oa_stream **stream) {
  oa_stream *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a stream", device->name);
  fresh->device = device;
  fresh->native = native;
  fresh->number = -1;
  list_known(fresh);
  *stream = fresh;
  return OA_OK;
}

void oa_stream_make_unknown(oa_stream *stream) {
  if (stream->next_known) stream->next_known->previous_known = stream->previous_known;
  *(stream->previous_known ? &stream->previous_known->next_known : &stream->device->known_streams) = stream->next_known;
  stream->next_known = stream->previous_known = NULL;
  stream->is_known = false;
}

void oa_stream_destroy(oa_stream *stream) {
  oa_stream_make_unknown(stream);
  if (stream->event) stream->device->backend->event_destroy(stream->device, stream->event);
  if (stream->pace) stream->device->backend->event_destroy(stream->device, stream->pace);
  free(stream->seen);
  free(stream);
}

/* Records the event after the stream's last operation. */
static int record(oa_stream *stream) {
  const oa_backend *backend = stream->device->backend;
  int status = OA_OK;
  if (!stream->event) status = backend->event_create(stream->device, &stream->event);
  if (!status) status = backend->event_record(stream->device, stream->event, stream->native);
  if (!status) stream->covered = stream->ticket;
  return status;
}

int oa_stream_mark(oa_stream *stream) { return record(stream); }

int oa_stream_make_known(oa_stream *stream) {
  if (stream->is_known) return OA_OK;
  const oa_backend *backend = stream->device->backend;
  const bool exposes = backend->stream_expose && !stream->is_for_capture;
  if (exposes) backend->stream_expose(stream->device, stream->native);
  stream->paced = 0; /* no wait for an event that was recorded before */
  int status = stream->ticket > stream->covered || (exposes && stream->event) ? record(stream) : OA_OK;
  if (!status && exposes) status = oa_blocks_mark_again(stream->device, stream->native);
  if (!status) list_known(stream);
  return status;
}

int oa_stream_advance(oa_stream *stream) {
  stream->ticket++;
  return stream->is_known ? record(stream) : OA_OK;
}

/* Keeps the number of calls under way on the stream small: waits for an earlier call if the stream is too far ahead. */
static int pace(oa_stream *stream) {
  enum { AHEAD = 64 }; /* the stream is at most twice as many operations ahead; a queue of CUDA has some 1,000 places */
  oa_device *device = stream->device;
  const oa_backend *backend = device->backend;
  int status = OA_OK;
  while (!status && stream->ticket - stream->paced >= AHEAD) {
    const uint64_t paced = stream->paced, ticket = stream->ticket;
    if (!stream->pace && (status = backend->event_create(device, &stream->pace))) break;
    void *event = stream->pace;
    const bool waits = paced > stream->waited;
    oa_unlock();
    if (waits) status = backend->event_synchronize(device, event);
    if (!status) status = backend->event_record(device, event, stream->native);
    oa_lock();
    if (status) break;
    if (waits) oa_stream_waited(stream, paced);
    if (stream->paced < ticket) stream->paced = ticket; /* another thread may have recorded the event again */
  }
  return status;
}

int oa_stream_advance_apart(oa_stream *stream) {
  const oa_device *device = stream->device;
  if (!atomic_load_explicit(&device->abortable, memory_order_relaxed)) return oa_stream_advance(stream);
  int status = pace(stream);
  if (!status && stream->is_known && !stream->event)
    status = device->backend->event_create(stream->device, &stream->event);
  const bool records = stream->is_known;
  if (!status && records) {
    void *event = stream->event;
    oa_unlock();
    status = device->backend->event_record(stream->device, event, stream->native);
    oa_lock();
  }
  if (status) return status;
  stream->ticket++;
  if (records) stream->covered = stream->ticket; /* each thread records the event before it gets its ticket */
  return OA_OK;
}

void oa_stream_waited(oa_stream *stream, uint64_t ticket) {
  if (stream->number >= 0 && ticket > stream->waited) stream->waited = ticket;
}

void oa_stream_note_object(oa_stream *stream, const oa_abortable *object) {
  enum { MOST = sizeof stream->issued / sizeof stream->issued[0] };
  oa_issued *at = NULL;
  for (oa_issued *i = stream->issued; i < stream->issued + MOST; i++) {
    if (i->last <= stream->waited) i->last = 0;
    if (!i->last ? !at : i->object == object) at = i;
  }
  if (!at) {
    at = stream->issued; /* this entry gets the operations of all other objects, too */
    at->object = NULL;
  }
  if (!at->last) *at = (oa_issued){.object = object, .first = stream->ticket};
  at->last = stream->ticket;
}

uint64_t oa_stream_first_of(const oa_stream *stream, const oa_abortable *object) {
  enum { MOST = sizeof stream->issued / sizeof stream->issued[0] };
  uint64_t first = 0;
  for (const oa_issued *i = stream->issued; i < stream->issued + MOST; i++)
    if (i->last > stream->waited && (!i->object || i->object == object) && (!first || i->first < first))
      first = i->first;
  return first;
}

int oa_stream_after(oa_stream *stream, oa_stream *other, uint64_t ticket) {
  if (stream == other || ticket == 0 || (stream->device->backend->flags & OA_SYNCHRONOUS)) return OA_OK;
  const int number = other->number;
  if (number >= 0 && number < stream->seen_count && stream->seen[number] >= ticket) return OA_OK;
  int status = other->covered >= ticket ? OA_OK : record(other);
  if (!status) status = stream->device->backend->stream_wait(stream->device, stream->native, other->event);
  if (status || number < 0) return status;
  if (number >= stream->seen_count) {
    const int count = number + 8;
    uint64_t *seen = realloc(stream->seen, (size_t)count * sizeof *seen);
    if (!seen) return OA_OK; /* without a clock, the stream only waits needlessly for operations that are over */
    for (int i = stream->seen_count; i < count; i++) seen[i] = 0;
    stream->seen = seen;
    stream->seen_count = count;
  }
  stream->seen[number] = other->covered;
  return OA_OK;
}

static oa_use *use_at(const oa_uses *uses, int i) { return i == 0 ? (oa_use *)&uses->first : &uses->more[i - 1]; }

int oa_uses_order(const oa_uses *uses, oa_stream *stream, bool writes) {
  for (int i = 0; i < uses->count; i++) {
    const oa_use *use = use_at(uses, i);
    if (use->stream == stream) continue;
    const uint64_t ticket = writes && use->read > use->written ? use->read : use->written;
    const int status = oa_stream_after(stream, use->stream, ticket);
    if (status) return status;
  }
  return OA_OK;
}

int oa_uses_end(const oa_uses *uses, oa_stream *stream, bool *over) {
  const int status = oa_uses_order(uses, stream, true);
  *over = !status || oa_device_quiesce(stream->device);
  return status;
}

int oa_use_wait(const oa_uses *uses, int number, const oa_stream *stream) {
  const oa_use *use = use_at(uses, number);
  oa_stream *other = use->stream;
  const uint64_t ticket = use->read > use->written ? use->read : use->written;
  oa_device *device = other->device;
  if (other == stream || ticket <= other->waited) return OA_OK;
  int status = other->covered >= ticket ? OA_OK : record(other);
  void *event = other->event;
  if (status) return status;
  oa_unlock();
  status = device->backend->event_synchronize(device, event);
  oa_lock();
  return status;
}

int oa_uses_add(oa_uses *uses, oa_stream *stream, bool writes) {
  oa_use *use = NULL;
  for (int i = 0; i < uses->count && !use; i++)
    if (use_at(uses, i)->stream == stream) use = use_at(uses, i);
  if (!use) {
    if (uses->count - 1 >= uses->capacity && uses->count > 0) {
      const int capacity = uses->capacity ? 2 * uses->capacity : 4;
      oa_use *more = realloc(uses->more, (size_t)capacity * sizeof *more);
      if (!more) return oa_fail(OA_ERROR_MEMORY, "no host memory to note the use of a mapping");
      uses->more = more;
      uses->capacity = capacity;
    }
    use = use_at(uses, uses->count++);
    *use = (oa_use){.stream = stream};
  }
  *(writes ? &use->written : &use->read) = stream->ticket;
  return OA_OK;
}

void oa_uses_inherit(oa_uses *uses, const oa_stream *foreign, oa_stream *heir) {
  for (int i = 0; i < uses->count; i++) {
    oa_use *use = use_at(uses, i);
    if (use->stream != foreign) continue;
    use->stream = heir; /* the list may now have two entries of `heir`; readers of the list use both entries */
    if (use->read) use->read = heir->ticket;
    if (use->written) use->written = heir->ticket;
  }
}

bool oa_uses_over(const oa_uses *uses, const oa_stream *stream) {
  for (int i = 0; i < uses->count; i++) {
    const oa_use *use = use_at(uses, i);
    if (use->stream != stream || use->read > stream->waited || use->written > stream->waited) return false;
  }
  return true;
}

bool oa_uses_write_doubtful(const oa_uses *uses) {
  for (int i = 0; i < uses->count; i++) {
    const oa_use *use = use_at(uses, i);
    if (use->stream->doubtful && use->written >= use->stream->doubtful) return true;
  }
  return false;
}

bool oa_uses_arrived(const oa_uses *uses) {
  for (int i = 0; i < uses->count; i++) {
    const oa_use *use = use_at(uses, i);
    if (use->written > use->stream->waited) return false;
  }
  return true;
}

void oa_uses_free(oa_uses *uses) {
  free(uses->more);
  *uses = (oa_uses){.count = 0};
}
