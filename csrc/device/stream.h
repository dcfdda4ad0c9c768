/* Streams: borrowed from a pool a device, or the caller's own; who waits for whom. All functions are called under the
 * core's lock unless they say otherwise. */
#ifndef OA_STREAM_H
#define OA_STREAM_H

#include "device/device.h"

/* A vendor's handle that is bound to a stream, and its pointer mode; -1: not known. */
typedef struct oa_stream_handle {
  void *handle;
  int mode;
} oa_stream_handle;

typedef struct oa_stream {
  oa_device *device;
  void *native;
  int number;       /* within the device; foreign streams have none (-1) */
  uint64_t ticket;  /* of the last operation issued */
  void *event;      /* made at first need */
  uint64_t waited;  /* up to this one they are known to be complete; 0 of a foreign one */
  uint64_t covered; /* the last ticket that event was recorded after */
  uint64_t *seen;   /* by number: the ticket of that stream this one is known to run after */
  int seen_count;
  oa_stream_handle *handles;   /* by library, owned by handles.c; NULL until first need */
  struct oa_stream *next;      /* idle ones; or a region's foreign ones */
  struct oa_stream *next_made; /* all of the device's own */
} oa_stream;

/* The uses of a piece of memory by one stream. */
typedef struct oa_use {
  oa_stream *stream;
  uint64_t read, written; /* tickets; 0: never */
} oa_use;

typedef struct oa_uses {
  oa_use first; /* most memory is used by one stream only */
  oa_use *more;
  int count, capacity;
} oa_uses;

int oa_stream_take(oa_device *device, oa_stream **stream);
void oa_stream_return(oa_stream *stream);
/* A stream owned by somebody else, valid while its region is open. */
int oa_stream_foreign(oa_device *device, void *native, oa_stream **stream);
void oa_stream_destroy(oa_stream *stream);

/* Notes an operation just issued on the stream; records the event at once on foreign ones. */
int oa_stream_advance(oa_stream *stream);
/* Records an event after what was issued so far, for others to wait for no more than that. */
int oa_stream_mark(oa_stream *stream);
/* The stream was waited for after it had issued that ticket. */
void oa_stream_waited(oa_stream *stream, uint64_t ticket);
/* Makes stream run after other's operations up to ticket. */
int oa_stream_after(oa_stream *stream, oa_stream *other, uint64_t ticket);

/* Makes stream run after what a reader (or a writer) of the memory has to wait for. */
int oa_uses_order(const oa_uses *uses, oa_stream *stream, bool writes);
/* Notes a use by the stream's last operation. */
int oa_uses_add(oa_uses *uses, oa_stream *stream, bool writes);
/* Uses by a foreign stream count as uses by heir from now on, which already runs after it. */
void oa_uses_inherit(oa_uses *uses, const oa_stream *foreign, oa_stream *heir);
/* Whether all uses are by that stream, and known to be complete. */
bool oa_uses_over(const oa_uses *uses, const oa_stream *stream);
void oa_uses_free(oa_uses *uses);

#endif
