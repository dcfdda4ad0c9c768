/* Copies between host arrays and a device, in batches: what a region has to move at one moment comes as one call, so that
 * how it travels is decided here alone. Called without the core's lock; the memory is pinned by the caller.
 *
 * Three ways. Small arrays are packed into one pinned block, those that are neighbours on the device to one copy. Large
 * ones travel in chunks through pinned blocks, which the core's threads fill and drain. Memory that is pinned already
 * goes directly. Without pinned memory it is the backend's own way, piece by piece. Backends whose operations are
 * complete when they return copy directly, on several threads where that pays. */
#ifndef OA_TRANSFER_H
#define OA_TRANSFER_H

#include "base/lines.h"
#include "device/device.h"
#include "device/staging.h"

/* Shape and host strides of an array that the device holds in C order. */
typedef struct oa_shape {
  int ndim;
  int64_t itemsize;
  int64_t *shape, *strides;
} oa_shape;

/* What the trace says of a copy; nothing else looks at it. */
typedef struct oa_move_trace {
  const char *why;
  uint64_t region, checksum;
  bool is_copy; /* what is copied is not the array's own memory */
} oa_move_trace;

typedef struct oa_move {
  void *host;                /* regular: the lowest byte; else the element at index 0 */
  uint64_t address;          /* of the first line on the device */
  oa_lines lines;            /* regular: on both sides (start is not used); else one line on the device */
  const oa_shape *irregular; /* how the host has it, if not as lines; NULL otherwise */
  const char *name;          /* for messages; NULL: none */
  const void *allocation;    /* which one address is in: a driver's copy must not cross from one to the next */
  int64_t padding;           /* bytes behind the only line that nobody uses, so that they may travel too */
  bool in_place;             /* address is pinned memory, which the device uses as it is; nobody does at the moment */
  /* transfer's own */
  struct oa_block *block; /* given back once all that is staged in it is drained */
  const char *staged;     /* where its bytes lie in a block */
  int64_t first;          /* its first chunk's number in the batch */
  int64_t drained;        /* bytes that reached the array; atomically */
  bool direct, torn;
  oa_move_trace trace;
} oa_move;

/* What this much takes a stream of its own for, so that it overlaps with what the region computes. */
enum { OA_OVERLAP_BYTES = 1 << 20 };

/* Where the ways meet, in bytes. One set for the process; tests change it. */
extern struct oa_tuning {
  int64_t small;                   /* arrays up to this size are packed */
  int64_t alone_most;              /* a batch of fewer bytes is no work for several threads: waking them takes longer */
  int64_t chunk_least, chunk_most; /* of a large array; multiples of 16, at most OA_LARGE_BYTES */
  int64_t part_least;              /* of a chunk, that a thread fills or drains */
  int64_t past_least, past_most;   /* of an array that is packed, of a batch in chunks: written past the caches */
  int64_t split_least;             /* from here on backends that copy by themselves use several threads */
} oa_tuning;

/* The host bytes were read when it returns. The order of moves may be changed. */
int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count);
/* The same; blocks of small arrays are left in *held, which was empty, as long as it has room: the caller returns them. */
int oa_transfer_up_holding(oa_device *device, void *stream, oa_move *moves, int count, oa_held_blocks *held);
/* Starts the copies down: nothing reaches an array yet. If it succeeds, settle or abandon must follow, once the stream was
 * synchronized; the order of moves may be changed. */
int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count);
/* Brings the bytes into the arrays and waits for it. Fails if the device does: each array then is old or new, or the
 * status is OA_ERROR_TORN and the text says which are old, new, torn. */
int oa_transfer_settle(oa_device *device, void *stream, oa_move *moves, int count);
/* Drops what is staged, leaving the arrays alone. */
void oa_transfer_cancel(oa_device *device, oa_move *moves, int count);

#endif
