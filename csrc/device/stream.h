/* Streams, taken from a device's pool or owned by the caller, and the order between streams (a vector clock of
 * tickets). Callers hold the core's lock unless a function says otherwise. */
#ifndef OA_STREAM_H
#define OA_STREAM_H

#include "device/device.h"

/* An object that may be aborted, such as a communicator: its name once it was aborted, for messages; NULL before. Set
 * under the lock. */
typedef _Atomic(const char *) oa_abortable;

/* Operations of an object on a stream. */
typedef struct oa_issued {
  const oa_abortable *object; /* NULL: any object */
  uint64_t first, last;       /* tickets; the operations are over once `last` is */
} oa_issued;

/* A stream counts tickets, one per operation. `seen` is its vector clock. */
typedef struct oa_stream {
  oa_device *device;
  void *native;
  int number; /* index among the streams of the device; -1: a foreign stream */
  /* code outside the core has the stream, and may capture it: a foreign stream, or a stream with an exposed handle */
  bool is_known;
  bool is_for_capture; /* the stream belongs to the pool for captures */
  bool captured;       /* a call was captured on the stream: a graph with that call may run on the stream at any time */
  uint64_t ticket;     /* ticket of the last issued operation */
  void **handles;   /* two handles per library, one for each pointer mode; owned by handles.c; NULL until first need */
  void *event;      /* made at first need */
  uint64_t waited;  /* operations up to this ticket are known to be complete; 0: a foreign stream */
  uint64_t covered; /* the ticket after which the event was last recorded */
  void *pace;       /* the event of oa_stream_advance_apart, made at first need */
  uint64_t paced;   /* the ticket after which `pace` was last recorded; 0: never */
  uint64_t *seen;   /* seen[i]: the latest ticket of stream i after which this stream runs */
  int seen_count;
  oa_issued issued[4];
  uint64_t doubtful;           /* for region/aborted.c: the first operation whose results are undefined; 0: none */
  struct oa_stream *next;      /* in the list of idle streams, or of a region's foreign streams */
  struct oa_stream *next_made; /* in the list of all streams of the device */
  struct oa_stream *next_known, *previous_known; /* in the device's list of known streams */
} oa_stream;

/* The uses of some memory by one stream. */
typedef struct oa_use {
  oa_stream *stream;
  uint64_t read, written; /* tickets; 0: never */
} oa_use;

typedef struct oa_uses {
  oa_use first; /* the use of the only stream in most cases */
  oa_use *more;
  int count, capacity;
} oa_uses;

/* Takes a stream that no program captures from the device's pool, or makes one. */
int oa_stream_take(oa_device *device, oa_stream **stream);
/* Takes a stream that is used for captures only. HIP 7 ends a capture if a thread queries an event that was recorded in
 * the captured stream before the capture. */
int oa_stream_take_for_capture(oa_device *device, oa_stream **stream);
/* Returns a stream to its pool. */
void oa_stream_return(oa_stream *stream);
/* Makes a foreign stream. A foreign stream stands for a stream of the caller, and is valid while its region is open. */
int oa_stream_foreign(oa_device *device, void *native, oa_stream **stream);
/* Destroys a foreign stream; the caller's own stream lives on. */
void oa_stream_destroy(oa_stream *stream);

/* Notes that other code will have the stream's handle. From then on, each operation of the stream is followed directly
 * by its event, because an event that is recorded later could become part of a capture. */
int oa_stream_make_known(oa_stream *stream);
/* Notes that other code no longer has the handle of this stream. The stream belongs to the device, not to the
 * caller. */
void oa_stream_make_unknown(oa_stream *stream);
/* Sets *capturing to 1 if a program captures the stream into a graph. Queries the driver only if other code has the
 * stream, and if the stream certainly exists, because CUDA ends a process that queries a destroyed stream. A stream of
 * the caller may be destroyed already, unless the program uses it now (is_used), or calls were captured on it. A stream
 * on which calls were captured has to live until its region is left. */
int oa_stream_capturing(const oa_stream *stream, bool is_used, int *capturing);
/* Fails with OA_ERROR_CAPTURE if a program captures a known stream of the device: drivers then refuse to wait for the
 * whole device, and end the capture. why: the purpose of the wait. asked: the program itself requests the wait, so the
 * streams of its open regions exist. */
int oa_streams_check(const oa_device *device, const char *why, bool asked);

/* Notes an operation that was just issued on the stream. On a known stream, also records the event. */
int oa_stream_advance(oa_stream *stream);
/* Does as oa_stream_advance. If the device has operations that may wait until they are aborted, frees the lock while it
 * records events, because a driver makes a thread wait while a stream's queue is full. It then also waits if the stream
 * is many calls ahead, so that the queue has room for the events that are recorded under the lock. The stream has to be
 * in use by an open call. */
int oa_stream_advance_apart(oa_stream *stream);
/* Records an event after all operations issued so far, so that other streams wait for these operations only. */
int oa_stream_mark(oa_stream *stream);
/* Notes that all operations of the stream up to that ticket are complete, because the stream was waited for. */
void oa_stream_waited(oa_stream *stream, uint64_t ticket);
/* Notes that the stream's last operation is of that object. */
void oa_stream_note_object(oa_stream *stream, const oa_abortable *object);
/* Returns the ticket of the first operation of the object that may still run; 0: there is none. */
uint64_t oa_stream_first_of(const oa_stream *stream, const oa_abortable *object);
/* Makes `stream` run after the operations of `other` up to that ticket. */
int oa_stream_after(oa_stream *stream, oa_stream *other, uint64_t ticket);

/* Makes stream run after all uses that a reader (or a writer) of the memory has to wait for. */
int oa_uses_order(const oa_uses *uses, oa_stream *stream, bool writes);
/* Makes stream run after all uses, before their memory is freed in the stream's order. If the order can't be made,
 * waits for the device. Returns the failure. *over: false if the memory may still be in use, and can't be freed. */
int oa_uses_end(const oa_uses *uses, oa_stream *stream, bool *over);
/* Waits for the use of that number, unless `stream` itself made it. Frees the core's lock during the wait, so the
 * memory may have more uses afterwards. */
int oa_use_wait(const oa_uses *uses, int number, const oa_stream *stream);
/* Notes a use by the stream's last operation. */
int oa_uses_add(oa_uses *uses, oa_stream *stream, bool writes);
/* Returns whether a doubtful operation wrote. */
bool oa_uses_write_doubtful(const oa_uses *uses);
/* Returns whether all writes are known to be complete. */
bool oa_uses_arrived(const oa_uses *uses);
/* Turns the uses by a foreign stream into uses by `heir`, a stream that already runs after the foreign one. */
void oa_uses_inherit(oa_uses *uses, const oa_stream *foreign, oa_stream *heir);
/* Returns whether all uses are by that stream and known to be complete. */
bool oa_uses_over(const oa_uses *uses, const oa_stream *stream);
/* Removes all uses and frees the list. */
void oa_uses_free(oa_uses *uses);

#endif
