/* Streams, taken from a device's pool or the caller's own; and the order between streams (a vector clock of tickets).
 * All functions are called under the core's lock unless they say otherwise. */
#ifndef OA_STREAM_H
#define OA_STREAM_H

#include "device/device.h"

/* A stream counts tickets, one an operation. `seen` is its vector clock. */
typedef struct oa_stream {
  oa_device *device;
  void *native;
  int number;       /* within the device; -1 of a foreign stream, which has none */
  uint64_t ticket;  /* of the last operation issued */
  void **handles;   /* two by library, for either pointer mode; owned by handles.c; NULL until first need */
  void *event;      /* made at first need */
  uint64_t waited;  /* operations up to this ticket are known to be complete; 0 of a foreign stream */
  uint64_t covered; /* the ticket after which the event was recorded last */
  uint64_t *seen;   /* by number of the other stream: its latest ticket that this one is known to run after */
  int seen_count;
  struct oa_stream *next;      /* in the list of idle streams, or of a region's foreign ones */
  struct oa_stream *next_made; /* in the list of all of the device's own */
} oa_stream;

/* The uses of some memory by one stream. */
typedef struct oa_use {
  oa_stream *stream;
  uint64_t read, written; /* tickets; 0: never */
} oa_use;

typedef struct oa_uses {
  oa_use first; /* most memory is used by one stream only */
  oa_use *more;
  int count, capacity;
} oa_uses;

/* Takes a stream from the device's pool, or makes one. */
int oa_stream_take(oa_device *device, oa_stream **stream);
/* Returns a stream to the pool. */
void oa_stream_return(oa_stream *stream);
/* Makes a foreign stream: it stands for one of the caller's own, and is valid while its region is open. */
int oa_stream_foreign(oa_device *device, void *native, oa_stream **stream);
/* Destroys a foreign stream; the caller's own goes on. */
void oa_stream_destroy(oa_stream *stream);

/* Notes an operation that was just issued on the stream; on a foreign one records the event at once. */
int oa_stream_advance(oa_stream *stream);
/* Records an event after all that was issued so far, so that other streams wait for no more than that. */
int oa_stream_mark(oa_stream *stream);
/* Notes that the stream was waited for after it had issued that ticket. */
void oa_stream_waited(oa_stream *stream, uint64_t ticket);
/* Makes stream run after other's operations up to ticket. */
int oa_stream_after(oa_stream *stream, oa_stream *other, uint64_t ticket);

/* Makes stream run after all uses that a reader (or a writer) of the memory has to wait for. */
int oa_uses_order(const oa_uses *uses, oa_stream *stream, bool writes);
/* Notes a use by the stream's last operation. */
int oa_uses_add(oa_uses *uses, oa_stream *stream, bool writes);
/* Returns whether all writes are known to be complete. */
bool oa_uses_arrived(const oa_uses *uses);
/* Makes uses by a foreign stream uses by heir, which already runs after it. */
void oa_uses_inherit(oa_uses *uses, const oa_stream *foreign, oa_stream *heir);
/* Returns whether all uses are by that stream, and known to be complete. */
bool oa_uses_over(const oa_uses *uses, const oa_stream *stream);
/* Forgets all uses and frees the list. */
void oa_uses_free(oa_uses *uses);

#endif
